/* What the parts of the builder share. A failed step makes all later ones return QN_VAL_NONE, so errors are looked at once, at the end. */
#ifndef QN_MODEL_BUILD_H
#define QN_MODEL_BUILD_H

#include "model/model.h"

typedef struct qn_build {
    const qn_model *m;
    const qn_model_shape *shape;
    qn_graph *g;
    qn_error *error;
    qn_status status;
    int layer;                               /* -1: none */
    int64_t sequences, all, keys, rows, end; /* symbols: see model.h */
    int64_t tokens;                          /* of each sequence */
    int64_t width;                           /* rows of x in the ffn: all, or those that are wanted */
    qn_val positions, cells, mask, mask_window, wanted, embedding, factors;
    qn_val router; /* what experts are chosen by, when it is not what they compute */
} qn_build;

/* ---- Ops, by what they do */
qn_val qn_build_op(qn_build *b, int op, int subop, int n, const qn_val *src, const void *attr);
qn_val qn_build_one(qn_build *b, int op, qn_val a);
qn_val qn_build_two(qn_build *b, int op, qn_val a, qn_val c);
qn_val qn_build_unary(qn_build *b, qn_unary kind, qn_val a);
qn_val qn_build_scale(qn_build *b, qn_val a, float by); /* by 0 or 1: a itself */
qn_val qn_build_reshape(qn_build *b, qn_val a, int rank, const int64_t *shape);
qn_val qn_build_expand(qn_build *b, qn_val a, int rank, const int64_t *shape);
qn_val qn_build_permute(qn_build *b, qn_val a, int rank, const int64_t *axes);
qn_val qn_build_view(qn_build *b, qn_val a, int rank, const int64_t *shape, const int64_t *strides, int64_t offset);
qn_val qn_build_narrow(qn_build *b, qn_val a, int64_t start, int64_t length); /* of the last axis */

/* ---- Weights. Names are those of tensors, with blk.N. in front inside a layer. */
int qn_build_has(const qn_build *b, const char *name);
/* Rows of a matrix, or of each of a stack of them: what the file's table has, not what a key says; `standard` when there is none. */
int64_t qn_build_rows(const qn_build *b, const char *name, int64_t standard);
/* A tensor of this shape; a failure when it is missing and needed. dtype of norms, biases and scales is made f32. */
qn_val qn_build_weight(qn_build *b, const char *name, int needed, int rank, const int64_t *shape);
qn_val qn_build_small(qn_build *b, const char *name, int needed, int rank, const int64_t *shape);
/* x times name.weight, then name.scale and name.bias where there are any; scale_last: the bias is scaled too; use_scale 0: not at all. */
enum { QN_SCALE_NEVER, QN_SCALE_FIRST, QN_SCALE_LAST };
qn_val qn_build_linear(qn_build *b, qn_val x, const char *name, int64_t in, int64_t out, int scale);
/* The architecture's kind of norm over the last axis; and with name.weight and name.bias behind it. */
qn_val qn_build_normalise(qn_build *b, qn_val x);
qn_val qn_build_norm(qn_build *b, qn_val x, const char *name);
void qn_build_fail(qn_build *b, qn_status status, const char *format, ...);

/* ---- Parts of a layer: build_attention.c, build_ffn.c. x is [all, n_embd]. */
qn_val qn_build_attention(qn_build *b, qn_val x);
qn_val qn_build_rope(qn_build *b, qn_val x);
qn_val qn_build_ffn(qn_build *b, qn_val x);
qn_val qn_build_experts(qn_build *b, qn_val x);
/* build_latent.c: queries, keys and values ready for the cache; and what comes behind it when the matrices are absorbed. */
void qn_build_latent(qn_build *b, qn_val x, qn_val out[3]);
qn_val qn_build_latent_values(qn_build *b, qn_val y);

#endif
