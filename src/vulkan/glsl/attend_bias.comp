#version 450
// The gradient of an attention's bias, after attend.comp kept what it needs: a lane per element, which adds up all scores that the bias
// was stretched over. n: keys, queries, heads and batches of the bias.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "functions.glsl"
layout(local_size_x = 256) in;
#include "attend.glsl"

void main() {
    Block B = Block(address(0));
    uint number_of = group() * 256 + gl_LocalInvocationID.x;
    if (number_of >= count()) return;
    uvec4 at = walk(number_of);
    uint b_from = push.n[3] == 1 ? 0 : at.w, b_end = push.n[3] == 1 ? B.batches : at.w + 1;
    uint h_from = push.n[2] == 1 ? 0 : at.z, h_end = push.n[2] == 1 ? B.heads : at.z + 1;
    uint i_from = push.n[1] == 1 ? 0 : at.y, i_end = push.n[1] == 1 ? B.queries : at.y + 1;
    float sum = 0.0;
    for (uint b = b_from; b < b_end; b++)
        for (uint h = h_from; h < h_end; h++)
            for (uint i = i_from; i < i_end; i++) {
                float bias = load(TYPE_M, B.mask, int64_t(at.x) * B.sm[0] + base_of(B.sm[1], B.sm[2], B.sm[3], b, h, i));
                if (bias == -infinity()) continue;
                float x = 0.0, pay = 0.0;
                int64_t q = base_of(B.sq[1], B.sq[2], B.sq[3], b, h, i), k = base_of(B.sk[1], B.sk[2], B.sk[3], b, h / B.group, at.x);
                int64_t g = base_of(B.sg[1], B.sg[2], B.sg[3], b, h, i), v = base_of(B.sv[1], B.sv[2], B.sv[3], b, h / B.group, at.x);
                for (uint c = 0; c < B.d_q; c++)
                    x += load(TYPE_Q, B.q, q + int64_t(c) * B.sq[0]) * load(TYPE_K, B.k, k + int64_t(c) * B.sk[0]);
                for (uint c = 0; B.g != 0 && c < B.d_v; c++)
                    pay += load(TYPE_G, B.g, g + int64_t(c) * B.sg[0]) * load(TYPE_V, B.v, v + int64_t(c) * B.sv[0]);
                x *= B.scale;
                if (B.cap != 0.0) x = B.cap * tanh_of(x / B.cap);
                uint64_t kept = B.kept + uint64_t(((b * B.heads + h) * B.queries + i) * 2) * 4;
                sum += exp(x + bias - uintBitsToFloat(Word32(kept).v)) * (pay - uintBitsToFloat(Word32(kept + 4).v));
            }
    store(TYPE_OUT, push.y, in_y(at), sum);
}
