/* Results that no cache will keep are written past the caches: a line that is stored whole then need not be read first, which is a
 * quarter to a third of what most ops move. A kernel computes a tile at a time and hands it over; the numbers are the same. A
 * tile is short, so that the next is being read while one is written. */
#ifndef QN_CPU_K_PAST_H
#define QN_CPU_K_PAST_H

#include "cpu/kernel.h"

enum { QN_PAST_BYTES = 1 << 24, QN_PAST_TILE = 512, QN_PAST_AHEAD = 4096 };

/* Results that some cache will keep, but not the first: where they go is asked for ahead, for a store waits for its line as a load does.
 * A row times a tensor of 4 MB gained a twentieth to a tenth. */
enum { QN_FAR_BYTES = 1 << 18, QN_FAR_AHEAD = 1024 };
typedef enum qn_way { QN_NEAR, QN_FAR, QN_PAST } qn_way;

static inline double qn_past_bytes(const qn_tensor *t) {
    return (double)qn_tensor_count(t) / (double)qn_dtype_describe((qn_dtype)t->dtype)->block * (double)qn_dtype_bytes(t->dtype);
}

/* By the size of y; what is written over what is read is in the cache anyway. Where a machine is slow past its caches, what reads one
 * tensor as large goes through them, unless s is NULL: a kernel that does not ask for where it stores is slower there either way. */
static inline qn_way qn_past_way(const qn_cpu_step *s, const qn_tensor *y, const qn_tensor *const *src, int n_src) {
#if defined(__AVX2__)
    double bytes = qn_past_bytes(y);
    if (bytes < QN_FAR_BYTES) return QN_NEAR;
    int large = 0;
    for (int i = 0; i < n_src; i++) {
        if (src[i] && src[i]->data == y->data) return QN_NEAR;
        large += src[i] && qn_past_bytes(src[i]) >= bytes / 2;
    }
    return bytes < QN_PAST_BYTES || (s && s->is_near && large == 1) ? QN_FAR : QN_PAST;
#else
    (void)s, (void)y, (void)src, (void)n_src;
    return QN_NEAR;
#endif
}

/* Asks for a line to be stored to, where that was measured. */
static inline void qn_far_ask(const char *y) {
#if defined(__AVX2__)
    __builtin_prefetch(y, 1, 3);
#else
    (void)y;
#endif
}

/* A copy that asks for what it reads, `next` being read behind it, and for where it writes. */
static inline void qn_far_copy(char *y, const char *x, int64_t bytes, const char *next) {
    int64_t i = 0, ours = bytes - QN_FAR_AHEAD;
    for (; i + VF_N * 4 <= bytes; i += VF_N * 4) {
        __builtin_prefetch(i < ours ? x + i + QN_FAR_AHEAD : next + (i - ours), 0, 3);
        qn_far_ask(y + i + QN_FAR_AHEAD);
        vf_store((float *)(void *)(y + i), vf_load((const float *)(const void *)(x + i)));
    }
    memcpy(y + i, x + i, (size_t)(bytes - i));
}

static inline int qn_past_is(const qn_cpu_step *s, const qn_tensor *y, const qn_tensor *const *src, int n_src) {
    return qn_past_way(s, y, src, n_src) == QN_PAST;
}

/* How many of n elements the next tile takes: from the second tile on each begins with a line. */
static inline int64_t qn_past_some(const char *y, int64_t n, int64_t size) {
    int64_t most = (QN_PAST_TILE - (int64_t)((uintptr_t)y & 63)) / size;
    return n < most ? n : most;
}

/* Asks for what will be read when the next tiles are computed: while one is written, machines fall behind in reading by themselves. */
static inline void qn_past_ask(const char *x, int64_t bytes) {
    for (int64_t i = 0; i < bytes; i += 64) __builtin_prefetch(x + QN_PAST_AHEAD + i, 0, 3);
}

static inline void qn_past_put(char *y, const char *x, int64_t bytes) {
#if defined(__AVX2__)
    int64_t head = -(int64_t)(uintptr_t)y & 63, i;
    if (head > bytes) head = bytes;
    memcpy(y, x, (size_t)head);
    for (i = head; i + 64 <= bytes; i += 64) {
#if defined(__AVX512F__)
        _mm512_stream_si512((__m512i *)(void *)(y + i), _mm512_loadu_si512(x + i));
#else
        _mm256_stream_si256((__m256i *)(void *)(y + i), _mm256_loadu_si256((const __m256i *)(const void *)(x + i)));
        _mm256_stream_si256((__m256i *)(void *)(y + i + 32), _mm256_loadu_si256((const __m256i *)(const void *)(x + i + 32)));
#endif
    }
    memcpy(y + i, x + i, (size_t)(bytes - i));
#else
    memcpy(y, x, (size_t)bytes);
#endif
}
/* A row as it is; `next` is what will be read after it. */
static inline void qn_past_copy(char *y, const char *x, int64_t bytes, const char *next) {
    for (int64_t some; bytes > 0; bytes -= some, y += some, x += some) {
        some = qn_past_some(y, bytes, 1);
        qn_past_ask(bytes > QN_PAST_AHEAD ? x : next - bytes, some);
        qn_past_put(y, x, some);
    }
}
/* One vector to an address that is a multiple of its size: kernels that work by vectors alone need no tile, which is a tenth faster. */
static inline void qn_past_store(float *y, vf a) {
#if defined(__AVX512F__)
    _mm512_stream_ps(y, (__m512)a);
#elif defined(__AVX2__)
    _mm256_stream_ps(y, (__m256)a);
#else
    vf_store(y, a);
#endif
}
/* The same as f16 or bf16; of two such stores side by side the machine makes one. */
static inline void qn_past_store16(uint32_t dtype, uint16_t *y, vf a) {
#if defined(__AVX2__)
    uint16_t t[VF_N];
    uint16_t *to = t;
#else
    uint16_t *to = y;
#endif
    if (dtype == QN_DTYPE_F16) vf_store_h(to, a);
    else vf_store_b(to, a);
#if defined(__AVX512F__)
    _mm256_stream_si256((__m256i *)(void *)y, _mm256_loadu_si256((const __m256i *)(const void *)t));
#elif defined(__AVX2__)
    _mm_stream_si128((__m128i *)(void *)y, _mm_loadu_si128((const __m128i *)(const void *)t));
#endif
}
/* Elements of y before the first address to which such a store may go; guards see to it that elements lie at multiples of their size. */
static inline int64_t qn_past_head(const char *y, int64_t n, int64_t size) {
    int64_t head = -(int64_t)(uintptr_t)y / size & (VF_N - 1);
    return head < n ? head : n;
}
/* VF_N elements from element i of a row on. */
static inline void qn_past_lanes(uint32_t dtype, char *y, int64_t i, vf v) {
    if (dtype == QN_DTYPE_F32) qn_past_store((float *)(void *)y + i, v);
    else qn_past_store16(dtype, (uint16_t *)(void *)y + i, v);
}
/* Such stores are seen in no order by others until this. */
static inline void qn_past_end(void) {
#if defined(__AVX2__)
    _mm_sfence();
#endif
}

#endif
