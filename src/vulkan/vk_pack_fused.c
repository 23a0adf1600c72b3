/* Ops that fusion made, as the kernels of their parts one behind the other: each part rounds as it did alone. What only one element
 * goes through (bias, activation, residual) is one emitted region. */
#include "op/region.h"
#include "vulkan/vk_many.h"

/* ---- What follows a product */

typedef struct epilogue {
    const qn_tensor *y, *bias, *residual;
    int act; /* sub-op of unary, -1 for none */
} epilogue;

static void append(qn_code *code, qn_region_kind kind, int subop, uint32_t dtype, int a, int b) {
    qn_region_step s = {.kind = kind, .subop = subop, .dtype = (qn_dtype)dtype, .output = -1, .operand = {a, b, 0}};
    qn_region_append(code, &s);
}

/* y = act(y + bias) + residual, in place. */
static qn_status follow(qn_vk_pack *p, const epilogue *e, int waits) {
    qn_attr_region at = qn_attr_region_default();
    qn_vk_sub sub = {.op = QN_OP_region, .waits = waits, .attr = &at, .src = {e->y}, .dst = {e->y}};
    int value = 0, n = 1;
    if (!e->bias && !e->residual && e->act < 0) return QN_OK;
    if (e->bias) {
        sub.src[n] = e->bias;
        append(&at.code, QN_REGION_arith, QN_ARITH_add, e->y->dtype, value, n++);
        value = QN_REGION_STEP_BIT + at.code.count / 2 - 1;
    }
    if (e->act >= 0) {
        append(&at.code, QN_REGION_unary, e->act, e->y->dtype, value, 0);
        value = QN_REGION_STEP_BIT + at.code.count / 2 - 1;
    }
    if (e->residual) {
        sub.src[n] = e->residual;
        append(&at.code, QN_REGION_arith, QN_ARITH_add, e->y->dtype, value, n);
    }
    at.code.w[at.code.count - 2] |= 1u << 31; /* the last step is the output */
    return qn_vk_sub_step(p, &sub);
}

/* ---- Products */

/* [.., n] as [rows, n] where its rows are evenly spaced; 0 when they are not. */
static int flatten(const qn_tensor *t, qn_tensor *flat) {
    int64_t rows = 1, step = 0;
    *flat = *t;
    for (int k = 1; k < t->rank; k++) {
        if (qn_ne(t, k) == 1) continue;
        if (rows == 1) step = qn_nb(t, k);
        else if (qn_nb(t, k) != step * rows) return 0;
        if (qn_mul_overflow(rows, qn_ne(t, k), &rows)) return 0;
    }
    flat->rank = 2;
    flat->shape[1] = qn_ne(t, 0);
    flat->stride[1] = qn_nb(t, 0);
    flat->shape[0] = rows;
    flat->stride[0] = step;
    return 1;
}

/* y = x w, x and y of any rank: in rows where they can be, so that a batch is one product. */
static qn_status multiply(qn_vk_pack *p, const qn_tensor *w, const qn_tensor *y, int waits) {
    qn_attr_matmul at = qn_attr_matmul_default();
    qn_tensor rows_x, rows_y;
    const qn_tensor *x = p->step->src[0];
    at.transpose_b = ((const qn_attr_linear *)p->step->attr)->transpose_w;
    if (flatten(x, &rows_x) && flatten(y, &rows_y)) x = &rows_x, y = &rows_y;
    return qn_vk_sub_step(p, &(qn_vk_sub){.op = QN_OP_matmul, .waits = waits, .attr = &at, .src = {x, w}, .dst = {y}});
}

qn_status qn_vk_pack_linear(qn_vk_pack *p, uint32_t fn) {
    const qn_tensor *y = p->step->dst[0];
    epilogue e = {y, qn_vk_source(p, 2), qn_vk_source(p, 3), ((const qn_attr_linear *)p->step->attr)->act};
    (void)fn;
    QN_TRY(multiply(p, p->step->src[1], y, 0));
    return follow(p, &e, 1);
}

/* Elements [start, start + n) of the k-th axis from the end. */
static qn_tensor slice(const qn_tensor *t, int k, int64_t start, int64_t n) {
    qn_tensor s = *t;
    s.shape[t->rank - 1 - k] = n;
    s.offset += start * qn_nb(t, k);
    return s;
}

qn_status qn_vk_pack_linear_split(qn_vk_pack *p, uint32_t fn) {
    const qn_attr_linear_split *at = p->step->attr;
    const qn_tensor *w = p->step->src[1], *bias = qn_vk_source(p, 2);
    int64_t start = 0;
    int first = 1;
    (void)fn;
    for (int i = 0; i < at->widths.rank; start += at->widths.d[i++]) {
        qn_tensor part = slice(w, at->transpose_w ? 1 : 0, start, at->widths.d[i]);
        if (qn_vk_output(p, i)) QN_TRY(multiply(p, &part, p->step->dst[i], 0));
    }
    start = 0;
    for (int i = 0; i < at->widths.rank; start += at->widths.d[i++]) {
        qn_tensor part = bias ? slice(bias, 0, start, at->widths.d[i]) : *w;
        epilogue e = {qn_vk_output(p, i), bias ? &part : NULL, NULL, at->act};
        if (!e.y) continue;
        QN_TRY(follow(p, &e, first));
        first = 0;
    }
    return QN_OK;
}

qn_status qn_vk_pack_linear_group(qn_vk_pack *p, uint32_t fn) {
    enum { MOST = 4 };
    int first = 1;
    (void)fn;
    for (int i = 0; i < MOST; i++)
        if (qn_vk_source(p, 1 + i) && qn_vk_output(p, i)) QN_TRY(multiply(p, p->step->src[1 + i], p->step->dst[i], 0));
    for (int i = 0; i < MOST; i++) {
        epilogue e = {qn_vk_output(p, i), qn_vk_source(p, 1 + MOST + i), NULL, -1};
        if (!e.y || !e.bias) continue;
        QN_TRY(follow(p, &e, first));
        first = 0;
    }
    return QN_OK;
}

qn_status qn_vk_pack_linear_glu(qn_vk_pack *p, uint32_t fn) {
    const qn_attr_linear_glu *at = p->step->attr;
    const qn_tensor *y = p->step->dst[0];
    qn_attr_glu gate = qn_attr_glu_default();
    qn_tensor second;
    (void)fn;
    gate.alpha = at->alpha;
    gate.limit = at->limit;
    QN_TRY(qn_vk_scratch(p, y->dtype, y->rank, y->shape, &second));
    QN_TRY(multiply(p, p->step->src[1], y, 0));
    QN_TRY(multiply(p, p->step->src[2], &second, 0));
    epilogue a = {y, qn_vk_source(p, 3), NULL, -1}, b = {&second, qn_vk_source(p, 4), NULL, -1};
    QN_TRY(follow(p, &a, 1));
    QN_TRY(follow(p, &b, a.bias == NULL));
    return qn_vk_sub_step(
        p, &(qn_vk_sub){.op = QN_OP_glu, .subop = p->step->subop, .waits = 1, .attr = &gate, .src = {y, &second}, .dst = {y}});
}

qn_status qn_vk_pack_conv_act(qn_vk_pack *p, uint32_t fn) {
    const qn_tensor *y = p->step->dst[0];
    epilogue e = {y, NULL, qn_vk_source(p, 3), ((const qn_attr_conv_act *)p->step->attr)->act};
    qn_vk_sub sub = {.op = QN_OP_conv, .attr = p->step->attr, .dst = {y}}; /* its attributes begin with those of conv */
    (void)fn;
    for (int i = 0; i < 3; i++) sub.src[i] = qn_vk_source(p, i);
    QN_TRY(qn_vk_sub_step(p, &sub));
    return follow(p, &e, 1);
}

/* ---- A norm of a sum, fn 1: with a mean */

qn_status qn_vk_pack_add_norm(qn_vk_pack *p, uint32_t fn) {
    const qn_tensor *y = p->step->dst[0], *sum = qn_vk_output(p, 1);
    qn_attr_region at = qn_attr_region_default();
    append(&at.code, QN_REGION_arith, QN_ARITH_add, y->dtype, 0, 1);
    at.code.w[0] |= 1u << 31;
    if (sum) {
        append(&at.code, QN_REGION_cast, 0, y->dtype, QN_REGION_STEP_BIT, 0);
        at.code.w[2] |= 1u << 31;
    }
    QN_TRY(qn_vk_sub_step(
        p, &(qn_vk_sub){.op = QN_OP_region, .attr = &at, .src = {p->step->src[0], p->step->src[1]}, .dst = {y, sum}}));
    qn_vk_sub norm = {.op = fn ? QN_OP_layer_norm : QN_OP_rms_layer_norm, .waits = 1, .attr = p->step->attr, .dst = {y}};
    norm.src[0] = y;
    norm.src[1] = qn_vk_source(p, 2);
    norm.src[2] = qn_vk_source(p, 3);
    return qn_vk_sub_step(p, &norm);
}
