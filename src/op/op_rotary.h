/* Which row of its tables a row of rope_table is turned by. */
#ifndef QN_OP_OP_ROTARY_H
#define QN_OP_OP_ROTARY_H

#include "op/ref.h"

/* Position of the walked row, whose tokens lie along `token_axis`, counted from the last. Without positions a token's number is it. */
static inline int64_t qn_rotary_position(int token_axis, const qn_rows *it, const qn_tensor *positions) {
    int64_t at = 0;
    int token = it->rank - 1 - token_axis;
    if (!positions) return token < 0 ? 0 : it->index[token];
    for (int k = 0; k < positions->rank && k <= token; k++)
        if (qn_ne(positions, k) > 1) at += it->index[token - k] * qn_nb(positions, k);
    return qn_load_index((qn_dtype)positions->dtype, qn_at(positions, at));
}

#endif
