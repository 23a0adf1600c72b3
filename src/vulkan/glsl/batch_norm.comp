#version 450
// Channels normalised: one workgroup per channel, which is the fastest axis of n; everything else of it is behind.
// FN 0, 1: forward, by the running statistics or by the channel's own: x 0, y 1, gamma 2, beta 3, running mean 4 and variance 5,
// mean 6 and 1 / deviation 7 given away; FN 4: only the new running statistics, into 6 and 7.
// FN 2, 3: the gradient, likewise: g 0, dx 1, gamma 2, x 3, running mean 4 and variance 5, dgamma 6, dbeta 7.
// p[2]: eps, p[3]: momentum.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "rows.glsl"
#include "many.glsl"
#include "moments.glsl"

const bool OWN = FN == 1 || FN == 3 || FN == 4;

float variance, r;
uint channel, samples;
float row_value(uint i) { return get(samples, column(row_start(i), channel)); }

void find_statistics(uint operand, uint c, uint rows) {
    samples = operand;
    channel = c;
    if (!OWN) {
        mean = get(4, uvec4(c, 0, 0, 0));
        variance = get(5, uvec4(c, 0, 0, 0));
    } else {
        find_moments(rows, true, number(2));
        variance = squares / float(rows);
    }
    r = 1.0 / sqrt(variance + scaled_eps(number(2)));
}

void forward(uint c, uint rows) {
    uint lane = gl_LocalInvocationID.x;
    uvec4 at = uvec4(c, 0, 0, 0);
    find_statistics(0, c, rows);
    if (FN == 4) {
        float step = number(3), unbiased = (rows > 1 ? variance * (float(rows) / float(rows - 1)) : variance) / scale / scale;
        if (lane == 0 && has(6)) put(6, at, (1.0 - step) * get(4, at) + step * true_mean());
        if (lane == 0 && has(7)) put(7, at, (1.0 - step) * get(5, at) + step * unbiased);
        return;
    }
    if (lane == 0 && has(6)) put(6, at, true_mean());
    if (lane == 0 && has(7)) put(7, at, r * scale);
    float gamma = get(2, at), beta = get(3, at);
    for (uint i = lane; i < rows; i += 256) {
        uvec4 k = column(row_start(i), c);
        put(1, k, normalised(get(0, k), r) * gamma + beta);
    }
}

void backward(uint c, uint rows) {
    uint lane = gl_LocalInvocationID.x;
    uvec4 at = uvec4(c, 0, 0, 0);
    find_statistics(3, c, rows);
    float q = 0.0, qh = 0.0, gamma = get(2, at), count = float(rows);
    for (uint i = lane; i < rows; i += 256) {
        uvec4 k = column(row_start(i), c);
        float g = get(0, k);
        q += g;
        qh += g * normalised(get(3, k), r);
    }
    q = row_sum(q);
    qh = row_sum(qh);
    if (lane == 0 && has(6)) put(6, at, qh);
    if (lane == 0 && has(7)) put(7, at, q);
    for (uint i = lane; i < rows; i += 256) {
        uvec4 k = column(row_start(i), c);
        float h = normalised(get(3, k), r), g = get(0, k);
        put(1, k, OWN ? gamma * unscaled(g - q / count - h * qh / count, r) : gamma * r * g);
    }
}

void main() {
    uint c = group();
    if (c >= push.n[0]) return;
    if (FN == 2 || FN == 3) backward(c, row_count());
    else forward(c, row_count());
}
