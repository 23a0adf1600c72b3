/* Section 17, first part: which operator each memory record belongs to. One cursor per thread walks the tree forward only, so
 * records and nodes are each passed once. */
#include <string.h>

#include "prof/prof_passes.h"
#include "prof/prof_text.h"

typedef struct frame {
    uint32_t node, next;
} frame;

typedef struct cursor {
    frame at;
    QN_VEC(frame) stack; /* the nodes above, from the root */
    int finished;
} cursor;

static qn_status name_device(prof_trace *trace, prof_mem *mem) {
    const char *word = NULL;
    char name[8 + PROF_NUM_TEXT];
    int mlu = trace->dialect != QN_PROFILE_UPSTREAM, gpu = trace->dialect != QN_PROFILE_MLU_A;
    if (prof_same(mem->device_type, prof_int(0))) {
        mem->device = qn_prof_intern_c(&trace->text, "CPU");
        return mem->device == PROF_NIL ? QN_NO_MEMORY : QN_OK;
    }
    if (gpu && prof_same(mem->device_type, prof_int(1))) {
        word = "GPU";
    } else if (mlu && prof_same(mem->device_type, prof_int(20))) {
        word = "MLU";
    }
    if (!word) {
        return QN_OK; /* no name: the views leave the record out */
    }
    uint32_t id = qn_prof_value_text(&trace->text, mem->device_id);
    const prof_str *text = id == PROF_NIL ? NULL : prof_string(trace, id);
    size_t length = text && text->length < PROF_NUM_TEXT ? text->length : 0;
    memcpy(name, word, 3);
    memcpy(name + 3, text ? text->at : "", length);
    mem->device = text ? qn_prof_intern(&trace->text, name, 3 + length) : PROF_NIL;
    return mem->device == PROF_NIL ? QN_NO_MEMORY : QN_OK;
}

/* ---- The cursor --------------------------------------------------------------------------------------------------- */

static qn_status enter(prof_trace *trace, cursor *c, uint32_t kid) {
    if (!QN_VEC_ROOM(&trace->arena, &c->stack, 1)) {
        return QN_NO_MEMORY;
    }
    c->stack.at[c->stack.n++] = c->at;
    c->at.node = kid;
    c->at.next = 0;
    trace->nodes.at[kid].visited = 1;
    return QN_OK;
}

/* Moves to the deepest node that holds the time `ts`; *found says whether there is one. */
static qn_status seek(prof_trace *trace, cursor *c, prof_num ts, int *found) {
    *found = 0;
    while (!c->finished) {
        const prof_node *node = &trace->nodes.at[c->at.node];
        if (prof_lt(ts, node->start)) {
            return QN_OK;
        }
        if (prof_ge(ts, node->end)) {
            if (c->stack.n == 0) {
                c->finished = 1;
                return QN_OK;
            }
            c->at = c->stack.at[--c->stack.n];
            c->at.next++;
            continue;
        }
        while (c->at.next < node->kid_count) {
            uint32_t kid = trace->kids.at[node->kid_begin + c->at.next];
            if (prof_lt(ts, trace->nodes.at[kid].start)) {
                break;
            }
            if (prof_ge(ts, trace->nodes.at[kid].end)) {
                c->at.next++;
                continue;
            }
            if (enter(trace, c, kid) != QN_OK) {
                return QN_NO_MEMORY;
            }
            node = &trace->nodes.at[c->at.node];
        }
        *found = 1;
        return QN_OK;
    }
    return QN_OK;
}

static void file_record(prof_trace *trace, const cursor *c, prof_mem *mem) {
    const prof_node *node = &trace->nodes.at[c->at.node];
    if (!node->proper) {
        return;
    }
    mem->node = c->at.node;
    if (prof_gt(mem->bytes, prof_int(0))) {
        mem->op_name = node->name;
        mem->parent_name = c->stack.n ? trace->nodes.at[c->stack.at[c->stack.n - 1].node].name : 0;
    }
}

/* The root of each integer thread's tree. */
static qn_status map_roots(prof_trace *trace, prof_map *roots) {
    qn_prof_map_init(roots, &trace->arena);
    for (size_t i = 0; i < trace->trees.n; i++) {
        if (!qn_prof_map_put(roots, trace->trees.at[i].thread, trace->trees.at[i].root)) {
            return QN_NO_MEMORY;
        }
    }
    return QN_OK;
}

static qn_status assign(prof_trace *trace) {
    prof_map threads, roots; /* thread as written to its cursor; integer thread to node */
    QN_VEC(cursor) cursors = {NULL, 0, 0};
    qn_prof_map_init(&threads, &trace->arena);
    if (map_roots(trace, &roots) != QN_OK) {
        return QN_NO_MEMORY;
    }
    for (size_t i = 0; i < trace->mems.n; i++) {
        prof_mem *mem = &trace->mems.at[i];
        prof_val thread = trace->idents.at[mem->tid];
        uint32_t *index = qn_prof_map_put(&threads, thread, PROF_NIL);
        if (!index || !QN_VEC_ROOM(&trace->arena, &cursors, 1)) {
            return QN_NO_MEMORY;
        }
        if (*index == PROF_NIL) {
            const uint32_t *root = qn_prof_map_find(&roots, thread);
            cursor fresh;
            memset(&fresh, 0, sizeof fresh);
            fresh.finished = !root;
            fresh.at.node = root ? *root : 0;
            *index = (uint32_t)cursors.n;
            cursors.at[cursors.n++] = fresh;
            if (!fresh.finished) {
                trace->nodes.at[fresh.at.node].visited = 1;
            }
        }
        int found;
        if (seek(trace, &cursors.at[*index], mem->ts, &found) != QN_OK) {
            return QN_NO_MEMORY;
        }
        if (found) {
            file_record(trace, &cursors.at[*index], mem);
        }
    }
    for (size_t i = 0; i < cursors.n; i++) {
        QN_VEC_FREE(&trace->arena, &cursors.at[i].stack);
    }
    QN_VEC_FREE(&trace->arena, &cursors);
    qn_prof_map_free(&threads);
    qn_prof_map_free(&roots);
    return QN_OK;
}

/* A release is named after the operator that allocated its address. */
static qn_status inherit(prof_trace *trace) {
    prof_map open; /* address to record, PROF_NIL once released */
    qn_prof_map_init(&open, &trace->arena);
    for (uint32_t i = 0; i < trace->mems.n; i++) {
        prof_mem *mem = &trace->mems.at[i];
        if (mem->address.tag == PROF_ABSENT) {
            continue;
        }
        if (prof_gt(mem->bytes, prof_int(0))) {
            uint32_t *at = qn_prof_map_put(&open, mem->address, i);
            if (!at) {
                return QN_NO_MEMORY;
            }
            *at = i;
            continue;
        }
        uint32_t *at = qn_prof_map_find(&open, mem->address);
        if (at && *at != PROF_NIL) {
            mem->op_name = trace->mems.at[*at].op_name;
            mem->parent_name = trace->mems.at[*at].parent_name;
            *at = PROF_NIL;
        }
    }
    qn_prof_map_free(&open);
    return QN_OK;
}

/* Records side by side under their nodes, in time order. */
static qn_status lay_out(prof_trace *trace) {
    uint32_t begin = 0;
    for (size_t i = 0; i < trace->mems.n; i++) {
        if (trace->mems.at[i].node != PROF_NIL) {
            trace->nodes.at[trace->mems.at[i].node].mem_count++;
        }
    }
    for (size_t i = 0; i < trace->nodes.n; i++) {
        trace->nodes.at[i].mem_begin = begin;
        begin += trace->nodes.at[i].mem_count;
        trace->nodes.at[i].mem_count = 0;
    }
    if (!QN_VEC_ROOM(&trace->arena, &trace->node_mems, (size_t)begin)) {
        return QN_NO_MEMORY;
    }
    for (uint32_t i = 0; i < trace->mems.n; i++) {
        if (trace->mems.at[i].node != PROF_NIL) {
            prof_node *node = &trace->nodes.at[trace->mems.at[i].node];
            trace->node_mems.at[node->mem_begin + node->mem_count++] = i;
        }
    }
    trace->node_mems.n = begin;
    return QN_OK;
}

qn_status qn_prof_memory(prof_trace *trace) {
    qn_status status = QN_OK;
    for (size_t i = 0; i < trace->mems.n && status == QN_OK; i++) {
        prof_mem *mem = &trace->mems.at[i];
        const prof_mem *before = i ? mem - 1 : NULL;
        if (before && prof_same(mem->device_type, before->device_type) && prof_same(mem->device_id, before->device_id) &&
            mem->device_id.tag == before->device_id.tag) {
            mem->device = before->device; /* 1 and 1.0 are the same device type, but are written differently in its name */
        } else {
            status = name_device(trace, mem);
        }
    }
    status = status == QN_OK && trace->mems.n ? assign(trace) : status;
    status = status == QN_OK ? inherit(trace) : status;
    return status == QN_OK ? lay_out(trace) : status;
}
