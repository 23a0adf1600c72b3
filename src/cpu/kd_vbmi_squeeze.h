/* Streams of bf16 that are shorter than the weights, see kd_vbmi_squeeze.c. */
#ifndef QN_CPU_KD_VBMI_SQUEEZE_H
#define QN_CPU_KD_VBMI_SQUEEZE_H

#include "cpu/k_stream.h"

#define qn_stream_squeezed QN_K(stream_squeezed)
const qn_stream_way *qn_stream_squeezed(void);

#endif
