// What attend.comp and attend_bias.comp are given.
layout(constant_id = 7) const uint TYPE_Q = 0;
layout(constant_id = 8) const uint TYPE_K = 0;
layout(constant_id = 9) const uint TYPE_V = 0;
layout(constant_id = 10) const uint TYPE_M = 0;
layout(constant_id = 11) const uint TYPE_G = 0;
layout(constant_id = 12) const uint TYPE_OUT = 0;   // y, dq or dk
layout(constant_id = 13) const uint TYPE_OTHER = 0; // dv

// Must agree with attend_block in vk_pack_attend.c. Strides: channel, place, head, batch; of the mask: key, query, head, batch.
layout(buffer_reference, std430, buffer_reference_align = 8) readonly buffer Block {
    uint64_t q, k, v, mask, g, g_lse, result, other, lse, kept;
    int sq[4], sk[4], sv[4], sm[4], sg[4], so[4], sz[4], sl[4], sgl[4];
    uint batches, heads, queries, keys, group, d_q, d_v, lanes, kind, window;
    int offset;
    float scale, cap;
    uint key_heads;
};

int64_t base_of(int s1, int s2, int s3, uint b, uint h, uint i) { return int64_t(i) * s1 + int64_t(h) * s2 + int64_t(b) * s3; }
