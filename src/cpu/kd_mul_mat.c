/* mul_mat: rows of activations times rows of weights. Weights in blocks are multiplied as such, with activations in 8 bits;
 * those of bf16, where the level has tiles for them, are kd_amx_mul_mat.c's; those of plain floats, and calls that ask for f32,
 * k_mul_mat.c's, for a few rows of f16 with the streams of kd_i8mm_halves.c. */
#include "cpu/kd_quant.h"

/* ---- Blocks. A run is a matrix and the rows of activations, one after the other, that share it; rows are numbered over all batches. */

typedef struct runs {
    int64_t share2, share3; /* how many batches of b share one of a, by axis */
    int64_t count, rows;    /* runs, and rows of each */
    int64_t across, blocks; /* units of a run: groups of panels, blocks of rows */
    int64_t units;
} runs;

static int describe_blocks(const qn_call *c, qn_quant_product *p, runs *r) {
    const qn_tensor *a = c->src[0], *b = c->src[1], *y = c->dst[0];
    if (qn_ne(a, 2) < 1 || qn_ne(a, 3) < 1) return 0;
    if (!qn_quant_describe(p, a, b, y, qn_ne(b, 1) * qn_ne(b, 2) * qn_ne(b, 3))) return 0;
    r->share2 = qn_ne(b, 2) / qn_ne(a, 2);
    r->share3 = qn_ne(b, 3) / qn_ne(a, 3);
    r->rows = r->share2 * qn_ne(b, 1);
    r->count = qn_ne(a, 2) * qn_ne(b, 3);
    int64_t wide = r->rows == 1 ? QN_QUANT_PANELS_ONE : QN_QUANT_PANELS;
    r->across = (p->panels + wide - 1) / wide;
    r->blocks = (r->rows + QN_QUANT_ROWS - 1) / QN_QUANT_ROWS;
    r->units = r->count * r->across * r->blocks;
    return 1;
}

static void quantise(const qn_call *c, const qn_quant_product *p, int64_t first, int64_t end) {
    const qn_tensor *b = c->src[1];
    for (int64_t i = first; i < end; i++) {
        int64_t row = i / p->chunks, chunk = i % p->chunks, left = p->k - chunk * QN_CHUNK;
        int64_t j = row % qn_ne(b, 1), i2 = row / qn_ne(b, 1) % qn_ne(b, 2), i3 = row / qn_ne(b, 1) / qn_ne(b, 2);
        qn_quant_activate(qn_at(b, qn_off4(b, i3, i2, j, chunk * QN_CHUNK)), p->x_dtype, p->x_step,
                          left < QN_CHUNK ? (int)left : QN_CHUNK, p->type->group, p->rows + chunk * p->n_rows + row);
    }
}

static void run_unit(const qn_call *c, const qn_quant_product *p, const runs *r, int64_t number, int64_t part) {
    const qn_tensor *a = c->src[0], *b = c->src[1], *y = c->dst[0];
    qn_quant_unit u;
    int64_t wide = r->rows == 1 ? QN_QUANT_PANELS_ONE : QN_QUANT_PANELS;
    int64_t block = number % r->blocks, panel = number / r->blocks % r->across * wide, run = number / r->blocks / r->across;
    int64_t i3 = run / qn_ne(a, 2), a2 = run % qn_ne(a, 2), first = block * QN_QUANT_ROWS;
    u.matrix = i3 / r->share3 * qn_ne(a, 2) + a2;
    u.weights = (const uint8_t *)qn_at(a, qn_off4(a, i3 / r->share3, a2, 0, 0));
    u.panel = panel;
    u.end = panel + wide < p->panels ? panel + wide : p->panels;
    u.n = r->rows - first < QN_QUANT_ROWS ? (int)(r->rows - first) : QN_QUANT_ROWS;
    for (int j = 0; j < u.n; j++) {
        int64_t in_run = first + j, i2 = a2 * r->share2 + in_run / qn_ne(b, 1);
        u.x[j] = (i3 * qn_ne(b, 2) + i2) * qn_ne(b, 1) + in_run % qn_ne(b, 1);
        u.y[j] = qn_at(y, qn_off4(y, i3, i2, in_run % qn_ne(b, 1), 0));
    }
    qn_quant_run(p, &u, part);
}

static void run_blocks(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    qn_quant_product p;
    runs r;
    if (!describe_blocks(c, &p, &r)) return;
    qn_quant_workspace(&p, s->parts[1]);
    qn_quant_place(&p, c->workspace);
    p.packed = s->packed;
    int64_t all = phase == 0 ? p.n_rows * p.chunks : r.units, first = qn_cpu_cut(all, s->parts[phase], part);
    int64_t end = qn_cpu_cut(all, s->parts[phase], part + 1);
    if (phase == 0) quantise(c, &p, first, end);
    else
        for (; first < end; first++) run_unit(c, &p, &r, first, part);
}

static void pack_blocks(const qn_call *c, const qn_cpu_step *s, void *packed, int64_t part) {
    const qn_tensor *a = c->src[0];
    qn_quant_product p;
    runs r;
    if (!describe_blocks(c, &p, &r)) return;
    int64_t all = p.panels * qn_ne(a, 2) * qn_ne(a, 3), end = qn_cpu_cut(all, s->pack_parts, part + 1);
    for (int64_t i = qn_cpu_cut(all, s->pack_parts, part); i < end; i++) {
        int64_t panel = i % p.panels, a2 = i / p.panels % qn_ne(a, 2), a3 = i / p.panels / qn_ne(a, 2),
                left = p.m - panel * QN_PANEL;
        qn_quant_keep(p.type, (const uint8_t *)qn_at(a, qn_off4(a, a3, a2, panel * QN_PANEL, 0)), p.step,
                      left < QN_PANEL ? (int)left : QN_PANEL, p.k / p.block,
                      (uint8_t *)packed + i * (p.k / p.block) * p.kept * QN_PANEL);
    }
}

enum { FEW = 8 }; /* rows of activations, for which unpacked weights do once */

static int prepare_blocks(const qn_call *c, qn_cpu_step *s) {
    const qn_tensor *a = c->src[0];
    qn_quant_product p;
    runs r;
    if (!describe_blocks(c, &p, &r)) return 0;
    double each = (double)(p.panels * QN_PANEL * p.k) * (double)r.rows * (double)r.count / (double)r.units;
    s->run = run_blocks;
    s->name = "quantised dots";
    s->n_phases = 2;
    s->parts[0] = qn_cpu_parts(p.n_rows * p.chunks, QN_CHUNK * 8, 0);
    s->parts[1] = qn_cpu_parts(r.units, each / (double)r.rows, each * 2 / 4);
    s->workspace = qn_quant_workspace(&p, s->parts[1]);
    if (s->constant & 1u) {
        int64_t panels = p.panels * qn_ne(a, 2) * qn_ne(a, 3);
        s->pack = pack_blocks;
        s->pack_slot = 0;
        s->pack_parts = panels < 64 ? panels : 64;
        s->packed_bytes = (size_t)(panels * (p.k / p.block) * p.kept * QN_PANEL);
        s->pack_late = p.n_rows <= FEW; /* many rows are slower by more than packing takes */
    }
    return 1;
}

#ifdef QN_FULL_LEVEL
int QN_K(mul_mat_floats)(const qn_call *c, qn_cpu_step *s); /* k_mul_mat.c */
#elif defined(QN_AT_amx)
int QN_K(mul_mat_bf16)(const qn_call *c, qn_cpu_step *s); /* kd_amx_mul_mat.c */
#elif defined(QN_AT_i8mm)
int QN_K(mul_mat_halves)(const qn_call *c, qn_cpu_step *s); /* kd_i8mm_halves.c */
#endif

#ifdef QN_AT_sve
/* Few rows of f16 by the step of the level below, whose instructions turn halves into floats faster than SVE's. */
static int prepare_halves(const qn_call *c, qn_cpu_step *s) {
    qn_cpu_step few = {.constant = s->constant};
    if (c->src[0]->dtype != QN_DTYPE_F16 || !qn_cpu_choose(1u << QN_CPU_LEVEL_i8mm, c, &few)) return 0;
    *s = few;
    return 1;
}
#endif

enum { PREC_F32 = 10 };

int QN_K(mul_mat)(const qn_call *c, qn_cpu_step *s) {
    const qn_attr_mul_mat *at = c->attr;
    if (qn_tensor_count(c->dst[0]) == 0) return 0;
    if (qn_is_block(c->src[0]->dtype) && at->prec != PREC_F32) return prepare_blocks(c, s);
#ifdef QN_AT_sve
    if (prepare_halves(c, s)) return 1;
#endif
#ifdef QN_FULL_LEVEL
    return QN_K(mul_mat_floats)(c, s);
#elif defined(QN_AT_amx)
    return QN_K(mul_mat_bf16)(c, s);
#elif defined(QN_AT_i8mm)
    return QN_K(mul_mat_halves)(c, s);
#else
    return 0;
#endif
}
