/* Interned text: each distinct string is kept once, which is what keeps a trace of gigabytes small. Lists (shapes, grids) are
 * interned by their bytes, so the costly conversion to text happens once per distinct shape and not once per event. */
#include "prof/prof_text.h"

#include <string.h>

#include "prof/json_scan.h"

/* ---- Hashing ------------------------------------------------------------------------------------------------------ */

uint32_t qn_prof_hash_value(qn_hash_key key, prof_val value) {
    if (value.tag == PROF_DBL && value.d >= -0x1p63 && value.d < 0x1p63 && value.d == (double)(int64_t)value.d) {
        value = prof_int((int64_t)value.d); /* 7.0 must meet 7 */
    } else if (prof_is_nan(value)) {
        value = prof_dbl((double)NAN); /* of either sign */
    }
    return (uint32_t)qn_hash_tagged(key, key.begin, value.tag, (uint64_t)value.i);
}

qn_status qn_prof_slots_grow(prof_slots *slots, qn_arena *arena, prof_hash_fn hash_of, const void *owner) {
    size_t size = slots->at ? (slots->mask + 1) * 2 : 64;
    uint32_t *grown = qn_arena_resize(arena, NULL, size, sizeof *grown);
    if (!grown) {
        return QN_NO_MEMORY;
    }
    memset(grown, 0, size * sizeof *grown);
    if (!slots->at) {
        slots->key = qn_hash_process_key();
    }
    for (size_t i = 0; slots->at && i <= slots->mask; i++) {
        if (slots->at[i]) {
            size_t cursor = hash_of(slots->key, owner, slots->at[i] - 1);
            while (grown[cursor & (size - 1)]) {
                cursor++;
            }
            grown[cursor & (size - 1)] = slots->at[i];
        }
    }
    qn_arena_release(arena, slots->at);
    slots->at = grown;
    slots->mask = size - 1;
    return QN_OK;
}

static uint32_t str_hash(qn_hash_key key, const void *owner, uint32_t index) {
    (void)key;
    return ((const prof_text *)owner)->strs.at[index].hash;
}

static uint32_t list_hash(qn_hash_key key, const void *owner, uint32_t index) {
    (void)key;
    return ((const prof_text *)owner)->lists.at[index].hash;
}

/* ---- Strings ------------------------------------------------------------------------------------------------------ */

static uint32_t find_string(const prof_text *text, const char *bytes, size_t length, uint32_t hash, size_t *cursor) {
    for (*cursor = hash;; ++*cursor) {
        uint32_t id = prof_slots_at(&text->str_slots, cursor);
        if (id == PROF_NIL) {
            return PROF_NIL;
        }
        const prof_str *found = &text->strs.at[id];
        if (found->hash == hash && found->length == length && memcmp(found->at, bytes, length) == 0) {
            return id;
        }
    }
}

static uint32_t add_string(prof_text *text, const char *bytes, size_t length, uint32_t hash) {
    char *copy = qn_arena_alloc(text->arena, length + 1, 1);
    if (!copy || length >= PROF_NIL || text->strs.n >= PROF_NIL - 1 || !QN_VEC_ROOM(text->arena, &text->strs, 1)) {
        return PROF_NIL;
    }
    memcpy(copy, bytes, length);
    prof_str added = {copy, (uint32_t)length, hash};
    text->strs.at[text->strs.n] = added;
    return (uint32_t)text->strs.n++;
}

uint32_t qn_prof_intern(prof_text *text, const char *bytes, size_t length) {
    size_t cursor;
    if (qn_prof_slots_room(&text->str_slots, text->arena, str_hash, text) != QN_OK) {
        return PROF_NIL;
    }
    uint32_t hash = qn_prof_hash_bytes(text->str_slots.key, bytes, length);
    uint32_t id = find_string(text, bytes, length, hash, &cursor);
    if (id == PROF_NIL) {
        id = add_string(text, bytes, length, hash);
        if (id != PROF_NIL) {
            prof_slots_put(&text->str_slots, cursor, id);
        }
    }
    return id;
}

uint32_t qn_prof_intern_c(prof_text *text, const char *terminated) {
    return qn_prof_intern(text, terminated, strlen(terminated));
}

qn_status qn_prof_text_init(prof_text *text, qn_arena *arena) {
    memset(text, 0, sizeof *text);
    text->arena = arena;
    if (add_string(text, "None", 4, 0) == PROF_NIL) { /* id 0; not in the table, so a real "None" is another string */
        return QN_NO_MEMORY;
    }
    return qn_prof_intern_list(text, "[]", 2) == PROF_NIL ? QN_NO_MEMORY : QN_OK;
}

/* ---- Escapes and UTF-8 -------------------------------------------------------------------------------------------- */

static size_t put_code(char *out, unsigned code) {
    if (code < 0x80) {
        out[0] = (char)code;
        return 1;
    }
    size_t n = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    static const unsigned FIRST[] = {0, 0, 0xc0, 0xe0, 0xf0};
    for (size_t i = n; i-- > 1; code >>= 6) {
        out[i] = (char)(0x80 | (code & 0x3f));
    }
    out[0] = (char)(FIRST[n] | code);
    return n;
}

/* Length of the UTF-8 sequence at `at`, 0 when it is broken. Surrogates are let through: the reference keeps them. */
static size_t sequence(const unsigned char *at, size_t left) {
    size_t n = at[0] < 0x80 ? 1 : at[0] < 0xc2 ? 0 : at[0] < 0xe0 ? 2 : at[0] < 0xf0 ? 3 : at[0] < 0xf5 ? 4 : 0;
    if (n == 0 || n > left) {
        return 0;
    }
    for (size_t i = 1; i < n; i++) {
        if ((at[i] & 0xc0) != 0x80) {
            return 0;
        }
    }
    int overlong = (at[0] == 0xe0 && at[1] < 0xa0) || (at[0] == 0xf0 && at[1] < 0x90);
    int beyond = at[0] == 0xf4 && at[1] > 0x8f;
    return overlong || beyond ? 0 : n;
}

static int hex4(const char *at, size_t left, unsigned *unit) {
    if (left < 4) {
        return 0;
    }
    *unit = 0;
    for (int i = 0; i < 4; i++) {
        char c = at[i];
        unsigned digit = c >= '0' && c <= '9'                 ? (unsigned)(c - '0')
                         : (c | 32) >= 'a' && (c | 32) <= 'f' ? (unsigned)((c | 32) - 'a' + 10)
                                                              : 16;
        if (digit == 16) {
            return 0;
        }
        *unit = *unit << 4 | digit;
    }
    return 1;
}

/* One escape after its backslash; returns the bytes it took, and writes to out. A broken one stands for itself. */
static size_t resolve_escape(const char *at, size_t left, char *out, size_t *written) {
    static const char FROM[] = "\"\\/bfnrt", TO[] = "\"\\/\b\f\n\r\t";
    const char *found = left && *at ? memchr(FROM, *at, sizeof FROM - 1) : NULL;
    unsigned unit, low;
    if (found) {
        out[0] = TO[found - FROM];
        *written = 1;
        return 1;
    }
    if (left && *at == 'u' && hex4(at + 1, left - 1, &unit)) {
        int paired = unit >= 0xd800 && unit < 0xdc00 && left >= 11 && at[5] == '\\' && at[6] == 'u' &&
                     hex4(at + 7, left - 7, &low) && low >= 0xdc00 && low < 0xe000;
        *written = put_code(out, paired ? 0x10000 + ((unit - 0xd800) << 10) + (low - 0xdc00) : unit);
        return paired ? 11 : 5;
    }
    out[0] = '\\';
    *written = 1;
    return 0;
}

size_t qn_prof_unescape(const char *bytes, size_t length, char *out) {
    size_t used = 0;
    for (size_t i = 0; i < length;) {
        size_t written;
        if (bytes[i] == '\\') {
            i += 1 + resolve_escape(bytes + i + 1, length - i - 1, out + used, &written);
            used += written;
            continue;
        }
        size_t n = sequence((const unsigned char *)bytes + i, length - i);
        if (n == 0) {
            used += put_code(out + used, 0xfffd);
            i++;
            continue;
        }
        memcpy(out + used, bytes + i, n);
        used += n;
        i += n;
    }
    return used;
}

static int is_clean(const char *bytes, size_t length) {
    size_t i = 0;
    for (uint64_t word; i + 8 <= length; i += 8) {
        memcpy(&word, bytes + i, 8);
        if (word & 0x8080808080808080ull) {
            break;
        }
    }
    while (i < length) {
        size_t n = sequence((const unsigned char *)bytes + i, length - i);
        if (n == 0) {
            return 0;
        }
        i += n;
    }
    return 1;
}

uint32_t qn_prof_intern_json(prof_text *text, const char *bytes, size_t length, int escaped) {
    if (!escaped) {
        size_t cursor;
        uint32_t hash = qn_prof_hash_bytes(text->str_slots.key, bytes, length);
        uint32_t id = find_string(text, bytes, length, hash, &cursor);
        if (id != PROF_NIL) {
            return id;
        }
        if (is_clean(bytes, length)) {
            return qn_prof_intern(text, bytes, length);
        }
    }
    char *decoded = qn_arena_resize(text->arena, NULL, length + 1, 3);
    if (!decoded) {
        return PROF_NIL;
    }
    uint32_t id = qn_prof_intern(text, decoded, qn_prof_unescape(bytes, length, decoded));
    qn_arena_release(text->arena, decoded);
    return id;
}

/* ---- Comparisons -------------------------------------------------------------------------------------------------- */

int qn_prof_starts(const prof_str *string, const char *prefix) {
    size_t length = strlen(prefix);
    return string->length >= length && memcmp(string->at, prefix, length) == 0;
}

int qn_prof_ends(const prof_str *string, const char *suffix) {
    size_t length = strlen(suffix);
    return string->length >= length && memcmp(string->at + string->length - length, suffix, length) == 0;
}

int qn_prof_is(const prof_str *string, const char *literal) {
    return string->length == strlen(literal) && memcmp(string->at, literal, string->length) == 0;
}

int qn_prof_contains(const prof_str *string, const char *part) {
    size_t length = strlen(part);
    const char *at = string->at, *end = string->at + string->length;
    while ((size_t)(end - at) >= length) {
        at = memchr(at, part[0], (size_t)(end - at) - length + 1);
        if (!at) {
            return 0;
        }
        if (memcmp(at, part, length) == 0) {
            return 1;
        }
        at++;
    }
    return 0;
}

int qn_prof_str_cmp(const prof_str *a, const prof_str *b) {
    uint32_t shorter = a->length < b->length ? a->length : b->length;
    int order = memcmp(a->at, b->at, shorter);
    return order ? (order < 0 ? -1 : 1) : a->length < b->length ? -1 : a->length > b->length;
}

/* ---- Lists -------------------------------------------------------------------------------------------------------- */

uint32_t qn_prof_intern_list(prof_text *text, const char *json, size_t length) {
    if (qn_prof_slots_room(&text->list_slots, text->arena, list_hash, text) != QN_OK) {
        return PROF_NIL;
    }
    uint32_t hash = qn_prof_hash_bytes(text->list_slots.key, json, length);
    size_t cursor = hash;
    for (uint32_t id; (id = prof_slots_at(&text->list_slots, &cursor)) != PROF_NIL; cursor++) {
        const prof_list *found = &text->lists.at[id];
        if (found->hash == hash && found->json_length == length && memcmp(found->json, json, length) == 0) {
            return id;
        }
    }
    char *copy = qn_arena_alloc(text->arena, length + 1 + PROF_SCAN_PAD, 1); /* so that it can be scanned again */
    if (!copy || length >= PROF_NIL || text->lists.n >= PROF_NIL - 1 || !QN_VEC_ROOM(text->arena, &text->lists, 1)) {
        return PROF_NIL;
    }
    memcpy(copy, json, length);
    uint32_t shown = qn_prof_list_to_text(text, copy, length);
    if (shown == PROF_NIL) {
        return PROF_NIL;
    }
    prof_list added = {copy, (uint32_t)length, hash, shown};
    text->lists.at[text->lists.n] = added;
    prof_slots_put(&text->list_slots, cursor, (uint32_t)text->lists.n);
    return (uint32_t)text->lists.n++;
}

uint32_t qn_prof_value_text(prof_text *text, prof_val value) {
    char digits[PROF_NUM_TEXT];
    switch (value.tag & 255) {
    case PROF_STR: return (uint32_t)value.i;
    case PROF_LIST: return text->lists.at[value.i].text;
    case PROF_INT:
    case PROF_DBL:
    case PROF_BIG: return qn_prof_intern(text, digits, (size_t)qn_prof_num_text(value, digits));
    default: return 0;
    }
}
