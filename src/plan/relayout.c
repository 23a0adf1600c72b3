/* Copies where an op cannot take a strided source. In a graph a value has no layout; in a plan a permuted value is a strided view,
 * and some rules want contiguous rows. Each node is asked with the layouts its sources will have; where it refuses, or describes
 * bytes of a dense source as `view` does, its strided sources are copied first. So is what a node reads of the memory that it updates
 * in place: it is the old value that is meant, and no kernel looks after that. */
#include "ir/rebuild.h"
#include "plan/plan.h"

qn_request qn_plan_request(const qn_graph *g, const qn_ir_node *n, const qn_tensor *tensors) {
    qn_request q = qn_ir_request(n);
    for (int i = 0; i < n->n_src; i++) {
        qn_val s = qn_ir_sources(g, n)[i];
        q.src[i] = s == QN_VAL_NONE ? NULL : &tensors[s];
    }
    return q;
}

/* The layout each value of the new graph will have, and whose memory it lies in. */
typedef struct layouts {
    QN_VEC(qn_tensor) of;
    QN_VEC(qn_val) root;
    int32_t copies;
} layouts;

static int is_dense(const qn_tensor *t) { return t->offset == 0 && qn_tensor_is_contiguous(t); }

/* Every value that was added since the last call is dense, until a view says otherwise. */
static qn_status catch_up(qn_rebuild *r) {
    layouts *l = r->user;
    size_t more = r->to->values.n - l->of.n + 1;
    if (!QN_VEC_ROOM(&r->to->arena, &l->of, more) || !QN_VEC_ROOM(&r->to->arena, &l->root, more))
        return qn_ir_fail(r->to, QN_NO_MEMORY, "no memory for the layouts");
    while (l->of.n < r->to->values.n) {
        const qn_shape *s = &r->to->values.at[l->of.n].shape;
        l->root.at[l->root.n++] = (qn_val)l->of.n;
        qn_tensor *t = &l->of.at[l->of.n++];
        qn_tensor_init(t, (qn_dtype)s->dtype, s->rank, s->d, NULL, 0);
        t->flags = QN_TENSOR_PARAM;
    }
    return QN_OK;
}

static qn_status copy_source(qn_rebuild *r, qn_val *src) {
    layouts *l = r->user;
    *src = qn_graph_op(r->to, QN_OP_cont, 0, 1, src, NULL);
    if (*src == QN_VAL_NONE) return QN_NO_MEMORY;
    l->copies++;
    return catch_up(r);
}

static qn_status copy_strided(qn_rebuild *r, int n_src, qn_val *src) {
    const layouts *l = r->user;
    for (int i = 0; i < n_src; i++)
        if (src[i] != QN_VAL_NONE && !is_dense(&l->of.at[src[i]])) QN_TRY(copy_source(r, &src[i]));
    return QN_OK;
}

/* Whether source i is read where the node updates another source in place. */
static int is_updated_meanwhile(const layouts *l, const qn_op_info *info, int n_src, const qn_val *src, int i) {
    if (src[i] == QN_VAL_NONE || (info->src[i].flags & (QN_SLOT_STATE | QN_SLOT_SHAPE))) return 0;
    for (int k = 0; k < n_src; k++)
        if ((info->src[k].flags & QN_SLOT_STATE) && src[k] != QN_VAL_NONE && l->root.at[src[k]] == l->root.at[src[i]]) return 1;
    return 0;
}

static qn_status copy_updated(qn_rebuild *r, const qn_op_info *info, int n_src, qn_val *src) {
    for (int i = 0; i < n_src; i++)
        if (is_updated_meanwhile(r->user, info, n_src, src, i)) QN_TRY(copy_source(r, &src[i]));
    return QN_OK;
}

/* Results that lie where a source does: of views, and what was updated in place. */
static void follow_memory(qn_rebuild *r, const qn_op_info *info, const qn_ir_node *n, const qn_val *src) {
    layouts *l = r->user;
    for (int i = 0; i < n->n_out && i < n->n_src; i++)
        if (info->is_view || (info->src[i].flags & QN_SLOT_STATE)) l->root.at[r->map[n->out + i]] = l->root.at[src[i]];
}

static qn_request request_over(const qn_rebuild *r, const qn_ir_node *n, const qn_val *src) {
    const layouts *l = r->user;
    qn_request q = qn_plan_request(r->from, n, l->of.at);
    for (int i = 0; i < n->n_src; i++) q.src[i] = src[i] == QN_VAL_NONE ? NULL : &l->of.at[src[i]];
    return q;
}

static qn_status relayout_node(qn_rebuild *r, int32_t node) {
    layouts *l = r->user;
    const qn_ir_node *n = &r->from->nodes.at[node];
    const qn_op_info *info = qn_op_describe(n->op);
    qn_val src[QN_MAX_SRC];
    qn_tensor inferred[QN_MAX_DST];
    qn_result result;
    int n_out, strided = 0;
    QN_TRY(catch_up(r));
    qn_rebuild_sources(r, node, src);
    for (int i = 0; i < n->n_src; i++) strided |= src[i] != QN_VAL_NONE && !is_dense(&l->of.at[src[i]]);
    qn_request q = request_over(r, n, src);
    if (strided && (n->op == QN_OP_view || qn_infer(&q, inferred, &n_out, &result) != QN_OK))
        QN_TRY(copy_strided(r, n->n_src, src));
    QN_TRY(copy_updated(r, info, n->n_src, src));
    QN_TRY(qn_rebuild_copy_with(r, node, src));
    QN_TRY(catch_up(r));
    follow_memory(r, info, n, src);
    if (!info->is_view) return QN_OK;
    q = request_over(r, n, src);
    if (qn_infer(&q, inferred, &n_out, &result) != QN_OK) return QN_INVALID;
    l->of.at[r->map[n->out]] = inferred[0];
    return QN_OK;
}

/* Whoever asked for an output reads it row by row, or feeds it to an input: what is a strided view has a copy. A copy that the graph
 * had there is gone by now, because to passes a value has no layout. */
static qn_status copy_outputs(qn_graph *g, layouts *l) {
    for (size_t i = 0; i < g->outputs.n; i++) {
        qn_val v = g->outputs.at[i].value;
        if ((size_t)v >= l->of.n || qn_tensor_is_contiguous(&l->of.at[v])) continue; /* leaves behind the last node are dense */
        qn_val copy = qn_graph_op(g, QN_OP_cont, 0, 1, &v, NULL);
        if (copy == QN_VAL_NONE) return g->error.status;
        g->outputs.at[i].value = copy;
        l->copies++;
    }
    return QN_OK;
}

qn_status qn_plan_relayout(const qn_graph *from, int is_body, qn_graph **to, int32_t *copies, qn_error *error) {
    static const int64_t none[1] = {0};
    layouts l;
    memset(&l, 0, sizeof l);
    QN_TRY(qn_ir_rebuild(from, none, relayout_node, &l, to, error));
    if (!is_body && copy_outputs(*to, &l) != QN_OK) return qn_graph_error(*to, error);
    *copies = l.copies;
    return QN_OK;
}
