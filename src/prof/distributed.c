/* Section 18: the workers of one span side by side. A collective lasts as long for the fastest worker as the data needs; what
 * the others take longer, they waited. */
#include <string.h>

#include "prof/json_scan.h"
#include "prof/prof_joint.h"
#include "prof/prof_map.h"
#include "prof/prof_sort.h"
#include "prof/prof_text.h"

typedef struct record { /* a collective of one worker */
    const prof_coll *coll;
    prof_range *ranges, *transfer; /* coll->ranges.n each, sorted by start, then end descending */
    prof_val step;                 /* PROF_STR of the worker's trace; absent outside every step */
} record;

typedef struct side { /* one worker */
    record *records;
    size_t n;
} side;

typedef struct table { /* rows, and which of them is a key's */
    prof_dist_rows *rows;
    prof_map row_of;
} table;

typedef struct joint {
    qn_arena *arena;
    prof_dist *dist;
    side *sides;
    prof_text words; /* keys of rows: steps of different traces with equal names */
    table overlap, waittime;
} joint;

/* ---- Sorted records ----------------------------------------------------------------------------------------------- */

static int record_before(const void *a, const void *b, const void *unused) {
    (void)unused;
    const prof_coll *x = ((const record *)a)->coll, *y = ((const record *)b)->coll;
    int order = prof_cmp(x->start, y->start);
    return order == -1 || (order == 0 && prof_gt(x->end, y->end));
}

static int range_before(const void *a, const void *b, const void *unused) {
    (void)unused;
    const prof_range *x = a, *y = b;
    int order = prof_cmp(x->start, y->start);
    return order == -1 || (order == 0 && prof_gt(x->end, y->end));
}

/* One cursor over the steps: it moves on only past a step that ends before the record starts. */
static void find_steps(const prof_trace *trace, side *s) {
    size_t step = 0;
    for (size_t i = 0; i < s->n;) {
        record *r = &s->records[i];
        if (step == trace->steps.n) {
            i++;
            continue;
        }
        const prof_step *at = &trace->steps.at[step];
        if (prof_ge(r->coll->start, at->start) && prof_le(r->coll->end, at->end)) {
            r->step.tag = PROF_STR;
            r->step.i = at->name;
            i++;
        } else if (prof_ge(r->coll->start, at->end)) {
            step++;
        } else {
            i++;
        }
    }
}

static qn_status sort_records(joint *j, const prof_trace *trace, side *s) {
    s->n = trace->colls.n;
    s->records = qn_arena_alloc(j->arena, s->n, sizeof *s->records);
    if (!s->records) {
        return QN_NO_MEMORY;
    }
    for (size_t i = 0; i < s->n; i++) {
        s->records[i].coll = &trace->colls.at[i];
    }
    if (qn_prof_sort(j->arena, s->records, s->n, sizeof *s->records, record_before, NULL) != QN_OK) {
        return QN_NO_MEMORY;
    }
    for (size_t i = 0; i < s->n; i++) {
        record *r = &s->records[i];
        size_t n = r->coll->ranges.n;
        r->ranges = qn_arena_alloc(j->arena, n, sizeof *r->ranges);
        r->transfer = qn_arena_alloc(j->arena, n, sizeof *r->transfer);
        if (!r->ranges || !r->transfer) {
            return QN_NO_MEMORY;
        }
        memcpy(r->ranges, r->coll->ranges.at, n * sizeof *r->ranges);
        if (qn_prof_sort(j->arena, r->ranges, n, sizeof *r->ranges, range_before, NULL) != QN_OK) {
            return QN_NO_MEMORY;
        }
    }
    find_steps(trace, s);
    return QN_OK;
}

/* Record by record the workers must agree in the number of ranges. */
static int comparable(const joint *j) {
    for (size_t w = 1; w < j->dist->workers.n; w++) {
        if (j->sides[w].n != j->sides[0].n) {
            return 0;
        }
        for (size_t i = 0; i < j->sides[0].n; i++) {
            if (j->sides[w].records[i].coll->ranges.n != j->sides[0].records[i].coll->ranges.n) {
                return 0;
            }
        }
    }
    return 1;
}

static void find_transfers(joint *j) {
    for (size_t i = 0; i < j->sides[0].n; i++) {
        for (size_t k = 0; k < j->sides[0].records[i].coll->ranges.n; k++) {
            prof_num least = prof_absent();
            for (size_t w = 0; w < j->dist->workers.n; w++) {
                const prof_range *range = &j->sides[w].records[i].ranges[k];
                prof_num length = prof_sub(range->end, range->start);
                least = w ? prof_min(least, length) : length;
            }
            for (size_t w = 0; w < j->dist->workers.n; w++) {
                record *r = &j->sides[w].records[i];
                r->transfer[k].start = prof_sub(r->ranges[k].end, least);
                r->transfer[k].end = r->ranges[k].end;
            }
        }
    }
}

/* ---- Rows --------------------------------------------------------------------------------------------------------- */

/* The worker's cell in the row of that key, NULL for the key null; both are made when they are new. Workers come one after another. */
static prof_num *cell(joint *j, table *t, const char *key, uint32_t worker) {
    uint32_t word = key ? qn_prof_intern_c(&j->words, key) : 0;
    uint32_t *row = word == PROF_NIL ? NULL : qn_prof_map_put(&t->row_of, prof_int(word), (uint32_t)t->rows->n);
    if (!row || !QN_VEC_ROOM(j->arena, t->rows, 1)) {
        return NULL;
    }
    if (*row == t->rows->n) {
        memset(&t->rows->at[t->rows->n], 0, sizeof t->rows->at[0]);
        t->rows->at[t->rows->n++].key = key;
    }
    prof_dist_row *found = &t->rows->at[*row];
    if (found->cells.n && found->cells.at[found->cells.n - 1].worker == worker) {
        return found->cells.at[found->cells.n - 1].value;
    }
    if (!QN_VEC_ROOM(j->arena, &found->cells, 1)) {
        return NULL;
    }
    prof_dist_cell *fresh = &found->cells.at[found->cells.n++];
    fresh->worker = worker;
    for (int i = 0; i < 4; i++) {
        fresh->value[i] = prof_int(0);
    }
    return fresh->value;
}

/* The mean over steps: cut to an integer, except in mlu_a. */
static void average(prof_num *value, size_t n, qn_profile_dialect dialect) {
    for (int i = 0; i < 4; i++) {
        double mean = prof_div(value[i], prof_int(n ? (int64_t)n : 1));
        int cut = dialect != QN_PROFILE_MLU_A && fabs(mean) < 9e18;
        value[i] = cut ? prof_int((int64_t)mean) : prof_dbl(mean);
    }
}

static qn_status add_overlap(joint *j, uint32_t worker) {
    const prof_trace *trace = j->dist->workers.at[worker].trace;
    prof_num sums[4] = {prof_int(0), prof_int(0), prof_int(0), prof_int(0)};
    if (!cell(j, &j->overlap, "all", worker)) {
        return QN_NO_MEMORY;
    }
    for (size_t i = 0; i < trace->steps.n; i++) {
        const prof_step *step = &trace->steps.at[i];
        prof_num *value = cell(j, &j->overlap, prof_string(trace, step->name)->at, worker);
        if (!value) {
            return QN_NO_MEMORY;
        }
        value[0] = prof_sub(step->computation, step->overlap);
        value[1] = step->overlap;
        value[2] = prof_sub(step->communication, step->overlap);
        value[3] = step->other;
        for (int k = 0; k < 4; k++) {
            sums[k] = prof_add(sums[k], value[k]);
        }
    }
    prof_num *all = cell(j, &j->overlap, "all", worker);
    if (!all) {
        return QN_NO_MEMORY;
    }
    memcpy(all, sums, sizeof sums);
    average(all, trace->steps.n, trace->dialect);
    return QN_OK;
}

/* ---- Records of one kind ------------------------------------------------------------------------------------------ */

typedef prof_val (*record_key_fn)(const record *r);

static prof_val step_of(const record *r) { return r->step; }

static prof_val name_of(const record *r) { return prof_int(r->coll->name); }

typedef struct groups {      /* records of equal key together, keys in first-seen order */
    uint32_t *order, *begin; /* group g is order[begin[g] .. begin[g + 1]) */
    size_t n;
} groups;

static qn_status group_records(joint *j, const side *s, record_key_fn key_of, groups *g) {
    prof_map index;
    qn_prof_map_init(&index, j->arena);
    uint32_t *of = qn_arena_resize(j->arena, NULL, s->n, sizeof *of);
    g->order = qn_arena_alloc(j->arena, s->n, sizeof *g->order);
    g->begin = qn_arena_alloc(j->arena, s->n + 2, sizeof *g->begin);
    if (!of || !g->order || !g->begin) {
        return QN_NO_MEMORY;
    }
    for (size_t i = 0; i < s->n; i++) {
        const uint32_t *known = qn_prof_map_put(&index, key_of(&s->records[i]), (uint32_t)index.entries.n);
        if (!known) {
            return QN_NO_MEMORY;
        }
        of[i] = *known;
        g->begin[of[i] + 2]++;
    }
    g->n = index.entries.n;
    for (size_t i = 2; i < g->n + 2; i++) {
        g->begin[i] += g->begin[i - 1];
    }
    for (uint32_t i = 0; i < s->n; i++) { /* each place moves on to where the next group begins */
        g->order[g->begin[of[i] + 1]++] = i;
    }
    qn_arena_release(j->arena, of);
    qn_prof_map_free(&index);
    return QN_OK;
}

/* Sum of the merged ranges (or transfers) of one group. */
static qn_status merged_sum(joint *j, const side *s, const groups *g, size_t group, int transfer, prof_num *sum) {
    prof_ranges some = {NULL, 0, 0}, merged = {NULL, 0, 0};
    for (uint32_t i = g->begin[group]; i < g->begin[group + 1]; i++) {
        const record *r = &s->records[g->order[i]];
        size_t n = r->coll->ranges.n;
        if (!QN_VEC_ROOM(j->arena, &some, n)) {
            return QN_NO_MEMORY;
        }
        for (size_t k = 0; k < n; k++) {
            some.at[some.n++] = transfer ? r->transfer[k] : r->ranges[k];
        }
    }
    if (qn_prof_ranges_merge(j->arena, &some, &merged) != QN_OK) {
        return QN_NO_MEMORY;
    }
    *sum = qn_prof_ranges_sum(&merged);
    QN_VEC_FREE(j->arena, &some);
    QN_VEC_FREE(j->arena, &merged);
    return QN_OK;
}

static qn_status add_waittime(joint *j, uint32_t worker) {
    const prof_trace *trace = j->dist->workers.at[worker].trace;
    const side *s = &j->sides[worker];
    prof_num sums[4] = {prof_int(0), prof_int(0), prof_int(0), prof_int(0)};
    groups steps;
    if (group_records(j, s, step_of, &steps) != QN_OK || !cell(j, &j->waittime, "all", worker)) {
        return QN_NO_MEMORY;
    }
    for (size_t i = 0; i < steps.n; i++) {
        prof_val step = s->records[steps.order[steps.begin[i]]].step;
        prof_num whole, transfer;
        const char *key = step.tag == PROF_STR ? prof_string(trace, (uint32_t)step.i)->at : NULL;
        prof_num *value = cell(j, &j->waittime, key, worker);
        if (!value || merged_sum(j, s, &steps, i, 0, &whole) != QN_OK || merged_sum(j, s, &steps, i, 1, &transfer) != QN_OK) {
            return QN_NO_MEMORY;
        }
        value[0] = transfer;
        value[1] = prof_sub(whole, transfer);
        sums[0] = prof_add(sums[0], value[0]);
        sums[1] = prof_add(sums[1], value[1]);
    }
    prof_num *all = cell(j, &j->waittime, "all", worker);
    if (!all) {
        return QN_NO_MEMORY;
    }
    memcpy(all, sums, sizeof sums);
    average(all, steps.n, trace->dialect);
    return QN_OK;
}

/* ---- Operations --------------------------------------------------------------------------------------------------- */

static int64_t element_size(const char *type, size_t length, qn_profile_dialect dialect) {
    static const struct {
        const char *name;
        int size, beyond_a;
    } SIZES[] = {{"long int", 8, 0},  {"float", 4, 0},         {"int", 4, 0},
                 {"c10::Half", 2, 0}, {"c10::BFloat16", 2, 1}, {"unsigned char", 1, 1}};
    for (size_t i = 0; i < sizeof SIZES / sizeof *SIZES; i++) {
        if (strlen(SIZES[i].name) == length && memcmp(SIZES[i].name, type, length) == 0) {
            return SIZES[i].beyond_a && dialect == QN_PROFILE_MLU_A ? 0 : SIZES[i].size;
        }
    }
    return 0;
}

typedef struct items { /* walks the items of a list that was checked when it was read */
    prof_scan scan;
    const char *p;
    int first;
} items;

static void open_items(items *it, const char *json, size_t length) {
    memset(it, 0, sizeof *it);
    it->scan.base = json;
    it->scan.end = json + length;
    it->scan.last = 1;
    it->p = json + 1;
    it->first = 1;
}

static int next_item(items *it, prof_tok *tok) {
    int closed;
    if (qn_prof_scan_item(&it->scan, &it->p, it->first, &closed) != PROF_SCAN_OK || closed) {
        return 0;
    }
    it->first = 0;
    return qn_prof_scan_value(&it->scan, &it->p, tok) == PROF_SCAN_OK;
}

static const prof_list *list_of(const prof_trace *trace, prof_val value) {
    return value.tag == PROF_LIST ? &trace->text.lists.at[value.i] : NULL;
}

/* Bytes of all inputs: for each, the product of its dims times the size of its type. */
static prof_num input_bytes(const prof_trace *trace, const prof_coll *coll) {
    const prof_list *shapes = list_of(trace, coll->shape), *types = list_of(trace, coll->types);
    prof_num sum = prof_int(0);
    if (!shapes || !types || shapes->json[0] != '[' || types->json[0] != '[') {
        return sum;
    }
    items shape_items, type_items;
    prof_tok shape, type, dim;
    open_items(&shape_items, shapes->json, shapes->json_length);
    open_items(&type_items, types->json, types->json_length);
    while (next_item(&shape_items, &shape) && next_item(&type_items, &type)) {
        prof_num size = prof_int(element_size(types->json + type.at, type.length, trace->dialect));
        if (shape.type != PROF_TOK_LIST) {
            continue;
        }
        items dims;
        open_items(&dims, shapes->json + shape.at, shape.length);
        while (next_item(&dims, &dim)) {
            prof_val value = qn_prof_tok_number(&dims.scan, &dim);
            size = prof_is_num(value) ? prof_mul(size, value) : size;
        }
        sum = prof_add(sum, size);
    }
    return sum;
}

static qn_status add_operations(joint *j, uint32_t worker) {
    prof_dist_worker *w = &j->dist->workers.at[worker];
    const side *s = &j->sides[worker];
    groups names;
    if (group_records(j, s, name_of, &names) != QN_OK || !QN_VEC_ROOM(j->arena, &w->comms, names.n)) {
        return QN_NO_MEMORY;
    }
    for (size_t i = 0; i < names.n; i++) {
        const uint32_t *ids = names.order + names.begin[i];
        uint32_t calls = names.begin[i + 1] - names.begin[i];
        prof_comm_stat stat = {s->records[ids[0]].coll->name, calls, prof_int(0), prof_int(0), prof_int(0)};
        for (uint32_t k = 0; k < calls; k++) {
            stat.size = prof_add(stat.size, input_bytes(w->trace, s->records[ids[k]].coll));
        }
        if (merged_sum(j, s, &names, i, 0, &stat.latency) != QN_OK || merged_sum(j, s, &names, i, 1, &stat.transfer) != QN_OK) {
            return QN_NO_MEMORY;
        }
        w->comms.at[w->comms.n++] = stat;
    }
    return QN_OK;
}

/* ---- All workers -------------------------------------------------------------------------------------------------- */

static int worker_before(const void *a, const void *b, const void *unused) {
    (void)unused;
    return strcmp(((const prof_dist_worker *)a)->name, ((const prof_dist_worker *)b)->name) < 0;
}

static qn_status fill(joint *j) {
    qn_status status = QN_OK;
    for (uint32_t w = 0; w < j->dist->workers.n && status == QN_OK; w++) {
        status = add_overlap(j, w);
        status = status == QN_OK ? add_waittime(j, w) : status;
        status = status == QN_OK ? add_operations(j, w) : status;
    }
    return status;
}

qn_status qn_prof_dist_build(qn_arena *arena, const prof_dist_worker *workers, size_t n, prof_dist *dist) {
    memset(dist, 0, sizeof *dist);
    dist->arena = arena;
    int shared = n > 0;
    for (size_t i = 0; i < n; i++) {
        shared = shared && workers[i].trace->has_communication && workers[i].trace->colls.n;
    }
    if (!shared) {
        return QN_OK;
    }
    joint j;
    memset(&j, 0, sizeof j);
    j.arena = arena;
    j.dist = dist;
    j.sides = qn_arena_alloc(arena, n, sizeof *j.sides);
    j.overlap.rows = &dist->overlap;
    j.waittime.rows = &dist->waittime;
    qn_prof_map_init(&j.overlap.row_of, arena);
    qn_prof_map_init(&j.waittime.row_of, arena);
    if (!j.sides || !QN_VEC_ROOM(arena, &dist->workers, n) || qn_prof_text_init(&j.words, arena) != QN_OK) {
        return QN_NO_MEMORY;
    }
    memcpy(dist->workers.at, workers, n * sizeof *workers);
    dist->workers.n = n;
    qn_status status = qn_prof_sort(arena, dist->workers.at, n, sizeof *workers, worker_before, NULL);
    for (size_t i = 0; i < n && status == QN_OK; i++) {
        status = sort_records(&j, dist->workers.at[i].trace, &j.sides[i]);
    }
    if (status != QN_OK || !comparable(&j)) {
        return status;
    }
    dist->exists = 1;
    find_transfers(&j);
    return fill(&j);
}
