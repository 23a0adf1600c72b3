/* State-space layers in f32: ssm_conv and ssm_conv_silu, ssm_scan and selective_scan.
 *
 * A scan whose channels have one row of states each runs with channels along the lanes: nothing is summed across lanes, and every e^x
 * is a vector of them. Where a head has many channels that decay alike, lanes lie along its states. */
#include "cpu/k_norm.h"
#include "cpu/simd/simd_act.h"
#include "cpu/simd/simd_turn.h"

static int is_plain(const qn_tensor *t) { return !t || (t->dtype == QN_DTYPE_F32 && qn_cpu_is_dense(t)); }
static const float *floats(const qn_tensor *t) { return t ? (const float *)(const void *)qn_at(t, 0) : NULL; }
static float *floats_of(const qn_tensor *t) { return t ? (float *)(void *)qn_at(t, 0) : NULL; }

static int all_plain(const qn_call *c, int n) {
    for (int i = 0; i < n && i < c->n_src; i++)
        if (!is_plain(c->src[i])) return 0;
    for (int i = 0; i < c->n_dst; i++)
        if (!is_plain(c->dst[i])) return 0;
    return qn_tensor_count(c->dst[0]) > 0;
}

/* ---- Short convolutions: y[s, t, c] = sum over j of x[s, c, t + j] w[c, j] */

enum { TAPS = 32 };

typedef struct conv {
    const float *state, *x, *w; /* state: what lies before x, or NULL */
    float *y, *joined;
    int64_t seqs, channels, steps, taps, before, samples; /* before, samples: of a row of state and of x */
} conv;

static conv conv_of(const qn_call *c) {
    int silu = c->op == QN_OP_ssm_conv_silu;
    const qn_tensor *x = c->src[silu ? 1 : 0], *w = c->src[silu ? 2 : 1], *y = c->dst[0];
    conv v = {.x = floats(x), .w = floats(w), .y = floats_of(y), .seqs = qn_ne(y, 2), .channels = qn_ne(y, 0)};
    v.steps = qn_ne(y, 1);
    v.taps = qn_ne(w, 0);
    v.samples = qn_ne(x, 0);
    if (!silu) return v;
    v.state = floats(c->src[0]);
    v.before = qn_ne(c->src[0], 0);
    v.joined = c->n_dst > 1 ? floats_of(c->dst[1]) : NULL;
    return v;
}

/* Samples t .. t + n of a row, of which the first are those before x. */
static void join(const conv *v, int64_t row, int64_t t, int64_t n, float *to) {
    int64_t early = t < v->before ? (v->before - t < n ? v->before - t : n) : 0;
    if (early) memcpy(to, v->state + row * v->before + t, (size_t)early * sizeof *to);
    if (n > early) memcpy(to + early, v->x + row * v->samples + t + early - v->before, (size_t)(n - early) * sizeof *to);
}

/* A square of up to VF_N channels by as many steps. */
static void conv_square(const conv *v, int64_t seq, int64_t channel, int some, int64_t t, int steps, int silu) {
    vf r[VF_N];
    for (int i = 0; i < VF_N; i++) {
        float seam[VF_N + TAPS];
        int64_t row = seq * v->channels + channel + i;
        r[i] = vf_zero();
        if (i >= some) continue;
        const float *x = t < v->before ? seam : v->x + row * v->samples + t - v->before;
        if (t < v->before) join(v, row, t, steps + v->taps - 1, seam);
        const float *w = v->w + (channel + i) * v->taps;
        if (steps == VF_N)
            for (int64_t j = 0; j < v->taps; j++) r[i] = vf_fma(vf_load(x + j), vf_set1(w[j]), r[i]);
        else
            for (int64_t j = 0; j < v->taps; j++) r[i] = vf_fma(vf_loadn(x + j, steps), vf_set1(w[j]), r[i]);
        if (silu) r[i] = f_silu(r[i]);
    }
    vf_turn(r);
    float *to = v->y + (seq * v->steps + t) * v->channels + channel;
    for (int i = 0; i < steps; i++, to += v->channels) vf_storen(to, r[i], some);
}

enum { WIDE = 4 * VF_N }; /* channels, and steps, whose lines are read and written together */

/* Channels [channel, end) of a sequence at steps from t on. */
static void conv_block(const conv *v, int64_t seq, int64_t channel, int64_t end, int64_t t) {
    int64_t last = v->steps < t + WIDE ? v->steps : t + WIDE;
    for (; channel < end; channel += VF_N) {
        int some = (int)(end - channel < VF_N ? end - channel : VF_N);
        for (int64_t k = t; k < last; k += VF_N)
            conv_square(v, seq, channel, some, k, (int)(last - k < VF_N ? last - k : VF_N), v->state != NULL);
    }
}

static void run_conv(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    conv v = conv_of(c);
    int64_t wide = (v.channels + WIDE - 1) / WIDE, units = v.seqs * wide, u = qn_cpu_cut(units, s->parts[0], part);
    (void)phase;
    for (int64_t end = qn_cpu_cut(units, s->parts[0], part + 1); u < end; u++) {
        int64_t seq = u / wide, channel = u % wide * WIDE, last = channel + WIDE < v.channels ? channel + WIDE : v.channels;
        for (int64_t t = 0; t < v.steps; t += WIDE) conv_block(&v, seq, channel, last, t);
        for (; v.joined && channel < last; channel++) {
            int64_t row = seq * v.channels + channel, n = v.before + v.samples;
            join(&v, row, 0, n, v.joined + row * n);
        }
    }
}

static int prepare_conv(const qn_call *c, qn_cpu_step *s, int n_src, const char *name) {
    if (!all_plain(c, n_src)) return 0;
    conv v = conv_of(c);
    if (v.taps > TAPS) return 0;
    return qn_cpu_by_rows(s, name, run_conv, v.seqs * ((v.channels + WIDE - 1) / WIDE), (double)v.steps * WIDE * 8,
                          (double)(v.steps * v.taps) * WIDE * 4);
}

int QN_K(ssm_conv)(const qn_call *c, qn_cpu_step *s) { return prepare_conv(c, s, 2, "ssm_conv squares"); }
int QN_K(ssm_conv_silu)(const qn_call *c, qn_cpu_step *s) {
    return c->src[0] && qn_tensor_count(c->src[1]) > 0 ? prepare_conv(c, s, 3, "ssm_conv_silu squares") : 0;
}

/* ---- Channels along the lanes: h = e^(delta a) h + delta x b, y = sum of h c over N states */

enum { STATES = 256 };

typedef struct channels {
    int64_t seqs, steps, count, n;      /* n: states of a channel */
    const float *x, *delta, *a, *b, *c; /* [seqs, steps, count] twice, [count, n], [seqs, steps, n] twice */
    const float *h0;                    /* NULL: zeros */
    const qn_tensor *ids;               /* which of h0 a sequence begins with; NULL: its own */
    float *y, *last;
    int softplus; /* delta is to be made positive first */
} channels;

/* Some channels' rows of n, side by side, become n vectors of them, or the other way round. */
static void rows_to_lanes(const float *rows, int64_t n, int some, vf *to) {
    for (int64_t i = 0; i < n; i++) {
        float t[VF_N] = {0};
        for (int k = 0; k < some; k++) t[k] = rows[k * n + i];
        to[i] = vf_load(t);
    }
}
static void lanes_to_rows(const vf *from, int64_t n, int some, float *rows) {
    for (int64_t i = 0; i < n; i++) {
        float t[VF_N];
        vf_store(t, from[i]);
        for (int k = 0; k < some; k++) rows[k * n + i] = t[k];
    }
}

static void scan_lanes(const channels *z, int64_t seq, int64_t channel, int some) {
    vf a[STATES], h[STATES];
    int64_t from = z->ids ? qn_index4(z->ids, 0, 0, 0, seq) : seq;
    rows_to_lanes(z->a + channel * z->n, z->n, some, a);
    if (z->h0) rows_to_lanes(z->h0 + (from * z->count + channel) * z->n, z->n, some, h);
    for (int64_t i = 0; !z->h0 && i < z->n; i++) h[i] = vf_zero();
    for (int64_t t = seq * z->steps; t < (seq + 1) * z->steps; t++) {
        const float *b = z->b + t * z->n, *c = z->c + t * z->n;
        vf delta = vf_loadn(z->delta + t * z->count + channel, some), x = vf_loadn(z->x + t * z->count + channel, some);
        vf y0 = vf_zero(), y1 = y0;
        if (z->softplus) delta = f_softplus(delta);
        x *= delta;
        int64_t i = 0;
        for (; i + 2 <= z->n; i += 2) {
            h[i] = vf_fma(vf_exp(delta * a[i]), h[i], x * vf_set1(b[i]));
            h[i + 1] = vf_fma(vf_exp(delta * a[i + 1]), h[i + 1], x * vf_set1(b[i + 1]));
            y0 = vf_fma(h[i], vf_set1(c[i]), y0);
            y1 = vf_fma(h[i + 1], vf_set1(c[i + 1]), y1);
        }
        if (i < z->n) {
            h[i] = vf_fma(vf_exp(delta * a[i]), h[i], x * vf_set1(b[i]));
            y0 = vf_fma(h[i], vf_set1(c[i]), y0);
        }
        vf_storen(z->y + t * z->count + channel, y0 + y1, some);
    }
    lanes_to_rows(h, z->n, some, z->last + (seq * z->count + channel) * z->n);
}

static void run_lanes(const channels *z, const qn_cpu_step *s, int64_t part) {
    int64_t wide = (z->count + VF_N - 1) / VF_N, units = z->seqs * wide, u = qn_cpu_cut(units, s->parts[0], part);
    for (int64_t end = qn_cpu_cut(units, s->parts[0], part + 1); u < end; u++) {
        int64_t channel = u % wide * VF_N;
        scan_lanes(z, u / wide, channel, (int)(z->count - channel < VF_N ? z->count - channel : VF_N));
    }
}

static int prepare_lanes(const channels *z, qn_cpu_step *s, const char *name, qn_cpu_run_fn run) {
    if (z->n < 1 || z->n > STATES || z->steps < 1) return 0;
    return qn_cpu_by_rows(s, name, run, z->seqs * ((z->count + VF_N - 1) / VF_N), 0, (double)(z->steps * z->n) * VF_N * 20);
}

static channels selective_of(const qn_call *c) {
    const qn_tensor *x = c->src[0], *state = c->n_src > 5 ? c->src[5] : NULL;
    return (channels){qn_ne(x, 2),
                      qn_ne(x, 1),
                      qn_ne(x, 0),
                      qn_ne(c->src[2], 0),
                      floats(x),
                      floats(c->src[1]),
                      floats(c->src[2]),
                      floats(c->src[3]),
                      floats(c->src[4]),
                      floats(state),
                      NULL,
                      floats_of(c->dst[0]),
                      floats_of(c->dst[1]),
                      0};
}

static void run_selective(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    channels z = selective_of(c);
    (void)phase;
    run_lanes(&z, s, part);
}

int QN_K(selective_scan)(const qn_call *c, qn_cpu_step *s) {
    if (!all_plain(c, 6)) return 0;
    channels z = selective_of(c);
    return prepare_lanes(&z, s, "selective_scan channels", run_selective);
}

/* ---- ssm_scan: results, then snapshots of the states, the newest first */

typedef struct scan {
    int64_t seqs, steps, heads, width, n, groups, keep;
    const float *h0, *x, *dt, *a, *b, *c;
    const qn_tensor *ids;
    float *y, *states;
} scan;

static scan scan_of(const qn_call *c) {
    const qn_tensor *h0 = c->src[0], *x = c->src[1], *b = c->src[4];
    scan z = {.seqs = qn_ne(x, 3), .steps = qn_ne(x, 2), .heads = qn_ne(h0, 2), .width = qn_ne(h0, 1), .n = qn_ne(h0, 0)};
    z.groups = qn_ne(b, 1);
    z.keep = ((const qn_attr_ssm_scan *)c->attr)->k;
    z.h0 = floats(h0);
    z.x = floats(x);
    z.dt = floats(c->src[2]);
    z.a = floats(c->src[3]);
    z.b = floats(b);
    z.c = floats(c->src[5]);
    z.ids = c->src[6];
    z.y = floats_of(c->dst[0]);
    z.states = z.y ? z.y + z.seqs * z.steps * z.heads * z.width : NULL; /* nothing lies anywhere yet when a plan is made */
    return z;
}

/* One row of states for each head, and one b and c for all heads. */
static channels channels_of(const scan *z) {
    return (channels){z->seqs, z->steps, z->heads, z->n, z->x, z->dt, z->a, z->b, z->c, z->h0, z->ids, z->y, z->states, 1};
}

static void run_channels(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    scan z = scan_of(c);
    channels l = channels_of(&z);
    (void)phase;
    run_lanes(&l, s, part);
}

/* A row of states; returns what comes out of it. */
QN_INLINE float scan_row(const scan *z, vf decay, vf x, const float *b, const float *c, float *h) {
    vf sum = vf_zero();
    for (int64_t i = 0; i < z->n; i += VF_N) {
        vf next = vf_fma(decay, qn_lanes_at(QN_DTYPE_F32, (const char *)h, i, z->n),
                         x * qn_lanes_at(QN_DTYPE_F32, (const char *)b, i, z->n));
        sum = vf_fma(next, qn_lanes_at(QN_DTYPE_F32, (const char *)c, i, z->n), sum);
        qn_lanes_put_at(QN_DTYPE_F32, (char *)h, i, next, z->n);
    }
    return vf_sum(sum);
}

static void scan_head(const scan *z, int64_t seq, int64_t head) {
    const int64_t area = z->width * z->n, all = z->seqs * z->heads * area, group = head / (z->heads / z->groups);
    float *h = z->states + (seq * z->heads + head) * area; /* the newest, which is worked on where it will be */
    memcpy(h, z->h0 + (qn_index4(z->ids, 0, 0, 0, seq) * z->heads + head) * area, (size_t)area * sizeof *h);
    for (int64_t t = 0; t < z->steps; t++) {
        int64_t at = seq * z->steps + t, left = z->steps - 1 - t;
        const float *b = z->b + (at * z->groups + group) * z->n, *c = z->c + (at * z->groups + group) * z->n;
        float dt = z->dt[at * z->heads + head];
        double step = dt > 20 ? (double)dt : log1p(exp((double)dt));
        vf decay = vf_set1((float)exp(step * (double)z->a[head]));
        for (int64_t p = 0; p < z->width; p++) {
            int64_t i = (at * z->heads + head) * z->width + p;
            z->y[i] = scan_row(z, decay, vf_set1((float)step * z->x[i]), b, c, h + p * z->n);
        }
        if (left > 0 && left < z->keep) memcpy(h + left * all, h, (size_t)area * sizeof *h);
    }
    for (int64_t slot = z->steps; slot < z->keep; slot++) memset(h + slot * all, 0, (size_t)area * sizeof *h);
}

static void run_scan(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    scan z = scan_of(c);
    int64_t units = z.seqs * z.heads, u = qn_cpu_cut(units, s->parts[0], part);
    (void)phase;
    for (int64_t end = qn_cpu_cut(units, s->parts[0], part + 1); u < end; u++) scan_head(&z, u / z.heads, u % z.heads);
}

int QN_K(ssm_scan)(const qn_call *c, qn_cpu_step *s) {
    if (!all_plain(c, 6)) return 0;
    scan z = scan_of(c);
    int64_t rates = qn_ne(c->src[3], 0);
    if (z.n < 1 || z.steps < 1 || z.seqs < 1 || z.heads < 1) return 0;
    if (z.width == 1 && rates == z.n && z.groups == 1 && z.keep == 1) {
        channels l = channels_of(&z);
        return prepare_lanes(&l, s, "ssm_scan channels", run_channels);
    }
    if (rates != 1) return 0;
    return qn_cpu_by_rows(s, "ssm_scan heads", run_scan, z.seqs * z.heads, 0, (double)(z.steps * z.width * z.n) * 6);
}
