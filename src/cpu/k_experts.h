/* Rows that each go to a matrix of their own: lists of them by matrix, for the products with experts. */
#ifndef QN_CPU_K_EXPERTS_H
#define QN_CPU_K_EXPERTS_H

#include "cpu/k_copy.h"

/* Counting sort, which keeps the order of rows within an expert. Row i goes to number i % used of line i / used of ids; expert x has
 * the rows list[start[x]] .. list[start[x + 1] - 1]. start has room for count + 1. */
static inline void qn_experts_sort(const qn_tensor *ids, int64_t used, int64_t rows, int64_t count, int32_t *start,
                                   int32_t *list) {
    memset(start, 0, (size_t)(count + 1) * sizeof *start);
    for (int64_t i = 0; i < rows; i++) start[qn_index4(ids, 0, 0, i / used, i % used) + 1]++;
    for (int64_t x = 0; x < count; x++) start[x + 1] += start[x];
    for (int64_t i = 0; i < rows; i++) list[start[qn_index4(ids, 0, 0, i / used, i % used)]++] = (int32_t)i;
    for (int64_t x = count; x > 0; x--) start[x] = start[x - 1]; /* each has moved to where the next begins */
    start[0] = 0;
}

/* A few tokens whose rows of y go to experts of their own, or all to one matrix: their lists, and rows of x as floats, in a workspace. x and y
 * lie side by side. */
typedef struct qn_experts_few {
    const qn_tensor *x, *ids;  /* ids NULL: one matrix */
    int64_t rows, used, count; /* rows of y, those of a token, matrices */
    int64_t lines, k;          /* rows of x and their length */
} qn_experts_few;
typedef struct qn_experts_room {
    int32_t *start, *list;
    float *x;
} qn_experts_room;

static inline qn_experts_few qn_experts_few_of(const qn_tensor *x, const qn_tensor *ids, const qn_tensor *y, int64_t count) {
    int64_t k = qn_ne(x, 0), used = ids ? qn_ne(y, 1) : 1;
    return (qn_experts_few){x, ids, qn_tensor_count(y) / qn_ne(y, 0), used, count, qn_tensor_count(x) / k, k};
}
/* No more than `most` tokens, or rows to a matrix if each gets as many. */
static inline int qn_experts_are_few(const qn_experts_few *f, int64_t most) {
    return f->rows <= most * (f->used > f->count ? f->used : f->count);
}
static inline size_t qn_experts_lists_bytes(const qn_experts_few *f) { return (size_t)((f->count + 1 + f->rows + 15) / 16) * 64; }
static inline size_t qn_experts_room_bytes(const qn_experts_few *f) {
    return qn_experts_lists_bytes(f) + (size_t)(f->lines * f->k) * sizeof(float);
}
static inline qn_experts_room qn_experts_room_of(const qn_experts_few *f, void *workspace) {
    int32_t *start = workspace;
    return (qn_experts_room){start, start + f->count + 1, (float *)(void *)((char *)workspace + qn_experts_lists_bytes(f))};
}

/* One of `parts` parts that fill the room. */
static inline void qn_experts_gather(const qn_experts_few *f, void *workspace, int64_t parts, int64_t part) {
    qn_experts_room r = qn_experts_room_of(f, workspace);
    int64_t size = qn_float_bytes(f->x->dtype), end = qn_cpu_cut(f->lines, parts, part + 1);
    for (int64_t i = qn_cpu_cut(f->lines, parts, part); i < end; i++)
        qn_copy_row(f->x->dtype, qn_at(f->x, i * f->k * size), QN_DTYPE_F32, (char *)(r.x + i * f->k), f->k);
    if (part > 0) return;
    if (f->ids) {
        qn_experts_sort(f->ids, f->used, f->rows, f->count, r.start, r.list);
        return;
    }
    r.start[0] = 0, r.start[1] = (int32_t)f->rows;
    for (int32_t i = 0; i < f->rows; i++) r.list[i] = i;
}

/* The row of x that row i of y is made of: each of a token's has one of its own, or all the same. */
static inline const float *qn_experts_line(const qn_experts_few *f, const qn_experts_room *r, int64_t i) {
    int64_t each = f->ids ? qn_ne(f->x, 1) : 1;
    return r->x + (i / f->used * each + i % f->used % each) * f->k;
}

/* In place of the large product that is prepared in s, whose parts s->n[0] and s->n[1] then tell: rows are gathered, then units of columns,
 * of `bytes` and so many rows of a matrix, are multiplied, each with all matrices. */
static inline void qn_experts_few_step(const qn_experts_few *f, qn_cpu_step *s, qn_cpu_run_fn run, int64_t units, double bytes,
                                       int64_t columns) {
    size_t room = qn_experts_room_bytes(f);
    double busy = (double)(f->rows < f->count ? f->rows : f->count); /* matrices that have rows, at most */
    s->wrapped = s->run;
    s->n[0] = s->parts[0];
    s->n[1] = s->parts[1];
    s->run = run;
    s->parts[0] = qn_cpu_parts(f->lines, (double)f->k * 8, 0);
    s->parts[1] = qn_cpu_parts(units, bytes * busy, (double)(columns * f->k * f->rows * 2));
    if (s->workspace < room) s->workspace = room;
}

/* A part of such a step that is not a product; 0: it is one. Without packed weights, which turned out not to stay, the large product. */
static inline int qn_experts_few_else(const qn_experts_few *f, const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    if (!s->packed)
        for (int64_t i = part; i < s->n[phase]; i += s->parts[phase]) s->wrapped(c, s, phase, i);
    else if (phase == 0) qn_experts_gather(f, c->workspace, s->parts[0], part);
    else return 0;
    return 1;
}

#endif
