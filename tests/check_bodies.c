/* One of cond, while_loop and scan_loop around random bodies. */
#include "check_bodies.h"

#include <stdio.h>
#include <string.h>

#include "tensor/convert.h"

typedef struct body {
    qn_graph *g;
    qn_val in[8], made[24];
    int n_in, n;
} body;

static qn_value_info info_of(const qn_graph *g, qn_val v) {
    qn_value_info info = {.size = sizeof info};
    qn_graph_value(g, v, &info);
    return info;
}

static qn_val number(qn_graph *g, qn_dtype dtype, double v) {
    char bytes[8];
    int64_t one = 1;
    qn_store_one(dtype, bytes, v);
    return qn_graph_constant(g, dtype, 1, &one, bytes, (size_t)qn_dtype_describe(dtype)->bytes);
}

/* One more input, like a value of the graph around; `sliced`: without its first axis. */
static qn_val take(body *b, const qn_graph *around, qn_val like, int sliced) {
    static const char *const names[] = {"in0", "in1", "in2", "in3", "in4", "in5", "in6", "in7"};
    qn_value_info info = info_of(around, like);
    qn_val v = qn_graph_input(b->g, names[b->n_in], info.dtype, info.rank - sliced, info.shape + sliced);
    return b->in[b->n_in++] = v;
}

/* A few smooth nodes over those values, all of one shape; the last one is bounded. */
static qn_val some_nodes(body *b, qc_rng *rng, int n, const qn_val *from) {
    static const qn_unary smooth[] = {QN_UNARY_tanh, QN_UNARY_sigmoid, QN_UNARY_silu, QN_UNARY_neg};
    static const qn_op binary[] = {QN_OP_add, QN_OP_sub, QN_OP_mul};
    memcpy(b->made, from, sizeof *from * (size_t)n);
    b->n = n;
    for (int i = 1 + (int)qc_below(rng, 5); i > 0; i--) {
        qn_val x = b->made[qc_below(rng, b->n)], y = b->made[qc_below(rng, b->n)];
        b->made[b->n++] = qc_below(rng, 2) ? qn_graph_op(b->g, QN_OP_unary, (int)smooth[qc_below(rng, 4)], 1, &x, NULL)
                                           : qn_graph_op(b->g, (int)binary[qc_below(rng, 3)], 0, 2, (qn_val[]){x, y}, NULL);
    }
    return qn_graph_op(b->g, QN_OP_unary, QN_UNARY_tanh, 1, &b->made[b->n - 1], NULL);
}

static qn_val dense_layer(body *b, qn_val x, qn_val w, qn_val bias) {
    x = qn_graph_op(b->g, QN_OP_matmul, 0, 2, (qn_val[]){x, w}, NULL);
    x = qn_graph_op(b->g, QN_OP_arith, QN_ARITH_add, 2, (qn_val[]){x, bias}, NULL);
    return qn_graph_op(b->g, QN_OP_unary, QN_UNARY_gelu, 1, &x, NULL);
}

static qn_val branch(qn_graph *g, qc_rng *rng, qn_val a, qn_val b) {
    body of[2] = {{0}, {0}};
    qn_attr_cond at = qn_attr_cond_default();
    qn_dtype dtype = info_of(g, a).dtype;
    qn_val sum = qn_graph_op(g, QN_OP_sum, 0, 1, &a, NULL), y = QN_VAL_NONE;
    /* sums of norms are zero up to rounding: what decides lies beside everything that is likely */
    qn_val pred = qn_graph_op(g, QN_OP_compare, QN_COMPARE_gt, 2, (qn_val[]){sum, number(g, dtype, 0.3671875)}, NULL);
    for (int i = 0; i < 2; i++) {
        if (qn_graph_create(0, &of[i].g) != QN_OK) continue;
        take(&of[i], g, a, 0);
        take(&of[i], g, b, 0);
        qn_graph_output(of[i].g, some_nodes(&of[i], rng, 2, of[i].in), "y");
    }
    at.then_body = of[0].g;
    at.else_body = of[1].g;
    qn_graph_apply(g, QN_OP_cond, 0, 3, (qn_val[]){pred, a, b}, &at, 1, &y);
    for (int i = 0; i < 2; i++) qn_graph_destroy(of[i].g);
    return y;
}

/* Carries a value and a count; the count alone decides. */
static qn_val counted_loop(qn_graph *g, qc_rng *rng, qn_val a, qn_val b) {
    body test = {0}, round = {0};
    qn_attr_while_loop at = qn_attr_while_loop_default();
    qn_attr_scale plus_one = qn_attr_scale_default();
    qn_dtype dtype = info_of(g, a).dtype;
    qn_val count = number(g, dtype, 0), src[3] = {a, count, b}, out[2] = {QN_VAL_NONE, QN_VAL_NONE};
    plus_one.b = 1;
    if (qn_graph_create(0, &test.g) != QN_OK || qn_graph_create(0, &round.g) != QN_OK) return QN_VAL_NONE;
    for (int i = 0; i < 3; i++) {
        take(&test, g, src[i], 0);
        take(&round, g, src[i], 0);
    }
    double trips = (double)qc_below(rng, 4);
    qn_val less[2] = {test.in[1], number(test.g, dtype, trips)};
    qn_graph_output(test.g, qn_graph_op(test.g, QN_OP_compare, QN_COMPARE_lt, 2, less, NULL), "on");
    qn_graph_output(round.g, some_nodes(&round, rng, 2, (qn_val[]){round.in[0], round.in[2]}), "y");
    qn_graph_output(round.g, qn_graph_op(round.g, QN_OP_scale, 0, 1, &round.in[1], &plus_one), "n");
    at.max_trips = 1 + qc_below(rng, 4);
    at.test = test.g;
    at.body = round.g;
    qn_graph_apply(g, QN_OP_while_loop, 0, 3, src, &at, 2, out);
    qn_graph_destroy(test.g);
    qn_graph_destroy(round.g);
    return out[0];
}

/* Over the slices of b, carrying the first slice of a; what comes out is stacked. */
static qn_val scan(qn_graph *g, qc_rng *rng, qn_val a, qn_val b, qc_layer layer) {
    body round = {0};
    qn_value_info info = info_of(g, a);
    qn_attr_narrow first = qn_attr_narrow_default();
    qn_attr_reshape flat = qn_attr_reshape_default();
    qn_attr_scan_loop at = qn_attr_scan_loop_default();
    first.axis = 0;
    first.length = 1;
    flat.shape.rank = info.rank - 1;
    memcpy(flat.shape.d, info.shape + 1, sizeof *info.shape * (size_t)(info.rank - 1));
    qn_val carry = qn_graph_op(g, QN_OP_narrow, 0, 1, &a, &first), out[2] = {QN_VAL_NONE, QN_VAL_NONE};
    carry = qn_graph_op(g, QN_OP_reshape, 0, 1, &carry, &flat);
    qn_val src[4] = {carry, b, layer.w, layer.bias};
    if (qn_graph_create(0, &round.g) != QN_OK) return QN_VAL_NONE;
    take(&round, g, b, 1);
    take(&round, g, b, 1);
    int with = layer.w != QN_VAL_NONE;
    if (with) take(&round, g, layer.w, 0);
    if (with) take(&round, g, layer.bias, 0);
    qn_val next = some_nodes(&round, rng, 2, round.in), y = some_nodes(&round, rng, 2, (qn_val[]){next, round.in[1]});
    qn_graph_output(round.g, with ? dense_layer(&round, next, round.in[2], round.in[3]) : next, "carry");
    qn_graph_output(round.g, y, "y");
    at.n_carry = at.n_xs = 1;
    at.reverse = (int32_t)qc_below(rng, 2);
    at.body = round.g;
    qn_graph_apply(g, QN_OP_scan_loop, 0, with ? 4 : 2, src, &at, 2, out);
    qn_graph_destroy(round.g);
    return out[1];
}

/* ---- The delta rule, step by step */

static qn_val shaped(qn_graph *g, qn_val v, int rank, const int64_t *d) {
    qn_attr_reshape at = qn_attr_reshape_default();
    at.shape.rank = rank;
    memcpy(at.shape.d, d, sizeof *d * (size_t)rank);
    return qn_graph_op(g, QN_OP_reshape, 0, 1, &v, &at);
}

static qn_val arith(qn_graph *g, qn_arith f, qn_val a, qn_val b) {
    return qn_graph_op(g, QN_OP_arith, (int)f, 2, (qn_val[]){a, b}, NULL);
}

/* One number of each row: the first of the last axis, through f. */
static qn_val column_of(qn_graph *g, qn_val x, qn_unary f) {
    qn_value_info info = info_of(g, x);
    qn_attr_narrow at = qn_attr_narrow_default();
    at.length = 1;
    x = qn_graph_op(g, QN_OP_narrow, 0, 1, &x, &at);
    x = qn_graph_op(g, QN_OP_unary, (int)f, 1, &x, NULL);
    x = qn_graph_op(g, QN_OP_cont, 0, 1, &x, NULL);
    return shaped(g, x, info.rank - 1, info.shape);
}

/* m [H, D, D] times a vector [H, D] for each head, standing up. */
static qn_val read_by(qn_graph *g, int sums, qn_val m, qn_val row) {
    qn_attr_matmul at = qn_attr_matmul_default();
    at.transpose_b = 1;
    if (!sums) return qn_graph_op(g, QN_OP_matmul, 0, 2, (qn_val[]){m, row}, &at);
    qn_val each = arith(g, QN_ARITH_mul, m, row);
    return qn_graph_op(g, QN_OP_sum_rows, 0, 1, &each, NULL);
}

/* in: state, q, k, v, log decay, beta. */
static void delta_step(body *b, int sums, int64_t h, int64_t d) {
    qn_graph *g = b->g;
    const int64_t one[3] = {h, 1, 1}, row[3] = {h, 1, d}, column[3] = {h, d, 1}, flat[2] = {h, d};
    qn_val decay = qn_graph_op(g, QN_OP_unary, QN_UNARY_exp, 1, &b->in[4], NULL), k = shaped(g, b->in[2], 3, row);
    qn_val kept = arith(g, QN_ARITH_mul, b->in[0], shaped(g, decay, 3, one));
    qn_val fresh = arith(g, QN_ARITH_sub, shaped(g, b->in[3], 3, column), read_by(g, sums, kept, k));
    fresh = arith(g, QN_ARITH_mul, fresh, shaped(g, b->in[5], 3, one));
    qn_val more = sums ? arith(g, QN_ARITH_mul, fresh, k) : qn_graph_op(g, QN_OP_matmul, 0, 2, (qn_val[]){fresh, k}, NULL);
    qn_val next = arith(g, QN_ARITH_add, kept, more), y = read_by(g, sums, next, shaped(g, b->in[1], 3, row));
    qn_graph_output(g, next, "s");
    qn_graph_output(g, shaped(g, y, 2, flat), "y");
}

qn_val qc_delta_scan_add(qn_graph *g, qc_rng *rng, qn_val x, qn_val y) {
    qn_value_info info = info_of(g, x);
    int64_t h = info.shape[1], d = info.shape[2], row[3] = {h, 1, d}, column[3] = {h, d, 1}, slice[2] = {h, d};
    qn_attr_narrow first = qn_attr_narrow_default();
    qn_attr_scan_loop at = qn_attr_scan_loop_default();
    body b = {0};
    first.axis = 0;
    first.length = 1;
    x = qn_graph_op(g, QN_OP_l2_norm, 0, 1, &x, NULL);
    y = qn_graph_op(g, QN_OP_unary, QN_UNARY_tanh, 1, &y, NULL);
    qn_val start = shaped(g, qn_graph_op(g, QN_OP_narrow, 0, 1, &y, &first), 2, slice);
    qn_val state = arith(g, QN_ARITH_mul, shaped(g, start, 3, column), shaped(g, start, 3, row)),
           out[2] = {QN_VAL_NONE, QN_VAL_NONE};
    qn_val decay = column_of(g, y, QN_UNARY_abs), src[6] = {state, y, x, y, QN_VAL_NONE, column_of(g, y, QN_UNARY_sigmoid)};
    src[4] = qn_graph_op(g, QN_OP_unary, QN_UNARY_neg, 1, &decay, NULL);
    if (qn_graph_create(0, &b.g) != QN_OK) return QN_VAL_NONE;
    for (int i = 0; i < 6; i++) take(&b, g, src[i], i > 0);
    delta_step(&b, (int)qc_below(rng, 2), h, d);
    at.n_carry = 1;
    at.n_xs = 5;
    at.body = b.g;
    qn_graph_apply(g, QN_OP_scan_loop, 0, 6, src, &at, 2, out);
    qn_graph_destroy(b.g);
    return out[1];
}

static int made[3];

qn_val qc_bodies_add(qn_graph *g, qc_rng *rng, qn_val a, qn_val b, qc_layer layer) {
    a = qn_graph_op(g, QN_OP_cont, 0, 1, &a, NULL); /* bodies read their sources where they lie, without gaps */
    b = qn_graph_op(g, QN_OP_cont, 0, 1, &b, NULL);
    if (a == QN_VAL_NONE || b == QN_VAL_NONE) return QN_VAL_NONE;
    int kind = (int)qc_below(rng, info_of(g, a).rank > 1 ? 3 : 2);
    made[kind]++;
    switch (kind) {
    case 0: return branch(g, rng, a, b);
    case 1: return counted_loop(g, rng, a, b);
    default: return scan(g, rng, a, b, layer);
    }
}

void qc_bodies_end(void) {
    static const char *const kinds[] = {"cond", "while_loop", "scan_loop"};
    for (int i = 0; i < 3; i++) {
        if (qc_set.verbose) printf("%-10s %d times\n", kinds[i], made[i]);
        if (made[i]) qc_pass();
        else qc_fail(NULL, "no random graph had a %s", kinds[i]);
    }
}
