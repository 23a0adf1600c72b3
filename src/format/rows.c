/* Rows from any dtype to any other, on as many threads as there are: what quantising and converting model files is made of. */
#include <quern/format.h>

#include "tensor/convert.h"
#include "tensor/quant.h"
#include "thread/pool.h"

enum { CHUNK = 2048, ROWS_AT_LEAST = 16384 }; /* elements at a time, a multiple of every block; and for a thread to be worth it */

typedef struct rows_job {
    qn_dtype from, to;
    const qn_dtype_info *a, *b;
    const char *src;
    char *dst;
    const float *importance;
    int64_t rows, n, rows_each;
} rows_job;

/* Elements [first, first + count) of one row. */
static void convert_chunk(const rows_job *job, const char *src, char *dst, int64_t first, int64_t count) {
    const qn_block_codec *codec = qn_tensor_block_codec(job->to);
    const void *at = src + first / job->a->block * job->a->bytes;
    void *to = dst + first / job->b->block * job->b->bytes;
    float wide[CHUNK];
    if (job->from == job->to || !codec) {
        qn_convert(job->from, at, job->to, to, count);
        return;
    }
    if (job->from != QN_DTYPE_F32) {
        qn_convert(job->from, at, QN_DTYPE_F32, wide, count);
        at = wide;
    }
    qn_tensor_block_encode(codec, at, job->importance ? job->importance + first : NULL, count / job->b->block, to);
}

static void convert_part(void *arg, int64_t part) {
    const rows_job *job = arg;
    int64_t end = (part + 1) * job->rows_each < job->rows ? (part + 1) * job->rows_each : job->rows;
    for (int64_t row = part * job->rows_each; row < end; row++) {
        const char *src = job->src + row * (job->n / job->a->block * job->a->bytes);
        char *dst = job->dst + row * (job->n / job->b->block * job->b->bytes);
        for (int64_t first = 0; first < job->n; first += CHUNK)
            convert_chunk(job, src, dst, first, job->n - first < CHUNK ? job->n - first : CHUNK);
    }
}

qn_status qn_convert_rows(qn_pool *pool, qn_dtype from, const void *src, qn_dtype to, void *dst, int64_t rows, int64_t n,
                          const float *importance) {
    const qn_dtype_info *a = qn_dtype_describe(from), *b = qn_dtype_describe(to);
    int64_t shape[2] = {rows, n};
    uint64_t bytes;
    if (!a || !b || ((!src || !dst) && rows && n)) return QN_INVALID;
    if (qn_tensor_bytes(from, 2, shape, &bytes) != QN_OK || qn_tensor_bytes(to, 2, shape, &bytes) != QN_OK) return QN_INVALID;
    int floats = (a->kind == QN_KIND_FLOAT || a->kind == QN_KIND_BLOCK) && (b->kind == QN_KIND_FLOAT || b->kind == QN_KIND_BLOCK);
    int plain = a->kind != QN_KIND_BLOCK && b->kind != QN_KIND_BLOCK && a->kind != QN_KIND_COMPLEX && b->kind != QN_KIND_COMPLEX;
    if (from != to && !floats && !plain) return QN_UNSUPPORTED;
    if (rows == 0 || n == 0) return QN_OK;
    rows_job job = {from, to, a, b, src, dst, importance, rows, n, ROWS_AT_LEAST / n + 1};
    qn_pool_for(pool, (rows + job.rows_each - 1) / job.rows_each, convert_part, &job);
    return QN_OK;
}
