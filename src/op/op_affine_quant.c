/* Weights as codes of 2 to 8 bits with a scale and a bias for each group of a row: w = code scale + bias. The codes of a row are
 * one stream of bits, the lowest bit first, stored in bytes or 32-bit words. Products decode in full precision and round nothing
 * but the result. */
#include <math.h>

#include "op/op_tape.h"
#include "op/product.h"

_Static_assert(sizeof(qn_attr_affine_matmul) == sizeof(qn_attr_affine_dequantize), "shared attributes");
_Static_assert(sizeof(qn_attr_affine_matmul_id) == sizeof(qn_attr_affine_dequantize), "shared attributes");
_Static_assert(sizeof(qn_attr_affine_get_rows) == sizeof(qn_attr_affine_dequantize), "shared attributes");
_Static_assert(offsetof(qn_attr_affine_matmul, group) == offsetof(qn_attr_affine_dequantize, group), "shared attributes");

/* ---- Codes */

static int unit_bits(const qn_tensor *codes) { return codes->dtype == QN_DTYPE_U8 ? 8 : 32; }

static uint32_t code_at(const qn_tensor *codes, const char *row, int bits, int64_t i) {
    int unit = unit_bits(codes), off = (int)(i * bits % unit);
    int64_t word = i * bits / unit;
    uint64_t have = (uint64_t)qn_load_index((qn_dtype)codes->dtype, row + word * qn_nb(codes, 0));
    if (off + bits > unit) have |= (uint64_t)qn_load_index((qn_dtype)codes->dtype, row + (word + 1) * qn_nb(codes, 0)) << unit;
    return (uint32_t)(have >> off) & ((1u << bits) - 1);
}

/* Words are written from the first code on, so a word's first code clears it. */
static void put_code(const qn_tensor *codes, char *row, int bits, int64_t i, uint32_t code) {
    int off = (int)(i * bits % 32);
    char *at = row + i * bits / 32 * qn_nb(codes, 0);
    uint32_t low = code << off, have = 0;
    if (off) memcpy(&have, at, sizeof have);
    have |= low;
    memcpy(at, &have, sizeof have);
    if (off + bits <= 32) return;
    have = code >> (32 - off);
    memcpy(at + qn_nb(codes, 0), &have, sizeof have);
}

/* A matrix in codes: three tensors with the same axes but the last. */
typedef struct packed {
    const qn_tensor *codes, *scales, *biases;
    int bits;
    int64_t group;
} packed;

static packed packed_of(const qn_tensor *const *src, const void *attr) {
    const qn_attr_affine_dequantize *at = attr;
    return (packed){src[0], src[1], src[2], at->bits, at->group};
}

static double weight_at(const packed *p, const char *codes, const char *scales, const char *biases, int64_t i) {
    double s, b;
    qn_load_row(p->scales, scales, i / p->group, 1, &s);
    qn_load_row(p->biases, biases, i / p->group, 1, &b);
    return code_at(p->codes, codes, p->bits, i) * s + b;
}

/* Elements [first, first + n) of row (i2, i1). */
static void load_weights(const packed *p, int64_t i2, int64_t i1, int64_t first, int64_t n, double *out) {
    const char *codes = qn_row4(p->codes, 0, i2, i1), *scales = qn_row4(p->scales, 0, i2, i1),
               *biases = qn_row4(p->biases, 0, i2, i1);
    for (int64_t i = 0; i < n; i++) out[i] = weight_at(p, codes, scales, biases, first + i);
}

/* ---- Shape rules */

/* Codes, scales and biases from slot `first` on fit each other; *length is that of a decoded row. */
static qn_status check_packed(qn_infer_call *c, int first, int64_t *length) {
    const qn_attr_affine_dequantize *at = c->attr;
    const qn_tensor *codes = c->src[first], *scales = c->src[first + 1];
    int64_t units;
    if (qn_mul_overflow(qn_ne(scales, 0), at->group, length) || qn_mul_overflow(*length, at->bits, &units))
        return qn_reject_src(c, first + 1, QN_REASON_SIZE_OVERFLOW, qn_axis(scales, 0), INT64_MAX, qn_ne(scales, 0));
    if (units % unit_bits(codes)) return qn_reject_src(c, first + 1, QN_REASON_SHAPE_MULTIPLE, qn_axis(scales, 0), 32, *length);
    QN_TRY(qn_need_extent(c, first, 0, units / unit_bits(codes)));
    for (int k = 1; k < (codes->rank > scales->rank ? codes->rank : scales->rank); k++)
        QN_TRY(qn_need_extent(c, first + 1, k, qn_ne(codes, k)));
    QN_TRY(qn_need_same_shape(c, first + 2, first + 1));
    return qn_need_same_dtype(c, first + 2, first + 1);
}

qn_status qn_infer_affine_quantize(qn_infer_call *c) {
    const qn_attr_affine_quantize *at = c->attr;
    const qn_tensor *w = c->src[0];
    int64_t d[QN_MAX_RANK], n = qn_ne(w, 0);
    if (n % at->group) return qn_reject_src(c, 0, QN_REASON_SHAPE_MULTIPLE, qn_axis(w, 0), at->group, n);
    if (n * at->bits % 32)
        return qn_reject_src(c, 0, QN_REASON_SHAPE_MULTIPLE, qn_axis(w, 0), 32, n); /* fits: w has n elements */
    for (int k = 0; k < w->rank; k++) d[k] = w->shape[k];
    d[w->rank - 1] = n * at->bits / 32;
    QN_TRY(qn_out_shape(c, 0, QN_DTYPE_U32, w->rank, d));
    d[w->rank - 1] = n / at->group;
    QN_TRY(qn_out_shape(c, 1, w->dtype, w->rank, d));
    return qn_out_shape(c, 2, w->dtype, w->rank, d);
}

qn_status qn_infer_affine_dequantize(qn_infer_call *c) {
    const qn_tensor *codes = c->src[0];
    int64_t d[QN_MAX_RANK], n;
    QN_TRY(check_packed(c, 0, &n));
    for (int k = 0; k < codes->rank; k++) d[k] = codes->shape[k];
    d[codes->rank - 1] = n;
    c->flops_each = 2;
    return qn_out_shape(c, 0, c->src[1]->dtype, codes->rank, d);
}

qn_status qn_infer_affine_matmul(qn_infer_call *c) {
    const qn_tensor *x = c->src[0], *codes = c->src[1];
    int64_t d[QN_MAX_RANK], n;
    QN_TRY(qn_need_rank(c, 1, 2));
    QN_TRY(check_packed(c, 1, &n));
    QN_TRY(qn_need_extent(c, 0, 0, n));
    QN_TRY(qn_need_f64_pair(c, 2, 0));
    for (int k = 0; k < x->rank; k++) d[k] = x->shape[k];
    d[x->rank - 1] = qn_ne(codes, 1);
    c->flops_each = 2.0 * (double)n;
    return qn_out_shape(c, 0, x->dtype, x->rank, d);
}

qn_status qn_infer_affine_matmul_id(qn_infer_call *c) {
    const qn_tensor *x = c->src[0], *codes = c->src[1], *ids = c->src[4];
    int64_t n;
    QN_TRY(qn_need_rank(c, 0, 3));
    QN_TRY(qn_need_rank(c, 1, 3));
    QN_TRY(check_packed(c, 1, &n));
    QN_TRY(qn_need_extent(c, 0, 0, n));
    QN_TRY(qn_need_rank(c, 4, 2));
    QN_TRY(qn_need_extent(c, 4, 1, qn_ne(x, 2)));
    if (qn_ne(x, 1) != 1) QN_TRY(qn_need_extent(c, 0, 1, qn_ne(ids, 0)));
    QN_TRY(qn_need_f64_pair(c, 2, 0));
    c->index_limit[4] = qn_ne(codes, 2);
    c->flops_each = 2.0 * (double)n;
    int64_t d[3] = {qn_ne(x, 2), qn_ne(ids, 0), qn_ne(codes, 1)};
    return qn_out_shape(c, 0, qn_product_dtype(x), 3, d);
}

qn_status qn_infer_affine_get_rows(qn_infer_call *c) {
    int64_t n;
    QN_TRY(qn_need_rank(c, 0, 2));
    QN_TRY(check_packed(c, 0, &n));
    QN_TRY(qn_need_rank(c, 3, 1));
    c->index_limit[3] = qn_ne(c->src[0], 1);
    int64_t d[2] = {qn_ne(c->src[3], 0), n};
    return qn_out_shape(c, 0, qn_product_dtype(c->src[1]), 2, d);
}

/* ---- Quantising */

typedef struct range {
    double low, high;
} range;

static range range_of(const qn_tensor *w, const char *row, int64_t first, int64_t n) {
    range r = {INFINITY, -INFINITY};
    for (int64_t i = first; i < first + n; i++) {
        double v;
        qn_load_row(w, row, i, 1, &v);
        if (v < r.low) r.low = v;
        if (v > r.high) r.high = v;
    }
    return r;
}

/* The larger edge exact, zero nearly so; a scale may be negative. */
static void edge_scale(range r, double top, double *scale, double *bias) {
    double high = r.high > 0 ? r.high : 0, s = fmax((high - r.low) / top, 1e-7), edge = r.low;
    if (!(fabs(r.low) > fabs(high))) {
        s = -s;
        edge = high;
    }
    double steps = round(edge / s);
    *scale = steps != 0 ? edge / steps : s;
    *bias = steps != 0 ? edge : 0;
}

static void span_scale(range r, double top, double *scale, double *bias) {
    *bias = r.low;
    *scale = (r.high - r.low) / top > 0 ? (r.high - r.low) / top : 1;
}

/* As it is stored, so that codes are of what will be decoded. */
static double stored(const qn_tensor *t, char *row, int64_t i, double v) {
    qn_store_row(t, row, i, 1, &v);
    qn_load_row(t, row, i, 1, &v);
    return v;
}

/* Halves away from zero, of a quotient in the precision of the weights: what lies half way between two levels in their own
 * numbers is half way here too, although the scale was rounded. */
static uint32_t nearest(const qn_tensor *w, double v, double scale, double bias, double top) {
    double z = w->dtype == QN_DTYPE_F64 ? (v - bias) / scale : (double)((float)(v - bias) / (float)scale);
    z = round(z);
    return z >= top ? (uint32_t)top : z > 0 ? (uint32_t)z : 0; /* NaN is 0 */
}

qn_status qn_ref_affine_quantize(const qn_call *c) {
    const qn_attr_affine_quantize *at = c->attr;
    const qn_tensor *w = c->src[0], *codes = c->dst[0], *scales = c->dst[1], *biases = c->dst[2];
    double top = (double)((1 << at->bits) - 1), scale, bias, v;
    qn_rows it;
    for (qn_rows_begin(&it, w->rank, w->shape); it.live; qn_rows_next(&it)) {
        const char *row = qn_row(&it, w);
        for (int64_t first = 0; first < it.n; first += at->group) {
            range r = range_of(w, row, first, at->group);
            if (at->kind) span_scale(r, top, &scale, &bias);
            else edge_scale(r, top, &scale, &bias);
            scale = stored(scales, qn_row(&it, scales), first / at->group, scale);
            bias = stored(biases, qn_row(&it, biases), first / at->group, bias);
            for (int64_t i = first; i < first + at->group; i++) {
                qn_load_row(w, row, i, 1, &v);
                put_code(codes, qn_row(&it, codes), at->bits, i, nearest(w, v, scale, bias, top));
            }
        }
    }
    return QN_OK;
}

/* ---- Decoding and products */

qn_status qn_ref_affine_dequantize(const qn_call *c) {
    const qn_tensor *y = c->dst[0];
    packed p = packed_of(c->src, c->attr);
    qn_rows it;
    for (qn_rows_begin(&it, y->rank, y->shape); it.live; qn_rows_next(&it)) {
        const char *codes = qn_row(&it, p.codes), *scales = qn_row(&it, p.scales), *biases = qn_row(&it, p.biases);
        for (int64_t i = 0; i < it.n; i++) {
            double v = weight_at(&p, codes, scales, biases, i);
            qn_store_row(y, qn_row(&it, y), i, 1, &v);
        }
    }
    return QN_OK;
}

static double dot(const packed *p, int64_t expert, int64_t column, const qn_tensor *x, const char *row, int64_t n) {
    double w[QN_RUN], v[QN_RUN], sum = 0;
    for (int64_t first = 0; first < n; first += QN_RUN) {
        int64_t some = qn_some(n, first);
        load_weights(p, expert, column, first, some, w);
        qn_load_row(x, row, first, some, v);
        for (int64_t i = 0; i < some; i++) sum += w[i] * v[i];
    }
    return sum;
}

qn_status qn_ref_affine_matmul(const qn_call *c) {
    const qn_tensor *x = c->src[0], *y = c->dst[0];
    packed p = packed_of(c->src + 1, c->attr);
    qn_rows it;
    for (qn_rows_begin(&it, y->rank, y->shape); it.live; qn_rows_next(&it))
        for (int64_t i = 0; i < it.n; i++) {
            double v = dot(&p, 0, i, x, qn_row(&it, x), qn_ne(x, 0));
            qn_store_row(y, qn_row(&it, y), i, 1, &v);
        }
    return QN_OK;
}

qn_status qn_ref_affine_matmul_id(const qn_call *c) {
    const qn_tensor *x = c->src[0], *ids = c->src[4], *y = c->dst[0];
    packed p = packed_of(c->src + 1, c->attr);
    if (qn_tensor_count(y) == 0) return QN_OK;
    for (int64_t t = 0; t < qn_ne(y, 2); t++)
        for (int64_t slot = 0; slot < qn_ne(y, 1); slot++) {
            int64_t expert = qn_index4(ids, 0, 0, t, slot);
            const char *row = qn_row4(x, 0, t, qn_ne(x, 1) == 1 ? 0 : slot);
            for (int64_t i = 0; i < qn_ne(y, 0); i++) qn_put4(y, 0, t, slot, i, dot(&p, expert, i, x, row, qn_ne(x, 0)));
        }
    return QN_OK;
}

qn_status qn_ref_affine_get_rows(const qn_call *c) {
    const qn_tensor *idx = c->src[3], *y = c->dst[0];
    packed p = packed_of(c->src, c->attr);
    double v;
    if (qn_tensor_count(y) == 0) return QN_OK;
    for (int64_t t = 0; t < qn_ne(y, 1); t++)
        for (int64_t i = 0; i < qn_ne(y, 0); i++) {
            load_weights(&p, 0, qn_index4(idx, 0, 0, 0, t), i, 1, &v);
            qn_put4(y, 0, 0, t, i, v);
        }
    return QN_OK;
}

/* ---- Gradients: scales and biases may learn, codes do not vary. */

static qn_val decoded(qn_vjp_call *v, int first) {
    return qn_emit3(v, QN_OP_affine_dequantize, 0, v->attr, v->src[first], v->src[first + 1], v->src[first + 2]);
}

void qn_vjp_affine_dequantize(qn_vjp_call *v) {
    const qn_attr_affine_dequantize *at = v->attr;
    qn_shape s = qn_shape_of(v, v->src[1]);
    int64_t d[2] = {1, at->group};
    for (int i = 0; i < s.rank; i++) d[0] *= s.d[i];
    qn_val g = v->grad[0];
    if (v->want[1]) {
        qn_val zeros = qn_e_zeros(v, v->src[1]);
        qn_val codes = qn_emit3(v, QN_OP_affine_dequantize, 0, at, v->src[0], qn_e_scale(v, zeros, 1, 1), zeros);
        v->out[1] = qn_e_like(v, qn_e_sum_rows(v, qn_e_reshape(v, qn_e_mul(v, g, codes), 2, d)), v->src[1]);
    }
    if (v->want[2]) v->out[2] = qn_e_like(v, qn_e_sum_rows(v, qn_e_reshape(v, g, 2, d)), v->src[2]);
}

static void matmul_formula(qn_vjp_call *v, qn_op_tape *t, qn_val *out) {
    (void)t;
    qn_attr_matmul at = qn_attr_matmul_default();
    at.transpose_b = 1;
    out[0] = qn_emit2(v, QN_OP_matmul, 0, &at, qn_op_wide(v, v->src[0]), qn_op_wide(v, decoded(v, 1)));
}

void qn_vjp_affine_matmul(qn_vjp_call *v) { qn_op_vjp_of_formula(v, matmul_formula); }

static void matmul_id_formula(qn_vjp_call *v, qn_op_tape *t, qn_val *out) {
    (void)t;
    out[0] = qn_emit3(v, QN_OP_mul_mat_id, 0, NULL, decoded(v, 1), v->src[0], v->src[4]);
}

void qn_vjp_affine_matmul_id(qn_vjp_call *v) { qn_op_vjp_of_formula(v, matmul_id_formula); }

static void get_rows_formula(qn_vjp_call *v, qn_op_tape *t, qn_val *out) {
    (void)t;
    out[0] = qn_emit2(v, QN_OP_get_rows, 0, NULL, decoded(v, 0), v->src[3]);
}

void qn_vjp_affine_get_rows(qn_vjp_call *v) { qn_op_vjp_of_formula(v, get_rows_formula); }
