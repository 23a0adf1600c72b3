#version 450
// y = a FN b, b tiled over a. Numbers are those of arith.def.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "functions.glsl"
layout(local_size_x = 256) in;

void main() {
    uint i = group() * 256 + gl_LocalInvocationID.x;
    if (i >= count()) return;
    uvec4 at = walk(i);
    store(TYPE_Y, push.y, in_y(at), arith_of(FN, load(TYPE_A, push.a, in_a(at)), load(TYPE_B, push.b, in_b(at))));
}
