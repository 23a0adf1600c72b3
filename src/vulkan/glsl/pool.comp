#version 450
// Pools. FN: 0 sum, 1 mean, 2 max, 3 min, 4 product of each window; 8 + the same: the gradient for x, g being a and x being b, where a
// lane adds up the windows its sample is in. n: width, height, depth, or what is in front of them. Only real samples take part.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
layout(local_size_x = 256) in;

// Must agree with pool_block in vk_pack_conv.c. Axes that are not pooled have one tap, and every place is a window.
layout(buffer_reference, std430, buffer_reference_align = 4) readonly buffer Block {
    int inside[4], outside[4], taps[4], stride[4], pad[4], behind[4];
    uint count_pad;
};

Block B;
const uint KIND = FN & 7u;
const bool BACK = FN >= 8;

// Samples under a window along an axis, and how many its mean counts.
ivec3 under(uint axis, int window) {
    int first = window * B.stride[axis] - B.pad[axis], last = first + B.taps[axis], end = B.inside[axis] + B.behind[axis];
    int low = max(first, 0), high = min(last, B.inside[axis]);
    return ivec3(low, high, B.count_pad != 0 ? min(last, end) - first : high - low);
}

float sample_at(ivec4 at) {
    if (BACK) return load(TYPE_B, push.b, place(uvec4(at), push.sb[0], push.sb[1], push.sb[2], push.sb[3]));
    return load(TYPE_A, push.a, place(uvec4(at), push.sa[0], push.sa[1], push.sa[2], push.sa[3]));
}

float value, counted;
ivec4 best;

void pool(ivec4 window) {
    ivec3 x = under(0, window.x), y = under(1, window.y), z = under(2, window.z);
    value = KIND == 4 ? 1.0 : 0.0;
    counted = float(x.z) * float(y.z) * float(z.z);
    bool first = true;
    for (int k = z.x; k < z.y; k++)
        for (int j = y.x; j < y.y; j++)
            for (int i = x.x; i < x.y; i++) {
                ivec4 at = ivec4(i, j, k, window.w);
                float v = sample_at(at);
                if (KIND < 2) value += v;
                else if (KIND == 4) value *= v;
                else if (first || (!is_nan(value) && (is_nan(v) || (KIND == 2 ? v > value : v < value)))) value = v, best = at;
                first = false;
            }
}

// Windows that hold a sample: from the first whose taps reach it to the last that does not begin behind it.
ivec2 over(uint axis, int at) {
    int low = at + B.pad[axis] - B.taps[axis] + 1, high = (at + B.pad[axis]) / B.stride[axis];
    return ivec2(low <= 0 ? 0 : (low + B.stride[axis] - 1) / B.stride[axis], min(high, B.outside[axis] - 1));
}

float gradient(ivec4 at) {
    ivec2 x = over(0, at.x), y = over(1, at.y), z = over(2, at.z);
    float sum = 0.0;
    for (int k = z.x; k <= z.y; k++)
        for (int j = y.x; j <= y.y; j++)
            for (int i = x.x; i <= x.y; i++) {
                ivec4 window = ivec4(i, j, k, at.w);
                float g = load(TYPE_A, push.a, place(uvec4(window), push.sa[0], push.sa[1], push.sa[2], push.sa[3]));
                if (KIND == 0) sum += g;
                else if (KIND == 1) sum += g / (float(under(0, i).z) * float(under(1, j).z) * float(under(2, k).z));
                else {
                    pool(window);
                    if (best == at) sum += g;
                }
            }
    return sum;
}

void main() {
    B = Block(address(0));
    uint i = group() * 256 + gl_LocalInvocationID.x;
    if (i >= count()) return;
    uvec4 at = walk(i);
    if (BACK) {
        store(TYPE_Y, push.y, in_y(at), gradient(ivec4(at)));
        return;
    }
    pool(ivec4(at));
    store(TYPE_Y, push.y, in_y(at), KIND == 1 ? value / counted : value);
}
