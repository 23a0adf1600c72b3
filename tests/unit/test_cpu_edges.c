/* Kernels against the reference where numbers end: NaN and infinities among the sources, and what is too small for a float. A result is NaN,
 * or that infinity, where the reference says so and nowhere else; through each level of this machine, with one thread and with three. */
#include <math.h>
#include <string.h>

#include <quern/quern.h>

#include "level_help.h"

enum { MOST = 1 << 16, WORK = 1 << 24 };

static _Alignas(64) unsigned char work[WORK];
static float source[7][MOST], want[MOST], got[MOST], beside[MOST];
static qn_pool *pool;

static double draw(void) { return (double)(int64_t)draw_bits() / 9223372036854775808.0; } /* in [-1, 1) */

static qn_tensor tensor(float *data, int rank, const int64_t *shape) {
    qn_tensor t;
    assert_int_equal(qn_tensor_init(&t, QN_DTYPE_F32, rank, shape, data, MOST * sizeof *data), QN_OK);
    assert_true(qn_tensor_count(&t) <= MOST);
    return t;
}
/* Source i, of numbers of size 1. */
static qn_tensor drawn(int i, int rank, const int64_t *shape) {
    for (int k = 0; k < MOST; k++) source[i][k] = (float)draw();
    return tensor(source[i], rank, shape);
}
#define SHAPE(...) \
    (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (const int64_t[]) { __VA_ARGS__ }

static qn_tensor second; /* a destination more for the next call, which is not looked at */

static int agree(float a, float b, double most) {
    if (isnan(a) || isnan(b)) return isnan(a) && isnan(b);
    if (isinf(a) || isinf(b)) return a == b;
    return fabs((double)a - (double)b) <= 1e-4 * (1 + fabs((double)a)) + 1e-6 * most;
}

/* The largest number of a row: what is left of such numbers when they cancel is known to their last digit, not to its own. */
static double most_of(const float *row, int64_t n) {
    double most = 0;
    for (int64_t i = 0; i < n; i++)
        if (isfinite(row[i]) && fabs((double)row[i]) > most) most = fabs((double)row[i]);
    return most;
}

static void agree_by_rows(const char *op, int64_t count, int64_t row) {
    for (int64_t first = 0; first < count; first += row) {
        double most = most_of(want + first, row);
        for (int64_t i = first; i < first + row; i++)
            if (!agree(want[i], got[i], most))
                fail_msg("%s, level %#x, element %d: %g, not %g", op, level->cpu_levels, (int)i, (double)got[i], (double)want[i]);
    }
}

static void compare(qn_op op, int subop, const void *attr, int n_src, const qn_tensor *const *src, qn_tensor y) {
    qn_result r;
    qn_request q = {.size = sizeof q, .version = 1, .op = (uint16_t)op, .subop = (uint16_t)subop, .attr = attr, .n_dst = 1};
    q.n_src = (uint8_t)n_src, q.workspace = work, q.workspace_size = WORK, q.dst[0] = &y;
    for (int i = 0; i < n_src; i++) q.src[i] = src[i];
    if (second.dtype != QN_DTYPE_NONE) q.dst[q.n_dst++] = &second;
    y.data = want;
    assert_int_equal(qn_dispatch(reference, &q, &r), QN_OK);
    for (int threads = 0; threads < 2; threads++) {
        level->pool = threads ? pool : NULL;
        y.data = got;
        memset(got, 0xff, sizeof got);
        assert_int_equal(qn_dispatch(level, &q, &r), QN_OK);
        agree_by_rows(qn_op_describe(op)->name, qn_tensor_count(&y), y.shape[y.rank - 1]);
    }
    level->pool = NULL;
    second.dtype = QN_DTYPE_NONE;
}
#define COMPARE(op, subop, attr, y, ...)                                                          \
    compare(QN_OP_##op, subop, attr, sizeof((const qn_tensor *[]){__VA_ARGS__}) / sizeof(void *), \
            (const qn_tensor *[]){__VA_ARGS__}, y)

static void each_level_and_thread(void (*check)(void)) {
    assert_int_equal(qn_pool_create(3, &pool), QN_OK);
    each_level(check);
    qn_pool_destroy(pool);
}

static const float odd[] = {NAN, INFINITY, -INFINITY};
enum { ODD = 3 };

/* ---- Convolutions: where a window reaches beyond the image there is nothing that a weight could be multiplied with */

static qn_dims both(int32_t n) { return (qn_dims){.rank = 2, .d = {n, n}}; }

/* channels in and out, of one group; groups; kernel, stride, padding; extent of the image */
static const int convs[][7] = {
    {32, 32, 1, 3, 1, 1, 12},                         /* by squares */
    {16, 32, 1, 3, 2, 1, 13},                         /* direct */
    {16, 32, 1, 5, 1, 2, 9},  {3, 4, 1, 3, 1, 1, 9},  /* a product of patches */
    {3, 8, 2, 3, 1, 2, 6},    {1, 1, 8, 3, 1, 1, 11}, /* channel by channel */
    {1, 2, 4, 5, 2, 2, 10},   {4, 3, 1, 1, 1, 1, 5},
};

static void check_convolutions(void) {
    for (size_t i = 0; i < sizeof convs / sizeof convs[0]; i++)
        for (int k = 0; k < 4 * ODD; k++) {
            const int *s = convs[i];
            int act = k & 1, turned = k >> 1 & 1;
            qn_attr_conv at = qn_attr_conv_default();
            qn_attr_conv_act with = qn_attr_conv_act_default();
            at.groups = with.groups = s[2];
            at.stride = with.stride = both(s[4]);
            at.padding = with.padding = both(s[5]);
            with.act = QN_UNARY_step; /* which of NaN makes a number */
            int64_t out = (s[6] + 2 * s[5] - s[3]) / s[4] + 1;
            qn_tensor x = drawn(0, SHAPE(2, s[0] * s[2], s[6], s[6])), w = drawn(1, SHAPE(s[1] * s[2], s[0], s[3], s[3]));
            qn_tensor bias = drawn(2, SHAPE(s[1] * s[2])), y = tensor(got, SHAPE(2, s[1] * s[2], out, out));
            int64_t each = s[0] * s[3] * s[3];
            source[1][0] = source[1]
                                 [each + s[3] * s[3] - 1] = odd[k / 4]; /* a corner of the first kernel, another of the second */
            if (act) COMPARE(conv_act, 0, &with, y, &x, &w, &bias);
            else if (turned) COMPARE(conv, 0, &at, y, &x, &w);
            else COMPARE(conv, 0, &at, y, &x, &w, &bias);
        }
}

static void check_turned_convolutions(void) {
    for (int k = 0; k < 4 * ODD; k++) {
        int stride = 1 + (k & 1), kernel = 3 + (k >> 1 & 1);
        qn_attr_conv_transpose at = qn_attr_conv_transpose_default();
        at.stride = both(stride), at.padding = both(1), at.groups = 2;
        int64_t out = 6 * stride + kernel - 2;
        qn_tensor x = drawn(0, SHAPE(2, 6, 7, 7)), w = drawn(1, SHAPE(6, 4, kernel, kernel)), bias = drawn(2, SHAPE(8));
        qn_tensor y = tensor(got, SHAPE(2, 8, out, out));
        source[1][0] = source[1][kernel * kernel + 1] = odd[k / 4];
        COMPARE(conv_transpose, 0, &at, y, &x, &w, &bias);
        COMPARE(conv_transpose, 0, &at, y, &x, &w);
    }
}

static void check_gradients_of_weights(void) {
    for (int k = 0; k < 2 * ODD; k++) {
        qn_attr_conv_back_w at = qn_attr_conv_back_w_default();
        int stride = 1 + (k & 1), out = stride == 1 ? 8 : 4;
        at.stride = both(stride), at.padding = both(1), at.kernel = both(3), at.groups = 2;
        qn_tensor g = drawn(0, SHAPE(3, 8, out, out)), x = drawn(1, SHAPE(3, 6, 8, 8)), y = tensor(got, SHAPE(8, 3, 3, 3));
        source[0][0] = odd[k / 2]; /* a corner, from which some taps see nothing */
        source[0][(8 + 5) * out * out + out - 1] = odd[k / 2];
        COMPARE(conv_back_w, 0, &at, y, &g, &x);
    }
}

/* ---- Attention */

/* A row with a score that is no number is NaN, also where a mask hides scores; a mask hides them from others. */
static void check_masked_rows(void) {
    qn_attr_soft_max at = qn_attr_soft_max_default();
    qn_tensor x = drawn(0, SHAPE(5, 37)), mask = drawn(1, SHAPE(5, 37)), y = tensor(got, SHAPE(5, 37));
    for (int i = 0; i < 5 * 37; i++)
        if (i % 3 == 0) source[1][i] = -INFINITY;
    source[0][1] = NAN;      /* seen */
    source[0][37 + 2] = NAN; /* hidden */
    source[0][2 * 37 + 3] = INFINITY;
    for (int i = 3 * 37; i < 4 * 37; i++) source[1][i] = -INFINITY;
    COMPARE(soft_max, 0, &at, y, &x, &mask);
    for (int i = 37; i < 37 * 3; i += 2) source[0][i] = -INFINITY;
    source[0][4 * 37] = -INFINITY;
    COMPARE(soft_max, 0, &at, y, &x);
    COMPARE(softmax, 0, NULL, y, &x);
    COMPARE(log_soft_max, 0, NULL, y, &x);
}

/* The same in rows that are taken piece by piece: parts of nothing but -Inf, parts far below others, and a number that is none in one. */
static void check_long_rows(void) {
    static const int lengths[] = {1300, 5000}; /* kept aside, and not */
    for (int k = 0; k < 2; k++) {
        int64_t n = lengths[k];
        qn_attr_soft_max at = qn_attr_soft_max_default();
        qn_tensor x = drawn(0, SHAPE(9, n)), y = tensor(got, SHAPE(9, n));
        for (int64_t i = 0; i < n / 2; i++) source[0][i] = source[0][2 * n - 1 - i] = -INFINITY;
        for (int64_t i = 0; i < n; i++) source[0][2 * n + i] += (float)i, source[0][3 * n + i] -= 300 * (float)(i / 500);
        for (int64_t i = 0; i < n; i++) source[0][4 * n + i] = -INFINITY;
        source[0][6 * n - 1] = NAN, source[0][6 * n + 700] = INFINITY, source[0][8 * n + 1] = -INFINITY;
        COMPARE(soft_max, 0, &at, y, &x);
        COMPARE(log_soft_max, 0, NULL, y, &x);
    }
}

/* A part whose share is less than a float can say still has one: of infinity that is infinite. */
static void check_small_shares(void) {
    enum { WIDE = 19 };
    qn_tensor o = drawn(0, SHAPE(3, 2, WIDE)), s = tensor(source[1], SHAPE(3, 2)), m = tensor(source[2], SHAPE(3, 2)),
              y = tensor(got, SHAPE(2, WIDE));
    static const float tops[] = {0, -90, -101, -110, -200, -700};
    for (int k = 0; k < 6; k++) {
        for (int i = 0; i < 6; i++) source[1][i] = 1, source[2][i] = i == 2 ? tops[k] : 0;
        source[0][2 * WIDE] = INFINITY, source[0][2 * WIDE + 5] = NAN, source[0][2 * WIDE + 7] = 3e38f;
        COMPARE(attention_merge, 0, NULL, y, &o, &s, &m);
        for (int i = 0; i < 6; i += 2) source[1][i] = 1e-44f; /* and shares of more than a float can say */
        COMPARE(attention_merge, 0, NULL, y, &o, &s, &m);
    }
}

/* A sink that is infinite takes a share that is no number. */
static void check_sinks(void) {
    int32_t places[2] = {6, 3};
    qn_attr_cache_attention at = qn_attr_cache_attention_default();
    qn_tensor q = drawn(0, SHAPE(2, 4, 16)), k = drawn(1, SHAPE(2, 2, 8, 16)), v = drawn(2, SHAPE(2, 2, 8, 16)), pos;
    qn_tensor sinks = drawn(3, SHAPE(4)), y = tensor(got, SHAPE(2, 4, 16));
    assert_int_equal(qn_tensor_init(&pos, QN_DTYPE_I32, SHAPE(2), places, sizeof places), QN_OK);
    source[3][0] = INFINITY, source[3][1] = NAN, source[3][2] = -INFINITY;
    at.scale = 0.25f;
    COMPARE(cache_attention, 0, &at, y, &q, &k, &v, &pos, NULL, NULL, &sinks);
}

/* ---- Gates, norms, images, state spaces */

/* What reglu gates away is away; of the others nothing times infinity is NaN. */
static void check_gates(void) {
    qn_tensor x = drawn(0, SHAPE(4, 8)), gates = drawn(1, SHAPE(8, 37)), w = drawn(2, SHAPE(8, 37)),
              y = tensor(got, SHAPE(4, 37));
    source[0][0] = INFINITY, source[0][9] = -INFINITY, source[0][18] = NAN;
    for (int k = 0; k < QN_GLU_COUNT; k++) COMPARE(linear_glu, k, NULL, y, &x, &gates, &w);
}

static void check_batch_norms(void) {
    for (int k = 0; k < 4 * ODD; k++) {
        qn_attr_batch_norm at = qn_attr_batch_norm_default();
        qn_tensor x = drawn(0, SHAPE(3, 5, 2, 11)), y = tensor(got, SHAPE(3, 5, 2, 11)), of[4];
        for (int i = 0; i < 4; i++) of[i] = drawn(1 + i, SHAPE(5));
        for (int i = 0; i < 5; i++) source[4][i] = 1 + source[4][i] / 2, source[3][i] = 0.1f;
        source[1 + k % 4][2] = odd[k / 4];
        COMPARE(batch_norm, 0, &at, y, &x, &of[0], &of[1], &of[2], &of[3]);
    }
}

/* Samples that went into nothing, and several taps that are one sample. */
static void check_resized_gradients(void) {
    for (int k = 0; k < 6 * ODD; k++) {
        qn_attr_upscale_back at = qn_attr_upscale_back_default();
        at.mode = k % 3, at.align_corners = k / 3 & 1;
        at.shape = (qn_dims){.rank = 4, .d = {1, 2, 3, 4}};
        qn_tensor g = drawn(0, SHAPE(1, 2, 7, 9)), y = tensor(got, SHAPE(1, 2, 3, 4));
        source[0][0] = source[0][63 + 31] = source[0][125] = odd[k / 6];
        COMPARE(upscale_back, 0, &at, y, &g);
    }
}

static void check_signals(void) {
    for (int k = 0; k < ODD; k++) {
        qn_tensor g = drawn(0, SHAPE(2, 9, 5)), x = drawn(1, SHAPE(2, 5, 12)), w = drawn(2, SHAPE(5, 4));
        source[2][3] = source[2][4] = odd[k];
        second = tensor(beside, SHAPE(5, 4));
        COMPARE(ssm_conv_back, 0, NULL, tensor(got, SHAPE(2, 5, 12)), &g, &x, &w);
    }
}

static void convolutions_add_nothing_beside_an_image(void **unused) {
    (void)unused;
    each_level_and_thread(check_convolutions);
    each_level_and_thread(check_turned_convolutions);
    each_level_and_thread(check_gradients_of_weights);
}
static void rows_without_a_number_are_nan(void **unused) {
    (void)unused;
    each_level_and_thread(check_masked_rows);
    each_level_and_thread(check_long_rows);
}
static void shares_too_small_for_floats_count(void **unused) {
    (void)unused;
    each_level_and_thread(check_small_shares);
}

static void infinite_sinks_have_no_share(void **unused) {
    (void)unused;
    each_level_and_thread(check_sinks);
}
static void gates_are_those_of_the_reference(void **unused) {
    (void)unused;
    each_level_and_thread(check_gates);
}
static void infinite_weights_of_a_channel_are_infinite(void **unused) {
    (void)unused;
    each_level_and_thread(check_batch_norms);
}
static void what_went_nowhere_comes_back_as_nothing(void **unused) {
    (void)unused;
    each_level_and_thread(check_resized_gradients);
    each_level_and_thread(check_signals);
}

/* ---- Rows of nearly one number, lengths below the floor, scores without digits behind the point */

enum { NEAR_ROWS = 6, NEAR_LONG = 290 };

/* Rows of one number each; in every second row a few are the next one. */
static qn_tensor nearly_one_number(int i, int rank, const int64_t *shape) {
    qn_tensor t = tensor(source[i], rank, shape);
    int64_t n = qn_tensor_count(&t), row = n / NEAR_ROWS;
    for (int64_t k = 0; k < n; k++) {
        float v = powf(10, (float)(k / row)) * 5.42344312f;
        source[i][k] = k / row % 2 && k % 97 == 0 ? nextafterf(v, INFINITY) : v;
    }
    return t;
}

static void check_nearly_one_number(void) {
    qn_tensor x = nearly_one_number(0, SHAPE(NEAR_ROWS, NEAR_LONG)), g = drawn(1, SHAPE(NEAR_ROWS, NEAR_LONG));
    qn_tensor gamma = drawn(2, SHAPE(NEAR_LONG)), y = tensor(got, SHAPE(NEAR_ROWS, NEAR_LONG));
    COMPARE(norm, 0, NULL, y, &x);
    COMPARE(norm_back, 0, NULL, y, &g, &x);
    COMPARE(layer_norm, 0, NULL, y, &x, &gamma);
    qn_tensor planes = nearly_one_number(0, SHAPE(1, NEAR_ROWS, 17, 17)), scale = drawn(2, SHAPE(NEAR_ROWS));
    qn_tensor shift = drawn(3, SHAPE(NEAR_ROWS)), mean = drawn(4, SHAPE(NEAR_ROWS)), var = drawn(5, SHAPE(NEAR_ROWS));
    qn_attr_batch_norm training = qn_attr_batch_norm_default();
    training.training = 1;
    y = tensor(got, SHAPE(1, NEAR_ROWS, 17, 17));
    COMPARE(batch_norm, 0, &training, y, &planes, &scale, &shift, &mean, &var);
    qn_attr_group_norm groups = qn_attr_group_norm_default();
    groups.n_groups = NEAR_ROWS;
    COMPARE(group_norm, 0, &groups, y, &planes);
}

/* The gradient of a length below its floor is g over the floor, whatever float the floor is. */
static void check_floors(void) {
    qn_attr_l2_norm_back at = qn_attr_l2_norm_back_default();
    for (int i = 0; i < 50; i++) {
        qn_tensor g = drawn(0, SHAPE(3, 32)), x = drawn(1, SHAPE(3, 32));
        at.eps = i ? powf(10, -(float)i / 7) : 1e-5f;
        for (int k = 0; k < 3 * 32; k++) source[1][k] = (k < 32 ? 0.99f : k < 64 ? 1.01f : 0.5f) * at.eps / sqrtf(32);
        for (int k = 0; k < 3 * 32; k++) source[0][k] *= at.eps;
        COMPARE(l2_norm_back, 0, &at, tensor(got, SHAPE(3, 32)), &g, &x);
    }
}

static void check_scores_without_digits(void) {
    for (float size = 1e6f; size < 1e13f; size *= 10) {
        qn_tensor x = drawn(0, SHAPE(40, 100));
        qn_attr_soft_max at = qn_attr_soft_max_default();
        at.scale = 0.088388f;
        for (int k = 0; k < 40 * 100; k++) source[0][k] *= size;
        qn_tensor y = tensor(got, SHAPE(40, 100));
        COMPARE(soft_max, 0, &at, y, &x);
    }
}

/* A logit that a mask left at -Inf says nothing where it has no label; where it has one the loss is infinite. */
static void check_masked_logits(void) {
    for (int k = 0; k < 2; k++) {
        qn_tensor x = drawn(0, SHAPE(3, 37)), labels = drawn(1, SHAPE(3, 37)), y = tensor(got, SHAPE(1));
        for (int i = 0; i < 3 * 37; i++)
            if (i % 5 == 0) source[0][i] = -INFINITY, source[1][i] = 0;
            else source[1][i] = fabsf(source[1][i]);
        source[1][10] = (float)k;
        COMPARE(cross_entropy_loss, 0, NULL, y, &x, &labels);
        assert_true(k ? isinf(want[0]) : isfinite(want[0]));
        qn_tensor g = drawn(2, SHAPE(1));
        COMPARE(cross_entropy_loss_back, 0, NULL, tensor(got, SHAPE(3, 37)), &g, &x, &labels);
    }
}

/* Scores far from 0: how they differ has all its digits still. */
static void check_scores_far_off(void) {
    static const int64_t lengths[] = {20, 300, 5000};
    for (int k = 0; k < 3; k++) {
        int64_t n = lengths[k];
        qn_tensor x = drawn(0, SHAPE(5, n)), labels = drawn(1, SHAPE(5, n)), g = tensor(source[2], SHAPE(1));
        for (int64_t i = 0; i < 5 * n; i++) source[0][i] = 4 * source[0][i] + 1e5f, source[1][i] = i % n == 7;
        source[2][0] = 1000;
        COMPARE(log_soft_max, 0, NULL, tensor(got, SHAPE(5, n)), &x);
        COMPARE(cross_entropy_loss, 0, NULL, tensor(got, SHAPE(1)), &x, &labels);
        COMPARE(cross_entropy_loss_back, 0, NULL, tensor(got, SHAPE(5, n)), &g, &x, &labels);
    }
}

/* Rows of the least numbers there are, of the largest of both signs, and gradients of the largest: what is in between leaves the range of floats,
 * the result does not. */
static void check_rows_at_the_ends(void) {
    static const float sizes[] = {1e-43f, 1e-40f, 1e38f, 3e38f}, gradients[] = {1e-40f, 1, 1e38f, 3e38f};
    for (int k = 0; k < 4; k++) {
        qn_attr_norm at = qn_attr_norm_default();
        qn_tensor x = drawn(0, SHAPE(5, 70)), gamma = drawn(1, SHAPE(70)), beta = drawn(2, SHAPE(70)),
                  y = tensor(got, SHAPE(5, 70));
        qn_tensor g = drawn(3, SHAPE(5, 70));
        for (int i = 0; i < 5 * 70; i++) source[0][i] *= sizes[k];
        for (int i = 0; i < 70; i++) source[0][i] = i % 7 ? -sizes[k] : sizes[k]; /* both as far away as they can be */
        at.eps = 0;
        COMPARE(norm, 0, &at, y, &x);
        COMPARE(rms_norm, 0, &at, y, &x);
        COMPARE(l2_norm, 0, &at, y, &x);
        COMPARE(layer_norm, 0, &at, y, &x, &gamma, &beta);
        for (int j = 0; j < 4; j++) {
            if (k < 2 && j > 1) continue; /* infinite, some of it */
            for (int i = 0; i < 5 * 70; i++) source[3][i] = (float)draw() * gradients[j];
            for (int i = 0; i < 70; i++) source[3][i] = gradients[j] * (float)(i % 5 - 1) / 3;
            COMPARE(norm_back, 0, &at, y, &g, &x);
            COMPARE(rms_norm_back, 0, &at, y, &g, &x);
            COMPARE(l2_norm_back, 0, &at, y, &g, &x);
            COMPARE(layer_norm_back, 0, &at, y, &g, &x, &gamma);
        }
        for (int i = 0; i < 5 * 70; i++)
            source[0][i] = (float)draw() * 1e15f; /* sums of g leave the range, those of g x do not come near */
        for (int i = 0; i < 5 * 70; i++) source[3][i] = 3e38f * fabsf((float)draw());
        COMPARE(norm_back, 0, &at, y, &g, &x);
    }
}

static void rows_of_nearly_one_number_are_numbers(void **unused) {
    (void)unused;
    each_level_and_thread(check_nearly_one_number);
}
static void floors_of_lengths_are_constant(void **unused) {
    (void)unused;
    each_level_and_thread(check_floors);
}
static void large_scores_leave_their_highest(void **unused) {
    (void)unused;
    each_level_and_thread(check_scores_without_digits);
}
static void rows_at_the_ends_of_floats_are_normed(void **unused) {
    (void)unused;
    each_level_and_thread(check_rows_at_the_ends);
}
static void scores_far_off_keep_their_digits(void **unused) {
    (void)unused;
    each_level_and_thread(check_scores_far_off);
}
static void masked_logits_without_a_label_say_nothing(void **unused) {
    (void)unused;
    each_level_and_thread(check_masked_logits);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(convolutions_add_nothing_beside_an_image),
        cmocka_unit_test(rows_without_a_number_are_nan),
        cmocka_unit_test(shares_too_small_for_floats_count),
        cmocka_unit_test(infinite_sinks_have_no_share),
        cmocka_unit_test(gates_are_those_of_the_reference),
        cmocka_unit_test(infinite_weights_of_a_channel_are_infinite),
        cmocka_unit_test(what_went_nowhere_comes_back_as_nothing),
        cmocka_unit_test(rows_of_nearly_one_number_are_numbers),
        cmocka_unit_test(floors_of_lengths_are_constant),
        cmocka_unit_test(large_scores_leave_their_highest),
        cmocka_unit_test(rows_at_the_ends_of_floats_are_normed),
        cmocka_unit_test(scores_far_off_keep_their_digits),
        cmocka_unit_test(masked_logits_without_a_label_say_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
