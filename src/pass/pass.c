/* The runner: passes in the order of the table, each looked at afterwards. */
#include "pass/pass.h"

typedef struct pass {
    const char *name, *summary;
    qn_status (*run)(const qn_graph *from, qn_graph **to, int32_t *changed, qn_error *error);
} pass;

static const pass passes[] = {
#define QN_PASS(name, summary) {#name, summary, qn_pass_##name},
#include "pass/passes.def"
#undef QN_PASS
};

enum { N_PASSES = sizeof passes / sizeof *passes };

int qn_pass_is_pure(const qn_ir_node *n) {
    const qn_op_info *info = qn_op_describe(n->op);
    for (int i = 0; i < info->n_src; i++)
        if (info->src[i].flags & QN_SLOT_STATE) return 0;
    for (int i = 0; i < info->n_attr; i++)
        if (info->attr[i].kind == QN_ATTR_KIND_fn) return 0;
    return 1;
}

const char *qn_graph_pass_name(int number, const char **summary) {
    if (number < 0 || number >= N_PASSES) return NULL;
    if (summary) *summary = passes[number].summary;
    return passes[number].name;
}

qn_status qn_graph_pass(const qn_graph *graph, const char *name, qn_graph **out, int32_t *changed, qn_error *error) {
    int32_t ignored;
    if (!graph || !name || !out) return qn_error_set(error, QN_ARGUMENT, "a graph and the name of a pass are needed");
    *out = NULL;
    for (int i = 0; i < N_PASSES; i++)
        if (strcmp(passes[i].name, name) == 0) {
            qn_status status = passes[i].run(graph, out, changed ? changed : &ignored, error);
            return status == QN_OK ? QN_OK : qn_error_wrap(error, "pass %s", name);
        }
    return qn_error_set(error, QN_INVALID, "there is no pass '%s'", name);
}

qn_status qn_graph_optimise(const qn_graph *graph, qn_graph **out, qn_error *error) {
    if (!graph || !out) return qn_error_set(error, QN_ARGUMENT, "a graph is needed");
    const qn_graph *now = graph;
    *out = NULL;
    for (int i = 0; i < N_PASSES; i++) {
        qn_graph *next;
        qn_status status = qn_graph_pass(now, passes[i].name, &next, NULL, error);
        qn_graph_destroy(*out); /* what the pass read: ours, or nothing yet */
        *out = status == QN_OK ? next : NULL;
        if (status != QN_OK) return status;
        now = next;
    }
    return QN_OK;
}
