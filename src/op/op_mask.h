/* A mask of soft_max is tiled over the axes of x in front of its rows: where the tiles of one of its rows are. */
#ifndef QN_OP_OP_MASK_H
#define QN_OP_OP_MASK_H

#include "op/ref.h"

/* How many rows of t use one row of the mask. */
static inline int64_t qn_op_mask_tiles(const qn_tensor *mask, const qn_tensor *t) {
    int64_t tiles = qn_tensor_count(t) > 0;
    for (int k = 2; tiles > 0 && k < t->rank; k++) tiles *= qn_ne(t, k) / qn_ne(mask, k);
    return tiles;
}

/* Byte offset in t of tile number `tile` of the mask's row that `it` stands on; *head becomes the tile's. */
static inline int64_t qn_op_mask_tile(const qn_rows *it, const qn_tensor *mask, const qn_tensor *t, int64_t tile, int64_t *head) {
    int64_t offset = it->rank >= 2 ? it->index[it->rank - 2] * qn_nb(t, 1) : 0;
    *head = 0;
    for (int k = 2; k < t->rank; k++) {
        int64_t extent = qn_ne(mask, k), tiles = qn_ne(t, k) / extent, index = tile % tiles * extent;
        if (k < it->rank) index += it->index[it->rank - 1 - k];
        tile /= tiles;
        offset += index * qn_nb(t, k);
        if (k == 2) *head = index;
    }
    return offset;
}

#endif
