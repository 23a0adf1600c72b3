/* `qn_check fuzz`: random requests, good and damaged, one after the other on one context. A good one must run and write its
 * outputs only; a damaged one must run or be turned down with a sentence, and then no byte may have changed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "check.h"
#include "check_fuzz.h"

enum { MOST_ELEMENTS = 96, HEAVY = 3000 };

typedef struct session {
    const qc_case **cases; /* accepting ones, by op */
    int first[QN_OP_COUNT + 1];
    int n_op, op[QN_OP_COUNT];
    int64_t requests, good, accepted, by_status[16];
    double slowest;
    int slowest_op;
} session;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int gather_cases(session *s) {
    int n = 0;
    s->cases = calloc((size_t)qc_cases_count() + 1, sizeof(const qc_case *));
    if (!s->cases) return 0;
    for (int op = 0; op < QN_OP_COUNT; op++) {
        s->first[op] = n;
        for (int i = 0; (qc_set.op < 0 || qc_set.op == op) && i < qc_cases_count(); i++)
            if (qc_cases_at(i)->op == op && qc_cases_at(i)->kind == QC_ACCEPT) s->cases[n++] = qc_cases_at(i);
        if (n > s->first[op]) s->op[s->n_op++] = op;
    }
    s->first[QN_OP_COUNT] = n;
    return s->n_op > 0;
}

/* A case that is always large would eat the time of a thousand small ones. */
static const qc_case *pick(session *s, qc_rng *rng, qc_draw *d) {
    static const qc_shapes shapes[] = {QC_SHAPES_RANDOM, QC_SHAPES_RANDOM, QC_SHAPES_ODD,
                                       QC_SHAPES_ONES,   QC_SHAPES_TWO,    QC_SHAPES_DEEP};
    for (;;) {
        int op = s->op[qc_below(rng, s->n_op)];
        const qc_case *c = s->cases[s->first[op] + qc_below(rng, s->first[op + 1] - s->first[op])];
        qc_shapes sh = qc_below(rng, 16) ? shapes[qc_below(rng, 6)] : QC_SHAPES_EMPTY;
        qc_draw_make(c, d, qc_below(rng, c->n_variant), sh, MOST_ELEMENTS, qc_next(rng));
        int64_t elements = 0;
        for (int i = 0; i < c->n_src; i++) {
            int rank;
            int64_t dims[QN_MAX_RANK], n;
            if (!c->src[i].absent && !qc_item_dims(c, d, i, &rank, dims) && (n = qc_count(rank, dims)) > 0) elements += n;
        }
        if (elements < HEAVY || qc_below(rng, 64) == 0) return c;
    }
}

static void options_of(qc_rng *rng, qc_options *o) {
    static const char layouts[] = {'s', 'n', 'x', 't', 'h', 'r'};
    *o = (qc_options){.poison = (unsigned char)qc_next(rng)};
    if (qc_below(rng, 4) == 0)
        for (int i = 0; i < QN_MAX_SRC; i++) o->src_layout[i] = qc_below(rng, 2) ? layouts[qc_below(rng, sizeof layouts)] : 0;
    if (qc_below(rng, 4) == 0) o->dst_layout = layouts[qc_below(rng, 3)];
    if (qc_below(rng, 8) == 0) o->least_dst = 1;
}

/* In place where the table says so and the shapes allow. */
static void try_in_place(qc_built *b, qc_rng *rng) {
    const qn_op_info *info = qn_op_describe(b->c->op);
    if (qc_below(rng, 8) || info->is_view || !b->request.n_dst) return;
    for (int s = 0; s < b->request.n_src; s++) {
        const qn_tensor *x = &b->src[s], *y = &b->dst[0];
        if (!(info->src[s].flags & QN_SLOT_IN_PLACE) || !b->request.src[s] || x->dtype != y->dtype) continue;
        if (x->rank == y->rank && memcmp(x->shape, y->shape, sizeof x->shape) == 0 && b->c->src[s].layout != 'b') {
            b->dst[0] = *x;
            return;
        }
    }
}

static void judge(session *s, qc_built *b, qc_outcome *o, int spoiled, int may_turn_down) {
    char text[400] = "";
    int length = qn_result_format(&o->result, text, sizeof text);
    s->requests++;
    s->accepted += o->status == QN_OK;
    if ((unsigned)o->status < 16) s->by_status[o->status]++;
    if (o->touched)
        qc_fail(b, "request %lld: status %s, but a byte it does not own changed", (long long)s->requests,
                qn_status_name(o->status));
    else if (o->allocations) qc_fail(b, "request %lld: it allocated", (long long)s->requests);
    else if (o->result.status != (int32_t)o->status)
        qc_fail(b, "request %lld: record and status disagree", (long long)s->requests);
    else if (o->status != QN_OK && (length <= 0 || o->result.reason == QN_REASON_NONE))
        qc_fail(b, "request %lld: a reject without a reason", (long long)s->requests);
    else if (o->status != QN_OK && !spoiled && !may_turn_down)
        qc_fail(b, "request %lld: a good request was turned down: %s", (long long)s->requests, text);
    else qc_pass();
}

static int layout_reason(int reason) { return reason == QN_REASON_NOT_CONTIGUOUS || reason == QN_REASON_TRANSPOSED; }

static void one(session *s, uint64_t seed) {
    qc_rng rng = {seed};
    qc_draw d;
    qc_options options;
    qc_built b;
    qc_outcome o, asked;
    const qc_case *c = pick(s, &rng, &d);
    options_of(&rng, &options);
    qc_build(&b, c, &d, &options);
    if (b.trouble) {
        qc_fail(&b, "cannot build: %s", b.trouble);
        return;
    }
    try_in_place(&b, &rng);
    int spoiled = qc_below(&rng, 20) < 12;
    if (spoiled) {
        for (int64_t k = 1 + qc_below(&rng, 3); k > 0; k--) qc_spoil(&b, &rng);
        qc_defuse(&b);
    }
    double start = now();
    if (qc_below(&rng, 4) == 0) {
        qc_ask(&b, &asked);
        qc_run(&b, &o);
        if (asked.status != o.status && o.status != QN_USER)
            qc_fail(&b, "can_dispatch says %s, dispatch %s", qn_status_name(asked.status), qn_status_name(o.status));
    } else qc_run(&b, &o);
    double took = now() - start;
    if (took > s->slowest) s->slowest = took, s->slowest_op = c->op;
    int empty = 0;
    for (int i = 0; i < QC_LETTERS; i++) empty |= (c->letters >> i & 1) && d.letter[i] == 0;
    for (int i = 0; i < d.n_lead; i++) empty |= d.lead[i] == 0;
    int strided = options.dst_layout != 0 || memcmp(options.src_layout, (char[QN_MAX_SRC]){0}, QN_MAX_SRC) != 0;
    int view = qn_op_describe(c->op)->is_view;
    judge(s, &b, &o, spoiled, empty || (strided && (view || layout_reason(o.result.reason))));
}

static void summary(const session *s, double seconds) {
    printf("%lld requests in %.1f s: %.0f a minute, %.1f %% accepted\n", (long long)s->requests, seconds,
           seconds > 0 ? 60 * (double)s->requests / seconds : 0,
           s->requests ? 100.0 * (double)s->accepted / (double)s->requests : 0);
    for (int i = 0; i < 16; i++)
        if (s->by_status[i]) printf("  %-12s %lld\n", qn_status_name((qn_status)i), (long long)s->by_status[i]);
    printf("slowest request %.1f ms (%s)\n", 1e3 * s->slowest, qn_op_describe(s->slowest_op)->name);
    if (s->requests >= 1000 && 3 * s->accepted < s->requests) qc_fail(NULL, "less than a third of the requests was accepted");
}

int qc_mode_fuzz(void) {
    static session s;
    memset(&s, 0, sizeof s);
    if (!gather_cases(&s)) {
        qc_fail(NULL, "no accepting case to start from");
        return qc_finish();
    }
    double start = now(), end = start + qc_set.seconds;
    for (uint64_t i = 0; i % 64 || now() < end; i++) one(&s, qc_mix(qc_set.seed, i));
    summary(&s, now() - start);
    free(s.cases);
    return qc_finish();
}
