/* Block codecs and half-precision conversions: codebook checksums, golden vectors, hostile floats, random bytes, and
 * the conversions against double arithmetic. The golden vectors live outside the repository and are skipped when
 * absent. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tensor/half.h"
#include "tensor/quant.h"
#include "tensor/quant_grids.h"

#ifndef QN_SHARED_DIR
#define QN_SHARED_DIR "../shared"
#endif

enum { GOLDEN = 2048, MAX_BYTES = 4096 };

typedef struct block_type {
    qn_dtype dtype;
    const char *name;
    int is_block;
    int block;
    int bytes;
} block_type;

enum { KIND_FLOAT, KIND_INT, KIND_UINT, KIND_BOOL, KIND_COMPLEX, KIND_BLOCK };

static const block_type types[] = {
#define QN_DTYPE(enumerator, name, kind, block, bytes, gguf, safetensors, onnx) \
    {QN_DTYPE_##enumerator, name, KIND_##kind == KIND_BLOCK, block, bytes},
#include <quern/dtypes.def>
#undef QN_DTYPE
};
enum { TYPE_COUNT = (int)(sizeof types / sizeof types[0]) };

static uint64_t next_random(uint64_t *state) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* ---- Table ------------------------------------------------------------------------------------------------------- */

static void test_every_block_type_has_a_codec(void **state) {
    (void)state;
    for (int t = 0; t < TYPE_COUNT; t++) {
        const qn_block_codec *codec = qn_tensor_block_codec(types[t].dtype);
        if (!types[t].is_block) {
            assert_null(codec);
            continue;
        }
        int offline = strncmp(types[t].name, "iq1", 3) == 0 || strncmp(types[t].name, "iq2", 3) == 0 ||
                      strncmp(types[t].name, "iq3", 3) == 0;
        assert_non_null(codec);
        assert_true(codec->decode != NULL && codec->encode != NULL);
        assert_int_equal(codec->run_time_encode, !offline);
    }
    assert_null(qn_tensor_block_codec(QN_DTYPE_NONE));
    assert_null(qn_tensor_block_codec(QN_DTYPE_COUNT));
}

/* ---- Codebooks --------------------------------------------------------------------------------------------------- */

static uint32_t crc32_step(uint32_t crc, unsigned byte) {
    crc ^= byte;
    for (int bit = 0; bit < 8; bit++) crc = crc & 1u ? crc >> 1 ^ 0xedb88320u : crc >> 1;
    return crc;
}

static void check_grid(const uint16_t *grid, int entries, const int8_t *values, int digits, uint32_t compact, uint32_t expanded) {
    uint32_t crc_compact = UINT32_MAX, crc_expanded = UINT32_MAX;
    int bits = digits == 8 ? 2 : 3;
    for (int n = 0; n < entries; n++) {
        crc_compact = crc32_step(crc32_step(crc_compact, grid[n] & 255u), (unsigned)grid[n] >> 8);
        for (int i = 0; i < digits; i++)
            crc_expanded = crc32_step(crc_expanded, (uint8_t)values[(grid[n] >> (bits * i)) & ((1 << bits) - 1)]);
    }
    assert_int_equal(~crc_compact, compact);
    assert_int_equal(~crc_expanded, expanded);
}

static void test_grids_have_their_checksums(void **state) {
    (void)state;
    check_grid(qn_grid_iq2_xxs, 256, qn_grid_values_iq2, 8, 0xd01c53f2u, 0x9924ff02u);
    check_grid(qn_grid_iq2_xs, 512, qn_grid_values_iq2, 8, 0x622e679au, 0xfa1e1bfdu);
    check_grid(qn_grid_iq2_s, 1024, qn_grid_values_iq2, 8, 0xf8ad4e5eu, 0x25ae5bf1u);
    check_grid(qn_grid_iq3_xxs, 256, qn_grid_values_iq3_xxs, 4, 0xf68a6a07u, 0x07ba9ed0u);
    check_grid(qn_grid_iq3_s, 512, qn_grid_values_iq3_s, 4, 0xa43c1089u, 0xf576e4f3u);
    check_grid(qn_grid_iq1, 2048, qn_grid_values_iq1, 8, 0xa0911588u, 0xb85e6ccfu);
}

/* ---- Golden vectors ---------------------------------------------------------------------------------------------- */

static size_t read_golden(const char *name, const char *suffix, void *into, size_t size) {
    char path[1024];
    snprintf(path, sizeof path, "%s/data/quant-vectors/%s%s", QN_SHARED_DIR, name, suffix);
    FILE *file = fopen(path, "rb");
    if (file == NULL) return 0;
    size_t got = fread(into, 1, size, file);
    fclose(file);
    return got;
}

static double nmse(const float *got, const float *want, int n) {
    double error = 0.0, power = 0.0;
    for (int i = 0; i < n; i++) {
        double difference = (double)got[i] - (double)want[i];
        error += difference * difference;
        power += (double)want[i] * (double)want[i];
    }
    return error / power;
}

/* Decoding the golden bytes, and encoding the golden input no worse than 1 % above the golden error. */
static int check_golden(const block_type *type, const float *input) {
    static float want[GOLDEN], got[GOLDEN];
    static uint8_t bytes[MAX_BYTES], coded[MAX_BYTES];
    const qn_block_codec *codec = qn_tensor_block_codec(type->dtype);
    int64_t blocks = GOLDEN / type->block;
    size_t size = (size_t)blocks * (size_t)type->bytes;
    if (read_golden(type->name, ".bytes.bin", bytes, sizeof bytes) != size ||
        read_golden(type->name, ".f32.bin", want, sizeof want) != sizeof want)
        return 0;
    codec->decode(bytes, blocks, got);
    for (int i = 0; i < GOLDEN; i++)
        if (fabsf(got[i] - want[i]) > fabsf(want[i]) * FLT_EPSILON)
            fail_msg("%s: element %d is %a, not %a", type->name, i, (double)got[i], (double)want[i]);
    double golden = nmse(want, input, GOLDEN);
    qn_tensor_block_encode(codec, input, NULL, blocks, coded);
    codec->decode(coded, blocks, got);
    double ours = nmse(got, input, GOLDEN);
    print_message("  %-8s golden %.4e ours %.4e\n", type->name, golden, ours);
    assert_true(ours <= golden * 1.01);
    return 1;
}

static void test_golden_vectors(void **state) {
    (void)state;
    static float input[GOLDEN];
    int checked = 0;
    if (read_golden("input", ".f32.bin", input, sizeof input) != sizeof input) {
        print_message("no golden vectors under " QN_SHARED_DIR ": skipped\n");
        skip();
    }
    for (int t = 0; t < TYPE_COUNT; t++)
        if (types[t].is_block) checked += check_golden(&types[t], input);
    assert_int_equal(checked, 25);
}

/* The types whose format defines one encoding: the run-time encoder gives the golden bytes themselves. */
static void test_run_time_bytes(void **state) {
    (void)state;
    static const qn_dtype exact[] = {QN_DTYPE_Q8_0,  QN_DTYPE_TQ1_0, QN_DTYPE_TQ2_0, QN_DTYPE_MXFP4,
                                     QN_DTYPE_NVFP4, QN_DTYPE_Q1_0,  QN_DTYPE_Q2_0};
    static float input[GOLDEN];
    static uint8_t bytes[MAX_BYTES], coded[MAX_BYTES];
    if (read_golden("input", ".f32.bin", input, sizeof input) != sizeof input) skip();
    for (size_t i = 0; i < sizeof exact / sizeof exact[0]; i++)
        for (int t = 0; t < TYPE_COUNT; t++) {
            if (types[t].dtype != exact[i]) continue;
            size_t size = (size_t)GOLDEN / (size_t)types[t].block * (size_t)types[t].bytes;
            assert_int_equal(read_golden(types[t].name, ".bytes.bin", bytes, sizeof bytes), size);
            qn_tensor_block_codec(exact[i])->encode(input, GOLDEN / types[t].block, coded);
            assert_memory_equal(coded, bytes, size);
        }
}

/* Weights are heard: what they make important gets less error than without them, in every type that searches. */
static void test_weights_lower_the_weighted_error(void **state) {
    (void)state;
    enum { N = 4096 };
    static float x[N], w[N], back[N];
    static uint8_t bytes[4 * N];
    uint64_t seed = 99;
    for (int i = 0; i < N; i++) {
        for (int k = 0; k < 4; k++) x[i] += (float)(next_random(&seed) >> 40) * 0x1p-24f - 0.5f;
        w[i] = i % 7 == 0 ? 50.0f : (float)(next_random(&seed) >> 40) * 0x1p-24f; /* a few columns matter most */
    }
    for (int t = 0; t < TYPE_COUNT; t++) {
        const qn_block_codec *codec = qn_tensor_block_codec(types[t].dtype);
        double error[2] = {0, 0};
        if (codec == NULL || codec->encode_best == NULL) continue;
        for (int weighted = 0; weighted < 2; weighted++) {
            codec->encode_best(x, weighted ? w : NULL, N / types[t].block, bytes);
            codec->decode(bytes, N / types[t].block, back);
            for (int i = 0; i < N; i++)
                error[weighted] += (double)w[i] * ((double)back[i] - (double)x[i]) * ((double)back[i] - (double)x[i]);
        }
        print_message("  %-8s weighted error %.4e without weights, %.4e with\n", types[t].name, error[0], error[1]);
        assert_true(error[1] < 0.95 * error[0]);
    }
}

/* ---- Hostile input ----------------------------------------------------------------------------------------------- */

enum { PATTERNS = 14, HOSTILE = 256 };

static float hostile_value(int pattern, int i, uint64_t *seed) {
    uint64_t random = next_random(seed);
    switch (pattern) {
    case 0: return NAN;
    case 1: return INFINITY;
    case 2: return -INFINITY;
    case 3: return i % 2 != 0 ? FLT_MAX : -FLT_MAX;
    case 4: return i % 3 != 0 ? 1.0f : NAN;
    case 5: return i % 5 != 0 ? (float)i : INFINITY;
    case 6: return (float)(i + 1) * 0x1p-149f;
    case 7: return i == 7 ? FLT_MIN : 0.0f;
    case 8: return 0.0f;
    case 9: return i % 2 != 0 ? -0.0f : 0.0f;
    case 10: return 1.0e9f * (float)(i - 100);
    case 11: return i % 17 != 0 ? 0x1p-140f : -FLT_MAX;
    case 12: return 3.25f;
    default: return qn_bits_to_f32((uint32_t)(random >> 16));
    }
}

static void check_hostile(const block_type *type, int pattern, const float *x) {
    static float back[HOSTILE];
    static uint8_t first[2 * HOSTILE], second[2 * HOSTILE];
    const qn_block_codec *codec = qn_tensor_block_codec(type->dtype);
    int64_t blocks = HOSTILE / type->block;
    size_t size = (size_t)blocks * (size_t)type->bytes;
    for (int k = 0; k < (codec->encode_best ? 3 : 1); k++) { /* the quick one, the best, and the best under hostile weights */
        memset(first, 0xaa, sizeof first);
        memset(second, 0x55, sizeof second);
        for (int twice = 0; twice < 2; twice++) {
            uint8_t *to = twice ? second : first;
            if (k == 0) codec->encode(x, blocks, to);
            else codec->encode_best(x, k == 2 ? x : NULL, blocks, to);
        }
        assert_memory_equal(first, second, size); /* every byte written, and the same every time */
        assert_int_equal(first[size], 0xaa);
        codec->decode(first, blocks, back);
        for (int i = 0; i < HOSTILE; i++) {
            if (!isfinite(back[i])) fail_msg("%s: pattern %d decodes to %g", type->name, pattern, (double)back[i]);
            if ((pattern == 0 || pattern == 8 || pattern == 9) && back[i] != 0.0f)
                fail_msg("%s: zero decodes to %g", type->name, (double)back[i]);
        }
    }
}

static void test_hostile_floats(void **state) {
    (void)state;
    uint64_t seed = 88172645463325252u;
    for (int pattern = 0; pattern < PATTERNS; pattern++) {
        float x[HOSTILE];
        for (int i = 0; i < HOSTILE; i++) x[i] = hostile_value(pattern, i, &seed);
        for (int t = 0; t < TYPE_COUNT; t++)
            if (types[t].is_block) check_hostile(&types[t], pattern, x);
    }
}

/* A scale by a power of two changes nothing but the stored scale: the searches must not depend on the magnitude. */
static void test_codes_do_not_depend_on_magnitude(void **state) {
    (void)state;
    uint64_t seed = 5;
    float x[HOSTILE], scaled[HOSTILE], one[HOSTILE], other[HOSTILE];
    uint8_t bytes[2 * HOSTILE];
    for (int i = 0; i < HOSTILE; i++) {
        x[i] = ((float)(next_random(&seed) >> 40) - 0x1p23f) * 0x1p-20f;
        scaled[i] = x[i] * 64.0f;
    }
    for (int t = 0; t < TYPE_COUNT; t++) {
        const qn_block_codec *codec = qn_tensor_block_codec(types[t].dtype);
        if (codec == NULL || types[t].dtype == QN_DTYPE_NVFP4) /* its scale has too little range for this */
            continue;
        codec->encode(x, HOSTILE / types[t].block, bytes);
        codec->decode(bytes, HOSTILE / types[t].block, one);
        codec->encode(scaled, HOSTILE / types[t].block, bytes);
        codec->decode(bytes, HOSTILE / types[t].block, other);
        for (int i = 0; i < HOSTILE; i++)
            if (fabsf(one[i] * 64.0f - other[i]) > 0.02f * fabsf(other[i]) + 0.02f)
                fail_msg("%s: %g and %g", types[t].name, (double)one[i], (double)other[i]);
    }
}

static void test_decode_of_random_bytes(void **state) {
    (void)state;
    uint64_t seed = 1234567;
    uint8_t bytes[512];
    float out[HOSTILE];
    for (int round = 0; round < 200; round++) {
        for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = round == 0 ? 0xff : (uint8_t)(next_random(&seed) >> 24);
        for (int t = 0; t < TYPE_COUNT; t++)
            if (types[t].is_block) /* an odd address: blocks in a file need not be aligned */
                qn_tensor_block_codec(types[t].dtype)->decode(bytes + 1, HOSTILE / types[t].block, out);
    }
}

/* The format's decoders take a scale of 0x7f for 0, and of a scale with the upper bit set what is below it. */
static void test_scales_of_nvfp4(void **state) {
    static const struct {
        uint8_t code;
        float six; /* what the largest element is under it */
    } scales[] = {{0x00, 0.0f}, {0x01, 6 * 0x1p-9f}, {0x38, 6.0f}, {0x7e, 2688.0f},
                  {0x7f, 0.0f}, {0x80, 0.0f},        {0xb8, 6.0f}, {0xff, 2880.0f}};
    (void)state;
    for (size_t i = 0; i < sizeof scales / sizeof scales[0]; i++) {
        uint8_t block[36] = {scales[i].code};
        float out[64];
        memset(block + 4, 0x77, sizeof block - 4);
        qn_tensor_block_codec(QN_DTYPE_NVFP4)->decode(block, 1, out);
        assert_true(out[0] == scales[i].six);
    }
}

/* ---- Half precision ---------------------------------------------------------------------------------------------- */

/* A 16-bit format by its fraction bits and lowest exponent, and the value of a code in it by the definition. */
typedef struct half_format {
    int fraction;
    int lowest;
    uint16_t infinity;
} half_format;

static const half_format f16_format = {10, -14, 0x7c00}, bf16_format = {7, -126, 0x7f80};

static double half_value(const half_format *format, uint16_t code) {
    int magnitude = code & 0x7fff, exponent = magnitude >> format->fraction;
    int fraction = magnitude & ((1 << format->fraction) - 1);
    int spacing = format->lowest - format->fraction + (exponent == 0 ? 0 : exponent - 1);
    double value = ldexp(exponent == 0 ? fraction : fraction + (1 << format->fraction), spacing);
    return code & 0x8000 ? -value : value;
}

/* The code nearest to a finite value, ties to even, by double arithmetic: the quotient by the spacing is exact. */
static uint16_t half_nearest(const half_format *format, double value) {
    int exponent;
    double magnitude = fabs(value);
    uint16_t sign = signbit(value) ? 0x8000 : 0;
    frexp(magnitude, &exponent);
    exponent = magnitude == 0.0 || exponent - 1 < format->lowest ? format->lowest : exponent - 1;
    double units = nearbyint(ldexp(magnitude, format->fraction - exponent));
    double code = units + ldexp((double)(exponent - format->lowest), format->fraction);
    return (uint16_t)(sign | (code > format->infinity ? format->infinity : (uint16_t)code));
}

static void test_all_halves_round_trip(void **state) {
    (void)state;
    for (unsigned code = 0; code < 65536; code++) {
        uint16_t half = (uint16_t)code;
        float f16 = qn_f16_to_f32(half), bf16 = qn_bf16_to_f32(half);
        if ((code & 0x7fffu) > 0x7c00u) {
            assert_true(isnan(f16) && isnan(qn_f16_to_f32(qn_f32_to_f16(f16))));
            assert_true(isnan(qn_f16_to_f32(qn_f64_to_f16((double)f16))));
        } else {
            assert_true((code & 0x7fffu) == 0x7c00u ? isinf(f16) : (double)f16 == half_value(&f16_format, half));
            assert_int_equal(qn_f32_to_f16(f16), half);
            assert_int_equal(qn_f64_to_f16((double)f16), half);
        }
        if ((code & 0x7fffu) > 0x7f80u) {
            assert_true(isnan(bf16) && isnan(qn_bf16_to_f32(qn_f32_to_bf16(bf16))));
            assert_true(isnan(qn_bf16_to_f32(qn_f64_to_bf16((double)bf16))));
        } else {
            assert_true((code & 0x7fffu) == 0x7f80u ? isinf(bf16) : (double)bf16 == half_value(&bf16_format, half));
            assert_int_equal(qn_f32_to_bf16(bf16), half);
            assert_int_equal(qn_f64_to_bf16((double)bf16), half);
        }
    }
}

static void check_roundings(double value) {
    if (!isfinite(value)) return;
    assert_int_equal(qn_f64_to_f16(value), half_nearest(&f16_format, value));
    assert_int_equal(qn_f64_to_bf16(value), half_nearest(&bf16_format, value));
    if (fabs(value) > (double)FLT_MAX) return;
    float narrow = (float)value;
    assert_int_equal(qn_f32_to_f16(narrow), half_nearest(&f16_format, (double)narrow));
    assert_int_equal(qn_f32_to_bf16(narrow), half_nearest(&bf16_format, (double)narrow));
}

/* Between every two neighbours: the tie, and the doubles just beside it, which a rounding through f32 gets wrong. */
static void test_ties(void **state) {
    (void)state;
    for (int k = 0; k < 2; k++) {
        const half_format *format = k == 0 ? &f16_format : &bf16_format;
        for (unsigned code = 0; code < format->infinity; code++) {
            double low = half_value(format, (uint16_t)code);
            double high = half_value(format, (uint16_t)(code + 1)); /* also where infinity would be as a number */
            double tie = low + (high - low) / 2;
            for (int sign = -1; sign <= 1; sign += 2) {
                check_roundings(sign * tie);
                check_roundings(sign * nextafter(tie, 0.0));
                check_roundings(sign * nextafter(tie, INFINITY));
            }
        }
    }
}

static void test_random_roundings(void **state) {
    (void)state;
    uint64_t seed = 42;
    for (int i = 0; i < 200000; i++) {
        uint64_t bits = next_random(&seed);
        double value;
        memcpy(&value, &bits, sizeof value);
        check_roundings(value);
        check_roundings((double)qn_bits_to_f32((uint32_t)bits));
        check_roundings(ldexp((double)(bits >> 11), -53 - (int)(bits % 40) + 16)); /* around the range of f16 */
    }
    assert_int_equal(qn_f32_to_f16(INFINITY), 0x7c00);
    assert_int_equal(qn_f64_to_f16(-INFINITY), 0xfc00);
    assert_int_equal(qn_f32_to_bf16(-INFINITY), 0xff80);
    assert_int_equal(qn_f64_to_bf16(INFINITY), 0x7f80);
    assert_int_equal(qn_f32_to_bf16(qn_bits_to_f32(0x7f800001u)) & 0x7fc0, 0x7fc0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_block_type_has_a_codec),
        cmocka_unit_test(test_grids_have_their_checksums),
        cmocka_unit_test(test_golden_vectors),
        cmocka_unit_test(test_run_time_bytes),
        cmocka_unit_test(test_weights_lower_the_weighted_error),
        cmocka_unit_test(test_hostile_floats),
        cmocka_unit_test(test_codes_do_not_depend_on_magnitude),
        cmocka_unit_test(test_decode_of_random_bytes),
        cmocka_unit_test(test_scales_of_nvfp4),
        cmocka_unit_test(test_all_halves_round_trip),
        cmocka_unit_test(test_ties),
        cmocka_unit_test(test_random_roundings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
