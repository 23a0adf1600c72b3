/* Schedules for bindings. A plan keeps the last few it made, so that extents that come and go cost one compilation each. */
#include "base/memory.h"
#include "run/plan_impl.h"

uint64_t qn_plan_arena_bytes(const qn_schedule *s) {
    return qn_plan_sum(qn_plan_padded(s->totals.arena_bytes), qn_plan_padded(s->totals.scratch_bytes));
}

static void special_destroy(qn_special *x) {
    if (!x) return;
    qn_allocator memory = qn_memory_default();
    qn_segments_destroy(x);
    qn_schedule_destroy(x->schedule);
    memory.release(memory.user, x, sizeof *x);
}

void qn_plan_drop_specials(qn_plan *p) {
    for (int i = 0; i < QN_PLAN_SPECIALS; i++) {
        special_destroy(p->specials[i]);
        p->specials[i] = NULL;
    }
    p->current = NULL;
}

/* The leaf that a value of the graph as given is; leaves are in the order of their values. */
static int32_t leaf_of(const qn_plan *p, qn_val value) {
    size_t low = 0, high = p->leaves.n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (p->leaves.at[middle].value < value) low = middle + 1;
        else high = middle;
    }
    return low < p->leaves.n && p->leaves.at[low].value == value ? (int32_t)low : -1;
}

/* Which leaf of the plan each leaf of the schedule's graph is: passes keep names, not numbers. */
static qn_status match_leaves(qn_plan *p, qn_special *x, qn_error *error) {
    const qn_graph *g = x->schedule->graph;
    x->leaf_of = qn_arena_alloc(&x->schedule->arena, g->values.n, sizeof *x->leaf_of);
    if (!x->leaf_of) return qn_error_set(error, QN_NO_MEMORY, "no memory for a plan");
    for (size_t v = 0; v < g->values.n; v++) {
        const qn_ir_value *value = &g->values.at[v];
        x->leaf_of[v] = -1;
        if (value->kind > QN_VALUE_PARAM) continue;
        const qn_ir_name *name = qn_ir_name_find(p->graph, qn_ir_string(g, value->name));
        qn_val given = !name ? QN_VAL_NONE : value->kind == QN_VALUE_INPUT ? name->input : name->param;
        x->leaf_of[v] = leaf_of(p, given);
    }
    return QN_OK;
}

/* Lending fails for a leaf that is updated, so the schedule says which those are before anything is set. */
static void find_updated(qn_plan *p, const qn_special *x) {
    const qn_schedule *s = x->schedule;
    for (size_t k = 0; k < s->graph->nodes.n; k++) {
        const qn_ir_node *n = &s->graph->nodes.at[k];
        for (int i = 0; i < n->n_out && !qn_op_describe(n->op)->is_view; i++) {
            int32_t leaf = x->leaf_of[s->slots[n->out + i].root];
            if (leaf >= 0) p->leaves.at[leaf].is_updated = 1;
        }
    }
}

int qn_plan_leaf_costs(const qn_plan *p, const qn_plan_leaf *l) {
    if (l->memory) return 1;
    int to_be_lent = p->flags & QN_PLAN_LEND && l->kind == QN_VALUE_PARAM && !l->is_updated;
    return !l->lent && !to_be_lent;
}

uint64_t qn_plan_leaf_bytes(const qn_plan *p) {
    uint64_t total = 0;
    for (size_t i = 0; i < p->leaves.n; i++)
        if (qn_plan_leaf_costs(p, &p->leaves.at[i])) total = qn_plan_sum(total, qn_plan_padded(p->leaves.at[i].capacity));
    return total;
}

static uint64_t lent_bytes(const qn_plan *p) {
    uint64_t total = 0;
    for (size_t i = 0; i < p->leaves.n; i++)
        if (!qn_plan_leaf_costs(p, &p->leaves.at[i])) total += p->leaves.at[i].capacity;
    return total;
}

static uint64_t copy_bytes(const qn_plan *p, const qn_special *x) {
    return x->device.copies > p->device_copies ? x->device.copies : p->device_copies;
}

static uint64_t staging_bytes(const qn_plan *p, const qn_special *x) {
    return qn_plan_sum(x->device.need.host, copy_bytes(p, x));
}

uint64_t qn_plan_host_bytes(const qn_plan *p, const qn_special *x) {
    uint64_t plain = qn_plan_sum(qn_plan_arena_bytes(x->schedule), qn_plan_leaf_bytes(p));
    return qn_plan_sum(qn_plan_sum(plain, x->schedule->totals.packed_bytes), staging_bytes(p, x));
}

uint64_t qn_plan_device_bytes(const qn_plan *p, const qn_special *x) {
    return qn_plan_sum(qn_device_memory_buffer(p, x), x->device.need.device);
}

void qn_plan_count(const qn_plan *p, const qn_special *x, qn_plan_totals *t) {
    t->host_bytes = qn_plan_host_bytes(p, x);
    t->device_bytes = qn_plan_device_bytes(p, x);
    t->staging_bytes = staging_bytes(p, x);
    t->device_scratch_bytes = x->device.need.device;
}

static qn_status check_cap(const qn_plan *p, qn_special *x, qn_error *error) {
    qn_plan_totals *t = &x->schedule->totals;
    qn_plan_count(p, x, t);
    if (!p->memory_cap || (t->host_bytes <= p->memory_cap && t->device_bytes <= p->memory_cap)) return QN_OK;
    return qn_error_set(
        error, QN_NO_MEMORY,
        "the plan needs %llu bytes on the host (arena %llu, params %llu of which %llu are lent, packed %llu, inputs "
        "%llu, scratch %llu, staging %llu) and %llu on the device (scratch %llu), the cap is %llu",
        (unsigned long long)t->host_bytes, (unsigned long long)t->arena_bytes, (unsigned long long)t->param_bytes,
        (unsigned long long)lent_bytes(p), (unsigned long long)t->packed_bytes, (unsigned long long)t->input_bytes,
        (unsigned long long)t->scratch_bytes, (unsigned long long)t->staging_bytes, (unsigned long long)t->device_bytes,
        (unsigned long long)t->device_scratch_bytes, (unsigned long long)p->memory_cap);
}

qn_status qn_plan_fits(qn_plan *p, qn_special *x, qn_error *error) {
    QN_TRY(qn_segments_measure(p, x, error));
    QN_TRY(check_cap(p, x, error)); /* leaves may cost more than when it was made, and other things cross */
    p->device_copies = copy_bytes(p, x);
    return QN_OK;
}

static qn_status special_create(qn_plan *p, qn_special **special, qn_error *error) {
    qn_allocator memory = qn_memory_default();
    qn_special *x = memory.allocate(memory.user, sizeof *x, QN_PLAN_ALIGN);
    if (!x) return qn_error_set(error, QN_NO_MEMORY, "no memory for a plan");
    memset(x, 0, sizeof *x);
    memcpy(x->symbols, p->symbols, sizeof x->symbols);
    qn_schedule_options o = {p->flags, p->symbols, p->cpu_levels, p->device, p->passes, 0, 0};
    qn_status status = qn_schedule_create(p->graph, &o, &x->schedule, error);
    if (status == QN_OK) status = match_leaves(p, x, error);
    if (status == QN_OK) find_updated(p, x);
    if (status == QN_OK) status = qn_segments_split(p, x, error);
    if (status == QN_OK) *special = x;
    else special_destroy(x);
    return status;
}

/* The place to put a new one: a free one, else that of the one longest unused. */
static int oldest(const qn_plan *p) {
    int at = 0;
    for (int i = 0; i < QN_PLAN_SPECIALS; i++) {
        if (!p->specials[i]) return i;
        if (p->specials[i]->used < p->specials[at]->used) at = i;
    }
    return at;
}

static void take_in(qn_plan *p, qn_special *x) {
    int at = oldest(p);
    if (p->device_has == p->specials[at]) p->device_has = NULL;
    special_destroy(p->specials[at]);
    p->specials[at] = x;
    if (x->device.bytes > p->device_most) p->device_most = x->device.bytes;
}

/* One that does not fit leaves the plan as it was. */
qn_status qn_plan_specialise(qn_plan *p, qn_error *error) {
    qn_special *found = NULL, *before = p->current;
    for (int i = 0; i < QN_PLAN_SPECIALS && !found; i++)
        if (p->specials[i] && memcmp(p->specials[i]->symbols, p->symbols, sizeof p->symbols) == 0) found = p->specials[i];
    int is_new = !found;
    if (is_new) QN_TRY(special_create(p, &found, error));
    p->current = found; /* feeds are between its values */
    qn_status status = qn_plan_feeds_check(p, error);
    if (status == QN_OK) status = qn_plan_fits(p, found, error);
    if (status != QN_OK) {
        p->current = before;
        if (is_new) special_destroy(found);
        return status;
    }
    if (is_new) take_in(p, found);
    found->used = ++p->clock;
    p->is_stale = 0;
    p->memory_ready = 0;
    p->is_shown &= found == before;
    return QN_OK;
}
