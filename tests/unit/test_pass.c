/* Passes: every rule fires where its file says, and not at the near miss beside it; what they make computes the same; the runner skips,
 * stops, verifies and tells. */
#include <dirent.h>

#include "pass/rules.h"

#include "graph_run.h"

static char *read_text(const char *path, size_t *n) {
    FILE *from = fopen(path, "rb");
    char *text = calloc(1, 1 << 16);
    if (!from) fail_msg("%s: there is no such file", path);
    assert_non_null(text);
    *n = fread(text, 1, (1 << 16) - 1, from);
    fclose(from);
    return text;
}

static qn_graph *parse(const char *text, size_t n, const char *path) {
    qn_graph *g;
    qn_error error;
    if (qn_graph_parse(text, n, 0, &g, &error) != QN_OK) fail_msg("%s:%s", path, error.text);
    return g;
}

static void print_fault(void *user, const qn_graph_fault *fault) {
    (void)user;
    print_message("%s\n", fault->text);
}

/* What a listener heard. */
typedef struct heard {
    const char *rule; /* the one counted */
    int fired, others, missed;
    char why[100];
    int passes;
    int32_t changed;
} heard;

static void hear(void *user, const qn_pass_note *note) {
    heard *h = user;
    int mine = h->rule && strcmp(note->rule, h->rule) == 0;
    if (note->missed && (!h->rule || mine)) {
        h->missed++;
        snprintf(h->why, sizeof h->why, "%s", note->missed);
    } else if (!note->missed) {
        h->fired += mine;
        h->others += !mine;
    }
}

static void count_pass(void *user, const qn_pass_done *done) {
    heard *h = user;
    h->passes++;
    h->changed += done->changed;
    assert_non_null(done->graph);
}

static qn_graph *optimise(const qn_graph *g, const char *passes, const char *skip, uint32_t flags, heard *h) {
    qn_pass_options o = {.size = sizeof o,
                         .flags = flags | QN_PASS_VERIFY,
                         .only = passes,
                         .skip = skip,
                         .note = hear,
                         .done = count_pass,
                         .user = h};
    qn_graph *better;
    qn_error error;
    if (qn_graph_optimise(g, &o, &better, &error) != QN_OK) fail_msg("%s", error.text);
    assert_int_equal(qn_graph_verify(better, print_fault, NULL), QN_OK);
    return better;
}

/* Both graphs, all outputs; the largest difference may be `most`. */
static void check_same(const qn_graph *a, const qn_graph *b, int hard, double most, const char *what) {
    graph_run ra, rb;
    graph_run_all(&ra, a, hard);
    graph_run_all(&rb, b, hard);
    assert_int_equal(a->outputs.n, b->outputs.n);
    for (size_t i = 0; i < a->outputs.n; i++) {
        double apart = graph_run_difference(&ra.t[a->outputs.at[i].value], &rb.t[b->outputs.at[i].value]);
        if (!(apart <= most)) fail_msg("%s: output %zu is off by %g (hard numbers: %d)", what, i, apart, hard);
    }
    graph_run_free(&ra);
    graph_run_free(&rb);
}

/* ---- Tables of rules */

static void every_rule_can_be_read(void **state) {
    (void)state;
    const qn_rule_table *tables[] = {&qn_rewrites, &qn_fusions};
    qn_rule rule;
    char why[200];
    for (int t = 0; t < 2; t++)
        for (int i = 0; i < tables[t]->n; i++) {
            const qn_rule_row *row = &tables[t]->row[i];
            if (!qn_rule_parse(row->name, row->when, row->pattern, row->replacement, row->conditions, &rule, why, sizeof why))
                fail_msg("%s: %s", row->name, why);
        }
}

static void bad_rules_are_refused(void **state) {
    (void)state;
    static const char *const bad[][3] = {{"x", "x", ""},
                                         {"(nothing x)", "x", ""},
                                         {"(unary x)", "x", ""},
                                         {"(unary.nothing x)", "x", ""},
                                         {"(unary.neg x", "x", ""},
                                         {"(unary.neg x y)", "x", ""},
                                         {"(unary.neg x) y", "x", ""},
                                         {"(unary.neg x)", "y", ""},
                                         {"(unary.neg x)", "#1", ""},
                                         {"(scale x {q=1})", "x", ""},
                                         {"(scale x {s=recip(1)})", "x", ""},
                                         {"(scale x {s=$a})", "(scale x {s=$b})", ""},
                                         {"(scale x {s=$a})", "(scale x {s=recip($a, $a)})", ""},
                                         {"(unary.neg x)", "x", "nothing(x)"},
                                         {"(unary.neg ^x)", "x", ""},
                                         {"(unary.neg toolonganame)", "x", ""},
                                         {"(+ (+ (+ (+ a b) (+ c d)) (+ (+ e f) (+ g h))) (+ (+ i j) (+ k (+ l m))))", "a", ""}};
    qn_rule rule;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char why[200] = "";
        if (qn_rule_parse("bad", 0, bad[i][0], bad[i][1], bad[i][2], &rule, why, sizeof why)) fail_msg("%s is read", bad[i][0]);
        assert_true(strlen(why) > 10);
    }
}

/* The file of a rule says how often it fires; the near miss is in the same file, and would make it one too many. */
static void check_rule(const qn_rule_table *table, const qn_rule_row *row) {
    char path[200], name[64];
    size_t n;
    int want = 0;
    snprintf(path, sizeof path, "tests/ir/%s_%s.qir", table->pass, row->name);
    char *text = read_text(path, &n), *line = strstr(text, "# fires: ");
    if (!line || sscanf(line, "# fires: %63s %d", name, &want) != 2 || strcmp(name, row->name) != 0 || want < 1)
        fail_msg("%s: no line '# fires: %s N'", path, row->name);
    qn_graph *g = parse(text, n, path);
    heard h = {.rule = row->name};
    qn_graph *better = optimise(g, table->pass, NULL, row->when == QN_RULE_FAST ? QN_PASS_FAST : 0, &h);
    if (h.fired != want) fail_msg("%s: fired %d times, expected %d", path, h.fired, want);
    double most = row->when == QN_RULE_FAST ? 2e-6 : 0;
    check_same(g, better, 0, most, path);
    if (row->when != QN_RULE_FAST) check_same(g, better, 1, 0, path);
    qn_graph_destroy(better);
    h = (heard){.rule = row->name};
    better = optimise(g, table->pass, row->name, row->when == QN_RULE_FAST ? QN_PASS_FAST : 0, &h);
    assert_int_equal(h.fired, 0); /* skipped by name */
    qn_graph_destroy(better);
    if (row->when == QN_RULE_FAST) {
        h = (heard){.rule = row->name};
        better = optimise(g, table->pass, NULL, 0, &h);
        assert_int_equal(h.fired, 0); /* not asked for */
        qn_graph_destroy(better);
    }
    qn_graph_destroy(g);
    free(text);
}

static void rewrites_fire_and_miss(void **state) {
    (void)state;
    for (int i = 0; i < qn_rewrites.n; i++) check_rule(&qn_rewrites, &qn_rewrites.row[i]);
}

static void fusions_fire_and_miss(void **state) {
    (void)state;
    for (int i = 0; i < qn_fusions.n; i++) check_rule(&qn_fusions, &qn_fusions.row[i]);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_rule_can_be_read), cmocka_unit_test(bad_rules_are_refused),
                                       cmocka_unit_test(rewrites_fire_and_miss), cmocka_unit_test(fusions_fire_and_miss)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
