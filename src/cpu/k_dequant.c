/* dequant_matmul and its gradient: packed weights of the schemes of op_product_dequant.c, and block types, decoded into the panels of
 * the f32 product. A row of packed weights is a row of [K, N], of blocks one of [N, K]. */
#include "cpu/k_codec.h"
#include "cpu/k_decoded.h"
#include "cpu/k_lanes.h"
#include "cpu/simd/simd_fields.h"

enum { INT8 = 0, INT8_ZERO = 1, INT4 = 2, E4M3 = 3, E5M2 = 4, NVFP4 = 5 };
enum { W = 1, SCALE = 2, ZERO = 3, GLOBAL = 4 };
enum { NVFP4_BLOCK = 16, INT_BLOCK = 32 }; /* rows that share a scale, unless the call says otherwise */

typedef struct packed {
    const qn_tensor *w, *scale, *zero;
    int32_t scheme;
    int64_t block, n; /* rows that share a scale, columns */
    float global;
} packed;

static int half_bytes(int32_t scheme) { return scheme == INT4 || scheme == NVFP4; }

/* ---- Codes to floats */

/* Sign, exponent, mantissa: the mantissa, with its leading one unless the exponent is 0, is a whole number times a power of two. The
 * power is made and not a shifted float scaled, because that would be below the normal ones for many codes, which is slow. */
static inline vf small_float(vi code, int mantissa, int bias) {
    vi low = code & 127, e = low >> mantissa, normal = e > 0; /* -1 or 0 */
    vi whole = (low & ((1 << mantissa) - 1)) | (normal & 1 << mantissa);
    vf v = vf_from_i(whole) * vf_of_bits((e + normal + (1 + 127 - bias - mantissa)) << 23);
    return vf_of_bits(vi_bits(v) | (code & 128) << 24);
}
static inline vf unless(vi none, vf v) { return vf_of_bits(vi_bits(v) & ~none); }
static inline vf e4m3(vi code) { return unless((code & 127) == 127, small_float(code, 3, 7)); }
static inline vf e5m2(vi code) { return unless((code & 124) == 124, small_float(code, 2, 15)); }
static inline vf e2m1(vi code) { return small_float((code & 8) << 4 | (code & 7), 1, 1); }

/* VF_N bytes, of which the row still has `left`. */
static inline vi bytes_at(const uint8_t *p, int64_t left) {
    uint8_t t[16] = {0};
    if (left >= VF_N) return vi_load_u8(p);
    memcpy(t, p, (size_t)left);
    return vi_load_u8(t);
}

/* As many half bytes from number e on; `bytes` of them are there in all. */
static inline vi halves_at(const vi_field *f, const uint8_t *p, int64_t e, int64_t bytes) {
    uint8_t t[VI_FIELD_BYTES] = {0};
    int64_t byte = e / 2, left = bytes - byte;
    if (left >= VI_FIELD_BYTES) return vi_fields(f, p + byte, (int)(e % 2 * 4));
    memcpy(t, p + byte, (size_t)left);
    return vi_fields(f, t, (int)(e % 2 * 4));
}

static inline vf floats_at(const qn_tensor *t, int64_t row, int64_t i, int64_t n) {
    return qn_lanes_at(t->dtype, qn_at(t, row * qn_nb(t, 1)), i, n);
}

/* Row k of packed weights, columns from `first` on. */
static void decode_packed(const qn_gemm_side *side, int64_t k, int64_t first, int n, float *to) {
    const packed *p = side->context;
    const vi_field f = vi_fields_of(4);
    int64_t block = k / p->block, bytes = qn_tensor_count(p->w);
    const uint8_t *codes = (const uint8_t *)qn_at(p->w, half_bytes(p->scheme) ? 0 : k * qn_nb(p->w, 1));
    for (int64_t i = first; i < first + n; i += VF_N, to += VF_N) {
        int64_t left = p->n - i;
        vi code = half_bytes(p->scheme) ? halves_at(&f, codes, k * p->n + i, bytes) : bytes_at(codes + i, left);
        vf v;
        if (p->scheme == E4M3) v = e4m3(code);
        else if (p->scheme == E5M2) v = e5m2(code);
        else if (p->scheme == NVFP4) {
            const uint8_t *scales = (const uint8_t *)qn_at(p->scale, block * qn_nb(p->scale, 1));
            v = e2m1(code) * e4m3(bytes_at(scales + i, left)) * vf_set1(p->global);
        } else {
            int unused = p->scheme == INT4 ? 28 : 24;
            v = vf_from_i(code << unused >> unused);
            if (p->zero) v -= floats_at(p->zero, block, i, p->n);
            v *= floats_at(p->scale, block, i, p->n);
        }
        vf_store(to, v);
    }
}

static int64_t block_of(const packed *p) { return qn_dtype_describe((qn_dtype)p->w->dtype)->block; }

/* A row of blocks, elements from the beginning of one on; the last is decoded whole. */
static void decode_blocks(const qn_gemm_side *side, int64_t row, int64_t first, int n, float *to) {
    const packed *p = side->context;
    int64_t block = block_of(p), bytes = qn_dtype_bytes(p->w->dtype);
    const uint8_t *blocks = (const uint8_t *)qn_at(p->w, row * qn_nb(p->w, 1) + first / block * bytes);
    qn_codec_decode(p->w->dtype, blocks, (n + block - 1) / block * block, to);
}

static void fetch_turned(const qn_gemm_side *side, int64_t batch, int64_t first, int64_t count, int64_t first_k, int depth,
                         float *panel, int step) {
    const packed *p = side->context;
    (void)batch;
    qn_decoded_turn(side, qn_is_block(p->w->dtype) ? decode_blocks : decode_packed, first, count, first_k, depth, panel, step);
}
static void fetch_straight(const qn_gemm_side *side, int64_t batch, int64_t first, int64_t count, int64_t first_k, int depth,
                           float *panel, int step) {
    const packed *p = side->context;
    (void)batch;
    int blocks = qn_is_block(p->w->dtype);
    qn_decoded_copy(side, blocks ? decode_blocks : decode_packed, first, count, first_k, depth, panel, step,
                    blocks ? (int)block_of(p) : 1);
}

/* ---- The product */

static int side_by_side(const qn_tensor *t) {
    return t->dtype == QN_DTYPE_U8 ? qn_ne(t, 0) == 1 || qn_nb(t, 0) == 1 : qn_lanes_rows(t);
}

static int describe(const qn_call *c, int32_t scheme, int32_t block, int back, packed *p, qn_gemm *g) {
    const qn_tensor *w = c->src[W], *global = c->src[GLOBAL];
    if (qn_tensor_count(c->dst[0]) == 0 || qn_tensor_count(c->src[0]) == 0 || qn_tensor_count(w) == 0) return 0;
    *p = (packed){w, c->src[SCALE], c->src[ZERO], scheme, block, qn_ne(back ? c->src[0] : c->dst[0], 0), 1};
    if (!block) p->block = scheme == NVFP4 ? NVFP4_BLOCK : INT_BLOCK;
    int blocks = qn_is_block(w->dtype);
    if (blocks && QN_DECODED_RUN % block_of(p)) return 0;
    if (!blocks && (half_bytes(scheme) ? !qn_cpu_is_dense(w) : qn_ne(w, 0) > 1 && qn_nb(w, 0) != 1)) return 0;
    if ((p->scale && !side_by_side(p->scale)) || (p->zero && !side_by_side(p->zero))) return 0;
    if (global && global->data) p->global = (float)qn_get4(global, 0, 0, 0, 0);
    qn_decoded_describe(c->src[0], c->dst[0], g);
    g->b = (qn_gemm_side){.fetch = blocks != back ? fetch_turned : fetch_straight, .context = p};
    return qn_gemm_settle(g);
}

#define PRODUCT(op, back)                                                                   \
    static void run_##op(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) { \
        const qn_attr_##op *at = c->attr;                                                   \
        packed p;                                                                           \
        qn_gemm g;                                                                          \
        (void)s;                                                                            \
        if (!describe(c, at->scheme, at->block, back, &p, &g)) return;                      \
        qn_gemm_cut cut = qn_gemm_plan(&g);                                                 \
        qn_gemm_part(&g, &cut, c->workspace, phase, part);                                  \
    }                                                                                       \
    int QN_K(op)(const qn_call *c, qn_cpu_step *s) {                                        \
        const qn_attr_##op *at = c->attr;                                                   \
        packed p;                                                                           \
        qn_gemm g;                                                                          \
        if (!describe(c, at->scheme, at->block, back, &p, &g)) return 0;                    \
        qn_gemm_cut cut = qn_gemm_plan(&g);                                                 \
        qn_gemm_step(s, &cut, run_##op);                                                    \
        s->name = "gemm f32 of packed weights";                                             \
        return 1;                                                                           \
    }
PRODUCT(dequant_matmul, 0)
PRODUCT(dequant_matmul_back, 1)
