/* The GGUF reader: magic, version, two counts, keys, tensor infos, padding, data. It walks the file once with a place that never
 * passes the end, and believes no count before the bytes behind it are there. */
#include "format/file.h"

#include <inttypes.h>
#include <stdio.h>

enum {
    VERSION_LEAST = 2,
    VERSION_MOST = 3,
    DEFAULT_ALIGNMENT = 32,
    LARGEST_ALIGNMENT = 1 << 21,      /* a huge page; anything beyond is a file that wants to make others write padding */
    KEY_LEAST = 8 + 1 + 4 + 1,        /* bytes of the smallest key: name of one byte, type, a byte */
    TENSOR_LEAST = 8 + 1 + 4 + 4 + 8, /* of the smallest tensor info: name of one byte, rank 0, type, offset */
    WHAT_ROOM = QN_FORMAT_SHOWN + 32
};

typedef struct reader {
    qn_file *file;
    const uint8_t *at;
    uint64_t bytes, pos;
    uint32_t shard;
    char what[WHAT_ROOM]; /* "key 'x'", for errors */
    qn_error *error;
} reader;

/* Puts in front of an error what it is about and where. */
static qn_status at(const reader *r, uint64_t pos, qn_status status) {
    qn_error_wrap(r->error, "byte %" PRIu64 ": %s", pos, r->what);
    return status;
}

static qn_status need(reader *r, uint64_t bytes) {
    if (r->bytes - r->pos >= bytes) return QN_OK;
    return at(r, r->pos,
              qn_error_set(r->error, QN_FORMAT, "the file ends here; %" PRIu64 " bytes more were expected",
                           bytes - (r->bytes - r->pos)));
}

static qn_status take_u32(reader *r, uint32_t *v) {
    if (need(r, 4) != QN_OK) return QN_FORMAT;
    *v = qn_format_u32(r->at + r->pos);
    r->pos += 4;
    return QN_OK;
}

static qn_status take_u64(reader *r, uint64_t *v) {
    if (need(r, 8) != QN_OK) return QN_FORMAT;
    *v = qn_format_u64(r->at + r->pos);
    r->pos += 8;
    return QN_OK;
}

/* A name with its length in front; from here on errors speak of it. */
static qn_status take_name(reader *r, const char *kind, const char **name) {
    char shown[QN_FORMAT_SHOWN];
    uint64_t bytes, from = r->pos;
    if (take_u64(r, &bytes) != QN_OK) return QN_FORMAT;
    if (bytes > r->bytes - r->pos)
        return at(r, from,
                  qn_error_set(r->error, QN_FORMAT, "its name claims %" PRIu64 " bytes, %" PRIu64 " are left", bytes,
                               r->bytes - r->pos));
    const uint8_t *text = r->at + r->pos;
    const char *fault = qn_format_name_fault(text, bytes);
    if (fault) return at(r, from, qn_error_set(r->error, QN_FORMAT, "%s", fault));
    snprintf(r->what, sizeof r->what, "%s '%s'", kind, qn_format_name_show(text, bytes, shown));
    r->pos += bytes;
    *name = qn_format_name_copy(r->file, text, bytes);
    return *name ? QN_OK : qn_format_no_memory(r->file, r->error);
}

/* ---- Keys */

static qn_status read_key(reader *r, uint64_t number, qn_format_key *key) {
    qn_format_fault fault;
    uint32_t type;
    snprintf(r->what, sizeof r->what, "key %" PRIu64, number);
    qn_status status = take_name(r, "key", &key->name);
    if (status != QN_OK || (status = take_u32(r, &type)) != QN_OK) return status;
    key->type = (qn_key_type)type;
    key->at = r->at + r->pos;
    key->offset = r->pos;
    key->bytes = qn_format_value_measure(type, key->at, r->bytes - r->pos, &fault);
    if (!key->bytes)
        return at(
            r, r->pos + fault.at,
            qn_error_set(r->error, QN_FORMAT, "%s (%" PRIu64 ", at most %" PRIu64 ")", fault.why, fault.claimed, fault.left));
    r->pos += key->bytes;
    return QN_OK;
}

static qn_status read_keys(reader *r, uint64_t count, qn_format_keys *keys) {
    keys->at = qn_arena_resize(&r->file->arena, NULL, (size_t)count, sizeof *keys->at);
    if (!keys->at) return qn_format_no_memory(r->file, r->error);
    keys->cap = (size_t)count;
    for (uint64_t i = 0; i < count; i++) {
        qn_status status = read_key(r, i, &keys->at[i]);
        if (status != QN_OK) return status;
        keys->n++;
    }
    return QN_OK;
}

static qn_status read_alignment(reader *r, const qn_format_keys *keys, uint32_t *alignment) {
    *alignment = DEFAULT_ALIGNMENT;
    for (size_t i = 0; i < keys->n; i++) {
        const qn_format_key *key = &keys->at[i];
        if (strcmp(key->name, "general.alignment") != 0) continue;
        snprintf(r->what, sizeof r->what, "key 'general.alignment'");
        if (key->type != QN_KEY_U32)
            return at(r, key->offset, qn_error_set(r->error, QN_FORMAT, "its type is %d, not u32", (int)key->type));
        *alignment = qn_format_u32(key->at);
        if (*alignment < QN_FORMAT_ALIGN || *alignment > LARGEST_ALIGNMENT || *alignment & (*alignment - 1))
            return at(r, key->offset,
                      qn_error_set(r->error, QN_FORMAT, "%u is not a power of two from %d to %d", *alignment, QN_FORMAT_ALIGN,
                                   LARGEST_ALIGNMENT));
    }
    return QN_OK;
}

/* ---- Tensors */

static qn_status read_dims(reader *r, qn_format_tensor *t) {
    uint32_t rank;
    uint64_t from = r->pos, extent;
    if (take_u32(r, &rank) != QN_OK) return QN_FORMAT;
    if (rank > QN_MAX_RANK)
        return at(r, from, qn_error_set(r->error, QN_FORMAT, "it has %u dims, at most %d are possible", rank, QN_MAX_RANK));
    if (need(r, 8 * (uint64_t)rank) != QN_OK) return QN_FORMAT;
    t->rank = rank ? (int32_t)rank : 1;
    t->shape[0] = 1;
    for (uint32_t i = 0; i < rank; i++) { /* the file has the fastest first */
        from = r->pos;
        take_u64(r, &extent);
        if (extent > INT64_MAX)
            return at(r, from, qn_error_set(r->error, QN_FORMAT, "dim %u is %" PRIu64 ", past 63 bits", i, extent));
        t->shape[rank - 1 - i] = (int64_t)extent;
    }
    return QN_OK;
}

static qn_status read_tensor(reader *r, uint64_t number, uint32_t alignment, qn_format_tensor *t) {
    qn_error inner = {0};
    uint32_t type;
    snprintf(r->what, sizeof r->what, "tensor %" PRIu64, number);
    qn_status status = take_name(r, "tensor", &t->name);
    if (status == QN_OK) status = read_dims(r, t);
    uint64_t from = r->pos;
    if (status == QN_OK) status = take_u32(r, &type);
    if (status != QN_OK) return status;
    t->dtype = qn_dtype_from_gguf(type);
    if (t->dtype == QN_DTYPE_NONE)
        return at(r, from, qn_error_set(r->error, QN_UNSUPPORTED, "its type %u is unknown or retired", type));
    if (qn_format_tensor_measure(t, &inner) != QN_OK) return at(r, from, qn_error_set(r->error, QN_FORMAT, "%s", inner.text));
    from = r->pos;
    if (take_u64(r, &t->offset) != QN_OK) return QN_FORMAT;
    if (t->offset % alignment)
        return at(r, from,
                  qn_error_set(r->error, QN_FORMAT, "its offset %" PRIu64 " is not a multiple of the alignment %u", t->offset,
                               alignment));
    t->shard = r->shard;
    return QN_OK;
}

/* From offsets behind the header to offsets in the file, all of which must be there. */
static qn_status place_tensors(reader *r, size_t first, uint64_t data) {
    char shown[QN_FORMAT_SHOWN];
    for (size_t i = first; i < r->file->tensors.n; i++) {
        qn_format_tensor *t = &r->file->tensors.at[i];
        uint64_t room = data < r->bytes ? r->bytes - data : 0;
        snprintf(r->what, sizeof r->what, "tensor '%s'", qn_format_name_show(t->name, strlen(t->name), shown));
        if (t->bytes == 0) t->offset = 0; /* nothing is read: it may lie anywhere */
        if (t->bytes && (t->offset > room || t->bytes > room - t->offset))
            return at(r, r->bytes,
                      qn_error_set(r->error, QN_FORMAT,
                                   "the file is cut short: %" PRIu64 " bytes from byte %" PRIu64 " + %" PRIu64
                                   " on are not all there",
                                   t->bytes, data, t->offset));
        if (t->bytes) t->offset += data;
    }
    return qn_format_tensors_place(r->file, first, 0, data, r->error);
}

static qn_status read_tensors(reader *r, uint64_t count, uint32_t alignment) {
    qn_file *file = r->file;
    size_t first = file->tensors.n;
    if (!QN_VEC_ROOM(&file->arena, &file->tensors, (size_t)count)) return qn_format_no_memory(file, r->error);
    for (uint64_t i = 0; i < count; i++) {
        qn_format_tensor *t = &file->tensors.at[file->tensors.n];
        memset(t, 0, sizeof *t);
        qn_status status = read_tensor(r, i, alignment, t);
        if (status != QN_OK) return status;
        file->tensors.n++;
    }
    uint64_t data = (r->pos + alignment - 1) / alignment * alignment; /* pos is at most the file's size: no overflow */
    return place_tensors(r, first, data);
}

/* ---- The whole */

static qn_status read_version(reader *r) {
    if (need(r, 24) != QN_OK) return QN_FORMAT;
    uint32_t version = qn_format_u32(r->at + 4);
    if (version && !(version & 0xffff))
        return at(
            r, 4,
            qn_error_set(r->error, QN_UNSUPPORTED, "version 0x%08x: the file was written for a big-endian machine", version));
    if (version < VERSION_LEAST || version > VERSION_MOST)
        return at(
            r, 4,
            qn_error_set(r->error, QN_UNSUPPORTED, "GGUF version %u; %d and %d are known", version, VERSION_LEAST, VERSION_MOST));
    r->file->version = version;
    r->pos = 8;
    return QN_OK;
}

/* A count of things of which each takes at least `least` bytes. */
static qn_status take_count(reader *r, const char *what, uint64_t least, uint64_t *count) {
    uint64_t from = r->pos;
    if (take_u64(r, count) != QN_OK) return QN_FORMAT;
    if (*count <= r->bytes / least) return QN_OK;
    return at(r, from,
              qn_error_set(r->error, QN_FORMAT, "%" PRIu64 " %s are claimed, the file's %" PRIu64 " bytes have room for %" PRIu64,
                           *count, what, r->bytes, r->bytes / least));
}

qn_status qn_format_gguf_read(qn_file *file, uint32_t shard, qn_error *error) {
    const qn_format_source *source = &file->sources.at[shard];
    reader r = {.file = file, .at = source->at, .bytes = source->bytes, .shard = shard, .what = "header", .error = error};
    qn_format_keys keys = {0};
    uint64_t n_tensors, n_keys;
    uint32_t alignment;
    qn_status status = read_version(&r);
    if (status == QN_OK) status = take_count(&r, "tensors", TENSOR_LEAST, &n_tensors);
    if (status == QN_OK) status = take_count(&r, "keys", KEY_LEAST, &n_keys);
    if (status == QN_OK) status = read_keys(&r, n_keys, &keys);
    if (status == QN_OK) status = read_alignment(&r, &keys, &alignment);
    if (status != QN_OK) return status;
    QN_VEC_FREE(&file->arena, &file->keys); /* shards.c keeps those of the first shard */
    file->keys = keys;
    if (shard == 0) file->alignment = alignment;
    status = qn_format_table_sort(file, QN_FILE_KEYS, error); /* a key that is there twice */
    return status == QN_OK ? read_tensors(&r, n_tensors, alignment) : status;
}
