/* cache_attention, attention_merge and mask_tiles.
 *
 * One query over a ring cache is attention over all its slots, of which those count that hold a position the query sees: the order of
 * slots is not that of positions, but a sum does not care. Codes are decoded a block of keys at a time. What all parts need is made by
 * a phase of its own: which slots count, the levels of the codes, and the query turned as the keys are; a last phase turns results back. */
#include <float.h>
#include <math.h>

#include "cpu/k_attention.h"
#include "cpu/k_fwht.h"
#include "cpu/k_lanes.h"
#include "cpu/simd/simd_wide.h"
#include "op/turbo.h"

enum { Q, K, V, POS, K_SCALE, V_SCALE, SINKS };
enum { LEVELS = 256, LINE = 64 };
enum { N_SLOTS, N_TABLES, N_TURNED, N_ATTEND }; /* where in the workspace these begin, in bytes */

static const qn_tensor *given(const qn_call *c, int slot) { return slot < c->n_src ? c->src[slot] : NULL; }
static int64_t in_lines(int64_t bytes) { return (bytes + LINE - 1) / LINE * LINE; }
static int is_row(const qn_tensor *t, int64_t size) { return qn_ne(t, 0) == 1 || qn_nb(t, 0) == size; }

/* ---- Codes */

/* What decoding a side asks for. */
typedef struct coded {
    const qn_tensor *scale;
    const float *levels;
    int bits;
} coded;

static void decode_row(const coded *z, const uint8_t *codes, const float *scales, int64_t n, float *to) {
    for (int64_t first = 0; first < n; first += QN_TURBO_BLOCK) {
        int64_t end = n - first < QN_TURBO_BLOCK ? n : first + QN_TURBO_BLOCK;
        float by = scales[first / QN_TURBO_BLOCK];
        if (z->bits > 4)
            for (int64_t i = first; i < end; i++) to[i] = z->levels[codes[i]] * by;
        else
            for (int64_t i = first; i < end; i += 2) {
                to[i] = z->levels[codes[i / 2] & 15] * by;
                to[i + 1] = z->levels[codes[i / 2] >> 4] * by;
            }
    }
}

static void decode_rows(const void *context, const qn_attend_side *side, int64_t batch, int64_t head, int64_t j, int n,
                        int64_t deep, float *to, int64_t pitch) {
    const coded *z = context;
    for (int i = 0; i < n; i++, to += pitch) {
        const char *scales = qn_at(z->scale, qn_off4(z->scale, batch, head, j + i, 0));
        decode_row(z, (const uint8_t *)qn_attend_row(side, batch, head, j + i), (const float *)(const void *)scales, deep, to);
        for (int64_t p = deep; p < pitch; p++) to[p] = 0;
    }
}

/* A code has bits that mean nothing where fewer are used than it has room for. */
static void make_levels(int bits, float *to) {
    for (int code = 0; bits && code < LEVELS; code++) to[code] = (float)qn_op_turbo_level(bits, code & ((1 << bits) - 1));
}

/* ---- One query over a cache */

/* q and y have one place. */
static qn_attend_side row_side(const qn_tensor *t) {
    return (qn_attend_side){.data = t->data ? qn_at(t, 0) : NULL, .batch = qn_nb(t, 2), .head = qn_nb(t, 1), .dtype = t->dtype};
}

static int turns_q(const qn_attr_cache_attention *at) { return at->k_bits && !at->turned; }
static int turns_y(const qn_attr_cache_attention *at) { return at->v_bits && !at->turned; }

static qn_attend describe(const qn_call *c, const qn_cpu_step *s, coded *keys, coded *values) {
    const qn_attr_cache_attention *at = c->attr;
    const qn_tensor *q = c->src[Q], *k = c->src[K], *sinks = given(c, SINKS);
    char *base = c->workspace;
    qn_attend a = {.q = row_side(q),
                   .k = qn_attend_side_by(k, 3, 2, 1),
                   .v = qn_attend_side_by(c->src[V], 3, 2, 1),
                   .y = row_side(c->dst[0])};
    a.batches = qn_ne(q, 2);
    a.heads = qn_ne(q, 1);
    a.group = a.heads / qn_ne(k, 2);
    a.queries = 1;
    a.keys = qn_ne(k, 1);
    a.deep = a.wide = qn_ne(q, 0);
    a.scale = at->scale != 0 ? at->scale : (float)(1 / sqrt((double)a.deep));
    a.cap = at->softcap;
    a.kind = QN_ATTEND_CHOICE;
    a.mask = (qn_attend_side){.data = base ? base + s->n[N_SLOTS] : NULL, .batch = a.keys, .dtype = QN_DTYPE_BOOL};
    a.mask_heads = 1;
    a.mask_batches = a.batches;
    if (sinks) {
        a.sinks = sinks->data ? qn_at(sinks, 0) : NULL;
        a.sink_step = qn_nb(sinks, 0);
    }
    float *levels = base ? (float *)(void *)(base + s->n[N_TABLES]) : NULL;
    *keys = (coded){given(c, K_SCALE), levels, at->k_bits};
    *values = (coded){given(c, V_SCALE), levels ? levels + LEVELS : NULL, at->v_bits};
    if (at->k_bits) a.k_codes = (qn_attend_decoder){decode_rows, keys};
    if (at->v_bits) a.v_codes = (qn_attend_decoder){decode_rows, values};
    if (turns_q(at))
        a.q = (qn_attend_side){.data = base ? base + s->n[N_TURNED] : NULL,
                               .batch = a.heads * a.deep * 4,
                               .head = a.deep * 4,
                               .dtype = QN_DTYPE_F32};
    return a;
}

/* Slot (first + l) mod slots holds the l-th of n keys; the last `window` of them are seen, all without one. */
static void mark_slots(const qn_call *c, char *to) {
    int64_t slots = qn_ne(c->src[K], 1), window = ((const qn_attr_cache_attention *)c->attr)->window;
    for (int64_t b = 0; b < qn_ne(c->src[Q], 2); b++, to += slots) {
        int64_t pos = qn_index4(c->src[POS], 0, 0, 0, b), n = pos < slots ? pos + 1 : slots;
        int64_t seen = window && n > window ? window : n, first = (pos + 1 + slots - seen) % slots;
        int64_t before = first + seen > slots ? slots - first : seen; /* the ring's end */
        memset(to, 0, (size_t)slots);
        memset(to + first, 1, (size_t)before);
        memset(to, 1, (size_t)(seen - before));
    }
}

/* x <- signs x before the transform, or after it. */
static void put_signs(float *x, int64_t n, float by) {
    for (int64_t i = 0; i < n; i++) x[i] *= (float)qn_op_turbo_sign(i) * by;
}

static void open_cache(const qn_call *c, const qn_cpu_step *s) {
    const qn_attr_cache_attention *at = c->attr;
    const qn_tensor *q = c->src[Q];
    int64_t n = qn_ne(q, 0);
    float *levels = (float *)(void *)((char *)c->workspace + s->n[N_TABLES]);
    float *row = (float *)(void *)((char *)c->workspace + s->n[N_TURNED]);
    mark_slots(c, (char *)c->workspace + s->n[N_SLOTS]);
    make_levels(at->k_bits, levels);
    make_levels(at->v_bits, levels + LEVELS);
    for (int64_t i = 0; turns_q(at) && i < qn_ne(q, 2) * qn_ne(q, 1); i++, row += n) {
        memcpy(row, qn_at(q, qn_off4(q, 0, i / qn_ne(q, 1), i % qn_ne(q, 1), 0)), (size_t)n * sizeof *row);
        put_signs(row, n, (float)(1 / sqrt((double)n)));
        qn_fwht_transform(row, n);
    }
}

static void turn_back(const qn_call *c, int64_t part, int64_t parts) {
    const qn_tensor *y = c->dst[0];
    int64_t n = qn_ne(y, 0), heads = qn_ne(y, 1), rows = heads * qn_ne(y, 2), end = qn_cpu_cut(rows, parts, part + 1);
    for (int64_t i = qn_cpu_cut(rows, parts, part); i < end; i++) {
        float *row = (float *)(void *)qn_at(y, qn_off4(y, 0, i / heads, i % heads, 0));
        qn_fwht_transform(row, n);
        put_signs(row, n, (float)(1 / sqrt((double)n)));
    }
}

static void run(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    coded keys, values;
    qn_attend_cut cut;
    if (phase == 0) {
        open_cache(c, s);
        return;
    }
    qn_attend a = describe(c, s, &keys, &values);
    if (!qn_attend_plan(&a, &cut)) return;
    if (phase <= (cut.split ? 2 : 1)) qn_attend_part(&a, &cut, (char *)c->workspace + s->n[N_ATTEND], phase - 1, part);
    else turn_back(c, part, s->parts[phase]);
}

/* A cache of floats, or of codes with f32 scales, whose rows lie side by side. */
static int takes_side(const qn_tensor *t, const qn_tensor *scale, int bits) {
    if (!bits) return qn_lanes_rows(t);
    return is_row(t, 1) && scale->dtype == QN_DTYPE_F32 && is_row(scale, 4);
}

int QN_K(cache_attention)(const qn_call *c, qn_cpu_step *s) {
    const qn_attr_cache_attention *at = c->attr;
    const qn_tensor *q = c->src[Q], *y = c->dst[0], *sinks = given(c, SINKS);
    coded keys, values;
    qn_attend_cut cut;
    if (q->dtype != QN_DTYPE_F32 || y->dtype != QN_DTYPE_F32 || !is_row(q, 4) || !is_row(y, 4) || qn_tensor_count(y) == 0)
        return 0;
    if (!takes_side(c->src[K], given(c, K_SCALE), at->k_bits) || !takes_side(c->src[V], given(c, V_SCALE), at->v_bits)) return 0;
    if ((sinks && sinks->dtype != QN_DTYPE_F32) || ((at->k_bits || at->v_bits) && qn_ne(q, 0) < QN_FWHT_LEAST)) return 0;
    int64_t slots = qn_ne(c->src[K], 1), batches = qn_ne(q, 2);
    if (slots > INT64_MAX / 64 / batches) return 0;
    qn_attend a = describe(c, s, &keys, &values);
    if (!qn_attend_plan(&a, &cut)) return 0;
    qn_attend_step(s, &cut, run);
    s->name = "attention over a cache";
    for (int i = s->n_phases; i > 0; i--) s->parts[i] = s->parts[i - 1];
    s->parts[0] = 1;
    s->n_phases++;
    if (turns_y(at)) s->parts[s->n_phases++] = qn_cpu_parts(a.batches * a.heads, 0, 20.0 * (double)a.deep);
    s->n[N_SLOTS] = 0;
    s->n[N_TABLES] = in_lines(batches * slots);
    s->n[N_TURNED] = s->n[N_TABLES] + 2 * LEVELS * 4;
    s->n[N_ATTEND] = s->n[N_TURNED] + (turns_q(at) ? in_lines(qn_tensor_count(q) * 4) : 0);
    s->workspace += (size_t)s->n[N_ATTEND];
    return 1;
}

/* ---- Parts of attention */

/* Where what all parts have for one row of y lies, one part behind the other. */
static const char *of_row(const qn_rows *it, const qn_tensor *t) {
    int64_t at = 0;
    for (int k = 0; k < it->rank - 1 && k < t->rank; k++) at += it->index[it->rank - 2 - k] * qn_nb(t, k);
    return qn_at(t, at);
}

/* What each part counts for: nothing where none has a key. Whether floats hold that: one that is no more than a denormal of theirs is
 * still something, of which infinity remains infinite. */
static int weigh(const qn_call *c, const qn_rows *it, int64_t parts, double *w) {
    const qn_tensor *s = c->src[1], *m = c->src[2];
    const char *sums = of_row(it, s), *tops = of_row(it, m);
    int64_t s_step = qn_nb(s, it->rank - 1), m_step = qn_nb(m, it->rank - 1);
    double most = -INFINITY, total = 0;
    for (int64_t p = 0; p < parts; p++) most = fmax(most, (double)*(const float *)(const void *)(tops + p * m_step));
    for (int64_t p = 0; p < parts; p++) {
        w[p] = most > -INFINITY ? exp((double)*(const float *)(const void *)(tops + p * m_step) - most) : 0;
        if (most > -INFINITY) total += (double)*(const float *)(const void *)(sums + p * s_step) * w[p];
    }
    int narrow = 1;
    for (int64_t p = 0; p < parts; p++) {
        w[p] = total == 0 ? 0 : w[p] / total;
        narrow &= w[p] == 0 || (fabs(w[p]) >= (double)FLT_MIN && fabs(w[p]) <= (double)FLT_MAX);
    }
    return narrow;
}

static void merge_row(const char *from, int64_t step, const double *w, int64_t parts, int64_t n, float *to) {
    for (int64_t i = 0; i < n; i += VF_N) {
        vf sum = vf_zero();
        for (int64_t p = 0; p < parts; p++)
            if (w[p] != 0) sum = vf_fma(vf_set1((float)w[p]), qn_lanes_at(QN_DTYPE_F32, from + p * step, i, n), sum);
        qn_lanes_put_at(QN_DTYPE_F32, (char *)to, i, sum, n);
    }
}

static void merge_wide(const char *from, int64_t step, const double *w, int64_t parts, int64_t n, float *to) {
    for (int64_t i = 0; i < n; i += VF_N) {
        vd low = vd_zero(), high = low;
        for (int64_t p = 0; p < parts; p++) {
            vf x = qn_lanes_at(QN_DTYPE_F32, from + p * step, i, n);
            if (w[p] != 0) low = vd_fma(vd_set1(w[p]), vd_low(x), low), high = vd_fma(vd_set1(w[p]), vd_high(x), high);
        }
        qn_lanes_put_at(QN_DTYPE_F32, (char *)to, i, vf_of_wide(low, high), n);
    }
}

static void run_merge(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    const qn_tensor *o = c->src[0], *y = c->dst[0];
    int undo = ((const qn_attr_attention_merge *)c->attr)->undo;
    int64_t n = qn_ne(y, 0), rows = qn_tensor_count(y) / n, end = qn_cpu_cut(rows, s->parts[0], part + 1), parts = o->shape[0];
    double *w = (double *)c->workspace + part * parts;
    qn_rows it;
    (void)phase;
    for (qn_rows_begin_at(&it, y->rank, y->shape, qn_cpu_cut(rows, s->parts[0], part)); it.live && it.row < end;
         qn_rows_next(&it)) {
        float *to = (float *)(void *)qn_row(&it, y);
        int64_t from = 0;
        for (int k = 0; k < it.rank; k++) from += it.index[k] * o->stride[k + 1];
        int narrow = weigh(c, &it, parts, w);
        (narrow ? merge_row : merge_wide)(qn_at(o, from), o->stride[0], w, parts, n, to);
        if (!undo) continue;
        qn_fwht_transform(to, n);
        put_signs(to, n, (float)(1 / sqrt((double)n)));
    }
}

int QN_K(attention_merge)(const qn_call *c, qn_cpu_step *s) {
    const qn_tensor *o = c->src[0], *y = c->dst[0];
    int64_t parts = o->shape[0], n = qn_ne(y, 0), most = INT64_MAX / 4096;
    if (o->dtype != QN_DTYPE_F32 || y->dtype != QN_DTYPE_F32 || !is_row(o, 4) || !is_row(y, 4) || qn_tensor_count(y) == 0)
        return 0;
    if ((((const qn_attr_attention_merge *)c->attr)->undo && n < QN_FWHT_LEAST) || parts > most) return 0;
    qn_cpu_by_rows(s, "attention_merge rows", run_merge, qn_tensor_count(y) / n, 4.0 * (double)n * (double)parts,
                   100.0 * (double)parts);
    s->workspace = (size_t)(s->parts[0] * parts) * sizeof(double);
    return 1;
}

/* ---- mask_tiles: a tile is looked at until it can only be 1 */

static int any_lane(vi mask) {
    float lane[VF_N];
    uint32_t bits[VF_N], any = 0;
    vf_store(lane, vf_of_bits(mask));
    memcpy(bits, lane, sizeof bits);
    for (int i = 0; i < VF_N; i++) any |= bits[i];
    return any != 0;
}

/* Lanes beyond the tile are loaded as 0, which is seen: -Inf is added to them. */
QN_INLINE int tile_class(uint32_t dtype, const char *row, int64_t step, int64_t rows, int64_t columns) {
    int seen = 0, plain = 1;
    float beyond[2 * VF_N];
    for (int i = 0; i < 2 * VF_N; i++) beyond[i] = i < VF_N ? 0 : -INFINITY;
    for (int64_t r = 0; r < rows && (plain || !seen); r++, row += step) {
        vi open = vi_set1(0), other = vi_set1(0);
        for (int64_t i = 0; i < columns; i += VF_N) {
            int some = columns - i < VF_N ? (int)(columns - i) : VF_N;
            vf v = qn_lanes_at(dtype, row, i, columns);
            open |= ~(v + vf_load(beyond + VF_N - some) <= vf_set1(-1e30f)); /* what lies at or below this is no score */
            other |= v != vf_zero();
        }
        seen |= any_lane(open);
        plain &= !any_lane(other);
    }
    return plain ? 2 : seen;
}

static void run_tiles(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    const qn_attr_mask_tiles *at = c->attr;
    const qn_tensor *m = c->src[0], *y = c->dst[0];
    int64_t across = qn_ne(y, 0), down = qn_ne(y, 1), lines = qn_tensor_count(y) / across, size = qn_float_bytes(m->dtype);
    (void)phase;
    for (int64_t l = qn_cpu_cut(lines, s->parts[0], part), end = qn_cpu_cut(lines, s->parts[0], part + 1); l < end; l++) {
        int64_t first = l % down * at->rows, rows = qn_ne(m, 1) - first < at->rows ? qn_ne(m, 1) - first : at->rows;
        const char *row = qn_at(m, qn_off4(m, l / down / qn_ne(y, 2), l / down % qn_ne(y, 2), first, 0));
        uint8_t *to = (uint8_t *)qn_at(y, l * across);
        for (int64_t j = 0; j < across; j++) {
            int whole = qn_ne(m, 0) - j * at->columns >= at->columns;
#define CLASS(d) to[j] = (uint8_t)(whole ? tile_class(d, row + j * at->columns * size, qn_nb(m, 1), rows, at->columns) : 1)
            QN_BY_FLOAT(m->dtype, CLASS);
#undef CLASS
        }
    }
}

int QN_K(mask_tiles)(const qn_call *c, qn_cpu_step *s) {
    const qn_tensor *m = c->src[0], *y = c->dst[0];
    if (qn_tensor_count(y) == 0 || !qn_lanes_rows(m) || !qn_cpu_is_dense(y)) return 0;
    int64_t lines = qn_tensor_count(y) / qn_ne(y, 0);
    double bytes = (double)(qn_tensor_count(m) * qn_float_bytes(m->dtype));
    return qn_cpu_by_rows(s, "mask_tiles", run_tiles, lines, bytes / (double)lines, 0);
}
