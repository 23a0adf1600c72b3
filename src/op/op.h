/* What a family of ops is made of. A row of ops.def names, by convention,
 *
 *   qn_status qn_infer_<rule>(qn_infer_call *c)   the op's own guard and its shape rule: looks at descriptors and attributes,
 *                                                 sets c->out[], c->index_limit[], c->workspace, or rejects with a reason
 *   qn_status qn_ref_<op>(const qn_call *c)       the plain C reference: everything was checked, it only computes
 *   void qn_vjp_<rule>(qn_vjp_call *v)            the gradient, written with other ops (op_emit.h)
 *
 * and this header declares them all from the table, so that a missing one is a link error. Guards never write, never allocate
 * and never look at data, except index ranges (done for them) and what qn_infer_host_value lends. */
#ifndef QN_OP_OP_H
#define QN_OP_OP_H

#include <quern/quern.h>

enum { QN_ATTR_BYTES_MAX = 1024 }; /* no attribute record is larger, so a copy of one fits a stack */

/* A shape and dtype without data. */
typedef struct qn_shape {
    uint32_t dtype;
    int32_t rank;
    int64_t d[QN_MAX_RANK];
} qn_shape;

typedef struct qn_infer_call {
    const qn_op_info *info;
    int op, subop;
    int n_src;                   /* slots given; src[i] may still be NULL when optional, and is NULL from n_src on */
    const qn_tensor *const *src; /* QN_MAX_SRC entries */
    const void *attr;            /* complete record of the op's type */
    int attr_given;              /* the caller gave one, it is not the defaults */
    qn_result *result;
    /* filled by the rule */
    int n_out;
    qn_shape out[QN_MAX_DST];
    int64_t view_offset; /* QN_VIEW ops: bytes from the start of the source's buffer, and byte strides */
    int64_t view_stride[QN_MAX_RANK];
    int64_t index_limit[QN_MAX_SRC]; /* QN_IDX slots: every value must be in [0, limit) */
    size_t workspace;
    double flops_each; /* arithmetic for each element of the first output, for the profiler; 0 means 1. See qn_op_flops. */
} qn_infer_call;

typedef struct qn_call {
    int op, subop;
    int n_src, n_dst;
    const qn_tensor *const *src; /* QN_MAX_SRC entries, NULL where not given */
    const qn_tensor *const *dst; /* QN_MAX_DST entries, NULL where not given */
    const void *attr;
    void *workspace;
} qn_call;

typedef struct qn_vjp_call qn_vjp_call;
typedef qn_status (*qn_infer_fn)(qn_infer_call *c);
typedef qn_status (*qn_ref_fn)(const qn_call *c);
typedef void (*qn_vjp_fn)(qn_vjp_call *v);

/* The private half of a row. */
typedef struct qn_op_rules {
    qn_infer_fn infer;
    qn_ref_fn reference;
    qn_vjp_fn vjp; /* NULL: none, the public half says why */
} qn_op_rules;

const qn_op_rules *qn_op_rules_of(int op); /* op must be valid */

#define QN_VJP(rule) void qn_vjp_##rule(qn_vjp_call *v);
#define QN_NO_VJP(why)
#define QN_OP(name, origin, family, inputs, outputs, infer, vjp, cases, attrs, summary) \
    qn_status qn_infer_##infer(qn_infer_call *c);                                       \
    qn_status qn_ref_##name(const qn_call *c);                                          \
    vjp
#include <quern/ops.def>
#undef QN_OP
#undef QN_VJP
#undef QN_NO_VJP

/* ---- For guards: reject with a named reason. All return QN_INVALID (or the status given) so that a rule can return them. */

qn_status qn_reject_src(qn_infer_call *c, int slot, qn_reason reason, int dim, int64_t expected, int64_t actual);
/* Attribute by field name; `dim` is the entry of a list, else -1. */
qn_status qn_reject_attr(qn_infer_call *c, const char *name, qn_reason reason, int dim, int64_t expected, int64_t actual);
/* About the output-to-be number `slot`, or the request as a whole. */
qn_status qn_reject_out(qn_infer_call *c, int slot, qn_reason reason, int dim, int64_t expected, int64_t actual);
qn_status qn_reject_unsupported(qn_infer_call *c, int slot, qn_reason reason, int64_t expected, int64_t actual);

/* A double as the int64 of a result record, for the reasons that print {expected:f} and {actual:f}. */
static inline int64_t qn_f_bits(double v) {
    int64_t bits;
    memcpy(&bits, &v, sizeof bits);
    return bits;
}

/* ---- For guards and references: a tensor's axes counted from the last (axis 0 = last), as the formulas of the spec count. */

/* Extent of the k-th axis from the end; 1 beyond the rank. */
static inline int64_t qn_ne(const qn_tensor *t, int k) { return k < t->rank ? t->shape[t->rank - 1 - k] : 1; }
/* Byte stride of the k-th axis from the end; 0 beyond the rank. */
static inline int64_t qn_nb(const qn_tensor *t, int k) { return k < t->rank ? t->stride[t->rank - 1 - k] : 0; }
static inline int64_t qn_sd(const qn_shape *s, int k) { return k < s->rank ? s->d[s->rank - 1 - k] : 1; }

static inline int qn_is_float(uint32_t dtype) { return dtype >= QN_DTYPE_F64 && dtype <= QN_DTYPE_BF16; }
static inline int qn_is_block(uint32_t dtype) { return dtype >= QN_DTYPE_Q4_0 && dtype < QN_DTYPE_COUNT; }

/* Rejects a source whose rank is over `most`, extents beyond it that are 1 aside. */
qn_status qn_need_rank(qn_infer_call *c, int slot, int most);
/* Rejects unless source `slot` has extent `want` on the k-th axis from the end. */
qn_status qn_need_extent(qn_infer_call *c, int slot, int k, int64_t want);
/* Rejects unless two sources have the same shape (leading ones aside). Blames `slot`. */
qn_status qn_need_same_shape(qn_infer_call *c, int slot, int like);
qn_status qn_need_same_dtype(qn_infer_call *c, int slot, int like);
qn_status qn_need_contiguous(qn_infer_call *c, int slot);
/* Rejects unless every extent of `big` is a multiple of that of `small` (tile broadcast). Blames `small`. */
qn_status qn_need_tiles(qn_infer_call *c, int small, int big);

/* c->out[i] becomes the shape of a source, with that dtype; n_out grows to i + 1. */
void qn_out_like(qn_infer_call *c, int i, const qn_tensor *like, uint32_t dtype);
/* c->out[i] from extents, first axis first. Rejects a negative or overflowing product. */
qn_status qn_out_shape(qn_infer_call *c, int i, uint32_t dtype, int rank, const int64_t *d);
/* Rank the output needs so that axes of extent 1 in front are dropped down to `least`. */
int qn_trim_rank(int rank, const int64_t *d, int least);

/* Floating-point operations of an accepted call, multiply-adds counted twice; views have none. */
double qn_op_flops(const qn_infer_call *c);

/* Value i (logical order) of a source when its data is visible from the host; 0 when it is not. */
int qn_infer_host_value(const qn_infer_call *c, int slot, int64_t i, double *value);

/* a * b with overflow reported; both must be >= 0. */
static inline int qn_mul_overflow(int64_t a, int64_t b, int64_t *out) { return __builtin_mul_overflow(a, b, out); }
static inline int qn_add_overflow(int64_t a, int64_t b, int64_t *out) { return __builtin_add_overflow(a, b, out); }

/* Forward a status that is not OK. */
#define QN_TRY(expression)                            \
    do {                                              \
        qn_status try_status_ = (expression);         \
        if (try_status_ != QN_OK) return try_status_; \
    } while (0)

#endif
