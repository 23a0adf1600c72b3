/* What a result says of a call that lacks its parts: never that something was accepted, and of an op only when one was named. */
#include <string.h>

#include <quern/quern.h>

#include "cmocka_setup.h"

static void says(const qn_result *r, qn_status status, const char *sentence) {
    char text[256];
    assert_int_equal(status, QN_ARGUMENT);
    assert_int_equal(r->status, QN_ARGUMENT);
    qn_result_format(r, text, sizeof text);
    assert_string_equal(text, sentence);
}

static void calls_without_their_parts_are_not_accepted(void **state) {
    (void)state;
    qn_context *context;
    qn_result r;
    qn_tensor out[QN_MAX_DST];
    size_t bytes;
    int n;
    qn_request q = {.size = sizeof q, .version = QN_REQUEST_VERSION, .op = QN_OP_add};
    assert_int_equal(qn_context_create(NULL, &context), QN_OK);
    says(&r, qn_dispatch(NULL, NULL, &r), "dispatch: no request was given");
    says(&r, qn_dispatch(context, NULL, &r), "dispatch: no request was given");
    says(&r, qn_dispatch(NULL, &q, &r), "add: no context was given");
    says(&r, qn_can_dispatch(NULL, NULL, &r), "dispatch: no request was given");
    says(&r, qn_can_dispatch(NULL, &q, &r), "add: no context was given");
    says(&r, qn_infer(NULL, out, &n, &r), "dispatch: no request was given");
    says(&r, qn_infer(&q, NULL, &n, &r), "add: there is no place for the answer");
    says(&r, qn_infer(&q, out, NULL, &r), "add: there is no place for the answer");
    says(&r, qn_workspace_bytes(NULL, &bytes, &r), "dispatch: no request was given");
    says(&r, qn_workspace_bytes(&q, NULL, &r), "add: there is no place for the answer");
    assert_int_equal(qn_dispatch(NULL, NULL, NULL), QN_ARGUMENT);
    qn_context_destroy(context);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(calls_without_their_parts_are_not_accepted)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
