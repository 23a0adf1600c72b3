/* The device behind the vtable: opening and closing, buffers, what it can run. */
#include <stdio.h>

#include "base/memory.h"
#include "vulkan/vk.h"

enum { STAGING_BYTES = 16 << 20 };

static void destroy(qn_device *device) {
    qn_vk_device *d = (qn_vk_device *)device;
    qn_vk_cache_store(d);
    qn_vk_device_unmake(d);
    qn_vk_instance_destroy(d->instance);
    qn_arena_destroy(&d->arena);
    qn_allocator memory = qn_memory_default();
    memory.release(memory.user, d, sizeof *d);
}

static void describe(const qn_device *device, qn_device_info *info) {
    *info = ((const qn_vk_device *)device)->facts.info;
    info->n_kernels = (uint32_t)qn_vulkan_op_count();
}

static qn_status supports(qn_device *device, const qn_checked_step *step, qn_error *error) {
    qn_vk_dispatch list[QN_VK_DISPATCHES];
    qn_vk_pack pack = {.device = (const qn_vk_device *)device, .step = step, .asks = 1, .list = list, .error = error};
    return qn_vk_translate(&pack);
}

static qn_status buffer_create(qn_device *device, uint64_t bytes, qn_device_buffer **buffer, qn_error *error) {
    qn_allocator memory = qn_memory_default();
    qn_vk_buffer *b = memory.allocate(memory.user, sizeof *b, _Alignof(max_align_t));
    if (!b) return qn_error_set(error, QN_NO_MEMORY, "no memory for a buffer's record");
    b->base = (qn_device_buffer){device, bytes};
    qn_status status = qn_vk_memory_create((qn_vk_device *)device, bytes, QN_VK_ON_DEVICE, &b->memory, error);
    if (status == QN_OK) *buffer = &b->base;
    else memory.release(memory.user, b, sizeof *b);
    return status;
}

static void buffer_destroy(qn_device_buffer *buffer) {
    qn_vk_buffer *b = (qn_vk_buffer *)buffer;
    qn_vk_memory_destroy((qn_vk_device *)buffer->device, &b->memory);
    qn_allocator memory = qn_memory_default();
    memory.release(memory.user, b, sizeof *b);
}

static uint64_t piece(uint64_t bytes, uint64_t done) { return bytes - done < STAGING_BYTES ? bytes - done : STAGING_BYTES; }

/* It grows with the copies and stays: a device that moves little has little of the host's memory. */
static qn_status need_staging(qn_vk_device *d, uint64_t bytes, qn_error *error) {
    if (piece(bytes, 0) <= d->base.copy_held) return QN_OK;
    d->vk.DeviceWaitIdle(d->handle); /* nobody knows what a copy that was given up still does */
    qn_vk_memory_destroy(d, &d->staging);
    d->base.copy_held = 0;
    QN_TRY(qn_vk_memory_create(d, piece(bytes, 0), QN_VK_ON_HOST, &d->staging, error));
    d->base.copy_held = d->staging.bytes;
    return QN_OK;
}

static qn_status upload(qn_device_buffer *buffer, uint64_t offset, const void *from, uint64_t bytes, qn_error *error) {
    qn_vk_device *d = (qn_vk_device *)buffer->device;
    QN_TRY(need_staging(d, bytes, error));
    for (uint64_t done = 0; done < bytes; done += STAGING_BYTES) {
        memcpy(d->staging.mapped, (const char *)from + done, (size_t)piece(bytes, done));
        QN_TRY(qn_vk_copy(d, &d->staging, 0, &((qn_vk_buffer *)buffer)->memory, offset + done, piece(bytes, done), error));
    }
    return QN_OK;
}

static qn_status download(qn_device_buffer *buffer, uint64_t offset, void *to, uint64_t bytes, qn_error *error) {
    qn_vk_device *d = (qn_vk_device *)buffer->device;
    QN_TRY(need_staging(d, bytes, error));
    for (uint64_t done = 0; done < bytes; done += STAGING_BYTES) {
        QN_TRY(qn_vk_copy(d, &((qn_vk_buffer *)buffer)->memory, offset + done, &d->staging, 0, piece(bytes, done), error));
        memcpy((char *)to + done, d->staging.mapped, (size_t)piece(bytes, done));
    }
    return QN_OK;
}

static const qn_device_vtable calls = {.destroy = destroy,
                                       .describe = describe,
                                       .supports = supports,
                                       .buffer_create = buffer_create,
                                       .buffer_destroy = buffer_destroy,
                                       .upload = upload,
                                       .download = download,
                                       .program_measure = qn_vk_program_measure,
                                       .program_create = qn_vk_program_create,
                                       .program_destroy = qn_vk_program_destroy,
                                       .program_run = qn_vk_program_run,
                                       .program_times = qn_vk_program_times,
                                       .program_began = qn_vk_program_began};

int qn_vulkan_count(qn_error *error) {
    qn_vk_instance *in = NULL;
    if (qn_vk_instance_create(0, &in, error) != QN_OK) return 0;
    int n = qn_vk_instance_count(in, error);
    qn_vk_instance_destroy(in);
    return n;
}

qn_status qn_vulkan_describe(int index, qn_device_info *info, qn_error *error) {
    qn_vk_instance *in = NULL;
    qn_vk_facts facts;
    QN_TRY(qn_vk_instance_create(0, &in, error));
    qn_status status = qn_vk_instance_facts(in, index, &facts, error);
    qn_vk_instance_destroy(in);
    if (status != QN_OK) return status;
    *info = facts.info;
    info->n_kernels = (uint32_t)qn_vulkan_op_count();
    if (facts.lacks[0]) snprintf(info->verdict, sizeof info->verdict, "cannot be used: it lacks %s", facts.lacks);
    return QN_OK;
}

static qn_status open_device(qn_vk_device *d, const qn_vulkan_options *o, qn_error *error) {
    QN_TRY(qn_vk_instance_create(o->flags, &d->instance, error));
    QN_TRY(qn_vk_instance_facts(d->instance, o->index, &d->facts, error));
    QN_TRY(qn_vk_device_make(d, error));
    if (d->facts.info.features & QN_DEVICE_SOFTWARE && !(o->flags & QN_VULKAN_EVERY_KERNEL)) d->distrusted = QN_VULKAN_COOP;
    QN_TRY(qn_vk_cache_open(d, o->cache, error));
    if (o->flags & QN_VULKAN_NO_SELF_TEST) {
        snprintf(d->facts.info.verdict, sizeof d->facts.info.verdict, "not tested");
        return QN_OK;
    }
    if (qn_vk_self_test(&d->base, error) != QN_OK) return qn_error_wrap(error, "%s failed its self-test", d->facts.info.name);
    d->facts.info.features |= QN_DEVICE_TRUSTED;
    return QN_OK;
}

qn_status qn_vulkan_open(const qn_vulkan_options *options, qn_device **device, qn_error *error) {
    static const qn_vulkan_options first = {0, 0, NULL};
    qn_allocator memory = qn_memory_default();
    if (!device) return qn_error_set(error, QN_ARGUMENT, "vulkan: no place for the device");
    *device = NULL;
    qn_vk_device *d = memory.allocate(memory.user, sizeof *d, _Alignof(max_align_t));
    if (!d) return qn_error_set(error, QN_NO_MEMORY, "no memory for a device's record");
    memset(d, 0, sizeof *d);
    d->base.calls = &calls;
    d->base.copy_most = STAGING_BYTES;
    d->forced_tile = -1;
    qn_arena_init(&d->arena, 0);
    qn_status status = open_device(d, options ? options : &first, error);
    if (status == QN_OK) *device = &d->base;
    else destroy(&d->base);
    return status;
}

int qn_vulkan_messages(const qn_device *device, int *active, const char **first) {
    const qn_vk_instance *in = ((const qn_vk_device *)device)->instance;
    if (active) *active = in->validating;
    if (first) *first = in->first_message;
    return in->n_messages;
}

void qn_vulkan_inject(qn_device *device, qn_vulkan_fault fault) { ((qn_vk_device *)device)->fault = fault; }
void qn_vulkan_bar(qn_device *device, uint32_t families, int tile) {
    qn_vk_device *d = (qn_vk_device *)device;
    d->barred = families;
    d->forced_tile = tile;
}
void qn_vulkan_show_modules(qn_device *device, qn_vulkan_module_fn show, void *user) {
    ((qn_vk_device *)device)->show = show;
    ((qn_vk_device *)device)->show_user = user;
}
int qn_vulkan_pipelines(const qn_device *device) { return (int)((const qn_vk_device *)device)->pipelines.n; }
uint64_t qn_vulkan_held(const qn_device *device, int on_host) { return ((const qn_vk_device *)device)->held[on_host != 0]; }
int qn_vulkan_barriers(const qn_program *program) { return ((const qn_vk_program *)program)->n_barriers; }
