/* Products of weights in blocks with rows of f32, which are quantised to 8 bits on the way.
 *
 * All types take one road. Sixteen rows of weights make a panel: the bytes of their blocks, field by field, the rows of a field side
 * by side, so that what is one row's word is one lane of a vector. A chunk of a panel (256 elements deep) is unpacked into bytes and
 * f32 scales, which stay in the first cache while all rows of activations pass by. Only the unpacking knows the type.
 *
 * The bits of a result: for every group of 16 or 32 elements an exact integer sum, then sum = fma(integer, weight scale * activation
 * scale, sum), and for types with a minimum sum = fma(minimum, sum of activations, sum); groups in order, one chain from first to
 * last. So a row's result is the same whatever rows are computed with it, and whether weights are packed or not. */
#ifndef QN_CPU_KD_QUANT_H
#define QN_CPU_KD_QUANT_H

#include "cpu/kernel.h"
#include "cpu/simd/simd_dot.h"

enum { QN_PANEL = 16, QN_CHUNK = 256, QN_PANEL_VECTORS = QN_PANEL / VF_N };

/* Rows of activations at a time, panels beside each other when there are several, and when there is one: so that integer and float
 * sums fit the registers, and one row still keeps several streams of weights in flight. */
#if defined(QN_SIMD_AVX512)
#define QN_DOT_ROWS 6
enum { QN_DOT_PANELS = 2, QN_DOT_PANELS_ONE = 4 };
#elif defined(QN_SIMD_SVE)
#define QN_DOT_ROWS 6
enum { QN_DOT_PANELS = 1, QN_DOT_PANELS_ONE = 2 };
#elif defined(QN_SIMD_AVX2) || defined(QN_SIMD_NEON)
#define QN_DOT_ROWS 3
enum { QN_DOT_PANELS = 1, QN_DOT_PANELS_ONE = 2 };
#else
#define QN_DOT_ROWS 2
enum { QN_DOT_PANELS = 1, QN_DOT_PANELS_ONE = 1 };
#endif

/* A chunk of a panel, ready to be multiplied. Four elements of a row are one word. */
typedef struct qn_quant_chunk {
    uint32_t codes[QN_CHUNK / 4][QN_PANEL];
    float scale[QN_CHUNK / 16][QN_PANEL]; /* by group */
    float least[QN_CHUNK / 16][QN_PANEL]; /* for types that have it: value = scale * (code - offset) + least */
} qn_quant_chunk;

/* A chunk of a row of activations. */
typedef struct qn_quant_row {
    int8_t q[QN_CHUNK];         /* -127 to 127 */
    float d[QN_CHUNK / 32];     /* value = d * q */
    int32_t sum[QN_CHUNK / 16]; /* of q over each of the weights' groups */
    float total[QN_CHUNK / 16]; /* d * sum */
} qn_quant_row;

/* Unpacks `count` elements (whole blocks) of all rows. */
typedef void (*qn_unpack_fn)(const uint8_t *panel, int count, qn_quant_chunk *to);

/* A row of activations and the panels it is multiplied with, over their whole length. */
typedef struct qn_quant_line {
    const uint8_t *panel[QN_DOT_PANELS_ONE];
    int panels;
    const qn_quant_row *x;
    int64_t x_step, k; /* from one chunk of the row to the next; elements */
    int offset;
    float *sums; /* QN_PANEL of each panel */
} qn_quant_line;
typedef void (*qn_one_fn)(const qn_quant_line *l);

/* A few rows and two panels, likewise, for types whose unpacking is light; for more rows it pays to keep it. */
enum { QN_FEW_ROWS = 4, QN_FEW_PANELS = 2, QN_FEW_MOST = 4 };
typedef struct qn_quant_few {
    const uint8_t *panel[QN_FEW_PANELS];
    const qn_quant_row *rows; /* of the first chunk; x are row numbers */
    const int64_t *x;
    int n, offset;
    int64_t x_step, k;
    float *sums; /* that it adds to; step: from one row of them to the next */
    int step;
} qn_quant_few;
typedef void (*qn_few_fn)(const qn_quant_few *l);

/* Another form for packed weights; blocks are of 256. */
typedef struct qn_quant_kept {
    /* Of a block of a panel, `raw` as the type has it and unpacked. */
    void (*keep)(const struct qn_quant_kept *k, const uint8_t *raw, const qn_quant_chunk *from, uint8_t *to);
    qn_unpack_fn unpack;
    int bytes, groups;    /* of a block of one row */
    const uint8_t *table; /* of the codes that nibbles stand for; NULL: no nibbles */
} qn_quant_kept;

enum { QN_SEGMENTS = 5 };
typedef struct qn_quant_type {
    uint32_t dtype;
    uint8_t group; /* 16 or 32 elements under one scale */
    uint8_t has_least;
    uint8_t offset;                   /* what codes are too large by */
    uint8_t is_wide;                  /* codes are signed bytes of full range */
    uint8_t most;                     /* no code is larger; 127 where that says nothing */
    uint8_t segment[QN_SEGMENTS * 2]; /* fields of a block: bytes of an element, elements; 0 ends the list */
    qn_unpack_fn unpack;
    qn_one_fn one;
    qn_few_fn few;             /* NULL: by unpacking into memory */
    const qn_quant_kept *kept; /* NULL: packed as it is; `one` and `few` take what is packed */
} qn_quant_type;

/* NULL: not a block type. */
#define qn_quant_type_of QN_K(quant_type_of)
const qn_quant_type *qn_quant_type_of(uint32_t dtype);

/* Blocks of n rows (at most 16; `step` bytes apart, the others are taken for zero) into a panel of so many blocks. */
#define qn_quant_pack QN_K(quant_pack)
void qn_quant_pack(const qn_quant_type *t, const uint8_t *rows, int64_t step, int n, int64_t blocks, uint8_t *panel);

/* The same into the form in which the type is kept. */
#define qn_quant_keep QN_K(quant_keep)
void qn_quant_keep(const qn_quant_type *t, const uint8_t *rows, int64_t step, int n, int64_t blocks, uint8_t *panel);

/* A chunk of a row, count a multiple of 32; elements of f32, f16 or bf16, `step` bytes apart. */
#define qn_quant_activate QN_K(quant_activate)
void qn_quant_activate(const char *x, uint32_t dtype, int64_t step, int count, int group, qn_quant_row *to);

/* What will be unpacked next: `bytes` of each of some panels, which the caches are asked for while others are multiplied. */
typedef struct qn_quant_next {
    const uint8_t *at[QN_DOT_PANELS];
    int panels, bytes;
} qn_quant_next;

/* sums[j * step + lane] of n rows of activations over a chunk of panels that lie beside each other, at most qn_quant_abreast(t, n). */
#define qn_quant_dots QN_K(quant_dots)
void qn_quant_dots(const qn_quant_type *t, const qn_quant_chunk *w, int panels, const qn_quant_row *const *x, int n, int count,
                   float *sums, int step, const qn_quant_next *next);

/* The same by tiles, where the level has them: n rows, a multiple of QN_TILE_ROWS, and QN_TILE_LEAST to QN_TILE_PANELS panels. They
 * pay from so many rows (for types with a minimum FROM_MIN) and so wide a group on; on AMX groups of 16 are faster without, where finishing a
 * tile costs as much as the half that its products save. */
#if defined(QN_AT_amx)
#define QN_HAS_TILES 1
enum { QN_TILE_ROWS = 16, QN_TILE_LEAST = 4, QN_TILE_PANELS = 4, QN_TILE_FROM = 48, QN_TILE_FROM_MIN = 128, QN_TILE_GROUP = 32 };
#elif defined(QN_AT_i8mm) || defined(QN_AT_sve)
#define QN_HAS_TILES 1
#define QN_TILES_END 1
enum { QN_TILE_ROWS = 4, QN_TILE_LEAST = 1, QN_TILE_PANELS = 4, QN_TILE_FROM = 8, QN_TILE_FROM_MIN = 8, QN_TILE_GROUP = 16 };
#else
enum { QN_TILE_ROWS = 1, QN_TILE_PANELS = QN_DOT_PANELS, QN_TILE_FROM = 1 << 30, QN_TILE_FROM_MIN = 1 << 30, QN_TILE_GROUP = 32 };
#endif
#define qn_quant_tiles QN_K(quant_tiles)
void qn_quant_tiles(const qn_quant_type *t, const qn_quant_chunk *w, int panels, const qn_quant_row *const *x, int n, int count,
                    float *sums, int step);
/* Sums of n rows, `step` wide, as Arm's tiles leave them from chunk to chunk, put in order. */
#define qn_quant_tiles_end QN_K(quant_tiles_end)
void qn_quant_tiles_end(int n, float *sums, int step);

static inline int qn_quant_by_tiles(const qn_quant_type *t, int n) {
    return n >= (t->has_least ? QN_TILE_FROM_MIN : QN_TILE_FROM) && t->group >= QN_TILE_GROUP;
}
static inline int qn_quant_abreast(const qn_quant_type *t, int n) {
    return n == 1 ? QN_DOT_PANELS_ONE : qn_quant_by_tiles(t, n) ? QN_TILE_PANELS : QN_DOT_PANELS;
}

/* ---- Whole products */

enum { QN_QUANT_ROWS = 256, QN_QUANT_PANELS = 8, QN_QUANT_PANELS_ONE = 4 }; /* of a unit: rows, panels, panels for a single row */

/* Matrices of weights and the activations that will meet them, by descriptors alone. */
typedef struct qn_quant_product {
    const qn_quant_type *type;
    int64_t m, k, panels, chunks; /* rows of a matrix, their length; panels of a matrix, chunks of a panel */
    int64_t block, bytes, kept;   /* elements and bytes of a block; its bytes when packed */
    const uint8_t *packed;        /* all panels of all matrices, or NULL */
    int64_t step;                 /* bytes between rows of weights */
    int64_t n_rows, unit_rows;    /* of activations: all together, and the most that a unit has */
    uint32_t x_dtype;
    int64_t x_step;     /* bytes between their elements */
    int64_t y_step;     /* bytes between elements of a row of results, which are f32 */
    qn_quant_row *rows; /* in the workspace: [chunk][row] */
    char *slots;        /* and what each part has for itself */
    size_t slot;
} qn_quant_product;

/* 0: weights that are not in blocks side by side, or activations that are no floats. Sizes are set, pointers are not. */
#define qn_quant_describe QN_K(quant_describe)
int qn_quant_describe(qn_quant_product *p, const qn_tensor *weights, const qn_tensor *x, const qn_tensor *y, int64_t n_rows);
/* Bytes of workspace for so many parts, and the workspace put to use. */
#define qn_quant_workspace QN_K(quant_workspace)
#define qn_quant_place QN_K(quant_place)
size_t qn_quant_workspace(qn_quant_product *p, int64_t parts);
void qn_quant_place(qn_quant_product *p, void *workspace);

/* A unit of a product: panels [panel, end) of one matrix with up to QN_QUANT_ROWS rows. */
typedef struct qn_quant_unit {
    int64_t matrix, panel, end;
    const uint8_t *weights; /* first row of the matrix, when it is not packed */
    int n;
    int64_t x[QN_QUANT_ROWS]; /* row numbers of activations */
    char *y[QN_QUANT_ROWS];   /* rows of results */
} qn_quant_unit;
#define qn_quant_run QN_K(quant_run)
void qn_quant_run(const qn_quant_product *p, const qn_quant_unit *u, int64_t part);

#endif
