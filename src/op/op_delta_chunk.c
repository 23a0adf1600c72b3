/* The stages of the delta rule by chunks as ops of their own, and the arithmetic they share with delta_rule. See op_delta.h. */
#include "op/op_delta.h"

#include <math.h>

#include "op/product.h"

/* ---- One chunk */

qn_status qn_op_delta_room(qn_infer_call *c, const qn_delta_sizes *z, int64_t n) {
    QN_TRY(qn_scratch_add(c, n, z->key_width, 3));
    QN_TRY(qn_scratch_add(c, n, z->width, 3)); /* v, u and one row for the result each */
    QN_TRY(qn_scratch_add(c, n, n, 2));
    QN_TRY(qn_scratch_add(c, n, 2, 1));
    return qn_scratch_add(c, z->width, z->key_width, 1);
}

void qn_op_delta_place(qn_delta_chunk *x, const qn_delta_sizes *z, int64_t n, double *at) {
    *x = (qn_delta_chunk){.n = n, .ld = n, .key_width = z->key_width, .width = z->width};
    x->q = at;
    x->k = x->q + n * z->key_width;
    x->w = x->k + n * z->key_width;
    x->v = x->w + n * z->key_width;
    x->u = x->v + n * z->width;
    x->a = x->u + 2 * n * z->width;
    x->inverse = x->a + n * n;
    x->beta = x->inverse + n * n;
    x->g = x->beta + n;
    x->state = x->g + n;
}

static double dot(const double *a, const double *b, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += a[i] * b[i];
    return sum;
}

void qn_op_delta_kkt(const qn_delta_chunk *x) {
    int64_t m = x->key_width;
    for (int64_t i = 0; i < x->n; i++)
        for (int64_t j = 0; j < x->ld; j++)
            x->a[i * x->ld + j] = j < i ? x->beta[i] * dot(x->k + i * m, x->k + j * m, m) * exp(x->g[i] - x->g[j]) : 0;
}

void qn_op_delta_invert(const qn_delta_chunk *x) {
    int64_t ld = x->ld;
    for (int64_t i = 0; i < x->n; i++)
        for (int64_t j = 0; j < ld; j++) {
            double sum = i == j;
            for (int64_t m = j; m < i; m++) sum -= x->a[i * ld + m] * x->inverse[m * ld + j];
            x->inverse[i * ld + j] = j <= i ? sum : 0;
        }
}

void qn_op_delta_wu(const qn_delta_chunk *x) {
    for (int64_t i = 0; i < x->n; i++) {
        double *w = x->w + i * x->key_width, *u = x->u + i * x->width;
        for (int64_t l = 0; l < x->key_width; l++) w[l] = 0;
        for (int64_t l = 0; l < x->width; l++) u[l] = 0;
        for (int64_t j = 0; j <= i; j++) {
            double t = x->inverse[i * x->ld + j] * x->beta[j], decayed = t * exp(x->g[j]);
            for (int64_t l = 0; l < x->key_width; l++) w[l] += decayed * x->k[j * x->key_width + l];
            for (int64_t l = 0; l < x->width; l++) u[l] += t * x->v[j * x->width + l];
        }
    }
}

void qn_op_delta_fresh(const qn_delta_chunk *x) {
    int64_t m = x->key_width;
    for (int64_t i = 0; i < x->n; i++)
        for (int64_t l = 0; l < x->width; l++)
            x->v[i * x->width + l] = x->u[i * x->width + l] - dot(x->w + i * m, x->state + l * m, m);
}

void qn_op_delta_advance(const qn_delta_chunk *x) {
    int64_t m = x->key_width;
    double last = x->n ? x->g[x->n - 1] : 0;
    for (int64_t l = 0; l < x->width; l++)
        for (int64_t j = 0; j < m; j++) {
            double sum = exp(last) * x->state[l * m + j];
            for (int64_t i = 0; i < x->n; i++) sum += exp(last - x->g[i]) * x->v[i * x->width + l] * x->k[i * m + j];
            x->state[l * m + j] = sum;
        }
}

void qn_op_delta_read(const qn_delta_chunk *x, int64_t i, double scale, double *y) {
    int64_t m = x->key_width;
    const double *q = x->q + i * m;
    for (int64_t l = 0; l < x->width; l++) y[l] = exp(x->g[i]) * dot(x->state + l * m, q, m);
    for (int64_t j = 0; j <= i; j++) {
        double weight = dot(q, x->k + j * m, m) * exp(x->g[i] - x->g[j]);
        for (int64_t l = 0; l < x->width; l++) y[l] += weight * x->v[j * x->width + l];
    }
    for (int64_t l = 0; l < x->width; l++) y[l] *= scale;
}

/* ---- In and out of tensors */

void qn_op_delta_load(const qn_tensor *t, int64_t b, int64_t first, int64_t n, int64_t h, int64_t length, double *out) {
    for (int64_t i = 0; i < n; i++) qn_load_row(t, qn_row4(t, b, first + i, h), 0, length, out + i * length);
}

void qn_op_delta_store(const qn_tensor *t, int64_t b, int64_t first, int64_t n, int64_t h, int64_t length, const double *in) {
    for (int64_t i = 0; i < n; i++) qn_store_row(t, qn_row4(t, b, first + i, h), 0, length, in + i * length);
}

void qn_op_delta_load_numbers(const qn_tensor *t, int64_t b, int64_t first, int64_t n, int64_t h, double *out) {
    for (int64_t i = 0; i < n; i++) out[i] = qn_get4(t, 0, b, first + i, h);
}

void qn_op_delta_load_state(const qn_tensor *t, const char *at, int64_t rows, int64_t n, double *out) {
    for (int64_t l = 0; at && l < rows; l++) qn_load_row(t, at + l * qn_nb(t, 1), 0, n, out + l * n);
}

void qn_op_delta_store_state(const qn_tensor *t, char *at, int64_t rows, int64_t n, const double *in) {
    for (int64_t l = 0; at && l < rows; l++) qn_store_row(t, at + l * qn_nb(t, 1), 0, n, in + l * n);
}

/* ---- Shape rules */

static int64_t chunks_of(int64_t steps, int64_t chunk) { return steps / chunk + (steps % chunk != 0); }

/* Source `slot` is [seqs, steps, heads, ..]. */
static qn_status need_tokens(qn_infer_call *c, int slot, const qn_delta_sizes *z, int axes) {
    QN_TRY(qn_need_rank(c, slot, 3 + axes));
    QN_TRY(qn_need_extent(c, slot, axes, z->heads));
    QN_TRY(qn_need_extent(c, slot, axes + 1, z->steps));
    return qn_need_extent(c, slot, axes + 2, z->seqs);
}

/* Keys at `slot`, [seqs, steps, key heads, K], for heads that another source gave. */
static qn_status need_keys(qn_infer_call *c, int slot, qn_delta_sizes *z) {
    const qn_tensor *k = c->src[slot];
    QN_TRY(qn_need_rank(c, slot, 4));
    z->key_heads = qn_ne(k, 1);
    z->key_width = qn_ne(k, 0);
    QN_TRY(qn_need_extent(c, slot, 2, z->steps));
    QN_TRY(qn_need_extent(c, slot, 3, z->seqs));
    return qn_need_divides(c, slot, 1, z->heads);
}

/* Sizes from a tensor of numbers [B, T, H]. */
static qn_status open_numbers(qn_infer_call *c, int slot, qn_delta_sizes *z) {
    const qn_tensor *g = c->src[slot];
    *z = (qn_delta_sizes){.seqs = qn_ne(g, 2), .steps = qn_ne(g, 1), .heads = qn_ne(g, 0)};
    return qn_need_rank(c, slot, 3);
}

qn_status qn_infer_delta_kkt(qn_infer_call *c) {
    const qn_attr_delta_kkt *at = c->attr;
    qn_delta_sizes z;
    QN_TRY(open_numbers(c, 2, &z));
    QN_TRY(need_keys(c, 0, &z));
    QN_TRY(qn_need_same_shape(c, 1, 2));
    QN_TRY(qn_need_one_dtype(c, 0));
    QN_TRY(qn_op_delta_room(c, &z, at->chunk));
    c->flops_each = (double)z.key_width;
    int64_t d[4] = {z.seqs, z.steps, z.heads, at->chunk};
    return qn_out_shape(c, 0, c->src[0]->dtype, 4, d);
}

qn_status qn_infer_delta_invert(qn_infer_call *c) {
    const qn_tensor *a = c->src[0];
    int64_t n = qn_ne(a, 0);
    qn_delta_sizes z = {0};
    QN_TRY(qn_need_rank(c, 0, 4));
    if (n == 0) return qn_reject_src(c, 0, QN_REASON_SHAPE_EMPTY, qn_axis(a, 0), 1, 0);
    QN_TRY(qn_op_delta_room(c, &z, n));
    c->flops_each = (double)n;
    qn_out_like(c, 0, a, a->dtype);
    return QN_OK;
}

qn_status qn_infer_delta_wu(qn_infer_call *c) {
    const qn_attr_delta_wu *at = c->attr;
    qn_delta_sizes z;
    QN_TRY(open_numbers(c, 3, &z));
    QN_TRY(need_keys(c, 0, &z));
    z.width = qn_ne(c->src[1], 0);
    QN_TRY(need_tokens(c, 1, &z, 1));
    QN_TRY(qn_need_same_shape(c, 2, 3));
    QN_TRY(need_tokens(c, 4, &z, 1));
    QN_TRY(qn_need_extent(c, 4, 0, at->chunk));
    QN_TRY(qn_need_one_dtype(c, 0));
    QN_TRY(qn_op_delta_room(c, &z, at->chunk));
    c->flops_each = (double)at->chunk;
    int64_t d[4] = {z.seqs, z.steps, z.heads, z.key_width};
    QN_TRY(qn_out_shape(c, 0, c->src[0]->dtype, 4, d));
    d[3] = z.width;
    return qn_out_shape(c, 1, c->src[0]->dtype, 4, d);
}

qn_status qn_infer_delta_states(qn_infer_call *c) {
    const qn_attr_delta_states *at = c->attr;
    qn_delta_sizes z;
    uint32_t dtype = c->src[0]->dtype;
    QN_TRY(open_numbers(c, 3, &z));
    QN_TRY(need_keys(c, 0, &z));
    z.width = qn_ne(c->src[2], 0);
    QN_TRY(need_tokens(c, 1, &z, 1));
    QN_TRY(qn_need_extent(c, 1, 0, z.key_width));
    QN_TRY(need_tokens(c, 2, &z, 1));
    QN_TRY(qn_need_rank(c, 4, 4));
    int64_t state[4] = {z.seqs, z.heads, z.width, z.key_width}, h[5], fresh[4] = {z.seqs, z.steps, z.heads, z.width};
    for (int k = 0; k < 4; k++) QN_TRY(qn_need_extent(c, 4, 3 - k, state[k]));
    QN_TRY(qn_need_one_dtype(c, 0));
    QN_TRY(qn_op_delta_room(c, &z, at->chunk));
    memcpy(h + 1, state, sizeof state);
    h[0] = z.seqs;
    h[1] = chunks_of(z.steps, at->chunk);
    memcpy(h + 2, state + 1, 3 * sizeof *h);
    QN_TRY(qn_out_shape(c, 0, dtype, 5, h));
    QN_TRY(qn_out_shape(c, 1, dtype, 4, fresh));
    return qn_out_shape(c, 2, dtype, 4, state);
}

qn_status qn_infer_delta_outputs(qn_infer_call *c) {
    const qn_attr_delta_outputs *at = c->attr;
    qn_delta_sizes z;
    QN_TRY(open_numbers(c, 4, &z));
    QN_TRY(need_keys(c, 0, &z));
    QN_TRY(qn_need_same_shape(c, 1, 0));
    z.width = qn_ne(c->src[2], 0);
    QN_TRY(need_tokens(c, 2, &z, 1));
    QN_TRY(qn_need_rank(c, 3, 5));
    int64_t h[5] = {z.seqs, chunks_of(z.steps, at->chunk), z.heads, z.width, z.key_width};
    for (int k = 0; k < 5; k++) QN_TRY(qn_need_extent(c, 3, 4 - k, h[k]));
    QN_TRY(qn_need_one_dtype(c, 0));
    QN_TRY(qn_op_delta_room(c, &z, at->chunk));
    c->flops_each = 2.0 * (double)z.key_width + 2.0 * (double)at->chunk;
    int64_t d[4] = {z.seqs, z.steps, z.heads, z.width};
    return qn_out_shape(c, 0, c->src[0]->dtype, 4, d);
}

/* ---- References: each walks the chunks of every head */

typedef struct walk {
    qn_delta_sizes z;
    qn_delta_chunk x;
    int64_t b, h, key, first, chunk, number; /* of the chunk at hand */
} walk;

/* Sizes from numbers [B, T, H] and keys; NULL keys for stages that have none. */
static void walk_open(walk *w, const qn_tensor *g, const qn_tensor *k, int64_t width, int64_t chunk, int blocked, double *room) {
    *w = (walk){.z = {qn_ne(g, 2), qn_ne(g, 1), qn_ne(g, 0), k ? qn_ne(k, 1) : 1, k ? qn_ne(k, 0) : 0, width, blocked},
                .chunk = chunk};
    qn_op_delta_place(&w->x, &w->z, chunk, room);
    w->number = -1;
}

/* The next chunk, chunks of a head one behind the other. 0 when there is none. */
static int walk_next(walk *w) {
    int64_t chunks = chunks_of(w->z.steps, w->chunk), total = w->z.seqs * w->z.heads * chunks;
    if (++w->number >= total) return 0;
    w->b = w->number / (w->z.heads * chunks);
    w->h = w->number / chunks % w->z.heads;
    w->key = qn_op_delta_key_head(&w->z, w->h);
    w->first = w->number % chunks * w->chunk;
    w->x.n = w->z.steps - w->first < w->chunk ? w->z.steps - w->first : w->chunk;
    return 1;
}

static void walk_load(const walk *w, const qn_tensor *t, int64_t h, int64_t length, double *out) {
    qn_op_delta_load(t, w->b, w->first, w->x.n, h, length, out);
}

static void walk_store(const walk *w, const qn_tensor *t, int64_t length, const double *in) {
    qn_op_delta_store(t, w->b, w->first, w->x.n, w->h, length, in);
}

static void walk_numbers(const walk *w, const qn_tensor *t, double *out) {
    qn_op_delta_load_numbers(t, w->b, w->first, w->x.n, w->h, out);
}

qn_status qn_ref_delta_kkt(const qn_call *c) {
    const qn_attr_delta_kkt *at = c->attr;
    walk w;
    walk_open(&w, c->src[2], c->src[0], 0, at->chunk, at->blocked, c->workspace);
    while (walk_next(&w)) {
        walk_load(&w, c->src[0], w.key, w.z.key_width, w.x.k);
        walk_numbers(&w, c->src[1], w.x.beta);
        walk_numbers(&w, c->src[2], w.x.g);
        qn_op_delta_kkt(&w.x);
        walk_store(&w, c->dst[0], at->chunk, w.x.a);
    }
    return QN_OK;
}

qn_status qn_ref_delta_invert(const qn_call *c) {
    const qn_tensor *a = c->src[0];
    walk w = {.z = {qn_ne(a, 3), qn_ne(a, 2), qn_ne(a, 1), 1, 0, 0, 0}, .chunk = qn_ne(a, 0), .number = -1};
    qn_op_delta_place(&w.x, &w.z, w.chunk, c->workspace);
    while (walk_next(&w)) {
        walk_load(&w, a, w.h, w.chunk, w.x.a);
        qn_op_delta_invert(&w.x);
        walk_store(&w, c->dst[0], w.chunk, w.x.inverse);
    }
    return QN_OK;
}

qn_status qn_ref_delta_wu(const qn_call *c) {
    const qn_attr_delta_wu *at = c->attr;
    walk w;
    walk_open(&w, c->src[3], c->src[0], qn_ne(c->src[1], 0), at->chunk, at->blocked, c->workspace);
    while (walk_next(&w)) {
        walk_load(&w, c->src[0], w.key, w.z.key_width, w.x.k);
        walk_load(&w, c->src[1], w.h, w.z.width, w.x.v);
        walk_numbers(&w, c->src[2], w.x.beta);
        walk_numbers(&w, c->src[3], w.x.g);
        walk_load(&w, c->src[4], w.h, at->chunk, w.x.inverse);
        qn_op_delta_wu(&w.x);
        walk_store(&w, c->dst[0], w.z.key_width, w.x.w);
        walk_store(&w, c->dst[1], w.z.width, w.x.u);
    }
    return QN_OK;
}

/* First byte of the state of a head before a chunk, in [B, chunks, H, V, K]. */
static char *chunk_state(const qn_tensor *t, int64_t b, int64_t chunk, int64_t h) {
    return qn_tensor_count(t) ? qn_at(t, h * qn_nb(t, 2) + chunk * qn_nb(t, 3) + b * qn_nb(t, 4)) : NULL;
}

qn_status qn_ref_delta_states(const qn_call *c) {
    const qn_attr_delta_states *at = c->attr;
    const qn_tensor *start = c->src[4], *h = c->dst[0], *next = c->dst[2];
    walk w;
    walk_open(&w, c->src[3], c->src[0], qn_ne(c->src[2], 0), at->chunk, at->blocked, c->workspace);
    int64_t rows = w.z.width, n = w.z.key_width;
    if (w.z.steps == 0) qn_copy(next, start);
    while (walk_next(&w)) {
        if (w.first == 0) qn_op_delta_load_state(start, qn_op_delta_state(start, w.b, w.h), rows, n, w.x.state);
        walk_load(&w, c->src[0], w.key, n, w.x.k);
        walk_load(&w, c->src[1], w.h, n, w.x.w);
        walk_load(&w, c->src[2], w.h, rows, w.x.u);
        walk_numbers(&w, c->src[3], w.x.g);
        qn_op_delta_store_state(h, chunk_state(h, w.b, w.first / at->chunk, w.h), rows, n, w.x.state);
        qn_op_delta_fresh(&w.x);
        walk_store(&w, c->dst[1], rows, w.x.v);
        qn_op_delta_advance(&w.x);
        if (w.first + w.x.n == w.z.steps) qn_op_delta_store_state(next, qn_op_delta_state(next, w.b, w.h), rows, n, w.x.state);
    }
    return QN_OK;
}

qn_status qn_ref_delta_outputs(const qn_call *c) {
    const qn_attr_delta_outputs *at = c->attr;
    const qn_tensor *h = c->src[3];
    walk w;
    walk_open(&w, c->src[4], c->src[0], qn_ne(c->src[2], 0), at->chunk, at->blocked, c->workspace);
    double scale = at->scale != 0 ? (double)at->scale : 1 / sqrt((double)w.z.key_width);
    while (walk_next(&w)) {
        walk_load(&w, c->src[0], w.key, w.z.key_width, w.x.q);
        walk_load(&w, c->src[1], w.key, w.z.key_width, w.x.k);
        walk_load(&w, c->src[2], w.h, w.z.width, w.x.v);
        walk_numbers(&w, c->src[4], w.x.g);
        qn_op_delta_load_state(h, chunk_state(h, w.b, w.first / at->chunk, w.h), w.z.width, w.z.key_width, w.x.state);
        for (int64_t i = 0; i < w.x.n; i++) qn_op_delta_read(&w.x, i, scale, w.x.u + i * w.z.width);
        walk_store(&w, c->dst[0], w.z.width, w.x.u);
    }
    return QN_OK;
}
