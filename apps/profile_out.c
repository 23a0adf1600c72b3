/* Files that are complete or absent, and the hash that stands for a trace view in a folder of views. */
#define _XOPEN_SOURCE 700 /* realpath */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "profile_cmd.h"

static int out_fail(out_file *out, const char *what) {
    fprintf(stderr, "quern profile: %s: %s: %s\n", out->path ? out->path : "standard output", what, strerror(errno));
    out_discard(out);
    return 0;
}

static int is_one_file(const struct stat *a, const struct stat *b) { return a->st_dev == b->st_dev && a->st_ino == b->st_ino; }

int out_is_read(const char *verb, const qn_profile *profile, const char *path) {
    struct stat out, in;
    const char *trace;
    if (!profile || !path || stat(path, &out) != 0) return 0;
    for (int r = 0; qn_profile_run_name(profile, r); r++)
        for (int w = 0; qn_profile_worker_name(profile, r, w); w++)
            for (int s = 0; (trace = qn_profile_trace_path(profile, r, w, s)) != NULL; s++) {
                if (stat(trace, &in) != 0 || !is_one_file(&in, &out)) continue;
                fprintf(stderr, "quern profile%s%s: %s is what is read; give the output another name\n", verb ? " " : "",
                        verb ? verb : "", path);
                return 1;
            }
    return 0;
}

/* The file itself behind links, which stay; a name of its own for what is not there yet. */
static char *name_of(const char *path) {
    char *found = realpath(path, NULL);
    if (found) return found;
    found = malloc(strlen(path) + 1);
    return found ? strcpy(found, path) : NULL;
}

/* What the file is until it is complete. A device or a pipe is written directly: nothing is moved over it. */
static int name_both(out_file *out, const char *path, const struct stat *there) {
    out->path = name_of(path);
    if (!out->path) return 0;
    if (there && !S_ISREG(there->st_mode)) return 1;
    size_t n = strlen(out->path) + 32;
    out->temporary = malloc(n);
    if (out->temporary) snprintf(out->temporary, n, "%s.%ld.tmp", out->path, (long)getpid());
    return out->temporary != NULL;
}

int out_open(out_file *out, const char *path) {
    struct stat there, ours;
    memset(out, 0, sizeof *out);
    int exists = path && stat(path, &there) == 0;
    if (!path || (exists && fstat(STDOUT_FILENO, &ours) == 0 && is_one_file(&there, &ours))) {
        out->to = stdout; /* /dev/stdout is, too, wherever that leads */
        return 1;
    }
    if (!name_both(out, path, exists ? &there : NULL)) return out_fail(out, "cannot be written");
    int direct = !out->temporary;
    int fd = direct ? open(path, O_WRONLY) : open(out->temporary, O_WRONLY | O_CREAT | O_EXCL, 0666);
    if (fd < 0) {
        free(out->temporary);
        out->temporary = NULL;
        return out_fail(out, "cannot be written");
    }
    out->to = fdopen(fd, "w");
    if (!out->to) {
        close(fd);
        return out_fail(out, "cannot be written");
    }
    return 1;
}

void out_discard(out_file *out) {
    if (out->to && out->to != stdout) fclose(out->to);
    if (out->temporary) unlink(out->temporary);
    free(out->temporary);
    free(out->path);
    memset(out, 0, sizeof *out);
}

int out_commit(out_file *out) {
    if (out->to == stdout) return fflush(stdout) == 0 && !ferror(stdout) ? 1 : out_fail(out, "could not be written");
    int broken = ferror(out->to) != 0;
    if (fclose(out->to) != 0) broken = 1;
    out->to = NULL;
    if (broken) return out_fail(out, "could not be written");
    if (out->temporary && rename(out->temporary, out->path) != 0) return out_fail(out, "cannot be renamed into place");
    free(out->temporary);
    out->temporary = NULL;
    out_discard(out);
    return 1;
}

/* ---- SHA-256 (FIPS 180-4) ----------------------------------------------------------------------------------------- */

static const uint32_t ROUND[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5, 0xd807aa98, 0x12835b01,
    0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc,
    0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147,
    0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116, 0x1e376c08,
    0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208,
    0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static uint32_t turn(uint32_t x, int n) { return x >> n | x << (32 - n); }

static void take_block(sha256 *hash) {
    uint32_t w[64], s[8];
    for (int i = 0; i < 16; i++) {
        const unsigned char *b = hash->block + 4 * i;
        w[i] = (uint32_t)b[0] << 24 | (uint32_t)b[1] << 16 | (uint32_t)b[2] << 8 | b[3];
    }
    for (int i = 16; i < 64; i++) {
        uint32_t low = turn(w[i - 15], 7) ^ turn(w[i - 15], 18) ^ w[i - 15] >> 3;
        uint32_t high = turn(w[i - 2], 17) ^ turn(w[i - 2], 19) ^ w[i - 2] >> 10;
        w[i] = w[i - 16] + low + w[i - 7] + high;
    }
    memcpy(s, hash->state, sizeof s);
    for (unsigned i = 0; i < 64; i++) { /* a to h are s[-i] to s[7 - i], so that nothing has to move */
        uint32_t a = s[(0u - i) & 7], b = s[(1u - i) & 7], c = s[(2u - i) & 7], e = s[(4u - i) & 7], f = s[(5u - i) & 7];
        uint32_t choose = (e & f) ^ (~e & s[(6u - i) & 7]), most = (a & b) ^ (a & c) ^ (b & c);
        uint32_t next = s[(7u - i) & 7] + (turn(e, 6) ^ turn(e, 11) ^ turn(e, 25)) + choose + ROUND[i] + w[i];
        s[(3u - i) & 7] += next;
        s[(7u - i) & 7] = next + (turn(a, 2) ^ turn(a, 13) ^ turn(a, 22)) + most;
    }
    for (int i = 0; i < 8; i++) hash->state[i] += s[i];
}

void sha256_begin(sha256 *hash) {
    static const uint32_t START[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                      0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    memcpy(hash->state, START, sizeof START);
    hash->bytes = 0;
}

void sha256_add(sha256 *hash, const void *bytes, size_t n) {
    const unsigned char *from = bytes;
    while (n) {
        size_t used = hash->bytes % 64, part = 64 - used < n ? 64 - used : n;
        memcpy(hash->block + used, from, part);
        hash->bytes += part;
        from += part;
        n -= part;
        if (used + part == 64) take_block(hash);
    }
}

void sha256_end(sha256 *hash, char hex[65]) {
    uint64_t bits = hash->bytes * 8;
    unsigned char length[8], pad[72] = {0x80};
    for (int i = 0; i < 8; i++) length[i] = (unsigned char)(bits >> (56 - 8 * i));
    sha256_add(hash, pad, 1 + (119 - hash->bytes % 64) % 64);
    sha256_add(hash, length, 8);
    for (int i = 0; i < 8; i++) snprintf(hex + 8 * i, 9, "%08x", (unsigned)hash->state[i]);
}
