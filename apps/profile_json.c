/* A small JSON reader for the views: strings are decoded where they stand, values are linked, nothing recurses. */
#include <stdlib.h>
#include <string.h>

#include "profile_cmd.h"

enum { BLOCK_VALUES = 1024 };

typedef struct json_block {
    struct json_block *next;
    size_t used;
    json_value value[BLOCK_VALUES];
} json_block;

typedef struct reader {
    json_text *text;
    char *p;
    json_value **stack; /* open containers */
    json_value **last;  /* of each, where its next child is linked */
    size_t depth, cap;
} reader;

qn_status json_append(void *json, const char *bytes, size_t length) {
    json_text *text = json;
    if (length >= text->cap - text->n) {
        size_t cap = (text->cap + length) * 2 + 4096;
        char *at = cap > length ? realloc(text->at, cap) : NULL;
        if (!at) return QN_NO_MEMORY;
        text->at = at;
        text->cap = cap;
    }
    memcpy(text->at + text->n, bytes, length);
    text->n += length;
    text->at[text->n] = 0;
    return QN_OK;
}

void json_free(json_text *text) {
    while (text->blocks) {
        json_block *block = text->blocks;
        text->blocks = block->next;
        free(block);
    }
    free(text->at);
    memset(text, 0, sizeof *text);
}

static json_value *new_value(json_text *text) {
    if (!text->blocks || text->blocks->used == BLOCK_VALUES) {
        json_block *block = malloc(sizeof *block);
        if (!block) return NULL;
        block->next = text->blocks;
        block->used = 0;
        text->blocks = block;
    }
    json_value *value = &text->blocks->value[text->blocks->used++];
    memset(value, 0, sizeof *value);
    return value;
}

/* ---- Strings ------------------------------------------------------------------------------------------------------ */

static int hex4(const char *p, unsigned *code) {
    *code = 0;
    for (int i = 0; i < 4; i++) {
        static const char DIGITS[] = "0123456789abcdef";
        const char *digit = p[i] ? strchr(DIGITS, p[i] | 0x20) : NULL;
        if (!digit) return 0;
        *code = *code << 4 | (unsigned)(digit - DIGITS);
    }
    return 1;
}

static char *put_utf8(char *to, unsigned code) {
    if (code < 0x80) {
        *to++ = (char)code;
    } else if (code < 0x800) {
        *to++ = (char)(0xc0 | code >> 6);
        *to++ = (char)(0x80 | (code & 0x3f));
    } else if (code < 0x10000) {
        *to++ = (char)(0xe0 | code >> 12);
        *to++ = (char)(0x80 | (code >> 6 & 0x3f));
        *to++ = (char)(0x80 | (code & 0x3f));
    } else {
        *to++ = (char)(0xf0 | code >> 18);
        *to++ = (char)(0x80 | (code >> 12 & 0x3f));
        *to++ = (char)(0x80 | (code >> 6 & 0x3f));
        *to++ = (char)(0x80 | (code & 0x3f));
    }
    return to;
}

/* \uXXXX behind *p, with its second half where there is one; a NUL would end the text and becomes a space. */
static char *unescape_unit(char **p, char *to) {
    unsigned code, low;
    if (!hex4(*p, &code)) return NULL;
    *p += 4;
    if (code >= 0xd800 && code < 0xdc00 && (*p)[0] == '\\' && (*p)[1] == 'u' && hex4(*p + 2, &low) && low >= 0xdc00 &&
        low < 0xe000) {
        *p += 6;
        code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    }
    return put_utf8(to, code ? code : ' ');
}

/* Behind the opening quote; decodes in place, for an escape is never shorter than what it stands for. */
static char *read_string(reader *r) {
    char *from = r->p, *to = r->p;
    while (*r->p != '"') {
        if (*r->p == 0) return NULL;
        if (*r->p != '\\') {
            *to++ = *r->p++;
            continue;
        }
        static const char FROM[] = "\"\\/bfnrt", TO[] = "\"\\/\b\f\n\r\t";
        char c = r->p[1];
        const char *found = c ? strchr(FROM, c) : NULL;
        r->p += 2;
        if (found) *to++ = TO[found - FROM];
        else if (c != 'u' || (to = unescape_unit(&r->p, to)) == NULL) return NULL;
    }
    r->p++;
    *to = 0;
    return from;
}

/* ---- Values ------------------------------------------------------------------------------------------------------- */

static void skip_space(reader *r) {
    while (*r->p == ' ' || *r->p == '\n' || *r->p == '\r' || *r->p == '\t') r->p++;
}

static int push(reader *r, json_value *container) {
    if (r->depth == r->cap) {
        size_t cap = r->cap * 2 + 64;
        json_value **stack = realloc(r->stack, cap * sizeof *stack);
        if (stack) r->stack = stack;
        json_value **last = stack ? realloc(r->last, cap * sizeof *last) : NULL;
        if (!last) return 0;
        r->last = last;
        r->cap = cap;
    }
    r->stack[r->depth] = container;
    r->last[r->depth++] = NULL;
    return 1;
}

/* A number or a literal, up to the next delimiter. The delimiter is overwritten by the caller once it is known. */
static void read_word(reader *r, json_value *value) {
    char *from = r->p;
    r->p += strcspn(r->p, ",]} \n\r\t");
    value->text = from;
    value->type = *from == 'n' ? JSON_NULL : *from == 't' || *from == 'f' ? JSON_BOOL : JSON_NUMBER;
}

/* Reads a key if one is due, and the value or the opening of one. */
static json_value *read_value(reader *r) {
    json_value *value = new_value(r->text), *parent = r->depth ? r->stack[r->depth - 1] : NULL;
    if (!value) return NULL;
    if (parent && parent->type == JSON_OBJECT) {
        if (*r->p++ != '"' || (value->key = read_string(r)) == NULL) return NULL;
        skip_space(r);
        if (*r->p++ != ':') return NULL;
        skip_space(r);
    }
    if (parent) {
        if (r->last[r->depth - 1]) r->last[r->depth - 1]->next = value;
        else parent->first = value;
        r->last[r->depth - 1] = value;
        parent->count++;
    }
    if (*r->p == '"') {
        r->p++;
        value->type = JSON_STRING;
        value->text = read_string(r);
        return value->text ? value : NULL;
    }
    if (*r->p == '{' || *r->p == '[') {
        value->type = *r->p++ == '{' ? JSON_OBJECT : JSON_LIST;
        return push(r, value) ? value : NULL;
    }
    if (*r->p == 0) return NULL;
    read_word(r, value);
    return value;
}

/* Behind a value: closes what ends here. Returns 1 when another value follows, 0 at the end, -1 for no JSON. */
static int after_value(reader *r, int opened) {
    for (;;) {
        char *end_of_word = r->p;
        skip_space(r);
        char c = *r->p;
        *end_of_word = 0; /* ends a number or literal; strings have ended already */
        if (r->depth == 0) return c == 0 ? 0 : -1;
        char closing = r->stack[r->depth - 1]->type == JSON_OBJECT ? '}' : ']';
        if (c == closing) {
            r->p++;
            r->depth--;
            opened = 0;
            continue;
        }
        if (opened) {
            if (c == 0) return -1;
            *r->p = c; /* end_of_word may be this very byte */
            return 1;
        }
        if (c != ',') return -1;
        r->p++;
        skip_space(r);
        return 1;
    }
}

int json_parse(json_text *text) {
    reader r = {.text = text, .p = text->at};
    int more = text->at != NULL;
    if (more) skip_space(&r);
    while (more == 1) {
        json_value *value = read_value(&r);
        if (!value) {
            more = -1;
            break;
        }
        if (!text->root) text->root = value;
        more = after_value(&r, value->type >= JSON_LIST);
    }
    free(r.stack);
    free(r.last);
    return more == 0 && text->root != NULL;
}

const json_value *json_member(const json_value *object, const char *key) {
    if (object && object->type == JSON_OBJECT)
        for (const json_value *v = object->first; v; v = v->next)
            if (strcmp(v->key, key) == 0) return v;
    return NULL;
}

int json_is_scalar(const json_value *value) { return value->type < JSON_LIST; }
