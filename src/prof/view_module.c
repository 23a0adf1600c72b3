/* The module view (section 19), also for Lightning: the hierarchy of modules with what each one cost. */
#include "prof/prof_text.h"
#include "prof/view_util.h"

static const struct {
    const char *name, *key;
} columns[] = {{"Module Name", "name"},
               {"Occurences", "occurences"}, /* the spelling is part of the format */
               {"Operators", "operators"},
               {"Host Total Time", "host_duration"},
               {"Host Self Time", "self_host_duration"},
               {"Device Total Time", "device_duration"},
               {"Device Self Time", "self_device_duration"}};

static void put_columns(prof_json *json) {
    qn_prof_json_key(json, "columns");
    qn_prof_json_array(json);
    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++) {
        qn_prof_json_object(json);
        qn_prof_json_key(json, "name");
        qn_prof_json_text(json, columns[i].name);
        qn_prof_json_key(json, "type");
        qn_prof_json_text(json, i ? "number" : "string");
        qn_prof_json_key(json, "key");
        qn_prof_json_text(json, columns[i].key);
        qn_prof_json_object_end(json);
    }
    qn_prof_json_array_end(json);
}

static void put_name(prof_json *json, const prof_trace *trace, uint32_t id) {
    static const char PREFIX[] = "nn.Module: ";
    const prof_str *name = prof_string(trace, id);
    size_t skip = qn_prof_starts(name, PREFIX) ? sizeof PREFIX - 1 : 0;
    qn_prof_json_key(json, "name");
    qn_prof_json_bytes(json, name->at + skip, name->length - skip);
}

static void put_num(prof_json *json, const char *key, prof_num value) {
    qn_prof_json_key(json, key);
    qn_prof_json_num(json, value);
}

/* Up to and including the `[` of its children. */
static void open_module(prof_json *json, const prof_trace *trace, const prof_module *module) {
    qn_prof_json_object(json);
    put_name(json, trace, module->name);
    qn_prof_json_key(json, "id");
    qn_prof_view_value(json, trace, module->id);
    put_num(json, "occurences", prof_int(module->occurrences));
    put_num(json, "operators", prof_int(module->operators));
    put_num(json, "host_duration", module->host_total);
    put_num(json, "self_host_duration", module->host_self);
    put_num(json, "device_duration", module->device_total);
    put_num(json, "self_device_duration", module->device_self);
    put_num(json, "avg_duration", prof_dbl(module->average));
    qn_prof_json_key(json, "children");
    qn_prof_json_array(json);
}

typedef struct frame {
    uint32_t module, next_kid;
} frame;

static int put_hierarchy(const prof_view_context *context, prof_json *json, uint32_t root) {
    const prof_trace *trace = context->trace;
    QN_VEC(frame) stack = {0};
    uint32_t entering = root;
    do {
        if (entering != PROF_NIL) {
            if (!QN_VEC_ROOM(context->arena, &stack, 1)) {
                return 0;
            }
            stack.at[stack.n++] = (frame){entering, 0};
            open_module(json, trace, &trace->modules.at[entering]);
        }
        frame *top = &stack.at[stack.n - 1];
        const prof_module *module = &trace->modules.at[top->module];
        entering = top->next_kid < module->kid_count ? trace->module_kids.at[module->kid_begin + top->next_kid++] : PROF_NIL;
        if (entering == PROF_NIL) {
            qn_prof_json_array_end(json);
            qn_prof_json_object_end(json);
            stack.n--;
        }
    } while (stack.n);
    return 1;
}

qn_status qn_prof_view_module(const prof_view_context *context, prof_json *json, qn_error *error) {
    const prof_trace *trace = context->trace;
    if (!trace->has_modules) {
        return qn_prof_view_missing(error, trace, "module", "no module was recorded");
    }
    qn_prof_json_object(json);
    put_columns(json);
    qn_prof_json_key(json, "data");
    qn_prof_json_array(json);
    for (size_t i = 0; i < trace->module_roots.n; i++) {
        if (!put_hierarchy(context, json, trace->module_roots.at[i])) {
            return QN_NO_MEMORY;
        }
    }
    qn_prof_json_array_end(json);
    qn_prof_json_object_end(json);
    return QN_OK;
}
