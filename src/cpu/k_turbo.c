/* tq_encode and tq_decode: as many rows at a time as a vector has doubles, one in each lane, with the arithmetic of the
 * reference in its order: codes are numbers of levels, and a rounding more would choose other ones. */
#include <math.h>

#include "cpu/kernel.h"
#include "cpu/simd/simd_wide.h"
#include "op/turbo.h"

enum { LANES = VF_N / 2 };

static void transform(double *x, int64_t n) {
    for (int64_t h = 1; h < n; h *= 2)
        for (int64_t first = 0; first < n; first += 2 * h)
            for (int64_t j = first; j < first + h; j++) {
                vd a = vd_load(x + j * LANES), b = vd_load(x + (j + h) * LANES);
                vd_store(x + j * LANES, a + b);
                vd_store(x + (j + h) * LANES, a - b);
            }
    double scale = 1 / sqrt((double)n);
    for (int64_t j = 0; j < n; j++) vd_store(x + j * LANES, vd_load(x + j * LANES) * scale);
}

static void put_signs(double *x, int64_t n) {
    for (int64_t j = 0; j < n; j++) vd_store(x + j * LANES, vd_load(x + j * LANES) * qn_op_turbo_sign(j));
}

/* ---- Encoding */

/* How many limits lie below each lane of v: the first four bits by counting, the others by halving. */
static void codes_of(const double *limits, int bits, vd v, int *code) {
    int64_t t[LANES];
    double x[LANES];
    int fine = bits > 4 ? bits - 4 : 0;
    vl below = {0};
    for (int i = 1; i < 1 << (bits - fine); i++) below -= vd_set1(limits[(i << fine) - 1]) < v;
    memcpy(t, &below, sizeof t);
    vd_store(x, v);
    for (int k = 0; k < LANES; k++) code[k] = (int)t[k] << fine;
    for (int step = fine ? 1 << (fine - 1) : 0; step; step /= 2)
        for (int k = 0; k < LANES; k++) code[k] += limits[code[k] + step - 1] < x[k] ? step : 0;
}

/* The scales of a block, rounded as they are kept. */
static vd scales_of(const double *x, int64_t n, char *const *to, int some) {
    double t[LANES] = {0};
    vd squares = vd_zero();
    for (int64_t j = 0; j < n; j++) {
        vd v = vd_load(x + j * LANES);
        squares += v * v;
    }
    for (int k = 0; k < some; k++) {
        float scale = (float)sqrt(squares[k] / (double)n);
        memcpy(to[k], &scale, sizeof scale);
        t[k] = (double)scale;
    }
    return vd_load(t);
}

typedef struct lines {
    int some;
    char *x[LANES], *codes[LANES], *scale[LANES];
} lines;

static void encode(const qn_call *c, lines *l, const double *limits, double *x) {
    const qn_attr_tq_encode *at = c->attr;
    const qn_tensor *from = c->src[0], *codes = c->dst[0], *scale = c->dst[1];
    int64_t n = qn_ne(from, 0), block = n < QN_TURBO_BLOCK ? n : QN_TURBO_BLOCK, step = qn_nb(codes, 0);
    double row[QN_TURBO_WIDTH];
    for (int k = 0; k < LANES; k++) {
        if (k < l->some) qn_load_row(from, l->x[k], 0, n, row);
        for (int64_t j = 0; j < n; j++) x[j * LANES + k] = k < l->some ? row[j] : 0;
    }
    if (at->rotate) {
        put_signs(x, n);
        transform(x, n);
    }
    for (int64_t first = 0; first < n; first += block) {
        vd rms = scales_of(x + first * LANES, block, l->scale, l->some), least = vd_set1(1e-10);
        for (int k = 0; k < l->some; k++) l->scale[k] += qn_nb(scale, 0);
        for (int64_t j = first; j < first + block; j++) {
            int code[LANES];
            codes_of(limits, at->bits, vd_select(rms > least, vd_load(x + j * LANES) / rms, vd_zero()), code);
            for (int k = 0; k < l->some; k++) {
                uint8_t *to = (uint8_t *)l->codes[k] + qn_op_turbo_bytes(at->bits, j) * step;
                *to = (uint8_t)(at->bits > 4 || j % 2 == 0 ? code[k] : *to | code[k] << 4);
            }
        }
    }
}

static void run_encode(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    const qn_tensor *x = c->src[0];
    int bits = ((const qn_attr_tq_encode *)c->attr)->bits;
    int64_t rows = qn_tensor_count(x) / qn_ne(x, 0), groups = (rows + LANES - 1) / LANES;
    int64_t end = qn_cpu_cut(groups, s->parts[0], part + 1) * LANES;
    double limits[256], lanes[QN_TURBO_WIDTH * LANES];
    lines l = {0};
    qn_rows it;
    (void)phase;
    for (int i = 0; i + 1 < 1 << bits; i++) limits[i] = (qn_op_turbo_level(bits, i) + qn_op_turbo_level(bits, i + 1)) / 2;
    for (qn_rows_begin_at(&it, x->rank, x->shape, qn_cpu_cut(groups, s->parts[0], part) * LANES); it.live && it.row < end;) {
        l.x[l.some] = qn_row(&it, x);
        l.codes[l.some] = qn_row(&it, c->dst[0]);
        l.scale[l.some++] = qn_row(&it, c->dst[1]);
        qn_rows_next(&it);
        if (l.some < LANES && it.live && it.row < end) continue;
        encode(c, &l, limits, lanes);
        l.some = 0;
    }
}

int QN_K(tq_encode)(const qn_call *c, qn_cpu_step *s) {
    const qn_tensor *x = c->src[0];
    int64_t n = qn_ne(x, 0), count = qn_tensor_count(x);
    if (count == 0 || x->dtype == QN_DTYPE_F64 || c->dst[1]->dtype != QN_DTYPE_F32) return 0;
    return qn_cpu_by_rows(s, "tq_encode lanes", run_encode, (count / n + LANES - 1) / LANES, 0, 60.0 * LANES * (double)n);
}

/* ---- Decoding */

typedef struct levels {
    int bits;
    double of[256];
} levels;

static void load_codes(const qn_call *c, const levels *v, const char *codes, const char *scale, int64_t n, double *to,
                       int64_t apart) {
    int64_t step = qn_nb(c->src[0], 0), scale_step = qn_nb(c->src[1], 0);
    int mask = (1 << v->bits) - 1;
    for (int64_t first = 0; first < n; first += QN_TURBO_BLOCK, scale += scale_step) {
        int64_t end = n < first + QN_TURBO_BLOCK ? n : first + QN_TURBO_BLOCK;
        float factor;
        memcpy(&factor, scale, sizeof factor);
        if (v->bits > 4)
            for (int64_t j = first; j < end; j++)
                to[j * apart] = v->of[*((const uint8_t *)codes + j * step) & mask] * (double)factor;
        else
            for (int64_t j = first; j < end; j += 2) {
                uint8_t two = *((const uint8_t *)codes + j / 2 * step);
                to[j * apart] = v->of[two & mask] * (double)factor;
                to[(j + 1) * apart] = v->of[two >> 4 & mask] * (double)factor;
            }
    }
}

static void decode(const qn_call *c, const lines *l, const levels *v, double *x) {
    int64_t n = qn_ne(c->dst[0], 0), step = qn_nb(c->dst[0], 0);
    int undo = ((const qn_attr_tq_decode *)c->attr)->undo;
    for (int k = 0; k < LANES; k++) {
        if (k < l->some) load_codes(c, v, l->codes[k], l->scale[k], n, x + k, LANES);
        else
            for (int64_t j = 0; j < n; j++) x[j * LANES + k] = 0;
    }
    if (undo) {
        transform(x, n);
        put_signs(x, n);
    }
    for (int k = 0; k < l->some; k++)
        for (int64_t j = 0; j < n; j++) *(float *)(void *)(l->x[k] + j * step) = (float)x[j * LANES + k];
}

static void run_decode(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    const qn_tensor *y = c->dst[0];
    int64_t rows = qn_tensor_count(y) / qn_ne(y, 0), groups = (rows + LANES - 1) / LANES;
    int64_t end = qn_cpu_cut(groups, s->parts[0], part + 1) * LANES;
    double lanes[QN_TURBO_WIDTH * LANES];
    levels v = {.bits = ((const qn_attr_tq_decode *)c->attr)->bits};
    lines l = {0};
    qn_rows it;
    (void)phase;
    for (int i = 0; i < 1 << v.bits; i++) v.of[i] = qn_op_turbo_level(v.bits, i);
    for (qn_rows_begin_at(&it, y->rank, y->shape, qn_cpu_cut(groups, s->parts[0], part) * LANES); it.live && it.row < end;) {
        l.x[l.some] = qn_row(&it, y);
        l.codes[l.some] = qn_row(&it, c->src[0]);
        l.scale[l.some++] = qn_row(&it, c->src[1]);
        qn_rows_next(&it);
        if (l.some < LANES && it.live && it.row < end) continue;
        decode(c, &l, &v, lanes);
        l.some = 0;
    }
}

int QN_K(tq_decode)(const qn_call *c, qn_cpu_step *s) {
    const qn_tensor *y = c->dst[0];
    int64_t n = qn_ne(y, 0), count = qn_tensor_count(y);
    if (count == 0 || n < 2 || y->dtype != QN_DTYPE_F32 || c->src[1]->dtype != QN_DTYPE_F32) return 0;
    return qn_cpu_by_rows(s, "tq_decode lanes", run_decode, (count / n + LANES - 1) / LANES, 0, 20.0 * LANES * (double)n);
}
