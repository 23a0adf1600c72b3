/* glu_mul_mat_id with weights of plain floats: the gated rows are written down, and multiplied as mul_mat_id multiplies. */
#include "cpu/kernel.h"

int QN_K(glu)(const qn_call *c, qn_cpu_step *s);
int QN_K(mul_mat_id_floats)(const qn_call *c, qn_cpu_step *s);

enum { LINE = 64 };

/* The two calls. */
typedef struct gated {
    qn_tensor rows;
    qn_attr_glu at;
    const qn_tensor *src[2][QN_MAX_SRC], *dst[2][QN_MAX_DST];
    qn_call gate, product;
    size_t bytes; /* of the rows */
} gated;

/* The rows as they lie in the workspace, which may still be missing. */
static void place_rows(const qn_tensor *a, char *workspace, gated *g) {
    int64_t step = qn_dtype_bytes(a->dtype);
    g->rows = *a;
    for (int k = a->rank - 1; k >= 0; step *= a->shape[k--]) g->rows.stride[k] = step;
    g->rows.offset = 0;
    g->rows.size = (uint64_t)step;
    g->rows.data = workspace;
    g->bytes = ((size_t)step + LINE - 1) / LINE * LINE;
}

static void describe(const qn_call *c, gated *g) {
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
}

static int prepare_gate(const gated *g, qn_cpu_step *first) {
    return QN_K(glu)(&g->gate, first) && first->n_phases == 1 && !first->workspace;
}

/* The step is the product's, a phase later; how that runs is its `inner`. The gate's costs little to make anew. */
static void run(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    gated g;
    describe(c, &g);
    qn_cpu_step step = {0};
    if (phase == 0) {
        if (prepare_gate(&g, &step)) step.run(&g.gate, &step, 0, part);
        return;
    }
    step = *s;
    for (int i = 1; i < s->n_phases; i++) step.parts[i - 1] = s->parts[i];
    ((qn_cpu_run_fn)s->inner)(&g.product, &step, phase - 1, part);
}

static void pack(const qn_call *c, const qn_cpu_step *s, void *packed, int64_t part) {
    gated g;
    describe(c, &g);
    s->pack_inner(&g.product, s, packed, part);
}

int QN_K(glu_mul_mat_id_floats)(const qn_call *c, qn_cpu_step *s);
int QN_K(glu_mul_mat_id_floats)(const qn_call *c, qn_cpu_step *s) {
    gated g;
    qn_call call = *c;
    qn_cpu_step first = {0}, second = {.constant = s->constant & 1u};
    call.workspace = NULL;
    describe(&call, &g);
    if (qn_tensor_count(c->dst[0]) == 0 || !prepare_gate(&g, &first) || !QN_K(mul_mat_id_floats)(&g.product, &second)) return 0;
    second.constant = s->constant;
    *s = second;
    s->inner = (qn_cpu_inner_fn)second.run;
    s->run = run;
    s->name = second.pack ? "gate, then streams of floats by expert" : "gate, then gemm f32 by expert";
    s->n_phases = 1 + second.n_phases;
    s->parts[0] = first.parts[0];
    for (int i = 0; i < second.n_phases; i++) s->parts[1 + i] = second.parts[i];
    s->workspace = g.bytes + second.workspace;
    if (!second.pack) return 1;
    s->pack = pack;
    s->pack_inner = second.pack;
    return 1;
}
