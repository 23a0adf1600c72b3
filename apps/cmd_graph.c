/* quern graph: a graph from .qir text, printed back in its normal form, checked, drawn or counted. */
#include <stdio.h>
#include <stdlib.h>

#include "app.h"

typedef struct graph_words {
    const char *file, *bind, *loss, *wrt;
    option_choice form;
    graph_passes p;
} graph_words;

static int complain(const char *file, const char *text) {
    fprintf(stderr, "quern graph: %s: %s\n", file, text);
    return APP_FAILED;
}

static qn_status write_out(void *user, const char *text, size_t length) {
    return fwrite(text, 1, length, user) == length ? QN_OK : QN_IO;
}

static void print_fault(void *user, const qn_graph_fault *fault) {
    (void)user;
    printf("%s\n", fault->text);
}

/* ---- Names on the command line, separated by commas */

static qn_val leaf_by_name(const qn_graph *g, const char *name) {
    qn_value_info info = {.size = sizeof info};
    for (qn_val v = 0; v < qn_graph_value_count(g); v++)
        if (qn_graph_value(g, v, &info) == QN_OK && info.name && strcmp(info.name, name) == 0) return v;
    return QN_VAL_NONE;
}

static qn_val output_by_name(const qn_graph *g, const char *name) {
    const char *other;
    for (int32_t i = 0; i < qn_graph_output_count(g); i++) {
        qn_val v = qn_graph_output_value(g, i, &other);
        if (strcmp(other, name) == 0) return v;
    }
    return QN_VAL_NONE;
}

static int missing(const char *file, const char *kind, const char *name) {
    fprintf(stderr, "quern graph: %s: there is no %s '%s'\n", file, kind, name);
    return APP_FAILED;
}

/* The value as an output of that name, "grad NAME". */
static int add_output(qn_graph *g, qn_val grad, const char *name) {
    size_t n = strlen(name) + sizeof "grad ";
    char *text = malloc(n);
    if (!text) return 0;
    snprintf(text, n, "grad %s", name);
    qn_graph_output(g, grad, text);
    free(text);
    return 1;
}

static int add_gradients(qn_graph *g, const char *file, const char *loss, char *wrt) {
    qn_val of = output_by_name(g, loss);
    size_t most = strlen(wrt) / 2 + 1;
    qn_val *values = calloc(2 * most, sizeof *values), *grads = values ? values + most : NULL;
    const char **names = calloc(most, sizeof *names);
    qn_error error = {QN_NO_MEMORY, "no memory for the gradients"};
    int n = 0, rc = of == QN_VAL_NONE ? missing(file, "output", loss) : APP_OK, good = values && names;
    for (char *name = strtok(wrt, ","); good && rc == APP_OK && name; name = strtok(NULL, ",")) {
        names[n] = name;
        values[n] = leaf_by_name(g, name);
        if (values[n++] == QN_VAL_NONE) rc = missing(file, "input or param", name);
    }
    if (good && rc == APP_OK) qn_graph_grad(g, of, n, values, grads);
    for (int i = 0; good && rc == APP_OK && i < n; i++) good = add_output(g, grads[i], names[i]);
    if (rc == APP_OK && (!good || qn_graph_error(g, &error) != QN_OK)) rc = complain(file, error.text);
    free(values);
    free((void *)names);
    return rc;
}

/* NAME=N,... over the symbols' upper bounds. */
static int bind_symbols(qn_graph **graph, const char *file, const char *list) {
    int64_t numbers[APP_SYMBOLS];
    qn_graph *bound;
    qn_error error;
    int rc = app_graph_symbols("quern graph", *graph, list, numbers);
    if (rc != APP_OK) return rc;
    if (qn_graph_bind(*graph, numbers, &bound, &error) != QN_OK) return complain(file, error.text);
    qn_graph_destroy(*graph);
    *graph = bound;
    return APP_OK;
}

static int show(const qn_graph *g, const graph_words *o) {
    qn_error error;
    const char *form = o->form.name;
    if (form && strcmp(form, "--verify") == 0) return qn_graph_verify(g, print_fault, NULL) == QN_OK ? APP_OK : APP_FAILED;
    if (form && strcmp(form, "--stats") == 0) return graph_print_stats(g);
    if (form) {
        graph_print_dot(g);
        return APP_OK;
    }
    if (o->p.time || o->p.report) return APP_OK;
    return qn_graph_print(g, write_out, stdout, &error) == QN_OK ? APP_OK : complain(o->file, error.text);
}

static const char *pass_name(int i) { return qn_graph_pass_name(i, NULL); }

static const option_row rows[] = {
    OPTION(graph_words, file, "FILE.qir", NULL, NULL, .files = "qir"),
    OPTION(graph_words, bind, "--bind", "NAME=N,...", "give every symbol a number; those left out take their largest"),
    OPTION(graph_words, loss, "--grad", "LOSS", "add the gradients of this output by what --wrt names, as outputs 'grad NAME'"),
    OPTION(graph_words, wrt, "--wrt", "NAME,...", "inputs and params that --grad differentiates by"),
    OPTION(graph_words, form, "--verify", NULL, "check everything, print every fault, and nothing else"),
    OPTION(graph_words, form, "--dot", NULL, "print it for Graphviz"),
    OPTION(graph_words, form, "--stats", NULL, "print nodes by op, values, bytes, and the tree of labels"),
    {0}};
static const option_row pass_rows[] = {
    OPTION(graph_passes, passes, "--passes", "all|NAME,...",
           "optimise first, with all passes or those named, in that order; each is "
           "checked",
           .choices = pass_name),
    OPTION(graph_passes, skip, "--skip", "NAME,...", "leave out passes or single rules, by the names that --report gives",
           .choices = pass_name),
    OPTION(graph_passes, limit, "--limit", "N", "stop after so many changes: halve it to find the one that matters"),
    OPTION(graph_passes, fast, "--fast", NULL, "make also the changes that alter results within the ops' bounds"),
    OPTION(graph_passes, precision, "--precision", "f16|bf16", "make products in halves"),
    OPTION(graph_passes, print_after, "--print-after", "NAME|all", "print the graph after that pass", .choices = pass_name),
    OPTION(graph_passes, report, "--report", NULL, "print every change, and what was left alone and why, instead of the graph"),
    OPTION(graph_passes, time, "--time", NULL, "print changes, nodes and time of each pass, instead of the graph"),
    {0}};
static const option_group groups[] = {{NULL, rows, 0}, {"Passes", pass_rows, offsetof(graph_words, p)}, {0}};

static int has_pass_words(const graph_passes *p) {
    return p->skip || p->limit || p->precision || p->print_after || p->fast || p->time || p->report;
}

/* Whether the words make sense together; else why has been said. */
static int understand(const graph_words *o) {
    if (!o->file || !o->loss != !o->wrt) {
        fprintf(stderr, o->file ? "quern graph: --grad and --wrt go together\n" : "quern graph: which file?\n");
        return 0;
    }
    if (!o->p.passes && has_pass_words(&o->p)) {
        fprintf(stderr, "quern graph: which passes? --passes all, or their names\n");
        return 0;
    }
    return 1;
}

static int run(const quern_verb *self, int argc, char **argv) {
    graph_words o = {0};
    int rc = options_read(self, argc, argv, &o);
    if (rc != APP_OK) return rc;
    if (!understand(&o)) return APP_USAGE;
    qn_graph *graph = NULL;
    if (app_graph_read("quern graph", o.file, &graph) != APP_OK) return APP_FAILED;
    rc = o.bind ? bind_symbols(&graph, o.file, o.bind) : APP_OK;
    if (rc == APP_OK && o.loss) rc = add_gradients(graph, o.file, o.loss, (char *)(uintptr_t)o.wrt);
    if (rc == APP_OK && o.p.passes) rc = graph_run_passes(&graph, o.file, &o.p);
    if (rc == APP_OK) rc = show(graph, &o);
    qn_graph_destroy(graph);
    return rc;
}

const quern_verb verb_graph = {
    .name = "graph",
    .brief = "print, check, draw, count or optimise a graph from .qir text",
    .run = run,
    .usage = "FILE.qir [options]",
    .about = "Reads a graph (docs/qir.md) and prints it back in its normal form. '-' reads standard input.",
    .groups = groups};
