// Rows in GGUF's block formats, decoded one element at a time or 32 of them. `row` is the address of the row's first block.
// Both ways give the same bits: what could be contracted is marked precise. Must agree with qn_vk_type in vk.h.
#extension GL_EXT_control_flow_attributes : require
const uint Q4_0 = 16, Q8_0 = 17, Q4_K = 18, Q6_K = 19;

uint byte_at(uint64_t at) { return uint(Word8(at).v); }
uint pair_at(uint64_t at) { return uint(Word16(at).v); } // every block begins on an even address
int signed_byte(uint b) { return int(b << 24) >> 24; }
float half_at(uint64_t at) { return from_half(pair_at(at)); }

// Blocks of 256: eight parts of 32, each with a scale and a minimum of six bits in twelve bytes. What the part's numbers are
// multiplied with, and what is then taken away.
vec2 q4_k_scale(uint64_t block, uint part) {
    uint scale, low;
    uint64_t s = block + 4;
    if (part < 4) {
        scale = byte_at(s + part) & 63;
        low = byte_at(s + part + 4) & 63;
    } else {
        uint both = byte_at(s + part + 4);
        scale = (both & 15) | byte_at(s + part - 4) >> 6 << 4;
        low = both >> 4 | byte_at(s + part) >> 6 << 4;
    }
    return vec2(half_at(block) * float(scale), half_at(block + 2) * float(low));
}
float scaled(vec2 by, uint q) {
    precise float v = by.x * float(q) - by.y;
    return v;
}

// Two halves of 128, each four runs of 32: four low bits in one place, two high bits in another, a scale for every 16.
float q6_k_scale(uint64_t block, uint run, uint sixteen) {
    return half_at(block + 208) * float(signed_byte(byte_at(block + 192 + run / 4 * 8 + run % 4 * 2 + sixteen)));
}
int q6_k(uint low, uint high, uint run) {
    return int((run % 4 < 2 ? low & 15 : low >> 4 & 15) | (high >> (2 * (run % 4)) & 3) << 4) - 32;
}

float block_element(const in uint type, const in uint64_t row, const in uint i) {
    uint run = i / 32, l = i % 32;
    if (type == Q4_0) {
        uint64_t block = row + uint64_t(run) * 18;
        uint q = byte_at(block + 2 + l % 16);
        return half_at(block) * float(int(l < 16 ? q & 15 : q >> 4) - 8);
    }
    if (type == Q8_0) {
        uint64_t block = row + uint64_t(run) * 34;
        return half_at(block) * float(signed_byte(byte_at(block + 2 + l)));
    }
    run %= 8;
    if (type == Q4_K) {
        uint64_t block = row + uint64_t(i / 256) * 144;
        uint q = byte_at(block + 16 + run / 2 * 32 + l);
        return scaled(q4_k_scale(block, run), run % 2 == 0 ? q & 15 : q >> 4);
    }
    uint64_t block = row + uint64_t(i / 256) * 210;
    uint low = byte_at(block + run / 4 * 64 + run % 2 * 32 + l), high = byte_at(block + 128 + run / 4 * 32 + l);
    return q6_k_scale(block, run, l / 16) * float(q6_k(low, high, run));
}

// Elements 32 run and those behind it.
void block_run(const in uint type, const in uint64_t row, uint run, out float w[32]) {
    if (type == Q4_0) {
        uint64_t block = row + uint64_t(run) * 18;
        float d = half_at(block);
        [[unroll]] for (uint e = 0; e < 8; e++) {
            uint q = pair_at(block + 2 + 2 * e);
            w[2 * e] = d * float(int(q & 15) - 8);
            w[2 * e + 1] = d * float(int(q >> 8 & 15) - 8);
            w[2 * e + 16] = d * float(int(q >> 4 & 15) - 8);
            w[2 * e + 17] = d * float(int(q >> 12) - 8);
        }
        return;
    }
    if (type == Q8_0) {
        uint64_t block = row + uint64_t(run) * 34;
        float d = half_at(block);
        [[unroll]] for (uint e = 0; e < 16; e++) {
            uint q = pair_at(block + 2 + 2 * e);
            w[2 * e] = d * float(signed_byte(q));
            w[2 * e + 1] = d * float(signed_byte(q >> 8));
        }
        return;
    }
    uint super = run / 8;
    run %= 8;
    if (type == Q4_K) {
        uint64_t block = row + uint64_t(super) * 144, from = block + 16 + run / 2 * 32;
        vec2 by = q4_k_scale(block, run);
        uint shift = run % 2 * 4;
        [[unroll]] for (uint e = 0; e < 16; e++) {
            uint q = pair_at(from + 2 * e) >> shift;
            w[2 * e] = scaled(by, q & 15);
            w[2 * e + 1] = scaled(by, q >> 8 & 15);
        }
        return;
    }
    uint64_t block = row + uint64_t(super) * 210, lows = block + run / 4 * 64 + run % 2 * 32, highs = block + 128 + run / 4 * 32;
    float d0 = q6_k_scale(block, run, 0), d1 = q6_k_scale(block, run, 1);
    [[unroll]] for (uint e = 0; e < 16; e++) {
        uint low = pair_at(lows + 2 * e), high = pair_at(highs + 2 * e);
        float d = e < 8 ? d0 : d1;
        w[2 * e] = d * float(q6_k(low & 255, high & 255, run));
        w[2 * e + 1] = d * float(q6_k(low >> 8, high >> 8, run));
    }
}
