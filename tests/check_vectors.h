/* Replay of golden vectors: a folder with index.jsonl (one case a line, in ggml's terms) and data.bin (its tensors). The parts
 * are here so that unit tests can reach them; qn_check only calls qn_check_vectors. */
#ifndef QN_TESTS_CHECK_VECTORS_H
#define QN_TESTS_CHECK_VECTORS_H

#include <quern/quern.h>

enum { QN_VEC_AXES = 4, QN_VEC_PARAMS = 16, QN_VEC_NAME = 1024, QN_VEC_SOURCES = 10 };

/* Replays every case of a folder and prints one line per case that differs, then a summary. 0: none differs; 1: some do; 2: the
 * folder is missing or malformed, and a sentence says where. verbose also names the cases that agree or are excepted. */
int qn_check_vectors(const char *dir, int verbose);

/* ---- Reading (check_vectors_read.c) */

typedef struct qn_vec_tensor {
    int present;             /* 0: null in the file */
    char type[24];           /* as written */
    qn_dtype dtype;          /* QN_DTYPE_NONE: a type we do not know */
    int64_t ne[QN_VEC_AXES]; /* ggml's order, fastest first */
    int64_t nb[QN_VEC_AXES]; /* byte strides it had there, a hint only; all 0 when not given */
    uint64_t off, bytes;     /* in data.bin, checked against its size */
} qn_vec_tensor;

typedef struct qn_vec_case {
    char op[64];
    char name[QN_VEC_NAME];
    double max_nmse;
    int32_t params[QN_VEC_PARAMS];
    int n_src;
    qn_vec_tensor src[QN_VEC_SOURCES];
    qn_vec_tensor dst;
} qn_vec_case;

/* One line of the index, `n` bytes without its newline. QN_FORMAT with a sentence when anything in it is not as it must be. */
qn_status qn_vec_parse(const char *text, size_t n, uint64_t data_size, qn_vec_case *out, qn_error *error);

/* ---- Mapping ggml's terms to ours (check_vectors_map.c) */

typedef union qn_vec_attr {
#define QN_OP(name, ...) qn_attr_##name name;
#include <quern/ops.def>
#undef QN_OP
} qn_vec_attr;

typedef enum qn_vec_compare {
    QN_VEC_NUMBERS, /* integers exactly, floats by NMSE */
    QN_VEC_PICKS,   /* indices into rows of source 0: what they pick must be equal, in order */
    QN_VEC_PICK_SET /* the same, in any order, none twice */
} qn_vec_compare;

typedef struct qn_vec_row {
    int op;
    const char *sources; /* for each of our slots the number of ggml's source, or 'd' for the shape of dst; "" when alike */
    int rank;            /* axes that must stay, even when their extent is 1 */
    qn_vec_compare compare;
    void (*attributes)(const qn_vec_case *c, int subop, qn_vec_attr *attr);
} qn_vec_row;

/* The row for a ggml op name, upper or lower case, "UNARY.SILU" for sub-ops; NULL when there is none. */
const qn_vec_row *qn_vec_find(const qn_vec_case *c, int *subop);
/* Row-major shape of a case's tensor with leading ones dropped down to `least` axes; returns the rank. */
int qn_vec_shape(const qn_vec_tensor *t, int least, int64_t *shape);

/* ---- Comparing (check_vectors_compare.c) */

/* Whether dense result `got` agrees with `want`, both of c->dst's type and shape; `row0` is source 0, dense, as it was before.
 * When not, text is the reason. Returns -1 when memory is short. */
int qn_vec_agrees(const qn_vec_case *c, qn_vec_compare how, const void *got, const void *want, const void *row0, char *text,
                  size_t size);

/* ---- Running one case (check_vectors_run.c) */

typedef enum qn_vec_verdict {
    QN_VEC_AGREE,
    QN_VEC_VALUES,   /* the result differs, or there is no such op, dtype or output shape */
    QN_VEC_REJECTED, /* the op does not take the request */
    QN_VEC_BROKEN    /* data.bin cannot be read */
} qn_vec_verdict;
/* Runs the case dense, then strided, through qn_dispatch. text is the reason unless it agrees. */
qn_vec_verdict qn_vec_run(qn_context *context, const qn_vec_case *c, int data_fd, char *text, size_t size);

#endif
