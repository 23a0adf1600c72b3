/* The tile of convolutions whose channels lie along the lanes: a line of weights against one number of each pixel, which is read where
 * it lies and spread over the lanes. */
#include "cpu/k_conv_mend.h"
#include "cpu/simd/simd_turn.h"

enum { MOST = QN_CONV_PIXELS, HALF = QN_CONV_PIXELS / 2, AHEAD = 512 }; /* AHEAD: floats of weights asked for before their turn */

#define INLINE static inline __attribute__((always_inline))

/* Pixels by threes from pointers of their own: then every address is a register plus 0, 1 or 2 pitches. */
INLINE void one_line(int pixels, int vectors, const float *const *at, int64_t pitch, int64_t offset, int64_t ahead,
                     const float *w, vf sum[MOST][4]) {
    const int last = pixels - 1;
    vf line[4];
    __builtin_prefetch(at[0] + offset + ahead, 0, 3);
    if (last) __builtin_prefetch(at[last / 3] + offset + ahead + last % 3 * pitch, 0, 3);
    QN_UNROLL
    for (int v = 0; v < vectors; v++) {
        line[v] = vf_load(w + v * VF_N);
        if (v * VF_N % 16 == 0) __builtin_prefetch(w + AHEAD + v * VF_N, 0, 3);
    }
    QN_UNROLL
    for (int i = 0; i < pixels; i++) {
        vf one = vf_set1((at[i / 3] + offset)[i % 3 * pitch]);
        QN_UNROLL
        for (int v = 0; v < vectors; v++) sum[i][v] = vf_fma_stay(one, line[v], sum[i][v]);
    }
}

INLINE void tile(int pixels, int vectors, const qn_conv_walk *walk, const float *x, const float *w, float *to, int64_t step) {
    vf sum[MOST][4];
    const int64_t pitch = walk->pitch, inner = walk->inner, inner_step = walk->inner_step;
    const int64_t ahead = walk->outer > 1 ? 4 * walk->outer_step : 8 * inner_step;
    QN_UNROLL
    for (int i = 0; i < pixels; i++) {
        QN_UNROLL
        for (int v = 0; v < vectors; v++) sum[i][v] = vf_zero();
    }
    for (int64_t o = 0; o < walk->outer; o++) {
        for (int64_t m = 0; m < walk->middle; m++) {
            const float *at[(MOST + 2) / 3];
            QN_UNROLL
            for (int i = 0; i < (pixels + 2) / 3; i++) at[i] = x + o * walk->outer_step + m * walk->middle_step + i * 3 * pitch;
            for (int64_t n = 0, offset = 0; n < inner; n++, offset += inner_step, w += vectors * VF_N)
                one_line(pixels, vectors, at, pitch, offset, ahead, w, sum);
        }
    }
    QN_UNROLL
    for (int i = 0; i < pixels; i++) {
        QN_UNROLL
        for (int v = 0; v < vectors; v++) vf_store(to + i * step + v * VF_N, sum[i][v]);
    }
}

typedef void (*tile_fn)(const qn_conv_walk *walk, const float *x, const float *w, float *to, int64_t step);

#define TILE(pixels, vectors)                                                                                                  \
    static void tile_##pixels##_##vectors(const qn_conv_walk *walk, const float *x, const float *w, float *to, int64_t step) { \
        tile(pixels, vectors, walk, x, w, to, step);                                                                           \
    }
TILE(1, 2)
TILE(2, 2)
TILE(3, 2)
TILE(4, 2)
TILE(5, 2)
TILE(6, 2)
TILE(1, 4)
TILE(2, 4)
TILE(3, 4)
#if QN_REGISTERS == 32
TILE(7, 2)
TILE(8, 2)
TILE(9, 2)
TILE(10, 2)
TILE(11, 2)
TILE(12, 2)
TILE(13, 2)
TILE(14, 2)
TILE(4, 4)
TILE(5, 4)
TILE(6, 4)
TILE(7, 4)
static const tile_fn by_two[MOST] = {tile_1_2, tile_2_2, tile_3_2,  tile_4_2,  tile_5_2,  tile_6_2,  tile_7_2,
                                     tile_8_2, tile_9_2, tile_10_2, tile_11_2, tile_12_2, tile_13_2, tile_14_2};
static const tile_fn by_four[HALF] = {tile_1_4, tile_2_4, tile_3_4, tile_4_4, tile_5_4, tile_6_4, tile_7_4};
#else
static const tile_fn by_two[MOST] = {tile_1_2, tile_2_2, tile_3_2, tile_4_2, tile_5_2, tile_6_2};
static const tile_fn by_four[HALF] = {tile_1_4, tile_2_4, tile_3_4};
#endif

void qn_conv_tile(int pixels, int vectors, const qn_conv_walk *walk, const float *x, const float *w, float *to, int64_t step) {
    tile_fn f = vectors == 2 ? by_two[pixels - 1] : by_four[pixels - 1];
    f(walk, x, w, to, step);
}

void qn_conv_store(const qn_conv *v, int64_t image, int64_t channel, int64_t lanes, int64_t at, int pixels, const float *sums,
                   int64_t step, int border) {
    vf r[VF_N];
    for (int64_t first = 0; first < lanes; first += VF_N) {
        int some = lanes - first < VF_N ? (int)(lanes - first) : VF_N;
        vf bias = v->bias ? vf_loadn(v->bias + channel + first, some) : vf_zero();
        for (int done = 0; done < pixels; done += VF_N) {
            int run = pixels - done < VF_N ? pixels - done : VF_N;
            for (int i = 0; i < VF_N; i++) r[i] = i < run ? vf_load(sums + (done + i) * step + first) + bias : vf_zero();
            int spoiled = border && qn_conv_is_suspect((const float *)r, VF_N * run);
            vf_turn(r);
            int64_t plane = image * v->groups * v->channels + channel + first, to = plane * v->pixels + at + done;
            for (int i = 0; i < some; i++, to += v->pixels) {
                vf_storen(v->y + to, r[i], run);
                if (spoiled) qn_conv_mend(v, plane + i, at + done, run, v->y + to);
                if (v->act || v->residual) qn_conv_finish(v, to, run);
            }
        }
    }
}
