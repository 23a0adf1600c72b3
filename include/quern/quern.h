/* Quern: a tensor runtime in C. This header is the whole stable API; the comments are its manual.
 *
 * Rules that hold everywhere:
 *  - No function aborts, exits, prints or keeps a global. Every function that can fail returns a qn_status.
 *  - Sizes are int64_t or size_t and are checked for overflow before they are used.
 *  - Shapes are row-major: the last axis is the fastest. Strides are in bytes and may be zero or negative.
 *  - Structs that cross the boundary begin with their size or are fixed for the major version.
 *  - No function takes more of its thread's stack than QN_STACK_BYTES, beside what callbacks and a Vulkan driver take.
 */
#ifndef QUERN_QUERN_H
#define QUERN_QUERN_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

#define QN_VERSION_MAJOR 0
#define QN_VERSION_MINOR 1
#define QN_VERSION_PATCH 0

#if defined(__GNUC__)
#define QN_API __attribute__((visibility("default")))
#define QN_PRINTF(format_argument, first) __attribute__((format(printf, format_argument, first)))
#else
#define QN_API
#define QN_PRINTF(format_argument, first)
#endif

enum { QN_MAX_RANK = 8, QN_MAX_SRC = 40, QN_MAX_DST = 40, QN_MAX_WORDS = 96, QN_WORKSPACE_ALIGN = 64, QN_STACK_BYTES = 1 << 19 };

/* "major.minor.patch" of the library that was linked, which may be newer than this header. */
QN_API const char *qn_version(void);

/* ---- Status ------------------------------------------------------------------------------------------------------- */

typedef enum qn_status {
#define QN_STATUS(name, number, meaning) QN_##name = (number),
#include <quern/status.def>
#undef QN_STATUS
} qn_status;

typedef enum qn_reason {
#define QN_REASON(name, sentence) QN_REASON_##name,
#include <quern/reasons.def>
#undef QN_REASON
    QN_REASON_COUNT
} qn_reason;

/* "INVALID", and the one-line meaning. An unknown number gives "UNKNOWN". Never NULL. */
QN_API const char *qn_status_name(qn_status status);
QN_API const char *qn_status_meaning(qn_status status);

/* Of a list of names (name_at(user, 0), 1, ... up to NULL) those that differ little from a word, for people who mistyped: the numbers of
 * at most `most` of them, nearest first, of equals the first in the list. Returns how many there are, 0 when all are far. */
QN_API int qn_nearest_names(const char *word, const char *(*name_at)(const void *user, int i), const void *user, int *nearest,
                            int most);

/* An error with its story. Each layer that passes it on may put a sentence in front: "loading model.gguf: tensor 3: ...". */
typedef struct qn_error {
    qn_status status;
    char text[508];
} qn_error;

/* Set the error to a status and a printf-style sentence; returns status so that `return qn_error_set(...)` reads well.
 * A NULL error only returns the status. Text that does not fit is cut and ends in "...". */
QN_API QN_PRINTF(3, 4) qn_status qn_error_set(qn_error *error, qn_status status, const char *format, ...);
/* Put a printf-style context in front of the text there is, with ": " between; returns the error's status. */
QN_API QN_PRINTF(2, 3) qn_status qn_error_wrap(qn_error *error, const char *format, ...);

/* ---- Dtypes ------------------------------------------------------------------------------------------------------- */

typedef enum qn_dtype {
    QN_DTYPE_NONE = 0,
#define QN_DTYPE(enumerator, name, kind, block, bytes, gguf, safetensors, onnx) QN_DTYPE_##enumerator,
#include <quern/dtypes.def>
#undef QN_DTYPE
    QN_DTYPE_COUNT
} qn_dtype;

typedef enum qn_dtype_kind {
    QN_KIND_FLOAT,
    QN_KIND_INT,
    QN_KIND_UINT,
    QN_KIND_BOOL,
    QN_KIND_COMPLEX,
    QN_KIND_BLOCK
} qn_dtype_kind;

typedef struct qn_dtype_info {
    const char *name;
    qn_dtype_kind kind;
    int32_t block;           /* elements per block; 1 for plain types */
    int32_t bytes;           /* bytes per block */
    int32_t gguf;            /* GGUF type id, -1 when the format has none */
    const char *safetensors; /* NULL when the format has none */
    int32_t onnx;            /* 0 when the format has none */
} qn_dtype_info;

/* NULL for a number that is no dtype. */
QN_API const qn_dtype_info *qn_dtype_describe(qn_dtype dtype);
/* "f32" to QN_DTYPE_F32; QN_DTYPE_NONE when there is no such name. */
QN_API qn_dtype qn_dtype_from_name(const char *name);
/* QN_DTYPE_NONE for an unknown or retired id. */
QN_API qn_dtype qn_dtype_from_gguf(uint32_t id);

/* ---- Tensors ------------------------------------------------------------------------------------------------------ */

enum {
    QN_TENSOR_PARAM = 1u,
    QN_TENSOR_CONST = 2u,
    QN_TENSOR_DEVICE = 4u,
    QN_TENSOR_MAPPED = 8u /* lies in the map of a file: its pages may be dropped, and are read again when they are touched */
};

/* A view of a buffer the caller owns. Element (i0, i1, ...) lies at data + offset + sum of index times stride. For block types
 * the last axis is counted in elements, must be a whole number of blocks, and its stride is the byte size of one block. */
typedef struct qn_tensor {
    void *data;     /* start of the buffer */
    uint64_t size;  /* bytes the buffer has: nothing outside them is ever read or written */
    int64_t offset; /* byte offset of the first element */
    uint32_t dtype; /* qn_dtype */
    uint32_t flags; /* QN_TENSOR_* */
    int32_t rank;   /* 1 to QN_MAX_RANK */
    int32_t reserved;
    int64_t shape[QN_MAX_RANK];
    int64_t stride[QN_MAX_RANK];
} qn_tensor;

/* A value of a graph; QN_VAL_NONE where there is none. */
typedef int32_t qn_val;
enum { QN_VAL_NONE = -1 };

/* A short list of numbers: a shape, axes, strides. rank 0 means "not given". */
typedef struct qn_dims {
    int32_t rank;
    int32_t reserved;
    int64_t d[QN_MAX_RANK];
} qn_dims;

/* A short program of 32-bit words, for the ops that run one. Words behind the last are zero. */
typedef struct qn_code {
    int32_t count;
    int32_t reserved;
    uint32_t w[QN_MAX_WORDS];
} qn_code;

/* Fill a dense row-major tensor over a buffer. INVALID when a size overflows, an extent is negative, a row is not a whole
 * number of blocks, or the buffer is too small (data may be NULL with size 0, to ask only for shapes). */
QN_API qn_status qn_tensor_init(qn_tensor *tensor, qn_dtype dtype, int rank, const int64_t *shape, void *data, uint64_t size);
/* Bytes a dense tensor needs; INVALID on overflow or a partial block. */
QN_API qn_status qn_tensor_bytes(qn_dtype dtype, int rank, const int64_t *shape, uint64_t *bytes);
/* Number of elements; -1 when the product overflows or an extent is negative. */
QN_API int64_t qn_tensor_count(const qn_tensor *tensor);
QN_API int qn_tensor_is_contiguous(const qn_tensor *tensor);

/* ---- Threads ------------------------------------------------------------------------------------------------------ */

/* Threads that share the work of large ops. Results are the same bits with any number of them, or none. They take none of the
 * process's signals, round as their caller does, and have stacks of twice QN_STACK_BYTES at least. Contexts may have a pool in common:
 * while it is at work for one thread, others do their own work alone. The child of a fork has no threads: what it got it can destroy, and
 * make itself another. */
typedef struct qn_pool qn_pool;

enum { QN_POOL_MAX = 256 };
/* A pool of so many threads, the caller's included, at most QN_POOL_MAX; 0: one for each processor that the process may use. Threads
 * the system does not grant are done without.
 *
 * On Linux a pool may say where threads that it wakes can run (sched_getaffinity, sched_setaffinity), unless a filter of system calls
 * (seccomp) is there when the pool is made. Who sets such a filter later lets these pass, or makes the pool behind it. */
QN_API qn_status qn_pool_create(int threads, qn_pool **pool);
/* A pool the program already has: `run` calls task(arg, part) for every part in [0, parts), in any order and on any thread, and
 * returns when all are done. */
typedef void (*qn_pool_run_fn)(void *user, int64_t parts, void (*task)(void *arg, int64_t part), void *arg);
QN_API qn_status qn_pool_borrow(qn_pool_run_fn run, void *user, int threads, qn_pool **pool);
QN_API void qn_pool_destroy(qn_pool *pool); /* no context or plan may be using it */

/* ---- Context ------------------------------------------------------------------------------------------------------ */

typedef struct qn_allocator {
    void *user;
    void *(*allocate)(void *user, size_t bytes, size_t align); /* NULL on failure */
    void (*release)(void *user, void *memory, size_t bytes);
} qn_allocator;

typedef enum qn_log_level { QN_LOG_ERROR, QN_LOG_WARN, QN_LOG_INFO, QN_LOG_DEBUG } qn_log_level;
typedef void (*qn_log_fn)(void *user, qn_log_level level, const char *text);

typedef struct qn_context_options {
    uint32_t size; /* sizeof(qn_context_options) */
    uint32_t flags;
    qn_allocator allocator; /* all zero: the C library's */
    qn_log_fn log;          /* NULL: silent */
    void *log_user;
    qn_pool *pool; /* shares the work of large ops; NULL: this thread does it all. Must outlive the context. */
} qn_context_options;

enum {
    QN_CONTEXT_TIMED = 1u,    /* also count nanoseconds per op, which costs two clock readings per call */
    QN_CONTEXT_REFERENCE = 2u /* the plain references only, no fast kernel */
};

typedef struct qn_context qn_context;

/* One context per thread that dispatches: it belongs to one thread at a time, and contexts share nothing but a pool. options may be
 * NULL. */
QN_API qn_status qn_context_create(const qn_context_options *options, qn_context **context);
QN_API void qn_context_destroy(qn_context *context);

/* ---- Ops ---------------------------------------------------------------------------------------------------------- */

typedef enum qn_op {
#define QN_OP(name, ...) QN_OP_##name,
#include <quern/ops.def>
#undef QN_OP
    QN_OP_COUNT
} qn_op;

typedef enum qn_unary {
#define QN_UNARY(name, formula) QN_UNARY_##name,
#include <quern/unary.def>
#undef QN_UNARY
    QN_UNARY_COUNT
} qn_unary;

typedef enum qn_glu {
#define QN_GLU(name, formula) QN_GLU_##name,
#include <quern/glu.def>
#undef QN_GLU
    QN_GLU_COUNT
} qn_glu;

typedef enum qn_arith {
#define QN_ARITH(name, formula) QN_ARITH_##name,
#include <quern/arith.def>
#undef QN_ARITH
    QN_ARITH_COUNT
} qn_arith;

typedef enum qn_compare {
#define QN_COMPARE(name, formula) QN_COMPARE_##name,
#include <quern/compare.def>
#undef QN_COMPARE
    QN_COMPARE_COUNT
} qn_compare;

typedef enum qn_logic {
#define QN_LOGIC(name, formula) QN_LOGIC_##name,
#include <quern/logic.def>
#undef QN_LOGIC
    QN_LOGIC_COUNT
} qn_logic;

typedef enum qn_math {
#define QN_MATH(name, formula) QN_MATH_##name,
#include <quern/math.def>
#undef QN_MATH
    QN_MATH_COUNT
} qn_math;

typedef enum qn_reduce {
#define QN_REDUCE(name, formula) QN_REDUCE_##name,
#include <quern/reduce.def>
#undef QN_REDUCE
    QN_REDUCE_COUNT
} qn_reduce;

typedef enum qn_arg_reduce {
#define QN_ARG_REDUCE(name, formula) QN_ARG_REDUCE_##name,
#include <quern/arg_reduce.def>
#undef QN_ARG_REDUCE
    QN_ARG_REDUCE_COUNT
} qn_arg_reduce;

typedef enum qn_scan {
#define QN_SCAN(name, formula) QN_SCAN_##name,
#include <quern/scan.def>
#undef QN_SCAN
    QN_SCAN_COUNT
} qn_scan;

typedef void *qn_user; /* the context pointer handed back to a callback */
/* Callbacks of the custom ops. `dst` has what the op declares; sources that were not given are NULL. Called once per task,
 * task by task; a status other than QN_OK stops the op, which then reports QN_USER with that number. */
typedef qn_status (*qn_custom_fn)(void *user, const qn_tensor *dst, int n_src, const qn_tensor *const *src, int task,
                                  int n_tasks);
/* Gradient of a custom op: from the gradient of dst (`grad`) write the gradient of source `wanted` into dst. */
typedef qn_status (*qn_custom_grad_fn)(void *user, const qn_tensor *dst, int wanted, int n_src, const qn_tensor *const *src,
                                       const qn_tensor *grad);

/* An op that a program brings along: what the attribute `definition` of user_op points to. It must stay where it is, unchanged,
 * as long as any request, graph or plan names it. All functions get `user`; sources that were not given are NULL, and only
 * tensors that a function is to write may be written. A status other than QN_OK turns the request down, or stops the run, with
 * that number in the result. */
typedef struct qn_user_op {
    const char *name;
    int32_t n_src, n_dst; /* at most 8 sources, of which any may be left out as far as `shape` is concerned; 1 to 4 outputs */
    int32_t n_tasks;      /* how often `run` is called, each time with its number: one after the other as yet, but
                             tasks must not need each other, and which does what must follow from the shapes alone */
    void *user;
    /* Guard and shape rule: looks at descriptors (there may be no data yet), fills dtype, rank and shape of each of dst[n_dst]. */
    qn_status (*shape)(void *user, int n_src, const qn_tensor *const *src, qn_tensor *dst);
    qn_status (*run)(void *user, int n_src, const qn_tensor *const *src, int n_dst, const qn_tensor *const *dst, int task,
                     int n_tasks);
    /* From the gradients of the outputs, NULL where they are zero, the gradient of source `wanted`, into dx. NULL: has none. */
    qn_status (*backward)(void *user, int wanted, int n_src, const qn_tensor *const *src, int n_dst, const qn_tensor *const *grad,
                          const qn_tensor *dx);
} qn_user_op;
typedef const qn_user_op *qn_user_definition;

typedef struct qn_graph qn_graph; /* graph.h; as an attribute, the body of a branch or a loop */

/* Typed attributes, one struct per op: qn_attr_<op>. Start from qn_attr_<op>_default() and change what you need. */
#define QN_ATTR(type, name, initial, low, high) QN_CTYPE_##type name;
#define QN_ATTR_REQ(type, name, low, high) QN_CTYPE_##type name;
#define QN_DIMS(name) qn_dims name;
#define QN_DIMS_REQ(name) qn_dims name;
#define QN_WORDS(name) qn_code name;
#define QN_FN(type, name) type name;
#define QN_BODY(name) const qn_graph *name;
#define QN_CTYPE_f32 float
#define QN_CTYPE_i32 int32_t
#define QN_CTYPE_i64 int64_t
#define QN_CTYPE_bool int32_t
#define QN_CTYPE_dtype int32_t
#define QN_OP(name, origin, family, inputs, outputs, infer, vjp, cases, attrs, summary) \
    typedef struct qn_attr_##name {                                                     \
        uint32_t size;                                                                  \
        uint32_t version;                                                               \
        attrs                                                                           \
    } qn_attr_##name;
#include <quern/ops.def>
#undef QN_OP
#undef QN_ATTR
#undef QN_ATTR_REQ
#undef QN_DIMS
#undef QN_DIMS_REQ
#undef QN_WORDS
#undef QN_FN
#undef QN_BODY

#define QN_ATTR_VERSION 1
#define QN_ATTR(type, name, initial, low, high) a.name = (initial);
#define QN_ATTR_REQ(type, name, low, high) a.name = 0;
#define QN_DIMS(name) a.name.rank = 0;
#define QN_DIMS_REQ(name) a.name.rank = 0;
#define QN_WORDS(name) a.name.count = 0;
#define QN_FN(type, name) a.name = 0;
#define QN_BODY(name) a.name = 0;
#define QN_OP(name, origin, family, inputs, outputs, infer, vjp, cases, attrs, summary) \
    static inline qn_attr_##name qn_attr_##name##_default(void) {                       \
        qn_attr_##name a;                                                               \
        memset(&a, 0, sizeof a);                                                        \
        a.size = (uint32_t)sizeof a;                                                    \
        a.version = QN_ATTR_VERSION;                                                    \
        attrs                                                                           \
        return a;                                                                       \
    }
#include <quern/ops.def>
#undef QN_OP
#undef QN_ATTR
#undef QN_ATTR_REQ
#undef QN_DIMS
#undef QN_DIMS_REQ
#undef QN_WORDS
#undef QN_FN
#undef QN_BODY

/* ---- What the table says about an op ------------------------------------------------------------------------------ */

enum {
    QN_SLOT_OPTIONAL = 1, /* may be left out */
    QN_SLOT_IN_PLACE = 2, /* the first destination may be exactly this source */
    QN_SLOT_INDEX = 4,    /* its values are indices, checked for range before anything is written */
    QN_SLOT_STATE = 8,    /* the destination of the same number must be exactly this source */
    QN_SLOT_SHAPE = 16    /* only its shape and dtype are used, its data never */
};

typedef struct qn_slot_info {
    const char *name;
    uint64_t dtypes; /* bit d set: QN_DTYPE d is taken */
    uint32_t flags;  /* QN_SLOT_* */
} qn_slot_info;

typedef enum qn_attr_kind {
    QN_ATTR_KIND_f32,
    QN_ATTR_KIND_i32,
    QN_ATTR_KIND_i64,
    QN_ATTR_KIND_bool,
    QN_ATTR_KIND_dtype,
    QN_ATTR_KIND_dims,
    QN_ATTR_KIND_fn,
    QN_ATTR_KIND_words,
    QN_ATTR_KIND_body
} qn_attr_kind;

typedef struct qn_attr_info {
    const char *name;
    qn_attr_kind kind;
    int32_t required;
    uint32_t offset; /* in the op's attribute struct */
    uint32_t bytes;
    double initial, low, high; /* for numbers: default and inclusive range */
} qn_attr_info;

typedef struct qn_op_info {
    const char *name;
    const char *origin; /* "seed": one of the 94; "beyond": newer in ggml; "quern": ours, mostly gradients of
                          others; "graph": general tensor ops and layers */
    const char *family;
    const char *summary;
    int32_t n_src_min, n_src; /* sources: fewest and most */
    int32_t n_dst_min, n_dst;
    const qn_slot_info *src, *dst;
    int32_t n_attr;
    const qn_attr_info *attr;
    uint32_t attr_bytes;
    const void *attr_default;
    const char *gradient;    /* name of the gradient rule, NULL when there is none */
    const char *no_gradient; /* why not, NULL when there is one */
    int32_t is_view;         /* writes nothing: it describes */
    const char *cases;       /* the case set that tests it */
    int32_t n_body;          /* attributes that are bodies; an op that has any runs in a plan only */
} qn_op_info;

/* NULL for a number that is no op. */
QN_API const qn_op_info *qn_op_describe(int op);
/* Op number of a name, -1 when there is none; sub-op likewise. Most ops have no sub-ops: their count is 0. */
QN_API int qn_op_from_name(const char *name);
QN_API int qn_subop_count(int op);
QN_API const char *qn_subop_name(int op, int subop); /* NULL when there is none */
QN_API int qn_subop_from_name(int op, const char *name);
/* Backends by number, from 0: "reference" first; NULL past the last. And whether one has a kernel of its own for an op. */
QN_API const char *qn_backend_name(int backend);
QN_API int qn_op_has_kernel(int op, int backend);

/* ---- Dispatch ----------------------------------------------------------------------------------------------------- */

#define QN_REQUEST_VERSION 1

/* One op to run. Nothing in it is kept after the call. Unused pointers are NULL, reserved fields zero. */
typedef struct qn_request {
    uint32_t size; /* sizeof(qn_request) */
    uint16_t version;
    uint16_t op;
    uint16_t subop;
    uint16_t n_src, n_dst;
    uint16_t reserved;
    const qn_tensor *src[QN_MAX_SRC]; /* NULL where an optional source is left out */
    const qn_tensor *dst[QN_MAX_DST];
    const void *attr; /* qn_attr_<op>; NULL takes the defaults */
    void *workspace;
    size_t workspace_size;
} qn_request;

/* What became of a request: fixed size, no text. qn_result_format makes the sentence. op is 65535 when there was no request. */
typedef struct qn_result {
    int32_t status; /* qn_status */
    uint16_t op, subop;
    uint16_t reason;   /* qn_reason */
    uint16_t arg_kind; /* QN_ARG_* */
    int32_t arg;       /* slot number of a source or destination, field number of an attribute */
    int32_t dim;
    int32_t reserved;
    int64_t expected, actual;
} qn_result;

enum { QN_ARG_REQUEST = 0, QN_ARG_SOURCE = 1, QN_ARG_DEST = 2, QN_ARG_ATTR = 3, QN_ARG_WORKSPACE = 4 };

/* Run one op, or reject it and leave every output byte as it was. No allocation, no lock, no global. The status is also in
 * result, which may be NULL. */
QN_API qn_status qn_dispatch(qn_context *context, const qn_request *request, qn_result *result);
/* All of qn_dispatch's checks and nothing else. */
QN_API qn_status qn_can_dispatch(qn_context *context, const qn_request *request, qn_result *result);
/* Shapes, dtypes (and for views offset, strides and data) the op would give, from sources and attributes alone; request->dst
 * is not looked at and sources need no data. out has room for QN_MAX_DST tensors; *n_out is how many were filled. */
QN_API qn_status qn_infer(const qn_request *request, qn_tensor *out, int *n_out, qn_result *result);
/* Bytes of workspace the request needs, from sources, attributes and the layout of the destinations; those that are not given are
 * taken to be dense. */
QN_API qn_status qn_workspace_bytes(const qn_request *request, size_t *bytes, qn_result *result);
/* The sentence of a result: "soft_max: mask: axis 1 has extent 7, expected 8". Returns the length it wanted, as snprintf. */
QN_API int qn_result_format(const qn_result *result, char *text, size_t size);

typedef struct qn_counters {
    uint64_t accepted, invalid, unsupported, unexpected, failed; /* failed: workspace, device, range, user */
    uint64_t bytes_read, bytes_written, nanoseconds;
} qn_counters;

/* What this context did with an op so far. */
QN_API qn_status qn_context_counters(const qn_context *context, int op, qn_counters *counters);
/* How many events of any kind reached this context. */
QN_API uint64_t qn_context_events(const qn_context *context);

#ifdef __cplusplus
}
#endif

/* The rest of the API, by subject. */
#include <quern/format.h>
#include <quern/graph.h>
#include <quern/plan.h>
#include <quern/profile.h>
#include <quern/record.h>
#include <quern/text.h>
#include <quern/model.h>
#endif
