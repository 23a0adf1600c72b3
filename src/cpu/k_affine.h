/* Weights as codes of a few bits with a scale and a bias for each group of a row (see op_affine_quant.c), decoded by vectors. */
#ifndef QN_CPU_K_AFFINE_H
#define QN_CPU_K_AFFINE_H

#include "cpu/k_gemm.h"

/* Rows of codes, of their scales and of their biases, each side by side in memory. */
typedef struct qn_affine {
    const qn_tensor *codes, *scales, *biases;
    int bits;
    int64_t group, length; /* of a decoded row */
} qn_affine;

/* Describes the three sources from slot `first` on; 0: not a layout that is decoded here. */
#define qn_affine_describe QN_K(affine_describe)
int qn_affine_describe(const qn_call *c, int first, qn_affine *a);
/* Elements [first, first + n) of a row of a matrix. */
#define qn_affine_decode QN_K(affine_decode)
void qn_affine_decode(const qn_affine *a, int64_t matrix, int64_t row, int64_t first, int64_t n, float *to);
/* One side of a product: context is a qn_affine, `along` the number of the matrix, `deep` that of its first row. */
#define qn_affine_fetch QN_K(affine_fetch)
void qn_affine_fetch(const qn_gemm_side *side, int64_t batch, int64_t first, int64_t count, int64_t first_k, int depth,
                     float *panel, int step);

/* Most tokens that are worth a stream of packed codes (k_affine_few.c), which replaces the large product that is prepared in s when the
 * weights stay and are of a kind it knows; of s->n it takes the first two. */
enum { QN_AFFINE_FEW = 32 };
#define qn_affine_few QN_K(affine_few)
void qn_affine_few(const qn_call *c, qn_cpu_step *s);

#endif
