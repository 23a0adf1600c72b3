/* rms_layer_norms of one x, each with weights of its own, become one op that reads x and takes its mean square once. */
#include "pass/gather.h"
#include "pass/terms.h"

static qn_val source_of(const qn_graph *g, int32_t node, int slot) {
    const qn_ir_node *n = &g->nodes.at[node];
    return slot < n->n_src ? qn_ir_sources(g, n)[slot] : QN_VAL_NONE;
}

static float eps_of(const qn_graph *g, int32_t node) {
    return ((const qn_attr_rms_layer_norm *)qn_pass_attr(&g->nodes.at[node]))->eps;
}

static qn_val shared(const qn_graph *g, int32_t node) {
    int plain = g->nodes.at[node].op == QN_OP_rms_layer_norm && source_of(g, node, 2) == QN_VAL_NONE;
    return plain ? source_of(g, node, 0) : QN_VAL_NONE;
}

static int joins(const qn_pass_facts *f, const qn_gather_group *x, int32_t node) {
    return eps_of(f->g, node) == eps_of(f->g, x->node[0]) &&
           qn_gather_reads_the_same(f, source_of(f->g, node, 1), node, x->node[0]);
}

static qn_status make(qn_rebuild *r, const qn_gather_group *x, qn_val *out) {
    qn_attr_rms_norm_group at = qn_attr_rms_norm_group_default();
    qn_val src[1 + QN_GATHER_MOST] = {r->map[source_of(r->from, x->node[0], 0)]};
    at.eps = eps_of(r->from, x->node[0]);
    for (int i = 0; i < x->n; i++) src[1 + i] = r->map[source_of(r->from, x->node[i], 1)];
    return qn_graph_apply(r->to, QN_OP_rms_norm_group, 0, 1 + x->n, src, &at, x->n, out);
}

qn_status qn_pass_norms(qn_pass_run *run, qn_graph **to) {
    static const qn_gather_rule rule = {
        .name = qn_pass_rule_norms, .op = QN_OP_rms_norm_group, .shared = shared, .joins = joins, .make = make};
    return qn_gather_run(run, &rule, to);
}
