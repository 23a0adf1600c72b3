/* What a device's part of a plan leaves in the ring. One submission carries many steps, whose work on the device lies one after
 * another. Where the driver can compare its clock with the host's, that is when it ran; elsewhere only how long is known, and it is
 * put in the middle of the stretch that the host saw go by: off by at most half of what the device did not fill. The host's share,
 * what went by before the device began, is split evenly among the steps, an op and a call for each. */
#include <stdio.h>

#include "quern/record.h"
#include "run/plan_impl.h"
#include "run/traced.h"

enum { SLICE_LEAST = 64 }; /* nanoseconds; readers that add times as doubles must still see gaps of an eighth of it */

static uint64_t whole(double ns) { return ns > 1 && ns < 1e18 ? (uint64_t)ns : 1; }

static void trace_step(qn_trace_ring *ring, const qn_plan_step *s, const char *name, uint64_t at, uint64_t slice, uint64_t start,
                       uint64_t end) {
    qn_trace_span span = {at, qn_trace_next_id(ring), ring->open_op};
    uint64_t call = qn_trace_next_id(ring);
    ring->open_op = span.id;
    qn_run_trace_runtime(ring, "submit", at + slice / 8, at + slice / 8 * 5, call);
    qn_run_trace_step_at(ring, &span, at + slice / 8 * 6, &s->call, s->flops, s->bytes);
    ring->open_op = span.around;
    qn_record_work work = {.size = sizeof work,
                           .kind = QN_DEVICE_KERNEL,
                           .name = name,
                           .start = start,
                           .end = end,
                           .correlation = call,
                           .op = span.id,
                           .flops = s->flops,
                           .bytes = s->bytes};
    qn_run_trace_work(ring, &work);
}

/* How long after `start` the device began. Clocks that disagree with what the host saw by more than they may are not believed. */
static uint64_t lead_of(const qn_segment *g, uint64_t start, uint64_t end) {
    uint64_t total = 0, began;
    qn_device_info info = {.size = sizeof info};
    for (int i = 0; i < g->program->n_steps; i++) total += whole(g->times[i]);
    qn_device_describe(g->program->device, &info);
    if (qn_program_began(g->program, &began) && began + info.clock_bound >= start && began + total <= end + info.clock_bound)
        return began > start ? began - start : 0;
    return end - start > total ? (end - start - total) / 2 : 0;
}

static void trace_steps(qn_trace_ring *ring, qn_special *special, const qn_segment *g, uint64_t start, uint64_t end) {
    const qn_schedule *x = special->schedule;
    qn_run_memory *memory = special->memory.schedule ? &special->memory : NULL;
    uint64_t n = (uint64_t)(g->end - g->first), lead = lead_of(g, start, end), slice = lead / n, device = start + lead;
    if (slice < SLICE_LEAST) slice = SLICE_LEAST;
    for (int32_t i = g->first; i < g->end; i++) {
        const qn_plan_step *s = &x->steps.at[i];
        const char *sub = qn_subop_name(s->call.op, s->call.subop);
        uint64_t at = start + slice * (uint64_t)(i - g->first), ns = whole(g->times[i - g->first]);
        uint32_t around = ring->label;
        char name[QN_TRACE_LABEL_MAX + 1];
        if (device < at) device = at;
        snprintf(name, sizeof name, "%s%s%s", qn_op_describe(s->call.op)->name, sub ? "." : "", sub ? sub : "");
        ring->label = qn_run_trace_label(ring, qn_ir_string(x->graph, x->graph->nodes.at[s->node].label));
        if (memory) qn_run_memory_births(ring, memory, s, at + slice / 16);
        trace_step(ring, s, name, at, slice, device, device + ns);
        if (memory) qn_run_memory_deaths(ring, memory, s, at + slice / 8 * 5 + slice / 16);
        ring->label = around;
        device += ns;
    }
    uint64_t submitted = start + slice * n;
    if (submitted < end) qn_run_trace_runtime(ring, "wait", submitted, end, qn_trace_next_id(ring));
}

qn_status qn_segment_seen(qn_special *x, qn_segment *g, qn_trace_ring *ring, uint64_t start, uint64_t end, qn_error *error) {
    if (!g->times) { /* its program was made before anyone asked for times, or the device has none */
        if (ring) qn_run_trace_runtime(ring, "submit and wait", start, end, qn_trace_next_id(ring));
        return QN_OK;
    }
    QN_TRY(qn_program_times(g->program, g->times, g->program->n_steps, error));
    for (int32_t i = g->first; i < g->end; i++) {
        x->schedule->steps.at[i].nanoseconds += whole(g->times[i - g->first]);
        x->schedule->steps.at[i].runs++;
    }
    if (ring) trace_steps(ring, x, g, start, end);
    return QN_OK;
}
