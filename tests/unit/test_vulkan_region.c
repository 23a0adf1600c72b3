/* Elementwise regions on the Vulkan device: kernels that are emitted when a program is made. Single steps of every kind, then
 * random programs, against the reference; and every emitted module past spirv-val where that is installed. */
#include <unistd.h>

#include "op/region.h"
#include "vulkan_help.h"

#define F32 QN_DTYPE_F32
#define F16 QN_DTYPE_F16
#define BF16 QN_DTYPE_BF16
#define I32 QN_DTYPE_I32
#define BOOL QN_DTYPE_BOOL

static double bound_of(qn_dtype d) { return d == BF16 ? 1e-4 : d == F16 ? 1e-6 : 1e-7; }

/* ---- One step at a time */

/* Where a function of math.def is defined, and its slope not too steep. */
static const double math_range[QN_MATH_COUNT][2] = {{0.1, 9}, {-1.2, 1.2}, {-9, 9}, {-9, 9}, {-0.9, 9},
                                                    {-3, 3},  {0.2, 5},    {-9, 9}, {0.1, 9}};

static void functions_agree(void **state) {
    NEED_DEVICE(state);
    static const qn_dtype dtypes[] = {F32, F16, BF16};
    for (int f = 0; f < QN_MATH_COUNT + 1; f++)
        for (int d = 0; d < 3; d++)
            for (int odd = 0; odd < 2; odd++) {
                int is_unary = f == QN_MATH_COUNT;
                if (odd && (is_unary || f == QN_MATH_tan)) continue; /* 1e10 radians are beyond the kernel's reduction */
                help_case c = {
                    .op = QN_OP_math, .subop = f, .n_src = 1, .bound = bound_of(dtypes[d]), .dst_layout = odd ? TURNED : DENSE};
                if (is_unary) c.op = QN_OP_unary, c.subop = QN_UNARY_silu;
                c.src[0] = (help_item){
                    dtypes[d], 3, {3, 5, 17}, (help_layout)d, is_unary ? -5 : math_range[f][0], is_unary ? 5 : math_range[f][1],
                    odd};
                help_compare(BENCH(state), &c);
            }
}

static void slopes_agree(void **state) {
    NEED_DEVICE(state);
    static const qn_dtype dtypes[] = {F32, F16};
    for (int back = 0; back < 2; back++)
        for (int f = 0; f < (back ? QN_MATH_COUNT : QN_UNARY_COUNT); f++)
            for (int d = 0; d < 2; d++) {
                if (!back && f == QN_UNARY_xielu) continue;
                help_case c = {
                    .op = back ? QN_OP_math_back : QN_OP_unary_back, .subop = f, .n_src = 2, .bound = bound_of(dtypes[d])};
                c.src[0] = (help_item){dtypes[d], 3, {3, 5, 17}, d ? TURNED : DENSE, -2, 2, 0};
                c.src[1] = (help_item){
                    dtypes[d], 3, {3, 5, 17}, d ? PADDED : REVERSED, back ? math_range[f][0] : -6, back ? math_range[f][1] : 6,
                    0};
                help_compare(BENCH(state), &c);
            }
    help_case silu = {.op = QN_OP_silu_back,
                      .n_src = 2,
                      .bound = 1e-7,
                      .src = {{F32, 2, {9, 13}, DENSE, -2, 2, 0}, {F32, 2, {9, 13}, TURNED, -6, 6, 0}}};
    help_compare(BENCH(state), &silu);
}

static void truths_agree(void **state) {
    NEED_DEVICE(state);
    static const qn_dtype dtypes[] = {F32, F16, BF16, I32, QN_DTYPE_U32, QN_DTYPE_I8, QN_DTYPE_U8, QN_DTYPE_I16, BOOL};
    for (int f = 0; f < QN_COMPARE_COUNT; f++)
        for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++) {
            help_case c = {.op = QN_OP_compare, .subop = f, .n_src = 2, .dst_layout = d % 2 ? DENSE : PADDED};
            c.src[0] = (help_item){dtypes[d], 3, {4, 1, 64}, d == 1 ? TURNED : DENSE, 0, 3, d < 5};
            c.src[1] = (help_item){dtypes[d], 2, {5, 64}, d == 2 ? PADDED : DENSE, 0, 3, 0};
            help_compare(BENCH(state), &c);
        }
    for (int f = 0; f < QN_LOGIC_COUNT; f++) {
        help_case c = {.op = QN_OP_logic, .subop = f, .n_src = f == QN_LOGIC_not ? 1 : 2};
        c.src[0] = (help_item){BOOL, 3, {4, 3, 7}, f ? TURNED : DENSE, 0, 2, 0};
        c.src[1] = (help_item){BOOL, 1, {7}, DENSE, 0, 2, 0};
        help_compare(BENCH(state), &c);
    }
}

static void where_agrees(void **state) {
    NEED_DEVICE(state);
    static const qn_dtype dtypes[] = {F32, F16, BF16, BOOL};
    for (int d = 0; d < 4; d++)
        for (int v = 0; v < 3; v++) {
            help_case c = {.op = QN_OP_where, .n_src = 3, .dst_layout = (help_layout)v};
            c.src[0] = (help_item){v == 1 ? F32 : BOOL, 3, {4, 1, 33}, DENSE, 0, 2, v == 1};
            c.src[1] = (help_item){dtypes[d], 3, {4, 3, 33}, v == 2 ? TURNED : DENSE, 0, 3, 0};
            c.src[2] = (help_item){dtypes[d], 1, {1}, DENSE, 0, 3, 0};
            help_compare(BENCH(state), &c);
        }
}

/* ---- Random programs */

typedef struct maker {
    help_bench *b;
    qn_attr_region attr;
    qn_region_step step;
    int n_src, n_steps, n_outputs;
    qn_dtype src[6], made[QN_REGION_MAX_STEPS];
} maker;

static int die(maker *m, int n) { return (int)help_random(m->b, 0, n) % n; }

static qn_dtype dtype_of(const maker *m, int operand) {
    return operand >= QN_REGION_STEP_BIT ? m->made[operand - QN_REGION_STEP_BIT] : m->src[operand];
}

/* A source or an earlier step, a truth or a float. */
static int choose(maker *m, int truth) {
    for (int tries = 0; tries < 100; tries++) {
        int o = die(m, m->n_src + m->n_steps);
        o = o < m->n_src ? o : QN_REGION_STEP_BIT + o - m->n_src;
        if ((dtype_of(m, o) == BOOL) == truth && dtype_of(m, o) != I32) return o;
    }
    return truth ? -1 : 0;
}

static void add(maker *m, qn_region_kind kind, int subop, qn_dtype dtype, int a, int b, int c) {
    qn_region_step s = {.kind = kind, .subop = subop, .dtype = dtype, .output = -1, .operand = {a, b, c}, .number = 0.75f};
    assert_true(qn_region_append(&m->attr.code, &s));
    m->made[m->n_steps++] = dtype;
}

/* Functions without steep places; comparisons only of sources, which both sides read alike. */
static void add_random(maker *m) {
    static const int smooth[] = {QN_UNARY_abs,  QN_UNARY_neg,  QN_UNARY_tanh,        QN_UNARY_relu,     QN_UNARY_sigmoid,
                                 QN_UNARY_gelu, QN_UNARY_silu, QN_UNARY_hardsigmoid, QN_UNARY_gelu_erf, QN_UNARY_softplus};
    static const int plain[] = {QN_ARITH_add, QN_ARITH_sub, QN_ARITH_mul, QN_ARITH_max, QN_ARITH_min};
    qn_dtype d = die(m, 5) ? F32 : die(m, 2) ? F16 : BF16;
    int a = choose(m, 0), b = choose(m, 0), truth = choose(m, 1);
    switch (die(m, 11)) {
    case 0: add(m, QN_REGION_number, 0, F32, 0, 0, 0); break;
    case 1: add(m, QN_REGION_unary, smooth[die(m, 10)], d, a, 0, 0); break;
    case 2: add(m, QN_REGION_unary_back, smooth[2 + die(m, 1)], d, a, b, 0); break;
    case 3: add(m, QN_REGION_compare, die(m, QN_COMPARE_COUNT), BOOL, 0, 0, 0); break;
    case 4: add(m, QN_REGION_clamp, 0, d, a, 0, 0); break;
    case 5: add(m, QN_REGION_cast, 0, d, truth >= 0 ? truth : a, 0, 0); break;
    case 6: add(m, QN_REGION_math, QN_MATH_atan, d, a, 0, 0); break;
    case 7:
        if (truth >= 0) add(m, QN_REGION_where, 0, d, truth, a, b);
        else add(m, QN_REGION_leaky_relu, 0, d, a, b, 0);
        break;
    case 8:
        if (truth >= 0) add(m, QN_REGION_logic, die(m, 4), BOOL, truth, truth, 0);
        else add(m, QN_REGION_sqr, 0, d, a, 0, 0);
        break;
    default: add(m, QN_REGION_arith, plain[die(m, 5)], d, a, b, 0); break;
    }
}

static void mark_outputs(maker *m) {
    m->n_outputs = 1 + die(m, 3);
    for (int i = 0; i < m->n_outputs; i++) m->attr.code.w[2 * (m->n_steps - 1 - i)] |= 1u << 31;
}

static void random_programs_agree(void **state) {
    NEED_DEVICE(state);
    static const int64_t shapes[][3] = {{4, 5, 33}, {4, 1, 33}, {1, 5, 1}, {1, 1, 33}, {1, 1, 1}};
    for (int n = 0; n < 60; n++) {
        BENCH(state)->seed = (uint32_t)seed_of(SEED_START, &n, sizeof n);
        maker m = {.b = BENCH(state), .attr = qn_attr_region_default()};
        help_case c = {.op = QN_OP_region, .attr = &m.attr, .bound = 1e-4, .dst_layout = (help_layout)(n % 3)};
        m.n_src = 1 + die(&m, 5);
        for (int i = 0; i < m.n_src; i++) {
            int pick = die(&m, 8), kept = i ? die(&m, 5) : 0;
            m.src[i] = i == 0 ? F32 : pick < 4 ? F32 : pick == 4 ? F16 : pick == 5 ? BF16 : BOOL;
            c.src[i] = (help_item){m.src[i], 3, {0}, (help_layout)die(&m, 4), -2, 2, 0};
            if (m.src[i] == BOOL) c.src[i].low = 0;
            memcpy(c.src[i].shape, shapes[kept], sizeof shapes[kept]);
        }
        int steps = 3 + die(&m, 20);
        while (m.n_steps < steps) add_random(&m);
        mark_outputs(&m);
        c.n_src = m.n_src;
        help_compare(BENCH(state), &c);
    }
}

/* The product of two steps is rounded before the third adds to it, as it was when they were ops. */
static void steps_are_not_contracted(void **state) {
    NEED_DEVICE(state);
    maker m = {.b = BENCH(state), .attr = qn_attr_region_default()};
    help_case c = {.op = QN_OP_region, .attr = &m.attr, .n_src = 3, .bound = 0};
    for (int i = 0; i < 3; i++) c.src[i] = (help_item){F32, 1, {1000}, DENSE, -2, 2, 0};
    add(&m, QN_REGION_arith, QN_ARITH_mul, F32, 0, 1, 0);
    add(&m, QN_REGION_arith, QN_ARITH_add, F32, QN_REGION_STEP_BIT, 2, 0);
    m.attr.code.w[2] |= 1u << 31;
    help_compare(BENCH(state), &c);
}

static void pipelines_are_found_by_what_they_compute(void **state) {
    NEED_DEVICE(state);
    help_bench *b = BENCH(state);
    int before = qn_vulkan_pipelines(b->device);
    for (int i = 0; i < 4; i++) {
        maker m = {.b = b, .attr = qn_attr_region_default()};
        help_case c = {.op = QN_OP_region, .attr = &m.attr, .n_src = 1, .bound = 1e-7};
        c.src[0] = (help_item){F32, 2, {5 + i, 7}, DENSE, -2, 2, 0};
        add(&m, QN_REGION_unary, i == 3 ? QN_UNARY_exp : QN_UNARY_tanh, F32, 0, 0, 0);
        add(&m, QN_REGION_math, QN_MATH_recip, F32, 128, 0, 0);
        m.attr.code.w[2] |= 1u << 31;
        help_compare(b, &c);
    }
    assert_int_equal(qn_vulkan_pipelines(b->device) - before, 2);
}

/* ---- The modules themselves */

typedef struct judge {
    char path[64];
    int seen, refused;
} judge;

static void judge_module(void *user, const uint32_t *words, size_t n) {
    judge *j = user;
    char command[128];
    FILE *file = fopen(j->path, "wb");
    int written = file && fwrite(words, sizeof *words, n, file) == n;
    if (file) written &= fclose(file) == 0;
    snprintf(command, sizeof command, "spirv-val --target-env vulkan1.2 %s", j->path);
    j->seen++;
    if (!written || system(command) != 0) j->refused++;
}

static judge the_judge;

static int open_with_judge(void **state) {
    int status = open_group(state);
    strcpy(the_judge.path, "/tmp/quern-region-XXXXXX");
    if (status || !BENCH(state)->device || system("spirv-val --version >/dev/null 2>&1") != 0) return status;
    int fd = mkstemp(the_judge.path);
    if (fd < 0) return 1;
    close(fd);
    qn_vulkan_show_modules(BENCH(state)->device, judge_module, &the_judge);
    return 0;
}

static int close_with_judge(void **state) {
    printf("vulkan: spirv-val saw %d emitted modules and refused %d\n", the_judge.seen, the_judge.refused);
    unlink(the_judge.path);
    return close_group(state) || the_judge.refused != 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(functions_agree),
        cmocka_unit_test(slopes_agree),
        cmocka_unit_test(truths_agree),
        cmocka_unit_test(where_agrees),
        cmocka_unit_test(random_programs_agree),
        cmocka_unit_test(steps_are_not_contracted),
        cmocka_unit_test(pipelines_are_found_by_what_they_compute),
    };
    return cmocka_run_group_tests(tests, open_with_judge, close_with_judge);
}
