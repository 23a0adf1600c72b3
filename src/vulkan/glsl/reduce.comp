#version 450
// Sum (FN 0) or mean (FN 1) of each row; FN 2 adds up everything with one workgroup.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "rows.glsl"

void main() {
    uint lane = gl_LocalInvocationID.x;
    float sum = 0.0;
    if (FN == 2) {
        for (uint i = lane; i < count(); i += 256) sum += load(TYPE_A, push.a, in_a(walk(i)));
        sum = row_sum(sum);
        if (lane == 0) store(TYPE_Y, push.y, 0, sum);
        return;
    }
    uint row = group();
    if (row >= row_count()) return;
    uvec4 at = row_start(row);
    int64_t from = in_a(at);
    for (uint i = lane; i < push.n[0]; i += 256) sum += load(TYPE_A, push.a, from + int64_t(i) * push.sa[0]);
    sum = row_sum(sum);
    if (lane == 0) store(TYPE_Y, push.y, in_y(at), FN == 1 ? sum / float(push.n[0]) : sum);
}
