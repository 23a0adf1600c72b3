/* Layouts. In a graph a value has none; in a plan a permuted or narrowed value is a strided view of another's memory, and some
 * ops want theirs dense. This pass follows the layout each value will have. A reshape of a strided view that strides can
 * express becomes a view of the memory below, so that nothing is copied (that is how attention comes to read q, k and v out of
 * one packed tensor); and where an op refuses strides, one copy is made for all who refuse, of the sources it refuses only. */
#include "pass/facts.h"
#include "pass/terms.h"
#include "tensor/dtype.h"

typedef struct layouts {
    qn_pass_run *run;
    qn_arena arena;
    QN_VEC(qn_tensor) of; /* per value of the new graph: its descriptor over its root's memory */
    QN_VEC(qn_val) root;  /* whose memory that is */
    QN_VEC(qn_val) dense; /* a dense copy of it, QN_VAL_NONE: not made */
} layouts;

static int is_dense(const qn_tensor *t) { return t->offset == 0 && qn_tensor_is_contiguous(t); }

/* Values that were added since the last call are dense and have memory of their own, until a view says otherwise. */
static qn_status catch_up(qn_rebuild *r) {
    layouts *l = r->user;
    size_t more = r->to->values.n - l->of.n + 1;
    if (!QN_VEC_ROOM(&l->arena, &l->of, more) || !QN_VEC_ROOM(&l->arena, &l->root, more) ||
        !QN_VEC_ROOM(&l->arena, &l->dense, more))
        return qn_ir_fail(r->to, QN_NO_MEMORY, "no memory for the layouts");
    while (l->of.n < r->to->values.n) {
        const qn_shape *s = &r->to->values.at[l->of.n].shape;
        l->root.at[l->root.n++] = (qn_val)l->of.n;
        l->dense.at[l->dense.n++] = QN_VAL_NONE;
        qn_tensor *t = &l->of.at[l->of.n++];
        qn_tensor_init(t, (qn_dtype)s->dtype, s->rank, s->d, NULL, 0);
        t->flags = QN_TENSOR_PARAM;
    }
    return QN_OK;
}

/* Whether the op takes sources of these layouts; for a view also what it makes of them. */
static int asks(const qn_rebuild *r, const qn_ir_node *n, const qn_val *src, qn_tensor *out) {
    const layouts *l = r->user;
    qn_request q = qn_ir_request(n);
    qn_result result;
    int n_out;
    for (int i = 0; i < n->n_src; i++) {
        q.src[i] = src[i] == QN_VAL_NONE ? NULL : &l->of.at[src[i]];
        if (n->op == QN_OP_view && !is_dense(q.src[i])) return 0; /* it speaks of bytes of a dense source */
    }
    return qn_infer(&q, out, &n_out, &result) == QN_OK;
}

/* ---- Reshapes that strides can express */

/* Strides of `to` over the elements of a strided tensor in order; 0 when there are none. Groups of axes of equal size are
 * matched, and within a group the old axes must lie one behind the other. */
static int reshape_strides(const qn_tensor *t, const qn_dims *to, int64_t *stride) {
    int64_t d[QN_MAX_RANK], s[QN_MAX_RANK];
    int n = 0, i = 0, k = 0;
    for (int a = 0; a < t->rank; a++)
        if (t->shape[a] != 1) {
            d[n] = t->shape[a];
            s[n++] = t->stride[a];
        }
    for (int a = 0; a < n; a++)
        if (d[a] == 0) return 0;
    while (i < n) {
        int64_t old = d[i], new = 1;
        int i_end = i + 1, k_end = k;
        while (k_end < to->rank && (new < old || to->d[k_end] == 1)) {
            new *= to->d[k_end++];
            while (new > old && i_end < n) old *= d[i_end++];
        }
        if (new != old) return 0;
        for (int a = i; a < i_end - 1; a++)
            if (s[a] != d[a + 1] * s[a + 1]) return 0;
        int64_t step = s[i_end - 1];
        for (int a = k_end - 1; a >= k; a--) {
            stride[a] = step;
            step *= to->d[a];
        }
        i = i_end;
        k = k_end;
    }
    for (; k < to->rank; k++) stride[k] = qn_dtype_bytes(t->dtype);
    return 1;
}

/* The reshape as a view of the memory below its source; 0 when it cannot be one, or needs to be none. */
static int reshape_as_view(qn_rebuild *r, int32_t node, qn_val src) {
    layouts *l = r->user;
    const qn_ir_node *n = &r->from->nodes.at[node];
    const qn_dims *shape = &((const qn_attr_reshape *)qn_pass_attr(n))->shape;
    const qn_tensor *t = &l->of.at[src];
    qn_attr_view at = qn_attr_view_default();
    qn_val root = l->root.at[src], out;
    if (is_dense(t) || qn_is_block(t->dtype) || !reshape_strides(t, shape, at.strides.d)) return 0;
    at.shape = *shape;
    at.strides.rank = shape->rank;
    at.offset = t->offset;
    if (!qn_pass_may(l->run, qn_pass_rule_reshape_view, node) || !qn_pass_try(r->to, QN_OP_view, 0, 1, &root, &at, 1, &out))
        return 0;
    r->map[n->out] = out;
    return 1;
}

/* ---- Copies */

static qn_val dense_copy(qn_rebuild *r, int32_t node, qn_val v) {
    layouts *l = r->user;
    if (l->dense.at[v] != QN_VAL_NONE) return l->dense.at[v];
    if (!qn_pass_may(l->run, qn_pass_rule_copy, node)) return v;
    qn_val made = qn_graph_op(r->to, QN_OP_cont, 0, 1, &v, NULL);
    if (made == QN_VAL_NONE || catch_up(r) != QN_OK) return QN_VAL_NONE;
    return l->dense.at[v] = made;
}

/* Sources the op takes: strided ones are copied one by one until it does. */
static qn_status settle(qn_rebuild *r, int32_t node, qn_val *src, qn_tensor *out) {
    layouts *l = r->user;
    const qn_ir_node *n = &r->from->nodes.at[node];
    for (int i = 0; i < n->n_src && !asks(r, n, src, out); i++) {
        if (src[i] == QN_VAL_NONE || is_dense(&l->of.at[src[i]])) continue;
        src[i] = dense_copy(r, node, src[i]);
        if (src[i] == QN_VAL_NONE) return r->to->error.status;
    }
    return QN_OK;
}

static qn_status lay_out_node(qn_rebuild *r, int32_t node) {
    layouts *l = r->user;
    const qn_ir_node *n = &r->from->nodes.at[node];
    qn_val src[QN_MAX_SRC];
    qn_tensor out[QN_MAX_DST];
    QN_TRY(catch_up(r));
    qn_rebuild_sources(r, node, src);
    if (n->op != QN_OP_reshape || !reshape_as_view(r, node, src[0])) {
        QN_TRY(settle(r, node, src, out));
        QN_TRY(qn_rebuild_copy_with(r, node, src));
    }
    QN_TRY(catch_up(r));
    const qn_ir_node *made = &r->to->nodes.at[r->to->values.at[r->map[n->out]].node];
    if (!qn_op_describe(made->op)->is_view) return QN_OK;
    const qn_val *of = qn_ir_sources(r->to, made);
    if (!asks(r, made, of, out)) return QN_OK; /* a copy there was no leave for: whoever plans makes it */
    l->of.at[made->out] = out[0];
    l->root.at[made->out] = l->root.at[of[0]];
    return QN_OK;
}

qn_status qn_pass_layout(qn_pass_run *run, qn_graph **to) {
    layouts l;
    memset(&l, 0, sizeof l);
    l.run = run;
    if (run->from->symbols.n) return QN_OK; /* strides are numbers */
    qn_arena_init(&l.arena, 0);
    qn_status status = qn_ir_rebuild(run->from, NULL, lay_out_node, &l, to, run->error);
    qn_arena_destroy(&l.arena);
    return status;
}
