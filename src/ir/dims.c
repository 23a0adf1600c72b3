/* Symbolic extents: small expressions over symbols, evaluated exactly or not at all. */
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "ir/graph.h"

static int64_t handle(size_t index) { return QN_DIM_BASE + (int64_t)index; }
static const qn_ir_dim *expression(const qn_graph *g, int64_t dim) {
    int64_t i = dim - QN_DIM_BASE;
    return qn_dim_is_symbolic(dim) && i < (int64_t)g->dims.n ? &g->dims.at[i] : NULL;
}

/* Numbers and symbols a dim consists of. */
static int32_t terms_of(const qn_graph *g, int64_t dim) { return qn_dim_is_symbolic(dim) ? expression(g, dim)->terms : 1; }

/* The slot of an expression, or the free one where it belongs. */
static size_t slot_of(const qn_graph *g, qn_ir_dim_kind kind, int64_t a, int64_t b) {
    qn_hash_key key = qn_hash_process_key();
    uint64_t h = qn_hash_word(key, qn_hash_word(key, qn_hash_word(key, key.begin, kind), (uint64_t)a), (uint64_t)b);
    size_t mask = g->dim_slots.n - 1, at = (size_t)h & mask;
    for (;; at = (at + 1) & mask) {
        const qn_ir_dim *e = g->dim_slots.at[at] < 0 ? NULL : &g->dims.at[g->dim_slots.at[at]];
        if (!e || (e->kind == kind && e->a == a && e->b == b)) return at;
    }
}

/* Every expression in its slot, those that were copied from another graph as well, and room for one more; at most half are taken. */
static int hash_dims(qn_graph *g) {
    size_t n = g->dim_slots.n ? g->dim_slots.n : 16;
    while (n < (g->dims.n + 1) * 2) n *= 2;
    if (n > g->dim_slots.n) {
        if (!QN_VEC_ROOM(&g->arena, &g->dim_slots, n - g->dim_slots.n)) return 0;
        g->dim_slots.n = n;
        g->n_hashed = 0;
        for (size_t i = 0; i < n; i++) g->dim_slots.at[i] = -1;
    }
    for (; g->n_hashed < g->dims.n; g->n_hashed++) {
        const qn_ir_dim *e = &g->dims.at[g->n_hashed];
        size_t at = slot_of(g, e->kind, e->a, e->b);
        if (g->dim_slots.at[at] < 0) g->dim_slots.at[at] = (int32_t)g->n_hashed;
    }
    return 1;
}

static int64_t add_expression(qn_graph *g, qn_ir_dim_kind kind, int64_t a, int64_t b) {
    if (!hash_dims(g)) {
        qn_ir_fail(g, QN_NO_MEMORY, "no memory for another symbolic extent");
        return -1;
    }
    int32_t known = g->dim_slots.at[slot_of(g, kind, a, b)];
    if (known >= 0) return handle((size_t)known); /* equal expressions are one, so that equal dims compare equal */
    int32_t terms = kind == QN_IR_DIM_SYMBOL ? 1 : terms_of(g, a) + terms_of(g, b);
    if (terms > QN_IR_MAX_TERMS) {
        qn_ir_fail(g, QN_INVALID, "an extent of %d terms is too long, %d are the most", terms, QN_IR_MAX_TERMS);
        return -1;
    }
    if (g->dims.n >= INT32_MAX - 1 || !QN_VEC_ROOM(&g->arena, &g->dims, 1)) {
        qn_ir_fail(g, QN_NO_MEMORY, "no memory for another symbolic extent");
        return -1;
    }
    g->dims.at[g->dims.n] = (qn_ir_dim){kind, terms, a, b};
    return handle(g->dims.n++);
}

int64_t qn_graph_symbol(qn_graph *g, const char *name, int64_t least, int64_t most, int64_t multiple_of) {
    if (!g || g->error.status != QN_OK) return -1;
    if (!name || !*name || least < 0 || most < least || multiple_of < 1 || most % multiple_of) {
        qn_ir_fail(g, QN_ARGUMENT, "symbol '%s': bounds %lld to %lld in steps of %lld make no sense", name ? name : "",
                   (long long)least, (long long)most, (long long)multiple_of);
        return -1;
    }
    int32_t text = qn_ir_text(g, name);
    for (size_t i = 0; text >= 0 && i < g->symbols.n; i++)
        if (g->symbols.at[i].name == text) {
            const qn_ir_symbol *s = &g->symbols.at[i];
            if (s->least == least && s->most == most && s->multiple_of == multiple_of)
                return add_expression(g, QN_IR_DIM_SYMBOL, (int64_t)i, 0);
            qn_ir_fail(g, QN_INVALID, "symbol '%s' was declared with other bounds before", name);
            return -1;
        }
    if (g->symbols.n == QN_IR_MAX_SYMBOLS) {
        qn_ir_fail(g, QN_INVALID, "symbol '%s': a graph has at most %d", name, QN_IR_MAX_SYMBOLS);
        return -1;
    }
    if (text < 0 || !QN_VEC_ROOM(&g->arena, &g->symbols, 1)) {
        qn_ir_fail(g, QN_NO_MEMORY, "no memory for symbol '%s'", name);
        return -1;
    }
    g->symbols.at[g->symbols.n] = (qn_ir_symbol){text, least, most, multiple_of};
    return add_expression(g, QN_IR_DIM_SYMBOL, (int64_t)g->symbols.n++, 0);
}

static int is_sum(qn_ir_dim_kind kind) { return kind == QN_IR_DIM_ADD || kind == QN_IR_DIM_SUB; }

static void swap(int64_t *a, int64_t *b) {
    int64_t was = *a;
    *a = *b;
    *b = was;
}

/* x + 2 - 5 is x - 3: the number behind a sum meets the one behind the sum in front of it. */
static void arrange_sum(const qn_graph *g, qn_ir_dim_kind *kind, int64_t *a, int64_t *b) {
    if (*kind == QN_IR_DIM_ADD && !qn_dim_is_symbolic(*a)) swap(a, b);
    const qn_ir_dim *e = expression(g, *a);
    if (qn_dim_is_symbolic(*b) || !e || !is_sum(e->kind) || qn_dim_is_symbolic(e->b)) return;
    int64_t more = *kind == QN_IR_DIM_ADD ? *b : -*b, there = e->kind == QN_IR_DIM_ADD ? e->b : -e->b, number;
    if (qn_add_overflow(more, there, &number) || number == INT64_MIN) return;
    *kind = number < 0 ? QN_IR_DIM_SUB : QN_IR_DIM_ADD;
    *b = number < 0 ? -number : number;
    *a = e->a;
}

/* One form, not two: numbers stand in front of products and behind sums, and meet there. */
static void arrange(const qn_graph *g, qn_ir_dim_kind *kind, int64_t *a, int64_t *b) {
    int64_t number;
    if (is_sum(*kind)) arrange_sum(g, kind, a, b);
    if (*kind != QN_IR_DIM_MUL) return;
    if (!qn_dim_is_symbolic(*b)) swap(a, b);
    if (qn_dim_is_symbolic(*a) || !qn_dim_is_symbolic(*b)) return;
    const qn_ir_dim *e = expression(g, *b);
    if (e->kind != QN_IR_DIM_MUL || qn_dim_is_symbolic(e->a) || qn_mul_overflow(*a, e->a, &number)) return;
    *a = number;
    *b = e->b;
}

static int64_t combine(qn_graph *g, qn_ir_dim_kind kind, int64_t a, int64_t b) {
    static const char signs[] = " +-*/";
    if (!g || g->error.status != QN_OK) return -1;
    if ((a < 0 && !expression(g, a)) || (b < 0 && !expression(g, b))) {
        qn_ir_fail(g, QN_INVALID, "an extent of %lld %c %lld is not one", (long long)a, signs[kind], (long long)b);
        return -1;
    }
    arrange(g, &kind, &a, &b);
    if (is_sum(kind) && b == 0) return a;
    if (kind == QN_IR_DIM_SUB && a == b) return 0;
    if (kind == QN_IR_DIM_MUL && a == 1) return b;
    if (kind == QN_IR_DIM_DIV && b == 1) return a;
    int64_t value;
    int64_t made = qn_dim_is_symbolic(a) || qn_dim_is_symbolic(b) ? add_expression(g, kind, a, b) : -1;
    if (made != -1) {
        if (qn_ir_dim_value(g, made, NULL, &value)) return made;
    } else {
        if (kind == QN_IR_DIM_ADD && !qn_add_overflow(a, b, &value)) return value;
        if (kind == QN_IR_DIM_SUB && a >= b) return a - b;
        if (kind == QN_IR_DIM_MUL && !qn_mul_overflow(a, b, &value)) return value;
        if (kind == QN_IR_DIM_DIV && b > 0 && a % b == 0) return a / b;
    }
    const char *fault = kind == QN_IR_DIM_SUB ? "is negative" : "overflows or does not divide";
    qn_ir_fail(g, QN_INVALID, "an extent %s: operation '%c'", fault, signs[kind]);
    return -1;
}

int64_t qn_graph_dim(qn_graph *g, char op, int64_t a, int64_t b) {
    static const char ops[] = "+-*/";
    static const qn_ir_dim_kind kinds[] = {QN_IR_DIM_ADD, QN_IR_DIM_SUB, QN_IR_DIM_MUL, QN_IR_DIM_DIV};
    const char *found = op ? strchr(ops, op) : NULL;
    if (!g) return -1;
    if (found) return combine(g, kinds[found - ops], a, b);
    qn_ir_fail(g, QN_ARGUMENT, "extents have no operation '%c'", op);
    return -1;
}

/* Expressions refer to earlier ones only and have few terms, so this ends soon. Parts may be negative: 2 in n - 5 + m. */
static int evaluate(const qn_graph *g, int64_t dim, const int64_t *symbols, int64_t *value) {
    int64_t a, b;
    if (!qn_dim_is_symbolic(dim)) {
        *value = dim;
        return dim >= 0; /* a number, then */
    }
    const qn_ir_dim *e = expression(g, dim);
    if (!e) return 0;
    if (e->kind == QN_IR_DIM_SYMBOL) {
        *value = symbols ? symbols[e->a] : g->symbols.at[e->a].most;
        return *value >= 0;
    }
    if (!evaluate(g, e->a, symbols, &a) || !evaluate(g, e->b, symbols, &b)) return 0;
    if (e->kind == QN_IR_DIM_ADD) return !qn_add_overflow(a, b, value);
    if (e->kind == QN_IR_DIM_SUB) return !__builtin_sub_overflow(a, b, value);
    if (e->kind == QN_IR_DIM_MUL) return !qn_mul_overflow(a, b, value);
    if (b <= 0 || a % b != 0) return 0;
    *value = a / b;
    return 1;
}

int qn_ir_dim_value(const qn_graph *g, int64_t dim, const int64_t *symbols, int64_t *value) {
    return evaluate(g, dim, symbols, value) && *value >= 0;
}

int64_t qn_graph_dim_value(const qn_graph *g, int64_t dim, const int64_t *symbols) {
    int64_t value;
    return g && qn_ir_dim_value(g, dim, symbols, &value) ? value : -1;
}

int qn_ir_is_word(const char *text) {
    if (!*text || (*text >= '0' && *text <= '9')) return 0;
    for (; *text; text++)
        if (!(*text >= '0' && *text <= '9') && !(*text >= 'a' && *text <= 'z') && !(*text >= 'A' && *text <= 'Z') && *text != '_')
            return 0;
    return 1;
}

void qn_ir_put_quoted(qn_ir_put_fn put, void *user, const char *text) {
    static const char hex[] = "0123456789abcdef";
    put(user, "\"", 1);
    for (const char *c = text; *c; c++) {
        unsigned char byte = (unsigned char)*c;
        char escape[4] = {'\\', 'x', hex[byte >> 4], hex[byte & 15]};
        if (byte == '"' || byte == '\\') escape[1] = *c;
        if (byte == '"' || byte == '\\') put(user, escape, 2);
        else if (byte < 0x20 || byte == 0x7f) put(user, escape, 4);
        else put(user, c, 1);
    }
    put(user, "\"", 1);
}

/* Brackets show the tree exactly: a/(b*c) and a/b*c, and 2*(a/3), differ in what must divide. */
void qn_ir_put_dim(const qn_graph *g, int64_t dim, qn_ir_put_fn put, void *user) {
    static const char *const signs[] = {"", " + ", " - ", "*", "/"};
    const qn_ir_dim *e = expression(g, dim);
    char number[32];
    if (!e) {
        put(user, number, (size_t)snprintf(number, sizeof number, "%lld", (long long)dim));
        return;
    }
    if (e->kind == QN_IR_DIM_SYMBOL) {
        const char *name = qn_ir_string(g, g->symbols.at[e->a].name);
        if (qn_ir_is_word(name)) put(user, name, strlen(name));
        else qn_ir_put_quoted(put, user, name);
        return;
    }
    for (int side = 0; side < 2; side++) {
        const qn_ir_dim *part = expression(g, side ? e->b : e->a);
        int bracket = part && part->kind != QN_IR_DIM_SYMBOL &&
                      (is_sum(e->kind) ? side && is_sum(part->kind) : side || is_sum(part->kind));
        if (side) put(user, signs[e->kind], strlen(signs[e->kind]));
        if (bracket) put(user, "(", 1);
        qn_ir_put_dim(g, side ? e->b : e->a, put, user);
        if (bracket) put(user, ")", 1);
    }
}

void qn_ir_put_room(void *room, const char *text, size_t n) {
    qn_ir_room *r = room;
    if (r->wanted < r->size) {
        size_t fits = r->size - r->wanted - 1;
        memcpy(r->text + r->wanted, text, n < fits ? n : fits);
        r->text[r->wanted + (n < fits ? n : fits)] = 0;
    }
    r->wanted += n;
}

int qn_graph_dim_format(const qn_graph *g, int64_t dim, char *text, size_t size) {
    qn_ir_room room = {text, size, 0};
    if (size) text[0] = 0;
    if (g) qn_ir_put_dim(g, dim, qn_ir_put_room, &room);
    return (int)room.wanted;
}
