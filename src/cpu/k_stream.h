/* Products of plain floats for a few rows of activations, whose weights are packed with lanes along their rows and read once, as
 * streams. An element is the one chain of k_gemm.h, so it has the bits it has among many rows. */
#ifndef QN_CPU_K_STREAM_H
#define QN_CPU_K_STREAM_H

#include "cpu/k_gemm.h"

/* Packed: for each matrix panels of QN_GEMM_WIDE rows, of each line p = 0 .. k - 1, of each line its rows' elements in their dtype,
 * zero where there is no row. */
static inline int64_t qn_stream_panels(int64_t rows) { return (rows + QN_GEMM_WIDE - 1) / QN_GEMM_WIDE; }
static inline int64_t qn_stream_panel_bytes(uint32_t dtype, int64_t k) { return k * QN_GEMM_WIDE * qn_float_bytes(dtype); }

/* A panel of `rows` rows, `along` bytes apart, elements `deep` bytes apart. */
#define qn_stream_pack QN_K(stream_pack)
void qn_stream_pack(const char *from, uint32_t dtype, int64_t along, int64_t deep, int rows, int64_t k, void *panel);

/* Most rows of activations that are worth a stream of their own: the large product, which turns weights anew each time, is as fast with
 * about 64 where registers are many and wide, and with about 20 elsewhere. */
#if defined(__AVX512F__)
enum { QN_STREAM_ROWS = 48 };
#else
enum { QN_STREAM_ROWS = 16 };
#endif

/* Some rows of f32 (n <= QN_STREAM_ROWS; each k long) times `panels` panels: y[j] gets `columns` sums, side by side. */
typedef struct qn_stream {
    uint32_t dtype;
    const char *panel; /* first of them */
    int64_t panels, columns, k;
    int n;
    const float *x[QN_STREAM_ROWS];
    float *y[QN_STREAM_ROWS];
    qn_contest *contest; /* NULL: none */
} qn_stream;
#define qn_stream_run QN_K(stream_run)
void qn_stream_run(const qn_stream *s);

/* How panels are laid out and read: as above, or as a level above with the same lanes does it, which is what a step remembers. */
typedef struct qn_stream_way {
    int64_t (*panel_bytes)(uint32_t dtype, int64_t k);
    void (*pack)(const char *from, uint32_t dtype, int64_t along, int64_t deep, int rows, int64_t k, void *panel);
    void (*run)(const qn_stream *s);
} qn_stream_way;
#define qn_stream_here QN_K(stream_here)
const qn_stream_way *qn_stream_here(void);
typedef const qn_stream_way *(*qn_stream_way_fn)(void);

#endif
