/* Which runtime calls belong to which operator: by external id as the reference does it, or by time (--owner=time). Also the
 * reading of thread ids. */
#include "prof/prof_passes.h"
#include "prof/prof_sort.h"

static int is_blank(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

/* The reference's int("..."): blanks around, a sign, digits with single underscores between them. */
static int read_integer(const prof_str *text, int64_t *value) {
    const char *at = text->at, *end = text->at + text->length;
    while (at < end && is_blank(*at)) {
        at++;
    }
    while (end > at && is_blank(end[-1])) {
        end--;
    }
    int negative = at < end && *at == '-';
    if (at < end && (*at == '-' || *at == '+')) {
        at++;
    }
    int digit_before = 0;
    *value = 0;
    for (; at < end; at++) {
        if (*at == '_' && digit_before && at + 1 < end) {
            digit_before = 0;
            continue;
        }
        int is_digit = *at >= '0' && *at <= '9';
        if (!is_digit || __builtin_mul_overflow(*value, 10, value) || __builtin_add_overflow(*value, *at - '0', value)) {
            return 0;
        }
        digit_before = 1;
    }
    *value = negative ? -*value : *value;
    return digit_before;
}

prof_val qn_prof_thread_key(const prof_trace *trace, prof_val written) {
    int64_t value;
    if (written.tag == PROF_STR && read_integer(prof_string(trace, (uint32_t)written.i), &value)) {
        return prof_int(value);
    }
    if (written.tag == PROF_DBL && written.d > -9e18 && written.d < 9e18) {
        return prof_int((int64_t)written.d);
    }
    return written;
}

/* ---- By external id ----------------------------------------------------------------------------------------------- */

typedef struct chain { /* runtime calls of one external id, in event order */
    uint32_t first, last;
} chain;

static qn_status take_chain(prof_trace *trace, uint32_t node, chain *from, const uint32_t *next) {
    trace->nodes.at[node].rt_begin = (uint32_t)trace->node_rts.n;
    for (uint32_t rt = from->first; rt != PROF_NIL; rt = next[rt]) {
        if (!QN_VEC_ROOM(&trace->arena, &trace->node_rts, 1)) {
            return QN_NO_MEMORY;
        }
        trace->node_rts.at[trace->node_rts.n++] = rt;
        trace->nodes.at[node].rt_count++;
    }
    from->first = from->last = PROF_NIL; /* gone for later operators with the same id */
    return QN_OK;
}

static qn_status own_by_id(prof_build *build) {
    prof_trace *trace = build->trace;
    prof_map ids;
    QN_VEC(chain) chains = {NULL, 0, 0};
    qn_prof_map_init(&ids, &trace->arena);
    uint32_t *next = qn_arena_resize(&trace->arena, NULL, trace->rts.n, sizeof *next);
    qn_status status = next ? QN_OK : QN_NO_MEMORY;
    for (size_t rt = 0; rt < trace->rts.n && status == QN_OK; rt++) {
        prof_val id = prof_event_external(&trace->events.at[trace->rts.at[rt].event]);
        uint32_t *index = qn_prof_map_put(&ids, id, (uint32_t)chains.n);
        if (!index || !QN_VEC_ROOM(&trace->arena, &chains, 1)) {
            status = QN_NO_MEMORY;
            break;
        }
        next[rt] = PROF_NIL;
        if (*index == chains.n) {
            chain fresh = {(uint32_t)rt, (uint32_t)rt};
            chains.at[chains.n++] = fresh;
        } else {
            next[chains.at[*index].last] = (uint32_t)rt;
            chains.at[*index].last = (uint32_t)rt;
        }
    }
    for (size_t i = 0; i < build->threads.nodes.n && status == QN_OK; i++) {
        uint32_t node = build->threads.nodes.at[i];
        const uint32_t *index = qn_prof_map_find(&ids, prof_node_external(trace, &trace->nodes.at[node]));
        if (index && *index < chains.n) {
            status = take_chain(trace, node, &chains.at[*index], next);
        }
    }
    qn_prof_map_free(&ids);
    QN_VEC_FREE(&trace->arena, &chains);
    qn_arena_release(&trace->arena, next);
    return status;
}

/* ---- By time ------------------------------------------------------------------------------------------------------ */

typedef struct owned { /* a runtime call and the node it goes to */
    uint32_t node, rt;
} owned;

static int start_before(const void *a, const void *b, const void *context) {
    const prof_rt *rts = context;
    return prof_lt(rts[*(const uint32_t *)a].start, rts[*(const uint32_t *)b].start);
}

static int owner_before(const void *a, const void *b, const void *unused) {
    (void)unused;
    return ((const owned *)a)->node < ((const owned *)b)->node;
}

typedef struct open_node { /* on the way from the root to the deepest node at hand */
    uint32_t node, next_kid;
    uint32_t op; /* place on the way of the nearest operator at or above it; 0, the root, when there is none */
} open_node;

typedef QN_VEC(open_node) open_nodes;

/* The innermost operator on the way that encloses the call, or the root. All on it began before the call, and none outlasts the one
 * around it, so the deepest that reaches as far as the call is found by halving. */
static uint32_t innermost(const prof_trace *trace, const open_nodes *way, const prof_rt *rt) {
    size_t low = 0, high = way->n - 1; /* the root reaches far enough; what lies behind `high` does not */
    while (low < high) {
        size_t middle = low + (high - low + 1) / 2;
        if (prof_le(rt->end, trace->nodes.at[way->at[middle].node].end)) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    return way->at[way->at[low].op].node;
}

static qn_status open_kid(prof_trace *trace, open_nodes *way, uint32_t kid) {
    if (!QN_VEC_ROOM(&trace->arena, way, 1)) {
        return QN_NO_MEMORY;
    }
    uint32_t at = (uint32_t)way->n, above = at ? way->at[at - 1].op : 0;
    way->at[way->n++] = (open_node){kid, 0, trace->nodes.at[kid].class_ == PROF_CLASS_OP ? at : above};
    return QN_OK;
}

/* Calls in order of start; the way leads to the deepest node open at that time, by walking the tree once from left to right. */
static qn_status sweep(prof_trace *trace, uint32_t root, const uint32_t *rts, size_t n, open_nodes *way, owned *out) {
    qn_status status = open_kid(trace, way, root);
    for (size_t i = 0; i < n && status == QN_OK;) {
        const prof_rt *rt = &trace->rts.at[rts[i]];
        open_node *at = &way->at[way->n - 1];
        const prof_node *node = &trace->nodes.at[at->node];
        uint32_t kid = at->next_kid < node->kid_count ? trace->kids.at[node->kid_begin + at->next_kid] : PROF_NIL;
        if (way->n > 1 && prof_ge(rt->start, node->end)) {
            way->n--;
        } else if (kid != PROF_NIL && prof_le(trace->nodes.at[kid].start, rt->start)) {
            at->next_kid++;
            if (prof_lt(rt->start, trace->nodes.at[kid].end)) {
                status = open_kid(trace, way, kid);
            }
        } else {
            out[i].node = innermost(trace, way, rt);
            out[i].rt = rts[i];
            i++;
        }
    }
    return status;
}

static qn_status give(prof_trace *trace, const owned *list, size_t n) {
    for (size_t i = 0; i < n; i++) {
        prof_node *node = &trace->nodes.at[list[i].node];
        if (!QN_VEC_ROOM(&trace->arena, &trace->node_rts, (size_t)node->rt_count + 1)) {
            return QN_NO_MEMORY;
        }
        if (i == 0 || list[i].node != list[i - 1].node) { /* what a root has already moves along */
            uint32_t begin = (uint32_t)trace->node_rts.n;
            for (uint32_t j = 0; j < node->rt_count; j++) {
                trace->node_rts.at[trace->node_rts.n++] = trace->node_rts.at[node->rt_begin + j];
            }
            node->rt_begin = begin;
        }
        trace->node_rts.at[trace->node_rts.n++] = list[i].rt;
        node->rt_count++;
    }
    return QN_OK;
}

/* Runtime calls of each integer thread. */
static qn_status chain_by_thread(prof_build *build) {
    prof_trace *trace = build->trace;
    qn_prof_map_init(&build->rt_first, &trace->arena);
    qn_prof_map_init(&build->rt_last, &trace->arena);
    build->rt_next = qn_arena_resize(&trace->arena, NULL, trace->rts.n, sizeof *build->rt_next);
    if (!build->rt_next) {
        return QN_NO_MEMORY;
    }
    for (uint32_t rt = 0; rt < trace->rts.n; rt++) {
        prof_val thread = qn_prof_thread_key(trace, trace->idents.at[trace->events.at[trace->rts.at[rt].event].tid]);
        uint32_t *first = qn_prof_map_put(&build->rt_first, thread, rt), *last = qn_prof_map_put(&build->rt_last, thread, rt);
        if (!first || !last) {
            return QN_NO_MEMORY;
        }
        build->rt_next[rt] = PROF_NIL;
        if (*last != rt) {
            build->rt_next[*last] = rt;
            *last = rt;
        }
    }
    return QN_OK;
}

qn_status qn_prof_owners(prof_build *build) {
    return build->trace->options.flags & QN_PROFILE_OWNER_TIME ? chain_by_thread(build) : own_by_id(build);
}

qn_status qn_prof_owners_by_time(prof_build *build, uint32_t tree) {
    prof_trace *trace = build->trace;
    const uint32_t *first = qn_prof_map_find(&build->rt_first, trace->trees.at[tree].thread);
    prof_ids mine = {NULL, 0, 0};
    for (uint32_t rt = first ? *first : PROF_NIL; rt != PROF_NIL; rt = build->rt_next[rt]) {
        if (!QN_VEC_ROOM(&trace->arena, &mine, 1)) {
            return QN_NO_MEMORY;
        }
        mine.at[mine.n++] = rt;
    }
    open_nodes way = {NULL, 0, 0};
    owned *list = qn_arena_resize(&trace->arena, NULL, mine.n, sizeof *list);
    if (!list || qn_prof_sort(&trace->arena, mine.at, mine.n, sizeof *mine.at, start_before, trace->rts.at) != QN_OK) {
        return QN_NO_MEMORY;
    }
    qn_status status = sweep(trace, trace->trees.at[tree].root, mine.at, mine.n, &way, list);
    status = status == QN_OK ? qn_prof_sort(&trace->arena, list, mine.n, sizeof *list, owner_before, NULL) : status;
    status = status == QN_OK ? give(trace, list, mine.n) : status;
    QN_VEC_FREE(&trace->arena, &way);
    qn_arena_release(&trace->arena, list);
    QN_VEC_FREE(&trace->arena, &mine);
    return status;
}
