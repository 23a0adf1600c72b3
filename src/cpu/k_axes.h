/* Reductions over any axes of a dense tensor: axes that go and axes that stay are merged with their neighbours; what is left is at most
 * a few groups, of which the innermost decides the loop. Axes that go stay two where an axis that stays lies between, be it of one: what is
 * added in which order does not depend on how many there are of what stays. */
#ifndef QN_CPU_K_AXES_H
#define QN_CPU_K_AXES_H

#include "cpu/k_columns.h"

enum { QN_AXES_GROUPS = QN_MAX_RANK };

/* Groups from the first axis to the last; those that stay, in order, are the output. */
typedef struct qn_axes {
    int n;
    int64_t extent[QN_AXES_GROUPS];
    int gone[QN_AXES_GROUPS];
    int apart;    /* an axis of one that stays lies behind the last group */
    int64_t kept; /* elements of the output */
} qn_axes;

static inline void qn_axes_add(qn_axes *l, int64_t extent, int gone) {
    l->apart |= !gone;
    if (extent == 1) return;
    if (!gone) l->kept *= extent;
    if (l->n && l->gone[l->n - 1] == gone && !(gone && l->apart)) l->extent[l->n - 1] *= extent;
    else {
        l->extent[l->n] = extent;
        l->gone[l->n++] = gone;
    }
    l->apart = 0;
}

/* A place in the groups before `inner`: the next one of those that go (or stay), and where its first element is. */
typedef struct qn_axes_place {
    int64_t index[QN_AXES_GROUPS];
} qn_axes_place;

static inline int qn_axes_next(const qn_axes *l, int inner, qn_axes_place *w, int gone) {
    for (int i = inner - 1; i >= 0; i--) {
        if (l->gone[i] != gone) continue;
        if (++w->index[i] < l->extent[i]) return 1;
        w->index[i] = 0;
    }
    return 0;
}

static inline int64_t qn_axes_offset(const qn_axes *l, int inner, const qn_axes_place *w, int64_t below) {
    int64_t at = 0;
    for (int i = 0; i < inner; i++) at = at * l->extent[i] + w->index[i];
    return at * below;
}

/* Output numbers: place `n` of the groups that stay before `inner`. */
static inline qn_axes_place qn_axes_kept(const qn_axes *l, int inner, int64_t n) {
    qn_axes_place w = {{0}};
    for (int i = inner - 1; i >= 0; i--)
        if (!l->gone[i]) {
            w.index[i] = n % l->extent[i];
            n /= l->extent[i];
        }
    return w;
}

static inline int64_t qn_axes_units(const qn_axes *l) {
    if (l->n == 0 || l->gone[l->n - 1]) return l->kept;
    return qn_columns_units(l->kept / l->extent[l->n - 1], l->extent[l->n - 1]);
}

/* A unit of columns: the innermost group stays, and the one above it goes, since groups that stay are merged; so many `rows` are walked at
 * each place of the groups before that, from `place` on. `to`: its first element of the output. */
typedef struct qn_axes_columns {
    int above, some;
    int64_t width, rows, first, to;
    qn_axes_place place;
} qn_axes_columns;

static inline qn_axes_columns qn_axes_columns_at(const qn_axes *l, int64_t unit) {
    int inner = l->n - 1, above = inner > 0 ? inner - 1 : 0;
    int64_t width = l->extent[inner];
    qn_columns c = qn_columns_at(l->kept / width, width, unit);
    return (qn_axes_columns){above,
                             c.some,
                             width,
                             inner > 0 ? l->extent[above] : 1,
                             c.first,
                             c.outer * width + c.first,
                             qn_axes_kept(l, above, c.outer)};
}
/* Where the rows at the unit's place begin. */
static inline int64_t qn_axes_columns_from(const qn_axes *l, const qn_axes_columns *c) {
    return qn_axes_offset(l, c->above, &c->place, c->rows * c->width) + c->first;
}

/* The groups of `reduce`. */
static inline qn_axes qn_axes_of_reduce(const qn_call *c) {
    const qn_attr_reduce *at = c->attr;
    const qn_tensor *x = c->src[0];
    unsigned named = at->axes.rank ? 0 : ~0u;
    for (int i = 0; i < at->axes.rank; i++) named |= 1u << (at->axes.d[i] < 0 ? at->axes.d[i] + x->rank : at->axes.d[i]);
    qn_axes l = {.kept = 1};
    for (int i = 0; i < x->rank; i++) qn_axes_add(&l, x->shape[i], (int)(named >> i & 1));
    return l;
}

/* The same of every op that adds up: reduce, sum_rows, mean, sum, repeat_back. 0: tiles of it that are neither an axis whole nor one element. */
static inline int qn_axes_of(const qn_call *c, qn_axes *l) {
    const qn_tensor *x = c->src[0], *y = c->dst[0];
    *l = (qn_axes){.kept = 1};
    if (c->op == QN_OP_reduce) *l = qn_axes_of_reduce(c);
    else if (c->op == QN_OP_sum) qn_axes_add(l, qn_tensor_count(x), 1);
    else
        for (int k = x->rank - 1; k >= 0; k--) {
            int gone = c->op == QN_OP_repeat_back ? qn_ne(y, k) != qn_ne(x, k) : k == 0;
            if (c->op == QN_OP_repeat_back && gone && qn_ne(y, k) != 1) return 0;
            qn_axes_add(l, qn_ne(x, k), gone);
        }
    return 1;
}
static inline int qn_axes_is_mean(const qn_call *c) {
    return c->op == QN_OP_mean || (c->op == QN_OP_reduce && c->subop == QN_REDUCE_mean);
}

#endif
