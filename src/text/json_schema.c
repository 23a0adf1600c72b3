/* JSON schema to grammar: types, enum, const, properties, items, references and choices. What would change which documents are
 * valid and is not known is refused by name, never passed over. */
#include "text/schema.h"

#include <stdarg.h>
#include <stdio.h>

enum { MOST_USES = 1 << 14 };

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
    int closed = (items && items->kind == JSON_BOOL && !items->integer) || (prefix && !items);
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

/* The name of a type, from the table, so that names can be compared as pointers; NULL: none. */
static const char *type_named(const json_node *v) {
    for (size_t i = 0; v && v->kind == JSON_STRING && i < sizeof TYPES / sizeof *TYPES; i++)
        if (qn_text_json_is(v->text, TYPES[i])) return TYPES[i];
    return NULL;
}

/* The type that keywords speak of where none is named; NULL: any. */
static const char *type_implied(const json_node *s) {
    static const char *const SAYS[][2] = {{"properties", "object"}, {"additionalProperties", "object"},
                                          {"required", "object"},   {"items", "array"},
                                          {"prefixItems", "array"}, {"minItems", "array"},
                                          {"maxItems", "array"},    {"pattern", "string"},
                                          {"minLength", "string"},  {"maxLength", "string"},
                                          {"format", "string"}};
    for (size_t i = 0; i < sizeof SAYS / sizeof *SAYS; i++) {
        if (!qn_text_json_get(s, SAYS[i][0])) continue;
        for (size_t k = 0; k < sizeof TYPES / sizeof *TYPES; k++)
            if (strcmp(TYPES[k], SAYS[i][1]) == 0) return TYPES[k];
    }
    return NULL;
}

/* Keywords that say something this does not know how to say. */
static qn_status check_keywords(schema_writer *w, const json_node *s) {
    static const char *const UNKNOWN[] = {"not",
                                          "if",
                                          "then",
                                          "else",
                                          "patternProperties",
                                          "contains",
                                          "minContains",
                                          "maxContains",
                                          "uniqueItems",
                                          "propertyNames",
                                          "minProperties",
                                          "maxProperties",
                                          "multipleOf",
                                          "dependentRequired",
                                          "dependentSchemas",
                                          "dependencies",
                                          "$dynamicRef",
                                          "$recursiveRef",
                                          "unevaluatedProperties",
                                          "unevaluatedItems"};
    for (const json_node *m = s->first; m; m = m->next)
        for (size_t i = 0; i < sizeof UNKNOWN / sizeof *UNKNOWN; i++)
            if (qn_text_json_is(m->key, UNKNOWN[i]) && !(m->kind == JSON_BOOL && !m->integer))
                return qn_text_schema_fault(w, "the keyword '%s' is not known", UNKNOWN[i]);
    return QN_OK;
}

/* Beside a reference or a choice only words may stand that change nothing. */
static qn_status check_alone(schema_writer *w, const json_node *s, const char *key, const char *also) {
    static const char *const SPEAK[] = {"$ref",  "type",        "enum",       "const",     "oneOf",
                                        "anyOf", "allOf",       "properties", "required",  "additionalProperties",
                                        "items", "prefixItems", "pattern",    "minLength", "maxLength",
                                        "format"};
    for (const json_node *m = s->first; m; m = m->next)
        for (size_t i = 0; i < sizeof SPEAK / sizeof *SPEAK; i++)
            if (qn_text_json_is(m->key, SPEAK[i]) && !qn_text_json_is(m->key, key) && !qn_text_json_is(m->key, also))
                return qn_text_schema_fault(w, "'%s' together with '%s' is not known", key, SPEAK[i]);
    return QN_OK;
}

static qn_status put_choice(schema_writer *w, const json_node *list, int values) {
    qn_status status = list->kind == JSON_LIST && list->n ? QN_OK
                                                          : qn_error_set(w->error, QN_INVALID, "schema: a choice among nothing");
    for (const json_node *c = list->first; c && status == QN_OK; c = c->next) {
        if (c != list->first) status = qn_text_schema_put(w, " | ");
        if (status == QN_OK) status = values ? qn_text_schema_value(w, c) : qn_text_schema_use(w, c, NULL);
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

static qn_status put_schema(schema_writer *w, const json_node *s) {
    if (s->kind == JSON_BOOL && s->integer) return qn_text_schema_put(w, "%s", qn_text_schema_rule(w, "value"));
    if (s->kind != JSON_OBJECT)
        return qn_error_set(w->error, QN_INVALID,
                            s->kind == JSON_BOOL ? "schema: 'false' allows no document" : "schema: something that is no schema");
    const json_node *ref = qn_text_json_get(s, "$ref"), *one = qn_text_json_get(s, "oneOf"), *any = qn_text_json_get(s, "anyOf");
    const json_node *type = qn_text_json_get(s, "type"), *constant = qn_text_json_get(s, "const"),
                    *list = qn_text_json_get(s, "enum");
    const char *name = type_named(type);
    qn_status status = check_keywords(w, s);
    if (status != QN_OK) return status;
    if (ref && ref->kind == JSON_STRING) {
        const json_node *target = NULL;
        status = check_alone(w, s, "$ref", "");
        if (status == QN_OK) status = qn_text_schema_resolve(w, ref->text, &target);
        return status == QN_OK ? qn_text_schema_use(w, target, NULL) : status;
    }
    if (constant) return qn_text_schema_value(w, constant);
    if (list) return put_choice(w, list, 1);
    if (one || any) {
        status = check_alone(w, s, one ? "oneOf" : "anyOf", "type");
        return status == QN_OK ? put_choice(w, one ? one : any, 0) : status;
    }
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
