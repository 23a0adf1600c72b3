/* The gates of glu: u is gated, v is what it is multiplied with. */
#ifndef QN_CPU_K_GATE_H
#define QN_CPU_K_GATE_H

#include "cpu/k_lanes.h"
#include "cpu/simd/simd_act.h"

QN_INLINE vf qn_limit_high(vf x, vf most) { return vf_select(x > most, most, x); }
QN_INLINE vf qn_limit_low(vf x, vf least) { return vf_select(x < least, least, x); }

QN_INLINE vf qn_gate_of(int sub, vf u, vf v, const qn_attr_glu *p) {
    switch (sub) {
    case QN_GLU_reglu: return vf_select(u <= vf_zero(), vf_zero(), u * v);
    case QN_GLU_geglu: return f_gelu(u) * v;
    case QN_GLU_swiglu: return f_silu(u) * v;
    case QN_GLU_geglu_erf: return f_gelu_erf(u) * v;
    case QN_GLU_geglu_quick: return f_gelu_quick(u) * v;
    default: break;
    }
    vf limit = vf_set1(p->limit), cu = qn_limit_high(u, limit), cv = qn_limit_low(qn_limit_high(v, limit), f_neg(limit));
    return gate(cu, vf_sigmoid(vf_set1(p->alpha) * cu)) * (cv + ONE);
}

#endif
