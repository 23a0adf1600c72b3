/* Products of one row with the forms in which Arm keeps packed weights. Vectors go through a block by twos: what one adds to its sum waits
 * for what it added before, and the bytes of the row are read once for both. The arithmetic is that of kd_dots.c. */
#include "cpu/kd_unpack.h"

#if defined(QN_KEEPS_Q4_K) && defined(QN_HAS_NARROW)

enum { ABREAST = 2 };

/* Vectors of the block at p from v on times a row, to which their sums are added. */
typedef void (*abreast_fn)(const uint8_t *p, int v, const qn_quant_row *x, int offset, vf sum[ABREAST]);

INLINE void one_abreast(const qn_quant_line *l, abreast_fn dot, int size) {
    vf sum[QN_DOT_PANELS_ONE * QN_PANEL_VECTORS];
    const qn_quant_row *x = l->x;
    for (int i = 0; i < l->panels * QN_PANEL_VECTORS; i++) sum[i] = vf_zero();
    for (int64_t b = 0; b < l->k / QN_CHUNK; b++, x += l->x_step)
        for (int i = 0; i < l->panels * QN_PANEL_VECTORS; i += ABREAST) {
            QN_STAY; /* the row's numbers are too many to be kept from one to the next */
            dot(l->panel[i / QN_PANEL_VECTORS] + b * size, i % QN_PANEL_VECTORS, x, l->offset, sum + i);
        }
    for (int i = 0; i < l->panels * QN_PANEL_VECTORS; i++) vf_store(l->sums + i * VF_N, sum[i]);
}

INLINE vf add_group(const uint8_t *p, int g, int v, vi whole, const qn_quant_row *x, vf sum) {
    sum = vf_fma(vf_from_sum(whole), vf_times_at(kept_float(p + 128 * QN_PANEL, g, v), x->d, g), sum);
    return vf_fma_at(kept_float(p + 160 * QN_PANEL, g, v), x->total, g, sum);
}

INLINE void q4_k_abreast(const uint8_t *p, int v, const qn_quant_row *x, int offset, vf sum[ABREAST]) {
    (void)offset;      /* it has none */
    p += v * VF_N * 4; /* so that all else is constant */
    QN_UNROLL
    for (int g = 0; g < 8; g += 2) {
        vi low[ABREAST], high[ABREAST];
        QN_UNROLL
        for (int i = 0; i < ABREAST; i++) low[i] = high[i] = vi_sum_start(0);
        QN_UNROLL
        for (int w = 0; w < 8; w++) {
            QN_UNROLL
            for (int i = 0; i < ABREAST; i++) {
                vu q = word(p, 4 * g + w, i);
                low[i] = vi_dot4_at(low[i], q & LOW4, x->q + 32 * g, w);
                high[i] = vi_dot4_upper_at(high[i], q, x->q + 32 * g, 8 + w);
            }
        }
        QN_UNROLL
        for (int i = 0; i < ABREAST; i++) {
            sum[i] = add_group(p, g, i, low[i], x, sum[i]);
            sum[i] = add_group(p, g + 1, i, high[i] >> VI_UPPER_BITS, x, sum[i]);
        }
    }
}
void QN_K(one_kept_q4_k)(const qn_quant_line *l) { one_abreast(l, q4_k_abreast, 192 * QN_PANEL); }

INLINE void q6_k_abreast(const uint8_t *p, int v, const qn_quant_row *x, int offset, vf sum[ABREAST]) {
    vf d[ABREAST] = {half_field(p + 224 * QN_PANEL, v), half_field(p + 224 * QN_PANEL, v + 1)};
    p += v * VF_N * 4; /* so that all else is constant */
    QN_UNROLL
    for (int g = 0; g < 16; g++) {
        QN_UNROLL
        for (int i = 0; i < ABREAST; i++) {
            vi whole = vi_sum_start(-offset * x->sum[g]);
            vu codes[4];
            sixes(p, g, i, codes);
            QN_UNROLL
            for (int j = 0; j < 4; j++) whole = vi_dot4_at(whole, codes[j], x->q + 16 * g, j);
            sum[i] = vf_fma(vf_from_sum(whole), vf_times_at(sixes_scale(p, d[i], g, i), x->d, g / 2), sum[i]);
        }
    }
}
void QN_K(one_kept_q6_k)(const qn_quant_line *l) { one_abreast(l, q6_k_abreast, 226 * QN_PANEL); }
#endif
