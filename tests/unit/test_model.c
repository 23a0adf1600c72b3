/* Models and sessions: the same bits for any number of threads, any cut of a prompt and any company in the batch; what is kept on
 * disk comes back; what is wrong is said. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <quern/model.h>

#include "cmocka_setup.h"

#define DATA "../shared/data/lm/stories260K/"
enum { N = 40, VOCAB = 512 };

static const int32_t ids[N] = {1,   403, 407, 261, 378, 432, 383, 286, 261, 376, 268, 414, 422, 395,
                               326, 426, 346, 381, 261, 262, 423, 388, 400, 428, 269, 26,  10,  20,
                               30,  40,  50,  60,  70,  80,  90,  100, 110, 120, 130, 140};
static qn_error error;

static int have_data(void) {
    if (access(DATA "stories260K-q8_0.gguf", R_OK) == 0) return 1;
    print_message("skipped: no ../shared/data beside this checkout\n");
    return 0;
}

static qn_model *open_model(const char *path) {
    qn_model *m;
    if (qn_model_open(path, NULL, &m, &error) != QN_OK) fail_msg("%s", error.text);
    return m;
}

typedef struct bench {
    qn_model *m;
    qn_pool *pool;
    qn_context *context;
    qn_session *s;
} bench;

static bench begin(const char *path, int threads, int sequences, int batch) {
    bench b = {open_model(path), NULL, NULL, NULL};
    qn_context_options c = {.size = sizeof c};
    if (threads > 1) assert_int_equal(qn_pool_create(threads, &b.pool), QN_OK);
    c.pool = b.pool;
    assert_int_equal(qn_context_create(&c, &b.context), QN_OK);
    qn_session_options o = {.size = sizeof o, .sequences = sequences, .batch = batch, .context = 96, .run = b.context};
    if (qn_session_create(b.m, &o, &b.s, &error) != QN_OK) fail_msg("%s", error.text);
    return b;
}

static void end(bench *b) {
    qn_session_destroy(b->s);
    qn_context_destroy(b->context);
    qn_pool_destroy(b->pool);
    qn_model_close(b->m);
}

static void run(bench *b, int32_t sequence, const int32_t *list, int32_t n) {
    qn_session_part part = {sequence, n, list, 0};
    if (qn_session_run(b->s, &part, 1, &error) != QN_OK) fail_msg("%s", error.text);
}

static void last_logits(bench *b, float *to) {
    const float *from = qn_session_result(b->s, 0, -1);
    assert_non_null(from);
    memcpy(to, from, VOCAB * sizeof *to);
}

static const char *const files[] = {DATA "stories260K-f32.gguf", DATA "stories260K-f16.gguf", DATA "stories260K-q8_0.gguf",
                                    DATA "stories260K-q4_0.gguf"};

static void same_bits_however_it_is_cut(void **state) {
    (void)state;
    if (!have_data()) return;
    float whole[VOCAB], other[VOCAB];
    for (size_t f = 0; f < sizeof files / sizeof *files; f++) {
        bench b = begin(files[f], 1, 1, 64);
        run(&b, 0, ids, N);
        last_logits(&b, whole);
        for (int piece = 1; piece < N; piece += piece < 4 ? 1 : 9) {
            assert_int_equal(qn_session_cut(b.s, 0, 0, &error), QN_OK);
            for (int at = 0; at < N; at += piece) run(&b, 0, ids + at, N - at < piece ? N - at : piece);
            last_logits(&b, other);
            assert_memory_equal(whole, other, sizeof whole);
        }
        end(&b);
        for (int threads = 2; threads <= 3; threads++) {
            b = begin(files[f], threads, 1, 7);
            run(&b, 0, ids, N);
            last_logits(&b, other);
            assert_memory_equal(whole, other, sizeof whole);
            end(&b);
        }
    }
}

static void same_bits_in_company(void **state) {
    (void)state;
    if (!have_data()) return;
    enum { SEQUENCES = 8, START = 30 };
    float alone[VOCAB];
    for (size_t f = 0; f < sizeof files / sizeof *files; f++) {
        bench b = begin(files[f], 1, 1, 64);
        run(&b, 0, ids, N);
        last_logits(&b, alone);
        end(&b);
        b = begin(files[f], 2, SEQUENCES, 64);
        qn_session_part parts[SEQUENCES];
        for (int s = 0; s < SEQUENCES; s++)
            run(&b, s, s == 5 ? ids : ids + s, START + (s == 5 ? 0 : s % 3)); /* other texts and lengths */
        for (int i = START; i < N; i++) {
            for (int s = 0; s < SEQUENCES; s++) parts[s] = (qn_session_part){s, 1, s == 5 ? &ids[i] : &ids[s], 0};
            if (qn_session_run(b.s, parts, SEQUENCES, &error) != QN_OK) fail_msg("%s", error.text);
        }
        assert_memory_equal(alone, qn_session_result(b.s, 5, -1), sizeof alone);
        assert_int_equal(qn_session_length(b.s, 5), N);
        end(&b);
    }
}

static void keeps_sequences_on_disk(void **state) {
    (void)state;
    if (!have_data()) return;
    char path[] = "quern-cache-XXXXXX";
    float whole[VOCAB], other[VOCAB];
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    bench b = begin(files[2], 1, 2, 64);
    run(&b, 0, ids, N - 1);
    assert_int_equal(qn_session_save(b.s, 0, path, &error), QN_OK);
    run(&b, 0, ids + N - 1, 1);
    last_logits(&b, whole);
    assert_int_equal(qn_session_load(b.s, 1, path, ids, N, &error), QN_OK); /* into another sequence */
    run(&b, 1, ids + N - 1, 1);
    last_logits(&b, other);
    assert_memory_equal(whole, other, sizeof whole);
    assert_int_equal(qn_session_load(b.s, 1, path, ids + 1, N - 1, &error), QN_INVALID); /* another text */
    end(&b);
    b = begin(files[2], 1, 2, 64);
    for (int k = 0; k < 2; k++) assert_int_equal(qn_session_load(b.s, k, path, ids, N, &error), QN_OK); /* one after the other */
    assert_int_equal(qn_session_save(b.s, 0, path, &error), QN_OK); /* and back, before a run */
    for (int k = 0; k < 2; k++) {
        run(&b, k, ids + N - 1, 1);
        last_logits(&b, other);
        assert_memory_equal(whole, other, sizeof whole);
    }
    end(&b);
    b = begin(files[0], 1, 1, 64);
    assert_int_equal(qn_session_load(b.s, 0, path, NULL, 0, &error), QN_INVALID); /* the same shape, but other weights */
    assert_non_null(strstr(error.text, "another model"));
    assert_int_equal(qn_session_length(b.s, 0), 0);
    end(&b);
    b = begin(files[2], 1, 1, 64);
    assert_int_equal(qn_session_load(b.s, 0, path, NULL, 0, &error), QN_OK); /* another session of the same model */
    assert_int_equal(qn_session_length(b.s, 0), N - 1);
    unlink("quern-cache-link");
    assert_int_equal(symlink(".", "quern-cache-link"), 0); /* what is there and is no file stays there */
    assert_int_equal(qn_session_save(b.s, 0, "quern-cache-link", &error), QN_IO);
    assert_non_null(strstr(error.text, "regular file"));
    assert_int_equal(unlink("quern-cache-link"), 0);
    char behind[sizeof path + 1];
    assert_int_equal(symlink(path, "quern-cache-link"), 0); /* a link stays too, what is behind it is written */
    assert_int_equal(qn_session_save(b.s, 0, "quern-cache-link", &error), QN_OK);
    assert_int_equal(readlink("quern-cache-link", behind, sizeof behind), strlen(path));
    assert_int_equal(unlink("quern-cache-link"), 0);
    assert_int_equal(truncate(path, 1000), 0);
    assert_int_equal(qn_session_load(b.s, 0, path, NULL, 0, &error), QN_FORMAT);
    end(&b);
    unlink(path);
}

static void says_what_is_wrong(void **state) {
    (void)state;
    qn_model *m;
    assert_int_equal(qn_model_open("no such file.gguf", NULL, &m, &error), QN_IO);
    if (!have_data()) return;
    bench b = begin(files[0], 1, 2, 16);
    int32_t bad = VOCAB;
    qn_session_part parts[2] = {{0, 1, &bad, 0}, {0, 1, ids, 0}};
    assert_int_equal(qn_session_run(b.s, parts, 1, &error), QN_INVALID);
    parts[0].ids = ids;
    assert_int_equal(qn_session_run(b.s, parts, 2, &error), QN_INVALID); /* one sequence twice */
    parts[1].sequence = 2;
    assert_int_equal(qn_session_run(b.s, parts, 2, &error), QN_INVALID); /* no such sequence */
    for (int i = 0; i < 2; i++) run(&b, 0, ids, N);
    parts[0].n = N;
    assert_int_equal(qn_session_run(b.s, parts, 1, &error), QN_INVALID); /* 96 tokens are the context */
    assert_non_null(strstr(error.text, "96"));
    assert_int_equal(qn_session_length(b.s, 0), 2 * N);
    assert_int_equal(qn_session_cut(b.s, 0, 3 * N, &error), QN_ARGUMENT);
    assert_null(qn_session_result(b.s, 1, 0));
    qn_session_options o = {.size = sizeof o, .memory_cap = 1000};
    qn_session *s;
    assert_int_equal(qn_session_create(b.m, &o, &s, &error), QN_NO_MEMORY);
    assert_null(s);
    const qn_dtype none[] = {(qn_dtype)9999, (qn_dtype)-1, QN_DTYPE_COUNT, QN_DTYPE_I32, QN_DTYPE_C64};
    for (size_t i = 0; i < 2 * sizeof none / sizeof *none; i++) { /* what a cache cannot be, as keys and as values */
        o = (qn_session_options){.size = sizeof o, .k = i % 2 ? none[i / 2] : 0, .v = i % 2 ? 0 : none[i / 2]};
        assert_int_equal(qn_session_create(b.m, &o, &s, &error), QN_ARGUMENT);
        assert_non_null(strstr(error.text, "a cache cannot be"));
    }
    o = (qn_session_options){.size = 8};
    assert_int_equal(qn_session_create(b.m, &o, &s, &error), QN_ARGUMENT);
    end(&b);
}

/* Bytes of the params of a session: those of the file, or those of its cache. */
static uint64_t param_bytes(const qn_session *s, int cache) {
    const qn_graph *g = qn_plan_graph(qn_session_plan(s));
    uint64_t total = 0, bytes;
    for (qn_val v = 0; v < qn_graph_value_count(g); v++) {
        qn_value_info info = {.size = sizeof info};
        if (qn_graph_value(g, v, &info) != QN_OK || info.kind != QN_VALUE_PARAM) continue;
        if ((strncmp(info.name, "cache.", 6) == 0) != cache) continue;
        assert_int_equal(qn_tensor_bytes(info.dtype, info.rank, info.shape, &bytes), QN_OK);
        total += bytes;
    }
    return total;
}

static qn_plan_totals totals(const qn_session *s) {
    qn_plan_totals t = {.size = sizeof t};
    assert_int_equal(qn_plan_describe(qn_session_plan(s), &t), QN_OK);
    return t;
}

/* Prompts one by one and all together, then tokens of each. */
static void use_all(qn_session *s, int n) {
    qn_session_part parts[16];
    for (int i = 0; i < n; i++) {
        parts[i] = (qn_session_part){i, N, ids, 0};
        if (i % 2 && qn_session_run(s, &parts[i], 1, &error) != QN_OK) fail_msg("%s", error.text);
        parts[i].n = N / 2;
    }
    for (int round = 0; round < 2; round++, parts[0].n = 1)
        if (qn_session_run(s, parts, n, &error) != QN_OK) fail_msg("%s", error.text);
    for (int i = 0; i < n; i++) parts[i].n = 1;
    if (qn_session_run(s, parts, n, &error) != QN_OK) fail_msg("%s", error.text);
}

static void says_what_it_takes(void **state) {
    (void)state;
    if (!have_data()) return;
    qn_model *m = open_model(files[2]);
    uint64_t of_one = 0;
    for (int n = 1; n <= 8; n += n < 3 ? 1 : 5) {
        qn_session_options o = {.size = sizeof o, .sequences = n, .batch = 48, .context = 96};
        qn_session *s, *none;
        if (qn_session_create(m, &o, &s, &error) != QN_OK) fail_msg("%s", error.text);
        qn_plan_totals t = totals(s);
        uint64_t cache = param_bytes(s, 1), others = t.arena_bytes + t.scratch_bytes + t.packed_bytes + t.input_bytes;
        if (n == 1) of_one = cache;
        assert_int_equal(cache, (uint64_t)n * of_one); /* cells of each sequence, no more */
        assert_int_equal(t.param_bytes, cache + param_bytes(s, 0));
        assert_true(t.host_bytes >= others + cache &&
                    t.host_bytes < others + cache + 64 * 128); /* the file's weights: not counted */
        qn_session_destroy(s);
        o.memory_cap = t.host_bytes;
        if (qn_session_create(m, &o, &s, &error) != QN_OK) fail_msg("%s", error.text);
        use_all(s, n); /* no run needs more than was said */
        assert_in_range(totals(s).held_bytes, cache, o.memory_cap);
        qn_session_destroy(s);
        o.memory_cap--;
        assert_int_equal(qn_session_create(m, &o, &none, &error), QN_NO_MEMORY);
        assert_non_null(strstr(error.text, "the cap is"));
    }
    qn_model_close(m);
}

typedef struct story {
    char text[4096];
    size_t n;
    int stop_after;
} story;

static qn_status take_piece(void *user, const char *text, size_t length, int32_t id) {
    story *s = user;
    (void)id;
    if (s->n + length < sizeof s->text) memcpy(s->text + s->n, text, length), s->n += length;
    return s->stop_after && --s->stop_after == 0 ? QN_CANCELLED : QN_OK;
}

static void generates(void **state) {
    (void)state;
    if (!have_data()) return;
    bench b = begin(files[0], 1, 1, 64);
    story s = {.n = 0}, again = {.n = 0};
    qn_generate_options o = qn_generate_options_default();
    qn_generate_result r = {.size = sizeof r};
    o.most = 30;
    assert_int_equal(qn_generate(b.s, &o, take_piece, &s, &r, &error), QN_OK);
    assert_int_equal(r.end, QN_END_MOST);
    assert_int_equal(r.n_made, 30);
    const char *expected = " Once upon a time, there was a little girl named Lily.";
    assert_memory_equal(s.text, expected, strlen(expected));
    qn_text stop = {"girl", 4};
    o.stops = &stop;
    o.n_stops = 1;
    o.flags = QN_GENERATE_WHOLE; /* the same beginning again: nothing of it is run twice but its last token */
    assert_int_equal(qn_generate(b.s, &o, take_piece, &again, &r, &error), QN_OK);
    assert_int_equal(r.end, QN_END_STOP);
    assert_int_equal(again.n, strstr(expected, "girl") - expected); /* the stop itself is not handed over */
    char longer[sizeof s.text + 1];                                 /* a stop that may yet come hides none that is there */
    char *from = strstr(memcpy(longer, s.text, sizeof s.text), "girl");
    longer[s.n] = '#';
    qn_text both[2] = {{from, (size_t)(longer + s.n + 1 - from)}, stop};
    again = (story){.n = 0};
    o.stops = both;
    o.n_stops = 2;
    assert_int_equal(qn_generate(b.s, &o, take_piece, &again, &r, &error), QN_OK);
    assert_int_equal(r.end, QN_END_STOP);
    assert_int_equal(again.n, strstr(expected, "girl") - expected);
    again = (story){.stop_after = 3};
    o.n_stops = 0;
    assert_int_equal(qn_generate(b.s, &o, take_piece, &again, &r, &error), QN_OK);
    assert_int_equal(r.end, QN_END_CALLER);
    o.most = -1;
    o.flags = QN_GENERATE_IGNORE_END | QN_GENERATE_WHOLE;
    again = (story){.n = 0};
    assert_int_equal(qn_generate(b.s, &o, take_piece, &again, &r, &error), QN_OK);
    assert_int_equal(r.end, QN_END_CONTEXT);
    assert_int_equal(qn_session_length(b.s, 0), 96);
    end(&b);
}

static qn_status cancel_at_once(void *user, const char *text, size_t length, int32_t id) {
    (void)text, (void)length, (void)id;
    qn_session_cancel(user);
    return QN_OK;
}

/* A cancellation between two runs ends what is in progress, or what comes next, and nothing behind that. */
static void cancels_once(void **state) {
    (void)state;
    if (!have_data()) return;
    bench b = begin(files[0], 1, 1, 64);
    qn_session_part part = {0, 4, ids, 0};
    qn_generate_options o = qn_generate_options_default();
    qn_generate_result r = {.size = sizeof r};
    o.most = 8;
    o.flags = QN_GENERATE_WHOLE;
    qn_session_cancel(b.s);
    assert_int_equal(qn_session_run(b.s, &part, 1, &error), QN_CANCELLED);
    run(&b, 0, ids, 4);
    assert_int_equal(qn_generate(b.s, &o, cancel_at_once, b.s, &r, &error), QN_CANCELLED);
    assert_int_equal(r.n_made, 1);
    assert_int_equal(qn_generate(b.s, &o, NULL, NULL, &r, &error), QN_OK);
    assert_int_equal(r.n_made, 8);
    end(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(same_bits_however_it_is_cut),
                                       cmocka_unit_test(same_bits_in_company),
                                       cmocka_unit_test(keeps_sequences_on_disk),
                                       cmocka_unit_test(says_what_is_wrong),
                                       cmocka_unit_test(says_what_it_takes),
                                       cmocka_unit_test(generates),
                                       cmocka_unit_test(cancels_once)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
