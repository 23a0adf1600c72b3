/* How flash_attn_ext and its gradient see their operands. */
#ifndef QN_CPU_K_FLASH_H
#define QN_CPU_K_FLASH_H

#include "cpu/k_attention.h"

/* What flash_attn_ext and flash_attn_back have in common; y is left out. mask and sinks may be NULL. */
#define qn_attend_flash QN_K(attend_flash)
qn_attend qn_attend_flash(const qn_call *c, const qn_tensor *mask, const qn_tensor *sinks);

#endif
