/* Filters that turn values into texts and numbers, and the two ways of Python to put values into a text. */
#include <math.h>
#include <stdio.h>

#include "base/decimal.h"
#include "text/json_dom.h"
#include "text/template.h"

static qn_text text_of(tpl *t, const tpl_args *args, size_t i) { return qn_text_tpl_string(t, args->at[i]); }

tpl_value qn_text_tpl_filter_string(tpl *t, const tpl_args *args) { return tpl_text(text_of(t, args, 0)); }

tpl_value qn_text_tpl_filter_from_json(tpl *t, const tpl_args *args) { return qn_text_tpl_from_json(t, text_of(t, args, 0)); }

tpl_value qn_text_tpl_filter_default(tpl *t, const tpl_args *args) {
    int also_false = tpl_given(args, 2) && qn_text_tpl_truth(args->at[2]);
    (void)t;
    if (args->at[0].kind == TPL_UNDEFINED || (also_false && !qn_text_tpl_truth(args->at[0])))
        return args->n > 1 ? args->at[1] : tpl_text((qn_text){"", 0});
    return args->at[0];
}

tpl_value qn_text_tpl_filter_escape(tpl *t, const tpl_args *args) {
    qn_text text = text_of(t, args, 0);
    tpl_buffer b = {0};
    for (size_t i = 0; i < text.length && !t->failed; i++) {
        const char *as = text.at[i] == '&'    ? "&amp;"
                         : text.at[i] == '<'  ? "&lt;"
                         : text.at[i] == '>'  ? "&gt;"
                         : text.at[i] == '"'  ? "&#34;"
                         : text.at[i] == '\'' ? "&#39;"
                                              : NULL;
        if (as) qn_text_tpl_append(t, &b, as, strlen(as));
        else qn_text_tpl_append(t, &b, text.at + i, 1);
    }
    return tpl_text(tpl_taken(&b));
}

/* ---- Numbers */

tpl_value qn_text_tpl_filter_abs(tpl *t, const tpl_args *args) {
    tpl_value v = args->at[0];
    if (v.kind == TPL_FLOAT) return (tpl_value){.kind = TPL_FLOAT, .as.number = fabs(v.as.number)};
    if (!qn_text_tpl_is_number(v) || v.as.integer == INT64_MIN) return qn_text_tpl_fail(t, "abs of %s", qn_text_tpl_kind_name(v));
    return tpl_int(v.as.integer < 0 ? -v.as.integer : v.as.integer);
}

/* A number in a text, white space around it allowed; 0: none. */
static int read_number(qn_text text, double *number, int *whole) {
    size_t from = 0, to = text.length, i, digits = 0;
    while (from < to && (text.at[from] == ' ' || (text.at[from] >= '\t' && text.at[from] <= '\r'))) from++;
    while (to > from && (text.at[to - 1] == ' ' || (text.at[to - 1] >= '\t' && text.at[to - 1] <= '\r'))) to--;
    i = from + (from < to && (text.at[from] == '-' || text.at[from] == '+'));
    if (to - from > 300) return 0;
    *whole = 1;
    for (; i < to && text.at[i] >= '0' && text.at[i] <= '9'; i++) digits++;
    if (i < to && text.at[i] == '.') {
        *whole = 0;
        for (i++; i < to && text.at[i] >= '0' && text.at[i] <= '9'; i++) digits++;
    }
    if (digits && i < to && (text.at[i] | 0x20) == 'e') {
        size_t e = i + 1 + (i + 1 < to && (text.at[i + 1] == '-' || text.at[i + 1] == '+'));
        *whole = 0;
        for (i = e; i < to && text.at[i] >= '0' && text.at[i] <= '9';) i++;
        if (i == e) return 0;
    }
    if (!digits || i != to) return 0;
    *number = qn_decimal_read(text.at + from, to - from);
    return 1;
}

static tpl_value to_int(tpl *t, double number, tpl_value otherwise) {
    if (number - number != 0) return otherwise; /* no number, or an infinite one */
    return number > -9e18 && number < 9e18 ? tpl_int((int64_t)number) : qn_text_tpl_fail(t, "an integer beyond 64 bits");
}

/* Digits of an integer, with a sign and white space around it, to the last of them. */
static tpl_value read_integer(tpl *t, qn_text text) {
    int64_t value = 0;
    int negative = memchr(text.at, '-', text.length) != NULL, over = 0;
    for (size_t i = 0; i < text.length; i++) {
        if (text.at[i] < '0' || text.at[i] > '9') continue;
        int64_t digit = negative ? '0' - text.at[i] : text.at[i] - '0';
        over |= __builtin_mul_overflow(value, 10, &value) || __builtin_add_overflow(value, digit, &value);
    }
    return over ? qn_text_tpl_fail(t, "an integer beyond 64 bits") : tpl_int(value);
}

tpl_value qn_text_tpl_filter_int(tpl *t, const tpl_args *args) {
    tpl_value v = args->at[0], otherwise = tpl_given(args, 1) ? args->at[1] : tpl_int(0);
    double number;
    int whole;
    if (tpl_given(args, 2)) return qn_text_tpl_fail(t, "int with another base than 10 is not known");
    if (v.kind == TPL_INT || v.kind == TPL_BOOL) return tpl_int(v.as.integer);
    if (v.kind == TPL_FLOAT) return to_int(t, v.as.number, otherwise);
    if (v.kind != TPL_STRING || !read_number(v.as.text, &number, &whole)) return otherwise;
    return whole ? read_integer(t, v.as.text) : to_int(t, number, otherwise);
}

tpl_value qn_text_tpl_filter_float(tpl *t, const tpl_args *args) {
    tpl_value v = args->at[0];
    double number;
    int whole;
    (void)t;
    if (qn_text_tpl_is_number(v)) return (tpl_value){.kind = TPL_FLOAT, .as.number = qn_text_tpl_number(v)};
    if (v.kind == TPL_STRING && read_number(v.as.text, &number, &whole))
        return (tpl_value){.kind = TPL_FLOAT, .as.number = number};
    return tpl_given(args, 1) ? args->at[1] : (tpl_value){.kind = TPL_FLOAT, .as.number = 0};
}

/* Integers stay integers, and half of ten goes to the even ten. */
static tpl_value round_integer(tpl *t, int64_t value, int precision) {
    int64_t tens = 1;
    for (; precision < 0; precision++) tens *= 10;
    int64_t n = value / tens, twice = 2 * (value % tens);
    if (twice > tens || (twice == tens && n % 2)) n++;
    if (-twice > tens || (-twice == tens && n % 2)) n--;
    return __builtin_mul_overflow(n, tens, &n) ? qn_text_tpl_fail(t, "an integer beyond 64 bits") : tpl_int(n);
}

/* To the nearest decimal of the exact number, as Python does: 2.675, which is a little less than that, becomes 2.67. */
static tpl_value round_nearest(tpl *t, tpl_value v, int precision) {
    char digits[400];
    double tens = pow(10, -precision), x = qn_text_tpl_number(v);
    if (v.kind != TPL_FLOAT) return round_integer(t, v.as.integer, precision);
    int n = precision < 0 || !isfinite(x) ? 0 : qn_decimal_print(digits, sizeof digits, 'f', precision, x);
    if (precision < 0) x = nearbyint(x / tens) * tens;
    else if (n > 0) x = qn_decimal_read(digits, (size_t)n);
    return (tpl_value){.kind = TPL_FLOAT, .as.number = x};
}

tpl_value qn_text_tpl_filter_round(tpl *t, const tpl_args *args) {
    int64_t precision = tpl_given(args, 1) && args->at[1].kind == TPL_INT ? args->at[1].as.integer : 0;
    qn_text method = tpl_given(args, 2) ? text_of(t, args, 2) : (qn_text){"common", 6};
    if (!qn_text_tpl_is_number(args->at[0]) || precision < -15 || precision > 15)
        return qn_text_tpl_fail(t, "round takes a number, and at most 15 digits");
    int ceiling = tpl_same(method, (qn_text){"ceil", 4}), flooring = tpl_same(method, (qn_text){"floor", 5});
    if (!ceiling && !flooring) return round_nearest(t, args->at[0], (int)precision);
    double scale = pow(10, (double)precision), x = qn_text_tpl_number(args->at[0]) * scale;
    return (tpl_value){.kind = TPL_FLOAT, .as.number = (ceiling ? ceil(x) : floor(x)) / scale};
}

/* ---- "%s and %d" % values */

static void put_formatted(tpl *t, tpl_buffer *b, char kind, int precision, tpl_value v) {
    char number[512];
    int n = 0;
    if (kind == 's') {
        qn_text text = qn_text_tpl_string(t, v);
        qn_text_tpl_append(t, b, text.at, text.length);
        return;
    }
    if (!qn_text_tpl_is_number(v) || (kind == 'x' && v.kind == TPL_FLOAT)) {
        qn_text_tpl_fail(t, "%%%c of %s", kind, qn_text_tpl_kind_name(v));
        return;
    }
    double x = qn_text_tpl_number(v);
    if (kind == 'd' || kind == 'i')
        n = v.kind == TPL_FLOAT ? snprintf(number, sizeof number, "%.0f", trunc(x))
                                : snprintf(number, sizeof number, "%lld", (long long)v.as.integer);
    else if (kind == 'x')
        n = snprintf(number, sizeof number, "%s%llx", v.as.integer < 0 ? "-" : "",
                     v.as.integer < 0 ? 0 - (unsigned long long)v.as.integer : (unsigned long long)v.as.integer);
    else n = qn_decimal_print(number, sizeof number, kind, precision, x);
    qn_text_tpl_append(t, b, number, n > 0 && (size_t)n < sizeof number ? (size_t)n : 0);
}

tpl_value qn_text_tpl_filter_format(tpl *t, const tpl_args *args) {
    qn_text text = text_of(t, args, 0);
    tpl_buffer b = {0};
    size_t next = 1;
    qn_text_tpl_step(t, text.length / 16);
    for (size_t i = 0; i < text.length && !t->failed; i++) {
        int precision = 6;
        if (text.at[i] != '%') {
            qn_text_tpl_append(t, &b, text.at + i, 1);
            continue;
        }
        if (++i < text.length && text.at[i] == '.') {
            precision = 0;
            for (i++; i < text.length && text.at[i] >= '0' && text.at[i] <= '9' && precision < 40; i++)
                precision = precision * 10 + (text.at[i] - '0');
        }
        char kind = i < text.length ? text.at[i] : 0;
        if (kind == '%') qn_text_tpl_append(t, &b, "%", 1);
        else if (!kind || !strchr("sdifxeg", kind) || precision > 40) qn_text_tpl_fail(t, "a format that is not known");
        else if (next >= args->n) qn_text_tpl_fail(t, "fewer values than the format has places");
        else put_formatted(t, &b, kind, precision, args->at[next++]);
    }
    return tpl_text(tpl_taken(&b));
}

/* ---- "{} and {name}".format(values) */

static tpl_value field_value(tpl *t, const tpl_args *args, qn_text name, size_t *next) {
    size_t index = 0, i = 0;
    if (name.length == 0) index = (*next)++;
    for (; i < name.length && i < 6 && name.at[i] >= '0' && name.at[i] <= '9'; i++)
        index = index * 10 + (size_t)(name.at[i] - '0');
    if (i == name.length)
        return index + 1 < args->n ? args->at[index + 1] : qn_text_tpl_fail(t, "format: there is no value %zu", index);
    for (size_t k = 0; k < args->named && (k % 16 != 15 || qn_text_tpl_step(t, 1)); k++)
        if (qn_text_tpl_same(t, args->names[k], name)) return args->at[args->n + k];
    return qn_text_tpl_fail(t, "format: there is no value '%.*s'", name.length > 40 ? 40 : (int)name.length, name.at);
}

tpl_value qn_text_tpl_method_format(tpl *t, const tpl_args *args) {
    qn_text text = text_of(t, args, 0);
    tpl_buffer b = {0};
    size_t next = 0;
    qn_text_tpl_step(t, text.length / 16);
    for (size_t i = 0; i < text.length && !t->failed; i++) {
        char c = text.at[i];
        if ((c == '{' || c == '}') && i + 1 < text.length && text.at[i + 1] == c) {
            qn_text_tpl_append(t, &b, &c, 1);
            i++;
        } else if (c != '{') {
            qn_text_tpl_append(t, &b, &c, 1);
        } else {
            const char *end = memchr(text.at + i, '}', text.length - i);
            qn_text name = {text.at + i + 1, end ? (size_t)(end - text.at) - i - 1 : 0};
            const char *spec = memchr(name.at, ':', name.length);
            int precision = 6;
            char kind = 's';
            if (!end) return qn_text_tpl_fail(t, "format: a '{' without its '}'");
            if (spec) { /* of what may follow ':' only ".2f" and its like */
                size_t n = name.length - (size_t)(spec - name.at) - 1;
                if (n == 1 && strchr("sd", spec[1])) kind = spec[1];
                else if (n == 3 && spec[1] == '.' && spec[2] >= '0' && spec[2] <= '9' && strchr("feg", spec[3]))
                    kind = spec[3], precision = spec[2] - '0';
                else if (n) return qn_text_tpl_fail(t, "format: what follows ':' is not known");
                name.length = (size_t)(spec - name.at);
            }
            tpl_value v = field_value(t, args, name, &next);
            if (!t->failed) put_formatted(t, &b, kind, precision, v);
            i = (size_t)(end - text.at);
        }
    }
    return tpl_text(tpl_taken(&b));
}
