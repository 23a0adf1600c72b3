/* Passes: every rule fires where its file says, and not at the near miss beside it; what they make computes the same; the
 * runner skips, stops, verifies and tells. */
#include <dirent.h>

#include <quern/plan.h>

#include "base/decimal.h"
#include "pass/pass.h"
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
    char why[800]; /* reasons of misses, one a line */
    int passes;
    int32_t changed;
} heard;

static void hear(void *user, const qn_pass_note *note) {
    heard *h = user;
    int mine = h->rule && strcmp(note->rule, h->rule) == 0;
    if (note->missed) {
        size_t n = strlen(h->why);
        snprintf(h->why + n, sizeof h->why - n, "%s: %s\n", note->rule, note->missed);
        h->missed += mine;
        return;
    }
    h->fired += mine;
    h->others += !mine;
}

static void count_pass(void *user, const qn_pass_done *done) {
    heard *h = user;
    h->passes++;
    h->changed += done->changed;
    assert_non_null(done->graph);
}

static qn_precision precision; /* of the file at hand */

static qn_graph *optimise(const qn_graph *g, const char *passes, const char *skip, uint32_t flags, heard *h) {
    qn_pass_options o = {.size = sizeof o,
                         .flags = flags | QN_PASS_VERIFY,
                         .precision = precision,
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

/* A graph with loops runs in a plan only: as it is, on the references. */
static qn_plan *run_plan(const qn_graph *g, graph_run *r, int hard) {
    qn_plan_options o = {.size = sizeof o, .flags = QN_PLAN_NO_PASSES | QN_PLAN_REFERENCE};
    qn_plan *p;
    qn_error error;
    memset(r, 0, sizeof *r);
    r->owned = calloc(g->values.n + 1, sizeof *r->owned);
    assert_non_null(r->owned);
    if (qn_plan_create(g, &o, &p, &error) != QN_OK) fail_msg("%s", error.text);
    for (size_t i = 0; i < g->values.n; i++) {
        const qn_ir_value *v = &g->values.at[i];
        if (v->kind != QN_VALUE_INPUT && v->kind != QN_VALUE_PARAM) continue;
        qn_tensor t = graph_run_dense(r, &v->shape);
        graph_run_fill(g, v, &t, hard);
        if (qn_plan_set(p, qn_ir_string(g, v->name), &t, &error) != QN_OK) fail_msg("%s", error.text);
    }
    if (qn_plan_run(p, NULL, &error) != QN_OK) fail_msg("%s", error.text);
    return p;
}

static void check_same_planned(const qn_graph *a, const qn_graph *b, int hard, double most, const char *what) {
    graph_run ra, rb;
    qn_plan *pa = run_plan(a, &ra, hard), *pb = run_plan(b, &rb, hard);
    assert_int_equal(a->outputs.n, b->outputs.n);
    for (size_t i = 0; i < a->outputs.n; i++) {
        qn_tensor x, y;
        qn_error error;
        assert_int_equal(qn_plan_output(pa, qn_ir_string(a, a->outputs.at[i].name), &x, &error), QN_OK);
        assert_int_equal(qn_plan_output(pb, qn_ir_string(b, b->outputs.at[i].name), &y, &error), QN_OK);
        double apart = graph_run_difference(&x, &y);
        if (!(apart <= most)) fail_msg("%s: output %zu is off by %g (hard numbers: %d)", what, i, apart, hard);
    }
    qn_plan_destroy(pa);
    qn_plan_destroy(pb);
    graph_run_free(&ra);
    graph_run_free(&rb);
}

/* Both graphs, all outputs; the largest difference may be `most`. */
static void check_same(const qn_graph *a, const qn_graph *b, int hard, double most, const char *what) {
    graph_run ra, rb;
    if (a->bodies.n || b->bodies.n) {
        check_same_planned(a, b, hard, most, what);
        return;
    }
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
                                         {"(unary.neg @1x)", "x", ""},
                                         {"(unary.neg @(sqr x))", "x", ""},
                                         {"(unary.neg ^9(sqr x))", "x", ""},
                                         {"(unary.neg x)", "(+ x #())", ""},
                                         {"(unary.neg x)", "(+ x #(1, 2, 3, 4, 5, 6, 7))", ""},
                                         {"(unary.neg toolonganame)", "x", ""},
                                         {"(+ (+ (+ (+ a b) (+ c d)) (+ (+ e f) (+ g h))) (+ (+ i j) (+ k (+ l m))))", "a", ""}};
    qn_rule rule;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char why[200] = "";
        if (qn_rule_parse("bad", 0, bad[i][0], bad[i][1], bad[i][2], &rule, why, sizeof why)) fail_msg("%s is read", bad[i][0]);
        assert_true(strlen(why) > 10);
    }
}

/* ---- Files: tests/ir/<pass>_<case>.qir say in their first lines what must happen:
 *   # fires: RULE N      so often, the near misses in the same file not among them
 *   # missed: RULE: WHY  what must be told about one that was left alone
 *   # with: OP N         so many nodes of that op are there afterwards
 *   # without: OP        none is
 *   # fast: WHY          only where results may change within bounds; rules say so in their table
 *   # precision: DTYPE   in the options; the results are then compared
 *   # within: X          with this bound */

static int when_of(const char *pass, const char *rule) {
    const qn_rule_table *tables[] = {&qn_rewrites, &qn_fusions};
    for (int t = 0; t < 2; t++)
        for (int i = 0; strcmp(tables[t]->pass, pass) == 0 && i < tables[t]->n; i++)
            if (strcmp(tables[t]->row[i].name, rule) == 0) return tables[t]->row[i].when;
    return QN_RULE_EXACT;
}

static void check_missed(const char *text, const heard *h, const char *path) {
    for (const char *line = strstr(text, "# missed: "); line; line = strstr(line + 1, "# missed: ")) {
        char want[200] = "";
        sscanf(line, "# missed: %199[^\n]", want);
        if (!strstr(h->why, want)) fail_msg("%s: \"%s\" was not told; told was:\n%s", path, want, h->why);
    }
}

static void check_ops(const char *text, const qn_graph *g, const char *path) {
    char name[64] = "";
    int want = 0, have = 0;
    const char *with = strstr(text, "# with: "), *without = strstr(text, "# without: ");
    if (with) assert_int_equal(sscanf(with, "# with: %63s %d", name, &want), 2);
    if (without) assert_int_equal(sscanf(without, "# without: %63s", name), 1);
    for (size_t k = 0; k < g->nodes.n; k++) have += strcmp(qn_op_describe(g->nodes.at[k].op)->name, name) == 0;
    if (*name && have != want) fail_msg("%s: %d nodes of %s, expected %d", path, have, name, want);
}

static void check_file(const char *path, const char *pass) {
    char rule[64], dtype[16] = "", within[32] = "0";
    size_t n;
    int want = 0;
    char *text = read_text(path, &n), *line = strstr(text, "# fires: "), *lower = strstr(text, "# precision: ");
    if (lower) sscanf(lower, "# precision: %15s\n# within: %31s", dtype, within);
    double most = qn_decimal_read(within, strlen(within));
    precision = strcmp(dtype, "f16") == 0 ? QN_PRECISION_F16 : strcmp(dtype, "bf16") == 0 ? QN_PRECISION_BF16 : QN_PRECISION_KEEP;
    if (!line || sscanf(line, "# fires: %63s %d", rule, &want) != 2) fail_msg("%s: no line '# fires: RULE N'", path);
    int fast = when_of(pass, rule) == QN_RULE_FAST || strstr(text, "# fast: ");
    qn_graph *g = parse(text, n, path);
    heard h = {.rule = rule};
    qn_graph *better = optimise(g, pass, NULL, fast ? QN_PASS_FAST : 0, &h);
    if (h.fired != want) fail_msg("%s: %s fired %d times, expected %d; misses:\n%s", path, rule, h.fired, want, h.why);
    check_missed(text, &h, path);
    check_ops(text, better, path);
    check_same(g, better, 0, fast ? 2e-6 : most, path);
    if (!fast && !lower) check_same(g, better, 1, 0, path);
    qn_graph_destroy(better);
    h = (heard){.rule = rule};
    better = optimise(g, pass, rule, fast ? QN_PASS_FAST : 0, &h);
    assert_int_equal(h.fired, 0); /* skipped by name */
    qn_graph_destroy(better);
    h = (heard){.rule = rule};
    better = optimise(g, pass, NULL, 0, &h);
    if (fast) assert_int_equal(h.fired, 0); /* not asked for */
    qn_graph_destroy(better);
    qn_graph_destroy(g);
    free(text);
}

static void files_say_what_happens(void **state) {
    (void)state;
    DIR *folder = opendir("tests/ir");
    int n = 0;
    assert_non_null(folder);
    for (struct dirent *e; (e = readdir(folder)) != NULL;)
        for (int i = 0; qn_graph_pass_name(i, NULL); i++) {
            const char *pass = qn_graph_pass_name(i, NULL);
            char path[512];
            if (strncmp(e->d_name, pass, strlen(pass)) != 0 || e->d_name[strlen(pass)] != '_') continue;
            snprintf(path, sizeof path, "tests/ir/%s", e->d_name);
            check_file(path, pass);
            n++;
        }
    closedir(folder);
    assert_true(n >= qn_rewrites.n + qn_fusions.n);
}

static void every_rule_has_its_file(void **state) {
    (void)state;
    const qn_rule_table *tables[] = {&qn_rewrites, &qn_fusions};
    for (int t = 0; t < 2; t++)
        for (int i = 0; i < tables[t]->n; i++) {
            char path[200], want[100];
            size_t n;
            snprintf(path, sizeof path, "tests/ir/%s_%s.qir", tables[t]->pass, tables[t]->row[i].name);
            snprintf(want, sizeof want, "# fires: %s ", tables[t]->row[i].name);
            char *text = read_text(path, &n);
            if (!strstr(text, want) || !strstr(text, "# near miss: "))
                fail_msg("%s: it must fire its rule, and tell of a near miss", path);
            free(text);
        }
}

/* What rules look for must be left of a graph when all passes before them have had their turn, fast ones among them. A file's first
 * output is a hit of its rule; the near misses, with which it would share values, are left out. Rules whose pattern another one takes
 * for itself are named with that. */
static const char *const taken_by[][2] = {{"rms_norm_gate", "rms_norm_swiglu"}, {"softmax_sample", "softmax_sample_warm"}};

static void check_in_whole_run(const char *name) {
    char path[200], *other;
    size_t n;
    heard h = {.rule = name};
    for (size_t k = 0; k < sizeof taken_by / sizeof *taken_by; k++)
        if (strcmp(taken_by[k][0], name) == 0) h.rule = taken_by[k][1];
    snprintf(path, sizeof path, "tests/ir/fuse_%s.qir", name);
    char *text = read_text(path, &n), *first = strstr(text, "\noutput ");
    assert_non_null(first);
    if ((other = strchr(first + 1, '\n')) != NULL) other[1] = 0;
    precision = QN_PRECISION_KEEP;
    qn_graph *g = parse(text, strlen(text), path), *hit = optimise(g, "dce", NULL, 0, &h);
    qn_graph *better = optimise(hit, NULL, "fold", QN_PASS_FAST, &h); /* files have constants where there would be inputs */
    if (!h.fired) fail_msg("%s: %s never fired among all passes", path, h.rule);
    qn_graph_destroy(better);
    qn_graph_destroy(hit);
    qn_graph_destroy(g);
    free(text);
}

static void rules_fire_in_the_whole_run(void **state) {
    (void)state;
    for (int i = 0; i < qn_fusions.n; i++) check_in_whole_run(qn_fusions.row[i].name);
}

/* ---- The runner */

static const char sample[] = "quern graph 1\n"
                             "input %x f32[3, 4]\nparam %w f32[4, 4]\nparam %b f32[4]\nconst %c f32[1] = 1\n"
                             "%1 = arith.mul %x %c\n%2 = unary.neg %1\n%3 = unary.neg %2\n%4 = matmul %3 %w\n"
                             "%5 = arith.add %4 %b\n%6 = unary.silu %5\n%7 = cumsum %6\n%8 = sqr %7\n%9 = unary.exp %8\n"
                             "%10 = unary.tanh %x\noutput %9 \"y\"\n";

static void changes_can_be_limited(void **state) {
    (void)state;
    qn_graph *g = parse(sample, strlen(sample), "sample"), *better;
    qn_error error;
    heard all = {0};
    qn_pass_options o = {.size = sizeof o, .flags = QN_PASS_VERIFY, .note = hear, .done = count_pass, .user = &all};
    assert_int_equal(qn_graph_optimise(g, &o, &better, &error), QN_OK);
    qn_graph_destroy(better);
    assert_true(all.changed > 5 && all.changed == all.others);
    int n_passes = 0;
    while (qn_graph_pass_name(n_passes, NULL)) n_passes++;
    assert_int_equal(all.passes, n_passes);
    for (int32_t limit = 1; limit <= all.changed; limit++) { /* each is the one before and one thing more */
        heard some = {0};
        o.limit = limit;
        o.user = &some;
        assert_int_equal(qn_graph_optimise(g, &o, &better, &error), QN_OK);
        assert_int_equal(some.changed, limit);
        check_same(g, better, 1, 0, "limit");
        qn_graph_destroy(better);
    }
    qn_graph_destroy(g);
}

static void passes_can_be_named_and_skipped(void **state) {
    (void)state;
    qn_graph *g = parse(sample, strlen(sample), "sample"), *better;
    heard h = {0};
    better = optimise(g, "dce,rewrite,dce", NULL, 0, &h);
    assert_int_equal(h.passes, 3);
    assert_int_equal(better->nodes.n, 6);
    qn_graph_destroy(better);
    h = (heard){.rule = "neg_neg"};
    better = optimise(g, NULL, "fuse,region,share,neg_neg", 0, &h);
    assert_int_equal(h.fired, 0);
    for (size_t k = 0; k < better->nodes.n; k++) assert_true(better->nodes.at[k].op != QN_OP_linear);
    qn_graph_destroy(better);
    h = (heard){0};
    better = optimise(g, "", NULL, 0, &h); /* none: a copy */
    assert_int_equal(h.passes, 0);
    assert_int_equal(better->nodes.n, g->nodes.n);
    qn_graph_destroy(better);
    qn_graph_destroy(g);
}

static void bad_options_are_refused(void **state) {
    (void)state;
    qn_graph *g = parse(sample, strlen(sample), "sample"), *better = g;
    qn_error error;
    const qn_pass_options bad[] = {{.size = 4},
                                   {.size = sizeof *bad, .flags = 4096},
                                   {.size = sizeof *bad, .precision = (qn_precision)7},
                                   {.size = sizeof *bad, .limit = -1},
                                   {.size = sizeof *bad, .only = "fold,nothing"},
                                   {.size = sizeof *bad, .only = "fold,,dce"},
                                   {.size = sizeof *bad, .skip = "nothing"},
                                   {.size = sizeof *bad, .skip = "fuse,neg_neg,linear_bia"},
                                   {.size = sizeof *bad, .skip = "fold,,dce"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        error.text[0] = 0;
        assert_int_not_equal(qn_graph_optimise(g, &bad[i], &better, &error), QN_OK);
        assert_null(better);
        assert_true(strlen(error.text) > 10);
    }
    assert_int_equal(qn_pass_one(g, "nothing", &better, NULL, &error), QN_INVALID);
    assert_int_equal(qn_pass_one(g, NULL, &better, NULL, &error), QN_ARGUMENT);
    assert_int_equal(qn_graph_optimise(NULL, NULL, &better, &error), QN_ARGUMENT);
    qn_graph_destroy(g);
}

static void a_graph_with_a_fault_is_not_blamed_on_a_pass(void **state) {
    (void)state;
    static const char text[] = "quern graph 1\nparam %w f32[4]\ninput %g f32[4]\nconst %c f32[1] = 2\n%a = accumulate %w %g\n"
                               "%b = mul %w %c\noutput %a \"a\"\noutput %b \"b\"\n";
    qn_pass_options o = {.size = sizeof o, .flags = QN_PASS_VERIFY};
    qn_graph *g = parse(text, strlen(text), "read after an update"), *better;
    qn_error error;
    assert_int_equal(qn_graph_optimise(g, &o, &better, &error), QN_INVALID);
    assert_string_equal(error.text,
                        "the graph is not sound: node 1: mul: value 0 is read after node 0, accumulate, has updated it in place");
    qn_graph_destroy(g);
}

/* What is made of several nodes goes by the label of the one in whose place it stands or, when that has none, of another. */
static void labels_outlive_fusion(void **state) {
    (void)state;
    static const char *const cases[][4] = {
        {"fuse", "linear", "up", "%y = mul_mat %w %x @\"up\"\n%z = unary.relu %y\noutput %z \"z\"\n"},
        {"fuse", "linear", "act", "%y = mul_mat %w %x @\"up\"\n%z = unary.relu %y @\"act\"\noutput %z \"z\"\n"},
        {"fuse", "linear", "act", "%y = mul_mat %w %x\n%z = unary.relu %y @\"act\"\noutput %z \"z\"\n"},
        {"fuse", "linear", "", "%y = mul_mat %w %x\n%z = unary.relu %y\noutput %z \"z\"\n"},
        {"region", "region", "tail", "%y = unary.exp %x @\"tail\"\n%z = sqr %y\noutput %z \"z\"\n"},
        {"share", "linear_group", "k", "%y = mul_mat %w %x\n%z = mul_mat %v %x @\"k\"\noutput %y \"y\"\noutput %z \"z\"\n"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[400];
        heard h = {0};
        qn_node_info n = {.size = sizeof n};
        snprintf(text, sizeof text, "quern graph 1\ninput %%x f32[2, 8]\nparam %%w f32[4, 8]\nparam %%v f32[4, 8]\n%s",
                 cases[i][3]);
        qn_graph *g = parse(text, strlen(text), cases[i][3]), *better = optimise(g, cases[i][0], NULL, 0, &h);
        assert_int_equal(qn_graph_node_count(better), 1);
        assert_int_equal(qn_graph_node(better, 0, &n), QN_OK);
        assert_string_equal(qn_op_describe(n.op)->name, cases[i][1]);
        assert_string_equal(n.label, cases[i][2]);
        qn_graph_destroy(better);
        qn_graph_destroy(g);
    }
}

static int claims_products(void *user, int op, int subop) {
    (void)subop;
    return op == QN_OP_matmul || (user && op == QN_OP_linear);
}

static void fusion_makes_nothing_that_has_no_kernel(void **state) {
    (void)state;
    qn_graph *g = parse(sample, strlen(sample), "sample"), *better;
    qn_error error;
    for (int with_linear = 0; with_linear < 2; with_linear++) {
        heard h = {.rule = "linear_bias"};
        qn_pass_options o = {.size = sizeof o, .note = hear, .user = &h, .claims = claims_products};
        o.claims_user = with_linear ? &h : NULL;
        assert_int_equal(qn_graph_optimise(g, &o, &better, &error), QN_OK);
        assert_int_equal(h.fired, with_linear);
        assert_int_equal(strstr(h.why, "linear_bias: there is no kernel for it") != NULL, !with_linear);
        int regions = 0; /* none of the ops in it has a kernel either, so nothing is lost */
        for (size_t k = 0; k < better->nodes.n; k++) regions += better->nodes.at[k].op == QN_OP_region;
        assert_true(regions > 0);
        qn_graph_destroy(better);
    }
    qn_graph_destroy(g);
}

/* Symbols stay symbols: rules compare extents as expressions. */
static void graphs_with_symbols_are_optimised(void **state) {
    (void)state;
    static const char text[] = "quern graph 1\nsymbol n 1..8\ninput %x f32[n, 4]\nparam %w f32[4, 4]\nparam %b f32[4]\n"
                               "%1 = matmul %x %w\n%2 = arith.add %1 %b\n%3 = reshape %2 {shape=(4*n)}\n"
                               "%4 = reshape %3 {shape=(n, 4)}\n%5 = unary.tanh %4\n%6 = sqr %5\noutput %6 \"y\"\n";
    qn_graph *g = parse(text, strlen(text), "symbols"), *bound, *better_bound;
    qn_error error;
    heard h = {0};
    qn_graph *better = optimise(g, NULL, NULL, 0, &h);
    assert_int_equal(better->nodes.n, 2); /* linear, and a region over it */
    int64_t n = 3;
    assert_int_equal(qn_graph_bind(g, &n, &bound, &error), QN_OK);
    assert_int_equal(qn_graph_bind(better, &n, &better_bound, &error), QN_OK);
    check_same(bound, better_bound, 1, 0, "symbols");
    qn_graph_destroy(bound);
    qn_graph_destroy(better_bound);
    qn_graph_destroy(better);
    qn_graph_destroy(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_rule_can_be_read),
                                       cmocka_unit_test(bad_rules_are_refused),
                                       cmocka_unit_test(every_rule_has_its_file),
                                       cmocka_unit_test(rules_fire_in_the_whole_run),
                                       cmocka_unit_test(files_say_what_happens),
                                       cmocka_unit_test(changes_can_be_limited),
                                       cmocka_unit_test(passes_can_be_named_and_skipped),
                                       cmocka_unit_test(bad_options_are_refused),
                                       cmocka_unit_test(a_graph_with_a_fault_is_not_blamed_on_a_pass),
                                       cmocka_unit_test(labels_outlive_fusion),
                                       cmocka_unit_test(fusion_makes_nothing_that_has_no_kernel),
                                       cmocka_unit_test(graphs_with_symbols_are_optimised)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
