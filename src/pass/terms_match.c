/* Finding a rule's pattern in a graph: down from the root, each source against its term, both ways round where an op commutes. */
#include "pass/terms.h"

#include "ir/qir.h"
#include "tensor/convert.h"

int qn_pass_same_shape(const qn_ir_value *a, const qn_ir_value *b) {
    if (a->shape.rank != b->shape.rank) return 0;
    for (int k = 0; k < a->shape.rank; k++)
        if (a->shape.d[k] != b->shape.d[k] || a->probe.d[k] != b->probe.d[k]) return 0;
    return 1;
}

int qn_pass_same_type(const qn_ir_value *a, const qn_ir_value *b) {
    return a->shape.dtype == b->shape.dtype && qn_pass_same_shape(a, b);
}

int qn_pass_splat(const qn_graph *g, qn_val v, double *number) {
    while (g->values.at[v].node >= 0 && qn_op_describe(g->nodes.at[g->values.at[v].node].op)->is_view)
        v = qn_ir_sources(g, &g->nodes.at[g->values.at[v].node])[0];
    const qn_ir_value *c = &g->values.at[v];
    const qn_dtype_info *info = qn_dtype_describe((qn_dtype)c->shape.dtype);
    if (c->kind != QN_VALUE_CONSTANT || info->kind == QN_KIND_BLOCK || info->kind == QN_KIND_COMPLEX) return 0;
    const char *data = g->constants.at[c->data].data;
    size_t each = (size_t)info->bytes, bytes = g->constants.at[c->data].bytes;
    if (bytes < each) return 0;
    for (size_t at = each; at < bytes; at += each)
        if (memcmp(data, data + at, each) != 0) return 0;
    *number = qn_load_one((qn_dtype)c->shape.dtype, data);
    return 1;
}

/* What an attribute holds. 0 for one that no rule can speak of. */
static int attr_value(const qn_attr_info *a, const void *record, qn_rule_value *v) {
    const char *field = (const char *)record + a->offset;
    float f32;
    int32_t i32;
    v->is_list = a->kind == QN_ATTR_KIND_dims;
    switch (a->kind) {
    case QN_ATTR_KIND_f32:
        memcpy(&f32, field, sizeof f32);
        v->f = (double)f32;
        v->i = 0;
        return 1;
    case QN_ATTR_KIND_i64:
        memcpy(&v->i, field, sizeof v->i);
        v->f = (double)v->i;
        return 1;
    case QN_ATTR_KIND_dims: memcpy(&v->list, field, sizeof v->list); return 1;
    case QN_ATTR_KIND_i32:
    case QN_ATTR_KIND_bool:
    case QN_ATTR_KIND_dtype:
        memcpy(&i32, field, sizeof i32);
        v->i = i32;
        v->f = i32;
        return 1;
    default: return 0;
    }
}

static int same_value(const qn_rule_value *a, const qn_rule_value *b) {
    if (a->is_list != b->is_list) return 0;
    if (!a->is_list) return a->f == b->f && a->i == b->i && signbit(a->f) == signbit(b->f);
    return a->list.rank == b->list.rank && memcmp(a->list.d, b->list.d, sizeof *a->list.d * (size_t)a->list.rank) == 0;
}

static int bind_var(qn_match *m, int index, const qn_rule_value *v) {
    if (m->has_var >> index & 1) return same_value(&m->var[index], v);
    m->has_var |= 1u << index;
    m->var[index] = *v;
    return 1;
}

/* Every attribute: as the term says, or at its default. */
static int match_attributes(const qn_term *t, const qn_ir_node *n, qn_match *m) {
    const qn_op_info *info = qn_op_describe(n->op);
    for (int i = 0; i < info->n_attr; i++) {
        const qn_attr_info *a = &info->attr[i];
        const qn_expr *e = NULL;
        qn_rule_value have;
        for (int k = 0; k < t->n_attr && n->op == t->op; k++)
            if (t->attr[k].attr == i) e = &m->rule->expr[t->attr[k].expr];
        if (!e && !t->rest && (a->required || qn_ir_attr_differs(info, a, qn_pass_attr(n)))) return 0;
        if (!e) continue;
        if (!attr_value(a, qn_pass_attr(n), &have)) return 0;
        if (e->kind == QN_EXPR_VAR ? !bind_var(m, e->index, &have) : have.is_list || have.f != e->number) return 0;
    }
    return 1;
}

static int match_value(const qn_rule *rule, int term, qn_val v, int32_t reader, qn_match *m);

static int match_sources(const qn_term *t, const qn_ir_node *n, int32_t number, int swapped, qn_match *m) {
    const qn_val *src = qn_ir_sources(m->g, n);
    for (int i = 0; i < n->n_src || i < t->n_args; i++) {
        qn_val v = i < n->n_src ? src[swapped ? 1 - i : i] : QN_VAL_NONE;
        if (i >= t->n_args ? v != QN_VAL_NONE : !match_value(m->rule, t->arg[i], v, number, m)) return 0;
    }
    return 1;
}

/* A term that is written twice may be one node: that is noted once. */
static int take_node(qn_match *m, int32_t number, int tee) {
    for (int i = 0; i < m->n_nodes; i++) {
        if (m->node[i] != number) continue;
        m->tee[i] |= (uint8_t)tee;
        return 1;
    }
    if (m->n_nodes == QN_RULE_NODES) return 0;
    m->tee[m->n_nodes] = (uint8_t)tee;
    m->node[m->n_nodes++] = number;
    return 1;
}

static int match_node(const qn_rule *rule, int term, int32_t number, qn_match *m) {
    const qn_term *t = &rule->term[term];
    const qn_ir_node *n = &m->g->nodes.at[number];
    int general = n->op == t->op && (t->subop < 0 || n->subop == t->subop), seed = t->other >= 0 && n->op == t->other;
    if ((!general && !seed) || !take_node(m, number, t->tee & ((1 << n->n_out) - 1))) return 0;
    if (t->rest) m->rest = number;
    if (t->subop_var >= 0) {
        qn_rule_value v = {.f = n->subop, .i = n->subop};
        if (!bind_var(m, t->subop_var, &v)) return 0;
    }
    if (!match_attributes(t, n, m)) return 0;
    int nodes = m->n_nodes;
    uint32_t values = m->has_value, vars = m->has_var;
    uint8_t tee[QN_RULE_NODES];
    memcpy(tee, m->tee, sizeof tee);
    if (match_sources(t, n, number, 0, m)) return 1;
    if (!t->commutes || n->n_src != 2) return 0;
    memcpy(m->tee, tee, sizeof tee);
    m->n_nodes = nodes;
    m->has_value = values;
    m->has_var = vars;
    return match_sources(t, n, number, 1, m);
}

static int match_splat(const qn_term *t, qn_val v, qn_match *m) {
    qn_rule_value have = {0};
    if (!qn_pass_splat(m->g, v, &have.f)) return 0;
    if (t->index >= 0) return bind_var(m, t->index, &have);
    return have.f == t->number && signbit(have.f) == signbit(t->number);
}

static int match_value(const qn_rule *rule, int term, qn_val v, int32_t reader, qn_match *m) {
    const qn_term *t = &rule->term[term];
    if (t->kind == QN_TERM_ABSENT || v == QN_VAL_NONE) return (t->kind == QN_TERM_ABSENT || t->optional) && v == QN_VAL_NONE;
    if (t->kind == QN_TERM_SPLAT) return match_splat(t, v, m);
    if (t->kind == QN_TERM_NODE) {
        const qn_ir_value *made = &m->g->values.at[v];
        if (made->node < 0 || made->output != t->output) return 0;
        int single = m->g->nodes.at[made->node].n_out == 1;
        return (single ? !t->many || t->tee : t->many) && match_node(rule, term, made->node, m);
    }
    if (m->has_value >> t->index & 1) {
        if (reader < m->reader[t->index]) m->reader[t->index] = reader;
        return m->value[t->index] == v;
    }
    m->has_value |= 1u << t->index;
    m->value[t->index] = v;
    m->reader[t->index] = reader;
    return 1;
}

/* A root with several outputs needs a replacement with as many, none of them taken by a value from inside. */
static int outputs_fit(const qn_rule *rule, const qn_ir_node *n) {
    const qn_term *to = &rule->term[rule->replacement];
    if (n->n_out == 1) return 1;
    for (int i = 0; i < rule->n_terms; i++)
        if (rule->term[i].tee) return 0;
    return to->kind == QN_TERM_NODE && qn_op_describe(to->op)->n_dst == qn_op_describe(n->op)->n_dst;
}

int qn_rule_match(const qn_rule *rule, const qn_graph *g, int32_t node, qn_match *m) {
    m->rule = rule;
    m->g = g;
    m->has_value = m->has_var = 0;
    m->n_nodes = 0;
    m->rest = -1;
    memset(m->tee, 0, sizeof m->tee);
    return outputs_fit(rule, &g->nodes.at[node]) && match_node(rule, rule->pattern, node, m);
}

const char *qn_rule_refuted(const qn_match *m) {
    qn_rule_value ignored;
    for (int i = 0; i < m->rule->n_conditions; i++) {
        const qn_expr *e = &m->rule->expr[m->rule->condition[i]];
        if (!qn_rule_eval(m, m->rule->condition[i], &ignored)) return qn_rule_call_at(e->index)->about;
    }
    return NULL;
}
