#version 450
// Gradients of row kernels from g (a) and a second tensor (b), into y, which may lie over either: a lane writes only what it alone
// reads. FN 0: softmax from its result; 1 norm, 2 rms_norm, 3 l2_norm at x. p[0]: scale of softmax, eps of the others.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "rows.glsl"
#include "moments.glsl"

int64_t from_a, from_b;
float up(uint i) { return load(TYPE_A, push.a, from_a + int64_t(i) * push.sa[0]); }
float row_value(uint i) { return load(TYPE_B, push.b, from_b + int64_t(i) * push.sb[0]); }

void main() {
    uint lane = gl_LocalInvocationID.x, n = push.n[0], row = group();
    if (row >= row_count()) return;
    uvec4 at = row_start(row);
    int64_t to = in_y(at);
    from_a = in_a(at);
    from_b = in_b(at);
    float count = float(n), dot_sum = 0.0, g_mean = 0.0, by = 1.0, size = 0.0, least = number(0);
    if (FN != 0) find_moments(n, FN == 1, FN == 3 ? least * least : least);
    if (FN == 1) {
        for (uint i = lane; i < n; i += 256) g_mean += up(i);
        g_mean = row_sum(g_mean) / count;
    }
    if (FN == 3) {
        size = sqrt(squares);
        least *= scale;
        by = 1.0 / (size < least ? least : size);
    } else if (FN != 0) {
        by = 1.0 / sqrt(squares / count + scaled_eps(least));
    }
    for (uint i = lane; i < n; i += 256) dot_sum += up(i) * normalised(row_value(i), by); // by what it was made
    dot_sum = row_sum(dot_sum);
    if (FN == 3 && size <= least) dot_sum = 0.0;
    if (FN == 1 || FN == 2) dot_sum /= count;
    for (uint i = lane; i < n; i += 256) {
        float x = row_value(i), h = normalised(x, by);
        float v = FN == 0 ? number(0) * x * (up(i) - dot_sum) : unscaled(up(i) - g_mean - h * dot_sum, by);
        store(TYPE_Y, push.y, to + int64_t(i) * push.sy[0], v);
    }
}
