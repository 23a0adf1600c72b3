/* A dense tensor about one of its axes, and the units into which columns of such are cut that are walked side by side. */
#ifndef QN_CPU_K_COLUMNS_H
#define QN_CPU_K_COLUMNS_H

#include "cpu/kernel.h"

/* [outer, n, inner], n elements along the axis. */
typedef struct qn_about {
    int64_t outer, n, inner;
} qn_about;

/* The axis is the k-th from the end. */
static inline qn_about qn_about_axis(const qn_tensor *t, int k) {
    qn_about a = {1, qn_ne(t, k), 1};
    for (int j = 0; j < k; j++) a.inner *= qn_ne(t, j);
    for (int j = k + 1; j < t->rank; j++) a.outer *= qn_ne(t, j);
    return a;
}

/* Columns go many abreast, so that memory is read by more than a line at a time, unless that leaves too few units for threads. */
enum { QN_ABREAST = 256, QN_ABREAST_LEAST = 64, QN_ABREAST_UNITS = 16 };

static inline int64_t qn_abreast(int64_t outer, int64_t inner) {
    return outer * ((inner + QN_ABREAST - 1) / QN_ABREAST) < QN_ABREAST_UNITS ? QN_ABREAST_LEAST : QN_ABREAST;
}
static inline int64_t qn_columns_across(int64_t outer, int64_t inner) {
    return (inner + qn_abreast(outer, inner) - 1) / qn_abreast(outer, inner);
}
static inline int64_t qn_columns_units(int64_t outer, int64_t inner) { return outer * qn_columns_across(outer, inner); }

/* A unit: so many columns from `first` on, at place `outer`. */
typedef struct qn_columns {
    int64_t outer, first;
    int some;
} qn_columns;

static inline qn_columns qn_columns_at(int64_t outer, int64_t inner, int64_t unit) {
    int64_t most = qn_abreast(outer, inner), across = qn_columns_across(outer, inner), first = unit % across * most;
    return (qn_columns){unit / across, first, (int)(inner - first < most ? inner - first : most)};
}

#endif
