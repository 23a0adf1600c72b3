/* A plan on a device. Steps are cut into runs that stay on one side; what crosses between them is worked out once, value by value, by
 * following where the newest copy of each is. Which side has the newest bytes of a leaf is told by the leaf, for all specialisations. */
#include "run/plan_impl.h"

/* ---- Cutting */

qn_status qn_segments_split(qn_plan *p, qn_special *x, qn_error *error) {
    qn_schedule *s = x->schedule;
    if (!p->device) return QN_OK;
    for (int32_t i = 0; i < (int32_t)s->steps.n; i++) {
        int32_t side = s->steps.at[i].on_device;
        if (i == 0 || x->segments.at[x->segments.n - 1].on_device != side) {
            if (!QN_VEC_ROOM(&s->arena, &x->segments, 1)) return qn_error_set(error, QN_NO_MEMORY, "no memory for a plan");
            qn_segment *segment = &x->segments.at[x->segments.n++];
            memset(segment, 0, sizeof *segment);
            segment->first = i;
            segment->on_device = side;
            s->totals.n_segments += side;
        }
        x->segments.at[x->segments.n - 1].end = i + 1;
    }
    x->device.offset = qn_arena_alloc(&s->arena, s->graph->values.n, sizeof *x->device.offset);
    if (!x->device.offset) return qn_error_set(error, QN_NO_MEMORY, "no memory for a plan");
    uint64_t at = qn_plan_sum(p->device_leaves, qn_plan_padded(s->totals.arena_bytes));
    for (size_t v = 0; v < s->graph->values.n; v++) {
        if (s->slots[v].root != (qn_val)v) continue;
        if (s->slots[v].storage == QN_STORAGE_ARENA) {
            x->device.offset[v] = p->device_leaves + s->slots[v].offset;
        } else if (x->leaf_of[v] >= 0) {
            x->device.offset[v] = p->leaves.at[x->leaf_of[v]].device_at;
        } else {
            x->device.offset[v] = at;
            at = qn_plan_sum(at, qn_plan_padded(s->slots[v].bytes));
        }
    }
    for (size_t v = 0; v < s->graph->values.n; v++) x->device.offset[v] = x->device.offset[s->slots[v].root];
    x->device.bytes = s->totals.n_device ? at : 0;
    return QN_OK;
}

/* ---- Following the newest copies */

typedef struct follow {
    qn_plan *p;
    qn_special *x;
    uint8_t *where;      /* per root: QN_ON_* */
    int32_t *writer;     /* per root: the device segment that wrote it last, -1: none */
    uint8_t *host_reads; /* per root: some step on the host reads it */
} follow;

static int add_transfer(qn_arena *arena, qn_transfers *to, qn_val root, int32_t leaf) {
    for (size_t i = 0; i < to->n; i++)
        if (to->at[i].root == root) return 1;
    if (!QN_VEC_ROOM(arena, to, 1)) return 0;
    to->at[to->n++] = (qn_transfer){root, leaf, 0};
    return 1;
}

static int need_on_device(follow *f, qn_segment *segment, qn_val root) {
    if (f->where[root] & QN_ON_DEVICE) return 1;
    f->where[root] |= QN_ON_DEVICE;
    int is_param = f->x->schedule->slots[root].storage == QN_STORAGE_PARAM;
    return add_transfer(&f->x->schedule->arena, is_param ? &segment->loads : &segment->in, root, f->x->leaf_of[root]);
}

static int need_on_host(follow *f, qn_val root) {
    if (f->where[root] & QN_ON_HOST) return 1;
    f->where[root] |= QN_ON_HOST;
    return add_transfer(&f->x->schedule->arena, &f->x->segments.at[f->writer[root]].out, root, -1);
}

static int follow_step(follow *f, int32_t number, const qn_plan_step *s) {
    const qn_schedule *x = f->x->schedule;
    qn_segment *segment = &f->x->segments.at[number];
    const qn_ir_node *n = &x->graph->nodes.at[s->node];
    const qn_op_info *info = qn_op_describe(n->op);
    for (int i = 0; i < n->n_src; i++) {
        qn_val v = qn_ir_sources(x->graph, n)[i];
        if (v == QN_VAL_NONE || (info->src[i].flags & QN_SLOT_SHAPE)) continue;
        f->host_reads[x->slots[v].root] |= (uint8_t)!segment->on_device;
        if (!(segment->on_device ? need_on_device(f, segment, x->slots[v].root) : need_on_host(f, x->slots[v].root))) return 0;
    }
    for (int i = 0; i < n->n_out; i++) {
        qn_val root = x->slots[n->out + i].root;
        int32_t leaf = f->x->leaf_of[root];
        f->where[root] = segment->on_device ? QN_ON_DEVICE : QN_ON_HOST;
        f->writer[root] = segment->on_device ? number : -1;
        if (leaf >= 0 && !add_transfer(&f->x->schedule->arena, &segment->wrote, root, leaf)) return 0;
    }
    return 1;
}

static int is_kept(const qn_plan *p, const char *name) {
    for (size_t i = 0; i < p->kept.n; i++)
        if (strcmp(p->kept.at[i], name) == 0) return 1;
    return 0;
}

/* Outputs the caller will look at come back. */
static int follow_outputs(follow *f) {
    const qn_schedule *x = f->x->schedule;
    for (size_t i = 0; i < x->graph->outputs.n; i++) {
        const char *name = qn_ir_string(x->graph, x->graph->outputs.at[i].name);
        if (!is_kept(f->p, name) && !need_on_host(f, x->slots[x->graph->outputs.at[i].value].root)) return 0;
    }
    return 1;
}

static qn_val leaf_root(const qn_special *x, int32_t leaf) {
    for (size_t v = 0; v < x->schedule->graph->values.n; v++)
        if (x->leaf_of[v] == leaf) return (qn_val)v;
    return QN_VAL_NONE;
}

/* A fed output stays on the device when that is where it is; it comes to the host as well when steps there read the input. */
static int follow_feeds(follow *f) {
    const qn_schedule *x = f->x->schedule;
    for (size_t i = 0; i < f->p->feeds.n; i++) {
        qn_val from = x->slots[qn_plan_output_find(f->p, f->p->feeds.at[i].output)].root;
        qn_feed_sides *sides = &f->x->feeds.at[i];
        sides->on_device = (f->where[from] & QN_ON_DEVICE) != 0;
        sides->on_host = !sides->on_device || f->host_reads[leaf_root(f->x, f->p->feeds.at[i].leaf)];
        if (sides->on_host && !need_on_host(f, from)) return 0;
    }
    for (size_t i = 0; i < f->p->feeds.n; i++) { /* not before: a fed input may be where an output lies */
        const qn_feed_sides *sides = &f->x->feeds.at[i];
        f->where[leaf_root(f->x, f->p->feeds.at[i].leaf)] = (uint8_t)((sides->on_device ? QN_ON_DEVICE : 0) |
                                                                      (sides->on_host ? QN_ON_HOST : 0));
    }
    return 1;
}

/* A leaf that a run changes on the device and the host reads comes back with it. What else the host reads, it finds here. */
static int follow_leaves(follow *f) {
    const qn_schedule *x = f->x->schedule;
    for (size_t v = 0; v < x->graph->values.n; v++) {
        int32_t leaf = f->x->leaf_of[v];
        if (leaf < 0) continue;
        if (!(f->where[v] & QN_ON_HOST) && f->host_reads[v] && f->writer[v] >= 0 && !need_on_host(f, (qn_val)v)) return 0;
        int seen = f->host_reads[v];
        for (size_t i = 0; i < x->graph->outputs.n; i++) {
            const qn_ir_output *o = &x->graph->outputs.at[i];
            seen |= x->slots[o->value].root == (qn_val)v && !is_kept(f->p, qn_ir_string(x->graph, o->name));
        }
        if (!seen) continue;
        if (!QN_VEC_ROOM(&f->x->schedule->arena, &f->x->host_leaves, 1)) return 0;
        f->x->host_leaves.at[f->x->host_leaves.n++] = leaf;
    }
    for (size_t i = 0; i < f->x->segments.n; i++) {
        qn_segment *g = &f->x->segments.at[i];
        for (size_t k = 0; k < g->wrote.n; k++)
            for (size_t o = 0; o < g->out.n; o++) g->wrote.at[k].sent |= g->out.at[o].root == g->wrote.at[k].root;
    }
    return 1;
}

static int follow_all(follow *f) {
    const qn_schedule *x = f->x->schedule;
    for (size_t i = 0; i < f->x->segments.n; i++) {
        qn_segment *g = &f->x->segments.at[i];
        g->in.n = g->out.n = g->loads.n = g->wrote.n = 0;
    }
    f->x->host_leaves.n = 0;
    for (size_t v = 0; v < x->graph->values.n; v++) {
        f->where[v] = QN_ON_HOST;
        f->writer[v] = -1;
    }
    for (int32_t i = 0; i < (int32_t)f->x->segments.n; i++)
        for (int32_t k = f->x->segments.at[i].first; k < f->x->segments.at[i].end; k++)
            if (!follow_step(f, i, &x->steps.at[k])) return 0;
    return follow_outputs(f) && follow_feeds(f) && follow_leaves(f);
}

/* ---- Programs */

typedef struct recipe {
    qn_device_step *steps;
    qn_tensor *tensors; /* as the schedule's, with offsets for data */
    qn_device_range *in, *out;
} recipe;

static void range_of(const qn_special *x, const qn_transfer *t, qn_device_range *range) {
    *range = (qn_device_range){x->device.offset[t->root], x->schedule->slots[t->root].bytes};
}

static void add_feed_steps(const qn_plan *p, const qn_special *x, qn_device_step *steps, qn_tensor *tensors, int *n) {
    for (size_t i = 0; i < p->feeds.n; i++) {
        qn_val from = qn_plan_output_find(p, p->feeds.at[i].output), to = leaf_root(x, p->feeds.at[i].leaf);
        if (!x->feeds.at[i].on_device || x->schedule->slots[from].root == to) continue; /* updated where it is */
        qn_device_step *s = &steps[(*n)++];
        memset(s, 0, sizeof *s);
        s->op = QN_OP_cont;
        s->n_src = s->n_dst = 1;
        s->src[0] = &tensors[from];
        s->dst[0] = &tensors[to];
        s->is_commit = 1;
    }
}

static int last_on_device(const qn_special *x) {
    int last = -1;
    for (size_t i = 0; i < x->segments.n; i++)
        if (x->segments.at[i].on_device) last = (int)i;
    return last;
}

/* Steps that are timed never overlap, so only on request. */
static int is_timed(const qn_plan *p) {
    qn_device_info info = {.size = sizeof info};
    qn_device_describe(p->device, &info);
    return (p->is_traced || (p->flags & QN_PLAN_TIMED)) && (info.features & QN_DEVICE_TIMESTAMPS);
}

static qn_program_options describe_program(const qn_plan *p, const qn_special *x, int number, const recipe *r) {
    const qn_segment *g = &x->segments.at[number];
    int n = 0;
    for (int32_t i = g->first; i < g->end; i++) {
        const qn_plan_step *s = &x->schedule->steps.at[i];
        qn_device_step *d = &r->steps[n++];
        *d = (qn_device_step){.op = s->call.op, .subop = s->call.subop, .attr = s->call.attr};
        d->n_src = s->call.n_src;
        d->n_dst = s->call.n_dst;
        for (int k = 0; k < d->n_src; k++) d->src[k] = s->src[k] ? &r->tensors[s->src[k] - x->schedule->tensors] : NULL;
        for (int k = 0; k < d->n_dst; k++) d->dst[k] = &r->tensors[s->dst[k] - x->schedule->tensors];
    }
    if (number == last_on_device(x)) add_feed_steps(p, x, r->steps, r->tensors, &n);
    for (size_t i = 0; i < g->in.n; i++) range_of(x, &g->in.at[i], &r->in[i]);
    for (size_t i = 0; i < g->out.n; i++) range_of(x, &g->out.at[i], &r->out[i]);
    return (qn_program_options){.arena_bytes = x->device.bytes,
                                .n_steps = n,
                                .steps = r->steps,
                                .n_inputs = (int)g->in.n,
                                .n_outputs = (int)g->out.n,
                                .inputs = r->in,
                                .outputs = r->out,
                                .flags = is_timed(p) ? QN_PROGRAM_TIMED : 0};
}

static qn_status measure_program(qn_plan *p, qn_special *x, int number, const recipe *r, qn_error *error) {
    qn_program_options o = describe_program(p, x, number, r);
    qn_program_need need;
    QN_TRY(qn_program_measure(p->device, &o, &need, error));
    x->device.need.device = qn_plan_sum(x->device.need.device, need.device);
    x->device.need.host = qn_plan_sum(x->device.need.host, need.host);
    return QN_OK;
}

static qn_status make_program(qn_plan *p, qn_special *x, int number, const recipe *r, qn_error *error) {
    qn_segment *g = &x->segments.at[number];
    qn_program_options o = describe_program(p, x, number, r);
    o.arena = p->device_buffer;
    g->in_at = qn_arena_alloc(&x->schedule->arena, g->in.n + 1, sizeof *g->in_at);
    g->out_at = qn_arena_alloc(&x->schedule->arena, g->out.n + 1, sizeof *g->out_at);
    g->times = o.flags ? qn_arena_alloc(&x->schedule->arena, (size_t)o.n_steps, sizeof *g->times) : NULL;
    if (!g->in_at || !g->out_at || (o.flags && !g->times))
        return qn_error_set(error, QN_NO_MEMORY, "no memory for a device's program");
    return qn_program_create(p->device, &o, &g->program, error);
}

typedef qn_status (*program_fn)(qn_plan *p, qn_special *x, int number, const recipe *r, qn_error *error);

static qn_status for_programs(qn_plan *p, qn_special *x, qn_arena *scratch, program_fn what, qn_error *error) {
    size_t n = x->schedule->graph->values.n, steps = x->schedule->steps.n + p->feeds.n;
    recipe r = {qn_arena_alloc(scratch, steps + 1, sizeof *r.steps), qn_arena_alloc(scratch, n + 1, sizeof *r.tensors),
                qn_arena_alloc(scratch, n + 1, sizeof *r.in), qn_arena_alloc(scratch, n + 1, sizeof *r.out)};
    if (!r.steps || !r.tensors || !r.in || !r.out) return qn_error_set(error, QN_NO_MEMORY, "no memory for a device's program");
    for (size_t v = 0; v < n; v++) {
        r.tensors[v] = x->schedule->tensors[v];
        r.tensors[v].data = QN_AT(x->device.offset[v]);
        r.tensors[v].size = x->schedule->slots[x->schedule->slots[v].root].bytes;
    }
    for (int i = 0; i < (int)x->segments.n; i++)
        if (x->segments.at[i].on_device) QN_TRY(what(p, x, i, &r, error));
    return QN_OK;
}

/* The largest that may be copied outside a program: params on their way there; outputs that are read, and leaves that are changed there,
 * on their way back. */
static uint64_t largest_copy(const qn_plan *p, const qn_special *x) {
    const qn_schedule *s = x->schedule;
    uint64_t most = 0;
    for (size_t i = 0; i < x->segments.n; i++)
        for (size_t k = 0; k < x->segments.at[i].loads.n; k++) {
            uint64_t bytes = s->slots[x->segments.at[i].loads.at[k].root].bytes;
            if (bytes > most) most = bytes;
        }
    for (size_t i = 0; i < s->graph->outputs.n; i++) {
        uint64_t bytes = s->slots[s->graph->outputs.at[i].value].bytes;
        if (bytes > most) most = bytes;
    }
    for (size_t i = 0; i < p->leaves.n; i++) {
        int changed = p->leaves.at[i].is_updated;
        for (size_t k = 0; k < p->feeds.n; k++) changed |= p->feeds.at[k].leaf == (int32_t)i;
        if (changed && p->leaves.at[i].capacity > most) most = p->leaves.at[i].capacity;
    }
    return most;
}

static qn_status measure(qn_plan *p, qn_special *x, qn_arena *scratch, qn_error *error) {
    size_t n = x->schedule->graph->values.n;
    follow f = {p, x, qn_arena_alloc(scratch, n, 1), qn_arena_alloc(scratch, n, sizeof(int32_t)), qn_arena_alloc(scratch, n, 1)};
    x->feeds.n = 0;
    if (!f.where || !f.writer || !f.host_reads || !QN_VEC_ROOM(&x->schedule->arena, &x->feeds, p->feeds.n + 1))
        return qn_error_set(error, QN_NO_MEMORY, "no memory to plan %zu values", n);
    x->feeds.n = p->feeds.n;
    if (!follow_all(&f)) return qn_error_set(error, QN_NO_MEMORY, "no memory to plan %zu values", n);
    x->device.need = (qn_program_need){0, 0};
    QN_TRY(for_programs(p, x, scratch, measure_program, error));
    uint64_t copy = x->schedule->totals.n_device ? largest_copy(p, x) : 0;
    x->device.copies = copy < p->device->copy_most ? copy : p->device->copy_most;
    return QN_OK;
}

qn_status qn_segments_measure(qn_plan *p, qn_special *x, qn_error *error) {
    if (!p->device || x->device.known) return QN_OK;
    qn_arena scratch;
    qn_arena_init(&scratch, 0);
    qn_status status = measure(p, x, &scratch, error);
    qn_arena_destroy(&scratch);
    x->device.known = status == QN_OK;
    return status;
}

void qn_segments_forget(qn_plan *p) {
    for (int i = 0; i < QN_PLAN_SPECIALS; i++)
        if (p->specials[i]) p->specials[i]->device.ready = p->specials[i]->device.known = 0;
}

qn_status qn_segments_finish(qn_plan *p, qn_special *x, qn_error *error) {
    QN_TRY(qn_device_memory_need(p, x, error));
    if (x->device.ready) return QN_OK;
    qn_segments_destroy(x); /* all of them first: old and new ones together were not measured */
    qn_arena scratch;
    qn_arena_init(&scratch, 0);
    qn_status status = for_programs(p, x, &scratch, make_program, error);
    qn_arena_destroy(&scratch);
    x->device.ready = status == QN_OK;
    return status;
}

/* ---- Running */

static int is_fresh(const qn_plan *p, const qn_transfer *t) {
    return t->leaf >= 0 ? (p->leaves.at[t->leaf].newest & QN_ON_DEVICE) != 0 : t->sent;
}

static void note_run(qn_plan *p, const qn_special *x, qn_segment *g) {
    for (size_t i = 0; i < g->in.n; i++) {
        qn_transfer *t = &g->in.at[i];
        p->n_uploads += g->in_at[i] != NULL;
        if (t->leaf >= 0) p->leaves.at[t->leaf].newest |= QN_ON_DEVICE;
        else t->sent = x->schedule->slots[t->root].storage == QN_STORAGE_CONSTANT;
    }
    for (size_t i = 0; i < g->wrote.n; i++)
        p->leaves.at[g->wrote.at[i].leaf].newest = QN_ON_DEVICE | (g->wrote.at[i].sent ? QN_ON_HOST : 0);
}

static qn_status load_params(qn_plan *p, const qn_special *x, const qn_segment *g, qn_error *error) {
    for (size_t i = 0; i < g->loads.n; i++) {
        const qn_transfer *t = &g->loads.at[i];
        qn_device_range to;
        if (is_fresh(p, t)) continue;
        range_of(x, t, &to);
        QN_TRY(qn_device_upload(p->device_buffer, to.offset, x->schedule->tensors[t->root].data, to.bytes, error));
        p->leaves.at[t->leaf].newest |= QN_ON_DEVICE;
        p->n_uploads++;
    }
    return QN_OK;
}

/* A program counts its own steps, the caller knows nodes. */
static qn_status name_node(const qn_special *x, const qn_segment *g, qn_error *error) {
    if (g->program->bad_step < 0 || g->program->bad_step >= g->end - g->first) return QN_RANGE;
    const qn_plan_step *s = &x->schedule->steps.at[g->first + g->program->bad_step];
    return qn_error_set(error, QN_RANGE, "node %d: %s: an index is out of range", s->node, qn_op_describe(s->call.op)->name);
}

qn_status qn_segment_run(qn_plan *p, qn_special *x, qn_segment *g, qn_trace_ring *ring, qn_error *error) {
    for (size_t i = 0; i < g->in.n; i++)
        g->in_at[i] = is_fresh(p, &g->in.at[i]) ? NULL : x->schedule->tensors[g->in.at[i].root].data;
    for (size_t i = 0; i < g->out.n; i++) g->out_at[i] = x->schedule->tensors[g->out.at[i].root].data;
    uint64_t start = ring ? qn_trace_time(ring) : 0;
    QN_TRY(load_params(p, x, g, error));
    qn_status status = qn_program_run(g->program, g->in_at, g->out_at, UINT64_C(60000000000), error);
    if (status == QN_RANGE) return name_node(x, g, error);
    if (status != QN_OK) return status;
    note_run(p, x, g);
    return qn_segment_seen(x, g, ring, start, ring ? qn_trace_time(ring) : 0, error);
}

void qn_segment_host_writes(qn_plan *p, const qn_segment *g) {
    for (size_t i = 0; i < g->wrote.n; i++) p->leaves.at[g->wrote.at[i].leaf].newest = QN_ON_HOST;
}

/* Nobody knows what a run that failed left of them on the device. Where the host still has what it began with, that counts. */
void qn_segments_failed(qn_plan *p, const qn_special *x) {
    for (size_t i = 0; i < x->segments.n; i++)
        for (size_t k = 0; k < x->segments.at[i].wrote.n; k++) {
            qn_plan_leaf *l = &p->leaves.at[x->segments.at[i].wrote.at[k].leaf];
            if (l->newest & QN_ON_HOST) l->newest = QN_ON_HOST;
        }
    for (size_t i = 0; i < x->feeds.n; i++) {
        qn_plan_leaf *l = &p->leaves.at[p->feeds.at[i].leaf];
        if (l->newest & QN_ON_HOST) l->newest = QN_ON_HOST;
    }
}

qn_program_need qn_segments_held(const qn_special *x) {
    qn_program_need held = {0, 0};
    for (size_t i = 0; i < x->segments.n; i++)
        if (x->segments.at[i].program) {
            held.device += x->segments.at[i].program->need.device;
            held.host += x->segments.at[i].program->need.host;
        }
    return held;
}

void qn_segments_destroy(qn_special *x) {
    for (size_t i = 0; i < x->segments.n; i++) {
        qn_program_destroy(x->segments.at[i].program);
        x->segments.at[i].program = NULL;
    }
    x->device.ready = 0;
}
