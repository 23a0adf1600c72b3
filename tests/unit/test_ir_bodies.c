/* Graphs in graphs: what a body must be to go into a graph, that it is a copy, that everything that walks graphs walks into it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ir/rebuild.h"
#include "pass/pass.h"

#include "ir_help.h"

static const char *print(const qn_graph *g, buffer *b) {
    qn_error error;
    b->n = 0;
    if (qn_graph_print(g, append, b, &error) != QN_OK) fail_msg("%s", error.text);
    return b->at;
}

static qn_graph *new_graph(void) {
    qn_graph *g;
    assert_int_equal(qn_graph_create(0, &g), QN_OK);
    return g;
}

static qn_val f32_input(qn_graph *g, const char *name, int64_t extent) {
    return qn_graph_input(g, name, QN_DTYPE_F32, 1, &extent);
}

static void assert_error(qn_graph *g, const char *sentence) {
    qn_error error;
    assert_int_equal(qn_graph_error(g, &error), QN_INVALID);
    assert_string_equal(error.text, sentence);
    qn_graph_destroy(g);
}

/* x + w, as the body of a loop over x. */
static qn_graph *adder(int64_t extent) {
    qn_graph *body = new_graph();
    qn_val in[2] = {f32_input(body, "x", extent), f32_input(body, "w", extent)};
    qn_graph_output(body, qn_graph_op(body, QN_OP_add, 0, 2, in, NULL), "x");
    return body;
}

static qn_val add_loop(qn_graph *g, const qn_graph *body, int64_t length, qn_val x, qn_val w) {
    qn_attr_scan_loop at = qn_attr_scan_loop_default();
    at.n_carry = 1;
    at.length = length;
    at.body = body;
    return qn_graph_op(g, QN_OP_scan_loop, 0, 2, (qn_val[]){x, w}, &at);
}

/* ---- Building */

static void a_body_is_copied(void **state) {
    (void)state;
    static buffer before, after;
    qn_graph *g = new_graph(), *body = adder(4);
    qn_val y = add_loop(g, body, 3, f32_input(g, "x", 4), f32_input(g, "w", 4));
    qn_graph_output(g, y, "y");
    print(g, &before);
    qn_graph_output(body, 0, "more");
    qn_graph_destroy(body);
    assert_string_equal(print(g, &after), before.at);
    assert_int_equal(qn_graph_verify(g, NULL, NULL), QN_OK);
    qn_node_info n = {.size = sizeof n};
    assert_int_equal(qn_graph_node(g, 0, &n), QN_OK);
    const qn_attr_scan_loop *at = n.attr;
    assert_int_equal(qn_graph_node_count(at->body), 1);
    assert_int_equal(qn_graph_output_count(at->body), 1);
    qn_graph_destroy(g);
}

static void symbols_of_a_body_are_found_by_name(void **state) {
    (void)state;
    static buffer text;
    qn_graph *g = new_graph(), *body = new_graph();
    int64_t m = qn_graph_symbol(g, "m", 1, 8, 1), n = qn_graph_symbol(g, "n", 2, 32, 2);
    int64_t inner_n = qn_graph_symbol(body, "n", 2, 32, 2), inner_m = qn_graph_symbol(body, "m", 1, 8, 1);
    qn_val a = qn_graph_input(body, "a", QN_DTYPE_F32, 2, (int64_t[]){inner_n, inner_m});
    qn_graph_output(body, a, "a");
    qn_graph_output(body, qn_graph_op(body, QN_OP_sum_rows, 0, 1, &a, NULL), "rows");
    qn_attr_scan_loop at = qn_attr_scan_loop_default();
    at.n_carry = 1;
    at.length = m;
    at.body = body;
    qn_val out[2], x = qn_graph_input(g, "x", QN_DTYPE_F32, 2, (int64_t[]){n, m});
    qn_graph_apply(g, QN_OP_scan_loop, 0, 1, &x, &at, 2, out);
    qn_graph_destroy(body);
    qn_graph_output(g, out[1], "rows");
    assert_int_equal(qn_graph_verify(g, NULL, NULL), QN_OK);
    assert_non_null(strstr(print(g, &text), "input %a f32[n, m]\n  %1 = sum_rows %a : f32[n, 1]\n"));
    assert_non_null(strstr(text.at, "}} : f32[n, m], f32[m, n, 1]\n"));
    qn_graph *again = parse(text.at), *bound;
    qn_error error;
    assert_int_equal(qn_graph_bind(again, (int64_t[]){3, 10}, &bound, &error), QN_OK);
    assert_non_null(strstr(print(bound, &text), "{n_carry=1, length=3, body={\n  input %a f32[10, 3]\n"));
    assert_non_null(strstr(text.at, "}} : f32[10, 3], f32[3, 10, 1]\n"));
    assert_int_equal(qn_graph_verify(bound, NULL, NULL), QN_OK);
    qn_graph_destroy(bound);
    qn_graph_destroy(again);
    qn_graph_destroy(g);
}

static void bodies_that_do_not_fit_are_refused(void **state) {
    (void)state;
    qn_graph *g = new_graph(), *body = adder(4);
    add_loop(g, body, 3, f32_input(g, "x", 4), f32_input(g, "w", 5));
    assert_error(g, "node 0: scan_loop: x1: axis 0 has extent 5, the body takes 4");
    qn_graph_destroy(body);

    g = new_graph();
    body = adder(4);
    qn_graph_param(body, "p", QN_DTYPE_F32, 1, (int64_t[]){4});
    add_loop(g, body, 3, f32_input(g, "x", 4), f32_input(g, "w", 4));
    assert_error(g, "a body has no params, and this one has 'p': pass it in as a source");
    qn_graph_destroy(body);

    g = new_graph();
    body = new_graph();
    qn_graph_symbol(body, "n", 1, 4, 1);
    add_loop(g, body, 3, f32_input(g, "x", 4), f32_input(g, "w", 4));
    assert_error(g, "scan_loop: body: symbol 'n' is not one of the graph it goes into, or has other bounds there");
    qn_graph_destroy(body);

    g = new_graph();
    body = new_graph();
    qn_graph_op(body, QN_OP_add, 0, 0, NULL, NULL);
    add_loop(g, body, 3, f32_input(g, "x", 4), f32_input(g, "w", 4));
    assert_error(g, "scan_loop: body: node 0: add: 0 sources given, at least 2 are needed");
    qn_graph_destroy(body);

    g = new_graph();
    add_loop(g, NULL, 3, f32_input(g, "x", 4), f32_input(g, "w", 4));
    assert_error(g, "node 0: scan_loop: attribute body: is required and was not given");
}

static void bodies_nest_to_a_depth(void **state) {
    (void)state;
    qn_graph *g = adder(4);
    for (int depth = 1; depth <= QN_IR_MAX_DEPTH; depth++) {
        qn_graph *outer = new_graph();
        qn_val x = f32_input(outer, "x", 4), w = f32_input(outer, "w", 4);
        qn_graph_output(outer, add_loop(outer, g, 2, x, w), "x");
        assert_int_equal(qn_graph_error(outer, NULL), QN_OK);
        assert_int_equal(qn_graph_verify(outer, NULL, NULL), QN_OK);
        qn_graph_destroy(g);
        g = outer;
    }
    qn_graph *deepest = new_graph();
    add_loop(deepest, g, 2, f32_input(deepest, "x", 4), f32_input(deepest, "w", 4));
    assert_error(deepest, "more than 8 bodies in one another");
    qn_graph_destroy(g);
}

static void a_body_counts_against_the_limit(void **state) {
    (void)state;
    static buffer text;
    int fitted = 0, refused = 0;
    read_text("tests/ir/print_bodies.qir", &text);
    for (size_t limit = 1; limit < 400000; limit += 977) {
        qn_graph *g;
        qn_error error;
        qn_status status = qn_graph_parse(text.at, text.n, limit, &g, &error);
        if (status == QN_OK) {
            assert_true(g->arena.peak <= limit);
            qn_graph_destroy(g);
            fitted++;
        } else {
            assert_int_equal(status, QN_NO_MEMORY);
            refused++;
        }
    }
    assert_true(fitted > 10 && refused > 10);
}

static void a_limit_holds_while_bodies_are_copied(void **state) {
    (void)state;
    int fitted = 0, refused = 0;
    qn_graph *body = adder(4);
    for (size_t limit = 1000; limit < 200000; limit += 997) {
        qn_graph *g;
        if (qn_graph_create(limit, &g) != QN_OK) continue;
        for (int i = 0; i < 6; i++) {
            char x[8], w[8];
            snprintf(x, sizeof x, "x%d", i);
            snprintf(w, sizeof w, "w%d", i);
            add_loop(g, body, 3, f32_input(g, x, 4), f32_input(g, w, 4));
        }
        qn_status status = qn_graph_error(g, NULL);
        assert_true(status == QN_OK || status == QN_NO_MEMORY);
        assert_true(g->arena.peak <= limit);
        *(status == QN_OK ? &fitted : &refused) += 1;
        qn_graph_destroy(g);
    }
    qn_graph_destroy(body);
    assert_true(fitted > 5 && refused > 5);
}

static void every_beginning_parses_or_is_refused(void **state) {
    (void)state;
    static buffer text;
    qn_graph *g;
    qn_error error;
    read_text("tests/ir/print_bodies.qir", &text);
    for (size_t n = 0; n <= text.n; n++) {
        char *exact = malloc(n ? n : 1);
        long line = 0, column = 0;
        assert_non_null(exact);
        memcpy(exact, text.at, n);
        if (qn_graph_parse(exact, n, 0, &g, &error) == QN_OK) qn_graph_destroy(g);
        else if (sscanf(error.text, "%ld:%ld: ", &line, &column) != 2 || line < 1 || column < 1) fail_msg("%s", error.text);
        free(exact);
    }
}

/* ---- The verifier */

static const char
    looped[] = "quern graph 1\ninput %x f32[4]\ninput %w f32[4]\n%y = scan_loop %x %w {n_carry=1, length=3, body={\n"
               "  input %x f32[4]\n  input %w f32[4]\n  %z = add %x %w\n  %y = sqr %z\n  output %y \"x\"\n}}\n"
               "%z = sqr %y\noutput %z \"z\"\n";

static qn_graph *body_of(const qn_graph *g) { return g->bodies.at[0]; }

static void faults_in_bodies_come_with_those_outside(void **state) {
    (void)state;
    findings f = {0, ""};
    qn_graph *g = parse(looped);
    assert_int_equal(qn_graph_verify(g, NULL, NULL), QN_OK);
    body_of(g)->nodes.at[0].op = 30000;
    body_of(g)->nodes.at[1].label = -7;
    g->nodes.at[1].subop = 3;
    assert_int_equal(qn_graph_verify(g, collect, &f), QN_INVALID);
    assert_int_equal(f.n, 3);
    assert_non_null(strstr(f.all, "0/-1 node 0: scan_loop: body: node 0: there is no op number 30000\n"));
    assert_non_null(strstr(f.all, "0/-1 node 0: scan_loop: body: node 1: sqr: its label is no string\n"));
    assert_non_null(strstr(f.all, "1/-1 node 1: sqr has no sub-op number 3\n"));
    qn_graph_destroy(g);
}

static void spoil_owner(qn_graph *g) { g->bodies.n = 0; }
static void spoil_depth(qn_graph *g) { g->depth = 0; }
static void spoil_inputs(qn_graph *g) { body_of(g)->inputs.n = 1; }
static void spoil_input_order(qn_graph *g) { body_of(g)->inputs.at[0] = 1; }
static void spoil_output(qn_graph *g) { body_of(g)->outputs.n = 0; }
static void spoil_symbol(qn_graph *g) { qn_graph_symbol(body_of(g), "n", 1, 4, 1); }
static void spoil_param(qn_graph *g) { qn_graph_param(body_of(g), "p", QN_DTYPE_F32, 1, (int64_t[]){1}); }

static void every_spoilt_body_is_described(void **state) {
    (void)state;
    static const struct {
        void (*spoil)(qn_graph *g);
        const char *sentence;
    } ways[] = {
        {spoil_owner, "0/-1 node 0: scan_loop: body is not one of the graph's bodies"},
        {spoil_depth, "0/-1 node 0: scan_loop: body is deeper than bodies may be in one another"},
        {spoil_inputs, "0/-1 node 0: scan_loop: body: input 'w' is not number 1 of the inputs"},
        {spoil_input_order, "0/-1 node 0: scan_loop: body: input 'x' is not number 0 of the inputs"},
        {spoil_output, "0/-1 node 0: scan_loop: attribute body: gives 0 outputs, at least 1 are needed"},
        {spoil_symbol, "0/-1 node 0: scan_loop: body has other symbols"},
        {spoil_param, "0/-1 node 0: scan_loop: body: param 'p' is in a body, which has none"},
    };
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        findings f = {0, ""};
        qn_graph *g = parse(looped);
        size_t owned = g->bodies.n;
        ways[i].spoil(g);
        assert_int_equal(qn_graph_verify(g, collect, &f), QN_INVALID);
        if (!strstr(f.all, ways[i].sentence)) fail_msg("expected \"%s\" among\n%s", ways[i].sentence, f.all);
        g->bodies.n = owned;
        qn_graph_destroy(g);
    }
}

/* Memory that is updated in place must not be read under its old name afterwards, not through a view either. */
static void reading_state_after_its_update_is_a_fault(void **state) {
    (void)state;
    static const struct {
        const char *rest, *sentence;
    } ways[] = {
        {"%4 = sqr %w\n", "1/0 node 1: sqr: value 0 is read after node 0, opt_step_sgd, has updated it in place\n"},
        {"output %w \"w\"\n", "-1/0 value 0 is an output, but node 0, opt_step_sgd, updates it in place\n"},
        {"%4 = opt_step_sgd %y %g %h\n%5 = sqr %y\n", "2/3 node 2: sqr: value 3 is read after node 1, opt_step_sgd, has updated"},
        {"%4 = reshape %y {shape=(2, 1)}\n%5 = opt_step_sgd %y %g %h\n%6 = sqr %4\n",
         "3/4 node 3: sqr: value 4 is read after node 2"},
    };
    static const char fine[] = "quern graph 1\nparam %w f32[2]\ninput %g f32[2]\ninput %h f32[2]\n%y = opt_step_sgd %w %g %h\n"
                               "output %y \"y\"\n";
    qn_graph *g = parse(fine);
    assert_int_equal(qn_graph_verify(g, NULL, NULL), QN_OK);
    qn_graph_destroy(g);
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        char text[600];
        findings f = {0, ""};
        snprintf(text, sizeof text, "%s%s", fine, ways[i].rest);
        g = parse(text);
        assert_int_equal(qn_graph_verify(g, collect, &f), QN_INVALID);
        if (!strstr(f.all, ways[i].sentence)) fail_msg("expected \"%s\" among\n%s", ways[i].sentence, f.all);
        qn_graph_destroy(g);
    }
}

/* ---- Passes */

static void passes_work_in_bodies(void **state) {
    (void)state;
    static buffer text;
    qn_graph *g = parse("quern graph 1\ninput %x f32[2]\n%y = scan_loop %x {n_carry=1, length=3, body={\n  input %x f32[2]\n"
                        "  const %c f32[2] = 1, 2\n  %d = sqr %c\n  %e = sqr %x\n  %f = sqr %x\n  %g = add %e %f\n  %h = cos %x\n"
                        "  %i = add %g %d\n  output %i \"x\"\n}}\noutput %y \"y\"\n");
    qn_graph *better;
    qn_error error;
    if (qn_graph_optimise(g, &(qn_pass_options){.size = sizeof(qn_pass_options), .only = "fold,cse,dce", .flags = QN_PASS_VERIFY},
                          &better, &error) != QN_OK)
        fail_msg("%s", error.text);
    assert_string_equal(print(better, &text),
                        "quern graph 1\ninput %x f32[2]\n%1 = scan_loop %x {n_carry=1, length=3, body={\n  input %x f32[2]\n"
                        "  const %1 f32[2] = 1, 4\n  %2 = sqr %x : f32[2]\n  %3 = add %2 %2 : f32[2]\n"
                        "  %4 = add %3 %1 : f32[2]\n  output %4 \"x\"\n}} : f32[2]\noutput %1 \"y\"\n");
    int32_t changed = 0;
    qn_graph *folded;
    assert_int_equal(qn_pass_one(g, "dce", &folded, &changed, &error), QN_OK);
    assert_int_equal(changed, 1);
    qn_graph_destroy(folded);
    qn_graph_destroy(better);
    qn_graph_destroy(g);
}

/* The gradient runs the loop once more for its trajectory; merged with the loop itself it is one. */
static void a_loop_and_its_trajectory_become_one(void **state) {
    (void)state;
    qn_graph *g = parse("quern graph 1\ninput %x f32[4]\n%y = scan_loop %x {n_carry=1, length=3, body={\n  input %x f32[4]\n"
                        "  %1 = sin %x\n  output %1 \"x\"\n}}\n%l = sum %y\noutput %l \"l\"\n");
    qn_val x = 0, dx;
    qn_graph *better;
    qn_error error;
    int loops = 0;
    if (qn_graph_grad(g, qn_graph_output_value(g, 0, NULL), 1, &x, &dx) != QN_OK) fail_msg("%s", g->error.text);
    qn_graph_output(g, dx, "dx");
    for (size_t i = 0; i < g->nodes.n; i++) loops += g->nodes.at[i].op == QN_OP_scan_loop;
    assert_int_equal(loops, 3);
    assert_int_equal(qn_graph_verify(g, NULL, NULL), QN_OK);
    assert_int_equal(qn_pass_one(g, "cse", &better, NULL, &error), QN_OK);
    assert_int_equal(qn_graph_verify(better, NULL, NULL), QN_OK);
    loops = 0;
    for (size_t i = 0; i < better->nodes.n; i++) loops += better->nodes.at[i].op == QN_OP_scan_loop;
    assert_int_equal(loops, 2);
    assert_int_equal(better->nodes.at[0].n_out, 2);
    qn_graph_destroy(better);
    qn_graph_destroy(g);
}

static void gradients_that_there_are_not_say_why(void **state) {
    (void)state;
    static const struct {
        const char *body, *sentence;
    } ways[] = {
        {"%y = while_loop %x {test={\n input %x f32[1]\n output %x \"go\"\n}, body={\n input %x f32[1]\n output %x \"x\"\n}}\n",
         "node 0: while_loop has no gradient for x0: how often it runs is not known before; with max_trips it has one, and so "
         "has "
         "scan_loop"},
        {"%y = scan_loop %x {n_carry=1, length=2, body={\n input %x f32[1]\n const %g f32[1] = 1\n const %h f32[2] = 0.1, 0\n %1 "
         "= opt_step_sgd %x %g %h\n output %1 \"x\"\n}}\n",
         "the gradient of body: node 0: opt_step_sgd has no gradient: a training step is not differentiated"},
    };
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        char text[600];
        snprintf(text, sizeof text, "quern graph 1\ninput %%x f32[1]\n%soutput %%y \"y\"\n", ways[i].body);
        qn_graph *g = parse(text);
        qn_val x = 0, dx;
        assert_int_not_equal(qn_graph_grad(g, qn_graph_output_value(g, 0, NULL), 1, &x, &dx), QN_OK);
        assert_string_equal(g->error.text, ways[i].sentence);
        qn_graph_destroy(g);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_body_is_copied),
        cmocka_unit_test(symbols_of_a_body_are_found_by_name),
        cmocka_unit_test(bodies_that_do_not_fit_are_refused),
        cmocka_unit_test(bodies_nest_to_a_depth),
        cmocka_unit_test(a_body_counts_against_the_limit),
        cmocka_unit_test(a_limit_holds_while_bodies_are_copied),
        cmocka_unit_test(every_beginning_parses_or_is_refused),
        cmocka_unit_test(faults_in_bodies_come_with_those_outside),
        cmocka_unit_test(every_spoilt_body_is_described),
        cmocka_unit_test(reading_state_after_its_update_is_a_fault),
        cmocka_unit_test(passes_work_in_bodies),
        cmocka_unit_test(a_loop_and_its_trajectory_become_one),
        cmocka_unit_test(gradients_that_there_are_not_say_why),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
