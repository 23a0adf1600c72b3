/* Tools of the packers: shapes folded to the four axes that kernels walk, dtypes, grids. */
#ifndef QN_VULKAN_VK_LAYOUT_H
#define QN_VULKAN_VK_LAYOUT_H

#include "tensor/dtype.h"
#include "vulkan/vk.h"

enum { QN_VK_AXES = 4, QN_VK_OPERANDS = 16 };

/* Any number of operands over one shape. Extents of 1, and axes that an operand lacks, have a stride of 0 and so are stretched. */
typedef struct qn_vk_fold {
    const qn_tensor *shape; /* whose extents are walked */
    int n;
    const qn_tensor *operand[QN_VK_OPERANDS]; /* NULL: strides of 0 */
    const qn_tensor *tiled;                   /* the one that may be smaller and then repeats, NULL for none */
    int keep;                                 /* axes from the last that must not be folded into others */
    int32_t stride[QN_VK_OPERANDS][QN_VK_AXES];
} qn_vk_fold;
/* Fills extents, rank and tiling, and the strides; UNSUPPORTED when more than four axes remain or a number is too large. */
qn_status qn_vk_fold_axes(qn_vk_pack *p, qn_vk_fold *fold);

/* Operands of a walk; any but the walked shape may be missing. b may be smaller and is then tiled. */
typedef struct qn_vk_walk {
    const qn_tensor *shape; /* whose extents are walked */
    const qn_tensor *a, *b, *y;
    int keep; /* axes from the last that must not be folded into others */
} qn_vk_walk;

/* The same for the three that push constants have room for, with their addresses. */
qn_status qn_vk_pack_walk(qn_vk_pack *p, const qn_vk_walk *walk);
/* One lane per element of n. */
qn_status qn_vk_grid_elements(qn_vk_pack *p);
/* One workgroup per row: all of n but the fastest axis. */
qn_status qn_vk_grid_rows(qn_vk_pack *p);
/* So many workgroups, folded into two axes. */
qn_status qn_vk_grid_groups(qn_vk_pack *p, uint64_t groups);

/* Ends the dispatch being filled and begins another of the same step; `waits`: it needs what came before. */
qn_status qn_vk_next(qn_vk_pack *p, const char *shader, uint32_t fn, int waits);

/* The same in two halves, for packers whose row has no shader of its own and which begin all their dispatches themselves. */
qn_status qn_vk_begin_dispatch(qn_vk_pack *p, const char *shader, uint32_t fn, int waits);
qn_status qn_vk_end_dispatch(qn_vk_pack *p);

/* A part of a step that is an op by itself, translated as any step is: for rows of vk_kernels.def whose shader is `none`. */
enum { QN_VK_SUB_TENSORS = 10 };
typedef struct qn_vk_sub {
    int op, subop, waits;
    const void *attr; /* NULL takes the defaults */
    const qn_tensor *src[QN_VK_SUB_TENSORS], *dst[QN_VK_SUB_TENSORS];
} qn_vk_sub;
qn_status qn_vk_sub_step(qn_vk_pack *p, const qn_vk_sub *sub);
/* A dense tensor in this step's own memory. */
qn_status qn_vk_scratch(qn_vk_pack *p, uint32_t dtype, int rank, const int64_t *shape, qn_tensor *t);

/* For a dispatch of reduce_axes: y is the sum of x over its first axis. */
qn_status qn_vk_pack_sum_first(qn_vk_pack *p, const qn_tensor *x, const qn_tensor *y);

/* The kernels' word for a dtype they can compute with; QN_VK_NO_TYPE for others. */
qn_vk_type qn_vk_type_of(uint32_t dtype);
/* What elements of a dtype move as, where nothing is computed. */
qn_vk_type qn_vk_word_of(uint32_t dtype);
/* The same for block types, which only some kernels read. */
qn_vk_type qn_vk_block_type_of(uint32_t dtype);
/* Stride in bytes of the k-th axis from the end, for those. */
qn_status qn_vk_byte_stride(qn_vk_pack *p, const qn_tensor *t, int k, int32_t *stride);
/* Rejects unless source or destination dtypes are all of {f32, f16, bf16}; fills the spec. Missing ones are f32. */
qn_status qn_vk_float_types(qn_vk_pack *p, const qn_tensor *a, const qn_tensor *b, const qn_tensor *y);
qn_status qn_vk_refuse(qn_vk_pack *p, const char *why);

/* Room in the parameter block; *address is where the device finds it. NULL while only asking. */
void *qn_vk_take_block(qn_vk_pack *p, uint64_t bytes, uint64_t *address);
/* The op's f32 attributes, in the order of the table, into p[0..]. */
void qn_vk_pack_numbers(qn_vk_pack *p);
uint64_t qn_vk_address(const qn_vk_pack *p, const qn_tensor *t);
/* Whether y is not in the place of a, so that it must be copied there first; yes while that is not known. */
int qn_vk_apart(const qn_vk_pack *p, const qn_tensor *a, const qn_tensor *y);
/* Stride of the k-th axis from the end in elements, 0 where the extent is 1. Rejects what does not fit. */
qn_status qn_vk_stride(qn_vk_pack *p, const qn_tensor *t, int k, int32_t *stride);
/* Four axes and 32-bit extents are what kernels take that know their axes. */
qn_status qn_vk_at_most_4_axes(qn_vk_pack *p, const qn_tensor *t);
qn_status qn_vk_extent(qn_vk_pack *p, int64_t n, uint32_t *out);
static inline uint32_t qn_vk_bits(float f) {
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

#endif
