#version 450
// y[j][i] = sum over k of b[j][k] a[i][k] where there are few j: a workgroup makes eight i of four j. Each i has 32 lanes; a lane adds
// up a run of 32 products of every 1024 and the runs' sums are then added in their order, which is how mul_mat.comp adds: the bits are
// the same. Rows of b go through shared memory, turned so that lanes find their runs in different banks.
// n: i, j, batches. p[0]: extent of k. The axis of k is a's last; strides of a are bytes where it has a block type.
// FN bit 0 clear: p[1..2] say how many batches of b share one of a (two axes). Set: every j of every batch has a matrix of its own,
// number ids[batch][j] of nb[0]; nb[1] is how many rows a batch of b has before they repeat, p[2..3] where the ids are, nb[2..3] their
// strides; a number that names none gives 0, and leaves the step's number p[1] in the status word at p[4..5].
// FN bit 1: rows of a are not blocks, and runs of them may be read 16 bytes at a time.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "blocks.glsl"
layout(local_size_x = 256) in;
layout(buffer_reference, std430, buffer_reference_align = 16) readonly buffer Quad { uvec4 v; };

const bool BY_ID = (FN & 1u) != 0, QUADS = (FN & 2u) != 0, BLOCKS = TYPE_A >= Q4_0;
const uint ROWS = 8, COLUMNS = 4, LANES = 32, RUN = 32, PITCH = LANES + 1;
shared float some_b[RUN * PITCH];
shared float total[ROWS * PITCH];

float from_pair(uint pair, uint second) {
    uint h = second != 0 ? pair >> 16 : pair & 0xffffu;
    return TYPE_A == BF16 ? uintBitsToFloat(h << 16) : from_half(h);
}

void get_run(uint64_t row, uint run, uint most, out float w[RUN]) {
    if (BLOCKS) {
        block_run(TYPE_A, row, run, w);
    } else if (QUADS && most == RUN) {
        uint64_t from = row + uint64_t(run) * RUN * bytes_of(TYPE_A);
        [[unroll]] for (uint e = 0; e < RUN * bytes_of(TYPE_A) / 16; e++) {
            uvec4 v = Quad(from + e * 16).v;
            [[unroll]] for (uint c = 0; c < 4; c++) {
                if (TYPE_A == F32) w[e * 4 + c] = uintBitsToFloat(v[c]);
                else if (e < 4) {
                    w[e * 8 + c * 2] = from_pair(v[c], 0);
                    w[e * 8 + c * 2 + 1] = from_pair(v[c], 1);
                }
            }
        }
    } else {
        [[unroll]] for (uint e = 0; e < RUN; e++) w[e] = e < most ? load(TYPE_A, row, int64_t(run * RUN + e) * push.sa[0]) : 0.0;
    }
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
    return push.a + uint64_t(at * (BLOCKS ? 1 : bytes_of(TYPE_A)));
}

void main() {
    uint lane = gl_LocalInvocationID.x, row = lane / LANES, part = lane % LANES, k_end = push.p[0];
    uint i = gl_WorkGroupID.x * ROWS + row, j0 = gl_WorkGroupID.y * (BY_ID ? 1 : COLUMNS);
    uint batch3 = BY_ID ? 0 : gl_WorkGroupID.z / push.n[2], batch2 = gl_WorkGroupID.z - batch3 * push.n[2];
    uint columns = BY_ID ? 1 : min(COLUMNS, push.n[1] - j0);
    uint64_t matrix = matrix_of(j0, batch2, batch3);
    uint64_t at_row = matrix + uint64_t(int64_t(i) * push.sa[1] * (BLOCKS ? 1 : bytes_of(TYPE_A)));
    int64_t base_b = int64_t(batch2) * push.sb[2] + int64_t(batch3) * push.sb[3];
    float sum[COLUMNS] = float[COLUMNS](0.0, 0.0, 0.0, 0.0);
    for (uint k0 = 0; k0 < k_end; k0 += LANES * RUN) {
        float w[RUN];
        uint k = k0 + part * RUN, most = k < k_end ? min(RUN, k_end - k) : 0, runs = min(LANES, (k_end - k0 + RUN - 1) / RUN);
        if (i < push.n[0] && most > 0 && matrix != 0) get_run(at_row, k / RUN, most, w);
        else most = 0;
        [[unroll]] for (uint c = 0; c < COLUMNS; c++) {
            if (c >= columns) break;
            uint j = BY_ID ? j0 % push.nb[1] : j0 + c;
            int64_t from = base_b + int64_t(j) * push.sb[1];
            for (uint e = lane; e < LANES * RUN && k0 + e < k_end; e += 256)
                some_b[e % RUN * PITCH + e / RUN] = load(TYPE_B, push.b, from + int64_t(k0 + e) * push.sb[0]);
            barrier();
            float own = 0.0;
            [[unroll]] for (uint e = 0; e < RUN; e++)
                if (e < most) own = fma(w[e], some_b[e * PITCH + part], own);
            total[row * PITCH + part] = own;
            barrier();
            if (lane < ROWS)
                for (uint r = 0; r < runs; r++) sum[c] += total[lane * PITCH + r];
        }
    }
    i = gl_WorkGroupID.x * ROWS + lane;
    if (lane >= ROWS || i >= push.n[0]) return;
    int64_t to = int64_t(i) * push.sy[0] + int64_t(j0) * push.sy[1] + int64_t(batch2) * push.sy[2] + int64_t(batch3) * push.sy[3];
    [[unroll]] for (uint c = 0; c < COLUMNS; c++)
        if (c < columns) store(TYPE_Y, push.y, to + int64_t(c) * push.sy[1], sum[c]);
}
