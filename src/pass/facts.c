/* Users of values and writes over them, gathered in two walks. */
#include "pass/facts.h"

static void count_uses(qn_pass_facts *f) {
    const qn_graph *g = f->g;
    for (size_t k = 0; k < g->nodes.n; k++)
        for (int i = 0; i < g->nodes.at[k].n_src; i++) {
            qn_val v = qn_ir_sources(g, &g->nodes.at[k])[i];
            if (v != QN_VAL_NONE) f->first_use[v + 1]++;
        }
    for (size_t v = 0; v < g->values.n; v++) f->first_use[v + 1] += f->first_use[v];
}

static void list_users(qn_pass_facts *f, int32_t *filled) {
    const qn_graph *g = f->g;
    for (size_t k = 0; k < g->nodes.n; k++)
        for (int i = 0; i < g->nodes.at[k].n_src; i++) {
            qn_val v = qn_ir_sources(g, &g->nodes.at[k])[i];
            if (v != QN_VAL_NONE) f->users[f->first_use[v] + filled[v]++] = (int32_t)k;
        }
}

static int list_writes(qn_pass_facts *f) {
    const qn_graph *g = f->g;
    for (size_t k = 0; k < g->nodes.n; k++) {
        const qn_ir_node *n = &g->nodes.at[k];
        const qn_op_info *info = qn_op_describe(n->op);
        const qn_val *src = qn_ir_sources(g, n);
        if (info->is_view) f->root[n->out] = f->root[src[0]];
        for (int i = 0; i < n->n_src; i++) {
            if (src[i] == QN_VAL_NONE || !(info->src[i].flags & QN_SLOT_STATE)) continue;
            if (!QN_VEC_ROOM(&f->arena, &f->writes, 1)) return 0;
            f->writes.at[f->writes.n++] = (qn_pass_write){f->root[src[i]], (int32_t)k};
            f->written[f->root[src[i]]] = 1;
            if (i < n->n_out) f->root[n->out + i] = f->root[src[i]]; /* the result lies there */
        }
    }
    return 1;
}

qn_status qn_pass_facts_make(const qn_graph *g, qn_pass_facts *f, qn_error *error) {
    memset(f, 0, sizeof *f);
    f->g = g;
    qn_arena_init(&f->arena, 0);
    size_t n = g->values.n;
    int32_t *filled = qn_arena_alloc(&f->arena, n, sizeof *filled);
    f->first_use = qn_arena_alloc(&f->arena, n + 1, sizeof *f->first_use);
    f->users = qn_arena_alloc(&f->arena, g->sources.n, sizeof *f->users);
    f->is_output = qn_arena_alloc(&f->arena, n, 1);
    f->root = qn_arena_alloc(&f->arena, n, sizeof *f->root);
    f->written = qn_arena_alloc(&f->arena, n, 1);
    int ok = filled && f->first_use && f->users && f->is_output && f->root && f->written;
    for (size_t v = 0; ok && v < n; v++) f->root[v] = (int32_t)v;
    if (ok) {
        count_uses(f);
        list_users(f, filled);
        for (size_t i = 0; i < g->outputs.n; i++) f->is_output[g->outputs.at[i].value] = 1;
    }
    if (ok && list_writes(f)) return QN_OK;
    qn_pass_facts_free(f);
    return qn_error_set(error, QN_NO_MEMORY, "no memory to look at %zu values", n);
}

void qn_pass_facts_free(qn_pass_facts *f) { qn_arena_destroy(&f->arena); }

int qn_pass_epoch(const qn_pass_facts *f, qn_val v, int32_t node) {
    int epoch = 0;
    if (!f->written[f->root[v]]) return 0;
    for (size_t i = 0; i < f->writes.n && f->writes.at[i].node < node; i++) epoch += f->writes.at[i].root == f->root[v];
    return epoch;
}

int32_t qn_pass_first_write(const qn_pass_facts *f, qn_val v) {
    if (!f->written[f->root[v]]) return INT32_MAX;
    for (size_t i = 0; i < f->writes.n; i++)
        if (f->writes.at[i].root == f->root[v]) return f->writes.at[i].node;
    return INT32_MAX;
}
