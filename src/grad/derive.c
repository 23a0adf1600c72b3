/* The questions: a gradient, a tangent, a Hessian times a vector. Each is one or two walks, and a look at what they left
 * behind. */
#include <stdio.h>

#include "grad/grad.h"

/* ---- Checking what is asked */

static qn_status check_value(qn_graph *g, const char *what, qn_val value) {
    if (value < 0 || (size_t)value >= g->values.n)
        return qn_ir_fail(g, QN_ARGUMENT, "%s: value %d is none of this graph's", what, value);
    if (!qn_is_float(g->values.at[value].shape.dtype)) {
        char words[160];
        return qn_ir_fail(g, QN_INVALID, "%s: %s is %s, and only floats have derivatives", what,
                          qn_ir_value_words(g, value, words, sizeof words),
                          qn_dtype_describe((qn_dtype)g->values.at[value].shape.dtype)->name);
    }
    return QN_OK;
}

static qn_status check_values(qn_graph *g, const char *what, int n, const qn_val *values) {
    if (g->symbols.n) return qn_ir_fail(g, QN_INVALID, "%s: the graph has symbols; bind them first", what);
    for (int i = 0; i < n; i++) QN_TRY(check_value(g, what, values[i]));
    return QN_OK;
}

/* Directions and gradients lie as the values they belong to do. */
static qn_status check_like(qn_graph *g, const char *what, const char *role, qn_val value, qn_val like) {
    QN_TRY(check_value(g, what, value));
    const qn_shape *a = &g->values.at[value].shape, *b = &g->values.at[like].shape;
    int same = a->rank == b->rank && a->dtype == b->dtype;
    for (int k = 0; same && k < a->rank; k++) same = a->d[k] == b->d[k];
    if (same) return QN_OK;
    char words[160], other[160];
    return qn_ir_fail(g, QN_INVALID, "%s: %s, %s, has not the shape and dtype of %s", what, role,
                      qn_ir_value_words(g, value, words, sizeof words), qn_ir_value_words(g, like, other, sizeof other));
}

static qn_status check_loss(qn_graph *g, const char *what, qn_val loss) {
    QN_TRY(check_value(g, what, loss));
    const qn_shape *s = &g->values.at[loss].shape;
    for (int k = 0; k < s->rank; k++)
        if (s->d[k] != 1)
            return qn_ir_fail(g, QN_INVALID, "%s: the loss must have one element, axis %d has %lld", what, k, (long long)s->d[k]);
    return QN_OK;
}

static qn_status begin(qn_graph *g, int n, const qn_val *given, const qn_val *more, qn_val *out) {
    if (!g || n < 0 || (n && (!given || !more || !out))) return QN_ARGUMENT;
    for (int i = 0; i < n; i++) out[i] = QN_VAL_NONE;
    return g->error.status;
}

/* Zeros for what is not there. */
static void fill_zeros(qn_graph *g, const char *prefix, int n, const qn_val *like, qn_val *out) {
    qn_grad_set_label(g, prefix, 0);
    for (int i = 0; i < n && g->error.status == QN_OK; i++)
        if (out[i] == QN_VAL_NONE) out[i] = qn_grad_fill(g, like[i], 0);
    g->forced_label = 0;
}

/* ---- Gradients */

static qn_val root_of(const qn_graph *g, qn_val value) {
    int32_t node = g->values.at[value].node;
    while (node >= 0 && qn_op_describe(g->nodes.at[node].op)->is_view) {
        value = qn_ir_sources(g, &g->nodes.at[node])[0];
        node = g->values.at[value].node;
    }
    return value;
}

/* Which forward values the nodes appended since read, through views or not. */
static qn_status find_saved(qn_graph *g, size_t first_node, size_t n_values, uint8_t **saved) {
    *saved = qn_arena_resize(&g->arena, NULL, n_values + 1, 1);
    if (!*saved) return qn_ir_fail(g, QN_NO_MEMORY, "gradient: no memory for %zu values", n_values);
    memset(*saved, 0, n_values + 1);
    for (size_t k = first_node; k < g->nodes.n; k++)
        for (int i = 0; i < g->nodes.at[k].n_src; i++) {
            qn_val v = qn_ir_sources(g, &g->nodes.at[k])[i];
            if (v >= 0 && (size_t)v < n_values) (*saved)[root_of(g, v)] = 1;
        }
    return QN_OK;
}

static qn_status walk_once(qn_graph *g, qn_grad_question *q, qn_val loss, const qn_grad_options *o, const uint8_t *saved,
                           qn_val *out) {
    qn_grad_segments segments = {0, NULL, NULL};
    size_t first_node = g->nodes.n, first_value = g->values.n;
    if (o->checkpoint != QN_CHECKPOINT_NONE && qn_grad_segments_make(g, loss, o, saved, &segments) == QN_OK)
        q->segments = &segments;
    if (g->error.status == QN_OK) qn_grad_walk(g, q, out);
    qn_arena_release(&g->arena, segments.of);
    qn_arena_release(&g->arena, segments.recomputed);
    q->segments = NULL;
    return qn_grad_compact(g, first_node, first_value, q->n, out);
}

/* Within the budget nothing is computed again; how much that keeps is known once it is written. */
static qn_status walk_within(qn_graph *g, qn_grad_question *q, qn_val loss, const qn_grad_options *o, qn_val *out) {
    qn_grad_options all = *o;
    size_t first_node = g->nodes.n, first_value = g->values.n;
    uint8_t *saved = NULL;
    all.checkpoint = QN_CHECKPOINT_NONE;
    QN_TRY(walk_once(g, q, loss, &all, NULL, out));
    QN_TRY(find_saved(g, first_node, first_value, &saved));
    if (qn_grad_saved_bytes(g, saved, first_value) > o->budget) {
        for (int i = 0; i < q->n; i++) out[i] = QN_VAL_NONE;
        if (qn_grad_compact(g, first_node, first_value, 0, NULL) == QN_OK) walk_once(g, q, loss, o, saved, out);
    }
    qn_arena_release(&g->arena, saved);
    return g->error.status;
}

/* Adds the gradients onto sums that outlive a run. */
static qn_status add_to_sums(qn_graph *g, int n, const qn_grad_options *o, qn_val *grads) {
    qn_attr_accumulate at = qn_attr_accumulate_default();
    if (o->scale != 0) at.scale = o->scale;
    qn_grad_set_label(g, "gradient", 0);
    for (int i = 0; o->sums && i < n && g->error.status == QN_OK; i++) {
        qn_val src[3] = {o->sums[i], grads[i], o->keep ? *o->keep : QN_VAL_NONE};
        if (o->sums[i] != QN_VAL_NONE) grads[i] = qn_graph_op(g, QN_OP_accumulate, 0, o->keep ? 3 : 2, src, &at);
    }
    g->forced_label = 0;
    return g->error.status;
}

static qn_status check_options(qn_graph *g, qn_val loss, int n, const qn_val *wrt, const qn_grad_options *o) {
    QN_TRY(check_values(g, "gradient", n, wrt));
    if (o->checkpoint < QN_CHECKPOINT_NONE || o->checkpoint > QN_CHECKPOINT_BUDGET)
        return qn_ir_fail(g, QN_ARGUMENT, "gradient: there is no way of checkpointing number %d", (int)o->checkpoint);
    if (!o->seed) QN_TRY(check_loss(g, "gradient", loss));
    else QN_TRY(check_value(g, "gradient", loss));
    if (o->seed) QN_TRY(check_like(g, "gradient", "the seed", *o->seed, loss));
    for (int i = 0; o->sums && i < n; i++)
        if (o->sums[i] != QN_VAL_NONE) QN_TRY(check_value(g, "gradient", o->sums[i]));
    return o->keep ? check_value(g, "gradient", *o->keep) : QN_OK;
}

qn_status qn_graph_grad_with(qn_graph *g, qn_val loss, int n, const qn_val *wrt, const qn_grad_options *options, qn_val *grads) {
    static const qn_grad_options plain = {.size = sizeof plain};
    const qn_grad_options *o = options ? options : &plain;
    QN_TRY(begin(g, n, wrt, wrt, grads));
    if (o->size != sizeof *o) return qn_ir_fail(g, QN_ARGUMENT, "gradient: the options are of another version");
    QN_TRY(check_options(g, loss, n, wrt, o));
    qn_grad_set_label(g, "gradient", 0);
    qn_val seed = o->seed ? *o->seed : qn_grad_fill(g, loss, 1);
    g->forced_label = 0;
    QN_TRY(g->error.status);
    qn_grad_question q = {.prefix = "gradient", .n_seeds = 1, .at = &loss, .seeds = &seed, .n = n, .wrt = wrt};
    if (o->checkpoint == QN_CHECKPOINT_BUDGET) QN_TRY(walk_within(g, &q, loss, o, grads));
    else QN_TRY(walk_once(g, &q, loss, o, NULL, grads));
    fill_zeros(g, "gradient", n, wrt, grads);
    return add_to_sums(g, n, o, grads);
}

qn_status qn_graph_grad(qn_graph *g, qn_val loss, int n, const qn_val *wrt, qn_val *grads) {
    return qn_graph_grad_with(g, loss, n, wrt, NULL, grads);
}

/* ---- Tangents. The gradient of `of` by wrt is linear in what comes in for `of`; its own gradient by that, seeded with the
 * tangents, is what they do to `of`. The number that stands for what comes in is never looked at: zero will do. */

static qn_status tangent_walks(qn_graph *g, int n, const qn_val *wrt, const qn_val *tangents, int n_of, const qn_val *of,
                               qn_val *incoming, qn_val *back, qn_val *out) {
    qn_grad_set_label(g, "tangent", 0);
    for (int i = 0; i < n_of; i++) incoming[i] = qn_grad_fill(g, of[i], 0);
    g->forced_label = 0;
    QN_TRY(g->error.status);
    qn_grad_question first = {.prefix = "tangent", .n_seeds = n_of, .at = of, .seeds = incoming, .n = n, .wrt = wrt};
    QN_TRY(qn_grad_walk(g, &first, back));
    qn_grad_question second = {.prefix = "tangent", .n_seeds = n, .at = back, .seeds = tangents, .n = n_of, .wrt = incoming};
    return qn_grad_walk(g, &second, out);
}

qn_status qn_graph_jvp(qn_graph *g, int n, const qn_val *wrt, const qn_val *tangents, int n_of, const qn_val *of, qn_val *out) {
    QN_TRY(begin(g, n_of, of, of, out));
    if (n < 0 || (n && (!wrt || !tangents))) return QN_ARGUMENT;
    QN_TRY(check_values(g, "jvp", n, wrt));
    QN_TRY(check_values(g, "jvp", n_of, of));
    for (int i = 0; i < n; i++) QN_TRY(check_like(g, "jvp", "a tangent", tangents[i], wrt[i]));
    size_t first_node = g->nodes.n, first_value = g->values.n;
    qn_val *room = qn_arena_resize(&g->arena, NULL, (size_t)n + (size_t)n_of + 1, sizeof *room);
    if (!room) return qn_ir_fail(g, QN_NO_MEMORY, "jvp: no memory for %d values", n + n_of);
    if (tangent_walks(g, n, wrt, tangents, n_of, of, room, room + n_of, out) == QN_OK) {
        fill_zeros(g, "tangent", n_of, of, out);
        qn_grad_compact(g, first_node, first_value, n_of, out);
    }
    qn_arena_release(&g->arena, room);
    return g->error.status;
}

/* ---- Hessians: the gradients' own gradients, seeded with the vectors */

qn_status qn_graph_hvp(qn_graph *g, qn_val loss, int n, const qn_val *wrt, const qn_val *vectors, qn_val *out) {
    QN_TRY(begin(g, n, wrt, vectors, out));
    QN_TRY(check_values(g, "hvp", n, wrt));
    QN_TRY(check_loss(g, "hvp", loss));
    for (int i = 0; i < n; i++) QN_TRY(check_like(g, "hvp", "a vector", vectors[i], wrt[i]));
    size_t first_node = g->nodes.n, first_value = g->values.n;
    qn_val *grads = qn_arena_resize(&g->arena, NULL, (size_t)n + 1, sizeof *grads);
    if (!grads) return qn_ir_fail(g, QN_NO_MEMORY, "hvp: no memory for %d values", n);
    qn_grad_set_label(g, "gradient", 0);
    qn_val one = qn_grad_fill(g, loss, 1);
    g->forced_label = 0;
    qn_grad_question first = {.prefix = "gradient", .n_seeds = 1, .at = &loss, .seeds = &one, .n = n, .wrt = wrt};
    qn_grad_question second = {.prefix = "second gradient", .n_seeds = n, .at = grads, .seeds = vectors, .n = n, .wrt = wrt};
    if (one != QN_VAL_NONE && qn_grad_walk(g, &first, grads) == QN_OK && qn_grad_walk(g, &second, out) == QN_OK) {
        fill_zeros(g, "second gradient", n, wrt, out);
        qn_grad_compact(g, first_node, first_value, n, out);
    }
    qn_arena_release(&g->arena, grads);
    return g->error.status;
}
