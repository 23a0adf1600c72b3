/* Streams of bf16 that are squeezed give the bits of those that are not, whatever the weights: such as training leaves, such as
 * are all alike, and such as no two of which have an exponent in common; lines that fill blocks and lines that do not; all numbers of rows. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cmocka_setup.h"
#include "cpu/cpu.h"
#include "tensor/half.h"

enum { M = 133, K = 1000, ROWS = 8 };

typedef enum weights { NORMAL, ANY_BITS, ZEROS, SOME_ZEROS, ONES, NOT_FINITE, SMALL, LARGE, KINDS } weights;

static uint16_t w[M * K];
static float x[ROWS * K], plain[ROWS * M], squeezed[ROWS * M];

static uint32_t draw(void) {
    static uint32_t state = 1;
    state = state * 1664525u + 1013904223u;
    return state >> 8;
}

static float normal(void) {
    float sum = 0;
    for (int i = 0; i < 12; i++) sum += (float)(draw() & 0xffff) / 65536.0f;
    return sum - 6;
}

static uint16_t one_weight(weights kind) {
    float v = normal() * 0.02f;
    if (kind == ANY_BITS) return (uint16_t)draw();
    if (kind == ZEROS || (kind == SOME_ZEROS && draw() % 6 == 0)) v = 0;
    if (kind == ONES) v = draw() & 1 ? 1.0f : -1.0f;
    if (kind == NOT_FINITE && draw() % 50 == 0) v = draw() & 1 ? INFINITY : NAN;
    if (kind == SMALL) v = ldexpf(v, -125);
    if (kind == LARGE) v = ldexpf(v, 130);
    return qn_f32_to_bf16(v);
}

/* The product by the kernels of one level; returns whether the first panel of the packed weights is shorter than they are. */
static int multiply(int level, const qn_tensor *a, const qn_tensor *b, float *to, const char **name) {
    int64_t shape[2] = {b->shape[0], a->shape[0]};
    qn_tensor y;
    qn_tensor_init(&y, QN_DTYPE_F32, 2, shape, to, (size_t)(shape[0] * shape[1]) * 4);
    const qn_tensor *src[2] = {a, b}, *dst[1] = {&y};
    qn_attr_mul_mat attr = qn_attr_mul_mat_default();
    qn_call c = {QN_OP_mul_mat, 0, 2, 1, src, dst, &attr, NULL};
    qn_cpu_step s = {.constant = 1};
    assert_int_equal(qn_cpu_choose(1u << level, &c, &s), 1);
    assert_non_null(s.pack);
    /* as many bytes as it asked for and no more, for whoever watches */
    void *workspace = aligned_alloc(64, (s.workspace + 63) / 64 * 64), *packed = aligned_alloc(64, s.packed_bytes);
    assert_true(workspace && packed);
    c.workspace = workspace;
    memset(packed, 0xa5, s.packed_bytes);
    qn_cpu_pack(NULL, &c, &s, packed);
    s.packed = packed;
    qn_cpu_run(NULL, &c, &s);
    *name = s.name;
    int shorter = *(uint8_t *)packed;
    free(workspace);
    free(packed);
    return shorter;
}

/* m rows of k weights; `turned`: the rows lie side by side in memory. */
static int same_bits(int64_t m, int64_t k, int64_t n, int turned) {
    qn_tensor a, b;
    const char *name;
    qn_tensor_init(&a, QN_DTYPE_BF16, 2, (int64_t[]){m, k}, w, (size_t)(m * k) * 2);
    if (turned) {
        a.stride[0] = 2;
        a.stride[1] = m * 2;
    }
    qn_tensor_init(&b, QN_DTYPE_F32, 2, (int64_t[]){n, k}, x, (size_t)(n * k) * 4);
    memset(plain, 0xff, sizeof plain);
    memset(squeezed, 0xff, sizeof squeezed);
    multiply(QN_CPU_LEVEL_avx512, &a, &b, plain, &name);
    assert_string_equal(name, "streams of floats");
    int shorter = multiply(QN_CPU_LEVEL_vbmi, &a, &b, squeezed, &name);
    assert_string_equal(name, "squeezed streams of floats");
    assert_memory_equal(plain, squeezed, sizeof plain);
    return shorter;
}

static void the_same_bits(void **state) {
    static const int64_t ks[] = {1, 15, 16, 17, 31, 32, 33, 48, 100, 257, K};
    (void)state;
    if (!(qn_cpu_levels() >> QN_CPU_LEVEL_vbmi & 1)) {
        print_message("this machine has no VBMI2, or QUERN_CPU masks it: nothing was compared\n");
        skip();
    }
    for (int i = 0; i < ROWS * K; i++) x[i] = normal();
    for (int kind = 0; kind < KINDS; kind++) {
        for (int i = 0; i < M * K; i++) w[i] = one_weight((weights)kind);
        for (size_t i = 0; i < sizeof ks / sizeof *ks; i++)
            for (int n = 1; n <= ROWS; n++) same_bits(n % 2 ? M : 64, ks[i], n, n % 3 == 0);
        int shorter = same_bits(M, K, 1, 0);
        if (kind == NORMAL || kind == ONES || kind == NOT_FINITE) assert_int_equal(shorter, 1);
        if (kind == ANY_BITS) assert_int_equal(shorter, 0); /* their exponents say something */
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_same_bits)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
