/* Sessions: a plan for a model and the sequences it remembers. A call is cut into runs of the plan: at most `batch` tokens of one
 * sequence, or as many of several that stand beside each other, so that weights are read once for all of them. */
#include "model/session.h"

#include "base/heap.h"
#include "run/plan_input.h"

enum { BATCH = 512, STEP = 256, SMALL_STEP = 32, MOST_SEQUENCES = 1024, MOST_BATCH = 65536 };

/* ---- Making one */

static qn_status check_type(qn_dtype type, qn_error *error) {
    const qn_dtype_info *info = qn_dtype_describe(type);
    if (info && (info->kind == QN_KIND_FLOAT || info->kind == QN_KIND_BLOCK)) return QN_OK;
    return qn_error_set(error, QN_ARGUMENT, "a cache cannot be of dtype %d, %s", (int)type, info ? info->name : "which is none");
}

static qn_status take_shape(qn_session *s, const qn_session_options *o, qn_error *error) {
    const qn_hparams *h = &s->m->h;
    if (o && o->size < sizeof *o)
        return qn_error_set(error, QN_ARGUMENT, "session options of %u bytes, expected %zu", o->size, sizeof *o);
    qn_dtype standard = o && o->flags & QN_SESSION_F32_CACHE ? QN_DTYPE_F32 : QN_DTYPE_F16;
    s->context = o && o->context ? o->context : h->context < QN_DEFAULT_CONTEXT ? h->context : QN_DEFAULT_CONTEXT;
    s->shape.sequences = o && o->sequences ? o->sequences : 1;
    s->shape.batch = o && o->batch ? o->batch : BATCH;
    s->shape.k = o && o->k ? o->k : standard;
    s->shape.v = o && o->v ? o->v : standard;
    QN_TRY(check_type(s->shape.k, error));
    QN_TRY(check_type(s->shape.v, error));
    if (s->context < 1 || s->context > (1 << 26) || s->shape.sequences < 1 || s->shape.sequences > MOST_SEQUENCES ||
        s->shape.batch < 1 || s->shape.batch > MOST_BATCH)
        return qn_error_set(error, QN_ARGUMENT, "a session of %d sequences of %lld tokens in runs of %d makes no sense",
                            s->shape.sequences, (long long)s->context, s->shape.batch);
    if (s->m->arch->has & (QN_HAS_POSITIONS | QN_HAS_POSITIONS_MAYBE) && s->context > h->context)
        return qn_error_set(error, QN_INVALID, "the model knows %lld positions, a context of %lld is too long",
                            (long long)h->context, (long long)s->context);
    s->shape.step = s->context >= STEP ? STEP : SMALL_STEP;
    s->shape.context = (s->context + s->shape.step - 1) / s->shape.step * s->shape.step;
    if (s->shape.batch > s->context) s->shape.batch = (int32_t)s->context;
    int64_t rows = qn_model_cache_rows(&s->shape);
    if (rows > INT32_MAX) return qn_error_set(error, QN_ARGUMENT, "%lld cells of cache are too many", (long long)rows);
    return QN_OK;
}

static void *room(qn_session *s, uint64_t count, size_t size, qn_status *status) {
    void *at = *status == QN_OK ? qn_arena_alloc(&s->arena, (size_t)count, size) : NULL;
    if (!at) *status = QN_NO_MEMORY;
    return at;
}

static qn_status make_room(qn_session *s, qn_error *error) {
    qn_status status = QN_OK;
    uint64_t n = (uint64_t)s->shape.sequences;
    s->sequences = room(s, n, sizeof *s->sequences, &status);
    s->first_row = room(s, n, sizeof *s->first_row, &status);
    s->n_rows = room(s, n, sizeof *s->n_rows, &status);
    s->part_length = room(s, n, sizeof *s->part_length, &status);
    for (uint64_t i = 0; i < n && status == QN_OK; i++)
        s->sequences[i].ids = room(s, (uint64_t)s->context, sizeof(int32_t), &status);
    return status == QN_OK ? QN_OK
                           : qn_error_set(error, status, "no memory for a session of %llu sequences", (unsigned long long)n);
}

/* Weights are lent as they lie in the file; the cache, which is not in it, begins empty, and with the first run: until then a session
 * has allocated nothing large, and can be asked what it will. */
static qn_status give_params(qn_session *s, int cache, qn_error *error) {
    qn_value_info info;
    info.size = sizeof info;
    for (int32_t v = 0; v < qn_graph_value_count(s->graph); v++) {
        if (qn_graph_value(s->graph, v, &info) != QN_OK || info.kind != QN_VALUE_PARAM) continue;
        qn_file_tensor t;
        qn_tensor zeros;
        uint64_t bytes = 0;
        int in_file = qn_file_entry(s->m->file, qn_file_find(s->m->file, QN_FILE_TENSORS, info.name), &t) == QN_OK;
        if (in_file && !cache) QN_TRY(qn_plan_lend(s->plan, info.name, &t.tensor, error));
        if (in_file || !cache) continue;
        qn_tensor_bytes(info.dtype, info.rank, info.shape, &bytes);
        qn_tensor_init(&zeros, info.dtype, info.rank, info.shape, NULL, bytes);
        QN_TRY(qn_plan_set(s->plan, info.name, &zeros, error));
        QN_TRY(qn_plan_keep(s->plan, info.name, error));
    }
    return QN_OK;
}

static void *input(qn_session *s, const char *name, qn_status *status, qn_error *error) {
    void *at = NULL;
    if (*status == QN_OK) *status = qn_plan_input_room(s->plan, name, &at, error);
    return at;
}

static qn_status find_inputs(qn_session *s, qn_error *error) {
    qn_session_inputs *in = &s->in;
    qn_status status = QN_OK;
    int encoder = (s->m->arch->has & QN_IS_ENCODER) != 0, windowed = 0;
    for (int i = 0; i < s->m->h.n_layers; i++) windowed |= s->m->h.layers[i].windowed;
    in->tokens = input(s, "tokens", &status, error);
    in->positions = input(s, "positions", &status, error);
    in->wanted = input(s, "wanted", &status, error);
    in->mask = input(s, "mask", &status, error);
    if (windowed) in->mask_window = input(s, "mask_window", &status, error);
    if (!encoder) in->cells = input(s, "cells", &status, error);
    if (!encoder) in->last = input(s, "last", &status, error);
    return status;
}

qn_status qn_session_need_cache(qn_session *s, qn_error *error) {
    if (s->has_cache) return QN_OK;
    QN_TRY(give_params(s, 1, error));
    QN_TRY(find_inputs(s, error));
    s->has_cache = 1;
    return QN_OK;
}

static qn_status make_plan(qn_session *s, const qn_session_options *o, qn_error *error) {
    qn_plan_options options;
    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    options.flags = QN_PLAN_LEND | (o && o->flags & QN_SESSION_TIMED ? QN_PLAN_TIMED : 0);
    options.memory_cap = o ? o->memory_cap : 0;
    options.device = o ? o->device : NULL;
    QN_TRY(qn_model_build(s->m, &s->shape, &s->graph, error));
    QN_TRY(qn_plan_create(s->graph, &options, &s->plan, error));
    return give_params(s, 0, error);
}

qn_status qn_session_create(qn_model *model, const qn_session_options *options, qn_session **session, qn_error *error) {
    if (!model || !session) return qn_error_set(error, QN_ARGUMENT, "a model and room for a session are needed");
    *session = NULL;
    if (!model->arch) return qn_error_set(error, QN_INVALID, "the model was opened for its vocabulary alone");
    qn_session *s = qn_heap_zeroed(1, sizeof *s);
    if (!s) return qn_error_set(error, QN_NO_MEMORY, "no memory for a session");
    qn_arena_init(&s->arena, 0);
    s->m = model;
    s->width = model->arch->has & QN_IS_ENCODER ? model->h.n_embd : model->h.n_vocab;
    qn_status status = take_shape(s, options, error);
    if (status == QN_OK) s->run = options ? options->run : NULL;
    if (status == QN_OK) status = make_plan(s, options, error);
    if (status == QN_OK) status = make_room(s, error);
    if (status == QN_OK) *session = s;
    else qn_session_destroy(s);
    return status;
}

void qn_session_destroy(qn_session *s) {
    if (!s) return;
    qn_plan_destroy(s->plan);
    qn_graph_destroy(s->graph);
    qn_heap_free(s->rows);
    qn_arena_destroy(&s->arena);
    qn_heap_free(s);
}

const qn_plan *qn_session_plan(const qn_session *s) { return s ? s->plan : NULL; }

/* ---- Running */

static qn_status check_part(const qn_session *s, const qn_session_part *part, int encoder, qn_error *error) {
    if (part->sequence < 0 || part->sequence >= s->shape.sequences)
        return qn_error_set(error, QN_INVALID, "sequence %d: the session has %d", part->sequence, s->shape.sequences);
    if (part->n < 1 || !part->ids) return qn_error_set(error, QN_INVALID, "sequence %d: no tokens", part->sequence);
    int64_t have = encoder ? 0 : s->sequences[part->sequence].length;
    if (part->n > s->context - have)
        return qn_error_set(error, QN_INVALID, "sequence %d holds %lld tokens and %d more do not fit its context of %lld",
                            part->sequence, (long long)have, part->n, (long long)s->context);
    if (encoder && part->n > s->shape.batch)
        return qn_error_set(error, QN_INVALID, "an encoder sees a text whole: %d tokens are more than the batch of %d", part->n,
                            s->shape.batch);
    for (int32_t i = 0; i < part->n; i++)
        if (part->ids[i] < 0 || part->ids[i] >= s->m->h.n_vocab)
            return qn_error_set(error, QN_INVALID, "token %d is %d, the vocabulary has %d", i, part->ids[i], s->m->h.n_vocab);
    return QN_OK;
}

static qn_status check_parts(const qn_session *s, const qn_session_part *parts, int n, qn_error *error) {
    int encoder = (s->m->arch->has & QN_IS_ENCODER) != 0;
    if (n < 1 || n > s->shape.sequences)
        return qn_error_set(error, QN_INVALID, "%d parts for %d sequences", n, s->shape.sequences);
    for (int i = 0; i < n; i++) {
        QN_TRY(check_part(s, &parts[i], encoder, error));
        for (int k = 0; k < i; k++)
            if (parts[k].sequence == parts[i].sequence)
                return qn_error_set(error, QN_INVALID, "sequence %d is there twice", parts[i].sequence);
    }
    return QN_OK;
}

static qn_status need_rows(qn_session *s, const qn_session_part *parts, int n, qn_error *error) {
    uint64_t rows = 0;
    for (int i = 0; i < n; i++) {
        s->first_row[i] = (int32_t)rows;
        s->n_rows[i] = parts[i].all ? parts[i].n : 1;
        s->part_length[i] = parts[i].n;
        rows += (uint64_t)s->n_rows[i];
    }
    s->n_parts = n;
    s->results = NULL;
    if (rows <= s->rows_cap) return QN_OK;
    float *more = rows > SIZE_MAX / sizeof(float) / (uint64_t)s->width
                      ? NULL
                      : qn_heap_resize(s->rows, (size_t)rows * (size_t)s->width * sizeof(float));
    if (!more) return qn_error_set(error, QN_NO_MEMORY, "no memory for results of %llu tokens", (unsigned long long)rows);
    s->rows = more;
    s->rows_cap = rows;
    return QN_OK;
}

/* Where the call stands: how many tokens of each part are done. */
typedef struct progress {
    const qn_session_part *parts;
    int n;
    int32_t *done;
} progress;

static int part_of(const progress *p, int32_t sequence) {
    for (int i = 0; i < p->n; i++)
        if (p->parts[i].sequence == sequence && p->done[i] < p->parts[i].n) return i;
    return -1;
}

static int64_t next_tokens(const qn_session *s, const progress *p, int part) {
    int64_t left = p->parts[part].n - p->done[part];
    return left < s->shape.batch ? left : s->shape.batch;
}

/* The next run: the first sequence that has tokens left, and those behind it that have as many. */
static int next_group(const qn_session *s, const progress *p, qn_session_group *g) {
    int32_t first = 0;
    while (first < s->shape.sequences && part_of(p, first) < 0) first++;
    if (first == s->shape.sequences) return 0;
    *g = (qn_session_group){first, 1, next_tokens(s, p, part_of(p, first)), 0};
    for (int32_t next = first + 1; next < s->shape.sequences; next++) {
        int part = part_of(p, next);
        if (part < 0 || next_tokens(s, p, part) != g->tokens || (g->count + 1) * g->tokens > s->shape.batch) break;
        g->count++;
    }
    return 1;
}

/* Tokens of the group, and which of them give results. A run always gives one, wanted or not. */
static void fill_group(qn_session *s, const progress *p, qn_session_group *g) {
    int64_t at = 0;
    for (int32_t i = 0; i < g->count; i++) {
        int part = part_of(p, g->first + i);
        for (int64_t t = 0; t < g->tokens; t++, at++) {
            int64_t number = p->done[part] + t;
            s->in.tokens[at] = p->parts[part].ids[number];
            if (p->parts[part].all || number == p->parts[part].n - 1) s->in.wanted[g->n_wanted++] = (int32_t)at;
        }
    }
    if (!g->n_wanted) s->in.wanted[g->n_wanted++] = (int32_t)(at - 1);
}

/* Results of the run into the rows of their parts. */
static qn_status keep_results(qn_session *s, const progress *p, const qn_session_group *g, qn_error *error) {
    qn_tensor t;
    QN_TRY(qn_plan_output(s->plan, "result", &t, error));
    const float *from = (const float *)(const void *)((const char *)t.data + t.offset);
    for (int64_t w = 0; w < g->n_wanted; w++) {
        int part = part_of(p, g->first + (int32_t)(s->in.wanted[w] / g->tokens));
        int64_t number = p->done[part] + s->in.wanted[w] % g->tokens;
        int64_t row = p->parts[part].all ? number : number == p->parts[part].n - 1 ? 0 : -1;
        if (row >= 0)
            memcpy(s->rows + (s->first_row[part] + row) * s->width, from + w * s->width, (size_t)s->width * sizeof(float));
    }
    return QN_OK;
}

static void advance(qn_session *s, progress *p, const qn_session_group *g) {
    int encoder = (s->m->arch->has & QN_IS_ENCODER) != 0;
    for (int32_t i = 0; i < g->count; i++) {
        int part = part_of(p, g->first + i);
        qn_sequence *q = &s->sequences[g->first + i];
        if (!encoder) {
            memcpy(q->ids + q->length, p->parts[part].ids + p->done[part], (size_t)g->tokens * sizeof(int32_t));
            q->length += g->tokens;
        }
        p->done[part] += (int32_t)g->tokens;
    }
}

static qn_status run_groups(qn_session *s, progress *p, qn_error *error) {
    qn_session_group g;
    while (next_group(s, p, &g)) {
        if (atomic_load(&s->cancelled)) return qn_error_set(error, QN_CANCELLED, "the run was cancelled");
        fill_group(s, p, &g);
        QN_TRY(qn_session_feed(s, &g, error));
        QN_TRY(qn_plan_run(s->plan, s->run, error));
        QN_TRY(keep_results(s, p, &g, error));
        advance(s, p, &g);
    }
    return QN_OK;
}

qn_status qn_session_go_on(qn_session *s, const qn_session_part *parts, int n_parts, qn_error *error) {
    QN_TRY(check_parts(s, parts, n_parts, error));
    QN_TRY(need_rows(s, parts, n_parts, error));
    QN_TRY(qn_session_need_cache(s, error));
    progress p = {parts, n_parts, qn_heap_zeroed((size_t)n_parts, sizeof(int32_t))};
    if (!p.done) return qn_error_set(error, QN_NO_MEMORY, "no memory for a run");
    qn_status status = run_groups(s, &p, error);
    qn_heap_free(p.done);
    if (status == QN_OK) s->results = s->rows;
    return status;
}

void qn_session_uncancel(qn_session *s) {
    atomic_store(&s->cancelled, 0);
    qn_plan_uncancel(s->plan);
}

qn_status qn_session_run(qn_session *s, const qn_session_part *parts, int n_parts, qn_error *error) {
    if (!s || !parts) return qn_error_set(error, QN_ARGUMENT, "a session and parts are needed");
    qn_status status = qn_session_go_on(s, parts, n_parts, error);
    qn_session_uncancel(s);
    return status;
}

const float *qn_session_result(const qn_session *s, int part, int32_t token) {
    if (!s || !s->results || part < 0 || part >= s->n_parts) return NULL;
    int64_t number = token < 0 ? s->part_length[part] - 1 : token;
    int64_t row = number - (s->part_length[part] - s->n_rows[part]);
    return number >= s->part_length[part] || row < 0 ? NULL : s->results + (s->first_row[part] + row) * s->width;
}

int64_t qn_session_length(const qn_session *s, int32_t sequence) {
    return s && sequence >= 0 && sequence < s->shape.sequences ? s->sequences[sequence].length : 0;
}

qn_status qn_session_cut(qn_session *s, int32_t sequence, int64_t length, qn_error *error) {
    if (!s || sequence < 0 || sequence >= s->shape.sequences || length < 0 || length > s->sequences[sequence].length)
        return qn_error_set(error, QN_ARGUMENT, "sequence %d cannot be cut to %lld tokens", sequence, (long long)length);
    s->sequences[sequence].length = length;
    return QN_OK;
}

void qn_session_cancel(qn_session *s) {
    if (!s) return;
    atomic_store(&s->cancelled, 1);
    qn_plan_cancel(s->plan);
}
