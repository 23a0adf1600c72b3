/* Gradients of state-space layers in f32: ssm_conv_back and selective_scan_back. Lanes are channels. What is summed over
 * channels is summed by each part for its own and then over the parts, of which there are as many as the shapes say. */
#include "cpu/k_lanes.h"
#include "cpu/simd/simd_math.h"
#include "cpu/simd/simd_turn.h"

static int is_plain(const qn_tensor *t) { return !t || (t->dtype == QN_DTYPE_F32 && qn_cpu_is_dense(t)); }
static float *floats(const qn_tensor *t) { return t ? (float *)(void *)qn_at(t, 0) : NULL; }
static int some_of(int64_t n, int64_t first) { return (int)(n - first < VF_N ? n - first : VF_N); }

/* ---- dx[s, c, i] = sum over j of g[s, i - j, c] w[c, j], dw[c, j] = sum over s and t of g[s, t, c] x[s, c, t + j] */

enum { TAPS = 32, RUN = 1024, PARTS = 16 };

typedef struct conv {
    const float *g, *x, *w;
    float *dx, *dw;
    int64_t seqs, channels, steps, taps, samples, line; /* line: of g turned, with room for the taps before and behind it */
} conv;

static conv conv_of(const qn_call *c) {
    const qn_tensor *x = c->src[1];
    conv v = {.g = floats(c->src[0]), .x = floats(x), .w = floats(c->src[2]), .seqs = qn_ne(x, 2)};
    v.dx = floats(c->dst[0]);
    v.dw = floats(c->dst[1]);
    v.channels = qn_ne(x, 1);
    v.samples = qn_ne(x, 0);
    v.taps = qn_ne(c->src[2], 0);
    v.steps = v.samples - v.taps + 1;
    v.line = v.samples + v.taps - 1 + VF_N;
    return v;
}

/* The gradient of some channels of a sequence as lines of time, zeros around them. */
static void turn_gradient(const conv *v, int64_t seq, int64_t channel, int some, float *lines) {
    const float *g = v->g + seq * v->steps * v->channels + channel;
    memset(lines, 0, (size_t)(VF_N * v->line) * sizeof *lines);
    for (int64_t t = 0; t < v->steps; t += VF_N) {
        vf r[VF_N];
        int many = some_of(v->steps, t);
        for (int i = 0; i < VF_N; i++) r[i] = i < many ? vf_loadn(g + (t + i) * v->channels, some) : vf_zero();
        vf_turn(r);
        for (int i = 0; i < some; i++) vf_storen(lines + i * v->line + v->taps - 1 + t, r[i], many);
    }
}

static void signal_gradient(const conv *v, int64_t channel, const float *line, float *dx) {
    const float *w = v->w + channel * v->taps;
    for (int64_t i = 0; i < v->samples; i += VF_N) {
        vf sum = vf_zero();
        for (int64_t j = 0; j < v->taps; j++) sum = vf_fma(vf_load(line + v->taps - 1 + i - j), vf_set1(w[j]), sum);
        vf_storen(dx + i, sum, some_of(v->samples, i));
    }
}

static double product(const float *g, const float *x, int64_t n) {
    double all = 0;
    for (int64_t first = 0; first < n; first += RUN) {
        vf sum = vf_zero();
        for (int64_t i = first; i < n && i < first + RUN; i += VF_N) {
            int some = some_of(n, i);
            sum = vf_fma(vf_loadn(g + i, some), vf_loadn(x + i, some), sum);
        }
        all += (double)vf_sum(sum);
    }
    return all;
}

static void run_conv_back(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    conv v = conv_of(c);
    int64_t wide = (v.channels + VF_N - 1) / VF_N, u = qn_cpu_cut(wide, s->parts[0], part);
    float *lines = (float *)c->workspace + part * VF_N * v.line;
    (void)phase;
    for (int64_t end = qn_cpu_cut(wide, s->parts[0], part + 1); u < end; u++) {
        double dw[VF_N][TAPS] = {{0}};
        int64_t channel = u * VF_N;
        int some = some_of(v.channels, channel);
        for (int64_t seq = 0; seq < v.seqs; seq++) {
            turn_gradient(&v, seq, channel, some, lines);
            for (int i = 0; i < some; i++) {
                int64_t row = (seq * v.channels + channel + i) * v.samples;
                const float *line = lines + i * v.line;
                signal_gradient(&v, channel + i, line, v.dx + row);
                for (int64_t j = 0; j < v.taps; j++) dw[i][j] += product(line + v.taps - 1, v.x + row + j, v.steps);
            }
        }
        for (int i = 0; i < some; i++)
            for (int64_t j = 0; j < v.taps; j++) v.dw[(channel + i) * v.taps + j] = (float)dw[i][j];
    }
}

int QN_K(ssm_conv_back)(const qn_call *c, qn_cpu_step *s) {
    for (int i = 0; i < 3; i++)
        if (!is_plain(c->src[i])) return 0;
    if (!c->dst[0] || !c->dst[1] || !is_plain(c->dst[0]) || !is_plain(c->dst[1]) || qn_tensor_count(c->src[0]) == 0) return 0;
    conv v = conv_of(c);
    if (v.taps > TAPS) return 0;
    qn_cpu_by_rows(s, "ssm_conv_back lines", run_conv_back, (v.channels + VF_N - 1) / VF_N, 0,
                   (double)(v.seqs * v.samples * v.taps) * VF_N * 4);
    if (s->parts[0] > PARTS) s->parts[0] = PARTS;
    s->workspace = (size_t)(s->parts[0] * VF_N * v.line) * sizeof(float);
    return 1;
}

/* ---- Of h = e^(delta a) h' + delta x b, y = sum of h c */

enum { STATES = 256 };

typedef struct scan {
    int64_t seqs, steps, count, n;
    const float *g, *g_last, *x, *delta, *a, *b, *c, *h0;
    float *dx, *ddelta, *da, *db, *dc, *dh0;
} scan;

static scan scan_of(const qn_call *c) {
    const qn_tensor *x = c->src[2];
    scan z = {.seqs = qn_ne(x, 2), .steps = qn_ne(x, 1), .count = qn_ne(x, 0), .n = qn_ne(c->src[4], 0)};
    z.g = floats(c->src[0]);
    z.g_last = floats(c->src[1]);
    z.x = floats(x);
    z.delta = floats(c->src[3]);
    z.a = floats(c->src[4]);
    z.b = floats(c->src[5]);
    z.c = floats(c->src[6]);
    z.h0 = c->n_src > 7 ? floats(c->src[7]) : NULL;
    z.dx = floats(c->dst[0]);
    z.ddelta = floats(c->dst[1]);
    z.da = floats(c->dst[2]);
    z.db = floats(c->dst[3]);
    z.dc = floats(c->dst[4]);
    z.dh0 = floats(c->dst[5]);
    return z;
}

/* Scratch of a part: states of all steps; the sums for b and c of one sequence in lanes; those of all sequences. */
static int64_t state_floats(const scan *z) { return (z->steps + 1) * z->n * VF_N; }
static int64_t sum_floats(const scan *z) { return z->steps * z->n * VF_N; }
static int64_t all_floats(const scan *z) { return z->seqs * z->steps * z->n; }
static int64_t part_floats(const scan *z) { return state_floats(z) + 2 * sum_floats(z) + 2 * all_floats(z); }

/* Some channels' rows of n as n vectors, and back. */
static void rows_to_lanes(const float *rows, int64_t n, int some, float *to) {
    for (int64_t i = 0; i < n; i++)
        for (int k = 0; k < VF_N; k++) to[i * VF_N + k] = rows && k < some ? rows[k * n + i] : 0;
}
static void lanes_to_rows(const float *from, int64_t n, int some, float *rows) {
    for (int64_t i = 0; i < n; i++)
        for (int k = 0; k < some; k++) rows[k * n + i] = from[i * VF_N + k];
}

static void run_states(const scan *z, int64_t seq, int64_t channel, int some, const float *a, float *h) {
    rows_to_lanes(z->h0 ? z->h0 + (seq * z->count + channel) * z->n : NULL, z->n, some, h);
    for (int64_t t = seq * z->steps; t < (seq + 1) * z->steps; t++, h += z->n * VF_N) {
        vf delta = vf_loadn(z->delta + t * z->count + channel, some), x = delta * vf_loadn(z->x + t * z->count + channel, some);
        for (int64_t i = 0; i < z->n; i++) {
            vf decay = vf_exp(delta * vf_load(a + i * VF_N));
            vf_store(h + (z->n + i) * VF_N, vf_fma(decay, vf_load(h + i * VF_N), x * vf_set1(z->b[t * z->n + i])));
        }
    }
}

/* grad is that of the state behind a step, then of the one before it; da goes on from sequence to sequence. */
static void reverse_step(const scan *z, int64_t t, int64_t channel, int some, const float *a, const float *h, float *grad,
                         float *da, float *db, float *dc) {
    int64_t at = t * z->count + channel;
    const float *b = z->b + t * z->n, *c = z->c + t * z->n;
    vf delta = vf_loadn(z->delta + at, some), x = vf_loadn(z->x + at, some), dx = vf_zero(), ddelta = dx;
    vf gy = z->g ? vf_loadn(z->g + at, some) : vf_zero(), by = delta * x;
    for (int64_t i = 0; i < z->n; i++) {
        vf rate = vf_load(a + i * VF_N), decay = vf_exp(delta * rate), bi = vf_set1(b[i]);
        vf g = vf_fma(gy, vf_set1(c[i]), vf_load(grad + i * VF_N)), kept = decay * vf_load(h + i * VF_N), through = g * kept;
        vf_store(dc + i * VF_N, vf_fma(gy, vf_load(h + (z->n + i) * VF_N), vf_load(dc + i * VF_N)));
        vf_store(db + i * VF_N, vf_fma(g, by, vf_load(db + i * VF_N)));
        vf_store(da + i * VF_N, vf_fma(delta, through, vf_load(da + i * VF_N)));
        dx = vf_fma(g, bi, dx);
        ddelta = vf_fma(rate, through, ddelta);
        vf_store(grad + i * VF_N, g * decay);
    }
    vf_storen(z->dx + at, dx * delta, some);
    vf_storen(z->ddelta + at, vf_fma(x, dx, ddelta), some);
}

static void reverse_channels(const scan *z, int64_t seq, int64_t channel, int some, float *da, float *h, float *db, float *dc) {
    float a[STATES * VF_N], grad[STATES * VF_N];
    rows_to_lanes(z->a + channel * z->n, z->n, some, a);
    rows_to_lanes(z->g_last ? z->g_last + (seq * z->count + channel) * z->n : NULL, z->n, some, grad);
    run_states(z, seq, channel, some, a, h);
    for (int64_t t = z->steps; t-- > 0;) {
        int64_t at = t * z->n * VF_N;
        reverse_step(z, seq * z->steps + t, channel, some, a, h + at, grad, da, db + at, dc + at);
    }
    lanes_to_rows(grad, z->n, some, z->dh0 + (seq * z->count + channel) * z->n);
}

/* Phase 0: channels; da of a group of them is kept where it goes from sequence to sequence. Phase 1: sums over the parts. */
static void run_scan_back(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    scan z = scan_of(c);
    float *base = c->workspace;
    int64_t each = part_floats(&z), cells = all_floats(&z);
    if (phase == 1) {
        for (int64_t i = qn_cpu_cut(cells, s->parts[1], part); i < qn_cpu_cut(cells, s->parts[1], part + 1); i++) {
            double b = 0, d = 0;
            for (int64_t p = 0; p < s->parts[0]; p++) {
                const float *sums = base + (p + 1) * each - 2 * cells;
                b += (double)sums[i];
                d += (double)sums[cells + i];
            }
            z.db[i] = (float)b;
            z.dc[i] = (float)d;
        }
        return;
    }
    float *h = base + part * each, *db = h + state_floats(&z), *dc = db + sum_floats(&z), *sums = dc + sum_floats(&z);
    int64_t wide = (z.count + VF_N - 1) / VF_N, first = qn_cpu_cut(wide, s->parts[0], part),
            end = qn_cpu_cut(wide, s->parts[0], part + 1);
    for (int64_t seq = 0; seq < z.seqs; seq++) {
        memset(db, 0, (size_t)(2 * sum_floats(&z)) * sizeof *db);
        for (int64_t u = first; u < end; u++) {
            float da[STATES * VF_N];
            int64_t channel = u * VF_N;
            int some = some_of(z.count, channel);
            rows_to_lanes(seq ? z.da + channel * z.n : NULL, z.n, some, da);
            reverse_channels(&z, seq, channel, some, da, h, db, dc);
            lanes_to_rows(da, z.n, some, z.da + channel * z.n);
        }
        for (int64_t i = 0; i < z.steps * z.n; i++) {
            sums[seq * z.steps * z.n + i] = vf_sum(vf_load(db + i * VF_N));
            sums[cells + seq * z.steps * z.n + i] = vf_sum(vf_load(dc + i * VF_N));
        }
    }
}

int QN_K(selective_scan_back)(const qn_call *c, qn_cpu_step *s) {
    for (int i = 0; i < c->n_src; i++)
        if (!is_plain(c->src[i])) return 0;
    for (int i = 0; i < 6; i++)
        if (!c->dst[i] || !is_plain(c->dst[i])) return 0;
    scan z = scan_of(c);
    if (z.n < 1 || z.n > STATES || qn_tensor_count(c->src[2]) == 0) return 0;
    qn_cpu_by_rows(s, "selective_scan_back channels", run_scan_back, (z.count + VF_N - 1) / VF_N, 0,
                   (double)(z.seqs * z.steps * z.n) * VF_N * 50);
    if (s->parts[0] > PARTS) s->parts[0] = PARTS;
    s->n_phases = 2;
    s->parts[1] = qn_cpu_parts(all_floats(&z), 8.0 * (double)s->parts[0], 0);
    s->workspace = (size_t)(s->parts[0] * part_floats(&z)) * sizeof(float);
    return 1;
}
