/* What a plan says of itself. */
#include <stdio.h>

#include "plan/bodies.h"
#include "run/plan_impl.h"

const qn_graph *qn_plan_graph(const qn_plan *p) { return p ? p->current->schedule->graph : NULL; }

/* What lies in memory now, of whichever specialisation. */
static uint64_t held_bytes(const qn_plan *p) {
    uint64_t total = qn_plan_sum(qn_plan_sum(p->memory_bytes, qn_plan_packs_bytes(p, 0)), qn_device_memory_held(p).host);
    for (size_t i = 0; i < p->leaves.n; i++)
        if (p->leaves.at[i].memory) total = qn_plan_sum(total, qn_plan_padded(p->leaves.at[i].capacity));
    return total;
}

qn_status qn_plan_describe(const qn_plan *p, qn_plan_totals *totals) {
    if (!p || !totals || totals->size != sizeof *totals) return QN_ARGUMENT;
    *totals = p->current->schedule->totals;
    totals->size = sizeof *totals;
    qn_plan_count(p, p->current, totals);
    totals->held_bytes = held_bytes(p);
    totals->device_held_bytes = qn_device_memory_held(p).device;
    return QN_OK;
}

qn_status qn_plan_value_describe(const qn_plan *p, qn_val value, qn_plan_value *info) {
    if (!p || !info || info->size != sizeof *info || value < 0) return QN_ARGUMENT;
    const qn_schedule *x = p->current->schedule;
    if ((size_t)value >= x->graph->values.n) return QN_ARGUMENT;
    const qn_plan_slot *s = &x->slots[value], *root = &x->slots[s->root];
    info->storage = s->storage;
    info->root = s->root;
    info->offset = root->offset + (uint64_t)x->tensors[value].offset;
    info->bytes = s->bytes;
    info->born = root->born;
    info->dies = root->dies;
    return QN_OK;
}

/* The schedule a step belongs to: this one, or that of a body; *step becomes its number there. */
static const qn_schedule *find_step(const qn_schedule *x, int32_t *step) {
    if (*step < (int32_t)x->steps.n) return x;
    *step -= (int32_t)x->steps.n;
    for (size_t i = 0; i < x->steps.n; i++) {
        const qn_plan_control *c = x->steps.at[i].control;
        for (int k = 0; c && k < c->n_bodies; k++) {
            const qn_schedule *body = c->body[k].schedule;
            if (*step < body->totals.n_steps) return find_step(body, step);
            *step -= body->totals.n_steps;
        }
    }
    return NULL;
}

qn_status qn_plan_step_describe(const qn_plan *p, int32_t step, qn_plan_step_info *info) {
    if (!p || !info || info->size != sizeof *info || step < 0) return QN_ARGUMENT;
    const qn_schedule *x = find_step(p->current->schedule, &step);
    if (!x) return QN_ARGUMENT;
    const qn_plan_step *s = &x->steps.at[step];
    info->graph = x->graph;
    info->node = s->node;
    info->place = s->on_device ? "device" : "cpu";
    info->how = s->control ? "bodies" : s->on_device || s->cpu.run ? "native" : "reference";
    info->kernel = s->cpu.run && !s->on_device ? s->cpu.name : qn_op_describe(s->call.op)->name;
    info->level = s->cpu.run && !s->on_device ? qn_cpu_level_name(s->cpu.level) : "";
    info->reason = s->reason >= 0 ? x->reasons.at[s->reason] : "";
    info->flops = s->flops;
    info->bytes = s->bytes;
    info->runs = s->runs;
    info->nanoseconds = s->nanoseconds;
    return QN_OK;
}
