/* Values of enum and const, as the literals that JSON writes for them. */
#include "text/schema.h"

/* Bytes of a JSON text inside a literal of the grammar, which escapes quotes and backslashes once more. */
static qn_status put_bytes(schema_writer *w, const char *at, size_t n) {
    qn_status status = QN_OK;
    for (size_t i = 0; i < n && status == QN_OK; i++)
        status = qn_text_schema_put(w,
                                    at[i] == '"' || at[i] == '\\'  ? "\\%c"
                                    : (unsigned char)at[i] == 0x7F ? "\\x%02X"
                                                                   : "%c",
                                    at[i]);
    return status;
}

qn_status qn_text_schema_inside(schema_writer *w, qn_text text) {
    static const char SHORT[][2] = {{'"', '"'}, {'\\', '\\'}, {'\b', 'b'}, {'\f', 'f'}, {'\n', 'n'}, {'\r', 'r'}, {'\t', 't'}};
    static const char HEX[] = "0123456789abcdef";
    qn_status status = QN_OK;
    for (size_t i = 0; i < text.length && status == QN_OK; i++) {
        unsigned char c = (unsigned char)text.at[i];
        char escape[6] = {'\\', 'u', '0', '0', HEX[c >> 4], HEX[c & 15]};
        size_t n = c < 0x20 ? 6 : 0;
        for (size_t k = 0; k < sizeof SHORT / sizeof *SHORT; k++)
            if (c == (unsigned char)SHORT[k][0]) escape[1] = SHORT[k][1], n = 2;
        status = n ? put_bytes(w, escape, n) : put_bytes(w, text.at + i, 1);
    }
    return status;
}

qn_status qn_text_schema_quoted(schema_writer *w, qn_text text) {
    qn_status status = qn_text_schema_put(w, "\"\\\"");
    if (status == QN_OK) status = qn_text_schema_inside(w, text);
    return status == QN_OK ? qn_text_schema_put(w, "\\\"\"") : status;
}

/* With spaces where JSON may have them. The depth of the document bounds the recursion. */
qn_status qn_text_schema_value(schema_writer *w, const json_node *value) {
    char number[32];
    int object = value->kind == JSON_OBJECT;
    if (value->kind == JSON_NULL) return qn_text_schema_put(w, "\"null\"");
    if (value->kind == JSON_BOOL) return qn_text_schema_put(w, value->integer ? "\"true\"" : "\"false\"");
    if (value->kind == JSON_INT) return qn_text_schema_put(w, "\"%lld\"", (long long)value->integer);
    if (value->kind == JSON_STRING) return qn_text_schema_quoted(w, value->text);
    if (value->kind == JSON_FLOAT) {
        if (value->text.length) /* an integer beyond 64 bits, to the last digit */
            return qn_text_schema_put(w, "\"%.*s\"", (int)value->text.length, value->text.at);
        if (value->number - value->number != 0)
            return qn_text_schema_fault(w, "a number beyond what a double holds is not known");
        qn_text_number_print(value->number, number);
        return qn_text_schema_put(w, "\"%s\"", number);
    }
    const char *space = qn_text_schema_rule(w, "space");
    qn_status status = qn_text_schema_put(w, "\"%s\" %s", object ? "{" : "[", space);
    for (const json_node *item = value->first; item && status == QN_OK; item = item->next) {
        if (item != value->first) status = qn_text_schema_put(w, " \",\" %s", space);
        if (status == QN_OK) status = qn_text_schema_put(w, " ");
        if (object && status == QN_OK) status = qn_text_schema_quoted(w, item->key);
        if (object && status == QN_OK) status = qn_text_schema_put(w, " %s \":\" %s ", space, space);
        if (status == QN_OK) status = qn_text_schema_value(w, item);
        if (status == QN_OK) status = qn_text_schema_put(w, " %s", space);
    }
    return status == QN_OK ? qn_text_schema_put(w, " \"%s\"", object ? "}" : "]") : status;
}

static int is_of(const json_node *value, qn_text type) {
    static const struct {
        const char *name;
        json_kind kind;
    } KINDS[] = {{"object", JSON_OBJECT}, {"array", JSON_LIST}, {"string", JSON_STRING}, {"boolean", JSON_BOOL},
                 {"null", JSON_NULL},     {"number", JSON_INT}, {"number", JSON_FLOAT},  {"integer", JSON_INT}};
    for (size_t i = 0; i < sizeof KINDS / sizeof *KINDS; i++)
        if (value->kind == KINDS[i].kind && qn_text_json_is(type, KINDS[i].name)) return 1;
    return value->kind == JSON_FLOAT && value->number == floor(value->number) && qn_text_json_is(type, "integer");
}

int qn_text_schema_is_typed(const json_node *value, const json_node *types) {
    if (!types) return 1;
    if (types->kind == JSON_STRING) return is_of(value, types->text);
    for (const json_node *t = types->kind == JSON_LIST ? types->first : NULL; t; t = t->next)
        if (t->kind == JSON_STRING && is_of(value, t->text)) return 1;
    return 0;
}

/* The depth of the document bounds the recursion. */
int qn_text_schema_same(const json_node *a, const json_node *b) {
    int number = a->kind == JSON_INT || a->kind == JSON_FLOAT;
    if (number && (b->kind == JSON_INT || b->kind == JSON_FLOAT))
        return a->number == b->number && (a->kind != b->kind || a->integer == b->integer);
    if (a->kind != b->kind || a->n != b->n || a->integer != b->integer) return 0;
    if (a->text.length != b->text.length || (a->text.length && memcmp(a->text.at, b->text.at, a->text.length) != 0)) return 0;
    const json_node *y = b->first;
    for (const json_node *x = a->first; x && y; x = x->next, y = y->next) {
        if (x->key.length != y->key.length || (x->key.length && memcmp(x->key.at, y->key.at, x->key.length) != 0)) return 0;
        if (!qn_text_schema_same(x, y)) return 0;
    }
    return 1;
}
