/* The same elementwise chain over the parts of one tensor, joined again, is the chain over the whole. Walks up from a join
 * through all its sources at once: they must be made by the same op with the same attributes, or be parts of one tensor in the
 * order of the join; an operand that all share must not vary along the axis. */
#include "op/region.h"

#include "pass/facts.h"
#include "pass/terms.h"

enum { MOST_DEPTH = 32 };

typedef struct batcher {
    qn_pass_run *run;
    qn_pass_facts facts;
} batcher;

typedef struct family {
    int n;
    qn_val v[QN_MAX_SRC];
} family;

typedef struct joining {
    qn_rebuild *r;
    const batcher *b;
    int axis; /* counted from the last */
    int32_t at;
    int build; /* else only look */
    const char *why;
} joining;

static const qn_ir_node *maker(const qn_graph *g, qn_val v) {
    return g->values.at[v].node < 0 ? NULL : &g->nodes.at[g->values.at[v].node];
}

static int axis_from_last(int32_t axis, int rank) { return axis < 0 ? -1 - axis : rank - 1 - axis; }

/* Parts of one tensor, one behind the other: that tensor or a part of it, QN_VAL_NONE when they are not. */
static qn_val whole_of(joining *j, const family *f) {
    const qn_graph *g = j->r->from;
    qn_attr_narrow all = qn_attr_narrow_default();
    qn_val parent = QN_VAL_NONE;
    for (int i = 0; i < f->n; i++) {
        const qn_ir_node *n = maker(g, f->v[i]);
        if (!n || n->op != QN_OP_narrow) return QN_VAL_NONE;
        const qn_attr_narrow *at = qn_pass_attr(n);
        qn_val from = qn_ir_sources(g, n)[0];
        if (qn_dim_is_symbolic(at->start) || qn_dim_is_symbolic(at->length)) return QN_VAL_NONE;
        if (axis_from_last(at->axis, g->values.at[from].shape.rank) != j->axis || (i && from != parent)) return QN_VAL_NONE;
        if (i == 0) all.start = at->start;
        if (i && at->start != all.start + all.length) return QN_VAL_NONE;
        parent = from;
        all.length += at->length;
    }
    if (qn_pass_epoch(&j->b->facts, parent, j->at) != 0) return QN_VAL_NONE;
    if (!j->build) return parent;
    qn_val x = j->r->map[parent];
    const qn_shape *s = &g->values.at[parent].shape;
    all.axis = -1 - j->axis;
    if (all.start == 0 && all.length == s->d[s->rank - 1 - j->axis]) return x;
    qn_val some;
    return qn_pass_try(j->r->to, QN_OP_narrow, 0, 1, &x, &all, 1, &some) ? some : QN_VAL_NONE;
}

/* One value for all that does not vary along the axis. */
static qn_val shared_of(joining *j, const family *f) {
    const qn_shape *s = &j->r->from->values.at[f->v[0]].shape;
    for (int i = 1; i < f->n; i++)
        if (f->v[i] != f->v[0]) return QN_VAL_NONE;
    if (j->axis < s->rank && s->d[s->rank - 1 - j->axis] != 1) return QN_VAL_NONE;
    if (qn_pass_epoch(&j->b->facts, f->v[0], j->at) != 0) return QN_VAL_NONE;
    return j->build ? j->r->map[f->v[0]] : f->v[0];
}

static int same_attributes(const qn_ir_node *a, const qn_ir_node *b) {
    const qn_op_info *info = qn_op_describe(a->op);
    if (a->op != b->op || a->subop != b->subop || a->n_src != b->n_src || a->n_out != b->n_out) return 0;
    for (int i = 0; i < info->n_attr; i++)
        if (memcmp((const char *)qn_pass_attr(a) + info->attr[i].offset, (const char *)qn_pass_attr(b) + info->attr[i].offset,
                   info->attr[i].bytes) != 0)
            return 0;
    return 1;
}

/* The makers when they are the same elementwise op, used by nothing else. */
static const qn_ir_node *same_op(joining *j, const family *f) {
    const qn_graph *g = j->r->from;
    const qn_ir_node *first = maker(g, f->v[0]);
    if (!first || !qn_region_op_of(first->op) || first->n_out != 1) return NULL;
    for (int i = 0; i < f->n; i++) {
        const qn_ir_node *n = maker(g, f->v[i]);
        if (!n || !same_attributes(first, n)) return NULL;
        if (j->b->facts.is_output[f->v[i]] || qn_pass_use_count(&j->b->facts, f->v[i]) != 1) {
            j->why = "multi-consumer";
            return NULL;
        }
    }
    return first;
}

static qn_val combine(joining *j, const family *f, int depth) {
    const qn_graph *g = j->r->from;
    qn_val src[QN_MAX_SRC], made = shared_of(j, f);
    if (made == QN_VAL_NONE) made = whole_of(j, f);
    if (made != QN_VAL_NONE || depth == MOST_DEPTH) return made;
    const qn_ir_node *n = same_op(j, f);
    if (!n) return QN_VAL_NONE;
    for (int k = 0; k < n->n_src; k++) {
        family up = {.n = f->n};
        for (int i = 0; i < f->n; i++) up.v[i] = qn_ir_sources(g, maker(g, f->v[i]))[k];
        src[k] = up.v[0];
        if (up.v[0] != QN_VAL_NONE && (src[k] = combine(j, &up, depth + 1)) == QN_VAL_NONE) return QN_VAL_NONE;
    }
    if (!j->build) return f->v[0];
    return qn_pass_try(j->r->to, n->op, n->subop, n->n_src, src, n->attr, 1, &made) ? made : QN_VAL_NONE;
}

/* The axis of a join or concat from the last; -1 when the node is neither. */
static int joined_axis(const qn_graph *g, const qn_ir_node *n) {
    int rank = g->values.at[n->out].shape.rank;
    if (n->op == QN_OP_join) return axis_from_last(((const qn_attr_join *)qn_pass_attr(n))->axis, rank);
    if (n->op == QN_OP_concat) return axis_from_last(((const qn_attr_concat *)qn_pass_attr(n))->axis, rank);
    return -1;
}

static qn_status batch_node(qn_rebuild *r, int32_t node) {
    batcher *b = r->user;
    const qn_ir_node *n = &r->from->nodes.at[node];
    joining j = {.r = r, .b = b, .axis = joined_axis(r->from, n), .at = node};
    family f = {.n = 0};
    qn_graph *to = r->to;
    for (int i = 0; j.axis >= 0 && i < n->n_src; i++)
        if (qn_ir_sources(r->from, n)[i] != QN_VAL_NONE) f.v[f.n++] = qn_ir_sources(r->from, n)[i];
    if (f.n < 2 || !same_op(&j, &f) || combine(&j, &f, 0) == QN_VAL_NONE) {
        if (j.why) qn_pass_missed(b->run, qn_pass_rule_batch, node, j.why);
        return qn_rebuild_copy(r, node);
    }
    qn_pass_mark mark = qn_pass_mark_of(to);
    j.build = 1;
    qn_val made = combine(&j, &f, 0);
    if (made != QN_VAL_NONE && qn_pass_same_type(&to->values.at[made], &r->from->values.at[n->out]) &&
        qn_pass_may(b->run, qn_pass_rule_batch, node)) {
        r->map[n->out] = made;
        return QN_OK;
    }
    qn_pass_roll_back(to, mark);
    return qn_rebuild_copy(r, node);
}

qn_status qn_pass_batch(qn_pass_run *run, qn_graph **to) {
    batcher b = {.run = run};
    if (!qn_pass_has_op(run->from, QN_OP_join) && !qn_pass_has_op(run->from, QN_OP_concat)) return QN_OK;
    QN_TRY(qn_pass_facts_make(run->from, &b.facts, run->error));
    qn_status status = qn_ir_rebuild(run->from, NULL, batch_node, &b, to, run->error);
    qn_pass_facts_free(&b.facts);
    return status;
}
