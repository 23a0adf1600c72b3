/* How fast products of bytes, summed in 32 bits, can go at best: one loop per instruction set, chosen at run time. */
#ifndef QN_PROF_ROOFLINE_DOTS_H
#define QN_PROF_ROOFLINE_DOTS_H

#include "prof/roofline_fma.h"

/* By vectors and by tiles. `flops` counts a product and its addition as two; isa "" and no loop: the machine has no such instruction. */
qn_fma_loop qn_dots_best(void);
qn_fma_loop qn_dots_tiles(void);

#endif
