/* Order among candidates: the best k in linear time, by counting the bits of their logits from the highest down. */
#include <stdlib.h>

#include "text/exact_math.h"
#include "base/heap.h"
#include "text/sampler.h"

/* Bits in the order of values, best first. */
static uint32_t key_of(const qn_candidate *c) {
    uint32_t bits;
    float logit = c->logit + 0.0f; /* no negative zero */
    memcpy(&bits, &logit, sizeof bits);
    return bits & 0x80000000u ? bits : 0x7FFFFFFFu - bits;
}

static int best_first(const void *a, const void *b) {
    const qn_candidate *x = a, *y = b;
    uint32_t kx = key_of(x), ky = key_of(y);
    if (kx != ky) return kx < ky ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

/* The key of the k-th best (k > 0), and how many are better than it. */
static uint32_t key_at(const qn_candidate *at, size_t n, size_t k, size_t *better) {
    static const int SHIFT[3] = {21, 10, 0};
    uint32_t prefix = 0, mask = 0;
    *better = 0;
    for (int pass = 0; pass < 3; pass++) {
        uint32_t counts[2048] = {0}, digits = pass == 2 ? 1024 : 2048, d = 0;
        for (size_t i = 0; i < n; i++) {
            uint32_t key = key_of(&at[i]);
            if ((key & mask) == prefix) counts[key >> SHIFT[pass] & (digits - 1)]++;
        }
        while (*better + counts[d] < k) *better += counts[d++];
        prefix |= d << SHIFT[pass];
        mask |= (digits - 1) << SHIFT[pass];
    }
    return prefix;
}

static int by_id(const void *a, const void *b) {
    const qn_candidate *x = a, *y = b;
    return x->id < y->id ? -1 : x->id > y->id;
}

/* Better than the k-th, equal to it, the rest: in this order, and each in the order it had. */
static int split_at(qn_candidate *at, size_t n, uint32_t key, size_t better, size_t *equal) {
    qn_candidate *sorted = qn_heap_alloc(n * sizeof *sorted);
    size_t same = 0;
    if (!sorted) return 0;
    for (size_t i = 0; i < n; i++) same += key_of(&at[i]) == key;
    size_t next[3] = {0, better, better + same};
    for (size_t i = 0; i < n; i++) {
        uint32_t here = key_of(&at[i]);
        sorted[next[here < key ? 0 : here == key ? 1 : 2]++] = at[i];
    }
    memcpy(at, sorted, n * sizeof *at);
    qn_heap_free(sorted);
    *equal = same;
    return 1;
}

int qn_text_sample_sort(sample_set *set, size_t k) {
    if (k > set->n) k = set->n;
    if (k <= set->sorted) return 1;
    qn_candidate *at = set->at + set->sorted;
    size_t n = set->n - set->sorted, want = k - set->sorted;
    if (want < n) {
        size_t better, equal;
        uint32_t key = key_at(at, n, want, &better);
        if (!split_at(at, n, key, better, &equal)) return 0;
        if (better + equal > want) qsort(at + better, equal, sizeof *at, by_id); /* of more equals than wanted the lowest ids */
    }
    qsort(at, want, sizeof *at, best_first);
    set->sorted = k;
    return 1;
}

void qn_text_sample_softmax(sample_set *set) {
    float best = -INFINITY;
    double sum = 0;
    for (size_t i = 0; i < set->n; i++) best = set->at[i].logit > best ? set->at[i].logit : best;
    for (size_t i = 0; i < set->n; i++) {
        double e = qn_text_exp((double)set->at[i].logit - (double)best);
        set->at[i].p = (float)e;
        sum += e;
    }
    for (size_t i = 0; i < set->n; i++) set->at[i].p = (float)((double)set->at[i].p / sum);
}
