/* How many bytes a call reads, for whoever counts them: a table by index is not read whole. */
#ifndef QN_OP_OP_BYTES_H
#define QN_OP_OP_BYTES_H

#include "op/op.h"

/* Bytes of source i that an accepted call reads, of `all` it has: none where only the shape counts, of a table what indices name. */
uint64_t qn_op_bytes_read(const qn_op_info *info, int op, int i, uint64_t all, const qn_tensor *const *src);

#endif
