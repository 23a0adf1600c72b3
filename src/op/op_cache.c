/* Attention while decoding: masks and what their tiles ask for, ring caches of keys and values, one query over such a cache, and
 * the merging of attention that was computed in parts.
 *
 * A cache of so many slots holds the last of them positions; position p lies in slot p mod slots. After the query's own key was
 * written at position p, min(p + 1, slots) keys are there, the oldest in slot 0 until the ring is full, then in (p + 1) mod
 * slots. */
#include <math.h>

#include "op/op_tape.h"
#include "op/product.h"
#include "op/turbo.h"

enum { MOST_POSITIONS = INT32_MAX }; /* so many tokens a ring may have seen */

/* ---- Masks */

qn_status qn_infer_attention_mask(qn_infer_call *c) {
    const qn_attr_attention_mask *at = c->attr;
    uint32_t dtype = at->dtype ? (uint32_t)at->dtype : QN_DTYPE_F32;
    if (!qn_is_float(dtype)) return qn_reject_attr(c, "dtype", QN_REASON_ATTR_CHOICE, -1, 0, at->dtype);
    int64_t d[2] = {at->queries, at->keys};
    return qn_out_shape(c, 0, dtype, 2, d);
}

qn_status qn_ref_attention_mask(const qn_call *c) {
    const qn_attr_attention_mask *at = c->attr;
    const qn_tensor *y = c->dst[0];
    if (qn_tensor_count(y) == 0) return QN_OK;
    for (int64_t i = 0; i < at->queries; i++)
        for (int64_t j = 0; j < at->keys; j++) {
            int64_t back = i + at->q_offset - j; /* how far the key lies behind the query; each is below 2^62 */
            int seen = (!at->causal || back >= 0) && (at->window == 0 || back < at->window);
            qn_put4(y, 0, 0, i, j, seen ? 0 : -INFINITY);
        }
    return QN_OK;
}

static int64_t tiles_over(int64_t n, int64_t tile) { return n / tile + (n % tile != 0); }

qn_status qn_infer_mask_tiles(qn_infer_call *c) {
    const qn_attr_mask_tiles *at = c->attr;
    const qn_tensor *mask = c->src[0];
    int64_t d[QN_MAX_RANK];
    if (mask->rank < 2) return qn_reject_src(c, 0, QN_REASON_SHAPE_RANK_LOW, -1, 2, mask->rank);
    QN_TRY(qn_need_rank(c, 0, 4));
    for (int k = 0; k < mask->rank; k++) d[k] = mask->shape[k];
    d[mask->rank - 1] = tiles_over(qn_ne(mask, 0), at->columns);
    d[mask->rank - 2] = tiles_over(qn_ne(mask, 1), at->rows);
    return qn_out_shape(c, 0, QN_DTYPE_U8, mask->rank, d);
}

/* What lies at or below this is no score. */
static const double MASKED = -1e30;

static int tile_class(const qn_tensor *mask, int64_t i3, int64_t i2, int64_t row, int64_t rows, int64_t column, int64_t columns) {
    int seen = 0, plain = 1;
    if (column + columns > qn_ne(mask, 0)) return 1;
    for (int64_t i = row; i < row + rows && i < qn_ne(mask, 1); i++)
        for (int64_t j = column; j < column + columns; j++) {
            double v = qn_get4(mask, i3, i2, i, j);
            seen |= !(v <= MASKED);
            plain &= v == 0;
        }
    return plain ? 2 : seen;
}

qn_status qn_ref_mask_tiles(const qn_call *c) {
    const qn_attr_mask_tiles *at = c->attr;
    const qn_tensor *mask = c->src[0], *y = c->dst[0];
    if (qn_tensor_count(y) == 0) return QN_OK;
    for (int64_t i3 = 0; i3 < qn_ne(y, 3); i3++)
        for (int64_t i2 = 0; i2 < qn_ne(y, 2); i2++)
            for (int64_t i = 0; i < qn_ne(y, 1); i++)
                for (int64_t j = 0; j < qn_ne(y, 0); j++)
                    qn_put4(y, i3, i2, i, j, tile_class(mask, i3, i2, i * at->rows, at->rows, j * at->columns, at->columns));
    return QN_OK;
}

/* ---- Writing */

/* x is [B, T, H, D], or [B, T, row]; the cache [B, H, slots, D], or [B, slots, row]. Which slots those are is said by number. */
typedef struct writing {
    int cache, x, pos, ring, flat;
} writing;

static qn_status infer_writing(qn_infer_call *c, writing z) {
    const qn_tensor *cache = c->src[z.cache], *x = c->src[z.x], *pos = c->src[z.pos];
    int flat = z.flat;
    int64_t slots = qn_ne(cache, 1), tokens = qn_ne(x, flat ? 1 : 2);
    QN_TRY(qn_need_rank(c, z.cache, flat ? 3 : 4));
    QN_TRY(qn_need_rank(c, z.x, flat ? 3 : 4));
    QN_TRY(qn_need_extent(c, z.x, 0, qn_ne(cache, 0)));
    if (!flat) QN_TRY(qn_need_extent(c, z.x, 1, qn_ne(cache, 2)));
    QN_TRY(qn_need_extent(c, z.x, flat ? 2 : 3, qn_ne(cache, flat ? 2 : 3)));
    if (qn_tensor_count(pos) != 1) return qn_reject_src(c, z.pos, QN_REASON_SHAPE_COUNT, -1, 1, qn_tensor_count(pos));
    if (tokens > slots) return qn_reject_src(c, z.x, QN_REASON_SHAPE_LARGE, qn_axis(x, flat ? 1 : 2), slots, tokens);
    int64_t limit = z.ring ? MOST_POSITIONS : slots - tokens + 1;
    if (limit < c->index_limit[z.pos]) c->index_limit[z.pos] = limit;
    if (!(cache->flags & QN_TENSOR_PARAM)) return qn_reject_src(c, z.cache, QN_REASON_NOT_PARAMETER, -1, 0, 0);
    if (!qn_can_convert((qn_dtype)x->dtype, (qn_dtype)cache->dtype))
        return qn_reject_unsupported(c, z.x, QN_REASON_DTYPE_CONVERT, cache->dtype, x->dtype);
    qn_out_like(c, z.cache, cache, cache->dtype);
    return QN_OK;
}

qn_status qn_infer_cache_write(qn_infer_call *c) {
    const qn_attr_cache_write *at = c->attr;
    return infer_writing(c, (writing){0, 1, 2, at->ring, at->token_major});
}

/* The lower of the two limits holds for the position they share. */
qn_status qn_infer_cache_write_pair(qn_infer_call *c) {
    const qn_attr_cache_write_pair *at = c->attr;
    QN_TRY(infer_writing(c, (writing){0, 2, 4, at->ring, at->token_major}));
    return infer_writing(c, (writing){1, 3, 4, at->ring, at->token_major});
}

static void convert_row(const qn_tensor *to, char *row, const qn_tensor *from, const char *source, int64_t n) {
    qn_convert_run((qn_dtype)from->dtype, source, qn_nb(from, 0), (qn_dtype)to->dtype, row, qn_nb(to, 0), 0, 0, n);
}

static void write_tokens(const qn_tensor *cache, const qn_tensor *x, const qn_tensor *at, int flat) {
    int64_t slots = qn_ne(cache, 1), n = qn_ne(cache, 0), heads = flat ? 1 : qn_ne(cache, 2), tokens = qn_ne(x, flat ? 1 : 2);
    if (qn_tensor_count(x) == 0) return;
    int64_t pos = qn_index4(at, 0, 0, 0, 0);
    for (int64_t b = 0; b < qn_ne(cache, flat ? 2 : 3); b++)
        for (int64_t t = 0; t < tokens; t++)
            for (int64_t h = 0; h < heads; h++) {
                int64_t slot = (pos + t) % slots;
                char *to = flat ? qn_row4(cache, 0, b, slot) : qn_row4(cache, b, h, slot);
                convert_row(cache, to, x, flat ? qn_row4(x, 0, b, t) : qn_row4(x, b, t, h), n);
            }
}

qn_status qn_ref_cache_write(const qn_call *c) {
    write_tokens(c->dst[0], c->src[1], c->src[2], ((const qn_attr_cache_write *)c->attr)->token_major);
    return QN_OK;
}

qn_status qn_ref_cache_write_pair(const qn_call *c) {
    int flat = ((const qn_attr_cache_write_pair *)c->attr)->token_major;
    write_tokens(c->dst[0], c->src[2], c->src[4], flat);
    write_tokens(c->dst[1], c->src[3], c->src[4], flat);
    return QN_OK;
}

/* ---- One query over a cache */

/* Keys or values: floats, or codes and their scales. */
typedef struct store {
    const qn_tensor *t, *scale;
    int bits;
} store;

typedef struct decode {
    store k, v;
    const qn_tensor *q, *pos, *sinks;
    int64_t heads, kv_heads, slots, width, window;
    double scale, softcap;
} decode;

static void decode_open(decode *z, const qn_tensor *const *src, int n_src, const qn_attr_cache_attention *at) {
    *z = (decode){.k = {src[1], n_src > 4 ? src[4] : NULL, at->k_bits}, .v = {src[2], n_src > 5 ? src[5] : NULL, at->v_bits}};
    z->q = src[0];
    z->pos = src[3];
    z->sinks = n_src > 6 ? src[6] : NULL;
    z->heads = qn_ne(z->q, 1);
    z->width = qn_ne(z->q, 0);
    z->kv_heads = qn_ne(z->k.t, 2);
    z->slots = qn_ne(z->k.t, 1);
    z->window = at->window;
    z->scale = at->scale != 0 ? (double)at->scale : 1 / sqrt((double)z->width);
    z->softcap = (double)at->softcap;
}

static qn_status check_store(qn_infer_call *c, int slot, int scale, const char *bits_name, int bits, const decode *z) {
    const qn_tensor *t = c->src[slot];
    QN_TRY(qn_need_rank(c, slot, 4));
    if (bits == 1) return qn_reject_attr(c, bits_name, QN_REASON_ATTR_VALUE, -1, 0, bits);
    if ((t->dtype == QN_DTYPE_U8) != (bits != 0)) return qn_reject_attr(c, bits_name, QN_REASON_ATTR_CHOICE, -1, 0, bits);
    if (bits) QN_TRY(qn_op_turbo_check(c, 0, z->width, QN_TURBO_WIDTH));
    QN_TRY(qn_need_extent(c, slot, 0, bits ? qn_op_turbo_bytes(bits, z->width) : z->width));
    QN_TRY(qn_need_extent(c, slot, 1, z->slots));
    QN_TRY(qn_need_extent(c, slot, 2, z->kv_heads));
    QN_TRY(qn_need_extent(c, slot, 3, qn_ne(z->q, 2)));
    if (!bits) return c->src[scale] ? qn_reject_src(c, scale, QN_REASON_NOT_TAKEN, -1, 0, 0) : qn_need_f64_pair(c, slot, 0);
    if (!c->src[scale]) return qn_reject_src(c, scale, QN_REASON_MISSING, -1, 0, 0);
    QN_TRY(qn_need_rank(c, scale, 4));
    QN_TRY(qn_need_extent(c, scale, 0, qn_op_turbo_scales(z->width)));
    for (int k = 1; k < 4; k++) QN_TRY(qn_need_extent(c, scale, k, qn_ne(t, k)));
    return qn_need_same_dtype(c, scale, 0);
}

qn_status qn_infer_cache_attention(qn_infer_call *c) {
    const qn_attr_cache_attention *at = c->attr;
    const qn_tensor *q = c->src[0];
    decode z;
    decode_open(&z, c->src, QN_MAX_SRC, at);
    QN_TRY(qn_need_rank(c, 0, 3));
    QN_TRY(check_store(c, 1, 4, "k_bits", at->k_bits, &z));
    QN_TRY(check_store(c, 2, 5, "v_bits", at->v_bits, &z));
    QN_TRY(qn_need_divides(c, 1, 2, z.heads));
    if (z.slots == 0) return qn_reject_src(c, 1, QN_REASON_SHAPE_EMPTY, qn_axis(c->src[1], 1), 1, 0);
    QN_TRY(qn_need_rank(c, 3, 1));
    QN_TRY(qn_need_extent(c, 3, 0, qn_ne(q, 2)));
    if (z.sinks) {
        QN_TRY(qn_need_rank(c, 6, 1));
        QN_TRY(qn_need_extent(c, 6, 0, z.heads));
        QN_TRY(qn_need_same_dtype(c, 6, 0));
    }
    c->index_limit[3] = MOST_POSITIONS;
    int64_t doubles; /* query, a key or value, the sum */
    if (qn_mul_overflow(z.width, 3 * (int64_t)sizeof(double), &doubles))
        return qn_reject_src(c, 0, QN_REASON_SIZE_OVERFLOW, qn_axis(q, 0), INT64_MAX, z.width);
    c->workspace = (size_t)doubles;
    c->flops_each = 4.0 * (double)z.slots;
    qn_out_like(c, 0, q, q->dtype);
    return QN_OK;
}

static void load_slot(const store *s, int64_t b, int64_t head, int64_t slot, int64_t n, double *out) {
    const char *row = qn_row4(s->t, b, head, slot);
    if (s->bits) qn_op_turbo_decode(s->t, row, s->scale, qn_row4(s->scale, b, head, slot), s->bits, n, out);
    else qn_load_row(s->t, row, 0, n, out);
}

/* One head: scores one after the other, with the running maximum taken out of the sums whenever it grows. */
static void attend_head(const decode *z, int64_t b, int64_t head, const double *q, double *key, double *sum) {
    int64_t pos = qn_index4(z->pos, 0, 0, 0, b), n = pos < z->slots ? pos + 1 : z->slots;
    int64_t first = pos < z->slots ? 0 : (pos + 1) % z->slots, shared = head / (z->heads / z->kv_heads);
    double most = z->sinks ? qn_get4(z->sinks, 0, 0, 0, head) : -INFINITY;
    double total = !z->sinks ? 0 : most < INFINITY ? 1 : NAN; /* what is infinite, or no number, has no share */
    for (int64_t i = 0; i < z->width; i++) sum[i] = 0;
    for (int64_t l = z->window && n > z->window ? n - z->window : 0; l < n; l++) {
        double score = 0;
        load_slot(&z->k, b, shared, (first + l) % z->slots, z->width, key);
        for (int64_t i = 0; i < z->width; i++) score += q[i] * key[i];
        score *= z->scale;
        if (z->softcap > 0) score = z->softcap * tanh(score / z->softcap);
        if (score == -INFINITY) continue; /* no score: the first of them would leave no number behind, whatever came after it */
        double top = score > most ? score : most, keep = exp(most - top), weight = exp(score - top);
        load_slot(&z->v, b, shared, (first + l) % z->slots, z->width, key);
        for (int64_t i = 0; i < z->width; i++) sum[i] = sum[i] * keep + weight * key[i];
        total = total * keep + weight;
        most = top;
    }
    for (int64_t i = 0; i < z->width; i++) sum[i] = total == 0 ? 0 : sum[i] / total;
}

qn_status qn_ref_cache_attention(const qn_call *c) {
    const qn_attr_cache_attention *at = c->attr;
    const qn_tensor *y = c->dst[0];
    decode z;
    decode_open(&z, c->src, c->n_src, at);
    double *q = c->workspace, *key = q + z.width, *sum = key + z.width;
    if (qn_tensor_count(y) == 0) return QN_OK;
    for (int64_t b = 0; b < qn_ne(y, 2); b++)
        for (int64_t h = 0; h < z.heads; h++) {
            qn_load_row(z.q, qn_row4(z.q, 0, b, h), 0, z.width, q);
            if (z.k.bits && !at->turned) qn_op_turbo_turn(q, z.width);
            attend_head(&z, b, h, q, key, sum);
            if (z.v.bits && !at->turned) qn_op_turbo_unturn(sum, z.width);
            qn_store_row(y, qn_row4(y, 0, b, h), 0, z.width, sum);
        }
    return QN_OK;
}

/* ---- Parts */

/* o has one axis more than s and m, behind theirs. */
qn_status qn_infer_attention_merge(qn_infer_call *c) {
    const qn_tensor *o = c->src[0], *s = c->src[1];
    int64_t d[QN_MAX_RANK];
    if (o->rank < 2) return qn_reject_src(c, 0, QN_REASON_SHAPE_RANK_LOW, -1, 2, o->rank);
    for (int k = 0; k < (s->rank > o->rank - 1 ? s->rank : o->rank - 1); k++) QN_TRY(qn_need_extent(c, 1, k, qn_ne(o, k + 1)));
    QN_TRY(qn_need_same_shape(c, 2, 1));
    QN_TRY(qn_need_same_dtype(c, 1, 0));
    QN_TRY(qn_need_same_dtype(c, 2, 0));
    if (((const qn_attr_attention_merge *)c->attr)->undo) QN_TRY(qn_op_turbo_check(c, 0, qn_ne(o, 0), QN_TURBO_WIDTH));
    if (o->shape[0] == 0) return qn_reject_src(c, 0, QN_REASON_SHAPE_EMPTY, 0, 1, 0);
    for (int k = 1; k < o->rank; k++) d[k - 1] = o->shape[k];
    c->flops_each = 2.0 * (double)o->shape[0];
    return qn_out_shape(c, 0, o->dtype, o->rank - 1, d);
}

/* Where the numbers of all parts for one row of the result lie: one part behind the other, `step` bytes apart. */
typedef struct numbers {
    const qn_tensor *t;
    const char *at;
    int64_t step;
} numbers;

static numbers numbers_of(const qn_rows *it, const qn_tensor *t) {
    int64_t at = 0;
    for (int k = 0; k < it->rank - 1 && k < t->rank; k++) at += it->index[it->rank - 2 - k] * qn_nb(t, k);
    return (numbers){t, qn_at(t, at), qn_nb(t, it->rank - 1)};
}

static double number_at(const numbers *n, int64_t part) { return qn_load_one((qn_dtype)n->t->dtype, n->at + part * n->step); }

/* The largest maximum, and the sum of all parts relative to it. */
static double merged_sum(const numbers *s, const numbers *m, int64_t parts, double *most) {
    double total = 0;
    *most = -INFINITY;
    for (int64_t w = 0; w < parts; w++) *most = fmax(*most, number_at(m, w));
    for (int64_t w = 0; w<parts && * most> - INFINITY; w++) total += number_at(s, w) * exp(number_at(m, w) - *most);
    return total;
}

qn_status qn_ref_attention_merge(const qn_call *c) {
    const qn_tensor *o = c->src[0], *y = c->dst[0];
    int undo = ((const qn_attr_attention_merge *)c->attr)->undo;
    double row[QN_TURBO_WIDTH], part[QN_RUN], most;
    qn_rows it;
    for (qn_rows_begin(&it, y->rank, y->shape); it.live; qn_rows_next(&it)) {
        numbers s = numbers_of(&it, c->src[1]), m = numbers_of(&it, c->src[2]);
        double total = merged_sum(&s, &m, o->shape[0], &most);
        int64_t from = 0;
        for (int k = 0; k < it.rank; k++) from += it.index[k] * o->stride[k + 1];
        for (int64_t first = 0; first < it.n; first += QN_RUN) {
            int64_t some = qn_some(it.n, first);
            double *sum = undo ? row + first : row; /* a row that is turned back is kept whole */
            for (int64_t i = 0; i < some; i++) sum[i] = 0;
            for (int64_t w = 0; w < o->shape[0] && total != 0; w++) { /* what is no number stays none */
                double weight = exp(number_at(&m, w) - most) / total;
                qn_load_row(o, qn_at(o, from + w * o->stride[0]), first, some, part);
                for (int64_t i = 0; i < some && weight != 0; i++) sum[i] += weight * part[i];
            }
            if (!undo) qn_store_row(y, qn_row(&it, y), first, some, sum);
        }
        if (undo) qn_op_turbo_unturn(row, it.n);
        if (undo) qn_store_row(y, qn_row(&it, y), 0, it.n, row);
    }
    return QN_OK;
}

/* The result does not depend on the maximum that all are taken relative to, so that counts as a constant. */
static void merge_formula(qn_vjp_call *v, qn_op_tape *t, qn_val *out) {
    qn_attr_reduce over = qn_attr_reduce_default();
    qn_attr_fwht turn = qn_attr_fwht_default();
    qn_shape d = qn_shape_of(v, v->src[0]);
    over.axes = (qn_dims){.rank = 1, .d = {0}};
    over.keep = 1;
    t->paused = 1;
    qn_val most = qn_emit1(v, QN_OP_reduce, QN_REDUCE_max, &over, v->src[2]);
    t->paused = 0;
    d.d[d.rank - 1] = 1;
    qn_val f = qn_e_unary(v, QN_UNARY_exp, qn_emit2(v, QN_OP_arith, QN_ARITH_sub, NULL, v->src[2], most));
    qn_val weights = qn_e_reshape(v, f, d.rank, d.d), sums = qn_emit2(v, QN_OP_arith, QN_ARITH_mul, NULL, v->src[1], f);
    over.keep = 0;
    qn_val top = qn_emit1(v, QN_OP_reduce, QN_REDUCE_sum, &over,
                          qn_emit2(v, QN_OP_arith, QN_ARITH_mul, NULL, v->src[0], weights));
    qn_val below = qn_emit1(v, QN_OP_reduce, QN_REDUCE_sum, &over, qn_e_reshape(v, sums, d.rank, d.d));
    out[0] = qn_emit2(v, QN_OP_arith, QN_ARITH_div, NULL, top, below);
    turn.form = 2;
    if (((const qn_attr_attention_merge *)v->attr)->undo) out[0] = qn_emit1(v, QN_OP_fwht, 0, &turn, out[0]);
}

void qn_vjp_attention_merge(qn_vjp_call *v) { qn_op_vjp_of_formula(v, merge_formula); }
