/* Grammars over a vocabulary: which tokens may come next, and going on by one. Tokens are looked at as a tree of bytes, so
 * that what no token may start with is looked at once. Control tokens are no text: only those that end generation are taken,
 * where the grammar may end. */
#include <stdlib.h>

#include "text/grammar_parts.h"
#include "base/heap.h"

struct text_grammar {
    qn_arena arena;
    network net;
    run run;
    const qn_tokenizer *t;
    const token_trie *pieces;
    int32_t set; /* where the text is */
    uint32_t *allowed;
    size_t words;
    int ended;
};

/* The tree of what tokens stand for is made when the first grammar asks, once for all of them. */
static const token_trie *pieces_of(const qn_tokenizer *t) {
    qn_tokenizer *shared = (qn_tokenizer *)(uintptr_t)t; /* the one part of a tokenizer that changes, under its lock */
    token_trie *pieces;
    if (pthread_mutex_lock(&shared->lock) != 0) return NULL;
    pieces = shared->pieces;
    if (!pieces) {
        token_trie *made = qn_arena_alloc(&shared->arena, 1, sizeof *made);
        token_span *span = qn_heap_alloc((size_t)t->n_tokens * sizeof *span);
        int32_t *ids = qn_heap_alloc((size_t)t->n_tokens * sizeof *ids);
        size_t n = 0;
        for (int32_t id = 0; span && ids && id < t->n_tokens; id++) {
            uint8_t type = t->token[id].type;
            span[id] = t->token[id].piece;
            if (type != QN_TOKEN_CONTROL && type != QN_TOKEN_UNKNOWN && !t->token[id].ends) ids[n++] = id;
        }
        if (made && span && ids && qn_text_trie_build(made, &shared->arena, t->texts.pool.at, span, ids, n))
            pieces = shared->pieces = made;
        qn_heap_free(span);
        qn_heap_free(ids);
    }
    pthread_mutex_unlock(&shared->lock);
    return pieces;
}

static qn_status no_way_on(const text_grammar *g, qn_error *error) {
    if (!qn_text_run_is_full(&g->run)) return qn_error_set(error, QN_NO_MEMORY, "no memory for the grammar");
    return qn_error_set(error, QN_INVALID,
                        "the grammar is too ambiguous here: it could be at more places than there is room for");
}

qn_status qn_text_grammar_create(qn_grammar_kind kind, qn_text text, const qn_tokenizer *tokenizer, text_grammar **grammar,
                                 qn_error *error) {
    *grammar = NULL;
    if (kind != QN_GRAMMAR_GBNF && kind != QN_GRAMMAR_JSON_SCHEMA)
        return qn_error_set(error, QN_ARGUMENT, "grammar kind %d is not known", (int)kind);
    text_grammar *g = qn_heap_zeroed(1, sizeof *g);
    if (!g) return qn_error_set(error, QN_NO_MEMORY, "no memory for the grammar");
    qn_arena_init(&g->arena, 0);
    g->t = tokenizer;
    grammar_tree tree = {.arena = &g->arena};
    qn_status status = QN_OK;
    if (kind == QN_GRAMMAR_JSON_SCHEMA) status = qn_text_schema_to_grammar(&g->arena, text, &text, error);
    if (status == QN_OK) status = qn_text_grammar_parse(&tree, text, tokenizer, error);
    if (status == QN_OK) status = qn_text_grammar_compile(&g->net, &g->arena, &tree, error);
    if (status == QN_OK) {
        g->set = qn_text_run_start(&g->run, &g->net);
        g->pieces = tokenizer ? pieces_of(tokenizer) : NULL;
        if (g->set == SET_FAILED) status = no_way_on(g, error);
        else if (tokenizer && !g->pieces) status = qn_error_set(error, QN_NO_MEMORY, "no memory for the grammar's tokens");
        if (g->set == SET_DEAD) status = qn_error_set(error, QN_INVALID, "grammar: no text follows it, not even the empty one");
    }
    if (status == QN_OK) *grammar = g;
    else qn_text_grammar_destroy(g);
    return status;
}

void qn_text_grammar_destroy(text_grammar *g) {
    if (!g) return;
    qn_text_run_free(&g->run);
    qn_arena_destroy(&g->arena);
    qn_heap_free(g->allowed);
    qn_heap_free(g);
}

qn_status qn_text_grammar_restart(text_grammar *g, qn_error *error) {
    int32_t set = qn_text_run_restart(&g->run);
    if (set == SET_FAILED) return qn_error_set(error, QN_NO_MEMORY, "no memory for the grammar"); /* its bounds held before */
    g->set = set;
    g->ended = 0;
    return QN_OK;
}

/* Where a token leads. */
static int32_t after(text_grammar *g, int32_t id) {
    if (id < 0 || id >= g->t->n_tokens) return SET_DEAD;
    const token_data *d = &g->t->token[id];
    if (d->ends && g->run.sets.at[g->set].ends) return g->set;
    if (g->ended) return SET_DEAD;
    int text = d->type != QN_TOKEN_CONTROL && d->type != QN_TOKEN_UNKNOWN && !d->ends;
    return qn_text_run_token(&g->run, g->set, id, text ? token_piece(g->t, id) : (qn_text){"", 0});
}

int qn_text_grammar_allows(text_grammar *g, int32_t id) { return after(g, id) > SET_DEAD; }

static void allow(text_grammar *g, int32_t id, size_t n) {
    if ((size_t)id < n) g->allowed[id / 32] |= 1u << (id % 32);
}

/* Tokens by their bytes: down the tree as far as the grammar goes. */
static int mask_pieces(text_grammar *g, size_t n) {
    typedef struct place {
        uint32_t node, child;
        int32_t set;
    } place;
    place path[TOKEN_MOST_BYTES + 2];
    size_t depth = 1;
    path[0] = (place){0, 0, g->set};
    while (depth) {
        place *p = &path[depth - 1];
        const trie_node *node = &g->pieces->node[p->node];
        if (p->child == node->children) {
            depth--;
            continue;
        }
        uint32_t child = node->first + p->child++;
        const trie_node *down = &g->pieces->node[child];
        int32_t set = qn_text_run_step(&g->run, p->set, down->byte);
        if (set == SET_FAILED) return 0;
        if (set == SET_DEAD) continue;
        for (uint32_t i = 0; i < down->same; i++) allow(g, g->pieces->id[down->ids + i], n);
        path[depth++] = (place){child, 0, set};
    }
    return 1;
}

/* Tokens that the grammar names as such. */
static void mask_named(text_grammar *g, size_t n) {
    const run_set *s = &g->run.sets.at[g->set];
    for (uint32_t i = 0; i < s->n; i++) {
        const net_state *state = &g->net.states.at[g->run.pool.at[s->at + i].state];
        if (state->kind != NET_TOKEN) continue;
        if (!state->low) allow(g, state->b, n);
        for (int32_t id = 0; state->low && id < g->t->n_tokens; id++)
            if (id != state->b) allow(g, id, n);
    }
}

qn_status qn_text_grammar_mask(text_grammar *g, size_t n, const uint32_t **allowed, qn_error *error) {
    if (n / 32 + 1 > g->words) {
        uint32_t *grown = qn_heap_resize(g->allowed, (n / 32 + 1) * sizeof *grown);
        if (!grown) return qn_error_set(error, QN_NO_MEMORY, "no memory for the grammar's mask");
        g->allowed = grown;
        g->words = n / 32 + 1;
    }
    memset(g->allowed, 0, g->words * sizeof *g->allowed);
    for (int32_t id = 0; g->run.sets.at[g->set].ends && id < g->t->n_tokens; id++)
        if (g->t->token[id].ends) allow(g, id, n);
    if (!g->ended) {
        if (!mask_pieces(g, n)) return no_way_on(g, error);
        mask_named(g, n);
    }
    *allowed = g->allowed;
    return QN_OK;
}

qn_status qn_text_grammar_accept(text_grammar *g, int32_t id, qn_error *error) {
    int32_t set = after(g, id);
    if (set == SET_FAILED) return no_way_on(g, error);
    if (set == SET_DEAD) return qn_error_set(error, QN_INVALID, "the grammar does not allow token %d here", id);
    int ends = g->t->token[id].ends && g->run.sets.at[g->set].ends;
    int32_t tidy = qn_text_run_tidy(&g->run, set);
    if (tidy == SET_FAILED) return no_way_on(g, error);
    g->set = tidy;
    g->ended |= ends;
    return QN_OK;
}
