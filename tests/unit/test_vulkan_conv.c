/* Convolutions, their gradients and pools on the Vulkan device, against the reference. */
#include "vulkan_help.h"

#define F32 QN_DTYPE_F32
#define F16 QN_DTYPE_F16
#define BF16 QN_DTYPE_BF16

static const double bound = 1e-6;

typedef struct window_case {
    int axes;
    int64_t x[5], w[5]; /* [N, C, ..] and [Co, C / groups, ..] */
    int32_t groups;
    int64_t stride[3], padding[3], behind[3], dilation[3]; /* first axis first */
    int layout;
    qn_dtype dtype;
} window_case;

static const window_case cases[] = {
    {2, {2, 3, 8, 9}, {5, 3, 3, 3}, 1, {1, 1}, {1, 1}, {1, 1}, {1, 1}, DENSE, F32},
    {2, {2, 1, 28, 28}, {7, 1, 5, 5}, 1, {1, 1}, {2, 2}, {2, 2}, {1, 1}, DENSE, F32},
    {2, {3, 6, 7, 8}, {4, 3, 3, 2}, 2, {2, 1}, {1, 0}, {0, 2}, {1, 2}, PADDED, F32},
    {2, {1, 4, 6, 6}, {4, 1, 3, 3}, 4, {1, 2}, {1, 1}, {1, 1}, {1, 1}, TURNED, F32},
    {2, {2, 70, 5, 5}, {66, 70, 1, 1}, 1, {1, 1}, {0, 0}, {0, 0}, {1, 1}, DENSE, F32},
    {1, {2, 3, 21}, {4, 3, 5}, 1, {3}, {2}, {4}, {2}, DENSE, F32},
    {1, {5, 2, 300}, {3, 2, 7}, 1, {1}, {3}, {3}, {1}, REVERSED, F16},
    {3, {1, 2, 4, 5, 6}, {3, 2, 2, 3, 2}, 1, {1, 2, 1}, {1, 1, 0}, {0, 1, 1}, {1, 1, 2}, DENSE, F32},
    {3, {2, 4, 3, 3, 3}, {2, 2, 3, 3, 3}, 2, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}, PADDED, BF16},
    {2, {17, 2, 20, 20}, {3, 2, 3, 3}, 1, {1, 1}, {1, 1}, {1, 1}, {1, 1}, DENSE, F32}, /* the weights' sums go in parts */
};
enum { CASES = sizeof cases / sizeof *cases };

static qn_dims list(const int64_t *d, int n) {
    qn_dims out = {n, 0, {0}};
    memcpy(out.d, d, (size_t)n * sizeof *d);
    return out;
}

#define SET_WINDOW(at, w)                                                                                                 \
    ((at).groups = (w)->groups, (at).stride = list((w)->stride, (w)->axes), (at).padding = list((w)->padding, (w)->axes), \
     (at).padding_hi = list((w)->behind, (w)->axes), (at).dilation = list((w)->dilation, (w)->axes))

static help_item item(qn_dtype d, int rank, const int64_t *shape, int layout) {
    help_item i = {d, rank, {0}, (help_layout)layout, -1, 1, 0};
    memcpy(i.shape, shape, (size_t)rank * sizeof *shape);
    return i;
}

static double bound_of(qn_dtype d) { return d == BF16 ? 1e-4 : bound; }

/* Shape of what a case gives, by asking. */
static help_item result_of(help_bench *b, help_case *c, int layout) {
    qn_tensor t[HELP_ALL];
    memset(t, 0, sizeof t);
    help_tensors(b, c, t);
    return item((qn_dtype)t[HELP_ITEMS].dtype, t[HELP_ITEMS].rank, t[HELP_ITEMS].shape, layout);
}

static void convolutions_agree(void **state) {
    NEED_DEVICE(state);
    for (int i = 0; i < CASES; i++)
        for (int with_bias = 0; with_bias < 2; with_bias++) {
            const window_case *w = &cases[i];
            qn_attr_conv at = qn_attr_conv_default();
            SET_WINDOW(at, w);
            help_case c = {.op = QN_OP_conv, .attr = &at, .n_src = 2 + with_bias, .bound = bound_of(w->dtype)};
            c.dst_layout = with_bias ? PADDED : DENSE;
            c.src[0] = item(w->dtype, w->axes + 2, w->x, w->layout);
            c.src[1] = item(w->dtype, w->axes + 2, w->w, i % 2 ? w->layout : DENSE);
            c.src[2] = item(F32, 1, w->w, DENSE);
            help_compare(BENCH(state), &c);
        }
}

/* The adjoint for x: what came out of the convolution goes in. */
static void transposed_convolutions_agree(void **state) {
    NEED_DEVICE(state);
    for (int i = 0; i < CASES; i++) {
        const window_case *w = &cases[i];
        qn_attr_conv forward = qn_attr_conv_default();
        qn_attr_conv_transpose at = qn_attr_conv_transpose_default();
        SET_WINDOW(forward, w);
        SET_WINDOW(at, w);
        help_case f = {.op = QN_OP_conv, .attr = &forward, .n_src = 2};
        f.src[0] = item(w->dtype, w->axes + 2, w->x, DENSE);
        f.src[1] = item(w->dtype, w->axes + 2, w->w, DENSE);
        help_case c = {.op = QN_OP_conv_transpose, .attr = &at, .n_src = i % 2 ? 3 : 2, .bound = bound_of(w->dtype)};
        c.src[0] = result_of(BENCH(state), &f, w->layout);
        c.src[1] = item(w->dtype, w->axes + 2, w->w, w->layout);
        int64_t channels = w->w[1] * w->groups;
        c.src[2] = item(F32, 1, &channels, DENSE);
        help_compare(BENCH(state), &c);
    }
}

static void weight_gradients_agree(void **state) {
    NEED_DEVICE(state);
    for (int i = 0; i < CASES; i++) {
        const window_case *w = &cases[i];
        qn_attr_conv forward = qn_attr_conv_default();
        qn_attr_conv_back_w at = qn_attr_conv_back_w_default();
        SET_WINDOW(forward, w);
        SET_WINDOW(at, w);
        at.kernel = list(w->w + 2, w->axes);
        help_case f = {.op = QN_OP_conv, .attr = &forward, .n_src = 2};
        f.src[0] = item(w->dtype, w->axes + 2, w->x, DENSE);
        f.src[1] = item(w->dtype, w->axes + 2, w->w, DENSE);
        help_case c = {.op = QN_OP_conv_back_w, .attr = &at, .n_src = 2, .bound = bound_of(w->dtype)};
        c.src[0] = result_of(BENCH(state), &f, w->layout);
        c.src[1] = item(w->dtype, w->axes + 2, w->x, w->layout);
        c.dst_layout = i % 3 == 1 ? PADDED : DENSE;
        help_compare(BENCH(state), &c);
    }
}

/* Zeros that are laid around an image meet no weights, nor gradients: what is infinite there would make NaN of them. */
static void nothing_is_added_beside_an_image(void **state) {
    NEED_DEVICE(state);
    for (int i = 0; i < CASES; i++) {
        const window_case *w = &cases[i];
        qn_attr_conv at = qn_attr_conv_default();
        qn_attr_conv_transpose turned = qn_attr_conv_transpose_default();
        qn_attr_conv_back_w back = qn_attr_conv_back_w_default();
        SET_WINDOW(at, w);
        SET_WINDOW(turned, w);
        SET_WINDOW(back, w);
        back.kernel = list(w->w + 2, w->axes);
        help_item x = item(w->dtype, w->axes + 2, w->x, w->layout), k = item(w->dtype, w->axes + 2, w->w, DENSE);
        x.low = 0.5; /* no zero of its own */
        help_case c = {.op = QN_OP_conv, .attr = &at, .n_src = 2, .bound = bound_of(w->dtype), .src = {x, k}};
        help_item g = result_of(BENCH(state), &c, w->layout);
        g.low = 0.5;
        c.src[1].odd = 2;
        help_compare(BENCH(state), &c);
        help_case t = {.op = QN_OP_conv_transpose, .attr = &turned, .n_src = 2, .bound = c.bound, .src = {g, c.src[1]}};
        help_compare(BENCH(state), &t);
        help_case b = {.op = QN_OP_conv_back_w, .attr = &back, .n_src = 2, .bound = c.bound, .src = {g, x}};
        b.src[0].odd = 2;
        help_compare(BENCH(state), &b);
    }
}

static const struct {
    int axes, rank;
    int64_t x[5], kernel[3], stride[3], padding[3];
    int ceil_mode, count_pad, layout;
} pools[] = {
    {2, 4, {2, 3, 8, 8}, {2, 2}, {2, 2}, {0, 0}, 0, 1, DENSE},
    {2, 4, {2, 3, 9, 7}, {3, 2}, {2, 1}, {1, 0}, 1, 0, PADDED},
    {2, 3, {5, 7, 7}, {3, 3}, {1, 1}, {1, 1}, 0, 1, TURNED},
    {1, 3, {2, 3, 17}, {4}, {3}, {2}, 1, 1, REVERSED},
    {3, 5, {2, 2, 4, 5, 6}, {2, 3, 2}, {1, 2, 2}, {0, 1, 1}, 0, 0, DENSE},
    {2, 2, {11, 6}, {5, 2}, {2, 2}, {2, 0}, 1, 1, DENSE},
};

static void pools_agree(void **state) {
    NEED_DEVICE(state);
    for (size_t i = 0; i < sizeof pools / sizeof *pools; i++)
        for (int f = 0; f < QN_REDUCE_COUNT; f++) {
            qn_attr_pool at = qn_attr_pool_default();
            at.kernel = list(pools[i].kernel, pools[i].axes);
            at.stride = list(pools[i].stride, pools[i].axes);
            at.padding = list(pools[i].padding, pools[i].axes);
            at.ceil_mode = pools[i].ceil_mode;
            at.count_include_pad = pools[i].count_pad;
            int odd = f == QN_REDUCE_max && i % 2;
            help_case c = {.op = QN_OP_pool, .subop = f, .attr = &at, .n_src = 1, .bound = 1e-7};
            c.src[0] = item(i == 4 ? F16 : F32, pools[i].rank, pools[i].x, pools[i].layout);
            if (i == 4) c.bound = bound;
            c.src[0].odd = odd;
            help_compare(BENCH(state), &c);
            if (f == QN_REDUCE_prod) continue;
            qn_attr_pool_back back = qn_attr_pool_back_default();
            back.kernel = at.kernel, back.stride = at.stride, back.padding = at.padding;
            back.ceil_mode = at.ceil_mode, back.count_include_pad = at.count_include_pad;
            help_case g = {.op = QN_OP_pool_back, .subop = f, .attr = &back, .n_src = 2, .bound = bound};
            g.src[0] = result_of(BENCH(state), &c, DENSE);
            g.src[1] = c.src[0];
            help_compare(BENCH(state), &g);
        }
}

/* One window high: the result is a row, and may be told as one. */
static void pools_agree_without_ones_in_front(void **state) {
    NEED_DEVICE(state);
    for (int f = 0; f < QN_REDUCE_COUNT; f++) {
        qn_attr_pool at = qn_attr_pool_default();
        at.kernel = list((int64_t[]){4, 2}, 2);
        help_case c = {.op = QN_OP_pool, .subop = f, .attr = &at, .n_src = 1, .bound = 1e-7, .bare = 1};
        c.src[0] = item(F32, 2, (int64_t[]){4, 3}, DENSE);
        help_compare(BENCH(state), &c);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(convolutions_agree),
        cmocka_unit_test(transposed_convolutions_agree),
        cmocka_unit_test(weight_gradients_agree),
        cmocka_unit_test(nothing_is_added_beside_an_image),
        cmocka_unit_test(pools_agree),
        cmocka_unit_test(pools_agree_without_ones_in_front),
    };
    return cmocka_run_group_tests(tests, open_group, close_group);
}
