/* Section 3: what each event is in the dialect at hand. Names are looked at once per distinct string. */
#include <string.h>

#include "prof/prof_passes.h"
#include "prof/prof_sort.h"
#include "prof/prof_text.h"

static const char *const TC_KERNELS[] = {"h884",
                                         "s884",
                                         "h1688",
                                         "s1688",
                                         "hmma",
                                         "i8816",
                                         "16816",
                                         "dgrad_1x1_stride_2x2",
                                         "first_layer_wgrad_kernel",
                                         "conv1x1",
                                         "conv2d_c1_k1",
                                         "direct_group",
                                         "xmma_implicit_gemm",
                                         "xmma_sparse_conv",
                                         "xmma_warp_specialized_implicit_gemm",
                                         "xmma_gemm",
                                         "xmma_sparse_gemm",
                                         "c1688"};

static const char *const TC_OPS[] = {/* after "aten::" */
                                     "_convolution",
                                     "conv1d",
                                     "conv2d",
                                     "conv3d",
                                     "conv_tbc",
                                     "conv_transpose1d",
                                     "conv_transpose2d",
                                     "conv_transpose3d",
                                     "convolution",
                                     "cudnn_convolution",
                                     "cudnn_convolution_transpose",
                                     "prelu",
                                     "addmm",
                                     "addmv",
                                     "addr",
                                     "matmul",
                                     "mm",
                                     "mv",
                                     "linear",
                                     "addbmm",
                                     "baddbmm",
                                     "bmm",
                                     "chain_matmul",
                                     "linalg_multi_dot",
                                     "_thnn_fused_lstm_cell",
                                     "_thnn_fused_gru_cell",
                                     "lstm_cell",
                                     "gru_cell",
                                     "rnn_tanh_cell",
                                     "rnn_relu_cell",
                                     "cudnn_convolution_transpose_backward",
                                     "cudnn_convolution_backward_weight",
                                     "addmm_",
                                     "cudnn_convolution_transpose_backward_weight",
                                     "cudnn_convolution_transpose_backward_input",
                                     "cudnn_convolution_backward_input",
                                     "cudnn_convolution_backward"};

static const char *const TC_OPS_PLAIN[] = {"CudnnConvolutionBackward",
                                           "BmmBackward0",
                                           "CudnnConvolutionTransposeBackward",
                                           "MmBackward",
                                           "AddmvBackward",
                                           "MvBackward",
                                           "AddmmBackward",
                                           "AddbmmBackward"};

static const char BACKWARD[] = "autograd::engine::evaluate_function:";

#define COUNT(array) (sizeof(array) / sizeof *(array))

static int is_tc_op(const prof_str *name) {
    if (qn_prof_starts(name, "aten::")) {
        prof_str rest = {name->at + 6, name->length - 6, 0};
        for (size_t i = 0; i < COUNT(TC_OPS); i++) {
            if (qn_prof_is(&rest, TC_OPS[i])) {
                return 1;
            }
        }
        return 0;
    }
    for (size_t i = 0; i < COUNT(TC_OPS_PLAIN); i++) {
        if (qn_prof_is(name, TC_OPS_PLAIN[i])) {
            return 1;
        }
    }
    return 0;
}

static int is_tc_kernel(const prof_str *name) {
    for (size_t i = 0; i < COUNT(TC_KERNELS); i++) {
        if (qn_prof_contains(name, TC_KERNELS[i])) {
            return 1;
        }
    }
    return 0;
}

static unsigned collective(const prof_str *name, qn_profile_dialect dialect) {
    static const struct {
        const char *prefix;
        unsigned flag;
    } LIBS[] = {{"nccl:", PROF_NAME_NCCL}, {"gloo:", PROF_NAME_GLOO}, {"cncl:", PROF_NAME_CNCL}};
    static const char *const OPS[] = {"broadcast", "reduce", "all_reduce", "all_gather", "reduce_scatter"};
    for (size_t i = 0; i < COUNT(LIBS); i++) {
        int known = !((dialect == QN_PROFILE_UPSTREAM && LIBS[i].flag == PROF_NAME_CNCL) ||
                      (dialect == QN_PROFILE_MLU_A && LIBS[i].flag == PROF_NAME_NCCL));
        if (!known || !qn_prof_starts(name, LIBS[i].prefix)) {
            continue;
        }
        prof_str rest = {name->at + 5, name->length - 5, 0};
        for (size_t op = 0; op < COUNT(OPS); op++) {
            if (qn_prof_is(&rest, OPS[op])) {
                return LIBS[i].flag;
            }
        }
    }
    return 0;
}

static int is_loader(const prof_str *name) {
    return (qn_prof_starts(name, "enumerate(DataLoader)#") && qn_prof_ends(name, ".__next__")) ||
           qn_prof_starts(name, "enumerate(DataPipe)#");
}

static uint16_t name_flags(const prof_trace *trace, uint32_t id) {
    const prof_str *name = prof_string(trace, id);
    unsigned flags = PROF_NAME_KNOWN | collective(name, trace->dialect);
    flags |= is_loader(name) ? PROF_NAME_LOADER : 0;
    flags |= qn_prof_starts(name, "ProfilerStep#") ? PROF_NAME_STEP : 0;
    flags |= qn_prof_starts(name, "Optimizer.step") ? PROF_NAME_OPTIMIZER_STEP : 0;
    flags |= qn_prof_starts(name, "Optimizer.") ? PROF_NAME_OPTIMIZER : 0;
    flags |= qn_prof_is(name, "DataParallel.forward") ? PROF_NAME_DP : 0;
    flags |= qn_prof_is(name, "DistributedDataParallel.forward") ? PROF_NAME_DDP : 0;
    if (qn_prof_starts(name, BACKWARD)) {
        prof_str rest = {name->at + sizeof BACKWARD - 1, name->length - (uint32_t)(sizeof BACKWARD - 1), 0};
        flags |= PROF_NAME_BACKWARD | (qn_prof_is(&rest, " torch::autograd::AccumulateGrad") ? PROF_NAME_ACCUMULATE : 0);
    }
    flags |= qn_prof_starts(name, "nccl") || qn_prof_starts(name, "cncl") ? PROF_NAME_COMM_KERNEL : 0;
    if (trace->dialect != QN_PROFILE_MLU_A) {
        flags |= is_tc_op(name) ? PROF_NAME_TC_OP : 0;
        flags |= is_tc_kernel(name) ? PROF_NAME_TC_KERNEL : 0;
    }
    return (uint16_t)flags;
}

/* ---- Kinds -------------------------------------------------------------------------------------------------------- */

static prof_kind kind_of(const prof_trace *trace, prof_category category) {
    int upstream = trace->dialect == QN_PROFILE_UPSTREAM, a = trace->dialect == QN_PROFILE_MLU_A;
    int older = !upstream && !(trace->options.flags & QN_PROFILE_STRICT); /* words of torch_mlu's earlier lines */
    switch (category) {
    case PROF_CAT_TRACE: return PROF_KIND_TRACE;
    case PROF_CAT_OPERATOR: return PROF_KIND_OPERATOR;
    case PROF_CAT_PYTHON: return PROF_KIND_PYTHON;
    case PROF_CAT_ANNOTATION:
    case PROF_CAT_DEVICE_ANNOTATION: return PROF_KIND_ANNOTATION;
    case PROF_CAT_MLU_ANNOTATION: return older ? PROF_KIND_ANNOTATION : PROF_KIND_NONE;
    case PROF_CAT_RUNTIME:
    case PROF_CAT_PRIVATE_RUNTIME:
    case PROF_CAT_CUDA_DRIVER: return PROF_KIND_RUNTIME;
    case PROF_CAT_CUDA_RUNTIME: return a ? PROF_KIND_NONE : PROF_KIND_RUNTIME;
    case PROF_CAT_OTHER_RUNTIME: return upstream ? PROF_KIND_RUNTIME : PROF_KIND_NONE;
    case PROF_CAT_MLU_RUNTIME: return older ? PROF_KIND_RUNTIME : PROF_KIND_NONE;
    case PROF_CAT_KERNEL: return PROF_KIND_KERNEL;
    case PROF_CAT_MEMCPY: return PROF_KIND_MEMCPY;
    case PROF_CAT_MLU_MEMCPY: return older ? PROF_KIND_MEMCPY : PROF_KIND_NONE;
    case PROF_CAT_MEMSET: return PROF_KIND_MEMSET;
    case PROF_CAT_MLU_MEMSET: return older ? PROF_KIND_MEMSET : PROF_KIND_NONE;
    case PROF_CAT_PYTHON_FUNCTION: return trace->lightning ? PROF_KIND_NONE : PROF_KIND_PYFUNCTION;
    default: return PROF_KIND_NONE;
    }
}

/* Lightning's names lose their prefix; a module's type before ": " goes too. */
static qn_status refine_lightning(prof_trace *trace, prof_event *event) {
    static const char PROFILE[] = "[pl][profile]", MODULE[] = "[pl][module]";
    const prof_str *name = prof_string(trace, event->name);
    const char *at = name->at, *end = name->at + name->length;
    if (qn_prof_starts(name, PROFILE)) {
        event->kind = PROF_KIND_PLPROFILE;
        at += sizeof PROFILE - 1;
    } else if (qn_prof_starts(name, MODULE)) {
        event->kind = PROF_KIND_PLMODULE;
        at += sizeof MODULE - 1;
        for (const char *colon = at; colon + 1 < end; colon++) {
            if (colon[0] == ':' && colon[1] == ' ') {
                at = colon + 2;
                break;
            }
        }
    } else {
        return QN_OK;
    }
    event->name = qn_prof_intern(&trace->text, at, (size_t)(end - at));
    event->name_flags = PROF_NAME_KNOWN;
    return event->name == PROF_NIL ? QN_NO_MEMORY : QN_OK;
}

/* A step's name becomes its number; a name without one is no step the reference could read. */
static qn_status check_step(prof_trace *trace, prof_event *event, qn_error *error) {
    const prof_str *name = prof_string(trace, event->name);
    prof_str number = {name->at + 13, name->length - 13, 0};
    for (uint32_t i = 0; i < number.length; i++) {
        if (number.at[i] == '#') {
            number.length = i;
        }
    }
    uint32_t id = qn_prof_intern(&trace->text, number.at, number.length);
    if (id == PROF_NIL) {
        return QN_NO_MEMORY;
    }
    prof_val written = {{id}, PROF_STR};
    if (qn_prof_thread_key(trace, written).tag != PROF_INT) {
        trace->events_broken++;
        event->kind = PROF_KIND_NONE;
        if (trace->options.flags & QN_PROFILE_STRICT) {
            return qn_error_set(error, QN_FORMAT, "the step name %.80s has no number", prof_string(trace, event->name)->at);
        }
    }
    return QN_OK;
}

static qn_status refine(prof_trace *trace, prof_event *event, qn_error *error) {
    if (event->kind == PROF_KIND_PYFUNCTION && trace->pys.at[event->args].module.tag != PROF_ABSENT) {
        event->kind = PROF_KIND_MODULE;
    }
    if (event->kind == PROF_KIND_OPERATOR || event->kind == PROF_KIND_ANNOTATION) {
        if (event->name_flags & PROF_NAME_STEP) {
            int on_device = event->category == PROF_CAT_DEVICE_ANNOTATION || event->category == PROF_CAT_MLU_ANNOTATION;
            int dropped = on_device && (trace->options.flags & QN_PROFILE_HOST_STEPS);
            event->kind = dropped ? PROF_KIND_NONE : PROF_KIND_STEP;
            return dropped ? QN_OK : check_step(trace, event, error);
        }
        if (trace->lightning && event->kind == PROF_KIND_OPERATOR) {
            return refine_lightning(trace, event);
        }
    }
    return QN_OK;
}

/* ---- Order -------------------------------------------------------------------------------------------------------- */

static prof_num event_time(const void *events, size_t i) { return prof_event_ts(&((const prof_event *)events)[i]); }

static prof_num mem_time(const void *mems, size_t i) { return ((const prof_mem *)mems)[i].ts; }

/* *items becomes another array when the items were not in order. */
static qn_status sort_by_time(qn_arena *arena, void **items, size_t n, size_t size, prof_number_fn time_of) {
    uint32_t *order = qn_arena_resize(arena, NULL, n, sizeof *order);
    int sorted = 0;
    qn_status status = order ? qn_prof_order(arena, n, time_of, *items, order, &sorted) : QN_NO_MEMORY;
    if (status == QN_OK && !sorted) {
        void *in_order = qn_prof_gather(arena, *items, n, size, order);
        status = in_order ? QN_OK : QN_NO_MEMORY;
        if (in_order) {
            qn_arena_release(arena, *items);
            *items = in_order;
        }
    }
    qn_arena_release(arena, order);
    return status;
}

static qn_status order_by_time(prof_trace *trace) {
    prof_num start = prof_absent();
    for (size_t i = 0; i < trace->events.n; i++) {
        prof_num ts = prof_event_ts(&trace->events.at[i]);
        start = start.tag == PROF_ABSENT ? ts : prof_min(start, ts);
    }
    for (size_t i = 0; i < trace->mems.n; i++) {
        start = start.tag == PROF_ABSENT ? trace->mems.at[i].ts : prof_min(start, trace->mems.at[i].ts);
    }
    trace->trace_start = start;
    void *mems = trace->mems.at, *events = trace->events.at;
    qn_status status = sort_by_time(&trace->arena, &mems, trace->mems.n, sizeof *trace->mems.at, mem_time);
    if (status == QN_OK) {
        status = sort_by_time(&trace->arena, &events, trace->events.n, sizeof *trace->events.at, event_time);
    }
    trace->mems.at = mems;
    trace->mems.cap = trace->mems.n;
    trace->events.at = events;
    trace->events.cap = trace->events.n;
    return status;
}

qn_status qn_prof_classify(prof_trace *trace, qn_error *error) {
    size_t n_strings = trace->text.strs.n, kept = 0;
    uint16_t *flags = qn_arena_resize(&trace->arena, NULL, n_strings, sizeof *flags);
    if (!flags) {
        return QN_NO_MEMORY;
    }
    memset(flags, 0, n_strings * sizeof *flags);
    qn_status status = QN_OK;
    for (size_t i = 0; i < trace->events.n && status == QN_OK; i++) {
        prof_event *event = &trace->events.at[i];
        event->kind = (uint8_t)kind_of(trace, (prof_category)event->category);
        if (event->kind == PROF_KIND_NONE) {
            continue;
        }
        if (!flags[event->name]) {
            flags[event->name] = name_flags(trace, event->name);
        }
        event->name_flags = flags[event->name];
        status = refine(trace, event, error);
        if (event->kind != PROF_KIND_NONE) {
            trace->events.at[kept++] = *event;
        }
    }
    trace->events.n = kept;
    qn_arena_release(&trace->arena, flags);
    return status == QN_OK ? order_by_time(trace) : status;
}
