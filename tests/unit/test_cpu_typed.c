/* Kernels of integers and f64 against the reference, bit for bit: numbers at the ends of every dtype, which doubles do not hold, and
 * operands laid out in every way, through each level of this machine. */
#include <math.h>
#include <string.h>

#include <quern/quern.h>

#include "level_help.h"
#include "op/region.h"
#include "tensor/convert.h"

enum { ROWS = 3, WIDE = 601, ROOM = 3 * ROWS * WIDE * 8, WORK = 1 << 20 };

static const qn_dtype dtypes[] = {QN_DTYPE_F64, QN_DTYPE_I8,  QN_DTYPE_U8,  QN_DTYPE_I16,  QN_DTYPE_I32, QN_DTYPE_I64,
                                  QN_DTYPE_U32, QN_DTYPE_F32, QN_DTYPE_F16, QN_DTYPE_BF16, QN_DTYPE_BOOL};
enum { DTYPES = sizeof dtypes / sizeof dtypes[0], NUMBERS = 7 };

static _Alignas(64) unsigned char source[3][ROOM], want[ROOM], got[ROOM], work[WORK];

/* Any bits, small numbers, and what lies at the ends and beside powers of two. */
static void fill(qn_dtype dtype, unsigned char *to, size_t bytes) {
    int64_t size = qn_dtype_describe(dtype)->bytes;
    for (size_t i = 0; i + (size_t)size <= bytes; i += (size_t)size) {
        uint64_t bits = draw_bits();
        double real = (double)(int64_t)bits / 1e18;
        float single = (float)real;
        static const double ends[] = {0.0, -0.0, INFINITY, -INFINITY, NAN, 1, -1, 9.3e18, -9.3e18, 0.5};
        switch (draw_bits() % 5) {
        case 0: break;
        case 1: bits = draw_bits() % 7 - 3; break;
        case 2: bits = ((uint64_t)1 << draw_bits() % 64) - draw_bits() % 2; break;
        case 3:
            bits = ((uint64_t)1 << 60) + ((uint64_t)1 << (draw_bits() % 2 ? 36 : 52)) + draw_bits() % 3 - 1;
            break; /* beside ties of floats */
        default: bits = draw_bits() % 2 ? (uint64_t)INT64_MIN : (uint64_t)INT64_MAX;
        }
        if (draw_bits() % 8 == 0) real = ends[draw_bits() % 10], single = (float)real;
        if (dtype == QN_DTYPE_BOOL) bits &= 1;
        if (dtype == QN_DTYPE_F64) memcpy(&bits, &real, 8);
        if (dtype == QN_DTYPE_F32) memcpy(&bits, &single, 4);
        memcpy(to + i, &bits, (size_t)size);
    }
}

/* 0 dense, 1 one row, 2 one column, 3 one element, 4 both axes backwards, 5 with gaps, 6 turned, 7 a row again and again. */
static qn_tensor lay(qn_dtype dtype, int way, void *data) {
    int64_t size = qn_dtype_describe(dtype)->bytes, rows = way == 1 || way == 3 ? 1 : ROWS,
            wide = way == 2 || way == 3 ? 1 : WIDE;
    qn_tensor t = {.dtype = dtype, .rank = 2, .shape = {rows, wide}, .stride = {wide * size, size}, .data = data, .size = ROOM};
    if (way == 4) t.stride[0] = -WIDE * size, t.stride[1] = -size, t.offset = (ROWS * WIDE - 1) * size;
    if (way == 5) t.stride[0] = (2 * WIDE + 1) * size, t.stride[1] = 2 * size, t.offset = size;
    if (way == 6) t.stride[0] = size, t.stride[1] = ROWS * size;
    if (way == 7) t.stride[0] = 0;
    return t;
}

/* A matrix of f64, `step` elements from one to the next. */
static qn_tensor flat(void *data, int64_t rows, int64_t wide, int64_t step) {
    return (qn_tensor){.dtype = QN_DTYPE_F64,
                       .rank = 2,
                       .shape = {rows, wide},
                       .stride = {wide * step * 8, step * 8},
                       .data = data,
                       .size = ROOM};
}

static int same(qn_dtype dtype, const unsigned char *a, const unsigned char *b) {
    double x, y;
    if (memcmp(a, b, (size_t)qn_dtype_describe(dtype)->bytes) == 0) return 1;
    if (!qn_is_float(dtype)) return 0;
    qn_convert(dtype, a, QN_DTYPE_F64, &x, 1);
    qn_convert(dtype, b, QN_DTYPE_F64, &y, 1);
    return isnan(x) && isnan(y); /* whichever NaN it is */
}

/* Every byte that is not the result's must stay. */
static void compare(qn_op op, int subop, const void *attr, int n_src, const qn_tensor *const *src, const qn_tensor *to) {
    qn_result r;
    qn_tensor y = *to;
    qn_request q = {.size = sizeof q, .version = 1, .op = (uint16_t)op, .subop = (uint16_t)subop, .attr = attr, .n_dst = 1};
    q.n_src = (uint8_t)n_src, q.workspace = work, q.workspace_size = WORK, q.dst[0] = &y;
    for (int i = 0; i < n_src; i++) q.src[i] = src[i];
    memset(want, 0x5a, ROOM);
    memset(got, 0x5a, ROOM);
    y.data = want;
    assert_int_equal(qn_dispatch(reference, &q, &r), QN_OK);
    y.data = got;
    assert_int_equal(qn_dispatch(level, &q, &r), QN_OK);
    if (memcmp(want, got, ROOM) == 0) return;
    int64_t size = qn_dtype_describe((qn_dtype)y.dtype)->bytes;
    for (int64_t i = 0; i < ROOM / size; i++)
        if (!same((qn_dtype)y.dtype, want + i * size, got + i * size))
            fail_msg("%s.%d of %s to %s, element %d", qn_op_describe(op)->name, subop,
                     qn_dtype_describe((qn_dtype)src[n_src - 1]->dtype)->name, qn_dtype_describe((qn_dtype)y.dtype)->name,
                     (int)i);
}
#define COMPARE(op, subop, attr, y, ...)                                                          \
    compare(QN_OP_##op, subop, attr, sizeof((const qn_tensor *[]){__VA_ARGS__}) / sizeof(void *), \
            (const qn_tensor *[]){__VA_ARGS__}, y)

static void check_pairs(void) {
    static const int ways[][3] = {{0, 0, 0}, {0, 1, 0}, {2, 1, 5}, {3, 4, 4}, {5, 6, 6}, {7, 0, 5}, {4, 2, 6}};
    for (int d = 0; d < DTYPES; d++) {
        for (int i = 0; i < 3; i++) fill(i ? dtypes[d] : QN_DTYPE_BOOL, source[i], ROOM);
        for (size_t w = 0; w < sizeof ways / sizeof ways[0]; w++) {
            qn_tensor a = lay(dtypes[d], ways[w][0], source[1]), b = lay(dtypes[d], ways[w][1], source[2]);
            qn_tensor y = lay(dtypes[d], ways[w][2], NULL), truth = lay(QN_DTYPE_BOOL, ways[w][2], NULL);
            qn_tensor is = lay(QN_DTYPE_BOOL, ways[w][0], source[0]);
            for (int k = 0; k < QN_ARITH_COUNT && d < NUMBERS; k++) COMPARE(arith, k, NULL, &y, &a, &b);
            for (int k = 0; k < QN_COMPARE_COUNT; k++) COMPARE(compare, k, NULL, &truth, &a, &b);
            COMPARE(where, 0, NULL, &y, &is, &a, &b);
        }
    }
}

static void check_casts(void) {
    static const int ways[][2] = {{0, 0}, {4, 6}, {5, 5}, {7, 4}};
    for (int from = 0; from < DTYPES; from++) {
        fill(dtypes[from], source[0], ROOM);
        for (int to = 0; to < DTYPES; to++)
            for (int w = 0; w < 4; w++) {
                qn_attr_cast at = qn_attr_cast_default();
                at.dtype = dtypes[to];
                qn_tensor a = lay(dtypes[from], ways[w][0], source[0]), y = lay(dtypes[to], ways[w][1], NULL);
                COMPARE(cast, 0, &at, &y, &a);
            }
    }
}

/* Sums and products of f64 have an order of their own, so only what has none is compared. */
static void check_reductions(void) {
    for (int d = 0; d < NUMBERS; d++) {
        fill(dtypes[d], source[0], ROOM);
        for (int k = 0; k < 8 * 3; k++) {
            int way = k / 3, set = k % 3; /* the first axis, the last, all */
            qn_attr_reduce at = qn_attr_reduce_default();
            qn_attr_arg_reduce best = qn_attr_arg_reduce_default();
            at.axes.rank = set < 2, at.axes.d[0] = best.axis = set & 1, at.keep = best.keep = 1;
            qn_tensor a = lay(dtypes[d], way, source[0]), y = lay(dtypes[d], 0, NULL), where = lay(QN_DTYPE_I32, 0, NULL);
            y.shape[0] = where.shape[0] = set == 1 ? a.shape[0] : 1;
            y.shape[1] = where.shape[1] = set == 0 ? a.shape[1] : 1;
            y.stride[0] = y.shape[1] * y.stride[1], where.stride[0] = y.shape[1] * where.stride[1];
            for (int r = 0; r < QN_REDUCE_COUNT; r++)
                if (dtypes[d] != QN_DTYPE_F64 || r == QN_REDUCE_max || r == QN_REDUCE_min) COMPARE(reduce, r, &at, &y, &a);
            for (int r = 0; r < 2 && set < 2; r++) COMPARE(arg_reduce, r, &best, &where, &a);
        }
    }
}

static void check_scans(void) {
    for (int d = 0; d <= NUMBERS; d++) { /* f32 as well, of which few rows are no lanes */
        fill(dtypes[d], source[0], ROOM);
        for (int k = 0; k < 8 * 16; k++) {
            int way = k / 16;
            qn_attr_scan at = qn_attr_scan_default();
            at.axis = k & 1, at.reverse = k >> 1 & 1, at.exclusive = k >> 2 & 1;
            qn_tensor a = lay(dtypes[d], way, source[0]), y = lay(dtypes[d], way == 7 ? 0 : way, NULL);
            COMPARE(scan, k >> 3 & 1, &at, &y, &a);
        }
    }
}

/* Functions of f64, in tiles of doubles; and of one dtype with another among the steps, which is a program. */
static void check_maps(void) {
    fill(QN_DTYPE_F64, source[0], ROOM);
    fill(QN_DTYPE_F64, source[1], ROOM);
    for (int way = 0; way < 8; way++) {
        qn_attr_scale scale = qn_attr_scale_default();
        qn_attr_clamp clamp = qn_attr_clamp_default();
        scale.s = -1.7f, scale.b = way & 1 ? 0.3f : 0, clamp.min = -0.5f, clamp.max = 2;
        qn_tensor a = lay(QN_DTYPE_F64, way, source[0]), b = lay(QN_DTYPE_F64, way, source[1]),
                  y = lay(QN_DTYPE_F64, way == 7 ? 0 : way, NULL);
        for (int k = 0; k < QN_UNARY_COUNT; k++)
            if (k != QN_UNARY_xielu) {
                COMPARE(unary, k, NULL, &y, &a);
                COMPARE(unary_back, k, NULL, &y, &a, &b);
            }
        for (int k = 0; k < QN_MATH_COUNT; k++) COMPARE(math, k, NULL, &y, &a);
        COMPARE(sqr, 0, NULL, &y, &a);
        COMPARE(sqrt, 0, NULL, &y, &a);
        COMPARE(leaky_relu, 0, NULL, &y, &a);
        COMPARE(scale, 0, &scale, &y, &a);
        COMPARE(clamp, 0, &clamp, &y, &a);
    }
}

static void check_programs(void) {
    static const qn_dtype ints[] = {QN_DTYPE_I8, QN_DTYPE_U8, QN_DTYPE_I16, QN_DTYPE_I32, QN_DTYPE_U32};
    for (int d = 0; d < 5; d++) { /* where the first is below the second the third, else the first as a half */
        fill(ints[d], source[0], ROOM);
        fill(ints[d], source[1], ROOM);
        fill(QN_DTYPE_F32, source[2], ROOM);
        qn_region_step steps[] = {
            {QN_REGION_compare, QN_COMPARE_lt, QN_DTYPE_BOOL, -1, 2, {0, 1}, 0},
            {QN_REGION_cast, 0, QN_DTYPE_F16, -1, 1, {0}, 0},
            {QN_REGION_where, 0, QN_DTYPE_F32, 0, 3, {QN_REGION_STEP_BIT, 2, QN_REGION_STEP_BIT + 1}, 0},
        };
        qn_attr_region at = qn_attr_region_default();
        for (int i = 0; i < 3; i++) assert_true(qn_region_append(&at.code, &steps[i]));
        for (int way = 0; way < 8; way++) {
            qn_tensor a = lay(ints[d], way, source[0]), b = lay(ints[d], 0, source[1]), c = lay(QN_DTYPE_F32, 1, source[2]);
            qn_tensor y = lay(QN_DTYPE_F32, 0, NULL);
            COMPARE(region, 0, &at, &y, &a, &b, &c);
        }
    }
}

/* Products of f64: rows, depth and columns. */
static void check_products(void) {
    static const int sizes[][3] = {{7, 601, 9}, {5, 66, 70}, {1, 700, 7}, {9, 1, 33}, {70, 20, 3}};
    for (int i = 0; i < 2; i++)
        for (int k = 0; k < ROOM / 8; k++) ((double *)(void *)source[i])[k] = (double)(int64_t)draw_bits() / 1e18;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        for (int way = 0; way < 8; way++) {
            int64_t m = sizes[i][0], k = sizes[i][1], n = sizes[i][2];
            qn_attr_matmul at = qn_attr_matmul_default();
            at.transpose_a = way & 1, at.transpose_b = way >> 1 & 1;
            qn_tensor a = flat(source[0], at.transpose_a ? k : m, at.transpose_a ? m : k, 1),
                      b = flat(source[1], at.transpose_b ? n : k, at.transpose_b ? k : n, 1);
            qn_tensor y = way & 4 ? flat(NULL, m, n, 2) : flat(NULL, m, n, 1);
            COMPARE(matmul, 0, &at, &y, &a, &b);
            qn_tensor rows = flat(source[1], n, k, 1), tall = flat(source[0], m, k, 1), turned = flat(NULL, m, n, 1);
            COMPARE(mul_mat, 0, NULL, &turned, &rows, &tall);
            qn_tensor wide = flat(source[1], k, n, 1), high = flat(source[0], k, m, 1);
            COMPARE(out_prod, 0, NULL, &turned, &wide, &high);
        }
}

/* What falls onto itself when padding that wraps is taken back, and ones along an axis that is not the last. */
static void check_placed(void) {
    for (int d = 0; d < DTYPES; d++) {
        fill(dtypes[d], source[0], ROOM);
        int64_t size = qn_dtype_describe(dtypes[d])->bytes;
        for (int k = 0; k < 4 && qn_is_float(dtypes[d]); k++) {
            qn_attr_pad_back at = qn_attr_pad_back_default();
            int left = k & 1 ? 7 : 0, wide = k & 2 ? 40 : WIDE; /* of 40 columns some are there many times */
            at.circular = 1, at.left = (qn_dims){.rank = 2, .d = {1, left}};
            at.right = (qn_dims){.rank = 2, .d = {2, 640 - wide - left}};
            qn_tensor g = flat(source[0], ROWS + 3, 640, 1), y = lay(dtypes[d], 0, NULL);
            g.dtype = dtypes[d], g.stride[0] = 640 * size, g.stride[1] = size;
            y.shape[1] = wide, y.stride[0] = wide * size;
            COMPARE(pad_back, 0, &at, &y, &g);
        }
        for (int i = 0; i < ROWS * WIDE; i++) ((int32_t *)(void *)source[1])[i] = (int32_t)(draw_bits() % 3);
        for (int k = 0; k < 3; k++) {
            qn_attr_one_hot at = qn_attr_one_hot_default();
            at.depth = 3, at.axis = k, at.dtype = dtypes[d], at.on = 3, at.off = -2;
            qn_tensor idx = lay(QN_DTYPE_I32, 0, source[1]);
            qn_tensor y = {.dtype = dtypes[d], .rank = 3, .shape = {ROWS, ROWS, WIDE}, .size = ROOM};
            if (k == 2) y.shape[1] = WIDE, y.shape[2] = ROWS;
            y.stride[2] = size, y.stride[1] = y.shape[2] * size, y.stride[0] = y.shape[1] * y.stride[1];
            COMPARE(one_hot, 0, &at, &y, &idx);
        }
    }
}

static void pairs_have_the_bits_of_the_reference(void **unused) {
    (void)unused;
    each_level(check_pairs);
}
static void casts_have_the_bits_of_the_reference(void **unused) {
    (void)unused;
    each_level(check_casts);
}
static void reductions_have_the_bits_of_the_reference(void **unused) {
    (void)unused;
    each_level(check_reductions);
}
static void scans_have_the_bits_of_the_reference(void **unused) {
    (void)unused;
    each_level(check_scans);
}

static void maps_have_the_bits_of_the_reference(void **unused) {
    (void)unused;
    each_level(check_maps);
}
static void products_have_the_bits_of_the_reference(void **unused) {
    (void)unused;
    each_level(check_products);
}
static void placed_have_the_bits_of_the_reference(void **unused) {
    (void)unused;
    each_level(check_placed);
}
static void programs_have_the_bits_of_the_reference(void **unused) {
    (void)unused;
    each_level(check_programs);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pairs_have_the_bits_of_the_reference),      cmocka_unit_test(casts_have_the_bits_of_the_reference),
        cmocka_unit_test(reductions_have_the_bits_of_the_reference), cmocka_unit_test(scans_have_the_bits_of_the_reference),
        cmocka_unit_test(maps_have_the_bits_of_the_reference),       cmocka_unit_test(programs_have_the_bits_of_the_reference),
        cmocka_unit_test(products_have_the_bits_of_the_reference),   cmocka_unit_test(placed_have_the_bits_of_the_reference),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
