/* Recurrences keep their bits however their tokens are cut into calls: all of them at once against pieces of a few and of many, each
 * beginning with the state that the one before it ended with, on every level the machine has. */
#define _DEFAULT_SOURCE /* setenv */
#include "cpu/cpu.h"
#include "family_help.h"

enum { ALL = 43, HEADS = 3, WIDE = 37, VALUES = 40, T = -1 };

/* Sources of one sequence; an extent of T is its tokens. The result is rows of tokens and the next state, in one tensor or in two. */
typedef struct recurrence {
    int op, n_src, state, n_dst, row; /* which source the state is; numbers that come of a token */
    struct {
        int rank;
        int64_t d[4];
    } src[7];
} recurrence;

#define ROWS                  \
    {                         \
        3, { T, HEADS, WIDE } \
    }
#define STATE                       \
    {                               \
        2, { 1, HEADS *WIDE *WIDE } \
    }
#define NET(gates)                                                                                           \
    {                                                                                                        \
        QN_OP_gated_delta_net, 6, 5, 1, HEADS *WIDE, {                                                       \
            {4, {1, T, 1, WIDE}}, {4, {1, T, 1, WIDE}}, {4, {1, T, HEADS, WIDE}}, {4, {1, T, HEADS, gates}}, \
                {4, {1, T, HEADS, 1}}, {                                                                     \
                4, { 1, HEADS, WIDE, WIDE }                                                                  \
            }                                                                                                \
        }                                                                                                    \
    }
static const recurrence cases[] = {
    {QN_OP_rwkv_wkv6, 6, 5, 1, HEADS *WIDE, {ROWS, ROWS, ROWS, {2, {HEADS, WIDE}}, ROWS, STATE}},
    {QN_OP_rwkv_wkv7, 7, 6, 1, HEADS *WIDE, {ROWS, ROWS, ROWS, ROWS, ROWS, ROWS, STATE}},
    {QN_OP_gated_linear_attn, 5, 4, 1, HEADS *WIDE, {ROWS, ROWS, ROWS, ROWS, STATE}},
    NET(1),
    NET(WIDE),
    {QN_OP_delta_rule,
     6,
     5,
     2,
     HEADS *VALUES,
     {{4, {1, T, 1, WIDE}},
      {4, {1, T, 1, WIDE}},
      {4, {1, T, HEADS, VALUES}},
      {3, {1, T, HEADS}},
      {3, {1, T, HEADS}},
      {4, {1, HEADS, VALUES, WIDE}}}},
    {QN_OP_ssm_scan, /* heads with one rate each */
     7,
     0,
     1,
     HEADS *VALUES,
     {{4, {1, HEADS, VALUES, WIDE}},
      {4, {1, T, HEADS, VALUES}},
      {3, {1, T, HEADS}},
      {2, {HEADS, 1}},
      {4, {1, T, 1, WIDE}},
      {4, {1, T, 1, WIDE}},
      {1, {1}}}},
    {QN_OP_ssm_scan, /* channels with a rate for each of their states */
     7,
     0,
     1,
     VALUES,
     {{4, {1, VALUES, 1, 16}},
      {4, {1, T, VALUES, 1}},
      {3, {1, T, VALUES}},
      {2, {VALUES, 16}},
      {4, {1, T, 1, 16}},
      {4, {1, T, 1, 16}},
      {1, {1}}}},
};

static float *floats(const qn_tensor *t) { return t->data; }

static qn_tensor source(const recurrence *k, int i, int64_t tokens) {
    int64_t d[4];
    for (int j = 0; j < k->src[i].rank; j++) d[j] = k->src[i].d[j] == T ? tokens : k->src[i].d[j];
    int ids = k->op == QN_OP_ssm_scan && i == 6; /* one sequence, whose state is the first */
    qn_tensor t = make(ids ? QN_DTYPE_I32 : QN_DTYPE_F32, k->src[i].rank, d);
    for (int64_t j = 0; !ids && j < qn_tensor_count(&t); j++) floats(&t)[j] = (float)((j * 7919 + 31 * i) % 1009) * 6e-4f - 0.3f;
    return t;
}

/* Tokens [from, from + n) of a source that has all of them; any other as it is. */
static qn_tensor some_of(const recurrence *k, int i, const qn_tensor *all, int64_t from, int64_t n) {
    qn_tensor t = *all;
    for (int j = 0; j < t.rank; j++)
        if (k->src[i].d[j] == T) {
            t.shape[j] = n;
            t.data = floats(all) + from * (qn_tensor_count(all) / ALL);
            t.size = (uint64_t)qn_tensor_count(&t) * sizeof(float);
        }
    return t;
}

/* The pieces' rows of results, one behind the other, then the last state; returns how many numbers. */
static int64_t run_cut(const recurrence *k, const int *pieces, float *out) {
    qn_tensor all[7], src[7], dst[2];
    float *rows = out;
    int64_t from = 0, size = 0;
    for (int i = 0; i < k->n_src; i++) all[i] = source(k, i, ALL);
    for (; from < ALL; from += *pieces++) {
        for (int i = 0; i < k->n_src; i++) src[i] = some_of(k, i, &all[i], from, *pieces);
        apply(k->op, NULL, k->n_src, src, k->n_dst, dst);
        size = qn_tensor_count(&all[k->state]);
        memcpy(rows, dst[0].data, (size_t)(*pieces * k->row) * sizeof *rows);
        rows += *pieces * k->row;
        const float *state = k->n_dst == 2 ? floats(&dst[1]) : floats(&dst[0]) + *pieces * k->row;
        memcpy(all[k->state].data, state, (size_t)size * sizeof *state);
    }
    assert_int_equal(from, ALL);
    memcpy(rows, all[k->state].data, (size_t)size * sizeof *rows);
    forget();
    return ALL * k->row + size;
}

static void tokens_keep_their_bits(void **state) {
    static const int once[] = {ALL}, cuts[][5] = {{42, 1}, {1, 1, 7, 8, 26}, {21, 22}, {7, 7, 7, 7, 15}};
    static float whole[ALL * HEADS * VALUES + HEADS * VALUES * WIDE], pieces[sizeof whole / sizeof *whole];
    for (int level = 0; level < QN_CPU_LEVEL_COUNT; level++) {
        if (!(qn_cpu_levels() >> level & 1)) continue;
        setenv("QUERN_CPU", qn_cpu_level_name(level), 1);
        assert_int_equal(open_fast(state), 0);
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
            int op = cases[i]
                         .op; /* references, where a build leaves levels out, have more digits inside a call than between two */
            if (!qn_cpu_has_kernel_at(level, op) && !qn_cpu_has_kernel_at(QN_CPU_LEVEL_c, op)) {
                print_message("not tested: this build has no kernel for %s at level %s\n", qn_op_describe(op)->name,
                              qn_cpu_level_name(level));
                continue;
            }
            int64_t n = run_cut(&cases[i], once, whole);
            for (size_t j = 0; j < sizeof cuts / sizeof *cuts; j++) {
                assert_int_equal(run_cut(&cases[i], cuts[j], pieces), n);
                assert_memory_equal(whole, pieces, (size_t)n * sizeof *whole);
            }
        }
        close_context(state);
        unsetenv("QUERN_CPU");
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(tokens_keep_their_bits)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
