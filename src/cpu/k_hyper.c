/* Hyper-connections. pre and post mix streams: sums of rows, each by its own weight, with lanes along a row, in f32. comb and its gradient
 * have one token's matrix in each lane, in double, because the gradients of scale and base are sums in which most cancels. */
#include <math.h>

#include "cpu/k_lanes.h"
#include "cpu/simd/simd_wide.h"

/* ---- pre and post */

enum { OUTS = 4, MOST_STREAMS = 64 }; /* rows that are made at a time, and how many may be mixed */

/* Rows of y from the n rows at x, and from one more unless it is NULL. */
typedef struct mixing {
    const float *x[MOST_STREAMS], *more;
    float by[MOST_STREAMS][OUTS], more_by[OUTS];
    float *y[OUTS];
    int64_t n, width;
} mixing;

QN_INLINE void mix_lanes(const mixing *m, int outs, int64_t e, int some) {
    vf sum[OUTS], more = m->more ? qn_lanes_at(QN_DTYPE_F32, (const char *)m->more, e, e + some) : vf_zero();
    for (int d = 0; d < outs; d++) sum[d] = m->more ? more * vf_set1(m->more_by[d]) : more;
    for (int64_t s = 0; s < m->n; s++) {
        vf x = qn_lanes_at(QN_DTYPE_F32, (const char *)m->x[s], e, e + some);
        for (int d = 0; d < outs; d++) sum[d] = vf_fma(x, vf_set1(m->by[s][d]), sum[d]);
    }
    for (int d = 0; d < outs; d++) qn_lanes_put_at(QN_DTYPE_F32, (char *)m->y[d], e, sum[d], e + some);
}

QN_INLINE void mix(const mixing *m, int outs) {
    int64_t e = 0;
    for (; e + VF_N <= m->width; e += VF_N) mix_lanes(m, outs, e, VF_N);
    if (e < m->width) mix_lanes(m, outs, e, (int)(m->width - e));
}

static void mix_some(const mixing *m, int outs) {
    if (outs == 1) mix(m, 1);
    else if (outs == 2) mix(m, 2);
    else if (outs == 3) mix(m, 3);
    else mix(m, OUTS);
}

static float *floats_at(const qn_tensor *t, int64_t i2, int64_t i1, int64_t i0) {
    return (float *)(void *)qn_at(t, qn_off4(t, 0, i2, i1, i0));
}

static void run_pre(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    const qn_tensor *x = c->src[0], *w = c->src[1], *y = c->dst[0];
    mixing m = {.n = qn_ne(x, 1), .width = qn_ne(y, 0)};
    (void)phase;
    int64_t end = qn_cpu_cut(qn_ne(y, 1), s->parts[0], part + 1);
    for (int64_t t = qn_cpu_cut(qn_ne(y, 1), s->parts[0], part); t < end; t++) {
        for (int64_t h = 0; h < m.n; h++) {
            m.x[h] = floats_at(x, t, h, 0);
            m.by[h][0] = *floats_at(w, 0, t, h);
        }
        m.y[0] = floats_at(y, 0, t, 0);
        mix_some(&m, 1);
    }
}

static void run_post(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    const qn_tensor *x = c->src[0], *residual = c->src[1], *post = c->src[2], *comb = c->src[3], *y = c->dst[0];
    mixing m = {.n = qn_ne(y, 1), .width = qn_ne(y, 0)};
    (void)phase;
    int64_t end = qn_cpu_cut(qn_ne(y, 2), s->parts[0], part + 1);
    for (int64_t t = qn_cpu_cut(qn_ne(y, 2), s->parts[0], part); t < end; t++) {
        m.more = floats_at(x, 0, t, 0);
        for (int64_t h = 0; h < m.n; h++) m.x[h] = floats_at(residual, t, h, 0);
        for (int64_t first = 0; first < m.n; first += OUTS) {
            int outs = (int)(m.n - first < OUTS ? m.n - first : OUTS);
            for (int d = 0; d < outs; d++) {
                m.y[d] = floats_at(y, t, first + d, 0);
                m.more_by[d] = *floats_at(post, 0, t, first + d);
                for (int64_t h = 0; h < m.n; h++) m.by[h][d] = *floats_at(comb, t, h, first + d);
            }
            mix_some(&m, outs);
        }
    }
}

static int is_floats(const qn_tensor *t) { return t->dtype == QN_DTYPE_F32 && qn_lanes_rows(t); }

int QN_K(dsv4_hc_pre)(const qn_call *c, qn_cpu_step *s) {
    const qn_tensor *x = c->src[0], *y = c->dst[0];
    if (!is_floats(x) || !is_floats(y) || qn_tensor_count(y) == 0 || qn_ne(x, 1) > MOST_STREAMS) return 0;
    return qn_cpu_by_rows(s, "mixed streams", run_pre, qn_ne(y, 1), 4.0 * (double)(qn_ne(y, 0) * (qn_ne(x, 1) + 1)), 0);
}

int QN_K(dsv4_hc_post)(const qn_call *c, qn_cpu_step *s) {
    const qn_tensor *x = c->src[0], *residual = c->src[1], *y = c->dst[0];
    int64_t streams = qn_ne(y, 1);
    if (!is_floats(x) || !is_floats(residual) || !is_floats(y) || qn_tensor_count(y) == 0 || streams > MOST_STREAMS) return 0;
    return qn_cpu_by_rows(s, "mixed streams", run_post, qn_ne(y, 2), 8.0 * (double)(qn_ne(y, 0) * (streams + 1)), 0);
}

/* ---- comb: softmax of the rows plus eps, then columns, and (rows, columns) again and again, are divided by eps plus their sum. Stage 0
 * is the softmax; odd stages follow a division of the columns, even ones of the rows. */

enum { STREAMS = 4, AREA = STREAMS * STREAMS, FIRST = 2 * STREAMS, MIX_SCALE = 2, LANES = VF_N / 2, MOST_TURNS = 256 };

static double number_at(const qn_tensor *t, int64_t i2, int64_t i1, int64_t i0) {
    const char *p = qn_at(t, qn_off4(t, 0, i2, i1, i0));
    return t->dtype == QN_DTYPE_F32 ? (double)*(const float *)(const void *)p : qn_load_one((qn_dtype)t->dtype, p);
}
static void put_number(const qn_tensor *t, int64_t i2, int64_t i1, int64_t i0, double v) {
    char *p = qn_at(t, qn_off4(t, 0, i2, i1, i0));
    if (t->dtype == QN_DTYPE_F32) *(float *)(void *)p = (float)v;
    else qn_store_one((qn_dtype)t->dtype, p, v);
}

/* Numbers of the tokens [first, first + some); lanes beyond repeat the last token. */
static void load_mixes(const qn_tensor *mixes, int64_t first, int some, vd *x) {
    for (int i = 0; i < AREA; i++)
        for (int k = 0; k < LANES; k++) x[i][k] = number_at(mixes, 0, first + (k < some ? k : some - 1), FIRST + i);
}

static void softmax_rows(const qn_tensor *scale, const qn_tensor *base, vd *x) {
    double factor = number_at(scale, 0, 0, MIX_SCALE);
    for (int i = 0; i < AREA; i++) x[i] = x[i] * factor + number_at(base, 0, 0, FIRST + i);
    for (int r = 0; r < STREAMS; r++, x += STREAMS) {
        vd most = vd_set1(-INFINITY), sum = vd_zero();
        for (int i = 0; i < STREAMS; i++) most = vd_max(x[i], most);
        for (int i = 0; i < STREAMS; i++) {
            x[i] = vd_exp(x[i] - most);
            sum += x[i];
        }
        for (int i = 0; i < STREAMS; i++) x[i] /= sum;
    }
}

/* Elements of a line are `step` apart: 1 for a row, STREAMS for a column. */
QN_INLINE void normalise(const vd *x, int step, double eps, vd *out) {
    for (int line = 0; line < STREAMS; line++) {
        int at = line * (STREAMS + 1 - step);
        vd by = 1 / (eps + x[at] + x[at + step] + x[at + 2 * step] + x[at + 3 * step]);
        for (int i = 0; i < STREAMS; i++) out[at + i * step] = x[at + i * step] * by;
    }
}

static void turn(const vd *x, int stage, double eps, vd *out) {
    if (stage & 1) normalise(x, STREAMS, eps, out);
    else normalise(x, 1, eps, out);
}

static void run_comb(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    const qn_attr_dsv4_hc_comb *at = c->attr;
    const qn_tensor *y = c->dst[0];
    int64_t tokens = qn_ne(y, 2), groups = (tokens + LANES - 1) / LANES, end = qn_cpu_cut(groups, s->parts[0], part + 1);
    (void)phase;
    for (int64_t g = qn_cpu_cut(groups, s->parts[0], part); g < end; g++) {
        int64_t first = g * LANES;
        int some = (int)(tokens - first < LANES ? tokens - first : LANES);
        vd m[AREA];
        load_mixes(c->src[0], first, some, m);
        softmax_rows(c->src[1], c->src[2], m);
        for (int i = 0; i < AREA; i++) m[i] += (double)at->eps;
        for (int stage = 1; stage < 2 * at->n_iter; stage++) turn(m, stage, (double)at->eps, m);
        for (int i = 0; i < AREA; i++)
            for (int k = 0; k < some; k++) put_number(y, first + k, i / STREAMS, i % STREAMS, m[i][k]);
    }
}

int QN_K(dsv4_hc_comb)(const qn_call *c, qn_cpu_step *s) {
    const qn_attr_dsv4_hc_comb *at = c->attr;
    int64_t tokens = qn_ne(c->dst[0], 2);
    if (tokens == 0) return 0;
    return qn_cpu_by_rows(s, "matrices in lanes", run_comb, (tokens + LANES - 1) / LANES, 0,
                          LANES * (500.0 + 100.0 * (double)at->n_iter));
}

/* ---- comb, backward: phase 0 makes the gradients of mixes and sums for each part, 1 adds these up */

/* Gradient of y = x / (eps + sum x) on every line, in place: (g - <g, y>) / (eps + sum x). */
QN_INLINE void normalise_back(const vd *x, const vd *y, int step, double eps, vd *g) {
    for (int line = 0; line < STREAMS; line++) {
        int at = line * (STREAMS + 1 - step);
        vd sum = vd_set1(eps), dot = vd_zero();
        for (int i = 0; i < STREAMS; i++) {
            sum += x[at + i * step];
            dot += g[at + i * step] * y[at + i * step];
        }
        vd by = 1 / sum;
        for (int i = 0; i < STREAMS; i++) g[at + i * step] = (g[at + i * step] - dot) * by;
    }
}

/* From the gradient of the result to that of the softmax's arguments; x holds the mixes. */
static void comb_back(const qn_call *c, const vd *x, vd *stages, vd *g) {
    const qn_attr_dsv4_hc_comb_back *at = c->attr;
    double eps = (double)at->eps;
    vd soft[AREA];
    int last = 2 * at->n_iter - 1;
    memcpy(soft, x, sizeof soft);
    softmax_rows(c->src[2], c->src[3], soft);
    for (int i = 0; i < AREA; i++) stages[i] = soft[i] + eps;
    for (int stage = 1; stage <= last; stage++) turn(stages + (stage - 1) * AREA, stage, eps, stages + stage * AREA);
    for (int stage = last; stage > 0; stage--) {
        const vd *from = stages + (stage - 1) * AREA;
        if (stage & 1) normalise_back(from, from + AREA, STREAMS, eps, g);
        else normalise_back(from, from + AREA, 1, eps, g);
    }
    for (int r = 0; r < AREA; r += STREAMS) {
        vd dot = vd_zero();
        for (int i = r; i < r + STREAMS; i++) dot += g[i] * soft[i];
        for (int i = r; i < r + STREAMS; i++) g[i] = soft[i] * (g[i] - dot);
    }
}

/* What a part adds up: the gradient of base, and behind it that of the scale. */
enum { SUMS = AREA + 1 };

static void back_group(const qn_call *c, int64_t first, int some, vd *stages, vd *sums) {
    const qn_tensor *dmixes = c->dst[0];
    double factor = number_at(c->src[2], 0, 0, MIX_SCALE);
    vd x[AREA], g[AREA];
    load_mixes(c->src[1], first, some, x);
    for (int i = 0; i < AREA; i++) /* lanes of no token have no gradient */
        for (int k = 0; k < LANES; k++) g[i][k] = k < some ? number_at(c->src[0], first + k, i / STREAMS, i % STREAMS) : 0;
    comb_back(c, x, stages, g);
    for (int i = 0; i < AREA; i++) {
        for (int k = 0; k < some; k++) {
            put_number(dmixes, 0, first + k, FIRST + i, factor * g[i][k]);
            if (i < FIRST) put_number(dmixes, 0, first + k, i, 0);
        }
        for (int k = some; k < LANES; k++) g[i][k] = x[i][k] = 0;
        sums[AREA] += x[i] * g[i];
        sums[i] += g[i];
    }
}

static void back_sums(const qn_call *c, const vd *sums, int64_t parts) {
    double all[SUMS] = {0};
    for (int64_t p = 0; p < parts; p++)
        for (int i = 0; i < SUMS; i++) all[i] += vd_sum(sums[p * SUMS + i]);
    qn_fill(c->dst[1], 0);
    put_number(c->dst[1], 0, 0, MIX_SCALE, all[AREA]);
    for (int i = 0; i < FIRST; i++) put_number(c->dst[2], 0, 0, i, 0);
    for (int i = 0; i < AREA; i++) put_number(c->dst[2], 0, 0, FIRST + i, all[i]);
}

static void run_comb_back(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    const qn_attr_dsv4_hc_comb_back *at = c->attr;
    int64_t tokens = qn_ne(c->src[1], 1), groups = (tokens + LANES - 1) / LANES, parts = s->parts[0];
    vd *sums = c->workspace, *stages = sums + parts * SUMS + part * 2 * at->n_iter * AREA;
    if (phase == 1) {
        back_sums(c, sums, parts);
        return;
    }
    sums += part * SUMS;
    for (int i = 0; i < SUMS; i++) sums[i] = vd_zero();
    int64_t end = qn_cpu_cut(groups, parts, part + 1);
    for (int64_t g = qn_cpu_cut(groups, parts, part); g < end; g++)
        back_group(c, g * LANES, (int)(tokens - g * LANES < LANES ? tokens - g * LANES : LANES), stages, sums);
}

int QN_K(dsv4_hc_comb_back)(const qn_call *c, qn_cpu_step *s) {
    const qn_attr_dsv4_hc_comb_back *at = c->attr;
    int64_t tokens = qn_ne(c->src[1], 1);
    if (tokens == 0 || at->n_iter > MOST_TURNS) return 0; /* every stage of every turn is kept for each part */
    qn_cpu_by_rows(s, "matrices in lanes", run_comb_back, (tokens + LANES - 1) / LANES, 0,
                   LANES * (1000.0 + 300.0 * (double)at->n_iter));
    s->n_phases = 2;
    s->parts[1] = 1;
    s->workspace = (size_t)s->parts[0] * (size_t)(SUMS + 2 * at->n_iter * AREA) * sizeof(vd);
    return 1;
}
