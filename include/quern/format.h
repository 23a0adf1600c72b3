/* Model files: GGUF, safetensors and JSON read behind one handle, GGUF written.
 *
 *     qn_file *file;
 *     if (qn_file_open("model.gguf", NULL, &file, &error) != QN_OK) return complain(error.text);
 *     qn_file_value v;
 *     if (qn_file_key(file, qn_file_find(file, QN_FILE_KEYS, "llama.block_count"), &v) == QN_OK) layers = v.integer;
 *     qn_file_tensor t;
 *     if (qn_file_entry(file, qn_file_find(file, QN_FILE_TENSORS, "token_embd.weight"), &t) == QN_OK) use(&t.tensor);
 *     qn_file_close(file);
 *
 * Which format a file has is told by its content. Every byte of it may be hostile: each count, length, offset and product is
 * checked before use, and the reader itself never allocates more than a small multiple of the file's own size. An error names
 * the key or tensor and the byte it lies at. Tensors are views into the mapped file and cost nothing until they are touched. An
 * open file is never changed, so any number of threads may use it. */
#include <quern/quern.h> /* which includes this file at its end: either way in, everything is there, in order */
#ifndef QUERN_FORMAT_H
#define QUERN_FORMAT_H

#ifdef __cplusplus
extern "C" {
#endif

typedef struct qn_file qn_file;

typedef enum qn_file_format { QN_FILE_GGUF, QN_FILE_SAFETENSORS, QN_FILE_JSON } qn_file_format;

enum {
    QN_FILE_NO_MAP = 1u,   /* read the data into memory instead of mapping the file */
    QN_FILE_ONE_SHARD = 2u /* of a model in several files, this one only: tensors of the others are not there */
};

typedef struct qn_file_options {
    uint32_t size;  /* sizeof(qn_file_options) */
    uint32_t flags; /* QN_FILE_NO_MAP and so on */
    /* A file that is already in memory, kept and left unchanged by the caller until close; path is then only its name in error
     * texts, and a model in several files cannot be opened. Tensors that do not lie at a multiple of 8 bytes are copied. */
    const void *data;
    uint64_t bytes;
    uint64_t max_memory; /* most bytes the reader may allocate for its tables; 0: what the file's size justifies */
    /* May be NULL. Reading stops with QN_CANCELLED soon after it becomes non-zero; a signal's handler may set it, and so may another
     * thread, atomically. */
    const volatile int *cancel;
} qn_file_options;

static inline qn_file_options qn_file_options_default(void) {
    qn_file_options options;
    memset(&options, 0, sizeof options);
    options.size = (uint32_t)sizeof options;
    return options;
}

/* Opens
 *  - GGUF, version 2 or 3; of a model split as NAME-00001-of-00003.gguf any one file opens all of them;
 *  - safetensors; a model.safetensors.index.json, or a folder that holds one (or a model.safetensors), opens all its files. Keys
 *    are the strings of __metadata__;
 *  - a JSON document (config.json, tokenizer.json), as keys without tensors: {"a": {"b": [1, 2]}} is the key "a.b" with an array.
 *    A list whose items are not all numbers, all strings or all bools has a key per item: "a.0", "a.1.c". Nulls are left out.
 * options may be NULL. QN_IO when a file cannot be read, QN_FORMAT when it breaks its format, QN_UNSUPPORTED for a version, byte
 * order or dtype that Quern does not know. *file is NULL unless QN_OK.
 *
 * A mapped file that another program shortens while it is open, or whose disk fails, raises SIGBUS in whoever reads its tensors:
 * QN_FILE_NO_MAP is for files that may change. */
QN_API qn_status qn_file_open(const char *path, const qn_file_options *options, qn_file **file, qn_error *error);
/* NULL is fine. Everything the file handed out ends here. */
QN_API void qn_file_close(qn_file *file);

typedef struct qn_file_info {
    uint32_t size; /* sizeof(qn_file_info), set by the caller */
    qn_file_format format;
    uint32_t version;   /* of GGUF; else 0 */
    uint32_t alignment; /* of tensor data, in bytes */
    uint32_t shards;    /* files it was read from */
    uint32_t mapped;    /* 1: tensors lie in maps of the files, 0: in memory */
    uint64_t n_keys, n_tensors;
    uint64_t bytes;        /* of all files together */
    uint64_t tensor_bytes; /* of all tensors together */
    uint64_t memory;       /* bytes the reader allocated for itself, data in memory not counted */
} qn_file_info;

QN_API qn_status qn_file_describe(const qn_file *file, qn_file_info *info);

/* Numbers are GGUF's. */
typedef enum qn_key_type {
    QN_KEY_U8 = 0,
    QN_KEY_I8 = 1,
    QN_KEY_U16 = 2,
    QN_KEY_I16 = 3,
    QN_KEY_U32 = 4,
    QN_KEY_I32 = 5,
    QN_KEY_F32 = 6,
    QN_KEY_BOOL = 7,
    QN_KEY_STRING = 8,
    QN_KEY_ARRAY = 9,
    QN_KEY_U64 = 10,
    QN_KEY_I64 = 11,
    QN_KEY_F64 = 12
} qn_key_type;

/* The value of a key, or an item of an array. Start from all zero to fill one for the writer. */
typedef struct qn_file_value {
    const char *name;   /* the key; NULL for an item */
    qn_key_type type;   /* of the value */
    qn_key_type item;   /* of the items of an array */
    int64_t integer;    /* integers and bools; a u64 past INT64_MAX has the same 64 bits; floats cut toward zero, saturated */
    double number;      /* every number and bool */
    const char *text;   /* a string, which has no zero byte behind it; of an array, its items as GGUF packs them */
    uint64_t bytes;     /* of text */
    uint64_t count;     /* items of an array */
    uint64_t offset;    /* byte of the file the value lies at */
    uint64_t cursor[2]; /* where qn_file_item was last */
} qn_file_value;

typedef struct qn_file_tensor {
    const char *name;
    qn_tensor tensor; /* a dense view, shape row-major: GGUF's dims reversed. A scalar has rank 1. Flag QN_TENSOR_CONST. */
    uint64_t offset;  /* byte of its file the data lies at */
    uint64_t bytes;
    uint32_t shard; /* which file, from 0 */
    uint32_t reserved;
} qn_file_tensor;

typedef enum qn_file_table { QN_FILE_KEYS, QN_FILE_TENSORS } qn_file_table;

/* Number of a key or tensor by its name, -1 when there is none. */
QN_API int64_t qn_file_find(const qn_file *file, qn_file_table table, const char *name);
/* A key or a tensor by its number, in the order of the file. QN_ARGUMENT when there is none of that number, so that a find that
 * found nothing may be passed straight on. */
QN_API qn_status qn_file_key(const qn_file *file, int64_t number, qn_file_value *value);
QN_API qn_status qn_file_entry(const qn_file *file, int64_t number, qn_file_tensor *tensor);
/* Item of an array by its number; items may be arrays themselves. Any order works; ascending order takes constant time a step, as
 * the array remembers its place (copy the value for each thread that walks it). */
QN_API qn_status qn_file_item(qn_file_value *array, uint64_t number, qn_file_value *item);

/* Converts `rows` dense rows of n elements from any dtype to any other, on the threads of a pool (NULL: on this one). Rounds
 * to nearest even into floats, saturates into integers (NaN gives 0); from block type to block type through f32. `importance`: n weights that say how much the squared error of each column
 * counts, heard by the block types whose encoders search (q4_0 to q6_K and all iq types); NULL: all alike. The bytes do not depend
 * on the number of threads. */
QN_API qn_status qn_convert_rows(qn_pool *pool, qn_dtype from, const void *src, qn_dtype to, void *dst, int64_t rows, int64_t n,
                                 const float *importance);

/* ---- Writing GGUF ------------------------------------------------------------------------------------------------- */

/* Keys first, then tensors by name and shape, then the bytes of their data in the same order. All is written to a file beside
 * `path` that takes its place, in one step, when the last byte is on the disk: a full disk, an error or a crash leaves what was
 * there before. The first error sticks, and qn_writer_finish returns it. */
typedef struct qn_writer qn_writer;

QN_API qn_status qn_writer_create(const char *path, qn_writer **writer, qn_error *error);
/* A key; what the value points to is copied. Values of a qn_file can be passed on as they are. A string array's text is each
 * string's length as a little-endian u64, then its bytes. general.alignment also sets the alignment (default 32). */
QN_API qn_status qn_writer_key(qn_writer *writer, const qn_file_value *value);
/* Announces a tensor: dtype, rank and shape are used, data not. */
QN_API qn_status qn_writer_tensor(qn_writer *writer, const char *name, const qn_tensor *tensor);
/* The next bytes of tensor data, as many or few at a time as is convenient; padding is the writer's. The first call (or finish)
 * ends the list of keys and tensors and reserves the space on the disk. */
QN_API qn_status qn_writer_data(qn_writer *writer, const void *data, uint64_t bytes);
/* Ends the file and the writer, always. keep 0 throws the file away; otherwise it is put in its place if nothing failed and no
 * data is missing. NULL is fine. */
QN_API qn_status qn_writer_finish(qn_writer *writer, int keep, qn_error *error);

#ifdef __cplusplus
}
#endif
#endif
