/* Scenes of splats for the ops that draw them. The geometry is op/splat.h's, splat by splat and in double, because who is in front of
 * whom and what is too faint to show are decisions; here splats are sorted, and found by squares of the picture instead of tried in each
 * of them. */
#ifndef QN_CPU_K_SPLAT_H
#define QN_CPU_K_SPLAT_H

#include "cpu/kernel.h"
#include "op/splat.h"

enum { QN_SPLAT_BLOCK = 8, QN_SPLAT_PIXELS = QN_SPLAT_BLOCK * QN_SPLAT_BLOCK }; /* a square of pixels that is drawn at once */

enum { QN_SPLAT_POSITIONS, QN_SPLAT_LOG_SCALES, QN_SPLAT_ROTATIONS, QN_SPLAT_OPACITIES, QN_SPLAT_COLOURS, QN_SPLAT_EYE };

/* Columns and rows of tiles that a splat may touch, ends included; none when the first is behind the last. */
typedef struct qn_splat_range {
    int64_t x0, x1, y0, y1;
} qn_splat_range;

/* What is kept of a scene in the workspace, in this order. For each column and each row of blocks a line of bits says which splats of
 * `order` may touch it, so those of a block are found 64 at a time. */
typedef struct qn_splat_scene {
    qn_splat_view view, blocks; /* blocks: the same view in tiles of QN_SPLAT_BLOCK */
    int64_t n, words;           /* words of a line */
    qn_splat_seen *seen;
    int64_t *order, *count; /* the valid ones from near to far, and how many they are */
    uint64_t *items;        /* 3 n, to sort */
    uint64_t *bits;
} qn_splat_scene;

/* Fills in what shapes and the view say; where there is no workspace the pointers mean nothing. Returns the bytes, bits included or
 * not. */
#define qn_splat_open QN_K(splat_open)
size_t qn_splat_open(qn_splat_scene *s, const qn_splat_view *view, int64_t n, void *workspace, int with_bits);

/* How many parts for the splats by themselves, and one of them: each is seen from the camera. */
static inline int64_t qn_splat_see_parts(int64_t n) { return qn_cpu_parts(n, 0, 2048); }
#define qn_splat_see_part QN_K(splat_see_part)
void qn_splat_see_part(const qn_splat_scene *s, const qn_tensor *const *scene, int64_t parts, int64_t part);
/* Fills order and count. A splat's number has 32 bits there: scenes of more are the reference's. */
static inline int qn_splat_sortable(int64_t n) { return n > 0 && n <= UINT32_MAX; }
#define qn_splat_sort QN_K(splat_sort)
void qn_splat_sort(const qn_splat_scene *s);
/* Fills the bits; parts cut the words of a line. */
static inline int64_t qn_splat_bits_parts(const qn_splat_scene *s) { return qn_cpu_parts(s->words, 0, 64 * 256); }
#define qn_splat_bits_part QN_K(splat_bits_part)
void qn_splat_bits_part(const qn_splat_scene *s, int64_t parts, int64_t part);
/* Calls each(to, i) for the splats that may touch a block of pixels, near to far, until it returns 0. */
#define qn_splat_walk QN_K(splat_walk)
void qn_splat_walk(const qn_splat_scene *s, int64_t block, int (*each)(void *to, int64_t i), void *to);

/* ---- A block while it is drawn. Pixels behind the edge of the picture are there too, but have nothing left to show. */

enum { QN_SPLAT_CHUNK = 32 }; /* splats that are drawn at a time */

typedef struct qn_splat_canvas {
    const qn_splat_view *view;
    qn_splat_box box;
    double ray[3][QN_SPLAT_PIXELS], light[3][QN_SPLAT_PIXELS], left[QN_SPLAT_PIXELS];
    int64_t live[QN_SPLAT_PIXELS], steps[QN_SPLAT_PIXELS]; /* live: -1, or 0 when nothing can be added any more */
    int n;                                                 /* splats that wait */
    const qn_splat_seen *list[QN_SPLAT_CHUNK];
} qn_splat_canvas;

/* Where the rays of a block met a splat, as in qn_splat_hit; what is not met is 0. Bit i of any: lanes i of the pixels met it. */
typedef struct qn_splat_hit_lanes {
    uint64_t any;
    int64_t is[QN_SPLAT_PIXELS];
    double fall[QN_SPLAT_PIXELS], before[QN_SPLAT_PIXELS], t[QN_SPLAT_PIXELS], m[3][QN_SPLAT_PIXELS];
} qn_splat_hit_lanes;
typedef struct qn_splat_hits {
    qn_splat_hit_lanes hit[QN_SPLAT_CHUNK];
} qn_splat_hits;

#define qn_splat_canvas_open QN_K(splat_canvas_open)
void qn_splat_canvas_open(qn_splat_canvas *c, const qn_splat_view *view, const qn_splat_box *box);
/* Draws the splats that wait, which then do no longer when hits is NULL; else writes their hits down. Whether any pixel can still take
 * light. */
#define qn_splat_draw QN_K(splat_draw)
int qn_splat_draw(qn_splat_canvas *c, qn_splat_hits *hits);

/* value^gamma of a block's pixels to f32's precision, 0 for what is not positive. */
#define qn_splat_powers QN_K(splat_powers)
void qn_splat_powers(const double *value, double gamma, float *out);

#endif
