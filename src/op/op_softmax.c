/* Softmax over rows. A row is walked several times (maximum, sum, result) instead of being kept, so rows of any length need no
 * workspace, and the result may lie where the scores were. A score of -Inf is no score at all: it takes no share, and a row
 * without any score is zero where the plain formula says NaN. A row with a score that is no number has no shares: all of it is NaN. */
#include "op/softmax.h"

#include <math.h>

#include "op/alibi.h"
#include "op/op_mask.h"
#include "op/op_tape.h"
#include "op/product.h"

/* ---- Shape rules */

qn_status qn_infer_row_full(qn_infer_call *c) {
    const qn_tensor *x = c->src[0];
    if (qn_ne(x, 0) == 0) return qn_reject_src(c, 0, QN_REASON_SHAPE_EMPTY, qn_axis(x, 0), 0, 0);
    c->flops_each = 5;
    qn_out_like(c, 0, x, x->dtype);
    return QN_OK;
}

/* A mask has x's columns, at least its rows, and is tiled over the other axes. */
static qn_status need_mask(qn_infer_call *c, int slot, const qn_tensor *x) {
    const qn_tensor *mask = c->src[slot];
    QN_TRY(qn_need_extent(c, slot, 0, qn_ne(x, 0)));
    if (qn_ne(mask, 1) < qn_ne(x, 1))
        return qn_reject_src(c, slot, QN_REASON_SHAPE_SMALL, qn_axis(mask, 1), qn_ne(x, 1), qn_ne(mask, 1));
    for (int k = QN_MAX_RANK - 1; k >= 2; k--) QN_TRY(qn_need_divides(c, slot, k, qn_ne(x, k)));
    return QN_OK;
}

qn_status qn_infer_soft_max(qn_infer_call *c) {
    const qn_attr_soft_max *at = c->attr;
    const qn_tensor *x = c->src[0], *mask = c->src[1];
    if (mask) QN_TRY(need_mask(c, 1, x));
    if (!mask && at->max_bias > 0) return qn_reject_src(c, 1, QN_REASON_MISSING, -1, 0, 0);
    if (c->src[2]) {
        QN_TRY(qn_need_rank(c, 2, 1));
        QN_TRY(qn_need_extent(c, 2, 0, qn_ne(x, 2)));
    }
    if (mask && mask->dtype == QN_DTYPE_F64) QN_TRY(qn_need_f64_pair(c, 1, 0));
    if (c->src[2]) QN_TRY(qn_need_f64_pair(c, 2, 0));
    c->flops_each = 5; /* maximum, difference, power, sum, quotient */
    qn_out_like(c, 0, x, x->dtype);
    return QN_OK;
}

qn_status qn_infer_soft_max_back(qn_infer_call *c) {
    QN_TRY(qn_need_same_shape(c, 1, 0));
    QN_TRY(qn_need_same_dtype(c, 1, 0));
    c->flops_each = 4;
    qn_out_like(c, 0, c->src[0], c->src[0]->dtype);
    return QN_OK;
}

qn_status qn_infer_soft_max_mask_back(qn_infer_call *c) {
    QN_TRY(qn_need_same_shape(c, 1, 0));
    QN_TRY(need_mask(c, 2, c->src[0]));
    QN_TRY(qn_need_same_dtype(c, 1, 0));
    qn_out_like(c, 0, c->src[2], c->src[0]->dtype);
    return QN_OK;
}

/* ---- References */

double qn_op_row_log_sum(const qn_tensor *x, const char *row, int64_t n) {
    double run[QN_RUN], top = -INFINITY, sum = 0;
    for (int64_t first = 0; first < n; first += QN_RUN) {
        int64_t some = qn_some(n, first);
        qn_load_row(x, row, first, some, run);
        for (int64_t i = 0; i < some; i++)
            if (run[i] > top) top = run[i];
    }
    for (int64_t first = 0; first < n; first += QN_RUN) {
        int64_t some = qn_some(n, first);
        qn_load_row(x, row, first, some, run);
        for (int64_t i = 0; i < some; i++)
            if (run[i] != -INFINITY) sum += exp(run[i] - top);
    }
    return sum == 0 ? -INFINITY : top + log(sum);
}

/* One row of scores: where it is, and what its head fixes. A head without a sink has one at -Inf. */
typedef struct score_row {
    const qn_tensor *x, *mask;
    const char *x_row, *mask_row;
    int64_t n;
    double scale, slope, sink;
} score_row;

/* A mask of -Inf hides its score whatever that is, even NaN. */
static void load_scores(const score_row *r, int64_t first, int64_t some, double *z) {
    double mask[QN_RUN];
    qn_load_row(r->x, r->x_row, first, some, z);
    for (int64_t i = 0; i < some; i++) z[i] *= r->scale;
    if (!r->mask) return;
    qn_load_row(r->mask, r->mask_row, first, some, mask);
    for (int64_t i = 0; i < some; i++) z[i] = mask[i] == -INFINITY ? -INFINITY : z[i] + r->slope * mask[i];
}

static double top_score(const score_row *r) {
    double z[QN_RUN], top = r->sink;
    for (int64_t first = 0; first < r->n; first += QN_RUN) {
        int64_t some = qn_some(r->n, first);
        load_scores(r, first, some, z);
        for (int64_t i = 0; i < some; i++)
            if (z[i] > top) top = z[i];
    }
    return top;
}

static double sum_scores(const score_row *r, double top) {
    double z[QN_RUN], sum = r->sink == -INFINITY ? 0 : exp(r->sink - top);
    for (int64_t first = 0; first < r->n; first += QN_RUN) {
        int64_t some = qn_some(r->n, first);
        load_scores(r, first, some, z);
        for (int64_t i = 0; i < some; i++)
            if (z[i] != -INFINITY) sum += exp(z[i] - top);
    }
    return sum;
}

static void soft_max_row(const score_row *r, const qn_tensor *y, char *y_row) {
    double z[QN_RUN], top = top_score(r), sum = sum_scores(r, top);
    for (int64_t first = 0; first < r->n; first += QN_RUN) {
        int64_t some = qn_some(r->n, first);
        load_scores(r, first, some, z);
        for (int64_t i = 0; i < some; i++) z[i] = sum == 0 ? 0 : exp(z[i] - top) / sum;
        qn_store_row(y, y_row, first, some, z);
    }
}

/* Heads are the third axis from the end. */
static int64_t head_of(const qn_rows *it) { return it->rank >= 3 ? it->index[it->rank - 3] : 0; }

qn_status qn_ref_soft_max(const qn_call *c) {
    const qn_attr_soft_max *at = c->attr;
    const qn_tensor *y = c->dst[0], *x = c->src[0], *sinks = c->src[2];
    qn_rows it;
    for (qn_rows_begin(&it, x->rank, x->shape); it.live; qn_rows_next(&it)) {
        int64_t head = head_of(&it);
        score_row r = {.x = x, .mask = c->src[1], .x_row = qn_row(&it, x), .n = it.n, .scale = (double)at->scale};
        r.slope = qn_alibi_slope((double)at->max_bias, qn_ne(x, 2), head);
        r.sink = sinks ? qn_get4(sinks, 0, 0, 0, head) : -INFINITY;
        if (r.mask) r.mask_row = qn_row_tiled(&it, r.mask);
        soft_max_row(&r, y, qn_row(&it, y));
    }
    return QN_OK;
}

qn_status qn_ref_soft_max_back(const qn_call *c) {
    const qn_attr_soft_max_back *at = c->attr;
    const qn_tensor *dx = c->dst[0], *g = c->src[0], *y = c->src[1];
    double up[QN_RUN], share[QN_RUN];
    qn_rows it;
    for (qn_rows_begin(&it, y->rank, y->shape); it.live; qn_rows_next(&it)) {
        double mean = qn_dot_rows(y, qn_row(&it, y), g, qn_row(&it, g), it.n);
        for (int64_t first = 0; first < it.n; first += QN_RUN) {
            int64_t some = qn_some(it.n, first);
            qn_load_row(g, qn_row(&it, g), first, some, up);
            qn_load_row(y, qn_row(&it, y), first, some, share);
            for (int64_t i = 0; i < some; i++) up[i] = (double)at->scale * share[i] * (up[i] - mean);
            qn_store_row(dx, qn_row(&it, dx), first, some, up);
        }
    }
    return QN_OK;
}

qn_status qn_ref_log_soft_max(const qn_call *c) {
    const qn_tensor *y = c->dst[0], *x = c->src[0];
    double run[QN_RUN];
    qn_rows it;
    for (qn_rows_begin(&it, x->rank, x->shape); it.live; qn_rows_next(&it)) {
        double total = qn_op_row_log_sum(x, qn_row(&it, x), it.n);
        for (int64_t first = 0; first < it.n; first += QN_RUN) {
            int64_t some = qn_some(it.n, first);
            qn_load_row(x, qn_row(&it, x), first, some, run);
            for (int64_t i = 0; i < some; i++) run[i] = total == -INFINITY ? -INFINITY : run[i] - total;
            qn_store_row(y, qn_row(&it, y), first, some, run);
        }
    }
    return QN_OK;
}

/* Elements [first, first + some) of one row of the mask's gradient: the tiles that used it, each times its head's slope. */
static void mask_back_run(const qn_call *c, const qn_rows *it, int64_t tiles, int64_t first, int64_t some) {
    const qn_attr_soft_max_mask_back *at = c->attr;
    const qn_tensor *dmask = c->dst[0], *g = c->src[0], *y = c->src[1];
    double sum[QN_RUN] = {0}, up[QN_RUN], share[QN_RUN];
    for (int64_t tile = 0; tile < tiles; tile++) {
        int64_t head;
        const char *g_row = qn_at(g, qn_op_mask_tile(it, dmask, g, tile, &head));
        const char *y_row = qn_at(y, qn_op_mask_tile(it, dmask, y, tile, &head));
        double mean = qn_dot_rows(y, y_row, g, g_row, it->n);
        double slope = qn_alibi_slope((double)at->max_bias, qn_ne(y, 2), head);
        qn_load_row(g, g_row, first, some, up);
        qn_load_row(y, y_row, first, some, share);
        for (int64_t i = 0; i < some; i++) sum[i] += slope * share[i] * (up[i] - mean);
    }
    qn_store_row(dmask, qn_row(it, dmask), first, some, sum);
}

/* The mask may have more rows than x: what no row of x met has no gradient. */
qn_status qn_ref_soft_max_mask_back(const qn_call *c) {
    const qn_tensor *dmask = c->dst[0], *y = c->src[1];
    int64_t tiles = qn_op_mask_tiles(dmask, y);
    qn_rows it;
    for (qn_rows_begin(&it, dmask->rank, dmask->shape); it.live; qn_rows_next(&it)) {
        int used = it.rank < 2 || it.index[it.rank - 2] < qn_ne(y, 1);
        for (int64_t first = 0; first < it.n; first += QN_RUN)
            mask_back_run(c, &it, used ? tiles : 0, first, qn_some(it.n, first));
    }
    return QN_OK;
}

/* ---- Gradients */

/* A sink takes the share 1 - sum(y) of each row of its head, and gets minus that share of the row's <y, g>. */
static qn_val sinks_gradient(qn_vjp_call *v) {
    qn_val y = v->dst[0], g = v->grad[0];
    qn_shape s = qn_shape_of(v, y);
    int64_t split[3] = {1, qn_sd(&s, 2), qn_sd(&s, 1)}, heads[3] = {1, qn_sd(&s, 2), 1};
    for (int k = 0; k < s.rank; k++)
        if (qn_sd(&s, k) == 0) return QN_VAL_NONE;
    for (int k = 3; k < s.rank; k++) split[0] *= qn_sd(&s, k);
    qn_val left = qn_e_scale(v, qn_e_sum_rows(v, y), -1, 1);
    qn_val each = qn_e_mul(v, left, qn_e_sum_rows(v, qn_e_mul(v, y, g)));
    qn_val sum = qn_e_untile(v, qn_e_reshape(v, each, 3, split), 3, heads);
    return qn_e_like(v, qn_e_scale(v, sum, -1, 0), v->src[2]);
}

void qn_vjp_soft_max(qn_vjp_call *v) {
    const qn_attr_soft_max *at = v->attr;
    if (v->want[0]) {
        qn_attr_soft_max_back back = qn_attr_soft_max_back_default();
        back.scale = at->scale;
        back.max_bias = at->max_bias;
        v->out[0] = qn_emit2(v, QN_OP_soft_max_back, 0, &back, v->grad[0], v->dst[0]);
    }
    if (v->want[1]) {
        qn_attr_soft_max_mask_back back = qn_attr_soft_max_mask_back_default();
        back.max_bias = at->max_bias;
        v->out[1] = qn_emit3(v, QN_OP_soft_max_mask_back, 0, &back, v->grad[0], v->dst[0], v->src[1]);
    }
    if (v->want[2]) v->out[2] = sinks_gradient(v);
}

/* dx = g - softmax(x) sum(g). */
void qn_vjp_log_soft_max(qn_vjp_call *v) {
    qn_val share = qn_e_unary(v, QN_UNARY_exp, v->dst[0]);
    v->out[0] = qn_e_sub(v, v->grad[0], qn_e_mul(v, share, qn_e_sum_rows(v, v->grad[0])));
}

/* ---- Second order */

/* y (g - sum of g y) */
static qn_val pulled(qn_vjp_call *v, qn_val g, qn_val y) {
    return qn_e_mul(v, y, qn_e_sub(v, g, qn_e_sum_rows(v, qn_e_mul(v, g, y))));
}

static void soft_max_back_formula(qn_vjp_call *v, qn_op_tape *t, qn_val *out) {
    (void)t;
    double scale = (double)((const qn_attr_soft_max_back *)v->attr)->scale;
    out[0] = qn_e_scale(v, pulled(v, qn_op_wide(v, v->src[0]), qn_op_wide(v, v->src[1])), scale, 0);
}

static qn_val exponents(qn_vjp_call *v, int64_t n, double step, double first, uint32_t dtype) {
    qn_attr_arange at = qn_attr_arange_default();
    at.stop = (float)n;
    qn_val i, none = QN_VAL_NONE;
    qn_emit_many(v, QN_OP_arange, 0, &at, 0, &none, 1, &i);
    return qn_e_scale(v, qn_e_cast(v, i, dtype), step, first);
}

/* The heads' slopes, as qn_alibi_slope has them, [heads, 1, 1]. */
static qn_val slopes(qn_vjp_call *v, double max_bias, int64_t heads, uint32_t dtype) {
    int64_t full = 1, d[3] = {heads, 1, 1};
    while (full <= heads / 2) full *= 2;
    qn_val e = exponents(v, full, -max_bias / (double)full, -max_bias / (double)full, dtype);
    if (heads > full) {
        qn_attr_concat at = qn_attr_concat_default();
        e = qn_emit2(v, QN_OP_concat, 0, &at, e,
                     exponents(v, heads - full, -max_bias / (double)full, -max_bias / (2 * (double)full), dtype));
    }
    return qn_e_reshape(v, qn_emit1(v, QN_OP_math, QN_MATH_exp2, NULL, e), 3, d);
}

/* What the rows pull, times their slopes, added up over the tiles of the mask; its rows below those of x get nothing. */
static void soft_max_mask_back_formula(qn_vjp_call *v, qn_op_tape *t, qn_val *out) {
    (void)t;
    double max_bias = (double)((const qn_attr_soft_max_mask_back *)v->attr)->max_bias;
    qn_shape x = qn_shape_of(v, v->src[1]), m = qn_shape_of(v, v->src[2]);
    int rank = x.rank > m.rank ? x.rank : m.rank;
    int64_t whole[QN_MAX_RANK], tile[QN_MAX_RANK];
    if (rank < 2) rank = 2;
    qn_attr_pad below = qn_attr_pad_default();
    below.left.rank = below.right.rank = rank;
    for (int k = 0; k < rank; k++) {
        whole[rank - 1 - k] = qn_sd(&x, k);
        tile[rank - 1 - k] = k < 2 ? qn_sd(&x, k) : qn_sd(&m, k);
        if (qn_sd(&x, k) == 0) return;
    }
    below.right.d[rank - 2] = qn_sd(&m, 1) - qn_sd(&x, 1);
    qn_val d = pulled(v, qn_op_wide(v, v->src[0]), qn_op_wide(v, v->src[1]));
    if (max_bias > 0 && v->status == QN_OK) {
        int64_t wide[QN_MAX_RANK] = {1, 1, 1};
        int r = rank < 3 ? 3 : rank;
        for (int k = 0; k < r; k++) wide[r - 1 - k] = qn_sd(&x, k);
        d = qn_e_mul(v, qn_e_reshape(v, d, r, wide), slopes(v, max_bias, qn_sd(&x, 2), qn_shape_of(v, d).dtype));
    }
    d = qn_e_untile(v, qn_e_reshape(v, d, rank, whole), rank, tile);
    if (below.right.d[rank - 2]) d = qn_emit1(v, QN_OP_pad, 0, &below, d);
    out[0] = qn_e_like(v, d, v->src[2]);
}

void qn_vjp_soft_max_back(qn_vjp_call *v) { qn_op_vjp_of_formula(v, soft_max_back_formula); }
void qn_vjp_soft_max_mask_back(qn_vjp_call *v) { qn_op_vjp_of_formula(v, soft_max_mask_back_formula); }
