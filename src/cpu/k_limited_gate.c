/* group_limited_gate: the groups of experts by the sum of their two best, then the best experts of the best groups. Sums are in double,
 * as the reference's, since they only decide. */
#include <math.h>

#include "cpu/k_lanes.h"
#include "cpu/k_sort.h"
#include "op/rank.h"

/* Scratch of a part: ranks of all experts and of those in open groups, whole vectors of each; the groups' ranks and which are open;
 * the chosen, as items and as weights. */
typedef struct gate {
    const qn_attr_group_limited_gate *at;
    int64_t experts, per_group;
    float *ranks, *within;
    double *groups, *open, *weights;
    uint64_t *items;
} gate;

static int64_t whole(int64_t n) { return (n + VF_N - 1) / VF_N * VF_N; }

static size_t open_gate(const qn_call *c, gate *g, int64_t part) {
    const qn_attr_group_limited_gate *at = c->attr;
    *g = (gate){.at = at, .experts = qn_ne(c->src[0], 0)};
    g->per_group = g->experts / at->n_group;
    size_t floats = 2 * (size_t)whole(g->experts) * sizeof(float),
           doubles = 2 * (size_t)(at->n_group + at->top_k) * sizeof(double);
    size_t bytes = (floats + doubles + 63) / 64 * 64;
    if (c->workspace) {
        char *p = (char *)c->workspace + (size_t)part * bytes;
        g->ranks = (float *)(void *)p;
        g->within = g->ranks + whole(g->experts);
        g->groups = (double *)(void *)(p + floats);
        g->open = g->groups + at->n_group;
        g->weights = g->open + at->n_group;
        g->items = (uint64_t *)(void *)(g->weights + at->top_k);
    }
    return bytes;
}

/* NaN counts as -Inf, so that there is always an order. */
QN_INLINE void load_ranks(uint32_t dtype, const char *row, int64_t n, float *to) {
    for (int64_t i = 0; i < n; i += VF_N) {
        vf v = qn_lanes_at(dtype, row, i, n);
        vf_store(to + i, vf_select(v != v, vf_set1(-INFINITY), v));
    }
}

/* The sum of a group's two best, or its only one. */
static double group_rank(const float *x, int64_t n) {
    float first = -INFINITY, second = -INFINITY;
    for (int64_t i = 0; i < n; i++) {
        float less = x[i] > first ? first : x[i];
        first = x[i] > first ? x[i] : first;
        second = less > second ? less : second;
    }
    return n > 1 ? qn_op_group_rank((double)first, (double)second) : (double)first;
}

/* Ranks of the experts in open groups, in their order, into `within`; group j of those is number groups[j] then. */
static void open_groups(const gate *g) {
    int64_t last = -1, n = 0;
    for (int64_t i = 0; i < g->at->n_group; i++) {
        g->groups[i] = group_rank(g->ranks + i * g->per_group, g->per_group);
        g->open[i] = 0;
    }
    for (int64_t i = 0; i < g->at->topk_group; i++) {
        last = qn_op_next_best(g->groups, g->at->n_group, last, NULL, 1);
        g->open[last] = 1;
    }
    for (int64_t i = 0; i < g->at->n_group; i++) {
        if (g->open[i] == 0) continue;
        memcpy(g->within + n * g->per_group, g->ranks + i * g->per_group, (size_t)g->per_group * sizeof *g->ranks);
        g->groups[n++] = (double)i;
    }
}

static void gate_row(const gate *g, const qn_tensor *scores, const char *row, const qn_tensor *ids, char *id_row,
                     const qn_tensor *weights, char *weight_row) {
    int64_t k = g->at->top_k;
    double sum = 1e-20;
    open_groups(g);
    const uint64_t *best = qn_sort_first(g->within, g->at->topk_group * g->per_group, k, 1, -1, g->items);
    for (int64_t i = 0; i < k; i++) {
        int64_t at = (int64_t)(best[i] & UINT32_MAX);
        int64_t expert = (int64_t)g->groups[at / g->per_group] * g->per_group + at % g->per_group;
        *(int32_t *)(void *)(id_row + i * qn_nb(ids, 0)) = (int32_t)expert;
        g->weights[i] = qn_load_one((qn_dtype)scores->dtype, row + expert * qn_nb(scores, 0));
        sum += g->weights[i];
    }
    for (int64_t i = 0; i < k; i++) g->weights[i] = (double)g->at->scaling * g->weights[i] / (k > 1 ? sum : 1);
    qn_store_row(weights, weight_row, 0, k, g->weights);
}

static void run(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    const qn_tensor *scores = c->src[0], *ranks = c->src[1], *ids = c->dst[0], *weights = c->dst[1];
    gate g;
    qn_rows it;
    (void)phase;
    open_gate(c, &g, part);
    int64_t rows = qn_tensor_count(scores) / g.experts, end = qn_cpu_cut(rows, s->parts[0], part + 1);
    qn_rows_begin_at(&it, scores->rank, scores->shape, qn_cpu_cut(rows, s->parts[0], part));
    for (; it.live && it.row < end; qn_rows_next(&it)) {
#define LOAD(dtype) load_ranks(dtype, qn_row(&it, ranks), g.experts, g.ranks)
        QN_BY_FLOAT(ranks->dtype, LOAD);
#undef LOAD
        gate_row(&g, scores, qn_row(&it, scores), ids, qn_row(&it, ids), weights, qn_row(&it, weights));
    }
}

int QN_K(group_limited_gate)(const qn_call *c, qn_cpu_step *s) {
    gate g;
    size_t bytes = open_gate(c, &g, 0);
    if (!qn_lanes_rows(c->src[1]) || qn_tensor_count(c->src[0]) == 0) return 0;
    qn_cpu_by_rows(s, "best of groups", run, qn_tensor_count(c->src[0]) / g.experts, 0, 32.0 * (double)g.experts);
    s->workspace = (size_t)s->parts[0] * bytes;
    return 1;
}
