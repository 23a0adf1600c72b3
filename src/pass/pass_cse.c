/* Computes the same thing once: same op, same sources, same attributes. Attributes are compared field by field, because the bytes
 * between fields mean nothing. Order in the table is by hash, so a graph of n nodes costs n look-ups. */
#include "base/hash.h"
#include "pass/pass.h"

typedef struct seen {
    QN_VEC(int32_t) next;  /* per node of the old graph: the next with its hash, or -1 */
    QN_VEC(int32_t) later; /* per node with a body: the next one of the old graph with the hash it has there, or -1 */
    int32_t *first;        /* per bucket */
    size_t buckets;
    qn_pass_run *run;
} seen;

/* Of all but the number of outputs. */
static uint64_t hash_node(const qn_ir_node *n, const qn_val *src) {
    qn_hash_key key = qn_hash_process_key();
    uint64_t h = qn_hash_word(key, key.begin, (uint64_t)(uint32_t)n->op << 32 | (uint32_t)n->subop);
    h = qn_hash_bytes(key, h, src, sizeof *src * (size_t)n->n_src);
    return qn_ir_hash_attr(h, qn_op_describe(n->op), n->attr);
}

static int same_node(const qn_rebuild *r, const qn_ir_node *a, const qn_ir_node *b, const qn_val *src_b) {
    const qn_op_info *info = qn_op_describe(a->op);
    if (a->op != b->op || a->subop != b->subop || a->n_src != b->n_src || a->n_out != b->n_out) return 0;
    for (int i = 0; i < a->n_src; i++) {
        qn_val s = qn_ir_sources(r->from, a)[i];
        if ((s == QN_VAL_NONE ? QN_VAL_NONE : r->map[s]) != src_b[i]) return 0;
    }
    return qn_ir_same_attr(info, a->attr, b->attr);
}

/* Chains the nodes with bodies that look alike in the graph as it was, earlier ones first. */
static void chain_loops(seen *s, const qn_graph *g) {
    for (int32_t k = (int32_t)g->nodes.n - 1; k >= 0 && g->bodies.n; k--) {
        const qn_ir_node *n = &g->nodes.at[k];
        if (!qn_op_describe(n->op)->n_body) continue;
        size_t bucket = hash_node(n, qn_ir_sources(g, n)) % s->buckets;
        s->later.at[k] = s->first[bucket];
        s->first[bucket] = k;
    }
    for (size_t i = 0; i < s->buckets; i++) s->first[i] = -1;
}

/* A later node that gives the same and more: a loop whose gradient wants to know what it went through. -1 when there is none. */
static int32_t find_wider(const seen *s, const qn_graph *g, int32_t node) {
    const qn_ir_node *n = &g->nodes.at[node];
    int32_t widest = -1, n_out = n->n_out;
    if (!qn_op_describe(n->op)->n_body) return -1;
    for (int32_t k = s->later.at[node]; k >= 0; k = s->later.at[k]) {
        const qn_ir_node *m = &g->nodes.at[k];
        if (m->op != n->op || m->subop != n->subop || m->n_src != n->n_src || m->n_out <= n_out) continue;
        if (memcmp(qn_ir_sources(g, m), qn_ir_sources(g, n), sizeof(qn_val) * (size_t)n->n_src) != 0) continue;
        if (!qn_pass_is_pure(g, m) || !qn_ir_same_attr(qn_op_describe(n->op), n->attr, m->attr)) continue;
        widest = k;
        n_out = m->n_out;
    }
    return widest;
}

/* Both at once, where the first of them is. */
static qn_status copy_wider(qn_rebuild *r, int32_t node, int32_t wider, const qn_val *src) {
    const qn_ir_node *n = &r->from->nodes.at[node], *m = &r->from->nodes.at[wider];
    qn_val out[QN_MAX_DST];
    QN_TRY(qn_rebuild_apply(r, node, src, m->n_out, out));
    for (int i = 0; i < n->n_out; i++) r->map[n->out + i] = out[i];
    for (int i = 0; i < m->n_out; i++) r->map[m->out + i] = out[i];
    return QN_OK;
}

static qn_status merge_equal(qn_rebuild *r, int32_t node) {
    seen *s = r->user;
    const qn_ir_node *n = &r->from->nodes.at[node];
    qn_val src[QN_MAX_SRC];
    qn_rebuild_sources(r, node, src);
    s->next.at[node] = -1;
    if (!qn_pass_is_pure(r->from, n)) return qn_rebuild_copy(r, node);
    if (r->map[n->out] != QN_VAL_NONE) return QN_OK; /* made with an earlier one */
    size_t bucket = hash_node(n, src) % s->buckets;
    for (int32_t k = s->first[bucket]; k >= 0; k = s->next.at[k]) {
        const qn_ir_node *old = &r->from->nodes.at[k];
        if (!same_node(r, old, n, src) || !qn_pass_may(s->run, qn_pass_rule_same, node)) continue;
        for (int i = 0; i < n->n_out; i++) r->map[n->out + i] = r->map[old->out + i];
        return QN_OK;
    }
    s->next.at[node] = s->first[bucket];
    s->first[bucket] = node;
    int32_t wider = find_wider(s, r->from, node);
    return wider >= 0 && qn_pass_may(s->run, qn_pass_rule_same, wider) ? copy_wider(r, node, wider, src)
                                                                       : qn_rebuild_copy(r, node);
}

qn_status qn_pass_cse(qn_pass_run *run, qn_graph **to) {
    const qn_graph *from = run->from;
    qn_arena scratch;
    seen s;
    memset(&s, 0, sizeof s);
    s.run = run;
    qn_arena_init(&scratch, 0);
    s.buckets = from->nodes.n * 2 + 1;
    s.first = qn_arena_alloc(&scratch, s.buckets, sizeof *s.first);
    qn_status status = QN_NO_MEMORY;
    if (s.first && QN_VEC_ROOM(&scratch, &s.next, from->nodes.n + 1) && QN_VEC_ROOM(&scratch, &s.later, from->nodes.n + 1)) {
        for (size_t i = 0; i < s.buckets; i++) s.first[i] = -1;
        chain_loops(&s, from);
        status = qn_ir_rebuild(from, NULL, merge_equal, &s, to, run->error);
    } else {
        qn_error_set(run->error, status, "no memory to compare %zu nodes", from->nodes.n);
    }
    qn_arena_destroy(&scratch);
    return status;
}
