/* Kernels that language models run on, against the reference: products with few rows and with matrices by id, positions of every
 * kind, attention over caches in blocks, sinks, sorting. */
#include "vulkan_help.h"

#define F32 QN_DTYPE_F32
#define F16 QN_DTYPE_F16
#define BF16 QN_DTYPE_BF16
#define I32 QN_DTYPE_I32

static const double bound = 1e-6;

static void products_with_few_rows_agree(void **state) {
    NEED_DEVICE(state);
    static const qn_dtype types[] = {F32, F16, BF16, QN_DTYPE_Q4_0, QN_DTYPE_Q8_0, QN_DTYPE_Q4_K, QN_DTYPE_Q6_K};
    for (int d = 0; d < 7; d++)
        for (int v = 0; v < 4; v++) {
            int64_t k = d > 2 ? 512 * (v + 1) : v == 3 ? 2100 : 33 + 40 * v, rows = v == 1 ? 8 : v + 1;
            help_case c = {.op = QN_OP_mul_mat, .n_src = 2, .bound = bound};
            c.src[0] = (help_item){types[d], 4, {1, v == 2 ? 2 : 1, 19, k}, DENSE, -1, 1, 0};
            c.src[1] = (help_item){
                v == 3 ? F16 : F32, 4, {v == 2 ? 3 : 1, v == 2 ? 4 : 1, rows, k}, v == 1 ? PADDED : DENSE, -1, 1, 0};
            if (v == 2) c.src[0].shape[0] = 3;
            help_compare(BENCH(state), &c);
        }
}

enum { LONG = 1280, MANY = 9 };

/* One row alone and the same row among others: two kernels, one order of sums. */
static void a_row_has_the_same_bits_in_any_batch(void **state) {
    NEED_DEVICE(state);
    static const qn_dtype types[] = {F32, BF16, QN_DTYPE_Q4_0, QN_DTYPE_Q8_0, QN_DTYPE_Q4_K, QN_DTYPE_Q6_K};
    help_bench *b = BENCH(state);
    for (int d = 0; d < 6; d++) {
        help_case c = {.op = QN_OP_mul_mat, .n_src = 2};
        qn_tensor t[HELP_ALL];
        memset(t, 0, sizeof t);
        int64_t k = d < 2 ? LONG - 13 : LONG;
        c.src[0] = (help_item){types[d], 2, {70, k}, DENSE, -1, 1, 0};
        c.src[1] = (help_item){F32, 2, {MANY, k}, DENSE, -1, 1, 0};
        uint64_t used = help_tensors(b, &c, t), more = used + 4096;
        qn_tensor row = t[1], alone = t[HELP_ITEMS], among = alone;
        row.shape[0] = alone.shape[0] = 1;
        row.offset = 5 * row.stride[0];
        alone.data = QN_AT(used);
        alone.size = 70 * 4;
        qn_device_step steps[2] = {help_step(&c, t),
                                   {.op = QN_OP_mul_mat, .n_src = 2, .n_dst = 1, .src = {&t[0], &row}, .dst = {&alone}}};
        qn_device_range in = {0, used}, out = {0, more};
        qn_program_options o = {
            .arena_bytes = more, .n_steps = 2, .steps = steps, .n_inputs = 1, .n_outputs = 1, .inputs = &in, .outputs = &out};
        qn_program *p = NULL;
        qn_error e = {QN_OK, ""};
        const void *from = b->before;
        void *to = b->back;
        help_expect(qn_program_create(b->device, &o, &p, &e), QN_OK, &e);
        help_expect(qn_program_run(p, &from, &to, help_patience, &e), QN_OK, &e);
        qn_program_destroy(p);
        assert_memory_equal(b->back + used, b->back + (uintptr_t)among.data + 5 * among.stride[0], 70 * 4);
    }
}

static void matrices_by_id_agree(void **state) {
    NEED_DEVICE(state);
    static const qn_dtype types[] = {F32, F16, QN_DTYPE_Q8_0, QN_DTYPE_Q4_K};
    for (int d = 0; d < 4; d++)
        for (int v = 0; v < 3; v++) {
            help_case c = {.op = QN_OP_mul_mat_id, .n_src = 3, .bound = bound};
            c.src[0] = (help_item){types[d], 3, {5, 21, 256}, DENSE, -1, 1, 0};
            c.src[1] = (help_item){F32, 3, {7, v ? 4 : 1, 256}, v == 2 ? PADDED : DENSE, -1, 1, 0};
            c.src[2] = (help_item){I32, 2, {7, 4}, v == 2 ? PADDED : DENSE, 0, 5, 0};
            if (v == 1) c.src[1].shape[1] = 2;
            help_compare(BENCH(state), &c);
        }
}

static void an_id_beyond_is_an_error(void **state) {
    NEED_DEVICE(state);
    help_bench *b = BENCH(state);
    help_case c = {.op = QN_OP_mul_mat_id, .n_src = 3};
    qn_tensor t[HELP_ALL];
    memset(t, 0, sizeof t);
    c.src[0] = (help_item){F32, 3, {2, 3, 32}, DENSE, -1, 1, 0};
    c.src[1] = (help_item){F32, 3, {1, 1, 32}, DENSE, -1, 1, 0};
    c.src[2] = (help_item){I32, 2, {1, 2}, DENSE, 2, 3, 0};
    uint64_t used = help_tensors(b, &c, t);
    qn_device_step step = help_step(&c, t);
    qn_device_range all = {0, used};
    qn_program_options o = {.arena_bytes = used, .n_steps = 1, .steps = &step, .n_inputs = 1, .inputs = &all};
    qn_program *p = NULL;
    qn_error e = {QN_OK, ""};
    const void *from = b->before;
    help_expect(qn_program_create(b->device, &o, &p, &e), QN_OK, &e);
    assert_int_not_equal(qn_program_run(p, &from, NULL, help_patience, &e), QN_OK);
    assert_non_null(strstr(e.text, "step 0"));
    qn_program_destroy(p);
}

static void positions_of_every_kind_agree(void **state) {
    NEED_DEVICE(state);
    static const int modes[] = {0, 2, 8, 24, 40};
    for (int m = 0; m < 5; m++)
        for (int v = 0; v < 4; v++) {
            qn_attr_rope at = qn_attr_rope_default();
            int multi = modes[m] > 2;
            at.mode = modes[m];
            at.n_dims = modes[m] == 24 ? 16 : v == 3 ? 24 : 32;
            at.freq_base = 10000;
            for (int i = 0; multi && i < 4; i++) at.sections.d[i] = i < 3 ? 4 + i : 1;
            at.sections.rank = multi ? 4 : at.sections.rank;
            if (v & 1) {
                at.ext_factor = 1;
                at.freq_scale = 0.25f;
                at.n_ctx_orig = 512;
                at.attn_factor = 1.25f;
            }
            help_case c = {.op = v == 2 ? QN_OP_rope_back : QN_OP_rope, .attr = &at, .n_src = v & 2 ? 3 : 2, .bound = bound};
            c.src[0] = (help_item){F32, 4, {1, 7, 3, 32}, v == 1 ? PADDED : DENSE, -1, 1, 0};
            c.src[1] = (help_item){I32, 1, {multi ? 28 : 7}, DENSE, 0, 3000, 0};
            c.src[2] = (help_item){F32, 1, {at.n_dims == 24 ? 12 : 16}, DENSE, 0.2, 40, 0};
            help_compare(BENCH(state), &c);
        }
}

static void attention_reads_blocks(void **state) {
    NEED_DEVICE(state);
    static const qn_dtype types[] = {QN_DTYPE_Q8_0, QN_DTYPE_Q4_0, F16};
    for (int k = 0; k < 3; k++)
        for (int v = 0; v < 3; v++) {
            qn_attr_flash_attn_ext at = qn_attr_flash_attn_ext_default();
            at.scale = 0.125f;
            help_case c = {.op = QN_OP_flash_attn_ext, .attr = &at, .n_src = 4, .bound = bound};
            c.src[0] = (help_item){F32, 4, {1, 4, 3, 64}, DENSE, -1, 1, 0};
            c.src[1] = (help_item){types[k], 4, {1, 2, 300, 64}, DENSE, -1, 1, 0};
            c.src[2] = (help_item){types[v], 4, {1, 2, 300, 64}, DENSE, -1, 1, 0};
            c.src[3] = (help_item){F16, 4, {1, 1, 3, 300}, DENSE, -1, 1, 2};
            help_compare(BENCH(state), &c);
        }
}

static void sinks_take_their_share(void **state) {
    NEED_DEVICE(state);
    for (int v = 0; v < 3; v++) {
        qn_attr_soft_max at = qn_attr_soft_max_default();
        at.scale = 0.5f;
        help_case c = {.op = QN_OP_soft_max, .attr = &at, .n_src = 3, .bound = bound};
        c.src[0] = (help_item){F32, 4, {2, 5, 3, 300}, v == 1 ? PADDED : DENSE, -4, 4, 0};
        if (v) c.src[1] = (help_item){F16, 4, {1, 1, 3, 300}, DENSE, -1, 1, 2};
        c.src[2] = (help_item){F32, 1, {5}, DENSE, -2, 6, v == 2 ? 2 : 0};
        help_compare(BENCH(state), &c);
    }
}

static void sorting_agrees(void **state) {
    NEED_DEVICE(state);
    for (int v = 0; v < 6; v++) {
        qn_attr_argsort sort = qn_attr_argsort_default();
        qn_attr_top_k top = qn_attr_top_k_default();
        sort.order = v % 2;
        top.k = v + 1;
        help_case c = {.op = QN_OP_argsort, .attr = &sort, .n_src = 1, .bound = 0};
        c.src[0] = (help_item){v % 3 == 2 ? F16 : F32, 3, {2, 3, v < 2 ? 300 : 40}, (help_layout)(v % 4), -4, 4, v > 3 ? 1 : 0};
        help_compare(BENCH(state), &c);
        c.op = QN_OP_top_k;
        c.attr = &top;
        c.n_dst = 0;
        help_compare(BENCH(state), &c);
    }
}

static void caches_take_rows_in_place(void **state) {
    NEED_DEVICE(state);
    for (int v = 0; v < 4; v++) {
        help_case c = {.op = QN_OP_store_rows, .n_src = 3, .n_state = 1, .bound = 0, .flags = QN_TENSOR_PARAM};
        c.src[0] = (help_item){v & 1 ? F16 : F32, 2, {9, 24}, DENSE, -1, 1, 0};
        c.src[1] = (help_item){F32, 2, {5, 24}, v == 3 ? PADDED : DENSE, -1, 1, 0};
        c.src[2] = (help_item){v & 2 ? QN_DTYPE_I64 : I32, 1, {5}, DENSE, 0, 9, 0};
        help_compare(BENCH(state), &c);
    }
}

static void rows_are_added_by_id(void **state) {
    NEED_DEVICE(state);
    for (int v = 0; v < 3; v++) {
        help_case c = {.op = QN_OP_add_id, .n_src = 3, .n_state = v == 2, .bound = 1e-12};
        c.src[0] = (help_item){F32, 3, {7, 4, 33}, v == 1 ? PADDED : DENSE, -1, 1, 0};
        c.src[1] = (help_item){F32, 2, {5, 33}, v == 1 ? PADDED : DENSE, -1, 1, 0};
        c.src[2] = (help_item){I32, 2, {7, 4}, DENSE, 0, 5, 0};
        help_compare(BENCH(state), &c);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_with_few_rows_agree),  cmocka_unit_test(a_row_has_the_same_bits_in_any_batch),
        cmocka_unit_test(matrices_by_id_agree),          cmocka_unit_test(an_id_beyond_is_an_error),
        cmocka_unit_test(positions_of_every_kind_agree), cmocka_unit_test(attention_reads_blocks),
        cmocka_unit_test(sinks_take_their_share),        cmocka_unit_test(sorting_agrees),
        cmocka_unit_test(caches_take_rows_in_place),     cmocka_unit_test(rows_are_added_by_id),
    };
    return cmocka_run_group_tests(tests, open_group, close_group);
}
