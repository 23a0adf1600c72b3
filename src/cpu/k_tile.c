/* repeat, whose rows are tiled, and cumsum, whose rows are summed from one end to the other. */
#include "cpu/k_copy.h"

/* ---- repeat: a row of the result is a row of the source, so many times */

static void tile_row(char *y, int64_t bytes, const char *x, int64_t tile) {
    int64_t done = tile;
    memcpy(y, x, (size_t)tile);
    for (; done < bytes; done *= 2) memcpy(y + done, y, (size_t)(bytes - done < done ? bytes - done : done));
}

static void run_repeat(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    const qn_tensor *a = c->src[0], *y = c->dst[0];
    int64_t n = qn_ne(y, 0), rows = qn_tensor_count(y) / n, size = qn_dtype_describe((qn_dtype)y->dtype)->bytes;
    int64_t end = qn_cpu_cut(rows, s->parts[0], part + 1);
    qn_rows it;
    (void)phase;
    for (qn_rows_begin_at(&it, y->rank, y->shape, qn_cpu_cut(rows, s->parts[0], part)); it.live && it.row < end;
         qn_rows_next(&it))
        tile_row(qn_row(&it, y), n * size, qn_row_tiled(&it, a), qn_ne(a, 0) * size);
}

int QN_K(repeat)(const qn_call *c, qn_cpu_step *s) {
    const qn_tensor *a = c->src[0], *y = c->dst[0];
    int64_t size = qn_dtype_describe((qn_dtype)y->dtype)->bytes;
    if (qn_tensor_count(y) == 0 || qn_tensor_count(a) == 0 || a->dtype != y->dtype || qn_is_block(a->dtype)) return 0;
    if ((qn_ne(a, 0) > 1 && qn_nb(a, 0) != size) || (qn_ne(y, 0) > 1 && qn_nb(y, 0) != size)) return 0;
    return qn_cpu_by_rows(s, "tiles", run_repeat, qn_tensor_count(y) / qn_ne(y, 0), 2.0 * (double)(qn_ne(y, 0) * size), 0);
}

/* ---- cumsum: one chain of doubles, as the reference has it */

static void sum_along(const float *x, float *y, int64_t n, const qn_attr_cumsum *at, double *sum) {
    for (int64_t k = 0; k < n; k++) {
        int64_t i = at->reverse ? n - 1 - k : k;
        double next = *sum + (double)x[i];
        y[i] = (float)(at->exclusive ? *sum : next);
        *sum = next;
    }
}

static void run_cumsum(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    enum { RUN = 512 };
    const qn_tensor *a = c->src[0], *y = c->dst[0];
    const qn_attr_cumsum *at = c->attr;
    int64_t n = qn_ne(a, 0), rows = qn_tensor_count(a) / n, end = qn_cpu_cut(rows, s->parts[0], part + 1);
    int64_t size = a->dtype == QN_DTYPE_F32 ? 4 : 2;
    float x[RUN];
    qn_rows it;
    (void)phase;
    for (qn_rows_begin_at(&it, a->rank, a->shape, qn_cpu_cut(rows, s->parts[0], part)); it.live && it.row < end;
         qn_rows_next(&it)) {
        double sum = 0;
        for (int64_t done = 0, some; done < n; done += some) {
            some = n - done < RUN ? n - done : RUN;
            int64_t first = at->reverse ? n - done - some : done;
            qn_copy_row(a->dtype, qn_row(&it, a) + first * size, QN_DTYPE_F32, (char *)x, some);
            sum_along(x, x, some, at, &sum);
            qn_copy_row(QN_DTYPE_F32, (const char *)x, y->dtype, qn_row(&it, y) + first * size, some);
        }
    }
}

int QN_K(cumsum)(const qn_call *c, qn_cpu_step *s) {
    const qn_tensor *a = c->src[0], *y = c->dst[0];
    if (!qn_lanes_rows(a) || !qn_lanes_rows(y) || a->dtype != y->dtype || qn_tensor_count(a) == 0) return 0;
    return qn_cpu_by_rows(s, "running sums", run_cumsum, qn_tensor_count(a) / qn_ne(a, 0), 16.0 * (double)qn_ne(a, 0), 0);
}
