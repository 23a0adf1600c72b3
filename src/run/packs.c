/* Weights in the order kernels want them. A specialisation for other extents mostly asks for the same order of the same weight, so
 * what was packed belongs to the plan, and specialisations share it. */
#include "base/memory.h"
#include "run/plan_impl.h"

static qn_status allocate(void **at, size_t bytes, qn_error *error) {
    qn_allocator memory = qn_memory_default();
    *at = memory.allocate(memory.user, bytes ? bytes : 1, QN_PLAN_ALIGN);
    return *at ? QN_OK : qn_error_set(error, QN_NO_MEMORY, "no memory: a packed param needs %zu bytes", bytes);
}

/* What a copy is a copy of: leaves, and which part of them in which layout. */
static qn_pack_source source_of(const qn_plan *p, const qn_plan_pack *pack, int i) {
    qn_pack_source from = {.leaf = -1};
    if (pack->values[i] == QN_VAL_NONE) return from;
    const qn_schedule *s = p->current->schedule;
    const qn_tensor *t = &s->tensors[pack->values[i]];
    from.leaf = p->current->leaf_of[s->slots[pack->values[i]].root];
    from.offset = t->offset;
    for (int k = 0; k < t->rank; k++) {
        from.shape[k] = t->shape[k];
        from.stride[k] = t->stride[k];
    }
    return from;
}

/* The plan's copy of these in this order, listed when there is none yet; -1 without memory. */
static int32_t find_shared(qn_plan *p, const qn_plan_pack *pack, const qn_cpu_step *step, qn_error *error) {
    qn_shared_pack mine = {.form = qn_cpu_form_of(step)};
    for (int i = 0; i < QN_PLAN_PACKED; i++) mine.from[i] = source_of(p, pack, i);
    for (size_t i = 0; i < p->packs.n; i++) {
        const qn_shared_pack *s = &p->packs.at[i];
        if (memcmp(s->from, mine.from, sizeof mine.from) == 0 && qn_cpu_form_same(&s->form, &mine.form)) return (int32_t)i;
    }
    if (!QN_VEC_ROOM(&p->arena, &p->packs, 1)) {
        qn_error_set(error, QN_NO_MEMORY, "no memory for a packed param");
        return -1;
    }
    p->packs.at[p->packs.n] = mine;
    return (int32_t)p->packs.n++;
}

/* Whether every source is a leaf; constants belong to one specialisation alone. */
static int all_leaves(const qn_plan *p, const qn_plan_pack *pack) {
    int yes = 1;
    for (int i = 0; i < QN_PLAN_PACKED; i++) yes &= pack->values[i] == QN_VAL_NONE || source_of(p, pack, i).leaf >= 0;
    return yes;
}

qn_status qn_plan_packs_list(qn_plan *p, qn_error *error) {
    qn_schedule *s = p->current->schedule;
    for (size_t i = 0; i < s->packs.n; i++) {
        qn_plan_pack *pack = &s->packs.at[i];
        if (pack->shared < 0 && all_leaves(p, pack)) {
            pack->shared = find_shared(p, pack, &s->steps.at[pack->step].cpu, error);
            if (pack->shared < 0) return QN_NO_MEMORY;
        }
        if (pack->shared >= 0) p->packs.at[pack->shared].used = p->clock;
    }
    return QN_OK;
}

/* ---- Memory of the copies that the current specialisation does not use. It is kept for the sake of speed alone. */

static void release(void **at, size_t bytes) {
    qn_allocator memory = qn_memory_default();
    memory.release(memory.user, *at, bytes);
    *at = NULL;
}

static int is_idle(const qn_plan *p, const qn_shared_pack *pack) { return pack->data && pack->used != p->clock; }

uint64_t qn_plan_packs_bytes(const qn_plan *p, int idle) {
    uint64_t total = 0;
    for (size_t i = 0; i < p->packs.n; i++)
        if (idle ? is_idle(p, &p->packs.at[i]) : p->packs.at[i].data != NULL) total += p->packs.at[i].form.bytes;
    for (int x = 0; x < QN_PLAN_SPECIALS; x++) {
        const qn_special *special = p->specials[x];
        if (!special || (idle && special == p->current)) continue;
        for (size_t i = 0; i < special->schedule->packs.n; i++) {
            const qn_plan_pack *pack = &special->schedule->packs.at[i];
            if (pack->shared < 0 && pack->data) total += pack->bytes;
        }
    }
    return total;
}

static void release_own(qn_plan *p) {
    for (int x = 0; x < QN_PLAN_SPECIALS; x++)
        for (size_t i = 0; p->specials[x] && p->specials[x] != p->current && i < p->specials[x]->schedule->packs.n; i++) {
            qn_plan_pack *pack = &p->specials[x]->schedule->packs.at[i];
            if (pack->shared >= 0 || !pack->data) continue;
            release(&pack->data, pack->bytes);
            pack->fresh = 0;
        }
}

void qn_plan_packs_release(qn_plan *p, uint64_t most) {
    if (qn_plan_packs_bytes(p, 1) <= most) return;
    release_own(p);
    for (uint64_t left = qn_plan_packs_bytes(p, 1); left > most;) {
        qn_shared_pack *oldest = NULL;
        for (size_t i = 0; i < p->packs.n; i++)
            if (is_idle(p, &p->packs.at[i]) && (!oldest || p->packs.at[i].used < oldest->used)) oldest = &p->packs.at[i];
        left -= oldest->form.bytes;
        release(&oldest->data, oldest->form.bytes);
        oldest->fresh = 0;
    }
}

qn_status qn_plan_packs_allocate(qn_plan *p, qn_error *error) {
    qn_schedule *s = p->current->schedule;
    for (size_t i = 0; i < s->packs.n; i++) {
        qn_plan_pack *pack = &s->packs.at[i];
        void **at = pack->shared >= 0 ? &p->packs.at[pack->shared].data : &pack->data;
        if (!*at) QN_TRY(allocate(at, pack->bytes, error));
        pack->data = *at;
    }
    return QN_OK;
}

/* A weight that was packed is not read where it lies any more: it need not be in memory twice. */
static void drop_sources(qn_plan *p, const qn_plan_pack *pack) {
    for (int i = 0; i < QN_PLAN_PACKED; i++) {
        int64_t leaf = source_of(p, pack, i).leaf;
        if (leaf >= 0 && p->leaves.at[leaf].lent && p->leaves.at[leaf].mapped)
            qn_memory_drop_pages(p->leaves.at[leaf].lent, p->leaves.at[leaf].capacity);
    }
}

/* What is said of a copy is said where it belongs. */
static int *fresh_of(qn_plan *p, qn_plan_pack *pack) {
    return pack->shared >= 0 ? &p->packs.at[pack->shared].fresh : &pack->fresh;
}
static int *waited_of(qn_plan *p, qn_plan_pack *pack) {
    return pack->shared >= 0 ? &p->packs.at[pack->shared].waited : &pack->waited;
}
static qn_contest *contest_of(qn_plan *p, qn_plan_pack *pack) {
    return pack->shared >= 0 ? &p->packs.at[pack->shared].contest : &pack->contest;
}

/* Whether a copy is left for a later run. One that can wait does so once, because there may be no second run, or the weight may be
 * another one by then; after that a run makes a share of all of them, so that none takes much longer than the others. */
static int may_wait(qn_plan *p, qn_plan_pack *pack, const qn_plan_step *step, uint64_t *left) {
    int *waited = waited_of(p, pack);
    if (!step->cpu.pack_late) return 0;
    if (!*waited) return *waited = 1;
    if (*left == 0) return 1;
    *left -= pack->bytes < *left ? pack->bytes : *left;
    return 0;
}

/* Whether a run takes so long that packing everything beside it hardly shows. */
static int is_long(const qn_schedule *s) {
    double flops = 0;
    for (size_t i = 0; i < s->steps.n; i++) flops += s->steps.at[i].flops;
    return flops > 32.0 * (double)s->totals.packed_bytes;
}

int qn_plan_packs_fill(qn_plan *p, qn_pool *pool) {
    enum { RUNS = 16 }; /* in so many runs all of them are made */
    qn_schedule *s = p->current->schedule;
    uint64_t left = is_long(s) ? UINT64_MAX : s->totals.packed_bytes / RUNS + 1;
    int waiting = 0;
    for (size_t i = 0; i < s->packs.n; i++) {
        qn_plan_pack *pack = &s->packs.at[i];
        const qn_plan_step *step = &s->steps.at[pack->step];
        int *fresh = fresh_of(p, pack);
        if (*fresh) continue;
        if (!step->on_device && may_wait(p, pack, step, &left)) {
            waiting = 1;
            continue;
        }
        if (!step->on_device) {
            qn_cpu_pack(pool, &step->call, &step->cpu, pack->data);
            drop_sources(p, pack);
        }
        *fresh = 1;
    }
    for (size_t i = 0; i < s->steps.n; i++) {
        qn_plan_step *step = &s->steps.at[i];
        qn_plan_pack *pack = step->packed >= 0 ? &s->packs.at[step->packed] : NULL;
        if (!pack) continue;
        step->cpu.packed = *fresh_of(p, pack) ? pack->data : NULL;
        step->cpu.contest = contest_of(p, pack);
    }
    return waiting;
}

void qn_plan_packs_forget(qn_plan *p, const qn_plan_leaf *leaf) {
    int32_t number = (int32_t)(leaf - p->leaves.at);
    for (size_t i = 0; i < p->packs.n; i++)
        for (int k = 0; k < QN_PLAN_PACKED; k++)
            if (p->packs.at[i].from[k].leaf == number) p->packs.at[i].fresh = p->packs.at[i].waited = 0;
    for (int x = 0; x < QN_PLAN_SPECIALS; x++) /* a constant packed with a leaf is not shared */
        for (size_t i = 0; p->specials[x] && i < p->specials[x]->schedule->packs.n; i++)
            if (p->specials[x]->schedule->packs.at[i].shared < 0) {
                p->specials[x]->schedule->packs.at[i].fresh = 0;
                p->specials[x]->schedule->packs.at[i].waited = 0;
            }
}

void qn_plan_packs_destroy(qn_plan *p) {
    for (size_t i = 0; i < p->packs.n; i++)
        if (p->packs.at[i].data) release(&p->packs.at[i].data, p->packs.at[i].form.bytes);
    p->packs.n = 0;
}
