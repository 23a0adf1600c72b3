/* fwht: rows of at least a few vectors, as sums and differences of lanes within vectors first and of whole vectors then. */
#include "cpu/k_fwht.h"

#include <math.h>

#include "cpu/k_lanes.h"
#include "cpu/simd/simd_codes.h"
#include "cpu/simd/simd_swap.h"
#include "op/turbo.h"

enum { LEAST = QN_FWHT_LEAST };

/* -1 for the lanes that are the second of their pair, h apart, else 1. */
static inline vf signs_of(int h) { return vf_select((vi_lanes() & h) == 0, vf_set1(1.0f), vf_set1(-1.0f)); }

static inline vf within(vf v, const vf *sign) {
    v = vf_fma(v, sign[0], vf_swap1(v));
    v = vf_fma(v, sign[1], vf_swap2(v));
#if QN_LANES >= 8
    v = vf_fma(v, sign[2], vf_swap4(v));
#endif
#if QN_LANES >= 16
    v = vf_fma(v, sign[3], vf_swap8(v));
#endif
    return v;
}

void qn_fwht_transform(float *x, int64_t n) {
    vf sign[4] = {signs_of(1), signs_of(2), signs_of(4), signs_of(8)};
    for (int64_t i = 0; i < n; i += VF_N) vf_store(x + i, within(vf_load(x + i), sign));
    for (int64_t h = VF_N; h < n; h *= 2)
        for (int64_t first = 0; first < n; first += 2 * h)
            for (int64_t j = first; j < first + h; j += VF_N) {
                vf a = vf_load(x + j), b = vf_load(x + j + h);
                vf_store(x + j, a + b);
                vf_store(x + j + h, a - b);
            }
}

/* signs: n floats, or NULL. */
QN_INLINE void fwht_row(uint32_t dtype, char *y, const char *x, int64_t n, int form, const float *signs, float *row) {
    vf scale = vf_set1((float)(1 / sqrt((double)n)));
    for (int64_t i = 0; i < n; i += VF_N) {
        vf v = qn_lanes(dtype, x, i);
        vf_store(row + i, form == 1 ? v * vf_load(signs + i) : v);
    }
    qn_fwht_transform(row, n);
    for (int64_t i = 0; i < n; i += VF_N) {
        vf v = vf_load(row + i) * scale;
        qn_lanes_put(dtype, y, i, form == 2 ? v * vf_load(signs + i) : v);
    }
}

static void run(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    const qn_tensor *x = c->src[0], *y = c->dst[0], *signs = c->n_src > 1 ? c->src[1] : NULL;
    int form = ((const qn_attr_fwht *)c->attr)->form;
    int64_t n = qn_ne(x, 0), rows = qn_tensor_count(x) / n, end = qn_cpu_cut(rows, s->parts[0], part + 1);
    float *row = (float *)c->workspace + part * 2 * n, *by = row + n;
    qn_rows it;
    (void)phase;
    for (int64_t j = 0; form && j < n; j++)
        by[j] = (float)(signs ? qn_load_one((qn_dtype)signs->dtype, qn_at(signs, j * qn_nb(signs, 0))) : qn_op_turbo_sign(j));
    for (qn_rows_begin_at(&it, x->rank, x->shape, qn_cpu_cut(rows, s->parts[0], part)); it.live && it.row < end;
         qn_rows_next(&it)) {
        const char *from = qn_row(&it, x);
        char *to = qn_row(&it, y);
#define FWHT_OF(d) fwht_row(d, to, from, n, form, by, row)
        QN_BY_FLOAT(x->dtype, FWHT_OF);
    }
}

int QN_K(fwht)(const qn_call *c, qn_cpu_step *s) {
    const qn_tensor *x = c->src[0], *y = c->dst[0];
    int64_t n = qn_ne(x, 0), count = qn_tensor_count(x);
    if (count == 0 || n < LEAST || n > 1 << 20 || !qn_lanes_rows(x) || !qn_lanes_rows(y)) return 0;
    qn_cpu_by_rows(s, "fwht rows", run, count / n, 8.0 * (double)n, 2.0 * (double)n * log2((double)n));
    s->workspace = (size_t)(s->parts[0] * 2 * n) * sizeof(float);
    return 1;
}
