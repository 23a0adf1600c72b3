#version 450
// glslc: -O0 --target-env=vulkan1.3
// Not optimised by glslc, which does not know these matrices well; drivers do. The second kind needs SPIR-V 1.6.
// y[j][i] = sum over k of b[j][k] a[i][k], as coop.comp has it, with matrices that the whole workgroup holds together: the driver
// stages them as it likes, and edges are clamped by the layouts. n, p and FN as there.
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_cooperative_matrix : require
#extension GL_NV_cooperative_matrix2 : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#pragma use_vulkan_memory_model
#include "common.glsl"
layout(local_size_x_id = 6) in;

layout(constant_id = 6) const uint LANES = 256;
layout(constant_id = 7) const uint BJ = 128;
layout(constant_id = 8) const uint BI = 256;
layout(constant_id = 9) const uint BK = 32;

const bool TURN_A = (FN & 1u) != 0, TURN_B = (FN & 2u) != 0;
const uint LOADS = FN >> 3 & 3u, WHOLE = 0;

layout(buffer_reference, std430, buffer_reference_align = 16) buffer Wide { float16_t v[]; };
layout(buffer_reference, std430, buffer_reference_align = 2) buffer Halves { float16_t v[]; };
layout(buffer_reference, std430, buffer_reference_align = 16) buffer WideFloats { float v[]; };
layout(buffer_reference, std430, buffer_reference_align = 4) buffer Floats { float v[]; };
layout(buffer_reference, std430, buffer_reference_align = 4) buffer OneFloat { float v; };

float16_t rounded(const in OneFloat from, const in uint block[2], const in uint inside[2]) { return float16_t(from.v); }

const uint CLAMP = gl_CooperativeMatrixClampModeConstantNV;
tensorViewNV<2, false, 1, 0> turn = createTensorViewNV(2, false, 1, 0);

uvec2 tile_of_group() {
    const uint BAND = 8;
    uint across = push.p[3], down = push.p[4], number = gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x;
    uint band = number / (BAND * across), rest = number - band * BAND * across, high = min(down - band * BAND, BAND);
    return uvec2(rest / high, band * BAND + rest % high);
}

void main() {
    uvec2 corner = tile_of_group() * uvec2(BI, BJ);
    if (corner.y >= push.n[1]) return;
    uint i0 = corner.x, j0 = corner.y, k_end = push.p[0];
    uint batch3 = gl_WorkGroupID.z / push.n[2], batch2 = gl_WorkGroupID.z - batch3 * push.n[2];
    int64_t skip_a = int64_t(batch2 / push.p[1]) * push.sa[2] + int64_t(batch3 / push.p[2]) * push.sa[3];
    int64_t skip_b = int64_t(batch2) * push.sb[2] + int64_t(batch3) * push.sb[3];
    int64_t skip_y = int64_t(batch2) * push.sy[2] + int64_t(batch3) * push.sy[3];
    uint64_t base_a = push.a + uint64_t(skip_a) * (TYPE_A == F16 ? 2 : 4), base_b = push.b + uint64_t(skip_b) * (TYPE_B == F16 ? 2 : 4);
    uint64_t base_y = push.y + uint64_t(skip_y) * (TYPE_Y == F32 ? 4 : 2);
    // Memory order: the slow axis first. A multiple of eight is written as one, for the compiler to see.
    uint line_a = TURN_A ? push.sa[0] : push.sa[1], line_b = TURN_B ? push.sb[0] : push.sb[1];

    coopmat<float, gl_ScopeWorkgroup, BJ, BI, gl_MatrixUseAccumulator> sum =
        coopmat<float, gl_ScopeWorkgroup, BJ, BI, gl_MatrixUseAccumulator>(0.0);
    coopmat<float16_t, gl_ScopeWorkgroup, BJ, BK, gl_MatrixUseA> left;
    coopmat<float16_t, gl_ScopeWorkgroup, BK, BI, gl_MatrixUseB> right;

    if (LOADS == WHOLE && TYPE_A == F16 && TYPE_B == F16) {
        tensorLayoutNV<2> la = createTensorLayoutNV(2), lb = createTensorLayoutNV(2), ly = createTensorLayoutNV(2);
        la = setTensorLayoutDimensionNV(la, TURN_A ? k_end : push.n[0], TURN_A ? push.n[0] : k_end);
        lb = setTensorLayoutDimensionNV(lb, TURN_B ? k_end : push.n[1], TURN_B ? push.n[1] : k_end);
        la = setTensorLayoutStrideNV(la, line_a / 8 * 8, 1);
        lb = setTensorLayoutStrideNV(lb, line_b / 8 * 8, 1);
        for (uint k = 0; k < k_end; k += BK) {
            if (TURN_B) coopMatLoadTensorNV(left, Wide(base_b).v, 0, sliceTensorLayoutNV(lb, k, BK, j0, BJ), turn);
            else coopMatLoadTensorNV(left, Wide(base_b).v, 0, sliceTensorLayoutNV(lb, j0, BJ, k, BK));
            if (TURN_A) coopMatLoadTensorNV(right, Wide(base_a).v, 0, sliceTensorLayoutNV(la, k, BK, i0, BI));
            else coopMatLoadTensorNV(right, Wide(base_a).v, 0, sliceTensorLayoutNV(la, i0, BI, k, BK), turn);
            sum = coopMatMulAdd(left, right, sum);
        }
    } else {
        tensorLayoutNV<2, CLAMP> la = createTensorLayoutNV(2, CLAMP), lb = createTensorLayoutNV(2, CLAMP);
        la = setTensorLayoutDimensionNV(la, TURN_A ? k_end : push.n[0], TURN_A ? push.n[0] : k_end);
        lb = setTensorLayoutDimensionNV(lb, TURN_B ? k_end : push.n[1], TURN_B ? push.n[1] : k_end);
        la = setTensorLayoutStrideNV(la, line_a, 1);
        lb = setTensorLayoutStrideNV(lb, line_b, 1);
        for (uint k = 0; k < k_end; k += BK) {
            if (TYPE_B == F16) {
                if (TURN_B) coopMatLoadTensorNV(left, Halves(base_b).v, 0, sliceTensorLayoutNV(lb, k, BK, j0, BJ), turn);
                else coopMatLoadTensorNV(left, Halves(base_b).v, 0, sliceTensorLayoutNV(lb, j0, BJ, k, BK));
            } else {
                if (TURN_B) coopMatLoadTensorNV(left, Floats(base_b).v, 0, sliceTensorLayoutNV(lb, k, BK, j0, BJ), turn, rounded);
                else coopMatLoadTensorNV(left, Floats(base_b).v, 0, sliceTensorLayoutNV(lb, j0, BJ, k, BK), rounded);
            }
            if (TYPE_A == F16) {
                if (TURN_A) coopMatLoadTensorNV(right, Halves(base_a).v, 0, sliceTensorLayoutNV(la, k, BK, i0, BI));
                else coopMatLoadTensorNV(right, Halves(base_a).v, 0, sliceTensorLayoutNV(la, i0, BI, k, BK), turn);
            } else {
                if (TURN_A) coopMatLoadTensorNV(right, Floats(base_a).v, 0, sliceTensorLayoutNV(la, k, BK, i0, BI), rounded);
                else coopMatLoadTensorNV(right, Floats(base_a).v, 0, sliceTensorLayoutNV(la, i0, BI, k, BK), turn, rounded);
            }
            sum = coopMatMulAdd(left, right, sum);
        }
    }

    tensorLayoutNV<2, CLAMP> ly = createTensorLayoutNV(2, CLAMP);
    ly = setTensorLayoutDimensionNV(ly, push.n[1], push.n[0]);
    ly = setTensorLayoutStrideNV(ly, push.sy[1], push.sy[0]);
    ly = sliceTensorLayoutNV(ly, j0, BJ, i0, BI);
    if (TYPE_Y == F32) coopMatStoreTensorNV(sum, Floats(base_y).v, 0, ly);
    else coopMatStoreTensorNV(coopmat<float16_t, gl_ScopeWorkgroup, BJ, BI, gl_MatrixUseAccumulator>(sum), Halves(base_y).v, 0, ly);
}
