#version 450
// Softmax attention, one workgroup a query. Keys come 256 at a time: a lane scores one key, the workgroup finds the maximum and
// the sum so far, then a lane adds up one or two channels of the values. What it is told does not fit the push constants: p[0..1]
// is the address of it. FN bit 0: there is a mask; bit 1: there are sinks. TYPE_A is the keys', TYPE_B the values', TYPE_Y the
// mask's. Keys and values may have a block type: their strides are then bytes.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "functions.glsl"
#include "blocks.glsl"
#include "rows.glsl"

const uint WIDTH = 512; // channels of a head at most

// Must agree with attention_block in vk_pack_attention.c.
layout(buffer_reference, std430, buffer_reference_align = 8) readonly buffer Block {
    uint64_t q, k, v, mask, sinks, y;
    uint queries, heads, batches, keys, channels, wide, group, full;
    float scale, cap, slope, unused;
    int sq[4], sk[4], sv[4], sm[4], sy[4];
    uint nm[4];
};

shared float query[WIDTH];
shared float weight[256];

float slope_of(Block t, uint head) {
    if (t.slope == 0.0) return 1.0;
    return head < t.full ? exp2(t.slope * float(head + 1)) : exp2(0.5 * t.slope * float(2 * (head - t.full) + 1));
}

float element(const in uint type, uint64_t base, int64_t row, uint c, int stride) {
    return type >= Q4_0 ? block_element(type, base + uint64_t(row), c) : load(type, base, row + int64_t(c) * stride);
}

float score(Block t, uint j, int64_t keys, int64_t mask, float slope) {
    float bias = 0.0, sum = 0.0;
    if ((FN & 1) != 0) {
        bias = load(TYPE_Y, t.mask, mask + int64_t(j) * t.sm[0]);
        if (bias == -infinity()) return bias;
    }
    int64_t from = keys + int64_t(j) * t.sk[1];
    for (uint c = 0; c < t.channels; c++) sum += query[c] * element(TYPE_A, t.k, from, c, t.sk[0]);
    sum *= t.scale;
    if (t.cap != 0.0) sum = t.cap * tanh_of(sum / t.cap);
    return sum + slope * bias;
}

void main() {
    Block t = Block(address(0));
    uint lane = gl_LocalInvocationID.x, row = group();
    if (row >= t.queries * t.heads * t.batches) return;
    uint i = row % t.queries, h = row / t.queries % t.heads, b = row / t.queries / t.heads, shared_by = h / t.group;
    int64_t q = int64_t(i) * t.sq[1] + int64_t(h) * t.sq[2] + int64_t(b) * t.sq[3];
    int64_t k = int64_t(shared_by) * t.sk[2] + int64_t(b) * t.sk[3], v = int64_t(shared_by) * t.sv[2] + int64_t(b) * t.sv[3];
    int64_t mask = int64_t(i) * t.sm[1] + int64_t(h % t.nm[2]) * t.sm[2] + int64_t(b % t.nm[3]) * t.sm[3];
    for (uint c = lane; c < t.channels; c += 256) query[c] = load(F32, t.q, q + int64_t(c) * t.sq[0]);
    float slope = slope_of(t, h), top = -infinity(), total = 0.0, sum[2] = float[2](0.0, 0.0);
    if ((FN & 2) != 0) {
        top = load(F32, t.sinks, int64_t(h));
        total = top == -infinity() ? 0.0 : 1.0;
    }
    barrier();
    for (uint first = 0; first < t.keys; first += 256) {
        float s = first + lane < t.keys ? score(t, first + lane, k, mask, slope) : -infinity();
        float now = row_max(s > top ? s : top), shrink = now == top ? 1.0 : exp(top - now);
        float mine = s == -infinity() ? 0.0 : exp(s - now);
        weight[lane] = mine;
        total = total * shrink + row_sum(mine); // its barriers also show the weights
        top = now;
        uint some = min(256, t.keys - first);
        for (uint e = 0; e < 2; e++) {
            uint c = lane + 256 * e;
            if (c >= t.wide) continue;
            sum[e] *= shrink;
            int64_t from = v + int64_t(first) * t.sv[1];
            for (uint j = 0; j < some; j++)
                if (weight[j] != 0.0) sum[e] += weight[j] * element(TYPE_B, t.v, from + int64_t(j) * t.sv[1], c, t.sv[0]);
        }
        barrier();
    }
    int64_t to = int64_t(h) * t.sy[1] + int64_t(i) * t.sy[2] + int64_t(b) * t.sy[3];
    for (uint e = 0; e < 2; e++) {
        uint c = lane + 256 * e;
        if (c < t.wide) store(F32, t.y, to + int64_t(c) * t.sy[0], total == 0.0 ? 0.0 : sum[e] / total);
    }
}
