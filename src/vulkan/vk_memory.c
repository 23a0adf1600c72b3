/* Buffers, each with memory of its own: a program needs three and they live as long as it, so there is nothing to sub-allocate.
 * All have a device address. */
#include "vulkan/vk.h"

static const VkBufferUsageFlags usage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | VK_BUFFER_USAGE_TRANSFER_SRC_BIT |
                                        VK_BUFFER_USAGE_TRANSFER_DST_BIT | VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT;

static int32_t type_with(const qn_vk_device *d, uint32_t allowed, VkMemoryPropertyFlags flags) {
    const VkPhysicalDeviceMemoryProperties *m = &d->facts.memory;
    for (uint32_t i = 0; i < m->memoryTypeCount; i++)
        if ((allowed >> i & 1) && (m->memoryTypes[i].propertyFlags & flags) == flags) return (int32_t)i;
    return -1;
}

/* Best first. Reading back is from cached memory where there is any. */
static int32_t choose_type(const qn_vk_device *d, uint32_t allowed, qn_vk_place place) {
    const VkMemoryPropertyFlags host = VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
    VkMemoryPropertyFlags wish = place == QN_VK_ON_DEVICE ? VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT
                                 : place == QN_VK_ON_HOST ? host | VK_MEMORY_PROPERTY_HOST_CACHED_BIT
                                                          : host | VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT;
    int32_t type = type_with(d, allowed, wish);
    return type < 0 ? type_with(d, allowed, place == QN_VK_ON_DEVICE ? 0 : host) : type;
}

static qn_status take_memory(qn_vk_device *d, qn_vk_place place, qn_vk_memory *m, qn_error *error) {
    VkMemoryRequirements need;
    d->vk.GetBufferMemoryRequirements(d->handle, m->buffer, &need);
    int32_t type = choose_type(d, need.memoryTypeBits, place);
    if (type < 0) return qn_error_set(error, QN_DEVICE, "%s has no memory of the kind a buffer needs", d->facts.info.name);
    VkMemoryAllocateFlagsInfo flags = {.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_FLAGS_INFO,
                                       .flags = VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT};
    VkMemoryAllocateInfo info = {.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO,
                                 .pNext = &flags,
                                 .allocationSize = need.size,
                                 .memoryTypeIndex = (uint32_t)type};
    VkResult r = VK_ERROR_OUT_OF_DEVICE_MEMORY;
    if (d->fault == QN_VULKAN_FAULT_NO_MEMORY) d->fault = QN_VULKAN_FAULT_NONE;
    else r = d->vk.AllocateMemory(d->handle, &info, NULL, &m->memory);
    if (r != VK_SUCCESS) return qn_vk_fail(d, "vkAllocateMemory", r, error);
    d->held[m->on_host] += m->bytes;
    QN_VK_TRY(d, BindBufferMemory(d->handle, m->buffer, m->memory, 0), error);
    VkBufferDeviceAddressInfo where = {.sType = VK_STRUCTURE_TYPE_BUFFER_DEVICE_ADDRESS_INFO, .buffer = m->buffer};
    m->address = d->vk.GetBufferDeviceAddress(d->handle, &where);
    if (place != QN_VK_ON_DEVICE) QN_VK_TRY(d, MapMemory(d->handle, m->memory, 0, VK_WHOLE_SIZE, 0, &m->mapped), error);
    return QN_OK;
}

qn_status qn_vk_memory_create(qn_vk_device *d, uint64_t bytes, qn_vk_place place, qn_vk_memory *m, qn_error *error) {
    memset(m, 0, sizeof *m);
    if (d->lost) return qn_error_set(error, QN_DEVICE, "%s was lost: open it again", d->facts.info.name);
    m->bytes = bytes ? bytes : 4;
    m->on_host = place == QN_VK_ON_HOST;
    if (d->facts.max_allocation && m->bytes > d->facts.max_allocation)
        return qn_error_set(error, QN_DEVICE, "%s gives at most %llu bytes at once, %llu are needed", d->facts.info.name,
                            (unsigned long long)d->facts.max_allocation, (unsigned long long)m->bytes);
    VkBufferCreateInfo info = {.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO, .size = m->bytes, .usage = usage};
    VkResult r = d->vk.CreateBuffer(d->handle, &info, NULL, &m->buffer);
    qn_status status = r == VK_SUCCESS ? take_memory(d, place, m, error) : qn_vk_fail(d, "vkCreateBuffer", r, error);
    if (status == QN_OK) return QN_OK;
    qn_error_wrap(error, "%llu bytes on %s", (unsigned long long)m->bytes, d->facts.info.name);
    qn_vk_memory_destroy(d, m);
    return status;
}

void qn_vk_memory_destroy(qn_vk_device *d, qn_vk_memory *m) {
    if (m->buffer) d->vk.DestroyBuffer(d->handle, m->buffer, NULL);
    if (m->memory) {
        d->vk.FreeMemory(d->handle, m->memory, NULL); /* unmaps it too */
        d->held[m->on_host] -= m->bytes;
    }
    memset(m, 0, sizeof *m);
}
