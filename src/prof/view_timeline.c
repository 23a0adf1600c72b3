/* The two views the page's timeline lives on. `timeline` is the spans in columns; times are nanoseconds, starts as steps from one
 * span to the next. `timeline_args` is the arguments of spans as the file writes them, each a string: of one chunk when the
 * request's path is its number, else of all, cut to what a report can carry. */
#include <stdlib.h>
#include <string.h>

#include "prof/timeline.h"
#include "prof/view_util.h"

enum { CUT_IN_REPORT = 1500, CUT_IN_CHUNK = 65536, MOST_IN_REPORT = 96 * 1024 * 1024 };

static void put_string(prof_json *json, const prof_text *text, uint32_t id) {
    const prof_str *s = &text->strs.at[id];
    qn_prof_json_bytes(json, id ? s->at : "", id ? s->length : 0);
}

static void put_names(prof_json *json, const prof_timeline *t) {
    qn_prof_json_key(json, "names");
    qn_prof_json_array(json);
    for (size_t i = 0; i < t->names.strs.n; i++) {
        put_string(json, &t->names, (uint32_t)i);
    }
    qn_prof_json_array_end(json);
}

/* "python" with the label "GPU 0" is told apart from its neighbours as "python (GPU 0)". */
static void put_process(prof_json *json, const prof_timeline *t, const prof_process *process) {
    const prof_str *name = &t->words.strs.at[process->name], *labels = &t->words.strs.at[process->labels];
    qn_prof_json_string_begin(json);
    if (process->name) {
        qn_prof_json_part_bytes(json, name->at, name->length);
    }
    if (process->labels) {
        qn_prof_json_part(json, process->name ? " (" : "");
        qn_prof_json_part_bytes(json, labels->at, labels->length);
        qn_prof_json_part(json, process->name ? ")" : "");
    }
    qn_prof_json_string_end(json);
}

static void put_lanes(prof_json *json, const prof_timeline *t) {
    static const prof_process unnamed;
    qn_prof_json_key(json, "lanes");
    qn_prof_json_array(json);
    for (size_t i = 0; i < t->lanes.n; i++) {
        const prof_lane *lane = &t->lanes.at[i];
        const prof_process *process = qn_prof_timeline_process(t, lane->pid);
        process = process ? process : &unnamed;
        qn_prof_json_object(json);
        qn_prof_json_key(json, "pid");
        put_string(json, &t->words, lane->pid);
        qn_prof_json_key(json, "tid");
        put_string(json, &t->words, lane->tid);
        qn_prof_json_key(json, "process");
        put_process(json, t, process);
        qn_prof_json_key(json, "thread");
        put_string(json, &t->words, lane->name);
        qn_prof_json_key(json, "process_sort");
        qn_prof_json_num(json, process->sort);
        qn_prof_json_key(json, "thread_sort");
        qn_prof_json_num(json, lane->sort);
        qn_prof_json_object_end(json);
    }
    qn_prof_json_array_end(json);
}

typedef int64_t (*column_fn)(const prof_span *span, const prof_span *before);

static int64_t step_of(const prof_span *span, const prof_span *before) { return span->start - before->start; }
static int64_t dur_of(const prof_span *span, const prof_span *before) { return (void)before, span->dur; }
static int64_t lane_of(const prof_span *span, const prof_span *before) { return (void)before, (int64_t)span->lane; }
static int64_t name_of(const prof_span *span, const prof_span *before) { return (void)before, (int64_t)span->name; }
static int64_t category_of(const prof_span *span, const prof_span *before) { return (void)before, (int64_t)span->category; }
static int64_t seq_of(const prof_span *span, const prof_span *before) { return (int64_t)span->seq - (int64_t)before->seq; }

static void put_columns(prof_json *json, const prof_timeline *t) {
    static const struct {
        const char *name;
        column_fn value;
    } COLUMNS[] = {{"ts", step_of}, {"dur", dur_of}, {"lane", lane_of}, {"name", name_of}, {"cat", category_of}, {"seq", seq_of}};
    for (size_t c = 0; c < sizeof COLUMNS / sizeof *COLUMNS; c++) {
        prof_span before = {t->start, 0, 0, 0, 0, 0};
        qn_prof_json_key(json, COLUMNS[c].name);
        qn_prof_json_array(json);
        for (size_t i = 0; i < t->spans.n; i++) {
            qn_prof_json_int(json, COLUMNS[c].value(&t->spans.at[i], &before));
            before = t->spans.at[i];
        }
        qn_prof_json_array_end(json);
    }
}

static void put_arrows(prof_json *json, const prof_timeline *t) {
    static const char *const NAMES[] = {"from_lane", "from", "to_lane", "to"};
    qn_prof_json_key(json, "flows");
    qn_prof_json_object(json);
    for (int part = 0; part < 4; part++) {
        qn_prof_json_key(json, NAMES[part]);
        qn_prof_json_array(json);
        for (size_t i = 0; i < t->arrows.n; i++) {
            const prof_arrow *a = &t->arrows.at[i];
            const int64_t values[] = {a->from_lane, a->from - t->start, a->to_lane, a->to - t->start};
            if (a->from_lane != PROF_NIL && a->to_lane != PROF_NIL) {
                qn_prof_json_int(json, values[part]);
            }
        }
        qn_prof_json_array_end(json);
    }
    qn_prof_json_object_end(json);
}

static void put_counters(prof_json *json, const prof_timeline *t) {
    size_t begin = 0;
    qn_prof_json_key(json, "counters");
    qn_prof_json_array(json);
    for (size_t s = 0; s < t->series.n; s++) {
        size_t end = begin;
        while (end < t->points.n && t->points.at[end].series == s) {
            end++;
        }
        qn_prof_json_object(json);
        qn_prof_json_key(json, "lane");
        qn_prof_json_int(json, t->series.at[s].lane);
        qn_prof_json_key(json, "name");
        put_string(json, &t->words, t->series.at[s].name);
        qn_prof_json_key(json, "key");
        put_string(json, &t->words, t->series.at[s].key);
        qn_prof_json_key(json, "ts");
        qn_prof_json_array(json);
        for (size_t i = begin; i < end; i++) {
            qn_prof_json_int(json, t->points.at[i].ts - t->start);
        }
        qn_prof_json_array_end(json);
        qn_prof_json_key(json, "value");
        qn_prof_json_array(json);
        for (size_t i = begin; i < end; i++) {
            qn_prof_json_dbl(json, t->points.at[i].value);
        }
        qn_prof_json_array_end(json);
        qn_prof_json_object_end(json);
        begin = end;
    }
    qn_prof_json_array_end(json);
}

qn_status qn_prof_view_timeline(const prof_view_context *context, prof_json *json, qn_error *error) {
    prof_timeline t;
    qn_status status = qn_prof_timeline_build(&t, context->arena, context->trace->path, &context->trace->options, error);
    if (status != QN_OK) {
        return status;
    }
    qn_prof_json_object(json);
    qn_prof_json_key(json, "start"); /* microseconds, like the times of the other views */
    qn_prof_json_num(json, t.start % 1000 ? prof_dbl((double)t.start / 1e3) : prof_int(t.start / 1000));
    put_names(json, &t);
    put_lanes(json, &t);
    put_columns(json, &t);
    put_arrows(json, &t);
    put_counters(json, &t);
    qn_prof_json_key(json, "args_chunk");
    qn_prof_json_int(json, PROF_ARGS_CHUNK);
    qn_prof_json_key(json, "left_out");
    qn_prof_json_int(json, (int64_t)t.left_out);
    qn_prof_json_object_end(json);
    return QN_OK;
}

/* ---- Arguments ---------------------------------------------------------------------------------------------------- */

typedef struct args_job {
    prof_json *json;
    uint64_t at, first, end; /* spans, in file order */
    size_t cut, left;        /* bytes of one; bytes of all that may still be written */
} args_job;

static qn_status take_args(void *user, const prof_item *item) {
    static const char LEFT_OUT[] = "left out of the report; quern profile serve shows it";
    args_job *job = user;
    int64_t start, dur;
    if (!qn_prof_timeline_is_span(item, &start, &dur)) {
        return QN_OK;
    }
    uint64_t at = job->at++;
    if (at < job->first || at >= job->end) {
        return QN_OK;
    }
    int has = prof_has_part(item, PROF_PART_ARGS);
    size_t length = has ? item->part[PROF_PART_ARGS].length : 0;
    length = length < job->cut ? length : job->cut;
    if (length > job->left) {
        qn_prof_json_bytes(job->json, LEFT_OUT, sizeof LEFT_OUT - 1);
        return job->json->status;
    }
    job->left -= length;
    qn_prof_json_bytes(job->json, has ? prof_part_text(item, PROF_PART_ARGS) : "", length);
    return job->json->status;
}

qn_status qn_prof_view_timeline_args(const prof_view_context *context, prof_json *json, qn_error *error) {
    const char *path = context->request->path;
    args_job job = {json, 0, 0, UINT64_MAX, CUT_IN_REPORT, MOST_IN_REPORT};
    if (path) {
        char *end;
        unsigned long chunk = strtoul(path, &end, 10);
        if (*path < '0' || *path > '9' || *end || chunk > UINT32_MAX / PROF_ARGS_CHUNK) {
            return qn_error_set(error, QN_ARGUMENT, "timeline_args: the path is the number of a chunk, not '%.40s'", path);
        }
        job.first = (uint64_t)chunk * PROF_ARGS_CHUNK;
        job.end = job.first + PROF_ARGS_CHUNK;
        job.cut = CUT_IN_CHUNK;
        job.left = SIZE_MAX;
    }
    qn_prof_json_array(json);
    qn_status status = qn_prof_timeline_scan(context->arena, context->trace->path, &context->trace->options, take_args, &job,
                                             error);
    qn_prof_json_array_end(json);
    return status;
}
