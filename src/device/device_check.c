/* The shared front of all devices: checks once, so that backends can trust. Steps go through the op table's own guard, as a
 * request does, with their arena standing in for memory; what it finds out about bytes is handed on, for the barriers. */
#include "base/reason.h"
#include "device/device.h"

#include "base/arena.h"
#include "op/guard.h"

/* The arena's place while descriptors are checked. Nothing is ever read there; it is not 0 because no data means no check. */
#define ARENA_BASE ((uintptr_t)1 << 20)

typedef struct step_tensors {
    qn_tensor src[QN_MAX_SRC], dst[QN_MAX_DST];
} step_tensors;

static qn_status argument(qn_error *error, const char *what) { return qn_error_set(error, QN_ARGUMENT, "device: %s", what); }

/* A descriptor as the guard is to see it: inside the arena, not readable from here. */
static qn_status place(qn_tensor *t, const qn_tensor *from, uint64_t arena_bytes, int sizes_only, qn_error *error) {
    *t = *from;
    t->flags |= QN_TENSOR_DEVICE;
    if (sizes_only) {
        t->data = NULL;
        return QN_OK;
    }
    uint64_t at = (uint64_t)(uintptr_t)from->data;
    if (at > arena_bytes || from->size > arena_bytes - at)
        return qn_error_set(error, QN_INVALID, "a tensor at %llu of %llu bytes is not inside the arena of %llu",
                            (unsigned long long)at, (unsigned long long)from->size, (unsigned long long)arena_bytes);
    t->data = (void *)(ARENA_BASE + at);
    return QN_OK;
}

static void add_extent(qn_device_extent *list, int *n, const qn_span *span) {
    if (span->low == span->high) return;
    list[*n].low = span->low - ARENA_BASE;
    list[(*n)++].high = span->high - ARENA_BASE;
}

static qn_status fill_request(const qn_device_step *s, step_tensors *t, uint64_t arena_bytes, int sizes_only, qn_request *q,
                              qn_error *error) {
    if (s->op < 0 || s->op > UINT16_MAX || s->subop < 0 || s->subop > UINT16_MAX || s->n_src < 0 || s->n_src > QN_MAX_SRC ||
        s->n_dst < 0 || s->n_dst > QN_MAX_DST)
        return qn_error_set(error, QN_UNEXPECTED, "op %d with %d sources and %d destinations is no step", s->op, s->n_src,
                            s->n_dst);
    *q = (qn_request){.size = sizeof *q, .version = QN_REQUEST_VERSION, .op = (uint16_t)s->op, .subop = (uint16_t)s->subop};
    q->n_src = (uint16_t)s->n_src;
    q->n_dst = (uint16_t)s->n_dst;
    q->attr = s->attr;
    for (int i = 0; i < s->n_src; i++) {
        if (!s->src[i]) continue;
        QN_TRY(place(&t->src[i], s->src[i], arena_bytes, sizes_only, error));
        q->src[i] = &t->src[i];
    }
    for (int i = 0; i < s->n_dst; i++) {
        if (!s->dst[i]) continue;
        QN_TRY(place(&t->dst[i], s->dst[i], arena_bytes, sizes_only, error));
        q->dst[i] = &t->dst[i];
    }
    return QN_OK;
}

/* `out` points into the step; `t` is only for the guard. */
static qn_status check_step(const qn_device_step *s, step_tensors *t, uint64_t arena_bytes, int sizes_only, qn_checked_step *out,
                            qn_error *error) {
    qn_request q;
    qn_guarded g;
    qn_result result;
    memset(out, 0, sizeof *out);
    memset(&g, 0, sizeof g);
    QN_TRY(fill_request(s, t, arena_bytes, sizes_only, &q, error));
    qn_result_begin(&q, &result);
    if (qn_guard_sources(&q, !sizes_only, &g, &result) != QN_OK || qn_guard_destinations(&q, &g) != QN_OK)
        return qn_result_to_error(&result, error);
    if (g.info->is_view) return qn_error_set(error, QN_ARGUMENT, "%s computes nothing: a view is no step", g.info->name);
    out->op = s->op;
    out->subop = s->subop;
    out->n_src = s->n_src;
    out->n_dst = s->n_dst;
    out->is_commit = s->is_commit;
    out->attr = g.infer.attr;
    out->src = s->src;
    out->dst = s->dst;
    memcpy(out->index_limit, g.infer.index_limit, sizeof out->index_limit);
    for (int i = 0; i < s->n_src; i++)
        if (s->src[i] && !(g.info->src[i].flags & QN_SLOT_SHAPE)) add_extent(out->reads, &out->n_reads, &g.src[i]);
    for (int i = 0; i < s->n_dst; i++)
        if (s->dst[i]) add_extent(out->writes, &out->n_writes, &g.dst[i]);
    return QN_OK;
}

void qn_device_destroy(qn_device *d) {
    if (d) d->calls->destroy(d);
}

qn_status qn_device_describe(const qn_device *d, qn_device_info *info) {
    if (!info) return QN_ARGUMENT;
    memset(info, 0, sizeof *info);
    info->size = sizeof *info;
    if (!d) return QN_ARGUMENT;
    d->calls->describe(d, info);
    return QN_OK;
}

qn_status qn_device_supports(qn_device *d, const qn_device_step *step, qn_error *error) {
    step_tensors tensors;
    qn_checked_step checked;
    if (!d || !step) return argument(error, "a device and a step are needed");
    QN_TRY(check_step(step, &tensors, 0, 1, &checked, error));
    return d->calls->supports(d, &checked, error);
}

qn_status qn_device_buffer_create(qn_device *d, uint64_t bytes, qn_device_buffer **buffer, qn_error *error) {
    if (!d || !buffer) return argument(error, "a buffer needs a device");
    *buffer = NULL;
    return d->calls->buffer_create(d, bytes, buffer, error);
}

void qn_device_buffer_destroy(qn_device_buffer *b) {
    if (b) b->device->calls->buffer_destroy(b);
}

static qn_status check_range(const qn_device_buffer *b, uint64_t offset, const void *host, uint64_t bytes, qn_error *error) {
    if (!b || (!host && bytes)) return argument(error, "a copy needs a buffer and memory");
    if (offset > b->bytes || bytes > b->bytes - offset)
        return qn_error_set(error, QN_ARGUMENT, "device: %llu bytes at %llu do not lie in a buffer of %llu",
                            (unsigned long long)bytes, (unsigned long long)offset, (unsigned long long)b->bytes);
    return QN_OK;
}

qn_status qn_device_upload(qn_device_buffer *b, uint64_t offset, const void *from, uint64_t bytes, qn_error *error) {
    QN_TRY(check_range(b, offset, from, bytes, error));
    return bytes ? b->device->calls->upload(b, offset, from, bytes, error) : QN_OK;
}

qn_status qn_device_download(qn_device_buffer *b, uint64_t offset, void *to, uint64_t bytes, qn_error *error) {
    QN_TRY(check_range(b, offset, to, bytes, error));
    return bytes ? b->device->calls->download(b, offset, to, bytes, error) : QN_OK;
}

static qn_status check_ranges(const qn_device_range *r, int n, uint64_t arena_bytes, const char *what, qn_error *error) {
    if (n < 0 || (n && !r)) return argument(error, "a program without its ranges");
    for (int i = 0; i < n; i++)
        if (r[i].offset > arena_bytes || r[i].bytes > arena_bytes - r[i].offset)
            return qn_error_set(error, QN_ARGUMENT, "program: %s %d is %llu bytes at %llu, beyond the arena of %llu", what, i,
                                (unsigned long long)r[i].bytes, (unsigned long long)r[i].offset, (unsigned long long)arena_bytes);
    return QN_OK;
}

static qn_status check_options(const qn_device *d, const qn_program_options *o, qn_error *error) {
    if (!d || !o || o->n_steps < 0 || (o->n_steps && !o->steps)) return argument(error, "a program needs a device and steps");
    if (o->flags & ~(uint32_t)(QN_PROGRAM_TIMED | QN_PROGRAM_SERIAL)) return argument(error, "a program has unknown flags");
    if (o->arena && (o->arena->device != d || o->arena->bytes < o->arena_bytes))
        return argument(error, "the arena is another device's, or too small");
    QN_TRY(check_ranges(o->inputs, o->n_inputs, o->arena_bytes, "input", error));
    return check_ranges(o->outputs, o->n_outputs, o->arena_bytes, "output", error);
}

static qn_status check_steps(const qn_program_options *o, qn_arena *arena, qn_checked_step **steps, qn_error *error) {
    qn_checked_step *checked = *steps = qn_arena_alloc(arena, (size_t)o->n_steps, sizeof *checked);
    if (!checked) return qn_error_set(error, QN_NO_MEMORY, "no memory for %d steps", o->n_steps);
    for (int i = 0; i < o->n_steps; i++) {
        step_tensors tensors;
        qn_status status = check_step(&o->steps[i], &tensors, o->arena_bytes, 0, &checked[i], error);
        if (status != QN_OK) return qn_error_wrap(error, "step %d", i);
    }
    return QN_OK;
}

qn_status qn_program_measure(qn_device *d, const qn_program_options *o, qn_program_need *need, qn_error *error) {
    if (!need) return argument(error, "what a program needs is to be told somewhere");
    QN_TRY(check_options(d, o, error));
    qn_arena scratch;
    qn_arena_init(&scratch, 0);
    qn_checked_step *checked;
    qn_status status = check_steps(o, &scratch, &checked, error);
    if (status == QN_OK) status = d->calls->program_measure(d, o, checked, need, error);
    qn_arena_destroy(&scratch);
    return status;
}

qn_status qn_program_create(qn_device *d, const qn_program_options *o, qn_program **program, qn_error *error) {
    if (!program) return argument(error, "a program needs a place");
    *program = NULL;
    QN_TRY(check_options(d, o, error));
    qn_arena scratch;
    qn_arena_init(&scratch, 0);
    qn_checked_step *checked;
    qn_status status = check_steps(o, &scratch, &checked, error);
    if (status == QN_OK) status = d->calls->program_create(d, o, checked, program, error);
    qn_arena_destroy(&scratch);
    return status;
}

void qn_program_destroy(qn_program *p) {
    if (p) p->device->calls->program_destroy(p);
}

qn_status qn_program_run(qn_program *p, const void *const *inputs, void *const *outputs, uint64_t timeout_ns, qn_error *error) {
    return p ? p->device->calls->program_run(p, inputs, outputs, timeout_ns, error)
             : argument(error, "there is no program to run");
}

qn_status qn_program_times(qn_program *p, double *ns, int n, qn_error *error) {
    if (!p || !ns || n != p->n_steps) return argument(error, "a time for every step needs room for each");
    return p->device->calls->program_times(p, ns, n, error);
}

int qn_program_began(qn_program *p, uint64_t *when) {
    return p && when && p->device->calls->program_began && p->device->calls->program_began(p, when);
}
