/* Pipelines: one per shader and specialisation, made when a program first needs it and kept with the device. All have the same
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

static qn_status make_module(qn_vk_device *d, int shader, qn_error *error) {
    if (d->modules[shader]) return QN_OK;
    VkShaderModuleCreateInfo info = {.sType = VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO,
                                     .codeSize = qn_vk_shaders[shader].bytes,
                                     .pCode = qn_vk_shaders[shader].code};
    QN_VK_TRY(d, CreateShaderModule(d->handle, &info, NULL, &d->modules[shader]), error);
    return QN_OK;
}

static qn_status make_pipeline(qn_vk_device *d, int shader, const qn_vk_spec *spec, VkPipeline *pipeline, qn_error *error) {
    enum { CONSTANTS = sizeof(qn_vk_spec) / sizeof(uint32_t) };
    VkSpecializationMapEntry map[CONSTANTS];
    for (uint32_t i = 0; i < CONSTANTS; i++)
        map[i] = (VkSpecializationMapEntry){i, i * (uint32_t)sizeof(uint32_t), sizeof(uint32_t)};
    VkSpecializationInfo special = {.mapEntryCount = CONSTANTS, .pMapEntries = map, .dataSize = sizeof *spec, .pData = spec};
    VkComputePipelineCreateInfo info = {.sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO, .layout = d->layout};
    info.stage = (VkPipelineShaderStageCreateInfo){.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO,
                                                   .stage = VK_SHADER_STAGE_COMPUTE_BIT,
                                                   .module = d->modules[shader],
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

qn_status qn_vk_pipeline_get(qn_vk_device *d, int shader, const qn_vk_spec *spec, VkPipeline *pipeline, qn_error *error) {
    for (size_t i = 0; i < d->pipelines.n; i++) {
        const qn_vk_pipeline *p = &d->pipelines.at[i];
        if (p->shader != shader || memcmp(&p->spec, spec, sizeof *spec) != 0) continue;
        *pipeline = p->handle;
        return QN_OK;
    }
    if (!QN_VEC_ROOM(&d->arena, &d->pipelines, 1)) return qn_error_set(error, QN_NO_MEMORY, "no memory for one more pipeline");
    qn_status status = make_module(d, shader, error);
    if (status == QN_OK) status = make_pipeline(d, shader, spec, pipeline, error);
    if (status != QN_OK) return qn_error_wrap(error, "shader %s", qn_vk_shaders[shader].name);
    d->pipelines.at[d->pipelines.n++] = (qn_vk_pipeline){shader, *spec, *pipeline};
    return QN_OK;
}
