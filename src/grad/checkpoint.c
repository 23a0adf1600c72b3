/* Where the forward pass is cut into segments, and which of them are computed again. The last segment never is: the backward pass
 * begins with it, when it has just been computed. */
#include <math.h>

#include "grad/grad.h"

/* What is known of the forward pass: only nodes the loss depends on count. */
typedef struct survey {
    qn_graph *g;
    size_t n;          /* nodes */
    uint8_t *counts;   /* per node: the loss depends on it, and it computes something */
    qn_val *root;      /* per value: whose memory it is */
    int32_t *last;     /* per value, roots only: the last node that counts and reads it, -1 for none */
    uint8_t *is_saved; /* per value, roots only: the backward pass reads it */
} survey;

static void release(survey *s) {
    qn_arena_release(&s->g->arena, s->counts);
    qn_arena_release(&s->g->arena, s->root);
    qn_arena_release(&s->g->arena, s->last);
    qn_arena_release(&s->g->arena, s->is_saved);
}

static void find_roots(const qn_graph *g, qn_val *root) {
    for (size_t i = 0; i < g->values.n; i++) {
        const qn_ir_value *v = &g->values.at[i];
        const qn_ir_node *n = v->node >= 0 ? &g->nodes.at[v->node] : NULL;
        root[i] = n && qn_op_describe(n->op)->is_view ? root[qn_ir_sources(g, n)[0]] : (qn_val)i;
    }
}

static void find_uses(survey *s, qn_val loss) {
    const qn_graph *g = s->g;
    for (size_t i = 0; i < g->values.n; i++) s->last[i] = -1;
    if (g->values.at[loss].node >= 0) s->counts[g->values.at[loss].node] = 1;
    for (size_t k = s->n; k-- > 0;) {
        if (!s->counts[k]) continue;
        for (int i = 0; i < g->nodes.at[k].n_src; i++) {
            qn_val v = qn_ir_sources(g, &g->nodes.at[k])[i];
            if (v == QN_VAL_NONE) continue;
            if (g->values.at[v].node >= 0) s->counts[g->values.at[v].node] = 1;
            if (s->last[s->root[v]] < 0) s->last[s->root[v]] = (int32_t)k; /* backwards: the first found is the last */
        }
    }
    for (size_t k = 0; k < s->n; k++)
        if (qn_op_describe(g->nodes.at[k].op)->is_view) s->counts[k] = 0;
}

static qn_status look(survey *s, qn_graph *g, qn_val loss, const uint8_t *saved) {
    size_t values = g->values.n;
    *s = (survey){.g = g, .n = g->nodes.n};
    s->counts = qn_arena_resize(&g->arena, NULL, s->n + 1, 1);
    s->root = qn_arena_resize(&g->arena, NULL, values, sizeof *s->root);
    s->last = qn_arena_resize(&g->arena, NULL, values, sizeof *s->last);
    s->is_saved = qn_arena_resize(&g->arena, NULL, values, 1);
    if (!s->counts || !s->root || !s->last || !s->is_saved) {
        release(s);
        return qn_ir_fail(g, QN_NO_MEMORY, "gradient: no memory to cut %zu nodes into segments", s->n);
    }
    memset(s->counts, 0, s->n + 1);
    memset(s->is_saved, 0, values);
    find_roots(g, s->root);
    find_uses(s, loss);
    for (size_t i = 0; saved && i < values; i++)
        if (saved[i]) s->is_saved[s->root[i]] = 1;
    return QN_OK;
}

static uint64_t bytes_of(const qn_graph *g, qn_val value) {
    const qn_shape *s = &g->values.at[value].shape;
    uint64_t bytes = 0;
    qn_tensor_bytes((qn_dtype)s->dtype, s->rank, s->d, &bytes);
    return bytes;
}

uint64_t qn_grad_saved_bytes(const qn_graph *g, const uint8_t *saved, size_t n) {
    uint64_t sum = 0;
    for (size_t i = 0; i < n; i++)
        if (saved[i] && g->values.at[i].node >= 0) sum += bytes_of(g, (qn_val)i);
    return sum;
}

/* ---- By number, and by label */

static void cut_every(const survey *s, int32_t every, qn_grad_segments *out) {
    int32_t seen = 0, total = 0;
    for (size_t k = 0; k < s->n; k++) total += s->counts[k];
    if (every <= 0) every = (int32_t)ceil(sqrt((double)total));
    if (every <= 0) every = 1;
    for (size_t k = 0; k < s->n; k++) {
        seen += s->counts[k];
        out->of[k] = seen > 0 ? (seen - 1) / every : 0;
    }
}

/* Length of the first `depth` parts of a label. */
static size_t head_of(const char *label, int depth) {
    const char *at = label, *end = label + strlen(label);
    for (; depth > 0 && at; depth--) {
        const char *cut = strstr(at, " / ");
        if (!cut) return (size_t)(end - label);
        if (depth == 1) return (size_t)(cut - label);
        at = cut + 3;
    }
    return (size_t)(end - label);
}

static void cut_by_label(const survey *s, int depth, qn_grad_segments *out) {
    const char *before = NULL;
    int32_t segment = 0;
    for (size_t k = 0; k < s->n; k++) {
        const char *label = qn_ir_string(s->g, s->g->nodes.at[k].label);
        size_t n = head_of(label, depth);
        if (s->counts[k]) {
            if (before && (strncmp(before, label, n) != 0 || head_of(before, depth) != n)) segment++;
            before = label;
        }
        out->of[k] = segment;
    }
}

/* ---- By budget */

/* Bytes that must be kept across a cut in front of each node: made before it, read from it on. */
static void crossing_bytes(const survey *s, uint64_t *crossing) {
    uint64_t now = 0;
    memset(crossing, 0, (s->n + 2) * sizeof *crossing);
    for (size_t i = 0; i < s->g->values.n; i++) {
        int32_t made = s->g->values.at[i].node;
        if (made < 0 || s->root[i] != (qn_val)i || s->last[i] <= made) continue;
        crossing[made + 1] += bytes_of(s->g, (qn_val)i); /* differences; wrap-around cancels in the sum */
        crossing[s->last[i] + 1] -= bytes_of(s->g, (qn_val)i);
    }
    for (size_t k = 0; k < s->n; k++) crossing[k] = now += crossing[k];
}

/* m segments with about as many saved bytes each, each cut moved to where the least crosses it nearby. */
static void cut_evenly(const survey *s, int m, const uint64_t *crossing, int32_t *of) {
    uint64_t total = 0, so_far = 0;
    size_t at = 0, reach = s->n / (size_t)(4 * m) + 1;
    for (size_t i = 0; i < s->g->values.n; i++)
        if (s->is_saved[i] && s->g->values.at[i].node >= 0) total += bytes_of(s->g, (qn_val)i);
    int32_t segment = 0;
    size_t value = 0;
    for (size_t k = 0; k < s->n; k++) {
        for (; value < s->g->values.n && s->g->values.at[value].node < (int32_t)k + 1; value++)
            if (s->is_saved[value] && s->g->values.at[value].node >= 0) so_far += bytes_of(s->g, (qn_val)value);
        if (segment + 1 >= m || so_far < total / (uint64_t)m * (uint64_t)(segment + 1)) continue;
        size_t best = k + 1 < s->n ? k + 1 : k;
        for (size_t c = best > reach + at ? best - reach : at + 1; c < best + reach && c < s->n; c++)
            if (crossing[c] < crossing[best]) best = c;
        if (best <= at) continue;
        for (; at < best; at++) of[at] = segment;
        segment++;
    }
    for (; at < s->n; at++) of[at] = segment;
}

typedef struct estimate {
    uint64_t bytes; /* most that is kept at once */
    int64_t nodes;  /* computed twice */
} estimate;

/* With the first r segments computed again: what crosses out of them is kept, what the others save is, and of the former one at a
 * time has all that it saves. */
static estimate estimate_of(const survey *s, const int32_t *of, int r, uint64_t *each) {
    estimate e = {0, 0};
    uint64_t most = 0;
    memset(each, 0, (size_t)r * sizeof *each);
    for (size_t i = 0; i < s->g->values.n; i++) {
        int32_t made = s->g->values.at[i].node;
        if (made < 0 || s->root[i] != (qn_val)i) continue;
        uint64_t bytes = bytes_of(s->g, (qn_val)i);
        int segment = of[made], crosses = s->last[i] >= 0 && of[s->last[i]] > segment;
        if (segment >= r ? s->is_saved[i] : crosses) e.bytes += bytes;
        if (segment < r && s->is_saved[i]) each[segment] += bytes;
    }
    for (int k = 0; k < r; k++)
        if (each[k] > most) most = each[k];
    for (size_t k = 0; k < s->n; k++) e.nodes += s->counts[k] && of[k] < r;
    e.bytes += most;
    return e;
}

enum { MOST_SEGMENTS = 96 };

/* Of many ways to cut, the one within the budget that computes least again. */
static qn_status cut_by_budget(const survey *s, uint64_t budget, qn_grad_segments *out) {
    static const int tries[] = {2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, MOST_SEGMENTS};
    qn_graph *g = s->g;
    uint64_t *crossing = qn_arena_resize(&g->arena, NULL, s->n + 2, sizeof *crossing), each[MOST_SEGMENTS], least = UINT64_MAX;
    if (!crossing) return qn_ir_fail(g, QN_NO_MEMORY, "gradient: no memory to cut %zu nodes into segments", s->n);
    crossing_bytes(s, crossing);
    int best_m = 0, best_r = 0;
    int64_t best_nodes = INT64_MAX;
    for (size_t t = 0; t < sizeof tries / sizeof *tries; t++) {
        cut_evenly(s, tries[t], crossing, out->of);
        for (int r = 1; r < tries[t]; r++) {
            estimate e = estimate_of(s, out->of, r, each);
            if (e.bytes < least) least = e.bytes;
            if (e.bytes > budget || e.nodes >= best_nodes) continue;
            best_nodes = e.nodes;
            best_m = tries[t];
            best_r = r;
        }
    }
    if (best_m) {
        cut_evenly(s, best_m, crossing, out->of);
        for (int32_t k = 0; k < MOST_SEGMENTS; k++) out->recomputed[k] = k < best_r;
    } else {
        qn_ir_fail(g, QN_INVALID, "gradient: however it is cut, the backward pass keeps %llu bytes, the budget is %llu",
                   (unsigned long long)least, (unsigned long long)budget);
    }
    qn_arena_release(&g->arena, crossing);
    return g->error.status;
}

qn_status qn_grad_segments_make(qn_graph *g, qn_val loss, const qn_grad_options *o, const uint8_t *saved, qn_grad_segments *out) {
    survey s;
    QN_TRY(look(&s, g, loss, saved));
    size_t room = s.n + MOST_SEGMENTS + 1; /* no more segments than nodes */
    out->of = qn_arena_resize(&g->arena, NULL, s.n + 1, sizeof *out->of);
    out->recomputed = qn_arena_resize(&g->arena, NULL, room, 1);
    out->n = 0;
    if (out->of && out->recomputed) {
        memset(out->recomputed, 0, room);
        if (o->checkpoint == QN_CHECKPOINT_BUDGET) cut_by_budget(&s, o->budget, out);
        else if (o->checkpoint == QN_CHECKPOINT_LABELS) cut_by_label(&s, o->label_depth > 0 ? o->label_depth : 1, out);
        else cut_every(&s, o->every, out);
        out->n = s.n ? out->of[s.n - 1] + 1 : 0;
        for (int32_t k = 0; o->checkpoint != QN_CHECKPOINT_BUDGET && k + 1 < out->n; k++) out->recomputed[k] = 1;
    } else {
        qn_ir_fail(g, QN_NO_MEMORY, "gradient: no memory for the segments of %zu nodes", s.n);
    }
    release(&s);
    return g->error.status;
}
