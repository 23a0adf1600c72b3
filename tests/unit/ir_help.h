/* Text of graphs and what the verifier finds, for the tests of them. */
#ifndef QN_TESTS_IR_HELP_H
#define QN_TESTS_IR_HELP_H

#include <stdio.h>
#include <string.h>

#include "cmocka_setup.h"
#include "ir/graph.h"

typedef struct buffer {
    char at[65536];
    size_t n;
} buffer;

static inline qn_status append(void *user, const char *text, size_t length) {
    buffer *b = user;
    if (b->n + length >= sizeof b->at) return QN_IO;
    memcpy(b->at + b->n, text, length);
    b->at[b->n += length] = 0;
    return QN_OK;
}

static inline void read_text(const char *path, buffer *b) {
    FILE *from = fopen(path, "rb");
    assert_non_null(from);
    b->n = fread(b->at, 1, sizeof b->at - 1, from);
    b->at[b->n] = 0;
    fclose(from);
}

static inline qn_graph *parse(const char *text) {
    qn_graph *g;
    qn_error error;
    if (qn_graph_parse(text, strlen(text), 0, &g, &error) != QN_OK) fail_msg("%s", error.text);
    return g;
}

typedef struct findings {
    int n;
    char all[8192];
} findings;

static inline void collect(void *user, const qn_graph_fault *fault) {
    findings *f = user;
    f->n++;
    size_t at = strlen(f->all);
    snprintf(f->all + at, sizeof f->all - at, "%d/%d %s\n", fault->node, fault->value, fault->text);
}

#endif
