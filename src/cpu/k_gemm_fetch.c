/* How plain floats of any layout become panels. Rows whose elements lie side by side along the summed axis are turned, a square
 * of lanes at a time; those that lie side by side the other way are copied, line by line over all panels, so that a page of
 * memory is visited once. */
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

/* n floats side by side; lanes beyond them are written too, where the next lines come, unless the panel ends before. */
INLINE void copy_line(const char *at, int n, float *to, const float *end, int size, load_fn load, loadn_fn loadn) {
    int i = 0;
    for (; i + VF_N <= n; i += VF_N) vf_store(to + i, load(at + i * size));
    if (i == n) return;
    if (end - (to + i) < VF_N) vf_storen(to + i, loadn(at + i * size, n - i), n - i);
    else vf_store(to + i, loadn(at + i * size, n - i));
}

INLINE void copy(const qn_gemm_side *s, const char *at, int64_t count, int depth, float *panel, int step, int size, load_fn load,
                 loadn_fn loadn) {
    int64_t next = (int64_t)depth * step;
    for (int p = 0; p < depth; p++, at += s->deep, panel += step) {
        float *to = panel;
        int64_t i = 0;
        int64_t left = next - (int64_t)p * step; /* from this line to the end of its panel */
        for (; i + step <= count; i += step, to += next) copy_line(at + i * size, step, to, to + left, size, load, loadn);
        if (i < count) copy_line(at + i * size, (int)(count - i), to, to + left, size, load, loadn);
    }
}

INLINE void store_line(float *to, vf line, int count, const float *end) {
    if (end - to < VF_N) vf_storen(to, line, count);
    else vf_store(to, line);
}

/* At most VF_N rows into lanes; those `ahead` bytes behind are asked for meanwhile. Lines reach past `count`, onto lines that are written
 * after them, as far as the panel goes. Rows that are not there are the last one again, which is cheaper than to ask each time. */
INLINE void turn(const qn_gemm_side *s, const char *at, int64_t ahead, int count, int depth, float *panel, const float *end,
                 int step, int size, load_fn load, loadn_fn loadn) {
    vf r[VF_N];
    int64_t row[VF_N];
    int p = 0;
    for (int i = 0; i < VF_N; i++) row[i] = (i < count ? i : count - 1) * s->along;
    for (; p + VF_N < depth; p += VF_N, panel += (int64_t)VF_N * step, at += VF_N * size) {
        QN_UNROLL
        for (int i = 0; i < VF_N; i++) {
            __builtin_prefetch(at + ahead + row[i], 0, 3);
            r[i] = load(at + row[i]);
        }
        vf_turn(r);
        QN_UNROLL
        for (int i = 0; i < VF_N; i++) store_line(panel + i * step, r[i], count, end);
    }
    for (int i = 0; i < VF_N; i++) r[i] = loadn(at + row[i], depth - p);
    vf_turn(r);
    for (int i = 0; i < depth - p; i++) store_line(panel + i * step, r[i], count, end);
}

/* One panel square by square, the narrow one at its right first: what it writes beyond its lanes falls on the left of the lines
 * below, which the other squares then overwrite. */
INLINE void turn_panels(const qn_gemm_side *s, const char *at, int64_t count, int depth, float *panel, int step, int size,
                        load_fn load, loadn_fn loadn) {
    for (int64_t first = 0; first < count; first += step, panel += (int64_t)depth * step) {
        int some = count - first < step ? (int)(count - first) : step;
        int64_t ahead = first + step < count ? step * s->along : 0;
        for (int i = (some - 1) / VF_N * VF_N; i >= 0; i -= VF_N)
            turn(s, at + (first + i) * s->along, ahead, some - i < VF_N ? some - i : VF_N, depth, panel + i,
                 panel + (int64_t)depth * step, step, size, load, loadn);
    }
}

INLINE void pick(const qn_gemm_side *s, const char *at, int64_t count, int depth, float *panel, int step, one_fn one) {
    for (int64_t first = 0; first < count; first += step) {
        int some = count - first < step ? (int)(count - first) : step;
        for (int p = 0; p < depth; p++, panel += step)
            for (int i = 0; i < some; i++) panel[i] = one(at + (first + i) * s->along + p * s->deep);
    }
}

#define FETCH(name, type, call)                                                                                               \
    static void name##_##type(const qn_gemm_side *s, int64_t batch, int64_t first, int64_t count, int64_t first_k, int depth, \
                              float *panel, int step) {                                                                       \
        const char *at = s->data + batch + first * s->along + first_k * s->deep;                                              \
        call;                                                                                                                 \
    }
#define FETCHES(type, size)                                                                           \
    FETCH(copy, type, copy(s, at, count, depth, panel, step, size, load_##type, loadn_##type))        \
    FETCH(turn, type, turn_panels(s, at, count, depth, panel, step, size, load_##type, loadn_##type)) \
    FETCH(pick, type, pick(s, at, count, depth, panel, step, one_##type))
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
