/* What the trainings of `quern train` have in common. */
#include <stdio.h>
#include <stdlib.h>

#include "train_params.h"
#include "splitmix.h"

int train_fail(const char *what, const char *text) {
    fprintf(stderr, "quern train: %s: %s\n", what, text);
    return 0;
}

int train_set(qn_plan *plan, const char *name, qn_dtype dtype, int rank, const int64_t *shape, const void *data, size_t bytes) {
    qn_tensor t;
    qn_error error = {QN_OK, ""};
    qn_tensor_init(&t, dtype, rank, shape, (void *)(uintptr_t)data, bytes);
    return qn_plan_set(plan, name, &t, &error) == QN_OK || train_fail(name, error.text);
}

net *train_net(void) {
    net *n = calloc(1, sizeof *n);
    if (n && qn_graph_create(0, &n->graph) == QN_OK) return n;
    free(n);
    train_fail("graph", "no memory");
    return NULL;
}

int train_plan(const net *n, int built, qn_device *device, qn_plan **plan) {
    qn_error error = {QN_OK, ""};
    qn_plan_options o = {.size = sizeof o, .device = device};
    if (!built) {
        qn_graph_error(n->graph, &error);
        return train_fail("graph", error.text);
    }
    return qn_plan_create(n->graph, &o, plan, &error) == QN_OK || train_fail("plan", error.text);
}

void train_free(net *n, qn_plan *plan) {
    qn_plan_destroy(plan);
    if (n) qn_graph_destroy(n->graph);
    free(n);
}

static int start_one(const net_param *p, qn_plan *step, uint64_t *random) {
    char name[sizeof p->name + 8];
    size_t n = 1;
    for (int k = 0; k < p->rank; k++) n *= (size_t)p->shape[k];
    float *w = calloc(n, sizeof *w);
    int good = w || train_fail(p->name, "no memory");
    for (int k = 0; good && k < 2; k++) {
        snprintf(name, sizeof name, "%s.%c", p->name, k ? 'v' : 'm');
        good = train_set(step, name, QN_DTYPE_F32, p->rank, p->shape, w, n * sizeof *w);
    }
    for (size_t k = 0; good && k < n; k++)
        w[k] = p->spread > 0 ? p->spread * ((float)(splitmix(random) >> 40) * 0x1p-23f - 1.0f) : p->fill;
    good = good && train_set(step, p->name, QN_DTYPE_F32, p->rank, p->shape, w, n * sizeof *w);
    free(w);
    return good;
}

int train_start(const net *n, qn_plan *step, uint64_t *random) {
    for (int i = 0; i < n->n_params; i++)
        if (!start_one(&n->params[i], step, random)) return 0;
    return 1;
}

int train_hand_on(const net_param *p, const qn_plan *step, qn_plan *look, qn_tensor *t) {
    qn_error error = {QN_OK, ""};
    char name[sizeof p->name + 8];
    snprintf(name, sizeof name, "%s'", p->name);
    if (qn_plan_output(step, name, t, &error) != QN_OK) return train_fail(name, error.text);
    return qn_plan_set(look, p->name, t, &error) == QN_OK || train_fail(p->name, error.text);
}
