/* mul_mat of f16 weights with a few rows on Arm, where halves become floats by multiply-adds: NEON's own step with streams compiled for
 * them. A machine multiplies and adds eight halves in the time in which it converts four, and with one row it waits for that. */
#include "cpu/k_stream.h"

#ifdef QN_AT_i8mm /* vectors of SVE have no such instruction: level sve takes this step as it is */
#include "cpu/k_stream.c"

int QN_K(mul_mat_halves)(const qn_call *c, qn_cpu_step *s);
int QN_K(mul_mat_halves)(const qn_call *c, qn_cpu_step *s) {
    if (c->src[0]->dtype != QN_DTYPE_F16 || !(s->constant & 1u)) return 0;
    if (!qn_cpu_choose(1u << QN_CPU_LEVEL_neon, c, s) || !s->inner) return 0; /* streams are all that it remembers */
    s->inner = (qn_cpu_inner_fn)qn_stream_here;
    s->level = QN_CPU_LEVEL_i8mm;
    return 1;
}
#endif
