/* Two steps of a plan read one param, with attributes that decide how it is packed: each has its own form of it, and says what the references say. */
#include <math.h>
#include <string.h>

#include <quern/plan.h>

#include "cmocka_setup.h"

enum { MOST = 1 << 16 };

static union {
    float f32[MOST];
    int8_t i8[MOST];
} data[3];
static float found[2][2][MOST]; /* by kernels and by references, of both steps */

typedef struct two_steps {
    qn_op op;
    qn_dtype dtype; /* of x, z and w; x goes to the first step and z to the second */
    int rank;
    int64_t x[4], z[4], w[4];
    const void *attr[2];
} two_steps;

static qn_graph *build(const two_steps *t) {
    qn_graph *g;
    int64_t one = 1;
    assert_int_equal(qn_graph_create(0, &g), QN_OK);
    qn_val x = qn_graph_input(g, "x", t->dtype, t->rank, t->x), z = qn_graph_input(g, "z", t->dtype, t->rank, t->z);
    qn_val w = qn_graph_param(g, "w", t->dtype, t->rank, t->w), scale = QN_VAL_NONE;
    if (t->dtype == QN_DTYPE_I8) scale = qn_graph_param(g, "scale", QN_DTYPE_F32, 1, &one);
    int n = t->dtype == QN_DTYPE_I8 ? 3 : 2;
    qn_graph_output(g, qn_graph_op(g, t->op, 0, n, (qn_val[]){x, w, scale}, t->attr[0]), "first");
    qn_graph_output(g, qn_graph_op(g, t->op, 0, n, (qn_val[]){z, w, scale}, t->attr[1]), "second");
    assert_int_equal(qn_graph_error(g, NULL), QN_OK);
    return g;
}

static void set(qn_plan *p, const char *name, int i, const two_steps *t, const int64_t *shape) {
    qn_tensor x;
    qn_error e;
    assert_int_equal(qn_tensor_init(&x, t->dtype, t->rank, shape, &data[i], sizeof data[i]), QN_OK);
    int64_t n = qn_tensor_count(&x);
    assert_true(n <= MOST);
    for (int64_t k = 0; k < n; k++) {
        int v = (int)(k * (37 + i) + i) % 251 - 125;
        if (t->dtype == QN_DTYPE_I8) data[i].i8[k] = (int8_t)v;
        else data[i].f32[k] = (float)v * 0.01f;
    }
    assert_int_equal(qn_plan_set(p, name, &x, &e), QN_OK);
}

static int64_t take(const qn_plan *p, const char *name, float *to) {
    qn_tensor y;
    qn_error e;
    assert_int_equal(qn_plan_output(p, name, &y, &e), QN_OK);
    int64_t n = qn_tensor_count(&y);
    const char *at = (const char *)y.data + y.offset;
    assert_true(n <= MOST);
    for (int64_t k = 0; k < n; k++)
        to[k] = y.dtype == QN_DTYPE_I8 ? (float)((const int8_t *)at)[k] : ((const float *)(const void *)at)[k];
    return n;
}

static void check(const two_steps *t) {
    int64_t n[2];
    for (int references = 0; references < 2; references++) {
        qn_plan_options o = {.size = sizeof o, .flags = references ? QN_PLAN_REFERENCE : 0};
        qn_graph *g = build(t);
        qn_plan *p;
        qn_error e;
        assert_int_equal(qn_plan_create(g, &o, &p, &e), QN_OK);
        set(p, "x", 0, t, t->x);
        set(p, "z", 1, t, t->z);
        set(p, "w", 2, t, t->w);
        float scale = 0.0003f;
        qn_tensor s;
        assert_int_equal(qn_tensor_init(&s, QN_DTYPE_F32, 1, (int64_t[]){1}, &scale, sizeof scale), QN_OK);
        if (t->dtype == QN_DTYPE_I8) assert_int_equal(qn_plan_set(p, "scale", &s, &e), QN_OK);
        for (int run = 0; run < 40; run++) assert_int_equal(qn_plan_run(p, NULL, &e), QN_OK); /* some pack late */
        n[0] = take(p, "first", found[references][0]);
        n[1] = take(p, "second", found[references][1]);
        qn_plan_destroy(p);
        qn_graph_destroy(g);
    }
    for (int step = 0; step < 2; step++)
        for (int64_t k = 0; k < n[step]; k++) {
            float got = found[0][step][k], want = found[1][step][k];
            float most = t->dtype == QN_DTYPE_I8 ? 0 : 1e-3f * (1 + fabsf(want));
            if (fabsf(got - want) > most) fail_msg("step %d, element %d: %g, not %g", step, (int)k, (double)got, (double)want);
        }
}

static void zeros_of_products_tell_forms_apart(void **state) {
    (void)state;
    qn_attr_quant_matmul plain = qn_attr_quant_matmul_default(), weights = plain, sources = plain;
    weights.w_zero = 5;
    sources.x_zero = 7;
    two_steps t = {QN_OP_quant_matmul, QN_DTYPE_I8, 2, {4, 64}, {4, 64}, {64, 64}, {&plain, &weights}};
    check(&t);
    t.attr[1] = &sources;
    check(&t);
}

static void groups_of_byte_convolutions_tell_forms_apart(void **state) {
    (void)state;
    qn_attr_quant_conv plain = qn_attr_quant_conv_default(), groups = plain, weights = plain;
    groups.groups = 2;
    weights.w_zero = 9;
    check(&(two_steps){QN_OP_quant_conv, QN_DTYPE_I8, 4, {1, 16, 12, 12}, {1, 32, 12, 12}, {64, 16, 3, 3}, {&plain, &groups}});
    check(&(two_steps){QN_OP_quant_conv, QN_DTYPE_I8, 4, {1, 16, 12, 12}, {1, 16, 12, 12}, {64, 16, 3, 3}, {&plain, &weights}});
}

static void groups_of_convolutions_tell_forms_apart(void **state) {
    (void)state;
    for (int stride = 1; stride < 3; stride++) {
        qn_attr_conv plain = qn_attr_conv_default(), groups;
        plain.stride = (qn_dims){.rank = 2, .d = {stride, stride}};
        groups = plain;
        groups.groups = 2;
        check(&(two_steps){QN_OP_conv, QN_DTYPE_F32, 4, {1, 64, 20, 20}, {1, 128, 20, 20}, {60, 64, 3, 3}, {&plain, &groups}});
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(zeros_of_products_tell_forms_apart),
        cmocka_unit_test(groups_of_byte_convolutions_tell_forms_apart),
        cmocka_unit_test(groups_of_convolutions_tell_forms_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
