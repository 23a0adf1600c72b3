/* glu_mul_mat_id with weights of plain floats: the gated rows are written down, and multiplied as mul_mat_id multiplies. */
#include "cpu/kernel.h"

int QN_K(glu)(const qn_call *c, qn_cpu_step *s);
int QN_K(mul_mat_id_floats)(const qn_call *c, qn_cpu_step *s);

enum { LINE = 64 };

/* The two calls, and their steps. */
typedef struct gated {
    qn_tensor rows;
    qn_attr_glu at;
    const qn_tensor *src[2][QN_MAX_SRC], *dst[2][QN_MAX_DST];
    qn_call gate, product;
    qn_cpu_step first, second;
    size_t bytes; /* of the rows */
} gated;

/* The rows as they lie in the workspace, which may still be missing. */
static void place_rows(const qn_tensor *a, char *workspace, gated *g) {
    int64_t step = qn_dtype_describe((qn_dtype)a->dtype)->bytes;
    g->rows = *a;
    for (int k = a->rank - 1; k >= 0; step *= a->shape[k--]) g->rows.stride[k] = step;
    g->rows.offset = 0;
    g->rows.size = (uint64_t)step;
    g->rows.data = workspace;
    g->bytes = ((size_t)step + LINE - 1) / LINE * LINE;
}

/* 0: one of the two has no kernel. What stays of c's sources, s tells. */
static int gated_of(const qn_call *c, const qn_cpu_step *s, gated *g) {
    const qn_attr_glu_mul_mat_id *at = c->attr;
    char *workspace = c->workspace;
    memset(g, 0, sizeof *g);
    place_rows(c->src[1], workspace, g);
    g->at = qn_attr_glu_default();
    g->at.alpha = at->alpha;
    g->at.limit = at->limit;
    g->src[0][0] = c->src[1], g->src[0][1] = c->src[2], g->dst[0][0] = &g->rows;
    g->src[1][0] = c->src[0], g->src[1][1] = &g->rows, g->src[1][2] = c->src[3], g->dst[1][0] = c->dst[0];
    g->gate = (qn_call){QN_OP_glu, c->subop, 2, 1, g->src[0], g->dst[0], &g->at, NULL};
    g->product = (qn_call){QN_OP_mul_mat_id, 0, 3, 1, g->src[1], g->dst[1], NULL, workspace ? workspace + g->bytes : NULL};
    if (!QN_K(glu)(&g->gate, &g->first) || g->first.n_phases != 1 || g->first.workspace) return 0;
    g->second.constant = s->constant & 1u;
    return QN_K(mul_mat_id_floats)(&g->product, &g->second);
}

static void run(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    gated g;
    if (!gated_of(c, s, &g)) return;
    g.second.packed = s->packed;
    g.second.contest = s->contest;
    if (phase == 0) g.first.run(&g.gate, &g.first, 0, part);
    else g.second.run(&g.product, &g.second, phase - 1, part);
}

static void pack(const qn_call *c, const qn_cpu_step *s, void *packed, int64_t part) {
    gated g;
    if (gated_of(c, s, &g)) g.second.pack(&g.product, &g.second, packed, part);
}

int QN_K(glu_mul_mat_id_floats)(const qn_call *c, qn_cpu_step *s);
int QN_K(glu_mul_mat_id_floats)(const qn_call *c, qn_cpu_step *s) {
    gated g;
    qn_call call = *c;
    call.workspace = NULL;
    if (qn_tensor_count(c->dst[0]) == 0 || !gated_of(&call, s, &g)) return 0;
    s->run = run;
    s->name = "gate, then gemm f32 by expert";
    s->n_phases = 1 + g.second.n_phases;
    s->parts[0] = g.first.parts[0];
    for (int i = 0; i < g.second.n_phases; i++) s->parts[1 + i] = g.second.parts[i];
    s->workspace = g.bytes + g.second.workspace;
    if (!g.second.pack) return 1;
    s->name = "gate, then streams of floats by expert";
    s->pack = pack;
    s->pack_inner = g.second.pack;
    s->pack_slot = 0;
    s->pack_parts = g.second.pack_parts;
    s->packed_bytes = g.second.packed_bytes;
    s->pack_late = g.second.pack_late;
    return 1;
}
