/* Branches and loops that run: against arithmetic; inside a cap, with other extents, cancelled, timed and recorded, and refused where
 * they must be. */
#include <pthread.h>
#include <time.h>

#include "control_help.h"

/* ---- What they compute */

static void scan_adds_up(void **state) {
    (void)state;
    static const char
        text[] = "quern graph 1\ninput %%x f32[4, 2]\ninput %%z f32[2]\n"
                 "%%s, %%y, %%t = scan_loop %%z %%x {n_carry=1, n_xs=1, reverse=%d, body={\n"
                 "  input %%s f32[2]\n  input %%x f32[2]\n  %%2 = add %%s %%x\n  output %%2 \"s\"\n  output %%2 \"y\"\n}}\n"
                 "output %%s \"s\"\noutput %%y \"y\"\noutput %%t \"t\"\n";
    const float x[8] = {1, 10, 2, 20, 3, 30, 4, 40}, z[2] = {0.5f, 0};
    const float forward[8] = {1.5f, 10, 3.5f, 30, 6.5f, 60, 10.5f, 100}, backward[8] = {10.5f, 100, 9.5f, 90, 7.5f, 70, 4.5f, 40};
    for (int reverse = 0; reverse < 2; reverse++) {
        char made[600];
        snprintf(made, sizeof made, text, reverse);
        qn_graph *g = parse(made);
        qn_plan *p = plan_of(g);
        set(p, "x", x);
        set(p, "z", z);
        for (int again = 0; again < 2; again++) {
            run(p);
            assert_memory_equal(output(p, "y"), reverse ? backward : forward, sizeof forward);
            assert_memory_equal(output(p, "s"), ((float[]){10.5f, 100}), sizeof z);
            const float *t = output(p, "t"), *y = output(p, "y"); /* what came in is what went out one slice before */
            for (int i = 0; i < 3; i++)
                assert_memory_equal(t + (reverse ? 2 * i : 2 * i + 2), y + (reverse ? 2 * i + 2 : 2 * i), 8);
            assert_memory_equal(t + (reverse ? 6 : 0), z, sizeof z);
        }
        qn_plan_destroy(p);
        qn_graph_destroy(g);
    }
}

static qn_graph *newton(int max_trips) {
    static const char text[] =
        "quern graph 1\ninput %a f64[1]\ninput %y f64[1]\nconst %n f64[1] = 0\n%r, %t = while_loop %y %n %a {max_trips=@, "
        "test={\n"
        "  input %y f64[1]\n  input %n f64[1]\n  input %a f64[1]\n  const %e f64[1] = 1e-12\n  %s = mul %y %y\n  %d = sub %s %a\n"
        "  %b = unary.abs %d\n  %c = compare.gt %b %e\n  output %c \"go\"\n}, body={\n"
        "  input %y f64[1]\n  input %n f64[1]\n  input %a f64[1]\n  %q = div %a %y\n  %s = add %y %q\n  %h = scale %s {s=0.5}\n"
        "  %m = scale %n {s=1, b=1}\n  output %h \"y\"\n  output %m \"n\"\n}}\noutput %r \"root\"\noutput %t \"trips\"\n";
    char made[sizeof text];
    memcpy(made, text, sizeof text);
    *strchr(made, '@') = (char)('0' + max_trips);
    return parse(made);
}

static void while_finds_a_root(void **state) {
    (void)state;
    qn_graph *g = newton(0);
    qn_plan *p = plan_of(g);
    const double from[3] = {2, 1e-6, 144}, start[3] = {1, 1e-3, 12};
    for (int i = 0; i < 3; i++) {
        set(p, "a", &from[i]);
        set(p, "y", &start[i]);
        run(p);
        assert_true(fabs(*(const double *)output(p, "root") - sqrt(from[i])) < 1e-9);
        assert_true((*(const double *)output(p, "trips") == 0) == (i > 0)); /* the last two are roots to begin with */
    }
    qn_plan_destroy(p);
    qn_graph_destroy(g);
    g = newton(2);
    p = plan_of(g);
    set(p, "a", &from[0]);
    set(p, "y", &start[0]);
    run(p);
    assert_true(*(const double *)output(p, "trips") == 2);
    assert_true(fabs(*(const double *)output(p, "root") - 17.0 / 12) < 1e-15);
    qn_plan_destroy(p);
    qn_graph_destroy(g);
}

/* Only one side runs: the other would divide an index by nothing there. */
static void cond_takes_one_side(void **state) {
    (void)state;
    qn_graph *g = parse(
        "quern graph 1\ninput %p i32[1]\ninput %x f32[3]\ninput %i i32[1]\n%y, %z = cond %p %x %i {then_body={\n"
        "  input %x f32[3]\n  input %i i32[1]\n  %2 = gather %x %i\n  output %x \"x\"\n  output %2 \"z\"\n}, else_body={\n"
        "  input %x f32[3]\n  input %i i32[1]\n  %2 = sqr %x\n  %3 = sum %2\n  output %2 \"x\"\n  output %3 \"z\"\n}}\n"
        "output %y \"y\"\noutput %z \"z\"\n");
    qn_plan *p = plan_of(g);
    qn_error error;
    int32_t yes = -3, no = 0, good = 2, bad = 7;
    const float x[3] = {1, 2, 3};
    set(p, "x", x);
    set(p, "p", &yes);
    set(p, "i", &good);
    run(p);
    assert_memory_equal(output(p, "y"), x, sizeof x);
    assert_true(*(const float *)output(p, "z") == 3);
    set(p, "i", &bad);
    assert_int_equal(qn_plan_run(p, NULL, &error), QN_RANGE);
    assert_string_equal(error.text,
                        "node 0: cond: then_body: node 0: gather: idx: index number 0 is 7, it must be at least 0 and below 3");
    set(p, "p", &no);
    run(p);
    assert_memory_equal(output(p, "y"), ((float[]){1, 4, 9}), sizeof x);
    assert_true(*(const float *)output(p, "z") == 14);
    qn_plan_destroy(p);
    qn_graph_destroy(g);
}

/* Results that cannot be written where they go: what came in, the same twice, turned round, a constant; and none at all. */
static void results_of_every_kind_arrive(void **state) {
    (void)state;
    qn_graph *g = parse(
        "quern graph 1\ninput %a f32[2, 3]\ninput %b f32[3, 2]\ninput %xs f32[3, 2]\n"
        "%p, %q, %r, %s, %t, %u = scan_loop %a %b %xs {n_carry=2, n_xs=1, body={\n"
        "  input %a f32[2, 3]\n  input %b f32[3, 2]\n  input %x f32[2]\n  const %c f32[1] = 7\n"
        "  %4 = transpose %b\n  %5 = transpose %a\n  %6 = sum %x\n"
        "  output %4 \"a\"\n  output %5 \"b\"\n  output %x \"x\"\n  output %6 \"s\"\n  output %6 \"s2\"\n  output %c \"c\"\n}}\n"
        "%o = scan_loop %a %b %xs {n_carry=2, n_xs=1, body={\n"
        "  input %a f32[2, 3]\n  input %b f32[3, 2]\n  input %x f32[2]\n  %3 = scale %a {s=2}\n"
        "  output %3 \"a\"\n  output %b \"b\"\n  output %x \"x\"\n}}\n"
        "output %p \"p\"\noutput %q \"q\"\noutput %r \"r\"\noutput %s \"s\"\noutput %t \"t\"\noutput %u \"u\"\noutput %o "
        "\"o\"\n");
    const float a[6] = {1, 2, 3, 4, 5, 6}, b[6] = {10, 20, 30, 40, 50, 60}, xs[6] = {1, 2, 3, 4, 5, 6};
    for (uint32_t flags = 0; flags < 4; flags++) { /* with and without passes and kernels */
        qn_plan *p = plan_with(g, &(qn_plan_options){.size = sizeof(qn_plan_options), .flags = flags});
        set(p, "a", a);
        set(p, "b", b);
        set(p, "xs", xs);
        run(p);
        assert_memory_equal(output(p, "p"), ((float[]){10, 30, 50, 20, 40, 60}), sizeof a); /* turned three times */
        assert_memory_equal(output(p, "q"), ((float[]){1, 4, 2, 5, 3, 6}), sizeof a);
        assert_memory_equal(output(p, "r"), xs, sizeof xs);
        assert_memory_equal(output(p, "s"), ((float[]){3, 7, 11}), 12);
        assert_memory_equal(output(p, "t"), ((float[]){3, 7, 11}), 12);
        assert_memory_equal(output(p, "u"), ((float[]){7, 7, 7}), 12);
        assert_memory_equal(output(p, "o"), ((float[]){8, 16, 24, 32, 40, 48}), sizeof a);
        qn_plan_destroy(p);
    }
    qn_graph_destroy(g);
}

static void a_loop_of_no_trips_gives_what_it_got(void **state) {
    (void)state;
    qn_graph *g = parse(
        "quern graph 1\ninput %a f32[2]\ninput %xs f32[0, 2]\n%y, %z = scan_loop %a %xs {n_carry=1, n_xs=1, body={\n"
        "  input %a f32[2]\n  input %x f32[2]\n  %2 = add %a %x\n  output %2 \"a\"\n  output %2 \"y\"\n}}\n"
        "output %y \"y\"\noutput %z \"z\"\n");
    qn_plan *p = plan_of(g);
    const float a[2] = {3, 4};
    set(p, "a", a);
    set(p, "xs", a);
    run(p);
    assert_memory_equal(output(p, "y"), a, sizeof a);
    qn_plan_destroy(p);
    qn_graph_destroy(g);
}

/* What is carried may be updated in place, over and over; what was handed in stays as it was. */
/* Of t only the first row is given, so that there is no room for the rest where it goes: w lies right behind. */
static void a_part_of_a_value_arrives_alone(void **state) {
    (void)state;
    qn_graph *g = parse(
        "quern graph 1\ninput %p f32[1]\ninput %x f32[16, 4]\n%y, %w = cond %p %x {then_body={\n  input %x f32[16, 4]\n"
        "  %l = narrow %x {axis=0, start=15, length=1}\n  %w = unary.neg %l\n  %t = unary.neg %x\n"
        "  %y = narrow %t {axis=0, start=0, length=1}\n  output %y \"y\"\n  output %w \"w\"\n}, else_body={\n"
        "  input %x f32[16, 4]\n  %t = unary.exp %x\n  %u = softmax %t\n  %y = narrow %u {axis=0, start=1, length=1}\n"
        "  output %y \"y\"\n  output %y \"w\"\n}}\noutput %y \"y\"\noutput %w \"w\"\n");
    float x[64];
    for (int i = 0; i < 64; i++) x[i] = (float)i;
    qn_plan *p = plan_of(g);
    set(p, "p", (float[]){1});
    set(p, "x", x);
    run(p);
    assert_memory_equal(output(p, "y"), ((float[]){-0.0f, -1, -2, -3}), 16);
    assert_memory_equal(output(p, "w"), ((float[]){-60, -61, -62, -63}), 16);
    qn_plan_destroy(p);
    qn_graph_destroy(g);
}

static void carries_may_be_updated_in_place(void **state) {
    (void)state;
    qn_graph *g = parse(
        "quern graph 1\ninput %w f32[2]\ninput %g f32[2]\nconst %h f32[2] = 0.5, 0\n"
        "%y = scan_loop %w %g %h {n_carry=1, length=3, body={\n  input %w f32[2]\n  input %g f32[2]\n  input %h f32[2]\n"
        "  %3 = opt_step_sgd %w %g %h\n  output %3 \"w\"\n}}\n%s = add %y %w\noutput %y \"y\"\noutput %s \"s\"\n");
    qn_plan *p = plan_of(g);
    const float w[2] = {10, 20}, grad[2] = {2, 4};
    set(p, "w", w);
    set(p, "g", grad);
    for (int again = 0; again < 3; again++) {
        run(p);
        assert_memory_equal(output(p, "y"), ((float[]){7, 14}), sizeof w);
        assert_memory_equal(output(p, "s"), ((float[]){17, 34}), sizeof w);
    }
    qn_plan_destroy(p);
    qn_graph_destroy(g);
}

/* ---- Plans with bodies */

static void other_extents_bind_bodies_too(void **state) {
    (void)state;
    qn_graph *g = parse(
        "quern graph 1\nsymbol n 1..8\nsymbol m 1..4\ninput %xs f32[n, m]\ninput %z f32[m]\n"
        "%s, %ys = scan_loop %z %xs {n_carry=1, n_xs=1, body={\n  input %s f32[m]\n  input %x f32[m]\n  %2 = add %s %x\n"
        "  %3 = sum %2\n  output %2 \"s\"\n  output %3 \"y\"\n}}\noutput %s \"s\"\noutput %ys \"ys\"\n");
    qn_plan *p = plan_of(g);
    for (int64_t n = 1; n <= 8; n += 3)
        for (int64_t m = 1; m <= 4; m++) {
            float xs[32], z[4], sum[4] = {0};
            for (int64_t i = 0; i < n * m; i++) xs[i] = (float)(i + 1);
            for (int64_t k = 0; k < m; k++) sum[k] = z[k] = (float)k;
            set_shape(p, "xs", QN_DTYPE_F32, 2, (int64_t[]){n, m}, xs);
            set_shape(p, "z", QN_DTYPE_F32, 1, &m, z);
            run(p);
            float total = 0;
            for (int64_t i = 0; i < n; i++) {
                total = 0;
                for (int64_t k = 0; k < m; k++) total += sum[k] += xs[i * m + k];
                assert_true(((const float *)output(p, "ys"))[i] == total);
            }
            assert_memory_equal(output(p, "s"), sum, sizeof *sum * (size_t)m);
        }
    qn_plan_destroy(p);
    qn_graph_destroy(g);
}

/* The bodies' memory is in the totals, so a cap covers it. */
static void a_cap_covers_bodies(void **state) {
    (void)state;
    qn_graph *g = parse(
        "quern graph 1\ninput %x f32[1000]\n%y = scan_loop %x {n_carry=1, length=3, body={\n  input %x f32[1000]\n"
        "  %1 = sin %x\n  %2 = cos %x\n  %3 = mul %1 %2\n  %4 = add %1 %3\n  output %4 \"x\"\n}}\noutput %y \"y\"\n");
    const uint32_t flags = QN_PLAN_NO_PASSES | QN_PLAN_REFERENCE; /* no scratch of kernels beside what the loop itself needs */
    qn_plan *p = plan_with(g, &(qn_plan_options){.size = sizeof(qn_plan_options), .flags = flags});
    qn_plan_totals t = {.size = sizeof t};
    qn_error error;
    assert_int_equal(qn_plan_describe(p, &t), QN_OK);
    assert_true(t.scratch_bytes >= 2 * 4000 + 4000 &&
                t.scratch_bytes < 5 * 4096); /* two carries, and what the body needs at once */
    assert_int_equal(t.n_steps, 5);
    qn_plan_destroy(p);
    qn_plan_options o = {.size = sizeof o, .memory_cap = t.host_bytes, .flags = flags};
    assert_int_equal(qn_plan_create(g, &o, &p, &error), QN_OK);
    qn_plan_destroy(p);
    o.memory_cap = t.host_bytes - 1;
    assert_int_equal(qn_plan_create(g, &o, &p, &error), QN_NO_MEMORY);
    assert_non_null(strstr(error.text, "scratch"));
    qn_graph_destroy(g);
}

static void steps_of_bodies_are_counted_and_timed(void **state) {
    (void)state;
    qn_graph *g = parse(
        "quern graph 1\ninput %x f32[8]\ninput %p bool[1]\n%y = scan_loop %x %p {n_carry=1, length=5, body={\n  input %x f32[8]\n"
        "  input %p bool[1]\n  %2 = cond %p %x {then_body={\n    input %x f32[8]\n    %1 = sin %x @\"inner\"\n    output %1 "
        "\"x\"\n"
        "  }, else_body={\n    input %x f32[8]\n    output %x \"x\"\n  }}\n  %3 = sqr %2 @\"square\"\n  output %3 \"x\"\n}} "
        "@\"loop\"\noutput %y \"y\"\n");
    qn_plan *p = plan_with(g, &(qn_plan_options){.size = sizeof(qn_plan_options), .flags = QN_PLAN_TIMED});
    const float x[8] = {1, 2, 3};
    const uint8_t yes = 1;
    set(p, "x", x);
    set(p, "p", &yes);
    run(p);
    static const struct {
        const char *op, *how;
        uint64_t runs;
    } want[] = {{"scan_loop", "bodies", 1}, {"cond", "bodies", 5}, {"sqr", "", 5}, {"sin", "", 5}};
    for (int i = 0; i < 4; i++) {
        qn_plan_step_info s = {.size = sizeof s};
        qn_node_info n = {.size = sizeof n};
        assert_int_equal(qn_plan_step_describe(p, i, &s), QN_OK);
        assert_int_equal(qn_graph_node(s.graph, s.node, &n), QN_OK);
        assert_string_equal(qn_op_describe(n.op)->name, want[i].op);
        if (*want[i].how) assert_string_equal(s.how, want[i].how);
        assert_int_equal(s.runs, want[i].runs);
    }
    qn_plan_step_info s = {.size = sizeof s};
    assert_int_equal(qn_plan_step_describe(p, 4, &s), QN_ARGUMENT);
    qn_plan_destroy(p);
    qn_graph_destroy(g);
}

static void recorded_bodies_leave_events(void **state) {
    (void)state;
    char folder[] = "quern-control-XXXXXX";
    qn_graph *g = parse("quern graph 1\ninput %x f32[8]\n%y = scan_loop %x {n_carry=1, length=5, body={\n  input %x f32[8]\n"
                        "  %1 = sin %x @\"wave\"\n  output %1 \"x\"\n}} @\"loop\"\noutput %y \"y\"\n");
    qn_plan *p = plan_of(g);
    qn_context *context;
    qn_recorder *recorder;
    qn_error e;
    const char *path;
    const float x[8] = {1, 2, 3};
    assert_non_null(mkdtemp(folder));
    set(p, "x", x);
    qn_recorder_options o = qn_recorder_options_default();
    o.folder = folder;
    assert_int_equal(qn_recorder_create(&o, &recorder, &e), QN_OK);
    assert_int_equal(qn_context_create(NULL, &context), QN_OK);
    assert_int_equal(qn_recorder_attach(recorder, context, "main", &e), QN_OK);
    assert_int_equal(qn_plan_run(p, context, &e), QN_OK);
    assert_int_equal(qn_recorder_write(recorder, &path, &e), QN_OK);
    char text[65536];
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    text[fread(text, 1, sizeof text - 1, file)] = 0;
    fclose(file);
    int loops = 0, waves = 0;
    for (const char *at = text; (at = strstr(at, "\"quern::scan_loop")); at++) loops++;
    for (const char *at = text; (at = strstr(at, "\"quern::sin")); at++) waves++;
    assert_int_equal(loops, 1);
    assert_int_equal(waves, 5);
    assert_non_null(strstr(text, "wave"));
    remove(path);
    remove(folder);
    qn_context_destroy(context);
    qn_recorder_destroy(recorder);
    qn_plan_destroy(p);
    qn_graph_destroy(g);
}

static void *cancel_soon(void *plan) {
    nanosleep(&(struct timespec){0, 30000000}, NULL);
    qn_plan_cancel(plan);
    return NULL;
}

static void an_endless_loop_can_be_cancelled(void **state) {
    (void)state;
    qn_graph *g = parse(
        "quern graph 1\ninput %go f32[1]\n%y = while_loop %go {test={\n  input %x f32[1]\n  output %x \"go\"\n}, body={\n"
        "  input %x f32[1]\n  output %x \"x\"\n}}\noutput %y \"y\"\n");
    qn_plan *p = plan_of(g);
    qn_error error;
    pthread_t thread;
    const float yes = 1, no = 0;
    set(p, "go", &yes);
    assert_int_equal(pthread_create(&thread, NULL, cancel_soon, p), 0);
    assert_int_equal(qn_plan_run(p, NULL, &error), QN_CANCELLED);
    pthread_join(thread, NULL);
    assert_non_null(strstr(error.text, "cancelled in node 0, while_loop, before trip "));
    set(p, "go", &no);
    run(p);
    qn_plan_destroy(p);
    qn_graph_destroy(g);
}

static void errors_in_bodies_say_where(void **state) {
    (void)state;
    qn_graph *g = parse("quern graph 1\ninput %t f32[3]\ninput %is i32[3, 1]\n%ys = scan_loop %is %t {n_carry=0, n_xs=1, body={\n"
                        "  input %i i32[1]\n  input %t f32[3]\n  %2 = gather %t %i\n  output %2 \"y\"\n}}\noutput %ys \"y\"\n");
    qn_plan *p = plan_of(g);
    qn_error error;
    const float t[3] = {5, 6, 7};
    const int32_t good[3] = {2, 0, 1}, bad[3] = {2, 3, 1};
    set(p, "t", t);
    set(p, "is", good);
    run(p);
    assert_memory_equal(output(p, "y"), ((float[]){7, 5, 6}), sizeof t);
    set(p, "is", bad);
    assert_int_equal(qn_plan_run(p, NULL, &error), QN_RANGE);
    assert_string_equal(error.text,
                        "node 0: scan_loop: body, trip 1: node 0: gather: idx: index number 0 is 3, it must be at least 0 "
                        "and below 3");
    qn_plan_destroy(p);
    qn_graph_destroy(g);
}

static void a_request_by_itself_is_refused(void **state) {
    (void)state;
    qn_context *context;
    qn_result r;
    qn_tensor t;
    float x = 1;
    char text[200];
    assert_int_equal(qn_context_create(NULL, &context), QN_OK);
    assert_int_equal(qn_tensor_init(&t, QN_DTYPE_F32, 1, (int64_t[]){1}, &x, sizeof x), QN_OK);
    qn_attr_cond at = qn_attr_cond_default();
    qn_request q = {.size = sizeof q,
                    .version = QN_REQUEST_VERSION,
                    .op = QN_OP_cond,
                    .n_src = 1,
                    .n_dst = 1,
                    .src = {&t},
                    .dst = {&t},
                    .attr = &at};
    assert_int_equal(qn_dispatch(context, &q, &r), QN_UNSUPPORTED);
    qn_result_format(&r, text, sizeof text);
    assert_string_equal(text, "cond: it has bodies, which run in a plan only");
    qn_context_destroy(context);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scan_adds_up),
        cmocka_unit_test(while_finds_a_root),
        cmocka_unit_test(cond_takes_one_side),
        cmocka_unit_test(results_of_every_kind_arrive),
        cmocka_unit_test(a_loop_of_no_trips_gives_what_it_got),
        cmocka_unit_test(a_part_of_a_value_arrives_alone),
        cmocka_unit_test(carries_may_be_updated_in_place),
        cmocka_unit_test(other_extents_bind_bodies_too),
        cmocka_unit_test(a_cap_covers_bodies),
        cmocka_unit_test(steps_of_bodies_are_counted_and_timed),
        cmocka_unit_test(recorded_bodies_leave_events),
        cmocka_unit_test(an_endless_loop_can_be_cancelled),
        cmocka_unit_test(errors_in_bodies_say_where),
        cmocka_unit_test(a_request_by_itself_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
