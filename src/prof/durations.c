/* Section 6: host and device times of every node, from the leaves up. A runtime call adds up its device work each time a node
 * fills it; a call that two nodes share (external id 0, also in a root's list) therefore counts double for the second one, and
 * the expected views contain that. */
#include "prof/prof_passes.h"
#include "prof/prof_sort.h"

typedef struct frame {
    uint32_t node, next;
} frame;

qn_status qn_prof_postorder(prof_trace *trace, uint32_t root, prof_ids *out) {
    QN_VEC(frame) stack = {NULL, 0, 0};
    frame bottom = {root, 0};
    if (!QN_VEC_ROOM(&trace->arena, &stack, 1)) {
        return QN_NO_MEMORY;
    }
    stack.at[stack.n++] = bottom;
    while (stack.n) {
        frame *top = &stack.at[stack.n - 1];
        const prof_node *node = &trace->nodes.at[top->node];
        if (top->next < node->kid_count) {
            frame kid = {trace->kids.at[node->kid_begin + top->next++], 0};
            if (!QN_VEC_ROOM(&trace->arena, &stack, 1)) {
                return QN_NO_MEMORY;
            }
            stack.at[stack.n++] = kid;
            continue;
        }
        if (!QN_VEC_ROOM(&trace->arena, out, 1)) {
            return QN_NO_MEMORY;
        }
        out->at[out->n++] = top->node;
        stack.n--;
    }
    QN_VEC_FREE(&trace->arena, &stack);
    return QN_OK;
}

static int has_times(const prof_rt *rt) { /* absent or 0, as the reference tests it */
    return !prof_is_zero(rt->start) && !prof_is_zero(rt->end);
}

static int rt_before(const void *a, const void *b, const void *context) {
    const prof_rt *rts = context, *x = &rts[*(const uint32_t *)a], *y = &rts[*(const uint32_t *)b];
    int x_timed = has_times(x), y_timed = has_times(y);
    if (!x_timed || !y_timed) {
        return x_timed && !y_timed;
    }
    int order = prof_cmp(x->start, y->start);
    return order == -1 || (order == 0 && prof_gt(x->end, y->end));
}

static void fill_runtime(prof_trace *trace, prof_rt *rt, const prof_node *node) {
    for (uint32_t i = 0; i < rt->dev_count; i++) {
        prof_dev *dev = &trace->devs.at[trace->rt_devs.at[rt->dev_begin + i]];
        prof_num length = prof_sub(dev->end, dev->start);
        dev->op_name = node->name;
        dev->op_eligible = node->eligible;
        rt->device = prof_add(rt->device, length);
        rt->tc = prof_add(rt->tc, dev->uses_tc ? length : prof_int(0));
    }
}

/* Host time that is neither a child's nor a runtime call's. */
static prof_num host_self(const prof_trace *trace, const prof_node *node) {
    prof_num left = prof_sub(node->end, node->start);
    for (uint32_t i = 0; i < node->kid_count; i++) {
        const prof_node *kid = &trace->nodes.at[trace->kids.at[node->kid_begin + i]];
        left = prof_sub(left, prof_sub(kid->end, kid->start));
    }
    int nested_once = trace->dialect != QN_PROFILE_UPSTREAM; /* a vendor call encloses its driver call */
    const prof_rt *counted = NULL;
    for (uint32_t i = 0; i < node->rt_count; i++) {
        const prof_rt *rt = &trace->rts.at[trace->node_rts.at[node->rt_begin + i]];
        if (rt->start.tag == PROF_ABSENT) {
            continue;
        }
        if (nested_once && counted && prof_ge(rt->start, counted->start) && prof_le(rt->end, counted->end)) {
            continue;
        }
        left = prof_sub(left, prof_sub(rt->end, rt->start));
        counted = rt;
    }
    return left;
}

static void add_children(const prof_trace *trace, prof_node *node) {
    for (uint32_t i = 0; i < node->kid_count; i++) {
        const prof_node *kid = &trace->nodes.at[trace->kids.at[node->kid_begin + i]];
        node->device_total = prof_add(node->device_total, kid->device_total);
        node->tc_total = prof_add(node->tc_total, kid->tc_total);
        node->eligible |= (uint8_t)(node->kind == PROF_KIND_OPERATOR && kid->eligible);
    }
}

static void add_runtimes(prof_trace *trace, prof_node *node) {
    for (uint32_t i = 0; i < node->rt_count; i++) {
        const prof_rt *rt = &trace->rts.at[trace->node_rts.at[node->rt_begin + i]];
        node->device_total = prof_add(node->device_total, rt->device);
        node->device_self = prof_add(node->device_self, rt->device);
        node->tc_self = prof_add(node->tc_self, rt->tc);
        node->tc_total = prof_add(node->tc_total, rt->tc);
        node->eligible |= (uint8_t)(node->kind == PROF_KIND_OPERATOR && prof_gt(rt->tc, prof_int(0)));
    }
}

static qn_status fill(prof_trace *trace, uint32_t id) {
    prof_node *node = &trace->nodes.at[id];
    uint32_t *rts = trace->node_rts.at + node->rt_begin;
    if (node->rt_count > 1 && qn_prof_sort(&trace->arena, rts, node->rt_count, sizeof *rts, rt_before, trace->rts.at) != QN_OK) {
        return QN_NO_MEMORY;
    }
    for (uint32_t i = 0; i < node->rt_count; i++) {
        fill_runtime(trace, &trace->rts.at[rts[i]], node);
    }
    node->host_self = node->event == PROF_NIL ? prof_int(0) : host_self(trace, node);
    add_children(trace, node);
    add_runtimes(trace, node);
    if (node->class_ == PROF_CLASS_MODULE || node->class_ == PROF_CLASS_PLMODULE) {
        for (uint32_t i = 0; i < node->kid_count; i++) {
            const prof_node *kid = &trace->nodes.at[trace->kids.at[node->kid_begin + i]];
            if (kid->proper) {
                node->device_self = prof_add(node->device_self, kid->device_total);
            }
        }
    }
    return QN_OK;
}

static void set_root_times(prof_trace *trace, uint32_t root) {
    prof_node *node = &trace->nodes.at[root];
    node->start = node->end = prof_absent();
    if (node->kid_count) {
        node->start = trace->nodes.at[trace->kids.at[node->kid_begin]].start;
        node->end = trace->nodes.at[trace->kids.at[node->kid_begin + node->kid_count - 1]].end;
    }
}

qn_status qn_prof_durations(prof_build *build) {
    prof_trace *trace = build->trace;
    prof_ids order = {NULL, 0, 0};
    for (size_t i = 0; i < trace->trees.n; i++) {
        order.n = 0;
        if (qn_prof_postorder(trace, trace->trees.at[i].root, &order) != QN_OK) {
            return QN_NO_MEMORY;
        }
        for (size_t j = 0; j < order.n; j++) {
            if (fill(trace, order.at[j]) != QN_OK) {
                return QN_NO_MEMORY;
            }
        }
        set_root_times(trace, trace->trees.at[i].root);
    }
    for (size_t i = 0; i < trace->pl_trees.n; i++) {
        set_root_times(trace, trace->pl_trees.at[i].root);
    }
    QN_VEC_FREE(&trace->arena, &order);
    return QN_OK;
}
