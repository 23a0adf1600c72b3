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

qn_status qn_text_schema_quoted(schema_writer *w, qn_text text) {
    static const char SHORT[][2] = {{'"', '"'}, {'\\', '\\'}, {'\b', 'b'}, {'\f', 'f'}, {'\n', 'n'}, {'\r', 'r'}, {'\t', 't'}};
    static const char HEX[] = "0123456789abcdef";
    qn_status status = qn_text_schema_put(w, "\"\\\"");
    for (size_t i = 0; i < text.length && status == QN_OK; i++) {
        unsigned char c = (unsigned char)text.at[i];
        char escape[6] = {'\\', 'u', '0', '0', HEX[c >> 4], HEX[c & 15]};
        size_t n = c < 0x20 ? 6 : 0;
        for (size_t k = 0; k < sizeof SHORT / sizeof *SHORT; k++)
            if (c == (unsigned char)SHORT[k][0]) escape[1] = SHORT[k][1], n = 2;
        status = n ? put_bytes(w, escape, n) : put_bytes(w, text.at + i, 1);
    }
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
