/* .qir text into a graph, statement by statement, through the builder: what the builder would refuse, the text is refused for. The
 * text is anybody's. Nothing here recurses over it but bodies and brackets in dims, both of bounded depth, and everything allocated counts
 * against the graph's limit. */
#include <stdio.h>
#include <stdlib.h>

#include "ir/qir.h"

static int header(qir_reader *r) {
    qir_span word;
    int64_t version;
    while (qn_qir_at_line_end(r))
        if (!qn_qir_next_line(r)) return qn_qir_fail(r, r->at, "there is no graph here: the first line must be 'quern graph 1'");
    const char *at = r->at;
    if (!qn_qir_word(r, "'quern graph 1'", &word) || !qn_qir_is(word, "quern") || !qn_qir_word(r, "'quern graph 1'", &word) ||
        !qn_qir_is(word, "graph"))
        return qn_qir_fail(r, at, "the first line must be 'quern graph 1'");
    if (!qn_qir_integer(r, "a version", &version)) return 0;
    return version == 1 ? 1
                        : qn_qir_fail(r, at, "version %lld of the text form is not known, this is version 1", (long long)version);
}

static int symbol(qir_reader *r) {
    int64_t least, most, by = 1;
    qir_span word;
    qn_qir_skip_blanks(r);
    const char *at = r->at;
    if (r->depth) return qn_qir_fail(r, at, "symbols are declared outside of bodies, which have them all");
    if (qn_qir_peek(r) == '"') {
        if (!qn_qir_string(r, "a symbol's name")) return 0;
    } else {
        if (!qn_qir_word(r, "a symbol's name", &word)) return 0;
        r->string.n = 0;
        if (!QN_VEC_ROOM(r->arena, &r->string, word.n + 1)) return qn_qir_no_memory(r);
        memcpy(r->string.at, word.at, word.n);
        r->string.at[word.n] = 0;
    }
    for (size_t i = 0; i < r->g->symbols.n; i++)
        if (strcmp(qn_ir_string(r->g, r->g->symbols.at[i].name), r->string.at) == 0)
            return qn_qir_fail(r, at, "this symbol is declared already");
    if (!qn_qir_integer(r, "the least extent", &least) || !qn_qir_expect(r, '.', "between the bounds") ||
        !qn_qir_expect(r, '.', "between the bounds") || !qn_qir_integer(r, "the largest extent", &most))
        return 0;
    if (!qn_qir_at_line_end(r)) {
        if (!qn_qir_word(r, "'by'", &word)) return 0;
        if (!qn_qir_is(word, "by")) return qn_qir_fail(r, word.at, "only 'by' may follow a symbol's bounds");
        if (!qn_qir_integer(r, "a step", &by)) return 0;
    }
    qn_graph_symbol(r->g, r->string.at, least, most, by);
    return qn_qir_check_graph(r, at);
}

static int leaf(qir_reader *r, qn_value_kind kind) {
    qir_span name;
    qn_shape shape;
    qn_val value;
    qn_qir_skip_blanks(r);
    const char *at = r->at;
    if (r->depth && kind == QN_VALUE_PARAM) return qn_qir_fail(r, at, "a body has no params: pass it in as a source");
    if (!qn_qir_value_name(r, &name) || !qn_qir_type(r, &shape)) return 0;
    if (kind == QN_VALUE_CONSTANT) {
        if (!qn_qir_expect(r, '=', "before the data") || !qn_qir_constant(r, &shape)) return 0;
        value = qn_graph_constant(r->g, (qn_dtype)shape.dtype, shape.rank, shape.d, r->data.at, r->data.n);
        return qn_qir_check_graph(r, at) && qn_qir_define(r, name, value);
    }
    if (qn_qir_peek(r) == '"') {
        if (!qn_qir_string(r, "a name")) return 0;
    } else { /* the value's name is its name */
        r->string.n = 0;
        if (!QN_VEC_ROOM(r->arena, &r->string, name.n + 1)) return qn_qir_no_memory(r);
        memcpy(r->string.at, name.at, name.n);
        r->string.at[name.n] = 0;
    }
    value = (kind == QN_VALUE_INPUT ? qn_graph_input : qn_graph_param)(r->g, r->string.at, (qn_dtype)shape.dtype, shape.rank,
                                                                       shape.d);
    return qn_qir_check_graph(r, at) && qn_qir_define(r, name, value);
}

static int used_value(qir_reader *r, qn_val *value) {
    char text[64];
    qir_span name;
    if (!qn_qir_value_name(r, &name)) return 0;
    return qn_qir_find(r, name, value) ||
           qn_qir_fail(r, name.at - 1, "%%%s is used before it is defined", qn_qir_copy(name, text, sizeof text));
}

static int output(qir_reader *r) {
    qn_val value;
    qn_qir_skip_blanks(r);
    const char *at = r->at;
    if (!used_value(r, &value) || !qn_qir_string(r, "the output's name")) return 0;
    qn_graph_output(r->g, value, r->string.at);
    return qn_qir_check_graph(r, at);
}

/* A node's line, before it is believed. */
typedef struct statement {
    qir_span out[QN_MAX_DST];
    int n_out, n_src, n_types;
    qn_val src[QN_MAX_SRC];
    int op, subop;
    const char *op_at;
    const char *type_at[QN_MAX_DST];
    qn_shape type[QN_MAX_DST];
    int has_attr;
    _Alignas(16) char attr[QN_ATTR_BYTES_MAX];
} statement;

static const char *name_of_op(const void *user, int op) {
    (void)user;
    return op < QN_OP_COUNT ? qn_op_describe(op)->name : NULL;
}

static const char *name_of_subop(const void *op, int subop) { return qn_subop_name(*(const int32_t *)op, subop); }

/* "; did you mean 'matmul'?" when a name is near; "; it is unary.relu" for a sub-op, but none of those that derivatives are made of. */
static const char *meant(const char *name, const char *(*name_at)(const void *, int), const void *user, char *text, size_t size) {
    int near;
    text[0] = 0;
    for (int op = 0; !user && op < QN_OP_COUNT; op++) {
        const char *owner = qn_op_describe(op)->name;
        if (qn_subop_from_name(op, name) < 0 || strstr(owner, "_back") || strstr(owner, "_tangent")) continue;
        snprintf(text, size, "; it is written %s.%s", owner, name);
        return text;
    }
    if (qn_nearest_names(name, name_at, user, &near, 1)) snprintf(text, size, "; did you mean '%s'?", name_at(user, near));
    return text;
}

static int op_name(qir_reader *r, statement *s) {
    char text[64], more[160];
    qir_span word;
    if (!qn_qir_word(r, "an op", &word)) return 0;
    s->op_at = word.at;
    s->op = word.n < sizeof text ? qn_op_from_name(qn_qir_copy(word, text, sizeof text)) : -1;
    if (s->op < 0) {
        qn_qir_copy(word, text, sizeof text);
        return qn_qir_fail(r, word.at, "there is no op '%s'%s", text, meant(text, name_of_op, NULL, more, sizeof more));
    }
    int subops = qn_subop_count(s->op);
    if (!subops && (r->at == r->end || *r->at != '.')) return 1;
    if (!subops) return qn_qir_fail(r, r->at, "%s has no sub-ops", qn_op_describe(s->op)->name);
    if (!qn_qir_expect(r, '.', "and a sub-op") || !qn_qir_word(r, "a sub-op", &word)) return 0;
    s->subop = word.n < sizeof text ? qn_subop_from_name(s->op, qn_qir_copy(word, text, sizeof text)) : -1;
    if (s->subop >= 0) return 1;
    qn_qir_copy(word, text, sizeof text);
    return qn_qir_fail(r, word.at, "%s has no sub-op '%s'%s", qn_op_describe(s->op)->name, text,
                       meant(text, name_of_subop, &s->op, more, sizeof more));
}

static int sources(qir_reader *r, statement *s) {
    for (int c = qn_qir_peek(r); c == '%' || c == '_'; c = qn_qir_peek(r)) {
        if (s->n_src == QN_MAX_SRC) return qn_qir_fail(r, r->at, "more than %d sources", QN_MAX_SRC);
        qn_val *src = &s->src[s->n_src++];
        *src = QN_VAL_NONE;
        if (c == '_') r->at++;
        else if (!used_value(r, src)) return 0;
    }
    return 1;
}

static int types(qir_reader *r, statement *s) {
    do {
        if (s->n_types == s->n_out) return qn_qir_fail(r, r->at, "more types than results");
        qn_qir_skip_blanks(r);
        s->type_at[s->n_types] = r->at;
        if (!qn_qir_type(r, &s->type[s->n_types++])) return 0;
    } while (qn_qir_accept(r, ','));
    return s->n_types == s->n_out || qn_qir_fail(r, r->at, "%d types for %d results", s->n_types, s->n_out);
}

/* The types that are written are promises about what the op infers. */
static int check_types(qir_reader *r, const statement *s, const qn_val *made) {
    char is[160], written[160], name[64];
    for (int i = 0; i < s->n_types; i++) {
        const qn_shape *shape = &r->g->values.at[made[i]].shape;
        int same = shape->dtype == s->type[i].dtype && shape->rank == s->type[i].rank;
        for (int k = 0; same && k < shape->rank; k++) same = shape->d[k] == s->type[i].d[k];
        if (same) continue;
        qn_ir_shape_format(r->g, shape, is, sizeof is);
        qn_ir_shape_format(r->g, &s->type[i], written, sizeof written);
        return qn_qir_fail(r, s->type_at[i], "%%%s is %s, but %s is written", qn_qir_copy(s->out[i], name, sizeof name), is,
                           written);
    }
    return 1;
}

static int finish_node(qir_reader *r, const statement *s) {
    qn_val made[QN_MAX_DST];
    qn_ir_apply(r->g, s->op, s->subop, s->n_src, s->src, s->has_attr ? s->attr : NULL, s->n_out, made);
    if (!qn_qir_check_graph(r, s->op_at) || !check_types(r, s, made)) return 0;
    for (int i = 0; i < s->n_out; i++)
        if (!qn_qir_define(r, s->out[i], made[i])) return 0;
    return 1;
}

static int node(qir_reader *r) {
    statement s;
    memset(&s, 0, sizeof s);
    do {
        if (s.n_out == QN_MAX_DST) return qn_qir_fail(r, r->at, "more than %d results", QN_MAX_DST);
        if (!qn_qir_value_name(r, &s.out[s.n_out++])) return 0;
    } while (qn_qir_accept(r, ','));
    if (!qn_qir_expect(r, '=', "behind the results") || !op_name(r, &s) || !sources(r, &s)) return 0;
    if (qn_qir_peek(r) == '{') {
        s.has_attr = 1;
        if (!qn_qir_attributes(r, qn_op_describe(s.op), s.attr)) return 0;
    }
    if (qn_qir_accept(r, ':') && !types(r, &s)) return 0;
    r->g->forced_label = 0;
    if (qn_qir_accept(r, '@')) {
        if (!qn_qir_string(r, "a label")) return 0;
        r->g->forced_label = qn_ir_text(r->g, r->string.at);
        if (!qn_qir_check_graph(r, r->at)) return 0;
    }
    return finish_node(r, &s);
}

static int line(qir_reader *r) {
    char text[32];
    qir_span word;
    if (qn_qir_at_line_end(r)) return 1;
    if (qn_qir_peek(r) == '%') return node(r);
    if (!qn_qir_word(r, "a statement", &word)) return 0;
    if (qn_qir_is(word, "symbol")) return symbol(r);
    if (qn_qir_is(word, "input")) return leaf(r, QN_VALUE_INPUT);
    if (qn_qir_is(word, "param")) return leaf(r, QN_VALUE_PARAM);
    if (qn_qir_is(word, "const")) return leaf(r, QN_VALUE_CONSTANT);
    if (qn_qir_is(word, "output")) return output(r);
    return qn_qir_fail(r, word.at, "'%s' is no statement: symbol, input, param, const, output, or %%name = op",
                       qn_qir_copy(word, text, sizeof text));
}

/* Lines up to one that begins with a closing brace. */
static int body_lines(qir_reader *r) {
    for (;;) {
        if (!qn_qir_at_line_end(r)) return qn_qir_fail(r, r->at, "nothing may follow here");
        if (!qn_qir_next_line(r)) return qn_qir_fail(r, r->at, "this body is not closed: a line must begin with '}'");
        if (qn_qir_accept(r, '}')) return 1;
        if (!line(r)) return 0;
    }
}

int qn_qir_body(qir_reader *r, const qn_graph **body) {
    const char *at = r->at;
    if (!qn_qir_expect(r, '{', "before a body")) return 0;
    if (r->depth == QN_IR_MAX_DEPTH) return qn_qir_fail(r, at, "more than %d bodies in one another", QN_IR_MAX_DEPTH);
    qir_reader outside = *r;
    if (qn_ir_body_create(outside.g, &r->g) != QN_OK) {
        r->g = outside.g;
        return qn_qir_check_graph(r, at);
    }
    memset(&r->names, 0, sizeof r->names);
    r->n_names = 0;
    r->depth++;
    int ok = body_lines(r);
    qn_graph *made = r->g;
    made->forced_label = 0;
    qn_arena_release(r->arena, r->names.at);
    r->names = outside.names;
    r->n_names = outside.n_names;
    r->g = outside.g;
    r->depth--;
    if (!ok) {
        qn_graph_destroy(made);
        return 0;
    }
    *body = made;
    qn_ir_body_own(r->g, made);
    return qn_qir_check_graph(r, at);
}

static int whole(qir_reader *r) {
    if (!header(r)) return 0;
    do {
        if (!qn_qir_at_line_end(r)) return qn_qir_fail(r, r->at, "nothing may follow here");
        if (!qn_qir_next_line(r)) return 1;
    } while (line(r));
    return 0;
}

qn_status qn_graph_parse(const char *text, size_t bytes, size_t allocation_limit, qn_graph **graph, qn_error *error) {
    qn_error own;
    if (!error) error = &own;
    if (!graph || (!text && bytes)) return qn_error_set(error, QN_ARGUMENT, "a text and a place for the graph are needed");
    *graph = NULL;
    if (!text) text = "";
    qir_reader r = {.at = text, .start = text, .end = text + bytes, .error = error};
    if (qn_graph_create(allocation_limit, &r.g) != QN_OK) return qn_error_set(error, QN_NO_MEMORY, "1:1: no memory for a graph");
    r.arena = &r.g->arena;
    int ok = whole(&r);
    qn_arena_release(&r.g->arena, r.names.at);
    QN_VEC_FREE(&r.g->arena, &r.string);
    QN_VEC_FREE(&r.g->arena, &r.data);
    if (!ok) {
        qn_graph_destroy(r.g);
        return error->status;
    }
    r.g->forced_label = 0;
    *graph = r.g;
    return qn_error_set(error, QN_OK, "%s", "");
}
