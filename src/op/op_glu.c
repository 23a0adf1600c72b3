/* glu: act(u) v for the two halves of one tensor, or for two tensors; six gates. glu_back: both gradients. */
#include "op/op_tape.h"
#include "op/ref.h"
#include "op/scalar_math.h"

typedef qn_attr_glu attrs; /* glu_back has the same record */
_Static_assert(sizeof(qn_attr_glu) == sizeof(qn_attr_glu_back), "shared attributes");

/* One gate: its value, and the derivative of the value by u and by v. */
typedef struct gate {
    double y, du, dv;
} gate;
typedef gate (*gate_fn)(double u, double v, const attrs *p);

/* Exactly 0 for u <= 0, even when v is Inf or NaN. */
static gate gate_reglu(double u, double v, const attrs *p) {
    (void)p;
    if (u <= 0) return (gate){0, 0, 0};
    return (gate){u * v, v, u};
}
static gate gate_geglu(double u, double v, const attrs *p) {
    (void)p;
    return (gate){qn_gelu(u) * v, qn_gelu_d(u) * v, qn_gelu(u)};
}
static gate gate_swiglu(double u, double v, const attrs *p) {
    (void)p;
    return (gate){qn_silu(u) * v, qn_silu_d(u) * v, qn_silu(u)};
}
static gate gate_geglu_erf(double u, double v, const attrs *p) {
    (void)p;
    return (gate){qn_gelu_erf(u) * v, qn_gelu_erf_d(u) * v, qn_gelu_erf(u)};
}
static gate gate_geglu_quick(double u, double v, const attrs *p) {
    (void)p;
    return (gate){qn_gelu_quick(u) * v, qn_gelu_quick_d(u) * v, qn_gelu_quick(u)};
}
/* The clamp of u has one side only, and the gate multiplies v + 1. */
static gate gate_swiglu_oai(double u, double v, const attrs *p) {
    double alpha = (double)p->alpha, limit = (double)p->limit;
    double cu = u > limit ? limit : u, cv = v > limit ? limit : v < -limit ? -limit : v;
    double s = qn_sigmoid(alpha * cu), act = qn_gate(cu, s), bend = s * (1 - s);
    double du = u <= limit ? (cv + 1) * (s + (bend == 0 ? 0 : alpha * cu * bend)) : 0;
    return (gate){act * (cv + 1), du, fabs(v) <= limit ? act : 0};
}

static const gate_fn gates[] = {
#define QN_GLU(name, formula) gate_##name,
#include <quern/glu.def>
#undef QN_GLU
};

static qn_status check_operands(qn_infer_call *c, int a, int b) {
    if (c->src[b]) {
        QN_TRY(qn_need_same_shape(c, b, a));
        QN_TRY(qn_need_same_dtype(c, b, a));
        if (((const attrs *)c->attr)->swapped) return qn_reject_attr(c, "swapped", QN_REASON_ATTR_VALUE, -1, 0, 1);
        return QN_OK;
    }
    int64_t n = qn_ne(c->src[a], 0);
    return n < 2 ? qn_reject_src(c, a, QN_REASON_SHAPE_SMALL, c->src[a]->rank - 1, 2, n) : QN_OK;
}

qn_status qn_infer_glu(qn_infer_call *c) {
    const qn_tensor *a = c->src[0];
    QN_TRY(check_operands(c, 0, 1));
    qn_out_like(c, 0, a, a->dtype);
    if (!c->src[1]) c->out[0].d[a->rank - 1] = qn_ne(a, 0) / 2;
    return QN_OK;
}

qn_status qn_infer_glu_back(qn_infer_call *c) {
    const qn_tensor *g = c->src[0], *a = c->src[1];
    QN_TRY(check_operands(c, 1, 2));
    int rank = g->rank > a->rank ? g->rank : a->rank;
    for (int k = 0; k < rank; k++) QN_TRY(qn_need_extent(c, 0, k, k == 0 && !c->src[2] ? qn_ne(a, 0) / 2 : qn_ne(a, k)));
    QN_TRY(qn_need_same_dtype(c, 0, 1));
    qn_out_like(c, 0, a, a->dtype);
    if (c->src[2]) qn_out_like(c, 1, a, a->dtype);
    return QN_OK;
}

/* Where u and v of a row lie: in two rows, or in the halves of one. */
typedef struct halves {
    const qn_tensor *ut, *vt;
    const char *u, *v;
    int64_t u_first, v_first;
} halves;

static halves split(const qn_rows *it, const qn_tensor *a, const qn_tensor *b, int swapped) {
    if (b) return (halves){a, b, qn_row(it, a), qn_row(it, b), 0, 0};
    int64_t h = qn_ne(a, 0) / 2;
    const char *row = qn_row(it, a);
    return (halves){a, a, row, row, swapped ? h : 0, swapped ? 0 : h};
}

qn_status qn_ref_glu(const qn_call *c) {
    const qn_tensor *y = c->dst[0], *b = c->n_src > 1 ? c->src[1] : NULL;
    const attrs
    *p = c->attr;
    double u[QN_RUN], v[QN_RUN];
    qn_rows it;
    for (qn_rows_begin(&it, y->rank, y->shape); it.live; qn_rows_next(&it)) {
        halves at = split(&it, c->src[0], b, p->swapped);
        char *to = qn_row(&it, y);
        for (int64_t i = 0; i < it.n; i += QN_RUN) {
            int64_t n = it.n - i < QN_RUN ? it.n - i : QN_RUN;
            qn_load_row(at.ut, at.u, at.u_first + i, n, u);
            qn_load_row(at.vt, at.v, at.v_first + i, n, v);
            for (int64_t k = 0; k < n; k++) u[k] = gates[c->subop](u[k], v[k], p).y;
            qn_store_row(y, to, i, n, u);
        }
    }
    return QN_OK;
}

/* The odd element that fused halves leave over has no part in the result: its gradient is 0. */
qn_status qn_ref_glu_back(const qn_call *c) {
    const qn_tensor *g = c->src[0], *a = c->src[1], *b = c->n_src > 2 ? c->src[2] : NULL;
    const qn_tensor *da = c->dst[0], *db = c->n_dst > 1 ? c->dst[1] : NULL;
    const attrs
    *p = c->attr;
    double up[QN_RUN], u[QN_RUN], v[QN_RUN];
    if (!b) qn_fill(da, 0);
    qn_rows it;
    for (qn_rows_begin(&it, g->rank, g->shape); it.live; qn_rows_next(&it)) {
        halves at = split(&it, a, b, p->swapped);
        char *to_u = qn_row(&it, da), *to_v = b ? (db ? qn_row(&it, db) : NULL) : to_u;
        const char *from = qn_row(&it, g);
        for (int64_t i = 0; i < it.n; i += QN_RUN) {
            int64_t n = it.n - i < QN_RUN ? it.n - i : QN_RUN;
            qn_load_row(g, from, i, n, up);
            qn_load_row(at.ut, at.u, at.u_first + i, n, u);
            qn_load_row(at.vt, at.v, at.v_first + i, n, v);
            for (int64_t k = 0; k < n; k++) {
                gate at_k = gates[c->subop](u[k], v[k], p);
                u[k] = up[k] * at_k.du;
                v[k] = up[k] * at_k.dv;
            }
            qn_store_row(da, to_u, at.u_first + i, n, u);
            if (to_v) qn_store_row(b ? db : da, to_v, at.v_first + i, n, v);
        }
    }
    return QN_OK;
}

void qn_vjp_glu(qn_vjp_call *v) {
    const qn_attr_glu *forward = v->attr;
    qn_attr_glu_back at = qn_attr_glu_back_default();
    at.swapped = forward->swapped;
    at.alpha = forward->alpha;
    at.limit = forward->limit;
    qn_val b = v->n_src > 1 ? v->src[1] : QN_VAL_NONE, src[3] = {v->grad[0], v->src[0], b}, out[2] = {QN_VAL_NONE, QN_VAL_NONE};
    qn_emit_many(v, QN_OP_glu_back, v->subop, &at, 3, src, b == QN_VAL_NONE ? 1 : 2, out);
    v->out[0] = out[0];
    v->out[1] = out[1];
}

/* ---- Second order: the gate as a product of ops, and that one's gradient */

/* swiglu_oai: both clamps, then u' sigmoid(alpha u') (v' + 1). */
static qn_val limited_gate(qn_vjp_call *v, qn_val u, qn_val w) {
    const qn_attr_glu_back *at = v->attr;
    qn_attr_clamp top = qn_attr_clamp_default(), both = qn_attr_clamp_default();
    top.max = both.max = at->limit;
    both.min = -at->limit;
    qn_val cu = qn_emit1(v, QN_OP_clamp, 0, &top, u), cw = qn_emit1(v, QN_OP_clamp, 0, &both, w);
    qn_val share = qn_e_unary(v, QN_UNARY_sigmoid, qn_e_scale(v, cu, (double)at->alpha, 0));
    return qn_e_mul(v, qn_e_mul(v, cu, share), qn_e_scale(v, cw, 1, 1));
}

static qn_val gate_of(qn_vjp_call *v, qn_val u, qn_val w) {
    static const qn_unary acts[] = {[QN_GLU_reglu] = QN_UNARY_relu,
                                    [QN_GLU_geglu] = QN_UNARY_gelu,
                                    [QN_GLU_swiglu] = QN_UNARY_silu,
                                    [QN_GLU_geglu_erf] = QN_UNARY_gelu_erf,
                                    [QN_GLU_geglu_quick] = QN_UNARY_gelu_quick};
    if (v->subop == QN_GLU_swiglu_oai) return limited_gate(v, u, w);
    return qn_e_mul(v, qn_e_unary(v, acts[v->subop], u), w);
}

static void glu_back_formula(qn_vjp_call *v, qn_op_tape *t, qn_val *out) {
    const qn_attr_glu_back *at = v->attr;
    qn_val by[2] = {qn_op_wide(v, v->src[1]), v->n_src > 2 ? qn_op_wide(v, v->src[2]) : QN_VAL_NONE};
    qn_op_tape_apart(v, 2, by);
    qn_val g = qn_op_wide(v, v->src[0]), u = by[0], w = by[1];
    if (w == QN_VAL_NONE) {
        qn_shape s = qn_shape_of(v, u);
        int64_t half = s.d[s.rank - 1] / 2;
        u = qn_e_slice(v, by[0], s.rank - 1, at->swapped ? half : 0, half);
        w = qn_e_slice(v, by[0], s.rank - 1, at->swapped ? 0 : half, half);
    }
    qn_val y = gate_of(v, u, w);
    qn_op_tape_back(t, v, 1, &y, &g, by[1] == QN_VAL_NONE ? 1 : 2, by, out);
}

void qn_vjp_glu_back(qn_vjp_call *v) { qn_op_vjp_of_formula(v, glu_back_formula); }
