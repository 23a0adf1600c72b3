/* ops.def unfolded: the public description of every op, and the private table of its rules. Nothing here is written by hand
 * for a single op. */
#include "op/op.h"

/* ---- Classes of dtypes a slot may name */

#define BIT(d) ((uint64_t)1 << QN_DTYPE_##d)
#define BLOCKS (((uint64_t)1 << QN_DTYPE_COUNT) - BIT(Q4_0))
#define QN_CLASS_F32 BIT(F32)
#define QN_CLASS_REAL (BIT(F64) | BIT(F32))
#define QN_CLASS_FLOAT (QN_CLASS_REAL | BIT(F16) | BIT(BF16))
#define QN_CLASS_FLOAT_C64 (QN_CLASS_FLOAT | BIT(C64))
#define QN_CLASS_FLOAT_BLOCK (QN_CLASS_FLOAT | BLOCKS)
#define QN_CLASS_I32 BIT(I32)
#define QN_CLASS_U8 BIT(U8)
#define QN_CLASS_BYTES (BIT(I8) | BIT(U8))
#define QN_CLASS_U32 BIT(U32)
#define QN_CLASS_CODES (BIT(U8) | BIT(U32))
#define QN_CLASS_I64 BIT(I64)
#define QN_CLASS_INDEX (BIT(I32) | BIT(I64))
#define QN_CLASS_REAL_I32 (QN_CLASS_REAL | BIT(I32))
#define QN_CLASS_FLOAT_BLOCK_I32 (QN_CLASS_FLOAT_BLOCK | BIT(I32))
#define QN_CLASS_FLOAT_U8 (QN_CLASS_FLOAT | BIT(U8))
#define QN_CLASS_PACKED (BIT(I8) | BIT(U8) | BLOCKS)
#define QN_CLASS_PLAIN (BIT(Q4_0) - BIT(F64))
#define QN_CLASS_ANY (QN_CLASS_PLAIN | BLOCKS)
#define QN_CLASS_BOOL BIT(BOOL)
#define QN_CLASS_FLOAT_BOOL (QN_CLASS_FLOAT | BIT(BOOL))
#define QN_CLASS_NUMBER (BIT(BOOL) - BIT(F64)) /* floats and integers */
#define QN_CLASS_NUMBER_BOOL (QN_CLASS_NUMBER | BIT(BOOL))
#define QN_CLASS_INDEX_U32 (QN_CLASS_INDEX | BIT(U32))
#define QN_CLASS_SCALAR (QN_CLASS_FLOAT_BOOL | BIT(I8) | BIT(U8) | BIT(I16) | BIT(I32) | BIT(U32)) /* what a double holds */

_Static_assert(QN_DTYPE_COUNT <= 64, "dtype sets are 64-bit masks");

/* ---- Counts, worked out by the compiler: slots in the second byte, required slots in the first, views in the third;
 * attributes in the first byte, those of them that are bodies in the second */

#define QN_IN(name, class) +0x101
#define QN_INP(name, class) +0x101
#define QN_OPT(name, class) +0x100
#define QN_INP_OPT(name, class) +0x100
#define QN_IDX(name, class) +0x101
#define QN_IDX_OPT(name, class) +0x100
#define QN_STATE(name, class) +0x101
#define QN_LIKE(name, class) +0x101
#define QN_OUT(name, class) +0x101
#define QN_OUT_OPT(name, class) +0x100
#define QN_VIEW(name, class) +0x10101
#define QN_ATTR(type, name, initial, low, high) +1
#define QN_ATTR_REQ(type, name, low, high) +1
#define QN_DIMS(name) +1
#define QN_DIMS_REQ(name) +1
#define QN_WORDS(name) +1
#define QN_FN(type, name) +1
#define QN_BODY(name) +0x101
#define QN_OP(name, origin, family, inputs, outputs, infer, vjp, cases, attrs, summary)  \
    enum { N_SRC_##name = 0 inputs, N_DST_##name = 0 outputs, N_ATTR_##name = 0 attrs }; \
    _Static_assert(sizeof(qn_attr_##name) <= QN_ATTR_BYTES_MAX, #name);                  \
    _Static_assert((N_SRC_##name >> 8 & 255) <= QN_MAX_SRC && (N_DST_##name >> 8 & 255) <= QN_MAX_DST, #name);
#include <quern/ops.def>
#undef QN_OP
#undef QN_IN
#undef QN_INP
#undef QN_OPT
#undef QN_INP_OPT
#undef QN_IDX
#undef QN_IDX_OPT
#undef QN_STATE
#undef QN_LIKE
#undef QN_OUT
#undef QN_OUT_OPT
#undef QN_VIEW
#undef QN_ATTR
#undef QN_ATTR_REQ
#undef QN_DIMS
#undef QN_DIMS_REQ
#undef QN_WORDS
#undef QN_FN
#undef QN_BODY

/* ---- Default attribute records */

#define QN_ATTR(type, name, initial, low, high) .name = (initial),
#define QN_ATTR_REQ(type, name, low, high)
#define QN_DIMS(name)
#define QN_DIMS_REQ(name)
#define QN_WORDS(name)
#define QN_FN(type, name)
#define QN_BODY(name)
#define QN_OP(name, origin, family, inputs, outputs, infer, vjp, cases, attrs, summary) \
    static const qn_attr_##name default_##name = {.size = sizeof(qn_attr_##name), .version = QN_ATTR_VERSION, attrs};
#include <quern/ops.def>
#undef QN_OP
#undef QN_ATTR
#undef QN_ATTR_REQ
#undef QN_DIMS
#undef QN_DIMS_REQ
#undef QN_WORDS
#undef QN_FN
#undef QN_BODY

/* ---- Sub-ops, for the ops that have them */

static const char *const unary_names[] = {
#define QN_UNARY(name, formula) #name,
#include <quern/unary.def>
#undef QN_UNARY
};
static const char *const glu_names[] = {
#define QN_GLU(name, formula) #name,
#include <quern/glu.def>
#undef QN_GLU
};
static const char *const arith_names[] = {
#define QN_ARITH(name, formula) #name,
#include <quern/arith.def>
#undef QN_ARITH
};
static const char *const compare_names[] = {
#define QN_COMPARE(name, formula) #name,
#include <quern/compare.def>
#undef QN_COMPARE
};
static const char *const logic_names[] = {
#define QN_LOGIC(name, formula) #name,
#include <quern/logic.def>
#undef QN_LOGIC
};
static const char *const math_names[] = {
#define QN_MATH(name, formula) #name,
#include <quern/math.def>
#undef QN_MATH
};
static const char *const reduce_names[] = {
#define QN_REDUCE(name, formula) #name,
#include <quern/reduce.def>
#undef QN_REDUCE
};
static const char *const arg_reduce_names[] = {
#define QN_ARG_REDUCE(name, formula) #name,
#include <quern/arg_reduce.def>
#undef QN_ARG_REDUCE
};
static const char *const scan_names[] = {
#define QN_SCAN(name, formula) #name,
#include <quern/scan.def>
#undef QN_SCAN
};

typedef struct subop_list {
    int count;
    const char *const *names;
} subop_list;

static const subop_list subops[QN_OP_COUNT] = {[QN_OP_unary] = {QN_UNARY_COUNT, unary_names},
                                               [QN_OP_unary_back] = {QN_UNARY_COUNT, unary_names},
                                               [QN_OP_unary_back2] = {QN_UNARY_COUNT, unary_names},
                                               [QN_OP_glu] = {QN_GLU_COUNT, glu_names},
                                               [QN_OP_glu_back] = {QN_GLU_COUNT, glu_names},
                                               [QN_OP_arith] = {QN_ARITH_COUNT, arith_names},
                                               [QN_OP_compare] = {QN_COMPARE_COUNT, compare_names},
                                               [QN_OP_logic] = {QN_LOGIC_COUNT, logic_names},
                                               [QN_OP_math] = {QN_MATH_COUNT, math_names},
                                               [QN_OP_math_back] = {QN_MATH_COUNT, math_names},
                                               [QN_OP_math_back2] = {QN_MATH_COUNT, math_names},
                                               [QN_OP_reduce] = {QN_REDUCE_COUNT, reduce_names},
                                               [QN_OP_reduce_back] = {QN_REDUCE_COUNT, reduce_names},
                                               [QN_OP_arg_reduce] = {QN_ARG_REDUCE_COUNT, arg_reduce_names},
                                               [QN_OP_scan] = {QN_SCAN_COUNT, scan_names},
                                               [QN_OP_scan_back] = {QN_SCAN_COUNT, scan_names},
                                               [QN_OP_pool] = {QN_REDUCE_COUNT, reduce_names},
                                               [QN_OP_pool_back] = {QN_REDUCE_COUNT, reduce_names},
                                               [QN_OP_pool_tangent] = {QN_REDUCE_COUNT, reduce_names},
                                               [QN_OP_linear_glu] = {QN_GLU_COUNT, glu_names},
                                               [QN_OP_glu_mul_mat_id] = {QN_GLU_COUNT, glu_names}};

/* ---- Descriptions. One function per op, because only a scope of its own can give the field macros the struct's name, which
 * offsetof needs. */

#define QN_IN(name, class) {#name, QN_CLASS_##class, 0},
#define QN_INP(name, class) {#name, QN_CLASS_##class, QN_SLOT_IN_PLACE},
#define QN_OPT(name, class) {#name, QN_CLASS_##class, QN_SLOT_OPTIONAL},
#define QN_INP_OPT(name, class) {#name, QN_CLASS_##class, QN_SLOT_IN_PLACE | QN_SLOT_OPTIONAL},
#define QN_IDX(name, class) {#name, QN_CLASS_##class, QN_SLOT_INDEX},
#define QN_IDX_OPT(name, class) {#name, QN_CLASS_##class, QN_SLOT_INDEX | QN_SLOT_OPTIONAL},
#define QN_STATE(name, class) {#name, QN_CLASS_##class, QN_SLOT_STATE},
#define QN_LIKE(name, class) {#name, QN_CLASS_##class, QN_SLOT_SHAPE},
#define QN_OUT(name, class) {#name, QN_CLASS_##class, 0},
#define QN_OUT_OPT(name, class) {#name, QN_CLASS_##class, QN_SLOT_OPTIONAL},
#define QN_VIEW(name, class) {#name, QN_CLASS_##class, QN_SLOT_SHAPE},
#define FIELD(name, kind, required, initial, low, high) \
    {#name,                                             \
     QN_ATTR_KIND_##kind,                               \
     required,                                          \
     (uint32_t)offsetof(record, name),                  \
     (uint32_t)sizeof(((record *)0)->name),             \
     (double)(initial),                                 \
     (double)(low),                                     \
     (double)(high)},
#define QN_ATTR(type, name, initial, low, high) FIELD(name, type, 0, initial, low, high)
#define QN_ATTR_REQ(type, name, low, high) FIELD(name, type, 1, 0, low, high)
#define QN_DIMS(name) FIELD(name, dims, 0, 0, 0, 0)
#define QN_DIMS_REQ(name) FIELD(name, dims, 1, 0, 0, 0)
#define QN_WORDS(name) FIELD(name, words, 1, 0, 0, 0)
#define QN_FN(type, name) FIELD(name, fn, 0, 0, 0, 0)
#define QN_BODY(name) FIELD(name, body, 1, 0, 0, 0)
#define QN_VJP(rule) #rule, NULL
#define QN_NO_VJP(why) NULL, why
#define QN_OP(name, origin, family, inputs, outputs, infer, vjp, cases, attrs, summary)                                \
    static const qn_op_info *describe_##name(void) {                                                                   \
        typedef qn_attr_##name record;                                                                                 \
        static const qn_slot_info src[] = {inputs{NULL, 0, 0}};                                                        \
        static const qn_slot_info dst[] = {outputs{NULL, 0, 0}};                                                       \
        static const qn_attr_info attr[] = { attrs{NULL, QN_ATTR_KIND_f32, 0, 0, (uint32_t)sizeof(record), 0, 0, 0} }; \
        static const qn_op_info info = {#name,                                                                         \
                                        #origin,                                                                       \
                                        #family,                                                                       \
                                        summary,                                                                       \
                                        N_SRC_##name & 255,                                                            \
                                        N_SRC_##name >> 8 & 255,                                                       \
                                        N_DST_##name & 255,                                                            \
                                        N_DST_##name >> 8 & 255,                                                       \
                                        src,                                                                           \
                                        dst,                                                                           \
                                        N_ATTR_##name & 255,                                                           \
                                        attr,                                                                          \
                                        sizeof(record),                                                                \
                                        &default_##name,                                                               \
                                        vjp,                                                                           \
                                        N_DST_##name >> 16,                                                            \
                                        #cases,                                                                        \
                                        N_ATTR_##name >> 8};                                                           \
        return &info;                                                                                                  \
    }
#include <quern/ops.def>
#undef QN_OP
#undef QN_VJP
#undef QN_NO_VJP

typedef const qn_op_info *(*describe_fn)(void);
static const describe_fn describe[QN_OP_COUNT] = {
#define QN_OP(name, ...) describe_##name,
#include <quern/ops.def>
#undef QN_OP
};

#define QN_VJP(rule) qn_vjp_##rule
#define QN_NO_VJP(why) NULL
static const qn_op_rules rules[QN_OP_COUNT] = {
#define QN_OP(name, origin, family, inputs, outputs, infer, vjp, cases, attrs, summary) {qn_infer_##infer, qn_ref_##name, vjp},
#include <quern/ops.def>
#undef QN_OP
};

const qn_op_info *qn_op_describe(int op) { return op >= 0 && op < QN_OP_COUNT ? describe[op]() : NULL; }

const qn_op_rules *qn_op_rules_of(int op) { return &rules[op]; }

int qn_op_from_name(const char *name) {
    for (int op = 0; name && op < QN_OP_COUNT; op++)
        if (strcmp(describe[op]()->name, name) == 0) return op;
    return -1;
}

int qn_subop_count(int op) { return op >= 0 && op < QN_OP_COUNT ? subops[op].count : 0; }

const char *qn_subop_name(int op, int subop) { return subop >= 0 && subop < qn_subop_count(op) ? subops[op].names[subop] : NULL; }

int qn_subop_from_name(int op, const char *name) {
    for (int i = 0; name && i < qn_subop_count(op); i++)
        if (strcmp(subops[op].names[i], name) == 0) return i;
    return -1;
}
