/* Fusions by the rules of fusions.def. Matches are found in the old graph, where users are known, and do not overlap; then the
 * graph is built anew with each match replaced. Rounds follow until nothing more is found, so that rules can build on one
 * another.
 *
 * The replacement takes the root's place. When it also gives a value from inside, it must stand before every other user of that
 * value: at the node that made it, if all it reads is there by then, or still at the root, if those users come later. */
#include "pass/linear.h"
#include "pass/rules.h"

enum { MOST_ROUNDS = 8 };

typedef struct fusion {
    qn_match match;
    int32_t at; /* the node in whose place the replacement stands */
} fusion;

typedef struct fuser {
    qn_pass_run *run;
    qn_arena arena;
    qn_rule_set rules;
    qn_pass_facts facts;
    const char **missed; /* per node of the graph this round: why its best match was left alone */
    const qn_rule **missed_rule;
    int32_t *claimed; /* per node: its fusion, -1: none */
    qn_graph *trial;  /* a copy of the graph, same numbers, to ask ops in; NULL until one is asked */
    QN_VEC(fusion) found;
} fuser;

/* ---- Whether a match may be fused */

/* Edges from nodes of the match to a value. */
static int uses_inside(const qn_match *m, qn_val v) {
    int n = 0;
    for (int i = 0; i < m->n_nodes; i++)
        for (int k = 0; k < m->g->nodes.at[m->node[i]].n_src; k++) n += qn_ir_sources(m->g, &m->g->nodes.at[m->node[i]])[k] == v;
    return n;
}

static int is_in_match(const qn_match *m, int32_t node) {
    for (int i = 0; i < m->n_nodes; i++)
        if (m->node[i] == node) return 1;
    return 0;
}

/* Whether output k of node i of a match may have other users. */
static int is_teed(const qn_match *m, int i, int k) { return m->tee[i] >> k & 1; }

/* NULL, or why what lies inside may not vanish. */
static const char *inside_is_needed(const fuser *f, const qn_match *m) {
    for (int i = 0; i < m->rule->n_values; i++) /* y + y: the second y is a source */
        if ((m->has_value >> i & 1) && is_in_match(m, m->g->values.at[m->value[i]].node)) return "multi-consumer";
    for (int i = 1; i < m->n_nodes; i++)
        for (int k = 0; k < m->g->nodes.at[m->node[i]].n_out; k++) {
            qn_val v = m->g->nodes.at[m->node[i]].out + k;
            if (is_teed(m, i, k)) continue;
            if (f->facts.is_output[v]) return "an output of the graph lies inside";
            if (qn_pass_use_count(&f->facts, v) != uses_inside(m, v)) return "multi-consumer";
        }
    return NULL;
}

/* Whether a value is there before a node runs. What a fusion makes is there where that fusion stands. */
static int is_made_before(const fuser *f, qn_val v, int32_t node) {
    const qn_graph *g = f->facts.g;
    int32_t maker = g->values.at[v].node;
    if (maker < 0) return v < g->nodes.at[node].out;
    return (f->claimed[maker] >= 0 ? f->found.at[f->claimed[maker]].at : maker) < node;
}

/* Whether something writes over a value between where the match reads it and where the replacement would. What updates it in place
 * and is its only reader in the match goes along with it. */
static int is_overwritten(const fuser *f, const qn_match *m, int i, int32_t at) {
    qn_val v = m->value[i];
    int32_t reader = m->reader[i], low = reader < at ? reader : at, high = reader < at ? at : reader;
    if (!f->facts.written[f->facts.root[v]]) return 0;
    for (size_t k = 0; k < f->facts.writes.n; k++) {
        const qn_pass_write *w = &f->facts.writes.at[k];
        if (w->root != f->facts.root[v] || w->node < low || w->node >= high) continue;
        if (w->node != reader || uses_inside(m, v) != 1) return 1;
    }
    return 0;
}

/* Whether a node that is not of the match reads memory between where the match updates it and where the replacement would. */
static int is_read_between(const fuser *f, const qn_match *m, const qn_pass_write *w, int32_t at) {
    const qn_graph *g = f->facts.g;
    for (int32_t k = w->node < at ? w->node : at; k <= (w->node < at ? at : w->node); k++)
        for (int i = 0; !is_in_match(m, k) && i < g->nodes.at[k].n_src; i++) {
            qn_val v = qn_ir_sources(g, &g->nodes.at[k])[i];
            if (v != QN_VAL_NONE && f->facts.root[v] == w->root) return 1;
        }
    return 0;
}

static int reads_are_there(const fuser *f, const qn_match *m, int32_t at) {
    for (int i = 0; i < m->rule->n_values; i++)
        if ((m->has_value >> i & 1) && (!is_made_before(f, m->value[i], at) || is_overwritten(f, m, i, at))) return 0;
    for (size_t k = 0; k < f->facts.writes.n; k++)
        if (is_in_match(m, f->facts.writes.at[k].node) && is_read_between(f, m, &f->facts.writes.at[k], at)) return 0;
    return 1;
}

/* The first user of an emitted value that is not part of the match; INT32_MAX when there is none. */
static int32_t first_stranger(const fuser *f, const qn_match *m) {
    int32_t first = INT32_MAX;
    for (int i = 1; i < m->n_nodes; i++)
        for (int o = 0; o < m->g->nodes.at[m->node[i]].n_out; o++) {
            qn_val v = m->g->nodes.at[m->node[i]].out + o;
            for (int32_t k = f->facts.first_use[v]; is_teed(m, i, o) && k < f->facts.first_use[v + 1]; k++)
                if (!is_in_match(m, f->facts.users[k]) && f->facts.users[k] < first) first = f->facts.users[k];
        }
    return first;
}

/* Where the replacement may stand, -1: nowhere. */
static int32_t place_of(const fuser *f, const qn_match *m) {
    int32_t root = m->node[0], earliest = root;
    if (first_stranger(f, m) > root) return reads_are_there(f, m, root) ? root : -1;
    for (int i = 1; i < m->n_nodes; i++)
        if (m->tee[i] && m->node[i] < earliest) earliest = m->node[i];
    return reads_are_there(f, m, earliest) ? earliest : -1;
}

static const char *refused(const fuser *f, const qn_match *m, int32_t *at) {
    int subop, op = qn_rule_makes(m, &subop);
    const char *why = qn_rule_refuted(m);
    if (!why) why = inside_is_needed(f, m);
    if (why) return why;
    if (op >= 0 && !qn_pass_claims(f->run, op, subop, m->g, m->node, m->n_nodes)) return "there is no kernel for it";
    *at = place_of(f, m);
    return *at < 0 ? "another user comes before all it reads is there" : NULL;
}

/* ---- Finding */

static int is_free(const fuser *f, const qn_match *m) {
    for (int i = 0; i < m->n_nodes; i++)
        if (f->claimed[m->node[i]] >= 0) return 0;
    return 1;
}

static qn_status claim(fuser *f, const qn_match *m, int32_t at) {
    if (!QN_VEC_ROOM(&f->arena, &f->found, 1)) return qn_error_set(f->run->error, QN_NO_MEMORY, "no memory for a fusion");
    for (int i = 0; i < m->n_nodes; i++) f->claimed[m->node[i]] = (int32_t)f->found.n;
    f->found.at[f->found.n++] = (fusion){*m, at};
    return QN_OK;
}

/* Builds the replacement in the copy, and takes it off again: NULL, or why it cannot be. */
static const char *try_building(fuser *f, const qn_match *m) {
    qn_val out[QN_MAX_DST];
    const char *why = NULL;
    const qn_ir_node *root = &f->facts.g->nodes.at[m->node[0]];
    int n_out = root->n_out;
    if (!f->trial && qn_ir_rebuild(f->facts.g, NULL, NULL, NULL, &f->trial, f->run->error) != QN_OK) return "no memory";
    qn_graph *t = f->trial;
    qn_pass_mark mark = qn_pass_mark_of(t);
    for (int k = 1; k < m->n_nodes; k++) n_out += __builtin_popcount(m->tee[k]);
    if (!qn_rule_build(m, t, m->value, n_out, out)) return "the fused op does not take it";
    for (int k = 0; k < root->n_out; k++)
        if (!qn_pass_same_type(&t->values.at[out[k]], &t->values.at[root->out + k])) why = "the fused op gives another type";
    qn_pass_roll_back(t, mark);
    return why;
}

static qn_status look_at(fuser *f, int32_t node) {
    int op = f->facts.g->nodes.at[node].op;
    qn_match m;
    int32_t at;
    for (int i = f->rules.first[op]; i < f->rules.first[op + 1]; i++) {
        const qn_rule *rule = &f->rules.rule[f->rules.by_op[i]];
        if (!qn_rule_match(rule, f->facts.g, node, &m)) continue;
        const char *why = refused(f, &m, &at);
        if (!why && is_free(f, &m)) why = try_building(f, &m);
        if (why && !f->missed[node]) {
            f->missed[node] = why;
            f->missed_rule[node] = rule;
        }
        if (!why && is_free(f, &m) && qn_pass_may(f->run, rule->name, node)) return claim(f, &m, at);
    }
    return QN_OK;
}

/* ---- Replacing */

/* Which values of the old graph the replacement's outputs are, QN_VAL_NONE for one that nobody needs; how many it must have. */
static int outputs_of(const fuser *f, const qn_match *m, qn_val *was) {
    const qn_ir_node *root = &m->g->nodes.at[m->node[0]];
    int subop, op = qn_rule_makes(m, &subop), n = root->n_out, least = op < 0 ? 1 : qn_op_describe(op)->n_dst_min, most = n;
    for (int i = 0; i < QN_MAX_DST; i++) was[i] = i < n ? root->out + i : QN_VAL_NONE;
    for (int i = 1; i < m->n_nodes; i++)
        for (int k = 0; k < m->g->nodes.at[m->node[i]].n_out; k++) {
            qn_val v = m->g->nodes.at[m->node[i]].out + k;
            if (!is_teed(m, i, k)) continue;
            if (f->facts.is_output[v] || qn_pass_use_count(&f->facts, v) > uses_inside(m, v)) {
                was[n] = v;
                most = n + 1;
            }
            n++;
        }
    return most < least ? least : most;
}

static qn_status replace(qn_rebuild *r, const fusion *x) {
    fuser *f = r->user;
    const qn_match *m = &x->match;
    qn_val values[QN_RULE_VALUES], out[QN_MAX_DST], was[QN_MAX_DST];
    int n_out = outputs_of(f, m, was);
    for (int i = 0; i < m->rule->n_values; i++) {
        values[i] = m->has_value >> i & 1 ? r->map[m->value[i]] : QN_VAL_NONE;
        if ((m->has_value >> i & 1) && values[i] == QN_VAL_NONE) return QN_UNEXPECTED; /* it was made sure of before */
    }
    qn_rebuild_label(r, m->node, m->n_nodes);
    if (!qn_rule_build(m, r->to, values, n_out, out)) return QN_UNEXPECTED; /* it was tried before it was claimed */
    for (int i = 0; i < n_out; i++)
        if (was[i] != QN_VAL_NONE) r->map[was[i]] = out[i];
    return QN_OK;
}

static qn_status fuse_node(qn_rebuild *r, int32_t node) {
    fuser *f = r->user;
    if (f->claimed[node] < 0) return qn_rebuild_copy(r, node);
    const fusion *x = &f->found.at[f->claimed[node]];
    return x->at == node ? replace(r, x) : QN_OK;
}

/* A product that stayed alone, where no rule had its root: what follows it is of the wrong kind. */
static const char *lonely_product(const fuser *f, int32_t node) {
    const qn_graph *g = f->facts.g;
    qn_pass_linear l;
    qn_val y = g->nodes.at[node].out;
    if (!qn_pass_linear_of(g, node, &l) || l.act >= 0) return NULL;
    if (qn_pass_use_count(&f->facts, y) == 0) return NULL;
    if (qn_pass_use_count(&f->facts, y) > 1) return "multi-consumer";
    int32_t user = f->facts.users[f->facts.first_use[y]];
    int op = g->nodes.at[user].op;
    int fits = op == QN_OP_add || op == QN_OP_unary || op == QN_OP_glu ||
               (op == QN_OP_arith && g->nodes.at[user].subop == QN_ARITH_add);
    if (f->missed[user]) return NULL;
    return fits ? "its consumer has what no fused op has" : "its consumer is no add, activation or gate";
}

static void tell_missed(fuser *f) {
    for (int32_t k = 0; k < (int32_t)f->facts.g->nodes.n; k++) {
        const char *alone = f->missed[k] ? NULL : lonely_product(f, k);
        if (f->missed[k]) qn_pass_missed(f->run, f->missed_rule[k]->name, k, f->missed[k]);
        else if (alone) qn_pass_missed(f->run, "linear_bias", k, alone);
    }
}

/* One round over a graph; *next is NULL when nothing was found. */
static qn_status round_over(fuser *f, const qn_graph *g, qn_graph **next) {
    size_t n = g->nodes.n;
    *next = NULL;
    f->run->from = g;
    f->found.n = 0;
    f->claimed = qn_arena_alloc(&f->arena, n, sizeof *f->claimed);
    f->missed = qn_arena_alloc(&f->arena, n, sizeof *f->missed);
    f->missed_rule = qn_arena_alloc(&f->arena, n, sizeof *f->missed_rule);
    if (!f->claimed || !f->missed || !f->missed_rule)
        return qn_error_set(f->run->error, QN_NO_MEMORY, "no memory for %zu nodes", n);
    QN_TRY(qn_pass_facts_make(g, &f->facts, f->run->error));
    qn_status status = QN_OK;
    for (size_t k = 0; k < n; k++) f->claimed[k] = -1;
    for (size_t k = 0; status == QN_OK && k < n; k++) status = look_at(f, (int32_t)k);
    if (status == QN_OK && f->trial) status = qn_graph_error(f->trial, f->run->error);
    if (status == QN_OK && f->found.n) status = qn_ir_rebuild(g, NULL, fuse_node, f, next, f->run->error);
    else if (status == QN_OK) tell_missed(f);
    qn_graph_destroy(f->trial);
    f->trial = NULL;
    qn_pass_facts_free(&f->facts);
    return status;
}

qn_status qn_pass_fuse(qn_pass_run *run, qn_graph **to) {
    fuser f;
    const qn_graph *from = run->from;
    qn_graph *now = NULL, *next = NULL;
    memset(&f, 0, sizeof f);
    f.run = run;
    qn_arena_init(&f.arena, 0);
    qn_status status = qn_rule_set_make(&qn_fusions, run->options, &f.arena, &f.rules, run->error);
    for (int i = 0; status == QN_OK && i < MOST_ROUNDS; i++) {
        status = round_over(&f, now ? now : from, &next);
        if (status != QN_OK || !next) break;
        qn_graph_destroy(now);
        now = next;
    }
    run->from = from;
    if (status != QN_OK) {
        qn_graph_destroy(now);
        now = NULL;
    }
    qn_arena_destroy(&f.arena);
    *to = now;
    return status;
}
