#version 450
// Running sums (FN 0) or products (FN 1) along the fastest axis: a workgroup per row. Each lane takes a run of neighbours, the lanes'
// totals are added up in their order, and the runs are gone over again. p[0]: from the other end, p[1]: without the element itself.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "rows.glsl"

float join_two(float a, float b) { return FN == 1 ? a * b : a + b; }

void main() {
    uint lane = gl_LocalInvocationID.x, n = push.n[0], row = group(), run = (n + 255) / 256;
    if (row >= row_count()) return;
    uvec4 at = row_start(row);
    int64_t from = in_a(at), to = in_y(at);
    uint first = min(lane * run, n), last = min(first + run, n);
    float none = FN == 1 ? 1.0 : 0.0, total = none;
    for (uint k = first; k < last; k++) {
        uint i = push.p[0] != 0 ? n - 1 - k : k;
        total = join_two(total, load(TYPE_A, push.a, from + int64_t(i) * push.sa[0]));
    }
    lane_value[lane] = total;
    barrier();
    if (lane == 0)
        for (uint k = 1; k < 256; k++) lane_value[k] = join_two(lane_value[k - 1], lane_value[k]);
    barrier();
    float now = lane == 0 ? none : lane_value[lane - 1];
    for (uint k = first; k < last; k++) {
        uint i = push.p[0] != 0 ? n - 1 - k : k;
        float before = now;
        now = join_two(now, load(TYPE_A, push.a, from + int64_t(i) * push.sa[0]));
        store(TYPE_Y, push.y, to + int64_t(i) * push.sy[0], push.p[1] != 0 ? before : now);
    }
}
