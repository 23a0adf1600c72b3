/* mul_mat of bf16 weights: the step of the level below; where that is streams of weights that stay, with streams that are squeezed. */
#include "cpu/kd_vbmi_squeeze.h"

#include "cpu/k_stream.c" /* for panels that cannot be squeezed */

int QN_K(mul_mat)(const qn_call *c, qn_cpu_step *s);
int QN_K(mul_mat)(const qn_call *c, qn_cpu_step *s) {
    const qn_tensor *a = c->src[0];
    int level = s->level;
    if (a->dtype != QN_DTYPE_BF16 || !qn_cpu_choose(1u << QN_CPU_LEVEL_avx512, c, s)) return 0;
    if (!s->inner) return 1; /* streams are all that it remembers */
    int64_t k = qn_ne(a, 0), panels = qn_stream_panels(qn_ne(a, 1)) * qn_ne(a, 2) * qn_ne(a, 3);
    s->inner = (qn_cpu_inner_fn)qn_stream_squeezed;
    s->packed_bytes = (size_t)(panels * qn_stream_squeezed()->panel_bytes(a->dtype, k)); /* more, which tells it from the other */
    s->name = "squeezed streams of floats";
    s->level = level;
    return 1;
}
