/* A graph of one op: its sources are inputs, the loss is the weighted sum of its outputs, and qn_graph_grad does the rest. */
#include "check_grad_graph.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include <quern/plan.h>

#include "op/op.h"

typedef struct one_op {
    qn_graph *g;
    qn_plan *plan;
    qn_val src[QN_MAX_SRC], out[QN_MAX_DST];
} one_op;

static const char *source_name(int i, char *text) {
    snprintf(text, 16, "s%d", i);
    return text;
}

static int fits(const qc_built *b) {
    const qn_op_info *info = qn_op_describe(b->c->op);
    const qn_request *q = &b->request;
    for (int i = 0; i < q->n_src; i++)
        if (q->src[i] && (!qn_tensor_is_contiguous(q->src[i]) || (info->src[i].flags & QN_SLOT_STATE))) return 0;
    for (int i = 0; i < q->n_dst; i++)
        if (!q->dst[i] || qn_tensor_count(q->dst[i]) == 0) return 0;
    return 1;
}

static qn_val weighed(one_op *o, qn_val sum, qn_val y, const qn_tensor *t, const double *weight) {
    qn_val w = qn_graph_constant(o->g, QN_DTYPE_F64, t->rank, t->shape, weight, (size_t)qn_tensor_count(t) * sizeof *weight);
    qn_val part = qn_graph_op(o->g, QN_OP_mul, 0, 2, (qn_val[]){y, w}, NULL);
    part = qn_graph_op(o->g, QN_OP_sum, 0, 1, &part, NULL);
    return sum == QN_VAL_NONE ? part : qn_graph_op(o->g, QN_OP_add, 0, 2, (qn_val[]){sum, part}, NULL);
}

/* The graph with outputs g0, g1, .. for the sources that are wanted. */
static qn_status build(one_op *o, const qc_built *b, const double *weight, const int *want) {
    const qn_request *q = &b->request;
    qn_val wrt[QN_MAX_SRC], grads[QN_MAX_SRC], loss = QN_VAL_NONE;
    char name[16];
    int n = 0;
    QN_TRY(qn_graph_create(0, &o->g));
    for (int i = 0; i < q->n_src; i++) {
        const qn_tensor *t = q->src[i];
        o->src[i] = t ? qn_graph_input(o->g, source_name(i, name), (qn_dtype)t->dtype, t->rank, t->shape) : QN_VAL_NONE;
        if (t && want[i]) wrt[n++] = o->src[i];
    }
    QN_TRY(qn_graph_apply(o->g, q->op, q->subop, q->n_src, o->src, b->attr, q->n_dst, o->out));
    for (int i = 0; i < q->n_dst; i++) {
        if (q->dst[i]->dtype != QN_DTYPE_F64) continue;
        loss = weighed(o, loss, o->out[i], q->dst[i], weight);
        weight += qn_tensor_count(q->dst[i]);
    }
    QN_TRY(qn_graph_grad(o->g, loss, n, wrt, grads));
    for (int i = 0; i < n; i++) {
        snprintf(name, sizeof name, "g%d", i);
        QN_TRY(qn_graph_output(o->g, grads[i], name));
    }
    return QN_OK;
}

static qn_status run(one_op *o, const qc_built *b, qn_error *error) {
    const qn_plan_options options = {.size = sizeof options, .flags = QN_PLAN_NO_PASSES | QN_PLAN_REFERENCE};
    char name[16];
    QN_TRY(qn_plan_create(o->g, &options, &o->plan, error));
    for (int i = 0; i < b->request.n_src; i++)
        if (b->request.src[i]) QN_TRY(qn_plan_set(o->plan, source_name(i, name), b->request.src[i], error));
    return qn_plan_run(o->plan, NULL, error);
}

static void compare(const one_op *o, const qc_built *b, int slot, const char *name, const double *want) {
    static double got[1 << 16];
    const char *source = qn_op_describe(b->c->op)->src[slot].name;
    qn_tensor t;
    qn_error error;
    double size = 1e-300, off = 0;
    if (qn_plan_output(o->plan, name, &t, &error) != QN_OK) {
        qc_fail(b, "gradient of %s in a graph: %s", source, error.text);
        return;
    }
    int64_t n = qn_tensor_count(&t);
    if (n != qn_tensor_count(b->request.src[slot]) || n > 1 << 16) {
        qc_fail(b, "gradient of %s in a graph has another shape", source);
        return;
    }
    qc_doubles(&t, got);
    for (int64_t i = 0; i < n; i++) {
        if (got[i] == want[i] || (isnan(got[i]) && isnan(want[i]))) continue;
        double d = fabs(got[i] - want[i]);
        if (isnan(d) || d > off) off = isnan(d) ? INFINITY : d;
    }
    for (int64_t i = 0; i < n; i++)
        if (isfinite(want[i])) size = fmax(size, fabs(want[i]));
    if (off <= 1e-11 * size) qc_pass();
    else qc_fail(b, "gradient of %s in a graph differs from the rule's by %.3g of %.3g", source, off, size);
}

int qc_grad_graph(const qc_built *b, const double *weight, const int *want, double *const *grad) {
    one_op o = {0};
    qn_error error = {QN_OK, ""};
    char name[16];
    if (!fits(b)) return 0;
    qn_status status = build(&o, b, weight, want);
    if (status != QN_OK && o.g) qn_graph_error(o.g, &error);
    else if (status == QN_OK) status = run(&o, b, &error);
    if (status != QN_OK) qc_fail(b, "in a graph: %s", error.text);
    for (int i = 0, n = 0; status == QN_OK && i < b->request.n_src; i++) {
        if (!b->request.src[i] || !want[i]) continue;
        snprintf(name, sizeof name, "g%d", n++);
        compare(&o, b, i, name, grad[i]);
    }
    qn_plan_destroy(o.plan);
    qn_graph_destroy(o.g);
    return 1;
}
