/* repeat: a row of the result is a row of the source, so many times. */
#include "cpu/k_copy.h"

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
