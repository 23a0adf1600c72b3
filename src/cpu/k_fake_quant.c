/* fake_quant, its gradient, and qdq. Which bin a weight falls into is found in double, as in the reference: on the border
 * between two bins a division in f32 would choose another. */
#include <math.h>

#include "cpu/k_codec.h"
#include "cpu/k_lanes.h"
#include "cpu/simd/simd_wide.h"

enum { CHUNK = 256 };

typedef struct rounded {
    vd z, q;
    vl inside;
} rounded;

/* Half is rounded up, which is away from zero here. */
QN_INLINE rounded round_to_bins(vd w, vd scale, vd bias, double top) {
    const double large = 6755399441055744.0; /* has no fraction, so what is added to it has none either */
    rounded r = {.z = (w - bias) / scale};
    vd up = vd_set1(top), near = (r.z + large) - large;
    near = vd_select(r.z - near == vd_set1(0.5), near + vd_set1(1), near);
    r.inside = (r.z >= vd_zero()) & (r.z <= up);
    r.q = vd_select(r.z <= vd_zero(), vd_zero(), vd_select(r.z >= up, up, near));
    return r;
}

/* Elements of a row from `first` on that are worked on together: whole groups, or a piece of a large one. */
static int64_t chunk_of(int64_t n, int64_t first, int64_t group) {
    int64_t most = group >= CHUNK ? group - first % group : CHUNK / group * group;
    if (most > CHUNK) most = CHUNK;
    return n - first < most ? n - first : most;
}

/* Numbers of groups, one for each of their elements. */
static void spread(const qn_tensor *t, const char *row, int64_t first, int64_t n, int64_t group, float *to) {
    double v;
    for (int64_t i = 0; i < n;) {
        int64_t g = (first + i) / group, end = (g + 1) * group - first;
        qn_load_row(t, row, g, 1, &v);
        for (; i < n && i < end; i++) to[i] = (float)v;
    }
}

static void quantise(uint32_t dtype, char *y, const char *w, int64_t n, const float *scale, const float *bias, double top) {
    for (int64_t i = 0; i < n; i += VF_N) {
        vf x = qn_lanes_at(dtype, w, i, n), s = qn_lanes_at(QN_DTYPE_F32, (const char *)scale, i, n),
           b = qn_lanes_at(QN_DTYPE_F32, (const char *)bias, i, n);
        rounded low = round_to_bins(vd_low(x), vd_low(s), vd_low(b), top);
        rounded high = round_to_bins(vd_high(x), vd_high(s), vd_high(b), top);
        vf to = vf_of_wide(low.q * vd_low(s) + vd_low(b), high.q * vd_high(s) + vd_high(b));
        qn_lanes_put_at(dtype, y, i, to, n);
    }
}

static void run_quant(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    const qn_attr_fake_quant *at = c->attr;
    const qn_tensor *w = c->src[0], *y = c->dst[0];
    int64_t n = qn_ne(w, 0), rows = qn_tensor_count(w) / n, end = qn_cpu_cut(rows, s->parts[0], part + 1);
    float scale[CHUNK], bias[CHUNK];
    qn_rows it;
    (void)phase;
    for (qn_rows_begin_at(&it, w->rank, w->shape, qn_cpu_cut(rows, s->parts[0], part)); it.live && it.row < end;
         qn_rows_next(&it))
        for (int64_t first = 0, some; first < n; first += some) {
            some = chunk_of(n, first, at->group);
            spread(c->src[1], qn_row(&it, c->src[1]), first, some, at->group, scale);
            spread(c->src[2], qn_row(&it, c->src[2]), first, some, at->group, bias);
            quantise(w->dtype, qn_row(&it, y) + first * qn_float_bytes(y->dtype),
                     qn_row(&it, w) + first * qn_float_bytes(w->dtype), some, scale, bias, (double)at->bins - 1);
        }
}

int QN_K(fake_quant)(const qn_call *c, qn_cpu_step *s) {
    const qn_tensor *w = c->src[0];
    int64_t n = qn_ne(w, 0), count = qn_tensor_count(w);
    if (count == 0 || !qn_lanes_rows(w) || !qn_lanes_rows(c->dst[0])) return 0;
    return qn_cpu_by_rows(s, "fake_quant rows", run_quant, count / n, 8.0 * (double)n, 20.0 * (double)n);
}

/* ---- Gradient */

/* dw, and what each element adds to the gradients of its scale and bias. */
static void quantise_back(uint32_t dtype, char *dw, const char *g, const char *w, int64_t n, const float *scale,
                          const float *bias, double top, double *ds, double *db) {
    for (int64_t i = 0; i < n; i += VF_N) {
        vf x = qn_lanes_at(dtype, w, i, n), up = qn_lanes_at(dtype, g, i, n),
           s = qn_lanes_at(QN_DTYPE_F32, (const char *)scale, i, n), b = qn_lanes_at(QN_DTYPE_F32, (const char *)bias, i, n);
        vd part[2] = {vd_low(up), vd_high(up)}, kept[2];
        for (int h = 0; h < 2; h++) {
            rounded r = h ? round_to_bins(vd_high(x), vd_high(s), vd_high(b), top)
                          : round_to_bins(vd_low(x), vd_low(s), vd_low(b), top);
            vd_store(ds + i + h * (VF_N / 2), part[h] * vd_select(r.inside, r.q - r.z, r.q));
            vd_store(db + i + h * (VF_N / 2), vd_select(r.inside, vd_zero(), part[h]));
            kept[h] = vd_select(r.inside, part[h], vd_zero());
        }
        qn_lanes_put_at(dtype, dw, i, vf_of_wide(kept[0], kept[1]), n);
    }
}

static double add_up(const double *x, int64_t n) {
    vd sum = vd_zero();
    double rest = 0;
    int64_t i = 0;
    for (; i + VF_N / 2 <= n; i += VF_N / 2) sum += vd_load(x + i);
    for (; i < n; i++) rest += x[i];
    return rest + vd_sum(sum);
}

static void run_quant_back(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    const qn_attr_fake_quant_back *at = c->attr;
    const qn_tensor *g = c->src[0], *w = c->src[1], *dw = c->dst[0];
    int64_t n = qn_ne(w, 0), rows = qn_tensor_count(w) / n, end = qn_cpu_cut(rows, s->parts[0], part + 1);
    float scale[CHUNK], bias[CHUNK];
    double ds[CHUNK + VF_N], db[CHUNK + VF_N];
    qn_rows it;
    (void)phase;
    for (qn_rows_begin_at(&it, w->rank, w->shape, qn_cpu_cut(rows, s->parts[0], part)); it.live && it.row < end;
         qn_rows_next(&it)) {
        double scale_sum = 0, bias_sum = 0;
        for (int64_t first = 0, some; first < n; first += some) {
            int64_t size = qn_float_bytes(w->dtype) * first;
            some = chunk_of(n, first, at->group);
            spread(c->src[2], qn_row(&it, c->src[2]), first, some, at->group, scale);
            spread(c->src[3], qn_row(&it, c->src[3]), first, some, at->group, bias);
            quantise_back(w->dtype, qn_row(&it, dw) + size, qn_row(&it, g) + size, qn_row(&it, w) + size, some, scale, bias,
                          (double)at->bins - 1, ds, db);
            for (int64_t i = 0, run; i < some; i += run) {
                run = at->group < some ? at->group : some;
                scale_sum += add_up(ds + i, run);
                bias_sum += add_up(db + i, run);
                if ((first + i + run) % at->group) continue;
                qn_store_row(c->dst[1], qn_row(&it, c->dst[1]), (first + i) / at->group, 1, &scale_sum);
                qn_store_row(c->dst[2], qn_row(&it, c->dst[2]), (first + i) / at->group, 1, &bias_sum);
                scale_sum = bias_sum = 0;
            }
        }
    }
}

int QN_K(fake_quant_back)(const qn_call *c, qn_cpu_step *s) {
    const qn_tensor *w = c->src[1];
    int64_t n = qn_ne(w, 0), count = qn_tensor_count(w);
    if (count == 0 || !qn_lanes_rows(w) || !qn_lanes_rows(c->src[0]) || !qn_lanes_rows(c->dst[0])) return 0;
    return qn_cpu_by_rows(s, "fake_quant_back rows", run_quant_back, count / n, 12.0 * (double)n, 30.0 * (double)n);
}

/* ---- qdq: through the codec and back, some blocks at a time */

enum { RUN = 1024 };

static void run_qdq(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    const qn_tensor *w = c->src[0], *y = c->dst[0];
    uint32_t dtype = (uint32_t)((const qn_attr_qdq *)c->attr)->dtype;
    int64_t n = qn_ne(w, 0), rows = qn_tensor_count(w) / n, end = qn_cpu_cut(rows, s->parts[0], part + 1);
    uint8_t code[RUN * 2];
    float x[RUN];
    qn_rows it;
    (void)phase;
    for (qn_rows_begin_at(&it, w->rank, w->shape, qn_cpu_cut(rows, s->parts[0], part)); it.live && it.row < end;
         qn_rows_next(&it))
        for (int64_t first = 0; first < n; first += RUN) {
            int64_t some = n - first < RUN ? n - first : RUN;
            const char *from = qn_row(&it, w) + first * qn_float_bytes(w->dtype);
            char *to = qn_row(&it, y) + first * qn_float_bytes(y->dtype);
            for (int64_t i = 0; i < some; i += VF_N)
                qn_lanes_put_at(QN_DTYPE_F32, (char *)x, i, qn_lanes_at(w->dtype, from, i, some), some);
            qn_codec_encode(dtype, x, some, code);
            qn_codec_decode(dtype, code, some, x);
            for (int64_t i = 0; i < some; i += VF_N)
                qn_lanes_put_at(y->dtype, to, i, qn_lanes_at(QN_DTYPE_F32, (const char *)x, i, some), some);
        }
}

int QN_K(qdq)(const qn_call *c, qn_cpu_step *s) {
    const qn_tensor *w = c->src[0];
    const qn_dtype_info *info = qn_dtype_describe((qn_dtype)((const qn_attr_qdq *)c->attr)->dtype);
    int64_t n = qn_ne(w, 0), count = qn_tensor_count(w);
    if (count == 0 || !qn_lanes_rows(w) || !qn_lanes_rows(c->dst[0])) return 0;
    if (RUN % info->block || (int64_t)info->bytes > 2 * (int64_t)info->block) return 0;
    return qn_cpu_by_rows(s, "qdq rows", run_qdq, count / n, 8.0 * (double)n, 40.0 * (double)n);
}
