/* What the headers allow several threads to do at once, for the thread sanitizer: plans of one graph, and sessions of one model. */
#include <pthread.h>

#include <quern/model.h>

#include "libraries.h"

enum { THREADS = 3, N = 64 };

/* ---- Plans of one graph, whose contexts share a pool */

typedef struct planned {
    const qn_graph *graph;
    qn_pool *pool;
    float y[N];
    qn_status status;
} planned;

static void *run_plan(void *user) {
    planned *at = user;
    const int64_t shape[2] = {8, N / 8};
    float x[N];
    qn_plan *p = NULL;
    qn_context *c = NULL;
    qn_context_options o = {.size = sizeof o, .pool = at->pool};
    qn_tensor t, y;
    for (int i = 0; i < N; i++) x[i] = (float)i / N;
    qn_tensor_init(&t, QN_DTYPE_F32, 2, shape, x, sizeof x);
    at->status = qn_context_create(&o, &c);
    if (at->status == QN_OK) at->status = qn_plan_create(at->graph, NULL, &p, NULL);
    if (at->status == QN_OK) at->status = qn_plan_set(p, "x", &t, NULL);
    for (int i = 0; i < 50 && at->status == QN_OK; i++) at->status = qn_plan_run(p, c, NULL);
    if (at->status == QN_OK) at->status = qn_plan_output(p, "y", &y, NULL);
    if (at->status == QN_OK) memcpy(at->y, y.data, sizeof at->y);
    qn_plan_destroy(p);
    qn_context_destroy(c);
    return NULL;
}

static void plans_of_one_graph_run_at_once(void **state) {
    const int64_t shape[2] = {8, N / 8};
    pthread_t threads[THREADS];
    planned at[THREADS];
    qn_graph *g;
    qn_pool *pool;
    (void)state;
    assert_int_equal(qn_pool_create(2, &pool), QN_OK);
    assert_int_equal(qn_graph_create(0, &g), QN_OK);
    qn_val x = qn_graph_input(g, "x", QN_DTYPE_F32, 2, shape);
    qn_val y = qn_graph_op(g, QN_OP_mul_mat, 0, 2, (qn_val[]){x, x}, NULL);
    qn_graph_output(g, qn_graph_op(g, QN_OP_soft_max, 0, 1, &y, NULL), "y");
    for (int i = 0; i < THREADS; i++) {
        at[i] = (planned){.graph = g, .pool = pool};
        assert_int_equal(pthread_create(&threads[i], NULL, run_plan, &at[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(at[i].status, QN_OK);
        assert_memory_equal(at[i].y, at[0].y, sizeof at[0].y);
    }
    qn_graph_destroy(g);
    qn_pool_destroy(pool);
}

/* ---- Sessions of one model, which makes its tokenizer when the first of them asks */

typedef struct told {
    qn_model *model;
    char text[200];
    size_t n;
    qn_status status;
} told;

static qn_status take(void *user, const char *text, size_t n, int32_t id) {
    told *at = user;
    (void)id;
    if (n > sizeof at->text - at->n) return QN_ARGUMENT;
    memcpy(at->text + at->n, text, n);
    at->n += n;
    return QN_OK;
}

static void *tell(void *user) {
    told *at = user;
    qn_session *s = NULL;
    qn_session_options o = {.size = sizeof o, .context = 16};
    qn_generate_options want = qn_generate_options_default();
    want.prompt = (qn_text){"Once upon", 9};
    want.most = 3;
    at->status = qn_session_create(at->model, &o, &s, NULL);
    if (at->status == QN_OK) at->status = qn_generate(s, &want, take, at, NULL, NULL);
    qn_session_destroy(s);
    return NULL;
}

static void sessions_of_one_model_run_at_once(void **state) {
    pthread_t threads[THREADS];
    told at[THREADS];
    qn_model *m;
    (void)state;
    NEED_LIBRARY(PCRE2);
    assert_int_equal(qn_model_open("models/stories.gguf", NULL, &m, NULL), QN_OK);
    for (int i = 0; i < THREADS; i++) {
        at[i] = (told){.model = m};
        assert_int_equal(pthread_create(&threads[i], NULL, tell, &at[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(at[i].status, QN_OK);
        assert_true(at[i].n > 0 && at[i].n == at[0].n);
        assert_memory_equal(at[i].text, at[0].text, at[0].n);
    }
    qn_model_close(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(plans_of_one_graph_run_at_once),
                                       cmocka_unit_test(sessions_of_one_model_run_at_once)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
