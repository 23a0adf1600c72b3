#version 450
// Optimiser steps, in place. FN 0 adamw: w 0, m 1, v 2, gradient 3, numbers 4. FN 1 sgd: w 0, gradient 3, numbers 4. FN 2 accumulate:
// sum 0, more 3, keep 4; p[2]: scale. The numbers are read by every lane: strides along them are those of axis 0, taken by hand.
// p[4..5]: the status word. Nothing is learnt from what an index out of range gave.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "many.glsl"
layout(local_size_x = 256) in;

float hyper(uint i) {
    Operands o = Operands(address(0));
    return load(TYPE_4, o.base[4], int64_t(i) * int(push.p[3]));
}

void main() {
    uint i = group() * 256 + gl_LocalInvocationID.x;
    if (i >= count() || !all_is_well(address(4))) return;
    uvec4 at = walk(i);
    float w = get(0, at), g = get(3, at);
    if (FN == 2) {
        float left = has(4) ? hyper(0) : 1.0;
        put(0, at, (left == 0.0 ? 0.0 : left * w) + number(2) * g);
        return;
    }
    float alpha = hyper(0);
    if (FN == 1) {
        put(0, at, w * (1.0 - alpha * hyper(1)) - alpha * g);
        return;
    }
    float m = hyper(1) * get(1, at) + (1.0 - hyper(1)) * g, v = hyper(2) * get(2, at) + (1.0 - hyper(2)) * g * g;
    put(0, at, w * (1.0 - alpha * hyper(4)) - alpha * (m * hyper(5)) / (sqrt(v * hyper(6)) + hyper(3)));
    put(1, at, m);
    put(2, at, v);
}
