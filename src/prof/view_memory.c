/* Memory statistics by operator (section 17), and the helpers of all memory views. */
#include "prof/view_memory.h"

#include <string.h>

#include "prof/prof_sort.h"
#include "prof/view_texts.h"

/* ---- Shared ------------------------------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    double factor; /* 1 stays an integer, so that whole numbers do */
} time_units[] =
    {
#define QN_UNIT_TIME(name, in_one) {#name, 1.0 / (in_one)},
#include <quern/units.def>
#undef QN_UNIT_TIME
},
  memory_units[] = {
#define QN_UNIT_MEMORY(name, in_one) {#name, 1.0 / (in_one)},
#include <quern/units.def>
#undef QN_UNIT_MEMORY
};

static const char time_names[] = "there are"
#define QN_UNIT_TIME(name, in_one) " " #name
#include <quern/units.def>
#undef QN_UNIT_TIME
    ;
static const char memory_names[] = "there are"
#define QN_UNIT_MEMORY(name, in_one) " " #name
#include <quern/units.def>
#undef QN_UNIT_MEMORY
    ;

static prof_num factor_of(double factor) { return factor == 1 ? prof_int(1) : prof_dbl(factor); }

static int has_unknown_device(const prof_trace *trace) {
    for (size_t i = 0; i < trace->mems.n; i++) {
        if (trace->mems.at[i].device == 0) {
            return 1;
        }
    }
    return 0;
}

qn_status qn_prof_memory_begin(const prof_view_context *context, const char *memory, prof_memory_view *view, qn_error *error) {
    const qn_profile_request *request = context->request;
    prof_units *units = &view->units;
    view->trace = context->trace;
    view->arena = context->arena;
    qn_prof_map_init(&view->devices, context->arena);
    units->time = request->time_metric ? request->time_metric : "ms";
    units->memory = request->memory_metric ? request->memory_metric : memory;
    units->time_factor = units->memory_factor = prof_absent();
    for (size_t i = 0; i < sizeof time_units / sizeof *time_units; i++) {
        if (strcmp(units->time, time_units[i].name) == 0) {
            units->time_factor = factor_of(time_units[i].factor);
        }
    }
    for (size_t i = 0; i < sizeof memory_units / sizeof *memory_units; i++) {
        if (strcmp(units->memory, memory_units[i].name) == 0) {
            units->memory_factor = factor_of(memory_units[i].factor);
        }
    }
    if (!prof_is_num(units->time_factor)) {
        return qn_error_set(error, QN_ARGUMENT, "'%.100s' is no unit of time; %s", units->time, time_names);
    }
    if (!prof_is_num(units->memory_factor)) {
        return qn_error_set(error, QN_ARGUMENT, "'%.100s' is no unit of memory; %s", units->memory, memory_names);
    }
    if (context->trace->mems.n == 0) {
        return qn_prof_view_missing(error, context->trace, "memory", "no memory was recorded");
    }
    if (context->trace->options.flags & QN_PROFILE_STRICT && has_unknown_device(context->trace)) {
        return qn_prof_view_missing(error, context->trace, "memory", "a record names a device type the reference does not know");
    }
    return QN_OK;
}

prof_num qn_prof_memory_rounded(prof_num value) {
    double size = fabs(prof_to_dbl(value));
    if (value.tag != PROF_DBL || size >= 0.01 || size == 0 || !isfinite(size)) {
        return qn_prof_round2(value);
    }
    int places = (int)ceil(-log10(size));
    return places <= 30 ? prof_dbl(qn_prof_round_places(value.d, places)) : value;
}

uint32_t qn_prof_memory_device(prof_map *devices, uint32_t name) {
    const uint32_t *number = qn_prof_map_put(devices, prof_int(name), (uint32_t)devices->entries.n);
    return number ? *number : PROF_NIL;
}

static int is_own_device(const prof_trace *trace, const prof_str *name) {
    int gpu = qn_prof_starts(name, "GPU"), mlu = qn_prof_starts(name, "MLU");
    return prof_is_a(trace) ? mlu : prof_is_b(trace) ? gpu || mlu : gpu;
}

void qn_prof_memory_default(prof_json *json, const prof_trace *trace, const prof_map *devices) {
    const prof_str *best = NULL;
    for (size_t i = 0; i < devices->entries.n; i++) {
        const prof_str *name = prof_memory_device_name(trace, devices, i);
        if (is_own_device(trace, name) && (!best || qn_prof_str_cmp(name, best) < 0)) {
            best = name;
        }
    }
    qn_prof_json_key(json, "default_device");
    if (best) {
        qn_prof_json_bytes(json, best->at, best->length);
    } else {
        qn_prof_json_text(json, "CPU");
    }
}

void qn_prof_memory_column(prof_json *json, const char *name, const char *unit, int is_number, const char *tooltip) {
    qn_prof_json_object(json);
    qn_prof_json_key(json, "name");
    qn_prof_json_string_begin(json);
    qn_prof_json_part(json, name);
    if (unit) {
        qn_prof_json_part(json, " (");
        qn_prof_json_part(json, unit);
        qn_prof_json_part(json, ")");
    }
    qn_prof_json_string_end(json);
    qn_prof_json_key(json, "type");
    qn_prof_json_text(json, is_number ? "number" : "string");
    if (tooltip) {
        qn_prof_json_key(json, "tooltip");
        qn_prof_json_text(json, tooltip);
    }
    qn_prof_json_object_end(json);
}

/* ---- Collecting --------------------------------------------------------------------------------------------------- */

/* What records add up to. An operator's total is its own and that of everything under it. */
typedef struct sums {
    prof_num increase, size;
    int64_t count;
} sums;

typedef struct subtotal {   /* of one device under one open node */
    uint32_t device, below; /* below: the next subtotal of the same device further down the list, or PROF_NIL */
    sums sum;
} subtotal;

typedef struct stat { /* of one operator name on one device */
    uint32_t name, device;
    sums self, total;
} stat;

typedef struct frame {
    uint32_t node, next_kid;
    size_t subtotals; /* where this node's begin; they end where those of the node above it on the stack begin */
} frame;

typedef struct collector {
    prof_memory_view of;
    prof_num start, end; /* absent: no bound */
    QN_VEC(stat) stats;
    prof_map stat_of; /* device and name to index */
    prof_map calls;   /* name to number of calls */
    QN_VEC(frame) stack;
    QN_VEC(subtotal) subtotals;
    QN_VEC(uint32_t) latest; /* by device: its last subtotal, or PROF_NIL */
    int failed;
} collector;

static void add(sums *to, const sums *what) {
    to->increase = prof_add(to->increase, what->increase);
    to->size = prof_add(to->size, what->size);
    to->count += what->count;
}

static stat *stat_for(collector *c, uint32_t device, uint32_t name) {
    uint32_t *at = qn_prof_map_put(&c->stat_of, prof_int((int64_t)((uint64_t)device << 32 | name)), (uint32_t)c->stats.n);
    if (!at || !QN_VEC_ROOM(c->of.arena, &c->stats, 1)) {
        c->failed = 1;
        return NULL;
    }
    if (*at == c->stats.n) {
        sums none = {prof_int(0), prof_int(0), 0};
        c->stats.at[c->stats.n++] = (stat){name, device, none, none};
    }
    return &c->stats.at[*at];
}

/* Adds to the subtotal of the innermost open node. */
static void add_subtotal(collector *c, uint32_t device, const sums *what) {
    while (c->latest.n <= device && !c->failed) {
        c->failed |= !QN_VEC_ROOM(c->of.arena, &c->latest, 1);
        if (!c->failed) {
            c->latest.at[c->latest.n++] = PROF_NIL;
        }
    }
    if (c->failed || !QN_VEC_ROOM(c->of.arena, &c->subtotals, 1)) {
        c->failed = 1;
        return;
    }
    uint32_t at = c->latest.at[device];
    if (at != PROF_NIL && at >= c->stack.at[c->stack.n - 1].subtotals) {
        add(&c->subtotals.at[at].sum, what);
        return;
    }
    c->latest.at[device] = (uint32_t)c->subtotals.n;
    c->subtotals.at[c->subtotals.n++] = (subtotal){device, at, *what};
}

/* Counts what one node's records of one device add up to; its total waits for its children. */
static void count(collector *c, uint32_t device, const sums *what) {
    stat *s = stat_for(c, device, c->of.trace->nodes.at[c->stack.at[c->stack.n - 1].node].name);
    if (s) {
        add(&s->self, what);
        add_subtotal(c, device, what);
    }
}

/* Leaves a node whose children are done: its subtotals are totals now, and count for the node around it as well. So each record is
 * handed from node to node with its device's others and not to every node around it, of which there may be very many. */
static void leave(collector *c) {
    frame done = c->stack.at[--c->stack.n];
    const prof_node *node = &c->of.trace->nodes.at[done.node];
    size_t outer = c->stack.n ? c->stack.at[c->stack.n - 1].subtotals : SIZE_MAX, kept = done.subtotals;
    for (size_t i = done.subtotals; i < c->subtotals.n && !c->failed; i++) {
        subtotal sub = c->subtotals.at[i];
        stat *s = node->proper ? stat_for(c, sub.device, node->name) : NULL;
        if (s) {
            add(&s->total, &sub.sum);
        }
        c->latest.at[sub.device] = sub.below;
        if (sub.below != PROF_NIL && sub.below >= outer) {
            add(&c->subtotals.at[sub.below].sum, &sub.sum);
        } else if (c->stack.n) {
            c->latest.at[sub.device] = (uint32_t)kept;
            c->subtotals.at[kept++] = sub;
        }
    }
    c->subtotals.n = kept;
}

static int is_outside(const collector *c, prof_num first, prof_num last) {
    return (prof_is_num(c->start) && prof_lt(last, c->start)) || (prof_is_num(c->end) && prof_gt(first, c->end));
}

static void count_records(collector *c, const prof_node *node) {
    sums run = {prof_int(0), prof_int(0), 0};
    uint32_t device = PROF_NIL;
    for (uint32_t i = 0; i < node->mem_count && !c->failed; i++) {
        const prof_mem *record = &c->of.trace->mems.at[c->of.trace->node_mems.at[node->mem_begin + i]];
        if (record->device == 0 || is_outside(c, record->ts, record->ts)) {
            continue;
        }
        uint32_t at = qn_prof_memory_device(&c->of.devices, record->device);
        if (at != device && device != PROF_NIL) {
            count(c, device, &run);
            run = (sums){prof_int(0), prof_int(0), 0};
        }
        device = at;
        c->failed |= at == PROF_NIL;
        run.increase = prof_add(run.increase, record->bytes);
        if (prof_gt(record->bytes, prof_int(0))) {
            run.size = prof_add(run.size, record->bytes);
            run.count++;
        }
    }
    if (device != PROF_NIL && !c->failed) {
        count(c, device, &run);
    }
}

/* Enters a node: counts its call, and unless the memory cursor never came here, its records and then its children. */
static void enter(collector *c, uint32_t id) {
    const prof_node *node = &c->of.trace->nodes.at[id];
    if (is_outside(c, node->start, node->end)) {
        return;
    }
    if (node->proper) {
        uint32_t *calls = qn_prof_map_put(&c->calls, prof_int(node->name), 0);
        c->failed |= !calls;
        if (calls) {
            ++*calls;
        }
    }
    if (!node->visited || c->failed) {
        return;
    }
    if (!QN_VEC_ROOM(c->of.arena, &c->stack, 1)) {
        c->failed = 1;
        return;
    }
    c->stack.at[c->stack.n++] = (frame){id, 0, c->subtotals.n};
    if (node->proper) {
        count_records(c, node);
    }
}

static void collect(collector *c) {
    const prof_trace *trace = c->of.trace;
    for (size_t t = 0; t < trace->trees.n; t++) {
        const prof_node *root = &trace->nodes.at[trace->trees.at[t].root];
        for (uint32_t k = 0; k < root->kid_count && !c->failed; k++) {
            enter(c, trace->kids.at[root->kid_begin + k]);
            while (c->stack.n && !c->failed) {
                frame *top = &c->stack.at[c->stack.n - 1];
                const prof_node *node = &trace->nodes.at[top->node];
                if (top->next_kid < node->kid_count) {
                    enter(c, trace->kids.at[node->kid_begin + top->next_kid++]);
                } else {
                    leave(c);
                }
            }
        }
    }
}

/* ---- Writing ------------------------------------------------------------------------------------------------------ */

static void put_head(prof_json *json, const prof_trace *trace, const prof_units *units, const prof_map *shown) {
    qn_prof_json_key(json, "metadata");
    qn_prof_json_object(json);
    qn_prof_json_key(json, "title");
    qn_prof_json_text(json, "Memory View");
    qn_prof_memory_default(json, trace, shown);
    qn_prof_json_key(json, "search");
    qn_prof_json_text(json, "Operator Name");
    qn_prof_json_key(json, "sort");
    qn_prof_json_string_begin(json);
    qn_prof_json_part(json, "Self Size Increase (");
    qn_prof_json_part(json, units->memory);
    qn_prof_json_part(json, ")");
    qn_prof_json_string_end(json);
    qn_prof_json_object_end(json);
    qn_prof_json_key(json, "columns");
    qn_prof_json_array(json);
    qn_prof_memory_column(json, "Operator Name", NULL, 0, NULL);
    qn_prof_memory_column(json, "Calls", NULL, 1, qn_prof_text_mem_calls);
    qn_prof_memory_column(json, "Size Increase", units->memory, 1, qn_prof_text_mem_increase);
    qn_prof_memory_column(json, "Self Size Increase", units->memory, 1, qn_prof_text_mem_self_increase);
    qn_prof_memory_column(json, "Allocation Count", NULL, 1, qn_prof_text_mem_count);
    qn_prof_memory_column(json, "Self Allocation Count", NULL, 1, qn_prof_text_mem_self_count);
    qn_prof_memory_column(json, "Allocation Size", units->memory, 1, qn_prof_text_mem_size);
    qn_prof_memory_column(json, "Self Allocation Size", units->memory, 1, qn_prof_text_mem_self_size);
    qn_prof_json_array_end(json);
}

static int is_nothing(const sums *s) { return prof_is_zero(s->increase) && prof_is_zero(s->size) && s->count == 0; }

static int is_before(const void *a, const void *b, const void *context) {
    const stat *x = a, *y = b;
    if (x->device != y->device) {
        return x->device < y->device;
    }
    return qn_prof_str_cmp(prof_string(context, x->name), prof_string(context, y->name)) < 0;
}

static void put_size(prof_json *json, const prof_units *units, prof_num bytes) {
    qn_prof_json_num(json, qn_prof_memory_rounded(prof_mul(bytes, units->memory_factor)));
}

static void put_stat(prof_json *json, const collector *c, const prof_units *units, const stat *s) {
    const uint32_t *calls = qn_prof_map_find(&c->calls, prof_int(s->name));
    qn_prof_json_array(json);
    qn_prof_view_string(json, c->of.trace, s->name);
    qn_prof_json_int(json, calls ? *calls : 0);
    put_size(json, units, s->total.increase);
    put_size(json, units, s->self.increase);
    qn_prof_json_int(json, s->total.count);
    qn_prof_json_int(json, s->self.count);
    put_size(json, units, s->total.size);
    put_size(json, units, s->self.size);
    qn_prof_json_array_end(json);
}

/* Sorted by device and name; names without any figure are gone already. */
static void put_rows(prof_json *json, const collector *c, const prof_units *units) {
    qn_prof_json_key(json, "rows");
    qn_prof_json_object(json);
    for (size_t i = 0; i < c->stats.n; i++) {
        const stat *s = &c->stats.at[i];
        if (i == 0 || s->device != s[-1].device) {
            const prof_str *name = prof_memory_device_name(c->of.trace, &c->of.devices, s->device);
            qn_prof_json_key_bytes(json, name->at, name->length);
            qn_prof_json_array(json);
        }
        put_stat(json, c, units, s);
        if (i + 1 == c->stats.n || s->device != s[1].device) {
            qn_prof_json_array_end(json);
        }
    }
    qn_prof_json_object_end(json);
}

/* Whether the text is digits[.digits][e[+-]digits]; *whole tells that it is digits alone. */
static int is_number(const char *text, int *whole) {
    static const char DIGITS[] = "0123456789";
    size_t n = strspn(text, DIGITS), at = n;
    *whole = text[n] == 0;
    if (n && text[at] == '.') {
        n = strspn(text + at + 1, DIGITS);
        at += 1 + n;
    }
    if (n && (text[at] == 'e' || text[at] == 'E')) {
        at += 1 + (text[at + 1] == '+' || text[at + 1] == '-');
        n = strspn(text + at, DIGITS);
        at += n;
    }
    return n && text[at] == 0;
}

/* A bound of time, given as a JSON number. */
static qn_status read_bound(const char *text, prof_num *bound, qn_error *error) {
    *bound = prof_absent();
    if (!text) {
        return QN_OK;
    }
    int negative = text[0] == '-', whole;
    const char *digits = text + negative;
    if (!is_number(digits, &whole)) {
        return qn_error_set(error, QN_ARGUMENT, "'%s' is no time", text);
    }
    double value = qn_prof_dbl_read(digits, (int64_t)strlen(digits));
    if (whole && value < 9e18) {
        int64_t i = 0;
        for (; *digits; digits++) {
            i = i * 10 + (*digits - '0');
        }
        *bound = prof_int(negative ? -i : i);
    } else {
        *bound = prof_dbl(negative ? -value : value);
    }
    return QN_OK;
}

static size_t drop_empty(stat *stats, size_t n) {
    size_t kept = 0;
    for (size_t i = 0; i < n; i++) {
        if (!is_nothing(&stats[i].self) || !is_nothing(&stats[i].total)) {
            stats[kept++] = stats[i];
        }
    }
    return kept;
}

qn_status qn_prof_view_memory(const prof_view_context *context, prof_json *json, qn_error *error) {
    collector c;
    prof_map shown;
    memset(&c, 0, sizeof c);
    qn_status status = qn_prof_memory_begin(context, "KB", &c.of, error);
    status = status == QN_OK ? read_bound(context->request->start_ts, &c.start, error) : status;
    status = status == QN_OK ? read_bound(context->request->end_ts, &c.end, error) : status;
    if (status != QN_OK) {
        return status;
    }
    qn_prof_map_init(&shown, c.of.arena);
    qn_prof_map_init(&c.stat_of, c.of.arena);
    qn_prof_map_init(&c.calls, c.of.arena);
    collect(&c);
    c.stats.n = drop_empty(c.stats.at, c.stats.n);
    if (c.failed || qn_prof_sort(c.of.arena, c.stats.at, c.stats.n, sizeof *c.stats.at, is_before, c.of.trace) != QN_OK) {
        return QN_NO_MEMORY;
    }
    for (size_t i = 0; i < c.stats.n; i++) { /* a device whose operators all come to nothing is not shown */
        if (qn_prof_memory_device(&shown, (uint32_t)c.of.devices.entries.at[c.stats.at[i].device].key.i) == PROF_NIL) {
            return QN_NO_MEMORY;
        }
    }
    qn_prof_json_object(json);
    put_head(json, c.of.trace, &c.of.units, &shown);
    put_rows(json, &c, &c.of.units);
    qn_prof_json_object_end(json);
    return QN_OK;
}
