/* What is put into or added onto tensors row by row: cache_write and cache_write_pair, add_id, accumulate. */
#include "cpu/k_copy.h"

/* ---- Tokens into caches [B, H, slots, D], or [B, slots, row] when tokens come first */

typedef struct cache {
    const qn_tensor *to, *x, *pos;
    int flat;
    int64_t batches, tokens, heads;
} cache;

static cache cache_of(const qn_call *c, int number) {
    int pair = c->op == QN_OP_cache_write_pair;
    const qn_attr_cache_write *at = c->attr;
    int flat = pair ? ((const qn_attr_cache_write_pair *)c->attr)->token_major : at->token_major;
    const qn_tensor *x = c->src[pair ? 2 + number : 1], *to = c->dst[number];
    return (cache){to, x, c->src[pair ? 4 : 2], flat, qn_ne(to, flat ? 2 : 3), qn_ne(x, flat ? 1 : 2), flat ? 1 : qn_ne(to, 2)};
}

static int64_t cache_rows(const cache *v) { return v->batches * v->tokens * v->heads; }

static void write_rows(const cache *v, int64_t row, int64_t end) {
    int64_t pos = qn_index4(v->pos, 0, 0, 0, 0), slots = qn_ne(v->to, 1), n = qn_ne(v->to, 0);
    for (; row < end; row++) {
        int64_t h = row % v->heads, t = row / v->heads % v->tokens, b = row / v->heads / v->tokens, slot = (pos + t) % slots;
        char *to = qn_at(v->to, v->flat ? qn_off4(v->to, 0, b, slot, 0) : qn_off4(v->to, b, h, slot, 0));
        const char *from = qn_at(v->x, v->flat ? qn_off4(v->x, 0, b, t, 0) : qn_off4(v->x, b, t, h, 0));
        qn_copy_row(v->x->dtype, from, v->to->dtype, to, n);
    }
}

static void run_cache(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    cache v = cache_of(c, phase);
    if (v.tokens == 0) return;
    write_rows(&v, qn_cpu_cut(cache_rows(&v), s->parts[phase], part), qn_cpu_cut(cache_rows(&v), s->parts[phase], part + 1));
}

static int side_by_side(const qn_tensor *t) { return qn_ne(t, 0) == 1 || qn_nb(t, 0) == qn_dtype_bytes(t->dtype); }

static int prepare_cache(const qn_call *c, qn_cpu_step *s, int n, const char *name) {
    s->run = run_cache;
    s->name = name;
    s->n_phases = n;
    for (int i = 0; i < n; i++) {
        cache v = cache_of(c, i);
        if (!qn_copy_can(v.x->dtype, v.to->dtype) || !side_by_side(v.x) || !side_by_side(v.to)) return 0;
        if (cache_rows(&v) == 0 || qn_ne(v.to, 0) == 0) return 0;
        s->parts[i] = qn_cpu_parts(cache_rows(&v), (double)qn_ne(v.to, 0) * 8, 0);
    }
    return 1;
}

int QN_K(cache_write)(const qn_call *c, qn_cpu_step *s) { return prepare_cache(c, s, 1, "cache_write rows"); }
int QN_K(cache_write_pair)(const qn_call *c, qn_cpu_step *s) { return prepare_cache(c, s, 2, "cache_write_pair rows"); }

/* ---- Rows of b onto the rows of a that name them; f32 */

static void run_add_id(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    const qn_tensor *a = c->src[0], *b = c->src[1], *ids = c->src[2], *y = c->dst[0];
    int64_t n = qn_ne(a, 0), each = qn_ne(a, 1), rows = each * qn_ne(a, 2), row = qn_cpu_cut(rows, s->parts[0], part);
    (void)phase;
    for (int64_t end = qn_cpu_cut(rows, s->parts[0], part + 1); row < end; row++) {
        int64_t t = row / each, u = row % each;
        const float *p = (const float *)(const void *)qn_at(a, qn_off4(a, 0, t, u, 0));
        const float *q = (const float *)(const void *)qn_at(b, qn_off4(b, 0, 0, qn_index4(ids, 0, 0, t, u), 0));
        float *to = (float *)(void *)qn_at(y, qn_off4(y, 0, t, u, 0));
        int64_t i = 0;
        for (; i + VF_N <= n; i += VF_N) vf_store(to + i, vf_load(p + i) + vf_load(q + i));
        for (; i < n; i++) to[i] = p[i] + q[i];
    }
}

static int is_f32_rows(const qn_tensor *t) { return t->dtype == QN_DTYPE_F32 && side_by_side(t); }

int QN_K(add_id)(const qn_call *c, qn_cpu_step *s) {
    const qn_tensor *a = c->src[0];
    if (!is_f32_rows(a) || !is_f32_rows(c->src[1]) || !is_f32_rows(c->dst[0]) || qn_tensor_count(a) == 0) return 0;
    return qn_cpu_by_rows(s, "add_id rows", run_add_id, qn_ne(a, 1) * qn_ne(a, 2), (double)qn_ne(a, 0) * 12, 0);
}

/* ---- Sums that go on from run to run */

enum { PIECE = 4096 };

QN_INLINE void accumulate(uint32_t dtype, float *sum, const char *g, int64_t n, vf left, vf scale, int forget) {
    for (int64_t i = 0; i < n; i += VF_N) {
        vf more = scale * qn_lanes_at(dtype, g, i, n);
        if (!forget) more = vf_fma(left, qn_lanes_at(QN_DTYPE_F32, (const char *)sum, i, n), more);
        qn_lanes_put_at(QN_DTYPE_F32, (char *)sum, i, more, n);
    }
}

static void run_accumulate(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    const qn_tensor *g = c->src[1], *keep = c->n_src > 2 ? c->src[2] : NULL;
    float left = keep ? *(const float *)(const void *)qn_at(keep, 0) : 1.0f;
    vf by = vf_set1(left), scale = vf_set1(((const qn_attr_accumulate *)c->attr)->scale);
    int64_t n = qn_tensor_count(g), size = qn_float_bytes(g->dtype);
    int64_t units = (n + PIECE - 1) / PIECE, first = qn_cpu_cut(units, s->parts[0], part) * PIECE,
            end = qn_cpu_cut(units, s->parts[0], part + 1) * PIECE;
    float *sum = (float *)(void *)qn_at(c->dst[0], first * 4);
    const char *from = qn_at(g, first * size);
    (void)phase;
#define SUM(d) accumulate(d, sum, from, (end < n ? end : n) - first, by, scale, left == 0)
    QN_BY_FLOAT(g->dtype, SUM);
#undef SUM
}

int QN_K(accumulate)(const qn_call *c, qn_cpu_step *s) {
    const qn_tensor *sum = c->dst[0], *g = c->src[1], *keep = c->n_src > 2 ? c->src[2] : NULL;
    int64_t n = qn_tensor_count(sum);
    if (n == 0 || sum->dtype != QN_DTYPE_F32 || !qn_lanes_float(g->dtype) || (keep && keep->dtype != QN_DTYPE_F32)) return 0;
    if (!qn_cpu_is_dense(sum) || !qn_cpu_is_dense(g)) return 0;
    return qn_cpu_by_rows(s, "accumulate", run_accumulate, (n + PIECE - 1) / PIECE, PIECE * 12.0, 0);
}
