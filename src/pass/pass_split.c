/* A product whose columns are cut apart at once, as q, k and v are, writes the parts instead of the whole. The parts must be
 * all there is of it: narrows of the last axis that lie side by side and leave nothing out, and no other user. */
#include "pass/linear.h"
#include "pass/terms.h"

enum { MOST_PARTS = 8 }; /* outputs of linear_split */

typedef struct part {
    int64_t start, length;
    qn_val value;
} part;

typedef struct splitter {
    qn_pass_run *run;
    qn_pass_facts facts;
} splitter;

static int is_last_axis(int32_t axis, int rank) { return axis == -1 || axis == rank - 1; }

/* The parts of a node's result in order; 0, or -1 with a reason when there are narrows but not such. */
static int parts_of(const splitter *s, int32_t node, part *parts, const char **why) {
    const qn_graph *g = s->facts.g;
    qn_val y = g->nodes.at[node].out;
    int rank = g->values.at[y].shape.rank, n = qn_pass_use_count(&s->facts, y), narrows = 0;
    int64_t end = 0;
    for (int i = 0; i < n; i++) narrows += g->nodes.at[s->facts.users[s->facts.first_use[y] + i]].op == QN_OP_narrow;
    if (narrows < 2) return 0;
    *why = s->facts.is_output[y] ? "the whole product is an output"
           : narrows < n         ? "multi-consumer"
           : n > MOST_PARTS      ? "more than eight parts"
                                 : NULL;
    for (int i = 0; i < n && !*why; i++) {
        const qn_ir_node *user = &g->nodes.at[s->facts.users[s->facts.first_use[y] + i]];
        const qn_attr_narrow *at = qn_pass_attr(user);
        int k = i;
        if (!is_last_axis(at->axis, rank)) *why = "not the last axis";
        for (; k > 0 && parts[k - 1].start > at->start; k--) parts[k] = parts[k - 1];
        parts[k] = (part){at->start, at->length, user->out};
    }
    for (int i = 0; i < n && !*why; end += parts[i++].length)
        if (parts[i].start != end || parts[i].length < 1) *why = "parts that do not meet";
    if (!*why && end != g->values.at[y].shape.d[rank - 1]) *why = "parts that leave something out";
    return *why ? -1 : n;
}

/* Adds the op; 0 when it refuses, or gives other types than the parts have. */
static int build(qn_rebuild *r, const qn_pass_linear *l, const part *parts, int count, qn_val *out) {
    qn_attr_linear_split at = qn_attr_linear_split_default();
    qn_val src[3] = {r->map[l->x], r->map[l->w], l->bias == QN_VAL_NONE ? QN_VAL_NONE : r->map[l->bias]};
    qn_pass_mark mark = qn_pass_mark_of(r->to);
    at.transpose_w = l->transpose_w;
    at.act = l->act;
    at.dtype = l->dtype;
    at.widths.rank = count;
    for (int i = 0; i < count; i++) at.widths.d[i] = parts[i].length;
    int ok = qn_pass_try(r->to, QN_OP_linear_split, 0, l->bias == QN_VAL_NONE ? 2 : 3, src, &at, count, out);
    for (int i = 0; ok && i < count; i++) ok = qn_pass_same_type(&r->to->values.at[out[i]], &r->from->values.at[parts[i].value]);
    if (!ok) qn_pass_roll_back(r->to, mark);
    return ok;
}

static qn_status split_node(qn_rebuild *r, int32_t node) {
    splitter *s = r->user;
    qn_pass_linear l;
    part parts[MOST_PARTS];
    qn_val out[MOST_PARTS];
    const char *why = NULL;
    if (r->map[r->from->nodes.at[node].out] != QN_VAL_NONE) return QN_OK; /* a part that is there already */
    int count = qn_pass_linear_of(r->from, node, &l) ? parts_of(s, node, parts, &why) : 0;
    qn_pass_mark mark = qn_pass_mark_of(r->to);
    if (count > 0 && !qn_pass_claims(s->run, QN_OP_linear_split, 0, r->from, &node, 1)) why = "there is no kernel for it";
    if (count > 0 && !why && !build(r, &l, parts, count, out)) why = "the fused op does not take it";
    if (why) qn_pass_missed(s->run, qn_pass_rule_split, node, why);
    if (why || count == 0) return qn_rebuild_copy(r, node);
    if (!qn_pass_may(s->run, qn_pass_rule_split, node)) {
        qn_pass_roll_back(r->to, mark);
        return qn_rebuild_copy(r, node);
    }
    for (int i = 0; i < count; i++) r->map[parts[i].value] = out[i];
    return QN_OK;
}

qn_status qn_pass_split(qn_pass_run *run, qn_graph **to) {
    splitter s = {.run = run};
    if (!qn_pass_has_op(run->from, QN_OP_narrow)) return QN_OK;
    QN_TRY(qn_pass_facts_make(run->from, &s.facts, run->error));
    qn_status status = qn_ir_rebuild(run->from, NULL, split_node, &s, to, run->error);
    qn_pass_facts_free(&s.facts);
    return status;
}
