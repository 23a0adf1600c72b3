/* splat_render and splat_rasterize: a block of pixels at a time, one in each lane, through the splats that may touch it from near to far.
 * In double: a splat that is too faint, or light that is used up, is left out, and so what decides that must not hang on rounding. */
#include <math.h>

#include "cpu/k_lanes.h"
#include "cpu/k_splat.h"
#include "cpu/simd/simd_math.h"
#include "cpu/simd/simd_wide.h"

enum { LANES = VF_N / 2, CHUNK = QN_SPLAT_CHUNK, PIXELS = QN_SPLAT_PIXELS };

void qn_splat_canvas_open(qn_splat_canvas *b, const qn_splat_view *view, const qn_splat_box *box) {
    b->view = view;
    b->box = *box;
    b->n = 0;
    for (int i = 0; i < PIXELS; i++) {
        int64_t x = box->x0 + i % QN_SPLAT_BLOCK, y = box->y0 + i / QN_SPLAT_BLOCK;
        double ray[3];
        qn_op_splat_ray(view, x, y, ray);
        for (int k = 0; k < 3; k++) {
            b->ray[k][i] = ray[k];
            b->light[k][i] = 0;
        }
        b->left[i] = 1;
        b->steps[i] = 0;
        b->live[i] = x < box->x1 && y < box->y1 ? -1 : 0;
    }
}

static inline vd dot3(const double *a, vd x, vd y, vd z) {
    return vd_fma(vd_set1(a[2]), z, vd_fma(vd_set1(a[1]), y, vd_set1(a[0]) * x));
}

/* What lanes met, all of it 0 in those that met nothing: there it may be no number. */
QN_INLINE void keep_hit(qn_splat_hit_lanes *to, int at, vl hit, vd fall, vd before, vd t, vd a, vd c, vd d) {
    vd none = vd_zero();
    to->any |= (uint64_t)1 << (at / LANES);
    vl_store(to->is + at, hit);
    vd_store(to->fall + at, vd_select(hit, fall, none));
    vd_store(to->before + at, vd_select(hit, before, none));
    vd_store(to->t + at, vd_select(hit, t, none));
    vd_store(to->m[0] + at, vd_select(hit, a, none));
    vd_store(to->m[1] + at, vd_select(hit, c, none));
    vd_store(to->m[2] + at, vd_select(hit, d, none));
}

/* Some pixels through the splats that wait; whether any of them can still take light. */
QN_INLINE int draw_lanes(qn_splat_canvas *b, int at, qn_splat_hits *hits) {
    const qn_splat_view *view = b->view;
    vd x = vd_load(b->ray[0] + at), y = vd_load(b->ray[1] + at), z = vd_load(b->ray[2] + at), left = vd_load(b->left + at);
    vd red = vd_load(b->light[0] + at), green = vd_load(b->light[1] + at), blue = vd_load(b->light[2] + at);
    vl live = vl_load(b->live + at), steps = vl_load(b->steps + at);
    if (!vl_any(live)) return 0;
    for (int i = 0; i < b->n; i++) {
        const qn_splat_seen *s = b->list[i];
        vd u = dot3(s->turn, x, y, z) * s->inverse[0], v = dot3(s->turn + 3, x, y, z) * s->inverse[1];
        vd w = dot3(s->turn + 6, x, y, z) * s->inverse[2], rr = vd_fma(w, w, vd_fma(v, v, u * u));
        vd t = -dot3(s->p, u, v, w) / rr;
        vd a = vd_fma(t, u, vd_set1(s->p[0])), c = vd_fma(t, v, vd_set1(s->p[1])), d = vd_fma(t, w, vd_set1(s->p[2]));
        vd away = vd_fma(d, d, vd_fma(c, c, a * a));
        vl hit = live & (vl)(rr > 1e-10) & (vl)(t > 0.0) & ~(vl)(away > s->reach + 1e-6);
        if (!vl_any(hit)) continue;
        vd fall = vd_exp(-4.5 * away), alpha = fall * s->opacity;
        hit &= (vl)(alpha >= view->cutoff);
        if (hits) keep_hit(&hits->hit[i], at, hit, fall, left, t, a, c, d);
        vd weight = left * alpha;
        red = vd_select(hit, vd_fma(weight, vd_set1(s->rgb[0]), red), red);
        green = vd_select(hit, vd_fma(weight, vd_set1(s->rgb[1]), green), green);
        blue = vd_select(hit, vd_fma(weight, vd_set1(s->rgb[2]), blue), blue);
        left = vd_select(hit, left * (1 - alpha), left);
        steps -= hit;
        live &= (vl)(left >= view->threshold) & (vl)(steps != (view->max_steps ? view->max_steps : -1));
        if (!vl_any(live)) break;
    }
    vd_store(b->light[0] + at, red);
    vd_store(b->light[1] + at, green);
    vd_store(b->light[2] + at, blue);
    vd_store(b->left + at, left);
    vl_store(b->live + at, live);
    vl_store(b->steps + at, steps);
    return vl_any(live);
}

int qn_splat_draw(qn_splat_canvas *c, qn_splat_hits *hits) {
    int live = 0;
    for (int i = 0; hits && i < c->n; i++) hits->hit[i].any = 0;
    for (int at = 0; at < PIXELS; at += LANES) live |= hits ? draw_lanes(c, at, hits) : draw_lanes(c, at, NULL);
    if (!hits) c->n = 0;
    return live;
}

/* A canvas and the splats it is drawn from. */
typedef struct drawing {
    qn_splat_canvas canvas;
    const qn_splat_seen *seen;
} drawing;

static int add_splat(void *to, int64_t i) {
    drawing *d = to;
    d->canvas.list[d->canvas.n++] = &d->seen[i];
    return d->canvas.n < CHUNK || qn_splat_draw(&d->canvas, NULL);
}

/* ---- Display */

void qn_splat_powers(const double *value, double gamma, float *out) {
    for (int i = 0; i < PIXELS; i += VF_N) {
        float x[VF_N];
        int near = fabs(gamma) <= 4;
        for (int k = 0; k < VF_N; k++) {
            double now = value[i + k];
            near &= now <= 0 || (now > 1e-9 && now < 1e9);
            x[k] = now > 0 ? (float)now : 0;
        }
        vf v = vf_load(x);
        if (near) vf_store(out + i, vf_select(v > vf_zero(), vf_exp(vf_set1((float)gamma) * vf_log(v)), vf_zero()));
        else
            for (int k = 0; k < VF_N; k++) out[i + k] = value[i + k] > 0 ? (float)pow(value[i + k], gamma) : 0;
    }
}

static void put_floats(const qn_splat_canvas *b, const qn_tensor *image) {
    float shown[3][PIXELS];
    for (int k = 0; k < 3; k++) {
        double value[PIXELS];
        for (int i = 0; i < PIXELS; i++) value[i] = b->light[k][i] + b->left[i] * b->view->background[k];
        qn_splat_powers(value, b->view->gamma, shown[k]);
    }
    for (int64_t y = b->box.y0; y < b->box.y1; y++) {
        int row = (int)(y - b->box.y0) * QN_SPLAT_BLOCK;
        for (int64_t x = b->box.x0; x < b->box.x1; x++) {
            int i = row + (int)(x - b->box.x0);
            char *to = qn_at(image, qn_off4(image, 0, y, x, 0));
            int64_t step = qn_nb(image, 0);
            for (int k = 0; k < 3; k++) *(float *)(void *)(to + k * step) = shown[k][i];
            *(float *)(void *)(to + 3 * step) = (float)(1 - b->left[i]);
        }
    }
}

static void put_doubles(const qn_splat_canvas *b, const qn_tensor *image) {
    for (int64_t y = b->box.y0; y < b->box.y1; y++)
        for (int64_t x = b->box.x0; x < b->box.x1; x++) {
            int64_t i = (y - b->box.y0) * QN_SPLAT_BLOCK + x - b->box.x0;
            for (int k = 0; k < 3; k++) {
                double value = b->light[k][i] + b->left[i] * b->view->background[k];
                qn_put4(image, 0, y, x, k, value > 0 ? pow(value, b->view->gamma) : 0);
            }
            qn_put4(image, 0, y, x, 3, 1 - b->left[i]);
        }
}

static void close_canvas(qn_splat_canvas *b, const qn_tensor *image) {
    qn_splat_draw(b, NULL);
    if (image->dtype == QN_DTYPE_F32) put_floats(b, image);
    else put_doubles(b, image);
}

/* ---- splat_render: phase 0 sees the splats, 1 sorts them, 2 finds their blocks, 3 draws */

static size_t open_render(const qn_call *c, qn_splat_scene *s) {
    const qn_attr_splat_render *at = c->attr;
    qn_splat_view view = QN_SPLAT_VIEW_OF(at);
    QN_SPLAT_DRAW_OF(view, at);
    view.outward = at->outward;
    if (c->workspace) qn_op_splat_look(&view, c->src[QN_SPLAT_EYE]);
    return qn_splat_open(s, &view, qn_ne(c->src[QN_SPLAT_POSITIONS], 1), c->workspace, 1);
}

static void run_render(const qn_call *c, const qn_cpu_step *step, int phase, int64_t part) {
    qn_splat_scene s;
    open_render(c, &s);
    if (phase == 0) qn_splat_see_part(&s, c->src, step->parts[0], part);
    if (phase == 1) qn_splat_sort(&s);
    if (phase == 2) qn_splat_bits_part(&s, step->parts[2], part);
    if (phase < 3) return;
    int64_t blocks = s.blocks.across * s.blocks.down, end = qn_cpu_cut(blocks, step->parts[3], part + 1);
    for (int64_t block = qn_cpu_cut(blocks, step->parts[3], part); block < end; block++) {
        drawing d;
        d.seen = s.seen;
        qn_splat_box box = qn_op_splat_box(&s.blocks, block);
        qn_splat_canvas_open(&d.canvas, &s.view, &box);
        qn_splat_walk(&s, block, add_splat, &d);
        close_canvas(&d.canvas, c->dst[0]);
    }
}

/* How many splats a block meets no shape tells; that of many are some is enough to cut by. */
static int64_t draw_parts(int64_t squares, int64_t pixels, int64_t n) {
    return qn_cpu_parts(squares, 0, (double)pixels * (200.0 + (double)n));
}

int QN_K(splat_render)(const qn_call *c, qn_cpu_step *step) {
    qn_splat_scene s;
    size_t bytes = open_render(c, &s);
    if (!qn_splat_sortable(s.n)) return 0;
    step->run = run_render;
    step->name = "splats by blocks";
    step->n_phases = 4;
    step->parts[0] = qn_splat_see_parts(s.n);
    step->parts[1] = 1;
    step->parts[2] = qn_splat_bits_parts(&s);
    step->parts[3] = draw_parts(s.blocks.across * s.blocks.down, PIXELS, s.n);
    step->workspace = bytes;
    return 1;
}

/* ---- splat_rasterize: phase 0 reads the splats, 1 draws, tile by tile, a tile in blocks */

static qn_splat_view rasterize_view(const qn_call *c) {
    const qn_attr_splat_rasterize *at = c->attr;
    qn_splat_view view = QN_SPLAT_VIEW_OF(at);
    QN_SPLAT_DRAW_OF(view, at);
    if (c->workspace) qn_op_splat_look(&view, c->src[3]);
    return view;
}

static void draw_listed(const qn_call *c, const qn_splat_view *view, int64_t tile, const qn_splat_box *box) {
    const qn_splat_seen *seen = c->workspace;
    int64_t room = qn_ne(c->src[1], 0), n = qn_ne(c->src[0], 1);
    int64_t start = qn_index4(c->src[2], 0, 0, tile, 0), end = qn_index4(c->src[2], 0, 0, tile, 1);
    qn_splat_window window = qn_op_splat_window(view, box);
    drawing d;
    d.seen = seen;
    qn_splat_canvas_open(&d.canvas, view, box);
    for (int64_t i = start < 0 ? 0 : start; i < end && i < room; i++) {
        int64_t id = qn_index4(c->src[1], 0, 0, 0, i);
        if (id >= n || seen[id].valid == 0 || !qn_op_splat_touches(&seen[id], &window)) continue;
        if (!add_splat(&d, id)) break;
    }
    close_canvas(&d.canvas, c->dst[0]);
}

static void run_rasterize(const qn_call *c, const qn_cpu_step *step, int phase, int64_t part) {
    qn_splat_view view = rasterize_view(c);
    qn_splat_seen *seen = c->workspace;
    int64_t n = phase ? view.across * view.down : qn_ne(c->src[0], 1), end = qn_cpu_cut(n, step->parts[phase], part + 1);
    for (int64_t i = qn_cpu_cut(n, step->parts[phase], part); i < end; i++) {
        if (phase == 0) {
            qn_op_splat_load(c->src[0], i, &seen[i]);
            if (seen[i].valid != 0) qn_op_splat_outline(&view, &seen[i]);
            continue;
        }
        qn_splat_box tile = qn_op_splat_box(&view, i), box;
        for (box.y0 = tile.y0; box.y0 < tile.y1; box.y0 += QN_SPLAT_BLOCK)
            for (box.x0 = tile.x0; box.x0 < tile.x1; box.x0 += QN_SPLAT_BLOCK) {
                box.x1 = box.x0 + QN_SPLAT_BLOCK < tile.x1 ? box.x0 + QN_SPLAT_BLOCK : tile.x1;
                box.y1 = box.y0 + QN_SPLAT_BLOCK < tile.y1 ? box.y0 + QN_SPLAT_BLOCK : tile.y1;
                draw_listed(c, &view, i, &box);
            }
    }
}

int QN_K(splat_rasterize)(const qn_call *c, qn_cpu_step *step) {
    qn_splat_view view = rasterize_view(c);
    int64_t n = qn_ne(c->src[0], 1), room = qn_ne(c->src[1], 0);
    if (n == 0 || room == 0) return 0;
    step->run = run_rasterize;
    step->name = "splats by blocks";
    step->n_phases = 2;
    step->parts[0] = qn_splat_see_parts(n);
    step->parts[1] = draw_parts(view.across * view.down, view.tile * view.tile, room);
    step->workspace = (size_t)n * sizeof(qn_splat_seen);
    return 1;
}
