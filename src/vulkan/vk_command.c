/* Submitting and waiting. One timeline semaphore counts the submissions of a device; a run waits for its own number. */
#include "vulkan/vk.h"

static qn_status check_alive(const qn_vk_device *d, qn_error *error) {
    return d->lost ? qn_error_set(error, QN_DEVICE, "%s was lost: open it again", d->facts.info.name) : QN_OK;
}

qn_status qn_vk_submit(qn_vk_device *d, const VkCommandBuffer *commands, int n, uint64_t *value, qn_error *error) {
    QN_TRY(check_alive(d, error));
    *value = d->submitted + 1;
    VkTimelineSemaphoreSubmitInfo when = {.sType = VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO,
                                          .signalSemaphoreValueCount = 1,
                                          .pSignalSemaphoreValues = value};
    VkSubmitInfo info = {.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
                         .pNext = &when,
                         .commandBufferCount = (uint32_t)n,
                         .pCommandBuffers = commands,
                         .signalSemaphoreCount = 1,
                         .pSignalSemaphores = &d->timeline};
    if (d->fault == QN_VULKAN_FAULT_LOST_ON_SUBMIT) {
        d->fault = QN_VULKAN_FAULT_NONE;
        return qn_vk_fail(d, "vkQueueSubmit", VK_ERROR_DEVICE_LOST, error);
    }
    QN_VK_TRY(d, QueueSubmit(d->queue, 1, &info, VK_NULL_HANDLE), error);
    d->submitted = *value;
    return QN_OK;
}

qn_status qn_vk_wait(qn_vk_device *d, uint64_t value, uint64_t timeout_ns, qn_error *error) {
    QN_TRY(check_alive(d, error));
    VkSemaphoreWaitInfo info = {
        .sType = VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO, .semaphoreCount = 1, .pSemaphores = &d->timeline, .pValues = &value};
    VkResult r;
    if (d->fault == QN_VULKAN_FAULT_LOST_ON_WAIT || d->fault == QN_VULKAN_FAULT_TIMEOUT) {
        r = d->fault == QN_VULKAN_FAULT_TIMEOUT ? VK_TIMEOUT : VK_ERROR_DEVICE_LOST;
        d->fault = QN_VULKAN_FAULT_NONE;
    } else {
        r = d->vk.WaitSemaphores(d->handle, &info, timeout_ns);
    }
    if (r == VK_TIMEOUT)
        return qn_error_set(error, QN_DEVICE, "vkWaitSemaphores: %s has not finished within %.3f s", d->facts.info.name,
                            (double)timeout_ns * 1e-9);
    return r == VK_SUCCESS ? QN_OK : qn_vk_fail(d, "vkWaitSemaphores", r, error);
}

qn_status qn_vk_begin(qn_vk_device *d, VkCommandBuffer c, int once, qn_error *error) {
    VkCommandBufferBeginInfo info = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO,
                                     .flags = once ? VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT : 0};
    QN_VK_TRY(d, BeginCommandBuffer(c, &info), error);
    return QN_OK;
}

void qn_vk_barrier(qn_vk_device *d, VkCommandBuffer c, VkPipelineStageFlags from, VkAccessFlags wrote, VkPipelineStageFlags to,
                   VkAccessFlags reads) {
    VkMemoryBarrier b = {.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER, .srcAccessMask = wrote, .dstAccessMask = reads};
    d->vk.CmdPipelineBarrier(c, from, to, 0, 1, &b, 0, NULL, 0, NULL);
}

static qn_status record_copy(qn_vk_device *d, VkCommandBuffer c, const qn_vk_memory *from, uint64_t from_at,
                             const qn_vk_memory *to, uint64_t to_at, uint64_t bytes, qn_error *error) {
    VkBufferCopy part = {.srcOffset = from_at, .dstOffset = to_at, .size = bytes};
    QN_TRY(qn_vk_begin(d, c, 1, error));
    d->vk.CmdCopyBuffer(c, from->buffer, to->buffer, 1, &part);
    qn_vk_barrier(d, c, VK_PIPELINE_STAGE_TRANSFER_BIT, VK_ACCESS_TRANSFER_WRITE_BIT,
                  VK_PIPELINE_STAGE_HOST_BIT | VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT | VK_PIPELINE_STAGE_TRANSFER_BIT,
                  VK_ACCESS_HOST_READ_BIT | VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_SHADER_WRITE_BIT | VK_ACCESS_TRANSFER_READ_BIT |
                      VK_ACCESS_TRANSFER_WRITE_BIT);
    QN_VK_TRY(d, EndCommandBuffer(c), error);
    return QN_OK;
}

/* A copy of its own, waited for: for loading, not for running. */
qn_status qn_vk_copy(qn_vk_device *d, const qn_vk_memory *from, uint64_t from_at, const qn_vk_memory *to, uint64_t to_at,
                     uint64_t bytes, qn_error *error) {
    QN_TRY(check_alive(d, error));
    VkCommandBuffer c;
    VkCommandBufferAllocateInfo info = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
                                        .commandPool = d->pool,
                                        .level = VK_COMMAND_BUFFER_LEVEL_PRIMARY,
                                        .commandBufferCount = 1};
    QN_VK_TRY(d, AllocateCommandBuffers(d->handle, &info, &c), error);
    uint64_t value = 0;
    qn_status status = record_copy(d, c, from, from_at, to, to_at, bytes, error);
    if (status == QN_OK) status = qn_vk_submit(d, &c, 1, &value, error);
    if (status == QN_OK) status = qn_vk_wait(d, value, UINT64_MAX, error);
    d->vk.FreeCommandBuffers(d->handle, d->pool, 1, &c);
    return status;
}
