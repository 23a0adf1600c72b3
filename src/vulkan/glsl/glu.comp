#version 450
// y = act(u) v: u in a, v in b, which may be two halves of one tensor. FN as in glu.def. p: alpha, limit.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "functions.glsl"
layout(local_size_x = 256) in;

float apply(float u, float v) {
    switch (FN) {
    case 0: return u <= 0.0 ? 0.0 : u * v;
    case 1: return gelu(u) * v;
    case 2: return silu(u) * v;
    case 3: {
        float limit = number(1), cu = u > limit ? limit : u, cv = v > limit ? limit : v < -limit ? -limit : v;
        return gate(cu, sigmoid(number(0) * cu)) * (cv + 1.0);
    }
    case 4: return gelu_erf(u) * v;
    default: return gelu_quick(u) * v;
    }
}

void main() {
    uint i = group() * 256 + gl_LocalInvocationID.x;
    if (i >= count()) return;
    uvec4 at = walk(i);
    store(TYPE_Y, push.y, in_y(at), apply(load(TYPE_A, push.a, in_a(at)), load(TYPE_B, push.b, in_b(at))));
}
