/* What the files of unpacking share: words and fields of a panel, and how a function for one block and one vector of its rows becomes
 * one for a chunk. */
#ifndef QN_CPU_KD_UNPACK_H
#define QN_CPU_KD_UNPACK_H

#include "cpu/kd_quant.h"
#include "cpu/simd/simd_codes.h"

#define INLINE static inline __attribute__((always_inline, unused)) /* a level may leave a product to another file */

enum { LOW4 = 0x0f0f0f0f, LOW2 = 0x03030303, LOW6 = 0x3f3f3f3f, HIGH2 = 0x30303030, BIT4 = 0x10101010, ONES = 0x01010101 };

/* Unrolls what the registers hold only where a vector is a whole panel; elsewhere it would keep the compiler busy for minutes. */
#if defined(__AVX512F__)
#define QN_UNROLL_BLOCK QN_UNROLL
#else
#define QN_UNROLL_BLOCK
#endif

/* Arm instead unrolls within the long blocks that bring their own products, so that shifts are constants, and not from vector to vector:
 * their sums can wait in memory for as long as a block takes. */
#if defined(QN_SIMD_NEON) || defined(QN_SIMD_SVE)
enum { QN_ROLLS_VECTORS = 1 };
#define QN_UNROLL_GROUPS QN_UNROLL
#else
enum { QN_ROLLS_VECTORS = 0 };
#define QN_UNROLL_GROUPS QN_UNROLL_BLOCK
#endif

/* The largest code of each type; 127 where that says nothing. */
enum {
    MOST_q1_0 = 2,
    MOST_q2_k = 3,
    MOST_q2_0 = 3,
    MOST_tq2_0 = 3,
    MOST_q3_k = 7,
    MOST_q4_0 = 15,
    MOST_q4_1 = 15,
    MOST_q4_k = 15,
    MOST_kept_iq1_32 = 18,
    MOST_kept_iq1_16 = 18,
    MOST_mxfp4 = 24,
    MOST_nvfp4 = 24,
    MOST_q5_0 = 31,
    MOST_q5_1 = 31,
    MOST_q5_k = 31,
    MOST_q6_k = 63,
    MOST_q8_0 = 127,
    MOST_q8_1 = 127,
    MOST_q8_k = 127,
    MOST_iq4_nl = 127,
    MOST_iq4_xs = 127,
    MOST_kept_iq2_32 = 127,
    MOST_kept_iq2_16 = 127,
    MOST_kept_iq3_xxs = 127,
    MOST_kept_iq3_s = 127
};

/* Forms of their own for packed weights, see kd_kept.c. */
#if defined(QN_SIMD_NEON) || defined(QN_SIMD_SVE)
#define QN_KEEPS_Q4_K 1
#define QN_KEEPS_Q6_K 1
#endif

/* Level sve has these two sorts of files apart: those of NEON's vectors for one row, and the others. */
#if !defined(QN_SIMD_SVE)
#define QN_HAS_NARROW 1
#endif

/* Word i of a field of words. */
INLINE vu word(const uint8_t *field, int i, int v) { return vu_load(field + (i * QN_PANEL + v * VF_N) * 4); }
/* A field of one f16 a row. */
INLINE vf half_field(const uint8_t *field, int v) { return vf_load_h((const uint16_t *)(const void *)(field + v * VF_N * 2)); }
/* Fields of one 16-bit number or one byte a row. */
#if defined(QN_SIMD_SVE) /* whose loads widen */
INLINE vu short_field(const uint8_t *field, int v) {
    return svld1uh_u32(VF_ALL, (const uint16_t *)(const void *)(field + v * VF_N * 2));
}
#else
INLINE vu short_field(const uint8_t *field, int v) {
    vh h;
    memcpy(&h, field + v * VF_N * 2, sizeof h);
    return __builtin_convertvector(h, vu);
}
#endif
INLINE vu byte_field(const uint8_t *field, int v) { return (vu)vi_load_u8(field + v * VF_N); }
INLINE void put(uint32_t (*codes)[QN_PANEL], int i, int v, vu w) { vu_store(codes[i] + v * VF_N, w); }
INLINE void put_f(float (*to)[QN_PANEL], int group, int v, vf x) { vf_store(to[group] + v * VF_N, x); }

/* The numbers of a group in the form's field of them. */
INLINE vf kept_float(const uint8_t *field, int g, int v) {
    return vf_load((const float *)(const void *)(field + 4 * g * QN_PANEL) + v * VF_N);
}

#ifdef QN_KEEPS_Q6_K
/* Of Q6_K as it is kept: codes of a group, and its scale. */
INLINE void sixes(const uint8_t *p, int g, int v, vu to[4]) {
    vu a = word(p, 3 * g, v), b = word(p, 3 * g + 1, v), c = word(p, 3 * g + 2, v);
    to[0] = a & LOW6;
    to[1] = b & LOW6;
    to[2] = c & LOW6;
#if defined(QN_SIMD_NEON)
    __asm__("" : "+w"(to[0]), "+w"(to[1]), "+w"(to[2])); /* now, so that a need not be copied */
#endif
    to[3] = vu_tops(a, b, c);
}
INLINE vf sixes_scale(const uint8_t *p, vf d, int g, int v) {
    vu two = word(p + 192 * QN_PANEL, g / 2, v);
    return d * vf_of_bits((vi)(g % 2 ? two & 0xffff0000u : two << 16));
}
#endif

/* Vector v of block b of a chunk, whose panel bytes begin at p. */
typedef void (*block_fn)(const uint8_t *p, int b, int v, qn_quant_chunk *to);

/* Keeps compilers from gathering what is asked for ahead at one place, where it would wait for itself. */
#define QN_STAY __asm__ volatile("" ::: "memory")

/* What will be read soon, and what later. */
typedef struct asked {
    const uint8_t *soon, *later;
} asked;

/* Share i of n of the `size` bytes at either. */
INLINE void fetch_ahead(asked next, int size, int i, int n) {
    for (int at = i * size / n; QN_LATER > 0 && at < (i + 1) * size / n; at += 64) {
        __builtin_prefetch(next.soon + at, 0, 3);
        __builtin_prefetch(next.later + at, 0, 2);
    }
}

/* One block of one vector of rows times one row of activations, whose groups from `g` on it meets. The unpacked block is the
 * compiler's to keep: mostly it never leaves the registers. The arithmetic is that of kd_dots.c, in the same order. `next`: what is
 * to be read after it, of which `size` bytes are asked for meanwhile; NULL: nothing. */
INLINE vf block_dot(const qn_quant_chunk *w, int v, const qn_quant_row *x, int g, int offset, vf sum, int block, int group,
                    int least, int wide, int most, const asked *next, int size) {
    int run = vi_run_words(most) < group / 4 ? vi_run_words(most) : group / 4;
    QN_UNROLL_BLOCK
    for (int i = 0; i < block / group; i++, g++) {
        if (next) {
            QN_STAY;
            fetch_ahead(*next, size, i, block / group);
        }
        vi whole = vi_sum_start(-offset * x->sum[g]), part = vi_run_start(whole);
        QN_UNROLL
        for (int j = 0; j < group / 4; j++) {
            vu codes = vu_load(w->codes[i * group / 4 + j] + v * VF_N);
            const int8_t *q = x->q + g * group;
            if (wide) whole = vi_dot4_wide(whole, codes, four_bytes(q + 4 * j));
            else part = vi_run_dot4_at(part, codes, q, j);
            if (wide || (j + 1) % run) continue;
            whole = vi_run_end(part, whole);
            part = vi_run_start(whole);
        }
        sum = vf_fma(vf_from_sum(whole), vf_load(w->scale[i] + v * VF_N) * vf_set1(x->d[g * group / 32]), sum);
        if (least) sum = vf_fma(vf_load(w->least[i] + v * VF_N), vf_set1(x->total[g]), sum);
    }
    return sum;
}

/* Vector v of the block at p times a row, whose groups from g on it meets; as many bytes as it has are asked for at `next`. */
typedef vf (*dot_fn)(const uint8_t *p, asked next, int v, const qn_quant_row *x, int g, int offset, vf sum);

/* Panels side by side times one row, over its whole length: as many streams of weights as there are panels. At their end the
 * beginnings of the panels behind them are asked for, which mostly come next. */
INLINE void one_row(const qn_quant_line *l, int panels, dot_fn dot, int block, int size, int group) {
    vf sum[QN_DOT_PANELS_ONE][QN_PANEL_VECTORS];
    const uint8_t *at[QN_DOT_PANELS_ONE];
    const qn_quant_row *x = l->x;
    int64_t bytes = l->k / block * size, rest = bytes, soon = QN_SOON, later = QN_LATER;
    QN_UNROLL
    for (int p = 0; p < panels; p++) {
        at[p] = l->panel[p];
        QN_UNROLL
        for (int v = 0; v < QN_PANEL_VECTORS; v++) sum[p][v] = vf_zero();
    }
    for (int64_t left = l->k; left > 0; left -= QN_CHUNK, x += l->x_step) {
        int groups = (int)(left < QN_CHUNK ? left : QN_CHUNK) / group;
        for (int g = 0; g < groups; g += block / group, rest -= size) {
            if (rest <= QN_SOON) soon = QN_SOON + (panels - 1) * bytes;
            if (rest <= QN_LATER) later = QN_LATER + (panels - 1) * bytes;
            if (QN_ROLLS_VECTORS && block == QN_CHUNK && group == 32) {
                for (int i = 0; i < panels * QN_PANEL_VECTORS; i++) {
                    int p = i / QN_PANEL_VECTORS, v = i % QN_PANEL_VECTORS;
                    sum[p][v] = dot(at[p], (asked){at[p] + soon, at[p] + later}, v, x, g, l->offset, sum[p][v]);
                    if (v == QN_PANEL_VECTORS - 1) at[p] += size;
                }
                continue;
            }
            QN_UNROLL
            for (int p = 0; p < panels; p++) {
                QN_UNROLL
                for (int v = 0; v < QN_PANEL_VECTORS; v++)
                    sum[p][v] = dot(at[p], (asked){at[p] + soon, at[p] + later}, v, x, g, l->offset, sum[p][v]);
                at[p] += size;
            }
        }
    }
    QN_UNROLL
    for (int p = 0; p < panels; p++) {
        QN_UNROLL
        for (int v = 0; v < QN_PANEL_VECTORS; v++) vf_store(l->sums + p * QN_PANEL + v * VF_N, sum[p][v]);
    }
}

/* Rows [first, first + rows) of a few, over one chunk of panels side by side. */
INLINE void few_rows(const qn_quant_few *l, int64_t chunk, int first, int rows, int groups, block_fn unpack, int block, int size,
                     int group, int least, int wide, int most) {
    vf sum[QN_FEW_ROWS][QN_FEW_PANELS][QN_PANEL_VECTORS];
    const qn_quant_row *x[QN_FEW_ROWS];
    float *sums = l->sums + first * l->step;
    const uint8_t *at[QN_FEW_PANELS];
    QN_UNROLL
    for (int p = 0; p < QN_FEW_PANELS; p++) at[p] = l->panel[p] + chunk * (QN_CHUNK / block) * size;
    QN_UNROLL
    for (int j = 0; j < rows; j++) {
        x[j] = l->rows + chunk * l->x_step + l->x[first + j];
        QN_UNROLL
        for (int p = 0; p < QN_FEW_PANELS; p++) {
            QN_UNROLL
            for (int v = 0; v < QN_PANEL_VECTORS; v++) sum[j][p][v] = vf_load(sums + j * l->step + p * QN_PANEL + v * VF_N);
        }
    }
    for (int g = 0; g < groups; g += block / group) {
        QN_UNROLL
        for (int p = 0; p < QN_FEW_PANELS; p++) {
            asked next = {at[p] + QN_SOON, at[p] + QN_LATER};
            QN_UNROLL
            for (int v = 0; v < QN_PANEL_VECTORS; v++) {
                qn_quant_chunk w;
                unpack(at[p], 0, v, &w);
                QN_UNROLL
                for (int j = 0; j < rows; j++)
                    sum[j][p][v] = block_dot(&w, v, x[j], g, l->offset, sum[j][p][v], block, group, least, wide, most,
                                             v || j ? NULL : &next, size);
            }
            at[p] += size;
        }
    }
    QN_UNROLL
    for (int j = 0; j < rows; j++) {
        QN_UNROLL
        for (int p = 0; p < QN_FEW_PANELS; p++) {
            QN_UNROLL
            for (int v = 0; v < QN_PANEL_VECTORS; v++) vf_store(sums + j * l->step + p * QN_PANEL + v * VF_N, sum[j][p][v]);
        }
    }
}

/* The same for rows of any number, chunk by chunk, so that all of them find a chunk in the first cache. */
#ifdef QN_NARROW
#define FEW(name, block, size, group, least, wide)
#else
#define FEW(name, block, size, group, least, wide)                                                                     \
    void QN_K(few_##name)(const qn_quant_few *l) {                                                                     \
        for (int64_t c = 0; c * QN_CHUNK < l->k; c++) {                                                                \
            int groups = (int)(l->k - c * QN_CHUNK < QN_CHUNK ? l->k - c * QN_CHUNK : QN_CHUNK) / (group);             \
            int j = 0;                                                                                                 \
            for (; j + 4 <= l->n; j += 4)                                                                              \
                few_rows(l, c, j, 4, groups, name, block, (size)*QN_PANEL, group, least, wide, MOST_##name);           \
            if (l->n - j >= 2)                                                                                         \
                few_rows(l, c, j, 2, groups, name, block, (size)*QN_PANEL, group, least, wide, MOST_##name), j += 2;   \
            if (j < l->n) few_rows(l, c, j, 1, groups, name, block, (size)*QN_PANEL, group, least, wide, MOST_##name); \
        }                                                                                                              \
    }
#endif

/* What a type needs of its function name(p, b, v, to): the unpacking of a chunk, and the product with one row, for as many panels as
 * go abreast and for one; UNPACK_ONLY for those that are packed as something else, UNPACK_DOT for those that bring a name_dot which
 * does with one row what unpacking and block_dot would.
 *
 * UNPACK_NARROW and UNPACK_DOT_NARROW for those whose product with one row level sve leaves to kd_sve_narrow.c, where QN_NARROW is
 * defined and nothing else is made. */
#ifdef QN_NARROW
#define UNPACK_ONLY(name, block, size)
#else
#define UNPACK_ONLY(name, block, size)                                                              \
    void QN_K(unpack_##name)(const uint8_t *panel, int count, qn_quant_chunk *to) {                 \
        for (int b = 0; b * (block) < count; b++)                                                   \
            for (int v = 0; v < QN_PANEL_VECTORS; v++) name(panel + b * (size)*QN_PANEL, b, v, to); \
    }
#endif
#define ONE_BY_DOT(name, block, size, group)                                                                          \
    void QN_K(one_##name)(const qn_quant_line *l) {                                                                   \
        if (l->panels == QN_DOT_PANELS_ONE) one_row(l, QN_DOT_PANELS_ONE, name##_dot, block, (size)*QN_PANEL, group); \
        else                                                                                                          \
            for (int p = 0; p < l->panels; p++) {                                                                     \
                qn_quant_line each = {{l->panel[p]}, 1, l->x, l->x_step, l->k, l->offset, l->sums + p * QN_PANEL};    \
                one_row(&each, 1, name##_dot, block, (size)*QN_PANEL, group);                                         \
            }                                                                                                         \
    }
#define DOT_BY_BLOCK(name, block, size, group, least, wide)                                                                    \
    INLINE vf name##_dot(const uint8_t *p, asked next, int v, const qn_quant_row *x, int g, int offset, vf sum) {              \
        qn_quant_chunk w;                                                                                                      \
        name(p, 0, v, &w);                                                                                                     \
        return block_dot(&w, v, x, g, offset, sum, block, group, least, wide, MOST_##name, v ? NULL : &next, (size)*QN_PANEL); \
    }
#ifdef QN_NARROW
#define UNPACK_DOT(name, block, size, group)
#define UNPACK(name, block, size, group, least, wide)
#else
#define UNPACK_DOT(name, block, size, group) UNPACK_ONLY(name, block, size) ONE_BY_DOT(name, block, size, group)
#define UNPACK(name, block, size, group, least, wide) \
    DOT_BY_BLOCK(name, block, size, group, least, wide) UNPACK_DOT(name, block, size, group)
#endif
#ifdef QN_HAS_NARROW
#define UNPACK_DOT_NARROW(name, block, size, group) UNPACK_ONLY(name, block, size) ONE_BY_DOT(name, block, size, group)
#define UNPACK_NARROW(name, block, size, group, least, wide) \
    DOT_BY_BLOCK(name, block, size, group, least, wide) UNPACK_DOT_NARROW(name, block, size, group)
#else
#define UNPACK_DOT_NARROW(name, block, size, group) UNPACK_ONLY(name, block, size)
#define UNPACK_NARROW(name, block, size, group, least, wide) UNPACK_ONLY(name, block, size)
#endif

#define QN_UNPACKS(X) \
    X(q4_0)           \
    X(q4_1)           \
    X(q5_0)           \
    X(q5_1)           \
    X(q8_0)           \
    X(q8_1)           \
    X(q2_k)           \
    X(q3_k)           \
    X(q4_k)           \
    X(q5_k)           \
    X(q6_k)           \
    X(q8_k)           \
    X(iq2_xxs)        \
    X(iq2_xs)         \
    X(iq3_xxs) X(iq1_s) X(iq4_nl) X(iq3_s) X(iq2_s) X(iq4_xs) X(iq1_m) X(tq1_0) X(tq2_0) X(mxfp4) X(nvfp4) X(q1_0) X(q2_0)
#define QN_UNPACK_DECLARE(name)                                                    \
    void QN_K(unpack_##name)(const uint8_t *panel, int count, qn_quant_chunk *to); \
    void QN_K(one_##name)(const qn_quant_line *l);
QN_UNPACKS(QN_UNPACK_DECLARE)
#define QN_KEPT_DECLARE(name)      \
    QN_UNPACK_DECLARE(kept_##name) \
    extern const qn_quant_kept QN_K(kept_##name);
extern const qn_quant_kept QN_K(kept_pairs);
QN_KEPT_DECLARE(iq2_32)
QN_KEPT_DECLARE(iq2_16)
QN_KEPT_DECLARE(iq3_xxs)
QN_KEPT_DECLARE(iq3_s)
QN_KEPT_DECLARE(iq1_32)
QN_KEPT_DECLARE(iq1_16)
#ifdef QN_KEEPS_Q4_K
QN_KEPT_DECLARE(q4_k)
#endif
#ifdef QN_KEEPS_Q6_K
QN_KEPT_DECLARE(q6_k)
#endif
void QN_K(few_q8_0)(const qn_quant_few *l);
void QN_K(few_q4_0)(const qn_quant_few *l);

#endif
