/* Products of one x with several matrices become one op, that reads x once and gets it ready once (a quantised copy, a packed
 * panel). It stands where the first of them stood, so the weights of the others must be there by then; and the others must be
 * near, or their results would lie in memory long before they are wanted. */
#include "pass/linear.h"
#include "pass/terms.h"

enum { MOST_WEIGHTS = 4, NEAR = 32 };

typedef struct group {
    int n;
    int32_t node[MOST_WEIGHTS];
    qn_pass_linear linear[MOST_WEIGHTS];
    int32_t dtype;
} group;

typedef struct sharer {
    qn_pass_run *run;
    qn_arena arena;
    qn_pass_facts facts;
    int32_t *owner; /* per node: its group, -1: none */
    QN_VEC(group) groups;
} sharer;

/* What the product would be rounded to if nothing were said. */
static uint32_t natural_dtype(const qn_graph *g, const qn_pass_linear *l) {
    uint32_t x = g->values.at[l->x].shape.dtype, w = g->values.at[l->w].shape.dtype;
    return x == w ? x : QN_DTYPE_F32;
}

/* The attribute that gives every product its dtype; -1 when none does. */
static int32_t common_dtype(const qn_graph *g, const group *x) {
    int natural = 1, single = 1;
    for (int i = 0; i < x->n; i++) {
        uint32_t made = g->values.at[g->nodes.at[x->node[i]].out].shape.dtype;
        natural &= made == natural_dtype(g, &x->linear[i]);
        single &= made == QN_DTYPE_F32;
    }
    return natural ? 0 : single ? QN_DTYPE_F32 : -1;
}

static int reads_the_same(const sharer *s, qn_val v, int32_t at, int32_t first) {
    const qn_graph *g = s->facts.g;
    if (v == QN_VAL_NONE) return 1;
    int there = g->values.at[v].node >= 0 ? g->values.at[v].node < first : v < g->nodes.at[first].out;
    return there && qn_pass_epoch(&s->facts, v, at) == qn_pass_epoch(&s->facts, v, first);
}

static int can_share(const sharer *s, const group *x, int32_t node, const qn_pass_linear *l) {
    int32_t first = x->node[0];
    group with = *x;
    if (l->transpose_w != x->linear[0].transpose_w || l->act >= 0) return 0;
    if (!reads_the_same(s, l->x, node, first) || !reads_the_same(s, l->w, node, first) ||
        !reads_the_same(s, l->bias, node, first))
        return 0;
    with.node[with.n] = node;
    with.linear[with.n++] = *l;
    return common_dtype(s->facts.g, &with) >= 0;
}

/* The group that begins at a node: later products of the same x. */
static void gather(const sharer *s, int32_t node, group *x) {
    const qn_graph *g = s->facts.g;
    qn_pass_linear l;
    int32_t before = node;
    x->n = 0;
    if (s->owner[node] >= 0 || !qn_pass_linear_of(g, node, &x->linear[0]) || x->linear[0].act >= 0) return;
    x->node[x->n++] = node;
    qn_val shared = x->linear[0].x;
    for (int32_t k = s->facts.first_use[shared]; k < s->facts.first_use[shared + 1] && x->n < MOST_WEIGHTS; k++) {
        int32_t user = s->facts.users[k];
        if (user <= before || user > node + NEAR || s->owner[user] >= 0) continue;
        if (!qn_pass_linear_of(g, user, &l) || l.x != shared || !can_share(s, x, user, &l)) continue;
        x->node[x->n] = before = user;
        x->linear[x->n++] = l;
    }
}

/* Sources and attributes of the op for a group, over values as `map` gives them; returns how many sources. */
static int arguments(const group *x, const qn_val *map, qn_val *src, qn_attr_linear_group *at) {
    int n_src = 1 + x->n;
    *at = qn_attr_linear_group_default();
    at->transpose_w = x->linear[0].transpose_w;
    at->dtype = x->dtype;
    for (int i = 0; i < 1 + 2 * MOST_WEIGHTS; i++) src[i] = QN_VAL_NONE;
    src[0] = map ? map[x->linear[0].x] : x->linear[0].x;
    for (int i = 0; i < x->n; i++) {
        qn_val w = x->linear[i].w, bias = x->linear[i].bias;
        src[1 + i] = map ? map[w] : w;
        if (bias == QN_VAL_NONE) continue;
        src[1 + MOST_WEIGHTS + i] = map ? map[bias] : bias;
        n_src = 2 + MOST_WEIGHTS + i;
    }
    return n_src;
}

/* Whether the op takes the group and gives what its members gave. */
static int is_taken(const qn_graph *g, const group *x) {
    qn_val src[1 + 2 * MOST_WEIGHTS];
    const qn_shape *shapes[QN_MAX_SRC] = {0};
    qn_shape out[QN_MAX_DST];
    qn_attr_linear_group at;
    qn_result result;
    int n_out = 0, n_src = arguments(x, NULL, src, &at);
    memset(&result, 0, sizeof result);
    for (int i = 0; i < n_src; i++)
        if (src[i] != QN_VAL_NONE) shapes[i] = &g->values.at[src[i]].probe;
    if (qn_ir_infer(QN_OP_linear_group, 0, n_src, shapes, &at, out, &n_out, &result) != QN_OK || n_out != x->n) return 0;
    for (int i = 0; i < n_out; i++) {
        const qn_shape *was = &g->values.at[g->nodes.at[x->node[i]].out].probe;
        if (was->dtype != out[i].dtype || was->rank != out[i].rank) return 0;
        if (memcmp(was->d, out[i].d, sizeof *was->d * (size_t)was->rank) != 0) return 0;
    }
    return 1;
}

static qn_status share_from(sharer *s, int32_t node) {
    group x;
    gather(s, node, &x);
    if (x.n < 2) return QN_OK;
    x.dtype = common_dtype(s->facts.g, &x);
    if (!is_taken(s->facts.g, &x)) {
        qn_pass_missed(s->run, "share", node, "the fused op does not take it");
        return QN_OK;
    }
    if (!qn_pass_claims(s->run, QN_OP_linear_group, 0, s->facts.g, x.node, x.n)) {
        qn_pass_missed(s->run, "share", node, "there is no kernel for it");
        return QN_OK;
    }
    if (!qn_pass_may(s->run, "share", node)) return QN_OK;
    if (!QN_VEC_ROOM(&s->arena, &s->groups, 1)) return qn_error_set(s->run->error, QN_NO_MEMORY, "no memory for a group");
    for (int i = 0; i < x.n; i++) s->owner[x.node[i]] = (int32_t)s->groups.n;
    s->groups.at[s->groups.n++] = x;
    return QN_OK;
}

static qn_status share_node(qn_rebuild *r, int32_t node) {
    sharer *s = r->user;
    if (s->owner[node] < 0) return qn_rebuild_copy(r, node);
    const group *x = &s->groups.at[s->owner[node]];
    if (x->node[0] != node) return QN_OK;
    qn_attr_linear_group at;
    qn_val src[1 + 2 * MOST_WEIGHTS], out[QN_MAX_DST];
    int n_src = arguments(x, r->map, src, &at);
    QN_TRY(qn_graph_apply(r->to, QN_OP_linear_group, 0, n_src, src, &at, x->n, out));
    for (int i = 0; i < x->n; i++) r->map[r->from->nodes.at[x->node[i]].out] = out[i];
    return QN_OK;
}

qn_status qn_pass_share(qn_pass_run *run, qn_graph **to) {
    size_t n = run->from->nodes.n;
    sharer s;
    memset(&s, 0, sizeof s);
    s.run = run;
    QN_TRY(qn_pass_facts_make(run->from, &s.facts, run->error));
    qn_arena_init(&s.arena, 0);
    s.owner = qn_arena_alloc(&s.arena, n, sizeof *s.owner);
    qn_status status = s.owner ? QN_OK : qn_error_set(run->error, QN_NO_MEMORY, "no memory for %zu nodes", n);
    for (size_t k = 0; status == QN_OK && k < n; k++) s.owner[k] = -1;
    for (size_t k = 0; status == QN_OK && k < n; k++) status = share_from(&s, (int32_t)k);
    if (status == QN_OK && s.groups.n) status = qn_ir_rebuild(run->from, NULL, share_node, &s, to, run->error);
    qn_arena_destroy(&s.arena);
    qn_pass_facts_free(&s.facts);
    return status;
}
