/* The walk that batches a graph. What a rule proposes is shown to the op before anything is added: a proposal the op does not
 * take, or that would give too few elements, is dropped, and the node is run item by item, which is always right. */
#include "grad/vmap.h"

#include <stdio.h>

/* ---- Adding nodes */

static qn_val add_op(qn_vmap *m, int op, int n_src, const qn_val *src, const void *attr) {
    return qn_graph_op(m->to, op, 0, n_src, src, attr);
}

static int same_dims(const qn_shape *a, const qn_shape *b) {
    int same = a->rank == b->rank;
    for (int k = 0; same && k < a->rank; k++) same = a->d[k] == b->d[k];
    return same;
}

static qn_val reshape(qn_vmap *m, qn_val x, const qn_shape *to) {
    qn_attr_reshape at = qn_attr_reshape_default();
    if (x == QN_VAL_NONE || same_dims(&m->to->values.at[x].shape, to)) return x;
    at.shape.rank = to->rank;
    memcpy(at.shape.d, to->d, sizeof at.shape.d);
    return add_op(m, QN_OP_reshape, 1, &x, &at);
}

static qn_val stretch(qn_vmap *m, qn_val x, const qn_shape *wide) {
    qn_attr_expand at = qn_attr_expand_default();
    qn_shape one = *wide;
    one.d[0] = 1;
    x = reshape(m, x, &one);
    at.shape.rank = wide->rank;
    memcpy(at.shape.d, wide->d, sizeof at.shape.d);
    return x == QN_VAL_NONE ? x : add_op(m, QN_OP_expand, 1, &x, &at);
}

static qn_shape with_batch(const qn_shape *item, int64_t batch) {
    qn_shape s = *item;
    s.rank = item->rank + 1;
    memmove(s.d + 1, item->d, sizeof *s.d * (size_t)item->rank);
    s.d[0] = batch;
    return s;
}

static int64_t count_of(const qn_shape *s) {
    int64_t n = 1;
    for (int k = 0; k < s->rank; k++) n *= s->d[k];
    return n;
}

/* ---- By rule */

int qn_vmap_lead(qn_vmap_call *c, int i, int rank) {
    const qn_shape *item = &c->item[i];
    if (rank < item->rank || rank + 1 > QN_MAX_RANK) return 0;
    qn_shape *as = &c->as[i];
    as->dtype = item->dtype;
    as->rank = rank + 1;
    as->d[0] = c->m->batch;
    for (int k = 0; k < rank; k++) as->d[rank - k] = k < item->rank ? item->d[item->rank - 1 - k] : 1;
    c->expand[i] = !c->batched[i];
    c->wide[i] = *as;
    return 1;
}

int qn_vmap_fold(qn_vmap_call *c, int i, int rank) {
    if (!qn_vmap_lead(c, i, rank < 1 ? 1 : rank)) return 0;
    qn_shape *as = &c->as[i];
    if (qn_mul_overflow(as->d[0], as->d[1], &as->d[1])) return 0;
    as->rank--;
    memmove(as->d, as->d + 1, sizeof *as->d * (size_t)as->rank);
    return 1;
}

static qn_shape output_item(const qn_vmap_call *c, int i) {
    return c->m->from->values.at[c->m->from->nodes.at[c->node].out + i].shape;
}

/* Whether the op takes what the rule proposes and gives every item its part. */
static int is_taken(const qn_vmap_call *c) {
    const qn_shape *given[QN_MAX_SRC] = {0};
    qn_shape out[QN_MAX_DST];
    qn_result result;
    int n = 0;
    for (int i = 0; i < c->n_src; i++)
        if (c->src[i] != QN_VAL_NONE) given[i] = &c->as[i];
    memset(&result, 0, sizeof result);
    if (qn_ir_infer(c->op, c->subop, c->n_src, given, c->attr, out, &n, &result) != QN_OK || n < c->n_out) return 0;
    for (int i = 0; i < c->n_out; i++) {
        qn_shape item = output_item(c, i);
        if (out[i].dtype != item.dtype || count_of(&out[i]) != c->m->batch * count_of(&item)) return 0;
    }
    return 1;
}

/* The batch of a result to the front, when it is elsewhere, and the item's own axes behind it. */
static qn_val in_order(qn_vmap_call *c, qn_val y, int i) {
    qn_shape item = output_item(c, i), whole = with_batch(&item, c->m->batch);
    if (c->batch_axis > 0 && y != QN_VAL_NONE) {
        qn_attr_permute at = qn_attr_permute_default();
        at.axes.rank = c->m->to->values.at[y].shape.rank;
        at.axes.d[0] = c->batch_axis;
        for (int k = 0, n = 1; k < at.axes.rank; k++)
            if (k != c->batch_axis) at.axes.d[n++] = k;
        y = add_op(c->m, QN_OP_permute, 1, &y, &at);
    }
    return reshape(c->m, y, &whole);
}

static qn_status apply_rule(qn_vmap_call *c) {
    qn_vmap *m = c->m;
    qn_val src[QN_MAX_SRC], out[QN_MAX_DST];
    const qn_ir_node *n = &m->from->nodes.at[c->node];
    for (int i = 0; i < c->n_src; i++) {
        src[i] = c->src[i];
        if (src[i] == QN_VAL_NONE) continue;
        if (c->expand[i]) src[i] = stretch(m, src[i], &c->wide[i]);
        src[i] = reshape(m, src[i], &c->as[i]);
    }
    QN_TRY(m->to->error.status);
    QN_TRY(qn_graph_apply(m->to, c->op, c->subop, c->n_src, src, c->attr, c->n_out, out));
    for (int i = 0; i < c->n_out; i++) m->map[n->out + i] = in_order(c, out[i], i);
    m->report.n_batched++;
    return m->to->error.status;
}

/* ---- Item by item */

static qn_val item_of(qn_vmap_call *c, int i, int64_t number) {
    qn_attr_narrow at = qn_attr_narrow_default();
    if (c->src[i] == QN_VAL_NONE || !c->batched[i]) return c->src[i];
    at.axis = 0;
    at.start = number;
    at.length = 1;
    return reshape(c->m, add_op(c->m, QN_OP_narrow, 1, &c->src[i], &at), &c->item[i]);
}

/* One tensor of many, joined ten at a time until one is left. */
static qn_val join_all(qn_vmap *m, qn_val *parts, int64_t n) {
    enum { EACH = 10 };
    qn_attr_join at = qn_attr_join_default();
    at.axis = 0;
    while (n > 1) {
        int64_t made = 0;
        for (int64_t i = 0; i < n; i += EACH) {
            int some = (int)(n - i < EACH ? n - i : EACH);
            parts[made++] = some == 1 ? parts[i] : add_op(m, QN_OP_join, some, parts + i, &at);
        }
        n = made;
    }
    return parts[0];
}

static void run_items(qn_vmap_call *c, qn_val *parts) {
    qn_vmap *m = c->m;
    const qn_ir_node *n = &m->from->nodes.at[c->node];
    for (int64_t k = 0; k < m->batch && m->to->error.status == QN_OK; k++) {
        qn_val src[QN_MAX_SRC], out[QN_MAX_DST];
        for (int i = 0; i < n->n_src; i++) src[i] = item_of(c, i, k);
        if (qn_graph_apply(m->to, n->op, n->subop, n->n_src, src, n->attr, n->n_out, out) != QN_OK) return;
        for (int i = 0; i < n->n_out; i++) {
            qn_shape item = output_item(c, i), one = with_batch(&item, 1);
            parts[i * m->batch + k] = reshape(m, out[i], &one);
        }
    }
    for (int i = 0; i < n->n_out && m->to->error.status == QN_OK; i++)
        m->map[n->out + i] = join_all(m, parts + i * m->batch, m->batch);
}

static qn_status unroll(qn_vmap_call *c) {
    qn_vmap *m = c->m;
    char label[512];
    const char *of = qn_ir_string(m->from, m->from->nodes.at[c->node].label);
    if (m->batch > INT32_MAX / (c->n_out + 1))
        return qn_ir_fail(m->to, QN_INVALID, "node %d: %s has no rule for a batch, and %lld times is too often to run it",
                          c->node, c->info->name, (long long)m->batch);
    qn_val *parts = qn_arena_resize(&m->to->arena, NULL, (size_t)(m->batch * c->n_out) + 1, sizeof *parts);
    if (!parts) return qn_ir_fail(m->to, QN_NO_MEMORY, "no memory for %lld items", (long long)m->batch);
    snprintf(label, sizeof label, "unrolled%s%s", *of ? " / " : "", of);
    m->to->forced_label = qn_ir_text(m->to, label);
    run_items(c, parts);
    qn_arena_release(&m->to->arena, parts);
    if (m->report.n_unrolled++ == 0) m->report.first_unrolled = c->node;
    return m->to->error.status;
}

/* ---- The walk */

static void describe(qn_vmap *m, int32_t number, qn_vmap_call *c) {
    const qn_ir_node *n = &m->from->nodes.at[number];
    memset(c, 0, offsetof(qn_vmap_call, attr));
    c->m = m;
    c->node = number;
    c->op = n->op;
    c->subop = n->subop;
    c->n_src = n->n_src;
    c->n_out = n->n_out;
    c->info = qn_op_describe(n->op);
    memcpy(c->attr, n->attr ? n->attr : c->info->attr_default, c->info->attr_bytes);
    for (int i = 0; i < n->n_src; i++) {
        qn_val s = qn_ir_sources(m->from, n)[i];
        c->src[i] = s == QN_VAL_NONE ? QN_VAL_NONE : m->map[s];
        if (s == QN_VAL_NONE) continue;
        c->batched[i] = m->batched[s];
        c->as[i] = c->item[i] = m->from->values.at[s].shape;
        if (c->item[i].rank > c->rank) c->rank = c->item[i].rank;
    }
}

static qn_status check_node(const qn_vmap_call *c) {
    qn_vmap *m = c->m;
    for (int i = 0; i < c->n_src; i++)
        if (c->info->src[i].flags & QN_SLOT_STATE)
            return qn_ir_fail(m->to, QN_INVALID, "node %d: %s updates %s in place, which a batch cannot", c->node, c->info->name,
                              c->info->src[i].name);
    for (int i = 0; i < c->n_out; i++)
        if (output_item(c, i).rank + 1 > QN_MAX_RANK)
            return qn_ir_fail(m->to, QN_INVALID, "node %d: %s gives %d axes, there is no room for one more", c->node,
                              c->info->name, output_item(c, i).rank);
    return QN_OK;
}

static qn_status visit(qn_vmap *m, int32_t number) {
    const qn_ir_node *n = &m->from->nodes.at[number];
    qn_vmap_call c;
    qn_val out[QN_MAX_DST];
    int any = 0;
    describe(m, number, &c);
    m->to->forced_label = qn_ir_text(m->to, qn_ir_string(m->from, n->label));
    for (int i = 0; i < c.n_src; i++) any |= c.batched[i];
    for (int i = 0; i < c.n_out; i++) m->batched[n->out + i] = (uint8_t)any;
    if (!any) {
        QN_TRY(qn_graph_apply(m->to, n->op, n->subop, n->n_src, c.src, n->attr, n->n_out, out));
        for (int i = 0; i < n->n_out; i++) m->map[n->out + i] = out[i];
        m->report.n_shared++;
        return QN_OK;
    }
    QN_TRY(check_node(&c));
    qn_vmap_rule rule = c.info->n_body ? NULL : qn_vmap_rule_of(&c);
    int answer = rule ? rule(&c) : 0;
    if (answer < 0) {
        m->report.n_batched++;
        return m->to->error.status;
    }
    return answer && is_taken(&c) ? apply_rule(&c) : unroll(&c);
}

static qn_val copy_leaf(qn_vmap *m, qn_val number) {
    const qn_ir_value *v = &m->from->values.at[number];
    const char *name = qn_ir_string(m->from, v->name);
    qn_shape s = m->batched[number] ? with_batch(&v->shape, m->batch) : v->shape;
    if (v->kind == QN_VALUE_INPUT) return qn_graph_input(m->to, name, (qn_dtype)s.dtype, s.rank, s.d);
    if (v->kind == QN_VALUE_PARAM) return qn_graph_param(m->to, name, (qn_dtype)s.dtype, s.rank, s.d);
    const qn_ir_constant *data = &m->from->constants.at[v->data];
    return qn_graph_constant(m->to, (qn_dtype)s.dtype, s.rank, s.d, data->data, data->bytes);
}

static void walk(qn_vmap *m) {
    const qn_graph *g = m->from;
    for (size_t i = 0; i < g->values.n && m->to->error.status == QN_OK; i++) {
        if (g->values.at[i].kind != QN_VALUE_RESULT) m->map[i] = copy_leaf(m, (qn_val)i);
        else if (g->values.at[i].output == 0) visit(m, g->values.at[i].node);
    }
    m->to->forced_label = 0;
    for (size_t i = 0; i < g->outputs.n && m->to->error.status == QN_OK; i++) {
        qn_val v = g->outputs.at[i].value, y = m->map[v];
        qn_shape whole = with_batch(&g->values.at[v].shape, m->batch);
        if (!m->batched[v]) y = stretch(m, y, &whole);
        qn_graph_output(m->to, y, qn_ir_string(g, g->outputs.at[i].name));
    }
}

/* ---- The question */

static qn_status check_question(const qn_graph *g, int64_t batch, int n, const qn_val *which, qn_error *error) {
    char words[160];
    QN_TRY(qn_graph_error(g, error));
    if (g->symbols.n) return qn_error_set(error, QN_INVALID, "vmap: the graph has symbols; bind them first");
    if (batch < 1) return qn_error_set(error, QN_INVALID, "vmap: a batch of %lld", (long long)batch);
    for (int i = 0; i < n; i++) {
        if (which[i] < 0 || (size_t)which[i] >= g->values.n)
            return qn_error_set(error, QN_ARGUMENT, "vmap: value %d is none of this graph's", which[i]);
        const qn_ir_value *v = &g->values.at[which[i]];
        if (v->kind != QN_VALUE_INPUT && v->kind != QN_VALUE_PARAM)
            return qn_error_set(error, QN_INVALID, "vmap: %s is neither an input nor a param",
                                qn_ir_value_words(g, which[i], words, sizeof words));
        if (v->shape.rank + 1 > QN_MAX_RANK)
            return qn_error_set(error, QN_INVALID, "vmap: '%s' has %d axes, there is no room for one more",
                                qn_ir_string(g, v->name), v->shape.rank);
    }
    for (size_t i = 0; i < g->outputs.n; i++)
        if (g->values.at[g->outputs.at[i].value].shape.rank + 1 > QN_MAX_RANK)
            return qn_error_set(error, QN_INVALID, "vmap: output '%s' has as many axes as there may be",
                                qn_ir_string(g, g->outputs.at[i].name));
    return QN_OK;
}

qn_status qn_graph_vmap(const qn_graph *graph, int64_t batch, int n, const qn_val *which, qn_graph **out, qn_vmap_report *report,
                        qn_error *error) {
    if (!graph || !out || n < 0 || (n && !which) || (report && report->size != sizeof *report))
        return qn_error_set(error, QN_ARGUMENT, "vmap: a graph, and which of its leaves have the batch, are needed");
    *out = NULL;
    QN_TRY(check_question(graph, batch, n, which, error));
    qn_vmap m = {.from = graph, .batch = batch, .report = {.size = sizeof m.report, .first_unrolled = -1}};
    if (qn_graph_create(graph->arena.limit, &m.to) != QN_OK) return qn_error_set(error, QN_NO_MEMORY, "no memory for a graph");
    m.map = qn_arena_resize(&m.to->arena, NULL, graph->values.n + 1, sizeof *m.map);
    m.batched = qn_arena_resize(&m.to->arena, NULL, graph->values.n + 1, 1);
    if (m.map && m.batched) {
        memset(m.batched, 0, graph->values.n + 1);
        for (int i = 0; i < n; i++) m.batched[which[i]] = 1;
        walk(&m);
    } else {
        qn_ir_fail(m.to, QN_NO_MEMORY, "no memory to batch %zu values", graph->values.n);
    }
    qn_arena_release(&m.to->arena, m.map);
    qn_arena_release(&m.to->arena, m.batched);
    qn_status status = qn_graph_error(m.to, error);
    if (status != QN_OK) qn_graph_destroy(m.to);
    else *out = m.to;
    if (report) *report = m.report;
    return status;
}
