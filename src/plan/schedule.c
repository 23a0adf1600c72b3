/* From a graph to a schedule: bind, optimise, lay out, share memory, then one step for each node that computes, with the kernel that
 * will run it. */
#include "base/reason.h"
#include "base/memory.h"
#include "op/guard.h"
#include "op/op_bytes.h"
#include "plan/bodies.h"
#include "vulkan/vulkan.h"

static uint64_t bytes_of(const qn_tensor *t) {
    uint64_t bytes = 0;
    return qn_tensor_bytes((qn_dtype)t->dtype, t->rank, t->shape, &bytes) == QN_OK ? bytes : 0;
}

/* ---- Steps */

/* Which sources keep their data from run to run: weights and constants that no step writes over. */
static uint32_t constant_sources(const qn_schedule *p, const qn_ir_node *n, const uint8_t *is_written) {
    uint32_t mask = 0;
    for (int i = 0; i < n->n_src; i++) {
        qn_val v = qn_ir_sources(p->graph, n)[i];
        if (v == QN_VAL_NONE) continue;
        qn_val root = p->slots[v].root;
        qn_storage storage = p->slots[root].storage;
        if ((storage == QN_STORAGE_PARAM || storage == QN_STORAGE_CONSTANT) && !is_written[root]) mask |= 1u << i;
    }
    return mask;
}

/* The sources that a step's kernel wants packed together, in their order; QN_VAL_NONE behind the last. */
static void packed_sources(const qn_schedule *p, const qn_plan_step *s, qn_val *values) {
    const qn_ir_node *node = &p->graph->nodes.at[s->node];
    int n = 0;
    for (int i = 0; i < s->call.n_src && n < QN_PLAN_PACKED; i++)
        if (i == s->cpu.pack_slot || (s->cpu.pack_more >> i & 1)) values[n++] = qn_ir_sources(p->graph, node)[i];
    while (n < QN_PLAN_PACKED) values[n++] = QN_VAL_NONE;
}

/* The packed sources the step's kernel asked for: those that are there already, or new ones. */
static int share_pack(qn_schedule *p, qn_plan_step *s) {
    qn_val mine[QN_PLAN_PACKED], other[QN_PLAN_PACKED];
    packed_sources(p, s, mine);
    for (size_t i = 0; i < p->packs.n; i++) {
        const qn_plan_step *first = &p->steps.at[p->packs.at[i].step];
        packed_sources(p, first, other);
        qn_cpu_form there = qn_cpu_form_of(&first->cpu), wanted = qn_cpu_form_of(&s->cpu);
        if (memcmp(mine, other, sizeof mine) != 0 || !qn_cpu_form_same(&there, &wanted)) continue;
        s->packed = (int32_t)i;
        return 1;
    }
    if (!QN_VEC_ROOM(&p->arena, &p->packs, 1)) return 0;
    s->packed = (int32_t)p->packs.n;
    qn_plan_pack *pack = &p->packs.at[p->packs.n++];
    *pack = (qn_plan_pack){.step = (int32_t)(s - p->steps.at), .bytes = s->cpu.packed_bytes, .shared = -1};
    memcpy(pack->values, mine, sizeof mine);
    p->totals.packed_bytes += s->cpu.packed_bytes;
    return 1;
}

static qn_status choose_kernel(qn_schedule *p, qn_plan_step *s, const qn_schedule_options *o, size_t reference_scratch,
                               const uint8_t *is_written, qn_error *error) {
    size_t scratch = reference_scratch;
    s->run = qn_op_rules_of(s->call.op)->reference;
    /* What runs on the device has a kernel here for the search of a bad value only: it is not worth a packed weight. */
    s->cpu.constant = o->is_body || s->on_device ? 0 : constant_sources(p, &p->graph->nodes.at[s->node], is_written);
    if (o->cpu_levels && qn_cpu_prepare(o->cpu_levels, &s->call, &s->cpu)) {
        scratch = s->cpu.workspace;
        if (s->cpu.pack && !share_pack(p, s)) return qn_error_set(error, QN_NO_MEMORY, "no memory for a step");
        p->totals.n_native += !s->on_device;
    } else {
        s->cpu.run = NULL;
        p->totals.n_reference += !s->on_device;
    }
    if (scratch > p->scratch) p->scratch = scratch;
    return QN_OK;
}

/* Whether the device takes the step; if not, why, and under QN_PLAN_STRICT that is the end of the plan. */
static qn_status ask_device(qn_schedule *p, qn_plan_step *s, const qn_schedule_options *o, qn_error *error) {
    s->reason = -1;
    if (!o->device) return QN_OK;
    qn_device_step step = {.op = s->call.op, .subop = s->call.subop, .attr = s->call.attr};
    step.n_src = s->call.n_src;
    step.n_dst = s->call.n_dst;
    for (int i = 0; i < step.n_src; i++) step.src[i] = s->src[i];
    for (int i = 0; i < step.n_dst; i++) step.dst[i] = s->dst[i];
    qn_error why = {QN_OK, ""};
    if (qn_device_supports(o->device, &step, &why) == QN_OK) {
        s->on_device = 1;
        p->totals.n_device++;
        return QN_OK;
    }
    if (o->flags & QN_PLAN_STRICT)
        return qn_error_set(error, QN_UNSUPPORTED, "node %d: the device cannot run it: %.400s", s->node, why.text);
    size_t n = strlen(why.text) + 1;
    char *text = qn_arena_alloc(&p->arena, n, 1);
    if (!text || !QN_VEC_ROOM(&p->arena, &p->reasons, 1)) return qn_error_set(error, QN_NO_MEMORY, "no memory for a step");
    memcpy(text, why.text, n);
    s->reason = (int32_t)p->reasons.n;
    p->reasons.at[p->reasons.n++] = text;
    return QN_OK;
}

/* The guard once more, on the layouts the step will really have; from it the scratch and the index limits. */
static qn_status check_step(qn_schedule *p, qn_plan_step *s, const qn_ir_node *n, size_t *scratch, qn_error *error) {
    qn_request q = qn_plan_request(p->graph, n, p->tensors);
    qn_guarded g;
    qn_result result;
    qn_result_begin(&q, &result);
    if (qn_guard_sources(&q, 0, &g, &result) != QN_OK) {
        qn_result_to_error(&result, error);
        return qn_error_wrap(error, "node %d", s->node);
    }
    *scratch = g.infer.workspace;
    s->flops = qn_op_flops(&g.infer);
    for (int i = 0; i < n->n_src; i++)
        if (s->src[i]) s->bytes += qn_op_bytes_read(g.info, n->op, i, bytes_of(s->src[i]), s->src);
    for (int i = 0; i < n->n_out; i++) s->bytes += bytes_of(s->dst[i]);
    for (int i = 0; i < n->n_src; i++) {
        if (!s->src[i] || !(g.info->src[i].flags & QN_SLOT_INDEX)) continue;
        if (s->n_index == QN_PLAN_INDEX_MAX)
            return qn_error_set(error, QN_UNSUPPORTED, "node %d: too many index sources", s->node);
        s->index[s->n_index++] = (qn_plan_index){s->src[i], g.infer.index_limit[i], i};
    }
    return QN_OK;
}

static qn_status add_step(qn_schedule *p, int32_t k, const qn_schedule_options *o, const uint8_t *is_written, qn_error *error) {
    const qn_ir_node *n = &p->graph->nodes.at[k];
    const qn_op_info *info = qn_op_describe(n->op);
    size_t scratch = 0;
    if (info->is_view) return QN_OK;
    qn_plan_step *s = &p->steps.at[p->steps.n++];
    memset(s, 0, sizeof *s);
    s->node = k;
    s->packed = -1;
    s->src = qn_arena_alloc(&p->arena, (size_t)info->n_src + (size_t)info->n_dst, sizeof *s->src);
    if (!s->src) return qn_error_set(error, QN_NO_MEMORY, "no memory for a step");
    s->dst = s->src + info->n_src;
    for (int i = 0; i < n->n_src; i++) {
        qn_val v = qn_ir_sources(p->graph, n)[i];
        s->src[i] = v == QN_VAL_NONE ? NULL : &p->tensors[v];
    }
    for (int i = 0; i < n->n_out; i++) s->dst[i] = &p->tensors[n->out + i];
    s->call = (qn_call){n->op, n->subop, n->n_src, n->n_out, s->src, s->dst, n->attr ? n->attr : info->attr_default, NULL};
    QN_TRY(check_step(p, s, n, &scratch, error));
    QN_TRY(ask_device(p, s, o, error));
    if (info->n_body) return qn_plan_control_create(p, s, o, error);
    return choose_kernel(p, s, o, scratch, is_written, error);
}

/* ---- The whole */

/* Which ops have fast kernels where the plan will run: fusion must not make one that has none of ops that have. */
static int has_kernel(void *user, int op, int subop) {
    const qn_schedule_options *o = user;
    (void)subop;
    return o->device ? qn_vulkan_has_op(op) : !o->cpu_levels || qn_cpu_has_kernel(op);
}

/* What an input holds may be set or fed anew before an output is looked at, or fed on from it: an output that is an input, or a view
 * of one, has a copy. */
static qn_status own_outputs(qn_schedule *p, qn_error *error) {
    qn_graph *g = p->graph;
    for (size_t i = 0; i < g->outputs.n; i++) {
        qn_val v = g->outputs.at[i].value, root = v;
        while (g->values.at[root].kind == QN_VALUE_RESULT && qn_op_describe(g->nodes.at[g->values.at[root].node].op)->is_view)
            root = qn_ir_sources(g, &g->nodes.at[g->values.at[root].node])[0];
        if (g->values.at[root].kind != QN_VALUE_INPUT) continue;
        qn_val copy = qn_graph_op(g, QN_OP_cont, 0, 1, &v, NULL);
        if (copy == QN_VAL_NONE) return qn_graph_error(g, error);
        g->outputs.at[i].value = copy;
        p->totals.n_copies++;
    }
    return QN_OK;
}

/* Bound, optimised, laid out: each a graph made of the one before. */
static qn_status make_graph(qn_schedule *p, const qn_graph *graph, const qn_schedule_options *o, qn_error *error) {
    qn_graph *bound = NULL, *better = NULL;
    qn_pass_options passes = {.size = sizeof passes};
    if (o->passes) passes = *o->passes;
    if (!passes.claims) {
        passes.claims = has_kernel;
        passes.claims_user = (void *)(uintptr_t)o;
    }
    qn_status status = qn_graph_bind(graph, o->symbols, &bound, error);
    if (status == QN_OK && !(o->flags & QN_PLAN_NO_PASSES)) status = qn_graph_optimise(bound, &passes, &better, error);
    if (status == QN_OK) status = qn_plan_relayout(better ? better : bound, o->is_body, &p->graph, &p->totals.n_copies, error);
    for (size_t k = 0; better && status == QN_OK && k < better->nodes.n;
         k++) /* those of the layout pass; the others are rewritten */
        p->totals.n_copies += better->nodes.at[k].op == QN_OP_cont;
    if (status == QN_OK && !o->is_body) status = own_outputs(p, error);
    qn_graph_destroy(bound);
    qn_graph_destroy(better);
    return status;
}

static void mark_written(const qn_schedule *p, uint8_t *is_written) {
    for (size_t k = 0; k < p->graph->nodes.n; k++) {
        const qn_ir_node *n = &p->graph->nodes.at[k];
        if (qn_op_describe(n->op)->is_view) continue;
        for (int i = 0; i < n->n_out; i++) is_written[p->slots[n->out + i].root] = 1;
    }
}

static void add_up_leaves(qn_schedule *p) {
    for (size_t v = 0; v < p->graph->values.n; v++) {
        const qn_plan_slot *s = &p->slots[v];
        if (s->storage == QN_STORAGE_CONSTANT) p->totals.constant_bytes += s->bytes;
        if (s->storage == QN_STORAGE_INPUT) p->totals.input_bytes = qn_plan_sum(p->totals.input_bytes, s->bytes);
        if (s->storage == QN_STORAGE_PARAM) p->totals.param_bytes = qn_plan_sum(p->totals.param_bytes, s->bytes);
    }
    p->totals.scratch_bytes = p->scratch;
    p->totals.n_steps = (int32_t)p->steps.n + p->n_body_steps;
}

static qn_status fill_schedule(qn_schedule *p, const qn_schedule_options *o, qn_error *error) {
    size_t n = p->graph->values.n;
    p->slots = qn_arena_alloc(&p->arena, n, sizeof *p->slots);
    p->tensors = qn_arena_alloc(&p->arena, n, sizeof *p->tensors);
    uint8_t *is_written = qn_arena_alloc(&p->arena, n, 1);
    if (!p->slots || !p->tensors || !is_written || !QN_VEC_ROOM(&p->arena, &p->steps, p->graph->nodes.n + 1))
        return qn_error_set(error, QN_NO_MEMORY, "no memory to plan %zu values", n);
    QN_TRY(qn_plan_assign(p, error));
    qn_plan_free_outputs(p, o->n_direct);
    QN_TRY(qn_plan_place(p, error));
    mark_written(p, is_written);
    for (int32_t k = 0; k < (int32_t)p->graph->nodes.n; k++) QN_TRY(add_step(p, k, o, is_written, error));
    add_up_leaves(p);
    return QN_OK;
}

qn_status qn_schedule_create(const qn_graph *graph, const qn_schedule_options *options, qn_schedule **schedule, qn_error *error) {
    qn_allocator memory = qn_memory_default();
    qn_schedule *p = memory.allocate(memory.user, sizeof *p, QN_PLAN_ALIGN);
    *schedule = NULL;
    if (!p) return qn_error_set(error, QN_NO_MEMORY, "no memory for a plan");
    memset(p, 0, sizeof *p);
    qn_arena_init(&p->arena, 0);
    qn_status status = make_graph(p, graph, options, error);
    if (status == QN_OK) status = fill_schedule(p, options, error);
    if (status == QN_OK) *schedule = p;
    else qn_schedule_destroy(p);
    return status;
}

void qn_schedule_destroy(qn_schedule *p) {
    if (!p) return;
    qn_allocator memory = qn_memory_default();
    for (size_t i = 0; i < p->packs.n; i++)
        if (p->packs.at[i].data && p->packs.at[i].shared < 0)
            memory.release(memory.user, p->packs.at[i].data, p->packs.at[i].bytes);
    for (size_t i = 0; i < p->steps.n; i++) qn_plan_control_destroy(p->steps.at[i].control);
    qn_graph_destroy(p->graph);
    qn_arena_destroy(&p->arena);
    memory.release(memory.user, p, sizeof *p);
}

void qn_schedule_point(qn_schedule *p, void *memory, void *scratch, qn_schedule_leaf_fn leaf, void *user) {
    for (size_t v = 0; v < p->graph->values.n; v++) {
        qn_val number = p->slots[v].root;
        const qn_plan_slot *root = &p->slots[number];
        qn_tensor *t = &p->tensors[v];
        t->size = root->bytes;
        if (root->storage == QN_STORAGE_CONSTANT) {
            const qn_ir_constant *c = &p->graph->constants.at[p->graph->values.at[number].data];
            memcpy(&t->data, &c->data, sizeof t->data); /* never written: no op runs in place on a constant */
        } else if (root->storage == QN_STORAGE_ARENA) {
            t->data = (char *)memory + root->offset;
        } else {
            t->data = leaf(user, number);
        }
    }
    for (size_t i = 0; i < p->steps.n; i++) {
        qn_plan_step *s = &p->steps.at[i];
        s->call.workspace = scratch;
        if (s->control) qn_plan_control_point(s->control, scratch);
    }
}
