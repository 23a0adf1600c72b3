/* The parts view: time by part of the model. A part is a path such as "layer 3/attention": the origin that Quern's recorder gives
 * ops and ranges or, in traces without, the modules around an operator. */
#include "prof/prof_sort.h"
#include "prof/prof_text.h"
#include "prof/view_util.h"

typedef struct part {
    const char *path;
    size_t length;
    uint32_t hash, parent, depth;
    int64_t calls, operators;
    int64_t entries;   /* times its operators, or those under it, follow others; for parts that no range opens */
    prof_num total;    /* of the ranges with this path; of its operators where no range is known */
    prof_num loose;    /* of its operators */
    prof_num children; /* totals of the parts right under it */
    prof_num device_self, device_total;
    double flops;
} part;

typedef struct builder {
    const prof_trace *trace;
    qn_arena *arena;
    QN_VEC(part) parts; /* 0 is what belongs to no part */
    prof_slots slots;
    uint32_t *of_node; /* part each node is in */
    uint32_t *step_of; /* the step around each node, or the root of its thread: what lies in different ones was entered anew */
    int on_device;     /* some part has device time: then that is what parts are compared by */
} builder;

static uint32_t part_hash(qn_hash_key key, const void *owner, uint32_t index) {
    (void)key;
    return ((const builder *)owner)->parts.at[index].hash;
}

/* The part with that path, made when there is none yet; PROF_NIL when memory ends. The path must outlive the view. */
static uint32_t part_at(builder *b, const char *path, size_t length) {
    if (qn_prof_slots_room(&b->slots, b->arena, part_hash, b) != QN_OK || !QN_VEC_ROOM(b->arena, &b->parts, 1)) {
        return PROF_NIL;
    }
    uint32_t hash = qn_prof_hash_bytes(b->slots.key, path, length), found;
    size_t cursor = hash;
    while ((found = prof_slots_at(&b->slots, &cursor)) != PROF_NIL) {
        const part *p = &b->parts.at[found];
        if (p->hash == hash && p->length == length && memcmp(p->path, path, length) == 0) {
            return found;
        }
        cursor++;
    }
    found = (uint32_t)b->parts.n++;
    part *p = &b->parts.at[found];
    memset(p, 0, sizeof *p);
    p->path = path;
    p->length = length;
    p->hash = hash;
    p->parent = PROF_NIL;
    p->total = p->loose = p->children = p->device_self = p->device_total = prof_int(0);
    prof_slots_put(&b->slots, cursor, found);
    return found;
}

static uint32_t part_of_origin(builder *b, prof_val origin) {
    const prof_str *text = prof_string(b->trace, (uint32_t)origin.i);
    return part_at(b, text->at, text->length);
}

/* ---- Where nodes belong ------------------------------------------------------------------------------------------- */

/* A module without an origin lies under the part around it, by its own name. */
static uint32_t part_of_module(builder *b, uint32_t around, const prof_node *node) {
    static const char PREFIX[] = "nn.Module: ";
    const prof_str *name = prof_string(b->trace, node->name);
    size_t skip = qn_prof_starts(name, PREFIX) ? sizeof PREFIX - 1 : 0, own = name->length - skip;
    const part *outer = &b->parts.at[around];
    if (around == 0) {
        return part_at(b, name->at + skip, own);
    }
    char *path = qn_arena_alloc(b->arena, outer->length + 1 + own, 1);
    if (!path) {
        return PROF_NIL;
    }
    memcpy(path, outer->path, outer->length);
    path[outer->length] = '/';
    memcpy(path + outer->length + 1, name->at + skip, own);
    return part_at(b, path, outer->length + 1 + own);
}

static prof_val origin_of(const prof_trace *trace, const prof_node *node) {
    const prof_event *event = node->event == PROF_NIL ? NULL : &trace->events.at[node->event];
    if (!event || event->args == PROF_NIL) {
        return prof_absent();
    }
    prof_val origin = event->kind == PROF_KIND_MODULE ? trace->pys.at[event->args].origin : trace->ops.at[event->args].origin;
    return origin.tag == PROF_STR ? origin : prof_absent();
}

static uint32_t part_of_node(builder *b, const prof_node *node) {
    uint32_t around = node->parent == PROF_NIL ? 0 : b->of_node[node->parent];
    if (node->class_ != PROF_CLASS_MODULE && node->class_ != PROF_CLASS_OP && node->class_ != PROF_CLASS_OPTIMIZER) {
        return around;
    }
    prof_val origin = origin_of(b->trace, node);
    if (origin.tag == PROF_STR) {
        return part_of_origin(b, origin);
    }
    return node->class_ == PROF_CLASS_MODULE ? part_of_module(b, around, node) : around;
}

/* ---- What they cost ----------------------------------------------------------------------------------------------- */

static void count_node(builder *b, const prof_node *node, uint32_t at) {
    const prof_trace *trace = b->trace;
    part *p = &b->parts.at[at];
    if (node->class_ == PROF_CLASS_MODULE) {
        p->calls++;
        p->total = prof_add(p->total, prof_sub(node->end, node->start));
    }
    if (!node->proper) {
        return;
    }
    const prof_node *around = node->parent == PROF_NIL ? NULL : &trace->nodes.at[node->parent];
    int inner = around && around->proper && b->of_node[node->parent] == at; /* a piece of an operator already counted */
    p->device_self = prof_add(p->device_self, node->device_self);
    if (inner) {
        return;
    }
    p->operators++;
    p->loose = prof_add(p->loose, prof_sub(node->end, node->start));
    const prof_op_args *args = prof_node_args(trace, node);
    if (args) {
        p->flops += prof_to_dbl(args->flops);
    }
}

static qn_status place_nodes(builder *b) {
    const prof_trace *trace = b->trace;
    for (size_t i = trace->postorder.n; i-- > 0;) { /* parents come before their children this way */
        uint32_t id = trace->postorder.at[i];
        const prof_node *node = &trace->nodes.at[id];
        uint32_t at = part_of_node(b, node);
        if (at == PROF_NIL) {
            return QN_NO_MEMORY;
        }
        b->of_node[id] = at;
        b->step_of[id] = node->class_ == PROF_CLASS_STEP || node->parent == PROF_NIL ? id : b->step_of[node->parent];
        count_node(b, node, at);
    }
    for (size_t i = 0; i < trace->events.n; i++) {
        const prof_event *event = &trace->events.at[i];
        if (event->kind != PROF_KIND_ANNOTATION || event->args == PROF_NIL || trace->ops.at[event->args].origin.tag != PROF_STR) {
            continue;
        }
        uint32_t at = part_of_origin(b, trace->ops.at[event->args].origin);
        if (at == PROF_NIL) {
            return QN_NO_MEMORY;
        }
        b->parts.at[at].calls++;
        b->parts.at[at].total = prof_add(b->parts.at[at].total, prof_event_dur(event));
    }
    return QN_OK;
}

/* ---- The tree of parts -------------------------------------------------------------------------------------------- */

/* By path, '/' before every other byte, so that what lies under a part follows it at once. */
static int path_before(const void *left, const void *right, const void *context) {
    const builder *b = context;
    const part *x = &b->parts.at[*(const uint32_t *)left], *y = &b->parts.at[*(const uint32_t *)right];
    size_t n = x->length < y->length ? x->length : y->length;
    for (size_t i = 0; i < n; i++) {
        if (x->path[i] != y->path[i]) {
            int cx = x->path[i] == '/' ? -1 : (unsigned char)x->path[i], cy = y->path[i] == '/' ? -1 : (unsigned char)y->path[i];
            return cx < cy;
        }
    }
    return x->length < y->length;
}

static int lies_under(const part *inner, const part *outer) {
    return inner->length > outer->length && inner->path[outer->length] == '/' &&
           memcmp(inner->path, outer->path, outer->length) == 0;
}

static qn_status link_parts(builder *b, uint32_t *order) {
    size_t n = b->parts.n - 1;
    for (size_t i = 0; i < n; i++) {
        order[i] = (uint32_t)i + 1;
    }
    qn_status status = qn_prof_sort(b->arena, order, n, sizeof *order, path_before, b);
    for (size_t i = 1; status == QN_OK && i < n; i++) {
        uint32_t outer = order[i - 1];
        while (outer != PROF_NIL && !lies_under(&b->parts.at[order[i]], &b->parts.at[outer])) {
            outer = b->parts.at[outer].parent;
        }
        b->parts.at[order[i]].parent = outer;
        b->parts.at[order[i]].depth = outer == PROF_NIL ? 0 : b->parts.at[outer].depth + 1;
    }
    for (size_t i = n; status == QN_OK && i-- > 0;) { /* the innermost first */
        part *p = &b->parts.at[order[i]];
        if (p->calls == 0) {
            p->total = prof_add(p->loose, p->children);
        }
        p->device_total = prof_add(p->device_total, p->device_self);
        if (p->parent != PROF_NIL) {
            part *outer = &b->parts.at[p->parent];
            outer->children = prof_add(outer->children, p->total);
            outer->device_total = prof_add(outer->device_total, p->device_total);
        }
    }
    b->parts.at[0].total = b->parts.at[0].loose;
    b->parts.at[0].device_total = b->parts.at[0].device_self;
    return status;
}

/* ---- How often one was entered ------------------------------------------------------------------------------------ */

/* Coming from one part to another enters what lies around the second and not around the first as well. */
static void enter(builder *b, uint32_t from, uint32_t to) {
    part *parts = b->parts.at;
    while (to != from) {
        if (from == PROF_NIL || (to != PROF_NIL && parts[to].depth >= parts[from].depth)) {
            parts[to].entries++;
            to = parts[to].parent;
        } else {
            from = parts[from].parent;
        }
    }
}

static void count_entries(builder *b) {
    const prof_trace *trace = b->trace;
    uint32_t last = PROF_NIL, last_step = PROF_NIL;
    int wanted = 0;
    for (size_t i = 1; i < b->parts.n; i++) wanted |= b->parts.at[i].calls == 0;
    for (size_t i = 0; wanted && i < trace->postorder.n; i++) {
        uint32_t id = trace->postorder.at[i];
        if (!trace->nodes.at[id].proper) continue;
        enter(b, b->step_of[id] == last_step ? last : PROF_NIL, b->of_node[id]);
        last = b->of_node[id];
        last_step = b->step_of[id];
    }
}

/* ---- Output ------------------------------------------------------------------------------------------------------- */

static prof_num weight(const builder *b, uint32_t at) {
    return b->on_device ? b->parts.at[at].device_total : b->parts.at[at].total;
}

static int longer(const void *left, const void *right, const void *context) {
    const builder *b = context;
    return prof_gt(weight(b, *(const uint32_t *)left), weight(b, *(const uint32_t *)right));
}

static void put_row(prof_json *json, const builder *b, uint32_t at, prof_num whole) {
    const part *p = &b->parts.at[at];
    qn_prof_json_array(json);
    if (p->length) {
        qn_prof_json_bytes(json, p->path, p->length);
    } else {
        qn_prof_json_text(json, "(no part)");
    }
    qn_prof_json_int(json, p->calls || !p->length ? p->calls : p->entries);
    qn_prof_json_int(json, p->operators);
    qn_prof_json_num(json, qn_prof_round2(p->total));
    qn_prof_json_num(json, qn_prof_round2(prof_sub(p->total, p->children)));
    qn_prof_json_num(json, qn_prof_round2(p->device_total));
    qn_prof_json_num(json, qn_prof_round2(p->device_self));
    qn_prof_json_dbl(json, qn_prof_round_places(p->flops / 1e9, 6));
    qn_prof_json_num(json, qn_prof_view_percent(weight(b, at), whole));
    qn_prof_json_array_end(json);
}

static void put_view(prof_json *json, const builder *b, const uint32_t *order, size_t n) {
    static const prof_column columns[] = {
        {"Part", 0, "Labels from the outermost in"},
        {"Calls", 1, "Times the part was entered: its ranges or, where it is only a label, the stretches of its operators"},
        {"Operators", 1, "Operators right in it, those of parts under it not counted"},
        {"Host Total (us)", 1, NULL},
        {"Host Self (us)", 1, "Without the parts under it"},
        {"Device Total (us)", 1, NULL},
        {"Device Self (us)", 1, NULL},
        {"GFLOP", 1, "Of the operators right in it"},
        {"Share (%)", 1, "Device total where there is any, else host total; of all parts and what belongs to none"}};
    prof_num whole = weight(b, 0);
    for (uint32_t i = 1; i < (uint32_t)b->parts.n; i++) {
        whole = b->parts.at[i].parent == PROF_NIL ? prof_add(whole, weight(b, i)) : whole;
    }
    qn_prof_json_object(json);
    qn_prof_json_key(json, "metadata");
    qn_prof_json_object(json);
    qn_prof_json_key(json, "title");
    qn_prof_json_text(json, "Parts of the model");
    qn_prof_json_key(json, "sort");
    qn_prof_json_text(json, b->on_device ? "Device Total (us)" : "Host Total (us)");
    qn_prof_json_object_end(json);
    qn_prof_view_table(json, columns, sizeof columns / sizeof *columns);
    for (size_t i = 0; i < n; i++) {
        put_row(json, b, order[i], whole);
    }
    qn_prof_json_array_end(json);
    qn_prof_json_object_end(json);
}

qn_status qn_prof_view_parts(const prof_view_context *context, prof_json *json, qn_error *error) {
    builder b;
    memset(&b, 0, sizeof b);
    b.trace = context->trace;
    b.arena = context->arena;
    b.of_node = qn_arena_alloc(b.arena, b.trace->nodes.n, sizeof *b.of_node);
    b.step_of = qn_arena_alloc(b.arena, b.trace->nodes.n, sizeof *b.step_of);
    uint32_t none = b.of_node && b.step_of ? part_at(&b, "", 0) : PROF_NIL;
    qn_status status = none == PROF_NIL ? QN_NO_MEMORY : place_nodes(&b);
    if (status == QN_OK && b.parts.n == 1) {
        return qn_prof_view_missing(error, context->trace, "parts", "it names no layers, modules or ranges");
    }
    uint32_t *order = status == QN_OK ? qn_arena_alloc(b.arena, b.parts.n, sizeof *order) : NULL;
    status = status == QN_OK && !order ? QN_NO_MEMORY : status;
    if (status == QN_OK) {
        status = link_parts(&b, order);
        count_entries(&b);
    }
    for (size_t i = 0; i < b.parts.n; i++) b.on_device |= prof_gt(b.parts.at[i].device_total, prof_int(0));
    size_t n = b.parts.n - 1;
    if (status == QN_OK && b.parts.at[0].operators) {
        order[n++] = 0;
    }
    if (status == QN_OK) {
        status = qn_prof_sort(b.arena, order, n, sizeof *order, longer, &b);
    }
    if (status != QN_OK) {
        return qn_error_set(error, status, "no memory for the parts view");
    }
    put_view(json, &b, order, n);
    return QN_OK;
}
