/* Section 20: two traces laid side by side. Nodes that mark structure (steps, modules, loaders, optimizers, backward work) are
 * matched in order; what lies between two matches is compared as a whole. All lists are slices of the traces' own arrays. */
#include <string.h>

#include "prof/prof_joint.h"
#include "prof/prof_map.h"
#include "prof/prof_passes.h"
#include "prof/prof_text.h"

typedef struct slice { /* nodes of one trace */
    const uint32_t *ids;
    size_t n;
} slice;

typedef struct pair {
    slice left, right;
} pair;

typedef struct comparer {
    qn_arena *arena;
    prof_diff *diff;
    QN_VEC(pair) pairs; /* of diff->nodes, same index */
} comparer;

/* ---- One side ----------------------------------------------------------------------------------------------------- */

typedef struct frame {
    uint32_t node, next;
} frame;

typedef QN_VEC(frame) frames;

/* Steps through the nodes under `stack`'s bottom, children first; PROF_NIL at the end. */
static uint32_t next_postorder(comparer *c, const prof_trace *trace, frames *stack, int *failed) {
    while (stack->n) {
        frame *top = &stack->at[stack->n - 1];
        const prof_node *node = &trace->nodes.at[top->node];
        if (top->next == node->kid_count) {
            return stack->at[--stack->n].node;
        }
        frame kid = {trace->kids.at[node->kid_begin + top->next++], 0};
        if (!QN_VEC_ROOM(c->arena, stack, 1)) {
            *failed = 1;
            return PROF_NIL;
        }
        stack->at[stack->n++] = kid;
    }
    return PROF_NIL;
}

typedef struct kernel_count { /* kernels of one name under one aggregate */
    uint32_t agg, name;
    int64_t count;
} kernel_count;

typedef struct tally {
    prof_map names;   /* operator name to aggregate */
    prof_map kernels; /* aggregate and kernel name to count */
    QN_VEC(kernel_count) counts;
} tally;

static qn_status count_kernels(comparer *c, const prof_trace *trace, tally *t, prof_diff_side *side, uint32_t agg,
                               const prof_node *node) {
    prof_launched at = {0, 0};
    for (const prof_dev *dev; (dev = prof_node_next_kernel(trace, node, &at)) != NULL;) {
        prof_val key = prof_int((int64_t)((uint64_t)agg << 32 | dev->name));
        uint32_t *index = qn_prof_map_put(&t->kernels, key, (uint32_t)t->counts.n);
        if (!index || !QN_VEC_ROOM(c->arena, &t->counts, 1)) {
            return QN_NO_MEMORY;
        }
        if (*index == t->counts.n) {
            kernel_count fresh = {agg, dev->name, 0};
            t->counts.at[t->counts.n++] = fresh;
        }
        t->counts.at[*index].count++;
        side->aggs.at[agg].kernel_calls++;
    }
    return QN_OK;
}

static qn_status add_operator(comparer *c, const prof_trace *trace, tally *t, prof_diff_side *side, const prof_node *node) {
    uint32_t *index = qn_prof_map_put(&t->names, prof_int(node->name), (uint32_t)side->aggs.n);
    if (!index || !QN_VEC_ROOM(c->arena, &side->aggs, 1)) {
        return QN_NO_MEMORY;
    }
    if (*index == side->aggs.n) {
        prof_diff_agg fresh = {node->name, 0, prof_int(0), prof_int(0), prof_int(0), prof_int(0), 0, "", "", 0};
        side->aggs.at[side->aggs.n++] = fresh;
    }
    prof_diff_agg *agg = &side->aggs.at[*index];
    agg->calls++;
    agg->host = prof_add(agg->host, prof_sub(node->end, node->start));
    agg->device = prof_add(agg->device, node->device_total);
    agg->host_self = prof_add(agg->host_self, node->host_self);
    agg->device_self = prof_add(agg->device_self, node->device_self);
    return trace->dialect == QN_PROFILE_MLU_B ? count_kernels(c, trace, t, side, *index, node) : QN_OK;
}

/* "a;b;c" and "2;1;4" for one aggregate. */
static qn_status join_kernels(comparer *c, const prof_trace *trace, const tally *t, prof_diff_side *side) {
    for (uint32_t agg = 0; agg < side->aggs.n; agg++) {
        QN_VEC(char) names = {NULL, 0, 0}, counts = {NULL, 0, 0};
        for (size_t i = 0; i < t->counts.n; i++) {
            if (t->counts.at[i].agg != agg) {
                continue;
            }
            const prof_str *name = prof_string(trace, t->counts.at[i].name);
            if (!QN_VEC_ROOM(c->arena, &names, name->length + 2) || !QN_VEC_ROOM(c->arena, &counts, PROF_NUM_TEXT + 2)) {
                return QN_NO_MEMORY;
            }
            if (names.n) {
                names.at[names.n++] = counts.at[counts.n++] = ';';
            }
            memcpy(names.at + names.n, name->at, name->length);
            names.n += name->length;
            counts.n += (size_t)qn_prof_int_text(t->counts.at[i].count, counts.at + counts.n);
            names.at[names.n] = counts.at[counts.n] = 0;
        }
        if (counts.n) {
            side->aggs.at[agg].kernel_names = names.at;
            side->aggs.at[agg].kernel_names_length = names.n;
            side->aggs.at[agg].kernel_counts = counts.at;
        }
    }
    return QN_OK;
}

static qn_status aggregate(comparer *c, const prof_trace *trace, slice nodes, prof_diff_side *side) {
    frames stack = {NULL, 0, 0};
    tally t;
    int failed = 0;
    memset(&t, 0, sizeof t);
    qn_prof_map_init(&t.names, c->arena);
    qn_prof_map_init(&t.kernels, c->arena);
    for (size_t i = 0; i < nodes.n && !failed; i++) {
        frame bottom = {nodes.ids[i], 0};
        if (!QN_VEC_ROOM(c->arena, &stack, 1)) {
            return QN_NO_MEMORY;
        }
        stack.at[stack.n++] = bottom;
        for (uint32_t id; (id = next_postorder(c, trace, &stack, &failed)) != PROF_NIL;) {
            const prof_node *node = &trace->nodes.at[id];
            failed |= node->proper && add_operator(c, trace, &t, side, node) != QN_OK;
        }
    }
    failed |= join_kernels(c, trace, &t, side) != QN_OK;
    qn_prof_map_free(&t.names);
    qn_prof_map_free(&t.kernels);
    QN_VEC_FREE(c->arena, &t.counts);
    QN_VEC_FREE(c->arena, &stack);
    return failed ? QN_NO_MEMORY : QN_OK;
}

static qn_status fill_side(comparer *c, const prof_trace *trace, slice nodes, prof_diff_side *side) {
    side->name = nodes.n == 0 ? "Blank" : "CompositeNodes";
    side->name_length = strlen(side->name);
    if (nodes.n == 1) {
        const prof_str *name = prof_string(trace, trace->nodes.at[nodes.ids[0]].name);
        side->name = name->at;
        side->name_length = name->length;
    }
    side->duration = side->device = side->total = prof_int(0);
    for (size_t i = 0; i < nodes.n; i++) {
        const prof_node *node = &trace->nodes.at[nodes.ids[i]];
        prof_num host = prof_sub(node->end, node->start);
        side->duration = prof_add(side->duration, host);
        side->device = prof_add(side->device, node->device_total);
        side->total = prof_add(side->total, prof_is_zero(node->device_total) ? host : node->device_total);
    }
    return aggregate(c, trace, nodes, side);
}

/* ---- Matching ----------------------------------------------------------------------------------------------------- */

static slice kids_of(const prof_trace *trace, uint32_t id) {
    const prof_node *node = &trace->nodes.at[id];
    slice kids = {node->kid_count ? trace->kids.at + node->kid_begin : NULL, node->kid_count};
    return kids;
}

static int marks_structure(const prof_node *node) {
    return node->class_ == PROF_CLASS_BACKWARD || node->class_ == PROF_CLASS_DATALOADER || node->class_ == PROF_CLASS_MODULE ||
           node->class_ == PROF_CLASS_OPTIMIZER || node->class_ == PROF_CLASS_STEP;
}

static int same_mark(const comparer *c, const prof_node *left, const prof_node *right) {
    return left->class_ == right->class_ &&
           qn_prof_str_cmp(prof_string(c->diff->left, left->name), prof_string(c->diff->right, right->name)) == 0;
}

static qn_status add_pair(comparer *c, slice left, slice right) {
    pair fresh = {left, right};
    if (!QN_VEC_ROOM(c->arena, &c->pairs, 1) || !QN_VEC_ROOM(c->arena, &c->diff->nodes, 1) ||
        !QN_VEC_ROOM(c->arena, &c->diff->kids, 1)) {
        return QN_NO_MEMORY;
    }
    if (c->diff->nodes.n) { /* the root is nobody's child */
        c->diff->kids.at[c->diff->kids.n++] = (uint32_t)c->diff->nodes.n;
    }
    memset(&c->diff->nodes.at[c->diff->nodes.n++], 0, sizeof c->diff->nodes.at[0]);
    c->pairs.at[c->pairs.n++] = fresh;
    return QN_OK;
}

static slice part(slice whole, size_t from, size_t to) {
    slice piece = {to > from ? whole.ids + from : NULL, to - from};
    return piece;
}

/* Gap, match, gap, match, ..., rest: each becomes a child. Without a match there are none. */
static qn_status match(comparer *c, slice left, slice right) {
    const prof_node *lefts = c->diff->left->nodes.at, *rights = c->diff->right->nodes.at;
    size_t left_done = 0, right_done = 0, matches = 0;
    for (size_t i = 0; i < left.n; i++) {
        if (!marks_structure(&lefts[left.ids[i]])) {
            continue;
        }
        size_t j = right_done;
        while (j < right.n && !same_mark(c, &lefts[left.ids[i]], &rights[right.ids[j]])) {
            j++;
        }
        if (j == right.n) {
            continue;
        }
        if ((i > left_done || j > right_done) && add_pair(c, part(left, left_done, i), part(right, right_done, j)) != QN_OK) {
            return QN_NO_MEMORY;
        }
        if (add_pair(c, part(left, i, i + 1), part(right, j, j + 1)) != QN_OK) {
            return QN_NO_MEMORY;
        }
        left_done = i + 1;
        right_done = j + 1;
        matches++;
    }
    if (matches && (left_done < left.n || right_done < right.n)) {
        return add_pair(c, part(left, left_done, left.n), part(right, right_done, right.n));
    }
    return QN_OK;
}

static qn_status compare(comparer *c, uint32_t index) {
    pair both = c->pairs.at[index];
    prof_diff_node node;
    memset(&node, 0, sizeof node);
    qn_status status = fill_side(c, c->diff->left, both.left, &node.left);
    status = status == QN_OK ? fill_side(c, c->diff->right, both.right, &node.right) : status;
    if (status != QN_OK) {
        return status;
    }
    node.kid_begin = (uint32_t)c->diff->kids.n;
    if (both.left.n == 1 && both.right.n == 1) {
        status = match(c, kids_of(c->diff->left, both.left.ids[0]), kids_of(c->diff->right, both.right.ids[0]));
    } else if (both.left.n > 1 && both.right.n > 1) {
        status = match(c, both.left, both.right);
    }
    node.kid_count = (uint32_t)c->diff->kids.n - node.kid_begin;
    c->diff->nodes.at[index] = node;
    return status;
}

/* The children of all steps of the first thread, or of its root when there is no step. */
static qn_status start_list(qn_arena *arena, const prof_trace *trace, slice *list) {
    slice top = {NULL, 0};
    prof_ids all = {NULL, 0, 0};
    if (trace->trees.n) {
        top = kids_of(trace, trace->trees.at[0].root);
    }
    int steps = 0;
    for (size_t i = 0; i < top.n; i++) {
        const prof_node *node = &trace->nodes.at[top.ids[i]];
        if (node->class_ != PROF_CLASS_STEP) {
            continue;
        }
        steps = 1;
        if (!QN_VEC_ROOM(arena, &all, (size_t)node->kid_count)) {
            return QN_NO_MEMORY;
        }
        if (node->kid_count) {
            memcpy(all.at + all.n, trace->kids.at + node->kid_begin, node->kid_count * sizeof *all.at);
        }
        all.n += node->kid_count;
    }
    slice gathered = {all.at, all.n};
    *list = steps ? gathered : top;
    return QN_OK;
}

qn_status qn_prof_diff_build(qn_arena *arena, const prof_trace *left, const prof_trace *right, prof_diff *diff) {
    comparer c;
    pair start;
    memset(diff, 0, sizeof *diff);
    memset(&c, 0, sizeof c);
    diff->left = left;
    diff->right = right;
    c.arena = arena;
    c.diff = diff;
    qn_status status = start_list(arena, left, &start.left);
    status = status == QN_OK ? start_list(arena, right, &start.right) : status;
    status = status == QN_OK ? add_pair(&c, start.left, start.right) : status;
    for (uint32_t i = 0; status == QN_OK && i < diff->nodes.n; i++) {
        status = compare(&c, i);
    }
    return status;
}
