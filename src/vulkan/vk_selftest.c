/* Before a device is trusted, a few of its kernels run beside the reference: one of each kind of shader, on shapes that are odd
 * and not square, so that a swapped axis or a lost edge shows. Bounds are tight: a product that was transposed once passed a
 * loose one. */
#include <math.h>
#include <stdio.h>

#include "base/memory.h"
#include "tensor/convert.h"
#include "tensor/dtype.h"
#include "vulkan/vk.h"

enum { SOURCES = 2, PART = 32768, ARENA = (SOURCES + 1) * PART };

typedef struct trial {
    int op, subop;
    double bound; /* of |difference| / (1 + |value|) */
    struct {
        qn_dtype dtype;
        int64_t shape[3];
    } src[SOURCES];
} trial;

static const trial trials[] = {
    {QN_OP_add, 0, 1e-7, {{QN_DTYPE_F32, {3, 7, 10}}, {QN_DTYPE_F32, {1, 7, 5}}}},
    {QN_OP_unary, QN_UNARY_gelu, 1e-5, {{QN_DTYPE_F32, {1, 5, 67}}, {QN_DTYPE_NONE, {0}}}},
    {QN_OP_cpy, 0, 0, {{QN_DTYPE_F32, {3, 5, 19}}, {QN_DTYPE_F16, {1, 19, 15}}}},
    {QN_OP_sum_rows, 0, 1e-5, {{QN_DTYPE_F32, {2, 3, 301}}, {QN_DTYPE_NONE, {0}}}},
    {QN_OP_rms_norm, 0, 1e-5, {{QN_DTYPE_F32, {2, 2, 77}}, {QN_DTYPE_NONE, {0}}}},
    {QN_OP_soft_max, 0, 1e-5, {{QN_DTYPE_F32, {2, 3, 65}}, {QN_DTYPE_F16, {1, 3, 65}}}},
    {QN_OP_get_rows, 0, 0, {{QN_DTYPE_F16, {1, 9, 21}}, {QN_DTYPE_I32, {1, 1, 6}}}},
    {QN_OP_glu, QN_GLU_swiglu, 1e-5, {{QN_DTYPE_F32, {1, 3, 46}}, {QN_DTYPE_NONE, {0}}}},
};

/* Products: at an edge, in whole fragments, and not square. Their numbers are halves even where the dtype is f32, because kernels
 * may round to halves on the way in: so the bound can stay tight. */
static const trial products[] = {
    {QN_OP_mul_mat, 0, 1e-5, {{QN_DTYPE_F16, {1, 19, 43}}, {QN_DTYPE_F32, {1, 13, 43}}}},
    {QN_OP_mul_mat, 0, 1e-5, {{QN_DTYPE_F16, {1, 64, 64}}, {QN_DTYPE_F16, {2, 32, 64}}}},
    {QN_OP_matmul, 0, 1e-3, {{QN_DTYPE_F16, {1, 40, 72}}, {QN_DTYPE_F16, {1, 72, 136}}}},
    {QN_OP_matmul, 0, 1e-5, {{QN_DTYPE_F32, {2, 17, 33}}, {QN_DTYPE_F32, {1, 33, 21}}}},
    {QN_OP_mul_mat, 0, 1e-5, {{QN_DTYPE_F32, {1, 19, 77}}, {QN_DTYPE_F32, {1, 3, 77}}}},
};

typedef struct bench {
    qn_tensor tensors[SOURCES + 1]; /* sources, then the destination; data are offsets */
    char *host, *back;              /* what the reference, and what the device, made of it */
} bench;

/* Values in [-2, 2), the same every time, of so many bits; small indices for integers. */
static void fill(const qn_tensor *t, char *base, uint32_t seed, int bits) {
    int64_t n = qn_tensor_count(t), step = qn_dtype_bytes(t->dtype);
    for (int64_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        double v = t->dtype == QN_DTYPE_I32 ? (double)(seed >> 8) * 0x1p-24 * 9
                                            : ldexp((double)(seed >> (32 - bits)), 2 - bits) - 2;
        qn_store_one((qn_dtype)t->dtype, base + (uintptr_t)t->data + i * step, v);
    }
}

static qn_status make_tensors(bench *b, const trial *x, int n_src, qn_error *error) {
    qn_request q = {.size = sizeof q,
                    .version = QN_REQUEST_VERSION,
                    .op = (uint16_t)x->op,
                    .subop = (uint16_t)x->subop,
                    .n_src = (uint16_t)n_src};
    qn_tensor out[QN_MAX_DST];
    int n_out;
    for (int i = 0; i < n_src; i++) {
        QN_TRY(qn_tensor_init(&b->tensors[i], x->src[i].dtype, 3, x->src[i].shape, NULL, 0));
        q.src[i] = &b->tensors[i];
    }
    qn_result result;
    if (qn_infer(&q, out, &n_out, &result) != QN_OK) {
        char text[256];
        qn_result_format(&result, text, sizeof text);
        return qn_error_set(error, QN_UNEXPECTED, "a trial that the op does not accept: %s", text);
    }
    b->tensors[SOURCES] = out[0];
    for (int i = 0; i <= SOURCES; i++) {
        b->tensors[i].data = QN_AT(i * PART);
        b->tensors[i].size = PART;
    }
    return QN_OK;
}

static qn_status run_device(qn_device *d, bench *b, const trial *x, int n_src, qn_error *error) {
    qn_device_step step = {.op = x->op, .subop = x->subop, .n_src = n_src, .n_dst = 1, .dst = {&b->tensors[SOURCES]}};
    for (int i = 0; i < n_src; i++) step.src[i] = &b->tensors[i];
    qn_device_range all = {0, ARENA};
    qn_program_options o = {
        .arena_bytes = ARENA, .n_steps = 1, .steps = &step, .n_inputs = 1, .n_outputs = 1, .inputs = &all, .outputs = &all};
    qn_program *program = NULL;
    QN_TRY(qn_program_create(d, &o, &program, error));
    const void *in = b->host;
    void *out = b->back;
    qn_status status = qn_program_run(program, &in, &out, 20000000000u, error);
    qn_program_destroy(program);
    return status;
}

static void run_reference(bench *b, const trial *x, int n_src) {
    qn_tensor host[SOURCES + 1];
    const qn_tensor *src[QN_MAX_SRC] = {NULL}, *dst[QN_MAX_DST] = {&host[SOURCES]};
    for (int i = 0; i <= SOURCES; i++) {
        host[i] = b->tensors[i];
        host[i].data = b->host + (uintptr_t)b->tensors[i].data;
        if (i < n_src) src[i] = &host[i];
    }
    qn_call call = {x->op, x->subop, n_src, 1, src, dst, qn_op_describe(x->op)->attr_default, NULL};
    qn_op_rules_of(x->op)->reference(&call);
}

static qn_status compare(const bench *b, const trial *x, qn_error *error) {
    const qn_tensor *y = &b->tensors[SOURCES];
    int64_t n = qn_tensor_count(y), step = qn_dtype_bytes(y->dtype);
    for (int64_t i = 0; i < n; i++) {
        double want = qn_load_one((qn_dtype)y->dtype, b->host + (uintptr_t)y->data + i * step);
        double have = qn_load_one((qn_dtype)y->dtype, b->back + (uintptr_t)y->data + i * step);
        if (!(fabs(want - have) <= x->bound * (1 + fabs(want))))
            return qn_error_set(error, QN_DEVICE, "%s: element %lld is %.9g, the reference says %.9g",
                                qn_op_describe(x->op)->name, (long long)i, have, want);
    }
    return QN_OK;
}

static qn_status run_trial(qn_device *d, bench *b, const trial *x, int bits, qn_error *error) {
    int n_src = x->src[1].dtype == QN_DTYPE_NONE ? 1 : 2;
    memset(b->host, 0, 2 * ARENA);
    QN_TRY(make_tensors(b, x, n_src, error));
    for (int i = 0; i < n_src; i++) fill(&b->tensors[i], b->host, (uint32_t)(x->op * 7 + i + 1), bits);
    QN_TRY(run_device(d, b, x, n_src, error));
    run_reference(b, x, n_src);
    return compare(b, x, error);
}

/* All products with what is left of the families, by the tile the packer takes and by the largest. */
static qn_status run_products(qn_vk_device *d, bench *b, uint32_t without, qn_error *error) {
    qn_status status = QN_OK;
    for (int tile = -1; tile <= 0; tile++)
        for (size_t i = 0; status == QN_OK && i < sizeof products / sizeof *products; i++) {
            qn_vulkan_bar(&d->base, without, tile);
            status = run_trial(&d->base, b, &products[i], 10, error);
            if (status == QN_UNSUPPORTED) status = QN_OK; /* only when the plain kernel is ruled out or the tile does not fit */
        }
    qn_vulkan_bar(&d->base, 0, -1);
    return status;
}

/* Cooperative matrices that are wrong here are not used; only the plain kernels have to be right. */
static qn_status test_families(qn_vk_device *d, bench *b, qn_error *error) {
    qn_error why = {QN_OK, ""};
    char *verdict = d->facts.info.verdict;
    size_t room = sizeof d->facts.info.verdict;
    QN_TRY(run_products(d, b, QN_VULKAN_COOP, error));
    snprintf(verdict, room, "self-test agrees with the reference");
    if (run_products(d, b, QN_VULKAN_PLAIN, &why) == QN_OK) return QN_OK;
    if (d->lost) return qn_error_set(error, QN_DEVICE, "%s", why.text);
    d->distrusted |= QN_VULKAN_COOP;
    size_t used = strlen(verdict);
    snprintf(verdict + used, room - used, "; not using cooperative matrices: %.100s", why.text);
    return QN_OK;
}

qn_status qn_vk_self_test(qn_device *device, qn_error *error) {
    qn_allocator memory = qn_memory_default();
    bench b;
    memset(&b, 0, sizeof b);
    b.host = memory.allocate(memory.user, 2 * ARENA, QN_WORKSPACE_ALIGN);
    if (!b.host) return qn_error_set(error, QN_NO_MEMORY, "no memory for the self-test");
    b.back = b.host + ARENA;
    qn_status status = QN_OK;
    for (size_t i = 0; status == QN_OK && i < sizeof trials / sizeof *trials; i++)
        status = run_trial(device, &b, &trials[i], 24, error);
    if (status == QN_OK) status = test_families((qn_vk_device *)device, &b, error);
    memory.release(memory.user, b.host, 2 * ARENA);
    return status;
}
