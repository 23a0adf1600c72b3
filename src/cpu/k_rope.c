/* rope, rope_back and rope_factors_back in all their modes, and rms_norm_rope. The cosines and sines of a token are made once, for all
 * its heads: angles in double, brought near zero there, then polynomials in f32. */
#include "cpu/k_rope.h"

#include "cpu/k_norm.h"

enum { NORMAL = 0, MROPE = 8, VISION = 24, IMROPE = 40, PLANES = 4 };

/* What all tokens share. Pair i turns by its coefficient for each step of its plane's position. */
typedef struct turns {
    const qn_attr_rope *at;
    const qn_tensor *pos;
    int64_t tokens, pairs;
    float gain, sign;
    double by[MOST_PAIRS];
    uint8_t plane[MOST_PAIRS];
} turns;

static int is_multi(int mode) { return mode == MROPE || mode == VISION || mode == IMROPE; }

/* Position plane of section index s; *start is where its section begins. */
static int plane_of(const qn_attr_rope *at, int64_t s, int64_t *start) {
    const int64_t *n = at->sections.d;
    *start = 0;
    if (at->mode == IMROPE) {
        if (s % 3 == 1 && s < 3 * n[1]) return 1;
        if (s % 3 == 2 && s < 3 * n[2]) return 2;
        return s % 3 == 0 && s < 3 * n[0] ? 0 : 3;
    }
    int plane = 0;
    while (plane < PLANES - 1 && s >= *start + n[plane]) *start += n[plane++];
    return plane;
}

/* Pair at which n_ctx_orig tokens make r turns. */
static double pair_of_turns(const qn_attr_rope *at, double r) {
    return at->n_dims * log(at->n_ctx_orig / (2 * acos(-1) * r)) / (2 * log((double)at->freq_base));
}

/* YaRN: how much of the slowed-down and of the original angle each pair takes. */
static void mix_yarn(turns *t) {
    const qn_attr_rope *at = t->at;
    double low = fmax(0, floor(pair_of_turns(at, (double)at->beta_fast)));
    double high = fmin(at->n_dims - 1, ceil(pair_of_turns(at, (double)at->beta_slow)));
    for (int64_t i = 0; i < t->pairs; i++) {
        double ramp = ((double)i - low) / fmax(0.001, high - low);
        double mix = (double)at->ext_factor * (1 - fmin(1, fmax(0, ramp)));
        t->by[i] *= (double)at->freq_scale * (1 - mix) + mix;
    }
    t->gain = (float)((double)at->attn_factor * (1 + 0.1 * log(1 / (double)at->freq_scale)));
}

/* Powers of one ratio, each the one before it times the ratio: in double that is exact enough for a million tokens. */
static void open_turns(turns *t, const qn_attr_rope *at, const qn_tensor *x, const qn_tensor *pos, const qn_tensor *factors) {
    double power[MOST_PAIRS], ratio = pow((double)at->freq_base, -2.0 / at->n_dims);
    t->at = at;
    t->pos = pos;
    t->tokens = qn_ne(x, 2);
    t->pairs = at->mode == VISION ? at->n_dims : at->n_dims / 2;
    t->gain = at->attn_factor;
    t->sign = 1;
    power[0] = 1;
    for (int64_t i = 1; i < t->pairs; i++) power[i] = power[i - 1] * ratio;
    int64_t sections = 0;
    for (int k = 0; is_multi(at->mode) && k < PLANES; k++) sections += at->sections.d[k];
    for (int64_t i = 0; i < t->pairs; i++) {
        int64_t s = i, start = 0;
        t->plane[i] = 0;
        if (sections) t->plane[i] = (uint8_t)plane_of(at, s = i % sections, &start);
        t->by[i] = power[at->mode == VISION ? s - start : i];
        if (factors) t->by[i] /= qn_get4(factors, 0, 0, 0, i);
    }
    if (at->ext_factor != 0) mix_yarn(t);
    else
        for (int64_t i = 0; i < t->pairs; i++) t->by[i] *= (double)at->freq_scale;
}

static void cos_sin(const turns *t, int64_t token, double *angle, float *cosine, float *sine) {
    double far[PLANES];
    int multi = is_multi(t->at->mode), wide = 0;
    for (int k = 0; k < (multi ? PLANES : 1); k++) far[k] = (double)qn_index4(t->pos, 0, 0, 0, token + k * t->tokens);
    if (multi)
        for (int64_t i = 0; i < t->pairs; i++) angle[i] = far[t->plane[i]] * t->by[i];
    else
        for (int64_t i = 0; i < t->pairs; i++) angle[i] = far[0] * t->by[i];
    for (int64_t i = 0; i < t->pairs; i++) wide |= !(fabs(angle[i]) < 1e6); /* NaN too */
    cos_sin_any(angle, t->pairs, wide ? INFINITY : 0, t->gain, t->sign, cosine, sine);
}

/* Heads of a token: rows of `whole` bytes, where from byte `first` on `pairs` pairs turn. */
typedef struct heads {
    char *to;
    const char *from;
    int64_t n, to_step, from_step, whole, first, pairs;
    const float *cosine, *sine;
} heads;

/* Channels that do not turn keep their bits. */
QN_INLINE void turn_heads(uint32_t dtype, int neighbours, qn_way way, const heads *h) {
    int64_t end = h->first + 2 * h->pairs * qn_float_bytes(dtype);
    for (int64_t k = 0; k < h->n; k++) {
        const char *from = h->from + k * h->from_step;
        char *to = h->to + k * h->to_step;
        if (from != to && h->first) memcpy(to, from, (size_t)h->first);
        if (from != to && end < h->whole) memcpy(to + end, from + end, (size_t)(h->whole - end));
        to += h->first;
        from += h->first;
        if (neighbours) turn_neighbours(dtype, to, from, 2 * h->pairs, h->cosine, h->sine, way);
        else turn_halves(dtype, to, from, h->pairs, h->cosine, h->sine, way);
    }
}
static void turn_near(uint32_t dtype, int neighbours, qn_way way, const heads *h) {
#define NEIGHBOURS_OF(d) turn_heads(d, 1, way, h)
#define HALVES_OF(d) turn_heads(d, 0, way, h)
    if (neighbours) QN_BY_FLOAT(dtype, NEIGHBOURS_OF);
    else QN_BY_FLOAT(dtype, HALVES_OF);
}

/* Past the caches: vector by vector where that can be, else by way of a row aside. */
static void turn_past(uint32_t dtype, int neighbours, const heads *h) {
    _Alignas(64) char aside[2 * MOST_PAIRS * sizeof(float)];
    int64_t ends = (int64_t)(uintptr_t)h->to | h->to_step | h->first | (h->pairs * 4);
    if (dtype == QN_DTYPE_F32 && ends % (int64_t)sizeof(vf) == 0) {
        if (neighbours) turn_heads(QN_DTYPE_F32, 1, QN_PAST, h);
        else turn_heads(QN_DTYPE_F32, 0, QN_PAST, h);
        return;
    }
    int64_t bytes = 2 * h->pairs * qn_float_bytes(dtype), end = h->first + bytes;
    for (int64_t k = 0; k < h->n; k++) {
        char *to = h->to + k * h->to_step;
        const char *from = h->from + k * h->from_step;
        heads one = {aside, from + h->first, 1, 0, 0, bytes, 0, h->pairs, h->cosine, h->sine};
        turn_near(dtype, neighbours, QN_NEAR, &one);
        memcpy(to, from, (size_t)h->first);
        qn_past_put(to + h->first, aside, bytes);
        memcpy(to + end, from + end, (size_t)(h->whole - end));
    }
}

/* The norm that comes before the turn in rms_norm_rope. Its row is rounded, as if it went out and came back, and turned where it lies. */
typedef struct norm_before {
    const qn_tensor *gamma; /* or NULL */
    double eps;
} norm_before;

QN_INLINE void norm_row(uint32_t dtype, const norm_before *norm, char *y, const char *x, int64_t n) {
    double mean, r;
    row_moments(dtype, SQUARES, x, n, norm->eps, &mean, &r);
    for (int64_t i = 0; i < n; i += VF_N) {
        vf h = qn_lanes_at(dtype, x, i, n) * vf_set1((float)r);
        qn_lanes_put_at(dtype, y, i, norm->gamma ? h * weight_at(norm->gamma, i, n) : h, n);
    }
}

static void turn_normed(uint32_t dtype, int neighbours, const norm_before *norm, const heads *h) {
    for (int64_t k = 0; k < h->n; k++) {
        char *to = h->to + k * h->to_step;
        const char *from = h->from + k * h->from_step;
        heads one = *h;
#define NORM_OF(d) norm_row(d, norm, to, from, h->whole / qn_float_bytes(d))
        QN_BY_FLOAT(dtype, NORM_OF);
        one.to = to;
        one.from = to;
        one.n = 1;
        turn_near(dtype, neighbours, QN_NEAR, &one);
    }
}

/* All rows of one token. norm: NULL for none. */
static void turn_token(const turns *t, const norm_before *norm, const qn_tensor *y, const qn_tensor *x, int64_t token,
                       const float *cosine, const float *sine, qn_way way) {
    int64_t d[QN_MAX_RANK], size = qn_float_bytes(x->dtype);
    int neighbours = t->at->mode == NORMAL;
    heads h = {.n = qn_ne(x, 1), .to_step = qn_nb(y, 1), .from_step = qn_nb(x, 1), .whole = qn_ne(x, 0) * size};
    h.first = t->at->n_offs * size;
    h.pairs = t->pairs;
    h.cosine = cosine;
    h.sine = sine;
    qn_rows it;
    for (int k = 0; k < x->rank; k++) d[x->rank - 1 - k] = k < 3 ? 1 : qn_ne(x, k);
    for (qn_rows_begin(&it, x->rank, d); it.live; qn_rows_next(&it)) {
        h.from = qn_row(&it, x) + token * qn_nb(x, 2);
        h.to = qn_row(&it, y) + token * qn_nb(y, 2);
        if (norm) turn_normed(x->dtype, neighbours, norm, &h);
        else if (way == QN_PAST) turn_past(x->dtype, neighbours, &h);
        else turn_near(x->dtype, neighbours, way, &h);
    }
}

static void run_tokens(const qn_call *c, const qn_cpu_step *s, int64_t part, const norm_before *norm) {
    turns t;
    double angle[MOST_PAIRS];
    float cosine[2 * MOST_PAIRS + 16], sine[2 * MOST_PAIRS + 16];
    open_turns(&t, c->attr, c->src[0], c->src[1], c->n_src > 2 ? c->src[2] : NULL);
    if (c->op == QN_OP_rope_back) t.sign = -1;
    memset(cosine, 0, sizeof cosine);
    memset(sine, 0, sizeof sine);
    qn_way way = norm ? QN_NEAR : qn_past_way(s, c->dst[0], c->src, 1);
    int64_t end = qn_cpu_cut(t.tokens, s->parts[0], part + 1);
    for (int64_t token = qn_cpu_cut(t.tokens, s->parts[0], part); token < end; token++) {
        cos_sin(&t, token, angle, cosine, sine);
        if (t.at->mode == NORMAL) spread(cosine, sine, t.pairs);
        turn_token(&t, norm, c->dst[0], c->src[0], token, cosine, sine, way);
    }
    if (way == QN_PAST) qn_past_end();
}

static void run(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    (void)phase;
    run_tokens(c, s, part, NULL);
}

static void run_normed(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    norm_before norm = {c->n_src > 3 ? c->src[3] : NULL, (double)((const qn_attr_rms_norm_rope *)c->attr)->eps};
    (void)phase;
    run_tokens(c, s, part, &norm);
}

static int prepare(const qn_call *c, qn_cpu_step *s, const char *name, qn_cpu_run_fn run_part) {
    const qn_attr_rope *at = c->attr;
    const qn_tensor *x = c->src[0], *y = c->dst[0];
    int64_t pairs = at->mode == VISION ? at->n_dims : at->n_dims / 2, count = qn_tensor_count(x);
    if (count == 0 || x->dtype != y->dtype || x->rank != y->rank || !qn_lanes_rows(x) || !qn_lanes_rows(y)) return 0;
    if (pairs > MOST_PAIRS || qn_ne(x, 0) == 1) return 0;
    int64_t tokens = qn_ne(x, 2);
    return qn_cpu_by_rows(s, name, run_part, tokens, 8.0 * (double)count / (double)tokens, 40.0 * (double)pairs);
}

int QN_K(rope)(const qn_call *c, qn_cpu_step *s) { return prepare(c, s, "rope", run); }
int QN_K(rope_back)(const qn_call *c, qn_cpu_step *s) { return prepare(c, s, "rope_back", run); }

_Static_assert(offsetof(qn_attr_rms_norm_rope, n_offs) == offsetof(qn_attr_rope, n_offs), "shared attributes");
int QN_K(rms_norm_rope)(const qn_call *c, qn_cpu_step *s) {
    const qn_tensor *gamma = c->n_src > 3 ? c->src[3] : NULL;
    return (!gamma || qn_lanes_rows(gamma)) && prepare(c, s, "rms_norm_rope", run_normed);
}

/* ---- rope_factors_back. Turning a pair further gains cos (gb a - ga b) - sin (ga a + gb b), and its angle is inversely proportional to
 * its factor. A part adds up its tokens, then the parts are added up. */

_Static_assert(sizeof(qn_attr_rope) == sizeof(qn_attr_rope_factors_back), "rope and rope_factors_back have the same attributes");

static void token_gain(const turns *t, const qn_tensor *g, const qn_tensor *x, int64_t token, double *along, double *across) {
    int64_t d[QN_MAX_RANK], first = t->at->n_offs * qn_float_bytes(x->dtype);
    qn_rows it;
    for (int k = 0; k < x->rank; k++) d[x->rank - 1 - k] = k == 0 || k == 2 ? 1 : qn_ne(x, k);
    for (qn_rows_begin(&it, x->rank, d); it.live; qn_rows_next(&it))
        add_gain(x->dtype, t->at->mode == NORMAL, qn_row(&it, g) + token * qn_nb(g, 2) + first,
                 qn_row(&it, x) + token * qn_nb(x, 2) + first, t->pairs, along, across);
}

static void run_factors(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    const qn_tensor *g = c->src[0], *x = c->src[1], *factors = c->src[3], *y = c->dst[0];
    float cosine[MOST_PAIRS], sine[MOST_PAIRS];
    double angle[MOST_PAIRS], along[MOST_PAIRS + VF_N], across[MOST_PAIRS + VF_N];
    turns t;
    open_turns(&t, c->attr, x, c->src[2], factors);
    double *sums = (double *)c->workspace + (phase == 0 ? part * t.pairs : 0);
    if (phase == 1) {
        for (int64_t i = 0; i < qn_ne(y, 0); i++) {
            double sum = 0;
            for (int64_t p = 0; i < t.pairs && p < s->parts[0]; p++) sum += sums[p * t.pairs + i];
            qn_put4(y, 0, 0, 0, i, i < t.pairs ? sum / qn_get4(factors, 0, 0, 0, i) : 0);
        }
        return;
    }
    memset(sums, 0, (size_t)t.pairs * sizeof *sums);
    int64_t end = qn_cpu_cut(t.tokens, s->parts[0], part + 1);
    for (int64_t token = qn_cpu_cut(t.tokens, s->parts[0], part); token < end; token++) {
        for (int64_t i = 0; i < t.pairs + VF_N; i++) along[i] = across[i] = 0;
        cos_sin(&t, token, angle, cosine, sine);
        token_gain(&t, g, x, token, along, across);
        for (int64_t i = 0; i < t.pairs; i++) sums[i] -= ((double)cosine[i] * across[i] - (double)sine[i] * along[i]) * angle[i];
    }
}

int QN_K(rope_factors_back)(const qn_call *c, qn_cpu_step *s) {
    const qn_attr_rope *at = c->attr;
    const qn_tensor *g = c->src[0], *x = c->src[1];
    int64_t pairs = at->mode == VISION ? at->n_dims : at->n_dims / 2, count = qn_tensor_count(x), tokens = qn_ne(x, 2);
    if (count == 0 || g->dtype != x->dtype || !qn_lanes_rows(g) || !qn_lanes_rows(x)) return 0;
    if (pairs > MOST_PAIRS || qn_ne(x, 0) == 1 || c->dst[0]->dtype != QN_DTYPE_F32) return 0;
    qn_cpu_by_rows(s, "rope_factors_back", run_factors, tokens, 8.0 * (double)count / (double)tokens, 40.0 * (double)pairs);
    s->n_phases = 2;
    s->parts[1] = 1;
    s->workspace = (size_t)(s->parts[0] * pairs) * sizeof(double);
    return 1;
}
