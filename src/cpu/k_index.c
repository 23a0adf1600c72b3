/* gather, gather_along, scatter_add and scatter_along_add over dense tensors, seen as [outer, along, inner] about the axis of the
 * indices. What is gathered is copied, of any dtype; what is scattered is added in the order of the updates, because a part takes its
 * columns of all of them: f32 and f64 where they lie, halves as doubles beside them, so that they are rounded once. */
#include "cpu/k_columns.h"
#include "cpu/k_typed.h"
#include "op/op_layout.h"
#include "op/op_axes.h"

enum { PIECE = 1024 }; /* columns that are never cut apart */

typedef struct view {
    int64_t outer, places, picks, inner;
} view;

static view view_of(const qn_tensor *t, int k, int64_t picks) {
    qn_about a = qn_about_axis(t, k);
    return (view){a.outer, a.n, picks, a.inner};
}

static int64_t place_at(const qn_tensor *idx, int64_t i) {
    const char *at = qn_at(idx, 0);
    return idx->dtype == QN_DTYPE_I32 ? (int64_t)((const int32_t *)(const void *)at)[i]
                                      : qn_load_index((qn_dtype)idx->dtype, at + i * qn_dtype_bytes(idx->dtype));
}

static int all_dense(const qn_call *c) {
    for (int i = 0; i < c->n_src; i++)
        if (!qn_cpu_is_dense(c->src[i])) return 0;
    return qn_cpu_is_dense(c->dst[0]) && !qn_is_block(c->dst[0]->dtype) && qn_tensor_count(c->dst[0]) > 0;
}

/* ---- Gathering */

static view gather_view(const qn_call *c) {
    return view_of(c->src[0], qn_op_axis(((const qn_attr_gather *)c->attr)->axis, c->src[0]->rank), qn_tensor_count(c->src[1]));
}

static void run_gather(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    (void)phase;
    view v = gather_view(c);
    int64_t bytes = v.inner * qn_dtype_bytes(c->dst[0]->dtype), rows = v.outer * v.picks;
    int64_t end = qn_cpu_cut(rows, s->parts[0], part + 1);
    for (int64_t r = qn_cpu_cut(rows, s->parts[0], part); r < end; r++) {
        int64_t from = r / v.picks * v.places + place_at(c->src[1], r % v.picks);
        if (bytes == 4) memcpy(qn_at(c->dst[0], r * 4), qn_at(c->src[0], from * 4), 4);
        else memcpy(qn_at(c->dst[0], r * bytes), qn_at(c->src[0], from * bytes), (size_t)bytes);
    }
}

int QN_K(gather)(const qn_call *c, qn_cpu_step *s) {
    if (!all_dense(c)) return 0;
    view v = gather_view(c);
    int64_t bytes = v.inner * qn_dtype_bytes(c->dst[0]->dtype);
    return qn_cpu_by_rows(s, "gathered rows", run_gather, v.outer * v.picks, 2.0 * (double)bytes + 8, 0);
}

static view along_view(const qn_call *c, const qn_tensor *idx) {
    int k = qn_op_axis(((const qn_attr_gather_along *)c->attr)->axis, c->src[0]->rank);
    return view_of(c->src[0], k, qn_ne(idx, k));
}

static void run_gather_along(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    (void)phase;
    view v = along_view(c, c->src[1]);
    int64_t size = qn_dtype_bytes(c->dst[0]->dtype), all = v.outer * v.picks * v.inner;
    int64_t end = qn_cpu_cut(all, s->parts[0], part + 1);
    for (int64_t i = qn_cpu_cut(all, s->parts[0], part); i < end; i++) {
        int64_t outer = i / (v.picks * v.inner), from = (outer * v.places + place_at(c->src[1], i)) * v.inner + i % v.inner;
        if (size == 4) memcpy(qn_at(c->dst[0], i * 4), qn_at(c->src[0], from * 4), 4);
        else memcpy(qn_at(c->dst[0], i * size), qn_at(c->src[0], from * size), (size_t)size);
    }
}

int QN_K(gather_along)(const qn_call *c, qn_cpu_step *s) {
    if (!all_dense(c)) return 0;
    return qn_cpu_by_rows(s, "gathered elements", run_gather_along, qn_tensor_count(c->dst[0]), 24, 0);
}

/* ---- Adding where indices say: first what is there is copied, unless it lies there */

static void add_to(uint32_t dtype, char *to, const char *from, int64_t n) {
    float *y = (float *)(void *)to;
    const float *u = (const float *)(const void *)from;
    if (dtype == QN_DTYPE_F64) {
        QN_TYPED_EACH
        for (int64_t i = 0; i < n; i++) ((double *)(void *)to)[i] += ((const double *)(const void *)from)[i];
        return;
    }
    int64_t i = 0;
    for (; i + VF_N <= n; i += VF_N) vf_store(y + i, vf_load(y + i) + vf_load(u + i));
    for (; i < n; i++) y[i] += u[i];
}

/* Columns [first, first + n) of every update of one outer index. */
static void add_slices(const qn_call *c, const view *v, int64_t outer, int64_t first, int64_t n) {
    int64_t size = qn_dtype_bytes(c->dst[0]->dtype), row = v->inner * size;
    char *y = qn_at(c->dst[0], outer * v->places * row + first * size);
    const char *u = qn_at(c->src[1], outer * v->picks * row + first * size);
    for (int64_t p = 0; p < v->picks; p++) add_to(c->dst[0]->dtype, y + place_at(c->src[2], p) * row, u + p * row, n);
}

#define ADD_ELEMENTS(type)                                                                                                   \
    do {                                                                                                                     \
        type *y = (type *)(void *)qn_at(c->dst[0], 0) + outer * v->places * v->inner + first;                                \
        const type *u = (const type *)(const void *)qn_at(c->src[1], 0);                                                     \
        for (int64_t p = 0; p < v->picks; p++)                                                                               \
            for (int64_t k = 0, i = begin + p * v->inner; k < n; k++, i++) y[place_at(c->src[2], i) * v->inner + k] += u[i]; \
    } while (0)

static void add_elements(const qn_call *c, const view *v, int64_t outer, int64_t first, int64_t n) {
    int64_t begin = outer * v->picks * v->inner + first;
    if (c->dst[0]->dtype == QN_DTYPE_F64) ADD_ELEMENTS(double);
    else ADD_ELEMENTS(float);
}

static void copy_part(const qn_call *c, const qn_cpu_step *s, int64_t part) {
    if (qn_op_in_place(c->dst[0], c->src[0])) return;
    int64_t n = qn_tensor_count(c->dst[0]), size = qn_dtype_bytes(c->dst[0]->dtype),
            first = qn_cpu_cut(n, s->parts[0], part) * size;
    memcpy(qn_at(c->dst[0], first), qn_at(c->src[0], first), (size_t)(qn_cpu_cut(n, s->parts[0], part + 1) * size - first));
}

typedef void (*add_fn)(const qn_call *c, const view *v, int64_t outer, int64_t first, int64_t n);

static void run_adds(const qn_call *c, const qn_cpu_step *s, int64_t part, view v, add_fn add) {
    int64_t pieces = (v.inner + PIECE - 1) / PIECE, units = v.outer * pieces, end = qn_cpu_cut(units, s->parts[1], part + 1);
    for (int64_t i = qn_cpu_cut(units, s->parts[1], part); i < end; i++) {
        int64_t first = i % pieces * PIECE;
        add(c, &v, i / pieces, first, v.inner - first < PIECE ? v.inner - first : PIECE);
    }
}

static int prepare_adds(const qn_call *c, qn_cpu_step *s, view v, const char *name, qn_cpu_run_fn run) {
    int64_t units = v.outer * ((v.inner + PIECE - 1) / PIECE), n = qn_tensor_count(c->dst[0]);
    s->run = run;
    s->name = name;
    s->n_phases = 2;
    s->parts[0] = qn_cpu_parts(n, 8, 0);
    s->parts[1] = qn_cpu_parts(units, 12.0 * (double)(v.outer * v.picks * v.inner) / (double)units, 0);
    return 1;
}

static int can_add(const qn_call *c) {
    return all_dense(c) && (c->dst[0]->dtype == QN_DTYPE_F32 || c->dst[0]->dtype == QN_DTYPE_F64);
}

static view scatter_view(const qn_call *c) {
    int k = qn_op_axis(((const qn_attr_scatter_add *)c->attr)->axis, c->src[0]->rank);
    return view_of(c->src[0], k, qn_tensor_count(c->src[2]));
}

static void run_scatter(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    if (phase == 0) copy_part(c, s, part);
    else run_adds(c, s, part, scatter_view(c), add_slices);
}

static void run_scatter_along(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    if (phase == 0) copy_part(c, s, part);
    else run_adds(c, s, part, along_view(c, c->src[2]), add_elements);
}

/* ---- The same of f16 and bf16: some columns of the whole table become doubles, take the updates, and are put back */

enum { CHUNK = 256, KEPT = 1 << 17, MOST_KEPT = 1 << 25 }; /* doubles of a part, bytes of all of them */

typedef struct wide {
    view v;
    int along;
    int64_t columns, blocks; /* of a unit, and how many there are of one outer index */
} wide;

static wide wide_of(const qn_call *c) {
    int along = c->op == QN_OP_scatter_along_add;
    wide w = {along ? along_view(c, c->src[2]) : scatter_view(c), along, KEPT, 0};
    if (w.v.places > 0) w.columns = KEPT / w.v.places;
    if (w.columns < 1) w.columns = 1;
    if (w.columns > w.v.inner) w.columns = w.v.inner;
    w.blocks = (w.v.inner + w.columns - 1) / w.columns;
    return w;
}

/* n elements of the updates from element `from` on, the first of them in this column of this pick; rows have so many. */
static void add_wide(const qn_call *c, const wide *w, double *sums, int64_t from, int64_t pick, int64_t column, int64_t columns,
                     int64_t n) {
    const qn_tensor *u = c->src[1], *idx = c->src[2];
    double more[CHUNK];
    qn_typed_load(u->dtype, qn_at(u, from * qn_dtype_bytes(u->dtype)), n, more, 0);
    for (int64_t i = 0, some; i < n; i += some, column = 0, pick++) {
        some = n - i < columns - column ? n - i : columns - column;
        double *to = sums + column;
        if (w->along)
            for (int64_t k = 0; k < some; k++) to[place_at(idx, from + i + k) * columns + k] += more[i + k];
        else {
            to += place_at(idx, pick) * columns;
            QN_TYPED_EACH
            for (int64_t k = 0; k < some; k++) to[k] += more[i + k];
        }
    }
}

static void add_unit(const qn_call *c, const wide *w, int64_t unit, double *sums) {
    const view *v = &w->v;
    const qn_tensor *a = c->src[0], *y = c->dst[0];
    int64_t outer = unit / w->blocks, first = unit % w->blocks * w->columns, size = qn_dtype_bytes(y->dtype);
    int64_t n = v->inner - first < w->columns ? v->inner - first : w->columns;
    int whole = n == v->inner; /* then places, and updates, follow each other */
    int64_t rows = whole ? 1 : v->places, each = whole ? n * v->places : n, picks = whole ? 1 : v->picks,
            run = whole ? n * v->picks : n;
    for (int64_t p = 0; p < rows; p++)
        qn_typed_load(a->dtype, qn_at(a, ((outer * v->places + p) * v->inner + first) * size), each, sums + p * n, 0);
    for (int64_t p = 0; p < picks; p++)
        for (int64_t i = 0; i < run; i += CHUNK)
            add_wide(c, w, sums, (outer * v->picks + p) * v->inner + first + i, p + i / n, i % n, n,
                     run - i < CHUNK ? run - i : CHUNK);
    for (int64_t p = 0; p < rows; p++)
        qn_typed_store(y->dtype, sums + p * n, each, qn_at(y, ((outer * v->places + p) * v->inner + first) * size));
}

static void run_wide(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    wide w = wide_of(c);
    int64_t units = w.v.outer * w.blocks;
    (void)phase;
    for (int64_t u = qn_cpu_cut(units, s->parts[0], part), end = qn_cpu_cut(units, s->parts[0], part + 1); u < end; u++)
        add_unit(c, &w, u, (double *)c->workspace + part * w.v.places * w.columns);
}

/* Few updates of a large table are left to the reference, which in place looks at nothing else. */
static int prepare_wide(const qn_call *c, qn_cpu_step *s) {
    if (!all_dense(c) || c->src[1]->dtype != c->dst[0]->dtype) return 0;
    wide w = wide_of(c);
    int64_t units = w.v.outer * w.blocks, n = qn_tensor_count(c->dst[0]), added = w.v.outer * w.v.picks * w.v.inner;
    if (units == 0 || added < n / 8 || w.v.places > MOST_KEPT / 8) return 0;
    qn_cpu_by_rows(s, "scattered doubles", run_wide, units, 16.0 * (double)(n + added) / (double)units, 0);
    int64_t each = w.v.places * w.columns * (int64_t)sizeof(double);
    if (s->parts[0] > MOST_KEPT / each) s->parts[0] = MOST_KEPT / each;
    s->workspace = (size_t)(s->parts[0] * each);
    return 1;
}

int QN_K(scatter_add)(const qn_call *c, qn_cpu_step *s) {
    return can_add(c) ? prepare_adds(c, s, scatter_view(c), "scattered rows", run_scatter) : prepare_wide(c, s);
}
int QN_K(scatter_along_add)(const qn_call *c, qn_cpu_step *s) {
    return can_add(c) ? prepare_adds(c, s, along_view(c, c->src[2]), "scattered elements", run_scatter_along)
                      : prepare_wide(c, s);
}
