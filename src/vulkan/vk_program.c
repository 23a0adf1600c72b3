/* A program: its steps recorded once into a command buffer and replayed. Steps run side by side unless one writes what another
 * touches; then, and only then, a barrier stands between them. Inputs and outputs have command buffers of their own, so that a
 * run submits those it needs, all in one call. Nothing is allocated while running. */
#include "base/memory.h"
#include "vulkan/vk.h"

enum { WATCHED_MAX = 1024 }; /* ranges remembered since the last barrier; when full, a barrier empties them */

static const VkPipelineStageFlags work_stages = VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT | VK_PIPELINE_STAGE_TRANSFER_BIT;
static const VkAccessFlags work_writes = VK_ACCESS_SHADER_WRITE_BIT | VK_ACCESS_TRANSFER_WRITE_BIT;
static const VkAccessFlags shader_access = VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_SHADER_WRITE_BIT;

/* ---- Hazards */

typedef struct hazards {
    QN_VEC(qn_device_extent) reads, writes; /* since the last barrier */
    int scratch;                            /* used since then */
} hazards;

static int meets(const qn_device_extent *list, size_t n, const qn_device_extent *x) {
    for (size_t i = 0; i < n; i++)
        if (list[i].low < x->high && x->low < list[i].high) return 1;
    return 0;
}

static int needs_barrier(const hazards *h, const qn_checked_step *s) {
    for (int i = 0; i < s->n_reads; i++)
        if (meets(h->writes.at, h->writes.n, &s->reads[i])) return 1;
    for (int i = 0; i < s->n_writes; i++)
        if (meets(h->writes.at, h->writes.n, &s->writes[i]) || meets(h->reads.at, h->reads.n, &s->writes[i])) return 1;
    return h->reads.n + h->writes.n > WATCHED_MAX;
}

static int remember(qn_arena *arena, hazards *h, const qn_checked_step *s) {
    if (!QN_VEC_ROOM(arena, &h->reads, QN_MAX_SRC) || !QN_VEC_ROOM(arena, &h->writes, QN_MAX_DST)) return 0;
    for (int i = 0; i < s->n_reads; i++) h->reads.at[h->reads.n++] = s->reads[i];
    for (int i = 0; i < s->n_writes; i++) h->writes.at[h->writes.n++] = s->writes[i];
    return 1;
}

/* ---- Recording */

typedef struct recording {
    qn_vk_device *d;
    qn_vk_program *p;
    const qn_program_options *o;
    const qn_checked_step *steps;
    VkCommandBuffer c;
    VkPipeline bound;
    hazards open;
    uint64_t arena, block_used, scratch_most;
    qn_vk_dispatch *list; /* of the step at hand */
} recording;

static qn_status translate(recording *r, int i, int with_addresses, qn_vk_pack *pack, qn_error *error) {
    *pack = (qn_vk_pack){.device = r->d,
                         .step = &r->steps[i],
                         .step_number = (uint32_t)i,
                         .list = r->list,
                         .error = error,
                         .block_used = r->block_used};
    if (with_addresses) {
        pack->arena = r->arena;
        pack->block = r->p->block.mapped;
        pack->block_at = r->p->block.address;
        pack->scratch_at = r->p->scratch.address;
    }
    qn_status status = qn_vk_translate(pack);
    r->block_used = pack->block_used;
    if (pack->scratch_used > r->scratch_most) r->scratch_most = pack->scratch_used;
    return status == QN_OK ? QN_OK : qn_error_wrap(error, "step %d", i);
}

static void stamp(recording *r, int i) {
    if (r->p->queries) r->d->vk.CmdWriteTimestamp(r->c, VK_PIPELINE_STAGE_BOTTOM_OF_PIPE_BIT, r->p->queries, (uint32_t)i);
}

static void record_barrier(recording *r) {
    qn_vk_barrier(r->d, r->c, VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT, VK_ACCESS_SHADER_WRITE_BIT,
                  VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT, shader_access);
    r->open.reads.n = r->open.writes.n = 0;
    r->open.scratch = 0;
    r->p->n_barriers++;
}

static qn_status record_dispatch(recording *r, int i, const qn_vk_dispatch *x, int first, int uses_scratch, qn_error *error) {
    const uint32_t always = QN_PROGRAM_TIMED | QN_PROGRAM_SERIAL;
    VkPipeline pipeline;
    QN_TRY(qn_vk_pipeline_get(r->d, x, &pipeline, error));
    int commits = r->steps[i].is_commit && !(i > 0 && r->steps[i - 1].is_commit); /* all before must have had their say */
    int stands_alone = first && ((r->o->flags & always) || commits) && r->bound;
    if (first ? needs_barrier(&r->open, &r->steps[i]) || (uses_scratch && r->open.scratch) || stands_alone : x->waits)
        record_barrier(r);
    if (!remember(&r->p->memory, &r->open, &r->steps[i]))
        return qn_error_set(error, QN_NO_MEMORY, "no memory to record step %d", i);
    if (uses_scratch) r->open.scratch = 1;
    if (pipeline != r->bound) r->d->vk.CmdBindPipeline(r->c, VK_PIPELINE_BIND_POINT_COMPUTE, pipeline);
    r->bound = pipeline;
    r->d->vk.CmdPushConstants(r->c, r->d->layout, VK_SHADER_STAGE_COMPUTE_BIT, 0, sizeof x->push, &x->push);
    r->d->vk.CmdDispatch(r->c, x->groups[0], x->groups[1], x->groups[2]);
    return QN_OK;
}

/* A dispatch with nothing to do is left out, but what waited for it still waits for those before it. */
static qn_status record_step(recording *r, int i, qn_error *error) {
    qn_vk_pack pack;
    int waits = 0, recorded = 0;
    QN_TRY(translate(r, i, 1, &pack, error));
    for (int k = 0; k < pack.n; k++) {
        qn_vk_dispatch *x = &pack.list[k];
        waits |= x->waits;
        if (!x->groups[0] || !x->groups[1] || !x->groups[2]) continue;
        x->waits = waits;
        waits = 0;
        QN_TRY(record_dispatch(r, i, x, recorded++ == 0, pack.scratch_used > 0, error));
    }
    stamp(r, i + 1);
    return QN_OK;
}

/* The first barrier makes what earlier runs and this run's inputs wrote visible, the last one the status word. */
static qn_status record_steps(recording *r, qn_error *error) {
    qn_vk_device *d = r->d;
    r->c = r->p->commands[0];
    r->block_used = QN_VK_BLOCK_ALIGN;
    QN_TRY(qn_vk_begin(d, r->c, 0, error));
    if (r->p->queries) d->vk.CmdResetQueryPool(r->c, r->p->queries, 0, (uint32_t)r->o->n_steps + 1);
    qn_vk_barrier(d, r->c, work_stages, work_writes, VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT, shader_access);
    stamp(r, 0);
    for (int i = 0; i < r->o->n_steps; i++) QN_TRY(record_step(r, i, error));
    qn_vk_barrier(d, r->c, VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT, VK_ACCESS_SHADER_WRITE_BIT, VK_PIPELINE_STAGE_HOST_BIT,
                  VK_ACCESS_HOST_READ_BIT);
    QN_VK_TRY(d, EndCommandBuffer(r->c), error);
    return QN_OK;
}

static qn_status record_transfer(recording *r, VkCommandBuffer c, const qn_device_range *range, uint64_t staged, int is_input,
                                 qn_error *error) {
    qn_vk_device *d = r->d;
    VkBuffer arena = r->o->arena ? ((qn_vk_buffer *)r->o->arena)->memory.buffer : r->p->arena.buffer;
    QN_TRY(qn_vk_begin(d, c, 0, error));
    qn_vk_barrier(d, c, work_stages, work_writes, VK_PIPELINE_STAGE_TRANSFER_BIT,
                  VK_ACCESS_TRANSFER_READ_BIT | VK_ACCESS_TRANSFER_WRITE_BIT);
    VkBufferCopy part = {
        .srcOffset = is_input ? staged : range->offset, .dstOffset = is_input ? range->offset : staged, .size = range->bytes};
    if (range->bytes && is_input) d->vk.CmdCopyBuffer(c, r->p->staging.buffer, arena, 1, &part);
    if (range->bytes && !is_input) {
        d->vk.CmdCopyBuffer(c, arena, r->p->staging.buffer, 1, &part);
        qn_vk_barrier(d, c, VK_PIPELINE_STAGE_TRANSFER_BIT, VK_ACCESS_TRANSFER_WRITE_BIT, VK_PIPELINE_STAGE_HOST_BIT,
                      VK_ACCESS_HOST_READ_BIT);
    }
    QN_VK_TRY(d, EndCommandBuffer(c), error);
    return QN_OK;
}

/* ---- Making */

/* In staging. */
static uint64_t room_for(const qn_device_range *r) {
    return (r->bytes + QN_VK_BLOCK_ALIGN - 1) / QN_VK_BLOCK_ALIGN * QN_VK_BLOCK_ALIGN;
}

/* What the steps take, counted as when they are recorded, for which no address is needed. */
static qn_status measure(recording *r, qn_program_need *need, qn_error *error) {
    qn_vk_pack ignored;
    r->block_used = QN_VK_BLOCK_ALIGN; /* the status word has a line to itself */
    for (int i = 0; i < r->o->n_steps; i++) QN_TRY(translate(r, i, 0, &ignored, error));
    *need = (qn_program_need){r->block_used + r->scratch_most, 0};
    for (int i = 0; i < r->o->n_inputs; i++) need->host += room_for(&r->o->inputs[i]);
    for (int i = 0; i < r->o->n_outputs; i++) need->host += room_for(&r->o->outputs[i]);
    return QN_OK;
}

qn_status qn_vk_program_measure(qn_device *device, const qn_program_options *o, const qn_checked_step *steps,
                                qn_program_need *need, qn_error *error) {
    qn_vk_dispatch list[QN_VK_DISPATCHES];
    recording r = {.d = (qn_vk_device *)device, .o = o, .steps = steps, .list = list};
    return measure(&r, need, error);
}

static uint64_t place_ranges(const qn_device_range *from, int n, qn_device_range *ranges, uint64_t *at, uint64_t end) {
    for (int i = 0; i < n; i++) {
        ranges[i] = from[i];
        at[i] = end;
        end += room_for(&from[i]);
    }
    return end;
}

static qn_status take_records(recording *r, qn_error *error) {
    qn_vk_program *p = r->p;
    const qn_program_options *o = r->o;
    size_t in = (size_t)o->n_inputs, out = (size_t)o->n_outputs, all = in + out + 1;
    p->inputs = qn_arena_alloc(&p->memory, in, sizeof *p->inputs);
    p->outputs = qn_arena_alloc(&p->memory, out, sizeof *p->outputs);
    p->input_at = qn_arena_alloc(&p->memory, in, sizeof *p->input_at);
    p->output_at = qn_arena_alloc(&p->memory, out, sizeof *p->output_at);
    p->commands = qn_arena_alloc(&p->memory, all, sizeof(VkCommandBuffer));
    p->batch = qn_arena_alloc(&p->memory, all, sizeof(VkCommandBuffer));
    r->list = qn_arena_alloc(&p->memory, QN_VK_DISPATCHES, sizeof *r->list);
    if (!p->inputs || !p->outputs || !p->input_at || !p->output_at || !p->commands || !p->batch || !r->list)
        return qn_error_set(error, QN_NO_MEMORY, "no memory for a program of %d steps", o->n_steps);
    return QN_OK;
}

static qn_status take_device_memory(recording *r, qn_error *error) {
    qn_vk_device *d = r->d;
    qn_vk_program *p = r->p;
    uint64_t staged = place_ranges(r->o->inputs, r->o->n_inputs, p->inputs, p->input_at, 0);
    staged = place_ranges(r->o->outputs, r->o->n_outputs, p->outputs, p->output_at, staged);
    if (!r->o->arena) QN_TRY(qn_vk_memory_create(d, r->o->arena_bytes, QN_VK_ON_DEVICE, &p->arena, error));
    QN_TRY(qn_vk_memory_create(d, r->block_used, QN_VK_ON_BOTH, &p->block, error));
    if (r->scratch_most) QN_TRY(qn_vk_memory_create(d, r->scratch_most, QN_VK_ON_DEVICE, &p->scratch, error));
    if (staged) QN_TRY(qn_vk_memory_create(d, staged, QN_VK_ON_HOST, &p->staging, error));
    r->arena = r->o->arena ? ((qn_vk_buffer *)r->o->arena)->memory.address : p->arena.address;
    return QN_OK;
}

static qn_status take_commands(recording *r, qn_error *error) {
    qn_vk_device *d = r->d;
    qn_vk_program *p = r->p;
    VkCommandBufferAllocateInfo info = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
                                        .commandPool = d->pool,
                                        .level = VK_COMMAND_BUFFER_LEVEL_PRIMARY,
                                        .commandBufferCount = (uint32_t)(1 + r->o->n_inputs + r->o->n_outputs)};
    QN_VK_TRY(d, AllocateCommandBuffers(d->handle, &info, p->commands), error);
    p->n_commands = (int)info.commandBufferCount;
    if (!(r->o->flags & QN_PROGRAM_TIMED)) return QN_OK;
    if (!d->facts.timestamp_bits) return qn_error_set(error, QN_UNSUPPORTED, "%s has no timestamps", d->facts.info.name);
    VkQueryPoolCreateInfo queries = {.sType = VK_STRUCTURE_TYPE_QUERY_POOL_CREATE_INFO,
                                     .queryType = VK_QUERY_TYPE_TIMESTAMP,
                                     .queryCount = (uint32_t)r->o->n_steps + 1};
    QN_VK_TRY(d, CreateQueryPool(d->handle, &queries, NULL, &p->queries), error);
    return QN_OK;
}

static qn_status fill_program(recording *r, qn_error *error) {
    qn_vk_program *p = r->p;
    QN_TRY(take_records(r, error));
    QN_TRY(measure(r, &p->base.need, error));
    QN_TRY(take_device_memory(r, error));
    QN_TRY(take_commands(r, error));
    QN_TRY(record_steps(r, error));
    for (int i = 0; i < r->o->n_inputs; i++)
        QN_TRY(record_transfer(r, p->commands[1 + i], &p->inputs[i], p->input_at[i], 1, error));
    for (int i = 0; i < r->o->n_outputs; i++)
        QN_TRY(record_transfer(r, p->commands[1 + r->o->n_inputs + i], &p->outputs[i], p->output_at[i], 0, error));
    QN_VEC_FREE(&p->memory, &r->open.reads);
    QN_VEC_FREE(&p->memory, &r->open.writes);
    return QN_OK;
}

qn_status qn_vk_program_create(qn_device *device, const qn_program_options *o, const qn_checked_step *steps, qn_program **program,
                               qn_error *error) {
    qn_allocator memory = qn_memory_default();
    qn_vk_program *p = memory.allocate(memory.user, sizeof *p, _Alignof(max_align_t));
    if (!p) return qn_error_set(error, QN_NO_MEMORY, "no memory for a program");
    memset(p, 0, sizeof *p);
    qn_arena_init(&p->memory, 0);
    p->base = (qn_program){device, o->arena_bytes, o->n_steps, o->n_inputs, o->n_outputs, {0, 0}, 0};
    recording r = {.d = (qn_vk_device *)device, .p = p, .o = o, .steps = steps};
    qn_status status = fill_program(&r, error);
    if (status == QN_OK) *program = &p->base;
    else qn_vk_program_destroy(&p->base);
    return status;
}

void qn_vk_program_destroy(qn_program *program) {
    qn_vk_program *p = (qn_vk_program *)program;
    qn_vk_device *d = (qn_vk_device *)program->device;
    if (p->pending) d->vk.DeviceWaitIdle(d->handle);
    if (p->queries) d->vk.DestroyQueryPool(d->handle, p->queries, NULL);
    if (p->n_commands) d->vk.FreeCommandBuffers(d->handle, d->pool, (uint32_t)p->n_commands, p->commands);
    qn_vk_memory_destroy(d, &p->staging);
    qn_vk_memory_destroy(d, &p->block);
    qn_vk_memory_destroy(d, &p->scratch);
    qn_vk_memory_destroy(d, &p->arena);
    qn_arena_destroy(&p->memory);
    qn_allocator memory = qn_memory_default();
    memory.release(memory.user, p, sizeof *p);
}

/* ---- Running */

/* Which command buffers this run needs; what goes in is staged on the way. */
static int gather(qn_vk_program *p, const void *const *inputs, void *const *outputs) {
    int n = 0;
    for (int i = 0; inputs && i < p->base.n_inputs; i++) {
        if (!inputs[i] || !p->inputs[i].bytes) continue;
        memcpy((char *)p->staging.mapped + p->input_at[i], inputs[i], (size_t)p->inputs[i].bytes);
        p->batch[n++] = p->commands[1 + i];
    }
    p->batch[n++] = p->commands[0];
    for (int i = 0; outputs && i < p->base.n_outputs; i++)
        if (outputs[i] && p->outputs[i].bytes) p->batch[n++] = p->commands[1 + p->base.n_inputs + i];
    return n;
}

qn_status qn_vk_program_run(qn_program *program, const void *const *inputs, void *const *outputs, uint64_t timeout_ns,
                            qn_error *error) {
    qn_vk_program *p = (qn_vk_program *)program;
    qn_vk_device *d = (qn_vk_device *)program->device;
    volatile uint32_t *found = p->block.mapped;
    uint64_t value = 0;
    if (p->pending) { /* an earlier run was given up: its memory is not ours until it ends */
        QN_TRY(qn_vk_wait(d, p->pending, timeout_ns, error));
        p->pending = 0;
    }
    *found = UINT32_MAX;
    int n = gather(p, inputs, outputs);
    QN_TRY(qn_vk_submit(d, p->batch, n, &value, error));
    p->pending = value;
    QN_TRY(qn_vk_wait(d, value, timeout_ns, error));
    p->pending = 0;
    p->has_times = 1;
    if (*found != UINT32_MAX) {
        p->base.bad_step = (int)*found;
        return qn_error_set(error, QN_RANGE, "step %u: an index is out of range", *found);
    }
    for (int i = 0; outputs && i < p->base.n_outputs; i++)
        if (outputs[i]) memcpy(outputs[i], (const char *)p->staging.mapped + p->output_at[i], (size_t)p->outputs[i].bytes);
    return QN_OK;
}

qn_status qn_vk_program_times(qn_program *program, double *ns, int n, qn_error *error) {
    qn_vk_program *p = (qn_vk_program *)program;
    qn_vk_device *d = (qn_vk_device *)program->device;
    if (!p->queries || !p->has_times || p->pending)
        return qn_error_set(error, QN_ARGUMENT, "the program is not timed or has not run");
    uint64_t mask = qn_vk_tick_mask(d), before = 0;
    for (int i = 0; i <= n; i++) {
        uint64_t now;
        QN_VK_TRY(
            d, GetQueryPoolResults(d->handle, p->queries, (uint32_t)i, 1, sizeof now, &now, sizeof now, VK_QUERY_RESULT_64_BIT),
            error);
        if (i) ns[i - 1] = (double)((now - before) & mask) * (double)d->facts.properties.limits.timestampPeriod;
        before = now;
    }
    return QN_OK;
}
