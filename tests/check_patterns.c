/* qn_check graphs, second part: random graphs made of what passes look for (products with biases, norms of sums, projections
 * that are cut apart, gates, chains, parts that are joined again, algebra that does nothing, branches and loops), over every float
 * dtype, with outputs anywhere. Each pass, and all together, must leave the bits alone, node by node and planned; what may change results
 * stays within a bound; and no pass may go through all of it without having done anything. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <quern/plan.h>

#include "check_bodies.h"
#include "check_eager.h"
#include "check_patterns.h"
#include "tensor/convert.h"

enum { MOST_STREAM = 64, MOST_PASSES = 32 };

typedef struct maker {
    qc_rng rng;
    qn_graph *g;
    qn_dtype dtype;
    qn_val stream[MOST_STREAM]; /* values of shape [2, 3, 4] */
    int n;
    qn_val w[3], wide, bias, gamma, number[6];
    qn_val position; /* in caches; QN_VAL_NONE once they were written */
} maker;

static int draw(maker *m, int n) { return (int)qc_below(&m->rng, n); }
static qn_val pick(maker *m) { return m->stream[draw(m, m->n)]; }

static qn_val op1(maker *m, qn_op op, int subop, qn_val a, const void *attr) {
    return qn_graph_op(m->g, (int)op, subop, 1, &a, attr);
}
static qn_val op2(maker *m, qn_op op, int subop, qn_val a, qn_val b, const void *attr) {
    return qn_graph_op(m->g, (int)op, subop, 2, (qn_val[]){a, b}, attr);
}
static qn_val arith(maker *m, qn_arith f, qn_val a, qn_val b) { return op2(m, QN_OP_arith, (int)f, a, b, NULL); }

static qn_val reshape(maker *m, qn_val a, int rank, const int64_t *d) {
    qn_attr_reshape at = qn_attr_reshape_default();
    at.shape.rank = rank;
    memcpy(at.shape.d, d, sizeof *d * (size_t)rank);
    return op1(m, QN_OP_reshape, 0, a, &at);
}

static qn_val permute(maker *m, qn_val a, int rank, const int64_t *axes) {
    qn_attr_permute at = qn_attr_permute_default();
    at.axes.rank = rank;
    memcpy(at.axes.d, axes, sizeof *axes * (size_t)rank);
    return op1(m, QN_OP_permute, 0, a, &at);
}

static qn_val narrow(maker *m, qn_val a, int axis, int64_t start, int64_t length) {
    qn_attr_narrow at = qn_attr_narrow_default();
    at.axis = axis;
    at.start = start;
    at.length = length;
    return op1(m, QN_OP_narrow, 0, a, &at);
}

static qn_val cast(maker *m, qn_val a, qn_dtype to) {
    qn_attr_cast at = qn_attr_cast_default();
    at.dtype = (int32_t)to;
    return op1(m, QN_OP_cast, 0, a, &at);
}

/* ---- Patterns: a value of the stream in, one out */

static qn_val product(maker *m, qn_val x) {
    qn_attr_matmul at = qn_attr_matmul_default();
    at.transpose_b = draw(m, 2);
    return op2(m, QN_OP_matmul, 0, x, m->w[draw(m, 3)], &at);
}

static qn_val activation(maker *m, qn_val x) {
    static const qn_unary some[] = {QN_UNARY_gelu, QN_UNARY_silu, QN_UNARY_relu, QN_UNARY_tanh, QN_UNARY_neg, QN_UNARY_abs};
    return op1(m, QN_OP_unary, (int)some[draw(m, 6)], x, NULL);
}

static qn_val dense_layer(maker *m, qn_val x) {
    qn_val y = product(m, x);
    if (draw(m, 3)) y = arith(m, QN_ARITH_add, y, m->bias);
    if (draw(m, 6) == 0) m->stream[m->n++] = y; /* something else may use it */
    if (draw(m, 2)) y = activation(m, y);
    return draw(m, 3) ? y : arith(m, QN_ARITH_add, pick(m), y);
}

static qn_val norm_of_sum(maker *m, qn_val x) {
    qn_val sum = arith(m, QN_ARITH_add, x, draw(m, 6) ? pick(m) : m->bias);
    if (draw(m, 2)) m->stream[m->n++] = sum;
    if (draw(m, 3) == 0) return op1(m, QN_OP_rms_norm, 0, sum, NULL);
    if (draw(m, 2)) return op2(m, QN_OP_rms_layer_norm, 0, sum, m->gamma, NULL);
    return qn_graph_op(m->g, QN_OP_layer_norm, 0, 3, (qn_val[]){sum, m->gamma, m->bias}, NULL);
}

/* Two norms of one value, and what may follow a norm. */
static qn_val norms_of_one(maker *m, qn_val x) {
    qn_val a = op2(m, QN_OP_rms_layer_norm, 0, x, m->gamma, NULL), b = op2(m, QN_OP_rms_layer_norm, 0, x, m->bias, NULL);
    if (draw(m, 2)) return arith(m, QN_ARITH_add, op1(m, QN_OP_cumsum, 0, a, NULL), op1(m, QN_OP_cumsum, 0, b, NULL));
    a = draw(m, 2) ? arith(m, QN_ARITH_mul, a, activation(m, pick(m))) : arith(m, QN_ARITH_add, a, pick(m));
    return arith(m, QN_ARITH_sub, a, b);
}

static qn_val projections(maker *m, qn_val x) {
    qn_val all = op2(m, QN_OP_matmul, 0, x, m->wide, NULL), q = narrow(m, all, -1, 0, 4), k = narrow(m, all, 2, 4, 4);
    qn_val v = narrow(m, all, -1, draw(m, 8) ? 8 : 7, 4);
    if (draw(m, 2)) return arith(m, QN_ARITH_add, arith(m, QN_ARITH_mul, q, k), v);
    static const int64_t heads[] = {2, 3, 2, 2}, back[] = {2, 3, 4};
    qn_attr_attention at = qn_attr_attention_default();
    at.layout = 1;
    qn_val in[3] = {reshape(m, q, 4, heads), reshape(m, k, 4, heads), reshape(m, v, 4, heads)};
    return reshape(m, qn_graph_op(m->g, QN_OP_attention, 0, 3, in, &at), 3, back);
}

static qn_val two_products(maker *m, qn_val x) {
    qn_val a = op2(m, QN_OP_matmul, 0, x, m->w[0], NULL), b = op2(m, QN_OP_matmul, 0, x, m->w[1], NULL);
    if (draw(m, 2)) return op2(m, QN_OP_glu, draw(m, QN_GLU_COUNT), a, b, NULL);
    return arith(m, QN_ARITH_sub, op1(m, QN_OP_cumsum, 0, a, NULL), b);
}

static qn_val elementwise(maker *m, qn_val x) {
    qn_attr_scale scale = qn_attr_scale_default();
    qn_attr_clamp clamp = qn_attr_clamp_default();
    switch (draw(m, 8)) {
    case 0: return activation(m, x);
    case 1: return arith(m, (qn_arith)draw(m, 3), x, pick(m));
    case 2: scale.s = 0.75f, scale.b = 0.125f; return op1(m, QN_OP_scale, 0, x, &scale);
    case 3: clamp.min = -1, clamp.max = 1; return op1(m, QN_OP_clamp, 0, x, &clamp);
    case 4: {
        qn_val less = op2(m, QN_OP_compare, QN_COMPARE_lt, x, m->number[2], NULL);
        if (draw(m, 2)) less = op1(m, QN_OP_logic, QN_LOGIC_not, less, NULL);
        return qn_graph_op(m->g, QN_OP_where, 0, 3, (qn_val[]){less, x, pick(m)}, NULL);
    }
    case 5: return arith(m, QN_ARITH_mul, x, m->bias);
    case 6: return op1(m, QN_OP_math, QN_MATH_atan, x, NULL);
    default: return cast(m, cast(m, x, QN_DTYPE_F64), m->dtype);
    }
}

static qn_val chain(maker *m, qn_val x) {
    for (int i = 2 + draw(m, 5); i > 0; i--) x = elementwise(m, x);
    return x;
}

static qn_val parts_joined(maker *m, qn_val x) {
    qn_attr_join at = qn_attr_join_default();
    qn_unary f = draw(m, 2) ? QN_UNARY_tanh : QN_UNARY_sigmoid;
    int cut = 1 + draw(m, 2), swapped = draw(m, 5) == 0;
    qn_val a = op1(m, QN_OP_unary, (int)f, narrow(m, x, 1, 0, cut), NULL);
    qn_val b = op1(m, QN_OP_unary, (int)f, narrow(m, x, 1, cut, 3 - cut), NULL);
    at.axis = 1;
    a = arith(m, QN_ARITH_mul, a, m->bias);
    b = arith(m, QN_ARITH_mul, b, m->bias);
    return swapped ? op2(m, QN_OP_join, 0, b, a, &at) : op2(m, QN_OP_join, 0, a, b, &at);
}

static qn_val idle_algebra(maker *m, qn_val x) {
    static const int64_t turn[] = {1, 2, 0}, turn_back[] = {2, 0, 1}, flat[] = {6, 4}, back[] = {2, 3, 4};
    switch (draw(m, 9)) {
    case 0: return arith(m, QN_ARITH_mul, x, m->number[1]);
    case 1: return op1(m, QN_OP_unary, QN_UNARY_neg, op1(m, QN_OP_unary, QN_UNARY_neg, x, NULL), NULL);
    case 2: return arith(m, QN_ARITH_sub, x, m->number[0]);
    case 3: return permute(m, permute(m, x, 3, turn), 3, turn_back);
    case 4: return reshape(m, reshape(m, x, 2, flat), 3, back);
    case 5: return op1(m, QN_OP_cont, 0, op1(m, QN_OP_transpose, 0, op1(m, QN_OP_transpose, 0, x, NULL), NULL), NULL);
    case 6: return arith(m, QN_ARITH_add, x, m->number[3]);
    case 7: return arith(m, QN_ARITH_mul, x, m->number[4]);
    default: return op1(m, QN_OP_dup, 0, x, NULL);
    }
}

static qn_val views(maker *m, qn_val x) {
    static const int64_t split[] = {2, 3, 2, 2}, pairs[] = {2, 3, 2}, flat[] = {24}, turn[] = {2, 0, 1}, back[] = {2, 3, 4};
    qn_attr_concat at = qn_attr_concat_default();
    qn_val s = reshape(m, x, 4, split);
    if (draw(m, 2)) return reshape(m, reshape(m, permute(m, x, 3, turn), 1, flat), 3, back);
    qn_val a = reshape(m, narrow(m, s, 2, 0, 1), 3, pairs), b = reshape(m, narrow(m, s, 2, 1, 1), 3, pairs);
    return op2(m, QN_OP_concat, 0, op1(m, QN_OP_cumsum, 0, a, NULL), b, &at);
}

static qn_val transposed(maker *m, qn_val x) {
    qn_val square = op2(m, QN_OP_matmul, 0, op1(m, QN_OP_transpose, 0, x, NULL), pick(m), NULL);
    if (draw(m, 2)) square = op1(m, QN_OP_transpose, 0, square, NULL);
    return op2(m, QN_OP_matmul, 0, x, square, NULL);
}

/* The same twice, constants among themselves, and something that nobody wants. */
static qn_val waste(maker *m, qn_val x) {
    qn_val known = arith(m, QN_ARITH_add, m->number[4], m->number[5]);
    qn_val a = op1(m, QN_OP_cumsum, 0, x, NULL), b = op1(m, QN_OP_cumsum, 0, x, NULL);
    op1(m, QN_OP_soft_max, 0, x, NULL);
    return arith(m, QN_ARITH_add, arith(m, QN_ARITH_mul, a, known), b);
}

/* Passes go into bodies as well. */
static qn_val bodies(maker *m, qn_val x) { return qc_bodies_add(m->g, &m->rng, x, pick(m), (qc_layer){m->w[0], m->bias}); }

static qn_val delta_scan(maker *m, qn_val x) { return qc_delta_scan_add(m->g, &m->rng, x, pick(m)); }

/* Tokens into two caches, once in a graph, and out of them again; now and then one is read before the other is written. */
static qn_val caches(maker *m, qn_val x) {
    static const int64_t slots[] = {3, 8, 4}, turn[] = {1, 0, 2};
    if (m->position == QN_VAL_NONE) return x;
    qn_val k = qn_graph_param(m->g, "keys", m->dtype, 3, slots), v = qn_graph_param(m->g, "values", m->dtype, 3, slots);
    k = qn_graph_op(m->g, QN_OP_cache_write, 0, 3, (qn_val[]){k, x, m->position}, NULL);
    qn_val early = draw(m, 4) ? QN_VAL_NONE : narrow(m, k, 1, 0, 2);
    if (early != QN_VAL_NONE) m->stream[m->n++] = op1(m, QN_OP_unary, QN_UNARY_tanh, permute(m, early, 3, turn), NULL);
    v = qn_graph_op(m->g, QN_OP_cache_write, 0, 3, (qn_val[]){v, pick(m), m->position}, NULL);
    m->position = QN_VAL_NONE;
    return permute(m, arith(m, QN_ARITH_add, narrow(m, k, 1, 1, 2), narrow(m, v, 1, 6, 2)), 3, turn);
}

static qn_val bounded(maker *m, qn_val x) { return op1(m, QN_OP_unary, QN_UNARY_tanh, x, NULL); }

static void add_pattern(maker *m) {
    static qn_val (*const patterns[])(maker *, qn_val) = {
        dense_layer,  dense_layer, norm_of_sum, projections, two_products, chain,        chain,      parts_joined,
        idle_algebra, views,       transposed,  waste,       bodies,       norms_of_one, delta_scan, caches};
    qn_val x = pick(m);
    qn_val y = patterns[draw(m, (int)(sizeof patterns / sizeof *patterns))](m, x);
    if (draw(m, 3) == 0) y = bounded(m, y);
    m->stream[m->n++] = y;
}

static qn_val constant(maker *m, double v) {
    char bytes[8];
    int64_t one = 1;
    qn_store_one(m->dtype, bytes, v);
    return qn_graph_constant(m->g, m->dtype, 1, &one, bytes, (size_t)qn_dtype_describe(m->dtype)->bytes);
}

static qn_graph *make(uint64_t seed, qn_dtype *dtype) {
    static const qn_dtype dtypes[] = {QN_DTYPE_F32, QN_DTYPE_F32, QN_DTYPE_F64, QN_DTYPE_F16, QN_DTYPE_BF16};
    static const double numbers[] = {0, 1, 0.25, -0.0, 0.5, -2};
    static const int64_t x[] = {2, 3, 4}, w[] = {4, 4}, wide[] = {4, 12}, row[] = {4};
    maker m = {.rng = {seed}};
    *dtype = m.dtype = dtypes[draw(&m, 5)];
    if (qn_graph_create(0, &m.g) != QN_OK) return NULL;
    m.stream[m.n++] = qn_graph_input(m.g, "x", m.dtype, 3, x);
    m.stream[m.n++] = qn_graph_input(m.g, "r", m.dtype, 3, x);
    for (int i = 0; i < 3; i++) m.w[i] = qn_graph_param(m.g, (const char *[]){"w0", "w1", "w2"}[i], m.dtype, 2, w);
    m.wide = qn_graph_param(m.g, "wide", m.dtype, 2, wide);
    m.bias = qn_graph_param(m.g, "bias", m.dtype, 1, row);
    m.gamma = qn_graph_param(m.g, "gamma", m.dtype, 1, row);
    for (int i = 0; i < 6; i++) m.number[i] = constant(&m, numbers[i]);
    m.position = qn_graph_constant(m.g, QN_DTYPE_I32, 1, (const int64_t[]){1}, (const int32_t[]){7}, sizeof(int32_t));
    for (int i = 3 + draw(&m, 9); i > 0; i--) add_pattern(&m);
    qn_graph_output(m.g, bounded(&m, m.stream[m.n - 1]), "last");
    qn_graph_output(m.g, m.stream[2 + draw(&m, m.n - 2)], "some");
    qn_graph_output(m.g, m.stream[2 + draw(&m, m.n - 2)], "other");
    return m.g;
}

/* ---- Running */

static void fill_leaf(const char *name, qn_tensor *t) {
    qc_rng rng = {1};
    for (const char *c = name; *c; c++) rng.state = qc_mix(rng.state, (unsigned char)*c);
    size_t each = (size_t)qn_dtype_describe((qn_dtype)t->dtype)->bytes;
    for (int64_t i = 0; i < qn_tensor_count(t); i++)
        qn_store_one((qn_dtype)t->dtype, (char *)t->data + (size_t)i * each, qc_unit(&rng) * 2 - 1);
}

/* Outputs as doubles, one behind the other, and how many. */
static int64_t gather(const qn_tensor *t, double *out) {
    qc_doubles(t, out);
    return qn_tensor_count(t);
}

static void fill(void *user, const qn_value_info *leaf, qn_tensor *t) {
    (void)user;
    fill_leaf(leaf->name, t);
}

static int64_t run_plainly(uint64_t seed, const qn_graph *g, double *out) {
    static qc_eager e;
    int64_t n = 0;
    const char *why = qc_eager_run(&e, g, fill, NULL);
    if (why) return qc_fail(NULL, "seed %llu: %s", (unsigned long long)seed, why), 0;
    for (int32_t i = 0; i < qn_graph_output_count(g); i++) n += gather(&e.value[qn_graph_output_value(g, i, NULL)], out + n);
    return n;
}

/* Planned with all passes, on the references. */
static int64_t run_planned(uint64_t seed, const qn_graph *g, double *out) {
    qn_plan_options o = {.size = sizeof o, .flags = QN_PLAN_REFERENCE};
    qn_plan *p = NULL;
    qn_error e = {QN_OK, ""};
    int64_t n = 0;
    char data[1024];
    qn_status status = qn_plan_create(g, &o, &p, &e);
    for (qn_val v = 0; status == QN_OK && v < qn_graph_value_count(g); v++) {
        qn_value_info info = {.size = sizeof info};
        qn_tensor t;
        qn_graph_value(g, v, &info);
        if (!info.name) continue;
        qn_tensor_init(&t, info.dtype, info.rank, info.shape, data, sizeof data);
        fill_leaf(info.name, &t);
        status = qn_plan_set(p, info.name, &t, &e);
    }
    if (status == QN_OK) status = qn_plan_run(p, NULL, &e);
    for (int32_t i = 0; status == QN_OK && i < qn_graph_output_count(g); i++) {
        const char *name;
        qn_tensor t;
        qn_graph_output_value(g, i, &name);
        status = qn_plan_output(p, name, &t, &e);
        if (status == QN_OK) n += gather(&t, out + n);
    }
    if (status != QN_OK) qc_fail(NULL, "seed %llu: planned: %s", (unsigned long long)seed, e.text);
    qn_plan_destroy(p);
    return n;
}

/* ---- Checks */

static int32_t fired[MOST_PASSES];

static void count_done(void *user, const qn_pass_done *done) {
    const char *name;
    (void)user;
    for (int i = 0; i < MOST_PASSES && (name = qn_graph_pass_name(i, NULL)); i++)
        if (strcmp(name, done->pass) == 0) fired[i] += done->changed;
}

/* 0 when all bits agree, NaN being NaN; else the largest difference over the largest number. */
static double apart(int64_t n, const double *a, const double *b) {
    double most = 0, large = 1;
    int differ = 0;
    for (int64_t i = 0; i < n; i++) {
        if (memcmp(&a[i], &b[i], sizeof *a) == 0 || (isnan(a[i]) && isnan(b[i]))) continue;
        differ = 1;
        if (isnan(a[i]) != isnan(b[i]) || isinf(a[i]) != isinf(b[i])) return INFINITY;
        if (fabs(a[i] - b[i]) > most) most = fabs(a[i] - b[i]);
        if (fabs(a[i]) > large && isfinite(a[i])) large = fabs(a[i]);
    }
    return differ && most == 0 ? 1e-300 : most / large;
}

/* The same over all numbers at once, root of mean squares: an error that a norm or a difference blew up in one place weighs
 * little. */
static double apart_in_all(int64_t n, const double *a, const double *b) {
    double differences = 0, numbers = 1e-6;
    for (int64_t i = 0; i < n; i++) {
        if (!isfinite(a[i]) && !isfinite(b[i])) continue;
        differences += (a[i] - b[i]) * (a[i] - b[i]);
        numbers += a[i] * a[i];
    }
    return sqrt(differences / numbers);
}

typedef struct trial {
    uint64_t seed;
    const qn_graph *g;
    int64_t n;
    double *want, *got;
} trial;

static void check(const trial *t, const char *what, const qn_pass_options *o, double most) {
    qn_graph *better;
    qn_error e;
    if (qn_graph_optimise(t->g, o, &better, &e) != QN_OK) {
        qc_fail(NULL, "seed %llu: %s: %s", (unsigned long long)t->seed, what, e.text);
        return;
    }
    int64_t n = run_plainly(t->seed, better, t->got);
    double off = n != t->n ? INFINITY : (o->precision ? apart_in_all : apart)(n, t->want, t->got);
    if (off <= most) qc_pass();
    else qc_fail(NULL, "seed %llu: %s changes the result by %g", (unsigned long long)t->seed, what, off);
    qn_graph_destroy(better);
}

void qc_graph_patterns(uint64_t seed) {
    static double want[4096], got[4096];
    qn_dtype dtype;
    qn_error e;
    qn_graph *g = make(seed, &dtype);
    trial t = {seed, g, 0, want, got};
    const char *name;
    if (!g || qn_graph_error(g, &e) != QN_OK) {
        qc_fail(NULL, "seed %llu: %s", (unsigned long long)seed, g ? e.text : "no memory");
        qn_graph_destroy(g);
        return;
    }
    t.n = run_plainly(seed, g, want);
    qn_pass_options o = {.size = sizeof o, .flags = QN_PASS_VERIFY, .done = count_done};
    for (int i = 0; (name = qn_graph_pass_name(i, NULL)); i++) {
        o.only = name;
        check(&t, name, &o, 0);
    }
    o.only = NULL;
    check(&t, "all passes", &o, 0);
    o.limit = 1 + (int32_t)(seed % 16);
    check(&t, "some changes", &o, 0);
    o.limit = 0;
    double half = dtype == QN_DTYPE_F16 ? 0.02 : dtype == QN_DTYPE_BF16 ? 0.1 : 1e-5;
    o.flags |= QN_PASS_FAST;
    check(&t, "all passes, fast", &o, half);
    o.flags = QN_PASS_VERIFY;
    o.precision = seed % 2 ? QN_PRECISION_F16 : QN_PRECISION_BF16;
    if (dtype == QN_DTYPE_F32) check(&t, "halves", &o, seed % 2 ? 0.02 : 0.25);
    int64_t n = run_planned(seed, g, got);
    if (n == t.n && apart(n, want, got) == 0) qc_pass();
    else qc_fail(NULL, "seed %llu: planning with all passes changes the result", (unsigned long long)seed);
    qn_graph_destroy(g);
}

void qc_graph_patterns_end(void) {
    const char *name;
    for (int i = 0; i < MOST_PASSES && (name = qn_graph_pass_name(i, NULL)); i++) {
        if (qc_set.verbose) printf("%-10s %d changes\n", name, fired[i]);
        if (fired[i] > 0) qc_pass();
        else qc_fail(NULL, "pass %s never did anything", name);
    }
}
