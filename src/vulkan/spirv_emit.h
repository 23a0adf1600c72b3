/* Emits SPIR-V out of a module that glslc made: one function of it gets a new body, a list of calls of its other functions, and what
 * is not reached any more is left out. So the arithmetic of emitted kernels is that of the GLSL ones. */
#ifndef QN_VULKAN_SPIRV_EMIT_H
#define QN_VULKAN_SPIRV_EMIT_H

#include "base/arena.h"
#include "op/op.h"

typedef struct qn_spirv_function {
    uint32_t id, result_type;
    size_t first, body, end; /* words: of the whole, and behind the label that opens it */
    const char *name;        /* as the module has it: ended by a parenthesis */
    int kept;
} qn_spirv_function;

typedef struct qn_spirv_constant_of {
    uint32_t type, bits, id;
} qn_spirv_constant_of;

typedef struct qn_spirv {
    qn_arena *arena;
    const uint32_t *words;
    size_t n_words, functions_at;
    uint32_t bound, type_uint, type_float;
    int target; /* the function with the new body */
    int failed; /* for want of memory, or of a function: the rest is then ignored */
    QN_VEC(qn_spirv_function) functions;
    QN_VEC(qn_spirv_constant_of) constants;
    QN_VEC(uint32_t) body;
    QN_VEC(uint32_t) out;
} qn_spirv;

/* Reads a module, which must outlive the emission. */
void qn_spirv_begin(qn_spirv *s, qn_arena *arena, const uint32_t *words, size_t n_words, const char *target);
/* Ids for the calls: the target's own parameters, numbers, and what an earlier call gave. */
uint32_t qn_spirv_parameter(qn_spirv *s, int number);
uint32_t qn_spirv_uint(qn_spirv *s, uint32_t value);
uint32_t qn_spirv_float(qn_spirv *s, float value);
uint32_t qn_spirv_call(qn_spirv *s, const char *function, int n, const uint32_t *arguments);
/* The module; NULL when anything went wrong on the way. */
const uint32_t *qn_spirv_finish(qn_spirv *s, size_t *n_words);

#endif
