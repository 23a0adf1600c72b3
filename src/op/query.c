/* What a request would give and need, asked without running it: the first half of the guard, nothing else. */
#include "op/guard.h"

qn_status qn_infer(const qn_request *request, qn_tensor *out, int *n_out, qn_result *result) {
    qn_result local, *r = result ? result : &local;
    qn_guarded g;
    qn_result_begin(request, r);
    if (!request || !out || !n_out) return qn_result_lacks(r, request ? QN_REASON_NO_PLACE : QN_REASON_NO_REQUEST);
    *n_out = 0;
    QN_TRY(qn_guard_sources(request, 0, &g, r));
    for (int i = 0; i < g.infer.n_out; i++) {
        const qn_shape *s = &g.infer.out[i];
        if (qn_tensor_init(&out[i], (qn_dtype)s->dtype, s->rank, s->d, NULL, 0) != QN_OK)
            return qn_reject(&g.infer, QN_INVALID, QN_ARG_DEST, i, QN_REASON_SIZE_OVERFLOW, 0, INT64_MAX, s->d[0]);
    }
    if (g.info->is_view) {
        const qn_tensor *a = request->src[0];
        out[0].data = a->data;
        out[0].size = a->size;
        out[0].offset = g.infer.view_offset;
        out[0].flags = a->flags;
        memcpy(out[0].stride, g.infer.view_stride, sizeof out[0].stride);
        for (int i = out[0].rank; i < QN_MAX_RANK; i++) out[0].stride[i] = 0;
    }
    *n_out = g.infer.n_out;
    return QN_OK;
}
