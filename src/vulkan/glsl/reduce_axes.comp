#version 450
// Reductions over any axes. n, sa, sy: the axes that stay; nb, sb: those that go, in logical order. FN as in reduce.def; 8 and 9 give
// the index of the largest and smallest instead. TILED 0: a workgroup per result, its lanes taking every 256th element and a tree
// putting them together; 1: a lane per result, in order.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "rows.glsl"

const uint SUM = 0, MEAN = 1, MAX = 2, MIN = 3, PROD = 4, ARG_MAX = 8, ARG_MIN = 9;
const bool EXTREME = FN == MAX || FN == MIN || FN == ARG_MAX || FN == ARG_MIN, LARGEST = FN == MAX || FN == ARG_MAX;
shared uint lane_place[256];

int64_t gone(uint i) {
    uint i1 = i / push.nb[0], i2 = i1 / push.nb[1], i3 = i2 / push.nb[2];
    return int64_t(i - i1 * push.nb[0]) * push.sb[0] + int64_t(i1 - i2 * push.nb[1]) * push.sb[1] +
           int64_t(i2 - i3 * push.nb[2]) * push.sb[2] + int64_t(i3) * push.sb[3];
}

float value;
uint best; // 0xffffffff: nothing seen yet; of a product the power of two that it is taken times

// Whether x at place i takes the lead: NaN leads everything, the first one of equals stays.
bool leads(float x, uint i) {
    if (i == 0xffffffffu) return false;
    if (best == 0xffffffffu) return true;
    if (is_nan(x) || is_nan(value)) return is_nan(x) && (!is_nan(value) || i < best);
    int mine = order_of(x), lead = order_of(value);
    if (mine == lead) return i < best;
    return LARGEST ? mine > lead : mine < lead;
}

// A product stays below 1 with its power of two apart: only the last one may be beyond a float, not those on the way.
void multiply(float x, uint power) {
    value *= x;
    best += power;
    uint u = floatBitsToUint(value), e = u >> 23 & 255u;
    if (e == 0 || e == 255) return;
    value = uintBitsToFloat((u & 0x807fffffu) | 0x3f000000u);
    best += e - 126u;
}
float times_power(float x, int e) {
    int half_of = clamp(e / 2, -126, 126), rest = clamp(e - half_of, -126, 127);
    return x * uintBitsToFloat(uint(half_of + 127) << 23) * uintBitsToFloat(uint(rest + 127) << 23);
}

void take(float x, uint i) {
    if (EXTREME) {
        if (leads(x, i)) value = x, best = i;
    } else if (FN == PROD) multiply(x, i);
    else value += x;
}

void finish(uint result, uint n) {
    int64_t to = in_y(walk(result));
    if (FN == MEAN) value /= float(n);
    if (FN == PROD) value = times_power(value, int(best));
    if (FN >= ARG_MAX) Word32(push.y + uint64_t(to * 4)).v = best == 0xffffffffu ? 0 : best;
    else store(TYPE_Y, push.y, to, value);
}

void main() {
    uint lane = gl_LocalInvocationID.x, n = push.nb[0] * push.nb[1] * push.nb[2] * push.nb[3];
    uint result = TILED == 1 ? group() * 256 + lane : group();
    if (result >= count()) return;
    int64_t from = in_a(walk(result));
    value = FN == PROD ? 1.0 : 0.0;
    best = FN == PROD ? 0 : 0xffffffffu;
    if (TILED == 1) {
        for (uint i = 0; i < n; i++) take(load(TYPE_A, push.a, from + gone(i)), FN == PROD ? 0 : i);
        finish(result, n);
        return;
    }
    for (uint i = lane; i < n; i += 256) take(load(TYPE_A, push.a, from + gone(i)), FN == PROD ? 0 : i);
    lane_value[lane] = value;
    lane_place[lane] = best;
    barrier();
    for (uint half_way = 128; half_way > 0; half_way /= 2) {
        if (lane < half_way) {
            take(lane_value[lane + half_way], lane_place[lane + half_way]);
            lane_value[lane] = value;
            lane_place[lane] = best;
        }
        barrier();
    }
    if (lane == 0) finish(result, n);
}
