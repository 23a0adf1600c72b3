#version 450
// y = a FN b, b tiled over a. Numbers are those of arith.def.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
layout(local_size_x = 256) in;

float apply(float a, float b) {
    switch (FN) {
    case 0: return a + b;
    case 1: return a - b;
    case 2: return a * b;
    case 3: return a / b;
    case 4: return is_nan(a) || is_nan(b) ? not_a_number() : b > a ? b : a;
    default: return is_nan(a) || is_nan(b) ? not_a_number() : b < a ? b : a;
    }
}

void main() {
    uint i = group() * 256 + gl_LocalInvocationID.x;
    if (i >= count()) return;
    uvec4 at = walk(i);
    store(TYPE_Y, push.y, in_y(at), apply(load(TYPE_A, push.a, in_a(at)), load(TYPE_B, push.b, in_b(at))));
}
