/* One row of activations times weights that stream has two ways of reading them, and goes half by either while it is not known which is the
 * faster one: whatever the turn, the row has the bits that it has beside another row. And a contest ends as its pieces went. */
#include <stdlib.h>
#include <string.h>

#include "cmocka_setup.h"
#include "cpu/contest.h"
#include "cpu/cpu.h"
#include "tensor/half.h"

enum { M = 8 * 32 + 5, K = 2100, TURNS = 40 };

static float wide[M * K], x[2 * K], one[M], two[2 * M];
static uint16_t narrow[M * K];

static float draw(void) {
    static uint32_t state = 7;
    state = state * 1664525u + 1013904223u;
    return (float)(state >> 8) / 8388608.0f - 1.0f;
}

/* The product of n rows, `turns` times with the same packed weights; the last result stays in y, and all are the same bits. 0: the level has
 * no streams for it. */
static int multiply(int level, const qn_tensor *a, int64_t n, float *y, int turns) {
    qn_tensor b, out;
    qn_tensor_init(&b, QN_DTYPE_F32, 2, (int64_t[]){n, a->shape[1]}, x, (size_t)(n * a->shape[1]) * 4);
    qn_tensor_init(&out, QN_DTYPE_F32, 2, (int64_t[]){n, a->shape[0]}, y, (size_t)(n * a->shape[0]) * 4);
    const qn_tensor *src[2] = {a, &b}, *dst[1] = {&out};
    qn_attr_mul_mat attr = qn_attr_mul_mat_default();
    qn_call c = {QN_OP_mul_mat, 0, 2, 1, src, dst, &attr, NULL};
    qn_contest contest = {0};
    qn_cpu_step s = {.constant = 1};
    if (!qn_cpu_choose(1u << level, &c, &s) || strcmp(s.name, "streams of floats") != 0) return 0;
    void *workspace = aligned_alloc(64, (s.workspace + 63) / 64 * 64),
         *packed = aligned_alloc(64, (s.packed_bytes + 63) / 64 * 64);
    float *before = malloc((size_t)(n * M) * 4);
    assert_true(workspace && packed && before);
    c.workspace = workspace;
    qn_cpu_pack(NULL, &c, &s, packed);
    s.packed = packed;
    s.contest = &contest;
    for (int i = 0; i < turns; i++) {
        memset(y, 0xff, (size_t)(n * M) * 4);
        qn_cpu_run(NULL, &c, &s);
        if (i > 0) assert_memory_equal(before, y, (size_t)(n * a->shape[0]) * 4);
        memcpy(before, y, (size_t)(n * M) * 4);
    }
    int has_ways = level >= QN_CPU_LEVEL_avx2 && level <= QN_CPU_LEVEL_amx;
    if (has_ways && n == 1 && a->shape[1] == K) assert_true(atomic_load(&contest.pieces) >= (unsigned)turns);
    if (n == 2) assert_int_equal(atomic_load(&contest.pieces), 0);
    free(before);
    free(packed);
    free(workspace);
    return 1;
}

/* As many products as the level has streams for. */
static int compare_ways(int level) {
    int compared = 0;
    static const struct {
        qn_dtype dtype;
        void *data;
    } kinds[] = {{QN_DTYPE_F32, wide}, {QN_DTYPE_F16, narrow}, {QN_DTYPE_BF16, narrow}};
    static const int64_t ms[] = {128, 160, M}, ks[] = {60, 511, 512, 1030, K};
    enum { MS = sizeof ms / sizeof *ms, KS = sizeof ks / sizeof *ks };
    for (size_t t = 0; t < sizeof kinds / sizeof *kinds; t++) {
        for (int i = 0; i < M * K; i++) {
            wide[i] = draw();
            narrow[i] = kinds[t].dtype == QN_DTYPE_F16 ? qn_f32_to_f16(wide[i]) : qn_f32_to_bf16(wide[i]);
        }
        for (int i = 0; i < MS * KS; i++) {
            int64_t m = ms[i / KS], k = ks[i % KS];
            qn_tensor a;
            qn_tensor_init(&a, kinds[t].dtype, 2, (int64_t[]){m, k}, kinds[t].data, (size_t)(m * k) * (t ? 2 : 4));
            if (!multiply(level, &a, 1, one, TURNS) || !multiply(level, &a, 2, two, 1)) continue;
            assert_memory_equal(one, two, (size_t)m * 4);
            compared++;
        }
    }
    return compared;
}

static void both_ways_give_the_same_bits(void **state) {
    int compared = 0;
    (void)state;
    if (qn_cpu_levels() == 0) {
        print_message("QUERN_CPU masks all levels: nothing was compared\n");
        skip();
    }
    for (int i = 0; i < 2 * K; i++) x[i] = draw();
    for (int level = 0; level < QN_CPU_LEVEL_COUNT; level++)
        if (qn_cpu_levels() >> level & 1) compared += compare_ways(level);
    assert_true(compared > 0);
}

/* Contested pieces of so many. */
static int contested(qn_contest *c, int pieces, int winner, int *first) {
    int n = 0;
    for (int i = 0; i < pieces; i++) {
        int way;
        if (!qn_contest_next(c, &way)) continue;
        *first += way;
        n++;
        if (winner >= 0) qn_contest_won(c, winner);
    }
    return n;
}

static void a_contest_follows_its_pieces(void **state) {
    qn_contest c = {0};
    int first = 0;
    (void)state;
    assert_int_equal(qn_contest_leader(&c), 0);
    assert_int_equal(contested(&c, QN_CONTEST_ENOUGH, 1, &first), QN_CONTEST_ENOUGH);
    assert_int_equal(first, QN_CONTEST_ENOUGH / 2); /* either way goes first as often as the other */
    assert_int_equal(qn_contest_leader(&c), 1);
    first = 0;
    assert_int_equal(contested(&c, 64 * QN_CONTEST_EACH, 1, &first), 64); /* settled: now and then */
    assert_int_equal(first, 32);
    assert_int_equal(contested(&c, QN_CONTEST_EACH + 2 * QN_CONTEST_ENOUGH, 0, &first) >= 2 * QN_CONTEST_ENOUGH, 1);
    assert_int_equal(qn_contest_leader(&c), 0); /* things changed, and it is seen at once */
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(both_ways_give_the_same_bits),
                                       cmocka_unit_test(a_contest_follows_its_pieces)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
