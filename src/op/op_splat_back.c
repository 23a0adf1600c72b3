/* The gradient of splat_render. Each pixel is drawn again with its hits written down, and these are walked from far to near with
 * what lies behind each: for the colour d of the pixel's gradient and S = d . (what would be seen without this splat and those
 * before it),
 *
 *   dL/dalpha = before (d . rgb - S),   S <- alpha d . rgb + (1 - alpha) S
 *
 * A hit is the nearest point m of its ray, so how t moves does not matter, and everything else follows from dalpha = -9 alpha m . dm.
 * What a cutoff, a threshold, a tile or the order leave out has no gradient: they jump. */
#include <math.h>

#include "op/op_emit.h"
#include "op/op_state.h"
#include "op/ref.h"
#include "op/splat.h"

enum { POSITIONS, LOG_SCALES, ROTATIONS, OPACITIES, COLOURS, CAMERA };
enum { SEEN_DOUBLES = (int)(sizeof(qn_splat_seen) / sizeof(double)), HIT_DOUBLES = (int)(sizeof(qn_splat_hit) / sizeof(double)) };

enum { SLOPES_DOUBLES = (int)(sizeof(qn_splat_slopes) / sizeof(double)) };

qn_status qn_infer_splat_render_back(qn_infer_call *c) {
    const qn_attr_splat_render_back *at = c->attr;
    QN_TRY(qn_op_splat_check(c, 1));
    QN_TRY(qn_need_rank(c, 0, 3));
    QN_TRY(qn_need_extent(c, 0, 0, 4));
    QN_TRY(qn_need_extent(c, 0, 1, at->width));
    QN_TRY(qn_need_extent(c, 0, 2, at->height));
    QN_TRY(qn_need_same_dtype(c, 0, 1));
    int64_t n = qn_ne(c->src[1 + POSITIONS], 1);
    QN_TRY(qn_scratch_add(c, n, SEEN_DOUBLES + HIT_DOUBLES + SLOPES_DOUBLES + 3, 1));
    /* What splat_render counts, once more; for each of the 3 n numbers of the first output. */
    c->flops_each = (QN_SPLAT_FIELDS * (double)n + 4.0 * at->width * at->height) / (3.0 * (double)n);
    for (int i = POSITIONS; i <= COLOURS; i++) qn_out_like(c, i, c->src[1 + i], c->src[1 + i]->dtype);
    return QN_OK;
}

/* From dL/dalpha of a hit to the splat's geometry and opacity. */
static void geometry(const qn_splat_view *view, const qn_tensor *const *scene, const qn_splat_seen *s, const qn_splat_hit *hit,
                     double g, qn_splat_slopes *to) {
    double gamma[3], v[3], side[3], w = s->q[0], pull = 9 * g * hit->alpha;
    const double *u = s->q + 1;
    to->opacity += g * hit->fall;
    for (int k = 0; k < 3; k++) {
        to->log_scale[k] += pull * hit->m[k] * hit->m[k];
        gamma[k] = -pull * hit->m[k] * s->inverse[k]; /* of the point in the splat's frame, before it is scaled */
        v[k] = view->eye[k] - qn_get4(scene[POSITIONS], 0, 0, hit->splat, k) + hit->t * hit->ray[k];
    }
    for (int k = 0; k < 3; k++) to->position[k] -= gamma[0] * s->turn[k] + gamma[1] * s->turn[3 + k] + gamma[2] * s->turn[6 + k];
    qn_splat_cross(v, u, side);
    to->rotation[0] += 2 * qn_splat_dot(gamma, side);
    qn_splat_cross(gamma, v, side);
    double vu = qn_splat_dot(v, u), gu = qn_splat_dot(gamma, u), gv = qn_splat_dot(gamma, v);
    for (int k = 0; k < 3; k++) to->rotation[1 + k] += 2 * (vu * gamma[k] + gu * v[k]) - 4 * gv * u[k] + 2 * w * side[k];
}

typedef struct render_back {
    qn_splat_view view;
    const qn_tensor *g;
    const qn_tensor *const *scene;
    const qn_splat_seen *seen;
    qn_splat_hit *hits;
    qn_splat_slopes *sums;
    double clip;
} render_back;

static void pixel_back(const render_back *b, int64_t x, int64_t y, const int64_t *list, int64_t n) {
    double light[3], d[3], behind;
    int64_t n_hit;
    double left = qn_op_splat_pixel(&b->view, x, y, b->seen, list, n, light, b->hits, &n_hit);
    behind = -qn_get4(b->g, 0, y, x, 3); /* alpha is 1 - left */
    for (int k = 0; k < 3; k++) {
        double g = qn_get4(b->g, 0, y, x, k), value = light[k] + left * b->view.background[k];
        if (b->clip > 0) g = g > b->clip ? b->clip : g < -b->clip ? -b->clip : g;
        d[k] = value > 0 ? g * b->view.gamma * pow(value, b->view.gamma - 1) : 0;
        behind += d[k] * b->view.background[k];
    }
    while (n_hit-- > 0) {
        const qn_splat_hit *hit = &b->hits[n_hit];
        const qn_splat_seen *s = &b->seen[hit->splat];
        qn_splat_slopes *to = &b->sums[hit->splat];
        double seen = qn_splat_dot(d, s->rgb);
        for (int k = 0; k < 3; k++) to->rgb[k] += hit->before * hit->alpha * d[k];
        geometry(&b->view, b->scene, s, hit, hit->before * (seen - behind), to);
        behind = hit->alpha * seen + (1 - hit->alpha) * behind;
    }
}

/* Colours: through the clamp, or through the harmonics to their weights and, by the direction, to the position. */
static void colour_back(const qn_splat_view *view, const qn_tensor *const *scene, int64_t i, qn_splat_slopes *to,
                        const qn_tensor *out) {
    const qn_tensor *colours = scene[COLOURS];
    int64_t bases = qn_op_splat_bases(colours);
    double dir[3], value[QN_SPLAT_BASES], slope[QN_SPLAT_BASES][3], g[3] = {0, 0, 0};
    if (bases == 0) {
        for (int k = 0; k < 3; k++) {
            double colour = qn_get4(colours, 0, 0, i, k);
            qn_put4(out, 0, 0, i, k, colour >= 0 && colour <= 1 ? to->rgb[k] : 0);
        }
        return;
    }
    double length = qn_op_splat_direction(view, scene[POSITIONS], i, dir), sign = view->outward ? 1 : -1;
    qn_op_splat_harmonics(dir, bases, value, slope);
    for (int64_t j = 0; j < bases; j++) {
        double weight = 0;
        for (int k = 0; k < 3; k++) {
            qn_put4(out, 0, i, j, k, value[j] * to->rgb[k]);
            weight += to->rgb[k] * qn_get4(colours, 0, i, j, k);
        }
        for (int k = 0; k < 3; k++) g[k] += weight * slope[j][k];
    }
    double along = qn_splat_dot(g, dir);
    if (length > 0)
        for (int k = 0; k < 3; k++) to->position[k] += sign * (g[k] - along * dir[k]) / length;
}

void qn_op_splat_slopes_store(const qn_splat_view *view, const qn_tensor *const *scene, const qn_splat_seen *seen, int64_t i,
                              qn_splat_slopes *to, const qn_tensor *const *dst) {
    double opacity = qn_get4(scene[OPACITIES], 0, 0, 0, i);
    colour_back(view, scene, i, to, dst[COLOURS]);
    for (int k = 0; k < 3; k++) {
        qn_put4(dst[POSITIONS], 0, 0, i, k, to->position[k]);
        qn_put4(dst[LOG_SCALES], 0, 0, i, k, seen->inverse[k] < 1e6 ? to->log_scale[k] : 0);
    }
    for (int k = 0; k < 4; k++) qn_put4(dst[ROTATIONS], 0, 0, i, k, to->rotation[k]);
    qn_put4(dst[OPACITIES], 0, 0, 0, i, opacity >= 0 && opacity <= 1 ? to->opacity : 0);
}

qn_status qn_ref_splat_render_back(const qn_call *c) {
    const qn_attr_splat_render_back *at = c->attr;
    render_back b = {.view = QN_SPLAT_VIEW_OF(at), .g = c->src[0], .scene = c->src + 1, .clip = (double)at->clip};
    int64_t n = qn_ne(b.scene[POSITIONS], 1);
    qn_splat_seen *seen = c->workspace;
    if (n == 0) return QN_OK;
    b.seen = seen;
    b.hits = (qn_splat_hit *)(seen + n);
    b.sums = (qn_splat_slopes *)(b.hits + n);
    int64_t *order = (int64_t *)(b.sums + n), *list = order + 2 * n;
    QN_SPLAT_DRAW_OF(b.view, at);
    b.view.outward = at->outward;
    qn_op_splat_look(&b.view, b.scene[CAMERA]);
    int64_t count = qn_op_splat_scene(&b.view, b.scene, seen, order);
    memset(b.sums, 0, (size_t)n * sizeof *b.sums);
    for (int64_t tile = 0; tile < b.view.across * b.view.down; tile++) {
        int64_t many = qn_op_splat_list(&b.view, seen, order, count, tile, list);
        qn_splat_box box = qn_op_splat_box(&b.view, tile);
        for (int64_t y = box.y0; y < box.y1; y++)
            for (int64_t x = box.x0; x < box.x1; x++) pixel_back(&b, x, y, list, many);
    }
    for (int64_t i = 0; i < n; i++) qn_op_splat_slopes_store(&b.view, b.scene, &seen[i], i, &b.sums[i], c->dst);
    return QN_OK;
}

void qn_vjp_splat_render(qn_vjp_call *v) {
    _Static_assert(sizeof(qn_attr_splat_render) == sizeof(qn_attr_splat_render_back), "one record");
    qn_attr_splat_render_back at = qn_attr_splat_render_back_default();
    qn_val src[1 + QN_SPLAT_SOURCE_COUNT] = {v->grad[0]}, out[COLOURS + 1];
    if (v->want[CAMERA]) {
        qn_vjp_refuse(v, CAMERA, "the camera is not differentiated");
        return;
    }
    memcpy((char *)&at + offsetof(qn_attr_splat_render_back, width),
           (const char *)v->attr + offsetof(qn_attr_splat_render, width), sizeof at - offsetof(qn_attr_splat_render, width));
    for (int i = 0; i < QN_SPLAT_SOURCE_COUNT; i++) src[1 + i] = v->src[i];
    qn_emit_many(v, QN_OP_splat_render_back, 0, &at, 1 + QN_SPLAT_SOURCE_COUNT, src, COLOURS + 1, out);
    for (int i = POSITIONS; i <= COLOURS; i++)
        if (v->want[i]) v->out[i] = out[i];
}
