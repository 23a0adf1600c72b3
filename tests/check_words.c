/* Programs of regions in cases: `code=(arith.mul/F/a/b,number/2.5,arith.add/F/0/1!)`. A step is its kind, with a sub-op behind
 * a dot; a dtype or a dtype variable; operands, letters for sources and numbers for steps; and ! when it is an output. A number
 * is its value. 0x... is a word as it stands, for programs that are no good. */
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "op/region.h"

static const char *text_of(qc_span s, char *text, size_t size) {
    if (s.n < 0 || (size_t)s.n >= size) return "";
    memcpy(text, s.at, (size_t)s.n);
    text[s.n] = 0;
    return text;
}

static int subop_of(qn_region_kind kind, const char *name) {
    static const struct {
        qn_region_kind kind;
        qn_op op;
    } lists[] = {{QN_REGION_unary, QN_OP_unary},     {QN_REGION_math, QN_OP_math},   {QN_REGION_arith, QN_OP_arith},
                 {QN_REGION_compare, QN_OP_compare}, {QN_REGION_logic, QN_OP_logic}, {QN_REGION_unary_back, QN_OP_unary},
                 {QN_REGION_math_back, QN_OP_math}};
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++)
        if (lists[i].kind == kind) return qn_subop_from_name((int)lists[i].op, name);
    return -1;
}

static const char *set_kind(qc_span text, qn_region_step *s) {
    char name[32];
    qc_span rest = text, word;
    qc_split(&rest, '.', &word);
    text_of(word, name, sizeof name);
    int k = 0;
    while (k < QN_REGION_KINDS && strcmp(name, qn_region_kind_name((qn_region_kind)k)) != 0) k++;
    if (k == QN_REGION_KINDS) return "no such kind of step";
    s->kind = (qn_region_kind)k;
    s->subop = rest.n > 0 ? subop_of(s->kind, text_of(rest, name, sizeof name)) : 0;
    return s->subop < 0 ? "no such sub-op of a step" : NULL;
}

static const char *set_step(const qc_case *c, const qc_draw *d, qc_span text, qn_code *list) {
    char name[32];
    qc_span rest = text, part;
    qn_region_step s = {.output = -1, .dtype = QN_DTYPE_F32};
    if (rest.n > 0 && rest.at[rest.n - 1] == '!') s.output = 0, rest.n--;
    if (!qc_split(&rest, '/', &part)) return "an empty step";
    const char *why = set_kind(part, &s);
    if (why) return why;
    if (s.kind == QN_REGION_number) {
        s.number = strtof(text_of(rest, name, sizeof name), NULL);
        return qn_region_append(list, &s) ? NULL : "too many steps";
    }
    if (!qc_split(&rest, '/', &part)) return "a step without a dtype";
    s.dtype = part.n == 1 ? (qn_dtype)qc_variable_dtype(c, d, part.at[0]) : qn_dtype_from_name(text_of(part, name, sizeof name));
    if (s.dtype == QN_DTYPE_NONE) return "no such dtype of a step";
    for (; s.n_operands < QN_REGION_MAX_OPERANDS && qc_split(&rest, '/', &part); s.n_operands++) {
        text_of(part, name, sizeof name);
        int source = name[0] >= 'a' && name[0] <= 'z';
        s.operand[s.n_operands] = source ? name[0] - 'a' : QN_REGION_STEP_BIT + atoi(name);
    }
    if (s.n_operands != qn_region_operands(s.kind)) return "not the operands this kind of step has";
    return qn_region_append(list, &s) ? NULL : "too many steps";
}

const char *qc_words(const qc_case *c, const qc_draw *d, qc_span text, qn_code *list) {
    char name[32];
    qc_span rest = text, part;
    if (text.n < 2 || text.at[0] != '(' || text.at[text.n - 1] != ')') return "a program needs ( )";
    rest = (qc_span){text.at + 1, text.n - 2};
    memset(list, 0, sizeof *list);
    while (qc_split(&rest, ',', &part)) {
        const char *why = NULL;
        if (part.n < 2 || part.at[1] != 'x') why = set_step(c, d, part, list);
        else if (list->count == QN_MAX_WORDS) why = "too many words";
        else list->w[list->count++] = (uint32_t)strtoul(text_of(part, name, sizeof name), NULL, 16);
        if (why) return why;
    }
    return NULL;
}
