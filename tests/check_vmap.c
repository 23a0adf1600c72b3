/* `qn_check vmap`: batching. Every op on its cases: a graph of that one node, batched over some of its sources, must give for
 * each item what the op gives for that item alone. An op that has a rule must have a case that the rule fits. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <quern/plan.h>

#include "tensor/convert.h"
#include "check.h"

enum { MOST_ELEMENTS = 300, BATCH = 3, ROOM = 1 << 21 }; /* room for what cases of fixed shapes have, in bytes */

typedef struct trial {
    qc_built b;
    qn_graph *one, *all;
    qn_val leaf[QN_MAX_SRC];
    int with_batch[QN_MAX_SRC];
    qn_vmap_report report;
} trial;

static int can_try(const qn_op_info *info) {
    if (info->n_body) return 0;
    for (int i = 0; i < info->n_src; i++)
        if (info->src[i].flags & QN_SLOT_STATE) return 0;
    for (int i = 0; i < info->n_attr; i++)
        if (info->attr[i].kind == QN_ATTR_KIND_fn) return 0;
    return 1;
}

static int is_empty(const qn_tensor *t) { return t && qn_tensor_count(t) == 0; }

/* The graph of the one node; 0 when the case is none for a graph. */
static int make_graph(trial *t) {
    const qn_request *q = &t->b.request;
    qn_val out[QN_MAX_DST];
    char name[16];
    if (qn_graph_create(0, &t->one) != QN_OK) return 0;
    for (int i = 0; i < q->n_src; i++) {
        t->leaf[i] = QN_VAL_NONE;
        if (!q->src[i]) continue;
        if (is_empty(q->src[i])) return 0;
        snprintf(name, sizeof name, "s%d", i);
        t->leaf[i] = qn_graph_input(t->one, name, (qn_dtype)q->src[i]->dtype, q->src[i]->rank, q->src[i]->shape);
    }
    if (qn_graph_apply(t->one, q->op, q->subop, q->n_src, t->leaf, q->attr, q->n_dst, out) != QN_OK) return 0;
    for (int i = 0; i < q->n_dst; i++) {
        snprintf(name, sizeof name, "y%d", i);
        qn_graph_output(t->one, out[i], name);
    }
    return qn_graph_error(t->one, NULL) == QN_OK;
}

/* Bytes of source s for item k: the case's own, turned by k elements, which keeps every index in its range. */
static size_t item_bytes(const trial *t, int s, int k, char *out) {
    const qn_tensor *x = t->b.request.src[s];
    const qn_dtype_info *d = qn_dtype_describe((qn_dtype)x->dtype);
    static char whole[ROOM];
    size_t n = qc_gather(x, whole, sizeof whole), unit = (size_t)d->bytes, by = n ? (size_t)k * unit % n : 0;
    if (n > sizeof whole) {
        qc_fail(&t->b, "source %d is larger than this check has room for", s);
        return 0;
    }
    memcpy(out, whole + by, n - by);
    memcpy(out + n - by, whole, by);
    return n;
}

/* Runs a graph on item k, or on all when k < 0; outputs one behind the other. */
static size_t run(const trial *t, const qn_graph *g, int k, char *out) {
    qn_plan_options o = {.size = sizeof o, .flags = QN_PLAN_REFERENCE};
    static char data[ROOM * BATCH];
    qn_plan *p = NULL;
    qn_error e;
    size_t n = 0;
    qn_status status = qn_plan_create(g, &o, &p, &e);
    for (int s = 0; s < t->b.request.n_src && status == QN_OK; s++) {
        if (t->leaf[s] == QN_VAL_NONE) continue;
        qn_value_info info = {.size = sizeof info};
        char name[16];
        qn_tensor x;
        size_t bytes = 0;
        int64_t shape[QN_MAX_RANK + 1] = {BATCH};
        int every = k < 0 && t->with_batch[s];
        for (int i = 0; i < (every ? BATCH : 1); i++)
            bytes += item_bytes(t, s, every ? i : k < 0 || !t->with_batch[s] ? 0 : k, data + bytes);
        qn_graph_value(t->one, t->leaf[s], &info);
        memcpy(shape + 1, info.shape, sizeof *shape * (size_t)info.rank);
        snprintf(name, sizeof name, "s%d", s);
        qn_tensor_init(&x, info.dtype, info.rank + every, every ? shape : shape + 1, data, bytes);
        status = qn_plan_set(p, name, &x, &e);
    }
    if (status == QN_OK) status = qn_plan_run(p, NULL, &e);
    for (int i = 0; i < t->b.request.n_dst && status == QN_OK; i++) {
        char name[16];
        qn_tensor y;
        snprintf(name, sizeof name, "y%d", i);
        status = qn_plan_output(p, name, &y, &e);
        size_t left = n < ROOM * BATCH ? ROOM * BATCH - n : 0;
        if (status == QN_OK) n += qc_gather(&y, out + ROOM * BATCH - left, left);
    }
    if (n > ROOM * BATCH) {
        qc_fail(&t->b, "outputs are larger than this check has room for");
        n = 0;
    }
    if (status != QN_OK) qc_fail(&t->b, "%s: %s", k < 0 ? "batched" : "one item", e.text);
    qn_plan_destroy(p);
    return status == QN_OK ? n : 0;
}

static double tolerance(uint32_t dtype) {
    switch (dtype) {
    case QN_DTYPE_F64: return 1e-7; /* numbers in attributes are f32 */
    case QN_DTYPE_F32: return 3e-6;
    case QN_DTYPE_F16: return 2e-3;
    case QN_DTYPE_BF16: return 2e-2;
    default: return 0;
    }
}

/* One output of one item; bits, or as near as another order of sums may bring it. */
static int agrees(uint32_t dtype, const char *got, const char *want, size_t bytes) {
    if (memcmp(got, want, bytes) == 0) return 1;
    if (tolerance(dtype) == 0) return 0;
    size_t unit = (size_t)qn_dtype_describe((qn_dtype)dtype)->bytes;
    for (size_t i = 0; i < bytes / unit; i++) {
        double a, b;
        qn_convert((qn_dtype)dtype, got + i * unit, QN_DTYPE_F64, &a, 1);
        qn_convert((qn_dtype)dtype, want + i * unit, QN_DTYPE_F64, &b, 1);
        if (!(a == b || (isnan(a) && isnan(b)) || fabs(a - b) <= tolerance(dtype) * fmax(1, fabs(b)))) return 0;
    }
    return 1;
}

static void compare(const trial *t, const char *all, int k, const char *one) {
    size_t at_all = 0, at_one = 0;
    for (int i = 0; i < t->b.request.n_dst; i++) {
        const qn_tensor *y = t->b.request.dst[i];
        uint64_t bytes = 0;
        qn_tensor_bytes((qn_dtype)y->dtype, y->rank, y->shape, &bytes);
        if (!agrees(y->dtype, all + at_all + (size_t)k * bytes, one + at_one, bytes)) {
            char which[QN_MAX_SRC + 1] = "";
            for (int s = 0; s < t->b.request.n_src; s++) which[s] = t->with_batch[s] ? 'b' : '-';
            qc_fail(&t->b, "output %d of item %d is not what the item alone gives; batched: %s, %d unrolled", i, k, which,
                    t->report.n_unrolled);
            return;
        }
        at_all += BATCH * bytes;
        at_one += bytes;
    }
    qc_pass();
}

/* 1 when a rule fitted, 0 when the node was run item by item, -1 when it could not be tried. */
static int try_draw(const qc_case *c, const qc_draw *d, unsigned which) {
    static trial t;
    static char all[ROOM * BATCH], one[ROOM * BATCH];
    qn_error e;
    int n = 0, rule = -1;
    qn_val chosen[QN_MAX_SRC];
    memset(&t, 0, sizeof t);
    qc_build(&t.b, c, d, &(qc_options){.least_dst = (int)(d->seed & 1)});
    if (t.b.trouble || t.b.inferred != QN_OK || !make_graph(&t)) {
        qn_graph_destroy(t.one);
        return -1;
    }
    for (int s = 0; s < t.b.request.n_src; s++) {
        t.with_batch[s] = t.leaf[s] != QN_VAL_NONE && (which >> s & 1) && t.b.request.src[s]->rank < QN_MAX_RANK;
        if (t.with_batch[s]) chosen[n++] = t.leaf[s];
    }
    t.report.size = sizeof t.report;
    int deep = 0;
    for (int i = 0; i < t.b.request.n_dst; i++) deep |= t.b.request.dst[i]->rank == QN_MAX_RANK;
    if (n && !deep && qn_graph_vmap(t.one, BATCH, n, chosen, &t.all, &t.report, &e) != QN_OK) qc_fail(&t.b, "%s", e.text);
    if (t.all) {
        rule = t.report.n_unrolled == 0;
        if (qn_graph_verify(t.all, NULL, NULL) != QN_OK) qc_fail(&t.b, "the batched graph is not sound");
        if (run(&t, t.all, -1, all))
            for (int k = 0; k < BATCH; k++)
                if (run(&t, t.one, k, one)) compare(&t, all, k, one);
    }
    qn_graph_destroy(t.all);
    qn_graph_destroy(t.one);
    return rule;
}

static void try_case(const qc_case *c, uint64_t seed, int *fitted, int *unrolled) {
    int variants = 0;
    for (int64_t v = 0; v < c->n_variant && variants < (qc_set.quick ? 4 : 20); v++, variants++) {
        qc_draw d;
        qc_rng rng = {qc_mix(seed, (uint64_t)v)};
        qc_draw_make(c, &d, v, v % 3 == 2 ? QC_SHAPES_ONES : QC_SHAPES_RANDOM, MOST_ELEMENTS, qc_next(&rng));
        for (int k = 0; k < (c->n_src > 1 ? 3 : 1); k++) {
            unsigned all = (1u << c->n_src) - 1, which = k == 0 ? all : k == 1 ? 1 : 1 + (unsigned)qc_below(&rng, all);
            int rule = try_draw(c, &d, which);
            *fitted += rule == 1;
            *unrolled += rule == 0;
        }
    }
}

int qc_mode_vmap(void) {
    static const int has_rule[QN_OP_COUNT] = {
#define QN_VMAP(op, rule, least, slots) [QN_OP_##op] = 1,
#include "grad/vmap_rules.def"
#undef QN_VMAP
    };
    for (int op = 0; op < QN_OP_COUNT; op++) {
        int fitted = 0, unrolled = 0;
        if ((qc_set.op >= 0 && qc_set.op != op) || !can_try(qn_op_describe(op))) continue;
        for (int i = 0; i < qc_cases_count(); i++)
            if (qc_cases_at(i)->op == op && qc_cases_at(i)->kind == QC_ACCEPT)
                try_case(qc_cases_at(i), qc_case_seed(qc_cases_at(i)), &fitted, &unrolled);
        const qc_case none = {.op = op, .sources = "", .attributes = ""};
        qc_built b = {.c = &none, .trouble = "none"};
        if (has_rule[op] && !fitted) qc_fail(&b, "it has a rule for batches that fits no case");
        if (qc_set.verbose) printf("%-26s %6d batched, %6d item by item\n", qn_op_describe(op)->name, fitted, unrolled);
        qc_report_op(op);
    }
    return qc_finish();
}
