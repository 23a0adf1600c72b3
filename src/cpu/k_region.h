/* Programs of elementwise steps, and where the rows of their sources lie: what machines of floats and of doubles share. */
#ifndef QN_CPU_K_REGION_H
#define QN_CPU_K_REGION_H

#include "cpu/kernel.h"
#include "op/region.h"

enum { QN_REGION_TILE = 128 }; /* elements of a register */

/* The program of `region`, or that which an op is by itself; 0: it is none. */
static inline int qn_region_program(const qn_call *c, qn_region *r) {
    int given = c->n_src; /* a source at the end may be left out */
    while (given > 1 && !c->src[given - 1]) given--;
    if (c->op != QN_OP_region) return qn_region_of_op(c->op, c->subop, c->attr, given, (qn_dtype)c->dst[0]->dtype, r);
    qn_region_read(&((const qn_attr_region *)c->attr)->code, r);
    return 1;
}

/* The output is dense; a source lies as it does, holds one element for all, or is stretched along some axes. */
typedef struct qn_region_layout {
    int64_t rows, columns; /* one row when no source is stretched along some axes only */
    int flat;
} qn_region_layout;

static inline int64_t qn_region_stretched(const qn_tensor *t, int k) { return qn_ne(t, k) == 1 ? 0 : qn_nb(t, k); }

static inline int qn_region_flat(const qn_tensor *t, const qn_tensor *y) {
    return qn_tensor_count(t) == 1 || (qn_cpu_is_dense(t) && qn_tensor_count(t) == qn_tensor_count(y));
}

static inline qn_region_layout qn_region_layout_of(const qn_call *c) {
    const qn_tensor *y = c->dst[0];
    qn_region_layout l = {.flat = 1, .rows = 1, .columns = qn_tensor_count(y)};
    for (int i = 0; i < c->n_src; i++) l.flat &= !c->src[i] || qn_region_flat(c->src[i], y);
    if (!l.flat) {
        l.columns = qn_ne(y, 0);
        l.rows = qn_tensor_count(y) / l.columns;
    }
    return l;
}

/* Where row `row` of y is in a source, from its last axis to its first; how far its elements are apart. */
static inline const char *qn_region_row(const qn_tensor *t, const qn_tensor *y, const qn_region_layout *l, int64_t row,
                                        int64_t *step) {
    int64_t at = 0;
    *step = l->flat ? (qn_tensor_count(t) == 1 ? 0 : qn_dtype_bytes(t->dtype)) : qn_region_stretched(t, 0);
    for (int k = 1; !l->flat && k < y->rank; row /= qn_ne(y, k++)) at += row % qn_ne(y, k) * qn_region_stretched(t, k);
    return qn_at(t, at);
}

static inline int64_t qn_region_tiles(const qn_region_layout *l) { return (l->columns + QN_REGION_TILE - 1) / QN_REGION_TILE; }

/* The tiles of a part, and where the rows they are of begin. */
typedef struct qn_region_walk {
    qn_region_layout l;
    int64_t tiles, unit, end; /* of a row; the next, and the last of the part */
    int64_t row, first;       /* of the tile at hand */
} qn_region_walk;

static inline qn_region_walk qn_region_walk_of(const qn_call *c, const qn_cpu_step *s, int64_t part) {
    qn_region_walk w = {.l = qn_region_layout_of(c), .row = -1};
    w.tiles = qn_region_tiles(&w.l);
    w.unit = qn_cpu_cut(w.l.rows * w.tiles, s->parts[0], part);
    w.end = qn_cpu_cut(w.l.rows * w.tiles, s->parts[0], part + 1);
    return w;
}

/* 0: there is none left. at and step are of sources: where row w->row begins, and how far its elements are apart. */
static inline int qn_region_next(const qn_call *c, qn_region_walk *w, const char **at, int64_t *step) {
    if (w->unit == w->end) return 0;
    int64_t row = w->unit / w->tiles;
    for (int i = 0; row != w->row && i < c->n_src; i++)
        if (c->src[i]) at[i] = qn_region_row(c->src[i], c->dst[0], &w->l, row, &step[i]);
    w->row = row;
    w->first = w->unit++ % w->tiles * QN_REGION_TILE;
    return 1;
}

#endif
