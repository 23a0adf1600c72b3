/* The small products of attention, whole in registers: a few rows of queries or weights against a block of keys or values. */
#include "cpu/k_attention.h"
#include "cpu/k_copy.h"
#include "cpu/simd/simd_codes.h"
#include "cpu/simd/simd_dot.h"

#if QN_REGISTERS == 32
enum { WIDE = 4 }; /* vectors of a tile; there are 32 registers */
#else
enum { WIDE = 2 };
#endif

#define INLINE static inline __attribute__((always_inline))
/* How rows of b become vectors. A tile begins at a column, `first` elements behind the beginning of a block or of what it has of one. */
typedef struct form {
    int64_t (*lies)(int64_t column); /* where that column is, in bytes */
    const float *(*scales)(const qn_attend_sum *s, int p, int64_t column);
    vf (*load)(const char *at, const float *scales, int64_t first, int v); /* vector v of a row of the tile, which lies there */
} form;

#define FLOATS(label, type, load_type)                                                          \
    INLINE int64_t lies_##label(int64_t column) { return column * (int64_t)sizeof(type); }      \
    INLINE vf load_##label(const char *at, const float *scales, int64_t first, int v) {         \
        return (void)scales, (void)first, load_type((const type *)(const void *)at + v * VF_N); \
    }                                                                                           \
    static const form form_##label = {lies_##label, no_scales, load_##label};
INLINE const float *no_scales(const qn_attend_sum *s, int p, int64_t column) { return (void)s, (void)p, (void)column, NULL; }
FLOATS(f32, float, vf_load)
FLOATS(f16, uint16_t, vf_load_h)
FLOATS(bf16, uint16_t, vf_load_b)

/* Codes by scales are rounded as k_decode.c does it. */
enum { BLOCK = QN_ATTEND_BLOCK, HALF = BLOCK / 2 };
INLINE const float *scales_at(const qn_attend_sum *s, int p, int64_t column) {
    return s->scales + p * (s->wide / BLOCK) + column / BLOCK;
}
INLINE int64_t lies_q8_0(int64_t column) { return column / BLOCK * qn_attend_block_bytes(QN_DTYPE_Q8_0) + 2 + column % BLOCK; }
INLINE vf load_q8_0(const char *at, const float *scales, int64_t first, int v) {
    const int block = v * VF_N / BLOCK, in_block = v * VF_N % BLOCK;
    (void)first;
    return vf_set1(scales[block]) * vf_from_i(vi_load_s8(at + block * qn_attend_block_bytes(QN_DTYPE_Q8_0) + in_block));
}
INLINE int64_t lies_q4_0(int64_t column) { return column / BLOCK * qn_attend_block_bytes(QN_DTYPE_Q4_0) + 2 + column % HALF; }
INLINE vf load_q4_0(const char *at, const float *scales, int64_t first, int v) {
    const int block = v * VF_N / BLOCK, in_half = v * VF_N % HALF;
    vi pairs = vi_load_u8(at + block * qn_attend_block_bytes(QN_DTYPE_Q4_0) + in_half);
    vi upper = vi_set1((int)(first + v * VF_N) % BLOCK / HALF * 4);
    return vf_set1(scales[block]) * vf_from_i((pairs >> upper & 15) - 8);
}
static const form form_q8_0 = {lies_q8_0, scales_at, load_q8_0}, form_q4_0 = {lies_q4_0, scales_at, load_q4_0};

INLINE vi vi_or(vi a, vi b) { return a | b; }

/* 1: a sum was not finite and nothing is stored. */
INLINE int tile(int rows, int vectors, const qn_attend_sum *s, int64_t row, int64_t column, form f) {
    int64_t turns = s->depth * ((s->wide + WIDE * VF_N - 1) / (WIDE * VF_N));
    qn_attend_pace pace = qn_attend_paced(s->ahead, turns, 1);
    const float *a = s->a + row * s->lda;
    const char *b = s->b + f.lies(column);
    const int64_t first = vectors * VF_N % BLOCK ? column % BLOCK : 0;
    float *c = s->c + row * s->ldc + column;
    vf sum[6][WIDE];
    QN_UNROLL
    for (int i = 0; i < rows; i++) {
        QN_UNROLL
        for (int v = 0; v < vectors; v++)
            sum[i][v] = s->factor ? vf_load(c + i * s->ldc + v * VF_N) * vf_set1(s->factor[row + i]) : vf_zero();
    }
    for (int p = 0; p < s->depth; p++, b += s->ldb) {
        vf w[WIDE];
        const float *scales = f.scales(s, p, column);
        qn_attend_ask(&pace);
        QN_UNROLL
        for (int v = 0; v < vectors; v++) w[v] = f.load(b, scales, first, v);
        QN_UNROLL
        for (int i = 0; i < rows; i++) {
            vf x = vf_set1(a[i * s->lda + p]);
            QN_UNROLL
            for (int v = 0; v < vectors; v++) sum[i][v] = vf_fma_stay(x, w[v], sum[i][v]);
        }
    }
    if (s->factor) {
        vi bad = vi_set1(0);
        QN_UNROLL
        for (int i = 0; i < rows; i++) {
            QN_UNROLL
            for (int v = 0; v < vectors; v++) bad |= sum[i][v] - sum[i][v] != vf_zero();
        }
        VI_FOLD(bad, vi_or);
        if (bad[0]) return 1;
    }
    QN_UNROLL
    for (int i = 0; i < rows; i++) {
        QN_UNROLL
        for (int v = 0; v < vectors; v++) vf_store(c + i * s->ldc + v * VF_N, sum[i][v]);
    }
    return 0;
}

/* The same for one row and one vector, where a weight of zero keeps its value out, whatever that is. */
INLINE void careful(const qn_attend_sum *s, int64_t row, int64_t column, form f) {
    const float *a = s->a + row * s->lda;
    const char *b = s->b + f.lies(column);
    float *c = s->c + row * s->ldc + column;
    vf sum = vf_load(c) * vf_set1(s->factor[row]);
    for (int p = 0; p < s->depth; p++, b += s->ldb)
        if (a[p] != 0) sum = vf_fma(vf_set1(a[p]), f.load(b, f.scales(s, p, column), column % BLOCK, 0), sum);
    vf_store(c, sum);
}

/* All columns of so many rows: by whole tiles, then pairs of vectors, then one. */
#define ROWS(label, rows)                                                                                                     \
    static void rows_##label##_##rows(const qn_attend_sum *s, int64_t row) {                                                  \
        int64_t j = 0;                                                                                                        \
        while (j < s->wide) {                                                                                                 \
            int64_t left = (s->wide - j) / VF_N, vectors = left >= WIDE ? WIDE : left >= 2 ? 2 : 1, end = j + vectors * VF_N; \
            int bad = vectors == WIDE ? tile(rows, WIDE, s, row, j, form_##label)                                             \
                      : vectors == 2  ? tile(rows, 2, s, row, j, form_##label)                                                \
                                      : tile(rows, 1, s, row, j, form_##label);                                                \
            for (; j < end; j += VF_N)                                                                                        \
                for (int i = 0; bad && i < (rows); i++) careful(s, row + i, j, form_##label);                                 \
        }                                                                                                                     \
    }
#define EACH_ROWS(label) ROWS(label, 1) ROWS(label, 2) ROWS(label, 4) ROWS(label, 6)
EACH_ROWS(f32)
EACH_ROWS(f16)
EACH_ROWS(bf16)
EACH_ROWS(q8_0)
EACH_ROWS(q4_0)

void qn_attend_product(const qn_attend_sum *s) {
#define CHOICES(dtype, label) [QN_DTYPE_##dtype] = { rows_##label##_1, rows_##label##_2, rows_##label##_4, rows_##label##_6 }
    static void (*const choices[][4])(const qn_attend_sum *, int64_t) = {
        CHOICES(F32, f32), CHOICES(F16, f16), CHOICES(BF16, bf16), CHOICES(Q8_0, q8_0), CHOICES(Q4_0, q4_0)};
    for (int row = 0; row < s->rows;) {
        int left = s->rows - row, which = left >= 6 ? 3 : left >= 4 ? 2 : left >= 2 ? 1 : 0;
        choices[s->dtype][which](s, row);
        row += which == 3 ? 6 : 1 << which;
    }
}

/* VF_N rows of keys at a time, in squares. */
#define TURN(label, type, load, loadn)                                                                                \
    static void turn_##label(const char *rows, int64_t step, int n, int64_t deep, float *to) {                        \
        for (int64_t p = 0; p < deep; p += VF_N) {                                                                    \
            vf square[VF_N];                                                                                          \
            int some = deep - p < VF_N ? (int)(deep - p) : VF_N;                                                      \
            for (int j = 0; j < VF_N; j++) {                                                                          \
                const type *row = (const type *)(const void *)(rows + j * step) + p;                                  \
                square[j] = j >= n ? vf_zero() : some == VF_N ? load(row) : loadn(row, some);                         \
            }                                                                                                         \
            vf_turn(square);                                                                                          \
            for (int i = 0; i < some; i++) vf_store(to + (p + i) * QN_ATTEND_KEYS, square[i]);                        \
        }                                                                                                             \
    }                                                                                                                 \
    /* without a question in the way */                                                                               \
    static void turn_whole_##label(const char *rows, int64_t step, int64_t deep, float *to, qn_attend_ahead *ahead) { \
        qn_attend_pace pace = qn_attend_paced(ahead, QN_ATTEND_KEYS / VF_N * (deep / VF_N), 1);                       \
        for (int64_t p = 0; p < deep; p += VF_N) {                                                                    \
            qn_attend_ask(&pace);                                                                                     \
            vf square[VF_N];                                                                                          \
            QN_UNROLL                                                                                                 \
            for (int j = 0; j < VF_N; j++) square[j] = load((const type *)(const void *)(rows + j * step) + p);       \
            vf_turn(square);                                                                                          \
            QN_UNROLL                                                                                                 \
            for (int i = 0; i < VF_N; i++) vf_store(to + (p + i) * QN_ATTEND_KEYS, square[i]);                        \
        }                                                                                                             \
    }
TURN(f32, float, vf_load, vf_loadn)
TURN(f16, uint16_t, vf_load_h, vf_load_hn)
TURN(bf16, uint16_t, vf_load_b, vf_load_bn)

void qn_attend_turn(const char *rows, int64_t step, uint32_t dtype, int n, int64_t deep, float *to, qn_attend_ahead *ahead) {
    static void (*const some[])(const char *, int64_t, int, int64_t, float *) = {turn_f32, turn_f16, turn_bf16};
    static void (*const whole[])(const char *, int64_t, int64_t, float *, qn_attend_ahead *) = {turn_whole_f32, turn_whole_f16,
                                                                                                turn_whole_bf16};
    int which = dtype == QN_DTYPE_F32 ? 0 : dtype == QN_DTYPE_F16 ? 1 : 2;
    for (int j = 0; j < n; j += VF_N)
        if (j + VF_N <= n && deep % VF_N == 0) whole[which](rows + j * step, step, deep, to + j, ahead);
        else some[which](rows + j * step, step, n - j, deep, to + j);
}

void qn_attend_widen(const char *rows, int64_t step, uint32_t dtype, int n, int64_t deep, float *to, int64_t pitch) {
    for (int j = 0; j < n; j++, rows += step, to += pitch) {
        qn_copy_row(dtype, rows, QN_DTYPE_F32, (char *)to, deep);
        for (int64_t p = deep; p < pitch; p++) to[p] = 0;
    }
}
