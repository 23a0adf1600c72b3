/* A scan over tokens that is written with products and sums, one step of the gated delta rule for each: planned with all passes it
 * becomes delta_rule, which the CPU's kernel runs, and gives what the scan gives. */
#include "control_help.h"

enum { HEADS = 4, KEYS = 32, VALUES = 40, STATE = HEADS * VALUES * KEYS };

static const char text[] = "quern graph 1\n"
                           "input %%s f32[4, 40, 32]\ninput %%q f32[%d, 4, 32]\ninput %%k f32[%d, 4, 32]\n"
                           "input %%v f32[%d, 4, 40]\ninput %%h f32[%d, 4]\ninput %%b f32[%d, 4]\n"
                           "%%a = unary.sigmoid %%h\n%%g = unary.neg %%a\n%%c = unary.sigmoid %%b\n%%n = l2_norm %%k\n"
                           "%%1, %%2 = scan_loop %%s %%q %%n %%v %%g %%c {n_carry=1, n_xs=5, body={\n"
                           "  input %%s f32[4, 40, 32]\n  input %%q f32[4, 32]\n  input %%k f32[4, 32]\n"
                           "  input %%v f32[4, 40]\n  input %%g f32[4]\n  input %%b f32[4]\n"
                           "  %%6 = unary.exp %%g\n  %%7 = reshape %%6 {shape=(4, 1, 1)}\n  %%8 = arith.mul %%s %%7\n"
                           "  %%9 = reshape %%k {shape=(4, 32, 1)}\n  %%10 = matmul %%8 %%9\n"
                           "  %%11 = reshape %%v {shape=(4, 40, 1)}\n  %%12 = arith.sub %%11 %%10\n"
                           "  %%13 = reshape %%b {shape=(4, 1, 1)}\n  %%14 = arith.mul %%12 %%13\n"
                           "  %%15 = reshape %%k {shape=(4, 1, 32)}\n  %%16 = matmul %%14 %%15\n  %%17 = arith.add %%8 %%16\n"
                           "  %%18 = reshape %%q {shape=(4, 32, 1)}\n  %%19 = matmul %%17 %%18\n"
                           "  %%20 = reshape %%19 {shape=(4, 40)}\n  output %%17 \"s\"\n  output %%20 \"y\"\n"
                           "}} : f32[4, 40, 32], f32[%d, 4, 40]\noutput %%1 \"last\"\noutput %%2 \"y\"\n";

/* Runs it; the numbers of both outputs, the state first. */
static void compute(qn_plan *p, int tokens, float *out) {
    static const char *const names[] = {"s", "q", "k", "v", "h", "b"};
    const int counts[] = {STATE,          tokens * HEADS * KEYS, tokens * HEADS * KEYS, tokens * HEADS * VALUES,
                          tokens * HEADS, tokens * HEADS};
    static float data[6][150 * HEADS * VALUES];
    uint64_t state = 3;
    for (int i = 0; i < 6; i++) {
        for (int j = 0; j < counts[i]; j++) data[i][j] = (float)number(&state);
        set(p, names[i], data[i]);
    }
    run(p);
    memcpy(out, output(p, "last"), STATE * sizeof *out);
    memcpy(out + STATE, output(p, "y"), (size_t)(tokens * HEADS * VALUES) * sizeof *out);
}

/* How many steps run that kernel. */
static int steps_with(const qn_plan *p, const char *kernel) {
    qn_plan_step_info s = {.size = sizeof s};
    int n = 0;
    for (int i = 0; qn_plan_step_describe(p, i, &s) == QN_OK; i++) n += strstr(s.kernel, kernel) != NULL;
    return n;
}

static void check_length(int tokens) {
    static float want[STATE + 150 * HEADS * VALUES], have[STATE + 150 * HEADS * VALUES];
    char whole[3000];
    int n = STATE + tokens * HEADS * VALUES;
    double error = 0, size = 0;
    snprintf(whole, sizeof whole, text, tokens, tokens, tokens, tokens, tokens, tokens);
    qn_graph *g = parse(whole);
    qn_pass_options fast = {.size = sizeof fast, .flags = QN_PASS_FAST};
    qn_plan_options plain = {.size = sizeof plain, .flags = QN_PLAN_REFERENCE | QN_PLAN_NO_PASSES};
    qn_plan_options quick = {.size = sizeof quick, .passes = &fast};
    qn_plan *loop = plan_with(g, &plain), *rule = plan_with(g, &quick), *kept = plan_of(g);
    assert_int_equal(steps_with(rule, "delta rule rows"), 1);
    assert_int_equal(steps_with(rule, "scan_loop"), 0);
    assert_int_equal(steps_with(kept, "delta rule rows"), 0); /* it changes results, so only when it may */
    compute(loop, tokens, want);
    compute(rule, tokens, have);
    for (int i = 0; i < n; i++) {
        error = fmax(error, fabs((double)have[i] - (double)want[i]));
        size = fmax(size, fabs((double)want[i]));
    }
    assert_true(error <= 1e-5 * size);
    assert_true(size > 0.1);
    qn_plan_destroy(loop);
    qn_plan_destroy(rule);
    qn_plan_destroy(kept);
    qn_graph_destroy(g);
}

static void a_scan_is_planned_as_the_rule(void **state) {
    (void)state;
    check_length(1);
    check_length(5);
    check_length(64); /* by chunks, as the pass says; the kernel goes token by token */
    check_length(150);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_scan_is_planned_as_the_rule)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
