/* Softmax attention over tiles of rows and blocks of keys; see k_attention.h for what makes its bits what they are. A row is a
 * query of one head; the rows of all heads that share a key head lie in one tile and share its keys and values. */
#include "cpu/k_attention.h"

#include <math.h>

#include "cpu/simd/simd_dot.h"
#include "cpu/simd/simd_math.h"
#include "op/alibi.h"

/* Rows that do not pay for keys and values to become floats first. */
#ifdef QN_SIMD_PLAIN /* where that takes many steps */
enum { FEW = 4 };
#else
enum { FEW = 12 };
#endif
enum {
    KEYS = QN_ATTEND_KEYS,
    SPAN = QN_ATTEND_SPAN,
    BUNDLE = 8, /* most heads of a bundle */
    UNITS = 16  /* with fewer, threads would go without */
};

static inline float exp_one(float x) { return vf_exp_below(vf_set1(x))[0]; }

/* ---- Cutting */

static int64_t aligned(int64_t floats) { return (floats + 15) / 16 * 16; }
static int is_plain(uint32_t dtype) { return dtype == QN_DTYPE_F32 || dtype == QN_DTYPE_F16 || dtype == QN_DTYPE_BF16; }

/* A part's scratch: what blocks pass through, and what each head of a bundle keeps. Of a row that is its highest score so far and its sum, in
 * the span at hand and in all before it. */
typedef struct slot {
    float *keys, *key_rows, *values, *scores, *bias, *factor;
    float *q, *sums, *totals, *top, *sum, *all_top, *all_sum;
    int64_t floats; /* up to here */
} slot;

static slot slot_at(const qn_attend *a, int64_t tile, float *base, int64_t head) {
    slot s;
    int64_t at = 0, pitch = qn_attend_lanes(a->wide);
#define TAKE(field, count) s.field = base ? base + at : NULL, at += aligned(count)
    TAKE(keys, KEYS * a->deep);
    TAKE(key_rows, is_plain(a->k.dtype) ? 0 : KEYS * qn_attend_lanes(a->deep));
    TAKE(values, KEYS * pitch);
    TAKE(scores, tile * KEYS);
    TAKE(bias, tile * KEYS);
    TAKE(factor, tile);
    at += head * (aligned(tile * a->deep) + 2 * aligned(tile * pitch) + 4 * aligned(tile));
    TAKE(q, tile * a->deep);
    TAKE(sums, tile * pitch);
    TAKE(totals, tile * pitch);
    TAKE(top, tile);
    TAKE(sum, tile);
    TAKE(all_top, tile);
    TAKE(all_sum, tile);
#undef TAKE
    s.floats = at;
    return s;
}

static int64_t bundles(int64_t key_heads, int64_t bundle) { return (key_heads + bundle - 1) / bundle; }

/* Heads of a bundle: as many as leave enough units. */
static int64_t bundle_of(const qn_attend *a, int64_t key_heads, int64_t spans) {
    int64_t bundle = 1;
    while (bundle < BUNDLE && 2 * bundle <= key_heads && a->batches * bundles(key_heads, 2 * bundle) * spans >= UNITS)
        bundle *= 2;
    return bundle;
}

int qn_attend_plan(const qn_attend *a, qn_attend_cut *cut) {
    int64_t key_heads = a->heads / a->group, rows = a->queries * a->group, most = INT64_MAX / 4096;
    if (a->deep > 8192 || a->wide > 8192 || a->keys > most / 16384 || a->batches > most / a->heads / a->queries) return 0;
    memset(cut, 0, sizeof *cut);
    cut->tile = rows < QN_ATTEND_ROWS ? rows : QN_ATTEND_ROWS;
    cut->tiles = (rows + cut->tile - 1) / cut->tile;
    cut->spans = (a->keys + SPAN - 1) / SPAN;
    cut->split = cut->spans > 1 && a->batches * bundles(key_heads, rows <= FEW ? BUNDLE : 1) * cut->tiles < UNITS;
    cut->bundle = rows <= FEW ? bundle_of(a, key_heads, cut->split ? cut->spans : 1) : 1;
    cut->units = a->batches * bundles(key_heads, cut->bundle) * cut->tiles;
    cut->partial = aligned(qn_attend_lanes(a->wide) + 2);
    int64_t partials = cut->split ? a->batches * key_heads * cut->tiles * cut->spans * cut->tile : 0;
    double unit_flops = 2.0 * (double)(a->deep + a->wide) * (double)a->keys * (double)(cut->tile * cut->bundle);
    if (cut->split) {
        cut->units *= cut->spans;
        unit_flops /= (double)cut->spans;
    }
    cut->parts[0] = qn_cpu_parts(cut->units, 0, unit_flops);
    if (cut->parts[0] > 32 && !cut->split) cut->parts[0] = 32; /* each has its scratch */
    cut->parts[1] = a->batches * a->heads * a->queries;
    if (cut->parts[1] > 16) cut->parts[1] = 16;
    if (cut->parts[1] > cut->parts[0]) cut->parts[1] = cut->parts[0]; /* it works in the scratch of the first */
    cut->slot = slot_at(a, cut->tile, NULL, cut->bundle - 1).floats;
    cut->workspace = (cut->slot * cut->parts[0] + partials * cut->partial) * 4;
    return 1;
}

/* ---- One block of keys */

/* What the mask adds to n keys from j on; 0 when it leaves none of them. */
static int bias_of_row(const qn_attend *a, const qn_attend_place *at, int r, int64_t j, int n, float *bias) {
    int64_t i = qn_attend_query(a, at, r), h = qn_attend_head(a, at, r);
    const vf none = vf_set1(-INFINITY);
    vi live = vi_set1(0);
    if (a->kind == QN_ATTEND_BAND) {
        int64_t last = i + a->offset - j, first = last - a->window; /* seen: first <= key <= last, of this block */
        for (int p = 0; p < KEYS; p++) bias[p] = p >= first && p <= last ? 0 : -INFINITY;
        return first < n && last >= 0;
    }
    const char *row = a->mask.data + at->batch % a->mask_batches * a->mask.batch + h % a->mask_heads * a->mask.head +
                      i * a->mask.place;
    if (a->kind == QN_ATTEND_CHOICE && a->mask.dtype == QN_DTYPE_BOOL) {
        int any = 0;
        for (int p = 0; p < n; p++) {
            bias[p] = row[j + p] ? 0 : -INFINITY;
            any |= row[j + p];
        }
        return any;
    }
    float slope = (float)qn_alibi_slope(a->max_bias, a->heads, h);
    for (int p = 0; p < n; p += VF_N) {
        int some = n - p < VF_N ? n - p : VF_N;
        const float *f = (const float *)(const void *)row + j + p;
        const uint16_t *u = (const uint16_t *)(const void *)row + j + p;
        vf b = a->mask.dtype == QN_DTYPE_F32   ? vf_loadn(f, some)
               : a->mask.dtype == QN_DTYPE_F16 ? (some == VF_N ? vf_load_h(u) : vf_load_hn(u, some))
                                               : vf_load_bn(u, some);
        if (a->kind == QN_ATTEND_CHOICE) b = vf_select(b < vf_set1(0.5f), none, vf_zero());
        live |= b != none;
        vf_store(bias + p, vf_select(b == none, none, b * vf_set1(slope)));
    }
    return vi_largest((vi)((vu)live >> 31)) != 0;
}

/* The biases of a tile; 0 when no row sees any of these keys. */
int qn_attend_bias(const qn_attend *a, const qn_attend_place *at, float *tile, int64_t j, int n) {
    int any = 0;
    for (int r = 0; r < at->rows; r++) {
        float *bias = tile + r * KEYS;
        int seen = bias_of_row(a, at, r, j, n, bias);
        for (int p = 0; !seen && p < KEYS; p += VF_N) vf_store(bias + p, vf_set1(-INFINITY));
        any |= seen;
    }
    return any;
}

/* Products become scores, the highest is found, and scores become weights. */
static void weigh_row(const qn_attend *a, const slot *s, int r, int n, int masked) {
    float *scores = s->scores + r * KEYS;
    const float *bias = s->bias + r * KEYS;
    const vf none = vf_set1(-INFINITY), scale = vf_set1(a->scale), cap = vf_set1(a->cap);
    vf top = vf_set1(s->top[r]), sum = vf_zero();
    for (int p = 0; p < n; p += VF_N) {
        vf y = vf_load(scores + p) * scale;
        if (a->cap != 0) y = cap * vf_tanh(y / cap);
        if (masked) {
            vf b = vf_load(bias + p);
            y = vf_select(b == none, none, y + b);
        }
        if (p + VF_N > n) y = vf_some(y, n - p, none); /* no key there */
        top = vf_max(y, top);
        vf_store(scores + p, y);
    }
    float before = s->top[r], now = vf_largest(top);
    if (now == -INFINITY) now = qn_attend_without_top(scores, n);
    if (now == -INFINITY) { /* no key of this row has a score yet */
        memset(scores, 0, KEYS * sizeof *scores);
        s->factor[r] = 1;
        return;
    }
    for (int p = 0; p < n; p += VF_N) {
        vf w = vf_exp_below(vf_load(scores + p) - vf_set1(now));
        vf_store(scores + p, w);
        sum += w;
    }
    float factor = before == now ? 1.0f : exp_one(before - now);
    s->factor[r] = factor;
    s->top[r] = now;
    s->sum[r] = s->sum[r] * factor + vf_sum(sum);
}

/* Keys or values [j, j + n) as f32. */
static void widen(const qn_attend_side *side, const qn_attend_decoder *by, const qn_attend_place *at, int64_t j, int n,
                  int64_t deep, float *to, int64_t pitch) {
    if (by->decode) by->decode(by->context, side, at->batch, at->head, j, n, deep, to, pitch);
    else qn_attend_widen(qn_attend_row(side, at->batch, at->head, j), side->place, side->dtype, n, deep, to, pitch);
}

/* Whether rows of blocks stay codes until they are multiplied. */
static int stays_codes(const qn_attend_side *side, const qn_attend_decoder *by) {
    return !by->decode && qn_attend_has_codes(side->dtype);
}

/* Columns of the keys [j, j + n), as they are multiplied: of 16 bits where they can stay so, else f32. */
static uint32_t turn_keys(const qn_attend *a, const qn_attend_place *at, const slot *s, int64_t j, int n,
                          qn_attend_ahead *ahead) {
    const char *k = qn_attend_row(&a->k, at->batch, at->head, j);
    if (!is_plain(a->k.dtype)) {
        int64_t deep = qn_attend_lanes(a->deep);
        widen(&a->k, &a->k_codes, at, j, n, a->deep, s->key_rows, deep);
        qn_attend_turn((const char *)s->key_rows, deep * 4, QN_DTYPE_F32, n, a->deep, s->keys, NULL);
    } else if (at->rows <= FEW && a->k.dtype != QN_DTYPE_F32 && qn_attend_turns_words(n, a->deep)) {
        qn_attend_turn_words(k, a->k.place, a->deep, (uint16_t *)(void *)s->keys, ahead);
        return a->k.dtype;
    } else qn_attend_turn(k, a->k.place, a->k.dtype, n, a->deep, s->keys, ahead);
    return QN_DTYPE_F32;
}

/* The products of all rows with the keys [j, j + n). */
static void score_block(const qn_attend *a, const qn_attend_place *at, const slot *s, int64_t j, int n, qn_attend_ahead *ahead) {
    if (at->rows <= FEW && n == KEYS && stays_codes(&a->k, &a->k_codes)) {
        qn_attend_scores(&(qn_attend_score){.rows = at->rows,
                                            .deep = a->deep,
                                            .q = s->q,
                                            .keys = qn_attend_row(&a->k, at->batch, at->head, j),
                                            .step = a->k.place,
                                            .dtype = a->k.dtype,
                                            .scores = s->scores,
                                            .scales = s->key_rows,
                                            .ahead = ahead});
        return;
    }
    uint32_t columns = turn_keys(a, at, s, j, n, ahead);
    qn_attend_product(&(qn_attend_sum){.rows = at->rows,
                                       .depth = (int)a->deep,
                                       .wide = qn_attend_lanes(n),
                                       .a = s->q,
                                       .lda = a->deep,
                                       .b = (const char *)s->keys,
                                       .ldb = KEYS * qn_float_bytes(columns),
                                       .dtype = columns,
                                       .c = s->scores,
                                       .ldc = KEYS,
                                       .ahead = ahead});
}

/* What comes after the block at hand: keys of a head from j on. */
typedef struct later {
    int64_t head, j;
} later;

static qn_attend_rows rows_ahead(const qn_attend *a, const qn_attend_side *side, const qn_attend_place *at, later then,
                                 int64_t n) {
    if (then.j >= a->keys) return (qn_attend_rows){0};
    int rows = a->keys - then.j < KEYS ? (int)(a->keys - then.j) : KEYS;
    int64_t bytes = is_plain(side->dtype) ? n * qn_float_bytes(side->dtype)
                                          : n / QN_ATTEND_BLOCK * qn_attend_block_bytes(side->dtype);
    return (qn_attend_rows){qn_attend_row(side, at->batch, then.head, then.j), side->place, bytes, rows};
}

/* Keys [j, j + n) for all rows of a tile. */
static void attend_block(const qn_attend *a, const qn_attend_place *at, const slot *s, int64_t j, int n, later then) {
    int64_t pitch = qn_attend_lanes(a->wide);
    int masked = a->kind != QN_ATTEND_ALL;
    if (masked && !qn_attend_bias(a, at, s->bias, j, n)) return;
    int few = at->rows <= FEW, codes = few && stays_codes(&a->v, &a->v_codes);
    int direct = codes || (is_plain(a->v.dtype) && pitch == a->wide && (few || a->v.dtype == QN_DTYPE_F32));
    /* with few rows it is memory that takes the time */
    int asks = few && direct && (is_plain(a->k.dtype) || stays_codes(&a->k, &a->k_codes));
    qn_attend_ahead ahead = {.third = 0};
    if (asks) {
        ahead.keys = rows_ahead(a, &a->k, at, then, a->deep);
        ahead.values = rows_ahead(a, &a->v, at, then, a->wide);
        ahead.third = (ahead.keys.left + ahead.values.left + 2) / 3;
    }
    score_block(a, at, s, j, n, &ahead);
    for (int r = 0; r < at->rows; r++) weigh_row(a, s, r, n, masked);
    if (!direct) widen(&a->v, &a->v_codes, at, j, n, a->wide, s->values, pitch);
    qn_attend_sum sum = {.rows = at->rows,
                         .depth = n,
                         .wide = pitch,
                         .a = s->scores,
                         .lda = KEYS,
                         .b = (const char *)s->values,
                         .ldb = pitch * 4,
                         .dtype = QN_DTYPE_F32,
                         .c = s->sums,
                         .ldc = pitch,
                         .factor = s->factor,
                         .ahead = &ahead};
    if (direct) {
        sum.b = qn_attend_row(&a->v, at->batch, at->head, j);
        sum.ldb = a->v.place;
        sum.dtype = a->v.dtype;
        sum.scales = s->values;
    }
    if (codes) qn_attend_scales(sum.b, sum.ldb, sum.dtype, n, a->wide, s->values);
    qn_attend_product(&sum);
}

/* ---- Spans and rows */

static void begin_span(const qn_attend *a, const qn_attend_place *at, const slot *s) {
    memset(s->sums, 0, (size_t)(at->rows * qn_attend_lanes(a->wide)) * sizeof *s->sums);
    for (int r = 0; r < at->rows; r++) {
        s->top[r] = -INFINITY;
        s->sum[r] = 0;
    }
}

/* The sums of one more span of a row onto those before it. */
static void merge_span(float *total, float *all_top, float *all_sum, const float *sums, float top, float sum, int64_t pitch) {
    if (top == -INFINITY) return;
    float now = *all_top > top ? *all_top : top;
    float before = exp_one(*all_top - now), here = exp_one(top - now);
    vf f = vf_set1(before), g = vf_set1(here);
    for (int64_t i = 0; i < pitch; i += VF_N) vf_store(total + i, vf_fma(vf_load(sums + i), g, vf_load(total + i) * f));
    *all_sum = *all_sum * before + sum * here;
    *all_top = now;
}

static void store_row(const qn_attend_side *y, char *row, const float *x, float scale, int64_t n) {
    vf f = vf_set1(scale);
    for (int64_t i = 0; i < n; i += VF_N) {
        int some = n - i < VF_N ? (int)(n - i) : VF_N;
        vf v = vf_load(x + i) * f;
        if (y->dtype == QN_DTYPE_F32) vf_storen((float *)(void *)row + i, v, some);
        else if (y->dtype == QN_DTYPE_F16) vf_store_hn((uint16_t *)(void *)row + i, v, some);
        else vf_store_bn((uint16_t *)(void *)row + i, v, some);
    }
}

/* The sink joins the sum, and the row is written. */
static void finish_row(const qn_attend *a, int64_t b, int64_t h, int64_t i, const float *total, float top, float sum) {
    float factor = 1;
    if (a->sinks) {
        float sink;
        memcpy(&sink, a->sinks + h * a->sink_step, sizeof sink);
        if (sink > top) {
            factor = exp_one(top - sink);
            sum = sum * factor + exp_one(sink - sink); /* 1, and of an infinite one NaN */
            top = sink;
        } else if (sink != -INFINITY) sum += exp_one(sink - top);
    }
    store_row(&a->y, (char *)(uintptr_t)qn_attend_row(&a->y, b, h, i), total, sum == 0 ? 0 : factor / sum, a->wide);
    if (!a->lse) return;
    float lse = sum == 0 ? -INFINITY : top + vf_log(vf_set1(sum))[0];
    memcpy(a->lse + b * a->lse_batch + h * a->lse_head + i * a->lse_place, &lse, sizeof lse);
}

static void fetch_queries(const qn_attend *a, const qn_attend_place *at, const slot *s) {
    for (int r = 0; r < at->rows; r++) {
        const char *row = qn_attend_row(&a->q, at->batch, qn_attend_head(a, at, r), qn_attend_query(a, at, r));
        qn_attend_widen(row, 0, a->q.dtype, 1, a->deep, s->q + r * a->deep, a->deep);
    }
}

/* ---- Parts */

static qn_attend_place place_of(const qn_attend *a, const qn_attend_cut *cut, int64_t unit) {
    int64_t key_heads = a->heads / a->group, rows = a->queries * a->group;
    qn_attend_place at = {unit / cut->tiles / key_heads, unit / cut->tiles % key_heads, unit % cut->tiles * cut->tile, 0};
    at.rows = (int)(rows - at.first < cut->tile ? rows - at.first : cut->tile);
    return at;
}

static int64_t unit_of(const qn_attend *a, const qn_attend_cut *cut, const qn_attend_place *at) {
    return (at->batch * (a->heads / a->group) + at->head) * cut->tiles + at->first / cut->tile;
}

static float *partial_of(const qn_attend_cut *cut, float *workspace, int64_t unit, int64_t r) {
    return workspace + cut->slot * cut->parts[0] + (unit * cut->tile + r) * cut->partial;
}

/* Sums of one span are kept: the sums, then the highest score and the total weight. */
static void keep_sums(const qn_attend *a, const qn_attend_cut *cut, float *workspace, const qn_attend_place *at, const slot *s,
                      int64_t span) {
    int64_t pitch = qn_attend_lanes(a->wide), unit = unit_of(a, cut, at) * cut->spans + span;
    for (int r = 0; r < at->rows; r++) {
        float *kept = partial_of(cut, workspace, unit, r);
        memcpy(kept, s->sums + r * pitch, (size_t)pitch * sizeof *kept);
        kept[pitch] = s->top[r];
        kept[pitch + 1] = s->sum[r];
    }
}

static void merge_sums(const qn_attend *a, const qn_attend_place *at, const slot *s) {
    int64_t pitch = qn_attend_lanes(a->wide);
    for (int r = 0; r < at->rows; r++)
        merge_span(s->totals + r * pitch, s->all_top + r, s->all_sum + r, s->sums + r * pitch, s->top[r], s->sum[r], pitch);
}

static void finish_tile(const qn_attend *a, const qn_attend_place *at, const slot *s) {
    int64_t pitch = qn_attend_lanes(a->wide);
    for (int r = 0; r < at->rows; r++)
        finish_row(a, at->batch, qn_attend_head(a, at, r), qn_attend_query(a, at, r), s->totals + r * pitch, s->all_top[r],
                   s->all_sum[r]);
}

/* A bundle of tiles, one of each head. */
typedef struct group {
    qn_attend_place at[BUNDLE];
    slot s[BUNDLE];
    int n;
} group;

static void begin_group(const qn_attend *a, const qn_attend_cut *cut, float *scratch, int64_t unit, group *g) {
    int64_t key_heads = a->heads / a->group, of_batch = bundles(key_heads, cut->bundle), bundle = unit / cut->tiles;
    int64_t batch = bundle / of_batch, first = bundle % of_batch * cut->bundle;
    g->n = (int)(key_heads - first < cut->bundle ? key_heads - first : cut->bundle);
    for (int h = 0; h < g->n; h++) {
        slot *s = &g->s[h];
        g->at[h] = place_of(a, cut, (batch * key_heads + first + h) * cut->tiles + unit % cut->tiles);
        *s = slot_at(a, cut->tile, scratch, h);
        fetch_queries(a, &g->at[h], s);
        memset(s->totals, 0, (size_t)(g->at[h].rows * qn_attend_lanes(a->wide)) * sizeof *s->totals);
        for (int r = 0; r < g->at[h].rows; r++) {
            s->all_top[r] = -INFINITY;
            s->all_sum[r] = 0;
        }
    }
}

/* Block by block, and of each block one head after the other. */
static void attend_span(const qn_attend *a, const group *g, int64_t span) {
    int64_t end = (span + 1) * SPAN < a->keys ? (span + 1) * SPAN : a->keys;
    for (int h = 0; h < g->n; h++) begin_span(a, &g->at[h], &g->s[h]);
    for (int64_t j = span * SPAN; j < end; j += KEYS)
        for (int h = 0; h < g->n; h++) {
            later then = h + 1 < g->n ? (later){g->at[h + 1].head, j} : (later){g->at[0].head, j + KEYS};
            attend_block(a, &g->at[h], &g->s[h], j, end - j < KEYS ? (int)(end - j) : KEYS, then);
        }
}

static void run_unit(const qn_attend *a, const qn_attend_cut *cut, float *workspace, float *scratch, int64_t unit) {
    group g;
    int64_t groups = cut->split ? cut->units / cut->spans : cut->units, span = unit / groups;
    begin_group(a, cut, scratch, unit % groups, &g);
    if (cut->split) {
        attend_span(a, &g, span);
        for (int h = 0; h < g.n; h++) keep_sums(a, cut, workspace, &g.at[h], &g.s[h], span);
        return;
    }
    for (; span < cut->spans; span++) {
        attend_span(a, &g, span);
        for (int h = 0; h < g.n; h++) merge_sums(a, &g.at[h], &g.s[h]);
    }
    for (int h = 0; h < g.n; h++) finish_tile(a, &g.at[h], &g.s[h]);
}

/* Rows of the output, each the merger of its spans. */
static void run_merge(const qn_attend *a, const qn_attend_cut *cut, float *workspace, int64_t part) {
    int64_t rows = a->batches * a->heads * a->queries, end = qn_cpu_cut(rows, cut->parts[1], part + 1);
    int64_t pitch = qn_attend_lanes(a->wide), key_heads = a->heads / a->group, of_head = a->queries * a->group;
    slot s = slot_at(a, cut->tile, workspace + cut->slot * part, 0);
    for (int64_t n = qn_cpu_cut(rows, cut->parts[1], part); n < end; n++) {
        int64_t row = n % of_head, head = n / of_head % key_heads, batch = n / of_head / key_heads;
        int64_t unit = (batch * key_heads + head) * cut->tiles + row / cut->tile;
        float top = -INFINITY, sum = 0;
        memset(s.totals, 0, (size_t)pitch * sizeof *s.totals);
        for (int64_t span = 0; span < cut->spans; span++) {
            const float *kept = partial_of(cut, workspace, unit * cut->spans + span, row % cut->tile);
            merge_span(s.totals, &top, &sum, kept, kept[pitch], kept[pitch + 1], pitch);
        }
        finish_row(a, batch, head * a->group + row % a->group, row / a->group, s.totals, top, sum);
    }
}

void qn_attend_part(const qn_attend *a, const qn_attend_cut *cut, void *workspace, int phase, int64_t part) {
    if (phase == 1) {
        run_merge(a, cut, workspace, part);
        return;
    }
    float *scratch = (float *)workspace + cut->slot * part;
    int64_t end = qn_cpu_cut(cut->units, cut->parts[0], part + 1);
    for (int64_t unit = qn_cpu_cut(cut->units, cut->parts[0], part); unit < end; unit++)
        run_unit(a, cut, workspace, scratch, unit);
}
