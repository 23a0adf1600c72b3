/* The walks and maps that reference kernels share. */
#include "op/ref.h"

void qn_rows_begin(qn_rows *it, int rank, const int64_t *shape) {
    it->rank = rank;
    it->shape = shape;
    it->n = shape[rank - 1];
    it->row = 0;
    it->live = 1;
    for (int i = 0; i < rank; i++) {
        it->index[i] = 0;
        if (shape[i] == 0) it->live = 0;
    }
}

void qn_rows_begin_at(qn_rows *it, int rank, const int64_t *shape, int64_t row) {
    qn_rows_begin(it, rank, shape);
    if (!it->live) return;
    it->row = row;
    for (int i = rank - 2; i >= 0; i--) {
        it->index[i] = row % shape[i];
        row /= shape[i];
    }
    it->live = row == 0;
}

void qn_load_row_tiled(const qn_tensor *t, const char *row, int64_t first, int64_t n, double *out) {
    int64_t extent = qn_ne(t, 0);
    if (first + n <= extent) { /* not tiled along the row, as most are not */
        qn_load_row(t, row, first, n, out);
        return;
    }
    while (n > 0) {
        int64_t start = first % extent, take = extent - start < n ? extent - start : n;
        qn_load_row(t, row, start, take, out);
        out += take;
        first += take;
        n -= take;
    }
}

void qn_fill(const qn_tensor *t, double value) {
    double run[QN_RUN];
    for (int i = 0; i < QN_RUN; i++) run[i] = value;
    qn_rows it;
    for (qn_rows_begin(&it, t->rank, t->shape); it.live; qn_rows_next(&it)) {
        char *row = qn_row(&it, t);
        for (int64_t i = 0; i < it.n; i += QN_RUN) qn_store_row(t, row, i, it.n - i < QN_RUN ? it.n - i : QN_RUN, run);
    }
}

/* A cursor over a tensor's elements in logical order that hands out runs inside one row. */
typedef struct cursor {
    const qn_tensor *t;
    qn_rows rows;
    char *row;
    int64_t at;
} cursor;

static void cursor_begin(cursor *c, const qn_tensor *t) {
    c->t = t;
    c->at = 0;
    qn_rows_begin(&c->rows, t->rank, t->shape);
    c->row = c->rows.live ? qn_row(&c->rows, t) : NULL;
}

static void cursor_advance(cursor *c, int64_t n) {
    c->at += n;
    if (c->at < c->rows.n) return;
    c->at = 0;
    qn_rows_next(&c->rows);
    if (c->rows.live) c->row = qn_row(&c->rows, c->t);
}

/* Blocks are encoded whole, so their elements are collected first: rows of the source may end in the middle of one. */
static void copy_to_blocks(cursor *to, cursor *from) {
    double run[QN_RUN];
    while (to->rows.live) {
        int64_t n = to->rows.n - to->at < QN_RUN ? to->rows.n - to->at : QN_RUN;
        for (int64_t have = 0; have < n;) {
            int64_t take = from->rows.n - from->at < n - have ? from->rows.n - from->at : n - have;
            qn_load_row(from->t, from->row, from->at, take, run + have);
            cursor_advance(from, take);
            have += take;
        }
        qn_store_row(to->t, to->row, to->at, n, run);
        cursor_advance(to, n);
    }
}

void qn_copy(const qn_tensor *dst, const qn_tensor *src) {
    cursor from, to;
    cursor_begin(&from, src);
    cursor_begin(&to, dst);
    if (qn_is_block(dst->dtype) && dst->dtype != src->dtype) {
        copy_to_blocks(&to, &from);
        return;
    }
    while (from.rows.live && to.rows.live) {
        int64_t n = from.rows.n - from.at, room = to.rows.n - to.at;
        if (room < n) n = room;
        qn_convert_run((qn_dtype)src->dtype, from.row, qn_nb(src, 0), (qn_dtype)dst->dtype, to.row, qn_nb(dst, 0), from.at, to.at,
                       n);
        cursor_advance(&from, n);
        cursor_advance(&to, n);
    }
}

void qn_map1(const qn_tensor *y, const qn_tensor *x, qn_map1_fn f, const void *p) {
    double run[QN_RUN];
    qn_rows it;
    for (qn_rows_begin(&it, y->rank, y->shape); it.live; qn_rows_next(&it)) {
        char *to = qn_row(&it, y);
        const char *from = qn_row(&it, x);
        for (int64_t i = 0; i < it.n; i += QN_RUN) {
            int64_t n = it.n - i < QN_RUN ? it.n - i : QN_RUN;
            qn_load_row(x, from, i, n, run);
            for (int64_t k = 0; k < n; k++) run[k] = f(run[k], p);
            qn_store_row(y, to, i, n, run);
        }
    }
}

/* Calls one of the two kinds of function; the loop over rows and runs is the same. */
static void map2(const qn_tensor *y, const qn_tensor *a, const qn_tensor *b, qn_run2_fn run, qn_map2_fn f, const void *p) {
    double left[QN_RUN], right[QN_RUN];
    qn_rows it;
    for (qn_rows_begin(&it, y->rank, y->shape); it.live; qn_rows_next(&it)) {
        char *to = qn_row(&it, y);
        const char *from = qn_row(&it, a), *with = qn_row_tiled(&it, b);
        for (int64_t i = 0; i < it.n; i += QN_RUN) {
            int64_t n = it.n - i < QN_RUN ? it.n - i : QN_RUN;
            qn_load_row(a, from, i, n, left);
            qn_load_row_tiled(b, with, i, n, right);
            if (run) run(left, right, n);
            else
                for (int64_t k = 0; k < n; k++) left[k] = f(left[k], right[k], p);
            qn_store_row(y, to, i, n, left);
        }
    }
}

void qn_map2(const qn_tensor *y, const qn_tensor *a, const qn_tensor *b, qn_map2_fn f, const void *p) {
    map2(y, a, b, NULL, f, p);
}
void qn_map2_runs(const qn_tensor *y, const qn_tensor *a, const qn_tensor *b, qn_run2_fn f) { map2(y, a, b, f, NULL, NULL); }
