/* What statements of .qir text are made of: names of values, types, dims, attributes, the data of constants. */
#include <stdio.h>

#include "ir/number.h"
#include "ir/qir.h"

/* ---- Names of values */

static uint32_t hash_of(qir_span name) {
    uint32_t h = 2166136261u;
    for (size_t i = 0; i < name.n; i++) h = (h ^ (unsigned char)name.at[i]) * 16777619u;
    return h ^ h >> 15;
}

static qir_name *slot_of(qir_name *names, size_t n, qir_span name, uint32_t hash, int *probes) {
    *probes = 0;
    for (size_t at = hash & (n - 1);; at = (at + 1) & (n - 1), ++*probes) {
        qir_name *s = &names[at];
        if (!s->text.at || (s->hash == hash && s->text.n == name.n && memcmp(s->text.at, name.at, name.n) == 0)) return s;
    }
}

int qn_qir_find(qir_reader *r, qir_span name, qn_val *value) {
    int probes;
    qir_name *s = r->names.n ? slot_of(r->names.at, r->names.n, name, hash_of(name), &probes) : NULL;
    if (!s || !s->text.at) return 0;
    *value = s->value;
    return 1;
}

/* Twice as many slots, every name in its new place. */
static int grow_names(qir_reader *r) {
    size_t n = r->names.n ? r->names.n * 2 : 64;
    int probes;
    qir_name *slots = qn_arena_resize(r->arena, NULL, n, sizeof *slots);
    if (!slots) return qn_qir_no_memory(r);
    memset(slots, 0, n * sizeof *slots);
    for (size_t i = 0; i < r->names.n; i++)
        if (r->names.at[i].text.at) *slot_of(slots, n, r->names.at[i].text, r->names.at[i].hash, &probes) = r->names.at[i];
    qn_arena_release(r->arena, r->names.at);
    r->names.at = slots;
    r->names.n = n;
    return 1;
}

int qn_qir_define(qir_reader *r, qir_span name, qn_val value) {
    char text[64];
    if ((r->n_names + 1) * 2 > r->names.n && !grow_names(r)) return 0;
    uint32_t hash = hash_of(name);
    int probes;
    qir_name *s = slot_of(r->names.at, r->names.n, name, hash, &probes);
    if (probes > QN_IR_MAX_PROBES)
        return qn_qir_fail(r, name.at - 1, "%%%s and %d names before it collide, as no honest names do",
                           qn_qir_copy(name, text, sizeof text), probes);
    if (s->text.at) return qn_qir_fail(r, name.at - 1, "%%%s is defined already", qn_qir_copy(name, text, sizeof text));
    *s = (qir_name){name, hash, value};
    r->n_names++;
    return 1;
}

/* ---- Dims and types. Brackets nest no deeper than the longest dim there can be. */

static int symbol(qir_reader *r, int64_t *dim) {
    char text[64];
    qn_qir_skip_blanks(r);
    const char *at = r->at;
    qir_span word;
    if (qn_qir_peek(r) == '"') {
        if (!qn_qir_string(r, "a symbol")) return 0;
        word = (qir_span){r->string.at, r->string.n};
    } else if (!qn_qir_word(r, "an extent", &word)) {
        return 0;
    }
    for (size_t i = 0; i < r->g->symbols.n; i++) {
        const qn_ir_symbol *s = &r->g->symbols.at[i];
        if (!qn_qir_is(word, qn_ir_string(r->g, s->name))) continue;
        *dim = qn_graph_symbol(r->g, qn_ir_string(r->g, s->name), s->least, s->most, s->multiple_of);
        return qn_qir_check_graph(r, at);
    }
    return qn_qir_fail(r, at, "there is no symbol '%s'", qn_qir_copy(word, text, sizeof text));
}

static int sum(qir_reader *r, int depth, int64_t *dim);

static int atom(qir_reader *r, int depth, int64_t *dim) {
    int c = qn_qir_peek(r);
    if (c == '(') {
        if (depth == QN_IR_MAX_TERMS) return qn_qir_fail(r, r->at, "more than %d brackets in one another", QN_IR_MAX_TERMS);
        r->at++;
        return sum(r, depth + 1, dim) && qn_qir_expect(r, ')', "behind an extent");
    }
    return (c >= '0' && c <= '9') || c == '-' ? qn_qir_integer(r, "an extent", dim) : symbol(r, dim);
}

static int product(qir_reader *r, int depth, int64_t *dim) {
    int64_t right;
    if (!atom(r, depth, dim)) return 0;
    for (;;) {
        const char *at = r->at;
        int times = qn_qir_accept(r, '*');
        if (!times && !qn_qir_accept(r, '/')) return 1;
        if (!atom(r, depth, &right)) return 0;
        *dim = times ? qn_graph_dim(r->g, '*', *dim, right) : qn_graph_dim(r->g, '/', *dim, right);
        if (!qn_qir_check_graph(r, at)) return 0;
    }
}

static int sum(qir_reader *r, int depth, int64_t *dim) {
    int64_t right;
    if (!product(r, depth, dim)) return 0;
    for (;;) {
        const char *at = r->at;
        int plus = qn_qir_accept(r, '+');
        if (!plus && !qn_qir_accept(r, '-')) return 1;
        if (!product(r, depth, &right)) return 0;
        *dim = plus ? qn_graph_dim(r->g, '+', *dim, right) : qn_graph_dim(r->g, '-', *dim, right);
        if (!qn_qir_check_graph(r, at)) return 0;
    }
}

int qn_qir_dim(qir_reader *r, int64_t *dim) { return sum(r, 0, dim); }

static int dtype(qir_reader *r, int may_be_none, uint32_t *number) {
    char text[32];
    qir_span word;
    if (!qn_qir_word(r, "a dtype", &word)) return 0;
    *number = QN_DTYPE_NONE;
    if (may_be_none && qn_qir_is(word, "none")) return 1;
    *number = word.n < sizeof text ? (uint32_t)qn_dtype_from_name(qn_qir_copy(word, text, sizeof text)) : QN_DTYPE_NONE;
    return *number != QN_DTYPE_NONE ? 1 : qn_qir_fail(r, word.at, "there is no dtype '%s'", qn_qir_copy(word, text, sizeof text));
}

int qn_qir_type(qir_reader *r, qn_shape *shape) {
    memset(shape, 0, sizeof *shape);
    if (!dtype(r, 0, &shape->dtype) || !qn_qir_expect(r, '[', "before the extents")) return 0;
    do {
        qn_qir_skip_blanks(r);
        const char *at = r->at;
        if (shape->rank == QN_MAX_RANK) return qn_qir_fail(r, at, "more than %d axes", QN_MAX_RANK);
        int64_t *d = &shape->d[shape->rank++];
        if (!qn_qir_dim(r, d)) return 0;
        if (*d < 0 && !qn_dim_is_symbolic(*d)) return qn_qir_fail(r, at, "an extent cannot be %lld", (long long)*d);
    } while (qn_qir_accept(r, ','));
    return qn_qir_expect(r, ']', "behind the extents");
}

/* ---- Attributes */

static int dims_list(qir_reader *r, qn_dims *list) {
    memset(list, 0, sizeof *list);
    if (!qn_qir_expect(r, '(', "before a list")) return 0;
    if (qn_qir_accept(r, ')')) return 1;
    do {
        if (list->rank == QN_MAX_RANK) return qn_qir_fail(r, r->at, "more than %d numbers in a list", QN_MAX_RANK);
        if (!qn_qir_dim(r, &list->d[list->rank++])) return 0;
    } while (qn_qir_accept(r, ','));
    return qn_qir_expect(r, ')', "behind a list");
}

/* Words of a program, each as 0x and up to eight digits. */
static int words_list(qir_reader *r, qn_code *list) {
    memset(list, 0, sizeof *list);
    if (!qn_qir_expect(r, '(', "before a program")) return 0;
    do {
        char text[64];
        qir_span word;
        uint32_t v = 0;
        if (list->count == QN_MAX_WORDS) return qn_qir_fail(r, r->at, "more than %d words in a program", QN_MAX_WORDS);
        if (!qn_qir_number(r, &word)) return 0;
        size_t n = word.n > 2 && word.n <= 10 && word.at[0] == '0' && word.at[1] == 'x' ? 2 : 0;
        for (; n && n < word.n; n++) {
            int digit = qn_qir_hex_digit(word.at[n]);
            if (digit < 0) break;
            v = v << 4 | (uint32_t)digit;
        }
        if (n == 0 || n < word.n)
            return qn_qir_fail(r, word.at, "'%s' is no word: 0x and one to eight digits", qn_qir_copy(word, text, sizeof text));
        list->w[list->count++] = v;
    } while (qn_qir_accept(r, ','));
    return qn_qir_expect(r, ')', "behind a program");
}

/* Numbers of 32 bits, whose ranges the op's guard checks further. */
static int small_number(qir_reader *r, qn_dtype as, void *field) {
    char text[64];
    qir_span number;
    if (!qn_qir_number(r, &number)) return 0;
    if (qn_ir_number_parse(as, number.at, number.n, field)) return 1;
    return qn_qir_fail(r, number.at, "'%s' is no %s number", qn_qir_copy(number, text, sizeof text), qn_dtype_describe(as)->name);
}

static int attribute_value(qir_reader *r, const qn_attr_info *a, const char *at, void *field) {
    uint32_t number = 0;
    switch (a->kind) {
    case QN_ATTR_KIND_f32: return small_number(r, QN_DTYPE_F32, field);
    case QN_ATTR_KIND_i32:
    case QN_ATTR_KIND_bool: return small_number(r, QN_DTYPE_I32, field);
    case QN_ATTR_KIND_i64: return qn_qir_dim(r, field);
    case QN_ATTR_KIND_dims: return dims_list(r, field);
    case QN_ATTR_KIND_words: return words_list(r, field);
    case QN_ATTR_KIND_dtype:
        if (!dtype(r, a->required ? 0 : 1, &number)) return 0;
        memcpy(field, &number, sizeof number);
        return 1;
    case QN_ATTR_KIND_body: return qn_qir_body(r, field);
    case QN_ATTR_KIND_fn: break;
    }
    return qn_qir_fail(r, at, "attribute '%s' is a callback, which text cannot hold", a->name);
}

static int attribute(qir_reader *r, const qn_op_info *op, uint64_t *seen, void *record) {
    char text[64];
    qir_span word;
    if (!qn_qir_word(r, "an attribute", &word)) return 0;
    int i = 0;
    while (i < op->n_attr && !qn_qir_is(word, op->attr[i].name)) i++;
    if (i == op->n_attr)
        return qn_qir_fail(r, word.at, "%s has no attribute '%s'", op->name, qn_qir_copy(word, text, sizeof text));
    if (*seen >> i & 1) return qn_qir_fail(r, word.at, "attribute '%s' is given twice", op->attr[i].name);
    *seen |= (uint64_t)1 << i;
    return qn_qir_expect(r, '=', "behind an attribute") &&
           attribute_value(r, &op->attr[i], word.at, (char *)record + op->attr[i].offset);
}

int qn_qir_attributes(qir_reader *r, const qn_op_info *op, void *record) {
    uint64_t seen = 0;
    memcpy(record, op->attr_default, op->attr_bytes);
    if (!qn_qir_expect(r, '{', "before attributes")) return 0;
    if (qn_qir_accept(r, '}')) return 1;
    do {
        if (!attribute(r, op, &seen, record)) return 0;
    } while (qn_qir_accept(r, ','));
    return qn_qir_expect(r, '}', "behind the attributes");
}

/* ---- Constants. The data is never longer than the text it is written in, times eight. */

static int base64_digit(char c) {
    if (c >= 'A' && c <= 'Z') return c - 'A';
    if (c >= 'a' && c <= 'z') return c - 'a' + 26;
    if (c >= '0' && c <= '9') return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

static int constant_bytes(qir_reader *r) {
    const char *start = r->at++, *quote = memchr(r->at, '"', (size_t)(r->end - r->at));
    size_t n = quote ? (size_t)(quote - r->at) : 0, pad = 0;
    if (!quote) return qn_qir_fail(r, start, "these bytes are not closed");
    while (pad < 2 && pad < n && r->at[n - 1 - pad] == '=') pad++;
    if (n % 4) return qn_qir_fail(r, start, "base64 comes in groups of four, here are %zu characters", n);
    if (!QN_VEC_ROOM(r->arena, &r->data, n / 4 * 3 + 1)) return qn_qir_no_memory(r);
    for (size_t i = 0; i < n; i += 4) {
        uint32_t group = 0;
        for (size_t k = 0; k < 4; k++) {
            int digit = i + k >= n - pad ? 0 : base64_digit(r->at[i + k]);
            if (digit < 0) return qn_qir_fail(r, r->at + i + k, "this is no character of base64");
            group = group << 6 | (uint32_t)digit;
        }
        for (int k = 0; k < 3; k++) r->data.at[r->data.n++] = (char)(group >> (16 - 8 * k));
    }
    for (size_t k = 1; k <= pad; k++)
        if (r->data.at[r->data.n - k]) return qn_qir_fail(r, quote - pad - 1, "base64 with bits behind its end");
    r->data.n -= pad;
    r->at = quote + 1;
    return 1;
}

int qn_qir_constant(qir_reader *r, const qn_shape *shape) {
    char text[64];
    qir_span number;
    const qn_dtype_info *type = qn_dtype_describe((qn_dtype)shape->dtype);
    r->data.n = 0;
    if (qn_qir_peek(r) == '"') return constant_bytes(r);
    if (!qn_ir_number_is((qn_dtype)shape->dtype))
        return qn_qir_fail(r, r->at, "the data of %s is written as bytes: base64 in quotes", type->name);
    do {
        if (!QN_VEC_ROOM(r->arena, &r->data, 8)) return qn_qir_no_memory(r);
        if (!qn_qir_number(r, &number)) return 0;
        if (!qn_ir_number_parse((qn_dtype)shape->dtype, number.at, number.n, r->data.at + r->data.n))
            return qn_qir_fail(r, number.at, "'%s' is no %s number", qn_qir_copy(number, text, sizeof text), type->name);
        r->data.n += (size_t)type->bytes;
    } while (qn_qir_accept(r, ','));
    return 1;
}
