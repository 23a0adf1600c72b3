/* The tables of rules, and sets made of them. */
#include "pass/rules.h"

static const qn_rule_row rewrites[] = {
#define QN_RULE(name, when, pattern, replacement, conditions) {#name, QN_RULE_##when, pattern, replacement, conditions},
#include "pass/rewrites.def"
#undef QN_RULE
};

static const qn_rule_row fusions[] = {
#define QN_RULE(name, when, pattern, replacement, conditions) {#name, QN_RULE_##when, pattern, replacement, conditions},
#include "pass/fusions.def"
#undef QN_RULE
};

const qn_rule_table qn_rewrites = {"rewrite", sizeof rewrites / sizeof *rewrites, rewrites};
const qn_rule_table qn_fusions = {"fuse", sizeof fusions / sizeof *fusions, fusions};

/* Ops at which a rule's pattern may have its root: one, or two for + - * /. */
static int roots(const qn_rule *r, int *ops) {
    const qn_term *t = &r->term[r->pattern];
    ops[0] = t->op;
    ops[1] = t->other;
    return t->other >= 0 ? 2 : 1;
}

qn_status qn_rule_set_make(const qn_rule_table *table, const qn_pass_options *options, qn_arena *arena, qn_rule_set *set,
                           qn_error *error) {
    char why[200];
    int ops[2], at[QN_OP_COUNT] = {0};
    memset(set, 0, sizeof *set);
    set->rule = qn_arena_alloc(arena, (size_t)table->n, sizeof *set->rule);
    set->by_op = qn_arena_alloc(arena, 2 * (size_t)table->n, sizeof *set->by_op);
    if (!set->rule || !set->by_op) return qn_error_set(error, QN_NO_MEMORY, "no memory for %d rules", table->n);
    for (int i = 0; i < table->n; i++) {
        const qn_rule_row *row = &table->row[i];
        qn_rule *rule = &set->rule[set->n];
        if (qn_pass_listed(options->skip, row->name)) continue;
        if (row->when == QN_RULE_FAST && !(options->flags & QN_PASS_FAST)) continue;
        if (!qn_rule_parse(row->name, row->when, row->pattern, row->replacement, row->conditions, rule, why, sizeof why))
            return qn_error_set(error, QN_UNEXPECTED, "rule %s: %s", row->name, why);
        for (int k = roots(rule, ops); k > 0; k--) set->first[ops[k - 1] + 1]++;
        set->n++;
    }
    for (int op = 0; op < QN_OP_COUNT; op++) set->first[op + 1] += set->first[op];
    for (int i = 0; i < set->n; i++)
        for (int k = roots(&set->rule[i], ops); k > 0; k--) set->by_op[set->first[ops[k - 1]] + at[ops[k - 1]]++] = i;
    return QN_OK;
}
