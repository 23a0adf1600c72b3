/* Model files made by hand, byte by byte, right or wrong, for the tests of the readers. */
#ifndef QN_TESTS_FORMAT_HELP_H
#define QN_TESTS_FORMAT_HELP_H

#include "cmocka_setup.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <quern/format.h>

enum { MADE_ROOM = 1 << 16 };

typedef struct made {
    uint8_t at[MADE_ROOM];
    size_t n;
} made;

static inline void put_bytes(made *m, const void *data, size_t n) {
    assert_true(m->n + n <= MADE_ROOM);
    memcpy(m->at + m->n, data, n);
    m->n += n;
}

static inline void put_number(made *m, uint64_t v, int bytes) {
    for (int i = 0; i < bytes; i++) m->at[m->n++] = (uint8_t)(v >> 8 * i);
}

static inline void put_text(made *m, const char *text) {
    put_number(m, strlen(text), 8);
    put_bytes(m, text, strlen(text));
}

static inline void put_head(made *m, uint32_t version, uint64_t tensors, uint64_t keys) {
    m->n = 0;
    put_bytes(m, "GGUF", 4);
    put_number(m, version, 4);
    put_number(m, tensors, 8);
    put_number(m, keys, 8);
}

/* A key of fixed size. */
static inline void put_key(made *m, const char *name, qn_key_type type, uint64_t v, int bytes) {
    put_text(m, name);
    put_number(m, type, 4);
    put_number(m, v, bytes);
}

static inline void put_string_key(made *m, const char *name, const char *text) {
    put_text(m, name);
    put_number(m, QN_KEY_STRING, 4);
    put_text(m, text);
}

static inline void put_array_head(made *m, const char *name, uint32_t item, uint64_t count) {
    put_text(m, name);
    put_number(m, QN_KEY_ARRAY, 4);
    put_number(m, item, 4);
    put_number(m, count, 8);
}

/* A tensor of two dims, the fastest first as the file has them. */
static inline void put_tensor(made *m, const char *name, uint64_t fast, uint64_t slow, uint32_t type, uint64_t offset) {
    put_text(m, name);
    put_number(m, 2, 4);
    put_number(m, fast, 8);
    put_number(m, slow, 8);
    put_number(m, type, 4);
    put_number(m, offset, 8);
}

static inline void put_zeros(made *m, size_t n) {
    assert_true(m->n + n <= MADE_ROOM);
    memset(m->at + m->n, 0, n);
    m->n += n;
}

static inline void pad_to(made *m, size_t align) { put_zeros(m, (align - m->n % align) % align); }

/* Opens a copy of its exact size, so that a sanitizer sees a step beyond it. The copy is in *copy, for free. */
static inline qn_status open_bytes(const void *data, size_t n, uint64_t max_memory, qn_file **file, void **copy,
                                   qn_error *error) {
    qn_file_options options = qn_file_options_default();
    *copy = malloc(n ? n : 1);
    assert_non_null(*copy);
    memcpy(*copy, data, n);
    options.data = *copy;
    options.bytes = n;
    options.max_memory = max_memory;
    return qn_file_open("made", &options, file, error);
}

/* The bytes must be refused with this status and a sentence that has these words in it. */
static inline void refuse(const made *m, qn_status status, const char *words) {
    qn_file *file;
    qn_error error;
    void *copy;
    qn_status got = open_bytes(m->at, m->n, 0, &file, &copy, &error);
    if (got != status || error.status != status || !strstr(error.text, words)) {
        fail_msg("expected %s with '%s', got %s: %s", qn_status_name(status), words, qn_status_name(got), error.text);
    }
    assert_null(file);
    free(copy);
}

static inline qn_file *accept(const made *m, void **copy) {
    qn_file *file;
    qn_error error;
    if (open_bytes(m->at, m->n, 0, &file, copy, &error) != QN_OK) fail_msg("refused: %s", error.text);
    return file;
}

/* A folder of the test's own. */
static inline char *make_folder(char *path, size_t room) {
    const char *top = getenv("TMPDIR");
    snprintf(path, room, "%s/quern-test-XXXXXX", top ? top : "/tmp");
    assert_non_null(mkdtemp(path));
    return path;
}

static inline void write_file(const char *folder, const char *name, const void *data, size_t n) {
    char path[600];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *to = fopen(path, "wb");
    assert_non_null(to);
    assert_int_equal(fwrite(data, 1, n, to), n);
    assert_int_equal(fclose(to), 0);
}

static inline void remove_file(const char *folder, const char *name) {
    char path[600];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    unlink(path);
}

#endif
