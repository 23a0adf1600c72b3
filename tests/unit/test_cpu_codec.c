/* The vectors that write and read blocks give the codecs' bytes and numbers, on every level this machine has: also where elements tie,
 * are zero of either sign, no numbers, or at the ends of f32, and for any bytes that pose as blocks. */
#define _DEFAULT_SOURCE /* setenv */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cmocka_setup.h"
#include "cpu/cpu.h"
#include "tensor/quant.h"

enum { BLOCKS = 96, WIDE = 256, COUNT = BLOCKS * WIDE, ROOM = COUNT * 4 + 64 };

static float x[COUNT], decoded[COUNT], wanted[COUNT];
static _Alignas(64) uint8_t blocks[ROOM], encoded[ROOM];

static uint64_t next(uint64_t *state) {
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return *state >> 32;
}

/* Every 32 elements of another kind. */
static float element(uint64_t *state, int kind) {
    static const float odd[] = {NAN,        INFINITY,    -INFINITY, FLT_MAX,   -FLT_MAX, FLT_MIN, 1e-45f, -1e-45f,
                                0x1.2p-90f, -0x1.8p-91f, 0x1p100f,  -0x1p101f, 3e30f,    -2e-30f, 0.0f,   -0.0f};
    float v = (float)((double)next(state) * 0x1p-31 - 1);
    switch (kind) {
    case 0: return v;
    case 1: return (float)(int)(next(state) % 9) - 4;                      /* ties of both signs */
    case 2: return next(state) % 4 ? (next(state) % 2 ? 0.0f : -0.0f) : v; /* zeros */
    case 3: return (float)((int)(next(state) % 255) - 127) + 0.5f;         /* halves */
    case 4: return next(state) % 8 ? v : odd[next(state) % 16];
    case 5: return odd[8 + next(state) % 8];
    case 6: return next(state) % 2 ? 0.0f : -0.0f;
    case 7: return fabsf(v) * (next(state) % 3 ? 1.0f : 0.0f); /* none below zero */
    case 8: return 3.25f;
    case 9: return v * 1e6f; /* scales beyond f16 */
    default: return v * 0x1p-88f;
    }
}

static void copy(qn_context *context, qn_dtype from, void *src, qn_dtype to, void *dst) {
    qn_tensor a, b;
    qn_result r;
    qn_tensor_init(&a, from, 1, (int64_t[]){COUNT}, src, ROOM);
    qn_tensor_init(&b, to, 1, (int64_t[]){COUNT}, dst, ROOM);
    qn_request q = {.size = sizeof q, .version = QN_REQUEST_VERSION, .op = QN_OP_cpy, .n_src = 2, .n_dst = 1, .src = {&a, &b}};
    q.dst[0] = &b;
    assert_int_equal(qn_dispatch(context, &q, &r), QN_OK);
}

static void same_floats(qn_dtype type) {
    for (int i = 0; i < COUNT; i++) {
        if (isnan(wanted[i]) && isnan(decoded[i])) continue;
        if (memcmp(&wanted[i], &decoded[i], 4) != 0)
            fail_msg("%s: element %d is %a, not %a", qn_dtype_describe(type)->name, i, (double)decoded[i], (double)wanted[i]);
    }
}

static void check_types(qn_context *context) {
    uint64_t state = 4711;
    int types = 0;
    for (int t = 0; t < QN_DTYPE_COUNT; t++) {
        const qn_block_codec *codec = qn_tensor_block_codec((qn_dtype)t);
        if (!codec) continue;
        const qn_dtype_info *d = qn_dtype_describe((qn_dtype)t);
        size_t bytes = (size_t)(COUNT / d->block * d->bytes);
        for (int i = 0; i < ROOM; i++) blocks[i] = (uint8_t)next(&state);
        codec->decode(blocks, COUNT / d->block, wanted);
        copy(context, (qn_dtype)t, blocks, QN_DTYPE_F32, decoded);
        same_floats((qn_dtype)t);
        if (!codec->run_time_encode) continue;
        for (int i = 0; i < COUNT; i++) x[i] = element(&state, i / 32 % 11);
        codec->encode(x, COUNT / d->block, blocks);
        memset(encoded, 0xaa, sizeof encoded);
        copy(context, QN_DTYPE_F32, x, (qn_dtype)t, encoded);
        for (size_t i = 0; i < bytes; i++)
            if (blocks[i] != encoded[i])
                fail_msg("%s: byte %zu of block %zu", d->name, i % (size_t)d->bytes, i / (size_t)d->bytes);
        types++;
    }
    assert_true(types >= 5);
}

static void codecs_bits_on_every_level(void **unused) {
    (void)unused;
    uint32_t have = qn_cpu_levels();
    for (int level = 0; level < QN_CPU_LEVEL_COUNT; level++) {
        if (!(have >> level & 1)) continue;
        qn_context *context;
        setenv("QUERN_CPU", qn_cpu_level_name(level), 1);
        assert_int_equal(qn_context_create(NULL, &context), QN_OK);
        check_types(context);
        qn_context_destroy(context);
        unsetenv("QUERN_CPU");
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(codecs_bits_on_every_level)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
