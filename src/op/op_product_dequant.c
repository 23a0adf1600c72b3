/* Products with packed weights, decoded on the way. The schemes 0 to 5 hold the weights as [K, N], element k N + n of the
 * packed bytes in order, and their scales beside them; block dtypes hold [N, K] with the scales inside. Weights, scales and
 * zero points are constants: a gradient is given for x alone. */
#include <math.h>

#include "op/op_emit.h"
#include "op/product.h"

enum { INT8 = 0, INT8_ZERO = 1, INT4 = 2, E4M3 = 3, E5M2 = 4, NVFP4 = 5 };
enum { W = 1, SCALE = 2, ZERO = 3, GLOBAL = 4 }; /* slots behind x, or g */
enum { NVFP4_BLOCK = 16, INT_BLOCK = 32 };

static int is_half_byte(int32_t scheme) { return scheme == INT4 || scheme == NVFP4; }
static int has_scale(int32_t scheme) { return scheme != E4M3 && scheme != E5M2; }

/* Rows of the weights that share a scale. */
static int64_t block_of(int32_t scheme, int32_t block) { return block ? block : scheme == NVFP4 ? NVFP4_BLOCK : INT_BLOCK; }

/* ---- Shape rules */

/* Whether a side tensor is there exactly when the scheme has it. */
static qn_status need_side(qn_infer_call *c, int slot, int wanted) {
    if (wanted && !c->src[slot]) return qn_reject_src(c, slot, QN_REASON_MISSING, -1, 0, 0);
    if (!wanted && c->src[slot]) return qn_reject_src(c, slot, QN_REASON_NOT_TAKEN, -1, 0, 0);
    return QN_OK;
}

static qn_status need_sides(qn_infer_call *c, int32_t scheme, int32_t block) {
    int blocks = qn_is_block(c->src[W]->dtype);
    if (blocks && scheme) return qn_reject_attr(c, "scheme", QN_REASON_ATTR_VALUE, -1, 0, scheme);
    if (block && (blocks || !has_scale(scheme))) return qn_reject_attr(c, "block", QN_REASON_ATTR_VALUE, -1, 0, block);
    if (block && scheme == NVFP4 && block != NVFP4_BLOCK)
        return qn_reject_attr(c, "block", QN_REASON_ATTR_VALUE, -1, NVFP4_BLOCK, block);
    QN_TRY(need_side(c, SCALE, !blocks && has_scale(scheme)));
    QN_TRY(need_side(c, ZERO, !blocks && scheme == INT8_ZERO));
    return need_side(c, GLOBAL, !blocks && scheme == NVFP4);
}

static qn_status need_scales(qn_infer_call *c, int slot, int64_t rows, int64_t n) {
    QN_TRY(qn_need_rank(c, slot, 2));
    QN_TRY(qn_need_extent(c, slot, 1, rows));
    return qn_need_extent(c, slot, 0, n);
}

/* Packed weights for K rows; *n becomes the number of columns. Half bytes are counted, so that they may come in any shape. */
static qn_status need_packed(qn_infer_call *c, int32_t scheme, int64_t k, int64_t *n) {
    const qn_tensor *w = c->src[W];
    QN_TRY(qn_need_rank(c, W, 2));
    if (!is_half_byte(scheme)) {
        *n = qn_ne(w, 0);
        return qn_need_extent(c, W, 1, k);
    }
    int64_t halves, have = qn_tensor_count(w);
    *n = qn_ne(c->src[SCALE], 0);
    if (qn_mul_overflow(k, *n, &halves)) return qn_reject_src(c, W, QN_REASON_SIZE_OVERFLOW, -1, k, *n);
    int64_t bytes = halves / 2 + halves % 2;
    return have == bytes ? QN_OK : qn_reject_src(c, W, QN_REASON_SHAPE_COUNT, -1, bytes, have);
}

static qn_status need_dtypes(qn_infer_call *c, int32_t scheme) {
    const qn_tensor *w = c->src[W], *scale = c->src[SCALE];
    if (w->dtype == QN_DTYPE_I8 && scheme != INT8 && scheme != INT8_ZERO)
        return qn_reject_src(c, W, QN_REASON_DTYPE_PAIR, -1, QN_DTYPE_U8, w->dtype);
    if (scale && (scale->dtype == QN_DTYPE_U8) != (scheme == NVFP4))
        return qn_reject_src(c, SCALE, QN_REASON_DTYPE_PAIR, -1, scheme == NVFP4 ? QN_DTYPE_U8 : QN_DTYPE_F32, scale->dtype);
    return QN_OK;
}

/* All that both directions check of the weights. */
static qn_status need_weights(qn_infer_call *c, int32_t scheme, int32_t block, int64_t k, int64_t *n) {
    QN_TRY(need_sides(c, scheme, block));
    if (qn_is_block(c->src[W]->dtype)) {
        QN_TRY(qn_need_rank(c, W, 2));
        *n = qn_ne(c->src[W], 1);
        return qn_need_extent(c, W, 0, k);
    }
    QN_TRY(need_packed(c, scheme, k, n));
    if (has_scale(scheme)) {
        int64_t b = block_of(scheme, block), rows = k / b + (k % b != 0);
        QN_TRY(need_scales(c, SCALE, rows, *n));
        if (scheme == INT8_ZERO) QN_TRY(need_scales(c, ZERO, rows, *n));
    }
    if (scheme == NVFP4) {
        QN_TRY(qn_need_rank(c, GLOBAL, 1));
        QN_TRY(qn_need_extent(c, GLOBAL, 0, 1));
    }
    return need_dtypes(c, scheme);
}

/* The shape of source 0 with another last axis. */
static qn_status out_rows(qn_infer_call *c, int64_t last) {
    const qn_tensor *x = c->src[0];
    int64_t d[QN_MAX_RANK];
    c->flops_each = 2 * (double)qn_ne(x, 0);
    for (int i = 0; i < x->rank - 1; i++) d[i] = x->shape[i];
    d[x->rank - 1] = last;
    return qn_out_shape(c, 0, x->dtype, x->rank, d);
}

qn_status qn_infer_dequant_matmul(qn_infer_call *c) {
    const qn_attr_dequant_matmul *at = c->attr;
    int64_t k = qn_ne(c->src[0], 0), n;
    QN_TRY(need_weights(c, at->scheme, at->block, k, &n));
    return out_rows(c, n);
}

qn_status qn_infer_dequant_matmul_back(qn_infer_call *c) {
    const qn_attr_dequant_matmul_back *at = c->attr;
    int64_t n;
    QN_TRY(need_weights(c, at->scheme, at->block, at->k, &n));
    QN_TRY(qn_need_extent(c, 0, 0, n));
    return out_rows(c, at->k);
}

/* ---- Decoding */

typedef struct packed {
    const qn_tensor *w, *scale, *zero;
    int32_t scheme;
    int64_t block, n;
    double global;
} packed;

static packed packed_of(const qn_call *c, int32_t scheme, int32_t block, int64_t n) {
    packed p = {c->src[W], c->src[SCALE], c->src[ZERO], scheme, block_of(scheme, block), n, 1};
    if (c->src[GLOBAL]) p.global = qn_get4(c->src[GLOBAL], 0, 0, 0, 0);
    return p;
}

/* Small floats of the ML formats: sign, exponent, mantissa. What is no number in them counts as 0. */
static double small_float(unsigned bits, int mantissa, int bias) {
    int m = (int)(bits & ((1u << mantissa) - 1)), e = (int)((bits & 127) >> mantissa);
    double v = e ? ldexp((1 << mantissa) + m, e - bias - mantissa) : ldexp(m, 1 - bias - mantissa);
    return bits & 128 ? -v : v;
}

static double e4m3(unsigned bits) { return (bits & 127) == 127 ? 0 : small_float(bits, 3, 7); }
static double e5m2(unsigned bits) { return (bits & 124) == 124 ? 0 : small_float(bits, 2, 15); }
static double e2m1(unsigned bits) { return small_float((bits & 8) << 4 | (bits & 7), 1, 1); }

static unsigned byte_at(const qn_tensor *w, int64_t number) {
    int64_t row = number / qn_ne(w, 0), column = number % qn_ne(w, 0);
    return *(const uint8_t *)qn_at(w, row * qn_nb(w, 1) + column * qn_nb(w, 0));
}

static unsigned half_byte_at(const qn_tensor *w, int64_t number) { return byte_at(w, number / 2) >> (number % 2 * 4) & 15; }

static double weight_at(const packed *p, int64_t k, int64_t n) {
    int64_t e = k * p->n + n, block = k / p->block;
    if (p->scheme == E4M3) return e4m3(byte_at(p->w, e));
    if (p->scheme == E5M2) return e5m2(byte_at(p->w, e));
    double scale = qn_get4(p->scale, 0, 0, block, n);
    if (p->scheme == NVFP4) return e2m1(half_byte_at(p->w, e)) * e4m3((unsigned)scale) * p->global;
    int bits = (int)(p->scheme == INT4 ? half_byte_at(p->w, e) : byte_at(p->w, e)), wrap = p->scheme == INT4 ? 16 : 256;
    double q = bits < wrap / 2 ? bits : bits - wrap;
    return (p->zero ? q - qn_get4(p->zero, 0, 0, block, n) : q) * scale;
}

/* ---- References */

/* Elements [first, first + some) of one row of x times the packed weights. */
static void forward_run(const packed *p, const qn_tensor *x, const char *row, int64_t first, int64_t some, double *sum) {
    for (int64_t k = 0; k < qn_ne(x, 0); k++) {
        double v;
        qn_load_row(x, row, k, 1, &v);
        for (int64_t j = 0; j < some; j++) sum[j] += v * weight_at(p, k, first + j);
    }
}

static void back_run(const packed *p, const qn_tensor *g, const char *row, int64_t first, int64_t some, double *sum) {
    for (int64_t n = 0; n < p->n; n++) {
        double v;
        qn_load_row(g, row, n, 1, &v);
        for (int64_t j = 0; j < some; j++) sum[j] += v * weight_at(p, first + j, n);
    }
}

/* The same for weights in blocks, whose rows are the columns of the product. */
static void forward_blocks(const qn_tensor *w, const qn_tensor *x, const char *row, int64_t first, int64_t some, double *sum) {
    for (int64_t j = 0; j < some; j++) sum[j] = qn_dot_rows(x, row, w, qn_row4(w, 0, 0, first + j), qn_ne(x, 0));
}

static void back_blocks(const qn_tensor *w, const qn_tensor *g, const char *row, int64_t first, int64_t some, double *sum) {
    for (int64_t n = 0; n < qn_ne(w, 1); n++) {
        double v;
        qn_load_row(g, row, n, 1, &v);
        qn_add_row(sum, v, w, qn_row4(w, 0, 0, n), first, some);
    }
}

static void decode_and_multiply(const qn_call *c, const packed *p, int back) {
    const qn_tensor *y = c->dst[0], *x = c->src[0];
    qn_rows it;
    if (qn_tensor_count(x) == 0 || qn_tensor_count(p->w) == 0) {
        qn_fill(y, 0);
        return;
    }
    for (qn_rows_begin(&it, y->rank, y->shape); it.live; qn_rows_next(&it)) {
        const char *from = qn_row(&it, x);
        for (int64_t first = 0; first < it.n; first += QN_RUN) {
            double sum[QN_RUN] = {0};
            int64_t some = qn_some(it.n, first);
            if (qn_is_block(p->w->dtype)) (back ? back_blocks : forward_blocks)(p->w, x, from, first, some, sum);
            else (back ? back_run : forward_run)(p, x, from, first, some, sum);
            qn_store_row(y, qn_row(&it, y), first, some, sum);
        }
    }
}

qn_status qn_ref_dequant_matmul(const qn_call *c) {
    const qn_attr_dequant_matmul *at = c->attr;
    packed p = packed_of(c, at->scheme, at->block, qn_ne(c->dst[0], 0));
    decode_and_multiply(c, &p, 0);
    return QN_OK;
}

qn_status qn_ref_dequant_matmul_back(const qn_call *c) {
    const qn_attr_dequant_matmul_back *at = c->attr;
    packed p = packed_of(c, at->scheme, at->block, qn_ne(c->src[0], 0));
    decode_and_multiply(c, &p, 1);
    return QN_OK;
}

/* ---- Gradients: each is the other's, for its first source. */

/* Whether a gradient is asked for that there is none of: weights are constants, and so is what they are decoded with. */
static int wants_constants(qn_vjp_call *v) {
    for (int i = SCALE; i <= GLOBAL; i++)
        if (v->want[i]) qn_vjp_refuse(v, i, "weights that are decoded on the way are constants");
    return v->status != QN_OK;
}

void qn_vjp_dequant_matmul(qn_vjp_call *v) {
    if (wants_constants(v)) return;
    const qn_attr_dequant_matmul *from = v->attr;
    qn_attr_dequant_matmul_back at = qn_attr_dequant_matmul_back_default();
    qn_shape x = qn_shape_of(v, v->src[0]);
    qn_val src[5] = {v->grad[0], v->src[W], v->src[SCALE], v->src[ZERO], v->src[GLOBAL]};
    at.scheme = from->scheme;
    at.block = from->block;
    at.k = qn_sd(&x, 0);
    if (v->want[0]) qn_emit_many(v, QN_OP_dequant_matmul_back, 0, &at, v->n_src, src, 1, &v->out[0]);
}

void qn_vjp_dequant_matmul_back(qn_vjp_call *v) {
    if (wants_constants(v)) return;
    const qn_attr_dequant_matmul_back *from = v->attr;
    qn_attr_dequant_matmul at = qn_attr_dequant_matmul_default();
    qn_val src[5] = {v->grad[0], v->src[W], v->src[SCALE], v->src[ZERO], v->src[GLOBAL]};
    at.scheme = from->scheme;
    at.block = from->block;
    if (v->want[0]) qn_emit_many(v, QN_OP_dequant_matmul, 0, &at, v->n_src, src, 1, &v->out[0]);
}
