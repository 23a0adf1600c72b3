/* Reads the rows of tests/cases.def: a few characters per source and attribute that stand for thousands of requests. Text is
 * cut into spans once; expressions are evaluated from the text at every draw, which costs less than the op they lead to. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "tensor/convert.h"

/* ---- Spans */

qc_span qc_trim(qc_span s) {
    while (s.n && isspace((unsigned char)s.at[0])) s.at++, s.n--;
    while (s.n && isspace((unsigned char)s.at[s.n - 1])) s.n--;
    return s;
}

int qc_is(qc_span s, const char *text) { return (size_t)s.n == strlen(text) && memcmp(s.at, text, (size_t)s.n) == 0; }

int qc_split(qc_span *rest, char separator, qc_span *part) {
    if (rest->n <= 0) return 0;
    int depth = 0, i = 0;
    for (; i < rest->n; i++) {
        char ch = rest->at[i];
        depth += (ch == '(' || ch == '[' || ch == '{') - (ch == ')' || ch == ']' || ch == '}');
        if (ch == separator && depth == 0) break;
    }
    *part = qc_trim((qc_span){rest->at, i});
    int step = i < rest->n ? i + 1 : i;
    rest->at += step;
    rest->n -= step;
    return 1;
}

/* ---- Expressions: + - * / ( ), numbers, single letters, B */

typedef struct reader {
    const char *p, *end;
    const qc_draw *d;
    int whole, bad;
} reader;

static int letter_index(char ch) {
    if (ch >= 'a' && ch <= 'z') return ch - 'a';
    if (ch >= 'A' && ch <= 'Z') return 26 + ch - 'A';
    return -1;
}

static long double sum(reader *r);

static void blanks(reader *r) {
    while (r->p < r->end && isspace((unsigned char)*r->p)) r->p++;
}

static int word(reader *r, const char *text) {
    size_t n = strlen(text);
    if ((size_t)(r->end - r->p) < n || memcmp(r->p, text, n) != 0) return 0;
    if (r->p + n < r->end && isalnum((unsigned char)r->p[n])) return 0;
    r->p += n;
    return 1;
}

static long double factor(reader *r) {
    blanks(r);
    if (r->p >= r->end) return r->bad = 1, 0;
    if (*r->p == '-') return r->p++, -factor(r);
    if (*r->p == '(') {
        r->p++;
        long double v = sum(r);
        blanks(r);
        if (r->p >= r->end || *r->p != ')') return r->bad = 1, 0;
        return r->p++, v;
    }
    if (word(r, "inf")) return (long double)INFINITY;
    if (word(r, "nan")) return (long double)NAN;
    if (isdigit((unsigned char)*r->p) || *r->p == '.') {
        char *stop;
        long double v = strtold(r->p, &stop); /* the text goes on past the span, but never with more of the number */
        if (stop > r->end) r->bad = 1;
        r->p = stop;
        return v;
    }
    int i = letter_index(*r->p);
    if (i < 0 || (r->p + 1 < r->end && letter_index(r->p[1]) >= 0)) return r->bad = 1, 0;
    char ch = *r->p++;
    if (!r->d) return 1; /* only the syntax was asked for */
    return ch == 'B' ? (long double)r->d->block : (long double)r->d->letter[i];
}

static long double product(reader *r) {
    long double v = factor(r);
    for (;;) {
        blanks(r);
        if (r->bad || r->p >= r->end || (*r->p != '*' && *r->p != '/')) return v;
        char op = *r->p++;
        long double w = factor(r);
        if (op == '*') v *= w;
        else if (!r->whole) v /= w;
        else v = w == 0 ? 0 : (long double)((int64_t)v / (int64_t)w);
    }
}

static long double sum(reader *r) {
    long double v = product(r);
    for (;;) {
        blanks(r);
        if (r->bad || r->p >= r->end || (*r->p != '+' && *r->p != '-')) return v;
        char op = *r->p++;
        long double w = product(r);
        v = op == '+' ? v + w : v - w;
    }
}

long double qc_eval(qc_span text, const qc_draw *d, int whole, int *bad) {
    reader r = {text.at, text.at + text.n, d, whole, 0};
    long double v = sum(&r);
    blanks(&r);
    if (r.p != r.end) r.bad = 1;
    if (r.bad) *bad = 1;
    return v;
}

/* ---- Dtype variables */

static uint64_t bit(uint32_t d) { return (uint64_t)1 << d; }

static uint64_t variable_members(char v) {
    uint64_t real = bit(QN_DTYPE_F64) | bit(QN_DTYPE_F32), plain = 0, block = 0, encodes = 0;
    for (uint32_t d = 1; d < QN_DTYPE_COUNT; d++) {
        const qn_dtype_info *info = qn_dtype_describe((qn_dtype)d);
        if (info->kind != QN_KIND_BLOCK) plain |= bit(d);
        else block |= bit(d);
        if (info->kind == QN_KIND_BLOCK && qn_can_convert(QN_DTYPE_F32, (qn_dtype)d)) encodes |= bit(d);
    }
    switch (v) {
    case 'R': return real;
    case 'F': return real | bit(QN_DTYPE_F16) | bit(QN_DTYPE_BF16);
    case 'N': return bit(QN_DTYPE_I8) | bit(QN_DTYPE_I16) | bit(QN_DTYPE_I32) | bit(QN_DTYPE_I64);
    case 'P': return plain;
    case 'Q': return block;
    case 'E': return encodes;
    case 'A': return plain | block;
    default: return 0;
    }
}

static int is_variable(qc_span s) { return s.n == 1 && variable_members(s.at[0]) != 0; }

/* Adds a dtype variable, or narrows the one there is to what another slot takes. */
static const char *add_variable(qc_case *c, char v, uint64_t allowed) {
    qc_axis *axis = NULL;
    for (int i = 0; i < c->n_axis; i++)
        if (c->axis[i].variable == v) axis = &c->axis[i];
    uint64_t set = 0;
    if (axis) {
        for (int i = 0; i < axis->n; i++) set |= bit(axis->option[i]);
    } else {
        if (c->n_axis == QC_MAX_AXIS) return "too many things to enumerate";
        axis = &c->axis[c->n_axis++];
        axis->variable = v;
        set = variable_members(v);
    }
    set &= allowed;
    axis->n = 0;
    for (uint32_t d = 1; d < QN_DTYPE_COUNT; d++)
        if (set & bit(d)) axis->option[axis->n++] = (uint8_t)d;
    return axis->n ? NULL : "no dtype of the variable is one the slot takes";
}

uint32_t qc_variable_dtype(const qc_case *c, const qc_draw *d, char variable) {
    for (int i = 0; i < c->n_axis; i++)
        if (c->axis[i].variable == variable) return c->axis[i].option[d->choice[i]];
    return QN_DTYPE_NONE;
}

static uint32_t dtype_of(qc_span s, const qc_case *c, const qc_draw *d) {
    char name[16];
    if (is_variable(s)) return qc_variable_dtype(c, d, s.at[0]);
    if (s.n <= 0 || s.n >= (int)sizeof name) return QN_DTYPE_NONE;
    memcpy(name, s.at, (size_t)s.n);
    name[s.n] = 0;
    return qn_dtype_from_name(name);
}

uint32_t qc_item_dtype(const qc_case *c, const qc_draw *d, int slot) { return dtype_of(c->src[slot].dtype, c, d); }

/* ---- Sources */

static void note_letters(qc_case *c, qc_span s) {
    for (int i = 0; i < s.n; i++)
        if (letter_index(s.at[i]) >= 0 && s.at[i] != 'B') c->letters |= (uint64_t)1 << letter_index(s.at[i]);
}

static const char *parse_dims(qc_case *c, qc_item *item) {
    qc_span rest = item->dims, part;
    int rank = 0, bad = 0;
    for (int first = 1; qc_split(&rest, ',', &part); first = 0) {
        if (first && qc_is(part, "@")) {
            item->has_lead = 1;
            continue;
        }
        qc_eval(part, NULL, 1, &bad);
        note_letters(c, part);
        rank++;
    }
    if (bad) return "a dimension is not an expression";
    if (item->has_lead) {
        if (c->lead_room < 0 || QN_MAX_RANK - rank < c->lead_room) c->lead_room = QN_MAX_RANK - rank;
        if (rank == 0) c->lead_least = 1;
    }
    return NULL;
}

/* dtype[dims]{values}~layout */
static const char *parse_item(qc_case *c, int slot, qc_span text) {
    qc_item *item = &c->src[slot];
    if (qc_is(text, "-")) {
        item->absent = 1;
        return NULL;
    }
    const char *end = text.at + text.n, *open = memchr(text.at, '[', (size_t)text.n);
    const char *close = open ? memchr(open, ']', (size_t)(end - open)) : NULL;
    if (!close) return "a source has no [dims]";
    item->dtype = (qc_span){text.at, (int)(open - text.at)};
    item->dims = (qc_span){open + 1, (int)(close - open - 1)};
    const char *p = close + 1;
    if (p < end && *p == '{') {
        const char *brace = memchr(p, '}', (size_t)(end - p));
        if (!brace) return "values lack their }";
        item->values = (qc_span){p + 1, (int)(brace - p - 1)};
        p = brace + 1;
    }
    if (end - p == 2 && p[0] == '~' && strchr("tshrb", p[1])) item->layout = p[1], p += 2;
    if (p != end) return "text after a source";
    uint64_t allowed = ~(uint64_t)0;
    const qn_op_info *info = qn_op_describe(c->op);
    if (slot < info->n_src && c->kind != QC_REJECT) allowed = info->src[slot].dtypes;
    if (is_variable(item->dtype)) {
        const char *why = add_variable(c, item->dtype.at[0], allowed);
        if (why) return why;
    } else if (dtype_of(item->dtype, c, NULL) == QN_DTYPE_NONE) {
        return "no such dtype";
    }
    return parse_dims(c, item);
}

/* ---- Attributes */

static const char *parse_sub(qc_case *c, qc_span value) {
    if (c->n_axis == QC_MAX_AXIS) return "too many things to enumerate";
    qc_axis *axis = &c->axis[c->n_axis];
    qc_span part;
    for (; qc_split(&value, '|', &part);) {
        int found = 0;
        for (int i = 0; i < qn_subop_count(c->op); i++)
            if ((qc_is(part, "*") || qc_is(part, qn_subop_name(c->op, i))) && axis->n < (int)sizeof axis->option)
                axis->option[axis->n++] = (uint8_t)i, found = 1;
        if (!found) return "no such sub-op";
    }
    c->sub_axis = c->n_axis++;
    return NULL;
}

static int find_attr(const qn_op_info *info, qc_span name) {
    for (int i = 0; i < info->n_attr; i++)
        if (qc_is(name, info->attr[i].name)) return i;
    return -1;
}

static const char *parse_field(qc_case *c, qc_span text) {
    const qn_op_info *info = qn_op_describe(c->op);
    qc_span rest = text, name, part;
    if (!qc_split(&rest, '=', &name) || rest.n == 0) return "an attribute has no value";
    rest = qc_trim(rest);
    if (qc_is(name, "sub")) return parse_sub(c, rest);
    if (c->n_field == QC_MAX_FIELD) return "too many attributes";
    qc_field *f = &c->field[c->n_field++];
    *f = (qc_field){find_attr(info, name), -1, rest};
    if (f->attr < 0) return "the op has no such attribute";
    int n = 0;
    for (; qc_split(&rest, '|', &part); n++) {
        if (info->attr[f->attr].kind != QN_ATTR_KIND_dtype) continue;
        const char *why = is_variable(part) ? add_variable(c, part.at[0], ~(uint64_t)0) : NULL;
        if (why) return why;
    }
    if (n > 1) {
        if (c->n_axis == QC_MAX_AXIS) return "too many things to enumerate";
        c->axis[c->n_axis].n = n;
        f->axis = c->n_axis++;
    }
    return NULL;
}

qc_span qc_field_choice(const qc_case *c, const qc_draw *d, int field) {
    const qc_field *f = &c->field[field];
    if (f->axis < 0) return f->value;
    qc_span rest = f->value, part = {NULL, 0};
    for (int i = 0; i <= d->choice[f->axis]; i++) qc_split(&rest, '|', &part);
    return part;
}

const char *qc_case_parse(qc_case *c) {
    qc_span rest = {c->sources, (int)strlen(c->sources)}, part;
    const char *why;
    c->lead_room = c->sub_axis = -1;
    for (rest = qc_trim(rest); qc_split(&rest, ' ', &part);) {
        if (part.n == 0) continue;
        if (c->n_src == QN_MAX_SRC) return "too many sources";
        if ((why = parse_item(c, c->n_src, part))) return why;
        c->n_src++;
    }
    rest = qc_trim((qc_span){c->attributes, (int)strlen(c->attributes)});
    while (qc_split(&rest, ' ', &part))
        if (part.n && (why = parse_field(c, part))) return why;
    c->n_variant = 1;
    for (int i = 0; i < c->n_axis; i++) c->n_variant *= c->axis[i].n;
    return NULL;
}
