/* .qir text from anybody: parsed, or refused with a position and a sentence. What is parsed must verify, must print to a text that
 * parses to the same text again, and must survive binding, differentiation and the passes, in bodies as outside, whatever they answer. */
#include <stdio.h>
#include <stdlib.h>

#include <quern/graph.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { LIMIT = 32 << 20, MOST_SYMBOLS = 64 };

typedef struct buffer {
    char *at;
    size_t n, room;
} buffer;

#define PROMISE(condition)                              \
    do {                                                \
        if (!(condition)) broken(#condition, __LINE__); \
    } while (0)

static void broken(const char *promise, int line) {
    fprintf(stderr, "fuzz_qir.c:%d: broken promise: %s\n", line, promise);
    abort();
}

static qn_status append(void *user, const char *text, size_t length) {
    buffer *b = user;
    if (b->n + length > b->room) {
        b->room = (b->n + length) * 2;
        b->at = realloc(b->at, b->room);
        PROMISE(b->at);
    }
    memcpy(b->at + b->n, text, length);
    b->n += length;
    return QN_OK;
}

static void say(void *user, const qn_graph_fault *fault) {
    (void)user;
    fprintf(stderr, "fault: %s\n", fault->text);
}

/* print(parse(print(g))) is print(g), to the byte. */
static void round_trip(const qn_graph *g) {
    buffer once = {0}, twice = {0};
    qn_error error;
    qn_graph *again;
    PROMISE(qn_graph_print(g, append, &once, &error) == QN_OK);
    if (qn_graph_parse(once.at, once.n, 0, &again, &error) != QN_OK) {
        fprintf(stderr, "%s\n%.*s\n", error.text, (int)once.n, once.at);
        broken("the printed text parses", __LINE__);
    }
    PROMISE(qn_graph_print(again, append, &twice, &error) == QN_OK);
    if (once.n != twice.n || memcmp(once.at, twice.at, once.n) != 0) {
        fprintf(stderr, "%.*s---\n%.*s\n", (int)once.n, once.at, (int)twice.n, twice.at);
        broken("the text is the same", __LINE__);
    }
    qn_graph_destroy(again);
    free(once.at);
    free(twice.at);
}

/* State that is read after its update is the one fault a text can bring: it parses, and the verifier finds it. */
static void check_updates(void *user, const qn_graph_fault *fault) {
    if (strstr(fault->text, "in place")) return;
    say(user, fault);
    broken("a parsed graph verifies", __LINE__);
}

static void improve_with(const qn_graph *g, const qn_pass_options *o) {
    qn_graph *better;
    qn_error error;
    if (qn_graph_optimise(g, o, &better, &error) != QN_OK) {
        PROMISE(error.text[0]);
        return;
    }
    qn_graph_verify(better, check_updates, NULL);
    round_trip(better);
    qn_graph_destroy(better);
}

/* All passes, as they are and with everything they may do. */
static void improve(const qn_graph *g) {
    qn_pass_options plain = {.size = sizeof plain};
    qn_pass_options bold = {.size = sizeof bold, .flags = QN_PASS_FAST, .precision = QN_PRECISION_F16};
    improve_with(g, &plain);
    improve_with(g, &bold);
}

static void bind_at(const qn_graph *g, int least) {
    int64_t numbers[MOST_SYMBOLS] = {0};
    qn_symbol_info s = {.size = sizeof s};
    qn_graph *bound;
    qn_error error;
    for (int32_t i = 0; i < qn_graph_symbol_count(g) && i < MOST_SYMBOLS; i++)
        if (qn_graph_symbol_describe(g, i, &s) == QN_OK)
            numbers[i] = least ? s.least + (s.multiple_of - s.least % s.multiple_of) % s.multiple_of : s.most;
    if (qn_graph_bind(g, numbers, &bound, &error) != QN_OK) {
        PROMISE(error.text[0]);
        return;
    }
    qn_graph_verify(bound, check_updates, NULL);
    round_trip(bound);
    improve(bound);
    for (qn_val v = 0; v < qn_graph_value_count(g); v++) { /* where an extent is still an expression, it tells the truth */
        qn_value_info was = {.size = sizeof was}, is = {.size = sizeof is};
        PROMISE(qn_graph_value(g, v, &was) == QN_OK && qn_graph_value(bound, v, &is) == QN_OK);
        for (int k = 0; k < was.rank && was.rank == is.rank; k++)
            if (qn_dim_is_symbolic(was.shape[k])) PROMISE(qn_graph_dim_value(g, was.shape[k], numbers) == is.shape[k]);
    }
    if (qn_graph_output_count(bound) && qn_graph_value_count(bound)) {
        qn_val wrt[2] = {0, qn_graph_value_count(bound) / 2}, grads[2];
        if (qn_graph_grad(bound, qn_graph_output_value(bound, 0, NULL), 2, wrt, grads) == QN_OK) {
            qn_graph_verify(bound, check_updates, NULL);
            round_trip(bound);
            improve(bound);
        }
    }
    qn_graph_destroy(bound);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    qn_graph *g = NULL;
    qn_error error;
    char *text = malloc(size + 1); /* of its exact size, so that a step beyond it is seen */
    if (!text) return 0;
    memcpy(text, data, size);
    char *exact = realloc(text, size ? size : 1);
    qn_status status = qn_graph_parse(exact, size, LIMIT, &g, &error);
    free(exact);
    if (status != QN_OK) {
        long line, column;
        PROMISE(!g && error.status == status && sscanf(error.text, "%ld:%ld: ", &line, &column) == 2 && line > 0 && column > 0);
        return 0;
    }
    PROMISE(g);
    qn_graph_verify(g, check_updates, NULL);
    round_trip(g);
    bind_at(g, 0);
    bind_at(g, 1);
    qn_graph_destroy(g);
    return 0;
}
