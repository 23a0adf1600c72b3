/* Distributed views (section 18): overlap, waiting, communication operators, device information. */
#include <string.h>

#include "prof/prof_map.h"
#include "prof/prof_sort.h"
#include "prof/view_util.h"

static qn_status need_view(const prof_view_context *context, qn_error *error) {
    if (context->dist->exists) {
        return QN_OK;
    }
    return qn_error_set(error, QN_UNSUPPORTED, "this span has no distributed view: its workers have no communication in common");
}

static void put_title(prof_json *json, const char *title) {
    qn_prof_json_key(json, "metadata");
    qn_prof_json_object(json);
    qn_prof_json_key(json, "title");
    qn_prof_json_text(json, title);
}

/* ---- Bars per step and worker ------------------------------------------------------------------------------------- */

static void put_bars(prof_json *json, const prof_dist *dist, const char *title, const char *const *legends, size_t n,
                     const prof_dist_rows *rows) {
    qn_prof_json_object(json);
    put_title(json, title);
    qn_prof_json_key(json, "legends");
    qn_prof_json_array(json);
    for (size_t i = 0; i < n; i++) {
        qn_prof_json_text(json, legends[i]);
    }
    qn_prof_json_array_end(json);
    qn_prof_json_key(json, "units");
    qn_prof_json_text(json, "us");
    qn_prof_json_object_end(json);
    qn_prof_json_key(json, "data");
    qn_prof_json_object(json);
    for (size_t r = 0; r < rows->n; r++) {
        const char *key = rows->at[r].key ? rows->at[r].key : "null";
        qn_prof_json_key_bytes(json, key, strlen(key));
        qn_prof_json_object(json);
        for (size_t c = 0; c < rows->at[r].cells.n; c++) {
            const prof_dist_cell *cell = &rows->at[r].cells.at[c];
            const char *name = dist->workers.at[cell->worker].name;
            qn_prof_json_key_bytes(json, name, strlen(name));
            qn_prof_json_array(json);
            for (size_t i = 0; i < n; i++) {
                qn_prof_json_num(json, cell->value[i]);
            }
            qn_prof_json_array_end(json);
        }
        qn_prof_json_object_end(json);
    }
    qn_prof_json_object_end(json);
    qn_prof_json_object_end(json);
}

qn_status qn_prof_view_distributed_overlap(const prof_view_context *context, prof_json *json, qn_error *error) {
    static const char *const legends[] = {"Computation", "Overlapping", "Communication", "Other"};
    qn_status status = need_view(context, error);
    if (status == QN_OK) {
        put_bars(json, context->dist, "Computation/Communication Overview", legends, 4, &context->dist->overlap);
    }
    return status;
}

qn_status qn_prof_view_distributed_waittime(const prof_view_context *context, prof_json *json, qn_error *error) {
    static const char *const legends[] = {"Data Transfer Time", "Synchronizing Time"};
    qn_status status = need_view(context, error);
    if (status == QN_OK) {
        put_bars(json, context->dist, "Synchronizing/Communication Overview", legends, 2, &context->dist->waittime);
    }
    return status;
}

/* ---- Communication operators -------------------------------------------------------------------------------------- */

static void put_comm(prof_json *json, const prof_trace *trace, const prof_comm_stat *stat) {
    prof_num totals[] = {stat->size, stat->latency, stat->transfer};
    qn_prof_json_array(json);
    qn_prof_view_string(json, trace, stat->name);
    qn_prof_json_int(json, stat->calls);
    for (size_t i = 0; i < 3; i++) {
        qn_prof_json_num(json, totals[i]);
        qn_prof_view_round0(json, prof_dbl(prof_div(totals[i], prof_int(stat->calls))));
    }
    qn_prof_json_array_end(json);
}

qn_status qn_prof_view_distributed_commops(const prof_view_context *context, prof_json *json, qn_error *error) {
    static const prof_column columns[] = {{"Name", 0, NULL},
                                          {"Calls", 1, NULL},
                                          {"Total Size (bytes)", 1, NULL},
                                          {"Avg Size (bytes)", 1, NULL},
                                          {"Total Latency (us)", 1, NULL},
                                          {"Avg Latency (us)", 1, NULL},
                                          {"Data Transfer Time (us)", 1, NULL},
                                          {"Avg Data Transfer Time (us)", 1, NULL}};
    qn_status status = need_view(context, error);
    if (status != QN_OK) {
        return status;
    }
    qn_prof_json_object(json);
    put_title(json, "Communication Operations Stats");
    qn_prof_json_object_end(json);
    qn_prof_json_key(json, "data");
    qn_prof_json_object(json);
    for (size_t w = 0; w < context->dist->workers.n; w++) {
        const prof_dist_worker *worker = &context->dist->workers.at[w];
        qn_prof_json_key_bytes(json, worker->name, strlen(worker->name));
        qn_prof_json_object(json);
        qn_prof_view_table(json, columns, sizeof columns / sizeof *columns);
        for (size_t i = 0; i < worker->comms.n; i++) {
            put_comm(json, worker->trace, &worker->comms.at[i]);
        }
        qn_prof_json_array_end(json);
        qn_prof_json_object_end(json);
    }
    qn_prof_json_object_end(json);
    qn_prof_json_object_end(json);
    return QN_OK;
}

/* ---- Device information ------------------------------------------------------------------------------------------- */

typedef struct process {
    const prof_trace *trace;
    const char *node, *id;
    size_t node_length, id_length;
    size_t first; /* of this node's workers: keeps nodes in the order they are met */
} process;

/* `<node>_<digits>` at the last place where it fits; any other name is a node with a running number. */
static void split_name(const char *name, process *p) {
    p->node = name;
    p->node_length = strlen(name);
    p->id = NULL;
    for (size_t i = p->node_length; i-- > 0;) {
        if (name[i] == '_' && name[i + 1] >= '0' && name[i + 1] <= '9') {
            p->node_length = i;
            p->id = name + i + 1;
            p->id_length = strspn(p->id, "0123456789");
            return;
        }
    }
}

static int is_before(const void *a, const void *b, const void *context) {
    const process *x = a, *y = b;
    (void)context;
    if (x->first != y->first) {
        return x->first < y->first;
    }
    size_t shared = x->id_length < y->id_length ? x->id_length : y->id_length;
    int order = memcmp(x->id, y->id, shared);
    return order ? order < 0 : x->id_length < y->id_length;
}

/* One device of a process; ids index the property list. */
static void put_device(prof_json *json, const prof_trace *trace, int64_t id) {
    const prof_prop *prop = &trace->props.at[id];
    qn_prof_json_string_begin(json);
    qn_prof_json_part(json, trace->device_word);
    qn_prof_json_part_num(json, prof_int(id));
    qn_prof_view_key_end(json);
    qn_prof_json_object(json);
    if (prop->name.tag != PROF_ABSENT) {
        qn_prof_json_key(json, "Name");
        qn_prof_view_value(json, trace, prop->name);
    }
    if (qn_prof_view_has_memory(trace, prop)) {
        qn_prof_json_key(json, "Memory");
        qn_prof_view_memory_text(json, prop);
        qn_prof_json_key(json, "Memory Raw");
        qn_prof_json_num(json, prof_is_num(prop->total_global_mem) ? prop->total_global_mem : prop->total_mem_mib);
    }
    if (qn_prof_view_has_capability(prop)) {
        qn_prof_json_key(json, "Compute Capability");
        qn_prof_view_capability_text(json, trace, prop);
    }
    qn_prof_json_object_end(json);
}

static qn_status map_used(qn_arena *arena, const prof_trace *trace, prof_map *used) {
    qn_prof_map_init(used, arena);
    for (size_t i = 0; i < trace->used_pids.n; i++) {
        if (!qn_prof_map_put(used, trace->used_pids.at[i], 0)) {
            return QN_NO_MEMORY;
        }
    }
    return QN_OK;
}

static qn_status put_process(prof_json *json, qn_arena *arena, const process *p) {
    prof_map used;
    if (map_used(arena, p->trace, &used) != QN_OK) {
        return QN_NO_MEMORY;
    }
    qn_prof_json_string_begin(json);
    qn_prof_json_part(json, "Process ");
    qn_prof_json_part_bytes(json, p->id, p->id_length);
    qn_prof_view_key_end(json);
    qn_prof_json_object(json);
    for (size_t id = 0; id < p->trace->props.n; id++) {
        if (qn_prof_map_find(&used, prof_int((int64_t)id))) {
            put_device(json, p->trace, (int64_t)id);
        }
    }
    qn_prof_json_object_end(json);
    qn_prof_map_free(&used);
    return QN_OK;
}

/* Processes of one node come together, nodes in the order of their first worker. Returns NULL when memory ends. */
static process *list_processes(const prof_view_context *context, size_t *count) {
    const prof_dist *dist = context->dist;
    process *list = qn_arena_alloc(context->arena, dist->workers.n, sizeof *list);
    size_t n = 0, running = 0;
    for (size_t w = 0; list && w < dist->workers.n; w++) {
        process *p = &list[n];
        p->trace = dist->workers.at[w].trace;
        if (p->trace->props.n == 0) {
            continue;
        }
        split_name(dist->workers.at[w].name, p);
        if (!p->id) {
            char *digits = qn_arena_alloc(context->arena, PROF_NUM_TEXT, 1);
            if (!digits) {
                return NULL;
            }
            p->id_length = (size_t)qn_prof_int_text((int64_t)running++, digits);
            p->id = digits;
        }
        for (p->first = 0; p->first < n; p->first++) {
            const process *q = &list[p->first];
            if (q->node_length == p->node_length && memcmp(q->node, p->node, p->node_length) == 0) {
                break;
            }
        }
        n++;
    }
    *count = n;
    return list && qn_prof_sort(context->arena, list, n, sizeof *list, is_before, NULL) == QN_OK ? list : NULL;
}

qn_status qn_prof_view_distributed_deviceinfo(const prof_view_context *context, prof_json *json, qn_error *error) {
    size_t n = 0;
    qn_status status = need_view(context, error);
    if (status != QN_OK) {
        return status;
    }
    const process *list = list_processes(context, &n);
    if (!list) {
        return QN_NO_MEMORY;
    }
    if (n == 0) {
        qn_prof_json_null(json);
        return QN_OK;
    }
    qn_prof_json_object(json);
    put_title(json, "Device Information");
    qn_prof_json_object_end(json);
    qn_prof_json_key(json, "data");
    qn_prof_json_object(json);
    for (size_t i = 0; i < n; i++) {
        if (i == 0 || list[i].first != list[i - 1].first) {
            qn_prof_json_key_bytes(json, list[i].node, list[i].node_length);
            qn_prof_json_object(json);
        }
        if (put_process(json, context->arena, &list[i]) != QN_OK) {
            return QN_NO_MEMORY;
        }
        if (i + 1 == n || list[i].first != list[i + 1].first) {
            qn_prof_json_object_end(json);
        }
    }
    qn_prof_json_object_end(json);
    qn_prof_json_object_end(json);
    return QN_OK;
}
