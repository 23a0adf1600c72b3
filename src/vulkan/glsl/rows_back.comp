#version 450
// Gradients of row kernels from g (a) and a second tensor (b), into y, which may lie over either: a lane writes only what it alone
// reads. FN 0: softmax from its result; 1 norm, 2 rms_norm, 3 l2_norm at x. p[0]: scale of softmax, eps of the others.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "rows.glsl"

int64_t from_a, from_b;
float up(uint i) { return load(TYPE_A, push.a, from_a + int64_t(i) * push.sa[0]); }
float other(uint i) { return load(TYPE_B, push.b, from_b + int64_t(i) * push.sb[0]); }

void main() {
    uint lane = gl_LocalInvocationID.x, n = push.n[0], row = group();
    if (row >= row_count()) return;
    uvec4 at = row_start(row);
    int64_t to = in_y(at);
    from_a = in_a(at);
    from_b = in_b(at);
    float count = float(n), dot_sum = 0.0, squares = 0.0, g_mean = 0.0, mean = 0.0;
    if (FN == 1) {
        for (uint i = lane; i < n; i += 256) {
            mean += other(i);
            g_mean += up(i);
        }
        mean = row_sum(mean) / count;
        g_mean = row_sum(g_mean) / count;
    }
    for (uint i = lane; i < n; i += 256) {
        float x = other(i) - mean;
        dot_sum += up(i) * x;
        if (FN != 0) squares += x * x;
    }
    dot_sum = row_sum(dot_sum);
    if (FN != 0) squares = row_sum(squares);
    float by = number(0), off = 0.0; // y = by (g - g_mean - x off), or for softmax by y (g - dot)
    if (FN == 1) {
        by = 1.0 / sqrt(squares / count + number(0));
        off = dot_sum / count * by * by;
    } else if (FN == 2) {
        squares += count * number(0);
        by = 1.0 / sqrt(squares / count);
        off = dot_sum / squares;
    } else if (FN == 3) {
        float size = sqrt(squares);
        off = size > number(0) ? dot_sum / squares : 0.0;
        by = 1.0 / (size > number(0) ? size : number(0));
    }
    for (uint i = lane; i < n; i += 256) {
        float x = other(i);
        float v = FN == 0 ? by * x * (up(i) - dot_sum) : by * (up(i) - g_mean - (x - mean) * off);
        store(TYPE_Y, push.y, to + int64_t(i) * push.sy[0], v);
    }
}
