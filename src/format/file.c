/* Opening, closing and looking things up: what all formats share. */
#include "format/file.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/memory.h"
#include "format/json.h"

/* ---- Errors and names */

qn_status qn_format_no_memory(const qn_file *file, qn_error *error) {
    return qn_error_set(error, QN_NO_MEMORY, "no memory for the file's tables: %zu bytes are taken, %zu allowed",
                        file->arena.used, file->arena.limit);
}

const char *qn_format_name_show(const void *name, uint64_t bytes, char text[QN_FORMAT_SHOWN]) {
    const unsigned char *from = name;
    size_t n = bytes < QN_FORMAT_SHOWN - 4 ? (size_t)bytes : QN_FORMAT_SHOWN - 4;
    for (size_t i = 0; i < n; i++) text[i] = (char)(from[i] < 32 || from[i] == 127 ? '?' : from[i]);
    memcpy(text + n, bytes > n ? "..." : "", bytes > n ? 4 : 1);
    return text;
}

const char *qn_format_name_fault(const void *name, uint64_t bytes) {
    if (bytes == 0) return "the name is empty";
    if (bytes > QN_FORMAT_NAME_BYTES) return "the name is longer than 65535 bytes";
    return memchr(name, 0, (size_t)bytes) ? "the name has a zero byte inside" : NULL;
}

const char *qn_format_name_copy(qn_file *file, const void *name, uint64_t bytes) {
    char *copy = qn_arena_alloc(&file->arena, (size_t)bytes + 1, 1);
    if (copy) memcpy(copy, name, (size_t)bytes);
    return copy;
}

/* ---- Tensors */

qn_status qn_format_tensor_measure(qn_format_tensor *t, qn_error *error) {
    const qn_dtype_info *d = qn_dtype_describe(t->dtype);
    int64_t row = t->shape[t->rank - 1];
    if (row % d->block)
        return qn_error_set(error, QN_FORMAT, "a row of %lld elements is not a whole number of %s blocks, which have %d",
                            (long long)row, d->name, d->block);
    if (qn_tensor_bytes(t->dtype, t->rank, t->shape, &t->bytes) != QN_OK)
        return qn_error_set(error, QN_FORMAT, "the product of its dims overflows");
    return QN_OK;
}

/* Points a tensor to its bytes, or to an aligned copy of them. */
static qn_status place(qn_file *file, qn_format_tensor *t, qn_error *error) {
    const uint8_t *data = file->sources.at[t->shard].at + t->offset;
    if (t->bytes && (uintptr_t)data % QN_FORMAT_ALIGN) {
        uint8_t *copy = qn_arena_resize(&file->arena, NULL, (size_t)t->bytes, 1);
        if (!copy) return qn_format_no_memory(file, error);
        data = memcpy(copy, data, (size_t)t->bytes);
    }
    t->data = data;
    return QN_OK;
}

/* Where a tensor lies, for the check that no two lie on each other. */
typedef struct extent {
    uint64_t offset, bytes;
    const char *name;
} extent;

static int by_offset(const void *a, const void *b) {
    const extent *x = a, *y = b;
    if (x->offset != y->offset) return x->offset < y->offset ? -1 : 1;
    return (x->bytes > y->bytes) - (x->bytes < y->bytes); /* empty ones in front of what lies at the same place */
}

static qn_status check_extents(const extent *order, size_t n, int gapless, uint64_t begin, uint64_t file_end, qn_error *error) {
    uint64_t end = begin;
    const char *last = NULL;
    char a[QN_FORMAT_SHOWN], b[QN_FORMAT_SHOWN];
    for (size_t i = 0; i < n; i++) {
        const extent *t = &order[i];
        qn_format_name_show(t->name, strlen(t->name), a);
        if (t->offset < end && t->bytes)
            return qn_error_set(error, QN_FORMAT, "byte %" PRIu64 ": tensor '%s' overlaps %s%s%s", t->offset, a,
                                last ? "tensor '" : "the header", last ? qn_format_name_show(last, strlen(last), b) : "",
                                last ? "'" : "");
        if (gapless && t->offset > end)
            return qn_error_set(error, QN_FORMAT,
                                "byte %" PRIu64 ": %" PRIu64 " bytes in front of tensor '%s' belong to no tensor", end,
                                t->offset - end, a);
        if (!t->bytes) continue;
        end = t->offset + t->bytes;
        last = t->name;
    }
    if (gapless && end != file_end)
        return qn_error_set(error, QN_FORMAT, "byte %" PRIu64 ": %" PRIu64 " bytes behind the last tensor belong to no tensor",
                            end, file_end - end);
    return QN_OK;
}

qn_status qn_format_tensors_place(qn_file *file, size_t first, int gapless, uint64_t begin, qn_error *error) {
    size_t n = file->tensors.n - first;
    extent *order = qn_arena_resize(&file->arena, NULL, n ? n : 1, sizeof *order);
    if (!order) return qn_format_no_memory(file, error);
    for (size_t i = 0; i < n; i++) {
        const qn_format_tensor *t = &file->tensors.at[first + i];
        order[i] = (extent){t->offset, t->bytes, t->name};
    }
    qsort(order, n, sizeof *order, by_offset);
    qn_status status = check_extents(order, n, gapless, begin, file->sources.at[file->sources.n - 1].bytes, error);
    qn_arena_release(&file->arena, order);
    for (size_t i = first; i < file->tensors.n && status == QN_OK; i++) status = place(file, &file->tensors.at[i], error);
    return status;
}

/* ---- Names in order */

static int by_name(const void *a, const void *b) { return strcmp(**(const qn_format_record *)a, **(const qn_format_record *)b); }

static size_t table_count(const qn_file *file, qn_file_table table) {
    return table == QN_FILE_KEYS ? file->keys.n : file->tensors.n;
}

qn_status qn_format_table_sort(qn_file *file, qn_file_table table, qn_error *error) {
    size_t n = table_count(file, table);
    qn_format_record *order = qn_arena_resize(&file->arena, file->sorted[table], n ? n : 1, sizeof *order);
    char shown[QN_FORMAT_SHOWN];
    if (!order) return qn_format_no_memory(file, error);
    file->sorted[table] = order;
    for (size_t i = 0; i < n; i++) order[i] = table == QN_FILE_KEYS ? &file->keys.at[i].name : &file->tensors.at[i].name;
    qsort(order, n, sizeof *order, by_name);
    for (size_t i = 1; i < n; i++)
        if (strcmp(*order[i - 1], *order[i]) == 0)
            return qn_error_set(error, QN_FORMAT, "%s '%s' is there twice", table == QN_FILE_KEYS ? "key" : "tensor",
                                qn_format_name_show(*order[i], strlen(*order[i]), shown));
    return QN_OK;
}

int64_t qn_file_find(const qn_file *file, qn_file_table table, const char *name) {
    if (!file || !name || (table != QN_FILE_KEYS && table != QN_FILE_TENSORS)) return -1;
    size_t n = table_count(file, table);
    const char *const *key = &name;
    qn_format_record *found = bsearch(&key, file->sorted[table], n, sizeof *found, by_name);
    if (!found) return -1;
    if (table == QN_FILE_KEYS) return (const qn_format_key *)(const void *)*found - file->keys.at;
    return (const qn_format_tensor *)(const void *)*found - file->tensors.at;
}

qn_status qn_file_key(const qn_file *file, int64_t number, qn_file_value *value) {
    if (!file || !value || number < 0 || (uint64_t)number >= file->keys.n) return QN_ARGUMENT;
    const qn_format_key *key = &file->keys.at[number];
    qn_format_value_decode(key->type, key->at, key->bytes, value);
    value->name = key->name;
    value->offset = key->offset;
    return QN_OK;
}

qn_status qn_file_entry(const qn_file *file, int64_t number, qn_file_tensor *tensor) {
    if (!file || !tensor || number < 0 || (uint64_t)number >= file->tensors.n) return QN_ARGUMENT;
    const qn_format_tensor *t = &file->tensors.at[number];
    memset(tensor, 0, sizeof *tensor);
    tensor->name = t->name;
    tensor->offset = t->offset;
    tensor->bytes = t->bytes;
    tensor->shard = t->shard;
    void *data = (void *)(uintptr_t)t->data; /* a view of what cannot be written, and its flag says so */
    qn_status status = qn_tensor_init(&tensor->tensor, t->dtype, t->rank, t->shape, data, t->bytes);
    /* A copy that place made is not in the map: dropped, its pages would come back as zeros. */
    int in_map = file->mapped && t->data == file->sources.at[t->shard].at + t->offset;
    tensor->tensor.flags |= QN_TENSOR_CONST | (in_map ? QN_TENSOR_MAPPED : 0u);
    return status;
}

qn_status qn_file_describe(const qn_file *file, qn_file_info *info) {
    if (!file || !info || info->size != sizeof *info) return QN_ARGUMENT;
    *info = (qn_file_info){.size = sizeof *info, .format = file->format, .version = file->version, .alignment = file->alignment};
    info->shards = (uint32_t)file->sources.n;
    info->mapped = (uint32_t)file->mapped;
    info->n_keys = file->keys.n;
    info->n_tensors = file->tensors.n;
    info->memory = file->arena.used;
    for (size_t i = 0; i < file->sources.n; i++) info->bytes += file->sources.at[i].bytes;
    for (size_t i = 0; i < file->tensors.n; i++) info->tensor_bytes += file->tensors.at[i].bytes;
    return QN_OK;
}

/* ---- Opening */

qn_status qn_format_detect(const qn_format_source *s, qn_file_format *format, qn_error *error) {
    static const struct {
        const char *magic;
        size_t bytes;
        const char *what;
    } others[] = {
#define QN_FORMAT_MAGIC(magic, what) {magic, sizeof magic - 1, what},
#include "format/formats.def"
#undef QN_FORMAT_MAGIC
    };
    uint64_t first = 0;
    if (s->bytes >= 4 && memcmp(s->at, "GGUF", 4) == 0) return *format = QN_FILE_GGUF, QN_OK;
    if (s->bytes > 8 && s->at[8] == '{' && qn_format_u64(s->at) <= QN_JSON_HEADER_BYTES)
        return *format = QN_FILE_SAFETENSORS, QN_OK;
    while (first < s->bytes && (s->at[first] == ' ' || s->at[first] == '\t' || s->at[first] == '\n' || s->at[first] == '\r'))
        first++;
    if (first < s->bytes && (s->at[first] == '{' || s->at[first] == '[')) return *format = QN_FILE_JSON, QN_OK;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (s->bytes >= others[i].bytes && memcmp(s->at, others[i].magic, others[i].bytes) == 0)
            return qn_error_set(error, QN_UNSUPPORTED, "this is %s", others[i].what);
    return qn_error_set(error, QN_FORMAT, "neither GGUF nor safetensors nor JSON: it begins with the bytes %02x %02x %02x %02x",
                        s->at[0], s->bytes > 1 ? s->at[1] : 0, s->bytes > 2 ? s->at[2] : 0, s->bytes > 3 ? s->at[3] : 0);
}

static int ends_with(const char *text, const char *end) {
    size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

static qn_status read_parts(qn_file *file, const char *path, qn_error *error) {
    qn_status status = qn_format_source_add(file, path, error);
    if (status == QN_OK) status = qn_format_detect(&file->sources.at[0], &file->format, error);
    if (status != QN_OK) return status;
    int alone = file->options.data || file->options.flags & QN_FILE_ONE_SHARD;
    switch (file->format) {
    case QN_FILE_GGUF:
        status = qn_format_gguf_read(file, 0, error);
        if (status == QN_OK && !(file->options.flags & QN_FILE_ONE_SHARD)) status = qn_format_gguf_shards(file, path, error);
        break;
    case QN_FILE_SAFETENSORS: status = qn_format_safetensors_read(file, 0, error); break;
    default:
        status = qn_format_json_keys_read(file, error);
        if (status == QN_OK && !alone && ends_with(path, ".index.json")) status = qn_format_safetensors_shards(file, path, error);
    }
    if (status == QN_OK) status = qn_format_table_sort(file, QN_FILE_KEYS, error);
    return status == QN_OK ? qn_format_table_sort(file, QN_FILE_TENSORS, error) : status;
}

/* A folder stands for the model in it. */
static qn_status read_path(qn_file *file, const char *path, qn_error *error) {
    static const char *const inside[] = {"model.safetensors.index.json", "model.safetensors"};
    struct stat s;
    char longer[4096];
    if (file->options.data || stat(path, &s) != 0 || !S_ISDIR(s.st_mode)) return read_parts(file, path, error);
    for (size_t i = 0; i < sizeof inside / sizeof *inside; i++) {
        int n = snprintf(longer, sizeof longer, "%s/%s", path, inside[i]);
        if (n > 0 && (size_t)n < sizeof longer && stat(longer, &s) == 0) return read_parts(file, longer, error);
    }
    return qn_error_set(error, QN_IO, "the folder holds neither %s nor %s", inside[0], inside[1]);
}

qn_status qn_file_open(const char *path, const qn_file_options *options, qn_file **out, qn_error *error) {
    qn_allocator memory = qn_memory_default();
    qn_error unseen;
    if (!error) error = &unseen;
    *error = (qn_error){0};
    if (!path || !out || (options && options->size != sizeof *options))
        return qn_error_set(error, QN_ARGUMENT, "qn_file_open needs a path, a place for the file, and options of this version");
    *out = NULL;
    qn_file *file = memory.allocate(memory.user, sizeof *file, _Alignof(qn_file));
    if (!file) return qn_error_set(error, QN_NO_MEMORY, "%s: no memory", path);
    memset(file, 0, sizeof *file);
    file->options = options ? *options : qn_file_options_default();
    file->mapped = 1;
    uint64_t limit = file->options.max_memory;
    qn_arena_init(&file->arena, limit > SIZE_MAX ? SIZE_MAX : (size_t)limit);
    qn_status status = read_path(file, path, error);
    if (status == QN_OK) {
        *out = file;
        return QN_OK;
    }
    qn_file_close(file);
    qn_error_wrap(error, "%s", path);
    return status;
}

void qn_file_close(qn_file *file) {
    qn_allocator memory = qn_memory_default();
    if (!file) return;
    qn_format_source_drop(file);
    qn_arena_destroy(&file->arena);
    memory.release(memory.user, file, sizeof *file);
}
