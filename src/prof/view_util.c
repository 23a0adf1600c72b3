/* Values, columns and device facts as the views show them. */
#include "prof/view_util.h"

#include "base/decimal.h"

void qn_prof_view_column(prof_json *json, const char *name, int is_number, const char *tooltip) {
    qn_prof_json_object(json);
    qn_prof_json_key(json, "type");
    qn_prof_json_text(json, is_number ? "number" : "string");
    qn_prof_json_key(json, "name");
    qn_prof_json_text(json, name);
    if (tooltip) {
        qn_prof_json_key(json, "tooltip");
        qn_prof_json_text(json, tooltip);
    }
    qn_prof_json_object_end(json);
}

void qn_prof_view_columns(prof_json *json, const prof_column *columns, size_t n) {
    for (size_t i = 0; i < n; i++) {
        qn_prof_view_column(json, columns[i].name, columns[i].is_number, columns[i].tooltip);
    }
}

void qn_prof_view_table(prof_json *json, const prof_column *columns, size_t n) {
    qn_prof_json_key(json, "columns");
    qn_prof_json_array(json);
    qn_prof_view_columns(json, columns, n);
    qn_prof_json_array_end(json);
    qn_prof_json_key(json, "rows");
    qn_prof_json_array(json);
}

void qn_prof_view_pie_head(prof_json *json) {
    qn_prof_json_key(json, "columns");
    qn_prof_json_array(json);
    qn_prof_view_column(json, "name", 0, NULL);
    qn_prof_view_column(json, "value", 1, NULL);
    qn_prof_json_array_end(json);
    qn_prof_json_key(json, "rows");
}

void qn_prof_view_string_part(prof_json *json, const prof_trace *trace, uint32_t id) {
    const prof_str *string = prof_string(trace, id);
    qn_prof_json_part_bytes(json, string->at, string->length);
}

void qn_prof_view_string(prof_json *json, const prof_trace *trace, uint32_t id) {
    if (id == 0) {
        qn_prof_json_null(json);
        return;
    }
    qn_prof_json_string_begin(json);
    qn_prof_view_string_part(json, trace, id);
    qn_prof_json_string_end(json);
}

void qn_prof_view_value(prof_json *json, const prof_trace *trace, prof_val value) {
    if (value.tag == PROF_STR) {
        qn_prof_view_string(json, trace, (uint32_t)value.i);
    } else if (value.tag == PROF_LIST) {
        qn_prof_view_value_text(json, trace, value);
    } else {
        qn_prof_json_num(json, value);
    }
}

void qn_prof_view_value_part(prof_json *json, const prof_trace *trace, prof_val value) {
    if (value.tag == PROF_STR) {
        qn_prof_view_string_part(json, trace, (uint32_t)value.i);
    } else if (value.tag == PROF_LIST) {
        const prof_str *text = prof_list_text(trace, value);
        qn_prof_json_part_bytes(json, text->at, text->length);
    } else {
        qn_prof_json_part_num(json, value);
    }
}

void qn_prof_view_value_text(prof_json *json, const prof_trace *trace, prof_val value) {
    qn_prof_json_string_begin(json);
    qn_prof_view_value_part(json, trace, value);
    qn_prof_json_string_end(json);
}

void qn_prof_view_key_end(prof_json *json) {
    qn_prof_json_string_end(json);
    qn_prof_json_raw(json, ": ", 2);
    json->comma = 0;
}

void qn_prof_view_round0(prof_json *json, prof_num value) {
    char text[400];
    prof_num rounded = qn_prof_round0(value);
    if (rounded.tag != PROF_DBL || !isfinite(rounded.d)) {
        qn_prof_json_num(json, rounded);
        return;
    }
    size_t length = (size_t)qn_decimal_print(text, sizeof text, 'f', 1, rounded.d) - 2; /* a whole number: ends in ".0" */
    qn_prof_json_raw(json, ", ", json->comma ? 2 : 0);
    qn_prof_json_raw(json, text, length);
    json->comma = 1;
}

prof_num qn_prof_view_percent(prof_num a, prof_num b) {
    if (prof_is_zero(b)) {
        return prof_dbl(0.0);
    }
    return qn_prof_round2(prof_dbl(prof_div(prof_mul(prof_int(100), a), b)));
}

void qn_prof_view_yes(prof_json *json, int yes) { qn_prof_json_text(json, yes ? "Yes" : "No"); }

/* ---- Devices ------------------------------------------------------------------------------------------------------ */

int qn_prof_view_has_memory(const prof_trace *trace, const prof_prop *prop) {
    return prof_is_num(prop->total_global_mem) || (trace->dialect != QN_PROFILE_UPSTREAM && prof_is_num(prop->total_mem_mib));
}

/* The divisions are done one by one: the last digit depends on it. */
void qn_prof_view_memory_text(prof_json *json, const prof_prop *prop) {
    double gib = prof_is_num(prop->total_global_mem) ? prof_to_dbl(prop->total_global_mem) / 1024 / 1024 / 1024
                                                     : prof_to_dbl(prop->total_mem_mib) / 1024;
    qn_prof_json_string_begin(json);
    qn_prof_json_part_num(json, qn_prof_round2(prof_dbl(gib)));
    qn_prof_json_part(json, " GB");
    qn_prof_json_string_end(json);
}

prof_num qn_prof_view_device_bytes(const prof_trace *trace, const prof_prop *prop) {
    if (prof_is_a(trace) || (prof_is_b(trace) && !trace->is_gpu)) {
        return prof_is_num(prop->total_mem_mib) ? prof_mul(prop->total_mem_mib, prof_int(1048576)) : prof_absent();
    }
    return prof_is_num(prop->total_global_mem) ? prop->total_global_mem : prof_absent();
}

int qn_prof_view_has_capability(const prof_prop *prop) {
    return prop->compute_major.tag != PROF_ABSENT && prop->compute_minor.tag != PROF_ABSENT;
}

void qn_prof_view_capability_text(prof_json *json, const prof_trace *trace, const prof_prop *prop) {
    qn_prof_json_string_begin(json);
    qn_prof_view_value_part(json, trace, prop->compute_major);
    qn_prof_json_part(json, ".");
    qn_prof_view_value_part(json, trace, prop->compute_minor);
    qn_prof_json_string_end(json);
}

qn_status qn_prof_view_missing(qn_error *error, const prof_trace *trace, const char *view, const char *why) {
    return qn_error_set(error, QN_UNSUPPORTED, "%s has no %s view: %s", trace->path, view, why);
}
