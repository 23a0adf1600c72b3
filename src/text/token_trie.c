/* The tree of tokens, built level by level from the sorted list. */
#include "text/token_trie.h"

#include <stdlib.h>
#include <string.h>

typedef struct item {
    const char *at;
    uint32_t n;
    int32_t id;
} item;

static int by_bytes(const void *a, const void *b) {
    const item *x = a, *y = b;
    int order = memcmp(x->at, y->at, x->n < y->n ? x->n : y->n);
    if (order == 0) order = x->n < y->n ? -1 : x->n > y->n;
    if (order == 0) order = x->id < y->id ? -1 : x->id > y->id;
    return order;
}

typedef struct level { /* of a node: the items below it, and how many bytes they share */
    uint32_t from, to, depth;
} level;

typedef struct builder {
    qn_arena *arena;
    const item *items;
    QN_VEC(trie_node) nodes;
    QN_VEC(level) levels;
} builder;

/* One child for each byte that follows in the items of node `at`. */
static int add_children(builder *b, size_t at) {
    level l = b->levels.at[at];
    uint32_t i = l.from;
    while (i < l.to && b->items[i].n == l.depth) i++; /* these end here */
    trie_node node = b->nodes.at[at];
    node.ids = l.from;
    node.same = i - l.from;
    node.first = (uint32_t)b->nodes.n;
    node.children = 0;
    while (i < l.to) {
        uint32_t from = i;
        char byte = b->items[i].at[l.depth];
        while (i < l.to && b->items[i].at[l.depth] == byte) i++;
        if (b->nodes.n >= UINT32_MAX - 1 || !QN_VEC_ROOM(b->arena, &b->nodes, 1) || !QN_VEC_ROOM(b->arena, &b->levels, 1))
            return 0;
        b->nodes.at[b->nodes.n++] = (trie_node){.byte = (uint8_t)byte};
        b->levels.at[b->levels.n++] = (level){from, i, l.depth + 1};
        node.children++;
    }
    b->nodes.at[at] = node;
    return 1;
}

int qn_text_trie_build(token_trie *trie, qn_arena *arena, const char *pool, const token_span *span, const int32_t *ids,
                       size_t n) {
    memset(trie, 0, sizeof *trie);
    builder b = {.arena = arena};
    item *items = qn_arena_resize(arena, NULL, n + 1, sizeof *items);
    trie->id = qn_arena_resize(arena, NULL, n + 1, sizeof *trie->id);
    int ok = items && trie->id && n < UINT32_MAX;
    size_t kept = 0;
    for (size_t i = 0; ok && i < n; i++) {
        token_span s = span[ids[i]];
        if (s.n) items[kept++] = (item){pool + s.at, s.n, ids[i]};
    }
    if (ok) {
        qsort(items, kept, sizeof *items, by_bytes);
        for (size_t i = 0; i < kept; i++) trie->id[i] = items[i].id;
        b.items = items;
        ok = QN_VEC_ROOM(arena, &b.nodes, 1) && QN_VEC_ROOM(arena, &b.levels, 1);
    }
    if (ok) {
        b.nodes.at[b.nodes.n++] = (trie_node){0};
        b.levels.at[b.levels.n++] = (level){0, (uint32_t)kept, 0};
    }
    for (size_t at = 0; ok && at < b.nodes.n; at++) ok = add_children(&b, at);
    if (items) qn_arena_release(arena, items);
    if (b.levels.at) qn_arena_release(arena, b.levels.at);
    if (!ok) { /* the arena outlives this try, and there may be others */
        if (b.nodes.at) qn_arena_release(arena, b.nodes.at);
        if (trie->id) qn_arena_release(arena, trie->id);
        memset(trie, 0, sizeof *trie);
        return 0;
    }
    trie->node = b.nodes.at;
    trie->nodes = b.nodes.n;
    trie->ids = kept;
    return 1;
}
