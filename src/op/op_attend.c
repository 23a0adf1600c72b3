/* Attention of graphs, forward and backward in one piece: either layout, grouped heads, every kind of mask. Query head h reads
 * key head h / (query heads / key heads). A score of -Inf, by mask or by itself, is no score: its key is never looked at, and a
 * query without any score gives zero. Query i stands at position i + q_offset among the keys; unless told otherwise the last
 * query stands at the last key. */
#include <math.h>

#include "op/op_emit.h"
#include "op/product.h"

enum { Q = 0, K = 1, V = 2 }; /* the slots that forward and backward have in common */
enum { MASK_NONE = 0, MASK_CAUSAL = 1, MASK_CUSTOM = 2, MASK_SLIDING = 3, MASK_BIAS = 4 };

/* The attributes of both ops are one list in the table; everything here relies on it. */
_Static_assert(sizeof(qn_attr_attention) == sizeof(qn_attr_attention_back), "same attributes");

/* Axes of heads and of the sequence, from the last. */
static int head_axis(const qn_attr_attention *at) { return at->layout ? 1 : 2; }
static int seq_axis(const qn_attr_attention *at) { return at->layout ? 2 : 1; }
static int takes_mask(const qn_attr_attention *at) { return at->mask_kind == MASK_CUSTOM || at->mask_kind == MASK_BIAS; }

/* ---- Shape rules */

/* Attributes that the kind of mask would ignore are mistakes. */
static qn_status need_kind(qn_infer_call *c, int mask) {
    const qn_attr_attention *at = c->attr;
    if (at->window && at->mask_kind != MASK_SLIDING) return qn_reject_attr(c, "window", QN_REASON_ATTR_VALUE, -1, 0, at->window);
    if (at->q_offset >= 0 && at->mask_kind != MASK_CAUSAL && at->mask_kind != MASK_SLIDING)
        return qn_reject_attr(c, "q_offset", QN_REASON_ATTR_VALUE, -1, -1, at->q_offset);
    if (takes_mask(at) && !c->src[mask]) return qn_reject_src(c, mask, QN_REASON_MISSING, -1, 0, 0);
    if (!takes_mask(at) && c->src[mask]) return qn_reject_src(c, mask, QN_REASON_NOT_TAKEN, -1, 0, 0);
    return QN_OK;
}

/* A mask is [B, H, Sq, Sk], each of the first three may be 1. */
static qn_status need_mask(qn_infer_call *c, int slot) {
    const qn_attr_attention *at = c->attr;
    const qn_tensor *q = c->src[Q];
    int64_t full[4] = {qn_ne(c->src[K], seq_axis(at)), qn_ne(q, seq_axis(at)), qn_ne(q, head_axis(at)), qn_ne(q, 3)};
    QN_TRY(qn_need_rank(c, slot, 4));
    QN_TRY(qn_need_extent(c, slot, 0, full[0]));
    for (int k = 1; k < 4; k++)
        if (qn_ne(c->src[slot], k) != 1) QN_TRY(qn_need_extent(c, slot, k, full[k]));
    return QN_OK;
}

static qn_status need_mask_dtype(qn_infer_call *c, int slot) {
    const qn_attr_attention *at = c->attr;
    if (at->mask_kind != MASK_BIAS) return QN_OK; /* a yes or no in any dtype */
    if (c->src[slot]->dtype == QN_DTYPE_BOOL)
        return qn_reject_src(c, slot, QN_REASON_DTYPE_PAIR, -1, c->src[Q]->dtype, QN_DTYPE_BOOL);
    return qn_need_f64_pair(c, slot, Q);
}

/* All that forward and backward check of q, k, v and the mask. */
static qn_status need_attention(qn_infer_call *c, int mask) {
    const qn_attr_attention *at = c->attr;
    const qn_tensor *q = c->src[Q], *k = c->src[K];
    QN_TRY(need_kind(c, mask));
    for (int slot = Q; slot <= V; slot++) QN_TRY(qn_need_rank(c, slot, 4));
    QN_TRY(qn_need_extent(c, K, 0, qn_ne(q, 0)));
    QN_TRY(qn_need_extent(c, K, 3, qn_ne(q, 3)));
    QN_TRY(qn_need_divides(c, K, head_axis(at), qn_ne(q, head_axis(at))));
    for (int axis = 1; axis < 4; axis++) QN_TRY(qn_need_extent(c, V, axis, qn_ne(k, axis)));
    if (c->src[mask]) QN_TRY(need_mask(c, mask));
    QN_TRY(qn_need_f64_pair(c, K, Q));
    QN_TRY(qn_need_f64_pair(c, V, Q));
    return c->src[mask] ? need_mask_dtype(c, mask) : QN_OK;
}

/* Two products of every query with every key, shared out over `width` elements. */
static double flops_each(const qn_infer_call *c, int64_t width) {
    const qn_attr_attention *at = c->attr;
    double both = (double)qn_ne(c->src[Q], 0) + (double)qn_ne(c->src[V], 0);
    return width ? 2 * (double)qn_ne(c->src[K], seq_axis(at)) * both / (double)width : 0;
}

qn_status qn_infer_attention(qn_infer_call *c) {
    const qn_attr_attention *at = c->attr;
    const qn_tensor *q = c->src[Q];
    QN_TRY(need_attention(c, 3));
    int64_t d[4] = {qn_ne(q, 3), qn_ne(q, 2), qn_ne(q, 1), qn_ne(c->src[V], 0)};
    int64_t rows[3] = {qn_ne(q, 3), qn_ne(q, head_axis(at)), qn_ne(q, seq_axis(at))};
    int rank = qn_trim_rank(4, d, q->rank < 4 ? q->rank : 4);
    QN_TRY(qn_out_shape(c, 0, q->dtype, rank, d + 4 - rank));
    c->flops_each = flops_each(c, d[3]);
    return qn_out_shape(c, 1, qn_product_dtype(q), 3, rows);
}

static qn_status need_gradients(qn_infer_call *c) {
    const qn_attr_attention *at = c->attr;
    const qn_tensor *q = c->src[Q];
    if (!c->src[3] && !c->src[5]) return qn_reject_src(c, 3, QN_REASON_MISSING, -1, 0, 0);
    if (c->src[3]) {
        QN_TRY(qn_need_rank(c, 3, 4));
        QN_TRY(qn_need_extent(c, 3, 0, qn_ne(c->src[V], 0)));
        for (int k = 1; k < 4; k++) QN_TRY(qn_need_extent(c, 3, k, qn_ne(q, k)));
        QN_TRY(qn_need_f64_pair(c, 3, Q));
    }
    if (c->src[5]) {
        QN_TRY(qn_need_rank(c, 5, 3));
        QN_TRY(qn_need_extent(c, 5, 0, qn_ne(q, seq_axis(at))));
        QN_TRY(qn_need_extent(c, 5, 1, qn_ne(q, head_axis(at))));
        QN_TRY(qn_need_extent(c, 5, 2, qn_ne(q, 3)));
        QN_TRY(qn_need_f64_pair(c, 5, Q));
    }
    return QN_OK;
}

/* The workspace is two doubles a query: ln of its sum, and <g, result> less the gradient of that logarithm. */
qn_status qn_infer_attention_back(qn_infer_call *c) {
    const qn_attr_attention *at = c->attr;
    const qn_tensor *q = c->src[Q];
    int64_t bytes = 2 * (int64_t)sizeof(double);
    QN_TRY(need_attention(c, 4));
    QN_TRY(need_gradients(c));
    for (int k = 1; k < 4; k++)
        if (qn_mul_overflow(bytes, qn_ne(q, k), &bytes))
            return qn_reject_src(c, Q, QN_REASON_SIZE_OVERFLOW, -1, INT64_MAX, qn_ne(q, k)); /* not the source's own */
    c->workspace = (size_t)bytes;
    for (int slot = Q; slot <= V; slot++) qn_out_like(c, slot, c->src[slot], c->src[slot]->dtype);
    if (at->mask_kind == MASK_BIAS) qn_out_like(c, 3, c->src[4], c->src[4]->dtype);
    c->flops_each = 2.5 * flops_each(c, qn_ne(q, 0)); /* five products, where forward has two */
    return QN_OK;
}

/* ---- What forward and backward compute alike */

typedef struct attention {
    const qn_attr_attention *at;
    const qn_tensor *q, *k, *v, *mask;
    const qn_tensor *g, *g_lse; /* backward only, either may be NULL */
    double scale, cap;
    int64_t batches, heads, queries, keys, group; /* group: query heads to a key head */
    int64_t offset;
    double *kept; /* backward only */
} attention;

/* One query. */
typedef struct query {
    int64_t b, h, i;
    const char *q_row, *g_row;
} query;

/* The row of head h at place s, in either layout. */
static char *row_of(const attention *a, const qn_tensor *t, int64_t b, int64_t h, int64_t s) {
    return a->at->layout ? qn_row4(t, b, s, h) : qn_row4(t, b, h, s);
}

static attention attention_of(const qn_call *c, int mask) {
    const qn_attr_attention *at = c->attr;
    attention a = {.at = at, .q = c->src[Q], .k = c->src[K], .v = c->src[V], .mask = c->src[mask]};
    a.scale = (double)at->scale;
    if (a.scale == 0) a.scale = qn_ne(a.q, 0) ? 1 / sqrt((double)qn_ne(a.q, 0)) : 1;
    a.cap = (double)at->softcap;
    a.batches = qn_ne(a.q, 3);
    a.heads = qn_ne(a.q, head_axis(at));
    a.queries = qn_ne(a.q, seq_axis(at));
    a.keys = qn_ne(a.k, seq_axis(at));
    a.group = qn_share(qn_ne(a.k, head_axis(at)), a.heads);
    a.offset = at->q_offset >= 0 ? at->q_offset : a.keys - a.queries;
    return a;
}

static query query_of(const attention *a, int64_t b, int64_t h, int64_t i) {
    query r = {b, h, i, row_of(a, a->q, b, h, i), a->g ? row_of(a, a->g, b, h, i) : NULL};
    return r;
}

static char *key_row(const attention *a, const query *r, const qn_tensor *t, int64_t j) {
    return row_of(a, t, r->b, r->h / a->group, j);
}

/* What the mask adds to the score of key j: 0, a bias, or -Inf. */
static double mask_of(const attention *a, const query *r, int64_t j) {
    int64_t at = r->i + a->offset;
    switch (a->at->mask_kind) {
    case MASK_CAUSAL: return j > at ? -INFINITY : 0;
    case MASK_SLIDING: return j > at || at - j > a->at->window ? -INFINITY : 0;
    case MASK_NONE: return 0;
    default: break;
    }
    const qn_tensor *m = a->mask;
    double v = qn_get4(m, qn_ne(m, 3) == 1 ? 0 : r->b, qn_ne(m, 2) == 1 ? 0 : r->h, qn_ne(m, 1) == 1 ? 0 : r->i, j);
    if (a->at->mask_kind == MASK_BIAS) return v;
    return v < 0.5 ? -INFINITY : 0;
}

/* The score of key j; *bend becomes how fast it follows the scaled dot product, which only a softcap changes. */
static double score_of(const attention *a, const query *r, int64_t j, double *bend) {
    double bias = mask_of(a, r, j);
    if (bias == -INFINITY) return bias;
    double x = a->scale * qn_dot_rows(a->q, r->q_row, a->k, key_row(a, r, a->k, j), qn_ne(a->q, 0));
    *bend = 1;
    if (a->cap != 0) {
        double t = tanh(x / a->cap);
        *bend = 1 - t * t;
        x = a->cap * t;
    }
    return x + bias;
}

static double top_score(const attention *a, const query *r) {
    double top = -INFINITY, bend;
    for (int64_t j = 0; j < a->keys; j++) {
        double s = score_of(a, r, j, &bend);
        if (s > top) top = s;
    }
    return top;
}

/* ---- Forward */

/* Elements [first, first + some) of the result of one query into sum; returns the sum of its weights. */
static double weigh(const attention *a, const query *r, double top, int64_t first, int64_t some, double *sum) {
    double total = 0, bend;
    for (int64_t j = 0; j < a->keys; j++) {
        double s = score_of(a, r, j, &bend);
        if (s == -INFINITY) continue;
        double weight = exp(s - top);
        total += weight;
        if (some) qn_add_row(sum, weight, a->v, key_row(a, r, a->v, j), first, some);
    }
    return total;
}

static void attend(const attention *a, const query *r, const qn_tensor *y, const qn_tensor *lse) {
    double top = top_score(a, r);
    int64_t n = qn_ne(a->v, 0);
    for (int64_t first = 0; first < n; first += QN_RUN) {
        double sum[QN_RUN] = {0};
        int64_t some = qn_some(n, first);
        double total = weigh(a, r, top, first, some, sum);
        for (int64_t d = 0; d < some; d++) sum[d] = total == 0 ? 0 : sum[d] / total;
        qn_store_row(y, row_of(a, y, r->b, r->h, r->i), first, some, sum);
    }
    if (!lse) return;
    double total = weigh(a, r, top, 0, 0, NULL);
    qn_put4(lse, 0, r->b, r->h, r->i, total == 0 ? -INFINITY : top + log(total));
}

qn_status qn_ref_attention(const qn_call *c) {
    attention a = attention_of(c, 3);
    const qn_tensor *y = c->dst[0], *lse = c->dst[1];
    if (qn_tensor_count(y) == 0 && (!lse || qn_tensor_count(lse) == 0)) return QN_OK;
    for (int64_t b = 0; b < a.batches; b++)
        for (int64_t h = 0; h < a.heads; h++)
            for (int64_t i = 0; i < a.queries; i++) {
                query r = query_of(&a, b, h, i);
                attend(&a, &r, y, lse);
            }
    return QN_OK;
}

/* ---- Backward. With P the weights, l the logarithm of their sum, D = <g, result> - g_l: dv = PT g, dS = P (g vT - D), dX = dS
 * bend, dq = scale dX k, dk = scale dXT q. */

static double *kept_of(const attention *a, const query *r) {
    return a->kept + 2 * ((r->b * a->heads + r->h) * a->queries + r->i);
}

/* <g, v_j> */
static double pay(const attention *a, const query *r, int64_t j) {
    return a->g ? qn_dot_rows(a->g, r->g_row, a->v, key_row(a, r, a->v, j), qn_ne(a->v, 0)) : 0;
}

/* The weight of key j, and the gradients of its score and of its dot product. Where there is no score nothing behind it is
 * looked at. */
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
    p.score = p.weight * (pay(a, r, j) - kept[1]);
    p.product = a->scale * p.score * bend;
    return p;
}

/* The two numbers of one query. One without any score keeps +Inf as its sum, which gives every share of it as zero. */
static void keep_query(const attention *a, const query *r) {
    double top = top_score(a, r), bend, total = 0, result = 0, *kept = kept_of(a, r);
    for (int64_t j = 0; j < a->keys; j++) {
        double s = score_of(a, r, j, &bend);
        if (s == -INFINITY) continue;
        double weight = exp(s - top);
        total += weight;
        result += weight * pay(a, r, j);
    }
    kept[0] = total == 0 ? INFINITY : top + log(total);
    kept[1] = total == 0 ? 0 : result / total;
    if (a->g_lse && total != 0) kept[1] -= qn_get4(a->g_lse, 0, r->b, r->h, r->i);
}

static void back_query(const attention *a, const query *r, const qn_tensor *dq) {
    int64_t n = qn_ne(a->q, 0);
    for (int64_t first = 0; first < n; first += QN_RUN) {
        double sum[QN_RUN] = {0};
        int64_t some = qn_some(n, first);
        for (int64_t j = 0; j < a->keys; j++) {
            pull p = pull_of(a, r, j);
            if (p.scored) qn_add_row(sum, p.product, a->k, key_row(a, r, a->k, j), first, some);
        }
        qn_store_row(dq, row_of(a, dq, r->b, r->h, r->i), first, some, sum);
    }
}

/* Key j of key head kh: from every query of the group's heads its own row (for dk) or its g (for dv), weighted. */
static void back_key(const attention *a, int64_t b, int64_t kh, int64_t j, const qn_tensor *out, int for_v) {
    int64_t n = qn_ne(out, 0);
    for (int64_t first = 0; first < n; first += QN_RUN) {
        double sum[QN_RUN] = {0};
        int64_t some = qn_some(n, first);
        for (int64_t h = kh * a->group; h < a->heads && h < (kh + 1) * a->group; h++)
            for (int64_t i = 0; i < a->queries; i++) {
                query r = query_of(a, b, h, i);
                pull p = pull_of(a, &r, j);
                if (!p.scored || (for_v && !a->g)) continue;
                if (for_v) qn_add_row(sum, p.weight, a->g, r.g_row, first, some);
                else qn_add_row(sum, p.product, a->q, r.q_row, first, some);
            }
        qn_store_row(out, row_of(a, out, b, kh, j), first, some, sum);
    }
}

static void back_keys(const attention *a, const qn_tensor *out, int for_v) {
    if (qn_tensor_count(out) == 0) return;
    for (int64_t b = 0; b < a->batches; b++)
        for (int64_t kh = 0; kh < qn_ne(out, head_axis(a->at)); kh++)
            for (int64_t j = 0; j < a->keys; j++) back_key(a, b, kh, j, out, for_v);
}

/* Indices [from, to) along an axis of the scores that one index of the bias stands for: all of them when it was stretched. */
typedef struct share {
    int64_t from, to;
} share;

static share share_of(const qn_tensor *bias, int k, int64_t at, int64_t extent) {
    share s = {at, at + 1};
    if (qn_ne(bias, k) == 1) s = (share){0, extent};
    return s;
}

static double back_bias(const attention *a, int64_t b3, int64_t b2, int64_t b1, int64_t j) {
    share batches = share_of(a->mask, 3, b3, a->batches), heads = share_of(a->mask, 2, b2, a->heads);
    share queries = share_of(a->mask, 1, b1, a->queries);
    double sum = 0;
    for (int64_t b = batches.from; b < batches.to; b++)
        for (int64_t h = heads.from; h < heads.to; h++)
            for (int64_t i = queries.from; i < queries.to; i++) {
                query r = query_of(a, b, h, i);
                sum += pull_of(a, &r, j).score;
            }
    return sum;
}

static void back_biases(const attention *a, const qn_tensor *dbias) {
    if (!dbias || qn_tensor_count(dbias) == 0) return;
    for (int64_t b = 0; b < qn_ne(dbias, 3); b++)
        for (int64_t h = 0; h < qn_ne(dbias, 2); h++)
            for (int64_t i = 0; i < qn_ne(dbias, 1); i++)
                for (int64_t j = 0; j < qn_ne(dbias, 0); j++) qn_put4(dbias, b, h, i, j, back_bias(a, b, h, i, j));
}

qn_status qn_ref_attention_back(const qn_call *c) {
    attention a = attention_of(c, 4);
    int something = 0;
    for (int i = 0; i < 4; i++) something |= c->dst[i] && qn_tensor_count(c->dst[i]) > 0;
    if (!something) return QN_OK; /* extents beside an empty axis may be too large to walk */
    a.g = c->src[3];
    a.g_lse = c->src[5];
    a.kept = c->workspace;
    for (int64_t b = 0; b < a.batches; b++)
        for (int64_t h = 0; h < a.heads; h++)
            for (int64_t i = 0; i < a.queries; i++) {
                query r = query_of(&a, b, h, i);
                keep_query(&a, &r);
                back_query(&a, &r, c->dst[0]);
            }
    back_keys(&a, c->dst[1], 0);
    back_keys(&a, c->dst[2], 1);
    back_biases(&a, c->dst[3]);
    return QN_OK;
}

/* ---- Gradient */

void qn_vjp_attention(qn_vjp_call *v) {
    const qn_attr_attention *at = v->attr;
    qn_attr_attention_back back = qn_attr_attention_back_default();
    qn_val src[6] = {v->src[Q], v->src[K], v->src[V], v->grad[0], v->src[3], v->grad[1]};
    qn_val out[4] = {QN_VAL_NONE, QN_VAL_NONE, QN_VAL_NONE, QN_VAL_NONE};
    back.layout = at->layout;
    back.scale = at->scale;
    back.softcap = at->softcap;
    back.mask_kind = at->mask_kind;
    back.window = at->window;
    back.q_offset = at->q_offset;
    int bias = v->want[3] && at->mask_kind == MASK_BIAS; /* a custom mask only says yes or no */
    qn_emit_many(v, QN_OP_attention_back, 0, &back, 6, src, bias ? 4 : 3, out);
    for (int i = 0; i < 3; i++)
        if (v->want[i]) v->out[i] = out[i];
    if (bias) v->out[3] = out[3];
}
