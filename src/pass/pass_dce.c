/* Leaves out what no output needs. Marking goes backwards from the outputs; counting uses would keep chains that only feed
 * themselves. Leaves stay even when unused: they are the graph's interface. */
#include "pass/pass.h"

typedef struct marks {
    uint8_t *live; /* per node */
    qn_pass_run *run;
} marks;

static qn_status keep_live(qn_rebuild *r, int32_t node) {
    marks *m = r->user;
    return m->live[node] || !qn_pass_may(m->run, "dead", node) ? qn_rebuild_copy(r, node) : QN_OK;
}

static void mark_value(const qn_graph *g, uint8_t *live, qn_val v) {
    if (v != QN_VAL_NONE && g->values.at[v].node >= 0) live[g->values.at[v].node] = 1;
}

qn_status qn_pass_dce(qn_pass_run *run, qn_graph **to) {
    const qn_graph *from = run->from;
    qn_arena scratch;
    qn_arena_init(&scratch, 0);
    marks m = {qn_arena_alloc(&scratch, from->nodes.n, 1), run};
    if (!m.live) return qn_error_set(run->error, QN_NO_MEMORY, "no memory to mark %zu nodes", from->nodes.n);
    for (size_t i = 0; i < from->outputs.n; i++) mark_value(from, m.live, from->outputs.at[i].value);
    for (size_t k = from->nodes.n; k-- > 0;)
        for (int i = 0; m.live[k] && i < from->nodes.at[k].n_src; i++)
            mark_value(from, m.live, qn_ir_sources(from, &from->nodes.at[k])[i]);
    qn_status status = qn_ir_rebuild(from, NULL, keep_live, &m, to, run->error);
    qn_arena_destroy(&scratch);
    return status;
}
