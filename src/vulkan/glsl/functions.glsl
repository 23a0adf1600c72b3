// Scalar functions. The language promises little about its own (tanh may overflow, sine is good to 2^-11), so what needs to be
// accurate is written out here.

// Sine and cosine of `quarters` quarter turns plus r, |r| <= pi/4.
vec2 turn_by(int quarters, float r) {
    float z = r * r;
    float s = r + r * z * (-1.6666654611e-1 + z * (8.3321608736e-3 - z * 1.9515295891e-4));
    float c = 1.0 - 0.5 * z + z * z * (4.166664568298827e-2 + z * (-1.388731625493765e-3 + z * 2.443315711809948e-5));
    vec2 sc = (quarters & 1) != 0 ? vec2(c, -s) : vec2(s, c);
    return (quarters & 2) != 0 ? -sc : sc;
}

// 2/pi from its first bit on, behind a word of zero.
const uint TWO_OVER_PI[8] = uint[8](0u, 0xa2f9836eu, 0x4e441529u, 0xfc2757d1u, 0xf534ddc0u, 0xdb629599u, 0x3c439041u, 0xfe5163abu);

// Of x, at least 1, as quarter turns in 2^-62: the bits of 2/pi that whole turns come from are left out, and of the rest 96 are taken.
vec2 far_sine_cosine(float x) {
    uint u = floatBitsToUint(x), from = (u >> 23 & 255u) - 120u, word = from / 32u, shift = from % 32u;
    uint64_t m = uint64_t((u & 0x7fffffu) | 0x800000u), part[3];
    for (uint i = 0; i < 3; i++)
        part[i] = ((uint64_t(TWO_OVER_PI[word + i]) << 32 | uint64_t(TWO_OVER_PI[word + i + 1])) << shift) >> 32;
    uint64_t turns = ((m * part[0]) << 32) + m * part[1] + ((m * part[2]) >> 32);
    uint quarters = (uint(turns >> 32) + 0x20000000u) >> 30; // the nearest, and what is left of it
    vec2 sc = turn_by(int(quarters), float(int64_t(turns - (uint64_t(quarters) << 62))) * 3.4061215800865545e-19);
    return x < 0.0 ? vec2(-sc.x, sc.y) : sc;
}

vec2 sine_cosine(float x) {
    if (!is_finite(x)) return vec2(not_a_number());
    if (abs(x) > 8192.0) return far_sine_cosine(x); // from there on the reduction below loses digits as x does
    float q = floor(x * 0.636619772367581 + 0.5);
    precise float r = x - q * 1.5703125;
    r = r - q * 4.837512969970703e-4;
    r = r - q * 7.549789948768648e-8;
    return turn_by(int(mod(q, 4.0)), r);
}

float exp_minus_1(float x) {
    if (is_nan(x)) return x;
    if (abs(x) > 0.25) return exp(x) - 1.0;
    return x * (1.0 + x * (0.5 + x * (1.0 / 6.0 + x * (1.0 / 24.0 + x * (1.0 / 120.0 + x * (1.0 / 720.0 + x / 5040.0))))));
}

float log_1_plus(float x) {
    if (abs(x) > 0.125) return log(1.0 + x);
    return x * (1.0 - x * (0.5 - x * (1.0 / 3.0 - x * (0.25 - x * (0.2 - x * (1.0 / 6.0 - x / 7.0))))));
}

// Numbers below the normal range are taken as integers: a device may treat them as 0.
float log_of(float x) {
    uint u = floatBitsToUint(x), size = u & 0x7fffffffu;
    if (size == 0) return -infinity();
    if (u > 0x80000000u) return not_a_number();
    return size < 0x00800000u ? log(float(size)) - 103.27892990343184 : log(x); // 149 ln 2
}

// 1, -1, or 0 for 0 and NaN; by its bits, for the same reason. And the integers around such a number.
int sign_of(float x) {
    uint u = floatBitsToUint(x), size = u & 0x7fffffffu;
    return size == 0 || size > 0x7f800000u ? 0 : (u >> 31) != 0 ? -1 : 1;
}
bool is_tiny(float x) { return (floatBitsToUint(x) & 0x7fffffffu) < 0x00800000u; }
float floor_of(float x) { return is_tiny(x) ? float(min(sign_of(x), 0)) : floor(x); }
float ceil_of(float x) { return is_tiny(x) ? float(max(sign_of(x), 0)) : ceil(x); }

float sigmoid(float x) {
    float e = exp(-abs(x));
    float big = 1.0 / (1.0 + e);
    return is_nan(x) ? x : x >= 0.0 ? big : e / (1.0 + e);
}

float tanh_of(float x) {
    if (is_nan(x)) return x;
    float e = exp_minus_1(-2.0 * min(abs(x), 20.0)), t = -e / (e + 2.0);
    return x < 0.0 ? -t : t;
}

// Upper tail 1 - erf x for x >= 0, relative error about 1e-7: a rational in 1 / (1 + x / 2) under e^(-x^2).
float tail(float x) {
    float t = 1.0 / (1.0 + 0.5 * x);
    float k = -1.26551223 + t * (1.00002368 + t * (0.37409196 + t * (0.09678418 + t * (-0.18628806 + t * (0.27886807 +
              t * (-1.13520398 + t * (1.48851587 + t * (-0.82215223 + t * 0.17087277))))))));
    return t * exp(k - x * x);
}

// x s where s falls to 0 faster than x grows.
float gate(float x, float s) { return s == 0.0 ? 0.0 : x * s; }
float gelu(float x) { return gate(x, 0.5 * (1.0 + tanh_of(0.7978845608028654 * x * (1.0 + 0.044715 * x * x)))); }
float gelu_quick(float x) { return gate(x, sigmoid(1.702 * x)); }
float silu(float x) { return gate(x, sigmoid(x)); }
float gelu_erf(float x) {
    if (is_nan(x)) return x;
    float upper = 0.5 * tail(abs(x) * 0.7071067811865476);
    return gate(x, x < 0.0 ? upper : 1.0 - upper);
}
float hard_sigmoid(float x) { return is_nan(x) ? x : x <= -3.0 ? 0.0 : x >= 3.0 ? 1.0 : (x + 3.0) / 6.0; }
float round_away(float x) {
    if (is_nan(x)) return x;
    float t = trunc(x);
    return abs(x - t) >= 0.5 ? t + sign(x) : t;
}

float sine(float x) { return sine_cosine(x).x; }
float cosine(float x) { return sine_cosine(x).y; }
float root(float x) {
    uint u = floatBitsToUint(x), size = u & 0x7fffffffu;
    if (size == 0 || size > 0x7f800000u) return x;
    if (u > 0x80000000u) return not_a_number();
    return size < 0x00800000u ? sqrt(float(size)) * 3.743392066509216e-23 : sqrt(x); // 2^-74.5
}

// Three ranges that end at tan(pi/8) and tan(3pi/8), and a polynomial for the first.
float arc_tangent(float x) {
    if (is_nan(x)) return x;
    float t = abs(x), y = 0.0;
    if (t > 2.414213562373095) y = 1.5707963267948966, t = -1.0 / t;
    else if (t > 0.4142135623730950) y = 0.7853981633974483, t = (t - 1.0) / (t + 1.0);
    float z = t * t;
    y += (((8.05374449538e-2 * z - 1.38776856032e-1) * z + 1.99777106478e-1) * z - 3.33329491539e-1) * z * t + t;
    return x < 0.0 ? -y : y;
}

float error_function(float x) {
    float a = abs(x), z = x * x;
    if (is_nan(x)) return x;
    if (a < 0.5)
        return x * (1.1283791670955126 + z * (-0.3761263890318375 + z * (0.1128379167095513 + z * (-0.0268661706451313 +
               z * (0.0052239776254422 - z * 0.0008548327023451)))));
    float y = 1.0 - tail(a);
    return x < 0.0 ? -y : y;
}

float round_even(float x) {
    if (is_nan(x) || abs(x) >= 8388608.0) return x;
    float low = floor_of(x), part = x - low;
    if (part > 0.5 || (part == 0.5 && mod(low, 2.0) != 0.0)) low += 1.0;
    return x < 0.0 ? -abs(low) : low;
}

float log_2(float x) { return log_of(x) * 1.4426950408889634; }

// Sub-ops of unary, in the order of unary.def; not xielu, which has parameters.
float unary_of(const in uint fn, const in float x) {
    switch (fn) {
    case 0: return abs(x);
    case 1: return float(sign_of(x));
    case 2: return -x;
    case 3: return sign_of(x) > 0 ? 1.0 : 0.0;
    case 4: return tanh_of(x);
    case 5: return x > 0.0 ? x : exp_minus_1(x);
    case 6: return x > 0.0 || is_nan(x) ? x : 0.0;
    case 7: return sigmoid(x);
    case 8: return gelu(x);
    case 9: return gelu_quick(x);
    case 10: return silu(x);
    case 11: return gate(x, hard_sigmoid(x));
    case 12: return hard_sigmoid(x);
    case 13: return exp(x);
    case 14: return exp_minus_1(x);
    case 15: return x > 20.0 || is_nan(x) ? x : log_1_plus(exp(x));
    case 16: return gelu_erf(x);
    case 18: return floor_of(x);
    case 19: return ceil_of(x);
    case 20: return round_away(x);
    case 21: return trunc(x);
    default: return not_a_number();
    }
}

// A bell that falls to 0 faster than x grows, times x.
float bend(float x, float bell) { return bell == 0.0 ? 0.0 : x * bell; }

float gelu_slope(float x) {
    float t = tanh_of(0.7978845608028654 * x * (1.0 + 0.044715 * x * x));
    return 0.5 * (1.0 + t) + bend(x, 0.5 * (1.0 - t * t)) * 0.7978845608028654 * (abs(t) == 1.0 ? 1.0 : 1.0 + 0.134145 * x * x);
}
float quick_slope(float x) {
    float s = sigmoid(1.702 * x);
    return s + bend(1.702 * x, s * sigmoid(-1.702 * x));
}
float silu_slope(float x) {
    float s = sigmoid(x);
    return s + bend(x, s * sigmoid(-x));
}
float gelu_erf_slope(float x) {
    if (is_nan(x)) return x;
    float upper = 0.5 * tail(abs(x) * 0.7071067811865476);
    return (x < 0.0 ? upper : 1.0 - upper) + bend(x, 0.3989422804014327 * exp(-0.5 * x * x));
}

float unary_slope(const in uint fn, const in float x) {
    switch (fn) {
    case 0: return float(sign_of(x));
    case 2: return -1.0;
    case 4: {
        float e = exp(-2.0 * abs(x)); // 1 - tanh^2, without taking it from 1
        return is_nan(x) ? x : 4.0 * e / ((1.0 + e) * (1.0 + e));
    }
    case 5: return x > 0.0 ? 1.0 : exp(x);
    case 6: return x > 0.0 ? 1.0 : 0.0;
    case 7: return sigmoid(x) * sigmoid(-x);
    case 8: return gelu_slope(x);
    case 9: return quick_slope(x);
    case 10: return silu_slope(x);
    case 11: return x <= -3.0 ? 0.0 : x >= 3.0 ? 1.0 : (2.0 * x + 3.0) / 6.0;
    case 12: return abs(x) < 3.0 ? 1.0 / 6.0 : 0.0;
    case 13: return exp(x);
    case 14: return exp(x);
    case 15: return x > 20.0 ? 1.0 : sigmoid(x);
    case 16: return gelu_erf_slope(x);
    default: return 0.0; // steps and roundings
    }
}

// Sub-ops of math, in the order of math.def.
float math_of(const in uint fn, const in float x) {
    switch (fn) {
    case 0: return 1.0 / root(x);
    case 1: return sine(x) / cosine(x);
    case 2: return arc_tangent(x);
    case 3: return round_even(x);
    case 4: return x < -1.0 ? not_a_number() : log_1_plus(x);
    case 5: return error_function(x);
    case 6: return 1.0 / x;
    case 7: return exp2(x);
    default: return log_2(x);
    }
}

float math_slope(const in uint fn, const in float x) {
    switch (fn) {
    case 0: return -0.5 / (x * root(x));
    case 1: {
        float c = cosine(x);
        return 1.0 / (c * c);
    }
    case 2: return 1.0 / (1.0 + x * x);
    case 3: return 1.0;
    case 4: return 1.0 / (1.0 + x);
    case 5: return 1.1283791670955126 * exp(-x * x);
    case 6: return -1.0 / (x * x);
    case 7: return 0.6931471805599453 * exp2(x);
    default: return 1.0 / (0.6931471805599453 * x);
    }
}

// a to the power b: the size by logarithms, signs and ends by hand.
float power(float a, float b) {
    if (b == 0.0 || a == 1.0) return 1.0;
    if (is_nan(a) || is_nan(b)) return not_a_number();
    bool whole = abs(b) >= 16777216.0 || floor(b) == b, odd = whole && abs(b) < 16777216.0 && mod(b, 2.0) != 0.0;
    if (is_zero(a)) {
        float end = b > 0.0 ? 0.0 : infinity();
        return odd && (floatBitsToUint(a) >> 31) != 0 ? -end : end;
    }
    if (abs(a) == 1.0 && whole) return odd ? a : 1.0; // -1
    if (sign_of(a) < 0 && !whole && a != -infinity()) return not_a_number();
    uint bits = floatBitsToUint(a); // by them, as abs and comparisons may take small numbers for 0
    float size = exp2(b * log_2(uintBitsToFloat(bits & 0x7fffffffu)));
    return (bits >> 31) != 0 && odd ? -size : size;
}

// Remainder with the sign of b, exact: b is taken away in halves of the largest multiple by a power of two.
float remainder_of(float a, float b) {
    float r = abs(a), d = abs(b);
    if (is_nan(a) || is_nan(b) || r == infinity() || is_zero(b)) return not_a_number();
    if (d != infinity() && r >= d) {
        int steps = int(floatBitsToUint(r) >> 23) - int(floatBitsToUint(d) >> 23);
        float part = ldexp(d, steps);
        for (; steps >= 0; steps--) {
            if (r >= part) r -= part;
            part *= 0.5;
        }
    }
    if (is_zero(r)) return b < 0.0 ? -0.0 : 0.0;
    r = a < 0.0 ? -r : r;
    return (r < 0.0) != (b < 0.0) ? r + b : r;
}

// Sub-ops of arith, in the order of arith.def. Never contracted: a product that is added to later has been rounded before.
float arith_of(const in uint fn, const in float a, const in float b) {
    precise float y;
    switch (fn) {
    case 0: y = a + b; break;
    case 1: y = a - b; break;
    case 2: y = a * b; break;
    case 3: y = a / b; break;
    case 4: y = is_nan(a) || is_nan(b) ? not_a_number() : b > a ? b : a; break;
    case 5: y = is_nan(a) || is_nan(b) ? not_a_number() : b < a ? b : a; break;
    case 6: y = power(a, b); break;
    default: y = remainder_of(a, b); break;
    }
    return y;
}
