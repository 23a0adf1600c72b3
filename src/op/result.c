/* The sentence of a result record. Kept out of the dispatcher, which writes numbers only. */
#include <stdio.h>

#include "base/decimal.h"
#include "base/reason.h"
#include "op/op.h"

static const char *const sentences[] = {
#define QN_REASON(name, sentence) sentence,
#include <quern/reasons.def>
#undef QN_REASON
};

typedef struct writer {
    char *text;
    size_t size;
    int length; /* what was wanted, however little fitted */
} writer;

static void put(writer *w, const char *text, int n) {
    for (int i = 0; i < n; i++, w->length++)
        if ((size_t)w->length + 1 < w->size) w->text[w->length] = text[i];
}

static void put_text(writer *w, const char *text) { put(w, text, (int)strlen(text)); }

static void put_number(writer *w, const char *form, int64_t value) {
    char number[64];
    if (strcmp(form, "dtype") == 0) {
        const qn_dtype_info *d = qn_dtype_describe((qn_dtype)value);
        if (d) {
            put_text(w, d->name);
            return;
        }
    }
    if (strcmp(form, "f") == 0) {
        double v;
        memcpy(&v, &value, sizeof v);
        put(w, number, qn_decimal_print(number, sizeof number, 'g', 9, v));
        return;
    }
    put(w, number, snprintf(number, sizeof number, "%lld", (long long)value));
}

/* Writes what stands between the braces: which number, and after a colon in what form. */
static void put_field(writer *w, const qn_result *r, const char *field, int n) {
    char name[32] = "", *colon;
    if (n >= (int)sizeof name) return;
    memcpy(name, field, (size_t)n);
    const char *form = "";
    if ((colon = strchr(name, ':'))) {
        *colon = 0;
        form = colon + 1;
    }
    int64_t value = strcmp(name, "dim") == 0 ? r->dim : strcmp(name, "expected") == 0 ? r->expected : r->actual;
    put_number(w, form, value);
}

static void put_argument(writer *w, const qn_result *r, const qn_op_info *info) {
    int known = info != NULL;
    if (r->arg_kind == QN_ARG_WORKSPACE) put_text(w, ": workspace");
    if (!known) return;
    if (r->arg_kind == QN_ARG_SOURCE && r->arg >= 0 && r->arg < info->n_src) {
        put_text(w, ": ");
        put_text(w, info->src[r->arg].name);
    } else if (r->arg_kind == QN_ARG_DEST && r->arg >= 0 && r->arg < info->n_dst) {
        put_text(w, ": destination ");
        put_text(w, info->dst[r->arg].name);
    } else if (r->arg_kind == QN_ARG_ATTR && r->arg >= 0 && r->arg < info->n_attr) {
        put_text(w, ": attribute ");
        put_text(w, info->attr[r->arg].name);
    }
}

int qn_result_format(const qn_result *r, char *text, size_t size) {
    writer w = {text, text ? size : 0, 0};
    if (!r) return 0;
    const qn_op_info *info = qn_op_describe(r->op);
    put_text(&w, info ? info->name : "dispatch");
    const char *sub = qn_subop_name(r->op, r->subop);
    if (sub) {
        put_text(&w, ".");
        put_text(&w, sub);
    }
    put_argument(&w, r, info);
    put_text(&w, ": ");
    const char *s = r->reason < QN_REASON_COUNT ? sentences[r->reason] : "an unknown reason";
    while (*s) {
        const char *close = *s == '{' ? strchr(s, '}') : NULL;
        if (close) {
            put_field(&w, r, s + 1, (int)(close - s - 1));
            s = close + 1;
        } else {
            put(&w, s++, 1);
        }
    }
    if (w.size) w.text[(size_t)w.length < w.size ? (size_t)w.length : w.size - 1] = 0;
    return w.length;
}

qn_status qn_result_to_error(const qn_result *r, qn_error *error) {
    if (!r) return qn_error_set(error, QN_ARGUMENT, "no result record was given");
    char text[sizeof error->text];
    qn_result_format(r, text, sizeof text);
    return qn_error_set(error, (qn_status)r->status, "%s", text);
}
