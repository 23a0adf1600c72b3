/* The stages of the chain, in the order of samplers.def. Each takes the candidates the one before left, and leaves at least
 * one. */
#include <float.h>
#include <stdlib.h>

#include "text/exact_math.h"
#include "base/heap.h"
#include "text/sampler.h"

#define SHORTEN(set, count) ((set)->n = (count), (set)->sorted = (set)->sorted < (set)->n ? (set)->sorted : (set)->n)

static float bounded(double logit) { return logit >= FLT_MAX ? FLT_MAX : logit <= -FLT_MAX ? -FLT_MAX : (float)logit; }

static size_t at_least(const qn_sampler *s) { return s->o.min_keep > 1 ? (size_t)s->o.min_keep : 1; }

int qn_text_stage_penalties(qn_sampler *s, sample_set *set) {
    double repeat = (double)s->o.repeat_penalty, often = (double)s->o.frequency_penalty, present = (double)s->o.presence_penalty;
    if (s->o.repeat_last_n == 0 || (repeat == 1 && often == 0 && present == 0)) return 1;
    for (size_t i = 0; i < set->n; i++) {
        qn_candidate *c = &set->at[i];
        int32_t count = (size_t)c->id < s->ids_room ? s->counts[c->id] : 0;
        if (!count) continue;
        double logit = c->logit <= 0 ? (double)c->logit * repeat
                                     : (double)c->logit / repeat; /* less likely on either side of 0 */
        c->logit = bounded(logit - count * often - present);
    }
    set->sorted = 0;
    return 1;
}

/* How long a repeat each token would carry on, into s->repeats. Read backwards, the history is a text r; z[k] says how many of
 * its first tokens stand at k again, and r[k - 1] is the token that followed there. */
static int find_repeats(qn_sampler *s, const int32_t *last, size_t n, size_t limit) {
    size_t *z = qn_heap_zeroed(n, sizeof *z), from = 0, to = 0; /* r[from .. to) is known to equal r[0 .. to - from) */
    if (!z) return 0;
    for (size_t k = 1; k < n; k++) {
        size_t same = k < to ? (z[k - from] < to - k ? z[k - from] : to - k) : 0;
        while (k + same < n && last[n - 1 - same] == last[n - 1 - k - same]) same++;
        z[k] = same;
        if (k + same > to) from = k, to = k + same;
        if (same > limit) same = limit;
        int32_t *most = &s->repeats[last[n - k]];
        if (same >= (size_t)s->o.dry_allowed_length && (int64_t)same + 1 > *most) *most = (int32_t)same + 1; /* 0: none */
    }
    qn_heap_free(z);
    return 1;
}

int qn_text_stage_dry(qn_sampler *s, sample_set *set) {
    size_t n = qn_text_sample_window(s->o.dry_penalty_last_n), allowed = (size_t)s->o.dry_allowed_length;
    if (s->o.dry_multiplier == 0 || s->o.dry_base < 1) return 1;
    if (n > s->n_history) n = s->n_history;
    if (n <= allowed || s->since_breaker < allowed) return 1;
    const int32_t *last = s->history + s->n_history - n;
    if (!find_repeats(s, last, n, s->since_breaker < n ? s->since_breaker : n)) return 0;
    double base = (double)s->o.dry_base, log_base = qn_text_log(base), most = 88.7; /* e to this is nearly FLT_MAX */
    for (size_t i = 0; i < set->n; i++) {
        qn_candidate *c = &set->at[i];
        int32_t repeat = (size_t)c->id < s->ids_room ? s->repeats[c->id] : 0;
        if (!repeat || qn_text_sample_breaks(s, c->id)) continue;
        double power = (double)((size_t)repeat - 1 - allowed) * log_base;
        c->logit = bounded((double)c->logit - (double)s->o.dry_multiplier * qn_text_exp(power < most ? power : most));
    }
    for (size_t i = 0; i < n; i++) s->repeats[last[i]] = 0;
    set->sorted = 0;
    return 1;
}

int qn_text_stage_top_n_sigma(qn_sampler *s, sample_set *set) {
    double best = -FLT_MAX, sum = 0, squares = 0;
    if (s->o.top_n_sigma <= 0 || set->n < 2) return 1;
    for (size_t i = 0; i < set->n; i++) {
        double logit = (double)set->at[i].logit;
        if (logit > best) best = logit;
        sum += logit;
    }
    double mean = sum / (double)set->n;
    for (size_t i = 0; i < set->n; i++) squares += ((double)set->at[i].logit - mean) * ((double)set->at[i].logit - mean);
    double least = best - (double)s->o.top_n_sigma * sqrt(squares / (double)set->n);
    size_t kept = 0, sorted = set->sorted;
    for (size_t i = 0; i < set->n; i++)
        if ((double)set->at[i].logit >= least) set->at[kept++] = set->at[i];
    SHORTEN(set, kept);
    set->sorted = sorted < kept ? sorted : kept; /* what goes is worse than what stays, so the order in front holds */
    return 1;
}

int qn_text_stage_top_k(qn_sampler *s, sample_set *set) {
    if (s->o.top_k <= 0) return 1;
    size_t k = (size_t)s->o.top_k > at_least(s) ? (size_t)s->o.top_k : at_least(s);
    if (k >= set->n) return 1;
    if (!qn_text_sample_sort(set, k)) return 0;
    SHORTEN(set, k);
    return 1;
}

typedef struct surprise {
    double distance;
    size_t index;
} surprise;

static int nearest_first(const void *a, const void *b) {
    const surprise *x = a, *y = b;
    if (x->distance != y->distance) return x->distance < y->distance ? -1 : 1;
    return x->index < y->index ? -1 : x->index > y->index;
}

int qn_text_stage_typ_p(qn_sampler *s, sample_set *set) {
    double entropy = 0, mass = 0;
    size_t kept = 0;
    if (s->o.typical_p >= 1) return 1;
    if (!qn_text_sample_sort(set, set->n)) return 0;
    qn_text_sample_softmax(set);
    surprise *order = qn_heap_alloc(set->n * sizeof *order);
    qn_candidate *keep = qn_heap_alloc(set->n * sizeof *keep);
    int ok = order && keep;
    for (size_t i = 0; ok && i < set->n; i++)
        if (set->at[i].p > 0) entropy -= (double)set->at[i].p * qn_text_log((double)set->at[i].p);
    for (size_t i = 0; ok && i < set->n; i++) {
        double p = (double)set->at[i].p;
        order[i] = (surprise){p > 0 ? fabs(-qn_text_log(p) - entropy) : INFINITY, i};
    }
    if (ok) qsort(order, set->n, sizeof *order, nearest_first);
    while (ok && kept < set->n) {
        keep[kept] = set->at[order[kept].index];
        mass += (double)keep[kept++].p;
        if (mass > (double)s->o.typical_p && kept >= at_least(s)) break;
    }
    if (ok) {
        memcpy(set->at, keep, kept * sizeof *keep);
        set->n = kept;
        set->sorted = 0;
    }
    qn_heap_free(order);
    qn_heap_free(keep);
    return ok;
}

int qn_text_stage_top_p(qn_sampler *s, sample_set *set) {
    double mass = 0;
    size_t kept = 0, sorted = 256; /* most texts need few: the rest is left unsorted */
    if (s->o.top_p >= 1) return 1;
    qn_text_sample_softmax(set);
    while (kept < set->n) {
        if (kept >= set->sorted) {
            if (!qn_text_sample_sort(set, sorted)) return 0;
            sorted *= 4;
        }
        mass += (double)set->at[kept++].p;
        if (mass >= (double)s->o.top_p && kept >= at_least(s)) break;
    }
    SHORTEN(set, kept);
    return 1;
}

int qn_text_stage_min_p(qn_sampler *s, sample_set *set) {
    double best = -FLT_MAX;
    size_t kept = 0, enough = 0;
    if (s->o.min_p <= 0) return 1;
    for (size_t i = 0; i < set->n; i++)
        if ((double)set->at[i].logit > best) best = (double)set->at[i].logit;
    double least = best + qn_text_log((double)s->o.min_p);
    for (size_t i = 0; i < set->n; i++) enough += (double)set->at[i].logit >= least;
    if (enough < at_least(s)) {
        enough = at_least(s) < set->n ? at_least(s) : set->n;
        if (!qn_text_sample_sort(set, enough)) return 0;
        SHORTEN(set, enough);
        return 1;
    }
    size_t sorted = set->sorted;
    for (size_t i = 0; i < set->n; i++)
        if ((double)set->at[i].logit >= least) set->at[kept++] = set->at[i];
    SHORTEN(set, kept);
    set->sorted = sorted < kept ? sorted : kept;
    return 1;
}

int qn_text_stage_xtc(qn_sampler *s, sample_set *set) {
    if (s->o.xtc_probability <= 0 || s->o.xtc_threshold > 0.5f || set->n < 2) return 1;
    if (qn_rand_unit(&s->rand) > (double)s->o.xtc_probability) return 1;
    if (!qn_text_sample_sort(set, set->n)) return 0;
    qn_text_sample_softmax(set);
    size_t likely = 0;
    while (likely < set->n && set->at[likely].p >= s->o.xtc_threshold) likely++;
    if (likely < 2 || set->n - (likely - 1) < (size_t)s->o.min_keep) return 1;
    set->n -= likely - 1; /* the last of the likely stays */
    memmove(set->at, set->at + likely - 1, set->n * sizeof *set->at);
    set->sorted = set->n;
    return 1;
}

/* Entropy as a fraction of the most it could be. */
static double relative_entropy(sample_set *set) {
    double entropy = 0;
    qn_text_sample_softmax(set);
    for (size_t i = 0; i < set->n; i++)
        if (set->at[i].p > 0) entropy -= (double)set->at[i].p * qn_text_log((double)set->at[i].p);
    return entropy / qn_text_log((double)set->n);
}

int qn_text_stage_temperature(qn_sampler *s, sample_set *set) {
    double t = (double)s->o.temperature, range = (double)s->o.dynatemp_range;
    if (range > 0 && set->n > 1) {
        double low = t > range ? t - range : 0, high = t + range;
        t = low + (high - low) * qn_text_pow(relative_entropy(set), (double)s->o.dynatemp_exponent);
    }
    if (t <= 0) {
        if (!qn_text_sample_sort(set, 1)) return 0;
        SHORTEN(set, 1);
        return 1;
    }
    if (t == 1) return 1;
    for (size_t i = 0; i < set->n; i++) set->at[i].logit = bounded((double)set->at[i].logit / t);
    return 1;
}

const sample_stage qn_text_sample_stages[] = {
#define QN_SAMPLER_STAGE(name, letter, meaning) {#name, letter, qn_text_stage_##name},
#include <quern/samplers.def>
#undef QN_SAMPLER_STAGE
};
const size_t qn_text_n_sample_stages = sizeof qn_text_sample_stages / sizeof *qn_text_sample_stages;
