/* Computes at plan time what depends on constants only. The reference computes it, so the folded value has the bits the run would
 * have had. Large results stay nodes: a constant costs memory for the life of the graph. */
#include "op/guard.h"
#include "op/ref.h"
#include "pass/pass.h"

enum { FOLD_MOST_BYTES = 1 << 16 };

typedef struct fold {
    qn_arena scratch; /* one node's buffers at a time */
    qn_pass_run *run;
} fold;

static int is_constant(const qn_graph *g, qn_val v) { return v == QN_VAL_NONE || g->values.at[v].kind == QN_VALUE_CONSTANT; }

static int64_t elements(const qn_shape *s) {
    int64_t n = 1;
    for (int k = 0; k < s->rank; k++) n *= s->d[k];
    return n;
}

/* Not a view that repeats elements: it costs nothing as it is. */
static int can_fold(const qn_rebuild *r, const qn_ir_node *n, const qn_val *src) {
    const qn_op_info *info = qn_op_describe(n->op);
    uint64_t bytes, total = 0;
    if (!qn_pass_is_pure(r->from, n) || n->n_src == 0 || r->from->symbols.n) return 0;
    for (int i = 0; i < n->n_src; i++)
        if (!is_constant(r->to, src[i])) return 0;
    if (info->is_view && elements(&r->from->values.at[n->out].shape) > elements(&r->to->values.at[src[0]].shape)) return 0;
    for (int i = 0; i < n->n_out; i++) {
        const qn_shape *s = &r->from->values.at[n->out + i].shape;
        if (qn_tensor_bytes((qn_dtype)s->dtype, s->rank, s->d, &bytes) != QN_OK || bytes > FOLD_MOST_BYTES) return 0;
        total += bytes;
    }
    return total <= FOLD_MOST_BYTES;
}

static void *buffer(fold *f, uint64_t bytes) { /* aligned as a workspace must be */
    char *p = qn_arena_alloc(&f->scratch, 1, bytes + QN_WORKSPACE_ALIGN);
    return p ? p + (QN_WORKSPACE_ALIGN - (uintptr_t)p % QN_WORKSPACE_ALIGN) % QN_WORKSPACE_ALIGN : NULL;
}

/* What a view shows, made dense. */
static int copy_view(const qn_request *q, const qn_tensor *out) {
    qn_tensor view[QN_MAX_DST];
    qn_result result;
    int n_out;
    if (qn_infer(q, view, &n_out, &result) != QN_OK) return 0;
    qn_copy(out, &view[0]);
    return 1;
}

/* Runs the node; 0 when it cannot be run now, in which case it stays a node and the run will say why. */
static int compute(const qn_rebuild *r, fold *f, const qn_ir_node *n, const qn_val *src, qn_tensor *out) {
    qn_tensor in[QN_MAX_SRC];
    qn_request q = qn_ir_request(n);
    q.n_dst = (uint16_t)n->n_out;
    for (int i = 0; i < n->n_src; i++) {
        if (src[i] == QN_VAL_NONE) continue;
        const qn_ir_value *v = &r->to->values.at[src[i]];
        const qn_ir_constant *c = &r->to->constants.at[v->data];
        qn_tensor_init(&in[i], (qn_dtype)v->shape.dtype, v->shape.rank, v->shape.d, NULL, 0);
        memcpy(&in[i].data, &c->data, sizeof in[i].data); /* read only: it is a source */
        in[i].size = c->bytes;
        q.src[i] = &in[i];
    }
    for (int i = 0; i < n->n_out; i++) {
        const qn_shape *s = &r->from->values.at[n->out + i].shape;
        uint64_t bytes = 0;
        qn_tensor_bytes((qn_dtype)s->dtype, s->rank, s->d, &bytes);
        void *data = buffer(f, bytes);
        if (!data || qn_tensor_init(&out[i], (qn_dtype)s->dtype, s->rank, s->d, data, bytes) != QN_OK) return 0;
        q.dst[i] = &out[i];
    }
    qn_guarded g;
    qn_result result;
    if (qn_op_describe(n->op)->is_view) return copy_view(&q, out);
    qn_result_begin(&q, &result);
    if (qn_guard_sources(&q, 1, &g, &result) != QN_OK || qn_guard_destinations(&q, &g) != QN_OK) return 0;
    void *workspace = g.infer.workspace ? buffer(f, g.infer.workspace) : NULL;
    if (g.infer.workspace && !workspace) return 0;
    qn_call call = {n->op, n->subop, n->n_src, n->n_out, q.src, q.dst, g.infer.attr, workspace};
    return qn_op_rules_of(n->op)->reference(&call) == QN_OK;
}

static qn_status fold_node(qn_rebuild *r, int32_t node) {
    fold *f = r->user;
    const qn_ir_node *n = &r->from->nodes.at[node];
    qn_val src[QN_MAX_SRC];
    qn_tensor out[QN_MAX_DST];
    qn_rebuild_sources(r, node, src);
    int done = can_fold(r, n, src) && qn_pass_may(f->run, qn_pass_rule_constant, node);
    if (done) {
        qn_arena_init(&f->scratch, 0);
        done = compute(r, f, n, src, out);
        for (int i = 0; done && i < n->n_out; i++)
            r->map[n->out + i] = qn_graph_constant(r->to, (qn_dtype)out[i].dtype, out[i].rank, out[i].shape, out[i].data,
                                                   out[i].size);
        qn_arena_destroy(&f->scratch);
    }
    return done ? QN_OK : qn_rebuild_copy_with(r, node, src);
}

qn_status qn_pass_fold(qn_pass_run *run, qn_graph **to) {
    fold f;
    memset(&f, 0, sizeof f);
    f.run = run;
    if (run->from->constants.n == 0) return QN_OK;
    return qn_ir_rebuild(run->from, NULL, fold_node, &f, to, run->error);
}
