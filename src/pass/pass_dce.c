/* Leaves out what no output needs. Marking goes backwards from the outputs; counting uses would keep chains that only feed
 * themselves. Inputs and params stay even when unused: they are the graph's interface. Constants are nobody's business but
 * ours. */
#include "pass/pass.h"

typedef struct marks {
    uint8_t *needed; /* per value */
    qn_pass_run *run;
} marks;

static qn_status keep_live(qn_rebuild *r, int32_t node) {
    marks *m = r->user;
    const qn_ir_node *n = &r->from->nodes.at[node];
    int live = 0;
    for (int i = 0; i < n->n_out; i++) live |= m->needed[n->out + i];
    return live ? qn_rebuild_copy(r, node) : QN_OK;
}

/* Nodes that there is no leave to drop are needed after all, and what they need with them. */
static void take_leave(marks *m) {
    const qn_graph *g = m->run->from;
    for (size_t k = g->nodes.n; k-- > 0;) {
        const qn_ir_node *n = &g->nodes.at[k];
        int live = 0;
        for (int i = 0; i < n->n_out; i++) live |= m->needed[n->out + i];
        if (!live && qn_pass_may(m->run, qn_pass_rule_dead, (int32_t)k)) continue;
        m->needed[n->out] = 1;
        for (int i = 0; i < n->n_src; i++)
            if (qn_ir_sources(g, n)[i] != QN_VAL_NONE) m->needed[qn_ir_sources(g, n)[i]] = 1;
    }
}

qn_status qn_pass_dce(qn_pass_run *run, qn_graph **to) {
    const qn_graph *from = run->from;
    qn_arena scratch;
    qn_arena_init(&scratch, 0);
    marks m = {qn_arena_alloc(&scratch, from->values.n + 1, 1), run};
    if (!m.needed) return qn_error_set(run->error, QN_NO_MEMORY, "no memory to mark %zu values", from->values.n);
    qn_ir_mark_needed(from, m.needed);
    take_leave(&m);
    int spare = run->changed > 0;
    for (size_t v = 0; v < from->values.n; v++) spare |= from->values.at[v].kind == QN_VALUE_CONSTANT && !m.needed[v];
    qn_status status = spare ? qn_ir_rebuild_needed(from, m.needed, keep_live, &m, to, run->error) : QN_OK;
    qn_arena_destroy(&scratch);
    return status;
}
