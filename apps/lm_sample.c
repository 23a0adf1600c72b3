/* How tokens are picked: every number of samplers.def is an option, under llama.cpp's names. */
#include "lm_sample.h"

#include <errno.h>
#include <time.h>

/* Fields that llama.cpp's users know by another name have it here; the others are an option by their own: SHOWN(top_k) is "--top_k". */
#define SHOWN_temperature ~, "--temp, --temperature"
#define SHOWN_typical_p ~, "--typical, --typical-p"
#define SHOWN_top_n_sigma ~, "--top-nsigma, --top-n-sigma"
#define SHOWN_mirostat_tau ~, "--mirostat-ent, --mirostat-tau"
#define SHOWN_mirostat_eta ~, "--mirostat-lr, --mirostat-eta"
#define SHOWN_dynatemp_exponent ~, "--dynatemp-exp"
#define SECOND(first, second, ...) second
#define SECOND_OF(...) SECOND(__VA_ARGS__)
#define SHOWN(field) SECOND_OF(SHOWN_##field, "--" #field, ~)

const option_row sample_rows[] = {
    OPTION(sample_words, seed, "-s, --seed", "N", "the same seed gives the same text (default: the clock's)"),
    OPTION(sample_words, order, "--samplers", "A;B;C", "the stages and their order"),
    OPTION(sample_words, letters, "--sampling-seq", "LETTERS", "the same by their letters, such as edskypmxt"),
    OPTION(sample_words, grammar, "--grammar", "TEXT", "the text must follow this grammar (GBNF)"),
    OPTION(sample_words, grammar_file, "--grammar-file", "FILE", "the same from a file", .files = "*"),
    OPTION(sample_words, schema, "-j, --json-schema", "TEXT", "the text is JSON that this schema allows"),
    OPTION(sample_words, schema_file, "--json-schema-file", "FILE", "the same from a file", .files = "*"),
#define QN_SAMPLER_F32(name, initial, low, high, meaning) \
    OPTION(sample_words, name, SHOWN(name), "X", meaning, .standard = #initial),
#define QN_SAMPLER_I32(name, initial, low, high, meaning) \
    OPTION(sample_words, name, SHOWN(name), "N", meaning, .standard = #initial),
#include <quern/samplers.def>
#undef QN_SAMPLER_F32
#undef QN_SAMPLER_I32
    {0}};

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
