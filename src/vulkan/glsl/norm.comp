#version 450
// Row norms: FN 0 norm, 1 rms_norm, 2 l2_norm. p: eps.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "rows.glsl"

float value(int64_t from, uint i) { return load(TYPE_A, push.a, from + int64_t(i) * push.sa[0]); }

void main() {
    uint lane = gl_LocalInvocationID.x, n = push.n[0], row = group();
    if (row >= row_count()) return;
    uvec4 at = row_start(row);
    int64_t from = in_a(at), to = in_y(at);
    float mean = 0.0, squares = 0.0, by;
    if (FN == 0) {
        for (uint i = lane; i < n; i += 256) mean += value(from, i);
        mean = row_sum(mean) / float(n);
    }
    for (uint i = lane; i < n; i += 256) {
        float d = value(from, i) - mean;
        squares += d * d;
    }
    squares = row_sum(squares);
    if (FN == 2) {
        float size = sqrt(squares);
        by = 1.0 / (size < number(0) ? number(0) : size);
    } else {
        by = 1.0 / sqrt(squares / float(n) + number(0));
    }
    for (uint i = lane; i < n; i += 256) store(TYPE_Y, push.y, to + int64_t(i) * push.sy[0], (value(from, i) - mean) * by);
}
