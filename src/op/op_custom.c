/* The user's own functions: map_custom1 to 3, custom, and custom_back for their gradients; user_op, whose record brings its own
 * guard and shape rule as well, and user_op_back. A callback sees exactly the tensors of the request; what it does with them is
 * the user's affair, that it is there and how often it runs is ours. */
#include "op/op_emit.h"
#include "op/ref.h"

/* ---- Shape rules */

/* The fields all four forward ops begin with. */
static qn_attr_map_custom1 head_of(const void *attr) {
    qn_attr_map_custom1 head;
    _Static_assert(sizeof(qn_attr_map_custom2) == sizeof head && sizeof(qn_attr_map_custom3) == sizeof head &&
                       offsetof(qn_attr_custom, n_tasks) == offsetof(qn_attr_map_custom1, n_tasks),
                   "the custom ops share their first fields");
    memcpy(&head, attr, offsetof(qn_attr_map_custom1, n_tasks) + sizeof head.n_tasks);
    return head;
}

static qn_status need_callback(qn_infer_call *c) {
    qn_attr_map_custom1 at = head_of(c->attr);
    if (!at.fn) return qn_reject_attr(c, "fn", QN_REASON_CALLBACK_MISSING, -1, 0, 0);
    if (at.n_tasks == 0) return qn_reject_attr(c, "n_tasks", QN_REASON_ATTR_CHOICE, -1, 1, 0);
    return QN_OK;
}

qn_status qn_infer_map_custom(qn_infer_call *c) {
    QN_TRY(need_callback(c));
    qn_out_like(c, 0, c->src[0], c->src[0]->dtype);
    return QN_OK;
}

qn_status qn_infer_custom(qn_infer_call *c) {
    const qn_attr_custom *at = c->attr;
    QN_TRY(need_callback(c));
    for (int i = 0; i < at->shape.rank; i++)
        if (at->shape.d[i] < 0) return qn_reject_attr(c, "shape", QN_REASON_NEGATIVE_EXTENT, i, 0, at->shape.d[i]);
    return qn_out_shape(c, 0, (uint32_t)at->dtype, at->shape.rank, at->shape.d);
}

qn_status qn_infer_custom_back(qn_infer_call *c) {
    const qn_attr_custom_back *at = c->attr;
    if (!at->backward) return qn_reject_attr(c, "backward", QN_REASON_CALLBACK_MISSING, -1, 0, 0);
    int slot = 1 + at->wanted;
    if (!c->src[slot]) return qn_reject_src(c, slot, QN_REASON_MISSING, -1, 0, 0);
    qn_out_like(c, 0, c->src[slot], c->src[slot]->dtype);
    return QN_OK;
}

/* ---- References. What a callback returns is passed on as it is: the dispatcher reports it as QN_USER with that number. */

/* "As many tasks as there are threads" is one here: the reference has one. */
static qn_status call_tasks(const qn_call *c) {
    qn_attr_map_custom1 at = head_of(c->attr);
    int n = at.n_tasks < 0 ? 1 : at.n_tasks;
    for (int task = 0; task < n; task++) QN_TRY(at.fn(at.user, c->dst[0], c->n_src, c->src, task, n));
    return QN_OK;
}

qn_status qn_ref_map_custom1(const qn_call *c) { return call_tasks(c); }
qn_status qn_ref_map_custom2(const qn_call *c) { return call_tasks(c); }
qn_status qn_ref_map_custom3(const qn_call *c) { return call_tasks(c); }
qn_status qn_ref_custom(const qn_call *c) { return call_tasks(c); }

qn_status qn_ref_custom_back(const qn_call *c) {
    const qn_attr_custom_back *at = c->attr;
    return at->backward(at->user, c->dst[0], at->wanted, c->n_src - 1, c->src + 1, c->src[0]);
}

/* ---- Gradient */

void qn_vjp_custom(qn_vjp_call *v) {
    qn_attr_map_custom1 at = head_of(v->attr);
    qn_attr_custom_back back = qn_attr_custom_back_default();
    qn_val src[QN_MAX_SRC];
    src[0] = v->grad[0];
    for (int i = 0; i < v->n_src; i++) src[1 + i] = v->src[i];
    back.backward = at.backward;
    back.user = at.user;
    for (int i = 0; i < v->n_src; i++) {
        if (!v->want[i]) continue;
        if (!at.backward) {
            v->status = QN_INVALID; /* without the user's gradient there is none, and zero would be a lie */
            return;
        }
        back.wanted = i;
        qn_emit_many(v, QN_OP_custom_back, 0, &back, 1 + v->n_src, src, 1, &v->out[i]);
    }
}

/* ---- user_op: everything comes from the record. */

enum { USER_SRC = 8, USER_DST = 4, USER_TASKS = 4096 };

static qn_status need_definition(qn_infer_call *c, qn_user_definition d) {
    if (!d || !d->shape || !d->run) return qn_reject_attr(c, "definition", QN_REASON_CALLBACK_MISSING, -1, 0, 0);
    if (d->n_src < 0 || d->n_src > USER_SRC || d->n_dst < 1 || d->n_dst > USER_DST || d->n_tasks < 1 || d->n_tasks > USER_TASKS)
        return qn_reject_attr(c, "definition", QN_REASON_ATTR_CHOICE, -1, 0,
                              d->n_src < 0 || d->n_src > USER_SRC ? d->n_src : d->n_dst);
    return QN_OK;
}

qn_status qn_infer_user_op(qn_infer_call *c) {
    qn_user_definition d = ((const qn_attr_user_op *)c->attr)->definition;
    qn_tensor out[USER_DST];
    QN_TRY(need_definition(c, d));
    for (int i = d->n_src; i < c->n_src; i++)
        if (c->src[i]) return qn_reject_src(c, i, QN_REASON_NOT_TAKEN, -1, 0, 0);
    memset(out, 0, sizeof out);
    qn_status status = d->shape(d->user, d->n_src, c->src, out);
    if (status != QN_OK) return qn_reject_attr(c, "definition", QN_REASON_CALLBACK, -1, QN_OK, status);
    for (int i = 0; i < d->n_dst; i++) {
        if (out[i].dtype == 0 || out[i].dtype >= QN_DTYPE_COUNT)
            return qn_reject_out(c, i, QN_REASON_UNKNOWN_DTYPE, -1, 0, (int64_t)out[i].dtype);
        if (out[i].rank < 1 || out[i].rank > QN_MAX_RANK)
            return qn_reject_out(c, i, QN_REASON_RANK, -1, QN_MAX_RANK, out[i].rank);
        QN_TRY(qn_out_shape(c, i, out[i].dtype, out[i].rank, out[i].shape));
    }
    return QN_OK;
}

qn_status qn_infer_user_op_back(qn_infer_call *c) {
    const qn_attr_user_op_back *at = c->attr;
    QN_TRY(need_definition(c, at->definition));
    if (!at->definition->backward) return qn_reject_attr(c, "definition", QN_REASON_CALLBACK_MISSING, -1, 0, 0);
    int slot = USER_DST + at->wanted;
    if (slot >= c->n_src || !c->src[slot]) return qn_reject_src(c, slot, QN_REASON_MISSING, -1, 0, 0);
    qn_out_like(c, 0, c->src[slot], c->src[slot]->dtype);
    return QN_OK;
}

qn_status qn_ref_user_op(const qn_call *c) {
    qn_user_definition d = ((const qn_attr_user_op *)c->attr)->definition;
    for (int task = 0; task < d->n_tasks; task++) QN_TRY(d->run(d->user, d->n_src, c->src, d->n_dst, c->dst, task, d->n_tasks));
    return QN_OK;
}

qn_status qn_ref_user_op_back(const qn_call *c) {
    const qn_attr_user_op_back *at = c->attr;
    qn_user_definition d = at->definition;
    return d->backward(d->user, at->wanted, d->n_src, c->src + USER_DST, d->n_dst, c->src, c->dst[0]);
}

void qn_vjp_user_op(qn_vjp_call *v) {
    qn_attr_user_op_back at = qn_attr_user_op_back_default();
    qn_val src[USER_DST + USER_SRC];
    at.definition = ((const qn_attr_user_op *)v->attr)->definition;
    for (int i = 0; i < USER_DST; i++) src[i] = i < v->n_dst ? v->grad[i] : QN_VAL_NONE;
    for (int i = 0; i < USER_SRC; i++) src[USER_DST + i] = i < v->n_src ? v->src[i] : QN_VAL_NONE;
    for (int i = 0; i < v->n_src; i++) {
        if (!v->want[i]) continue;
        if (!at.definition->backward) {
            qn_vjp_refuse(v, i, "its definition has no gradient");
            return;
        }
        at.wanted = i;
        qn_emit_many(v, QN_OP_user_op_back, 0, &at, USER_DST + USER_SRC, src, 1, &v->out[i]);
    }
}
