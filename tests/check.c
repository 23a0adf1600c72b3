/* qn_check: one program that tries every op of the table on the cases of tests/cases.def. This file is its command line and its
 * report; each mode has files of its own. */
#define _DEFAULT_SOURCE /* setenv */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

qc_settings qc_set = {.op = -1, .seed = 1, .seconds = 10, .room = 1 << 20};
qn_context *qc_context;

enum { SHOWN = 6 }; /* failures of one op that are printed */

static int64_t passed, failed;
static int shown[QN_OP_COUNT + 1];

void qc_pass(void) { passed++; }
int qc_failures(void) { return failed > 0; }

static void print_tensors(const char *title, int n, const qn_tensor *const *t) {
    printf("  %s", title);
    for (int i = 0; i < n; i++) {
        const qn_dtype_info *info = t[i] ? qn_dtype_describe((qn_dtype)t[i]->dtype) : NULL;
        printf(" %s[", t[i] ? info ? info->name : "?" : "-");
        for (int k = 0; t[i] && k < t[i]->rank && k < QN_MAX_RANK; k++) printf("%s%lld", k ? "," : "", (long long)t[i]->shape[k]);
        printf("]");
    }
    printf("\n");
}

static void print_case(const qc_built *b) {
    static const char *const words[] = {"QN_CASE", "QN_REJECT", "QN_GOLD"};
    const qc_case *c = b->c;
    printf("  %s(%s, \"%s\", \"%s\")", words[c->kind], qn_op_describe(c->op)->name, c->sources, c->attributes);
    if (b->trouble) {
        printf("\n");
        return;
    }
    const char *sub = qn_subop_name(c->op, qc_draw_subop(c, &b->draw));
    printf(" seed %llu variant %lld%s%s\n", (unsigned long long)b->draw.seed, (long long)b->draw.variant, sub ? " sub=" : "",
           sub ? sub : "");
    if (b->request.n_src <= QN_MAX_SRC) print_tensors("sources", b->request.n_src, b->request.src);
    if (b->request.n_dst <= QN_MAX_DST) print_tensors("destinations", b->request.n_dst, b->request.dst);
}

void qc_fail(const qc_built *b, const char *format, ...) {
    failed++;
    int op = b ? b->c->op : QN_OP_COUNT;
    if (shown[op]++ >= SHOWN && !qc_set.verbose) return;
    printf("FAIL %s: ", b ? qn_op_describe(op)->name : "qn_check");
    va_list args;
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    printf("\n");
    if (b) print_case(b);
}

void qc_report_op(int op) {
    if (shown[op] > SHOWN && !qc_set.verbose)
        printf("FAIL %s: %d more like these; -v shows all\n", qn_op_describe(op)->name, shown[op] - SHOWN);
}

int qc_finish(void) {
    printf("%lld passed, %lld failed\n", (long long)passed, (long long)failed);
    return failed != 0;
}

/* ---- Command line */

static int usage(const char *why) {
    if (why) fprintf(stderr, "qn_check: %s\n", why);
    fprintf(stderr, "usage: qn_check list [--op NAME] [-v]\n"
                    "       qn_check test [--op NAME] [--quick] [--small] [--seed N] [-v]\n"
                    "       qn_check grad [--op NAME] [--quick] [--seed N] [-v]\n"
                    "       qn_check fuzz [--op NAME] [--seconds N] [--seed N] [-v]\n"
                    "       qn_check graphs [--quick] [--seed N]\n"
                    "       qn_check vmap [--op NAME] [--quick] [--seed N] [-v]\n"
                    "       qn_check kernels [--op NAME] [--quick] [--small] [--seed N] [-v]\n"
                    "       qn_check threads [--op NAME] [--quick] [--small] [--seed N] [-v]\n"
                    "       qn_check batch [--op NAME] [--quick] [--small] [--seed N] [-v]\n"
                    "       qn_check tolerances [--op NAME] [-v]\n"
                    "       qn_check vectors DIR [-v]\n");
    return 2;
}

static int whole_number(const char *text, double *value) {
    char *end;
    *value = strtod(text, &end);
    return *text && *end == 0 && *value >= 0;
}

/* One option; how many words it took, 0 when there is none such. */
static int option(int n, char **words) {
    double value;
    if (strcmp(words[0], "--quick") == 0) return qc_set.quick = 1;
    if (strcmp(words[0], "--small") == 0) return qc_set.small = 1;
    if (strcmp(words[0], "-v") == 0) return qc_set.verbose = 1;
    if (n < 2) return 0;
    if (strcmp(words[0], "--op") == 0) {
        qc_set.op = qn_op_from_name(words[1]);
        if (qc_set.op < 0) fprintf(stderr, "qn_check: there is no op %s\n", words[1]);
        return qc_set.op < 0 ? 0 : 2;
    }
    if (!whole_number(words[1], &value)) return 0;
    if (strcmp(words[0], "--seed") == 0) return qc_set.seed = (uint64_t)value, 2;
    if (strcmp(words[0], "--seconds") == 0) return qc_set.seconds = value, 2;
    return 0;
}

static int with_context(int (*mode)(void)) {
    /* the op itself is tried here, by its reference; `kernels` holds the fast ones against it */
    qn_context_options options = {.size = sizeof options, .flags = QN_CONTEXT_REFERENCE};
    if (qn_context_create(&options, &qc_context) != QN_OK) return usage("no context");
    qc_cases_load();
    int code = mode();
    qn_context_destroy(qc_context);
    qc_arena_free();
    return code;
}

int main(int argc, char **argv) {
    setvbuf(stdout, NULL, _IOLBF, 0); /* what was found so far must survive a crash */
    if (argc < 2) return usage(NULL);
    int vectors = strcmp(argv[1], "vectors") == 0;
    if (vectors && argc < 3) return usage("vectors needs a folder");
    for (int i = vectors ? 3 : 2; i < argc;) {
        int used = option(argc - i, argv + i);
        if (!used) {
            fprintf(stderr, "qn_check: cannot use %s\n", argv[i]);
            return usage(NULL);
        }
        i += used;
    }
    int kernels = strcmp(argv[1], "kernels") == 0, threads = strcmp(argv[1], "threads") == 0;
    int tolerances = strcmp(argv[1], "tolerances") == 0, batch = strcmp(argv[1], "batch") == 0;
    int fast = kernels || threads || batch || tolerances;
    if (tolerances) qc_set.room = (int64_t)1 << 25;
    if (!fast) setenv("QUERN_CPU", "none", 1); /* the references are tried, and workspaces are sized for them */
    if (vectors) return qn_check_vectors(argv[2], qc_set.verbose);
    if (strcmp(argv[1], "list") == 0) return with_context(qc_mode_list);
    if (strcmp(argv[1], "test") == 0) return with_context(qc_mode_test);
    if (strcmp(argv[1], "grad") == 0) return with_context(qc_mode_grad);
    if (strcmp(argv[1], "fuzz") == 0) return with_context(qc_mode_fuzz);
    if (strcmp(argv[1], "graphs") == 0) return with_context(qc_mode_graphs);
    if (strcmp(argv[1], "vmap") == 0) return with_context(qc_mode_vmap);
    if (kernels) return with_context(qc_mode_kernels);
    if (threads) return with_context(qc_mode_threads);
    if (batch) return with_context(qc_mode_batch);
    if (tolerances) return with_context(qc_mode_tolerances);
    return usage("no such mode");
}
