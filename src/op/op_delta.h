/* The gated delta rule, token by token or by chunks. q and k are [B, T, key heads, K], v is [B, T, H, V], log decay g and beta
 * are [B, T, H], states [B, H, V, K]: a row of the state for each value. By chunks, with G the running sum of g in the chunk, A
 * below the diagonal, and S the state before the chunk:
 *
 *   A_ij = beta_i k_i.k_j e^(G_i - G_j)    T = (1 + A)^-1    U = T beta V    W = T beta e^G K    F = U - W S^T
 *   S <- e^(G_n) S + sum_i e^(G_n - G_i) F_i k_i^T    y_i = scale (e^(G_i) S q_i + sum over j <= i of q_i.k_j e^(G_i - G_j) F_j)
 *
 * All exponents are of what decays, so nothing overflows. */
#ifndef QN_OP_OP_DELTA_H
#define QN_OP_OP_DELTA_H

#include "op/op_state.h"
#include "op/ref.h"

typedef struct qn_delta_sizes {
    int64_t seqs, steps, heads, key_heads, key_width, width;
    int blocked;
} qn_delta_sizes;

/* One chunk's rows as doubles; ld is the length of a row of a and inverse. */
typedef struct qn_delta_chunk {
    int64_t n, ld, key_width, width;
    double *q, *k, *w; /* [n, key_width] */
    double *v, *u;     /* [n, width]; v ends as what is new to the state */
    double *a, *inverse;
    double *beta, *g, *state;
} qn_delta_chunk;

static inline int64_t qn_op_delta_key_head(const qn_delta_sizes *z, int64_t h) {
    return z->blocked ? h / (z->heads / z->key_heads) : h % z->key_heads;
}

/* Scratch for a chunk of up to n tokens: adds it to the request, and lays it out. */
qn_status qn_op_delta_room(qn_infer_call *c, const qn_delta_sizes *z, int64_t n);
void qn_op_delta_place(qn_delta_chunk *x, const qn_delta_sizes *z, int64_t n, double *at);

void qn_op_delta_kkt(const qn_delta_chunk *x);
void qn_op_delta_invert(const qn_delta_chunk *x);
void qn_op_delta_wu(const qn_delta_chunk *x);    /* into w and u */
void qn_op_delta_fresh(const qn_delta_chunk *x); /* u and w into v */
void qn_op_delta_advance(const qn_delta_chunk *x);
void qn_op_delta_read(const qn_delta_chunk *x, int64_t i, double scale, double *y); /* before advance */

/* Rows of one head: tokens [first, first + n) of a tensor [B, T, heads, length]. */
void qn_op_delta_load(const qn_tensor *t, int64_t b, int64_t first, int64_t n, int64_t h, int64_t length, double *out);
void qn_op_delta_store(const qn_tensor *t, int64_t b, int64_t first, int64_t n, int64_t h, int64_t length, const double *in);
/* The same of one number for each token, [B, T, heads]. */
void qn_op_delta_load_numbers(const qn_tensor *t, int64_t b, int64_t first, int64_t n, int64_t h, double *out);
/* First byte of a head's state in [B, H, V, K]; NULL when it is empty. */
static inline char *qn_op_delta_state(const qn_tensor *t, int64_t b, int64_t h) {
    return qn_tensor_count(t) ? qn_at(t, h * qn_nb(t, 2) + b * qn_nb(t, 3)) : NULL;
}
/* Rows of a state from its first byte on. */
void qn_op_delta_load_state(const qn_tensor *t, const char *at, int64_t rows, int64_t n, double *out);
void qn_op_delta_store_state(const qn_tensor *t, char *at, int64_t rows, int64_t n, const double *in);

#endif
