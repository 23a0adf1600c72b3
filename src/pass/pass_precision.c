/* Halves where they pay. The ops of precision.def get their operands as f16 or bf16, each value cast once however many take it;
 * what they give is f32 again for everybody else. Sums inside are f32 or better in every kernel. A product with a matrix of
 * weights becomes linear, which rounds its sums to f32 and not to a half first. Params and outputs keep their dtypes. */
#include "pass/linear.h"
#include "pass/terms.h"

typedef struct lowering {
    qn_pass_run *run;
    qn_arena arena;
    uint32_t half;          /* the dtype */
    QN_VEC(qn_val) cast_of; /* per value of the new graph: itself as a half, QN_VAL_NONE: not made yet */
} lowering;

static int computes(int op) {
    static const uint8_t list[QN_OP_COUNT] = {
#define QN_COMPUTE(op) [QN_OP_##op] = 1,
#include "pass/precision.def"
#undef QN_COMPUTE
    };
    return list[op];
}

static qn_val cast_to(qn_graph *g, qn_val v, uint32_t dtype) {
    qn_attr_cast at = qn_attr_cast_default();
    at.dtype = (int32_t)dtype;
    return qn_graph_op(g, QN_OP_cast, 0, 1, &v, &at);
}

/* A value as a half: the one it was widened from, the cast there is, or a new one. */
static qn_val half_of(qn_rebuild *r, qn_val v) {
    lowering *l = r->user;
    const qn_ir_value *value = &r->to->values.at[v];
    if (value->node >= 0 && r->to->nodes.at[value->node].op == QN_OP_cast) {
        qn_val from = qn_ir_sources(r->to, &r->to->nodes.at[value->node])[0];
        if (r->to->values.at[from].shape.dtype == l->half) return from;
    }
    if (!QN_VEC_ROOM(&l->arena, &l->cast_of, r->to->values.n - (l->cast_of.n < r->to->values.n ? l->cast_of.n : 0) + 1)) {
        qn_ir_fail(r->to, QN_NO_MEMORY, "no memory for casts");
        return QN_VAL_NONE;
    }
    while (l->cast_of.n < r->to->values.n) l->cast_of.at[l->cast_of.n++] = QN_VAL_NONE;
    if (l->cast_of.at[v] == QN_VAL_NONE) l->cast_of.at[v] = cast_to(r->to, v, l->half);
    return l->cast_of.at[v];
}

/* Bit i: source i is to be a half. None when an operand is quantised: its kernels have dtypes of their own. */
static uint64_t slots_to_cast(const lowering *l, const qn_graph *g, const qn_ir_node *n) {
    const qn_op_info *info = qn_op_describe(n->op);
    uint64_t set = 0;
    for (int i = 0; i < n->n_src; i++) {
        qn_val s = qn_ir_sources(g, n)[i];
        const qn_slot_info *slot = &info->src[i];
        if (s == QN_VAL_NONE) continue;
        if (qn_is_block(g->values.at[s].shape.dtype)) return 0;
        uint32_t kept = QN_SLOT_OPTIONAL | QN_SLOT_INDEX | QN_SLOT_STATE | QN_SLOT_SHAPE;
        int weights = n->op == QN_OP_linear_group && i < 5; /* of which some may be left out */
        if (g->values.at[s].shape.dtype != QN_DTYPE_F32 || ((slot->flags & kept) && !weights)) continue;
        if (slot->dtypes >> l->half & 1) set |= (uint64_t)1 << i;
    }
    return set;
}

/* The node over halves, as linear when it can be, so that the result is f32 at once. */
static int build(qn_rebuild *r, int32_t node, const qn_val *src, qn_val *out) {
    const lowering *l = r->user;
    const qn_ir_node *n = &r->from->nodes.at[node];
    qn_attr_linear at = qn_attr_linear_default();
    qn_pass_linear as;
    if (n->op == QN_OP_matmul && qn_pass_linear_of(r->from, node, &as) &&
        qn_pass_claims(l->run, QN_OP_linear, 0, r->from, &node, 1)) {
        at.transpose_w = as.transpose_w;
        at.dtype = QN_DTYPE_F32;
        if (qn_pass_try(r->to, QN_OP_linear, 0, 2, src, &at, 1, out)) return 1;
    }
    if (n->op == QN_OP_linear && n->attr) { /* likewise */
        memcpy(&at, n->attr, sizeof at);
        at.dtype = QN_DTYPE_F32;
        return qn_pass_try(r->to, n->op, 0, n->n_src, src, &at, 1, out);
    }
    return qn_pass_try(r->to, n->op, n->subop, n->n_src, src, n->attr, n->n_out, out);
}

static qn_status lower_node(qn_rebuild *r, int32_t node) {
    lowering *l = r->user;
    const qn_ir_node *n = &r->from->nodes.at[node];
    qn_val src[QN_MAX_SRC], half[QN_MAX_SRC], out[QN_MAX_DST];
    uint64_t set = computes(n->op) ? slots_to_cast(l, r->from, n) : 0;
    qn_rebuild_sources(r, node, src);
    if (!set || !qn_pass_may(l->run, qn_pass_rule_half, node)) return qn_rebuild_copy_with(r, node, src);
    for (int i = 0; i < n->n_src; i++) {
        half[i] = set >> i & 1 ? half_of(r, src[i]) : src[i];
        if (r->to->error.status != QN_OK) return r->to->error.status;
    }
    qn_pass_mark mark = qn_pass_mark_of(r->to);
    int ok = build(r, node, half, out);
    for (int i = 0; ok && i < n->n_out; i++) {
        const qn_ir_value *was = &r->from->values.at[n->out + i];
        if (r->to->values.at[out[i]].shape.dtype != was->shape.dtype) out[i] = cast_to(r->to, out[i], was->shape.dtype);
        ok = out[i] != QN_VAL_NONE && qn_pass_same_type(&r->to->values.at[out[i]], was);
    }
    if (!ok) {
        if (r->to->error.status != QN_OK) return r->to->error.status;
        qn_pass_roll_back(r->to, mark);
        qn_pass_missed(l->run, qn_pass_rule_half, node, "the op does not take these halves");
        return qn_rebuild_copy_with(r, node, src);
    }
    for (int i = 0; i < n->n_out; i++) r->map[n->out + i] = out[i];
    return QN_OK;
}

qn_status qn_pass_precision(qn_pass_run *run, qn_graph **to) {
    lowering l = {.run = run};
    if (run->options->precision == QN_PRECISION_KEEP) return QN_OK;
    l.half = run->options->precision == QN_PRECISION_F16 ? QN_DTYPE_F16 : QN_DTYPE_BF16;
    qn_arena_init(&l.arena, 0);
    qn_status status = qn_ir_rebuild(run->from, NULL, lower_node, &l, to, run->error);
    qn_arena_destroy(&l.arena);
    return status;
}
