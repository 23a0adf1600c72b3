/* Copies whose two innermost axes change places, by squares held in registers: what is read and what is written are whole lines then. */
#include "cpu/k_copy.h"
#include "cpu/k_past.h"
#include "cpu/simd/simd_turn.h"

/* Row i of a square, of w neighbours. Rows of 2 bytes go two at a time, as rows of pairs, whose turned rows hold them side by side. */
QN_INLINE vf row_whole(const char *src, int64_t step, int64_t i, int64_t size) {
    if (size == 4) return vf_load((const float *)(const void *)(src + i * step));
    vf first = vf_load_b((const uint16_t *)(const void *)(src + 2 * i * step));
    vf second = vf_load_b((const uint16_t *)(const void *)(src + (2 * i + 1) * step));
    return vf_of_bits(vi_bits(second) | (vi)((vu)vi_bits(first) >> 16));
}
QN_INLINE vf row_some(const char *src, int64_t step, int64_t i, int64_t h, int w, int64_t size) {
    if (size == 4) return i < h ? vf_loadn((const float *)(const void *)(src + i * step), w) : vf_zero();
    vf first = vf_zero(), second = vf_zero();
    if (2 * i < h) first = vf_load_bn((const uint16_t *)(const void *)(src + 2 * i * step), w);
    if (2 * i + 1 < h) second = vf_load_bn((const uint16_t *)(const void *)(src + (2 * i + 1) * step), w);
    return vf_of_bits(vi_bits(second) | (vi)((vu)vi_bits(first) >> 16));
}

QN_INLINE void turn_whole(const char *src, int64_t step, char *dst, int64_t to, int64_t size, int past) {
    vf r[VF_N];
    QN_UNROLL
    for (int i = 0; i < VF_N; i++) r[i] = row_whole(src, step, i, size);
    vf_turn(r);
    QN_UNROLL
    for (int i = 0; i < VF_N; i++) {
        float *y = (float *)(void *)(dst + i * to);
        if (past) qn_past_store(y, r[i]);
        else vf_store(y, r[i]);
    }
}
/* What is left at the edges. */
QN_INLINE void turn_some(const char *src, int64_t step, char *dst, int64_t to, int64_t h, int64_t w, int64_t size) {
    vf r[VF_N];
    for (int i = 0; i < VF_N; i++) r[i] = row_some(src, step, i, h, (int)w, size);
    vf_turn(r);
    for (int64_t j = 0; j < w; j++) { /* a copy of few bytes would be a call, or worse */
        char *y = dst + j * to, *row = (char *)&r[j];
        int64_t k = 0;
        if (size == 4) vf_storen((float *)(void *)y, r[j], (int)h);
        for (; size == 2 && k + 4 <= h; k += 4) memcpy(y + 2 * k, row + 2 * k, 8);
        for (; size == 2 && k < h; k++) memcpy(y + 2 * k, row + 2 * k, 2);
    }
}

/* Not inlined: in a loop over squares, compilers run out of registers for addresses. */
typedef void (*turn_fn)(const char *src, int64_t step, char *dst, int64_t to);
#define TURN(name, size, past) \
    static void name(const char *src, int64_t step, char *dst, int64_t to) { turn_whole(src, step, dst, to, size, past); }
TURN(turn_words, 4, 0)
TURN(turn_words_past, 4, 1)
TURN(turn_pairs, 2, 0)
TURN(turn_pairs_past, 2, 1)

/* Where some of the VF_N rows behind dst are to be stored, asked for: rows n / of to (n + 1) / of of them. */
static void ask_for_rows(const char *dst, int64_t to, int64_t bytes, int64_t n, int64_t of) {
    for (int64_t k = VF_N * n / of; k < VF_N * (n + 1) / of; k++)
        for (int64_t at = 0; at < bytes + 63; at += 64) qn_far_ask(dst + k * to + at);
}

/* h rows of w neighbours become w rows of h: from row i, element j at src + i step + j size, to dst + j to + i size. What is written goes
 * along its rows: where these begin anywhere, squares share lines. */
static void turn_all(turn_fn turn, const char *src, int64_t step, char *dst, int64_t to, int64_t h, int64_t w, int64_t size,
                     int asks) {
    int64_t side = VF_N * 4 / size, squares = (h + side - 1) / side;
    for (int64_t j = 0; j < w; j += VF_N)
        for (int64_t i = 0; i < h; i += side) {
            const char *p = src + i * step + j * size;
            char *q = dst + j * to + i * size;
            int64_t high = h - i < side ? h - i : side, wide = w - j < VF_N ? w - j : VF_N;
            if (asks && j + 2 * VF_N <= w) ask_for_rows(dst + (j + VF_N) * to, to, h * size, i / side, squares);
            if (high == side && wide == VF_N) turn(p, step, q, to);
            else if (size == 4) turn_some(p, step, q, to, high, wide, 4);
            else turn_some(p, step, q, to, high, wide, 2);
        }
}

void qn_copy_turned(const qn_copy_loops *l, const char *src, char *dst, int64_t x, int64_t y) {
    static const turn_fn turns[2][2] = {{turn_pairs, turn_pairs_past}, {turn_words, turn_words_past}};
    int last = l->n - 1;
    int64_t step = l->from_step[last], to = l->to_step[last - 1], w = l->extent[last - 1] - x, h = l->extent[last] - y;
    if (w > qn_turn_wide(l)) w = qn_turn_wide(l);
    if (h > QN_TURN_HIGH) h = QN_TURN_HIGH;
    src += x * l->size + y * step;
    dst += x * to + y * l->size;
    int past = l->past && ((uintptr_t)dst | (uintptr_t)to) % sizeof(vf) == 0;
    int asks = l->far && !past && h * l->size >= 64; /* shorter rows share lines with those before them */
    turn_all(turns[l->size == 4][past], src, step, dst, to, h, w, l->size, asks);
}
