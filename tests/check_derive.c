/* What is derived from graphs, on the random graphs of `qn_check graphs`: tangents against differences and against gradients,
 * a Hessian times a vector against differences of gradients, checkpointed gradients against plain ones, bit for bit, and
 * batches against their items. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "check_eager.h"
#include "check_graphs.h"

typedef struct derived {
    uint64_t seed;
    qn_graph *g;
    qn_val loss, middle, leaf[2]; /* x, w */
    int64_t n;                    /* elements of a leaf */
    double along[2][QC_LEAF_MOST];
    char *a, *b; /* room for outputs */
} derived;

static int open_graph(derived *d, uint64_t seed) {
    qc_rng rng = {qc_mix(seed, 77)};
    qn_value_info info = {.size = sizeof info};
    d->seed = seed;
    d->g = qc_graph_make(seed, &d->loss);
    if (!d->g) return 0;
    d->middle = qn_graph_output_value(d->g, 1, NULL);
    d->leaf[0] = qc_graph_leaf_value(d->g, "x");
    d->leaf[1] = qc_graph_leaf_value(d->g, "w");
    qn_graph_value(d->g, d->leaf[0], &info);
    d->n = qc_count(info.rank, info.shape);
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < QC_LEAF_MOST; i++) d->along[k][i] = qc_unit(&rng) * 2 - 1;
    return 1;
}

/* A constant in the shape of another value. */
static qn_val constant_like(derived *d, qn_val like, const double *data) {
    qn_value_info info = {.size = sizeof info};
    qn_graph_value(d->g, like, &info);
    return qn_graph_constant(d->g, QN_DTYPE_F64, info.rank, info.shape, data, (size_t)qc_count(info.rank, info.shape) * 8);
}

static int built(derived *d, const char *what) {
    qn_error e;
    if (qn_graph_error(d->g, &e) == QN_OK) return 1;
    qc_fail(NULL, "seed %llu: %s: %s", (unsigned long long)d->seed, what, e.text);
    return 0;
}

/* How the first n numbers of the outputs change along the directions: four points, so that the third derivative cancels. */
static void differences(derived *d, size_t skip, size_t n, double *out) {
    static const double points[4] = {0.5, -0.5, 1, -1}, factors[4] = {8, -8, -1, 1};
    const double step = 1e-3;
    for (size_t i = 0; i < n; i++) out[i] = 0;
    for (int k = 0; k < 4; k++) {
        qc_point at = {.seed = d->seed, .x = d->along[0], .w = d->along[1], .by = points[k] * step};
        qc_graph_run(d->g, 0, &at, d->b);
        const double *y = (const double *)(const void *)d->b + skip;
        for (size_t i = 0; i < n; i++) out[i] += factors[k] * y[i] / (6 * step);
    }
}

static void compare(const derived *d, const char *what, size_t n, const double *got, const double *want, double tolerance) {
    double worst = 0, size = 1;
    for (size_t i = 0; i < n; i++) size = fmax(size, fabs(want[i]));
    for (size_t i = 0; i < n; i++) {
        double off = fabs(got[i] - want[i]) / size;
        if (!(off <= worst)) worst = off;
    }
    if (worst <= tolerance) qc_pass();
    else qc_fail(NULL, "seed %llu: %s is off by %g", (unsigned long long)d->seed, what, worst);
}

/* Tangents of both outputs along both leaves: as differences say; and with u coming in for the middle one, u J v is v JT u. */
static void check_jvp(derived *d) {
    qn_val along[2], of[2] = {d->loss, d->middle}, out[2], u, back[2];
    static double want[QC_GRAPH_BYTES / 8], weights[QC_GRAPH_BYTES / 8];
    qn_value_info info = {.size = sizeof info};
    qc_rng rng = {qc_mix(d->seed, 78)};
    qn_graph_value(d->g, d->middle, &info);
    size_t m = (size_t)qc_count(info.rank, info.shape);
    for (size_t i = 0; i < m; i++) weights[i] = qc_unit(&rng) * 2 - 1;
    for (int k = 0; k < 2; k++) along[k] = constant_like(d, d->leaf[k], d->along[k]);
    u = constant_like(d, d->middle, weights);
    qn_grad_options o = {.size = sizeof o, .seed = &u};
    qn_graph_jvp(d->g, 2, d->leaf, along, 2, of, out);
    qn_graph_grad_with(d->g, d->middle, 2, d->leaf, &o, back);
    qn_graph_output(d->g, out[0], "tangent of loss");
    qn_graph_output(d->g, out[1], "tangent of middle");
    qn_graph_output(d->g, back[0], "dx");
    qn_graph_output(d->g, back[1], "dw");
    if (!built(d, "jvp")) return;
    const qc_point here = {.seed = d->seed};
    qc_graph_run(d->g, 0, &here, d->a);
    const double *t = (const double *)(const void *)d->a + 1 + m, *g = t + 1 + m;
    differences(d, 0, 1 + m, want);
    compare(d, "the tangent", 1 + m, t, want, 1e-6);
    double left = 0, right = 0;
    for (size_t i = 0; i < m; i++) left += weights[i] * t[1 + i];
    for (int64_t i = 0; i < d->n; i++) right += d->along[0][i] * g[i] + d->along[1][i] * g[d->n + i];
    compare(d, "tangent against gradient", 1, &left, &right, 1e-7); /* numbers in attributes are f32 */
}

static void check_hvp(derived *d) {
    qn_val along[2], grads[2], out[2];
    double want[2 * QC_LEAF_MOST];
    size_t n = 2 * (size_t)d->n;
    for (int k = 0; k < 2; k++) along[k] = constant_like(d, d->leaf[k], d->along[k]);
    qn_graph_grad(d->g, d->loss, 2, d->leaf, grads);
    qn_graph_hvp(d->g, d->loss, 2, d->leaf, along, out);
    qn_graph_output(d->g, grads[0], "dx");
    qn_graph_output(d->g, grads[1], "dw");
    qn_graph_output(d->g, out[0], "hx");
    qn_graph_output(d->g, out[1], "hw");
    if (!built(d, "hvp")) return;
    const qc_point here = {.seed = d->seed};
    size_t bytes = qc_graph_run(d->g, 0, &here, d->a);
    differences(d, bytes / 8 - 2 * n, n, want);
    compare(d, "the Hessian times a vector", n, (const double *)(const void *)d->a + bytes / 8 - n, want, 1e-6);
}

/* One way of checkpointing against the gradient without; both with all passes, which must not undo it. */
static void check_checkpoints(derived *d, const char *what, const qn_grad_options *o) {
    qn_val plain[2], cut[2];
    qn_graph_grad(d->g, d->loss, 2, d->leaf, plain);
    qn_graph_grad_with(d->g, d->loss, 2, d->leaf, o, cut);
    for (int k = 0; k < 2; k++) {
        qn_graph_output(d->g, plain[k], k ? "plain w" : "plain x");
        qn_graph_output(d->g, cut[k], k ? "cut w" : "cut x");
    }
    if (!built(d, what)) return;
    const qc_point here = {.seed = d->seed};
    size_t bytes = qc_graph_run(d->g, 0, &here, d->a), each = (size_t)d->n * 8;
    const char *at = d->a + bytes - 4 * each;
    if (memcmp(at, at + each, each) == 0 && memcmp(at + 2 * each, at + 3 * each, each) == 0) qc_pass();
    else qc_fail(NULL, "seed %llu: %s changes the gradient", (unsigned long long)d->seed, what);
}

/* The graph and its gradients for a batch of x, or of x and w, against one item at a time. Eleven items take two joins. */
static void check_vmap(derived *d, int n_which) {
    qn_val grads[2];
    qn_graph *all = NULL;
    qn_vmap_report report = {.size = sizeof report};
    qn_error e;
    int batch = d->seed % 8 == 1 ? 11 : 3;
    qn_graph_grad(d->g, d->loss, 2, d->leaf, grads);
    qn_graph_output(d->g, grads[0], "dx");
    qn_graph_output(d->g, grads[1], "dw");
    if (!built(d, "vmap")) return;
    if (qn_graph_vmap(d->g, batch, n_which, d->leaf, &all, &report, &e) != QN_OK) {
        qc_fail(NULL, "seed %llu: %s", (unsigned long long)d->seed, e.text);
        return;
    }
    qc_point at = {.seed = d->seed, .batch = batch, .w_too = n_which == 2};
    size_t bytes = qc_graph_run(all, 0, &at, d->a), each = bytes / (size_t)batch;
    for (at.item = 0; at.item < batch; at.item++) {
        const char *from = d->b, *to = d->a;
        if (qc_graph_run(d->g, 0, &at, d->b) != each) qc_fail(NULL, "seed %llu: the batch is odd", (unsigned long long)d->seed);
        for (int32_t k = 0; k < qn_graph_output_count(d->g); k++) {
            qn_value_info info = {.size = sizeof info};
            qn_graph_value(d->g, qn_graph_output_value(d->g, k, NULL), &info);
            size_t m = (size_t)qc_count(info.rank, info.shape);
            compare(d, "an item of a batch", m, (const double *)(const void *)to + (size_t)at.item * m,
                    (const double *)(const void *)from, 1e-13);
            from += m * 8;
            to += m * 8 * (size_t)batch;
        }
    }
    if (report.n_unrolled && !qc_eager_has_bodies(d->g))
        qc_fail(NULL, "seed %llu: node %d was unrolled", (unsigned long long)d->seed, report.first_unrolled);
    qn_graph_destroy(all);
}

void qc_graph_derive(uint64_t seed, char *a, char *b) {
    const qn_grad_options ways[] = {{.size = sizeof *ways, .checkpoint = QN_CHECKPOINT_EVERY},
                                    {.size = sizeof *ways, .checkpoint = QN_CHECKPOINT_EVERY, .every = 2}};
    derived d = {.a = a, .b = b};
    for (int part = 0; part < 6; part++) {
        if (!open_graph(&d, seed)) continue;
        if (part == 0) check_jvp(&d);
        else if (part == 1) check_hvp(&d);
        else if (part >= 4) check_vmap(&d, part - 3);
        else check_checkpoints(&d, part == 2 ? "checkpointing" : "checkpointing every second node", &ways[part - 2]);
        qn_graph_destroy(d.g);
    }
}
