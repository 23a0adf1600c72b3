/* Products with matrices whose rows are decoded on the way: a side of the f32 product that is filled by a function. */
#ifndef QN_CPU_K_DECODED_H
#define QN_CPU_K_DECODED_H

#include "cpu/k_gemm.h"

enum {
    QN_DECODED_RUN = 256,
    QN_DECODED_ROOM = QN_DECODED_RUN + 16
}; /* elements at a time, and the room that is there for them */

/* Elements [first, first + n) of a row, n at most QN_DECODED_RUN; what lies behind them in the room may be written too. side->along
 * and side->deep mean what the decoder wants them to. */
typedef void (*qn_decoded_fn)(const qn_gemm_side *side, int64_t row, int64_t first, int n, float *to);

/* What fetches call: rows that lie along the summed axis, and rows that lie across it. Runs of the first begin at multiples of
 * QN_DECODED_RUN, of the other at multiples of `unit`, which divides it. */
#define qn_decoded_turn QN_K(decoded_turn)
void qn_decoded_turn(const qn_gemm_side *side, qn_decoded_fn decode, int64_t first, int64_t count, int64_t first_k, int depth,
                     float *panel, int step);
#define qn_decoded_copy QN_K(decoded_copy)
void qn_decoded_copy(const qn_gemm_side *side, qn_decoded_fn decode, int64_t first, int64_t count, int64_t first_k, int depth,
                     float *panel, int step, int unit);

/* The fetch of a side whose rows are blocks, side->along bytes apart, which lie along the summed axis; QN_DECODED_RUN must be a whole
 * number of them. */
#define qn_decoded_blocks QN_K(decoded_blocks)
void qn_decoded_blocks(const qn_gemm_side *side, int64_t batch_offset, int64_t first, int64_t count, int64_t first_k, int depth,
                       float *panel, int step);

/* The rows of x times a matrix become the rows of y; b stays to be filled in. */
#define qn_decoded_describe QN_K(decoded_describe)
void qn_decoded_describe(const qn_tensor *x, const qn_tensor *y, qn_gemm *g);

#endif
