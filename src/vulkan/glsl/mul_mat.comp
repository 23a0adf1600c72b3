#version 450
// y[j][i] = sum over k of b[j][k] a[i][k]: both operands hold the summed axis last. A workgroup makes a tile of 64 by 64, a lane
// 4 by 4 of it; slices of 16 along k go through shared memory. Every element of y adds up runs of 32 products and then the runs,
// each in the order of k, as mul_vec.comp does: its bits depend neither on the tile nor on the batch. a may have a block type: its
// strides are then bytes.
// n: i, j, batches. p: extent of k, how many batches of b share one of a (two axes).
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "blocks.glsl"
layout(local_size_x = 256) in;

const uint TILE = 64, SLICE = 16, RUN = 2 * SLICE, PITCH = TILE + 4;
shared float part_a[SLICE * PITCH];
shared float part_b[SLICE * PITCH];

void main() {
    uint lane = gl_LocalInvocationID.x, k_end = push.p[0];
    uint i0 = gl_WorkGroupID.x * TILE, j0 = gl_WorkGroupID.y * TILE;
    uint batch3 = gl_WorkGroupID.z / push.n[2], batch2 = gl_WorkGroupID.z - batch3 * push.n[2];
    int64_t base_a = int64_t(batch2 / push.p[1]) * push.sa[2] + int64_t(batch3 / push.p[2]) * push.sa[3];
    int64_t base_b = int64_t(batch2) * push.sb[2] + int64_t(batch3) * push.sb[3];
    uint li = lane % 16, lj = lane / 16;
    float sum[16], run[16];
    for (uint e = 0; e < 16; e++) sum[e] = run[e] = 0.0;
    for (uint k0 = 0; k0 < k_end; k0 += SLICE) {
        for (uint e = lane; e < TILE * SLICE; e += 256) {
            uint r = e / SLICE, k = e % SLICE;
            bool in_k = k0 + k < k_end;
            float va = 0.0, vb = 0.0;
            int64_t at_a = base_a + int64_t(i0 + r) * push.sa[1] + int64_t(k0 + k) * push.sa[0];
            int64_t at_b = base_b + int64_t(j0 + r) * push.sb[1] + int64_t(k0 + k) * push.sb[0];
            if (in_k && i0 + r < push.n[0])
                va = TYPE_A >= Q4_0 ? block_element(TYPE_A, push.a + uint64_t(base_a + int64_t(i0 + r) * push.sa[1]), k0 + k)
                                    : load(TYPE_A, push.a, at_a);
            if (in_k && j0 + r < push.n[1]) vb = load(TYPE_B, push.b, at_b);
            part_a[k * PITCH + r] = va;
            part_b[k * PITCH + r] = vb;
        }
        barrier();
        uint most = min(SLICE, k_end - k0); // zeros behind the end would turn a sum of Inf into NaN
        for (uint k = 0; k < most; k++) {
            float va[4], vb[4];
            for (uint e = 0; e < 4; e++) {
                va[e] = part_a[k * PITCH + li + 16 * e];
                vb[e] = part_b[k * PITCH + lj + 16 * e];
            }
            for (uint e = 0; e < 16; e++) run[e] = fma(va[e % 4], vb[e / 4], run[e]);
        }
        if (k0 % RUN != 0 || k0 + SLICE >= k_end)
            for (uint e = 0; e < 16; e++) {
                sum[e] += run[e];
                run[e] = 0.0;
            }
        barrier();
    }
    for (uint e = 0; e < 16; e++) {
        uint i = i0 + li + 16 * (e % 4), j = j0 + lj + 16 * (e / 4);
        if (i >= push.n[0] || j >= push.n[1]) continue;
        store(TYPE_Y, push.y, int64_t(i) * push.sy[0] + int64_t(j) * push.sy[1] + int64_t(batch2) * push.sy[2] +
                              int64_t(batch3) * push.sy[3], sum[e]);
    }
}
