/* get_rows and set_rows: rows found by index, decoded or encoded on the way; and their gradients, which add rows up, or find them again. */
#include "cpu/k_copy.h"
#include "cpu/k_past.h"
#include "op/op_layout.h"

/* Elements of a row that are never cut apart, multiples of every block; longer where a row is only copied. */
enum { PIECE = 1024, COPIED = 4096 };
/* Rows of so few bytes are asked for so many rows before they are read: machines do not know where the next one lies. */
enum { SHORT = 1024, ROWS_AHEAD = 8 };

static int row_is_dense(const qn_tensor *t) {
    return qn_is_block(t->dtype) || qn_ne(t, 0) == 1 || qn_nb(t, 0) == qn_dtype_bytes(t->dtype);
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

/* Units are pieces of rows: which one is at hand, and where its batch begins. */
typedef struct getting {
    const qn_call *c;
    int64_t pieces, batch, row, piece;
    const char *a;
    char *y;
    int64_t idx;
} getting;

static void open_batch(getting *g) {
    const qn_tensor *a = g->c->src[0], *idx = g->c->src[1], *y = g->c->dst[0];
    g->a = qn_at(a, batch_at(y, g->batch, a, 2));
    g->y = qn_at(y, batch_at(y, g->batch, y, 2));
    g->idx = batch_at(y, g->batch, idx, 1);
}

static getting getting_at(const qn_call *c, int64_t u, int64_t pieces) {
    int64_t of_batch = qn_ne(c->dst[0], 1) * pieces;
    getting g = {.c = c, .pieces = pieces, .batch = u / of_batch, .row = u % of_batch / pieces, .piece = u % pieces};
    open_batch(&g);
    return g;
}

static void go_on(getting *g) {
    if (++g->piece < g->pieces) return;
    g->piece = 0;
    if (++g->row < qn_ne(g->c->dst[0], 1)) return;
    g->row = 0;
    g->batch++;
    open_batch(g);
}

/* What a unit copies. */
typedef struct found {
    const char *from;
    char *to;
    int64_t n;
} found;

static found find(const getting *g) {
    const qn_tensor *a = g->c->src[0], *y = g->c->dst[0];
    int64_t wide = qn_ne(y, 0), first = g->piece * COPIED;
    found f = {g->a + index_at(g->c->src[1], g->idx, g->row) * qn_nb(a, 1), g->y + g->row * qn_nb(y, 1), wide - first};
    if (qn_nb(a, 1) <= SHORT && g->row + ROWS_AHEAD < qn_ne(y, 1)) {
        const char *later = g->a + index_at(g->c->src[1], g->idx, g->row + ROWS_AHEAD) * qn_nb(a, 1);
        for (int64_t at = 0; at < qn_nb(a, 1); at += 64) __builtin_prefetch(later + at, 0, 3);
    }
    if (first) f.from += bytes_of(a, first), f.to += bytes_of(y, first);
    if (f.n > COPIED) f.n = COPIED;
    return f;
}

static void run_get(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    (void)phase;
    const qn_tensor *a = c->src[0], *y = c->dst[0];
    int64_t pieces = (qn_ne(y, 0) + COPIED - 1) / COPIED, units = qn_tensor_count(y) / qn_ne(y, 0) * pieces;
    int64_t u = qn_cpu_cut(units, s->parts[0], part), end = qn_cpu_cut(units, s->parts[0], part + 1);
    qn_way way = a->dtype == y->dtype ? qn_past_way(s, y, c->src, 1) : QN_NEAR;
    size_t whole = a->dtype == y->dtype && pieces == 1 ? (size_t)bytes_of(y, qn_ne(y, 0)) : 0; /* bytes of a row */
    getting at = getting_at(c, u, pieces);
    for (found f = u < end ? find(&at) : (found){0}, next = f; u < end; u++, f = next) {
        if (u + 1 < end) {
            go_on(&at);
            next = find(&at);
        }
        if (way == QN_PAST) qn_past_copy(f.to, f.from, bytes_of(y, f.n), next.from);
        else if (way == QN_FAR && s->is_near) qn_far_copy(f.to, f.from, bytes_of(y, f.n), next.from);
        else if (whole) memcpy(f.to, f.from, whole);
        else qn_copy_row(a->dtype, f.from, y->dtype, f.to, f.n);
    }
    if (way == QN_PAST) qn_past_end();
}

int QN_K(get_rows)(const qn_call *c, qn_cpu_step *s) {
    const qn_tensor *a = c->src[0], *y = c->dst[0];
    if (qn_tensor_count(y) == 0 || !row_is_dense(a) || !row_is_dense(y) || !qn_copy_can(a->dtype, y->dtype)) return 0;
    int64_t pieces = (qn_ne(y, 0) + COPIED - 1) / COPIED, units = qn_tensor_count(y) / qn_ne(y, 0) * pieces;
    return qn_cpu_by_rows(s, "get_rows", run_get, units, 8.0 * (double)qn_tensor_count(y) / (double)units, 0);
}

/* ---- set_rows and store_rows: where several rows go to one place the last stays. Indices that rise, as those of a cache do, name no
 * place twice, and parts take rows; otherwise a part takes its columns of all rows, in their order. */

/* n elements from the first of each row. */
static void set_rows(const qn_call *c, int64_t batch, int64_t row, int64_t end, int64_t first, int64_t n) {
    const qn_tensor *b = c->src[1], *idx = c->src[2], *y = c->dst[0];
    int64_t from = batch_at(b, batch, b, 2) + bytes_of(b, first), to = batch_at(b, batch, y, 2) + bytes_of(y, first);
    int64_t indices = batch_at(b, batch, idx, 1);
    for (; row < end; row++)
        qn_copy_row(b->dtype, qn_at(b, from + row * qn_nb(b, 1)), y->dtype,
                    qn_at(y, to + index_at(idx, indices, row) * qn_nb(y, 1)), n);
}

static int is_rising(const qn_tensor *idx) {
    qn_rows it;
    for (qn_rows_begin(&it, idx->rank, idx->shape); it.live; qn_rows_next(&it)) {
        int64_t at = qn_row(&it, idx) - qn_at(idx, 0);
        for (int64_t i = 1; i < it.n; i++)
            if (index_at(idx, at, i) <= index_at(idx, at, i - 1)) return 0;
    }
    return 1;
}

static int64_t pieces_of(const qn_tensor *b) { return (qn_ne(b, 0) + PIECE - 1) / PIECE; }

/* The only phase where there is one row: a cache gets one for each token, which must not cost what the cache would. */
static void run_whole(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    const qn_tensor *b = c->src[1];
    int64_t rows = qn_ne(b, 1), wide = qn_ne(b, 0), all = batches_of(b) * rows, parts = s->parts[phase];
    for (int64_t u = qn_cpu_cut(all, parts, part), end = qn_cpu_cut(all, parts, part + 1), some; u < end; u += some) {
        some = rows - u % rows < end - u ? rows - u % rows : end - u;
        set_rows(c, u / rows, u % rows, u % rows + some, 0, wide);
    }
}

static void run_columns(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    const qn_tensor *b = c->src[1];
    int64_t pieces = pieces_of(b), all = batches_of(b) * pieces, parts = s->parts[phase];
    for (int64_t u = qn_cpu_cut(all, parts, part), end = qn_cpu_cut(all, parts, part + 1); u < end; u++) {
        int64_t first = u % pieces * PIECE, rest = qn_ne(b, 0) - first;
        set_rows(c, u / pieces, 0, qn_ne(b, 1), first, rest < PIECE ? rest : PIECE);
    }
}

/* The first phase looks at the indices, and copies what stays unless it is there. */
static void run_set(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    int32_t *rising = c->workspace;
    qn_copy_loops l;
    if (phase == 1) {
        (*rising ? run_whole : run_columns)(c, s, phase, part);
        return;
    }
    if (part == 0) *rising = is_rising(c->src[2]);
    if (!qn_op_in_place(c->dst[0], c->src[0]) && qn_copy_plan(s, c->dst[0], c->src[0], &l))
        qn_copy_units(&l, qn_cpu_cut(l.units, s->parts[0], part), qn_cpu_cut(l.units, s->parts[0], part + 1));
}

/* Always in place. */
int QN_K(store_rows)(const qn_call *c, qn_cpu_step *s) {
    const qn_tensor *b = c->src[1], *y = c->dst[0];
    if (qn_tensor_count(b) == 0 || !row_is_dense(b) || !row_is_dense(y) || !qn_copy_can(b->dtype, y->dtype)) return 0;
    int one = qn_ne(b, 1) == 1;
    qn_cpu_by_rows(s, "set_rows", one ? run_whole : run_set, batches_of(b) * qn_ne(b, 1), 8.0 * (double)qn_ne(b, 0), 0);
    if (one) return 1;
    s->n_phases = 2;
    s->parts[1] = s->parts[0];
    s->parts[0] = 1;
    s->workspace = sizeof(int32_t);
    return 1;
}

int QN_K(set_rows)(const qn_call *c, qn_cpu_step *s) {
    const qn_tensor *y = c->dst[0];
    qn_copy_loops l;
    if (!QN_K(store_rows)(c, s) || !qn_copy_plan(s, y, c->src[0], &l)) return 0;
    if (s->n_phases == 1) s->parts[1] = s->parts[0];
    s->run = run_set;
    s->n_phases = 2;
    s->parts[0] = qn_cpu_parts(l.units, 8.0 * (double)qn_tensor_count(y) / (double)l.units, 0);
    s->workspace = sizeof(int32_t);
    return 1;
}

/* ---- get_rows_back and scatter_add_rows: rows that go to one place add up in their order, so a part has places, and looks through all
 * indices for them. */

enum { LOOKS = 128 }; /* a row has so many elements for each part that looks at its index */

static void add_row(float *sum, const float *row, int64_t n, const char *next) {
    int64_t k = 0;
    for (; k + VF_N <= n; k += VF_N) {
        qn_far_ask(next + k * 4);
        vf_store(sum + k, vf_load(sum + k) + vf_load(row + k));
    }
    for (; k < n; k++) sum[k] += row[k];
}

/* The row from number i on that goes to one of the places [first, end); `rows` if none does. */
static int64_t find_place(const qn_tensor *idx, int64_t at, int64_t i, int64_t rows, int64_t first, int64_t end) {
    for (; i < rows; i++) {
        int64_t place = index_at(idx, at, i);
        if (place >= first && place < end) break;
    }
    return i;
}

/* Places [first, end) of a batch. Where the next row goes is asked for. */
static void add_rows(const qn_call *c, int64_t batch, int64_t first, int64_t end) {
    const qn_tensor *g = c->src[0], *idx = c->src[1], *y = c->dst[0];
    int64_t n = qn_ne(g, 0), rows = qn_ne(g, 1), indices = batch_at(g, batch, idx, 1);
    int64_t from = batch_at(g, batch, g, 2), to = batch_at(g, batch, y, 2);
    if (qn_nb(y, 1) == n * 4) memset(qn_at(y, to + first * n * 4), 0, (size_t)(n * 4 * (end - first)));
    else
        for (int64_t i = first; i < end; i++) memset(qn_at(y, to + i * qn_nb(y, 1)), 0, (size_t)n * 4);
    for (int64_t i = find_place(idx, indices, 0, rows, first, end), next; i < rows; i = next) {
        next = find_place(idx, indices, i + 1, rows, first, end);
        char *sum = qn_at(y, to + index_at(idx, indices, i) * qn_nb(y, 1));
        add_row((float *)(void *)sum, (const float *)(const void *)qn_at(g, from + i * qn_nb(g, 1)), n,
                next < rows ? qn_at(y, to + index_at(idx, indices, next) * qn_nb(y, 1)) : sum);
    }
}

static void run_add(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    (void)phase;
    int64_t rows = qn_ne(c->dst[0], 1), all = batches_of(c->src[0]) * rows;
    for (int64_t u = qn_cpu_cut(all, s->parts[0], part), end = qn_cpu_cut(all, s->parts[0], part + 1), some; u < end; u += some) {
        some = rows - u % rows < end - u ? rows - u % rows : end - u;
        add_rows(c, u / rows, u % rows, u % rows + some);
    }
}

/* All batches of y are those of g, so that each is cleared once. */
static int prepare_add(const qn_call *c, qn_cpu_step *s) {
    const qn_tensor *g = c->src[0], *y = c->dst[0];
    if (qn_tensor_count(g) == 0 || qn_tensor_count(y) == 0 || g->dtype != QN_DTYPE_F32 || y->dtype != QN_DTYPE_F32) return 0;
    if (!row_is_dense(g) || !row_is_dense(y)) return 0;
    for (int k = 2; k < g->rank || k < y->rank; k++)
        if (qn_ne(g, k) != qn_ne(y, k)) return 0;
    int64_t units = batches_of(g) * qn_ne(y, 1), most = batches_of(g) * (qn_ne(g, 0) / LOOKS + 1);
    qn_cpu_by_rows(s, "rows added up", run_add, units, 8.0 * (double)(qn_tensor_count(g) + qn_tensor_count(y)) / (double)units,
                   0);
    if (s->parts[0] > most) s->parts[0] = most;
    return 1;
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
    int64_t u = qn_cpu_cut(units, s->parts[1], part), end = qn_cpu_cut(units, s->parts[1], part + 1);
    for (getting at = getting_at(c, u, pieces); u < end; u++, go_on(&at)) {
        found f = find(&at);
        if (last[batch_at(y, at.batch, &flags, 1) + at.row]) memcpy(f.to, f.from, (size_t)bytes_of(y, f.n));
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
