#version 450
// Sums over all rows, for every column: of g h into dgamma and of g into dbeta, h being x normalised by its row's statistics.
// g 0, x 1, dgamma 2, dbeta 3, mean 4, 1 / deviation 5, what the mean lacks 6. A workgroup takes 32 columns and eighths of the rows, added up in a tree.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "rows.glsl"
#include "many.glsl"

shared float second[256];

void main() {
    uint lane = gl_LocalInvocationID.x, i = group() * 32 + lane % 32, part = lane / 32, rows = row_count();
    float gamma = 0.0, beta = 0.0;
    if (i < push.n[0])
        for (uint row = part; row < rows; row += 8) {
            uvec4 at = row_start(row), c = column(at, i);
            float g = get(0, c), mean = has(4) ? get(4, at) : 0.0, lacks = has(6) ? get(6, at) : 0.0;
            gamma += g * ((get(1, c) - mean - lacks) * get(5, at));
            beta += g;
        }
    lane_value[lane] = gamma;
    second[lane] = beta;
    barrier();
    for (uint half_way = 128; half_way >= 32; half_way /= 2) {
        if (lane < half_way) {
            lane_value[lane] += lane_value[lane + half_way];
            second[lane] += second[lane + half_way];
        }
        barrier();
    }
    if (part != 0 || i >= push.n[0]) return;
    uvec4 c = uvec4(i, 0, 0, 0);
    if (has(2)) put(2, c, lane_value[lane]);
    if (has(3)) put(3, c, second[lane]);
}
