/* Unpacking of the types whose codes are bits of a number: the 32-wide family, the K family, the ternary and the 4-bit floats. A word
 * holds four neighbouring elements of one row; the layouts are those of the formats' definition. */
#include "cpu/kd_unpack.h"

/* ---- 32 elements, one f16 scale: nibble j and nibble j + 16 share a byte. */

INLINE void nibbles(const uint8_t *qs, int v, uint32_t (*codes)[QN_PANEL]) {
    QN_UNROLL
    for (int w = 0; w < 4; w++) {
        vu q = word(qs, w, v);
        put(codes, w, v, q & LOW4);
        put(codes, w + 4, v, vu_upper(q));
    }
}

INLINE void q4_0(const uint8_t *p, int b, int v, qn_quant_chunk *to) {
    put_f(to->scale, b, v, half_field(p, v));
    nibbles(p + 2 * QN_PANEL, v, to->codes + 8 * b);
}
UNPACK_NARROW(q4_0, 32, 18, 32, 0, 0)
FEW(q4_0, 32, 18, 32, 0, 0)

INLINE void q4_1(const uint8_t *p, int b, int v, qn_quant_chunk *to) {
    put_f(to->scale, b, v, half_field(p, v));
    put_f(to->least, b, v, half_field(p + 2 * QN_PANEL, v));
    nibbles(p + 4 * QN_PANEL, v, to->codes + 8 * b);
}
UNPACK_NARROW(q4_1, 32, 20, 32, 1, 0)

/* Bits 4 w to 4 w + 3 of a word, each as bit 4 of a byte; its other bits say nothing. */
INLINE vu fifth_bits(vu high, int w) {
    vu four = (w ? high >> (4 * w - 4) : high << 4) & 0xf0u, two = four | four << 14;
    return two | two << 7;
}

INLINE void five_bits(const uint8_t *qh, const uint8_t *qs, int v, uint32_t (*codes)[QN_PANEL]) {
    vu high = word(qh, 0, v);
    QN_UNROLL
    for (int w = 0; w < 4; w++) {
        vu q = word(qs, w, v);
        put(codes, w, v, vu_join(q & LOW4, fifth_bits(high, w), BIT4));
        put(codes, w + 4, v, vu_join(vu_upper(q), fifth_bits(high, w + 4), BIT4));
    }
}

INLINE void q5_0(const uint8_t *p, int b, int v, qn_quant_chunk *to) {
    put_f(to->scale, b, v, half_field(p, v));
    five_bits(p + 2 * QN_PANEL, p + 6 * QN_PANEL, v, to->codes + 8 * b);
}
UNPACK(q5_0, 32, 22, 32, 0, 0)

INLINE void q5_1(const uint8_t *p, int b, int v, qn_quant_chunk *to) {
    put_f(to->scale, b, v, half_field(p, v));
    put_f(to->least, b, v, half_field(p + 2 * QN_PANEL, v));
    five_bits(p + 4 * QN_PANEL, p + 8 * QN_PANEL, v, to->codes + 8 * b);
}
UNPACK(q5_1, 32, 24, 32, 1, 0)

INLINE void bytes(const uint8_t *qs, int n, int v, uint32_t (*codes)[QN_PANEL]) {
    QN_UNROLL
    for (int w = 0; w < n; w++) put(codes, w, v, word(qs, w, v) ^ VU_WIDE_FLIP);
}

INLINE void q8_0(const uint8_t *p, int b, int v, qn_quant_chunk *to) {
    put_f(to->scale, b, v, half_field(p, v));
    bytes(p + 2 * QN_PANEL, 8, v, to->codes + 8 * b);
}
UNPACK(q8_0, 32, 34, 32, 0, 1)
FEW(q8_0, 32, 34, 32, 0, 1)

INLINE void q8_1(const uint8_t *p, int b, int v, qn_quant_chunk *to) {
    put_f(to->scale, b, v, half_field(p, v));
    bytes(p + 4 * QN_PANEL, 8, v, to->codes + 8 * b);
}
UNPACK(q8_1, 32, 36, 32, 0, 1)

INLINE void q8_k(const uint8_t *p, int b, int v, qn_quant_chunk *to) {
    (void)b;
    vf d = vf_of_bits((vi)word(p, 0, v));
    QN_UNROLL
    for (int g = 0; g < 8; g++) put_f(to->scale, g, v, d);
    bytes(p + 4 * QN_PANEL, 64, v, to->codes);
}
UNPACK(q8_k, 256, 292, 32, 0, 1)

/* ---- 256 elements under scales of scales */

/* Scales and minima of q4_K and q5_K: six bits each, in twelve bytes; here one to a byte, two words of each. */
typedef struct six_bits {
    vu scale[2], least[2];
} six_bits;

INLINE six_bits read_six_bits(const uint8_t *s, int v) {
    vu a = word(s, 0, v), b = word(s, 1, v), c = word(s, 2, v);
    return (six_bits){{a & LOW6, (c & LOW4) | (a >> 2 & HIGH2)}, {b & LOW6, vu_upper(c) | (b >> 2 & HIGH2)}};
}

INLINE void six_bit_scales(const uint8_t *p, const uint8_t *s, int v, qn_quant_chunk *to) {
    vf d = half_field(p, v), dmin = vf_zero() - half_field(p + 2 * QN_PANEL, v);
    six_bits six = read_six_bits(s, v);
    QN_UNROLL
    for (int g = 0; g < 8; g++) {
        put_f(to->scale, g, v, d * vf_from_byte(six.scale[g / 4], g % 4));
        put_f(to->least, g, v, dmin * vf_from_byte(six.least[g / 4], g % 4));
    }
}

INLINE void q4_k(const uint8_t *p, int b, int v, qn_quant_chunk *to) {
    (void)b;
    six_bit_scales(p, p + 4 * QN_PANEL, v, to);
    QN_UNROLL
    for (int u = 0; u < 4; u++) {
        QN_UNROLL
        for (int w = 0; w < 8; w++) {
            vu q = word(p + 16 * QN_PANEL, 8 * u + w, v);
            put(to->codes, 16 * u + w, v, q & LOW4);
            put(to->codes, 16 * u + 8 + w, v, vu_upper(q));
        }
    }
}

/* What groups u and u + 1 of a block add, whose integer sums are `low` and `high`; g: the first one's number in
 * the row. */
INLINE vf add_two(six_bits six, int u, vf d, vf dmin, vi low, vi high, const qn_quant_row *x, int g, vf sum) {
    vf scale[2] = {d * vf_from_byte(six.scale[u / 4], u % 4), d * vf_from_byte(six.scale[u / 4], u % 4 + 1)};
    sum = vf_fma(vf_from_sum(low), scale[0] * vf_set1(x->d[g]), sum);
    sum = vf_fma(dmin * vf_from_byte(six.least[u / 4], u % 4), vf_set1(x->total[g]), sum);
    sum = vf_fma(vf_from_sum(high), scale[1] * vf_set1(x->d[g + 1]), sum);
    return vf_fma(dmin * vf_from_byte(six.least[u / 4], u % 4 + 1), vf_set1(x->total[g + 1]), sum);
}

#ifdef QN_KEEPS_Q4_K
UNPACK_ONLY(q4_k, 256, 144)
#else
/* The two groups that share their bytes at a time: all 64 words at once would not fit the registers. */
INLINE vf q4_k_dot(const uint8_t *p, asked next, int v, const qn_quant_row *x, int g, int offset, vf sum) {
    vf d = half_field(p, v), dmin = vf_zero() - half_field(p + 2 * QN_PANEL, v);
    six_bits six = read_six_bits(p + 4 * QN_PANEL, v);
    (void)offset; /* it has none */
    QN_UNROLL_GROUPS
    for (int u = 0; u < 8; u += 2, g += 2) {
        vi low = vi_run_start(vi_sum_start(0)), high = vi_run_start(vi_sum_start(0));
        QN_STAY;
        QN_UNROLL
        for (int w = 0; w < 8; w++) { /* one run */
            if (v == 0) fetch_ahead(next, 144 * QN_PANEL, 4 * u + w, 32);
            vu q = word(p + 16 * QN_PANEL, 4 * u + w, v);
            low = vi_run_dot4_at(low, q & LOW4, x->q + 32 * g, w);
            high = vi_run_upper_at(high, q, x->q + 32 * g, 8 + w);
        }
        low = vi_run_end(low, vi_set1(0));
        high = vi_run_end(high, vi_set1(0));
        sum = add_two(six, u, d, dmin, low, high >> VI_UPPER_BITS, x, g, sum);
    }
    return sum;
}
UNPACK_DOT(q4_k, 256, 144, 32)
#endif

INLINE void q5_k(const uint8_t *p, int b, int v, qn_quant_chunk *to) {
    (void)b;
    six_bit_scales(p, p + 4 * QN_PANEL, v, to);
    QN_UNROLL
    for (int w = 0; w < 8; w++) {
        vu high = word(p + 16 * QN_PANEL, w, v);
        QN_UNROLL
        for (int u = 0; u < 4; u++) {
            vu q = word(p + 48 * QN_PANEL, 8 * u + w, v);
            put(to->codes, 16 * u + w, v, (q & LOW4) | (high >> (2 * u) & 0x01010101u) << 4);
            put(to->codes, 16 * u + 8 + w, v, vu_upper(q) | (high >> (2 * u + 1) & 0x01010101u) << 4);
        }
    }
}

/* The same two groups at a time, from bytes that hold a fifth bit of each. */
INLINE vf q5_k_dot(const uint8_t *p, asked next, int v, const qn_quant_row *x, int g, int offset, vf sum) {
    vf d = half_field(p, v), dmin = vf_zero() - half_field(p + 2 * QN_PANEL, v);
    six_bits six = read_six_bits(p + 4 * QN_PANEL, v);
    (void)offset; /* it has none */
    QN_UNROLL_GROUPS
    for (int u = 0; u < 8; u += 2, g += 2) {
        vi low = vi_sum_start(0), high = vi_sum_start(0), some = vi_run_start(low), more = vi_run_start(high);
        QN_STAY;
        QN_UNROLL
        for (int w = 0; w < 8; w++) {
            if (v == 0) fetch_ahead(next, 176 * QN_PANEL, 4 * u + w, 32);
            vu q = word(p + 48 * QN_PANEL, 4 * u + w, v), fifth = word(p + 16 * QN_PANEL, w, v) >> u;
            some = vi_run_dot4_at(some, vu_join(q & LOW4, fifth << 4, BIT4), x->q + 32 * g, w);
            more = vi_run_dot4_at(more, vu_join(vu_upper(q), fifth << 3, BIT4), x->q + 32 * g, 8 + w);
            if ((w + 1) % vi_run_words(MOST_q5_k)) continue;
            low = vi_run_end(some, low), some = vi_run_start(low);
            high = vi_run_end(more, high), more = vi_run_start(high);
        }
        sum = add_two(six, u, d, dmin, low, high, x, g, sum);
    }
    return sum;
}
UNPACK_DOT_NARROW(q5_k, 256, 176, 32)

INLINE void q6_k(const uint8_t *p, int b, int v, qn_quant_chunk *to) {
    const uint8_t *ql = p, *qh = p + 128 * QN_PANEL, *scales = p + 192 * QN_PANEL;
    (void)b;
    QN_UNROLL
    for (int h = 0; h < 2; h++) {
        QN_UNROLL
        for (int w = 0; w < 8; w++) {
            vu low = word(ql, 16 * h + w, v), next = word(ql, 16 * h + 8 + w, v), high = word(qh, 8 * h + w, v);
            put(to->codes, 32 * h + w, v, (low & LOW4) | (high & LOW2) << 4);
            put(to->codes, 32 * h + 8 + w, v, (next & LOW4) | (high >> 2 & LOW2) << 4);
            put(to->codes, 32 * h + 16 + w, v, vu_upper(low) | (high >> 4 & LOW2) << 4);
            put(to->codes, 32 * h + 24 + w, v, vu_upper(next) | (high >> 6 & LOW2) << 4);
        }
    }
    vf d = half_field(p + 208 * QN_PANEL, v);
    QN_UNROLL
    for (int g = 0; g < 16; g++) put_f(to->scale, g, v, d * vf_from_signed_byte(word(scales, g / 4, v), g % 4));
}

#ifdef QN_KEEPS_Q6_K
UNPACK_ONLY(q6_k, 256, 210)
#else
/* Half a block at a time, whose eight groups share their bytes. */
INLINE vf q6_k_dot(const uint8_t *p, asked next, int v, const qn_quant_row *x, int g, int offset, vf sum) {
    const uint8_t *ql = p, *qh = p + 128 * QN_PANEL, *scales = p + 192 * QN_PANEL;
    vf d = half_field(p + 208 * QN_PANEL, v);
    QN_UNROLL_BLOCK
    for (int h = 0; h < 2; h++, g += 8) {
        const int8_t *q = x->q + 16 * g;
        vi whole[8];
        QN_UNROLL
        for (int i = 0; i < 8; i++) whole[i] = vi_sum_start(-offset * x->sum[g + i]);
        QN_UNROLL
        for (int w = 0; w < 8; w++) {
            if (v == 0) fetch_ahead(next, 210 * QN_PANEL, 8 * h + w, 16);
            vu low = word(ql, 16 * h + w, v), other = word(ql, 16 * h + 8 + w, v), high = word(qh, 8 * h + w, v);
            whole[w / 4] = vi_dot4_at(whole[w / 4], vu_join(low & LOW4, high << 4, HIGH2), q, w);
            whole[2 + w / 4] = vi_dot4_at(whole[2 + w / 4], vu_join(other & LOW4, high << 2, HIGH2), q, 8 + w);
            whole[4 + w / 4] = vi_dot4_at(whole[4 + w / 4], vu_join(vu_upper(low), high, HIGH2), q, 16 + w);
            whole[6 + w / 4] = vi_dot4_at(whole[6 + w / 4], vu_join(vu_upper(other), high >> 2, HIGH2), q, 24 + w);
        }
        QN_UNROLL
        for (int i = 0; i < 8; i++) {
            vf scale = d * vf_from_signed_byte(word(scales, 2 * h + i / 4, v), i % 4);
            sum = vf_fma(vf_from_sum(whole[i]), scale * vf_set1(x->d[(g + i) / 2]), sum);
        }
    }
    return sum;
}
UNPACK_DOT(q6_k, 256, 210, 16)
#endif

/* Two bits: element 128 h + 32 j + l is the j-th pair of byte 32 h + l. */
INLINE void pairs_of_bits(const uint8_t *qs, int v, uint32_t (*codes)[QN_PANEL]) {
    QN_UNROLL
    for (int h = 0; h < 2; h++) {
        QN_UNROLL
        for (int w = 0; w < 8; w++) {
            vu q = word(qs, 8 * h + w, v);
            QN_UNROLL
            for (int j = 0; j < 4; j++) put(codes, 32 * h + 8 * j + w, v, q >> (2 * j) & LOW2);
        }
    }
}

INLINE void q2_k(const uint8_t *p, int b, int v, qn_quant_chunk *to) {
    vf d = half_field(p + 80 * QN_PANEL, v), dmin = vf_zero() - half_field(p + 82 * QN_PANEL, v);
    (void)b;
    QN_UNROLL
    for (int g = 0; g < 16; g++) {
        vu s = word(p, g / 4, v);
        put_f(to->scale, g, v, d * vf_from_byte(s & LOW4, g % 4));
        put_f(to->least, g, v, dmin * vf_from_byte(s >> 4 & LOW4, g % 4));
    }
    pairs_of_bits(p + 16 * QN_PANEL, v, to->codes);
}

/* Half h of a block times its activations, into sums of 4 groups of 32 or 8 of 16: bytes that four groups share are read once. Codes have a
 * third bit where there is a field of them, of which one byte holds that of eight groups of 32. */
INLINE void pairs_dot(const uint8_t *qs, const uint8_t *thirds, int h, int v, const int8_t *x, int groups, vi *sums) {
    QN_UNROLL
    for (int w = 0; w < 8; w++) {
        vu q = word(qs, 8 * h + w, v), third = thirds ? word(thirds, w, v) >> (4 * h) : q;
        QN_UNROLL
        for (int j = 0; j < 4; j++) {
            vi *to = sums + (groups == 8 ? 2 * j + w / 4 : j);
            vu code = q >> (2 * j) & LOW2;
            if (thirds) code = vu_join(code, j < 2 ? third << (2 - j) : third >> (j - 2), 4 * ONES);
            *to = vi_run_dot4_at(*to, code, x + 128 * h + 32 * j, w);
        }
    }
}

INLINE vf q2_k_dot(const uint8_t *p, asked next, int v, const qn_quant_row *x, int g, int offset, vf sum) {
    vf d = half_field(p + 80 * QN_PANEL, v), dmin = vf_zero() - half_field(p + 82 * QN_PANEL, v);
    (void)offset; /* it has none */
    QN_UNROLL_GROUPS
    for (int h = 0; h < 2; h++, g += 8) {
        vi whole[8];
        QN_STAY;
        if (v == 0) fetch_ahead(next, 84 * QN_PANEL, h, 2);
        QN_UNROLL
        for (int i = 0; i < 8; i++) whole[i] = vi_run_start(vi_sum_start(0));
        pairs_dot(p + 16 * QN_PANEL, NULL, h, v, x->q, 8, whole);
        QN_UNROLL
        for (int i = 0; i < 8; i++) {
            vu s = word(p, 2 * h + i / 4, v);
            vf scale = d * vf_from_byte(s & LOW4, i % 4), least = dmin * vf_from_byte(s >> 4 & LOW4, i % 4);
            sum = vf_fma(vf_from_sum(vi_run_end(whole[i], vi_set1(0))), scale * vf_set1(x->d[(g + i) / 2]), sum);
            sum = vf_fma(least, vf_set1(x->total[g + i]), sum);
        }
    }
    return sum;
}
UNPACK_DOT(q2_k, 256, 84, 16)

/* Six-bit scales: the low four bits of 16 of them in eight bytes, the high two in four. */
INLINE void q3_k(const uint8_t *p, int b, int v, qn_quant_chunk *to) {
    const uint8_t *scales = p + 96 * QN_PANEL;
    vf d = half_field(p + 108 * QN_PANEL, v);
    vu high = word(scales, 2, v);
    (void)b;
    QN_UNROLL
    for (int g = 0; g < 16; g += 4) {
        vu low = word(scales, g / 4 % 2, v) >> (g < 8 ? 0 : 4) & LOW4, s = low | (high >> (g / 2) & LOW2) << 4;
        QN_UNROLL
        for (int i = 0; i < 4; i++) put_f(to->scale, g + i, v, d * (vf_from_byte(s, i) - vf_set1(32.0f)));
    }
    QN_UNROLL
    for (int w = 0; w < 8; w++) {
        vu mask = word(p, w, v);
        QN_UNROLL
        for (int h = 0; h < 2; h++) {
            vu q = word(p + 32 * QN_PANEL, 8 * h + w, v);
            QN_UNROLL
            for (int j = 0; j < 4; j++)
                put(to->codes, 32 * h + 8 * j + w, v, (q >> (2 * j) & LOW2) | (mask >> (4 * h + j) & 0x01010101u) << 2);
        }
    }
}

INLINE vf q3_k_dot(const uint8_t *p, asked next, int v, const qn_quant_row *x, int g, int offset, vf sum) {
    const uint8_t *scales = p + 96 * QN_PANEL;
    vf d = half_field(p + 108 * QN_PANEL, v);
    QN_UNROLL_GROUPS
    for (int h = 0; h < 2; h++, g += 8) {
        vi start[8], whole[8];
        QN_STAY;
        if (v == 0) fetch_ahead(next, 110 * QN_PANEL, h, 2);
        QN_UNROLL
        for (int i = 0; i < 8; i++) {
            start[i] = vi_sum_start(-offset * x->sum[g + i]);
            whole[i] = vi_run_start(start[i]);
        }
        pairs_dot(p + 32 * QN_PANEL, p, h, v, x->q, 8, whole);
        QN_UNROLL
        for (int i = 0; i < 8; i++) {
            vu s = (word(scales, i / 4, v) >> (4 * h) & LOW4) | (word(scales, 2, v) >> (4 * h + i / 4 * 2) & LOW2) << 4;
            vf scale = d * (vf_from_byte(s, i % 4) - vf_set1(32.0f));
            sum = vf_fma(vf_from_sum(vi_run_end(whole[i], start[i])), scale * vf_set1(x->d[(g + i) / 2]), sum);
        }
    }
    return sum;
}
UNPACK_DOT(q3_k, 256, 110, 16)

/* ---- Ternary and less */

INLINE void one_scale(const uint8_t *p, int v, qn_quant_chunk *to) {
    vf d = half_field(p, v);
    QN_UNROLL
    for (int g = 0; g < 8; g++) put_f(to->scale, g, v, d);
}

INLINE void tq2_0(const uint8_t *p, int b, int v, qn_quant_chunk *to) {
    (void)b;
    one_scale(p + 64 * QN_PANEL, v, to);
    pairs_of_bits(p, v, to->codes);
}

INLINE vf tq2_0_dot(const uint8_t *p, asked next, int v, const qn_quant_row *x, int g, int offset, vf sum) {
    vf d = half_field(p + 64 * QN_PANEL, v);
    QN_UNROLL_GROUPS
    for (int h = 0; h < 2; h++, g += 4) {
        vi start[4], whole[4];
        QN_STAY;
        if (v == 0) fetch_ahead(next, 66 * QN_PANEL, h, 2);
        QN_UNROLL
        for (int i = 0; i < 4; i++) {
            start[i] = vi_sum_start(-offset * x->sum[g + i]);
            whole[i] = vi_run_start(start[i]);
        }
        pairs_dot(p, NULL, h, v, x->q, 4, whole);
        QN_UNROLL
        for (int i = 0; i < 4; i++) sum = vf_fma(vf_from_sum(vi_run_end(whole[i], start[i])), d * vf_set1(x->d[g + i]), sum);
    }
    return sum;
}
UNPACK_DOT(tq2_0, 256, 66, 32)

/* The first base-3 digit of each byte, which is what comes over the point when its fraction is multiplied by 3; the rest stays. */
INLINE vu next_digit(vu *fraction) {
    vu even = (*fraction & 0x00ff00ffu) * 3u, odd = (*fraction >> 8 & 0x00ff00ffu) * 3u;
    *fraction = (even & 0x00ff00ffu) | (odd & 0x00ff00ffu) << 8;
    return (even >> 8 & 0x00ff00ffu) | (odd & 0xff00ff00u);
}

INLINE void tq1_0(const uint8_t *p, int b, int v, qn_quant_chunk *to) {
    (void)b;
    one_scale(p + 52 * QN_PANEL, v, to);
    QN_UNROLL
    for (int w = 0; w < 8; w++) {
        vu q = word(p, w, v);
        QN_UNROLL
        for (int n = 0; n < 5; n++) put(to->codes, 8 * n + w, v, next_digit(&q));
    }
    QN_UNROLL
    for (int w = 0; w < 4; w++) {
        vu q = word(p, 8 + w, v);
        QN_UNROLL
        for (int n = 0; n < 5; n++) put(to->codes, 40 + 4 * n + w, v, next_digit(&q));
    }
    vu q = word(p, 12, v);
    QN_UNROLL
    for (int n = 0; n < 4; n++) put(to->codes, 60 + n, v, next_digit(&q));
}
UNPACK_ONLY(tq1_0, 256, 54)

/* One bit an element: codes 0 and 2, so that the offset of 1 gives -1 and 1. */
INLINE void q1_0(const uint8_t *p, int b, int v, qn_quant_chunk *to) {
    vf d = half_field(p, v);
    QN_UNROLL
    for (int g = 0; g < 4; g++) {
        vu bits = word(p + 2 * QN_PANEL, g, v);
        put_f(to->scale, 4 * b + g, v, d);
        QN_UNROLL
        for (int w = 0; w < 8; w++) put(to->codes, 32 * b + 8 * g + w, v, fifth_bits(bits, w) >> 3 & 2 * ONES);
    }
}
UNPACK(q1_0, 128, 18, 32, 0, 0)

/* Two bits an element, four neighbours to a byte. */
INLINE void q2_0(const uint8_t *p, int b, int v, qn_quant_chunk *to) {
    vf d = half_field(p, v);
    QN_UNROLL
    for (int g = 0; g < 2; g++) put_f(to->scale, 2 * b + g, v, d);
    QN_UNROLL
    for (int w = 0; w < 16; w++) {
        vu q = word(p + 2 * QN_PANEL, w / 4, v) >> (8 * (w % 4)) & 255u;
        put(to->codes, 16 * b + w, v, (q | q << 6 | q << 12 | q << 18) & LOW2);
    }
}
UNPACK(q2_0, 64, 18, 32, 0, 0)
