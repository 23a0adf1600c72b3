/* Passes from the command line: which, how far, and what they say. */
#include <stdio.h>
#include <stdlib.h>

#include "app.h"

typedef struct listener {
    const graph_passes *o;
    double total; /* milliseconds */
    int failed, printed;
} listener;

static qn_status write_out(void *user, const char *text, size_t length) {
    return fwrite(text, 1, length, user) == length ? QN_OK : QN_IO;
}

static void tell(void *user, const qn_pass_note *note) {
    const listener *l = user;
    qn_node_info n = {.size = sizeof n};
    if (!l->o->report || qn_graph_node(note->graph, note->node, &n) != QN_OK) return;
    printf("%-10s %-22s %-7s node %d %s%s%s", note->pass, note->rule, note->missed ? "missed" : "done", note->node,
           qn_op_describe(n.op)->name, qn_subop_count(n.op) ? "." : "", qn_subop_count(n.op) ? qn_subop_name(n.op, n.subop) : "");
    if (*n.label) printf(" (%s)", n.label);
    printf("%s%s\n", note->missed ? ": " : "", note->missed ? note->missed : "");
}

static void after(void *user, const qn_pass_done *done) {
    listener *l = user;
    qn_error error;
    double ms = (double)done->nanoseconds / 1e6;
    l->total += ms;
    if (l->o->time)
        printf("%-10s %6d changes %8d nodes to %8d %10.3f ms\n", done->pass, done->changed, done->nodes_before, done->nodes_after,
               ms);
    if (!l->o->print_after || (strcmp(l->o->print_after, done->pass) != 0 && strcmp(l->o->print_after, "all") != 0)) return;
    l->printed = 1;
    printf("# after %s: %d changes\n", done->pass, done->changed);
    if (qn_graph_print(done->graph, write_out, stdout, &error) != QN_OK) {
        fprintf(stderr, "quern graph: %s\n", error.text);
        l->failed = 1;
    }
}

static int complain(const char *what, const char *word) {
    fprintf(stderr, "quern graph: %s '%s'\n", what, word);
    return APP_USAGE;
}

/* The number of the first pass of that name; -1: there is none. */
static int pass_number(const char *name) {
    const char *known;
    for (int i = 0; (known = qn_graph_pass_name(i, NULL)); i++)
        if (strcmp(known, name) == 0) return i;
    return -1;
}

static int complain_of_pass(const char *name) {
    const char *known;
    fprintf(stderr, "quern graph: --print-after takes all or a pass, not '%s'; passes are", name);
    for (int i = 0; (known = qn_graph_pass_name(i, NULL)); i++)
        if (pass_number(known) == i) fprintf(stderr, "%s %s", i ? "," : "", known); /* one that runs twice is named once */
    fputc('\n', stderr);
    return APP_USAGE;
}

int graph_run_passes(qn_graph **graph, const char *file, const graph_passes *p) {
    listener l = {.o = p};
    qn_pass_options o = {.size = sizeof o, .flags = QN_PASS_VERIFY, .skip = p->skip, .note = tell, .done = after, .user = &l};
    qn_graph *better;
    qn_error error;
    char *end = NULL;
    o.only = strcmp(p->passes, "all") == 0 ? NULL : p->passes;
    if (p->fast) o.flags |= QN_PASS_FAST;
    if (p->limit) {
        long n = strtol(p->limit, &end, 10);
        if (*end || n < 1 || n > INT32_MAX) return complain("--limit takes a number from 1, not", p->limit);
        o.limit = (int32_t)n;
    }
    if (p->precision) {
        o.precision = strcmp(p->precision, "f16") == 0    ? QN_PRECISION_F16
                      : strcmp(p->precision, "bf16") == 0 ? QN_PRECISION_BF16
                                                          : QN_PRECISION_KEEP;
        if (o.precision == QN_PRECISION_KEEP) return complain("--precision takes f16 or bf16, not", p->precision);
    }
    if (p->print_after && strcmp(p->print_after, "all") != 0 && pass_number(p->print_after) < 0)
        return complain_of_pass(p->print_after);
    if (qn_graph_optimise(*graph, &o, &better, &error) != QN_OK) {
        fprintf(stderr, "quern graph: %s: %s\n", file, error.text);
        return APP_FAILED;
    }
    if (p->time) printf("%-10s %53.3f ms\n", "all", l.total);
    qn_graph_destroy(*graph);
    *graph = better;
    if (p->print_after && !l.printed) {
        fprintf(stderr, "quern graph: %s: nothing to print after '%s', which did not run: see --passes and --skip\n", file,
                p->print_after);
        return APP_FAILED;
    }
    return l.failed ? APP_FAILED : APP_OK;
}
