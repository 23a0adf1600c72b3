// Kernels with more tensors than push constants have room for: operands by number, their strides and addresses in a block of memory
// that p[0..1] points to, their dtypes specialised. All are walked over one shape, n; one that is left out has the address 0.

// Must agree with many_block in vk_many.c.
layout(buffer_reference, std430, buffer_reference_align = 16) readonly buffer Operands {
    ivec4 stride[16];
    uint64_t base[16];
};

layout(constant_id = 7) const uint TYPE_0 = 0;
layout(constant_id = 8) const uint TYPE_1 = 0;
layout(constant_id = 9) const uint TYPE_2 = 0;
layout(constant_id = 10) const uint TYPE_3 = 0;
layout(constant_id = 11) const uint TYPE_4 = 0;
layout(constant_id = 12) const uint TYPE_5 = 0;
layout(constant_id = 13) const uint TYPE_6 = 0;
layout(constant_id = 14) const uint TYPE_7 = 0;
layout(constant_id = 15) const uint TYPE_8 = 0;

uint type_of(uint k) {
    switch (k) {
    case 0: return TYPE_0;
    case 1: return TYPE_1;
    case 2: return TYPE_2;
    case 3: return TYPE_3;
    case 4: return TYPE_4;
    case 5: return TYPE_5;
    case 6: return TYPE_6;
    case 7: return TYPE_7;
    default: return TYPE_8;
    }
}

bool has(uint k) { return Operands(address(0)).base[k] != 0; }

int64_t spot(uint k, uvec4 at) {
    ivec4 s = Operands(address(0)).stride[k];
    return place(at, s.x, s.y, s.z, s.w);
}

float get(uint k, uvec4 at) { return load(type_of(k), Operands(address(0)).base[k], spot(k, at)); }
void put(uint k, uvec4 at, float v) { store(type_of(k), Operands(address(0)).base[k], spot(k, at), v); }
// A place along the fastest axis.
uvec4 column(uvec4 row, uint i) { return uvec4(i, row.yzw); }
