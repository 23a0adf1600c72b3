/* Values of templates: truth, equality, order, and how they are printed, all as Python has them. */
#include "text/template.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>

#include "text/json_dom.h"
#include "text/utf8.h"

tpl_value qn_text_tpl_fail(tpl *t, const char *format, ...) {
    if (!t->failed) {
        char text[400];
        va_list args;
        va_start(args, format);
        vsnprintf(text, sizeof text, format, args);
        va_end(args);
        t->failed = 1;
        if (t->status == QN_OK) t->status = QN_INVALID;
        qn_error_set(t->error, t->status, "template, line %d: %s", t->line, text);
    }
    return (tpl_value){.kind = TPL_UNDEFINED, .as.text = {"", 0}};
}

int qn_text_tpl_step(tpl *t, uint64_t n) {
    t->steps += n;
    if (t->steps > t->most_steps) qn_text_tpl_fail(t, "more than %llu steps", (unsigned long long)t->most_steps);
    return !t->failed;
}

tpl_value qn_text_tpl_no_memory(tpl *t) {
    if (!t->failed) t->status = QN_NO_MEMORY;
    return qn_text_tpl_fail(t, "there is no memory for it, or it would use more than it may");
}

const char *qn_text_tpl_kind_name(tpl_value v) {
    static const char *const NAMES[] = {"undefined", "None", "bool",  "int",      "float", "str",
                                        "list",      "dict", "macro", "function", "method"};
    return NAMES[v.kind];
}

int qn_text_tpl_truth(tpl_value v) {
    switch (v.kind) {
    case TPL_UNDEFINED:
    case TPL_NONE: return 0;
    case TPL_BOOL:
    case TPL_INT: return v.as.integer != 0;
    case TPL_FLOAT: return v.as.number != 0;
    case TPL_STRING: return v.as.text.length > 0;
    case TPL_LIST: return v.as.list->items.n > 0;
    case TPL_DICT: return v.as.dict->pairs.n > 0 || v.as.dict->is_namespace;
    default: return 1;
    }
}

int qn_text_tpl_is_number(tpl_value v) { return v.kind == TPL_BOOL || v.kind == TPL_INT || v.kind == TPL_FLOAT; }

double qn_text_tpl_number(tpl_value v) { return v.kind == TPL_FLOAT ? v.as.number : (double)v.as.integer; }

/* Steps pay for bytes as well: texts that differ late, compared often, would else take hours within the limit. */
int qn_text_tpl_same(tpl *t, qn_text a, qn_text b) {
    return a.length == b.length && qn_text_tpl_step(t, a.length / 64) && tpl_same(a, b);
}

static int compare_texts(tpl *t, qn_text a, qn_text b) {
    size_t n = a.length < b.length ? a.length : b.length;
    if (!qn_text_tpl_step(t, n / 64)) return 0;
    int order = n ? memcmp(a.at, b.at, n) : 0; /* of UTF-8 the bytes are in the order of the characters */
    return order ? order : a.length < b.length ? -1 : a.length > b.length;
}

static int lists_equal(tpl *t, const tpl_list *a, const tpl_list *b) {
    if (a->items.n != b->items.n || a->is_tuple != b->is_tuple) return 0;
    for (size_t i = 0; i < a->items.n; i++)
        if (!qn_text_tpl_equal(t, a->items.at[i], b->items.at[i])) return 0;
    return 1;
}

static int dicts_equal(tpl *t, const tpl_dict *a, const tpl_dict *b) {
    if (a->pairs.n != b->pairs.n) return 0;
    for (size_t i = 0; i < a->pairs.n; i++) {
        const tpl_value *other = qn_text_tpl_dict_get(t, b, a->pairs.at[i].key);
        if (!other || !qn_text_tpl_equal(t, a->pairs.at[i].value, *other)) return 0;
    }
    return 1;
}

int qn_text_tpl_equal(tpl *t, tpl_value a, tpl_value b) {
    if (!qn_text_tpl_step(t, 1)) return 0;
    if (qn_text_tpl_is_number(a) && qn_text_tpl_is_number(b)) {
        if (a.kind != TPL_FLOAT && b.kind != TPL_FLOAT) return a.as.integer == b.as.integer;
        return qn_text_tpl_number(a) == qn_text_tpl_number(b);
    }
    if (a.kind != b.kind) return 0;
    int same = 0;
    if (++t->depth > t->most_depth) qn_text_tpl_fail(t, "values nested too deeply");
    if (a.kind == TPL_UNDEFINED || a.kind == TPL_NONE) same = 1;
    else if (a.kind == TPL_STRING) same = qn_text_tpl_same(t, a.as.text, b.as.text);
    else if (a.kind == TPL_LIST) same = a.as.list == b.as.list || (!t->failed && lists_equal(t, a.as.list, b.as.list));
    else if (a.kind == TPL_DICT) same = a.as.dict == b.as.dict || (!t->failed && dicts_equal(t, a.as.dict, b.as.dict));
    else same = a.as.macro == b.as.macro;
    t->depth--;
    return same;
}

int qn_text_tpl_compare(tpl *t, tpl_value a, tpl_value b) {
    if (!qn_text_tpl_step(t, 1)) return 0;
    if (qn_text_tpl_is_number(a) && qn_text_tpl_is_number(b)) {
        if (a.kind != TPL_FLOAT && b.kind != TPL_FLOAT) return a.as.integer < b.as.integer ? -1 : a.as.integer > b.as.integer;
        double x = qn_text_tpl_number(a), y = qn_text_tpl_number(b);
        return x < y ? -1 : x > y;
    }
    if (a.kind == TPL_STRING && b.kind == TPL_STRING) return compare_texts(t, a.as.text, b.as.text);
    if (a.kind == TPL_LIST && b.kind == TPL_LIST) {
        const tpl_list *x = a.as.list, *y = b.as.list;
        for (size_t i = 0; i < x->items.n && i < y->items.n && !t->failed; i++) {
            if (qn_text_tpl_equal(t, x->items.at[i], y->items.at[i])) continue;
            if (++t->depth > t->most_depth) qn_text_tpl_fail(t, "values nested too deeply");
            int order = qn_text_tpl_compare(t, x->items.at[i], y->items.at[i]);
            t->depth--;
            return order;
        }
        return x->items.n < y->items.n ? -1 : x->items.n > y->items.n;
    }
    qn_text_tpl_fail(t, "%s and %s have no order", qn_text_tpl_kind_name(a), qn_text_tpl_kind_name(b));
    return 0;
}

size_t qn_text_tpl_find(tpl *t, qn_text text, qn_text part, size_t from) {
    enum { PIECE = 64 };
    for (size_t i = from; i + part.length <= text.length; i++) {
        const char *at = part.length ? memchr(text.at + i, *part.at, text.length - part.length + 1 - i) : text.at + i;
        if (!at) break;
        i = (size_t)(at - text.at);
        size_t same = 0, n;
        for (; same < part.length; same += n) { /* what is like the part for long, and often, costs steps */
            n = part.length - same < PIECE ? part.length - same : PIECE;
            if (memcmp(at + same, part.at + same, n) != 0) break;
            if (n == PIECE && !qn_text_tpl_step(t, 1)) return text.length + 1;
        }
        if (same == part.length) return i;
    }
    return text.length + 1;
}

int qn_text_tpl_contains(tpl *t, tpl_value in, tpl_value what) {
    if (in.kind == TPL_UNDEFINED) return 0;
    if (in.kind == TPL_STRING && what.kind == TPL_STRING) {
        qn_text_tpl_step(t, in.as.text.length / 64);
        return qn_text_tpl_find(t, in.as.text, what.as.text, 0) <= in.as.text.length;
    }
    if (in.kind == TPL_DICT) return qn_text_tpl_dict_get(t, in.as.dict, what) != NULL;
    if (in.kind != TPL_LIST) {
        qn_text_tpl_fail(t, "'in' cannot look for %s in %s", qn_text_tpl_kind_name(what), qn_text_tpl_kind_name(in));
        return 0;
    }
    for (size_t i = 0; i < in.as.list->items.n && !t->failed; i++)
        if (qn_text_tpl_equal(t, in.as.list->items.at[i], what)) return 1;
    return 0;
}

/* ---- Lists and dicts */

tpl_value qn_text_tpl_list_new(tpl *t, size_t room) {
    tpl_list *list = qn_arena_alloc(&t->arena, 1, sizeof *list);
    if (!list || (room && !QN_VEC_ROOM(&t->arena, &list->items, room))) {
        qn_text_tpl_no_memory(t);
        return tpl_none();
    }
    return (tpl_value){.kind = TPL_LIST, .as.list = list};
}

void qn_text_tpl_list_add(tpl *t, tpl_value list, tpl_value item) {
    if (t->failed || list.kind != TPL_LIST || !qn_text_tpl_step(t, 1)) return;
    if (!QN_VEC_ROOM(&t->arena, &list.as.list->items, 1)) {
        qn_text_tpl_no_memory(t);
        return;
    }
    list.as.list->items.at[list.as.list->items.n++] = item;
}

tpl_value qn_text_tpl_dict_new(tpl *t) {
    tpl_dict *dict = qn_arena_alloc(&t->arena, 1, sizeof *dict);
    if (!dict) {
        qn_text_tpl_no_memory(t);
        return tpl_none();
    }
    return (tpl_value){.kind = TPL_DICT, .as.dict = dict};
}

tpl_value *qn_text_tpl_dict_get(tpl *t, const tpl_dict *dict, tpl_value key) {
    for (size_t i = 0; i < dict->pairs.n; i++) {
        const tpl_value *k = &dict->pairs.at[i].key;
        if (i % 16 == 15 && !qn_text_tpl_step(t, 1)) return NULL;
        if (k->kind == TPL_STRING && key.kind == TPL_STRING ? qn_text_tpl_same(t, k->as.text, key.as.text)
                                                            : qn_text_tpl_equal(t, *k, key))
            return &dict->pairs.at[i].value;
    }
    return NULL;
}

void qn_text_tpl_dict_set(tpl *t, tpl_dict *dict, tpl_value key, tpl_value value) {
    tpl_value *there = qn_text_tpl_dict_get(t, dict, key);
    if (t->failed || !qn_text_tpl_step(t, 1)) return;
    if (there) {
        *there = value;
        return;
    }
    if (!QN_VEC_ROOM(&t->arena, &dict->pairs, 1)) {
        qn_text_tpl_no_memory(t);
        return;
    }
    dict->pairs.at[dict->pairs.n++] = (tpl_pair){key, value};
}

tpl_value qn_text_tpl_iterate(tpl *t, tpl_value v) {
    if (v.kind == TPL_LIST) return v;
    tpl_value list = qn_text_tpl_list_new(t, 0);
    if (v.kind == TPL_UNDEFINED) return list;
    if (v.kind == TPL_DICT && !v.as.dict->is_namespace) {
        for (size_t i = 0; i < v.as.dict->pairs.n && !t->failed; i++) qn_text_tpl_list_add(t, list, v.as.dict->pairs.at[i].key);
        return list;
    }
    if (v.kind != TPL_STRING) return qn_text_tpl_fail(t, "%s cannot be iterated", qn_text_tpl_kind_name(v));
    for (size_t i = 0; i < v.as.text.length && !t->failed;) {
        uint32_t code;
        size_t n = qn_text_utf8_read(v.as.text.at + i, v.as.text.length - i, &code);
        if (!n) n = 1;
        qn_text_tpl_list_add(t, list, tpl_text((qn_text){v.as.text.at + i, n}));
        i += n;
    }
    return list;
}

/* ---- Texts */

size_t qn_text_tpl_length(tpl *t, qn_text text) {
    size_t n = 0;
    qn_text_tpl_step(t, text.length / 64);
    for (size_t i = 0; i < text.length; i++) n += ((unsigned char)text.at[i] & 0xC0) != 0x80;
    return n;
}

qn_text qn_text_tpl_copy(tpl *t, const char *at, size_t n) {
    char *bytes = qn_arena_alloc(&t->arena, n + 1, 1);
    if (!bytes) {
        qn_text_tpl_no_memory(t);
        return (qn_text){"", 0};
    }
    if (n) memcpy(bytes, at, n);
    return (qn_text){bytes, n};
}

void qn_text_tpl_append(tpl *t, tpl_buffer *b, const char *at, size_t n) {
    if (t->failed || !qn_text_tpl_step(t, n / 64)) return;
    if (!QN_VEC_ROOM(&t->arena, &b->bytes, n)) {
        qn_text_tpl_no_memory(t);
        return;
    }
    if (n) memcpy(b->bytes.at + b->bytes.n, at, n);
    b->bytes.n += n;
}

static void append_word(tpl *t, tpl_buffer *b, const char *word) { qn_text_tpl_append(t, b, word, strlen(word)); }

static int is_printable(uint32_t c) { /* what Python would not write as an escape, near enough */
    return c >= 0x20 && c != 0x7F && !(c >= 0x80 && c <= 0xA0) && c != 0xAD && !(c >= 0x2000 && c <= 0x200F) &&
           !(c >= 0x2028 && c <= 0x202F) && !(c >= 0x205F && c <= 0x206F) && c != 0x3000 && c != 0xFEFF &&
           !(c >= 0xE000 && c <= 0xF8FF) && c < 0xF0000;
}

static void repr_text(tpl *t, tpl_buffer *b, qn_text text) {
    char quote = memchr(text.at, '\'', text.length) && !memchr(text.at, '"', text.length) ? '"' : '\'';
    qn_text_tpl_append(t, b, &quote, 1);
    for (size_t i = 0; i < text.length && !t->failed;) {
        uint32_t code = 0;
        char escape[16];
        size_t n = qn_text_utf8_read(text.at + i, text.length - i, &code);
        if (!n) n = 1, code = (unsigned char)text.at[i];
        const char *plain = code == '\n' ? "\\n" : code == '\r' ? "\\r" : code == '\t' ? "\\t" : code == '\\' ? "\\\\" : NULL;
        if (plain) {
            append_word(t, b, plain);
        } else if (code == (unsigned char)quote) {
            snprintf(escape, sizeof escape, "\\%c", quote);
            append_word(t, b, escape);
        } else if (!is_printable(code)) {
            snprintf(escape, sizeof escape, code < 0x100 ? "\\x%02x" : code < 0x10000 ? "\\u%04x" : "\\U%08x", code);
            append_word(t, b, escape);
        } else {
            qn_text_tpl_append(t, b, text.at + i, n);
        }
        i += n;
    }
    qn_text_tpl_append(t, b, &quote, 1);
}

static void repr(tpl *t, tpl_buffer *b, tpl_value v);

static void repr_items(tpl *t, tpl_buffer *b, tpl_value v) {
    int is_list = v.kind == TPL_LIST, tuple = is_list && v.as.list->is_tuple;
    size_t n = is_list ? v.as.list->items.n : v.as.dict->pairs.n;
    append_word(t, b, !is_list ? "{" : tuple ? "(" : "[");
    for (size_t i = 0; i < n && !t->failed; i++) {
        if (i) append_word(t, b, ", ");
        if (!is_list) {
            repr(t, b, v.as.dict->pairs.at[i].key);
            append_word(t, b, ": ");
        }
        repr(t, b, is_list ? v.as.list->items.at[i] : v.as.dict->pairs.at[i].value);
    }
    append_word(t, b, !is_list ? "}" : tuple ? (n == 1 ? ",)" : ")") : "]");
}

static void repr(tpl *t, tpl_buffer *b, tpl_value v) {
    qn_text_tpl_step(t, 1 + (v.kind == TPL_STRING ? v.as.text.length / 16 : 0)); /* few bytes, but one by one */
    if (++t->depth > t->most_depth) qn_text_tpl_fail(t, "values nested too deeply");
    if (!t->failed && v.kind == TPL_STRING) repr_text(t, b, v.as.text);
    else if (!t->failed && (v.kind == TPL_LIST || v.kind == TPL_DICT)) repr_items(t, b, v);
    else if (!t->failed) {
        qn_text s = v.kind == TPL_UNDEFINED ? (qn_text){"Undefined", 9} : qn_text_tpl_string(t, v);
        qn_text_tpl_append(t, b, s.at, s.length);
    }
    t->depth--;
}

qn_text qn_text_tpl_string(tpl *t, tpl_value v) {
    char number[32];
    size_t n;
    tpl_buffer b = {0};
    switch (v.kind) {
    case TPL_UNDEFINED: return (qn_text){"", 0};
    case TPL_NONE: return (qn_text){"None", 4};
    case TPL_BOOL: return v.as.integer ? (qn_text){"True", 4} : (qn_text){"False", 5};
    case TPL_INT:
        n = (size_t)snprintf(number, sizeof number, "%lld", (long long)v.as.integer);
        return qn_text_tpl_copy(t, number, n);
    case TPL_FLOAT:
        if (isnan(v.as.number)) return (qn_text){"nan", 3};
        if (isinf(v.as.number)) return v.as.number > 0 ? (qn_text){"inf", 3} : (qn_text){"-inf", 4};
        n = qn_text_number_print(v.as.number, number);
        return qn_text_tpl_copy(t, number, n);
    case TPL_STRING: return v.as.text;
    case TPL_LIST:
    case TPL_DICT: repr(t, &b, v); return tpl_taken(&b);
    case TPL_MACRO: return (qn_text){"<Macro>", 7};
    case TPL_FUNCTION:
    case TPL_METHOD: return (qn_text){"<function>", 10};
    }
    return (qn_text){"", 0};
}
