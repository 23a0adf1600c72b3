/* Products of bf16 weights with rows of floats by tiles of bf16, whose products are exact and whose sums are f32.
 *
 * A row of activations is cut into bf16 pieces that add up to it exactly: three for f32, two for f16, one for bf16. Each piece
 * is a row of its own to the tiles; what a row comes to is the sum of its pieces' sums, the largest first. Sixteen rows of
 * weights make a panel, a line of which has two elements of each row. A sum goes through its line from first to last in steps of
 * 32 elements, in the order that the tiles have, and a tile computes its rows apart: so a result has the same bits whatever rows
 * are computed with it, and whether weights are packed or not.
 *
 * Tiles take numbers below the normal ones for zero, and infinity times a piece that is zero for NaN. So panels and rows know
 * the range of their numbers: where a row and a panel could come to that, their products are computed anew by vectors, one chain
 * of f32 as k_gemm.h has it, or where only small numbers could be lost, those of them that are small enough for it to show. */
#ifndef QN_CPU_KD_BF16_H
#define QN_CPU_KD_BF16_H

#include "cpu/kernel.h"

/* Rows of a panel, elements of a step and of a chunk; the most rows and panels of a unit: its sums and a chunk of its pieces
 * fill half of a second cache. */
enum {
    QN_BF16_PANEL = 16,
    QN_BF16_STEP = 32,
    QN_BF16_CHUNK = 512,
    QN_BF16_ROWS = 176,
    QN_BF16_PANELS = 16,
    QN_BF16_PANELS_FEW = 6
};

/* Exponents of the numbers that are not zero, as f32 has them: 0 below the normal ones, 255 for what is not finite. Without any
 * such number least is 255 and most 0. */
typedef struct qn_bf16_range {
    int16_t least, most;
} qn_bf16_range;

/* Matrices of weights and the activations that will meet them. */
typedef struct qn_bf16_product {
    int64_t m, k, panels, chunks, matrices; /* rows of a matrix, their length; panels of a matrix, chunks of a panel */
    int bits;                               /* of k */
    int64_t along, deep;                    /* bytes between rows of weights, and between their elements */
    const char *packed;                     /* all panels of all matrices, then their ranges; or NULL */
    int64_t n_rows, unit_rows;              /* of activations: all together, and the most that a unit has */
    int pieces;
    uint32_t x_dtype;
    int64_t x_step, y_step; /* bytes between elements of activations, and of results, which are f32 */
    char *rows;             /* in the workspace: [chunk][row][piece] */
    qn_bf16_range *ranges;  /* of the rows */
    char *slots;            /* and what each part has for itself */
    size_t slot;
} qn_bf16_product;

/* 0: not a product of bf16 weights with floats into f32, or of rows too short for tiles. Sizes are set, pointers are not. */
#define qn_bf16_describe QN_K(bf16_describe)
int qn_bf16_describe(qn_bf16_product *p, const qn_tensor *weights, const qn_tensor *x, const qn_tensor *y, int64_t n_rows);
/* Bytes of workspace for so many parts, and the workspace put to use. */
#define qn_bf16_workspace QN_K(bf16_workspace)
#define qn_bf16_place QN_K(bf16_place)
size_t qn_bf16_workspace(qn_bf16_product *p, int64_t parts);
void qn_bf16_place(qn_bf16_product *p, void *workspace);

#define qn_bf16_packed_bytes QN_K(bf16_packed_bytes)
#define qn_bf16_pack QN_K(bf16_pack)
size_t qn_bf16_packed_bytes(const qn_bf16_product *p);
/* Panel number `panel` of all, whose first row is at `from`. */
void qn_bf16_pack(const qn_bf16_product *p, const char *from, int64_t panel, void *packed);

/* Cuts row number `row`, whose first element is at x. */
#define qn_bf16_split QN_K(bf16_split)
void qn_bf16_split(const qn_bf16_product *p, const char *x, int64_t row);

/* A unit: panels [panel, end) of one matrix with n rows one after the other, at most QN_BF16_ROWS and QN_BF16_PANELS. */
typedef struct qn_bf16_unit {
    int64_t matrix, panel, end;
    const char *weights; /* first row of the matrix */
    int64_t row;         /* number of the first row */
    int n;
    const char *x[QN_BF16_ROWS]; /* rows of activations, */
    char *y[QN_BF16_ROWS];       /* and of results */
} qn_bf16_unit;
#define qn_bf16_run QN_K(bf16_run)
void qn_bf16_run(const qn_bf16_product *p, const qn_bf16_unit *u, int64_t part);

/* Whether a unit of so many rows is short: that few tiles take all its pieces, which the second cache holds. Weights are then
 * read as streams, as many as there are tiles for, and through so many chunks as the first cache holds pieces of, or all. */
static inline int qn_bf16_is_short(const qn_bf16_product *p, int64_t rows) {
    return rows * p->pieces <= 16 || (rows * p->pieces <= 48 && rows * p->pieces * p->k * 2 <= 1 << 20);
}
static inline int64_t qn_bf16_span(const qn_bf16_product *p, int64_t rows) {
    int64_t lines = rows * p->pieces, span = 30 / lines;
    return lines > 6 || span > p->chunks ? p->chunks : span;
}
/* How many panels a unit has. `others` is how many units there are for each group of panels; there should be some to share. */
static inline int64_t qn_bf16_wide(const qn_bf16_product *p, int64_t rows, int64_t others) {
    int64_t wide = QN_BF16_PANELS;
    if (qn_bf16_is_short(p, rows))
        return rows * p->pieces > 16 ? 2 : qn_bf16_span(p, rows) < p->chunks ? 2 * QN_BF16_PANELS_FEW : QN_BF16_PANELS_FEW;
    while (wide > 8 && (p->panels + wide - 1) / wide * others < 32) wide /= 2;
    return wide;
}

#endif
