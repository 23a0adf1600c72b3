/* The geometry and the light of Gaussian splats, for the ops in op_splat.c and their gradient in op_splat_back.c. */
#include "op/splat.h"

#include <math.h>

#include "op/ref.h"

static const double C0 = 0.28209479177387814, C1 = 0.4886025119029199, NEAREST = 1e-4, SMALLEST = 1e-6, FALL = 4.5;

/* ---- The camera */

/* To length 1, or zero when it has none; returns the length. */
static double normalise(double *v) {
    double length = sqrt(qn_splat_dot(v, v));
    for (int k = 0; k < 3; k++) v[k] = length > 0 ? v[k] / length : 0;
    return length;
}

void qn_op_splat_look(qn_splat_view *view, const qn_tensor *camera) {
    double c[QN_SPLAT_CAMERA], world_up[3];
    qn_load_row(camera, qn_at(camera, 0), 0, QN_SPLAT_CAMERA, c);
    for (int k = 0; k < 3; k++) {
        view->eye[k] = c[k];
        view->forward[k] = c[3 + k] - c[k];
        world_up[k] = c[6 + k];
        view->background[k] = c[12 + k];
    }
    normalise(view->forward);
    qn_splat_cross(world_up, view->forward, view->right);
    normalise(view->right);
    qn_splat_cross(view->forward, view->right, view->up);
    normalise(view->up);
    view->focal = 0.5 * (double)view->height / tan(0.5 * c[9] * 3.14159265358979323846 / 180);
    view->near = c[10] > NEAREST ? c[10] : NEAREST;
    view->far = c[11];
}

/* The plane one in front of the eye, at a pixel's coordinate. */
static double plane_x(const qn_splat_view *v, double x) { return (x - 0.5 * (double)v->width) / v->focal; }
static double plane_y(const qn_splat_view *v, double y) { return (y - 0.5 * (double)v->height) / v->focal; }

/* ---- A splat */

void qn_op_splat_turn(const double q[4], double turn[9]) {
    const double *u = q + 1, w = q[0], straight = 1 - 2 * qn_splat_dot(u, u);
    for (int i = 0; i < 3; i++)
        for (int j = 0; j < 3; j++) turn[3 * i + j] = 2 * u[i] * u[j] + (i == j ? straight : 0);
    turn[1] += 2 * w * u[2]; /* v x u, as a matrix times v */
    turn[2] -= 2 * w * u[1];
    turn[3] -= 2 * w * u[2];
    turn[5] += 2 * w * u[0];
    turn[6] += 2 * w * u[1];
    turn[7] -= 2 * w * u[0];
}

static void apply(const double m[9], const double v[3], double out[3]) {
    for (int i = 0; i < 3; i++) out[i] = qn_splat_dot(m + 3 * i, v);
}

void qn_op_splat_harmonics(const double d[3], int64_t count, double *value, double (*slope)[3]) {
    static const double a = 1.0925484305920792, b = 0.31539156525252005, c = 0.5462742152960396;
    static const double e = 0.5900435899266435, f = 2.890611442640554, g = 0.4570457994644658, h = 0.3731763325901154,
                        i = 1.445305721320277;
    double x = d[0], y = d[1], z = d[2], xx = x * x, yy = y * y, zz = z * z;
    const double all[QN_SPLAT_BASES] = {C0,
                                        -C1 * y,
                                        C1 * z,
                                        -C1 * x,
                                        a * x * y,
                                        -a * y * z,
                                        b * (2 * zz - xx - yy),
                                        -a * x * z,
                                        c * (xx - yy),
                                        -e * y * (3 * xx - yy),
                                        f * x * y * z,
                                        -g * y * (4 * zz - xx - yy),
                                        h * z * (2 * zz - 3 * xx - 3 * yy),
                                        -g * x * (4 * zz - xx - yy),
                                        i * z * (xx - yy),
                                        -e * x * (xx - 3 * yy)};
    const double slopes[QN_SPLAT_BASES][3] = {{0, 0, 0},
                                              {0, -C1, 0},
                                              {0, 0, C1},
                                              {-C1, 0, 0},
                                              {a * y, a * x, 0},
                                              {0, -a * z, -a * y},
                                              {-2 * b * x, -2 * b * y, 4 * b * z},
                                              {-a * z, 0, -a * x},
                                              {2 * c * x, -2 * c * y, 0},
                                              {-6 * e * x * y, -3 * e * (xx - yy), 0},
                                              {f * y * z, f * x * z, f * x * y},
                                              {2 * g * x * y, -g * (4 * zz - xx - 3 * yy), -8 * g * y * z},
                                              {-6 * h * x * z, -6 * h * y * z, h * (6 * zz - 3 * xx - 3 * yy)},
                                              {-g * (4 * zz - 3 * xx - yy), 2 * g * x * y, -8 * g * x * z},
                                              {2 * i * x * z, -2 * i * y * z, i * (xx - yy)},
                                              {-3 * e * (xx - yy), 6 * e * x * y, 0}};
    memcpy(value, all, (size_t)count * sizeof(double));
    if (slope) memcpy(slope, slopes, (size_t)count * sizeof slopes[0]);
}

double qn_op_splat_direction(const qn_splat_view *view, const qn_tensor *positions, int64_t i, double dir[3]) {
    for (int k = 0; k < 3; k++) {
        dir[k] = view->eye[k] - qn_get4(positions, 0, 0, i, k);
        if (view->outward) dir[k] = -dir[k];
    }
    return normalise(dir);
}

static double clamp_unit(double v) { return v < 0 ? 0 : v > 1 ? 1 : v; }

static void see_colour(const qn_splat_view *view, const qn_tensor *const *scene, int64_t i, int64_t count, double rgb[3]) {
    double dir[3], basis[QN_SPLAT_BASES];
    if (count) {
        qn_op_splat_direction(view, scene[0], i, dir);
        qn_op_splat_harmonics(dir, count, basis, NULL);
    }
    for (int k = 0; k < 3; k++) {
        rgb[k] = count ? 0.5 : clamp_unit(qn_get4(scene[4], 0, 0, i, k));
        for (int64_t b = 0; b < count; b++) rgb[k] += basis[b] * qn_get4(scene[4], 0, i, b, k);
    }
}

/* The outline: rays along which alpha reaches the cutoff pass the ball's centre within `reach`, that is
 * (r.p)^2 - r.r (p.p - reach) >= 0, and r is linear in the point where the ray crosses the plane. A quadric that is no ellipse
 * there, or an eye within the ball, leaves the splat everywhere. */
void qn_op_splat_outline(const qn_splat_view *view, qn_splat_seen *s) {
    s->reach = view->cutoff > 0 ? log(s->opacity / view->cutoff) / FALL : INFINITY;
    double inside = qn_splat_dot(s->p, s->p) - s->reach, k[3][3], m[3][3];
    const double *axes[3] = {view->right, view->up, view->forward};
    s->everywhere = 1;
    if (!(inside > 0)) return;
    for (int j = 0; j < 3; j++) {
        apply(s->turn, axes[j], k[j]);
        for (int i = 0; i < 3; i++) k[j][i] *= s->inverse[i];
    }
    for (int i = 0; i < 3; i++)
        for (int j = 0; j < 3; j++)
            m[i][j] = inside * qn_splat_dot(k[i], k[j]) - qn_splat_dot(k[i], s->p) * qn_splat_dot(k[j], s->p);
    double det = m[0][0] * m[1][1] - m[0][1] * m[0][1];
    if (!(m[0][0] > 0) || !(det > 1e-12 * m[0][0] * m[1][1])) return;
    s->centre[0] = (m[0][1] * m[1][2] - m[1][1] * m[0][2]) / det;
    s->centre[1] = (m[0][1] * m[0][2] - m[0][0] * m[1][2]) / det;
    s->bend[0] = m[0][0];
    s->bend[1] = m[0][1];
    s->bend[2] = m[1][1];
    double most = -(m[2][2] + m[0][2] * s->centre[0] + m[1][2] * s->centre[1]);
    s->level = most + 1e-6 * (fabs(most) + 1e-6 * fabs(m[2][2])); /* a little more, because of rounding */
    s->everywhere = !isfinite(s->level);
}

void qn_op_splat_see(const qn_splat_view *view, const qn_tensor *const *scene, int64_t i, int64_t count, qn_splat_seen *s) {
    double from[3];
    memset(s, 0, sizeof *s);
    for (int k = 0; k < 3; k++) {
        double size = 3 * exp(qn_get4(scene[1], 0, 0, i, k)) * view->radius_scale;
        s->inverse[k] = 1 / (size > SMALLEST ? size : SMALLEST);
        from[k] = view->eye[k] - qn_get4(scene[0], 0, 0, i, k);
    }
    for (int k = 0; k < 4; k++) s->q[k] = qn_get4(scene[2], 0, 0, i, k);
    s->opacity = clamp_unit(qn_get4(scene[3], 0, 0, 0, i));
    see_colour(view, scene, i, count, s->rgb);
    qn_op_splat_turn(s->q, s->turn);
    apply(s->turn, from, s->p);
    for (int k = 0; k < 3; k++) s->p[k] *= s->inverse[k];
    double depth = -qn_splat_dot(from, view->forward), all = depth + s->opacity;
    for (int k = 0; k < 3; k++) all += s->p[k] + s->inverse[k] + s->rgb[k];
    s->distance = sqrt(qn_splat_dot(from, from));
    s->valid = isfinite(all) && depth > view->near && depth < view->far && s->opacity >= view->cutoff;
    if (s->valid != 0) qn_op_splat_outline(view, s);
}

/* ---- Order and tiles */

int64_t qn_op_splat_sort(const qn_splat_seen *seen, int64_t n, int64_t *order, int64_t *other) {
    int64_t count = 0, *from = order, *to = other;
    for (int64_t i = 0; i < n; i++)
        if (seen[i].valid != 0) order[count++] = i;
    for (int64_t width = 1; width < count; width *= 2) { /* merges, bottom up */
        for (int64_t start = 0; start < count; start += 2 * width) {
            int64_t middle = start + width < count ? start + width : count, end = middle + width < count ? middle + width : count;
            for (int64_t a = start, b = middle, at = start; at < end; at++) {
                int first = b >= end || (a < middle && !(seen[from[b]].distance < seen[from[a]].distance));
                to[at] = first ? from[a++] : from[b++];
            }
        }
        int64_t *swap = from;
        from = to;
        to = swap;
    }
    if (from != order) memcpy(order, from, (size_t)count * sizeof *order);
    return count;
}

/* The least of b0 x^2 + 2 b1 x y + b2 y^2 for x fixed and y in [y0, y1]. */
static double least_on_edge(double b0, double b1, double b2, double x, double y0, double y1) {
    double y = -b1 * x / b2;
    y = y < y0 ? y0 : y > y1 ? y1 : y;
    return b0 * x * x + 2 * b1 * x * y + b2 * y * y;
}

qn_splat_window qn_op_splat_window(const qn_splat_view *v, const qn_splat_box *box) {
    qn_splat_window w = {plane_x(v, (double)box->x0), plane_y(v, (double)box->y0), plane_x(v, (double)box->x1),
                         plane_y(v, (double)box->y1)};
    return w;
}

int qn_op_splat_touches(const qn_splat_seen *s, const qn_splat_window *w) {
    if (s->everywhere != 0) return 1;
    double x0 = w->x0 - s->centre[0], x1 = w->x1 - s->centre[0], y0 = w->y0 - s->centre[1], y1 = w->y1 - s->centre[1];
    const double *b = s->bend;
    if (x0 <= 0 && x1 >= 0 && y0 <= 0 && y1 >= 0) return s->level >= 0;
    double least = least_on_edge(b[0], b[1], b[2], x0, y0, y1), more = least_on_edge(b[0], b[1], b[2], x1, y0, y1);
    if (more < least) least = more;
    more = least_on_edge(b[2], b[1], b[0], y0, x0, x1);
    if (more < least) least = more;
    more = least_on_edge(b[2], b[1], b[0], y1, x0, x1);
    return (more < least ? more : least) <= s->level;
}

int64_t qn_op_splat_scene(const qn_splat_view *view, const qn_tensor *const *scene, qn_splat_seen *seen, int64_t *order) {
    int64_t n = qn_ne(scene[0], 1), bases = qn_op_splat_bases(scene[4]);
    for (int64_t i = 0; i < n; i++) qn_op_splat_see(view, scene, i, bases, &seen[i]);
    return qn_op_splat_sort(seen, n, order, order + n);
}

int64_t qn_op_splat_list(const qn_splat_view *view, const qn_splat_seen *seen, const int64_t *order, int64_t n, int64_t tile,
                         int64_t *list) {
    int64_t count = 0;
    qn_splat_box box = qn_op_splat_box(view, tile);
    qn_splat_window window = qn_op_splat_window(view, &box);
    for (int64_t i = 0; i < n; i++)
        if (qn_op_splat_touches(&seen[order[i]], &window)) list[count++] = order[i];
    return count;
}

/* ---- Rows */

void qn_op_splat_store(const qn_tensor *splats, int64_t i, const qn_splat_seen *s) {
    double row[QN_SPLAT_FIELDS] = {s->rgb[0],     s->rgb[1],     s->rgb[2],     s->opacity, s->valid, s->p[0], s->p[1], s->p[2],
                                   s->inverse[0], s->inverse[1], s->inverse[2], s->q[0],    s->q[1],  s->q[2], s->q[3]};
    qn_store_row(splats, qn_at(splats, i * qn_nb(splats, 1)), 0, QN_SPLAT_FIELDS, row);
}

void qn_op_splat_load(const qn_tensor *splats, int64_t i, qn_splat_seen *s) {
    double row[QN_SPLAT_FIELDS];
    qn_load_row(splats, qn_at(splats, i * qn_nb(splats, 1)), 0, QN_SPLAT_FIELDS, row);
    memset(s, 0, sizeof *s);
    memcpy(s->rgb, row, sizeof s->rgb);
    s->opacity = row[3];
    s->valid = row[4];
    memcpy(s->p, row + 5, sizeof s->p);
    memcpy(s->inverse, row + 8, sizeof s->inverse);
    memcpy(s->q, row + 11, sizeof s->q);
    qn_op_splat_turn(s->q, s->turn);
}

/* ---- Light */

void qn_op_splat_ray(const qn_splat_view *view, int64_t x, int64_t y, double ray[3]) {
    double px = plane_x(view, (double)x + 0.5), py = plane_y(view, (double)y + 0.5);
    for (int k = 0; k < 3; k++) ray[k] = px * view->right[k] + py * view->up[k] + view->forward[k];
    normalise(ray);
}

/* Whether a ray meets a splat visibly; fills all of the hit but `before`. */
static int meet(const qn_splat_view *view, const qn_splat_seen *s, const double ray[3], qn_splat_hit *hit) {
    double r[3];
    apply(s->turn, ray, r);
    for (int k = 0; k < 3; k++) r[k] *= s->inverse[k];
    double rr = qn_splat_dot(r, r);
    if (!(rr > 1e-10)) return 0;
    hit->t = -qn_splat_dot(r, s->p) / rr;
    if (!(hit->t > 0)) return 0;
    for (int k = 0; k < 3; k++) hit->m[k] = s->p[k] + hit->t * r[k];
    hit->fall = exp(-FALL * qn_splat_dot(hit->m, hit->m));
    hit->alpha = s->opacity * hit->fall;
    return hit->alpha >= view->cutoff;
}

double qn_op_splat_pixel(const qn_splat_view *view, int64_t x, int64_t y, const qn_splat_seen *seen, const int64_t *list,
                         int64_t n, double light[3], qn_splat_hit *hits, int64_t *n_hit) {
    double left = 1;
    int64_t steps = 0;
    qn_splat_hit hit;
    for (int k = 0; k < 3; k++) light[k] = 0;
    qn_op_splat_ray(view, x, y, hit.ray);
    for (int64_t i = 0; i < n && left >= view->threshold; i++) {
        const qn_splat_seen *s = &seen[list[i]];
        if (!meet(view, s, hit.ray, &hit)) continue;
        hit.splat = list[i];
        hit.before = left;
        if (hits) hits[steps] = hit;
        for (int k = 0; k < 3; k++) light[k] += left * hit.alpha * s->rgb[k];
        left *= 1 - hit.alpha;
        if (++steps == view->max_steps) break;
    }
    if (n_hit) *n_hit = steps;
    return left;
}
