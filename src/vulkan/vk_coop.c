/* What a device says about cooperative matrices. The structures are written out here because the headers of older systems do not
 * have them yet; their layout and numbers are the extensions' own. */
#include <stdio.h>
#include <string.h>

#include "vulkan/vk.h"

enum { COOP_FEATURES = 1000506000, COOP_PROPERTIES = 1000506001, FLOAT16 = 0, FLOAT32 = 1, SCOPE_SUBGROUP = 3, LIST_MAX = 128 };

typedef struct coop_shape {
    VkStructureType type;
    void *next;
    uint32_t m, n, k, a, b, c, result;
    VkBool32 saturating;
    uint32_t scope;
} coop_shape;

typedef VkResult(VKAPI_PTR *list_shapes)(VkPhysicalDevice device, uint32_t *n, coop_shape *list);

static const char *const coop_name = "VK_KHR_cooperative_matrix", *const subgroup_name = "VK_EXT_subgroup_size_control";

static int is_half_to_float(uint32_t a, uint32_t b, uint32_t c, uint32_t result) {
    return a == FLOAT16 && b == FLOAT16 && c == FLOAT32 && result == FLOAT32;
}

/* The fragment with the most work in it; sides that whole words of eight halves fit. */
static void find_fragment(qn_vk_instance *in, qn_vk_facts *f) {
    coop_shape list[LIST_MAX];
    uint32_t n = LIST_MAX;
    list_shapes get = (list_shapes)in->get(in->handle, "vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR");
    memset(list, 0, sizeof list);
    for (int i = 0; i < LIST_MAX; i++) list[i].type = (VkStructureType)COOP_PROPERTIES;
    VkResult r = get ? get(f->handle, &n, list) : VK_ERROR_EXTENSION_NOT_PRESENT;
    if (r != VK_SUCCESS && r != VK_INCOMPLETE) return;
    for (uint32_t i = 0; i < n; i++) {
        const coop_shape *s = &list[i];
        if (!is_half_to_float(s->a, s->b, s->c, s->result) || s->scope != SCOPE_SUBGROUP || s->saturating) continue;
        if (s->m % 8 || s->n % 8 || s->k % 8 || s->m * s->n * s->k <= f->coop.m * f->coop.n * f->coop.k) continue;
        f->coop.m = s->m;
        f->coop.n = s->n;
        f->coop.k = s->k;
    }
}

static void chain_all(qn_vk_extras *x, int with_subgroup, int with_coop) {
    memset(x, 0, sizeof *x);
    x->subgroup.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_FEATURES;
    x->coop.type = (VkStructureType)COOP_FEATURES;
    if (with_subgroup) {
        x->chain = &x->subgroup;
        x->names[x->n_names++] = subgroup_name;
    }
    if (with_coop) {
        x->coop.next = x->chain;
        x->chain = &x->coop;
        x->names[x->n_names++] = coop_name;
    }
}

void qn_vk_coop_find(qn_vk_instance *in, qn_vk_facts *f) {
    qn_vk_extras x;
    if (!qn_vk_facts_lists(in, f, coop_name)) return;
    chain_all(&x, qn_vk_facts_lists(in, f, subgroup_name), 1);
    VkPhysicalDeviceVulkan12Features v12 = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES, .pNext = x.chain};
    VkPhysicalDeviceFeatures2 features = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2, .pNext = &v12};
    in->vk.GetPhysicalDeviceFeatures2(f->handle, &features);
    if (!x.coop.on || !v12.vulkanMemoryModel || !v12.vulkanMemoryModelDeviceScope || !v12.shaderFloat16) return;
    f->coop.fixed_subgroup = x.subgroup.subgroupSizeControl && x.subgroup.computeFullSubgroups;
    find_fragment(in, f);
    if (f->coop.m) f->info.features |= QN_DEVICE_COOPERATIVE;
}

void qn_vk_coop_ask(const qn_vk_facts *f, qn_vk_extras *x) {
    chain_all(x, f->coop.fixed_subgroup != 0, f->coop.m != 0);
    x->subgroup.subgroupSizeControl = x->subgroup.computeFullSubgroups = VK_TRUE;
    x->coop.on = VK_TRUE;
}

const char *qn_vulkan_facts(const qn_device *device, char *text, size_t room) {
    const qn_vk_facts *f = &((const qn_vk_device *)device)->facts;
    const qn_vk_coop *c = &f->coop;
    snprintf(text, room, "%u bytes of shared memory; fragments %ux%ux%u", f->properties.limits.maxComputeSharedMemorySize, c->m,
             c->n, c->k);
    return text;
}
