/* What no kernel takes as it is, by way of copies: sources with gaps become dense, 16-bit floats and blocks become f32, the kernel for
 * such sources does the work, and what it made is put where and how the caller wants it.
 *
 * Which copies, and the kernel behind them, are worked out twice: when the step is prepared, for its parts and its scratch, and at the
 * beginning of a run, when addresses are known; then it is written to the scratch, where the parts find it. */
#include "cpu/cpu_detour.h"

#include <string.h>

#include "tensor/dtype.h"

enum { MOST = 16, LINE = 64 };
enum { PHASE_WORK_OUT, PHASE_COPY_IN, PHASE_KERNEL }; /* and after the kernel's phases the copies back */
enum { NUMBER_LEVELS, NUMBER_WIDEN };                 /* what a step remembers */

typedef struct copy {
    const qn_tensor *from, *to;
    qn_cpu_step step;
    uint32_t slots; /* the source it is of, as a bit; 0: a destination */
} copy;

typedef struct detour {
    qn_call call;
    const qn_tensor *src[QN_MAX_SRC], *dst[QN_MAX_DST];
    qn_cpu_step kernel;
    int n_in, n; /* copies before the kernel, and all */
    copy copies[MOST];
    qn_tensor places[MOST];
    size_t bytes; /* of scratch, so far */
} detour;

static const uint8_t is_direct[QN_OP_COUNT] = {
#define QN_CPU_DIRECT(op) [QN_OP_##op] = 1,
#include "cpu/cpu_detour.def"
#undef QN_CPU_DIRECT
};

static uint32_t widened(uint32_t dtype) {
    return dtype == QN_DTYPE_F16 || dtype == QN_DTYPE_BF16 || qn_is_block(dtype) ? QN_DTYPE_F32 : dtype;
}

static size_t in_lines(size_t bytes) { return (bytes + LINE - 1) / LINE * LINE; }

/* A dense tensor of the shape of t in the scratch. */
static const qn_tensor *make_place(detour *d, const qn_tensor *t, uint32_t dtype, char *scratch) {
    qn_tensor *place = &d->places[d->n];
    *place = *t;
    place->dtype = dtype;
    place->offset = 0;
    int64_t bytes = qn_dtype_bytes(dtype);
    for (int k = t->rank - 1; k >= 0; k--) {
        place->stride[k] = bytes;
        bytes *= t->shape[k];
    }
    place->size = (uint64_t)bytes;
    place->data = scratch ? scratch + d->bytes : NULL;
    d->bytes += in_lines((size_t)bytes);
    return place;
}

static int add_copy(detour *d, uint32_t levels, const qn_tensor *from, const qn_tensor *to, uint32_t slots) {
    copy *one = &d->copies[d->n++];
    one->from = from, one->to = to, one->slots = slots;
    one->step.constant = 0;
    qn_call call = {QN_OP_dup, 0, 1, 1, &from, &to, NULL, NULL};
    return qn_cpu_choose(levels, &call, &one->step) && one->step.n_phases == 1 && !one->step.workspace;
}

static int is_in_place(const qn_tensor *t, uint32_t dtype) { return !t || (dtype == t->dtype && qn_tensor_is_contiguous(t)); }

static int take_sources(detour *d, const qn_call *c, uint32_t levels, int widen, char *scratch) {
    const qn_op_info *info = qn_op_describe((qn_op)c->op);
    for (int i = 0; i < c->n_src; i++) {
        const qn_tensor *t = d->src[i] = c->src[i];
        if (!t || info->src[i].flags & QN_SLOT_SHAPE) continue;
        uint32_t dtype = widen ? widened(t->dtype) : t->dtype;
        if (is_in_place(t, dtype)) continue;
        if (d->n == MOST || qn_is_block(dtype)) return 0;
        d->src[i] = make_place(d, t, dtype, scratch);
        if (!add_copy(d, levels, t, d->src[i], i < 32 ? 1u << i : 0)) return 0;
    }
    d->n_in = d->n;
    return 1;
}

static int take_destinations(detour *d, const qn_call *c, uint32_t levels, int widen, char *scratch) {
    for (int i = 0; i < c->n_dst; i++) {
        const qn_tensor *t = d->dst[i] = c->dst[i];
        uint32_t dtype = t && widen ? widened(t->dtype) : t ? t->dtype : 0;
        if (is_in_place(t, dtype)) continue;
        if (d->n == MOST || qn_is_block(dtype)) return 0;
        d->dst[i] = make_place(d, t, dtype, scratch);
        if (!add_copy(d, levels, d->dst[i], t, 0)) return 0;
    }
    return 1;
}

/* The copies and the kernel behind them; scratch may still be missing. */
static int work_out(detour *d, const qn_call *c, uint32_t levels, int widen, uint32_t constant, char *scratch) {
    d->n = 0;
    d->bytes = in_lines(sizeof *d);
    if (!take_sources(d, c, levels, widen, scratch) || !take_destinations(d, c, levels, widen, scratch) || !d->n) return 0;
    for (int i = c->n_src; i < QN_MAX_SRC; i++) d->src[i] = NULL;
    for (int i = c->n_dst; i < QN_MAX_DST; i++) d->dst[i] = NULL;
    d->call = (qn_call){c->op, c->subop, c->n_src, c->n_dst, d->src, d->dst, c->attr, scratch ? scratch + d->bytes : NULL};
    d->kernel.constant = constant;
    return qn_cpu_choose(levels, &d->call, &d->kernel);
}

/* One part of the copies first to end, all their parts in a row. A source that was packed is not read, so it need not be copied. */
static void run_copies(const detour *d, const qn_cpu_step *s, int first, int end, int64_t part) {
    uint32_t packed = s->packed ? 1u << s->pack_slot | s->pack_more : 0;
    int i = first;
    while (i < end && part >= d->copies[i].step.parts[0]) part -= d->copies[i++].step.parts[0];
    if (i == end || d->copies[i].slots & packed) return;
    const copy *one = &d->copies[i];
    qn_call call = {QN_OP_dup, 0, 1, 1, &one->from, &one->to, NULL, NULL};
    one->step.run(&call, &one->step, 0, part);
}

static void run(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    detour *d = c->workspace;
    if (phase == PHASE_WORK_OUT) {
        (void)work_out(d, c, (uint32_t)s->n[NUMBER_LEVELS], (int)s->n[NUMBER_WIDEN], s->constant, c->workspace);
        d->kernel.packed = s->packed;
        d->kernel.contest = s->contest;
    } else if (phase == PHASE_COPY_IN) {
        run_copies(d, s, 0, d->n_in, part);
    } else if (phase < PHASE_KERNEL + d->kernel.n_phases) {
        d->kernel.run(&d->call, &d->kernel, phase - PHASE_KERNEL, part);
    } else {
        run_copies(d, s, d->n_in, d->n, part);
    }
}

/* Packing happens between runs, when the scratch is free: the sources that are packed are copied there first. */
static void pack(const qn_call *c, const qn_cpu_step *s, void *packed, int64_t part) {
    detour *d = c->workspace;
    (void)part;
    if (!work_out(d, c, (uint32_t)s->n[NUMBER_LEVELS], (int)s->n[NUMBER_WIDEN], s->constant, c->workspace)) return;
    qn_cpu_step all = {.packed = NULL};
    int64_t at = 0;
    for (int i = 0; i < d->n_in; i++) {
        int64_t parts = d->copies[i].step.parts[0];
        if (d->copies[i].slots & (1u << s->pack_slot | s->pack_more))
            for (int64_t k = 0; k < parts; k++) run_copies(d, &all, 0, d->n_in, at + k);
        at += parts;
    }
    for (int64_t k = 0; k < d->kernel.pack_parts; k++) d->kernel.pack(&d->call, &d->kernel, packed, k);
}

static int64_t parts_of(const detour *d, int first, int end) {
    int64_t parts = 0;
    for (int i = first; i < end; i++) parts += d->copies[i].step.parts[0];
    return parts;
}

static int fill(qn_cpu_step *s, const detour *d, uint32_t levels, int widen) {
    const qn_cpu_step *kernel = &d->kernel;
    int last = PHASE_KERNEL + kernel->n_phases;
    if (last >= QN_CPU_PHASES) return 0;
    s->run = run;
    s->name = widen ? "by way of f32" : "by way of dense copies";
    s->level = kernel->level;
    s->n[NUMBER_LEVELS] = levels;
    s->n[NUMBER_WIDEN] = widen;
    s->parts[PHASE_WORK_OUT] = 1;
    s->parts[PHASE_COPY_IN] = parts_of(d, 0, d->n_in);
    for (int i = 0; i < kernel->n_phases; i++) s->parts[PHASE_KERNEL + i] = kernel->parts[i];
    s->parts[last] = parts_of(d, d->n_in, d->n);
    s->n_phases = s->parts[last] ? last + 1 : last;
    s->workspace = d->bytes + kernel->workspace;
    if (!kernel->pack) return 1;
    s->pack = pack;
    s->pack_inner = kernel->pack_inner ? kernel->pack_inner : kernel->pack;
    s->pack_slot = kernel->pack_slot;
    s->pack_more = kernel->pack_more;
    s->pack_parts = 1;
    s->packed_bytes = kernel->packed_bytes;
    memcpy(s->pack_also, kernel->pack_also, sizeof s->pack_also);
    s->pack_late = kernel->pack_late;
    return 1;
}

/* A state must stay where it is. However little there is to copy, it is copied: the reference would be sooner done, but its bits are
 * others, and those of a row may not depend on how many rows come with it. */
static int may_copy(const qn_call *c) {
    const qn_op_info *info = qn_op_describe((qn_op)c->op);
    for (int i = 0; i < c->n_src; i++)
        if (info->src[i].flags & QN_SLOT_STATE) return 0;
    for (int i = 0; i < c->n_dst; i++)
        if (c->dst[i] && qn_tensor_count(c->dst[i]) == 0) return 0;
    return 1;
}

int qn_cpu_detour(uint32_t levels, const qn_call *c, qn_cpu_step *s) {
    detour d;
    uint32_t constant = s->constant;
    if (is_direct[c->op] || !may_copy(c)) return 0;
    for (int widen = 0; widen <= 1; widen++) {
        if (!work_out(&d, c, levels, widen, constant, NULL)) continue;
        memset(s, 0, sizeof *s);
        s->constant = constant;
        if (fill(s, &d, levels, widen)) return 1;
    }
    return 0;
}
