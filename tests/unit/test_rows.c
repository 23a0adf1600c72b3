/* Rows from any dtype to any other: the same as one conversion at a time, on any number of threads. */
#include "tensor/convert.h"
#include "cmocka_setup.h"

#include <stdlib.h>
#include <string.h>

#include <quern/format.h>

enum { ROWS = 37, COLUMNS = 768, MOST_BYTES = ROWS * COLUMNS * 8 };

static float input[ROWS * COLUMNS];

static int fill(void **state) {
    (void)state;
    uint32_t seed = 7;
    for (int i = 0; i < ROWS * COLUMNS; i++) {
        seed = seed * 1664525u + 1013904223u;
        input[i] = ((float)(seed >> 8) * 0x1p-24f - 0.5f) * (i % 5 == 0 ? 4.0f : 1.0f);
    }
    return 0;
}

static int is_number(const qn_dtype_info *d) { return d->kind == QN_KIND_FLOAT || d->kind == QN_KIND_BLOCK; }

/* Slow encoders get fewer rows; what they do is the same. */
static int64_t rows_for(const qn_dtype_info *d) { return strncmp(d->name, "iq", 2) == 0 ? 3 : ROWS; }

static void threads_do_not_change_the_bytes(void **state) {
    (void)state;
    static uint8_t alone[MOST_BYTES], together[MOST_BYTES], expected[MOST_BYTES];
    qn_pool *pool;
    assert_int_equal(qn_pool_create(3, &pool), QN_OK);
    for (int d = 1; d < QN_DTYPE_COUNT; d++) {
        const qn_dtype_info *to = qn_dtype_describe((qn_dtype)d);
        int64_t rows = rows_for(to);
        uint64_t bytes = (uint64_t)rows * COLUMNS / (uint64_t)to->block * (uint64_t)to->bytes;
        if (!is_number(to)) continue;
        assert_int_equal(qn_convert_rows(NULL, QN_DTYPE_F32, input, (qn_dtype)d, alone, rows, COLUMNS, NULL), QN_OK);
        assert_int_equal(qn_convert_rows(pool, QN_DTYPE_F32, input, (qn_dtype)d, together, rows, COLUMNS, NULL), QN_OK);
        assert_int_equal(qn_convert(QN_DTYPE_F32, input, (qn_dtype)d, expected, rows * COLUMNS), QN_OK);
        assert_memory_equal(alone, together, bytes);
        assert_memory_equal(alone, expected, bytes);
    }
    qn_pool_destroy(pool);
}

static void block_types_become_each_other(void **state) {
    (void)state;
    static uint8_t first[MOST_BYTES], second[MOST_BYTES];
    static float wide[ROWS * COLUMNS];
    for (int d = 1; d < QN_DTYPE_COUNT; d++) {
        const qn_dtype_info *from = qn_dtype_describe((qn_dtype)d);
        int64_t rows = 2;
        uint64_t bytes = (uint64_t)rows * COLUMNS / 32 * 34; /* q8_0 */
        if (!is_number(from)) continue;
        assert_int_equal(qn_convert_rows(NULL, QN_DTYPE_F32, input, (qn_dtype)d, first, rows, COLUMNS, NULL), QN_OK);
        assert_int_equal(qn_convert_rows(NULL, (qn_dtype)d, first, QN_DTYPE_Q8_0, second, rows, COLUMNS, NULL), QN_OK);
        assert_int_equal(qn_convert((qn_dtype)d, first, QN_DTYPE_F32, wide, rows * COLUMNS), QN_OK);
        assert_int_equal(qn_convert(QN_DTYPE_F32, wide, QN_DTYPE_Q8_0, first, rows * COLUMNS), QN_OK);
        assert_memory_equal(first, second, bytes);
    }
}

static void importance_moves_error_to_other_columns(void **state) {
    (void)state;
    static uint8_t coded[MOST_BYTES];
    static float back[ROWS * COLUMNS], importance[COLUMNS];
    double error[2] = {0, 0};
    for (int c = 0; c < COLUMNS; c++) importance[c] = c % 16 == 3 ? 100.0f : 1.0f;
    for (int weighed = 0; weighed < 2; weighed++) {
        assert_int_equal(
            qn_convert_rows(NULL, QN_DTYPE_F32, input, QN_DTYPE_Q4_K, coded, ROWS, COLUMNS, weighed ? importance : NULL), QN_OK);
        assert_int_equal(qn_convert_rows(NULL, QN_DTYPE_Q4_K, coded, QN_DTYPE_F32, back, ROWS, COLUMNS, NULL), QN_OK);
        for (int i = 3; i < ROWS * COLUMNS; i += 16)
            error[weighed] += ((double)back[i] - (double)input[i]) * ((double)back[i] - (double)input[i]);
    }
    assert_true(error[1] < 0.5 * error[0]);
}

static void what_cannot_be_is_refused(void **state) {
    (void)state;
    uint8_t bytes[64];
    assert_int_equal(qn_convert_rows(NULL, QN_DTYPE_F32, input, QN_DTYPE_Q4_0, bytes, 1, 33, NULL), QN_INVALID);
    assert_int_equal(qn_convert_rows(NULL, QN_DTYPE_F32, NULL, QN_DTYPE_Q4_0, bytes, 1, 32, NULL), QN_INVALID);
    assert_int_equal(qn_convert_rows(NULL, QN_DTYPE_F32, input, QN_DTYPE_Q4_0, bytes, -1, 32, NULL), QN_INVALID);
    assert_int_equal(qn_convert_rows(NULL, QN_DTYPE_F32, input, QN_DTYPE_Q4_0, bytes, INT64_MAX / 8, 32, NULL), QN_INVALID);
    assert_int_equal(qn_convert_rows(NULL, QN_DTYPE_I32, input, QN_DTYPE_Q4_0, bytes, 1, 32, NULL), QN_UNSUPPORTED);
    assert_int_equal(qn_convert_rows(NULL, QN_DTYPE_C64, input, QN_DTYPE_F32, bytes, 1, 8, NULL), QN_UNSUPPORTED);
    assert_int_equal(qn_convert_rows(NULL, (qn_dtype)99, input, QN_DTYPE_F32, bytes, 1, 8, NULL), QN_INVALID);
    assert_int_equal(qn_convert_rows(NULL, QN_DTYPE_F32, NULL, QN_DTYPE_Q4_0, NULL, 0, 32, NULL), QN_OK);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_do_not_change_the_bytes),
        cmocka_unit_test(block_types_become_each_other),
        cmocka_unit_test(importance_moves_error_to_other_columns),
        cmocka_unit_test(what_cannot_be_is_refused),
    };
    return cmocka_run_group_tests(tests, fill, NULL);
}
