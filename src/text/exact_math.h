/* exp, log and pow from additions and multiplications alone, so that a seed gives the same tokens on every machine; C
 * libraries differ in the last bit. Good to about 1e-15, for finite arguments (log: above 0). */
#ifndef QN_TEXT_EXACT_MATH_H
#define QN_TEXT_EXACT_MATH_H

#include <math.h>

static inline double qn_text_exp(double x) {
    if (x < -740) return 0;
    if (x > 709) return INFINITY;
    double k = floor(x * 1.4426950408889634 + 0.5);
    double r = x - k * 0.6931471803691238 - k * 1.9082149292705877e-10; /* ln 2 in two parts: |r| < 0.35 */
    double sum = 1;
    for (int i = 14; i > 0; i--) sum = 1 + sum * r / i;
    return ldexp(sum, (int)k);
}

static inline double qn_text_log(double x) {
    int k;
    double m = frexp(x, &k);
    if (m < 0.7071067811865476) m *= 2, k--;
    double s = (m - 1) / (m + 1), square = s * s, sum = 0;
    for (int i = 23; i > 0; i -= 2) sum = sum * square + 1.0 / i;
    return k * 0.6931471805599453 + 2 * s * sum;
}

static inline double qn_text_pow(double base, double exponent) {
    return base > 0 ? qn_text_exp(exponent * qn_text_log(base)) : 0;
}

#endif
