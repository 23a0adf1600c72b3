// Kernels that give one row to one workgroup. Each lane takes every 256th element and a tree adds the lanes up, so the order of
// a sum depends on the row's length alone.
layout(local_size_x = 256) in;
shared float lane_value[256];

float row_sum(float mine) {
    uint lane = gl_LocalInvocationID.x;
    barrier(); // the last use of the array is over
    lane_value[lane] = mine;
    barrier();
    for (uint half_way = 128; half_way > 0; half_way /= 2) {
        if (lane < half_way) lane_value[lane] += lane_value[lane + half_way];
        barrier();
    }
    return lane_value[0];
}

float row_max(float mine) {
    uint lane = gl_LocalInvocationID.x;
    barrier();
    lane_value[lane] = mine;
    barrier();
    for (uint half_way = 128; half_way > 0; half_way /= 2) {
        if (lane < half_way && lane_value[lane + half_way] > lane_value[lane]) lane_value[lane] = lane_value[lane + half_way];
        barrier();
    }
    return lane_value[0];
}

// This workgroup's row as an index with 0 on the fastest axis; n[0] is the row's length.
uint row_count() { return push.n[1] * push.n[2] * push.n[3]; }
uvec4 row_start(uint row) {
    uint i2 = row / push.n[1], i3 = i2 / push.n[2];
    return uvec4(0, row - i2 * push.n[1], i2 - i3 * push.n[2], i3);
}
