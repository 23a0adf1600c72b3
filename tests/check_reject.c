/* Rejects that every op owes, derived from the table: start from a request that is accepted, spoil one thing, and see that it
 * is turned down for that reason, that the argument is named, that no byte changed, and that the good request still runs.
 * A fault is a function that spoils the request in its i-th way; the list at the end names them all. */
#include <stdio.h>
#include <string.h>

#include "base/reason.h"
#include "check.h"
#include "check_reject.h"

static void fresh(qc_built *b, const qc_case *c, const qc_draw *d) { qc_build(b, c, d, &(qc_options){.poison = 0x55}); }

void qc_want(qc_fault *f, qn_status status, int kind, int arg, const char *what) {
    f->status = status;
    f->arg_kind = kind;
    f->arg = arg;
    f->what = what;
    f->n_reason = 0;
}

void qc_because(qc_fault *f, qn_reason reason) {
    if (f->n_reason < QC_MAX_BECAUSE) f->reason[f->n_reason++] = (uint16_t)reason;
}

static int reason_agrees(const qc_fault *f, int reason) {
    for (int i = 0; i < f->n_reason; i++)
        if (f->reason[i] == reason) return 1;
    return 0;
}

static void check_reject(qc_built *b, const qc_fault *f) {
    qc_outcome o, asked;
    char text[300] = "", number[16];
    qc_ask(b, &asked);
    qc_run(b, &o);
    qn_result_format(&o.result, text, sizeof text);
    const qn_op_info *info = qn_op_describe(b->request.op);
    snprintf(number, sizeof number, "%d", b->request.op);
    if (o.touched || asked.touched) qc_fail(b, "%s: a byte changed", f->what);
    else if (o.allocations) qc_fail(b, "%s: it allocated", f->what);
    else if (o.status != f->status)
        qc_fail(b, "%s: status %s, expected %s (%s)", f->what, qn_status_name(o.status), qn_status_name(f->status), text);
    else if (!reason_agrees(f, o.result.reason))
        qc_fail(b, "%s: rejected for %s, expected %s (%s)", f->what, qn_reason_name((qn_reason)o.result.reason),
                qn_reason_name((qn_reason)f->reason[0]), text);
    else if (o.result.arg_kind != f->arg_kind || (f->arg >= 0 && o.result.arg != f->arg))
        qc_fail(b, "%s: blames \"%s\" (%s)", f->what, qc_arg_name(&o.result), text);
    else if (o.result.op != b->request.op) qc_fail(b, "%s: the record names op %d", f->what, o.result.op);
    else if (!text[0] || !strstr(text, info ? info->name : number))
        qc_fail(b, "%s: the sentence does not name the op: %s", f->what, text);
    else if (asked.status != o.status || asked.result.reason != o.result.reason)
        qc_fail(b, "%s: can_dispatch disagrees", f->what);
    else qc_pass();
}

/* ---- The record itself */

static int fault_record(qc_built *b, int i, qc_fault *f) {
    const qn_op_info *info = qn_op_describe(b->c->op);
    qn_request *q = &b->request;
    int subops = qn_subop_count(b->c->op);
    static const struct {
        qn_status status;
        qn_reason reason;
        const char *what;
    } ways[] = {{QN_UNEXPECTED, QN_REASON_RECORD_SIZE, "record size"},
                {QN_UNEXPECTED, QN_REASON_RECORD_SIZE, "record size 0"},
                {QN_UNEXPECTED, QN_REASON_RECORD_VERSION, "record version"},
                {QN_INVALID, QN_REASON_RECORD_RESERVED, "reserved field"},
                {QN_UNEXPECTED, QN_REASON_UNKNOWN_OP, "unknown op"},
                {QN_UNEXPECTED, QN_REASON_UNKNOWN_OP, "unknown op 65535"},
                {QN_UNEXPECTED, QN_REASON_UNKNOWN_SUBOP, "unknown sub-op"},
                {QN_INVALID, QN_REASON_SOURCE_COUNT_LOW, "too few sources"},
                {QN_INVALID, QN_REASON_SOURCE_COUNT_HIGH, "too many sources"},
                {QN_INVALID, QN_REASON_SOURCE_COUNT_HIGH, "65535 sources"},
                {QN_INVALID, QN_REASON_DEST_COUNT, "no destination"},
                {QN_INVALID, QN_REASON_DEST_COUNT, "too many destinations"},
                {QN_INVALID, QN_REASON_DEST_COUNT, "65535 destinations"}};
    if (i >= (int)(sizeof ways / sizeof ways[0])) return QC_FAULT_END;
    qc_want(f, ways[i].status, QN_ARG_REQUEST, -1, ways[i].what);
    qc_because(f, ways[i].reason);
    switch (i) {
    case 0: q->size++; break;
    case 1: q->size = 0; break;
    case 2: q->version++; break;
    case 3: q->reserved = 1; break;
    case 4: q->op = QN_OP_COUNT; break;
    case 5: q->op = 65535; break;
    case 6: q->subop = (uint16_t)(subops ? subops : 1); break;
    case 7: q->n_src = (uint16_t)(info->n_src_min - 1); return info->n_src_min > 0;
    case 8: q->n_src = (uint16_t)(info->n_src + 1); break;
    case 9: q->n_src = 65535; break;
    case 10: q->n_dst = 0; break;
    case 11: q->n_dst = (uint16_t)(info->n_dst + 1); break;
    default: q->n_dst = 65535; break;
    }
    return QC_FAULT_TRY;
}

/* ---- Attributes */

/* The record of the request, made its own when the case takes the defaults. */
static char *attributes(qc_built *b) {
    b->request.attr = b->attr;
    return b->attr;
}

static int fault_attr_record(qc_built *b, int i, qc_fault *f) {
    const qn_op_info *info = qn_op_describe(b->c->op);
    uint32_t *head = (uint32_t *)(void *)attributes(b);
    if (i == 0) {
        qc_want(f, QN_UNEXPECTED, QN_ARG_REQUEST, -1, "attribute record size");
        qc_because(f, QN_REASON_ATTR_SIZE);
        head[0]++;
        return QC_FAULT_TRY;
    }
    if (i == 1) {
        qc_want(f, QN_UNEXPECTED, QN_ARG_REQUEST, -1, "attribute record version");
        qc_because(f, QN_REASON_ATTR_VERSION);
        head[1]++;
        return QC_FAULT_TRY;
    }
    if (i > 2) return QC_FAULT_END;
    b->request.attr = NULL;
    for (int k = 0; k < info->n_attr; k++) {
        if (!info->attr[k].required) continue;
        qc_want(f, QN_INVALID, QN_ARG_ATTR, k, "required attribute not given");
        qc_because(f, QN_REASON_ATTR_MISSING);
        return QC_FAULT_TRY;
    }
    return QC_FAULT_SKIP;
}

static int spoil_float(const qn_attr_info *a, int way, float *value, qc_fault *f) {
    switch (way) {
    case 0: *value = NAN; return qc_because(f, QN_REASON_ATTR_NAN), 1;
    case 1: *value = INFINITY; return qc_because(f, QN_REASON_ATTR_INFINITE), !isinf(a->high);
    case 2: *value = -INFINITY; return qc_because(f, QN_REASON_ATTR_INFINITE), !isinf(a->low);
    case 3:
        *value = nextafterf((float)a->low, -INFINITY);
        return qc_because(f, QN_REASON_ATTR_LOW), !isinf(*value) && (double)*value < a->low;
    default:
        *value = nextafterf((float)a->high, INFINITY);
        return qc_because(f, QN_REASON_ATTR_HIGH), !isinf(*value) && (double)*value > a->high;
    }
}

static int spoil_integer(const qn_attr_info *a, int way, char *field, qc_fault *f) {
    int wide = a->kind == QN_ATTR_KIND_i64;
    double value = way == 0 ? a->low - 1 : a->high + 1;
    if (a->kind == QN_ATTR_KIND_dtype) {
        value = way == 0 ? -1 : QN_DTYPE_COUNT;
        qc_because(f, QN_REASON_UNKNOWN_DTYPE);
    }
    qc_because(f, way == 0 ? QN_REASON_ATTR_LOW : QN_REASON_ATTR_HIGH);
    if (way > 1 || (!wide && (value < INT32_MIN || value > INT32_MAX))) return 0;
    int64_t big = wide && way == 1 ? INT64_MAX : (int64_t)value;
    int32_t small = (int32_t)(wide ? 0 : value);
    if (wide) memcpy(field, &big, sizeof big);
    else memcpy(field, &small, sizeof small);
    return 1;
}

static int spoil_dims(const qn_attr_info *a, int way, qn_dims *d, qc_fault *f) {
    if (way < 2) return d->rank = way ? QN_MAX_RANK + 1 : -1, qc_because(f, QN_REASON_ATTR_RANK), 1;
    if (way == 2) return d->reserved = 1, qc_because(f, QN_REASON_RECORD_RESERVED), 1;
    d->rank = 0;
    qc_because(f, QN_REASON_ATTR_MISSING);
    return way == 3 && a->required;
}

static int spoil_words(int way, qn_code *w, qc_fault *f) {
    if (way < 2) return w->count = way ? QN_MAX_WORDS + 1 : -1, qc_because(f, QN_REASON_ATTR_RANK), 1;
    if (way == 2) return w->reserved = 1, qc_because(f, QN_REASON_RECORD_RESERVED), 1;
    if (way == 3) return w->w[QN_MAX_WORDS - 1] = 7, qc_because(f, QN_REASON_RECORD_RESERVED), w->count < QN_MAX_WORDS;
    return w->count = 0, qc_because(f, QN_REASON_ATTR_MISSING), 1;
}

static int fault_attribute(qc_built *b, int i, qc_fault *f) {
    enum { WAYS = 5 };
    const qn_op_info *info = qn_op_describe(b->c->op);
    if (i / WAYS >= info->n_attr) return QC_FAULT_END;
    const qn_attr_info *a = &info->attr[i / WAYS];
    char *field = attributes(b) + a->offset;
    qc_want(f, QN_INVALID, QN_ARG_ATTR, i / WAYS, a->name);
    if (a->kind == QN_ATTR_KIND_dims) return spoil_dims(a, i % WAYS, (qn_dims *)(void *)field, f);
    if (a->kind == QN_ATTR_KIND_words) return spoil_words(i % WAYS, (qn_code *)(void *)field, f);
    if (a->kind == QN_ATTR_KIND_f32) return spoil_float(a, i % WAYS, (float *)(void *)field, f);
    if (a->kind != QN_ATTR_KIND_fn) return spoil_integer(a, i % WAYS, field, f);
    if (i % WAYS || strcmp(a->name, i / WAYS == 0 ? a->name : "fn") != 0) return QC_FAULT_SKIP; /* the first callback is a must */
    memset(field, 0, a->bytes);
    qc_because(f, QN_REASON_CALLBACK_MISSING);
    return QC_FAULT_TRY;
}

/* ---- Indices: one below, the limit itself, and the largest there is */

static int fault_index(qc_built *b, int i, qc_fault *f) {
    const qn_op_info *info = qn_op_describe(b->c->op);
    int slot = i / 2;
    if (slot >= info->n_src) return QC_FAULT_END;
    const qn_tensor *t = b->request.src[slot];
    if (!(info->src[slot].flags & QN_SLOT_INDEX) || !t || qn_tensor_count(t) < 1) return QC_FAULT_SKIP;
    char *at = (char *)t->data + t->offset;
    int64_t wide = i % 2 ? INT64_MAX : -1;
    int32_t word = i % 2 ? INT32_MAX : -1;
    if (t->dtype == QN_DTYPE_I64) memcpy(at, &wide, sizeof wide);
    else memcpy(at, &word, sizeof word);
    qc_want(f, QN_INVALID, QN_ARG_SOURCE, slot, i % 2 ? "largest index" : "index -1");
    qc_because(f, QN_REASON_INDEX_RANGE);
    return QC_FAULT_TRY;
}

static int set_index(qc_built *b, int slot, int64_t value) {
    const qn_tensor *t = b->request.src[slot];
    char *at = (char *)t->data + t->offset;
    int32_t word = (int32_t)value;
    if (t->dtype == QN_DTYPE_I64) memcpy(at, &value, sizeof value);
    else memcpy(at, &word, sizeof word);
    qc_outcome o;
    qc_run(b, &o);
    return o.status == QN_OK;
}

/* The reject says where the limit is: the limit is out, one below it is in. */
static void check_limits(const qc_case *c, const qc_draw *d) {
    const qn_op_info *info = qn_op_describe(c->op);
    for (int slot = 0; slot < info->n_src; slot++) {
        qc_built b;
        qc_fault f;
        qc_outcome o;
        fresh(&b, c, d);
        if (fault_index(&b, 2 * slot + 1, &f) != QC_FAULT_TRY) continue;
        qc_run(&b, &o);
        int64_t limit = o.result.expected;
        if (o.status == QN_OK || limit < 1 || limit > INT32_MAX) continue;
        fresh(&b, c, d);
        if (set_index(&b, slot, limit))
            qc_fail(&b, "index %lld was taken though the limit is %lld", (long long)limit, (long long)limit);
        else if (!set_index(&b, slot, limit - 1)) qc_fail(&b, "the largest index, %lld, was not taken", (long long)limit - 1);
        else qc_pass();
    }
}

/* ---- Workspace */

static int fault_workspace(qc_built *b, int i, qc_fault *f) {
    qn_request *q = &b->request;
    if (i > 4) return QC_FAULT_END;
    if (!q->workspace) return QC_FAULT_SKIP;
    qc_want(f, QN_WORKSPACE, QN_ARG_WORKSPACE, -1, "workspace");
    if (i == 0) return q->workspace = NULL, qc_because(f, QN_REASON_MISSING), QC_FAULT_TRY;
    if (i == 1) return q->workspace_size--, qc_because(f, QN_REASON_WORKSPACE_SMALL), QC_FAULT_TRY;
    if (i == 2) {
        char *roomy = qc_alloc(q->workspace_size + QN_WORKSPACE_ALIGN, QN_WORKSPACE_ALIGN);
        if (!roomy) return QC_FAULT_SKIP;
        q->workspace = roomy + 8;
        return qc_because(f, QN_REASON_WORKSPACE_ALIGN), QC_FAULT_TRY;
    }
    if (i == 3) return q->workspace_size = SIZE_MAX, qc_because(f, QN_REASON_BUFFER_END), QC_FAULT_TRY;
    if (!q->dst[0] || qn_tensor_count(q->dst[0]) < 1 || q->dst[0]->size < q->workspace_size) return QC_FAULT_SKIP;
    q->workspace = q->dst[0]->data;
    qc_want(f, QN_INVALID, QN_ARG_DEST, 0, "workspace over a destination");
    return qc_because(f, QN_REASON_WORKSPACE_ALIAS), QC_FAULT_TRY;
}

/* ---- All of them */

static const qc_fault_fn faults[] = {fault_record,       fault_attr_record, fault_attribute,       fault_index,
                                     fault_workspace,    qc_fault_source,   qc_fault_source_dtype, qc_fault_dest,
                                     qc_fault_dest_form, qc_fault_alias,    qc_fault_parameter};

static void check_ready(const qc_case *c, const qc_draw *d) {
    qc_built b;
    qc_outcome o;
    fresh(&b, c, d);
    qc_run(&b, &o);
    if (o.status != QN_OK) qc_fail(&b, "after the rejects the good request no longer runs");
    else qc_pass();
}

/* A draw that runs and has something in every tensor. */
static int good_draw(const qc_case *c, qc_draw *d, int64_t variant) {
    static const qc_shapes shapes[] = {QC_SHAPES_TWO, QC_SHAPES_RANDOM, QC_SHAPES_ONES};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        qc_built b;
        qc_outcome o;
        qc_draw_make(c, d, variant, shapes[i], 300, qc_mix(qc_set.seed, 77));
        fresh(&b, c, d);
        if (b.trouble || b.inferred != QN_OK) continue;
        qc_run(&b, &o);
        if (o.status == QN_OK) return 1;
    }
    return 0;
}

int qc_test_rejects(const qc_case *c) {
    int tried = 0;
    int64_t variants = c->n_variant < 2 || qc_set.quick ? 1 : 2;
    for (int64_t v = 0; v < variants; v++) {
        qc_draw d;
        if (!good_draw(c, &d, v * (c->n_variant - 1))) continue;
        for (size_t k = 0; k < sizeof faults / sizeof faults[0]; k++)
            for (int i = 0;; i++) {
                qc_built b;
                qc_fault f = {0};
                fresh(&b, c, &d);
                int way = faults[k](&b, i, &f);
                if (way == QC_FAULT_END) break;
                if (way != QC_FAULT_TRY) continue;
                check_reject(&b, &f);
                tried++;
            }
        check_limits(c, &d);
        check_ready(c, &d);
    }
    return tried;
}
