/* Filters and methods of strings. Case is Unicode's where utf8proc is there, else that of ASCII. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "text/template.h"
#include "text/utf8.h"

#ifdef QN_HAVE_UTF8PROC
#include <utf8proc.h>
static uint32_t to_upper(uint32_t c) { return (uint32_t)utf8proc_toupper((utf8proc_int32_t)c); }
static uint32_t to_lower(uint32_t c) { return (uint32_t)utf8proc_tolower((utf8proc_int32_t)c); }
static uint32_t to_title(uint32_t c) { return (uint32_t)utf8proc_totitle((utf8proc_int32_t)c); }
static int is_letter(uint32_t c) {
    utf8proc_category_t kind = utf8proc_category((utf8proc_int32_t)c);
    return kind >= UTF8PROC_CATEGORY_LU && kind <= UTF8PROC_CATEGORY_LO;
}
static int is_number(uint32_t c) {
    utf8proc_category_t kind = utf8proc_category((utf8proc_int32_t)c);
    return kind >= UTF8PROC_CATEGORY_ND && kind <= UTF8PROC_CATEGORY_NO;
}
#else
static uint32_t to_upper(uint32_t c) { return c >= 'a' && c <= 'z' ? c - 32 : c; }
static uint32_t to_lower(uint32_t c) { return c >= 'A' && c <= 'Z' ? c + 32 : c; }
static uint32_t to_title(uint32_t c) { return to_upper(c); }
static int is_letter(uint32_t c) { return (to_lower(c) >= 'a' && to_lower(c) <= 'z') || c >= 0x80; }
static int is_number(uint32_t c) { return c >= '0' && c <= '9'; }
#endif

static int is_space(uint32_t c) {
    return c == ' ' || (c >= 9 && c <= 13) || (c >= 0x1C && c <= 0x1F) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

static size_t read_at(qn_text text, size_t i, uint32_t *code) {
    size_t n = qn_text_utf8_read(text.at + i, text.length - i, code);
    if (!n) *code = 0xFFFD;
    return n ? n : 1;
}

static qn_text text_of(tpl *t, const tpl_args *args, size_t i) { return qn_text_tpl_string(t, args->at[i]); }

/* ---- Case: 'u' upper, 'l' lower, 't' every letter upper that follows none, 'w' the first of each word, 'c' the first of all */

static int is_cased(uint32_t c) { return to_upper(c) != to_lower(c); }

static tpl_value change_case(tpl *t, qn_text text, char how) {
    tpl_buffer b = {0};
    int inside = 0;
    for (size_t i = 0; i < text.length && !t->failed;) {
        uint32_t c;
        char bytes[4];
        size_t n = read_at(text, i, &c);
        uint32_t changed = how == 'u' ? to_upper(c) : how == 'l' || inside ? to_lower(c) : to_title(c);
        inside = how == 't' ? is_cased(c) : how == 'w' ? !is_space(c) && (c >= 0x80 || !c || !strchr("-({[<", (int)c)) : 1;
        if (c == 0xFFFD || changed == c) qn_text_tpl_append(t, &b, text.at + i, n);
        else qn_text_tpl_append(t, &b, bytes, qn_text_utf8_write(changed, bytes));
        i += n;
    }
    return tpl_text(tpl_taken(&b));
}

#define CASE(name, how, of_method)                                                                                         \
    tpl_value qn_text_tpl_filter_##name(tpl *t, const tpl_args *args) { return change_case(t, text_of(t, args, 0), how); } \
    tpl_value qn_text_tpl_method_##name(tpl *t, const tpl_args *args) { return change_case(t, text_of(t, args, 0), of_method); }
CASE(upper, 'u', 'u')
CASE(lower, 'l', 'l')
CASE(title, 'w', 't')
CASE(capitalize, 'c', 'c')

/* ---- Ends */

static int in_set(tpl *t, uint32_t c, const tpl_args *args) { /* of characters to strip: white space unless said otherwise */
    if (!tpl_given(args, 1) || args->at[1].kind != TPL_STRING) return is_space(c);
    if (!qn_text_tpl_step(t, 1 + args->at[1].as.text.length / 16)) return 0;
    for (size_t i = 0; i < args->at[1].as.text.length;) {
        uint32_t one;
        i += read_at(args->at[1].as.text, i, &one);
        if (one == c) return 1;
    }
    return 0;
}

static tpl_value strip(tpl *t, const tpl_args *args, int left, int right) {
    qn_text text = text_of(t, args, 0);
    uint32_t c;
    qn_text_tpl_step(t, text.length / 64);
    while (left && text.length) {
        size_t n = read_at(text, 0, &c);
        if (!in_set(t, c, args)) break;
        text.at += n;
        text.length -= n;
    }
    while (right && text.length) {
        size_t at = text.length - 1;
        while (at > 0 && text.length - at < 4 && ((unsigned char)text.at[at] & 0xC0) == 0x80) at--;
        read_at(text, at, &c);
        if (!in_set(t, c, args)) break;
        text.length = at;
    }
    return tpl_text(text);
}

tpl_value qn_text_tpl_filter_trim(tpl *t, const tpl_args *args) { return strip(t, args, 1, 1); }
tpl_value qn_text_tpl_method_strip(tpl *t, const tpl_args *args) { return strip(t, args, 1, 1); }
tpl_value qn_text_tpl_method_lstrip(tpl *t, const tpl_args *args) { return strip(t, args, 1, 0); }
tpl_value qn_text_tpl_method_rstrip(tpl *t, const tpl_args *args) { return strip(t, args, 0, 1); }

static int has_end(tpl *t, qn_text text, qn_text end, int front) {
    return text.length >= end.length && qn_text_tpl_step(t, end.length / 64) &&
           (end.length == 0 || memcmp(front ? text.at : text.at + text.length - end.length, end.at, end.length) == 0);
}

static tpl_value ends(tpl *t, const tpl_args *args, int front) {
    qn_text text = text_of(t, args, 0);
    if (args->at[1].kind == TPL_STRING) return tpl_bool(has_end(t, text, args->at[1].as.text, front));
    if (args->at[1].kind != TPL_LIST) return qn_text_tpl_fail(t, "startswith and endswith take a string, or a tuple of them");
    for (size_t i = 0; i < args->at[1].as.list->items.n && qn_text_tpl_step(t, 1); i++) {
        tpl_value end = args->at[1].as.list->items.at[i];
        if (end.kind == TPL_STRING && has_end(t, text, end.as.text, front)) return tpl_bool(1);
    }
    return tpl_bool(0);
}

tpl_value qn_text_tpl_method_startswith(tpl *t, const tpl_args *args) { return ends(t, args, 1); }
tpl_value qn_text_tpl_method_endswith(tpl *t, const tpl_args *args) { return ends(t, args, 0); }

tpl_value qn_text_tpl_method_removeprefix(tpl *t, const tpl_args *args) {
    qn_text text = text_of(t, args, 0), end = text_of(t, args, 1);
    return tpl_text(has_end(t, text, end, 1) ? (qn_text){text.at + end.length, text.length - end.length} : text);
}

tpl_value qn_text_tpl_method_removesuffix(tpl *t, const tpl_args *args) {
    qn_text text = text_of(t, args, 0), end = text_of(t, args, 1);
    return tpl_text(has_end(t, text, end, 0) ? (qn_text){text.at, text.length - end.length} : text);
}

/* ---- Finding */

static tpl_value find(tpl *t, const tpl_args *args, int last) {
    qn_text text = text_of(t, args, 0), part = text_of(t, args, 1);
    size_t at = qn_text_tpl_find(t, text, part, 0), best = at;
    qn_text_tpl_step(t, text.length / 16);
    while (last && at <= text.length) best = at, at = qn_text_tpl_find(t, text, part, at + 1);
    return best > text.length ? tpl_int(-1) : tpl_int((int64_t)qn_text_tpl_length(t, (qn_text){text.at, best}));
}

tpl_value qn_text_tpl_method_find(tpl *t, const tpl_args *args) { return find(t, args, 0); }
tpl_value qn_text_tpl_method_rfind(tpl *t, const tpl_args *args) { return find(t, args, 1); }

tpl_value qn_text_tpl_method_index(tpl *t, const tpl_args *args) {
    tpl_value at = find(t, args, 0);
    return at.as.integer < 0 ? qn_text_tpl_fail(t, "index: the string has no such part") : at;
}

tpl_value qn_text_tpl_method_count(tpl *t, const tpl_args *args) {
    qn_text text = text_of(t, args, 0), part = text_of(t, args, 1);
    int64_t n = 0;
    qn_text_tpl_step(t, text.length / 16);
    if (part.length == 0) return tpl_int((int64_t)qn_text_tpl_length(t, text) + 1);
    for (size_t at = qn_text_tpl_find(t, text, part, 0); at <= text.length;
         at = qn_text_tpl_find(t, text, part, at + part.length))
        n++;
    return tpl_int(n);
}

static tpl_value replace(tpl *t, const tpl_args *args) {
    qn_text text = text_of(t, args, 0), old = text_of(t, args, 1), with = text_of(t, args, 2);
    int64_t most = tpl_given(args, 3) && args->at[3].kind == TPL_INT ? args->at[3].as.integer : -1;
    tpl_buffer b = {0};
    size_t from = 0, at = qn_text_tpl_find(t, text, old, 0);
    for (; at <= text.length && most != 0 && !t->failed; most--) {
        qn_text_tpl_append(t, &b, text.at + from, at - from);
        qn_text_tpl_append(t, &b, with.at, with.length);
        from = at + old.length;
        if (!qn_text_tpl_step(t, 1)) break;
        at = qn_text_tpl_find(t, text, old, from + (old.length == 0));
    }
    qn_text_tpl_append(t, &b, text.at + from, text.length - from);
    return tpl_text(tpl_taken(&b));
}

tpl_value qn_text_tpl_filter_replace(tpl *t, const tpl_args *args) { return replace(t, args); }
tpl_value qn_text_tpl_method_replace(tpl *t, const tpl_args *args) { return replace(t, args); }

/* ---- Cutting and joining */

static tpl_value split_at(tpl *t, qn_text text, qn_text by, int64_t most, int from_end) {
    tpl_value out = qn_text_tpl_list_new(t, 0);
    if (by.length == 0) return qn_text_tpl_fail(t, "split by an empty string");
    size_t places = 0, from = 0;
    for (size_t at = qn_text_tpl_find(t, text, by, 0); at <= text.length; at = qn_text_tpl_find(t, text, by, at + by.length))
        places++;
    size_t skip = from_end && most >= 0 && places > (size_t)most ? places - (size_t)most : 0;
    for (size_t at = qn_text_tpl_find(t, text, by, 0); at <= text.length && !t->failed;
         at = qn_text_tpl_find(t, text, by, at + by.length)) {
        if (skip) {
            skip--;
            continue;
        }
        if (!from_end && most >= 0 && (int64_t)out.as.list->items.n >= most) break;
        qn_text_tpl_list_add(t, out, tpl_text((qn_text){text.at + from, at - from}));
        from = at + by.length;
    }
    qn_text_tpl_list_add(t, out, tpl_text((qn_text){text.at + from, text.length - from}));
    return out;
}

/* At runs of white space; what is empty is no part. */
static tpl_value split_words(tpl *t, qn_text text, int64_t most) {
    tpl_value out = qn_text_tpl_list_new(t, 0);
    for (size_t i = 0; i < text.length && !t->failed;) {
        uint32_t c;
        size_t n = read_at(text, i, &c), end = i;
        if (is_space(c)) {
            i += n;
            continue;
        }
        int rest = most >= 0 && (int64_t)out.as.list->items.n >= most;
        while (end < text.length) {
            n = read_at(text, end, &c);
            if (!rest && is_space(c)) break;
            end += n;
        }
        qn_text_tpl_list_add(t, out, tpl_text((qn_text){text.at + i, end - i}));
        i = end;
    }
    return out;
}

static tpl_value split(tpl *t, const tpl_args *args, int from_end) {
    qn_text text = text_of(t, args, 0);
    int64_t most = tpl_given(args, 2) && args->at[2].kind == TPL_INT ? args->at[2].as.integer : -1;
    qn_text_tpl_step(t, text.length / 16);
    if (tpl_given(args, 1) && args->at[1].kind == TPL_STRING) return split_at(t, text, args->at[1].as.text, most, from_end);
    if (from_end && most >= 0) return qn_text_tpl_fail(t, "rsplit at white space with a count is not known");
    return split_words(t, text, most);
}

tpl_value qn_text_tpl_method_split(tpl *t, const tpl_args *args) { return split(t, args, 0); }
tpl_value qn_text_tpl_method_rsplit(tpl *t, const tpl_args *args) { return split(t, args, 1); }

static int ends_line(uint32_t c) {
    return (c >= '\n' && c <= '\r') || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

tpl_value qn_text_tpl_method_splitlines(tpl *t, const tpl_args *args) {
    qn_text text = text_of(t, args, 0);
    tpl_value out = qn_text_tpl_list_new(t, 0);
    int keep = tpl_given(args, 1) && qn_text_tpl_truth(args->at[1]);
    for (size_t from = 0, i = 0; i < text.length && !t->failed; from = i) {
        uint32_t c = 0;
        size_t end = i;
        while (i < text.length && !ends_line(c)) end = i, i += read_at(text, i, &c);
        if (!ends_line(c)) end = i;
        i += c == '\r' && i < text.length && text.at[i] == '\n';
        qn_text_tpl_list_add(t, out, tpl_text((qn_text){text.at + from, (keep ? i : end) - from}));
    }
    return out;
}

static int is_alnum(uint32_t c) { return is_number(c) || is_letter(c); }

tpl_value qn_text_tpl_filter_wordcount(tpl *t, const tpl_args *args) { /* of letters, numbers and '_' */
    qn_text text = text_of(t, args, 0);
    int64_t n = 0;
    qn_text_tpl_step(t, text.length / 16);
    for (size_t i = 0, inside = 0; i < text.length;) {
        uint32_t c;
        i += read_at(text, i, &c);
        size_t word = c == '_' || is_alnum(c);
        n += word && !inside;
        inside = word;
    }
    return tpl_int(n);
}

static tpl_value join(tpl *t, tpl_value items, qn_text between, tpl_value attribute, int strict) {
    tpl_buffer b = {0};
    items = qn_text_tpl_iterate(t, items);
    for (size_t i = 0; !t->failed && i < items.as.list->items.n && qn_text_tpl_step(t, 1); i++) {
        tpl_value item = items.as.list->items.at[i];
        if (attribute.kind == TPL_STRING) item = qn_text_tpl_attribute(t, item, attribute.as.text, 1);
        if (strict && item.kind != TPL_STRING) return qn_text_tpl_fail(t, "join of %s", qn_text_tpl_kind_name(item));
        qn_text text = qn_text_tpl_string(t, item);
        if (i) qn_text_tpl_append(t, &b, between.at, between.length);
        qn_text_tpl_append(t, &b, text.at, text.length);
    }
    return tpl_text(tpl_taken(&b));
}

tpl_value qn_text_tpl_filter_join(tpl *t, const tpl_args *args) {
    return join(t, args->at[0], tpl_given(args, 1) ? text_of(t, args, 1) : (qn_text){"", 0},
                tpl_given(args, 2) ? args->at[2] : tpl_none(), 0);
}

tpl_value qn_text_tpl_method_join(tpl *t, const tpl_args *args) {
    return join(t, args->at[1], text_of(t, args, 0), tpl_none(), 1);
}

/* indent(width, first, blank): every line but the first, unless asked, and none that is empty, unless asked. */
tpl_value qn_text_tpl_filter_indent(tpl *t, const tpl_args *args) {
    qn_text text = text_of(t, args, 0), by = {"    ", 4};
    int first = tpl_given(args, 2) && qn_text_tpl_truth(args->at[2]),
        blank = tpl_given(args, 3) && qn_text_tpl_truth(args->at[3]);
    tpl_buffer b = {0}, spaces = {0};
    if (tpl_given(args, 1)) {
        by = args->at[1].kind == TPL_STRING ? args->at[1].as.text : (qn_text){"", 0};
        for (int64_t i = 0; args->at[1].kind == TPL_INT && i < args->at[1].as.integer && !t->failed && qn_text_tpl_step(t, 1);
             i++)
            qn_text_tpl_append(t, &spaces, " ", 1);
        if (args->at[1].kind == TPL_INT) by = tpl_taken(&spaces);
    }
    for (size_t from = 0, line = 0; from <= text.length && !t->failed; line++) {
        const char *end = from < text.length ? memchr(text.at + from, '\n', text.length - from) : NULL;
        size_t to = end ? (size_t)(end - text.at) : text.length;
        if (line) qn_text_tpl_append(t, &b, "\n", 1);
        if ((line || first) && (to > from || blank || (line == 0 && first))) qn_text_tpl_append(t, &b, by.at, by.length);
        qn_text_tpl_append(t, &b, text.at + from, to - from);
        from = to + 1;
    }
    return tpl_text(tpl_taken(&b));
}

/* ---- What strings consist of */

static tpl_value consists(tpl *t, const tpl_args *args, int (*of)(uint32_t)) {
    qn_text text = text_of(t, args, 0);
    qn_text_tpl_step(t, text.length / 64);
    for (size_t i = 0; i < text.length;) {
        uint32_t c;
        i += read_at(text, i, &c);
        if (!of(c)) return tpl_bool(0);
    }
    return tpl_bool(text.length > 0);
}

static int is_digit(uint32_t c) { return c >= '0' && c <= '9'; }
static int not_upper(uint32_t c) { return to_lower(c) == c; }
static int not_lower(uint32_t c) { return to_upper(c) == c; }

tpl_value qn_text_tpl_method_isdigit(tpl *t, const tpl_args *args) { return consists(t, args, is_digit); }
tpl_value qn_text_tpl_method_isalpha(tpl *t, const tpl_args *args) { return consists(t, args, is_letter); }
tpl_value qn_text_tpl_method_isalnum(tpl *t, const tpl_args *args) { return consists(t, args, is_alnum); }
tpl_value qn_text_tpl_method_isspace(tpl *t, const tpl_args *args) { return consists(t, args, is_space); }

static tpl_value one_case(tpl *t, const tpl_args *args, int (*fits)(uint32_t)) { /* and there is a letter that has a case */
    qn_text text = text_of(t, args, 0);
    int cased = 0;
    for (size_t i = 0; i < text.length;) {
        uint32_t c;
        i += read_at(text, i, &c);
        cased |= is_cased(c);
    }
    return cased ? consists(t, args, fits) : tpl_bool(0);
}

tpl_value qn_text_tpl_method_islower(tpl *t, const tpl_args *args) { return one_case(t, args, not_upper); }
tpl_value qn_text_tpl_method_isupper(tpl *t, const tpl_args *args) { return one_case(t, args, not_lower); }
