/* What norms of rows and their gradients have in common: sums over a row, in lanes over runs and in double over the runs. */
#ifndef QN_CPU_K_NORM_H
#define QN_CPU_K_NORM_H

#include <math.h>

#include "cpu/k_lanes.h"
#include "cpu/simd/simd_dot.h"

typedef enum norm_kind { CENTRED, SQUARES, LENGTH } norm_kind;

enum { RUN = 2048 };

/* The sum of x - mean, or of its square, over [i, end), number by number in double: of runs whose sums in lanes leave the range of f32, which
 * numbers of 1e17 and more do by their squares. Of 1e-16 and less nothing may be left there; lanes that have nothing at all are passed. */
static inline double far_run(uint32_t dtype, const char *x, int64_t i, int64_t end, float mean, int square) {
    double sum = 0;
    for (; i < end; i += VF_N) {
        float t[VF_N];
        vf v = qn_lanes_at(dtype, x, i, end);
        int64_t some = end - i < VF_N ? end - i : VF_N;
        vf_store(t, v);
        if (some == VF_N && vf_sum(vf_abs(v - vf_set1(mean))) == 0) continue;
        for (int64_t k = 0; k < some; k++) {
            double d = (double)t[k] - (double)mean;
            sum += square ? d * d : d;
        }
    }
    return sum;
}

QN_INLINE double sum_row(uint32_t dtype, const char *x, int64_t n) {
    double sum = 0;
    for (int64_t first = 0; first < n; first += RUN) {
        int64_t i = first, end = n < first + RUN ? n : first + RUN;
        vf a = vf_zero(), b = a, c = a, d = a; /* as many chains as hide an addition's time */
        for (; i + 4 * VF_N <= end; i += 4 * VF_N) {
            a += qn_lanes(dtype, x, i);
            b += qn_lanes(dtype, x, i + VF_N);
            c += qn_lanes(dtype, x, i + 2 * VF_N);
            d += qn_lanes(dtype, x, i + 3 * VF_N);
        }
        for (; i < end; i += VF_N) a += qn_lanes_at(dtype, x, i, end);
        float part = vf_sum((a + b) + (c + d));
        sum += part - part == 0 ? (double)part : far_run(dtype, x, first, end, 0, 0);
    }
    return sum;
}

/* Sums of d^2 and, where a mean was taken off, of d, for d = x - mean. */
typedef struct away_sums {
    double squares, d;
} away_sums;

QN_INLINE away_sums sums_away(uint32_t dtype, norm_kind kind, const char *x, int64_t n, float mean) {
    away_sums sum = {0, 0};
    vf m = vf_set1(mean);
    for (int64_t first = 0; first < n; first += RUN) {
        int64_t i = first, end = n < first + RUN ? n : first + RUN;
        vf a = vf_zero(), b = a, c = a, d = a, away = a;
        for (; i + 4 * VF_N <= end; i += 4 * VF_N) {
            vf p = qn_lanes(dtype, x, i) - m, q = qn_lanes(dtype, x, i + VF_N) - m;
            vf s = qn_lanes(dtype, x, i + 2 * VF_N) - m, t = qn_lanes(dtype, x, i + 3 * VF_N) - m;
            if (kind == CENTRED) away += (p + q) + (s + t);
            a = vf_fma(p, p, a);
            b = vf_fma(q, q, b);
            c = vf_fma(s, s, c);
            d = vf_fma(t, t, d);
        }
        for (; i + VF_N <= end; i += VF_N) {
            vf p = qn_lanes(dtype, x, i) - m;
            if (kind == CENTRED) away += p;
            a = vf_fma(p, p, a);
        }
        away_sums rest = {0, 0};
        if (i < end) {
            float t[VF_N];
            vf_store(t, qn_lanes_some(dtype, x, i, (int)(end - i)) - m);
            for (int64_t k = 0; k < end - i; k++) {
                rest.squares += (double)t[k] * (double)t[k];
                rest.d += (double)t[k];
            }
        }
        double part = (double)vf_sum((a + b) + (c + d)) + rest.squares;
        sum.squares += part < INFINITY && part > 1e-30 ? part : far_run(dtype, x, first, end, mean, 1);
        if (kind == CENTRED) sum.d += (double)vf_sum(away) + rest.d;
    }
    return sum;
}

/* The sum of squares about the mean itself, from sums about a number near it; *off: what that lacks of the mean. A mean from sums in lanes is off
 * by millionths of itself, which is more than all that is left of a row of nearly one number: there the difference could come out below 0. */
static inline double squares_about_mean(away_sums sums, double n, double *off) {
    *off = sums.d / n;
    if (!isfinite(*off)) *off = 0;
    double squares = sums.squares - n * *off * *off;
    return squares < 0 ? 0 : squares;
}

/* What the mean that is taken off lacks, times what it is multiplied with; nothing where that is no number. */
static inline double lost(double lacks, double a) {
    double v = lacks * a;
    return isfinite(v) ? v : 0;
}

/* What a row is multiplied by, from the sum of the squares of what is left of it. */
static inline double row_factor(norm_kind kind, double squares, int64_t n, double eps) {
    if (kind != LENGTH) return 1 / sqrt(squares / (double)n + eps);
    double length = sqrt(squares);
    return 1 / (length < eps ? eps : length);
}

/* The mean that is taken off a row, and what it is multiplied by. Returns the sum of the squares of what is left. */
QN_INLINE double row_moments(uint32_t dtype, norm_kind kind, const char *x, int64_t n, double eps, double *mean, double *r) {
    float near = kind == CENTRED ? (float)(sum_row(dtype, x, n) / (double)n) : 0;
    double off, squares = squares_about_mean(sums_away(dtype, kind, x, n, near), (double)n, &off);
    *mean = (double)near + off;
    *r = row_factor(kind, squares, n, eps);
    return squares;
}

/* Whether floats hold what a row is multiplied by, and how far its numbers are from their mean. They do not in rows of the least numbers there
 * are with an eps of 0, nor in rows of the largest of both signs. */
static inline int is_near(double r) { return r > 1e-30 && r < 1e38; }

static inline vf weight_at(const qn_tensor *t, int64_t i, int64_t n) { return qn_lanes_at(t->dtype, qn_at(t, 0), i, n); }

#endif
