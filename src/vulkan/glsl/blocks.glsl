// Elements of rows in GGUF's block formats, decoded one at a time. `row` is the address of the row's first block.
// Must agree with qn_vk_type in vk.h.
const uint Q4_0 = 16, Q8_0 = 17, Q4_K = 18, Q6_K = 19;

uint byte_at(uint64_t at) { return uint(Word8(at).v); }
int signed_byte_at(uint64_t at) { return int(byte_at(at) << 24) >> 24; }
float half_at(uint64_t at) { return from_half(uint(Word16(at).v)); }

// Blocks of 256: eight parts of 32, each with a scale and a minimum of six bits in twelve bytes.
float q4_k(uint64_t block, uint i) {
    uint part = i / 32, q = byte_at(block + 16 + part / 2 * 32 + i % 32), scale, low;
    uint64_t s = block + 4;
    if (part < 4) {
        scale = byte_at(s + part) & 63;
        low = byte_at(s + part + 4) & 63;
    } else {
        uint both = byte_at(s + part + 4);
        scale = (both & 15) | byte_at(s + part - 4) >> 6 << 4;
        low = both >> 4 | byte_at(s + part) >> 6 << 4;
    }
    q = part % 2 == 0 ? q & 15 : q >> 4;
    return half_at(block) * float(scale) * float(q) - half_at(block + 2) * float(low);
}

// Two halves of 128, each four runs of 32: four low bits in one place, two high bits in another, a scale for every 16.
float q6_k(uint64_t block, uint i) {
    uint part = i / 128, run = i % 128 / 32, l = i % 32;
    uint low = byte_at(block + part * 64 + (run % 2) * 32 + l), high = byte_at(block + 128 + part * 32 + l);
    uint q = (run < 2 ? low & 15 : low >> 4) | (high >> (2 * run) & 3) << 4;
    return half_at(block + 208) * float(signed_byte_at(block + 192 + part * 8 + run * 2 + l / 16)) * float(int(q) - 32);
}

float block_element(const in uint type, const in uint64_t row, const in uint i) {
    if (type == Q4_0) {
        uint64_t block = row + i / 32 * 18;
        uint q = byte_at(block + 2 + i % 16);
        return half_at(block) * float(int(i % 32 < 16 ? q & 15 : q >> 4) - 8);
    }
    if (type == Q8_0) {
        uint64_t block = row + i / 32 * 34;
        return half_at(block) * float(signed_byte_at(block + 2 + i % 32));
    }
    if (type == Q4_K) return q4_k(row + uint64_t(i / 256) * 144, i % 256);
    return q6_k(row + uint64_t(i / 256) * 210, i % 256);
}
