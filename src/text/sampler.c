/* Samplers: made of options that are checked row by row, then logits in, one token out. */
#include <float.h>
#include <stdlib.h>

#include "text/grammar.h"
#include "base/heap.h"
#include "text/sampler.h"

static qn_status check_numbers(const qn_sampler_options *o, qn_error *error) {
#define QN_SAMPLER_F32(name, standard, low, high, meaning)                                                                    \
    if (!(o->name >= (low) && o->name <= (high)))                                                                             \
        return qn_error_set(error, QN_ARGUMENT, "sampler option " #name " is %g; it lies between %g and %g", (double)o->name, \
                            (double)(low), (double)(high));
#define QN_SAMPLER_I32(name, standard, low, high, meaning)                                                            \
    if ((int64_t)o->name < (int64_t)(low) || (int64_t)o->name > (int64_t)(high))                                      \
        return qn_error_set(error, QN_ARGUMENT, "sampler option " #name " is %d; it lies between %d and %d", o->name, \
                            (int)(low), (int)(high));
#include <quern/samplers.def>
#undef QN_SAMPLER_F32
#undef QN_SAMPLER_I32
    return QN_OK;
}

/* Other names that stages go by. */
static const char *const ALIASES[][2] = {
    {"typical", "typ_p"}, {"typical_p", "typ_p"}, {"temp", "temperature"}, {"nucleus", "top_p"}, {"penalty", "penalties"}};

static const sample_stage *find_stage(const char *name, size_t n) {
    char plain[32];
    if (n >= sizeof plain) return NULL;
    for (size_t i = 0; i < n; i++) plain[i] = name[i] == '-' ? '_' : name[i];
    plain[n] = 0;
    const char *known = plain;
    for (size_t i = 0; i < sizeof ALIASES / sizeof *ALIASES; i++)
        if (strcmp(ALIASES[i][0], plain) == 0) known = ALIASES[i][1];
    for (size_t i = 0; i < qn_text_n_sample_stages; i++)
        if (strcmp(qn_text_sample_stages[i].name, known) == 0) return &qn_text_sample_stages[i];
    return NULL;
}

static const sample_stage *find_letter(char letter) {
    for (size_t i = 0; i < qn_text_n_sample_stages; i++)
        if (qn_text_sample_stages[i].letter == letter) return &qn_text_sample_stages[i];
    return NULL;
}

/* "top_k;temperature", or "kt". */
static qn_status set_order(qn_sampler *s, const char *order, qn_error *error) {
    int letters = order && !strchr(order, ';') && !find_stage(order, strlen(order));
    if (!order)
        for (size_t i = 0; i < qn_text_n_sample_stages; i++) s->chain[s->n_chain++] = &qn_text_sample_stages[i];
    while (order && *order) {
        size_t n = letters ? 1 : strcspn(order, ";");
        const sample_stage *stage = letters ? find_letter(*order) : find_stage(order, n);
        if (!stage) return qn_error_set(error, QN_ARGUMENT, "sampler stage '%.*s' is not known", n > 40 ? 40 : (int)n, order);
        if (s->n_chain == SAMPLE_MOST_STAGES)
            return qn_error_set(error, QN_ARGUMENT, "more than %d sampler stages", SAMPLE_MOST_STAGES);
        s->chain[s->n_chain++] = stage;
        order += n + (!letters && order[n] == ';');
    }
    return QN_OK;
}

static qn_status copy_breakers(qn_sampler *s, qn_error *error) {
    static const qn_text STANDARD[] = {{"\n", 1}, {":", 1}, {"\"", 1}, {"*", 1}};
    const qn_text *from = s->o.dry_breakers;
    if (s->o.dry_multiplier == 0) s->o.n_dry_breakers = 0;
    if (s->o.dry_multiplier != 0 && !from && s->o.tokenizer)
        from = STANDARD, s->o.n_dry_breakers = sizeof STANDARD / sizeof *STANDARD;
    if (!s->o.n_dry_breakers) return QN_OK;
    if (!from || !s->o.tokenizer) return qn_error_set(error, QN_ARGUMENT, "dry breakers need their texts and a tokenizer");
    size_t n = s->o.n_dry_breakers, bytes = 0;
    for (size_t i = 0; i < n; i++) {
        if (from[i].length == 0 || from[i].length > 256 || !from[i].at)
            return qn_error_set(error, QN_ARGUMENT, "dry breaker %zu has %zu bytes; 1 to 256 are possible", i, from[i].length);
        bytes += from[i].length;
        if (from[i].length > s->longest_breaker) s->longest_breaker = from[i].length;
    }
    s->breakers = qn_heap_zeroed(n, sizeof *s->breakers);
    s->breaker_bytes = qn_heap_alloc(bytes);
    s->tail = qn_heap_alloc(2 * s->longest_breaker);
    if (!s->breakers || !s->breaker_bytes || !s->tail) return qn_error_set(error, QN_NO_MEMORY, "no memory for the sampler");
    char *p = s->breaker_bytes;
    for (size_t i = 0; i < n; p += from[i++].length) {
        memcpy(p, from[i].at, from[i].length);
        s->breakers[i] = (qn_text){p, from[i].length};
    }
    return QN_OK;
}

static qn_status copy_bias(qn_sampler *s, qn_error *error) {
    size_t n = s->o.n_bias;
    if (!n) return QN_OK;
    if (!s->o.bias || n > SAMPLE_MOST_ID)
        return qn_error_set(error, QN_ARGUMENT, "%zu logit biases without their list, or too many", n);
    s->bias = qn_heap_alloc(n * sizeof *s->bias);
    if (!s->bias) return qn_error_set(error, QN_NO_MEMORY, "no memory for the sampler");
    memcpy(s->bias, s->o.bias, n * sizeof *s->bias);
    for (size_t i = 0; i < n; i++)
        if (s->bias[i].id < 0 || isnan(s->bias[i].bias))
            return qn_error_set(error, QN_ARGUMENT, "logit bias %zu names no token or no number", i);
    return QN_OK;
}

qn_status qn_sampler_create(const qn_sampler_options *options, qn_sampler **sampler, qn_error *error) {
    if (!sampler) return qn_error_set(error, QN_ARGUMENT, "qn_sampler_create needs a place for the sampler");
    *sampler = NULL;
    qn_sampler_options o = options ? *options : qn_sampler_options_default();
    if (o.size != sizeof o)
        return qn_error_set(error, QN_ARGUMENT, "sampler options of %u bytes, expected %zu", o.size, sizeof o);
    qn_status status = check_numbers(&o, error);
    if (status != QN_OK) return status;
    qn_sampler *s = qn_heap_zeroed(1, sizeof *s);
    if (!s) return qn_error_set(error, QN_NO_MEMORY, "no memory for the sampler");
    s->o = o;
    s->rand.state = o.seed;
    qn_text_sample_forget(s);
    status = set_order(s, o.order, error);
    if (status == QN_OK) status = copy_bias(s, error);
    if (status == QN_OK) status = copy_breakers(s, error);
    if (status == QN_OK && o.grammar_kind != QN_GRAMMAR_NONE) {
        if (!o.grammar || !o.tokenizer || (o.grammar->length && !o.grammar->at))
            status = qn_error_set(error, QN_ARGUMENT, "a grammar needs its text and a tokenizer");
        else status = qn_text_grammar_create(o.grammar_kind, *o.grammar, o.tokenizer, &s->grammar, error);
    }
    s->o.order = NULL; /* the caller's, and used up */
    s->o.grammar = NULL;
    s->o.bias = NULL;
    s->o.dry_breakers = NULL;
    if (status == QN_OK) *sampler = s;
    else qn_sampler_destroy(s);
    return status;
}

void qn_sampler_destroy(qn_sampler *s) {
    if (!s) return;
    qn_text_grammar_destroy(s->grammar);
    qn_heap_free(s->bias);
    qn_heap_free(s->breakers);
    qn_heap_free(s->breaker_bytes);
    qn_heap_free(s->candidates);
    qn_heap_free(s->history);
    qn_heap_free(s->counts);
    qn_heap_free(s->repeats);
    qn_heap_free(s->tail);
    qn_heap_free(s);
}

qn_status qn_sampler_reset(qn_sampler *s, qn_error *error) {
    if (!s) return qn_error_set(error, QN_ARGUMENT, "qn_sampler_reset needs a sampler");
    qn_status status = s->grammar ? qn_text_grammar_restart(s->grammar, error) : QN_OK;
    if (status == QN_OK) qn_text_sample_forget(s);
    return status;
}

/* Candidates with finite logits, in the order of their ids. */
static qn_status gather(qn_sampler *s, const float *logits, size_t n, const uint32_t *allowed, qn_error *error) {
    if (n > s->room) {
        qn_candidate *grown = qn_heap_resize(s->candidates, n * sizeof *grown);
        if (!grown) return qn_error_set(error, QN_NO_MEMORY, "no memory for %zu candidates", n);
        s->candidates = grown;
        s->room = n;
    }
    if (s->o.n_bias && !qn_text_sample_ids(s, n)) return qn_error_set(error, QN_NO_MEMORY, "no memory for %zu candidates", n);
    s->set = (sample_set){s->candidates, 0, 0};
    for (size_t i = 0; i < n; i++)
        s->candidates[i] = (qn_candidate){(int32_t)i, allowed && !(allowed[i / 32] >> (i % 32) & 1) ? -INFINITY : logits[i], 0};
    for (size_t i = 0; i < s->o.n_bias; i++)
        if ((size_t)s->bias[i].id < n) s->candidates[s->bias[i].id].logit += s->bias[i].bias;
    for (size_t i = 0; i < n; i++) {
        qn_candidate c = s->candidates[i];
        if (!(c.logit > -INFINITY)) continue; /* nor NaN */
        if (c.logit > FLT_MAX) c.logit = FLT_MAX;
        s->candidates[s->set.n++] = c;
    }
    if (s->set.n) return QN_OK;
    return qn_error_set(
        error, QN_INVALID,
        allowed ? "the grammar allows none of the %zu tokens that have a logit" : "none of the %zu logits is a finite number", n);
}

static qn_status run_chain(qn_sampler *s, size_t n, size_t *picked, qn_error *error) {
    int ok = 1;
    if (s->o.mirostat) {
        ok = qn_text_sample_mirostat(s, &s->set, n, picked);
    } else {
        for (size_t i = 0; ok && i < s->n_chain; i++) ok = s->chain[i]->apply(s, &s->set);
        if (ok) {
            qn_text_sample_softmax(&s->set);
            *picked = s->set.n == 1 ? 0 : qn_text_sample_draw(s, &s->set);
        }
    }
    return ok ? QN_OK : qn_error_set(error, QN_NO_MEMORY, "no memory to sample from %zu tokens", n);
}

qn_status qn_sampler_pick(qn_sampler *s, const float *logits, size_t n, int32_t *id, qn_error *error) {
    if (!s || !logits || !id || n == 0 || n > SAMPLE_MOST_ID)
        return qn_error_set(error, QN_ARGUMENT, "qn_sampler_pick needs a sampler, 1 to %d logits and a place for the id",
                            SAMPLE_MOST_ID);
    size_t picked = 0;
    double mu = s->mirostat_mu;
    qn_status status = gather(s, logits, n, NULL, error);
    if (status == QN_OK) status = run_chain(s, n, &picked, error);
    if (status != QN_OK) return status;
    if (s->grammar &&
        !qn_text_grammar_allows(s->grammar, s->set.at[picked].id)) { /* rare; then all tokens are looked at, and drawn anew */
        const uint32_t *allowed = NULL;
        s->mirostat_mu = mu;
        status = qn_text_grammar_mask(s->grammar, n, &allowed, error);
        if (status == QN_OK) status = gather(s, logits, n, allowed, error);
        if (status == QN_OK) status = run_chain(s, n, &picked, error);
        if (status != QN_OK) return status;
    }
    *id = s->set.at[picked].id;
    return QN_OK;
}

qn_status qn_sampler_accept(qn_sampler *s, int32_t id, uint32_t flags, qn_error *error) {
    if (!s || id < 0 || id >= SAMPLE_MOST_ID || flags & ~QN_ACCEPT_PROMPT)
        return qn_error_set(error, QN_ARGUMENT, "qn_sampler_accept needs a sampler, an id and known flags");
    if (s->grammar && !(flags & QN_ACCEPT_PROMPT)) {
        qn_status status = qn_text_grammar_accept(s->grammar, id, error);
        if (status != QN_OK) return status;
    }
    return qn_text_sample_remember(s, id, error);
}

size_t qn_sampler_candidates(qn_sampler *s, qn_candidate *candidates, size_t room) {
    if (!s || (room && !candidates)) return 0;
    size_t n = room < s->set.n ? room : s->set.n;
    if (!qn_text_sample_sort(&s->set, n)) return 0;
    if (n) memcpy(candidates, s->set.at, n * sizeof *candidates);
    return s->set.n;
}
