/* One op on the device beside the same request through qn_dispatch: what the tests are made of. Tensors live in one buffer that
 * is the host's memory for the one and the arena for the other, so that every byte of it can be compared. */
#ifndef QN_TESTS_VULKAN_HELP_H
#define QN_TESTS_VULKAN_HELP_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmocka_setup.h"
#include "seed.h"
#include "tensor/convert.h"
#include "vulkan/vulkan.h"

enum { HELP_ARENA = 1 << 20, HELP_ITEMS = 10, HELP_OUTPUTS = 5, HELP_ALL = HELP_ITEMS + HELP_OUTPUTS };
static const uint64_t help_patience = 60000000000u; /* ns */

typedef enum help_layout { DENSE, PADDED, TURNED, REVERSED } help_layout;

/* A source to be: values are uniform in [low, high); with odd 1 those of help_odd over and over, with 2 two of three are -Inf,
 * with 3 all are. */
typedef struct help_item {
    qn_dtype dtype;
    int rank;
    int64_t shape[QN_MAX_RANK];
    help_layout layout;
    double low, high;
    int odd;
} help_item;

typedef struct help_case {
    int op, subop;
    const void *attr;
    int n_src;
    help_item src[HELP_ITEMS];
    help_layout dst_layout;
    double bound;   /* of the normalised mean square error; 0: bits */
    int n_dst;      /* 0: all that the op infers */
    int n_state;    /* the first outputs lie over the first sources */
    uint32_t flags; /* QN_TENSOR_* of the first source */
    int bare;       /* outputs have no axes of one in front */
} help_case;

typedef struct help_bench {
    qn_device *device;
    qn_context *context;
    char *host, *before, *back, *again, *workspace; /* HELP_ARENA bytes each */
    uint32_t seed;
    int cases;
    struct {
        int64_t at;
        double have, want;
    } worst; /* element of what help_error looked at last */
} help_bench;

static const double help_odd[] = {0,     -0.0,    1,        -1,        0.5,    2.5,    -2.5,  1e-3, 6e-8,         -6e-8,
                                  1e-40, 65504,   65519.9,  65520,     -70000, 3.4e38, 1e-45, 1e10, 2147483647.0, -2147483648.0,
                                  4e9,   NAN,     INFINITY, -INFINITY, 20.5,   -20.5,  100,   -100, 88.5,         -3,
                                  3,     16777217};
enum { HELP_ODD = sizeof help_odd / sizeof *help_odd };

static inline double help_random(help_bench *b, double low, double high) {
    b->seed = b->seed * 1664525u + 1013904223u;
    return low + (high - low) * ((double)(b->seed >> 8) * 0x1p-24);
}

/* A case's values depend on what it is, not on the cases before it. */
static inline uint32_t help_seed(const help_case *c) {
    const char *name = qn_op_describe(c->op)->name;
    uint64_t seed = seed_of(SEED_START, name, strlen(name) + 1);
    seed = seed_of(seed, &c->subop, sizeof c->subop);
    for (int i = 0; i < c->n_src; i++) {
        const help_item *s = &c->src[i];
        const int what[] = {(int)s->dtype, s->rank, (int)s->layout, s->odd};
        const double range[] = {s->low, s->high};
        seed = seed_of(seed_of(seed, what, sizeof what), range, sizeof range);
        seed = seed_of(seed, s->shape, (size_t)s->rank * sizeof *s->shape);
    }
    return (uint32_t)(seed >> 32);
}

/* Strides of a layout; returns the bytes it takes. The offset moves to the first element. */
static inline uint64_t help_place(qn_tensor *t, qn_dtype dtype, int rank, const int64_t *shape, help_layout layout) {
    int order[QN_MAX_RANK];
    int64_t bytes = qn_dtype_describe(dtype)->bytes, next = bytes;
    memset(t, 0, sizeof *t);
    t->dtype = dtype;
    t->rank = rank;
    for (int i = 0; i < rank; i++) order[i] = i;
    if (layout == TURNED && rank > 1) {
        order[rank - 1] = rank - 2;
        order[rank - 2] = rank - 1;
    }
    for (int k = rank - 1; k >= 0; k--) {
        int axis = order[k];
        t->shape[axis] = shape[axis];
        t->stride[axis] = next;
        int64_t n = axis == rank - 1 ? shape[axis] / qn_dtype_describe(dtype)->block : shape[axis];
        next *= n + (layout == PADDED ? 1 + k % 2 : 0);
    }
    if (layout == REVERSED && shape[rank - 1] > 0) {
        t->offset = (shape[rank - 1] - 1) * bytes;
        t->stride[rank - 1] = -bytes;
    }
    return next > 0 ? (uint64_t)next : 0;
}

static inline void help_leave_ones_out(qn_tensor *t) {
    while (t->rank > 1 && t->shape[0] == 1) {
        t->rank--;
        memmove(t->shape, t->shape + 1, (size_t)t->rank * sizeof *t->shape);
        memmove(t->stride, t->stride + 1, (size_t)t->rank * sizeof *t->stride);
    }
}

/* Blocks, dense. */
static inline void help_fill_blocks(help_bench *b, const qn_tensor *t, const help_item *item) {
    int64_t n = qn_tensor_count(t);
    float *values = malloc((size_t)n * sizeof *values);
    assert_non_null(values);
    for (int64_t k = 0; k < n; k++) values[k] = (float)help_random(b, item->low, item->high);
    assert_int_equal(qn_convert(QN_DTYPE_F32, values, (qn_dtype)t->dtype, b->host + (uintptr_t)t->data, n), QN_OK);
    free(values);
}

static inline void help_fill(help_bench *b, const qn_tensor *t, const help_item *item) {
    int64_t n = qn_tensor_count(t), index[QN_MAX_RANK] = {0};
    if (qn_dtype_describe((qn_dtype)t->dtype)->block > 1) {
        help_fill_blocks(b, t, item);
        return;
    }
    for (int64_t k = 0; k < n; k++) {
        int64_t at = t->offset;
        for (int i = 0; i < t->rank; i++) at += index[i] * t->stride[i];
        double v = item->odd == 1 ? help_odd[k % HELP_ODD] : help_random(b, item->low, item->high);
        if (item->odd == 2 && k % 3) v = -INFINITY;
        if (item->odd == 3) v = -INFINITY;
        qn_store_one((qn_dtype)t->dtype, b->host + (uintptr_t)t->data + at, v);
        for (int i = t->rank - 1; i >= 0 && ++index[i] == t->shape[i]; i--) index[i] = 0;
    }
}

/* Everything of a tensor compared: NaN with NaN, Inf with Inf, the rest by mean square. What was compared is then made equal,
 * so that whatever else differs was not to be written. */
static inline double help_error(help_bench *b, const qn_tensor *t) {
    int64_t n = qn_tensor_count(t), index[QN_MAX_RANK] = {0};
    double wrong = 0, right = 0, most = 0;
    for (int64_t k = 0; k < n; k++) {
        int64_t at = (int64_t)(uintptr_t)t->data + t->offset;
        for (int i = 0; i < t->rank; i++) at += index[i] * t->stride[i];
        double want = qn_load_one((qn_dtype)t->dtype, b->host + at), have = qn_load_one((qn_dtype)t->dtype, b->back + at);
        for (int i = t->rank - 1; i >= 0 && ++index[i] == t->shape[i]; i--) index[i] = 0;
        memcpy(b->back + at, b->host + at, (size_t)qn_dtype_describe((qn_dtype)t->dtype)->bytes);
        if (isnan(want) && isnan(have)) continue;
        if (isinf(want) && want == have) continue;
        double off = isfinite(want) && isfinite(have) ? fabs(want - have) : INFINITY;
        if (off > most) b->worst.at = k, b->worst.have = have, b->worst.want = want, most = off;
        if (isinf(off)) return off;
        wrong += off * off;
        right += want * want;
    }
    return wrong == 0 ? 0 : wrong / (right > 0 ? right : 1);
}

/* Makes the tensors: sources, and behind HELP_ITEMS of them what the op infers. Returns bytes of the arena in use. */
static inline uint64_t help_tensors(help_bench *b, help_case *c, qn_tensor *t) {
    qn_request q = {.size = sizeof q, .version = QN_REQUEST_VERSION, .op = (uint16_t)c->op, .subop = (uint16_t)c->subop};
    qn_tensor bare[HELP_ITEMS], out[QN_MAX_DST];
    qn_result result;
    uint64_t at = 64;
    int n_out = 0;
    q.n_src = (uint16_t)c->n_src;
    q.attr = c->attr;
    for (int i = 0; i < c->n_src; i++) {
        if (c->src[i].dtype == QN_DTYPE_NONE) continue;
        uint64_t bytes = help_place(&t[i], c->src[i].dtype, c->src[i].rank, c->src[i].shape, c->src[i].layout);
        if (i == 0) t[i].flags = c->flags;
        bare[i] = t[i];
        q.src[i] = &bare[i];
        t[i].data = QN_AT(at);
        t[i].size = bytes;
        at += (bytes + 127) / 64 * 64;
    }
    if (qn_infer(&q, out, &n_out, &result) != QN_OK) {
        char text[256];
        qn_result_format(&result, text, sizeof text);
        fail_msg("the op does not accept the case: %s", text);
    }
    if (!c->n_dst) c->n_dst = n_out;
    assert_in_range(c->n_dst, 1, HELP_OUTPUTS);
    for (int i = 0; i < c->n_dst; i++) {
        qn_tensor *y = &t[HELP_ITEMS + i];
        if (i < c->n_state) {
            *y = t[i];
            continue;
        }
        uint64_t bytes = help_place(y, (qn_dtype)out[i].dtype, out[i].rank, out[i].shape, c->dst_layout);
        y->data = QN_AT(at);
        y->size = bytes;
        at += (bytes + 127) / 64 * 64;
        if (c->bare) help_leave_ones_out(y);
    }
    assert_true(at <= HELP_ARENA);
    for (uint64_t i = 0; i < at; i++) b->host[i] = (char)(i * 37 + 11);
    b->seed = help_seed(c);
    for (int i = 0; i < c->n_src; i++)
        if (c->src[i].dtype != QN_DTYPE_NONE) help_fill(b, &t[i], &c->src[i]);
    memcpy(b->before, b->host, (size_t)at);
    return at;
}

static inline void help_run_host(help_bench *b, const help_case *c, const qn_tensor *t) {
    qn_tensor real[HELP_ALL];
    qn_request q = {.size = sizeof q, .version = QN_REQUEST_VERSION, .op = (uint16_t)c->op, .subop = (uint16_t)c->subop};
    qn_result result;
    q.n_src = (uint16_t)c->n_src;
    q.n_dst = (uint16_t)c->n_dst;
    q.attr = c->attr;
    q.workspace = b->workspace;
    q.workspace_size = HELP_ARENA;
    for (int i = 0; i < HELP_ALL; i++) {
        real[i] = t[i];
        real[i].data = b->host + (uintptr_t)t[i].data;
        if (i < c->n_src && c->src[i].dtype != QN_DTYPE_NONE) q.src[i] = &real[i];
        if (i >= HELP_ITEMS && i - HELP_ITEMS < c->n_dst) q.dst[i - HELP_ITEMS] = &real[i];
    }
    if (qn_dispatch(b->context, &q, &result) != QN_OK) {
        char text[256];
        qn_result_format(&result, text, sizeof text);
        fail_msg("qn_dispatch: %s", text);
    }
}

static inline qn_device_step help_step(const help_case *c, const qn_tensor *t) {
    qn_device_step s = {.op = c->op, .subop = c->subop, .attr = c->attr, .n_src = c->n_src, .n_dst = c->n_dst};
    for (int i = 0; i < c->n_src; i++)
        if (c->src[i].dtype != QN_DTYPE_NONE) s.src[i] = &t[i];
    for (int i = 0; i < c->n_dst; i++) s.dst[i] = &t[HELP_ITEMS + i];
    return s;
}

static inline void help_expect(qn_status have, qn_status want, const qn_error *e) {
    if (have != want) fail_msg("%s instead of %s: %s", qn_status_name(have), qn_status_name(want), e->text);
}

/* The case on both, twice on the device: within the bound, the same bits again, and nothing written beside the result. */
static inline void help_compare(help_bench *b, help_case *c) {
    qn_tensor t[HELP_ALL];
    memset(t, 0, sizeof t);
    uint64_t used = help_tensors(b, c, t);
    qn_device_step step = help_step(c, t);
    qn_device_range all = {0, used};
    qn_program_options o = {
        .arena_bytes = used, .n_steps = 1, .steps = &step, .n_inputs = 1, .n_outputs = 1, .inputs = &all, .outputs = &all};
    qn_program *p = NULL;
    qn_error e = {QN_OK, ""};
    help_expect(qn_device_supports(b->device, &step, &e), QN_OK, &e);
    help_expect(qn_program_create(b->device, &o, &p, &e), QN_OK, &e);
    const void *in = b->before;
    void *out[2] = {b->back, b->again};
    for (int i = 0; i < 2; i++) help_expect(qn_program_run(p, &in, &out[i], help_patience, &e), QN_OK, &e);
    qn_program_destroy(p);
    assert_memory_equal(b->back, b->again, used);
    help_run_host(b, c, t);
    if (c->bound == 0) assert_memory_equal(b->host, b->back, used);
    for (int i = 0; i < c->n_dst; i++) {
        double error = help_error(b, &t[HELP_ITEMS + i]);
        if (!(error <= c->bound))
            fail_msg("%s %s: output %d: error %.3g over the bound %.3g (case %d), element %lld is %g, not %g",
                     qn_op_describe(c->op)->name, qn_subop_count(c->op) ? qn_subop_name(c->op, c->subop) : "", i, error, c->bound,
                     b->cases, (long long)b->worst.at, b->worst.have, b->worst.want);
    }
    assert_memory_equal(b->host, b->back, used);
    b->cases++;
}

/* ---- The device all tests of a program share */

static inline int open_group(void **state) {
    static help_bench bench;
    qn_error e = {QN_OK, ""};
    qn_vulkan_options o = {.flags = QN_VULKAN_VALIDATE, .cache = ""};
    memset(&bench, 0, sizeof bench);
    *state = &bench;
    if (qn_vulkan_open(&o, &bench.device, &e) != QN_OK) {
        printf("vulkan: skipped, there is no Vulkan device to test: %s\n", e.text);
        return 0;
    }
    int active = 0;
    qn_vulkan_messages(bench.device, &active, NULL);
    printf("vulkan: validation layer %s\n", active ? "on" : "not installed");
    bench.host = aligned_alloc(QN_WORKSPACE_ALIGN, 5 * HELP_ARENA);
    qn_context_options plain = {.size = sizeof plain, .flags = QN_CONTEXT_REFERENCE};
    if (!bench.host || qn_context_create(&plain, &bench.context) != QN_OK) return 1;
    memset(bench.host, 0, 5 * HELP_ARENA);
    bench.before = bench.host + HELP_ARENA;
    bench.back = bench.before + HELP_ARENA;
    bench.again = bench.back + HELP_ARENA;
    bench.workspace = bench.again + HELP_ARENA;
    return 0;
}

static inline int close_group(void **state) {
    help_bench *b = *state;
    if (!b->device) return 0;
    const char *first = "";
    int n = qn_vulkan_messages(b->device, NULL, &first);
    printf("vulkan: %d cases, %d pipelines, %d validation messages%s%s\n", b->cases, qn_vulkan_pipelines(b->device), n,
           n ? ": " : "", first);
    qn_device_destroy(b->device);
    qn_context_destroy(b->context);
    free(b->host);
    return n != 0;
}

#define BENCH(state) (*(help_bench **)(state))
#define NEED_DEVICE(state)                 \
    do {                                   \
        if (!BENCH(state)->device) skip(); \
    } while (0)

#endif
