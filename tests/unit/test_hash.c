/* Tables of what files bring: numbers made to want one place in them, by the hashes of before they had a key, cost what others cost. */
#include <string.h>
#include <time.h>

#include <quern/graph.h>
#include <quern/profile.h>

#include "base/hash.h"
#include "folder_help.h"
#include "pass/pass.h"

static uint64_t inverse(uint64_t odd) { /* of 2^64: each step doubles the bits that are right */
    uint64_t x = odd;
    for (int i = 0; i < 6; i++) x *= 2 - odd * x;
    return x;
}

/* ---- What a text costs: the least of three, in seconds of this process */

typedef struct text {
    char *at;
    size_t n;
} text;

typedef void work_fn(const text *t, const char *folder);

static double cost(work_fn *work, const text *t, const char *folder) {
    double least = 1e9;
    for (int i = 0; i < 3; i++) {
        clock_t began = clock();
        work(t, folder);
        double spent = (double)(clock() - began) / CLOCKS_PER_SEC;
        if (spent < least) least = spent;
    }
    return least;
}

/* Both texts are freed. The square costs twenty times as much and more. */
static void cost_the_same(work_fn *work, text made, text honest, const char *folder) {
    double one = cost(work, &made, folder), other = cost(work, &honest, folder);
    if (one > 8 * other + 0.01) fail_msg("%g s when made to collide, %g s else", one, other);
    free(made.at);
    free(honest.at);
}

static FILE *begin(text *t) {
    FILE *file = open_memstream(&t->at, &t->n);
    assert_non_null(file);
    return file;
}

/* ---- Traces */

enum { EVENTS = 20000 };

static void read_trace(const text *t, const char *folder) {
    char path[512];
    qn_profile *profile = NULL;
    save(folder, "one.pt.trace.json", t->at, t->n);
    snprintf(path, sizeof path, "%s/one.pt.trace.json", folder);
    qn_profile_options options = qn_profile_options_default();
    assert_int_equal(qn_profile_open(path, &options, &profile, NULL), QN_OK);
    assert_int_equal(qn_profile_load(profile, 0, 0, 0, NULL), QN_OK);
    qn_profile_close(profile);
}

static text trace_of(const char *event, int64_t (*number)(uint32_t i)) {
    text t;
    FILE *file = begin(&t);
    fputs("{\"traceEvents\": [", file);
    for (uint32_t i = 0; i < EVENTS; i++) {
        fprintf(file, "%s{\"ph\": \"X\", \"pid\": 0, \"tid\": 1, \"ts\": %u, \"dur\": 1, ", i ? ",\n" : "", 2 * i);
        fprintf(file, event, (long long)number(i));
    }
    fputs("]}", file);
    assert_int_equal(fclose(file), 0);
    return t;
}

static int64_t plain(uint32_t i) { return INT64_C(5000000000) + i; }

/* Of a number v: v * golden + 1, folded, multiplied, folded; the low half counted. */
static int64_t one_low_half(uint32_t i) {
    uint64_t y = (uint64_t)i << 32 | 12345;
    y = (y ^ y >> 32) * inverse(UINT64_C(0xd6e8feb86659fd93));
    return (int64_t)(((y ^ y >> 32) - 1) * inverse(UINT64_C(0x9e3779b97f4a7c15)));
}

/* Of a record: low half of each number, and 31 times the high half. */
static int64_t halves_that_cancel(uint32_t i) { return (int64_t)((uint64_t)i << 32 | (77 ^ i * 31)); }

static void ids_of_a_trace_cost_what_others_cost(void **state) {
    static const char
        event[] = "\"cat\": \"kernel\", \"name\": \"k\", \"args\": {\"device\": 0, \"stream\": 7, \"correlation\": %lld}}";
    cost_the_same(read_trace, trace_of(event, one_low_half), trace_of(event, plain), *state);
}

static void records_of_a_trace_cost_what_others_cost(void **state) {
    static const char event[] = "\"cat\": \"cpu_op\", \"name\": \"aten::mm\", \"args\": {\"flops\": %lld}}";
    cost_the_same(read_trace, trace_of(event, halves_that_cancel), trace_of(event, plain), *state);
}

/* ---- Graphs */

static qn_graph *parse(const text *t) {
    qn_graph *g;
    qn_error error;
    if (qn_graph_parse(t->at, t->n, 0, &g, &error) != QN_OK) fail_msg("%s", error.text);
    return g;
}

static void read_graph(const text *t, const char *folder) {
    (void)folder;
    qn_graph_destroy(parse(t));
}

static void merge(const text *t, const char *folder) {
    (void)folder;
    qn_graph *g = parse(t), *better;
    qn_error error;
    assert_int_equal(qn_pass_one(g, "cse", &better, NULL, &error), QN_OK);
    qn_graph_destroy(better);
    qn_graph_destroy(g);
}

/* Extents of a number times n, whose hash was (number * golden ^ n) * another + 3, folded. */
static text dims(int made) {
    text t;
    FILE *file = begin(&t);
    fputs("quern graph 1\nsymbol n 0..1\n", file);
    for (uint64_t i = 0, n = 0; n < EVENTS; i++) {
        uint64_t h = i << 32 | ((999 ^ i) & UINT32_MAX), x = (h - 3) * inverse(UINT64_C(0xBF58476D1CE4E5B9));
        uint64_t number = (x ^ (uint64_t)QN_DIM_BASE) * inverse(UINT64_C(0x9E3779B97F4A7C15));
        if (number < 2 || number >= UINT64_C(1) << 59) continue;
        fprintf(file, "input %%x%d f32[%llu*n]\n", (int)n, (unsigned long long)(made ? number : (UINT64_C(1) << 58) + n));
        n++;
    }
    assert_int_equal(fclose(file), 0);
    return t;
}

static void extents_cost_what_others_cost(void **state) { cost_the_same(read_graph, dims(1), dims(0), *state); }

static uint64_t mix(uint64_t h, uint64_t v) { return (h ^ v) * UINT64_C(0x9E3779B97F4A7C15) ^ (h >> 29); }

static uint64_t mix_float(uint64_t h, uint32_t bits) {
    for (int k = 0; k < 4; k++) h = mix(h, bits >> 8 * k & 255);
    return h;
}

/* Nodes whose hash was the same but for the number of places; their numbers are found by trying. */
static text scales(int made) {
    enum { NODES = 8000, PLACES = 2 * NODES + 1, ONE = 0x3f800000 };
    text t;
    FILE *file = begin(&t);
    fputs("quern graph 1\ninput %x f32[4]\n", file);
    for (uint32_t s = ONE, n = 0; n < NODES; s++) {
        uint64_t h = mix_float(mix(mix(mix(QN_OP_scale, 0), 1), 0), s);
        for (uint32_t b = ONE; b < ONE + (made ? 100000 : 1) && n < NODES; b++) {
            float numbers[2];
            if (made && mix_float(h, b) % PLACES != 7) continue;
            memcpy(&numbers[0], &s, sizeof s);
            memcpy(&numbers[1], &b, sizeof b);
            fprintf(file, "%%y%u = scale %%x {s=%.9g, b=%.9g}\n", n++, numbers[0], numbers[1]);
        }
    }
    fputs("output %y0 \"y\"\n", file);
    assert_int_equal(fclose(file), 0);
    return t;
}

static void nodes_cost_what_others_cost(void **state) { cost_the_same(merge, scales(1), scales(0), *state); }

/* Loops that begin with the same and differ in their bodies alone; or each with the result of the one before. */
static text loops(int made) {
    enum { LOOPS = 6000 };
    text t;
    FILE *file = begin(&t);
    fputs("quern graph 1\ninput %x f32[1]\n%y0 = sqr %x\n", file);
    for (int i = 1; i <= LOOPS; i++)
        fprintf(file,
                "%%y%d = scan_loop %%y%d {n_carry=1, length=2, body={\ninput %%s f32[1]\n%%z = scale %%s {s=%d}\n"
                "output %%z \"z\"\n}}\n",
                i, made ? 0 : i - 1, i + 2);
    fprintf(file, "output %%y%d \"y\"\n", LOOPS);
    assert_int_equal(fclose(file), 0);
    return t;
}

static void loops_cost_what_others_cost(void **state) { cost_the_same(merge, loops(1), loops(0), *state); }

/* ---- The key */

static void the_key_is_one_for_the_process(void **state) {
    (void)state;
    qn_hash_key a = qn_hash_process_key(), b = qn_hash_process_key();
    assert_true(a.begin == b.begin && a.by == b.by && a.by % 2 == 1);
    assert_true(qn_hash_bytes(a, a.begin, "a\0", 1) != qn_hash_bytes(a, a.begin, "a\0", 2));
    assert_true(qn_hash_bytes(a, a.begin, "", 0) == qn_hash_bytes(b, b.begin, "x", 0));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_FOLDER(ids_of_a_trace_cost_what_others_cost), IN_FOLDER(records_of_a_trace_cost_what_others_cost),
        cmocka_unit_test(extents_cost_what_others_cost), cmocka_unit_test(nodes_cost_what_others_cost),
        cmocka_unit_test(loops_cost_what_others_cost),   cmocka_unit_test(the_key_is_one_for_the_process),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
