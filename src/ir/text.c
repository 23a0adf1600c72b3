/* The strings of a graph, each kept once: names of leaves, outputs and symbols, and labels. Files from outside may bring very many,
 * so they are found by hash, and what goes by a name is written beside it. */
#include "ir/graph.h"

static uint32_t hash_of(const char *text) {
    uint32_t h = 2166136261u;
    for (; *text; text++) h = (h ^ (unsigned char)*text) * 16777619u;
    return h ^ h >> 15;
}

/* The slot of a string, or the free one where it belongs; *probes: how many others lie on the way. */
static size_t slot_of(const qn_graph *g, const char *text, uint32_t hash, int *probes) {
    size_t mask = g->name_slots.n - 1, at = hash & mask;
    for (*probes = 0;; at = (at + 1) & mask, ++*probes) {
        int32_t i = g->name_slots.at[at];
        if (i < 0 || (g->names.at[i].hash == hash && strcmp(g->text.at + g->names.at[i].text, text) == 0)) return at;
    }
}

qn_ir_name *qn_ir_name_find(const qn_graph *g, const char *text) {
    int probes;
    if (g->name_slots.n == 0) return NULL;
    int32_t i = g->name_slots.at[slot_of(g, text, hash_of(text), &probes)];
    return i < 0 ? NULL : &g->names.at[i];
}

/* At most half of the slots are taken. */
static int make_room(qn_graph *g, size_t bytes) {
    if (!QN_VEC_ROOM(&g->arena, &g->text, bytes) || !QN_VEC_ROOM(&g->arena, &g->names, 1)) return 0;
    if ((g->names.n + 1) * 2 <= g->name_slots.n) return g->name_slots.at != NULL;
    size_t n = g->name_slots.n ? g->name_slots.n * 2 : 64;
    if (!QN_VEC_ROOM(&g->arena, &g->name_slots, n - g->name_slots.n) || !g->name_slots.at || !g->names.at || !g->text.at)
        return 0;
    int probes;
    g->name_slots.n = n;
    for (size_t i = 0; i < n; i++) g->name_slots.at[i] = -1;
    for (size_t i = 0; i < g->names.n; i++)
        g->name_slots.at[slot_of(g, g->text.at + g->names.at[i].text, g->names.at[i].hash, &probes)] = (int32_t)i;
    return 1;
}

int32_t qn_ir_text(qn_graph *g, const char *text) {
    const qn_ir_name *known = qn_ir_name_find(g, text);
    if (known) return known->text;
    size_t n = strlen(text) + 1;
    if (n > INT32_MAX / 2 - g->text.n || !make_room(g, n) || !g->names.at) {
        qn_ir_fail(g, QN_NO_MEMORY, "no memory for a name of %zu bytes", n);
        return -1;
    }
    qn_ir_name made = {(int32_t)g->text.n, hash_of(text), QN_VAL_NONE, QN_VAL_NONE, -1};
    int probes;
    size_t slot = slot_of(g, text, made.hash, &probes);
    if (probes > QN_IR_MAX_PROBES) {
        qn_ir_fail(g, QN_INVALID, "'%.40s' and %d names before it collide, as no honest names do", text, probes);
        return -1;
    }
    memcpy(g->text.at + g->text.n, text, n);
    g->text.n += n;
    g->name_slots.at[slot] = (int32_t)g->names.n;
    g->names.at[g->names.n++] = made;
    return made.text;
}
