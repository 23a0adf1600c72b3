/* The roofline view: what each op of each shape achieved against what the machine was measured to give. Only traces whose ops say
 * how much arithmetic and traffic they stand for have it. Times are the device's where an op ran on one; the limits are the
 * host's, so for those no share is told. */
#include "prof/prof_map.h"
#include "prof/prof_sort.h"
#include "prof/view_util.h"

typedef struct row {
    uint32_t name, shape; /* strings */
    int64_t calls;
    prof_num time;
    double flops, bytes;
    int on_device;
} row;

typedef QN_VEC(row) rows;

static const prof_op_args *args_of(const prof_trace *trace, const prof_node *node) {
    const prof_op_args *args = node->proper ? prof_node_args(trace, node) : NULL;
    return args && (prof_is_num(args->flops) || prof_is_num(args->bytes)) ? args : NULL;
}

static qn_status gather(const prof_view_context *context, rows *all) {
    const prof_trace *trace = context->trace;
    prof_map map;
    qn_prof_map_init(&map, context->arena);
    for (size_t i = 0; i < trace->postorder.n; i++) {
        const prof_node *node = &trace->nodes.at[trace->postorder.at[i]];
        const prof_op_args *args = args_of(trace, node);
        if (!args) {
            continue;
        }
        uint32_t shape = args->dims.tag == PROF_LIST ? trace->text.lists.at[args->dims.i].text : 0;
        uint32_t *at = qn_prof_map_put(&map, prof_int((int64_t)((uint64_t)node->name << 32 | shape)), PROF_NIL);
        if (!at || !QN_VEC_ROOM(context->arena, all, 1)) {
            return QN_NO_MEMORY;
        }
        if (*at == PROF_NIL) {
            *at = (uint32_t)all->n;
            all->at[all->n++] = (row){node->name, shape, 0, prof_int(0), 0, 0, 0};
        }
        row *r = &all->at[*at];
        int on_device = prof_gt(node->device_total, prof_int(0));
        r->calls++;
        r->on_device |= on_device;
        r->time = prof_add(r->time, on_device ? node->device_total : prof_sub(node->end, node->start));
        r->flops += prof_to_dbl(args->flops);
        r->bytes += prof_to_dbl(args->bytes);
    }
    return QN_OK;
}

static int longer(const void *a, const void *b, const void *unused) {
    (void)unused;
    return prof_gt(((const row *)a)->time, ((const row *)b)->time);
}

static void put_places(prof_json *json, double value, int places) {
    if (isfinite(value)) {
        qn_prof_json_dbl(json, qn_prof_round_places(value, places));
    } else {
        qn_prof_json_null(json);
    }
}

/* 10^9 a second from a count and microseconds. */
static double giga(double count, double us) { return us > 0 ? count / (us * 1e3) : NAN; }

static void put_limit(prof_json *json, const prof_trace *trace, const row *r, double flops, double bytes) {
    double of_arithmetic = flops / prof_to_dbl(trace->limit_gflops), of_memory = bytes / prof_to_dbl(trace->limit_gbps);
    if (r->on_device || !prof_is_num(trace->limit_gflops) || !prof_is_num(trace->limit_gbps) || !isfinite(of_arithmetic) ||
        !isfinite(of_memory)) {
        qn_prof_json_null(json);
        qn_prof_json_null(json);
        return;
    }
    /* rate / min(peak, intensity * bandwidth) is the larger of the two shares */
    put_places(json, 100 * (of_arithmetic > of_memory ? of_arithmetic : of_memory), 2);
    qn_prof_json_text(json, of_arithmetic > of_memory ? "arithmetic" : "memory");
}

static void put_row(prof_json *json, const prof_trace *trace, const row *r) {
    double us = prof_to_dbl(r->time), flops = giga(r->flops, us), bytes = giga(r->bytes, us);
    qn_prof_json_array(json);
    qn_prof_view_string(json, trace, r->name);
    qn_prof_view_string(json, trace, r->shape);
    qn_prof_json_int(json, r->calls);
    qn_prof_json_num(json, qn_prof_round2(r->time));
    put_places(json, r->flops / 1e9, 6);
    put_places(json, r->bytes / 1e9, 6);
    put_places(json, flops, 3);
    put_places(json, bytes, 3);
    put_places(json, r->bytes > 0 ? r->flops / r->bytes : NAN, 3);
    put_limit(json, trace, r, flops, bytes);
    qn_prof_json_array_end(json);
}

static void put_metadata(prof_json *json, const prof_trace *trace) {
    double gflops = prof_to_dbl(trace->limit_gflops), gbps = prof_to_dbl(trace->limit_gbps);
    qn_prof_json_key(json, "metadata");
    qn_prof_json_object(json);
    qn_prof_json_key(json, "title");
    qn_prof_json_text(json, "Roofline");
    qn_prof_json_key(json, "sort");
    qn_prof_json_text(json, "Time (us)");
    qn_prof_json_key(json, "peak_gflops");
    qn_prof_json_num(json, trace->limit_gflops);
    qn_prof_json_key(json, "peak_gbps");
    qn_prof_json_num(json, trace->limit_gbps);
    qn_prof_json_key(json, "ridge");
    put_places(json, gbps > 0 ? gflops / gbps : NAN, 3);
    qn_prof_json_object_end(json);
}

qn_status qn_prof_view_roofline(const prof_view_context *context, prof_json *json, qn_error *error) {
    static const prof_column columns[] = {
        {"Operator", 0, NULL},
        {"Input Shape", 0, NULL},
        {"Calls", 1, NULL},
        {"Time (us)", 1, "Device time where the operator ran on a device, else host time"},
        {"GFLOP", 1, "Floating-point operations the operator stands for, multiply-adds counted twice"},
        {"GB", 1, "Bytes of its operands and results"},
        {"GFLOP/s", 1, NULL},
        {"GB/s", 1, NULL},
        {"FLOP/byte", 1, "Arithmetic intensity"},
        {"Limit (%)", 1, "Achieved share of the lower of the two roofs: peak arithmetic, and intensity times peak bandwidth"},
        {"Bound by", 0, "The roof that is nearer"}};
    rows all = {NULL, 0, 0};
    qn_status status = gather(context, &all);
    if (status == QN_OK) {
        status = qn_prof_sort(context->arena, all.at, all.n, sizeof *all.at, longer, NULL);
    }
    if (status != QN_OK) {
        return qn_error_set(error, status, "no memory for the roofline view");
    }
    if (all.n == 0) {
        return qn_prof_view_missing(error, context->trace, "roofline", "no operator says how much arithmetic it does");
    }
    qn_prof_json_object(json);
    put_metadata(json, context->trace);
    qn_prof_view_table(json, columns, sizeof columns / sizeof *columns);
    for (size_t i = 0; i < all.n; i++) {
        put_row(json, context->trace, &all.at[i]);
    }
    qn_prof_json_array_end(json);
    qn_prof_json_object_end(json);
    return QN_OK;
}
