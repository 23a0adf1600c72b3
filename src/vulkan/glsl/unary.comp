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
    case 17: return xielu(x);
    case 32: return x * x;
    case 33: return root(x);
    case 34: return log_of(x);
    case 35: return sine(x);
    case 36: return cosine(x);
    case 37: return number(0) * x + number(1);
    case 38: return clamped(x);
    case 39: return x > 0.0 || is_nan(x) ? x : number(0) * x;
    case 40: return number(0); // fill
    default: return unary_of(FN, x);
    }
}

void main() {
    uint i = group() * 256 + gl_LocalInvocationID.x;
    if (i >= count()) return;
    uvec4 at = walk(i);
    store(TYPE_Y, push.y, in_y(at), apply(load(TYPE_A, push.a, in_a(at))));
}
