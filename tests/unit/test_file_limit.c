/* Writers of files under a limit of their size (RLIMIT_FSIZE): they fail with a sentence, leave nothing behind, and their host neither
 * dies of SIGXFSZ nor sees one that it would not have seen. */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>

#include <quern/format.h>
#include <quern/model.h>
#include <quern/record.h>

#include "folder_help.h"

enum { LIMIT = 4096, BYTES = 1 << 20 };

static volatile sig_atomic_t heard;

static void hear(int number) {
    (void)number;
    heard = 1;
}

/* Returns the limit before. */
static rlim_t limit_files(rlim_t bytes) {
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    rlim_t before = limit.rlim_cur;
    limit.rlim_cur = bytes;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    return before;
}

/* ---- What writes: each into the folder, at least LIMIT bytes */

static qn_status write_gguf(const char *folder, qn_error *error) {
    static const char zeros[BYTES];
    char path[512];
    qn_writer *w;
    qn_tensor t;
    int64_t shape = BYTES;
    snprintf(path, sizeof path, "%s/m.gguf", folder);
    assert_int_equal(qn_tensor_init(&t, QN_DTYPE_I8, 1, &shape, NULL, 0), QN_OK);
    assert_int_equal(qn_writer_create(path, &w, error), QN_OK);
    assert_int_equal(qn_writer_tensor(w, "t", &t), QN_OK);
    qn_writer_data(w, zeros, sizeof zeros); /* whose error comes at the end */
    return qn_writer_finish(w, 1, error);
}

/* The limit comes when room has been reserved: the write itself meets it. */
static qn_status write_rest(const char *folder, qn_error *error) {
    static const char zeros[BYTES];
    char path[512];
    qn_writer *w;
    qn_tensor t;
    int64_t shape = 2 * BYTES;
    rlim_t limit = limit_files(RLIM_INFINITY);
    snprintf(path, sizeof path, "%s/m.gguf", folder);
    assert_int_equal(qn_tensor_init(&t, QN_DTYPE_I8, 1, &shape, NULL, 0), QN_OK);
    assert_int_equal(qn_writer_create(path, &w, error), QN_OK);
    assert_int_equal(qn_writer_tensor(w, "t", &t), QN_OK);
    assert_int_equal(qn_writer_data(w, zeros, sizeof zeros), QN_OK);
    limit_files(limit);
    qn_writer_data(w, zeros, sizeof zeros);
    return qn_writer_finish(w, 1, error);
}

static qn_status write_trace(const char *folder, qn_error *error) {
    enum { OPS = 500 };
    float memory[64] = {0};
    int64_t shape = 64;
    qn_tensor x;
    qn_context *context;
    qn_recorder *recorder;
    qn_recorder_options options = qn_recorder_options_default();
    options.folder = folder;
    qn_context_options plain = {.size = sizeof plain};
    assert_int_equal(qn_tensor_init(&x, QN_DTYPE_F32, 1, &shape, memory, sizeof memory), QN_OK);
    qn_request add = {.size = sizeof add, .version = QN_REQUEST_VERSION, .op = QN_OP_add, .n_src = 2, .n_dst = 1};
    add.src[0] = add.src[1] = add.dst[0] = &x;
    assert_int_equal(qn_context_create(&plain, &context), QN_OK);
    assert_int_equal(qn_recorder_create(&options, &recorder, error), QN_OK);
    assert_int_equal(qn_recorder_attach(recorder, context, "main", error), QN_OK);
    for (int i = 0; i < OPS; i++) assert_int_equal(qn_dispatch(context, &add, NULL), QN_OK);
    qn_status status = qn_recorder_write(recorder, NULL, error);
    qn_recorder_destroy(recorder);
    qn_context_destroy(context);
    return status;
}

static qn_status write_session(const char *folder, qn_error *error) {
    enum { TOKENS = 16 };
    int32_t ids[TOKENS];
    char path[512];
    qn_model *model;
    qn_session *session;
    for (int i = 0; i < TOKENS; i++) ids[i] = 5 + i;
    snprintf(path, sizeof path, "%s/prompt", folder);
    qn_session_part part = {0, TOKENS, ids, 0};
    assert_int_equal(qn_model_open("models/stories.gguf", NULL, &model, error), QN_OK);
    assert_int_equal(qn_session_create(model, NULL, &session, error), QN_OK);
    assert_int_equal(qn_session_run(session, &part, 1, error), QN_OK);
    qn_status status = qn_session_save(session, 0, path, error);
    qn_session_destroy(session);
    qn_model_close(model);
    return status;
}

typedef qn_status (*writer)(const char *folder, qn_error *error);
static const writer writers[] = {write_gguf, write_rest, write_trace, write_session};

/* ---- Hosts: what each makes of the signal */

static int n_files(const char *folder) {
    int n = 0;
    DIR *dir = opendir(folder);
    for (struct dirent *e; dir && (e = readdir(dir)) != NULL;) n += e->d_name[0] != '.';
    if (dir) closedir(dir);
    return n;
}

/* The limit holds for nothing but the call: what this program prints may go to a file that is longer. */
static void all_fail(const char *folder) {
    for (size_t i = 0; i < sizeof writers / sizeof *writers; i++) {
        qn_error error = {QN_OK, ""};
        limit_files(LIMIT);
        qn_status status = writers[i](folder, &error);
        limit_files(RLIM_INFINITY);
        assert_int_equal(status, QN_IO);
        if (!strstr(error.text, strerror(EFBIG)) || !strstr(error.text, folder)) fail_msg("writer %zu: %s", i, error.text);
        assert_int_equal(n_files(folder), 0);
    }
}

static int is_pending(void) {
    sigset_t set;
    assert_int_equal(sigpending(&set), 0);
    return sigismember(&set, SIGXFSZ);
}

static int is_blocked(void) {
    sigset_t set;
    assert_int_equal(pthread_sigmask(SIG_SETMASK, NULL, &set), 0);
    return sigismember(&set, SIGXFSZ);
}

static void a_host_that_thought_of_nothing_lives(void **state) {
    signal(SIGXFSZ, SIG_DFL);
    all_fail(*state);
    assert_false(is_blocked());
    assert_false(is_pending());
}

static void a_host_that_listens_hears_nothing(void **state) {
    heard = 0;
    signal(SIGXFSZ, hear);
    all_fail(*state);
    assert_false(is_blocked());
    raise(SIGXFSZ); /* its own still comes */
    signal(SIGXFSZ, SIG_DFL);
    assert_true(heard);
}

static void a_host_that_ignores_it_still_does(void **state) {
    signal(SIGXFSZ, SIG_IGN);
    all_fail(*state);
    assert_ptr_equal(signal(SIGXFSZ, SIG_DFL), SIG_IGN);
    assert_false(is_pending());
}

/* Held back with one waiting, and with none: either stays as it was. */
static void a_host_that_holds_it_back_keeps_its_own(void **state) {
    sigset_t set, before;
    sigemptyset(&set);
    sigaddset(&set, SIGXFSZ);
    heard = 0;
    signal(SIGXFSZ, hear);
    assert_int_equal(pthread_sigmask(SIG_BLOCK, &set, &before), 0);
    all_fail(*state);
    assert_true(is_blocked());
    assert_false(is_pending());
    raise(SIGXFSZ);
    all_fail(*state);
    assert_true(is_pending());
    assert_int_equal(pthread_sigmask(SIG_SETMASK, &before, NULL), 0);
    signal(SIGXFSZ, SIG_DFL);
    assert_true(heard);
}

static void without_a_limit_all_is_written(void **state) {
    for (size_t i = 0; i < sizeof writers / sizeof *writers; i++) {
        qn_error error = {QN_OK, ""};
        if (writers[i](*state, &error) != QN_OK) fail_msg("writer %zu: %s", i, error.text);
    }
    assert_int_equal(n_files(*state), 3); /* two write one name */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_FOLDER(a_host_that_thought_of_nothing_lives), IN_FOLDER(a_host_that_listens_hears_nothing),
        IN_FOLDER(a_host_that_ignores_it_still_does),    IN_FOLDER(a_host_that_holds_it_back_keeps_its_own),
        IN_FOLDER(without_a_limit_all_is_written),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
