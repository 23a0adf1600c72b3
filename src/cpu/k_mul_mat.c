/* mul_mat in f32: a few rows of activations as streams of packed weights, else the product of k_gemm.h, which for a few rows reads weights
 * that do not stay where they lie. Weights in blocks, where a call asks that activations not be rounded, are decoded on the way. */
#include "cpu/k_decoded.h"
#include "cpu/k_stream.h"

/* ---- Many rows */

/* The rows of b are the rows of the product, so that lanes lie along y. */
static int describe(const qn_call *c, qn_gemm *g) {
    const qn_tensor *a = c->src[0], *b = c->src[1], *y = c->dst[0];
    *g = (qn_gemm){.c = qn_at(y, 0), .c_dtype = y->dtype, .m = qn_ne(b, 1), .n = qn_ne(a, 1), .k = qn_ne(a, 0)};
    g->a = (qn_gemm_side){.data = qn_at(b, 0), .along = qn_nb(b, 1), .deep = qn_nb(b, 0), .dtype = b->dtype};
    g->b = (qn_gemm_side){.data = qn_at(a, 0), .along = qn_nb(a, 1), .deep = qn_nb(a, 0), .dtype = a->dtype};
    if (qn_is_block(a->dtype)) {
        const qn_dtype_info *d = qn_dtype_describe((qn_dtype)a->dtype);
        if (QN_DECODED_RUN % d->block || qn_nb(a, 0) != d->bytes) return 0;
        g->b.fetch = qn_decoded_blocks;
    }
    g->c_row = qn_nb(y, 1);
    g->c_column = qn_nb(y, 0);
    return qn_gemm_groups(g, a, b, y) && qn_gemm_settle(g);
}

static void run_many(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    qn_gemm g;
    (void)s;
    if (!describe(c, &g)) return;
    qn_gemm_cut cut = qn_gemm_plan(&g);
    qn_gemm_part(&g, &cut, c->workspace, phase, part);
}

/* ---- A few. A run is a matrix and the rows of activations, one after the other, that share it. */

typedef struct runs {
    int64_t m, k, panels, panel_bytes;
    int64_t share2, share3, rows, count; /* batches of b to one of a, by axis; rows of a run; runs */
    int64_t across, units;               /* groups of panels: of a matrix, of all runs */
} runs;

enum { GROUP = 4 }; /* panels of a unit */

static const qn_stream_way *way_of(const qn_cpu_step *s) { return ((qn_stream_way_fn)s->inner)(); }

static runs describe_few(const qn_call *c, const qn_cpu_step *s) {
    const qn_tensor *a = c->src[0], *b = c->src[1];
    runs r = {.m = qn_ne(a, 1), .k = qn_ne(a, 0), .panels = qn_stream_panels(qn_ne(a, 1))};
    r.panel_bytes = way_of(s)->panel_bytes(a->dtype, r.k);
    r.share2 = qn_ne(b, 2) / qn_ne(a, 2);
    r.share3 = qn_ne(b, 3) / qn_ne(a, 3);
    r.rows = r.share2 * qn_ne(b, 1);
    r.count = qn_ne(a, 2) * qn_ne(b, 3);
    r.across = (r.panels + GROUP - 1) / GROUP;
    r.units = r.across * r.count;
    return r;
}

/* Row `row` of b, counted over all batches, as floats side by side. */
static void make_row(const qn_tensor *b, int64_t row, int64_t k, float *to) {
    int64_t j = row % qn_ne(b, 1), i2 = row / qn_ne(b, 1) % qn_ne(b, 2), i3 = row / qn_ne(b, 1) / qn_ne(b, 2), step = qn_nb(b, 0);
    const char *from = qn_at(b, qn_off4(b, i3, i2, j, 0));
    if (b->dtype == QN_DTYPE_F32 && step == 4) memcpy(to, from, (size_t)k * 4);
    else
        for (int64_t p = 0; p < k; p++, from += step)
            to[p] = b->dtype == QN_DTYPE_F32   ? *(const float *)from
                    : b->dtype == QN_DTYPE_F16 ? qn_f16_to_f32(*(const uint16_t *)from)
                                               : qn_bf16_to_f32(*(const uint16_t *)from);
}

static void run_unit(const qn_call *c, const qn_cpu_step *s, const runs *r, int64_t number) {
    const qn_tensor *a = c->src[0], *b = c->src[1], *y = c->dst[0];
    int64_t run = number / r->across, first = number % r->across * GROUP, i3 = run / qn_ne(a, 2), a2 = run % qn_ne(a, 2);
    int64_t matrix = i3 / r->share3 * qn_ne(a, 2) + a2;
    qn_stream t = {.dtype = a->dtype, .k = r->k, .n = (int)r->rows, .contest = s->contest};
    t.panel = (const char *)s->packed + (matrix * r->panels + first) * r->panel_bytes;
    t.panels = r->panels - first < GROUP ? r->panels - first : GROUP;
    t.columns = r->m - first * QN_GEMM_WIDE < t.panels * QN_GEMM_WIDE ? r->m - first * QN_GEMM_WIDE : t.panels * QN_GEMM_WIDE;
    for (int j = 0; j < t.n; j++) {
        int64_t i2 = a2 * r->share2 + j / qn_ne(b, 1), i1 = j % qn_ne(b, 1);
        t.x[j] = (const float *)c->workspace + ((i3 * qn_ne(b, 2) + i2) * qn_ne(b, 1) + i1) * r->k;
        t.y[j] = (float *)qn_at(y, qn_off4(y, i3, i2, i1, 0)) + first * QN_GEMM_WIDE;
    }
    way_of(s)->run(&t);
}

static void run_few(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    runs r = describe_few(c, s);
    int64_t all = phase == 0 ? r.rows * r.count : r.units, end = qn_cpu_cut(all, s->parts[phase], part + 1);
    if (!s->packed) { /* weights that turned out not to stay */
        qn_gemm g;
        if (!describe(c, &g)) return;
        qn_gemm_cut cut = qn_gemm_plan(&g);
        for (int64_t i = part; i < cut.parts[phase]; i += s->parts[phase]) qn_gemm_part(&g, &cut, c->workspace, phase, i);
        return;
    }
    for (int64_t i = qn_cpu_cut(all, s->parts[phase], part); i < end; i++) {
        if (phase == 0) make_row(c->src[1], i, r.k, (float *)c->workspace + i * r.k);
        else run_unit(c, s, &r, i);
    }
}

static void pack_few(const qn_call *c, const qn_cpu_step *s, void *packed, int64_t part) {
    const qn_tensor *a = c->src[0];
    runs r = describe_few(c, s);
    int64_t all = r.panels * qn_ne(a, 2) * qn_ne(a, 3), end = qn_cpu_cut(all, s->pack_parts, part + 1);
    for (int64_t i = qn_cpu_cut(all, s->pack_parts, part); i < end; i++) {
        int64_t panel = i % r.panels, a2 = i / r.panels % qn_ne(a, 2), a3 = i / r.panels / qn_ne(a, 2);
        int64_t left = r.m - panel * QN_GEMM_WIDE;
        way_of(s)->pack(qn_at(a, qn_off4(a, a3, a2, panel * QN_GEMM_WIDE, 0)), a->dtype, qn_nb(a, 1), qn_nb(a, 0),
                        left < QN_GEMM_WIDE ? (int)left : QN_GEMM_WIDE, r.k, (char *)packed + i * r.panel_bytes);
    }
}

/* The workspace also serves the blocked product, for a call whose weights are not packed after all. */
static void prepare_few(const qn_call *c, qn_cpu_step *s) {
    const qn_tensor *a = c->src[0];
    s->inner = (qn_cpu_inner_fn)qn_stream_here;
    runs r = describe_few(c, s);
    size_t rows = (size_t)(r.rows * r.count * r.k) * sizeof(float);
    int64_t panels = r.panels * qn_ne(a, 2) * qn_ne(a, 3);
    s->run = run_few;
    s->name = "streams of floats";
    s->parts[0] = qn_cpu_parts(r.rows * r.count, (double)r.k * 8, 0);
    s->parts[1] = qn_cpu_parts(r.units, (double)(r.panel_bytes * GROUP), (double)(GROUP * QN_GEMM_WIDE * r.k * r.rows * 2));
    if (s->workspace < rows) s->workspace = rows;
    s->pack = pack_few;
    s->pack_slot = 0;
    s->pack_parts = panels < 64 ? panels : 64;
    s->packed_bytes = (size_t)(panels * r.panel_bytes);
    s->pack_late = 1;
}

int QN_K(mul_mat_floats)(const qn_call *c, qn_cpu_step *s);
int QN_K(mul_mat_floats)(const qn_call *c, qn_cpu_step *s) {
    const qn_tensor *a = c->src[0], *b = c->src[1], *y = c->dst[0];
    qn_gemm g;
    if (!describe(c, &g)) return 0;
    qn_gemm_cut cut = qn_gemm_plan(&g);
    qn_gemm_step(s, &cut, run_many);
    int plain = !qn_is_block(a->dtype) && y->dtype == QN_DTYPE_F32 && qn_nb(y, 0) == 4 && qn_ne(a, 1) >= QN_GEMM_WIDE;
    if (plain && (s->constant & 1u) && qn_ne(b, 2) / qn_ne(a, 2) * qn_ne(b, 1) <= QN_STREAM_ROWS) prepare_few(c, s);
    return 1;
}
