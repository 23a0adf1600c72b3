/* Loops that are an op. A scan whose body is one step of the gated delta rule,
 *
 *   A = S decay;  d = v - A k;  S' = A + (beta d) kT;  y = S' q
 *
 * becomes delta_rule over the whole sequence, by chunks when that is long. The body may be written with products or with sums of
 * products, its vectors stood up or laid down by reshapes as it likes: a reshape keeps the order of elements, so only the shapes
 * where they are used count. Whatever axes lie in front of the state's last two are heads to the op. */
#include "pass/pass.h"
#include "pass/terms.h"

enum { CHUNK = 64, LONG = 64 }; /* tokens, and from how many on chunks pay */

enum { Q, K, V, DECAY, BETA, N_ROLES };
enum { IS_LOG, IS_MINUS_LOG, IS_ITSELF }; /* what comes in for the decay: its logarithm, that negated, or the decay */

typedef struct step {
    const qn_graph *g; /* the body */
    qn_val state;      /* that it carries */
    int64_t heads, v, k;
    qn_val role[N_ROLES]; /* inputs of the body */
    int decay_form;
    double scale; /* of q, or of what it reads */
} step;

/* ---- Looking at values of a body */

static const qn_ir_node *maker_of(const step *s, qn_val v) {
    const qn_ir_value *x = &s->g->values.at[v];
    return x->node >= 0 && x->output == 0 ? &s->g->nodes.at[x->node] : NULL;
}

static qn_val source(const step *s, const qn_ir_node *n, int i) { return qn_ir_sources(s->g, n)[i]; }

/* What a value is but for its shape. */
static qn_val bare(const step *s, qn_val v) {
    const qn_ir_node *n;
    while ((n = maker_of(s, v)) && (n->op == QN_OP_reshape || (n->op == QN_OP_cont && !n->attr))) v = source(s, n, 0);
    return v;
}

/* Whether its last two axes are these, and the others together the heads. */
static int is_shaped(const step *s, qn_val v, int64_t rows, int64_t columns) {
    const qn_shape *x = &s->g->values.at[v].shape;
    int64_t heads = 1;
    if (x->rank < 2 || x->d[x->rank - 1] != columns || x->d[x->rank - 2] != rows) return 0;
    for (int i = 0; i < x->rank - 2; i++)
        if (qn_dim_is_symbolic(x->d[i]) || qn_mul_overflow(heads, x->d[i], &heads)) return 0;
    return heads == s->heads;
}

/* The same of its last axis alone. */
static int is_flat(const step *s, qn_val v, int64_t columns) {
    const qn_shape *x = &s->g->values.at[v].shape;
    int64_t heads = 1;
    for (int i = 0; i < x->rank - 1; i++)
        if (qn_dim_is_symbolic(x->d[i]) || qn_mul_overflow(heads, x->d[i], &heads)) return 0;
    return heads == s->heads && x->d[x->rank - 1] == columns;
}

static int same_shape(const step *s, qn_val a, qn_val b) { return qn_pass_same_shape(&s->g->values.at[a], &s->g->values.at[b]); }

/* A node of an op, or of arith's function that is the same; its two sources. */
static int is_binary(const step *s, qn_val v, int seed, int arith, qn_val *a, qn_val *b) {
    const qn_ir_node *n = maker_of(s, v);
    if (!n || !(n->op == seed || (n->op == QN_OP_arith && n->subop == arith))) return 0;
    *a = source(s, n, 0);
    *b = source(s, n, 1);
    return 1;
}

static int is_unary(const step *s, qn_val v, int f, qn_val *a) {
    const qn_ir_node *n = maker_of(s, v);
    if (!n || n->op != QN_OP_unary || n->subop != f) return 0;
    *a = source(s, n, 0);
    return 1;
}

/* An input that is cut along time, for a role that has none yet or has this one. */
static int take_role(step *s, int role, qn_val v) {
    v = bare(s, v);
    if (s->g->values.at[v].kind != QN_VALUE_INPUT || v == s->state) return 0;
    if (s->role[role] == QN_VAL_NONE) s->role[role] = v;
    return s->role[role] == v;
}

/* A factor taken out of a value. */
static qn_val unscaled(const step *s, qn_val v, double *scale) {
    const qn_ir_node *n = maker_of(s, bare(s, v));
    if (!n || n->op != QN_OP_scale) return v;
    const qn_attr_scale *at = qn_pass_attr(n);
    if (at->b != 0) return v;
    *scale *= (double)at->s;
    return source(s, n, 0);
}

/* ---- The pieces of the step */

/* m [.., V, K] times a vector of K, which is input `role` or, with `scaled`, that times a number: as a product with a column, or a row
 * turned; or as the sum of the elements of m times a row. The result has V elements for each head. */
static int is_read(step *s, qn_val y, qn_val m, int role, int scaled) {
    const qn_ir_node *n = maker_of(s, y = bare(s, y));
    qn_val a, b;
    double factor = 1;
    if (!n) return 0;
    if (n->op == QN_OP_matmul) {
        const qn_attr_matmul *at = qn_pass_attr(n);
        a = source(s, n, 0);
        b = source(s, n, 1);
        if (a != m || at->transpose_a || !is_shaped(s, b, at->transpose_b ? 1 : s->k, at->transpose_b ? s->k : 1)) return 0;
    } else {
        const qn_attr_reduce *at = qn_pass_attr(n);
        int last = n->n_src ? s->g->values.at[source(s, n, 0)].shape.rank - 1 : -1;
        int sums = n->op == QN_OP_sum_rows || (n->op == QN_OP_reduce && n->subop == QN_REDUCE_sum && at->axes.rank == 1 &&
                                               (at->axes.d[0] == last || at->axes.d[0] == -1));
        if (!sums || !is_binary(s, source(s, n, 0), QN_OP_mul, QN_ARITH_mul, &a, &b)) return 0;
        if (b == m) b = a;
        else if (a != m) return 0;
        if (!is_shaped(s, source(s, n, 0), s->v, s->k) || !is_shaped(s, b, 1, s->k)) return 0;
    }
    if (scaled) b = unscaled(s, b, &factor);
    s->scale *= factor;
    return take_role(s, role, b);
}

/* A = S decay. */
static int is_decayed(step *s, qn_val m) {
    qn_val a, b, x;
    if (!is_binary(s, m, QN_OP_mul, QN_ARITH_mul, &a, &b) || !is_shaped(s, m, s->v, s->k)) return 0;
    if (a != s->state) x = a, a = b, b = x;
    if (a != s->state || !is_shaped(s, b, 1, 1)) return 0;
    b = bare(s, b);
    s->decay_form = IS_ITSELF;
    if (is_unary(s, b, QN_UNARY_exp, &b)) s->decay_form = IS_LOG;
    if (s->decay_form == IS_LOG && is_unary(s, bare(s, b), QN_UNARY_neg, &b)) s->decay_form = IS_MINUS_LOG;
    return take_role(s, DECAY, b);
}

/* beta (v - A k), where what is multiplied has V elements for each head, and one beta: that it has no more elements than that was seen
 * where it is used. */
static int is_fresh(step *s, qn_val x, qn_val decayed) {
    qn_val a, b, v, read;
    if (!is_binary(s, bare(s, x), QN_OP_mul, QN_ARITH_mul, &a, &b)) return 0;
    for (int turn = 0; turn < 2; turn++, x = a, a = b, b = x) {
        qn_val d = bare(s, b);
        int columns = is_shaped(s, b, s->v, 1) && is_shaped(s, a, 1, 1);
        if (!columns && !(is_flat(s, b, s->v) && is_flat(s, a, 1))) continue;
        if (!is_binary(s, d, QN_OP_sub, QN_ARITH_sub, &v, &read) || !same_shape(s, v, read) || !same_shape(s, v, d)) continue;
        return take_role(s, BETA, a) && take_role(s, V, v) && is_read(s, read, decayed, K, 0);
    }
    return 0;
}

/* (beta d) kT: the product of a column and a row, or each element of one with each of the other. */
static int is_update(step *s, qn_val u, qn_val decayed) {
    const qn_ir_node *n = maker_of(s, u);
    qn_val a, b, x;
    if (!n || !is_shaped(s, u, s->v, s->k)) return 0;
    if (n->op == QN_OP_matmul) {
        const qn_attr_matmul *at = qn_pass_attr(n);
        a = source(s, n, 0);
        b = source(s, n, 1);
        if (at->transpose_a || !is_shaped(s, a, s->v, 1)) return 0;
        if (!is_shaped(s, b, at->transpose_b ? s->k : 1, at->transpose_b ? 1 : s->k)) return 0;
    } else {
        if (!is_binary(s, u, QN_OP_mul, QN_ARITH_mul, &a, &b)) return 0;
        if (!is_shaped(s, a, s->v, 1)) x = a, a = b, b = x;
        if (!is_shaped(s, a, s->v, 1) || !is_shaped(s, b, 1, s->k)) return 0;
    }
    return take_role(s, K, b) && is_fresh(s, a, decayed);
}

static int is_next(step *s, qn_val next) {
    qn_val a, b;
    if (!is_binary(s, next, QN_OP_add, QN_ARITH_add, &a, &b) || !same_shape(s, a, b)) return 0;
    return (is_decayed(s, a) && is_update(s, b, a)) || (is_decayed(s, b) && is_update(s, a, b));
}

/* ---- The loop */

/* The source of the loop behind an input of its body. */
static qn_val source_of(const qn_graph *g, const qn_ir_node *n, const step *s, int role) {
    int which = 0;
    for (qn_val v = 0; v < s->role[role]; v++) which += s->g->values.at[v].kind == QN_VALUE_INPUT;
    return qn_ir_sources(g, n)[which];
}

/* Whether a value is an exponential or the like, seen through views, or a number: of anything else there may be no logarithm. */
static int is_never_negative(const qn_graph *g, qn_val v) {
    double number;
    if (qn_pass_splat(g, v, &number)) return number >= 0;
    while (g->values.at[v].node >= 0) {
        const qn_ir_node *n = &g->nodes.at[g->values.at[v].node];
        int f = n->subop;
        if (n->op == QN_OP_unary)
            return f == QN_UNARY_exp || f == QN_UNARY_sigmoid || f == QN_UNARY_hardsigmoid || f == QN_UNARY_abs;
        if (!qn_op_describe(n->op)->is_view && n->op != QN_OP_cont) return 0;
        v = qn_ir_sources(g, n)[0];
    }
    return 0;
}

/* NULL and the step, or why the loop is none. Sources are the state and five that are cut along time; outputs the last state and what
 * was read. */
static const char *read_step(const qn_graph *g, const qn_ir_node *n, step *s) {
    const qn_attr_scan_loop *at = n->attr;
    const qn_graph *body = at->body;
    *s = (step){.g = body, .heads = 1, .scale = 1};
    if (at->n_carry != 1 || at->n_xs != N_ROLES || n->n_src != 1 + N_ROLES || at->reverse)
        return "other sources than a delta rule has";
    if (n->n_out != 2 || body->outputs.n != 2) return "other outputs than a delta rule has";
    while (body->values.at[s->state].kind != QN_VALUE_INPUT) s->state++;
    for (int i = 0; i < N_ROLES; i++) s->role[i] = QN_VAL_NONE;
    const qn_shape *state = &body->values.at[s->state].shape;
    if (state->rank < 2) return "a state that is no matrix";
    for (int i = 0; i < state->rank; i++)
        if (qn_dim_is_symbolic(state->d[i]) || state->d[i] < 1) return "extents that are not known";
    s->k = state->d[state->rank - 1];
    s->v = state->d[state->rank - 2];
    for (int i = 0; i < state->rank - 2; i++)
        if (qn_mul_overflow(s->heads, state->d[i], &s->heads)) return "extents that are not known";
    if (qn_dim_is_symbolic(g->values.at[qn_ir_sources(g, n)[1]].shape.d[0])) return "extents that are not known";
    qn_val next = body->outputs.at[0].value, y = unscaled(s, body->outputs.at[1].value, &s->scale);
    if (!is_next(s, next) || !is_read(s, y, next, Q, 1) || !(is_flat(s, bare(s, y), s->v) || is_shaped(s, bare(s, y), s->v, 1)))
        return "another body than a delta rule has";
    if (s->decay_form == IS_ITSELF && !is_never_negative(g, source_of(g, n, s, DECAY))) return "a decay that may be below zero";
    return NULL;
}

typedef struct looper {
    qn_pass_run *run;
    uint8_t *is_step; /* per node */
} looper;

static qn_val reshaped(qn_graph *g, qn_val v, int rank, const int64_t *d) {
    qn_attr_reshape at = qn_attr_reshape_default();
    at.shape.rank = rank;
    memcpy(at.shape.d, d, sizeof *d * (size_t)rank);
    return qn_graph_op(g, QN_OP_reshape, 0, 1, &v, &at);
}

/* What the loop has for a role, as [1, T, heads, ..]. */
static qn_val over_time(const qn_rebuild *r, const qn_ir_node *n, const step *s, int role, int64_t last) {
    qn_val x = r->map[source_of(r->from, n, s, role)];
    int64_t d[4] = {1, r->to->values.at[x].shape.d[0], s->heads, last};
    if (role == DECAY && s->decay_form == IS_ITSELF) x = qn_graph_op(r->to, QN_OP_log, 0, 1, &x, NULL);
    if (role == DECAY && s->decay_form == IS_MINUS_LOG) x = qn_graph_op(r->to, QN_OP_unary, QN_UNARY_neg, 1, &x, NULL);
    return reshaped(r->to, x, last ? 4 : 3, d);
}

static qn_status build_step(qn_rebuild *r, const qn_ir_node *n, const step *s) {
    qn_graph *to = r->to;
    qn_attr_delta_rule at = qn_attr_delta_rule_default();
    int64_t state[4] = {1, s->heads, s->v, s->k}, length = r->from->values.at[qn_ir_sources(r->from, n)[1]].shape.d[0];
    qn_val src[6] = {over_time(r, n, s, Q, s->k),  over_time(r, n, s, K, s->k), over_time(r, n, s, V, s->v),
                     over_time(r, n, s, DECAY, 0), over_time(r, n, s, BETA, 0), QN_VAL_NONE};
    qn_val out[2];
    src[5] = reshaped(to, r->map[qn_ir_sources(r->from, n)[0]], 4, state);
    at.scale = (float)s->scale;
    at.chunk = length >= LONG ? CHUNK : 0;
    QN_TRY(qn_graph_apply(to, QN_OP_delta_rule, 0, 6, src, &at, 2, out));
    for (int i = 0; i < 2; i++) {
        const qn_shape *was = &r->from->values.at[n->out + i].shape;
        r->map[n->out + i] = reshaped(to, out[1 - i], was->rank, was->d);
    }
    return to->error.status;
}

static qn_status replace(qn_rebuild *r, int32_t node) {
    const looper *l = r->user;
    step s;
    if (!l->is_step[node] || read_step(r->from, &r->from->nodes.at[node], &s)) return qn_rebuild_copy(r, node);
    return build_step(r, &r->from->nodes.at[node], &s);
}

/* Whether what the loop runs on has no kernels that would be lost. */
static int claims(const qn_pass_run *run, const qn_graph *body) {
    for (int32_t k = 0; k < (int32_t)body->nodes.n; k++)
        if (!qn_pass_claims(run, QN_OP_delta_rule, 0, body, &k, 1)) return 0;
    return 1;
}

static void look_at(looper *l, int32_t node) {
    const qn_graph *g = l->run->from;
    const qn_ir_node *n = &g->nodes.at[node];
    step s;
    if (n->op != QN_OP_scan_loop) return;
    const char *why = read_step(g, n, &s);
    uint32_t dtype = g->values.at[n->out].shape.dtype;
    if (!why && dtype != QN_DTYPE_F32 && dtype != QN_DTYPE_F64) why = "not f32 or f64";
    if (!why && s.scale == 0) why = "a scale of zero";
    if (!why && !claims(l->run, s.g)) why = "there is no kernel for it";
    if (why) qn_pass_missed(l->run, qn_pass_rule_loops, node, why);
    else l->is_step[node] = (uint8_t)qn_pass_may(l->run, qn_pass_rule_loops, node);
}

/* Sums are taken in another order than the loop's: only where results may change within bounds. */
qn_status qn_pass_loops(qn_pass_run *run, qn_graph **to) {
    size_t n = run->from->nodes.n;
    qn_arena arena;
    looper l = {.run = run};
    int32_t before = run->changed;
    if (!(run->options->flags & QN_PASS_FAST) || !qn_pass_has_op(run->from, QN_OP_scan_loop)) return QN_OK;
    qn_arena_init(&arena, 0);
    l.is_step = qn_arena_alloc(&arena, n, 1);
    qn_status status = l.is_step ? QN_OK : qn_error_set(run->error, QN_NO_MEMORY, "no memory for %zu nodes", n);
    for (size_t k = 0; status == QN_OK && k < n; k++) look_at(&l, (int32_t)k);
    if (status == QN_OK && run->changed > before) status = qn_ir_rebuild(run->from, NULL, replace, &l, to, run->error);
    qn_arena_destroy(&arena);
    return status;
}
