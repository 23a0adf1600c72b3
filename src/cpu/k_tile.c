/* repeat: a row of the result is a row of the source, so many times. */
#include "cpu/k_copy.h"
#include "cpu/k_past.h"

enum { PIECE = QN_CPU_PART_BYTES }; /* bytes of a row that are never cut apart */

/* How many axes from the last on are as long in both and dense. */
static int axes_alike(const qn_tensor *a, const qn_tensor *y, int64_t size) {
    int k = 0;
    for (; k < a->rank && k < y->rank && qn_ne(a, k) == qn_ne(y, k); size *= qn_ne(a, k++))
        if (qn_ne(a, k) > 1 && (qn_nb(a, k) != size || qn_nb(y, k) != size)) break;
    return k;
}

/* With so many axes made one, which is the row. */
static qn_tensor joined(const qn_tensor *t, int axes, int64_t size) {
    qn_tensor j = *t;
    for (; axes > 1; axes--) {
        j.rank--;
        j.shape[j.rank - 1] *= j.shape[j.rank];
        j.stride[j.rank - 1] = size;
    }
    return j;
}

typedef struct tiling {
    qn_tensor a, y;
    int64_t row, tile;     /* bytes of a row of either */
    int64_t pieces, units; /* of a row that is a row of the source; all of them */
} tiling;

static tiling tiling_of(const qn_call *c) {
    int64_t size = qn_dtype_bytes(c->dst[0]->dtype);
    int axes = axes_alike(c->src[0], c->dst[0], size);
    tiling t = {.a = joined(c->src[0], axes, size), .y = joined(c->dst[0], axes, size)};
    t.row = qn_ne(&t.y, 0) * size;
    t.tile = qn_ne(&t.a, 0) * size;
    t.pieces = t.row == t.tile ? (t.row + PIECE - 1) / PIECE : 1;
    t.units = qn_tensor_count(&t.y) / qn_ne(&t.y, 0) * t.pieces;
    return t;
}

static void tile_row(char *y, int64_t bytes, const char *x, int64_t tile) {
    int64_t done = tile;
    memcpy(y, x, (size_t)tile);
    for (; done < bytes; done *= 2) memcpy(y + done, y, (size_t)(bytes - done < done ? bytes - done : done));
}

static void run_repeat(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    tiling t = tiling_of(c);
    int64_t u = qn_cpu_cut(t.units, s->parts[0], part), end = qn_cpu_cut(t.units, s->parts[0], part + 1);
    int past = qn_past_is(s, c->dst[0], c->src, 1);
    qn_rows it;
    (void)phase;
    for (qn_rows_begin_at(&it, t.y.rank, t.y.shape, u / t.pieces); u < end; u++) {
        int64_t at = u % t.pieces * PIECE, some = t.row - at < PIECE ? t.row - at : PIECE;
        char *to = qn_row(&it, &t.y) + at;
        const char *from = qn_row_tiled(&it, &t.a) + at;
        if (t.row != t.tile) tile_row(to, t.row, from, t.tile);
        else if (past) qn_past_copy(to, from, some, from + some);
        else qn_far_copy(to, from, some, from + some);
        if ((u + 1) % t.pieces == 0) qn_rows_next(&it);
    }
    if (past) qn_past_end();
}

int QN_K(repeat)(const qn_call *c, qn_cpu_step *s) {
    const qn_tensor *a = c->src[0], *y = c->dst[0];
    int64_t size = qn_dtype_bytes(y->dtype);
    if (qn_tensor_count(y) == 0 || qn_tensor_count(a) == 0 || a->dtype != y->dtype || qn_is_block(a->dtype)) return 0;
    if ((qn_ne(a, 0) > 1 && qn_nb(a, 0) != size) || (qn_ne(y, 0) > 1 && qn_nb(y, 0) != size)) return 0;
    int64_t units = tiling_of(c).units;
    return qn_cpu_by_rows(s, "tiles", run_repeat, units, 2.0 * (double)(qn_tensor_count(y) * size) / (double)units, 0);
}
