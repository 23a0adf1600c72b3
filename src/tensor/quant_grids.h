/* Codebooks of the iq1, iq2 and iq3 block types. An entry is one u16 of packed digits, the lowest digit belonging to
 * the first element: eight 2-bit digits, or for iq3 four 3-bit digits. What a digit stands for depends on the type. */
#ifndef QN_TENSOR_QUANT_GRIDS_H
#define QN_TENSOR_QUANT_GRIDS_H

#include <stdint.h>

extern const uint16_t qn_grid_iq2_xxs[256];
extern const uint16_t qn_grid_iq2_xs[512];
extern const uint16_t qn_grid_iq2_s[1024];
extern const uint16_t qn_grid_iq3_xxs[256];
extern const uint16_t qn_grid_iq3_s[512];
extern const uint16_t qn_grid_iq1[2048];

/* Digit values; the fourth of the 2-bit lists never occurs. */
extern const int8_t qn_grid_values_iq2[4];
extern const int8_t qn_grid_values_iq1[4];
extern const int8_t qn_grid_values_iq3_xxs[8];
extern const int8_t qn_grid_values_iq3_s[8];

#endif
