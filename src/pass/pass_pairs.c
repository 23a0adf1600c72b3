/* Keys and values that go into their caches at one position: two writes become one op. The pair stands where the second write was, so
 * the first is done later than before; nothing in between may look at its cache, or replace what it writes. */
#include "pass/facts.h"

enum { NEAR = 64 }; /* how many nodes may lie between */

typedef struct pairer {
    qn_pass_run *run;
    qn_arena arena;
    qn_pass_facts facts;
    int32_t *partner; /* per node: the other of its pair, -1: none */
} pairer;

static qn_val source_of(const qn_graph *g, int32_t node, int i) { return qn_ir_sources(g, &g->nodes.at[node])[i]; }
static int is_write(const qn_graph *g, int32_t node) { return g->nodes.at[node].op == QN_OP_cache_write; }

static int same_form(const qn_graph *g, int32_t a, int32_t b) {
    const qn_ir_node *x = &g->nodes.at[a], *y = &g->nodes.at[b];
    const qn_attr_cache_write *p = x->attr ? x->attr : qn_op_describe(x->op)->attr_default;
    const qn_attr_cache_write *q = y->attr ? y->attr : qn_op_describe(y->op)->attr_default;
    return p->ring == q->ring && p->token_major == q->token_major;
}

/* Whether a node between the two reads or writes the cache of the first. */
static int is_touched(const pairer *p, int32_t first, int32_t second) {
    const qn_graph *g = p->facts.g;
    int32_t root = p->facts.root[source_of(g, first, 0)];
    for (int32_t k = first + 1; k <= second; k++)
        for (int i = 0; i < g->nodes.at[k].n_src; i++) {
            qn_val v = source_of(g, k, i);
            if (v != QN_VAL_NONE && p->facts.root[v] == root) return 1;
        }
    return 0;
}

/* NULL, or why the two stay two. */
static const char *apart(const pairer *p, int32_t first, int32_t second) {
    const qn_graph *g = p->facts.g;
    if (!same_form(g, first, second)) return "caches of different forms";
    if (is_touched(p, first, second)) return "the first cache is read in between";
    for (int i = 1; i < 3; i++) {
        qn_val v = source_of(g, first, i);
        if (qn_pass_epoch(&p->facts, v, first) != qn_pass_epoch(&p->facts, v, second))
            return "what is written is replaced in between";
    }
    if (!qn_pass_claims(p->run, QN_OP_cache_write_pair, 0, g, (const int32_t[]){first, second}, 2))
        return "there is no kernel for it";
    return NULL;
}

static void pair_from(pairer *p, int32_t node) {
    const qn_graph *g = p->facts.g;
    const char *why = NULL;
    if (p->partner[node] >= 0 || !is_write(g, node)) return;
    for (int32_t k = node + 1; k < (int32_t)g->nodes.n && k <= node + NEAR; k++) {
        if (!is_write(g, k) || p->partner[k] >= 0 || source_of(g, k, 2) != source_of(g, node, 2)) continue;
        const char *not_this = apart(p, node, k);
        if (!why) why = not_this;
        if (not_this || !qn_pass_may(p->run, qn_pass_rule_pairs, node)) continue;
        p->partner[node] = k;
        p->partner[k] = node;
        return;
    }
    if (why) qn_pass_missed(p->run, qn_pass_rule_pairs, node, why);
}

static qn_status replace(qn_rebuild *r, int32_t node) {
    const pairer *p = r->user;
    int32_t first = p->partner[node];
    if (first < 0) return qn_rebuild_copy(r, node);
    if (first > node) return QN_OK; /* the other one stands for both */
    const qn_attr_cache_write *form = r->from->nodes.at[node].attr;
    qn_attr_cache_write_pair at = qn_attr_cache_write_pair_default();
    if (form) at.ring = form->ring, at.token_major = form->token_major;
    qn_val src[5], out[2];
    qn_rebuild_label(r, &first, 1);
    for (int i = 0; i < 2; i++) {
        src[2 * i] = r->map[source_of(r->from, first, i)];
        src[2 * i + 1] = r->map[source_of(r->from, node, i)];
    }
    src[4] = r->map[source_of(r->from, node, 2)];
    QN_TRY(qn_graph_apply(r->to, QN_OP_cache_write_pair, 0, 5, src, &at, 2, out));
    r->map[r->from->nodes.at[first].out] = out[0];
    r->map[r->from->nodes.at[node].out] = out[1];
    return QN_OK;
}

qn_status qn_pass_pairs(qn_pass_run *run, qn_graph **to) {
    size_t n = run->from->nodes.n;
    pairer p;
    if (!qn_pass_has_op(run->from, QN_OP_cache_write)) return QN_OK;
    memset(&p, 0, sizeof p);
    p.run = run;
    QN_TRY(qn_pass_facts_make(run->from, &p.facts, run->error));
    qn_arena_init(&p.arena, 0);
    p.partner = qn_arena_alloc(&p.arena, n, sizeof *p.partner);
    qn_status status = p.partner ? QN_OK : qn_error_set(run->error, QN_NO_MEMORY, "no memory for %zu nodes", n);
    int32_t before = run->changed;
    for (size_t k = 0; status == QN_OK && k < n; k++) p.partner[k] = -1;
    for (size_t k = 0; status == QN_OK && k < n; k++) pair_from(&p, (int32_t)k);
    if (status == QN_OK && run->changed > before) status = qn_ir_rebuild(run->from, NULL, replace, &p, to, run->error);
    qn_arena_destroy(&p.arena);
    qn_pass_facts_free(&p.facts);
    return status;
}
