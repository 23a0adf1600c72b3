/* What the tests of the recorder share: a folder that is removed again, a context with an op to run, and a look at the file. */
#ifndef QN_TESTS_RECORD_HELP_H
#define QN_TESTS_RECORD_HELP_H

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <quern/profile.h>
#include <quern/record.h>

#include "cmocka_setup.h"

typedef struct bench {
    char folder[64];
    qn_recorder *recorder;
    qn_context *context;
    qn_error error;
    float memory[3][64];
    qn_tensor a, b, y;
    qn_request add, product;
} bench;

static inline void request(qn_request *q, qn_op op, const bench *b) {
    *q = (qn_request){.size = sizeof *q,
                      .version = QN_REQUEST_VERSION,
                      .op = (uint16_t)op,
                      .n_src = 2,
                      .n_dst = 1,
                      .src = {&b->a, &b->b},
                      .dst = {&b->y}};
}

static inline qn_recorder_options begin_options(bench *b) {
    memset(b, 0, sizeof *b);
    snprintf(b->folder, sizeof b->folder, "/tmp/quern-record-XXXXXX");
    assert_non_null(mkdtemp(b->folder));
    int64_t shape[2] = {8, 8};
    qn_tensor_init(&b->a, QN_DTYPE_F32, 2, shape, b->memory[0], sizeof b->memory[0]);
    qn_tensor_init(&b->b, QN_DTYPE_F32, 2, shape, b->memory[1], sizeof b->memory[1]);
    qn_tensor_init(&b->y, QN_DTYPE_F32, 2, shape, b->memory[2], sizeof b->memory[2]);
    request(&b->add, QN_OP_add, b);
    request(&b->product, QN_OP_mul_mat, b);
    qn_context_options plain = {.size = sizeof plain, .flags = QN_CONTEXT_REFERENCE}; /* which needs no workspace here */
    assert_int_equal(qn_context_create(&plain, &b->context), QN_OK);
    qn_recorder_options options = qn_recorder_options_default();
    options.folder = b->folder;
    return options;
}

static inline void begin_with(bench *b, const qn_recorder_options *options) {
    assert_int_equal(qn_recorder_create(options, &b->recorder, &b->error), QN_OK);
    assert_int_equal(qn_recorder_attach(b->recorder, b->context, "main", &b->error), QN_OK);
}

static inline void begin(bench *b) {
    qn_recorder_options options = begin_options(b);
    begin_with(b, &options);
}

static inline void run_ops(bench *b, int n) {
    for (int i = 0; i < n; i++) assert_int_equal(qn_dispatch(b->context, &b->add, NULL), QN_OK);
}

/* Files of the folder; with remove, none is left. */
static inline int count_files(const bench *b, int remove) {
    DIR *dir = opendir(b->folder);
    int n = 0;
    assert_non_null(dir);
    for (struct dirent *e; (e = readdir(dir)) != NULL;) {
        if (e->d_name[0] == '.') continue;
        char path[512];
        snprintf(path, sizeof path, "%s/%s", b->folder, e->d_name);
        if (remove) unlink(path);
        n++;
    }
    closedir(dir);
    return n;
}

static inline void end(bench *b) {
    qn_recorder_destroy(b->recorder);
    qn_context_destroy(b->context);
    count_files(b, 1);
    assert_int_equal(rmdir(b->folder), 0);
}

/* The text of a file that is not compressed; to be freed. */
static inline char *read_text(const char *path) {
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    fseek(file, 0, SEEK_END);
    long n = ftell(file);
    rewind(file);
    char *text = malloc((size_t)n + 1);
    assert_non_null(text);
    assert_int_equal(fread(text, 1, (size_t)n, file), n);
    text[n] = 0;
    fclose(file);
    return text;
}

static inline char *write_text(bench *b) {
    const char *path;
    assert_int_equal(qn_recorder_write(b->recorder, &path, &b->error), QN_OK);
    return read_text(path);
}

static inline int occurrences(const char *text, const char *what) {
    int n = 0;
    for (const char *at = text; (at = strstr(at, what)) != NULL; at += strlen(what)) n++;
    return n;
}

static inline qn_recorder_info info_of(bench *b) {
    qn_recorder_info info;
    info.size = sizeof info;
    assert_int_equal(qn_recorder_describe(b->recorder, &info), QN_OK);
    return info;
}

#endif
