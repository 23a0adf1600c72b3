/* `qn_check grad`: every gradient rule against finite differences in f64, and the gradient of a graph of the op against the rule. The
 * loss is a random weighting of the outputs; each element of each float source is moved a little both ways, four points to take out the
 * third derivative, and the step shrinks before a disagreement counts, because a point may lie beside a kink. Where indices among the
 * outputs change on the way it does: two scores were so close that the step made them change places. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "check_emit.h"
#include "check_grad_graph.h"

enum { MOST_ELEMENTS = 260, ROOM = 1 << 16 };

static const double TOLERANCE = 1e-5;

typedef struct probe {
    qc_built b;
    int n_y;                  /* elements of all f64 outputs */
    double *weight;           /* one per element */
    double *y[4];             /* outputs at the four points */
    uint64_t indices;         /* what forward said of them where the sources are */
    double *grad[QN_MAX_SRC]; /* from the rule, all sources wanted */
    int64_t count[QN_MAX_SRC];
    int want[QN_MAX_SRC];  /* f64 sources that may have a gradient */
    int judge[QN_MAX_SRC]; /* those that are compared */
    double worst;
    int refused; /* the rule said that it has no gradient for a source */
    qc_tape tape;
} probe;

/* ---- Forward */

static void mix_index(void *hash, char *at, int64_t i) {
    (void)i;
    *(uint64_t *)hash = qc_mix(*(uint64_t *)hash, (uint64_t) * (int32_t *)(void *)at);
}

/* The f64 outputs to y, and a number that tells whether indices among the others are the same; 0 when there is no result. */
static int forward(probe *p, double *y, uint64_t *indices) {
    qn_result r;
    *indices = 0;
    if (qn_dispatch(qc_context, &p->b.request, &r) != QN_OK) return 0;
    for (int i = 0, at = 0; i < p->b.request.n_dst; i++) {
        const qn_tensor *t = p->b.request.dst[i];
        if (t && t->dtype == QN_DTYPE_I32) qc_each(t, mix_index, indices);
        if (!t || t->dtype != QN_DTYPE_F64) continue;
        qc_doubles(t, y + at);
        at += (int)qn_tensor_count(t);
    }
    return 1;
}

static int is_listed(const qc_item *item) { return item->values.n && item->values.at[0] == '='; }

/* Which sources are moved: f64, and neither indices nor mere shapes. A list of special values lies on
 * kinks and poles by design, and a broadcast view moves several elements at once: those are not compared. */
static int choose_sources(probe *p) {
    const qn_op_info *info = qn_op_describe(p->b.c->op);
    int any = 0;
    for (int s = 0; s < p->b.c->n_src && s < info->n_src; s++) {
        const qn_tensor *t = p->b.request.src[s];
        if (!t || t->dtype != QN_DTYPE_F64 || (info->src[s].flags & (QN_SLOT_INDEX | QN_SLOT_SHAPE))) continue;
        p->want[s] = 1;
        p->count[s] = qn_tensor_count(t);
        p->judge[s] = p->b.c->src[s].layout != 'b' && !is_listed(&p->b.c->src[s]);
        any |= p->judge[s];
    }
    return any;
}

static int open_probe(probe *p, const qc_case *c, const qc_draw *d) {
    qc_build(&p->b, c, d, &(qc_options){.poison = 0});
    if (p->b.trouble || p->b.inferred != QN_OK) return 0; /* `test` reports it */
    int f64_out = 0;
    for (int i = 0; i < p->b.request.n_dst; i++) {
        const qn_tensor *t = p->b.request.dst[i];
        if (!t || t->dtype != QN_DTYPE_F64) continue;
        p->n_y += (int)qn_tensor_count(t);
        f64_out = 1;
    }
    if (!choose_sources(p) || !f64_out || p->n_y > ROOM) return 0;
    p->weight = calloc((size_t)p->n_y + 1, sizeof *p->weight);
    for (int k = 0; k < 4; k++) p->y[k] = calloc((size_t)p->n_y + 1, sizeof *p->y[k]);
    for (int s = 0; s < QN_MAX_SRC; s++) p->grad[s] = calloc((size_t)p->count[s] + 1, sizeof *p->grad[s]);
    qc_rng rng = {qc_mix(d->seed, 900)};
    for (int i = 0; i < p->n_y; i++) p->weight[i] = 0.25 + qc_unit(&rng);
    for (int i = 0; i < p->n_y; i++)
        if (qc_next(&rng) & 1) p->weight[i] = -p->weight[i];
    return forward(p, p->y[0], &p->indices);
}

static void close_probe(probe *p) {
    free(p->weight);
    for (int k = 0; k < 4; k++) free(p->y[k]);
    for (int s = 0; s < QN_MAX_SRC; s++) free(p->grad[s]);
}

/* ---- Backward */

static int same_form(const qn_tensor *a, const qn_tensor *b) {
    int rank = a->rank > b->rank ? a->rank : b->rank;
    for (int k = 0; k < rank; k++)
        if (qn_ne(a, k) != qn_ne(b, k)) return 0;
    return 1;
}

static qn_val cotangent(probe *p, const qn_tensor *y, int at) {
    qn_val v = qc_tape_new(&p->tape, QN_DTYPE_F64, y->rank, y->shape);
    if (v != QN_VAL_NONE) memcpy(p->tape.value[v].data, p->weight + at, (size_t)qn_tensor_count(y) * sizeof(double));
    return v;
}

/* Runs the rule for the sources in `want`; grad[s] gets the result. `only` picks one output, -1 all. NULL or the trouble. */
static const char *backward(probe *p, const int *want, int only, double *const *grad) {
    const qn_request *q = &p->b.request;
    qn_vjp_call v = {
        .emitter = &p->tape.emitter, .op = q->op, .subop = q->subop, .attr = p->b.attr, .n_src = q->n_src, .n_dst = q->n_dst};
    qc_tape_begin(&p->tape);
    for (int i = 0; i < QN_MAX_SRC; i++) {
        v.src[i] = i < q->n_src && q->src[i] ? qc_tape_bring(&p->tape, q->src[i]) : QN_VAL_NONE;
        v.want[i] = want[i];
        v.out[i] = QN_VAL_NONE;
    }
    for (int i = 0, at = 0; i < QN_MAX_DST; i++) {
        const qn_tensor *y = i < q->n_dst ? q->dst[i] : NULL;
        v.dst[i] = y ? qc_tape_bring(&p->tape, y) : QN_VAL_NONE;
        v.grad[i] = QN_VAL_NONE;
        if (!y || y->dtype != QN_DTYPE_F64) continue;
        if (only < 0 || only == i) v.grad[i] = cotangent(p, y, at);
        at += (int)qn_tensor_count(y);
    }
    qn_op_rules_of(q->op)->vjp(&v);
    p->refused = v.why != NULL;
    if (v.status != QN_OK) return p->tape.trouble[0] ? p->tape.trouble : v.why ? v.why : "the rule failed";
    for (int s = 0; s < q->n_src; s++) {
        if (!want[s] || !grad[s]) continue;
        memset(grad[s], 0, (size_t)p->count[s] * sizeof *grad[s]);
        if (v.out[s] == QN_VAL_NONE) continue;
        if (v.out[s] < 0 || v.out[s] >= p->tape.n) return "the gradient is no value of the tape";
        if (!same_form(&p->tape.value[v.out[s]], q->src[s])) return "a gradient has another shape than its source";
        if (p->tape.value[v.out[s]].dtype != QN_DTYPE_F64) return "a gradient of f64 was computed in less";
        qc_doubles(&p->tape.value[v.out[s]], grad[s]);
    }
    return NULL;
}

/* ---- Comparison */

/* The derivative along one element by four points; *fair is 0 when an output turned NaN or infinite on the way, or an index changed. */
static double difference(probe *p, char *at, double step, int *fair) {
    static const double points[4] = {0.5, -0.5, 1, -1};
    double x, sum = 0;
    memcpy(&x, at, sizeof x);
    for (int k = 0; k < 4; k++) {
        double moved = x + points[k] * step;
        memcpy(at, &moved, sizeof moved);
        uint64_t indices;
        if (!forward(p, p->y[k], &indices) || indices != p->indices) *fair = 0;
    }
    memcpy(at, &x, sizeof x);
    for (int i = 0; i < p->n_y; i++) {
        double a = p->y[0][i], b = p->y[1][i], c = p->y[2][i], e = p->y[3][i];
        if (a == b && b == c && c == e) continue; /* also where all are the same infinity */
        sum += p->weight[i] * (8 * (a - b) - (c - e));
    }
    if (!isfinite(sum)) *fair = 0;
    return sum / (6 * step);
}

typedef struct judging {
    probe *p;
    int slot;
    double size; /* largest gradient of the source */
    int stop;
} judging;

static void judge_one(void *self, char *at, int64_t i) {
    static const double steps[] = {1e-4, 1e-5, 1e-6, 1e-3, 1e-7};
    judging *j = self;
    probe *p = j->p;
    double want = p->grad[j->slot][i], error = INFINITY, found = 0;
    int fair = 1;
    if (j->stop) return;
    for (size_t k = 0; k < sizeof steps / sizeof steps[0] && !(error <= TOLERANCE); k++) {
        fair = 1;
        double x;
        memcpy(&x, at, sizeof x);
        if (!isfinite(x)) return;
        double fd = difference(p, at, steps[k] * (fabs(x) > 1 ? fabs(x) : 1), &fair);
        if (!fair) continue;
        double scale = fmax(fmax(fabs(fd), fabs(want)), 1e-3 * j->size + 1e-6), e = fabs(fd - want) / scale;
        if (e < error || isnan(want)) error = e, found = fd;
    }
    if (!fair && isinf(error)) return;
    if (error <= TOLERANCE) {
        if (error > p->worst) p->worst = error;
        return;
    }
    qc_fail(&p->b, "gradient of %s, element %lld: the rule gives %.12g, differences %.12g",
            qn_op_describe(p->b.c->op)->src[j->slot].name, (long long)i, want, found);
    j->stop = 1;
}

static void judge_source(probe *p, int slot) {
    judging j = {p, slot, 0, 0};
    for (int64_t i = 0; i < p->count[slot]; i++)
        if (fabs(p->grad[slot][i]) > j.size) j.size = fabs(p->grad[slot][i]);
    qc_each(p->b.request.src[slot], judge_one, &j);
    if (!j.stop) qc_pass();
}

/* Each source wanted alone must come out as it did with the others. */
static void check_alone(probe *p, int slot) {
    int want[QN_MAX_SRC] = {0};
    double *grad[QN_MAX_SRC] = {0}, size = 0, error = 0;
    want[slot] = 1;
    grad[slot] = calloc((size_t)p->count[slot] + 1, sizeof(double));
    const char *why = backward(p, want, -1, grad);
    for (int64_t i = 0; !why && i < p->count[slot]; i++) {
        size = fmax(size, fabs(p->grad[slot][i]));
        double a = grad[slot][i], b = p->grad[slot][i];
        if (a != b && !(isnan(a) && isnan(b))) error = fmax(error, fabs(a - b));
    }
    if (why) qc_fail(&p->b, "gradient of %s alone: %s", qn_op_describe(p->b.c->op)->src[slot].name, why);
    else if (error > 1e-12 * size)
        qc_fail(&p->b, "gradient of %s alone differs by %.3g", qn_op_describe(p->b.c->op)->src[slot].name, error);
    else qc_pass();
    qc_tape_end(&p->tape);
    free(grad[slot]);
}

/* With several outputs: each alone, the others' gradients being none, must add up to all together. */
static void check_outputs(probe *p) {
    double *sum[QN_MAX_SRC] = {0}, *part[QN_MAX_SRC] = {0};
    const char *why = NULL;
    if (p->b.request.n_dst < 2) return;
    for (int s = 0; s < QN_MAX_SRC; s++) {
        sum[s] = calloc((size_t)p->count[s] + 1, sizeof(double));
        part[s] = calloc((size_t)p->count[s] + 1, sizeof(double));
    }
    for (int i = 0; i < p->b.request.n_dst && !why; i++) {
        why = backward(p, p->want, i, part);
        for (int s = 0; s < QN_MAX_SRC && !why; s++)
            for (int64_t k = 0; k < p->count[s]; k++) sum[s][k] += part[s][k];
        if (why) qc_fail(&p->b, "gradient of output %d alone: %s", i, why);
        qc_tape_end(&p->tape);
    }
    for (int s = 0; s < QN_MAX_SRC; s++) {
        for (int64_t k = 0; !why && k < p->count[s]; k++)
            if (fabs(sum[s][k] - p->grad[s][k]) > 1e-9 * (1 + fabs(sum[s][k]))) why = "outputs alone do not add up";
        free(sum[s]);
        free(part[s]);
    }
    if (why) qc_fail(&p->b, "%s", why);
    else qc_pass();
}

/* The gradients of all sources together. Those that the rule says it does not have are left out, and then it must have others. */
static const char *backward_all(probe *p) {
    const char *why = backward(p, p->want, -1, p->grad);
    int left = 0;
    if (!p->refused) return why;
    for (int s = 0; s < QN_MAX_SRC; s++) {
        int alone[QN_MAX_SRC] = {0};
        if (!p->want[s]) continue;
        qc_tape_end(&p->tape);
        alone[s] = 1;
        backward(p, alone, -1, p->grad);
        if (p->refused) p->want[s] = p->judge[s] = 0;
        left += p->want[s];
    }
    qc_tape_end(&p->tape);
    return left ? backward(p, p->want, -1, p->grad) : why;
}

/* 1 when the draw had a gradient to compare. *graphs counts those that a graph was compared on as well. */
static int check_draw(const qc_case *c, const qc_draw *d, double *worst, int *graphs) {
    static probe p;
    memset(&p, 0, sizeof p);
    int open = open_probe(&p, c, d);
    if (open) {
        const char *why = backward_all(&p);
        if (why) qc_fail(&p.b, "%s", why);
        qc_tape_end(&p.tape);
        for (int s = 0; s < c->n_src && !why; s++)
            if (p.judge[s]) judge_source(&p, s);
        forward(&p, p.y[0], &p.indices); /* the differences left the outputs of their last point */
        for (int s = 0; s < c->n_src && !why; s++)
            if (p.want[s]) check_alone(&p, s);
        if (!why) check_outputs(&p);
        if (!why) *graphs += qc_grad_graph(&p.b, p.weight, p.want, p.grad);
        if (p.worst > *worst) *worst = p.worst;
    }
    close_probe(&p);
    return open;
}

int qc_grad_try(const qc_case *c, const qc_draw *d) {
    double worst = 0;
    int graphs = 0, n = check_draw(c, d, &worst, &graphs);
    if (!n) qc_fail(NULL, "%s has no gradient to compare", qn_op_describe(c->op)->name);
    return n;
}

/* All dtype variables at f64 where they can be; other choices are enumerated. 0 when this variant repeats another. */
static int widest(const qc_case *c, qc_draw *d) {
    for (int i = 0; i < c->n_axis; i++)
        for (int k = 0; c->axis[i].variable && k < c->axis[i].n; k++)
            if (c->axis[i].option[k] == QN_DTYPE_F64 && d->choice[i] != k) return 0;
    return 1;
}

static int check_case(const qc_case *c, uint64_t seed, double *worst, int *graphs) {
    static const qc_shapes shapes[] = {QC_SHAPES_RANDOM, QC_SHAPES_TWO,  QC_SHAPES_ODD,
                                       QC_SHAPES_DEEP,   QC_SHAPES_ONES, QC_SHAPES_EMPTY};
    int checked = 0, drawn = c->letters || c->lead_room >= 0, variants = 0;
    for (int64_t v = 0; v < c->n_variant && variants < (qc_set.quick ? 6 : 60); v++) {
        qc_draw d;
        qc_draw_make(c, &d, v, QC_SHAPES_RANDOM, MOST_ELEMENTS, 1);
        if (!widest(c, &d)) continue;
        variants++;
        for (int k = 0; k < (!drawn ? 1 : qc_set.quick ? 2 : 6); k++) {
            if (shapes[k] == QC_SHAPES_DEEP && c->lead_room < 0) continue;
            qc_draw_make(c, &d, v, shapes[k], MOST_ELEMENTS, qc_mix(seed, 10 * (uint64_t)v + (uint64_t)k));
            checked += check_draw(c, &d, worst, graphs);
        }
    }
    return checked;
}

int qc_mode_grad(void) {
    for (int op = 0; op < QN_OP_COUNT; op++) {
        if ((qc_set.op >= 0 && qc_set.op != op) || !qn_op_rules_of(op)->vjp || qn_op_describe(op)->n_body) continue;
        double worst = 0;
        int checked = 0, graphs = 0;
        for (int i = 0; i < qc_cases_count(); i++)
            if (qc_cases_at(i)->op == op && qc_cases_at(i)->kind == QC_ACCEPT)
                checked += check_case(qc_cases_at(i), qc_case_seed(qc_cases_at(i)), &worst, &graphs);
        const qc_case none = {.op = op, .sources = "", .attributes = ""};
        qc_built b = {.c = &none, .trouble = "none"};
        if (!checked) qc_fail(&b, "it has a gradient but no case that could check it");
        if (checked && !graphs) qc_fail(&b, "no case of its gradient could be tried in a graph");
        if (qc_set.verbose)
            printf("%-26s %6d draws, %d as graphs, worst relative error %.2g\n", qn_op_describe(op)->name, checked, graphs,
                   worst);
        qc_report_op(op);
    }
    return qc_finish();
}
