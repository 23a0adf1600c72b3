/* The matrix product in f32 behind matmul, mul_mat, out_prod, convolution and their like: C[i][j] is the sum of A[i][p] B[p][j].
 *
 * The rule that makes a result independent of threads, of blocking and of what else is in the batch: every element of C is one
 * chain of fused multiply-adds over p from first to last, in one lane, whatever tile it is computed in. Blocks of p are chained
 * through memory, which keeps the bits.
 *
 * A side hands its numbers over in panels of f32: it may hold any dtype in any layout, or work them out (convolution, blocks). */
#ifndef QN_CPU_K_GEMM_H
#define QN_CPU_K_GEMM_H

#include "cpu/kernel.h"

/* A tile: as many sums as the registers hold beside one line of B and one number of A. With three vectors a line a number of A is spread
 * for three products, with two for two; AVX-512 spreads it on the way from memory and has no use for the third. Vectors lie along n and
 * make the width of a panel of B. */
#if defined(QN_SIMD_AVX512)
#define QN_GEMM_ROWS 14
#define QN_GEMM_VECTORS 2
#elif QN_REGISTERS == 32
#define QN_GEMM_ROWS 8
#define QN_GEMM_VECTORS 3
#elif defined(QN_SIMD_AVX2)
#define QN_GEMM_ROWS 6
#define QN_GEMM_VECTORS 2
#else
#define QN_GEMM_ROWS 4
#define QN_GEMM_VECTORS 2
#endif
enum { QN_GEMM_WIDE = QN_GEMM_VECTORS * VF_N };

typedef struct qn_gemm_side qn_gemm_side;
/* Hands over elements (first + i, first_k + p), i < count, p < depth, in panels that are `step` wide and `depth` long, one after
 * the other: element (i, p) is the (i % step)-th of line p of panel i / step. Only the last panel may be narrower than its step;
 * lanes it does not fill may hold anything. Nothing is written behind the last line that has elements. */
typedef void (*qn_gemm_fetch_fn)(const qn_gemm_side *side, int64_t batch_offset, int64_t first, int64_t count, int64_t first_k,
                                 int depth, float *panel, int step);

struct qn_gemm_side {
    const char *data;
    int64_t along, deep; /* byte strides: along the rows of A or the columns of B, and along the summed axis */
    uint32_t dtype;
    qn_gemm_fetch_fn fetch;
    const void *context; /* for fetches that are not ours */
};

typedef struct qn_gemm qn_gemm;
/* What happens to a finished row of C before it is stored: x holds n sums of row i, columns from j. */
typedef void (*qn_gemm_finish_fn)(const qn_gemm *g, int64_t batch, int64_t i, int64_t j, int n, float *x);
/* Instead of storing: `rows` finished rows of C from row i, columns from j, `step` floats apart in sums. What lies at c is not looked
 * at then. */
typedef void (*qn_gemm_store_fn)(const qn_gemm *g, int64_t batch, int64_t i, int rows, int64_t j, int columns, const float *sums,
                                 int64_t step);

enum { QN_GEMM_BATCH_AXES = QN_MAX_RANK };

struct qn_gemm {
    int64_t m, n, k;
    qn_gemm_side a, b;
    char *c;
    int64_t c_row, c_column; /* byte strides */
    uint32_t c_dtype;
    int n_axes; /* of the batch; an operand that is shared has stride 0 */
    int64_t extent[QN_GEMM_BATCH_AXES], a_step[QN_GEMM_BATCH_AXES], b_step[QN_GEMM_BATCH_AXES], c_step[QN_GEMM_BATCH_AXES];
    qn_gemm_finish_fn finish; /* NULL: none */
    qn_gemm_store_fn store;   /* NULL: C is a matrix with the strides above */
    const void *context;      /* for these two */
    int transposed;           /* A and B were exchanged, by qn_gemm_settle: finish and store see i and j exchanged too */
};

/* The fetch for a side of plain floats by its dtype and strides; NULL when it is not one of f32, f16, bf16. */
#define qn_gemm_plain_fetch QN_K(gemm_plain_fetch)
qn_gemm_fetch_fn qn_gemm_plain_fetch(uint32_t dtype, int64_t along, int64_t deep, int64_t k);

/* One more axis of the batch; those of extent 1 are left out. */
static inline void qn_gemm_axis(qn_gemm *g, int64_t extent, int64_t a_step, int64_t b_step, int64_t c_step) {
    if (extent == 1) return;
    g->extent[g->n_axes] = extent;
    g->a_step[g->n_axes] = a_step;
    g->b_step[g->n_axes] = b_step;
    g->c_step[g->n_axes++] = c_step;
}

/* The axes behind the second: a group of b's batches shares one of a's. B of the engine is a. */
static inline int qn_gemm_groups(qn_gemm *g, const qn_tensor *a, const qn_tensor *b, const qn_tensor *y) {
    for (int i = 3; i > 1; i--) {
        if (qn_ne(a, i) < 1) return 0;
        int64_t share = qn_ne(b, i) / qn_ne(a, i);
        qn_gemm_axis(g, qn_ne(a, i), share * qn_nb(b, i), qn_nb(a, i), share * qn_nb(y, i));
        qn_gemm_axis(g, share, qn_nb(b, i), 0, qn_nb(y, i));
    }
    return 1;
}

/* Fixes fetches that are still NULL and which operand lies along the vector lanes. 0: not a product this engine computes. */
#define qn_gemm_settle QN_K(gemm_settle)
int qn_gemm_settle(qn_gemm *g);

/* Rows of A up to which plain floats of B are not laid out (k_gemm_few.c). With 16 it takes about as long either way where B stays in a
 * cache, and less where it does not. */
enum { QN_GEMM_FEW = 16 };

/* How the work is cut, from the shape alone. The smaller operand is fetched once, by the first phase, for all to share; the second
 * phase cuts the output along the other one, of which each unit fetches its own, or reads it where it lies. */
typedef struct qn_gemm_cut {
    int few;                     /* B is not laid out; what is shared are rows of A */
    int doubles;                 /* f64, by k_gemm_doubles.c */
    int share_a;                 /* the shared operand is A, not B */
    int64_t rows, columns;       /* of a unit */
    int64_t across, down, units; /* units along n and m, and all of them in all batches */
    int64_t shared_batches;      /* of the shared operand */
    int64_t groups, share_units; /* of the first phase: per batch and depth, and all */
    int64_t parts[2];
    size_t shared, slot; /* bytes of the shared panels, and of scratch per part of the second phase */
    size_t workspace;    /* all of it */
} qn_gemm_cut;

#define qn_gemm_plan QN_K(gemm_plan)
#define qn_gemm_part QN_K(gemm_part)
qn_gemm_cut qn_gemm_plan(const qn_gemm *g);
/* Computes one part of one of the two phases. Workspace is aligned to 64 bytes. */
void qn_gemm_part(const qn_gemm *g, const qn_gemm_cut *cut, void *workspace, int phase, int64_t part);
/* The same for a few rows; 0: not for this product. */
#define qn_gemm_few_plan QN_K(gemm_few_plan)
#define qn_gemm_few_part QN_K(gemm_few_part)
int qn_gemm_few_plan(const qn_gemm *g, qn_gemm_cut *cut);
void qn_gemm_few_part(const qn_gemm *g, const qn_gemm_cut *cut, void *workspace, int phase, int64_t part);
/* The same in f64. */
#define qn_gemm_doubles_plan QN_K(gemm_doubles_plan)
#define qn_gemm_doubles_part QN_K(gemm_doubles_part)
int qn_gemm_doubles_plan(const qn_gemm *g, qn_gemm_cut *cut);
void qn_gemm_doubles_part(const qn_gemm *g, const qn_gemm_cut *cut, void *workspace, int phase, int64_t part);

/* How many batches a side has: axes it is shared along do not count. */
static inline int64_t qn_gemm_side_batches(const qn_gemm *g, const int64_t *step) {
    int64_t n = 1;
    for (int i = 0; i < g->n_axes; i++) n *= step[i] ? g->extent[i] : 1;
    return n;
}

/* Offset of a side's batch number `number`, axes it is shared along left out. */
static inline int64_t qn_gemm_side_offset(const qn_gemm *g, const int64_t *step, int64_t number) {
    int64_t at = 0;
    for (int i = g->n_axes - 1; i >= 0; i--) {
        if (!step[i]) continue;
        at += number % g->extent[i] * step[i];
        number /= g->extent[i];
    }
    return at;
}

/* Where batch number `number` of all lies, and which of its own batches that is to the side with these steps. */
typedef struct qn_gemm_place {
    int64_t a, b, c, shared;
} qn_gemm_place;
static inline qn_gemm_place qn_gemm_place_of(const qn_gemm *g, const int64_t *step, int64_t number) {
    qn_gemm_place at = {0};
    int64_t scale = 1;
    for (int i = g->n_axes - 1; i >= 0; i--) {
        int64_t index = number % g->extent[i];
        number /= g->extent[i];
        at.a += index * g->a_step[i];
        at.b += index * g->b_step[i];
        at.c += index * g->c_step[i];
        if (!step[i]) continue;
        at.shared += index * scale;
        scale *= g->extent[i];
    }
    return at;
}

/* Whether a row of sums is a row of C, and n of them put where they belong. */
static inline int qn_gemm_is_plain(const qn_gemm *g) { return g->c_dtype == QN_DTYPE_F32 && g->c_column == 4; }
#define qn_gemm_store_row QN_K(gemm_store_row)
void qn_gemm_store_row(const qn_gemm *g, char *to, const float *x, int n);

/* What a step needs to know about a product that it consists of. */
static inline int qn_gemm_step(qn_cpu_step *s, const qn_gemm_cut *cut, qn_cpu_run_fn run) {
    s->run = run;
    s->name = cut->doubles ? "gemm f64" : cut->few ? "few rows f32" : "gemm f32";
    s->n_phases = 2;
    s->parts[0] = cut->parts[0];
    s->parts[1] = cut->parts[1];
    s->workspace = cut->workspace;
    return 1;
}

#endif
