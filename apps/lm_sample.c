/* How tokens are picked: every number of samplers.def is a flag, under llama.cpp's names. */
#include "lm_sample.h"

#include <errno.h>
#include <time.h>

enum { SAMPLE_FLAGS = 64, MOST_FLAGS = 128 };

/* Fields whose flag is spelt otherwise. */
static const struct {
    const char *field, *flag;
} spelt[] = {{"temperature", "--temp"},           {"typical_p", "--typical"},        {"top_n_sigma", "--top-nsigma"},
             {"mirostat_tau", "--mirostat-ent"},  {"mirostat_eta", "--mirostat-lr"}, {"dynatemp_exponent", "--dynatemp-exp"},
             {"repeat_last_n", "--repeat-last-n"}};

/* "--top-k" for top_k; written once, kept for good. */
static const char *flag_name(const char *field, char names[][32], int number) {
    for (size_t i = 0; i < sizeof spelt / sizeof *spelt; i++)
        if (strcmp(spelt[i].field, field) == 0) return spelt[i].flag;
    char *at = names[number];
    snprintf(at, 32, "--%s", field);
    for (char *c = at + 2; *c; c++)
        if (*c == '_') *c = '-';
    return at;
}

/* Writes the flags behind w; returns how many. */
static int sample_flags(sample_words *w, model_flag *flags) {
    static char names[SAMPLE_FLAGS][32];
    int n = 0;
#define QN_SAMPLER_F32(name, standard, low, high, meaning) \
    flags[n] = (model_flag){flag_name(#name, names, n), &w->name, NULL, 0}, n++;
#define QN_SAMPLER_I32(name, standard, low, high, meaning) \
    flags[n] = (model_flag){flag_name(#name, names, n), &w->name, NULL, 0}, n++;
#include <quern/samplers.def>
#undef QN_SAMPLER_F32
#undef QN_SAMPLER_I32
    const model_flag rest[] = {{"-s", &w->seed, NULL, 0},
                               {"--seed", &w->seed, NULL, 0},
                               {"--samplers", &w->order, NULL, 0},
                               {"--sampling-seq", &w->letters, NULL, 0},
                               {"--grammar", &w->grammar, NULL, 0},
                               {"--grammar-file", &w->grammar_file, NULL, 0},
                               {"-j", &w->schema, NULL, 0},
                               {"--json-schema", &w->schema, NULL, 0},
                               {"--json-schema-file", &w->schema_file, NULL, 0}};
    for (size_t i = 0; i < sizeof rest / sizeof *rest; i++) flags[n++] = rest[i];
    return n;
}

static void sample_help(FILE *to) {
    char names[SAMPLE_FLAGS][32];
    int n = 0;
    fputs("How tokens are picked:\n"
          "  -s, --seed N            the same seed gives the same text (default: the clock's)\n"
          "  --samplers A;B;C        the stages and their order\n"
          "  --grammar TEXT, --grammar-file FILE          the text must follow this grammar (GBNF)\n"
          "  -j, --json-schema TEXT, --json-schema-file FILE   the text is JSON of this schema\n",
          to);
#define QN_SAMPLER_F32(name, standard, low, high, meaning) \
    fprintf(to, "  %-23s %s (default %g)\n", flag_name(#name, names, n), meaning, (double)(standard)), n++;
#define QN_SAMPLER_I32(name, standard, low, high, meaning) \
    fprintf(to, "  %-23s %s (default %d)\n", flag_name(#name, names, n), meaning, (int)(standard)), n++;
#include <quern/samplers.def>
#undef QN_SAMPLER_F32
#undef QN_SAMPLER_I32
}

int sample_options(int argc, char **argv, const char *help, sample_words *w, const model_flag *own, int n_own, lm_words *words) {
    model_flag flags[MOST_FLAGS];
    int n = sample_flags(w, flags);
    for (int i = 0; i < n_own && n < MOST_FLAGS; i++) flags[n++] = own[i];
    int rc = lm_options(argc, argv, help, flags, n, words);
    if (rc < 0) sample_help(stdout);
    return rc;
}

static int take_real(const lm *l, const char *name, const char *word, float *value) {
    char *end;
    if (!word) return APP_OK;
    errno = 0;
    float v = strtof(word, &end);
    if (end != word && !*end && !errno) return *value = v, APP_OK;
    fprintf(stderr, "quern %s: %s takes a number, not '%s'\n", l->verb, name, word);
    return APP_USAGE;
}

static int take_whole(const lm *l, const char *name, const char *word, int32_t *value) {
    int64_t v;
    if (!word) return APP_OK;
    int rc = lm_number(l->verb, name, word, INT32_MIN, INT32_MAX, &v);
    if (rc == APP_OK) *value = (int32_t)v;
    return rc;
}

static int take_grammar(lm *l, const sample_words *w, sample *s, qn_sampler_options *o) {
    const char *text = w->grammar ? w->grammar : w->schema, *file = w->grammar_file ? w->grammar_file : w->schema_file;
    int is_schema = w->schema || w->schema_file;
    if (!text && !file) return APP_OK;
    if ((w->grammar || w->grammar_file) && is_schema) {
        fprintf(stderr, "quern %s: a grammar or a schema, not both\n", l->verb);
        return APP_USAGE;
    }
    size_t length = text ? strlen(text) : 0;
    if (!text && !(s->text = lm_read_file(l, file, &length))) return APP_FAILED;
    s->grammar = (qn_text){text ? text : s->text, length};
    o->grammar = &s->grammar;
    o->grammar_kind = is_schema ? QN_GRAMMAR_JSON_SCHEMA : QN_GRAMMAR_GBNF;
    return APP_OK;
}

int sample_create(lm *l, const sample_words *w, sample *s) {
    qn_sampler_options o = qn_sampler_options_default();
    qn_error error;
    int rc = APP_OK;
    memset(s, 0, sizeof *s);
#define QN_SAMPLER_F32(name, standard, low, high, meaning) \
    if (rc == APP_OK) rc = take_real(l, #name, w->name, &o.name);
#define QN_SAMPLER_I32(name, standard, low, high, meaning) \
    if (rc == APP_OK) rc = take_whole(l, #name, w->name, &o.name);
#include <quern/samplers.def>
#undef QN_SAMPLER_F32
#undef QN_SAMPLER_I32
    int64_t seed = (int64_t)time(NULL);
    if (rc == APP_OK && w->seed) rc = lm_number(l->verb, "--seed", w->seed, -1, INT64_MAX, &seed);
    if (seed == -1) seed = (int64_t)time(NULL);
    s->seed = o.seed = (uint64_t)seed;
    o.order = w->order ? w->order : w->letters;
    if (rc == APP_OK) rc = lm_tokenizer(l, &o.tokenizer);
    if (rc == APP_OK) rc = take_grammar(l, w, s, &o);
    if (rc == APP_OK && qn_sampler_create(&o, &s->sampler, &error) != QN_OK) {
        rc = lm_fail(l, &error);
        if (error.status == QN_ARGUMENT) rc = APP_USAGE; /* a number out of its bounds, a stage that is none */
    }
    return rc;
}

void sample_free(sample *s) {
    qn_sampler_destroy(s->sampler);
    free(s->text);
}
