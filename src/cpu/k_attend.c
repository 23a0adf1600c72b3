/* attention of graphs: both layouts, every kind of mask, and the logarithms of the sums. */
#include <math.h>

#include "cpu/k_attention.h"
#include "cpu/k_lanes.h"
#include "op/product.h"

enum { MASK_NONE = 0, MASK_CAUSAL = 1, MASK_CUSTOM = 2, MASK_SLIDING = 3, MASK_BIAS = 4 };

qn_attend_side qn_attend_side_of(const qn_tensor *t, int layout) {
    return qn_attend_side_by(t, 3, layout ? 1 : 2, layout ? 2 : 1);
}

qn_attend qn_attend_describe(const qn_call *c, const qn_tensor *mask) {
    const qn_attr_attention *at = c->attr;
    const qn_tensor *q = c->src[0], *k = c->src[1];
    int head = at->layout ? 1 : 2, seq = at->layout ? 2 : 1;
    qn_attend a = {.q = qn_attend_side_of(q, at->layout),
                   .k = qn_attend_side_of(k, at->layout),
                   .v = qn_attend_side_of(c->src[2], at->layout),
                   .mask_heads = 1,
                   .mask_batches = 1};
    a.batches = qn_ne(q, 3);
    a.heads = qn_ne(q, head);
    a.group = qn_share(qn_ne(k, head), a.heads);
    a.queries = qn_ne(q, seq);
    a.keys = qn_ne(k, seq);
    a.deep = qn_ne(q, 0);
    a.wide = qn_ne(c->src[2], 0);
    a.scale = at->scale != 0 ? at->scale : a.deep ? (float)(1 / sqrt((double)a.deep)) : 1;
    a.cap = at->softcap;
    a.offset = at->q_offset >= 0 ? at->q_offset : a.keys - a.queries;
    a.window = at->mask_kind == MASK_SLIDING ? at->window : INT64_MAX / 2;
    if (at->mask_kind == MASK_CAUSAL || at->mask_kind == MASK_SLIDING) a.kind = QN_ATTEND_BAND;
    if (mask) {
        a.kind = at->mask_kind == MASK_BIAS ? QN_ATTEND_BIAS : QN_ATTEND_CHOICE;
        a.mask = qn_attend_side_by(mask, 3, 2, 1);
        a.mask_heads = qn_ne(mask, 2);
        a.mask_batches = qn_ne(mask, 3);
    }
    return a;
}

static qn_attend forward_of(const qn_call *c) {
    const qn_tensor *lse = c->n_dst > 1 ? c->dst[1] : NULL;
    qn_attend a = qn_attend_describe(c, c->n_src > 3 ? c->src[3] : NULL);
    a.y = qn_attend_side_of(c->dst[0], ((const qn_attr_attention *)c->attr)->layout);
    if (!lse) return a;
    a.lse = lse->data ? qn_at(lse, 0) : NULL;
    a.lse_batch = qn_nb(lse, 2);
    a.lse_head = qn_nb(lse, 1);
    a.lse_place = qn_nb(lse, 0);
    return a;
}

static void run(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    (void)s;
    qn_attend a = forward_of(c);
    qn_attend_cut cut;
    if (qn_attend_plan(&a, &cut)) qn_attend_part(&a, &cut, c->workspace, phase, part);
}

int QN_K(attention)(const qn_call *c, qn_cpu_step *s) {
    const qn_tensor *y = c->dst[0], *mask = c->n_src > 3 ? c->src[3] : NULL, *lse = c->n_dst > 1 ? c->dst[1] : NULL;
    const qn_attr_attention *at = c->attr;
    if (!qn_lanes_rows(y) || qn_tensor_count(y) == 0 || qn_tensor_count(c->src[1]) == 0) return 0;
    for (int i = 0; i < 3; i++)
        if (!qn_lanes_rows(c->src[i])) return 0;
    if (mask) {
        int choice = mask->dtype == QN_DTYPE_BOOL && (qn_ne(mask, 0) == 1 || qn_nb(mask, 0) == 1);
        if (!(choice && at->mask_kind == MASK_CUSTOM) && !qn_lanes_rows(mask)) return 0;
    }
    if (lse && lse->dtype != QN_DTYPE_F32) return 0;
    if (at->q_offset > INT64_MAX / 4) return 0;
    qn_attend a = forward_of(c);
    qn_attend_cut cut;
    return qn_attend_plan(&a, &cut) && qn_attend_step(s, &cut, run);
}
