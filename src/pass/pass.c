/* The runner: passes in the order of the table, each looked at afterwards. */
#include "pass/pass.h"

#include <stdio.h>

#include "base/clock.h"
#include "pass/rules.h"

typedef struct pass {
    const char *name, *summary;
    qn_status (*run)(qn_pass_run *run, qn_graph **to);
} pass;

static const pass passes[] = {
#define QN_PASS(name, summary) {#name, summary, qn_pass_##name},
#define QN_PASS_RULE(name)
#include "pass/passes.def"
#undef QN_PASS
#undef QN_PASS_RULE
};

#define QN_PASS(name, summary)
#define QN_PASS_RULE(name) const char qn_pass_rule_##name[] = #name;
#include "pass/passes.def"
#undef QN_PASS_RULE

#define QN_PASS_RULE(name) qn_pass_rule_##name,
static const char *const rules[] = {
#include "pass/passes.def"
#undef QN_PASS
#undef QN_PASS_RULE
};

enum { N_PASSES = sizeof passes / sizeof *passes, N_RULES = sizeof rules / sizeof *rules };

static int is_named(const char *own, const char *name, size_t length) {
    return strlen(own) == length && memcmp(own, name, length) == 0;
}

static const pass *find(const char *name, size_t length) {
    for (int i = 0; i < N_PASSES; i++)
        if (is_named(passes[i].name, name, length)) return &passes[i];
    return NULL;
}

static int is_rule(const char *name, size_t length) {
    static const qn_rule_table *const tables[] = {&qn_rewrites, &qn_fusions};
    for (int i = 0; i < N_RULES; i++)
        if (is_named(rules[i], name, length)) return 1;
    for (size_t t = 0; t < sizeof tables / sizeof *tables; t++)
        for (int i = 0; i < tables[t]->n; i++)
            if (is_named(tables[t]->row[i].name, name, length)) return 1;
    return 0;
}

int qn_pass_listed(const char *list, const char *name) {
    size_t n = strlen(name);
    for (const char *at = list; at && *at;) {
        size_t length = strcspn(at, ",");
        if (length == n && memcmp(at, name, n) == 0) return 1;
        at += length + (at[length] == ',');
    }
    return 0;
}

int qn_pass_may(qn_pass_run *run, const char *rule, int32_t node) {
    if (qn_pass_listed(run->options->skip, rule) || (run->left && *run->left == 0)) return 0;
    if (run->left) --*run->left;
    run->changed++;
    if (run->options->note) run->options->note(run->options->user, &(qn_pass_note){run->name, rule, run->from, node, NULL});
    return 1;
}

void qn_pass_missed(qn_pass_run *run, const char *rule, int32_t node, const char *why) {
    if (run->options->note) run->options->note(run->options->user, &(qn_pass_note){run->name, rule, run->from, node, why});
}

/* A loop's or branch's bodies: what they update in place is their own. */
static int has_callbacks(const qn_graph *body) {
    for (size_t k = 0; k < body->nodes.n; k++) {
        const qn_ir_node *n = &body->nodes.at[k];
        const qn_op_info *info = qn_op_describe(n->op);
        for (int i = 0; i < info->n_attr; i++) {
            const qn_graph *inner = qn_ir_body(info, i, n->attr);
            if (info->attr[i].kind == QN_ATTR_KIND_fn || (inner && has_callbacks(inner))) return 1;
        }
    }
    return 0;
}

int qn_pass_claims(const qn_pass_run *run, int op, int subop, const qn_graph *g, const int32_t *nodes, int n) {
    const qn_pass_options *o = run->options;
    if (!o->claims || o->claims(o->claims_user, op, subop)) return 1;
    for (int i = 0; i < n; i++) {
        const qn_ir_node *part = &g->nodes.at[nodes[i]];
        if (!qn_op_describe(part->op)->is_view && o->claims(o->claims_user, part->op, part->subop)) return 0;
    }
    return 1;
}

int qn_pass_is_written_over(const qn_graph *g, const qn_ir_node *n) {
    const qn_ir_value *origin = &g->values.at[g->values.at[n->out].origin];
    return origin->kind == QN_VALUE_RESULT && origin->updated;
}

int qn_pass_is_pure(const qn_graph *g, const qn_ir_node *n) {
    const qn_op_info *info = qn_op_describe(n->op);
    for (int i = 0; i < n->n_out && !info->is_view; i++) /* a view makes nothing that could be written over */
        if (g->values.at[n->out + i].updated) return 0;
    for (int i = 0; i < info->n_src; i++)
        if (info->src[i].flags & QN_SLOT_STATE) return 0;
    for (int i = 0; i < info->n_attr; i++)
        if (info->attr[i].kind == QN_ATTR_KIND_fn ||
            (qn_ir_body(info, i, n->attr) && has_callbacks(qn_ir_body(info, i, n->attr))))
            return 0;
    return 1;
}

int qn_pass_has_op(const qn_graph *g, int op) {
    for (size_t k = 0; k < g->nodes.n; k++)
        if (g->nodes.at[k].op == op) return 1;
    return 0;
}

int qn_pass_try(qn_graph *g, int op, int subop, int n_src, const qn_val *src, const void *attr, int n_out, qn_val *out) {
    const qn_shape *shapes[QN_MAX_SRC] = {0};
    _Alignas(16) char room[QN_ATTR_BYTES_MAX];
    qn_shape inferred[QN_MAX_DST];
    qn_result result;
    const void *bound;
    int given = 0;
    memset(&result, 0, sizeof result);
    if (g->error.status != QN_OK || n_src > QN_MAX_SRC) return 0;
    for (int i = 0; i < n_src; i++)
        if (src[i] != QN_VAL_NONE) shapes[i] = &g->values.at[src[i]].probe;
    return qn_ir_attr_bind(g, qn_op_describe(op), attr, NULL, room, &bound) &&
           qn_ir_infer(op, subop, n_src, shapes, bound, inferred, &given, &result) == QN_OK && given >= n_out &&
           qn_graph_apply(g, op, subop, n_src, src, attr, n_out, out) == QN_OK;
}

const char *qn_graph_pass_name(int number, const char **summary) {
    if (number < 0 || number >= N_PASSES) return NULL;
    if (summary) *summary = passes[number].summary;
    return passes[number].name;
}

/* The first fault of a graph, for a sentence. */
static void keep_first(void *user, const qn_graph_fault *fault) {
    char *text = user;
    if (!*text) snprintf(text, 200, "%s", fault->text);
}

/* A pass on a graph, then on each body in what it made of it: a pass knows nothing of bodies. */
typedef struct in_body {
    const pass *p;
    qn_pass_run *outside;
} in_body;

static qn_status run_everywhere(const pass *p, qn_pass_run *run, qn_graph **to);

static qn_status run_in_body(void *user, const qn_graph *body, qn_graph **made, qn_error *error) {
    const in_body *b = user;
    qn_pass_run run = *b->outside;
    run.from = body;
    run.error = error;
    run.changed = 0;
    qn_status status = run_everywhere(b->p, &run, made);
    b->outside->changed += run.changed;
    return status == QN_OK && !*made ? qn_ir_rebuild(body, NULL, NULL, NULL, made, error) : status;
}

static qn_status run_everywhere(const pass *p, qn_pass_run *run, qn_graph **to) {
    in_body b = {p, run};
    const qn_graph *from = run->from;
    *to = NULL;
    QN_TRY(p->run(run, to));
    qn_graph *flat = *to;
    if ((flat ? flat : from)->bodies.n == 0) return QN_OK;
    qn_status status = qn_ir_rebuild_bodies(flat ? flat : from, run_in_body, &b, to, run->error);
    qn_graph_destroy(flat);
    return status;
}

static qn_status run_one(const pass *p, const qn_graph *from, const qn_pass_options *o, int32_t *left, qn_graph **to,
                         int32_t *changed, qn_error *error) {
    qn_pass_run run = {p->name, from, o, 0, left, error};
    char fault[200] = "";
    uint64_t begin = qn_clock_now();
    *to = NULL;
    qn_status status = run_everywhere(p, &run, to);
    uint64_t spent = qn_clock_now() - begin;
    if (status != QN_OK) return qn_error_wrap(error, "pass %s", p->name);
    const qn_graph *now = *to ? *to : from;
    if ((o->flags & QN_PASS_VERIFY) && *to) status = qn_graph_verify(*to, keep_first, fault);
    if (status != QN_OK) {
        qn_graph_destroy(*to);
        *to = NULL;
        if (status == QN_NO_MEMORY) return qn_error_set(error, status, "pass %s: %s", p->name, fault);
        char before[200] = "";
        if (qn_graph_verify(from, keep_first, before) == QN_INVALID) /* it is not the pass's fault */
            return qn_error_set(error, QN_INVALID, "the graph is not sound: %s", before);
        return qn_error_set(error, QN_UNEXPECTED, "pass %s made a graph that is not sound: %s", p->name, fault);
    }
    if (o->done)
        o->done(o->user, &(qn_pass_done){p->name, now, run.changed, (int32_t)from->nodes.n, (int32_t)now->nodes.n, spent});
    if (changed) *changed = run.changed;
    return QN_OK;
}

static const qn_pass_options no_options = {.size = sizeof no_options};

qn_status qn_pass_one(const qn_graph *graph, const char *name, qn_graph **out, int32_t *changed, qn_error *error) {
    if (!graph || !name || !out) return qn_error_set(error, QN_ARGUMENT, "a graph and the name of a pass are needed");
    const pass *p = find(name, strlen(name));
    *out = NULL;
    if (!p) return qn_error_set(error, QN_INVALID, "there is no pass '%s'", name);
    if (graph->error.status != QN_OK) return qn_graph_error(graph, error);
    QN_TRY(run_one(p, graph, &no_options, NULL, out, changed, error));
    return *out ? QN_OK : qn_ir_rebuild(graph, NULL, NULL, NULL, out, error);
}

/* Runs one pass over what there is so far, which is then let go. */
static qn_status advance(const pass *p, const qn_graph *graph, const qn_pass_options *o, int32_t *left, qn_graph **out,
                         qn_error *error) {
    qn_graph *next;
    if (qn_pass_listed(o->skip, p->name)) return QN_OK;
    qn_status status = run_one(p, *out ? *out : graph, o, left, &next, NULL, error);
    if (status == QN_OK && !next) return QN_OK; /* nothing to do: what there is goes on */
    qn_graph_destroy(*out);
    *out = next;
    return status;
}

/* A list of names separated by commas: of passes, and of rules as well if they may stand there. */
static qn_status check_names(const char *list, int with_rules, qn_error *error) {
    char known[300] = "";
    for (const char *at = list; at && *at;) {
        size_t length = strcspn(at, ","), used = 0;
        if (find(at, length) || (with_rules && is_rule(at, length))) {
            at += length + (at[length] == ',');
            continue;
        }
        for (int i = 0; i < N_PASSES && used < sizeof known; i++)
            if (find(passes[i].name, strlen(passes[i].name)) == &passes[i]) /* a pass that runs twice has one name */
                used += (size_t)snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "", passes[i].name);
        return qn_error_set(error, QN_INVALID, "there is no pass%s '%.*s'; passes are %s%s", with_rules ? " or rule" : "",
                            (int)(length < 40 ? length : 40), at, known,
                            with_rules ? "; rules go by the names that reports give" : "");
    }
    return QN_OK;
}

static qn_status check_options(const qn_pass_options *o, qn_error *error) {
    if (o->size != sizeof *o)
        return qn_error_set(error, QN_UNEXPECTED, "pass options of %u bytes, expected %zu", (unsigned)o->size, sizeof *o);
    if (o->flags & ~(uint32_t)(QN_PASS_FAST | QN_PASS_VERIFY))
        return qn_error_set(error, QN_INVALID, "pass options with the unknown flags 0x%x", (unsigned)o->flags);
    if ((int)o->precision < QN_PRECISION_KEEP || (int)o->precision > QN_PRECISION_BF16)
        return qn_error_set(error, QN_INVALID, "pass options with the unknown precision %d", (int)o->precision);
    if (o->limit < 0) return qn_error_set(error, QN_INVALID, "a limit of %d changes", (int)o->limit);
    QN_TRY(check_names(o->only, 0, error));
    return check_names(o->skip, 1, error);
}

qn_status qn_graph_optimise(const qn_graph *graph, const qn_pass_options *options, qn_graph **out, qn_error *error) {
    const qn_pass_options *o = options ? options : &no_options;
    int32_t left = o->limit;
    qn_status status = QN_OK;
    if (!graph || !out) return qn_error_set(error, QN_ARGUMENT, "a graph is needed");
    *out = NULL;
    QN_TRY(check_options(o, error));
    if (graph->error.status != QN_OK) return qn_graph_error(graph, error);
    for (const char *at = o->only; status == QN_OK && at && *at;) {
        size_t length = strcspn(at, ",");
        status = advance(find(at, length), graph, o, o->limit ? &left : NULL, out, error);
        at += length + (at[length] == ',');
    }
    for (int i = 0; status == QN_OK && !o->only && i < N_PASSES; i++)
        status = advance(&passes[i], graph, o, o->limit ? &left : NULL, out, error);
    if (status == QN_OK && !*out) status = qn_ir_rebuild(graph, NULL, NULL, NULL, out, error); /* nothing ran: a copy */
    return status;
}
