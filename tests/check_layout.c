/* Where the elements of a tensor lie, in the ways a caller may lay them out, and reading or writing all of them in order. */
#include <string.h>

#include "check.h"
#include "tensor/convert.h"
#include "tensor/quant.h"

/* Order in which axes are laid out in memory, innermost first. */
static void memory_order(char layout, int rank, int is_block, int *order) {
    for (int i = 0; i < rank; i++) order[i] = rank - 1 - i;
    if (layout == 't' && rank > 1 && !is_block) order[0] = rank - 2, order[1] = rank - 1;
    if (layout == 'h' && rank > 2) order[1] = rank - 3, order[2] = rank - 2;
    if (layout == 'x')
        for (int i = is_block; i < rank; i++) order[i] = i - is_block;
}

/* 0 dense · s gaps after every element and row · t last two axes swapped in memory, h the two before the last · x all axes in the other order, with
 * gaps · r last axis backwards · n every axis backwards, with gaps · b first axis of stride zero. Blocks stay whole: their last
 * axis is never touched. The buffer ends with the last byte that is used, so reading past it is outside. */
void qc_layout(char layout, uint32_t dtype, int rank, const int64_t *shape, int64_t *stride, int64_t *offset, uint64_t *bytes) {
    const qn_dtype_info *info = qn_dtype_describe((qn_dtype)dtype);
    int is_block = info->block > 1, order[QN_MAX_RANK];
    int64_t unit = info->bytes, step = unit, low = 0, high = 0;
    int gaps = layout == 's' || layout == 'x' || layout == 'n';
    memory_order(layout, rank, is_block, order);
    for (int k = 0; k < rank; k++) {
        int axis = order[k], last = axis == rank - 1;
        int64_t n = last && is_block ? shape[axis] / info->block : shape[axis];
        if (gaps && !(last && is_block)) step += unit;
        stride[axis] = step;
        if (layout == 'b' && axis == 0 && !(last && is_block)) stride[axis] = 0, n = 1;
        step *= n > 0 ? n : 1;
        if ((layout == 'n' || (layout == 'r' && last)) && !(last && is_block)) stride[axis] = -stride[axis];
    }
    for (int k = 0; k < rank; k++) {
        int64_t n = k == rank - 1 && is_block ? shape[k] / info->block : shape[k];
        if (n > 0) *(stride[k] < 0 ? &low : &high) += (n - 1) * stride[k];
    }
    int64_t front = gaps ? 3 * unit : 0;
    *offset = front - low;
    *bytes = (uint64_t)(front - low + high + unit);
    if (qc_count(rank, shape) == 0) *offset = 0, *bytes = 0;
}

qn_status qc_tensor_make(qn_tensor *t, char layout, uint32_t dtype, int rank, const int64_t *shape) {
    memset(t, 0, sizeof *t);
    if (qc_count(rank, shape) < 0 || qc_count(rank, shape) > 4 * qc_set.room) return QN_NO_MEMORY;
    t->dtype = dtype;
    t->rank = rank;
    memcpy(t->shape, shape, (size_t)rank * sizeof *shape);
    qc_layout(layout, dtype, rank, shape, t->stride, &t->offset, &t->size);
    t->data = qc_alloc((size_t)t->size, 64);
    return t->data ? QN_OK : QN_NO_MEMORY;
}

void qc_each(const qn_tensor *t, void (*visit)(void *self, char *at, int64_t i), void *self) {
    const qn_dtype_info *info = qn_dtype_describe((qn_dtype)t->dtype);
    int64_t shape[QN_MAX_RANK], index[QN_MAX_RANK] = {0};
    memcpy(shape, t->shape, sizeof shape);
    shape[t->rank - 1] /= info->block;
    int64_t n = qc_count(t->rank, shape);
    for (int64_t k = 0; k < n; k++) {
        int64_t at = t->offset;
        for (int i = 0; i < t->rank; i++) at += index[i] * t->stride[i];
        visit(self, (char *)t->data + at, k);
        for (int i = t->rank - 1; i >= 0 && ++index[i] == shape[i]; i--) index[i] = 0;
    }
}

typedef struct gathering {
    unsigned char *out;
    size_t bytes, room;
} gathering;

static void gather_one(void *self, char *at, int64_t i) {
    gathering *g = self;
    size_t to = (size_t)i * g->bytes;
    if (to + g->bytes <= g->room) memcpy(g->out + to, at, g->bytes);
}

size_t qc_gather(const qn_tensor *t, void *out, size_t room) {
    const qn_dtype_info *info = qn_dtype_describe((qn_dtype)t->dtype);
    gathering g = {out, (size_t)info->bytes, room};
    qc_each(t, gather_one, &g);
    return (size_t)(qc_count(t->rank, t->shape) / info->block) * (size_t)info->bytes;
}

typedef struct values {
    qn_dtype dtype;
    int64_t block;
    double *out;
    const double *in;
    qc_rng *rng;
} values;

static void load_one(void *self, char *at, int64_t i) {
    values *v = self;
    qn_load_run(v->dtype, at, 0, 0, v->block, v->out + i * v->block);
}

void qc_doubles(const qn_tensor *t, double *out) {
    const qn_dtype_info *info = qn_dtype_describe((qn_dtype)t->dtype);
    qc_each(t, load_one, &(values){.dtype = (qn_dtype)t->dtype, .block = info->block, .out = out});
}

static void encode_block(qn_dtype dtype, const float *run, qc_rng *rng, char *at) {
    const qn_dtype_info *info = qn_dtype_describe(dtype);
    const qn_block_codec *codec = qn_tensor_block_codec(dtype);
    if (codec && codec->encode) codec->encode(run, 1, (uint8_t *)at);
    else /* any bytes are a block, and bytes this small make every f16 scale in it finite */
        for (int32_t k = 0; k < info->bytes; k++) at[k] = (char)qc_below(rng, 0x3b);
}

static void store_one(void *self, char *at, int64_t i) {
    values *v = self;
    const qn_dtype_info *info = qn_dtype_describe(v->dtype);
    if (v->dtype == QN_DTYPE_C64) { /* an imaginary part too, so that a copy that drops it is seen */
        float pair[2] = {(float)v->in[i], (float)qc_unit(v->rng)};
        memcpy(at, pair, sizeof pair);
    } else if (info->block == 1) {
        qn_store_one(v->dtype, at, v->in[i]);
    } else {
        float run[256];
        for (int64_t k = 0; k < info->block; k++) run[k] = (float)v->in[i * info->block + k];
        encode_block(v->dtype, run, v->rng, at);
    }
}

/* Blocks of random values, made once per dtype: some encoders search long for their codes. */
enum { POOL = 16, BLOCK_BYTES = 320 };

static const char *pooled_block(qn_dtype dtype, int64_t i) {
    static char pool[QN_DTYPE_COUNT][POOL][BLOCK_BYTES];
    static char ready[QN_DTYPE_COUNT];
    for (int k = 0; !ready[dtype] && k < POOL; k++) {
        float run[256];
        qc_rng rng = {qc_mix(dtype, (uint64_t)k)};
        for (int j = 0; j < 256; j++) run[j] = (float)(2 * qc_unit(&rng) - 1);
        encode_block(dtype, run, &rng, pool[dtype][k]);
    }
    ready[dtype] = 1;
    return pool[dtype][i];
}

static void store_pooled(void *self, char *at, int64_t i) {
    values *v = self;
    (void)i;
    memcpy(at, pooled_block(v->dtype, qc_below(v->rng, POOL)), (size_t)qn_dtype_describe(v->dtype)->bytes);
}

void qc_store_blocks(const qn_tensor *t, qc_rng *rng) {
    qc_each(t, store_pooled, &(values){.dtype = (qn_dtype)t->dtype, .rng = rng});
}

void qc_store_doubles(const qn_tensor *t, const double *in, qc_rng *rng) {
    const qn_dtype_info *info = qn_dtype_describe((qn_dtype)t->dtype);
    qc_each(t, store_one, &(values){.dtype = (qn_dtype)t->dtype, .block = info->block, .in = in, .rng = rng});
}
