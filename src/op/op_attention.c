/* Attention, forward and backward, and the indexer that ranks keys for sparse attention. Heads are grouped: query head h reads
 * key head h / (query heads / key heads); masks are tiled. A score of -Inf, by mask or by itself, is no score: its key is never
 * looked at, and a query without any score gives zero. Scores are computed again wherever they are needed, so the forward pass
 * keeps nothing and the backward pass only two numbers a query. */
#include <math.h>

#include "op/alibi.h"
#include "op/op_emit.h"
#include "op/product.h"

/* ---- Shape rules */

enum { Q = 0, K = 1, V = 2 }; /* the slots that forward and backward have in common */

/* Masks come in f16; next to f64 queries the wider types are taken too, so that a mask's gradient can be checked. */
static qn_status need_mask_dtype(qn_infer_call *c, int slot) {
    uint32_t mask = c->src[slot]->dtype;
    int wide = mask == QN_DTYPE_F64 || mask == QN_DTYPE_F32;
    if (mask == QN_DTYPE_F16 || (wide && c->src[Q]->dtype == QN_DTYPE_F64)) return QN_OK;
    return qn_reject_src(c, slot, QN_REASON_DTYPE_PAIR, -1, QN_DTYPE_F16, mask);
}

static qn_status need_mask(qn_infer_call *c, int slot) {
    const qn_tensor *q = c->src[Q], *mask = c->src[slot];
    QN_TRY(qn_need_rank(c, slot, 4));
    QN_TRY(qn_need_extent(c, slot, 0, qn_ne(c->src[K], 1)));
    if (qn_ne(mask, 1) < qn_ne(q, 1))
        return qn_reject_src(c, slot, QN_REASON_SHAPE_SMALL, qn_axis(mask, 1), qn_ne(q, 1), qn_ne(mask, 1));
    QN_TRY(qn_need_divides(c, slot, 2, qn_ne(q, 2)));
    return qn_need_divides(c, slot, 3, qn_ne(q, 3));
}

/* All that forward and backward check of q, k, v, mask and sinks. */
static qn_status need_attention(qn_infer_call *c, int mask, int sinks) {
    const qn_attr_flash_attn_ext *at = c->attr;
    const qn_tensor *q = c->src[Q], *k = c->src[K];
    if (at->prec != 0 && at->prec != 10) return qn_reject_attr(c, "prec", QN_REASON_ATTR_CHOICE, -1, 0, at->prec);
    for (int slot = Q; slot <= V; slot++) QN_TRY(qn_need_rank(c, slot, 4));
    QN_TRY(qn_need_extent(c, K, 0, qn_ne(q, 0)));
    QN_TRY(qn_need_extent(c, K, 3, qn_ne(q, 3)));
    QN_TRY(qn_need_divides(c, K, 2, qn_ne(q, 2)));
    for (int axis = 1; axis < 4; axis++) QN_TRY(qn_need_extent(c, V, axis, qn_ne(k, axis)));
    if (c->src[mask]) QN_TRY(need_mask(c, mask));
    if (!c->src[mask] && at->max_bias > 0) return qn_reject_src(c, mask, QN_REASON_MISSING, -1, 0, 0);
    if (c->src[sinks]) {
        QN_TRY(qn_need_rank(c, sinks, 1));
        QN_TRY(qn_need_extent(c, sinks, 0, qn_ne(q, 2)));
    }
    QN_TRY(qn_need_f64_pair(c, K, Q));
    QN_TRY(qn_need_f64_pair(c, V, Q));
    if (c->src[mask]) QN_TRY(need_mask_dtype(c, mask));
    return c->src[sinks] ? qn_need_same_dtype(c, sinks, Q) : QN_OK;
}

qn_status qn_infer_flash_attn_ext(qn_infer_call *c) {
    const qn_tensor *q = c->src[Q];
    QN_TRY(need_attention(c, 3, 4));
    double keys = (double)qn_ne(c->src[K], 1), wide = (double)qn_ne(c->src[V], 0);
    c->flops_each = keys * (2.0 * (double)qn_ne(q, 0) + 2.0 * wide + 5.0) / wide; /* scores, softmax, sum of values */
    int64_t d[4] = {qn_ne(q, 3), qn_ne(q, 1), qn_ne(q, 2), qn_ne(c->src[V], 0)};
    return qn_out_shape(c, 0, q->dtype, 4, d);
}

/* Two doubles a query: ln of its sum, and <g, result>. */
static qn_status query_bytes(const qn_tensor *q, int64_t *bytes) {
    *bytes = 2 * (int64_t)sizeof(double);
    for (int k = 1; k < 4; k++)
        if (qn_mul_overflow(*bytes, qn_ne(q, k), bytes)) return QN_INVALID;
    return QN_OK;
}

/* The attributes of both ops are one list in the table; need_attention relies on it. */
_Static_assert(sizeof(qn_attr_flash_attn_ext) == sizeof(qn_attr_flash_attn_back), "same attributes");

/* The gradient of an operand that is absent is empty. */
qn_status qn_infer_flash_attn_back(qn_infer_call *c) {
    const qn_tensor *q = c->src[Q], *mask = c->src[4], *sinks = c->src[5];
    const int64_t none[1] = {0};
    int64_t bytes;
    QN_TRY(need_attention(c, 4, 5));
    QN_TRY(qn_need_rank(c, 3, 4));
    QN_TRY(qn_need_extent(c, 3, 0, qn_ne(c->src[V], 0)));
    QN_TRY(qn_need_extent(c, 3, 1, qn_ne(q, 2)));
    QN_TRY(qn_need_extent(c, 3, 2, qn_ne(q, 1)));
    QN_TRY(qn_need_extent(c, 3, 3, qn_ne(q, 3)));
    QN_TRY(qn_need_same_dtype(c, 3, Q));
    if (query_bytes(q, &bytes) != QN_OK) return qn_reject_src(c, Q, QN_REASON_SIZE_OVERFLOW, qn_axis(q, 1), 0, qn_ne(q, 1));
    c->workspace = (size_t)bytes;
    double keys = (double)qn_ne(c->src[K], 1), deep = (double)qn_ne(q, 0), wide = (double)qn_ne(c->src[V], 0);
    c->flops_each = keys * (6.0 * deep + 4.0 * wide + 10.0) / deep; /* scores again, then the gradients of all three */
    for (int slot = Q; slot <= V; slot++) qn_out_like(c, slot, c->src[slot], q->dtype);
    if (mask) qn_out_like(c, 3, mask, q->dtype);
    else QN_TRY(qn_out_shape(c, 3, q->dtype, 1, none));
    if (sinks) qn_out_like(c, 4, sinks, q->dtype);
    else QN_TRY(qn_out_shape(c, 4, q->dtype, 1, none));
    return QN_OK;
}

qn_status qn_infer_lightning_indexer(qn_infer_call *c) {
    const qn_tensor *q = c->src[Q], *k = c->src[K];
    int64_t streams = qn_ne(q, 3), tokens = qn_ne(q, 2), keys = qn_ne(k, 2);
    for (int slot = 0; slot < 4; slot++) QN_TRY(qn_need_rank(c, slot, 4));
    QN_TRY(qn_need_extent(c, K, 0, qn_ne(q, 0)));
    QN_TRY(qn_need_extent(c, K, 1, 1));
    QN_TRY(qn_need_extent(c, K, 3, streams));
    QN_TRY(qn_need_extent(c, 2, 0, qn_ne(q, 1)));
    QN_TRY(qn_need_extent(c, 2, 1, tokens));
    QN_TRY(qn_need_extent(c, 2, 2, 1));
    QN_TRY(qn_need_extent(c, 2, 3, streams));
    QN_TRY(qn_need_extent(c, 3, 0, keys));
    QN_TRY(qn_need_extent(c, 3, 1, tokens));
    QN_TRY(qn_need_extent(c, 3, 2, 1));
    QN_TRY(qn_need_divides(c, 3, 3, streams));
    QN_TRY(qn_need_f64_pair(c, K, Q));
    QN_TRY(qn_need_same_dtype(c, 2, Q));
    QN_TRY(need_mask_dtype(c, 3));
    c->flops_each = (double)qn_ne(q, 1) * (2.0 * (double)qn_ne(q, 0) + 3.0);
    int64_t d[4] = {streams, 1, tokens, keys};
    return qn_out_shape(c, 0, q->dtype, 4, d);
}

/* ---- What forward and backward compute alike */

typedef struct attention {
    const qn_tensor *q, *k, *v, *mask, *sinks;
    const qn_tensor *g; /* backward only: gradient of the result */
    double scale, max_bias, cap;
    int64_t heads, queries, keys, group; /* group: query heads to a key head */
    double *kept;                        /* backward only: per query ln of the sum, and <g, result> */
} attention;

/* One query, and what its head fixes. Without a sink there is one at -Inf. */
typedef struct query {
    int64_t b, h, i;
    double slope, sink;
    const char *q_row, *g_row;
} query;

static attention attention_of(const qn_call *c, int mask, int sinks) {
    const qn_attr_flash_attn_ext *at = c->attr;
    attention a = {.q = c->src[Q], .k = c->src[K], .v = c->src[V], .mask = c->src[mask], .sinks = c->src[sinks]};
    a.scale = (double)at->scale;
    a.max_bias = (double)at->max_bias;
    a.cap = (double)at->logit_softcap;
    a.heads = qn_ne(a.q, 2);
    a.queries = qn_ne(a.q, 1);
    a.keys = qn_ne(a.k, 1);
    a.group = qn_ne(a.k, 2) > 0 ? a.heads / qn_ne(a.k, 2) : 0;
    return a;
}

static query query_of(const attention *a, int64_t b, int64_t h, int64_t i) {
    query r = {.b = b, .h = h, .i = i, .sink = -INFINITY, .q_row = qn_row4(a->q, b, h, i)};
    r.slope = qn_alibi_slope(a->max_bias, a->heads, h);
    if (a->sinks) r.sink = qn_get4(a->sinks, 0, 0, 0, h);
    if (a->g) r.g_row = qn_row4(a->g, b, i, h);
    return r;
}

/* The score of key j; *bend becomes how fast it follows the scaled dot product, which only a softcap changes. */
static double score_of(const attention *a, const query *r, int64_t j, double *bend) {
    double bias = 0;
    if (a->mask) {
        bias = qn_get4(a->mask, r->b % qn_ne(a->mask, 3), r->h % qn_ne(a->mask, 2), r->i, j);
        if (bias == -INFINITY) return bias;
        bias *= r->slope;
    }
    double x = a->scale * qn_dot_rows(a->q, r->q_row, a->k, qn_row4(a->k, r->b, r->h / a->group, j), qn_ne(a->q, 0));
    *bend = 1;
    if (a->cap != 0) {
        double t = tanh(x / a->cap);
        *bend = 1 - t * t;
        x = a->cap * t;
    }
    return x + bias;
}

static double top_score(const attention *a, const query *r) {
    double top = r->sink, bend;
    for (int64_t j = 0; j < a->keys; j++) {
        double s = score_of(a, r, j, &bend);
        if (s > top) top = s;
    }
    return top;
}

/* ---- Forward */

static void attend(const attention *a, const query *r, const qn_tensor *y) {
    double top = top_score(a, r), bend;
    char *row = qn_row4(y, r->b, r->i, r->h);
    int64_t n = qn_ne(a->v, 0);
    for (int64_t first = 0; first < n; first += QN_RUN) {
        double sum[QN_RUN] = {0}, total = r->sink == -INFINITY ? 0 : exp(r->sink - top);
        int64_t some = qn_some(n, first);
        for (int64_t j = 0; j < a->keys; j++) {
            double s = score_of(a, r, j, &bend);
            if (s == -INFINITY) continue;
            double weight = exp(s - top);
            total += weight;
            qn_add_row(sum, weight, a->v, qn_row4(a->v, r->b, r->h / a->group, j), first, some);
        }
        for (int64_t d = 0; d < some; d++) sum[d] = total == 0 ? 0 : sum[d] / total;
        qn_store_row(y, row, first, some, sum);
    }
}

qn_status qn_ref_flash_attn_ext(const qn_call *c) {
    attention a = attention_of(c, 3, 4);
    if (qn_tensor_count(c->dst[0]) == 0) return QN_OK;
    for (int64_t b = 0; b < qn_ne(a.q, 3); b++)
        for (int64_t h = 0; h < a.heads; h++)
            for (int64_t i = 0; i < a.queries; i++) {
                query r = query_of(&a, b, h, i);
                attend(&a, &r, c->dst[0]);
            }
    return QN_OK;
}

/* ---- Backward. With P the weights, D = <g, result>: dV = PT g, dS = P (g vT - D), dX = dS bend, dq = scale dX k,
 * dk = scale dXT q. */

static double *kept_of(const attention *a, const query *r) {
    return a->kept + 2 * ((r->b * a->heads + r->h) * a->queries + r->i);
}

/* The weight of key j, and the gradients of its score and of its dot product; all zero where there is no score, and then the
 * rows behind them are not looked at either. */
typedef struct pull {
    int scored;
    double weight, score, product;
} pull;

static pull pull_of(const attention *a, const query *r, int64_t j) {
    const double *kept = kept_of(a, r);
    pull p = {0, 0, 0, 0};
    double bend, s = score_of(a, r, j, &bend);
    if (s == -INFINITY) return p;
    p.scored = 1;
    p.weight = exp(s - kept[0]);
    p.score = p.weight * (qn_dot_rows(a->g, r->g_row, a->v, qn_row4(a->v, r->b, r->h / a->group, j), qn_ne(a->v, 0)) - kept[1]);
    p.product = a->scale * p.score * bend;
    return p;
}

/* The two numbers of one query. One without any score keeps +Inf as its sum, which gives every share of it as zero. */
static void keep_query(const attention *a, const query *r) {
    double top = top_score(a, r), bend, total = r->sink == -INFINITY ? 0 : exp(r->sink - top), result = 0;
    for (int64_t j = 0; j < a->keys; j++) {
        double s = score_of(a, r, j, &bend);
        if (s == -INFINITY) continue;
        double weight = exp(s - top);
        total += weight;
        result += weight * qn_dot_rows(a->g, r->g_row, a->v, qn_row4(a->v, r->b, r->h / a->group, j), qn_ne(a->v, 0));
    }
    double *kept = kept_of(a, r);
    kept[0] = total == 0 ? INFINITY : top + log(total);
    kept[1] = total == 0 ? 0 : result / total;
}

static void back_query(const attention *a, const query *r, const qn_tensor *dq) {
    int64_t n = qn_ne(a->q, 0);
    for (int64_t first = 0; first < n; first += QN_RUN) {
        double sum[QN_RUN] = {0};
        int64_t some = qn_some(n, first);
        for (int64_t j = 0; j < a->keys; j++) {
            pull p = pull_of(a, r, j);
            if (p.scored) qn_add_row(sum, p.product, a->k, qn_row4(a->k, r->b, r->h / a->group, j), first, some);
        }
        qn_store_row(dq, qn_row4(dq, r->b, r->h, r->i), first, some, sum);
    }
}

/* Key j of key head kh: from every query of the group's heads its own row (for dk) or its g (for dv), weighted. */
static void back_key(const attention *a, int64_t b, int64_t kh, int64_t j, const qn_tensor *out, int for_v) {
    int64_t n = qn_ne(out, 0);
    for (int64_t first = 0; first < n; first += QN_RUN) {
        double sum[QN_RUN] = {0};
        int64_t some = qn_some(n, first);
        for (int64_t h = kh * a->group; h < (kh + 1) * a->group; h++)
            for (int64_t i = 0; i < a->queries; i++) {
                query r = query_of(a, b, h, i);
                pull p = pull_of(a, &r, j);
                if (!p.scored) continue;
                if (for_v) qn_add_row(sum, p.weight, a->g, r.g_row, first, some);
                else qn_add_row(sum, p.product, a->q, r.q_row, first, some);
            }
        qn_store_row(out, qn_row4(out, b, kh, j), first, some, sum);
    }
}

/* One entry of the mask: the scores it was added to, each by its head's slope. */
static double back_mask(const attention *a, int64_t m3, int64_t m2, int64_t i, int64_t j) {
    double sum = 0;
    if (i >= a->queries) return 0; /* a row of the mask below the last query */
    for (int64_t b = m3; b < qn_ne(a->q, 3); b += qn_ne(a->mask, 3))
        for (int64_t h = m2; h < a->heads; h += qn_ne(a->mask, 2)) {
            query r = query_of(a, b, h, i);
            sum += r.slope * pull_of(a, &r, j).score;
        }
    return sum;
}

static double back_sink(const attention *a, int64_t h) {
    double sum = 0;
    for (int64_t b = 0; b < qn_ne(a->q, 3); b++)
        for (int64_t i = 0; i < a->queries; i++) {
            query r = query_of(a, b, h, i);
            const double *kept = kept_of(a, &r);
            if (r.sink != -INFINITY) sum -= exp(r.sink - kept[0]) * kept[1]; /* there is none at -Inf */
        }
    return sum;
}

/* The parts that walk queries: what is kept of them, and dq. */
static void back_queries(const attention *a, const qn_tensor *dq) {
    for (int64_t b = 0; b < qn_ne(a->q, 3); b++)
        for (int64_t h = 0; h < a->heads; h++)
            for (int64_t i = 0; i < a->queries; i++) {
                query r = query_of(a, b, h, i);
                keep_query(a, &r);
                back_query(a, &r, dq);
            }
}

static void back_keys(const attention *a, const qn_tensor *out, int for_v) {
    if (qn_tensor_count(out) == 0) return;
    for (int64_t b = 0; b < qn_ne(out, 3); b++)
        for (int64_t kh = 0; kh < qn_ne(out, 2); kh++)
            for (int64_t j = 0; j < qn_ne(out, 1); j++) back_key(a, b, kh, j, out, for_v);
}

static void back_masks(const attention *a, const qn_tensor *dmask) {
    if (!dmask || qn_tensor_count(dmask) == 0) return;
    for (int64_t m3 = 0; m3 < qn_ne(dmask, 3); m3++)
        for (int64_t m2 = 0; m2 < qn_ne(dmask, 2); m2++)
            for (int64_t i = 0; i < qn_ne(dmask, 1); i++)
                for (int64_t j = 0; j < qn_ne(dmask, 0); j++) qn_put4(dmask, m3, m2, i, j, back_mask(a, m3, m2, i, j));
}

qn_status qn_ref_flash_attn_back(const qn_call *c) {
    attention a = attention_of(c, 4, 5);
    const qn_tensor *dsinks = c->dst[4];
    int something = 0;
    for (int i = 0; i < 5; i++) something |= c->dst[i] && qn_tensor_count(c->dst[i]) > 0;
    if (!something) return QN_OK; /* extents beside an empty axis may be too large to walk */
    a.g = c->src[3];
    a.kept = c->workspace;
    back_queries(&a, c->dst[0]);
    back_keys(&a, c->dst[1], 0);
    back_keys(&a, c->dst[2], 1);
    back_masks(&a, c->dst[3]);
    if (a.sinks && dsinks)
        for (int64_t h = 0; h < a.heads; h++) qn_put4(dsinks, 0, 0, 0, h, back_sink(&a, h));
    return QN_OK;
}

/* ---- Lightning indexer */

qn_status qn_ref_lightning_indexer(const qn_call *c) {
    const qn_tensor *y = c->dst[0], *q = c->src[Q], *k = c->src[K], *w = c->src[2], *mask = c->src[3];
    if (qn_tensor_count(y) == 0) return QN_OK;
    for (int64_t s = 0; s < qn_ne(y, 3); s++)
        for (int64_t t = 0; t < qn_ne(y, 1); t++)
            for (int64_t j = 0; j < qn_ne(y, 0); j++) {
                double sum = 0;
                for (int64_t h = 0; h < qn_ne(q, 1); h++) {
                    double dot = qn_dot_rows(q, qn_row4(q, s, t, h), k, qn_row4(k, s, j, 0), qn_ne(q, 0));
                    sum += (dot < 0 ? 0 : dot) * qn_get4(w, s, 0, t, h); /* NaN passes */
                }
                qn_put4(y, s, 0, t, j, sum + qn_get4(mask, s % qn_ne(mask, 3), 0, t, j));
            }
    return QN_OK;
}

/* ---- Gradient */

void qn_vjp_flash_attn_ext(qn_vjp_call *v) {
    const qn_attr_flash_attn_ext *at = v->attr;
    qn_attr_flash_attn_back back = qn_attr_flash_attn_back_default();
    qn_val src[6] = {v->src[Q], v->src[K], v->src[V], v->grad[0], v->src[3], v->src[4]};
    qn_val out[5] = {QN_VAL_NONE, QN_VAL_NONE, QN_VAL_NONE, QN_VAL_NONE, QN_VAL_NONE};
    back.scale = at->scale;
    back.max_bias = at->max_bias;
    back.logit_softcap = at->logit_softcap;
    back.prec = at->prec;
    qn_emit_many(v, QN_OP_flash_attn_back, 0, &back, 6, src, v->want[4] ? 5 : v->want[3] ? 4 : 3, out);
    for (int i = 0; i < 5; i++)
        if (v->want[i]) v->out[i] = out[i];
}
