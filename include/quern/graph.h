/* Graphs: what to compute, before anyone decides where and how. Values are numbers, nodes are ops of the table with several
 * outputs, and every call that adds one runs the op's own guard and shape rule. The first error sticks: later calls return it
 * unchanged, so a model can be built without looking at every status and asked once at the end. */
#include <quern/quern.h> /* which includes this file at its end: either way in, everything is there, in order */
#ifndef QUERN_GRAPH_H
#define QUERN_GRAPH_H

#ifdef __cplusplus
extern "C" {
#endif

/* An extent that depends on symbols. Where a shape or an attribute list takes an extent, it takes one of these as well. */
#define QN_DIM_BASE INT64_C(-4611686018427387904)
static inline int qn_dim_is_symbolic(int64_t d) { return d >= QN_DIM_BASE && d < QN_DIM_BASE + INT32_MAX; }

/* allocation_limit 0: none. */
QN_API qn_status qn_graph_create(size_t allocation_limit, qn_graph **graph);
QN_API void qn_graph_destroy(qn_graph *graph);
/* The first error of the builder, QN_OK and "" when there was none. */
QN_API qn_status qn_graph_error(const qn_graph *graph, qn_error *error);

/* A symbol with bounds, standing for an extent known only at run time. Returns the dim to put into shapes; the same name again
 * gives the same dim. While the graph is built its shapes are checked at the symbol's upper bound. */
QN_API int64_t qn_graph_symbol(qn_graph *graph, const char *name, int64_t least, int64_t most, int64_t multiple_of);
/* The sum, difference, product or exact quotient of two dims, symbolic or not; op is one of + - * /. */
QN_API int64_t qn_graph_dim(qn_graph *graph, char op, int64_t a, int64_t b);

/* Leaves. Names are unique among inputs and among params. */
QN_API qn_val qn_graph_input(qn_graph *graph, const char *name, qn_dtype dtype, int rank, const int64_t *shape);
QN_API qn_val qn_graph_param(qn_graph *graph, const char *name, qn_dtype dtype, int rank, const int64_t *shape);
/* Dense data, copied. */
QN_API qn_val qn_graph_constant(qn_graph *graph, qn_dtype dtype, int rank, const int64_t *shape, const void *data, size_t bytes);

/* One op. attr NULL takes the defaults. out receives n_out values, which must be what the op gives (optional outputs may be left
 * off at the end).
 *
 * Bodies of branches and loops (cond, while_loop, scan_loop) are graphs in the op's attributes, which are copied. A body's inputs
 * are, in order of creation, what the op hands to it, and its outputs, in order, what it gives; it has no params: what it needs from
 * outside is passed in. Its symbols are those of the same names of the graph it goes into, which must have them. */
QN_API qn_status qn_graph_apply(qn_graph *graph, int op, int subop, int n_src, const qn_val *src, const void *attr, int n_out,
                                qn_val *out);
/* The same for ops with one output; QN_VAL_NONE after an error. */
QN_API qn_val qn_graph_op(qn_graph *graph, int op, int subop, int n_src, const qn_val *src, const void *attr);

/* Outputs in order; a value may be an output more than once, under different names. */
QN_API qn_status qn_graph_output(qn_graph *graph, qn_val value, const char *name);

/* Labels that say where in the model the next nodes belong: "layer 3", then "attention", then "q". */
QN_API qn_status qn_graph_label_push(qn_graph *graph, const char *label);
QN_API qn_status qn_graph_label_pop(qn_graph *graph);

/* The graph with its symbols replaced by numbers (in order of creation) and every shape inferred again. Fails when a number is out
 * of its symbol's bounds, or when an op does not accept the shapes that follow. */
QN_API qn_status qn_graph_bind(const qn_graph *graph, const int64_t *symbols, qn_graph **bound, qn_error *error);

/* ---- Derivatives. All append to the graph, which must have no symbols (bind them first), and give values in the shape and
 * dtype of what they belong to; where nothing depends on anything the result is zeros. They fail when an op on the way has no
 * derivative, and say which. What they append for a node has its label, with "gradient", "tangent", "second gradient" or
 * "recompute" in front. */

/* The gradients of a one-element value by some others. */
QN_API qn_status qn_graph_grad(qn_graph *graph, qn_val loss, int n, const qn_val *wrt, qn_val *grads);

/* Checkpointing: the forward pass is cut into segments, and all but the last are computed a second time when the backward pass
 * reaches them, from the values that cross from segment to segment, instead of keeping everything until then. The result has
 * the same bits. */
typedef enum qn_checkpoint {
    QN_CHECKPOINT_NONE,
    QN_CHECKPOINT_EVERY,  /* segments of so many nodes */
    QN_CHECKPOINT_LABELS, /* a segment for each run of nodes whose labels agree in their first parts: "layer 3" */
    QN_CHECKPOINT_BUDGET  /* as little as possible is computed again such that no more bytes are kept; an estimate, from above */
} qn_checkpoint;

typedef struct qn_grad_options {
    uint32_t size; /* sizeof(qn_grad_options); all else may be zero */
    qn_checkpoint checkpoint;
    int32_t every;       /* QN_CHECKPOINT_EVERY: nodes in a segment; 0: the square root of how many there are */
    int32_t label_depth; /* QN_CHECKPOINT_LABELS: parts that count; 0: one */
    uint64_t budget;     /* QN_CHECKPOINT_BUDGET: bytes of forward values that the backward pass may keep */
    const qn_val *seed;  /* what comes in for the loss, in its shape, which may then be any; NULL: 1 for a single element */
    /* Sums over several runs (micro-batches): a param for each gradient, to which it is added in place. grads then are the sums,
     * and must be outputs, or be used by one, for the addition to happen. Entries may be QN_VAL_NONE. */
    const qn_val *sums;
    const qn_val *keep; /* a number the sums are multiplied by before: 0 in the first run of a batch, 1 in the others; NULL: 1 */
    float scale;        /* of what is added; 0: 1 */
} qn_grad_options;
/* The same, with options; NULL: none. */
QN_API qn_status qn_graph_grad_with(qn_graph *graph, qn_val loss, int n, const qn_val *wrt, const qn_grad_options *options,
                                    qn_val *grads);

/* Forward mode: how `of` change as each wrt[i] moves along tangents[i]: the Jacobian times a vector. */
QN_API qn_status qn_graph_jvp(qn_graph *graph, int n, const qn_val *wrt, const qn_val *tangents, int n_of, const qn_val *of,
                              qn_val *out);
/* The Hessian of a one-element value times a vector, given in parts: how its gradients change along vectors. */
QN_API qn_status qn_graph_hvp(qn_graph *graph, qn_val loss, int n, const qn_val *wrt, const qn_val *vectors, qn_val *out);

/* What became of the nodes of a batched graph. */
typedef struct qn_vmap_report {
    uint32_t size;          /* sizeof(qn_vmap_report), set by the caller */
    int32_t n_shared;       /* the same for all items, and computed once */
    int32_t n_batched;      /* computed for all items at once */
    int32_t n_unrolled;     /* run once for each item, because the op has no rule for this case; labelled "unrolled" */
    int32_t first_unrolled; /* the first of those, in the graph that was given; -1: none */
} qn_vmap_report;
/* A graph that does for `batch` items at once what the given one does for one. The inputs and params in `which` have the batch as
 * a new first axis, the others are shared by all items; every output has it. No symbols: bind them first. report may be NULL. */
QN_API qn_status qn_graph_vmap(const qn_graph *graph, int64_t batch, int n, const qn_val *which, qn_graph **out,
                               qn_vmap_report *report, qn_error *error);

/* ---- Passes: from a graph to one that computes the same outputs with less. */

/* What products, convolutions and attention are computed in. Sums are kept in f32; leaves and outputs keep their dtypes. */
typedef enum qn_precision { QN_PRECISION_KEEP, QN_PRECISION_F16, QN_PRECISION_BF16 } qn_precision;

enum {
    QN_PASS_FAST = 1u,  /* also what changes results within the ops' bounds: products in another order, folded statistics */
    QN_PASS_VERIFY = 2u /* qn_graph_verify after each pass; a fault is an error that names the pass */
};

/* One thing a pass did, or could not do. */
typedef struct qn_pass_note {
    const char *pass, *rule; /* "fuse", "linear_bias" */
    const qn_graph *graph;   /* as it was before, good during the call; a body, when it is found in one */
    int32_t node;            /* the root of what was found there */
    const char *missed;      /* why it was left alone; NULL: it was done */
} qn_pass_note;

/* A pass that has run. */
typedef struct qn_pass_done {
    const char *pass;
    const qn_graph *graph; /* as it is now, good during the call */
    int32_t changed;       /* how many things it did */
    int32_t nodes_before, nodes_after;
    uint64_t nanoseconds;
} qn_pass_done;

typedef struct qn_pass_options {
    uint32_t size;  /* sizeof(qn_pass_options) */
    uint32_t flags; /* QN_PASS_* */
    qn_precision precision;
    int32_t limit;    /* so many changes and no more, to find the one that matters; 0: no limit */
    const char *only; /* "fold,cse,dce": these, in this order; NULL: all, in theirs */
    const char *skip; /* "fuse,neg_neg": passes and rules to leave out; NULL: none. A name of neither is refused. */
    /* Whether there is a fast kernel; NULL: for every op. Fusion makes no op without one of ops that have. */
    int (*claims)(void *claims_user, int op, int subop);
    void *claims_user;
    void (*note)(void *user, const qn_pass_note *note); /* NULL: nobody listens */
    void (*done)(void *user, const qn_pass_done *done); /* NULL: likewise */
    void *user;
} qn_pass_options;

/* Passes by number, from 0, in the order in which qn_graph_optimise runs them; NULL past the last. */
QN_API const char *qn_graph_pass_name(int number, const char **summary);
/* All of them, or those the options name; options may be NULL. */
QN_API qn_status qn_graph_optimise(const qn_graph *graph, const qn_pass_options *options, qn_graph **out, qn_error *error);

/* ---- Looking at a graph */

typedef enum qn_value_kind { QN_VALUE_INPUT, QN_VALUE_PARAM, QN_VALUE_CONSTANT, QN_VALUE_RESULT } qn_value_kind;

typedef struct qn_value_info {
    uint32_t size; /* sizeof(qn_value_info), set by the caller */
    qn_value_kind kind;
    qn_dtype dtype;
    int32_t rank;
    int64_t shape[QN_MAX_RANK]; /* as declared or inferred; entries may be symbolic */
    const char *name;           /* of a leaf, else NULL; good until the graph is added to */
    int32_t node, output;       /* which output of which node made it, -1 for a leaf */
} qn_value_info;

typedef struct qn_node_info {
    uint32_t size; /* sizeof(qn_node_info), set by the caller */
    int32_t op, subop;
    int32_t n_src, n_out;
    qn_val src[QN_MAX_SRC];
    qn_val out[QN_MAX_DST];
    const void *attr;  /* NULL: the defaults */
    const char *label; /* "layer 3 / attention / q", "" when there is none */
} qn_node_info;

QN_API int32_t qn_graph_value_count(const qn_graph *graph);
QN_API int32_t qn_graph_node_count(const qn_graph *graph);
QN_API int32_t qn_graph_output_count(const qn_graph *graph);
QN_API qn_status qn_graph_value(const qn_graph *graph, qn_val value, qn_value_info *info);
QN_API qn_status qn_graph_node(const qn_graph *graph, int32_t node, qn_node_info *info);
QN_API qn_val qn_graph_output_value(const qn_graph *graph, int32_t output, const char **name);
/* A constant's bytes; NULL for any other value. */
QN_API const void *qn_graph_constant_data(const qn_graph *graph, qn_val value);
/* A dim's value when symbols have these values (in order of creation; NULL: their upper bounds); -1 when it has none. */
QN_API int64_t qn_graph_dim_value(const qn_graph *graph, int64_t dim, const int64_t *symbols);
/* "2*batch + 1"; as snprintf. */
QN_API int qn_graph_dim_format(const qn_graph *graph, int64_t dim, char *text, size_t size);

typedef struct qn_symbol_info {
    uint32_t size; /* sizeof(qn_symbol_info), set by the caller */
    uint32_t reserved;
    const char *name; /* good until the graph is added to */
    int64_t least, most, multiple_of;
} qn_symbol_info;

/* Symbols in order of creation. */
QN_API int32_t qn_graph_symbol_count(const qn_graph *graph);
QN_API qn_status qn_graph_symbol_describe(const qn_graph *graph, int32_t symbol, qn_symbol_info *info);

/* ---- Text and checks */

/* Takes text piece by piece; anything but QN_OK stops the printer, which returns it. */
typedef qn_status (*qn_graph_write_fn)(void *user, const char *text, size_t length);
/* The graph as .qir text (docs/qir.md). Parsing that text gives the same graph, with the same numbers for its values. Fails when
 * the builder has failed, and when a node holds a callback, which text cannot. */
QN_API qn_status qn_graph_print(const qn_graph *graph, qn_graph_write_fn write, void *user, qn_error *error);
/* A graph from text, which need not end in a zero byte and may come from anyone. An error begins with "line:column: ".
 * allocation_limit as for qn_graph_create. */
QN_API qn_status qn_graph_parse(const char *text, size_t bytes, size_t allocation_limit, qn_graph **graph, qn_error *error);

/* One thing wrong with a graph. */
typedef struct qn_graph_fault {
    int32_t node;     /* -1: not about a node */
    qn_val value;     /* QN_VAL_NONE: not about a value */
    const char *text; /* a sentence, good during the call */
} qn_graph_fault;
typedef void (*qn_graph_fault_fn)(void *user, const qn_graph_fault *fault);
/* Checks everything a graph promises, each node once more through its op's guard and shape rule. Every fault is handed over, not the
 * first alone; fault may be NULL. INVALID when there was one, NO_MEMORY when there was none for the checking. */
QN_API qn_status qn_graph_verify(const qn_graph *graph, qn_graph_fault_fn fault, void *user);

#ifdef __cplusplus
}
#endif
#endif
