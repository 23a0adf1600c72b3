/* `qn_check tolerances`: the rows of tests/tolerances.def. Numbers are held against the op's own reference in f64 over the same
 * sources, already rounded to the dtype at hand, and its result rounded to the dtype of the output: once by the reference in that
 * dtype, twice by the fast kernels, and by these with three threads, all with the same bits. A row without evidence fails, and so
 * does evidence that is not there. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "op/op.h"
#include "run/context.h"
#include "tensor/convert.h"

enum { ROWS = 45 };

typedef enum kind { ROW, NEAR, PLAIN, ALONE, EQUAL, SLOPE, UNIT, PATTERN } kind;

typedef struct entry {
    kind kind;
    const char *name; /* of a row, a unit test's file, a pattern */
    int op;
    const char *dtype, *sources, *attributes, *others;
    double absolute, relative;
} entry;

static const entry entries[] = {
#define QN_ROW(name) {ROW, name, 0, "", "", "", "", 0, 0},
#define QN_NEAR(op, dtype, sources, attributes, absolute, relative) \
    {NEAR, #op, QN_OP_##op, dtype, sources, attributes, "", absolute, relative},
#define QN_PLAIN(op, dtype, sources, attributes, absolute, relative) \
    {PLAIN, #op, QN_OP_##op, dtype, sources, attributes, "", absolute, relative},
#define QN_ALONE(op, dtype, sources, attributes) {ALONE, #op, QN_OP_##op, dtype, sources, attributes, "", 0, 0},
#define QN_EQUAL(op, dtype, sources, attributes, others, absolute, relative) \
    {EQUAL, #op, QN_OP_##op, dtype, sources, attributes, others, absolute, relative},
#define QN_SLOPE(op, sources, attributes) {SLOPE, #op, QN_OP_##op, "f64", sources, attributes, "", 0, 0},
#define QN_UNIT(file, function) {UNIT, file, 0, "", function, "", "", 0, 0},
#define QN_PATTERN(name) {PATTERN, name, 0, "", "", "", "", 0, 0},
#include "tolerances.def"
};

static qn_context *reference, *fast;
static qn_pool *pool;
static const char *row = "";

/* ---- Results */

typedef struct taken {
    int n_out;
    int64_t count[QN_MAX_DST], n;
    uint32_t dtype[QN_MAX_DST];
    double *value;
    unsigned char *bits;
    size_t n_bits;
} taken;

static void drop(taken *t) {
    free(t->value);
    free(t->bits);
    *t = (taken){0};
}

static int take(const qc_built *b, taken *t) {
    size_t room = 64;
    *t = (taken){.n_out = b->request.n_dst};
    for (int i = 0; i < t->n_out; i++) {
        const qn_tensor *y = b->request.dst[i];
        t->count[i] = y ? qn_tensor_count(y) : 0;
        t->dtype[i] = y ? y->dtype : QN_DTYPE_NONE;
        t->n += t->count[i];
        if (y) room += (size_t)t->count[i] * (size_t)qn_dtype_describe((qn_dtype)y->dtype)->bytes;
    }
    t->value = malloc((size_t)(t->n + 1) * sizeof *t->value);
    t->bits = malloc(room);
    if (!t->value || !t->bits) return 0;
    double *at = t->value;
    for (int i = 0; i < t->n_out; at += t->count[i++])
        if (b->request.dst[i]) qc_doubles(b->request.dst[i], at);
    t->n_bits = qc_outputs(b, t->bits, room);
    return 1;
}

/* Builds, runs and takes; 0 and a failure when that did not work. */
static int run(const qc_case *c, const qc_draw *d, const qc_options *options, qn_context *context, taken *t) {
    qc_built b;
    qc_outcome o;
    char text[300] = "";
    *t = (taken){0};
    qc_context = context;
    qc_build(&b, c, d, options);
    if (b.trouble || b.inferred != QN_OK) {
        qn_result_format(&b.result, text, sizeof text);
        qc_fail(&b, "%s: cannot be built: %s", row, b.trouble ? b.trouble : text);
        return 0;
    }
    qc_run(&b, &o);
    if (o.status == QN_OK && !o.touched && !o.allocations && take(&b, t)) return 1;
    qn_result_format(&o.result, text, sizeof text);
    qc_fail(&b, "%s: %s", row, o.status != QN_OK ? text : "it wrote outside its outputs, or allocated");
    drop(t);
    return 0;
}

static double rounded(uint32_t dtype, double v) {
    char one[16];
    qn_store_one((qn_dtype)dtype, one, v);
    return qn_load_one((qn_dtype)dtype, one);
}

/* The worst error as a part of what is allowed; above 1 it is too much. What is no float must be equal. */
static double excess(const entry *e, const taken *got, const taken *want) {
    double worst = 0;
    const double *g = got->value, *w = want->value;
    if (got->n != want->n) return INFINITY;
    for (int k = 0; k < got->n_out; g += got->count[k], w += want->count[k], k++)
        for (int64_t i = 0; i < got->count[k]; i++) {
            double exact = qn_is_float(got->dtype[k]) ? rounded(got->dtype[k], w[i]) : w[i], off = fabs(g[i] - exact);
            if (g[i] == exact || (isnan(g[i]) && isnan(exact))) continue;
            double allowed = qn_is_float(got->dtype[k]) ? fmax(e->absolute, e->relative * fabs(exact)) : 0;
            double part = off <= allowed ? off / allowed : isfinite(off) ? fmax(off / (allowed + 1e-300), 1.01) : INFINITY;
            if (part > worst) worst = part;
        }
    return worst;
}

static void judge(const qc_built *b, const entry *e, const taken *got, const taken *want, const char *who) {
    double part = excess(e, got, want);
    if (qc_set.verbose) printf("  %-24s %-5s %-10s %.3g of the bound\n", e->name, e->dtype, who, part);
    if (part <= 1) qc_pass();
    else qc_fail(b, "%s: %s is off by %.3g times what is allowed", row, who, part);
}

static void same_bits(const qc_built *b, const taken *x, const taken *y, const char *what) {
    if (x->n_bits == y->n_bits && memcmp(x->bits, y->bits, x->n_bits) == 0) qc_pass();
    else qc_fail(b, "%s: %s", row, what);
}

/* ---- Kinds of evidence */

/* The dtype for the variable that the sources name, if they do; 0 when it cannot have it. */
static int choose(const qc_case *c, qc_draw *d, uint32_t dtype) {
    for (int i = 0; i < c->n_axis; i++) {
        if (!c->axis[i].variable) continue;
        int k = 0;
        while (k < c->axis[i].n && c->axis[i].option[k] != dtype) k++;
        if (k == c->axis[i].n) return 0;
        d->choice[i] = k;
    }
    return 1;
}

static int has_variable(const qc_case *c) {
    for (int i = 0; i < c->n_axis; i++)
        if (c->axis[i].variable) return 1;
    return 0;
}

/* A variant counts once, not for each dtype. */
static int is_first(const qc_case *c, const qc_draw *d) {
    for (int i = 0; i < c->n_axis; i++)
        if (c->axis[i].variable && d->choice[i]) return 0;
    return 1;
}

/* What the op gives in f64, or where the sources have no variable, what its reference gives. */
static int oracle(const qc_case *c, const qc_draw *d, uint32_t dtype, taken *t) {
    qc_options options = {.poison = 0x33};
    qc_draw wide = *d;
    for (int s = 0; s < c->n_src; s++)
        if (!c->src[s].absent && c->src[s].dtype.n == 1 && c->src[s].dtype.at[0] != 'Q') options.round[s] = dtype;
    if (has_variable(c) && !choose(c, &wide, QN_DTYPE_F64)) return 0;
    return run(c, &wide, &options, reference, t);
}

static void try_near(const entry *e, const qc_case *c, const qc_draw *d, uint32_t dtype) {
    qc_options options = {.poison = 0x33};
    qc_built b = {.c = c, .draw = *d, .trouble = "none"};
    taken want, plain, one, two, three;
    if (!oracle(c, d, dtype, &want)) return;
    if (run(c, d, &options, reference, &plain)) judge(&b, e, &plain, &want, "reference");
    drop(&plain);
    fast->pool = NULL;
    if (run(c, d, &options, fast, &one)) {
        if (e->kind == NEAR) judge(&b, e, &one, &want, "kernel");
        options.poison = 0xff;
        if (run(c, d, &options, fast, &two)) same_bits(&b, &one, &two, "two runs differ");
        fast->pool = pool;
        if (run(c, d, &options, fast, &three)) same_bits(&b, &one, &three, "three threads differ from one");
        fast->pool = NULL;
        drop(&two);
        drop(&three);
    }
    drop(&one);
    drop(&want);
}

/* One item of the first axis. */
static void cut(qn_tensor *t, int64_t i) {
    t->data = (char *)t->data + i * t->stride[0];
    t->size -= (uint64_t)(i * t->stride[0]);
    t->shape[0] = 1;
}

/* Item i by itself: every source as long as the outputs along the first axis is cut there. */
static void try_item(const qc_built *whole, const unsigned char *const *bits, int64_t i, const char *who) {
    qc_built b = *whole;
    qc_outcome o;
    size_t need = 0;
    int64_t n = whole->dst[0].shape[0];
    qc_bind(&b);
    for (int s = 0; s < b.c->n_src; s++)
        if (b.request.src[s] && b.src[s].shape[0] == n) cut(&b.src[s], i);
    for (int k = 0; k < b.request.n_dst; k++) cut(&b.dst[k], i);
    if (qn_workspace_bytes(&b.request, &need, &b.result) == QN_OK && need > b.request.workspace_size) {
        b.request.workspace = qc_alloc(need, QN_WORKSPACE_ALIGN);
        b.request.workspace_size = need;
    }
    qc_run(&b, &o);
    if (o.status != QN_OK) {
        char text[300];
        qn_result_format(&o.result, text, sizeof text);
        qc_fail(whole, "%s: item %lld alone: %s", row, (long long)i, text);
        return;
    }
    for (int k = 0; k < b.request.n_dst; k++) {
        size_t bytes = (size_t)qn_tensor_count(&b.dst[k]) * (size_t)qn_dtype_describe((qn_dtype)b.dst[k].dtype)->bytes;
        unsigned char *got = malloc(bytes + 1);
        if (got && qc_gather(&b.dst[k], got, bytes) == bytes && memcmp(got, bits[k] + (size_t)i * bytes, bytes) == 0) qc_pass();
        else qc_fail(whole, "%s: %s: item %lld of %lld by itself has other bits", row, who, (long long)i, (long long)n);
        free(got);
    }
}

static void try_alone(const qc_case *c, const qc_draw *d, qn_context *context, const char *who) {
    qc_built b;
    qc_outcome o;
    qc_options options = {.poison = 0x33};
    unsigned char *bits[QN_MAX_DST] = {NULL};
    char text[300] = "";
    qc_context = context;
    qc_build(&b, c, d, &options);
    qn_result_format(&b.result, text, sizeof text);
    if (b.trouble || b.inferred != QN_OK) {
        qc_fail(&b, "%s: cannot be built: %s", row, b.trouble ? b.trouble : text);
        return;
    }
    qc_run(&b, &o);
    if (o.status != QN_OK) qc_fail(&b, "%s: it did not run", row);
    for (int k = 0; k < b.request.n_dst; k++) {
        size_t bytes = (size_t)qn_tensor_count(&b.dst[k]) * (size_t)qn_dtype_describe((qn_dtype)b.dst[k].dtype)->bytes;
        bits[k] = malloc(bytes + 1);
        if (bits[k]) qc_gather(&b.dst[k], bits[k], bytes);
    }
    int64_t n = b.dst[0].shape[0], at[4] = {0, n > 2 ? 1 : -1, n > 4 ? n / 2 : -1, n > 1 ? n - 1 : -1};
    for (int i = 0; i < 4 && o.status == QN_OK; i++)
        if (at[i] >= 0) try_item(&b, (const unsigned char *const *)bits, at[i], who);
    for (int k = 0; k < b.request.n_dst; k++) free(bits[k]);
}

/* Two ways of computing one thing: what `attributes` say against what `others` do. */
static void try_equal(const entry *e, const qc_case *c, const qc_draw *d, const qc_case *other) {
    qc_options options = {.poison = 0x33};
    qc_built b = {.c = c, .draw = *d, .trouble = "none"};
    taken x, y;
    qn_context *const contexts[2] = {reference, fast};
    for (int i = 0; i < 2; i++) {
        if (run(c, d, &options, contexts[i], &x) && run(other, d, &options, contexts[i], &y))
            judge(&b, e, &x, &y, i ? "kernel" : "reference");
        drop(&x);
        drop(&y);
    }
}

/* A function of a unit test, and that its program runs it. */
static void try_unit(const entry *e) {
    char path[200], want[200], *text = NULL;
    snprintf(path, sizeof path, "tests/unit/%s.c", e->name);
    snprintf(want, sizeof want, "cmocka_unit_test(%s)", e->sources);
    FILE *f = fopen(path, "rb");
    size_t n = 0, room = 1 << 16;
    if (f && (text = malloc(room + 1))) n = fread(text, 1, room, f);
    if (text) text[n] = 0;
    if (text && strstr(text, want)) qc_pass();
    else qc_fail(NULL, "%s: %s has no test %s (run this in the source folder)", row, path, e->sources);
    if (f) fclose(f);
    free(text);
}

/* A file of a pass, whose result test_pass.c holds against what it came from. */
static void try_pattern(const entry *e) {
    char path[200];
    snprintf(path, sizeof path, "tests/ir/%s.qir", e->name);
    FILE *f = fopen(path, "rb");
    if (f) qc_pass();
    else qc_fail(NULL, "%s: there is no %s", row, path);
    if (f) fclose(f);
}

/* ---- The table */

static const char *read_case(qc_case *c, const entry *e, const char *attributes) {
    *c = (qc_case){.kind = QC_ACCEPT, .op = e->op, .sources = e->sources, .attributes = attributes};
    return qc_case_parse(c);
}

static void try_case(const entry *e) {
    qc_case c, other;
    uint32_t dtype = qn_dtype_from_name(e->dtype);
    const char *why = read_case(&c, e, e->attributes);
    if (!why && e->kind == EQUAL) why = read_case(&other, e, e->others);
    if (why) qc_fail(NULL, "%s: %s \"%s\": %s", row, e->name, e->sources, why);
    for (int64_t v = 0; !why && v < c.n_variant; v++) {
        qc_draw d;
        qc_draw_make(&c, &d, v, QC_SHAPES_RANDOM, 1500, qc_mix(qc_set.seed, 77));
        if (!is_first(&c, &d)) continue;
        if (!choose(&c, &d, dtype)) {
            qc_fail(NULL, "%s: %s \"%s\" cannot be %s", row, e->name, e->sources, e->dtype);
            continue;
        }
        fast->pool = NULL;
        if (e->kind == ALONE) try_alone(&c, &d, reference, "reference"), try_alone(&c, &d, fast, "kernel");
        else if (e->kind == EQUAL) try_equal(e, &c, &d, &other);
        else if (e->kind == SLOPE) qc_context = reference, qc_grad_try(&c, &d);
        else try_near(e, &c, &d, dtype);
    }
}

static void try_entry(const entry *e) {
    if (e->kind == UNIT) try_unit(e);
    else if (e->kind == PATTERN) try_pattern(e);
    else if (qc_set.op < 0 || qc_set.op == e->op) try_case(e);
}

int qc_mode_tolerances(void) {
    qn_context *around = qc_context;
    int n = (int)(sizeof entries / sizeof *entries), rows = 0, own = 0;
    qn_context_options options = {.size = sizeof options, .flags = QN_CONTEXT_REFERENCE};
    if (qn_context_create(&options, &reference) != QN_OK || qn_context_create(NULL, &fast) != QN_OK) return 1;
    if (!(pool = qc_pool_start(3))) return 1;
    for (int i = 0; i < n; i++) {
        if (entries[i].kind != ROW) {
            own++;
            try_entry(&entries[i]);
            continue;
        }
        if (rows && !own) qc_fail(NULL, "%s: a row without evidence", row);
        if (qc_set.verbose) printf("%s\n", entries[i].name);
        row = entries[i].name;
        rows++;
        own = 0;
    }
    if (!own || rows != ROWS) qc_fail(NULL, "%d rows, of %d, or the last has no evidence", rows, ROWS);
    fast->pool = NULL;
    qn_pool_destroy(pool);
    qn_context_destroy(fast);
    qn_context_destroy(reference);
    qc_context = around;
    return qc_finish();
}
