/* A run allocates nothing and takes no lock: both are counted here, by putting our own names in front of the C library's. */
#define _GNU_SOURCE /* RTLD_NEXT */
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>

#include <quern/quern.h>

#include "cmocka_setup.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#define SANITIZED 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(__GLIBC__)
#define SANITIZED 1
#endif

static volatile int armed, allocations, locks; /* volatile: the compiler knows what malloc does, and that it is not this */

#ifndef SANITIZED
extern void *__libc_malloc(size_t n);
extern void *__libc_calloc(size_t n, size_t m);
extern void *__libc_realloc(void *p, size_t n);
extern void *__libc_memalign(size_t align, size_t n);

void *malloc(size_t n) {
    allocations += armed;
    return __libc_malloc(n);
}
void *calloc(size_t n, size_t m) {
    allocations += armed;
    return __libc_calloc(n, m);
}
void *realloc(void *p, size_t n) {
    allocations += armed;
    return __libc_realloc(p, n);
}
void *aligned_alloc(size_t align, size_t n) {
    allocations += armed;
    return __libc_memalign(align, n);
}
int pthread_mutex_lock(pthread_mutex_t *mutex) {
    static int (*real)(pthread_mutex_t *);
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, "pthread_mutex_lock");
    locks += armed;
    return real(mutex);
}
#endif

/* A loop over y whose body has a branch in it. */
static qn_val looped(qn_graph *g, qn_val y) {
    qn_graph *yes = NULL, *no = NULL, *body = NULL;
    const int64_t shape[2] = {40, 32};
    qn_attr_cond at = qn_attr_cond_default();
    qn_attr_scan_loop loop = qn_attr_scan_loop_default();
    assert_true(qn_graph_create(0, &yes) == QN_OK && qn_graph_create(0, &no) == QN_OK && qn_graph_create(0, &body) == QN_OK);
    qn_val a = qn_graph_input(yes, "x", QN_DTYPE_F32, 2, shape), b = qn_graph_input(no, "x", QN_DTYPE_F32, 2, shape);
    qn_graph_output(yes, qn_graph_op(yes, QN_OP_unary, QN_UNARY_tanh, 1, &a, NULL), "x");
    qn_graph_output(no, b, "x");
    at.then_body = yes;
    at.else_body = no;
    qn_val x = qn_graph_input(body, "x", QN_DTYPE_F32, 2, shape), total = qn_graph_op(body, QN_OP_sum, 0, 1, &x, NULL);
    qn_graph_output(body, qn_graph_op(body, QN_OP_cond, 0, 2, (qn_val[]){total, x}, &at), "x");
    loop.n_carry = 1;
    loop.length = 3;
    loop.body = body;
    y = qn_graph_op(g, QN_OP_scan_loop, 0, 1, &y, &loop);
    qn_graph_destroy(yes);
    qn_graph_destroy(no);
    qn_graph_destroy(body);
    return y;
}

/* A layer and its gradient, through views, products, reductions, a loop and an optimiser. */
static qn_graph *net(void) {
    qn_graph *g;
    qn_val dw;
    assert_int_equal(qn_graph_create(0, &g), QN_OK);
    qn_val x = qn_graph_input(g, "x", QN_DTYPE_F32, 2, (int64_t[]){32, 48});
    qn_val w = qn_graph_param(g, "w", QN_DTYPE_F32, 2, (int64_t[]){48, 40});
    qn_val rate = qn_graph_input(g, "rate", QN_DTYPE_F32, 1, (int64_t[]){2});
    qn_val y = qn_graph_op(g, QN_OP_matmul, 0, 2, (qn_val[]){x, w}, NULL);
    y = qn_graph_op(g, QN_OP_transpose, 0, 1, &y, NULL);
    y = qn_graph_op(g, QN_OP_unary, QN_UNARY_gelu, 1, &y, NULL);
    y = qn_graph_op(g, QN_OP_soft_max, 0, 1, &y, NULL);
    y = qn_graph_op(g, QN_OP_sqr, 0, 1, &y, NULL);
    y = looped(g, y);
    qn_val loss = qn_graph_op(g, QN_OP_reduce, QN_REDUCE_mean, 1, &y, NULL);
    assert_int_equal(qn_graph_grad(g, loss, 1, &w, &dw), QN_OK);
    qn_graph_output(g, qn_graph_op(g, QN_OP_opt_step_sgd, 0, 3, (qn_val[]){w, dw, rate}, NULL), "w'");
    qn_graph_output(g, loss, "loss");
    return g;
}

static void a_run_allocates_nothing_and_locks_nothing(void **state) {
    (void)state;
    qn_graph *g = net();
    qn_plan *p;
    qn_error e;
    static float x[32 * 48], w[48 * 40], rate[2] = {0.1f, 0};
    qn_tensor t;
    for (int i = 0; i < 48 * 40; i++) w[i] = (float)(i % 7) / 7 - 0.5f;
    for (int i = 0; i < 32 * 48; i++) x[i] = (float)(i % 11) / 11 - 0.5f;
    if (qn_plan_create(g, NULL, &p, &e) != QN_OK) fail_msg("%s", e.text);
    qn_tensor_init(&t, QN_DTYPE_F32, 2, (int64_t[]){32, 48}, x, sizeof x);
    assert_int_equal(qn_plan_set(p, "x", &t, &e), QN_OK);
    qn_tensor_init(&t, QN_DTYPE_F32, 2, (int64_t[]){48, 40}, w, sizeof w);
    assert_int_equal(qn_plan_set(p, "w", &t, &e), QN_OK);
    qn_tensor_init(&t, QN_DTYPE_F32, 1, (int64_t[]){2}, rate, sizeof rate);
    assert_int_equal(qn_plan_set(p, "rate", &t, &e), QN_OK);
    assert_int_equal(qn_plan_run(p, NULL, &e), QN_OK); /* the first run takes the memory */
    armed = 1;
    qn_status status = QN_OK;
    for (int i = 0; i < 10 && status == QN_OK; i++) {
        qn_tensor_init(&t, QN_DTYPE_F32, 2, (int64_t[]){32, 48}, x, sizeof x);
        status = qn_plan_set(p, "x", &t, &e);
        if (status == QN_OK) status = qn_plan_run(p, NULL, &e);
    }
    armed = 0;
    assert_int_equal(status, QN_OK);
    assert_int_equal(allocations, 0);
    assert_int_equal(locks, 0);
#ifndef SANITIZED
    armed = 1; /* and the counters do count */
    void *volatile something = malloc(16);
    armed = 0;
    free(something);
    assert_int_equal(allocations, 1);
#endif
    qn_plan_destroy(p);
    qn_graph_destroy(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_run_allocates_nothing_and_locks_nothing)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
