/* A program that wants two products and nothing else, beside a library that has nothing else: products are right, and each function
 * of what was left out answers with a sentence, makes no handle and takes NULL where there is one to take. */
#include <quern/quern.h>

#include <quern/device.h>

#include <stdio.h>

static int faults;

static void expect(int good, const char *what) {
    if (!good) printf("FAULT: %s\n", what), faults++;
}

static void refused(qn_status status, const qn_error *error, const char *part, const void *handle, const char *what) {
    expect(status == QN_UNSUPPORTED && error->status == QN_UNSUPPORTED, what);
    expect(strstr(error->text, "this build has no ") == error->text && strstr(error->text, part) != NULL, error->text);
    expect(handle == NULL, what);
}

static void multiply(void) {
    float a[2][3] = {{1, 2, 3}, {4, 5, 6}}, b[3][2] = {{1, 0}, {0, 1}, {1, 1}}, y[2][2] = {{0, 0}, {0, 0}};
    const int64_t left[2] = {2, 3}, right[2] = {3, 2}, both[2] = {2, 2};
    qn_tensor ta, tb, ty;
    qn_context *context = NULL;
    qn_tensor_init(&ta, QN_DTYPE_F32, 2, left, a, sizeof a);
    qn_tensor_init(&tb, QN_DTYPE_F32, 2, right, b, sizeof b);
    qn_tensor_init(&ty, QN_DTYPE_F32, 2, both, y, sizeof y);
    qn_request product = {.size = sizeof product,
                          .version = QN_REQUEST_VERSION,
                          .op = QN_OP_matmul,
                          .n_src = 2,
                          .n_dst = 1,
                          .src = {&ta, &tb},
                          .dst = {&ty}};
    expect(qn_context_create(NULL, &context) == QN_OK, "a context");
    expect(qn_dispatch(context, &product, NULL) == QN_OK, "a product");
    expect(y[0][0] == 4 && y[0][1] == 5 && y[1][0] == 10 && y[1][1] == 11, "the numbers of a product");
    qn_context_destroy(context);
}

int main(void) {
    qn_error error = {QN_OK, ""};
    qn_status status;
    qn_model *model = (qn_model *)&error; /* not NULL: it must become so */
    qn_session *session = (qn_session *)&error;
    qn_tokenizer *tokenizer = (qn_tokenizer *)&error;
    qn_sampler *sampler = (qn_sampler *)&error;
    qn_profile *profile = (qn_profile *)&error;
    qn_device *device = (qn_device *)&error;
    multiply();
    status = qn_model_open("x.gguf", NULL, &model, &error);
    refused(status, &error, "models", model, "qn_model_open");
    status = qn_session_create(NULL, NULL, &session, &error);
    refused(status, &error, "models", session, "qn_session_create");
    status = qn_tokenizer_create(NULL, &tokenizer, &error);
    refused(status, &error, "models", tokenizer, "qn_tokenizer_create");
    status = qn_sampler_create(NULL, &sampler, &error);
    refused(status, &error, "models", sampler, "qn_sampler_create");
    status = qn_profile_open("x.json", NULL, &profile, &error);
    refused(status, &error, "profiler", profile, "qn_profile_open");
    status = qn_device_open("vulkan", 0, &device, &error);
    refused(status, &error, "Vulkan", device, "qn_device_open");
    expect(qn_model_open("x.gguf", NULL, NULL, NULL) == QN_UNSUPPORTED, "no handle and no error to fill");
    expect(qn_session_plan(NULL) == NULL && qn_session_length(NULL, 0) == 0 && qn_profile_view_name(0) == NULL,
           "nothing of nothing");
    qn_model_close(NULL);
    qn_session_destroy(NULL);
    qn_tokenizer_destroy(NULL);
    qn_sampler_destroy(NULL);
    qn_profile_close(NULL);
    if (!faults) printf("small: products are right, and what is left out says so\n");
    return faults != 0;
}
