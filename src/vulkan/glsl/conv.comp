#version 450
// Convolutions as products that gather their operands: y[j][i] = sum over k of b(j, k) a(i, k). FN 0: conv, i an output place of the
// batch, j a channel, k a channel of x and a tap. FN 1: conv_transpose, i a sample. FN 2: the weights' gradient, i a channel and a tap,
// k an output place of the batch. The z axis of the grid has the groups, and for FN 2 parts of k that are added up later.
// A workgroup makes a tile of 64 along i by 16 HIGH along j, a lane 4 by HIGH of it; every element adds in the order of k.
// RANK: how many axes the windows have.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
layout(local_size_x = 256) in;
layout(constant_id = 7) const uint HIGH = 4;

// Must agree with conv_block in vk_pack_conv.c. Axes are width, height, depth. "few" has the values at the windows' outputs, "many"
// the samples under them; strides of each tensor are those of its three axes, then of its channels, then of the batch.
layout(buffer_reference, std430, buffer_reference_align = 8) readonly buffer Block {
    uint64_t few, many, weights, bias;
    int s_few[5], s_many[5], s_weights[5];
    int inside[3], outside[3], taps[3], stride[3], pad[3], dilation[3];
    uint few_group, many_group, groups, n_i, n_j, n_k, part, part_step;
};

Block B;
const uint TILE = 64, SLICE = 16, PITCH = TILE + 4, TILE_J = 16 * HIGH;
shared float part_a[SLICE * PITCH];
shared float part_b[SLICE * PITCH];

// A place of an image: its number in the batch and where along the axes.
struct Spot { uint n; int x, y, z; };

Spot spot_of(uint i, int width, int height, int depth) {
    uint r = i / uint(width);
    Spot s = Spot(r, int(i - r * uint(width)), 0, 0);
    if (RANK > 1) {
        s.n = r / uint(height);
        s.y = int(r - s.n * uint(height));
    }
    if (RANK > 2) {
        s.z = int(s.n % uint(depth));
        s.n /= uint(depth);
    }
    return s;
}
Spot output_of(uint i) { return spot_of(i, B.outside[0], B.outside[1], B.outside[2]); }
Spot sample_of(uint i) { return spot_of(i, B.inside[0], B.inside[1], B.inside[2]); }
Spot tap_of(uint k) { return spot_of(k, B.taps[0], B.taps[1], B.taps[2]); } // n: a channel

float many_at(uint n, uint channel, int x, int y, int z) {
    if (x < 0 || y < 0 || z < 0 || x >= B.inside[0] || y >= B.inside[1] || z >= B.inside[2]) return 0.0;
    return load(TYPE_A, B.many, int64_t(x) * B.s_many[0] + int64_t(y) * B.s_many[1] + int64_t(z) * B.s_many[2] +
                                int64_t(channel) * B.s_many[3] + int64_t(n) * B.s_many[4]);
}
float few_at(uint type, uint n, uint channel, int x, int y, int z) {
    return load(type, B.few, int64_t(x) * B.s_few[0] + int64_t(y) * B.s_few[1] + int64_t(z) * B.s_few[2] +
                             int64_t(channel) * B.s_few[3] + int64_t(n) * B.s_few[4]);
}
float weight_at(uint few, uint many, Spot t) {
    return load(TYPE_B, B.weights, int64_t(t.x) * B.s_weights[0] + int64_t(t.y) * B.s_weights[1] + int64_t(t.z) * B.s_weights[2] +
                                   int64_t(many) * B.s_weights[3] + int64_t(few) * B.s_weights[4]);
}

int sample_under(int output_at, int tap, uint axis) { return output_at * B.stride[axis] + tap * B.dilation[axis] - B.pad[axis]; }
// The output that has this sample at this tap, -1 when there is none.
int output_over(int at, int tap, uint axis) {
    int x = at + B.pad[axis] - tap * B.dilation[axis];
    if (B.stride[axis] != 1) {
        if (x < 0 || x % B.stride[axis] != 0) return -1;
        x /= B.stride[axis];
    }
    return x >= 0 && x < B.outside[axis] ? x : -1;
}

// k as a tap, or for FN 2 as an output.
float value_a(Spot i, Spot k, uint g) {
    if (FN == 2)
        return many_at(k.n, g * B.many_group + i.n, sample_under(k.x, i.x, 0), sample_under(k.y, i.y, 1), sample_under(k.z, i.z, 2));
    if (FN == 0)
        return many_at(i.n, g * B.many_group + k.n, sample_under(i.x, k.x, 0), sample_under(i.y, k.y, 1), sample_under(i.z, k.z, 2));
    int x = output_over(i.x, k.x, 0), y = output_over(i.y, k.y, 1), z = output_over(i.z, k.z, 2);
    return x < 0 || y < 0 || z < 0 ? 0.0 : few_at(TYPE_A, i.n, g * B.few_group + k.n, x, y, z);
}

float value_b(uint j, Spot k, uint g) {
    if (FN == 2) return few_at(TYPE_B, k.n, g * B.few_group + j, k.x, k.y, k.z);
    return FN == 0 ? weight_at(g * B.few_group + j, k.n, k) : weight_at(g * B.few_group + k.n, j, k);
}

// Whether a tap has a sample there.
bool meets(Spot i, Spot k) {
    if (FN == 1) return output_over(i.x, k.x, 0) >= 0 && output_over(i.y, k.y, 1) >= 0 && output_over(i.z, k.z, 2) >= 0;
    Spot at = FN == 2 ? k : i, tap = FN == 2 ? i : k;
    int x = sample_under(at.x, tap.x, 0), y = sample_under(at.y, tap.y, 1), z = sample_under(at.z, tap.z, 2);
    return x >= 0 && y >= 0 && z >= 0 && x < B.inside[0] && y < B.inside[1] && z < B.inside[2];
}

// A sum that is NaN, of the samples there are: zeros beside the image met what is infinite or NaN, perhaps.
float sum_again(uint i, uint j, uint g, uint k_from, uint k_end) {
    Spot mine = FN == 0 ? output_of(i) : FN == 1 ? sample_of(i) : tap_of(i);
    float sum = 0.0;
    for (uint e = k_from; e < k_end; e++) {
        Spot k = FN == 2 ? output_of(e) : tap_of(e);
        if (meets(mine, k)) sum += value_a(mine, k, g) * value_b(j, k, g);
    }
    return sum;
}

void put(uint i, uint j, uint g, uint split, float v) {
    if (FN == 2) {
        Spot t = tap_of(i);
        store(TYPE_Y, push.y, int64_t(t.x) * B.s_weights[0] + int64_t(t.y) * B.s_weights[1] + int64_t(t.z) * B.s_weights[2] +
                              int64_t(t.n) * B.s_weights[3] + int64_t(g * B.few_group + j) * B.s_weights[4] +
                              int64_t(split) * int(B.part_step), v);
        return;
    }
    uint channel = g * (FN == 0 ? B.few_group : B.many_group) + j;
    if (B.bias != 0) v += load(push.p[2], B.bias, int64_t(channel) * int(push.p[3]));
    Spot s = FN == 0 ? output_of(i) : sample_of(i);
    store(TYPE_Y, push.y, int64_t(s.x) * push.sy[0] + int64_t(s.y) * push.sy[1] + int64_t(s.z) * push.sy[2] +
                          int64_t(channel) * push.sy[3] + int64_t(s.n) * int(push.p[4]), v);
}

void main() {
    B = Block(address(0));
    uint lane = gl_LocalInvocationID.x, i0 = gl_WorkGroupID.x * TILE, j0 = gl_WorkGroupID.y * TILE_J;
    uint g = gl_WorkGroupID.z % B.groups, split = gl_WorkGroupID.z / B.groups;
    uint k_from = split * B.part, k_end = min(B.n_k, k_from + B.part);
    uint li = lane % 16, lj = lane / 16, r = lane % 64;
    float sum[16];
    for (uint e = 0; e < 4 * HIGH; e++) sum[e] = 0.0;
    Spot mine = FN == 0 ? output_of(i0 + r) : FN == 1 ? sample_of(i0 + r) : tap_of(i0 + r);
    for (uint k0 = k_from; k0 < k_end; k0 += SLICE) {
        for (uint e = lane / 64; e < SLICE; e += 4) {
            bool there = k0 + e < k_end;
            Spot k = FN == 2 ? output_of(k0 + e) : tap_of(k0 + e);
            part_a[e * PITCH + r] = there && i0 + r < B.n_i ? value_a(mine, k, g) : 0.0;
            if (r < TILE_J) part_b[e * PITCH + r] = there && j0 + r < B.n_j ? value_b(j0 + r, k, g) : 0.0;
        }
        barrier();
        uint most = min(SLICE, k_end - k0);
        for (uint k = 0; k < most; k++) {
            float va[4], vb[4];
            for (uint e = 0; e < 4; e++) va[e] = part_a[k * PITCH + li + 16 * e];
            for (uint e = 0; e < HIGH; e++) vb[e] = part_b[k * PITCH + lj + 16 * e];
            for (uint e = 0; e < 4 * HIGH; e++) sum[e] += va[e % 4] * vb[e / 4];
        }
        barrier();
    }
    for (uint e = 0; e < 4 * HIGH; e++) {
        uint i = i0 + li + 16 * (e % 4), j = j0 + lj + 16 * (e / 4);
        if (i >= B.n_i || j >= B.n_j) continue;
        put(i, j, g, split, is_nan(sum[e]) ? sum_again(i, j, g, k_from, k_end) : sum[e]);
    }
}
