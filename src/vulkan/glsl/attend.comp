#version 450
// Attention of graphs and its gradients. A workgroup takes four rows (queries; keys when FN is 3) and walks the other side in tiles of
// 256: a lane works out the scores of one element of the tile, then lanes are channels and add up what the scores weigh.
// FN 0: the result, and ln of the sum of weights. FN 1: what the gradients need of every query: that logarithm and <g, result>.
// FN 2: dq. FN 3: dk and dv. Every sum is taken in an order that depends on the extents alone.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "functions.glsl"
layout(local_size_x = 256) in;
#include "attend.glsl"

Block B;
const uint ROWS = 4, WIDE = 256, NONE = 0, CAUSAL = 1, CUSTOM = 2, SLIDING = 3, BIAS = 4;
shared float row_a[ROWS * WIDE]; // q of the rows, or k
shared float row_b[ROWS * WIDE]; // g of the rows, or v
shared float coef_a[ROWS * 256];
shared float coef_b[ROWS * 256];
shared float tree[256];

float tree_sum(float mine) {
    uint lane = gl_LocalInvocationID.x;
    barrier();
    tree[lane] = mine;
    barrier();
    for (uint half_way = 128; half_way > 0; half_way /= 2) {
        if (lane < half_way) tree[lane] += tree[lane + half_way];
        barrier();
    }
    return tree[0];
}
float tree_max(float mine) {
    uint lane = gl_LocalInvocationID.x;
    barrier();
    tree[lane] = mine;
    barrier();
    for (uint half_way = 128; half_way > 0; half_way /= 2) {
        if (lane < half_way && tree[lane + half_way] > tree[lane]) tree[lane] = tree[lane + half_way];
        barrier();
    }
    return tree[0];
}

int64_t q_at(uint b, uint h, uint i) { return base_of(B.sq[1], B.sq[2], B.sq[3], b, h, i); }
int64_t k_at(uint b, uint h, uint j) { return base_of(B.sk[1], B.sk[2], B.sk[3], b, h, j); }
int64_t v_at(uint b, uint h, uint j) { return base_of(B.sv[1], B.sv[2], B.sv[3], b, h, j); }
int64_t g_at(uint b, uint h, uint i) { return base_of(B.sg[1], B.sg[2], B.sg[3], b, h, i); }

float mask_of(uint b, uint h, uint i, uint j) {
    if (B.kind == NONE) return 0.0;
    int at = int(i) + B.offset, key = int(j);
    if (B.kind == CAUSAL) return key > at ? -infinity() : 0.0;
    if (B.kind == SLIDING) return key > at || uint(at - key) > B.window ? -infinity() : 0.0;
    float m = load(TYPE_M, B.mask, int64_t(j) * B.sm[0] + base_of(B.sm[1], B.sm[2], B.sm[3], b, h, i));
    return B.kind == BIAS ? m : m < 0.5 ? -infinity() : 0.0;
}

// A score from a dot product; slope becomes how fast it follows it.
float slope;
float score(float dot_product, float bias) {
    float x = B.scale * dot_product;
    slope = 1.0;
    if (B.cap != 0.0) {
        float t = tanh_of(x / B.cap);
        slope = 1.0 - t * t;
        x = B.cap * t;
    }
    return x + bias;
}

uint kept_at(uint b, uint h, uint i) { return ((b * B.heads + h) * B.queries + i) * 2; }

// Adds up the parts that lanes of the same channel hold; true for the lane that then has the sum.
float parts_sum(float mine) {
    uint lane = gl_LocalInvocationID.x;
    barrier();
    tree[lane] = mine;
    barrier();
    for (uint half_way = 128; half_way >= B.lanes; half_way /= 2) {
        if (lane < half_way) tree[lane] += tree[lane + half_way];
        barrier();
    }
    return tree[lane];
}

// Four queries of one head against all keys.
void by_queries(uint b, uint h, uint i0) {
    uint lane = gl_LocalInvocationID.x, kh = h / B.group, channel = lane % B.lanes, part = lane / B.lanes, parts = 256 / B.lanes;
    uint wide = FN == 2 ? B.d_q : B.d_v;
    for (uint e = lane; e < ROWS * WIDE; e += 256) {
        uint r = e / WIDE, c = e % WIDE;
        bool there = i0 + r < B.queries;
        row_a[e] = there && c < B.d_q ? load(TYPE_Q, B.q, q_at(b, h, i0 + r) + int64_t(c) * B.sq[0]) : 0.0;
        row_b[e] = FN != 0 && B.g != 0 && there && c < B.d_v ? load(TYPE_G, B.g, g_at(b, h, i0 + r) + int64_t(c) * B.sg[0]) : 0.0;
    }
    barrier();
    float top[ROWS], total[ROWS], paid[ROWS], sum[ROWS];
    for (uint r = 0; r < ROWS; r++) {
        top[r] = -infinity();
        total[r] = paid[r] = sum[r] = 0.0;
    }
    for (uint j0 = 0; j0 < B.keys; j0 += 256) {
        uint j = j0 + lane;
        bool there = j < B.keys;
        float dots[ROWS], pays[ROWS];
        for (uint r = 0; r < ROWS; r++) dots[r] = pays[r] = 0.0;
        if (there) {
            int64_t k = k_at(b, kh, j), v = v_at(b, kh, j);
            for (uint c = 0; c < B.d_q; c++) {
                float x = load(TYPE_K, B.k, k + int64_t(c) * B.sk[0]);
                for (uint r = 0; r < ROWS; r++) dots[r] += row_a[r * WIDE + c] * x;
            }
            for (uint c = 0; FN != 0 && B.g != 0 && c < B.d_v; c++) {
                float x = load(TYPE_V, B.v, v + int64_t(c) * B.sv[0]);
                for (uint r = 0; r < ROWS; r++) pays[r] += row_b[r * WIDE + c] * x;
            }
        }
        for (uint r = 0; r < ROWS; r++) {
            float bias = there && i0 + r < B.queries ? mask_of(b, h, i0 + r, j) : -infinity();
            float s = bias == -infinity() ? bias : score(dots[r], bias), weight;
            if (FN == 2) {
                uint64_t kept = B.kept + uint64_t(kept_at(b, h, min(i0 + r, B.queries - 1))) * 4;
                weight = s == -infinity() ? 0.0 : exp(s - uintBitsToFloat(Word32(kept).v));
                coef_a[r * 256 + lane] = s == -infinity() ? 0.0 : B.scale * slope * weight * (pays[r] - uintBitsToFloat(Word32(kept + 4).v));
                continue;
            }
            float higher = max(top[r], tree_max(s)), shrink = top[r] == -infinity() ? 0.0 : exp(top[r] - higher);
            weight = s == -infinity() ? 0.0 : exp(s - higher);
            total[r] = total[r] * shrink + tree_sum(weight);
            if (FN == 1) paid[r] = paid[r] * shrink + tree_sum(weight == 0.0 ? 0.0 : weight * pays[r]);
            top[r] = higher;
            sum[r] *= shrink;
            coef_a[r * 256 + lane] = weight;
        }
        barrier();
        uint most = min(256, B.keys - j0);
        if (FN != 1 && channel < wide)
            for (uint e = part; e < most; e += parts) {
                float x = FN == 2 ? load(TYPE_K, B.k, k_at(b, kh, j0 + e) + int64_t(channel) * B.sk[0])
                                  : load(TYPE_V, B.v, v_at(b, kh, j0 + e) + int64_t(channel) * B.sv[0]);
                for (uint r = 0; r < ROWS; r++) {
                    float w = coef_a[r * 256 + e];
                    if (w != 0.0) sum[r] += w * x;
                }
            }
        barrier();
    }
    for (uint r = 0; r < ROWS; r++) {
        bool there = i0 + r < B.queries;
        if (FN == 1) {
            uint64_t kept = B.kept + uint64_t(kept_at(b, h, min(i0 + r, B.queries - 1))) * 4;
            if (!there || lane != 0) continue;
            float up = B.g_lse != 0 && total[r] != 0.0 ? load(F32, B.g_lse, base_of(B.sgl[1], B.sgl[2], B.sgl[3], b, h, i0 + r)) : 0.0;
            Word32(kept).v = floatBitsToUint(total[r] == 0.0 ? infinity() : top[r] + log(total[r]));
            Word32(kept + 4).v = floatBitsToUint(total[r] == 0.0 ? 0.0 : paid[r] / total[r] - up);
            continue;
        }
        float all = parts_sum(sum[r]);
        if (FN == 0) all = total[r] == 0.0 ? 0.0 : all / total[r];
        if (there && part == 0 && channel < wide && B.result != 0)
            store(TYPE_OUT, B.result, base_of(B.so[1], B.so[2], B.so[3], b, h, i0 + r) + int64_t(channel) * B.so[0], all);
        if (FN == 0 && there && lane == 0 && B.lse != 0)
            store(F32, B.lse, base_of(B.sl[1], B.sl[2], B.sl[3], b, h, i0 + r), total[r] == 0.0 ? -infinity() : top[r] + log(total[r]));
    }
}

// Four keys of one key head against all queries of its group.
void by_keys(uint b, uint kh, uint j0) {
    uint lane = gl_LocalInvocationID.x, channel = lane % B.lanes, part = lane / B.lanes, parts = 256 / B.lanes;
    for (uint e = lane; e < ROWS * WIDE; e += 256) {
        uint r = e / WIDE, c = e % WIDE;
        bool there = j0 + r < B.keys;
        row_a[e] = there && c < B.d_q ? load(TYPE_K, B.k, k_at(b, kh, j0 + r) + int64_t(c) * B.sk[0]) : 0.0;
        row_b[e] = there && c < B.d_v ? load(TYPE_V, B.v, v_at(b, kh, j0 + r) + int64_t(c) * B.sv[0]) : 0.0;
    }
    barrier();
    float dk[ROWS], dv[ROWS];
    for (uint r = 0; r < ROWS; r++) dk[r] = dv[r] = 0.0;
    for (uint h = kh * B.group; h < min(B.heads, (kh + 1) * B.group); h++)
        for (uint i0 = 0; i0 < B.queries; i0 += 256) {
            uint i = i0 + lane;
            bool there = i < B.queries;
            float dots[ROWS], pays[ROWS], lse = 0.0, mean = 0.0;
            for (uint r = 0; r < ROWS; r++) dots[r] = pays[r] = 0.0;
            if (there) {
                int64_t q = q_at(b, h, i), g = g_at(b, h, i);
                for (uint c = 0; c < B.d_q; c++) {
                    float x = load(TYPE_Q, B.q, q + int64_t(c) * B.sq[0]);
                    for (uint r = 0; r < ROWS; r++) dots[r] += row_a[r * WIDE + c] * x;
                }
                for (uint c = 0; B.g != 0 && c < B.d_v; c++) {
                    float x = load(TYPE_G, B.g, g + int64_t(c) * B.sg[0]);
                    for (uint r = 0; r < ROWS; r++) pays[r] += row_b[r * WIDE + c] * x;
                }
                uint64_t kept = B.kept + uint64_t(kept_at(b, h, i)) * 4;
                lse = uintBitsToFloat(Word32(kept).v);
                mean = uintBitsToFloat(Word32(kept + 4).v);
            }
            for (uint r = 0; r < ROWS; r++) {
                float bias = there && j0 + r < B.keys ? mask_of(b, h, i, j0 + r) : -infinity();
                float s = bias == -infinity() ? bias : score(dots[r], bias), weight = s == -infinity() ? 0.0 : exp(s - lse);
                coef_b[r * 256 + lane] = weight;
                coef_a[r * 256 + lane] = s == -infinity() ? 0.0 : B.scale * slope * weight * (pays[r] - mean);
            }
            barrier();
            uint most = min(256, B.queries - i0);
            for (uint e = part; e < most; e += parts) {
                float q = channel < B.d_q ? load(TYPE_Q, B.q, q_at(b, h, i0 + e) + int64_t(channel) * B.sq[0]) : 0.0;
                float g = B.g != 0 && channel < B.d_v ? load(TYPE_G, B.g, g_at(b, h, i0 + e) + int64_t(channel) * B.sg[0]) : 0.0;
                for (uint r = 0; r < ROWS; r++) {
                    float a = coef_a[r * 256 + e], w = coef_b[r * 256 + e];
                    if (a != 0.0) dk[r] += a * q;
                    if (w != 0.0) dv[r] += w * g;
                }
            }
            barrier();
        }
    for (uint r = 0; r < ROWS; r++) {
        float all_k = parts_sum(dk[r]), all_v = parts_sum(dv[r]);
        if (j0 + r >= B.keys || part != 0) continue;
        if (channel < B.d_q && B.result != 0)
            store(TYPE_OUT, B.result, base_of(B.so[1], B.so[2], B.so[3], b, kh, j0 + r) + int64_t(channel) * B.so[0], all_k);
        if (channel < B.d_v && B.other != 0)
            store(TYPE_OTHER, B.other, base_of(B.sz[1], B.sz[2], B.sz[3], b, kh, j0 + r) + int64_t(channel) * B.sz[0], all_v);
    }
}

void main() {
    B = Block(address(0));
    uint rows = FN == 3 ? B.keys : B.queries, heads = FN == 3 ? B.key_heads : B.heads;
    uint fours = (rows + ROWS - 1) / ROWS, number = group(), b = number / (fours * heads), rest = number - b * fours * heads;
    if (b >= B.batches) return;
    if (FN == 3) by_keys(b, rest / fours, rest % fours * ROWS);
    else by_queries(b, rest / fours, rest % fours * ROWS);
}
