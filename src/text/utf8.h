/* One character of UTF-8 at a time, strictly: no surrogates, no overlong forms, nothing above U+10FFFF. */
#ifndef QN_TEXT_UTF8_H
#define QN_TEXT_UTF8_H

#include <stddef.h>
#include <stdint.h>

/* Bytes a leading byte announces: 2 to 4, or 1 for a byte that stands alone or can lead nothing. */
static inline size_t qn_text_utf8_announced(char lead) {
    unsigned char b = (unsigned char)lead;
    return b < 0xC2 ? 1 : b < 0xE0 ? 2 : b < 0xF0 ? 3 : b < 0xF5 ? 4 : 1;
}

/* Bytes of the character at p, of which n are there, and its code point; 0 when no character is there. */
static inline size_t qn_text_utf8_read(const char *p, size_t n, uint32_t *code) {
    static const uint32_t LEAST[5] = {0, 0, 0x80, 0x800, 0x10000};
    if (n == 0) return 0;
    unsigned char lead = (unsigned char)*p;
    if (lead < 0x80) {
        *code = lead;
        return 1;
    }
    size_t size = qn_text_utf8_announced(*p);
    if (size == 1 || size > n) return 0;
    uint32_t c = lead & (0x7Fu >> size);
    for (size_t i = 1; i < size; i++) {
        if (((unsigned char)p[i] & 0xC0) != 0x80) return 0;
        c = c << 6 | ((unsigned char)p[i] & 0x3F);
    }
    if (c < LEAST[size] || c > 0x10FFFF || (c >= 0xD800 && c < 0xE000)) return 0;
    *code = c;
    return size;
}

/* The bytes at the end of a text that a next byte may complete to a character: 0 to 3. */
static inline size_t qn_text_utf8_unfinished(const char *p, size_t n) {
    for (size_t back = 1; back <= 3 && back <= n; back++) {
        unsigned char b = (unsigned char)p[n - back];
        if ((b & 0xC0) == 0x80) continue;
        if (qn_text_utf8_announced((char)b) <= back) return 0;
        if (back >= 2) { /* some second bytes already rule the lead out */
            unsigned char next = (unsigned char)p[n - back + 1];
            if ((b == 0xE0 && next < 0xA0) || (b == 0xED && next >= 0xA0)) return 0;
            if ((b == 0xF0 && next < 0x90) || (b == 0xF4 && next >= 0x90)) return 0;
        }
        return back;
    }
    return 0;
}

/* Writes a code point (at most U+10FFFF); returns how many of the 4 bytes it took. */
static inline size_t qn_text_utf8_write(uint32_t code, char out[4]) {
    if (code < 0x80) {
        out[0] = (char)code;
        return 1;
    }
    size_t size = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    for (size_t i = size - 1; i > 0; i--, code >>= 6) out[i] = (char)(0x80 | (code & 0x3F));
    static const unsigned char LEAD[5] = {0, 0, 0xC0, 0xE0, 0xF0};
    out[0] = (char)(LEAD[size] | code);
    return size;
}

#endif
