/* The gradient of splat_render, block by block of pixels, one pixel in each lane. A block's splats are gone through from near to far in
 * chunks, the state before each chunk kept; then from far to near, each chunk drawn once more with its hits written down. Sums over the
 * pixels of a block are made in lanes; each part has sums of its own for all splats, which the last phase adds up in their order. */
#include <math.h>

#include "cpu/k_splat.h"
#include "cpu/simd/simd_wide.h"

enum { LANES = VF_N / 2, PIXELS = QN_SPLAT_PIXELS, CHUNK = QN_SPLAT_CHUNK, PARTS = 8 };

/* What a pixel still had before a chunk. */
typedef struct state {
    double left[PIXELS];
    int64_t live[PIXELS], steps[PIXELS];
} state;

/* The scratch of a part: a block's splats, states, hits, and the sums for all splats. */
typedef struct back {
    const qn_splat_scene *s;
    const qn_tensor *const *scene;
    qn_splat_canvas canvas;
    int64_t n, *list;
    state *states;
    qn_splat_hits *hits;
    qn_splat_slopes *sums;
    double colour[3][PIXELS], behind[PIXELS]; /* gradients of a pixel's colours, and of all that lies behind where we are */
} back;

static int64_t chunks_of(int64_t n) { return (n + CHUNK - 1) / CHUNK; }

static size_t part_bytes(int64_t n) {
    size_t bytes = (size_t)chunks_of(n) * sizeof(state) + sizeof(qn_splat_hits) + (size_t)n * (sizeof(qn_splat_slopes) + 8);
    return (bytes + 63) / 64 * 64;
}

static int add_splat(void *to, int64_t i) {
    back *b = to;
    b->list[b->n++] = i;
    return 1;
}

/* ---- Near to far */

static void take_chunk(back *b, int64_t chunk) {
    int64_t first = chunk * CHUNK;
    b->canvas.n = (int)(b->n - first < CHUNK ? b->n - first : CHUNK);
    for (int i = 0; i < b->canvas.n; i++) b->canvas.list[i] = &b->s->seen[b->list[first + i]];
}

static void keep_state(const qn_splat_canvas *c, state *s) {
    memcpy(s->left, c->left, sizeof s->left);
    memcpy(s->live, c->live, sizeof s->live);
    memcpy(s->steps, c->steps, sizeof s->steps);
}
static void take_state(qn_splat_canvas *c, const state *s) {
    memcpy(c->left, s->left, sizeof s->left);
    memcpy(c->live, s->live, sizeof s->live);
    memcpy(c->steps, s->steps, sizeof s->steps);
}

/* How many chunks show. */
static int64_t draw_chunks(back *b) {
    int64_t chunk = 0, all = chunks_of(b->n);
    for (int live = 1; chunk < all && live; chunk++) {
        take_chunk(b, chunk);
        keep_state(&b->canvas, &b->states[chunk]);
        live = qn_splat_draw(&b->canvas, b->hits);
    }
    return chunk;
}

/* value^gamma, 0 for what is not positive. */
static void powers(uint32_t dtype, const double *value, double gamma, double *out) {
    if (dtype == QN_DTYPE_F32) {
        float t[PIXELS];
        qn_splat_powers(value, gamma, t);
        for (int i = 0; i < PIXELS; i++) out[i] = (double)t[i];
    } else {
        for (int i = 0; i < PIXELS; i++) out[i] = value[i] > 0 ? pow(value[i], gamma) : 0;
    }
}

/* Gradients of the light, from those of what is displayed: g, or 0 behind the edge. */
static void open_pixels(back *b, const qn_tensor *g, double clip) {
    const qn_splat_canvas *c = &b->canvas;
    const qn_splat_view *v = c->view;
    double slope[4][PIXELS] = {{0}};
    for (int64_t y = c->box.y0; y < c->box.y1; y++)
        for (int64_t x = c->box.x0; x < c->box.x1; x++)
            for (int k = 0; k < 4; k++) slope[k][(y - c->box.y0) * QN_SPLAT_BLOCK + x - c->box.x0] = qn_get4(g, 0, y, x, k);
    for (int i = 0; i < PIXELS; i++) b->behind[i] = -slope[3][i]; /* alpha is 1 - left */
    for (int k = 0; k < 3; k++) {
        double value[PIXELS], power[PIXELS];
        for (int i = 0; i < PIXELS; i++) value[i] = c->light[k][i] + c->left[i] * v->background[k];
        powers(g->dtype, value, v->gamma - 1, power);
        for (int i = 0; i < PIXELS; i++) {
            double d = slope[k][i];
            if (clip > 0) d = d > clip ? clip : d < -clip ? -clip : d;
            b->colour[k][i] = value[i] > 0 ? d * v->gamma * power[i] : 0;
            b->behind[i] += b->colour[k][i] * v->background[k];
        }
    }
}

/* ---- Far to near */

/* Sums of one splat over the lanes: in the order of qn_splat_slopes, but for positions the gradients in the splat's own frame. */
typedef struct lanes {
    vd position[3], log_scale[3], rotation[4], opacity, rgb[3];
} lanes;

static inline vd dot3(const vd *a, const vd *b) { return vd_fma(a[2], b[2], vd_fma(a[1], b[1], a[0] * b[0])); }
static inline void cross3(const vd *a, const vd *b, vd *out) {
    for (int k = 0; k < 3; k++) out[k] = a[(k + 1) % 3] * b[(k + 2) % 3] - a[(k + 2) % 3] * b[(k + 1) % 3];
}

/* From dL/dalpha, as `pull`, to the geometry; as in the reference. */
static inline void geometry(const qn_splat_seen *s, const vd *m, const vd *v, vd pull, lanes *to) {
    vd gamma[3], side[3], u[3] = {vd_set1(s->q[1]), vd_set1(s->q[2]), vd_set1(s->q[3])};
    for (int k = 0; k < 3; k++) {
        vd pm = pull * m[k];
        to->log_scale[k] = vd_fma(pm, m[k], to->log_scale[k]);
        gamma[k] = -pm * s->inverse[k];
        to->position[k] += gamma[k];
    }
    cross3(v, u, side);
    to->rotation[0] = vd_fma(vd_set1(2), dot3(gamma, side), to->rotation[0]);
    cross3(gamma, v, side);
    vd along = dot3(v, u), gu = dot3(gamma, u), gv = dot3(gamma, v);
    for (int k = 0; k < 3; k++) to->rotation[1 + k] += 2 * (along * gamma[k] + gu * v[k] + s->q[0] * side[k]) - 4 * gv * u[k];
}

static void back_lanes(back *b, const qn_splat_hit_lanes *hit, const qn_splat_seen *s, const double *from, int at, lanes *to) {
    vd d[3], m[3], v[3], fall = vd_load(hit->fall + at), before = vd_load(hit->before + at), t = vd_load(hit->t + at);
    vd alpha = fall * s->opacity, behind = vd_load(b->behind + at), shown = vd_zero();
    vl is = vl_load(hit->is + at);
    for (int k = 0; k < 3; k++) {
        d[k] = vd_select(is, vd_load(b->colour[k] + at), vd_zero()); /* a pixel that was not hit may have any gradient */
        m[k] = vd_load(hit->m[k] + at);
        v[k] = vd_fma(t, vd_load(b->canvas.ray[k] + at), vd_set1(from[k]));
        shown = vd_fma(d[k], vd_set1(s->rgb[k]), shown);
        to->rgb[k] = vd_fma(before * alpha, d[k], to->rgb[k]);
    }
    vd g = vd_select(is, before * (shown - behind), vd_zero());
    to->opacity = vd_fma(g, fall, to->opacity);
    geometry(s, m, v, 9 * g * alpha, to);
    vd_store(b->behind + at, vd_select(is, alpha * shown + (1 - alpha) * behind, behind));
}

/* The sums of a splat's lanes onto its own. */
static void add_up(const lanes *l, const qn_splat_seen *s, qn_splat_slopes *to) {
    double gamma[3];
    for (int k = 0; k < 3; k++) {
        gamma[k] = vd_sum(l->position[k]);
        to->log_scale[k] += vd_sum(l->log_scale[k]);
        to->rgb[k] += vd_sum(l->rgb[k]);
    }
    for (int k = 0; k < 3; k++) to->position[k] -= gamma[0] * s->turn[k] + gamma[1] * s->turn[3 + k] + gamma[2] * s->turn[6 + k];
    for (int k = 0; k < 4; k++) to->rotation[k] += vd_sum(l->rotation[k]);
    to->opacity += vd_sum(l->opacity);
}

static void back_chunk(back *b, int64_t chunk) {
    for (int i = b->canvas.n; i-- > 0;) {
        const qn_splat_hit_lanes *hit = &b->hits->hit[i];
        if (!hit->any) continue;
        int64_t number = b->list[chunk * CHUNK + i];
        const qn_splat_seen *s = &b->s->seen[number];
        double from[3];
        lanes l = {.opacity = vd_zero()};
        for (int k = 0; k < 3; k++) from[k] = b->s->view.eye[k] - qn_get4(b->scene[QN_SPLAT_POSITIONS], 0, 0, number, k);
        for (int at = 0; at < PIXELS; at += LANES)
            if (hit->any >> (at / LANES) & 1) back_lanes(b, hit, s, from, at, &l);
        add_up(&l, s, &b->sums[number]);
    }
}

static void back_block(back *b, int64_t block, const qn_tensor *g, double clip) {
    qn_splat_box box = qn_op_splat_box(&b->s->blocks, block);
    b->n = 0;
    qn_splat_walk(b->s, block, add_splat, b);
    if (b->n == 0) return;
    qn_splat_canvas_open(&b->canvas, &b->s->view, &box);
    int64_t chunks = draw_chunks(b);
    open_pixels(b, g, clip);
    back_chunk(b, chunks - 1);
    for (int64_t chunk = chunks - 1; chunk-- > 0;) {
        take_chunk(b, chunk);
        take_state(&b->canvas, &b->states[chunk]);
        qn_splat_draw(&b->canvas, b->hits);
        back_chunk(b, chunk);
    }
}

/* ---- The op: phase 0 sees the splats, 1 sorts them and finds their blocks, 2 goes through the blocks, 3 adds up */

static size_t open_scene(const qn_call *c, qn_splat_scene *s) {
    const qn_attr_splat_render_back *at = c->attr;
    qn_splat_view view = QN_SPLAT_VIEW_OF(at);
    QN_SPLAT_DRAW_OF(view, at);
    view.outward = at->outward;
    if (c->workspace) qn_op_splat_look(&view, c->src[1 + QN_SPLAT_EYE]);
    return (qn_splat_open(s, &view, qn_ne(c->src[1 + QN_SPLAT_POSITIONS], 1), c->workspace, 1) + 63) / 64 * 64;
}

/* Where a part's scratch lies: states, hits, sums, and the list. */
static void open_part(const qn_splat_scene *s, char *at, back *b) {
    b->states = (state *)(void *)at;
    b->hits = (qn_splat_hits *)(void *)(b->states + chunks_of(s->n));
    b->sums = (qn_splat_slopes *)(void *)(b->hits + 1);
    b->list = (int64_t *)(void *)(b->sums + s->n);
}

static void run_blocks(const qn_call *c, const qn_cpu_step *step, const qn_splat_scene *s, char *scratch, int64_t part) {
    const qn_attr_splat_render_back *at = c->attr;
    back b = {.s = s, .scene = c->src + 1};
    open_part(s, scratch + (size_t)part * part_bytes(s->n), &b);
    memset(b.sums, 0, (size_t)s->n * sizeof *b.sums);
    int64_t blocks = s->blocks.across * s->blocks.down, end = qn_cpu_cut(blocks, step->parts[2], part + 1);
    for (int64_t block = qn_cpu_cut(blocks, step->parts[2], part); block < end; block++)
        back_block(&b, block, c->src[0], (double)at->clip);
}

static void run_sums(const qn_call *c, const qn_cpu_step *step, const qn_splat_scene *s, char *scratch, int64_t part) {
    int64_t end = qn_cpu_cut(s->n, step->parts[3], part + 1);
    for (int64_t i = qn_cpu_cut(s->n, step->parts[3], part); i < end; i++) {
        double sum[sizeof(qn_splat_slopes) / sizeof(double)] = {0};
        qn_splat_slopes all;
        for (int64_t p = 0; p < step->parts[2]; p++) {
            back b;
            open_part(s, scratch + (size_t)p * part_bytes(s->n), &b);
            double from[sizeof sum / sizeof *sum];
            memcpy(from, &b.sums[i], sizeof from);
            for (size_t k = 0; k < sizeof sum / sizeof *sum; k++) sum[k] += from[k];
        }
        memcpy(&all, sum, sizeof all);
        qn_op_splat_slopes_store(&s->view, c->src + 1, &s->seen[i], i, &all, c->dst);
    }
}

static void run(const qn_call *c, const qn_cpu_step *step, int phase, int64_t part) {
    qn_splat_scene s;
    char *scratch = (char *)c->workspace + open_scene(c, &s);
    if (phase == 0) qn_splat_see_part(&s, c->src + 1, step->parts[0], part);
    if (phase == 1) {
        qn_splat_sort(&s);
        qn_splat_bits_part(&s, 1, 0);
    }
    if (phase == 2) run_blocks(c, step, &s, scratch, part);
    if (phase == 3) run_sums(c, step, &s, scratch, part);
}

int QN_K(splat_render_back)(const qn_call *c, qn_cpu_step *step) {
    qn_splat_scene s;
    size_t bytes = open_scene(c, &s);
    if (!qn_splat_sortable(s.n)) return 0;
    int64_t blocks = s.blocks.across * s.blocks.down;
    step->run = run;
    step->name = "splats by blocks";
    step->n_phases = 4;
    step->parts[0] = qn_splat_see_parts(s.n);
    step->parts[1] = 1;
    step->parts[2] = qn_cpu_parts(blocks, 0, (double)PIXELS * (200.0 + (double)s.n));
    if (step->parts[2] > PARTS) step->parts[2] = PARTS;
    step->parts[3] = qn_cpu_parts(s.n, 0, 2048);
    step->workspace = bytes + (size_t)step->parts[2] * part_bytes(s.n);
    return 1;
}
