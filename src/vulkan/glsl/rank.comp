#version 450
// Where each element belongs in its row once that is sorted: a lane counts those before it and writes its index there. NaN is above
// everything and equal ones keep their order, so there is one answer. FN 1: from the largest down. p[0]: places that are wanted.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
layout(local_size_x = 256) in;

void main() {
    uint number_of = group() * 256 + gl_LocalInvocationID.x;
    if (number_of >= count()) return;
    uvec4 at = walk(number_of);
    uint i = at.x, place_of = 0;
    at.x = 0;
    int64_t from = in_a(at);
    int mine = order_of(load(TYPE_A, push.a, from + int64_t(i) * push.sa[0]));
    for (uint k = 0; k < push.n[0]; k++) {
        int other = order_of(load(TYPE_A, push.a, from + int64_t(k) * push.sa[0]));
        bool before = FN == 1 ? other > mine : other < mine;
        place_of += uint(before || (other == mine && k < i));
    }
    if (place_of < push.p[0]) Word32(push.y + uint64_t((in_y(at) + int64_t(place_of) * push.sy[0]) * 4)).v = i;
}
