#version 450
// glslc: -O0 --target-env=vulkan1.2
// Not optimised by glslc, which does not know these matrices well; drivers do.
// y[j][i] = sum over k of b[j][k] a[i][k] on cooperative matrices of halves with f32 sums. A workgroup makes a tile of BJ by BI, a
// subgroup WJ by WI of it out of fragments of the device's own shape; slices of BK along k go through shared memory while the next
// slice is already on its way to registers. Numbers that are f32 in memory become halves on the way in.
// Every element of y adds its fragments in the order of k, whatever the tile, so its bits do not depend on the batch.
// n: i, j, batches. p: extent of k, how many batches of b share one of a (two axes), tiles across and down.
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#extension GL_EXT_control_flow_attributes : require
#pragma use_vulkan_memory_model
#include "common.glsl"
layout(local_size_x_id = 6) in;

layout(constant_id = 6) const uint LANES = 256;
layout(constant_id = 7) const uint BJ = 128;
layout(constant_id = 8) const uint BI = 128;
layout(constant_id = 9) const uint BK = 32;
layout(constant_id = 10) const uint WJ = 64;
layout(constant_id = 11) const uint WI = 32;
layout(constant_id = 12) const uint STAGES = 2; // slices that shared memory holds
layout(constant_id = 13) const uint FJ = 16;    // one fragment
layout(constant_id = 14) const uint FI = 16;
layout(constant_id = 15) const uint FK = 16;

// FN, must agree with vk_pack_product.c: which operands have i or j, not k, as their fastest axis; how careful loads must be; and
// whether whole fragments may go straight to y.
const bool TURN_A = (FN & 1u) != 0, TURN_B = (FN & 2u) != 0, STORE_WHOLE = (FN & 4u) != 0;
const uint LOADS = FN >> 3 & 3u, WHOLE = 0, CHECKED = 1, SINGLE = 2;

// Shared memory in words of eight halves. One word more per line keeps neighbouring lines out of each other's banks.
const uint LINE_A = (TURN_A ? BI : BK) / 8 + 1, LINE_B = (TURN_B ? BJ : BK) / 8 + 1;
const uint PART_A = LINE_A * (TURN_A ? BK : BI), PART_B = LINE_B * (TURN_B ? BK : BJ);
const uint STAGE = PART_A + PART_B;
shared uvec4 tile[STAGE * STAGES];

const uint WORDS_A = BI * BK / 8, WORDS_B = BJ * BK / 8, MINE_A = WORDS_A / LANES, MINE_B = WORDS_B / LANES;
const uint ACROSS_A = (TURN_A ? BI : BK) / 8, ACROSS_B = (TURN_B ? BJ : BK) / 8; // words per line
const uint ROWS = WJ / FJ, COLUMNS = WI / FI;

layout(buffer_reference, std430, buffer_reference_align = 16) readonly buffer Quad { uvec4 v; };
layout(buffer_reference, std430, buffer_reference_align = 16) writeonly buffer Floats { float v[]; };
layout(buffer_reference, std430, buffer_reference_align = 16) writeonly buffer Halves { float16_t v[]; };

// f32 rounds here and halves keep their bits.
uint half_bits(uint type, uint64_t at, int64_t i) {
    if (type == F16) return uint(Word16(at + uint64_t(i * 2)).v);
    return packFloat2x16(f16vec2(uintBitsToFloat(Word32(at + uint64_t(i * 4)).v), 0.0));
}

uvec4 eight(uint type, uint64_t at) {
    if (type == F16) return Quad(at).v;
    vec4 low = uintBitsToFloat(Quad(at).v), high = uintBitsToFloat(Quad(at + 16).v);
    return uvec4(packFloat2x16(f16vec2(low.xy)), packFloat2x16(f16vec2(low.zw)), packFloat2x16(f16vec2(high.xy)),
                 packFloat2x16(f16vec2(high.zw)));
}

// Eight neighbours along the fast axis from (line, at): steps are elements, ends the extents of both axes.
uvec4 fetch(uint type, uint64_t base, uint line, uint at, uint lines, uint length, int line_step, int step) {
    uint size = type == F16 ? 2 : 4;
    if (LOADS == WHOLE) return eight(type, base + uint64_t(int64_t(line) * line_step + at) * size);
    if (line >= lines || at >= length) return uvec4(0);
    if (LOADS == CHECKED) return eight(type, base + uint64_t(int64_t(line) * line_step + at) * size);
    uint words[8];
    [[unroll]] for (uint e = 0; e < 8; e++)
        words[e] = at + e < length ? half_bits(type, base, int64_t(line) * line_step + int64_t(at + e) * step) : 0;
    return uvec4(words[0] | words[1] << 16, words[2] | words[3] << 16, words[4] | words[5] << 16, words[6] | words[7] << 16);
}

uvec4 word_a(uint64_t base, uint w, uint i0, uint k0) {
    uint line = w / ACROSS_A, at = w % ACROSS_A * 8;
    if (TURN_A) return fetch(TYPE_A, base, k0 + line, i0 + at, push.p[0], push.n[0], push.sa[0], push.sa[1]);
    return fetch(TYPE_A, base, i0 + line, k0 + at, push.n[0], push.p[0], push.sa[1], push.sa[0]);
}

uvec4 word_b(uint64_t base, uint w, uint j0, uint k0) {
    uint line = w / ACROSS_B, at = w % ACROSS_B * 8;
    if (TURN_B) return fetch(TYPE_B, base, k0 + line, j0 + at, push.p[0], push.n[1], push.sb[0], push.sb[1]);
    return fetch(TYPE_B, base, j0 + line, k0 + at, push.n[1], push.p[0], push.sb[1], push.sb[0]);
}

// Which tile is this workgroup's: they go in bands of eight rows, so that those that run together share what they read.
uvec2 tile_of_group() {
    const uint BAND = 8;
    uint across = push.p[3], down = push.p[4], number = gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x;
    uint band = number / (BAND * across), rest = number - band * BAND * across, high = min(down - band * BAND, BAND);
    return uvec2(rest / high, band * BAND + rest % high);
}

void main() {
    uint lane = gl_LocalInvocationID.x, k_end = push.p[0];
    uvec2 corner = tile_of_group() * uvec2(BI, BJ);
    if (corner.y >= push.n[1]) return; // the grid may have been folded
    uint i0 = corner.x, j0 = corner.y, batch3 = gl_WorkGroupID.z / push.n[2], batch2 = gl_WorkGroupID.z - batch3 * push.n[2];
    int64_t skip_a = int64_t(batch2 / push.p[1]) * push.sa[2] + int64_t(batch3 / push.p[2]) * push.sa[3];
    int64_t skip_b = int64_t(batch2) * push.sb[2] + int64_t(batch3) * push.sb[3];
    uint64_t base_a = push.a + uint64_t(skip_a) * (TYPE_A == F16 ? 2 : 4), base_b = push.b + uint64_t(skip_b) * (TYPE_B == F16 ? 2 : 4);
    uint wj = gl_SubgroupID / (BI / WI) * WJ, wi = gl_SubgroupID % (BI / WI) * WI;

    coopmat<float, gl_ScopeSubgroup, FJ, FI, gl_MatrixUseAccumulator> sum[ROWS * COLUMNS];
    [[unroll]] for (uint e = 0; e < ROWS * COLUMNS; e++) sum[e] = coopmat<float, gl_ScopeSubgroup, FJ, FI, gl_MatrixUseAccumulator>(0.0);

    uvec4 next_a[MINE_A], next_b[MINE_B];
    [[unroll]] for (uint e = 0; e < MINE_A; e++) next_a[e] = word_a(base_a, e * LANES + lane, i0, 0);
    [[unroll]] for (uint e = 0; e < MINE_B; e++) next_b[e] = word_b(base_b, e * LANES + lane, j0, 0);
    uint stage = 0;
    for (uint k0 = 0; k0 < k_end; k0 += BK) {
        [[unroll]] for (uint e = 0; e < MINE_A; e++) {
            uint w = e * LANES + lane;
            tile[stage + w / ACROSS_A * LINE_A + w % ACROSS_A] = next_a[e];
        }
        [[unroll]] for (uint e = 0; e < MINE_B; e++) {
            uint w = e * LANES + lane;
            tile[stage + PART_A + w / ACROSS_B * LINE_B + w % ACROSS_B] = next_b[e];
        }
        barrier();
        if (k0 + BK < k_end) {
            [[unroll]] for (uint e = 0; e < MINE_A; e++) next_a[e] = word_a(base_a, e * LANES + lane, i0, k0 + BK);
            [[unroll]] for (uint e = 0; e < MINE_B; e++) next_b[e] = word_b(base_b, e * LANES + lane, j0, k0 + BK);
        }
        [[unroll]] for (uint k = 0; k < BK; k += FK) {
            coopmat<float16_t, gl_ScopeSubgroup, FJ, FK, gl_MatrixUseA> left[ROWS];
            [[unroll]] for (uint r = 0; r < ROWS; r++) {
                uint j = wj + r * FJ;
                if (TURN_B) coopMatLoad(left[r], tile, stage + PART_A + k * LINE_B + j / 8, LINE_B, gl_CooperativeMatrixLayoutColumnMajor);
                else coopMatLoad(left[r], tile, stage + PART_A + j * LINE_B + k / 8, LINE_B, gl_CooperativeMatrixLayoutRowMajor);
            }
            [[unroll]] for (uint c = 0; c < COLUMNS; c++) {
                coopmat<float16_t, gl_ScopeSubgroup, FK, FI, gl_MatrixUseB> right;
                uint i = wi + c * FI;
                if (TURN_A) coopMatLoad(right, tile, stage + k * LINE_A + i / 8, LINE_A, gl_CooperativeMatrixLayoutRowMajor);
                else coopMatLoad(right, tile, stage + i * LINE_A + k / 8, LINE_A, gl_CooperativeMatrixLayoutColumnMajor);
                [[unroll]] for (uint r = 0; r < ROWS; r++) sum[c * ROWS + r] = coopMatMulAdd(left[r], right, sum[c * ROWS + r]);
            }
        }
        if (STAGES == 1) barrier();
        else stage = STAGE - stage;
    }

    int64_t skip_y = int64_t(batch2) * push.sy[2] + int64_t(batch3) * push.sy[3];
    uint64_t base_y = push.y + uint64_t(skip_y) * (TYPE_Y == F32 ? 4 : 2);
    if (STORE_WHOLE && i0 + BI <= push.n[0] && j0 + BJ <= push.n[1]) {
        [[unroll]] for (uint e = 0; e < ROWS * COLUMNS; e++) {
            uint j = j0 + wj + e % ROWS * FJ, i = i0 + wi + e / ROWS * FI;
            uint64_t at = uint64_t(int64_t(j) * push.sy[1] + i);
            if (TYPE_Y == F32) coopMatStore(sum[e], Floats(base_y + at * 4).v, 0, push.sy[1], gl_CooperativeMatrixLayoutRowMajor);
            else coopMatStore(coopmat<float16_t, gl_ScopeSubgroup, FJ, FI, gl_MatrixUseAccumulator>(sum[e]), Halves(base_y + at * 2).v, 0,
                              push.sy[1], gl_CooperativeMatrixLayoutRowMajor);
        }
        return;
    }
    barrier(); // the last slice has been read; its room now holds one fragment per subgroup
    uint room = gl_SubgroupID * (FJ * FI / 4);
    [[unroll]] for (uint e = 0; e < ROWS * COLUMNS; e++) {
        coopMatStore(sum[e], tile, room, FI / 4, gl_CooperativeMatrixLayoutRowMajor);
        controlBarrier(gl_ScopeSubgroup, gl_ScopeSubgroup, gl_StorageSemanticsShared, gl_SemanticsAcquireRelease);
        uint jf = j0 + wj + e % ROWS * FJ, fi = i0 + wi + e / ROWS * FI;
        for (uint x = gl_SubgroupInvocationID; x < FJ * FI; x += gl_SubgroupSize) {
            uint j = jf + x / FI, i = fi + x % FI;
            if (i < push.n[0] && j < push.n[1])
                store(TYPE_Y, base_y, int64_t(i) * push.sy[0] + int64_t(j) * push.sy[1], uintBitsToFloat(tile[room + x / 4][x % 4]));
        }
        controlBarrier(gl_ScopeSubgroup, gl_ScopeSubgroup, gl_StorageSemanticsShared, gl_SemanticsAcquireRelease);
    }
}
