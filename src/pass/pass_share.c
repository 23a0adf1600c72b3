/* Products of one x with several matrices become one op, that reads x once and gets it ready once (a quantised copy, a packed
 * panel). */
#include "pass/gather.h"
#include "pass/linear.h"
#include "pass/terms.h"

enum { MOST_WEIGHTS = QN_GATHER_MOST };

/* The members of a group as products. */
typedef struct products {
    int n;
    int32_t node[MOST_WEIGHTS];
    qn_pass_linear linear[MOST_WEIGHTS];
    int32_t dtype; /* the attribute that gives every product its dtype; -1 when none does */
} products;

/* What the product would be rounded to if nothing were said. */
static uint32_t natural_dtype(const qn_graph *g, const qn_pass_linear *l) {
    uint32_t x = g->values.at[l->x].shape.dtype, w = g->values.at[l->w].shape.dtype;
    return x == w ? x : QN_DTYPE_F32;
}

static int32_t common_dtype(const qn_graph *g, const products *x) {
    int natural = 1, single = 1;
    for (int i = 0; i < x->n; i++) {
        uint32_t made = g->values.at[g->nodes.at[x->node[i]].out].shape.dtype;
        natural &= made == natural_dtype(g, &x->linear[i]);
        single &= made == QN_DTYPE_F32;
    }
    return natural ? 0 : single ? QN_DTYPE_F32 : -1;
}

static void add(const qn_graph *g, int32_t node, products *x) {
    x->node[x->n] = node;
    qn_pass_linear_of(g, node, &x->linear[x->n++]);
}

static products products_of(const qn_graph *g, const qn_gather_group *group) {
    products x = {0};
    for (int i = 0; i < group->n; i++) add(g, group->node[i], &x);
    x.dtype = common_dtype(g, &x);
    return x;
}

static qn_val shared(const qn_graph *g, int32_t node) {
    qn_pass_linear l;
    return qn_pass_linear_of(g, node, &l) && l.act < 0 ? l.x : QN_VAL_NONE;
}

static int joins(const qn_pass_facts *f, const qn_gather_group *group, int32_t node) {
    products x = products_of(f->g, group);
    add(f->g, node, &x);
    const qn_pass_linear *l = &x.linear[x.n - 1];
    if (l->transpose_w != x.linear[0].transpose_w) return 0;
    if (!qn_gather_reads_the_same(f, l->w, node, x.node[0]) || !qn_gather_reads_the_same(f, l->bias, node, x.node[0])) return 0;
    return common_dtype(f->g, &x) >= 0;
}

/* Sources and attributes of the op for a group, over values as `map` gives them; returns how many sources. */
static int arguments(const products *x, const qn_val *map, qn_val *src, qn_attr_linear_group *at) {
    int n_src = 1 + x->n;
    *at = qn_attr_linear_group_default();
    at->transpose_w = x->linear[0].transpose_w;
    at->dtype = x->dtype;
    for (int i = 0; i < 1 + 2 * MOST_WEIGHTS; i++) src[i] = QN_VAL_NONE;
    src[0] = map ? map[x->linear[0].x] : x->linear[0].x;
    for (int i = 0; i < x->n; i++) {
        qn_val w = x->linear[i].w, bias = x->linear[i].bias;
        src[1 + i] = map ? map[w] : w;
        if (bias == QN_VAL_NONE) continue;
        src[1 + MOST_WEIGHTS + i] = map ? map[bias] : bias;
        n_src = 2 + MOST_WEIGHTS + i;
    }
    return n_src;
}

/* Whether the op takes the group and gives what its members gave. */
static int taken(const qn_graph *g, const qn_gather_group *group) {
    const products all = products_of(g, group), *x = &all;
    qn_val src[1 + 2 * MOST_WEIGHTS];
    const qn_shape *shapes[QN_MAX_SRC] = {0};
    qn_shape out[QN_MAX_DST];
    qn_attr_linear_group at;
    qn_result result;
    int n_out = 0, n_src = arguments(x, NULL, src, &at);
    memset(&result, 0, sizeof result);
    for (int i = 0; i < n_src; i++)
        if (src[i] != QN_VAL_NONE) shapes[i] = &g->values.at[src[i]].probe;
    if (qn_ir_infer(QN_OP_linear_group, 0, n_src, shapes, &at, out, &n_out, &result) != QN_OK || n_out != x->n) return 0;
    for (int i = 0; i < n_out; i++) {
        const qn_shape *was = &g->values.at[g->nodes.at[x->node[i]].out].probe;
        if (was->dtype != out[i].dtype || was->rank != out[i].rank) return 0;
        if (memcmp(was->d, out[i].d, sizeof *was->d * (size_t)was->rank) != 0) return 0;
    }
    return 1;
}

static qn_status make(qn_rebuild *r, const qn_gather_group *group, qn_val *out) {
    products x = products_of(r->from, group);
    qn_attr_linear_group at;
    qn_val src[1 + 2 * MOST_WEIGHTS];
    int n_src = arguments(&x, r->map, src, &at);
    return qn_graph_apply(r->to, QN_OP_linear_group, 0, n_src, src, &at, x.n, out);
}

qn_status qn_pass_share(qn_pass_run *run, qn_graph **to) {
    static const qn_gather_rule rule = {qn_pass_rule_share, QN_OP_linear_group, shared, joins, taken, make};
    return qn_gather_run(run, &rule, to);
}
