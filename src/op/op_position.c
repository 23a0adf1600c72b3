/* Where a token stands, told to a model: rotary embeddings in all their forms, sine tables of time steps, relative position
 * terms of attention scores. Angles are computed in double straight from their definition, not by repeated multiplication. */
#include <math.h>

#include "op/op_emit.h"
#include "op/ref.h"

enum { ROPE_NORMAL = 0, ROPE_NEOX = 2, ROPE_MROPE = 8, ROPE_VISION = 24, ROPE_IMROPE = 40, PLANES = 4 };

static int is_multi(int32_t mode) { return mode == ROPE_MROPE || mode == ROPE_VISION || mode == ROPE_IMROPE; }

/* ---- Guards */

static qn_status check_sections(qn_infer_call *c, const qn_attr_rope *at, int64_t width) {
    const qn_dims *s = &at->sections;
    int multi = is_multi(at->mode);
    int64_t sum = 0;
    if (s->rank != PLANES && (multi || s->rank)) return qn_reject_attr(c, "sections", QN_REASON_ATTR_RANK, -1, PLANES, s->rank);
    if (!multi) return QN_OK;
    for (int i = 0; i < PLANES; i++) {
        if (s->d[i] < 0) return qn_reject_attr(c, "sections", QN_REASON_ATTR_ENTRY_LOW, i, 0, s->d[i]);
        if (s->d[i] > width - sum)
            return qn_reject_attr(c, "sections", QN_REASON_ATTR_HIGH, -1, qn_f_bits((double)width),
                                  qn_f_bits((double)sum + (double)s->d[i]));
        sum += s->d[i];
    }
    if (sum - s->d[PLANES - 1] == 0) return qn_reject_attr(c, "sections", QN_REASON_ATTR_LOW, -1, qn_f_bits(1), qn_f_bits(0));
    return QN_OK;
}

/* Which channels turn: an even number of them inside the row, all of it in vision mode. */
static qn_status check_channels(qn_infer_call *c, const qn_attr_rope *at, int slot) {
    const qn_tensor *x = c->src[slot];
    int64_t width = qn_ne(x, 0);
    if (at->n_dims % 2) return qn_reject_attr(c, "n_dims", QN_REASON_ATTR_EVEN, -1, 2, at->n_dims);
    if (at->n_dims > width)
        return qn_reject_attr(c, "n_dims", QN_REASON_ATTR_HIGH, -1, qn_f_bits((double)width), qn_f_bits((double)at->n_dims));
    if (at->mode == ROPE_VISION) {
        if (width % 2) return qn_reject_src(c, slot, QN_REASON_SHAPE_MULTIPLE, x->rank - 1, 2, width);
        if (at->n_dims != width / 2) return qn_reject_attr(c, "n_dims", QN_REASON_ATTR_VALUE, -1, width / 2, at->n_dims);
        if (at->n_offs) return qn_reject_attr(c, "n_offs", QN_REASON_ATTR_VALUE, -1, 0, at->n_offs);
    }
    if (at->n_offs % 2) return qn_reject_attr(c, "n_offs", QN_REASON_ATTR_EVEN, -1, 0, at->n_offs);
    if (at->n_offs > width - at->n_dims)
        return qn_reject_attr(c, "n_offs", QN_REASON_ATTR_HIGH, -1, qn_f_bits((double)(width - at->n_dims)),
                              qn_f_bits((double)at->n_offs));
    return QN_OK;
}

/* x is source `slot`; positions and frequency factors are the two behind it. */
static qn_status check_rope(qn_infer_call *c, int slot) {
    const qn_attr_rope *at = c->attr;
    const qn_tensor *x = c->src[slot], *factors = c->src[slot + 2];
    int64_t n_pos = qn_ne(x, 2);
    if (at->mode != ROPE_NORMAL && at->mode != ROPE_NEOX && !is_multi(at->mode))
        return qn_reject_attr(c, "mode", QN_REASON_ATTR_CHOICE, -1, ROPE_NORMAL, at->mode);
    QN_TRY(check_channels(c, at, slot));
    QN_TRY(check_sections(c, at, qn_ne(x, 0)));
    if (at->ext_factor != 0 && at->freq_scale <= 0)
        return qn_reject_attr(c, "freq_scale", QN_REASON_ATTR_ABOVE, -1, qn_f_bits(0), qn_f_bits((double)at->freq_scale));
    if (is_multi(at->mode)) n_pos *= PLANES; /* fits: a row has two channels or more, of two bytes or more */
    QN_TRY(qn_need_rank(c, slot + 1, 1));
    QN_TRY(qn_need_extent(c, slot + 1, 0, n_pos));
    if (!factors) return QN_OK;
    QN_TRY(qn_need_rank(c, slot + 2, 1));
    int64_t pairs = at->mode == ROPE_VISION ? at->n_dims : at->n_dims / 2;
    if (qn_ne(factors, 0) < pairs)
        return qn_reject_src(c, slot + 2, QN_REASON_SHAPE_SMALL, factors->rank - 1, pairs, qn_ne(factors, 0));
    return QN_OK;
}

qn_status qn_infer_rope(qn_infer_call *c) {
    QN_TRY(check_rope(c, 0));
    c->flops_each = 4;
    qn_out_like(c, 0, c->src[0], c->src[0]->dtype);
    return QN_OK;
}

qn_status qn_infer_rope_factors_back(qn_infer_call *c) {
    QN_TRY(check_rope(c, 1));
    QN_TRY(qn_need_same_shape(c, 0, 1));
    qn_out_like(c, 0, c->src[3], c->src[3]->dtype);
    return QN_OK;
}

qn_status qn_infer_timestep_embedding(qn_infer_call *c) {
    QN_TRY(qn_need_rank(c, 0, 1));
    int64_t d[2] = {qn_ne(c->src[0], 0), ((const qn_attr_timestep_embedding *)c->attr)->dim};
    return qn_out_shape(c, 0, c->src[0]->dtype, 2, d);
}

qn_status qn_infer_get_rel_pos(qn_infer_call *c) {
    const qn_attr_get_rel_pos *at = c->attr;
    QN_TRY(qn_need_rank(c, 0, 2));
    if (at->kh != at->qh) return qn_reject_attr(c, "kh", QN_REASON_ATTR_VALUE, -1, at->qh, at->kh);
    QN_TRY(qn_need_extent(c, 0, 1, at->qh + (at->kh - 1))); /* fits: the table of ops ends at 2^62 */
    int64_t d[3] = {at->qh, at->kh, qn_ne(c->src[0], 0)};
    return qn_out_shape(c, 0, c->src[0]->dtype, 3, d);
}

qn_status qn_infer_add_rel_pos(qn_infer_call *c) {
    const qn_tensor *a = c->src[0], *w = c->src[1];
    int64_t keys, queries;
    QN_TRY(qn_need_rank(c, 0, 3));
    QN_TRY(qn_need_rank(c, 1, 4));
    QN_TRY(qn_need_extent(c, 1, 3, qn_ne(a, 2)));
    QN_TRY(qn_need_same_shape(c, 2, 1));
    if (qn_mul_overflow(qn_ne(w, 0), qn_ne(w, 0), &keys))
        return qn_reject_src(c, 1, QN_REASON_SIZE_OVERFLOW, w->rank - 1, INT64_MAX, qn_ne(w, 0));
    queries = qn_ne(w, 2) * qn_ne(w, 1); /* fits: its descriptor was checked */
    QN_TRY(qn_need_extent(c, 0, 0, keys));
    QN_TRY(qn_need_extent(c, 0, 1, queries));
    QN_TRY(qn_need_same_dtype(c, 1, 0));
    QN_TRY(qn_need_same_dtype(c, 2, 0));
    qn_out_like(c, 0, a, a->dtype);
    return QN_OK;
}

/* ---- Rope */

typedef struct rope {
    const qn_attr_rope *at;
    const qn_tensor *pos, *factors;
    int64_t steps;                       /* tokens */
    int64_t pairs, first, apart, stride; /* pair i turns channels first + i stride and `apart` further */
    int64_t end[PLANES];                 /* where each section ends */
    double low, high, gain;              /* YaRN's ramp, and the factor of both cosine and sine */
} rope;

/* Pair at which n_ctx_orig tokens make r turns. */
static double turns_at(const qn_attr_rope *at, double r) {
    return at->n_dims * log(at->n_ctx_orig / (2 * acos(-1) * r)) / (2 * log((double)at->freq_base));
}

static void rope_open(rope *p, const qn_attr_rope *at, const qn_tensor *x, const qn_tensor *pos, const qn_tensor *factors) {
    *p = (rope){.at = at, .pos = pos, .factors = factors, .steps = qn_ne(x, 2), .gain = (double)at->attn_factor};
    int vision = at->mode == ROPE_VISION;
    p->pairs = vision ? at->n_dims : at->n_dims / 2;
    p->first = at->n_offs;
    p->stride = at->mode == ROPE_NORMAL ? 2 : 1;
    p->apart = at->mode == ROPE_NORMAL ? 1 : p->pairs;
    int64_t end = 0;
    for (int i = 0; is_multi(at->mode) && i < PLANES; i++) p->end[i] = end += at->sections.d[i];
    if (at->ext_factor == 0) return;
    /* fmax and fmin drop the NaN of 0 turns in 0 tokens, and -Inf keeps its place */
    p->low = fmax(0, floor(turns_at(at, (double)at->beta_fast)));
    p->high = fmin(at->n_dims - 1, ceil(turns_at(at, (double)at->beta_slow)));
    p->gain *= 1 + 0.1 * log(1 / (double)at->freq_scale);
}

/* Position plane of section index s; *start is where its section begins. */
static int plane_of(const rope *p, int64_t s, int64_t *start) {
    const int64_t *n = p->at->sections.d;
    *start = 0;
    if (p->at->mode == ROPE_IMROPE) {
        if (s % 3 == 1 && s < 3 * n[1]) return 1;
        if (s % 3 == 2 && s < 3 * n[2]) return 2;
        return s % 3 == 0 && s < 3 * n[0] ? 0 : 3;
    }
    int plane = 0;
    while (plane < PLANES - 1 && s >= p->end[plane]) plane++;
    if (plane) *start = p->end[plane - 1];
    return plane;
}

/* Angle of pair i at token t. */
static double angle_of(const rope *p, int64_t i, int64_t t) {
    const qn_attr_rope *at = p->at;
    int64_t power = i, plane = 0, start;
    if (is_multi(at->mode)) {
        int64_t s = i % p->end[PLANES - 1];
        plane = plane_of(p, s, &start);
        if (at->mode == ROPE_VISION) power = s - start;
    }
    double far = (double)qn_index4(p->pos, 0, 0, 0, t + plane * p->steps);
    far *= pow((double)at->freq_base, -2.0 * (double)power / at->n_dims);
    if (p->factors) far /= qn_get4(p->factors, 0, 0, 0, i);
    double near = (double)at->freq_scale * far;
    if (at->ext_factor == 0) return near;
    double ramp = ((double)i - p->low) / fmax(0.001, p->high - p->low);
    double mix = (double)at->ext_factor * (1 - fmin(1, fmax(0, ramp)));
    return near * (1 - mix) + far * mix;
}

/* All rows of one token: the shape with the token axis and the last one taken to be 1. */
static int token_shape(const qn_tensor *x, int64_t *d) {
    for (int k = 0; k < x->rank; k++) d[x->rank - 1 - k] = k == 0 || k == 2 ? 1 : qn_ne(x, k);
    return x->rank;
}

static void turn(const rope *p, const qn_tensor *x, const qn_tensor *y, int64_t i, int64_t t, double c, double s) {
    int64_t d[QN_MAX_RANK], u = p->first + i * p->stride, v = u + p->apart;
    qn_dtype dtype = (qn_dtype)x->dtype;
    qn_rows it;
    for (qn_rows_begin(&it, token_shape(x, d), d); it.live; qn_rows_next(&it)) {
        const char *from = qn_row(&it, x) + t * qn_nb(x, 2);
        char *to = qn_row(&it, y) + t * qn_nb(y, 2);
        double a = qn_load_one(dtype, from + u * qn_nb(x, 0)), b = qn_load_one(dtype, from + v * qn_nb(x, 0));
        qn_store_one(dtype, to + u * qn_nb(y, 0), a * c - b * s);
        qn_store_one(dtype, to + v * qn_nb(y, 0), a * s + b * c);
    }
}

static qn_status rotate(const qn_call *c, double direction) {
    rope p;
    const qn_tensor *x = c->src[0], *y = c->dst[0];
    rope_open(&p, c->attr, x, c->src[1], c->src[2]);
    if (qn_tensor_count(x) == 0) return QN_OK;
    if (qn_at(x, 0) != qn_at(y, 0)) qn_copy(y, x); /* channels that do not turn keep their bits */
    for (int64_t t = 0; t < p.steps; t++)
        for (int64_t i = 0; i < p.pairs; i++) {
            double angle = angle_of(&p, i, t);
            turn(&p, x, y, i, t, p.gain * cos(angle), direction * p.gain * sin(angle));
        }
    return QN_OK;
}

qn_status qn_ref_rope(const qn_call *c) { return rotate(c, 1); }
qn_status qn_ref_rope_back(const qn_call *c) { return rotate(c, -1); }

/* What turning the pair further would gain, summed over all rows of one token: <g, dy/dangle>. */
static double torque(const rope *p, const qn_tensor *g, const qn_tensor *x, int64_t i, int64_t t, double c, double s) {
    int64_t d[QN_MAX_RANK], u = p->first + i * p->stride, v = u + p->apart;
    double sum = 0;
    qn_rows it;
    for (qn_rows_begin(&it, token_shape(x, d), d); it.live; qn_rows_next(&it)) {
        const char *from = qn_row(&it, x) + t * qn_nb(x, 2), *up = qn_row(&it, g) + t * qn_nb(g, 2);
        double a, b, ga, gb;
        qn_load_row(x, from, u, 1, &a);
        qn_load_row(x, from, v, 1, &b);
        qn_load_row(g, up, u, 1, &ga);
        qn_load_row(g, up, v, 1, &gb);
        sum += gb * (a * c - b * s) - ga * (a * s + b * c);
    }
    return sum;
}

/* An angle is inversely proportional to its factor, YaRN or not: dangle/dfactor = -angle / factor. */
qn_status qn_ref_rope_factors_back(const qn_call *c) {
    rope p;
    const qn_tensor *g = c->src[0], *x = c->src[1], *y = c->dst[0];
    rope_open(&p, c->attr, x, c->src[2], c->src[3]);
    qn_fill(y, 0);
    if (qn_tensor_count(x) == 0) return QN_OK;
    for (int64_t i = 0; i < p.pairs; i++) {
        double sum = 0;
        for (int64_t t = 0; t < p.steps; t++) {
            double angle = angle_of(&p, i, t);
            sum -= torque(&p, g, x, i, t, p.gain * cos(angle), p.gain * sin(angle)) * angle;
        }
        qn_put4(y, 0, 0, 0, i, sum / qn_get4(p.factors, 0, 0, 0, i));
    }
    return QN_OK;
}

/* ---- The others */

/* Cosines, then sines, of t f_j with f_j = max_period^(-j / half); an odd column at the end is zero. */
qn_status qn_ref_timestep_embedding(const qn_call *c) {
    const qn_attr_timestep_embedding *at = c->attr;
    const qn_tensor *t = c->src[0], *y = c->dst[0];
    int64_t half = at->dim / 2;
    for (int64_t i = 0; i < qn_ne(t, 0); i++) {
        double when = qn_get4(t, 0, 0, 0, i);
        for (int64_t j = 0; j < half; j++) {
            double angle = when * exp(-log(at->max_period) * (double)j / (double)half);
            qn_put4(y, 0, 0, i, j, cos(angle));
            qn_put4(y, 0, 0, i, half + j, sin(angle));
        }
        if (at->dim % 2) qn_put4(y, 0, 0, i, at->dim - 1, 0);
    }
    return QN_OK;
}

/* y[q,k,:] = a[q - k + kh - 1,:], bits and all. */
qn_status qn_ref_get_rel_pos(const qn_call *c) {
    const qn_tensor *a = c->src[0], *y = c->dst[0];
    size_t bytes = (size_t)qn_dtype_bytes(a->dtype);
    if (qn_tensor_count(y) == 0) return QN_OK;
    for (int64_t q = 0; q < qn_ne(y, 2); q++)
        for (int64_t k = 0; k < qn_ne(y, 1); k++)
            for (int64_t i = 0; i < qn_ne(y, 0); i++)
                memcpy(qn_at(y, qn_off4(y, 0, q, k, i)), qn_at(a, qn_off4(a, 0, 0, q - k + qn_ne(y, 1) - 1, i)), bytes);
    return QN_OK;
}

/* y[b,q,h,w] = a[b,q,h,w] + ph[b,q,h] + pw[b,q,w], where q counts the queries row by row. */
qn_status qn_ref_add_rel_pos(const qn_call *c) {
    const qn_tensor *a = c->src[0], *pw = c->src[1], *ph = c->src[2], *y = c->dst[0];
    int64_t side = qn_ne(pw, 0), across = qn_ne(pw, 1);
    if (qn_tensor_count(y) == 0) return QN_OK;
    for (int64_t b = 0; b < qn_ne(y, 2); b++)
        for (int64_t q = 0; q < qn_ne(y, 1); q++)
            for (int64_t i = 0; i < side * side; i++) {
                double h = qn_get4(ph, b, q / across, q % across, i / side), w = qn_get4(pw, b, q / across, q % across, i % side);
                qn_put4(y, 0, b, q, i, qn_get4(a, 0, b, q, i) + h + w);
            }
    return QN_OK;
}

/* ---- Gradients */

/* The records of rope, rope_back and rope_factors_back have the same fields, so one serves all. */
void qn_vjp_rope(qn_vjp_call *v) {
    qn_val g = v->grad[0], x = v->src[0], pos = v->src[1], factors = v->n_src > 2 ? v->src[2] : QN_VAL_NONE, out;
    if (v->want[0]) v->out[0] = qn_emit3(v, QN_OP_rope_back, 0, v->attr, g, pos, factors);
    if (factors == QN_VAL_NONE || !v->want[2]) return;
    qn_val src[4] = {g, x, pos, factors};
    qn_emit_many(v, QN_OP_rope_factors_back, 0, v->attr, 4, src, 1, &out);
    v->out[2] = out;
}

/* rope_back is the transpose: <up, rope_back(g)> = <rope(up), g>, so for the factors the two change places. */
void qn_vjp_rope_back(qn_vjp_call *v) {
    qn_val up = v->grad[0], g = v->src[0], pos = v->src[1], factors = v->n_src > 2 ? v->src[2] : QN_VAL_NONE, out;
    if (v->want[0]) v->out[0] = qn_emit3(v, QN_OP_rope, 0, v->attr, up, pos, factors);
    if (factors == QN_VAL_NONE || !v->want[2]) return;
    qn_val src[4] = {g, up, pos, factors};
    qn_emit_many(v, QN_OP_rope_factors_back, 0, v->attr, 4, src, 1, &out);
    v->out[2] = out;
}

/* dt = sum_j f_j (cos_j gsin_j - sin_j gcos_j), the cosines and sines taken from the result. f_j = e^{-j rate}, j by counting
 * ones; the rate goes in two parts, for one f32 attribute would cost the f64 gradient its last digits. */
void qn_vjp_timestep_embedding(qn_vjp_call *v) {
    const qn_attr_timestep_embedding *at = v->attr;
    int64_t half = at->dim / 2;
    qn_val y = v->dst[0], g = v->grad[0], halves[4];
    for (int i = 0; i < 4; i++) halves[i] = qn_e_slice(v, i < 2 ? y : g, 1, i % 2 ? half : 0, half);
    qn_val turn_by = qn_e_sub(v, qn_e_mul(v, halves[0], halves[3]), qn_e_mul(v, halves[1], halves[2]));
    qn_attr_fill one = qn_attr_fill_default();
    one.c = 1;
    qn_attr_cumsum before = qn_attr_cumsum_default();
    before.exclusive = 1;
    qn_val j = qn_emit1(v, QN_OP_cumsum, 0, &before, qn_emit1(v, QN_OP_fill, 0, &one, turn_by));
    double rate = -log(at->max_period) / (double)half, coarse = (double)(float)rate;
    qn_val f = qn_e_unary(v, QN_UNARY_exp, qn_e_add(v, qn_e_scale(v, j, coarse, 0), qn_e_scale(v, j, rate - coarse, 0)));
    v->out[0] = qn_e_like(v, qn_e_sum_rows(v, qn_e_mul(v, turn_by, f)), v->src[0]);
}

/* The result is a window into the table that goes up with the query and down with the key. view_back counts bytes of f32, or
 * of f64 when its source is. */
void qn_vjp_get_rel_pos(qn_vjp_call *v) {
    qn_shape a = qn_shape_of(v, v->src[0]), y = qn_shape_of(v, v->dst[0]);
    if (v->status != QN_OK) return;
    int64_t bytes = qn_shape_of(v, v->grad[0]).dtype == QN_DTYPE_F64 ? 8 : 4, row, all;
    if (qn_mul_overflow(qn_sd(&a, 0), bytes, &row) || qn_mul_overflow(row, qn_sd(&a, 1), &all)) {
        v->status = QN_INVALID;
        return;
    }
    int64_t d[3] = {qn_sd(&y, 2), qn_sd(&y, 1), qn_sd(&y, 0)};
    qn_attr_view_back at = qn_attr_view_back_default();
    at.shape = (qn_dims){.rank = 2, .d = {qn_sd(&a, 1), qn_sd(&a, 0)}};
    at.strides = (qn_dims){.rank = 3, .d = {row, -row, bytes}};
    at.offset = (d[1] - 1) * row;
    v->out[0] = qn_e_like(v, qn_emit1(v, QN_OP_view_back, 0, &at, qn_e_reshape(v, v->grad[0], 3, d)), v->src[0]);
}

void qn_vjp_add_rel_pos(qn_vjp_call *v) {
    qn_shape a = qn_shape_of(v, v->src[0]), w = qn_shape_of(v, v->src[1]);
    int64_t side = qn_sd(&w, 0), full[4] = {qn_sd(&a, 2), qn_sd(&a, 1), side, side}, rows[4] = {full[0], full[1], 1, side};
    if (v->want[0]) v->out[0] = v->grad[0];
    qn_val g = v->want[1] || v->want[2] ? qn_e_reshape(v, v->grad[0], 4, full) : QN_VAL_NONE;
    if (v->want[1]) v->out[1] = qn_e_like(v, qn_e_untile(v, g, 4, rows), v->src[1]);
    if (v->want[2]) v->out[2] = qn_e_like(v, qn_e_sum_rows(v, g), v->src[2]);
}
