/* unary, unary_back, unary_back2 and math_back2 in f32, f16 and bf16 over dense tensors: a row of unary.def is an expression here, computed
 * in f32. */
#include "cpu/k_copy.h"
#include "cpu/k_past.h"
#include "cpu/simd/simd_second.h"

typedef void (*run_fn)(char *y, const char *g, const char *x, int64_t n);

/* Bytes before they are read, a line is asked for: a tenth of the time where only the second cache or the last has them. */
enum { AHEAD = 1024 };

/* Forward the gradient is not looked at. */
#define FORWARD(name, g, x) f_##name(x)
#define FORWARD_ASK(g) ((void)(g))
#define BACKWARD(name, g, x) ((g)*d_##name(x))
#define BACKWARD_ASK(g) __builtin_prefetch(g, 0, 3)
#define SECOND(name, g, x) ((g)*s_##name(x))
#define SECOND_ASK(g) BACKWARD_ASK(g)
/* Where a store goes is asked for, too, unless that is past the caches: at any size, for it costs nothing beside the function. */
#define READY(label, p) READY_##label(p)
#define READY_f32(p) qn_far_ask(p)
#define READY_f16(p) qn_far_ask(p)
#define READY_bf16(p) qn_far_ask(p)
#define READY_past(p) ((void)0)
#define LOOP(way, name, type, label, ahead, load, loadn, store, storen)                       \
    static void way##_##name##_##label(char *yp, const char *gp, const char *xp, int64_t n) { \
        type *y = (type *)yp;                                                                 \
        const type *x = (const type *)xp, *g = (const type *)gp;                              \
        int64_t i = 0;                                                                        \
        for (; i + VF_N <= n; i += VF_N) {                                                    \
            __builtin_prefetch((const char *)(x + i) + (ahead), 0, 3);                        \
            READY(label, (const char *)(y + i) + (ahead));                                    \
            way##_ASK((const char *)(g + i) + (ahead));                                       \
            store(y + i, way(name, load(g + i), load(x + i)));                                \
        }                                                                                     \
        int some = (int)(n - i);                                                              \
        if (some) storen(y + i, way(name, loadn(g + i, some), loadn(x + i, some)), some);     \
    }
#define LOOPS(way, name)                                                                     \
    LOOP(way, name, float, f32, AHEAD, vf_load, vf_loadn, vf_store, vf_storen)               \
    LOOP(way, name, float, past, QN_PAST_AHEAD, vf_load, vf_loadn, qn_past_store, vf_storen) \
    LOOP(way, name, uint16_t, f16, AHEAD, vf_load_h, vf_load_hn, vf_store_h, vf_store_hn)    \
    LOOP(way, name, uint16_t, bf16, AHEAD, vf_load_b, vf_load_bn, vf_store_b, vf_store_bn)
#define ALL(name) LOOPS(FORWARD, name) LOOPS(BACKWARD, name) LOOPS(SECOND, name)
#define BEND(name) LOOPS(SECOND, name)
VF_EACH_ACT(ALL)
VF_EACH_MATH(BEND)

#define ENTRIES(way, name) \
    { way##_##name##_f32, way##_##name##_f16, way##_##name##_bf16, way##_##name##_past }
#define ENTRY(name) [QN_UNARY_##name] = ENTRIES(FORWARD, name),
static const run_fn forward[QN_UNARY_COUNT][4] = {VF_EACH_ACT(ENTRY)};
#undef ENTRY
#define ENTRY(name) [QN_UNARY_##name] = ENTRIES(BACKWARD, name),
static const run_fn backward[QN_UNARY_COUNT][4] = {VF_EACH_ACT(ENTRY)};
#undef ENTRY
#define ENTRY(name) [QN_UNARY_##name] = ENTRIES(SECOND, name),
static const run_fn second[QN_UNARY_COUNT][4] = {VF_EACH_ACT(ENTRY)};
#undef ENTRY
#define ENTRY(name) [QN_MATH_##name] = ENTRIES(SECOND, name),
static const run_fn math_second[QN_MATH_COUNT][4] = {VF_EACH_MATH(ENTRY)};
#undef ENTRY

/* The loops of a call's function; none of them is there when it has no expression. */
static const run_fn *loops_of(const qn_call *c) {
    if (c->op == QN_OP_math_back2) return math_second[c->subop];
    if (c->op == QN_OP_silu_back) return backward[QN_UNARY_silu];
    return (c->op == QN_OP_unary ? forward : c->op == QN_OP_unary_back ? backward : second)[c->subop];
}

/* For ops that end in an activation. */
#define qn_unary_row QN_K(unary_row)
run_fn qn_unary_row(int32_t act);
run_fn qn_unary_row(int32_t act) { return forward[act][0]; }

enum { CHUNK = 256, PAST = 3 }; /* elements that are never cut apart; the loop over f32 that writes past the caches */

/* Halves past the caches, by tiles. */
static void run_tiles(run_fn inner, char *y, const char *g, const char *x, int64_t n) {
    _Alignas(64) char tile[QN_PAST_TILE];
    for (int64_t some; n > 0; n -= some, y += some * 2, g += some * 2, x += some * 2) {
        some = qn_past_some(y, n, 2);
        qn_past_ask(x, some * 2);
        if (g != x) qn_past_ask(g, some * 2);
        inner(tile, g, x, some);
        qn_past_put(y, tile, some * 2);
    }
}

/* Sources: x alone, or the gradient and then x. */
static void run(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    (void)phase;
    const qn_tensor *x = c->src[c->n_src - 1], *g = c->src[0];
    int64_t n = s->n[0], size = s->n[1], chunks = (n + CHUNK - 1) / CHUNK;
    int64_t first = CHUNK * qn_cpu_cut(chunks, s->parts[0], part), end = CHUNK * qn_cpu_cut(chunks, s->parts[0], part + 1);
    if (end > n) end = n;
    char *y = qn_at(c->dst[0], first * size);
    const char *gp = qn_at(g, first * size), *xp = qn_at(x, first * size);
    run_fn inner = (run_fn)s->inner;
    n = end - first;
    if (!qn_past_is(s, c->dst[0], c->src, c->n_src)) {
        inner(y, gp, xp, n);
        return;
    }
    if (size == 4) {
        run_fn past = loops_of(c)[PAST];
        int64_t head = qn_past_head(y, n, 4);
        inner(y, gp, xp, head);
        past(y + head * 4, gp + head * 4, xp + head * 4, n - head);
    } else run_tiles(inner, y, gp, xp, n);
    qn_past_end();
}

/* ---- By chunks: what no loop above is for */

/* expm1(x) - x for x < 0; near zero by the series, for there the two are all but the same. */
static vf bent(vf x) { return vf_select(x > SET(-0.35f), x * x * vf_exp_tail(x), vf_expm1(x) - x); }

static vf f_xielu(vf x, const qn_attr_unary *p) {
    vf eps = SET(p->eps), low = vf_select(x < eps, bent(x), SET(expm1f(p->eps)) - x);
    return vf_select(x > vf_zero(), SET(p->alpha_p) * x * x, SET(p->alpha_n) * low) + SET(p->beta) * x;
}
static vf d_xielu(vf x, const qn_attr_unary *p) {
    vf low = SET(p->alpha_n) * vf_select(x < SET(p->eps), vf_expm1(x), SET(-1.0f));
    return vf_select(x > vf_zero(), SET(2 * p->alpha_p) * x, low) + SET(p->beta);
}
static vf s_xielu(vf x, const qn_attr_unary *p) {
    vf low = vf_select(x < SET(p->eps), SET(p->alpha_n) * vf_exp(x), vf_zero());
    return vf_select(x > vf_zero(), SET(2 * p->alpha_p), low);
}

_Static_assert(offsetof(qn_attr_unary, alpha_n) == offsetof(qn_attr_unary_back, alpha_n) &&
                   offsetof(qn_attr_unary, alpha_n) == offsetof(qn_attr_unary_back2, alpha_n),
               "the parameters are found in the same place");

/* xielu has parameters, and is so long that which dtype it is may be asked for each vector. */
static void run_xielu(const qn_call *c, char *y, const char *g, const char *x, int64_t n) {
    const qn_attr_unary *p = c->attr;
    uint32_t from = c->src[0]->dtype, to = c->dst[0]->dtype;
    for (int64_t i = 0; i < n; i += VF_N) {
        vf a = qn_lanes_at(from, x, i, n), v;
        if (c->op == QN_OP_unary) v = f_xielu(a, p);
        else v = qn_lanes_at(from, g, i, n) * (c->op == QN_OP_unary_back ? d_xielu(a, p) : s_xielu(a, p));
        qn_lanes_put_at(to, y, i, v, n);
    }
}

/* Halves that become f32 are widened first. */
static void run_chunks(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    (void)phase;
    const qn_tensor *x = c->src[c->n_src - 1], *g = c->src[0], *y = c->dst[0];
    int64_t n = s->n[0], chunks = (n + CHUNK - 1) / CHUNK, end = qn_cpu_cut(chunks, s->parts[0], part + 1);
    for (int64_t i = qn_cpu_cut(chunks, s->parts[0], part); i < end; i++) {
        int64_t at = i * CHUNK, some = n - at < CHUNK ? n - at : CHUNK;
        const char *from = qn_at(x, at * qn_float_bytes(x->dtype));
        char *to = qn_at(y, at * qn_float_bytes(y->dtype)), wide[CHUNK * 4];
        if (!s->inner) run_xielu(c, to, qn_at(g, at * qn_float_bytes(g->dtype)), from, some);
        else {
            qn_copy_row(x->dtype, from, y->dtype, wide, some);
            ((run_fn)s->inner)(to, wide, wide, some);
        }
    }
}

static int prepare(const qn_call *c, qn_cpu_step *s, const char *name) {
    const run_fn *by_dtype = loops_of(c);
    uint32_t d = c->dst[0]->dtype;
    int which = d == QN_DTYPE_F32 ? 0 : d == QN_DTYPE_F16 ? 1 : 2, looped = by_dtype[which] && c->src[0]->dtype == d;
    if (!qn_lanes_float(d) || !qn_cpu_is_dense(c->dst[0])) return 0;
    for (int i = 0; i < c->n_src; i++)
        if (!qn_lanes_float(c->src[i]->dtype) || !qn_cpu_is_dense(c->src[i])) return 0;
    s->n[0] = qn_tensor_count(c->dst[0]);
    s->n[1] = qn_float_bytes(c->dst[0]->dtype);
    if (s->n[0] == 0) return 0;
    s->inner = (qn_cpu_inner_fn)by_dtype[which];
    return qn_cpu_by_rows(s, name, looped ? run : run_chunks, (s->n[0] + CHUNK - 1) / CHUNK, CHUNK * 2.0 * (double)s->n[1],
                          CHUNK * 20.0);
}

int QN_K(doubles)(const qn_call *c, qn_cpu_step *s);  /* k_doubles.c: f64 */
int QN_K(one_step)(const qn_call *c, qn_cpu_step *s); /* k_region.c: strides */

int QN_K(unary)(const qn_call *c, qn_cpu_step *s) { return prepare(c, s, "unary") || QN_K(doubles)(c, s); }
int QN_K(unary_back)(const qn_call *c, qn_cpu_step *s) { return prepare(c, s, "unary_back") || QN_K(doubles)(c, s); }
int QN_K(silu_back)(const qn_call *c, qn_cpu_step *s) {
    return prepare(c, s, "unary_back") || QN_K(one_step)(c, s) || QN_K(doubles)(c, s);
}
int QN_K(unary_back2)(const qn_call *c, qn_cpu_step *s) { return prepare(c, s, "unary_back2"); }
int QN_K(math_back2)(const qn_call *c, qn_cpu_step *s) { return prepare(c, s, "math_back2"); }
