/* The replay of golden vectors, from the side of its input: lines that are cut, twisted or hostile must each give a sentence and
 * nothing else, every op that ggml has must have a row, and the small folder of our own must agree. */
#include "cmocka_setup.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* A unit test is built from this one source, so the parts of qn_check that it is about come in here. */
#include "check_vectors_compare.c"
#include "check_vectors_map.c"
#include "check_vectors_read.c"
#include "check_vectors_run.c"
#include "check_vectors.c"

#define ZEROS "0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0"
#define TENSOR "{\"type\":\"f32\",\"ne\":[2,1,1,1],\"nb\":[4,8,8,8],\"off\":0,\"bytes\":8}"
#define HEAD "{\"op\":\"SQR\",\"case\":\"x\",\"max_nmse\":1e-7,\"params\":[" ZEROS "],"
#define GOOD HEAD "\"src\":[" TENSOR "],\"dst\":" TENSOR "}"

enum { DATA_SIZE = 64 };

static qn_status parse(const char *line, qn_error *error) {
    size_t n = strlen(line);
    char *exact = malloc(n + 1); /* no terminator inside the reader's reach: a byte read past the end is then seen */
    static qn_vec_case c;
    assert_non_null(exact);
    memcpy(exact, line, n);
    qn_status status = qn_vec_parse(exact, n, DATA_SIZE, &c, error);
    free(exact);
    return status;
}

static void expect_bad(const char *line, const char *word) {
    qn_error error = {QN_OK, ""};
    if (parse(line, &error) != QN_FORMAT || !strstr(error.text, word)) {
        print_error("line: %.200s\nsaid: %s\nwanted: %s\n", line, error.text, word);
        fail();
    }
}

static void good_line_is_read(void **state) {
    static qn_vec_case c;
    qn_error error;
    const char *line = " {\"op\":\"UNARY.ABS\",\"new\":{\"a\":[1,{\"b\":null}],\"c\":true},"
                       "\"case\":\"a\\\"\\u0041\\n\\u00e9\",\"max_nmse\":0.5,"
                       "\"params\":[-1,4294967295,3,4,5,6,7,8,9,10,11,12,13,14,15,-2147483648],\"src\":[null," TENSOR "],"
                       "\"dst\":{\"bytes\":36,\"off\":28,\"type\":\"Q4_0\",\"ne\":[32,2]}} \r";
    (void)state;
    assert_int_equal(qn_vec_parse(line, strlen(line), DATA_SIZE, &c, &error), QN_OK);
    assert_string_equal(c.op, "UNARY.ABS");
    assert_string_equal(c.name, "a\"A??");
    assert_true(c.max_nmse == 0.5);
    assert_int_equal(c.params[0], -1);
    assert_int_equal(c.params[1], -1);
    assert_int_equal(c.params[15], INT32_MIN);
    assert_int_equal(c.n_src, 2);
    assert_false(c.src[0].present);
    assert_true(c.src[1].present);
    assert_int_equal(c.dst.dtype, QN_DTYPE_Q4_0);
    assert_int_equal(c.dst.ne[1], 2);
    assert_int_equal(c.dst.ne[3], 1);
    assert_int_equal(c.dst.off, 28);
}

static void every_cut_of_a_line_is_refused(void **state) {
    (void)state;
    qn_error error;
    assert_int_equal(parse(GOOD, &error), QN_OK);
    for (size_t n = 0; n < strlen(GOOD); n++) {
        char *cut = malloc(n + 1);
        assert_non_null(cut);
        memcpy(cut, GOOD, n);
        cut[n] = 0;
        assert_int_equal(parse(cut, &error), QN_FORMAT);
        assert_true(error.text[0] != 0);
        free(cut);
    }
}

static void every_twisted_byte_is_read_or_refused(void **state) {
    (void)state;
    const size_t n = strlen(GOOD);
    char line[sizeof GOOD];
    for (size_t i = 0; i < n; i++)
        for (int byte = 1; byte < 256; byte++) {
            qn_error error;
            memcpy(line, GOOD, sizeof line);
            line[i] = (char)byte;
            qn_status status = parse(line, &error);
            assert_true(status == QN_OK || status == QN_FORMAT);
        }
}

static void deep_nesting_is_refused(void **state) {
    (void)state;
    enum { DEEP = 100000 };
    char *line = malloc(2 * DEEP + 64);
    assert_non_null(line);
    strcpy(line, "{\"x\":");
    memset(line + 5, '[', DEEP);
    line[5 + DEEP] = 0;
    expect_bad(line, "nested too deep");
    for (int i = 0; i < DEEP; i++) memcpy(line + 5 + 5 * (i % 20), "{\"a\":", 5);
    expect_bad(line, "nested too deep");
    free(line);
}

static void wrong_types_are_refused(void **state) {
    (void)state;
    expect_bad("", "an object was expected");
    expect_bad("[]", "an object was expected");
    expect_bad("{\"op\":7}", "\"op\": column");
    expect_bad("{\"op\":\"SQR}", "does not end");
    expect_bad("{\"op\":\"a\\x\"}", "bad escape");
    expect_bad("{\"op\":\"a\\u12g4\"}", "bad escape");
    expect_bad("{\"op\":\"a\tb\"}", "control character");
    expect_bad("{\"op\":\"A\",\"op\":\"B\"}", "twice");
    expect_bad("{\"op\" \"A\"}", "':'");
    expect_bad("{7:1}", "string was expected");
    expect_bad("{\"max_nmse\":\"1\"}", "number was expected");
    expect_bad("{\"max_nmse\":-1}", "negative");
    expect_bad("{\"max_nmse\":1e999}", "too large");
    expect_bad("{\"max_nmse\":NaN}", "number was expected");
    expect_bad("{\"max_nmse\":1.}", "point");
    expect_bad("{\"max_nmse\":1e}", "exponent");
    expect_bad("{\"max_nmse\":00}", "begins with 0");
    expect_bad("{\"params\":{}}", "list was expected");
    expect_bad("{\"params\":[1.5]}", "integer was expected");
    expect_bad("{\"params\":[1,2]}", "16 words");
    expect_bad("{\"params\":[" ZEROS ",0]}", "too long");
    expect_bad("{\"params\":[4294967296]}", "out of range");
    expect_bad("{\"params\":[-2147483649]}", "out of range");
    expect_bad("{\"src\":{}}", "list was expected");
    expect_bad("{\"src\":[7]}", "number 0");
    expect_bad("{\"src\":[null,null,null,null,null,null,null,null,null,null,null]}", "more than 10");
    expect_bad("{\"dst\":null}", "object was expected");
    expect_bad(GOOD "x", "something follows");
    expect_bad(GOOD GOOD, "something follows");
}

static void missing_keys_are_named(void **state) {
    (void)state;
    static const char *const keys[] = {"op", "case", "max_nmse", "params", "src", "dst"};
    static const char *const parts[] = {"\"op\":\"SQR\"",           "\"case\":\"x\"",         "\"max_nmse\":1e-7",
                                        ("\"params\":[" ZEROS "]"), ("\"src\":[" TENSOR "]"), ("\"dst\":" TENSOR)};
    for (int without = 0; without < 6; without++) {
        char line[2048] = "{", want[64];
        for (int i = 0; i < 6; i++) {
            if (i == without) continue;
            if (line[1]) strcat(line, ",");
            strcat(line, parts[i]);
        }
        strcat(line, "}");
        snprintf(want, sizeof want, "\"%s\" is missing", keys[without]);
        expect_bad(line, want);
    }
    expect_bad(HEAD "\"src\":[],\"dst\":{\"ne\":[1],\"off\":0,\"bytes\":4}}", "\"type\" is missing");
    expect_bad(HEAD "\"src\":[],\"dst\":{\"type\":\"f32\",\"off\":0,\"bytes\":4}}", "\"ne\" is missing");
    expect_bad(HEAD "\"src\":[],\"dst\":{\"type\":\"f32\",\"ne\":[1],\"bytes\":4}}", "\"off\" is missing");
    expect_bad(HEAD "\"src\":[],\"dst\":{\"type\":\"f32\",\"ne\":[1],\"off\":0}}", "\"bytes\" is missing");
}

static void expect_bad_tensor(const char *tensor, const char *word) {
    char line[1024];
    snprintf(line, sizeof line, HEAD "\"src\":[],\"dst\":%s}", tensor);
    expect_bad(line, word);
    snprintf(line, sizeof line, HEAD "\"src\":[%s],\"dst\":" TENSOR "}", tensor);
    expect_bad(line, word);
}

static void tensors_outside_the_data_are_refused(void **state) {
    (void)state;
    expect_bad_tensor("{\"type\":\"f32\",\"ne\":[2],\"off\":-8,\"bytes\":8}", "out of range");
    expect_bad_tensor("{\"type\":\"f32\",\"ne\":[2],\"off\":0,\"bytes\":-8}", "out of range");
    expect_bad_tensor("{\"type\":\"f32\",\"ne\":[2],\"off\":60,\"bytes\":8}", "outside data.bin");
    expect_bad_tensor("{\"type\":\"f32\",\"ne\":[2],\"off\":65,\"bytes\":0}", "outside data.bin");
    expect_bad_tensor("{\"type\":\"f32\",\"ne\":[2],\"off\":9223372036854775807,\"bytes\":9223372036854775807}",
                      "outside data.bin");
    expect_bad_tensor("{\"type\":\"f32\",\"ne\":[2],\"off\":9223372036854775808,\"bytes\":8}", "64 bits");
    expect_bad_tensor("{\"type\":\"f32\",\"ne\":[2],\"off\":99999999999999999999999999,\"bytes\":8}", "64 bits");
    expect_bad_tensor("{\"type\":\"f32\",\"ne\":[99999999999999999999999999999999999999999999999999],\"off\":0,\"bytes\":8}",
                      "too many digits");
    expect_bad_tensor("{\"type\":\"f32\",\"ne\":[2],\"off\":0,\"bytes\":4}", "need 8");
    expect_bad_tensor("{\"type\":\"f32\",\"ne\":[-2],\"off\":0,\"bytes\":8}", "out of range");
    expect_bad_tensor("{\"type\":\"f32\",\"ne\":[],\"off\":0,\"bytes\":8}", "no extents");
    expect_bad_tensor("{\"type\":\"f32\",\"ne\":[1,1,1,1,1],\"off\":0,\"bytes\":4}", "too long");
    expect_bad_tensor("{\"type\":\"f32\",\"ne\":[4611686018427387904,4],\"off\":0,\"bytes\":0}", "extents too large");
    expect_bad_tensor("{\"type\":\"q4_0\",\"ne\":[33],\"off\":0,\"bytes\":18}", "blocks");
    expect_bad_tensor("{\"type\":\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\",\"ne\":[2],\"off\":0,\"bytes\":8}", "too long");
}

static void every_op_of_ggml_has_a_row(void **state) {
    (void)state;
    int found = 0;
    for (int op = 0; op < QN_OP_COUNT; op++) {
        const qn_op_info *info = qn_op_describe(op);
        if (strcmp(info->origin, "seed") != 0 && strcmp(info->origin, "beyond") != 0) continue;
        qn_vec_case c = {0};
        int subop;
        for (size_t i = 0; info->name[i]; i++)
            c.op[i] = info->name[i] >= 'a' && info->name[i] <= 'z' ? (char)(info->name[i] - 'a' + 'A') : info->name[i];
        const qn_vec_row *row = qn_vec_find(&c, &subop);
        if (!row) print_error("no row for %s\n", c.op);
        assert_non_null(row);
        assert_int_equal(row->op, op);
        found++;
    }
    assert_int_equal(found, 100);
}

static void names_are_found_in_any_case_or_not_at_all(void **state) {
    (void)state;
    static const struct {
        const char *name;
        int op, subop;
    } known[] = {{"UNARY.GELU_ERF", QN_OP_unary, QN_UNARY_gelu_erf},
                 {"unary.neg", QN_OP_unary, QN_UNARY_neg},
                 {"Glu.SwiGLU_OAI", QN_OP_glu, QN_GLU_swiglu_oai},
                 {"MUL_MAT", QN_OP_mul_mat, 0}};
    static const char *const unknown[] = {"", ".", "MUL_MAT.X", "UNARY.", "UNARY.NOTHING", "NOTHING", "UNARY_BACK", "GLU.RELU"};
    qn_vec_case c = {0};
    int subop;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        snprintf(c.op, sizeof c.op, "%s", known[i].name);
        const qn_vec_row *row = qn_vec_find(&c, &subop);
        assert_non_null(row);
        assert_int_equal(row->op, known[i].op);
        assert_int_equal(subop, known[i].subop);
    }
    c.params[0] = 99; /* "UNARY." has no sub-op in its name, and this number is none */
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++) {
        snprintf(c.op, sizeof c.op, "%s", unknown[i]);
        assert_null(qn_vec_find(&c, &subop));
    }
}

static void patterns_match_as_they_say(void **state) {
    (void)state;
    assert_true(matches("", ""));
    assert_true(matches("*", ""));
    assert_true(matches("a*c", "abbc"));
    assert_true(matches("*p0=1)", "k0=1,p0=1,p0=1)"));
    assert_false(matches("*p0=1)", "p0=11)"));
    assert_false(matches("a*", "ba"));
    assert_false(matches("a", "ab"));
}

static void bounds_are_kept(void **state) {
    (void)state;
    char text[128];
    const double one[2] = {1, 1}, near[2] = {1, 1.001}, nan[2] = {1, NAN}, inf[2] = {1, INFINITY}, neg[2] = {1, -INFINITY};
    assert_true(floats_agree(0, 2, one, one, text, sizeof text));
    assert_true(floats_agree(1e-6, 2, one, near, text, sizeof text));
    assert_false(floats_agree(1e-7, 2, one, near, text, sizeof text));
    assert_true(floats_agree(0, 2, nan, nan, text, sizeof text));
    assert_false(floats_agree(1, 2, nan, one, text, sizeof text));
    assert_true(floats_agree(0, 2, inf, inf, text, sizeof text));
    assert_false(floats_agree(1, 2, inf, neg, text, sizeof text));
    assert_false(floats_agree(1, 2, one, inf, text, sizeof text));
}

/* A folder of its own with this index and `bytes` zero bytes of data; the exit code of the replay. */
static int replay(const char *lines, size_t bytes, int with_data) {
    char dir[] = "/tmp/qn-vectors-XXXXXX", path[64];
    assert_non_null(mkdtemp(dir));
    if (lines) {
        snprintf(path, sizeof path, "%s/index.jsonl", dir);
        FILE *f = fopen(path, "w");
        assert_non_null(f);
        fputs(lines, f);
        fclose(f);
    }
    if (with_data) {
        snprintf(path, sizeof path, "%s/data.bin", dir);
        FILE *f = fopen(path, "w");
        assert_non_null(f);
        for (size_t i = 0; i < bytes; i++) fputc(0, f);
        fclose(f);
    }
    int code = qn_check_vectors(dir, 0);
    static const char *const names[] = {"index.jsonl", "data.bin"};
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%s", dir, names[i]);
        unlink(path);
    }
    rmdir(dir);
    return code;
}

static void exit_codes_tell_what_happened(void **state) {
    (void)state;
    assert_int_equal(replay(NULL, 0, 1), 2);
    assert_int_equal(replay(GOOD "\n", 0, 0), 2);
    assert_int_equal(replay("", 64, 1), 2);
    assert_int_equal(replay("\n \n", 64, 1), 2);
    assert_int_equal(replay("garbage\n", 64, 1), 2);
    assert_int_equal(replay(GOOD "\n" GOOD, 64, 1), 0);
    assert_int_equal(replay(GOOD "\n", 4, 1), 2);
    const char *no_such = "{\"op\":\"NO_SUCH\",\"case\":\"x\",\"max_nmse\":0,\"params\":[" ZEROS "],"
                          "\"src\":[],\"dst\":" TENSOR "}";
    assert_int_equal(replay(no_such, 64, 1), 1);
    assert_int_equal(replay(HEAD "\"src\":[],\"dst\":{\"type\":\"q9_9\",\"ne\":[2],\"off\":0,\"bytes\":8}}", 64, 1), 1);
    assert_int_equal(replay(HEAD "\"src\":[],\"dst\":" TENSOR "}", 64, 1), 1);
    assert_int_equal(qn_check_vectors("/no/such/folder", 0), 2);
}

static void mini_folder_agrees(void **state) {
    (void)state;
    if (access("tests/golden/vectors-mini/index.jsonl", R_OK) != 0) skip(); /* not run from the root of the tree */
    assert_int_equal(qn_check_vectors("tests/golden/vectors-mini", 0), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_line_is_read),
        cmocka_unit_test(every_cut_of_a_line_is_refused),
        cmocka_unit_test(every_twisted_byte_is_read_or_refused),
        cmocka_unit_test(deep_nesting_is_refused),
        cmocka_unit_test(wrong_types_are_refused),
        cmocka_unit_test(missing_keys_are_named),
        cmocka_unit_test(tensors_outside_the_data_are_refused),
        cmocka_unit_test(every_op_of_ggml_has_a_row),
        cmocka_unit_test(names_are_found_in_any_case_or_not_at_all),
        cmocka_unit_test(patterns_match_as_they_say),
        cmocka_unit_test(bounds_are_kept),
        cmocka_unit_test(exit_codes_tell_what_happened),
        cmocka_unit_test(mini_folder_agrees),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
