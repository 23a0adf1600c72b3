/* Fast kernels of the CPU: one body per algorithm, compiled once per level of instruction set, chosen when the program runs.
 *
 * A kernel is a function qn_k_<op>__<level> named by a row of cpu_kernels.def. It looks at descriptors and attributes, which the
 * op's guard has accepted, and either declines (the next lower level is asked, then whether copies would help, at last the reference)
 * or fixes everything the run needs: the function, the parts, the scratch, what it wants packed. The run itself only computes; it cannot fail.
 *
 * The rules that make results the same bits for any number of threads: the parts depend on shapes alone; an element of the output
 * is computed by one part, in one order; what several parts need (quantised activations, packed panels) is made by an earlier
 * phase. And a packed weight is the same numbers in another order: packed and unpacked give the same bits. */
#ifndef QN_CPU_CPU_H
#define QN_CPU_CPU_H

#include "cpu/contest.h"
#include "op/op.h"
#include "thread/pool.h"

typedef enum qn_cpu_level {
#define QN_CPU_LEVEL(name, arch, summary) QN_CPU_LEVEL_##name,
#include "cpu/cpu_levels.def"
#undef QN_CPU_LEVEL
    QN_CPU_LEVEL_COUNT
} qn_cpu_level;

enum { QN_CPU_PHASES = 8, QN_CPU_ALSO = 3, QN_CPU_NUMBERS = 12 };

typedef struct qn_cpu_step qn_cpu_step;
/* One part of one phase. Phases run one after the other, the parts of a phase in any order and at the same time. */
typedef void (*qn_cpu_run_fn)(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part);
typedef void (*qn_cpu_inner_fn)(void); /* any function a kernel wants to remember; cast back before it is called */
/* Writes the packed form of source `pack_slot`; parts as for a phase, counted in pack_parts. */
typedef void (*qn_cpu_pack_fn)(const qn_call *c, const qn_cpu_step *s, void *packed, int64_t part);

struct qn_cpu_step {
    /* before: which sources keep their data from run to run, bit i for source i, so that packing them pays */
    uint32_t constant;
    /* fixed by the kernel */
    qn_cpu_run_fn run;
    const char *name; /* what is chosen, for the report: "gemm f32 6x32" */
    int32_t n_phases;
    int64_t parts[QN_CPU_PHASES];
    size_t workspace; /* bytes of scratch, all parts together; instead of what the op's rule asks for its reference */
    qn_cpu_pack_fn pack;
    int32_t pack_slot;
    uint32_t pack_more; /* further sources that are packed with it, bit i for source i */
    int64_t pack_parts;
    size_t packed_bytes;
    int64_t pack_also[QN_CPU_ALSO]; /* what else of the call the packed form depends on, such as attributes */
    qn_cpu_pack_fn pack_inner;      /* of a step that copies and lets another kernel pack: that one's */
    int32_t pack_late;              /* a run or two without it cost less than to pack at once: nobody need wait for it */
    int64_t n[QN_CPU_NUMBERS];      /* what the kernel worked out and wants to remember */
    qn_cpu_inner_fn inner;
    qn_cpu_run_fn wrapped; /* of a step that is made of others: how these run, which may use `inner` */
    /* after: */
    int32_t level;
    int32_t is_near;     /* the machine is slow past its caches, see QN_CPU_NEAR */
    const void *packed;  /* NULL: the source itself is to be read */
    qn_contest *contest; /* which way to read it is faster, kept beside it; NULL: one is as good as another */
};

/* 1: s is filled; 0: not for this call. */
typedef int (*qn_cpu_kernel_fn)(const qn_call *c, qn_cpu_step *s);

/* Beside the levels: stores past the caches wait longer here than lines that are read first, as long as few cores work. */
#define QN_CPU_NEAR (UINT32_C(1) << 31)

/* The levels this machine has and QUERN_CPU does not mask, best last; bit l set for level l. QUERN_CPU=none leaves the references. A
 * mask also says whether QN_CPU_NEAR is set, by the word near: as tests want it, and not as this machine is. */
uint32_t qn_cpu_levels(void);
const char *qn_cpu_level_name(int level);
/* Levels named in a list such as "avx2,c" out of `have`; "c" is always there. Unknown names are skipped. */
uint32_t qn_cpu_levels_parse(const char *list, uint32_t have);

/* The best kernel among `levels` for a call whose workspace and data may still be missing, if need be behind copies (cpu_detour.c); 0: the
 * reference must do it. */
int qn_cpu_prepare(uint32_t levels, const qn_call *c, qn_cpu_step *s);
/* Only the kernels that take the call as it is. */
int qn_cpu_choose(uint32_t levels, const qn_call *c, qn_cpu_step *s);
/* The same by op alone: whether any level of this build, or the level given, has a kernel for it. */
int qn_cpu_has_kernel(int op);
int qn_cpu_has_kernel_at(int level, int op);
/* What tells packed forms apart: steps that agree in it and in the sources can share one. */
typedef struct qn_cpu_form {
    qn_cpu_pack_fn order;
    size_t bytes;
    int64_t also[QN_CPU_ALSO];
} qn_cpu_form;
static inline qn_cpu_form qn_cpu_form_of(const qn_cpu_step *s) {
    return (qn_cpu_form){
        s->pack_inner ? s->pack_inner : s->pack, s->packed_bytes, {s->pack_also[0], s->pack_also[1], s->pack_also[2]}};
}
static inline int qn_cpu_form_same(const qn_cpu_form *a, const qn_cpu_form *b) {
    int same = a->order == b->order && a->bytes == b->bytes;
    for (int i = 0; i < QN_CPU_ALSO; i++) same &= a->also[i] == b->also[i];
    return same;
}
/* Fills `packed` (s->packed_bytes of it) from source s->pack_slot. */
void qn_cpu_pack(qn_pool *pool, const qn_call *c, const qn_cpu_step *s, void *packed);

typedef struct qn_cpu_job {
    const qn_call *call;
    const qn_cpu_step *step;
    int phase;
} qn_cpu_job;
void qn_cpu_part(void *job, int64_t part);

static inline void qn_cpu_run(qn_pool *pool, const qn_call *c, const qn_cpu_step *s) {
    for (int phase = 0; phase < s->n_phases; phase++) {
        if (s->parts[phase] == 1) {
            s->run(c, s, phase, 0);
            continue;
        }
        qn_cpu_job job = {c, s, phase};
        qn_pool_for(pool, s->parts[phase], qn_cpu_part, &job);
    }
}

#endif
