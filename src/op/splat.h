/* Gaussian splats, what drawing and differentiating them share. docs/splats.md has the formulas. A splat is a soft ellipsoid; in
 * its own frame, scaled by its own sizes, it is a ball, the camera sits at p and a ray leaves along r. */
#ifndef QN_OP_SPLAT_H
#define QN_OP_SPLAT_H

#include "op/op.h"

enum { QN_SPLAT_CAMERA = 15, QN_SPLAT_FIELDS = 15, QN_SPLAT_SOURCE_COUNT = 6, QN_SPLAT_BASES = 16 };

/* What the attributes and the camera say. */
typedef struct qn_splat_view {
    int64_t width, height, tile, across, down; /* across, down: tiles */
    double radius_scale, cutoff, threshold, gamma;
    int64_t max_steps;
    int outward;
    double eye[3], right[3], up[3], forward[3], near, far, background[3], focal;
} qn_splat_view;

/* A splat as the camera sees it. */
typedef struct qn_splat_seen {
    double rgb[3], opacity, p[3], inverse[3], q[4]; /* inverse: one over the sizes */
    double turn[9];                                 /* the matrix of q, world to splat */
    double distance;
    double reach;                     /* how near, squared, a ray must pass the ball's centre to show */
    double centre[2], bend[3], level; /* the outline on the plane in front of the eye: b0 x^2 + 2 b1 x y + b2 y^2 <= level */
    double valid, everywhere;         /* truths; everywhere: it has no such outline and may touch any pixel */
} qn_splat_seen;

/* Where a ray met a splat. */
typedef struct qn_splat_hit {
    int64_t splat;
    double alpha, fall, before, t, m[3], ray[3]; /* alpha = opacity fall; before: how much light was left */
} qn_splat_hit;

/* Gradients of one splat, summed over pixels. */
typedef struct qn_splat_slopes {
    double position[3], log_scale[3], rotation[4], opacity, rgb[3];
} qn_splat_slopes;

static inline double qn_splat_dot(const double *a, const double *b) { return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]; }
static inline void qn_splat_cross(const double *a, const double *b, double *out) {
    double x = a[1] * b[2] - a[2] * b[1], y = a[2] * b[0] - a[0] * b[2], z = a[0] * b[1] - a[1] * b[0];
    out[0] = x;
    out[1] = y;
    out[2] = z;
}

/* Completes a view whose attribute fields are set, from the camera's numbers. */
void qn_op_splat_look(qn_splat_view *view, const qn_tensor *camera);
/* The matrix of v -> v + 2 ((v x u + w v) x u) for q = w, u. */
void qn_op_splat_turn(const double q[4], double turn[9]);
/* Sees splat i of the scene's sources; count is how many harmonics a colour has, 0 for plain colours. */
void qn_op_splat_see(const qn_splat_view *view, const qn_tensor *const *scene, int64_t i, int64_t count, qn_splat_seen *seen);
/* Values of the first `count` harmonics in a direction and, unless NULL, their slopes. */
void qn_op_splat_harmonics(const double dir[3], int64_t count, double *value, double (*slope)[3]);
/* From the eye to splat i, or back: a unit vector; returns its length before. */
double qn_op_splat_direction(const qn_splat_view *view, const qn_tensor *positions, int64_t i, double dir[3]);
/* Numbers of the valid splats, near to far, equal ones in their order; `other` has as much room. Returns how many. */
int64_t qn_op_splat_sort(const qn_splat_seen *seen, int64_t n, int64_t *order, int64_t *other);
/* Reach and outline of a splat whose opacity and geometry are known. */
void qn_op_splat_outline(const qn_splat_view *view, qn_splat_seen *s);
/* Rows of what splat_prepare leaves for splat_rasterize. */
void qn_op_splat_store(const qn_tensor *splats, int64_t i, const qn_splat_seen *s);
void qn_op_splat_load(const qn_tensor *splats, int64_t i, qn_splat_seen *s);
/* The square of pixels that a tile covers, its ends not included. */
typedef struct qn_splat_box {
    int64_t x0, y0, x1, y1;
} qn_splat_box;
static inline qn_splat_box qn_op_splat_box(const qn_splat_view *v, int64_t tile) {
    int64_t x = tile % v->across * v->tile, y = tile / v->across * v->tile;
    qn_splat_box b = {x, y, x + v->tile < v->width ? x + v->tile : v->width, y + v->tile < v->height ? y + v->tile : v->height};
    return b;
}

/* Where a square of pixels lies on the plane in front of the eye. */
typedef struct qn_splat_window {
    double x0, y0, x1, y1;
} qn_splat_window;
qn_splat_window qn_op_splat_window(const qn_splat_view *v, const qn_splat_box *box);
/* Whether a splat may show there. Never wrongly no. */
int qn_op_splat_touches(const qn_splat_seen *seen, const qn_splat_window *w);
/* The unit vector from the eye through the middle of a pixel. */
void qn_op_splat_ray(const qn_splat_view *view, int64_t x, int64_t y, double ray[3]);

/* The light of one pixel before display, and what is left of the background's; hits, unless NULL, are written down, and counted
 * in *n_hit. */
double qn_op_splat_pixel(const qn_splat_view *view, int64_t x, int64_t y, const qn_splat_seen *seen, const int64_t *list,
                         int64_t n, double light[3], qn_splat_hit *hits, int64_t *n_hit);

/* A view from a record with the fields of QN_SPLAT_SIZE and QN_SPLAT_SHAPE, the rest as for no limits. */
#define QN_SPLAT_VIEW_OF(at)                                                                                            \
    {                                                                                                                   \
        .width = (at)->width, .height = (at)->height, .tile = (at)->tile, .across = ((at)->width - 1) / (at)->tile + 1, \
        .down = ((at)->height - 1) / (at)->tile + 1, .radius_scale = (double)(at)->radius_scale,                        \
        .cutoff = (double)(at)->alpha_cutoff, .gamma = 1                                                                \
    }
/* The fields of QN_SPLAT_DRAW on top. */
#define QN_SPLAT_DRAW_OF(view, at) \
    ((view).threshold = (double)(at)->threshold, (view).max_steps = (at)->max_steps, (view).gamma = (double)(at)->gamma)

/* Guard of the scene's six sources from slot `first` on. */
qn_status qn_op_splat_check(qn_infer_call *c, int first);
/* Harmonics of a colour: 0 for [N, 3], else the middle axis of [N, c, 3]. */
static inline int64_t qn_op_splat_bases(const qn_tensor *colours) { return colours->rank == 3 ? colours->shape[1] : 0; }
/* Everything in sight: fills seen[n] and order[n], of which it returns how many count; order has room for 2 n. */
int64_t qn_op_splat_scene(const qn_splat_view *view, const qn_tensor *const *scene, qn_splat_seen *seen, int64_t *order);
/* The splats of `order` that may show in a tile, near to far. */
int64_t qn_op_splat_list(const qn_splat_view *view, const qn_splat_seen *seen, const int64_t *order, int64_t n, int64_t tile,
                         int64_t *list);
/* What a splat's sums come to, through the clamps of sizes, opacities and colours and through the harmonics; `to` is used up. */
void qn_op_splat_slopes_store(const qn_splat_view *view, const qn_tensor *const *scene, const qn_splat_seen *seen, int64_t i,
                              qn_splat_slopes *to, const qn_tensor *const *dst);

#endif
