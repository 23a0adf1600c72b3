/* Pictures a person can look at: 8-bit RGB as PNG, stored without compression. Written only where QUERN_PICTURES names a folder. */
#ifndef QN_TESTS_PICTURE_H
#define QN_TESTS_PICTURE_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static inline uint32_t picture_crc(const uint8_t *p, size_t n) {
    uint32_t crc = 0xFFFFFFFFu;
    for (size_t i = 0; i < n; i++) {
        crc ^= p[i];
        for (int k = 0; k < 8; k++) crc = crc >> 1 ^ (crc & 1 ? 0xEDB88320u : 0);
    }
    return ~crc;
}

static inline uint8_t *picture_word(uint8_t *at, uint32_t v) {
    for (int k = 3; k >= 0; k--) *at++ = (uint8_t)(v >> 8 * k);
    return at;
}

/* Length, name, bytes and checksum of one chunk; `body` is where the bytes already are, 8 behind `at`. */
static inline uint8_t *picture_chunk(uint8_t *at, const char *name, size_t n) {
    picture_word(at, (uint32_t)n);
    memcpy(at + 4, name, 4);
    return picture_word(at + 8 + n, picture_crc(at + 4, n + 4));
}

/* The bytes of a PNG, to be freed; *bytes is how many. Rows must be shorter than 65535 bytes. */
static inline uint8_t *picture_png(const uint8_t *rgb, int width, int height, size_t *bytes) {
    size_t row = 3 * (size_t)width + 1, body = 2 + (size_t)height * (row + 5) + 4;
    uint8_t *file = calloc(1, 8 + 25 + 12 + body + 12), *at = file;
    uint32_t a = 1, b = 0;
    if (!file) return NULL;
    memcpy(at, "\x89PNG\r\n\x1a\n", 8);
    at += 8;
    picture_word(picture_word(at + 8, (uint32_t)width), (uint32_t)height);
    at[16] = 8; /* bits */
    at[17] = 2; /* RGB */
    at = picture_chunk(at, "IHDR", 13);
    uint8_t *z = at + 8;
    *z++ = 0x78;
    *z++ = 1;
    for (int y = 0; y < height; y++) { /* a stored block for each row, which begins with the filter 0 */
        *z++ = y == height - 1;
        *z++ = (uint8_t)row;
        *z++ = (uint8_t)(row >> 8);
        *z++ = (uint8_t)~row;
        *z++ = (uint8_t)(~row >> 8);
        *z = 0;
        memcpy(z + 1, rgb + 3 * (size_t)width * (size_t)y, row - 1);
        for (size_t i = 0; i < row; i++) {
            a = (a + z[i]) % 65521;
            b = (b + a) % 65521;
        }
        z += row;
    }
    picture_word(z, b << 16 | a);
    at = picture_chunk(at, "IDAT", body);
    at = picture_chunk(at, "IEND", 0);
    *bytes = (size_t)(at - file);
    return file;
}

/* 1 when it was written, or nobody asked for it. */
static inline int picture_save(const char *name, const uint8_t *rgb, int width, int height) {
    const char *folder = getenv("QUERN_PICTURES");
    char path[512];
    size_t bytes;
    if (!folder) return 1;
    snprintf(path, sizeof path, "%s/%s.png", folder, name);
    uint8_t *file = picture_png(rgb, width, height, &bytes);
    FILE *out = fopen(path, "wb");
    int done = file && out && fwrite(file, 1, bytes, out) == bytes;
    if (out) done &= fclose(out) == 0;
    free(file);
    return done;
}

#endif
