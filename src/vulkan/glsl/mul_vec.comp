#version 450
// y[j][i] = sum over k of b[j][k] a[i][k] where there are few j: a workgroup makes eight i of four j. Each i has 32 lanes; a lane adds
// up runs of 32 products and the runs' sums are then added in their order, which is how mul_mat.comp adds: the bits are the same.
// n: i, j, batches. p[0]: extent of k. The axis of k is a's last; strides of a are bytes where it has a block type.
// FN bit 0 clear: p[1..2] say how many batches of b share one of a (two axes). Set: every j of every batch has a matrix of its own,
// number ids[batch][j] of nb[0]; nb[1] is how many rows a batch of b has before they repeat, p[2..3] where the ids are, nb[2..3] their
// strides; a number that names none gives 0, and leaves the step's number p[1] in the status word at p[4..5].
// FN bit 1: rows of b are f32, contiguous, and may be read four at a time.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "blocks.glsl"
layout(local_size_x = 256) in;
layout(buffer_reference, std430, buffer_reference_align = 16) readonly buffer Quad { vec4 v; };

const bool BY_ID = (FN & 1u) != 0, QUADS = (FN & 2u) != 0;
const uint ROWS = 8, COLUMNS = 4, LANES = 32, RUN = 32, AHEAD = 2;
const uint RUNS = AHEAD * LANES; // between two barriers
shared float total[RUNS * ROWS * COLUMNS];

void get_run(uint64_t row, uint run, uint most, out float w[RUN]) {
    if (TYPE_A >= Q4_0) {
        block_run(TYPE_A, row, run, w);
        return;
    }
    for (uint e = 0; e < RUN; e++) w[e] = e < most ? load(TYPE_A, row, int64_t(run * RUN + e) * push.sa[0]) : 0.0;
}

float dot_run(float w[RUN], int64_t from, uint most) {
    float sum = 0.0;
    if (QUADS) {
        for (uint e = 0; e < RUN; e += 4) {
            vec4 x = Quad(push.b + uint64_t(from + e) * 4).v;
            sum = fma(w[e], x.x, sum);
            sum = fma(w[e + 1], x.y, sum);
            sum = fma(w[e + 2], x.z, sum);
            sum = fma(w[e + 3], x.w, sum);
        }
        return sum;
    }
    for (uint e = 0; e < most; e++) sum = fma(w[e], load(TYPE_B, push.b, from + int64_t(e) * push.sb[0]), sum);
    return sum;
}

// The matrix of row j of a batch; 0 when there is none.
uint64_t matrix_of(uint j, uint batch2, uint batch3) {
    int64_t at;
    if (BY_ID) {
        uint id = Word32(address(2) + uint64_t((int64_t(j) * int(push.nb[2]) + int64_t(batch2) * int(push.nb[3])) * 4)).v;
        if (id >= push.nb[0]) {
            atomicMin(Word32(address(4)).v, push.p[1]);
            return 0;
        }
        at = int64_t(id) * push.sa[2];
    } else {
        at = int64_t(batch2 / push.p[1]) * push.sa[2] + int64_t(batch3 / push.p[2]) * push.sa[3];
    }
    return push.a + uint64_t(at * (TYPE_A >= Q4_0 ? 1 : bytes_of(TYPE_A)));
}

void main() {
    uint lane = gl_LocalInvocationID.x, row = lane / LANES, part = lane % LANES, k_end = push.p[0];
    uint i = gl_WorkGroupID.x * ROWS + row, columns = BY_ID ? 1 : COLUMNS, j0 = gl_WorkGroupID.y * columns;
    uint batch3 = BY_ID ? 0 : gl_WorkGroupID.z / push.n[2], batch2 = gl_WorkGroupID.z - batch3 * push.n[2];
    uint64_t matrix = matrix_of(j0, batch2, batch3);
    uint64_t at_row = matrix + uint64_t(int64_t(i) * push.sa[1] * (TYPE_A >= Q4_0 ? 1 : bytes_of(TYPE_A)));
    int64_t base_b = int64_t(batch2) * push.sb[2] + int64_t(batch3) * push.sb[3];
    uint last_j = min(j0 + columns, push.n[1]);
    float sum = 0.0;
    for (uint k0 = 0; k0 < k_end; k0 += RUNS * RUN) {
        for (uint s = 0; s < AHEAD; s++) {
            uint run = s * LANES + part, k = k0 + run * RUN;
            if (i >= push.n[0] || k >= k_end || matrix == 0) continue;
            float w[RUN];
            uint most = min(RUN, k_end - k);
            get_run(at_row, k / RUN, most, w);
            for (uint j = j0; j < last_j; j++) {
                int64_t from = base_b + int64_t(BY_ID ? j % push.nb[1] : j) * push.sb[1] + int64_t(k) * push.sb[0];
                total[(run * ROWS + row) * COLUMNS + j - j0] = dot_run(w, from, most);
            }
        }
        barrier();
        uint runs = min(RUNS, (k_end - k0 + RUN - 1) / RUN);
        if (lane < ROWS * COLUMNS)
            for (uint r = 0; r < runs; r++) sum += total[r * ROWS * COLUMNS + lane];
        barrier();
    }
    uint i_out = gl_WorkGroupID.x * ROWS + lane / COLUMNS, j_out = j0 + lane % COLUMNS;
    if (lane >= ROWS * COLUMNS || i_out >= push.n[0] || j_out >= last_j) return;
    store(TYPE_Y, push.y, int64_t(i_out) * push.sy[0] + int64_t(j_out) * push.sy[1] + int64_t(batch2) * push.sy[2] +
                          int64_t(batch3) * push.sy[3], matrix == 0 ? 0.0 : sum);
}
