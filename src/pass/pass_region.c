/* Elementwise ops grown together into regions. A region begins at its last node and takes in what makes its sources, latest
 * first, as long as it is elementwise, of the region's very shape, and the program has room. A value inside that others use as
 * well becomes an output; that is sound where those others come behind the region's last node, in whose place it stands. */
#include "op/region.h"

#include "pass/facts.h"
#include "pass/terms.h"

enum { MOST_NODES = 32, MOST_DEPTH = 4 }; /* steps that compute something; numbers come on top */

typedef struct region {
    int n_nodes, n_inputs, n_outputs;
    int32_t node[MOST_NODES]; /* descending: the last node first */
    qn_val input[QN_REGION_MAX_SOURCES];
    qn_val output[QN_REGION_MAX_OUTPUTS]; /* old values, in the order of their steps */
    qn_code code;
} region;

typedef struct grower {
    qn_pass_run *run;
    qn_arena arena;
    qn_pass_facts facts;
    int32_t *owner; /* per node: its region, -1: none */
    int32_t *tried; /* per node: the last node of the region that looked at it last */
    QN_VEC(region) regions;
} grower;

/* ---- Which nodes */

/* Whether a source is stretched as a region stretches it. The ops of the seed tile instead, which is the same only for extents
 * of 1. */
static int is_broadcast(const qn_ir_value *from, const qn_ir_value *to) {
    int shift = to->shape.rank - from->shape.rank;
    if (shift < 0) return 0;
    for (int k = 0; k < from->shape.rank; k++)
        if (from->shape.d[k] != 1 && from->shape.d[k] != to->shape.d[k + shift]) return 0;
    return 1;
}

static int is_scalar_dtype(uint32_t d) { return d >= QN_DTYPE_F64 && d <= QN_DTYPE_BOOL && d != QN_DTYPE_I64; }

static int can_join(const qn_graph *g, const qn_ir_node *n) {
    const qn_region_op *op = qn_region_op_of(n->op);
    const qn_ir_value *y = &g->values.at[n->out];
    if (!op || n->n_out != 1 || (!qn_is_float(y->shape.dtype) && y->shape.dtype != QN_DTYPE_BOOL)) return 0;
    if (op->subop < 0 && !qn_region_takes_subop(op->kind, n->subop)) return 0;
    for (int i = 0; i < n->n_src; i++) {
        qn_val s = qn_ir_sources(g, n)[i];
        if (s == QN_VAL_NONE) continue;
        if (!is_scalar_dtype(g->values.at[s].shape.dtype) || !is_broadcast(&g->values.at[s], y)) return 0;
    }
    return 1;
}

/* A number for the program instead of a source: constants of floats that are alike, and f32. */
static int is_number(const qn_graph *g, qn_val v, float *number) {
    double d;
    if (!qn_is_float(g->values.at[v].shape.dtype) || !qn_pass_splat(g, v, &d)) return 0;
    *number = (float)d;
    return (double)*number == d;
}

static int is_member(const region *r, int32_t node) {
    for (int i = 0; i < r->n_nodes; i++)
        if (r->node[i] == node) return 1;
    return 0;
}

/* ---- Programs */

typedef struct coder {
    const qn_graph *g;
    region *r;
    int numbers;                 /* constants may be numbers */
    int32_t step_of[MOST_NODES]; /* per node of the region */
    int n_steps;
} coder;

/* The number of an operand, -1 when the program has no room for it. */
static int number_operand(coder *c, float number) {
    qn_region_step s = {.kind = QN_REGION_number, .dtype = QN_DTYPE_F32, .output = -1, .number = number};
    qn_code one = {0};
    qn_region_append(&one, &s);
    for (int i = 0; i < c->n_steps; i++)
        if (memcmp(&c->r->code.w[2 * i], one.w, 2 * sizeof *one.w) == 0) return QN_REGION_STEP_BIT + i;
    return qn_region_append(&c->r->code, &s) ? QN_REGION_STEP_BIT + c->n_steps++ : -1;
}

static int value_operand(coder *c, qn_val v) {
    region *r = c->r;
    float number;
    for (int i = 0; i < r->n_nodes; i++)
        if (r->node[i] == c->g->values.at[v].node) return QN_REGION_STEP_BIT + c->step_of[i];
    if (c->numbers && is_number(c->g, v, &number)) return number_operand(c, number);
    for (int i = 0; i < r->n_inputs; i++)
        if (r->input[i] == v) return i;
    if (r->n_inputs == QN_REGION_MAX_SOURCES) return -1;
    r->input[r->n_inputs] = v;
    return r->n_inputs++;
}

static int add_step(coder *c, int i, int is_output) {
    const qn_ir_node *n = &c->g->nodes.at[c->r->node[i]];
    const qn_region_op *op = qn_region_op_of(n->op);
    qn_region_step s = {.kind = op->kind,
                        .subop = op->subop < 0 ? n->subop : op->subop,
                        .dtype = (qn_dtype)c->g->values.at[n->out].shape.dtype,
                        .output = is_output ? 0 : -1};
    int k = 0;
    for (; k < n->n_src && k < QN_REGION_MAX_OPERANDS; k++) {
        qn_val v = qn_ir_sources(c->g, n)[k];
        if ((s.operand[k] = v == QN_VAL_NONE ? s.operand[0] : value_operand(c, v)) < 0) return 0;
    }
    for (int a = 0; a < op->n_attr && k < QN_REGION_MAX_OPERANDS; a++) {
        float number;
        memcpy(&number, (const char *)qn_pass_attr(n) + op->attr_offset[a], sizeof number);
        if ((s.operand[k++] = number_operand(c, number)) < 0) return 0;
    }
    while (k < QN_REGION_MAX_OPERANDS) s.operand[k++] = s.operand[0]; /* not of one is not of a and a */
    c->step_of[i] = c->n_steps++;
    return qn_region_append(&c->r->code, &s);
}

/* Whether others than the region use what a node makes. */
static int is_wanted(const grower *w, const region *r, int32_t node) {
    qn_val v = w->facts.g->nodes.at[node].out;
    if (w->facts.is_output[v]) return 1;
    for (int32_t k = w->facts.first_use[v]; k < w->facts.first_use[v + 1]; k++)
        if (!is_member(r, w->facts.users[k])) return 1;
    return 0;
}

/* Writes the region's program; 0 when it has no room for all. */
static int encode(const grower *w, region *r, int numbers) {
    coder c = {.g = w->facts.g, .r = r, .numbers = numbers};
    memset(&r->code, 0, sizeof r->code);
    r->n_inputs = r->n_outputs = 0;
    for (int i = r->n_nodes - 1; i >= 0; i--) {
        int wanted = is_wanted(w, r, r->node[i]);
        if (wanted && r->n_outputs == QN_REGION_MAX_OUTPUTS) return 0;
        if (wanted) r->output[r->n_outputs++] = w->facts.g->nodes.at[r->node[i]].out;
        if (!add_step(&c, i, wanted)) return 0;
    }
    return 1;
}

/* ---- Growing */

static int try_to_add(grower *w, region *r, int32_t node, int depth);

/* Whether a node may move to the region's end: what it reads is the same there, and strangers that use it come later. One that
 * comes sooner may still join the region itself. */
static int may_move(grower *w, region *r, int32_t node, int depth) {
    const qn_graph *g = w->facts.g;
    const qn_ir_node *n = &g->nodes.at[node];
    int32_t end = r->node[0];
    for (int i = 0; i < n->n_src; i++) {
        qn_val s = qn_ir_sources(g, n)[i];
        if (s != QN_VAL_NONE && qn_pass_epoch(&w->facts, s, node) != qn_pass_epoch(&w->facts, s, end)) return 0;
    }
    for (int32_t k = w->facts.first_use[n->out]; k < w->facts.first_use[n->out + 1]; k++)
        if (w->facts.users[k] < end && !is_member(r, w->facts.users[k]) && !try_to_add(w, r, w->facts.users[k], depth + 1))
            return 0;
    return 1;
}

/* Into its place: latest first. */
static void insert(region *r, int32_t node) {
    int i = r->n_nodes++;
    for (; i > 0 && r->node[i - 1] < node; i--) r->node[i] = r->node[i - 1];
    r->node[i] = node;
}

static int try_to_add(grower *w, region *r, int32_t node, int depth) {
    const qn_graph *g = w->facts.g;
    region before = *r;
    int32_t end = r->node[0];
    if (w->tried[node] == end || depth > MOST_DEPTH) return 0;
    w->tried[node] = end;
    if (r->n_nodes == MOST_NODES || w->owner[node] >= 0 || !can_join(g, &g->nodes.at[node])) return 0;
    if (!qn_pass_same_shape(&g->values.at[g->nodes.at[node].out], &g->values.at[g->nodes.at[end].out])) return 0;
    if (may_move(w, r, node, depth) && r->n_nodes < MOST_NODES) {
        insert(r, node);
        if (encode(w, r, 1)) return 1;
    }
    *r = before;
    return 0;
}

/* The latest node that makes a source of the region and was not looked at. -1 when there is none. */
static int32_t next_candidate(const grower *w, const region *r) {
    const qn_graph *g = w->facts.g;
    int32_t best = -1;
    for (int i = 0; i < r->n_nodes; i++)
        for (int k = 0; k < g->nodes.at[r->node[i]].n_src; k++) {
            qn_val s = qn_ir_sources(g, &g->nodes.at[r->node[i]])[k];
            int32_t maker = s == QN_VAL_NONE ? -1 : g->values.at[s].node;
            if (maker > best && w->tried[maker] != r->node[0]) best = maker;
        }
    return best;
}

/* Whether the op makes of the inputs' shapes what the nodes made; constants that became numbers may have been what stretched
 * it. */
static int has_the_shape(const grower *w, const region *r) {
    const qn_graph *g = w->facts.g;
    const qn_shape *src[QN_MAX_SRC] = {0}, *want = &g->values.at[g->nodes.at[r->node[0]].out].probe;
    qn_attr_region at = qn_attr_region_default();
    qn_shape out[QN_MAX_DST];
    qn_result result;
    int n_out = 0;
    memset(&result, 0, sizeof result);
    at.code = r->code;
    for (int i = 0; i < r->n_inputs; i++) src[i] = &g->values.at[r->input[i]].probe;
    if (r->n_inputs == 0 || qn_ir_infer(QN_OP_region, 0, r->n_inputs, src, &at, out, &n_out, &result) != QN_OK) return 0;
    return out[0].rank == want->rank && memcmp(out[0].d, want->d, sizeof *want->d * (size_t)want->rank) == 0;
}

static qn_status grow_from(grower *w, int32_t last) {
    const qn_graph *g = w->facts.g;
    region r;
    if (w->owner[last] >= 0 || !can_join(g, &g->nodes.at[last])) return QN_OK;
    memset(&r, 0, sizeof r);
    r.node[r.n_nodes++] = last;
    if (!encode(w, &r, 1)) return QN_OK;
    w->tried[last] = last;
    for (int32_t c = next_candidate(w, &r); c >= 0; c = next_candidate(w, &r)) try_to_add(w, &r, c, 0);
    if (r.n_nodes < 2) return QN_OK;
    if (!has_the_shape(w, &r) && (!encode(w, &r, 0) || !has_the_shape(w, &r))) {
        qn_pass_missed(w->run, qn_pass_rule_region, last, "only constants have the shape");
        return QN_OK;
    }
    if (!qn_pass_claims(w->run, QN_OP_region, 0, g, r.node, r.n_nodes)) {
        qn_pass_missed(w->run, qn_pass_rule_region, last, "there is no kernel for it");
        return QN_OK;
    }
    if (!qn_pass_may(w->run, qn_pass_rule_region, last)) return QN_OK;
    if (!QN_VEC_ROOM(&w->arena, &w->regions, 1)) return qn_error_set(w->run->error, QN_NO_MEMORY, "no memory for a region");
    for (int i = 0; i < r.n_nodes; i++) w->owner[r.node[i]] = (int32_t)w->regions.n;
    w->regions.at[w->regions.n++] = r;
    return QN_OK;
}

static qn_status region_node(qn_rebuild *b, int32_t node) {
    grower *w = b->user;
    if (w->owner[node] < 0) return qn_rebuild_copy(b, node);
    const region *r = &w->regions.at[w->owner[node]];
    if (r->node[0] != node) return QN_OK;
    qn_attr_region at = qn_attr_region_default();
    qn_val src[QN_REGION_MAX_SOURCES], out[QN_REGION_MAX_OUTPUTS];
    at.code = r->code;
    for (int i = 0; i < r->n_inputs; i++) src[i] = b->map[r->input[i]];
    qn_rebuild_label(b, r->node, r->n_nodes);
    QN_TRY(qn_graph_apply(b->to, QN_OP_region, 0, r->n_inputs, src, &at, r->n_outputs, out));
    for (int i = 0; i < r->n_outputs; i++) b->map[r->output[i]] = out[i];
    return QN_OK;
}

qn_status qn_pass_region(qn_pass_run *run, qn_graph **to) {
    size_t n = run->from->nodes.n;
    grower w;
    memset(&w, 0, sizeof w);
    w.run = run;
    QN_TRY(qn_pass_facts_make(run->from, &w.facts, run->error));
    qn_arena_init(&w.arena, 0);
    w.owner = qn_arena_alloc(&w.arena, n, sizeof *w.owner);
    w.tried = qn_arena_alloc(&w.arena, n, sizeof *w.tried);
    qn_status status = w.owner && w.tried ? QN_OK : qn_error_set(run->error, QN_NO_MEMORY, "no memory for %zu nodes", n);
    for (size_t k = 0; status == QN_OK && k < n; k++) w.owner[k] = w.tried[k] = -1;
    for (size_t k = n; status == QN_OK && k-- > 0;) status = grow_from(&w, (int32_t)k);
    if (status == QN_OK && w.regions.n) status = qn_ir_rebuild(run->from, NULL, region_node, &w, to, run->error);
    qn_arena_destroy(&w.arena);
    qn_pass_facts_free(&w.facts);
    return status;
}
