#version 450
// Rows normalised, weighted and moved: x 0, y 1, gamma 2, beta 3, and the statistics mean 4 and 1 / deviation 5; all but x may be
// missing. FN 1: the mean is taken off. p[2]: eps.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "rows.glsl"
#include "many.glsl"

void main() {
    uint lane = gl_LocalInvocationID.x, n = push.n[0], row = group();
    if (row >= row_count()) return;
    uvec4 at = row_start(row);
    float mean = 0.0, squares = 0.0;
    if (FN == 1) {
        for (uint i = lane; i < n; i += 256) mean += get(0, column(at, i));
        mean = row_sum(mean) / float(n);
    }
    for (uint i = lane; i < n; i += 256) {
        float d = get(0, column(at, i)) - mean;
        squares += d * d;
    }
    float r = 1.0 / sqrt(row_sum(squares) / float(n) + number(2));
    if (lane == 0 && has(4)) put(4, at, mean);
    if (lane == 0 && has(5)) put(5, at, r);
    if (!has(1)) return;
    for (uint i = lane; i < n; i += 256) {
        uvec4 c = column(at, i);
        float h = (get(0, c) - mean) * r;
        if (has(2)) h *= get(2, c);
        if (has(3)) h += get(3, c);
        put(1, c, h);
    }
}
