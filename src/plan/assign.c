/* Where each value lives and for how long. Views share the memory of what they look at; an op that may run in place takes over the
 * memory of a source that nobody needs afterwards; state is updated where it is. A root's lifetime covers every value that shares
 * its memory. */
#include "base/reason.h"
#include "plan/plan.h"

/* Last node that reads each value; outputs are read after the end. */
static void last_uses(const qn_graph *g, int32_t *last) {
    for (size_t i = 0; i < g->values.n; i++) last[i] = g->values.at[i].node;
    for (size_t k = 0; k < g->nodes.n; k++)
        for (int i = 0; i < g->nodes.at[k].n_src; i++) {
            qn_val s = qn_ir_sources(g, &g->nodes.at[k])[i];
            if (s != QN_VAL_NONE) last[s] = (int32_t)k;
        }
    for (size_t i = 0; i < g->outputs.n; i++) last[g->outputs.at[i].value] = (int32_t)g->nodes.n;
}

static uint64_t bytes_of(const qn_shape *s) {
    uint64_t bytes = 0;
    qn_tensor_bytes((qn_dtype)s->dtype, s->rank, s->d, &bytes);
    return bytes;
}

static void own(qn_schedule *p, qn_val v, qn_storage storage, int32_t born, int32_t dies, int32_t read_until) {
    const qn_shape *s = &p->graph->values.at[v].shape;
    qn_tensor_init(&p->tensors[v], (qn_dtype)s->dtype, s->rank, s->d, NULL, 0);
    p->tensors[v].flags = QN_TENSOR_PARAM; /* which values may be updated in place is decided here, not by the op's guard */
    p->slots[v] = (qn_plan_slot){storage, v, 0, bytes_of(s), born, dies, read_until, 1, 0};
}

/* v uses the memory of `of` from now on: all of it, or as a view that may have fewer bytes, or more than there are. */
static void share(qn_schedule *p, qn_val v, qn_val of, int32_t dies) {
    qn_plan_slot *root = &p->slots[p->slots[of].root];
    uint64_t bytes = bytes_of(&p->graph->values.at[v].shape);
    p->slots[v] = (qn_plan_slot){QN_STORAGE_VIEW, p->slots[of].root, 0, bytes, root->born, dies, dies, 1, 0};
    if (dies > root->dies) root->dies = dies;
    if (dies > root->read_until) root->read_until = dies;
}

/* A view's descriptor comes from the op's own rule. Rules count bytes from the start of a buffer, and a root is a buffer. */
static qn_status assign_view(qn_schedule *p, const qn_ir_node *n, const int32_t *last, qn_error *error) {
    qn_tensor out[QN_MAX_DST];
    qn_result result;
    int n_out;
    qn_request q = qn_plan_request(p->graph, n, p->tensors);
    if (qn_infer(&q, out, &n_out, &result) != QN_OK) return qn_result_to_error(&result, error);
    qn_val a = qn_ir_sources(p->graph, n)[0];
    share(p, n->out, a, last[n->out]);
    p->tensors[n->out] = out[0];
    p->slots[n->out].dense = out[0].offset == 0 && qn_tensor_is_contiguous(&out[0]);
    p->totals.n_views++;
    return QN_OK;
}

static int same_shape(const qn_tensor *a, const qn_shape *s) {
    if (a->dtype != s->dtype || a->rank != s->rank) return 0;
    for (int k = 0; k < a->rank; k++)
        if (a->shape[k] != s->d[k]) return 0;
    return 1;
}

/* Whether output 0 may be written over source i: the op allows it, the source is a whole dense root of its own shape, this node
 * is the last to read that memory, and no other source of the node lies there. */
static int can_overwrite(const qn_schedule *p, const qn_ir_node *n, int i, int32_t when) {
    qn_val s = qn_ir_sources(p->graph, n)[i];
    if (s == QN_VAL_NONE || !(qn_op_describe(n->op)->src[i].flags & QN_SLOT_IN_PLACE)) return 0;
    const qn_plan_slot *root = &p->slots[p->slots[s].root];
    if (root->storage != QN_STORAGE_ARENA || root->dies > when || !p->slots[s].dense) return 0;
    if (!same_shape(&p->tensors[s], &p->graph->values.at[n->out].shape)) return 0;
    for (int k = 0; k < n->n_src; k++) {
        qn_val other = qn_ir_sources(p->graph, n)[k];
        if (k != i && other != QN_VAL_NONE && p->slots[other].root == p->slots[s].root) return 0;
    }
    return 1;
}

/* State is updated where it is, so nobody may want the old value afterwards, and a constant cannot be state. */
static qn_status check_state(const qn_schedule *p, const qn_ir_node *n, int i, int32_t when, qn_error *error) {
    qn_val s = qn_ir_sources(p->graph, n)[i];
    const qn_plan_slot *root = &p->slots[p->slots[s].root];
    const qn_op_info *info = qn_op_describe(n->op);
    if (root->storage == QN_STORAGE_CONSTANT || !p->slots[s].dense)
        return qn_error_set(error, QN_INVALID, "node %d: %s: %s is updated in place and cannot be a constant or a strided view",
                            when, info->name, info->src[i].name);
    for (int k = 0; k < i; k++) {
        qn_val other = qn_ir_sources(p->graph, n)[k];
        if ((info->src[k].flags & QN_SLOT_STATE) && p->slots[other].root == p->slots[s].root)
            return qn_error_set(error, QN_INVALID, "node %d: %s: %s and %s are the same memory, and both are updated in place",
                                when, info->name, info->src[k].name, info->src[i].name);
    }
    if (root->read_until > when)
        return qn_error_set(error, QN_INVALID, "node %d: %s: %s is updated in place, but node %d still reads the old value", when,
                            info->name, info->src[i].name, root->read_until);
    return QN_OK;
}

static qn_status assign_outputs(qn_schedule *p, const qn_ir_node *n, int32_t when, const int32_t *last, qn_error *error) {
    const qn_op_info *info = qn_op_describe(n->op);
    for (int i = 0; i < n->n_out; i++) {
        qn_val v = n->out + i, from = QN_VAL_NONE;
        if (i < n->n_src && (info->src[i].flags & QN_SLOT_STATE)) {
            QN_TRY(check_state(p, n, i, when, error));
            from = qn_ir_sources(p->graph, n)[i];
        }
        for (int k = 0; i == 0 && from == QN_VAL_NONE && k < n->n_src; k++)
            if (can_overwrite(p, n, k, when)) from = qn_ir_sources(p->graph, n)[k];
        if (from == QN_VAL_NONE) {
            own(p, v, QN_STORAGE_ARENA, when, last[v], last[v]);
        } else {
            share(p, v, from, last[v]);
            p->tensors[v] = p->tensors[from];
            p->totals.n_in_place++;
        }
    }
    return QN_OK;
}

qn_status qn_plan_assign(qn_schedule *p, qn_error *error) {
    static const qn_storage kinds[] = {QN_STORAGE_INPUT, QN_STORAGE_PARAM, QN_STORAGE_CONSTANT};
    const qn_graph *g = p->graph;
    int32_t *last = qn_arena_alloc(&p->arena, g->values.n, sizeof *last), end = (int32_t)g->nodes.n;
    if (!last) return qn_error_set(error, QN_NO_MEMORY, "no memory to plan %zu values", g->values.n);
    last_uses(g, last);
    for (size_t i = 0; i < g->values.n; i++)
        if (g->values.at[i].kind != QN_VALUE_RESULT) own(p, (qn_val)i, kinds[g->values.at[i].kind], -1, end, last[i]);
    for (int32_t k = 0; k < end; k++) {
        const qn_ir_node *n = &g->nodes.at[k];
        if (qn_op_describe(n->op)->is_view) QN_TRY(assign_view(p, n, last, error));
        else QN_TRY(assign_outputs(p, n, k, last, error));
    }
    return QN_OK;
}
