/* A program of somebody else's: it knows the installed header and library only, adds three numbers and looks at the sums. */
#include <quern/quern.h>

#include <stdio.h>

int main(void) {
    float a[3] = {1, 2, 3}, b[3] = {10, 20, 30}, y[3] = {0, 0, 0};
    const int64_t shape[1] = {3};
    qn_tensor ta, tb, ty;
    qn_context *context = NULL;
    qn_result result;
    qn_request request;
    if (qn_tensor_init(&ta, QN_DTYPE_F32, 1, shape, a, sizeof a) != QN_OK) return 1;
    if (qn_tensor_init(&tb, QN_DTYPE_F32, 1, shape, b, sizeof b) != QN_OK) return 1;
    if (qn_tensor_init(&ty, QN_DTYPE_F32, 1, shape, y, sizeof y) != QN_OK) return 1;
    if (qn_context_create(NULL, &context) != QN_OK) return 1;

    memset(&request, 0, sizeof request);
    request.size = (uint32_t)sizeof request;
    request.version = QN_REQUEST_VERSION;
    request.op = QN_OP_add;
    request.n_src = 2;
    request.n_dst = 1;
    request.src[0] = &ta;
    request.src[1] = &tb;
    request.dst[0] = &ty;
    qn_status status = qn_dispatch(context, &request, &result);
    qn_context_destroy(context);

    printf("quern %s: %s, %g %g %g\n", qn_version(), qn_status_name(status), (double)y[0], (double)y[1], (double)y[2]);
    return status == QN_OK && y[0] == 11 && y[1] == 22 && y[2] == 33 ? 0 : 1;
}
