/* The builder: symbols and what shape rules make of them, binding, gradients, errors that stick, limits that hold. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "ir/graph.h"

#include "cmocka_setup.h"

static qn_graph *new_graph(void) {
    qn_graph *g;
    assert_int_equal(qn_graph_create(0, &g), QN_OK);
    return g;
}

static qn_val op1(qn_graph *g, int op, int subop, qn_val a, const void *attr) { return qn_graph_op(g, op, subop, 1, &a, attr); }
static qn_val op2(qn_graph *g, int op, qn_val a, qn_val b, const void *attr) {
    qn_val src[2] = {a, b};
    return qn_graph_op(g, op, 0, 2, src, attr);
}

static qn_val input(qn_graph *g, const char *name, int rank, int64_t a, int64_t b, int64_t c, int64_t d) {
    int64_t shape[4] = {a, b, c, d};
    return qn_graph_input(g, name, QN_DTYPE_F32, rank, shape);
}

static qn_val param(qn_graph *g, const char *name, int rank, int64_t a, int64_t b) {
    int64_t shape[2] = {a, b};
    return qn_graph_param(g, name, QN_DTYPE_F32, rank, shape);
}

/* The shape of a value, extents separated by a blank and a comma. */
static void assert_shape(const qn_graph *g, qn_val v, const char *expected) {
    qn_value_info info = {.size = sizeof info};
    char text[200] = "", one[100];
    qn_error error;
    if (qn_graph_error(g, &error) != QN_OK) fail_msg("%s", error.text);
    assert_int_equal(qn_graph_value(g, v, &info), QN_OK);
    for (int k = 0; k < info.rank; k++) {
        qn_graph_dim_format(g, info.shape[k], one, sizeof one);
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s%s", k ? ", " : "", one);
    }
    assert_string_equal(text, expected);
}

static void assert_error(qn_graph *g, qn_status status, const char *sentence) {
    qn_error error;
    assert_int_equal(qn_graph_error(g, &error), status);
    assert_string_equal(error.text, sentence);
    qn_graph_destroy(g);
}

static void assert_dim(const qn_graph *g, int64_t dim, const char *expected) {
    char text[200];
    assert_int_equal(qn_graph_dim_format(g, dim, text, sizeof text), strlen(expected));
    assert_string_equal(text, expected);
}

/* ---- Dims */

static void dims_have_one_form(void **state) {
    (void)state;
    qn_graph *g = new_graph();
    int64_t b = qn_graph_symbol(g, "b", 1, 8, 1), s = qn_graph_symbol(g, "s", 4, 64, 4),
            space = qn_graph_symbol(g, "a \"b\"", 1, 2, 1);
    assert_true(qn_graph_symbol(g, "b", 1, 8, 1) == b);
    assert_dim(g, qn_graph_dim(g, '+', 1, b), "b + 1");
    assert_dim(g, qn_graph_dim(g, '*', b, 3), "3*b");
    assert_dim(g, qn_graph_dim(g, '*', 2, qn_graph_dim(g, '*', b, 3)), "6*b");
    assert_dim(g, qn_graph_dim(g, '+', 2, qn_graph_dim(g, '+', 3, b)), "b + 5");
    assert_dim(g, qn_graph_dim(g, '+', b, 0), "b");
    assert_dim(g, qn_graph_dim(g, '*', 1, b), "b");
    assert_dim(g, qn_graph_dim(g, '/', b, 1), "b");
    assert_dim(g, qn_graph_dim(g, '+', 3, 4), "7");
    assert_dim(g, qn_graph_dim(g, '*', qn_graph_dim(g, '+', b, 1), s), "(b + 1)*s");
    assert_dim(g, qn_graph_dim(g, '/', qn_graph_dim(g, '*', b, s), 4), "b*s/4");
    assert_dim(g, qn_graph_dim(g, '*', b, qn_graph_dim(g, '/', s, 4)), "b*(s/4)");
    assert_dim(g, qn_graph_dim(g, '/', s, qn_graph_dim(g, '*', 2, b)), "s/(2*b)");
    assert_dim(g, qn_graph_dim(g, '+', b, qn_graph_dim(g, '+', s, s)), "b + (s + s)");
    assert_dim(g, qn_graph_dim(g, '-', s, 2), "s - 2");
    assert_dim(g, qn_graph_dim(g, '+', qn_graph_dim(g, '-', s, 2), 5), "s + 3");
    assert_dim(g, qn_graph_dim(g, '-', qn_graph_dim(g, '+', s, 2), 2), "s");
    assert_dim(g, qn_graph_dim(g, '-', qn_graph_dim(g, '-', s, 2), 3), "s - 5");
    assert_dim(g, qn_graph_dim(g, '-', s, s), "0");
    assert_dim(g, qn_graph_dim(g, '-', 9, 4), "5");
    assert_dim(g, qn_graph_dim(g, '-', s, qn_graph_dim(g, '+', b, 1)), "s - (b + 1)");
    assert_dim(g, qn_graph_dim(g, '-', qn_graph_dim(g, '+', s, 1), b), "s + 1 - b");
    assert_dim(g, qn_graph_dim(g, '*', 2, qn_graph_dim(g, '-', s, 1)), "2*(s - 1)");
    assert_dim(g, space, "\"a \\\"b\\\"\"");
    int64_t at[3] = {2, 16, 1};
    assert_true(qn_graph_dim_value(g, qn_graph_dim(g, '*', b, s), at) == 32);
    assert_true(qn_graph_dim_value(g, qn_graph_dim(g, '*', b, s), NULL) == 512);
    int64_t below = qn_graph_dim(g, '-', s, 8); /* s - 8 + b may be a number where s - 8 is none */
    assert_true(qn_graph_dim_value(g, below, (int64_t[]){8, 4, 1}) == -1);
    assert_true(qn_graph_dim_value(g, qn_graph_dim(g, '+', below, b), (int64_t[]){8, 4, 1}) == 4);
    assert_true(qn_graph_dim_value(g, QN_DIM_BASE + 1000, NULL) == -1);
    char small[4];
    assert_int_equal(qn_graph_dim_format(g, qn_graph_dim(g, '+', 1, b), small, sizeof small), 5);
    assert_string_equal(small, "b +");
    assert_int_equal(qn_graph_error(g, NULL), QN_OK);
    qn_graph_destroy(g);
}

static void dims_that_are_none_fail(void **state) {
    (void)state;
    qn_graph *g = new_graph();
    int64_t b = qn_graph_symbol(g, "b", 1, 7, 1);
    assert_true(qn_graph_dim(g, '/', b, 2) == -1);
    assert_error(g, QN_INVALID, "an extent overflows or does not divide: operation '/'");
    g = new_graph();
    qn_graph_dim(g, '*', INT64_MAX, 2);
    assert_error(g, QN_INVALID, "an extent overflows or does not divide: operation '*'");
    g = new_graph();
    qn_graph_dim(g, '-', 2, qn_graph_symbol(g, "b", 1, 8, 1));
    assert_error(g, QN_INVALID, "an extent is negative: operation '-'");
    g = new_graph();
    qn_graph_dim(g, '+', -3, 2);
    assert_error(g, QN_INVALID, "an extent of -3 + 2 is not one");
    g = new_graph();
    qn_graph_symbol(g, "b", 1, 8, 1);
    qn_graph_symbol(g, "b", 1, 9, 1);
    assert_error(g, QN_INVALID, "symbol 'b' was declared with other bounds before");
}

/* Doubling needs no more than sixty calls to make an expression that takes for ever to write out. */
static void dims_stay_small(void **state) {
    (void)state;
    qn_graph *g = new_graph();
    int64_t d = qn_graph_symbol(g, "z", 0, 0, 1);
    for (int i = 0; i < 100; i++) d = qn_graph_dim(g, '+', d, d);
    assert_error(g, QN_INVALID, "an extent of 128 terms is too long, 64 are the most");
}

/* ---- Symbolic shapes */

/* A file may bring very many of either; looking at all that came before each of them took minutes for what takes a part of a second. */
static void the_last_of_many_costs_what_the_first_did(void **state) {
    (void)state;
    enum { DIMS = 200000, UPDATES = 100000, SECONDS = 10 };
    qn_graph *g = new_graph();
    clock_t start = clock();
    int64_t n = qn_graph_symbol(g, "n", 1, 64, 1), first = qn_graph_dim(g, '+', n, 1);
    for (int i = 2; i < DIMS; i++) qn_graph_dim(g, '+', n, i);
    assert_int_equal(qn_graph_dim(g, '+', n, 1), first);
    qn_val w = param(g, "w", 1, 4, 0), x = input(g, "x", 1, 4, 0, 0, 0);
    for (int i = 0; i < UPDATES; i++) w = op2(g, QN_OP_accumulate, w, x, NULL);
    assert_int_equal(qn_graph_error(g, NULL), QN_OK);
    assert_true((clock() - start) / CLOCKS_PER_SEC < SECONDS);
    qn_graph_destroy(g);
}

static void shapes_are_explained_in_symbols(void **state) {
    (void)state;
    qn_graph *g = new_graph();
    int64_t b = qn_graph_symbol(g, "b", 1, 8, 1), s = qn_graph_symbol(g, "s", 4, 64, 4), r = qn_graph_symbol(g, "r", 0, 5, 1);
    qn_val x = input(g, "x", 3, b, s, 12, 0), y = input(g, "y", 3, b, r, 12, 0);
    qn_attr_reshape flat = qn_attr_reshape_default();
    flat.shape = (qn_dims){2, 0, {qn_graph_dim(g, '*', b, s), 12}};
    assert_shape(g, op1(g, QN_OP_reshape, 0, x, &flat), "b*s, 12");
    flat.shape = (qn_dims){2, 0, {b, qn_graph_dim(g, '*', 12, s)}};
    assert_shape(g, op1(g, QN_OP_reshape, 0, x, &flat), "b, 12*s");
    qn_attr_concat along = qn_attr_concat_default();
    along.axis = 1;
    qn_val both = op2(g, QN_OP_concat, x, y, &along);
    assert_shape(g, both, "b, s + r, 12");
    assert_shape(g, op2(g, QN_OP_concat, both, x, &along), "b, 2*s + r, 12");
    qn_attr_repeat tile = qn_attr_repeat_default();
    tile.shape = (qn_dims){3, 0, {qn_graph_dim(g, '*', 2, b), s, 12}};
    assert_shape(g, op1(g, QN_OP_repeat, 0, x, &tile), "2*b, s, 12");
    qn_val image = input(g, "image", 4, b, 3, s, s), kernel = qn_graph_param(g, "k", QN_DTYPE_F32, 4, (int64_t[]){8, 3, 3, 3});
    qn_attr_conv_2d conv = qn_attr_conv_2d_default();
    assert_shape(g, op2(g, QN_OP_conv_2d, kernel, image, &conv), "b, 8, s - 2, s - 2");
    conv.p0 = conv.p1 = 1;
    assert_shape(g, op2(g, QN_OP_conv_2d, kernel, image, &conv), "b, 8, s, s");
    conv.s0 = conv.s1 = 2;
    qn_val half = op2(g, QN_OP_conv_2d, kernel, image, &conv);
    assert_shape(g, half, "b, 8, s/2, s/2");
    flat.shape = (qn_dims){2, 0, {b, qn_graph_dim(g, '*', 2, qn_graph_dim(g, '*', s, s))}};
    assert_shape(g, op1(g, QN_OP_reshape, 0, half, &flat), "b, 2*(s*s)");
    assert_int_equal(qn_graph_verify(g, NULL, NULL), QN_OK);
    qn_graph_destroy(g);
}

/* Two neighbouring extents look like a line; a rounded quotient is none. */
static void a_rounded_quotient_is_not_taken_for_a_line(void **state) {
    (void)state;
    qn_graph *g = new_graph();
    int64_t s = qn_graph_symbol(g, "s", 1, 9, 1);
    qn_val x = input(g, "x", 4, 1, 1, 4, s);
    qn_attr_pool_2d pool = qn_attr_pool_2d_default();
    pool.k0 = pool.k1 = 1;
    pool.s0 = 2;
    pool.p0 = 0;
    qn_val y = op1(g, QN_OP_pool_2d, 0, x, &pool);
    assert_shape(g, y, "1, 1, 4, 5");
    qn_graph *bound;
    qn_error error;
    int64_t at = 4;
    assert_int_equal(qn_graph_bind(g, &at, &bound, &error), QN_OK);
    assert_shape(bound, y, "1, 1, 4, 2");
    qn_graph_destroy(bound);
    qn_graph_destroy(g);
}

static void attributes_alone_can_be_symbolic(void **state) {
    (void)state;
    qn_graph *g = new_graph();
    int64_t b = qn_graph_symbol(g, "b", 1, 8, 1);
    qn_attr_repeat tile = qn_attr_repeat_default();
    tile.shape = (qn_dims){2, 0, {b, 4}};
    qn_val y = op1(g, QN_OP_repeat, 0, param(g, "p", 2, 1, 4), &tile);
    assert_shape(g, y, "b, 4");
    qn_graph *bound;
    qn_error error;
    int64_t at = 3;
    assert_int_equal(qn_graph_bind(g, &at, &bound, &error), QN_OK);
    assert_shape(bound, y, "3, 4");
    assert_int_equal(qn_graph_symbol_count(bound), 0);
    qn_graph_destroy(bound);
    qn_graph_destroy(g);
}

static void binding_is_held_to_the_bounds(void **state) {
    (void)state;
    qn_graph *g = new_graph(), *bound = g;
    int64_t s = qn_graph_symbol(g, "s", 4, 64, 4);
    qn_graph_output(g, op1(g, QN_OP_sqr, 0, input(g, "x", 1, s, 0, 0, 0), NULL), "y");
    qn_error error;
    static const int64_t bad[] = {0, 3, 68, 6, -4, INT64_MAX, QN_DIM_BASE};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(qn_graph_bind(g, &bad[i], &bound, &error), QN_INVALID);
        assert_null(bound);
        assert_non_null(strstr(error.text, "it must be 4 to 64 in steps of 4"));
    }
    assert_int_equal(qn_graph_bind(g, NULL, &bound, &error), QN_ARGUMENT);
    int64_t good = 64;
    assert_int_equal(qn_graph_bind(g, &good, &bound, &error), QN_OK);
    assert_int_equal(qn_graph_output_count(bound), 1);
    qn_graph_destroy(bound);
    qn_graph_destroy(g);
}

static void binding_that_an_op_refuses_says_which(void **state) {
    (void)state;
    qn_graph *g = new_graph(), *bound;
    int64_t s = qn_graph_symbol(g, "s", 1, 8, 1);
    qn_attr_view part = qn_attr_view_default();
    part.shape = (qn_dims){1, 0, {6}};
    qn_graph_label_push(g, "head");
    op1(g, QN_OP_view, 0, input(g, "x", 1, s, 0, 0, 0), &part);
    qn_error error;
    int64_t at = 5;
    assert_int_equal(qn_graph_bind(g, &at, &bound, &error), QN_INVALID);
    assert_non_null(strstr(error.text, "head: node 0: view: "));
    qn_graph_destroy(g);
}

/* ---- Gradients */

static int count_op(const qn_graph *g, int op, int32_t from) {
    int n = 0;
    qn_node_info info = {.size = sizeof info};
    for (int32_t k = from; k < qn_graph_node_count(g); k++)
        if (qn_graph_node(g, k, &info) == QN_OK) n += info.op == op;
    return n;
}

static void gradient_of_a_small_net_has_the_right_parts(void **state) {
    (void)state;
    qn_graph *g = new_graph();
    qn_val x = input(g, "x", 2, 4, 6, 0, 0), t = input(g, "t", 2, 4, 3, 0, 0);
    qn_val w1 = param(g, "w1", 2, 5, 6), b1 = param(g, "b1", 1, 5, 0), w2 = param(g, "w2", 2, 3, 5),
           unused = param(g, "unused", 2, 7, 2);
    qn_graph_label_push(g, "layer 1");
    qn_val h = op1(g, QN_OP_unary, QN_UNARY_tanh, op2(g, QN_OP_add, op2(g, QN_OP_mul_mat, w1, x, NULL), b1, NULL), NULL);
    qn_graph_label_pop(g);
    qn_val loss = op2(g, QN_OP_cross_entropy_loss, op2(g, QN_OP_mul_mat, w2, h, NULL), t, NULL);
    int32_t forward = qn_graph_node_count(g);
    qn_val wrt[5] = {w1, b1, w2, unused, h}, grads[5];
    assert_int_equal(qn_graph_grad(g, loss, 5, wrt, grads), QN_OK);
    assert_shape(g, grads[0], "5, 6");
    assert_shape(g, grads[1], "5");
    assert_shape(g, grads[2], "3, 5");
    assert_shape(g, grads[3], "7, 2");
    assert_shape(g, grads[4], "4, 5");
    assert_int_equal(count_op(g, QN_OP_cross_entropy_loss_back, forward), 1);
    assert_int_equal(count_op(g, QN_OP_mul_mat, forward) + count_op(g, QN_OP_out_prod, forward), 3); /* dw2, dh, dw1; no dx */
    qn_value_info v = {.size = sizeof v};
    qn_node_info n = {.size = sizeof n};
    qn_graph_value(g, grads[3], &v);
    qn_graph_node(g, v.node, &n);
    assert_int_equal(n.op, QN_OP_fill);
    assert_true(((const qn_attr_fill *)n.attr)->c == 0);
    qn_graph_value(g, grads[0], &v);
    qn_graph_node(g, v.node, &n);
    assert_string_equal(n.label, "gradient / layer 1");
    assert_int_equal(qn_graph_verify(g, NULL, NULL), QN_OK);
    qn_graph_destroy(g);
}

static void a_value_used_twice_gets_the_sum(void **state) {
    (void)state;
    qn_graph *g = new_graph();
    qn_val x = input(g, "x", 1, 3, 0, 0, 0), y = op2(g, QN_OP_mul, x, x, NULL), grad;
    qn_val loss = op1(g, QN_OP_sum, 0, op2(g, QN_OP_add, y, x, NULL), NULL);
    int32_t forward = qn_graph_node_count(g);
    assert_int_equal(qn_graph_grad(g, loss, 1, &x, &grad), QN_OK);
    assert_shape(g, grad, "3");
    assert_true(count_op(g, QN_OP_add, forward) >= 2);
    qn_graph_destroy(g);
}

static void gradient_questions_without_answer_fail(void **state) {
    (void)state;
    qn_val grad, x;
    qn_graph *g = new_graph();
    x = input(g, "x", 1, 3, 0, 0, 0);
    assert_int_equal(qn_graph_grad(g, x, 1, &x, &grad), QN_INVALID);
    assert_int_equal(grad, QN_VAL_NONE);
    assert_error(g, QN_INVALID, "gradient: the loss must have one element, axis 0 has 3");
    g = new_graph();
    x = input(g, "x", 1, 1, 0, 0, 0);
    qn_val far = 77;
    qn_graph_grad(g, x, 1, &far, &grad);
    assert_error(g, QN_ARGUMENT, "gradient: value 77 is none of this graph's");
    g = new_graph();
    x = input(g, "x", 1, qn_graph_symbol(g, "b", 1, 1, 1), 0, 0, 0);
    qn_graph_grad(g, x, 1, &x, &grad);
    assert_error(g, QN_INVALID, "gradient: the graph has symbols; bind them first");
    g = new_graph();
    x = input(g, "x", 2, 1, 4, 0, 0);
    qn_val src[3] = {param(g, "w", 2, 1, 4), x, input(g, "hyper", 1, 2, 0, 0, 0)};
    qn_val y = qn_graph_op(g, QN_OP_opt_step_sgd, 0, 3, src, NULL);
    qn_graph_grad(g, op1(g, QN_OP_sum, 0, y, NULL), 1, &x, &grad);
    qn_error error;
    assert_int_equal(qn_graph_error(g, &error), QN_INVALID);
    assert_non_null(strstr(error.text, "node 0: opt_step_sgd has no gradient: "));
    qn_graph_destroy(g);
}

/* ---- Errors */

static void the_first_error_sticks(void **state) {
    (void)state;
    qn_graph *g = new_graph();
    qn_val x = input(g, "x", 2, 2, 3, 0, 0);
    qn_graph_label_push(g, "layer 3");
    qn_graph_label_push(g, "attention");
    qn_val bad = op2(g, QN_OP_mul_mat, param(g, "w", 2, 5, 4), x, NULL);
    assert_int_equal(bad, QN_VAL_NONE);
    assert_int_equal(op1(g, QN_OP_sqr, 0, bad, NULL), QN_VAL_NONE);
    assert_int_equal(param(g, "other", 1, 4, 0), QN_VAL_NONE);
    assert_true(qn_graph_symbol(g, "b", 1, 2, 1) == -1);
    assert_int_equal(qn_graph_output(g, x, "y"), QN_INVALID);
    assert_int_equal(qn_graph_label_pop(g), QN_INVALID);
    assert_int_equal(qn_graph_value_count(g), 2);
    assert_int_equal(qn_graph_verify(g, NULL, NULL), QN_INVALID);
    qn_graph *bound;
    assert_int_equal(qn_graph_bind(g, NULL, &bound, NULL), QN_INVALID);
    assert_error(g, QN_INVALID, "layer 3 / attention: node 0: mul_mat: b: axis 1 has extent 3, expected 4");
}

static void calls_that_make_no_sense_are_refused(void **state) {
    (void)state;
    int64_t shape[1] = {2};
    assert_int_equal(qn_graph_dim(NULL, '?', 1, 2), -1);
    qn_graph *g = new_graph();
    qn_graph_input(g, "", QN_DTYPE_F32, 1, shape);
    assert_error(g, QN_ARGUMENT, "input '': needs a name, a dtype and a rank of 1 to 8");
    g = new_graph();
    qn_graph_param(g, "p", (qn_dtype)99, 1, shape);
    assert_error(g, QN_ARGUMENT, "param 'p': needs a name, a dtype and a rank of 1 to 8");
    g = new_graph();
    qn_graph_constant(g, QN_DTYPE_F32, 1, shape, "1234", 4);
    assert_error(g, QN_INVALID, "a constant of 8 bytes was given 4");
    g = new_graph();
    op1(g, 9999, 0, 0, NULL);
    assert_error(g, QN_UNEXPECTED, "there is no op number 9999");
    g = new_graph();
    op1(g, QN_OP_unary, 65536, input(g, "x", 1, 2, 0, 0, 0), NULL);
    assert_error(g, QN_UNEXPECTED, "unary: there is no sub-op number 65536");
    g = new_graph();
    op1(g, QN_OP_sqr, 0, 5, NULL);
    assert_error(g, QN_INVALID, "sqr: a: value 5 is none of this graph's");
    g = new_graph();
    qn_graph_output(g, 0, "y");
    assert_error(g, QN_ARGUMENT, "output 'y': value 0 is none of this graph's");
    g = new_graph();
    qn_graph_label_pop(g);
    assert_error(g, QN_ARGUMENT, "a label was popped that nobody pushed");
    g = new_graph();
    struct {
        uint32_t size, version;
    } old = {8, 1}; /* a record shorter than the op's: no more of it may be read */
    op1(g, QN_OP_leaky_relu, 0, input(g, "x", 1, 2, 0, 0, 0), &old);
    assert_int_equal(qn_graph_error(g, NULL), QN_UNEXPECTED);
    qn_graph_destroy(g);
    assert_int_equal(qn_graph_create(0, NULL), QN_ARGUMENT);
    qn_graph_destroy(NULL);
}

/* Whatever runs out, what was built can still be looked at. */
static void a_limit_leaves_a_graph_that_can_be_read(void **state) {
    (void)state;
    int failed = 0, done = 0;
    for (size_t limit = 64; limit < 400000; limit += 4099) {
        qn_graph *g;
        if (qn_graph_create(limit, &g) != QN_OK) continue;
        int64_t b = qn_graph_symbol(g, "b", 1, 8, 1);
        qn_val y = input(g, "x", 2, b, 4, 0, 0);
        for (int i = 0; i < 300; i++) {
            char name[32];
            qn_attr_leaky_relu at = qn_attr_leaky_relu_default();
            snprintf(name, sizeof name, "layer %d", i);
            qn_graph_label_push(g, name);
            y = op1(g, QN_OP_leaky_relu, 0, op2(g, QN_OP_add, y, param(g, name, 1, 4, 0), NULL), &at);
            qn_graph_label_pop(g);
            qn_graph_output(g, y, name);
        }
        qn_status status = qn_graph_error(g, NULL);
        assert_true(status == QN_OK || status == QN_NO_MEMORY);
        failed += status != QN_OK;
        done += status == QN_OK;
        assert_true(g->arena.peak <= limit);
        qn_value_info v = {.size = sizeof v};
        qn_node_info n = {.size = sizeof n};
        for (int32_t i = 0; i < qn_graph_value_count(g); i++) assert_int_equal(qn_graph_value(g, i, &v), QN_OK);
        for (int32_t i = 0; i < qn_graph_node_count(g); i++) assert_int_equal(qn_graph_node(g, i, &n), QN_OK);
        for (int32_t i = 0; i < qn_graph_output_count(g); i++) qn_graph_output_value(g, i, &v.name);
        qn_graph_destroy(g);
    }
    assert_true(failed > 5 && done > 5);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dims_have_one_form),
        cmocka_unit_test(dims_that_are_none_fail),
        cmocka_unit_test(dims_stay_small),
        cmocka_unit_test(the_last_of_many_costs_what_the_first_did),
        cmocka_unit_test(shapes_are_explained_in_symbols),
        cmocka_unit_test(a_rounded_quotient_is_not_taken_for_a_line),
        cmocka_unit_test(attributes_alone_can_be_symbolic),
        cmocka_unit_test(binding_is_held_to_the_bounds),
        cmocka_unit_test(binding_that_an_op_refuses_says_which),
        cmocka_unit_test(gradient_of_a_small_net_has_the_right_parts),
        cmocka_unit_test(a_value_used_twice_gets_the_sum),
        cmocka_unit_test(gradient_questions_without_answer_fail),
        cmocka_unit_test(the_first_error_sticks),
        cmocka_unit_test(calls_that_make_no_sense_are_refused),
        cmocka_unit_test(a_limit_leaves_a_graph_that_can_be_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
