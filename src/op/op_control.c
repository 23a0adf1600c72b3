/* Branches and loops. What they compute their bodies compute, so that all there is here is agreement: that a body takes what it is
 * handed and gives what comes round again. A plan runs the bodies; there is no kernel, and a request by itself is refused. */
#include "op/body.h"

/* ---- What the rules share */

/* A source as a body would see it; `sliced`: one slice of its first axis. Rejects unless that is what the body takes. */
static qn_status need_taken(qn_infer_call *c, int slot, const qn_body *body, int input, int sliced) {
    const qn_tensor *t = c->src[slot];
    qn_shape want = body->is->in(body, input);
    if (t->dtype != want.dtype) return qn_reject_src(c, slot, QN_REASON_BODY_TAKES_DTYPE, -1, want.dtype, t->dtype);
    if (t->rank - sliced != want.rank) return qn_reject_src(c, slot, QN_REASON_BODY_TAKES_RANK, -1, want.rank, t->rank - sliced);
    for (int k = 0; k < want.rank; k++)
        if (t->shape[k + sliced] != want.d[k])
            return qn_reject_src(c, slot, QN_REASON_BODY_TAKES_EXTENT, k + sliced, want.d[k], t->shape[k + sliced]);
    return QN_OK;
}

/* Every source there, none of them with gaps: a body gets the memory as it is. */
static qn_status need_sources(qn_infer_call *c) {
    for (int i = 0; i < c->n_src; i++) {
        if (!c->src[i]) return qn_reject_src(c, i, QN_REASON_MISSING, -1, 0, 0);
        QN_TRY(qn_need_contiguous(c, i));
    }
    return QN_OK;
}

/* The body takes the sources from `first` on, whole. */
static qn_status need_inputs(qn_infer_call *c, const char *name, const qn_body *body, int first) {
    int n = body->is->n_in(body);
    if (n != c->n_src - first) return qn_reject_attr(c, name, QN_REASON_BODY_INPUTS, -1, c->n_src - first, n);
    for (int i = 0; i < n; i++) QN_TRY(need_taken(c, first + i, body, i, 0));
    return QN_OK;
}

/* Inputs from `first` on are read where they lie, so nothing in the body may write there. */
static qn_status need_unharmed(qn_infer_call *c, const qn_body *body, int first, int slot) {
    for (int i = first; i < body->is->n_in(body); i++)
        if (body->is->updates(body, i)) return qn_reject_src(c, slot + i, QN_REASON_BODY_UPDATES, -1, 0, 0);
    return QN_OK;
}

/* Output i of the body replaces source i. */
static qn_status need_replaced(qn_infer_call *c, const qn_body *body, int i) {
    const qn_tensor *t = c->src[i];
    qn_shape made = body->is->out(body, i);
    if (t->dtype != made.dtype) return qn_reject_src(c, i, QN_REASON_BODY_GIVES_DTYPE, -1, made.dtype, t->dtype);
    if (t->rank != made.rank) return qn_reject_src(c, i, QN_REASON_BODY_GIVES_RANK, -1, made.rank, t->rank);
    for (int k = 0; k < made.rank; k++)
        if (t->shape[k] != made.d[k]) return qn_reject_src(c, i, QN_REASON_BODY_GIVES_EXTENT, k, made.d[k], t->shape[k]);
    return QN_OK;
}

static int64_t elements(const qn_shape *s) {
    int64_t n = s->rank > 0;
    for (int k = 0; k < s->rank; k++)
        if (qn_mul_overflow(n, s->d[k], &n)) return -1;
    return n;
}

/* ---- cond */

qn_status qn_infer_cond(qn_infer_call *c) {
    const qn_attr_cond *at = c->attr;
    const qn_body *yes = qn_body_of(at->then_body), *no = qn_body_of(at->else_body);
    QN_TRY(need_sources(c));
    if (qn_tensor_count(c->src[0]) != 1) return qn_reject_src(c, 0, QN_REASON_SHAPE_COUNT, -1, 1, qn_tensor_count(c->src[0]));
    QN_TRY(need_inputs(c, "then_body", yes, 1));
    QN_TRY(need_inputs(c, "else_body", no, 1));
    QN_TRY(need_unharmed(c, yes, 0, 1));
    QN_TRY(need_unharmed(c, no, 0, 1));
    int n = yes->is->n_out(yes);
    if (n < 1) return qn_reject_attr(c, "then_body", QN_REASON_BODY_OUTPUTS_LOW, -1, 1, n);
    if (n > QN_MAX_DST) return qn_reject_attr(c, "then_body", QN_REASON_BODY_OUTPUTS_HIGH, -1, QN_MAX_DST, n);
    if (no->is->n_out(no) != n) return qn_reject_attr(c, "else_body", QN_REASON_BODY_OUTPUTS, -1, n, no->is->n_out(no));
    for (int i = 0; i < n; i++) {
        qn_shape a = yes->is->out(yes, i), b = no->is->out(no, i);
        if (a.dtype != b.dtype) return qn_reject_out(c, i, QN_REASON_BODY_GIVES_DTYPE, -1, b.dtype, a.dtype);
        if (a.rank != b.rank || a.rank < 1) return qn_reject_out(c, i, QN_REASON_BODY_GIVES_RANK, -1, b.rank, a.rank);
        for (int k = 0; k < a.rank; k++)
            if (a.d[k] != b.d[k]) return qn_reject_out(c, i, QN_REASON_BODY_GIVES_EXTENT, k, b.d[k], a.d[k]);
        QN_TRY(qn_out_shape(c, i, a.dtype, a.rank, a.d));
    }
    return QN_OK;
}

/* ---- while_loop */

qn_status qn_infer_while_loop(qn_infer_call *c) {
    const qn_attr_while_loop *at = c->attr;
    const qn_body *test = qn_body_of(at->test), *body = qn_body_of(at->body);
    QN_TRY(need_sources(c));
    QN_TRY(need_inputs(c, "test", test, 0));
    QN_TRY(need_unharmed(c, test, 0, 0));
    if (test->is->n_out(test) != 1) return qn_reject_attr(c, "test", QN_REASON_BODY_OUTPUTS, -1, 1, test->is->n_out(test));
    qn_shape verdict = test->is->out(test, 0);
    if (elements(&verdict) != 1) return qn_reject_attr(c, "test", QN_REASON_SHAPE_COUNT, -1, 1, elements(&verdict));
    if (verdict.dtype > QN_DTYPE_BOOL) /* not a number, nor a truth */
        return qn_reject_attr(c, "test", QN_REASON_DTYPE_CLASS, -1, 0, verdict.dtype);
    QN_TRY(need_inputs(c, "body", body, 0));
    int n = body->is->n_out(body);
    if (n < 1) return qn_reject_attr(c, "body", QN_REASON_BODY_OUTPUTS_LOW, -1, 1, n);
    if (n > c->n_src) return qn_reject_attr(c, "body", QN_REASON_BODY_OUTPUTS, -1, c->n_src, n);
    QN_TRY(need_unharmed(c, body, n, 0));
    for (int i = 0; i < n; i++) {
        QN_TRY(need_replaced(c, body, i));
        qn_out_like(c, i, c->src[i], c->src[i]->dtype);
    }
    return QN_OK;
}

/* ---- scan_loop */

qn_scan_parts qn_scan_parts_of(const qn_attr_scan_loop *at, int n_src, int64_t first_axis_of_xs) {
    const qn_body *body = qn_body_of(at->body);
    return (qn_scan_parts){at->n_carry, at->n_xs, n_src - at->n_carry - at->n_xs, body->is->n_out(body) - at->n_carry,
                           at->n_xs ? first_axis_of_xs : at->length};
}

/* A shape with the trips as a new first axis. */
static qn_status out_stacked(qn_infer_call *c, int i, uint32_t dtype, int rank, const int64_t *d, int64_t trips) {
    int64_t stacked[QN_MAX_RANK] = {trips};
    if (rank == QN_MAX_RANK) return qn_reject_out(c, i, QN_REASON_BODY_RANK, -1, QN_MAX_RANK, rank + 1);
    memcpy(stacked + 1, d, sizeof *d * (size_t)rank);
    return qn_out_shape(c, i, dtype, rank + 1, stacked);
}

static qn_status need_slices(qn_infer_call *c, const qn_attr_scan_loop *at, const qn_body *body) {
    int end = at->n_carry + at->n_xs;
    if (body->is->n_in(body) != c->n_src)
        return qn_reject_attr(c, "body", QN_REASON_BODY_INPUTS, -1, c->n_src, body->is->n_in(body));
    if (end > c->n_src) return qn_reject_attr(c, "n_xs", QN_REASON_ATTR_CONFLICT, -1, c->n_src, end);
    for (int i = 0; i < c->n_src; i++) {
        int sliced = i >= at->n_carry && i < end;
        if (sliced && c->src[i]->rank < 2) return qn_reject_src(c, i, QN_REASON_SHAPE_RANK_LOW, -1, 2, c->src[i]->rank);
        QN_TRY(need_taken(c, i, body, i, sliced));
    }
    if (at->n_xs == 0 && at->length < 0) return qn_reject_attr(c, "length", QN_REASON_ATTR_MISSING, -1, 0, 0);
    int64_t trips = at->length >= 0 ? at->length : c->src[at->n_carry]->shape[0];
    for (int i = at->n_carry; i < end; i++)
        if (c->src[i]->shape[0] != trips) return qn_reject_src(c, i, QN_REASON_SHAPE_EXTENT, 0, trips, c->src[i]->shape[0]);
    return QN_OK;
}

qn_status qn_infer_scan_loop(qn_infer_call *c) {
    const qn_attr_scan_loop *at = c->attr;
    const qn_body *body = qn_body_of(at->body);
    QN_TRY(need_sources(c));
    QN_TRY(need_slices(c, at, body));
    QN_TRY(need_unharmed(c, body, at->n_carry, 0));
    qn_scan_parts p = qn_scan_parts_of(at, c->n_src, at->n_xs ? c->src[at->n_carry]->shape[0] : 0);
    int least = p.n_carry > 0 ? p.n_carry : 1;
    if (p.n_ys + p.n_carry < least) return qn_reject_attr(c, "body", QN_REASON_BODY_OUTPUTS_LOW, -1, least, p.n_ys + p.n_carry);
    if (p.n_ys + p.n_carry > QN_MAX_DST)
        return qn_reject_attr(c, "body", QN_REASON_BODY_OUTPUTS_HIGH, -1, QN_MAX_DST, p.n_ys + p.n_carry);
    for (int i = 0; i < p.n_carry; i++) {
        QN_TRY(need_replaced(c, body, i));
        qn_out_like(c, i, c->src[i], c->src[i]->dtype);
    }
    for (int i = p.n_carry; i < p.n_carry + p.n_ys; i++) {
        qn_shape y = body->is->out(body, i);
        if (y.rank < 1) return qn_reject_out(c, i, QN_REASON_BODY_GIVES_RANK, -1, 1, y.rank);
        QN_TRY(out_stacked(c, i, y.dtype, y.rank, y.d, p.length));
    }
    /* Trajectories are for those who ask: carries of full rank, or too many of them, simply cannot be asked for. */
    for (int i = 0, at_out = p.n_carry + p.n_ys; i < p.n_carry && at_out < QN_MAX_DST; i++, at_out++) {
        const qn_tensor *t = c->src[i];
        if (t->rank == QN_MAX_RANK) break;
        QN_TRY(out_stacked(c, at_out, t->dtype, t->rank, t->shape, p.length));
    }
    return QN_OK;
}

/* ---- References: the dispatcher refuses ops with bodies and a plan runs the bodies itself, so nobody calls these. */

qn_status qn_ref_cond(const qn_call *c) { return c ? QN_UNSUPPORTED : QN_ARGUMENT; }
qn_status qn_ref_while_loop(const qn_call *c) { return c ? QN_UNSUPPORTED : QN_ARGUMENT; }
qn_status qn_ref_scan_loop(const qn_call *c) { return c ? QN_UNSUPPORTED : QN_ARGUMENT; }
