/* Reading idx files. Counts come from the file, so each is checked against what is really there. */
#include "mnist.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

enum { SIDE = 28, MOST_IMAGES = 1000000 };

static int fail(const char *path, const char *why) {
    fprintf(stderr, "quern train: %s: %s\n", path, why);
    return 0;
}

/* zlib reads plain files too. */
static gzFile open_either(const char *dir, const char *which, const char *rest, char *path, size_t room) {
    snprintf(path, room, "%s/%s-%s", dir, which, rest);
    gzFile file = gzopen(path, "rb");
    if (file) return file;
    snprintf(path, room, "%s/%s-%s.gz", dir, which, rest);
    return gzopen(path, "rb");
}

static int read_number(gzFile file, uint32_t *number) {
    unsigned char b[4];
    if (gzread(file, b, 4) != 4) return 0;
    *number = (uint32_t)b[0] << 24 | (uint32_t)b[1] << 16 | (uint32_t)b[2] << 8 | b[3];
    return 1;
}

static int read_bytes(gzFile file, const char *path, size_t n, uint8_t **to) {
    *to = malloc(n ? n : 1);
    if (!*to) return fail(path, "no memory");
    for (size_t at = 0; at < n;) {
        int got = gzread(file, *to + at, (unsigned)(n - at > 1 << 20 ? 1 << 20 : n - at));
        if (got <= 0) return fail(path, "it ends before its last item");
        at += (size_t)got;
    }
    return 1;
}

static int read_images(const char *dir, const char *which, uint32_t most, mnist_set *set) {
    char path[1024];
    uint32_t magic = 0, n = 0, rows = 0, columns = 0;
    gzFile file = open_either(dir, which, "images-idx3-ubyte", path, sizeof path);
    if (!file) return fail(path, "cannot be opened");
    int good = read_number(file, &magic) && read_number(file, &n) && read_number(file, &rows) && read_number(file, &columns);
    if (!good || magic != 2051 || rows != SIDE || columns != SIDE || n > MOST_IMAGES)
        good = fail(path, "not a file of 28x28 images");
    set->n = most && most < n ? most : n;
    good = good && read_bytes(file, path, (size_t)set->n * SIDE * SIDE, &set->pixels);
    gzclose(file);
    return good;
}

static int read_labels(const char *dir, const char *which, mnist_set *set) {
    char path[1024];
    uint32_t magic = 0, n = 0;
    gzFile file = open_either(dir, which, "labels-idx1-ubyte", path, sizeof path);
    if (!file) return fail(path, "cannot be opened");
    int good = read_number(file, &magic) && read_number(file, &n);
    if (!good || magic != 2049 || n < set->n) good = fail(path, "not the labels of those images");
    good = good && read_bytes(file, path, set->n, &set->labels);
    for (uint32_t i = 0; good && i < set->n; i++)
        if (set->labels[i] > 9) good = fail(path, "a label is not a digit");
    gzclose(file);
    return good;
}

int mnist_read(const char *dir, const char *which, uint32_t most, mnist_set *set) {
    memset(set, 0, sizeof *set);
    return read_images(dir, which, most, set) && read_labels(dir, which, set);
}

void mnist_free(mnist_set *set) {
    free(set->pixels);
    free(set->labels);
}
