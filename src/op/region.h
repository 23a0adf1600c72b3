/* Elementwise regions: chains of elementwise ops compiled into one. The op `region` runs a short straight-line program for
 * every element of its outputs, which all have the shape its sources broadcast to (aligned at the last axis, stretched where an
 * extent is 1).
 *
 * The program is the attribute `code`, two words a step:
 *
 *   word 0   bits 0-7 kind, 8-15 sub-op, 16-23 dtype, 31 set when the step is an output; the others zero
 *   word 1   of a `number` its f32 bits; else three operands of 8 bits, a lowest, those the kind does not have zero, bits 24-31
 *            zero. An operand below 128 is that source, 128 + i is the result of step i, which comes earlier.
 *
 * Outputs are numbered in the order of their steps. Each step is computed exactly (the reference: in double) and rounded once,
 * to its dtype; so a region gives the bits that its ops would have given one by one. Kernels may compute f32 and halves in f32,
 * but round where the step says. Truths are 0 and 1.
 *
 * Kinds, and which ops may join a region, are in region_ops.def. */
#ifndef QN_OP_REGION_H
#define QN_OP_REGION_H

#include "op/op.h"

enum {
    QN_REGION_MAX_STEPS = QN_MAX_WORDS / 2,
    QN_REGION_MAX_SOURCES = 10,
    QN_REGION_MAX_OUTPUTS = 4,
    QN_REGION_MAX_OPERANDS = 3,
    QN_REGION_STEP_BIT = 128
};

typedef enum qn_region_kind {
#define QN_REGION_KIND(name, operands, subops, types, formula) QN_REGION_##name,
#include "op/region_ops.def"
#undef QN_REGION_KIND
    QN_REGION_KINDS
} qn_region_kind;

typedef struct qn_region_step {
    qn_region_kind kind;
    int subop;
    qn_dtype dtype;
    int output; /* number of the output it is; -1: it is none */
    int n_operands;
    int operand[QN_REGION_MAX_OPERANDS]; /* a source's number, or QN_REGION_STEP_BIT + the number of an earlier step */
    float number;                        /* QN_REGION_number */
} qn_region_step;

/* A program, read and checked. */
typedef struct qn_region {
    int n_steps, n_outputs;
    int output[QN_REGION_MAX_OUTPUTS]; /* step of each output */
    qn_region_step step[QN_REGION_MAX_STEPS];
} qn_region;

/* Why a program is refused; dim is the step, or -1. */
typedef struct qn_region_fault {
    qn_reason reason;
    int dim;
    int64_t expected, actual;
} qn_region_fault;

/* Reads words, which may be anybody's, for sources of these dtypes (QN_DTYPE_NONE: not given). 1 when every step is sound: a
 * kind and sub-op there are, operands that exist and come before, dtypes that fit, no stray bits, 1 to QN_REGION_MAX_OUTPUTS
 * outputs. */
int qn_region_decode(const qn_code *code, int n_src, const qn_dtype *dtypes, qn_region *region, qn_region_fault *fault);
/* A checked program again. The guard has seen the request, so kernels use this one. */
void qn_region_read(const qn_code *code, qn_region *region);
/* Appends a step; 0 when there is no room. Operands behind the last are ignored, as is `output` but for being negative or not. */
int qn_region_append(qn_code *code, const qn_region_step *step);

/* Operands and sub-ops of a kind, and its name. */
int qn_region_operands(qn_region_kind kind);
int qn_region_subops(qn_region_kind kind);
int qn_region_takes_subop(qn_region_kind kind, int subop);
const char *qn_region_kind_name(qn_region_kind kind);

/* How an op becomes a step. */
typedef struct qn_region_op {
    qn_region_kind kind;
    int subop;                   /* -1: the op's own */
    int n_attr;                  /* f32 attributes that become operands behind the sources */
    const uint32_t *attr_offset; /* where they lie in the op's record */
} qn_region_op;

/* NULL when the op cannot be a step. */
const qn_region_op *qn_region_op_of(int op);
/* The program that one op is, its attributes as numbers, with a result of this dtype. 0 when the op cannot be a step. */
int qn_region_of_op(int op, int subop, const void *attr, int n_src, qn_dtype dtype, qn_region *region);

/* One step for one element: the function without its rounding, and the rounding. */
double qn_region_value(const qn_region_step *step, double a, double b, double c);
double qn_region_round(qn_dtype dtype, double v);

#endif
