/* Weights in affine codes, a number of bits each in one stream per row, a scale and a bias for each group: affine_dequantize and
 * affine_get_rows decode rows, affine_matmul hands them to the f32 product a panel at a time. */
#include "cpu/k_copy.h"
#include "cpu/k_gemm.h"

typedef struct packed {
    const qn_tensor *codes, *scales, *biases;
    int bits;
    int64_t group, n, bytes; /* n: of a decoded row, bytes: of its codes */
} packed;

/* 0: not in a layout that is decoded here. */
static int packed_of(const qn_tensor *const *src, const void *attr, packed *p) {
    const qn_attr_affine_dequantize *at = attr;
    *p = (packed){src[0], src[1], src[2], at->bits, at->group, qn_ne(src[1], 0) * at->group, 0};
    p->bytes = p->n * p->bits / 8;
    if (!qn_lanes_float(p->scales->dtype) || !qn_lanes_float(p->biases->dtype)) return 0;
    return qn_cpu_is_dense(p->codes) && qn_cpu_is_dense(p->scales) && qn_cpu_is_dense(p->biases) && p->n > 0;
}

static float number_at(const qn_tensor *t, int64_t i) {
    double v;
    qn_load_row(t, qn_at(t, 0), i, 1, &v);
    return (float)v;
}

/* Codes [first, first + n) of a stream of `bytes` bytes, all of one group. */
static void decode_run(const packed *p, const uint8_t *codes, int64_t first, int64_t n, float scale, float bias, float *to) {
    int64_t i = 0;
    if (p->bits == 8) {
        for (; i < n; i++) to[i] = (float)codes[first + i] * scale + bias;
    } else if (p->bits == 4 && first % 2 == 0) {
        const uint8_t *from = codes + first / 2;
        for (; i + 2 <= n; i += 2) {
            to[i] = (float)(from[i / 2] & 15) * scale + bias;
            to[i + 1] = (float)(from[i / 2] >> 4) * scale + bias;
        }
    }
    for (; i < n; i++) {
        int64_t bit = (first + i) * p->bits, byte = bit / 8;
        uint32_t have = codes[byte] | (byte + 1 < p->bytes ? (uint32_t)codes[byte + 1] << 8 : 0);
        to[i] = (float)(have >> bit % 8 & ((1u << p->bits) - 1)) * scale + bias;
    }
}

/* Elements [first, first + n) of a row. */
static void decode(const packed *p, int64_t row, int64_t first, int64_t n, float *to) {
    const uint8_t *codes = (const uint8_t *)qn_at(p->codes, row * p->bytes);
    for (int64_t done = 0, run; done < n; done += run) {
        int64_t at = first + done, group = at / p->group, left = (group + 1) * p->group - at,
                number = row * (p->n / p->group) + group;
        run = left < n - done ? left : n - done;
        decode_run(p, codes, at, run, number_at(p->scales, number), number_at(p->biases, number), to + done);
    }
}

/* ---- Rows */

enum { PIECE = 1024 };

static void decode_row(const packed *p, int64_t row, const qn_tensor *y, char *to) {
    float piece[PIECE];
    for (int64_t i = 0; i < p->n; i += PIECE) {
        int64_t some = p->n - i < PIECE ? p->n - i : PIECE;
        decode(p, row, i, some, piece);
        qn_copy_row(QN_DTYPE_F32, (const char *)piece, y->dtype, to + i * (y->dtype == QN_DTYPE_F32 ? 4 : 2), some);
    }
}

static void run_rows(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    const qn_tensor *y = c->dst[0], *idx = c->op == QN_OP_affine_get_rows ? c->src[3] : NULL;
    packed p;
    (void)phase;
    if (!packed_of(c->src, c->attr, &p)) return;
    int64_t rows = qn_tensor_count(y) / p.n, r = qn_cpu_cut(rows, s->parts[0], part), size = y->dtype == QN_DTYPE_F32 ? 4 : 2;
    for (int64_t end = qn_cpu_cut(rows, s->parts[0], part + 1); r < end; r++)
        decode_row(&p, idx ? ((const int32_t *)(const void *)qn_at(idx, 0))[r] : r, y, qn_at(y, r * p.n * size));
}

static int prepare_rows(const qn_call *c, qn_cpu_step *s, const char *name) {
    const qn_tensor *y = c->dst[0];
    packed p;
    if (!packed_of(c->src, c->attr, &p) || !qn_lanes_float(y->dtype) || !qn_cpu_is_dense(y) || qn_tensor_count(y) == 0) return 0;
    return qn_cpu_by_rows(s, name, run_rows, qn_tensor_count(y) / p.n, (double)p.n * 8, 0);
}

int QN_K(affine_dequantize)(const qn_call *c, qn_cpu_step *s) { return prepare_rows(c, s, "affine_dequantize rows"); }
int QN_K(affine_get_rows)(const qn_call *c, qn_cpu_step *s) {
    return qn_cpu_is_dense(c->src[3]) && c->src[0]->rank <= 2 ? prepare_rows(c, s, "affine_get_rows rows") : 0;
}

/* ---- The product */

enum { COLUMNS = 64, DEPTH = 128 }; /* of weights decoded at a time, to be turned */

static void fetch_codes(const qn_gemm_side *side, int64_t batch_offset, int64_t first, int64_t count, int64_t first_k, int depth,
                        float *panel, int step) {
    const packed *p = side->context;
    float rows[COLUMNS][DEPTH];
    (void)batch_offset;
    for (int64_t i = 0; i < count; i += step, panel += (int64_t)step * depth) {
        int64_t some = count - i < step ? count - i : step;
        for (int64_t done = 0; done < depth; done += DEPTH) {
            int64_t run = depth - done < DEPTH ? depth - done : DEPTH;
            for (int64_t k = 0; k < some; k++) decode(p, first + i + k, first_k + done, run, rows[k]);
            qn_gemm_side plain = {.data = (const char *)rows, .along = sizeof *rows, .deep = 4, .dtype = QN_DTYPE_F32};
            qn_gemm_plain_fetch(QN_DTYPE_F32, sizeof *rows, 4, run)(&plain, 0, 0, some, 0, (int)run, panel + done * step, step);
        }
    }
}

static int describe(const qn_call *c, packed *p, qn_gemm *g) {
    const qn_tensor *x = c->src[0], *y = c->dst[0];
    if (!packed_of(c->src + 1, c->attr, p) || !qn_lanes_float(x->dtype) || !qn_lanes_float(y->dtype)) return 0;
    if (!qn_cpu_is_dense(x) || !qn_cpu_is_dense(y) || qn_tensor_count(y) == 0 || p->codes->rank > 2) return 0;
    *g = (qn_gemm){.n = qn_ne(y, 0), .k = p->n, .c = qn_at(y, 0), .c_dtype = y->dtype};
    g->m = qn_tensor_count(y) / g->n;
    g->a = (qn_gemm_side){.data = qn_at(x, 0), .along = qn_nb(x, 0) * p->n, .deep = qn_nb(x, 0), .dtype = x->dtype};
    g->b = (qn_gemm_side){.dtype = QN_DTYPE_F32, .fetch = fetch_codes, .context = p};
    g->c_column = qn_nb(y, 0);
    g->c_row = g->n * qn_nb(y, 0);
    return qn_gemm_settle(g);
}

static void run_matmul(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    packed p;
    qn_gemm g;
    (void)s;
    if (!describe(c, &p, &g)) return;
    qn_gemm_cut cut = qn_gemm_plan(&g);
    qn_gemm_part(&g, &cut, c->workspace, phase, part);
}

int QN_K(affine_matmul)(const qn_call *c, qn_cpu_step *s) {
    packed p;
    qn_gemm g;
    if (!describe(c, &p, &g)) return 0;
    qn_gemm_cut cut = qn_gemm_plan(&g);
    qn_gemm_step(s, &cut, run_matmul);
    s->name = "gemm f32 of affine codes";
    return 1;
}
