/* Groups are found from first to last node; a node is in one at the most. */
#include "pass/gather.h"

enum { NEAR = 32 };

typedef struct gatherer {
    qn_pass_run *run;
    const qn_gather_rule *rule;
    qn_arena arena;
    qn_pass_facts facts;
    int32_t *owner; /* per node: its group, -1: none */
    QN_VEC(qn_gather_group) groups;
} gatherer;

int qn_gather_reads_the_same(const qn_pass_facts *f, qn_val v, int32_t at, int32_t first) {
    if (v == QN_VAL_NONE) return 1;
    int there = f->g->values.at[v].node >= 0 ? f->g->values.at[v].node < first : v < f->g->nodes.at[first].out;
    return there && qn_pass_epoch(f, v, at) == qn_pass_epoch(f, v, first);
}

/* The group that begins at a node: later ones of the same value. */
static void gather(const gatherer *s, int32_t node, qn_gather_group *x) {
    const qn_pass_facts *f = &s->facts;
    x->n = 0;
    qn_val shared = s->owner[node] >= 0 ? QN_VAL_NONE : s->rule->shared(f->g, node);
    if (shared == QN_VAL_NONE) return;
    x->node[x->n++] = node;
    for (int32_t k = f->first_use[shared]; k < f->first_use[shared + 1] && x->n < QN_GATHER_MOST; k++) {
        int32_t user = f->users[k];
        if (user <= x->node[x->n - 1] || user > node + NEAR || s->owner[user] >= 0) continue;
        if (s->rule->shared(f->g, user) != shared || !qn_gather_reads_the_same(f, shared, user, node)) continue;
        if (s->rule->joins(f, x, user)) x->node[x->n++] = user;
    }
}

static qn_status gather_from(gatherer *s, int32_t node) {
    const qn_gather_rule *rule = s->rule;
    qn_gather_group x;
    gather(s, node, &x);
    if (x.n < 2) return QN_OK;
    const char *missed = rule->taken && !rule->taken(s->facts.g, &x)                     ? "the fused op does not take it"
                         : !qn_pass_claims(s->run, rule->op, 0, s->facts.g, x.node, x.n) ? "there is no kernel for it"
                                                                                         : NULL;
    if (missed) {
        qn_pass_missed(s->run, rule->name, node, missed);
        return QN_OK;
    }
    if (!qn_pass_may(s->run, rule->name, node)) return QN_OK;
    if (!QN_VEC_ROOM(&s->arena, &s->groups, 1)) return qn_error_set(s->run->error, QN_NO_MEMORY, "no memory for a group");
    for (int i = 0; i < x.n; i++) s->owner[x.node[i]] = (int32_t)s->groups.n;
    s->groups.at[s->groups.n++] = x;
    return QN_OK;
}

static qn_status replace(qn_rebuild *r, int32_t node) {
    gatherer *s = r->user;
    qn_val out[QN_MAX_DST];
    if (s->owner[node] < 0) return qn_rebuild_copy(r, node);
    const qn_gather_group *x = &s->groups.at[s->owner[node]];
    if (x->node[0] != node) return QN_OK;
    qn_rebuild_label(r, x->node, x->n);
    QN_TRY(s->rule->make(r, x, out));
    for (int i = 0; i < x->n; i++) r->map[r->from->nodes.at[x->node[i]].out] = out[i];
    return QN_OK;
}

qn_status qn_gather_run(qn_pass_run *run, const qn_gather_rule *rule, qn_graph **to) {
    size_t n = run->from->nodes.n;
    gatherer s = {.run = run, .rule = rule};
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
