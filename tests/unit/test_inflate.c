/* The unpacker against zlib: whole streams, cut ones and damaged ones, however input and output are portioned out. */
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "cmocka_setup.h"
#include "prof/inflate.h"

enum { TEXT = 70000, PACKED = 2 * TEXT, ROOM = TEXT + 5000, ROUNDS = 300 };

static uint32_t seed = 1;

static uint32_t below(uint32_t n) {
    seed = seed * 1664525u + 1013904223u;
    return (seed >> 8) % n;
}

/* Noise, a small alphabet, near and far repetitions, long runs. */
static void make_text(unsigned char *text, size_t n) {
    uint32_t kind = below(5);
    for (size_t i = 0; i < n; i++) {
        text[i] = (unsigned char)below(256);
        if (kind == 1) {
            text[i] = (unsigned char)"abcd"[below(4)];
        } else if (kind == 2 && i > 100 && below(20)) {
            text[i] = text[i - 1 - below(100)];
        } else if (kind == 3 && i > 32768 && below(50)) {
            text[i] = text[i - 32768 + below(5)];
        } else if (kind == 4 && below(1000)) {
            text[i] = 'x';
        }
    }
}

static size_t pack(unsigned char *text, size_t n, unsigned char *packed) {
    z_stream z;
    memset(&z, 0, sizeof z);
    int level = (int)below(10), window = -(9 + (int)below(7)), memory = 1 + (int)below(9), strategy = (int)below(5);
    assert_int_equal(deflateInit2(&z, level, Z_DEFLATED, window, memory, strategy), Z_OK);
    z.next_in = text;
    z.avail_in = (uInt)(n / 2);
    z.next_out = packed;
    z.avail_out = PACKED;
    deflate(&z, below(2) ? Z_FULL_FLUSH : Z_NO_FLUSH); /* a flush leaves an empty stored block */
    z.avail_in = (uInt)(n - (size_t)(z.next_in - text));
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    deflateEnd(&z);
    return z.total_out;
}

typedef struct outcome {
    int complete, refused;
    size_t made, used;
} outcome;

static outcome by_zlib(unsigned char *packed, size_t n, char *out) {
    z_stream z;
    memset(&z, 0, sizeof z);
    assert_int_equal(inflateInit2(&z, -15), Z_OK);
    z.next_in = packed;
    z.avail_in = (uInt)n;
    z.next_out = (Bytef *)out;
    z.avail_out = ROOM;
    int code = inflate(&z, Z_NO_FLUSH);
    inflateEnd(&z);
    return (outcome){code == Z_STREAM_END, code == Z_DATA_ERROR, z.total_out, n - z.avail_in};
}

/* In portions of any size, from memory that ends where the portion does, so that reading beyond it shows. */
static outcome by_ours(const unsigned char *packed, size_t n, char *out) {
    prof_inflate *z = calloc(1, sizeof *z);
    unsigned char *portion = malloc(1);
    assert_true(z && portion);
    size_t fed = 0;
    char *to = out;
    prof_inflate_result result = PROF_INFLATE_FULL;
    qn_prof_inflate_begin(z);
    z->in = z->in_end = portion;
    while (result == PROF_INFLATE_MORE || (result == PROF_INFLATE_FULL && to < out + ROOM)) {
        size_t some = 1 + below(3000), history = to - out > PROF_INFLATE_HISTORY ? PROF_INFLATE_HISTORY : (size_t)(to - out);
        char *end = some < (size_t)(out + ROOM - to) ? to + some : out + ROOM;
        result = qn_prof_inflate(z, to - history, &to, end);
        if (result == PROF_INFLATE_MORE) {
            size_t kept = (size_t)(z->in_end - z->in), add = below(3) ? below(5000) : 1;
            add = add < n - fed ? add : n - fed;
            unsigned char *next = malloc(kept + add + 1);
            assert_non_null(next);
            memcpy(next, z->in, kept);
            memcpy(next + kept, packed + fed, add);
            free(portion);
            portion = next;
            fed += add;
            z->in = next;
            z->in_end = next + kept + add;
            z->last = fed == n;
        }
    }
    outcome o = {result == PROF_INFLATE_END, result == PROF_INFLATE_BAD, (size_t)(to - out), fed - (size_t)(z->in_end - z->in)};
    assert_true(!o.refused || z->why);
    free(portion);
    free(z);
    return o;
}

static void streams_of_every_kind_unpack_as_zlib_does(void **state) {
    (void)state;
    static unsigned char text[TEXT], packed[PACKED];
    static char wanted[ROOM], got[ROOM];
    int complete = 0, refused = 0, cut = 0;
    for (int round = 0; round < ROUNDS; round++) {
        size_t n = below(2) ? below(2000) : below(TEXT);
        make_text(text, n);
        size_t length = pack(text, n, packed);
        uint32_t harm = below(3);
        for (uint32_t k = 0; harm == 1 && k < 3; k++) {
            packed[below((uint32_t)length)] ^= (unsigned char)(1u << below(8));
        }
        length = harm == 2 ? below((uint32_t)length) : length;
        outcome theirs = by_zlib(packed, length, wanted), ours = by_ours(packed, length, got);
        assert_int_equal(ours.complete, theirs.complete);
        assert_int_equal(ours.refused, theirs.refused);
        assert_memory_equal(got, wanted, ours.made < theirs.made ? ours.made : theirs.made);
        if (!ours.refused) { /* where a stream is refused, how much came out before is a matter of taste */
            assert_int_equal(ours.made, theirs.made);
        }
        if (ours.complete) {
            assert_int_equal(ours.used, theirs.used);
        }
        complete += ours.complete;
        refused += ours.refused;
        cut += !ours.complete && !ours.refused;
    }
    assert_true(complete > ROUNDS / 4 && refused > ROUNDS / 20 && cut > ROUNDS / 8); /* or the test tests nothing */
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(streams_of_every_kind_unpack_as_zlib_does)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
