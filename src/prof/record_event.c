/* Records as events of Kineto's dialect of the Chrome trace format. */
#include "prof/record_file.h"

/* ---- Pieces of an event ------------------------------------------------------------------------------------------- */

void qn_record_event_open(qn_record_file *f, const char *phase, const char *category) {
    qn_out_text(f->out, f->comma ? ",\n{\"ph\":\"" : "\n{\"ph\":\"");
    f->comma = 1;
    qn_out_text(f->out, phase);
    if (category) {
        qn_out_text(f->out, "\",\"cat\":\"");
        qn_out_text(f->out, category);
    }
    qn_out_text(f->out, "\"");
}

void qn_record_event_name(qn_record_file *f, const char *prefix, const char *name, size_t length, const char *suffix) {
    qn_out_text(f->out, ",\"name\":\"");
    qn_out_text(f->out, prefix);
    qn_out_escaped(f->out, name, length);
    qn_out_text(f->out, suffix);
    qn_out_text(f->out, "\"");
}

void qn_record_event_place(qn_record_file *f, int64_t pid, int64_t tid) {
    qn_out_text(f->out, ",\"pid\":");
    qn_out_int(f->out, pid);
    qn_out_text(f->out, ",\"tid\":");
    qn_out_int(f->out, tid);
}

static int64_t relative(const qn_record_file *f, uint64_t time) { return (int64_t)(time - f->recorder->base); }

static int64_t floor_us(int64_t ns) { return ns >= 0 ? ns / 1000 : -((999 - ns) / 1000); }

void qn_record_event_at(qn_record_file *f, uint64_t time) {
    qn_out_text(f->out, ",\"ts\":");
    qn_out_time(f->out, relative(f, time), f->whole);
}

void qn_record_event_span(qn_record_file *f, uint64_t start, uint64_t end) {
    qn_record_event_at(f, start);
    qn_out_text(f->out, ",\"dur\":");
    if (f->whole) /* both ends rounded down, so that what was nested still is */
        qn_out_int(f->out, floor_us(relative(f, end)) - floor_us(relative(f, start)));
    else qn_out_time(f->out, (int64_t)(end - start), 0);
    f->events++;
}

static void arg(qn_record_file *f, int *first, const char *name) {
    qn_out_text(f->out, *first ? ",\"args\":{\"" : ",\"");
    *first = 0;
    qn_out_text(f->out, name);
    qn_out_text(f->out, "\":");
}

static void close_event(qn_record_file *f, int no_args) { qn_out_text(f->out, no_args ? "}" : "}}"); }

/* ---- Labels ------------------------------------------------------------------------------------------------------- */

static const qn_trace_label *label_at(const qn_record_thread *t, uint32_t id) {
    uint32_t n = atomic_load_explicit(&t->ring->n_labels, memory_order_acquire);
    return &t->ring->labels[id < n ? id : 0];
}

static void label_name(qn_record_file *f, const qn_record_thread *t, uint32_t id, const char *prefix, const char *suffix) {
    const qn_trace_label *label = label_at(t, id);
    qn_record_event_name(f, prefix, t->ring->text + label->text, label->length, suffix);
}

/* The part of the model: labels from the outermost in, joined by '/'. */
static void origin_arg(qn_record_file *f, int *first, const qn_record_thread *t, uint32_t id) {
    const qn_trace_label *chain[QN_TRACE_DEPTH];
    int n = 0;
    for (; id && id != QN_TRACE_NO_PARENT && n < QN_TRACE_DEPTH; id = chain[n++]->parent) chain[n] = label_at(t, id);
    if (n == 0) return;
    arg(f, first, "origin");
    qn_out_text(f->out, "\"");
    while (n-- > 0) {
        qn_out_escaped(f->out, t->ring->text + chain[n]->text, chain[n]->length);
        if (n) qn_out_text(f->out, "/");
    }
    qn_out_text(f->out, "\"");
}

/* ---- Host --------------------------------------------------------------------------------------------------------- */

static void shape_args(qn_record_file *f, int *first, const uint64_t *shapes, unsigned n_src) {
    const uint64_t *at = shapes;
    arg(f, first, "Input Dims");
    qn_out_text(f->out, "[");
    for (unsigned i = 0; i < n_src; i++) {
        unsigned rank = (unsigned)(*at++ >> 8 & 255);
        qn_out_text(f->out, i ? ",[" : "[");
        for (unsigned k = 0; k < rank; k++) {
            if (k) qn_out_text(f->out, ",");
            qn_out_int(f->out, (int64_t)*at++);
        }
        qn_out_text(f->out, "]");
    }
    qn_out_text(f->out, "]");
    arg(f, first, "Input type");
    qn_out_text(f->out, "[");
    for (unsigned i = 0; i < n_src; i++) {
        const qn_dtype_info *dtype = qn_dtype_describe((qn_dtype)(*shapes & 255));
        qn_out_text(f->out, i ? ",\"" : "\"");
        qn_out_text(f->out, dtype ? dtype->name : "");
        qn_out_text(f->out, "\"");
        shapes += 1 + (*shapes >> 8 & 255);
    }
    qn_out_text(f->out, "]");
}

static void op_name(qn_record_file *f, unsigned op, unsigned subop) {
    const qn_op_info *info = qn_op_describe((int)op);
    const char *name = info ? info->name : "unknown", *sub = qn_subop_name((int)op, (int)subop);
    qn_out_text(f->out, ",\"name\":\"quern::");
    qn_out_text(f->out, name);
    if (sub) qn_out_text(f->out, ".");
    if (sub) qn_out_text(f->out, sub);
    qn_out_text(f->out, "\"");
}

/* An op of the dispatcher or a named piece of host work: they differ in where the name comes from. */
static void emit_op(qn_record_file *f, const qn_record_thread *t, const qn_record_key *k) {
    const uint64_t *body = k->record + 1;
    int named = qn_trace_head_kind(*k->record) == QN_TRACE_HOST, first = 1;
    unsigned n_src = (unsigned)(body[5] >> 48);
    double flops = qn_trace_dbl(body[3]);
    qn_record_event_open(f, "X", "cpu_op");
    if (named) label_name(f, t, (uint32_t)body[6], "", "");
    else op_name(f, qn_trace_head_tag(*k->record), (unsigned)(body[5] >> 32 & 65535));
    qn_record_event_place(f, f->pid, t->ring->index);
    qn_record_event_span(f, k->start, k->end);
    arg(f, &first, "External id");
    qn_out_id(f->out, body[2]);
    if (n_src) shape_args(f, &first, body + (named ? 7 : 6), n_src);
    if (flops > 0) {
        arg(f, &first, "flops");
        qn_out_number(f->out, flops);
    }
    if (body[4]) {
        arg(f, &first, "bytes");
        qn_out_id(f->out, body[4]);
    }
    origin_arg(f, &first, t, (uint32_t)body[5]);
    close_event(f, first);
}

/* Ids of modules are told apart by thread; those of the first are the plain numbers. */
static void module_args(qn_record_file *f, int *first, const qn_record_thread *t, const uint64_t *body) {
    uint64_t lane = t->ring->index - 1;
    arg(f, first, "Python id");
    qn_out_id(f->out, body[3] | lane << 32);
    arg(f, first, "Python parent id");
    if (body[4]) qn_out_id(f->out, body[4] | lane << 32);
    else qn_out_text(f->out, "null");
    arg(f, first, "Python module id");
    qn_out_id(f->out, body[2] | lane << 24);
}

static void emit_range(qn_record_file *f, const qn_record_thread *t, const qn_record_key *k) {
    static const char *const prefix[QN_PART_COUNT] = {"", "nn.Module: ", "Optimizer.step#", "enumerate(DataLoader)#"};
    static const char *const suffix[QN_PART_COUNT] = {"", "", ".step", ".__next__"};
    const uint64_t *body = k->record + 1;
    unsigned part = qn_trace_head_tag(*k->record);
    int first = 1;
    qn_record_event_open(f, "X", part == QN_PART_MODULE ? "python_function" : "user_annotation");
    label_name(f, t, (uint32_t)body[2], prefix[part], suffix[part]);
    qn_record_event_place(f, f->pid, t->ring->index);
    qn_record_event_span(f, k->start, k->end);
    if (part == QN_PART_MODULE) module_args(f, &first, t, body);
    origin_arg(f, &first, t, (uint32_t)body[2]);
    close_event(f, first);
}

void qn_record_emit_step(qn_record_file *f, const qn_record_thread *t, uint64_t number, uint64_t start, uint64_t end) {
    qn_record_event_open(f, "X", "user_annotation");
    qn_out_text(f->out, ",\"name\":\"ProfilerStep#");
    qn_out_id(f->out, number);
    qn_out_text(f->out, "\"");
    qn_record_event_place(f, f->pid, t->ring->index);
    qn_record_event_span(f, start, end > start ? end : start + 1);
    qn_out_text(f->out, "}");
}

static void flow(qn_record_file *f, const char *phase, const char *category, uint64_t id, int64_t pid, int64_t tid,
                 uint64_t time) {
    qn_record_event_open(f, phase, category);
    qn_record_event_name(f, "", category, strlen(category), "");
    qn_out_text(f->out, ",\"id\":");
    qn_out_id(f->out, id);
    qn_record_event_place(f, pid, tid);
    qn_record_event_at(f, time);
    qn_out_text(f->out, *phase == 'f' ? ",\"bp\":\"e\"}" : "}");
}

static void emit_memory(qn_record_file *f, const qn_record_thread *t, const qn_record_key *k) {
    static const char *const names[] = {"Addr", "Bytes", "Total Allocated", "Total Reserved", "Device Id"};
    const uint64_t *body = k->record + 1;
    int first = 1;
    qn_record_event_open(f, "i", "cpu_instant_event");
    qn_record_event_name(f, "", "[memory]", 8, "");
    qn_out_text(f->out, ",\"s\":\"t\"");
    qn_record_event_place(f, f->pid, t->ring->index);
    qn_record_event_at(f, k->start);
    for (int i = 0; i < 5; i++) {
        arg(f, &first, names[i]);
        if (i == 0) qn_out_id(f->out, body[2]);
        else qn_out_int(f->out, (int64_t)body[2 + i]);
    }
    arg(f, &first, "Device Type");
    qn_out_text(f->out, (int64_t)body[6] < 0 ? "0" : "1");
    close_event(f, first);
    f->events++;
}

static void emit_counter(qn_record_file *f, const qn_record_thread *t, const qn_record_key *k) {
    const uint64_t *body = k->record + 1;
    int first = 1;
    qn_record_event_open(f, "C", NULL);
    label_name(f, t, (uint32_t)body[2], "", "");
    qn_record_event_place(f, f->pid, t->ring->index);
    qn_record_event_at(f, k->start);
    arg(f, &first, "value");
    qn_out_number(f->out, qn_trace_dbl(body[3]));
    close_event(f, first);
    f->events++;
}

/* ---- Device ------------------------------------------------------------------------------------------------------- */

static void emit_runtime(qn_record_file *f, const qn_record_thread *t, const qn_record_key *k) {
    const uint64_t *body = k->record + 1;
    int first = 1;
    qn_record_event_open(f, "X", "privateuse1_runtime");
    label_name(f, t, (uint32_t)body[2], "", "");
    qn_record_event_place(f, f->pid, t->ring->index);
    qn_record_event_span(f, k->start, k->end);
    if (body[4]) {
        arg(f, &first, "External id");
        qn_out_id(f->out, body[4]);
    }
    if (body[3]) {
        arg(f, &first, "correlation");
        qn_out_id(f->out, body[3]);
    }
    close_event(f, first);
    if (body[3] && qn_record_find(&f->works, body[3])) flow(f, "s", "ac2g", body[3], f->pid, t->ring->index, k->start);
}

static void three(qn_record_file *f, int *first, const char *name, uint32_t x, uint32_t y, uint32_t z) {
    arg(f, first, name);
    qn_out_text(f->out, "[");
    qn_out_id(f->out, x);
    qn_out_text(f->out, ",");
    qn_out_id(f->out, y);
    qn_out_text(f->out, ",");
    qn_out_id(f->out, z);
    qn_out_text(f->out, "]");
}

static double as_float(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return (double)value;
}

static void launch_args(qn_record_file *f, int *first, const uint64_t *body) {
    double blocks = as_float((uint32_t)body[11]), occupancy = as_float((uint32_t)(body[11] >> 32));
    if ((uint32_t)body[8]) {
        three(f, first, "grid", (uint32_t)body[8], (uint32_t)(body[8] >> 32), (uint32_t)body[9]);
        three(f, first, "block", (uint32_t)(body[9] >> 32), (uint32_t)body[10], (uint32_t)(body[10] >> 32));
    }
    arg(f, first, "shared memory");
    qn_out_id(f->out, body[2] >> 32);
    if (blocks > 0) {
        arg(f, first, "blocks per SM");
        qn_out_number(f->out, blocks);
    }
    if (occupancy > 0) {
        arg(f, first, "est. achieved occupancy %");
        qn_out_number(f->out, occupancy);
    }
}

static void work_args(qn_record_file *f, int *first, const qn_record_thread *t, const qn_record_key *k) {
    const uint64_t *body = k->record + 1;
    static const char *const names[] = {"correlation", "External id"};
    for (int i = 0; i < 2; i++) {
        if (!body[3 + i]) continue;
        arg(f, first, names[i]);
        qn_out_id(f->out, body[3 + i]);
    }
    arg(f, first, "device");
    qn_out_int(f->out, (int32_t)(uint32_t)body[5]);
    arg(f, first, "stream");
    qn_out_int(f->out, (int32_t)(uint32_t)(body[5] >> 32));
    if (qn_trace_head_tag(*k->record) == QN_DEVICE_KERNEL) launch_args(f, first, body);
    if (qn_trace_dbl(body[6]) > 0) {
        arg(f, first, "flops");
        qn_out_number(f->out, qn_trace_dbl(body[6]));
    }
    if (body[7]) {
        arg(f, first, "bytes");
        qn_out_id(f->out, body[7]);
    }
    origin_arg(f, first, t, (uint32_t)body[12]);
}

static void emit_work(qn_record_file *f, const qn_record_thread *t, const qn_record_key *k) {
    static const char *const category[QN_DEVICE_WORK_COUNT] = {"kernel", "gpu_memcpy", "gpu_memset"};
    const uint64_t *body = k->record + 1;
    const qn_record_pair *submit = qn_record_find(&f->submits, body[3]);
    int32_t device = (int32_t)(uint32_t)body[5], queue = (int32_t)(uint32_t)(body[5] >> 32);
    uint64_t start = k->start, end = k->end, bound = 0;
    if (device >= 0 && device < f->recorder->n_devices) bound = f->recorder->devices[device].device.clock_bound;
    if (submit && start + bound < submit->start) { /* the clocks disagree by more than they may: causality is certain */
        start = submit->start;
        end = end > start ? end : start;
        f->clamped++;
    }
    int first = 1;
    qn_record_event_open(f, "X", category[qn_trace_head_tag(*k->record)]);
    label_name(f, t, (uint32_t)body[2], "", "");
    qn_record_event_place(f, device, queue);
    qn_record_event_span(f, start, end);
    work_args(f, &first, t, k);
    close_event(f, first);
    if (submit) flow(f, "f", "ac2g", body[3], device, queue, start);
}

/* ---- Everything --------------------------------------------------------------------------------------------------- */

static void emit_link(qn_record_file *f, const qn_record_key *k) {
    const uint64_t *body = k->record + 1;
    const qn_record_pair *forward = qn_record_find(&f->ops, body[2]), *backward = qn_record_find(&f->ops, body[3]);
    if (!forward || !backward) return;
    uint64_t id = ++f->flows;
    flow(f, "s", "fwdbwd", id, f->pid, forward->tid, forward->start);
    flow(f, "f", "fwdbwd", id, f->pid, backward->tid, backward->start);
}

void qn_record_emit_threads(qn_record_file *f) {
    for (size_t i = 0; i < f->n_threads; i++) {
        const qn_record_thread *t = &f->threads[i];
        for (size_t j = 0; j < t->n && !f->out->failed; j++) {
            const qn_record_key *k = &t->keys[j];
            switch (qn_trace_head_kind(*k->record)) {
            case QN_TRACE_OP:
            case QN_TRACE_HOST: emit_op(f, t, k); break;
            case QN_TRACE_RANGE: emit_range(f, t, k); break;
            case QN_TRACE_RUNTIME: emit_runtime(f, t, k); break;
            case QN_TRACE_DEVICE: emit_work(f, t, k); break;
            case QN_TRACE_MEMORY: emit_memory(f, t, k); break;
            case QN_TRACE_COUNTER: emit_counter(f, t, k); break;
            case QN_TRACE_LINK: emit_link(f, k); break;
            case QN_TRACE_STEP: /* they need each other's times: record_write.c */
            case QN_TRACE_NONE: break;
            }
        }
    }
}
