/* What the promise about prompts rests on: a query's attention has the same bits alone and among others, whatever number of threads
 * there is and whatever lies behind the last key it sees. On every level this machine has, over more keys than one span. So has a
 * head alone and among others, with which it may go through the keys. */
#define _DEFAULT_SOURCE /* setenv */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cmocka_setup.h"
#include "cpu/cpu.h"
#include "tensor/half.h"
#include "tensor/quant.h"

enum { HEADS = 8, KEY_HEADS = 2, QUERIES = 37, KEYS = 1100, MOST = 96, MOST_BYTES = MOST * 2 };

/* What keys and values are made of. */
static const struct kind {
    qn_dtype dtype;
    int deep, wide; /* elements of a key, of a value */
} kinds[] = {{QN_DTYPE_F16, 80, 72}, {QN_DTYPE_BF16, 80, 72}, {QN_DTYPE_Q8_0, 64, 96}, {QN_DTYPE_Q4_0, 96, 32}};
static const struct kind *kind;

static float q[HEADS * QUERIES * MOST], together[QUERIES * HEADS * MOST], alone[HEADS * MOST], wanted[QUERIES * HEADS * MOST];
static char k[KEY_HEADS * KEYS * MOST_BYTES], v[KEY_HEADS * KEYS * MOST_BYTES];
static uint16_t mask[QUERIES][KEYS];
static _Alignas(64) char workspace[1 << 24];

static float next(uint64_t *state) {
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (float)((double)(*state >> 11) * 0x1p-52 - 1);
}

/* Query i sees the keys up to KEYS - QUERIES + i, less a few holes. */
static int sees(int i, int j) { return j <= KEYS - QUERIES + i && (j * 7 + i) % 11 != 0; }

static size_t row_bytes(int n) {
    const qn_dtype_info *d = qn_dtype_describe(kind->dtype);
    return (size_t)(n / d->block * d->bytes);
}
/* Floats of the answers to so many queries. */
static size_t answers(int n) { return (size_t)(n * HEADS * kind->wide); }

static void narrow(const float *from, int n, char *to) {
    const qn_block_codec *codec = qn_tensor_block_codec(kind->dtype);
    if (codec) {
        codec->encode(from, n / qn_dtype_describe(kind->dtype)->block, (uint8_t *)to);
        return;
    }
    for (int i = 0; i < n; i++) {
        uint16_t word = kind->dtype == QN_DTYPE_F16 ? qn_f32_to_f16(from[i]) : qn_f32_to_bf16(from[i]);
        memcpy(to + 2 * i, &word, sizeof word);
    }
}

static void draw_rows(uint64_t *state, int n, char *to) {
    float row[MOST];
    for (int i = 0; i < KEY_HEADS * KEYS; i++) {
        for (int d = 0; d < n; d++) row[d] = next(state);
        narrow(row, n, to + (size_t)i * row_bytes(n));
    }
}

static void draw(void) {
    uint64_t state = 99;
    for (int i = 0; i < HEADS * QUERIES * kind->deep; i++) q[i] = 3 * next(&state);
    draw_rows(&state, kind->deep, k);
    draw_rows(&state, kind->wide, v);
    for (int i = 0; i < QUERIES; i++)
        for (int j = 0; j < KEYS; j++) mask[i][j] = qn_f32_to_f16(sees(i, j) ? (float)(j % 3) / 8 : -INFINITY);
}

static void dispatch(qn_context *context, uint16_t n, qn_tensor *const *src, qn_tensor *y) {
    qn_result r;
    size_t need;
    qn_attr_flash_attn_ext at = qn_attr_flash_attn_ext_default();
    at.scale = 0.3f;
    qn_request request = {.size = sizeof request,
                          .version = QN_REQUEST_VERSION,
                          .op = QN_OP_flash_attn_ext,
                          .n_src = n,
                          .n_dst = 1,
                          .dst = {y},
                          .attr = &at,
                          .workspace = workspace};
    for (int i = 0; i < n; i++) request.src[i] = src[i];
    assert_int_equal(qn_workspace_bytes(&request, &need, &r), QN_OK);
    assert_true(need <= sizeof workspace);
    request.workspace_size = sizeof workspace;
    if (qn_dispatch(context, &request, &r) == QN_OK) return;
    char text[300];
    qn_result_format(&r, text, sizeof text);
    fail_msg("%s", text);
}

/* Queries [first, first + n) against the first `keys` keys. */
static void attend(qn_context *context, int first, int n, int keys, float *y) {
    qn_tensor tq, tk, tv, tm, ty;
    qn_tensor_init(&tq, QN_DTYPE_F32, 3, (int64_t[]){HEADS, QUERIES, kind->deep}, q, sizeof q);
    qn_tensor_init(&tk, kind->dtype, 3, (int64_t[]){KEY_HEADS, KEYS, kind->deep}, k, sizeof k);
    qn_tensor_init(&tv, kind->dtype, 3, (int64_t[]){KEY_HEADS, KEYS, kind->wide}, v, sizeof v);
    qn_tensor_init(&tm, QN_DTYPE_F16, 2, (int64_t[]){QUERIES, KEYS}, mask, sizeof mask);
    qn_tensor_init(&ty, QN_DTYPE_F32, 4, (int64_t[]){1, n, HEADS, kind->wide}, y, answers(n) * 4);
    tq.shape[1] = tm.shape[0] = n;
    tk.shape[1] = tv.shape[1] = tm.shape[1] = keys;
    tq.offset = first * tq.stride[1];
    tm.offset = first * tm.stride[0];
    dispatch(context, 4, (qn_tensor *[]){&tq, &tk, &tv, &tm}, &ty);
}

static void check_bits(qn_context *context) {
    for (int i = 0; i < QUERIES; i += 5) {
        int last = KEYS - QUERIES + i;
        attend(context, i, 1, KEYS, alone);
        assert_memory_equal(alone, together + answers(i), answers(1) * 4);
        attend(context, i, 1, last + 1, alone);
        assert_memory_equal(alone, together + answers(i), answers(1) * 4);
    }
    /* what no query sees may be anything: every word of these rows, scales among them, is no number as f16 or bf16 */
    for (int h = 1; h <= KEY_HEADS; h++)
        for (size_t i = 1; i <= row_bytes(kind->wide) || i <= row_bytes(kind->deep); i++) {
            if (i <= row_bytes(kind->deep)) k[(size_t)h * KEYS * row_bytes(kind->deep) - i] = 0x7f;
            if (i <= row_bytes(kind->wide)) v[(size_t)h * KEYS * row_bytes(kind->wide) - i] = 0x7f;
        }
    static float again[(QUERIES - 1) * HEADS * MOST];
    attend(context, 0, QUERIES - 1, KEYS, again);
    assert_memory_equal(again, together, answers(QUERIES - 1) * 4);
    attend(context, 0, 1, KEYS, again);
    assert_memory_equal(again, together, answers(1) * 4);
    draw();
}

static void check_level(int level) {
    qn_context *context;
    setenv("QUERN_CPU", qn_cpu_level_name(level), 1);
    for (int threads = 1; threads <= 3; threads++) {
        qn_pool *pool;
        assert_int_equal(qn_pool_create(threads, &pool), QN_OK);
        qn_context_options options = {.size = sizeof options, .pool = pool};
        assert_int_equal(qn_context_create(&options, &context), QN_OK);
        static float first[QUERIES * HEADS * MOST];
        attend(context, 0, QUERIES, KEYS, together);
        if (threads == 1) memcpy(first, together, sizeof first);
        assert_memory_equal(first, together, sizeof first);
        check_bits(context);
        qn_context_destroy(context);
        qn_pool_destroy(pool);
    }
    double error = 0, size = 0;
    for (size_t i = 0; i < answers(QUERIES); i++) {
        double want = (double)wanted[i], e = (double)together[i] - want;
        error += e * e;
        size += want * want;
    }
    print_message("%s, %s: NMSE %.2g\n", qn_cpu_level_name(level), qn_dtype_describe(kind->dtype)->name, error / size);
    assert_true(error <= 1e-11 * size);
    unsetenv("QUERN_CPU");
}

static void check_kind(void) {
    uint32_t have = qn_cpu_levels();
    qn_context *context;
    draw();
    qn_context_options options = {.size = sizeof options, .flags = QN_CONTEXT_REFERENCE};
    assert_int_equal(qn_context_create(&options, &context), QN_OK);
    attend(context, 0, QUERIES, KEYS, wanted);
    qn_context_destroy(context);
    for (int level = 0; level < QN_CPU_LEVEL_COUNT; level++)
        if (have >> level & 1) check_level(level);
}

static void a_query_keeps_its_bits(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        kind = &kinds[i];
        check_kind();
    }
}

/* ---- Heads */

enum { MOST_BATCHES = 8, MANY = 11, SHARE = 2, SHORT = 32, PLACES = 600 };

static float hq[MOST_BATCHES][MANY * SHARE][SHORT], hy[MOST_BATCHES][MANY * SHARE][SHORT], one[SHARE][SHORT];
static uint16_t hk[MOST_BATCHES][PLACES][MANY][SHORT], hv[MOST_BATCHES][PLACES][MANY][SHORT]; /* as a model's cache has them */

static void attend_heads(qn_context *context, int batch, int batches, int head, int heads, float *y, size_t bytes) {
    qn_tensor tq, tk, tv, ty;
    qn_tensor_init(&tq, QN_DTYPE_F32, 4, (int64_t[]){MOST_BATCHES, MANY * SHARE, 1, SHORT}, hq, sizeof hq);
    qn_tensor_init(&tk, QN_DTYPE_F16, 4, (int64_t[]){MOST_BATCHES, PLACES, MANY, SHORT}, hk, sizeof hk);
    qn_tensor_init(&ty, QN_DTYPE_F32, 4, (int64_t[]){batches, 1, heads * SHARE, SHORT}, y, bytes);
    tq.shape[0] = batches;
    tq.shape[1] = heads * SHARE;
    tq.offset = batch * tq.stride[0] + head * SHARE * tq.stride[1];
    int64_t place = tk.stride[1];
    tk.offset = batch * tk.stride[0] + head * tk.stride[2];
    tk.shape[0] = batches;
    tk.shape[1] = heads;
    tk.shape[2] = PLACES;
    tk.stride[1] = tk.stride[2];
    tk.stride[2] = place;
    tv = tk;
    tv.data = hv;
    dispatch(context, 3, (qn_tensor *[]){&tq, &tk, &tv}, &ty);
}

/* Few batches are cut by spans of keys, many are not. */
static void check_heads(qn_context *context, int batches) {
    attend_heads(context, 0, batches, 0, MANY, hy[0][0], (size_t)batches * sizeof hy[0]);
    for (int b = 0; b < batches; b++)
        for (int h = 0; h < MANY; h++) {
            attend_heads(context, b, 1, h, 1, one[0], sizeof one);
            assert_memory_equal(one, hy[b][h * SHARE], sizeof one);
        }
}

static void a_head_keeps_its_bits(void **state) {
    (void)state;
    uint64_t seed = 7;
    for (size_t i = 0; i < sizeof hq / sizeof(float); i++) (&hq[0][0][0])[i] = 3 * next(&seed);
    for (size_t i = 0; i < sizeof hk / sizeof(uint16_t); i++) {
        (&hk[0][0][0][0])[i] = qn_f32_to_f16(next(&seed));
        (&hv[0][0][0][0])[i] = qn_f32_to_f16(next(&seed));
    }
    for (int level = 0; level < QN_CPU_LEVEL_COUNT; level++) {
        if (!(qn_cpu_levels() >> level & 1)) continue;
        qn_context *context;
        setenv("QUERN_CPU", qn_cpu_level_name(level), 1);
        assert_int_equal(qn_context_create(NULL, &context), QN_OK);
        check_heads(context, 1);
        check_heads(context, 4);
        check_heads(context, MOST_BATCHES);
        qn_context_destroy(context);
        unsetenv("QUERN_CPU");
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_query_keeps_its_bits), cmocka_unit_test(a_head_keeps_its_bits)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
