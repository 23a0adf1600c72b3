/* get_rows and set_rows: rows found by index, decoded or encoded on the way; and their gradients, which add rows up, or find them again. */
#include "cpu/k_copy.h"
#include "cpu/k_past.h"
#include "op/op_layout.h"

/* Elements of a row that are never cut apart, multiples of every block; longer where a row is only copied. */
enum { PIECE = 1024, COPIED = 4096 };

static int row_is_dense(const qn_tensor *t) {
    return qn_is_block(t->dtype) || qn_ne(t, 0) == 1 || qn_nb(t, 0) == qn_dtype_describe((qn_dtype)t->dtype)->bytes;
}

static int64_t bytes_of(const qn_tensor *t, int64_t elements) {
    const qn_dtype_info *d = qn_dtype_describe((qn_dtype)t->dtype);
    return elements / d->block * d->bytes;
}

/* Where batch number n of `like` begins in t, whose axes from the k-th from the end on are tiled over those of `like` from the second. */
static int64_t batch_at(const qn_tensor *like, int64_t n, const qn_tensor *t, int k) {
    int64_t at = 0;
    for (int axis = 2; axis < like->rank; axis++, k++) {
        int64_t i = n % qn_ne(like, axis);
        n /= qn_ne(like, axis);
        at += i % qn_ne(t, k) * qn_nb(t, k);
    }
    return at;
}

static int64_t batches_of(const qn_tensor *t) {
    int64_t n = 1;
    for (int axis = 2; axis < t->rank; axis++) n *= qn_ne(t, axis);
    return n;
}

static int64_t index_at(const qn_tensor *idx, int64_t at, int64_t i) {
    return qn_load_index((qn_dtype)idx->dtype, qn_at(idx, at + i * qn_nb(idx, 0)));
}

/* ---- get_rows */

/* Of which elements of which row unit u is. */
typedef struct found {
    const char *from;
    char *to;
    int64_t n;
} found;

static found find(const qn_call *c, int64_t u, int64_t pieces) {
    const qn_tensor *a = c->src[0], *idx = c->src[1], *y = c->dst[0];
    int64_t wide = qn_ne(y, 0), of_batch = qn_ne(y, 1) * pieces, batch = u / of_batch, i = u % of_batch / pieces;
    int64_t first = u % pieces * COPIED, row = index_at(idx, batch_at(y, batch, idx, 1), i);
    return (found){qn_at(a, batch_at(y, batch, a, 2) + row * qn_nb(a, 1) + bytes_of(a, first)),
                   qn_at(y, batch_at(y, batch, y, 2) + i * qn_nb(y, 1) + bytes_of(y, first)),
                   wide - first < COPIED ? wide - first : COPIED};
}

static void run_get(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    (void)phase;
    const qn_tensor *a = c->src[0], *y = c->dst[0];
    int64_t pieces = (qn_ne(y, 0) + COPIED - 1) / COPIED, units = qn_tensor_count(y) / qn_ne(y, 0) * pieces;
    int64_t u = qn_cpu_cut(units, s->parts[0], part), end = qn_cpu_cut(units, s->parts[0], part + 1);
    int past = a->dtype == y->dtype && qn_past_is(y, c->src, 1);
    found f = {0}, next = {0};
    for (next = u < end ? find(c, u, pieces) : next; u < end; u++) {
        f = next;
        if (u + 1 < end) next = find(c, u + 1, pieces);
        if (past) qn_past_copy(f.to, f.from, bytes_of(y, f.n), next.from);
        else qn_copy_row(a->dtype, f.from, y->dtype, f.to, f.n);
    }
    if (past) qn_past_end();
}

int QN_K(get_rows)(const qn_call *c, qn_cpu_step *s) {
    const qn_tensor *a = c->src[0], *y = c->dst[0];
    if (qn_tensor_count(y) == 0 || !row_is_dense(a) || !row_is_dense(y) || !qn_copy_can(a->dtype, y->dtype)) return 0;
    int64_t pieces = (qn_ne(y, 0) + COPIED - 1) / COPIED, units = qn_tensor_count(y) / qn_ne(y, 0) * pieces;
    return qn_cpu_by_rows(s, "get_rows", run_get, units, 8.0 * (double)qn_tensor_count(y) / (double)units, 0);
}

/* ---- set_rows: where several rows go to one place the last stays, so a part takes its columns of all rows, in their order. */

static void set_columns(const qn_call *c, int64_t unit, int64_t pieces) {
    const qn_tensor *b = c->src[1], *idx = c->src[2], *y = c->dst[0];
    int64_t batch = unit / pieces, first = unit % pieces * PIECE, wide = qn_ne(b, 0),
            n = wide - first < PIECE ? wide - first : PIECE;
    int64_t from = batch_at(b, batch, b, 2) + bytes_of(b, first), to = batch_at(b, batch, y, 2) + bytes_of(y, first);
    int64_t indices = batch_at(b, batch, idx, 1);
    for (int64_t i = 0; i < qn_ne(b, 1); i++) {
        int64_t row = index_at(idx, indices, i);
        qn_copy_row(b->dtype, qn_at(b, from + i * qn_nb(b, 1)), y->dtype, qn_at(y, to + row * qn_nb(y, 1)), n);
    }
}

/* The last phase, and the only one of store_rows, which is always in place: one row for a cache must not cost what the cache would. */
static void run_store(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    const qn_tensor *b = c->src[1];
    int64_t pieces = (qn_ne(b, 0) + PIECE - 1) / PIECE, units = batches_of(b) * pieces, parts = s->parts[phase];
    for (int64_t u = qn_cpu_cut(units, parts, part), end = qn_cpu_cut(units, parts, part + 1); u < end; u++)
        set_columns(c, u, pieces);
}

/* The first phase copies what stays, unless it is there. */
static void run_set(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    qn_copy_loops l;
    if (phase == 1) run_store(c, s, phase, part);
    else if (!qn_op_in_place(c->dst[0], c->src[0]) && qn_copy_plan(c->dst[0], c->src[0], &l))
        qn_copy_units(&l, qn_cpu_cut(l.units, s->parts[0], part), qn_cpu_cut(l.units, s->parts[0], part + 1));
}

int QN_K(store_rows)(const qn_call *c, qn_cpu_step *s) {
    const qn_tensor *b = c->src[1], *y = c->dst[0];
    if (qn_tensor_count(b) == 0 || !row_is_dense(b) || !row_is_dense(y) || !qn_copy_can(b->dtype, y->dtype)) return 0;
    int64_t units = batches_of(b) * ((qn_ne(b, 0) + PIECE - 1) / PIECE);
    return qn_cpu_by_rows(s, "set_rows", run_store, units, 8.0 * (double)qn_tensor_count(b) / (double)units, 0);
}

int QN_K(set_rows)(const qn_call *c, qn_cpu_step *s) {
    const qn_tensor *y = c->dst[0];
    qn_copy_loops l;
    if (!QN_K(store_rows)(c, s) || !qn_copy_plan(y, c->src[0], &l)) return 0;
    s->run = run_set;
    s->n_phases = 2;
    s->parts[1] = s->parts[0];
    s->parts[0] = qn_cpu_parts(l.units, 8.0 * (double)qn_tensor_count(y) / (double)l.units, 0);
    return 1;
}

/* ---- get_rows_back and scatter_add_rows: rows that go to one place add up in their order, so a part takes columns again. */

static void add_columns(const qn_call *c, int64_t unit, int64_t pieces) {
    const qn_tensor *g = c->src[0], *idx = c->src[1], *y = c->dst[0];
    int64_t batch = unit / pieces, first = unit % pieces * PIECE, wide = qn_ne(g, 0);
    int64_t n = wide - first < PIECE ? wide - first : PIECE, indices = batch_at(g, batch, idx, 1);
    int64_t from = batch_at(g, batch, g, 2) + first * 4, to = batch_at(g, batch, y, 2) + first * 4;
    if (qn_nb(y, 1) == n * 4) memset(qn_at(y, to), 0, (size_t)(n * 4 * qn_ne(y, 1)));
    else
        for (int64_t i = 0; i < qn_ne(y, 1); i++) memset(qn_at(y, to + i * qn_nb(y, 1)), 0, (size_t)n * 4);
    for (int64_t i = 0; i < qn_ne(g, 1); i++) {
        int64_t later = i + 1 < qn_ne(g, 1) ? i + 1 : i; /* where the next row goes is asked for */
        const char *next = qn_at(y, to + index_at(idx, indices, later) * qn_nb(y, 1));
        float *sum = (float *)(void *)qn_at(y, to + index_at(idx, indices, i) * qn_nb(y, 1));
        const float *row = (const float *)(const void *)qn_at(g, from + i * qn_nb(g, 1));
        int64_t k = 0;
        for (; k + VF_N <= n; k += VF_N) {
            qn_far_ask(next + k * 4);
            vf_store(sum + k, vf_load(sum + k) + vf_load(row + k));
        }
        for (; k < n; k++) sum[k] += row[k];
    }
}

static void run_add(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    (void)phase;
    int64_t pieces = (qn_ne(c->src[0], 0) + PIECE - 1) / PIECE, units = batches_of(c->src[0]) * pieces;
    int64_t end = qn_cpu_cut(units, s->parts[0], part + 1);
    for (int64_t u = qn_cpu_cut(units, s->parts[0], part); u < end; u++) add_columns(c, u, pieces);
}

/* All batches of y are those of g, so that each is cleared once. */
static int prepare_add(const qn_call *c, qn_cpu_step *s) {
    const qn_tensor *g = c->src[0], *y = c->dst[0];
    if (qn_tensor_count(g) == 0 || qn_tensor_count(y) == 0 || g->dtype != QN_DTYPE_F32 || y->dtype != QN_DTYPE_F32) return 0;
    if (!row_is_dense(g) || !row_is_dense(y)) return 0;
    for (int k = 2; k < g->rank || k < y->rank; k++)
        if (qn_ne(g, k) != qn_ne(y, k)) return 0;
    int64_t units = batches_of(g) * ((qn_ne(g, 0) + PIECE - 1) / PIECE);
    return qn_cpu_by_rows(s, "rows added up", run_add, units,
                          8.0 * (double)(qn_tensor_count(g) + qn_tensor_count(y)) / (double)units, 0);
}

int QN_K(get_rows_back)(const qn_call *c, qn_cpu_step *s) { return prepare_add(c, s); }
int QN_K(scatter_add_rows)(const qn_call *c, qn_cpu_step *s) { return prepare_add(c, s); }

/* ---- set_rows_back: get_rows of the gradient, but zeros where a later row went to the same place. Which rows those are is found
 * first, for every list of indices: a table has the last row that went to each place, and only places that are asked for are written. */

static size_t flags_bytes(const qn_tensor *idx) { return ((size_t)qn_tensor_count(idx) + 63) / 64 * 64; }

static void find_last(const qn_call *c) {
    const qn_tensor *idx = c->src[1];
    unsigned char *last = c->workspace;
    int32_t *table = (int32_t *)(void *)(last + flags_bytes(idx));
    qn_rows it;
    for (qn_rows_begin(&it, idx->rank, idx->shape); it.live; qn_rows_next(&it), last += it.n) {
        int64_t at = qn_row(&it, idx) - qn_at(idx, 0);
        for (int64_t i = 0; i < it.n; i++) table[index_at(idx, at, i)] = (int32_t)i;
        for (int64_t i = 0; i < it.n; i++) last[i] = table[index_at(idx, at, i)] == i;
    }
}

/* The flags as a tensor of bytes, so that batches tile it as they tile the indices. */
static qn_tensor flags_of(const qn_tensor *idx) {
    qn_tensor t = *idx;
    int64_t next = 1;
    for (int i = t.rank - 1; i >= 0; next *= t.shape[i--]) t.stride[i] = next;
    return t;
}

static void run_set_back(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    const qn_tensor *y = c->dst[0];
    const unsigned char *last = c->workspace;
    qn_tensor flags = flags_of(c->src[1]);
    int64_t pieces = (qn_ne(y, 0) + COPIED - 1) / COPIED, units = qn_tensor_count(y) / qn_ne(y, 0) * pieces;
    if (phase == 0) {
        find_last(c);
        return;
    }
    for (int64_t u = qn_cpu_cut(units, s->parts[1], part), end = qn_cpu_cut(units, s->parts[1], part + 1); u < end; u++) {
        found f = find(c, u, pieces);
        int64_t of_batch = qn_ne(y, 1) * pieces, at = batch_at(y, u / of_batch, &flags, 1) + u % of_batch / pieces;
        if (last[at]) memcpy(f.to, f.from, (size_t)bytes_of(y, f.n));
        else memset(f.to, 0, (size_t)bytes_of(y, f.n));
    }
}

int QN_K(set_rows_back)(const qn_call *c, qn_cpu_step *s) {
    const qn_tensor *g = c->src[0], *idx = c->src[1], *y = c->dst[0];
    if (qn_tensor_count(y) == 0 || !row_is_dense(g) || !row_is_dense(y) || qn_ne(idx, 0) > INT32_MAX) return 0;
    int64_t pieces = (qn_ne(y, 0) + COPIED - 1) / COPIED, units = qn_tensor_count(y) / qn_ne(y, 0) * pieces;
    qn_cpu_by_rows(s, "set_rows_back", run_set_back, units, 8.0 * (double)qn_tensor_count(y) / (double)units, 0);
    s->n_phases = 2;
    s->parts[1] = s->parts[0];
    s->parts[0] = 1;
    s->workspace = flags_bytes(idx) + (size_t)qn_ne(g, 1) * sizeof(int32_t);
    return 1;
}
