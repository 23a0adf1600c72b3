/* Decoded rows become panels: some of a row at a time, turned over their diagonal or laid out line by line. */
#include "cpu/k_decoded.h"

#include "cpu/k_codec.h"
#include "tensor/dtype.h"

enum { RUN = QN_DECODED_RUN, ROOM = QN_DECODED_ROOM };

void qn_decoded_turn(const qn_gemm_side *side, qn_decoded_fn decode, int64_t first, int64_t count, int64_t first_k, int depth,
                     float *panel, int step) {
    float rows[QN_GEMM_WIDE * ROOM];
    qn_gemm_side from = {.data = (const char *)rows, .along = ROOM * 4, .deep = 4, .dtype = QN_DTYPE_F32};
    qn_gemm_fetch_fn turn = qn_gemm_plain_fetch(QN_DTYPE_F32, ROOM * 4, 4, RUN);
    for (int64_t i = 0; i < count; i += step, panel += (int64_t)step * depth) {
        int64_t some = count - i < step ? count - i : step;
        for (int p = 0; p < depth; p += RUN) {
            int deep = depth - p < RUN ? depth - p : RUN;
            for (int64_t r = 0; r < some; r++) decode(side, first + i + r, first_k + p, deep, rows + r * ROOM);
            turn(&from, 0, 0, some, 0, deep, panel + (int64_t)p * step, step);
        }
    }
}

/* A run of columns may begin and end within panels. */
void qn_decoded_copy(const qn_gemm_side *side, qn_decoded_fn decode, int64_t first, int64_t count, int64_t first_k, int depth,
                     float *panel, int step, int unit) {
    float line[ROOM];
    for (int p = 0; p < depth; p++) {
        for (int64_t at = first / unit * unit; at < first + count; at += RUN) {
            int64_t from = at > first ? at : first, end = at + RUN < first + count ? at + RUN : first + count;
            decode(side, first_k + p, at, (int)(end - at), line);
            for (int64_t i = from; i < end;) {
                int64_t number = (i - first) / step, lane = (i - first) % step;
                int64_t some = step - lane < end - i ? step - lane : end - i;
                memcpy(panel + (number * depth + p) * step + lane, line + (i - at), (size_t)some * sizeof *line);
                i += some;
            }
        }
    }
}

static void decode_row(const qn_gemm_side *side, int64_t row, int64_t first, int n, float *to) {
    const qn_dtype_info *d = qn_dtype_describe((qn_dtype)side->dtype);
    const char *blocks = side->data + row * side->along + first / d->block * d->bytes;
    qn_codec_decode(side->dtype, (const uint8_t *)blocks, (n + d->block - 1) / d->block * d->block, to);
}

void qn_decoded_blocks(const qn_gemm_side *side, int64_t batch_offset, int64_t first, int64_t count, int64_t first_k, int depth,
                       float *panel, int step) {
    qn_gemm_side here = *side;
    here.data += batch_offset;
    qn_decoded_turn(&here, decode_row, first, count, first_k, depth, panel, step);
}

void qn_decoded_describe(const qn_tensor *x, const qn_tensor *y, qn_gemm *g) {
    int flat = qn_cpu_is_dense(x) && qn_cpu_is_dense(y); /* whatever the stride of an axis of one */
    int64_t x_bytes = qn_dtype_bytes(x->dtype), y_bytes = qn_dtype_bytes(y->dtype);
    *g = (qn_gemm){.n = qn_ne(y, 0), .k = qn_ne(x, 0), .c = qn_at(y, 0), .c_dtype = y->dtype, .c_column = qn_nb(y, 0)};
    g->m = flat ? qn_tensor_count(y) / g->n : qn_ne(y, 1);
    g->c_row = flat ? g->n * y_bytes : qn_nb(y, 1);
    g->a = (qn_gemm_side){.data = qn_at(x, 0), .deep = qn_nb(x, 0), .dtype = x->dtype};
    g->a.along = flat ? g->k * x_bytes : qn_nb(x, 1);
    for (int i = y->rank - 1; !flat && i > 1; i--) qn_gemm_axis(g, qn_ne(y, i), qn_nb(x, i), 0, qn_nb(y, i));
}
