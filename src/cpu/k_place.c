/* Copies with an index map on each axis: pad, pad_back without wrapping, pad_reflect_1d, roll; and rows of one value: fill, one_hot.
 * Rows that lie side by side go in runs; elements are bytes here, whatever they mean. Rows of which a part is kept: diag_mask_inf,
 * diag_mask_zero, tri, attention_mask; or of which one element is: diag. Copies side by side: join. A region of a copy written or
 * added onto: set, acc; or of zeros: view_back. The gradient of a sum or mean, which is a value or a row again and again:
 * reduce_back. */
#include <math.h>

#include "cpu/k_copy.h"
#include "cpu/k_past.h"
#include "op/op_axes.h"
#include "op/op_layout.h"

static int is_row(const qn_tensor *t) { return qn_ne(t, 0) == 1 || qn_nb(t, 0) == qn_dtype_bytes(t->dtype); }

static int64_t rows_of(const qn_tensor *t) { return qn_tensor_count(t) / qn_ne(t, 0); }

/* Parts for the rows of y when they cost what writing them costs. */
static int by_rows(qn_cpu_step *s, const char *name, qn_cpu_run_fn run, const qn_tensor *y) {
    if (qn_tensor_count(y) == 0 || !is_row(y)) return 0;
    return qn_cpu_by_rows(s, name, run, rows_of(y), (double)(qn_ne(y, 0) * qn_dtype_bytes(y->dtype)) * 2, 0);
}

/* Calls for each row of y that a part has. */
#define EACH_ROW(it, y)                                                                             \
    for (qn_rows_begin_at(&(it), (y)->rank, (y)->shape, qn_cpu_cut(rows_of(y), s->parts[0], part)); \
         (it).live && (it).row < qn_cpu_cut(rows_of(y), s->parts[0], part + 1); qn_rows_next(&(it)))

/* ---- Shifted along each axis, with zeros or itself beyond the ends */

static int64_t wrapped(int64_t i, int64_t n) {
    int64_t r = i % n;
    return r < 0 ? r + n : r;
}

/* Where the row of y comes from when axis k is shifted by shift[k]; NULL: from nowhere. */
static const char *shifted_row(const qn_rows *it, const qn_tensor *a, const int64_t *shift, int wrap) {
    int64_t at = 0;
    for (int k = 1; k < it->rank; k++) {
        int64_t from = it->index[it->rank - 1 - k] - shift[k], n = qn_ne(a, k);
        if (wrap) from = wrapped(from, n);
        if (from < 0 || from >= n) return NULL;
        at += from * qn_nb(a, k);
    }
    return qn_at(a, at);
}

static void shift_row(const char *from, int64_t n, int64_t shift, int wrap, int64_t size, char *to, int64_t total) {
    if (!wrap) {
        int64_t before = shift < total ? shift : total, have = n < total - before ? n : total - before;
        memset(to, 0, (size_t)(before * size));
        memcpy(to + before * size, from, (size_t)(have * size));
        memset(to + (before + have) * size, 0, (size_t)((total - before - have) * size));
        return;
    }
    for (int64_t i = 0, run; i < total; i += run) {
        int64_t at = wrapped(i - shift, n);
        run = n - at < total - i ? n - at : total - i;
        qn_far_copy(to + i * size, from + at * size, run * size, from + (at + run) * size);
    }
}

static void run_shifted(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    const qn_tensor *a = c->src[0], *y = c->dst[0];
    int64_t shift[QN_MAX_RANK], size = qn_dtype_bytes(y->dtype);
    const qn_attr_pad *at = c->attr;
    int wrap = c->op == QN_OP_roll || at->circular;
    const qn_dims *list = c->op == QN_OP_roll ? &((const qn_attr_roll *)c->attr)->shift : &at->left;
    qn_rows it;
    (void)phase;
    for (int k = 0; k < QN_MAX_RANK; k++) shift[k] = qn_op_dims_at(list, k);
    EACH_ROW(it, y) {
        const char *from = shifted_row(&it, a, shift, wrap);
        char *to = qn_row(&it, y);
        if (from) shift_row(from, qn_ne(a, 0), shift[0], wrap, size, to, it.n);
        else memset(to, 0, (size_t)(it.n * size));
    }
}

static int prepare_shifted(const qn_call *c, qn_cpu_step *s, const char *name) {
    if (c->src[0]->dtype != c->dst[0]->dtype || c->src[0]->rank != c->dst[0]->rank || !is_row(c->src[0])) return 0;
    return by_rows(s, name, run_shifted, c->dst[0]);
}

int QN_K(pad)(const qn_call *c, qn_cpu_step *s) { return prepare_shifted(c, s, "pad rows"); }
int QN_K(roll)(const qn_call *c, qn_cpu_step *s) { return prepare_shifted(c, s, "roll rows"); }

/* ---- A window of a tensor, which is a copy */

static int plan_window(const qn_call *c, const qn_cpu_step *s, qn_copy_loops *l) {
    const qn_attr_pad_back *at = c->attr;
    qn_tensor window = *c->src[0];
    for (int k = 0; k < window.rank; k++) {
        window.shape[window.rank - 1 - k] = qn_ne(c->dst[0], k);
        window.offset += qn_op_dims_at(&at->left, k) * qn_nb(c->src[0], k);
    }
    return qn_copy_plan(s, c->dst[0], &window, l);
}

static void run_window(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    qn_copy_loops l;
    (void)phase;
    if (plan_window(c, s, &l))
        qn_copy_units(&l, qn_cpu_cut(l.units, s->parts[0], part), qn_cpu_cut(l.units, s->parts[0], part + 1));
}

int QN_K(pad_back_wrapped)(const qn_call *c, qn_cpu_step *s); /* k_place_fold.c */

int QN_K(pad_back)(const qn_call *c, qn_cpu_step *s) {
    qn_copy_loops l;
    if (((const qn_attr_pad_back *)c->attr)->circular) return QN_K(pad_back_wrapped)(c, s);
    if (!plan_window(c, s, &l)) return 0;
    double bytes = (double)qn_tensor_count(c->dst[0]) * (double)l.size * 2;
    return qn_cpu_by_rows(s, "pad_back copy", run_window, l.units, bytes / (double)l.units, 0);
}

/* ---- Mirrored ends of rows */

#define BACKWARDS(size) \
    for (int64_t i = 0; i < n; i++) memcpy(to + i * (size), from - i * (size), (size_t)(size))

/* Sizes the compiler knows are one load and one store. */
static void copy_back(const char *from, int64_t size, char *to, int64_t n) {
    switch (size) {
    case 2: BACKWARDS(2); break;
    case 4: BACKWARDS(4); break;
    default: BACKWARDS(size);
    }
}

static void run_mirrored(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    const qn_attr_pad_reflect_1d *at = c->attr;
    const qn_tensor *a = c->src[0], *y = c->dst[0];
    int64_t n = qn_ne(a, 0), size = qn_dtype_bytes(y->dtype);
    qn_rows it;
    (void)phase;
    EACH_ROW(it, y) {
        const char *from = qn_row(&it, a);
        char *to = qn_row(&it, y);
        copy_back(from + at->left * size, size, to, at->left);
        qn_far_copy(to + at->left * size, from, n * size, from + n * size);
        copy_back(from + (n - 2) * size, size, to + (at->left + n) * size, at->right);
    }
}

int QN_K(pad_reflect_1d)(const qn_call *c, qn_cpu_step *s) {
    if (c->src[0]->dtype != c->dst[0]->dtype || c->src[0]->rank != c->dst[0]->rank || !is_row(c->src[0])) return 0;
    return by_rows(s, "pad_reflect_1d rows", run_mirrored, c->dst[0]);
}

/* ---- One value */

/* n elements of `size` bytes, 1, 2, 4 or 8, become what lies at value. */
static void fill_row(char *to, const char *value, int64_t size, int64_t n) {
    uint64_t word = 0;
    for (int64_t i = 0; i < 8; i += size) memcpy((char *)&word + i, value, (size_t)size);
    int64_t bytes = n * size, i = 0;
    for (; i + 8 <= bytes; i += 8) memcpy(to + i, &word, 8);
    memcpy(to + i, &word, (size_t)(bytes - i));
}

/* The same past the caches, from a tile of the value. */
typedef struct tile {
    char of[QN_PAST_TILE];
    int64_t size;
} tile;

static void make_tile(tile *t, const char *value, int64_t size) {
    t->size = size;
    fill_row(t->of, value, size, QN_PAST_TILE / size);
}

static void fill_past(const tile *t, char *to, int64_t n) {
    for (int64_t some; n > 0; n -= some, to += some * t->size) {
        some = qn_past_some(to, n, t->size);
        qn_past_put(to, t->of, some * t->size);
    }
}

static void run_fill(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    const qn_tensor *y = c->dst[0];
    char value[16];
    qn_rows it;
    (void)phase;
    tile t;
    qn_store_one((qn_dtype)y->dtype, value, (double)((const qn_attr_fill *)c->attr)->c);
    make_tile(&t, value, qn_dtype_bytes(y->dtype));
    int past = qn_past_is(NULL, y, c->src, c->n_src);
    EACH_ROW(it, y) {
        if (past) fill_past(&t, qn_row(&it, y), it.n);
        else fill_row(qn_row(&it, y), value, t.size, it.n);
    }
    if (past) qn_past_end();
}

int QN_K(fill)(const qn_call *c, qn_cpu_step *s) { return by_rows(s, "fill rows", run_fill, c->dst[0]); }

static void run_one_hot(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    const qn_attr_one_hot *at = c->attr;
    const qn_tensor *idx = c->src[0], *y = c->dst[0];
    int64_t size = qn_dtype_bytes(y->dtype), step = qn_dtype_bytes(idx->dtype);
    char on[16], off[16];
    tile t;
    qn_rows it;
    (void)phase;
    qn_store_one((qn_dtype)y->dtype, on, (double)at->on);
    qn_store_one((qn_dtype)y->dtype, off, (double)at->off);
    make_tile(&t, off, size);
    int past = qn_past_is(NULL, y, c->src, c->n_src);
    EACH_ROW(it, y) {
        char *to = qn_row(&it, y);
        int64_t index = (int64_t)qn_load_one((qn_dtype)idx->dtype, qn_at(idx, it.row * step));
        if (past) fill_past(&t, to, it.n);
        else fill_row(to, off, size, it.n);
        if (past) qn_past_end(); /* before what is put over it */
        memcpy(to + index * size, on, (size_t)size);
    }
}

int QN_K(one_hot_down)(const qn_call *c, qn_cpu_step *s); /* k_place_fold.c: the new axis is not the last */

/* There is an index for each row in order. */
int QN_K(one_hot)(const qn_call *c, qn_cpu_step *s) {
    const qn_attr_one_hot *at = c->attr;
    int64_t size = qn_dtype_bytes(c->dst[0]->dtype);
    if (at->axis != -1 && at->axis != c->src[0]->rank) return QN_K(one_hot_down)(c, s);
    if (!qn_cpu_is_dense(c->src[0]) || size > 8) return 0;
    return by_rows(s, "one_hot rows", run_one_hot, c->dst[0]);
}

/* ---- A part of each row of a matrix, by where its diagonal is */

typedef struct kept {
    int64_t first, end;
} kept;

static kept kept_of(const qn_call *c, int64_t row, int64_t n) {
    if (c->op == QN_OP_diag_mask_inf) return (kept){0, ((const qn_attr_diag_mask_inf *)c->attr)->n_past + row + 1};
    if (c->op == QN_OP_diag_mask_zero) return (kept){0, ((const qn_attr_diag_mask_zero *)c->attr)->n_past + row + 1};
    if (c->op == QN_OP_attention_mask) {
        const qn_attr_attention_mask *at = c->attr;
        int64_t behind = row + at->q_offset + 1, first = at->window && behind > at->window ? behind - at->window : 0;
        return (kept){first, at->causal ? behind : n};
    }
    int32_t kind = ((const qn_attr_tri *)c->attr)->kind;
    return kind < 2 ? (kept){row + (kind == 1), n} : (kept){0, row + (kind == 2)};
}

/* A mask by itself keeps zeros. */
static void run_diagonal(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    const qn_tensor *a = c->op == QN_OP_attention_mask ? NULL : c->src[0], *y = c->dst[0];
    int64_t size = qn_dtype_bytes(y->dtype);
    int past = a && qn_past_is(NULL, y, c->src, 1);
    char value[16];
    tile t;
    qn_rows it;
    (void)phase;
    qn_store_one((qn_dtype)y->dtype, value, !a || c->op == QN_OP_diag_mask_inf ? -INFINITY : 0);
    make_tile(&t, value, size);
    EACH_ROW(it, y) {
        char *to = qn_row(&it, y);
        const char *from = a ? qn_row(&it, a) : to;
        kept k = kept_of(c, y->rank > 1 ? it.index[y->rank - 2] : 0, it.n);
        if (k.end > it.n) k.end = it.n;
        if (k.first > k.end) k.first = k.end;
        if (past) {
            fill_past(&t, to, k.first);
            qn_past_copy(to + k.first * size, from + k.first * size, (k.end - k.first) * size, from + it.n * size);
            fill_past(&t, to + k.end * size, it.n - k.end);
            continue;
        }
        if (!a) memset(to + k.first * size, 0, (size_t)((k.end - k.first) * size));
        if (to != from) memcpy(to + k.first * size, from + k.first * size, (size_t)((k.end - k.first) * size));
        fill_row(to, value, size, k.first);
        fill_row(to + k.end * size, value, size, it.n - k.end);
    }
    if (past) qn_past_end();
}

static int prepare_diagonal(const qn_call *c, qn_cpu_step *s, const char *name) {
    if (c->src[0]->dtype != c->dst[0]->dtype || c->src[0]->rank != c->dst[0]->rank || !is_row(c->src[0])) return 0;
    return by_rows(s, name, run_diagonal, c->dst[0]);
}

int QN_K(diag_mask_inf)(const qn_call *c, qn_cpu_step *s) { return prepare_diagonal(c, s, "diag_mask_inf rows"); }
int QN_K(diag_mask_zero)(const qn_call *c, qn_cpu_step *s) { return prepare_diagonal(c, s, "diag_mask_zero rows"); }
int QN_K(attention_mask)(const qn_call *c, qn_cpu_step *s) { return by_rows(s, "attention_mask rows", run_diagonal, c->dst[0]); }
int QN_K(tri)(const qn_call *c, qn_cpu_step *s) { return prepare_diagonal(c, s, "tri rows"); }

/* ---- diag: element `row` of all rows of a is on the diagonal in row `row` of all rows of y */

static void run_diag(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    const qn_tensor *y = c->dst[0];
    int64_t size = qn_dtype_bytes(y->dtype);
    qn_rows it;
    (void)phase;
    EACH_ROW(it, y) {
        char *to = qn_row(&it, y);
        memset(to, 0, (size_t)(it.n * size));
        memcpy(to + it.row % it.n * size, qn_at(c->src[0], it.row * size), (size_t)size);
    }
}

int QN_K(diag)(const qn_call *c, qn_cpu_step *s) {
    return qn_cpu_is_dense(c->src[0]) && by_rows(s, "diag rows", run_diag, c->dst[0]);
}

/* ---- join: each source is a copy into its place, and they are shared out together */

/* Where source `which` goes, as a view of the result; the k-th axis from the end is the joined one. */
static int plan_join(const qn_call *c, const qn_cpu_step *s, int which, qn_copy_loops *l) {
    int axis = ((const qn_attr_join *)c->attr)->axis, rank = 0;
    for (int i = 0; i < c->n_src; i++)
        if (c->src[i] && c->src[i]->rank > rank) rank = c->src[i]->rank;
    int k = axis < 0 ? -1 - axis : rank - 1 - axis, at = c->dst[0]->rank - 1 - k;
    int64_t block = k == 0 ? qn_dtype_describe((qn_dtype)c->dst[0]->dtype)->block : 1;
    qn_tensor place = *c->dst[0];
    for (int i = 0; i < which; i++)
        if (c->src[i]) place.offset += qn_ne(c->src[i], k) / block * place.stride[at];
    place.shape[at] = qn_ne(c->src[which], k);
    return qn_copy_plan(s, &place, c->src[which], l);
}

static int is_empty(const qn_tensor *t) { return !t || qn_tensor_count(t) == 0; }

static void run_join(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    int64_t at = qn_cpu_cut(s->n[0], s->parts[0], part), end = qn_cpu_cut(s->n[0], s->parts[0], part + 1);
    (void)phase;
    for (int i = 0; i < c->n_src && at < end; i++) {
        qn_copy_loops l;
        if (is_empty(c->src[i]) || !plan_join(c, s, i, &l)) continue;
        if (at < l.units) qn_copy_units(&l, at > 0 ? at : 0, end < l.units ? end : l.units);
        at = at > l.units ? at - l.units : 0; /* what is left is counted from the next source on */
        end -= l.units;
    }
}

int QN_K(join)(const qn_call *c, qn_cpu_step *s) {
    double bytes = 0;
    s->n[0] = 0;
    for (int i = 0; i < c->n_src; i++) {
        qn_copy_loops l;
        if (is_empty(c->src[i])) continue;
        if (!plan_join(c, s, i, &l)) return 0;
        s->n[0] += l.units;
        bytes += (double)qn_tensor_count(c->src[i]) * (double)l.size * 2;
    }
    return s->n[0] ? qn_cpu_by_rows(s, "join copies", run_join, s->n[0], bytes / (double)s->n[0], 0) : 0;
}

/* ---- set and acc: a copy, unless it is there already, and then what lies over a region of it */

static void run_base(const qn_call *c, const qn_cpu_step *s, int64_t part) {
    qn_copy_loops l;
    if (qn_op_in_place(c->dst[0], c->src[0]) || !qn_copy_plan(s, c->dst[0], c->src[0], &l)) return;
    qn_copy_units(&l, qn_cpu_cut(l.units, s->parts[0], part), qn_cpu_cut(l.units, s->parts[0], part + 1));
}

static void run_set(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    qn_tensor view = qn_op_region_view(c->attr, c->dst[0], c->src[0], c->src[1]);
    qn_copy_loops l;
    if (phase == 0) run_base(c, s, part);
    else if (qn_copy_plan(s, &view, c->src[1], &l))
        qn_copy_units(&l, qn_cpu_cut(l.units, s->parts[1], part), qn_cpu_cut(l.units, s->parts[1], part + 1));
}

static void run_acc(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    const qn_tensor *b = c->src[1];
    qn_tensor view = qn_op_region_view(c->attr, c->dst[0], c->src[0], b);
    int64_t rows = rows_of(b), end = qn_cpu_cut(rows, s->parts[1], part + 1);
    qn_rows it;
    if (phase == 0) {
        run_base(c, s, part);
        return;
    }
    for (qn_rows_begin_at(&it, b->rank, b->shape, qn_cpu_cut(rows, s->parts[1], part)); it.live && it.row < end;
         qn_rows_next(&it)) {
        char *to = qn_row(&it, &view);
        const double *more = (const double *)(const void *)qn_row(&it, b);
        for (int64_t i = 0; b->dtype == QN_DTYPE_F64 && i < it.n; i++) ((double *)(void *)to)[i] += more[i];
        for (int64_t i = 0; b->dtype == QN_DTYPE_F32 && i < it.n; i += VF_N)
            qn_lanes_put_at(QN_DTYPE_F32, to, i,
                            qn_lanes_at(QN_DTYPE_F32, to, i, it.n) + qn_lanes_at(QN_DTYPE_F32, qn_row(&it, b), i, it.n), it.n);
    }
}

/* The copy comes first; `units` of the region, so many bytes in all, are cut by the second phase. */
static int prepare_region(const qn_call *c, qn_cpu_step *s, const char *name, qn_cpu_run_fn run, int64_t units) {
    const qn_tensor *a = c->src[0], *b = c->src[1];
    double size = (double)qn_dtype_bytes(a->dtype);
    qn_copy_loops l;
    if (!qn_copy_plan(s, c->dst[0], a, &l)) return 0;
    qn_cpu_by_rows(s, name, run, l.units, 2 * size * (double)qn_tensor_count(a) / (double)l.units, 0);
    s->n_phases = 2;
    s->parts[1] = qn_cpu_parts(units, 3 * size * (double)qn_tensor_count(b) / (double)units, 0);
    return 1;
}

int QN_K(set)(const qn_call *c, qn_cpu_step *s) {
    qn_copy_loops l;
    if (is_empty(c->src[0]) || is_empty(c->src[1]) || !qn_cpu_is_dense(c->dst[0])) return 0;
    qn_tensor view = qn_op_region_view(c->attr, c->dst[0], c->src[0], c->src[1]);
    return qn_copy_plan(s, &view, c->src[1], &l) && prepare_region(c, s, "set copies", run_set, l.units);
}

int QN_K(acc)(const qn_call *c, qn_cpu_step *s) {
    const qn_tensor *b = c->src[1];
    if (is_empty(c->src[0]) || is_empty(b) || !qn_cpu_is_dense(c->dst[0])) return 0;
    if ((b->dtype != QN_DTYPE_F32 && b->dtype != QN_DTYPE_F64) || c->dst[0]->dtype != b->dtype || !is_row(b)) return 0;
    return prepare_region(c, s, "acc rows", run_acc, rows_of(b));
}

/* ---- view_back of windows no two elements of which are one: zeros, unless the window is the whole, and a copy */

/* Axes must nest: from the smallest stride up, each steps over everything the smaller ones reach. */
static int is_distinct(const qn_tensor *t) {
    int64_t reach = qn_dtype_bytes(t->dtype);
    unsigned done = 0;
    for (;;) {
        int next = -1;
        for (int i = 0; i < t->rank; i++)
            if (t->shape[i] > 1 && !(done >> i & 1) && (next < 0 || t->stride[i] < t->stride[next])) next = i;
        if (next < 0) return 1;
        if (t->stride[next] < reach) return 0;
        reach += (t->shape[next] - 1) * t->stride[next];
        done |= 1u << next;
    }
}

static qn_tensor window_of(const qn_call *c) {
    const qn_attr_view_back *at = c->attr;
    qn_tensor window = *c->src[0];
    window.data = c->dst[0]->data;
    window.dtype = c->dst[0]->dtype;
    window.offset = c->dst[0]->offset + at->offset;
    for (int i = 0; i < window.rank; i++) window.stride[i] = at->strides.d[i];
    return window;
}

/* Zeros come first where there are any to put. */
static void run_view_back(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    const qn_tensor *y = c->dst[0];
    int64_t parts = s->parts[phase], size = qn_dtype_bytes(y->dtype), n = qn_tensor_count(y);
    if (phase + 1 < s->n_phases) {
        int64_t first = qn_cpu_cut(n, parts, part) * size;
        memset(qn_at(y, first), 0, (size_t)(qn_cpu_cut(n, parts, part + 1) * size - first));
        return;
    }
    qn_tensor window = window_of(c);
    qn_copy_loops l;
    if (qn_copy_plan(s, &window, c->src[0], &l))
        qn_copy_units(&l, qn_cpu_cut(l.units, parts, part), qn_cpu_cut(l.units, parts, part + 1));
}

static int prepare_distinct(const qn_call *c, qn_cpu_step *s, const qn_tensor *window) {
    const qn_tensor *g = c->src[0], *y = c->dst[0];
    qn_copy_loops l;
    if (!qn_copy_plan(s, window, g, &l)) return 0;
    double size = (double)qn_dtype_bytes(y->dtype);
    int64_t n = qn_tensor_count(y), some = qn_tensor_count(g);
    qn_cpu_by_rows(s, "view_back copy", run_view_back, l.units, 2 * size * (double)some / (double)l.units, 0);
    if (some == n) return 1;
    s->n_phases = 2;
    s->parts[1] = s->parts[0];
    s->parts[0] = qn_cpu_parts(n, size, 0);
    return 1;
}

/* ---- view_back of windows whose rows fall onto each other, f32: rows are added from first to last. Columns are shared out where steps
 * from row to row are whole numbers of something no shorter than a row, so that what falls together was in one column. */

static int is_columned(const qn_tensor *window) {
    int64_t pitch = 0;
    for (int i = 0; i < window->rank - 1; i++) {
        int64_t rest = window->shape[i] > 1 ? window->stride[i] : 0;
        if (rest < 0) rest = -rest;
        while (rest) { /* the greatest common divisor of all steps */
            int64_t next = pitch % rest;
            pitch = rest;
            rest = next;
        }
    }
    return pitch == 0 || pitch >= qn_ne(window, 0) * 4;
}

static void run_view_add(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    const qn_tensor *y = c->dst[0], *g = c->src[0];
    qn_tensor window = window_of(c);
    int64_t parts = s->parts[phase], n = qn_ne(g, 0), groups = (n + VF_N - 1) / VF_N;
    int64_t first = phase ? qn_cpu_cut(groups, parts, part) * VF_N : qn_cpu_cut(qn_tensor_count(y), parts, part) * 4;
    int64_t end = phase ? qn_cpu_cut(groups, parts, part + 1) * VF_N : qn_cpu_cut(qn_tensor_count(y), parts, part + 1) * 4;
    qn_rows it;
    if (phase == 0) {
        memset(qn_at(y, first), 0, (size_t)(end - first));
        return;
    }
    if (end > n) end = n;
    for (qn_rows_begin(&it, g->rank, g->shape); it.live; qn_rows_next(&it)) {
        char *to = qn_row(&it, &window);
        for (int64_t i = first; i < end; i += VF_N)
            qn_lanes_put_at(QN_DTYPE_F32, to, i,
                            qn_lanes_at(QN_DTYPE_F32, to, i, end) + qn_lanes_at(g->dtype, qn_row(&it, g), i, end), end);
    }
}

static int prepare_added(const qn_call *c, qn_cpu_step *s, const qn_tensor *window) {
    const qn_tensor *g = c->src[0], *y = c->dst[0];
    int64_t groups = (qn_ne(g, 0) + VF_N - 1) / VF_N, n = qn_tensor_count(y);
    if (y->dtype != QN_DTYPE_F32 || !qn_lanes_rows(g) || !is_row(window)) return 0;
    qn_cpu_by_rows(s, "view_back rows", run_view_add, n, 4, 0);
    s->n_phases = 2;
    s->parts[1] = is_columned(window) ? qn_cpu_parts(groups, 12.0 * (double)qn_tensor_count(g) / (double)groups, 0) : 1;
    return 1;
}

int QN_K(view_back)(const qn_call *c, qn_cpu_step *s) {
    const qn_tensor *g = c->src[0], *y = c->dst[0];
    if (is_empty(g) || is_empty(y) || !qn_cpu_is_dense(y)) return 0;
    qn_tensor window = window_of(c);
    return is_distinct(&window) ? prepare_distinct(c, s, &window) : prepare_added(c, s, &window);
}

/* ---- reduce_back of sums and means, f32: every element of x has the gradient of the sum it went into */

static unsigned reduced_axes(const qn_call *c) {
    const qn_attr_reduce_back *at = c->attr;
    return qn_op_axes_set(&at->axes, c->src[1]->rank);
}

static void run_reduce_back(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    const qn_tensor *dx = c->dst[0];
    unsigned set = reduced_axes(c);
    int64_t step[QN_MAX_RANK] = {0}, next = 1, summed = 1;
    for (int k = 0; k < dx->rank; k++) {
        step[k] = set >> k & 1 ? 0 : next;
        if (set >> k & 1) summed *= qn_ne(dx, k);
        else next *= qn_ne(dx, k);
    }
    vf share = vf_set1(c->subop == QN_REDUCE_mean ? (float)summed : 1.0f);
    qn_rows it;
    (void)phase;
    EACH_ROW(it, dx) {
        int64_t at = 0;
        for (int k = 1; k < dx->rank; k++) at += it.index[dx->rank - 1 - k] * step[k];
        const char *g = qn_at(c->src[0], at * 4);
        vf one = vf_set1(*(const float *)(const void *)g) / share;
        for (int64_t i = 0; i < it.n; i += VF_N)
            qn_lanes_put_at(QN_DTYPE_F32, qn_row(&it, dx), i, step[0] ? qn_lanes_at(QN_DTYPE_F32, g, i, it.n) / share : one,
                            it.n);
    }
}

int QN_K(best_back)(const qn_call *c, qn_cpu_step *s); /* k_total.c: the largest and the smallest */

int QN_K(reduce_back)(const qn_call *c, qn_cpu_step *s) {
    const qn_tensor *g = c->src[0], *dx = c->dst[0];
    if (c->subop != QN_REDUCE_sum && c->subop != QN_REDUCE_mean) return QN_K(best_back)(c, s);
    if (g->dtype != QN_DTYPE_F32 || dx->dtype != QN_DTYPE_F32 || !qn_cpu_is_dense(g) || qn_tensor_count(dx) == 0) return 0;
    return by_rows(s, "reduce_back rows", run_reduce_back, dx);
}
