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

// For arguments up to some ten thousand; beyond that the reduction loses digits as x does.
vec2 sine_cosine(float x) {
    if (!(abs(x) < infinity())) return vec2(not_a_number());
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
