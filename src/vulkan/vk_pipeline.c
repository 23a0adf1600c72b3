/* Pipelines: one per shader and specialisation, or per emitted kernel, made when a program first needs it and kept with the device. All have the same
 * layout, 128 bytes of push constants and nothing else, because kernels reach memory by address. */
#include "vulkan/vk.h"

int qn_vk_shader_find(const char *name) {
    for (int i = 0; qn_vk_shaders[i].name && i < QN_VK_SHADERS_MAX; i++)
        if (strcmp(qn_vk_shaders[i].name, name) == 0) return i;
    return -1;
}

qn_status qn_vk_pipelines_init(qn_vk_device *d, qn_error *error) {
    VkPushConstantRange push = {.stageFlags = VK_SHADER_STAGE_COMPUTE_BIT, .offset = 0, .size = sizeof(qn_vk_push)};
    VkPipelineLayoutCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO, .pushConstantRangeCount = 1, .pPushConstantRanges = &push};
    QN_VK_TRY(d, CreatePipelineLayout(d->handle, &info, NULL, &d->layout), error);
    return QN_OK;
}

void qn_vk_pipelines_destroy(qn_vk_device *d) {
    for (size_t i = 0; i < d->pipelines.n; i++) d->vk.DestroyPipeline(d->handle, d->pipelines.at[i].handle, NULL);
    d->pipelines.n = 0;
    for (int i = 0; i < QN_VK_SHADERS_MAX; i++)
        if (d->modules[i]) d->vk.DestroyShaderModule(d->handle, d->modules[i], NULL);
    if (d->cache) d->vk.DestroyPipelineCache(d->handle, d->cache, NULL);
    if (d->layout) d->vk.DestroyPipelineLayout(d->handle, d->layout, NULL);
}

static qn_status make_module(qn_vk_device *d, const uint32_t *code, size_t bytes, VkShaderModule *module, qn_error *error) {
    VkShaderModuleCreateInfo info = {.sType = VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO, .codeSize = bytes, .pCode = code};
    QN_VK_TRY(d, CreateShaderModule(d->handle, &info, NULL, module), error);
    return QN_OK;
}

static qn_status make_pipeline(qn_vk_device *d, VkShaderModule module, const qn_vk_spec *spec, VkPipeline *pipeline,
                               qn_error *error) {
    enum { CONSTANTS = sizeof(qn_vk_spec) / sizeof(uint32_t) };
    VkSpecializationMapEntry map[CONSTANTS];
    for (uint32_t i = 0; i < CONSTANTS; i++)
        map[i] = (VkSpecializationMapEntry){i, i * (uint32_t)sizeof(uint32_t), sizeof(uint32_t)};
    VkSpecializationInfo special = {.mapEntryCount = CONSTANTS, .pMapEntries = map, .dataSize = sizeof *spec, .pData = spec};
    VkComputePipelineCreateInfo info = {.sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO, .layout = d->layout};
    info.stage = (VkPipelineShaderStageCreateInfo){.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO,
                                                   .stage = VK_SHADER_STAGE_COMPUTE_BIT,
                                                   .module = module,
                                                   .pName = "main",
                                                   .pSpecializationInfo = &special};
    VkPipelineShaderStageRequiredSubgroupSizeCreateInfo size = {
        .sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_REQUIRED_SUBGROUP_SIZE_CREATE_INFO,
        .requiredSubgroupSize = d->facts.info.subgroup};
    if (spec->lanes && d->facts.coop.fixed_subgroup) { /* such kernels count their subgroups */
        info.stage.pNext = &size;
        info.stage.flags = VK_PIPELINE_SHADER_STAGE_CREATE_REQUIRE_FULL_SUBGROUPS_BIT;
    }
    QN_VK_TRY(d, CreateComputePipelines(d->handle, d->cache, 1, &info, NULL, pipeline), error);
    return QN_OK;
}

/* As it was built, its module kept for the next specialisation. */
static qn_status make_built(qn_vk_device *d, const qn_vk_dispatch *x, VkPipeline *pipeline, qn_error *error) {
    const qn_vk_shader *s = &qn_vk_shaders[x->shader];
    if (!d->modules[x->shader]) QN_TRY(make_module(d, s->code, s->bytes, &d->modules[x->shader], error));
    return make_pipeline(d, d->modules[x->shader], &x->spec, pipeline, error);
}

static qn_status make_emitted(qn_vk_device *d, const qn_vk_dispatch *x, VkPipeline *pipeline, qn_error *error) {
    qn_arena arena;
    VkShaderModule module = VK_NULL_HANDLE;
    size_t n = 0;
    qn_arena_init(&arena, 0);
    const uint32_t *words = qn_vk_region_emit(&arena, &x->key, &n);
    if (words && d->show) d->show(d->show_user, words, n);
    qn_status status = words ? make_module(d, words, n * sizeof *words, &module, error)
                             : qn_error_set(error, QN_NO_MEMORY, "no memory for an emitted kernel");
    if (status == QN_OK) status = make_pipeline(d, module, &x->spec, pipeline, error);
    if (module) d->vk.DestroyShaderModule(d->handle, module, NULL);
    qn_arena_destroy(&arena);
    return status;
}

static int is_same(const qn_vk_pipeline *p, const qn_vk_dispatch *x) {
    return p->shader == x->shader && memcmp(&p->spec, &x->spec, sizeof x->spec) == 0 && p->n_key == x->key.n &&
           (x->key.n == 0 || memcmp(p->key, x->key.words, (size_t)x->key.n * sizeof *p->key) == 0);
}

qn_status qn_vk_pipeline_get(qn_vk_device *d, const qn_vk_dispatch *x, VkPipeline *pipeline, qn_error *error) {
    for (size_t i = 0; i < d->pipelines.n; i++) {
        if (!is_same(&d->pipelines.at[i], x)) continue;
        *pipeline = d->pipelines.at[i].handle;
        return QN_OK;
    }
    uint32_t *key = x->key.n ? qn_arena_alloc(&d->arena, (size_t)x->key.n, sizeof *key) : NULL;
    if ((x->key.n && !key) || !QN_VEC_ROOM(&d->arena, &d->pipelines, 1))
        return qn_error_set(error, QN_NO_MEMORY, "no memory for one more pipeline");
    qn_status status = x->key.n ? make_emitted(d, x, pipeline, error) : make_built(d, x, pipeline, error);
    if (status != QN_OK) return qn_error_wrap(error, "shader %s", qn_vk_shaders[x->shader].name);
    if (key) memcpy(key, x->key.words, (size_t)x->key.n * sizeof *key);
    d->pipelines.at[d->pipelines.n++] = (qn_vk_pipeline){x->shader, x->spec, x->key.n, key, *pipeline};
    return QN_OK;
}
