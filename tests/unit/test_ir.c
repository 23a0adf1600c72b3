/* .qir text and the verifier: files that print as they are, files that are refused with the sentence they foretell, graphs spoilt in
 * every way the verifier knows. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ir/graph.h"

#include "ir_help.h"

/* Files of tests/ir whose names begin so; returns how many. */
static int for_each_file(const char *beginning, void (*check)(const char *path)) {
    DIR *folder = opendir("tests/ir");
    int n = 0;
    assert_non_null(folder);
    for (struct dirent *e; (e = readdir(folder)) != NULL;) {
        char path[512];
        if (strncmp(e->d_name, beginning, strlen(beginning)) != 0) continue;
        snprintf(path, sizeof path, "tests/ir/%s", e->d_name);
        check(path);
        n++;
    }
    closedir(folder);
    return n;
}

static void print_fault(void *user, const qn_graph_fault *fault) {
    (void)user;
    print_message("%s\n", fault->text);
}

static void check_prints_itself(const char *path) {
    static buffer text, printed;
    qn_graph *g;
    qn_error error;
    read_text(path, &text);
    printed.n = 0;
    if (qn_graph_parse(text.at, text.n, 0, &g, &error) != QN_OK) fail_msg("%s:%s", path, error.text);
    assert_int_equal(qn_graph_verify(g, print_fault, NULL), QN_OK);
    assert_int_equal(qn_graph_print(g, append, &printed, &error), QN_OK);
    assert_string_equal(printed.at, text.at);
    qn_graph_destroy(g);
}

static void normal_text_prints_as_it_is(void **state) {
    (void)state;
    assert_true(for_each_file("print_", check_prints_itself) >= 7);
}

static void check_is_refused(const char *path) {
    static buffer text;
    char foretold[512] = "";
    qn_graph *g = (qn_graph *)&text;
    qn_error error;
    read_text(path, &text);
    assert_int_equal(sscanf(text.at, "# expect: %511[^\n]", foretold), 1);
    assert_int_not_equal(qn_graph_parse(text.at, text.n, 0, &g, &error), QN_OK);
    assert_null(g);
    if (strcmp(error.text, foretold) != 0) fail_msg("%s: \"%s\", foretold \"%s\"", path, error.text, foretold);
}

static void bad_text_is_refused_with_its_place(void **state) {
    (void)state;
    assert_true(for_each_file("bad_", check_is_refused) >= 50);
}

static void every_beginning_of_a_text_parses_or_is_refused(void **state) {
    (void)state;
    static buffer text;
    qn_graph *g;
    qn_error error;
    read_text("tests/ir/print_conv.qir", &text);
    for (size_t n = 0; n <= text.n; n++) {
        char *exact = malloc(n ? n : 1);
        assert_non_null(exact);
        memcpy(exact, text.at, n);
        if (qn_graph_parse(exact, n, 0, &g, &error) == QN_OK) qn_graph_destroy(g);
        else assert_non_null(strstr(error.text, ": "));
        free(exact);
    }
}

/* The hash of names, so that names can be made which all want one place. */
static uint32_t name_hash(const char *name) {
    uint32_t h = 2166136261u;
    for (; *name; name++) h = (h ^ (unsigned char)*name) * 16777619u;
    return h ^ h >> 15;
}

static void refuse_collisions(const char *statement, qn_status status) {
    enum { NAMES = 900, PLACES = 4096 }; /* no table of so many names is larger */
    char name[16], *text;
    size_t bytes;
    FILE *file = open_memstream(&text, &bytes);
    assert_non_null(file);
    fputs("quern graph 1\ninput %x f32[1]\n", file);
    for (uint32_t i = 0, n = 0; n < NAMES; i++) {
        snprintf(name, sizeof name, "n%07x", i);
        if (name_hash(name) % PLACES != 5) continue;
        fprintf(file, statement, name);
        n++;
    }
    fclose(file);
    qn_graph *g = NULL;
    qn_error error;
    assert_int_equal(qn_graph_parse(text, bytes, 0, &g, &error), status);
    assert_non_null(strstr(error.text, "names before it collide"));
    free(text);
}

static void names_made_to_collide_are_refused(void **state) {
    (void)state;
    refuse_collisions("%%%s = sqr %%x\n", QN_FORMAT);     /* of values: the reader's own */
    refuse_collisions("output %%x \"%s\"\n", QN_INVALID); /* and the graph's */
}

static void parsing_obeys_the_limit(void **state) {
    (void)state;
    static buffer text;
    qn_graph *g;
    qn_error error;
    int fitted = 0, refused = 0;
    read_text("tests/ir/print_shapes.qir", &text);
    for (size_t limit = 1; limit < 120000; limit += 331) {
        qn_status status = qn_graph_parse(text.at, text.n, limit, &g, &error);
        if (status == QN_OK) {
            assert_true(g->arena.peak <= limit);
            fitted++;
        } else {
            assert_int_equal(status, QN_NO_MEMORY);
            refused++;
        }
        if (status == QN_OK) qn_graph_destroy(g);
    }
    assert_true(fitted > 0 && refused > 10);
}

static void a_long_file_parses_in_reasonable_time(void **state) {
    (void)state;
    enum { N = 20000 };
    size_t room = (size_t)N * 96, n = 0;
    char *text = malloc(room);
    assert_non_null(text);
    n += (size_t)snprintf(text, room, "quern graph 1\ninput %%x f32[4]\n%%0 = sqr %%x\n");
    for (int i = 1; i < N; i++)
        n += (size_t)snprintf(text + n, room - n, "%%%d = add %%%d %%x @\"layer %d / add\"\ninput %%in%d f32[1]\n", i, i - 1, i,
                              i);
    qn_graph *g;
    qn_error error;
    assert_int_equal(qn_graph_parse(text, n, 0, &g, &error), QN_OK);
    assert_int_equal(qn_graph_node_count(g), N);
    assert_int_equal(qn_graph_verify(g, NULL, NULL), QN_OK);
    qn_graph_destroy(g);
    free(text);
}

static qn_status refuse(void *user, const char *text, size_t length) {
    (void)text;
    (void)length;
    ++*(int *)user;
    return QN_IO;
}

static void a_writer_that_fails_stops_the_printer(void **state) {
    (void)state;
    qn_graph *g = parse("quern graph 1\ninput %x f32[2]\n");
    qn_error error;
    int calls = 0;
    assert_int_equal(qn_graph_print(g, refuse, &calls, &error), QN_IO);
    assert_int_equal(calls, 1);
    qn_graph_destroy(g);
}

static qn_status nothing(void *user, const qn_tensor *dst, int n_src, const qn_tensor *const *src, int task, int n_tasks) {
    (void)user, (void)dst, (void)n_src, (void)src, (void)task, (void)n_tasks;
    return QN_OK;
}

static void a_callback_cannot_be_printed(void **state) {
    (void)state;
    static buffer out;
    qn_graph *g = parse("quern graph 1\ninput %x f32[2]\n");
    qn_error error;
    qn_attr_map_custom1 at = qn_attr_map_custom1_default();
    qn_val x = 0;
    at.fn = nothing;
    assert_int_not_equal(qn_graph_op(g, QN_OP_map_custom1, 0, 1, &x, &at), QN_VAL_NONE);
    out.n = 0;
    assert_int_equal(qn_graph_print(g, append, &out, &error), QN_UNSUPPORTED);
    assert_string_equal(error.text, "node 0: map_custom1: attribute 'fn' is a callback, which text cannot hold");
    assert_int_equal(out.n, 0);
    qn_graph_destroy(g);
}

static void bad_arguments_are_a_status(void **state) {
    (void)state;
    qn_graph *g;
    qn_error error;
    assert_int_equal(qn_graph_parse(NULL, 5, 0, &g, &error), QN_ARGUMENT);
    assert_int_equal(qn_graph_parse("", 0, 0, NULL, &error), QN_ARGUMENT);
    assert_int_equal(qn_graph_parse(NULL, 0, 0, &g, NULL), QN_FORMAT);
    assert_int_equal(qn_graph_print(NULL, append, NULL, &error), QN_ARGUMENT);
    assert_int_equal(qn_graph_verify(NULL, NULL, NULL), QN_ARGUMENT);
    qn_symbol_info s = {.size = sizeof s};
    assert_int_equal(qn_graph_symbol_describe(NULL, 0, &s), QN_ARGUMENT);
    assert_int_equal(qn_graph_symbol_count(NULL), 0);
}

/* ---- The verifier */

static const char whole[] = "quern graph 1\nsymbol b 2..8 by 2\ninput %x f32[b, 4]\nparam %w f32[3, 4]\nparam %u f32[b/2]\nconst "
                            "%c f32[3] = 1, 2, 3\n"
                            "%4 = mul_mat %w %x @\"layer\"\n%5 = add %4 %c\n%6 = sum %5\noutput %6 \"s\"\noutput %5 \"y\"\n";

static void spoil_symbol(qn_graph *g) { g->symbols.at[0].least = 9; }
static void spoil_dim_operand(qn_graph *g) { g->dims.at[1].a = QN_DIM_BASE + 1; }
static void spoil_dim_kind(qn_graph *g) { g->dims.at[1].kind = (qn_ir_dim_kind)77; }
static void spoil_dim_symbol(qn_graph *g) { g->dims.at[0].a = 5; }
static void spoil_dim_terms(qn_graph *g) { g->dims.at[1].terms = 1; }
static void spoil_kind(qn_graph *g) { g->values.at[0].kind = (qn_value_kind)9; }
static void spoil_dtype(qn_graph *g) { g->values.at[0].shape.dtype = 200; }
static void spoil_rank(qn_graph *g) { g->values.at[4].shape.rank = 99; }
static void spoil_extent(qn_graph *g) { g->values.at[1].shape.d[0] = -7; }
static void spoil_probe(qn_graph *g) { g->values.at[0].probe.d[0] = 6; }
static void spoil_name(qn_graph *g) { g->values.at[2].name = g->values.at[1].name; }
static void spoil_name_index(qn_graph *g) { g->values.at[2].name = 1 << 20; }
static void spoil_constant(qn_graph *g) { g->constants.at[0].bytes = 4; }
static void spoil_constant_index(qn_graph *g) { g->values.at[3].data = 3; }
static void spoil_result_node(qn_graph *g) { g->values.at[5].node = 40; }
static void spoil_result_shape(qn_graph *g) { g->values.at[5].shape.d[1] = g->values.at[5].probe.d[1] = 4; }
static void spoil_source(qn_graph *g) { g->sources.at[2] = 99; }
static void spoil_order(qn_graph *g) { g->sources.at[2] = 6; }
static void spoil_op(qn_graph *g) { g->nodes.at[1].op = 30000; }
static void spoil_subop(qn_graph *g) { g->nodes.at[1].subop = 3; }
static void spoil_n_src(qn_graph *g) { g->nodes.at[2].src = 1 << 30; }
static void spoil_n_out(qn_graph *g) { g->nodes.at[2].n_out = 3; }
static void spoil_out(qn_graph *g) { g->nodes.at[2].out = 2; }
static void spoil_label(qn_graph *g) { g->nodes.at[0].label = -40; }
static void spoil_output(qn_graph *g) { g->outputs.at[0].value = 70; }
static void spoil_output_name(qn_graph *g) { g->outputs.at[0].name = g->outputs.at[1].name; }

static void every_spoilt_graph_is_described(void **state) {
    (void)state;
    static const struct {
        void (*spoil)(qn_graph *g);
        const char *sentence;
    } ways[] = {
        {spoil_symbol, "symbol 'b': bounds 9 to 8"},
        {spoil_dim_operand, "extent 1 is made of something that does not precede it"},
        {spoil_dim_kind, "extent 1 is of no kind"},
        {spoil_dim_symbol, "extent 0 is symbol 5"},
        {spoil_dim_terms, "extent 1 says it has 1 terms"},
        {spoil_kind, "-1/0 value 0 is of no kind"},
        {spoil_dtype, "-1/0 value 0 has dtype 200"},
        {spoil_rank, "0/4 value 4 has dtype 2 and rank 99"},
        {spoil_extent, "-1/1 value 1: axis 0 has no extent"},
        {spoil_probe, "-1/0 value 0: axis 0 is 8 at the symbols' upper bounds, 6 is stored"},
        {spoil_name, "-1/2 param 'w' is value 1 and value 2"},
        {spoil_name_index, "-1/2 param 2 has no name"},
        {spoil_constant, "-1/3 constant 3 needs 12 bytes and has 4"},
        {spoil_constant_index, "-1/3 constant 3 has no data"},
        {spoil_result_node, "-1/5 value 5 is made by node 40"},
        {spoil_result_shape, "1/5 node 1: add: y is f32[8, 3], but f32[8, 4] is stored"},
        {spoil_source, "1/99 node 1: add: a: value 99 is none of the graph's"},
        {spoil_order, "1/6 node 1: add: a: value 6 does not precede it"},
        {spoil_op, "1/-1 node 1: there is no op number 30000"},
        {spoil_subop, "1/-1 node 1: add has no sub-op number 3"},
        {spoil_n_src, "2/-1 node 2: sum: 1 sources"},
        {spoil_n_out, "2/-1 node 2: sum: 3 outputs"},
        {spoil_out, "2/2 node 2: sum: its outputs from value 2 on are out of order"},
        {spoil_label, "0/-1 node 0: mul_mat: its label is no string"},
        {spoil_output, "-1/70 output 0 is value 70"},
        {spoil_output_name, "-1/6 output 0: 'y' is not its name alone"},
    };
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        findings f = {0, ""};
        qn_graph *g = parse(whole);
        assert_int_equal(qn_graph_verify(g, print_fault, NULL), QN_OK);
        ways[i].spoil(g);
        assert_int_equal(qn_graph_verify(g, collect, &f), QN_INVALID);
        if (!strstr(f.all, ways[i].sentence)) fail_msg("expected \"%s\" among\n%s", ways[i].sentence, f.all);
        assert_int_equal(qn_graph_verify(g, NULL, NULL), QN_INVALID);
        qn_graph_destroy(g);
    }
}

static void all_faults_come_at_once(void **state) {
    (void)state;
    findings f = {0, ""};
    qn_graph *g = parse(whole);
    spoil_constant(g);
    spoil_label(g);
    spoil_order(g);
    spoil_output(g);
    assert_int_equal(qn_graph_verify(g, collect, &f), QN_INVALID);
    assert_int_equal(f.n, 4);
    qn_graph_destroy(g);
}

static void a_constant_cannot_be_state(void **state) {
    (void)state;
    findings f = {0, ""};
    qn_graph *g = parse(
        "quern graph 1\nparam %w f32[2]\ninput %g f32[2]\nconst %h f32[2] = 0.1, 0\n%y = opt_step_sgd %w %g %h\n");
    g->sources.at[0] = 2;
    assert_int_equal(qn_graph_verify(g, collect, &f), QN_INVALID);
    assert_non_null(strstr(f.all, "0/2 node 0: opt_step_sgd: w is updated in place and cannot be a constant"));
    qn_graph_destroy(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(normal_text_prints_as_it_is),
        cmocka_unit_test(bad_text_is_refused_with_its_place),
        cmocka_unit_test(every_beginning_of_a_text_parses_or_is_refused),
        cmocka_unit_test(parsing_obeys_the_limit),
        cmocka_unit_test(names_made_to_collide_are_refused),
        cmocka_unit_test(a_long_file_parses_in_reasonable_time),
        cmocka_unit_test(a_writer_that_fails_stops_the_printer),
        cmocka_unit_test(a_callback_cannot_be_printed),
        cmocka_unit_test(bad_arguments_are_a_status),
        cmocka_unit_test(every_spoilt_graph_is_described),
        cmocka_unit_test(all_faults_come_at_once),
        cmocka_unit_test(a_constant_cannot_be_state),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
