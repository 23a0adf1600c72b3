#version 450
// Rows normalised, weighted and moved: x 0, y 1, gamma 2, beta 3, and the statistics mean 4 and 1 / deviation 5; all but x may be
// missing. With 6, the mean goes there in part: what 4 lacks. FN 1: the mean is taken off. p[2]: eps.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "rows.glsl"
#include "many.glsl"
#include "moments.glsl"

uvec4 row_at;
float row_value(uint i) { return get(0, column(row_at, i)); }

void main() {
    uint lane = gl_LocalInvocationID.x, n = push.n[0], row = group();
    if (row >= row_count()) return;
    uvec4 at = row_start(row);
    row_at = at;
    find_moments(n, FN == 1, number(2));
    float r = 1.0 / sqrt(squares / float(n) + scaled_eps(number(2)));
    if (lane == 0 && has(4)) put(4, at, has(6) ? mean / scale : true_mean());
    if (lane == 0 && has(5)) put(5, at, r * scale);
    if (lane == 0 && has(6)) put(6, at, lacks / scale);
    if (!has(1)) return;
    for (uint i = lane; i < n; i += 256) {
        uvec4 c = column(at, i);
        float h = normalised(get(0, c), r);
        if (has(2)) h *= get(2, c);
        if (has(3)) h += get(3, c);
        put(1, c, h);
    }
}
