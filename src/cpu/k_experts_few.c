/* mul_mat_id of plain floats for a few tokens: experts that stay are packed as mul_mat packs its weights and read as streams (k_stream.h), so an
 * element has the bits that the large product of k_experts.c gives it. */
#include "cpu/k_experts.h"
#include "cpu/k_lanes.h"
#include "cpu/k_stream.h"

enum { GROUP = 4 }; /* panels of a unit */

typedef struct few {
    const qn_tensor *w;
    qn_experts_few rows;
    int64_t n, panels, panel; /* rows of a matrix, its panels, bytes of one */
} few;

static int describe(const qn_call *c, few *f) {
    const qn_tensor *w = c->src[0], *x = c->src[1], *y = c->dst[0];
    if (!qn_lanes_float(w->dtype) || !qn_lanes_float(x->dtype) || y->dtype != QN_DTYPE_F32) return 0;
    if (!qn_cpu_is_dense(x) || !qn_cpu_is_dense(y)) return 0;
    *f = (few){.w = w, .rows = qn_experts_few_of(x, c->src[2], y, qn_ne(w, 2)), .n = qn_ne(w, 1)};
    f->panels = qn_stream_panels(f->n);
    f->panel = qn_stream_panel_bytes(w->dtype, f->rows.k);
    return qn_experts_are_few(&f->rows, QN_STREAM_ROWS) && f->n >= QN_GEMM_WIDE;
}

static void pack(const qn_call *c, const qn_cpu_step *s, void *packed, int64_t part) {
    const qn_tensor *w = c->src[0];
    few f;
    if (!describe(c, &f)) return;
    int64_t all = f.rows.count * f.panels, end = qn_cpu_cut(all, s->pack_parts, part + 1);
    for (int64_t i = qn_cpu_cut(all, s->pack_parts, part); i < end; i++) {
        int64_t first = i % f.panels * QN_GEMM_WIDE, left = f.n - first;
        qn_stream_pack(qn_at(w, qn_off4(w, 0, i / f.panels, first, 0)), w->dtype, qn_nb(w, 1), qn_nb(w, 0),
                       left < QN_GEMM_WIDE ? (int)left : QN_GEMM_WIDE, f.rows.k, (char *)packed + i * f.panel);
    }
}

/* Some panels of one matrix with all its rows. */
static void run_unit(const qn_call *c, const qn_cpu_step *s, const few *f, int64_t which, int64_t first) {
    qn_experts_room r = qn_experts_room_of(&f->rows, c->workspace);
    int64_t column = first * QN_GEMM_WIDE, left = f->n - column;
    qn_stream t = {.dtype = f->w->dtype, .k = f->rows.k, .contest = s->contest};
    t.panel = (const char *)s->packed + (which * f->panels + first) * f->panel;
    t.panels = f->panels - first < GROUP ? f->panels - first : GROUP;
    t.columns = left < t.panels * QN_GEMM_WIDE ? left : t.panels * QN_GEMM_WIDE;
    for (int32_t at = r.start[which], end = r.start[which + 1]; at < end; at += QN_STREAM_ROWS) {
        t.n = end - at < QN_STREAM_ROWS ? end - at : QN_STREAM_ROWS;
        for (int j = 0; j < t.n; j++) {
            t.x[j] = qn_experts_line(&f->rows, &r, r.list[at + j]);
            t.y[j] = (float *)qn_at(c->dst[0], (r.list[at + j] * f->n + column) * 4);
        }
        qn_stream_run(&t);
    }
}

static void run_few(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    few f;
    if (!describe(c, &f) || qn_experts_few_else(&f.rows, c, s, phase, part)) return;
    int64_t units = (f.panels + GROUP - 1) / GROUP, end = qn_cpu_cut(units, s->parts[1], part + 1);
    for (int64_t which = 0; which < f.rows.count; which++)
        for (int64_t u = qn_cpu_cut(units, s->parts[1], part); u < end; u++) run_unit(c, s, &f, which, u * GROUP);
}

/* Replaces the large product that is prepared in s when the weights stay. */
void QN_K(experts_few)(const qn_call *c, qn_cpu_step *s);
void QN_K(experts_few)(const qn_call *c, qn_cpu_step *s) {
    few f;
    if (!(s->constant & 1u) || !describe(c, &f)) return;
    int64_t panels = f.rows.count * f.panels;
    qn_experts_few_step(&f.rows, s, run_few, (f.panels + GROUP - 1) / GROUP, (double)(f.panel * GROUP), GROUP * QN_GEMM_WIDE);
    s->name = "streams of floats by expert";
    s->pack = pack;
    s->pack_slot = 0;
    s->pack_parts = panels < 64 ? panels : 64;
    s->packed_bytes = (size_t)(panels * f.panel);
    s->pack_late = 1;
}
