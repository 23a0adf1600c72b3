/* Gathering the timeline. Strings are interned twice over: event names, which the page draws, apart from ids and thread names. */
#include "prof/timeline.h"

#include <math.h>
#include <string.h>

#include "prof/prof_sort.h"

enum { MOST_SERIES = 64 };

int qn_prof_timeline_is_span(const prof_item *item, int64_t *start, int64_t *dur) {
    *dur = 0;
    int complete = qn_prof_part_is(item, PROF_PART_PH, "X");
    int instant = !complete && (qn_prof_part_is(item, PROF_PART_PH, "i") || qn_prof_part_is(item, PROF_PART_PH, "I")) &&
                  !qn_prof_part_is(item, PROF_PART_NAME, "[memory]");
    if ((!complete && !instant) || !prof_has_part(item, PROF_PART_NAME) || item->part[PROF_PART_NAME].type != PROF_TOK_STRING ||
        !qn_prof_part_ns(item, PROF_PART_TS, start)) {
        return 0;
    }
    return instant || (qn_prof_part_ns(item, PROF_PART_DUR, dur) && *dur >= 0);
}

/* ---- Strings and keys --------------------------------------------------------------------------------------------- */

static uint32_t text_of(prof_text *text, const prof_item *item, const prof_tok *tok) {
    const char *at = item->scan->base + tok->at;
    if (tok->type == PROF_TOK_STRING) {
        return qn_prof_intern_json(text, at, tok->length, tok->escaped);
    }
    return tok->type == PROF_TOK_NULL ? 0 : qn_prof_intern(text, at, tok->length);
}

static uint32_t part_text(prof_text *text, const prof_item *item, prof_part part) {
    return prof_has_part(item, part) ? text_of(text, item, &item->part[part]) : 0;
}

/* Two indices as one key of a map. */
static prof_val pair(uint32_t a, uint32_t b) { return prof_int((int64_t)((uint64_t)a << 31 ^ b)); }

static uint32_t lane_of(prof_timeline *t, const prof_item *item) {
    uint32_t pid = part_text(&t->words, item, PROF_PART_PID);
    uint32_t tid = part_text(&t->words, item, PROF_PART_TID);
    if (pid == PROF_NIL || tid == PROF_NIL) {
        return PROF_NIL;
    }
    uint32_t *at = qn_prof_map_put(&t->lane_of, pair(pid, tid), (uint32_t)t->lanes.n);
    if (!at || *at < t->lanes.n) {
        return at ? *at : PROF_NIL;
    }
    if (!QN_VEC_ROOM(t->arena, &t->lanes, 1)) {
        return PROF_NIL;
    }
    prof_lane lane = {pid, tid, 0, prof_absent()};
    t->lanes.at[t->lanes.n] = lane;
    return (uint32_t)t->lanes.n++;
}

const prof_process *qn_prof_timeline_process(const prof_timeline *t, uint32_t pid) {
    const uint32_t *at = qn_prof_map_find(&t->process_of, pair(pid, 0));
    return at ? &t->processes.at[*at] : NULL;
}

static prof_process *process_of(prof_timeline *t, const prof_item *item) {
    uint32_t pid = part_text(&t->words, item, PROF_PART_PID);
    uint32_t *at = pid == PROF_NIL ? NULL : qn_prof_map_put(&t->process_of, pair(pid, 0), (uint32_t)t->processes.n);
    if (!at || !QN_VEC_ROOM(t->arena, &t->processes, 1)) {
        return NULL;
    }
    if (*at == t->processes.n) {
        prof_process process = {pid, 0, 0, prof_absent()};
        t->processes.at[t->processes.n++] = process;
    }
    return &t->processes.at[*at];
}

/* ---- Kinds of items ----------------------------------------------------------------------------------------------- */

static qn_status add_span(prof_timeline *t, const prof_item *item, int64_t start, int64_t dur) {
    prof_span span = {start,
                      dur,
                      lane_of(t, item),
                      part_text(&t->names, item, PROF_PART_NAME),
                      part_text(&t->names, item, PROF_PART_CAT),
                      (uint32_t)t->spans.n};
    if (span.lane == PROF_NIL || span.name == PROF_NIL || span.category == PROF_NIL || t->spans.n >= UINT32_MAX - 1 ||
        !QN_VEC_ROOM(t->arena, &t->spans, 1)) {
        return QN_NO_MEMORY;
    }
    t->spans.at[t->spans.n++] = span;
    return QN_OK;
}

static qn_status add_label(prof_timeline *t, const prof_item *item) {
    prof_tok value;
    int thread_name = qn_prof_part_is(item, PROF_PART_NAME, "thread_name");
    int thread_sort = qn_prof_part_is(item, PROF_PART_NAME, "thread_sort_index");
    const char *key = qn_prof_part_is(item, PROF_PART_NAME, "process_labels")                      ? "labels"
                      : thread_sort || qn_prof_part_is(item, PROF_PART_NAME, "process_sort_index") ? "sort_index"
                                                                                                   : "name";
    if (!qn_prof_item_arg(item, key, &value)) {
        return QN_OK;
    }
    uint32_t text = text_of(&t->words, item, &value);
    prof_num number = qn_prof_tok_number(item->scan, &value);
    if (thread_name || thread_sort) {
        uint32_t lane = lane_of(t, item);
        if (lane == PROF_NIL || text == PROF_NIL) {
            return QN_NO_MEMORY;
        }
        if (thread_name) {
            t->lanes.at[lane].name = text;
        } else {
            t->lanes.at[lane].sort = number;
        }
        return QN_OK;
    }
    prof_process *process = process_of(t, item);
    if (!process || text == PROF_NIL) {
        return QN_NO_MEMORY;
    }
    if (strcmp(key, "labels") == 0) {
        process->labels = text;
    } else if (strcmp(key, "sort_index") == 0) {
        process->sort = number;
    } else if (qn_prof_part_is(item, PROF_PART_NAME, "process_name")) {
        process->name = text;
    }
    return QN_OK;
}

static qn_status add_arrow_end(prof_timeline *t, const prof_item *item, int is_start) {
    int64_t ts;
    if (!prof_has_part(item, PROF_PART_ID) || !qn_prof_part_ns(item, PROF_PART_TS, &ts)) {
        return QN_OK;
    }
    uint32_t lane = lane_of(t, item);
    uint32_t id = part_text(&t->words, item, PROF_PART_ID), kind = part_text(&t->words, item, PROF_PART_CAT);
    uint32_t *at = lane == PROF_NIL || id == PROF_NIL || kind == PROF_NIL
                       ? NULL
                       : qn_prof_map_put(&t->arrow_of, pair(id, kind), (uint32_t)t->arrows.n);
    if (!at || !QN_VEC_ROOM(t->arena, &t->arrows, 1)) {
        return QN_NO_MEMORY;
    }
    if (*at == t->arrows.n) {
        prof_arrow none = {PROF_NIL, PROF_NIL, 0, 0};
        t->arrows.at[t->arrows.n++] = none;
    }
    prof_arrow *arrow = &t->arrows.at[*at];
    *(is_start ? &arrow->from_lane : &arrow->to_lane) = lane;
    *(is_start ? &arrow->from : &arrow->to) = ts;
    return QN_OK;
}

static qn_status add_point(prof_timeline *t, uint32_t lane, uint32_t name, uint32_t key, int64_t ts, double value) {
    uint32_t *of_lane = qn_prof_map_put(&t->series_of, pair(lane, name), (uint32_t)t->series_of.entries.n);
    uint32_t group = of_lane ? *of_lane | 1u << 30 : 0; /* apart from the lanes, which are the other first half of keys */
    uint32_t *at = of_lane ? qn_prof_map_put(&t->series_of, pair(group, key), PROF_NIL) : NULL;
    if (!at || !QN_VEC_ROOM(t->arena, &t->series, 1) || !QN_VEC_ROOM(t->arena, &t->points, 1)) {
        return QN_NO_MEMORY;
    }
    if (*at == PROF_NIL) {
        if (t->series.n == MOST_SERIES) {
            return QN_OK;
        }
        prof_series series = {lane, name, key};
        *at = (uint32_t)t->series.n;
        t->series.at[t->series.n++] = series;
    }
    prof_point point = {*at, ts, value};
    t->points.at[t->points.n++] = point;
    return QN_OK;
}

static qn_status add_counter(prof_timeline *t, const prof_item *item) {
    int64_t ts;
    if (!qn_prof_part_ns(item, PROF_PART_TS, &ts) || !prof_has_part(item, PROF_PART_ARGS) ||
        *prof_part_text(item, PROF_PART_ARGS) != '{') {
        return QN_OK;
    }
    uint32_t lane = lane_of(t, item), name = part_text(&t->words, item, PROF_PART_NAME);
    if (lane == PROF_NIL || name == PROF_NIL) {
        return QN_NO_MEMORY;
    }
    const char *p = prof_part_text(item, PROF_PART_ARGS) + 1;
    int closed;
    for (int first = 1;; first = 0) {
        prof_tok key, value;
        if (qn_prof_scan_member(item->scan, &p, first, &key, &closed) != PROF_SCAN_OK || closed ||
            qn_prof_scan_value(item->scan, &p, &value) != PROF_SCAN_OK) {
            return QN_OK;
        }
        prof_num number = qn_prof_tok_number(item->scan, &value);
        uint32_t word = text_of(&t->words, item, &key);
        if (word == PROF_NIL) {
            return QN_NO_MEMORY;
        }
        qn_status status = QN_OK;
        if (prof_is_num(number) && isfinite(prof_to_dbl(number))) {
            status = add_point(t, lane, name, word, ts, prof_to_dbl(number));
        }
        if (status != QN_OK) {
            return status;
        }
    }
}

static qn_status take(void *user, const prof_item *item) {
    prof_timeline *t = user;
    int64_t start, dur;
    if (qn_prof_timeline_is_span(item, &start, &dur)) {
        return add_span(t, item, start, dur);
    }
    if (qn_prof_part_is(item, PROF_PART_PH, "M")) {
        return add_label(t, item);
    }
    if (qn_prof_part_is(item, PROF_PART_PH, "s") || qn_prof_part_is(item, PROF_PART_PH, "f")) {
        return add_arrow_end(t, item, qn_prof_part_is(item, PROF_PART_PH, "s"));
    }
    if (qn_prof_part_is(item, PROF_PART_PH, "C")) {
        return add_counter(t, item);
    }
    t->left_out += (uint64_t)qn_prof_part_is(item, PROF_PART_PH, "X");
    return QN_OK;
}

/* ---- Order -------------------------------------------------------------------------------------------------------- */

static int span_first(const void *left, const void *right, const void *unused) {
    const prof_span *a = left, *b = right;
    (void)unused;
    return a->start != b->start ? a->start < b->start : a->dur > b->dur;
}

static int point_first(const void *left, const void *right, const void *unused) {
    const prof_point *a = left, *b = right;
    (void)unused;
    return a->series != b->series ? a->series < b->series : a->ts < b->ts;
}

qn_status qn_prof_timeline_build(prof_timeline *t, qn_arena *arena, const char *path, const qn_profile_options *options,
                                 qn_error *error) {
    memset(t, 0, sizeof *t);
    t->arena = arena;
    qn_prof_map_init(&t->lane_of, arena);
    qn_prof_map_init(&t->process_of, arena);
    qn_prof_map_init(&t->arrow_of, arena);
    qn_prof_map_init(&t->series_of, arena);
    qn_status status = qn_prof_text_init(&t->names, arena);
    status = status == QN_OK ? qn_prof_text_init(&t->words, arena) : status;
    status = status == QN_OK ? qn_prof_timeline_scan(arena, path, options, take, t, error) : status;
    if (status == QN_OK) {
        status = qn_prof_sort(arena, t->spans.at, t->spans.n, sizeof *t->spans.at, span_first, NULL);
    }
    if (status == QN_OK) {
        status = qn_prof_sort(arena, t->points.at, t->points.n, sizeof *t->points.at, point_first, NULL);
    }
    if (status == QN_NO_MEMORY) {
        return qn_error_set(error, QN_NO_MEMORY, "%s: no memory for the timeline", path);
    }
    t->start = t->spans.n ? t->spans.at[0].start : 0;
    return status;
}
