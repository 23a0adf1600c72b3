/* What the fuzzers of model files share: opening from memory of the exact size, and a walk that touches all there is. */
#ifndef QN_FUZZ_FORMAT_H
#define QN_FUZZ_FORMAT_H

#include <stdio.h>
#include <stdlib.h>

#include <quern/format.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { TABLES_PER_BYTE = 25, TABLES_LEAST = 256 * 1024, MOST_ITEMS = 4096 }; /* one byte more for tensors that had to be copied */

#define PROMISE(condition)                              \
    do {                                                \
        if (!(condition)) broken(#condition, __LINE__); \
    } while (0)

static void broken(const char *promise, int line) {
    fprintf(stderr, "line %d: broken promise: %s\n", line, promise);
    abort();
}

static char *copy_exact(const uint8_t *data, size_t size) {
    char *exact = malloc(size ? size : 1);
    PROMISE(exact);
    memcpy(exact, data, size);
    return exact;
}

static qn_status open_memory(const void *data, size_t size, qn_file **file) {
    qn_file_options options = qn_file_options_default();
    qn_error error;
    options.data = data;
    options.bytes = size;
    qn_status status = qn_file_open("input", &options, file, &error);
    PROMISE(status == QN_OK ? *file != NULL : !*file && error.status == status && strncmp(error.text, "input: ", 7) == 0);
    return status;
}

/* A sum that depends on every byte, so that reading them cannot be left out. */
static uint64_t touch(const void *data, uint64_t bytes) {
    uint64_t sum = 0;
    for (uint64_t i = 0; i < bytes; i++) sum = sum * 31 + ((const unsigned char *)data)[i];
    return sum;
}

static uint64_t walk_value(qn_file_value *v, int depth) {
    uint64_t sum = (uint64_t)v->integer + (v->bytes ? touch(v->text, v->bytes) : 0);
    qn_file_value item;
    PROMISE(depth < 9);
    for (uint64_t i = 0; v->type == QN_KEY_ARRAY && i < v->count && i < MOST_ITEMS; i++) {
        PROMISE(qn_file_item(v, i, &item) == QN_OK && item.type == v->item);
        sum += walk_value(&item, depth + 1);
    }
    return sum;
}

static void walk(const qn_file *file, size_t size) {
    qn_file_info info = {.size = sizeof info};
    qn_file_value v;
    qn_file_tensor t;
    volatile uint64_t sum = 0;
    PROMISE(qn_file_describe(file, &info) == QN_OK);
    PROMISE(info.bytes == size && info.tensor_bytes <= size && info.memory <= TABLES_LEAST + TABLES_PER_BYTE * (uint64_t)size);
    for (uint64_t i = 0; i < info.n_keys; i++) {
        PROMISE(qn_file_key(file, (int64_t)i, &v) == QN_OK);
        PROMISE(qn_file_find(file, QN_FILE_KEYS, v.name) == (int64_t)i);
        sum = sum + walk_value(&v, 0);
    }
    for (uint64_t i = 0; i < info.n_tensors; i++) {
        uint64_t bytes;
        PROMISE(qn_file_entry(file, (int64_t)i, &t) == QN_OK);
        PROMISE(qn_file_find(file, QN_FILE_TENSORS, t.name) == (int64_t)i);
        PROMISE(qn_tensor_bytes((qn_dtype)t.tensor.dtype, t.tensor.rank, t.tensor.shape, &bytes) == QN_OK && bytes == t.bytes);
        PROMISE(t.bytes == 0 || (t.offset <= size && t.bytes <= size - t.offset && (uintptr_t)t.tensor.data % 8 == 0));
        sum = sum + touch(t.tensor.data, t.bytes);
    }
    PROMISE(qn_file_key(file, (int64_t)info.n_keys, &v) == QN_ARGUMENT &&
            qn_file_entry(file, (int64_t)info.n_tensors, &t) == QN_ARGUMENT);
}

#endif
