/* mul_mat of bf16 weights by tiles. A run is a matrix and the rows of activations, one after the other, that share it; rows are
 * numbered over all batches. */
#include "cpu/kd_bf16.h"

typedef struct runs {
    int64_t share2, share3; /* how many batches of b share one of a, by axis */
    int64_t count, rows;    /* runs, and rows of each */
    int64_t tall;           /* rows of a unit */
    int64_t across, blocks; /* units of a run: groups of panels, blocks of rows */
    int64_t units;
} runs;

enum { EVEN = 16 }; /* rows whose pieces fill tiles */

/* Where all pieces stay in the second cache units of few rows pay, but each of them would pack its panels anew. */
static int describe(const qn_call *c, int packed, qn_bf16_product *p, runs *r) {
    const qn_tensor *a = c->src[0], *b = c->src[1], *y = c->dst[0];
    if (qn_ne(a, 2) < 1 || qn_ne(a, 3) < 1) return 0;
    if (!qn_bf16_describe(p, a, b, y, qn_ne(b, 1) * qn_ne(b, 2) * qn_ne(b, 3))) return 0;
    r->share2 = qn_ne(b, 2) / qn_ne(a, 2);
    r->share3 = qn_ne(b, 3) / qn_ne(a, 3);
    r->rows = r->share2 * qn_ne(b, 1);
    r->count = qn_ne(a, 2) * qn_ne(b, 3);
    r->blocks = (r->rows + QN_BF16_ROWS - 1) / QN_BF16_ROWS;
    r->tall = ((r->rows + r->blocks - 1) / r->blocks + EVEN - 1) / EVEN * EVEN;
    if (packed && r->rows > EVEN && r->rows * p->pieces * p->k * 2 <= 5 << 18) {
        r->blocks = (r->rows + EVEN - 1) / EVEN;
        r->tall = (r->rows + r->blocks - 1) / r->blocks;
    }
    int64_t wide = qn_bf16_wide(p, r->rows < r->tall ? r->rows : r->tall, r->blocks * r->count);
    r->across = (p->panels + wide - 1) / wide;
    r->units = r->count * r->across * r->blocks;
    return 1;
}

/* Where row number `row` of b begins. */
static char *row_at(const qn_tensor *b, int64_t row) {
    int64_t j = row % qn_ne(b, 1), i2 = row / qn_ne(b, 1) % qn_ne(b, 2), i3 = row / qn_ne(b, 1) / qn_ne(b, 2);
    return qn_at(b, qn_off4(b, i3, i2, j, 0));
}

static void run_unit(const qn_call *c, const qn_bf16_product *p, const runs *r, int64_t number, int64_t part) {
    const qn_tensor *a = c->src[0], *b = c->src[1], *y = c->dst[0];
    qn_bf16_unit u;
    int64_t block = number % r->blocks, group = number / r->blocks % r->across, run = number / r->blocks / r->across;
    int64_t i3 = run / qn_ne(a, 2), a2 = run % qn_ne(a, 2), first = block * r->tall;
    u.matrix = i3 / r->share3 * qn_ne(a, 2) + a2;
    u.weights = qn_at(a, qn_off4(a, i3 / r->share3, a2, 0, 0));
    u.panel = qn_cpu_cut(p->panels, r->across, group);
    u.end = qn_cpu_cut(p->panels, r->across, group + 1);
    u.row = (i3 * qn_ne(b, 2) + a2 * r->share2) * qn_ne(b, 1) + first;
    u.n = r->rows - first < r->tall ? (int)(r->rows - first) : (int)r->tall;
    for (int j = 0; j < u.n; j++) {
        u.x[j] = row_at(b, u.row + j);
        u.y[j] = row_at(y, u.row + j);
    }
    if (u.n > 0) qn_bf16_run(p, &u, part);
}

static void run(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    qn_bf16_product p;
    runs r;
    if (!describe(c, s->packed != NULL, &p, &r)) return;
    qn_bf16_workspace(&p, s->parts[1]);
    qn_bf16_place(&p, c->workspace);
    p.packed = s->packed;
    int64_t all = phase == 0 ? p.n_rows : r.units, end = qn_cpu_cut(all, s->parts[phase], part + 1);
    for (int64_t i = qn_cpu_cut(all, s->parts[phase], part); i < end; i++) {
        if (phase == 0) qn_bf16_split(&p, row_at(c->src[1], i), i);
        else run_unit(c, &p, &r, i, part);
    }
}

static void pack(const qn_call *c, const qn_cpu_step *s, void *packed, int64_t part) {
    const qn_tensor *a = c->src[0];
    qn_bf16_product p;
    runs r;
    if (!describe(c, 1, &p, &r)) return;
    int64_t all = p.panels * p.matrices, end = qn_cpu_cut(all, s->pack_parts, part + 1);
    for (int64_t i = qn_cpu_cut(all, s->pack_parts, part); i < end; i++) {
        int64_t panel = i % p.panels, a2 = i / p.panels % qn_ne(a, 2), a3 = i / p.panels / qn_ne(a, 2);
        qn_bf16_pack(&p, qn_at(a, qn_off4(a, a3, a2, panel * QN_BF16_PANEL, 0)), i, packed);
    }
}

enum { FEW = 8 }; /* rows of activations, for which weights that are not packed do once */

int QN_K(mul_mat_bf16)(const qn_call *c, qn_cpu_step *s);
int QN_K(mul_mat_bf16)(const qn_call *c, qn_cpu_step *s) {
    qn_bf16_product p;
    runs r;
    if (!describe(c, s->constant & 1u, &p, &r)) return 0;
    double each = (double)(p.panels * QN_BF16_PANEL * p.k) * (double)r.count /
                  (double)r.units; /* elements of weights to a unit */
    s->run = run;
    s->name = "bf16 tiles";
    s->n_phases = 2;
    s->parts[0] = qn_cpu_parts(p.n_rows, (double)p.k * 10, 0);
    s->parts[1] = qn_cpu_parts(r.units, each * 2, each * (double)(r.rows * p.pieces) * 2 / 16);
    s->workspace = qn_bf16_workspace(&p, s->parts[1]);
    if (s->constant & 1u) {
        int64_t panels = p.panels * p.matrices;
        s->pack = pack;
        s->pack_slot = 0;
        s->pack_parts = panels < 64 ? panels : 64;
        s->packed_bytes = qn_bf16_packed_bytes(&p);
        s->pack_late = p.n_rows <= FEW;
    }
    return 1;
}
