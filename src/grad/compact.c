/* Taking away what a derivation appended and nothing needs. Rules write gradients as they find convenient, and a tangent is
 * made of two walks of which the first is mostly scaffolding; the graph that the caller sees has only what it asked for. */
#include "grad/grad.h"

typedef struct compaction {
    qn_graph *g;
    size_t first_node, first_value;
    uint8_t *live; /* per node from first_node on */
    qn_val *map;   /* per value from first_value on: its new number */
} compaction;

static void mark(const compaction *c, qn_val value) {
    if (value == QN_VAL_NONE || (size_t)value < c->first_value) return;
    c->live[(size_t)c->g->values.at[value].node - c->first_node] = 1;
}

static qn_val mapped(const compaction *c, qn_val value) {
    return value == QN_VAL_NONE || (size_t)value < c->first_value ? value : c->map[(size_t)value - c->first_value];
}

static void move_down(const compaction *c) {
    qn_graph *g = c->g;
    size_t nodes = c->first_node, values = c->first_value;
    size_t sources = c->first_node < g->nodes.n ? (size_t)g->nodes.at[c->first_node].src : g->sources.n;
    for (size_t k = c->first_node; k < g->nodes.n; k++) {
        if (!c->live[k - c->first_node]) continue;
        qn_ir_node n = g->nodes.at[k];
        for (int i = 0; i < n.n_src; i++)
            g->sources.at[sources + (size_t)i] = mapped(c, g->sources.at[(size_t)n.src + (size_t)i]);
        for (int i = 0; i < n.n_out; i++) {
            c->map[(size_t)n.out + (size_t)i - c->first_value] = (qn_val)(values + (size_t)i);
            g->values.at[values + (size_t)i] = g->values.at[(size_t)n.out + (size_t)i];
            g->values.at[values + (size_t)i].node = (int32_t)nodes;
        }
        n.src = (int32_t)sources;
        n.out = (int32_t)values;
        sources += (size_t)n.n_src;
        values += (size_t)n.n_out;
        g->nodes.at[nodes++] = n;
    }
    g->nodes.n = nodes;
    g->values.n = values;
    g->sources.n = sources;
}

qn_status qn_grad_compact(qn_graph *g, size_t first_node, size_t first_value, int n, qn_val *keep) {
    compaction c = {g, first_node, first_value, NULL, NULL};
    if (g->error.status != QN_OK) return g->error.status;
    c.live = qn_arena_resize(&g->arena, NULL, g->nodes.n - first_node + 1, 1);
    c.map = qn_arena_resize(&g->arena, NULL, g->values.n - first_value + 1, sizeof *c.map);
    if (c.live && c.map) {
        memset(c.live, 0, g->nodes.n - first_node + 1);
        for (int i = 0; i < n; i++) mark(&c, keep[i]);
        for (size_t k = g->nodes.n; k-- > first_node;)
            for (int i = 0; c.live[k - first_node] && i < g->nodes.at[k].n_src; i++)
                mark(&c, qn_ir_sources(g, &g->nodes.at[k])[i]);
        move_down(&c);
        for (int i = 0; i < n; i++) keep[i] = mapped(&c, keep[i]);
    } else {
        qn_ir_fail(g, QN_NO_MEMORY, "no memory to look at %zu nodes", g->nodes.n - first_node);
    }
    qn_arena_release(&g->arena, c.live);
    qn_arena_release(&g->arena, c.map);
    return g->error.status;
}
