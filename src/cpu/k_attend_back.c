/* attention_back and flash_attn_back. A part takes whole key heads: their dk and dv, and the dq of the queries that read them, so that
 * nothing is shared. Where key heads are few, each is split: some tiles of its rows to a part, which sums its own dk and dv, and a second
 * phase adds those up in their order.
 * A tile of rows goes over the keys twice: for its sums, and for the gradients. With P the weights and D = <g, result> less the
 * gradient of the logarithm of their sum: dv = PT g, dS = P (g vT - D), dX = scale dS bend, dq = dX k, dk = dXT q. A sink is one more
 * key, whose value is zero; its gradient is summed by heads, batches and splits first, and those by a last phase. A mask's gradient is a sum
 * over heads: who wants it gets one part. */
#include <math.h>

#include "cpu/k_attention.h"
#include "cpu/k_copy.h"
#include "cpu/k_flash.h"
#include "cpu/simd/simd_dot.h"
#include "cpu/simd/simd_math.h"
#include "op/alibi.h"

enum { KEYS = QN_ATTEND_KEYS, ROWS = 64 }; /* rows of a tile: as many as qn_attend_turn turns at once */

/* Rows of queries, keys and values as f32 and turned, the squares between them, and the sums. */
typedef struct slot {
    float *q, *g, *k, *v, *kt, *vt;
    float *scores, *bend, *pays, *bias, *turned, *pull;
    float *dq, *dk, *dv;
    float *top, *sum, *share, *level, *ones;
    int64_t floats;
} slot;

static slot slot_at(const qn_attend *a, float *base) {
    slot s;
    int64_t at = 0, deep = qn_attend_lanes(a->deep), wide = qn_attend_lanes(a->wide);
#define TAKE(field, count) s.field = base ? base + at : NULL, at += ((count) + 15) / 16 * 16
    TAKE(q, ROWS * deep);
    TAKE(g, ROWS * wide);
    TAKE(k, KEYS * deep);
    TAKE(v, KEYS * wide);
    TAKE(kt, KEYS * deep);
    TAKE(vt, KEYS * wide);
    TAKE(scores, ROWS * KEYS);
    TAKE(bend, ROWS * KEYS);
    TAKE(pays, ROWS * KEYS);
    TAKE(bias, ROWS * KEYS);
    TAKE(turned, ROWS * KEYS);
    TAKE(pull, ROWS * KEYS);
    TAKE(dq, ROWS * deep);
    TAKE(dk, a->keys * deep);
    TAKE(dv, a->keys * wide);
    TAKE(top, ROWS);
    TAKE(sum, ROWS);
    TAKE(share, ROWS);
    TAKE(level, ROWS);
    TAKE(ones, ROWS);
#undef TAKE
    s.floats = at;
    return s;
}

static void product(int rows, int64_t wide, int depth, const float *a, int64_t lda, const float *b, int64_t ldb, float *c,
                    int64_t ldc, const float *factor) {
    qn_attend_product(&(qn_attend_sum){.rows = rows,
                                       .depth = depth,
                                       .wide = wide,
                                       .a = a,
                                       .lda = lda,
                                       .b = (const char *)b,
                                       .ldb = ldb * 4,
                                       .dtype = QN_DTYPE_F32,
                                       .c = c,
                                       .ldc = ldc,
                                       .factor = factor});
}

/* Products of a row become scores; bend says how fast a score follows its product. */
static void score_row(const qn_attend *a, const slot *s, int r, int n, int masked) {
    const vf none = vf_set1(-INFINITY), cap = vf_set1(a->cap);
    for (int p = r * KEYS, left = n; left > 0; p += VF_N, left -= VF_N) {
        vf y = vf_load(s->scores + p) * vf_set1(a->scale), bend = vf_set1(1.0f);
        if (a->cap != 0) {
            vf t = vf_tanh(y / cap);
            bend = bend - t * t;
            y = cap * t;
        }
        if (masked) y = vf_select(vf_load(s->bias + p) == none, none, y + vf_load(s->bias + p));
        if (left < VF_N) y = vf_some(y, left, none);
        vf_store(s->scores + p, y);
        vf_store(s->bend + p, bend);
    }
}

/* Scores and <g, v> of the keys [j, j + n); 0 when no row sees any of them. */
static int score_block(const qn_attend *a, const qn_attend_place *at, const slot *s, int64_t j, int n) {
    int64_t deep = qn_attend_lanes(a->deep), wide = qn_attend_lanes(a->wide);
    int masked = a->kind != QN_ATTEND_ALL;
    if (masked && !qn_attend_bias(a, at, s->bias, j, n)) return 0;
    qn_attend_widen(qn_attend_row(&a->k, at->batch, at->head, j), a->k.place, a->k.dtype, n, a->deep, s->k, deep);
    qn_attend_widen(qn_attend_row(&a->v, at->batch, at->head, j), a->v.place, a->v.dtype, n, a->wide, s->v, wide);
    qn_attend_turn((const char *)s->k, deep * 4, QN_DTYPE_F32, n, a->deep, s->kt, NULL);
    qn_attend_turn((const char *)s->v, wide * 4, QN_DTYPE_F32, n, a->wide, s->vt, NULL);
    product(at->rows, qn_attend_lanes(n), (int)a->deep, s->q, deep, s->kt, KEYS, s->scores, KEYS, NULL);
    product(at->rows, qn_attend_lanes(n), (int)a->wide, s->g, wide, s->vt, KEYS, s->pays, KEYS, NULL);
    for (int r = 0; r < at->rows; r++) score_row(a, s, r, n, masked);
    return 1;
}

/* The highest score, the sum of the weights and <g, result> of a row, with the keys of one more block. */
static void sum_row(const slot *s, int r, int n) {
    const float *scores = s->scores + r * KEYS, *pays = s->pays + r * KEYS;
    vf top = vf_set1(s->top[r]), sum = vf_zero(), paid = vf_zero();
    for (int p = 0; p < n; p += VF_N) top = vf_max(vf_load(scores + p), top);
    float now = vf_largest(top);
    if (now == -INFINITY) now = qn_attend_without_top(scores, n);
    if (now == -INFINITY) return;
    for (int p = 0; p < n; p += VF_N) {
        vf w = vf_exp_below(vf_load(scores + p) - vf_set1(now));
        sum += w;
        paid += vf_select(w == vf_zero(), vf_zero(), w * vf_load(pays + p));
    }
    float factor = vf_exp_below(vf_set1(s->top[r] - now))[0];
    s->sum[r] = s->sum[r] * factor + vf_sum(sum);
    s->level[r] = s->level[r] * factor + vf_sum(paid);
    s->top[r] = now;
}

/* Scores become weights, and what is paid becomes the pull on the products; the pull on the scores replaces the mask. A key without a
 * score has no weight even in a row whose share is no number: other rows may see that key. */
static void pull_row(const qn_attend *a, const slot *s, int r, int n) {
    const vf none = vf_set1(-INFINITY);
    vf top = vf_set1(s->top[r]), share = vf_set1(s->share[r]), level = vf_set1(s->level[r]), scale = vf_set1(a->scale);
    for (int p = r * KEYS; p < r * KEYS + n; p += VF_N) {
        vf w = s->share[r] == 0 ? vf_zero() : vf_exp_below(vf_load(s->scores + p) - top) * share;
        w = vf_select(vf_load(s->scores + p) == none, vf_zero(), w);
        vf score = vf_select(w == vf_zero(), vf_zero(), w * (vf_load(s->pays + p) - level));
        vf_store(s->scores + p, w);
        vf_store(s->bias + p, score);
        vf_store(s->pull + p, vf_select(w == vf_zero(), vf_zero(), scale * score * vf_load(s->bend + p)));
    }
}

static void pull_block(const qn_attend *a, const qn_attend_place *at, const slot *s, int64_t j, int n) {
    int64_t deep = qn_attend_lanes(a->deep), wide = qn_attend_lanes(a->wide);
    for (int r = 0; r < at->rows; r++) pull_row(a, s, r, n);
    qn_attend_turn((const char *)s->scores, KEYS * 4, QN_DTYPE_F32, at->rows, qn_attend_lanes(n), s->turned, NULL);
    product(n, wide, at->rows, s->turned, KEYS, s->g, wide, s->dv + j * wide, wide, s->ones);
    qn_attend_turn((const char *)s->pull, KEYS * 4, QN_DTYPE_F32, at->rows, qn_attend_lanes(n), s->turned, NULL);
    product(n, deep, at->rows, s->turned, KEYS, s->q, deep, s->dk + j * deep, deep, s->ones);
    product(at->rows, deep, n, s->pull, KEYS, s->k, deep, s->dq, deep, s->ones);
}

/* ---- Tiles and key heads */

typedef struct back {
    qn_attend a;
    qn_attend_side g, dq, dk, dv;
    const qn_tensor *g_lse;
    const qn_tensor *dmask; /* NULL: not wanted */
    double *dsinks;         /* of each head of each batch; NULL: not wanted */
} back;

static float sink_of(const qn_attend *a, int64_t head) {
    float sink = -INFINITY;
    if (a->sinks) memcpy(&sink, a->sinks + head * a->sink_step, sizeof sink);
    return sink;
}

static void open_tile(const back *b, const qn_attend_place *at, const slot *s) {
    const qn_attend *a = &b->a;
    int64_t deep = qn_attend_lanes(a->deep), wide = qn_attend_lanes(a->wide);
    memset(s->dq, 0, (size_t)(at->rows * deep) * sizeof *s->dq);
    for (int r = 0; r < at->rows; r++) {
        int64_t h = qn_attend_head(a, at, r), i = qn_attend_query(a, at, r);
        qn_attend_widen(qn_attend_row(&a->q, at->batch, h, i), 0, a->q.dtype, 1, a->deep, s->q + r * deep, deep);
        qn_attend_widen(qn_attend_row(&b->g, at->batch, h, i), 0, b->g.dtype, 1, a->wide, s->g + r * wide, wide);
        s->top[r] = sink_of(a, h);
        s->sum[r] = s->top[r] == -INFINITY ? 0.0f : 1 + (s->top[r] - s->top[r]); /* of an infinite one NaN */
        s->level[r] = 0;
    }
}

static void settle_rows(const back *b, const qn_attend_place *at, const slot *s) {
    for (int r = 0; r < at->rows; r++) {
        s->share[r] = s->sum[r] == 0 ? 0 : 1 / s->sum[r];
        s->level[r] *= s->share[r];
        if (b->g_lse && s->sum[r] != 0)
            s->level[r] -= (float)qn_get4(b->g_lse, 0, at->batch, qn_attend_head(&b->a, at, r), qn_attend_query(&b->a, at, r));
        int64_t h = qn_attend_head(&b->a, at, r);
        float sink = sink_of(&b->a, h);
        if (b->dsinks && sink != -INFINITY)
            b->dsinks[at->batch * b->a.heads + h] -= exp((double)sink - (double)s->top[r]) * (double)s->share[r] *
                                                     (double)s->level[r];
    }
}

/* What the scores of a block pull, onto the mask that was added to them. */
static void pull_mask(const back *b, const qn_attend_place *at, const slot *s, int64_t j, int n) {
    for (int r = 0; r < at->rows; r++) {
        int64_t h = qn_attend_head(&b->a, at, r), i = qn_attend_query(&b->a, at, r);
        vf slope = vf_set1((float)qn_alibi_slope(b->a.max_bias, b->a.heads, h));
        float *row = (float *)(void *)qn_at(b->dmask,
                                            qn_off4(b->dmask, at->batch % b->a.mask_batches, h % b->a.mask_heads, i, j));
        for (int p = 0; p < n; p += VF_N) {
            int some = n - p < VF_N ? n - p : VF_N;
            vf_storen(row + p, vf_fma(slope, vf_load(s->bias + r * KEYS + p), vf_loadn(row + p, some)), some);
        }
    }
}

static void run_tile(const back *b, const qn_attend_place *at, const slot *s) {
    const qn_attend *a = &b->a;
    open_tile(b, at, s);
    for (int64_t j = 0; j < a->keys; j += KEYS) {
        int n = a->keys - j < KEYS ? (int)(a->keys - j) : KEYS;
        if (!score_block(a, at, s, j, n)) continue;
        for (int r = 0; r < at->rows; r++) sum_row(s, r, n);
    }
    settle_rows(b, at, s);
    for (int64_t j = 0; j < a->keys; j += KEYS) {
        int n = a->keys - j < KEYS ? (int)(a->keys - j) : KEYS;
        if (!score_block(a, at, s, j, n)) continue;
        pull_block(a, at, s, j, n);
        if (b->dmask) pull_mask(b, at, s, j, n);
    }
    for (int r = 0; r < at->rows; r++) {
        const char *row = qn_attend_row(&b->dq, at->batch, qn_attend_head(a, at, r), qn_attend_query(a, at, r));
        qn_copy_row(QN_DTYPE_F32, (const char *)(s->dq + r * qn_attend_lanes(a->deep)), b->dq.dtype, (char *)(uintptr_t)row,
                    a->deep);
    }
}

/* Some tiles of a key head; what they add to dk and dv stays in the slot. */
static void run_split(const back *b, const slot *s, int64_t batch, int64_t head, int64_t split, int64_t splits) {
    const qn_attend *a = &b->a;
    int64_t rows = a->queries * a->group, tiles = (rows + ROWS - 1) / ROWS, end = qn_cpu_cut(tiles, splits, split + 1);
    memset(s->dk, 0, (size_t)(a->keys * qn_attend_lanes(a->deep)) * sizeof *s->dk);
    memset(s->dv, 0, (size_t)(a->keys * qn_attend_lanes(a->wide)) * sizeof *s->dv);
    for (int i = 0; i < ROWS; i++) s->ones[i] = 1;
    for (int64_t h = head * a->group; b->dsinks && h < (head + 1) * a->group; h++) b->dsinks[batch * a->heads + h] = 0;
    for (int64_t tile = qn_cpu_cut(tiles, splits, split); tile < end; tile++) {
        int64_t first = tile * ROWS;
        qn_attend_place at = {batch, head, first, rows - first < ROWS ? (int)(rows - first) : ROWS};
        run_tile(b, &at, s);
    }
}

/* Row j of dk and dv, from the sums of a slot. */
static void put_sums(const back *b, const slot *s, int64_t batch, int64_t head, int64_t j) {
    const qn_attend *a = &b->a;
    char *k = (char *)(uintptr_t)qn_attend_row(&b->dk, batch, head, j),
         *v = (char *)(uintptr_t)qn_attend_row(&b->dv, batch, head, j);
    qn_copy_row(QN_DTYPE_F32, (const char *)(s->dk + j * qn_attend_lanes(a->deep)), b->dk.dtype, k, a->deep);
    qn_copy_row(QN_DTYPE_F32, (const char *)(s->dv + j * qn_attend_lanes(a->wide)), b->dv.dtype, v, a->wide);
}

static back back_of(const qn_call *c) {
    int layout = ((const qn_attr_attention_back *)c->attr)->layout;
    back b = {.a = qn_attend_describe(c, c->n_src > 4 ? c->src[4] : NULL), .g_lse = c->n_src > 5 ? c->src[5] : NULL};
    b.g = qn_attend_side_of(c->src[3], layout);
    b.dq = qn_attend_side_of(c->dst[0], layout);
    b.dk = qn_attend_side_of(c->dst[1], layout);
    b.dv = qn_attend_side_of(c->dst[2], layout);
    return b;
}

enum { N_SINKS, N_SPLITS }; /* where in the workspace, in bytes, the sums of the sinks begin, 0: nowhere; splits of a key head */

static slot slot_of(const back *b, void *workspace, int64_t part) {
    return slot_at(&b->a, (float *)workspace + slot_at(&b->a, NULL).floats * part);
}

/* Each split has a part, and so a slot, of its own. */
static void run_heads(const back *whole, const qn_cpu_step *s, void *workspace, int64_t part) {
    const qn_attend *a = &whole->a;
    int64_t key_heads = a->heads / a->group, splits = s->n[N_SPLITS], units = a->batches * key_heads * splits;
    slot at = slot_of(whole, workspace, part);
    for (int64_t u = qn_cpu_cut(units, s->parts[0], part), end = qn_cpu_cut(units, s->parts[0], part + 1); u < end; u++) {
        int64_t batch = u / splits / key_heads, head = u / splits % key_heads;
        back b = *whole;
        if (b.dsinks) b.dsinks += u % splits * a->batches * a->heads;
        run_split(&b, &at, batch, head, u % splits, splits);
        for (int64_t j = 0; splits == 1 && j < a->keys; j++) put_sums(&b, &at, batch, head, j);
    }
}

static void add_row(float *to, const float *from, int64_t n) {
    for (int64_t i = 0; i < n; i += VF_N) vf_store(to + i, vf_load(to + i) + vf_load(from + i));
}

/* Rows of dk and dv: the sums of all splits go onto those of the first. */
static void add_splits(const back *b, const qn_cpu_step *s, void *workspace, int64_t part) {
    const qn_attend *a = &b->a;
    int64_t key_heads = a->heads / a->group, splits = s->n[N_SPLITS], rows = a->batches * key_heads * a->keys;
    int64_t deep = qn_attend_lanes(a->deep), wide = qn_attend_lanes(a->wide), end = qn_cpu_cut(rows, s->parts[1], part + 1);
    for (int64_t r = qn_cpu_cut(rows, s->parts[1], part); r < end; r++) {
        int64_t unit = r / a->keys, j = r % a->keys;
        slot first = slot_of(b, workspace, unit * splits);
        for (int64_t k = 1; k < splits; k++) {
            slot more = slot_of(b, workspace, unit * splits + k);
            add_row(first.dk + j * deep, more.dk + j * deep, deep);
            add_row(first.dv + j * wide, more.dv + j * wide, wide);
        }
        put_sums(b, &first, unit / key_heads, unit % key_heads, j);
    }
}

static void run(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    back b = back_of(c);
    if (phase == 0) run_heads(&b, s, c->workspace, part);
    else add_splits(&b, s, c->workspace, part);
}

/* The most parts there may be: each has the sums of a whole key head. */
static int64_t most_parts(int64_t floats) {
    int64_t most = (1 << 24) / floats;
    return most < 16 ? 16 : most > 64 ? 64 : most;
}

static int plan(const qn_attend *a, qn_cpu_step *s, const char *name, qn_cpu_run_fn run_part, int alone) {
    if (a->deep > 4096 || a->wide > 4096 || a->keys > 1 << 20) return 0;
    int64_t units = a->batches * (a->heads / a->group), floats = slot_at(a, NULL).floats, splits = 1;
    int64_t rows = a->queries * a->group, tiles = rows / ROWS + (rows % ROWS != 0), most = alone ? 1 : most_parts(floats);
    double flops = 14.0 * (double)(a->deep + a->wide) * (double)a->keys * (double)rows;
    if (units < most && tiles > 1) { /* units times tiles fits: the output has as many rows */
        int64_t wanted = qn_cpu_parts(units * tiles, 0, flops / (double)tiles);
        if (wanted > most) wanted = most;
        if (wanted / units > 1) splits = wanted / units < tiles ? wanted / units : tiles;
    }
    qn_cpu_by_rows(s, name, run_part, units * splits, 0, flops / (double)splits);
    if (splits > 1) {
        s->parts[0] = units * splits;
        s->parts[1] = qn_cpu_parts(units * a->keys, 4.0 * (double)(a->deep + a->wide) * (double)splits, 0);
        s->n_phases = 2;
    } else if (s->parts[0] > most) s->parts[0] = most;
    s->n[N_SPLITS] = splits;
    s->workspace = (size_t)(floats * 4 * s->parts[0]);
    return 1;
}

static int takes(const qn_call *c) {
    const qn_tensor *mask = c->n_src > 4 ? c->src[4] : NULL;
    if (c->n_src < 4 || c->n_dst < 3 || (c->n_dst > 3 && c->dst[3])) return 0; /* a bias's gradient is the reference's */
    for (int i = 0; i < 4; i++)
        if (!c->src[i] || !qn_lanes_rows(c->src[i]) || qn_tensor_count(c->src[i]) == 0) return 0;
    for (int i = 0; i < 3; i++)
        if (!c->dst[i] || !qn_lanes_rows(c->dst[i])) return 0;
    return !mask || qn_lanes_rows(mask) || (mask->dtype == QN_DTYPE_BOOL && (qn_ne(mask, 0) == 1 || qn_nb(mask, 0) == 1));
}

int QN_K(attention_back)(const qn_call *c, qn_cpu_step *s) {
    if (!takes(c) || ((const qn_attr_attention_back *)c->attr)->q_offset > INT64_MAX / 4) return 0;
    back b = back_of(c);
    return plan(&b.a, s, "attention_back", run, 0);
}

/* ---- flash_attn_back */

static back flash_of(const qn_call *c, const qn_cpu_step *s) {
    back b = {.a = qn_attend_flash(c, c->src[4], c->src[5]),
              .g = qn_attend_side_of(c->src[3], 1),
              .dq = qn_attend_side_of(c->dst[0], 0),
              .dk = qn_attend_side_of(c->dst[1], 0),
              .dv = qn_attend_side_of(c->dst[2], 0)};
    if (c->n_dst > 3 && c->src[4]) b.dmask = c->dst[3];
    if (s->n[N_SINKS]) b.dsinks = (double *)(void *)((char *)c->workspace + s->n[N_SINKS]);
    return b;
}

static void run_flash(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    back b = flash_of(c, s);
    int64_t splits = s->n[N_SPLITS];
    if (phase == 0) {
        if (b.dmask) qn_fill(b.dmask, 0);
        run_heads(&b, s, c->workspace, part);
        return;
    }
    if (splits > 1 && phase == 1) {
        add_splits(&b, s, c->workspace, part);
        return;
    }
    for (int64_t h = 0; h < b.a.heads; h++) {
        double sum = 0;
        for (int64_t i = 0; i < b.a.batches * splits; i++) sum += b.dsinks[i * b.a.heads + h];
        qn_put4(c->dst[4], 0, 0, 0, h, sum);
    }
}

int QN_K(flash_attn_back)(const qn_call *c, qn_cpu_step *s) {
    const qn_tensor *mask = c->src[4], *dmask = c->n_dst > 3 && mask ? c->dst[3] : NULL;
    if (c->src[0]->dtype != QN_DTYPE_F32 || !qn_lanes_rows(c->src[0]) || !qn_lanes_rows(c->src[3])) return 0;
    for (int i = 0; i < 4; i++)
        if (qn_tensor_count(c->src[i]) == 0 || (!qn_is_block(c->src[i]->dtype) && !qn_lanes_rows(c->src[i]))) return 0;
    for (int i = 0; i < 3; i++)
        if (!c->dst[i] || !qn_lanes_rows(c->dst[i])) return 0;
    if ((mask && !qn_lanes_rows(mask)) || (dmask && !qn_lanes_rows(dmask))) return 0;
    qn_attend a = qn_attend_flash(c, mask, c->src[5]);
    if (!plan(&a, s, "flash_attn_back", run_flash, dmask != NULL)) return 0;
    if (c->n_dst <= 4 || !c->dst[4] || !c->src[5]) return 1;
    s->n[N_SINKS] = (int64_t)s->workspace; /* a multiple of 64 */
    s->workspace += (size_t)(s->n[N_SPLITS] * a.batches * a.heads) * sizeof(double);
    s->parts[s->n_phases++] = 1;
    return 1;
}
