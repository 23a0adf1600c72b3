/* The safetensors reader: a length, a JSON header of that length, and the tensors' bytes, without gap or overlap to the end. */
#include "format/file.h"

#include <inttypes.h>
#include <stdio.h>

#include "format/json.h"
#include "tensor/dtype.h"

enum { LENGTH_BYTES = 8 };

typedef struct header {
    qn_file *file;
    qn_json json;
    uint64_t data; /* byte of the file the tensors begin at */
    uint32_t shard;
    char what[QN_FORMAT_SHOWN + 16];
    qn_error *error;
} header;

/* Puts in front of an error what it is about and where. */
static qn_status at(const header *h, qn_status status) {
    qn_error_wrap(h->error, "byte %" PRIu64 ": %s", LENGTH_BYTES + h->json.at, h->what);
    return status;
}

static qn_status broken(header *h) {
    return at(h, qn_error_set(h->error, QN_FORMAT, "%s", h->json.why ? h->json.why : "something else was expected"));
}

/* A string token as a text with a zero byte behind it, in the arena. */
static qn_status take_text(header *h, const qn_json_token *token, char **text, uint64_t *bytes) {
    *text = qn_arena_alloc(&h->file->arena, (size_t)token->bytes + 1, 1);
    if (!*text) return qn_format_no_memory(h->file, h->error);
    int64_t n = qn_format_json_text(&h->json, token, *text);
    if (n < 0) return at(h, qn_error_set(h->error, QN_FORMAT, "a string with a broken escape, or not in UTF-8"));
    *bytes = (uint64_t)n;
    (*text)[n] = 0;
    return QN_OK;
}

static qn_status take_name(header *h, const qn_json_token *token, const char **name) {
    char *text, shown[QN_FORMAT_SHOWN];
    uint64_t bytes = 0;
    qn_status status = take_text(h, token, &text, &bytes);
    if (status != QN_OK) return status;
    const char *fault = qn_format_name_fault(text, bytes);
    if (fault) return at(h, qn_error_set(h->error, QN_FORMAT, "%s", fault));
    snprintf(h->what, sizeof h->what, "'%s'", qn_format_name_show(text, bytes, shown));
    *name = text;
    return QN_OK;
}

/* ---- __metadata__: strings by name */

static qn_status add_key(header *h, const qn_json_token *name, const qn_json_token *token) {
    qn_format_key key = {.type = QN_KEY_STRING, .offset = LENGTH_BYTES + token->at};
    qn_status status = take_name(h, name, &key.name);
    if (status != QN_OK) return status;
    if (token->kind != QN_JSON_STRING) return at(h, qn_error_set(h->error, QN_FORMAT, "metadata must be a string"));
    uint8_t *packed = qn_arena_alloc(&h->file->arena, (size_t)token->bytes + 8, 1);
    if (!packed || !QN_VEC_ROOM(&h->file->arena, &h->file->keys, 1)) return qn_format_no_memory(h->file, h->error);
    int64_t n = qn_format_json_text(&h->json, token, (char *)packed + 8);
    if (n < 0) return at(h, qn_error_set(h->error, QN_FORMAT, "a string with a broken escape, or not in UTF-8"));
    for (int i = 0; i < 8; i++) packed[i] = (uint8_t)((uint64_t)n >> 8 * i);
    key.at = packed;
    key.bytes = 8 + (uint64_t)n;
    h->file->keys.at[h->file->keys.n++] = key;
    return QN_OK;
}

static qn_status read_metadata(header *h) {
    qn_json_token name, token;
    if (qn_format_json_next(&h->json, &token) != QN_JSON_OBJECT) return broken(h);
    while (qn_format_json_next(&h->json, &name) == QN_JSON_KEY) {
        if (qn_format_json_next(&h->json, &token) == QN_JSON_BAD) return broken(h);
        qn_status status = add_key(h, &name, &token);
        if (status != QN_OK) return status;
    }
    return name.kind == QN_JSON_OBJECT_END ? QN_OK : broken(h);
}

/* ---- Tensors: {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]} */

static qn_status read_dtype(header *h, qn_format_tensor *t) {
    qn_json_token token;
    char text[32], shown[QN_FORMAT_SHOWN];
    if (qn_format_json_next(&h->json, &token) != QN_JSON_STRING) return broken(h);
    int64_t n = token.bytes < sizeof text ? qn_format_json_text(&h->json, &token, text) : -1;
    for (int d = 1; d < QN_DTYPE_COUNT && n >= 0; d++) {
        const char *name = qn_tensor_dtypes[d].safetensors;
        if (name && strlen(name) == (size_t)n && memcmp(name, text, (size_t)n) == 0) t->dtype = (qn_dtype)d;
    }
    if (t->dtype != QN_DTYPE_NONE) return QN_OK;
    return at(h, qn_error_set(h->error, QN_UNSUPPORTED, "its dtype '%s' is unknown",
                              qn_format_name_show(h->json.text + token.at, token.bytes, shown)));
}

/* A list of at most `room` numbers that are not negative. */
static qn_status read_numbers(header *h, int64_t *numbers, int room, int *count) {
    qn_json_token token;
    double other;
    *count = 0;
    if (qn_format_json_next(&h->json, &token) != QN_JSON_ARRAY) return broken(h);
    while (qn_format_json_next(&h->json, &token) == QN_JSON_NUMBER) {
        int64_t v;
        if (*count == room) return at(h, qn_error_set(h->error, QN_FORMAT, "a list of more than %d numbers", room));
        if (qn_format_json_number(&h->json, &token, &v, &other) != 1 || v < 0)
            return at(h, qn_error_set(h->error, QN_FORMAT, "a size must be a whole number, not negative"));
        numbers[(*count)++] = v;
    }
    return token.kind == QN_JSON_ARRAY_END ? QN_OK : broken(h);
}

static qn_status read_member(header *h, const qn_json_token *name, qn_format_tensor *t, int64_t offsets[2], unsigned *seen) {
    static const char *const names[] = {"dtype", "shape", "data_offsets"};
    qn_json_token token;
    int which = 3, count = 0;
    for (int i = 0; i < 3; i++)
        if (strlen(names[i]) == name->bytes && memcmp(names[i], h->json.text + name->at, (size_t)name->bytes) == 0) which = i;
    if (which == 3) { /* not ours to understand */
        if (qn_format_json_next(&h->json, &token) == QN_JSON_BAD || qn_format_json_skip(&h->json, &token) == QN_JSON_BAD)
            return broken(h);
        return QN_OK;
    }
    if (*seen & 1u << which) return at(h, qn_error_set(h->error, QN_FORMAT, "'%s' is there twice", names[which]));
    *seen |= 1u << which;
    if (which == 0) return read_dtype(h, t);
    if (which == 1) {
        qn_status status = read_numbers(h, t->shape, QN_MAX_RANK, &count);
        t->rank = count ? count : 1;
        if (count == 0) t->shape[0] = 1;
        return status;
    }
    qn_status status = read_numbers(h, offsets, 2, &count);
    return status == QN_OK && count != 2 ? at(h, qn_error_set(h->error, QN_FORMAT, "data_offsets must be two numbers")) : status;
}

static qn_status read_tensor(header *h, const char *name) {
    qn_format_tensor t = {.name = name, .shard = h->shard};
    qn_format_source *source = &h->file->sources.at[h->shard];
    qn_error inner = {0};
    qn_json_token token;
    int64_t offsets[2] = {0};
    unsigned seen = 0;
    qn_status status = QN_OK;
    if (qn_format_json_next(&h->json, &token) != QN_JSON_OBJECT) return broken(h);
    while (status == QN_OK && qn_format_json_next(&h->json, &token) == QN_JSON_KEY)
        status = read_member(h, &token, &t, offsets, &seen);
    if (status != QN_OK) return status;
    if (token.kind != QN_JSON_OBJECT_END) return broken(h);
    if (seen != 7) return at(h, qn_error_set(h->error, QN_FORMAT, "it must have dtype, shape and data_offsets"));
    if (qn_format_tensor_measure(&t, &inner) != QN_OK) return at(h, qn_error_set(h->error, QN_FORMAT, "%s", inner.text));
    uint64_t begin = (uint64_t)offsets[0], end = (uint64_t)offsets[1], room = source->bytes - h->data;
    if (begin > end || end > room)
        return at(h, qn_error_set(h->error, QN_FORMAT,
                                  "bytes %" PRIu64 " to %" PRIu64 " are not in the file, which has %" PRIu64 " of data", begin,
                                  end, room));
    if (end - begin != t.bytes)
        return at(h, qn_error_set(h->error, QN_FORMAT, "it has %" PRIu64 " bytes, its dtype and shape take %" PRIu64, end - begin,
                                  t.bytes));
    t.offset = h->data + begin;
    if (!QN_VEC_ROOM(&h->file->arena, &h->file->tensors, 1)) return qn_format_no_memory(h->file, h->error);
    h->file->tensors.at[h->file->tensors.n++] = t;
    return QN_OK;
}

static qn_status read_header(header *h) {
    qn_json_token token;
    int metadata = 0;
    if (qn_format_json_next(&h->json, &token) != QN_JSON_OBJECT) return broken(h);
    while (qn_format_json_next(&h->json, &token) == QN_JSON_KEY) {
        const char *name;
        qn_status status = take_name(h, &token, &name);
        if (status != QN_OK) return status;
        if (strcmp(name, "__metadata__") != 0) status = read_tensor(h, name);
        else if (metadata++) return at(h, qn_error_set(h->error, QN_FORMAT, "it is there twice"));
        else status = read_metadata(h);
        if (status != QN_OK) return status;
    }
    if (token.kind != QN_JSON_OBJECT_END || qn_format_json_next(&h->json, &token) != QN_JSON_END) return broken(h);
    return QN_OK;
}

qn_status qn_format_safetensors_read(qn_file *file, uint32_t shard, qn_error *error) {
    const qn_format_source *source = &file->sources.at[shard];
    uint64_t length = qn_format_u64(source->at);
    header h = {.file = file, .shard = shard, .what = "header", .error = error};
    size_t first = file->tensors.n;
    if (length > source->bytes - LENGTH_BYTES)
        return qn_error_set(error, QN_FORMAT, "byte 0: the header claims %" PRIu64 " bytes, %" PRIu64 " are left", length,
                            source->bytes - LENGTH_BYTES);
    h.data = LENGTH_BYTES + length;
    file->alignment = 1;
    qn_format_json_begin(&h.json, (const char *)source->at + LENGTH_BYTES, length);
    qn_status status = read_header(&h);
    return status == QN_OK ? qn_format_tensors_place(file, first, 1, h.data, error) : status;
}
