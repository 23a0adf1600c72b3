/* Sections 12 and 13: utilisation, estimated SM efficiency and occupancy per device, and the share of tensor cores. */
#include <string.h>

#include "prof/prof_passes.h"
#include "prof/prof_sort.h"
#include "prof/prof_text.h"

enum { REFERENCE_DEVICES = 64 }; /* the reference keeps its figures in lists of that length */

typedef struct work {          /* of one device, while it is gathered */
    prof_ranges busy;          /* merged */
    QN_VEC(uint32_t) weighted; /* device nodes with blocks per SM, in event order, which is that of their starts */
    prof_num occupancy_sum, occupancy_time;
    prof_num tc_time, kernel_time;
} work;

typedef struct metrics {
    prof_trace *trace;
    prof_map index; /* device id to work */
    QN_VEC(work) works;
    prof_num first, last; /* start of the first step, end of the last */
} metrics;

/* ---- Gathering ---------------------------------------------------------------------------------------------------- */

static work *work_of(metrics *m, prof_val device) {
    uint32_t *index = qn_prof_map_put(&m->index, device, PROF_NIL);
    if (!index || !QN_VEC_ROOM(&m->trace->arena, &m->works, 1)) {
        return NULL;
    }
    if (*index == PROF_NIL) {
        *index = (uint32_t)m->works.n;
        memset(&m->works.at[m->works.n], 0, sizeof m->works.at[0]);
        m->works.at[m->works.n++].occupancy_sum = prof_int(0);
    }
    return &m->works.at[*index];
}

static void add_occupancy(const metrics *m, work *w, const prof_dev *dev, prof_num value) {
    prof_num start = prof_max(dev->start, m->first), end = prof_min(dev->end, m->last);
    if (!prof_lt(start, end)) {
        return;
    }
    prof_num length = prof_sub(end, start);
    w->occupancy_sum = prof_add(w->occupancy_sum, prof_mul(value, length));
    w->occupancy_time = prof_add(w->occupancy_time, length);
}

static qn_status gather_kernels(metrics *m) {
    prof_trace *trace = m->trace;
    for (size_t i = 0; i < trace->devs.n; i++) {
        const prof_dev *dev = &trace->devs.at[i];
        if (dev->kind != PROF_KIND_KERNEL || trace->kernels.at[dev->args].device.tag == PROF_ABSENT) {
            continue;
        }
        const prof_kernel_args *args = &trace->kernels.at[dev->args];
        work *w = work_of(m, args->device);
        if (!w || qn_prof_range_merge(&trace->arena, &w->busy, dev->start, dev->end) != QN_OK) {
            return QN_NO_MEMORY;
        }
        if (prof_is_num(args->blocks_per_sm) && prof_gt(args->blocks_per_sm, prof_int(0))) {
            trace->has_blocks = 1;
            if (!QN_VEC_ROOM(&trace->arena, &w->weighted, 1)) {
                return QN_NO_MEMORY;
            }
            w->weighted.at[w->weighted.n++] = (uint32_t)i;
        }
        if (prof_is_num(args->occupancy) && prof_ge(args->occupancy, prof_int(0))) {
            trace->has_occupancy = 1;
            add_occupancy(m, w, dev, args->occupancy);
        }
    }
    return QN_OK;
}

/* ---- Figures ------------------------------------------------------------------------------------------------------ */

typedef struct weighted {
    const prof_trace *trace;
    const uint32_t *devs;
} weighted;

static const prof_dev *dev_of(const weighted *w, size_t i) { return &w->trace->devs.at[w->devs[i]]; }

static prof_num end_of(const void *context, size_t i) { return dev_of(context, i)->end; }

/* Blocks of kernels running at the same time add up, to at most one full SM. Residues of adding and subtracting stay. Starts and
 * ends are met in order of time, starts before ends where both are at once. */
static qn_status add_up(prof_trace *trace, const weighted *w, size_t n, const uint32_t *by_end, prof_pieces *pieces) {
    prof_num last = prof_absent(), value = prof_int(0);
    for (size_t start = 0, end = 0; start < n || end < n;) {
        int is_end = start == n || (end < n && prof_lt(dev_of(w, by_end[end])->end, dev_of(w, start)->start));
        const prof_dev *dev = is_end ? dev_of(w, by_end[end]) : dev_of(w, start);
        prof_num time = is_end ? dev->end : dev->start, change = trace->kernels.at[dev->args].blocks_per_sm;
        if (start + end && prof_gt(time, last) && prof_gt(value, prof_int(0))) {
            prof_piece piece = {last, time, prof_min(value, prof_dbl(1.0))};
            if (!QN_VEC_ROOM(&trace->arena, pieces, 1)) {
                return QN_NO_MEMORY;
            }
            pieces->at[pieces->n++] = piece;
        }
        value = start + end == 0 ? change : is_end ? prof_sub(value, change) : prof_add(value, change);
        last = time;
        start += (size_t)!is_end;
        end += (size_t)is_end;
    }
    return QN_OK;
}

static qn_status sweep(prof_trace *trace, const work *w, prof_pieces *pieces) {
    const weighted all = {trace, w->weighted.at};
    size_t n = w->weighted.n;
    uint32_t *by_end = qn_arena_resize(&trace->arena, NULL, n, sizeof *by_end);
    int sorted;
    if (!by_end || qn_prof_order(&trace->arena, n, end_of, &all, by_end, &sorted) != QN_OK) {
        return QN_NO_MEMORY;
    }
    for (size_t i = 0; sorted && i < n; i++) {
        by_end[i] = (uint32_t)i;
    }
    qn_status status = add_up(trace, &all, n, by_end, pieces);
    qn_arena_release(&trace->arena, by_end);
    return status;
}

static qn_status measure(metrics *m, work *w, prof_device *device) {
    prof_trace *trace = m->trace;
    prof_num range = prof_sub(m->last, m->first);
    int empty = prof_is_zero(range);
    prof_pieces inside = {NULL, 0, 0};
    device->busy = w->busy;
    if (sweep(trace, w, &device->efficiency_pieces) != QN_OK ||
        qn_prof_pieces_clip(&trace->arena, &device->efficiency_pieces, m->first, m->last, &inside) != QN_OK) {
        return QN_NO_MEMORY;
    }
    device->utilisation = empty ? 0.0 : prof_div(qn_prof_ranges_sum_in(m->first, m->last, &device->busy), range);
    prof_num sum = prof_int(0);
    for (size_t i = 0; i < inside.n; i++) {
        prof_num length = prof_sub(inside.at[i].end, inside.at[i].start);
        sum = prof_add(sum, prof_mul(inside.at[i].value, length));
    }
    device->efficiency = inside.n ? prof_dbl(empty ? 0.0 : prof_div(sum, range)) : prof_absent();
    int timed = !prof_is_zero(w->occupancy_time);
    device->occupancy = timed ? prof_dbl(prof_div(w->occupancy_sum, w->occupancy_time)) : prof_absent();
    QN_VEC_FREE(&trace->arena, &inside);
    QN_VEC_FREE(&trace->arena, &w->weighted);
    return QN_OK;
}

typedef struct numbered {
    prof_val id;
    uint32_t work;
} numbered;

static int id_before(const void *a, const void *b, const void *unused) {
    (void)unused;
    return prof_lt(((const numbered *)a)->id, ((const numbered *)b)->id);
}

static uint32_t prop_of(const prof_trace *trace, prof_val id) {
    return id.tag == PROF_INT && id.i >= 0 && (uint64_t)id.i < trace->props.n ? (uint32_t)id.i : PROF_NIL;
}

static qn_status list_devices(metrics *m, qn_error *error) {
    prof_trace *trace = m->trace;
    size_t n = m->works.n;
    numbered *order = qn_arena_resize(&trace->arena, NULL, n, sizeof *order);
    if (!order || !QN_VEC_ROOM(&trace->arena, &trace->devices, n)) {
        return QN_NO_MEMORY;
    }
    for (size_t i = 0; i < n; i++) {
        order[i].id = m->index.entries.at[i].key;
        order[i].work = m->index.entries.at[i].value;
    }
    if (qn_prof_sort(&trace->arena, order, n, sizeof *order, id_before, NULL) != QN_OK) {
        return QN_NO_MEMORY;
    }
    for (size_t i = 0; i < n; i++) {
        prof_device device;
        memset(&device, 0, sizeof device);
        device.id = order[i].id;
        device.prop = prop_of(trace, device.id);
        if ((trace->options.flags & QN_PROFILE_STRICT) && !prof_lt(device.id, prof_int(REFERENCE_DEVICES))) {
            return qn_error_set(error, QN_FORMAT, "a device id of 64 or more, which the reference has no room for");
        }
        if (measure(m, &m->works.at[order[i].work], &device) != QN_OK) {
            return QN_NO_MEMORY;
        }
        trace->devices.at[trace->devices.n++] = device;
    }
    qn_arena_release(&trace->arena, order);
    return QN_OK;
}

/* ---- Tensor cores ------------------------------------------------------------------------------------------------- */

typedef struct shares {
    prof_num bottom, proper; /* kernel time under bottom eligible nodes, and under operators proper */
    int has_kernel;          /* some operator proper launches one */
} shares;

static prof_num self_kernel_time(metrics *m, const prof_node *node, int per_device, shares *s) {
    prof_trace *trace = m->trace;
    prof_num sum = prof_int(0);
    prof_launched at = {0, 0};
    for (const prof_dev *dev; (dev = prof_node_next_kernel(trace, node, &at)) != NULL;) {
        prof_num length = prof_sub(dev->end, dev->start);
        sum = prof_add(sum, length);
        const uint32_t *index = per_device ? qn_prof_map_find(&m->index, trace->kernels.at[dev->args].device) : NULL;
        s->has_kernel |= per_device;
        if (index) {
            work *w = &m->works.at[*index];
            w->kernel_time = prof_add(w->kernel_time, length);
            w->tc_time = dev->uses_tc ? prof_add(w->tc_time, length) : w->tc_time;
        }
    }
    return sum;
}

/* Post-order gives children first, so "an eligible node lies below" is known when a node is reached. */
static qn_status sum_shares(metrics *m, shares *s) {
    prof_trace *trace = m->trace;
    uint8_t *below = qn_arena_resize(&trace->arena, NULL, trace->nodes.n, 1);
    if (!below) {
        return QN_NO_MEMORY;
    }
    for (size_t i = 0; i < trace->postorder.n; i++) {
        uint32_t id = trace->postorder.at[i];
        const prof_node *node = &trace->nodes.at[id];
        below[id] = 0;
        for (uint32_t kid = 0; kid < node->kid_count; kid++) {
            uint32_t k = trace->kids.at[node->kid_begin + kid];
            below[id] |= below[k] | trace->nodes.at[k].eligible;
        }
        if (node->proper) {
            s->proper = prof_add(s->proper, self_kernel_time(m, node, 1, s));
        }
        if (node->eligible && !below[id]) {
            s->bottom = prof_add(s->bottom, self_kernel_time(m, node, 0, s));
        }
    }
    qn_arena_release(&trace->arena, below);
    return QN_OK;
}

static qn_status tensor_cores(metrics *m) {
    prof_trace *trace = m->trace;
    shares s = {prof_int(0), prof_int(0), 0};
    qn_status status = sum_shares(m, &s);
    if (status != QN_OK) {
        return status;
    }
    trace->tc_eligible_share = prof_gt(s.proper, prof_int(0)) ? prof_div(s.bottom, s.proper) : 0.0;
    for (size_t i = 0; s.has_kernel && i < trace->devices.n; i++) {
        const work *w = &m->works.at[*qn_prof_map_find(&m->index, trace->devices.at[i].id)];
        int some = prof_gt(w->kernel_time, prof_int(0));
        trace->devices.at[i].tc_ratio = prof_dbl(some ? prof_div(w->tc_time, w->kernel_time) : 0.0);
    }
    return QN_OK;
}

qn_status qn_prof_devices(prof_trace *trace, qn_error *error) {
    metrics m;
    memset(&m, 0, sizeof m);
    m.trace = trace;
    m.first = trace->steps.at[0].start;
    m.last = trace->steps.at[trace->steps.n - 1].end;
    qn_prof_map_init(&m.index, &trace->arena);
    qn_status status = gather_kernels(&m);
    status = status == QN_OK ? list_devices(&m, error) : status;
    status = status == QN_OK ? tensor_cores(&m) : status;
    qn_prof_map_free(&m.index);
    QN_VEC_FREE(&trace->arena, &m.works);
    return status;
}
