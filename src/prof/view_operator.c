/* Operator views (section 14): pies and tables, by name and by input shape, and the tables of call stacks. */
#include <string.h>

#include "prof/prof_sort.h"
#include "prof/view_texts.h"
#include "prof/view_util.h"

typedef enum measure { DEVICE_TOTAL, DEVICE_SELF, HOST_TOTAL, HOST_SELF } measure;

static prof_num value_of(const prof_op_group *group, measure which) {
    switch (which) {
    case DEVICE_TOTAL: return group->device_total;
    case DEVICE_SELF: return group->device_self;
    case HOST_TOTAL: return group->host_total;
    default: return group->host_self;
    }
}

typedef struct order {
    const prof_op_group *groups;
    measure by;
} order;

static int is_larger(const void *a, const void *b, const void *context) {
    const order *o = context;
    return prof_gt(value_of(&o->groups[*(const uint32_t *)a], o->by), value_of(&o->groups[*(const uint32_t *)b], o->by));
}

/* The grouping a request asks for; the view's own name decides when it asks for none. */
static prof_grouping grouping_of(const qn_profile_request *request, prof_grouping usual) {
    if (!request->group_by) {
        return usual;
    }
    return strcmp(request->group_by, "OperationAndInputShape") == 0 ? PROF_BY_SHAPE : PROF_BY_NAME;
}

/* ---- Pies --------------------------------------------------------------------------------------------------------- */

static const struct {
    measure which;
    const char *key, *title;
} pies[] = {{DEVICE_TOTAL, "device_total_time", "Device Total Time (us)"},
            {DEVICE_SELF, "device_self_time", "Device Self Time (us)"},
            {HOST_TOTAL, "host_total_time", "Host Total Time (us)"},
            {HOST_SELF, "host_self_time", "Host Self Time (us)"}};

static void put_pie(prof_json *json, const prof_trace *trace, const prof_op_group *groups, const uint32_t *rows, size_t n,
                    size_t pie) {
    qn_prof_json_key(json, pies[pie].key);
    if (n == 0) {
        qn_prof_json_null(json);
        return;
    }
    qn_prof_json_object(json);
    qn_prof_json_key(json, "title");
    qn_prof_json_text(json, pies[pie].title);
    qn_prof_view_pie_head(json);
    qn_prof_json_array(json);
    for (size_t i = 0; i < n; i++) {
        qn_prof_json_array(json);
        qn_prof_view_string(json, trace, groups[rows[i]].name);
        qn_prof_json_num(json, value_of(&groups[rows[i]], pies[pie].which));
        qn_prof_json_array_end(json);
    }
    qn_prof_json_array_end(json);
    qn_prof_json_object_end(json);
}

static qn_status put_pies(const prof_view_context *context, prof_json *json, prof_grouping grouping) {
    const prof_trace *trace = context->trace;
    const prof_op_group *groups = trace->op_groups[grouping].at;
    size_t count = trace->op_groups[grouping].n;
    uint32_t *rows = qn_arena_alloc(context->arena, count, sizeof *rows);
    if (!rows) {
        return QN_NO_MEMORY;
    }
    qn_prof_json_object(json);
    for (size_t pie = 0; pie < sizeof pies / sizeof *pies; pie++) {
        order by = {groups, pies[pie].which};
        size_t n = 0;
        for (size_t i = 0; i < count; i++) {
            if (prof_gt(value_of(&groups[i], by.by), prof_int(0))) {
                rows[n++] = (uint32_t)i;
            }
        }
        if (qn_prof_sort(context->arena, rows, n, sizeof *rows, is_larger, &by) != QN_OK) {
            return QN_NO_MEMORY;
        }
        put_pie(json, trace, groups, rows, n, pie);
    }
    qn_prof_json_object_end(json);
    return QN_OK;
}

/* ---- Tables ------------------------------------------------------------------------------------------------------- */

static void put_table_head(prof_json *json, const prof_trace *trace) {
    qn_prof_json_object(json);
    qn_prof_json_key(json, "metadata");
    qn_prof_json_object(json);
    qn_prof_json_key(json, "sort");
    qn_prof_json_text(json, trace->sort_by_device ? "device_self_duration" : "host_self_duration");
    qn_prof_json_key(json, "tooltips");
    qn_prof_json_object(json);
    qn_prof_json_key(json, "tc_eligible");
    qn_prof_json_text(json, qn_prof_text_op_eligible);
    qn_prof_json_key(json, "tc_self_ratio");
    qn_prof_json_text(json, qn_prof_text_op_tc_self);
    qn_prof_json_key(json, "tc_total_ratio");
    qn_prof_json_text(json, qn_prof_text_op_tc_total);
    qn_prof_json_object_end(json);
    qn_prof_json_object_end(json);
    qn_prof_json_key(json, "data");
    qn_prof_json_array(json);
}

static void put_table_end(prof_json *json) {
    qn_prof_json_array_end(json);
    qn_prof_json_object_end(json);
}

static void put_rounded(prof_json *json, const char *key, prof_num value) {
    qn_prof_json_key(json, key);
    qn_prof_view_round0(json, value);
}

/* An integer ratio is the integer 0 of a group without device time and stays one. */
static void put_ratio(prof_json *json, const char *key, prof_num ratio) {
    qn_prof_json_key(json, key);
    qn_prof_json_num(json, qn_prof_round2(prof_mul(prof_int(100), ratio)));
}

static void put_row(prof_json *json, const prof_trace *trace, const prof_op_group *group, int with_shape, int with_stack) {
    qn_prof_json_object(json);
    qn_prof_json_key(json, "name");
    qn_prof_view_string(json, trace, group->name);
    if (with_shape) {
        qn_prof_json_key(json, "input_shape");
        qn_prof_view_string(json, trace, group->shape);
    }
    qn_prof_json_key(json, "calls");
    qn_prof_json_int(json, group->calls);
    if (trace->sort_by_device) {
        put_rounded(json, "device_self_duration", group->device_self);
        put_rounded(json, "device_total_duration", group->device_total);
    }
    put_rounded(json, "host_self_duration", group->host_self);
    put_rounded(json, "host_total_duration", group->host_total);
    qn_prof_json_key(json, "tc_eligible");
    qn_prof_view_yes(json, (int)group->eligible);
    put_ratio(json, "tc_self_ratio", group->tc_self_ratio);
    put_ratio(json, "tc_total_ratio", group->tc_total_ratio);
    if (with_stack) {
        qn_prof_json_key(json, "call_stack");
        qn_prof_view_string(json, trace, group->stack);
    } else {
        qn_prof_json_key(json, "has_call_stack");
        qn_prof_json_bool(json, group->stack_count > 0);
    }
    qn_prof_json_object_end(json);
}

static qn_status put_table(const prof_view_context *context, prof_json *json, prof_grouping grouping) {
    const prof_trace *trace = context->trace;
    put_table_head(json, trace);
    for (size_t i = 0; i < trace->op_groups[grouping].n; i++) {
        put_row(json, trace, &trace->op_groups[grouping].at[trace->op_order[grouping][i]], grouping == PROF_BY_SHAPE, 0);
    }
    put_table_end(json);
    return QN_OK;
}

/* ---- Stacks ------------------------------------------------------------------------------------------------------- */

static qn_status put_stacks_of(const prof_view_context *context, prof_json *json, prof_grouping grouping,
                               const prof_op_group *group) {
    const prof_trace *trace = context->trace;
    order by = {trace->op_groups[grouping == PROF_BY_SHAPE ? PROF_BY_SHAPE_STACK : PROF_BY_STACK].at,
                trace->sort_by_device ? DEVICE_SELF : HOST_SELF};
    uint32_t *rows = qn_arena_alloc(context->arena, group->stack_count, sizeof *rows);
    if (!rows) {
        return QN_NO_MEMORY;
    }
    if (group->stack_count) {
        memcpy(rows, trace->op_stacks[grouping] + group->stack_begin, group->stack_count * sizeof *rows);
    }
    if (qn_prof_sort(context->arena, rows, group->stack_count, sizeof *rows, is_larger, &by) != QN_OK) {
        return QN_NO_MEMORY;
    }
    put_table_head(json, trace);
    for (size_t i = 0; i < group->stack_count; i++) {
        put_row(json, trace, &by.groups[rows[i]], grouping == PROF_BY_SHAPE, 1);
    }
    put_table_end(json);
    return QN_OK;
}

static void put_stack_key(const prof_view_context *context, prof_json *json, prof_grouping grouping, const prof_op_group *group) {
    const prof_trace *trace = context->trace;
    qn_prof_json_string_begin(json);
    qn_prof_view_string_part(json, trace, group->name);
    if (grouping == PROF_BY_SHAPE) {
        qn_prof_json_part(json, "###");
        qn_prof_view_string_part(json, trace, group->shape);
    }
    qn_prof_view_key_end(json);
}

static int is_text(const prof_trace *trace, uint32_t id, const char *text) {
    const prof_str *string = prof_string(trace, id);
    return string->length == strlen(text) && memcmp(string->at, text, string->length) == 0;
}

static qn_status put_all_stacks(const prof_view_context *context, prof_json *json, prof_grouping grouping) {
    const prof_trace *trace = context->trace;
    qn_status status = QN_OK;
    qn_prof_json_object(json);
    for (size_t i = 0; i < trace->op_groups[grouping].n && status == QN_OK; i++) {
        const prof_op_group *group = &trace->op_groups[grouping].at[trace->op_order[grouping][i]];
        if (group->stack_count) {
            put_stack_key(context, json, grouping, group);
            status = put_stacks_of(context, json, grouping, group);
        }
    }
    qn_prof_json_object_end(json);
    return status;
}

/* With an operator named, its table alone. */
static qn_status put_stacks(const prof_view_context *context, prof_json *json, prof_grouping grouping, qn_error *error) {
    const prof_trace *trace = context->trace;
    const qn_profile_request *request = context->request;
    if (!request->op_name) {
        return put_all_stacks(context, json, grouping);
    }
    grouping = request->input_shape ? PROF_BY_SHAPE : PROF_BY_NAME;
    for (size_t i = 0; i < trace->op_groups[grouping].n; i++) {
        const prof_op_group *group = &trace->op_groups[grouping].at[i];
        if (group->stack_count && is_text(trace, group->name, request->op_name) &&
            (grouping == PROF_BY_NAME || is_text(trace, group->shape, request->input_shape))) {
            return put_stacks_of(context, json, grouping, group);
        }
    }
    return qn_error_set(error, QN_ARGUMENT, "%s: no operator '%s' with a call stack%s", trace->path, request->op_name,
                        request->input_shape ? " has that input shape" : "");
}

qn_status qn_prof_view_operation(const prof_view_context *context, prof_json *json, qn_error *error) {
    (void)error;
    return put_pies(context, json, grouping_of(context->request, PROF_BY_NAME));
}

qn_status qn_prof_view_operation_by_shape(const prof_view_context *context, prof_json *json, qn_error *error) {
    (void)error;
    return put_pies(context, json, PROF_BY_SHAPE);
}

qn_status qn_prof_view_operation_table(const prof_view_context *context, prof_json *json, qn_error *error) {
    (void)error;
    return put_table(context, json, grouping_of(context->request, PROF_BY_NAME));
}

qn_status qn_prof_view_operation_table_by_shape(const prof_view_context *context, prof_json *json, qn_error *error) {
    (void)error;
    return put_table(context, json, PROF_BY_SHAPE);
}

qn_status qn_prof_view_operation_stack(const prof_view_context *context, prof_json *json, qn_error *error) {
    return put_stacks(context, json, grouping_of(context->request, PROF_BY_NAME), error);
}

qn_status qn_prof_view_operation_stack_by_shape(const prof_view_context *context, prof_json *json, qn_error *error) {
    return put_stacks(context, json, PROF_BY_SHAPE, error);
}
