/* Section 15: kernels by name, in the order the reference's unstable sort gives them, and by name, operator and launch. */
#include <string.h>

#include "prof/prof_passes.h"
#include "prof/prof_sort.h"
#include "prof/prof_text.h"

/* ---- By name ------------------------------------------------------------------------------------------------------ */

typedef struct running { /* sums of one name, in event order */
    double sum, carry;   /* compensated, used when any duration is a double */
    prof_num blocks, occupancy;
} running;

typedef struct by_name {
    prof_trace *trace;
    int doubles; /* some duration is a double: then all sums are */
    prof_map index;
    QN_VEC(running) sums;
} by_name;

static prof_num weight(prof_val value, prof_num length) { return prof_is_num(value) ? prof_mul(value, length) : prof_int(0); }

static qn_status add_kernel(by_name *b, const prof_event *event) {
    prof_trace *trace = b->trace;
    prof_num length = prof_event_dur(event);
    if (b->doubles) {
        length = prof_dbl(prof_to_dbl(length));
    }
    uint32_t *index = qn_prof_map_put(&b->index, prof_int(event->name), (uint32_t)trace->kernel_groups.n);
    if (!index || !QN_VEC_ROOM(&trace->arena, &trace->kernel_groups, 1) || !QN_VEC_ROOM(&trace->arena, &b->sums, 1)) {
        return QN_NO_MEMORY;
    }
    if (*index == trace->kernel_groups.n) {
        prof_kernel_group fresh = {
            event->name, (event->name_flags & PROF_NAME_TC_KERNEL) != 0, 0, prof_int(0), length, length, 0.0, prof_int(0),
            prof_int(0)};
        running none = {0.0, 0.0, prof_int(0), prof_int(0)};
        trace->kernel_groups.at[trace->kernel_groups.n++] = fresh;
        b->sums.at[b->sums.n++] = none;
    }
    prof_kernel_group *group = &trace->kernel_groups.at[*index];
    running *run = &b->sums.at[*index];
    const prof_kernel_args *args = &trace->kernels.at[event->args];
    group->calls++;
    group->sum = prof_add(group->sum, length);
    group->max = prof_max(group->max, length);
    group->min = prof_min(group->min, length);
    double y = prof_to_dbl(length) - run->carry, t = run->sum + y;
    run->carry = t - run->sum - y;
    run->sum = t;
    run->blocks = prof_add(run->blocks, weight(args->blocks_per_sm, length));
    run->occupancy = prof_add(run->occupancy, weight(args->occupancy, length));
    return QN_OK;
}

static void finish_names(by_name *b) {
    prof_trace *trace = b->trace;
    int timed = 0; /* some name has a duration: then even names without one show 0.0 */
    for (size_t i = 0; i < trace->kernel_groups.n; i++) {
        prof_kernel_group *group = &trace->kernel_groups.at[i];
        if (b->doubles) {
            group->sum = prof_dbl(b->sums.at[i].sum);
        }
        group->mean = prof_div(group->sum, prof_int(group->calls));
        timed |= !prof_is_zero(group->sum);
    }
    for (size_t i = 0; i < trace->kernel_groups.n; i++) {
        prof_kernel_group *group = &trace->kernel_groups.at[i];
        int own = !prof_is_zero(group->sum);
        group->blocks = own ? prof_dbl(prof_div(b->sums.at[i].blocks, group->sum)) : timed ? prof_dbl(0.0) : prof_int(0);
        group->occupancy = own ? prof_dbl(prof_div(b->sums.at[i].occupancy, group->sum)) : timed ? prof_dbl(0.0) : prof_int(0);
    }
}

/* ---- The share of tensor cores ------------------------------------------------------------------------------------ */

/* Sums as the reference's array library does: eight running sums in blocks of at most 128, halves above that. The order of
 * additions decides the last digit when durations are doubles. */
static double pairwise(const double *v, size_t n) {
    double r[8], sum = 0.0;
    size_t i = 0;
    if (n > 128) { /* the halves are cut at a multiple of eight; depth is log2(n / 128) */
        size_t half = n / 2;
        half -= half % 8;
        return pairwise(v, half) + pairwise(v + half, n - half);
    }
    if (n >= 8) {
        memcpy(r, v, sizeof r);
        for (i = 8; i + 8 <= n; i += 8) {
            for (size_t j = 0; j < 8; j++) {
                r[j] += v[i + j];
            }
        }
        sum = ((r[0] + r[1]) + (r[2] + r[3])) + ((r[4] + r[5]) + (r[6] + r[7]));
    }
    for (; i < n; i++) {
        sum += v[i];
    }
    return sum;
}

/* In table order. Integers below 2^53 add exactly in any way. */
static qn_status share_tensor_cores(prof_trace *trace) {
    size_t n = trace->kernel_groups.n, n_tc = 0;
    double *all = qn_arena_resize(&trace->arena, NULL, n, 2 * sizeof *all);
    if (!all) {
        return QN_NO_MEMORY;
    }
    double *tc = all + n;
    for (size_t i = 0; i < n; i++) {
        all[i] = prof_to_dbl(trace->kernel_groups.at[i].sum);
        if (trace->kernel_groups.at[i].uses_tc) {
            tc[n_tc++] = all[i];
        }
    }
    double total = pairwise(all, n);
    trace->tc_kernel_share = total > 0 ? pairwise(tc, n_tc) / total : 0.0;
    qn_arena_release(&trace->arena, all);
    return QN_OK;
}

/* ---- The order of equal sums -------------------------------------------------------------------------------------- */

static int name_before(const void *a, const void *b, const void *context) {
    const prof_trace *trace = context;
    return qn_prof_str_cmp(prof_string(trace, ((const prof_kernel_group *)a)->name),
                           prof_string(trace, ((const prof_kernel_group *)b)->name)) < 0;
}

static void swap(prof_kernel_group *a, prof_kernel_group *b) {
    prof_kernel_group held = *a;
    *a = *b;
    *b = held;
}

static int less(const prof_kernel_group *a, const prof_kernel_group *b) { return prof_lt(a->sum, b->sum); }

/* Partitions [lo, hi] around the median of three; returns the pivot's place. */
static ptrdiff_t partition(prof_kernel_group *v, ptrdiff_t lo, ptrdiff_t hi) {
    ptrdiff_t m = lo + (hi - lo) / 2, i = lo, j = hi - 1;
    if (less(&v[m], &v[lo])) {
        swap(&v[m], &v[lo]);
    }
    if (less(&v[hi], &v[m])) {
        swap(&v[hi], &v[m]);
    }
    if (less(&v[m], &v[lo])) {
        swap(&v[m], &v[lo]);
    }
    prof_kernel_group pivot = v[m];
    swap(&v[m], &v[hi - 1]);
    for (;;) {
        do {
            i++;
        } while (i < hi && less(&v[i], &pivot));
        do {
            j--;
        } while (j > lo && less(&pivot, &v[j]));
        if (i >= j) {
            break;
        }
        swap(&v[i], &v[j]);
    }
    swap(&v[i], &v[hi - 1]);
    return i;
}

static void insertion(prof_kernel_group *v, ptrdiff_t lo, ptrdiff_t hi) {
    for (ptrdiff_t i = lo + 1; i <= hi; i++) {
        prof_kernel_group held = v[i];
        ptrdiff_t at = i;
        for (; at > lo && less(&held, &v[at - 1]); at--) {
            v[at] = v[at - 1];
        }
        v[at] = held;
    }
}

static void sift(prof_kernel_group *v, size_t at, size_t n) {
    prof_kernel_group held = v[at];
    for (size_t child; (child = 2 * at + 1) < n; at = child) {
        child += child + 1 < n && less(&v[child], &v[child + 1]);
        if (!less(&held, &v[child])) {
            break;
        }
        v[at] = v[child];
    }
    v[at] = held;
}

static void heapsort(prof_kernel_group *v, size_t n) {
    for (size_t i = n / 2; i-- > 0;) {
        sift(v, i, n);
    }
    while (n > 1) {
        swap(&v[0], &v[--n]);
        sift(v, 0, n);
    }
}

typedef struct range {
    ptrdiff_t lo, hi;
    int levels; /* it may still be cut so often */
} range;

/* The larger side waits, so the stack stays below one entry per halving. Unstable on purpose: see section 15. A trace whose sums
 * were made to be cut badly is left to the heapsort, which no order can slow down. */
static void quicksort(prof_kernel_group *v, size_t n) {
    range stack[64], r = {0, (ptrdiff_t)n - 1, 0};
    int depth = 0;
    for (size_t left = n; left > 1; left /= 2) {
        r.levels += 2;
    }
    for (;;) {
        while (r.hi - r.lo > 16 && r.levels > 0) {
            ptrdiff_t i = partition(v, r.lo, r.hi);
            range left = {r.lo, i - 1, r.levels - 1}, right = {i + 1, r.hi, r.levels - 1};
            int left_is_less = i - r.lo < r.hi - i;
            stack[depth++] = left_is_less ? right : left;
            r = left_is_less ? left : right;
        }
        if (r.hi - r.lo > 16) {
            heapsort(v + r.lo, (size_t)(r.hi - r.lo + 1));
        } else {
            insertion(v, r.lo, r.hi);
        }
        if (depth == 0) {
            return;
        }
        r = stack[--depth];
    }
}

static void reverse(prof_kernel_group *v, size_t n) {
    for (size_t i = 0; i < n / 2; i++) {
        swap(&v[i], &v[n - 1 - i]);
    }
}

static qn_status group_by_name(prof_trace *trace) {
    by_name b;
    memset(&b, 0, sizeof b);
    b.trace = trace;
    qn_prof_map_init(&b.index, &trace->arena);
    for (size_t i = 0; i < trace->devs.n; i++) {
        const prof_event *event = &trace->events.at[trace->devs.at[i].event];
        b.doubles |= event->kind == PROF_KIND_KERNEL && event->dur_tag == PROF_DBL;
    }
    for (size_t i = 0; i < trace->devs.n; i++) {
        const prof_event *event = &trace->events.at[trace->devs.at[i].event];
        if (event->kind == PROF_KIND_KERNEL && add_kernel(&b, event) != QN_OK) {
            return QN_NO_MEMORY;
        }
    }
    finish_names(&b);
    qn_prof_map_free(&b.index);
    QN_VEC_FREE(&trace->arena, &b.sums);
    prof_kernel_group *groups = trace->kernel_groups.at;
    size_t n = trace->kernel_groups.n;
    if (qn_prof_sort(&trace->arena, groups, n, sizeof *groups, name_before, trace) != QN_OK) {
        return QN_NO_MEMORY;
    }
    reverse(groups, n);
    quicksort(groups, n);
    reverse(groups, n);
    return share_tensor_cores(trace);
}

/* ---- By name, operator and launch --------------------------------------------------------------------------------- */

typedef struct by_launch {
    prof_trace *trace;
    prof_slots slots;
    uint32_t not_known, none, zero; /* strings "N/A", "None" and "0" */
    int mlu;                        /* group by what MLU kernels carry */
} by_launch;

static uint32_t launch_hash(qn_hash_key key, const void *owner, uint32_t index) {
    const prof_launch_group *g = &((const by_launch *)owner)->trace->launch_groups.at[index];
    uint32_t parts[] = {g->name,
                        g->op_name,
                        g->grid,
                        g->block,
                        g->registers,
                        g->shared,
                        qn_prof_hash_value(key, g->type),
                        qn_prof_hash_value(key, g->dim),
                        qn_prof_hash_value(key, g->topo),
                        qn_prof_hash_value(key, g->topo_node)};
    return qn_prof_hash_bytes(key, parts, sizeof parts);
}

static int same_launch(const prof_launch_group *a, const prof_launch_group *b) {
    return a->name == b->name && a->op_name == b->op_name && a->grid == b->grid && a->block == b->block &&
           a->registers == b->registers && a->shared == b->shared && prof_same(a->type, b->type) && prof_same(a->dim, b->dim) &&
           prof_same(a->topo, b->topo) && prof_same(a->topo_node, b->topo_node);
}

/* The text of registers or shared memory; what the reference's truth test calls false shows as 0. */
static uint32_t count_text(const by_launch *b, prof_val value) {
    prof_text *text = &b->trace->text;
    if (value.tag == PROF_ABSENT || (prof_is_num(value) && prof_is_zero(value))) {
        return b->zero;
    }
    uint32_t id = qn_prof_value_text(text, value);
    int empty = id != PROF_NIL && (text->strs.at[id].length == 0 || (value.tag == PROF_LIST && text->strs.at[id].length == 2));
    return empty ? b->zero : id;
}

static qn_status describe(const by_launch *b, const prof_dev *dev, prof_launch_group *group) {
    const prof_kernel_args *args = &b->trace->kernels.at[dev->args];
    memset(group, 0, sizeof *group);
    group->name = dev->name;
    group->op_name = dev->op_name ? dev->op_name : b->not_known;
    group->uses_tc = dev->uses_tc;
    group->op_eligible = dev->op_eligible;
    if (b->mlu) {
        group->type = args->type;
        group->dim = args->dim;
        group->topo = args->topo;
        group->topo_node = args->topo_node;
        return QN_OK;
    }
    group->grid = args->grid.tag == PROF_ABSENT ? b->none : qn_prof_value_text(&b->trace->text, args->grid);
    group->block = args->block.tag == PROF_ABSENT ? b->none : qn_prof_value_text(&b->trace->text, args->block);
    group->registers = count_text(b, args->registers);
    group->shared = count_text(b, args->shared);
    int failed = group->grid == PROF_NIL || group->block == PROF_NIL || group->registers == PROF_NIL || group->shared == PROF_NIL;
    return failed ? QN_NO_MEMORY : QN_OK;
}

static qn_status add_launch(by_launch *b, const prof_dev *dev) {
    prof_trace *trace = b->trace;
    prof_launch_group fresh;
    if (describe(b, dev, &fresh) != QN_OK || !QN_VEC_ROOM(&trace->arena, &trace->launch_groups, 1) ||
        qn_prof_slots_room(&b->slots, &trace->arena, launch_hash, b) != QN_OK) {
        return QN_NO_MEMORY;
    }
    uint32_t end = (uint32_t)trace->launch_groups.n, found;
    trace->launch_groups.at[end] = fresh; /* so that its hash can be taken; counted only when it is new */
    size_t cursor = launch_hash(b->slots.key, b, end);
    while ((found = prof_slots_at(&b->slots, &cursor)) != PROF_NIL && !same_launch(&trace->launch_groups.at[found], &fresh)) {
        cursor++;
    }
    const prof_kernel_args *args = &trace->kernels.at[dev->args];
    prof_num length = prof_sub(dev->end, dev->start);
    if (found == PROF_NIL) {
        found = end;
        trace->launch_groups.n++;
        prof_slots_put(&b->slots, cursor, found);
        prof_launch_group *made = &trace->launch_groups.at[found];
        made->total = made->blocks = made->occupancy = prof_int(0);
        made->max = made->min = length;
    }
    prof_launch_group *group = &trace->launch_groups.at[found];
    group->calls++;
    group->total = prof_add(group->total, length);
    group->max = prof_max(group->max, length);
    group->min = prof_min(group->min, length);
    group->blocks = prof_add(group->blocks, weight(args->blocks_per_sm, length));
    group->occupancy = prof_add(group->occupancy, weight(args->occupancy, length));
    return QN_OK;
}

static int total_before(const void *a, const void *b, const void *unused) {
    (void)unused;
    return prof_gt(((const prof_launch_group *)a)->total, ((const prof_launch_group *)b)->total);
}

static qn_status finish_launches(prof_trace *trace) {
    for (size_t i = 0; i < trace->launch_groups.n; i++) {
        prof_launch_group *group = &trace->launch_groups.at[i];
        int timed = !prof_is_zero(group->total);
        group->blocks = timed ? prof_dbl(prof_div(group->blocks, group->total)) : prof_int(0);
        group->occupancy = timed ? prof_dbl(prof_div(group->occupancy, group->total)) : prof_int(0);
    }
    return qn_prof_sort(&trace->arena, trace->launch_groups.at, trace->launch_groups.n, sizeof *trace->launch_groups.at,
                        total_before, NULL);
}

static qn_status group_by_launch(prof_trace *trace) {
    prof_text *text = &trace->text;
    by_launch b = {trace,         {0}, qn_prof_intern_c(text, "N/A"), qn_prof_intern_c(text, "None"), qn_prof_intern_c(text, "0"),
                   !trace->is_gpu};
    if (b.not_known == PROF_NIL || b.none == PROF_NIL || b.zero == PROF_NIL) {
        return QN_NO_MEMORY;
    }
    for (size_t i = 0; i < trace->postorder.n; i++) {
        const prof_node *node = &trace->nodes.at[trace->postorder.at[i]];
        prof_launched at = {0, 0};
        for (const prof_dev *dev; (dev = prof_node_next_kernel(trace, node, &at)) != NULL;) {
            if (add_launch(&b, dev) != QN_OK) {
                return QN_NO_MEMORY;
            }
        }
    }
    qn_arena_release(&trace->arena, b.slots.at);
    return finish_launches(trace);
}

qn_status qn_prof_kernel_groups(prof_trace *trace) {
    qn_status status = group_by_name(trace);
    return status == QN_OK ? group_by_launch(trace) : status;
}
