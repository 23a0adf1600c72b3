/* Kernel views (section 15): the pie and table by kernel name, the table by launching operator, the tensor-core pie. */
#include <string.h>

#include "prof/view_texts.h"
#include "prof/view_util.h"

static qn_status need_kernels(const prof_trace *trace, qn_error *error) {
    return trace->has_kernel ? QN_OK : qn_prof_view_missing(error, trace, "kernel", "no kernel ran");
}

static const char *tc_tooltip(const prof_trace *trace) {
    return prof_is_a(trace) ? qn_prof_text_kernel_tc_a : qn_prof_text_kernel_tc;
}

/* Both pies: one row per name, under "total". */
typedef void (*put_pie_rows)(prof_json *json, const prof_trace *trace);

static qn_status put_pie(const prof_view_context *context, prof_json *json, put_pie_rows rows, qn_error *error) {
    qn_status status = need_kernels(context->trace, error);
    if (status != QN_OK) {
        return status;
    }
    qn_prof_json_object(json);
    qn_prof_json_key(json, "total");
    qn_prof_json_object(json);
    qn_prof_view_pie_head(json);
    qn_prof_json_array(json);
    rows(json, context->trace);
    qn_prof_json_array_end(json);
    qn_prof_json_object_end(json);
    qn_prof_json_object_end(json);
    return QN_OK;
}

static void put_kernel_rows(prof_json *json, const prof_trace *trace) {
    for (size_t i = 0; i < trace->kernel_groups.n; i++) {
        qn_prof_json_array(json);
        qn_prof_view_string(json, trace, trace->kernel_groups.at[i].name);
        qn_prof_json_num(json, trace->kernel_groups.at[i].sum);
        qn_prof_json_array_end(json);
    }
}

static void put_tc_rows(prof_json *json, const prof_trace *trace) {
    for (int i = 0; i < 2; i++) {
        qn_prof_json_array(json);
        qn_prof_json_text(json, i ? "Not Using Tensor Cores" : "Using Tensor Cores");
        qn_prof_json_dbl(json, i ? 1 - trace->tc_kernel_share : trace->tc_kernel_share);
        qn_prof_json_array_end(json);
    }
}

qn_status qn_prof_view_kernel(const prof_view_context *context, prof_json *json, qn_error *error) {
    return put_pie(context, json, put_kernel_rows, error);
}

qn_status qn_prof_view_kernel_tc_pie(const prof_view_context *context, prof_json *json, qn_error *error) {
    return put_pie(context, json, put_tc_rows, error);
}

/* ---- Tables ------------------------------------------------------------------------------------------------------- */

static void put_head(prof_json *json) {
    qn_prof_json_object(json);
    qn_prof_json_key(json, "metadata");
    qn_prof_json_object(json);
    qn_prof_json_key(json, "sort");
    qn_prof_json_text(json, "Total Duration (us)");
    qn_prof_json_object_end(json);
    qn_prof_json_key(json, "data");
    qn_prof_json_object(json);
    qn_prof_json_key(json, "columns");
    qn_prof_json_array(json);
}

static void put_end(prof_json *json) {
    qn_prof_json_array_end(json);
    qn_prof_json_object_end(json);
    qn_prof_json_object_end(json);
}

static void put_common_columns(prof_json *json, const prof_trace *trace) {
    static const prof_column times[] = {{"Calls", 1, NULL},
                                        {"Total Duration (us)", 1, NULL},
                                        {"Mean Duration (us)", 1, NULL},
                                        {"Max Duration (us)", 1, NULL},
                                        {"Min Duration (us)", 1, NULL}};
    qn_prof_view_columns(json, times, sizeof times / sizeof *times);
    if (trace->has_blocks) {
        qn_prof_view_column(json, "Mean Blocks Per SM", 1, qn_prof_text_kernel_blocks);
    }
    if (trace->has_occupancy) {
        qn_prof_view_column(json, "Mean Est. Achieved Occupancy (%)", 1, qn_prof_text_kernel_occupancy);
    }
    qn_prof_json_array_end(json);
    qn_prof_json_key(json, "rows");
    qn_prof_json_array(json);
}

static void put_optional(prof_json *json, const prof_trace *trace, prof_num blocks, prof_num occupancy) {
    if (trace->has_blocks) {
        qn_prof_json_num(json, qn_prof_round2(blocks));
    }
    if (trace->has_occupancy) {
        qn_prof_json_num(json, qn_prof_round2(occupancy));
    }
}

static void put_by_name(prof_json *json, const prof_trace *trace) {
    put_head(json);
    qn_prof_view_column(json, "Name", 0, NULL);
    qn_prof_view_column(json, "Tensor Cores Used", 0, tc_tooltip(trace));
    put_common_columns(json, trace);
    for (size_t i = 0; i < trace->kernel_groups.n; i++) {
        const prof_kernel_group *group = &trace->kernel_groups.at[i];
        qn_prof_json_array(json);
        qn_prof_view_string(json, trace, group->name);
        qn_prof_view_yes(json, (int)group->uses_tc);
        qn_prof_json_int(json, group->calls);
        qn_prof_view_round0(json, group->sum);
        qn_prof_view_round0(json, prof_dbl(group->mean));
        qn_prof_view_round0(json, group->max);
        qn_prof_view_round0(json, group->min);
        put_optional(json, trace, group->blocks, group->occupancy);
        qn_prof_json_array_end(json);
    }
    put_end(json);
}

/* How a launch is described: by the device the dialect is made for. */
typedef enum launch_form { GRID_AND_BLOCK, DIM_AND_TYPE, TYPE_DIM_TOPO } launch_form;

static launch_form form_of(const prof_trace *trace) {
    if (prof_is_a(trace)) {
        return DIM_AND_TYPE;
    }
    return prof_is_b(trace) && !trace->is_gpu ? TYPE_DIM_TOPO : GRID_AND_BLOCK;
}

static void put_launch_columns(prof_json *json, const prof_trace *trace) {
    static const prof_column grid[] = {
        {"Grid", 0, NULL}, {"Block", 0, NULL}, {"Register Per Thread", 1, NULL}, {"Shared Memory", 1, NULL}};
    static const prof_column dim[] = {{"DimXYZ", 0, NULL}, {"Kernel Type", 0, NULL}};
    static const prof_column topo[] = {
        {"Kernel Type", 0, NULL}, {"Dim", 0, NULL}, {"Tasktopo", 1, NULL}, {"Tasktopo_node", 1, NULL}};
    launch_form form = form_of(trace);
    qn_prof_view_column(json, "Name", 0, NULL);
    qn_prof_view_column(json, "Operator", 0, NULL);
    if (form == DIM_AND_TYPE) {
        qn_prof_view_columns(json, dim, sizeof dim / sizeof *dim);
    } else {
        qn_prof_view_columns(json, form == GRID_AND_BLOCK ? grid : topo, sizeof grid / sizeof *grid);
    }
    qn_prof_view_column(json, "Kernel Uses Tensor Cores", 0, tc_tooltip(trace));
    if (form != DIM_AND_TYPE) {
        qn_prof_view_column(json, "Op is Tensor Cores eligible", 0, qn_prof_text_kernel_op_eligible);
    }
}

/* Absent and empty values of MLU kernels have fixed spellings: "None", "[,,,]", "0". */
static void put_or(prof_json *json, const prof_trace *trace, prof_val value, const char *instead) {
    int empty = value.tag == PROF_ABSENT || (prof_is_num(value) && prof_is_zero(value)) ||
                (value.tag == PROF_STR && prof_string(trace, (uint32_t)value.i)->length == 0) ||
                (value.tag == PROF_LIST && prof_list_text(trace, value)->length <= 2);
    if (empty) {
        qn_prof_json_text(json, instead);
    } else {
        qn_prof_view_value_text(json, trace, value);
    }
}

static void put_launch(prof_json *json, const prof_trace *trace, const prof_launch_group *group) {
    switch (form_of(trace)) {
    case GRID_AND_BLOCK:
        qn_prof_view_string(json, trace, group->grid);
        qn_prof_view_string(json, trace, group->block);
        qn_prof_view_string(json, trace, group->registers);
        qn_prof_view_string(json, trace, group->shared);
        return;
    case DIM_AND_TYPE:
        qn_prof_view_value_text(json, trace, group->dim);
        qn_prof_view_value(json, trace, group->type);
        return;
    case TYPE_DIM_TOPO:
        put_or(json, trace, group->type, "None");
        put_or(json, trace, group->dim, "[,,,]");
        put_or(json, trace, group->topo, "0");
        put_or(json, trace, group->topo_node, "0");
    }
}

static void put_by_op(prof_json *json, const prof_trace *trace) {
    put_head(json);
    put_launch_columns(json, trace);
    put_common_columns(json, trace);
    for (size_t i = 0; i < trace->launch_groups.n; i++) {
        const prof_launch_group *group = &trace->launch_groups.at[i];
        qn_prof_json_array(json);
        qn_prof_view_string(json, trace, group->name);
        qn_prof_view_string(json, trace, group->op_name);
        put_launch(json, trace, group);
        qn_prof_view_yes(json, (int)group->uses_tc);
        if (form_of(trace) != DIM_AND_TYPE) {
            qn_prof_view_yes(json, (int)group->op_eligible);
        }
        qn_prof_json_int(json, group->calls);
        qn_prof_json_num(json, group->total);
        qn_prof_view_round0(json, prof_dbl(prof_to_dbl(group->total) / (double)group->calls));
        qn_prof_json_num(json, group->max);
        qn_prof_json_num(json, group->min);
        put_optional(json, trace, group->blocks, group->occupancy);
        qn_prof_json_array_end(json);
    }
    put_end(json);
}

qn_status qn_prof_view_kernel_table(const prof_view_context *context, prof_json *json, qn_error *error) {
    const char *group_by = context->request->group_by;
    qn_status status = need_kernels(context->trace, error);
    if (status == QN_OK) {
        if (group_by && strcmp(group_by, "Kernel") != 0) {
            put_by_op(json, context->trace);
        } else {
            put_by_name(json, context->trace);
        }
    }
    return status;
}

qn_status qn_prof_view_kernel_table_by_op(const prof_view_context *context, prof_json *json, qn_error *error) {
    qn_status status = need_kernels(context->trace, error);
    if (status == QN_OK) {
        put_by_op(json, context->trace);
    }
    return status;
}
