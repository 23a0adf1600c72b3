/* unary, unary_back, unary_back2 and math_back2 in f32, f16 and bf16 over dense tensors: a row of unary.def is an expression here, computed
 * in f32. xielu, which has parameters, is left to the reference. */
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
    if (!qn_past_is(c->dst[0], c->src, c->n_src)) {
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

static int prepare(const qn_call *c, qn_cpu_step *s, const char *name) {
    const run_fn *by_dtype = loops_of(c);
    uint32_t d = c->dst[0]->dtype;
    int which = d == QN_DTYPE_F32 ? 0 : d == QN_DTYPE_F16 ? 1 : d == QN_DTYPE_BF16 ? 2 : -1;
    if (which < 0 || !by_dtype[which] || !qn_cpu_is_dense(c->dst[0])) return 0;
    for (int i = 0; i < c->n_src; i++)
        if (c->src[i]->dtype != d || !qn_cpu_is_dense(c->src[i])) return 0;
    s->n[0] = qn_tensor_count(c->dst[0]);
    s->n[1] = d == QN_DTYPE_F32 ? 4 : 2;
    if (s->n[0] == 0) return 0;
    s->inner = (qn_cpu_inner_fn)by_dtype[which];
    return qn_cpu_by_rows(s, name, run, (s->n[0] + CHUNK - 1) / CHUNK, CHUNK * 2.0 * (double)s->n[1], CHUNK * 20.0);
}

int QN_K(unary)(const qn_call *c, qn_cpu_step *s) { return prepare(c, s, "unary"); }
int QN_K(unary_back)(const qn_call *c, qn_cpu_step *s) { return prepare(c, s, "unary_back"); }
int QN_K(unary_back2)(const qn_call *c, qn_cpu_step *s) { return prepare(c, s, "unary_back2"); }
int QN_K(math_back2)(const qn_call *c, qn_cpu_step *s) { return prepare(c, s, "math_back2"); }
