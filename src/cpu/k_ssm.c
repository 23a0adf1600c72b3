/* State-space layers in f32: ssm_conv and ssm_conv_silu, ssm_scan and selective_scan.
 *
 * A scan whose channels have one row of states each runs with channels along the lanes: nothing is summed across lanes, and every e^x
 * is a vector of them. Where a head has many channels that decay alike, they are rows of a matrix state. */
#include "cpu/k_past.h"
#include "cpu/k_state_turned.h"
#include "cpu/simd/simd_act.h"

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

/* Whole rows of one sample each, side by side; calls for a few numbers would cost more than all the rest of such a step. */
QN_INLINE void join_ones(const float *state, const float *x, int64_t rows, int64_t before, float *to) {
    for (int64_t r = 0; r < rows; r++, state += before, to += before + 1) {
        for (int64_t j = 0; j < before; j++) to[j] = state[j];
        to[before] = x[r];
    }
}
static void join_rows(const conv *v, int64_t row, int64_t rows, float *to) {
    const float *state = v->state + row * v->before;
    int64_t n = v->before + v->samples;
    if (v->samples == 1 && v->before == 3) join_ones(state, v->x + row, rows, 3, to);
    else if (v->samples == 1) join_ones(state, v->x + row, rows, v->before, to);
    else
        for (int64_t r = 0; r < rows; r++) join(v, row + r, 0, n, to + r * n);
}

enum { WIDE = 4 * VF_N }; /* channels, and steps, whose lines are read and written together */

/* A square of up to VF_N channels by as many steps. What the block behind reads is asked for, and where the next square but one writes: no
 * machine follows so many rows by itself. */
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
        __builtin_prefetch(t + WIDE < v->steps ? x + WIDE : x - t + WIDE * v->samples, 0, 3);
        if (steps == VF_N)
            for (int64_t j = 0; j < v->taps; j++) r[i] = vf_fma(vf_load(x + j), vf_set1(w[j]), r[i]);
        else
            for (int64_t j = 0; j < v->taps; j++) r[i] = vf_fma(vf_loadn(x + j, steps), vf_set1(w[j]), r[i]);
        if (silu) r[i] = f_silu(r[i]);
    }
    vf_turn(r);
    float *to = v->y + (seq * v->steps + t) * v->channels + channel;
    for (int i = 0; i < VF_N; i++) qn_far_ask((const char *)(to + 2 * VF_N + i * v->channels));
    for (int i = 0; i < steps; i++, to += v->channels) vf_storen(to, r[i], some);
}

/* One step of VF_N channels, whose taps are a power of two: all of them lie side by side, and neighbours are added until one sum is left
 * of each channel. */
static void conv_one(const conv *v, int64_t seq, int64_t channel, int silu) {
    float seam[VF_N * TAPS];
    vf r[TAPS];
    const int64_t row = seq * v->channels + channel, taps = v->taps;
    const float *x = v->before ? seam : v->x + row * taps, *w = v->w + channel * taps;
    if (v->before) join_rows(v, row, VF_N, seam);
    for (int64_t j = 0; j < taps; j++) r[j] = vf_load(x + j * VF_N) * vf_load(w + j * VF_N);
    for (int64_t n = taps / 2; n > 0; n /= 2)
        for (int64_t j = 0; j < n; j++) r[j] = vf_even(r[2 * j], r[2 * j + 1]) + vf_odd(r[2 * j], r[2 * j + 1]);
    vf_store(v->y + row, silu ? f_silu(r[0]) : r[0]);
}

/* Channels [channel, end) of a sequence at steps from t on. Squares that write neighbours follow each other: a line of y that two of
 * them share is still near then, and steps of y lie whole pages apart. */
static void conv_block(const conv *v, int64_t seq, int64_t channel, int64_t end, int64_t t) {
    int64_t last = v->steps < t + WIDE ? v->steps : t + WIDE;
    int ones = v->steps == 1 && (v->taps & (v->taps - 1)) == 0;
    for (int64_t k = t; k < last; k += VF_N)
        for (int64_t i = channel; i < end; i += VF_N) {
            int some = (int)(end - i < VF_N ? end - i : VF_N), steps = (int)(last - k < VF_N ? last - k : VF_N);
            if (ones && some == VF_N) conv_one(v, seq, i, v->state != NULL);
            else conv_square(v, seq, i, some, k, steps, v->state != NULL);
        }
}

static void run_conv(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    conv v = conv_of(c);
    int64_t wide = (v.channels + WIDE - 1) / WIDE, units = v.seqs * wide, u = qn_cpu_cut(units, s->parts[0], part);
    conv whole = v; /* what has been joined, instead of its parts */
    (void)phase;
    if (v.joined) {
        whole.x = v.joined;
        whole.samples += v.before;
        whole.before = 0;
    }
    for (int64_t end = qn_cpu_cut(units, s->parts[0], part + 1); u < end; u++) {
        int64_t seq = u / wide, channel = u % wide * WIDE, last = channel + WIDE < v.channels ? channel + WIDE : v.channels;
        int64_t row = seq * v.channels + channel;
        if (v.joined) join_rows(&v, row, last - channel, v.joined + row * whole.samples);
        for (int64_t t = 0; t < v.steps; t += WIDE) conv_block(&whole, seq, channel, last, t);
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

/* A head's steps, and how its states decay over them, from token t on. */
static void scan_rates(const scan *z, int64_t seq, int64_t head, int64_t t, float *step, float *decay) {
    float dt[VF_N] = {0};
    for (int64_t i = 0; i < VF_N && t + i < z->steps; i++) dt[i] = z->dt[(seq * z->steps + t + i) * z->heads + head];
    vf by = f_softplus(vf_load(dt));
    vf_store(step, by);
    vf_store(decay, vf_exp(by * vf_set1(z->a[head])));
}

/* One token over rows of a head's states: h <- decay h + step x b, y = h c. x and y are those of the rows. */
static void scan_token(const qn_state_rows *h, const qn_state_step *s, float step, const float *x, float *y) {
    for (int64_t r = 0; r < h->rows; r += VF_N) {
        vf by = vf_set1(step) * qn_lanes_at(QN_DTYPE_F32, (const char *)x, r, h->rows);
        qn_lanes_put_at(QN_DTYPE_F32, (char *)y, r, qn_state_next(h, r, s, 0, 0, by, by), h->rows);
    }
}

/* The same with the rows turned into a tile. */
static void scan_turned(const qn_state_rows *h, const qn_state_step *s, float step, const float *x, float *y, float *tile) {
    vf by[QN_TURNED_VECTORS], sum[QN_TURNED_VECTORS];
    qn_turned_take(by, x, h->rows);
    for (int w = 0; w < QN_TURNED_VECTORS; w++) by[w] *= vf_set1(step);
    qn_turned_next(tile, h->n, s, 0, 0, by, by, sum);
    qn_turned_give(y, sum, h->rows);
}

static int scan_turns(const scan *z) { return z->steps >= QN_TURNED_TOKENS; }
static int64_t scan_block(const scan *z) { return scan_turns(z) ? QN_TURNED_ROWS : QN_STATE_ROWS; }
static int64_t scan_blocks(const scan *z) { return (z->width + scan_block(z) - 1) / scan_block(z); }

/* The rows of a head from `first` on, through all tokens. A token writes where its states will be kept, or else where the newest will;
 * tile: NULL when they are few. */
static void scan_rows(const scan *z, int64_t seq, int64_t head, int64_t first, float *tile) {
    const int64_t area = z->width * z->n, all = z->seqs * z->heads * area, group = head / (z->heads / z->groups);
    float *newest = z->states + (seq * z->heads + head) * area + first * z->n, step[VF_N], decay[VF_N];
    qn_state_rows h = {.from_apart = z->n, .to_apart = z->n, .n = z->n};
    h.rows = z->width - first < scan_block(z) ? z->width - first : scan_block(z);
    h.from = z->h0 + (qn_index4(z->ids, 0, 0, 0, seq) * z->heads + head) * area + first * z->n;
    if (tile) qn_turn_in(&h, tile);
    for (int64_t t = 0; t < z->steps; t++, h.from = h.to) {
        int64_t at = seq * z->steps + t, left = z->steps - 1 - t, row = (at * z->heads + head) * z->width + first;
        qn_state_step s = {.decay = decay + t % VF_N, .keys = z->b + (at * z->groups + group) * z->n};
        s.read = z->c + (at * z->groups + group) * z->n;
        if (t % VF_N == 0) scan_rates(z, seq, head, t, step, decay);
        if (left > 0) qn_state_ask(z->x + row + z->heads * z->width, h.rows);
        if (left > 0) qn_state_ask(z->y + row + z->heads * z->width, h.rows);
        h.to = newest + (left < z->keep ? left * all : 0);
        if (!tile) scan_token(&h, &s, step[t % VF_N], z->x + row, z->y + row);
        else scan_turned(&h, &s, step[t % VF_N], z->x + row, z->y + row, tile);
        if (tile && left < z->keep) qn_turn_out(&h, tile);
    }
    for (int64_t slot = z->steps; slot < z->keep; slot++)
        memset(newest + slot * all, 0, (size_t)(h.rows * z->n) * sizeof *newest);
}

static void run_scan(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    scan z = scan_of(c);
    int64_t blocks = scan_blocks(&z), units = z.seqs * z.heads * blocks, u = qn_cpu_cut(units, s->parts[0], part);
    float *tile = scan_turns(&z) ? (float *)c->workspace + part * qn_turned_floats(z.n) : NULL;
    (void)phase;
    for (int64_t end = qn_cpu_cut(units, s->parts[0], part + 1); u < end; u++)
        scan_rows(&z, u / blocks / z.heads, u / blocks % z.heads, u % blocks * scan_block(&z), tile);
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
    double cells = (double)scan_block(&z) * (double)z.n;
    qn_cpu_by_rows(s, "ssm_scan rows", run_scan, z.seqs * z.heads * scan_blocks(&z), cells * 8, cells * 6 * (double)z.steps);
    s->workspace = scan_turns(&z) ? (size_t)(s->parts[0] * qn_turned_floats(z.n)) * sizeof(float) : 0;
    return 1;
}
