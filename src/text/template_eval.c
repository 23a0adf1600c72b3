/* Expressions of templates, evaluated. */
#include "text/template.h"

#include <math.h>

#include "text/utf8.h"

static const tpl_value *find_name(tpl *t, qn_text name) {
    size_t seen = 0;
    for (tpl_frame *f = t->frame; f; f = f->outer)
        for (size_t i = f->names.n; i-- > 0;) {
            if (++seen % 16 == 0 && !qn_text_tpl_step(t, 1)) return NULL;
            if (qn_text_tpl_same(t, f->names.at[i].key.as.text, name)) return &f->names.at[i].value;
        }
    return NULL;
}

static tpl_value eval_name(tpl *t, const tpl_node *node) {
    const tpl_value *known = find_name(t, node->text);
    if (known) return *known;
    const tpl_builtin *function = qn_text_tpl_find_function(node->text);
    if (function) return (tpl_value){.kind = TPL_FUNCTION, .as.function = function};
    return tpl_undefined(node->text);
}

static tpl_value eval_list(tpl *t, const tpl_node *node) {
    tpl_value list = qn_text_tpl_list_new(t, 0);
    for (const tpl_node *part = node->parts; part && !t->failed; part = part->next)
        qn_text_tpl_list_add(t, list, qn_text_tpl_eval(t, part));
    if (!t->failed) list.as.list->is_tuple = node->op;
    return list;
}

static tpl_value eval_dict(tpl *t, const tpl_node *node) {
    tpl_value dict = qn_text_tpl_dict_new(t);
    for (const tpl_node *key = node->parts; key && !t->failed; key = key->next->next) {
        tpl_value k = qn_text_tpl_eval(t, key), v = qn_text_tpl_eval(t, key->next);
        if (!t->failed) qn_text_tpl_dict_set(t, dict.as.dict, k, v);
    }
    return dict;
}

/* ---- Attributes and items */

tpl_value qn_text_tpl_attribute(tpl *t, tpl_value of, qn_text name, int items_first) {
    if (of.kind == TPL_UNDEFINED)
        return qn_text_tpl_fail(t, "'%.*s' is undefined, and so has no '%.*s'",
                                of.as.text.length > 60 ? 60 : (int)of.as.text.length, of.as.text.at,
                                name.length > 60 ? 60 : (int)name.length, name.at);
    tpl_value *item = of.kind == TPL_DICT ? qn_text_tpl_dict_get(t, of.as.dict, tpl_text(name)) : NULL;
    const tpl_builtin *method = qn_text_tpl_find_method(of.kind, name);
    if (item && (items_first || !method || of.as.dict->is_namespace)) return *item;
    if (!method) return item ? *item : tpl_undefined(name);
    tpl_method *bound = qn_arena_alloc(&t->arena, 1, sizeof *bound);
    if (!bound) return qn_text_tpl_no_memory(t);
    *bound = (tpl_method){method, of};
    return (tpl_value){.kind = TPL_METHOD, .as.method = bound};
}

/* Where the i-th character of a text begins. */
static size_t character_at(qn_text text, size_t i) {
    size_t at = 0;
    while (at < text.length && i > 0) {
        at++;
        while (at < text.length && ((unsigned char)text.at[at] & 0xC0) == 0x80) at++;
        i--;
    }
    return at;
}

tpl_value qn_text_tpl_item(tpl *t, tpl_value of, tpl_value index) {
    if (index.kind == TPL_STRING && of.kind != TPL_LIST) return qn_text_tpl_attribute(t, of, index.as.text, 1);
    if (of.kind == TPL_UNDEFINED) return qn_text_tpl_attribute(t, of, (qn_text){"item", 4}, 1);
    if (of.kind == TPL_DICT) {
        const tpl_value *found = qn_text_tpl_dict_get(t, of.as.dict, index);
        return found ? *found : tpl_undefined((qn_text){"item", 4});
    }
    if (of.kind != TPL_LIST && of.kind != TPL_STRING) return tpl_undefined((qn_text){"item", 4});
    if (index.kind != TPL_INT && index.kind != TPL_BOOL) return tpl_undefined((qn_text){"item", 4});
    int64_t n = of.kind == TPL_LIST ? (int64_t)of.as.list->items.n : (int64_t)qn_text_tpl_length(t, of.as.text),
            i = index.as.integer;
    if (i < 0) i += n;
    if (i < 0 || i >= n) return tpl_undefined((qn_text){"item", 4});
    if (of.kind == TPL_LIST) return of.as.list->items.at[i];
    size_t from = character_at(of.as.text, (size_t)i);
    qn_text rest = {of.as.text.at + from, of.as.text.length - from};
    return tpl_text((qn_text){rest.at, character_at(rest, 1)});
}

/* An end of a slice of n, as Python takes it. */
static int64_t slice_end(tpl *t, tpl_value v, int64_t n, int64_t standard, int backwards) {
    if (v.kind == TPL_NONE) return standard;
    if (v.kind != TPL_INT && v.kind != TPL_BOOL) {
        qn_text_tpl_fail(t, "a slice with an end that is no integer");
        return 0;
    }
    int64_t i = v.as.integer < 0 ? v.as.integer + n : v.as.integer;
    int64_t low = backwards ? -1 : 0, high = backwards ? n - 1 : n;
    return i < low ? low : i > high ? high : i;
}

static tpl_value eval_slice(tpl *t, const tpl_node *node) {
    tpl_value of = qn_text_tpl_eval(t, node->a), step = node->d ? qn_text_tpl_eval(t, node->d) : tpl_int(1);
    tpl_value from = node->b ? qn_text_tpl_eval(t, node->b) : tpl_none(),
              to = node->c ? qn_text_tpl_eval(t, node->c) : tpl_none();
    if (t->failed) return of;
    if (of.kind != TPL_LIST && of.kind != TPL_STRING)
        return qn_text_tpl_fail(t, "%s cannot be sliced", qn_text_tpl_kind_name(of));
    if (step.kind == TPL_NONE) step = tpl_int(1);
    if (step.kind != TPL_INT || step.as.integer == 0) return qn_text_tpl_fail(t, "a slice whose step is no integer, or 0");
    tpl_value items = of.kind == TPL_LIST ? of : tpl_none();
    int64_t by = step.as.integer,
            n = of.kind == TPL_LIST ? (int64_t)of.as.list->items.n : (int64_t)qn_text_tpl_length(t, of.as.text);
    int64_t i = slice_end(t, from, n, by > 0 ? 0 : n - 1, by < 0), end = slice_end(t, to, n, by > 0 ? n : -1, by < 0);
    if (of.kind == TPL_STRING && by == 1) {
        size_t a = character_at(of.as.text, (size_t)i), b = i < end ? character_at(of.as.text, (size_t)end) : a;
        return tpl_text((qn_text){of.as.text.at + a, b - a});
    }
    if (of.kind == TPL_STRING) items = qn_text_tpl_iterate(t, of);
    tpl_value out = qn_text_tpl_list_new(t, 0);
    tpl_buffer text = {0};
    for (; !t->failed && (by > 0 ? i < end : i > end); i += by) {
        tpl_value item = items.as.list->items.at[i];
        if (of.kind == TPL_LIST) qn_text_tpl_list_add(t, out, item);
        else qn_text_tpl_append(t, &text, item.as.text.at, item.as.text.length);
        if (by > n || by < -n) break; /* one step leaves the list, and must not overflow */
    }
    if (!t->failed && of.kind == TPL_LIST) out.as.list->is_tuple = of.as.list->is_tuple;
    return of.kind == TPL_LIST ? out : tpl_text(tpl_taken(&text));
}

/* ---- Operators */

static tpl_value arithmetic(tpl *t, int op, tpl_value a, tpl_value b) {
    double x = qn_text_tpl_number(a), y = qn_text_tpl_number(b);
    int64_t i = a.as.integer, k = b.as.integer, r = 0;
    int whole = a.kind != TPL_FLOAT && b.kind != TPL_FLOAT;
    if ((op == OP_DIV || op == OP_FLOOR || op == OP_MOD) && y == 0) return qn_text_tpl_fail(t, "a division by zero");
    if (op == OP_DIV) return (tpl_value){.kind = TPL_FLOAT, .as.number = x / y};
    if (whole && op == OP_POW) {
        r = 1;
        if (k < 0 || k > 64) whole = 0;
        for (int64_t n = 0; whole && n < k; n++)
            if (__builtin_mul_overflow(r, i, &r)) return qn_text_tpl_fail(t, "an integer beyond 64 bits");
    }
    if (whole) {
        int over = 0;
        if (op == OP_ADD) over = __builtin_add_overflow(i, k, &r);
        if (op == OP_SUB) over = __builtin_sub_overflow(i, k, &r);
        if (op == OP_MUL) over = __builtin_mul_overflow(i, k, &r);
        if ((op == OP_FLOOR || op == OP_MOD) && k == -1) over = __builtin_sub_overflow(0, i, &r), r = op == OP_MOD ? 0 : r;
        else if (op == OP_FLOOR) r = i / k - (i % k != 0 && (i < 0) != (k < 0));
        else if (op == OP_MOD) r = i % k + (i % k != 0 && (i < 0) != (k < 0) ? k : 0);
        return over ? qn_text_tpl_fail(t, "an integer beyond 64 bits") : tpl_int(r);
    }
    double f = op == OP_ADD     ? x + y
               : op == OP_SUB   ? x - y
               : op == OP_MUL   ? x * y
               : op == OP_FLOOR ? floor(x / y)
               : op == OP_POW   ? pow(x, y)
                                : x - y * floor(x / y);
    return (tpl_value){.kind = TPL_FLOAT, .as.number = f};
}

static tpl_value join_texts(tpl *t, qn_text a, qn_text b) {
    tpl_buffer out = {0};
    qn_text_tpl_append(t, &out, a.at, a.length);
    qn_text_tpl_append(t, &out, b.at, b.length);
    return tpl_text(tpl_taken(&out));
}

static tpl_value repeat(tpl *t, tpl_value what, int64_t times) {
    tpl_buffer out = {0};
    tpl_value list = what.kind == TPL_LIST ? qn_text_tpl_list_new(t, 0) : tpl_none();
    for (int64_t i = 0; i < times && !t->failed && qn_text_tpl_step(t, 1); i++) {
        if (what.kind == TPL_STRING) {
            if (what.as.text.length == 0) break;
            qn_text_tpl_append(t, &out, what.as.text.at, what.as.text.length);
        }
        for (size_t k = 0; what.kind == TPL_LIST && k < what.as.list->items.n && !t->failed; k++)
            qn_text_tpl_list_add(t, list, what.as.list->items.at[k]);
    }
    return what.kind == TPL_LIST ? list : tpl_text(tpl_taken(&out));
}

static tpl_value join_lists(tpl *t, const tpl_list *a, const tpl_list *b) {
    tpl_value out = qn_text_tpl_list_new(t, a->items.n + b->items.n);
    for (size_t i = 0; i < a->items.n && !t->failed; i++) qn_text_tpl_list_add(t, out, a->items.at[i]);
    for (size_t i = 0; i < b->items.n && !t->failed; i++) qn_text_tpl_list_add(t, out, b->items.at[i]);
    if (!t->failed) out.as.list->is_tuple = a->is_tuple;
    return out;
}

tpl_value qn_text_tpl_binary(tpl *t, int op, tpl_value a, tpl_value b) {
    if (op == OP_CONCAT) return join_texts(t, qn_text_tpl_string(t, a), qn_text_tpl_string(t, b));
    if (qn_text_tpl_is_number(a) && qn_text_tpl_is_number(b)) return arithmetic(t, op, a, b);
    if (op == OP_ADD && a.kind == TPL_STRING && b.kind == TPL_STRING) return join_texts(t, a.as.text, b.as.text);
    if (op == OP_ADD && a.kind == TPL_LIST && b.kind == TPL_LIST) return join_lists(t, a.as.list, b.as.list);
    if (op == OP_MUL && (a.kind == TPL_STRING || a.kind == TPL_LIST) && b.kind == TPL_INT) return repeat(t, a, b.as.integer);
    if (op == OP_MUL && (b.kind == TPL_STRING || b.kind == TPL_LIST) && a.kind == TPL_INT) return repeat(t, b, a.as.integer);
    if (op == OP_MOD && a.kind == TPL_STRING) {
        tpl_value both[2] = {a, b};
        if (b.kind != TPL_LIST || !b.as.list->is_tuple) return qn_text_tpl_filter_format(t, &(tpl_args){both, 2, NULL, 0});
        tpl_value all = qn_text_tpl_list_new(t, b.as.list->items.n + 1);
        qn_text_tpl_list_add(t, all, a);
        for (size_t i = 0; i < b.as.list->items.n; i++) qn_text_tpl_list_add(t, all, b.as.list->items.at[i]);
        return t->failed ? all : qn_text_tpl_filter_format(t, &(tpl_args){all.as.list->items.at, all.as.list->items.n, NULL, 0});
    }
    if (a.kind == TPL_UNDEFINED || b.kind == TPL_UNDEFINED) {
        qn_text name = a.kind == TPL_UNDEFINED ? a.as.text : b.as.text;
        return qn_text_tpl_fail(t, "'%.*s' is undefined", name.length > 60 ? 60 : (int)name.length, name.at);
    }
    static const char *const SIGNS[] = {"", "+", "-", "*", "/", "//", "%", "**", "~"};
    return qn_text_tpl_fail(t, "%s %s %s is not possible", qn_text_tpl_kind_name(a), SIGNS[op], qn_text_tpl_kind_name(b));
}

static int holds(tpl *t, int op, tpl_value a, tpl_value b) {
    if (op == OP_EQ) return qn_text_tpl_equal(t, a, b);
    if (op == OP_NE) return !qn_text_tpl_equal(t, a, b);
    if (op == OP_IN) return qn_text_tpl_contains(t, b, a);
    if (op == OP_NOT_IN) return !qn_text_tpl_contains(t, b, a);
    int order = qn_text_tpl_compare(t, a, b);
    return op == OP_LT ? order < 0 : op == OP_LE ? order <= 0 : op == OP_GT ? order > 0 : order >= 0;
}

static tpl_value eval_compare(tpl *t, const tpl_node *node) {
    tpl_value left = qn_text_tpl_eval(t, node->a);
    for (const tpl_node *part = node->parts; part && !t->failed; part = part->next) {
        tpl_value right = qn_text_tpl_eval(t, part->a);
        if (t->failed || !holds(t, part->op, left, right)) return tpl_bool(0);
        left = right;
    }
    return tpl_bool(1);
}

/* a op b op c ... leans to the left, as deep as it is long: it is walked down in a loop, and evaluated on the way up. */
static tpl_value eval_chain(tpl *t, const tpl_node *node) {
    size_t n = 0;
    for (const tpl_node *at = node; at->kind == node->kind; at = at->a) n++;
    const tpl_node *few[8], **chain = n <= 8 ? few : qn_arena_alloc(&t->arena, n, sizeof *chain);
    if (!chain) return qn_text_tpl_no_memory(t);
    const tpl_node *at = node;
    for (size_t i = n; i-- > 0; at = at->a) chain[i] = at;
    tpl_value left = qn_text_tpl_eval(t, at);
    for (size_t i = 0; i < n && !t->failed; i++) {
        if (node->kind == NODE_BINARY) {
            tpl_value right = qn_text_tpl_eval(t, chain[i]->b);
            if (!t->failed) left = qn_text_tpl_binary(t, chain[i]->op, left, right);
        } else if (qn_text_tpl_truth(left) == (node->kind == NODE_AND)) {
            left = qn_text_tpl_eval(t, chain[i]->b);
        }
        t->line = chain[i]->line;
    }
    return left;
}

/* ---- Calls */

static int collect(tpl *t, const tpl_node *parts, const tpl_value *self, tpl_args *args) {
    size_t n = self != NULL;
    for (const tpl_node *p = parts; p; p = p->next) n++;
    args->at = qn_arena_alloc(&t->arena, n + 1, sizeof *args->at);
    args->names = qn_arena_alloc(&t->arena, n + 1, sizeof *args->names);
    args->n = args->named = 0;
    if (!args->at || !args->names) {
        qn_text_tpl_no_memory(t);
        return 0;
    }
    if (self) args->at[args->n++] = *self;
    for (const tpl_node *p = parts; p && !t->failed; p = p->next) {
        if (!p->text.at && args->named) qn_text_tpl_fail(t, "an argument without a name behind one with a name");
        args->at[args->n + args->named] = qn_text_tpl_eval(t, p->a);
        if (p->text.at) args->names[args->named++] = p->text;
        else args->n++;
    }
    return !t->failed;
}

/* The place of a name among "one two three", or -1. */
static int place_of(const char *names, qn_text name) {
    int place = 0;
    for (const char *p = names; *p; place++) {
        size_t n = strcspn(p, " ");
        if (n == name.length && memcmp(p, name.at, n) == 0) return place;
        p += n + (p[n] == ' ');
    }
    return -1;
}

tpl_value qn_text_tpl_apply(tpl *t, const tpl_builtin *f, const tpl_args *args) {
    int any = strcmp(f->names, "...") == 0, most = 0;
    for (const char *p = f->names; *p && !any; most++) p += strcspn(p, " "), p += *p == ' ';
    size_t self = f->has_self != 0;
    for (size_t i = 0; i < args->n + args->named; i++) /* they look through their texts at least once */
        if (args->at[i].kind == TPL_STRING && !qn_text_tpl_step(t, args->at[i].as.text.length / 64)) return tpl_none();
    if (any) return f->run(t, args);
    if (args->n > self + (size_t)most)
        return qn_text_tpl_fail(t, "%s takes %d arguments, not %zu", f->name, most, args->n - self);
    tpl_value bound[12] = {{.kind = TPL_UNDEFINED}};
    for (size_t i = 0; i < 12; i++) bound[i] = i < args->n ? args->at[i] : tpl_undefined((qn_text){"", 0});
    size_t n = args->n;
    for (size_t i = 0; i < args->named; i++) {
        int place = place_of(f->names, args->names[i]);
        if (place < 0)
            return qn_text_tpl_fail(t, "%s has no argument '%.*s'", f->name,
                                    args->names[i].length > 40 ? 40 : (int)args->names[i].length, args->names[i].at);
        bound[self + (size_t)place] = args->at[args->n + i];
        if (self + (size_t)place + 1 > n) n = self + (size_t)place + 1;
    }
    if (n < self + (size_t)f->least) return qn_text_tpl_fail(t, "%s needs %d arguments", f->name, f->least);
    return f->run(t, &(tpl_args){bound, n, NULL, 0});
}

tpl_value qn_text_tpl_call(tpl *t, tpl_value what, const tpl_args *args) {
    if (what.kind == TPL_MACRO) return qn_text_tpl_call_macro(t, what.as.macro, args);
    if (what.kind == TPL_FUNCTION) return qn_text_tpl_apply(t, what.as.function, args);
    if (what.kind == TPL_METHOD) {
        size_t n = args->n + args->named;
        tpl_value *at = qn_arena_alloc(&t->arena, n + 1, sizeof *at);
        if (!at) return qn_text_tpl_no_memory(t);
        at[0] = what.as.method->self;
        if (n) memcpy(at + 1, args->at, n * sizeof *at);
        return qn_text_tpl_apply(t, what.as.method->function, &(tpl_args){at, args->n + 1, args->names, args->named});
    }
    if (what.kind == TPL_UNDEFINED)
        return qn_text_tpl_fail(t, "'%.*s' is undefined, and so cannot be called",
                                what.as.text.length > 60 ? 60 : (int)what.as.text.length, what.as.text.at);
    return qn_text_tpl_fail(t, "%s cannot be called", qn_text_tpl_kind_name(what));
}

static tpl_value eval_builtin(tpl *t, const tpl_node *node) {
    tpl_value self = qn_text_tpl_eval(t, node->a);
    tpl_args args;
    if (t->failed || !collect(t, node->parts, &self, &args)) return tpl_none();
    t->line = node->line;
    tpl_value v = qn_text_tpl_apply(t, node->builtin, &args);
    return node->kind == NODE_TEST ? tpl_bool(qn_text_tpl_truth(v) != node->op) : v;
}

static tpl_value eval_call(tpl *t, const tpl_node *node) {
    tpl_value what = qn_text_tpl_eval(t, node->a);
    tpl_args args;
    if (t->failed || !collect(t, node->parts, NULL, &args)) return tpl_none();
    t->line = node->line;
    return qn_text_tpl_call(t, what, &args);
}

static tpl_value eval_unary(tpl *t, const tpl_node *node) {
    tpl_value v = qn_text_tpl_eval(t, node->a);
    if (t->failed) return v;
    if (!qn_text_tpl_is_number(v)) return qn_text_tpl_fail(t, "%s has no sign", qn_text_tpl_kind_name(v));
    if (v.kind == TPL_FLOAT) return (tpl_value){.kind = TPL_FLOAT, .as.number = node->op == OP_SUB ? -v.as.number : v.as.number};
    return arithmetic(t, node->op, tpl_int(0), v);
}

static tpl_value eval_node(tpl *t, const tpl_node *node) {
    switch (node->kind) {
    case NODE_CONSTANT: return node->value;
    case NODE_NAME: return eval_name(t, node);
    case NODE_LIST: return eval_list(t, node);
    case NODE_DICT: return eval_dict(t, node);
    case NODE_ATTRIBUTE: {
        tpl_value of = qn_text_tpl_eval(t, node->a);
        return t->failed ? of : qn_text_tpl_attribute(t, of, node->text, 0);
    }
    case NODE_ITEM: {
        tpl_value of = qn_text_tpl_eval(t, node->a), index = qn_text_tpl_eval(t, node->b);
        return t->failed ? of : qn_text_tpl_item(t, of, index);
    }
    case NODE_SLICE: return eval_slice(t, node);
    case NODE_CALL: return eval_call(t, node);
    case NODE_FILTER:
    case NODE_TEST: return eval_builtin(t, node);
    case NODE_UNARY: return eval_unary(t, node);
    case NODE_BINARY:
    case NODE_AND:
    case NODE_OR: return eval_chain(t, node);
    case NODE_COMPARE: return eval_compare(t, node);
    case NODE_NOT: return tpl_bool(!qn_text_tpl_truth(qn_text_tpl_eval(t, node->a)));
    case NODE_CHOOSE:
        if (qn_text_tpl_truth(qn_text_tpl_eval(t, node->b))) return qn_text_tpl_eval(t, node->a);
        return node->c ? qn_text_tpl_eval(t, node->c) : tpl_undefined((qn_text){"", 0});
    default: return qn_text_tpl_fail(t, "a statement where an expression belongs");
    }
}

tpl_value qn_text_tpl_eval(tpl *t, const tpl_node *node) {
    if (t->failed || !qn_text_tpl_step(t, 1)) return tpl_none();
    t->line = node->line;
    if (++t->depth > t->most_depth) qn_text_tpl_fail(t, "nested too deeply");
    tpl_value v = t->failed ? tpl_none() : eval_node(t, node);
    t->depth--;
    return v;
}
