/* Steps with bodies. Each body has a schedule of its own; its memory is the step's scratch, so that the largest requirement of all is
 * what the plan allocates and a cap covers it. What a body takes and gives is not copied where that can be helped: its inputs, and those
 * of its results that are whole values of their own, are aimed at the memory outside when the step runs. */
#include "plan/bodies.h"

#include "op/body.h"

/* ---- Ports */

static int add_aimed(qn_schedule *p, qn_plan_body *b, qn_val root, qn_plan_port *port) {
    const qn_schedule *x = b->schedule;
    *port = (qn_plan_port){root, (int32_t)b->aimed.n, 0};
    if (root == QN_VAL_NONE) return 1;
    for (size_t v = 0; v < x->graph->values.n; v++) {
        if (x->slots[v].root != root) continue;
        if (!QN_VEC_ROOM(&p->arena, &b->aimed, 1)) return 0;
        b->aimed.at[b->aimed.n++] = (qn_val)v;
        port->n++;
    }
    return 1;
}

/* An output's root when the body may write it where it goes. */
static qn_val direct_root(const qn_schedule *x, size_t i) {
    qn_val root = x->slots[x->graph->outputs.at[i].value].root;
    return x->slots[root].direct == (int32_t)i + 1 ? root : QN_VAL_NONE;
}

static int make_ports(qn_schedule *p, qn_plan_body *b) {
    const qn_graph *g = b->schedule->graph;
    b->in = qn_arena_alloc(&p->arena, g->inputs.n, sizeof *b->in);
    b->out = qn_arena_alloc(&p->arena, g->outputs.n, sizeof *b->out);
    if (!b->in || !b->out) return 0;
    for (size_t i = 0; i < g->inputs.n; i++)
        if (!add_aimed(p, b, g->inputs.at[i], &b->in[i])) return 0;
    for (size_t i = 0; i < g->outputs.n; i++)
        if (!add_aimed(p, b, direct_root(b->schedule, i), &b->out[i])) return 0;
    return 1;
}

void qn_plan_aim(const qn_plan_body *b, const qn_plan_port *port, void *data) {
    for (int32_t i = 0; i < port->n; i++) b->schedule->tensors[b->aimed.at[port->first + i]].data = data;
}

/* Results that a body may write where they go: whole values of their own, each under one name. Their memory is not the arena's. */
void qn_plan_free_outputs(qn_schedule *p, int n) {
    for (int i = 0; i < n && i < (int)p->graph->outputs.n; i++) {
        qn_val v = p->graph->outputs.at[i].value;
        qn_plan_slot *root = &p->slots[p->slots[v].root];
        if (root->storage != QN_STORAGE_ARENA || !p->slots[v].dense || p->slots[v].bytes != root->bytes) continue;
        root->storage = QN_STORAGE_INPUT;
        root->direct = i + 1;
    }
}

/* ---- Making */

static qn_status add_body(qn_schedule *p, qn_plan_step *s, int attr, const qn_schedule_options *o, int n_direct,
                          qn_error *error) {
    const qn_op_info *info = qn_op_describe(s->call.op);
    qn_plan_control *c = s->control;
    qn_plan_body *b = &c->body[c->n_bodies];
    qn_schedule_options inside = {.flags = o->flags | QN_PLAN_NO_PASSES, /* they ran in bodies when they ran outside */
                                  .cpu_levels = o->cpu_levels,
                                  .is_body = 1,
                                  .n_direct = n_direct};
    if (qn_schedule_create(qn_ir_body(info, attr, s->call.attr), &inside, &b->schedule, error) != QN_OK)
        return qn_error_wrap(error, "node %d: %s: %s", s->node, info->name, info->attr[attr].name);
    c->n_bodies++;
    b->name = info->attr[attr].name;
    if (!make_ports(p, b)) return qn_error_set(error, QN_NO_MEMORY, "no memory for a body");
    const qn_plan_totals *t = &b->schedule->totals;
    uint64_t bytes = qn_plan_sum(qn_plan_padded(t->arena_bytes), qn_plan_padded(t->scratch_bytes));
    if (bytes > c->body_bytes) c->body_bytes = bytes;
    p->totals.constant_bytes += t->constant_bytes;
    p->totals.n_native += t->n_native;
    p->totals.n_reference += t->n_reference;
    p->n_body_steps += t->n_steps;
    return QN_OK;
}

/* Room for what is carried, twice: one is read while the other is written. */
static void place_carries(qn_plan_step *s, int n) {
    qn_plan_control *c = s->control;
    uint64_t at = c->body_bytes;
    for (int half = 0; half < 2; half++)
        for (int i = 0; i < n; i++) {
            uint64_t bytes = 0;
            qn_tensor_bytes((qn_dtype)s->src[i]->dtype, s->src[i]->rank, s->src[i]->shape, &bytes);
            c->carry[half][i] = at;
            at = qn_plan_sum(at, qn_plan_padded(bytes));
        }
    c->n_carry = n;
    c->bytes = at;
}

/* ---- What bodies are for: how many of the first sources they replace, and which of them give what the step gives. */

static int cond_carries(const void *attr) {
    (void)attr;
    return 0;
}

static int while_carries(const void *attr) {
    const qn_body *body = qn_body_of(((const qn_attr_while_loop *)attr)->body);
    return body->is->n_out(body);
}

static int scan_carries(const void *attr) { return ((const qn_attr_scan_loop *)attr)->n_carry; }

static const struct {
    int (*n_carry)(const void *attr);
    uint8_t gives[QN_PLAN_BODIES];
} purposes[QN_OP_COUNT] = {
    [QN_OP_cond] = {cond_carries, {1, 1}}, [QN_OP_while_loop] = {while_carries, {0, 1}}, [QN_OP_scan_loop] = {scan_carries, {1}}};

qn_status qn_plan_control_create(qn_schedule *p, qn_plan_step *s, const qn_schedule_options *o, qn_error *error) {
    const qn_op_info *info = qn_op_describe(s->call.op);
    if (!purposes[s->call.op].n_carry)
        return qn_error_set(error, QN_UNSUPPORTED, "node %d: %s cannot be planned", s->node, info->name);
    int n = purposes[s->call.op].n_carry(s->call.attr), given = n > s->call.n_dst ? n : s->call.n_dst;
    s->flops = 0; /* its bodies' steps have theirs */
    s->bytes = 0;
    s->control = qn_arena_alloc(&p->arena, 1, sizeof *s->control);
    if (!s->control) return qn_error_set(error, QN_NO_MEMORY, "no memory for a body");
    for (int i = 0, k = 0; i < info->n_attr; i++)
        if (info->attr[i].kind == QN_ATTR_KIND_body)
            QN_TRY(add_body(p, s, i, o, purposes[s->call.op].gives[k++] ? given : 0, error));
    place_carries(s, n);
    if (s->control->bytes > p->scratch) p->scratch = s->control->bytes;
    return QN_OK;
}

void qn_plan_control_destroy(qn_plan_control *c) {
    for (int i = 0; c && i < c->n_bodies; i++) qn_schedule_destroy(c->body[i].schedule);
}

/* Inputs and direct outputs are aimed when the step runs. */
static void *nowhere(void *user, qn_val leaf) {
    (void)user;
    (void)leaf;
    return NULL;
}

void qn_plan_control_point(qn_plan_control *c, void *scratch) {
    c->workspace = scratch;
    for (int i = 0; i < c->n_bodies; i++) {
        qn_schedule *x = c->body[i].schedule;
        qn_schedule_point(x, scratch, (char *)scratch + qn_plan_padded(x->totals.arena_bytes), nowhere, NULL);
    }
}
