/* Conversions: saturation, rounding, exact 64-bit integers, blocks. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "cmocka_setup.h"
#include "tensor/convert.h"

static void floats_saturate_into_integers(void **state) {
    (void)state;
    double in[6] = {1e300, -1e300, NAN, INFINITY, -2.9, 2.9};
    int32_t i32[6];
    int8_t i8[6];
    uint8_t u8[6];
    int64_t i64[6];
    assert_int_equal(qn_convert(QN_DTYPE_F64, in, QN_DTYPE_I32, i32, 6), QN_OK);
    assert_int_equal(qn_convert(QN_DTYPE_F64, in, QN_DTYPE_I8, i8, 6), QN_OK);
    assert_int_equal(qn_convert(QN_DTYPE_F64, in, QN_DTYPE_U8, u8, 6), QN_OK);
    assert_int_equal(qn_convert(QN_DTYPE_F64, in, QN_DTYPE_I64, i64, 6), QN_OK);
    const int32_t want32[6] = {INT32_MAX, INT32_MIN, 0, INT32_MAX, -2, 2};
    const int8_t want8[6] = {INT8_MAX, INT8_MIN, 0, INT8_MAX, -2, 2};
    const uint8_t wantu[6] = {255, 0, 0, 255, 0, 2};
    assert_memory_equal(i32, want32, sizeof i32);
    assert_memory_equal(i8, want8, sizeof i8);
    assert_memory_equal(u8, wantu, sizeof u8);
    assert_true(i64[0] == INT64_MAX && i64[1] == INT64_MIN && i64[2] == 0);
}

static void long_integers_keep_their_low_bits(void **state) {
    (void)state;
    int64_t in[3] = {(INT64_C(1) << 53) + 1, INT64_MIN, 300}, out[3];
    int32_t narrow[3];
    uint32_t unsigned_narrow[3];
    assert_int_equal(qn_convert(QN_DTYPE_I64, in, QN_DTYPE_I64, out, 3), QN_OK);
    assert_memory_equal(in, out, sizeof in);
    assert_int_equal(qn_convert(QN_DTYPE_I64, in, QN_DTYPE_I32, narrow, 3), QN_OK);
    assert_true(narrow[0] == INT32_MAX && narrow[1] == INT32_MIN && narrow[2] == 300);
    assert_int_equal(qn_convert(QN_DTYPE_I64, in, QN_DTYPE_U32, unsigned_narrow, 3), QN_OK);
    assert_true(unsigned_narrow[0] == UINT32_MAX && unsigned_narrow[1] == 0);
}

/* Just past a tie, by what a double of the integer would lose: rounding to it first would fall back onto the tie, to even. */
static void long_integers_round_once_into_floats(void **state) {
    (void)state;
    int64_t one = INT64_C(1) << 60, tie = one + (INT64_C(1) << 36), in[4] = {tie + 1, -tie - 1, tie, INT64_MIN};
    int64_t wide = one + (INT64_C(1) << 52) + 1;
    float out[4];
    double exact;
    uint16_t brain;
    assert_int_equal(qn_convert(QN_DTYPE_I64, in, QN_DTYPE_F32, out, 4), QN_OK);
    const float want[4] = {0x1p60f + 0x1p37f, -0x1p60f - 0x1p37f, 0x1p60f, -0x1p63f};
    assert_memory_equal(out, want, sizeof want);
    assert_int_equal(qn_convert(QN_DTYPE_I64, &wide, QN_DTYPE_BF16, &brain, 1), QN_OK);
    assert_int_equal(brain, 0x5d81);
    assert_int_equal(qn_convert(QN_DTYPE_I64, &wide, QN_DTYPE_F64, &exact, 1), QN_OK);
    assert_true(exact == 0x1p60 + 0x1p52);
}

static void doubles_round_once_into_halves(void **state) {
    (void)state;
    /* just above the tie between 1 and the next half: rounding through f32 first would fall back onto the tie, to even */
    double in = 1 + ldexp(1, -11) + ldexp(1, -40);
    uint16_t half;
    assert_int_equal(qn_convert(QN_DTYPE_F64, &in, QN_DTYPE_F16, &half, 1), QN_OK);
    assert_int_equal(half, 0x3c01);
}

static void blocks_need_whole_blocks_and_a_codec(void **state) {
    (void)state;
    float x[64], back[64];
    uint8_t q[64];
    for (int i = 0; i < 64; i++) x[i] = (float)(i - 32) / 8;
    assert_int_equal(qn_convert(QN_DTYPE_F32, x, QN_DTYPE_Q8_0, q, 33), QN_INVALID);
    assert_int_equal(qn_convert(QN_DTYPE_F32, x, QN_DTYPE_Q8_0, q, 32), QN_OK);
    assert_int_equal(qn_convert(QN_DTYPE_Q8_0, q, QN_DTYPE_F32, back, 32), QN_OK);
    for (int i = 0; i < 32; i++) assert_true(fabsf(x[i] - back[i]) < 0.02f);
    assert_int_equal(qn_convert(QN_DTYPE_Q8_0, q, QN_DTYPE_Q4_0, back, 32), QN_UNSUPPORTED);
    assert_int_equal(qn_convert(QN_DTYPE_Q8_0, q, QN_DTYPE_I32, back, 32), QN_UNSUPPORTED);
    assert_int_equal(qn_convert(QN_DTYPE_C64, x, QN_DTYPE_F32, back, 4), QN_UNSUPPORTED);
    assert_int_equal(qn_convert((qn_dtype)200, x, QN_DTYPE_F32, back, 4), QN_INVALID);
    assert_int_equal(qn_convert(QN_DTYPE_F32, NULL, QN_DTYPE_F32, back, 4), QN_INVALID);
}

static void names_and_gguf_ids_find_their_dtype(void **state) {
    (void)state;
    for (int d = 1; d < QN_DTYPE_COUNT; d++) {
        const qn_dtype_info *info = qn_dtype_describe((qn_dtype)d);
        assert_int_equal(qn_dtype_from_name(info->name), d);
        if (info->gguf >= 0) assert_int_equal(qn_dtype_from_gguf((uint32_t)info->gguf), d);
    }
    const uint32_t retired[] = {4, 5, 31, 32, 33, 36, 37, 38, 43, UINT32_MAX};
    for (size_t i = 0; i < sizeof retired / sizeof *retired; i++) assert_int_equal(qn_dtype_from_gguf(retired[i]), QN_DTYPE_NONE);
    assert_int_equal(qn_dtype_from_name("q9_9"), QN_DTYPE_NONE);
    assert_int_equal(qn_dtype_from_name(NULL), QN_DTYPE_NONE);
    assert_null(qn_dtype_describe(QN_DTYPE_COUNT));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(floats_saturate_into_integers),       cmocka_unit_test(long_integers_keep_their_low_bits),
        cmocka_unit_test(doubles_round_once_into_halves),      cmocka_unit_test(blocks_need_whole_blocks_and_a_codec),
        cmocka_unit_test(names_and_gguf_ids_find_their_dtype), cmocka_unit_test(long_integers_round_once_into_floats),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
