/* mul_mat_id with weights in blocks: rows of activations are quantised once, the pairs of row and expert counted into lists by expert,
 * and each expert multiplied with its list by the kernels of mul_mat, so a pair's result has the bits it has alone. glu_mul_mat_id is
 * the same but for what is quantised: a chunk is gated on the stack, by the very function of glu, on its way there. */
#include "cpu/k_experts.h"
#include "cpu/k_gate.h"
#include "cpu/kd_quant.h"

enum { LINE = 64 };

typedef struct experts {
    int64_t count, tokens, used, own; /* experts, tokens, experts of a token, rows of activations of a token */
    int64_t pairs, across, units;
    int32_t *start, *list; /* in the workspace: where each expert's pairs begin, and pairs by expert */
} experts;

static size_t in_lines(size_t bytes) { return (bytes + LINE - 1) / LINE * LINE; }
static size_t lists_bytes(const experts *e) { return in_lines((size_t)(e->count + 1 + e->pairs) * sizeof(int32_t)); }

static int describe(const qn_call *c, qn_quant_product *p, experts *e) {
    const qn_tensor *as = c->src[0], *b = c->src[1], *y = c->dst[0];
    *e = (experts){.count = qn_ne(as, 2), .tokens = qn_ne(y, 2), .used = qn_ne(y, 1), .own = qn_ne(b, 1)};
    e->pairs = e->tokens * e->used;
    if (e->pairs > INT32_MAX || e->own < 1 || qn_ne(as, 3) != 1 || qn_ne(b, 3) != 1) return 0;
    if (!qn_quant_describe(p, as, b, y, e->tokens * e->own)) return 0;
    p->unit_rows = e->pairs < QN_QUANT_ROWS ? e->pairs : QN_QUANT_ROWS; /* a row meets several experts, or one several times */
    e->across = (p->panels + QN_QUANT_PANELS - 1) / QN_QUANT_PANELS;
    e->units = e->across * e->count;
    return 1;
}

/* Counts are multiples of 32, which every vector divides. */
static void gate_chunk(const qn_call *c, const float *u, const float *v, int n, float *y) {
    const qn_attr_glu_mul_mat_id *at = c->attr;
    qn_attr_glu p = qn_attr_glu_default();
    p.alpha = at->alpha;
    p.limit = at->limit;
    for (int i = 0; i < n; i += VF_N) vf_store(y + i, qn_gate_of(c->subop, vf_load(u + i), vf_load(v + i), &p));
}

static void quantise(const qn_call *c, const qn_quant_product *p, const experts *e, int64_t i) {
    const qn_tensor *b = c->src[1];
    int64_t row = i / p->chunks, chunk = i % p->chunks, left = p->k - chunk * QN_CHUNK;
    int n = left < QN_CHUNK ? (int)left : QN_CHUNK;
    qn_quant_row *to = p->rows + chunk * p->n_rows + row;
    const char *x = qn_at(b, qn_off4(b, 0, row / e->own, row % e->own, chunk * QN_CHUNK));
    if (c->op != QN_OP_glu_mul_mat_id) {
        qn_quant_activate(x, p->x_dtype, p->x_step, n, p->type->group, to);
        return;
    }
    const qn_tensor *v = c->src[2];
    float gated[QN_CHUNK];
    gate_chunk(c, (const float *)x, (const float *)qn_at(v, qn_off4(v, 0, row / e->own, row % e->own, chunk * QN_CHUNK)), n,
               gated);
    qn_quant_activate((const char *)gated, QN_DTYPE_F32, sizeof *gated, n, p->type->group, to);
}

/* Neighbouring units are the experts of the same panels: a part has some of each, however the pairs fall. */
static void run_unit(const qn_call *c, const qn_quant_product *p, const experts *e, int64_t number, int64_t part) {
    const qn_tensor *as = c->src[0], *y = c->dst[0];
    qn_quant_unit u;
    u.matrix = number % e->count;
    u.weights = (const uint8_t *)qn_at(as, qn_off4(as, 0, u.matrix, 0, 0));
    u.panel = number / e->count * QN_QUANT_PANELS;
    u.end = u.panel + QN_QUANT_PANELS < p->panels ? u.panel + QN_QUANT_PANELS : p->panels;
    for (int32_t first = e->start[u.matrix], end = e->start[u.matrix + 1]; first < end; first += u.n) {
        u.n = end - first < QN_QUANT_ROWS ? end - first : QN_QUANT_ROWS;
        for (int j = 0; j < u.n; j++) {
            int64_t pair = e->list[first + j], token = pair / e->used, which = pair % e->used;
            u.x[j] = token * e->own + which % e->own;
            u.y[j] = qn_at(y, qn_off4(y, 0, token, which, 0));
        }
        qn_quant_run(p, &u, part);
    }
}

static void run(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    qn_quant_product p;
    experts e;
    if (!describe(c, &p, &e)) return;
    e.start = c->workspace;
    e.list = e.start + e.count + 1;
    qn_quant_workspace(&p, s->parts[1]);
    qn_quant_place(&p, (char *)c->workspace + lists_bytes(&e));
    p.packed = s->packed;
    if (phase == 0 && part == s->parts[0] - 1) {
        qn_experts_sort(c->src[c->op == QN_OP_glu_mul_mat_id ? 3 : 2], e.used, e.pairs, e.count, e.start, e.list);
        return;
    }
    int64_t all = phase == 0 ? p.n_rows * p.chunks : e.units, parts = s->parts[phase] - (phase == 0);
    int64_t end = qn_cpu_cut(all, parts, part + 1);
    for (int64_t i = qn_cpu_cut(all, parts, part); i < end; i++) {
        if (phase == 0) quantise(c, &p, &e, i);
        else run_unit(c, &p, &e, i, part);
    }
}

static void pack(const qn_call *c, const qn_cpu_step *s, void *packed, int64_t part) {
    const qn_tensor *as = c->src[0];
    qn_quant_product p;
    experts e;
    if (!describe(c, &p, &e)) return;
    int64_t all = p.panels * e.count, end = qn_cpu_cut(all, s->pack_parts, part + 1);
    for (int64_t i = qn_cpu_cut(all, s->pack_parts, part); i < end; i++) {
        int64_t panel = i % p.panels, left = p.m - panel * QN_PANEL;
        qn_quant_keep(p.type, (const uint8_t *)qn_at(as, qn_off4(as, 0, i / p.panels, panel * QN_PANEL, 0)), p.step,
                      left < QN_PANEL ? (int)left : QN_PANEL, p.k / p.block,
                      (uint8_t *)packed + i * (p.k / p.block) * p.kept * QN_PANEL);
    }
}

#ifdef QN_FULL_LEVEL
int QN_K(mul_mat_id_floats)(const qn_call *c, qn_cpu_step *s);     /* k_experts.c */
int QN_K(glu_mul_mat_id_floats)(const qn_call *c, qn_cpu_step *s); /* k_experts_gate.c */
#endif

int QN_K(mul_mat_id)(const qn_call *c, qn_cpu_step *s) {
    qn_quant_product p;
    experts e;
#ifdef QN_FULL_LEVEL
    if (!qn_is_block(c->src[0]->dtype)) return QN_K(mul_mat_id_floats)(c, s);
#endif
    if (!qn_is_block(c->src[0]->dtype) || qn_tensor_count(c->dst[0]) == 0 || !describe(c, &p, &e)) return 0;
    double flops = 2.0 * (double)e.pairs * (double)p.m * (double)p.k / (double)e.units,
           bytes = (double)(p.m * p.k) / (double)e.across;
    s->run = run;
    s->name = "quantised dots by expert";
    s->n_phases = 2;
    s->parts[0] = qn_cpu_parts(p.n_rows * p.chunks, QN_CHUNK * 8, 0) + 1;
    s->parts[1] = qn_cpu_parts(e.units, e.pairs < e.count ? bytes * (double)e.pairs / (double)e.count : bytes, flops / 4);
    s->workspace = lists_bytes(&e) + qn_quant_workspace(&p, s->parts[1]);
    if (s->constant & 1u) {
        s->pack = pack;
        s->pack_slot = 0;
        s->pack_parts = p.panels * e.count < 64 ? p.panels * e.count : 64;
        s->packed_bytes = (size_t)(p.panels * e.count * (p.k / p.block) * p.kept * QN_PANEL);
    }
    return 1;
}

/* Rows that are not f32, or have gaps, are left to the reference. */
int QN_K(glu_mul_mat_id)(const qn_call *c, qn_cpu_step *s) {
#ifdef QN_FULL_LEVEL
    if (!qn_is_block(c->src[0]->dtype)) return QN_K(glu_mul_mat_id_floats)(c, s);
#endif
    if (!qn_is_block(c->src[0]->dtype)) return 0;
    for (int i = 1; i < 3; i++)
        if (c->src[i]->dtype != QN_DTYPE_F32 || (qn_ne(c->src[i], 0) > 1 && qn_nb(c->src[i], 0) != (int64_t)sizeof(float)))
            return 0;
    return QN_K(mul_mat_id)(c, s);
}
