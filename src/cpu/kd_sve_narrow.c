/* What level sve leaves to NEON's vectors of 16 bytes: one row times packed weights, for the types with which a model of a Neoverse V1 is
 * faster by these. Such a machine goes through as many bytes with either, and SVE has no instruction before its second version that takes
 * bits of one byte into another. */
#define QN_NARROW 1
#include "cpu/kd_abreast.c"
#include "cpu/kd_unpack.c"
#include "cpu/kd_unpack_iq.c"
