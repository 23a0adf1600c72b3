/* What the parts of qn_check share. A case is a row of tests/cases.def; it is parsed once, drawn (dtypes, extents, sub-op) many
 * times, and built into a request whose buffers lie in one arena with red zones between them. Every mode is then a way of
 * running built requests and looking at what they changed. */
#ifndef QN_TESTS_CHECK_H
#define QN_TESTS_CHECK_H

#include <quern/quern.h>

enum { QC_MAX_FIELD = 24, QC_MAX_AXIS = 8, QC_LETTERS = 52 };

/* ---- Random numbers: small, seeded, the same everywhere. */

typedef struct qc_rng {
    uint64_t state;
} qc_rng;

uint64_t qc_next(qc_rng *rng);
int64_t qc_below(qc_rng *rng, int64_t n); /* 0 for n < 1 */
double qc_unit(qc_rng *rng);              /* [0, 1) */
uint64_t qc_mix(uint64_t a, uint64_t b);

/* ---- Cases */

typedef enum qc_kind { QC_ACCEPT, QC_REJECT, QC_GOLD } qc_kind;

typedef struct qc_span {
    const char *at;
    int n;
} qc_span;

typedef struct qc_item { /* one source */
    int absent;
    char layout; /* of ~layout, or 0 */
    int has_lead;
    qc_span dtype, dims, values;
} qc_item;

typedef struct qc_field { /* one attribute; its alternatives are separated by | */
    int attr;             /* number in the op's table */
    int axis;             /* the choice that picks the alternative, -1 when there is but one */
    qc_span value;
} qc_field;

typedef struct qc_axis { /* one thing that is enumerated: a dtype variable, an attribute's alternatives, the sub-op */
    char variable;       /* 0 unless a dtype variable */
    int n;
    uint8_t option[QN_DTYPE_COUNT];
} qc_axis;

typedef struct qc_case {
    qc_kind kind;
    int op;
    const char *sources, *attributes;
    int reason;      /* of a reject */
    const char *arg; /* of a reject */
    double gold[5];
    /* what the parser found */
    int n_src, n_field, n_axis, sub_axis;
    qc_item src[QN_MAX_SRC];
    qc_field field[QC_MAX_FIELD];
    qc_axis axis[QC_MAX_AXIS];
    int64_t n_variant;
    int lead_room; /* most leading axes `@` can stand for; -1 when there is no @ */
    int lead_least;
    uint64_t letters; /* bit i: letter i is used */
} qc_case;

typedef enum qc_shapes {
    QC_SHAPES_RANDOM,
    QC_SHAPES_ODD,
    QC_SHAPES_ONES,
    QC_SHAPES_DEEP,
    QC_SHAPES_EMPTY,
    QC_SHAPES_TWO,
    QC_SHAPES_LARGE,
    QC_SHAPES_COUNT
} qc_shapes;

typedef struct qc_draw {
    uint64_t seed;
    int64_t variant;
    int choice[QC_MAX_AXIS];
    int64_t letter[QC_LETTERS];
    int n_lead;
    int64_t lead[QN_MAX_RANK];
    int64_t block; /* B: elements per block of the drawn block dtype */
} qc_draw;

/* All cases of all ops, stock sets included; made once by qc_cases_load, whose failures are rows that do not parse. */
int qc_cases_load(void);
int qc_cases_count(void);
const qc_case *qc_cases_at(int i);
/* The i-th accepting case of an op, NULL past the last. */
const qc_case *qc_cases_accept(int op, int i);
/* What a case's draws are seeded with: its text, and --seed. */
uint64_t qc_case_seed(const qc_case *c);

/* NULL, or what is wrong with the row. */
const char *qc_case_parse(qc_case *c);
uint32_t qc_variable_dtype(const qc_case *c, const qc_draw *d, char variable); /* QN_DTYPE_NONE when not drawn */
void qc_draw_make(const qc_case *c, qc_draw *d, int64_t variant, qc_shapes shapes, int64_t most, uint64_t seed);
uint32_t qc_item_dtype(const qc_case *c, const qc_draw *d, int slot);
/* Extents of a source; 0 on success. */
int qc_item_dims(const qc_case *c, const qc_draw *d, int slot, int *rank, int64_t *dims);
int qc_draw_subop(const qc_case *c, const qc_draw *d);
/* Value of an expression over the draw's letters; integers divide whole. *bad is set on a syntax error. */
long double qc_eval(qc_span text, const qc_draw *d, int whole, int *bad);
/* The alternative of an attribute that this draw takes. */
qc_span qc_field_choice(const qc_case *c, const qc_draw *d, int field);
/* Splits off the text up to `separator` outside parentheses; 0 when nothing is left. */
int qc_split(qc_span *rest, char separator, qc_span *part);
qc_span qc_trim(qc_span s);
int qc_is(qc_span s, const char *text);

/* ---- Arena: buffers with red zones, and what changed in it */

enum { QC_RED = 64 };

void *qc_alloc(size_t bytes, size_t align); /* NULL when the arena is full, which fails the case */
void qc_arena_reset(void);
void qc_arena_free(void);
size_t qc_arena_used(void);
int qc_arena_contains(const void *p);
void qc_arena_keep(void);                   /* remember all bytes, to run the same request again */
void qc_arena_rewind(void);                 /* what was kept, as it was */
void qc_guard(void);                        /* remember all bytes; under AddressSanitizer also poison the red zones */
void qc_unguard(void);                      /* lift the poison */
void qc_allow(const void *p, size_t bytes); /* these bytes may have changed */
/* 0 when nothing but allowed bytes changed; else the address of the first byte that did is in *where. */
int qc_changed(const unsigned char **where);

/* Allocations counted between the two calls. */
void qc_trap_arm(void);
int64_t qc_trap_disarm(void);

/* ---- Requests */

typedef struct qc_options {
    char src_layout[QN_MAX_SRC]; /* replaces the case's; 0 keeps it */
    char dst_layout;
    int in_place;               /* 1 + slot of the source that is also the first destination; 0: none */
    int least_dst;              /* leave optional outputs out */
    int ones;                   /* so many more axes of one in front of destinations; below 0: fewer, where there are some */
    uint32_t round[QN_MAX_SRC]; /* values pass through this dtype first */
    unsigned char poison;       /* what outputs and workspace hold before */
} qc_options;

typedef struct qc_built {
    const qc_case *c;
    qc_draw draw;
    qc_options options;
    qn_request request;
    qn_tensor src[QN_MAX_SRC], dst[QN_MAX_DST];
    int given_dst[QN_MAX_DST];
    int rank[QN_MAX_DST]; /* of destinations, as inferred */
    void *attr;           /* in the arena, like every buffer */
    qn_status inferred;
    qn_result result;
    const char *trouble; /* the case itself could not be built */
} qc_built;

/* Builds in a fresh arena. inferred says whether the op took the sources; then destinations and workspace are there too. */
void qc_build(qc_built *b, const qc_case *c, const qc_draw *d, const qc_options *options);
void qc_bind(qc_built *b); /* after a copy: point the request at this record's tensors */
/* Byte strides of a layout; bytes = what the buffer needs. See qc_layout's table in check_layout.c. */
void qc_layout(char layout, uint32_t dtype, int rank, const int64_t *shape, int64_t *stride, int64_t *offset, uint64_t *bytes);
void qc_put_ones(qn_tensor *t, int more); /* in front of it; below 0: takes some away, where there are some */
qn_status qc_tensor_make(qn_tensor *t, char layout, uint32_t dtype, int rank, const int64_t *shape);
int64_t qc_count(int rank, const int64_t *shape);
/* Logical element order of a tensor: calls back with the address of each element (plain) or block. */
void qc_each(const qn_tensor *t, void (*visit)(void *self, char *at, int64_t i), void *self);
/* Elements as dense bytes in logical order; returns how many bytes, at most room. */
size_t qc_gather(const qn_tensor *t, void *out, size_t room);
/* Elements as doubles, decoded. */
void qc_doubles(const qn_tensor *t, double *out);
void qc_store_doubles(const qn_tensor *t, const double *in, qc_rng *rng);
void qc_store_blocks(const qn_tensor *t, qc_rng *rng); /* block dtypes: any values in [-1, 1) */
/* Values of one source, in logical order. NULL or what is wrong. */
const char *qc_values(const qc_case *c, const qc_draw *d, int slot, int rank, const int64_t *shape, double *out);
/* A program of a region. NULL or what is wrong. */
const char *qc_words(const qc_case *c, const qc_draw *d, qc_span text, qn_code *list);
/* Fills the attribute record. NULL or what is wrong. */
const char *qc_attributes(const qc_case *c, const qc_draw *d, void *record);

typedef struct qc_outcome {
    qn_status status;
    qn_result result;
    int64_t allocations;
    const unsigned char *touched; /* a byte that must not have changed, or NULL */
} qc_outcome;

/* Dispatches with all guards up. */
void qc_run(qc_built *b, qc_outcome *o);
/* The same through qn_can_dispatch: nothing at all may change. */
void qc_ask(qc_built *b, qc_outcome *o);
const char *qc_arg_name(const qn_result *r);

/* ---- Reporting and modes */

typedef struct qc_settings {
    int op; /* -1: all */
    int quick, verbose;
    int small;    /* no large shapes and few of the others, for slow machines */
    int64_t room; /* most elements of one source */
    uint64_t seed;
    double seconds;
} qc_settings;

extern qc_settings qc_set;
extern qn_context *qc_context;

void qc_pass(void);
QN_PRINTF(2, 3) void qc_fail(const qc_built *b, const char *format, ...);
/* Failures of the op at hand that were not printed are counted from here. */
void qc_report_op(int op);
int qc_failures(void);
int qc_finish(void); /* prints the last line; the exit code */

int qc_mode_list(void);
int qc_mode_test(void);
int qc_mode_grad(void);
int qc_mode_fuzz(void);
int qc_mode_graphs(void);
int qc_mode_vmap(void);
int qc_mode_kernels(void);
int qc_mode_threads(void);
int qc_mode_batch(void);
int qc_mode_tolerances(void);
int qn_check_vectors(const char *dir, int verbose);

/* A pool all of whose threads have begun, or NULL. */
qn_pool *qc_pool_start(int threads);

/* A part of `grad`: the gradients of one draw, in f64, against differences. 1 when there was one to compare. */
int qc_grad_try(const qc_case *c, const qc_draw *d);

/* Parts of `test`. */
void qc_test_layouts(const qc_built *base, const unsigned char *bytes, size_t n);
void qc_test_in_place(const qc_built *base, const unsigned char *bytes, size_t n);
void qc_test_fewer_outputs(const qc_built *base, const unsigned char *bytes);
void qc_test_inference(const qc_built *base);
void qc_test_accuracy(const qc_built *base);
int qc_test_rejects(const qc_case *c); /* how many requests it spoiled */
size_t qc_outputs(const qc_built *b, unsigned char *out, size_t room);
void qc_fresh_outcome(const qc_built *b, const qc_outcome *o, qn_status want);

#endif
