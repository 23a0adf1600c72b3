/* `qn_check test`: every case of every op, in all its dtypes, alternatives and several shapes. What is accepted must write its
 * outputs whole and nothing else, twice the same; what is rejected must say why and write nothing. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/reason.h"
#include "check.h"

enum { ROOM = 1 << 22, MOST_ELEMENTS = 1500 };

static unsigned char first[ROOM], second[ROOM];

size_t qc_outputs(const qc_built *b, unsigned char *out, size_t room) {
    size_t n = 0;
    for (int i = 0; i < b->request.n_dst; i++)
        if (b->request.dst[i] && n <= room) n += qc_gather(b->request.dst[i], out + n, room - n);
    return n <= room ? n : room;
}

/* What holds whatever came of the request. */
void qc_fresh_outcome(const qc_built *b, const qc_outcome *o, qn_status want) {
    char text[300];
    qn_result_format(&o->result, text, sizeof text);
    if (o->touched) qc_fail(b, "status %s, but a byte outside the outputs changed", qn_status_name(o->status));
    else if (o->allocations) qc_fail(b, "%lld allocations during dispatch", (long long)o->allocations);
    else if (o->status != want) qc_fail(b, "status %s, expected %s (%s)", qn_status_name(o->status), qn_status_name(want), text);
    else if (o->result.status != (int32_t)o->status)
        qc_fail(b, "the record says status %d, the call %d", o->result.status, o->status);
    else qc_pass();
}

static void check_sentence(const qc_built *b, const qc_outcome *o) {
    char text[300] = "";
    int n = qn_result_format(&o->result, text, sizeof text);
    const qn_op_info *info = qn_op_describe(o->result.op);
    if (n <= 0 || !text[0]) qc_fail(b, "a reject without a sentence");
    else if (info && !strstr(text, info->name)) qc_fail(b, "the sentence does not name the op: %s", text);
    else if (o->result.reason == QN_REASON_NONE || o->result.reason >= QN_REASON_COUNT)
        qc_fail(b, "a reject without a reason: %s", text);
    else qc_pass();
}

/* A draw with empty extents: either it runs, or it is turned down cleanly. */
static void test_turned_down(qc_built *b) {
    qc_outcome o;
    qc_run(b, &o);
    if (o.status == QN_OK) {
        qc_fail(b, "inference turned it down, dispatch took it");
        return;
    }
    qc_fresh_outcome(b, &o, o.status);
    check_sentence(b, &o);
}

/* What a slow machine tries once and not in every layout. */
static int is_large(const qc_built *b) {
    enum { MOST_SMALL = 4096 };
    int64_t elements = 0;
    for (int i = 0; i < b->request.n_src; i++)
        if (b->request.src[i]) elements += qn_tensor_count(b->request.src[i]);
    return elements > MOST_SMALL;
}

static void test_accept(const qc_case *c, int64_t variant, qc_shapes shapes, uint64_t seed) {
    qc_draw d;
    qc_built b;
    qc_outcome o, asked;
    qc_draw_make(c, &d, variant, shapes, MOST_ELEMENTS, seed);
    qc_build(&b, c, &d, &(qc_options){.poison = 0x55});
    if (b.trouble) {
        qc_fail(&b, "cannot build: %s", b.trouble);
        return;
    }
    char text[300] = "";
    qn_result_format(&b.result, text, sizeof text);
    if (b.inferred != QN_OK && shapes == QC_SHAPES_EMPTY) test_turned_down(&b);
    else if (b.inferred != QN_OK) qc_fail(&b, "rejected: %s", text);
    if (b.inferred != QN_OK) return;
    qc_ask(&b, &asked);
    qc_run(&b, &o);
    if (asked.status != o.status)
        qc_fail(&b, "can_dispatch says %s, dispatch %s", qn_status_name(asked.status), qn_status_name(o.status));
    if (o.status != QN_OK && shapes == QC_SHAPES_EMPTY) {
        qc_fresh_outcome(&b, &o, o.status);
        check_sentence(&b, &o);
        return;
    }
    qc_fresh_outcome(&b, &o, QN_OK);
    if (o.status != QN_OK) return;
    size_t n = qc_outputs(&b, first, ROOM);
    qc_build(&b, c, &d, &(qc_options){.poison = 0xff});
    qc_run(&b, &o);
    qc_fresh_outcome(&b, &o, QN_OK);
    if (qc_outputs(&b, second, ROOM) != n || memcmp(first, second, n) != 0)
        qc_fail(&b, "two runs over different old contents give different bits");
    else qc_pass();
    qc_test_inference(&b);
    if (qc_set.small && is_large(&b)) return;
    qc_test_fewer_outputs(&b, first);
    qc_test_layouts(&b, first, n);
    qc_test_in_place(&b, first, n);
    if (shapes != QC_SHAPES_EMPTY) qc_test_accuracy(&b);
}

/* At most `most` of the variants, spread evenly. */
static int64_t step_of(int64_t n_variant, int64_t most) { return n_variant <= most ? 1 : (n_variant + most - 1) / most; }

static void test_accept_row(const qc_case *c, uint64_t seed) {
    int drawn = c->letters || c->lead_room >= 0;
    int64_t step = step_of(c->n_variant, qc_set.small ? 2 : qc_set.quick ? 8 : 160);
    for (int64_t v = 0; v < c->n_variant; v += step) {
        test_accept(c, v, QC_SHAPES_RANDOM, qc_mix(seed, 10 * (uint64_t)v));
        if (!drawn) continue;
        test_accept(c, v, QC_SHAPES_ODD, qc_mix(seed, 10 * (uint64_t)v + 1));
        test_accept(c, v, QC_SHAPES_ONES, qc_mix(seed, 10 * (uint64_t)v + 2));
        test_accept(c, v, QC_SHAPES_EMPTY, qc_mix(seed, 10 * (uint64_t)v + 3));
        if (c->lead_room >= 0) test_accept(c, v, QC_SHAPES_DEEP, qc_mix(seed, 10 * (uint64_t)v + 4));
        for (int k = 5; !qc_set.quick && !qc_set.small && k < 8; k++)
            test_accept(c, v, QC_SHAPES_RANDOM, qc_mix(seed, 10 * (uint64_t)v + (uint64_t)k));
    }
}

/* ---- Rejects that have rows of their own */

static int arg_agrees(const qn_result *r, const char *want) {
    if (strcmp(qc_arg_name(r), want) == 0) return 1;
    if (r->arg_kind == QN_ARG_DEST && strcmp(want, "dst") == 0) return 1;
    return 0;
}

static void test_reject(const qc_case *c, int64_t variant, uint64_t seed) {
    qc_draw d;
    qc_built b;
    qc_outcome o, asked;
    qc_draw_make(c, &d, variant, QC_SHAPES_RANDOM, MOST_ELEMENTS, seed);
    qc_build(&b, c, &d, &(qc_options){.poison = 0x55});
    if (b.trouble) {
        qc_fail(&b, "cannot build: %s", b.trouble);
        return;
    }
    qc_ask(&b, &asked);
    qc_run(&b, &o);
    char text[300];
    qn_result_format(&o.result, text, sizeof text);
    int user = o.status == QN_USER && c->reason == QN_REASON_CALLBACK;
    if (o.status == QN_OK) qc_fail(&b, "accepted, expected %s at %s", qn_reason_name((qn_reason)c->reason), c->arg);
    else if (o.result.reason != c->reason || !arg_agrees(&o.result, c->arg))
        qc_fail(&b, "rejected with %s at \"%s\" (%s), expected %s at \"%s\"", qn_reason_name((qn_reason)o.result.reason),
                qc_arg_name(&o.result), text, qn_reason_name((qn_reason)c->reason), c->arg);
    else if (!user && (asked.status != o.status || asked.result.reason != o.result.reason)) qc_fail(&b, "can_dispatch disagrees");
    else qc_pass();
    if (o.status == QN_OK) return;
    if (!user && o.status != QN_INVALID && o.status != QN_UNSUPPORTED)
        qc_fail(&b, "status %s for a malformed request", qn_status_name(o.status));
    qc_fresh_outcome(&b, &o, o.status);
    check_sentence(&b, &o);
}

/* ---- Golden values of the spec, section 4.5 */

static void test_gold(const qc_case *c) {
    qc_draw d;
    qc_built b;
    qc_outcome o;
    qc_draw_make(c, &d, 0, QC_SHAPES_RANDOM, MOST_ELEMENTS, 1);
    qc_build(&b, c, &d, &(qc_options){.poison = 0x55});
    if (b.trouble || b.inferred != QN_OK) {
        char text[300] = "";
        qn_result_format(&b.result, text, sizeof text);
        qc_fail(&b, "a golden row cannot be built: %s", b.trouble ? b.trouble : text);
        return;
    }
    qc_run(&b, &o);
    qc_fresh_outcome(&b, &o, QN_OK);
    if (o.status != QN_OK) return;
    int64_t n = qn_tensor_count(b.request.dst[0]);
    double *y = malloc((size_t)(n + 1) * sizeof *y), total = 0, size = 0;
    if (!y) return;
    qc_doubles(b.request.dst[0], y);
    for (int64_t i = 0; i < n; i++) total += y[i], size += fabs(y[i]);
    for (int i = 0; i < 4 && i < n; i++)
        if (!(fabs(y[i] - c->gold[i]) <= 1e-5 * fabs(c->gold[i]) + 1e-9))
            qc_fail(&b, "y[%d] is %.9g, golden %.9g", i, y[i], c->gold[i]);
    if (!(fabs(total - c->gold[4]) <= 1e-5 * fabs(c->gold[4]) + 1e-6 * size))
        qc_fail(&b, "the sum is %.9g, golden %.9g", total, c->gold[4]);
    else qc_pass();
    free(y);
}

/* What has bodies runs in a plan only, and that is all a request can be told; tests/unit/test_control.c tries the rest. */
static void test_plan_only(int op) {
    const qc_case none = {.op = op, .sources = "", .attributes = ""};
    qc_built b = {.c = &none};
    qn_request q = {.size = sizeof q, .version = QN_REQUEST_VERSION, .op = (uint16_t)op};
    qn_result r;
    q.n_src = (uint16_t)qn_op_describe(op)->n_src_min;
    qn_context *context = NULL;
    if (qn_context_create(NULL, &context) != QN_OK || qn_dispatch(context, &q, &r) != QN_UNSUPPORTED ||
        r.reason != QN_REASON_PLAN_ONLY)
        qc_fail(&b, "it has bodies and a request of its own was not refused for that");
    else qc_pass();
    qn_context_destroy(context);
    qc_report_op(op);
}

static void test_op(int op) {
    int accepts = 0, rejects = 0;
    for (int i = 0; i < qc_cases_count(); i++) {
        const qc_case *c = qc_cases_at(i);
        if (c->op != op) continue;
        uint64_t seed = qc_case_seed(c);
        if (c->kind == QC_ACCEPT) {
            if (!qc_set.quick || accepts < 3) rejects += qc_test_rejects(c);
            test_accept_row(c, seed);
            accepts++;
        } else if (c->kind == QC_REJECT) {
            int64_t step = step_of(c->n_variant, qc_set.quick ? 2 : 16);
            for (int64_t v = 0; v < c->n_variant; v += step) test_reject(c, v, qc_mix(seed, (uint64_t)v));
            rejects++;
        } else test_gold(c);
    }
    if (!accepts || !rejects) {
        const qc_case none = {.op = op, .sources = "", .attributes = ""};
        qc_built b = {.c = &none, .trouble = "none"};
        qc_fail(&b, "the table has this op but tests/cases.def has no %s case for it", accepts ? "rejecting" : "accepting");
    }
    qc_report_op(op);
}

int qc_mode_test(void) {
    for (int op = 0; op < QN_OP_COUNT; op++) {
        if (qc_set.op >= 0 && qc_set.op != op) continue;
        if (qc_set.verbose) printf("%s\n", qn_op_describe(op)->name);
        if (qn_op_describe(op)->n_body) test_plan_only(op);
        else test_op(op);
    }
    return qc_finish();
}
