/* All rows of tests/cases.def, parsed; and `qn_check list`. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

typedef struct row {
    qc_kind kind;
    int op;
    const char *sources, *attributes;
    int reason;
    const char *arg;
    double gold[5];
} row;

typedef struct set_row {
    const char *set, *sources, *attributes;
} set_row;

#define QN_CASE(op, sources, attributes) {QC_ACCEPT, QN_OP_##op, sources, attributes, 0, "", {0}},
#define QN_REJECT(op, sources, attributes, reason, arg) \
    {QC_REJECT, QN_OP_##op, sources, attributes, QN_REASON_##reason, arg, {0}},
#define QN_GOLD(op, sources, attributes, ...) {QC_GOLD, QN_OP_##op, sources, attributes, 0, "", {__VA_ARGS__}},
#define QN_SET(set, sources, attributes)
static const row rows[] = {
#include "cases.def"
};
#undef QN_CASE
#undef QN_REJECT
#undef QN_GOLD
#undef QN_SET

#define QN_CASE(op, sources, attributes)
#define QN_REJECT(op, sources, attributes, reason, arg)
#define QN_GOLD(op, sources, attributes, ...)
#define QN_SET(set, sources, attributes) {#set, sources, attributes},
static const set_row sets[] = {
#include "cases.def"
};
#undef QN_CASE
#undef QN_REJECT
#undef QN_GOLD
#undef QN_SET

enum { N_ROW = (int)(sizeof rows / sizeof rows[0]), N_SET = (int)(sizeof sets / sizeof sets[0]) };

static qc_case *cases;
static int n_cases;

static int add(const row *r) {
    qc_case *c = &cases[n_cases];
    memset(c, 0, sizeof *c);
    c->kind = r->kind;
    c->op = r->op;
    c->sources = r->sources;
    c->attributes = r->attributes;
    c->reason = r->reason;
    c->arg = r->arg;
    memcpy(c->gold, r->gold, sizeof c->gold);
    const char *why = qc_case_parse(c);
    if (why) {
        qc_built broken = {.c = c, .trouble = why};
        qc_fail(&broken, "the row cannot be read: %s", why);
        return 1;
    }
    n_cases++;
    return 0;
}

int qc_cases_load(void) {
    int bad = 0;
    cases = calloc((size_t)N_ROW + (size_t)N_SET * QN_OP_COUNT, sizeof *cases);
    if (!cases) return 1;
    for (int i = 0; i < N_ROW; i++) bad += add(&rows[i]);
    for (int op = 0; op < QN_OP_COUNT; op++)
        for (int i = 0; i < N_SET; i++)
            if (strcmp(qn_op_describe(op)->cases, sets[i].set) == 0)
                bad += add(&(row){QC_ACCEPT, op, sets[i].sources, sets[i].attributes, 0, "", {0}});
    return bad;
}

int qc_cases_count(void) { return n_cases; }
const qc_case *qc_cases_at(int i) { return &cases[i]; }

const qc_case *qc_cases_accept(int op, int i) {
    for (int k = 0; k < n_cases; k++)
        if (cases[k].op == op && cases[k].kind == QC_ACCEPT && i-- == 0) return &cases[k];
    return NULL;
}

int qc_mode_list(void) {
    int missing = 0, totals[3] = {0};
    printf("%-26s %-12s %7s %7s %5s %6s %7s\n", "op", "family", "accept", "reject", "gold", "attrs", "subops");
    for (int op = 0; op < QN_OP_COUNT; op++) {
        const qn_op_info *info = qn_op_describe(op);
        if (qc_set.op >= 0 && qc_set.op != op) continue;
        int n[3] = {0};
        for (int k = 0; k < n_cases; k++)
            if (cases[k].op == op) n[cases[k].kind]++;
        for (int k = 0; k < 3; k++) totals[k] += n[k];
        printf("%-26s %-12s %7d %7d %5d %6d %7d%s\n", info->name, info->family, n[QC_ACCEPT], n[QC_REJECT], n[QC_GOLD],
               info->n_attr, qn_subop_count(op),
               n[QC_ACCEPT]   ? ""
               : info->n_body ? "   runs in a plan only"
                              : "   no accepting case");
        missing += !n[QC_ACCEPT] && !info->n_body;
        for (int k = 0; qc_set.verbose && k < n_cases; k++)
            if (cases[k].op == op)
                printf("    %s \"%s\" \"%s\"\n",
                       cases[k].kind == QC_ACCEPT ? "case"
                       : cases[k].kind == QC_GOLD ? "gold"
                                                  : "reject",
                       cases[k].sources, cases[k].attributes);
    }
    printf("%d ops, %d accepting cases, %d rejects beside the ones derived from the table, %d golden rows\n", (int)QN_OP_COUNT,
           totals[QC_ACCEPT], totals[QC_REJECT], totals[QC_GOLD]);
    if (missing) printf("%d ops have no accepting case\n", missing);
    return missing != 0 || qc_failures() != 0;
}
