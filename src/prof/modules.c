/* Section 19: the hierarchy of modules and their statistics. Every call of a module is an event; calls whose whole subtree is
 * equal (name, module id, children) are shown once, so trees are made canonical from the leaves up by interning their shape. */
#include <string.h>

#include "prof/prof_passes.h"
#include "prof/prof_sort.h"
#include "prof/prof_text.h"

typedef struct call { /* one module event, or one dotted name of Lightning */
    uint32_t name;
    prof_val id;
    uint32_t parent;               /* call, or PROF_NIL */
    uint32_t kid_begin, kid_count; /* into hierarchy.kids, in order of first linking */
    uint32_t shown;                /* module it became, or PROF_NIL */
    uint8_t linked;
} call;

typedef struct function {   /* a PyFunction or Module event */
    uint32_t event, parent; /* parent: function, or PROF_NIL */
    uint32_t call;          /* its own call, PROF_NIL for plain functions */
    uint32_t nearest;       /* nearest call at or above it; see UNKNOWN and OPEN */
} function;

#define UNKNOWN (PROF_NIL - 1) /* not walked yet */
#define OPEN (PROF_NIL - 2)    /* on the path being walked */

typedef struct link {
    uint32_t parent, kid;
} link;

typedef struct hierarchy {
    prof_trace *trace;
    prof_text keys;  /* interned shapes: what is equal gets equal ids */
    prof_map stats;  /* key of (name, id) to index into measured */
    prof_map shapes; /* key of a whole tree to module */
    QN_VEC(prof_module) measured;
    QN_VEC(function) functions;
    QN_VEC(call) calls;
    QN_VEC(link) links;
    prof_ids kids, roots;
} hierarchy;

static uint32_t key_of(hierarchy *h, uint32_t name, prof_val id) {
    uint64_t parts[3] = {name, id.tag, (uint64_t)id.i};
    return qn_prof_intern(&h->keys, (const char *)parts, sizeof parts);
}

/* ---- Statistics --------------------------------------------------------------------------------------------------- */

static qn_status measure_node(hierarchy *h, const prof_node *node) {
    prof_val id = prof_node_module_id(h->trace, node);
    uint32_t key = key_of(h, node->name, id);
    uint32_t *index = key == PROF_NIL ? NULL : qn_prof_map_put(&h->stats, prof_int(key), (uint32_t)h->measured.n);
    if (!index || !QN_VEC_ROOM(&h->trace->arena, &h->measured, 1)) {
        return QN_NO_MEMORY;
    }
    if (*index == h->measured.n) {
        prof_module *fresh = &h->measured.at[h->measured.n++];
        memset(fresh, 0, sizeof *fresh);
        fresh->name = node->name;
        fresh->id = id;
        fresh->host_total = fresh->host_self = fresh->device_total = fresh->device_self = prof_int(0);
    }
    prof_module *module = &h->measured.at[*index];
    module->occurrences++;
    for (uint32_t i = 0; i < node->kid_count; i++) {
        module->operators += h->trace->nodes.at[h->trace->kids.at[node->kid_begin + i]].proper;
    }
    module->host_total = prof_add(module->host_total, prof_sub(node->end, node->start));
    module->host_self = prof_add(module->host_self, node->host_self);
    module->device_total = prof_add(module->device_total, node->device_total);
    module->device_self = prof_add(module->device_self, node->device_self);
    return QN_OK;
}

/* All module nodes of the trees, parents first; backward nodes hide what is below them. */
static qn_status measure_all(hierarchy *h) {
    prof_trace *trace = h->trace;
    int wanted = trace->lightning ? PROF_CLASS_PLMODULE : PROF_CLASS_MODULE;
    prof_ids stack = {NULL, 0, 0};
    for (size_t i = 0; i < trace->trees.n; i++) {
        if (!QN_VEC_ROOM(&trace->arena, &stack, 1)) {
            return QN_NO_MEMORY;
        }
        stack.at[stack.n++] = trace->trees.at[i].root;
        while (stack.n) {
            const prof_node *node = &trace->nodes.at[stack.at[--stack.n]];
            if (node->class_ == PROF_CLASS_BACKWARD) {
                continue;
            }
            if (node->class_ == wanted && measure_node(h, node) != QN_OK) {
                return QN_NO_MEMORY;
            }
            if (!QN_VEC_ROOM(&trace->arena, &stack, (size_t)node->kid_count)) {
                return QN_NO_MEMORY;
            }
            for (uint32_t kid = node->kid_count; kid-- > 0;) {
                stack.at[stack.n++] = trace->kids.at[node->kid_begin + kid];
            }
        }
    }
    QN_VEC_FREE(&trace->arena, &stack);
    return QN_OK;
}

/* ---- Calls from Python functions ---------------------------------------------------------------------------------- */

static qn_status add_call(hierarchy *h, uint32_t name, prof_val id, uint32_t *index) {
    if (!QN_VEC_ROOM(&h->trace->arena, &h->calls, 1)) {
        return QN_NO_MEMORY;
    }
    call fresh = {name, id, PROF_NIL, 0, 0, PROF_NIL, 0};
    *index = (uint32_t)h->calls.n;
    h->calls.at[h->calls.n++] = fresh;
    return QN_OK;
}

/* Functions in event order; `last` finds the last event of an id, `count` how many children each id has. */
static qn_status list_functions(hierarchy *h, prof_map *last, prof_map *count) {
    prof_trace *trace = h->trace;
    for (size_t i = 0; i < trace->events.n; i++) {
        const prof_event *event = &trace->events.at[i];
        if (event->kind != PROF_KIND_PYFUNCTION && event->kind != PROF_KIND_MODULE) {
            continue;
        }
        const prof_py_args *args = &trace->pys.at[event->args];
        function f = {(uint32_t)i, PROF_NIL, PROF_NIL, UNKNOWN};
        if (event->kind == PROF_KIND_MODULE && add_call(h, event->name, args->module, &f.call) != QN_OK) {
            return QN_NO_MEMORY;
        }
        uint32_t *own = qn_prof_map_put(last, args->id, 0);
        if (!own || !qn_prof_map_put(count, args->id, 0) || !QN_VEC_ROOM(&trace->arena, &h->functions, 1)) {
            return QN_NO_MEMORY;
        }
        *own = (uint32_t)h->functions.n;
        h->functions.at[h->functions.n++] = f;
        uint32_t *kids = qn_prof_map_put(count, args->parent, 0);
        if (!kids) {
            return QN_NO_MEMORY;
        }
        ++*kids;
    }
    for (size_t i = 0; i < h->functions.n; i++) {
        const uint32_t *parent = qn_prof_map_find(last, trace->pys.at[trace->events.at[h->functions.at[i].event].args].parent);
        h->functions.at[i].parent = parent ? *parent : PROF_NIL;
    }
    return QN_OK;
}

/* The nearest call at or above a function. The path is walked once and remembered; a circle of parents has none. */
static uint32_t nearest_call(hierarchy *h, uint32_t from) {
    uint32_t at = from, found = PROF_NIL;
    while (at != PROF_NIL) {
        function *f = &h->functions.at[at];
        if (f->call != PROF_NIL || f->nearest == OPEN || f->nearest != UNKNOWN) {
            found = f->call != PROF_NIL ? f->call : f->nearest == OPEN ? PROF_NIL : f->nearest;
            break;
        }
        f->nearest = OPEN;
        at = f->parent;
    }
    for (at = from; at != PROF_NIL && h->functions.at[at].nearest == OPEN; at = h->functions.at[at].parent) {
        h->functions.at[at].nearest = found;
    }
    return found;
}

static qn_status link_up(hierarchy *h, uint32_t at) {
    while (at != PROF_NIL && !h->calls.at[at].linked) {
        call *c = &h->calls.at[at];
        c->linked = 1;
        if (c->parent == PROF_NIL) {
            return QN_OK;
        }
        if (!QN_VEC_ROOM(&h->trace->arena, &h->links, 1)) {
            return QN_NO_MEMORY;
        }
        link made = {c->parent, at};
        h->links.at[h->links.n++] = made;
        at = c->parent;
    }
    return QN_OK;
}

static qn_status calls_from_functions(hierarchy *h) {
    prof_map last, count;
    qn_prof_map_init(&last, &h->trace->arena);
    qn_prof_map_init(&count, &h->trace->arena);
    qn_status status = list_functions(h, &last, &count);
    for (size_t i = 0; i < h->functions.n && status == QN_OK; i++) {
        const function *f = &h->functions.at[i];
        if (f->call != PROF_NIL && f->parent != PROF_NIL) {
            h->calls.at[f->call].parent = nearest_call(h, f->parent);
        }
    }
    for (size_t i = 0; i < count.entries.n && status == QN_OK; i++) { /* leaves, in order of appearance of their ids */
        const uint32_t *leaf = count.entries.at[i].value ? NULL : qn_prof_map_find(&last, count.entries.at[i].key);
        if (leaf) {
            status = link_up(h, nearest_call(h, *leaf));
        }
    }
    qn_prof_map_free(&last);
    qn_prof_map_free(&count);
    return status;
}

/* ---- Calls from Lightning's dotted names -------------------------------------------------------------------------- */

static qn_status calls_from_names(hierarchy *h) {
    prof_trace *trace = h->trace;
    prof_map known;
    qn_prof_map_init(&known, &trace->arena);
    for (size_t i = 0; i < trace->events.n; i++) {
        const prof_event *event = &trace->events.at[i];
        if (event->kind != PROF_KIND_PLMODULE) {
            continue;
        }
        uint32_t *index = qn_prof_map_put(&known, prof_int(event->name), PROF_NIL);
        if (!index || (*index == PROF_NIL && add_call(h, event->name, prof_int(0), index) != QN_OK)) {
            return QN_NO_MEMORY;
        }
    }
    for (uint32_t i = 0; i < h->calls.n; i++) {
        const prof_str *name = prof_string(trace, h->calls.at[i].name);
        uint32_t dot = name->length;
        while (dot > 0 && name->at[dot - 1] != '.') {
            dot--;
        }
        uint32_t above = dot ? qn_prof_intern(&trace->text, name->at, dot - 1) : 0;
        if (above == PROF_NIL) {
            return QN_NO_MEMORY;
        }
        const uint32_t *parent = dot ? qn_prof_map_find(&known, prof_int(above)) : NULL;
        h->calls.at[i].parent = parent && *parent != i ? *parent : PROF_NIL;
    }
    qn_status status = QN_OK;
    for (uint32_t i = 0; i < h->calls.n && status == QN_OK; i++) {
        status = link_up(h, i);
    }
    qn_prof_map_free(&known);
    return status;
}

/* ---- Canonical trees ---------------------------------------------------------------------------------------------- */

static int parent_before(const void *a, const void *b, const void *unused) {
    (void)unused;
    return ((const link *)a)->parent < ((const link *)b)->parent;
}

static qn_status lay_out_kids(hierarchy *h) {
    qn_arena *arena = &h->trace->arena;
    if (qn_prof_sort(arena, h->links.at, h->links.n, sizeof *h->links.at, parent_before, NULL) != QN_OK ||
        !QN_VEC_ROOM(arena, &h->kids, h->links.n)) {
        return QN_NO_MEMORY;
    }
    for (size_t i = 0; i < h->links.n; i++) {
        call *parent = &h->calls.at[h->links.at[i].parent];
        if (parent->kid_count++ == 0) {
            parent->kid_begin = (uint32_t)i;
        }
        h->kids.at[h->kids.n++] = h->links.at[i].kid;
    }
    return QN_OK;
}

/* The module a call is shown as, once its children are; PROF_NIL when no node of it was measured. */
static qn_status show(hierarchy *h, call *c, prof_ids *shape) {
    prof_trace *trace = h->trace;
    uint32_t key = key_of(h, c->name, c->id);
    const uint32_t *stat = key == PROF_NIL ? NULL : qn_prof_map_find(&h->stats, prof_int(key));
    if (!stat) {
        return key == PROF_NIL ? QN_NO_MEMORY : QN_OK;
    }
    shape->n = 0;
    if (!QN_VEC_ROOM(&trace->arena, shape, (size_t)c->kid_count + 1)) {
        return QN_NO_MEMORY;
    }
    shape->at[shape->n++] = *stat;
    for (uint32_t i = 0; i < c->kid_count; i++) {
        uint32_t shown = h->calls.at[h->kids.at[c->kid_begin + i]].shown;
        if (shown != PROF_NIL) {
            shape->at[shape->n++] = shown;
        }
    }
    uint32_t whole = qn_prof_intern(&h->keys, (const char *)shape->at, shape->n * sizeof *shape->at);
    uint32_t *index = whole == PROF_NIL ? NULL : qn_prof_map_put(&h->shapes, prof_int(whole), (uint32_t)trace->modules.n);
    if (!index || !QN_VEC_ROOM(&trace->arena, &trace->modules, 1) || !QN_VEC_ROOM(&trace->arena, &trace->module_kids, shape->n)) {
        return QN_NO_MEMORY;
    }
    c->shown = *index;
    if (*index != trace->modules.n) {
        return QN_OK; /* an equal tree is there already */
    }
    prof_module module = h->measured.at[*stat];
    prof_num best = prof_gt(module.device_total, prof_int(0)) ? module.device_total : module.host_total;
    module.average = prof_div(best, prof_int(module.occurrences));
    module.kid_begin = (uint32_t)trace->module_kids.n;
    module.kid_count = (uint32_t)shape->n - 1;
    for (size_t i = 1; i < shape->n; i++) {
        trace->module_kids.at[trace->module_kids.n++] = shape->at[i];
    }
    trace->modules.at[trace->modules.n++] = module;
    return QN_OK;
}

typedef struct frame {
    uint32_t call, next;
} frame;

/* Children before their parent, from one root. */
static qn_status show_tree(hierarchy *h, uint32_t root, prof_ids *shape) {
    QN_VEC(frame) stack = {NULL, 0, 0};
    frame bottom = {root, 0};
    qn_status status = QN_VEC_ROOM(&h->trace->arena, &stack, 1) ? QN_OK : QN_NO_MEMORY;
    if (status == QN_OK) {
        stack.at[stack.n++] = bottom;
    }
    while (stack.n && status == QN_OK) {
        frame *top = &stack.at[stack.n - 1];
        call *c = &h->calls.at[top->call];
        if (top->next == c->kid_count) {
            status = show(h, c, shape);
            stack.n--;
            continue;
        }
        frame kid = {h->kids.at[c->kid_begin + top->next++], 0};
        status = QN_VEC_ROOM(&h->trace->arena, &stack, 1) ? QN_OK : QN_NO_MEMORY;
        if (status == QN_OK) {
            stack.at[stack.n++] = kid;
        }
    }
    QN_VEC_FREE(&h->trace->arena, &stack);
    return status;
}

static int root_before(const void *a, const void *b, const void *context) {
    const prof_trace *trace = context;
    const prof_module *x = &trace->modules.at[*(const uint32_t *)a], *y = &trace->modules.at[*(const uint32_t *)b];
    return qn_prof_str_cmp(prof_string(trace, x->name), prof_string(trace, y->name)) < 0;
}

static qn_status show_all(hierarchy *h, qn_error *error) {
    prof_trace *trace = h->trace;
    prof_ids shape = {NULL, 0, 0};
    prof_map listed;
    qn_prof_map_init(&listed, &trace->arena);
    for (uint32_t i = 0; i < h->calls.n; i++) {
        call *c = &h->calls.at[i];
        if (!c->linked || c->parent != PROF_NIL) {
            continue;
        }
        qn_status status = show_tree(h, i, &shape);
        if (status != QN_OK) {
            return status;
        }
        uint32_t *seen = c->shown == PROF_NIL ? NULL : qn_prof_map_put(&listed, prof_int(c->shown), 0);
        if (!QN_VEC_ROOM(&trace->arena, &trace->module_roots, 1) || (c->shown != PROF_NIL && !seen)) {
            return QN_NO_MEMORY;
        }
        if (seen && !*seen) {
            *seen = 1;
            trace->module_roots.at[trace->module_roots.n++] = c->shown;
        }
    }
    for (uint32_t i = 0; i < h->calls.n && (trace->options.flags & QN_PROFILE_STRICT); i++) {
        if (h->calls.at[i].linked && h->calls.at[i].shown == PROF_NIL) {
            return qn_error_set(error, QN_FORMAT, "a module of the hierarchy has no node in any tree");
        }
    }
    qn_prof_map_free(&listed);
    QN_VEC_FREE(&trace->arena, &shape);
    return qn_prof_sort(&trace->arena, trace->module_roots.at, trace->module_roots.n, sizeof *trace->module_roots.at, root_before,
                        trace);
}

qn_status qn_prof_modules(prof_trace *trace, qn_error *error) {
    hierarchy h;
    memset(&h, 0, sizeof h);
    h.trace = trace;
    qn_prof_map_init(&h.stats, &trace->arena);
    qn_prof_map_init(&h.shapes, &trace->arena);
    qn_status status = qn_prof_text_init(&h.keys, &trace->arena);
    status = status == QN_OK ? measure_all(&h) : status;
    if (status != QN_OK || h.measured.n == 0) {
        return status;
    }
    status = trace->lightning ? calls_from_names(&h) : calls_from_functions(&h);
    status = status == QN_OK ? lay_out_kids(&h) : status;
    status = status == QN_OK ? show_all(&h, error) : status;
    trace->has_modules = trace->module_roots.n != 0;
    qn_prof_map_free(&h.stats);
    qn_prof_map_free(&h.shapes);
    QN_VEC_FREE(&trace->arena, &h.measured);
    QN_VEC_FREE(&trace->arena, &h.functions);
    QN_VEC_FREE(&trace->arena, &h.calls);
    QN_VEC_FREE(&trace->arena, &h.links);
    QN_VEC_FREE(&trace->arena, &h.kids);
    QN_VEC_FREE(&trace->arena, &h.roots);
    return status;
}
