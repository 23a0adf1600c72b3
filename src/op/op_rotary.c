/* Rotary embedding from tables of cosines and sines, one row of the tables for each position. Pair i of a head turns its
 * channels i and i + n_rot / 2, or 2 i and 2 i + 1 when they are interleaved; channels past n_rot keep their bits. */
#include "op/op_emit.h"
#include "op/op_rotary.h"
#include "op/product.h"

/* The attributes of rope_table and rope_table_back are one list in the table. */
_Static_assert(sizeof(qn_attr_rope_table) == sizeof(qn_attr_rope_table_back), "same attributes");

/* How x is read: rows of heads, the tokens on one of its axes. */
typedef struct rotary {
    int token_axis;             /* from the last */
    int64_t heads, width;       /* of one row, and of one head */
    int64_t pairs, step, apart; /* pair i turns the channels i step and i step + apart */
} rotary;

static rotary rotary_of(const qn_tensor *x, int32_t n_rot, int32_t interleaved, int32_t head_dim) {
    rotary r = {.token_axis = head_dim ? 1 : 2, .heads = 1, .width = qn_ne(x, 0)};
    if (head_dim) {
        r.heads = r.width / head_dim;
        r.width = head_dim;
    }
    r.pairs = (n_rot ? n_rot : r.width) / 2;
    r.step = interleaved ? 2 : 1;
    r.apart = interleaved ? 1 : r.pairs;
    return r;
}

/* ---- Shape rules */

/* The heads of x: whole ones, with an even number of channels to turn. */
static qn_status need_heads(qn_infer_call *c, int slot, int32_t n_rot, int32_t head_dim) {
    const qn_tensor *x = c->src[slot];
    int64_t width = head_dim ? head_dim : qn_ne(x, 0);
    if (head_dim && qn_ne(x, 0) % head_dim)
        return qn_reject_src(c, slot, QN_REASON_SHAPE_MULTIPLE, qn_axis(x, 0), head_dim, qn_ne(x, 0));
    if (n_rot % 2) return qn_reject_attr(c, "n_rot", QN_REASON_ATTR_EVEN, -1, 2, n_rot);
    if (n_rot > width) return qn_reject_attr(c, "n_rot", QN_REASON_ATTR_HIGH, -1, qn_f_bits((double)width), qn_f_bits(n_rot));
    if (n_rot || width % 2 == 0) return QN_OK;
    if (head_dim) return qn_reject_attr(c, "head_dim", QN_REASON_ATTR_EVEN, -1, 2, head_dim);
    return qn_reject_src(c, slot, QN_REASON_SHAPE_MULTIPLE, qn_axis(x, 0), 2, width);
}

/* Positions broadcast over the axes of x up to its tokens; without them the tables must reach as far as the tokens do. */
static qn_status need_positions(qn_infer_call *c, int slot, int positions, int token_axis) {
    const qn_tensor *x = c->src[slot], *p = c->src[positions];
    for (int k = 0; p && k < p->rank; k++)
        if (qn_ne(p, k) != 1 || k == 0) QN_TRY(qn_need_extent(c, positions, k, qn_ne(x, token_axis + k)));
    return QN_OK;
}

qn_status qn_infer_rope_table(qn_infer_call *c) {
    const qn_attr_rope_table *at = c->attr;
    const qn_tensor *x = c->src[0], *cosines = c->src[1];
    QN_TRY(need_heads(c, 0, at->n_rot, at->head_dim));
    rotary r = rotary_of(x, at->n_rot, at->interleaved, at->head_dim);
    QN_TRY(qn_need_rank(c, 1, 2));
    QN_TRY(qn_need_extent(c, 1, 0, r.pairs));
    QN_TRY(qn_need_same_shape(c, 2, 1));
    QN_TRY(need_positions(c, 0, 3, r.token_axis));
    if (!c->src[3] && qn_ne(cosines, 1) < qn_ne(x, r.token_axis))
        return qn_reject_src(c, 1, QN_REASON_SHAPE_SMALL, qn_axis(cosines, 1), qn_ne(x, r.token_axis), qn_ne(cosines, 1));
    QN_TRY(qn_need_f64_pair(c, 1, 0));
    QN_TRY(qn_need_f64_pair(c, 2, 0));
    c->index_limit[3] = qn_ne(cosines, 1);
    c->flops_each = 3;
    qn_out_like(c, 0, x, x->dtype);
    return QN_OK;
}

qn_status qn_infer_rope_tables_grad(qn_infer_call *c) {
    const qn_attr_rope_tables_grad *at = c->attr;
    const qn_tensor *x = c->src[1];
    QN_TRY(need_heads(c, 1, at->n_rot, at->head_dim));
    rotary r = rotary_of(x, at->n_rot, at->interleaved, at->head_dim);
    QN_TRY(qn_need_same_shape(c, 0, 1));
    QN_TRY(need_positions(c, 1, 2, r.token_axis));
    if (!c->src[2] && at->rows < qn_ne(x, r.token_axis))
        return qn_reject_attr(c, "rows", QN_REASON_ATTR_LOW, -1, qn_f_bits((double)qn_ne(x, r.token_axis)),
                              qn_f_bits((double)at->rows));
    QN_TRY(qn_need_f64_pair(c, 0, 1));
    c->index_limit[2] = at->rows;
    int64_t d[2] = {at->rows, r.pairs};
    c->flops_each = 4;
    for (int i = 0; i < 2; i++) QN_TRY(qn_out_shape(c, i, qn_product_dtype(x), 2, d));
    return QN_OK;
}

/* ---- References */

/* One row of x, every head of it, by the angles of one row of the tables. */
static void turn_row(const rotary *r, const qn_tensor *x, const char *from, const qn_tensor *y, char *to, const char *cosines,
                     const char *sines, const qn_call *c, double direction) {
    qn_dtype dtype = (qn_dtype)x->dtype;
    for (int64_t i = 0; i < r->pairs; i++) {
        double co, si;
        qn_load_row(c->src[1], cosines, i, 1, &co);
        qn_load_row(c->src[2], sines, i, 1, &si);
        si *= direction;
        for (int64_t h = 0; h < r->heads; h++) {
            int64_t u = h * r->width + i * r->step, v = u + r->apart;
            double a = qn_load_one(dtype, from + u * qn_nb(x, 0)), b = qn_load_one(dtype, from + v * qn_nb(x, 0));
            qn_store_one(dtype, to + u * qn_nb(y, 0), a * co - b * si);
            qn_store_one(dtype, to + v * qn_nb(y, 0), a * si + b * co);
        }
    }
}

static qn_status rotate(const qn_call *c, double direction) {
    const qn_attr_rope_table *at = c->attr;
    const qn_tensor *x = c->src[0], *y = c->dst[0], *positions = c->n_src > 3 ? c->src[3] : NULL;
    rotary r = rotary_of(x, at->n_rot, at->interleaved, at->head_dim);
    qn_rows it;
    if (qn_tensor_count(x) == 0) return QN_OK;
    if (qn_at(x, 0) != qn_at(y, 0)) qn_copy(y, x);
    for (qn_rows_begin(&it, x->rank, x->shape); it.live; qn_rows_next(&it)) {
        int64_t p = qn_rotary_position(r.token_axis, &it, positions);
        turn_row(&r, x, qn_row(&it, x), y, qn_row(&it, y), qn_row4(c->src[1], 0, 0, p), qn_row4(c->src[2], 0, 0, p), c,
                 direction);
    }
    return QN_OK;
}

qn_status qn_ref_rope_table(const qn_call *c) { return rotate(c, 1); }
qn_status qn_ref_rope_table_back(const qn_call *c) { return rotate(c, -1); }

/* What pairs [first, first + some) of one row give to the gradients of cosine and sine. */
static void row_torque(const rotary *r, const qn_tensor *g, const char *up, const qn_tensor *x, const char *from, int64_t first,
                       int64_t some, double *dcos, double *dsin) {
    for (int64_t h = 0; h < r->heads; h++)
        for (int64_t i = 0; i < some; i++) {
            int64_t u = h * r->width + (first + i) * r->step, v = u + r->apart;
            double a, b, ga, gb;
            qn_load_row(x, from, u, 1, &a);
            qn_load_row(x, from, v, 1, &b);
            qn_load_row(g, up, u, 1, &ga);
            qn_load_row(g, up, v, 1, &gb);
            dcos[i] += ga * a + gb * b;
            dsin[i] += gb * a - ga * b;
        }
}

qn_status qn_ref_rope_tables_grad(const qn_call *c) {
    const qn_attr_rope_tables_grad *at = c->attr;
    const qn_tensor *g = c->src[0], *x = c->src[1], *positions = c->n_src > 2 ? c->src[2] : NULL, *dcos = c->dst[0],
                    *dsin = c->dst[1];
    rotary r = rotary_of(x, at->n_rot, at->interleaved, at->head_dim);
    if (qn_tensor_count(dcos) == 0) return QN_OK;
    for (int64_t p = 0; p < at->rows; p++)
        for (int64_t first = 0; first < r.pairs; first += QN_RUN) {
            double sum_c[QN_RUN] = {0}, sum_s[QN_RUN] = {0};
            int64_t some = qn_some(r.pairs, first);
            qn_rows it;
            for (qn_rows_begin(&it, x->rank, x->shape); it.live; qn_rows_next(&it))
                if (qn_rotary_position(r.token_axis, &it, positions) == p)
                    row_torque(&r, g, qn_row(&it, g), x, qn_row(&it, x), first, some, sum_c, sum_s);
            qn_store_row(dcos, qn_row4(dcos, 0, 0, p), first, some, sum_c);
            qn_store_row(dsin, qn_row4(dsin, 0, 0, p), first, some, sum_s);
        }
    return QN_OK;
}

/* ---- Gradients */

/* For the tables, from the pair of values whose product the rotation stands between: <g, rope_table(x)>. */
static void tables_grad(qn_vjp_call *v, qn_val g, qn_val x) {
    const qn_attr_rope_table *from = v->attr;
    qn_attr_rope_tables_grad at = qn_attr_rope_tables_grad_default();
    qn_shape table = qn_shape_of(v, v->src[1]);
    qn_val src[3] = {g, x, v->src[3]}, out[2];
    if (!v->want[1] && !v->want[2]) return;
    at.n_rot = from->n_rot;
    at.interleaved = from->interleaved;
    at.head_dim = from->head_dim;
    at.rows = qn_sd(&table, 1);
    qn_emit_many(v, QN_OP_rope_tables_grad, 0, &at, 3, src, 2, out);
    for (int i = 0; i < 2; i++)
        if (v->want[1 + i]) v->out[1 + i] = table.rank == 2 ? out[i] : qn_e_like(v, out[i], v->src[1 + i]);
}

static qn_val turned(qn_vjp_call *v, qn_op op) {
    qn_val src[4] = {v->grad[0], v->src[1], v->src[2], v->src[3]}, out;
    qn_emit_many(v, op, 0, v->attr, 4, src, 1, &out);
    return out;
}

void qn_vjp_rope_table(qn_vjp_call *v) {
    if (v->want[0]) v->out[0] = turned(v, QN_OP_rope_table_back);
    tables_grad(v, v->grad[0], v->src[0]);
}

/* rope_table_back is the transpose: <up, rope_table_back(g)> = <rope_table(up), g>, so for the tables the two change places. */
void qn_vjp_rope_table_back(qn_vjp_call *v) {
    if (v->want[0]) v->out[0] = turned(v, QN_OP_rope_table);
    tables_grad(v, v->src[0], v->grad[0]);
}

/* One side of <g, rope_table(x)> with the gradients of the tables' gradients as tables. Channels past n_rot had no part in it:
 * what a rotation by nothing leaves is taken off. */
static qn_val counterpart(qn_vjp_call *v, qn_op op, qn_val x, const qn_val *tables) {
    const qn_attr_rope_tables_grad *from = v->attr;
    qn_attr_rope_table at = qn_attr_rope_table_default();
    at.n_rot = from->n_rot;
    at.interleaved = from->interleaved;
    at.head_dim = from->head_dim;
    qn_val positions = v->n_src > 2 ? v->src[2] : QN_VAL_NONE, none = qn_e_zeros(v, tables[0]), whole, rest;
    qn_val turn[4] = {x, tables[0], tables[1], positions}, still[4] = {x, none, none, positions};
    qn_emit_many(v, op, 0, &at, 4, turn, 1, &whole);
    if (at.n_rot == 0) return whole;
    qn_emit_many(v, op, 0, &at, 4, still, 1, &rest);
    return qn_e_sub(v, whole, rest);
}

void qn_vjp_rope_tables_grad(qn_vjp_call *v) {
    qn_val tables[2] = {v->grad[0], v->grad[1]};
    for (int i = 0; i < 2; i++)
        if (tables[i] == QN_VAL_NONE) tables[i] = qn_e_zeros(v, v->dst[i]);
    if (v->want[0]) v->out[0] = counterpart(v, QN_OP_rope_table, v->src[1], tables);
    if (v->want[1]) v->out[1] = counterpart(v, QN_OP_rope_table_back, v->src[0], tables);
}
