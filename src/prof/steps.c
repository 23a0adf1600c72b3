/* Section 8: what the time of each event is counted as, which steps there are, and how far device work stretches them. */
#include <string.h>

#include "prof/prof_passes.h"
#include "prof/prof_sort.h"
#include "prof/prof_text.h"

typedef struct spans {
    prof_num host_start, host_end, all_start, all_end; /* absent until something is seen */
} spans;

typedef struct gather {
    prof_trace *trace;
    prof_map colls; /* external id to collective record */
    spans spans;
    int has_window;
} gather;

static void stretch(prof_num *start, prof_num *end, prof_num from, prof_num to) {
    *start = start->tag == PROF_ABSENT ? from : prof_min(*start, from);
    *end = end->tag == PROF_ABSENT ? to : prof_max(*end, to);
}

/* The role an event counts as, or -1. */
static int role_of(const gather *g, const prof_event *event) {
    const prof_trace *trace = g->trace;
    int upstream = trace->dialect == QN_PROFILE_UPSTREAM;
    int collective = (event->name_flags & PROF_NAME_COLLECTIVE) != 0;
    switch (event->kind) {
    case PROF_KIND_KERNEL:
        if ((trace->options.flags & QN_PROFILE_COMM_NAMES) && (event->name_flags & PROF_NAME_COMM_KERNEL)) {
            return PROF_ROLE_COMMUNICATION;
        }
        return qn_prof_map_find(&g->colls, prof_event_external(event)) ? PROF_ROLE_COMMUNICATION : PROF_ROLE_KERNEL;
    case PROF_KIND_MEMCPY:
        return !upstream && qn_prof_map_find(&g->colls, prof_event_external(event)) ? PROF_ROLE_COMMUNICATION : PROF_ROLE_MEMCPY;
    case PROF_KIND_MEMSET: return PROF_ROLE_MEMSET;
    case PROF_KIND_RUNTIME: return PROF_ROLE_RUNTIME;
    case PROF_KIND_OPERATOR:
    case PROF_KIND_ANNOTATION:
        if (event->name_flags & PROF_NAME_LOADER) {
            return PROF_ROLE_DATALOADER;
        }
        return collective ? PROF_ROLE_COMMUNICATION : PROF_ROLE_CPU;
    case PROF_KIND_PYTHON: return collective ? PROF_ROLE_COMMUNICATION : PROF_ROLE_CPU;
    default: return -1;
    }
}

/* "ProfilerStep#007#x" is step 7. The number was checked when the event was classified. */
static uint32_t step_name(prof_trace *trace, uint32_t name) {
    const prof_str *text = prof_string(trace, name);
    uint32_t length = 13;
    while (length < text->length && text->at[length] != '#') {
        length++;
    }
    prof_val written = {{qn_prof_intern(&trace->text, text->at + 13, length - 13)}, PROF_STR};
    if (written.i == PROF_NIL) {
        return PROF_NIL;
    }
    return qn_prof_value_text(&trace->text, qn_prof_thread_key(trace, written));
}

static qn_status add_step(prof_trace *trace, uint32_t name, prof_num start, prof_num end) {
    if (name == PROF_NIL || !QN_VEC_ROOM(&trace->arena, &trace->steps, 1)) {
        return QN_NO_MEMORY;
    }
    prof_step step;
    memset(&step, 0, sizeof step);
    step.name = name;
    step.start = step.host_start = start;
    step.end = step.host_end = end;
    trace->steps.at[trace->steps.n++] = step;
    return QN_OK;
}

static qn_status gather_event(gather *g, const prof_event *event) {
    prof_trace *trace = g->trace;
    prof_num start = prof_event_ts(event), end = prof_event_end(event);
    int kind = event->kind, role = role_of(g, event);
    qn_status status = QN_OK;
    if (role >= 0) {
        status = qn_prof_range_merge(&trace->arena, &trace->roles[role], start, end); /* events are in order of time */
    } else if (kind == PROF_KIND_STEP) {
        status = add_step(trace, step_name(trace, event->name), start, end);
    } else if (kind == PROF_KIND_TRACE && qn_prof_is(prof_string(trace, event->name), "PyTorch Profiler (0)")) {
        trace->window_start = start;
        trace->window_end = end;
        g->has_window = 1;
    }
    int annotation = kind == PROF_KIND_ANNOTATION && trace->dialect != QN_PROFILE_UPSTREAM;
    if (kind == PROF_KIND_PYTHON || kind == PROF_KIND_OPERATOR || kind == PROF_KIND_STEP || annotation) {
        stretch(&g->spans.host_start, &g->spans.host_end, start, end);
    }
    stretch(&g->spans.all_start, &g->spans.all_end, start, end);
    return status;
}

static qn_status whole_step(gather *g) {
    prof_trace *trace = g->trace;
    spans *s = &g->spans;
    prof_num start = s->host_start, end = s->host_end;
    if (start.tag == PROF_ABSENT && (trace->options.flags & QN_PROFILE_STRICT)) {
        start = prof_int(INT64_MAX); /* where the reference begins its search for the least and the greatest */
        end = prof_int(INT64_MIN);
    } else if (start.tag == PROF_ABSENT) { /* no host event at all */
        start = s->all_start.tag == PROF_ABSENT ? prof_int(0) : s->all_start;
        end = s->all_end.tag == PROF_ABSENT ? prof_int(0) : s->all_end;
    }
    return add_step(trace, qn_prof_intern_c(&trace->text, "0"), start, end);
}

static qn_status gather_all(gather *g) {
    prof_trace *trace = g->trace;
    for (size_t i = 0; i < trace->colls.n; i++) {
        if (!qn_prof_map_put(&g->colls, trace->colls.at[i].external, (uint32_t)i)) {
            return QN_NO_MEMORY;
        }
    }
    for (size_t i = 0; i < trace->events.n; i++) {
        qn_status status = gather_event(g, &trace->events.at[i]);
        if (status != QN_OK) {
            return status;
        }
    }
    trace->global_start = g->spans.all_start;
    trace->global_end = g->spans.all_end;
    if (!g->has_window) {
        trace->window_start = g->spans.all_start;
        trace->window_end = g->spans.all_end;
    }
    return trace->steps.n ? QN_OK : whole_step(g);
}

/* ---- Extension by device work ------------------------------------------------------------------------------------- */

typedef struct device_side { /* of one step */
    prof_num first, last;    /* earliest start and latest end; absent without device work */
} device_side;

static int rt_starts_before(const void *a, const void *b, const void *context) {
    const prof_rt *rts = context;
    return prof_lt(rts[*(const uint32_t *)a].start, rts[*(const uint32_t *)b].start);
}

/* Device nodes of the runtime calls that lie inside each step, by one walk over both. */
static void match_steps(prof_trace *trace, const uint32_t *rts, size_t n, device_side *sides, uint8_t *matched) {
    size_t at = 0;
    for (size_t step = 0; step < trace->steps.n && at < n;) {
        prof_step *s = &trace->steps.at[step];
        const prof_rt *rt = &trace->rts.at[rts[at]];
        if (prof_lt(rt->start, s->start)) {
            at++;
        } else if (prof_le(rt->end, s->end)) {
            for (uint32_t i = 0; i < rt->dev_count; i++) {
                uint32_t dev = trace->rt_devs.at[rt->dev_begin + i];
                stretch(&sides[step].first, &sides[step].last, trace->devs.at[dev].start, trace->devs.at[dev].end);
                matched[dev] = 1;
                s->devs++;
            }
            at++;
        } else if (prof_lt(rt->start, s->end)) {
            at++;
        } else {
            step++;
        }
    }
}

static void extend_steps(prof_trace *trace, const device_side *sides, const uint8_t *matched) {
    prof_num before = trace->steps.at[0].start;
    for (size_t dev = 0; sides[0].first.tag != PROF_ABSENT && dev < trace->devs.n; dev++) {
        if (!matched[dev] && prof_lt(trace->devs.at[dev].end, sides[0].first)) {
            before = prof_max(before, trace->devs.at[dev].end);
        }
    }
    for (size_t i = 0; i < trace->steps.n; i++) {
        prof_step *step = &trace->steps.at[i];
        step->start = prof_max(before, step->start);
        if (sides[i].last.tag != PROF_ABSENT) {
            step->end = prof_max(step->end, sides[i].last);
        }
        if (prof_lt(step->end, step->start)) {
            step->end = step->start;
        }
        before = step->end;
    }
}

/* A last step whose device work was cut off by the end of the recording is not shown. */
static void drop_tail(prof_trace *trace) {
    size_t k = trace->steps.n - 1;
    while (k > 0 && trace->steps.at[k].devs == 0) {
        k--;
    }
    int cut = k > 0 && 0.8 * trace->steps.at[k - 1].devs > trace->steps.at[k].devs;
    trace->steps.n = cut ? k : k + 1;
}

static qn_status consider_devices(prof_trace *trace) {
    qn_arena *arena = &trace->arena;
    size_t n = 0, any = 0;
    uint32_t *rts = qn_arena_resize(arena, NULL, trace->rts.n, sizeof *rts);
    device_side *sides = qn_arena_resize(arena, NULL, trace->steps.n, sizeof *sides);
    uint8_t *matched = qn_arena_resize(arena, NULL, trace->devs.n, 1);
    if (!rts || !sides || !matched) {
        return QN_NO_MEMORY;
    }
    memset(sides, 0, trace->steps.n * sizeof *sides);
    memset(matched, 0, trace->devs.n);
    for (uint32_t rt = 0; rt < trace->rts.n; rt++) {
        if (trace->rts.at[rt].event != PROF_NIL) {
            rts[n++] = rt;
        }
    }
    qn_status status = qn_prof_sort(arena, rts, n, sizeof *rts, rt_starts_before, trace->rts.at);
    if (status == QN_OK) {
        match_steps(trace, rts, n, sides, matched);
        for (size_t i = 0; i < trace->steps.n; i++) {
            any += trace->steps.at[i].devs;
        }
        if (any) {
            extend_steps(trace, sides, matched);
            drop_tail(trace);
        }
    }
    qn_arena_release(arena, rts);
    qn_arena_release(arena, sides);
    qn_arena_release(arena, matched);
    return status;
}

/* ---- The trace's flags -------------------------------------------------------------------------------------------- */

static qn_status decide_device(prof_trace *trace, qn_error *error) {
    int mlu = trace->dialect == QN_PROFILE_MLU_A;
    if (trace->dialect == QN_PROFILE_MLU_B) {
        if (!trace->has_props && trace->has_kernel && (trace->options.flags & QN_PROFILE_STRICT)) {
            return qn_error_set(error, QN_FORMAT, "kernels but no deviceProperties, which mlu_b cannot take");
        }
        mlu = trace->has_props && trace->props.n == 0;
    }
    trace->device_word = mlu ? "MLU" : "GPU";
    trace->is_gpu = !mlu;
    return QN_OK;
}

qn_status qn_prof_steps(prof_trace *trace, qn_error *error) {
    gather g;
    memset(&g, 0, sizeof g);
    g.trace = trace;
    qn_prof_map_init(&g.colls, &trace->arena);
    qn_status status = gather_all(&g);
    qn_prof_map_free(&g.colls);
    if (status != QN_OK) {
        return status;
    }
    if (trace->libs & (trace->libs - 1)) { /* more than one library: the records mean nothing, the roles stay */
        trace->colls.n = 0;
    }
    trace->has_runtime = trace->roles[PROF_ROLE_RUNTIME].n != 0;
    trace->has_kernel = trace->roles[PROF_ROLE_KERNEL].n != 0;
    trace->has_communication = trace->roles[PROF_ROLE_COMMUNICATION].n != 0;
    trace->has_memcpy_or_memset = trace->roles[PROF_ROLE_MEMCPY].n != 0 || trace->roles[PROF_ROLE_MEMSET].n != 0;
    trace->show_device = trace->has_runtime || trace->has_kernel || trace->has_memcpy_or_memset;
    trace->sort_by_device = trace->has_kernel || trace->has_memcpy_or_memset;
    status = decide_device(trace, error);
    return status == QN_OK ? consider_devices(trace) : status;
}
