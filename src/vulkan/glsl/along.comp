#version 450
// Elements chosen by index along the fastest axis, each lane of it by its own indices (b). FN 0: gather_along, y over the shape of the
// indices, as words. 1: scatter_along_add, onto y, whose shape is walked; nb[0] indices to a lane, taken in their order. 2: one_hot:
// p[4] where the index is the place, else p[5]. nb[1]: places there are; p[0]: the step, p[1]: 1 when indices have 64 bits, p[2..3]:
// the status word.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
layout(local_size_x = 256) in;

const uint NOWHERE = 0xffffffffu;

uint place_at(int64_t at) {
    if (push.p[1] == 1) {
        uvec2 w = Word64(push.b + uint64_t(at * 8)).v;
        return w.y != 0 || w.x >= push.nb[1] ? NOWHERE : w.x;
    }
    uint w = Word32(push.b + uint64_t(at * 4)).v;
    return w >= push.nb[1] ? NOWHERE : w;
}

void main() {
    uint i = group() * 256 + gl_LocalInvocationID.x;
    if (i >= count()) return;
    uvec4 at = walk(i), lane = uvec4(0, at.yzw);
    int64_t indices = place(lane, push.sb[0], push.sb[1], push.sb[2], push.sb[3]), to = in_y(at);
    if (FN == 1) {
        float sum = load(TYPE_Y, push.y, to);
        for (uint j = 0; j < push.nb[0]; j++) {
            uint m = place_at(indices + int64_t(j) * push.sb[0]);
            if (m == NOWHERE) atomicMin(Word32(address(2)).v, push.p[0]);
            if (m == at.x) sum += load(TYPE_A, push.a, in_a(uvec4(j, at.yzw)));
        }
        store(TYPE_Y, push.y, to, sum);
        return;
    }
    uint m = place_at(indices + (FN == 0 ? int64_t(at.x) * push.sb[0] : 0));
    if (m == NOWHERE) atomicMin(Word32(address(2)).v, push.p[0]);
    if (FN == 2) {
        store(TYPE_Y, push.y, to, m == at.x ? number(4) : number(5));
        return;
    }
    if (m == NOWHERE) return;
    uint64_t size = bytes_of(TYPE_A), source = push.a + uint64_t(in_a(uvec4(m, at.yzw))) * size, target = push.y + uint64_t(to) * size;
    if (TYPE_A == RAW8) Word8(target).v = Word8(source).v;
    else if (TYPE_A == RAW16) Word16(target).v = Word16(source).v;
    else if (TYPE_A == RAW32) Word32(target).v = Word32(source).v;
    else Word64(target).v = Word64(source).v;
}
