/* lightning_indexer: of a token's query heads against every key, the dots that are not negative, weighted and summed over the heads.
 * Lanes are keys: they are laid out in panels once, by the first phase, for all tokens; the second takes a token and a group of panels
 * at a time. A dot is one chain over the depth, a sum one chain over the heads, whatever tile they are in. */
#include "cpu/k_decoded.h"
#include "cpu/k_lanes.h"
#include "cpu/simd/simd_turn.h"

enum { HEADS = QN_GEMM_ROWS, VECTORS = QN_GEMM_VECTORS, WIDE = QN_GEMM_WIDE }; /* of a tile: heads, and keys */
enum { GROUP_BYTES = 1 << 19 };                                                /* of panels that stay in the second cache */
enum { Q, K, W, MASK };

typedef struct index_plan {
    const qn_tensor *q, *k, *w, *mask, *y;
    int64_t streams, tokens, heads, keys, depth;
    int64_t panels, group, groups; /* of a stream's keys: panels, panels of a group, and groups */
    int64_t panel, query;          /* floats of a panel, and of a token's queries */
} index_plan;

static index_plan plan_of(const qn_call *c) {
    index_plan p = {.q = c->src[Q], .k = c->src[K], .w = c->src[W], .mask = c->src[MASK], .y = c->dst[0]};
    p.streams = qn_ne(p.q, 3);
    p.tokens = qn_ne(p.q, 2);
    p.heads = qn_ne(p.q, 1);
    p.depth = qn_ne(p.q, 0);
    p.keys = qn_ne(p.y, 0);
    p.panel = p.depth * WIDE;
    p.query = (p.heads + HEADS - 1) / HEADS * HEADS * (p.depth + 1); /* and their weights behind them */
    p.panels = (p.keys + WIDE - 1) / WIDE;
    p.group = p.panel > 0 && GROUP_BYTES / 4 / p.panel > 1 ? GROUP_BYTES / 4 / p.panel : 1;
    p.groups = (p.panels + p.group - 1) / p.group;
    return p;
}

/* ---- Phase 0: panels */

static qn_gemm_side keys_of(const index_plan *p) {
    qn_gemm_side side = {.data = qn_at(p->k, 0), .along = qn_nb(p->k, 2), .deep = qn_nb(p->k, 0), .dtype = p->k->dtype};
    side.fetch = qn_is_block(side.dtype) ? qn_decoded_blocks : qn_gemm_plain_fetch(side.dtype, side.along, side.deep, p->depth);
    return side;
}

static void lay_keys(const index_plan *p, int64_t number, float *panels) {
    qn_gemm_side side = keys_of(p);
    int64_t stream = number / p->panels, first = number % p->panels * WIDE;
    int64_t count = p->keys - first < WIDE ? p->keys - first : WIDE;
    side.fetch(&side, stream * qn_nb(p->k, 3), first, count, 0, (int)p->depth, panels + number * p->panel, WIDE);
}

/* ---- Phase 1: scores */

/* Some heads against a panel: a holds the heads of a tile side by side, for each number of the depth; w their weights. */
QN_INLINE void tile(int heads, int64_t depth, const float *a, const float *b, const float *w, vf *sum) {
    vf dot[HEADS][VECTORS];
    QN_UNROLL
    for (int i = 0; i < heads; i++) {
        QN_UNROLL
        for (int v = 0; v < VECTORS; v++) dot[i][v] = vf_zero();
    }
    for (int64_t p = 0; p < depth; p++, a += HEADS, b += WIDE) {
        vf line[VECTORS];
        QN_UNROLL
        for (int v = 0; v < VECTORS; v++) line[v] = vf_load(b + v * VF_N);
        QN_UNROLL
        for (int i = 0; i < heads; i++) {
            vf one = vf_set1(a[i]);
            QN_UNROLL
            for (int v = 0; v < VECTORS; v++) dot[i][v] = vf_fma_stay(one, line[v], dot[i][v]);
        }
    }
    QN_UNROLL
    for (int i = 0; i < heads; i++) {
        QN_UNROLL
        for (int v = 0; v < VECTORS; v++) /* NaN is not below 0 and passes */
            sum[v] = vf_fma(vf_select(dot[i][v] < vf_zero(), vf_zero(), dot[i][v]), vf_set1(w[i]), sum[v]);
    }
}

static void score_panel(const index_plan *p, const float *query, const float *panel, vf *sum) {
    const float *w = query + p->query / (p->depth + 1) * p->depth;
    int64_t h = 0;
    for (int v = 0; v < VECTORS; v++) sum[v] = vf_zero();
    for (; h + HEADS <= p->heads; h += HEADS, query += p->depth * HEADS) tile(HEADS, p->depth, query, panel, w + h, sum);
    for (int some; h < p->heads; h += some, query += some) {
        int64_t left = p->heads - h;
        some = HEADS > 8 && left >= 8 ? 8 : HEADS > 4 && left >= 4 ? 4 : left >= 2 ? 2 : 1;
        if (HEADS > 8 && some == 8) tile(8, p->depth, query, panel, w + h, sum);
        else if (HEADS > 4 && some == 4) tile(4, p->depth, query, panel, w + h, sum);
        else if (some == 2) tile(2, p->depth, query, panel, w + h, sum);
        else tile(1, p->depth, query, panel, w + h, sum);
    }
}

static void lay_queries(const index_plan *p, int64_t stream, int64_t token, float *to) {
    qn_gemm_side side = {.data = qn_at(p->q, 0), .along = qn_nb(p->q, 1), .deep = qn_nb(p->q, 0), .dtype = p->q->dtype};
    float *w = to + p->query / (p->depth + 1) * p->depth;
    qn_gemm_plain_fetch(side.dtype, side.along, side.deep, p->depth)(&side, stream * qn_nb(p->q, 3) + token * qn_nb(p->q, 2), 0,
                                                                     p->heads, 0, (int)p->depth, to, HEADS);
    for (int64_t h = 0; h < p->heads; h++) w[h] = *(const float *)(const void *)qn_at(p->w, qn_off4(p->w, stream, 0, token, h));
}

/* Units are groups of panels with each token in turn, so that a group is read from memory once. */
static void score_unit(const index_plan *p, int64_t unit, const float *panels, float *query) {
    int64_t stream = unit / (p->groups * p->tokens), group = unit / p->tokens % p->groups, token = unit % p->tokens;
    int64_t first = group * p->group, end = first + p->group < p->panels ? first + p->group : p->panels;
    const char *mask = qn_at(p->mask, qn_off4(p->mask, stream % qn_ne(p->mask, 3), 0, token, 0));
    char *y = qn_at(p->y, qn_off4(p->y, stream, 0, token, 0));
    lay_queries(p, stream, token, query);
    for (int64_t i = first; i < end; i++) {
        vf sum[VECTORS];
        score_panel(p, query, panels + (stream * p->panels + i) * p->panel, sum);
        for (int v = 0; v < VECTORS && i * WIDE + v * VF_N < p->keys; v++) {
            int64_t at = i * WIDE + v * VF_N;
            vf bias = qn_lanes_at(p->mask->dtype, mask, at, p->keys);
            qn_lanes_put_at(QN_DTYPE_F32, y, at, sum[v] + bias, p->keys);
        }
    }
}

static void run(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    index_plan p = plan_of(c);
    int64_t count = phase == 0 ? p.streams * p.panels : p.streams * p.groups * p.tokens;
    float *panels = c->workspace, *query = panels + p.streams * p.panels * p.panel + part * ((p.query + 15) / 16 * 16);
    int64_t end = qn_cpu_cut(count, s->parts[phase], part + 1);
    for (int64_t i = qn_cpu_cut(count, s->parts[phase], part); i < end; i++) {
        if (phase == 0) lay_keys(&p, i, panels);
        else score_unit(&p, i, panels, query);
    }
}

static int can_lay(const qn_tensor *k) {
    const qn_dtype_info *d = qn_dtype_describe((qn_dtype)k->dtype);
    if (!qn_is_block(k->dtype)) return qn_lanes_float(k->dtype);
    return QN_DECODED_RUN % d->block == 0 && qn_nb(k, 0) == d->bytes;
}

int QN_K(lightning_indexer)(const qn_call *c, qn_cpu_step *s) {
    index_plan p = plan_of(c);
    if (qn_tensor_count(p.y) == 0 || p.heads == 0 || p.depth == 0 || p.depth > INT32_MAX) return 0;
    if (p.q->dtype != QN_DTYPE_F32 || !can_lay(p.k) || !qn_lanes_rows(p.mask) || !qn_lanes_rows(p.y)) return 0;
    double bytes = (double)p.panel * 8, flops = 2.0 * (double)(p.heads * p.panel) * (double)p.group;
    s->run = run;
    s->name = "indexer f32";
    s->n_phases = 2;
    s->parts[0] = qn_cpu_parts(p.streams * p.panels, bytes, 0);
    s->parts[1] = qn_cpu_parts(p.streams * p.groups * p.tokens, 0, flops);
    s->workspace = (size_t)(p.streams * p.panels * p.panel + s->parts[1] * ((p.query + 15) / 16 * 16)) * sizeof(float);
    return 1;
}
