/* The tables of what templates can call, and the tests and functions among them. Names follow Jinja and Python. */
#include "text/template.h"

#include <locale.h>
#include <math.h>
#include <time.h>

#define DECLARE(sort, function) tpl_value qn_text_tpl_##sort##_##function(tpl *t, const tpl_args *args);
#define TPL_FILTER(name, names, least, function) DECLARE(filter, function)
#define TPL_METHOD(kind, name, names, least, function) DECLARE(method, function)
#include "text/template_builtins.def"
#undef TPL_FILTER
#undef TPL_METHOD

/* ---- Tests: args->at[0] is the value, then what stands behind the name */

#define TEST(name, condition)                                                \
    static tpl_value qn_text_tpl_test_##name(tpl *t, const tpl_args *args) { \
        const tpl_value v = args->at[0];                                     \
        (void)t;                                                             \
        (void)v;                                                             \
        return tpl_bool(condition);                                          \
    }

static int whole_and(tpl *t, tpl_value v, int odd) {
    if (v.kind != TPL_INT && v.kind != TPL_BOOL) qn_text_tpl_fail(t, "%s is neither odd nor even", qn_text_tpl_kind_name(v));
    return !t->failed && (v.as.integer & 1) == odd;
}

static int divides(tpl *t, tpl_value v, tpl_value by) {
    if (v.kind != TPL_INT || by.kind != TPL_INT || by.as.integer == 0)
        qn_text_tpl_fail(t, "divisibleby is for integers, and not 0");
    return !t->failed && (by.as.integer == -1 || v.as.integer % by.as.integer == 0);
}

static int is_case(tpl *t, tpl_value v, tpl_value (*change)(tpl *, const tpl_args *)) {
    if (v.kind != TPL_STRING) return 0;
    tpl_value changed = change(t, &(tpl_args){&v, 1, NULL, 0});
    return !t->failed && qn_text_tpl_equal(t, v, changed);
}

TEST(boolean, v.kind == TPL_BOOL)
TEST(callable, v.kind >= TPL_MACRO)
TEST(defined, v.kind != TPL_UNDEFINED)
TEST(undefined, v.kind == TPL_UNDEFINED)
TEST(divisibleby, divides(t, v, args->at[1]))
TEST(eq, qn_text_tpl_equal(t, v, args->at[1]))
TEST(ne, !qn_text_tpl_equal(t, v, args->at[1]))
TEST(ge, qn_text_tpl_compare(t, v, args->at[1]) >= 0)
TEST(gt, qn_text_tpl_compare(t, v, args->at[1]) > 0)
TEST(le, qn_text_tpl_compare(t, v, args->at[1]) <= 0)
TEST(lt, qn_text_tpl_compare(t, v, args->at[1]) < 0)
TEST(even, whole_and(t, v, 0))
TEST(odd, whole_and(t, v, 1))
TEST(true, v.kind == TPL_BOOL && v.as.integer)
TEST(false, v.kind == TPL_BOOL && !v.as.integer)
TEST(float, v.kind == TPL_FLOAT)
TEST(integer, v.kind == TPL_INT)
TEST(number, qn_text_tpl_is_number(v))
TEST(in, qn_text_tpl_contains(t, args->at[1], v))
TEST(iterable,
     v.kind == TPL_UNDEFINED || v.kind == TPL_STRING || v.kind == TPL_LIST || (v.kind == TPL_DICT && !v.as.dict->is_namespace))
TEST(sequence,
     v.kind == TPL_UNDEFINED || v.kind == TPL_STRING || v.kind == TPL_LIST || (v.kind == TPL_DICT && !v.as.dict->is_namespace))
TEST(mapping, v.kind == TPL_DICT && !v.as.dict->is_namespace)
TEST(string, v.kind == TPL_STRING)
TEST(none, v.kind == TPL_NONE)
TEST(lower, is_case(t, v, qn_text_tpl_filter_lower))
TEST(upper, is_case(t, v, qn_text_tpl_filter_upper))
TEST(sameas, v.kind == args->at[1].kind &&
                 (v.kind == TPL_NONE || (v.kind == TPL_LIST || v.kind == TPL_DICT ? v.as.list == args->at[1].as.list
                                                                                  : qn_text_tpl_equal(t, v, args->at[1]))))

/* ---- Functions */

static tpl_value make_dict(tpl *t, const tpl_args *args, int is_namespace) {
    tpl_value dict = qn_text_tpl_dict_new(t);
    if (!t->failed) dict.as.dict->is_namespace = is_namespace;
    if (!t->failed && args->n && args->at[0].kind == TPL_DICT)
        for (size_t i = 0; i < args->at[0].as.dict->pairs.n; i++)
            qn_text_tpl_dict_set(t, dict.as.dict, args->at[0].as.dict->pairs.at[i].key, args->at[0].as.dict->pairs.at[i].value);
    for (size_t i = 0; i < args->named && !t->failed; i++)
        qn_text_tpl_dict_set(t, dict.as.dict, tpl_text(args->names[i]), args->at[args->n + i]);
    return dict;
}

static tpl_value qn_text_tpl_function_dict(tpl *t, const tpl_args *args) { return make_dict(t, args, 0); }
static tpl_value qn_text_tpl_function_namespace(tpl *t, const tpl_args *args) { return make_dict(t, args, 1); }

static tpl_value qn_text_tpl_function_raise_exception(tpl *t, const tpl_args *args) {
    qn_text text = qn_text_tpl_string(t, args->at[0]);
    if (!t->failed) t->status = QN_USER;
    return qn_text_tpl_fail(t, "%.*s", text.length > 380 ? 380 : (int)text.length, text.at);
}

static tpl_value qn_text_tpl_function_range(tpl *t, const tpl_args *args) {
    int64_t from = 0, to = 0, by = 1, part[3] = {0, 0, 1};
    if (args->n < 1 || args->n > 3) return qn_text_tpl_fail(t, "range takes 1 to 3 integers");
    for (size_t i = 0; i < args->n; i++) {
        if (args->at[i].kind != TPL_INT && args->at[i].kind != TPL_BOOL)
            return qn_text_tpl_fail(t, "range of %s", qn_text_tpl_kind_name(args->at[i]));
        part[i] = args->at[i].as.integer;
    }
    from = args->n > 1 ? part[0] : 0;
    to = args->n > 1 ? part[1] : part[0];
    by = part[2];
    if (by == 0) return qn_text_tpl_fail(t, "range with a step of 0");
    tpl_value list = qn_text_tpl_list_new(t, 0);
    for (int64_t i = from; !t->failed && (by > 0 ? i < to : i > to);) { /* every item is a step, so this ends */
        qn_text_tpl_list_add(t, list, tpl_int(i));
        if (__builtin_add_overflow(i, by, &i)) break;
    }
    return list;
}

static tpl_value qn_text_tpl_function_strftime_now(tpl *t, const tpl_args *args) {
    char format[128], text[512];
    struct tm tm;
    time_t now = (time_t)t->now;
    if (args->at[0].kind != TPL_STRING || args->at[0].as.text.length >= sizeof format)
        return qn_text_tpl_fail(t, "strftime_now takes a short text");
    memcpy(format, args->at[0].as.text.at, args->at[0].as.text.length);
    format[args->at[0].as.text.length] = 0;
    if (!gmtime_r(&now, &tm)) return qn_text_tpl_fail(t, "strftime_now: a time that has no date");
    locale_t plain = newlocale(LC_ALL_MASK, "C", (locale_t)0); /* models learnt the English names, whatever the program speaks */
    if (!plain) return qn_text_tpl_no_memory(t);
    size_t n = strftime_l(text, sizeof text, format, &tm, plain);
    freelocale(plain);
    return tpl_text(qn_text_tpl_copy(t, text, n));
}

/* ---- Tables */

static const tpl_builtin FILTERS[] = {
#define TPL_FILTER(name, names, least, function) {name, names, 1, least, qn_text_tpl_filter_##function},
#include "text/template_builtins.def"
#undef TPL_FILTER
};

static const tpl_builtin TESTS[] = {
#define TPL_TEST(name, names, least, function) {name, names, 1, least, qn_text_tpl_test_##function},
#include "text/template_builtins.def"
#undef TPL_TEST
};

static const tpl_builtin FUNCTIONS[] = {
#define TPL_FUNCTION(name, names, least, function) {name, names, 0, least, qn_text_tpl_function_##function},
#include "text/template_builtins.def"
#undef TPL_FUNCTION
};

static const struct {
    tpl_kind kind;
    tpl_builtin builtin;
} METHODS[] = {
#define TPL_METHOD(kind, name, names, least, function) {TPL_##kind, {name, names, 1, least, qn_text_tpl_method_##function}},
#include "text/template_builtins.def"
#undef TPL_METHOD
};

static const tpl_builtin *find(const tpl_builtin *table, size_t n, qn_text name) {
    for (size_t i = 0; i < n; i++)
        if (strlen(table[i].name) == name.length && memcmp(table[i].name, name.at, name.length) == 0) return &table[i];
    return NULL;
}

const tpl_builtin *qn_text_tpl_find_filter(qn_text name) { return find(FILTERS, sizeof FILTERS / sizeof *FILTERS, name); }
const tpl_builtin *qn_text_tpl_find_test(qn_text name) { return find(TESTS, sizeof TESTS / sizeof *TESTS, name); }
const tpl_builtin *qn_text_tpl_find_function(qn_text name) { return find(FUNCTIONS, sizeof FUNCTIONS / sizeof *FUNCTIONS, name); }

const tpl_builtin *qn_text_tpl_find_method(tpl_kind kind, qn_text name) {
    for (size_t i = 0; i < sizeof METHODS / sizeof *METHODS; i++)
        if (METHODS[i].kind == kind && find(&METHODS[i].builtin, 1, name)) return &METHODS[i].builtin;
    return NULL;
}
