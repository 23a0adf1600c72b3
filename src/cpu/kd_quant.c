/* The table of block types, packing of their rows into panels, and the quantising of activations. */
#include "cpu/kd_unpack.h"
#include "cpu/simd/simd_codes.h"
#include "cpu/simd/simd_rows.h"

/* ---- Types: dtype, group, has a minimum, offset, wide, largest code, fields of a block as (bytes of an element, elements), unpacking, one row,
 * a few rows, and what it is packed as when not as it is. */

enum { WIDE_OFFSET = VU_WIDE_FLIP & 255u };

#ifdef QN_KEEPS_Q4_K
#define QN_ONE_Q4_K QN_K(one_kept_q4_k), NULL, &QN_K(kept_q4_k)
#else
#define QN_ONE_Q4_K QN_K(one_q4_k), NULL, NULL
#endif
#ifdef QN_KEEPS_Q6_K
#define QN_ONE_Q6_K QN_K(one_kept_q6_k), NULL, &QN_K(kept_q6_k)
#else
#define QN_ONE_Q6_K QN_K(one_q6_k), NULL, NULL
#endif

static const qn_quant_type types[] = {
    {QN_DTYPE_Q4_0, 32, 0, 8, 0, MOST_q4_0, {2, 1, 4, 4}, QN_K(unpack_q4_0), QN_K(one_q4_0), QN_K(few_q4_0), NULL},
    {QN_DTYPE_Q4_1, 32, 1, 0, 0, MOST_q4_1, {2, 2, 4, 4}, QN_K(unpack_q4_1), QN_K(one_q4_1), NULL, NULL},
    {QN_DTYPE_Q5_0, 32, 0, 16, 0, MOST_q5_0, {2, 1, 4, 5}, QN_K(unpack_q5_0), QN_K(one_q5_0), NULL, NULL},
    {QN_DTYPE_Q5_1, 32, 1, 0, 0, MOST_q5_1, {2, 2, 4, 5}, QN_K(unpack_q5_1), QN_K(one_q5_1), NULL, NULL},
    {QN_DTYPE_Q8_0, 32, 0, WIDE_OFFSET, 1, MOST_q8_0, {2, 1, 4, 8}, QN_K(unpack_q8_0), QN_K(one_q8_0), QN_K(few_q8_0), NULL},
    {QN_DTYPE_Q8_1, 32, 0, WIDE_OFFSET, 1, MOST_q8_1, {2, 2, 4, 8}, QN_K(unpack_q8_1), QN_K(one_q8_1), NULL, NULL},
    {QN_DTYPE_Q2_K, 16, 1, 0, 0, MOST_q2_k, {4, 20, 2, 2}, QN_K(unpack_q2_k), QN_K(one_q2_k), NULL, NULL},
    {QN_DTYPE_Q3_K, 16, 0, 4, 0, MOST_q3_k, {4, 27, 2, 1}, QN_K(unpack_q3_k), QN_K(one_q3_k), NULL, NULL},
    {QN_DTYPE_Q4_K, 32, 1, 0, 0, MOST_q4_k, {2, 2, 4, 35}, QN_K(unpack_q4_k), QN_ONE_Q4_K},
    {QN_DTYPE_Q5_K, 32, 1, 0, 0, MOST_q5_k, {2, 2, 4, 43}, QN_K(unpack_q5_k), QN_K(one_q5_k), NULL, NULL},
    {QN_DTYPE_Q6_K, 16, 0, 32, 0, MOST_q6_k, {4, 52, 2, 1}, QN_K(unpack_q6_k), QN_ONE_Q6_K},
    {QN_DTYPE_Q8_K, 32, 0, WIDE_OFFSET, 1, MOST_q8_k, {4, 65, 2, 16}, QN_K(unpack_q8_k), QN_K(one_q8_k), NULL, NULL},
    {QN_DTYPE_IQ2_XXS,
     32,
     0,
     64,
     0,
     MOST_kept_iq2_32,
     {2, 1, 4, 16},
     QN_K(unpack_iq2_xxs),
     QN_K(one_kept_iq2_32),
     NULL,
     &QN_K(kept_iq2_32)},
    {QN_DTYPE_IQ2_XS,
     16,
     0,
     64,
     0,
     MOST_kept_iq2_16,
     {2, 1, 4, 18},
     QN_K(unpack_iq2_xs),
     QN_K(one_kept_iq2_16),
     NULL,
     &QN_K(kept_iq2_16)},
    {QN_DTYPE_IQ3_XXS,
     32,
     0,
     64,
     0,
     MOST_kept_iq3_xxs,
     {2, 1, 4, 24},
     QN_K(unpack_iq3_xxs),
     QN_K(one_kept_iq3_xxs),
     NULL,
     &QN_K(kept_iq3_xxs)},
    {QN_DTYPE_IQ1_S,
     32,
     0,
     9,
     0,
     MOST_kept_iq1_32,
     {2, 1, 4, 12},
     QN_K(unpack_iq1_s),
     QN_K(one_kept_iq1_32),
     NULL,
     &QN_K(kept_iq1_32)},
    {QN_DTYPE_IQ4_NL, 32, 0, WIDE_OFFSET, 1, MOST_iq4_nl, {2, 1, 4, 4}, QN_K(unpack_iq4_nl), QN_K(one_iq4_nl), NULL, NULL},
    {QN_DTYPE_IQ3_S,
     32,
     0,
     64,
     0,
     MOST_kept_iq3_s,
     {2, 1, 4, 27},
     QN_K(unpack_iq3_s),
     QN_K(one_kept_iq3_s),
     NULL,
     &QN_K(kept_iq3_s)},
    {QN_DTYPE_IQ2_S,
     16,
     0,
     64,
     0,
     MOST_kept_iq2_16,
     {2, 1, 4, 20},
     QN_K(unpack_iq2_s),
     QN_K(one_kept_iq2_16),
     NULL,
     &QN_K(kept_iq2_16)},
    {QN_DTYPE_IQ4_XS, 32, 0, WIDE_OFFSET, 1, MOST_iq4_xs, {2, 2, 4, 33}, QN_K(unpack_iq4_xs), QN_K(one_iq4_xs), NULL, NULL},
    {QN_DTYPE_IQ1_M, 16, 0, 9, 0, MOST_kept_iq1_16, {4, 14}, QN_K(unpack_iq1_m), QN_K(one_kept_iq1_16), NULL, &QN_K(kept_iq1_16)},
    {QN_DTYPE_TQ1_0, 32, 0, 1, 0, MOST_tq2_0, {4, 13, 2, 1}, QN_K(unpack_tq1_0), QN_K(one_tq2_0), NULL, &QN_K(kept_pairs)},
    {QN_DTYPE_TQ2_0, 32, 0, 1, 0, MOST_tq2_0, {4, 16, 2, 1}, QN_K(unpack_tq2_0), QN_K(one_tq2_0), NULL, NULL},
    {QN_DTYPE_MXFP4, 32, 0, 12, 0, MOST_mxfp4, {1, 1, 4, 4}, QN_K(unpack_mxfp4), QN_K(one_mxfp4), NULL, NULL},
    {QN_DTYPE_NVFP4, 16, 0, 12, 0, MOST_nvfp4, {4, 9}, QN_K(unpack_nvfp4), QN_K(one_nvfp4), NULL, NULL},
    {QN_DTYPE_Q1_0, 32, 0, 1, 0, MOST_q1_0, {2, 1, 4, 4}, QN_K(unpack_q1_0), QN_K(one_q1_0), NULL, NULL},
    {QN_DTYPE_Q2_0, 32, 0, 1, 0, MOST_q2_0, {2, 1, 4, 4}, QN_K(unpack_q2_0), QN_K(one_q2_0), NULL, NULL},
};

const qn_quant_type *qn_quant_type_of(uint32_t dtype) {
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (types[i].dtype == dtype) return &types[i];
    return NULL;
}

/* ---- Packing */

/* Of a field of a whole panel: words by fours, 16 bits one by one; how many elements that is. */
static int pack_whole(const uint8_t *rows, const int64_t *row, int size, int count, uint8_t *to) {
    vf words[4];
    if (size == 2)
        for (int i = 0; i < count; i++, rows += 2, to += 2 * QN_PANEL) {
            QN_UNROLL
            for (int r = 0; r < QN_PANEL; r++) memcpy(to + 2 * r, rows + row[r], 2);
        }
    if (size != 4) return size == 2 ? count : 0;
    for (int i = 0; i + 4 <= count; i += 4, rows += 16, to += 16 * QN_PANEL)
        for (int r = 0; r < QN_PANEL; r += VF_N) {
            vf_turn_fours((const char *)rows, row + r, words);
            for (int w = 0; w < 4; w++) memcpy(to + 4 * (w * QN_PANEL + r), &words[w], sizeof words[w]);
        }
    return count / 4 * 4;
}

/* One field: its elements one after the other, of each the rows side by side. */
static uint8_t *pack_field(const uint8_t *rows, const int64_t *row, int n, int size, int count, uint8_t *to) {
    int done = n == QN_PANEL ? pack_whole(rows, row, size, count, to) : 0;
    rows += size * done;
    to += size * done * QN_PANEL;
    for (int i = done; i < count; i++, rows += size, to += size * QN_PANEL) {
        if (size == 4)
            for (int r = 0; r < n; r++) memcpy(to + 4 * r, rows + row[r], 4);
        else if (size == 2)
            for (int r = 0; r < n; r++) memcpy(to + 2 * r, rows + row[r], 2);
        else
            for (int r = 0; r < n; r++) to[r] = rows[row[r]];
        if (n < QN_PANEL) memset(to + size * n, 0, (size_t)(size * (QN_PANEL - n)));
    }
    return to;
}

void qn_quant_pack(const qn_quant_type *t, const uint8_t *rows, int64_t step, int n, int64_t blocks, uint8_t *panel) {
    int64_t row[QN_PANEL];
    for (int i = 0; i < QN_PANEL; i++) row[i] = i * step;
    for (int64_t b = 0; b < blocks; b++)
        for (int s = 0; s < QN_SEGMENTS && t->segment[2 * s]; s++) {
            int size = t->segment[2 * s], count = t->segment[2 * s + 1];
            panel = pack_field(rows, row, n, size, count, panel);
            rows += size * count;
        }
}

/* ---- Activations */

static float load_one(const char *x, uint32_t dtype) {
    if (dtype == QN_DTYPE_F32) return *(const float *)x;
    return dtype == QN_DTYPE_F16 ? qn_f16_to_f32(*(const uint16_t *)x) : qn_bf16_to_f32(*(const uint16_t *)x);
}

static void load_chunk(const char *x, uint32_t dtype, int64_t step, int count, float *to) {
    if (step != qn_float_bytes(dtype))
        for (int i = 0; i < count; i++) to[i] = load_one(x + i * step, dtype);
    else if (dtype == QN_DTYPE_F32) memcpy(to, x, (size_t)count * 4);
    else if (dtype == QN_DTYPE_F16)
        for (int i = 0; i < count; i += VF_N) vf_store(to + i, vf_load_h((const uint16_t *)x + i));
    else
        for (int i = 0; i < count; i += VF_N) vf_store(to + i, vf_load_b((const uint16_t *)x + i));
}

/* Largest magnitude of 32, as bits: those of finite numbers are ordered like the numbers, and all others are above them. */
static int32_t peak_bits(const float *x) {
    vi most = vi_bits(vf_abs(vf_load(x)));
    for (int i = VF_N; i < 32; i += VF_N) most = vi_max(most, vi_bits(vf_abs(vf_load(x + i))));
    return vi_largest(most);
}

/* Sixteen elements to integers; their sum. */
static int32_t round_16(const float *x, float inverse, int8_t *q) {
    vi sum = vi_set1(0);
    for (int i = 0; i < 16; i += VF_N) {
        vi r = vi_from_f(vf_round(vf_load(x + i) * vf_set1(inverse)));
        vi_store_8(q + i, r);
        sum += r;
    }
    return vi_total(sum);
}

/* A block of 32 that holds NaN or infinity gets the scale NaN, and so do the sums it is part of; its integers are 0, for there are none of such
 * numbers. One whose largest magnitude is too small to divide by counts as zero. */
void qn_quant_activate(const char *x, uint32_t dtype, int64_t step, int count, int group, qn_quant_row *to) {
    float t[QN_CHUNK], inverse[QN_CHUNK / 32];
    int blocks = count / 32;
    load_chunk(x, dtype, step, count, t);
    for (int b = 0; b < blocks; b++) {
        int32_t bits = peak_bits(t + 32 * b);
        float peak = qn_bits_to_f32((uint32_t)bits);
        inverse[b] = bits < 0x7f800000 && peak > 0x1p-100f ? 127.0f / peak : 0.0f;
        to->d[b] = bits < 0x7f800000 ? peak / 127.0f : qn_bits_to_f32(0x7fc00000u);
    }
    for (int b = 0; b < blocks; b++) {
        int32_t low = 0, high = 0;
        if (to->d[b] - to->d[b] == 0) {
            low = round_16(t + 32 * b, inverse[b], to->q + 32 * b);
            high = round_16(t + 32 * b + 16, inverse[b], to->q + 32 * b + 16);
        } else memset(to->q + 32 * b, 0, 32);
        if (group == 32) to->sum[b] = low + high;
        else {
            to->sum[2 * b] = low;
            to->sum[2 * b + 1] = high;
        }
    }
    for (int g = 0; g < count / group; g++) to->total[g] = to->d[g * group / 32] * (float)to->sum[g];
}
