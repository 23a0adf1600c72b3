/* Mirostat (Basu and others 2021): in place of the chain, the number of candidates follows the surprise of the tokens so far.
 * And the draw that ends every pick. */
#include "text/exact_math.h"
#include "text/sampler.h"

enum { ESTIMATE_FROM = 100 };

size_t qn_text_sample_draw(qn_sampler *s, const sample_set *set) {
    double total = 0, sum = 0;
    size_t last = 0;
    for (size_t i = 0; i < set->n; i++) total += (double)set->at[i].p;
    double target = qn_rand_unit(&s->rand) * total;
    for (size_t i = 0; i < set->n; i++) {
        if (set->at[i].p <= 0) continue;
        last = i;
        sum += (double)set->at[i].p;
        if (sum > target) break;
    }
    return last;
}

/* Version 1: how many of the best to keep, from an estimate of how fast the probabilities fall. */
static size_t keep_by_estimate(const qn_sampler *s, const sample_set *set, size_t n_tokens) {
    double products = 0, squares = 0;
    for (size_t i = 0; i + 1 < ESTIMATE_FROM && i + 1 < set->n && set->at[i + 1].p > 0; i++) {
        double t = qn_text_log((double)(i + 2) / (double)(i + 1)),
               b = qn_text_log((double)set->at[i].p / (double)set->at[i + 1].p);
        products += t * b;
        squares += t * t;
    }
    double fall = squares > 0 ? products / squares : 1, epsilon = fall - 1;
    if (fall <= 0 || fabs(epsilon) < 1e-9) return fall <= 0 ? set->n : 1;
    double most = s->mirostat_mu * 0.6931471805599453, top = epsilon * qn_text_exp(most < 700 ? most : 700); /* finite */
    double k = qn_text_pow(top / (1 - qn_text_pow((double)n_tokens, -epsilon)), 1 / fall);
    return k >= (double)set->n ? set->n : k >= 1 ? (size_t)k : 1;
}

/* Version 2: those that surprise less than mu. */
static size_t keep_by_surprise(const qn_sampler *s, const sample_set *set) {
    size_t keep = 0;
    while (keep < set->n && set->at[keep].p > 0 && -qn_text_log((double)set->at[keep].p) / 0.6931471805599453 <= s->mirostat_mu)
        keep++;
    return keep ? keep : 1;
}

int qn_text_sample_mirostat(qn_sampler *s, sample_set *set, size_t n_tokens, size_t *picked) {
    if (!qn_text_stage_temperature(s, set) || !qn_text_sample_sort(set, set->n)) return 0;
    qn_text_sample_softmax(set);
    set->n = set->sorted = s->o.mirostat == 1 ? keep_by_estimate(s, set, n_tokens) : keep_by_surprise(s, set);
    qn_text_sample_softmax(set);
    *picked = qn_text_sample_draw(s, set);
    double surprise = -qn_text_log((double)set->at[*picked].p) / 0.6931471805599453;
    s->mirostat_mu -= (double)s->o.mirostat_eta * (surprise - (double)s->o.mirostat_tau);
    return 1;
}
