/* Results too large for the caches are stored another way, and are the same bits: an op over all of a large tensor against the same op
 * over pieces of it, to addresses that begin a line and to such that do not, by two threads, on machines of either habit. */
#define _DEFAULT_SOURCE /* setenv */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmocka_setup.h"
#include "cpu/cpu.h"
#include "cpu/k_past.h"

enum { COUNT = QN_PAST_BYTES / 2 + 37, SLICE = 1 << 19 };

typedef struct op_case {
    int op, subop, n_src;
    qn_dtype to;
    int64_t row;           /* elements of a row; 0: one row of all */
    int again, dims, mode; /* b is one row, for all of a's; channels that rope turns, and how */
} op_case;

static const op_case cases[] = {
    {.op = QN_OP_add, .n_src = 2, .to = QN_DTYPE_F32},
    {.op = QN_OP_unary, .n_src = 1, .to = QN_DTYPE_F32, .subop = QN_UNARY_silu},
    {.op = QN_OP_scale, .n_src = 1, .to = QN_DTYPE_F32},
    {.op = QN_OP_glu, .n_src = 2, .to = QN_DTYPE_F32, .subop = QN_GLU_swiglu},
    {.op = QN_OP_cpy, .n_src = 2, .to = QN_DTYPE_F32},
    {.op = QN_OP_cpy, .n_src = 2, .to = QN_DTYPE_F16},
    {.op = QN_OP_rms_norm, .n_src = 1, .to = QN_DTYPE_F32, .row = 1024},
    {.op = QN_OP_norm, .n_src = 1, .to = QN_DTYPE_F32, .row = 1024},
    {.op = QN_OP_cpy, .n_src = 2, .to = QN_DTYPE_BF16},
    {.op = QN_OP_unary_back, .n_src = 2, .to = QN_DTYPE_F32, .subop = QN_UNARY_gelu},
    {.op = QN_OP_soft_max, .n_src = 1, .to = QN_DTYPE_F32, .row = 1024},
    {.op = QN_OP_rope, .n_src = 2, .to = QN_DTYPE_F32, .row = 1024},
    {.op = QN_OP_get_rows, .n_src = 2, .to = QN_DTYPE_F32, .row = 1024},
    {.op = QN_OP_mul, .n_src = 2, .to = QN_DTYPE_F32, .row = 1024, .again = 1},
    {.op = QN_OP_rope, .n_src = 2, .to = QN_DTYPE_F32, .row = 1024, .dims = 1024},
    {.op = QN_OP_soft_max, .n_src = 1, .to = QN_DTYPE_F32, .row = 16},
    {.op = QN_OP_rope, .n_src = 2, .to = QN_DTYPE_F32, .row = 1024, .dims = 1024, .mode = 2},
    {.op = QN_OP_rope, .n_src = 2, .to = QN_DTYPE_F32, .row = 1024, .mode = 2},
    {.op = QN_OP_cumsum, .n_src = 1, .to = QN_DTYPE_F32, .row = 1024},
    {.op = QN_OP_sqr, .n_src = 1, .to = QN_DTYPE_F32},
    {.op = QN_OP_sin, .n_src = 1, .to = QN_DTYPE_F32},
    {.op = QN_OP_repeat, .n_src = 1, .to = QN_DTYPE_F32, .row = 1024, .again = 1},
    {.op = QN_OP_soft_max, .n_src = 1, .to = QN_DTYPE_F32, .row = 4096},
    {.op = QN_OP_soft_max, .n_src = 1, .to = QN_DTYPE_F32, .row = 512},
    {.op = QN_OP_soft_max, .n_src = 1, .to = QN_DTYPE_F16, .row = 1024},
    {.op = QN_OP_soft_max, .n_src = 1, .to = QN_DTYPE_BF16, .row = 128},
    {.op = QN_OP_log_soft_max, .n_src = 1, .to = QN_DTYPE_F32, .row = 1024},
    {.op = QN_OP_soft_max_back, .n_src = 2, .to = QN_DTYPE_F32, .row = 1024},
    {.op = QN_OP_norm_back, .n_src = 2, .to = QN_DTYPE_F32, .row = 1024},
    {.op = QN_OP_rms_norm_back, .n_src = 2, .to = QN_DTYPE_F32, .row = 1024},
    {.op = QN_OP_silu_back, .n_src = 2, .to = QN_DTYPE_F32},
};

static float *a, *b, *whole, *pieces;
static uint16_t half[COUNT];           /* bits of numbers that are small as f16 and as bf16 */
static int32_t position[COUNT / 1024]; /* of rope's tokens, of one head each; rows for get_rows */

static void run(qn_context *context, const op_case *k, int64_t first, int64_t n, float *to) {
    qn_tensor ta, tb, ty;
    qn_result r;
    qn_attr_scale scale = qn_attr_scale_default();
    scale.s = 0.3f;
    size_t size = k->to == QN_DTYPE_F32 ? 4 : 2;
    int64_t shape[2] = {k->row ? n / k->row : n, k->row};
    int rank = k->row ? 2 : 1;
    int halves = k->op == QN_OP_soft_max && size == 2;
    if (halves) qn_tensor_init(&ta, k->to, rank, shape, half + first, (size_t)n * 2);
    else qn_tensor_init(&ta, QN_DTYPE_F32, rank, shape, a + first, (size_t)n * 4);
    qn_tensor_init(&tb, QN_DTYPE_F32, rank, shape, b + first, (size_t)n * 4);
    qn_tensor_init(&ty, k->to, rank, shape, (char *)to + (size_t)first * size, (size_t)n * size);
    qn_request q = {.size = sizeof q, .version = QN_REQUEST_VERSION, .op = (uint16_t)k->op, .subop = (uint16_t)k->subop};
    q.n_src = (uint16_t)k->n_src;
    q.n_dst = 1;
    q.src[0] = &ta;
    if (k->again) qn_tensor_init(&tb, QN_DTYPE_F32, 1, &k->row, b, (size_t)k->row * 4);
    if (k->n_src > 1) q.src[1] = k->op == QN_OP_cpy ? &ty : &tb;
    q.dst[0] = &ty;
    if (k->op == QN_OP_scale) q.attr = &scale;
    qn_attr_rope rope = qn_attr_rope_default();
    rope.n_dims = k->dims ? k->dims : 1000; /* the last channels do not turn */
    rope.mode = k->mode;
    if (k->op == QN_OP_rope) {
        int64_t heads[3] = {shape[0], 1, shape[1]};
        qn_tensor_init(&ta, QN_DTYPE_F32, 3, heads, a + first, (size_t)n * 4);
        qn_tensor_init(&ty, QN_DTYPE_F32, 3, heads, to + first, (size_t)n * 4);
        qn_tensor_init(&tb, QN_DTYPE_I32, 1, shape, position + first / 1024, (size_t)shape[0] * 4);
        q.attr = &rope;
    }
    qn_attr_repeat repeat = qn_attr_repeat_default();
    repeat.shape = (qn_dims){.rank = 2, .d = {shape[0], shape[1]}};
    if (k->op == QN_OP_repeat) {
        q.src[0] = &tb;
        q.attr = &repeat;
    }
    if (k->op == QN_OP_get_rows) { /* of all of a */
        qn_tensor_init(&ta, QN_DTYPE_F32, 2, (int64_t[]){COUNT / 1024, 1024}, a, (size_t)COUNT * 4);
        qn_tensor_init(&tb, QN_DTYPE_I32, 1, shape, position + first / 1024, (size_t)shape[0] * 4);
    }
    if (qn_dispatch(context, &q, &r) == QN_OK) return;
    char text[300];
    qn_result_format(&r, text, sizeof text);
    fail_msg("%s", text);
}

/* Rows and columns that change places, h of them and w: element by element. */
static void check_turned(qn_context *context, qn_dtype dtype, int64_t h, int64_t w) {
    int64_t size = dtype == QN_DTYPE_F32 ? 4 : 2;
    qn_tensor x, y;
    qn_result r;
    qn_tensor_init(&x, dtype, 2, (int64_t[]){w, h}, a, (size_t)(w * h * size));
    x.stride[0] = size;
    x.stride[1] = w * size;
    qn_tensor_init(&y, dtype, 2, (int64_t[]){w, h}, whole, (size_t)(w * h * size));
    memset(whole, 0xff, (size_t)(w * h * size));
    qn_request q = {.size = sizeof q, .version = QN_REQUEST_VERSION, .op = QN_OP_cont, .n_src = 1, .n_dst = 1};
    q.src[0] = &x;
    q.dst[0] = &y;
    assert_int_equal(qn_dispatch(context, &q, &r), QN_OK);
    int64_t wrong = 0;
    for (int64_t i = 0; i < w; i++)
        for (int64_t j = 0; j < h; j++)
            wrong += memcmp((char *)whole + (i * h + j) * size, (char *)a + (j * w + i) * size, (size_t)size) != 0;
    assert_int_equal(wrong, 0);
}

/* The habit goes from the mask to the steps; a build may have left the level's kernels out. */
static void check_habit(int level, int is_near) {
    qn_tensor x, y;
    qn_cpu_step s;
    const qn_tensor *src[QN_MAX_SRC] = {&x}, *dst[QN_MAX_DST] = {&y};
    const qn_call call = {.op = QN_OP_sqr, .n_src = 1, .n_dst = 1, .src = src, .dst = dst};
    qn_tensor_init(&x, QN_DTYPE_F32, 1, (int64_t[]){1024}, a, 4096);
    qn_tensor_init(&y, QN_DTYPE_F32, 1, (int64_t[]){1024}, b, 4096);
    s.constant = 0;
    int has = qn_cpu_has_kernel_at(level, QN_OP_sqr);
    assert_int_equal((qn_cpu_levels() & QN_CPU_NEAR) != 0, is_near);
    assert_int_equal(qn_cpu_choose(qn_cpu_levels(), &call, &s), has);
    if (has) assert_int_equal(s.is_near, is_near);
}

static void check_level(int level, int is_near) {
    qn_context *context;
    qn_pool *pool;
    char mask[32];
    snprintf(mask, sizeof mask, "%s%s", qn_cpu_level_name(level), is_near ? ",near" : "");
    setenv("QUERN_CPU", mask, 1);
    check_habit(level, is_near);
    assert_int_equal(qn_pool_create(2, &pool), QN_OK);
    qn_context_options options = {.size = sizeof options, .pool = pool};
    assert_int_equal(qn_context_create(&options, &context), QN_OK);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        memset(whole, 0xff, (size_t)COUNT * 4);
        memset(pieces, 0, (size_t)COUNT * 4);
        int64_t count = cases[i].row ? COUNT / cases[i].row * cases[i].row : COUNT;
        run(context, &cases[i], 0, count, whole);
        for (int64_t at = 0; at < count; at += SLICE)
            run(context, &cases[i], at, count - at < SLICE ? count - at : SLICE, pieces);
        assert_memory_equal(whole, pieces, (size_t)count * (cases[i].to == QN_DTYPE_F32 ? 4 : 2));
    }
    check_turned(context, QN_DTYPE_F32, 2112, 2053); /* rows that begin with a line, and such that do not */
    check_turned(context, QN_DTYPE_F32, 2061, 2053);
    check_turned(context, QN_DTYPE_F16, 4160, 2053);
    check_turned(context, QN_DTYPE_F16, 4171, 2041);
    qn_context_destroy(context);
    qn_pool_destroy(pool);
    unsetenv("QUERN_CPU");
}

/* Levels that the build left out would be the reference against itself. */
static void check_levels(void) {
    uint32_t have = qn_cpu_levels();
    int n = 0;
    for (int level = 0; level < QN_CPU_LEVEL_COUNT; level++)
        if ((have >> level & 1) && (level == QN_CPU_LEVEL_avx2 || level == QN_CPU_LEVEL_avx512 || level == QN_CPU_LEVEL_neon) &&
            qn_cpu_has_kernel_at(level, QN_OP_sqr)) {
            check_level(level, 0);
            check_level(level, 1);
            n++;
        }
    if (!n) check_level(QN_CPU_LEVEL_c, 0);
}

static void the_same_bits(void **state) {
    (void)state;
    const size_t each = ((size_t)COUNT + 31) / 16 * 16; /* floats, in whole lines */
    float *room = aligned_alloc(64, each * 4 * sizeof *room);
    assert_non_null(room);
    a = room + 3;
    b = room + each + 3;
    pieces = room + 2 * each + 3;
    for (int64_t i = 0; i < COUNT; i++) {
        a[i] = (float)(i * 7919 % 20011) * 1e-3f - 10;
        b[i] = (float)(i * 104729 % 10007) * 1e-3f;
        half[i] = (uint16_t)(0x3e00 + i * 7919 % 521);
    }
    for (int i = 0; i < COUNT / 1024; i++) position[i] = i * 37 % (COUNT / 1024);
    for (int shift = 0; shift <= 3; shift += 3) {
        whole = room + 3 * each + shift;
        check_levels();
    }
    free(room);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_same_bits)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
