/* How plain floats of any layout become panels. Rows whose elements lie side by side along the summed axis are turned, a square of
 * lanes at a time; those that lie side by side the other way are copied. */
#include "cpu/k_gemm.h"
#include "cpu/simd/simd_turn.h"

static inline vf load_f32(const char *p) { return vf_load((const float *)p); }
static inline vf load_f16(const char *p) { return vf_load_h((const uint16_t *)p); }
static inline vf load_bf16(const char *p) { return vf_load_b((const uint16_t *)p); }
static inline vf loadn_f32(const char *p, int n) { return vf_loadn((const float *)p, n); }
static inline vf loadn_f16(const char *p, int n) { return vf_load_hn((const uint16_t *)p, n); }
static inline vf loadn_bf16(const char *p, int n) { return vf_load_bn((const uint16_t *)p, n); }
static inline float one_f32(const char *p) { return *(const float *)p; }
static inline float one_f16(const char *p) { return qn_f16_to_f32(*(const uint16_t *)p); }
static inline float one_bf16(const char *p) { return qn_bf16_to_f32(*(const uint16_t *)p); }

typedef vf (*load_fn)(const char *p);
typedef vf (*loadn_fn)(const char *p, int n);
typedef float (*one_fn)(const char *p);

#define INLINE static inline __attribute__((always_inline))

/* Elements side by side along the rows or columns. */
INLINE void copy(const qn_gemm_side *s, const char *at, int count, int depth, float *panel, int step, int size, load_fn load,
                 loadn_fn loadn) {
    for (int p = 0; p < depth; p++, at += s->deep, panel += step) {
        int i = 0;
        for (; i + VF_N <= count; i += VF_N) vf_store(panel + i, load(at + i * size));
        if (i < count) vf_store(panel + i, loadn(at + i * size, count - i)); /* into the room, or where the next line comes */
    }
}

/* Rows of at most VF_N of a square, and what is left of depth. A square's last lines reach past `count`, onto the lines that are
 * written after them. */
INLINE void turn(const qn_gemm_side *s, const char *at, int count, int depth, float *panel, int step, int size, load_fn load,
                 loadn_fn loadn) {
    vf r[VF_N];
    for (int p = 0; p < depth; p += VF_N, panel += (int64_t)VF_N * step, at += VF_N * size) {
        int some = depth - p < VF_N ? depth - p : VF_N;
        if (some == VF_N && count == VF_N) {
            QN_UNROLL
            for (int i = 0; i < VF_N; i++) r[i] = load(at + i * s->along);
        } else {
            for (int i = 0; i < VF_N; i++) r[i] = i < count ? loadn(at + i * s->along, some) : vf_zero();
        }
        vf_turn(r);
        if (some == VF_N) {
            QN_UNROLL
            for (int i = 0; i < VF_N; i++) vf_store(panel + i * step, r[i]);
        } else {
            for (int i = 0; i < some; i++) vf_store(panel + i * step, r[i]);
        }
    }
}

INLINE void pick(const qn_gemm_side *s, const char *at, int count, int depth, float *panel, int step, one_fn one) {
    for (int p = 0; p < depth; p++, at += s->deep, panel += step)
        for (int i = 0; i < count; i++) panel[i] = one(at + i * s->along);
}

/* A panel that is wider than a square is made square by square, the narrow one at its right first: that one's stray lanes fall on the
 * left of the lines below, which the other squares then overwrite. */
#define FETCHES(type, size)                                                                                             \
    static void copy_##type(const qn_gemm_side *s, int64_t batch, int64_t first, int count, int64_t first_k, int depth, \
                            float *panel, int step) {                                                                   \
        copy(s, s->data + batch + first * s->along + first_k * s->deep, count, depth, panel, step, size, load_##type,   \
             loadn_##type);                                                                                             \
    }                                                                                                                   \
    static void turn_##type(const qn_gemm_side *s, int64_t batch, int64_t first, int count, int64_t first_k, int depth, \
                            float *panel, int step) {                                                                   \
        const char *at = s->data + batch + first * s->along + first_k * s->deep;                                        \
        for (int i = (count - 1) / VF_N * VF_N; i >= 0; i -= VF_N)                                                      \
            turn(s, at + i * s->along, count - i < VF_N ? count - i : VF_N, depth, panel + i, step, size, load_##type,  \
                 loadn_##type);                                                                                         \
    }                                                                                                                   \
    static void pick_##type(const qn_gemm_side *s, int64_t batch, int64_t first, int count, int64_t first_k, int depth, \
                            float *panel, int step) {                                                                   \
        pick(s, s->data + batch + first * s->along + first_k * s->deep, count, depth, panel, step, one_##type);         \
    }
FETCHES(f32, 4)
FETCHES(f16, 2)
FETCHES(bf16, 2)

qn_gemm_fetch_fn qn_gemm_plain_fetch(uint32_t dtype, int64_t along, int64_t deep, int64_t k) {
    static const qn_gemm_fetch_fn copies[] = {copy_f32, copy_f16, copy_bf16}, turns[] = {turn_f32, turn_f16, turn_bf16},
                                  picks[] = {pick_f32, pick_f16, pick_bf16};
    int type = dtype == QN_DTYPE_F32 ? 0 : dtype == QN_DTYPE_F16 ? 1 : dtype == QN_DTYPE_BF16 ? 2 : -1, size = type == 0 ? 4 : 2;
    if (type < 0) return NULL;
    if (along == size) return copies[type];
    return deep == size && k > 1 ? turns[type] : picks[type];
}
