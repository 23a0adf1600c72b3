/* The same request laid out differently must give the same bits: strided, reversed and transposed sources and destinations, and
 * the destination in the place of a source. And the same numbers in fewer bits must give the same result within rounding. */
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "op/op.h"

enum { ROOM = 1 << 22 };

static unsigned char other[ROOM];

static int layout_reason(int reason) { return reason == QN_REASON_NOT_CONTIGUOUS || reason == QN_REASON_TRANSPOSED; }

/* 1: it ran and was compared, or failed and was reported; 0: the op asks for contiguous operands there. */
static int compare(const qc_built *base, const qc_options *options, const char *what, const unsigned char *bytes, size_t n) {
    qc_built b;
    qc_outcome o;
    qc_build(&b, base->c, &base->draw, options);
    if (b.trouble) {
        qc_fail(&b, "%s: cannot build: %s", what, b.trouble);
        return 1;
    }
    if (b.inferred != QN_OK && (layout_reason(b.result.reason) || qn_op_describe(base->c->op)->is_view)) return 0;
    qc_run(&b, &o);
    if (o.status != QN_OK && layout_reason(o.result.reason)) return 0;
    if (o.status != QN_OK || o.touched || o.allocations) {
        char text[300];
        qn_result_format(&o.result, text, sizeof text);
        qc_fail(&b, "%s: %s", what, o.status != QN_OK ? text : o.touched ? "a byte outside the outputs changed" : "it allocated");
        return 1;
    }
    if (qc_outputs(&b, other, ROOM) != n || memcmp(other, bytes, n) != 0) qc_fail(&b, "%s: other bits than dense", what);
    else qc_pass();
    return 1;
}

static int has_strides(const qn_op_info *info) {
    for (int i = 0; i < info->n_attr; i++)
        if (strcmp(info->attr[i].name, "strides") == 0) return 1;
    return 0;
}

void qc_test_layouts(const qc_built *base, const unsigned char *bytes, size_t n) {
    static const struct {
        char src, dst;
        int ones;
        const char *what;
    } ways[] = {{'s', 0, 0, "strided sources"},
                {'n', 's', 0, "reversed sources, strided destination"},
                {'x', 'x', 0, "axes laid out backwards"},
                {'t', 0, 0, "transposed sources"},
                {0, 'n', 1, "reversed destination, with another axis of one in front"},
                {0, 0, -QN_MAX_RANK, "destination without axes of one in front"}};
    const qn_op_info *info = qn_op_describe(base->c->op);
    if (info->is_view && has_strides(info)) return; /* byte strides of the attribute mean something else there */
    for (size_t w = 0; w < sizeof ways / sizeof ways[0]; w++) {
        if (qc_set.quick && w == 3) continue;
        qc_options options = {.poison = 0x33, .dst_layout = ways[w].dst, .ones = ways[w].ones};
        memset(options.src_layout, ways[w].src, sizeof options.src_layout);
        if (compare(base, &options, ways[w].what, bytes, n)) continue;
        for (int s = 0; s < base->c->n_src && ways[w].src; s++) { /* some source must be contiguous: then the others one by one */
            memset(options.src_layout, 0, sizeof options.src_layout);
            options.src_layout[s] = ways[w].src;
            compare(base, &options, ways[w].what, bytes, n);
        }
    }
}

void qc_test_in_place(const qc_built *base, const unsigned char *bytes, size_t n) {
    const qn_op_info *info = qn_op_describe(base->c->op);
    qn_tensor y = base->dst[0];
    qn_tensor src[QN_MAX_SRC];
    memcpy(src, base->src, sizeof src);
    for (int s = 0; s < base->c->n_src && s < info->n_src; s++) {
        if (!(info->src[s].flags & QN_SLOT_IN_PLACE) || base->c->src[s].absent || base->c->src[s].layout == 'b') continue;
        if (src[s].dtype != y.dtype || src[s].rank != y.rank || memcmp(src[s].shape, y.shape, sizeof y.shape) != 0) continue;
        qc_options options = {.poison = 0x33, .in_place = s + 1};
        compare(base, &options, "in place", bytes, n);
        memset(options.src_layout, 's', sizeof options.src_layout);
        compare(base, &options, "in place, strided", bytes, n);
    }
}

/* Without its optional outputs an op writes the others as before. */
void qc_test_fewer_outputs(const qc_built *base, const unsigned char *bytes) {
    const qn_op_info *info = qn_op_describe(base->c->op);
    if (base->request.n_dst <= info->n_dst_min) return;
    qc_options options = {.poison = 0x33, .least_dst = 1};
    qc_built b;
    qc_build(&b, base->c, &base->draw, &options);
    size_t n = 0;
    for (int i = 0; i < b.request.n_dst; i++)
        if (b.request.dst[i]) n += qc_gather(b.request.dst[i], other, ROOM);
    compare(base, &options, "without optional outputs", bytes, n);
}

/* Inference needs no data and looks at no destination; asking for the workspace likewise. */
void qc_test_inference(const qc_built *base) {
    qc_built b = *base;
    qn_tensor out[QN_MAX_DST];
    int n_out = 0;
    size_t bytes = 0;
    qn_result r;
    for (int i = 0; i < QN_MAX_SRC; i++) b.src[i].data = NULL, b.src[i].size = 0;
    memset(b.given_dst, 0, sizeof b.given_dst);
    qc_bind(&b);
    b.request.n_dst = 0;
    qn_status status = qn_infer(&b.request, out, &n_out, &r);
    int same = status == QN_OK && n_out >= base->request.n_dst;
    for (int i = 0; same && i < base->request.n_dst; i++)
        if (base->given_dst[i])
            same = out[i].dtype == base->dst[i].dtype && out[i].rank == base->dst[i].rank &&
                   memcmp(out[i].shape, base->dst[i].shape, sizeof out[i].shape) == 0;
    if (!same) qc_fail(base, "without data or destinations the op infers something else");
    else if (qn_workspace_bytes(&b.request, &bytes, &r) != QN_OK || bytes != base->request.workspace_size)
        qc_fail(base, "without data or destinations it needs another workspace");
    else qc_pass();
}

/* ---- Fewer bits */

static double bound_of(uint32_t dtype) { return dtype == QN_DTYPE_F32 ? 1e-10 : dtype == QN_DTYPE_F16 ? 1e-6 : 1e-4; }

/* Below this a format has no relative precision left. */
static double floor_of(uint32_t dtype) { return dtype == QN_DTYPE_F16 ? 6e-8 : 1e-37; }

/* Values of all float outputs, with the dtypes they had. */
static double *outputs(const qc_built *b, int64_t *count, uint32_t *dtype) {
    int64_t n = 0;
    for (int i = 0; i < b->request.n_dst; i++)
        if (b->request.dst[i]) n += qn_tensor_count(b->request.dst[i]);
    double *y = malloc((size_t)(n + 1) * sizeof *y);
    for (int i = 0, at = 0; y && i < b->request.n_dst; i++) {
        const qn_tensor *t = b->request.dst[i];
        dtype[i] = t ? t->dtype : QN_DTYPE_NONE;
        count[i] = t ? qn_tensor_count(t) : 0;
        if (t) qc_doubles(t, y + at);
        at += (int)count[i];
    }
    return y;
}

static void compare_numbers(const qc_built *b, const double *got, const double *want, int64_t n, uint32_t dtype) {
    double error = 0, size = 0, worst = 0;
    for (int64_t i = 0; i < n; i++) {
        if (isnan(want[i]) && isnan(got[i])) continue;
        if (isinf(want[i]) && got[i] == want[i]) continue;
        double e = got[i] - want[i];
        error += e * e;
        size += want[i] * want[i];
        if (!(fabs(e) <= worst)) worst = fabs(e);
    }
    if (error <= bound_of(dtype) * size || worst <= floor_of(dtype)) qc_pass();
    else
        qc_fail(b, "%s differs from f64 by NMSE %.3g (worst %.3g)", qn_dtype_describe((qn_dtype)dtype)->name,
                size > 0 ? error / size : error, worst);
}

/* The axis of the case that is a float dtype and can be f64; its option number is in *wide. */
static int float_axis(const qc_case *c, const qc_draw *d, int *wide) {
    for (int i = 0; i < c->n_axis; i++) {
        if (!c->axis[i].variable) continue;
        uint32_t now = c->axis[i].option[d->choice[i]];
        for (int k = 0; k < c->axis[i].n; k++)
            if (c->axis[i].option[k] == QN_DTYPE_F64 && qn_is_float(now) && now != QN_DTYPE_F64) return *wide = k, i;
    }
    return -1;
}

void qc_test_accuracy(const qc_built *base) {
    const qc_case *c = base->c;
    qc_draw d = base->draw;
    int wide, axis = float_axis(c, &d, &wide);
    if (axis < 0 || qn_op_describe(c->op)->is_view) return;
    qc_options options = {.poison = 0x33};
    qc_built b;
    qc_outcome o;
    int64_t count[QN_MAX_DST], count64[QN_MAX_DST];
    uint32_t dtype[QN_MAX_DST], dtype64[QN_MAX_DST];
    qc_build(&b, c, &d, &options);
    qc_run(&b, &o);
    double *narrow = o.status == QN_OK ? outputs(&b, count, dtype) : NULL;
    for (int s = 0; s < c->n_src; s++)
        if (!c->src[s].absent && c->src[s].dtype.n == 1 && c->src[s].dtype.at[0] == c->axis[axis].variable)
            options.round[s] = c->axis[axis].option[d.choice[axis]];
    d.choice[axis] = wide;
    qc_build(&b, c, &d, &options);
    if (narrow && !b.trouble && b.inferred == QN_OK) {
        qc_run(&b, &o);
        double *full = o.status == QN_OK ? outputs(&b, count64, dtype64) : NULL;
        for (int i = 0, at = 0; full && i < b.request.n_dst; at += (int)count[i++])
            if (qn_is_float(dtype[i]) && dtype64[i] == QN_DTYPE_F64 && dtype[i] != QN_DTYPE_F64 && count[i] == count64[i])
                compare_numbers(base, narrow + at, full + at, count[i], dtype[i]);
        free(full);
    }
    free(narrow);
}
