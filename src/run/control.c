/* Branches and loops at run time. Nothing is allocated: a body's values lie in the step's scratch, what is carried goes to and fro between
 * two places there, slices are views, and results are written where they belong whenever the body can do that. */
#include "plan/bodies.h"

#include "op/body.h"
#include "run/plan_impl.h"
#include "tensor/convert.h"

static char *bytes_at(const qn_tensor *t) { return (char *)t->data + t->offset; }

static size_t bytes_of(const qn_tensor *t) {
    uint64_t bytes = 0;
    return qn_tensor_bytes((qn_dtype)t->dtype, t->rank, t->shape, &bytes) == QN_OK ? (size_t)bytes : 0;
}

static int is_true(const qn_tensor *t) { return qn_load_one((qn_dtype)t->dtype, bytes_at(t)) != 0; }

/* Output i of a body that has run, dense, to where it goes; when it was written there nothing is left to do. */
static void take_output(const qn_plan_body *b, int i, void *to) {
    const qn_schedule *x = b->schedule;
    const qn_tensor *from = &x->tensors[x->graph->outputs.at[i].value];
    if (b->out[i].root != QN_VAL_NONE || qn_tensor_count(from) == 0) return;
    if (qn_tensor_is_contiguous(from)) {
        memcpy(to, bytes_at(from), bytes_of(from));
        return;
    }
    qn_tensor dense;
    const qn_tensor *src[QN_MAX_SRC] = {from}, *dst[QN_MAX_DST] = {&dense};
    qn_call call = {QN_OP_cont, 0, 1, 1, src, dst, qn_op_describe(QN_OP_cont)->attr_default, NULL};
    qn_tensor_init(&dense, (qn_dtype)from->dtype, from->rank, from->shape, to, bytes_of(from));
    qn_op_rules_of(QN_OP_cont)->reference(&call);
}

static qn_status run_body(const qn_run *r, const qn_plan_step *s, const qn_plan_body *b, int64_t trip, qn_error *error) {
    qn_status status = qn_run_steps(r, b->schedule, 0, (int32_t)b->schedule->steps.n, error);
    if (status == QN_OK) return QN_OK;
    const char *name = qn_op_describe(s->call.op)->name;
    return trip < 0 ? qn_error_wrap(error, "node %d: %s: %s", s->node, name, b->name)
                    : qn_error_wrap(error, "node %d: %s: %s, trip %lld", s->node, name, b->name, (long long)trip);
}

static qn_status run_cond(const qn_run *r, const qn_plan_step *s, qn_error *error) {
    const qn_plan_body *b = &s->control->body[is_true(s->src[0]) ? 0 : 1];
    for (int i = 1; i < s->call.n_src; i++) qn_plan_aim(b, &b->in[i - 1], bytes_at(s->src[i]));
    for (int i = 0; i < s->call.n_dst; i++) qn_plan_aim(b, &b->out[i], bytes_at(s->dst[i]));
    QN_TRY(run_body(r, s, b, -1, error));
    for (int i = 0; i < s->call.n_dst; i++) take_output(b, i, bytes_at(s->dst[i]));
    return QN_OK;
}

/* ---- Loops */

/* Where what is carried lies now. */
typedef struct carried {
    char *at[QN_MAX_SRC];
} carried;

static char *carry_room(const qn_plan_control *c, int64_t trip, int i) { return (char *)c->workspace + c->carry[trip & 1][i]; }

/* In the first trip what is carried is read where the sources lie, unless the body writes over it. */
static void begin_carry(const qn_plan_step *s, const qn_plan_body *b, carried *now) {
    const qn_graph *g = b->schedule->graph;
    for (int i = 0; i < s->control->n_carry; i++) {
        now->at[i] = bytes_at(s->src[i]);
        if (!g->values.at[g->inputs.at[i]].updated) continue;
        now->at[i] = carry_room(s->control, 1, i); /* the first trip writes to the other */
        memcpy(now->at[i], bytes_at(s->src[i]), bytes_of(s->src[i]));
    }
}

static void aim_carry(const qn_plan_control *c, const qn_plan_body *b, const carried *now) {
    for (int i = 0; i < c->n_carry; i++) qn_plan_aim(b, &b->in[i], now->at[i]);
}

static void aim_shared(const qn_plan_step *s, const qn_plan_body *b, int first) {
    for (int i = first; i < s->call.n_src; i++) qn_plan_aim(b, &b->in[i], bytes_at(s->src[i]));
}

static qn_status cancelled(const qn_run *r, const qn_plan_step *s, int64_t trip, qn_error *error) {
    if (!atomic_load_explicit(r->cancelled, memory_order_relaxed)) return QN_OK;
    return qn_error_set(error, QN_CANCELLED, "cancelled in node %d, %s, before trip %lld", s->node,
                        qn_op_describe(s->call.op)->name, (long long)trip);
}

static qn_status run_while(const qn_run *r, const qn_plan_step *s, qn_error *error) {
    const qn_attr_while_loop *at = s->call.attr;
    const qn_plan_control *c = s->control;
    const qn_plan_body *test = &c->body[0], *body = &c->body[1];
    carried now;
    begin_carry(s, body, &now);
    aim_shared(s, test, c->n_carry);
    aim_shared(s, body, c->n_carry);
    for (int64_t trip = 0; at->max_trips == 0 || trip < at->max_trips; trip++) {
        QN_TRY(cancelled(r, s, trip, error));
        aim_carry(c, test, &now);
        QN_TRY(run_body(r, s, test, trip, error));
        if (!is_true(&test->schedule->tensors[test->schedule->graph->outputs.at[0].value])) break;
        aim_carry(c, body, &now);
        for (int i = 0; i < c->n_carry; i++) qn_plan_aim(body, &body->out[i], carry_room(c, trip, i));
        QN_TRY(run_body(r, s, body, trip, error));
        for (int i = 0; i < c->n_carry; i++) take_output(body, i, carry_room(c, trip, i));
        for (int i = 0; i < c->n_carry; i++) now.at[i] = carry_room(c, trip, i);
    }
    for (int i = 0; i < s->call.n_dst; i++)
        if (bytes_of(s->dst[i])) memcpy(bytes_at(s->dst[i]), now.at[i], bytes_of(s->dst[i]));
    return QN_OK;
}

/* One trip's part of a stacked tensor. */
static char *slice_at(const qn_tensor *t, int64_t slice) {
    return bytes_at(t) + (t->shape[0] ? (size_t)slice * (bytes_of(t) / (size_t)t->shape[0]) : 0);
}

/* Where output i of the body goes in a trip; NULL: nobody wants it. */
static char *scan_goes_to(const qn_plan_step *s, const qn_scan_parts *p, int i, int64_t trip, int64_t slice) {
    int wanted = i < s->call.n_dst;
    if (i >= p->n_carry) return wanted ? slice_at(s->dst[i], slice) : NULL;
    return wanted && trip == p->length - 1 ? bytes_at(s->dst[i]) : carry_room(s->control, trip, i);
}

static void keep_trajectories(const qn_plan_step *s, const qn_scan_parts *p, const carried *now, int64_t slice) {
    for (int i = 0; i < p->n_carry; i++) {
        int to = p->n_carry + p->n_ys + i;
        if (to < s->call.n_dst && bytes_of(s->src[i])) memcpy(slice_at(s->dst[to], slice), now->at[i], bytes_of(s->src[i]));
    }
}

static qn_status run_scan(const qn_run *r, const qn_plan_step *s, qn_error *error) {
    const qn_attr_scan_loop *at = s->call.attr;
    const qn_plan_control *c = s->control;
    const qn_plan_body *body = &c->body[0];
    qn_scan_parts p = qn_scan_parts_of(at, s->call.n_src, at->n_xs ? s->src[at->n_carry]->shape[0] : 0);
    int n_out = p.n_carry + p.n_ys;
    carried now;
    begin_carry(s, body, &now);
    aim_shared(s, body, p.n_carry + p.n_xs);
    for (int64_t trip = 0; trip < p.length; trip++) {
        int64_t slice = at->reverse ? p.length - 1 - trip : trip;
        QN_TRY(cancelled(r, s, trip, error));
        keep_trajectories(s, &p, &now, slice);
        aim_carry(c, body, &now);
        for (int i = p.n_carry; i < p.n_carry + p.n_xs; i++) qn_plan_aim(body, &body->in[i], slice_at(s->src[i], slice));
        for (int i = 0; i < n_out; i++) qn_plan_aim(body, &body->out[i], scan_goes_to(s, &p, i, trip, slice));
        QN_TRY(run_body(r, s, body, trip, error));
        for (int i = 0; i < n_out; i++)
            if (scan_goes_to(s, &p, i, trip, slice)) take_output(body, i, scan_goes_to(s, &p, i, trip, slice));
        for (int i = 0; i < p.n_carry; i++) now.at[i] = scan_goes_to(s, &p, i, trip, slice);
    }
    for (int i = 0; p.length == 0 && i < p.n_carry && i < s->call.n_dst; i++)
        if (bytes_of(s->dst[i])) memcpy(bytes_at(s->dst[i]), now.at[i], bytes_of(s->dst[i]));
    return QN_OK;
}

qn_status qn_run_control(const qn_run *r, const qn_plan_step *s, qn_error *error) {
    static qn_status (*const runs[QN_OP_COUNT])(const qn_run *, const qn_plan_step *, qn_error *) = {
        [QN_OP_cond] = run_cond, [QN_OP_while_loop] = run_while, [QN_OP_scan_loop] = run_scan};
    if (!runs[s->call.op])
        return qn_error_set(error, QN_UNSUPPORTED, "node %d: %s has bodies that nobody knows how to run", s->node,
                            qn_op_describe(s->call.op)->name);
    return runs[s->call.op](r, s, error);
}
