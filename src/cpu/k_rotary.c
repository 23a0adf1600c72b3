/* rope_2d, and rope_table with its transpose: the cosines and sines of a token are laid out once for the rows that share them. And
 * rope_tables_grad, which adds up what those rows say about them. */
#include "cpu/k_experts.h"
#include "cpu/k_rope.h"
#include "op/op_rotary.h"

typedef struct tables {
    float cosine[2 * MOST_PAIRS + 16], sine[2 * MOST_PAIRS + 16];
} tables;

/* ---- rope_2d: each half of a head is a head of its own, a quarter of the whole apart */

static void angles_of(const qn_call *c, int64_t token, const double *by, int64_t quarter, int axis, tables *to) {
    const qn_attr_rope_2d *at = c->attr;
    double pos = (double)qn_index4(c->src[1 + axis], 0, 0, 0, token), angle[MOST_PAIRS];
    float sign = at->back ? -1.0f : 1.0f;
    for (int64_t i = 0; i < quarter; i++) angle[i] = pos * by[i];
    cos_sin_any(angle, quarter, fabs(pos), 1, sign, to->cosine, to->sine); /* by is at most 1 */
}

static void turn_2d(const qn_call *c, int64_t token, const tables *by) {
    const qn_tensor *x = c->src[0], *y = c->dst[0];
    int64_t d[QN_MAX_RANK], quarter = qn_ne(x, 0) / 4, half = 2 * quarter * qn_float_bytes(x->dtype);
    qn_rows it;
    for (int k = 0; k < x->rank; k++) d[x->rank - 1 - k] = k == 0 || k == 2 ? 1 : qn_ne(x, k);
    for (qn_rows_begin(&it, x->rank, d); it.live; qn_rows_next(&it)) {
        const char *from = qn_row(&it, x) + token * qn_nb(x, 2);
        char *to = qn_row(&it, y) + token * qn_nb(y, 2);
        for (int axis = 0; axis < 2; axis++, from += half, to += half) {
#define HALVES_OF(d) turn_halves(d, to, from, quarter, by[axis].cosine, by[axis].sine, QN_NEAR)
            QN_BY_FLOAT(x->dtype, HALVES_OF);
#undef HALVES_OF
        }
    }
}

static void run_2d(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    const qn_tensor *x = c->src[0];
    int64_t quarter = qn_ne(x, 0) / 4, tokens = qn_ne(x, 2), end = qn_cpu_cut(tokens, s->parts[0], part + 1);
    double by[MOST_PAIRS];
    tables both[2];
    (void)phase;
    memset(both, 0, sizeof both);
    for (int64_t i = 0; i < quarter; i++)
        by[i] = pow((double)((const qn_attr_rope_2d *)c->attr)->freq_base, -(double)i / (double)quarter);
    for (int64_t token = qn_cpu_cut(tokens, s->parts[0], part); token < end; token++) {
        for (int axis = 0; axis < 2; axis++) angles_of(c, token, by, quarter, axis, &both[axis]);
        turn_2d(c, token, both);
    }
}

int QN_K(rope_2d)(const qn_call *c, qn_cpu_step *s) {
    const qn_attr_rope_2d *at = c->attr;
    const qn_tensor *x = c->src[0], *y = c->dst[0];
    int64_t count = qn_tensor_count(x), quarter = qn_ne(x, 0) / 4;
    if (count == 0 || quarter > MOST_PAIRS || !qn_lanes_rows(x) || !qn_lanes_rows(y) || !(at->freq_base >= 1)) return 0;
    return qn_cpu_by_rows(s, "rope_2d", run_2d, qn_ne(x, 2), 8.0 * (double)count / (double)qn_ne(x, 2), 80.0 * (double)quarter);
}

/* ---- rope_table */

typedef struct rotary {
    int token_axis;
    int64_t heads, width, pairs;
    int interleaved;
    float sign;
} rotary;

static rotary rotary_make(const qn_tensor *x, int64_t n_rot, int interleaved, int64_t head_dim) {
    rotary r = {head_dim ? 1 : 2, 1, qn_ne(x, 0), 0, interleaved != 0, 1};
    if (head_dim) {
        r.heads = r.width / head_dim;
        r.width = head_dim;
    }
    r.pairs = (n_rot ? n_rot : r.width) / 2;
    return r;
}

static rotary rotary_of(const qn_call *c) {
    const qn_attr_rope_table *at = c->attr;
    rotary r = rotary_make(c->src[0], at->n_rot, at->interleaved, at->head_dim);
    if (c->op == QN_OP_rope_table_back) r.sign = -1;
    return r;
}

static void load_tables(const qn_call *c, const rotary *r, int64_t position, tables *to) {
    const qn_tensor *cosines = c->src[1], *sines = c->src[2];
    const char *co = qn_at(cosines, position * qn_nb(cosines, 1)), *si = qn_at(sines, position * qn_nb(sines, 1));
    for (int64_t i = 0; i < r->pairs; i += VF_N) {
        vf_store(to->cosine + i, qn_lanes_at(cosines->dtype, co, i, r->pairs));
        vf_store(to->sine + i, qn_lanes_at(sines->dtype, si, i, r->pairs) * vf_set1(r->sign));
    }
    if (r->interleaved) spread(to->cosine, to->sine, r->pairs);
}

static void turn_heads(const rotary *r, uint32_t dtype, char *to, const char *from, const tables *by) {
    int64_t size = qn_float_bytes(dtype), whole = r->width * size, turned = 2 * r->pairs * size;
    for (int64_t h = 0; h < r->heads; h++, to += whole, from += whole) {
#define NEIGHBOURS_OF(d) turn_neighbours(d, to, from, 2 * r->pairs, by->cosine, by->sine, QN_NEAR)
#define HALVES_OF(d) turn_halves(d, to, from, r->pairs, by->cosine, by->sine, QN_NEAR)
        if (r->interleaved) QN_BY_FLOAT(dtype, NEIGHBOURS_OF);
        else QN_BY_FLOAT(dtype, HALVES_OF);
        if (to != from && turned < whole) memcpy(to + turned, from + turned, (size_t)(whole - turned));
    }
}

static void run_table(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    const qn_tensor *x = c->src[0], *y = c->dst[0], *positions = c->n_src > 3 ? c->src[3] : NULL;
    rotary r = rotary_of(c);
    int64_t rows = qn_tensor_count(x) / qn_ne(x, 0), end = qn_cpu_cut(rows, s->parts[0], part + 1), loaded = -1;
    tables by;
    qn_rows it;
    (void)phase;
    memset(&by, 0, sizeof by);
    for (qn_rows_begin_at(&it, x->rank, x->shape, qn_cpu_cut(rows, s->parts[0], part)); it.live && it.row < end;
         qn_rows_next(&it)) {
        int64_t position = qn_rotary_position(r.token_axis, &it, positions);
        if (position != loaded) load_tables(c, &r, position, &by);
        loaded = position;
        turn_heads(&r, x->dtype, qn_row(&it, y), qn_row(&it, x), &by);
    }
}

static int prepare_table(const qn_call *c, qn_cpu_step *s) {
    const qn_tensor *x = c->src[0], *y = c->dst[0];
    rotary r = rotary_of(c);
    int64_t count = qn_tensor_count(x);
    if (count == 0 || r.pairs > MOST_PAIRS || !qn_lanes_rows(x) || !qn_lanes_rows(y)) return 0;
    if (qn_tensor_count(c->src[1]) == 0 || !qn_lanes_rows(c->src[1]) || !qn_lanes_rows(c->src[2])) return 0;
    int64_t n = qn_ne(x, 0);
    return qn_cpu_by_rows(s, "rope_table rows", run_table, count / n, 8.0 * (double)n, 0);
}
int QN_K(rope_table)(const qn_call *c, qn_cpu_step *s) { return prepare_table(c, s); }
int QN_K(rope_table_back)(const qn_call *c, qn_cpu_step *s) { return prepare_table(c, s); }

/* ---- rope_tables_grad: rows are counted into lists by position, and those of a list added up in their order */

static rotary rotary_behind(const qn_call *c) {
    const qn_attr_rope_tables_grad *at = c->attr;
    return rotary_make(c->src[1], at->n_rot, at->interleaved, at->head_dim);
}

/* Workspace: where lists start, the lists, and the positions they are made from. */
static void sort_rows(const qn_call *c, int64_t table, int64_t rows) {
    const qn_tensor *x = c->src[1], *positions = c->n_src > 2 ? c->src[2] : NULL;
    int32_t *start = c->workspace, *list = start + table + 1, *at = list + rows;
    int axis = rotary_behind(c).token_axis;
    qn_rows it;
    for (qn_rows_begin(&it, x->rank, x->shape); it.live; qn_rows_next(&it))
        at[it.row] = (int32_t)qn_rotary_position(axis, &it, positions);
    qn_tensor ids = {.data = at, .dtype = QN_DTYPE_I32, .rank = 1, .shape = {rows}, .stride = {4}};
    qn_experts_sort(&ids, rows, rows, table, start, list);
}

typedef struct gains {
    double along[MOST_PAIRS + VF_N], across[MOST_PAIRS + VF_N];
} gains;

/* The rows of one position. Most often the next of a list is the next of all. */
static void position_gain(const qn_call *c, const rotary *r, const int32_t *list, int64_t n, gains *b) {
    const qn_tensor *g = c->src[0], *x = c->src[1];
    int64_t width = r->width * qn_float_bytes(x->dtype);
    qn_rows it = {.row = -2};
    for (int64_t i = 0; i < r->pairs + VF_N; i++) b->along[i] = b->across[i] = 0;
    for (int64_t i = 0; i < n; i++) {
        if (list[i] == it.row + 1) qn_rows_next(&it);
        else qn_rows_begin_at(&it, x->rank, x->shape, list[i]);
        const char *up = qn_row(&it, g), *from = qn_row(&it, x);
        for (int64_t h = 0; h < r->heads; h++)
            add_gain(x->dtype, r->interleaved, up + h * width, from + h * width, r->pairs, b->along, b->across);
    }
}

static void run_tables(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    const qn_tensor *x = c->src[1], *dcos = c->dst[0], *dsin = c->dst[1];
    int64_t table = qn_ne(dcos, 1), rows = qn_tensor_count(x) / qn_ne(x, 0);
    const int32_t *start = c->workspace, *list = start + table + 1;
    rotary r = rotary_behind(c);
    gains b;
    if (phase == 0) {
        sort_rows(c, table, rows);
        return;
    }
    for (int64_t p = qn_cpu_cut(table, s->parts[1], part), end = qn_cpu_cut(table, s->parts[1], part + 1); p < end; p++) {
        position_gain(c, &r, list + start[p], start[p + 1] - start[p], &b);
        qn_store_row(dcos, qn_at(dcos, p * qn_nb(dcos, 1)), 0, r.pairs, b.along);
        qn_store_row(dsin, qn_at(dsin, p * qn_nb(dsin, 1)), 0, r.pairs, b.across);
    }
}

int QN_K(rope_tables_grad)(const qn_call *c, qn_cpu_step *s) {
    const qn_tensor *g = c->src[0], *x = c->src[1];
    int64_t count = qn_tensor_count(x), table = qn_ne(c->dst[0], 1);
    if (count == 0 || qn_tensor_count(c->dst[0]) == 0 || g->dtype != x->dtype || !qn_lanes_rows(g) || !qn_lanes_rows(x)) return 0;
    int64_t rows = count / qn_ne(x, 0);
    if (rotary_behind(c).pairs > MOST_PAIRS || rows > INT32_MAX || table > INT32_MAX - 1) return 0;
    qn_cpu_by_rows(s, "rope_tables_grad lists", run_tables, table, 8.0 * (double)count / (double)table, 0);
    s->n_phases = 2;
    s->parts[1] = s->parts[0];
    s->parts[0] = 1;
    s->workspace = (size_t)(table + 1 + 2 * rows) * sizeof(int32_t);
    return 1;
}
