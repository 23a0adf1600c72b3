#version 450
// Row norms: FN 0 norm, 1 rms_norm, 2 l2_norm. p: eps.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "rows.glsl"
#include "moments.glsl"

int64_t from;
float row_value(uint i) { return load(TYPE_A, push.a, from + int64_t(i) * push.sa[0]); }

void main() {
    uint lane = gl_LocalInvocationID.x, n = push.n[0], row = group();
    if (row >= row_count()) return;
    uvec4 at = row_start(row);
    int64_t to = in_y(at);
    float by;
    from = in_a(at);
    find_moments(n, FN == 0, FN == 2 ? number(0) * number(0) : number(0));
    if (FN == 2) {
        float size = sqrt(squares), least = number(0) * scale;
        by = 1.0 / (size < least ? least : size);
    } else {
        by = 1.0 / sqrt(squares / float(n) + scaled_eps(number(0)));
    }
    for (uint i = lane; i < n; i += 256) store(TYPE_Y, push.y, to + int64_t(i) * push.sy[0], normalised(row_value(i), by));
}
