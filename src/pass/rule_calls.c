/* Functions of rules: attributes of what a rule makes, and what must hold for it to be right. */
#include <math.h>

#include "op/integer.h"
#include "op/turbo.h"
#include "pass/terms.h"
#include "tensor/convert.h"

#define CALL(name) static int call_##name(const qn_match *m, const qn_rule_arg *arg, qn_rule_value *result)
#define UNUSED (void)m, (void)arg, (void)result

static int give(qn_rule_value *result, double f) {
    *result = (qn_rule_value){.f = f, .i = isfinite(f) && fabs(f) < 0x1p62 ? (int64_t)f : 0};
    return 1;
}

static const qn_ir_value *value_of(const qn_match *m, const qn_rule_arg *arg) { return &m->g->values.at[arg->value]; }
static uint32_t dtype_of(const qn_match *m, const qn_rule_arg *arg) { return value_of(m, arg)->shape.dtype; }
static const qn_ir_value *root_of(const qn_match *m) { return &m->g->values.at[m->g->nodes.at[m->node[0]].out]; }
static int is_f32(double v) { return (double)(float)v == v; }

/* ---- Values */

CALL(recip) {
    UNUSED;
    return arg[0].number.f != 0 && give(result, 1 / arg[0].number.f);
}

CALL(mul) {
    UNUSED;
    double v = arg[0].number.f * arg[1].number.f;
    return isfinite((float)v) && give(result, v);
}

CALL(add) {
    UNUSED;
    int64_t a = arg[0].number.i, b = arg[1].number.i, sum;
    if (qn_dim_is_symbolic(a) || qn_dim_is_symbolic(b) || qn_add_overflow(a, b, &sum)) return 0;
    *result = (qn_rule_value){.f = (double)sum, .i = sum};
    return 1;
}

CALL(scaled) {
    UNUSED;
    double v = arg[0].number.f * arg[1].number.f + arg[2].number.f;
    return isfinite((float)v) && give(result, v);
}

CALL(neg) {
    UNUSED;
    return give(result, -arg[0].number.f);
}

CALL(decay) {
    UNUSED;
    double k = arg[0].number.f, l = arg[1].number.f;
    return l < 0 && k >= 0 && k <= 1 && give(result, (1 - k) / -l);
}

CALL(not ) {
    UNUSED;
    return give(result, arg[0].number.i ? 0 : 1);
}

CALL(compose) {
    UNUSED;
    const qn_dims *p = &arg[0].number.list, *q = &arg[1].number.list;
    *result = (qn_rule_value){.is_list = 1};
    result->list.rank = p->rank;
    for (int i = 0; i < p->rank; i++) {
        if (p->rank != q->rank || q->d[i] < 0 || q->d[i] >= p->rank) return 0;
        result->list.d[i] = p->d[q->d[i]];
    }
    return 1;
}

CALL(swap) {
    UNUSED;
    int rank = value_of(m, arg)->shape.rank;
    *result = (qn_rule_value){.is_list = 1};
    result->list.rank = rank;
    for (int i = 0; i < rank; i++) result->list.d[i] = i < rank - 2 ? i : 2 * rank - 3 - i;
    return rank >= 2;
}

CALL(column) {
    UNUSED;
    const qn_shape *w = &value_of(m, arg)->shape;
    *result = (qn_rule_value){.is_list = 1};
    result->list.rank = w->rank;
    for (int i = 0; i < w->rank; i++) result->list.d[i] = i ? 1 : w->d[0];
    return 1;
}

/* What is added to a product may give another dtype than the product was rounded to: the fused op has one for both. */
CALL(product_dtype) {
    UNUSED;
    return m->n_nodes > 1 && give(result, m->g->values.at[m->g->nodes.at[m->node[1]].out].shape.dtype);
}

static int last_extent(const qn_match *m, const qn_rule_arg *arg, double *n) {
    const qn_shape *x = &value_of(m, arg)->shape;
    *n = (double)x->d[x->rank - 1];
    return !qn_dim_is_symbolic(x->d[x->rank - 1]) && *n > 0;
}

CALL(per_column) {
    double n;
    return last_extent(m, &arg[1], &n) && give(result, arg[0].number.f / n);
}

CALL(root_column) {
    double n;
    return last_extent(m, arg, &n) && give(result, 1 / sqrt(n));
}

/* ---- Conditions on numbers */

CALL(positive) {
    UNUSED;
    return arg[0].number.f > 0;
}

CALL(power_of_two) {
    UNUSED;
    int e;
    double c = arg[0].number.f;
    return isfinite(c) && fabs(frexp(c, &e)) == 0.5 && e > -100 &&
           e < 100; /* far from where a reciprocal or a product is rounded */
}

CALL(single) {
    UNUSED;
    return isfinite(arg[0].number.f) && is_f32(arg[0].number.f);
}

CALL(limits) {
    UNUSED;
    return arg[0].number.f <= arg[1].number.f && is_f32(arg[0].number.f) && is_f32(arg[1].number.f);
}

CALL(rounds) {
    UNUSED;
    int64_t f = arg[0].number.i;
    return f == QN_UNARY_floor || f == QN_UNARY_ceil || f == QN_UNARY_round || f == QN_UNARY_trunc;
}

CALL(plain) {
    UNUSED;
    return arg[0].number.i != QN_UNARY_xielu;
}

CALL(nonzero) {
    UNUSED;
    return arg[0].number.f != 0;
}

CALL(zero) {
    UNUSED;
    return arg[0].number.f == 0;
}

CALL(follows) {
    UNUSED;
    int64_t start = arg[0].number.i, length = arg[1].number.i, end;
    return !qn_dim_is_symbolic(start) && !qn_dim_is_symbolic(length) && !qn_add_overflow(start, length, &end) &&
           arg[2].number.i == end;
}

/* ---- Conditions on dtypes */

CALL(whole) {
    UNUSED;
    return qn_is_integer(dtype_of(m, arg));
}

CALL(real) {
    UNUSED;
    return qn_is_float(dtype_of(m, arg));
}

CALL(wide) {
    UNUSED;
    return dtype_of(m, arg) == QN_DTYPE_F32 || dtype_of(m, arg) == QN_DTYPE_F64;
}

CALL(has_dtype) {
    UNUSED;
    return dtype_of(m, &arg[0]) == (uint32_t)arg[1].number.i;
}

CALL(blocks) {
    UNUSED;
    return qn_is_block(dtype_of(m, arg));
}

CALL(block_dtype) {
    UNUSED;
    return qn_is_block((uint32_t)arg[0].number.i);
}

/* Bits that a dtype keeps of a number, and the range of its exponents; integers as if they were floats of their width. */
typedef struct precision {
    int digits, least, most;
} precision;

static precision precision_of(uint32_t dtype) {
    switch (dtype) {
    case QN_DTYPE_BOOL: return (precision){1, 0, 0};
    case QN_DTYPE_U8:
    case QN_DTYPE_I8: return (precision){8, 0, 7};
    case QN_DTYPE_I16: return (precision){16, 0, 15};
    case QN_DTYPE_I32:
    case QN_DTYPE_U32: return (precision){32, 0, 31};
    case QN_DTYPE_I64: return (precision){64, 0, 63};
    case QN_DTYPE_F16: return (precision){11, -24, 15};
    case QN_DTYPE_BF16: return (precision){8, -133, 127};
    case QN_DTYPE_F32: return (precision){24, -149, 127};
    case QN_DTYPE_F64: return (precision){53, -1074, 1023};
    default: return (precision){0, 0, 0};
    }
}

/* From floats and truths into wider floats: every number is there. */
CALL(exact_cast) {
    UNUSED;
    uint32_t from = dtype_of(m, &arg[0]), to = (uint32_t)arg[1].number.i;
    precision a = precision_of(from), b = precision_of(to);
    if (from == to) return 1;
    return a.digits > 0 && qn_is_float(to) && a.digits <= b.digits && a.least >= b.least && a.most <= b.most;
}

/* ---- Conditions on axes and shapes */

CALL(identity) {
    UNUSED;
    const qn_dims *p = &arg[0].number.list;
    for (int i = 0; i < p->rank; i++)
        if (p->d[i] != i) return 0;
    return 1;
}

CALL(swaps_last) {
    UNUSED;
    const qn_dims *p = &arg[0].number.list;
    for (int i = 0; i < p->rank; i++)
        if (p->d[i] != (i < p->rank - 2 ? i : 2 * p->rank - 3 - i)) return 0;
    return p->rank >= 2;
}

static int front_axis(int64_t axis, int rank) { return (int)(axis < 0 ? axis + rank : axis); }

CALL(begins) {
    UNUSED;
    const qn_shape *a = &value_of(m, &arg[0])->shape;
    int axis = front_axis(arg[1].number.i, a->rank);
    return axis >= 0 && axis < a->rank && a->rank == root_of(m)->shape.rank && a->d[axis] == arg[2].number.i;
}

CALL(matrix) {
    UNUSED;
    return value_of(m, arg)->shape.rank == 2;
}

CALL(has_rows) {
    UNUSED;
    return value_of(m, arg)->shape.rank >= 2;
}

CALL(row) {
    UNUSED;
    const qn_shape *b = &value_of(m, arg)->shape;
    for (int i = 0; i < b->rank - 1; i++)
        if (b->d[i] != 1) return 0;
    return 1;
}

CALL(full) {
    UNUSED;
    return qn_pass_same_shape(value_of(m, arg), root_of(m));
}

CALL(same_shape) {
    UNUSED;
    return qn_pass_same_shape(value_of(m, &arg[0]), value_of(m, &arg[1]));
}

CALL(last_axis) {
    UNUSED;
    int rank = value_of(m, &arg[1])->shape.rank;
    return front_axis(arg[0].number.i, rank) == rank - 1;
}

CALL(half) {
    UNUSED;
    const qn_shape *x = &value_of(m, &arg[1])->shape;
    int64_t n = arg[0].number.i;
    return n > 0 && !qn_dim_is_symbolic(n) && n <= INT64_MAX / 2 && 2 * n == x->d[x->rank - 1];
}

CALL(keeps_last) {
    UNUSED;
    const qn_dims *s = &arg[0].number.list;
    const qn_shape *x = &value_of(m, &arg[1])->shape;
    return s->rank > 0 && s->d[s->rank - 1] == x->d[x->rank - 1];
}

CALL(second_axis) {
    UNUSED;
    return arg[0].number.list.rank == 1 && arg[0].number.list.d[0] == 1;
}

CALL(only_last) {
    UNUSED;
    int rank = value_of(m, &arg[1])->shape.rank;
    return arg[0].number.list.rank == 1 && front_axis(arg[0].number.list.d[0], rank) == rank - 1;
}

CALL(column_of) {
    UNUSED;
    const qn_dims *s = &arg[0].number.list;
    const qn_shape *x = &value_of(m, &arg[1])->shape;
    for (int i = 0; i < s->rank && s->rank == x->rank; i++)
        if (s->d[i] != (i < s->rank - 1 ? x->d[i] : 1)) return 0;
    return s->rank == x->rank;
}

/* Whether a shape is that of x with an axis of 1 put in at `at`. */
static int has_one_more(const qn_dims *s, const qn_shape *x, int at) {
    if (s->rank != x->rank + 1) return 0;
    for (int i = 0; i < s->rank; i++)
        if (s->d[i] != (i < at ? x->d[i] : i == at ? 1 : x->d[i - 1])) return 0;
    return 1;
}

CALL(stood_up) {
    UNUSED;
    const qn_shape *x = &value_of(m, &arg[1])->shape;
    return has_one_more(&arg[0].number.list, x, x->rank);
}

CALL(lines_of) {
    UNUSED;
    const qn_shape *x = &value_of(m, &arg[1])->shape;
    return x->rank == 2 && has_one_more(&arg[0].number.list, x, 1);
}

CALL(one_token) {
    UNUSED;
    const qn_shape *ids = &value_of(m, arg)->shape;
    return ids->rank < 2 || ids->d[ids->rank - 2] == 1;
}

CALL(per_row) {
    UNUSED;
    const qn_shape *x = &value_of(m, &arg[1])->shape;
    double rows = 1;
    for (int i = 0; i < x->rank - 1; i++) {
        if (qn_dim_is_symbolic(x->d[i])) return 0;
        rows *= (double)x->d[i];
    }
    return fabs(arg[0].number.f * rows - 1) < 1e-6;
}

CALL(rest_of_one) {
    UNUSED;
    double p = arg[1].number.f;
    return p >= 0 && p < 1 && fabs(arg[0].number.f + p - 1) < 1e-7;
}

CALL(number_each) {
    UNUSED;
    const qn_shape *a = &value_of(m, &arg[0])->shape, *b = &value_of(m, &arg[1])->shape;
    return a->rank == 1 && b->rank == 1 && a->d[0] == 1 && b->d[0] == 1;
}

CALL(turning) {
    UNUSED;
    const qn_ir_value *s = value_of(m, arg);
    if (s->kind != QN_VALUE_CONSTANT || s->shape.rank != 1 || s->shape.d[0] > QN_TURBO_WIDTH) return 0;
    const char *data = m->g->constants.at[s->data].data;
    int64_t bytes = qn_dtype_bytes(s->shape.dtype);
    for (int64_t i = 0; i < s->shape.d[0]; i++)
        if (qn_load_one((qn_dtype)s->shape.dtype, data + i * bytes) != qn_op_turbo_sign(i)) return 0;
    return 1;
}

CALL(channels) {
    UNUSED;
    const qn_dims *s = &arg[0].number.list;
    const qn_shape *y = &root_of(m)->shape;
    int at = s->rank - (y->rank - 1); /* where [C, 1, ..] begins */
    if (at < 0 || at > 1 || y->rank < 3) return 0;
    for (int i = 0; i < s->rank; i++)
        if (s->d[i] != (i == at ? y->d[1] : 1)) return 0;
    return 1;
}

/* ---- The table */

static const qn_rule_call calls[] = {
#define QN_RULE_CALL(name, n_args, about) {#name, n_args, call_##name, about},
#include "pass/rule_calls.def"
#undef QN_RULE_CALL
};

enum { N_CALLS = sizeof calls / sizeof *calls };

int qn_rule_call_find(const char *name, size_t length) {
    for (int i = 0; i < N_CALLS; i++)
        if (strlen(calls[i].name) == length && memcmp(calls[i].name, name, length) == 0) return i;
    return -1;
}

const qn_rule_call *qn_rule_call_at(int index) { return &calls[index]; }

int qn_rule_eval(const qn_match *m, int expr, qn_rule_value *result) {
    const qn_expr *e = &m->rule->expr[expr];
    qn_rule_arg arg[QN_RULE_CALL_ARGS];
    if (e->kind == QN_EXPR_NUMBER) return give(result, e->number);
    if (e->kind == QN_EXPR_VALUE) return 0; /* values are arguments only */
    if (e->kind == QN_EXPR_VAR) {
        *result = m->var[e->index];
        return (int)(m->has_var >> e->index & 1);
    }
    for (int i = 0; i < e->n_args; i++) {
        const qn_expr *a = &m->rule->expr[e->arg[i]];
        arg[i].value = QN_VAL_NONE;
        if (a->kind == QN_EXPR_VALUE && !(m->has_value >> a->index & 1)) return 0;
        if (a->kind == QN_EXPR_VALUE) arg[i].value = m->value[a->index];
        else if (!qn_rule_eval(m, e->arg[i], &arg[i].number)) return 0;
    }
    return calls[e->index].fn(m, arg, result);
}
