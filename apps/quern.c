/* The quern command: one binary, one verb a job. Results go to standard output, everything else to standard error. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include "app.h"
#include "build_parts.h"

typedef struct verb {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *help;
    const char *needs; /* the part without which a build cannot do it; NULL: none */
} verb;

static const verb verbs[] = {
    {"ops", cmd_ops, "list the ops, or print one op's page", NULL},
    {"bench", cmd_bench, "measure, beside a limit or a peer in the same run", NULL},
    {"devices", cmd_devices, "list what this machine can compute on, each one tested", NULL},
    {"inspect", cmd_inspect, "list the metadata and tensors of a model file", NULL},
    {"quantize", cmd_quantize, "write a model with its weights in another type", NULL},
    {"convert", cmd_convert, "a GGUF file from safetensors or a llama2.c checkpoint", NULL},
    {"run", cmd_run, "a prompt in, text out", "models"},
    {"chat", cmd_chat, "talk with a model", "models"},
    {"tokenize", cmd_tokenize, "a text as a model sees it", "models"},
    {"embed", cmd_embed, "a text as a vector", "models"},
    {"eval", cmd_eval, "how well a model predicts a text, or its raw logits", "models"},
    {"plan", cmd_plan, "what a graph will allocate, and where each node will run", NULL},
    {"train", cmd_train, "train one of the example networks", NULL},
    {"graph", cmd_graph, "print, check, draw or count a graph from .qir text", NULL},
    {"profile", cmd_profile, "views of a profiler's trace: PyTorch's or our own", "profiler"},
};

static void usage(FILE *to) {
    fprintf(to, "quern %s: a tensor runtime in C\n\nusage: quern VERB [options]\n\n", qn_version());
    for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++) fprintf(to, "  %-8s %s\n", verbs[i].name, verbs[i].help);
    fprintf(to, "\nquern VERB --help says more. Exit codes: 0 done, 1 failed, 2 called wrongly, 130 interrupted.\n");
}

/* Of three files that a caller has closed, the next open would take the number: what is meant for people would go into the model that
 * is being written. Their places are held by what can be neither read nor written, so that using one is an error as it was. */
static int hold_standard_files(void) {
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) != fd) return 0;
    return 1;
}

/* What a build lacks is told before a word is looked at, but help is help. */
static int run_verb(const verb *v, int argc, char **argv) {
    const char *why = v->needs ? build_lacks_why(v->needs) : NULL;
    for (int i = 1; why && i < argc; i++)
        if (strcmp(argv[i], "-h") == 0 || strcmp(argv[i], "--help") == 0) why = NULL;
    if (!why) return v->run(argc, argv);
    fprintf(stderr, "quern %s: this build has no %s: %s\n", v->name, v->needs, why);
    return APP_FAILED;
}

static int run(int argc, char **argv) {
    if (argc < 2) {
        usage(stderr);
        return APP_USAGE;
    }
    if (strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "help") == 0) {
        usage(stdout);
        return APP_OK;
    }
    if (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "version") == 0) {
        printf("quern %s\n", qn_version());
        return APP_OK;
    }
    for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++)
        if (strcmp(argv[1], verbs[i].name) == 0) return run_verb(&verbs[i], argc - 1, argv + 1);
    fprintf(stderr, "quern: there is no verb '%s'; 'quern --help' lists them\n", argv[1]);
    return APP_USAGE;
}

int main(int argc, char **argv) {
    if (!hold_standard_files()) return APP_FAILED; /* there may be nowhere to say it */
    signal(SIGXFSZ, SIG_IGN);                      /* a file at its limit is an error of the write, which is told */
    int rc = run(argc, argv);
    if (fflush(stdout) == 0 && !ferror(stdout)) return rc;
    fprintf(stderr, "quern: standard output could not be written\n");
    return APP_FAILED;
}
