#version 450
// glslc: -O0 --target-env=vulkan1.2
// What emitted regions are made from (vk_region.c). This file is never run as it is: the emitter puts calls of the functions below
// into the place of the body of `region` and leaves out what is not called. A function step_<kind> is there for every kind of
// region_ops.def; its first argument is the sub-op. Everything is passed by value, which `const in` stands for.
// n: extents. p[0..1]: address of the block.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "functions.glsl"
layout(local_size_x = 256) in;

// Must agree with region_block in vk_region.c.
layout(buffer_reference, std430, buffer_reference_align = 16) readonly buffer Block {
    ivec4 stride[16]; // of the sources, then of the outputs
    uint64_t base[16];
};

float read_source(const in uint which, const in uint type, const in uvec4 at) {
    Block b = Block(address(0));
    ivec4 s = b.stride[which];
    return load(type, b.base[which], place(at, s.x, s.y, s.z, s.w));
}

// Integers of 32 bits, which a float cannot hold.
uint read_word(const in uint which, const in uint type, const in uvec4 at) {
    Block b = Block(address(0));
    ivec4 s = b.stride[which];
    return Word32(b.base[which] + uint64_t(place(at, s.x, s.y, s.z, s.w) * 4)).v;
}

void write_output(const in uint which, const in uint type, const in uvec4 at, const in float v) {
    Block b = Block(address(0));
    ivec4 s = b.stride[which];
    store(type, b.base[which], place(at, s.x, s.y, s.z, s.w), v);
}

float round_to(const in uint type, const in float v) {
    if (type == F16) return from_half(to_half(v));
    if (type == BF16) return uintBitsToFloat(to_bfloat(v) << 16);
    if (type == BOOL) return truth(!is_zero(v));
    return v;
}

float step_cast(const in uint fn, const in float a) { return a; }
float step_unary(const in uint fn, const in float a) { return unary_of(fn, a); }
float step_math(const in uint fn, const in float a) { return math_of(fn, a); }
float step_sqr(const in uint fn, const in float a) { return arith_of(2, a, a); }
float step_sqrt(const in uint fn, const in float a) { return root(a); }
float step_log(const in uint fn, const in float a) { return log_of(a); }
float step_sin(const in uint fn, const in float a) { return sine(a); }
float step_cos(const in uint fn, const in float a) { return cosine(a); }
float step_scale(const in uint fn, const in float a, const in float b, const in float c) {
    return is_zero(c) ? arith_of(2, a, b) : fma(a, b, c);
}
float step_clamp(const in uint fn, const in float a, const in float b, const in float c) {
    return is_nan(a) ? a : a < b ? b : a > c ? c : a;
}
float step_leaky_relu(const in uint fn, const in float a, const in float b) { return a > 0.0 || is_nan(a) ? a : arith_of(2, b, a); }
float step_arith(const in uint fn, const in float a, const in float b) { return arith_of(fn, a, b); }

float step_compare(const in uint fn, const in float a, const in float b) {
    bool equal = order_of(a) == order_of(b), less = order_of(a) < order_of(b), known = !is_nan(a) && !is_nan(b);
    switch (fn) {
    case 0: return truth(known && equal);
    case 1: return truth(!(known && equal));
    case 2: return truth(known && less);
    case 3: return truth(known && (less || equal));
    case 4: return truth(known && !less && !equal);
    default: return truth(known && !less);
    }
}

float compare_words(const in uint fn, const in uint type, const in uint a, const in uint b) {
    bool equal = a == b, less = type == U32 ? a < b : int(a) < int(b);
    switch (fn) {
    case 0: return truth(equal);
    case 1: return truth(!equal);
    case 2: return truth(less);
    case 3: return truth(less || equal);
    case 4: return truth(!less && !equal);
    default: return truth(!less);
    }
}

float step_logic(const in uint fn, const in float a, const in float b) {
    bool p = !is_zero(a), q = !is_zero(b);
    switch (fn) {
    case 0: return truth(p && q);
    case 1: return truth(p || q);
    case 2: return truth(p != q);
    default: return truth(!p);
    }
}

float step_where(const in uint fn, const in float a, const in float b, const in float c) { return is_zero(a) ? c : b; }
float step_unary_back(const in uint fn, const in float a, const in float b) { return arith_of(2, a, unary_slope(fn, b)); }
float step_math_back(const in uint fn, const in float a, const in float b) { return arith_of(2, a, math_slope(fn, b)); }
float step_silu_back(const in uint fn, const in float a, const in float b) { return arith_of(2, a, silu_slope(b)); }

// Calls everything once, so that the compiler keeps it.
void region(const in uvec4 at) {
    float a = read_source(0, 0, at), b = step_cast(0, a), c = step_unary(0, b) + step_math(0, b) + step_sqr(0, b) + step_sqrt(0, b);
    c += step_log(0, b) + step_sin(0, b) + step_cos(0, b) + step_scale(0, a, b, b) + step_clamp(0, a, b, b) + step_leaky_relu(0, a, b);
    c += step_arith(0, a, b) + step_compare(0, a, b) + compare_words(0, 0, read_word(0, 0, at), 0) + step_logic(0, a, b);
    c += step_where(0, a, b, b) + step_unary_back(0, a, b) + step_math_back(0, a, b) + step_silu_back(0, a, b);
    write_output(0, 0, at, round_to(0, c));
}

void main() {
    uint i = group() * 256 + gl_LocalInvocationID.x;
    if (i < count()) region(walk(i));
}
