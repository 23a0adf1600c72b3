/* What the analyser knows about one trace. Readers fill the first half, the passes of section 0 the rest; emitters only read.
 *
 * Conventions. Everything is an index: strings (0 is "absent"), lists, nodes, runtimes, device nodes. PROF_NIL is "no index".
 * Arrays are QN_VECs (at, n) owned by trace->arena. A prof_num is absent, integer or double; print it with
 * qn_prof_json_num and it comes out as the reference prints it. Comments name the section of the specification. */
#ifndef QUERN_PROF_MODEL_H
#define QUERN_PROF_MODEL_H

#include <quern/profile.h>

#include "base/arena.h"
#include "base/hash.h"
#include "prof/prof_interval.h"
#include "prof/prof_num.h"

#define PROF_NIL UINT32_MAX

/* ---- Text --------------------------------------------------------------------------------------------------------- */

typedef struct prof_str { /* interned: equal ids are equal texts. UTF-8; a lone surrogate is kept as its three bytes */
    const char *at;       /* followed by a 0 byte; may hold 0 bytes itself */
    uint32_t length;
    uint32_t hash;
} prof_str;

typedef struct prof_list { /* a JSON array or object among the arguments; equal ids were written with equal bytes */
    const char *json;      /* as written in the file */
    uint32_t json_length, hash;
    uint32_t text; /* string id of text(v), section 1: compare and group by this, not by the list id */
} prof_list;

typedef struct prof_slots { /* an open-addressing table from hash to index; see prof_text.c */
    uint32_t *at;           /* index + 1, 0 is free */
    size_t n, mask;
    qn_hash_key key; /* of its hashes; none before there is room for one */
} prof_slots;

typedef struct prof_text {
    qn_arena *arena;
    QN_VEC(prof_str) strs;   /* 0 is the absent string, printed as None */
    QN_VEC(prof_list) lists; /* 0 is the empty list [] */
    prof_slots str_slots, list_slots;
} prof_text;

/* ---- Events (section 3) ------------------------------------------------------------------------------------------- */

typedef enum prof_kind {
    PROF_KIND_NONE, /* not used in this dialect */
    PROF_KIND_TRACE,
    PROF_KIND_OPERATOR,
    PROF_KIND_PYTHON,
    PROF_KIND_ANNOTATION,
    PROF_KIND_STEP,
    PROF_KIND_RUNTIME,
    PROF_KIND_KERNEL,
    PROF_KIND_MEMCPY,
    PROF_KIND_MEMSET,
    PROF_KIND_PYFUNCTION,
    PROF_KIND_MODULE,
    PROF_KIND_PLPROFILE,
    PROF_KIND_PLMODULE,
    PROF_KIND_BACKWARD /* of nodes only */
} prof_kind;

typedef enum prof_category { /* as written, lower-cased; which kind it is depends on the dialect */
                             PROF_CAT_NONE,
                             PROF_CAT_TRACE,
                             PROF_CAT_OPERATOR,
                             PROF_CAT_PYTHON,
                             PROF_CAT_ANNOTATION,
                             PROF_CAT_DEVICE_ANNOTATION,
                             PROF_CAT_MLU_ANNOTATION,
                             PROF_CAT_RUNTIME,       /* runtime */
                             PROF_CAT_CUDA_RUNTIME,  /* cuda_runtime */
                             PROF_CAT_OTHER_RUNTIME, /* mtia_, glow_, xpu_runtime */
                             PROF_CAT_PRIVATE_RUNTIME,
                             PROF_CAT_MLU_RUNTIME,
                             PROF_CAT_CUDA_DRIVER,
                             PROF_CAT_KERNEL,
                             PROF_CAT_MEMCPY,
                             PROF_CAT_MLU_MEMCPY,
                             PROF_CAT_MEMSET,
                             PROF_CAT_MLU_MEMSET,
                             PROF_CAT_PYTHON_FUNCTION
} prof_category;

typedef union prof_payload {
    int64_t i;
    double d;
} prof_payload;

typedef struct prof_event { /* read with the prof_event_* helpers below */
    prof_payload ts, dur, external, correlation;
    uint8_t ts_tag, dur_tag, external_tag, correlation_tag;
    uint32_t name;     /* string; prefix of Lightning names already removed */
    uint32_t pid, tid; /* index into trace->idents: the value as written */
    uint32_t args;     /* index into ops, kernels or pys, by kind; PROF_NIL when there is no record */
    uint8_t kind, category;
    uint16_t name_flags; /* PROF_NAME_* of its name */
} prof_event;

enum { /* classes of names (sections 3, 4, 7, 13); those of a dialect are set only in that dialect */
       PROF_NAME_KNOWN = 1,
       PROF_NAME_LOADER = 2,
       PROF_NAME_NCCL = 4,
       PROF_NAME_GLOO = 8,
       PROF_NAME_CNCL = 16,
       PROF_NAME_COLLECTIVE = PROF_NAME_NCCL | PROF_NAME_GLOO | PROF_NAME_CNCL,
       PROF_NAME_STEP = 32,           /* ProfilerStep# */
       PROF_NAME_OPTIMIZER_STEP = 64, /* Optimizer.step */
       PROF_NAME_OPTIMIZER = 128,     /* Optimizer. */
       PROF_NAME_DP = 256,            /* DataParallel.forward */
       PROF_NAME_DDP = 512,           /* DistributedDataParallel.forward */
       PROF_NAME_BACKWARD = 1024,     /* autograd::engine::evaluate_function: */
       PROF_NAME_ACCUMULATE = 2048,   /* the one that accumulates gradients */
       PROF_NAME_TC_OP = 4096,        /* operator eligible for tensor cores */
       PROF_NAME_TC_KERNEL = 8192,    /* kernel that uses them */
       PROF_NAME_COMM_KERNEL = 16384  /* kernel of a collective library */
};

typedef union prof_op_args { /* Operator, Python, Annotation, Step; equal records are shared */
    struct {
        prof_val dims;         /* PROF_LIST of `Input Dims`; list 0 when absent */
        prof_val types;        /* PROF_LIST or absent */
        prof_val stack;        /* `Call stack`: PROF_STR or absent */
        prof_val flops, bytes; /* Quern's own: what the op stands for, and the part of the model it serves */
        prof_val origin;       /* PROF_STR or absent */
    };
    prof_val all[6];
} prof_op_args;

typedef union prof_kernel_args { /* Kernel; equal records are shared */
    struct {
        prof_val device, grid, block, registers, shared, blocks_per_sm, occupancy;
        prof_val type, dim, topo, topo_node;
    };
    prof_val all[11];
} prof_kernel_args;

typedef struct prof_py_args { /* PyFunction, Module */
    prof_val id, parent, module;
    prof_val origin; /* Quern's own: the part of the model; PROF_STR or absent */
} prof_py_args;

typedef struct prof_mem { /* one memory record; trace->mems is sorted by ts after analysis */
    prof_num ts;
    prof_val address, device_type, device_id;
    prof_num bytes; /* integer 0 when absent */
    prof_num allocated, reserved;
    uint32_t tid;                  /* ident */
    uint32_t node;                 /* operator proper it is filed under, or PROF_NIL (section 17) */
    uint32_t op_name, parent_name; /* strings given by the assignment, 0 when none; releases inherit them */
    uint32_t device;               /* string "CPU", "GPU0", ...; 0 when the dialect has no name for the device type */
} prof_mem;

static inline prof_val prof_event_ts(const prof_event *e) {
    prof_val v = {{e->ts.i}, e->ts_tag};
    return v;
}
static inline prof_val prof_event_dur(const prof_event *e) {
    prof_val v = {{e->dur.i}, e->dur_tag};
    return v;
}
static inline prof_val prof_event_end(const prof_event *e) { return prof_add(prof_event_ts(e), prof_event_dur(e)); }
static inline prof_val prof_event_external(const prof_event *e) {
    prof_val v = {{e->external.i}, e->external_tag};
    return v;
}
static inline prof_val prof_event_correlation(const prof_event *e) {
    prof_val v = {{e->correlation.i}, e->correlation_tag};
    return v;
}

/* ---- Nodes (sections 4 to 7) -------------------------------------------------------------------------------------- */

typedef enum prof_class {
    PROF_CLASS_OP,
    PROF_CLASS_STEP,
    PROF_CLASS_MODULE,
    PROF_CLASS_PLMODULE,
    PROF_CLASS_DATALOADER,
    PROF_CLASS_OPTIMIZER,
    PROF_CLASS_BACKWARD,
    PROF_CLASS_PLPROFILE
} prof_class;

typedef struct prof_dev { /* a device node: Kernel, Memcpy or Memset, in event order */
    uint32_t event;
    prof_num start, end;
    uint32_t name;
    uint32_t args;    /* index into kernels for Kernel, else PROF_NIL */
    uint32_t op_name; /* string of the operator that filled it last (root: CallTreeRoot), 0 when none did */
    uint8_t kind;
    uint8_t uses_tc;     /* by kernel name, section 13 */
    uint8_t op_eligible; /* that operator's own name is eligible */
} prof_dev;

typedef struct prof_rt { /* a runtime call, in event order; a `dummy` that holds orphans comes after all real ones */
    uint32_t event;      /* PROF_NIL for dummy */
    uint32_t name;
    prof_num start, end;           /* absent for dummy */
    uint32_t dev_begin, dev_count; /* into trace->rt_devs, which holds indices of devs */
    prof_num device, tc;           /* sums over its device nodes, per fill (section 6) */
} prof_rt;

typedef struct prof_node {
    prof_num start, end; /* absent: a root without children, or a backward node without work in mlu_a and mlu_b */
    prof_num host_self, device_total, device_self, tc_self, tc_total;
    uint32_t event;                /* PROF_NIL for roots and backward nodes; what is not here is said there */
    uint32_t name, stack;          /* strings */
    uint32_t tid;                  /* ident: thread as written (roots: the tree's integer thread) */
    uint32_t parent;               /* PROF_NIL for roots and nodes outside every tree */
    uint32_t kid_begin, kid_count; /* into trace->kids, final order */
    uint32_t rt_begin, rt_count;   /* into trace->node_rts, final order */
    uint32_t mem_begin, mem_count; /* into trace->node_mems: records filed here, time order (operators proper only) */
    uint16_t name_flags;
    uint8_t kind, class_;
    uint8_t eligible; /* tensor cores, after spreading upward */
    uint8_t proper;   /* operator proper, section 6 */
    uint8_t visited;  /* entered by the memory cursor, section 17 */
    uint8_t in_tree;
} prof_node;

typedef struct prof_tree {
    prof_val thread; /* integer thread id (text that is no number: the string as written) */
    uint32_t root;   /* node named CallTreeRoot */
} prof_tree;

/* ---- Steps and roles (sections 8 and 9) --------------------------------------------------------------------------- */

typedef enum prof_role {
    PROF_ROLE_KERNEL,
    PROF_ROLE_MEMCPY,
    PROF_ROLE_MEMSET,
    PROF_ROLE_COMMUNICATION,
    PROF_ROLE_RUNTIME,
    PROF_ROLE_DATALOADER,
    PROF_ROLE_CPU,
    PROF_ROLE_OTHER,
    PROF_ROLES
} prof_role;

typedef struct prof_step {
    uint32_t name;                 /* string: the step's number */
    prof_num start, end;           /* after extension by device work */
    prof_num host_start, host_end; /* as annotated */
    uint32_t devs;                 /* device nodes matched to it */
    prof_num cost[PROF_ROLES];
    prof_num total;
    prof_num overlap, computation, communication, other; /* section 9, last paragraph */
} prof_step;

/* ---- Communication ------------------------------------------------------------------------------------------------ */

typedef struct prof_coll { /* a collective record; trace->colls in order of first creation */
    prof_val external;
    uint32_t name;
    prof_num start, end;
    prof_val shape, types;
    prof_ranges ranges; /* host operator's, then device events' in event order (distributed analysis sorts a copy) */
} prof_coll;

enum { PROF_LIB_NCCL = 1, PROF_LIB_GLOO = 2, PROF_LIB_CNCL = 4 };

/* ---- Devices (sections 12 and 13) --------------------------------------------------------------------------------- */

typedef struct prof_prop { /* one entry of deviceProperties; absent what is not given */
    prof_val name;         /* PROF_STR */
    prof_val total_global_mem, total_mem_mib, compute_major, compute_minor;
} prof_prop;

typedef struct prof_device { /* devices named by kernels, ascending */
    prof_val id;
    uint32_t prop;                 /* index into props when the id indexes that list, else PROF_NIL */
    prof_ranges busy;              /* merged kernel ranges, unclipped */
    prof_pieces efficiency_pieces; /* unclipped */
    double utilisation;            /* 0.0 for an empty step range */
    prof_num efficiency;           /* double or absent */
    prof_num occupancy;            /* double or absent */
    prof_num tc_ratio;             /* share of tensor-core kernel time, double; absent for all if no operator has a kernel */
} prof_device;

/* ---- Groupings (sections 14 and 15) ------------------------------------------------------------------------------- */

typedef enum prof_grouping { PROF_BY_NAME, PROF_BY_SHAPE, PROF_BY_STACK, PROF_BY_SHAPE_STACK, PROF_GROUPINGS } prof_grouping;

typedef struct prof_op_group {
    uint32_t name, shape; /* strings; shape is the text of Input Dims of the first member */
    uint32_t stack;       /* string of the first member, 0 when absent */
    uint32_t eligible;
    int64_t calls;
    prof_num host_total, device_total, host_self, device_self, tc_self, tc_total;
    prof_num tc_self_ratio, tc_total_ratio; /* double, or integer 0 */
    uint32_t stack_begin, stack_count; /* BY_NAME and BY_SHAPE: into op_stacks[same]: groups of BY_STACK / BY_SHAPE_STACK with a
                                          non-empty stack and this name (and shape), first-seen order */
} prof_op_group;

typedef struct prof_kernel_group { /* by name; in the final order of the kernel table */
    uint32_t name;
    uint32_t uses_tc;
    int64_t calls;
    prof_num sum, max, min;
    double mean;
    prof_num blocks, occupancy; /* weighted means; integer 0 or double as the reference has them */
} prof_kernel_group;

typedef struct prof_launch_group {           /* by name and operator; descending by total */
    uint32_t name, op_name;                  /* op_name: "N/A" when no operator filled it */
    uint32_t grid, block, registers, shared; /* strings as shown */
    prof_val type, dim, topo, topo_node;     /* mlu_a, mlu_b: of the first member */
    uint32_t uses_tc, op_eligible;
    int64_t calls;
    prof_num total, max, min;
    prof_num blocks, occupancy;
} prof_launch_group;

/* ---- Modules (section 19) ----------------------------------------------------------------------------------------- */

typedef struct prof_module {
    uint32_t name; /* as written, with its prefix */
    prof_val id;
    int64_t occurrences, operators;
    prof_num host_total, host_self, device_total, device_self;
    double average;
    uint32_t kid_begin, kid_count; /* into module_kids, indices of modules */
} prof_module;

/* ---- One trace ---------------------------------------------------------------------------------------------------- */

typedef struct prof_flow {
    prof_num from, to; /* forward ts, backward ts (section 7) */
} prof_flow;

typedef struct prof_trace {
    qn_arena arena;
    qn_profile_options options;
    qn_profile_dialect dialect; /* UPSTREAM, MLU_A or MLU_B after reading */
    const char *path;
    prof_text text;

    /* Read. After analysis events are sorted by ts (stable) and hold only kinds of this dialect; memory records are apart. */
    QN_VEC(prof_event) events;
    QN_VEC(prof_op_args) ops;
    QN_VEC(prof_kernel_args) kernels;
    QN_VEC(prof_py_args) pys;
    QN_VEC(prof_mem) mems;
    QN_VEC(prof_val) idents; /* distinct pid and tid values as written */
    QN_VEC(prof_prop) props;
    prof_num limit_gflops, limit_gbps; /* Quern's own: what the machine gives at best; absent when it was not measured */
    int has_props;                     /* the key deviceProperties exists and is a list; it may be empty */
    int lightning;
    int saw_na;              /* bare N/A was read: the trace view must be written anew from values */
    QN_VEC(prof_flow) flows; /* both ends known, in order of first start */
    uint64_t text_bytes, events_seen, events_broken, events_unknown, events_backward; /* see qn_profile_info */
    uint64_t window_end_event; /* item number of a `Record Window End` that the trace view drops (section 2); UINT64_MAX: none */
    prof_num trace_start;      /* least ts over kept events; absent when there is none */

    /* Nodes and trees. */
    QN_VEC(prof_node) nodes;
    QN_VEC(prof_rt) rts;
    QN_VEC(prof_dev) devs;
    QN_VEC(uint32_t) rt_devs, node_rts, kids, node_mems;
    QN_VEC(prof_tree) trees;    /* threads in first-seen order; the first is the one the tree and diff views show */
    QN_VEC(prof_tree) pl_trees; /* Lightning profile nodes */
    QN_VEC(uint32_t) postorder; /* nodes of `trees` in thread order, children before their parent, roots included */
    QN_VEC(prof_val) used_pids; /* distinct pids of device events */
    uint64_t nodes_dropped, orphans;
    int use_dp, use_ddp;
    unsigned libs; /* PROF_LIB_* */
    QN_VEC(prof_coll) colls;

    /* Steps. */
    QN_VEC(prof_step) steps;
    prof_ranges roles[PROF_ROLES]; /* merged, unclipped; OTHER is empty */
    prof_num window_start, window_end;
    prof_num global_start, global_end;
    double average[PROF_ROLES], average_total; /* over steps */
    int has_runtime, has_kernel, has_communication, has_memcpy_or_memset;
    int show_device;         /* runtime, kernel or copies seen */
    const char *device_word; /* "GPU" or "MLU": of the dialect, or in mlu_b of the trace */
    int is_gpu;              /* device_word is "GPU" */

    /* Devices. */
    QN_VEC(prof_device) devices;
    int has_blocks, has_occupancy; /* some kernel has an accepted figure (section 12) */
    double tc_eligible_share;      /* section 13 */
    double tc_kernel_share;        /* of the kernel table; 0.0 without kernels */

    /* Groupings. op_order[g] lists groups of BY_NAME / BY_SHAPE in table order (descending by device or host self). */
    QN_VEC(prof_op_group) op_groups[PROF_GROUPINGS]; /* first-seen order */
    uint32_t *op_order[PROF_GROUPINGS];
    uint32_t *op_stacks[PROF_GROUPINGS]; /* BY_NAME and BY_SHAPE only */
    int sort_by_device; /* has_kernel or has_memcpy_or_memset: tables show device columns and sort by device self */
    QN_VEC(prof_kernel_group) kernel_groups;
    QN_VEC(prof_launch_group) launch_groups;

    /* Modules: the hierarchy with statistics; module_roots by name ascending. For Lightning traces the dotted names. */
    QN_VEC(prof_module) modules;
    QN_VEC(uint32_t) module_kids, module_roots;
    int has_modules; /* a Module (Lightning: PlModule) event exists: the view list names the view */
} prof_trace;

static inline const prof_str *prof_string(const prof_trace *trace, uint32_t id) { return &trace->text.strs.at[id]; }

static inline const prof_str *prof_list_text(const prof_trace *trace, prof_val list) {
    return prof_string(trace, list.tag == PROF_LIST ? trace->text.lists.at[list.i].text : 0);
}

/* The kernels a node launched itself, one after another: begin with all zero; NULL behind the last. */
typedef struct prof_launched {
    uint32_t rt, dev;
} prof_launched;

static inline const prof_dev *prof_node_next_kernel(const prof_trace *trace, const prof_node *node, prof_launched *at) {
    for (; at->rt < node->rt_count; at->rt++, at->dev = 0) {
        const prof_rt *rt = &trace->rts.at[trace->node_rts.at[node->rt_begin + at->rt]];
        while (at->dev < rt->dev_count) {
            const prof_dev *dev = &trace->devs.at[trace->rt_devs.at[rt->dev_begin + at->dev++]];
            if (dev->kind == PROF_KIND_KERNEL) {
                return dev;
            }
        }
    }
    return NULL;
}

/* The arguments an operator was written with, or NULL. */
static inline const prof_op_args *prof_node_args(const prof_trace *trace, const prof_node *node) {
    int none = node->event == PROF_NIL || node->kind == PROF_KIND_MODULE || trace->events.at[node->event].args == PROF_NIL;
    return none ? NULL : &trace->ops.at[trace->events.at[node->event].args];
}

/* `Input Dims`: a list wherever the file is sound; list 0, which is empty, when there are none. */
static inline prof_val prof_node_shape(const prof_trace *trace, const prof_node *node) {
    const prof_op_args *args = prof_node_args(trace, node);
    prof_val none = {{0}, PROF_LIST};
    return args ? args->dims : none;
}

/* Absent for modules, roots and backward nodes. */
static inline prof_val prof_node_external(const prof_trace *trace, const prof_node *node) {
    int none = node->event == PROF_NIL || node->kind == PROF_KIND_MODULE;
    return none ? prof_absent() : prof_event_external(&trace->events.at[node->event]);
}

/* Of a module; Lightning's have none, which counts as 0. */
static inline prof_val prof_node_module_id(const prof_trace *trace, const prof_node *node) {
    return node->kind == PROF_KIND_MODULE ? trace->pys.at[trace->events.at[node->event].args].module : prof_int(0);
}

#endif
