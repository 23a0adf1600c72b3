#version 450
// FN 0: copies in logical order from one shape (nb, sa) into another (n, sy). FN 1: tiles b (nb, sb) over n. Equal dtypes travel as raw words, so every bit arrives.
// p[0..1]: the status word, of a copy that is left out when an index was out of range; else 0.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
layout(local_size_x = 256) in;

void main() {
    uint i = group() * 256 + gl_LocalInvocationID.x;
    if (i >= count() || (address(0) != 0 && !all_is_well(address(0)))) return;
    uvec4 at = walk(i);
    int64_t to = in_y(at), from = FN == 1 ? in_b(at) : in_a(unravel(i, push.nb[0], push.nb[1], push.nb[2]));
    uint64_t source = FN == 1 ? push.b : push.a;
    if (TYPE_A == RAW8) Word8(push.y + uint64_t(to)).v = Word8(source + uint64_t(from)).v;
    else if (TYPE_A == RAW16) Word16(push.y + uint64_t(to * 2)).v = Word16(source + uint64_t(from * 2)).v;
    else if (TYPE_A == RAW32) Word32(push.y + uint64_t(to * 4)).v = Word32(source + uint64_t(from * 4)).v;
    else if (TYPE_A == RAW64) Word64(push.y + uint64_t(to * 8)).v = Word64(source + uint64_t(from * 8)).v;
    else store(TYPE_Y, push.y, to, load(TYPE_A, source, from));
}
