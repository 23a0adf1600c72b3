/* The roof of the roofline: the fastest pass of plain loops over memory and of multiply-adds in registers, first on one core and
 * then on all. A team of threads meets at a barrier before and after each pass, so a pass is as slow as its slowest member. A
 * pass over memory takes the next few megabytes of arrays far larger: short enough that a busy machine leaves some undisturbed,
 * and never the same lines twice in a row. */
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <emmintrin.h>
#endif

#include <quern/limits.h>

#include "base/arena.h"
#include "base/clock.h"
#include "cpu/ahead.h"
#include "prof/roofline_dots.h"
#include "thread/cores.h"
#include "thread/start.h"

enum { MAX_THREADS = 256, FMA_TURNS = 100000, TILE_TURNS = 4000, PASSES_LEAST = 3 };

/* The first are passes over memory, made twice; those named so store past the caches. */
typedef enum job {
    JOB_READ_1,
    JOB_READ_2,
    JOB_READ_4,
    JOB_READ_1_STARTS,
    JOB_READ_2_STARTS,
    JOB_READ_4_STARTS,
    JOB_WRITE,
    JOB_WRITE_PAST,
    JOB_COPY,
    JOB_COPY_PAST,
    JOB_TRIAD,
    JOB_TRIAD_PAST,
    JOB_FMA,
    JOB_DOTS,
    JOB_TILES,
    JOBS,
    JOB_STOP
} job;

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

/* Bytes of each array that a pass takes, and of all arrays together when the last cache shall hold them. */
enum { WINDOW = 4 << 20, NEAR_LEAST = 4 << 20, NEAR_MOST = 96 << 20 };
/* Lines that are asked for before they are read where results are written as well. */
enum { AHEAD = 32 };

typedef struct team {
    pthread_mutex_t gate; /* held until it is known how many came */
    pthread_barrier_t barrier;
    job job;
    qn_fma_loop loops[3]; /* multiply-adds, dots, tiles */
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

/* So many parts of the first array side by side. A machine's own prefetchers are not enough for the last fifteenth, nor is the first
 * cache, which can wait for few lines: the second is asked before it, for every line or, `starts`, for the beginnings of pages, where
 * prefetchers stop. Machines differ in which is faster. */
static inline __attribute__((always_inline)) double read_lines(const slice *s, int streams, int starts) {
    const line *a = s->a;
    size_t n = s->n / (size_t)streams;
    pack p = {0, 0}, q = p, r = p, t = p;
    for (size_t i = 0; i < n; i++) {
        for (int k = 0; k < streams; k++) {
            const line *at = a + (size_t)k * n + i;
            __builtin_prefetch((const char *)at + QN_AHEAD_SOON);
            if (!starts || (uintptr_t)at % QN_AHEAD_PAGE < QN_AHEAD_START)
                __builtin_prefetch((const char *)at + QN_AHEAD_LATER, 0, 2);
            p += at->p;
            q += at->q;
            r += at->r;
            t += at->s;
        }
    }
    p += q + r + t;
    return p[0] + p[1];
}
#define READ(streams)                                                                                            \
    __attribute__((noinline)) static double read_##streams(const slice *s) { return read_lines(s, streams, 0); } \
    __attribute__((noinline)) static double starts_##streams(const slice *s) { return read_lines(s, streams, 1); }
READ(1)
READ(2)
READ(4)

static inline __attribute__((always_inline)) void put(pack *to, pack x, int past) {
#if defined(__x86_64__)
    if (past) {
        _mm_stream_pd((double *)to, (__m128d)x);
        return;
    }
#endif
    (void)past;
    *to = x;
}

static inline __attribute__((always_inline)) double put_lines(const slice *s, int sources, int past) {
    const pack three = {3, 3};
    const line value = {{0, 1}, {2, 3}, {4, 5}, {6, 7}}; /* not one byte, which would become memset */
    for (size_t i = 0; i < s->n; i++) {
        const line *b = sources > 0 ? &s->b[i] : &value, *c = &s->c[i];
        if (sources > 0) __builtin_prefetch(b + AHEAD);
        if (sources > 1) __builtin_prefetch(c + AHEAD);
        put(&s->a[i].p, sources > 1 ? b->p + three * c->p : b->p, past);
        put(&s->a[i].q, sources > 1 ? b->q + three * c->q : b->q, past);
        put(&s->a[i].r, sources > 1 ? b->r + three * c->r : b->r, past);
        put(&s->a[i].s, sources > 1 ? b->s + three * c->s : b->s, past);
    }
    return s->a[0].p[1];
}
__attribute__((noinline)) static double write_lines(const slice *s) { return put_lines(s, 0, 0); }
__attribute__((noinline)) static double write_past(const slice *s) { return put_lines(s, 0, 1); }
__attribute__((noinline)) static double copy_lines(const slice *s) { return put_lines(s, 1, 0); }
__attribute__((noinline)) static double copy_past(const slice *s) { return put_lines(s, 1, 1); }
__attribute__((noinline)) static double triad_lines(const slice *s) { return put_lines(s, 2, 0); }
__attribute__((noinline)) static double triad_past(const slice *s) { return put_lines(s, 2, 1); }

static const struct {
    double (*run)(const slice *s);
    double arrays; /* it passes over */
} passes[JOB_FMA] = {
    [JOB_READ_1] = {read_1, 1},          [JOB_READ_2] = {read_2, 1},          [JOB_READ_4] = {read_4, 1},
    [JOB_READ_1_STARTS] = {starts_1, 1}, [JOB_READ_2_STARTS] = {starts_2, 1}, [JOB_READ_4_STARTS] = {starts_4, 1},
    [JOB_WRITE] = {write_lines, 1},      [JOB_WRITE_PAST] = {write_past, 1},  [JOB_COPY] = {copy_lines, 2},
    [JOB_COPY_PAST] = {copy_past, 2},    [JOB_TRIAD] = {triad_lines, 3},      [JOB_TRIAD_PAST] = {triad_past, 3}};

static slice next_window(struct member *m) {
    slice s = {m->part.a + m->next, m->part.b + m->next, m->part.c + m->next, m->window};
    m->next = m->next + 2 * m->window <= m->part.n ? m->next + m->window : 0;
    return s;
}

static long turns_of(job what) { return what == JOB_TILES ? TILE_TURNS : FMA_TURNS; }

static void run(struct member *m, job what) {
    if (what < JOB_FMA) {
        slice s = next_window(m);
        m->sink += passes[what].run(&s);
    } else if (what < JOBS) m->sink += (double)m->team->loops[what - JOB_FMA].run(turns_of(what));
}

/* Work of one pass of `n` members over `lines` each, in bytes or operations. */
static double amount(const team *t, job what, double n, double lines) {
    if (what < JOB_FMA) return n * lines * (double)sizeof(line) * passes[what].arrays;
    return n * (double)turns_of(what) * t->loops[what - JOB_FMA].flops;
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
    if (what >= JOB_FMA && !t->loops[what - JOB_FMA].run) return 0;
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
    slice all = {memory, memory, memory, lines};
    write_lines(&all);
}

static double better(double a, double b) { return a > b ? a : b; }

static qn_bandwidth bandwidth(team *t, int together, double budget) {
    qn_bandwidth b;
    for (int i = 0; i < 3; i++)
        b.read_streams[i] = better(rate(t, (job)(JOB_READ_1 + i), together, budget),
                                   rate(t, (job)(JOB_READ_1_STARTS + i), together, budget));
    b.read = better(b.read_streams[0], better(b.read_streams[1], b.read_streams[2]));
    b.write = better(rate(t, JOB_WRITE, together, budget), rate(t, JOB_WRITE_PAST, together, budget));
    b.copy = better(rate(t, JOB_COPY, together, budget), rate(t, JOB_COPY_PAST, together, budget));
    b.triad = better(rate(t, JOB_TRIAD, together, budget), rate(t, JOB_TRIAD_PAST, together, budget));
    return b;
}

/* Two sets of arrays: all of the memory, and the first part of it, which caches hold once it has been passed over. */
typedef struct arrays {
    line *memory;
    size_t lines, near;
} arrays;

static void measure_core(team *t, const arrays *m, double budget, qn_limits_all *l) {
    share(t, m->memory, m->lines, 1);
    l->memory_core = bandwidth(t, 0, budget);
    share(t, m->memory, m->near, 1);
    l->cache_core = bandwidth(t, 0, budget);
    l->roof.gflops_core = rate(t, JOB_FMA, 0, budget);
    l->dots_core = rate(t, JOB_DOTS, 0, budget);
    l->tiles_core = rate(t, JOB_TILES, 0, budget);
}

static void measure_all(team *t, const arrays *m, double budget, qn_limits_all *l) {
    share(t, m->memory, m->lines, t->n);
    l->memory = bandwidth(t, 1, budget);
    share(t, m->memory, m->near, t->n); /* members wait at the barrier meanwhile */
    l->cache = bandwidth(t, 1, budget);
    l->roof.gflops = rate(t, JOB_FMA, 1, budget);
    l->dots = rate(t, JOB_DOTS, 1, budget);
    l->tiles = rate(t, JOB_TILES, 1, budget);
}

/* Threads that cannot be had are done without; alone, the rates of one core are those of all. */
static qn_status with_team(team *t, int wanted, const arrays *m, double budget, qn_limits_all *l) {
    pthread_t threads[MAX_THREADS];
    if (pthread_mutex_init(&t->gate, NULL) != 0) return QN_NO_MEMORY;
    pthread_mutex_lock(&t->gate);
    for (t->n = 1; t->n < wanted; t->n++) {
        t->members[t->n].team = t;
        if (qn_thread_start(&threads[t->n], serve, &t->members[t->n]) != 0) break;
    }
    int met = t->met = pthread_barrier_init(&t->barrier, NULL, (unsigned)t->n) == 0;
    pthread_mutex_unlock(&t->gate);
    if (met) {
        measure_all(t, m, budget, l);
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

static uint64_t last_cache(void) {
#ifdef _SC_LEVEL3_CACHE_SIZE
    long bytes = sysconf(_SC_LEVEL3_CACHE_SIZE);
    if (bytes <= 0) bytes = sysconf(_SC_LEVEL2_CACHE_SIZE);
    return bytes > 0 ? (uint64_t)bytes : 0;
#else
    return 0;
#endif
}

static qn_status measure(team *t, const arrays *m, int milliseconds, int wanted, qn_limits_all *l) {
    uint64_t begin = qn_clock_now();
    t->loops[0] = qn_fma_best();
    t->loops[1] = qn_dots_best();
    t->loops[2] = qn_dots_tiles();
    t->members[0].team = t;
    snprintf(l->roof.isa, sizeof l->roof.isa, "%s", t->loops[0].isa);
    touch(m->memory, m->lines);
    double left = milliseconds * 1e6 - (double)(qn_clock_now() - begin), jobs = 2 * JOB_FMA + (JOBS - JOB_FMA);
    double budget = (left > 0 ? left : 0) / (wanted > 1 ? 2 * jobs : jobs);
    measure_core(t, m, budget, l);
    qn_status status = with_team(t, wanted, m, budget, l);
    l->roof.cores = t->n;
    return status;
}

/* The short record is the beginning of the long one. */
static void hand_over(const qn_limits_all *l, qn_limits *limits) {
    qn_limits_all all = *l;
    all.roof.size = limits->size;
    all.roof.read_gbps = l->memory.read;
    all.roof.write_gbps = l->memory.write;
    all.roof.triad_gbps = l->memory.triad;
    all.roof.read_gbps_core = l->memory_core.read;
    all.roof.write_gbps_core = l->memory_core.write;
    all.roof.triad_gbps_core = l->memory_core.triad;
    memcpy(limits, &all, limits->size);
}

qn_status qn_limits_measure(int milliseconds, qn_limits *limits, qn_error *error) {
    if (!limits || (limits->size != sizeof *limits && limits->size != sizeof(qn_limits_all)) || milliseconds < 10 ||
        milliseconds > 60000)
        return qn_error_set(error, QN_ARGUMENT, "limits need a record of this version and 10 to 60000 ms, not %d", milliseconds);
    qn_limits_all l = {.cache_bytes = last_cache()};
    int cores = qn_cores(), wanted = cores > MAX_THREADS ? MAX_THREADS : cores;
    uint64_t near = l.cache_bytes / 4;
    arrays m = {NULL, lines_for(milliseconds), 0};
    m.near = (size_t)(near < NEAR_LEAST ? NEAR_LEAST : near > NEAR_MOST ? NEAR_MOST : near) / sizeof(line);
    qn_arena arena;
    qn_arena_init(&arena, 0);
    team *t = qn_arena_alloc(&arena, 1, sizeof *t);
    m.memory = t ? qn_arena_resize(&arena, NULL, m.lines, sizeof *m.memory) : NULL;
    qn_status status = m.memory ? measure(t, &m, milliseconds, wanted, &l) : QN_NO_MEMORY;
    qn_arena_destroy(&arena);
    if (status != QN_OK) return qn_error_set(error, status, "no memory or threads to measure the machine's limits");
    hand_over(&l, limits);
    return QN_OK;
}
