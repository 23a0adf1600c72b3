/* A tree to a network of states over bytes. Classes of characters become the byte sequences of their UTF-8; repetitions with
 * counts are written out, with what they repeat as a rule of its own when it is large. */
#include <stdlib.h>

#include "text/grammar_parts.h"
#include "text/utf8.h"

typedef struct compiler {
    network *net;
    qn_arena *arena;
    const grammar_tree *tree;
    QN_VEC(const tree_node *) bodies; /* of rules that come from repetitions; numbered behind the tree's */
    qn_status status;
} compiler;

/* Adds a state; 0, with the reason in c->status, when there is no room. State 0 exists from the start, so 0 is never a new
 * one. */
static int32_t add(compiler *c, net_kind kind, uint8_t low, uint8_t high, int32_t a, int32_t b) {
    network *net = c->net;
    if (c->status != QN_OK) return 0;
    if (net->states.n >= GRAMMAR_MOST_STATES) {
        c->status = QN_INVALID;
        return 0;
    }
    if (!QN_VEC_ROOM(c->arena, &net->states, 1)) {
        c->status = QN_NO_MEMORY;
        return 0;
    }
    net->states.at[net->states.n] = (net_state){(uint8_t)kind, low, high, a, b};
    return (int32_t)net->states.n++;
}

/* Either of two, one of which may be missing (0). */
static int32_t either(compiler *c, int32_t a, int32_t b) { return a && b ? add(c, NET_SPLIT, 0, 0, a, b) : a ? a : b; }

/* Code points of one length whose bytes are a product of ranges. */
static int32_t add_bytes(compiler *c, uint32_t low, uint32_t high, int32_t next) {
    char from[4], to[4];
    size_t n = qn_text_utf8_write(low, from);
    qn_text_utf8_write(high, to);
    for (size_t i = n; i-- > 0;) next = add(c, NET_BYTE, (uint8_t)from[i], (uint8_t)to[i], next, 0);
    return next;
}

/* A range is cut until in each part the last bytes run over everything below the first byte that differs. */
static int32_t add_range(compiler *c, uint32_t low, uint32_t high, int32_t next) {
    static const uint32_t LAST[] = {0x7F, 0x7FF, 0xD7FF, 0xDFFF, 0xFFFF}; /* of a length, and around the surrogates */
    for (size_t i = 0; i < sizeof LAST / sizeof *LAST; i++)
        if (low <= LAST[i] && high > LAST[i])
            return either(c, add_range(c, low, LAST[i], next), add_range(c, LAST[i] + 1, high, next));
    if (low >= 0xD800 && high <= 0xDFFF) return 0;
    for (int shift = 6; shift < 24 && high > 0x7F; shift += 6) {
        uint32_t below = (1u << shift) - 1;
        if ((low & ~below) == (high & ~below)) break;
        if (low & below) return either(c, add_range(c, low, low | below, next), add_range(c, (low | below) + 1, high, next));
        if ((high & below) != below)
            return either(c, add_range(c, low, (high & ~below) - 1, next), add_range(c, high & ~below, high, next));
    }
    return add_bytes(c, low, high, next);
}

static int by_low(const void *a, const void *b) {
    const code_range *x = a, *y = b;
    return x->low < y->low ? -1 : x->low > y->low;
}

/* Sorted and inverted if need be; 0 when no character is in it. */
static int32_t add_class(compiler *c, const tree_node *node, int32_t next) {
    code_range *sorted = qn_arena_resize(c->arena, NULL, node->n + 1, sizeof *sorted);
    int32_t start = 0;
    uint32_t from = 0; /* inverted: the first code point not yet ruled out; else the first not yet added */
    if (!sorted) c->status = QN_NO_MEMORY;
    if (!sorted) return 0;
    if (node->n) memcpy(sorted, node->range, node->n * sizeof *sorted);
    qsort(sorted, node->n, sizeof *sorted, by_low); /* never NULL */
    for (size_t i = 0; i < node->n && c->status == QN_OK; i++) {
        code_range r = sorted[i];
        if (node->inverted && r.low > from) start = either(c, start, add_range(c, from, r.low - 1, next));
        if (!node->inverted && r.high >= from) start = either(c, start, add_range(c, r.low > from ? r.low : from, r.high, next));
        if (r.high >= from) from = r.high + 1;
    }
    if (node->inverted && from <= 0x10FFFF) start = either(c, start, add_range(c, from, 0x10FFFF, next));
    qn_arena_release(c->arena, sorted);
    return start;
}

static int32_t add_node(compiler *c, const tree_node *node, int32_t next);

/* Parts in reverse, so that each knows what follows it. */
static int32_t add_sequence(compiler *c, const tree_node *node, int32_t next) {
    size_t n = 0;
    for (const tree_node *part = node->first; part; part = part->next) n++;
    const tree_node **parts = qn_arena_resize(c->arena, NULL, n + 1, sizeof *parts);
    if (!parts) c->status = QN_NO_MEMORY;
    n = 0;
    for (const tree_node *part = node->first; parts && part; part = part->next) parts[n++] = part;
    while (parts && n && next) next = add_node(c, parts[--n], next);
    qn_arena_release(c->arena, parts);
    return next;
}

static int is_large(const tree_node *node) {
    if (node->kind == TREE_RULE || node->kind == TREE_TOKEN) return 0;
    if (node->kind == TREE_LITERAL) return node->n > 2;
    if (node->kind == TREE_CLASS && !node->inverted) {
        for (size_t i = 0; i < node->n; i++)
            if (node->range[i].high > 0x7F) return 1;
        return node->n > 2;
    }
    return 1;
}

/* What is repeated becomes a rule, so that each further copy is one state. */
static const tree_node *as_rule(compiler *c, const tree_node *node) {
    tree_node *call = qn_arena_alloc(c->arena, 1, sizeof *call);
    if (!call || !QN_VEC_ROOM(c->arena, &c->bodies, 1)) {
        c->status = QN_NO_MEMORY;
        return node;
    }
    *call = (tree_node){.kind = TREE_RULE, .rule = (int32_t)(c->tree->rules.n + c->bodies.n)};
    c->bodies.at[c->bodies.n++] = node;
    return call;
}

static int32_t add_repeat(compiler *c, const tree_node *node, int32_t next) {
    const tree_node *what = node->first;
    if ((node->least > 1 || node->most > 1) && is_large(what)) what = as_rule(c, what);
    int32_t end = next;
    if (node->most < 0) { /* a loop */
        int32_t loop = add(c, NET_SPLIT, 0, 0, next, next), body = add_node(c, what, loop);
        if (c->status == QN_OK && body) c->net->states.at[loop].a = body;
        next = loop;
        if (node->least && body && node->least == 1) return body; /* one or more: in at the body */
    }
    /* A copy that adds no state is of an empty text: more of them would add none either, and only states are limited. */
    for (int32_t i = node->least, body; i < node->most && (body = add_node(c, what, next)) && body != next; i++)
        next = either(c, body, end);
    for (int32_t i = 0, body; i < node->least && next && (body = add_node(c, what, next)) != next; i++) next = body;
    return next;
}

/* The state from which the node leads to `next`; 0 when it cannot, because a class in it has no characters, or when there is
 * no room. */
static int32_t add_node(compiler *c, const tree_node *node, int32_t next) {
    int32_t start = 0;
    if (c->status != QN_OK || !next) return 0;
    switch (node->kind) {
    case TREE_LITERAL:
        for (size_t i = node->n; i-- > 0;) next = add(c, NET_BYTE, (uint8_t)node->bytes[i], (uint8_t)node->bytes[i], next, 0);
        return next;
    case TREE_CLASS: return add_class(c, node, next);
    case TREE_RULE: return add(c, NET_CALL, 0, 0, next, node->rule);
    case TREE_TOKEN: return add(c, NET_TOKEN, (uint8_t)node->inverted, 0, next, node->rule);
    case TREE_SEQUENCE: return add_sequence(c, node, next);
    case TREE_REPEAT: return add_repeat(c, node, next);
    case TREE_CHOICE:
        for (const tree_node *part = node->first; part; part = part->next) start = either(c, start, add_node(c, part, next));
        return start;
    }
    return 0;
}

/* ---- Which rules can be empty. A state is done when the end of its rule can be reached without a byte. */

typedef struct done_search {
    const network *net;
    uint8_t *done;
    int32_t *queue, *before, *before_next; /* lists of states that lead on to a state */
    int32_t *waiting, *waiting_next;       /* calls that wait for their rule to be found nullable */
    int32_t *rule_of;                      /* by start state: its rule, -1 for others */
    size_t queued;
} done_search;

static void mark_done(done_search *d, int32_t state) {
    if (d->done[state]) return;
    d->done[state] = 1;
    d->queue[d->queued++] = state;
}

static void search_done(done_search *d, net_rule *rules) {
    for (size_t i = 0; i < d->queued; i++) {
        int32_t state = d->queue[i], r = d->rule_of[state];
        for (int32_t k = d->before[state]; k >= 0; k = d->before_next[k]) {
            int32_t from = k / 2;
            const net_state *s = &d->net->states.at[from];
            if (s->kind == NET_SPLIT || rules[s->b].nullable) {
                mark_done(d, from);
            } else {
                d->waiting_next[from] = d->waiting[s->b];
                d->waiting[s->b] = from;
            }
        }
        if (r < 0 || rules[r].nullable) continue;
        rules[r].nullable = 1;
        for (int32_t from = d->waiting[r]; from >= 0; from = d->waiting_next[from]) mark_done(d, from);
    }
}

/* Every list is a chain through arrays: twice the states, since a split leads to two. */
static int find_nullable(network *net, qn_arena *arena) {
    size_t n = net->states.n, rules = net->rules.n;
    done_search d = {.net = net};
    int32_t *lists = qn_arena_resize(arena, NULL, 6 * n + rules, sizeof *lists);
    d.done = qn_arena_resize(arena, NULL, n, 1);
    int ok = lists && d.done;
    if (ok) {
        memset(lists, 0xFF, (6 * n + rules) * sizeof *lists);
        memset(d.done, 0, n);
        d.queue = lists, d.before = lists + n, d.before_next = lists + 2 * n, d.waiting_next = lists + 4 * n;
        d.rule_of = lists + 5 * n, d.waiting = lists + 6 * n;
        for (size_t i = 0; i < n; i++) {
            const net_state *s = &net->states.at[i];
            int32_t k = (int32_t)(2 * i);
            if (s->kind == NET_SPLIT || s->kind == NET_CALL) d.before_next[k] = d.before[s->a], d.before[s->a] = k;
            if (s->kind == NET_SPLIT) d.before_next[k + 1] = d.before[s->b], d.before[s->b] = k + 1;
        }
        for (size_t r = 0; r < rules; r++)
            if (net->rules.at[r].start >= 0) d.rule_of[net->rules.at[r].start] = (int32_t)r;
        for (size_t i = 0; i < n; i++)
            if (net->states.at[i].kind == NET_END) mark_done(&d, (int32_t)i);
        search_done(&d, net->rules.at);
    }
    qn_arena_release(arena, lists);
    qn_arena_release(arena, d.done);
    return ok;
}

qn_status qn_text_grammar_compile(network *net, qn_arena *arena, const grammar_tree *tree, qn_error *error) {
    compiler c = {.net = net, .arena = arena, .tree = tree, .status = QN_OK};
    add(&c, NET_END, 0, 0, 0, 0); /* state 0: so that no other has this number */
    for (size_t i = 0; c.status == QN_OK && i < tree->rules.n + c.bodies.n; i++) {
        const tree_node *body = i < tree->rules.n ? tree->rules.at[i].body : c.bodies.at[i - tree->rules.n];
        int32_t end = add(&c, NET_END, 0, 0, 0, 0), start = add_node(&c, body, end);
        if (start == end) start = add(&c, NET_SPLIT, 0, 0, end, end); /* each rule has a start of its own */
        if (!QN_VEC_ROOM(arena, &net->rules, 1)) c.status = QN_NO_MEMORY;
        if (c.status == QN_OK) net->rules.at[net->rules.n++] = (net_rule){start ? start : -1, 0};
    }
    if (c.status == QN_OK && !find_nullable(net, arena)) c.status = QN_NO_MEMORY;
    if (c.status == QN_INVALID)
        return qn_error_set(error, QN_INVALID, "grammar: its repetitions, written out, are more than %d states",
                            GRAMMAR_MOST_STATES);
    return c.status == QN_OK ? QN_OK : qn_error_set(error, QN_NO_MEMORY, "no memory for the grammar");
}
