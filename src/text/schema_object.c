/* Objects: members in the order of the schema, optional ones there or not. For each place among the members there are two
 * rules, one where a comma is due before the next and one where not, so n optional members cost 2 n rules and not 2 to the n. */
#include "text/schema.h"
#include "text/utf8.h"

enum { MOST_MEMBERS = 4096, MOST_PARTS = 64 };

typedef struct member {
    qn_text name;
    const json_node *schema; /* NULL: any value */
    int required;
} member;

typedef struct object_parts { /* of a schema and its allOf */
    QN_VEC(member) members;
    const json_node *extra;  /* additionalProperties */
    const json_node *limits; /* the part that says what other members there may be */
    int closed, open, parts;
} object_parts;

static int same(qn_text a, qn_text b) { return a.length == b.length && memcmp(a.at, b.at, a.length) == 0; }

static qn_status add_member(schema_writer *w, object_parts *o, qn_text name, const json_node *schema, int required) {
    for (size_t i = 0; i < o->members.n; i++) {
        member *m = &o->members.at[i];
        if (!same(m->name, name)) continue;
        if (schema && m->schema && m->schema != schema)
            return qn_text_schema_fault(w, "allOf that says two things of one property is not known");
        if (schema) m->schema = schema;
        m->required |= required;
        return QN_OK;
    }
    if (o->members.n >= MOST_MEMBERS) return qn_text_schema_fault(w, "an object of more than %d properties", MOST_MEMBERS);
    if (!QN_VEC_ROOM(w->arena, &o->members, 1)) return qn_error_set(w->error, QN_NO_MEMORY, "no memory for the schema");
    o->members.at[o->members.n++] = (member){name, schema, required};
    return QN_OK;
}

/* additionalProperties, and unevaluatedProperties where it says the same. */
static qn_status gather_extra(schema_writer *w, object_parts *o, const json_node *s) {
    const json_node *extra = qn_text_json_get(s, "additionalProperties"), *left = qn_text_json_get(s, "unevaluatedProperties");
    if (left) o->closed = 1; /* it is false, or it were refused */
    if (left && o->parts > 1) extra = left;
    if (!extra) return QN_OK;
    if (extra->kind == JSON_BOOL && extra->integer) return o->open = 1, QN_OK;
    if (o->limits) return qn_text_schema_fault(w, "allOf that says twice what other properties there may be is not known");
    o->limits = s;
    if (extra->kind == JSON_BOOL) o->closed = 1;
    else o->open = 1, o->extra = extra->kind == JSON_OBJECT ? extra : NULL;
    return QN_OK;
}

static qn_status gather(schema_writer *w, object_parts *o, const json_node *s) {
    const json_node *ref = qn_text_json_get(s, "$ref"), *all = qn_text_json_get(s, "allOf");
    const json_node *properties = qn_text_json_get(s, "properties"), *required = qn_text_json_get(s, "required");
    if (++o->parts > MOST_PARTS) return qn_text_schema_fault(w, "allOf of more than %d parts, or of itself", MOST_PARTS);
    qn_status status = o->parts > 1 || all ? qn_text_schema_check_part(w, s) : QN_OK;
    if (status == QN_OK && ref && ref->kind == JSON_STRING) {
        status = qn_text_schema_resolve(w, ref->text, &s);
        return status == QN_OK ? gather(w, o, s) : status; /* as deep as there are parts */
    }
    for (const json_node *p = properties && properties->kind == JSON_OBJECT ? properties->first : NULL; p && status == QN_OK;
         p = p->next)
        status = add_member(w, o, p->key, p, 0);
    for (const json_node *r = required && required->kind == JSON_LIST ? required->first : NULL; r && status == QN_OK; r = r->next)
        if (r->kind == JSON_STRING) status = add_member(w, o, r->text, NULL, 1);
    for (const json_node *a = all && all->kind == JSON_LIST ? all->first : NULL; a && status == QN_OK; a = a->next)
        status = gather(w, o, a);
    return status == QN_OK ? gather_extra(w, o, s) : status;
}

/* What additionalProperties of one part says of members that only other parts, or nobody, have named. */
static qn_status settle_extra(schema_writer *w, object_parts *o) {
    const json_node *named = o->limits ? qn_text_json_get(o->limits, "properties") : NULL;
    for (size_t i = 0; i < o->members.n; i++) {
        member *m = &o->members.at[i];
        const json_node *own = named && named->kind == JSON_OBJECT ? named->first : NULL;
        if (o->closed && !m->schema) return qn_error_set(w->error, QN_INVALID, "schema: a property is required and not allowed");
        if (!o->limits) continue;
        if (!m->schema) m->schema = o->extra;
        while (o->parts > 1 && own && !same(own->key, m->name)) own = own->next;
        if (o->parts > 1 && !own)
            return qn_text_schema_fault(w, "allOf in which only some parts say what other properties there may be is not known");
    }
    return QN_OK;
}

/* ---- Names that are none of the members': a tree of the members' names, one rule for each of its nodes. */

typedef struct name_node { /* names[from .. to) share their first `depth` bytes */
    size_t from, to, depth;
} name_node;

static void sort_names(const object_parts *o, qn_text *names) {
    for (size_t n = 0; n < o->members.n; n++) {
        qn_text name = o->members.at[n].name;
        size_t k = n;
        for (; k > 0; k--) {
            qn_text before = names[k - 1];
            size_t least = before.length < name.length ? before.length : name.length;
            int order = least ? memcmp(before.at, name.at, least) : 0;
            if (order < 0 || (order == 0 && before.length <= name.length)) break;
            names[k] = before;
        }
        names[k] = name;
    }
}

/* Characters that have short escapes, in the order of their letters: "\\bfnrt. */
static const char SHORT_ESCAPES[] = "\"\\\b\f\n\r\t";

typedef struct name_tree {
    const qn_text *names;
    QN_VEC(name_node) nodes; /* the n-th is rule "s-N-k<n>"; those behind the one being written wait for their turn */
} name_tree;

/* The characters that go on to longer names, as branches to their nodes, which join the queue. Of the escapes that other names may
 * begin with here, those that are such a character are struck out. */
static qn_status put_branches(schema_writer *w, name_tree *tree, name_node at, char *escapes) {
    qn_status status = QN_OK;
    size_t i = at.from;
    while (i < at.to && tree->names[i].length == at.depth) i++;
    while (i < at.to && status == QN_OK) {
        uint32_t code;
        qn_text name = tree->names[i];
        size_t size = qn_text_utf8_read(name.at + at.depth, name.length - at.depth, &code), from = i;
        if (!size) return qn_error_set(w->error, QN_INVALID, "schema: a property whose name is no text");
        while (i < at.to && tree->names[i].length >= at.depth + size &&
               memcmp(tree->names[i].at + at.depth, name.at + at.depth, size) == 0)
            i++;
        if (!QN_VEC_ROOM(w->arena, &tree->nodes, 1)) return qn_error_set(w->error, QN_NO_MEMORY, "no memory for the schema");
        char *struck = code && code < 0x80 ? strchr(SHORT_ESCAPES, (int)code) : NULL;
        if (struck) escapes[struck - SHORT_ESCAPES] = ' ';
        status = qn_text_schema_put(w, "\"");
        if (status == QN_OK) status = qn_text_schema_inside(w, (qn_text){name.at + at.depth, size});
        if (status == QN_OK) status = qn_text_schema_put(w, "\" s-%zu-k%zu | ", w->now, tree->nodes.n);
        tree->nodes.at[tree->nodes.n++] = (name_node){from, i, at.depth + size};
    }
    return status;
}

/* Any other character, behind which every name is another one. It is written in one way only, as no branch must be slipped past. */
static qn_status put_other_character(schema_writer *w, const name_tree *tree, size_t first, size_t depth, const char *escapes) {
    qn_status status = qn_text_schema_put(w, "([^\"\\\\\\x7F\\x00-\\x1F");
    for (size_t i = first; i < tree->nodes.n && status == QN_OK; i++) {
        uint32_t code = 0;
        const name_node *child = &tree->nodes.at[i];
        qn_text_utf8_read(tree->names[child->from].at + depth, child->depth - depth, &code);
        status = qn_text_schema_put(w, "\\U%08X", code);
    }
    if (status == QN_OK) status = qn_text_schema_put(w, "]");
    for (size_t i = 0; escapes[i] && status == QN_OK; i++)
        if (escapes[i] != ' ')
            status = qn_text_schema_put(w, " | \"\\\\%s%c\"", strchr("\"\\", escapes[i]) ? "\\" : "", escapes[i]);
    return status == QN_OK ? qn_text_schema_put(w, ") %s*", qn_text_schema_rule(w, "char")) : status;
}

/* Rules "s-N-k0" on: on to a longer name by its next character, by any other to freedom, or to the end where no name ends. */
static qn_status put_other_names(schema_writer *w, const object_parts *o) {
    qn_text *names = qn_arena_alloc(w->arena, o->members.n + 1, sizeof *names);
    name_tree tree = {.names = names};
    if (!names || !QN_VEC_ROOM(w->arena, &tree.nodes, 1)) return qn_error_set(w->error, QN_NO_MEMORY, "no memory for the schema");
    sort_names(o, names);
    tree.nodes.at[tree.nodes.n++] = (name_node){0, o->members.n, 0};
    qn_status status = QN_OK;
    for (size_t i = 0; i < tree.nodes.n && status == QN_OK; i++) {
        name_node at = tree.nodes.at[i];
        size_t first = tree.nodes.n;
        char escapes[] = "\"\\bfnrt";
        status = qn_text_schema_put(w, "\ns-%zu-k%zu ::= ", w->now, i);
        if (status == QN_OK) status = put_branches(w, &tree, at, escapes);
        if (status == QN_OK) status = put_other_character(w, &tree, first, at.depth, escapes);
        int ends = at.from < at.to && names[at.from].length == at.depth;
        if (status == QN_OK && !ends) status = qn_text_schema_put(w, " | \"\"");
    }
    return status;
}

/* ---- Members */

static qn_status put_value(schema_writer *w, const json_node *schema) {
    return schema ? qn_text_schema_use(w, schema, NULL) : qn_text_schema_put(w, "%s", qn_text_schema_rule(w, "value"));
}

/* "s-N-p<i>-<comma>": from the i-th member to the end. */
static qn_status put_place(schema_writer *w, const member *m, size_t i, int comma) {
    const char *space = qn_text_schema_rule(w, "space");
    qn_status status = qn_text_schema_put(w, "\ns-%zu-p%zu-%d ::= ", w->now, i, comma);
    if (status == QN_OK && comma) status = qn_text_schema_put(w, "\",\" %s ", space);
    if (status == QN_OK) status = qn_text_schema_quoted(w, m->name);
    if (status == QN_OK) status = qn_text_schema_put(w, " %s \":\" %s ", space, space);
    if (status == QN_OK) status = put_value(w, m->schema);
    if (status == QN_OK) status = qn_text_schema_put(w, " %s s-%zu-p%zu-1", space, w->now, i + 1);
    if (status == QN_OK && !m->required) status = qn_text_schema_put(w, " | s-%zu-p%zu-%d", w->now, i + 1, comma);
    return status;
}

/* The last place: members that the schema does not name, if there may be any. */
static qn_status put_last(schema_writer *w, const object_parts *o, int comma) {
    const char *space = qn_text_schema_rule(w, "space");
    size_t n = o->members.n, now = w->now;
    qn_status status = qn_text_schema_put(w, "\ns-%zu-p%zu-%d ::= ", now, n, comma);
    if (status != QN_OK || o->closed || !o->open) return status == QN_OK ? qn_text_schema_put(w, "\"\"") : status;
    if (comma) return qn_text_schema_put(w, "(\",\" %s s-%zu-other)*", space, now);
    return qn_text_schema_put(w, "(s-%zu-other (\",\" %s s-%zu-other)*)?", now, space, now);
}

qn_status qn_text_schema_object(schema_writer *w, const json_node *s) {
    object_parts o = {0};
    qn_status status = gather(w, &o, s);
    if (status != QN_OK) return status;
    status = settle_extra(w, &o);
    if (status != QN_OK) return status;
    if (!o.members.n && !o.closed && !o.extra) return qn_text_schema_put(w, "%s", qn_text_schema_rule(w, "object"));
    const char *space = qn_text_schema_rule(w, "space");
    status = qn_text_schema_put(w, "\"{\" %s s-%zu-p0-0 \"}\"", space, w->now);
    for (size_t i = 0; i < o.members.n && status == QN_OK; i++) {
        status = put_place(w, &o.members.at[i], i, 0);
        if (status == QN_OK && i > 0) status = put_place(w, &o.members.at[i], i, 1);
    }
    if (status == QN_OK) status = put_last(w, &o, 0);
    if (status == QN_OK && o.members.n) status = put_last(w, &o, 1);
    if (status != QN_OK || o.closed || !o.open) return status;
    status = qn_text_schema_put(w, "\ns-%zu-other ::= \"\\\"\" s-%zu-k0 \"\\\"\" %s \":\" %s ", w->now, w->now, space, space);
    if (status == QN_OK) status = put_value(w, o.extra);
    if (status == QN_OK) status = qn_text_schema_put(w, " %s", space);
    return status == QN_OK ? put_other_names(w, &o) : status;
}
