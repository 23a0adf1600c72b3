/* A drawn case becomes a request: sources, attributes, inferred destinations and workspace, all in the arena. Then running it
 * with every guard up. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "tensor/convert.h"

static double *numbers(void) {
    static double few[1 << 20], *many;
    if (qc_set.room <= (int64_t)(sizeof few / sizeof *few)) return few;
    if (!many) many = malloc((size_t)qc_set.room * sizeof *many); /* kept until the program ends */
    if (!many) exit(2);
    return many;
}

static void round_through(uint32_t dtype, int64_t n, double *v) {
    char one[16];
    for (int64_t i = 0; i < n; i++) {
        qn_store_one((qn_dtype)dtype, one, v[i]);
        v[i] = qn_load_one((qn_dtype)dtype, one);
    }
}

static const char *fill_source(qc_built *b, int slot) {
    const qn_op_info *info = qn_op_describe(b->c->op);
    qn_tensor *t = &b->src[slot];
    int64_t block = qn_dtype_describe((qn_dtype)t->dtype)->block;
    qc_rng rng = {qc_mix(b->draw.seed, 200 + (uint64_t)slot)};
    if (slot < info->n_src && (info->src[slot].flags & QN_SLOT_STATE)) t->flags = QN_TENSOR_PARAM;
    if (t->shape[t->rank - 1] % block) return NULL;
    if (block > 1 && b->c->src[slot].values.n == 0) {
        qc_store_blocks(t, &rng);
        return NULL;
    }
    const char *why = qc_values(b->c, &b->draw, slot, t->rank, t->shape, numbers());
    if (why) return why;
    if (b->options.round[slot]) round_through(b->options.round[slot], qn_tensor_count(t), numbers());
    qc_store_doubles(t, numbers(), &rng);
    return NULL;
}

static const char *build_source(qc_built *b, int slot) {
    const qc_item *item = &b->c->src[slot];
    qn_tensor *t = &b->src[slot];
    int rank;
    int64_t shape[QN_MAX_RANK];
    uint32_t dtype = qc_item_dtype(b->c, &b->draw, slot);
    if (qc_item_dims(b->c, &b->draw, slot, &rank, shape)) return "a dimension does not fit";
    char over = b->options.src_layout[slot], layout = over && item->layout != 'b' ? over : item->layout;
    int64_t n = qc_count(rank, shape);
    int hostile = rank == 0 || n < 0 || n > qc_set.room;
    for (int i = 0; i < rank; i++) hostile |= shape[i] < 0;
    if (hostile) { /* only rejects have such shapes: describe them over a small buffer, whole when they are broadcast */
        int64_t few[1] = {16 * qn_dtype_describe((qn_dtype)dtype)->block}, unit = qn_dtype_describe((qn_dtype)dtype)->bytes;
        if (qc_tensor_make(t, 0, dtype, 1, few) != QN_OK) return "the arena is full";
        t->rank = rank;
        for (int i = 0; i < rank; i++) t->shape[i] = shape[i], t->stride[i] = item->layout == 'b' ? 0 : unit;
        return NULL;
    }
    if (qc_tensor_make(t, layout, dtype, rank, shape) != QN_OK) return "the arena is full";
    return fill_source(b, slot);
}

void qc_bind(qc_built *b) {
    for (int i = 0; i < QN_MAX_SRC; i++) b->request.src[i] = i < b->c->n_src && !b->c->src[i].absent ? &b->src[i] : NULL;
    for (int i = 0; i < QN_MAX_DST; i++) b->request.dst[i] = b->given_dst[i] ? &b->dst[i] : NULL;
}

typedef struct painting {
    unsigned char value;
    size_t bytes;
} painting;

static void paint_one(void *self, char *at, int64_t i) {
    const painting *p = self;
    (void)i;
    memset(at, p->value, p->bytes);
}

static void paint(const qn_tensor *t, unsigned char value) {
    painting p = {value, (size_t)qn_dtype_describe((qn_dtype)t->dtype)->bytes};
    qc_each(t, paint_one, &p);
}

/* Axes of one in front of a tensor, which change nothing about it. Their strides are never walked. */
void qc_put_ones(qn_tensor *t, int more) {
    for (; more > 0 && t->rank < QN_MAX_RANK; more--) {
        memmove(t->shape + 1, t->shape, (size_t)t->rank * sizeof *t->shape);
        memmove(t->stride + 1, t->stride, (size_t)t->rank * sizeof *t->stride);
        t->shape[0] = 1;
        t->stride[0] = 1 << 20;
        t->rank++;
    }
    for (; more < 0 && t->rank > 1 && t->shape[0] == 1; more++) {
        t->rank--;
        memmove(t->shape, t->shape + 1, (size_t)t->rank * sizeof *t->shape);
        memmove(t->stride, t->stride + 1, (size_t)t->rank * sizeof *t->stride);
    }
}

static const char *build_destination(qc_built *b, int i, const qn_tensor *like) {
    const qn_op_info *info = qn_op_describe(b->c->op);
    qn_tensor *t = &b->dst[i];
    b->given_dst[i] = 1;
    b->rank[i] = like->rank;
    if (info->is_view) {
        *t = *like;
        return NULL;
    }
    if (i < info->n_src && (info->src[i].flags & QN_SLOT_STATE)) {
        *t = b->src[i];
        return NULL;
    }
    if (i == 0 && b->options.in_place) {
        *t = b->src[b->options.in_place - 1];
        return NULL;
    }
    if (qc_tensor_make(t, b->options.dst_layout, like->dtype, like->rank, like->shape) != QN_OK) return "the arena is full";
    paint(t, b->options.poison);
    qc_put_ones(t, b->options.ones);
    return NULL;
}

static const char *build_outputs(qc_built *b) {
    const qn_op_info *info = qn_op_describe(b->c->op);
    qn_tensor out[QN_MAX_DST];
    int n_out = 0;
    size_t bytes = 0;
    b->inferred = qn_infer(&b->request, out, &n_out, &b->result);
    if (b->inferred != QN_OK) { /* something to write to all the same, so that a reject can be seen to leave it alone */
        int64_t one[1] = {4};
        n_out = info->n_dst_min;
        for (int i = 0; i < n_out; i++)
            if (qc_tensor_make(&out[i], 0, QN_DTYPE_F32, 1, one) != QN_OK) return "the arena is full";
    }
    if (b->options.least_dst && info->n_dst_min < n_out) n_out = info->n_dst_min;
    b->request.n_dst = (uint16_t)n_out;
    for (int i = 0; i < n_out; i++) {
        const char *why = out[i].rank ? build_destination(b, i, &out[i]) : NULL;
        if (why) return why;
    }
    qc_bind(b); /* how much scratch a kernel takes depends on where it writes */
    if (b->inferred == QN_OK) b->inferred = qn_workspace_bytes(&b->request, &bytes, &b->result);
    if (bytes) {
        b->request.workspace = qc_alloc(bytes, QN_WORKSPACE_ALIGN);
        b->request.workspace_size = bytes;
        if (!b->request.workspace) return "the arena is full";
        memset(b->request.workspace, b->options.poison, bytes);
    }
    return NULL;
}

static const char *build(qc_built *b) {
    const qn_op_info *info = qn_op_describe(b->c->op);
    const char *why;
    for (int i = 0; i < b->c->n_src; i++)
        if (!b->c->src[i].absent && (why = build_source(b, i))) return why;
    b->attr = qc_alloc(info->attr_bytes, 16);
    if (!b->attr) return "the arena is full";
    if ((why = qc_attributes(b->c, &b->draw, b->attr))) return why;
    b->request = (qn_request){.size = sizeof b->request,
                              .version = QN_REQUEST_VERSION,
                              .op = (uint16_t)b->c->op,
                              .subop = (uint16_t)qc_draw_subop(b->c, &b->draw),
                              .n_src = (uint16_t)b->c->n_src,
                              .attr = b->c->n_field ? b->attr : NULL};
    qc_bind(b);
    if ((why = build_outputs(b))) return why;
    qc_bind(b);
    return NULL;
}

void qc_build(qc_built *b, const qc_case *c, const qc_draw *d, const qc_options *options) {
    *b = (qc_built){.c = c, .draw = *d};
    if (options) b->options = *options;
    qc_arena_reset();
    b->trouble = build(b);
}

/* ---- Running */

static void allow_one(void *self, char *at, int64_t i) {
    (void)i;
    qc_allow(at, *(size_t *)self);
}

static void allow_outputs(const qc_built *b) {
    for (int i = 0; i < b->request.n_dst; i++) {
        const qn_tensor *t = b->request.dst[i];
        if (!t || qn_op_describe(b->request.op)->is_view) continue;
        size_t bytes = (size_t)qn_dtype_describe((qn_dtype)t->dtype)->bytes;
        qc_each(t, allow_one, &bytes);
    }
    if (b->request.workspace && qc_arena_contains(b->request.workspace))
        qc_allow(b->request.workspace, b->request.workspace_size);
}

static void run(qc_built *b, qc_outcome *o, int only_ask) {
    memset(o, 0, sizeof *o);
    qc_guard();
    qc_trap_arm();
    o->status = only_ask ? qn_can_dispatch(qc_context, &b->request, &o->result)
                         : qn_dispatch(qc_context, &b->request, &o->result);
    o->allocations = qc_trap_disarm();
    qc_unguard();
    /* After these a partial result may be there: the op had begun. */
    if (!only_ask && (o->status == QN_OK || o->status == QN_USER)) allow_outputs(b);
    qc_changed(&o->touched);
}

void qc_run(qc_built *b, qc_outcome *o) { run(b, o, 0); }
void qc_ask(qc_built *b, qc_outcome *o) { run(b, o, 1); }

const char *qc_arg_name(const qn_result *r) {
    static char text[80];
    const qn_op_info *info = qn_op_describe(r->op);
    if (!info) return "";
    if (r->arg_kind == QN_ARG_SOURCE && r->arg >= 0 && r->arg < info->n_src) return info->src[r->arg].name;
    if (r->arg_kind == QN_ARG_DEST && r->arg >= 0 && r->arg < info->n_dst) return info->dst[r->arg].name;
    if (r->arg_kind == QN_ARG_ATTR && r->arg >= 0 && r->arg < info->n_attr) {
        snprintf(text, sizeof text, "attr:%s", info->attr[r->arg].name);
        return text;
    }
    return r->arg_kind == QN_ARG_WORKSPACE ? "workspace" : "";
}
