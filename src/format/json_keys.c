/* A JSON document as keys: the path of a value, its names and numbers joined by dots, is the key. Lists of plain values of one kind
 * become arrays, packed as GGUF packs them; all other lists and objects are walked into. */
#include "format/file.h"

#include <inttypes.h>
#include <stdio.h>

#include "format/json.h"

enum { PATH_BYTES = 1024 }; /* of what leads to a key, its own name not counted: bounds what a key can cost */

typedef struct level {
    size_t path;    /* bytes of path up to here */
    uint64_t index; /* of the next item, in a list */
} level;

typedef struct walker {
    qn_file *file;
    qn_json json;
    char *name; /* the path so far, and room behind it for one name */
    size_t name_bytes;
    level levels[QN_JSON_DEPTH + 1];
    qn_error *error;
} walker;

static qn_status fail(walker *w, const char *why) {
    return qn_error_set(w->error, QN_FORMAT, "byte %" PRIu64 ": %s", w->json.at, why);
}

static void put_u64(uint8_t *p, uint64_t v) {
    for (int i = 0; i < 8; i++) p[i] = (uint8_t)(v >> 8 * i);
}

/* ---- Packing */

typedef enum shape { SHAPE_OTHER, SHAPE_INTEGERS, SHAPE_NUMBERS, SHAPE_STRINGS, SHAPE_BOOLS } shape;

static shape kind_of(walker *w, const qn_json_token *t) {
    int64_t integer;
    double number;
    switch (t->kind) {
    case QN_JSON_STRING: return SHAPE_STRINGS;
    case QN_JSON_TRUE:
    case QN_JSON_FALSE: return SHAPE_BOOLS;
    case QN_JSON_NUMBER: return qn_format_json_number(&w->json, t, &integer, &number) == 1 ? SHAPE_INTEGERS : SHAPE_NUMBERS;
    default: return SHAPE_OTHER;
    }
}

/* Looks through a list just opened, on a copy of the scanner. */
static shape list_kind(walker *w, uint64_t *count, uint64_t *bytes) {
    qn_json ahead = w->json;
    qn_json_token t;
    shape all = SHAPE_OTHER;
    *count = *bytes = 0;
    while (qn_format_json_next(&ahead, &t) != QN_JSON_ARRAY_END) {
        shape one = kind_of(w, &t);
        if (one == SHAPE_OTHER) return SHAPE_OTHER;
        if (*count && one != all &&
            !((one == SHAPE_INTEGERS && all == SHAPE_NUMBERS) || (one == SHAPE_NUMBERS && all == SHAPE_INTEGERS)))
            return SHAPE_OTHER;
        all = *count && all == SHAPE_NUMBERS ? SHAPE_NUMBERS : one;
        *bytes += one == SHAPE_BOOLS ? 1 : one == SHAPE_STRINGS ? 8 + t.bytes : 8;
        ++*count;
    }
    return *count ? all : SHAPE_INTEGERS;
}

static const qn_key_type packed_type[] = {
    [SHAPE_INTEGERS] = QN_KEY_I64, [SHAPE_NUMBERS] = QN_KEY_F64, [SHAPE_STRINGS] = QN_KEY_STRING, [SHAPE_BOOLS] = QN_KEY_BOOL};

/* One plain value; the number of bytes written, 0 after an error. */
static uint64_t pack(walker *w, const qn_json_token *t, shape as, uint8_t *to) {
    int64_t integer = 0;
    double number = 0;
    if (as == SHAPE_BOOLS) {
        *to = t->kind == QN_JSON_TRUE;
        return 1;
    }
    if (as == SHAPE_STRINGS) {
        int64_t n = qn_format_json_text(&w->json, t, (char *)to + 8);
        if (n < 0) return fail(w, "a string with a broken escape, or not in UTF-8"), 0;
        put_u64(to, (uint64_t)n);
        return 8 + (uint64_t)n;
    }
    int kind = qn_format_json_number(&w->json, t, &integer, &number);
    if (!kind) return fail(w, "a number beyond what a double can hold"), 0;
    if (as == SHAPE_INTEGERS) {
        put_u64(to, (uint64_t)integer);
        return 8;
    }
    if (kind == 1) number = (double)integer;
    memcpy(to, &number, sizeof number);
    return 8;
}

static qn_status add(walker *w, qn_key_type type, const uint8_t *at, uint64_t bytes, uint64_t offset) {
    qn_format_keys *keys = &w->file->keys;
    const char *fault = qn_format_name_fault(w->name, w->name_bytes);
    if (fault) return fail(w, fault);
    const char *name = qn_format_name_copy(w->file, w->name, w->name_bytes);
    if (!name || !QN_VEC_ROOM(&w->file->arena, keys, 1)) return qn_format_no_memory(w->file, w->error);
    keys->at[keys->n++] = (qn_format_key){name, at, bytes, offset, type};
    return QN_OK;
}

static qn_status add_plain(walker *w, const qn_json_token *t) {
    if (t->kind == QN_JSON_NULL) return QN_OK;
    shape as = kind_of(w, t);
    uint8_t *at = qn_arena_alloc(&w->file->arena, 8 + (as == SHAPE_STRINGS ? (size_t)t->bytes : 0), 1);
    if (!at) return qn_format_no_memory(w->file, w->error);
    uint64_t bytes = pack(w, t, as, at);
    return bytes ? add(w, packed_type[as], at, bytes, t->at) : QN_FORMAT;
}

static qn_status add_list(walker *w, shape as, uint64_t count, uint64_t bytes, uint64_t offset) {
    qn_json_token t;
    uint8_t *at = qn_arena_alloc(&w->file->arena, (size_t)bytes + 12, 1), *to = at;
    if (!at) return qn_format_no_memory(w->file, w->error);
    *to = (uint8_t)packed_type[as]; /* a type is less than 256; the rest of its u32 is zero */
    put_u64(to + 4, count);
    to += 12;
    while (qn_format_json_next(&w->json, &t) != QN_JSON_ARRAY_END) {
        uint64_t one = pack(w, &t, as, to);
        if (!one) return QN_FORMAT;
        to += one;
    }
    return add(w, QN_KEY_ARRAY, at, (uint64_t)(to - at), offset);
}

/* ---- Walking */

/* Puts a name behind the path of the innermost list or object. */
static qn_status set_name(walker *w, const qn_json_token *key) {
    level *top = &w->levels[w->json.depth];
    size_t n = top->path;
    if (n) w->name[n++] = '.';
    if (key) {
        if (key->bytes > QN_FORMAT_NAME_BYTES) return fail(w, "a name is longer than 65535 bytes");
        int64_t bytes = qn_format_json_text(&w->json, key, w->name + n);
        if (bytes < 0) return fail(w, "a name with a broken escape, or not in UTF-8");
        n += (size_t)bytes;
    } else {
        n += (size_t)snprintf(w->name + n, 24, "%" PRIu64, top->index++);
    }
    w->name_bytes = n;
    return QN_OK;
}

static qn_status enter(walker *w, const qn_json_token *t) {
    uint64_t count, bytes;
    shape as = t->kind == QN_JSON_ARRAY ? list_kind(w, &count, &bytes) : SHAPE_OTHER;
    if (as != SHAPE_OTHER && w->name_bytes) return add_list(w, as, count, bytes, t->at);
    if (w->name_bytes > PATH_BYTES) return fail(w, "the names that lead here are longer than 1024 bytes");
    w->levels[w->json.depth] = (level){w->name_bytes, 0};
    return QN_OK;
}

static qn_status walk(walker *w) {
    qn_json_token t, key;
    for (;;) {
        int in_list = w->json.depth && !w->json.is_object[w->json.depth - 1];
        qn_status status = QN_OK;
        qn_format_json_next(&w->json, &t);
        if (t.kind == QN_JSON_KEY) {
            key = t;
            status = set_name(w, &key);
            qn_format_json_next(&w->json, &t);
        } else if (in_list && t.kind != QN_JSON_ARRAY_END) {
            /* opening the item has already made it the innermost: name it from the list around it */
            int inner = t.kind == QN_JSON_OBJECT || t.kind == QN_JSON_ARRAY;
            w->json.depth -= inner;
            status = set_name(w, NULL);
            w->json.depth += inner;
        }
        if (t.kind == QN_JSON_BAD) return fail(w, w->json.why);
        if (t.kind == QN_JSON_END) return QN_OK;
        if (status == QN_OK && (t.kind == QN_JSON_OBJECT || t.kind == QN_JSON_ARRAY)) status = enter(w, &t);
        else if (status == QN_OK && t.kind != QN_JSON_OBJECT_END && t.kind != QN_JSON_ARRAY_END) status = add_plain(w, &t);
        if (status != QN_OK) return status;
    }
}

qn_status qn_format_json_keys_read(qn_file *file, qn_error *error) {
    walker w = {.file = file, .error = error};
    const qn_format_source *source = &file->sources.at[0];
    w.name = qn_arena_alloc(&file->arena, PATH_BYTES + QN_FORMAT_NAME_BYTES + 32, 1);
    if (!w.name) return qn_format_no_memory(file, error);
    qn_format_json_begin(&w.json, (const char *)source->at, source->bytes);
    return walk(&w);
}
