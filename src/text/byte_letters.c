/* The letters in which gpt2 vocabularies write bytes: a byte that is a visible character of Latin-1 is that character, the
 * others are U+0100 on, in the order of their values. */
#include "text/tokenizer.h"
#include "text/utf8.h"

static int visible(uint32_t byte) { return (byte > 0x20 && byte < 0x7F) || (byte > 0xA0 && byte != 0xAD && byte < 0x100); }

/* The byte of a letter, or -1. */
static int letter_to_byte(uint32_t letter) {
    if (letter < 0x100) return visible(letter) ? (int)letter : -1;
    uint32_t rest = letter - 0x100;
    if (rest < 0x21) return (int)rest;                 /* 00 to 20 */
    if (rest < 0x21 + 0x22) return (int)(rest + 0x5E); /* 7F to A0 */
    return rest == 0x21 + 0x22 ? 0xAD : -1;
}

int qn_text_letters_to_bytes(qn_text text, char *out, size_t *n) {
    *n = 0;
    for (size_t i = 0; i < text.length;) {
        uint32_t letter;
        size_t size = qn_text_utf8_read(text.at + i, text.length - i, &letter);
        int byte = size ? letter_to_byte(letter) : -1;
        if (byte < 0) return 0;
        out[(*n)++] = (char)byte;
        i += size;
    }
    return 1;
}
