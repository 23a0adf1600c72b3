#version 450
// y = the word p[0], everywhere.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
layout(local_size_x = 256) in;

void main() {
    uint i = group() * 256 + gl_LocalInvocationID.x;
    if (i < count()) Word32(push.y + uint64_t(in_y(walk(i)) * 4)).v = push.p[0];
}
