/* Byte strings as a tree: what matches here, and what may come next. Children lie side by side in the order of their bytes. */
#ifndef QN_TEXT_TOKEN_TRIE_H
#define QN_TEXT_TOKEN_TRIE_H

#include "text/token_map.h"

typedef struct trie_node {
    uint32_t first; /* child; the root is 0 and nobody's child */
    uint32_t ids;   /* numbers that end here: id[ids] on, `same` of them */
    uint32_t same;
    uint16_t children;
    uint8_t byte;
} trie_node;

typedef struct token_trie {
    trie_node *node;
    int32_t *id; /* all numbers, sorted by their bytes and then by themselves */
    size_t nodes, ids;
} token_trie;

/* A tree of the spans with these numbers; empty spans are left out. 0: no memory. */
int qn_text_trie_build(token_trie *trie, qn_arena *arena, const char *pool, const token_span *span, const int32_t *ids, size_t n);

/* The child of a node for a byte, or 0. */
static inline uint32_t qn_text_trie_step(const token_trie *trie, uint32_t at, char byte) {
    uint32_t low = trie->node[at].first, high = low + trie->node[at].children;
    uint8_t b = (uint8_t)byte;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (trie->node[middle].byte < b) low = middle + 1;
        else high = middle;
    }
    return low < trie->node[at].first + trie->node[at].children && trie->node[low].byte == b ? low : 0;
}

#endif
