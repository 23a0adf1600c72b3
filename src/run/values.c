/* Values in and out of a plan, and the memory they lie in. */
#include "base/memory.h"
#include "run/plan_impl.h"
#include "run/plan_input.h"

qn_plan_leaf *qn_plan_leaf_find(const qn_plan *p, const char *name) {
    for (size_t i = 0; name && i < p->leaves.n; i++)
        if (strcmp(p->leaves.at[i].name, name) == 0) return &p->leaves.at[i];
    return NULL;
}

qn_val qn_plan_output_find(const qn_plan *p, const char *name) {
    const qn_graph *g = p->current->schedule->graph;
    for (size_t i = 0; name && i < g->outputs.n; i++)
        if (strcmp(qn_ir_string(g, g->outputs.at[i].name), name) == 0) return g->outputs.at[i].value;
    return QN_VAL_NONE;
}

/* ---- Memory */

static qn_status allocate(void **at, uint64_t bytes, const char *what, qn_error *error) {
    qn_allocator memory = qn_memory_default();
    *at = memory.allocate(memory.user, bytes ? bytes : 1, QN_PLAN_ALIGN);
    if (!*at) return qn_error_set(error, QN_NO_MEMORY, "no memory: %s needs %llu bytes", what, (unsigned long long)bytes);
    return QN_OK;
}

static void *leaf_at(void *user, qn_val value) {
    const qn_plan *p = user;
    const qn_plan_leaf *l = &p->leaves.at[p->current->leaf_of[value]];
    return l->lent ? l->lent : l->memory;
}

static void release_arena(qn_plan *p) {
    qn_allocator memory = qn_memory_default();
    if (p->memory) memory.release(memory.user, p->memory, p->memory_bytes);
    p->memory = NULL;
    p->memory_bytes = 0;
    p->is_shown = 0;
}

/* One block serves every specialisation; it grows when a larger one comes. */
static qn_status need_arena(qn_plan *p, qn_error *error) {
    uint64_t bytes = qn_plan_arena_bytes(p->current->schedule);
    if (p->memory && bytes <= p->memory_bytes) return QN_OK;
    release_arena(p);
    QN_TRY(allocate(&p->memory, bytes, "the arena", error));
    qn_memory_zero(p->memory, bytes);
    p->memory_bytes = bytes ? bytes : 1;
    for (int i = 0; i < QN_PLAN_SPECIALS; i++)
        if (p->specials[i]) p->specials[i]->pointed = 0;
    return QN_OK;
}

/* What the arena has beyond what this specialisation needs. */
static uint64_t arena_excess(const qn_plan *p) {
    uint64_t bytes = qn_plan_arena_bytes(p->current->schedule);
    return p->memory_bytes > bytes ? p->memory_bytes - bytes : 0;
}

/* Under a cap what other specialisations left makes way. What this one needs by itself is not beyond the cap: that was seen before. */
static void make_way(qn_plan *p) {
    if (!p->memory_cap) return;
    uint64_t spare = p->memory_cap - qn_plan_host_bytes(p, p->current);
    spare -= qn_device_memory_make_way(p, spare);
    if (arena_excess(p) > spare) release_arena(p);
    qn_plan_packs_release(p, spare - arena_excess(p));
}

static qn_status need_packs(qn_plan *p, qn_pool *pool, int *waiting, qn_error *error) {
    qn_schedule *s = p->current->schedule;
    QN_TRY(qn_plan_packs_allocate(p, error));
    if (!p->current->pointed) {
        uint64_t arena = qn_plan_padded(s->totals.arena_bytes);
        qn_schedule_point(s, p->memory, (char *)p->memory + arena, leaf_at, p);
        p->current->pointed = 1;
    }
    p->is_shown = 1;
    *waiting = qn_plan_packs_fill(p, pool);
    return QN_OK;
}

qn_status qn_plan_ready(qn_plan *p, qn_pool *pool, qn_error *error) {
    int waiting = 0;
    QN_TRY(qn_plan_fits(p, p->current, error));
    QN_TRY(qn_plan_packs_list(p, error));
    make_way(p);
    QN_TRY(need_arena(p, error));
    QN_TRY(need_packs(p, pool, &waiting, error));
    if (p->device) QN_TRY(qn_segments_finish(p, p->current, error));
    p->memory_ready = !waiting;
    return QN_OK;
}

/* ---- In */

static qn_status check_tensor(const qn_plan *p, const qn_plan_leaf *l, const qn_tensor *from, uint64_t *bytes, qn_error *error) {
    const qn_shape *want = &p->graph->values.at[l->value].shape;
    if (from->dtype != want->dtype || from->rank != want->rank)
        return qn_error_set(error, QN_INVALID, "'%s': the graph has %s of rank %d, not %s of rank %d", l->name,
                            qn_dtype_describe((qn_dtype)want->dtype)->name, want->rank,
                            qn_dtype_describe((qn_dtype)from->dtype) ? qn_dtype_describe((qn_dtype)from->dtype)->name : "?",
                            from->rank);
    for (int k = 0; k < want->rank; k++)
        if (from->shape[k] != want->d[k] && !qn_dim_is_symbolic(want->d[k]))
            return qn_error_set(error, QN_INVALID, "'%s': axis %d has extent %lld, the graph has %lld", l->name, k,
                                (long long)from->shape[k], (long long)want->d[k]);
    *bytes = 0;
    if (qn_tensor_bytes((qn_dtype)from->dtype, from->rank, from->shape, bytes) != QN_OK || *bytes > l->capacity)
        return qn_error_set(error, QN_INVALID, "'%s': its extents are beyond the bounds of the graph's symbols", l->name);
    if (qn_tensor_count(from) && from->data &&
        (!qn_tensor_is_contiguous(from) || from->offset < 0 || (uint64_t)from->offset > from->size ||
         *bytes > from->size - (uint64_t)from->offset))
        return qn_error_set(error, QN_INVALID, "'%s': the tensor must be dense and lie in its buffer", l->name);
    return QN_OK;
}

/* The symbol that an extent of a leaf is by itself; -1: it is a number, or an expression. */
static int64_t symbol_at(const qn_plan *p, const qn_shape *want, int k) {
    if (!qn_dim_is_symbolic(want->d[k])) return -1;
    const qn_ir_dim *d = &p->graph->dims.at[want->d[k] - QN_DIM_BASE];
    return d->kind == QN_IR_DIM_SYMBOL ? d->a : -1;
}

static qn_status check_bounds(const qn_plan *p, const qn_plan_leaf *l, const qn_tensor *from, qn_error *error) {
    const qn_shape *want = &p->graph->values.at[l->value].shape;
    for (int k = 0; k < want->rank; k++) {
        if (symbol_at(p, want, k) < 0) continue;
        const qn_ir_symbol *s = &p->graph->symbols.at[symbol_at(p, want, k)];
        int64_t extent = from->shape[k];
        if (extent < s->least || extent > s->most || (s->multiple_of > 1 && extent % s->multiple_of))
            return qn_error_set(error, QN_INVALID, "'%s': axis %d has extent %lld, but %s is at least %lld, at most %lld%s",
                                l->name, k, (long long)extent, qn_ir_string(p->graph, s->name), (long long)s->least,
                                (long long)s->most, s->multiple_of > 1 ? " and a multiple of its step" : "");
    }
    return QN_OK;
}

/* Extents that are symbols by themselves say what those are from now on. An expression that says otherwise than they do is compared
 * with them before the next run, when other leaves may have been set as well. */
static void note_extents(qn_plan *p, const qn_plan_leaf *l, const qn_tensor *from) {
    const qn_shape *want = &p->graph->values.at[l->value].shape;
    int64_t extent;
    for (int k = 0; k < want->rank; k++)
        if (symbol_at(p, want, k) >= 0 && p->symbols[symbol_at(p, want, k)] != from->shape[k]) {
            p->symbols[symbol_at(p, want, k)] = from->shape[k];
            p->is_stale = 1;
        }
    for (int k = 0; k < want->rank; k++)
        if (!qn_ir_dim_value(p->graph, want->d[k], p->symbols, &extent) || extent != from->shape[k]) p->is_stale = 1;
}

/* The last thing that is done, so that a call that fails changes nothing. */
static void note_set(qn_plan *p, qn_plan_leaf *l, const qn_tensor *from) {
    l->shape.dtype = from->dtype;
    l->shape.rank = from->rank;
    memcpy(l->shape.d, from->shape, sizeof l->shape.d);
    note_extents(p, l, from);
    p->n_unset -= !l->is_set;
    l->is_set = 1;
    l->newest = QN_ON_HOST;
    qn_plan_packs_forget(p, l);
    if (l->kind == QN_VALUE_PARAM) p->memory_ready = 0;
}

static qn_status find_for_set(qn_plan *p, const char *name, const qn_tensor *tensor, qn_plan_leaf **leaf, uint64_t *bytes,
                              qn_error *error) {
    if (!p || !name || !tensor) return qn_error_set(error, QN_ARGUMENT, "a plan, a name and a tensor are needed");
    *leaf = qn_plan_leaf_find(p, name);
    if (!*leaf) return qn_error_set(error, QN_INVALID, "the graph has no input or param '%s'", name);
    QN_TRY(check_tensor(p, *leaf, tensor, bytes, error));
    return check_bounds(p, *leaf, tensor, error);
}

/* A leaf that the plan did not count is held against the cap; copies that no run needs now make way for it. */
static qn_status check_leaf(qn_plan *p, const qn_plan_leaf *l, qn_error *error) {
    if (!p->memory_cap || qn_plan_leaf_costs(p, l)) return QN_OK;
    uint64_t others = qn_plan_sum(qn_plan_host_bytes(p, p->current), arena_excess(p));
    uint64_t all = qn_plan_sum(others, qn_plan_padded(l->capacity));
    if (all > p->memory_cap)
        return qn_error_set(error, QN_NO_MEMORY,
                            "'%s': a copy of its %llu bytes, beside the plan's %llu, is beyond the cap of %llu", l->name,
                            (unsigned long long)l->capacity, (unsigned long long)others, (unsigned long long)p->memory_cap);
    qn_plan_packs_release(p, p->memory_cap - all - qn_device_memory_make_way(p, p->memory_cap - all));
    return QN_OK;
}

static qn_status need_leaf(qn_plan *p, qn_plan_leaf *l, qn_error *error) {
    if (l->memory) return QN_OK;
    QN_TRY(check_leaf(p, l, error));
    QN_TRY(allocate(&l->memory, l->capacity, l->name, error));
    p->memory_ready = 0;
    return QN_OK;
}

qn_status qn_plan_input_room(qn_plan *p, const char *name, void **at, qn_error *error) {
    qn_plan_leaf *l = qn_plan_leaf_find(p, name);
    if (!l || l->kind != QN_VALUE_INPUT) return qn_error_set(error, QN_INVALID, "the graph has no input '%s'", name);
    QN_TRY(need_leaf(p, l, error));
    *at = l->memory;
    return QN_OK;
}

static qn_status find_param(const qn_plan *p, const char *name, qn_plan_leaf **leaf, qn_error *error) {
    *leaf = qn_plan_leaf_find(p, name);
    if (*leaf && (*leaf)->kind == QN_VALUE_PARAM && (*leaf)->is_set && (*leaf)->memory && !(*leaf)->lent) return QN_OK;
    return qn_error_set(error, QN_INVALID, "the graph has no param '%s' that was set", name);
}

qn_status qn_plan_param_read(qn_plan *p, const char *name, uint64_t offset, void *to, uint64_t bytes, qn_error *error) {
    qn_plan_leaf *l;
    QN_TRY(find_param(p, name, &l, error));
    if (offset > l->capacity || bytes > l->capacity - offset)
        return qn_error_set(error, QN_INVALID, "'%s' has %llu bytes", name, (unsigned long long)l->capacity);
    if (!(l->newest & QN_ON_HOST)) return qn_device_download(p->device_buffer, l->device_at + offset, to, bytes, error);
    if (bytes) memcpy(to, (const char *)l->memory + offset, bytes);
    return QN_OK;
}

qn_status qn_plan_param_room(qn_plan *p, const char *name, void **at, qn_error *error) {
    qn_plan_leaf *l;
    QN_TRY(find_param(p, name, &l, error));
    QN_TRY(qn_device_memory_home(p, l, error));
    *at = l->memory;
    return QN_OK;
}

void qn_plan_param_written(qn_plan *p, const char *name) {
    qn_plan_leaf *l = qn_plan_leaf_find(p, name);
    if (!l) return;
    l->newest = QN_ON_HOST;
    qn_plan_packs_forget(p, l);
    p->memory_ready = 0;
}

qn_status qn_plan_set(qn_plan *p, const char *name, const qn_tensor *tensor, qn_error *error) {
    qn_plan_leaf *l = NULL;
    uint64_t bytes;
    QN_TRY(find_for_set(p, name, tensor, &l, &bytes, error));
    QN_TRY(need_leaf(p, l, error));
    if (l->lent || !l->is_set)
        for (int i = 0; i < QN_PLAN_SPECIALS; i++)
            if (p->specials[i]) p->specials[i]->pointed = 0, p->memory_ready = 0;
    l->lent = NULL;
    if (tensor->data == l->memory && !tensor->offset) bytes = 0; /* written there by the caller */
    if (bytes && tensor->data) memmove(l->memory, (const char *)tensor->data + tensor->offset, bytes);
    else if (bytes) qn_memory_zero(l->memory, bytes);
    note_set(p, l, tensor);
    return QN_OK;
}

qn_status qn_plan_lend(qn_plan *p, const char *name, const qn_tensor *tensor, qn_error *error) {
    qn_plan_leaf *l = NULL;
    uint64_t bytes;
    QN_TRY(find_for_set(p, name, tensor, &l, &bytes, error));
    const qn_dtype_info *dtype = qn_dtype_describe((qn_dtype)tensor->dtype);
    uintptr_t at = (uintptr_t)tensor->data + (uintptr_t)tensor->offset;
    if (bytes && !tensor->data) return qn_error_set(error, QN_ARGUMENT, "'%s': there is nothing to lend", name);
    if (l->kind != QN_VALUE_PARAM || l->is_updated)
        return qn_error_set(error, QN_INVALID, "'%s': only a param that no node updates can be lent", name);
    if (dtype->block == 1 && at % (uintptr_t)dtype->bytes)
        return qn_error_set(error, QN_INVALID, "'%s': its elements are not aligned", name);
    l->lent = (char *)tensor->data + tensor->offset;
    l->mapped = (tensor->flags & QN_TENSOR_MAPPED) != 0;
    for (int i = 0; i < QN_PLAN_SPECIALS; i++)
        if (p->specials[i]) p->specials[i]->pointed = 0;
    note_set(p, l, tensor);
    return QN_OK;
}

/* ---- Out */

static qn_status find_output(const qn_plan *p, const char *name, qn_val *value, qn_error *error) {
    if (!p) return qn_error_set(error, QN_ARGUMENT, "a plan is needed");
    *value = qn_plan_output_find(p, name);
    if (*value == QN_VAL_NONE) return qn_error_set(error, QN_INVALID, "the graph has no output '%s'", name ? name : "");
    return QN_OK;
}

static int is_kept(const qn_plan *p, const char *name) {
    for (size_t i = 0; i < p->kept.n; i++)
        if (strcmp(p->kept.at[i], name) == 0) return 1;
    return 0;
}

/* Or a run failed before it had memory for the extents it came with, and what there was before it is gone. */
static qn_status not_run(const char *output, qn_error *error) {
    return qn_error_set(error, QN_INVALID, "output '%s': the plan has not run yet with these extents", output);
}

qn_status qn_plan_output(const qn_plan *p, const char *name, qn_tensor *tensor, qn_error *error) {
    qn_val v;
    if (!tensor) return qn_error_set(error, QN_ARGUMENT, "a plan and room for a tensor are needed");
    QN_TRY(find_output(p, name, &v, error));
    if (!p->is_shown) return not_run(name, error);
    if (p->device && is_kept(p, name))
        return qn_error_set(error, QN_INVALID, "output '%s' is kept on the device: qn_plan_read fetches it", name);
    *tensor = p->current->schedule->tensors[v];
    return QN_OK;
}

qn_status qn_plan_keep(qn_plan *p, const char *output, qn_error *error) {
    qn_val v;
    QN_TRY(find_output(p, output, &v, error));
    const qn_ir_name *name = qn_ir_name_find(p->graph, output);
    if (is_kept(p, output)) return QN_OK;
    if (!QN_VEC_ROOM(&p->arena, &p->kept, 1)) return qn_error_set(error, QN_NO_MEMORY, "no memory to keep an output");
    p->kept.at[p->kept.n++] = qn_ir_string(p->graph, name->text);
    qn_segments_forget(p);
    (void)qn_segments_measure(p, p->current, NULL); /* for whoever asks what it takes now; a run looks again */
    p->memory_ready = 0;
    return QN_OK;
}

qn_status qn_plan_read(qn_plan *p, const char *output, uint64_t offset, void *to, uint64_t bytes, qn_error *error) {
    qn_val v;
    QN_TRY(find_output(p, output, &v, error));
    if (!to && bytes) return qn_error_set(error, QN_ARGUMENT, "output '%s': there is nowhere to read it to", output);
    const qn_special *x = p->current;
    const qn_tensor *t = &x->schedule->tensors[v];
    uint64_t whole = 0;
    qn_tensor_bytes((qn_dtype)t->dtype, t->rank, t->shape, &whole);
    if (!p->is_shown) return not_run(output, error);
    if (!qn_tensor_is_contiguous(t)) return qn_error_set(error, QN_INVALID, "output '%s' is not dense", output);
    if (offset > whole || bytes > whole - offset)
        return qn_error_set(error, QN_INVALID, "output '%s' has %llu bytes, not %llu from %llu on", output,
                            (unsigned long long)whole, (unsigned long long)bytes, (unsigned long long)offset);
    if (qn_device_memory_holds(p, v))
        return qn_device_download(p->device_buffer, x->device.offset[v] + (uint64_t)t->offset + offset, to, bytes, error);
    if (bytes) memcpy(to, (const char *)t->data + t->offset + offset, bytes);
    return QN_OK;
}
