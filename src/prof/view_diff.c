/* The diff view (section 20): two runs node by node, or one node with its children when the request names a path. */
#include <string.h>

#include "prof/view_util.h"

static void put_num(prof_json *json, const char *key, prof_num value) {
    qn_prof_json_key(json, key);
    qn_prof_json_num(json, value);
}

static void put_agg(prof_json *json, const prof_trace *trace, const prof_diff_agg *agg) {
    qn_prof_json_object(json);
    qn_prof_json_key(json, "name");
    qn_prof_view_string(json, trace, agg->name);
    put_num(json, "calls", prof_int(agg->calls));
    if (prof_is_b(trace)) {
        put_num(json, "kernel_calls", prof_int(agg->kernel_calls));
        qn_prof_json_key(json, "kernel_name_list_str");
        qn_prof_json_bytes(json, agg->kernel_names, agg->kernel_names_length);
        qn_prof_json_key(json, "kernel_calls_list_str");
        qn_prof_json_text(json, agg->kernel_counts);
    }
    put_num(json, "host_duration", agg->host);
    put_num(json, "device_duration", agg->device);
    put_num(json, "self_host_duration", agg->host_self);
    put_num(json, "self_device_duration", agg->device_self);
    qn_prof_json_object_end(json);
}

static void put_side(prof_json *json, const char *key, const prof_trace *trace, const prof_diff_side *side) {
    qn_prof_json_key(json, key);
    qn_prof_json_object(json);
    qn_prof_json_key(json, "name");
    qn_prof_json_bytes(json, side->name, side->name_length);
    put_num(json, "duration", side->duration);
    put_num(json, "device_duration", side->device);
    put_num(json, "total_duration", side->total);
    qn_prof_json_key(json, "aggs");
    qn_prof_json_array(json);
    for (size_t i = 0; i < side->aggs.n; i++) {
        put_agg(json, trace, &side->aggs.at[i]);
    }
    qn_prof_json_array_end(json);
    qn_prof_json_object_end(json);
}

static void put_sides(prof_json *json, const prof_diff *diff, uint32_t node) {
    qn_prof_json_object(json);
    put_side(json, "left", diff->left, &diff->nodes.at[node].left);
    put_side(json, "right", diff->right, &diff->nodes.at[node].right);
}

static void open_children(prof_json *json) {
    qn_prof_json_key(json, "children");
    qn_prof_json_array(json);
}

static void close_children(prof_json *json) {
    qn_prof_json_array_end(json);
    qn_prof_json_object_end(json);
}

typedef struct frame {
    uint32_t node, next_kid;
} frame;

static qn_status put_all(const prof_view_context *context, prof_json *json, const prof_diff *diff) {
    QN_VEC(frame) stack = {0};
    uint32_t entering = 0;
    do {
        if (entering != PROF_NIL) {
            if (!QN_VEC_ROOM(context->arena, &stack, 1)) {
                return QN_NO_MEMORY;
            }
            stack.at[stack.n++] = (frame){entering, 0};
            put_sides(json, diff, entering);
            open_children(json);
        }
        frame *top = &stack.at[stack.n - 1];
        const prof_diff_node *node = &diff->nodes.at[top->node];
        entering = top->next_kid < node->kid_count ? diff->kids.at[node->kid_begin + top->next_kid++] : PROF_NIL;
        if (entering == PROF_NIL) {
            close_children(json);
            stack.n--;
        }
    } while (stack.n);
    return QN_OK;
}

/* ---- One node ----------------------------------------------------------------------------------------------------- */

/* The node a path "0-1-..." leads to, PROF_NIL when there is none. The first number names the root. */
static uint32_t find_node(const prof_diff *diff, const char *path) {
    uint32_t node = PROF_NIL;
    for (int first = 1;; first = 0) {
        size_t digits = strspn(path, "0123456789");
        uint64_t number = 0;
        if (digits == 0 || digits > 9) {
            return PROF_NIL;
        }
        for (size_t i = 0; i < digits; i++) {
            number = number * 10 + (uint64_t)(path[i] - '0');
        }
        if (number >= (first ? 1 : diff->nodes.at[node].kid_count)) {
            return PROF_NIL;
        }
        node = first ? 0 : diff->kids.at[diff->nodes.at[node].kid_begin + number];
        path += digits;
        if (*path == 0) {
            return node;
        }
        if (*path++ != '-') {
            return PROF_NIL;
        }
    }
}

static void put_path(prof_json *json, const char *path, int64_t kid) {
    qn_prof_json_key(json, "path");
    qn_prof_json_string_begin(json);
    qn_prof_json_part(json, path);
    if (kid >= 0) {
        qn_prof_json_part(json, "-");
        qn_prof_json_part_num(json, prof_int(kid));
    }
    qn_prof_json_string_end(json);
}

static void put_one(prof_json *json, const prof_diff *diff, uint32_t id, const char *path) {
    const prof_diff_node *node = &diff->nodes.at[id];
    put_sides(json, diff, id);
    put_path(json, path, -1);
    open_children(json);
    for (uint32_t i = 0; i < node->kid_count; i++) {
        put_sides(json, diff, diff->kids.at[node->kid_begin + i]);
        put_path(json, path, i);
        qn_prof_json_object_end(json);
    }
    close_children(json);
}

qn_status qn_prof_view_diff(const prof_view_context *context, prof_json *json, qn_error *error) {
    prof_diff diff;
    const char *path = context->request->path;
    memset(&diff, 0, sizeof diff);
    qn_status status = qn_prof_diff_build(context->arena, context->trace, context->other, &diff);
    if (status == QN_UNSUPPORTED) {
        return qn_prof_view_missing(error, context->trace, "diff", "modules lie too deep in one another");
    }
    if (status != QN_OK) {
        return status;
    }
    if (diff.nodes.n == 0) {
        return qn_prof_view_missing(error, context->trace, "diff", "no operator ran");
    }
    if (!path) {
        return put_all(context, json, &diff);
    }
    uint32_t node = find_node(&diff, path);
    if (node == PROF_NIL) {
        return qn_error_set(error, QN_ARGUMENT, "the diff has no node '%s'", path);
    }
    put_one(json, &diff, node, path);
    return QN_OK;
}
