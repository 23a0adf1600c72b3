/* The tree view (section 19): the operators of the first thread, nested as they ran. */
#include "prof/view_util.h"

static const char *kind_word(unsigned kind) {
    switch (kind) {
    case PROF_KIND_OPERATOR: return "Operator";
    case PROF_KIND_STEP: return "ProfilerStep";
    case PROF_KIND_MODULE: return "Module";
    case PROF_KIND_ANNOTATION: return "user_annotation";
    case PROF_KIND_PLMODULE: return "pl_module";
    case PROF_KIND_PLPROFILE: return "pl_profile";
    case PROF_KIND_BACKWARD: return "backward";
    default: return "Python";
    }
}

/* Up to and including the `[` of its children. */
static void open_node(prof_json *json, const prof_trace *trace, const prof_node *node) {
    qn_prof_json_object(json);
    qn_prof_json_key(json, "name");
    qn_prof_view_string(json, trace, node->name);
    qn_prof_json_key(json, "start_time");
    qn_prof_json_num(json, node->start);
    qn_prof_json_key(json, "end_time");
    qn_prof_json_num(json, node->end);
    qn_prof_json_key(json, "type");
    qn_prof_json_text(json, kind_word(node->kind));
    qn_prof_json_key(json, "tid");
    if (node->tid == PROF_NIL) {
        qn_prof_json_null(json);
    } else {
        qn_prof_view_value(json, trace, trace->idents.at[node->tid]);
    }
    qn_prof_json_key(json, "children");
    qn_prof_json_array(json);
}

typedef struct frame {
    uint32_t node, next_kid;
} frame;

qn_status qn_prof_view_tree(const prof_view_context *context, prof_json *json, qn_error *error) {
    const prof_trace *trace = context->trace;
    const prof_tree *tree = trace->lightning ? trace->pl_trees.at : trace->trees.at;
    if ((trace->lightning ? trace->pl_trees.n : trace->trees.n) == 0) {
        return qn_prof_view_missing(error, trace, "tree", "no operator ran");
    }
    QN_VEC(frame) stack = {0};
    uint32_t entering = tree->root;
    do {
        if (entering != PROF_NIL) {
            if (!QN_VEC_ROOM(context->arena, &stack, 1)) {
                return QN_NO_MEMORY;
            }
            stack.at[stack.n++] = (frame){entering, 0};
            open_node(json, trace, &trace->nodes.at[entering]);
        }
        frame *top = &stack.at[stack.n - 1];
        const prof_node *node = &trace->nodes.at[top->node];
        entering = top->next_kid < node->kid_count ? trace->kids.at[node->kid_begin + top->next_kid++] : PROF_NIL;
        if (entering == PROF_NIL) {
            qn_prof_json_array_end(json);
            qn_prof_json_object_end(json);
            stack.n--;
        }
    } while (stack.n);
    return QN_OK;
}
