/* The overview (section 10): steps by role, their average, advice, environment, device metrics. */
#include "prof/view_advice.h"
#include "prof/view_texts.h"
#include "prof/view_util.h"

static const struct {
    prof_role role;
    const char *name;
    int needs_device;
} columns[] = {{PROF_ROLE_KERNEL, "Kernel", 1},   {PROF_ROLE_MEMCPY, "Memcpy", 1},
               {PROF_ROLE_MEMSET, "Memset", 1},   {PROF_ROLE_COMMUNICATION, "Communication", 0},
               {PROF_ROLE_RUNTIME, "Runtime", 1}, {PROF_ROLE_DATALOADER, "DataLoader", 0},
               {PROF_ROLE_CPU, "CPU Exec", 0},    {PROF_ROLE_OTHER, "Other", 0}};
enum { COLUMNS = sizeof columns / sizeof *columns };

static int is_shown(const prof_trace *trace, size_t column) {
    if (columns[column].role == PROF_ROLE_COMMUNICATION) {
        return trace->has_communication;
    }
    return !columns[column].needs_device || trace->show_device;
}

static void put_step_columns(prof_json *json, const prof_trace *trace) {
    qn_prof_json_key(json, "columns");
    qn_prof_json_array(json);
    qn_prof_view_column(json, "Step", 0, NULL);
    for (size_t i = 0; i < COLUMNS; i++) {
        if (is_shown(trace, i)) {
            qn_prof_view_column(json, columns[i].name, 1, NULL);
            qn_prof_json_object(json);
            qn_prof_json_key(json, "type");
            qn_prof_json_text(json, "string");
            qn_prof_json_key(json, "role");
            qn_prof_json_text(json, "tooltip");
            qn_prof_json_key(json, "p");
            qn_prof_json_object(json);
            qn_prof_json_key(json, "html");
            qn_prof_json_text(json, "true");
            qn_prof_json_object_end(json);
            qn_prof_json_object_end(json);
        }
    }
    qn_prof_json_array_end(json);
}

/* Without any host event the reference's one step goes from its largest integer to its smallest, and so does ours under
 * --strict-reference; the length is then beyond 64 bits, where its integers go on. */
static void put_total(prof_json *json, const prof_step *step) {
    if (step->start.tag == PROF_INT && step->start.i == INT64_MAX && step->end.tag == PROF_INT && step->end.i == INT64_MIN) {
        qn_prof_json_part(json, "-18446744073709551615");
    } else {
        qn_prof_json_part_num(json, step->total);
    }
}

static void put_step_tooltip(prof_json *json, const prof_trace *trace, const prof_step *step, size_t column) {
    prof_num value = step->cost[columns[column].role];
    qn_prof_json_string_begin(json);
    qn_prof_json_part(json, "<div class=\"visualization-tooltip\" style=\"white-space: nowrap;\">Step ");
    qn_prof_view_string_part(json, trace, step->name);
    qn_prof_json_part(json, "<br>Total: ");
    put_total(json, step);
    qn_prof_json_part(json, "us<br><b>");
    qn_prof_json_part(json, columns[column].name);
    qn_prof_json_part(json, ": ");
    qn_prof_json_part_num(json, value);
    qn_prof_json_part(json, "us</b><br>Percentage: ");
    qn_prof_json_part_num(json, qn_prof_view_percent(value, step->total));
    qn_prof_json_part(json, "%</div>");
    qn_prof_json_string_end(json);
}

static void put_steps(prof_json *json, const prof_trace *trace) {
    qn_prof_json_key(json, "steps");
    qn_prof_json_object(json);
    put_step_columns(json, trace);
    qn_prof_json_key(json, "rows");
    qn_prof_json_array(json);
    for (size_t s = 0; s < trace->steps.n; s++) {
        const prof_step *step = &trace->steps.at[s];
        qn_prof_json_array(json);
        qn_prof_view_string(json, trace, step->name);
        for (size_t i = 0; i < COLUMNS; i++) {
            if (is_shown(trace, i)) {
                qn_prof_json_num(json, step->cost[columns[i].role]);
                put_step_tooltip(json, trace, step, i);
            }
        }
        qn_prof_json_array_end(json);
    }
    qn_prof_json_array_end(json);
    qn_prof_json_object_end(json);
}

/* Leaves the object open for children. */
static void put_average(prof_json *json, const char *name, double value, prof_num extra) {
    qn_prof_json_object(json);
    qn_prof_json_key(json, "name");
    qn_prof_json_text(json, name);
    qn_prof_json_key(json, "description");
    qn_prof_json_text(json, "");
    qn_prof_json_key(json, "value");
    qn_prof_view_round0(json, prof_dbl(value));
    qn_prof_json_key(json, "extra");
    qn_prof_json_num(json, extra);
}

static void put_performance(prof_json *json, const prof_trace *trace) {
    qn_prof_json_key(json, "performance");
    qn_prof_json_array(json);
    put_average(json, "Average Step Time", trace->average_total, prof_int(100));
    qn_prof_json_key(json, "children");
    qn_prof_json_array(json);
    for (size_t i = 0; i < COLUMNS; i++) {
        if (is_shown(trace, i)) {
            double value = trace->average[columns[i].role];
            put_average(json, columns[i].name, value, qn_prof_view_percent(prof_dbl(value), prof_dbl(trace->average_total)));
            qn_prof_json_object_end(json);
        }
    }
    qn_prof_json_array_end(json);
    qn_prof_json_object_end(json);
    qn_prof_json_array_end(json);
}

/* Opens {"title": ..., "value": "; the caller writes the value's parts and calls end_pair. */
static void begin_pair(prof_json *json, const char *title) {
    qn_prof_json_object(json);
    qn_prof_json_key(json, "title");
    qn_prof_json_text(json, title);
    qn_prof_json_key(json, "value");
}

static void put_environments(prof_json *json, const prof_trace *trace, size_t workers) {
    qn_prof_json_key(json, "environments");
    qn_prof_json_array(json);
    begin_pair(json, "Number of Worker(s)");
    qn_prof_json_string_begin(json);
    qn_prof_json_part_num(json, prof_int((int64_t)workers));
    qn_prof_json_string_end(json);
    qn_prof_json_object_end(json);
    begin_pair(json, "Device Type");
    qn_prof_json_text(json, trace->show_device ? trace->device_word : "CPU");
    qn_prof_json_object_end(json);
    qn_prof_json_array_end(json);
}

/* ---- Device metrics ----------------------------------------------------------------------------------------------- */

static void put_percent(prof_json *json, const char *title, double value) {
    begin_pair(json, title);
    qn_prof_json_string_begin(json);
    qn_prof_json_part_num(json, qn_prof_round2(prof_dbl(value)));
    qn_prof_json_part(json, " %");
    qn_prof_json_string_end(json);
    qn_prof_json_object_end(json);
}

static void put_device_title(prof_json *json, const prof_trace *trace, prof_val id) {
    qn_prof_json_object(json);
    qn_prof_json_key(json, "title");
    qn_prof_json_string_begin(json);
    qn_prof_json_part(json, trace->device_word);
    qn_prof_json_part(json, " ");
    qn_prof_view_value_part(json, trace, id);
    qn_prof_json_part(json, ":");
    qn_prof_json_string_end(json);
    qn_prof_json_key(json, "value");
    qn_prof_json_text(json, "");
    qn_prof_json_object_end(json);
}

static void put_properties(prof_json *json, const prof_trace *trace, const prof_prop *prop) {
    if (prop->name.tag != PROF_ABSENT) {
        begin_pair(json, "Name");
        qn_prof_view_value(json, trace, prop->name);
        qn_prof_json_object_end(json);
    }
    if (qn_prof_view_has_memory(trace, prop)) {
        begin_pair(json, "Memory");
        qn_prof_view_memory_text(json, prop);
        qn_prof_json_object_end(json);
    }
    if (qn_prof_view_has_capability(prop)) {
        begin_pair(json, "Compute Capability");
        qn_prof_view_capability_text(json, trace, prop);
        qn_prof_json_object_end(json);
    }
}

enum { SHOWS_EFFICIENCY = 1, SHOWS_OCCUPANCY = 2, SHOWS_TC = 4 };

/* Which of the optional rows a device has; mlu_b keeps them to GPU traces. */
static unsigned shown_rows(const prof_trace *trace, const prof_device *device) {
    if (prof_is_b(trace) && !trace->is_gpu) {
        return 0;
    }
    return (prof_is_num(device->efficiency) ? SHOWS_EFFICIENCY : 0u) | (prof_is_num(device->occupancy) ? SHOWS_OCCUPANCY : 0u) |
           (prof_is_num(device->tc_ratio) ? SHOWS_TC : 0u);
}

static void put_device(prof_json *json, const prof_trace *trace, const prof_device *device) {
    unsigned shown = shown_rows(trace, device);
    put_device_title(json, trace, device->id);
    if (device->prop != PROF_NIL) {
        put_properties(json, trace, &trace->props.at[device->prop]);
    }
    put_percent(json, trace->is_gpu ? "GPU Utilization" : "MLU Utilization", device->utilisation * 100);
    if (shown & SHOWS_EFFICIENCY) {
        put_percent(json, "Est. SM Efficiency", prof_to_dbl(device->efficiency) * 100);
    }
    if (shown & SHOWS_OCCUPANCY) {
        put_percent(json, "Est. Achieved Occupancy", prof_to_dbl(device->occupancy));
    }
    if (shown & SHOWS_TC) {
        put_percent(json, "Kernel Time using Tensor Cores", prof_to_dbl(device->tc_ratio) * 100);
    }
}

static void put_metrics_tooltip(prof_json *json, const prof_trace *trace, unsigned shown) {
    const char *word = trace->device_word;
    qn_prof_json_key(json, "tooltip");
    qn_prof_json_string_begin(json);
    qn_prof_view_fill(json, qn_prof_text_metrics, word, NULL);
    qn_prof_view_fill(json, qn_prof_text_utilisation, word, NULL);
    if (shown & SHOWS_EFFICIENCY) {
        qn_prof_view_fill(json, qn_prof_text_efficiency, word, NULL);
    }
    if (shown & SHOWS_OCCUPANCY) {
        qn_prof_view_fill(json, qn_prof_text_occupancy, word, NULL);
    }
    if (shown & SHOWS_TC) {
        qn_prof_view_fill(json, prof_is_a(trace) ? qn_prof_text_tc_share_a : qn_prof_text_tc_share, word, NULL);
    }
    qn_prof_json_string_end(json);
}

static void put_metrics(prof_json *json, const prof_trace *trace) {
    unsigned shown = 0;
    qn_prof_json_key(json, prof_is_a(trace) ? "mlu_metrics" : "gpu_metrics");
    qn_prof_json_object(json);
    qn_prof_json_key(json, "title");
    qn_prof_json_text(json, trace->is_gpu ? "GPU Summary" : "MLU Summary");
    qn_prof_json_key(json, "data");
    qn_prof_json_array(json);
    for (size_t i = 0; i < trace->devices.n; i++) {
        if (i) {
            begin_pair(json, "<hr/>");
            qn_prof_json_text(json, "");
            qn_prof_json_object_end(json);
        }
        put_device(json, trace, &trace->devices.at[i]);
        shown |= shown_rows(trace, &trace->devices.at[i]);
    }
    qn_prof_json_array_end(json);
    put_metrics_tooltip(json, trace, shown);
    qn_prof_json_object_end(json);
}

qn_status qn_prof_view_overview(const prof_view_context *context, prof_json *json, qn_error *error) {
    (void)error;
    const prof_trace *trace = context->trace;
    qn_prof_json_object(json);
    put_steps(json, trace);
    put_performance(json, trace);
    qn_prof_json_key(json, "recommendations");
    qn_prof_view_advice(json, trace);
    put_environments(json, trace, context->n_workers);
    if (trace->devices.n) {
        put_metrics(json, trace);
    }
    qn_prof_json_object_end(json);
    return QN_OK;
}
