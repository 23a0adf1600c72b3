/* Gradients of state-space layers in f32: ssm_conv_back, selective_scan_back and ssm_scan_back. Lanes are channels, or the states of a
 * head whose channels decay alike. What is summed over channels or heads is summed by each part for its own and then over the parts,
 * of which there are as many as the shapes say. */
#include "cpu/k_lanes.h"
#include "cpu/simd/simd_act.h"
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

/* Sample `at` from the steps there are alone: the zeros around them make NaN of a weight that is none, or infinite. */
static float sample_gradient(const conv *v, const float *w, const float *line, int64_t at) {
    double sum = 0;
    for (int64_t j = at < v->steps ? 0 : at - v->steps + 1; j <= at && j < v->taps; j++)
        sum += (double)line[v->taps - 1 + at - j] * (double)w[j];
    return (float)sum;
}

static void signal_gradient(const conv *v, int64_t channel, const float *line, float *dx) {
    const float *w = v->w + channel * v->taps;
    float nothing = 0;
    for (int64_t i = 0; i < v->samples; i += VF_N) {
        vf sum = vf_zero();
        for (int64_t j = 0; j < v->taps; j++) sum = vf_fma(vf_load(line + v->taps - 1 + i - j), vf_set1(w[j]), sum);
        vf_storen(dx + i, sum, some_of(v->samples, i));
    }
    for (int64_t j = 0; j < v->taps; j++) nothing += w[j] * 0;
    for (int64_t i = 0; nothing != 0 && i < v->samples; i++)
        if (dx[i] != dx[i]) dx[i] = sample_gradient(v, w, line, i);
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
    const qn_tensor *ids; /* which of h0 a sequence began with, and several may have; NULL: its own */
    int64_t slots;        /* of h0, when there are ids */
    int softplus;         /* delta was made positive first */
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

/* Scratch of a part: states of all steps and what they decayed by; the sums for b and c of one sequence in lanes; those of all
 * sequences. */
static int64_t state_floats(const scan *z) { return (2 * z->steps + 1) * z->n * VF_N; }
static float *decays_of(const scan *z, float *h) { return h + (z->steps + 1) * z->n * VF_N; }
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

static int64_t slot_of(const scan *z, int64_t seq) { return z->ids ? qn_index4(z->ids, 0, 0, 0, seq) : seq; }
static vf delta_at(const scan *z, int64_t at, int some) {
    vf delta = vf_loadn(z->delta + at, some);
    return z->softplus ? f_softplus(delta) : delta;
}

static void run_states(const scan *z, int64_t seq, int64_t channel, int some, const float *a, float *h) {
    float *by = decays_of(z, h);
    rows_to_lanes(z->h0 ? z->h0 + (slot_of(z, seq) * z->count + channel) * z->n : NULL, z->n, some, h);
    for (int64_t t = seq * z->steps; t < (seq + 1) * z->steps; t++, h += z->n * VF_N, by += z->n * VF_N) {
        vf delta = delta_at(z, t * z->count + channel, some), x = delta * vf_loadn(z->x + t * z->count + channel, some);
        for (int64_t i = 0; i < z->n; i++) {
            vf decay = vf_exp(delta * vf_load(a + i * VF_N));
            vf_store(by + i * VF_N, decay);
            vf_store(h + (z->n + i) * VF_N, vf_fma(decay, vf_load(h + i * VF_N), x * vf_set1(z->b[t * z->n + i])));
        }
    }
}

/* grad is that of the state behind a step, then of the one before it; da goes on from sequence to sequence. */
static void reverse_step(const scan *z, int64_t t, int64_t channel, int some, const float *a, const float *h, const float *by,
                         float *grad, float *da, float *db, float *dc) {
    int64_t at = t * z->count + channel;
    const float *b = z->b + t * z->n, *c = z->c + t * z->n;
    vf delta = delta_at(z, at, some), x = vf_loadn(z->x + at, some), dx = vf_zero(), ddelta = dx;
    vf gy = z->g ? vf_loadn(z->g + at, some) : vf_zero(), in = delta * x;
    for (int64_t i = 0; i < z->n; i++) {
        vf rate = vf_load(a + i * VF_N), decay = vf_load(by + i * VF_N), bi = vf_set1(b[i]);
        vf g = vf_fma(gy, vf_set1(c[i]), vf_load(grad + i * VF_N)), kept = decay * vf_load(h + i * VF_N), through = g * kept;
        vf_store(dc + i * VF_N, vf_fma(gy, vf_load(h + (z->n + i) * VF_N), vf_load(dc + i * VF_N)));
        vf_store(db + i * VF_N, vf_fma(g, in, vf_load(db + i * VF_N)));
        vf_store(da + i * VF_N, vf_fma(delta, through, vf_load(da + i * VF_N)));
        dx = vf_fma(g, bi, dx);
        ddelta = vf_fma(rate, through, ddelta);
        vf_store(grad + i * VF_N, g * decay);
    }
    vf_storen(z->dx + at, dx * delta, some);
    ddelta = vf_fma(x, dx, ddelta);
    if (z->softplus) ddelta *= d_softplus(vf_loadn(z->delta + at, some));
    vf_storen(z->ddelta + at, ddelta, some);
}

static void reverse_channels(const scan *z, int64_t seq, int64_t channel, int some, float *da, float *h, float *db, float *dc) {
    float a[STATES * VF_N], grad[STATES * VF_N];
    rows_to_lanes(z->a + channel * z->n, z->n, some, a);
    rows_to_lanes(z->g_last ? z->g_last + (seq * z->count + channel) * z->n : NULL, z->n, some, grad);
    run_states(z, seq, channel, some, a, h);
    for (int64_t t = z->steps; t-- > 0;) {
        int64_t at = t * z->n * VF_N;
        reverse_step(z, seq * z->steps + t, channel, some, a, h + at, decays_of(z, h) + at, grad, da, db + at, dc + at);
    }
    float *dh0 = z->dh0 + (slot_of(z, seq) * z->count + channel) * z->n;
    if (z->ids) { /* added to what other sequences gave */
        rows_to_lanes(dh0, z->n, some, a);
        for (int64_t i = 0; i < z->n * VF_N; i++) grad[i] += a[i];
    }
    lanes_to_rows(grad, z->n, some, dh0);
}

/* Phase 0: channels; da of a group of them is kept where it goes from sequence to sequence. Phase 1: sums over the parts. */
static void run_channels(const scan *z, float *base, const qn_cpu_step *s, int phase, int64_t part) {
    int64_t each = part_floats(z), cells = all_floats(z);
    if (phase == 1) {
        for (int64_t i = qn_cpu_cut(cells, s->parts[1], part); i < qn_cpu_cut(cells, s->parts[1], part + 1); i++) {
            double b = 0, d = 0;
            for (int64_t p = 0; p < s->parts[0]; p++) {
                const float *sums = base + (p + 1) * each - 2 * cells;
                b += (double)sums[i];
                d += (double)sums[cells + i];
            }
            z->db[i] = (float)b;
            z->dc[i] = (float)d;
        }
        return;
    }
    float *h = base + part * each, *db = h + state_floats(z), *dc = db + sum_floats(z), *sums = dc + sum_floats(z);
    int64_t wide = (z->count + VF_N - 1) / VF_N, first = qn_cpu_cut(wide, s->parts[0], part),
            end = qn_cpu_cut(wide, s->parts[0], part + 1), last = end * VF_N < z->count ? end * VF_N : z->count;
    for (int64_t slot = 0; z->ids && slot < z->slots; slot++)
        memset(z->dh0 + (slot * z->count + first * VF_N) * z->n, 0, (size_t)((last - first * VF_N) * z->n) * sizeof *z->dh0);
    for (int64_t seq = 0; seq < z->seqs; seq++) {
        memset(db, 0, (size_t)(2 * sum_floats(z)) * sizeof *db);
        for (int64_t u = first; u < end; u++) {
            float da[STATES * VF_N];
            int64_t channel = u * VF_N;
            int some = some_of(z->count, channel);
            rows_to_lanes(seq ? z->da + channel * z->n : NULL, z->n, some, da);
            reverse_channels(z, seq, channel, some, da, h, db, dc);
            lanes_to_rows(da, z->n, some, z->da + channel * z->n);
        }
        for (int64_t i = 0; i < z->steps * z->n; i++) {
            sums[seq * z->steps * z->n + i] = vf_sum(vf_load(db + i * VF_N));
            sums[cells + seq * z->steps * z->n + i] = vf_sum(vf_load(dc + i * VF_N));
        }
    }
}

static int prepare_channels(const scan *z, qn_cpu_step *s, const char *name, qn_cpu_run_fn run) {
    if (z->n < 1 || z->n > STATES || z->seqs < 1 || z->steps < 1 || z->count < 1) return 0;
    qn_cpu_by_rows(s, name, run, (z->count + VF_N - 1) / VF_N, 0, (double)(z->seqs * z->steps * z->n) * VF_N * 50);
    if (s->parts[0] > PARTS) s->parts[0] = PARTS;
    s->n_phases = 2;
    s->parts[1] = qn_cpu_parts(all_floats(z), 8.0 * (double)s->parts[0], 0);
    s->workspace = (size_t)(s->parts[0] * part_floats(z)) * sizeof(float);
    return 1;
}

static void run_selective(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    scan z = scan_of(c);
    run_channels(&z, c->workspace, s, phase, part);
}

static int all_plain(const qn_call *c, int sources) {
    for (int i = 0; i < sources && i < c->n_src; i++)
        if (!is_plain(c->src[i])) return 0;
    for (int i = 0; i < 6; i++)
        if (!c->dst[i] || !is_plain(c->dst[i])) return 0;
    return 1;
}

int QN_K(selective_scan_back)(const qn_call *c, qn_cpu_step *s) {
    if (!all_plain(c, 8)) return 0;
    scan z = scan_of(c);
    return prepare_channels(&z, s, "selective_scan_back channels", run_selective);
}

/* ---- ssm_scan_back. Of heads that decay at one rate every channel's row of states goes its own way, so some rows at a time run forward,
 * are remembered, and run back: few enough that they are still near. Sums for b and c go on from row to row and head to head. */

enum { ROWS = 4 };

typedef struct heads {
    int64_t slots, seqs, steps, count, width, n, groups, rates, keep;
    int64_t line; /* n, up to whole vectors: of what is remembered */
    const float *g, *g_states, *h0, *x, *dt, *a, *b, *c;
    const qn_tensor *ids;
    float *dh0, *dx, *ddt, *da, *db, *dc;
} heads;

static heads heads_of(const qn_call *c) {
    const qn_tensor *h0 = c->src[1], *x = c->src[2], *b = c->src[5];
    heads z = {.slots = qn_ne(h0, 3), .seqs = qn_ne(x, 3), .steps = qn_ne(x, 2), .count = qn_ne(h0, 2), .width = qn_ne(h0, 1)};
    z.n = qn_ne(h0, 0);
    z.groups = qn_ne(b, 1);
    z.rates = qn_ne(c->src[4], 0);
    z.keep = ((const qn_attr_ssm_scan_back *)c->attr)->k;
    z.line = (z.n + VF_N - 1) / VF_N * VF_N;
    z.g = floats(c->src[0]);
    z.g_states = z.g ? z.g + z.seqs * z.steps * z.count * z.width : NULL; /* nothing lies anywhere yet when a plan is made */
    z.h0 = floats(h0);
    z.x = floats(x);
    z.dt = floats(c->src[3]);
    z.a = floats(c->src[4]);
    z.b = floats(b);
    z.c = floats(c->src[6]);
    z.ids = c->src[7];
    z.dh0 = floats(c->dst[0]);
    z.dx = floats(c->dst[1]);
    z.ddt = floats(c->dst[2]);
    z.da = floats(c->dst[3]);
    z.db = floats(c->dst[4]);
    z.dc = floats(c->dst[5]);
    return z;
}

/* What all rows of a head share at one step, and what they have added up to. */
typedef struct moment {
    double step, x_dx;
    float decay;
} moment;

/* Scratch of a part: the moments of a sequence; lanes of what went through the decay, for each; states; their gradients; the sums for b
 * and c of all sequences, lines of both. */
typedef struct room {
    moment *at;
    float *through, *states, *grad, *db, *dc;
} room;

static int64_t tokens_of(const heads *z) { return z->seqs * z->steps; }
static int64_t room_bytes(const heads *z) {
    int64_t each = z->steps * VF_N + ((z->steps + 2) * ROWS + 2 * tokens_of(z)) * z->line;
    return (z->steps * (int64_t)sizeof(moment) + each * 4 + 63) / 64 * 64;
}
static room room_of(const heads *z, char *workspace, int64_t part) {
    room r = {.at = (moment *)(void *)(workspace + part * room_bytes(z))};
    r.through = (float *)(void *)(r.at + z->steps);
    r.states = r.through + z->steps * VF_N;
    r.grad = r.states + (z->steps + 1) * ROWS * z->line;
    r.db = r.grad + ROWS * z->line;
    r.dc = r.db + tokens_of(z) * z->line;
    return r;
}

/* A head in one sequence, and which of its group's b and c belong to it. */
typedef struct place {
    int64_t seq, head, group, slot;
} place;

static int64_t row_of(const heads *z, const place *at, int64_t t) {
    return ((at->seq * z->steps + t) * z->count + at->head) * z->width;
}
static int64_t line_of(const heads *z, const place *at, int64_t t) {
    return ((at->seq * z->steps + t) * z->groups + at->group) * z->n;
}
static vf state_at(const float *row, int64_t i, int64_t n) { return qn_lanes_at(QN_DTYPE_F32, (const char *)row, i, n); }

/* Rows of the states from row p on, behind every step. */
QN_INLINE void run_rows(const heads *z, const place *at, const room *r, int rows, int64_t p) {
    const float *h0 = z->h0 + ((at->slot * z->count + at->head) * z->width + p) * z->n;
    float *h = r->states;
    for (int k = 0; k < rows; k++)
        for (int64_t i = 0; i < z->line; i += VF_N) vf_store(h + k * z->line + i, state_at(h0 + k * z->n, i, z->n));
    for (int64_t t = 0; t < z->steps; t++, h += rows * z->line) {
        const float *x = z->x + row_of(z, at, t) + p, *b = z->b + line_of(z, at, t);
        float *next = h + rows * z->line;
        vf decay = vf_set1(r->at[t].decay);
        for (int64_t i = 0; i < z->line; i += VF_N) {
            vf by = state_at(b, i, z->n);
            for (int k = 0; k < rows; k++) {
                vf in = vf_set1((float)r->at[t].step * x[k]) * by;
                vf_store(next + k * z->line + i, vf_fma(decay, vf_load(h + k * z->line + i), in));
            }
        }
    }
}

/* The gradients of rows as a snapshot of the states gives them. */
static void add_snapshot(const heads *z, const place *at, int64_t left, int rows, int64_t p, float *grad) {
    const float *g = z->g_states + (((left * z->seqs + at->seq) * z->count + at->head) * z->width + p) * z->n;
    for (int k = 0; k < rows; k++)
        for (int64_t i = 0; i < z->line; i += VF_N)
            vf_store(grad + k * z->line + i, vf_load(grad + k * z->line + i) + state_at(g + k * z->n, i, z->n));
}

/* One step back: grad is that of the states behind it, then of those before. */
QN_INLINE void reverse_rows(const heads *z, const place *at, const room *r, int rows, int64_t p, int64_t t) {
    const int64_t line = z->line, token = (at->seq * z->steps + t) * line, row = row_of(z, at, t) + p;
    const float *h = r->states + t * rows * line, *b = z->b + line_of(z, at, t), *c = z->c + line_of(z, at, t);
    moment *m = &r->at[t];
    vf dx[ROWS], through[ROWS], gy[ROWS], in[ROWS], decay = vf_set1(m->decay);
    for (int k = 0; k < rows; k++) {
        dx[k] = through[k] = vf_zero();
        gy[k] = vf_set1(z->g[row + k]);
        in[k] = vf_set1((float)m->step * z->x[row + k]);
    }
    for (int64_t i = 0; i < line; i += VF_N) {
        vf bi = state_at(b, i, z->n), ci = state_at(c, i, z->n), db = vf_load(r->db + token + i), dc = vf_load(r->dc + token + i);
        for (int k = 0; k < rows; k++) {
            float *grad = r->grad + k * line + i;
            vf g = vf_fma(gy[k], ci, vf_load(grad));
            dc = vf_fma(gy[k], vf_load(h + (rows + k) * line + i), dc);
            db = vf_fma(in[k], g, db);
            dx[k] = vf_fma(bi, g, dx[k]);
            through[k] = vf_fma(vf_load(h + k * line + i), g, through[k]);
            vf_store(grad, g * decay);
        }
        vf_store(r->db + token + i, db);
        vf_store(r->dc + token + i, dc);
    }
    vf all = vf_load(r->through + t * VF_N);
    for (int k = 0; k < rows; k++) {
        float d = vf_sum(dx[k]);
        z->dx[row + k] = (float)m->step * d;
        m->x_dx += (double)z->x[row + k] * (double)d;
        all += through[k];
    }
    vf_store(r->through + t * VF_N, all);
}

QN_INLINE void rows_back(const heads *z, const place *at, const room *r, int rows, int64_t p) {
    float *dh0 = z->dh0 + ((at->slot * z->count + at->head) * z->width + p) * z->n;
    run_rows(z, at, r, rows, p);
    memset(r->grad, 0, (size_t)(rows * z->line) * sizeof *r->grad);
    for (int64_t t = z->steps; t-- > 0;) {
        int64_t left = z->steps - 1 - t;
        if (left < z->keep) add_snapshot(z, at, left, rows, p, r->grad);
        reverse_rows(z, at, r, rows, p, t);
    }
    for (int k = 0; k < rows; k++)
        for (int64_t i = 0; i < z->n; i += VF_N)
            qn_lanes_put_at(QN_DTYPE_F32, (char *)(dh0 + k * z->n), i,
                            vf_load(r->grad + k * z->line + i) + state_at(dh0 + k * z->n, i, z->n), z->n);
}

/* One head in one sequence; returns what its rate gets. */
static double head_back(const heads *z, const place *at, const room *r) {
    double rate = (double)z->a[at->head], da = 0;
    int64_t p = 0;
    memset(r->through, 0, (size_t)(z->steps * VF_N) * sizeof *r->through);
    for (int64_t t = 0; t < z->steps; t++) {
        double dt = (double)z->dt[(at->seq * z->steps + t) * z->count + at->head], step = dt > 20 ? dt : log1p(exp(dt));
        r->at[t] = (moment){step, 0, (float)exp(step * rate)};
    }
    for (; p + ROWS <= z->width; p += ROWS) rows_back(z, at, r, ROWS, p);
    for (; p < z->width; p++) rows_back(z, at, r, 1, p);
    for (int64_t t = 0; t < z->steps; t++) {
        int64_t i = (at->seq * z->steps + t) * z->count + at->head;
        double dt = (double)z->dt[i], slope = dt > 20 ? 1 : 1 / (1 + exp(-dt));
        double kept = (double)r->at[t].decay * (double)vf_sum(vf_load(r->through + t * VF_N));
        z->ddt[i] = (float)((rate * kept + r->at[t].x_dx) * slope);
        da += r->at[t].step * kept;
    }
    return da;
}

/* The parts of a group take some of its heads each. Phase 1 adds their sums up. */
static void run_heads(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    heads z = heads_of(c);
    int64_t slices = s->parts[0] / z.groups, group = part / slices, per_group = z.count / z.groups, area = z.width * z.n;
    if (phase == 1) {
        int64_t rows = tokens_of(&z) * z.groups, end = qn_cpu_cut(rows, s->parts[1], part + 1);
        for (int64_t i = qn_cpu_cut(rows, s->parts[1], part); i < end; i++)
            for (int64_t k = 0; k < z.n; k++) {
                double b = 0, d = 0;
                for (int64_t p = 0; p < slices; p++) {
                    room r = room_of(&z, c->workspace, i % z.groups * slices + p);
                    b += (double)r.db[i / z.groups * z.line + k];
                    d += (double)r.dc[i / z.groups * z.line + k];
                }
                z.db[i * z.n + k] = (float)b;
                z.dc[i * z.n + k] = (float)d;
            }
        return;
    }
    room r = room_of(&z, c->workspace, part);
    memset(r.db, 0, (size_t)(2 * tokens_of(&z) * z.line) * sizeof *r.db);
    int64_t end = group * per_group + qn_cpu_cut(per_group, slices, part % slices + 1);
    for (int64_t head = group * per_group + qn_cpu_cut(per_group, slices, part % slices); head < end; head++) {
        double da = 0;
        for (int64_t slot = 0; slot < z.slots; slot++)
            memset(z.dh0 + (slot * z.count + head) * area, 0, (size_t)area * sizeof *z.dh0);
        for (int64_t seq = 0; seq < z.seqs; seq++) {
            place at = {seq, head, group, qn_index4(z.ids, 0, 0, 0, seq)};
            da += head_back(&z, &at, &r);
        }
        z.da[head] = (float)da;
    }
}

static int prepare_heads(const heads *z, qn_cpu_step *s) {
    double flops = (double)(tokens_of(z) * z->width) * (double)z->n * 16;
    int64_t parts = qn_cpu_parts(z->count, 0, flops), per_group = z->count / z->groups;
    int64_t slices = (parts < PARTS ? parts : PARTS) / z->groups;
    slices = slices < 1 ? 1 : slices > per_group ? per_group : slices;
    s->run = run_heads;
    s->name = "ssm_scan_back heads";
    s->n_phases = 2;
    s->parts[0] = z->groups * slices;
    s->parts[1] = qn_cpu_parts(tokens_of(z) * z->groups, 8.0 * (double)(slices * z->n), 0);
    s->workspace = (size_t)(s->parts[0] * room_bytes(z));
    return 1;
}

/* One row of states for each head, and one b and c for all heads: its heads are channels. */
static scan channels_of(const heads *z) {
    scan l = {.seqs = z->seqs, .steps = z->steps, .count = z->count, .n = z->n, .ids = z->ids, .slots = z->slots, .softplus = 1};
    l.g = z->g;
    l.g_last = z->g_states;
    l.x = z->x;
    l.delta = z->dt;
    l.a = z->a;
    l.b = z->b;
    l.c = z->c;
    l.h0 = z->h0;
    l.dx = z->dx;
    l.ddelta = z->ddt;
    l.da = z->da;
    l.db = z->db;
    l.dc = z->dc;
    l.dh0 = z->dh0;
    return l;
}

static void run_single(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    heads z = heads_of(c);
    scan l = channels_of(&z);
    run_channels(&l, c->workspace, s, phase, part);
}

int QN_K(ssm_scan_back)(const qn_call *c, qn_cpu_step *s) {
    if (!all_plain(c, 7)) return 0;
    heads z = heads_of(c);
    if (z.seqs < 1 || z.steps < 1 || z.count < 1 || z.width < 1 || z.n < 1 || z.groups < 1) return 0;
    if (z.width == 1 && z.rates == z.n && z.groups == 1 && z.keep == 1) {
        scan l = channels_of(&z);
        return prepare_channels(&l, s, "ssm_scan_back channels", run_single);
    }
    return z.rates == 1 ? prepare_heads(&z, s) : 0;
}
