/* The seed's convolutions and pools, which are the general ones under other names: a call is put in the general form, and that form's
 * kernel does the work. The form is made anew for each part, which is cheap beside a part. */
#include "cpu/kernel.h"
#include "tensor/layout.h"

typedef struct form {
    qn_call call;
    const qn_tensor *src[QN_MAX_SRC], *dst[QN_MAX_DST];
    qn_tensor wide[3]; /* x, w and y with all their axes, of which the seed may leave out those of extent 1 in front */
    union {
        qn_attr_conv conv;
        qn_attr_conv_transpose turned;
        qn_attr_pool pool;
    } at;
} form;

typedef void (*form_fn)(const qn_call *c, form *f);
typedef int (*kernel_fn)(const qn_call *c, qn_cpu_step *s);

static qn_dims pair(int32_t height, int32_t width) { return (qn_dims){.rank = 2, .d = {height, width}}; }
static qn_dims single(int32_t width) { return (qn_dims){.rank = 1, .d = {width}}; }

static void start(const qn_call *c, form *f, int op, int subop, const void *attr) {
    memset(f->src, 0, sizeof f->src);
    memset(f->dst, 0, sizeof f->dst);
    for (int i = 0; i < c->n_src; i++) f->src[i] = c->src[i];
    f->dst[0] = c->dst[0];
    f->call = (qn_call){op, subop, c->n_src, 1, f->src, f->dst, attr, c->workspace};
}

static const qn_tensor *of_rank(const qn_tensor *t, int rank, qn_tensor *wide) {
    *wide = qn_layout_with_rank(t, rank);
    return wide;
}

/* The seed names weights first, the general ops what they are slid over. */
static void start_conv(const qn_call *c, form *f, int op, const void *attr, int rank) {
    start(c, f, op, 0, attr);
    f->src[0] = of_rank(c->src[1], rank, &f->wide[0]);
    f->src[1] = of_rank(c->src[0], rank, &f->wide[1]);
    f->dst[0] = of_rank(c->dst[0], rank, &f->wide[2]);
}

/* ---- Convolutions */

static void conv_2d(const qn_call *c, form *f) {
    const qn_attr_conv_2d *at = c->attr;
    f->at.conv = (qn_attr_conv){.groups = 1, .stride = pair(at->s1, at->s0), .padding = pair(at->p1, at->p0)};
    f->at.conv.dilation = pair(at->d1, at->d0);
    start_conv(c, f, QN_OP_conv, &f->at.conv, 4);
}

static void conv_2d_dw(const qn_call *c, form *f) {
    const qn_attr_conv_2d_dw *at = c->attr;
    f->at.conv = (qn_attr_conv){.stride = pair(at->s1, at->s0), .padding = pair(at->p1, at->p0)};
    f->at.conv.dilation = pair(at->d1, at->d0);
    int64_t channels = qn_ne(c->src[0], 3);
    f->at.conv.groups = channels > INT32_MAX ? 1 : (int32_t)channels;
    start_conv(c, f, QN_OP_conv, &f->at.conv, 4);
    if (channels > INT32_MAX) f->wide[0].dtype = QN_DTYPE_NONE; /* more groups than can be said: what no kernel takes */
}

/* The first axis is two: batch or channels coming out, and channels going in. Of a dense tensor that is another way to see it. */
static const qn_tensor *split_first(const qn_tensor *t, int64_t inner, qn_tensor *wide) {
    *wide = *t;
    wide->rank = 5;
    int64_t step = qn_dtype_bytes(t->dtype);
    for (int k = 0; k < 5; k++) {
        wide->shape[4 - k] = k < 3 ? qn_ne(t, k) : k == 3 ? inner : qn_ne(t, 3) / inner;
        wide->stride[4 - k] = step;
        step *= wide->shape[4 - k];
    }
    if (!qn_cpu_is_dense(t)) wide->dtype = QN_DTYPE_NONE; /* and of another there is none: what no kernel takes */
    return wide;
}

static void conv_3d(const qn_call *c, form *f) {
    const qn_attr_conv_3d *at = c->attr;
    f->at.conv = (qn_attr_conv){.groups = 1};
    f->at.conv.stride = (qn_dims){.rank = 3, .d = {at->s2, at->s1, at->s0}};
    f->at.conv.padding = (qn_dims){.rank = 3, .d = {at->p2, at->p1, at->p0}};
    f->at.conv.dilation = (qn_dims){.rank = 3, .d = {at->d2, at->d1, at->d0}};
    start(c, f, QN_OP_conv, 0, &f->at.conv);
    f->src[0] = split_first(c->src[1], at->ic, &f->wide[0]);
    f->src[1] = split_first(c->src[0], at->ic, &f->wide[1]);
    f->dst[0] = split_first(c->dst[0], at->oc, &f->wide[2]);
}

static void conv_transpose_2d(const qn_call *c, form *f) {
    const qn_attr_conv_transpose_2d *at = c->attr;
    f->at.turned = (qn_attr_conv_transpose){.groups = 1, .stride = pair(at->s, at->s)};
    start_conv(c, f, QN_OP_conv_transpose, &f->at.turned, 4);
}

static void conv_transpose_1d(const qn_call *c, form *f) {
    const qn_attr_conv_transpose_1d *at = c->attr;
    f->at.turned = (qn_attr_conv_transpose){.groups = 1, .stride = single(at->s)};
    start_conv(c, f, QN_OP_conv_transpose, &f->at.turned, 3);
}

/* ---- Pools */

static int reduction(int32_t kind) { return kind ? QN_REDUCE_mean : QN_REDUCE_max; }

static void pool_2d(const qn_call *c, form *f) {
    const qn_attr_pool_2d *at = c->attr;
    f->at.pool = (qn_attr_pool){.kernel = pair(at->k1, at->k0), .stride = pair(at->s1, at->s0), .padding = pair(at->p1, at->p0)};
    f->at.pool.count_include_pad = 1;
    start(c, f, c->op == QN_OP_pool_2d ? QN_OP_pool : QN_OP_pool_back, reduction(at->kind), &f->at.pool);
}

static void pool_1d(const qn_call *c, form *f) {
    const qn_attr_pool_1d *at = c->attr;
    f->at.pool = (qn_attr_pool){.kernel = single(at->k), .stride = single(at->s), .padding = single(at->p)};
    start(c, f, c->op == QN_OP_pool_1d ? QN_OP_pool : QN_OP_pool_back, reduction(at->kind), &f->at.pool);
}
_Static_assert(sizeof(qn_attr_pool_2d) == sizeof(qn_attr_pool_2d_back), "a pool and its gradient have the same attributes");
_Static_assert(sizeof(qn_attr_pool_1d) == sizeof(qn_attr_pool_1d_back), "a pool and its gradient have the same attributes");

/* ---- Steps */

static uint32_t exchange(uint32_t bits) { return (bits & 1u) << 1 | (bits >> 1 & 1u); }

/* The step of the general form. */
static int inner_step(const qn_call *c, const qn_cpu_step *s, form_fn make, kernel_fn kernel, form *f, qn_cpu_step *inner) {
    *inner = (qn_cpu_step){.constant = exchange(s->constant), .level = s->level};
    make(c, f);
    return kernel(&f->call, inner);
}

static void run(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part, form_fn make, kernel_fn kernel) {
    form f;
    qn_cpu_step inner;
    if (!inner_step(c, s, make, kernel, &f, &inner)) return;
    inner.packed = s->packed;
    inner.run(&f.call, &inner, phase, part);
}

static void pack(const qn_call *c, const qn_cpu_step *s, void *packed, int64_t part, form_fn make, kernel_fn kernel) {
    form f;
    qn_cpu_step inner;
    if (inner_step(c, s, make, kernel, &f, &inner) && inner.pack) inner.pack(&f.call, &inner, packed, part);
}

static int prepare(const qn_call *c, qn_cpu_step *s, form_fn make, kernel_fn kernel, qn_cpu_run_fn run_op,
                   qn_cpu_pack_fn pack_op) {
    form f;
    qn_cpu_step inner;
    uint32_t constant = s->constant;
    if (!inner_step(c, s, make, kernel, &f, &inner)) return 0;
    if (inner.pack_more) return 0; /* none of these packs several */
    *s = inner;
    s->constant = constant;
    s->run = run_op;
    if (s->pack) {
        s->pack = pack_op;
        s->pack_slot = !inner.pack_slot;
    }
    return 1;
}

#define FORM(op, make, kernel)                                                                  \
    static void run_##op(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {     \
        run(c, s, phase, part, make, QN_K(kernel));                                             \
    }                                                                                           \
    static void pack_##op(const qn_call *c, const qn_cpu_step *s, void *packed, int64_t part) { \
        pack(c, s, packed, part, make, QN_K(kernel));                                           \
    }                                                                                           \
    int QN_K(op)(const qn_call *c, qn_cpu_step *s) { return prepare(c, s, make, QN_K(kernel), run_##op, pack_##op); }
#define KERNEL(op) int QN_K(op)(const qn_call *c, qn_cpu_step *s);
KERNEL(conv)
KERNEL(conv_transpose)
KERNEL(pool)
KERNEL(pool_back)
FORM(conv_2d, conv_2d, conv)
FORM(conv_2d_dw, conv_2d_dw, conv)
FORM(conv_3d, conv_3d, conv)
FORM(conv_transpose_2d, conv_transpose_2d, conv_transpose)
FORM(conv_transpose_1d, conv_transpose_1d, conv_transpose)
FORM(pool_2d, pool_2d, pool)
FORM(pool_1d, pool_1d, pool)
FORM(pool_2d_back, pool_2d, pool_back)
FORM(pool_1d_back, pool_1d, pool_back)
