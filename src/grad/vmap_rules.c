/* What ops are given so that they do all items of a batch at once. See vmap_rules.def. */
#include "grad/vmap.h"

static int most(int a, int b) { return a > b ? a : b; }

/* ---- Rules that many ops share */

static int same(qn_vmap_call *c) {
    int fits = 1;
    for (int i = 0; i < c->n_src; i++)
        if (c->src[i] != QN_VAL_NONE) fits &= qn_vmap_lead(c, i, most(c->rank, c->least));
    return fits;
}

static int broadcast(qn_vmap_call *c) {
    int fits = 1;
    for (int i = 0; i < c->n_src; i++)
        if (c->batched[i]) fits &= qn_vmap_lead(c, i, most(c->rank, c->least));
    return fits;
}

static int tile(qn_vmap_call *c) { return broadcast(c) && qn_vmap_lead(c, 0, most(c->rank, c->least)); }

/* An axis counted from the front is counted from the end instead. */
static void keep_axis(qn_vmap_call *c, int rank) {
    for (int i = 0; i < c->info->n_attr; i++) {
        int32_t axis;
        if (strcmp(c->info->attr[i].name, "axis") != 0) continue;
        memcpy(&axis, c->attr + c->info->attr[i].offset, sizeof axis);
        if (axis >= 0) axis -= rank;
        memcpy(c->attr + c->info->attr[i].offset, &axis, sizeof axis);
    }
}

static int axis(qn_vmap_call *c) {
    keep_axis(c, c->item[c->slots].rank);
    return same(c);
}

/* Here the axis counts in whichever source has most. */
static int join(qn_vmap_call *c) {
    keep_axis(c, c->rank);
    return same(c);
}

static int fold(qn_vmap_call *c) {
    for (int i = 0; i < c->n_src; i++) {
        if (c->src[i] == QN_VAL_NONE) continue;
        if (c->slots >> i & 1) {
            if (!qn_vmap_fold(c, i, most(c->item[i].rank, c->least))) return 0;
        } else if (c->batched[i]) {
            return 0;
        }
    }
    return 1;
}

/* ---- Reductions */

/* All of an item is a row. */
static int sum(qn_vmap_call *c) {
    int64_t n = 1;
    for (int k = 0; k < c->item[0].rank; k++) n *= c->item[0].d[k];
    c->op = QN_OP_sum_rows;
    c->as[0].rank = 2;
    c->as[0].d[0] = c->m->batch;
    c->as[0].d[1] = n;
    return 1;
}

/* Rows of a matrix; what is in front of it must be one. */
static int argmax(qn_vmap_call *c) {
    for (int k = 0; k < c->item[0].rank - 2; k++)
        if (c->item[0].d[k] != 1) return 0;
    c->as[0].rank = 2;
    c->as[0].d[0] = c->m->batch * qn_sd(&c->item[0], 1);
    c->as[0].d[1] = qn_sd(&c->item[0], 0);
    return 1;
}

/* Axes of an item from the end; none named are all. */
static void keep_axes(qn_dims *axes, int rank) {
    if (axes->rank == 0) {
        axes->rank = rank;
        for (int i = 0; i < rank; i++) axes->d[i] = i;
    }
    for (int i = 0; i < axes->rank; i++)
        if (axes->d[i] >= 0) axes->d[i] -= rank;
}

static int reduce(qn_vmap_call *c) {
    keep_axes(&((qn_attr_reduce *)(void *)c->attr)->axes, c->item[0].rank);
    return same(c);
}

/* g has exactly the axes that a reduction of the whole leaves. */
static int reduce_back(qn_vmap_call *c) {
    qn_attr_reduce_back *at = (qn_attr_reduce_back *)(void *)c->attr;
    int rank = c->item[1].rank, n = 1;
    keep_axes(&at->axes, rank);
    if (!qn_vmap_lead(c, 0, most(c->item[0].rank, 1)) || !qn_vmap_lead(c, 1, rank)) return 0;
    if (at->keep) return 1;
    unsigned gone = 0;
    for (int i = 0; i < at->axes.rank; i++) gone |= 1u << (rank + at->axes.d[i]);
    for (int i = 0; i < rank; i++)
        if (!(gone >> i & 1)) c->as[0].d[n++] = c->item[1].d[i];
    c->as[0].rank = n;
    return 1;
}

/* dx is by rows, and so are the gradients of the statistics. */
static int layer_norm_back(qn_vmap_call *c) {
    for (int i = 0; i < c->n_src; i++)
        if (i != 2 && c->src[i] != QN_VAL_NONE && !qn_vmap_lead(c, i, c->rank)) return 0;
    return !(c->n_src > 2 && c->batched[2]);
}

static int batch_norm(qn_vmap_call *c) {
    return !((const qn_attr_batch_norm *)(const void *)c->attr)->training && fold(c); /* in training items would mix */
}

/* ---- Indices */

static int one_hot(qn_vmap_call *c) {
    keep_axis(c, c->rank + 1);
    return same(c);
}

/* One table for all: the indices' axes, the batch first, are where the table's axis was. One list of indices for all tables:
 * the axis is one further back. */
static int gather(qn_vmap_call *c) {
    qn_attr_gather *at = (qn_attr_gather *)(void *)c->attr;
    int front = at->axis < 0 ? at->axis + c->item[0].rank : at->axis;
    if (c->batched[0] && c->batched[1]) return 0;
    at->axis = front + c->batched[0];
    if (c->batched[1]) c->batch_axis = front;
    return qn_vmap_lead(c, c->batched[0] ? 0 : 1, c->item[c->batched[0] ? 0 : 1].rank);
}

static int scatter_add(qn_vmap_call *c) {
    qn_attr_scatter_add *at = (qn_attr_scatter_add *)(void *)c->attr;
    at->axis = (at->axis < 0 ? at->axis + c->item[0].rank : at->axis) + 1;
    return !c->batched[2] && qn_vmap_lead(c, 0, c->item[0].rank) && qn_vmap_lead(c, 1, c->item[1].rank);
}

/* Indices have one axis less than what they choose from. A plain table of rows that all items share takes all their indices as
 * one list. */
static int get_rows(qn_vmap_call *c) {
    int rank = most(most(c->item[0].rank, c->item[1].rank + 1), c->least);
    if (c->op == QN_OP_get_rows && !c->batched[0] && rank == 2) return qn_vmap_fold(c, 1, 1);
    return qn_vmap_lead(c, 0, rank) && qn_vmap_lead(c, 1, rank - 1);
}

/* ---- Shapes */

/* The batch in front of a list, or another number; ones widen it to `rank` before. 0: too long. */
static int prepend(qn_dims *list, int64_t first, int rank, int64_t filler) {
    qn_dims old = *list;
    if (rank < old.rank) rank = old.rank;
    if (rank + 1 > QN_MAX_RANK) return 0;
    list->rank = rank + 1;
    list->d[0] = first;
    for (int k = 0; k < rank; k++) list->d[rank - k] = k < old.rank ? old.d[old.rank - 1 - k] : filler;
    return 1;
}

/* `shape` is the first attribute of all of these. */
static int shape(qn_vmap_call *c) {
    qn_attr_reshape *at = (qn_attr_reshape *)(void *)c->attr;
    int rank = c->op == QN_OP_reshape ? c->item[0].rank : most(c->item[0].rank, at->shape.rank);
    int least = c->op == QN_OP_reshape ? at->shape.rank : rank;
    return qn_vmap_lead(c, 0, rank) && prepend(&at->shape, c->m->batch, least, 1);
}

static int cont(qn_vmap_call *c) {
    qn_attr_cont *at = (qn_attr_cont *)(void *)c->attr;
    return qn_vmap_lead(c, 0, c->item[0].rank) && (at->shape.rank == 0 || prepend(&at->shape, c->m->batch, 0, 1));
}

static int permute(qn_vmap_call *c) {
    qn_attr_permute *at = (qn_attr_permute *)(void *)c->attr;
    for (int i = 0; i < at->axes.rank; i++) at->axes.d[i]++;
    return qn_vmap_lead(c, 0, c->item[0].rank) && prepend(&at->axes, 0, 0, 0);
}

/* Lists of one number for each axis: nothing is done along the batch. */
static int lists(qn_vmap_call *c) {
    int fits = qn_vmap_lead(c, 0, c->item[0].rank);
    for (int i = 0; i < c->info->n_attr; i++) {
        qn_dims *list = (qn_dims *)(void *)(c->attr + c->info->attr[i].offset);
        if (c->info->attr[i].kind == QN_ATTR_KIND_dims && list->rank) fits &= prepend(list, 0, 0, 0);
    }
    return fits;
}

/* The same window in each item: view's into its source, view_back's into its result. Strides that were left out are dense. */
static int view(qn_vmap_call *c) {
    qn_attr_view *at = (qn_attr_view *)(void *)c->attr;
    const qn_shape *whole = &c->item[0], made = c->m->from->values.at[c->m->from->nodes.at[c->node].out].shape;
    uint64_t bytes;
    if (c->op == QN_OP_view_back) whole = &made;
    if (qn_tensor_bytes((qn_dtype)whole->dtype, whole->rank, whole->d, &bytes) != QN_OK || bytes > INT64_MAX) return 0;
    if (at->strides.rank == 0) {
        const qn_dtype_info *d = qn_dtype_describe((qn_dtype)whole->dtype);
        int64_t step = d->bytes;
        at->strides.rank = at->shape.rank;
        for (int i = at->shape.rank - 1; i >= 0; i--) {
            at->strides.d[i] = step;
            step *= i == at->shape.rank - 1 ? at->shape.d[i] / d->block : at->shape.d[i];
        }
    }
    return qn_vmap_lead(c, 0, c->item[0].rank) && prepend(&at->strides, (int64_t)bytes, 0, 0) &&
           prepend(&at->shape, c->m->batch, 0, 0);
}

_Static_assert(offsetof(qn_attr_view, shape) == offsetof(qn_attr_view_back, shape), "one record for both");
_Static_assert(offsetof(qn_attr_view, strides) == offsetof(qn_attr_view_back, strides), "one record for both");

/* ---- Images and sequences */

static int im2col(qn_vmap_call *c) {
    c->least = ((const qn_attr_im2col *)(const void *)c->attr)->is_2d ? 4 : 3;
    return fold(c);
}

/* A mask that is the same for every batch is so for every item. */
static int attention(qn_vmap_call *c) {
    int mask = c->op == QN_OP_attention ? 3 : 4, lse = 5;
    if (c->n_src > mask && c->src[mask] != QN_VAL_NONE && (c->batched[mask] || qn_sd(&c->item[mask], 3) != 1)) return 0;
    if (!fold(c)) return 0;
    if (c->op == QN_OP_attention || c->n_src <= lse || c->src[lse] == QN_VAL_NONE) return 1;
    return qn_vmap_fold(c, lse, 3);
}

/* ---- Losses, whose means are over all of an item: written with other ops */

static qn_val emit(qn_vmap_call *c, int op, int n_src, qn_val a, qn_val b, const void *attr) {
    return qn_graph_op(c->m->to, op, 0, n_src, (qn_val[]){a, b}, attr);
}

static qn_val scaled(qn_vmap_call *c, qn_val x, double by) {
    qn_attr_scale at = qn_attr_scale_default();
    at.s = (float)by;
    return emit(c, QN_OP_scale, 1, x, QN_VAL_NONE, &at);
}

static qn_val reshaped(qn_vmap_call *c, qn_val x, int rank, const int64_t *d) {
    qn_attr_cont at = qn_attr_cont_default();
    at.shape.rank = rank;
    memcpy(at.shape.d, d, sizeof *d * (size_t)rank);
    return emit(c, QN_OP_cont, 1, x, QN_VAL_NONE, &at);
}

/* Source i for all items, [batch, rows, columns]. */
static qn_val all_rows(qn_vmap_call *c, int i, int64_t rows) {
    int64_t n = qn_sd(&c->item[i], 0), each[3] = {c->m->batch, rows, n}, one[3] = {1, rows, n};
    qn_attr_repeat at = qn_attr_repeat_default();
    at.shape.rank = 3;
    memcpy(at.shape.d, each, sizeof each);
    qn_val x = reshaped(c, c->src[i], 3, c->batched[i] ? each : one);
    return c->batched[i] ? x : emit(c, QN_OP_repeat, 1, x, QN_VAL_NONE, &at);
}

static int64_t rows_of(const qn_shape *s) {
    int64_t n = 1;
    for (int k = 0; k < s->rank - 1; k++) n *= s->d[k];
    return n;
}

static int cross_entropy_loss(qn_vmap_call *c) {
    int64_t rows = rows_of(&c->item[0]), flat[2] = {c->m->batch, rows * qn_sd(&c->item[0], 0)};
    qn_val likely = emit(c, QN_OP_log_soft_max, 1, all_rows(c, 0, rows), QN_VAL_NONE, NULL);
    qn_val each = reshaped(c, emit(c, QN_OP_mul, 2, likely, all_rows(c, 1, rows), NULL), 2, flat);
    qn_val mean = scaled(c, emit(c, QN_OP_sum_rows, 1, each, QN_VAL_NONE, NULL), -1 / (double)rows);
    c->m->map[c->m->from->nodes.at[c->node].out] = mean;
    return -1;
}

/* (mass softmax - labels) g / rows */
static int cross_entropy_loss_back(qn_vmap_call *c) {
    const qn_shape *item = &c->item[1];
    int64_t rows = rows_of(item), one[3] = {c->batched[0] ? c->m->batch : 1, 1, 1}, whole[QN_MAX_RANK];
    if (rows == 0) return 0;
    whole[0] = c->m->batch;
    memcpy(whole + 1, item->d, sizeof *whole * (size_t)item->rank);
    qn_val share = emit(c, QN_OP_soft_max, 1, all_rows(c, 1, rows), QN_VAL_NONE, NULL), labels = all_rows(c, 2, rows);
    share = emit(c, QN_OP_mul, 2, share, emit(c, QN_OP_sum_rows, 1, labels, QN_VAL_NONE, NULL), NULL);
    qn_val step = scaled(c, reshaped(c, c->src[0], 3, one), 1 / (double)rows);
    qn_val dx = emit(c, QN_OP_mul, 2, emit(c, QN_OP_sub, 2, share, labels, NULL), step, NULL);
    c->m->map[c->m->from->nodes.at[c->node].out] = reshaped(c, dx, item->rank + 1, whole);
    return -1;
}

/* ---- The table */

#define mul_mat qn_vmap_mul_mat
#define matmul qn_vmap_matmul
#define dot_general qn_vmap_dot_general

typedef struct row {
    qn_vmap_rule rule;
    int least;
    unsigned slots;
} row;

static const row rows[QN_OP_COUNT] = {
#define QN_VMAP(op, rule, least, slots) [QN_OP_##op] = {rule, least, slots},
#include "grad/vmap_rules.def"
#undef QN_VMAP
};

qn_vmap_rule qn_vmap_rule_of(qn_vmap_call *c) {
    const row *r = &rows[c->op];
    c->least = r->least;
    c->slots = r->slots;
    return r->rule;
}
