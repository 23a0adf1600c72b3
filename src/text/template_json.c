/* Templates and JSON: the context comes in as JSON, and tojson writes values as Python's json.dumps does (not escaped for
 * HTML, as chat templates expect it). */
#include <math.h>
#include <stdio.h>

#include "text/json_dom.h"
#include "text/template.h"
#include "text/utf8.h"

static tpl_value from_node(tpl *t, const json_node *node) { /* as deep as the reader of JSON allows */
    tpl_value out;
    switch (node->kind) {
    case JSON_NULL: return tpl_none();
    case JSON_BOOL: return tpl_bool((int)node->integer);
    case JSON_INT: return tpl_int(node->integer);
    case JSON_FLOAT: return (tpl_value){.kind = TPL_FLOAT, .as.number = node->number};
    case JSON_STRING: return tpl_text(node->text);
    case JSON_LIST:
        out = qn_text_tpl_list_new(t, node->n);
        for (const json_node *item = node->first; item && !t->failed; item = item->next)
            qn_text_tpl_list_add(t, out, from_node(t, item));
        return out;
    case JSON_OBJECT:
        out = qn_text_tpl_dict_new(t);
        for (const json_node *m = node->first; m && !t->failed; m = m->next)
            qn_text_tpl_dict_set(t, out.as.dict, tpl_text(m->key), from_node(t, m));
        return out;
    }
    return tpl_none();
}

tpl_value qn_text_tpl_from_json(tpl *t, qn_text text) {
    json_node *root = NULL;
    qn_error error = {QN_OK, ""};
    qn_status status = qn_text_json_parse(&t->arena, text, &root, &error);
    if (status == QN_OK) return from_node(t, root);
    if (!t->failed) t->status = status;
    return qn_text_tpl_fail(t, "%s", error.text);
}

typedef struct json_style {
    qn_text item, key; /* separators */
    qn_text indent;    /* of one level */
    int lines, ascii, sorted;
} json_style;

static void put(tpl *t, tpl_buffer *b, const char *word) { qn_text_tpl_append(t, b, word, strlen(word)); }

static void dump_text(tpl *t, tpl_buffer *b, qn_text text, int ascii) {
    static const char SHORT[][2] = {{'"', '"'}, {'\\', '\\'}, {'\b', 'b'}, {'\f', 'f'}, {'\n', 'n'}, {'\r', 'r'}, {'\t', 't'}};
    put(t, b, "\"");
    for (size_t i = 0, from = 0; i <= text.length && !t->failed;) {
        char escape[16] = "";
        uint32_t code = 0;
        size_t n = i < text.length ? qn_text_utf8_read(text.at + i, text.length - i, &code) : 1;
        if (!n) n = 1, code = 0xFFFD;
        for (size_t k = 0; i < text.length && k < sizeof SHORT / sizeof *SHORT; k++)
            if (code == (unsigned char)SHORT[k][0]) snprintf(escape, sizeof escape, "\\%c", SHORT[k][1]);
        if (!*escape && i < text.length && (code < 0x20 || (ascii && code > 0x7E))) {
            if (code < 0x10000) snprintf(escape, sizeof escape, "\\u%04x", code);
            else snprintf(escape, sizeof escape, "\\u%04x\\u%04x", 0xD7C0 + (code >> 10), 0xDC00 + (code & 0x3FF));
        }
        if (*escape || i == text.length) { /* what needed no escape goes in one piece */
            qn_text_tpl_append(t, b, text.at + from, i - from);
            put(t, b, escape);
            from = i + n;
        }
        i += n;
    }
    put(t, b, "\"");
}

static void new_line(tpl *t, tpl_buffer *b, const json_style *style, int level) {
    if (!style->lines || !qn_text_tpl_step(t, (uint64_t)level / 16)) return;
    put(t, b, "\n");
    for (int i = 0; i < level && !t->failed; i++) qn_text_tpl_append(t, b, style->indent.at, style->indent.length);
}

static void dump(tpl *t, tpl_buffer *b, tpl_value v, const json_style *style, int level);

static void dump_dict(tpl *t, tpl_buffer *b, tpl_value v, const json_style *style, int level) {
    const tpl_dict *d = v.as.dict;
    tpl_value keys = qn_text_tpl_list_new(t, d->pairs.n);
    for (size_t i = 0; i < d->pairs.n && !t->failed; i++) qn_text_tpl_list_add(t, keys, d->pairs.at[i].key);
    for (size_t i = 1; style->sorted && !t->failed && i < d->pairs.n; i++) { /* few keys, and a step for each comparison */
        tpl_value key = keys.as.list->items.at[i];
        size_t k = i;
        for (; k > 0 && qn_text_tpl_compare(t, keys.as.list->items.at[k - 1], key) > 0 && !t->failed; k--)
            keys.as.list->items.at[k] = keys.as.list->items.at[k - 1];
        keys.as.list->items.at[k] = key;
    }
    put(t, b, "{");
    for (size_t i = 0; i < d->pairs.n && !t->failed; i++) {
        tpl_value key = keys.as.list->items.at[i], *value = qn_text_tpl_dict_get(t, d, key);
        if (i) qn_text_tpl_append(t, b, style->item.at, style->item.length);
        new_line(t, b, style, level + 1);
        tpl_buffer name = {0};
        if (key.kind != TPL_STRING) dump(t, &name, key, style, 0); /* True is "true" as a name too */
        if (!t->failed) dump_text(t, b, key.kind == TPL_STRING ? key.as.text : tpl_taken(&name), style->ascii);
        qn_text_tpl_append(t, b, style->key.at, style->key.length);
        if (value) dump(t, b, *value, style, level + 1);
    }
    if (d->pairs.n) new_line(t, b, style, level);
    put(t, b, "}");
}

static void dump_list(tpl *t, tpl_buffer *b, tpl_value v, const json_style *style, int level) {
    put(t, b, "[");
    for (size_t i = 0; i < v.as.list->items.n && !t->failed; i++) {
        if (i) qn_text_tpl_append(t, b, style->item.at, style->item.length);
        new_line(t, b, style, level + 1);
        dump(t, b, v.as.list->items.at[i], style, level + 1);
    }
    if (v.as.list->items.n) new_line(t, b, style, level);
    put(t, b, "]");
}

static void dump(tpl *t, tpl_buffer *b, tpl_value v, const json_style *style, int level) {
    char number[32];
    qn_text_tpl_step(t, 1 + (v.kind == TPL_STRING ? v.as.text.length / 16 : 0));
    if (++t->depth > t->most_depth) qn_text_tpl_fail(t, "values nested too deeply");
    if (!t->failed) {
        switch (v.kind) {
        case TPL_NONE: put(t, b, "null"); break;
        case TPL_BOOL: put(t, b, v.as.integer ? "true" : "false"); break;
        case TPL_INT: put(t, b, (snprintf(number, sizeof number, "%lld", (long long)v.as.integer), number)); break;
        case TPL_FLOAT: qn_text_tpl_append(t, b, number, qn_text_number_print(v.as.number, number)); break;
        case TPL_STRING: dump_text(t, b, v.as.text, style->ascii); break;
        case TPL_LIST: dump_list(t, b, v, style, level); break;
        case TPL_DICT: dump_dict(t, b, v, style, level); break;
        default: qn_text_tpl_fail(t, "%s has no JSON", qn_text_tpl_kind_name(v));
        }
    }
    t->depth--;
}

/* tojson(indent, ensure_ascii, separators, sort_keys) */
tpl_value qn_text_tpl_filter_tojson(tpl *t, const tpl_args *args) {
    json_style style = {.item = {", ", 2}, .key = {": ", 2}, .indent = {"", 0}};
    tpl_buffer b = {0};
    if (tpl_given(args, 1) && args->at[1].kind != TPL_NONE) {
        style.lines = 1;
        style.item = (qn_text){",", 1};
        if (args->at[1].kind == TPL_STRING) {
            style.indent = args->at[1].as.text;
        } else if (args->at[1].kind == TPL_INT && args->at[1].as.integer <= 64) {
            static const char SPACES[] = "                                                                ";
            style.indent = (qn_text){SPACES, args->at[1].as.integer > 0 ? (size_t)args->at[1].as.integer : 0};
        } else {
            return qn_text_tpl_fail(t, "tojson: indent is a text or an integer up to 64");
        }
    }
    style.ascii = tpl_given(args, 2) && qn_text_tpl_truth(args->at[2]);
    if (tpl_given(args, 3) && args->at[3].kind == TPL_LIST && args->at[3].as.list->items.n == 2) {
        style.item = qn_text_tpl_string(t, args->at[3].as.list->items.at[0]);
        style.key = qn_text_tpl_string(t, args->at[3].as.list->items.at[1]);
    }
    style.sorted = tpl_given(args, 4) && qn_text_tpl_truth(args->at[4]);
    if (args->at[0].kind == TPL_UNDEFINED) return qn_text_tpl_fail(t, "tojson of something undefined");
    dump(t, &b, args->at[0], &style, 0);
    return tpl_text(tpl_taken(&b));
}
