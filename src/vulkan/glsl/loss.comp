#version 450
// Cross entropy by rows. FN 0: minus the likelihood of row `a` logits under `b` labels, over p[0] rows, into y. FN 1: its gradient
// (sum of the labels * softmax - labels) step, step being g over the rows; p[2..3] is the address of g, which has TYPE_Y.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "rows.glsl"

void main() {
    uint lane = gl_LocalInvocationID.x, n = push.n[0], row = group();
    if (row >= row_count()) return;
    uvec4 at = row_start(row);
    int64_t x = in_a(at), labels = in_b(at), to = in_y(at);
    float top = -infinity(), sum = 0.0, mass = 0.0, likelihood = 0.0;
    for (uint i = lane; i < n; i += 256) top = max(top, load(TYPE_A, push.a, x + int64_t(i) * push.sa[0]));
    top = row_max(top);
    for (uint i = lane; i < n; i += 256) sum += exp(load(TYPE_A, push.a, x + int64_t(i) * push.sa[0]) - top);
    float rest = log(row_sum(sum)); // apart from top, to whose digits their sum would be rounded
    for (uint i = lane; i < n; i += 256) {
        float label = load(TYPE_B, push.b, labels + int64_t(i) * push.sb[0]);
        if (FN != 0) mass += label;
        else if (label != 0.0) likelihood += label * (load(TYPE_A, push.a, x + int64_t(i) * push.sa[0]) - top - rest);
    }
    if (FN == 0) {
        likelihood = row_sum(likelihood);
        if (lane == 0) store(TYPE_Y, push.y, to, -likelihood / number(0));
        return;
    }
    mass = row_sum(mass);
    float step = load(TYPE_Y, address(2), 0) / number(0);
    for (uint i = lane; i < n; i += 256) {
        float share = exp(load(TYPE_A, push.a, x + int64_t(i) * push.sa[0]) - top - rest);
        float label = load(TYPE_B, push.b, labels + int64_t(i) * push.sb[0]);
        store(TYPE_Y, push.y, to + int64_t(i) * push.sy[0], (mass * share - label) * step);
    }
}
