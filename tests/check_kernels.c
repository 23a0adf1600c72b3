/* `qn_check kernels`: every kernel of every level this machine has, on the cases of its op, against the reference: random, odd and
 * large shapes, strided and in-place layouts, and the same bits for one, two, three and seven threads, and from packed sources. */
#define _DEFAULT_SOURCE /* setenv */
#include <math.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "cpu/cpu.h"
#include "op/op.h"
#include "run/context.h"
#include "seed.h"

enum { LINE = 64, ROOM = 1 << 22, MOST_SMALL = 1500, MOST_LARGE = 120000, WALKS = 8, POOLS = 3 };

static unsigned char one_thread[ROOM], others[ROOM];
static int64_t served[QN_CPU_LEVEL_COUNT][QN_OP_COUNT]; /* draws */

typedef struct bench {
    qn_context *reference;
    qn_context *levels[QN_CPU_LEVEL_COUNT]; /* one level's kernels only; NULL where this machine has none */
    qn_pool *pools[POOLS];
    int turn;          /* whose it is among them in the next layout, where one must do */
    qn_context *level; /* the one at hand */
    int number;        /* its */
    double *want;      /* what the reference says of the draw, whatever the layout */
} bench;

/* Sums over blocks go through 8-bit activations, which cost this much and no more; ggml allows its own kernels the same. What is rounded to
 * 16 bits before it is multiplied may fall to the other side of a middle: one in sixteen may be off by all of such a step. */
static double bound_of(const qc_built *b, uint32_t dtype) {
    for (int i = 0; i < b->request.n_src; i++)
        if (b->request.src[i] && qn_is_block(b->request.src[i]->dtype)) return 5e-4;
    if (b->request.op == QN_OP_glu_mul_mat_id && b->request.src[1]->dtype == QN_DTYPE_BF16) return ldexp(1, -20);
    if (b->request.op == QN_OP_glu_mul_mat_id && b->request.src[1]->dtype == QN_DTYPE_F16) return ldexp(1, -26);
    return dtype == QN_DTYPE_F64 ? 1e-20 : dtype == QN_DTYPE_F32 ? 1e-10 : dtype == QN_DTYPE_F16 ? 2e-6 : 1e-4;
}

/* The reference of linear and its kin rounds the product to 16 bits, and what bias, activation and residual each make of it; a kernel
 * rounds the last of these alone. So they may differ by such a step of the product, which has the size of a sum of terms of size 1. */
static double step_between(const qc_built *b, uint32_t dtype) {
    int op = b->request.op, bits = dtype == QN_DTYPE_F16 ? 11 : dtype == QN_DTYPE_BF16 ? 8 : 0;
    int is_linear = op == QN_OP_linear || op == QN_OP_linear_split || op == QN_OP_linear_group || op == QN_OP_linear_glu;
    const qn_tensor *x = b->request.src[0];
    return is_linear && bits ? ldexp(sqrt((double)x->shape[x->rank - 1]), -bits) : 0;
}

/* Where terms cancel, what is left is no measure: an error is then weighed against the terms, which are of size 1 in these cases and
 * each off by up to a 250th, some decoded to several times that size. A gate multiplies what one sum is off by with the other sum,
 * which has the size of its terms although their product may be small. */
static double floor_of(const qc_built *b, uint32_t dtype) {
    for (int i = 0; i < b->request.n_src; i++) {
        const qn_tensor *t = b->request.src[i];
        if (!t || !qn_is_block(t->dtype)) continue;
        double size = sqrt((double)t->shape[t->rank - 1]);
        return b->request.op == QN_OP_linear_glu ? 0.01 * size * size : 0.01 * size;
    }
    if (b->request.op == QN_OP_delta_states && dtype == QN_DTYPE_F32) return ldexp(1, -23); /* a state of one number, say */
    double step = step_between(b, dtype);
    return step > 0 ? step : dtype == QN_DTYPE_F16 ? 1e-7 : 1e-37;
}

static int agree(const qc_built *b, const double *got, const double *want, int64_t n, uint32_t dtype, double *nmse) {
    double error = 0, size = 0, worst = 0;
    int exact = !qn_is_float(dtype);
    for (int64_t i = 0; i < n; i++) {
        if (isnan(want[i]) && isnan(got[i])) continue;
        if (got[i] == want[i]) {
            if (isfinite(want[i])) size += want[i] * want[i];
            continue;
        }
        double e = isfinite(want[i]) ? got[i] - want[i] : NAN; /* of an infinity nothing else is a part */
        error += e * e;
        size += want[i] * want[i];
        if (!(fabs(e) <= worst)) worst = fabs(e);
    }
    *nmse = size > 0 ? error / size : error;
    if (exact) return worst == 0;
    return error <= bound_of(b, dtype) * size || worst <= floor_of(b, dtype);
}

/* A complex number is compared as the two floats it is, all first ones and then all second ones: as an axis more they would find no
 * room in a tensor of the highest rank, and the same numbers would be counted twice in one layout and once in another. */
static int parts_of(const qn_tensor *t) { return t->dtype == QN_DTYPE_C64 ? 2 : 1; }
static uint32_t part_dtype(const qn_tensor *t) { return t->dtype == QN_DTYPE_C64 ? (uint32_t)QN_DTYPE_F32 : t->dtype; }
static int64_t count_of(const qn_tensor *t) { return parts_of(t) * qn_tensor_count(t); }

static int64_t count_outputs(const qc_built *b) {
    int64_t n = 0;
    for (int i = 0; i < b->request.n_dst; i++)
        if (b->request.dst[i]) n += count_of(b->request.dst[i]);
    return n;
}

static void gather_outputs(const qc_built *b, double *y) {
    for (int i = 0; i < b->request.n_dst; i++) {
        const qn_tensor *t = b->request.dst[i];
        for (int part = 0; t && part < parts_of(t); part++, y += qn_tensor_count(t)) {
            qn_tensor f = *t;
            f.dtype = part_dtype(t);
            f.offset += part * (int64_t)sizeof(float);
            qc_doubles(&f, y);
        }
    }
}

/* 0 when it did not come to a result. */
static int run_built(qc_built *b, qn_context *context) {
    qc_outcome o;
    qc_context = context;
    qc_run(b, &o);
    if (o.status == QN_OK && !o.touched && !o.allocations) return 1;
    char text[300];
    qn_result_format(&o.result, text, sizeof text);
    int layout = o.result.reason == QN_REASON_NOT_CONTIGUOUS || o.result.reason == QN_REASON_TRANSPOSED;
    if (o.status != QN_OK && layout) return 0;
    qc_fail(b, "%s", o.status != QN_OK ? text : o.touched ? "a byte outside the outputs changed" : "it allocated");
    return 0;
}

static int build(qc_built *b, const qc_case *c, const qc_draw *d, const qc_options *options, qn_context *context) {
    qc_context = context;
    qc_build(b, c, d, options);
    if (b->trouble || b->inferred != QN_OK) return 0;
    qc_arena_keep();
    return 1;
}

static int run_again(qc_built *b, qn_context *context) {
    qc_arena_rewind();
    return run_built(b, context);
}

static void compare(const qc_built *b, const double *got, const double *want, const char *what) {
    for (int i = 0; i < b->request.n_dst; i++) {
        const qn_tensor *t = b->request.dst[i];
        double nmse;
        if (!t) continue;
        if (agree(b, got, want, count_of(t), part_dtype(t), &nmse)) qc_pass();
        else qc_fail(b, "%s: output %d differs from the reference, NMSE %.3g", what, i, nmse);
        got += count_of(t);
        want += count_of(t);
    }
}

/* Destinations as the dispatcher hands them to kernels: of the ranks that the rule says. */
static const qn_tensor *const *ranked(const qc_built *b) {
    static qn_tensor made[QN_MAX_DST];
    static const qn_tensor *at[QN_MAX_DST];
    for (int i = 0; i < b->request.n_dst; i++) {
        at[i] = b->request.dst[i];
        if (!at[i] || at[i]->rank == b->rank[i]) continue;
        made[i] = *at[i];
        qc_put_ones(&made[i], b->rank[i] - at[i]->rank);
        at[i] = &made[i];
    }
    return at;
}

static qn_call call_of(const qc_built *b) {
    const qn_op_info *info = qn_op_describe(b->request.op);
    return (qn_call){b->request.op,
                     b->request.subop,
                     b->request.n_src,
                     b->request.n_dst,
                     b->request.src,
                     ranked(b),
                     b->request.attr ? b->request.attr : info->attr_default,
                     NULL};
}

static int is_served(const qc_built *b, uint32_t levels) {
    qn_cpu_step step = {.constant = 0};
    qn_call call = call_of(b);
    return qn_cpu_prepare(levels, &call, &step);
}

/* By a kernel that takes the call as it is. One behind copies was tried with every pool by itself, so it goes with the largest alone. */
static int is_served_directly(const qc_built *b, uint32_t levels) {
    qn_cpu_step step = {.constant = 0};
    qn_call call = call_of(b);
    return qn_cpu_choose(levels, &call, &step);
}

/* A plan asks for kernels before there is data: what they fix then must be what the run will need. */
static void check_without_data(const qc_built *b, uint32_t levels, const char *what) {
    qn_tensor bare[QN_MAX_SRC + QN_MAX_DST];
    const qn_tensor *src[QN_MAX_SRC] = {NULL}, *dst[QN_MAX_DST] = {NULL};
    qn_cpu_step with = {.constant = 0}, without = {.constant = 0};
    qn_call call = call_of(b);
    qn_cpu_prepare(levels, &call, &with);
    int n = 0;
    for (int i = 0; i < call.n_src; i++)
        if (call.src[i]) bare[n] = *call.src[i], bare[n].data = NULL, src[i] = &bare[n++];
    for (int i = 0; i < call.n_dst; i++)
        if (call.dst[i]) bare[n] = *call.dst[i], bare[n].data = NULL, dst[i] = &bare[n++];
    call.src = src;
    call.dst = dst;
    int same = qn_cpu_prepare(levels, &call, &without) && with.workspace == without.workspace &&
               with.n_phases == without.n_phases;
    if (same && memcmp(with.parts, without.parts, sizeof with.parts) == 0) qc_pass();
    else qc_fail(b, "%s: the step depends on where the data lies", what);
}

/* The same with sources that stay, where the kernel packs them: the bits in `one_thread` again. */
static void check_packed(bench *t, qc_built *b, const char *what, size_t bytes) {
    qn_cpu_step step = {.constant = ~0u};
    qc_arena_rewind();
    qn_call call = call_of(b);
    if (!qn_cpu_prepare(t->level->cpu_levels, &call, &step) || !step.pack) return;
    size_t scratch = (step.workspace / LINE + 1) * LINE;
    char *room = aligned_alloc(LINE, scratch + (step.packed_bytes / LINE + 1) * LINE);
    if (!room) return;
    call.workspace = room;
    memset(room, 0xff, scratch + step.packed_bytes);
    qn_cpu_pack(NULL, &call, &step, room + scratch);
    step.packed = room + scratch;
    qn_cpu_run(NULL, &call, &step);
    if (qc_outputs(b, others, ROOM) == bytes && memcmp(one_thread, others, bytes) == 0) qc_pass();
    else qc_fail(b, "%s: packed sources give other bits", what);
    free(room);
}

/* The draw in one layout: the level alone, then with pools. */
static void check_layout(bench *t, const qc_case *c, const qc_draw *d, const qc_options *options, const char *what) {
    qc_built b;
    t->level->pool = NULL;
    if (!build(&b, c, d, options, t->level) || !is_served(&b, t->level->cpu_levels) || !run_built(&b, t->level)) return;
    double *got = malloc((size_t)(count_outputs(&b) + 1) * sizeof *got);
    if (!got) return;
    served[t->number][c->op]++;
    gather_outputs(&b, got);
    compare(&b, got, t->want, what);
    free(got);
    size_t bytes = qc_outputs(&b, one_thread, ROOM);
    check_without_data(&b, t->level->cpu_levels, what);
    int first = !is_served_directly(&b, t->level->cpu_levels) ? POOLS - 1 : qc_set.quick ? t->turn++ % POOLS : 0;
    for (int i = first; i < (qc_set.quick ? first + 1 : POOLS); i++) {
        t->level->pool = t->pools[i];
        if (!run_again(&b, t->level)) continue;
        if (qc_outputs(&b, others, ROOM) == bytes && memcmp(one_thread, others, bytes) == 0) qc_pass();
        else qc_fail(&b, "%s: %d threads give other bits than one", what, qn_pool_threads(t->pools[i]));
    }
    if (!options->in_place) check_packed(t, &b, what, bytes);
}

/* The destination in the place of each source that may be. */
static void check_in_place(bench *t, const qc_case *c, const qc_draw *d) {
    qc_built b;
    qc_build(&b, c, d, &(qc_options){.poison = 0xff});
    if (b.trouble || b.inferred != QN_OK) return;
    qn_tensor y = b.dst[0], src[QN_MAX_SRC];
    memcpy(src, b.src, sizeof src);
    for (int s = 0; s < c->n_src; s++) {
        if (!(qn_op_describe(c->op)->src[s].flags & QN_SLOT_IN_PLACE) || c->src[s].absent || c->src[s].layout == 'b') continue;
        if (src[s].dtype != y.dtype || src[s].rank != y.rank || memcmp(src[s].shape, y.shape, sizeof y.shape) != 0) continue;
        check_layout(t, c, d, &(qc_options){.poison = 0xff, .in_place = s + 1}, "in place");
    }
}

/* One draw: the reference once, then the level in every layout. */
static void check_draw(bench *t, const qc_case *c, const qc_draw *d, int large, const char *what) {
    qc_built b;
    qc_options options = {.poison = 0xff};
    if (!build(&b, c, d, &options, t->reference) || !run_built(&b, t->reference)) return;
    t->want = malloc((size_t)(count_outputs(&b) + 1) * sizeof *t->want);
    if (!t->want) return;
    gather_outputs(&b, t->want);
    check_layout(t, c, d, &options, what);
    memset(options.src_layout, 's', sizeof options.src_layout);
    if (!large) check_layout(t, c, d, &options, "strided sources");
    options.dst_layout = 's';
    options.ones = 1;
    if (!large) check_layout(t, c, d, &options, "strided throughout, with another axis of one in front");
    memset(options.src_layout, 't', sizeof options.src_layout);
    options.dst_layout = 't';
    options.ones = -QN_MAX_RANK;
    if (!large) check_layout(t, c, d, &options, "transposed throughout, without axes of one in front");
    if (!large) check_in_place(t, c, d);
    free(t->want);
}

static void check_variant(bench *t, const qc_case *c, int64_t variant, uint64_t seed) {
    static const qc_shapes shapes[] = {QC_SHAPES_RANDOM, QC_SHAPES_ODD,   QC_SHAPES_ONES,
                                       QC_SHAPES_DEEP,   QC_SHAPES_LARGE, QC_SHAPES_LARGE};
    static const char *const whats[] = {"random", "odd", "ones", "deep", "large", "large"};
    for (int i = 0; i < 6; i++) {
        qc_draw d;
        int large = shapes[i] == QC_SHAPES_LARGE;
        if (qc_set.small && large) continue;
        if (qc_set.quick && (i == 2 || i == 3 || i == 5)) continue;
        qc_draw_make(c, &d, variant, shapes[i], large ? MOST_LARGE : MOST_SMALL, qc_mix(seed, (uint64_t)i));
        check_draw(t, c, &d, large, whats[i]);
    }
}

/* All cases, or, in a further walk, those of ops whose kernel no draw has reached yet: few and small draws may all have been empty
 * or of a dtype that the kernel declines. */
static void walk_level(bench *t, int walk) {
    const char *name = qn_cpu_level_name(t->number);
    for (int i = 0; i < qc_cases_count(); i++) {
        const qc_case *c = qc_cases_at(i);
        if (c->kind != QC_ACCEPT || !qn_cpu_has_kernel_at(t->number, c->op) || (qc_set.op >= 0 && qc_set.op != c->op)) continue;
        if (walk > 0 && served[t->number][c->op]) continue;
        int64_t most = qc_set.quick ? 6 : 60, step = c->n_variant <= most ? 1 : (c->n_variant + most - 1) / most;
        uint64_t seed = qc_mix(seed_of(qc_case_seed(c), name, strlen(name)), (uint64_t)walk);
        for (int64_t v = walk % step; v < c->n_variant; v += step) check_variant(t, c, v, qc_mix(seed, (uint64_t)v));
    }
}

static void walk_levels(bench *t) {
    for (t->number = 0; t->number < QN_CPU_LEVEL_COUNT; t->number++) {
        t->level = t->levels[t->number];
        if (!t->level) continue;
        setenv("QUERN_CPU", qn_cpu_level_name(t->number), 1); /* what workspaces are sized by */
        for (int walk = 0; walk < WALKS; walk++) walk_level(t, walk);
    }
}

static void report_levels(const bench *t) {
    for (int l = 0; l < QN_CPU_LEVEL_COUNT; l++) {
        int64_t draws = 0;
        for (int op = 0; op < QN_OP_COUNT && t->levels[l]; op++) {
            draws += served[l][op];
            if (!qn_cpu_has_kernel_at(l, op) || served[l][op] || (qc_set.op >= 0 && qc_set.op != op)) continue;
            qc_fail(NULL, "%s has a kernel at level %s that no case reaches", qn_op_describe(op)->name, qn_cpu_level_name(l));
        }
        if (t->levels[l]) printf("level %s: %lld draws\n", qn_cpu_level_name(l), (long long)draws);
    }
}

static void meet(void *arg, int64_t part) {
    _Atomic int *missing = arg;
    (void)part;
    atomic_fetch_sub(missing, 1);
    while (atomic_load(missing) > 0) sched_yield();
}

/* A pool all of whose threads have begun: a sanitizer allocates in a thread's first moments, which would be counted as a kernel's. */
qn_pool *qc_pool_start(int threads) {
    qn_pool *pool;
    if (qn_pool_create(threads, &pool) != QN_OK) return NULL;
    _Atomic int missing = qn_pool_threads(pool);
    qn_pool_for(pool, qn_pool_threads(pool), meet, &missing);
    return pool;
}

static int open_bench(bench *t) {
    uint32_t have = qn_cpu_levels();
    memset(t, 0, sizeof *t);
    if (qn_context_create(&(qn_context_options){.size = sizeof(qn_context_options), .flags = QN_CONTEXT_REFERENCE},
                          &t->reference) != QN_OK)
        return 0;
    for (int l = 0; l < QN_CPU_LEVEL_COUNT; l++) {
        if (!(have >> l & 1)) continue;
        if (qn_context_create(NULL, &t->levels[l]) != QN_OK) return 0;
        t->levels[l]->cpu_levels = 1u << l;
    }
    t->pools[0] = qc_pool_start(2);
    t->pools[1] = qc_pool_start(3);
    t->pools[2] = qc_pool_start(7);
    return t->pools[0] && t->pools[1] && t->pools[2];
}

static void close_bench(bench *t) {
    for (int l = 0; l < QN_CPU_LEVEL_COUNT; l++) {
        if (t->levels[l]) t->levels[l]->pool = NULL;
        qn_context_destroy(t->levels[l]);
    }
    for (int i = 0; i < POOLS; i++) qn_pool_destroy(t->pools[i]);
    qn_context_destroy(t->reference);
}

int qc_mode_kernels(void) {
    bench t;
    qn_context *around = qc_context;
    if (open_bench(&t)) {
        walk_levels(&t);
        report_levels(&t);
    } else qc_fail(NULL, "no contexts or no threads to check kernels with");
    close_bench(&t);
    qc_context = around;
    return qc_finish();
}
