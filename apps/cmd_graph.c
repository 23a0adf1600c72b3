/* quern graph: a graph from .qir text, printed back in its normal form, checked, drawn or counted. */
#include <stdio.h>
#include <stdlib.h>

#include "app.h"

static const char
    help[] = "usage: quern graph FILE.qir [--bind NAME=N,...] [--grad LOSS --wrt NAME,...] [--passes all|NAME,...]\n"
             "                   [--verify | --dot | --stats]\n\n"
             "Reads a graph (docs/qir.md) and prints it back in its normal form. '-' reads standard input.\n\n"
             "  --bind    gives every symbol a number; those left out take their largest\n"
             "  --grad    adds the gradients of an output (LOSS) by the inputs and params of --wrt, as outputs 'grad NAME'\n"
             "  --verify  checks everything, prints every fault, and nothing else\n"
             "  --dot     for Graphviz\n"
             "  --stats   nodes by op, values, bytes, and the tree of labels\n"
             "  --passes  optimises first, with all passes or those named, in that order; each is checked. With it:\n"
             "    --skip NAME,...         leaves out passes or single rules, by the names that --report gives\n"
             "    --limit N               stops after so many changes: halve it to find the one that matters\n"
             "    --fast                  also what changes results within the ops' bounds\n"
             "    --precision f16|bf16    products in halves\n"
             "    --print-after NAME|all  the graph after that pass\n"
             "    --report                every change, and what was left alone and why, instead of the graph\n"
             "    --time                  changes, nodes and time of each pass, instead of the graph\n";

typedef struct options {
    const char *file, *form, *bind, *loss, *wrt;
    graph_passes p;
} options;

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

static int show(const qn_graph *g, const options *o) {
    qn_error error;
    if (o->form && strcmp(o->form, "--verify") == 0) return qn_graph_verify(g, print_fault, NULL) == QN_OK ? APP_OK : APP_FAILED;
    if (o->form && strcmp(o->form, "--stats") == 0) return graph_print_stats(g);
    if (o->form) {
        graph_print_dot(g);
        return APP_OK;
    }
    if (o->p.time || o->p.report) return APP_OK;
    return qn_graph_print(g, write_out, stdout, &error) == QN_OK ? APP_OK : complain(o->file, error.text);
}

/* Where a word of the command line goes, and whether another belongs to it; NULL when it is none. */
static const char **slot_of(options *o, const char *word, int *takes) {
    const struct {
        const char *word;
        const char **slot;
        int takes;
    } words[] = {{"--bind", &o->bind, 1},
                 {"--grad", &o->loss, 1},
                 {"--wrt", &o->wrt, 1},
                 {"--passes", &o->p.passes, 1},
                 {"--skip", &o->p.skip, 1},
                 {"--limit", &o->p.limit, 1},
                 {"--precision", &o->p.precision, 1},
                 {"--print-after", &o->p.print_after, 1},
                 {"--fast", &o->p.fast, 0},
                 {"--time", &o->p.time, 0},
                 {"--report", &o->p.report, 0},
                 {"--verify", &o->form, 0},
                 {"--dot", &o->form, 0},
                 {"--stats", &o->form, 0}};
    *takes = 0;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcmp(word, words[i].word) == 0) {
            *takes = words[i].takes;
            return words[i].slot;
        }
    return word[0] == '-' && word[1] ? NULL : &o->file;
}

static int has_pass_words(const graph_passes *p) {
    return p->skip || p->limit || p->precision || p->print_after || p->fast || p->time || p->report;
}

/* Fills the options; 0 when the call makes no sense, which has been said. */
static int understand(int argc, char **argv, options *o) {
    for (int i = 1; i < argc; i++) {
        const char *word = argv[i];
        int takes;
        const char **slot = slot_of(o, word, &takes);
        if (!slot) fprintf(stderr, "quern graph: there is no option '%s'; 'quern graph --help' lists them\n", word);
        else if (takes && i + 1 == argc) fprintf(stderr, "quern graph: '%s' needs something behind it\n", word);
        else if (takes) app_again("quern graph", word, *slot, argv[i + 1]);
        else if (*slot && strcmp(*slot, word) != 0) slot = (app_apart("quern graph", *slot, word), NULL);
        if (!slot || (takes && i + 1 == argc)) return 0;
        *slot = takes ? argv[++i] : word;
    }
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

int cmd_graph(int argc, char **argv) {
    options o = {0};
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "-h") == 0 || strcmp(argv[i], "--help") == 0) {
            fputs(help, stdout);
            return APP_OK;
        }
    if (!understand(argc, argv, &o)) return APP_USAGE;
    qn_graph *graph = NULL;
    if (app_graph_read("quern graph", o.file, &graph) != APP_OK) return APP_FAILED;
    int rc = o.bind ? bind_symbols(&graph, o.file, o.bind) : APP_OK;
    if (rc == APP_OK && o.loss) rc = add_gradients(graph, o.file, o.loss, (char *)(uintptr_t)o.wrt);
    if (rc == APP_OK && o.p.passes) rc = graph_run_passes(&graph, o.file, &o.p);
    if (rc == APP_OK) rc = show(graph, &o);
    qn_graph_destroy(graph);
    return rc;
}
