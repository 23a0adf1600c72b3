/* rms_layer_norms of one x, each with weights of its own, become one op that reads x and takes its mean square once. It stands
 * where the first of them stood, so the weights of the others must be there by then; and the others must be near, or their
 * results would lie in memory long before they are wanted. */
#include "pass/facts.h"
#include "pass/terms.h"

enum { MOST_WEIGHTS = 4, NEAR = 32 };

typedef struct norms {
    int n;
    int32_t node[MOST_WEIGHTS];
} norms;

typedef struct gatherer {
    qn_pass_run *run;
    qn_arena arena;
    qn_pass_facts facts;
    int32_t *owner; /* per node: its group, -1: none */
    QN_VEC(norms) groups;
} gatherer;

static qn_val source_of(const qn_graph *g, int32_t node, int slot) {
    const qn_ir_node *n = &g->nodes.at[node];
    return slot < n->n_src ? qn_ir_sources(g, n)[slot] : QN_VAL_NONE;
}

static float eps_of(const qn_graph *g, int32_t node) {
    return ((const qn_attr_rms_layer_norm *)qn_pass_attr(&g->nodes.at[node]))->eps;
}

static int is_norm(const qn_graph *g, int32_t node) {
    return g->nodes.at[node].op == QN_OP_rms_layer_norm && source_of(g, node, 2) == QN_VAL_NONE;
}

/* Whether a value that a later node reads is the same where the group would stand. */
static int reads_the_same(const gatherer *s, qn_val v, int32_t at, int32_t first) {
    const qn_graph *g = s->facts.g;
    int there = g->values.at[v].node >= 0 ? g->values.at[v].node < first : v < g->nodes.at[first].out;
    return there && qn_pass_epoch(&s->facts, v, at) == qn_pass_epoch(&s->facts, v, first);
}

/* The group that begins at a node: later norms of the same x. */
static void gather(const gatherer *s, int32_t node, norms *x) {
    const qn_graph *g = s->facts.g;
    x->n = 0;
    if (s->owner[node] >= 0 || !is_norm(g, node)) return;
    x->node[x->n++] = node;
    qn_val shared = source_of(g, node, 0);
    for (int32_t k = s->facts.first_use[shared]; k < s->facts.first_use[shared + 1] && x->n < MOST_WEIGHTS; k++) {
        int32_t user = s->facts.users[k];
        if (user <= x->node[x->n - 1] || user > node + NEAR || s->owner[user] >= 0 || !is_norm(g, user)) continue;
        if (source_of(g, user, 0) != shared || eps_of(g, user) != eps_of(g, node)) continue;
        if (!reads_the_same(s, shared, user, node) || !reads_the_same(s, source_of(g, user, 1), user, node)) continue;
        x->node[x->n++] = user;
    }
}

static qn_status gather_from(gatherer *s, int32_t node) {
    norms x;
    gather(s, node, &x);
    if (x.n < 2) return QN_OK;
    if (!qn_pass_claims(s->run, QN_OP_rms_norm_group, 0, s->facts.g, x.node, x.n)) {
        qn_pass_missed(s->run, "norms", node, "there is no kernel for it");
        return QN_OK;
    }
    if (!qn_pass_may(s->run, "norms", node)) return QN_OK;
    if (!QN_VEC_ROOM(&s->arena, &s->groups, 1)) return qn_error_set(s->run->error, QN_NO_MEMORY, "no memory for a group");
    for (int i = 0; i < x.n; i++) s->owner[x.node[i]] = (int32_t)s->groups.n;
    s->groups.at[s->groups.n++] = x;
    return QN_OK;
}

static qn_status replace(qn_rebuild *r, int32_t node) {
    gatherer *s = r->user;
    if (s->owner[node] < 0) return qn_rebuild_copy(r, node);
    const norms *x = &s->groups.at[s->owner[node]];
    if (x->node[0] != node) return QN_OK;
    qn_attr_rms_norm_group at = qn_attr_rms_norm_group_default();
    qn_val src[1 + MOST_WEIGHTS] = {r->map[source_of(r->from, node, 0)]}, out[QN_MAX_DST];
    at.eps = eps_of(r->from, node);
    for (int i = 0; i < x->n; i++) src[1 + i] = r->map[source_of(r->from, x->node[i], 1)];
    QN_TRY(qn_graph_apply(r->to, QN_OP_rms_norm_group, 0, 1 + x->n, src, &at, x->n, out));
    for (int i = 0; i < x->n; i++) r->map[r->from->nodes.at[x->node[i]].out] = out[i];
    return QN_OK;
}

qn_status qn_pass_norms(qn_pass_run *run, qn_graph **to) {
    size_t n = run->from->nodes.n;
    gatherer s;
    memset(&s, 0, sizeof s);
    s.run = run;
    QN_TRY(qn_pass_facts_make(run->from, &s.facts, run->error));
    qn_arena_init(&s.arena, 0);
    s.owner = qn_arena_alloc(&s.arena, n, sizeof *s.owner);
    qn_status status = s.owner ? QN_OK : qn_error_set(run->error, QN_NO_MEMORY, "no memory for %zu nodes", n);
    for (size_t k = 0; status == QN_OK && k < n; k++) s.owner[k] = -1;
    for (size_t k = 0; status == QN_OK && k < n; k++) status = gather_from(&s, (int32_t)k);
    if (status == QN_OK && s.groups.n) status = qn_ir_rebuild(run->from, NULL, replace, &s, to, run->error);
    qn_arena_destroy(&s.arena);
    qn_pass_facts_free(&s.facts);
    return status;
}
