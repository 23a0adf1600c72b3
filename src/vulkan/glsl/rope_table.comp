#version 450
// Rotary embedding from tables, in place: y 0, cosines 1, sines 2. n: pairs, heads, tokens, what is in front. A lane turns one pair:
// channels i p[2] and i p[2] + p[3], p[4] being the sine's sign. nb, sb: positions by token and by what is in front, at push.b when there
// are any; their number must be below nb[0], else the step's number goes to the status word at the address in sa[0..1].
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "many.glsl"
layout(local_size_x = 256) in;

void main() {
    uint number_of = group() * 256 + gl_LocalInvocationID.x;
    if (number_of >= count()) return;
    uvec4 at = walk(number_of);
    Operands o = Operands(address(0));
    uint row = at.z;
    if (push.b != 0) row = Word32(push.b + uint64_t((int64_t(at.z) * push.sb[2] + int64_t(at.w) * push.sb[3]) * 4)).v;
    if (row >= push.nb[0]) {
        atomicMin(Word32(uint64_t(uint(push.sa[0])) | uint64_t(uint(push.sa[1])) << 32).v, uint(push.sa[2]));
        return;
    }
    int64_t u = spot(0, uvec4(at.x * push.p[2], at.yzw)), v = spot(0, uvec4(at.x * push.p[2] + push.p[3], at.yzw));
    float c = load(TYPE_1, o.base[1], int64_t(at.x) * o.stride[1].x + int64_t(row) * int(push.nb[1]));
    float s = number(4) * load(TYPE_2, o.base[2], int64_t(at.x) * o.stride[2].x + int64_t(row) * int(push.nb[2]));
    float a = load(TYPE_0, o.base[0], u), b = load(TYPE_0, o.base[0], v);
    store(TYPE_0, o.base[0], u, a * c - b * s);
    store(TYPE_0, o.base[0], v, a * s + b * c);
}
