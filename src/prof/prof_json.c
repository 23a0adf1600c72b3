/* The JSON writer: a buffer in front of the caller's callback, and the escaping of the reference. */
#include "prof/prof_json.h"

void qn_prof_json_init(prof_json *json, qn_profile_write_fn write, void *user) {
    json->write = write;
    json->user = user;
    json->status = QN_OK;
    json->comma = 0;
    json->used = 0;
}

static void drain(prof_json *json) {
    if (json->status == QN_OK && json->used) {
        json->status = json->write(json->user, json->buffer, json->used);
    }
    json->used = 0;
}

qn_status qn_prof_json_finish(prof_json *json) {
    drain(json);
    return json->status;
}

void qn_prof_json_raw_slow(prof_json *json, const char *text, size_t length) {
    while (length) {
        if (json->used == PROF_JSON_BUFFER) {
            drain(json);
        }
        size_t room = PROF_JSON_BUFFER - json->used, part = length < room ? length : room;
        memcpy(json->buffer + json->used, text, part);
        json->used += part;
        text += part;
        length -= part;
    }
}

static void put(prof_json *json, char c) {
    if (json->used == PROF_JSON_BUFFER) {
        drain(json);
    }
    json->buffer[json->used++] = c;
}

static void before_value(prof_json *json) {
    if (json->comma) {
        qn_prof_json_raw(json, ", ", 2);
    }
    json->comma = 1;
}

void qn_prof_json_object(prof_json *json) {
    before_value(json);
    put(json, '{');
    json->comma = 0;
}

void qn_prof_json_object_end(prof_json *json) {
    put(json, '}');
    json->comma = 1;
}

void qn_prof_json_array(prof_json *json) {
    before_value(json);
    put(json, '[');
    json->comma = 0;
}

void qn_prof_json_array_end(prof_json *json) {
    put(json, ']');
    json->comma = 1;
}

void qn_prof_json_null(prof_json *json) {
    before_value(json);
    qn_prof_json_raw(json, "null", 4);
}

void qn_prof_json_bool(prof_json *json, int value) {
    before_value(json);
    qn_prof_json_raw(json, value ? "true" : "false", value ? 4 : 5);
}

void qn_prof_json_int(prof_json *json, int64_t value) { qn_prof_json_num(json, prof_int(value)); }

void qn_prof_json_dbl(prof_json *json, double value) { qn_prof_json_num(json, prof_dbl(value)); }

static void put_num(prof_json *json, prof_num value) {
    if (PROF_JSON_BUFFER - json->used < PROF_NUM_TEXT) {
        drain(json);
    }
    json->used += (size_t)qn_prof_num_text(value, json->buffer + json->used);
}

void qn_prof_json_num(prof_json *json, prof_num value) {
    if (!prof_is_num(value) ||
        (value.tag == PROF_DBL && !isfinite(value.d))) { /* sums may leave the doubles; JSON has no word for it */
        qn_prof_json_null(json);
        return;
    }
    before_value(json);
    put_num(json, value);
}

/* ---- Strings ------------------------------------------------------------------------------------------------------ */

static void put_unit(prof_json *json, unsigned unit) {
    static const char HEX[] = "0123456789abcdef";
    char text[6] = {'\\', 'u', HEX[unit >> 12 & 15], HEX[unit >> 8 & 15], HEX[unit >> 4 & 15], HEX[unit & 15]};
    qn_prof_json_raw(json, text, 6);
}

static void put_control(prof_json *json, unsigned char c) {
    static const char FROM[] = "\"\\\n\r\t\b\f", TO[] = "\"\\nrtbf";
    const char *found = c ? memchr(FROM, c, sizeof FROM - 1) : NULL;
    if (found) {
        char text[2] = {'\\', TO[found - FROM]};
        qn_prof_json_raw(json, text, 2);
    } else {
        put_unit(json, c);
    }
}

/* One code point of valid UTF-8 (texts are cleaned when they are read); returns its bytes, 1 for a stray one. */
static size_t decode(const unsigned char *at, size_t left, unsigned *code) {
    static const unsigned char FIRST[] = {0, 0, 0x1f, 0x0f, 0x07};
    size_t n = at[0] >= 0xf0 ? 4 : at[0] >= 0xe0 ? 3 : at[0] >= 0xc0 ? 2 : 1;
    if (n == 1 || n > left) {
        *code = 0xfffd;
        return 1;
    }
    *code = at[0] & FIRST[n];
    for (size_t i = 1; i < n; i++) {
        *code = *code << 6 | (at[i] & 0x3f);
    }
    return n;
}

static int is_plain(unsigned char c) { return c >= 0x20 && c < 0x80 && c != '"' && c != '\\'; } /* DEL is printed as it is */

/* Whether eight bytes are all plain: a byte below 0x20, equal to one of the two, or above 0x7f leaves its highest bit set. */
static int eight_plain(uint64_t word) {
    const uint64_t ones = 0x0101010101010101ull, tops = ones << 7;
    uint64_t quote = word ^ ones * '"', backslash = word ^ ones * '\\';
    uint64_t odd = (word - ones * 0x20) | (quote - ones) | (backslash - ones) | word;
    return (odd & tops) == 0;
}

static size_t plain_run(const char *text, size_t length) {
    size_t run = 0;
    for (uint64_t word; run + 8 <= length; run += 8) {
        memcpy(&word, text + run, 8);
        if (!eight_plain(word)) {
            break;
        }
    }
    while (run < length && is_plain((unsigned char)text[run])) {
        run++;
    }
    return run;
}

void qn_prof_json_part_bytes(prof_json *json, const char *text, size_t length) {
    const unsigned char *at = (const unsigned char *)text;
    for (size_t i = 0;;) {
        size_t run = plain_run(text + i, length - i);
        qn_prof_json_raw(json, text + i, run);
        i += run;
        if (i == length) {
            return;
        }
        if (at[i] < 0x80) {
            put_control(json, at[i++]);
            continue;
        }
        unsigned code;
        i += decode(at + i, length - i, &code);
        if (code >= 0x10000) {
            put_unit(json, 0xd800 + ((code - 0x10000) >> 10 & 0x3ff));
            put_unit(json, 0xdc00 + ((code - 0x10000) & 0x3ff));
        } else {
            put_unit(json, code);
        }
    }
}

void qn_prof_json_string_begin(prof_json *json) {
    before_value(json);
    put(json, '"');
}

void qn_prof_json_string_end(prof_json *json) { put(json, '"'); }

void qn_prof_json_part(prof_json *json, const char *text) { qn_prof_json_part_bytes(json, text, strlen(text)); }

void qn_prof_json_part_num(prof_json *json, prof_num value) { put_num(json, value); }

void qn_prof_json_bytes(prof_json *json, const char *text, size_t length) {
    qn_prof_json_string_begin(json);
    qn_prof_json_part_bytes(json, text, length);
    qn_prof_json_string_end(json);
}

void qn_prof_json_text(prof_json *json, const char *text) { qn_prof_json_bytes(json, text, strlen(text)); }

void qn_prof_json_key_bytes(prof_json *json, const char *key, size_t length) {
    qn_prof_json_bytes(json, key, length);
    qn_prof_json_raw(json, ": ", 2);
    json->comma = 0;
}

void qn_prof_json_key_plain(prof_json *json, const char *key, size_t length) {
    enum { AROUND = 6 }; /* comma, blank, two quotes, colon, blank */
    if (PROF_JSON_BUFFER - json->used < length + AROUND) {
        drain(json);
    }
    if (length > PROF_JSON_BUFFER - AROUND) {
        qn_prof_json_key_bytes(json, key, length);
        return;
    }
    char *to = json->buffer + json->used;
    if (json->comma) {
        memcpy(to, ", ", 2);
        to += 2;
    }
    *to++ = '"';
    memcpy(to, key, length);
    memcpy(to + length, "\": ", 3);
    json->used = (size_t)(to + length + 3 - json->buffer);
    json->comma = 0;
}
