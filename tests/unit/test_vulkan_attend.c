/* Attention of graphs and its gradients on the Vulkan device: every mask, grouped heads, both layouts. */
#include "vulkan_help.h"

#define F32 QN_DTYPE_F32
#define F16 QN_DTYPE_F16

static const double bound = 1e-6;

typedef struct attend_case {
    int64_t batch, heads, kv_heads, queries, keys, d, d_v;
    int kind, layout, window;
    float cap;
    int64_t offset;
    qn_dtype dtype;
    int mask_heads, mask_queries; /* extents of the mask, 1 where it is stretched */
} attend_case;

static const attend_case cases[] = {
    {2, 3, 3, 5, 7, 16, 16, 0, 0, 0, 0, -1, F32, 0, 0},    {1, 4, 2, 9, 9, 8, 12, 1, 0, 0, 0, -1, F32, 0, 0},
    {2, 4, 1, 6, 11, 24, 24, 1, 1, 0, 2.5f, 3, F32, 0, 0}, {1, 2, 2, 300, 300, 8, 8, 1, 0, 0, 0, -1, F32, 0, 0},
    {2, 2, 2, 9, 20, 10, 10, 3, 0, 4, 0, -1, F32, 0, 0},   {2, 4, 2, 5, 6, 33, 65, 2, 1, 0, 0, -1, F32, 4, 5},
    {2, 4, 2, 5, 6, 16, 16, 4, 0, 0, 1.5f, -1, F32, 4, 5}, {1, 3, 3, 5, 6, 16, 16, 4, 1, 0, 0, -1, F32, 1, 1},
    {1, 2, 1, 7, 260, 16, 130, 0, 0, 0, 0, -1, F16, 0, 0}, {1, 2, 2, 4, 3, 8, 8, 1, 0, 0, 0, 0, F32, 0, 0},
};
enum { CASES = sizeof cases / sizeof *cases };

static help_item tensor(const attend_case *a, int64_t heads, int64_t places, int64_t d, help_layout layout) {
    help_item i = {a->dtype, 4, {a->batch, heads, places, d}, layout, -1, 1, 0};
    if (a->layout) i.shape[1] = places, i.shape[2] = heads;
    return i;
}

static help_item mask_of(const attend_case *a, int v) {
    if (a->kind != 2 && a->kind != 4) return (help_item){.dtype = QN_DTYPE_NONE};
    help_item i = {
        a->kind == 2 ? QN_DTYPE_BOOL : F32, 4, {v % 2 ? 1 : a->batch, a->mask_heads, a->mask_queries, a->keys}, DENSE, 0, 2, 0};
    if (a->kind == 4) i.low = -1, i.high = 1;
    return i;
}

#define SET(at, a)                                                                                              \
    ((at).layout = (a)->layout, (at).softcap = (a)->cap, (at).mask_kind = (a)->kind, (at).window = (a)->window, \
     (at).q_offset = (a)->offset, (at).scale = (a)->cap != 0 ? 0.7f : 0)

static void attention_agrees(void **state) {
    NEED_DEVICE(state);
    for (int v = 0; v < CASES; v++) {
        const attend_case *a = &cases[v];
        qn_attr_attention at = qn_attr_attention_default();
        SET(at, a);
        help_case c = {.op = QN_OP_attention, .attr = &at, .n_src = 4, .bound = bound, .dst_layout = v == 3 ? PADDED : DENSE};
        c.src[0] = tensor(a, a->heads, a->queries, a->d, v == 1 ? PADDED : DENSE);
        c.src[1] = tensor(a, a->kv_heads, a->keys, a->d, v == 4 ? TURNED : DENSE);
        c.src[2] = tensor(a, a->kv_heads, a->keys, a->d_v, v == 6 ? PADDED : DENSE);
        c.src[3] = mask_of(a, v);
        c.n_dst = v % 2 ? 2 : 1;
        help_compare(BENCH(state), &c);
    }
}

static void gradients_agree(void **state) {
    NEED_DEVICE(state);
    for (int v = 0; v < CASES; v++) {
        const attend_case *a = &cases[v];
        qn_attr_attention_back at = qn_attr_attention_back_default();
        SET(at, a);
        help_case c = {
            .op = QN_OP_attention_back, .attr = &at, .n_src = 6, .bound = bound, .dst_layout = v == 2 ? PADDED : DENSE};
        c.src[0] = tensor(a, a->heads, a->queries, a->d, v == 1 ? PADDED : DENSE);
        c.src[1] = tensor(a, a->kv_heads, a->keys, a->d, DENSE);
        c.src[2] = tensor(a, a->kv_heads, a->keys, a->d_v, DENSE);
        c.src[3] = tensor(a, a->heads, a->queries, a->d_v, v == 5 ? TURNED : DENSE);
        c.src[4] = mask_of(a, v);
        c.src[5] = (help_item){v % 3 ? QN_DTYPE_NONE : F32, 3, {a->batch, a->heads, a->queries}, DENSE, -1, 1, 0};
        if (v == 9) c.src[3].dtype = QN_DTYPE_NONE;
        c.n_dst = a->kind == 4 ? 4 : 3;
        help_compare(BENCH(state), &c);
    }
}

/* Keys that no query looks at have gradients all the same: zeros. */
static void gradients_without_heads_are_zero(void **state) {
    NEED_DEVICE(state);
    qn_attr_attention_back at = qn_attr_attention_back_default();
    help_case c = {.op = QN_OP_attention_back, .attr = &at, .n_src = 4, .bound = bound, .n_dst = 3};
    for (int i = 0; i < 4; i++) c.src[i] = (help_item){F32, 4, {2, i % 3 ? 2 : 0, 3, 4}, DENSE, -1, 1, 0};
    help_compare(BENCH(state), &c);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(attention_agrees), cmocka_unit_test(gradients_agree),
                                       cmocka_unit_test(gradients_without_heads_are_zero)};
    return cmocka_run_group_tests(tests, open_group, close_group);
}
