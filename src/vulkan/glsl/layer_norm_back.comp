#version 450
// Gradient of layer_norm.comp for x: g 0, x 1, dx 2, gamma 3, gradients of the statistics 4 and 5. dx may lie over g: a lane writes
// only what it alone reads. FN 1: with a mean. p[2]: eps.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "rows.glsl"
#include "many.glsl"
#include "moments.glsl"

uvec4 row_at;
float row_value(uint i) { return get(1, column(row_at, i)); }

float weighted(uvec4 c) { return has(3) ? get(0, c) * get(3, c) : get(0, c); }

void main() {
    uint lane = gl_LocalInvocationID.x, n = push.n[0], row = group();
    if (row >= row_count()) return;
    uvec4 at = row_start(row);
    float count = float(n), q = 0.0, qh = 0.0;
    row_at = at;
    find_moments(n, FN == 1, number(2));
    float by = 1.0 / sqrt(squares / count + scaled_eps(number(2))), r = by * scale;
    for (uint i = lane; i < n; i += 256) {
        uvec4 c = column(at, i);
        float w = weighted(c);
        q += w;
        qh += w * normalised(get(1, c), by);
    }
    q = FN == 1 ? row_sum(q) / count : 0.0;
    qh = row_sum(qh) / count;
    float up_mean = has(4) ? get(4, at) / count : 0.0, up_r = has(5) ? get(5, at) * r * r / count : 0.0;
    for (uint i = lane; i < n; i += 256) {
        uvec4 c = column(at, i);
        float h = normalised(get(1, c), by);
        put(2, c, unscaled(weighted(c) - q - h * qh, by) + up_mean - up_r * h);
    }
}
