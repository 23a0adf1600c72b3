/* JSON schema to grammar: types, enum, const, properties, items, references and choices. What would change which documents are
 * valid and is not known is refused by name, never passed over. */
#include "text/schema.h"

#include <stdarg.h>
#include <stdio.h>

enum { MOST_USES = 1 << 14, MOST_LOOKS = 1 << 10 };

typedef struct own_rule {
    const char *name, *body, *needs;
} own_rule;

static const own_rule RULES[] = {
#define QN_SCHEMA_RULE(name, body, needs) {name, body, needs},
#include "text/schema_rules.def"
#undef QN_SCHEMA_RULE
};
enum { N_RULES = sizeof RULES / sizeof *RULES };

qn_status qn_text_schema_put(schema_writer *w, const char *format, ...) {
    char piece[512];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(piece, sizeof piece, format, args);
    va_end(args);
    if (n < 0 || (size_t)n >= sizeof piece || w->out.n + (size_t)n > GRAMMAR_MOST_TEXT)
        return qn_error_set(w->error, QN_INVALID, "schema: the grammar it gives is longer than %d bytes", GRAMMAR_MOST_TEXT);
    if (!QN_VEC_ROOM(w->arena, &w->out, (size_t)n))
        return qn_error_set(w->error, QN_NO_MEMORY, "no memory for the schema's grammar");
    memcpy(w->out.at + w->out.n, piece, (size_t)n);
    w->out.n += (size_t)n;
    return QN_OK;
}

qn_status qn_text_schema_fault(schema_writer *w, const char *format, ...) {
    char text[300];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return qn_error_set(w->error, QN_UNSUPPORTED, "schema: %s", text);
}

const char *qn_text_schema_rule(schema_writer *w, const char *name) {
    for (size_t i = 0; i < N_RULES; i++) {
        if (strcmp(RULES[i].name, name) != 0 || w->needs >> i & 1) continue;
        w->needs |= 1u << i;
        for (const char *p = RULES[i].needs; *p;) { /* as deep as the table is long, at most */
            char one[16];
            size_t n = strcspn(p, " ");
            memcpy(one, p, n);
            one[n] = 0;
            qn_text_schema_rule(w, one);
            p += n + (p[n] == ' ');
        }
    }
    return name;
}

qn_status qn_text_schema_use(schema_writer *w, const json_node *schema, const char *type) {
    size_t i = w->uses.n;
    while (i > 0 && (w->uses.at[i - 1].schema != schema || w->uses.at[i - 1].type != type)) i--;
    if (i > 0) return qn_text_schema_put(w, "s-%zu", i - 1);
    if (w->uses.n >= MOST_USES) return qn_text_schema_fault(w, "it consists of more than %d schemas", MOST_USES);
    if (!QN_VEC_ROOM(w->arena, &w->uses, 1)) return qn_error_set(w->error, QN_NO_MEMORY, "no memory for the schema");
    w->uses.at[w->uses.n++] = (schema_use){schema, type};
    return qn_text_schema_put(w, "s-%zu", w->uses.n - 1);
}

/* ---- References */

static int same_key(qn_text key, const char *at, size_t n) { /* with ~0 and ~1 of pointers */
    size_t k = 0;
    for (size_t i = 0; i < n; i++, k++) {
        char c = at[i];
        if (c == '~' && i + 1 < n) c = at[++i] == '1' ? '/' : '~';
        if (k >= key.length || key.at[k] != c) return 0;
    }
    return k == key.length;
}

static const json_node *step(const json_node *from, const char *at, size_t n) {
    const json_node *found = NULL;
    size_t index = 0;
    for (const json_node *m = from->kind == JSON_OBJECT ? from->first : NULL; m; m = m->next)
        if (same_key(m->key, at, n)) found = m;
    if (from->kind != JSON_LIST || n == 0 || n > 9) return found;
    for (size_t i = 0; i < n; i++) {
        if (at[i] < '0' || at[i] > '9') return NULL;
        index = index * 10 + (size_t)(at[i] - '0');
    }
    for (found = from->first; found && index; index--) found = found->next;
    return found;
}

qn_status qn_text_schema_resolve(schema_writer *w, qn_text ref, const json_node **target) {
    const json_node *at = w->root;
    const char *p = ref.at + 1, *end = ref.at + ref.length;
    int shown = ref.length > 80 ? 80 : (int)ref.length;
    if (ref.length == 0 || *ref.at != '#')
        return qn_text_schema_fault(w, "$ref '%.*s': only references into the same document, which start with '#', are known",
                                    shown, ref.at);
    while (p < end && at) {
        const char *from = p + 1;
        if (*p != '/') from = NULL;
        for (p++; p < end && *p != '/';) p++;
        at = from ? step(at, from, (size_t)(p - from)) : NULL;
    }
    *target = at;
    return at ? QN_OK : qn_error_set(w->error, QN_INVALID, "schema: $ref '%.*s' leads nowhere", shown, ref.at);
}

/* ---- Schemas, each as the body of its rule */

qn_status qn_text_schema_count(schema_writer *w, const json_node *s, const char *key, int64_t standard, int64_t *count) {
    const json_node *v = qn_text_json_get(s, key);
    *count = standard;
    if (!v) return QN_OK;
    if ((v->kind != JSON_INT && v->kind != JSON_FLOAT) || !(v->number >= 0) || v->number != floor(v->number))
        return qn_error_set(w->error, QN_INVALID, "schema: %s is no number of things", key);
    if (v->number > GRAMMAR_MOST_REPEAT) return qn_text_schema_fault(w, "%s is above %d", key, GRAMMAR_MOST_REPEAT);
    *count = (int64_t)v->number;
    return QN_OK;
}

static qn_status put_number(schema_writer *w, const json_node *s) {
    static const char *const BOUNDS[] = {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"};
    for (size_t i = 0; i < sizeof BOUNDS / sizeof *BOUNDS; i++)
        if (qn_text_json_get(s, BOUNDS[i]))
            return qn_text_schema_fault(w, "%s of a number is not known, only of an integer", BOUNDS[i]);
    return qn_text_schema_put(w, "%s", qn_text_schema_rule(w, "number"));
}

/* Items behind the fixed ones: each with a comma before it, but for the first of a list without fixed ones. */
static qn_status put_items(schema_writer *w, const json_node *items, int64_t fixed, int64_t least, int64_t most) {
    const char *space = qn_text_schema_rule(w, "space"), *any = "value";
    qn_status status = QN_OK;
    int64_t more_least = least > fixed ? least - fixed : 0, more_most = most < 0 ? -1 : most - fixed;
    if (more_most == 0) return QN_OK;
    if (!fixed) {
        status = qn_text_schema_put(w, " (");
        if (status == QN_OK)
            status = items ? qn_text_schema_use(w, items, NULL) : qn_text_schema_put(w, "%s", qn_text_schema_rule(w, any));
        if (status == QN_OK) status = qn_text_schema_put(w, " %s", space);
        if (more_most > 0) more_most--;
    }
    if (status == QN_OK) status = qn_text_schema_put(w, " (\",\" %s ", space);
    if (status == QN_OK)
        status = items ? qn_text_schema_use(w, items, NULL) : qn_text_schema_put(w, "%s", qn_text_schema_rule(w, any));
    int64_t rest_least = fixed || !more_least ? more_least : more_least - 1;
    if (status == QN_OK) status = qn_text_schema_put(w, " %s){%lld,", space, (long long)rest_least);
    if (status == QN_OK)
        status = more_most < 0 ? qn_text_schema_put(w, "}") : qn_text_schema_put(w, "%lld}", (long long)more_most);
    if (status == QN_OK && !fixed) status = qn_text_schema_put(w, more_least ? ")" : ")?");
    return status;
}

static qn_status put_list(schema_writer *w, const json_node *s) {
    const json_node *items = qn_text_json_get(s, "items"), *prefix = qn_text_json_get(s, "prefixItems");
    int64_t least, most, fixed = 0;
    if (items && items->kind == JSON_LIST)
        prefix = items, items = qn_text_json_get(s, "additionalItems"); /* as older drafts say it */
    qn_status status = qn_text_schema_count(w, s, "minItems", 0, &least);
    if (status == QN_OK) status = qn_text_schema_count(w, s, "maxItems", -1, &most);
    if (status == QN_OK) status = qn_text_schema_put(w, "\"[\" %s", qn_text_schema_rule(w, "space"));
    for (const json_node *p = prefix && prefix->kind == JSON_LIST ? prefix->first : NULL; p && status == QN_OK;
         p = p->next, fixed++) {
        if (fixed) status = qn_text_schema_put(w, " \",\" %s", qn_text_schema_rule(w, "space"));
        if (status == QN_OK) status = qn_text_schema_put(w, " ");
        if (status == QN_OK) status = qn_text_schema_use(w, p, NULL);
        if (status == QN_OK) status = qn_text_schema_put(w, " %s", qn_text_schema_rule(w, "space"));
    }
    if (status != QN_OK) return status;
    int closed = (items && items->kind == JSON_BOOL && !items->integer) ||
                 (!items && (prefix || qn_text_json_get(s, "unevaluatedItems"))); /* which is false, or it were refused */
    if (closed && most < 0) most = fixed;
    if (closed && most > fixed) most = fixed;
    if (most >= 0 && (most < least || most < fixed))
        return qn_error_set(w->error, QN_INVALID, "schema: a list with more items than it may have");
    status = put_items(w, items, fixed, least, most);
    return status == QN_OK ? qn_text_schema_put(w, " \"]\"") : status;
}

static qn_status put_typed(schema_writer *w, const json_node *s, const char *type) {
    if (strcmp(type, "object") == 0) return qn_text_schema_object(w, s);
    if (strcmp(type, "array") == 0) return put_list(w, s);
    if (strcmp(type, "string") == 0) return qn_text_schema_string(w, s);
    if (strcmp(type, "integer") == 0) return qn_text_schema_integer(w, s);
    if (strcmp(type, "number") == 0) return put_number(w, s);
    return qn_text_schema_put(w, "%s", qn_text_schema_rule(w, type));
}

static const char *const TYPES[] = {"object", "array", "string", "integer", "number", "boolean", "null"};
enum { N_TYPES = sizeof TYPES / sizeof *TYPES };

/* The name of a type, from the table, so that names can be compared as pointers; NULL: none. */
static const char *type_named(const json_node *v) {
    for (size_t i = 0; v && v->kind == JSON_STRING && i < sizeof TYPES / sizeof *TYPES; i++)
        if (qn_text_json_is(v->text, TYPES[i])) return TYPES[i];
    return NULL;
}

/* The type that keywords speak of where none is named; NULL: any. */
static const char *type_implied(const json_node *s) {
    static const char *const SAYS[][2] = {{"properties", "object"},      {"additionalProperties", "object"},
                                          {"required", "object"},        {"items", "array"},
                                          {"prefixItems", "array"},      {"minItems", "array"},
                                          {"maxItems", "array"},         {"pattern", "string"},
                                          {"minLength", "string"},       {"maxLength", "string"},
                                          {"format", "string"},          {"additionalItems", "array"},
                                          {"minimum", "integer"},        {"exclusiveMinimum", "integer"},
                                          {"maximum", "integer"},        {"exclusiveMaximum", "integer"},
                                          {"unevaluatedItems", "array"}, {"unevaluatedProperties", "object"}};
    for (size_t i = 0; i < sizeof SAYS / sizeof *SAYS; i++) {
        if (!qn_text_json_get(s, SAYS[i][0])) continue;
        for (size_t k = 0; k < sizeof TYPES / sizeof *TYPES; k++)
            if (strcmp(TYPES[k], SAYS[i][1]) == 0) return TYPES[k];
    }
    return NULL;
}

/* Keywords that say something this does not know how to say; some of them say nothing, or what is heard elsewhere, when false. */
static qn_status check_keywords(schema_writer *w, const json_node *s) {
    static const char *const UNKNOWN[] = {"uniqueItems",
                                          "unevaluatedProperties",
                                          "unevaluatedItems",
                                          "not",
                                          "if",
                                          "then",
                                          "else",
                                          "patternProperties",
                                          "contains",
                                          "minContains",
                                          "maxContains",
                                          "propertyNames",
                                          "minProperties",
                                          "maxProperties",
                                          "multipleOf",
                                          "dependentRequired",
                                          "dependentSchemas",
                                          "dependencies",
                                          "$dynamicRef",
                                          "$recursiveRef"};
    enum { MAY_BE_FALSE = 4 };
    for (const json_node *m = s->first; m; m = m->next)
        for (size_t i = 0; i < sizeof UNKNOWN / sizeof *UNKNOWN; i++)
            if (qn_text_json_is(m->key, UNKNOWN[i]) && !(i < MAY_BE_FALSE && m->kind == JSON_BOOL && !m->integer))
                return qn_text_schema_fault(w, "the keyword '%s' is not known", UNKNOWN[i]);
    return QN_OK;
}

/* Words that change which documents are valid. */
static const char *const SPEAK[] = {"type",
                                    "$ref",
                                    "enum",
                                    "const",
                                    "oneOf",
                                    "anyOf",
                                    "allOf",
                                    "items",
                                    "prefixItems",
                                    "additionalItems",
                                    "minItems",
                                    "maxItems",
                                    "pattern",
                                    "minLength",
                                    "maxLength",
                                    "format",
                                    "minimum",
                                    "maximum",
                                    "exclusiveMinimum",
                                    "exclusiveMaximum",
                                    "properties",
                                    "required",
                                    "additionalProperties"};
enum { N_SPEAK = sizeof SPEAK / sizeof *SPEAK, N_SPEAK_OF_OTHERS = N_SPEAK - 3 }; /* the last ones are of objects */

/* Beside a reference or a choice only words may stand that change nothing. */
static qn_status check_alone(schema_writer *w, const json_node *s, const char *key, const char *also, const char *too) {
    for (const json_node *m = s->first; m; m = m->next)
        for (size_t i = 0; i < N_SPEAK; i++)
            if (qn_text_json_is(m->key, SPEAK[i]) && !qn_text_json_is(m->key, key) && !qn_text_json_is(m->key, also) &&
                !qn_text_json_is(m->key, too))
                return qn_text_schema_fault(w, "'%s' together with '%s' is not known", key, SPEAK[i]);
    return QN_OK;
}

qn_status qn_text_schema_check_part(schema_writer *w, const json_node *s) {
    const json_node *type = qn_text_json_get(s, "type"), object = {.kind = JSON_OBJECT};
    if (s->kind == JSON_BOOL && s->integer) return QN_OK;
    if (s->kind != JSON_OBJECT)
        return qn_error_set(w->error, QN_INVALID, "schema: a part of allOf that allows no document, or is no schema");
    qn_status status = check_keywords(w, s);
    if (status == QN_OK && qn_text_json_get(s, "$ref")) return check_alone(w, s, "$ref", "", "");
    int others = !qn_text_schema_is_typed(&object, type);
    for (size_t i = 2; i < N_SPEAK_OF_OTHERS; i++) others |= strcmp(SPEAK[i], "allOf") != 0 && qn_text_json_get(s, SPEAK[i]);
    return status != QN_OK || !others ? status : qn_text_schema_fault(w, "allOf of anything but objects is not known");
}

/* Values of enum, those that are of the type. */
static qn_status put_values(schema_writer *w, const json_node *list, const json_node *type) {
    qn_status status = QN_OK;
    int n = 0;
    for (const json_node *v = list->kind == JSON_LIST ? list->first : NULL; v && status == QN_OK; v = v->next) {
        if (!qn_text_schema_is_typed(v, type)) continue;
        if (n++) status = qn_text_schema_put(w, " | ");
        if (status == QN_OK) status = qn_text_schema_value(w, v);
    }
    return n || status != QN_OK ? status : qn_error_set(w->error, QN_INVALID, "schema: a choice among nothing");
}

static qn_status put_constant(schema_writer *w, const json_node *value, const json_node *list, const json_node *type) {
    int fits = qn_text_schema_is_typed(value, type) && !list;
    for (const json_node *v = list && list->kind == JSON_LIST ? list->first : NULL; v; v = v->next)
        fits |= qn_text_schema_same(value, v) && qn_text_schema_is_typed(value, type);
    return fits ? qn_text_schema_value(w, value)
                : qn_error_set(w->error, QN_INVALID, "schema: a const that its own schema does not allow");
}

/* Whether all that an option allows is of the type that stands beside the choice. A reference that leads nowhere is told when its turn
 * comes. */
static int is_within(schema_writer *w, const json_node *option, const json_node *type, int *left) {
    static const char *const CHOICES[] = {"enum", "anyOf", "oneOf"};
    const json_node *ref = qn_text_json_get(option, "$ref"), *value = qn_text_json_get(option, "const"),
                    *own = qn_text_json_get(option, "type");
    const json_node *target = NULL;
    if (--*left < 0) return 0; /* references may lead anywhere, again and again */
    if (ref && ref->kind == JSON_STRING)
        return qn_text_schema_resolve(w, ref->text, &target) == QN_OK && is_within(w, target, type, left);
    if (value) return qn_text_schema_is_typed(value, type);
    for (size_t i = 0; i < sizeof CHOICES / sizeof *CHOICES; i++) {
        const json_node *list = qn_text_json_get(option, CHOICES[i]);
        for (const json_node *c = list && list->kind == JSON_LIST ? list->first : NULL; c; c = c->next)
            if (!(i == 0 ? qn_text_schema_is_typed(c, type) : is_within(w, c, type, left))) return 0;
        if (list) return 1;
    }
    const char *implied = own ? NULL : qn_text_json_get(option, "allOf") ? "object" : type_implied(option);
    const json_node name = {.kind = JSON_STRING, .text = {implied ? implied : "", implied ? strlen(implied) : 0}};
    if (!own) own = &name;
    int found = qn_text_schema_same(own, type);
    for (const json_node *t = type->kind == JSON_LIST ? type->first : NULL; t; t = t->next) found |= qn_text_schema_same(own, t);
    return found;
}

static qn_status put_choice(schema_writer *w, const json_node *list, const json_node *type) {
    qn_status status = list->kind == JSON_LIST && list->n ? QN_OK
                                                          : qn_error_set(w->error, QN_INVALID, "schema: a choice among nothing");
    for (const json_node *c = list->first; c && status == QN_OK; c = c->next) {
        int left = MOST_LOOKS;
        if (type && !is_within(w, c, type, &left))
            return qn_text_schema_fault(w, "a choice beside a type that its options do not name as well is not known");
        if (c != list->first) status = qn_text_schema_put(w, " | ");
        if (status == QN_OK) status = qn_text_schema_use(w, c, NULL);
    }
    return status;
}

static qn_status put_types(schema_writer *w, const json_node *s, const json_node *types) {
    qn_status status = types->n ? QN_OK : qn_error_set(w->error, QN_INVALID, "schema: a list of no types");
    for (const json_node *t = types->first; t && status == QN_OK; t = t->next) {
        const char *type = type_named(t);
        if (!type) return qn_error_set(w->error, QN_INVALID, "schema: a type that JSON does not have");
        if (t != types->first) status = qn_text_schema_put(w, " | ");
        if (status == QN_OK) status = qn_text_schema_use(w, s, type);
    }
    return status;
}

/* What says by itself which documents there are, but for a type beside it. */
static qn_status put_alone(schema_writer *w, const json_node *s) {
    const json_node *constant = qn_text_json_get(s, "const"), *list = qn_text_json_get(s, "enum"),
                    *one = qn_text_json_get(s, "oneOf"), *any = qn_text_json_get(s, "anyOf"), *type = qn_text_json_get(s, "type");
    const char *key = constant ? "const" : list ? "enum" : one ? "oneOf" : "anyOf";
    qn_status status = check_alone(w, s, key, "type", constant ? "enum" : "");
    if (status != QN_OK) return status;
    if (type && type->n > N_TYPES) return qn_error_set(w->error, QN_INVALID, "schema: a list of types that names one twice");
    if (constant) return put_constant(w, constant, list, type);
    return list ? put_values(w, list, type) : put_choice(w, one ? one : any, type);
}

static qn_status put_schema(schema_writer *w, const json_node *s) {
    if (s->kind == JSON_BOOL && s->integer) return qn_text_schema_put(w, "%s", qn_text_schema_rule(w, "value"));
    if (s->kind != JSON_OBJECT)
        return qn_error_set(w->error, QN_INVALID,
                            s->kind == JSON_BOOL ? "schema: 'false' allows no document" : "schema: something that is no schema");
    static const char *const ALONE[] = {"const", "enum", "oneOf", "anyOf"};
    const json_node *ref = qn_text_json_get(s, "$ref"), *type = qn_text_json_get(s, "type");
    const char *name = type_named(type);
    qn_status status = check_keywords(w, s);
    if (status != QN_OK) return status;
    if (ref && ref->kind == JSON_STRING) {
        const json_node *target = NULL;
        status = check_alone(w, s, "$ref", "", "");
        if (status == QN_OK) status = qn_text_schema_resolve(w, ref->text, &target);
        return status == QN_OK ? qn_text_schema_use(w, target, NULL) : status;
    }
    for (size_t i = 0; i < sizeof ALONE / sizeof *ALONE; i++)
        if (qn_text_json_get(s, ALONE[i])) return put_alone(w, s);
    if (qn_text_json_get(s, "allOf")) return qn_text_schema_object(w, s);
    if (type && type->kind == JSON_LIST) return put_types(w, s, type);
    if (type && !name) return qn_error_set(w->error, QN_INVALID, "schema: a type that JSON does not have");
    if (!name) name = type_implied(s);
    if (!name) return qn_text_schema_put(w, "%s", qn_text_schema_rule(w, "value"));
    return put_typed(w, s, name);
}

qn_status qn_text_schema_to_grammar(qn_arena *arena, qn_text schema, qn_text *out, qn_error *error) {
    json_node *root = NULL;
    qn_status status = qn_text_json_parse(arena, schema, &root, error);
    if (status != QN_OK) return qn_error_wrap(error, "schema");
    schema_writer w = {.arena = arena, .root = root, .error = error};
    status = qn_text_schema_put(&w, "root ::= ");
    if (status == QN_OK) status = qn_text_schema_use(&w, root, NULL);
    for (w.now = 0; status == QN_OK && w.now < w.uses.n; w.now++) {
        schema_use use = w.uses.at[w.now];
        status = qn_text_schema_put(&w, "\ns-%zu ::= ", w.now);
        if (status == QN_OK) status = use.type ? put_typed(&w, use.schema, use.type) : put_schema(&w, use.schema);
    }
    for (size_t i = 0; i < N_RULES && status == QN_OK; i++)
        if (w.needs >> i & 1) status = qn_text_schema_put(&w, "\n%s ::= %s", RULES[i].name, RULES[i].body);
    *out = (qn_text){w.out.at, w.out.n};
    return status;
}
