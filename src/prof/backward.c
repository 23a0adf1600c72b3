/* Section 7: backward work is taken out of the autograd thread, gathered under one node per forward module, and put into the
 * main thread's tree at its time. Lists of children only change at the end of each step, so that everything stays an index. */
#include <string.h>

#include "prof/prof_passes.h"
#include "prof/prof_sort.h"
#include "prof/prof_text.h"

typedef struct group {     /* one backward root and the gradient accumulations after it */
    uint32_t begin, count; /* into state.group_nodes */
    int taken;
} group;

typedef struct item { /* a child of a backward node under construction */
    uint32_t node, next;
} item;

typedef struct made {     /* a backward node; made[i] belongs to node first_made + i */
    uint32_t first, last; /* items */
    int worked;           /* has children, and with them times of its own */
} made;

typedef struct frame {
    uint32_t node, next, current; /* current: the backward node that collects, PROF_NIL above all modules */
} frame;

typedef struct pending { /* a node to be inserted before child `index` of parent */
    uint32_t parent, index, node;
} pending;

typedef struct state {
    prof_build *build;
    prof_trace *trace;
    prof_ids modules, roots, parents; /* parents[i] is the parent of roots[i] */
    prof_map parent_of;               /* start to node, step 3 */
    uint32_t *root_of;                /* per node: the backward root found above it; see find_root */
    prof_map group_of;                /* first node (as integer) to group */
    prof_map work_of;                 /* forward start to group, step 5 */
    QN_VEC(group) groups;
    prof_ids group_nodes;
    QN_VEC(frame) stack;
    QN_VEC(item) items;
    QN_VEC(made) made;
    uint32_t first_made;
    prof_ids tops;
    QN_VEC(pending) pendings;
} state;

static int push(state *s, prof_ids *list, uint32_t id) {
    if (!QN_VEC_ROOM(&s->trace->arena, list, 1)) {
        return 0;
    }
    list->at[list->n++] = id;
    return 1;
}

static int push_frame(state *s, uint32_t node, uint32_t current) {
    frame f = {node, 0, current};
    if (!QN_VEC_ROOM(&s->trace->arena, &s->stack, 1)) {
        return 0;
    }
    s->stack.at[s->stack.n++] = f;
    return 1;
}

/* The next child of the topmost frame, or PROF_NIL when it has no more. */
static uint32_t next_kid(state *s) {
    frame *top = &s->stack.at[s->stack.n - 1];
    const prof_node *node = &s->trace->nodes.at[top->node];
    return top->next < node->kid_count ? s->trace->kids.at[node->kid_begin + top->next++] : PROF_NIL;
}

/* ---- Steps 1 and 2 ------------------------------------------------------------------------------------------------ */

static uint32_t main_tree(const state *s) {
    const prof_trace *trace = s->trace;
    uint32_t backward = PROF_NIL, best = PROF_NIL;
    if (s->build->main_tree != PROF_NIL || trace->trees.n == 1) {
        return s->build->main_tree != PROF_NIL ? s->build->main_tree : 0;
    }
    for (size_t i = 0; i < trace->trees.n && backward == PROF_NIL; i++) {
        const prof_node *root = &trace->nodes.at[trace->trees.at[i].root];
        for (uint32_t kid = 0; kid < root->kid_count; kid++) {
            if (trace->nodes.at[trace->kids.at[root->kid_begin + kid]].name_flags & PROF_NAME_BACKWARD) {
                backward = (uint32_t)i;
            }
        }
    }
    prof_num longest = prof_absent();
    for (uint32_t i = 0; i < trace->trees.n; i++) {
        const prof_node *root = &trace->nodes.at[trace->trees.at[i].root];
        prof_num length = prof_sub(root->end, root->start);
        if (i != backward && (best == PROF_NIL || prof_gt(length, longest))) {
            best = i;
            longest = length;
        }
    }
    return best;
}

static qn_status collect(state *s) {
    const prof_trace *trace = s->trace;
    for (size_t i = 0; i < trace->trees.n; i++) {
        if (!push_frame(s, trace->trees.at[i].root, PROF_NIL)) {
            return QN_NO_MEMORY;
        }
        while (s->stack.n) {
            uint32_t parent = s->stack.at[s->stack.n - 1].node, kid = next_kid(s);
            if (kid == PROF_NIL) {
                s->stack.n--;
                continue;
            }
            const prof_node *node = &trace->nodes.at[kid];
            int ok = 1;
            if (node->class_ == PROF_CLASS_MODULE) {
                ok = push(s, &s->modules, kid);
            } else if (node->class_ == PROF_CLASS_STEP) {
                ok = push_frame(s, kid, PROF_NIL);
            } else if (node->name_flags & PROF_NAME_BACKWARD) {
                ok = push(s, &s->roots, kid) && push(s, &s->parents, parent);
            }
            if (!ok) {
                return QN_NO_MEMORY;
            }
        }
    }
    return QN_OK;
}

typedef struct rooted { /* a backward root with the place of its parent in first-seen order */
    uint32_t order, node;
} rooted;

static int root_before(const void *a, const void *b, const void *unused) {
    (void)unused;
    return ((const rooted *)a)->order < ((const rooted *)b)->order;
}

/* Groups the backward roots by parent in first-seen order and takes them out of their parents. */
static qn_status detach(state *s) {
    prof_trace *trace = s->trace;
    prof_map order;
    qn_prof_map_init(&order, &trace->arena);
    rooted *list = qn_arena_resize(&trace->arena, NULL, s->roots.n, sizeof *list);
    if (!list) {
        return QN_NO_MEMORY;
    }
    for (size_t i = 0; i < s->roots.n; i++) {
        uint32_t *place = qn_prof_map_put(&order, prof_int(s->parents.at[i]), (uint32_t)order.entries.n);
        if (!place) {
            return QN_NO_MEMORY;
        }
        list[i].order = *place;
        list[i].node = s->roots.at[i];
    }
    if (qn_prof_sort(&trace->arena, list, s->roots.n, sizeof *list, root_before, NULL) != QN_OK) {
        return QN_NO_MEMORY;
    }
    for (size_t i = 0; i < s->roots.n; i++) {
        s->roots.at[i] = list[i].node;
    }
    for (size_t i = 0; i < order.entries.n; i++) {
        prof_node *parent = &trace->nodes.at[order.entries.at[i].key.i];
        uint32_t kept = 0, *kids = trace->kids.at + parent->kid_begin;
        for (uint32_t kid = 0; kid < parent->kid_count; kid++) {
            const prof_node *node = &trace->nodes.at[kids[kid]];
            int taken = node->class_ != PROF_CLASS_MODULE && node->class_ != PROF_CLASS_STEP &&
                        (node->name_flags & PROF_NAME_BACKWARD);
            if (!taken) {
                kids[kept++] = kids[kid];
            }
        }
        parent->kid_count = kept;
    }
    qn_prof_map_free(&order);
    qn_arena_release(&trace->arena, list);
    return QN_OK;
}

/* ---- Steps 3 to 5 ------------------------------------------------------------------------------------------------- */

static qn_status map_parents(state *s) {
    prof_trace *trace = s->trace;
    for (size_t i = 0; i < s->roots.n; i++) {
        if (!push_frame(s, s->roots.at[i], PROF_NIL)) {
            return QN_NO_MEMORY;
        }
        while (s->stack.n) {
            uint32_t node = s->stack.at[s->stack.n - 1].node, kid = next_kid(s);
            if (kid == PROF_NIL) {
                s->stack.n--;
            } else if (!qn_prof_map_put(&s->parent_of, trace->nodes.at[kid].start, node) || !push_frame(s, kid, PROF_NIL)) {
                return QN_NO_MEMORY;
            }
        }
    }
    return QN_OK;
}

static qn_status make_groups(state *s) {
    for (size_t i = 0; i < s->roots.n; i++) {
        int accumulate = (s->trace->nodes.at[s->roots.at[i]].name_flags & PROF_NAME_ACCUMULATE) != 0;
        if (accumulate && s->groups.n == 0 && s->build->strict && s->trace->dialect == QN_PROFILE_UPSTREAM) {
            return qn_error_set(s->build->error, QN_FORMAT, "backward work begins with a gradient accumulation");
        }
        if (!accumulate || s->groups.n == 0) {
            group fresh = {(uint32_t)s->group_nodes.n, 0, 0};
            if (!QN_VEC_ROOM(&s->trace->arena, &s->groups, 1) ||
                !qn_prof_map_put(&s->group_of, prof_int(s->roots.at[i]), (uint32_t)s->groups.n)) {
                return QN_NO_MEMORY;
            }
            s->groups.at[s->groups.n++] = fresh;
        }
        if (!push(s, &s->group_nodes, s->roots.at[i])) {
            return QN_NO_MEMORY;
        }
        s->groups.at[s->groups.n - 1].count++;
    }
    return QN_OK;
}

#define UNKNOWN (PROF_NIL - 1) /* not walked yet */

static uint32_t around(const state *s, prof_num start) {
    const uint32_t *found = qn_prof_map_find(&s->parent_of, start);
    return found ? *found : PROF_NIL;
}

/* The backward root above the operator that starts at b, or PROF_NIL. What is passed on the way is remembered, so that many links
 * into deep work are one walk; and a way that came back to itself, as times that are no numbers could make it, would end. */
static uint32_t find_root(state *s, prof_num b) {
    const prof_node *nodes = s->trace->nodes.at;
    uint32_t from = around(s, b), at = from, root = PROF_NIL;
    while (at != PROF_NIL && s->root_of[at] == UNKNOWN && !(nodes[at].name_flags & PROF_NAME_BACKWARD)) {
        s->root_of[at] = PROF_NIL;
        at = around(s, nodes[at].start);
    }
    if (at != PROF_NIL) {
        root = nodes[at].name_flags & PROF_NAME_BACKWARD ? at : s->root_of[at];
    }
    for (; from != at; from = around(s, nodes[from].start)) {
        s->root_of[from] = root;
    }
    return root;
}

static qn_status assign_work(state *s) {
    prof_trace *trace = s->trace;
    prof_map links; /* forward start to flow: the last one wins, the first keeps the place */
    qn_prof_map_init(&links, &trace->arena);
    s->root_of = qn_arena_resize(&trace->arena, NULL, trace->nodes.n, sizeof *s->root_of);
    if (!s->root_of) {
        return QN_NO_MEMORY;
    }
    for (size_t i = 0; i < trace->nodes.n; i++) {
        s->root_of[i] = UNKNOWN;
    }
    for (size_t i = 0; i < trace->flows.n; i++) {
        uint32_t *last = qn_prof_map_put(&links, trace->flows.at[i].from, 0);
        if (!last) {
            return QN_NO_MEMORY;
        }
        *last = (uint32_t)i;
    }
    for (size_t i = 0; i < links.entries.n; i++) {
        const prof_flow *flow = &trace->flows.at[links.entries.at[i].value];
        uint32_t root = find_root(s, flow->to);
        const uint32_t *index = root == PROF_NIL ? NULL : qn_prof_map_find(&s->group_of, prof_int(root));
        if (!index || s->groups.at[*index].taken) {
            if (root != PROF_NIL && s->build->strict) {
                return qn_error_set(s->build->error, QN_FORMAT, "two forward operators claim the same backward work");
            }
            continue;
        }
        s->groups.at[*index].taken = 1;
        if (!qn_prof_map_put(&s->work_of, links.entries.at[i].key, *index)) {
            return QN_NO_MEMORY;
        }
    }
    qn_prof_map_free(&links);
    return QN_OK;
}

/* ---- Step 6 ------------------------------------------------------------------------------------------------------- */

static qn_status add_item(state *s, uint32_t backward, uint32_t node) {
    made *m = &s->made.at[backward - s->first_made];
    if (!QN_VEC_ROOM(&s->trace->arena, &s->items, 1)) {
        return QN_NO_MEMORY;
    }
    item fresh = {node, PROF_NIL};
    if (m->first == PROF_NIL) {
        m->first = (uint32_t)s->items.n;
    } else {
        s->items.at[m->last].next = (uint32_t)s->items.n;
    }
    m->last = (uint32_t)s->items.n;
    s->items.at[s->items.n++] = fresh;
    return QN_OK;
}

static uint32_t backward_name(prof_trace *trace, uint32_t name) {
    const prof_str *text = prof_string(trace, name);
    size_t length = text->length;
    char *joined = qn_arena_resize(&trace->arena, NULL, length + 9, 1);
    if (!joined) {
        return PROF_NIL;
    }
    memcpy(joined, text->at, length);
    memcpy(joined + length, ".backward", 9);
    uint32_t id = qn_prof_intern(&trace->text, joined, length + 9);
    qn_arena_release(&trace->arena, joined);
    return id;
}

static qn_status open_module(state *s, uint32_t module, uint32_t enclosing) {
    prof_trace *trace = s->trace;
    uint32_t name = backward_name(trace, trace->nodes.at[module].name), id = (uint32_t)trace->nodes.n;
    made fresh = {PROF_NIL, PROF_NIL, 0};
    if (name == PROF_NIL || !QN_VEC_ROOM(&trace->arena, &trace->nodes, 1) || !QN_VEC_ROOM(&trace->arena, &s->made, 1) ||
        !push_frame(s, module, id)) {
        return QN_NO_MEMORY;
    }
    prof_node node;
    memset(&node, 0, sizeof node);
    node.start = trace->nodes.at[module].start; /* kept when no backward work is found for it */
    node.end = trace->nodes.at[module].end;
    node.host_self = node.device_total = node.device_self = node.tc_self = node.tc_total = prof_int(0);
    node.event = node.parent = PROF_NIL;
    node.name = name;
    node.tid = trace->nodes.at[module].tid;
    node.kind = PROF_KIND_BACKWARD;
    node.class_ = PROF_CLASS_BACKWARD;
    trace->nodes.at[trace->nodes.n++] = node;
    s->made.at[s->made.n++] = fresh;
    if (enclosing == PROF_NIL) {
        return push(s, &s->tops, id) ? QN_OK : QN_NO_MEMORY;
    }
    return add_item(s, enclosing, id);
}

static int is_idle(const state *s, uint32_t node) { /* a backward node that found no work */
    return node >= s->first_made && !s->made.at[node - s->first_made].worked;
}

/* mlu_b drops idle backward nodes while it walks the list, and so passes over the one behind each. */
static size_t drop_idle(const state *s, uint32_t *ids, size_t n) {
    size_t kept = 0;
    for (size_t i = 0; i < n; i++) {
        i += (size_t)is_idle(s, ids[i]);
        if (i < n) {
            ids[kept++] = ids[i];
        }
    }
    return kept;
}

static qn_status reject_idle(const state *s, const uint32_t *ids, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (is_idle(s, ids[i]) && s->build->strict && s->trace->dialect != QN_PROFILE_UPSTREAM) {
            return qn_error_set(s->build->error, QN_FORMAT, "a module has no backward work, which this dialect cannot take");
        }
    }
    return QN_OK;
}

static void sum_children(prof_trace *trace, prof_node *node) {
    const uint32_t *kids = trace->kids.at + node->kid_begin;
    node->start = trace->nodes.at[kids[0]].start;
    node->end = trace->nodes.at[kids[node->kid_count - 1]].end;
    node->tid = trace->nodes.at[kids[0]].tid;
    node->host_self = prof_sub(node->end, node->start);
    for (uint32_t i = 0; i < node->kid_count; i++) {
        const prof_node *kid = &trace->nodes.at[kids[i]];
        node->host_self = prof_sub(node->host_self, prof_sub(kid->end, kid->start));
        node->device_total = prof_add(node->device_total, kid->device_total);
        node->tc_total = prof_add(node->tc_total, kid->tc_total);
    }
}

static qn_status close_module(state *s, uint32_t backward) {
    prof_trace *trace = s->trace;
    made *m = &s->made.at[backward - s->first_made];
    prof_node *node = &trace->nodes.at[backward];
    node->kid_begin = (uint32_t)trace->kids.n;
    for (uint32_t at = m->first; at != PROF_NIL; at = s->items.at[at].next) {
        if (!QN_VEC_ROOM(&trace->arena, &trace->kids, 1)) {
            return QN_NO_MEMORY;
        }
        trace->kids.at[trace->kids.n++] = s->items.at[at].node;
    }
    uint32_t *kids = trace->kids.at + node->kid_begin;
    size_t n = trace->kids.n - node->kid_begin;
    if (trace->dialect == QN_PROFILE_MLU_B) {
        n = drop_idle(s, kids, n);
        trace->kids.n = node->kid_begin + n;
    }
    qn_status status = reject_idle(s, kids, n);
    if (status != QN_OK || n == 0) {
        return status;
    }
    if (qn_prof_sort_nodes(trace, kids, n) != QN_OK) {
        return QN_NO_MEMORY;
    }
    node->kid_count = (uint32_t)n;
    m->worked = 1;
    sum_children(trace, node);
    return QN_OK;
}

static qn_status take_work(state *s, uint32_t forward, uint32_t backward) {
    const prof_node *node = &s->trace->nodes.at[forward];
    const uint32_t *index = node->proper ? qn_prof_map_find(&s->work_of, node->start) : NULL;
    if (!index) {
        return QN_OK;
    }
    for (uint32_t i = 0; i < s->groups.at[*index].count; i++) {
        if (add_item(s, backward, s->group_nodes.at[s->groups.at[*index].begin + i]) != QN_OK) {
            return QN_NO_MEMORY;
        }
    }
    return QN_OK;
}

static qn_status build_module(state *s, uint32_t module) {
    qn_status status = open_module(s, module, PROF_NIL);
    while (status == QN_OK && s->stack.n) {
        frame top = s->stack.at[s->stack.n - 1];
        uint32_t kid = next_kid(s);
        if (kid == PROF_NIL) {
            s->stack.n--;
            if (s->trace->nodes.at[top.node].class_ == PROF_CLASS_MODULE) {
                status = close_module(s, top.current);
            }
            continue;
        }
        status = take_work(s, kid, top.current);
        if (status == QN_OK && s->trace->nodes.at[kid].class_ == PROF_CLASS_MODULE) {
            status = open_module(s, kid, top.current);
        } else if (status == QN_OK) {
            status = push_frame(s, kid, top.current) ? QN_OK : QN_NO_MEMORY;
        }
    }
    return status;
}

/* ---- Steps 7 and 8 ------------------------------------------------------------------------------------------------ */

/* Deeper while the child at the cursor overlaps m; afterwards the cursor stands where m belongs. */
static int descend(state *s, frame *cursor, const prof_node *m) {
    for (;;) {
        const prof_node *node = &s->trace->nodes.at[cursor->node];
        if (cursor->next >= node->kid_count) {
            return 1;
        }
        uint32_t kid = s->trace->kids.at[node->kid_begin + cursor->next];
        if (prof_lt(m->end, s->trace->nodes.at[kid].start)) {
            return 1;
        }
        if (prof_ge(m->start, s->trace->nodes.at[kid].end)) {
            cursor->next++;
            continue;
        }
        if (!QN_VEC_ROOM(&s->trace->arena, &s->stack, 1)) {
            return 0;
        }
        s->stack.at[s->stack.n++] = *cursor;
        cursor->node = kid;
        cursor->next = 0;
    }
}

static qn_status place_tops(state *s, uint32_t root) {
    frame cursor = {root, 0, PROF_NIL};
    s->stack.n = 0;
    for (size_t i = 0; i < s->tops.n;) {
        const prof_node *m = &s->trace->nodes.at[s->tops.at[i]], *current = &s->trace->nodes.at[cursor.node];
        if (prof_lt(m->end, current->start)) {
            i++;
            continue;
        }
        if (prof_gt(m->start, current->end)) {
            if (s->stack.n == 0) {
                break;
            }
            cursor = s->stack.at[--s->stack.n];
            cursor.next++;
            continue;
        }
        if (!descend(s, &cursor, m) || !QN_VEC_ROOM(&s->trace->arena, &s->pendings, 1)) {
            return QN_NO_MEMORY;
        }
        pending p = {cursor.node, cursor.next, s->tops.at[i++]};
        s->pendings.at[s->pendings.n++] = p;
    }
    return QN_OK;
}

static int pending_before(const void *a, const void *b, const void *unused) {
    (void)unused;
    return ((const pending *)a)->parent < ((const pending *)b)->parent;
}

/* New lists of children for the parents that got some; their indices ascend, because the cursor only moves forward. */
static qn_status insert_tops(state *s) {
    prof_trace *trace = s->trace;
    if (qn_prof_sort(&trace->arena, s->pendings.at, s->pendings.n, sizeof *s->pendings.at, pending_before, NULL) != QN_OK) {
        return QN_NO_MEMORY;
    }
    for (size_t i = 0; i < s->pendings.n;) {
        size_t end = i;
        while (end < s->pendings.n && s->pendings.at[end].parent == s->pendings.at[i].parent) {
            end++;
        }
        prof_node *parent = &trace->nodes.at[s->pendings.at[i].parent];
        uint32_t old = parent->kid_begin, begin = (uint32_t)trace->kids.n;
        if (!QN_VEC_ROOM(&trace->arena, &trace->kids, parent->kid_count + (end - i))) {
            return QN_NO_MEMORY;
        }
        for (uint32_t kid = 0; kid <= parent->kid_count; kid++) {
            for (; i < end && s->pendings.at[i].index == kid; i++) {
                trace->kids.at[trace->kids.n++] = s->pendings.at[i].node;
            }
            if (kid < parent->kid_count) {
                trace->kids.at[trace->kids.n++] = trace->kids.at[old + kid];
            }
        }
        parent->kid_begin = begin;
        parent->kid_count = (uint32_t)trace->kids.n - begin;
        i = end;
    }
    return QN_OK;
}

static void drop_empty_trees(prof_trace *trace) {
    size_t kept = 0;
    for (size_t i = 0; i < trace->trees.n; i++) {
        if (trace->nodes.at[trace->trees.at[i].root].kid_count) {
            trace->trees.at[kept++] = trace->trees.at[i];
        }
    }
    trace->trees.n = kept;
}

static qn_status rebuild(state *s) {
    uint32_t tree = main_tree(s);
    qn_status status = detach(s);
    status = status == QN_OK ? map_parents(s) : status;
    status = status == QN_OK ? make_groups(s) : status;
    status = status == QN_OK ? assign_work(s) : status;
    s->first_made = (uint32_t)s->trace->nodes.n;
    for (size_t i = 0; i < s->modules.n && status == QN_OK; i++) {
        status = build_module(s, s->modules.at[i]);
    }
    if (status == QN_OK) {
        status = reject_idle(s, s->tops.at, s->tops.n);
    }
    status = status == QN_OK ? qn_prof_sort_nodes(s->trace, s->tops.at, s->tops.n) : status;
    if (status == QN_OK && tree != PROF_NIL) {
        status = place_tops(s, s->trace->trees.at[tree].root);
    }
    status = status == QN_OK ? insert_tops(s) : status;
    drop_empty_trees(s->trace);
    return status;
}

qn_status qn_prof_backward(prof_build *build) {
    prof_trace *trace = build->trace;
    qn_arena *arena = &trace->arena;
    state s;
    memset(&s, 0, sizeof s);
    s.build = build;
    s.trace = trace;
    qn_prof_map_init(&s.parent_of, arena);
    qn_prof_map_init(&s.group_of, arena);
    qn_prof_map_init(&s.work_of, arena);
    if (trace->flows.n == 0) {
        return QN_OK;
    }
    qn_status status = collect(&s);
    if (status == QN_OK && s.modules.n && s.roots.n) {
        status = rebuild(&s);
    }
    qn_prof_map_free(&s.parent_of);
    qn_prof_map_free(&s.group_of);
    qn_prof_map_free(&s.work_of);
    qn_arena_release(arena, s.root_of);
    QN_VEC_FREE(arena, &s.modules);
    QN_VEC_FREE(arena, &s.roots);
    QN_VEC_FREE(arena, &s.parents);
    QN_VEC_FREE(arena, &s.groups);
    QN_VEC_FREE(arena, &s.group_nodes);
    QN_VEC_FREE(arena, &s.stack);
    QN_VEC_FREE(arena, &s.items);
    QN_VEC_FREE(arena, &s.made);
    QN_VEC_FREE(arena, &s.tops);
    QN_VEC_FREE(arena, &s.pendings);
    return status;
}
