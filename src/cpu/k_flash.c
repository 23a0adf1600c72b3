/* flash_attn_ext: grouped heads, keys and values of any float or block type, f16 masks with slopes, softcap, sinks. */
#include "cpu/k_flash.h"
#include "op/product.h"

static int has_rows(const qn_tensor *t) {
    return qn_is_block(t->dtype) || qn_ne(t, 0) == 1 || qn_nb(t, 0) == qn_dtype_bytes(t->dtype);
}

qn_attend qn_attend_flash(const qn_call *c, const qn_tensor *mask, const qn_tensor *sinks) {
    const qn_attr_flash_attn_ext *at = c->attr;
    const qn_tensor *q = c->src[0], *k = c->src[1];
    qn_attend a = {
        .q = qn_attend_side_by(q, 3, 2, 1), .k = qn_attend_side_by(k, 3, 2, 1), .v = qn_attend_side_by(c->src[2], 3, 2, 1)};
    a.batches = qn_ne(q, 3);
    a.heads = qn_ne(q, 2);
    a.group = qn_share(qn_ne(k, 2), a.heads);
    a.queries = qn_ne(q, 1);
    a.keys = qn_ne(k, 1);
    a.deep = qn_ne(q, 0);
    a.wide = qn_ne(c->src[2], 0);
    a.scale = at->scale;
    a.cap = at->logit_softcap;
    a.max_bias = (double)at->max_bias;
    if (mask) {
        a.kind = QN_ATTEND_BIAS;
        a.mask = qn_attend_side_by(mask, 3, 2, 1);
        a.mask_heads = qn_ne(mask, 2);
        a.mask_batches = qn_ne(mask, 3);
    }
    if (sinks) {
        a.sinks = sinks->data ? qn_at(sinks, 0) : NULL;
        a.sink_step = qn_nb(sinks, 0);
    }
    return a;
}

static qn_attend describe(const qn_call *c) {
    qn_attend a = qn_attend_flash(c, c->src[3], c->src[4]);
    a.y = qn_attend_side_by(c->dst[0], 3, 1, 2);
    return a;
}

static void run(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    (void)s;
    qn_attend a = describe(c);
    qn_attend_cut cut;
    if (qn_attend_plan(&a, &cut)) qn_attend_part(&a, &cut, c->workspace, phase, part);
}

int QN_K(flash_attn_ext)(const qn_call *c, qn_cpu_step *s) {
    const qn_tensor *y = c->dst[0], *mask = c->src[3];
    if (y->dtype != QN_DTYPE_F32 || c->src[0]->dtype != QN_DTYPE_F32 || !has_rows(y)) return 0;
    if (qn_tensor_count(y) == 0 || qn_tensor_count(c->src[1]) == 0) return 0;
    for (int i = 0; i < 3; i++)
        if (!has_rows(c->src[i])) return 0;
    if (mask && (mask->dtype != QN_DTYPE_F16 || !has_rows(mask))) return 0;
    qn_attend a = describe(c);
    qn_attend_cut cut;
    return qn_attend_plan(&a, &cut) && qn_attend_step(s, &cut, run);
}
