/* Memory that ends anywhere, in models, sessions, recorders and the analyser: see failing.h. */
#include <stdio.h>

#include "failing.h"
#include "folder_help.h"
#include "libraries.h"

static qn_status pass_over(void *user, const char *text, size_t n) {
    *(size_t *)user += text ? n : 0;
    return QN_OK;
}

/* ---- Models and sessions */

typedef struct model_scene {
    const char *model, *kept;
} model_scene;

static qn_status sessions(const void *user, qn_error *error) {
    const model_scene *at = user;
    static const int32_t IDS[] = {1, 2, 3, 1, 0};
    qn_model *m = NULL;
    qn_session *s = NULL;
    qn_session_options o = {.size = sizeof o, .context = 16, .sequences = 2, .batch = 4};
    qn_status status = qn_model_open(at->model, NULL, &m, error);
    assert_true((status == QN_OK) == (m != NULL));
    if (status == QN_OK) status = qn_session_create(m, &o, &s, error);
    assert_true((status == QN_OK) == (s != NULL));
    const qn_session_part parts[2] = {{0, 5, IDS, 1}, {1, 3, IDS, 0}};
    if (status == QN_OK) status = qn_session_run(s, parts, 2, error);
    const qn_session_part next[2] = {{1, 1, IDS, 0}, {0, 1, IDS, 0}};
    if (status == QN_OK) status = qn_session_run(s, next, 2, error);
    if (status == QN_OK) status = qn_session_save(s, 0, at->kept, error);
    if (status == QN_OK) status = qn_session_load(s, 1, at->kept, NULL, 0, error);
    if (status == QN_OK) status = qn_session_run(s, next, 1, error);
    qn_session_destroy(s);
    qn_model_close(m);
    return status;
}

static void sessions_end_well(void **state) {
    static const char *const MODELS[] = {"good", "experts"};
    for (size_t i = 0; i < sizeof MODELS / sizeof *MODELS; i++) {
        char path[100], kept[200];
        snprintf(path, sizeof path, "fuzz/corpus/model/%s", MODELS[i]);
        snprintf(kept, sizeof kept, "%s/kept", (const char *)*state);
        const model_scene at = {path, kept};
        print_message("%s: %ld\n", path, play(path, sessions, &at, QN_OK));
    }
}

/* A tokenizer that is made is that of the file, not one that lacks what there was no memory for. */
static qn_status vocabularies(const void *user, qn_error *error) {
    qn_model *m = NULL;
    const qn_tokenizer *t;
    qn_file_options o = qn_file_options_default();
    qn_tokenizer_info info = {.size = sizeof info};
    o.flags = QN_MODEL_VOCABULARY;
    qn_status status = qn_model_open(user, &o, &m, error);
    if (status == QN_OK) status = qn_model_tokenizer(m, &t, error);
    if (status == QN_OK) {
        assert_int_equal(qn_tokenizer_describe(t, &info), QN_OK);
        assert_true(info.n_tokens > 0 && info.model[0]);
    }
    qn_model_close(m);
    return status;
}

static void vocabularies_end_well(void **state) {
    (void)state;
    qn_status usual = HAVE_PCRE2 ? QN_OK : QN_UNSUPPORTED;
    print_message("vocabulary: %ld\n", play("vocabulary", vocabularies, "models/stories.gguf", usual));
}

/* ---- The analyser */

static qn_status views(const void *user, qn_error *error) {
    qn_profile *p = NULL;
    size_t n = 0;
    qn_status status = qn_profile_open(user, NULL, &p, error);
    assert_true((status == QN_OK) == (p != NULL));
    if (status == QN_OK) status = qn_profile_load(p, 0, 0, 0, error);
    for (int i = 0; status == QN_OK && qn_profile_view_name(i); i++) {
        status = qn_profile_view(p, qn_profile_view_name(i), NULL, pass_over, &n, error);
        if (status == QN_UNSUPPORTED) status = QN_OK;
    }
    qn_profile_close(p);
    return status;
}

/* Something of every kind: operators in modules, calls, kernels, copies, links to backward work, memory, steps, a collective. */
static const char TRACE
    [] = "{\"schemaVersion\": 1, \"deviceProperties\": [{\"id\": 0, \"name\": \"G\", \"totalGlobalMem\": 1000, \"numSms\": 4}], "
         "\"distributedInfo\": {\"backend\": \"nccl\", \"rank\": 0, \"world_size\": 2}, \"traceEvents\": [\n"
         "{\"ph\": \"M\", \"name\": \"process_name\", \"pid\": 1, \"args\": {\"name\": \"python\"}},\n"
         "{\"ph\": \"X\", \"cat\": \"user_annotation\", \"name\": \"ProfilerStep#1\", \"pid\": 1, \"tid\": 1, \"ts\": 0, "
         "\"dur\": 100},\n"
         "{\"ph\": \"X\", \"cat\": \"user_annotation\", \"name\": \"ProfilerStep#2\", \"pid\": 1, \"tid\": 1, \"ts\": 100, "
         "\"dur\": 90},\n"
         "{\"ph\": \"X\", \"cat\": \"python_function\", \"name\": \"nn.Module: M_0\", \"pid\": 1, \"tid\": 1, \"ts\": 1, "
         "\"dur\": 80, \"args\": "
         "{\"Python id\": 1, \"Python module id\": 0}},\n"
         "{\"ph\": \"X\", \"cat\": \"python_function\", \"name\": \"nn.Module: L_0\", \"pid\": 1, \"tid\": 1, \"ts\": 2, "
         "\"dur\": 60, \"args\": "
         "{\"Python id\": 2, \"Python parent id\": 1, \"Python module id\": 0}},\n"
         "{\"ph\": \"X\", \"cat\": \"cpu_op\", \"name\": \"aten::mm\", \"pid\": 1, \"tid\": 1, \"ts\": 3, \"dur\": 40, \"args\": "
         "{\"External id\": 1, "
         "\"Input Dims\": [[2, 3], [3, 4]], \"Call stack\": \"a.py(1): f;b.py(2): g\", \"origin\": \"layer 1/attention\"}},\n"
         "{\"ph\": \"X\", \"cat\": \"cpu_op\", \"name\": \"aten::add\", \"pid\": 1, \"tid\": 1, \"ts\": 4, \"dur\": 9.5, "
         "\"args\": {\"External id\": 2}},\n"
         "{\"ph\": \"X\", \"cat\": \"cuda_runtime\", \"name\": \"cudaLaunchKernel\", \"pid\": 1, \"tid\": 1, \"ts\": 5, \"dur\": "
         "2, \"args\": "
         "{\"External id\": 2, \"correlation\": 7}},\n"
         "{\"ph\": \"X\", \"cat\": \"kernel\", \"name\": \"volta_fp16_s884gemm\", \"pid\": 0, \"tid\": 7, \"ts\": 20, \"dur\": "
         "30, \"args\": {\"External id\": 2, "
         "\"correlation\": 7, \"device\": 0, \"stream\": 7, \"grid\": [1, 2, 3], \"block\": [4, 5, 6], \"blocks per SM\": 0.5, "
         "\"est. achieved occupancy %\": 31, \"registers per thread\": 32, \"shared memory\": 16}},\n"
         "{\"ph\": \"X\", \"cat\": \"gpu_memcpy\", \"name\": \"Memcpy HtoD\", \"pid\": 0, \"tid\": 7, \"ts\": 60, \"dur\": 3, "
         "\"args\": {\"correlation\": 8, "
         "\"device\": 0}},\n"
         "{\"ph\": \"X\", \"cat\": \"cpu_op\", \"name\": \"autograd::engine::evaluate_function: MmBackward\", \"pid\": 1, "
         "\"tid\": 2, \"ts\": 110, \"dur\": 30, "
         "\"args\": {\"External id\": 3}},\n"
         "{\"ph\": \"X\", \"cat\": \"cpu_op\", \"name\": \"MmBackward\", \"pid\": 1, \"tid\": 2, \"ts\": 111, \"dur\": 20, "
         "\"args\": {\"External id\": 4}},\n"
         "{\"ph\": \"s\", \"cat\": \"fwdbwd\", \"name\": \"f\", \"id\": 1, \"pid\": 1, \"tid\": 1, \"ts\": 3},\n"
         "{\"ph\": \"f\", \"cat\": \"fwdbwd\", \"name\": \"f\", \"id\": 1, \"pid\": 1, \"tid\": 2, \"ts\": 111},\n"
         "{\"ph\": \"X\", \"cat\": \"cpu_op\", \"name\": \"nccl:all_reduce\", \"pid\": 1, \"tid\": 2, \"ts\": 150, \"dur\": 9, "
         "\"args\": {\"External id\": 5, "
         "\"Input Dims\": [[8]], \"Input type\": [\"float\"]}},\n"
         "{\"ph\": \"X\", \"cat\": \"cuda_runtime\", \"name\": \"cudaLaunchKernel\", \"pid\": 1, \"tid\": 2, \"ts\": 151, "
         "\"dur\": 2, \"args\": "
         "{\"External id\": 5, \"correlation\": 9}},\n"
         "{\"ph\": \"X\", \"cat\": \"kernel\", \"name\": \"ncclKernel_AllReduce\", \"pid\": 0, \"tid\": 8, \"ts\": 160, \"dur\": "
         "12, \"args\": {\"External id\": 5, "
         "\"correlation\": 9, \"device\": 0, \"stream\": 8}},\n"
         "{\"ph\": \"i\", \"name\": \"[memory]\", \"pid\": 1, \"tid\": 1, \"ts\": 5, \"args\": {\"Addr\": 4096, \"Bytes\": 512, "
         "\"Device Type\": 1, \"Device Id\": 0, "
         "\"Total Allocated\": 512, \"Total Reserved\": 1024}},\n"
         "{\"ph\": \"i\", \"name\": \"[memory]\", \"pid\": 1, \"tid\": 1, \"ts\": 70, \"args\": {\"Addr\": 4096, \"Bytes\": "
         "-512, \"Device Type\": 1, "
         "\"Device Id\": 0, \"Total Allocated\": 0, \"Total Reserved\": 1024}}\n]}";

static void views_end_well(void **state) {
    const char *folder = *state;
    char path[200];
    save(folder, "one.1.pt.trace.json", TRACE, sizeof TRACE - 1);
    snprintf(path, sizeof path, "%s/one.1.pt.trace.json", folder);
    print_message("a trace: %ld\n", play("a trace", views, path, QN_OK));
    save(folder, "two.1.pt.trace.json", TRACE, sizeof TRACE - 1);
    print_message("a folder: %ld\n", play("a folder", views, folder, QN_OK));
}

/* ---- Recorders */

static qn_status recorded(const void *user, qn_error *error) {
    qn_recorder *r = NULL;
    qn_context *c = NULL;
    qn_recorder_options o = qn_recorder_options_default();
    o.folder = user;
    o.ring_bytes = 1 << 14;
    float x[4] = {1, 2, 3, 4}, y[4];
    const int64_t shape[1] = {4};
    qn_tensor in, out;
    qn_status status = qn_recorder_create(&o, &r, error);
    assert_true((status == QN_OK) == (r != NULL));
    if (status == QN_OK && (status = qn_context_create(NULL, &c)) != QN_OK) qn_error_set(error, status, "no context");
    if (status == QN_OK) status = qn_recorder_attach(r, c, "one", error);
    const qn_record_device device = {.size = sizeof device, .name = "d"};
    if (status == QN_OK) status = qn_recorder_add_device(r, &device, error);
    qn_tensor_init(&in, QN_DTYPE_F32, 1, shape, x, sizeof x);
    qn_tensor_init(&out, QN_DTYPE_F32, 1, shape, y, sizeof y);
    qn_request q = {
        .size = sizeof q, .version = QN_REQUEST_VERSION, .op = QN_OP_sqr, .n_src = 1, .n_dst = 1, .src = {&in}, .dst = {&out}};
    for (int i = 0; status == QN_OK && i < 3; i++) {
        qn_record_push(c, QN_PART_MODULE, "layer");
        assert_int_equal(qn_dispatch(c, &q, NULL), QN_OK);
        qn_record_memory(c, x, 16, 16, 16, 0);
        qn_record_counter(c, "n", i);
        qn_record_pop(c);
        status = qn_record_step(c, error);
    }
    if (status == QN_OK) status = qn_recorder_write(r, NULL, error);
    qn_context_destroy(c);
    qn_recorder_destroy(r);
    return status;
}

static void recorders_end_well(void **state) { print_message("recorded: %ld\n", play("recorded", recorded, *state, QN_OK)); }

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(vocabularies_end_well), IN_FOLDER(sessions_end_well),
                                       IN_FOLDER(views_end_well), IN_FOLDER(recorders_end_well)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
