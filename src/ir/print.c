/* A graph as .qir text. One statement a line, in the order of values, so that reading it back gives every value its number again. */
#include <stdio.h>

#include "ir/number.h"
#include "ir/qir.h"
#include "tensor/dtype.h"

enum { WRITE_BYTES = 4096, MOST_NUMBERS = 64 };

typedef struct printer {
    const qn_graph *g;
    qn_graph_write_fn write;
    void *user;
    qn_status status;
    int depth; /* of the body that is being printed; 0 outside */
    size_t n;
    char buffer[WRITE_BYTES];
} printer;

static void flush(printer *p) {
    if (p->n && p->status == QN_OK) p->status = p->write(p->user, p->buffer, p->n);
    p->n = 0;
}

static void put(void *user, const char *text, size_t n) {
    printer *p = user;
    for (size_t done = 0; done < n && p->status == QN_OK;) {
        size_t fits = sizeof p->buffer - p->n < n - done ? sizeof p->buffer - p->n : n - done;
        memcpy(p->buffer + p->n, text + done, fits);
        p->n += fits;
        done += fits;
        if (p->n == sizeof p->buffer) flush(p);
    }
}

static void put_text(printer *p, const char *text) { put(p, text, strlen(text)); }

static void put_indent(printer *p) {
    for (int i = 0; i < p->depth; i++) put_text(p, "  ");
}

static void put_number(printer *p, int64_t v) {
    char text[32];
    put(p, text, (size_t)snprintf(text, sizeof text, "%lld", (long long)v));
}

/* Whether a leaf goes by its name: when that can be written, and no input has it already. */
static int goes_by_name(const qn_graph *g, const qn_ir_value *v) {
    const char *name = qn_ir_string(g, v->name), *c = name;
    if (v->kind != QN_VALUE_INPUT && v->kind != QN_VALUE_PARAM) return 0;
    if (v->kind == QN_VALUE_PARAM && qn_ir_name_find(g, name)->input != QN_VAL_NONE) return 0;
    if (!*c || (*c >= '0' && *c <= '9') || *c == '.') return 0;
    for (; *c; c++) {
        char one[2] = {*c == '.' || (*c >= '0' && *c <= '9') ? '_' : *c, 0};
        if (!qn_ir_is_word(one)) return 0;
    }
    return 1;
}

static void put_value(printer *p, qn_val v) {
    if (v == QN_VAL_NONE) {
        put_text(p, "_");
        return;
    }
    const qn_ir_value *value = &p->g->values.at[v];
    put_text(p, "%");
    if (goes_by_name(p->g, value)) put_text(p, qn_ir_string(p->g, value->name));
    else put_number(p, v);
}

static void put_shape(const qn_graph *g, const qn_shape *s, qn_ir_put_fn to, void *user) {
    const qn_dtype_info *type = qn_dtype_describe((qn_dtype)s->dtype);
    const char *name = type ? type->name : "?";
    to(user, name, strlen(name));
    to(user, "[", 1);
    for (int k = 0; k < s->rank && k < QN_MAX_RANK; k++) {
        if (k) to(user, ", ", 2);
        qn_ir_put_dim(g, s->d[k], to, user);
    }
    to(user, "]", 1);
}

int qn_ir_shape_format(const qn_graph *g, const qn_shape *shape, char *text, size_t size) {
    qn_ir_room room = {text, size, 0};
    if (size) text[0] = 0;
    put_shape(g, shape, qn_ir_put_room, &room);
    return (int)room.wanted;
}

static void put_symbols(printer *p) {
    for (size_t i = 0; i < p->g->symbols.n; i++) {
        const qn_ir_symbol *s = &p->g->symbols.at[i];
        const char *name = qn_ir_string(p->g, s->name);
        put_text(p, "symbol ");
        if (qn_ir_is_word(name)) put_text(p, name);
        else qn_ir_put_quoted(put, p, name);
        put_text(p, " ");
        put_number(p, s->least);
        put_text(p, "..");
        put_number(p, s->most);
        if (s->multiple_of != 1) {
            put_text(p, " by ");
            put_number(p, s->multiple_of);
        }
        put_text(p, "\n");
    }
}

/* ---- Constants: few numbers as numbers, everything else as bytes. */

static void put_base64(printer *p, const unsigned char *data, size_t n) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    put_text(p, "\"");
    for (size_t i = 0; i < n; i += 3) {
        size_t left = n - i;
        uint32_t group = (uint32_t)data[i] << 16 | (uint32_t)(left > 1 ? data[i + 1] : 0) << 8 | (left > 2 ? data[i + 2] : 0u);
        char text[4];
        for (int k = 0; k < 4; k++) text[k] = digits[group >> (18 - 6 * k) & 63];
        if (left < 3) text[3] = '=';
        if (left < 2) text[2] = '=';
        put(p, text, 4);
    }
    put_text(p, "\"");
}

static void put_data(printer *p, qn_dtype dtype, const qn_ir_constant *c) {
    char text[QN_NUMBER_ROOM];
    const char *data = c->data;
    size_t each = (size_t)qn_dtype_bytes(dtype), n = c->bytes / each;
    int as_numbers = qn_ir_number_is(dtype) && n > 0 && n <= MOST_NUMBERS;
    for (size_t i = 0; as_numbers && i < n; i++) as_numbers = qn_ir_number_format(dtype, data + i * each, text);
    if (!as_numbers) put_base64(p, c->data, c->bytes);
    for (size_t i = 0; as_numbers && i < n; i++) {
        if (i) put_text(p, ", ");
        qn_ir_number_format(dtype, data + i * each, text);
        put_text(p, text);
    }
}

static void put_leaf(printer *p, qn_val number) {
    static const char *const words[] = {"input ", "param ", "const "};
    const qn_ir_value *v = &p->g->values.at[number];
    put_indent(p);
    put_text(p, words[v->kind]);
    put_value(p, number);
    put_text(p, " ");
    put_shape(p->g, &v->shape, put, p);
    if (v->kind == QN_VALUE_CONSTANT) {
        put_text(p, " = ");
        put_data(p, (qn_dtype)v->shape.dtype, &p->g->constants.at[v->data]);
    } else if (!goes_by_name(p->g, v)) {
        put_text(p, " ");
        qn_ir_put_quoted(put, p, qn_ir_string(p->g, v->name));
    }
    put_text(p, "\n");
}

/* ---- Nodes */

int qn_ir_attr_differs(const qn_op_info *op, const qn_attr_info *a, const void *record) {
    const char *field = (const char *)record + a->offset, *initial = (const char *)op->attr_default + a->offset;
    if (a->kind == QN_ATTR_KIND_dims) return ((const qn_dims *)(const void *)field)->rank != 0;
    if (a->kind == QN_ATTR_KIND_words) return ((const qn_code *)(const void *)field)->count != 0;
    return memcmp(field, initial, a->bytes) != 0;
}

static void put_statements(printer *p);

/* Statements of its own between braces, its values in a scope of their own. */
static void put_body(printer *p, const qn_graph *body) {
    const qn_graph *outside = p->g;
    put_text(p, "{\n");
    p->g = body;
    p->depth++;
    put_statements(p);
    p->depth--;
    p->g = outside;
    put_indent(p);
    put_text(p, "}");
}

static void put_words(printer *p, const qn_code *list) {
    char text[16];
    for (int k = 0; k < list->count; k++)
        put(p, text, (size_t)snprintf(text, sizeof text, "%s0x%08x", k ? ", " : "(", (unsigned)list->w[k]));
    put_text(p, ")");
}

static void put_attribute(printer *p, const qn_attr_info *a, const void *field) {
    char text[QN_NUMBER_ROOM] = "0";
    int32_t i32 = 0;
    const qn_dims *list = field;
    const qn_graph *body;
    put_text(p, a->name);
    put_text(p, "=");
    switch (a->kind) {
    case QN_ATTR_KIND_f32:
        qn_ir_number_format(QN_DTYPE_F32, field, text); /* the guard lets no NaN in */
        put_text(p, text);
        break;
    case QN_ATTR_KIND_i64: qn_ir_put_dim(p->g, *(const int64_t *)field, put, p); break;
    case QN_ATTR_KIND_dtype:
        memcpy(&i32, field, sizeof i32);
        put_text(p, i32 ? qn_dtype_describe((qn_dtype)i32)->name : "none");
        break;
    case QN_ATTR_KIND_dims:
        put_text(p, "(");
        for (int k = 0; k < list->rank; k++) {
            if (k) put_text(p, ", ");
            qn_ir_put_dim(p->g, list->d[k], put, p);
        }
        put_text(p, ")");
        break;
    case QN_ATTR_KIND_words: put_words(p, field); break;
    case QN_ATTR_KIND_body:
        memcpy(&body, field, sizeof body);
        put_body(p, body);
        break;
    default:
        memcpy(&i32, field, sizeof i32);
        put_number(p, i32);
        break;
    }
}

/* Whether the op would take the node without a record of attributes; some say so of a record that holds nothing but defaults. */
static int takes_defaults(const qn_graph *g, const qn_ir_node *n) {
    const qn_shape *src[QN_MAX_SRC] = {0};
    qn_shape out[QN_MAX_DST];
    qn_result result;
    int n_out;
    memset(&result, 0, sizeof result);
    for (int i = 0; i < n->n_src; i++) {
        qn_val s = qn_ir_sources(g, n)[i];
        if (s != QN_VAL_NONE) src[i] = &g->values.at[s].probe;
    }
    return qn_ir_infer(n->op, n->subop, n->n_src, src, NULL, out, &n_out, &result) == QN_OK;
}

static void put_attributes(printer *p, const qn_ir_node *n) {
    const qn_op_info *op = qn_op_describe(n->op);
    int any = 0;
    for (int i = 0; n->attr && i < op->n_attr; i++) {
        const qn_attr_info *a = &op->attr[i];
        if (!a->required && !qn_ir_attr_differs(op, a, n->attr)) continue;
        put_text(p, any++ ? ", " : " {");
        put_attribute(p, a, (const char *)n->attr + a->offset);
    }
    if (any) put_text(p, "}");
    else if (n->attr && !takes_defaults(p->g, n)) put_text(p, " {}");
}

static void put_node(printer *p, const qn_ir_node *n) {
    put_indent(p);
    for (int i = 0; i < n->n_out; i++) {
        if (i) put_text(p, ", ");
        put_value(p, n->out + i);
    }
    put_text(p, " = ");
    put_text(p, qn_op_describe(n->op)->name);
    if (qn_subop_count(n->op)) {
        put_text(p, ".");
        put_text(p, qn_subop_name(n->op, n->subop));
    }
    for (int i = 0; i < n->n_src; i++) {
        put_text(p, " ");
        put_value(p, qn_ir_sources(p->g, n)[i]);
    }
    put_attributes(p, n);
    for (int i = 0; i < n->n_out; i++) {
        put_text(p, i ? ", " : " : ");
        put_shape(p->g, &p->g->values.at[n->out + i].shape, put, p);
    }
    if (*qn_ir_string(p->g, n->label)) {
        put_text(p, " @");
        qn_ir_put_quoted(put, p, qn_ir_string(p->g, n->label));
    }
    put_text(p, "\n");
}

/* Callbacks have no text. Found before anything is written. */
static qn_status check_callbacks(const qn_graph *g, qn_error *error) {
    for (size_t k = 0; k < g->nodes.n; k++) {
        const qn_ir_node *n = &g->nodes.at[k];
        const qn_op_info *op = qn_op_describe(n->op);
        for (int i = 0; i < op->n_attr; i++)
            if (qn_ir_body(op, i, n->attr)) QN_TRY(check_callbacks(qn_ir_body(op, i, n->attr), error));
        for (int i = 0; n->attr && i < op->n_attr; i++)
            if (op->attr[i].kind == QN_ATTR_KIND_fn && qn_ir_attr_differs(op, &op->attr[i], n->attr))
                return qn_error_set(error, QN_UNSUPPORTED, "node %zu: %s: attribute '%s' is a callback, which text cannot hold",
                                    k, op->name, op->attr[i].name);
    }
    return QN_OK;
}

static void put_statements(printer *p) {
    const qn_graph *g = p->g;
    for (size_t i = 0; i < g->values.n && p->status == QN_OK; i++) {
        const qn_ir_value *v = &g->values.at[i];
        if (v->kind != QN_VALUE_RESULT) put_leaf(p, (qn_val)i);
        else if (v->output == 0) put_node(p, &g->nodes.at[v->node]);
    }
    for (size_t i = 0; i < g->outputs.n && p->status == QN_OK; i++) {
        put_indent(p);
        put_text(p, "output ");
        put_value(p, g->outputs.at[i].value);
        put_text(p, " ");
        qn_ir_put_quoted(put, p, qn_ir_string(g, g->outputs.at[i].name));
        put_text(p, "\n");
    }
}

qn_status qn_graph_print(const qn_graph *g, qn_graph_write_fn write, void *user, qn_error *error) {
    if (!g || !write) return qn_error_set(error, QN_ARGUMENT, "a graph and a function to write with are needed");
    if (g->error.status != QN_OK) return qn_graph_error(g, error);
    QN_TRY(check_callbacks(g, error));
    printer p;
    p.g = g;
    p.write = write;
    p.user = user;
    p.status = QN_OK;
    p.depth = 0;
    p.n = 0;
    put_text(&p, "quern graph 1\n");
    put_symbols(&p);
    put_statements(&p);
    flush(&p);
    return p.status == QN_OK ? QN_OK : qn_error_set(error, p.status, "the text of a graph could not be written");
}
