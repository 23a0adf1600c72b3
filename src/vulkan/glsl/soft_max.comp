#version 450
// Row softmax of scale x + slope mask. p: scale, log2 of the slope's two rows, the power of two below the number of heads.
// A score of -Inf takes no share, a row without any score is zero, and one with NaN is NaN. FN bit 0: there is a mask.
// Bit 1: there is a sink for each head, which takes its share and gets nothing: at p[4..5], p[3] apart.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "rows.glsl"

float slope_of(uint head) {
    if (number(1) == 0.0) return 1.0;
    uint full = push.p[2];
    return head < full ? exp2(number(1) * float(head + 1)) : exp2(0.5 * number(1) * float(2 * (head - full) + 1));
}

float score(int64_t x, int64_t mask, uint i, float slope) {
    float z = load(TYPE_A, push.a, x + int64_t(i) * push.sa[0]) * number(0);
    if ((FN & 1) == 0) return z;
    float m = load(TYPE_B, push.b, mask + int64_t(i) * push.sb[0]);
    return m == -infinity() ? m : z + slope * m;
}

void main() {
    uint lane = gl_LocalInvocationID.x, n = push.n[0], row = group();
    if (row >= row_count()) return;
    uvec4 at = row_start(row);
    int64_t x = in_a(at), mask = (FN & 1) != 0 ? in_b(at) : 0, to = in_y(at);
    float slope = (FN & 1) != 0 ? slope_of(at.z) : 1.0, sink = -infinity(), top = sink, sum = 0.0;
    if ((FN & 2) != 0) top = sink = load(F32, address(4), int64_t(at.z) * int(push.p[3]));
    for (uint i = lane; i < n; i += 256) {
        float z = score(x, mask, i, slope);
        if (z > top) top = z;
    }
    top = row_max(top);
    for (uint i = lane; i < n; i += 256) {
        float z = score(x, mask, i, slope);
        if (z != -infinity()) sum += exp(z - top);
    }
    sum = row_sum(sum);
    if (sink != -infinity()) sum += exp(sink - top);
    for (uint i = lane; i < n; i += 256) {
        float z = score(x, mask, i, slope);
        store(TYPE_Y, push.y, to + int64_t(i) * push.sy[0], z == -infinity() && sum == sum ? 0.0 : exp(z - top) / sum);
    }
}
