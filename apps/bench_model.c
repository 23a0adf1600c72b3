/* quern bench -m: how many tokens a second a model reads (pp) and makes (tg), in rows like llama-bench's. */
#include <math.h>

#include "bench.h"
#include "lm.h"

enum { MOST_TESTS = 16, MOST_RUNS = 1000, WARM_UP = 20, SHORT = 32 };

typedef struct test {
    int is_prompt;
    int64_t n, depth;
    double mean, spread; /* tokens a second */
} test;

/* Numbers between commas; n: how many. */
static int parse_list(const char *flag, const char *word, int64_t numbers[MOST_TESTS], int *n) {
    char text[32];
    *n = 0;
    for (const char *part = word, *next; part; part = next) {
        const char *comma = strchr(part, ',');
        size_t length = comma ? (size_t)(comma - part) : strlen(part);
        next = comma ? comma + 1 : NULL;
        if (*n == MOST_TESTS) return model_fail("bench", "so many tests at once are not for me"), APP_USAGE;
        snprintf(text, sizeof text, "%.*s", (int)(length < sizeof text ? length : sizeof text - 1), part);
        int rc = lm_number("bench", flag, text, 0, 1 << 20, &numbers[*n]);
        if (rc != APP_OK) return rc;
        ++*n;
    }
    return APP_OK;
}

/* One test for each length at each depth. */
static int add_tests(const char *flag, const char *word, int is_prompt, const int64_t *depths, int n_depths, test *tests,
                     int *n_tests) {
    int64_t lengths[MOST_TESTS];
    int n, rc = parse_list(flag, word, lengths, &n);
    for (int d = 0; d < n_depths && rc == APP_OK; d++)
        for (int i = 0; i < n; i++) {
            if (!lengths[i]) continue;
            if (*n_tests == MOST_TESTS) return model_fail("bench", "so many tests at once are not for me"), APP_USAGE;
            tests[(*n_tests)++] = (test){.is_prompt = is_prompt, .n = lengths[i], .depth = depths[d]};
        }
    return rc;
}

/* Ids that are in every vocabulary, different ones, the same in each run. */
static void fill_ids(int32_t *ids, int64_t n, int32_t vocabulary) {
    uint32_t state = 12345;
    for (int64_t i = 0; i < n; i++) {
        state = state * 1664525u + 1013904223u;
        ids[i] = (int32_t)((state >> 8) % (uint32_t)vocabulary);
    }
}

static int32_t sequences_of(const lm *l, const test *t) {
    return t->is_prompt || !l->options.sequences ? 1 : l->options.sequences;
}

/* n tokens more for each sequence, `step` of them at once. */
static int run_tokens(lm *l, int32_t sequences, const int32_t *ids, int64_t n, int64_t step) {
    qn_error error;
    qn_session_part parts[1024];
    for (int64_t done = 0; done < n; done += step) {
        for (int32_t s = 0; s < sequences; s++) parts[s] = (qn_session_part){s, (int32_t)step, ids + done, 0};
        if (qn_session_run(l->session, parts, sequences, &error) != QN_OK) return lm_fail(l, &error);
        if (*model_stopped()) return MODEL_INTERRUPTED;
    }
    return APP_OK;
}

static int fill_context(lm *l, const test *t, const int32_t *ids) {
    qn_error error;
    int32_t sequences = sequences_of(l, t);
    for (int32_t s = 0; s < sequences; s++) qn_session_cut(l->session, s, 0, &error);
    return run_tokens(l, sequences, ids, t->depth, t->depth);
}

static int run_once(lm *l, const test *t, const int32_t *ids, double *seconds) {
    qn_error error;
    int32_t sequences = sequences_of(l, t);
    for (int32_t s = 0; s < sequences; s++) qn_session_cut(l->session, s, t->depth, &error);
    double start = bench_now();
    int rc = run_tokens(l, sequences, ids + t->depth, t->n, t->is_prompt ? t->n : 1);
    *seconds = (bench_now() - start) * 1e-9;
    return rc;
}

static int run_test(lm *l, test *t, const int32_t *ids, int64_t runs) {
    double rate[MOST_RUNS], sum = 0, squares = 0, seconds;
    int32_t sequences = sequences_of(l, t);
    /* Plans, packs, warms up. Weights that see few rows are packed a share in each run after the first: those of the head in a long
     * prompt, and all of them in a short one. */
    int64_t warm = t->is_prompt || t->n < WARM_UP ? t->n : WARM_UP;
    int warm_runs = !t->is_prompt ? 1 : t->n < SHORT ? WARM_UP : 2;
    test first = {.is_prompt = t->is_prompt, .n = warm, .depth = t->depth};
    int rc = fill_context(l, t, ids);
    for (int i = 0; i < warm_runs && rc == APP_OK; i++) rc = run_once(l, &first, ids, &seconds);
    for (int64_t r = 0; r < runs && rc == APP_OK; r++) {
        rc = run_once(l, t, ids, &seconds);
        rate[r] = (double)(t->n * sequences) / seconds;
        sum += rate[r];
        model_progress(t->is_prompt ? "reading" : "making", (uint64_t)r + 1, (uint64_t)runs);
    }
    model_progress_end();
    t->mean = sum / (double)runs;
    for (int64_t r = 0; r < runs && rc == APP_OK; r++) squares += (rate[r] - t->mean) * (rate[r] - t->mean);
    t->spread = runs > 1 ? sqrt(squares / (double)(runs - 1)) : 0;
    return rc;
}

/* The model's name, or else its architecture, as a cell of a table: at most so many whole characters, with blanks for what would end
 * the cell or is no text. Returns how many characters. */
static int name_cell(const lm *l, char *cell, size_t size, int most) {
    const char *at = l->info.name.at;
    uint64_t left = l->info.name.length;
    int characters = 0;
    size_t used = 0;
    if (!left) at = l->info.architecture, left = strlen(at);
    for (int n; left && characters < most && used + 5 <= size; at += n, left -= (uint64_t)n, characters++) {
        int good = model_character(at, left), c = (unsigned char)*at;
        n = good ? good : 1;
        if (!good || (good == 1 && (c < 0x20 || c == 0x7f || strchr("\"|,", c))) ||
            (good == 2 && c == 0xc2 && (at[1] & 0xe0) == 0x80))
            cell[used++] = ' ';
        else
            for (int i = 0; i < n; i++) cell[used++] = at[i];
    }
    cell[used] = 0;
    return characters;
}

static void print_json_row(const lm *l, const test *t, const char *name, int first, int last) {
    printf("%s  {\"model\": ", first ? "[\n" : "");
    model_print_json(l->info.name.at, l->info.name.length);
    printf(", \"architecture\": \"%s\", \"bytes\": %llu, \"n_params\": %llu, \"backend\": \"%s\", \"threads\": %d, "
           "\"sequences\": %d, \"test\": \"%s\", \"depth\": %lld, \"avg_ts\": %.4f, \"stddev_ts\": %.4f}%s\n",
           l->info.architecture, (unsigned long long)l->info.bytes, (unsigned long long)l->info.n_params,
           l->device ? "vulkan" : "cpu", l->threads, sequences_of(l, t), name, (long long)t->depth, t->mean, t->spread,
           last ? "\n]" : ",");
}

static void print_row(const lm *l, const test *t, const char *form, int first, int last) {
    enum { CSV_NAME = 40, MD_NAME = 20, ROOM = 4 * CSV_NAME + 1 };
    char name[64], model[ROOM];
    int named = snprintf(name, sizeof name, "%s%lld", t->is_prompt ? "pp" : "tg", (long long)t->n);
    if (t->depth) snprintf(name + named, sizeof name - (size_t)named, " @ d%lld", (long long)t->depth);
    double gib = (double)l->info.bytes / 1073741824.0, billions = (double)l->info.n_params * 1e-9;
    int small = gib < 1, few = billions < 1;
    if (strcmp(form, "json") == 0) {
        print_json_row(l, t, name, first, last);
    } else if (strcmp(form, "csv") == 0) {
        if (first) puts("model,architecture,gib,params_b,backend,threads,test,t/s,stddev,depth,sequences");
        name_cell(l, model, sizeof model, CSV_NAME);
        printf("%s,%s,%.6g,%.6g,%s,%d,%s,%.2f,%.2f,%lld,%d\n", model, l->info.architecture, gib, billions,
               l->device ? "vulkan" : "cpu", l->threads, name, t->mean, t->spread, (long long)t->depth, sequences_of(l, t));
    } else {
        if (first)
            puts("| model                |       size |     params | backend | threads |          test |             t/s |\n"
                 "| -------------------- | ---------: | ---------: | ------- | ------: | ------------: | --------------: |");
        int blanks = MD_NAME - name_cell(l, model, sizeof model, MD_NAME);
        printf("| %s%*s | %6.2f %s | %8.2f %c | %-7s | %7d | %13s | %7.2f ± %5.2f |\n", model, blanks, "",
               small ? gib * 1024 : gib, small ? "MiB" : "GiB", few ? billions * 1000 : billions, few ? 'M' : 'B',
               l->device ? "vulkan" : "cpu", l->threads, name, t->mean, t->spread);
    }
    fflush(stdout);
}

/* An encoder makes no tokens, and sees a text whole: its context and batch are the longest of the prompts, as far as it goes. */
static int prepare_encoder(lm *l, test *tests, int *n_tests, const char *asked) {
    int left = 0;
    for (int i = 0; i < *n_tests; i++) {
        if (tests[i].depth) {
            fprintf(stderr, "quern bench: %s is an encoder, which sees a text whole: there is no depth\n", l->info.architecture);
            return APP_USAGE;
        }
        if (tests[i].is_prompt) tests[left++] = tests[i];
        else if (asked)
            fprintf(stderr, "quern bench: %s is an encoder, which makes no tokens: there is no tg%lld\n", l->info.architecture,
                    (long long)tests[i].n);
    }
    *n_tests = left;
    if (!left && asked) return APP_USAGE;
    for (int i = 0; i < left; i++)
        if (tests[i].n > l->info.context) {
            fprintf(stderr, "quern bench: pp%lld: the model sees texts of at most %lld tokens, see -p\n", (long long)tests[i].n,
                    (long long)l->info.context);
            return APP_FAILED;
        }
    for (int i = 0; i < left && !l->options.batch; i++)
        if (tests[i].n > l->options.context) l->options.context = tests[i].n;
    if (!l->options.batch && l->options.context)
        l->options.batch = (int32_t)(l->options.context < 65536 ? l->options.context : 65536);
    return APP_OK;
}

static int run_tests(lm *l, test *tests, int n_tests, int64_t runs, const char *form) {
    int64_t longest = 1;
    for (int i = 0; i < n_tests; i++)
        if (tests[i].depth + tests[i].n > longest) longest = tests[i].depth + tests[i].n;
    if (!l->options.context) l->options.context = longest;
    int rc = lm_session(l);
    int32_t *ids = calloc((size_t)longest, sizeof *ids);
    if (!ids) return model_fail("bench", "no memory for tokens");
    fill_ids(ids, longest, l->info.n_vocab);
    for (int i = 0; i < n_tests && rc == APP_OK; i++) {
        rc = run_test(l, &tests[i], ids, runs);
        if (rc == APP_OK) print_row(l, &tests[i], form, i == 0, i == n_tests - 1);
    }
    free(ids);
    return rc;
}

typedef struct bench_words {
    const char *p, *n, *d, *r, *form;
    lm_words lm;
} bench_words;

static const option_row rows[] = {
    OPTION(bench_words, p, "-p, --n-prompt", "N,M,...", "lengths of prompts, 0: none (default 512)"),
    OPTION(bench_words, n, "-n, --n-gen", "N,M,...", "numbers of tokens to make, 0: none (default 128)"),
    OPTION(bench_words, d, "-d, --n-depth", "N,M,...", "tokens that are in the context before (default 0)"),
    OPTION(bench_words, r, "-r, --repetitions", "N",
           "repetitions, after some that do not count: 20 tokens, 20 short prompts, two long ones (default 5)"),
    OPTION(bench_words, form, "-o, --output", "md|csv|json", "form of the table (default md)"),
    OPTION(bench_words, lm.sequences, "-np, --parallel", "N", "sequences at once, when tokens are made (default 1)"),
    {0}};
const option_group bench_model_groups[] = {
    {NULL, rows, 0}, {"The model and how it runs", lm_rows, offsetof(bench_words, lm)}, {0}};

/* Which tests; APP_OK or APP_USAGE. */
static int take_tests(const bench_words *w, int64_t *runs, test *tests, int *n_tests) {
    int64_t depths[MOST_TESTS];
    int n_depths = 0, rc = parse_list("-d", w->d, depths, &n_depths);
    if (rc == APP_OK) rc = add_tests("-p", w->p, 1, depths, n_depths, tests, n_tests);
    if (rc == APP_OK) rc = add_tests("-n", w->n ? w->n : "128", 0, depths, n_depths, tests, n_tests);
    if (rc == APP_OK) rc = lm_number("bench", "-r", w->r, 1, MOST_RUNS, runs);
    if (rc == APP_OK && strcmp(w->form, "md") != 0 && strcmp(w->form, "csv") != 0 && strcmp(w->form, "json") != 0)
        rc = (fprintf(stderr, "quern bench: -o is md, csv or json, not '%s'\n", w->form), APP_USAGE);
    if (rc == APP_OK && !*n_tests) rc = (fprintf(stderr, "quern bench: -p and -n leave nothing to measure\n"), APP_USAGE);
    return rc;
}

int bench_model(const quern_verb *self, int argc, char **argv) {
    bench_words w = {.p = "512", .d = "0", .r = "5", .form = "md"};
    test tests[MOST_TESTS];
    int n_tests = 0;
    int64_t runs = 5;
    lm l;
    if (argc > 1 && argv[1][0] != '-' && !strstr(argv[1], ".gguf")) /* a word that is no model is meant to be a benchmark */
        return app_no_verb("quern bench", self->subs, argv[1], "quern bench --help");
    int rc = lm_read(self, argc, argv, &w, &w.lm);
    if (rc != APP_OK) return rc;
    if (!w.lm.model) {
        fprintf(stderr, "quern bench: what should be measured? 'quern bench --help' says what can be\n");
        return APP_USAGE;
    }
    rc = take_tests(&w, &runs, tests, &n_tests);
    if (rc != APP_OK) return rc;
    model_catch_stop();
    rc = lm_open(&l, "bench", &w.lm);
    if (rc == APP_OK) rc = lm_prepare(&l, &w.lm);
    if (rc == APP_OK && l.info.is_encoder) rc = prepare_encoder(&l, tests, &n_tests, w.n);
    if (rc == APP_OK) rc = run_tests(&l, tests, n_tests, runs, w.form);
    return lm_close(&l, rc);
}
