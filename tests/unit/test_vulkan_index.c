/* Gathering, scattering, joining, padding and tiling on the Vulkan device, against the reference. */
#include "vulkan_help.h"

#define F32 QN_DTYPE_F32
#define F16 QN_DTYPE_F16
#define I32 QN_DTYPE_I32
#define I64 QN_DTYPE_I64

static const double bound = 1e-6;

static void slices_are_gathered(void **state) {
    NEED_DEVICE(state);
    static const qn_dtype dtypes[] = {F32, F16, QN_DTYPE_I8, I64, QN_DTYPE_F64};
    for (int v = 0; v < 15; v++) {
        qn_attr_gather at = qn_attr_gather_default();
        at.axis = v % 3;
        qn_dtype d = dtypes[v % 5];
        help_case c = {.op = QN_OP_gather, .attr = &at, .n_src = 2, .bound = 0};
        c.src[0] = (help_item){d, 3, {6, 5, 9}, DENSE, -100, 100, 0};
        c.src[1] = (help_item){v % 2 ? I32 : I64, v > 7 ? 2 : 1, {3, 4}, v == 9 ? TURNED : DENSE, 0, 5, 0};
        if (v == 9) c.src[1].layout = DENSE;
        help_compare(BENCH(state), &c);
    }
}

static void slices_are_added(void **state) {
    NEED_DEVICE(state);
    for (int v = 0; v < 9; v++) {
        qn_attr_scatter_add at = qn_attr_scatter_add_default();
        at.axis = v % 3;
        qn_dtype d = v == 4 ? F16 : F32;
        int64_t n = v > 5 ? 40 : 6;
        help_case c = {.op = QN_OP_scatter_add, .attr = &at, .n_src = 3, .bound = d == F16 ? 1e-5 : bound, .n_state = v == 5};
        c.src[0] = (help_item){d, 3, {6, 5, 9}, DENSE, -1, 1, 0};
        c.src[1] = (help_item){d, 3, {6, 5, 9}, DENSE, -1, 1, 0};
        c.src[1].shape[v % 3] = n;
        c.src[2] = (help_item){v % 2 ? I32 : I64, 1, {n}, DENSE, 0, 4.99, 0};
        help_compare(BENCH(state), &c);
    }
    for (int v = 0; v < 4; v++) {
        qn_attr_scatter_add_rows at = qn_attr_scatter_add_rows_default();
        qn_attr_get_rows_back back = qn_attr_get_rows_back_default();
        at.rows = back.rows = 11;
        help_case c = {.op = v ? QN_OP_scatter_add_rows : QN_OP_get_rows_back,
                       .attr = v ? (void *)&at : (void *)&back,
                       .n_src = 2,
                       .bound = bound};
        c.src[0] = (help_item){v == 2 ? F16 : F32, v ? 3 : 2, {3, 20, 7}, v == 3 ? PADDED : DENSE, -1, 1, 0};
        if (!v) c.src[0].shape[0] = 20, c.src[0].shape[1] = 7;
        c.src[1] = (help_item){I32, v ? 2 : 1, {3, 20}, DENSE, 0, 11, 0};
        if (!v) c.src[1].shape[0] = 20;
        help_compare(BENCH(state), &c);
    }
}

/* Each index is compared with all others: what would take minutes is left to the CPU. */
static void long_lists_are_left_to_the_cpu(void **state) {
    NEED_DEVICE(state);
    const int64_t shape[] = {1 << 19, 1};
    qn_tensor table, index, row;
    qn_error e = {QN_OK, ""};
    assert_int_equal(qn_tensor_init(&row, QN_DTYPE_F32, 1, shape, NULL, 0), QN_OK);
    assert_int_equal(qn_tensor_init(&table, QN_DTYPE_F32, 2, shape, NULL, 0), QN_OK);
    assert_int_equal(qn_tensor_init(&index, QN_DTYPE_I32, 1, shape, NULL, 0), QN_OK);
    qn_device_step add = {.op = QN_OP_scatter_add, .n_src = 3, .n_dst = 1, .src = {&table, &table, &index}, .dst = {&table}};
    qn_device_step set = {.op = QN_OP_set_rows, .n_src = 3, .n_dst = 1, .src = {&table, &table, &index}, .dst = {&table}};
    help_expect(qn_device_supports(BENCH(state)->device, &add, &e), QN_UNSUPPORTED, &e);
    help_expect(qn_device_supports(BENCH(state)->device, &set, &e), QN_UNSUPPORTED, &e);
    assert_non_null(strstr(e.text, "so many indices"));
    qn_device_step along = {.op = QN_OP_scatter_along_add, .n_src = 3, .n_dst = 1, .src = {&row, &row, &index}, .dst = {&row}};
    help_expect(qn_device_supports(BENCH(state)->device, &along, &e), QN_UNSUPPORTED, &e);
}

static void rows_are_set(void **state) {
    NEED_DEVICE(state);
    for (int v = 0; v < 6; v++) {
        qn_dtype d = v % 2 ? F16 : F32;
        help_case c = {.op = QN_OP_set_rows, .n_src = 3, .bound = 0, .n_state = v == 4};
        c.src[0] = (help_item){d, 3, {2, 9, 13}, DENSE, -1, 1, 0};
        c.src[1] = (help_item){F32, 3, {2, 12, 13}, v == 3 ? PADDED : DENSE, -1, 1, 0};
        c.src[2] = (help_item){v > 2 ? I64 : I32, 2, {v == 5 ? 1 : 2, 12}, DENSE, 0, 9, 0};
        if (v == 2) c.src[2].dtype = I64;
        c.src[2].dtype = v > 2 ? I64 : I32;
        help_compare(BENCH(state), &c);
    }
}

static void elements_along_an_axis(void **state) {
    NEED_DEVICE(state);
    for (int v = 0; v < 9; v++) {
        qn_attr_gather_along at = qn_attr_gather_along_default();
        qn_attr_scatter_along_add add = qn_attr_scatter_along_add_default();
        at.axis = add.axis = v % 3 - 1;
        int axis = v % 3 == 0 ? 2 : v % 3 - 1;
        qn_dtype d = v == 4 ? F16 : F32;
        help_case c = {.op = QN_OP_gather_along, .attr = &at, .n_src = 2, .bound = 0};
        c.src[0] = (help_item){d, 3, {6, 5, 9}, v == 3 ? TURNED : DENSE, -1, 1, 0};
        c.src[1] = (help_item){v % 2 ? I32 : I64, 3, {6, 5, 9}, v == 5 ? PADDED : DENSE, 0, 5, 0};
        c.src[1].shape[axis] = 4;
        help_compare(BENCH(state), &c);
        help_case s = {
            .op = QN_OP_scatter_along_add, .attr = &add, .n_src = 3, .bound = d == F16 ? 1e-5 : bound, .n_state = v == 7};
        s.src[0] = c.src[0];
        s.src[1] = (help_item){d, 3, {6, 5, 9}, v == 6 ? PADDED : DENSE, -1, 1, 0};
        s.src[1].shape[axis] = 4;
        s.src[2] = c.src[1];
        help_compare(BENCH(state), &s);
        qn_attr_one_hot hot = qn_attr_one_hot_default();
        hot.depth = 7;
        hot.axis = v % 3 - 1;
        hot.on = 2;
        hot.off = -0.5f;
        help_case h = {.op = QN_OP_one_hot, .attr = &hot, .n_src = 1, .bound = 0};
        h.src[0] = (help_item){v % 2 ? I32 : I64, 2, {3, 5}, v == 2 ? TURNED : DENSE, 0, 7, 0};
        help_compare(BENCH(state), &h);
    }
}

static void pieces_are_joined(void **state) {
    NEED_DEVICE(state);
    static const qn_dtype dtypes[] = {F32, F16, QN_DTYPE_I8, I64};
    for (int v = 0; v < 12; v++) {
        qn_attr_join at = qn_attr_join_default();
        qn_attr_concat two = qn_attr_concat_default();
        at.axis = two.axis = v % 3 - 1;
        int axis = v % 3 == 0 ? 2 : v % 3 - 1, pieces = v % 2 ? 4 : 2;
        help_case c = {.op = pieces == 2 ? QN_OP_concat : QN_OP_join,
                       .attr = pieces == 2 ? (void *)&two : (void *)&at,
                       .n_src = pieces,
                       .bound = 0};
        c.dst_layout = v == 7 ? PADDED : DENSE;
        for (int i = 0; i < pieces; i++) {
            c.src[i] = (help_item){dtypes[v % 4], 3, {3, 4, 5}, (help_layout)(i % 3), -100, 100, 0};
            c.src[i].shape[axis] = 1 + i;
        }
        help_compare(BENCH(state), &c);
    }
}

static void edges_and_tiles(void **state) {
    NEED_DEVICE(state);
    for (int v = 0; v < 5; v++) {
        qn_attr_pad at = qn_attr_pad_default();
        qn_attr_pad_back back = qn_attr_pad_back_default();
        at.left = back.left = (qn_dims){3, 0, {v == 1, 2, v == 2 ? 0 : 3}};
        at.right = back.right = (qn_dims){3, 0, {1, 0, v}};
        help_case c = {.op = QN_OP_pad, .attr = &at, .n_src = 1, .bound = 0, .dst_layout = v == 3 ? PADDED : DENSE};
        c.src[0] = (help_item){v == 4 ? F16 : F32, 3, {3, 4, 5}, (help_layout)(v % 4), -1, 1, 0};
        help_compare(BENCH(state), &c);
        help_case g = {.op = QN_OP_pad_back, .attr = &back, .n_src = 1, .bound = 0};
        g.src[0] = (help_item){v == 4 ? F16 : F32, 3, {7, 9, 12}, (help_layout)(v % 4), -1, 1, 0};
        help_compare(BENCH(state), &g);
    }
    for (int v = 0; v < 6; v++) {
        qn_attr_repeat at = qn_attr_repeat_default();
        qn_attr_repeat_back back = qn_attr_repeat_back_default();
        at.shape = (qn_dims){4, 0, {2, 6, v == 1 ? 5 : 10, v == 2 ? 3 : 21}};
        help_case c = {.op = QN_OP_repeat, .attr = &at, .n_src = 1, .bound = 0, .dst_layout = v == 3 ? PADDED : DENSE};
        c.src[0] = (help_item){v == 4 ? F16 : v == 5 ? QN_DTYPE_I64 : F32,
                               4,
                               {v == 0 ? 1 : 2, v == 3 ? 1 : 3, 5, 3},
                               v == 2 ? TURNED : DENSE,
                               -9,
                               9,
                               0};
        help_compare(BENCH(state), &c);
        if (v == 5) continue;
        back.shape = (qn_dims){4, 0, {0}};
        memcpy(back.shape.d, c.src[0].shape, 4 * sizeof(int64_t));
        help_case g = {.op = QN_OP_repeat_back, .attr = &back, .n_src = 1, .bound = bound};
        g.src[0] = (help_item){v == 4 ? F16 : F32, 4, {0}, v == 1 ? TURNED : DENSE, -1, 1, 0};
        memcpy(g.src[0].shape, at.shape.d, 4 * sizeof(int64_t));
        help_compare(BENCH(state), &g);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slices_are_gathered),
        cmocka_unit_test(slices_are_added),
        cmocka_unit_test(long_lists_are_left_to_the_cpu),
        cmocka_unit_test(rows_are_set),
        cmocka_unit_test(elements_along_an_axis),
        cmocka_unit_test(pieces_are_joined),
        cmocka_unit_test(edges_and_tiles),
    };
    return cmocka_run_group_tests(tests, open_group, close_group);
}
