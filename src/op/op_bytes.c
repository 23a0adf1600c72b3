/* Which sources are tables is in tables.def. */
#include "op/op_bytes.h"

typedef struct table {
    uint32_t sources;
    uint8_t index, axis;
} table;

static const table tables[QN_OP_COUNT] = {
#define QN_TABLE(op, sources, index, axis) [QN_OP_##op] = {sources, index, axis},
#include "op/tables.def"
#undef QN_TABLE
};

uint64_t qn_op_bytes_read(const qn_op_info *info, int op, int i, uint64_t all, const qn_tensor *const *src) {
    const table *t = &tables[op];
    if (info->src[i].flags & QN_SLOT_SHAPE) return 0;
    if (!(t->sources >> i & 1u) || !src[t->index]) return all;
    uint64_t parts = 1, named = (uint64_t)qn_tensor_count(src[t->index]);
    for (int k = t->axis; k < src[i]->rank; k++) parts *= (uint64_t)qn_ne(src[i], k);
    return parts > named ? all / parts * named : all;
}
