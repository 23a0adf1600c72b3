/* The tape: a list of what a formula emitted, short enough for a stack, and the walk back over it. */
#include "op/op_tape.h"

static qn_status record(void *self, int op, int subop, int n_src, const qn_val *src, const void *attr, int n_out, qn_val *out) {
    qn_op_tape *t = self;
    QN_TRY(t->under->apply(t->under->self, op, subop, n_src, src, attr, n_out, out));
    if (t->paused) return QN_OK;
    size_t bytes = attr ? qn_op_describe(op)->attr_bytes : 0, room = (bytes + 15) / 16 * 16;
    if (t->n == QN_OP_TAPE_STEPS || room > sizeof t->pool - t->used || n_src > QN_OP_TAPE_SRC || n_out > QN_OP_TAPE_DST)
        return QN_NO_MEMORY;
    qn_op_tape_step *s = &t->step[t->n++];
    *s = (qn_op_tape_step){.op = op, .subop = subop, .n_src = n_src, .n_out = n_out};
    if (attr) s->attr = memcpy(t->pool + t->used, attr, bytes);
    t->used += room;
    for (int i = 0; i < QN_OP_TAPE_SRC; i++) s->src[i] = i < n_src ? src[i] : QN_VAL_NONE;
    for (int i = 0; i < QN_OP_TAPE_DST; i++) s->out[i] = i < n_out ? out[i] : QN_VAL_NONE;
    return QN_OK;
}

static const qn_shape *shape_of(void *self, qn_val value) {
    const qn_op_tape *t = self;
    return t->under->shape(t->under->self, value);
}

static int strides_of(void *self, qn_val value, int64_t *stride) {
    const qn_op_tape *t = self;
    return t->under->strides(t->under->self, value, stride);
}

static int is_among(qn_val value, int n, const qn_val *list) {
    for (int i = 0; i < n; i++)
        if (list[i] == value && value != QN_VAL_NONE) return 1;
    return 0;
}

/* Whether a value depends on one of `by`. Steps marked so far are all that come before. */
static int varies(const qn_op_tape *t, int before, qn_val value, int n_by, const qn_val *by) {
    if (value == QN_VAL_NONE) return 0;
    if (is_among(value, n_by, by)) return 1;
    for (int k = before - 1; k >= 0; k--)
        if (is_among(value, t->step[k].n_out, t->step[k].out)) return t->step[k].varies;
    return 0;
}

typedef struct back {
    qn_op_tape *t;
    int steps; /* on the tape when the walk began: it adds more */
    int n_by;
    const qn_val *by;
    qn_val *out;
} back;

static void add_up(qn_vjp_call *v, qn_val *sum, qn_val more) { *sum = *sum == QN_VAL_NONE ? more : qn_e_add(v, *sum, more); }

static void add_to(const back *b, qn_vjp_call *v, qn_val value, qn_val more) {
    if (value == QN_VAL_NONE || more == QN_VAL_NONE) return;
    more = qn_e_cast(v, more, qn_shape_of(v, value).dtype);
    for (int i = 0; i < b->n_by; i++)
        if (b->by[i] == value) { /* in two slots it is one value: the first gets all of it, unless they were set apart */
            add_up(v, &b->out[i], more);
            break;
        }
    for (int k = 0; k < b->steps; k++)
        for (int i = 0; i < b->t->step[k].n_out; i++)
            if (b->t->step[k].out[i] == value) add_up(v, &b->t->step[k].grad[i], more);
}

static void visit(const back *b, qn_vjp_call *v, int number) {
    const qn_op_tape_step s = b->t->step[number];
    const qn_op_info *info = qn_op_describe(s.op);
    qn_vjp_call c = {.emitter = v->emitter,
                     .op = s.op,
                     .subop = s.subop,
                     .attr = s.attr ? s.attr : info->attr_default,
                     .n_src = s.n_src,
                     .n_dst = s.n_out};
    int reached = 0, wanted = 0;
    for (int i = 0; i < QN_MAX_SRC; i++) {
        c.src[i] = i < s.n_src ? s.src[i] : QN_VAL_NONE;
        c.out[i] = QN_VAL_NONE;
        c.want[i] = i < s.n_src && varies(b->t, number, s.src[i], b->n_by, b->by) &&
                    !(info->src[i].flags & (QN_SLOT_INDEX | QN_SLOT_SHAPE)) && qn_is_float(qn_shape_of(v, s.src[i]).dtype);
        wanted |= c.want[i];
    }
    for (int i = 0; i < QN_MAX_DST; i++) {
        c.dst[i] = i < s.n_out ? s.out[i] : QN_VAL_NONE;
        c.grad[i] = i < s.n_out ? s.grad[i] : QN_VAL_NONE;
        reached |= c.grad[i] != QN_VAL_NONE;
    }
    if (!wanted || !reached || v->status != QN_OK) return;
    qn_vjp_fn rule = qn_op_rules_of(s.op)->vjp;
    if (!rule) {
        qn_vjp_refuse(v, -1, info->no_gradient);
        return;
    }
    rule(&c);
    v->status = c.status;
    v->why = c.why;
    v->why_slot = -1; /* it is a source of the formula's op, not of the rule's */
    for (int i = 0; i < s.n_src; i++)
        if (c.want[i]) add_to(b, v, s.src[i], c.out[i]);
}

void qn_op_tape_back(qn_op_tape *t, qn_vjp_call *v, int n, const qn_val *of, const qn_val *up, int n_by, const qn_val *by,
                     qn_val *out) {
    const back b = {t, t->n, n_by, by, out};
    for (int i = 0; i < n_by; i++) out[i] = QN_VAL_NONE;
    for (int k = 0; k < b.steps; k++) {
        qn_op_tape_step *s = &t->step[k];
        s->varies = 0;
        for (int i = 0; i < s->n_src; i++) s->varies |= varies(t, k, s->src[i], n_by, by);
        for (int i = 0; i < QN_OP_TAPE_DST; i++) s->grad[i] = QN_VAL_NONE;
    }
    for (int i = 0; i < n; i++) add_to(&b, v, of[i], up[i]);
    for (int k = b.steps - 1; k >= 0 && v->status == QN_OK; k--) visit(&b, v, k);
}

void qn_op_tape_apart(qn_vjp_call *v, int n, qn_val *by) {
    for (int i = 0; i < n; i++) {
        qn_val shared = by[i];
        if (!is_among(shared, n - i - 1, by + i + 1)) continue;
        for (int k = i; k < n; k++) /* the first as well: the others would be made of it */
            if (by[k] == shared) by[k] = qn_e_like(v, shared, shared);
    }
}

void qn_op_vjp_of_formula(qn_vjp_call *v, qn_op_formula formula) {
    qn_op_tape t;
    qn_val of[QN_MAX_DST], by[QN_MAX_SRC];
    t.under = v->emitter;
    t.emitter = (qn_emitter){&t, record, shape_of, v->emitter->graph, v->emitter->strides ? strides_of : NULL};
    t.n = t.paused = 0;
    t.used = 0;
    for (int i = 0; i < QN_MAX_DST; i++) of[i] = QN_VAL_NONE;
    for (int i = 0; i < QN_MAX_SRC; i++) by[i] = v->want[i] ? v->src[i] : QN_VAL_NONE;
    v->emitter = &t.emitter;
    formula(v, &t, of);
    t.paused = 1; /* nothing comes after the last walk */
    qn_op_tape_back(&t, v, v->n_dst, of, v->grad, v->n_src, by, v->out);
    v->emitter = t.under;
}

qn_val qn_op_wide(qn_vjp_call *v, qn_val x) {
    if (x == QN_VAL_NONE) return x;
    return qn_e_cast(v, x, qn_shape_of(v, x).dtype == QN_DTYPE_F64 ? QN_DTYPE_F64 : QN_DTYPE_F32);
}
