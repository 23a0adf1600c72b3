// What every kernel shares: the push constants, typed access to memory by address, and walking a shape.
// Halves are kept as 16-bit integers and converted here, with integer arithmetic: the rounding is then the library's on every
// device, small numbers are not flushed, and drivers whose own conversion is broken do not matter.
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_shader_16bit_storage : require
#extension GL_EXT_shader_8bit_storage : require
#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require

// Must agree with qn_vk_push in vk.h.
layout(push_constant, std430) uniform Push {
    uint64_t a, b, y; // addresses of the first elements
    uint n[4];        // extents that are walked, fastest first
    int sa[4];        // strides in elements
    int sb[4];
    int sy[4];
    uint nb[4];       // extents of a second shape: b's where it is tiled, the source's where a copy reshapes
    uint p[6];        // the kernel's own numbers
} push;

// Must agree with qn_vk_type in vk.h.
const uint F32 = 0, F16 = 1, BF16 = 2, I32 = 3, RAW8 = 4, RAW16 = 5, RAW32 = 6, RAW64 = 7, BOOL = 8, U8 = 9, I8 = 10, I16 = 11, U32 = 12;

layout(constant_id = 0) const uint TYPE_A = 0;
layout(constant_id = 1) const uint TYPE_B = 0;
layout(constant_id = 2) const uint TYPE_Y = 0;
layout(constant_id = 3) const uint FN = 0;    // which function
layout(constant_id = 4) const uint RANK = 4;  // axes of n in use
layout(constant_id = 5) const uint TILED = 0; // b is smaller than what is walked

layout(buffer_reference, std430, buffer_reference_align = 1) buffer Word8 { uint8_t v; };
layout(buffer_reference, std430, buffer_reference_align = 2) buffer Word16 { uint16_t v; };
layout(buffer_reference, std430, buffer_reference_align = 4) buffer Word32 { uint v; };
layout(buffer_reference, std430, buffer_reference_align = 8) buffer Word64 { uvec2 v; };

bool is_nan(float x) { return (floatBitsToUint(x) & 0x7fffffffu) > 0x7f800000u; }
// A compiler may turn a comparison round, and then NaN is less or more than anything: what NaN must not pass asks for its bits, too.
bool is_finite(float x) { return (floatBitsToUint(x) & 0x7f800000u) != 0x7f800000u; }
float not_a_number() { return uintBitsToFloat(0x7fc00000u); }
float infinity() { return uintBitsToFloat(0x7f800000u); }
float number(uint i) { return uintBitsToFloat(push.p[i]); }
uint64_t address(uint i) { return uint64_t(push.p[i]) | uint64_t(push.p[i + 1]) << 32; }

float from_half(uint h) {
    uint sign = (h & 0x8000u) << 16, e = h >> 10 & 31u, m = h & 0x3ffu;
    if (e == 31) return uintBitsToFloat(sign | 0x7f800000u | m << 13);
    if (e != 0) return uintBitsToFloat(sign | (e + 112) << 23 | m << 13);
    float small = float(m) * uintBitsToFloat(0x33800000u); // 2^-24
    return uintBitsToFloat(sign | floatBitsToUint(small));
}

// To nearest, ties to even; NaN stays NaN.
uint to_half(float f) {
    uint x = floatBitsToUint(f), sign = x >> 16 & 0x8000u, a = x & 0x7fffffffu;
    if (a > 0x7f800000u) return sign | 0x7e00u;
    if (a >= 0x477ff000u) return sign | 0x7c00u; // from halfway past the largest
    if (a < 0x33000000u) return sign;            // below half of the smallest
    if (a < 0x38800000u) {                       // becomes subnormal
        uint shift = 126u - (a >> 23), m = (a & 0x7fffffu) | 0x800000u;
        uint whole = m >> shift, rest = m & ((1u << shift) - 1u), mid = 1u << (shift - 1u);
        return sign | (whole + uint(rest > mid || (rest == mid && (whole & 1u) != 0)));
    }
    uint r = a - 0x38000000u;
    return sign | (r + 0xfffu + (r >> 13 & 1u)) >> 13;
}

uint to_bfloat(float f) {
    uint x = floatBitsToUint(f);
    if ((x & 0x7fffffffu) > 0x7f800000u) return x >> 16 | 0x40u;
    return (x + 0x7fffu + (x >> 16 & 1u)) >> 16;
}

// Toward zero, saturating at the ends; NaN gives 0. A float cannot hold the highest i32 and u32, only what lies just above.
int to_int(float f) {
    if (is_nan(f)) return 0;
    if (f >= 2147483648.0) return 0x7fffffff;
    if (f < -2147483648.0) return int(0x80000000u);
    return int(f);
}
int to_range(float f, float low, float high) { return is_nan(f) ? 0 : int(clamp(f, low, high)); }
uint to_uint(float f) { return is_nan(f) || f <= 0.0 ? 0 : f >= 4294967296.0 ? 0xffffffffu : uint(f); }

bool is_zero(float x) { return (floatBitsToUint(x) & 0x7fffffffu) == 0; } // by its bits: a device may take small numbers for 0
// Ordered as the number is, NaN above all and both zeros one: for comparing where a device may take small numbers for 0.
int order_of(float x) {
    uint u = floatBitsToUint(x), size = u & 0x7fffffffu;
    return size > 0x7f800000u ? 0x7fffffff : (u >> 31) != 0 ? -int(size) : int(size);
}
float truth(bool b) { return b ? 1.0 : 0.0; }
// Whether no step so far found an index out of range, by the status word.
bool all_is_well(const in uint64_t status) { return Word32(status).v == 0xffffffffu; }
uint bytes_of(const in uint type) {
    return type == RAW8 || type == BOOL || type == U8 || type == I8 ? 1
           : type == F16 || type == BF16 || type == RAW16 || type == I16 ? 2
           : type == RAW64 ? 8 : 4;
}

float load(const in uint type, const in uint64_t base, const in int64_t i) {
    uint64_t at = base + uint64_t(i * bytes_of(type));
    switch (type) {
    case F16: return from_half(uint(Word16(at).v));
    case BF16: return uintBitsToFloat(uint(Word16(at).v) << 16);
    case I32: return float(int(Word32(at).v));
    case U32: return float(Word32(at).v);
    case I16: return float(int(uint(Word16(at).v) << 16) >> 16);
    case I8: return float(int(uint(Word8(at).v) << 24) >> 24);
    case U8: return float(uint(Word8(at).v));
    case BOOL: return truth(uint(Word8(at).v) != 0);
    default: return uintBitsToFloat(Word32(at).v);
    }
}

void store(const in uint type, const in uint64_t base, const in int64_t i, const in float x) {
    uint64_t at = base + uint64_t(i * bytes_of(type));
    switch (type) {
    case F16: Word16(at).v = uint16_t(to_half(x)); break;
    case BF16: Word16(at).v = uint16_t(to_bfloat(x)); break;
    case I32: Word32(at).v = uint(to_int(x)); break;
    case U32: Word32(at).v = to_uint(x); break;
    case I16: Word16(at).v = uint16_t(uint(to_range(x, -32768.0, 32767.0))); break;
    case I8: Word8(at).v = uint8_t(uint(to_range(x, -128.0, 127.0))); break;
    case U8: Word8(at).v = uint8_t(uint(to_range(x, 0.0, 255.0))); break;
    case BOOL: Word8(at).v = uint8_t(is_zero(x) ? 0u : 1u); break;
    default: Word32(at).v = floatBitsToUint(x); break;
    }
}

// Group number of a grid that was folded because one axis may not be long enough.
uint group() { return gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x; }

uvec4 unravel(uint i, uint n0, uint n1, uint n2) {
    uvec4 at = uvec4(i, 0, 0, 0);
    if (RANK > 1) { at.y = at.x / n0; at.x -= at.y * n0; }
    if (RANK > 2) { at.z = at.y / n1; at.y -= at.z * n1; }
    if (RANK > 3) { at.w = at.z / n2; at.z -= at.w * n2; }
    return at;
}

int64_t place(uvec4 at, int s0, int s1, int s2, int s3) {
    int64_t i = int64_t(at.x) * s0;
    if (RANK > 1) i += int64_t(at.y) * s1;
    if (RANK > 2) i += int64_t(at.z) * s2;
    if (RANK > 3) i += int64_t(at.w) * s3;
    return i;
}

uvec4 walk(uint i) { return unravel(i, push.n[0], push.n[1], push.n[2]); }
uint count() { return push.n[0] * push.n[1] * push.n[2] * push.n[3]; } // the packer has seen that it fits
int64_t in_a(uvec4 at) { return place(at, push.sa[0], push.sa[1], push.sa[2], push.sa[3]); }
int64_t in_y(uvec4 at) { return place(at, push.sy[0], push.sy[1], push.sy[2], push.sy[3]); }
int64_t in_b(uvec4 at) {
    if (TILED != 0) at %= uvec4(push.nb[0], push.nb[1], push.nb[2], push.nb[3]);
    return place(at, push.sb[0], push.sb[1], push.sb[2], push.sb[3]);
}
