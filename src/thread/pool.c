/* A pool that spins for a moment and then sleeps. The caller opens a gate, works with whoever comes in, closes it when no part is
 * left and waits for those inside only: a worker that wakes too late finds the gate shut and costs nothing. Threads that cannot be
 * had are done without: the caller alone still finishes everything. */
#include "thread/pool.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <unistd.h>

#include "base/memory.h"

enum { POOL_MAX = 256, SPINS = 4000 };

/* The gate in one word: workers inside, whether it is open, the number of the round; and whether the pool ends. */
#define GATE_INSIDE UINT64_C(0xffff)
#define GATE_OPEN (UINT64_C(1) << 16)
#define GATE_END (UINT64_C(1) << 17)
#define GATE_ROUND (UINT64_C(1) << 18)

/* The parts that a thread begins with: a run of them, so that a core finds in its caches what it wrote there the time before. */
typedef struct lane {
    _Atomic int64_t next; /* first part nobody has taken */
    char apart[64 - sizeof(int64_t)];
} lane;

struct qn_pool {
    qn_pool_run_fn borrowed; /* the caller's own pool, and nothing below */
    void *user;
    int n_threads; /* the caller included */
    pthread_mutex_t lock;
    pthread_cond_t wake;
    int sleepers; /* under the lock */
    qn_pool_task_fn task;
    void *arg;
    int64_t parts;
    _Atomic uint64_t gate;
    _Atomic int left;    /* workers that came in this round and are done */
    _Atomic int started; /* workers, which thus find their numbers */
    lane lanes[POOL_MAX];
    pthread_t threads[POOL_MAX];
};

static inline void relax(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static int64_t lane_begin(const qn_pool *p, int64_t number) {
    int64_t each = p->parts / p->n_threads, rest = p->parts % p->n_threads;
    return each * number + (number < rest ? number : rest);
}

/* First its own lane, then what is left in the others', from the next one on. */
static void take_parts(qn_pool *p, int me) {
    for (int i = 0; i < p->n_threads; i++) {
        int number = (me + i) % p->n_threads;
        lane *l = &p->lanes[number];
        int64_t end = lane_begin(p, number + 1);
        while (atomic_load_explicit(&l->next, memory_order_relaxed) < end) {
            int64_t part = atomic_fetch_add_explicit(&l->next, 1, memory_order_relaxed);
            if (part < end) p->task(p->arg, part);
        }
    }
}

static int is_news(uint64_t gate, uint64_t seen) {
    return (gate & GATE_END) || ((gate & GATE_OPEN) && gate / GATE_ROUND != seen);
}

/* Spins, then sleeps, until the gate opens for a round not seen yet or the pool ends. */
static uint64_t wait_for_news(qn_pool *p, uint64_t seen) {
    uint64_t gate;
    for (int i = 0; i < SPINS; i++) {
        if (is_news(gate = atomic_load_explicit(&p->gate, memory_order_acquire), seen)) return gate;
        relax();
    }
    pthread_mutex_lock(&p->lock);
    p->sleepers++;
    while (!is_news(gate = atomic_load_explicit(&p->gate, memory_order_acquire), seen)) pthread_cond_wait(&p->wake, &p->lock);
    p->sleepers--;
    pthread_mutex_unlock(&p->lock);
    return gate;
}

static void *worker(void *arg) {
    qn_pool *p = arg;
    uint64_t seen = 0;
    int me = atomic_fetch_add_explicit(&p->started, 1, memory_order_relaxed) + 1;
    for (;;) {
        uint64_t gate = wait_for_news(p, seen);
        if (gate & GATE_END) return NULL;
        if (!atomic_compare_exchange_weak_explicit(&p->gate, &gate, gate + 1, memory_order_acq_rel, memory_order_relaxed))
            continue;
        seen = gate / GATE_ROUND;
        take_parts(p, me);
        atomic_fetch_add_explicit(&p->left, 1, memory_order_release);
    }
}

static void set_gate(qn_pool *p, uint64_t gate) {
    pthread_mutex_lock(&p->lock);
    atomic_store_explicit(&p->gate, gate, memory_order_release);
    if (p->sleepers) pthread_cond_broadcast(&p->wake);
    pthread_mutex_unlock(&p->lock);
}

static void share_parts(qn_pool *p) {
    uint64_t round = atomic_load_explicit(&p->gate, memory_order_relaxed) / GATE_ROUND + 1;
    for (int i = 0; i < p->n_threads; i++) atomic_store_explicit(&p->lanes[i].next, lane_begin(p, i), memory_order_relaxed);
    atomic_store_explicit(&p->left, 0, memory_order_relaxed);
    set_gate(p, round * GATE_ROUND | GATE_OPEN);
    take_parts(p, 0);
    uint64_t shut = atomic_fetch_and_explicit(&p->gate, ~GATE_OPEN, memory_order_acq_rel);
    int inside = (int)(shut & GATE_INSIDE);
    for (int i = 0; atomic_load_explicit(&p->left, memory_order_acquire) < inside; i++) {
        if (i < SPINS) relax();
        else sched_yield(); /* a worker was put aside by the system: let it run */
    }
}

void qn_pool_for(qn_pool *p, int64_t parts, qn_pool_task_fn task, void *arg) {
    if (p && p->borrowed && parts > 1) {
        p->borrowed(p->user, parts, task, arg);
        return;
    }
    if (!p || p->n_threads == 1 || parts <= 1) {
        for (int64_t i = 0; i < parts; i++) task(arg, i);
        return;
    }
    p->task = task;
    p->arg = arg;
    p->parts = parts;
    share_parts(p);
}

static qn_pool *pool_new(void) {
    qn_allocator memory = qn_memory_default();
    qn_pool *p = memory.allocate(memory.user, sizeof *p, 64);
    if (!p) return NULL;
    memset(p, 0, sizeof *p);
    p->n_threads = 1;
    if (pthread_mutex_init(&p->lock, NULL) != 0 || pthread_cond_init(&p->wake, NULL) != 0) {
        memory.release(memory.user, p, sizeof *p);
        return NULL;
    }
    return p;
}

qn_status qn_pool_create(int threads, qn_pool **pool) {
    if (!pool || threads < 0 || threads > POOL_MAX) return QN_ARGUMENT;
    if (threads == 0) {
        long online = sysconf(_SC_NPROCESSORS_ONLN);
        threads = online < 1 ? 1 : online > POOL_MAX ? POOL_MAX : (int)online;
    }
    qn_pool *p = *pool = pool_new();
    if (!p) return QN_NO_MEMORY;
    while (p->n_threads < threads && pthread_create(&p->threads[p->n_threads], NULL, worker, p) == 0) p->n_threads++;
    return QN_OK;
}

qn_status qn_pool_borrow(qn_pool_run_fn run, void *user, int threads, qn_pool **pool) {
    if (!pool || !run || threads < 1) return QN_ARGUMENT;
    qn_pool *p = *pool = pool_new();
    if (!p) return QN_NO_MEMORY;
    p->borrowed = run;
    p->user = user;
    p->n_threads = threads;
    return QN_OK;
}

int qn_pool_threads(const qn_pool *p) { return p ? p->n_threads : 1; }

void qn_pool_destroy(qn_pool *p) {
    if (!p) return;
    if (!p->borrowed && p->n_threads > 1) {
        set_gate(p, GATE_END);
        for (int i = 1; i < p->n_threads; i++) pthread_join(p->threads[i], NULL);
    }
    pthread_cond_destroy(&p->wake);
    pthread_mutex_destroy(&p->lock);
    qn_allocator memory = qn_memory_default();
    memory.release(memory.user, p, sizeof *p);
}
