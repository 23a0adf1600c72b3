#version 450
// Gradients of glu: g 0, u 1, v 2, du 3, dv 4; either of the last two may be missing. FN as in glu.def. p[2]: alpha, p[3]: limit.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "functions.glsl"
#include "many.glsl"
layout(local_size_x = 256) in;

// The gate of u and its slope.
vec2 gate_of(float u) {
    switch (FN) {
    case 1: return vec2(gelu(u), gelu_slope(u));
    case 2: return vec2(silu(u), silu_slope(u));
    case 4: return vec2(gelu_erf(u), gelu_erf_slope(u));
    default: return vec2(gelu_quick(u), quick_slope(u));
    }
}

void main() {
    uint i = group() * 256 + gl_LocalInvocationID.x;
    if (i >= count()) return;
    uvec4 at = walk(i);
    float g = get(0, at), u = get(1, at), v = get(2, at), du, dv;
    if (FN == 0) { // 0 below 0 even where v is Inf or NaN; NaN stays
        bool is_shut = sign_of(u) <= 0 && !is_nan(u);
        du = is_shut ? 0.0 : v;
        dv = is_shut ? 0.0 : u;
    } else if (FN == 3) {
        float alpha = number(2), limit = number(3), cu = is_nan(u) || u <= limit ? u : limit;
        float cv = is_nan(v) ? v : v > limit ? limit : v < -limit ? -limit : v;
        float s = sigmoid(alpha * cu);
        du = u <= limit && !is_nan(u) ? (cv + 1.0) * (s + bend(alpha * cu, s * sigmoid(-alpha * cu))) : 0.0;
        dv = abs(v) <= limit && !is_nan(v) ? gate(cu, s) : 0.0;
    } else {
        vec2 act = gate_of(u);
        du = act.y * v;
        dv = act.x;
    }
    if (has(3)) put(3, at, g * du);
    if (has(4)) put(4, at, g * dv);
}
