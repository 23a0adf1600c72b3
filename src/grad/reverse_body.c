/* Gradients of branches and loops. The reverse of a body is a body: its nodes once more, then the rules of their ops backwards, from the
 * gradients of what it gives to the gradients of what it takes. A branch's gradient is a branch over the reverses of both bodies; a
 * loop's is a loop the other way round, which needs what was carried into each trip: the loop once more, with that as outputs, which is
 * one loop again as soon as equal nodes are merged.
 *
 * A reverse is drafted with everything it might need as inputs, and then made anew with what it turned out to need. */
#include <stdio.h>

#include "grad/reverse.h"
#include "ir/rebuild.h"
#include "op/op_emit.h"

enum { MOST_INPUTS = 4 * QN_MAX_SRC }; /* of a draft: sources, gradients of outputs, sums, gradients of trajectories */

static qn_val add_input(qn_graph *g, const qn_shape *s) {
    char name[32];
    snprintf(name, sizeof name, "x%zu", g->inputs.n);
    return qn_graph_input(g, name, (qn_dtype)s->dtype, s->rank, s->d);
}

static const qn_shape *shape_of(const qn_graph *g, qn_val value) { return &g->values.at[value].shape; }

static qn_val zeros(qn_graph *g, qn_val like) {
    qn_attr_fill at = qn_attr_fill_default();
    return qn_graph_op(g, QN_OP_fill, 0, 1, &like, &at);
}

static qn_val sum(qn_graph *g, qn_val a, qn_val b) {
    return a == QN_VAL_NONE ? b : b == QN_VAL_NONE ? a : qn_graph_op(g, QN_OP_add, 0, 2, (qn_val[]){a, b}, NULL);
}

static qn_val as(qn_graph *g, qn_val a, uint32_t dtype) {
    qn_attr_dup at = qn_attr_dup_default();
    at.dtype = (int32_t)dtype;
    return a == QN_VAL_NONE || shape_of(g, a)->dtype == dtype ? a : qn_graph_op(g, QN_OP_dup, 0, 1, &a, &at);
}

static void add_output(qn_graph *g, qn_val value) {
    char name[32];
    snprintf(name, sizeof name, "y%zu", g->outputs.n);
    qn_graph_output(g, value, name);
}

/* ---- Drafts */

typedef struct draft {
    qn_graph *g;
    qn_val in[QN_MAX_SRC];   /* what the body takes */
    qn_val seed[QN_MAX_DST]; /* the gradient of each output of the body, QN_VAL_NONE where none comes */
    qn_val grad[QN_MAX_SRC]; /* of each input that is wanted; QN_VAL_NONE: zero, or not wanted */
} draft;

/* What the body does, and back. The draft is the caller's to destroy, also after a failure. */
static qn_status reverse_body(qn_graph *parent, const qn_graph *body, const int *want, const int *seeded, draft *d) {
    qn_val out[QN_MAX_DST], at[QN_MAX_DST], seed[QN_MAX_DST], wrt[QN_MAX_SRC], grads[QN_MAX_SRC];
    int n_in = (int)body->inputs.n, n_out = (int)body->outputs.n, n_seed = 0, n_wrt = 0;
    d->g = NULL;
    QN_TRY(qn_ir_body_create(parent, &d->g));
    for (int i = 0; i < n_in; i++) d->in[i] = add_input(d->g, shape_of(body, body->inputs.at[i]));
    for (int i = 0; i < n_out; i++)
        d->seed[i] = seeded[i] ? add_input(d->g, shape_of(body, body->outputs.at[i].value)) : QN_VAL_NONE;
    QN_TRY(qn_ir_inline(d->g, body, d->in, out));
    for (int i = 0; i < n_out; i++) {
        if (!seeded[i]) continue;
        at[n_seed] = out[i];
        seed[n_seed++] = d->seed[i];
    }
    for (int i = 0; i < n_in; i++)
        if (want[i]) wrt[n_wrt++] = d->in[i];
    QN_TRY(qn_grad_reverse(d->g, n_seed, at, seed, n_wrt, wrt, grads));
    for (int i = 0, k = 0; i < n_in; i++) d->grad[i] = want[i] ? grads[k++] : QN_VAL_NONE;
    return d->g->error.status;
}

/* The draft's error becomes its parent's, with the body's place in front. */
static qn_status drafted(qn_graph *parent, const draft *d, const char *what, qn_status status) {
    if (status == QN_OK || parent->error.status != QN_OK || !d->g) return parent->error.status;
    return qn_ir_fail(parent, status, "the gradient of %s: %s", what, d->g->error.text);
}

/* A body made of a draft, input by input; what goes into it from outside beside it. */
typedef struct making {
    const qn_graph *from;
    qn_graph *to;
    uint8_t *needed;         /* per value of the draft */
    qn_val map[MOST_INPUTS]; /* per input of the draft: that of the new body */
    qn_val src[MOST_INPUTS]; /* per input of the new body: its source */
    int n_src;
} making;

static qn_status begin_making(qn_graph *parent, const draft *d, making *m) {
    m->from = d->g;
    m->to = NULL;
    m->n_src = 0;
    for (int i = 0; i < MOST_INPUTS; i++) m->map[i] = QN_VAL_NONE;
    m->needed = qn_arena_resize(&parent->arena, NULL, d->g->values.n + 1, 1);
    if (!m->needed) return qn_ir_fail(parent, QN_NO_MEMORY, "no memory for the reverse of a body");
    memset(m->needed, 0, d->g->values.n + 1);
    qn_ir_mark_needed(d->g, m->needed);
    return qn_ir_body_create(parent, &m->to);
}

static void pass_in(making *m, qn_val input, qn_val source) {
    int i = 0;
    while (m->from->inputs.at[i] != input) i++;
    m->map[i] = add_input(m->to, shape_of(m->from, input));
    m->src[m->n_src++] = source;
}

/* Whether it is passed in, which it is when the draft needs it. */
static int pass_needed(making *m, qn_val input, qn_val source) {
    if (input == QN_VAL_NONE || !m->needed[input]) return 0;
    pass_in(m, input, source);
    return 1;
}

/* The finished body, which the parent owns; NULL after a failure. */
static const qn_graph *end_making(qn_graph *parent, making *m) {
    qn_val out[QN_MAX_DST];
    qn_graph *made = m->to;
    if (made && m->n_src > QN_MAX_SRC)
        qn_ir_fail(parent, QN_INVALID, "the gradient of a body takes %d sources, %d are the most", m->n_src, QN_MAX_SRC);
    if (made && parent->error.status == QN_OK && qn_ir_inline(made, m->from, m->map, out) == QN_OK)
        for (size_t i = 0; i < m->from->outputs.n; i++) add_output(made, out[i]);
    qn_arena_release(&parent->arena, m->needed);
    m->to = NULL;
    if (!made) return NULL;
    if (parent->error.status == QN_OK) return qn_ir_body_own(parent, made) == QN_OK ? made : NULL;
    qn_graph_destroy(made);
    return NULL;
}

static int can_build(qn_vjp_call *v) {
    if (!v->emitter->graph) v->status = QN_UNSUPPORTED; /* ops with bodies are nowhere but in graphs */
    return v->status == QN_OK;
}

/* ---- cond */

typedef struct cond_reverse {
    draft yes, no;
    int n_in, want[QN_MAX_SRC], seeded[QN_MAX_DST];
} cond_reverse;

/* One output for each source that has a gradient through either body. */
static void add_cond_outputs(cond_reverse *c) {
    for (int i = 0; i < c->n_in; i++) {
        qn_val a = c->yes.grad[i], b = c->no.grad[i];
        c->want[i] = a != QN_VAL_NONE || b != QN_VAL_NONE;
        if (!c->want[i]) continue;
        add_output(c->yes.g, a != QN_VAL_NONE ? a : zeros(c->yes.g, c->yes.in[i]));
        add_output(c->no.g, b != QN_VAL_NONE ? b : zeros(c->no.g, c->no.in[i]));
    }
}

/* Both bodies take the same: what one of them needs the other gets as well. */
static void make_cond(qn_vjp_call *v, cond_reverse *c) {
    qn_graph *g = v->emitter->graph;
    qn_attr_cond at = qn_attr_cond_default();
    making yes, no;
    qn_val out[QN_MAX_SRC];
    int n_out = (int)c->yes.g->outputs.n;
    if (begin_making(g, &c->yes, &yes) != QN_OK || begin_making(g, &c->no, &no) != QN_OK) {
        v->status = g->error.status;
        return;
    }
    yes.src[yes.n_src++] = no.src[no.n_src++] = v->src[0];
    for (size_t i = 0; i < c->yes.g->inputs.n; i++) {
        qn_val a = c->yes.g->inputs.at[i], b = c->no.g->inputs.at[i];
        if (!yes.needed[a] && !no.needed[b]) continue;
        qn_val source = i < (size_t)c->n_in ? v->src[1 + i] : QN_VAL_NONE;
        for (int k = 0; source == QN_VAL_NONE; k++)
            if (c->yes.seed[k] == a) source = v->grad[k];
        pass_in(&yes, a, source);
        pass_in(&no, b, source);
    }
    int n_src = yes.n_src;
    at.then_body = end_making(g, &yes);
    at.else_body = end_making(g, &no);
    if (!at.then_body || !at.else_body) v->status = g->error.status;
    else v->status = qn_ir_apply(g, QN_OP_cond, 0, n_src, yes.src, &at, n_out, out);
    for (int i = 0, k = 0; v->status == QN_OK && i < c->n_in; i++)
        if (c->want[i]) v->out[1 + i] = out[k++];
}

void qn_vjp_cond(qn_vjp_call *v) {
    const qn_attr_cond *at = v->attr;
    qn_graph *g = v->emitter->graph;
    cond_reverse c;
    memset(&c, 0, sizeof c);
    if (!can_build(v)) return;
    c.n_in = v->n_src - 1;
    for (int i = 0; i < c.n_in; i++) c.want[i] = v->want[1 + i];
    for (int i = 0; i < v->n_dst; i++) c.seeded[i] = v->grad[i] != QN_VAL_NONE;
    v->status = drafted(g, &c.yes, "then_body", reverse_body(g, at->then_body, c.want, c.seeded, &c.yes));
    if (v->status == QN_OK) v->status = drafted(g, &c.no, "else_body", reverse_body(g, at->else_body, c.want, c.seeded, &c.no));
    if (v->status == QN_OK) {
        add_cond_outputs(&c);
        if (c.yes.g->error.status != QN_OK || c.no.g->error.status != QN_OK)
            v->status = drafted(g, c.yes.g->error.status != QN_OK ? &c.yes : &c.no, "cond", QN_NO_MEMORY);
        else if (c.yes.g->outputs.n) make_cond(v, &c);
    }
    qn_graph_destroy(c.yes.g);
    qn_graph_destroy(c.no.g);
}

/* ---- scan_loop */

typedef struct scan_reverse {
    const qn_attr_scan_loop *at;
    qn_scan_parts p;
    draft d;
    int want[QN_MAX_SRC], seeded[QN_MAX_DST];
    qn_val total[QN_MAX_SRC];      /* in the draft: a shared source's gradient so far, for those wanted */
    qn_val past[QN_MAX_SRC];       /* in the draft: the gradient of a carry's trajectory, where one comes */
    qn_val trajectory[QN_MAX_SRC]; /* of each carry, outside */
} scan_reverse;

/* A carry varies when what it begins with does, or when what replaces it does: found by going round until nothing is added. */
static qn_status find_varying(qn_graph *g, scan_reverse *s) {
    const qn_graph *body = s->at->body;
    uint8_t *varies = qn_arena_resize(&g->arena, NULL, body->values.n + 1, 1);
    if (!varies) return qn_ir_fail(g, QN_NO_MEMORY, "no memory for the gradient of a loop");
    for (int again = 1; again;) {
        again = 0;
        memset(varies, 0, body->values.n + 1);
        for (size_t i = 0; i < body->inputs.n; i++) varies[body->inputs.at[i]] = (uint8_t)s->want[i];
        qn_grad_mark_varying(body, varies);
        for (int i = 0; i < s->p.n_carry; i++) {
            if (s->want[i] || !varies[body->outputs.at[i].value]) continue;
            s->want[i] = 1;
            again = 1;
        }
    }
    qn_arena_release(&g->arena, varies);
    return QN_OK;
}

/* Sums over trips are kept in a dtype that can hold them. */
static qn_shape total_shape(const qn_graph *g, qn_val of) {
    qn_shape s = *shape_of(g, of);
    if (s.dtype != QN_DTYPE_F64) s.dtype = QN_DTYPE_F32;
    return s;
}

/* What the reversed body gives: gradients of carries, sums of those of shared sources, then gradients of slices. */
static void add_scan_outputs(const qn_vjp_call *v, scan_reverse *s) {
    qn_graph *g = s->d.g;
    const qn_scan_parts *p = &s->p;
    int end = p->n_carry + p->n_xs;
    for (int i = 0; i < p->n_carry; i++) {
        int traced = p->n_carry + p->n_ys + i;
        s->past[i] = QN_VAL_NONE;
        if (!s->want[i]) continue;
        if (traced < v->n_dst && v->grad[traced] != QN_VAL_NONE) s->past[i] = add_input(g, shape_of(g, s->d.in[i]));
        qn_val grad = sum(g, s->d.grad[i], s->past[i]);
        add_output(g, grad != QN_VAL_NONE ? grad : zeros(g, s->d.in[i]));
    }
    for (int i = end; i < end + p->n_shared; i++) {
        if (!s->want[i]) continue;
        qn_shape shape = total_shape(g, s->d.in[i]);
        s->total[i] = add_input(g, &shape);
        add_output(g, sum(g, s->total[i], as(g, s->d.grad[i], shape.dtype)));
    }
    for (int i = p->n_carry; i < end; i++)
        if (s->want[i]) add_output(g, s->d.grad[i] != QN_VAL_NONE ? s->d.grad[i] : zeros(g, s->d.in[i]));
}

/* The trajectories, from the loop itself when it gives them, else from the loop once more. */
static void find_trajectories(qn_vjp_call *v, scan_reverse *s) {
    int first = s->p.n_carry + s->p.n_ys, n = first + s->p.n_carry;
    qn_val out[QN_MAX_DST];
    if (n > QN_MAX_DST) {
        v->status = qn_ir_fail(v->emitter->graph, QN_INVALID, "the gradient of a loop needs %d outputs of it, %d are the most", n,
                               QN_MAX_DST);
    } else if (v->n_dst >= n) {
        memcpy(s->trajectory, v->dst + first, sizeof *out * (size_t)s->p.n_carry);
    } else {
        qn_emit_many(v, QN_OP_scan_loop, 0, v->attr, v->n_src, v->src, n, out);
        memcpy(s->trajectory, out + first, sizeof *out * (size_t)s->p.n_carry);
    }
}

static qn_val first_total(qn_vjp_call *v, qn_val of) {
    return qn_e_cast(v, qn_e_zeros(v, of), qn_shape_of(v, of).dtype == QN_DTYPE_F64 ? QN_DTYPE_F64 : QN_DTYPE_F32);
}

/* Sources in the order a scan_loop has them; which of them the reverse needs its draft has shown. */
static void pass_scan_sources(qn_vjp_call *v, scan_reverse *s, making *m, qn_attr_scan_loop *at) {
    const qn_scan_parts *p = &s->p;
    int end = p->n_carry + p->n_xs, any = 0;
    for (int i = 0; i < p->n_carry; i++) /* results at the end may have been left off: the source has the shape as well */
        if (s->want[i]) pass_in(m, s->d.seed[i], v->grad[i] != QN_VAL_NONE ? v->grad[i] : qn_e_zeros(v, v->src[i]));
    for (int i = end; i < end + p->n_shared; i++)
        if (s->want[i]) pass_in(m, s->total[i], first_total(v, v->src[i]));
    at->n_carry = m->n_src;
    for (int i = 0; i < p->n_carry; i++) any |= m->needed[s->d.in[i]];
    if (any) find_trajectories(v, s);
    for (int i = 0; i < p->n_carry; i++) pass_needed(m, s->d.in[i], s->trajectory[i]);
    for (int i = p->n_carry; i < end; i++) pass_needed(m, s->d.in[i], v->src[i]);
    for (int i = p->n_carry; i < p->n_carry + p->n_ys; i++) pass_needed(m, s->d.seed[i], v->grad[i]);
    for (int i = 0; i < p->n_carry; i++) pass_needed(m, s->past[i], v->grad[p->n_carry + p->n_ys + i]);
    at->n_xs = m->n_src - at->n_carry;
    for (int i = end; i < end + p->n_shared; i++) pass_needed(m, s->d.in[i], v->src[i]);
}

static void make_scan(qn_vjp_call *v, scan_reverse *s) {
    qn_graph *g = v->emitter->graph;
    qn_attr_scan_loop at = qn_attr_scan_loop_default();
    making m;
    qn_val out[MOST_INPUTS];
    const qn_scan_parts *p = &s->p;
    int n_out = (int)s->d.g->outputs.n, k = 0;
    at.length = p->length;
    at.reverse = !s->at->reverse;
    v->status = begin_making(g, &s->d, &m);
    if (v->status != QN_OK) return;
    pass_scan_sources(v, s, &m, &at);
    at.body = end_making(g, &m);
    if (n_out > QN_MAX_DST)
        qn_ir_fail(g, QN_INVALID, "the gradient of a loop has %d outputs, %d are the most", n_out, QN_MAX_DST);
    if (g->error.status != QN_OK) v->status = g->error.status;
    if (v->status == QN_OK) v->status = qn_ir_apply(g, QN_OP_scan_loop, 0, m.n_src, m.src, &at, n_out, out);
    if (v->status != QN_OK) return;
    for (int i = 0; i < p->n_carry; i++)
        if (s->want[i]) v->out[i] = out[k++];
    for (int i = p->n_carry + p->n_xs; i < v->n_src; i++)
        if (s->want[i]) v->out[i] = out[k++];
    for (int i = p->n_carry; i < p->n_carry + p->n_xs; i++)
        if (s->want[i]) v->out[i] = out[k++];
}

void qn_vjp_scan_loop(qn_vjp_call *v) {
    qn_graph *g = v->emitter->graph;
    scan_reverse s;
    memset(&s, 0, sizeof s);
    if (!can_build(v)) return;
    s.at = v->attr;
    s.p = qn_scan_parts_of(s.at, v->n_src, s.at->n_xs ? shape_of(g, v->src[s.at->n_carry])->d[0] : 0);
    memcpy(s.want, v->want, sizeof s.want);
    v->status = find_varying(g, &s);
    if (v->status != QN_OK) return;
    for (int i = 0; i < s.p.n_carry; i++) s.seeded[i] = s.want[i];
    for (int i = s.p.n_carry; i < s.p.n_carry + s.p.n_ys; i++) s.seeded[i] = i < v->n_dst && v->grad[i] != QN_VAL_NONE;
    v->status = drafted(g, &s.d, "body", reverse_body(g, s.at->body, s.want, s.seeded, &s.d));
    if (v->status == QN_OK) {
        add_scan_outputs(v, &s);
        v->status = drafted(g, &s.d, "body", s.d.g->error.status);
    }
    if (v->status == QN_OK && s.d.g->outputs.n) make_scan(v, &s);
    qn_graph_destroy(s.d.g);
}

/* ---- while_loop. With a bound it is a scan_loop of so many trips, each of which does nothing once the test has failed; without one nobody
 * knows how much to remember. */

/* What one trip does: the body when the test says so, else nothing. */
static qn_graph *make_trip(qn_graph *parent, const qn_attr_while_loop *at) {
    const qn_graph *body = at->body;
    int n_in = (int)body->inputs.n, n_out = (int)body->outputs.n;
    qn_graph *trip, *still;
    qn_attr_cond choice = qn_attr_cond_default();
    qn_val in[QN_MAX_SRC + 1], out[QN_MAX_DST], same[QN_MAX_SRC];
    if (qn_ir_body_create(parent, &trip) != QN_OK) return NULL;
    if (qn_ir_body_create(trip, &still) == QN_OK) {
        for (int i = 0; i < n_in; i++) {
            in[1 + i] = add_input(trip, shape_of(body, body->inputs.at[i]));
            same[i] = add_input(still, shape_of(body, body->inputs.at[i]));
        }
        for (int i = 0; i < n_out; i++) add_output(still, same[i]);
        choice.then_body = body;
        choice.else_body = still;
        if (qn_ir_inline(trip, at->test, in + 1, in) == QN_OK)
            qn_graph_apply(trip, QN_OP_cond, 0, 1 + n_in, in, &choice, n_out, out);
        qn_graph_destroy(still);
        for (int i = 0; i < n_out; i++) add_output(trip, out[i]);
    }
    if (trip->error.status == QN_OK) return trip;
    qn_ir_fail(parent, trip->error.status, "the gradient of body: %s", trip->error.text);
    qn_graph_destroy(trip);
    return NULL;
}

void qn_vjp_while_loop(qn_vjp_call *v) {
    const qn_attr_while_loop *at = v->attr;
    qn_graph *g = v->emitter->graph, *trip;
    qn_attr_scan_loop loop = qn_attr_scan_loop_default();
    qn_vjp_call scan = *v;
    if (!can_build(v)) return;
    if (at->max_trips == 0) {
        qn_vjp_refuse(v, 0, "how often it runs is not known before; with max_trips it has one, and so has scan_loop");
        return;
    }
    loop.n_carry = (int32_t)at->body->outputs.n;
    loop.length = at->max_trips;
    trip = make_trip(g, at);
    loop.body = trip;
    scan.n_dst = 2 * loop.n_carry;
    if (!trip || scan.n_dst > QN_MAX_DST || v->n_src >= QN_MAX_SRC) {
        v->status = qn_ir_fail(g, QN_INVALID, "the gradient of while_loop needs %d outputs and %d sources, %d are the most",
                               scan.n_dst, v->n_src + 1, QN_MAX_SRC);
    } else {
        scan.op = QN_OP_scan_loop;
        scan.attr = &loop;
        for (int i = v->n_dst; i < QN_MAX_DST; i++) scan.grad[i] = QN_VAL_NONE;
        qn_emit_many(&scan, QN_OP_scan_loop, 0, &loop, v->n_src, v->src, scan.n_dst, scan.dst);
        qn_vjp_scan_loop(&scan);
        v->status = scan.status;
        memcpy(v->out, scan.out, sizeof v->out);
    }
    qn_graph_destroy(trip);
}
