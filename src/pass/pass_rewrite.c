/* Algebra by the rules of rewrites.def. Each node is copied into the new graph and looked at there, over sources that have been
 * rewritten already, so chains of rules need no second walk. What a rule leaves without users stays until dce. */
#include "pass/facts.h"
#include "pass/rules.h"

enum { MOST_ROUNDS = 16 }; /* rules in a row at one node; no chain is longer that does not go in circles */

typedef struct rewriter {
    qn_pass_run *run;
    qn_arena arena;
    qn_pass_facts facts;
    qn_rule_set rules;
    QN_VEC(int32_t) uses;        /* per value of the new graph: users of the old values that became it, outputs included */
    QN_VEC(int32_t) first_write; /* likewise: the first node of the old graph that writes over its memory */
} rewriter;

/* Values added since the last time: a use each, by what made them, and the memory of what they are a view of. */
static qn_status catch_up(qn_rebuild *r) {
    rewriter *w = r->user;
    size_t more = r->to->values.n > w->uses.n ? r->to->values.n - w->uses.n : 0;
    w->uses.n = w->first_write.n = r->to->values.n < w->uses.n ? r->to->values.n : w->uses.n; /* some may have been taken off */
    if (!QN_VEC_ROOM(&w->arena, &w->uses, more + 1) || !QN_VEC_ROOM(&w->arena, &w->first_write, more + 1))
        return qn_ir_fail(r->to, QN_NO_MEMORY, "no memory to follow %zu values", r->to->values.n);
    for (; w->uses.n < r->to->values.n; w->uses.n++) {
        const qn_ir_value *v = &r->to->values.at[w->uses.n];
        int32_t first = INT32_MAX;
        if (v->node >= 0 && qn_op_describe(r->to->nodes.at[v->node].op)->is_view)
            first = w->first_write.at[qn_ir_sources(r->to, &r->to->nodes.at[v->node])[0]];
        w->uses.at[w->uses.n] = 1;
        w->first_write.at[w->first_write.n++] = first;
    }
    return QN_OK;
}

/* Leaves are mapped by the walk itself: what is known about them is noted when they are first read. */
static void note_old(qn_rebuild *r, qn_val old) {
    rewriter *w = r->user;
    qn_val v = r->map[old];
    w->first_write.at[v] = qn_pass_first_write(&w->facts, old);
}

static int is_alias(const qn_match *m) {
    int subop, op = qn_rule_makes(m, &subop);
    return op < 0 || qn_op_describe(op)->is_view;
}

/* Whether what the replacement reads is, where it is read, what the pattern read. */
static int may_read(const rewriter *w, const qn_match *m, int32_t node) {
    int was_view = qn_op_describe(m->g->nodes.at[m->node[0]].op)->is_view;
    for (int i = 0; i < m->rule->n_values; i++) {
        if (!(m->has_value >> i & 1)) continue;
        int32_t first = w->first_write.at[m->value[i]];
        if (first != INT32_MAX && (first <= node || (is_alias(m) && !was_view))) return 0;
    }
    return 1;
}

static int is_sole(const rewriter *w, const qn_match *m) {
    for (int i = 1; i < m->n_nodes; i++)
        if (w->uses.at[m->g->nodes.at[m->node[i]].out] > 1) return 0;
    return 1;
}

/* Tries one rule at a value of the new graph; what it becomes, QN_VAL_NONE when the rule does not apply. */
static qn_val try_rule(qn_rebuild *r, const qn_rule *rule, qn_val v, int32_t old_node) {
    rewriter *w = r->user;
    qn_graph *to = r->to;
    qn_match m;
    qn_val made;
    if (!qn_rule_match(rule, to, to->values.at[v].node, &m) || qn_rule_refuted(&m)) return QN_VAL_NONE;
    if ((rule->when == QN_RULE_SOLE && !is_sole(w, &m)) || !may_read(w, &m, old_node)) return QN_VAL_NONE;
    qn_pass_mark mark = qn_pass_mark_of(to);
    if (!qn_rule_build(&m, to, m.value, 1, &made)) return QN_VAL_NONE;
    if (qn_pass_same_type(&to->values.at[made], &to->values.at[v]) && qn_pass_may(w->run, rule->name, old_node)) return made;
    qn_pass_roll_back(to, mark);
    return QN_VAL_NONE;
}

static qn_val rewrite_once(qn_rebuild *r, qn_val v, int32_t old_node) {
    rewriter *w = r->user;
    int op = r->to->nodes.at[r->to->values.at[v].node].op;
    for (int i = w->rules.first[op]; i < w->rules.first[op + 1]; i++) {
        qn_val made = try_rule(r, &w->rules.rule[w->rules.by_op[i]], v, old_node);
        if (made != QN_VAL_NONE) return made;
    }
    return QN_VAL_NONE;
}

static qn_status rewrite_node(qn_rebuild *r, int32_t node) {
    rewriter *w = r->user;
    const qn_ir_node *n = &r->from->nodes.at[node];
    QN_TRY(catch_up(r));
    for (int i = 0; i < n->n_src; i++) {
        qn_val s = qn_ir_sources(r->from, n)[i];
        if (s != QN_VAL_NONE && r->from->values.at[s].node < 0) note_old(r, s);
    }
    QN_TRY(qn_rebuild_copy(r, node));
    QN_TRY(catch_up(r));
    for (int i = 0; i < n->n_out; i++) {
        w->uses.at[r->map[n->out + i]] = qn_pass_use_count(&w->facts, n->out + i) + w->facts.is_output[n->out + i];
        note_old(r, n->out + i);
    }
    if (n->n_out != 1 || qn_pass_is_written_over(r->from, n)) return QN_OK;
    for (int round = 0; round < MOST_ROUNDS; round++) {
        qn_val now = r->map[n->out], made = rewrite_once(r, now, node);
        if (made == QN_VAL_NONE) break;
        int32_t uses = w->uses.at[now];
        int is_new = (size_t)made >= w->uses.n;
        QN_TRY(catch_up(r));
        w->uses.at[made] = is_new ? uses : w->uses.at[made] + uses;
        r->map[n->out] = made;
        if (!is_new) break; /* it had its turn */
    }
    return r->to->error.status;
}

qn_status qn_pass_rewrite(qn_pass_run *run, qn_graph **to) {
    rewriter w;
    memset(&w, 0, sizeof w);
    w.run = run;
    QN_TRY(qn_pass_facts_make(run->from, &w.facts, run->error));
    qn_arena_init(&w.arena, 0);
    qn_status status = qn_rule_set_make(&qn_rewrites, run->options, &w.arena, &w.rules, run->error);
    if (status == QN_OK) status = qn_ir_rebuild(run->from, NULL, rewrite_node, &w, to, run->error);
    qn_arena_destroy(&w.arena);
    qn_pass_facts_free(&w.facts);
    return status;
}
