/* An open model file, as the readers of each format fill it and the public calls look at it.
 *
 * A reader gets the bytes of one file and adds keys and tensors. Whatever the format, a key's value is kept as GGUF packs it, so
 * that one decoder serves all. Everything lives in the file's arena, whose limit follows from the size of what was opened. */
#ifndef QN_FORMAT_FILE_H
#define QN_FORMAT_FILE_H

#include <quern/format.h>

#include "base/arena.h"

enum {
    QN_FORMAT_ALIGN = 8,         /* what a tensor's data must be aligned to; others are copied */
    QN_FORMAT_NAME_BYTES = 65535 /* longest name of a key or tensor */
};

/* The bytes of one file: mapped, read, or the caller's. */
typedef struct qn_format_source {
    const uint8_t *at;
    uint64_t bytes;
    void *map, *heap; /* what to give back; both NULL for the caller's */
} qn_format_source;

/* The name comes first in both, so that one comparison sorts either. */
typedef struct qn_format_key {
    const char *name;
    const uint8_t *at; /* the packed value */
    uint64_t bytes;
    uint64_t offset; /* in its file, for people */
    qn_key_type type;
} qn_format_key;

typedef struct qn_format_tensor {
    const char *name;
    const uint8_t *data;
    uint64_t offset, bytes;
    int64_t shape[QN_MAX_RANK];
    qn_dtype dtype;
    int32_t rank;
    uint32_t shard;
} qn_format_tensor;

/* Names in order, each a pointer to the record's first member. */
typedef const char *const *qn_format_record;

typedef QN_VEC(qn_format_key) qn_format_keys;
typedef QN_VEC(qn_format_tensor) qn_format_tensors;

struct qn_file {
    qn_arena arena;
    qn_file_options options;
    qn_file_format format;
    uint32_t version, alignment;
    int mapped;
    qn_format_keys keys;
    qn_format_tensors tensors;
    QN_VEC(qn_format_source) sources; /* by shard */
    qn_format_record *sorted[2];      /* by qn_file_table */
};

/* ---- source.c: bytes from outside */

/* Adds the file at path, or the caller's bytes, as the next source, and lets the arena grow by what its size justifies. */
qn_status qn_format_source_add(qn_file *file, const char *path, qn_error *error);
/* Gives all of them back. */
void qn_format_source_drop(qn_file *file);

/* ---- value.c: packed values */

/* Bytes of a fixed-size type; 0 for strings, arrays and numbers that are no type. */
uint64_t qn_format_type_bytes(uint32_t type);

/* Why a packed value does not fit its room. */
typedef struct qn_format_fault {
    const char *why;
    uint64_t at, claimed, left; /* where, counted from the value's first byte, and the numbers */
} qn_format_fault;

/* Bytes the packed value of a type takes at `at`, of which `room` may be read; 0 when it is broken, with the fault filled. */
uint64_t qn_format_value_measure(uint32_t type, const uint8_t *at, uint64_t room, qn_format_fault *fault);
/* Fills everything but name and offset from a measured value. */
void qn_format_value_decode(uint32_t type, const uint8_t *at, uint64_t bytes, qn_file_value *value);

/* ---- gguf.c, safetensors.c, json_keys.c: one file each, the last source added */

qn_status qn_format_gguf_read(qn_file *file, uint32_t shard, qn_error *error);
qn_status qn_format_safetensors_read(qn_file *file, uint32_t shard, qn_error *error);
qn_status qn_format_json_keys_read(qn_file *file, qn_error *error);

/* ---- shards.c: models in several files. Each is called when the named file has been read, and reads the others. */

qn_status qn_format_gguf_shards(qn_file *file, const char *path, qn_error *error);
qn_status qn_format_safetensors_shards(qn_file *file, const char *path, qn_error *error);

/* ---- file.c: what the readers share */

/* The magic number's reader, by content. QN_FORMAT or QN_UNSUPPORTED, with what the file seems to be instead. */
qn_status qn_format_detect(const qn_format_source *source, qn_file_format *format, qn_error *error);
/* A copy of a name with a zero byte behind it; NULL without memory. The caller has checked it. */
const char *qn_format_name_copy(qn_file *file, const void *name, uint64_t bytes);
/* NULL, or what is wrong with a name: empty, too long, a zero byte inside. */
const char *qn_format_name_fault(const void *name, uint64_t bytes);
/* A name from a file for an error text: at most 60 bytes, control characters shown as '?'. Returns text. */
enum { QN_FORMAT_SHOWN = 64 };
const char *qn_format_name_show(const void *name, uint64_t bytes, char text[QN_FORMAT_SHOWN]);
/* The tensor's size from its dtype and shape into bytes, with a sentence when there is none. */
qn_status qn_format_tensor_measure(qn_format_tensor *tensor, qn_error *error);
/* Checks that the tensors from number `first` on, which lie in the last source and at or behind byte `begin`, share no byte (gapless:
 * and fill it to its end), and gives them their data. */
qn_status qn_format_tensors_place(qn_file *file, size_t first, int gapless, uint64_t begin, qn_error *error);
/* Sorts a table by name. QN_FORMAT when a name is there twice. */
qn_status qn_format_table_sort(qn_file *file, qn_file_table table, qn_error *error);
qn_status qn_format_no_memory(const qn_file *file, qn_error *error);

static inline uint32_t qn_format_u32(const uint8_t *p) {
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static inline uint64_t qn_format_u64(const uint8_t *p) { return qn_format_u32(p) | (uint64_t)qn_format_u32(p + 4) << 32; }

#endif
