/* What a device says about cooperative matrices. The structures are written out here because the headers of older systems do not
 * have them yet; their layout and numbers are the extensions' own. */
#include <stdio.h>
#include <string.h>

#include "vulkan/vk.h"

enum {
    COOP_FEATURES = 1000506000,
    COOP_PROPERTIES = 1000506001,
    COOP2_FEATURES = 1000593000,
    COOP2_DIMENSIONS = 1000593001,
    COOP2_PROPERTIES = 1000593002,
    FLOAT16 = 0,
    FLOAT32 = 1,
    SCOPE_WORKGROUP = 2,
    SCOPE_SUBGROUP = 3,
    LIST_MAX = 128
};

typedef struct coop_shape {
    VkStructureType type;
    void *next;
    uint32_t m, n, k, a, b, c, result;
    VkBool32 saturating;
    uint32_t scope;
} coop_shape;

typedef struct coop2_dimensions {
    VkStructureType type;
    void *next;
    uint32_t m, n, k, a, b, c, result;
    VkBool32 saturating;
    uint32_t scope, lanes;
} coop2_dimensions;

typedef struct coop2_properties {
    VkStructureType type;
    void *next;
    uint32_t max_lanes, max_side, reserved;
} coop2_properties;

typedef VkResult(VKAPI_PTR *list_shapes)(VkPhysicalDevice device, uint32_t *n, coop_shape *list);
typedef VkResult(VKAPI_PTR *list_dimensions)(VkPhysicalDevice device, uint32_t *n, coop2_dimensions *list);

static const char *const coop_name = "VK_KHR_cooperative_matrix", *const coop2_name = "VK_NV_cooperative_matrix2";
static const char *const subgroup_name = "VK_EXT_subgroup_size_control";

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

static void find_wide(qn_vk_instance *in, qn_vk_facts *f) {
    coop2_dimensions list[LIST_MAX];
    uint32_t n = LIST_MAX;
    list_dimensions get = (list_dimensions)in->get(in->handle,
                                                   "vkGetPhysicalDeviceCooperativeMatrixFlexibleDimensionsPropertiesNV");
    coop2_properties p = {.type = (VkStructureType)COOP2_PROPERTIES};
    VkPhysicalDeviceProperties2 all = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2, .pNext = &p};
    memset(list, 0, sizeof list);
    for (int i = 0; i < LIST_MAX; i++) list[i].type = (VkStructureType)COOP2_DIMENSIONS;
    VkResult r = get ? get(f->handle, &n, list) : VK_ERROR_EXTENSION_NOT_PRESENT;
    if (r != VK_SUCCESS && r != VK_INCOMPLETE) return;
    in->vk.GetPhysicalDeviceProperties2(f->handle, &all);
    f->coop.wide_most = p.max_side;
    f->coop.wide_room = p.reserved;
    for (uint32_t i = 0; i < n && f->coop.n_wide < 4; i++) {
        const coop2_dimensions *s = &list[i];
        if (!is_half_to_float(s->a, s->b, s->c, s->result) || s->scope != SCOPE_WORKGROUP || s->saturating) continue;
        if (s->lanes > p.max_lanes || !s->m || !s->n || !s->k) continue;
        f->coop.wide[f->coop.n_wide].lanes = s->lanes;
        f->coop.wide[f->coop.n_wide].m = s->m;
        f->coop.wide[f->coop.n_wide].n = s->n;
        f->coop.wide[f->coop.n_wide++].k = s->k;
    }
}

static void chain_all(qn_vk_extras *x, int with_subgroup, int with_coop, int with_coop2) {
    memset(x, 0, sizeof *x);
    x->subgroup.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_FEATURES;
    x->coop.type = (VkStructureType)COOP_FEATURES;
    x->coop2.type = (VkStructureType)COOP2_FEATURES;
    if (with_subgroup) {
        x->chain = &x->subgroup;
        x->names[x->n_names++] = subgroup_name;
    }
    if (with_coop) {
        x->coop.next = x->chain;
        x->chain = &x->coop;
        x->names[x->n_names++] = coop_name;
    }
    if (with_coop2) {
        x->maintenance.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAINTENANCE_4_FEATURES; /* of Vulkan 1.3, as SPIR-V 1.6 is */
        x->maintenance.pNext = x->chain;
        x->coop2.next = &x->maintenance;
        x->chain = &x->coop2;
        x->names[x->n_names++] = coop2_name;
    }
}

void qn_vk_coop_find(qn_vk_instance *in, qn_vk_facts *f) {
    qn_vk_extras x;
    int coop = qn_vk_facts_lists(in, f, coop_name),
        coop2 = f->properties.apiVersion >= VK_API_VERSION_1_3 && qn_vk_facts_lists(in, f, coop2_name);
    if (!coop) return;
    chain_all(&x, qn_vk_facts_lists(in, f, subgroup_name), coop, coop2);
    VkPhysicalDeviceVulkan12Features v12 = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES, .pNext = x.chain};
    VkPhysicalDeviceFeatures2 features = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2, .pNext = &v12};
    in->vk.GetPhysicalDeviceFeatures2(f->handle, &features);
    if (!x.coop.on || !v12.vulkanMemoryModel || !v12.vulkanMemoryModelDeviceScope || !v12.shaderFloat16) return;
    f->coop.fixed_subgroup = x.subgroup.subgroupSizeControl && x.subgroup.computeFullSubgroups;
    find_fragment(in, f);
    if (f->coop.m) f->info.features |= QN_DEVICE_COOPERATIVE;
    if (x.coop2.workgroup_scope && x.coop2.flexible && x.coop2.tensor_addressing && x.coop2.block_loads) find_wide(in, f);
}

void qn_vk_coop_ask(const qn_vk_facts *f, qn_vk_extras *x) {
    chain_all(x, f->coop.fixed_subgroup != 0, f->coop.m != 0, f->coop.n_wide != 0);
    x->subgroup.subgroupSizeControl = x->subgroup.computeFullSubgroups = VK_TRUE;
    x->coop.on = VK_TRUE;
    x->coop2.workgroup_scope = x->coop2.flexible = x->coop2.tensor_addressing = x->coop2.block_loads = VK_TRUE;
    x->maintenance.maintenance4 = VK_TRUE;
}

const char *qn_vulkan_facts(const qn_device *device, char *text, size_t room) {
    const qn_vk_facts *f = &((const qn_vk_device *)device)->facts;
    const qn_vk_coop *c = &f->coop;
    size_t used = (size_t)snprintf(text, room, "%u bytes of shared memory; fragments %ux%ux%u",
                                   f->properties.limits.maxComputeSharedMemorySize, c->m, c->n, c->k);
    for (int i = 0; i < c->n_wide && used < room; i++)
        used += (size_t)snprintf(text + used, room - used, "; workgroups of %u: multiples of %ux%ux%u up to %u", c->wide[i].lanes,
                                 c->wide[i].m, c->wide[i].n, c->wide[i].k, c->wide_most);
    if (c->n_wide && used < room) snprintf(text + used, room - used, "; %u bytes reserved", c->wide_room);
    return text;
}
