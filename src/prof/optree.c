/* Section 5: the operator tree of each thread, by inclusion in time, and the merging of an operator with its only child of the
 * same name. Children are chained while a tree grows and laid out side by side once it stands. */
#include <string.h>

#include "prof/prof_passes.h"
#include "prof/prof_sort.h"
#include "prof/prof_text.h"

typedef struct links { /* per node, while the tree grows */
    uint32_t first, last, next;
} links;

static int node_before(const void *a, const void *b, const void *context) {
    const prof_node *nodes = context, *x = &nodes[*(const uint32_t *)a], *y = &nodes[*(const uint32_t *)b];
    int order = prof_cmp(x->start, y->start);
    return order == -1 || (order == 0 && prof_gt(x->end, y->end));
}

qn_status qn_prof_sort_nodes(prof_trace *trace, uint32_t *ids, size_t n) {
    /* Nodes come in order of their start but for backward ones, so that only those that start together need sorting. */
    for (size_t begin = 0, end; begin < n; begin = end) {
        prof_num start = trace->nodes.at[ids[begin]].start;
        for (end = begin + 1; end < n && prof_eq(trace->nodes.at[ids[end]].start, start); end++) {}
        if (end < n && !prof_gt(trace->nodes.at[ids[end]].start, start)) {
            return qn_prof_sort(&trace->arena, ids, n, sizeof *ids, node_before, trace->nodes.at);
        }
        if (end - begin > 1 &&
            qn_prof_sort(&trace->arena, ids + begin, end - begin, sizeof *ids, node_before, trace->nodes.at) != QN_OK) {
            return QN_NO_MEMORY;
        }
    }
    return QN_OK;
}

/* ---- Insertion ---------------------------------------------------------------------------------------------------- */

static void append(links *link, uint32_t parent, uint32_t node) {
    if (link[parent].first == PROF_NIL) {
        link[parent].first = node;
    } else {
        link[link[parent].last].next = node;
    }
    link[parent].last = node;
}

static void insert_all(prof_trace *trace, links *link, uint32_t root, const uint32_t *ids, size_t n) {
    uint32_t top = root;
    for (size_t i = 0; i < n; i++) {
        prof_node *node = &trace->nodes.at[ids[i]];
        while (top != root && !prof_lt(node->start, trace->nodes.at[top].end)) {
            top = trace->nodes.at[top].parent; /* the parent is what lies below on the stack */
        }
        if (top != root && !prof_le(node->end, trace->nodes.at[top].end)) {
            trace->nodes_dropped++; /* partial overlap: no place in a tree */
            continue;
        }
        node->parent = top;
        append(link, top, ids[i]);
        top = ids[i];
    }
}

/* From the root down, before the layout: takes over an only child of the same name, its children and its runtime calls. */
static void merge_duplicates(prof_trace *trace, links *link, uint32_t root) {
    for (uint32_t at = root; at != PROF_NIL;) {
        prof_node *node = &trace->nodes.at[at];
        uint32_t only = link[at].first;
        while (only != PROF_NIL && link[at].last == only && node->kind == PROF_KIND_OPERATOR &&
               trace->nodes.at[only].kind == PROF_KIND_OPERATOR && trace->nodes.at[only].name == node->name) {
            node->rt_begin = trace->nodes.at[only].rt_begin;
            node->rt_count = trace->nodes.at[only].rt_count;
            trace->nodes.at[only].parent = PROF_NIL;
            link[at].first = link[only].first;
            link[at].last = link[only].last;
            for (uint32_t kid = link[at].first; kid != PROF_NIL; kid = link[kid].next) {
                trace->nodes.at[kid].parent = at;
            }
            only = link[at].first;
        }
        if (only != PROF_NIL) {
            at = only;
            continue;
        }
        while (at != root && link[at].next == PROF_NIL) {
            at = trace->nodes.at[at].parent;
        }
        at = at == root ? PROF_NIL : link[at].next;
    }
}

static qn_status lay_out(prof_trace *trace, const links *link, uint32_t root) {
    for (uint32_t at = root; at != PROF_NIL;) {
        prof_node *node = &trace->nodes.at[at];
        node->kid_begin = (uint32_t)trace->kids.n;
        for (uint32_t kid = link[at].first; kid != PROF_NIL; kid = link[kid].next) {
            if (!QN_VEC_ROOM(&trace->arena, &trace->kids, 1)) {
                return QN_NO_MEMORY;
            }
            trace->kids.at[trace->kids.n++] = kid;
            node->kid_count++;
        }
        if (link[at].first != PROF_NIL) {
            at = link[at].first;
            continue;
        }
        while (at != root && link[at].next == PROF_NIL) {
            at = trace->nodes.at[at].parent;
        }
        at = at == root ? PROF_NIL : link[at].next;
    }
    return QN_OK;
}

/* ---- Roots -------------------------------------------------------------------------------------------------------- */

static qn_status make_root(prof_trace *trace, prof_val thread, uint32_t *id) {
    uint32_t name = qn_prof_intern_c(&trace->text, "CallTreeRoot");
    if (name == PROF_NIL || !QN_VEC_ROOM(&trace->arena, &trace->nodes, 1) || !QN_VEC_ROOM(&trace->arena, &trace->idents, 1)) {
        return QN_NO_MEMORY;
    }
    prof_node root;
    memset(&root, 0, sizeof root);
    root.event = root.parent = PROF_NIL;
    root.name = name;
    root.kind = PROF_KIND_PYTHON;
    root.class_ = PROF_CLASS_OP;
    root.start = prof_int(INT64_MIN); /* covers all time until its children are known */
    root.end = prof_int(INT64_MAX);
    root.host_self = root.device_total = root.device_self = root.tc_self = root.tc_total = prof_int(0);
    root.tid = (uint32_t)trace->idents.n;
    root.rt_begin = (uint32_t)trace->node_rts.n;
    trace->idents.at[trace->idents.n++] = thread;
    *id = (uint32_t)trace->nodes.n;
    trace->nodes.at[trace->nodes.n++] = root;
    return QN_OK;
}

static qn_status give_runtime(prof_trace *trace, uint32_t root, uint32_t rt) {
    if (!QN_VEC_ROOM(&trace->arena, &trace->node_rts, 1)) {
        return QN_NO_MEMORY;
    }
    trace->node_rts.at[trace->node_rts.n++] = rt;
    trace->nodes.at[root].rt_count++;
    return QN_OK;
}

static int orphan_before(const void *a, const void *b, const void *context) {
    const prof_dev *devs = context, *x = &devs[*(const uint32_t *)a], *y = &devs[*(const uint32_t *)b];
    int order = prof_cmp(x->start, y->start);
    return order == -1 || (order == 0 && prof_gt(x->end, y->end));
}

/* A runtime call without times that holds the kernels nobody launched. */
static qn_status add_dummy(prof_build *build, uint32_t root) {
    prof_trace *trace = build->trace;
    size_t n = build->orphans.n;
    prof_rt dummy = {PROF_NIL,
                     qn_prof_intern_c(&trace->text, "dummy"),
                     prof_absent(),
                     prof_absent(),
                     (uint32_t)trace->rt_devs.n,
                     (uint32_t)n,
                     prof_int(0),
                     prof_int(0)};
    if (dummy.name == PROF_NIL || !QN_VEC_ROOM(&trace->arena, &trace->rt_devs, n) ||
        !QN_VEC_ROOM(&trace->arena, &trace->rts, 1)) {
        return QN_NO_MEMORY;
    }
    uint32_t *devs = trace->rt_devs.at + trace->rt_devs.n;
    memcpy(devs, build->orphans.at, n * sizeof *devs);
    trace->rt_devs.n += n;
    if (qn_prof_sort(&trace->arena, devs, n, sizeof *devs, orphan_before, trace->devs.at) != QN_OK) {
        return QN_NO_MEMORY;
    }
    for (size_t i = 0; i < n; i++) { /* the first of its two fillings; see durations.c */
        const prof_dev *dev = &trace->devs.at[devs[i]];
        prof_num length = prof_sub(dev->end, dev->start);
        dummy.device = prof_add(dummy.device, length);
        dummy.tc = prof_add(dummy.tc, dev->uses_tc ? length : prof_int(0));
    }
    trace->rts.at[trace->rts.n++] = dummy;
    return give_runtime(trace, root, (uint32_t)trace->rts.n - 1);
}

static qn_status give_root_runtimes(prof_build *build, uint32_t root, const prof_thread *thread, int is_main) {
    prof_trace *trace = build->trace;
    const uint32_t *first = qn_prof_map_find(&build->zero_first, thread->key);
    int by_id = !(trace->options.flags & QN_PROFILE_OWNER_TIME);
    for (uint32_t zero = first && by_id ? *first : PROF_NIL; zero != PROF_NIL; zero = build->zeros.at[zero].next) {
        if (give_runtime(trace, root, build->zeros.at[zero].rt) != QN_OK) {
            return QN_NO_MEMORY;
        }
    }
    if (!is_main || build->orphans.n == 0) {
        return QN_OK;
    }
    if (build->strict && trace->dialect == QN_PROFILE_MLU_A && trace->nodes.at[root].rt_count) {
        return qn_error_set(build->error, QN_FORMAT,
                            "%zu kernels without a runtime call beside calls without an operator, which "
                            "mlu_a cannot take",
                            build->orphans.n);
    }
    return add_dummy(build, root);
}

/* ---- All threads -------------------------------------------------------------------------------------------------- */

static qn_status grow(prof_build *build, uint32_t root, uint32_t *ids, size_t n) {
    prof_trace *trace = build->trace;
    qn_status status = qn_prof_sort_nodes(trace, ids, n);
    links *link = status == QN_OK ? qn_arena_resize(&trace->arena, NULL, trace->nodes.n, sizeof *link) : NULL;
    if (!link) {
        return QN_NO_MEMORY;
    }
    links none = {PROF_NIL, PROF_NIL, PROF_NIL};
    link[root] = none;
    for (size_t i = 0; i < n; i++) {
        link[ids[i]] = none;
    }
    insert_all(trace, link, root, ids, n);
    merge_duplicates(trace, link, root);
    status = lay_out(trace, link, root);
    qn_arena_release(&trace->arena, link);
    return status;
}

static qn_status grow_thread(prof_build *build, const prof_thread *thread) {
    prof_trace *trace = build->trace;
    uint32_t root, *ids = build->threads.nodes.at + thread->begin;
    size_t n = thread->end - thread->begin;
    int is_main = 0;
    for (size_t i = 0; i < n; i++) {
        is_main |= (trace->nodes.at[ids[i]].name_flags & PROF_NAME_STEP) != 0;
    }
    qn_status status = make_root(trace, thread->key, &root);
    status = status == QN_OK ? give_root_runtimes(build, root, thread, is_main) : status;
    status = status == QN_OK ? grow(build, root, ids, n) : status;
    if (status != QN_OK || !QN_VEC_ROOM(&trace->arena, &trace->trees, 1)) {
        return status != QN_OK ? status : QN_NO_MEMORY;
    }
    if (is_main) {
        build->main_tree = (uint32_t)trace->trees.n;
    }
    prof_tree tree = {thread->key, root};
    trace->trees.at[trace->trees.n++] = tree;
    return trace->options.flags & QN_PROFILE_OWNER_TIME ? qn_prof_owners_by_time(build, (uint32_t)trace->trees.n - 1) : QN_OK;
}

/* Lightning's profile nodes: the same rules, no runtime calls. */
static qn_status grow_lightning(prof_build *build, const prof_thread *thread) {
    prof_trace *trace = build->trace;
    uint32_t root;
    qn_status status = make_root(trace, thread->key, &root);
    status = status == QN_OK ? grow(build, root, build->pl_threads.nodes.at + thread->begin, thread->end - thread->begin)
                             : status;
    if (status != QN_OK || !QN_VEC_ROOM(&trace->arena, &trace->pl_trees, 1)) {
        return status != QN_OK ? status : QN_NO_MEMORY;
    }
    prof_tree tree = {thread->key, root};
    trace->pl_trees.at[trace->pl_trees.n++] = tree;
    return QN_OK;
}

qn_status qn_prof_trees(prof_build *build) {
    qn_status status = QN_OK;
    build->main_tree = PROF_NIL;
    for (size_t i = 0; i < build->threads.list.n && status == QN_OK; i++) {
        status = grow_thread(build, &build->threads.list.at[i]);
    }
    for (size_t i = 0; i < build->pl_threads.list.n && status == QN_OK; i++) {
        status = grow_lightning(build, &build->pl_threads.list.at[i]);
    }
    return status;
}
