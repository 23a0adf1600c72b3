/* The Walsh-Hadamard transform, and the codes of turned vectors that caches are kept in. A vector is turned by R x = H (s x),
 * with s a fixed vector of signs: without it, what is regular in x would survive the transform. R keeps lengths and angles, so
 * scores of turned queries and keys are the scores, and the sum of turned values is turned back once. The turned coordinates are
 * close to normally distributed, whatever x was; each 256 of them are divided by their root mean square and rounded to the levels
 * of the best quantiser of a normal variable (codebooks.def). */
#include "op/turbo.h"

#include <math.h>

#include "op/op_emit.h"
#include "op/product.h"

/* ---- Signs, transform, levels */

double qn_op_turbo_sign(int64_t j) {
    static const uint8_t bits[QN_TURBO_WIDTH / 8] = {/* a set bit is -1; part of the codec: caches that were kept depend on it */
                                                     0xa7, 0x3b, 0x91, 0xf4, 0x6d, 0xc2, 0x58, 0x0e, 0xb3, 0x7f, 0x24, 0xd6, 0x89,
                                                     0x45, 0xea, 0x1c, 0x63, 0xaf, 0xd8, 0x52, 0x97, 0x0b, 0xe1, 0x3d, 0x76, 0xc4,
                                                     0x19, 0xfe, 0x4a, 0x85, 0x2c, 0xdb, 0xd3, 0x4e, 0xa8, 0x17, 0x9c, 0x5b, 0xe6,
                                                     0x31, 0x72, 0xb9, 0x0d, 0xf5, 0x43, 0x8a, 0x6e, 0xc7, 0x58, 0x2f, 0x94, 0xe1,
                                                     0xb6, 0x3d, 0x0a, 0x7c, 0xc5, 0x61, 0xd8, 0x4f, 0xa3, 0x97, 0x1e, 0x85};
    return bits[j / 8] >> (j % 8) & 1 ? -1 : 1;
}

void qn_op_turbo_transform(double *x, int64_t n) {
    for (int64_t h = 1; h < n; h *= 2)
        for (int64_t first = 0; first < n; first += 2 * h)
            for (int64_t j = first; j < first + h; j++) {
                double a = x[j], b = x[j + h];
                x[j] = a + b;
                x[j + h] = a - b;
            }
    double scale = 1 / sqrt((double)n);
    for (int64_t j = 0; j < n; j++) x[j] *= scale;
}

void qn_op_turbo_turn(double *x, int64_t n) {
    for (int64_t j = 0; j < n; j++) x[j] *= qn_op_turbo_sign(j);
    qn_op_turbo_transform(x, n);
}

void qn_op_turbo_unturn(double *x, int64_t n) {
    qn_op_turbo_transform(x, n);
    for (int64_t j = 0; j < n; j++) x[j] *= qn_op_turbo_sign(j);
}

double qn_op_turbo_level(int bits, int code) {
#define QN_LEVELS(n, ...) __VA_ARGS__,
    static const double positive[] = {
#include "op/codebooks.def"
    };
#undef QN_LEVELS
    int half = 1 << (bits - 1);
    const double *levels = positive + half - 2; /* 2 + 4 + .. for those with fewer bits */
    return code < half ? -levels[half - 1 - code] : levels[code - half];
}

/* How many limits between levels lie strictly below v; NaN has none below it. */
int qn_op_turbo_code(int bits, double v) {
    int code = 0;
    for (int step = 1 << (bits - 1); step; step /= 2)
        if ((qn_op_turbo_level(bits, code + step - 1) + qn_op_turbo_level(bits, code + step)) / 2 < v) code += step;
    return code;
}

void qn_op_turbo_decode(const qn_tensor *codes, const char *code_row, const qn_tensor *scale, const char *scale_row, int bits,
                        int64_t n, double *out) {
    for (int64_t j = 0; j < n; j++) {
        const uint8_t *at = (const uint8_t *)code_row + qn_op_turbo_bytes(bits, j) * qn_nb(codes, 0);
        int code = bits <= 4 ? *at >> (j % 2 * 4) & 15 : *at;
        double factor = qn_load_one((qn_dtype)scale->dtype, scale_row + j / QN_TURBO_BLOCK * qn_nb(scale, 0));
        out[j] = qn_op_turbo_level(bits, code & ((1 << bits) - 1)) * factor;
    }
}

/* ---- Shape rules */

qn_status qn_op_turbo_check(qn_infer_call *c, int slot, int64_t length, int64_t most) {
    const qn_tensor *t = c->src[slot];
    if (length < 1 || (length & (length - 1)) != 0)
        return qn_reject_src(c, slot, QN_REASON_SHAPE_POWER, qn_axis(t, 0), 0, length);
    return length > most ? qn_reject_src(c, slot, QN_REASON_SHAPE_LARGE, qn_axis(t, 0), most, length) : QN_OK;
}

/* The shape of t with another last extent. */
static qn_status out_rows(qn_infer_call *c, int i, uint32_t dtype, const qn_tensor *t, int64_t last) {
    int64_t d[QN_MAX_RANK];
    for (int k = 0; k < t->rank; k++) d[k] = t->shape[k];
    d[t->rank - 1] = last;
    return qn_out_shape(c, i, dtype, t->rank, d);
}

qn_status qn_infer_fwht(qn_infer_call *c) {
    const qn_tensor *x = c->src[0], *signs = c->src[1];
    int form = ((const qn_attr_fwht *)c->attr)->form;
    int64_t n = qn_ne(x, 0), most = form && !signs ? (int64_t)QN_TURBO_WIDTH : INT64_MAX / (int64_t)sizeof(double);
    QN_TRY(qn_op_turbo_check(c, 0, n, most));
    if (signs && !form) return qn_reject_src(c, 1, QN_REASON_NOT_TAKEN, -1, 0, 0);
    if (signs) {
        QN_TRY(qn_need_rank(c, 1, 1));
        QN_TRY(qn_need_extent(c, 1, 0, n));
        QN_TRY(qn_need_f64_pair(c, 1, 0));
    }
    c->workspace = (size_t)n * sizeof(double);
    c->flops_each = log2((double)n) + 1;
    qn_out_like(c, 0, x, x->dtype);
    return QN_OK;
}

qn_status qn_infer_tq_encode(qn_infer_call *c) {
    const qn_tensor *x = c->src[0];
    int bits = ((const qn_attr_tq_encode *)c->attr)->bits;
    int64_t n = qn_ne(x, 0);
    QN_TRY(qn_op_turbo_check(c, 0, n, QN_TURBO_WIDTH));
    if (n < 2) return qn_reject_src(c, 0, QN_REASON_SHAPE_SMALL, qn_axis(x, 0), 2, n);
    c->flops_each = 20;
    QN_TRY(out_rows(c, 0, QN_DTYPE_U8, x, qn_op_turbo_bytes(bits, n)));
    return out_rows(c, 1, qn_product_dtype(x), x, qn_op_turbo_scales(n));
}

qn_status qn_infer_tq_decode(qn_infer_call *c) {
    const qn_tensor *codes = c->src[0], *scale = c->src[1];
    int bits = ((const qn_attr_tq_decode *)c->attr)->bits;
    int64_t n = qn_ne(codes, 0) > QN_TURBO_WIDTH ? qn_ne(codes, 0) : qn_op_turbo_length(bits, qn_ne(codes, 0));
    QN_TRY(qn_op_turbo_check(c, 0, n, QN_TURBO_WIDTH));
    QN_TRY(qn_need_extent(c, 1, 0, qn_op_turbo_scales(n)));
    for (int k = 1; k < (codes->rank > scale->rank ? codes->rank : scale->rank); k++)
        QN_TRY(qn_need_extent(c, 1, k, qn_ne(codes, k)));
    return out_rows(c, 0, scale->dtype, codes, n);
}

/* ---- References */

static void put_signs(const qn_tensor *signs, double *x, int64_t n) {
    double s;
    for (int64_t j = 0; j < n; j++) {
        if (signs) qn_load_row(signs, qn_at(signs, 0), j, 1, &s);
        else s = qn_op_turbo_sign(j);
        x[j] *= s;
    }
}

qn_status qn_ref_fwht(const qn_call *c) {
    const qn_tensor *x = c->src[0], *y = c->dst[0], *signs = c->n_src > 1 ? c->src[1] : NULL;
    int form = ((const qn_attr_fwht *)c->attr)->form;
    double *row = c->workspace;
    qn_rows it;
    for (qn_rows_begin(&it, x->rank, x->shape); it.live; qn_rows_next(&it)) {
        qn_load_row(x, qn_row(&it, x), 0, it.n, row);
        if (form == 1) put_signs(signs, row, it.n);
        qn_op_turbo_transform(row, it.n);
        if (form == 2) put_signs(signs, row, it.n);
        qn_store_row(y, qn_row(&it, y), 0, it.n, row);
    }
    return QN_OK;
}

/* One block's codes. The scale is rounded first, so that decoding is off by the level's error only. */
static void encode_block(const qn_tensor *codes, char *row, int bits, int64_t first, int64_t n, double scale, const double *y) {
    for (int64_t j = first; j < first + n; j++) {
        char *at = row + qn_op_turbo_bytes(bits, j) * qn_nb(codes, 0);
        uint8_t code = (uint8_t)qn_op_turbo_code(bits, scale > 1e-10 ? y[j] / scale : 0);
        if (bits > 4) *(uint8_t *)at = code;
        else *(uint8_t *)at = (uint8_t)(j % 2 ? (*(uint8_t *)at & 15) | code << 4 : code);
    }
}

qn_status qn_ref_tq_encode(const qn_call *c) {
    const qn_attr_tq_encode *at = c->attr;
    const qn_tensor *x = c->src[0], *codes = c->dst[0], *scale = c->dst[1];
    double row[QN_TURBO_WIDTH];
    qn_rows it;
    for (qn_rows_begin(&it, x->rank, x->shape); it.live; qn_rows_next(&it)) {
        int64_t block = it.n < QN_TURBO_BLOCK ? it.n : QN_TURBO_BLOCK;
        qn_load_row(x, qn_row(&it, x), 0, it.n, row);
        if (at->rotate) qn_op_turbo_turn(row, it.n);
        for (int64_t first = 0; first < it.n; first += block) {
            double squares = 0, rms;
            char *place = qn_row(&it, scale) + first / block * qn_nb(scale, 0);
            for (int64_t j = 0; j < block; j++) squares += row[first + j] * row[first + j];
            qn_store_one((qn_dtype)scale->dtype, place, sqrt(squares / (double)block));
            rms = qn_load_one((qn_dtype)scale->dtype, place);
            encode_block(codes, qn_row(&it, codes), at->bits, first, block, rms, row);
        }
    }
    return QN_OK;
}

qn_status qn_ref_tq_decode(const qn_call *c) {
    const qn_attr_tq_decode *at = c->attr;
    const qn_tensor *codes = c->src[0], *scale = c->src[1], *y = c->dst[0];
    double row[QN_TURBO_WIDTH];
    qn_rows it;
    for (qn_rows_begin(&it, y->rank, y->shape); it.live; qn_rows_next(&it)) {
        qn_op_turbo_decode(codes, qn_row(&it, codes), scale, qn_row(&it, scale), at->bits, it.n, row);
        if (at->undo) qn_op_turbo_unturn(row, it.n);
        qn_store_row(y, qn_row(&it, y), 0, it.n, row);
    }
    return QN_OK;
}

/* ---- Gradients */

/* The transpose: what came first comes last. */
void qn_vjp_fwht(qn_vjp_call *v) {
    qn_attr_fwht at = *(const qn_attr_fwht *)v->attr;
    qn_val src[2] = {v->grad[0], v->src[1]};
    if (v->want[1]) {
        qn_vjp_refuse(v, 1, "signs are not varied");
        return;
    }
    at.form = at.form ? 3 - at.form : 0;
    if (v->want[0]) qn_emit_many(v, QN_OP_fwht, 0, &at, 2, src, 1, &v->out[0]);
}

/* Linear in the scales: a block's gradient is the sum of g times what the codes stand for at scale 1. */
void qn_vjp_tq_decode(qn_vjp_call *v) {
    qn_attr_tq_decode at = *(const qn_attr_tq_decode *)v->attr;
    qn_attr_fwht turn = qn_attr_fwht_default();
    qn_val g = v->grad[0], plain;
    if (!v->want[1]) return;
    turn.form = 1;
    if (at.undo) g = qn_emit1(v, QN_OP_fwht, 0, &turn, g);
    at.undo = 0;
    plain = qn_emit2(v, QN_OP_tq_decode, 0, &at, v->src[0], qn_e_scale(v, qn_e_zeros(v, v->src[1]), 1, 1));
    qn_shape s = qn_shape_of(v, plain);
    int64_t d[2] = {1, qn_sd(&s, 0) < QN_TURBO_BLOCK ? qn_sd(&s, 0) : QN_TURBO_BLOCK};
    for (int i = 0; i < s.rank; i++) d[0] *= s.d[i];
    d[0] /= d[1] ? d[1] : 1;
    v->out[1] = qn_e_like(v, qn_e_sum_rows(v, qn_e_reshape(v, qn_e_mul(v, g, plain), 2, d)), v->src[1]);
}
