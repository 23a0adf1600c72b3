/* XXH64 with seed 0, as its specification has it: four lanes over stripes of 32 bytes, folded and mixed at the end. */
#include "model_app.h"

#define PRIME_1 UINT64_C(0x9E3779B185EBCA87)
#define PRIME_2 UINT64_C(0xC2B2AE3D27D4EB4F)
#define PRIME_3 UINT64_C(0x165667B19E3779F9)
#define PRIME_4 UINT64_C(0x85EBCA77C2B2AE63)
#define PRIME_5 UINT64_C(0x27D4EB2F165667C5)

enum { STRIPE = 32 };

static uint64_t rotate(uint64_t v, int bits) { return v << bits | v >> (64 - bits); }

static uint64_t word(const uint8_t *p, int bytes) { /* little-endian */
    uint64_t v = 0;
    memcpy(&v, p, (size_t)bytes);
    return v;
}

static uint64_t step(uint64_t lane, uint64_t input) { return rotate(lane + input * PRIME_2, 31) * PRIME_1; }

static uint64_t fold(uint64_t all, uint64_t lane) { return (all ^ step(0, lane)) * PRIME_1 + PRIME_4; }

static void stripe(model_hash *h, const uint8_t *p) {
    for (int i = 0; i < 4; i++) h->lanes[i] = step(h->lanes[i], word(p + 8 * i, 8));
}

void model_hash_begin(model_hash *h) { *h = (model_hash){.lanes = {PRIME_1 + PRIME_2, PRIME_2, 0, 0 - PRIME_1}}; }

void model_hash_add(model_hash *h, const void *data, uint64_t bytes) {
    const uint8_t *p = data;
    h->total += bytes;
    if (h->n_rest) {
        uint64_t take = STRIPE - h->n_rest < bytes ? STRIPE - h->n_rest : bytes;
        memcpy(h->rest + h->n_rest, p, take);
        h->n_rest += (uint32_t)take;
        p += take;
        bytes -= take;
        if (h->n_rest < STRIPE) return;
        stripe(h, h->rest);
        h->n_rest = 0;
    }
    for (; bytes >= STRIPE; bytes -= STRIPE, p += STRIPE) stripe(h, p);
    if (bytes) memcpy(h->rest, p, bytes);
    h->n_rest = (uint32_t)bytes;
}

uint64_t model_hash_value(const model_hash *h) {
    uint64_t v = PRIME_5;
    const uint8_t *p = h->rest, *end = p + h->n_rest;
    if (h->total >= STRIPE) {
        v = rotate(h->lanes[0], 1) + rotate(h->lanes[1], 7) + rotate(h->lanes[2], 12) + rotate(h->lanes[3], 18);
        for (int i = 0; i < 4; i++) v = fold(v, h->lanes[i]);
    }
    v += h->total;
    for (; end - p >= 8; p += 8) v = rotate(v ^ step(0, word(p, 8)), 27) * PRIME_1 + PRIME_4;
    if (end - p >= 4) {
        v = rotate(v ^ word(p, 4) * PRIME_1, 23) * PRIME_2 + PRIME_3;
        p += 4;
    }
    for (; p < end; p++) v = rotate(v ^ *p * PRIME_5, 11) * PRIME_1;
    v = (v ^ v >> 33) * PRIME_2;
    v = (v ^ v >> 29) * PRIME_3;
    return v ^ v >> 32;
}
