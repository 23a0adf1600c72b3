/* Section 4: one pass over the events makes device nodes, runtime calls and operator nodes, and joins device work to the call
 * that launched it. What waits for a call that has not been seen yet waits in a bucket per correlation id. */
#include <string.h>

#include "prof/prof_passes.h"
#include "prof/prof_sort.h"

typedef struct correlation { /* what one correlation id stands for */
    uint32_t rt;             /* its latest runtime call, or PROF_NIL */
    uint32_t first, last;    /* device nodes waiting for one, chained by maker.next */
} correlation;

typedef struct dev_chain { /* device nodes of a runtime call, before they are laid out side by side */
    uint32_t first, last;
} dev_chain;

typedef struct maker {
    prof_build *build;
    prof_trace *trace;
    prof_map by_correlation, by_thread, by_pl_thread, colls, pids;
    QN_VEC(correlation) correlations;
    QN_VEC(dev_chain) chains;     /* per runtime call */
    QN_VEC(uint32_t) next;        /* per device node */
    QN_VEC(uint32_t) node_thread; /* per node: its thread in build->threads, or in pl_threads */
} maker;

/* ---- Device nodes and runtime calls ------------------------------------------------------------------------------- */

static correlation *correlation_of(maker *m, prof_val key) {
    uint32_t *index = qn_prof_map_put(&m->by_correlation, key, PROF_NIL);
    if (!index) {
        return NULL;
    }
    if (*index == PROF_NIL) {
        if (!QN_VEC_ROOM(&m->trace->arena, &m->correlations, 1)) {
            return NULL;
        }
        correlation fresh = {PROF_NIL, PROF_NIL, PROF_NIL};
        *index = (uint32_t)m->correlations.n;
        m->correlations.at[m->correlations.n++] = fresh;
    }
    return &m->correlations.at[*index];
}

static void chain(maker *m, uint32_t *first, uint32_t *last, uint32_t dev) {
    if (*first == PROF_NIL) {
        *first = dev;
    } else {
        m->next.at[*last] = dev;
    }
    *last = dev;
}

static qn_status add_device_node(maker *m, uint32_t index) {
    prof_trace *trace = m->trace;
    const prof_event *event = &trace->events.at[index];
    correlation *c = correlation_of(m, prof_event_correlation(event));
    if (!c || !QN_VEC_ROOM(&trace->arena, &trace->devs, 1) || !QN_VEC_ROOM(&trace->arena, &m->next, 1) ||
        !qn_prof_map_put(&m->pids, trace->idents.at[event->pid], 0)) {
        return QN_NO_MEMORY;
    }
    uint32_t dev = (uint32_t)trace->devs.n++;
    prof_dev made = {index, prof_event_ts(event), prof_event_end(event), event->name, event->args, 0, event->kind, 0, 0};
    made.uses_tc = event->kind == PROF_KIND_KERNEL && (event->name_flags & PROF_NAME_TC_KERNEL);
    trace->devs.at[dev] = made;
    m->next.at[m->next.n++] = PROF_NIL;
    if (c->rt != PROF_NIL) {
        chain(m, &m->chains.at[c->rt].first, &m->chains.at[c->rt].last, dev);
    } else {
        chain(m, &c->first, &c->last, dev);
    }
    return QN_OK;
}

static int dev_before(const void *a, const void *b, const void *context) {
    const prof_dev *devs = context, *x = &devs[*(const uint32_t *)a], *y = &devs[*(const uint32_t *)b];
    int order = prof_cmp(x->start, y->start);
    return order == -1 || (order == 0 && prof_gt(x->end, y->end));
}

/* The waiting bucket, sorted by start and then end descending, becomes the chain of the call that claims it. */
static qn_status claim(maker *m, correlation *c, dev_chain *into) {
    prof_trace *trace = m->trace;
    prof_ids waiting = {NULL, 0, 0};
    if (c->first == c->last) { /* none or one, the usual case */
        into->first = c->first;
        into->last = c->last;
        c->first = c->last = PROF_NIL;
        return QN_OK;
    }
    for (uint32_t dev = c->first; dev != PROF_NIL; dev = m->next.at[dev]) {
        if (!QN_VEC_ROOM(&trace->arena, &waiting, 1)) {
            return QN_NO_MEMORY;
        }
        waiting.at[waiting.n++] = dev;
    }
    c->first = c->last = into->first = into->last = PROF_NIL;
    qn_status status = qn_prof_sort(&trace->arena, waiting.at, waiting.n, sizeof *waiting.at, dev_before, trace->devs.at);
    for (size_t i = 0; i < waiting.n && status == QN_OK; i++) {
        m->next.at[waiting.at[i]] = PROF_NIL;
        chain(m, &into->first, &into->last, waiting.at[i]);
    }
    qn_arena_release(&trace->arena, waiting.at);
    return status;
}

static int is_exact_zero(prof_val value) { return prof_is_num(value) && prof_is_zero(value); }

static qn_status add_zero(maker *m, uint32_t tid, uint32_t rt) {
    prof_build *build = m->build;
    prof_val thread = m->trace->idents.at[tid];
    if (!QN_VEC_ROOM(&m->trace->arena, &build->zeros, 1)) {
        return QN_NO_MEMORY;
    }
    uint32_t at = (uint32_t)build->zeros.n;
    uint32_t *first = qn_prof_map_put(&build->zero_first, thread, at), *last = qn_prof_map_put(&build->zero_last, thread, at);
    if (!first || !last) {
        return QN_NO_MEMORY;
    }
    if (*last != at) {
        build->zeros.at[*last].next = at;
        *last = at;
    }
    prof_zero zero = {rt, PROF_NIL};
    build->zeros.at[build->zeros.n++] = zero;
    return QN_OK;
}

static qn_status add_runtime(maker *m, uint32_t index) {
    prof_trace *trace = m->trace;
    const prof_event *event = &trace->events.at[index];
    correlation *c = correlation_of(m, prof_event_correlation(event));
    if (!c || !QN_VEC_ROOM(&trace->arena, &trace->rts, 1) || !QN_VEC_ROOM(&trace->arena, &m->chains, 1)) {
        return QN_NO_MEMORY;
    }
    uint32_t rt = (uint32_t)trace->rts.n++;
    prof_rt made = {index, event->name, prof_event_ts(event), prof_event_end(event), 0, 0, prof_int(0), prof_int(0)};
    trace->rts.at[rt] = made;
    c->rt = rt;
    qn_status status = claim(m, c, &m->chains.at[m->chains.n++]);
    if (status == QN_OK && is_exact_zero(prof_event_external(event))) {
        status = add_zero(m, event->tid, rt);
    }
    return status;
}

/* ---- Operator nodes ----------------------------------------------------------------------------------------------- */

static int class_of(const prof_event *event) {
    switch (event->kind) {
    case PROF_KIND_STEP: return PROF_CLASS_STEP;
    case PROF_KIND_MODULE: return PROF_CLASS_MODULE;
    case PROF_KIND_PLMODULE: return PROF_CLASS_PLMODULE;
    case PROF_KIND_PLPROFILE: return PROF_CLASS_PLPROFILE;
    default: break;
    }
    if (event->name_flags & PROF_NAME_LOADER) {
        return PROF_CLASS_DATALOADER;
    }
    if (event->name_flags & PROF_NAME_OPTIMIZER_STEP) {
        return PROF_CLASS_OPTIMIZER;
    }
    if (event->kind == PROF_KIND_ANNOTATION && !(event->name_flags & PROF_NAME_COLLECTIVE)) {
        return -1;
    }
    return PROF_CLASS_OP;
}

static void init_node(const prof_trace *trace, prof_node *node, uint32_t index, int class_) {
    const prof_event *event = &trace->events.at[index];
    prof_num zero = prof_int(0);
    memset(node, 0, sizeof *node);
    node->event = index;
    node->start = prof_event_ts(event);
    node->end = prof_event_end(event);
    node->host_self = node->device_total = node->device_self = node->tc_self = node->tc_total = zero;
    node->name = event->name;
    node->name_flags = event->name_flags;
    node->tid = event->tid;
    node->parent = PROF_NIL;
    node->kind = event->kind;
    node->class_ = (uint8_t)class_;
    node->eligible = (event->name_flags & PROF_NAME_TC_OP) != 0;
    node->proper = class_ == PROF_CLASS_OP && event->kind == PROF_KIND_OPERATOR &&
                   !(event->name_flags & (PROF_NAME_DP | PROF_NAME_DDP | PROF_NAME_OPTIMIZER));
    const prof_op_args *args = prof_node_args(trace, node);
    node->stack = args && args->stack.tag == PROF_STR ? (uint32_t)args->stack.i : 0;
}

static qn_status thread_of(maker *m, prof_map *map, prof_threads *threads, uint32_t ident, uint32_t *thread) {
    prof_thread fresh = {qn_prof_thread_key(m->trace, m->trace->idents.at[ident]), 0, 0};
    uint32_t *known = qn_prof_map_put(map, fresh.key, PROF_NIL);
    if (!known || !QN_VEC_ROOM(&m->trace->arena, &threads->list, 1)) {
        return QN_NO_MEMORY;
    }
    if (*known == PROF_NIL) {
        *known = (uint32_t)threads->list.n;
        threads->list.at[threads->list.n++] = fresh;
        if (m->build->strict && fresh.key.tag != PROF_INT) {
            return qn_error_set(m->build->error, QN_FORMAT, "an operator's tid is no number");
        }
    }
    *thread = *known;
    threads->list.at[*thread].end++; /* a count, until the nodes are laid out */
    return QN_OK;
}

static qn_status add_collective(maker *m, const prof_event *event, const prof_node *node) {
    prof_trace *trace = m->trace;
    prof_coll made;
    memset(&made, 0, sizeof made);
    const prof_op_args *args = prof_node_args(trace, node);
    made.external = prof_node_external(trace, node);
    made.name = node->name;
    made.start = node->start;
    made.end = node->end;
    made.shape = prof_node_shape(trace, node);
    made.types = args ? args->types : prof_absent();
    trace->libs |= event->name_flags & PROF_NAME_NCCL ? PROF_LIB_NCCL : 0;
    trace->libs |= event->name_flags & PROF_NAME_GLOO ? PROF_LIB_GLOO : 0;
    trace->libs |= event->name_flags & PROF_NAME_CNCL ? PROF_LIB_CNCL : 0;
    uint32_t *index = qn_prof_map_put(&m->colls, made.external, PROF_NIL);
    if (!index || qn_prof_range_push(&trace->arena, &made.ranges, made.start, made.end) != QN_OK ||
        !QN_VEC_ROOM(&trace->arena, &trace->colls, 1)) {
        return QN_NO_MEMORY;
    }
    if (*index == PROF_NIL) {
        *index = (uint32_t)trace->colls.n++;
    }
    trace->colls.at[*index] = made; /* replacing keeps the place */
    return QN_OK;
}

static qn_status add_operator(maker *m, uint32_t index) {
    prof_trace *trace = m->trace;
    const prof_event *event = &trace->events.at[index];
    int class_ = class_of(event);
    trace->use_dp |= (event->name_flags & PROF_NAME_DP) != 0;
    trace->use_ddp |= (event->name_flags & PROF_NAME_DDP) != 0;
    if (class_ < 0) {
        return QN_OK;
    }
    uint32_t thread = 0;
    int pl = class_ == PROF_CLASS_PLPROFILE;
    qn_status status = thread_of(m, pl ? &m->by_pl_thread : &m->by_thread, pl ? &m->build->pl_threads : &m->build->threads,
                                 event->tid, &thread);
    if (status != QN_OK) {
        return status;
    }
    if (trace->nodes.n >= PROF_NIL - 2 || !QN_VEC_ROOM(&trace->arena, &trace->nodes, 1) ||
        !QN_VEC_ROOM(&trace->arena, &m->node_thread, 1)) {
        return QN_NO_MEMORY;
    }
    prof_node *node = &trace->nodes.at[trace->nodes.n++];
    init_node(trace, node, index, class_);
    m->node_thread.at[m->node_thread.n++] = thread;
    return event->name_flags & PROF_NAME_COLLECTIVE ? add_collective(m, event, node) : QN_OK;
}

/* ---- Afterwards --------------------------------------------------------------------------------------------------- */

/* Device events of collectives lengthen their records, when the library works on the device. */
static qn_status extend_collectives(maker *m) {
    prof_trace *trace = m->trace;
    int upstream = trace->dialect == QN_PROFILE_UPSTREAM;
    if (!(trace->libs & (PROF_LIB_NCCL | PROF_LIB_CNCL))) {
        return QN_OK;
    }
    for (size_t i = 0; i < trace->devs.n; i++) {
        const prof_dev *dev = &trace->devs.at[i];
        if (dev->kind != PROF_KIND_KERNEL && (upstream || dev->kind != PROF_KIND_MEMCPY)) {
            continue;
        }
        const uint32_t *coll = qn_prof_map_find(&m->colls, prof_event_external(&trace->events.at[dev->event]));
        if (coll && qn_prof_range_push(&trace->arena, &trace->colls.at[*coll].ranges, dev->start, dev->end) != QN_OK) {
            return QN_NO_MEMORY;
        }
    }
    return QN_OK;
}

static qn_status lay_out_devices(maker *m) {
    prof_trace *trace = m->trace;
    if (!QN_VEC_ROOM(&trace->arena, &trace->rt_devs, trace->devs.n)) {
        return QN_NO_MEMORY;
    }
    for (size_t rt = 0; rt < trace->rts.n; rt++) {
        trace->rts.at[rt].dev_begin = (uint32_t)trace->rt_devs.n;
        for (uint32_t dev = m->chains.at[rt].first; dev != PROF_NIL; dev = m->next.at[dev]) {
            trace->rt_devs.at[trace->rt_devs.n++] = dev;
        }
        trace->rts.at[rt].dev_count = (uint32_t)trace->rt_devs.n - trace->rts.at[rt].dev_begin;
    }
    for (size_t i = 0; i < m->correlations.n; i++) { /* in order of first use of the id, which is the order of the buckets */
        for (uint32_t dev = m->correlations.at[i].first; dev != PROF_NIL; dev = m->next.at[dev]) {
            if (trace->devs.at[dev].kind != PROF_KIND_KERNEL) {
                continue;
            }
            if (!QN_VEC_ROOM(&trace->arena, &m->build->orphans, 1)) {
                return QN_NO_MEMORY;
            }
            m->build->orphans.at[m->build->orphans.n++] = dev;
        }
    }
    trace->orphans = m->build->orphans.n;
    return QN_OK;
}

static qn_status lay_out_threads(maker *m, prof_threads *threads, int pl) {
    const prof_trace *trace = m->trace;
    uint32_t begin = 0;
    for (size_t i = 0; i < threads->list.n; i++) {
        uint32_t count = threads->list.at[i].end;
        threads->list.at[i].begin = threads->list.at[i].end = begin;
        begin += count;
    }
    if (!QN_VEC_ROOM(&m->trace->arena, &threads->nodes, (size_t)begin)) {
        return QN_NO_MEMORY;
    }
    for (size_t i = 0; i < m->node_thread.n; i++) {
        if ((trace->nodes.at[i].class_ == PROF_CLASS_PLPROFILE) == pl) {
            threads->nodes.at[threads->list.at[m->node_thread.at[i]].end++] = (uint32_t)i;
        }
    }
    threads->nodes.n = begin;
    return QN_OK;
}

/* Room for what the events will become, so that nothing is moved while it grows. */
static qn_status reserve(maker *m) {
    prof_trace *trace = m->trace;
    size_t devs = 0, rts = 0, nodes = 0;
    for (size_t i = 0; i < trace->events.n; i++) {
        int kind = trace->events.at[i].kind;
        int device = kind == PROF_KIND_KERNEL || kind == PROF_KIND_MEMCPY || kind == PROF_KIND_MEMSET;
        devs += (size_t)device;
        rts += kind == PROF_KIND_RUNTIME;
        nodes += !device && kind != PROF_KIND_RUNTIME && kind != PROF_KIND_TRACE && kind != PROF_KIND_PYFUNCTION;
    }
    qn_arena *arena = &trace->arena;
    int roomy = QN_VEC_ROOM(arena, &trace->devs, devs) && QN_VEC_ROOM(arena, &m->next, devs) &&
                QN_VEC_ROOM(arena, &trace->rts, rts + 1) && QN_VEC_ROOM(arena, &m->chains, rts) &&
                QN_VEC_ROOM(arena, &trace->node_rts, rts + 1) && QN_VEC_ROOM(arena, &trace->nodes, nodes + 16) &&
                QN_VEC_ROOM(arena, &m->node_thread, nodes) && QN_VEC_ROOM(arena, &trace->kids, nodes + 1);
    return roomy ? QN_OK : QN_NO_MEMORY;
}

static qn_status make_all(maker *m) {
    for (size_t i = 0; i < m->trace->events.n; i++) {
        qn_status status = QN_OK;
        switch (m->trace->events.at[i].kind) {
        case PROF_KIND_KERNEL:
        case PROF_KIND_MEMCPY:
        case PROF_KIND_MEMSET: status = add_device_node(m, (uint32_t)i); break;
        case PROF_KIND_RUNTIME: status = add_runtime(m, (uint32_t)i); break;
        case PROF_KIND_OPERATOR:
        case PROF_KIND_PYTHON:
        case PROF_KIND_ANNOTATION:
        case PROF_KIND_STEP:
        case PROF_KIND_MODULE:
        case PROF_KIND_PLMODULE:
        case PROF_KIND_PLPROFILE: status = add_operator(m, (uint32_t)i); break;
        default: break;
        }
        if (status != QN_OK) {
            return status;
        }
    }
    return QN_OK;
}

static void free_maker(maker *m) {
    qn_arena *arena = &m->trace->arena;
    qn_prof_map_free(&m->by_correlation);
    qn_prof_map_free(&m->by_thread);
    qn_prof_map_free(&m->by_pl_thread);
    qn_prof_map_free(&m->colls);
    qn_prof_map_free(&m->pids);
    QN_VEC_FREE(arena, &m->correlations);
    QN_VEC_FREE(arena, &m->chains);
    QN_VEC_FREE(arena, &m->next);
    QN_VEC_FREE(arena, &m->node_thread);
}

static qn_status list_pids(maker *m) {
    prof_trace *trace = m->trace;
    if (!QN_VEC_ROOM(&trace->arena, &trace->used_pids, m->pids.entries.n)) {
        return QN_NO_MEMORY;
    }
    for (size_t i = 0; i < m->pids.entries.n; i++) {
        trace->used_pids.at[trace->used_pids.n++] = m->pids.entries.at[i].key;
    }
    return QN_OK;
}

qn_status qn_prof_nodes(prof_build *build) {
    prof_trace *trace = build->trace;
    maker m;
    memset(&m, 0, sizeof m);
    m.build = build;
    m.trace = trace;
    qn_prof_map_init(&m.by_correlation, &trace->arena);
    qn_prof_map_init(&m.by_thread, &trace->arena);
    qn_prof_map_init(&m.by_pl_thread, &trace->arena);
    qn_prof_map_init(&m.colls, &trace->arena);
    qn_prof_map_init(&m.pids, &trace->arena);
    qn_prof_map_init(&build->zero_first, &trace->arena);
    qn_prof_map_init(&build->zero_last, &trace->arena);
    qn_status status = reserve(&m);
    status = status == QN_OK ? make_all(&m) : status;
    status = status == QN_OK ? extend_collectives(&m) : status;
    status = status == QN_OK ? lay_out_devices(&m) : status;
    status = status == QN_OK ? lay_out_threads(&m, &build->threads, 0) : status;
    status = status == QN_OK ? lay_out_threads(&m, &build->pl_threads, 1) : status;
    status = status == QN_OK ? list_pids(&m) : status;
    free_maker(&m);
    return status;
}
