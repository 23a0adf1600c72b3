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

const bool OWN = FN == 1 || FN == 3 || FN == 4;

float mean, variance, r;

void find_statistics(uint samples, uint c, uint rows) {
    uint lane = gl_LocalInvocationID.x;
    if (!OWN) {
        mean = get(4, uvec4(c, 0, 0, 0));
        variance = get(5, uvec4(c, 0, 0, 0));
    } else {
        float sum = 0.0, squares = 0.0;
        for (uint i = lane; i < rows; i += 256) sum += get(samples, column(row_start(i), c));
        mean = row_sum(sum) / float(rows);
        for (uint i = lane; i < rows; i += 256) {
            float d = get(samples, column(row_start(i), c)) - mean;
            squares += d * d;
        }
        variance = row_sum(squares) / float(rows);
    }
    r = 1.0 / sqrt(variance + number(2));
}

void forward(uint c, uint rows) {
    uint lane = gl_LocalInvocationID.x;
    uvec4 at = uvec4(c, 0, 0, 0);
    find_statistics(0, c, rows);
    if (FN == 4) {
        float step = number(3), unbiased = rows > 1 ? variance * (float(rows) / float(rows - 1)) : variance;
        if (lane == 0 && has(6)) put(6, at, (1.0 - step) * get(4, at) + step * mean);
        if (lane == 0 && has(7)) put(7, at, (1.0 - step) * get(5, at) + step * unbiased);
        return;
    }
    if (lane == 0 && has(6)) put(6, at, mean);
    if (lane == 0 && has(7)) put(7, at, r);
    float gamma = get(2, at), beta = get(3, at);
    for (uint i = lane; i < rows; i += 256) {
        uvec4 k = column(row_start(i), c);
        put(1, k, (get(0, k) - mean) * r * gamma + beta);
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
        qh += g * (get(3, k) - mean) * r;
    }
    q = row_sum(q);
    qh = row_sum(qh);
    if (lane == 0 && has(6)) put(6, at, qh);
    if (lane == 0 && has(7)) put(7, at, q);
    for (uint i = lane; i < rows; i += 256) {
        uvec4 k = column(row_start(i), c);
        float h = (get(3, k) - mean) * r, g = get(0, k);
        put(1, k, OWN ? gamma * r * (g - q / count - h * qh / count) : gamma * r * g);
    }
}

void main() {
    uint c = group();
    if (c >= push.n[0]) return;
    if (FN == 2 || FN == 3) backward(c, row_count());
    else forward(c, row_count());
}
