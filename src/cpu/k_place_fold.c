/* What k_place.c's copies are not: pad_back with wrapping, whose rows fall onto each other, and one_hot along an axis that is not the
 * last. Sums are doubles, added in the reference's order, so they have its bits. */
#include "cpu/k_typed.h"
#include "op/op_axes.h"
#include "op/op_layout.h"

enum { TILE = 256 };

static int is_row(const qn_tensor *t) { return qn_ne(t, 0) == 1 || qn_nb(t, 0) == qn_dtype_bytes(t->dtype); }

/* ---- pad_back, circular */

/* A tile of a row of y: columns [at, at + n). */
typedef struct fold {
    const qn_tensor *g;
    int64_t left[QN_MAX_RANK], extent[QN_MAX_RANK]; /* extents of y; axes from the last */
    int rank;
    int64_t at, n;
    double sum[TILE];
} fold;

/* One row of g, again and again as far as it goes. */
static void fold_row(fold *f, const char *row) {
    double part[TILE];
    int64_t end = qn_ne(f->g, 0), wrap = f->extent[0], start = f->at + f->left[0], size = qn_dtype_bytes(f->g->dtype);
    for (int64_t at = start - (start + f->n - 1) / wrap * wrap; at < end; at += wrap) {
        int64_t low = at < 0 ? 0 : at, high = at + f->n < end ? at + f->n : end;
        if (high <= low) continue;
        double *to = f->sum + (low - at);
        qn_typed_load(f->g->dtype, row + low * size, high - low, part, 0);
        QN_TYPED_EACH
        for (int64_t i = 0; i < high - low; i++) to[i] += part[i];
    }
}

/* Rows of g that fall onto the row of y at `index`, axes from the first on inside. */
static void fold_rows(fold *f, const qn_rows *it, int axis, const char *from) {
    if (axis == 0) {
        fold_row(f, from);
        return;
    }
    int64_t n = f->extent[axis], first = (it->index[f->rank - 1 - axis] + f->left[axis]) % n;
    for (int64_t i = first; i < qn_ne(f->g, axis); i += n) fold_rows(f, it, axis - 1, from + i * qn_nb(f->g, axis));
}

static void run_fold(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    const qn_attr_pad_back *at = c->attr;
    const qn_tensor *y = c->dst[0];
    int64_t rows = qn_tensor_count(y) / qn_ne(y, 0), end = qn_cpu_cut(rows, s->parts[0], part + 1);
    fold f = {.g = c->src[0], .rank = y->rank};
    qn_rows it;
    (void)phase;
    for (int k = 0; k < y->rank; k++) f.left[k] = qn_op_dims_at(&at->left, k), f.extent[k] = qn_ne(y, k);
    for (qn_rows_begin_at(&it, y->rank, y->shape, qn_cpu_cut(rows, s->parts[0], part)); it.live && it.row < end;
         qn_rows_next(&it))
        for (f.at = 0; f.at < it.n; f.at += TILE) {
            f.n = it.n - f.at < TILE ? it.n - f.at : TILE;
            memset(f.sum, 0, (size_t)f.n * sizeof *f.sum);
            fold_rows(&f, &it, f.rank - 1, qn_at(f.g, 0));
            qn_typed_store(y->dtype, f.sum, f.n, qn_row(&it, y) + f.at * qn_dtype_bytes(y->dtype));
        }
}

int QN_K(pad_back_wrapped)(const qn_call *c, qn_cpu_step *s);
int QN_K(pad_back_wrapped)(const qn_call *c, qn_cpu_step *s) {
    const qn_tensor *g = c->src[0], *y = c->dst[0];
    if (qn_tensor_count(y) == 0 || g->dtype != y->dtype || g->rank != y->rank || !qn_typed_can(y->dtype)) return 0;
    if (!qn_is_float(y->dtype) || !is_row(g) || !is_row(y)) return 0;
    double rows = (double)(qn_tensor_count(y) / qn_ne(y, 0)), size = (double)qn_dtype_bytes(y->dtype);
    return qn_cpu_by_rows(s, "pad_back sums", run_fold, (int64_t)rows, 2 * size * (double)qn_tensor_count(g) / rows, 0);
}

/* ---- one_hot: y as axes before, the new one, and neighbours behind */

typedef struct hot {
    int64_t before, depth, inner;
} hot;

static hot hot_of(const qn_call *c) {
    const qn_tensor *idx = c->src[0];
    int axis = ((const qn_attr_one_hot *)c->attr)->axis;
    hot h = {.before = 1, .inner = 1};
    if (axis < 0) axis += idx->rank + 1;
    for (int i = 0; i < idx->rank; i++) *(i < axis ? &h.before : &h.inner) *= idx->shape[i];
    h.depth = qn_tensor_count(c->dst[0]) / (h.before * h.inner);
    return h;
}

#define CHOOSE(type, index)                                                 \
    do {                                                                    \
        type yes, no, *y = (type *)(void *)to;                              \
        const index *from = (const index *)(const void *)idx;               \
        memcpy(&yes, on, sizeof yes);                                       \
        memcpy(&no, off, sizeof no);                                        \
        QN_TYPED_EACH                                                       \
        for (int64_t i = 0; i < n; i++) y[i] = from[i] == which ? yes : no; \
    } while (0)
#define CHOOSE_BY(index)                             \
    do {                                             \
        const index which = (index)number;           \
        if (size == 1) CHOOSE(uint8_t, index);       \
        else if (size == 2) CHOOSE(uint16_t, index); \
        else if (size == 4) CHOOSE(uint32_t, index); \
        else CHOOSE(uint64_t, index);                \
    } while (0)

/* A row of neighbours: `on` where the index is `number`. */
static void hot_row(uint32_t dtype, const char *idx, int64_t number, int64_t n, const char *on, const char *off, int64_t size,
                    char *to) {
    if (dtype == QN_DTYPE_I32) CHOOSE_BY(int32_t);
    else if (dtype == QN_DTYPE_U32) CHOOSE_BY(uint32_t);
    else CHOOSE_BY(int64_t);
}

static void run_hot(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    const qn_attr_one_hot *at = c->attr;
    const qn_tensor *idx = c->src[0], *y = c->dst[0];
    hot h = hot_of(c);
    int64_t rows = h.before * h.depth, end = qn_cpu_cut(rows, s->parts[0], part + 1), size = qn_dtype_bytes(y->dtype);
    char on[16], off[16];
    (void)phase;
    qn_store_one((qn_dtype)y->dtype, on, (double)at->on);
    qn_store_one((qn_dtype)y->dtype, off, (double)at->off);
    for (int64_t r = qn_cpu_cut(rows, s->parts[0], part); r < end; r++)
        hot_row(idx->dtype, qn_at(idx, r / h.depth * h.inner * qn_dtype_bytes(idx->dtype)), r % h.depth, h.inner, on, off, size,
                qn_at(y, r * h.inner * size));
}

int QN_K(one_hot_down)(const qn_call *c, qn_cpu_step *s);
int QN_K(one_hot_down)(const qn_call *c, qn_cpu_step *s) {
    const qn_tensor *idx = c->src[0], *y = c->dst[0];
    int64_t size = qn_dtype_bytes(y->dtype);
    if (qn_tensor_count(y) == 0 || !qn_cpu_is_dense(idx) || !qn_cpu_is_dense(y) || size > 8) return 0;
    if (idx->dtype != QN_DTYPE_I32 && idx->dtype != QN_DTYPE_U32 && idx->dtype != QN_DTYPE_I64) return 0;
    hot h = hot_of(c);
    if (h.depth > INT32_MAX) return 0; /* more than an index can say */
    return qn_cpu_by_rows(s, "one_hot down", run_hot, h.before * h.depth, (double)(h.inner * (size + 8)), 0);
}
