/* What the files of the grammar share. A text (grammar_parse.c) becomes a tree, the tree (grammar_compile.c) a network of
 * states over bytes, and the network is run (grammar_match.c) as a set of places that may be in many rules at once.
 *
 * Time and memory: what is waiting for a rule to end is kept once per rule and place in the text (a frame), not once per way
 * to get there, so ambiguity costs a polynomial and never doubles; sets of places that come again are recognised, and then a
 * byte costs one look-up. Rules may call themselves anywhere, also first. */
#ifndef QN_TEXT_GRAMMAR_PARTS_H
#define QN_TEXT_GRAMMAR_PARTS_H

#include "base/arena.h"
#include "text/grammar.h"
#include "text/tokenizer.h"

enum {
    GRAMMAR_MOST_TEXT = 4 << 20, /* bytes of a grammar */
    GRAMMAR_MOST_DEPTH = 200,    /* of parentheses */
    GRAMMAR_MOST_RULES = 1 << 16,
    GRAMMAR_MOST_STATES = 1 << 20, /* after repetitions are written out */
    GRAMMAR_MOST_REPEAT = 1 << 16
};

/* ---- The tree ------------------------------------------------------------------------------------------------------ */

typedef enum tree_kind { TREE_LITERAL, TREE_CLASS, TREE_RULE, TREE_TOKEN, TREE_SEQUENCE, TREE_CHOICE, TREE_REPEAT } tree_kind;

typedef struct code_range {
    uint32_t low, high;
} code_range;

typedef struct tree_node {
    tree_kind kind;
    int32_t rule;            /* TREE_RULE: its number; TREE_TOKEN: the token's id */
    int32_t least, most;     /* TREE_REPEAT; most -1: any number */
    int32_t inverted;        /* TREE_CLASS, TREE_TOKEN */
    const char *bytes;       /* TREE_LITERAL */
    const code_range *range; /* TREE_CLASS */
    size_t n;                /* of bytes or ranges */
    struct tree_node *first; /* parts of SEQUENCE, CHOICE, REPEAT */
    struct tree_node *next;  /* of the same parent */
} tree_node;

typedef struct tree_rule {
    const char *name;
    size_t n;
    tree_node *body; /* NULL: used and not defined */
} tree_rule;

typedef struct grammar_tree {
    qn_arena *arena;
    QN_VEC(tree_rule) rules; /* the first is root */
} grammar_tree;

qn_status qn_text_grammar_parse(grammar_tree *tree, qn_text text, const qn_tokenizer *t, qn_error *error);

/* json_schema.c: the grammar of a schema's documents, as text in *out (released with the arena). */
qn_status qn_text_schema_to_grammar(qn_arena *arena, qn_text schema, qn_text *out, qn_error *error);

/* ---- The network --------------------------------------------------------------------------------------------------- */

typedef enum net_kind {
    NET_BYTE,  /* a byte from low to high, then a */
    NET_SPLIT, /* a or b, at once */
    NET_CALL,  /* rule b, then a */
    NET_TOKEN, /* the token b (low 1: any other), then a */
    NET_END    /* of the rule */
} net_kind;

typedef struct net_state {
    uint8_t kind, low, high;
    int32_t a, b;
} net_state;

typedef struct net_rule {
    int32_t start;
    int32_t nullable;
} net_rule;

typedef struct network {
    QN_VEC(net_state) states;
    QN_VEC(net_rule) rules;
} network;

qn_status qn_text_grammar_compile(network *net, qn_arena *arena, const grammar_tree *tree, qn_error *error);

/* ---- The run ------------------------------------------------------------------------------------------------------- */

typedef struct run_item { /* a state of the network, and the frame to go back to at the end of its rule */
    int32_t state, frame;
} run_item;

typedef struct run_frame { /* who waits for a rule: each of the items goes on when it ends. They lie in the pool. */
    uint32_t at, n;
    uint64_t hash;
} run_frame;

typedef struct run_set { /* all places that may be at; items lie in the pool, sorted */
    uint32_t at, n;
    uint64_t hash;
    int32_t *step; /* by byte: the set after it; SET_UNKNOWN where nobody asked yet */
    uint8_t ends;  /* the text may end here */
} run_set;

enum { SET_DEAD = 0, SET_UNKNOWN = -1, SET_FAILED = -2 };

typedef struct closure closure; /* scratch of grammar_match.c */

typedef struct run {
    const network *net;
    qn_arena arena;
    QN_VEC(run_item) pool;
    QN_VEC(run_frame) frames;
    QN_VEC(run_set) sets;
    int32_t *frame_slots, *set_slots;
    size_t frame_mask, set_mask;
    closure *scratch;
} run;

/* The set at the start of root; SET_FAILED: no memory. */
int32_t qn_text_run_start(run *r, const network *net);
/* The same again; what is known of the sets is kept until much has gathered. After SET_FAILED the sets are those there were. */
int32_t qn_text_run_restart(run *r);
void qn_text_run_free(run *r);
/* The set after a byte, SET_DEAD when it cannot come here, SET_FAILED when there is no memory or the sets grow out of all
 * bounds. */
int32_t qn_text_run_step(run *r, int32_t set, uint8_t byte);
/* The set after the bytes of a token or the token as such, whichever the grammar can take it for; bytes may be empty. */
int32_t qn_text_run_token(run *r, int32_t set, int32_t id, qn_text bytes);
/* Whether the last SET_FAILED was for the bounds' sake; otherwise there was no memory. */
int qn_text_run_is_full(const run *r);
/* Forgets everything but one set when much has gathered; returns its new number, or SET_FAILED. */
int32_t qn_text_run_tidy(run *r, int32_t set);

#endif
