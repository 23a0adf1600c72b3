/* Weights in the order kernels want them. A specialisation for other extents mostly asks for the same order of the same weight, so
 * what was packed belongs to the plan, and specialisations share it. */
#include "base/memory.h"
#include "run/plan_impl.h"

static qn_status allocate(void **at, size_t bytes, qn_error *error) {
    qn_allocator memory = qn_memory_default();
    *at = memory.allocate(memory.user, bytes ? bytes : 1, QN_PLAN_ALIGN);
    return *at ? QN_OK : qn_error_set(error, QN_NO_MEMORY, "no memory: a packed param needs %zu bytes", bytes);
}

/* The plan's copy of a leaf in this order, made room for when there is none yet; -1 without memory. */
static int32_t find_shared(qn_plan *p, int32_t leaf, const qn_plan_pack *pack, qn_cpu_pack_fn order, qn_error *error) {
    for (size_t i = 0; i < p->packs.n; i++) {
        const qn_shared_pack *s = &p->packs.at[i];
        if (s->leaf == leaf && s->pack == order && s->bytes == pack->bytes) return (int32_t)i;
    }
    void *data;
    if (!QN_VEC_ROOM(&p->arena, &p->packs, 1)) {
        qn_error_set(error, QN_NO_MEMORY, "no memory for a packed param");
        return -1;
    }
    if (allocate(&data, pack->bytes, error) != QN_OK) return -1;
    p->packs.at[p->packs.n] = (qn_shared_pack){leaf, order, pack->bytes, data, 0};
    return (int32_t)p->packs.n++;
}

static qn_status need_memory(qn_plan *p, qn_plan_pack *pack, qn_error *error) {
    if (pack->data) return QN_OK;
    int32_t leaf = p->current->leaf_of[pack->root];
    p->current->pointed = 0;
    if (leaf < 0) return allocate(&pack->data, pack->bytes, error); /* a constant of this specialisation alone */
    qn_cpu_pack_fn order = p->current->schedule->steps.at[pack->step].cpu.pack;
    pack->shared = find_shared(p, leaf, pack, order, error);
    if (pack->shared < 0) return QN_NO_MEMORY;
    pack->data = p->packs.at[pack->shared].data;
    return QN_OK;
}

qn_status qn_plan_packs_allocate(qn_plan *p, qn_error *error) {
    qn_schedule *s = p->current->schedule;
    for (size_t i = 0; i < s->packs.n; i++) QN_TRY(need_memory(p, &s->packs.at[i], error));
    return QN_OK;
}

void qn_plan_packs_fill(qn_plan *p, qn_pool *pool) {
    qn_schedule *s = p->current->schedule;
    for (size_t i = 0; i < s->packs.n; i++) {
        qn_plan_pack *pack = &s->packs.at[i];
        const qn_plan_step *step = &s->steps.at[pack->step];
        int *fresh = pack->shared >= 0 ? &p->packs.at[pack->shared].fresh : &pack->fresh;
        if (!*fresh && !step->on_device) qn_cpu_pack(pool, &step->call, &step->cpu, pack->data);
        *fresh = 1;
    }
}

void qn_plan_packs_forget(qn_plan *p, const qn_plan_leaf *leaf) {
    for (size_t i = 0; i < p->packs.n; i++)
        if (&p->leaves.at[p->packs.at[i].leaf] == leaf) p->packs.at[i].fresh = 0;
}

void qn_plan_packs_destroy(qn_plan *p) {
    qn_allocator memory = qn_memory_default();
    for (size_t i = 0; i < p->packs.n; i++) memory.release(memory.user, p->packs.at[i].data, p->packs.at[i].bytes);
    p->packs.n = 0;
}
