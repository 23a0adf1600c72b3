/* The numbers of a case: values of its sources, fields of its attribute record, and the callbacks that custom ops are tried
 * with. Values are drawn as doubles in an order that does not depend on the dtype, so the same draw can be rounded to any. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "tensor/convert.h"

/* ---- Values */

/* The golden fill of the spec, section 4.5. */
static double golden(int64_t i, int k) { return (double)((float)((37 * i + 11 * k) % 101) / 50.0f - 1.0f); }

static void fill_plain(uint32_t dtype, int64_t n, qc_rng *rng, double *out) {
    qn_dtype_kind kind = qn_dtype_describe((qn_dtype)dtype)->kind;
    for (int64_t i = 0; i < n; i++) {
        double u = qc_unit(rng);
        if (kind == QN_KIND_INT) out[i] = floor(u * 9) - 4;
        else if (kind == QN_KIND_UINT) out[i] = floor(u * 9);
        else if (kind == QN_KIND_BOOL) out[i] = floor(u * 2);
        else out[i] = 2 * u - 1;
    }
}

static const char *fill_range(qc_span text, const qc_draw *d, uint32_t dtype, int64_t n, qc_rng *rng, double *out) {
    qc_span rest = text, low, high;
    int bad = 0;
    if (!qc_split(&rest, ':', &low) || !qc_split(&rest, ':', &high)) return "a range needs lo:hi";
    qn_dtype_kind kind = qn_dtype_describe((qn_dtype)dtype)->kind;
    int whole = kind == QN_KIND_INT || kind == QN_KIND_UINT || kind == QN_KIND_BOOL;
    double a = (double)qc_eval(low, d, whole, &bad), b = (double)qc_eval(high, d, whole, &bad);
    if (bad) return "a bound is not an expression";
    for (int64_t i = 0; i < n; i++) {
        double u = qc_unit(rng), v = a + u * (b - a);
        out[i] = whole ? floor(v) : v;
    }
    return NULL;
}

static const char *fill_list(qc_span text, const qc_draw *d, int64_t n, double *out) {
    qc_span rest = text, part;
    int64_t k = 0;
    int bad = 0;
    for (; qc_split(&rest, ',', &part) && k < n; k++) out[k] = (double)qc_eval(part, d, 0, &bad);
    if (bad || (k == 0 && n)) return "a list has something else than numbers";
    for (int64_t i = k; i < n; i++) out[i] = out[i - k];
    return NULL;
}

static void fill_permutation(int64_t n, qc_rng *rng, double *out) {
    for (int64_t i = 0; i < n; i++) {
        int64_t k = qc_below(rng, i + 1);
        out[i] = out[k];
        out[k] = (double)i;
    }
}

/* W3, W3*0.1, |W3|, -|W3|, W0+3 (the addend is returned, for tril). */
static const char *fill_golden(qc_span text, int64_t n, double *out, double *addend) {
    const char *p = text.at, *end = p + text.n;
    double sign = 1, scale = 1;
    int bars = 0;
    if (p < end && *p == '-') sign = -1, p++;
    if (p < end && *p == '|') bars = 1, p++;
    if (p >= end || *p++ != 'W') return "not a golden fill";
    char *stop;
    int k = (int)strtol(p, &stop, 10);
    p = stop;
    if (bars && (p >= end || *p++ != '|')) return "a golden fill lacks its bar";
    if (p < end && *p == '*') scale = strtod(p + 1, &stop), p = stop;
    if (p < end && *p == '+') *addend = strtod(p + 1, &stop), p = stop;
    if (p != end) return "text after a golden fill";
    for (int64_t i = 0; i < n; i++) {
        double v = golden(i, k);
        out[i] = sign * scale * (bars ? fabs(v) : v);
    }
    return NULL;
}

static void softmax_rows(int64_t n, int64_t width, double *out) {
    for (int64_t at = 0; width && at < n; at += width) {
        double sum = 0;
        for (int64_t i = at; i < at + width; i++) sum += out[i] = exp(out[i]);
        for (int64_t i = at; i < at + width; i++) out[i] /= sum;
    }
}

static void lower_triangle(int64_t n, int64_t width, double addend, double *out) {
    for (int64_t i = 0; width && i < n; i++) {
        int64_t row = i / width % width, column = i % width;
        if (column > row) out[i] = 0;
        if (column == row) out[i] += addend;
    }
}

static int starts(qc_span s, const char *prefix) {
    return (size_t)s.n > strlen(prefix) && memcmp(s.at, prefix, strlen(prefix)) == 0;
}

static qc_span after(qc_span s, size_t n) { return (qc_span){s.at + n, s.n - (int)n}; }

const char *qc_values(const qc_case *c, const qc_draw *d, int slot, int rank, const int64_t *shape, double *out) {
    qc_span text = qc_trim(c->src[slot].values);
    uint32_t dtype = qc_item_dtype(c, d, slot);
    int64_t n = qc_count(rank, shape), width = rank ? shape[rank - 1] : 0;
    qc_rng rng = {qc_mix(d->seed, 100 + (uint64_t)slot)};
    double addend = 0;
    const char *why = NULL;
    if (text.n == 0) fill_plain(dtype, n, &rng, out);
    else if (text.at[0] == '=') why = fill_list(after(text, 1), d, n, out);
    else if (qc_is(text, "perm")) fill_permutation(n, &rng, out);
    else if (starts(text, "softmax:")) {
        why = fill_golden(after(text, 8), n, out, &addend);
        softmax_rows(n, width, out);
    } else if (starts(text, "tril:")) {
        why = fill_golden(after(text, 5), n, out, &addend);
        lower_triangle(n, width, addend, out);
    } else if (memchr(text.at, ':', (size_t)text.n)) why = fill_range(text, d, dtype, n, &rng, out);
    else why = fill_golden(text, n, out, &addend);
    return why;
}

/* ---- Callbacks */

static char *element(const qn_tensor *t, int64_t i) {
    int64_t at = t->offset;
    for (int k = t->rank - 1; k >= 0; k--) {
        at += i % t->shape[k] * t->stride[k];
        i /= t->shape[k];
    }
    return (char *)t->data + at;
}

static double value_at(const qn_tensor *t, int64_t i) {
    int64_t n = qn_tensor_count(t);
    return n > 0 ? qn_load_one((qn_dtype)t->dtype, element(t, i % n)) : 0;
}

static int is_block(const qn_tensor *t) { return qn_dtype_describe((qn_dtype)t->dtype)->block > 1; }

/* Blocks are not numbers one can add here; an empty block will do, so long as every byte is written. */
static void clear_blocks(const qn_tensor *dst) {
    const qn_dtype_info *info = qn_dtype_describe((qn_dtype)dst->dtype);
    int64_t rows = 1, n = dst->shape[dst->rank - 1] / info->block;
    for (int i = 0; i < dst->rank - 1; i++) rows *= dst->shape[i];
    for (int64_t r = 0; r < rows && n; r++) {
        qn_tensor row = *dst;
        row.shape[dst->rank - 1] = 1;
        memset(element(&row, r), 0, (size_t)(n * info->bytes));
    }
}

static qn_status combine(const qn_tensor *dst, int n_src, const qn_tensor *const *src, double scale, int task, int n_tasks) {
    if (is_block(dst)) {
        clear_blocks(dst);
        return QN_OK;
    }
    int64_t n = qn_tensor_count(dst);
    for (int64_t i = task; i < n; i += n_tasks) {
        double v = 0;
        for (int s = 0; s < n_src; s++)
            if (src[s] && !is_block(src[s])) v += scale * value_at(src[s], i);
        qn_store_one((qn_dtype)dst->dtype, element(dst, i), v);
    }
    return QN_OK;
}

static qn_status fn_double(void *user, const qn_tensor *dst, int n_src, const qn_tensor *const *src, int task, int n_tasks) {
    (void)user;
    return combine(dst, n_src < 1 ? n_src : 1, src, 2, task, n_tasks);
}

static qn_status fn_sum(void *user, const qn_tensor *dst, int n_src, const qn_tensor *const *src, int task, int n_tasks) {
    (void)user;
    return combine(dst, n_src, src, 1, task, n_tasks);
}

static qn_status fn_fail(void *user, const qn_tensor *dst, int n_src, const qn_tensor *const *src, int task, int n_tasks) {
    (void)user, (void)dst, (void)n_src, (void)src, (void)task, (void)n_tasks;
    return QN_IO;
}

static qn_status fn_double_back(void *user, const qn_tensor *dst, int wanted, int n_src, const qn_tensor *const *src,
                                const qn_tensor *grad) {
    (void)user, (void)n_src, (void)src;
    return combine(dst, 1, &grad, wanted == 0 ? 2 : 0, 0, 1);
}

static qn_status fn_sum_back(void *user, const qn_tensor *dst, int wanted, int n_src, const qn_tensor *const *src,
                             const qn_tensor *grad) {
    (void)user, (void)wanted, (void)n_src, (void)src;
    return combine(dst, 1, &grad, 1, 0, 1);
}

static qn_status fn_fail_back(void *user, const qn_tensor *dst, int wanted, int n_src, const qn_tensor *const *src,
                              const qn_tensor *grad) {
    (void)user, (void)dst, (void)wanted, (void)n_src, (void)src, (void)grad;
    return QN_IO;
}

/* Definitions of user_op: @twin gives the sum of its sources and twice their difference; @plain only the sum, without a gradient;
 * @broken fails when it runs; @many has too many outputs; @odd gives a dtype that is none. */

static qn_status twin_shape(void *user, int n_src, const qn_tensor *const *src, qn_tensor *dst) {
    (void)user;
    if (n_src < 2 || !src[0] || !src[1] || src[0]->dtype != src[1]->dtype || is_block(src[0])) return QN_INVALID;
    if (src[0]->rank != src[1]->rank || memcmp(src[0]->shape, src[1]->shape, (size_t)src[0]->rank * sizeof(int64_t)) != 0)
        return QN_INVALID;
    for (int i = 0; i < 2; i++) {
        dst[i].dtype = src[0]->dtype;
        dst[i].rank = src[0]->rank;
        memcpy(dst[i].shape, src[0]->shape, sizeof dst[i].shape);
    }
    return QN_OK;
}

static qn_status twin_run(void *user, int n_src, const qn_tensor *const *src, int n_dst, const qn_tensor *const *dst, int task,
                          int n_tasks) {
    (void)user, (void)n_src;
    int64_t n = qn_tensor_count(dst[0]);
    for (int64_t i = task; i < n; i += n_tasks) {
        double a = value_at(src[0], i), b = value_at(src[1], i);
        qn_store_one((qn_dtype)dst[0]->dtype, element(dst[0], i), a + b);
        if (n_dst > 1 && dst[1]) qn_store_one((qn_dtype)dst[1]->dtype, element(dst[1], i), 2 * (a - b));
    }
    return QN_OK;
}

static qn_status twin_back(void *user, int wanted, int n_src, const qn_tensor *const *src, int n_dst,
                           const qn_tensor *const *grad, const qn_tensor *dx) {
    (void)user, (void)n_src, (void)src, (void)n_dst;
    int64_t n = qn_tensor_count(dx);
    for (int64_t i = 0; i < n; i++) {
        double g = (grad[0] ? value_at(grad[0], i) : 0) + (grad[1] ? (wanted ? -2 : 2) * value_at(grad[1], i) : 0);
        qn_store_one((qn_dtype)dx->dtype, element(dx, i), g);
    }
    return QN_OK;
}

static qn_status odd_shape(void *user, int n_src, const qn_tensor *const *src, qn_tensor *dst) {
    (void)user, (void)n_src, (void)src;
    dst[0].dtype = 999;
    dst[0].rank = 1;
    return QN_OK;
}

static qn_status broken_run(void *user, int n_src, const qn_tensor *const *src, int n_dst, const qn_tensor *const *dst, int task,
                            int n_tasks) {
    (void)user, (void)n_src, (void)src, (void)n_dst, (void)dst, (void)task, (void)n_tasks;
    return QN_IO;
}

static qn_user_definition definition_of(qc_span text) {
    static const qn_user_op known[] = {{"@twin", 2, 2, 3, NULL, twin_shape, twin_run, twin_back},
                                       {"@plain", 2, 1, 1, NULL, twin_shape, twin_run, NULL},
                                       {"@broken", 2, 2, 1, NULL, twin_shape, broken_run, NULL},
                                       {"@many", 2, 5, 1, NULL, twin_shape, twin_run, NULL},
                                       {"@odd", 2, 1, 1, NULL, odd_shape, twin_run, NULL}};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (qc_is(text, known[i].name)) return &known[i];
    return NULL;
}

static const char *set_callback(qc_span text, void *field) {
    static const struct {
        const char *name;
        qn_custom_fn forward;
        qn_custom_grad_fn backward;
    } known[] = {{"@double", fn_double, NULL},           {"@sum", fn_sum, NULL},           {"@fail", fn_fail, NULL},
                 {"@double_back", NULL, fn_double_back}, {"@sum_back", NULL, fn_sum_back}, {"@fail_back", NULL, fn_fail_back}};
    qn_user_definition definition = definition_of(text);
    if (definition) return memcpy(field, &definition, sizeof definition), NULL;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (!qc_is(text, known[i].name)) continue;
        if (known[i].forward) memcpy(field, &known[i].forward, sizeof known[i].forward);
        else memcpy(field, &known[i].backward, sizeof known[i].backward);
        return NULL;
    }
    return qc_is(text, "0") ? NULL : "no such callback";
}

/* ---- Attributes */

static const char *set_dims(qc_span text, const qc_draw *d, qn_dims *dims) {
    qc_span rest = text, part;
    int bad = 0;
    if (text.n < 2 || text.at[0] != '(' || text.at[text.n - 1] != ')') return "a list needs ( )";
    rest = (qc_span){text.at + 1, text.n - 2};
    dims->rank = 0;
    while (qc_split(&rest, ',', &part)) {
        if (qc_is(part, "@")) {
            for (int i = 0; i < d->n_lead && dims->rank < QN_MAX_RANK; i++) dims->d[dims->rank++] = d->lead[i];
            continue;
        }
        if (dims->rank == QN_MAX_RANK) return "a list is too long";
        dims->d[dims->rank++] = (int64_t)qc_eval(part, d, 1, &bad);
    }
    return bad ? "a list has something else than expressions" : NULL;
}

static int dtype_value(qc_span text, const qc_case *c, const qc_draw *d, int32_t *out) {
    char name[16] = {0};
    if (text.n == 1 && isupper((unsigned char)text.at[0])) return *out = (int32_t)qc_variable_dtype(c, d, text.at[0]), *out != 0;
    if (text.n < (int)sizeof name) memcpy(name, text.at, (size_t)text.n);
    *out = (int32_t)qn_dtype_from_name(name);
    return *out != QN_DTYPE_NONE;
}

static const char *set_field(const qc_case *c, const qc_draw *d, int i, char *record) {
    const qn_attr_info *info = &qn_op_describe(c->op)->attr[c->field[i].attr];
    qc_span text = qc_field_choice(c, d, i);
    char *field = record + info->offset;
    int bad = 0;
    if (info->kind == QN_ATTR_KIND_dims) return set_dims(text, d, (qn_dims *)(void *)field);
    if (info->kind == QN_ATTR_KIND_words) return qc_words(c, d, text, (qn_code *)(void *)field);
    if (info->kind == QN_ATTR_KIND_fn) return set_callback(text, field);
    int32_t word;
    if (info->kind == QN_ATTR_KIND_dtype && dtype_value(text, c, d, &word)) return memcpy(field, &word, sizeof word), NULL;
    long double v = qc_eval(text, d, info->kind != QN_ATTR_KIND_f32, &bad);
    float f = (float)v;
    int64_t wide = info->kind == QN_ATTR_KIND_f32 ? 0 : (int64_t)v;
    word = (int32_t)wide;
    if (info->kind == QN_ATTR_KIND_f32) memcpy(field, &f, sizeof f);
    else if (info->kind == QN_ATTR_KIND_i64) memcpy(field, &wide, sizeof wide);
    else memcpy(field, &word, sizeof word);
    return bad ? "an attribute is not an expression" : NULL;
}

const char *qc_attributes(const qc_case *c, const qc_draw *d, void *record) {
    const qn_op_info *info = qn_op_describe(c->op);
    memcpy(record, info->attr_default, info->attr_bytes);
    for (int i = 0; i < c->n_field; i++) {
        const char *why = set_field(c, d, i, record);
        if (why) return why;
    }
    return NULL;
}
