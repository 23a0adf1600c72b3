/* `qn_check batch`: who else is in the batch changes no bits. An op is run on all of its sources, and on a piece of them along an axis;
 * what belongs to the piece must have the same bits in both. Which sources have that axis is not written down anywhere: every choice is
 * tried with the reference, and where its bits are those of the whole, the op treats what lies along the axis one by one, and the kernels
 * must, too. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "cpu/cpu.h"
#include "op/op.h"
#include "run/context.h"

enum { ROOM = 1 << 22, MOST_SMALL = 1500, MOST_LARGE = 60000, MOST_WAYS = 27 };
enum { WAY_WHOLE, WAY_FRONT, WAY_BACK, WAYS }; /* of a source: no axis of it, or one counted from either end */

static unsigned char outputs[4][ROOM];
enum { REFERENCE, KERNEL, REFERENCE_PIECE, KERNEL_PIECE };
static int64_t compared[QN_OP_COUNT];

typedef struct piece {
    qn_request request;
    qn_tensor src[QN_MAX_SRC], dst[QN_MAX_DST];
    int axis;             /* of the first destination */
    int way[QN_MAX_SRC];  /* of the sources */
    int64_t first, count; /* along it */
} piece;

typedef struct putting {
    const unsigned char *from;
    size_t bytes;
} putting;

static qn_context *reference, *kernels;
static uint32_t own_levels; /* of the kernels */
static int turn;

static qn_tensor cut(const qn_tensor *t, int axis, int64_t first, int64_t count) {
    qn_tensor view = *t;
    view.offset += first * t->stride[axis];
    view.shape[axis] = count;
    return view;
}

/* The axis of a source that goes with the one of the destination; -1: there is none of that extent. */
static int axis_of(const qc_built *b, const piece *p, int slot, int way) {
    const qn_tensor *x = b->request.src[slot], *y = b->request.dst[0];
    if (!x || way == WAY_WHOLE) return -1;
    int axis = way == WAY_FRONT ? p->axis : x->rank - (y->rank - p->axis);
    if (way == WAY_BACK && x->rank == y->rank) return -1; /* the same as from the front */
    int is_last = axis == x->rank - 1 && qn_is_block(x->dtype);
    return axis >= 0 && axis < x->rank && !is_last && x->shape[axis] == y->shape[p->axis] ? axis : -1;
}

static void put_one(void *self, char *at, int64_t i) {
    const putting *p = self;
    memcpy(at, p->from + (size_t)i * p->bytes, p->bytes);
}

/* A copy of a tensor or of a piece of it, in the arena, laid out as the source was; what meets several is met by them still. */
static int copy(const qc_built *b, int slot, qn_tensor *to, const qn_tensor *from) {
    static unsigned char dense[ROOM];
    char asked = b->options.src_layout[slot], own = b->c->src[slot].layout;
    if (own == 'b') return *to = *from, 1;
    if (qc_tensor_make(to, asked ? asked : own, from->dtype, from->rank, from->shape) != QN_OK) return 0;
    to->flags = from->flags;
    if (qc_gather(from, dense, ROOM) > ROOM) return 0;
    qc_each(to, put_one, &(putting){dense, (size_t)qn_dtype_describe((qn_dtype)to->dtype)->bytes});
    return 1;
}

static int make_sources(const qc_built *b, piece *p) {
    p->request = b->request;
    for (int i = 0; i < p->request.n_src; i++) {
        const qn_tensor *x = b->request.src[i];
        if (!x) continue;
        int axis = axis_of(b, p, i, p->way[i]);
        qn_tensor view = axis < 0 ? *x : cut(x, axis, p->first, p->count);
        if (!copy(b, i, &p->src[i], &view)) return 0;
        p->request.src[i] = &p->src[i];
    }
    return 1;
}

/* Destinations as the op makes them of the piece: those of the whole, but for the axis. */
static int make_destinations(const qc_built *b, piece *p) {
    const qn_op_info *info = qn_op_describe(b->request.op);
    qn_tensor out[QN_MAX_DST];
    qn_result result;
    size_t bytes = 0;
    int n = 0;
    if (qn_infer(&p->request, out, &n, &result) != QN_OK || n < p->request.n_dst) return 0;
    for (int i = 0; i < p->request.n_dst; i++) {
        const qn_tensor *y = b->request.dst[i];
        if (!y) continue;
        if (out[i].rank != y->rank || y->rank <= p->axis || y->shape[p->axis] != b->request.dst[0]->shape[p->axis]) return 0;
        for (int k = 0; k < y->rank; k++)
            if (out[i].shape[k] != (k == p->axis ? p->count : y->shape[k])) return 0;
        int is_state = i < info->n_src && (info->src[i].flags & QN_SLOT_STATE);
        if (is_state) p->dst[i] = p->src[i];
        else if (qc_tensor_make(&p->dst[i], 0, out[i].dtype, out[i].rank, out[i].shape) != QN_OK) return 0;
        p->request.dst[i] = &p->dst[i];
    }
    if (qn_workspace_bytes(&p->request, &bytes, &result) != QN_OK) return 0;
    p->request.workspace = bytes ? qc_alloc(bytes, QN_WORKSPACE_ALIGN) : NULL;
    p->request.workspace_size = bytes;
    return !bytes || p->request.workspace;
}

/* The bytes of all destinations, or of their pieces when `p` says which; 0 when it did not run. */
static size_t run(qn_context *context, const qn_request *q) {
    qn_result result;
    qc_arena_rewind();
    return qn_dispatch(context, q, &result) == QN_OK;
}

static size_t gather(const qn_request *q, const piece *p, unsigned char *out) {
    size_t n = 0;
    for (int i = 0; i < q->n_dst; i++) {
        if (!q->dst[i]) continue;
        qn_tensor view = p ? cut(q->dst[i], p->axis, p->first, p->count) : *q->dst[i];
        n += qc_gather(&view, out + n, ROOM - n);
        if (n > ROOM) return 0;
    }
    return n;
}

static int same(int a, int b, size_t n) { return memcmp(outputs[a], outputs[b], n) == 0; }

/* 1 when the op goes along the axis one by one, whatever the kernels made of it. */
static int try_piece(qc_built *b, piece *p) {
    if (!make_sources(b, p) || !make_destinations(b, p)) return 0;
    qc_arena_keep();
    if (!run(reference, &b->request)) return 0;
    size_t n = gather(&b->request, p, outputs[REFERENCE]);
    if (!n || !run(reference, &p->request) || gather(&p->request, NULL, outputs[REFERENCE_PIECE]) != n) return 0;
    if (!same(REFERENCE, REFERENCE_PIECE, n)) return 0;
    if (!run(kernels, &b->request)) return 0;
    gather(&b->request, p, outputs[KERNEL]);
    if (!run(kernels, &p->request)) return 0;
    gather(&p->request, NULL, outputs[KERNEL_PIECE]);
    compared[b->request.op]++;
    if (same(KERNEL, KERNEL_PIECE, n)) qc_pass();
    else
        qc_fail(b, "%lld of %lld along axis %d, from %lld on, give other bits than all", (long long)p->count,
                (long long)b->request.dst[0]->shape[p->axis], p->axis, (long long)p->first);
    return 1;
}

/* The n-th choice of the sources that have the axis, those with most of them first; 0: there are no more, -1: none of this number. */
static int choose(const qc_built *b, piece *p, int n) {
    int cuts = 0;
    for (int i = 0; i < b->request.n_src; i++) {
        int ways[WAYS], n_ways = 0;
        for (int way = WAY_FRONT; way <= WAY_BACK; way++)
            if (axis_of(b, p, i, way) >= 0) ways[n_ways++] = way;
        ways[n_ways++] = WAY_WHOLE;
        p->way[i] = ways[n % n_ways];
        n /= n_ways;
        cuts += p->way[i] != WAY_WHOLE;
    }
    return n ? 0 : cuts ? 1 : -1;
}

static void check_axis(qc_built *b, const qc_case *c, const qc_draw *d, const qc_options *options, int axis, qc_rng *rng) {
    for (int n = 0, more = 1; n < MOST_WAYS && more; n++) {
        piece p = {.axis = axis};
        qc_build(b, c, d, options);
        int64_t extent = b->request.dst[0]->shape[axis];
        more = choose(b, &p, n);
        if (more <= 0) continue;
        p.count = 1;
        p.first = qc_below(rng, extent);
        if (!try_piece(b, &p)) continue;
        qc_build(b, c, d, options);
        p.count = 1 + qc_below(rng, extent - 1);
        p.first = qc_below(rng, extent - p.count + 1);
        (void)try_piece(b, &p);
        return;
    }
}

static void check_layout(const qc_case *c, const qc_draw *d, const qc_options *options) {
    qc_built b;
    qc_rng rng = {d->seed};
    qc_build(&b, c, d, options);
    if (b.trouble || b.inferred != QN_OK || !b.request.n_dst || !b.request.dst[0] || qn_op_describe(c->op)->is_view) return;
    qn_tensor y = *b.request.dst[0];
    if (qn_tensor_count(&y) == 0) return;
    for (int axis = 0; axis < y.rank - 1; axis++)
        if (y.shape[axis] > 1) check_axis(&b, c, d, options, axis, &rng);
}

/* As on a machine whose best level this is, each level in turn: as many as go side by side in one are too few in another. */
static void next_level(void) {
    for (int tries = 0; tries < QN_CPU_LEVEL_COUNT; tries++) {
        turn = (turn + 1) % QN_CPU_LEVEL_COUNT;
        if (own_levels >> turn & 1) break;
    }
    kernels->cpu_levels = own_levels & ((2u << turn) - 1);
}

static void check_draw(const qc_case *c, const qc_draw *d) {
    qc_options options = {.poison = 0xff};
    next_level();
    check_layout(c, d, &options);
    memset(options.src_layout, 's', sizeof options.src_layout);
    check_layout(c, d, &options);
}

static void check_case(const qc_case *c) {
    int64_t most = qc_set.quick && qc_set.small ? 3
                   : qc_set.quick               ? 8
                                                : 24,
            step = c->n_variant <= most ? 1 : (c->n_variant + most - 1) / most;
    for (int64_t v = 0; v < c->n_variant; v += step) {
        qc_draw d;
        uint64_t seed = qc_mix(qc_case_seed(c), (uint64_t)v);
        qc_draw_make(c, &d, v, QC_SHAPES_RANDOM, MOST_SMALL, seed);
        check_draw(c, &d);
        qc_draw_make(c, &d, v, QC_SHAPES_ODD, MOST_SMALL, seed + 1);
        check_draw(c, &d);
        if (qc_set.small || (qc_set.quick && v / step % 2)) continue;
        qc_draw_make(c, &d, v, QC_SHAPES_LARGE, MOST_LARGE, seed + 2);
        check_draw(c, &d);
    }
}

int qc_mode_batch(void) {
    reference = qc_context;
    if (qn_context_create(NULL, &kernels) != QN_OK) return 2;
    own_levels = kernels->cpu_levels;
    for (int i = 0; i < qc_cases_count(); i++) {
        const qc_case *c = qc_cases_at(i);
        if (c->kind == QC_ACCEPT && (qc_set.op < 0 || qc_set.op == c->op)) check_case(c);
    }
    int ops = 0;
    for (int op = 0; op < QN_OP_COUNT; op++) {
        ops += compared[op] > 0;
        if (qc_set.verbose && !compared[op]) printf("%s has no batch in its cases\n", qn_op_describe(op)->name);
    }
    printf("%d ops go along an axis one by one\n", ops);
    qn_context_destroy(kernels);
    return qc_finish();
}
