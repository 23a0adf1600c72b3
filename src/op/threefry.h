/* Threefry2x32 with 20 rounds: a random word from a key and a counter, the same everywhere and in any order. */
#ifndef QN_OP_THREEFRY_H
#define QN_OP_THREEFRY_H

#include <stdint.h>

typedef struct qn_words {
    uint32_t a, b;
} qn_words;

static inline qn_words qn_threefry(qn_words counter, qn_words key) {
    static const unsigned turns[8] = {13, 15, 26, 6, 17, 29, 16, 24};
    const uint32_t keys[3] = {key.a, key.b, key.a ^ key.b ^ 0x1BD11BDAu};
    qn_words x = {counter.a + key.a, counter.b + key.b};
    for (unsigned round = 0; round < 20; round++) {
        unsigned turn = turns[round % 8];
        x.a += x.b;
        x.b = (x.b << turn | x.b >> (32 - turn)) ^ x.a;
        if (round % 4 != 3) continue;
        unsigned injection = round / 4 + 1; /* every fourth round the key goes in again */
        x.a += keys[injection % 3];
        x.b += keys[(injection + 1) % 3] + injection;
    }
    return x;
}

#endif
