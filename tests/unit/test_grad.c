/* Derivatives of graphs: checkpointing keeps bits and saves memory, sums over runs are added in place, gradients of values
 * used often do not pile up, questions that have no answer get a sentence. That the numbers are right is for `qn_check grad`
 * and `graphs`. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <quern/plan.h>

#include "cmocka_setup.h"

enum { WIDE = 64, DEEP = 32 };

static qn_val op1(qn_graph *g, int op, int subop, qn_val a) { return qn_graph_op(g, op, subop, 1, &a, NULL); }
static qn_val op2(qn_graph *g, int op, qn_val a, qn_val b) { return qn_graph_op(g, op, 0, 2, (qn_val[]){a, b}, NULL); }

static void set(qn_plan *p, const char *name, int64_t count, float *data) {
    const qn_graph *g = qn_plan_graph(p);
    qn_error e;
    for (qn_val v = 0; v < qn_graph_value_count(g); v++) {
        qn_value_info info = {.size = sizeof info};
        qn_tensor t;
        qn_graph_value(g, v, &info);
        if (!info.name || strcmp(info.name, name) != 0) continue;
        assert_int_equal(qn_tensor_init(&t, QN_DTYPE_F32, info.rank, info.shape, data, (uint64_t)count * 4), QN_OK);
        assert_int_equal(qn_plan_set(p, name, &t, &e), QN_OK);
    }
}

static const float *output(const qn_plan *p, const char *name) {
    qn_tensor t;
    qn_error e;
    assert_int_equal(qn_plan_output(p, name, &t, &e), QN_OK);
    return (const float *)(const void *)((const char *)t.data + t.offset);
}

/* Layers of norm, matmul, gelu and a residual, each under its label; the weights are shared, to keep them out of the counts. */
static qn_graph *chain(qn_val *loss, qn_val *w) {
    qn_graph *g;
    int64_t s[2] = {WIDE, WIDE};
    assert_int_equal(qn_graph_create(0, &g), QN_OK);
    qn_val x = qn_graph_input(g, "x", QN_DTYPE_F32, 2, s);
    *w = qn_graph_param(g, "w", QN_DTYPE_F32, 2, s);
    for (int i = 0; i < DEEP; i++) {
        char label[32];
        snprintf(label, sizeof label, "layer %d", i);
        qn_graph_label_push(g, label);
        qn_val h = op2(g, QN_OP_mul_mat, *w, op1(g, QN_OP_rms_norm, 0, x));
        x = op2(g, QN_OP_add, x, op1(g, QN_OP_unary, QN_UNARY_gelu, h));
        qn_graph_label_pop(g);
    }
    *loss = op1(g, QN_OP_sum, 0, op1(g, QN_OP_sqr, 0, x));
    assert_int_equal(qn_graph_error(g, NULL), QN_OK);
    return g;
}

typedef struct outcome {
    uint64_t arena, bound;
    int recomputed; /* nodes, after all passes */
    float dw[WIDE * WIDE];
} outcome;

/* Plans and runs the gradient of the chain by its weights. */
static void run_chain(const qn_grad_options *o, outcome *out) {
    static float xs[WIDE * WIDE], ws[WIDE * WIDE];
    qn_val loss, w, dw;
    qn_graph *g = chain(&loss, &w);
    qn_plan *p;
    qn_error e;
    assert_int_equal(qn_graph_grad_with(g, loss, 1, &w, o, &dw), QN_OK);
    assert_int_equal(qn_graph_verify(g, NULL, NULL), QN_OK);
    qn_graph_output(g, loss, "loss");
    qn_graph_output(g, dw, "dw");
    assert_int_equal(qn_plan_create(g, NULL, &p, &e), QN_OK);
    for (int i = 0; i < WIDE * WIDE; i++) {
        xs[i] = (float)(i % 13) / 7 - 0.8f;
        ws[i] = (float)(i * 7 % 11) / 80 - 0.06f;
    }
    set(p, "x", WIDE * WIDE, xs);
    set(p, "w", WIDE * WIDE, ws);
    assert_int_equal(qn_plan_run(p, NULL, &e), QN_OK);
    memcpy(out->dw, output(p, "dw"), sizeof out->dw);
    qn_plan_totals t = {.size = sizeof t};
    qn_plan_describe(p, &t);
    out->arena = t.arena_bytes;
    out->bound = t.lower_bound;
    out->recomputed = 0;
    for (int32_t k = 0; k < qn_graph_node_count(qn_plan_graph(p)); k++) {
        qn_node_info n = {.size = sizeof n};
        qn_graph_node(qn_plan_graph(p), k, &n);
        out->recomputed += strncmp(n.label, "recompute / ", 12) == 0 && !qn_op_describe(n.op)->is_view;
    }
    qn_plan_destroy(p);
    qn_graph_destroy(g);
}

static void checkpointing_keeps_the_bits_and_saves_memory(void **state) {
    (void)state;
    static outcome plain, cut;
    const qn_grad_options ways[] = {{.size = sizeof *ways, .checkpoint = QN_CHECKPOINT_EVERY},
                                    {.size = sizeof *ways, .checkpoint = QN_CHECKPOINT_LABELS},
                                    {.size = sizeof *ways, .checkpoint = QN_CHECKPOINT_EVERY, .every = 4}};
    run_chain(NULL, &plain);
    assert_int_equal(plain.recomputed, 0);
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        run_chain(&ways[i], &cut);
        print_message("plain %llu bytes, way %zu %llu bytes, %d nodes twice\n", (unsigned long long)plain.arena, i,
                      (unsigned long long)cut.arena, cut.recomputed);
        assert_memory_equal(plain.dw, cut.dw, sizeof plain.dw);
        assert_true(cut.recomputed > DEEP);
        assert_true(cut.arena * 2 < plain.arena);
    }
}

/* The tighter the budget, the less is kept and the more is computed again; what cannot be is refused. */
static void budget_is_kept_or_refused(void **state) {
    (void)state;
    static outcome plain, cut;
    qn_grad_options o = {.size = sizeof o, .checkpoint = QN_CHECKPOINT_BUDGET, .budget = UINT64_C(1) << 40};
    run_chain(NULL, &plain);
    run_chain(&o, &cut);
    assert_int_equal(cut.recomputed, 0);
    int before = 0;
    for (int share = 2; share <= 3; share++) {
        o.budget = plain.arena / (uint64_t)share;
        run_chain(&o, &cut);
        print_message("budget %llu: %llu bytes, %d nodes twice\n", (unsigned long long)o.budget, (unsigned long long)cut.arena,
                      cut.recomputed);
        assert_memory_equal(plain.dw, cut.dw, sizeof plain.dw);
        assert_true(cut.recomputed > before);
        assert_true(cut.arena < plain.arena);
        before = cut.recomputed;
    }
    qn_val loss, w, dw;
    qn_graph *g = chain(&loss, &w);
    qn_error e;
    o.budget = 1000;
    assert_int_equal(qn_graph_grad_with(g, loss, 1, &w, &o, &dw), QN_INVALID);
    assert_int_equal(dw, QN_VAL_NONE);
    qn_graph_error(g, &e);
    assert_non_null(strstr(e.text, "the budget is 1000"));
    qn_graph_destroy(g);
}

/* A value used many times: its gradients are added up as they arise, in place, so that two of them and their sum are all there
 * is. */
static void gradients_of_a_value_used_often_do_not_pile_up(void **state) {
    (void)state;
    enum { USES = 40, N = 1 << 12 };
    int64_t n = N;
    uint64_t before = 0;
    for (int uses = USES; uses <= 2 * USES; uses += USES) {
        qn_graph *g;
        qn_plan *p;
        qn_error e;
        assert_int_equal(qn_graph_create(0, &g), QN_OK);
        qn_val x = qn_graph_input(g, "x", QN_DTYPE_F32, 1, &n), loss = QN_VAL_NONE, dx;
        for (int i = 0; i < uses; i++) {
            qn_attr_scale at = qn_attr_scale_default();
            at.s = 1 + (float)i;
            qn_val part = op1(g, QN_OP_sum, 0, op1(g, QN_OP_unary, QN_UNARY_tanh, qn_graph_op(g, QN_OP_scale, 0, 1, &x, &at)));
            loss = i ? op2(g, QN_OP_add, loss, part) : part;
        }
        assert_int_equal(qn_graph_grad(g, loss, 1, &x, &dx), QN_OK);
        qn_graph_output(g, dx, "dx");
        qn_plan_options o = {.size = sizeof o, .flags = QN_PLAN_NO_PASSES}; /* fusion would leave fewer sums to look at */
        assert_int_equal(qn_plan_create(g, &o, &p, &e), QN_OK);
        qn_plan_totals t = {.size = sizeof t};
        qn_plan_describe(p, &t);
        print_message("%d uses: %llu bytes, %d steps in place\n", uses, (unsigned long long)t.arena_bytes, t.n_in_place);
        assert_true(t.n_in_place >= uses - 1);
        if (before) assert_true(t.arena_bytes <= before + USES * N * 4 + 4096); /* what the forward pass keeps, and no more */
        before = t.arena_bytes;
        qn_plan_destroy(p);
        qn_graph_destroy(g);
    }
}

/* Four micro-batches into one sum, which the first of them clears. */
static void gradients_add_up_over_runs(void **state) {
    (void)state;
    qn_graph *g;
    qn_plan *p;
    qn_error e;
    int64_t n = 3, one = 1;
    assert_int_equal(qn_graph_create(0, &g), QN_OK);
    qn_val x = qn_graph_input(g, "x", QN_DTYPE_F32, 1, &n), keep = qn_graph_input(g, "keep", QN_DTYPE_F32, 1, &one);
    qn_val w = qn_graph_param(g, "w", QN_DTYPE_F32, 1, &n), sum = qn_graph_param(g, "sum", QN_DTYPE_F32, 1, &n), dw;
    qn_val loss = op1(g, QN_OP_sum, 0, op2(g, QN_OP_mul, op1(g, QN_OP_sqr, 0, w), x));
    qn_grad_options o = {.size = sizeof o, .sums = &sum, .keep = &keep, .scale = 0.25f};
    assert_int_equal(qn_graph_grad_with(g, loss, 1, &w, &o, &dw), QN_OK);
    qn_graph_output(g, dw, "dw");
    assert_int_equal(qn_plan_create(g, NULL, &p, &e), QN_OK);
    float ws[3] = {1, -2, 3}, stale[3] = {NAN, 5, 7};
    set(p, "w", 3, ws);
    set(p, "sum", 3, stale);
    for (int batch = 0; batch < 2; batch++)
        for (int i = 0; i < 4; i++) {
            float xs[3] = {(float)i, 1, 2}, k = i > 0;
            set(p, "x", 3, xs);
            set(p, "keep", 1, &k);
            assert_int_equal(qn_plan_run(p, NULL, &e), QN_OK);
        }
    const float want[3] = {2 * 6 / 4.0f, -4, 12};
    for (int i = 0; i < 3; i++) assert_true(output(p, "dw")[i] == want[i]);
    qn_plan_value info = {.size = sizeof info};
    const qn_graph *planned = qn_plan_graph(p);
    qn_plan_value_describe(p, qn_graph_output_value(planned, 0, NULL), &info);
    qn_value_info root = {.size = sizeof root};
    qn_graph_value(planned, info.root, &root);
    assert_string_equal(root.name, "sum"); /* in the param's own memory */
    qn_plan_destroy(p);
    qn_graph_destroy(g);
}

static qn_graph *tanh_net(qn_val *w, qn_val *loss) {
    qn_graph *g;
    int64_t n = 3;
    assert_int_equal(qn_graph_create(0, &g), QN_OK);
    *w = qn_graph_param(g, "w", QN_DTYPE_F32, 1, &n);
    qn_graph_label_push(g, "layer 1");
    *loss = op1(g, QN_OP_sum, 0, op1(g, QN_OP_unary, QN_UNARY_tanh, *w));
    qn_graph_label_pop(g);
    return g;
}

static void expect(qn_graph *g, qn_status got, qn_status want, const char *sentence) {
    qn_error e;
    assert_int_equal(got, want);
    qn_graph_error(g, &e);
    assert_string_equal(e.text, sentence);
    qn_graph_destroy(g);
}

static void questions_without_an_answer_say_why(void **state) {
    (void)state;
    qn_val w, loss, out, grad, two;
    int64_t four = 4, n = 3;
    qn_graph *g = tanh_net(&w, &loss);
    qn_val v = qn_graph_input(g, "v", QN_DTYPE_F32, 1, &four);
    expect(g, qn_graph_hvp(g, loss, 1, &w, &v, &out), QN_INVALID,
           "hvp: a vector, input 'v', has not the shape and dtype of param 'w'");
    g = tanh_net(&w, &loss);
    v = qn_graph_input(g, "v", QN_DTYPE_F64, 1, &n);
    expect(g, qn_graph_jvp(g, 1, &w, &v, 1, &loss, &out), QN_INVALID,
           "jvp: a tangent, input 'v', has not the shape and dtype of param 'w'");
    g = tanh_net(&w, &loss);
    expect(g, qn_graph_jvp(g, 1, &w, &w, 1, (qn_val[]){99}, &out), QN_ARGUMENT, "jvp: value 99 is none of this graph's");
    g = tanh_net(&w, &loss); /* three times is too often for an activation */
    qn_graph_grad(g, loss, 1, &w, &grad);
    two = op1(g, QN_OP_sum, 0, op1(g, QN_OP_sqr, 0, grad));
    expect(g, qn_graph_hvp(g, two, 1, &w, &w, &out), QN_UNSUPPORTED,
           "node 13: unary_back2 has no gradient for x: third order is not provided");
    g = tanh_net(&w, &loss);
    qn_grad_options o = {.size = sizeof o - 1};
    expect(g, qn_graph_grad_with(g, loss, 1, &w, &o, &grad), QN_ARGUMENT, "gradient: the options are of another version");
    assert_int_equal(qn_graph_jvp(NULL, 1, &w, &w, 1, &loss, &out), QN_ARGUMENT);
    assert_int_equal(qn_graph_hvp(NULL, loss, 1, &w, &w, &out), QN_ARGUMENT);
}

/* The sentence names what makes the value: its number says nothing to who wrote the graph with names. */
static void values_without_derivatives_are_named(void **state) {
    (void)state;
    static const struct {
        int op, subop;
        const char *words;
    } MAKERS[] = {{QN_OP_argmax, 0, "what argmax gives (node 1) is i32"},
                  {QN_OP_argsort, 0, "what argsort gives (node 1) is i32"}};
    for (size_t i = 0; i <= sizeof MAKERS / sizeof *MAKERS; i++) {
        qn_graph *g;
        qn_val grad = 7;
        char sentence[200];
        assert_int_equal(qn_graph_create(0, &g), QN_OK);
        qn_val x = qn_graph_input(g, "x", QN_DTYPE_F32, 2, (int64_t[]){2, 4});
        qn_val ids = qn_graph_input(g, "ids", QN_DTYPE_I32, 1, (int64_t[]){4}), loss = op1(g, QN_OP_sum, 0, x);
        int named = i < sizeof MAKERS / sizeof *MAKERS;
        qn_val wrt = named ? op1(g, MAKERS[i].op, MAKERS[i].subop, x) : ids;
        snprintf(sentence, sizeof sentence, "gradient: %s, and only floats have derivatives",
                 named ? MAKERS[i].words : "input 'ids' is i32");
        expect(g, qn_graph_grad(g, loss, 1, &wrt, &grad), QN_INVALID, sentence);
        assert_int_equal(grad, QN_VAL_NONE);
    }
    qn_graph *g, *out;
    qn_error error = {QN_OK, ""};
    assert_int_equal(qn_graph_create(0, &g), QN_OK);
    qn_val x = qn_graph_input(g, "x", QN_DTYPE_F32, 1, (int64_t[]){4}), y = op1(g, QN_OP_unary, QN_UNARY_tanh, x);
    qn_graph_output(g, op1(g, QN_OP_sqr, 0, y), "y");
    assert_int_equal(qn_graph_vmap(g, 2, 1, &y, &out, NULL, &error), QN_INVALID);
    assert_string_equal(error.text, "vmap: what unary.tanh gives (node 0) is neither an input nor a param");
    qn_graph_destroy(g);
}

/* A derivative that wants a param as it was before a step in place is told so, where it would be run: nothing computes with the new one
 * instead. One through the step is refused at once. */
static void a_param_is_not_derived_after_its_update(void **state) {
    (void)state;
    const int64_t n = 4, two = 2;
    qn_graph *g;
    qn_plan *p = NULL;
    qn_error error;
    assert_int_equal(qn_graph_create(0, &g), QN_OK);
    qn_val x = qn_graph_input(g, "x", QN_DTYPE_F32, 1, &n), w = qn_graph_param(g, "w", QN_DTYPE_F32, 1, &n), grad;
    qn_val hyper = qn_graph_input(g, "hyper", QN_DTYPE_F32, 1, &two);
    qn_val loss = op1(g, QN_OP_sum, 0, qn_graph_op(g, QN_OP_mul, 0, 2, (qn_val[]){x, w}, NULL));
    qn_val after = qn_graph_op(g, QN_OP_opt_step_sgd, 0, 3, (qn_val[]){w, x, hyper}, NULL);
    assert_int_equal(qn_graph_grad(g, loss, 1, &x, &grad), QN_OK); /* by x it is w */
    qn_graph_output(g, grad, "dx");
    qn_graph_output(g, after, "after");
    assert_int_equal(qn_graph_verify(g, NULL, NULL), QN_INVALID);
    assert_int_equal(qn_plan_create(g, NULL, &p, &error), QN_INVALID);
    assert_non_null(strstr(error.text, "opt_step_sgd: w is updated in place, but node 5 still reads the old value"));
    expect(g, qn_graph_grad(g, op1(g, QN_OP_sum, 0, after), 1, &w, &grad), QN_INVALID,
           "node 2: opt_step_sgd has no gradient: a training step is not differentiated");
}

/* Only what was asked for is appended, under the labels of what it belongs to. */
static void tangents_leave_no_scaffolding(void **state) {
    (void)state;
    qn_val w, loss, out;
    int64_t n = 3;
    qn_graph *g = tanh_net(&w, &loss);
    qn_val v = qn_graph_input(g, "v", QN_DTYPE_F32, 1, &n);
    int32_t before = qn_graph_node_count(g);
    assert_int_equal(qn_graph_jvp(g, 1, &w, &v, 1, &loss, &out), QN_OK);
    assert_int_equal(qn_graph_node_count(g) - before, 2); /* v tanh', and the sum */
    assert_int_equal(qn_graph_verify(g, NULL, NULL), QN_OK);
    qn_node_info node = {.size = sizeof node};
    qn_graph_node(g, before, &node);
    assert_int_equal(node.op, QN_OP_unary_back);
    assert_string_equal(node.label, "tangent / layer 1");
    assert_int_equal(qn_graph_hvp(g, loss, 1, &w, &v, &out), QN_OK);
    qn_graph_node(g, qn_graph_node_count(g) - 1, &node);
    assert_string_equal(node.label, "second gradient / layer 1");
    assert_int_equal(qn_graph_verify(g, NULL, NULL), QN_OK);
    qn_graph_destroy(g);
}

/* A formula of the parts that several sources have in one result: a source that is there twice has the sum of both, and not twice
 * the same part. */
static qn_graph *second_order(int same, qn_val *wrt, qn_val *loss) {
    qn_graph *g;
    int64_t s[2] = {3, 4};
    qn_val out[3], back[3];
    assert_int_equal(qn_graph_create(0, &g), QN_OK);
    wrt[0] = qn_graph_param(g, "u", QN_DTYPE_F32, 2, s);
    wrt[1] = same ? wrt[0] : qn_graph_param(g, "w", QN_DTYPE_F32, 2, s);
    wrt[2] = same ? wrt[0] : qn_graph_param(g, "r", QN_DTYPE_F32, 2, s);
    qn_val gate[3] = {qn_graph_input(g, "g", QN_DTYPE_F32, 2, s), wrt[0], wrt[1]};
    assert_int_equal(qn_graph_apply(g, QN_OP_glu_back, QN_GLU_swiglu, 3, gate, NULL, 2, out), QN_OK);
    qn_val attend[4] = {wrt[0], wrt[1], wrt[2], out[0]};
    assert_int_equal(qn_graph_apply(g, QN_OP_attention_back, 0, 4, attend, NULL, 3, back), QN_OK);
    *loss = op1(g, QN_OP_sum, 0, op1(g, QN_OP_sqr, 0, back[1])); /* the part of the second alone */
    return g;
}

static void run_second_order(int same, float *grad) {
    qn_val wrt[3], loss, d[3];
    float data[12], gs[12];
    qn_graph *g = second_order(same, wrt, &loss);
    qn_plan *p;
    qn_error e;
    int n = same ? 1 : 3;
    assert_int_equal(qn_graph_grad(g, loss, n, wrt, d), QN_OK);
    for (int i = 1; i < n; i++) d[0] = op2(g, QN_OP_add, d[0], d[i]);
    qn_graph_output(g, op1(g, QN_OP_cumsum, 0, d[0]), "sums");
    assert_int_equal(qn_plan_create(g, NULL, &p, &e), QN_OK);
    for (int i = 0; i < 12; i++) {
        data[i] = (float)(i % 5) / 3 - 0.6f;
        gs[i] = (float)(i % 7) / 5 - 0.5f;
    }
    set(p, "g", 12, gs);
    for (int i = 0; i < n; i++) set(p, (const char *[]){"u", "w", "r"}[i], 12, data);
    assert_int_equal(qn_plan_run(p, NULL, &e), QN_OK);
    memcpy(grad, output(p, "sums"), 12 * sizeof *grad);
    qn_plan_destroy(p);
    qn_graph_destroy(g);
}

static void a_value_in_two_places_has_two_parts(void **state) {
    (void)state;
    float apart[12], together[12];
    run_second_order(0, apart);
    run_second_order(1, together);
    for (int i = 0; i < 12; i++) assert_float_equal(apart[i], together[i], 1e-5f);
}

static void constants_of_weights_have_no_gradient(void **state) {
    (void)state;
    qn_graph *g;
    qn_error e;
    int64_t x[2] = {2, 32}, w[2] = {32, 3}, s[2] = {1, 3};
    qn_val d;
    assert_int_equal(qn_graph_create(0, &g), QN_OK);
    qn_val src[3] = {qn_graph_input(g, "x", QN_DTYPE_F32, 2, x), qn_graph_param(g, "w", QN_DTYPE_I8, 2, w),
                     qn_graph_param(g, "s", QN_DTYPE_F32, 2, s)};
    qn_val loss = op1(g, QN_OP_sum, 0, qn_graph_op(g, QN_OP_dequant_matmul, 0, 3, src, NULL));
    assert_int_equal(qn_graph_grad(g, loss, 1, &src[0], &d), QN_OK);
    assert_int_equal(qn_graph_grad(g, loss, 1, &src[2], &d), QN_UNSUPPORTED);
    qn_graph_error(g, &e);
    assert_non_null(strstr(e.text, "dequant_matmul has no gradient for scale"));
    qn_graph_destroy(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(checkpointing_keeps_the_bits_and_saves_memory),
        cmocka_unit_test(budget_is_kept_or_refused),
        cmocka_unit_test(gradients_of_a_value_used_often_do_not_pile_up),
        cmocka_unit_test(gradients_add_up_over_runs),
        cmocka_unit_test(questions_without_an_answer_say_why),
        cmocka_unit_test(values_without_derivatives_are_named),
        cmocka_unit_test(a_param_is_not_derived_after_its_update),
        cmocka_unit_test(tangents_leave_no_scaffolding),
        cmocka_unit_test(a_value_in_two_places_has_two_parts),
        cmocka_unit_test(constants_of_weights_have_no_gradient),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
