/* Section 20: two traces laid side by side. Nodes that mark structure (steps, modules, loaders, optimizers, backward work) are
 * matched in order; what lies between two matches is compared as a whole. All lists are slices of the traces' own arrays. */
#include <string.h>

#include "prof/prof_joint.h"
#include "prof/prof_map.h"
#include "prof/prof_passes.h"
#include "prof/prof_sort.h"
#include "prof/prof_text.h"

/* Each pair is added up anew, in the order that decides the last digit, so modules in modules are walked once per level. That many
 * steps take some seconds; beyond them the trace is hostile. */
static const uint64_t MOST_STEPS = 500000000;

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
    QN_VEC(pair) pairs;                       /* of diff->nodes, same index */
    prof_text words;                          /* names of nodes that mark structure, of both sides */
    const uint32_t *left_sizes, *right_sizes; /* per node: how many lie under it, itself counted */
    uint64_t steps;                           /* that adding up the pairs will take */
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

static int agg_before(const void *a, const void *b, const void *unused) {
    (void)unused;
    return ((const kernel_count *)a)->agg < ((const kernel_count *)b)->agg;
}

/* "a;b;c" and "2;1;4" for each aggregate. */
static qn_status join_kernels(comparer *c, const prof_trace *trace, tally *t, prof_diff_side *side) {
    size_t i = 0;
    if (qn_prof_sort(c->arena, t->counts.at, t->counts.n, sizeof *t->counts.at, agg_before, NULL) != QN_OK) {
        return QN_NO_MEMORY;
    }
    for (uint32_t agg = 0; agg < side->aggs.n; agg++) {
        QN_VEC(char) names = {NULL, 0, 0}, counts = {NULL, 0, 0};
        for (; i < t->counts.n && t->counts.at[i].agg == agg; i++) {
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

typedef struct marks { /* the nodes of the right side that mark structure */
    prof_map first;    /* class and name to the first that has not been passed */
    uint32_t *next;    /* per node: the next of the same class and name, or PROF_NIL */
} marks;

/* Class and name as one key; absent when memory ends. */
static prof_val mark_key(comparer *c, const prof_trace *trace, const prof_node *node) {
    const prof_str *name = prof_string(trace, node->name);
    uint32_t word = qn_prof_intern(&c->words, name->at, name->length);
    return word == PROF_NIL ? prof_absent() : prof_int((int64_t)((uint64_t)word << 8 | node->class_));
}

static qn_status list_marks(comparer *c, slice right, marks *m) {
    const prof_node *nodes = c->diff->right->nodes.at;
    qn_prof_map_init(&m->first, c->arena);
    m->next = qn_arena_resize(c->arena, NULL, right.n, sizeof *m->next);
    if (!m->next) {
        return QN_NO_MEMORY;
    }
    for (size_t i = right.n; i-- > 0;) {
        if (!marks_structure(&nodes[right.ids[i]])) {
            continue;
        }
        prof_val key = mark_key(c, c->diff->right, &nodes[right.ids[i]]);
        uint32_t *first = key.tag == PROF_ABSENT ? NULL : qn_prof_map_put(&m->first, key, PROF_NIL);
        if (!first) {
            return QN_NO_MEMORY;
        }
        m->next[i] = *first;
        *first = (uint32_t)i;
    }
    return QN_OK;
}

/* The first on the right at or behind `from` with the class and name of that node; `none` when there is none. What was passed stays
 * so, because `from` never falls. */
static qn_status find_mark(comparer *c, marks *m, const prof_node *left, size_t from, size_t none, size_t *found) {
    prof_val key = mark_key(c, c->diff->left, left);
    if (key.tag == PROF_ABSENT) {
        return QN_NO_MEMORY;
    }
    uint32_t *first = qn_prof_map_find(&m->first, key);
    while (first && *first != PROF_NIL && *first < from) {
        *first = m->next[*first];
    }
    *found = first && *first != PROF_NIL ? *first : none;
    return QN_OK;
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
static qn_status match_marks(comparer *c, slice left, slice right, marks *m) {
    const prof_node *lefts = c->diff->left->nodes.at;
    size_t left_done = 0, right_done = 0, matches = 0, j;
    for (size_t i = 0; i < left.n; i++) {
        if (!marks_structure(&lefts[left.ids[i]])) {
            continue;
        }
        if (find_mark(c, m, &lefts[left.ids[i]], right_done, right.n, &j) != QN_OK) {
            return QN_NO_MEMORY;
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

static qn_status match(comparer *c, slice left, slice right) {
    marks m;
    qn_status status = list_marks(c, right, &m);
    status = status == QN_OK ? match_marks(c, left, right, &m) : status;
    qn_arena_release(c->arena, m.next);
    qn_prof_map_free(&m.first);
    return status;
}

/* The nodes under each, counted from the leaves up; NULL when memory ends. */
static uint32_t *count_nodes(qn_arena *arena, const prof_trace *trace) {
    uint32_t *sizes = qn_arena_alloc(arena, trace->nodes.n, sizeof *sizes);
    for (size_t i = 0; sizes && i < trace->postorder.n; i++) {
        const prof_node *node = &trace->nodes.at[trace->postorder.at[i]];
        uint32_t size = 1;
        for (uint32_t kid = 0; kid < node->kid_count; kid++) {
            size += sizes[trace->kids.at[node->kid_begin + kid]];
        }
        sizes[trace->postorder.at[i]] = size;
    }
    return sizes;
}

static uint64_t steps_of(slice nodes, const uint32_t *sizes) {
    uint64_t sum = 0;
    for (size_t i = 0; i < nodes.n; i++) {
        sum += sizes[nodes.ids[i]];
    }
    return sum;
}

/* Makes the pairs under a pair. */
static qn_status divide(comparer *c, uint32_t index) {
    pair both = c->pairs.at[index];
    uint32_t begin = (uint32_t)c->diff->kids.n;
    qn_status status = QN_OK;
    c->steps += steps_of(both.left, c->left_sizes) + steps_of(both.right, c->right_sizes);
    if (both.left.n == 1 && both.right.n == 1) {
        status = match(c, kids_of(c->diff->left, both.left.ids[0]), kids_of(c->diff->right, both.right.ids[0]));
    } else if (both.left.n > 1 && both.right.n > 1) {
        status = match(c, both.left, both.right);
    }
    c->diff->nodes.at[index].kid_begin = begin;
    c->diff->nodes.at[index].kid_count = (uint32_t)c->diff->kids.n - begin;
    return status == QN_OK && c->steps > MOST_STEPS ? QN_UNSUPPORTED : status;
}

static qn_status compare(comparer *c, uint32_t index) {
    prof_diff_node *node = &c->diff->nodes.at[index];
    qn_status status = fill_side(c, c->diff->left, c->pairs.at[index].left, &node->left);
    return status == QN_OK ? fill_side(c, c->diff->right, c->pairs.at[index].right, &node->right) : status;
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
    status = status == QN_OK ? qn_prof_text_init(&c.words, arena) : status;
    status = status == QN_OK ? add_pair(&c, start.left, start.right) : status;
    c.left_sizes = count_nodes(arena, left);
    c.right_sizes = count_nodes(arena, right);
    status = status == QN_OK && !(c.left_sizes && c.right_sizes) ? QN_NO_MEMORY : status;
    for (uint32_t i = 0; status == QN_OK && i < diff->nodes.n; i++) {
        status = divide(&c, i);
    }
    for (uint32_t i = 0; status == QN_OK && i < diff->nodes.n; i++) {
        status = compare(&c, i);
    }
    return status;
}
