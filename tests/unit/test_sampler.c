/* Samplers: each stage against numbers worked out by hand, the order of the chain, and what a seed promises. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cmocka_setup.h"
#include "small_vocab.h"
#include "text/exact_math.h"
#include "text/sampler.h"

/* Options in which every stage is off. */
static qn_sampler_options plain(void) {
    qn_sampler_options o = qn_sampler_options_default();
    o.temperature = 1;
    o.top_k = 0;
    o.top_p = 1;
    o.min_p = 0;
    return o;
}

static qn_sampler *make(const qn_sampler_options *o) {
    qn_sampler *s = NULL;
    qn_error error = {QN_OK, ""};
    if (qn_sampler_create(o, &s, &error) != QN_OK) fail_msg("%s", error.text);
    return s;
}

/* Logits whose probabilities are p. */
static void logits_of(const float *p, size_t n, float *logits) {
    for (size_t i = 0; i < n; i++) logits[i] = logf(p[i]);
}

/* Picks once from probabilities p; what the chain left must be these ids with these probabilities, likeliest first. */
static void leaves(const qn_sampler_options *o, const float *p, size_t n, size_t want_n, const int32_t *ids, const float *want) {
    float logits[64];
    qn_candidate left[64];
    int32_t id;
    qn_error error;
    qn_sampler *s = make(o);
    logits_of(p, n, logits);
    assert_int_equal(qn_sampler_pick(s, logits, n, &id, &error), QN_OK);
    assert_int_equal(qn_sampler_candidates(s, left, 64), want_n);
    int found = 0;
    for (size_t i = 0; i < want_n; i++) {
        assert_int_equal(left[i].id, ids[i]);
        assert_float_equal(left[i].p, want[i], 1e-5f);
        found |= left[i].id == id;
    }
    assert_true(found);
    qn_sampler_destroy(s);
}

static const float P4[] = {0.1f, 0.2f, 0.3f, 0.4f};

static void stages_leave_what_they_should(void **state) {
    (void)state;
    qn_sampler_options o = plain();
    leaves(&o, P4, 4, 4, (int32_t[]){3, 2, 1, 0}, (float[]){0.4f, 0.3f, 0.2f, 0.1f});
    o.top_k = 3;
    leaves(&o, P4, 4, 3, (int32_t[]){3, 2, 1}, (float[]){0.44444f, 0.33333f, 0.22222f});
    o.top_k = 1;
    leaves(&o, P4, 4, 1, (int32_t[]){3}, (float[]){1});
    o.min_keep = 2;
    leaves(&o, P4, 4, 2, (int32_t[]){3, 2}, (float[]){0.571429f, 0.428571f});
    o = plain();
    o.top_p = 0.7f;
    leaves(&o, P4, 4, 2, (int32_t[]){3, 2}, (float[]){0.571429f, 0.428571f});
    o.top_p = 0.8f;
    leaves(&o, P4, 4, 3, (int32_t[]){3, 2, 1}, (float[]){0.44444f, 0.33333f, 0.22222f});
    o.top_p = 0;
    leaves(&o, P4, 4, 1, (int32_t[]){3}, (float[]){1});
    o = plain();
    o.min_p = 0.24f;
    leaves(&o, P4, 4, 4, (int32_t[]){3, 2, 1, 0}, (float[]){0.4f, 0.3f, 0.2f, 0.1f});
    o.min_p = 0.26f;
    leaves(&o, P4, 4, 3, (int32_t[]){3, 2, 1}, (float[]){0.44444f, 0.33333f, 0.22222f});
    o.min_p = 0.76f;
    leaves(&o, P4, 4, 1, (int32_t[]){3}, (float[]){1});
    o = plain();
    o.typical_p = 0.5f;
    leaves(&o, (float[]){0.97f, 0.01f, 0.01f, 0.01f}, 4, 1, (int32_t[]){0}, (float[]){1});
    leaves(&o, (float[]){0.4f, 0.2f, 0.2f, 0.2f}, 4, 3, (int32_t[]){1, 2, 3}, (float[]){0.33333f, 0.33333f, 0.33333f});
    o = plain();
    o.xtc_probability = 1;
    o.xtc_threshold = 0.09f;
    leaves(&o, P4, 4, 1, (int32_t[]){0}, (float[]){1});
    o.xtc_threshold = 0.25f;
    leaves(&o, P4, 4, 3, (int32_t[]){2, 1, 0}, (float[]){0.5f, 0.33333f, 0.166667f});
    o.xtc_threshold = 0.39f;
    leaves(&o, P4, 4, 4, (int32_t[]){3, 2, 1, 0}, (float[]){0.4f, 0.3f, 0.2f, 0.1f});
    o = plain();
    o.top_n_sigma = 1;
    leaves(&o, P4, 4, 2, (int32_t[]){3, 2}, (float[]){0.571429f, 0.428571f});
    o.top_n_sigma = 3;
    leaves(&o, P4, 4, 4, (int32_t[]){3, 2, 1, 0}, (float[]){0.4f, 0.3f, 0.2f, 0.1f});
}

static void temperature_scales(void **state) {
    (void)state;
    qn_sampler_options o = plain();
    o.temperature = 0.5f; /* squares the probabilities */
    leaves(&o, P4, 4, 4, (int32_t[]){3, 2, 1, 0}, (float[]){0.533333f, 0.3f, 0.133333f, 0.033333f});
    o.temperature = 0;
    leaves(&o, P4, 4, 1, (int32_t[]){3}, (float[]){1});
    o.temperature = -1;
    leaves(&o, P4, 4, 1, (int32_t[]){3}, (float[]){1});
    o.temperature = 1;
    o.dynatemp_range = 0.5f; /* all equally likely: the entropy is the most it can be, and so is the temperature */
    leaves(&o, (float[]){0.25f, 0.25f, 0.25f, 0.25f}, 4, 4, (int32_t[]){0, 1, 2, 3}, (float[]){0.25f, 0.25f, 0.25f, 0.25f});
    double h = 0;
    for (int i = 0; i < 4; i++) h -= (double)P4[i] * log((double)P4[i]);
    double t = 0.5 + h / log(4), sum = 0;
    float want[4];
    for (int i = 0; i < 4; i++) sum += pow((double)P4[i], 1 / t);
    for (int i = 0; i < 4; i++) want[i] = (float)(pow((double)P4[3 - i], 1 / t) / sum);
    leaves(&o, P4, 4, 4, (int32_t[]){3, 2, 1, 0}, want);
}

static void follow(qn_sampler *s, const int32_t *ids, size_t n) {
    qn_error error;
    for (size_t i = 0; i < n; i++) assert_int_equal(qn_sampler_accept(s, ids[i], 0, &error), QN_OK);
}

static void logits_after(const qn_sampler_options *o, const int32_t *before, size_t n_before, const float *logits, size_t n,
                         const float *want) {
    qn_candidate left[64];
    int32_t id;
    qn_error error;
    qn_sampler *s = make(o);
    follow(s, before, n_before);
    assert_int_equal(qn_sampler_pick(s, logits, n, &id, &error), QN_OK);
    assert_int_equal(qn_sampler_candidates(s, left, 64), n);
    for (size_t i = 0; i < n; i++) assert_float_equal(left[i].logit, want[left[i].id], 1e-4f);
    qn_sampler_destroy(s);
}

static void penalties_lower_what_was_said(void **state) {
    (void)state;
    const float logits[5] = {2, -2, 2, 2, 0};
    qn_sampler_options o = plain();
    o.repeat_penalty = 2;
    logits_after(&o, (int32_t[]){0, 1}, 2, logits, 5, (float[]){1, -4, 2, 2, 0});
    o.repeat_penalty = 1;
    o.frequency_penalty = 0.5f;
    o.presence_penalty = 0.25f;
    logits_after(&o, (int32_t[]){0, 0, 1}, 3, logits, 5, (float[]){0.75f, -2.75f, 2, 2, 0});
    o.repeat_last_n = 1;
    logits_after(&o, (int32_t[]){0, 0, 1}, 3, logits, 5, (float[]){2, -2.75f, 2, 2, 0});
    o.repeat_last_n = 0;
    logits_after(&o, (int32_t[]){0, 0, 1}, 3, logits, 5, logits);
    o.repeat_last_n = -1;
    logits_after(&o, (int32_t[]){0, 0, 1}, 3, logits, 5, (float[]){0.75f, -2.75f, 2, 2, 0});
}

static void penalties_forget_what_left_the_window(void **state) {
    (void)state;
    qn_sampler_options o = plain();
    o.presence_penalty = 1;
    o.repeat_last_n = 3;
    qn_sampler *s = make(&o);
    qn_error error;
    for (int32_t i = 0; i < 1000; i++) { /* long enough for the history to be moved down many times */
        assert_int_equal(qn_sampler_accept(s, i % 7, 0, &error), QN_OK);
        int counted = 0;
        for (int32_t id = 0; id < 7; id++) counted += (size_t)id < s->ids_room ? s->counts[id] : 0;
        assert_int_equal(counted, i < 2 ? i + 1 : 3);
    }
    qn_sampler_destroy(s);
}

static void dry_lowers_what_carries_a_repeat_on(void **state) {
    (void)state;
    const float logits[5] = {0, 0, 0, 0, 0};
    qn_sampler_options o = plain();
    o.dry_multiplier = 1;
    o.dry_base = 2;
    o.dry_allowed_length = 1;
    /* 0 1 2 0 1: the last two came before, and 2 followed them */
    logits_after(&o, (int32_t[]){0, 1, 2, 0, 1}, 5, logits, 5, (float[]){0, 0, -2, 0, 0});
    o.dry_allowed_length = 2;
    logits_after(&o, (int32_t[]){0, 1, 2, 0, 1}, 5, logits, 5, (float[]){0, 0, -1, 0, 0});
    o.dry_allowed_length = 3;
    logits_after(&o, (int32_t[]){0, 1, 2, 0, 1}, 5, logits, 5, logits);
    /* 3 3 3 3: three of them came before */
    o.dry_allowed_length = 2;
    logits_after(&o, (int32_t[]){3, 3, 3, 3}, 4, logits, 5, (float[]){0, 0, 0, -2, 0});
    o.dry_penalty_last_n = 3;
    logits_after(&o, (int32_t[]){3, 3, 3, 3}, 4, logits, 5, (float[]){0, 0, 0, -1, 0});
    o.dry_penalty_last_n = 0;
    logits_after(&o, (int32_t[]){3, 3, 3, 3}, 4, logits, 5, logits);
}

static void breakers_end_repeats(void **state) {
    (void)state;
    qn_tokenizer *t = small_vocab(NULL, 0);
    static const struct {
        const char *text;    /* a token for each byte */
        const char *breaker; /* NULL: the usual ones */
        char next;           /* token that is looked at */
        float lower;
    } CASES[] = {{"xyz.xy", NULL, 'z', 2}, /* two tokens came before, one is free: 1 * 2 to the 1 */
                 {"xyz:xy", NULL, 'z', 2}, /* a breaker between is none of the two */
                 {"xyzx:y", NULL, 'z', 1}, /* now only one is behind it */
                 {"xyz\nxy", NULL, 'z', 2},  {"axy\naxy", NULL, '\n', 0}, /* a breaker itself is never lowered */
                 {"wxyz<<xy", "<<", 'z', 2}, {"wxyz<<y", "<<", 'z', 1},   {"wxyz<xy", "<<", 'z', 2}, {"x<<yz<<y", "<<", 'z', 1}};
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        static float logits[SMALL_WORDS];
        static qn_candidate left[SMALL_WORDS];
        qn_text breaker = {CASES[i].breaker, CASES[i].breaker ? strlen(CASES[i].breaker) : 0};
        qn_sampler_options o = plain();
        o.dry_multiplier = 1;
        o.dry_base = 2;
        o.dry_allowed_length = 1;
        o.tokenizer = t;
        o.dry_breakers = CASES[i].breaker ? &breaker : NULL;
        o.n_dry_breakers = CASES[i].breaker != NULL;
        qn_sampler *s = make(&o);
        qn_error error;
        int32_t id;
        for (const char *p = CASES[i].text; *p; p++) follow(s, &(int32_t){SMALL_BYTES + (unsigned char)*p}, 1);
        assert_int_equal(qn_sampler_pick(s, logits, SMALL_WORDS, &id, &error), QN_OK);
        size_t n = qn_sampler_candidates(s, left, SMALL_WORDS), k = 0;
        while (k < n && left[k].id != SMALL_BYTES + CASES[i].next) k++;
        assert_true(k < n);
        if (left[k].logit != -CASES[i].lower)
            fail_msg("'%s': lowered by %g, should be %g", CASES[i].text, -(double)left[k].logit, (double)CASES[i].lower);
        qn_sampler_destroy(s);
    }
    qn_tokenizer_destroy(t);
}

/* The slow way to say what dry does: for every place, how many tokens before it equal the last ones. */
static void dry_agrees_with_the_slow_way(void **state) {
    (void)state;
    qn_rand rand = {7};
    for (int round = 0; round < 300; round++) {
        int32_t ids[40];
        size_t n = 1 + qn_rand_next(&rand) % 40;
        float want[4] = {0}, logits[4] = {0};
        for (size_t i = 0; i < n; i++) ids[i] = (int32_t)(qn_rand_next(&rand) % (round % 3 ? 2 : 4));
        qn_sampler_options o = plain();
        o.dry_multiplier = 0.5f;
        o.dry_base = 1.5f;
        o.dry_allowed_length = 1 + round % 3;
        for (size_t at = 1; at < n; at++) {
            int32_t same = 0;
            while ((size_t)same < at && ids[at - 1 - (size_t)same] == ids[n - 1 - (size_t)same]) same++;
            float lower = same >= o.dry_allowed_length ? -0.5f * powf(1.5f, (float)(same - o.dry_allowed_length)) : 0;
            if (lower < want[ids[at]]) want[ids[at]] = lower;
        }
        qn_sampler *s = make(&o);
        qn_candidate left[4];
        int32_t id;
        qn_error error;
        follow(s, ids, n);
        assert_int_equal(qn_sampler_pick(s, logits, 4, &id, &error), QN_OK);
        assert_int_equal(qn_sampler_candidates(s, left, 4), 4);
        for (int i = 0; i < 4; i++) assert_float_equal(left[i].logit, want[left[i].id], fabsf(want[left[i].id]) * 1e-5f + 1e-6f);
        qn_sampler_destroy(s);
    }
}

static void the_best_k_are_the_best_k(void **state) {
    (void)state;
    qn_rand rand = {3};
    enum { N = 3000 };
    qn_candidate all[N], again[N];
    for (int round = 0; round < 60; round++) {
        size_t n = 1 + qn_rand_next(&rand) % N, k = qn_rand_next(&rand) % (n + 1);
        for (size_t i = 0; i < n; i++) { /* few distinct values every third time: ties */
            double x = (qn_rand_unit(&rand) - 0.5) * (round % 2 ? 1e30 : 20);
            all[i] = (qn_candidate){(int32_t)i, round % 3 ? (float)x : (float)(int)(x / 1e29 * 3), 0};
        }
        memcpy(again, all, n * sizeof *all);
        sample_set set = {all, n, 0}, whole = {again, n, 0};
        assert_int_equal(qn_text_sample_sort(&set, k / 2), 1);
        assert_int_equal(qn_text_sample_sort(&set, k), 1);
        assert_int_equal(qn_text_sample_sort(&whole, n), 1);
        for (size_t i = 0; i < k; i++) assert_int_equal(all[i].id, again[i].id);
        for (size_t i = 1; i < n; i++)
            assert_true(again[i - 1].logit > again[i].logit ||
                        (again[i - 1].logit == again[i].logit && again[i - 1].id < again[i].id));
        int64_t sum = 0;
        for (size_t i = 0; i < n; i++) sum += all[i].id;
        assert_int_equal(sum, (int64_t)n * (int64_t)(n - 1) / 2);
    }
}

static void draws_follow_the_probabilities(void **state) {
    (void)state;
    float logits[4];
    int seen[4] = {0};
    int32_t id;
    qn_error error;
    qn_sampler_options o = plain();
    o.seed = 11;
    qn_sampler *s = make(&o);
    logits_of(P4, 4, logits);
    enum { DRAWS = 40000 };
    for (int i = 0; i < DRAWS; i++) {
        assert_int_equal(qn_sampler_pick(s, logits, 4, &id, &error), QN_OK);
        seen[id]++;
    }
    for (int i = 0; i < 4; i++) assert_float_equal((float)seen[i] / DRAWS, P4[i], 0.01f);
    qn_sampler_destroy(s);
}

/* The numbers are part of the promise: a seed means the same tokens in every build, on every machine. */
static void a_seed_means_the_same_tokens_everywhere(void **state) {
    (void)state;
    float logits[50];
    int32_t ids[16];
    qn_error error;
    qn_sampler_options o = qn_sampler_options_default();
    o.seed = 42;
    o.xtc_probability = 0.5f;
    o.typical_p = 0.95f;
    qn_sampler *s = make(&o);
    for (int i = 0; i < 50; i++) logits[i] = (float)((i * 37 % 50) * 0.2 - 3);
    for (int i = 0; i < 16; i++) {
        assert_int_equal(qn_sampler_pick(s, logits, 50, &ids[i], &error), QN_OK);
        follow(s, &ids[i], 1);
    }
    const int32_t want[16] = {27, 35, 43, 43, 39, 12, 31, 27, 12, 39, 27, 8, 35, 12, 35, 39};
    for (int i = 0; i < 16; i++) assert_int_equal(ids[i], want[i]);
    qn_sampler_destroy(s);
    qn_rand rand = {0};
    assert_true(qn_rand_next(&rand) == 0xE220A8397B1DCDAFu); /* the published first number of seed 0 */
}

static void mirostat_keeps_near_its_aim(void **state) {
    (void)state;
    enum { N = 2000 };
    static float logits[N];
    qn_error error;
    for (int i = 0; i < N; i++) logits[i] = -1.1f * logf((float)(i + 1)); /* as words are spread */
    for (int version = 1; version <= 2; version++) {
        qn_sampler_options o = plain();
        o.mirostat = version;
        o.mirostat_tau = 3;
        qn_sampler *s = make(&o);
        double surprise = 0;
        qn_candidate left[N];
        for (int i = 0; i < 2000; i++) {
            int32_t id;
            assert_int_equal(qn_sampler_pick(s, logits, N, &id, &error), QN_OK);
            size_t n = qn_sampler_candidates(s, left, N), k = 0;
            while (k < n && left[k].id != id) k++;
            assert_true(k < n);
            if (i >= 500) surprise -= log2((double)left[k].p) / 1500;
        }
        assert_float_equal((float)surprise, 3.0f, 0.3f);
        qn_sampler_destroy(s);
    }
    qn_sampler_options o = plain();
    o.mirostat = 1;
    o.mirostat_tau = 1e4f; /* more surprise than there can be: all tokens are left */
    qn_sampler *s = make(&o);
    int32_t id;
    assert_int_equal(qn_sampler_pick(s, logits, N, &id, &error), QN_OK);
    assert_int_equal(qn_sampler_candidates(s, NULL, 0), N);
    qn_sampler_destroy(s);
}

static void order_is_as_told(void **state) {
    (void)state;
    qn_sampler *s;
    qn_error error;
    qn_sampler_options o = qn_sampler_options_default();
    s = make(&o);
    assert_int_equal(s->n_chain, 9);
    assert_string_equal(s->chain[0]->name, "penalties");
    assert_string_equal(s->chain[8]->name, "temperature");
    qn_sampler_destroy(s);
    o.order = "top_k;temp;min-p";
    s = make(&o);
    assert_int_equal(s->n_chain, 3);
    assert_string_equal(s->chain[1]->name, "temperature");
    assert_string_equal(s->chain[2]->name, "min_p");
    qn_sampler_destroy(s);
    o.order = "edskypmxt";
    s = make(&o);
    assert_int_equal(s->n_chain, 9);
    assert_string_equal(s->chain[4]->name, "typ_p");
    qn_sampler_destroy(s);
    o.order = "";
    s = make(&o);
    assert_int_equal(s->n_chain, 0);
    qn_sampler_destroy(s);
    o.order = "top_k;nonsense";
    assert_int_equal(qn_sampler_create(&o, &s, &error), QN_ARGUMENT);
    assert_non_null(strstr(error.text, "nonsense"));
    o.order = "kz";
    assert_int_equal(qn_sampler_create(&o, &s, &error), QN_ARGUMENT);
    assert_null(s);
}

static void odd_numbers_are_survived_or_refused(void **state) {
    (void)state;
    qn_sampler *s;
    qn_error error;
    int32_t id = -7;
    qn_sampler_options o = qn_sampler_options_default();
    o.top_p = NAN;
    assert_int_equal(qn_sampler_create(&o, &s, &error), QN_ARGUMENT);
    assert_non_null(strstr(error.text, "top_p"));
    o = qn_sampler_options_default();
    o.repeat_last_n = -2;
    assert_int_equal(qn_sampler_create(&o, &s, &error), QN_ARGUMENT);
    o = qn_sampler_options_default();
    o.size = 4;
    assert_int_equal(qn_sampler_create(&o, &s, &error), QN_ARGUMENT);
    o = qn_sampler_options_default();
    s = make(&o);
    const float none[3] = {-INFINITY, NAN, -INFINITY};
    assert_int_equal(qn_sampler_pick(s, none, 3, &id, &error), QN_INVALID);
    assert_int_equal(id, -7);
    const float one[3] = {NAN, INFINITY, 3e38f};
    assert_int_equal(qn_sampler_pick(s, one, 3, &id, &error), QN_OK);
    assert_int_equal(id, 1);
    assert_int_equal(qn_sampler_pick(s, one, 0, &id, &error), QN_ARGUMENT);
    assert_int_equal(qn_sampler_accept(s, -1, 0, &error), QN_ARGUMENT);
    assert_int_equal(qn_sampler_accept(s, INT32_MAX, 0, &error), QN_ARGUMENT);
    qn_sampler_destroy(s);
    qn_sampler_destroy(NULL);
}

static void biases_come_first(void **state) {
    (void)state;
    qn_sampler_options o = plain();
    const qn_logit_bias bias[] = {{3, -INFINITY}, {0, 100}, {1000, 5}};
    o.bias = bias;
    o.n_bias = 3;
    qn_sampler *s = make(&o);
    float logits[4];
    int32_t id;
    qn_error error;
    qn_candidate left[4];
    logits_of(P4, 4, logits);
    assert_int_equal(qn_sampler_pick(s, logits, 4, &id, &error), QN_OK);
    assert_int_equal(id, 0);
    assert_int_equal(qn_sampler_candidates(s, left, 4), 3);
    qn_sampler_destroy(s);
}

/* Everything but the random numbers is as new: history of each kind, the last bytes for the breakers, mirostat's aim. */
static void a_reset_sampler_forgets_all_but_its_random_numbers(void **state) {
    (void)state;
    qn_tokenizer *t = small_vocab(NULL, 0);
    static float logits[SMALL_WORDS];
    qn_error error;
    for (int i = 0; i < SMALL_WORDS; i++) logits[i] = (float)(i * 37 % 50) * 0.1f;
    for (int mirostat = 0; mirostat <= 2; mirostat += 2) {
        static qn_candidate left[2][SMALL_WORDS];
        int32_t ids[2];
        size_t n[2];
        qn_sampler_options o = plain();
        o.seed = 9;
        o.repeat_penalty = 1.5f;
        o.presence_penalty = 0.5f;
        o.dry_multiplier = 1;
        o.dry_allowed_length = 1;
        o.dry_breakers = &(qn_text){"<<", 2};
        o.n_dry_breakers = 1;
        o.mirostat = mirostat;
        o.tokenizer = t;
        qn_sampler *used = make(&o), *fresh = make(&o);
        for (int i = 0; i < 300; i++) { /* far enough for what was said before to count now */
            assert_int_equal(qn_sampler_pick(used, logits, SMALL_WORDS, &ids[0], &error), QN_OK);
            follow(used, &(int32_t){SMALL_BYTES + "abca"[i % 4]}, 1);
        }
        assert_true(used->n_tail > 0 && used->since_breaker == 300);
        assert_int_equal(qn_sampler_reset(used, &error), QN_OK);
        assert_true(used->rand.state != fresh->rand.state);
        fresh->rand = used->rand;
        for (int i = 0; i < 40; i++) {
            qn_sampler *both[2] = {used, fresh};
            for (int k = 0; k < 2; k++) {
                assert_int_equal(qn_sampler_pick(both[k], logits, SMALL_WORDS, &ids[k], &error), QN_OK);
                n[k] = qn_sampler_candidates(both[k], left[k], SMALL_WORDS);
                follow(both[k], &ids[k], 1);
            }
            assert_int_equal(ids[0], ids[1]);
            assert_int_equal(n[0], n[1]);
            assert_memory_equal(left[0], left[1], n[0] * sizeof *left[0]);
        }
        qn_sampler_destroy(used);
        qn_sampler_destroy(fresh);
    }
    assert_int_equal(qn_sampler_reset(NULL, &error), QN_ARGUMENT);
    qn_tokenizer_destroy(t);
}

static void our_exp_and_log_are_near_the_library(void **state) {
    (void)state;
    qn_rand rand = {5};
    for (int i = 0; i < 20000; i++) {
        double x = (qn_rand_unit(&rand) - 0.9) * 700, y = qn_text_exp(x), e = exp(x);
        assert_true(fabs(y - e) <= 4e-15 * e);
        double p = qn_rand_unit(&rand) * (i % 2 ? 1 : 1e6) + 1e-12;
        assert_true(fabs(qn_text_log(p) - log(p)) <= 4e-15 * (fabs(log(p)) + 1));
    }
    assert_true(qn_text_exp(0) == 1 && qn_text_log(1) == 0 && qn_text_exp(-1e30) == 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(stages_leave_what_they_should),
                                       cmocka_unit_test(temperature_scales),
                                       cmocka_unit_test(penalties_lower_what_was_said),
                                       cmocka_unit_test(penalties_forget_what_left_the_window),
                                       cmocka_unit_test(dry_lowers_what_carries_a_repeat_on),
                                       cmocka_unit_test(dry_agrees_with_the_slow_way),
                                       cmocka_unit_test(breakers_end_repeats),
                                       cmocka_unit_test(the_best_k_are_the_best_k),
                                       cmocka_unit_test(draws_follow_the_probabilities),
                                       cmocka_unit_test(a_seed_means_the_same_tokens_everywhere),
                                       cmocka_unit_test(mirostat_keeps_near_its_aim),
                                       cmocka_unit_test(a_reset_sampler_forgets_all_but_its_random_numbers),
                                       cmocka_unit_test(order_is_as_told),
                                       cmocka_unit_test(odd_numbers_are_survived_or_refused),
                                       cmocka_unit_test(biases_come_first),
                                       cmocka_unit_test(our_exp_and_log_are_near_the_library)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
