/* Tensors on their way into a GGUF file: fetched in pieces of rows, converted on all threads, written. */
#include "quantize.h"

enum { PIECE_BYTES = 2 << 20 }; /* small enough for Ctrl-C to be heard soon, whatever the type costs */

static qn_status stop_error(qn_error *error) { return qn_error_set(error, QN_CANCELLED, "stopped; nothing was written"); }

/* Rows of one part, which have the same weights. */
typedef struct piece {
    int64_t first, rows, columns;
    const float *importance;
} piece;

static qn_status write_piece(qn_writer *writer, qn_pool *pool, const model_item *item, const piece *p, void *raw, void *out,
                             qn_error *error) {
    const qn_dtype_info *a = qn_dtype_describe(item->from), *b = qn_dtype_describe((qn_dtype)item->shape.dtype);
    uint64_t row_from = (uint64_t)(p->columns / a->block) * (uint64_t)a->bytes;
    uint64_t row_to = (uint64_t)(p->columns / b->block) * (uint64_t)b->bytes;
    const void *src = raw;
    if (item->data) src = (const char *)item->data + (uint64_t)p->first * row_from;
    else item->rows(item->user, p->first, p->rows, raw);
    if (item->from != (qn_dtype)item->shape.dtype) {
        qn_status status = qn_convert_rows(pool, item->from, src, (qn_dtype)item->shape.dtype, out, p->rows, p->columns,
                                           p->importance);
        if (status != QN_OK) return qn_error_set(error, status, "tensor '%s': %s cannot become %s", item->name, a->name, b->name);
        src = out;
    }
    return qn_writer_data(writer, src, (uint64_t)p->rows * row_to); /* its own error is the writer's, and comes at the end */
}

static qn_status write_all(qn_writer *writer, qn_pool *pool, const model_item *item, int64_t rows, int64_t columns, void *raw,
                           void *out, int64_t rows_each, uint64_t *done, uint64_t total, qn_error *error) {
    int64_t experts = item->experts > 1 ? item->experts : 1, rows_of_one = rows / experts;
    uint64_t row_bytes = item->shape.size ? item->shape.size / (uint64_t)rows : 0;
    for (int64_t e = 0; e < experts; e++)
        for (int64_t at = 0; at < rows_of_one; at += rows_each) {
            piece p = {e * rows_of_one + at, rows_of_one - at < rows_each ? rows_of_one - at : rows_each, columns, NULL};
            if (item->importance) p.importance = item->importance + (item->experts > 1 ? e * columns : 0);
            if (*model_stopped()) return stop_error(error);
            model_progress(item->name, *done, total);
            qn_status status = write_piece(writer, pool, item, &p, raw, out, error);
            if (status != QN_OK) return status;
            *done += (uint64_t)p.rows * row_bytes;
        }
    return QN_OK;
}

qn_status model_write(qn_writer *writer, qn_pool *pool, const model_item *item, uint64_t *done, uint64_t total, qn_error *error) {
    int64_t columns = item->shape.shape[item->shape.rank - 1], rows = 1;
    const qn_dtype_info *a = qn_dtype_describe(item->from);
    model_item sized = *item;
    for (int i = 0; i + 1 < item->shape.rank; i++) rows *= item->shape.shape[i];
    if (rows == 0 || columns == 0) return QN_OK;
    if (qn_tensor_bytes((qn_dtype)item->shape.dtype, item->shape.rank, item->shape.shape, &sized.shape.size) != QN_OK)
        return qn_error_set(error, QN_INVALID, "tensor '%s': its size overflows", item->name);
    uint64_t row_from = (uint64_t)(columns / a->block) * (uint64_t)a->bytes, row_to = sized.shape.size / (uint64_t)rows;
    uint64_t larger = row_from > row_to ? row_from : row_to;
    int64_t rows_each = (int64_t)(PIECE_BYTES / larger) + 1;
    if (rows_each > rows) rows_each = rows;
    void *raw = item->data ? NULL : malloc((size_t)rows_each * row_from);
    void *out = item->from == (qn_dtype)item->shape.dtype ? NULL : malloc((size_t)rows_each * row_to);
    qn_status status = QN_NO_MEMORY;
    if ((item->data || raw) && (out || item->from == (qn_dtype)item->shape.dtype))
        status = write_all(writer, pool, &sized, rows, columns, raw, out, rows_each, done, total, error);
    else qn_error_set(error, status, "tensor '%s': no memory for %lld of its rows", item->name, (long long)rows_each);
    free(raw);
    free(out);
    return status;
}
