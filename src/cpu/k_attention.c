/* Softmax attention over tiles of rows and blocks of keys; see k_attention.h for what makes its bits what they are. A row is a
 * query of one head; the rows of all heads that share a key head lie in one tile and share its keys and values. */
#include "cpu/k_attention.h"

#include <math.h>

#include "cpu/simd/simd_dot.h"
#include "cpu/simd/simd_math.h"
#include "op/alibi.h"

enum { KEYS = QN_ATTEND_KEYS, SPAN = QN_ATTEND_SPAN };

static inline float exp_one(float x) { return vf_exp_below(vf_set1(x))[0]; }

/* ---- Cutting */

static int64_t whole_vectors(int64_t n) { return (n + VF_N - 1) / VF_N * VF_N; }
static int64_t aligned(int64_t floats) { return (floats + 15) / 16 * 16; }
static int is_plain(uint32_t dtype) { return dtype == QN_DTYPE_F32 || dtype == QN_DTYPE_F16 || dtype == QN_DTYPE_BF16; }

/* A part's scratch. Of a row: its highest score so far and its sum, in the span at hand and in all before it. */
typedef struct slot {
    float *q, *keys, *key_rows, *values, *scores, *bias, *sums, *totals;
    float *top, *sum, *factor, *all_top, *all_sum;
    int64_t floats;
} slot;

static slot slot_at(const qn_attend *a, int64_t tile, float *base) {
    slot s;
    int64_t at = 0, pitch = whole_vectors(a->wide);
#define TAKE(field, count) s.field = base ? base + at : NULL, at += aligned(count)
    TAKE(q, tile * a->deep);
    TAKE(keys, KEYS * a->deep);
    TAKE(key_rows, is_plain(a->k.dtype) ? 0 : KEYS * whole_vectors(a->deep));
    TAKE(values, KEYS * pitch);
    TAKE(scores, tile * KEYS);
    TAKE(bias, tile * KEYS);
    TAKE(sums, tile * pitch);
    TAKE(totals, tile * pitch);
    TAKE(top, tile);
    TAKE(sum, tile);
    TAKE(factor, tile);
    TAKE(all_top, tile);
    TAKE(all_sum, tile);
#undef TAKE
    s.floats = at;
    return s;
}

int qn_attend_plan(const qn_attend *a, qn_attend_cut *cut) {
    int64_t key_heads = a->heads / a->group, rows = a->queries * a->group, most = INT64_MAX / 4096;
    if (a->deep > 8192 || a->wide > 8192 || a->keys > most / 16384 || a->batches > most / a->heads / a->queries) return 0;
    memset(cut, 0, sizeof *cut);
    cut->tile = rows < QN_ATTEND_ROWS ? rows : QN_ATTEND_ROWS;
    cut->tiles = (rows + cut->tile - 1) / cut->tile;
    cut->spans = (a->keys + SPAN - 1) / SPAN;
    cut->units = a->batches * key_heads * cut->tiles;
    cut->split = cut->spans > 1 && cut->units < 16;
    cut->partial = aligned(whole_vectors(a->wide) + 2);
    if (cut->split) cut->units *= cut->spans;
    double unit_flops = 2.0 * (double)(a->deep + a->wide) * (double)a->keys * (double)cut->tile;
    cut->parts[0] = qn_cpu_parts(cut->units, 0, cut->split ? unit_flops / (double)cut->spans : unit_flops);
    if (cut->parts[0] > 32 && !cut->split) cut->parts[0] = 32; /* each has its scratch */
    cut->parts[1] = a->batches * a->heads * a->queries;
    if (cut->parts[1] > 16) cut->parts[1] = 16;
    if (cut->parts[1] > cut->parts[0]) cut->parts[1] = cut->parts[0]; /* it works in the scratch of the first */
    cut->slot = slot_at(a, cut->tile, NULL).floats;
    int64_t floats = cut->slot * cut->parts[0];
    if (cut->split) floats += cut->units * cut->tile * cut->partial;
    cut->workspace = floats * 4;
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

static const float ones[16] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};

/* Products become scores, the highest is found, and scores become weights. */
static void weigh_row(const qn_attend *a, const slot *s, int r, int n, int masked) {
    float *scores = s->scores + r * KEYS;
    const float *bias = s->bias + r * KEYS;
    const vf none = vf_set1(-INFINITY), scale = vf_set1(a->scale), cap = vf_set1(a->cap);
    vf top = vf_set1(s->top[r]), sum = vf_zero();
    for (int p = 0; p < KEYS; p += VF_N) {
        vf y = vf_load(scores + p) * scale;
        if (a->cap != 0) y = cap * vf_tanh(y / cap);
        if (masked) {
            vf b = vf_load(bias + p);
            y = vf_select(b == none, none, y + b);
        }
        if (p + VF_N > n) y = vf_select(vf_loadn(ones, n > p ? n - p : 0) > vf_zero(), y, none); /* no key there */
        top = vf_max(y, top);
        vf_store(scores + p, y);
    }
    float before = s->top[r], now = vf_largest(top);
    if (now == -INFINITY) { /* no key of this row has a score yet */
        memset(scores, 0, KEYS * sizeof *scores);
        s->factor[r] = 1;
        return;
    }
    for (int p = 0; p < KEYS; p += VF_N) {
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

/* Keys [j, j + n) for all rows of a tile. */
static void attend_block(const qn_attend *a, const qn_attend_place *at, const slot *s, int64_t j, int n) {
    int64_t pitch = whole_vectors(a->wide);
    int masked = a->kind != QN_ATTEND_ALL;
    if (masked && !qn_attend_bias(a, at, s->bias, j, n)) return;
    const char *k = qn_attend_row(&a->k, at->batch, at->head, j), *v = qn_attend_row(&a->v, at->batch, at->head, j);
    int direct = is_plain(a->v.dtype) && pitch == a->wide && (at->rows <= 6 || a->v.dtype == QN_DTYPE_F32);
    const char *ahead = direct && at->rows <= 6 ? v : NULL; /* with few rows it is memory that takes the time */
    if (is_plain(a->k.dtype)) qn_attend_turn(k, a->k.place, a->k.dtype, n, a->deep, s->keys, ahead, a->v.place);
    else {
        int64_t deep = whole_vectors(a->deep);
        widen(&a->k, &a->k_codes, at, j, n, a->deep, s->key_rows, deep);
        qn_attend_turn((const char *)s->key_rows, deep * 4, QN_DTYPE_F32, n, a->deep, s->keys, NULL, 0);
    }
    qn_attend_product(&(qn_attend_sum){.rows = at->rows,
                                       .depth = (int)a->deep,
                                       .wide = KEYS,
                                       .a = s->q,
                                       .lda = a->deep,
                                       .b = (const char *)s->keys,
                                       .ldb = KEYS * 4,
                                       .dtype = QN_DTYPE_F32,
                                       .c = s->scores,
                                       .ldc = KEYS});
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
                         .factor = s->factor};
    if (direct) {
        sum.b = v;
        sum.ldb = a->v.place;
        sum.dtype = a->v.dtype;
        sum.ahead = ahead && j + 2 * KEYS <= a->keys ? k + KEYS * a->k.place : NULL;
        sum.ahead_step = a->k.place;
    }
    qn_attend_product(&sum);
}

/* ---- Spans and rows */

static void begin_span(const qn_attend *a, const qn_attend_place *at, const slot *s) {
    memset(s->sums, 0, (size_t)(at->rows * whole_vectors(a->wide)) * sizeof *s->sums);
    for (int r = 0; r < at->rows; r++) {
        s->top[r] = -INFINITY;
        s->sum[r] = 0;
    }
}

static void attend_span(const qn_attend *a, const qn_attend_place *at, const slot *s, int64_t span) {
    int64_t end = (span + 1) * SPAN < a->keys ? (span + 1) * SPAN : a->keys;
    begin_span(a, at, s);
    for (int64_t j = span * SPAN; j < end; j += KEYS) attend_block(a, at, s, j, end - j < KEYS ? (int)(end - j) : KEYS);
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
            sum = sum * factor + 1;
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

static float *partial_of(const qn_attend_cut *cut, float *workspace, int64_t unit, int64_t r) {
    return workspace + cut->slot * cut->parts[0] + (unit * cut->tile + r) * cut->partial;
}

/* Sums of one span are kept: the sums, then the highest score and the total weight. */
static void run_span(const qn_attend *a, const qn_attend_cut *cut, float *workspace, const slot *s, int64_t unit) {
    qn_attend_place at = place_of(a, cut, unit / cut->spans);
    int64_t pitch = whole_vectors(a->wide);
    fetch_queries(a, &at, s);
    attend_span(a, &at, s, unit % cut->spans);
    for (int r = 0; r < at.rows; r++) {
        float *kept = partial_of(cut, workspace, unit, r);
        memcpy(kept, s->sums + r * pitch, (size_t)pitch * sizeof *kept);
        kept[pitch] = s->top[r];
        kept[pitch + 1] = s->sum[r];
    }
}

static void run_tile(const qn_attend *a, const qn_attend_cut *cut, const slot *s, int64_t unit) {
    qn_attend_place at = place_of(a, cut, unit);
    int64_t pitch = whole_vectors(a->wide);
    fetch_queries(a, &at, s);
    memset(s->totals, 0, (size_t)(at.rows * pitch) * sizeof *s->totals);
    for (int r = 0; r < at.rows; r++) {
        s->all_top[r] = -INFINITY;
        s->all_sum[r] = 0;
    }
    for (int64_t span = 0; span < cut->spans; span++) {
        attend_span(a, &at, s, span);
        for (int r = 0; r < at.rows; r++)
            merge_span(s->totals + r * pitch, s->all_top + r, s->all_sum + r, s->sums + r * pitch, s->top[r], s->sum[r], pitch);
    }
    for (int r = 0; r < at.rows; r++)
        finish_row(a, at.batch, qn_attend_head(a, &at, r), qn_attend_query(a, &at, r), s->totals + r * pitch, s->all_top[r],
                   s->all_sum[r]);
}

/* Rows of the output, each the merger of its spans. */
static void run_merge(const qn_attend *a, const qn_attend_cut *cut, float *workspace, int64_t part) {
    int64_t rows = a->batches * a->heads * a->queries, end = qn_cpu_cut(rows, cut->parts[1], part + 1);
    int64_t pitch = whole_vectors(a->wide), key_heads = a->heads / a->group, of_head = a->queries * a->group;
    slot s = slot_at(a, cut->tile, workspace + cut->slot * part);
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
    slot s = slot_at(a, cut->tile, (float *)workspace + cut->slot * part);
    int64_t end = qn_cpu_cut(cut->units, cut->parts[0], part + 1);
    for (int64_t unit = qn_cpu_cut(cut->units, cut->parts[0], part); unit < end; unit++) {
        if (cut->split) run_span(a, cut, workspace, &s, unit);
        else run_tile(a, cut, &s, unit);
    }
}
