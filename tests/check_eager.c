/* The plain interpreter. Bodies take their memory from the same pool and give it back. */
#include "check_eager.h"

#include <stdio.h>
#include <string.h>

#include "tensor/convert.h"

static _Alignas(64) char workspace[1 << 18];

typedef struct frame {
    qc_eager *e;
    const qn_graph *g;
    qn_tensor *value;
} frame;

static const char *no_room(qc_eager *e) { return snprintf(e->text, sizeof e->text, "the pool is full"), e->text; }

static void *take(qc_eager *e, size_t bytes) {
    size_t at = (e->used + 63) / 64 * 64;
    if (bytes > sizeof e->pool - at) return NULL;
    e->used = at + bytes;
    return e->pool + at;
}

static size_t bytes_of(const qn_tensor *t) {
    uint64_t bytes = 0;
    return qn_tensor_bytes((qn_dtype)t->dtype, t->rank, t->shape, &bytes) == QN_OK ? (size_t)bytes : 0;
}

static const char *run_nodes(const frame *f);

/* Memory for every value; constants have their numbers. */
static const char *lay_out(const frame *f) {
    for (qn_val v = 0; v < qn_graph_value_count(f->g); v++) {
        qn_value_info info = {.size = sizeof info};
        uint64_t bytes = 0;
        qn_graph_value(f->g, v, &info);
        qn_tensor_bytes(info.dtype, info.rank, info.shape, &bytes);
        void *data = take(f->e, (size_t)bytes);
        if (!data) return no_room(f->e);
        qn_tensor_init(&f->value[v], info.dtype, info.rank, info.shape, data, bytes);
        if (info.kind == QN_VALUE_PARAM) f->value[v].flags = QN_TENSOR_PARAM;
        if (info.kind == QN_VALUE_CONSTANT) memcpy(data, qn_graph_constant_data(f->g, v), (size_t)bytes);
    }
    return NULL;
}

/* A body with those bytes for its inputs, its outputs to those places, where there is one. */
static const char *run_body(qc_eager *e, const qn_graph *body, int n_in, const void *const *in, int n_out, void *const *out) {
    size_t before = e->used;
    frame f = {e, body, take(e, sizeof(qn_tensor) * (size_t)qn_graph_value_count(body))};
    int input = 0;
    const char *why = f.value ? lay_out(&f) : no_room(e);
    for (qn_val v = 0; !why && v < qn_graph_value_count(body); v++) {
        qn_value_info info = {.size = sizeof info};
        qn_graph_value(body, v, &info);
        if (info.kind == QN_VALUE_INPUT && input < n_in) memcpy(f.value[v].data, in[input++], bytes_of(&f.value[v]));
    }
    if (!why) why = run_nodes(&f);
    for (int i = 0; !why && i < n_out; i++) {
        const qn_tensor *t = &f.value[qn_graph_output_value(body, i, NULL)];
        if (out[i]) memcpy(out[i], t->data, bytes_of(t));
    }
    e->used = before;
    return why;
}

static int is_true(const qn_tensor *t) { return qn_load_one((qn_dtype)t->dtype, t->data) != 0; }

static const char *run_cond(const frame *f, const qn_node_info *n) {
    const qn_attr_cond *at = n->attr;
    const void *in[QN_MAX_SRC];
    void *out[QN_MAX_DST];
    for (int i = 1; i < n->n_src; i++) in[i - 1] = f->value[n->src[i]].data;
    for (int i = 0; i < n->n_out; i++) out[i] = f->value[n->out[i]].data;
    return run_body(f->e, is_true(&f->value[n->src[0]]) ? at->then_body : at->else_body, n->n_src - 1, in, n->n_out, out);
}

/* Copies of the first n sources, which a loop goes on to replace; two of each, because a trip reads one and writes the other. */
static const char *begin_carry(const frame *f, const qn_node_info *n, int n_carry, void *now[], void *next[]) {
    for (int i = 0; i < n_carry; i++) {
        const qn_tensor *t = &f->value[n->src[i]];
        now[i] = take(f->e, bytes_of(t));
        next[i] = take(f->e, bytes_of(t));
        if (!now[i] || !next[i]) return no_room(f->e);
        memcpy(now[i], t->data, bytes_of(t));
    }
    return NULL;
}

static void turn_over(int n, void *now[], void *next[]) {
    for (int i = 0; i < n; i++) {
        void *t = now[i];
        now[i] = next[i];
        next[i] = t;
    }
}

static const char *run_while(const frame *f, const qn_node_info *n) {
    const qn_attr_while_loop *at = n->attr;
    void *now[QN_MAX_SRC], *next[QN_MAX_SRC], *verdict = workspace;
    const void *in[QN_MAX_SRC];
    int carried = qn_graph_output_count(at->body);
    qn_value_info info = {.size = sizeof info};
    qn_graph_value(at->test, qn_graph_output_value(at->test, 0, NULL), &info);
    const char *why = begin_carry(f, n, carried, now, next);
    for (int64_t trip = 0; !why && (at->max_trips == 0 || trip < at->max_trips); trip++) {
        for (int i = 0; i < n->n_src; i++) in[i] = i < carried ? now[i] : f->value[n->src[i]].data;
        why = run_body(f->e, at->test, n->n_src, in, 1, &verdict);
        if (why || qn_load_one(info.dtype, verdict) == 0) break;
        why = run_body(f->e, at->body, n->n_src, in, carried, next);
        turn_over(carried, now, next);
    }
    for (int i = 0; !why && i < n->n_out; i++) memcpy(f->value[n->out[i]].data, now[i], bytes_of(&f->value[n->out[i]]));
    return why;
}

static char *slice(const qn_tensor *t, int64_t which) {
    return (char *)t->data + (size_t)which * (t->shape[0] ? bytes_of(t) / (size_t)t->shape[0] : 0);
}

static const char *run_scan(const frame *f, const qn_node_info *n) {
    const qn_attr_scan_loop *at = n->attr;
    void *now[QN_MAX_SRC], *next[QN_MAX_SRC], *out[QN_MAX_DST];
    const void *in[QN_MAX_SRC];
    int gives = qn_graph_output_count(at->body), c = at->n_carry;
    int64_t trips = at->n_xs ? f->value[n->src[c]].shape[0] : at->length;
    const char *why = begin_carry(f, n, c, now, next);
    for (int64_t trip = 0; !why && trip < trips; trip++) {
        int64_t which = at->reverse ? trips - 1 - trip : trip;
        for (int i = 0; i < n->n_src; i++) {
            const qn_tensor *t = &f->value[n->src[i]];
            in[i] = i < c ? now[i] : i < c + at->n_xs ? slice(t, which) : t->data;
        }
        for (int i = 0; i < gives; i++) out[i] = i < c ? next[i] : i < n->n_out ? slice(&f->value[n->out[i]], which) : NULL;
        for (int i = 0; i < c && gives + i < n->n_out; i++) /* what is carried into each trip, for those who ask */
            memcpy(slice(&f->value[n->out[gives + i]], which), now[i], bytes_of(&f->value[n->src[i]]));
        why = run_body(f->e, at->body, n->n_src, in, gives, out);
        turn_over(c, now, next);
    }
    for (int i = 0; !why && i < c && i < n->n_out; i++) memcpy(f->value[n->out[i]].data, now[i], bytes_of(&f->value[n->out[i]]));
    return why;
}

static const char *run_plain(const frame *f, const qn_node_info *n) {
    qn_tensor view[QN_MAX_DST];
    qn_result r;
    int n_out;
    qn_request q = {.size = sizeof q,
                    .version = QN_REQUEST_VERSION,
                    .op = (uint16_t)n->op,
                    .subop = (uint16_t)n->subop,
                    .n_src = (uint16_t)n->n_src,
                    .n_dst = (uint16_t)n->n_out,
                    .attr = n->attr,
                    .workspace = workspace,
                    .workspace_size = sizeof workspace};
    for (int i = 0; i < n->n_src; i++) q.src[i] = n->src[i] == QN_VAL_NONE ? NULL : &f->value[n->src[i]];
    for (int i = 0; i < n->n_out; i++) {
        if (i < n->n_src && (qn_op_describe(n->op)->src[i].flags & QN_SLOT_STATE)) f->value[n->out[i]] = *q.src[i];
        q.dst[i] = &f->value[n->out[i]];
    }
    if (qn_op_describe(n->op)->is_view && qn_infer(&q, view, &n_out, &r) == QN_OK) /* made dense */
        q = (qn_request){.size = sizeof q,
                         .version = QN_REQUEST_VERSION,
                         .op = QN_OP_cont,
                         .n_src = 1,
                         .n_dst = 1,
                         .src = {&view[0]},
                         .dst = {&f->value[n->out[0]]}};
    if (qn_dispatch(qc_context, &q, &r) == QN_OK) return NULL;
    qn_result_format(&r, f->e->text, sizeof f->e->text);
    return f->e->text;
}

static const char *run_nodes(const frame *f) {
    for (int32_t k = 0; k < qn_graph_node_count(f->g); k++) {
        qn_node_info n = {.size = sizeof n};
        size_t before = f->e->used;
        qn_graph_node(f->g, k, &n);
        const char *why = n.op == QN_OP_cond         ? run_cond(f, &n)
                          : n.op == QN_OP_while_loop ? run_while(f, &n)
                          : n.op == QN_OP_scan_loop  ? run_scan(f, &n)
                                                     : run_plain(f, &n);
        if (why) return why;
        f->e->used = before;
    }
    return NULL;
}

const char *qc_eager_run(qc_eager *e, const qn_graph *g, qc_eager_fill_fn fill, void *user) {
    frame f = {e, g, e->value};
    e->used = 0;
    if (qn_graph_value_count(g) > QC_EAGER_VALUES) return no_room(e);
    const char *why = lay_out(&f);
    for (qn_val v = 0; !why && v < qn_graph_value_count(g); v++) {
        qn_value_info info = {.size = sizeof info};
        qn_graph_value(g, v, &info);
        if (info.kind <= QN_VALUE_PARAM) fill(user, &info, &e->value[v]);
    }
    return why ? why : run_nodes(&f);
}

int qc_eager_has_bodies(const qn_graph *g) {
    for (int32_t k = 0; k < qn_graph_node_count(g); k++) {
        qn_node_info n = {.size = sizeof n};
        qn_graph_node(g, k, &n);
        if (qn_op_describe(n.op)->n_body) return 1;
    }
    return 0;
}
