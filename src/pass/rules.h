/* Sets of rules, read from a table and found by the op at the root. */
#ifndef QN_PASS_RULES_H
#define QN_PASS_RULES_H

#include "pass/terms.h"

enum { QN_RULE_EXACT, QN_RULE_SOLE, QN_RULE_FAST };

typedef struct qn_rule_row {
    const char *name;
    int when;
    const char *pattern, *replacement, *conditions;
} qn_rule_row;

typedef struct qn_rule_table {
    const char *pass;
    int n;
    const qn_rule_row *row;
} qn_rule_table;

extern const qn_rule_table qn_rewrites, qn_fusions;

typedef struct qn_rule_set {
    int n;
    qn_rule *rule;
    int first[QN_OP_COUNT + 1]; /* where the rules for an op begin in `by_op` */
    int *by_op;                 /* numbers of rules, in the order of the table */
} qn_rule_set;

/* Rules of a table but those to be skipped, and without `fast` those that change results. Lives in the arena. */
qn_status qn_rule_set_make(const qn_rule_table *table, const qn_pass_options *options, qn_arena *arena, qn_rule_set *set,
                           qn_error *error);

#endif
