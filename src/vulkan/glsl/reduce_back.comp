#version 450
// The gradient of a reduction, g spread over what went into it. n, sa, sb: the axes that stay, in x and in g; p[0..5] and the block
// that p[0..1] points to are as reduce_axes.comp has nb and sb, and dx lies as x does. FN as in reduce.def, but no product.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "rows.glsl"

// Must agree with back_block in vk_pack_reduce.c.
layout(buffer_reference, std430, buffer_reference_align = 16) readonly buffer Gone {
    uint extent[4];
    int in_x[4];
    int in_dx[4];
    int kept_dx[4];
};
shared uint lane_place[256];

void main() {
    Gone g = Gone(address(0));
    uint lane = gl_LocalInvocationID.x, result = group(), n = g.extent[0] * g.extent[1] * g.extent[2] * g.extent[3];
    if (result >= count()) return;
    uvec4 kept = walk(result);
    int64_t from = in_a(kept), to = place(kept, g.kept_dx[0], g.kept_dx[1], g.kept_dx[2], g.kept_dx[3]);
    float up = load(TYPE_B, push.b, in_b(kept)), value = 0.0;
    uint best = 0xffffffffu;
    bool extreme = FN == 2 || FN == 3;
    for (uint i = lane; extreme && i < n; i += 256) {
        uvec4 at = unravel(i, g.extent[0], g.extent[1], g.extent[2]);
        float x = load(TYPE_A, push.a, from + place(at, g.in_x[0], g.in_x[1], g.in_x[2], g.in_x[3]));
        if (best == 0xffffffffu || (!is_nan(value) && (is_nan(x) || (FN == 2 ? x > value : x < value)))) value = x, best = i;
    }
    lane_value[lane] = value;
    lane_place[lane] = best;
    barrier();
    for (uint half_way = 128; extreme && half_way > 0; half_way /= 2) {
        if (lane < half_way) {
            float x = lane_value[lane + half_way];
            uint i = lane_place[lane + half_way];
            bool lead = best == 0xffffffffu ? true
                        : is_nan(x) || is_nan(value) ? is_nan(x) && (!is_nan(value) || i < best)
                        : x == value ? i < best : FN == 2 ? x > value : x < value;
            if (i != 0xffffffffu && lead) value = x, best = i;
            lane_value[lane] = value;
            lane_place[lane] = best;
        }
        barrier();
    }
    best = lane_place[0];
    if (FN == 1) up /= float(n);
    for (uint i = lane; i < n; i += 256) {
        uvec4 at = unravel(i, g.extent[0], g.extent[1], g.extent[2]);
        store(TYPE_Y, push.y, to + place(at, g.in_dx[0], g.in_dx[1], g.in_dx[2], g.in_dx[3]), extreme && i != best ? 0.0 : up);
    }
}
