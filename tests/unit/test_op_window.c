/* Sliding windows where the numbers are extreme: what reaches past 64 bits is named, and what does not is computed right.
 * Views of stride zero make such extents possible over a small buffer, so these are requests anybody could send. */
#include <string.h>

#include "base/reason.h"
#include "cmocka_setup.h"
#include "op/op_window.h"

static float one[4];

/* A tensor whose elements are all the same one. */
static qn_tensor same_everywhere(int rank, const int64_t *shape) {
    qn_tensor t;
    memset(&t, 0, sizeof t);
    t.data = one;
    t.size = sizeof one;
    t.dtype = QN_DTYPE_F32;
    t.rank = rank;
    memcpy(t.shape, shape, sizeof *shape * (size_t)rank);
    return t;
}

/* Why, and about which argument, an op turns down two such tensors; the second may be missing. */
static qn_reason fault_of(int op, const qn_tensor *a, const qn_tensor *b, const void *attr, int *arg_kind, int *arg) {
    qn_request q = {.size = sizeof q, .version = QN_REQUEST_VERSION, .op = (uint16_t)op, .attr = attr};
    q.n_src = b ? 2 : 1;
    q.src[0] = a;
    q.src[1] = b;
    qn_tensor out[QN_MAX_DST];
    qn_result r;
    int n;
    if (qn_infer(&q, out, &n, &r) == QN_OK) return QN_REASON_NONE;
    *arg_kind = r.arg_kind;
    *arg = r.arg;
    return (qn_reason)r.reason;
}

static void expect_fault(int op, const qn_tensor *a, const qn_tensor *b, const void *attr, qn_reason reason, int arg_kind,
                         int arg) {
    int have_kind = -1, have_arg = -1;
    assert_string_equal(qn_reason_name(fault_of(op, a, b, attr, &have_kind, &have_arg)), qn_reason_name(reason));
    assert_int_equal(have_kind, arg_kind);
    assert_int_equal(have_arg, arg);
}

static void kernel_whose_taps_reach_too_far_is_named(void **state) {
    (void)state;
    qn_tensor kernel = same_everywhere(1, (int64_t[]){5000000000}), x = same_everywhere(1, (int64_t[]){3});
    qn_attr_im2col unfold = qn_attr_im2col_default();
    qn_attr_conv_2d conv = qn_attr_conv_2d_default();
    unfold.d0 = conv.d0 = INT32_MAX;
    expect_fault(QN_OP_im2col, &kernel, &x, &unfold, QN_REASON_WINDOW_OVERFLOW, QN_ARG_SOURCE, 0);
    expect_fault(QN_OP_conv_2d, &kernel, &x, &conv, QN_REASON_WINDOW_OVERFLOW, QN_ARG_SOURCE, 0);
    unfold.d0 = conv.d0 = 1;
    expect_fault(QN_OP_conv_2d, &kernel, &x, &conv, QN_REASON_SHAPE_SMALL, QN_ARG_SOURCE, 1);
}

static void channels_too_many_for_a_patch_are_named(void **state) {
    (void)state;
    int64_t side = 1 << 15, channels = 1 << 20;
    qn_tensor kernel = same_everywhere(3, (int64_t[]){side, side, side});
    qn_tensor x = same_everywhere(4, (int64_t[]){channels, 1, 1, 1});
    qn_attr_im2col_3d at = qn_attr_im2col_3d_default();
    at.ic = (int32_t)channels;
    at.p0 = at.p1 = at.p2 = INT32_MAX;
    expect_fault(QN_OP_im2col_3d, &kernel, &x, &at, QN_REASON_ATTR_HIGH, QN_ARG_ATTR, 9);
}

static void too_many_patches_are_named(void **state) {
    (void)state;
    qn_tensor kernel = same_everywhere(1, (int64_t[]){1}), x = same_everywhere(4, (int64_t[]){(int64_t)1 << 40, 1, 1, 1});
    qn_attr_im2col_3d at = qn_attr_im2col_3d_default();
    at.ic = 1;
    at.p2 = INT32_MAX;
    expect_fault(QN_OP_im2col_3d, &kernel, &x, &at, QN_REASON_SIZE_OVERFLOW, QN_ARG_DEST, 0);
}

static void copies_laid_too_far_apart_are_named(void **state) {
    (void)state;
    qn_tensor w = same_everywhere(1, (int64_t[]){2}), x = same_everywhere(1, (int64_t[]){(int64_t)1 << 40});
    qn_tensor columns = same_everywhere(2, (int64_t[]){(int64_t)1 << 40, 2});
    qn_attr_conv_transpose_1d lay = qn_attr_conv_transpose_1d_default();
    qn_attr_col2im_1d fold = qn_attr_col2im_1d_default();
    lay.s = fold.s = INT32_MAX;
    fold.oc = 1;
    expect_fault(QN_OP_conv_transpose_1d, &w, &x, &lay, QN_REASON_WINDOW_OVERFLOW, QN_ARG_SOURCE, 1);
    expect_fault(QN_OP_col2im_1d, &columns, NULL, &fold, QN_REASON_WINDOW_OVERFLOW, QN_ARG_SOURCE, 0);
}

static void largest_numbers_stay_in_range(void **state) {
    (void)state;
    qn_window w = {.in = INT64_MAX / 4, .taps = 2, .stride = INT32_MAX, .pad = INT32_MAX, .dilation = INT32_MAX};
    assert_int_equal(qn_window_fit(&w), QN_WINDOW_OK);
    assert_true(qn_window_sample(&w, w.out - 1, 1) < w.in + w.pad);
    qn_range seen = qn_window_outputs(&w, 1, 0, w.in);
    assert_int_equal(seen.first, 0);
    assert_true(qn_window_sample(&w, seen.last - 1, 1) < w.in);
    assert_true(seen.last == w.out || qn_window_sample(&w, seen.last, 1) >= w.in);
}

/* Every small window: ranges and single outputs against the definition. */
static void ranges_agree_with_brute_force(void **state) {
    (void)state;
    for (int n = 0; n < 4 * 3 * 3 * 3 * 3; n++) {
        qn_window w = {.in = n % 4 + 1, .taps = n / 4 % 3 + 1, .stride = n / 12 % 3 + 1, .pad = n / 36 % 3};
        w.dilation = n / 108 + 1;
        if (qn_window_fit(&w) != QN_WINDOW_OK) continue;
        assert_true(qn_window_sample(&w, w.out - 1, w.taps - 1) < w.in + w.pad);
        assert_true(qn_window_sample(&w, w.out, w.taps - 1) >= w.in + w.pad);
        for (int64_t k = 0; k < w.taps; k++) {
            qn_range seen = qn_window_outputs(&w, k, 1, w.in);
            for (int64_t o = 0; o < w.out; o++) {
                int64_t i = qn_window_sample(&w, o, k);
                assert_int_equal(o >= seen.first && o < seen.last, i >= 1 && i < w.in);
                if (i >= 0 && i < w.in) assert_int_equal(qn_window_output(&w, i, k), o);
            }
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kernel_whose_taps_reach_too_far_is_named),
        cmocka_unit_test(channels_too_many_for_a_patch_are_named),
        cmocka_unit_test(too_many_patches_are_named),
        cmocka_unit_test(copies_laid_too_far_apart_are_named),
        cmocka_unit_test(largest_numbers_stay_in_range),
        cmocka_unit_test(ranges_agree_with_brute_force),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
