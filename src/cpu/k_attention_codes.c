/* The scores of a few rows of queries against a block of keys of q8_0 or q4_0. Keys are turned some elements at a time, in squares of bytes
 * that become floats when they are multiplied: what turns and what multiplies are different parts of a machine, which then work at once.
 * Written out as floats each key would be used but a few times. Keys of 16 bits, whose rows often lie a power of two apart so that caches hold
 * few of them at a time, are not turned so: see k_attention_words.c. */
#define QN_NARROW 1 /* as there */
#include "cpu/k_attention.h"
#include "cpu/simd/simd_bytes.h"
#include "cpu/simd/simd_codes.h"

#define INLINE static inline __attribute__((always_inline))

enum { KEYS = QN_ATTEND_KEYS, BLOCK = QN_ATTEND_BLOCK, CHUNK = 16 };

enum { VECTORS = 4, ACROSS = VECTORS * VF_N, MOST = QN_REGISTERS == 32 ? 4 : 2 }; /* MOST: rows whose sums stay in registers */

/* How keys become columns: `columns` of them at a time, ACROSS keys wide. */
typedef struct form {
    int columns;
    void (*turn)(const char *keys, int64_t step, int64_t p, char *square);
} form;

INLINE void turn_q8_0(const char *keys, int64_t step, int64_t p, char *square) {
    const char *codes = keys + p / BLOCK * qn_attend_block_bytes(QN_DTYPE_Q8_0) + 2 + p % BLOCK;
    vb r[CHUNK];
    QN_UNROLL
    for (int i = 0; i < CHUNK; i++) r[i] = vb_rows(codes + i * step, step);
    vb_turn(r);
    QN_UNROLL
    for (int i = 0; i < CHUNK; i++) memcpy(square + i * ACROSS, &r[i], sizeof r[i]);
}
/* Element i and element i + 16 of a block share byte i, and are turned as one. */
INLINE void turn_q4_0(const char *keys, int64_t step, int64_t p, char *square) {
    const char *pairs = keys + p / BLOCK * qn_attend_block_bytes(QN_DTYPE_Q4_0) + 2;
    vb r[CHUNK];
    QN_UNROLL
    for (int i = 0; i < CHUNK; i++) r[i] = vb_rows(pairs + i * step, step);
    vb_turn(r);
    QN_UNROLL
    for (int i = 0; i < CHUNK; i++) {
        vb low = (r[i] & 15) - 8, high = (vb)((vu)r[i] >> 4 & 0x0f0f0f0fu) - 8;
        memcpy(square + i * ACROSS, &low, sizeof low);
        memcpy(square + (CHUNK + i) * ACROSS, &high, sizeof high);
    }
}
/* Rounded as k_decode.c does it. */
INLINE vf column_at(const char *square, int i, int v, const float *scales) {
    return vf_load(scales + v * VF_N) * vf_from_i(vi_load_s8(square + i * ACROSS + v * VF_N));
}

static const form form_q8_0 = {CHUNK, turn_q8_0}, form_q4_0 = {BLOCK, turn_q4_0};

/* Rows [row, row + rows). */
INLINE void score(int rows, const qn_attend_score *s, int row, form f) {
    qn_attend_pace pace = qn_attend_paced(s->ahead, KEYS / ACROSS * s->deep, 2);
    const float *q = s->q + row * s->deep;
    for (int j = 0; j < KEYS; j += ACROSS) {
        vf sum[MOST][VECTORS];
        QN_UNROLL
        for (int r = 0; r < rows; r++) {
            QN_UNROLL
            for (int v = 0; v < VECTORS; v++) sum[r][v] = vf_zero();
        }
        for (int64_t p = 0; p < s->deep; p += f.columns) {
            _Alignas(64) char square[BLOCK * ACROSS];
            f.turn(s->keys + j * s->step, s->step, p, square);
            const float *scales = s->scales + p / BLOCK * KEYS + j;
            for (int i = 0; i < f.columns; i++) {
                qn_attend_ask(&pace);
                vf w[VECTORS];
                QN_UNROLL
                for (int v = 0; v < VECTORS; v++) w[v] = column_at(square, i, v, scales);
                QN_UNROLL
                for (int r = 0; r < rows; r++) {
                    vf x = vf_set1(q[r * s->deep + p + i]);
                    QN_UNROLL
                    for (int v = 0; v < VECTORS; v++) sum[r][v] = vf_fma(x, w[v], sum[r][v]);
                }
            }
        }
        QN_UNROLL
        for (int r = 0; r < rows; r++) {
            QN_UNROLL
            for (int v = 0; v < VECTORS; v++) vf_store(s->scores + (row + r) * KEYS + j + v * VF_N, sum[r][v]);
        }
    }
}

/* As few passes as there can be, of as equal a number of rows. */
#define ROWS(label)                                                       \
    static void rows_##label(const qn_attend_score *s) {                  \
        int passes = (s->rows + MOST - 1) / MOST, row = 0;                \
        for (int left = passes; left > 0; left--) {                       \
            int n = (s->rows - row + left - 1) / left;                    \
            if (n == 1) score(1, s, row, form_##label);                   \
            else if (n == 2 || MOST == 2) score(2, s, row, form_##label); \
            else if (n == 3) score(3, s, row, form_##label);              \
            else score(4, s, row, form_##label);                          \
            row += n;                                                     \
        }                                                                 \
    }
ROWS(q8_0)
ROWS(q4_0)

/* ---- Scales */

/* Those that blocks begin with: block b of row j comes to place j * across + b * down. */
static void fetch_scales(const char *rows, int64_t step, uint32_t dtype, int n, int64_t blocks, float *to, int64_t across,
                         int64_t down) {
    int64_t count = n * blocks, size = qn_attend_block_bytes(dtype);
    uint16_t *halves = (uint16_t *)(void *)(to + (count + VF_N - 1) / VF_N * VF_N);
    for (int j = 0; j < n; j++, rows += step)
        for (int64_t b = 0; b < blocks; b++) memcpy(halves + j * across + b * down, rows + b * size, sizeof *halves);
    for (int64_t i = 0; i < count; i += VF_N) vf_store(to + i, vf_load_h(halves + i));
}

void qn_attend_scales(const char *rows, int64_t step, uint32_t dtype, int n, int64_t wide, float *to) {
    fetch_scales(rows, step, dtype, n, wide / BLOCK, to, wide / BLOCK, 1);
}

void qn_attend_scores(const qn_attend_score *s) {
    fetch_scales(s->keys, s->step, s->dtype, KEYS, s->deep / BLOCK, s->scales, 1, KEYS);
    if (s->dtype == QN_DTYPE_Q8_0) rows_q8_0(s);
    else rows_q4_0(s);
}
