/* Packing for kernels that include glsl/many.glsl: operands by number over one shape. */
#ifndef QN_VULKAN_VK_MANY_H
#define QN_VULKAN_VK_MANY_H

#include "vulkan/vk_layout.h"

enum { QN_VK_MANY = 9 }; /* dtypes that a specialisation has room for */

typedef struct qn_vk_many {
    const qn_tensor *shape;
    int keep;                        /* as in qn_vk_fold */
    const qn_tensor *at[QN_VK_MANY]; /* NULL where one is left out */
} qn_vk_many;

/* Fills extents, dtypes (floats only), and the block with strides and addresses. */
qn_status qn_vk_pack_many(qn_vk_pack *p, const qn_vk_many *many);
/* One of the step's tensors, NULL when it is not there. */
const qn_tensor *qn_vk_source(const qn_vk_pack *p, int slot);
const qn_tensor *qn_vk_output(const qn_vk_pack *p, int slot);

#endif
