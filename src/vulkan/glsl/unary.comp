#version 450
// y = FN(x). Numbers below 32 are the sub-ops of unary in the order of unary.def; above are ops of their own (vk_kernels.def).
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "functions.glsl"
layout(local_size_x = 256) in;

// p: alpha_n, alpha_p, beta, eps
float xielu(float x) {
    if (x > 0.0) return number(1) * x * x + number(2) * x;
    return (exp_minus_1(x < number(3) || is_nan(x) ? x : number(3)) - x) * number(0) + number(2) * x;
}

float clamped(float x) { return is_nan(x) ? x : x < number(0) ? number(0) : x > number(1) ? number(1) : x; }

float apply(float x) {
    switch (FN) {
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
    case 17: return xielu(x);
    case 18: return floor_of(x);
    case 19: return ceil_of(x);
    case 20: return round_away(x);
    case 21: return trunc(x);
    case 32: return x * x;
    case 33: return x < 0.0 ? not_a_number() : sqrt(x);
    case 34: return log_of(x);
    case 35: return sine_cosine(x).x;
    case 36: return sine_cosine(x).y;
    case 37: return number(0) * x + number(1);
    case 38: return clamped(x);
    case 39: return x > 0.0 || is_nan(x) ? x : number(0) * x;
    default: return number(0); // fill
    }
}

void main() {
    uint i = group() * 256 + gl_LocalInvocationID.x;
    if (i >= count()) return;
    uvec4 at = walk(i);
    store(TYPE_Y, push.y, in_y(at), apply(load(TYPE_A, push.a, in_a(at))));
}
