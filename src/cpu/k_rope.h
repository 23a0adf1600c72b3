/* What the ops of rotary embedding share: cosines and sines of angles in double, rows of pairs turned by them, and what turning further
 * would gain. */
#ifndef QN_CPU_K_ROPE_H
#define QN_CPU_K_ROPE_H

#include <math.h>

#include "cpu/k_lanes.h"
#include "cpu/k_past.h"
#include "cpu/simd/simd_swap.h"
#include "cpu/simd/simd_turn.h"
#include "cpu/simd/simd_wide.h"

enum { MOST_PAIRS = 512 };

/* sin and cos of what is left of an angle after quarter turns, |x| <= pi / 4: their series, good to the last place of f32. */
static inline float sin_near(float x) {
    float z = x * x;
    return x + x * z * (-0.16666667f + z * (8.3333333e-3f + z * (-1.9841270e-4f + z * 2.7557319e-6f)));
}
static inline float cos_near(float x) {
    float z = x * x;
    return 1.0f - 0.5f * z + z * z * (4.1666667e-2f + z * (-1.3888889e-3f + z * (2.4801587e-5f - z * 2.7557319e-7f)));
}

/* Adding 1.5 2^52 leaves the nearest whole number in the low bits. pi / 2 is taken in two parts, of which the first is short enough
 * that its multiples are exact up to a million turns. */
static inline void cos_sin_near(const double *angle, int64_t n, float gain, float sign, float *cosine, float *sine) {
    for (int64_t i = 0; i < n; i++) {
        double shifted = angle[i] * 0.63661977236758134 + 6755399441055744.0, k = shifted - 6755399441055744.0;
        float x = (float)((angle[i] - k * 1.5707963267341256) - k * 6.0771005063039e-11);
        uint64_t bits;
        memcpy(&bits, &shifted, sizeof bits);
        uint32_t quarter = (uint32_t)bits;
        float s = sin_near(x), c = cos_near(x);
        float first = quarter & 1 ? c : s, second = quarter & 1 ? s : c; /* of sine and cosine */
        sine[i] = (quarter & 2 ? -first : first) * gain * sign;
        cosine[i] = ((quarter + 1) & 2 ? -second : second) * gain;
    }
}

/* Angles that may lie anywhere; `most` is no less than the largest of them without its sign. */
static inline void cos_sin_any(const double *angle, int64_t n, double most, float gain, float sign, float *cosine, float *sine) {
    if (most < 1e6) {
        cos_sin_near(angle, n, gain, sign, cosine, sine);
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        cosine[i] = (float)cos(angle[i]) * gain;
        sine[i] = (float)sin(angle[i]) * gain * sign;
    }
}

/* One vector to y, which is whole vectors of f32 where it goes past the caches. Rows behind are asked for in time, and where they go: there
 * is little to compute, and much to wait for. */
QN_INLINE void put_turned(uint32_t dtype, char *y, const char *x, int64_t i, vf v, qn_way way) {
    int64_t at = i * qn_float_bytes(dtype);
    if (way != QN_NEAR) __builtin_prefetch(x + at + (way == QN_PAST ? QN_PAST_AHEAD : QN_FAR_AHEAD), 0, 3);
    if (way == QN_FAR) qn_far_ask(y + at + 2 * QN_FAR_AHEAD);
    if (way == QN_PAST) qn_past_store((float *)(void *)y + i, v);
    else qn_lanes_put(dtype, y, i, v);
}

/* Pairs of neighbours; the tables hold every cosine twice and every sine with both its signs. */
QN_INLINE void turn_neighbours(uint32_t dtype, char *y, const char *x, int64_t n, const float *cosine, const float *sine,
                               qn_way way) {
    int64_t i = 0;
#define TURNED(v, i) vf_fma(v, vf_load(cosine + i), vf_swap1(v) * vf_load(sine + i))
    for (; i + VF_N <= n; i += VF_N) {
        vf v = qn_lanes(dtype, x, i);
        put_turned(dtype, y, x, i, TURNED(v, i), way);
    }
    if (i < n) {
        vf v = qn_lanes_some(dtype, x, i, (int)(n - i));
        qn_lanes_put_some(dtype, y, i, TURNED(v, i), (int)(n - i));
    }
#undef TURNED
}

/* Pairs n apart. */
QN_INLINE void turn_halves(uint32_t dtype, char *y, const char *x, int64_t n, const float *cosine, const float *sine,
                           qn_way way) {
    int64_t i = 0, apart = n * qn_float_bytes(dtype);
    for (; i + VF_N <= n; i += VF_N) {
        vf a = qn_lanes(dtype, x, i), b = qn_lanes(dtype, x + apart, i), c = vf_load(cosine + i), s = vf_load(sine + i);
        put_turned(dtype, y, x, i, vf_fma(a, c, vf_zero() - b * s), way);
        put_turned(dtype, y + apart, x + apart, i, vf_fma(a, s, b * c), way);
    }
    if (i < n) {
        int some = (int)(n - i);
        vf a = qn_lanes_some(dtype, x, i, some), b = qn_lanes_some(dtype, x + apart, i, some);
        vf c = vf_load(cosine + i), s = vf_load(sine + i);
        qn_lanes_put_some(dtype, y, i, vf_fma(a, c, vf_zero() - b * s), some);
        qn_lanes_put_some(dtype, y + apart, i, vf_fma(a, s, b * c), some);
    }
}

/* Of pairs (a, b) of x and (ga, gb) of g: ga a + gb b is added to `along`, gb a - ga b to `across`; both end with a whole vector. In
 * double, because what is left of such sums may be far smaller than their terms. */
QN_INLINE void add_products(vf a, vf b, vf ga, vf gb, double *along, double *across) {
    enum { HALF = VF_N / 2 };
    vd a0 = vd_low(a), a1 = vd_high(a), b0 = vd_low(b), b1 = vd_high(b);
    vd ga0 = vd_low(ga), ga1 = vd_high(ga), gb0 = vd_low(gb), gb1 = vd_high(gb);
    vd_store(along, vd_fma(ga0, a0, vd_fma(gb0, b0, vd_load(along))));
    vd_store(along + HALF, vd_fma(ga1, a1, vd_fma(gb1, b1, vd_load(along + HALF))));
    vd_store(across, vd_fma(gb0, a0, vd_load(across) - ga0 * b0));
    vd_store(across + HALF, vd_fma(gb1, a1, vd_load(across + HALF) - ga1 * b1));
}
QN_INLINE void gain_halves(uint32_t dtype, const char *g, const char *x, int64_t n, double *along, double *across) {
    int64_t apart = n * qn_float_bytes(dtype);
    for (int64_t i = 0; i < n; i += VF_N)
        add_products(qn_lanes_at(dtype, x, i, n), qn_lanes_at(dtype, x + apart, i, n), qn_lanes_at(dtype, g, i, n),
                     qn_lanes_at(dtype, g + apart, i, n), along + i, across + i);
}
QN_INLINE void gain_neighbours(uint32_t dtype, const char *g, const char *x, int64_t n, double *along, double *across) {
    for (int64_t i = 0; i < n; i += VF_N) {
        int more = 2 * i + VF_N < 2 * n;
        vf x0 = qn_lanes_at(dtype, x, 2 * i, 2 * n), g0 = qn_lanes_at(dtype, g, 2 * i, 2 * n);
        vf x1 = more ? qn_lanes_at(dtype, x, 2 * i + VF_N, 2 * n) : vf_zero();
        vf g1 = more ? qn_lanes_at(dtype, g, 2 * i + VF_N, 2 * n) : vf_zero();
        add_products(vf_even(x0, x1), vf_odd(x0, x1), vf_even(g0, g1), vf_odd(g0, g1), along + i, across + i);
    }
}
static inline void add_gain(uint32_t dtype, int neighbours, const char *g, const char *x, int64_t n, double *along,
                            double *across) {
#define NEIGHBOURS_OF(d) gain_neighbours(d, g, x, n, along, across)
#define HALVES_OF(d) gain_halves(d, g, x, n, along, across)
    if (neighbours) QN_BY_FLOAT(dtype, NEIGHBOURS_OF);
    else QN_BY_FLOAT(dtype, HALVES_OF);
#undef NEIGHBOURS_OF
#undef HALVES_OF
}

/* Backwards, so that a table can be spread in its place; what is no whole vector comes first. */
static inline void spread(float *cosine, float *sine, int64_t pairs) {
    int64_t i = pairs;
    while (i % VF_N) {
        float c = cosine[--i], s = sine[i];
        cosine[2 * i] = cosine[2 * i + 1] = c;
        sine[2 * i] = -s;
        sine[2 * i + 1] = s;
    }
    while ((i -= VF_N) >= 0) {
        vf c = vf_load(cosine + i), s = vf_load(sine + i), minus = vf_zero() - s;
        vf_store(cosine + 2 * i, vf_zip_low(c, c));
        vf_store(cosine + 2 * i + VF_N, vf_zip_high(c, c));
        vf_store(sine + 2 * i, vf_zip_low(minus, s));
        vf_store(sine + 2 * i + VF_N, vf_zip_high(minus, s));
    }
}

#endif
