/* From a case to one concrete choice: dtypes, sub-op, alternatives, extents. Extents are drawn small and then made smaller
 * until the sources together stay under a limit, because every later check costs time in proportion to them. */
#include <string.h>

#include "check.h"
#include "seed.h"

uint64_t qc_mix(uint64_t a, uint64_t b) {
    uint64_t z = a + 0x9e3779b97f4a7c15u * (b + 1);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

uint64_t qc_case_seed(const qc_case *c) {
    const char *const text[] = {qn_op_describe(c->op)->name, c->sources, c->attributes};
    uint64_t seed = SEED_START;
    for (int i = 0; i < 3; i++) seed = seed_of(seed, text[i], strlen(text[i]) + 1); /* the zero keeps the parts apart */
    return qc_mix(qc_set.seed, seed);
}

uint64_t qc_next(qc_rng *rng) {
    rng->state += 0x9e3779b97f4a7c15u;
    return qc_mix(rng->state, 0);
}

int64_t qc_below(qc_rng *rng, int64_t n) { return n < 1 ? 0 : (int64_t)(qc_next(rng) % (uint64_t)n); }

double qc_unit(qc_rng *rng) { return (double)(qc_next(rng) >> 11) * 0x1p-53; }

int64_t qc_count(int rank, const int64_t *shape) {
    int64_t n = 1;
    for (int i = 0; i < rank; i++)
        if (shape[i] < 0 || __builtin_mul_overflow(n, shape[i], &n)) return -1;
    return n;
}

int qc_item_dims(const qc_case *c, const qc_draw *d, int slot, int *rank, int64_t *dims) {
    qc_span rest = c->src[slot].dims, part;
    int n = 0, bad = 0;
    while (qc_split(&rest, ',', &part)) {
        if (qc_is(part, "@")) {
            for (int i = 0; i < d->n_lead && n < QN_MAX_RANK; i++) dims[n++] = d->lead[i];
            continue;
        }
        if (n == QN_MAX_RANK) return 1;
        long double v = qc_eval(part, d, 1, &bad);
        if (v >= 0x1p63L || v < -0x1p63L) return 1;
        dims[n++] = (int64_t)v;
    }
    *rank = n;
    return bad;
}

int qc_draw_subop(const qc_case *c, const qc_draw *d) {
    return c->sub_axis < 0 ? 0 : c->axis[c->sub_axis].option[d->choice[c->sub_axis]];
}

/* Elements of all sources together; saturates. */
static int64_t total(const qc_case *c, const qc_draw *d) {
    int64_t sum = 0;
    for (int s = 0; s < c->n_src; s++) {
        int rank;
        int64_t dims[QN_MAX_RANK];
        if (c->src[s].absent || qc_item_dims(c, d, s, &rank, dims)) continue;
        int64_t n = qc_count(rank, dims);
        if (n < 0 || n > INT32_MAX) return INT32_MAX;
        sum += n;
    }
    return sum;
}

/* One step smaller; 0 when nothing is left to shrink. */
static int shrink(const qc_case *c, qc_draw *d) {
    for (int i = 0; i < d->n_lead; i++)
        if (d->lead[i] > 1) return d->lead[i]--, 1;
    int big = -1;
    for (int i = 0; i < QC_LETTERS; i++)
        if ((c->letters >> i & 1) && (big < 0 || d->letter[i] > d->letter[big])) big = i;
    if (big < 0 || d->letter[big] <= 1) return 0;
    d->letter[big]--;
    return 1;
}

static int64_t draw_extent(qc_rng *rng, qc_shapes shapes) {
    switch (shapes) {
    case QC_SHAPES_ONES: return 1;
    case QC_SHAPES_TWO: return 2 + qc_below(rng, 2);
    case QC_SHAPES_LARGE: return qc_below(rng, 3) ? 1 + qc_below(rng, 90) : 1 + qc_below(rng, 5);
    case QC_SHAPES_ODD: return 1 + 2 * qc_below(rng, 3);
    case QC_SHAPES_EMPTY: return qc_below(rng, 2) ? 0 : 1 + qc_below(rng, 3);
    default: return 1 + qc_below(rng, 5);
    }
}

static void draw_lead(const qc_case *c, qc_draw *d, qc_shapes shapes, qc_rng *rng) {
    d->n_lead = 0;
    if (c->lead_room < 0) return;
    int n = (int)qc_below(rng, c->lead_room + 1);
    if (shapes == QC_SHAPES_RANDOM && n > 2) n = 2;
    if (shapes == QC_SHAPES_TWO) n = c->lead_room < 2 ? c->lead_room : 2;
    if (shapes == QC_SHAPES_DEEP) n = c->lead_room;
    d->n_lead = n < c->lead_least ? c->lead_least : n;
    for (int i = 0; i < d->n_lead; i++) d->lead[i] = shapes == QC_SHAPES_ONES ? 1 : 1 + qc_below(rng, 3);
}

void qc_draw_make(const qc_case *c, qc_draw *d, int64_t variant, qc_shapes shapes, int64_t most, uint64_t seed) {
    qc_rng rng = {qc_mix(seed, 1)};
    *d = (qc_draw){.seed = seed, .variant = variant, .block = 32};
    for (int i = 0; i < c->n_axis; i++) {
        d->choice[i] = (int)(variant % c->axis[i].n);
        variant /= c->axis[i].n;
        const qn_dtype_info *info = c->axis[i].variable ? qn_dtype_describe((qn_dtype)c->axis[i].option[d->choice[i]]) : NULL;
        if (info && info->kind == QN_KIND_BLOCK) d->block = info->block;
        if (c->axis[i].variable == 'A' && info && info->kind != QN_KIND_BLOCK) d->block = 1;
    }
    int any = 0;
    for (int i = 0; i < QC_LETTERS; i++) {
        d->letter[i] = draw_extent(&rng, shapes);
        if (c->letters >> i & 1) any |= d->letter[i] == 0;
    }
    draw_lead(c, d, shapes, &rng);
    if (shapes == QC_SHAPES_EMPTY && !any) { /* at least one extent must be 0 for the draw to be what it says */
        for (int i = 0; i < QC_LETTERS && !any; i++)
            if (c->letters >> i & 1) d->letter[i] = 0, any = 1;
        if (!any && d->n_lead) d->lead[0] = 0;
    }
    while (total(c, d) > most && shrink(c, d)) {}
}
