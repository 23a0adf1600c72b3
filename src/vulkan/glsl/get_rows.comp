#version 450
// Rows of a chosen by the indices in b. n: columns, indices, batches. nb[0]: rows there are. An index that is not one of them
// gives a row of zeros and leaves the step's number p[0] in the status word at p[2..3], which the host reads after the run.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "blocks.glsl"
layout(local_size_x = 256) in;

void main() {
    uint i = group() * 256 + gl_LocalInvocationID.x;
    if (i >= count()) return;
    uvec4 at = walk(i);
    int64_t where = int64_t(at.y) * push.sb[1] + int64_t(at.z) * push.sb[2] + int64_t(at.w) * push.sb[3];
    int row = int(Word32(push.b + uint64_t(where * 4)).v);
    int64_t to = in_y(at), from = in_a(uvec4(at.x, uint(row), at.zw));
    bool found = row >= 0 && uint(row) < push.nb[0];
    if (!found) atomicMin(Word32(address(2)).v, push.p[0]);
    if (TYPE_A == RAW32) Word32(push.y + uint64_t(to * 4)).v = found ? Word32(push.a + uint64_t(from * 4)).v : 0;
    else if (TYPE_A >= Q4_0) // strides are bytes, and the element is found inside the row
        store(TYPE_Y, push.y, to, found ? block_element(TYPE_A, push.a + uint64_t(in_a(uvec4(0, uint(row), at.zw))), at.x) : 0.0);
    else store(TYPE_Y, push.y, to, found ? load(TYPE_A, push.a, from) : 0.0);
}
