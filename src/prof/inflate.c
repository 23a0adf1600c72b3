/* The decoder. A code is looked up by its first bits; codes that are longer lead on to a second table. Entries hold everything there
 * is to know about a code, so that no second lookup of bases and extra bits is needed. */
#include "prof/inflate.h"

#include <string.h>

enum { LITERAL_BITS = 10, DISTANCE_BITS = 8, LONGEST_CODE = 15, LONGEST_MATCH = 258 };
enum { IN_HEADER, IN_STORED, IN_CODES, IN_MATCH, IN_END };

/* An entry: bits 0..7 length of the code, 8..11 extra bits behind it, 12..15 what it is, 16..31 byte, base or offset of a table. */
enum { LITERAL = 0, BASE = 1, END_OF_BLOCK = 2, LONGER = 3, NO_CODE = 4 };

static uint32_t make_entry(unsigned what, unsigned value, unsigned extra) { return value << 16 | what << 12 | extra << 8; }
static unsigned length_of(uint32_t entry) { return entry & 255; }
static unsigned extra_of(uint32_t entry) { return entry >> 8 & 15; }
static unsigned what_of(uint32_t entry) { return entry >> 12 & 15; }
static unsigned value_of(uint32_t entry) { return entry >> 16; }

static prof_inflate_result bad(prof_inflate *z, const char *why) {
    z->why = why;
    return PROF_INFLATE_BAD;
}

/* ---- Bits --------------------------------------------------------------------------------------------------------- */

static void fill(prof_inflate *z) { /* 56 bits or more, if there are so many; never all 64, by which no word can be shifted */
    while (z->count < 56 && z->in < z->in_end) {
        z->bits |= (uint64_t)*z->in++ << z->count;
        z->count += 8;
    }
}

static unsigned take(prof_inflate *z, unsigned n) { /* the caller knows that there are so many */
    unsigned value = (unsigned)(z->bits & ((1u << n) - 1));
    z->bits >>= n;
    z->count -= n;
    return value;
}

static void give_back(prof_inflate *z) { /* whole bytes that were read ahead */
    z->in -= z->count / 8;
    z->count %= 8;
    z->bits &= (1u << z->count) - 1;
}

/* ---- Tables ------------------------------------------------------------------------------------------------------- */

/* What each symbol of the two alphabets means. */
static uint32_t literal_entry(unsigned symbol) {
    static const uint16_t BASES[29] = {3,  4,  5,  6,  7,  8,  9,  10, 11,  13,  15,  17,  19,  23, 27,
                                       31, 35, 43, 51, 59, 67, 83, 99, 115, 131, 163, 195, 227, 258};
    if (symbol < 256) {
        return make_entry(LITERAL, symbol, 0);
    }
    if (symbol == 256) {
        return make_entry(END_OF_BLOCK, 0, 0);
    }
    unsigned at = symbol - 257, extra = at < 8 || at == 28 ? 0 : at / 4 - 1;
    return at < 29 ? make_entry(BASE, BASES[at], extra) : make_entry(NO_CODE, 0, 0);
}

static uint32_t distance_entry(unsigned symbol) {
    unsigned extra = symbol < 4 ? 0 : symbol / 2 - 1;
    unsigned base = symbol < 4 ? symbol + 1 : ((2 + symbol % 2) << extra) + 1;
    return symbol < 30 ? make_entry(BASE, base, extra) : make_entry(NO_CODE, 0, 0);
}

static uint32_t order_entry(unsigned symbol) { return make_entry(LITERAL, symbol, 0); }

static unsigned reversed(unsigned code, unsigned length) {
    unsigned result = 0;
    for (; length; length--, code >>= 1) {
        result = result << 1 | (code & 1);
    }
    return result;
}

/* Puts one code into the table: at every index that begins with it. Returns the entries now in use. */
static unsigned put_code(uint32_t *table, unsigned table_bits, unsigned used, unsigned code, unsigned length, uint32_t entry) {
    unsigned sub_bits = LONGEST_CODE - table_bits, index = reversed(code, length);
    if (length <= table_bits) {
        for (; index < 1u << table_bits; index += 1u << length) {
            table[index] = entry | length;
        }
        return used;
    }
    unsigned prefix = index & ((1u << table_bits) - 1);
    if (what_of(table[prefix]) != LONGER) {
        table[prefix] = make_entry(LONGER, used, 0);
        for (unsigned i = 0; i < 1u << sub_bits; i++) {
            table[used + i] = make_entry(NO_CODE, 0, 0);
        }
        used += 1u << sub_bits;
    }
    for (index >>= table_bits; index < 1u << sub_bits; index += 1u << (length - table_bits)) {
        table[value_of(table[prefix]) + index] = entry | length;
    }
    return used;
}

/* Canonical codes from their lengths. 0 when they are too many for their lengths, or too few: one code alone, of one bit, may leave
 * the other unused, and an alphabet may be empty, unless `whole` is asked for. */
static int make_table(uint32_t *table, unsigned table_bits, const uint8_t *lengths, unsigned n, uint32_t (*entry_of)(unsigned),
                      int whole) {
    unsigned counts[LONGEST_CODE + 1] = {0}, next[LONGEST_CODE + 2] = {0}, longest = 0;
    int left = 1;
    for (unsigned i = 0; i < n; i++) {
        counts[lengths[i]]++;
    }
    counts[0] = 0;
    for (unsigned length = 1; length <= LONGEST_CODE; length++) {
        left = (left << 1) - (int)counts[length];
        if (left < 0) {
            return 0;
        }
        next[length + 1] = (next[length] + counts[length]) << 1;
        longest = counts[length] ? length : longest;
    }
    if (left > 0 && longest > 0 && (whole || longest != 1)) {
        return 0;
    }
    unsigned used = 1u << table_bits;
    for (unsigned i = 0; i < used; i++) {
        table[i] = make_entry(NO_CODE, 0, 0);
    }
    for (unsigned i = 0; i < n; i++) {
        if (lengths[i]) {
            used = put_code(table, table_bits, used, next[lengths[i]]++, lengths[i], entry_of(i));
        }
    }
    return longest > 0 || !whole;
}

/* ---- Blocks' headers ---------------------------------------------------------------------------------------------- */

static prof_inflate_result fixed_codes(prof_inflate *z) {
    uint8_t lengths[288 + 32];
    memset(lengths, 8, 144);
    memset(lengths + 144, 9, 112);
    memset(lengths + 256, 7, 24);
    memset(lengths + 280, 8, 8);
    memset(lengths + 288, 5, 32);
    make_table(z->literals, LITERAL_BITS, lengths, 288, literal_entry, 0);
    make_table(z->distances, DISTANCE_BITS, lengths + 288, 32, distance_entry, 0);
    z->state = IN_CODES;
    return PROF_INFLATE_FULL;
}

/* The lengths of both alphabets, themselves coded. */
static prof_inflate_result read_lengths(prof_inflate *z, uint8_t *lengths, unsigned n) {
    uint32_t *table = z->literals; /* free until the lengths are known */
    for (unsigned i = 0; i < n;) {
        fill(z);
        uint32_t entry = table[z->bits & ((1u << LITERAL_BITS) - 1)];
        unsigned symbol = value_of(entry), length = length_of(entry);
        if (what_of(entry) == NO_CODE) {
            return z->count >= 7 ? bad(z, "a code that stands for nothing") : PROF_INFLATE_CUT;
        }
        unsigned extra = symbol < 16 ? 0 : symbol == 16 ? 2 : symbol == 17 ? 3 : 7;
        if (z->count < length + extra) {
            return PROF_INFLATE_CUT;
        }
        take(z, length);
        if (symbol < 16) {
            lengths[i++] = (uint8_t)symbol;
            continue;
        }
        unsigned repeats = (symbol == 18 ? 11 : 3) + take(z, extra);
        if (repeats > n - i || (symbol == 16 && i == 0)) {
            return bad(z, "a repeated code length out of place");
        }
        memset(lengths + i, symbol == 16 ? lengths[i - 1] : 0, repeats);
        i += repeats;
    }
    return PROF_INFLATE_FULL;
}

static prof_inflate_result dynamic_codes(prof_inflate *z) {
    static const uint8_t ORDER[19] = {16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15};
    uint8_t lengths[286 + 30] = {0}, order[19] = {0};
    fill(z);
    if (z->count < 14) {
        return PROF_INFLATE_CUT;
    }
    unsigned literals = 257 + take(z, 5), distances = 1 + take(z, 5), orders = 4 + take(z, 4);
    if (literals > 286 || distances > 30) {
        return bad(z, "too many codes");
    }
    for (unsigned i = 0; i < orders; i++) {
        fill(z);
        if (z->count < 3) {
            return PROF_INFLATE_CUT;
        }
        order[ORDER[i]] = (uint8_t)take(z, 3);
    }
    if (!make_table(z->literals, LITERAL_BITS, order, 19, order_entry, 1)) {
        return bad(z, "code lengths that no code has");
    }
    prof_inflate_result result = read_lengths(z, lengths, literals + distances);
    if (result != PROF_INFLATE_FULL) {
        return result;
    }
    if (lengths[256] == 0) {
        return bad(z, "no code for the end of a block");
    }
    if (!make_table(z->literals, LITERAL_BITS, lengths, literals, literal_entry, 0) ||
        !make_table(z->distances, DISTANCE_BITS, lengths + literals, distances, distance_entry, 0)) {
        return bad(z, "code lengths that no code has");
    }
    z->state = IN_CODES;
    return PROF_INFLATE_FULL;
}

static prof_inflate_result stored_block(prof_inflate *z) {
    take(z, z->count % 8);
    fill(z);
    if (z->count < 32) {
        return PROF_INFLATE_CUT;
    }
    unsigned length = take(z, 16), inverted = take(z, 16);
    if ((length ^ inverted) != 0xffff) {
        return bad(z, "a stored block whose length is wrong");
    }
    give_back(z);
    z->left = length;
    z->state = IN_STORED;
    return PROF_INFLATE_FULL;
}

/* FULL: on with the block. */
static prof_inflate_result next_block(prof_inflate *z) {
    if (z->final_block) {
        give_back(z);
        z->state = IN_END;
        return PROF_INFLATE_END;
    }
    fill(z);
    if (z->count < 3) {
        return PROF_INFLATE_CUT;
    }
    z->final_block = (int)take(z, 1);
    switch (take(z, 2)) {
    case 0: return stored_block(z);
    case 1: return fixed_codes(z);
    case 2: return dynamic_codes(z);
    default: return bad(z, "a block of a kind that there is not");
    }
}

/* ---- Blocks ------------------------------------------------------------------------------------------------------- */

static prof_inflate_result copy_stored(prof_inflate *z, char **out, char *out_end) {
    size_t n = z->left, room = (size_t)(out_end - *out), there = (size_t)(z->in_end - z->in);
    n = n < room ? n : room;
    n = n < there ? n : there;
    memcpy(*out, z->in, n);
    *out += n;
    z->in += n;
    z->left -= (uint32_t)n;
    z->state = z->left ? IN_STORED : IN_HEADER;
    return z->left && *out < out_end ? PROF_INFLATE_CUT : PROF_INFLATE_FULL;
}

/* As much of the match as there is room for. */
static void copy_match(prof_inflate *z, char **out, const char *out_end) {
    char *to = *out;
    for (; z->left && to < out_end; z->left--, to++) {
        *to = to[-(ptrdiff_t)z->distance];
    }
    *out = to;
    z->state = z->left ? IN_MATCH : IN_CODES;
}

/* A match with room to write up to 15 bytes more behind it. */
static char *copy_fast(char *to, unsigned length, unsigned distance) {
    const char *from = to - distance;
    char *end = to + length;
    if (distance >= 16) {
        do {
            memcpy(to, from, 16);
            to += 16;
            from += 16;
        } while (to < end);
    } else if (distance >= 8) {
        do {
            memcpy(to, from, 8);
            to += 8;
            from += 8;
        } while (to < end);
    } else if (distance == 1) {
        memset(to, *from, length);
    } else {
        do {
            *to++ = *from++;
        } while (to < end);
    }
    return end;
}

static uint32_t look_up(const uint32_t *table, unsigned table_bits, uint64_t bits) {
    uint32_t entry = table[bits & ((1u << table_bits) - 1)];
    if (what_of(entry) == LONGER) {
        unsigned sub_bits = LONGEST_CODE - table_bits;
        entry = table[value_of(entry) + (bits >> table_bits & ((1u << sub_bits) - 1))];
    }
    return entry;
}

enum { FAST_IN = 16, FAST_OUT = LONGEST_MATCH + 32 }; /* what one round of the fast loop may read and write */

/* Codes while there is plenty of input and room. FULL: on with the careful way, or with the next block. */
static prof_inflate_result decode_fast(prof_inflate *z, const char *history, char **out, const char *out_end) {
    const unsigned char *in = z->in;
    uint64_t bits = z->bits;
    unsigned count = z->count;
    char *to = *out;
    const char *why = NULL;
    while (z->in_end - in >= FAST_IN && out_end - to >= FAST_OUT) {
        uint64_t word;
        memcpy(&word, in, 8); /* lowest byte first, as both our machines store words */
        bits |= word << count;
        in += (63 - count) >> 3;
        count |= 56;
        uint32_t entry = look_up(z->literals, LITERAL_BITS, bits);
        if (what_of(entry) == LITERAL) {
            *to++ = (char)value_of(entry);
            bits >>= length_of(entry);
            count -= length_of(entry);
            entry = look_up(z->literals, LITERAL_BITS, bits);
            if (what_of(entry) == LITERAL) {
                *to++ = (char)value_of(entry);
                bits >>= length_of(entry);
                count -= length_of(entry);
                continue;
            }
            memcpy(&word, in, 8); /* a match may take 48 bits */
            bits |= word << count;
            in += (63 - count) >> 3;
            count |= 56;
        }
        bits >>= length_of(entry);
        count -= length_of(entry);
        if (what_of(entry) != BASE) {
            why = what_of(entry) == END_OF_BLOCK ? NULL : "a code that stands for nothing";
            z->state = IN_HEADER;
            break;
        }
        unsigned length = value_of(entry) + (unsigned)(bits & ((1u << extra_of(entry)) - 1));
        bits >>= extra_of(entry);
        count -= extra_of(entry);
        entry = look_up(z->distances, DISTANCE_BITS, bits);
        unsigned distance = value_of(entry) + (unsigned)(bits >> length_of(entry) & ((1u << extra_of(entry)) - 1));
        bits >>= length_of(entry) + extra_of(entry);
        count -= length_of(entry) + extra_of(entry);
        if (what_of(entry) != BASE || distance > (size_t)(to - history)) {
            why = what_of(entry) != BASE ? "a distance that stands for nothing" : "a distance that reaches too far back";
            break;
        }
        to = copy_fast(to, length, distance);
    }
    z->in = in;
    z->bits = bits & ((1ull << count) - 1);
    z->count = count;
    *out = to;
    return why ? bad(z, why) : PROF_INFLATE_FULL;
}

/* One code, near an end of input or output. */
static prof_inflate_result decode_one(prof_inflate *z, const char *history, char **out, const char *out_end) {
    fill(z);
    uint32_t entry = look_up(z->literals, LITERAL_BITS, z->bits);
    if (what_of(entry) == NO_CODE) {
        return z->count >= LONGEST_CODE ? bad(z, "a code that stands for nothing") : PROF_INFLATE_CUT;
    }
    if (z->count < length_of(entry) + extra_of(entry)) {
        return PROF_INFLATE_CUT;
    }
    take(z, length_of(entry));
    if (what_of(entry) == LITERAL) {
        *(*out)++ = (char)value_of(entry);
        return PROF_INFLATE_FULL;
    }
    if (what_of(entry) == END_OF_BLOCK) {
        z->state = IN_HEADER;
        return PROF_INFLATE_FULL;
    }
    z->left = value_of(entry) + take(z, extra_of(entry));
    fill(z);
    entry = look_up(z->distances, DISTANCE_BITS, z->bits);
    if (what_of(entry) == NO_CODE) {
        return z->count >= LONGEST_CODE ? bad(z, "a distance that stands for nothing") : PROF_INFLATE_CUT;
    }
    if (z->count < length_of(entry) + extra_of(entry)) {
        return PROF_INFLATE_CUT;
    }
    take(z, length_of(entry));
    z->distance = value_of(entry) + take(z, extra_of(entry));
    if (z->distance > (size_t)(*out - history)) {
        return bad(z, "a distance that reaches too far back");
    }
    copy_match(z, out, out_end);
    return PROF_INFLATE_FULL;
}

void qn_prof_inflate_begin(prof_inflate *z) {
    z->bits = z->count = 0;
    z->state = IN_HEADER;
    z->final_block = 0;
}

prof_inflate_result qn_prof_inflate(prof_inflate *z, const char *history, char **out, char *out_end) {
    prof_inflate_result result = PROF_INFLATE_FULL;
    while (result == PROF_INFLATE_FULL) {
        if (z->state == IN_END) {
            return PROF_INFLATE_END;
        }
        if (!z->last && z->in_end - z->in < PROF_INFLATE_AHEAD) {
            give_back(z); /* the caller moves what is left of the input */
            return PROF_INFLATE_MORE;
        }
        if (z->state == IN_HEADER) { /* also without room: the end of a stream takes none */
            result = next_block(z);
            continue;
        }
        if (*out == out_end) {
            return PROF_INFLATE_FULL;
        }
        if (z->state == IN_STORED) {
            result = copy_stored(z, out, out_end);
            if (result == PROF_INFLATE_CUT && !z->last) {
                return PROF_INFLATE_MORE;
            }
        } else if (z->state == IN_MATCH) {
            copy_match(z, out, out_end);
        } else {
            result = decode_fast(z, history, out, out_end);
            if (result == PROF_INFLATE_FULL && z->state == IN_CODES && *out < out_end &&
                (z->last || z->in_end - z->in >= PROF_INFLATE_AHEAD)) {
                result = decode_one(z, history, out, out_end);
            }
        }
    }
    return result;
}
