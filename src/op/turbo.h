/* Vectors as codes: rotated, so that no coordinate stands out, and then rounded to the levels that suit a normal distribution
 * best. What tq_encode writes, tq_decode and cache_attention read. */
#ifndef QN_OP_TURBO_H
#define QN_OP_TURBO_H

#include "op/ref.h"

enum { QN_TURBO_WIDTH = 512, QN_TURBO_BLOCK = 256 }; /* the longest vector, and how many elements share a scale */

/* The rotation's signs, +1 or -1; j < QN_TURBO_WIDTH. */
double qn_op_turbo_sign(int64_t j);
/* Walsh-Hadamard in place over n doubles, n a power of two, divided by its root. */
void qn_op_turbo_transform(double *x, int64_t n);
/* x <- H (signs x), and back: x <- signs (H x). */
void qn_op_turbo_turn(double *x, int64_t n);
void qn_op_turbo_unturn(double *x, int64_t n);

/* Level of a code, and the code of the nearest level, the lower one of two. */
double qn_op_turbo_level(int bits, int code);
int qn_op_turbo_code(int bits, double v);

/* Bytes of the codes of n elements. */
static inline int64_t qn_op_turbo_bytes(int bits, int64_t n) { return bits <= 4 ? n / 2 : n; }
static inline int64_t qn_op_turbo_length(int bits, int64_t bytes) { return bits <= 4 ? 2 * bytes : bytes; }
/* How many scales n elements have. */
static inline int64_t qn_op_turbo_scales(int64_t n) { return n < QN_TURBO_BLOCK ? 1 : n / QN_TURBO_BLOCK; }
/* n elements, still turned, from a row of codes and its scales. */
void qn_op_turbo_decode(const qn_tensor *codes, const char *code_row, const qn_tensor *scale, const char *scale_row, int bits,
                        int64_t n, double *out);

/* Rejects a length that is no power of two, or over `most`. */
qn_status qn_op_turbo_check(qn_infer_call *c, int slot, int64_t length, int64_t most);

#endif
