/* Specialisation: a copy of a graph in which every extent is a number, each node passed through its op's guard again. */
#include "ir/rebuild.h"

static qn_status check_binding(const qn_graph *g, const int64_t *symbols, qn_error *error) {
    for (size_t i = 0; i < g->symbols.n; i++) {
        const qn_ir_symbol *s = &g->symbols.at[i];
        if (symbols[i] < s->least || symbols[i] > s->most || symbols[i] % s->multiple_of)
            return qn_error_set(error, QN_INVALID, "symbol '%s' is %lld, it must be %lld to %lld in steps of %lld",
                                qn_ir_string(g, s->name), (long long)symbols[i], (long long)s->least, (long long)s->most,
                                (long long)s->multiple_of);
    }
    return QN_OK;
}

qn_status qn_graph_bind(const qn_graph *g, const int64_t *symbols, qn_graph **bound, qn_error *error) {
    static const int64_t none[1] = {0};
    if (!g || !bound) return qn_error_set(error, QN_ARGUMENT, "a graph is needed");
    *bound = NULL;
    if (g->symbols.n && !symbols)
        return qn_error_set(error, QN_ARGUMENT, "the graph has %zu symbols, and no values were given", g->symbols.n);
    QN_TRY(check_binding(g, symbols, error));
    return qn_ir_rebuild(g, g->symbols.n ? symbols : none, NULL, NULL, bound, error);
}
