/* Section 14: operators proper grouped by name, shape and call stack. Groups are found by the ids of their interned parts, so no
 * key is ever put together. */
#include <string.h>

#include "prof/prof_passes.h"
#include "prof/prof_sort.h"
#include "prof/prof_text.h"

typedef struct grouping {
    prof_trace *trace;
    prof_grouping which;
    prof_slots slots;
} grouping;

static int with_shape(prof_grouping which) { return which == PROF_BY_SHAPE || which == PROF_BY_SHAPE_STACK; }

static int with_stack(prof_grouping which) { return which == PROF_BY_STACK || which == PROF_BY_SHAPE_STACK; }

static uint32_t key_hash(qn_hash_key key, prof_grouping which, uint32_t name, uint32_t shape, uint32_t stack) {
    uint32_t parts[] = {name, with_shape(which) ? shape : 0, with_stack(which) ? stack : 0};
    return qn_prof_hash_bytes(key, parts, sizeof parts);
}

static uint32_t group_hash(qn_hash_key key, const void *owner, uint32_t index) {
    const grouping *g = owner;
    const prof_op_group *group = &g->trace->op_groups[g->which].at[index];
    return key_hash(key, g->which, group->name, group->shape, group->stack);
}

static int same_group(const grouping *g, const prof_op_group *group, uint32_t name, uint32_t shape, uint32_t stack) {
    return group->name == name && (!with_shape(g->which) || group->shape == shape) &&
           (!with_stack(g->which) || group->stack == stack);
}

/* The group's index, or PROF_NIL when memory ends; an unknown one is made when `node` is given. */
static uint32_t find_group(grouping *g, uint32_t name, uint32_t shape, uint32_t stack, const prof_node *node) {
    prof_trace *trace = g->trace;
    if (qn_prof_slots_room(&g->slots, &trace->arena, group_hash, g) != QN_OK ||
        !QN_VEC_ROOM(&trace->arena, &trace->op_groups[g->which], 1)) {
        return PROF_NIL;
    }
    size_t cursor = key_hash(g->slots.key, g->which, name, shape, stack);
    uint32_t found;
    while ((found = prof_slots_at(&g->slots, &cursor)) != PROF_NIL &&
           !same_group(g, &trace->op_groups[g->which].at[found], name, shape, stack)) {
        cursor++;
    }
    if (found != PROF_NIL || !node) {
        return found;
    }
    found = (uint32_t)trace->op_groups[g->which].n++;
    prof_op_group *group = &trace->op_groups[g->which].at[found];
    memset(group, 0, sizeof *group);
    group->name = name;
    group->shape = shape;
    group->stack = stack;
    group->eligible = node->eligible;
    group->host_total = group->device_total = group->host_self = group->device_self = prof_int(0);
    group->tc_self = group->tc_total = prof_int(0);
    prof_slots_put(&g->slots, cursor, found);
    return found;
}

static void add_member(prof_op_group *group, const prof_node *node) {
    group->calls++;
    group->host_total = prof_add(group->host_total, prof_sub(node->end, node->start));
    group->device_total = prof_add(group->device_total, node->device_total);
    group->host_self = prof_add(group->host_self, node->host_self);
    group->device_self = prof_add(group->device_self, node->device_self);
    group->tc_self = prof_add(group->tc_self, node->tc_self);
    group->tc_total = prof_add(group->tc_total, node->tc_total);
}

static prof_num ratio(prof_num part, prof_num whole) {
    return prof_gt(whole, prof_int(0)) ? prof_dbl(prof_div(part, whole)) : prof_int(0);
}

/* The groups that hold all of one of the finest groups, so that one lookup serves all four. */
typedef struct wider {
    uint32_t of[PROF_GROUPINGS];
} wider;

typedef QN_VEC(wider) widers;

/* Finest is the last of the groupings. A new group there may need new wider ones; they are then first seen here as well. */
static qn_status group_node(grouping *all, widers *known, const prof_node *node) {
    prof_trace *trace = all->trace;
    uint32_t shape = qn_prof_value_text(&trace->text, prof_node_shape(trace, node));
    uint32_t finest = shape == PROF_NIL ? PROF_NIL : find_group(&all[PROF_BY_SHAPE_STACK], node->name, shape, node->stack, node);
    if (finest == PROF_NIL) {
        return QN_NO_MEMORY;
    }
    if (finest == known->n) {
        if (!QN_VEC_ROOM(&trace->arena, known, 1)) {
            return QN_NO_MEMORY;
        }
        known->at[finest].of[PROF_BY_SHAPE_STACK] = finest;
        for (int which = 0; which < PROF_BY_SHAPE_STACK; which++) {
            known->at[finest].of[which] = find_group(&all[which], node->name, shape, node->stack, node);
            if (known->at[finest].of[which] == PROF_NIL) {
                return QN_NO_MEMORY;
            }
        }
        known->n++;
    }
    for (int which = 0; which < PROF_GROUPINGS; which++) {
        add_member(&trace->op_groups[which].at[known->at[finest].of[which]], node);
    }
    return QN_OK;
}

static qn_status group_all(grouping *all) {
    prof_trace *trace = all->trace;
    widers known = {NULL, 0, 0};
    qn_status status = QN_OK;
    for (size_t i = 0; i < trace->postorder.n && status == QN_OK; i++) {
        const prof_node *node = &trace->nodes.at[trace->postorder.at[i]];
        status = node->proper ? group_node(all, &known, node) : QN_OK;
    }
    QN_VEC_FREE(&trace->arena, &known);
    return status;
}

static void set_ratios(prof_trace *trace, prof_grouping which) {
    for (size_t i = 0; i < trace->op_groups[which].n; i++) {
        prof_op_group *group = &trace->op_groups[which].at[i];
        group->tc_self_ratio = ratio(group->tc_self, group->device_self);
        group->tc_total_ratio = ratio(group->tc_total, group->device_total);
    }
}

/* ---- Orders ------------------------------------------------------------------------------------------------------- */

typedef struct sorter {
    const prof_op_group *groups;
    int by_device;
} sorter;

static int larger_first(const void *a, const void *b, const void *context) {
    const sorter *s = context;
    const prof_op_group *x = &s->groups[*(const uint32_t *)a], *y = &s->groups[*(const uint32_t *)b];
    return s->by_device ? prof_gt(x->device_self, y->device_self) : prof_gt(x->host_self, y->host_self);
}

static qn_status order_groups(prof_trace *trace, prof_grouping which) {
    size_t n = trace->op_groups[which].n;
    uint32_t *order = qn_arena_alloc(&trace->arena, n, sizeof *order);
    if (!order) {
        return QN_NO_MEMORY;
    }
    for (uint32_t i = 0; i < n; i++) {
        order[i] = i;
    }
    trace->op_order[which] = order;
    sorter s = {trace->op_groups[which].at, trace->sort_by_device};
    return qn_prof_sort(&trace->arena, order, n, sizeof *order, larger_first, &s);
}

/* Under each group the stack groups of the same name (and shape) that have a stack, in first-seen order. */
static qn_status link_stacks(grouping *parent, prof_grouping stacked) {
    prof_trace *trace = parent->trace;
    size_t n = trace->op_groups[stacked].n;
    uint32_t *list = qn_arena_alloc(&trace->arena, n, sizeof *list),
             *owner = qn_arena_resize(&trace->arena, NULL, n, sizeof *owner);
    if (!list || !owner) {
        return QN_NO_MEMORY;
    }
    for (size_t i = 0; i < n; i++) {
        const prof_op_group *group = &trace->op_groups[stacked].at[i];
        int shown = group->stack && prof_string(trace, group->stack)->length;
        owner[i] = shown ? find_group(parent, group->name, group->shape, 0, NULL) : PROF_NIL;
        if (owner[i] != PROF_NIL) {
            trace->op_groups[parent->which].at[owner[i]].stack_count++;
        }
    }
    uint32_t begin = 0;
    for (size_t i = 0; i < trace->op_groups[parent->which].n; i++) {
        prof_op_group *group = &trace->op_groups[parent->which].at[i];
        group->stack_begin = begin;
        begin += group->stack_count;
        group->stack_count = 0;
    }
    for (uint32_t i = 0; i < n; i++) {
        if (owner[i] != PROF_NIL) {
            prof_op_group *group = &trace->op_groups[parent->which].at[owner[i]];
            list[group->stack_begin + group->stack_count++] = i;
        }
    }
    trace->op_stacks[parent->which] = list;
    qn_arena_release(&trace->arena, owner);
    return QN_OK;
}

qn_status qn_prof_op_groups(prof_trace *trace) {
    grouping all[PROF_GROUPINGS];
    memset(all, 0, sizeof all);
    for (int which = 0; which < PROF_GROUPINGS; which++) {
        all[which].trace = trace;
        all[which].which = (prof_grouping)which;
    }
    qn_status status = group_all(all);
    for (int which = 0; which < PROF_GROUPINGS && status == QN_OK; which++) {
        set_ratios(trace, (prof_grouping)which);
        status = order_groups(trace, (prof_grouping)which);
    }
    status = status == QN_OK ? link_stacks(&all[PROF_BY_NAME], PROF_BY_STACK) : status;
    status = status == QN_OK ? link_stacks(&all[PROF_BY_SHAPE], PROF_BY_SHAPE_STACK) : status;
    for (int which = 0; which < PROF_GROUPINGS; which++) {
        qn_arena_release(&trace->arena, all[which].slots.at);
    }
    return status;
}
