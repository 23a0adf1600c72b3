/* Loops and branches against the same thing unrolled, and their gradients against that and against finite differences. */
#include "control_help.h"

/* Gradients of "loss" by every f64 leaf, as outputs "grad NAME". */
static void add_gradients(qn_graph *g) {
    qn_val wrt[64], grads[64];
    int n = 0;
    for (size_t v = 0; v < g->values.n; v++)
        if (g->values.at[v].kind <= QN_VALUE_PARAM && g->values.at[v].shape.dtype == F64) wrt[n++] = (qn_val)v;
    if (qn_graph_grad(g, qn_graph_output_value(g, 0, NULL), n, wrt, grads) != QN_OK) fail_msg("%s", g->error.text);
    for (int i = 0; i < n; i++) {
        char name[64];
        snprintf(name, sizeof name, "grad %s", qn_ir_string(g, g->values.at[wrt[i]].name));
        qn_graph_output(g, grads[i], name);
    }
    assert_int_equal(qn_graph_verify(g, NULL, NULL), QN_OK);
}

/* The gradients of a graph whose first output is "loss" against central differences. */
static void check_gradients(qn_graph *g) {
    qn_plan *plain = plan_of(g);
    add_gradients(g);
    qn_plan *p = plan_of(g);
    const double h = 1e-5;
    fill(p, NULL, 0, 0);
    run(p);
    int checked = 0;
    for (size_t v = 0; v < g->values.n; v++) {
        const qn_ir_value *leaf = &g->values.at[v];
        if (leaf->kind > QN_VALUE_PARAM || leaf->shape.dtype != F64) continue;
        char name[64];
        snprintf(name, sizeof name, "grad %s", qn_ir_string(g, leaf->name));
        const double *grad = output(p, name);
        for (int64_t i = 0; i < count_of(&leaf->shape); i++) {
            double at[2];
            for (int side = 0; side < 2; side++) {
                fill(plain, name + 5, i, side ? h : -h);
                run(plain);
                at[side] = *(const double *)output(plain, "loss");
            }
            double slope = (at[1] - at[0]) / (2 * h);
            assert_near(&grad[i], &slope, 1, 1e-8, name);
            checked++;
        }
    }
    assert_true(checked > 0);
    qn_plan_destroy(p);
    qn_plan_destroy(plain);
}

/* Two graphs over the same leaves give the same outputs. */
static void check_equal(const qn_graph *a, const qn_graph *b, uint32_t flags, double bound) {
    qn_plan *p = plan_with(a, &(qn_plan_options){.size = sizeof(qn_plan_options), .flags = flags}), *q = plan_of(b);
    fill(p, NULL, 0, 0);
    fill(q, NULL, 0, 0);
    for (int again = 0; again < 2; again++) {
        run(p);
        run(q);
        for (size_t i = 0; i < a->outputs.n; i++) {
            const char *name = qn_ir_string(a, a->outputs.at[i].name);
            assert_near(output(p, name), output(q, name), count_of(&a->values.at[a->outputs.at[i].value].shape), bound, name);
        }
    }
    qn_plan_destroy(p);
    qn_plan_destroy(q);
}

/* ---- Against the same thing unrolled */

static uint64_t seed;
static int below(int n) { return (int)((number(&seed) + 1) / 2 * n) % n; }

enum { WIDE = 3, MOST_CARRIES = 3, MOST_XS = 2, MOST_SHARED = 2, MOST_YS = 2 };

typedef struct loop {
    qn_graph *body;
    int n_carry, n_xs, n_shared, n_ys, length, reverse;
} loop;

static qn_val some(qn_graph *g, qn_val *values, int *n) {
    static const qn_unary smooth[] = {QN_UNARY_tanh, QN_UNARY_sigmoid, QN_UNARY_silu, QN_UNARY_neg};
    static const qn_op binary[] = {QN_OP_add, QN_OP_sub, QN_OP_mul};
    qn_val a = values[below(*n)], b = values[below(*n)];
    qn_val made = below(2) ? qn_graph_op(g, QN_OP_unary, (int)smooth[below(4)], 1, &a, NULL)
                           : qn_graph_op(g, (int)binary[below(3)], 0, 2, (qn_val[]){a, b}, NULL);
    return values[(*n)++] = made;
}

/* A body of smooth ops over vectors; nothing grows much, so that numbers stay numbers. */
static loop random_loop(void) {
    const int64_t shape[1] = {WIDE};
    qn_val values[64];
    int n = 0;
    loop l = {
        .n_carry = below(MOST_CARRIES + 1), .n_xs = below(MOST_XS + 1), .n_shared = below(MOST_SHARED + 1), .reverse = below(2)};
    if (l.n_carry + l.n_xs == 0) l.n_carry = 1;
    l.n_ys = below(MOST_YS + 1) + (l.n_carry == 0);
    l.length = 1 + below(5);
    assert_int_equal(qn_graph_create(0, &l.body), QN_OK);
    for (int i = 0; i < l.n_carry + l.n_xs + l.n_shared; i++) {
        char name[16];
        snprintf(name, sizeof name, "in%d", i);
        values[n++] = qn_graph_input(l.body, name, F64, 1, shape);
    }
    for (int i = below(6); i >= 0; i--) some(l.body, values, &n);
    for (int i = 0; i < l.n_carry + l.n_ys; i++) {
        char name[16];
        snprintf(name, sizeof name, "out%d", i);
        qn_val v = values[below(n)];
        if (i < l.n_carry) v = qn_graph_op(l.body, QN_OP_unary, QN_UNARY_tanh, 1, &v, NULL);
        qn_graph_output(l.body, v, name);
    }
    return l;
}

static qn_val weighted_sum(qn_graph *g, qn_val sum, qn_val v, int number_of) {
    qn_attr_scale at = qn_attr_scale_default();
    at.s = 1 + 0.25f * (float)number_of;
    qn_val one = qn_graph_op(g, QN_OP_sum, 0, 1, &v, NULL);
    one = qn_graph_op(g, QN_OP_scale, 0, 1, &one, &at);
    return sum == QN_VAL_NONE ? one : qn_graph_op(g, QN_OP_add, 0, 2, (qn_val[]){sum, one}, NULL);
}

static int make_leaves(qn_graph *g, const loop *l, qn_val *src) {
    int n = 0;
    for (int i = 0; i < l->n_carry + l->n_xs + l->n_shared; i++) {
        char name[16];
        int stacked = i >= l->n_carry && i < l->n_carry + l->n_xs;
        snprintf(name, sizeof name, "leaf%d", i);
        src[n++] = qn_graph_input(g, name, F64, 1 + stacked, stacked ? (int64_t[]){l->length, WIDE} : (int64_t[]){WIDE});
    }
    return n;
}

static qn_graph *as_a_loop(const loop *l) {
    qn_graph *g;
    qn_val src[16], out[16], loss = QN_VAL_NONE;
    qn_attr_scan_loop at = qn_attr_scan_loop_default();
    assert_int_equal(qn_graph_create(0, &g), QN_OK);
    int n = make_leaves(g, l, src);
    at.n_carry = l->n_carry;
    at.n_xs = l->n_xs;
    at.length = l->length;
    at.reverse = l->reverse;
    at.body = l->body;
    qn_graph_apply(g, QN_OP_scan_loop, 0, n, src, &at, l->n_carry + l->n_ys, out);
    for (int i = 0; i < l->n_carry + l->n_ys; i++) loss = weighted_sum(g, loss, out[i], i);
    qn_graph_output(g, loss, "loss");
    if (g->error.status != QN_OK) fail_msg("%s", g->error.text);
    return g;
}

static qn_graph *unrolled(const loop *l) {
    qn_graph *g;
    qn_val src[16], in[16], out[16], sums[16], loss = QN_VAL_NONE;
    assert_int_equal(qn_graph_create(0, &g), QN_OK);
    int n = make_leaves(g, l, src);
    for (int i = 0; i < 16; i++) sums[i] = QN_VAL_NONE;
    memcpy(in, src, sizeof in);
    for (int trip = 0; trip < l->length; trip++) {
        for (int i = l->n_carry; i < l->n_carry + l->n_xs; i++) {
            qn_attr_narrow at = qn_attr_narrow_default();
            qn_attr_reshape flat = qn_attr_reshape_default();
            at.axis = 0;
            at.start = l->reverse ? l->length - 1 - trip : trip;
            at.length = 1;
            flat.shape = (qn_dims){1, 0, {WIDE}};
            qn_val slice = qn_graph_op(g, QN_OP_narrow, 0, 1, &src[i], &at);
            in[i] = qn_graph_op(g, QN_OP_reshape, 0, 1, &slice, &flat);
        }
        assert_int_equal(qn_ir_inline(g, l->body, in, out), QN_OK);
        memcpy(in, out, sizeof *in * (size_t)l->n_carry);
        for (int i = l->n_carry; i < l->n_carry + l->n_ys; i++)
            sums[i] = sums[i] == QN_VAL_NONE ? out[i] : qn_graph_op(g, QN_OP_add, 0, 2, (qn_val[]){sums[i], out[i]}, NULL);
    }
    memcpy(sums, in, sizeof *in * (size_t)l->n_carry);
    for (int i = 0; i < l->n_carry + l->n_ys; i++) loss = weighted_sum(g, loss, sums[i], i);
    qn_graph_output(g, loss, "loss");
    (void)n;
    if (g->error.status != QN_OK) fail_msg("%s", g->error.text);
    return g;
}

/* Results and gradients of random loops, with and without passes and kernels, are those of the unrolled graph. */
static void random_loops_are_what_they_are_unrolled(void **state) {
    (void)state;
    for (int i = 0; i < 120; i++) {
        seed = (uint64_t)i;
        loop l = random_loop();
        qn_graph *a = as_a_loop(&l), *b = unrolled(&l);
        add_gradients(a);
        add_gradients(b);
        check_equal(a, b, (uint32_t)i & 3, 1e-12);
        qn_graph_destroy(a);
        qn_graph_destroy(b);
        qn_graph_destroy(l.body);
    }
}

static void random_loops_have_the_slopes_they_say(void **state) {
    (void)state;
    for (int i = 0; i < 20; i++) {
        seed = 1000 + (uint64_t)i;
        loop l = random_loop();
        qn_graph *g = as_a_loop(&l);
        check_gradients(g);
        qn_graph_destroy(g);
        qn_graph_destroy(l.body);
    }
}

/* ---- Gradients of known things */

static void gradient_of_a_recurrent_net(void **state) {
    (void)state;
    qn_graph *g = parse(
        "quern graph 1\ninput %h f64[2, 3]\ninput %xs f64[4, 2, 2]\nparam %w f64[3, 3]\nparam %u f64[3, 2]\nparam %b f64[3]\n"
        "%y, %hs = scan_loop %h %xs %w %u %b {n_carry=1, n_xs=1, body={\n  input %h f64[2, 3]\n  input %x f64[2, 2]\n"
        "  input %w f64[3, 3]\n  input %u f64[3, 2]\n  input %b f64[3]\n  %p = mul_mat %w %h\n  %q = mul_mat %u %x\n"
        "  %r = add %p %q\n  %s = add %r %b\n  %t = unary.tanh %s @\"cell\"\n  output %t \"h\"\n  output %t \"y\"\n}}\n"
        "%e = mul %hs %hs\n%f = sum %e\n%i = sum %y\n%l = add %f %i\noutput %l \"loss\"\n");
    check_gradients(g);
    qn_graph_destroy(g);
}

/* With a bound on its trips a loop that stops by itself has a gradient: that of the trips it made. */
static void gradient_of_a_bounded_while(void **state) {
    (void)state;
    qn_graph *g = parse(
        "quern graph 1\ninput %x f64[3]\ninput %w f64[3]\n%y = while_loop %x %w {max_trips=9, test={\n  input %x f64[3]\n"
        "  input %w f64[3]\n  const %c f64[1] = 20\n  %3 = sqr %x\n  %4 = sum %3\n  %5 = compare.lt %4 %c\n  output %5 "
        "\"go\"\n}, body={\n"
        "  input %x f64[3]\n  input %w f64[3]\n  %2 = scale %x {s=1.5, b=0.1}\n  %3 = sin %w\n  %4 = add %2 %3\n  output %4 "
        "\"x\"\n}}\n"
        "%l = sum %y\noutput %l \"loss\"\n");
    check_gradients(g);
    qn_graph_destroy(g);
}

static void gradient_of_a_branch(void **state) {
    (void)state;
    for (int side = 0; side < 2; side++) {
        char text[1200];
        snprintf(text, sizeof text,
                 "quern graph 1\nconst %%p f32[1] = %d\ninput %%x f64[3]\ninput %%y f64[3]\ninput %%z f64[3]\n"
                 "%%a, %%b = cond %%p %%x %%y %%z {then_body={\n  input %%x f64[3]\n  input %%y f64[3]\n  input %%z f64[3]\n"
                 "  %%3 = mul %%x %%y\n  %%4 = sin %%x\n  output %%3 \"a\"\n  output %%4 \"b\"\n}, else_body={\n"
                 "  input %%x f64[3]\n  input %%y f64[3]\n  input %%z f64[3]\n  %%3 = cos %%z\n  output %%3 \"a\"\n  output %%x "
                 "\"b\"\n}}\n"
                 "%%c = mul %%a %%b\n%%l = sum %%c\noutput %%l \"loss\"\n",
                 side);
        qn_graph *g = parse(text);
        check_gradients(g);
        qn_graph_destroy(g);
    }
}

/* A loop in a loop, a branch in that, one value used on every floor. */
static void gradient_through_nested_bodies(void **state) {
    (void)state;
    qn_graph *g = parse(
        "quern graph 1\ninput %a f64[2]\ninput %w f64[2]\ninput %xs f64[3, 2]\n"
        "%y = scan_loop %a %xs %w {n_carry=1, n_xs=1, body={\n  input %a f64[2]\n  input %x f64[2]\n  input %w f64[2]\n"
        "  %3, %4 = scan_loop %a %x %w {n_carry=1, length=2, reverse=1, body={\n    input %a f64[2]\n    input %x f64[2]\n    "
        "input %w f64[2]\n"
        "    const %z f64[1] = 0\n    %4 = sum %x\n    %5 = compare.gt %4 %z\n"
        "    %6 = cond %5 %a %w {then_body={\n      input %a f64[2]\n      input %w f64[2]\n      %2 = mul %a %w\n      output "
        "%2 \"y\"\n"
        "    }, else_body={\n      input %a f64[2]\n      input %w f64[2]\n      %2 = sin %a\n      output %2 \"y\"\n    }}\n"
        "    %7 = add %6 %x\n    output %7 \"a\"\n    output %6 \"y\"\n  }}\n"
        "  %5 = sum %4\n  %6 = add %3 %5\n  %7 = unary.tanh %6\n  output %7 \"a\"\n}}\n"
        "%m = mul %y %w\n%l = sum %m\noutput %l \"loss\"\n");
    check_gradients(g);
    qn_graph_destroy(g);
}

/* An f16 weight's gradient is summed over the trips in f32. */
static void sums_over_trips_do_not_round_in_half(void **state) {
    (void)state;
    qn_graph *g = parse(
        "quern graph 1\ninput %a f32[1]\nparam %w f16[1]\n%y, %ys = scan_loop %a %w {n_carry=1, length=4096, body={\n"
        "  input %a f32[1]\n  input %w f16[1]\n  %2 = cast %w {dtype=f32}\n  output %a \"a\"\n  output %2 \"y\"\n}}\n"
        "%l = sum %ys\noutput %l \"loss\"\n");
    qn_val w = 1, dw;
    if (qn_graph_grad(g, qn_graph_output_value(g, 0, NULL), 1, &w, &dw) != QN_OK) fail_msg("%s", g->error.text);
    qn_attr_cast wide = qn_attr_cast_default();
    wide.dtype = QN_DTYPE_F32;
    qn_graph_output(g, qn_graph_op(g, QN_OP_cast, 0, 1, &dw, &wide), "dw");
    qn_plan *p = plan_of(g);
    const uint16_t half = 0x3800;
    const float a = 1;
    set(p, "a", &a);
    set(p, "w", &half);
    run(p);
    assert_true(*(const float *)output(p, "dw") == 4096); /* ones added in f16 stop at 2048 */
    qn_plan_destroy(p);
    qn_graph_destroy(g);
}

/* Sixteen carries and their gradient are within what a node may have. */
static void many_carries_and_their_gradient_fit(void **state) {
    (void)state;
    enum { N = 16 };
    qn_graph *body, *g;
    qn_val in[N], src[N], out[N], loss = QN_VAL_NONE;
    qn_attr_scan_loop at = qn_attr_scan_loop_default();
    assert_int_equal(qn_graph_create(0, &body), QN_OK);
    assert_int_equal(qn_graph_create(0, &g), QN_OK);
    for (int i = 0; i < N; i++) {
        char name[16];
        snprintf(name, sizeof name, "x%d", i);
        in[i] = qn_graph_input(body, name, F64, 1, (int64_t[]){2});
        src[i] = qn_graph_input(g, name, F64, 1, (int64_t[]){2});
    }
    for (int i = 0; i < N; i++) {
        qn_val v = qn_graph_op(body, QN_OP_mul, 0, 2, (qn_val[]){in[i], in[(i + 1) % N]}, NULL);
        char name[16];
        snprintf(name, sizeof name, "y%d", i);
        qn_graph_output(body, qn_graph_op(body, QN_OP_unary, QN_UNARY_tanh, 1, &v, NULL), name);
    }
    at.n_carry = N;
    at.length = 3;
    at.body = body;
    qn_graph_apply(g, QN_OP_scan_loop, 0, N, src, &at, N, out);
    for (int i = 0; i < N; i++) loss = weighted_sum(g, loss, out[i], i);
    qn_graph_output(g, loss, "loss");
    if (g->error.status != QN_OK) fail_msg("%s", g->error.text);
    check_gradients(g);
    qn_graph_destroy(body);
    qn_graph_destroy(g);
}

static void results_that_are_left_off_have_no_say(void **state) {
    (void)state;
    qn_graph *g = parse("quern graph 1\n"
                        "input %a f64[3]\n"
                        "input %b f64[3]\n"
                        "input %x f64[4, 3]\n"
                        "%last = scan_loop %a %b %x {n_carry=2, n_xs=1, body={\n"
                        "input %a f64[3]\n"
                        "input %b f64[3]\n"
                        "input %x f64[3]\n"
                        "%1 = mul %a %x\n"
                        "%2 = add %1 %b\n"
                        "%3 = unary.tanh %2\n"
                        "output %3 \"a\"\n"
                        "output %1 \"b\"\n"
                        "}}\n"
                        "%loss = sum %last\n"
                        "output %loss \"loss\"\n");
    check_gradients(g);
    qn_graph_destroy(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_loops_are_what_they_are_unrolled),
        cmocka_unit_test(random_loops_have_the_slopes_they_say),
        cmocka_unit_test(gradient_of_a_recurrent_net),
        cmocka_unit_test(gradient_of_a_bounded_while),
        cmocka_unit_test(gradient_of_a_branch),
        cmocka_unit_test(gradient_through_nested_bodies),
        cmocka_unit_test(sums_over_trips_do_not_round_in_half),
        cmocka_unit_test(many_carries_and_their_gradient_fit),
        cmocka_unit_test(results_that_are_left_off_have_no_say),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
