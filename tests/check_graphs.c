/* qn_check graphs: random graphs of up to 40 nodes, every third with branches and loops. For each: the plan gives the bits that
 * dispatching node by node gives; every pass, and all together, leave those bits alone; and the graph's gradient agrees with finite
 * differences and with the rules of its ops, run one by one. What else can be derived from a graph is checked next door, in
 * check_derive.c. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <quern/plan.h>

#include "check_bodies.h"
#include "check_eager.h"
#include "check_emit.h"
#include "check_graphs.h"
#include "pass/pass.h"
#include "check_patterns.h"

enum { MAX_NODES = 40, MAX_ELEMENTS = 200, POOL_BYTES = QC_GRAPH_BYTES };

typedef struct maker {
    qc_rng rng;
    qn_graph *g;
    qn_val values[MAX_NODES * 2 + 8];
    int n;
    int bodies; /* branches and loops as well */
} maker;

static int64_t shape_of(const qn_graph *g, qn_val v, qn_value_info *info) {
    info->size = sizeof *info;
    qn_graph_value(g, v, info);
    return qc_count(info->rank, info->shape);
}

static int64_t count_of(const qn_value_info *info) { return qc_count(info->rank, info->shape); }

static qn_val pick(maker *m) { return m->values[qc_below(&m->rng, m->n)]; }

/* Another value of the same shape, the value itself if there is none. */
static qn_val pick_like(maker *m, const qn_value_info *want) {
    for (int tries = 0; tries < 20; tries++) {
        qn_value_info info;
        qn_val v = pick(m);
        shape_of(m->g, v, &info);
        if (info.rank == want->rank && memcmp(info.shape, want->shape, sizeof *info.shape * (size_t)info.rank) == 0) return v;
    }
    return QN_VAL_NONE;
}

static qn_val unary(maker *m, qn_val a) { /* smooth ones only: a finite difference across a kink says nothing */
    static const qn_unary smooth[] = {QN_UNARY_tanh, QN_UNARY_sigmoid, QN_UNARY_silu,
                                      QN_UNARY_gelu, QN_UNARY_neg,     QN_UNARY_softplus};
    return qn_graph_op(m->g, QN_OP_unary, (int)smooth[qc_below(&m->rng, 6)], 1, &a, NULL);
}

static qn_val binary(maker *m, qn_val a, const qn_value_info *info) {
    static const qn_op ops[] = {QN_OP_add, QN_OP_sub, QN_OP_mul};
    qn_val b = pick_like(m, info);
    if (b == QN_VAL_NONE) b = a;
    return qn_graph_op(m->g, (int)ops[qc_below(&m->rng, 3)], 0, 2, (qn_val[]){a, b}, NULL);
}

static qn_val row_op(maker *m, qn_val a) {
    static const qn_op ops[] = {QN_OP_rms_norm, QN_OP_norm, QN_OP_soft_max,    QN_OP_cumsum,
                                QN_OP_sum_rows, QN_OP_mean, QN_OP_log_soft_max};
    qn_attr_rms_norm eps = qn_attr_rms_norm_default();
    eps.eps = 0.1f;
    qn_op op = ops[qc_below(&m->rng, 7)];
    return qn_graph_op(m->g, (int)op, 0, 1, &a, op == QN_OP_rms_norm || op == QN_OP_norm ? &eps : NULL);
}

static qn_val reshaped(maker *m, qn_val a, const qn_value_info *info) {
    qn_attr_reshape at = qn_attr_reshape_default();
    int64_t n = count_of(info), split = 1 + qc_below(&m->rng, 4);
    at.shape.rank = 2;
    at.shape.d[0] = n % split ? 1 : split;
    at.shape.d[1] = n / at.shape.d[0];
    return qn_graph_op(m->g, QN_OP_reshape, 0, 1, &a, &at);
}

static qn_val product(maker *m, qn_val a, const qn_value_info *info) {
    for (int tries = 0; tries < 20; tries++) {
        qn_value_info other;
        qn_val b = pick(m);
        shape_of(m->g, b, &other);
        if (info->rank == 2 && other.rank == 2 && info->shape[1] == other.shape[1])
            return qn_graph_op(m->g, QN_OP_mul_mat, 0, 2, (qn_val[]){a, b}, NULL);
    }
    return QN_VAL_NONE;
}

static qn_val repeated(maker *m, qn_val a, const qn_value_info *info) {
    qn_attr_repeat at = qn_attr_repeat_default();
    at.shape.rank = info->rank;
    for (int i = 0; i < info->rank; i++) at.shape.d[i] = info->shape[i] * (1 + qc_below(&m->rng, 2));
    return qn_graph_op(m->g, QN_OP_repeat, 0, 1, &a, &at);
}

static qn_val window(maker *m, qn_val a, const qn_value_info *info) { /* every second column of the first rows */
    qn_attr_view at = qn_attr_view_default();
    if (info->rank != 2) return QN_VAL_NONE;
    at.shape.rank = at.strides.rank = 2;
    at.shape.d[0] = 1 + qc_below(&m->rng, info->shape[0]);
    at.shape.d[1] = (info->shape[1] + 1) / 2;
    at.strides.d[0] = info->shape[1] * 8;
    at.strides.d[1] = 16;
    return qn_graph_op(m->g, QN_OP_view, 0, 1, &a, &at);
}

static qn_val scaled(maker *m, qn_val a) {
    qn_attr_scale at = qn_attr_scale_default();
    at.s = (float)qc_unit(&m->rng) + 0.25f;
    at.b = (float)qc_unit(&m->rng) - 0.5f;
    return qn_graph_op(m->g, QN_OP_scale, 0, 1, &a, &at);
}

static qn_val joined(maker *m, qn_val a, const qn_value_info *info) {
    qn_val b = pick_like(m, info);
    qn_attr_concat at = qn_attr_concat_default();
    at.axis = (int32_t)qc_below(&m->rng, info->rank);
    return b == QN_VAL_NONE ? b : qn_graph_op(m->g, QN_OP_concat, 0, 2, (qn_val[]){a, b}, &at);
}

static qn_val with_bodies(maker *m, qn_val a, const qn_value_info *info) {
    qn_val b = pick_like(m, info);
    return b == QN_VAL_NONE ? b : qc_bodies_add(m->g, &m->rng, a, b, (qc_layer){QN_VAL_NONE, QN_VAL_NONE});
}

static void add_node(maker *m) {
    qn_value_info info;
    qn_val a = pick(m), y = QN_VAL_NONE;
    shape_of(m->g, a, &info);
    switch (qc_below(&m->rng, m->bodies ? 12 : 10)) {
    case 0: y = unary(m, a); break;
    case 1: y = binary(m, a, &info); break;
    case 2: y = row_op(m, a); break;
    case 3: y = info.rank > 1 ? qn_graph_op(m->g, QN_OP_transpose, 0, 1, &a, NULL) : QN_VAL_NONE; break;
    case 4: y = reshaped(m, a, &info); break;
    case 5: y = product(m, a, &info); break;
    case 6: y = repeated(m, a, &info); break;
    case 7: y = window(m, a, &info); break;
    case 8: y = scaled(m, a); break;
    case 9: y = joined(m, a, &info); break;
    default: y = with_bodies(m, a, &info); break;
    }
    if (y == QN_VAL_NONE) return;
    shape_of(m->g, y, &info);
    if (count_of(&info) <= MAX_ELEMENTS) m->values[m->n++] = y;
}

/* x, a param, a constant; then nodes; the sum of the last one is the loss. */
qn_graph *qc_graph_make(uint64_t seed, qn_val *loss) {
    maker m = {.rng = {seed}, .bodies = seed % 3 == 0};
    double data[QC_LEAF_MOST];
    int64_t shape[2] = {1 + qc_below(&m.rng, 4), 1 + qc_below(&m.rng, 3)};
    if (qn_graph_create(0, &m.g) != QN_OK) return NULL;
    for (int i = 0; i < QC_LEAF_MOST; i++) data[i] = qc_unit(&m.rng) - 0.5;
    m.values[m.n++] = qn_graph_input(m.g, "x", QN_DTYPE_F64, 2, shape);
    m.values[m.n++] = qn_graph_param(m.g, "w", QN_DTYPE_F64, 2, shape);
    m.values[m.n++] = qn_graph_constant(m.g, QN_DTYPE_F64, 2, shape, data, sizeof *data * (size_t)(shape[0] * shape[1]));
    int nodes = 2 + (int)qc_below(&m.rng, MAX_NODES - 4), room = m.bodies ? MAX_NODES - 8 : MAX_NODES - 2; /* a loop takes six */
    while (nodes-- > 0 && qn_graph_node_count(m.g) < room) add_node(&m);
    qn_val last = m.values[m.n - 1], mix = qn_graph_op(m.g, QN_OP_unary, QN_UNARY_tanh, 1, &last, NULL);
    *loss = qn_graph_op(m.g, QN_OP_sum, 0, 1, &mix, NULL);
    qn_graph_output(m.g, *loss, "loss");
    qn_graph_output(m.g, m.values[m.n / 2], "middle");
    return m.g;
}

qn_val qc_graph_leaf_value(const qn_graph *g, const char *name) {
    for (qn_val v = 0; v < qn_graph_value_count(g); v++) {
        qn_value_info info;
        shape_of(g, v, &info);
        if (info.name && strcmp(info.name, name) == 0) return v;
    }
    return QN_VAL_NONE;
}

void qc_graph_leaf(uint64_t seed, const double *along, double by, double *data) {
    qc_rng rng = {seed};
    for (int i = 0; i < QC_LEAF_MOST; i++) data[i] = qc_unit(&rng) * 2 - 1 + (along ? by * along[i] : 0);
}

static void set_leaf(qn_plan *p, const char *name, uint64_t seed, const double *along, const qc_point *at, int item) {
    static double data[QC_LEAF_MOST * QC_BATCH_MOST];
    const qn_graph *g = qn_plan_graph(p);
    qn_val v = qc_graph_leaf_value(g, name);
    qn_value_info info;
    qn_tensor t;
    qn_error e;
    int64_t each = shape_of(g, v, &info);
    int items = info.rank == 3 ? at->batch : 1; /* leaves have two axes of their own */
    each /= items;
    for (int k = 0; k < items; k++) {
        double one[QC_LEAF_MOST];
        qc_graph_leaf(seed + 7919 * (uint64_t)(items > 1 ? k : item), along, at->by, one);
        memcpy(data + k * each, one, (size_t)each * sizeof *one);
    }
    qn_tensor_init(&t, QN_DTYPE_F64, info.rank, info.shape, data, sizeof data);
    if (qn_plan_set(p, name, &t, &e) != QN_OK) qc_fail(NULL, "%s", e.text);
}

size_t qc_graph_run(const qn_graph *g, uint32_t flags, const qc_point *at, char *out) {
    qn_plan_options o = {.size = sizeof o, .flags = flags | QN_PLAN_REFERENCE};
    unsigned long long seed = at->seed;
    qn_plan *p = NULL;
    qn_error e;
    size_t n = 0;
    if (qn_plan_create(g, &o, &p, &e) != QN_OK) {
        qc_fail(NULL, "seed %llu: %s", seed, e.text);
        return 0;
    }
    set_leaf(p, "x", at->seed, at->x, at, at->item);
    set_leaf(p, "w", at->seed + 1, at->w, at, at->w_too ? at->item : 0);
    if (qn_plan_run(p, NULL, &e) != QN_OK) qc_fail(NULL, "seed %llu: %s", seed, e.text);
    for (int32_t i = 0; i < qn_graph_output_count(g); i++) {
        const char *name;
        qn_tensor t, dense;
        qn_graph_output_value(g, i, &name);
        if (qn_plan_output(p, name, &t, &e) != QN_OK) continue;
        qn_tensor_init(&dense, (qn_dtype)t.dtype, t.rank, t.shape, out + n, POOL_BYTES - n);
        qn_request q = {.size = sizeof q,
                        .version = QN_REQUEST_VERSION,
                        .op = QN_OP_cont,
                        .n_src = 1,
                        .n_dst = 1,
                        .src = {&t},
                        .dst = {&dense}};
        if (qn_dispatch(qc_context, &q, NULL) != QN_OK) qc_fail(NULL, "seed %llu: output %s is no tensor", seed, name);
        n += (size_t)qn_tensor_count(&t) * 8;
    }
    qn_plan_destroy(p);
    return n;
}

static qc_eager eager;

static void fill_leaf(void *user, const qn_value_info *leaf, qn_tensor *t) {
    uint64_t seed = *(const uint64_t *)user + (leaf->kind == QN_VALUE_PARAM);
    double data[QC_LEAF_MOST];
    qc_graph_leaf(seed, NULL, 0, data);
    memcpy(t->data, data, sizeof *data * (size_t)qn_tensor_count(t));
}

static size_t run_eagerly(const qn_graph *g, uint64_t seed, char *out) {
    size_t n = 0;
    const char *why = qc_eager_run(&eager, g, fill_leaf, &seed);
    if (why) return qc_fail(NULL, "seed %llu: %s", (unsigned long long)seed, why), 0;
    for (int32_t i = 0; i < qn_graph_output_count(g); i++) {
        const qn_tensor *o = &eager.value[qn_graph_output_value(g, i, NULL)];
        memcpy(out + n, o->data, (size_t)qn_tensor_count(o) * 8);
        n += (size_t)qn_tensor_count(o) * 8;
    }
    return n;
}

static void check_bits(uint64_t seed, const char *what, size_t n, const char *got, size_t want_n, const char *want) {
    if (n == want_n && memcmp(got, want, n) == 0) qc_pass();
    else qc_fail(NULL, "seed %llu: %s changes the result", (unsigned long long)seed, what);
}

static void check_gradient(uint64_t seed, qn_graph *g, qn_val loss, char *out) {
    qn_val w = qc_graph_leaf_value(g, "w"), dw;
    qn_value_info info;
    int64_t n = shape_of(g, w, &info);
    if (qn_graph_grad(g, loss, 1, &w, &dw) != QN_OK || qn_graph_output(g, dw, "dw") != QN_OK) {
        qn_error e;
        qn_graph_error(g, &e);
        qc_fail(NULL, "seed %llu: %s", (unsigned long long)seed, e.text);
        return;
    }
    qc_point at = {.seed = seed};
    size_t bytes = qc_graph_run(g, 0, &at, out);
    double grad[QC_LEAF_MOST], worst = 0;
    memcpy(grad, out + bytes - (size_t)n * 8, (size_t)n * 8);
    for (int i = 0; i < n; i++) {
        double up, down, unit[QC_LEAF_MOST] = {0};
        unit[i] = 1;
        at.w = unit;
        at.by = 1e-5;
        qc_graph_run(g, 0, &at, out);
        memcpy(&up, out, 8);
        at.by = -1e-5;
        qc_graph_run(g, 0, &at, out);
        memcpy(&down, out, 8);
        double want = (up - down) / 2e-5, off = fabs(want - grad[i]) / fmax(1, fabs(want));
        if (off > worst) worst = off;
    }
    if (worst < 1e-5) qc_pass();
    else qc_fail(NULL, "seed %llu: the gradient is off by %g", (unsigned long long)seed, worst);
}

/* ---- The rules of the ops, one by one, each run as it emits */

static qc_tape tape;

static int add_up(qn_val *sum, qn_val more) {
    qn_val both[2] = {*sum, more};
    if (more == QN_VAL_NONE) return 1;
    if (*sum == QN_VAL_NONE) return *sum = more, 1;
    return tape.emitter.apply(tape.emitter.self, QN_OP_add, 0, 2, both, NULL, 1, sum) == QN_OK;
}

/* Gradients of all values of a graph without bodies whose values are in `eager`. NULL, or what went wrong. */
static const char *walk_back(const qn_graph *g, qn_val loss, qn_val *grad) {
    int64_t one[1] = {1};
    qc_tape_begin(&tape);
    for (qn_val v = 0; v < qn_graph_value_count(g); v++) {
        grad[v] = QN_VAL_NONE;
        if (qc_tape_bring(&tape, &eager.value[v]) != v) return "the tape is full";
    }
    grad[loss] = qc_tape_new(&tape, QN_DTYPE_F64, 1, one);
    if (grad[loss] == QN_VAL_NONE) return "the tape is full";
    *(double *)tape.value[grad[loss]].data = 1;
    for (int32_t k = qn_graph_node_count(g) - 1; k >= 0; k--) {
        qn_node_info n = {.size = sizeof n};
        qn_graph_node(g, k, &n);
        if (grad[n.out[0]] == QN_VAL_NONE) continue;
        qn_vjp_call v = {.emitter = &tape.emitter, .op = n.op, .subop = n.subop, .n_src = n.n_src, .n_dst = 1};
        v.attr = n.attr ? n.attr : qn_op_describe(n.op)->attr_default;
        for (int i = 0; i < QN_MAX_SRC; i++) {
            v.src[i] = i < n.n_src ? n.src[i] : QN_VAL_NONE;
            v.want[i] = i < n.n_src;
            v.out[i] = QN_VAL_NONE;
        }
        for (int i = 0; i < QN_MAX_DST; i++) v.dst[i] = v.grad[i] = QN_VAL_NONE;
        v.dst[0] = n.out[0];
        v.grad[0] = grad[n.out[0]];
        qn_op_rules_of(n.op)->vjp(&v);
        if (v.status != QN_OK) return tape.trouble[0] ? tape.trouble : "a rule failed";
        for (int i = 0; i < n.n_src; i++)
            if (!add_up(&grad[n.src[i]], v.out[i])) return tape.trouble;
    }
    return NULL;
}

/* The graph's gradients by both leaves against that. Sums of several terms may be added up in another order. */
static void check_rules(uint64_t seed, char *out) {
    static qn_val grad[QC_EAGER_VALUES];
    qn_val loss, leaf[2], d[2];
    qn_graph *g = qc_graph_make(seed, &loss);
    const qc_point here = {.seed = seed};
    size_t n = run_eagerly(g, seed, out);
    const char *why = n ? walk_back(g, loss, grad) : "it does not run";
    for (int i = 0; i < 2; i++) leaf[i] = qc_graph_leaf_value(g, i ? "w" : "x");
    qn_graph_grad(g, loss, 2, leaf, d);
    for (int i = 0; i < 2; i++) qn_graph_output(g, d[i], i ? "dw" : "dx");
    size_t bytes = why ? 0 : qc_graph_run(g, QN_PLAN_NO_PASSES, &here, out);
    double worst = 0;
    for (int i = 0, m = !why && bytes ? (int)qn_tensor_count(&eager.value[leaf[0]]) : 0; i < 2 * m; i++) {
        const qn_val by = grad[leaf[i / m]];
        double got, want[QC_LEAF_MOST] = {0};
        memcpy(&got, out + bytes - 16 * (size_t)m + 8 * (size_t)i, 8);
        if (by != QN_VAL_NONE) qc_doubles(&tape.value[by], want);
        double off = fabs(got - want[i % m]) / fmax(1, fabs(want[i % m]));
        if (!(off <= worst)) worst = off;
    }
    if (!why && bytes && worst < 1e-11) qc_pass();
    else if (why) qc_fail(NULL, "seed %llu: %s", (unsigned long long)seed, why);
    else qc_fail(NULL, "seed %llu: gradient and rules differ by %g", (unsigned long long)seed, worst);
    qc_tape_end(&tape);
    qn_graph_destroy(g);
}

static void check_graph(uint64_t seed, char *want, char *got) {
    qn_val loss;
    qn_error e;
    qn_graph *g = qc_graph_make(seed, &loss), *better;
    if (!g || qn_graph_error(g, &e) != QN_OK) {
        qc_fail(NULL, "seed %llu: %s", (unsigned long long)seed, g ? e.text : "no memory");
        qn_graph_destroy(g);
        return;
    }
    const qc_point here = {.seed = seed};
    size_t n = run_eagerly(g, seed, want);
    check_bits(seed, "planning", qc_graph_run(g, QN_PLAN_NO_PASSES, &here, got), got, n, want);
    const char *name;
    for (int i = 0; (name = qn_graph_pass_name(i, NULL)); i++) {
        if (qn_pass_one(g, name, &better, NULL, &e) != QN_OK) {
            qc_fail(NULL, "seed %llu: %s", (unsigned long long)seed, e.text);
            continue;
        }
        check_bits(seed, name, qc_graph_run(better, QN_PLAN_NO_PASSES, &here, got), got, n, want);
        qn_graph_destroy(better);
    }
    check_bits(seed, "all passes together", qc_graph_run(g, 0, &here, got), got, n, want);
    if (seed % 4 == 0) check_gradient(seed, g, loss, got);
    if (seed % 4 != 3 && !qc_eager_has_bodies(g)) check_rules(seed, got);
    qn_graph_destroy(g);
    if (seed % 4 == 1) qc_graph_derive(seed, want, got);
}

int qc_mode_graphs(void) {
    char *want = malloc(POOL_BYTES), *got = malloc(POOL_BYTES);
    int count = qc_set.quick ? 100 : 1000;
    for (int i = 0; want && got && i < count; i++) check_graph(qc_set.seed * 100003 + (uint64_t)i, want, got);
    for (int i = 0; i < count; i++) qc_graph_patterns(qc_set.seed * 100003 + (uint64_t)i);
    qc_graph_patterns_end();
    qc_bodies_end();
    free(want);
    free(got);
    return qc_finish();
}
