/* The roof of the roofline: the fastest pass of plain loops over memory and of multiply-adds in registers, first on one core and
 * then on all. A team of threads meets at a barrier before and after each pass, so a pass is as slow as its slowest member. A
 * pass over memory takes the next few megabytes of arrays far larger: short enough that a busy machine leaves some undisturbed,
 * and never the same lines twice in a row. */
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

#include <quern/record.h>

#include "base/arena.h"
#include "base/clock.h"
#include "prof/roofline_fma.h"

enum { MAX_THREADS = 256, FMA_TURNS = 100000, PASSES_LEAST = 3 };

typedef enum job { JOB_READ, JOB_WRITE, JOB_TRIAD, JOB_FMA, JOBS, JOB_STOP } job;

/* Lines of a cache, written out, so that loops have nothing left over and their sums stay in registers at any optimisation. */
typedef double pack __attribute__((vector_size(16)));
typedef struct line {
    pack p, q, r, s;
} line;

typedef struct slice {
    line *a;
    const line *b, *c;
    size_t n;
} slice;

enum { WINDOW = 4 << 20 }; /* bytes of each array that a pass takes */

typedef struct team {
    pthread_mutex_t gate; /* held until it is known how many came */
    pthread_barrier_t barrier;
    job job;
    qn_fma_loop fma;
    int n;
    int met; /* there is a barrier; told through the gate */
    struct member {
        struct team *team;
        slice part;
        size_t next, window; /* lines */
        double sink;         /* keeps results alive */
    } members[MAX_THREADS];
} team;

/* ---- The loops ---------------------------------------------------------------------------------------------------- */

/* Three streams, as most ops have; one alone cannot keep the memory of a large machine busy. */
__attribute__((noinline)) static double read_lines(const slice *s) {
    pack p = {0, 0}, q = p, r = p, t = p;
    for (size_t i = 0; i < s->n; i++) {
        p += s->a[i].p + s->b[i].p + s->c[i].p;
        q += s->a[i].q + s->b[i].q + s->c[i].q;
        r += s->a[i].r + s->b[i].r + s->c[i].r;
        t += s->a[i].s + s->b[i].s + s->c[i].s;
    }
    p += q + r + t;
    return p[0] + p[1];
}

__attribute__((noinline)) static double write_lines(const slice *s) {
    const line value = {{0, 1}, {2, 3}, {4, 5}, {6, 7}}; /* not one byte, which would become memset */
    for (size_t i = 0; i < s->n; i++) s->a[i] = value;
    return s->a[0].p[1];
}

__attribute__((noinline)) static double triad_lines(const slice *s) {
    const pack three = {3, 3};
    for (size_t i = 0; i < s->n; i++) {
        s->a[i].p = s->b[i].p + three * s->c[i].p;
        s->a[i].q = s->b[i].q + three * s->c[i].q;
        s->a[i].r = s->b[i].r + three * s->c[i].r;
        s->a[i].s = s->b[i].s + three * s->c[i].s;
    }
    return s->a[0].p[1];
}

static slice next_window(struct member *m) {
    slice s = {m->part.a + m->next, m->part.b + m->next, m->part.c + m->next, m->window};
    m->next = m->next + 2 * m->window <= m->part.n ? m->next + m->window : 0;
    return s;
}

static void run(struct member *m, job what) {
    slice s = next_window(m);
    switch (what) {
    case JOB_READ: m->sink += read_lines(&s); break;
    case JOB_WRITE: m->sink += write_lines(&s); break;
    case JOB_TRIAD: m->sink += triad_lines(&s); break;
    case JOB_FMA: m->sink += (double)m->team->fma.run(FMA_TURNS); break;
    case JOBS:
    case JOB_STOP: break;
    }
}

/* Work of one pass of `n` members over `lines` each, in bytes or operations. */
static double amount(const team *t, job what, double n, double lines) {
    static const double arrays[] = {3, 1, 3};
    return what == JOB_FMA ? n * FMA_TURNS * t->fma.flops : n * lines * (double)sizeof(line) * arrays[what];
}

/* ---- The team ----------------------------------------------------------------------------------------------------- */

static void *serve(void *argument) {
    struct member *m = argument;
    pthread_mutex_lock(&m->team->gate);
    int met = m->team->met;
    pthread_mutex_unlock(&m->team->gate);
    while (met) {
        pthread_barrier_wait(&m->team->barrier);
        if (m->team->job == JOB_STOP) break;
        run(m, m->team->job);
        pthread_barrier_wait(&m->team->barrier);
    }
    return NULL;
}

static double pass_alone(team *t, job what) {
    uint64_t start = qn_clock_now();
    run(&t->members[0], what);
    return (double)(qn_clock_now() - start);
}

static double pass_together(team *t, job what) {
    t->job = what;
    pthread_barrier_wait(&t->barrier);
    uint64_t start = qn_clock_now();
    run(&t->members[0], what);
    pthread_barrier_wait(&t->barrier);
    return (double)(qn_clock_now() - start);
}

/* Billions a second, the fastest of at least a few passes within the time given. */
static double rate(team *t, job what, int together, double budget_ns) {
    double least = 1e30;
    uint64_t begin = qn_clock_now();
    for (int i = 0; i < PASSES_LEAST || (double)(qn_clock_now() - begin) < budget_ns; i++) {
        double ns = together ? pass_together(t, what) : pass_alone(t, what);
        if (ns > 0 && ns < least) least = ns;
    }
    return amount(t, what, together ? t->n : 1, (double)t->members[0].window) / least;
}

static void share(team *t, line *memory, size_t lines, int n) {
    size_t each = lines / 3 / (size_t)n;
    for (int i = 0; i < n; i++) {
        line *base = memory + (size_t)i * each * 3;
        t->members[i].part = (slice){base, base + each, base + 2 * each, each};
        t->members[i].next = 0;
        t->members[i].window = each < WINDOW / sizeof(line) ? each : WINDOW / sizeof(line);
    }
}

/* Touches all three arrays, so that no pass meets a page for the first time. */
static void touch(line *memory, size_t lines) {
    slice all = {memory, NULL, NULL, lines};
    write_lines(&all);
}

static void measure_core(team *t, double budget, qn_limits *l) {
    l->read_gbps_core = rate(t, JOB_READ, 0, budget);
    l->write_gbps_core = rate(t, JOB_WRITE, 0, budget);
    l->triad_gbps_core = rate(t, JOB_TRIAD, 0, budget);
    l->gflops_core = rate(t, JOB_FMA, 0, budget);
}

static void measure_all(team *t, double budget, qn_limits *l) {
    l->read_gbps = rate(t, JOB_READ, 1, budget);
    l->write_gbps = rate(t, JOB_WRITE, 1, budget);
    l->triad_gbps = rate(t, JOB_TRIAD, 1, budget);
    l->gflops = rate(t, JOB_FMA, 1, budget);
}

/* Threads that cannot be had are done without; alone, the rates of one core are those of all. */
static qn_status with_team(team *t, int wanted, line *memory, size_t lines, double budget, qn_limits *l) {
    pthread_t threads[MAX_THREADS];
    if (pthread_mutex_init(&t->gate, NULL) != 0) return QN_NO_MEMORY;
    pthread_mutex_lock(&t->gate);
    for (t->n = 1; t->n < wanted; t->n++) {
        t->members[t->n].team = t;
        if (pthread_create(&threads[t->n], NULL, serve, &t->members[t->n]) != 0) break;
    }
    share(t, memory, lines, t->n);
    int met = t->met = pthread_barrier_init(&t->barrier, NULL, (unsigned)t->n) == 0;
    pthread_mutex_unlock(&t->gate);
    if (met) {
        measure_all(t, budget, l);
        t->job = JOB_STOP;
        pthread_barrier_wait(&t->barrier);
    }
    for (int i = 1; i < t->n; i++) pthread_join(threads[i], NULL);
    if (met) pthread_barrier_destroy(&t->barrier);
    pthread_mutex_destroy(&t->gate);
    return met ? QN_OK : QN_NO_MEMORY;
}

/* Bytes for all threads: as much as the time allows, since every page must be made first; a long measurement is well beyond any
 * cache, a short one may partly run in the last one. */
static size_t lines_for(int milliseconds) {
    size_t mib = milliseconds <= 250 ? 96 : milliseconds <= 1000 ? 384 : 1536;
    return mib * 1048576 / sizeof(line);
}

qn_status qn_limits_measure(int milliseconds, qn_limits *limits, qn_error *error) {
    if (!limits || limits->size != sizeof *limits || milliseconds < 10 || milliseconds > 60000)
        return qn_error_set(error, QN_ARGUMENT, "limits need a record of this version and 10 to 60000 ms, not %d", milliseconds);
    memset(limits, 0, sizeof *limits);
    limits->size = sizeof *limits;
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    int wanted = cores < 1 ? 1 : cores > MAX_THREADS ? MAX_THREADS : (int)cores;
    size_t lines = lines_for(milliseconds);
    qn_arena arena;
    qn_arena_init(&arena, 0);
    team *t = qn_arena_alloc(&arena, 1, sizeof *t);
    line *memory = t ? qn_arena_resize(&arena, NULL, lines, sizeof *memory) : NULL;
    qn_status status = memory ? QN_OK : QN_NO_MEMORY;
    if (status == QN_OK) {
        uint64_t begin = qn_clock_now();
        t->fma = qn_fma_best();
        t->members[0].team = t;
        snprintf(limits->isa, sizeof limits->isa, "%s", t->fma.isa);
        touch(memory, lines);
        share(t, memory, lines, 1);
        double left = milliseconds * 1e6 - (double)(qn_clock_now() - begin);
        double budget = (left > 0 ? left : 0) / (wanted > 1 ? 2 * JOBS : JOBS);
        measure_core(t, budget, limits);
        status = with_team(t, wanted, memory, lines, budget, limits);
        limits->cores = t->n;
    }
    qn_arena_destroy(&arena);
    return status == QN_OK ? QN_OK : qn_error_set(error, status, "no memory or threads to measure the machine's limits");
}
