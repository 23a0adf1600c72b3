/* A graph for the eye: Graphviz, and figures. */
#include <stdio.h>
#include <stdlib.h>

#include "app.h"

static void print_escaped(const char *text) {
    for (; *text; text++) {
        if (*text == '"' || *text == '\\') putchar('\\');
        putchar((unsigned char)*text < 0x20 ? '?' : *text);
    }
}

static void print_type(const qn_graph *g, const qn_value_info *v) {
    char text[256];
    printf("%s[", qn_dtype_describe(v->dtype)->name);
    for (int k = 0; k < v->rank; k++) {
        qn_graph_dim_format(g, v->shape[k], text, sizeof text);
        if (k) printf(", ");
        print_escaped(text);
    }
    printf("]");
}

static qn_value_info value_of(const qn_graph *g, qn_val v) {
    qn_value_info info = {.size = sizeof info};
    qn_graph_value(g, v, &info);
    return info;
}

static qn_node_info node_of(const qn_graph *g, int32_t n) {
    qn_node_info info = {.size = sizeof info};
    qn_graph_node(g, n, &info);
    return info;
}

/* ---- Graphviz: a box for each node and leaf, an edge for each use with the type of what flows */

static void print_end(const qn_value_info *v, qn_val number) {
    if (v->kind == QN_VALUE_RESULT) printf("n%d", v->node);
    else printf("v%d", number);
}

static void print_edge(const qn_graph *g, qn_val from, const char *to, int32_t number) {
    qn_value_info v = value_of(g, from);
    printf("  ");
    print_end(&v, from);
    printf(" -> %s%d [label=\"", to, number);
    print_type(g, &v);
    printf("\"];\n");
}

void graph_print_dot(const qn_graph *g) {
    static const char *const kinds[] = {"input", "param", "const"};
    printf("digraph quern {\n  node [shape=box, fontname=\"monospace\", fontsize=10];\n  edge [fontname=\"monospace\", "
           "fontsize=8];\n");
    for (qn_val i = 0; i < qn_graph_value_count(g); i++) {
        qn_value_info v = value_of(g, i);
        if (v.kind == QN_VALUE_RESULT) continue;
        printf("  v%d [style=rounded, label=\"%s ", i, kinds[v.kind]);
        print_escaped(v.name ? v.name : "");
        printf("\\n");
        print_type(g, &v);
        printf("\"];\n");
    }
    for (int32_t k = 0; k < qn_graph_node_count(g); k++) {
        qn_node_info n = node_of(g, k);
        printf("  n%d [label=\"%s%s%s", k, qn_op_describe(n.op)->name, qn_subop_count(n.op) ? "." : "",
               qn_subop_count(n.op) ? qn_subop_name(n.op, n.subop) : "");
        if (*n.label) printf("\\n");
        print_escaped(n.label);
        printf("\"];\n");
        for (int i = 0; i < n.n_src; i++)
            if (n.src[i] != QN_VAL_NONE) print_edge(g, n.src[i], "n", k);
    }
    for (int32_t i = 0; i < qn_graph_output_count(g); i++) {
        const char *name = "";
        qn_val v = qn_graph_output_value(g, i, &name);
        printf("  o%d [style=bold, label=\"output ", i);
        print_escaped(name);
        printf("\"];\n");
        print_edge(g, v, "o", i);
    }
    printf("}\n");
}

/* ---- Figures */

static void print_values(const qn_graph *g) {
    static const char *const kinds[] = {"inputs", "params", "constants", "results"};
    int64_t count[4] = {0};
    double bytes[4] = {0}; /* a double, because a hostile file may hold sizes whose sum is no integer */
    for (qn_val i = 0; i < qn_graph_value_count(g); i++) {
        qn_value_info v = value_of(g, i);
        int64_t d[QN_MAX_RANK];
        uint64_t size = 0;
        for (int k = 0; k < v.rank; k++) d[k] = qn_graph_dim_value(g, v.shape[k], NULL);
        qn_tensor_bytes(v.dtype, v.rank, d, &size);
        count[v.kind]++;
        bytes[v.kind] += (double)size;
    }
    printf("values     %d%s\n", qn_graph_value_count(g), qn_graph_symbol_count(g) ? " (bytes at the symbols' upper bounds)" : "");
    for (int i = 0; i < 4; i++)
        if (count[i]) printf("  %-9s %8lld %16.0f bytes\n", kinds[i], (long long)count[i], bytes[i]);
}

static void print_symbols(const qn_graph *g) {
    qn_symbol_info s = {.size = sizeof s};
    if (qn_graph_symbol_count(g)) printf("symbols    %d\n", qn_graph_symbol_count(g));
    for (int32_t i = 0; i < qn_graph_symbol_count(g); i++)
        if (qn_graph_symbol_describe(g, i, &s) == QN_OK)
            printf("  %-9s %lld..%lld by %lld\n", s.name, (long long)s.least, (long long)s.most, (long long)s.multiple_of);
}

typedef struct tally {
    int32_t op, count;
} tally;

static int by_count(const void *a, const void *b) {
    const tally *x = a, *y = b;
    return x->count != y->count ? (x->count < y->count) - (x->count > y->count) : (x->op > y->op) - (x->op < y->op);
}

static void print_ops(const qn_graph *g) {
    tally ops[QN_OP_COUNT];
    for (int i = 0; i < QN_OP_COUNT; i++) ops[i] = (tally){i, 0};
    for (int32_t k = 0; k < qn_graph_node_count(g); k++) ops[node_of(g, k).op].count++;
    qsort(ops, QN_OP_COUNT, sizeof *ops, by_count);
    printf("nodes      %d\n", qn_graph_node_count(g));
    for (int i = 0; i < QN_OP_COUNT && ops[i].count; i++) printf("  %-24s %8d\n", qn_op_describe(ops[i].op)->name, ops[i].count);
}

/* ---- The tree of labels: paths sorted, each part printed once, indented, with the nodes at it and below. */

static const char SEPARATOR[] = " / ";

static int by_text(const void *a, const void *b) { return strcmp(*(const char *const *)a, *(const char *const *)b); }

/* Length of the path up to and with its part number `depth`; 0 when it has fewer parts. */
static size_t prefix(const char *path, int depth) {
    const char *at = path;
    for (int i = 0; i <= depth; i++) {
        const char *next = strstr(at, SEPARATOR);
        if (i == depth) return next ? (size_t)(next - path) : strlen(path);
        if (!next) return 0;
        at = next + sizeof SEPARATOR - 1;
    }
    return 0;
}

static int shares(const char *a, const char *b, size_t n) {
    return strncmp(a, b, n) == 0 && (b[n] == 0 || strncmp(b + n, SEPARATOR, sizeof SEPARATOR - 1) == 0);
}

static void print_path(const char **paths, int n, int i) {
    for (int depth = 0; depth < 64; depth++) {
        size_t length = prefix(paths[i], depth), before = depth ? prefix(paths[i], depth - 1) + sizeof SEPARATOR - 1 : 0;
        int count = 0;
        if (length == 0) return;
        if (i && shares(paths[i], paths[i - 1], length)) continue;
        for (int k = i; k < n && strncmp(paths[k], paths[i], length) == 0; k++) count += shares(paths[i], paths[k], length);
        printf("  %*s", 2 * depth, "");
        for (size_t k = before; k < length; k++) putchar((unsigned char)paths[i][k] < 0x20 ? '?' : paths[i][k]);
        printf(" (%d)\n", count);
    }
}

int graph_print_stats(const qn_graph *g) {
    int32_t n = qn_graph_node_count(g), labelled = 0;
    const char **paths = malloc(((size_t)n + 1) * sizeof *paths);
    if (!paths) {
        fprintf(stderr, "quern graph: no memory for %d labels\n", n);
        return APP_FAILED;
    }
    print_symbols(g);
    print_values(g);
    print_ops(g);
    printf("outputs    %d\n", qn_graph_output_count(g));
    for (int32_t k = 0; k < n; k++) {
        const char *label = node_of(g, k).label;
        if (*label) paths[labelled++] = label;
    }
    qsort((void *)paths, (size_t)labelled, sizeof *paths, by_text);
    if (labelled) printf("labels     %d of %d nodes\n", labelled, n);
    for (int32_t i = 0; i < labelled; i++) print_path(paths, labelled, i);
    free((void *)paths);
    return APP_OK;
}
