/* A pool that spins for a moment and then sleeps. The caller opens a gate, works with whoever comes in, closes it when no part is
 * left and waits for those inside only: a worker that wakes too late finds the gate shut and costs nothing. Threads that cannot be
 * had are done without: the caller alone still finishes everything.
 *
 * A round of small parts costs what its cache lines cost on their ways between cores. So only the caller writes to the gate, each
 * worker says on a line of its own whether it is inside, and what was taken of a lane carries the number of its round, so that
 * nobody need clear it for the next. */
#include "thread/pool.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

#include "base/memory.h"
#include "thread/aside.h"
#include "thread/cores.h"
#include "thread/floats.h"
#include "thread/start.h"

/* Beds for sleepers, 2^BEDS of whom are QN_POOL_MAX. */
enum { BEDS = 8, PATIENCE_NS = 200000, CLOCKED = 64 };
_Static_assert(1 << BEDS >= QN_POOL_MAX, "a bed for every worker");

/* The gate in one word: threads that this round has parts for, whether it is open, the number of the round; and whether the pool
 * ends. */
#define GATE_WANTED UINT64_C(0xffff)
#define GATE_OPEN (UINT64_C(1) << 16)
#define GATE_END (UINT64_C(1) << 17)
#define GATE_ROUND (UINT64_C(1) << 18)
#define GATE_ROUNDS (UINT64_C(1) << (64 - 18))

/* How many of a lane's parts were taken, below the last digits of the round they were taken in. No pool has as many parts as that:
 * each writes some memory. */
#ifndef TAKEN_BITS /* a test leaves few for the round, to see them come again */
#define TAKEN_BITS 40
#endif
#define TAKEN_MASK ((UINT64_C(1) << TAKEN_BITS) - 1)
#define TAKEN_TAGS (UINT64_C(1) << (64 - TAKEN_BITS))

/* What a thread begins with: a run of parts, so that a core finds in its caches what it wrote there the time before. */
typedef struct lane {
    _Atomic uint64_t taken;
    char apart[64 - sizeof(uint64_t)];
    _Atomic uint64_t inside; /* the round that this lane's worker is at work in, 0: none */
    char apart_too[64 - sizeof(uint64_t)];
} lane;

struct qn_pool {
    qn_pool_run_fn borrowed; /* the caller's own pool, and nothing below */
    void *user;
    int n_threads; /* the caller included */
    pid_t process; /* that made it */
    int can_place; /* its threads */
    int waker;     /* under the lock: the processor of who woke last, */
    int is_queued; /* and whether a sleeper was once found there */
    pthread_mutex_t lock;
    pthread_cond_t wake[BEDS];
    _Atomic unsigned char asleep[QN_POOL_MAX]; /* written under the lock */
    pthread_t sleepers[QN_POOL_MAX];           /* likewise */
    qn_aside aside[QN_POOL_MAX];               /* likewise, for those asleep */
    _Atomic int started;                       /* workers, which thus find their numbers */
    _Atomic int busy;                          /* with somebody's round */
    uint64_t round;                            /* the caller's; what follows is read by those inside */
    uint64_t floats;
    qn_pool_task_fn task;
    void *arg;
    int64_t parts;
    int n_lanes;
    char apart[64];
    _Atomic uint64_t gate;
    char apart_too[64 - sizeof(uint64_t)];
    lane lanes[QN_POOL_MAX];
    pthread_t threads[QN_POOL_MAX];
};

static inline void relax(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb"); /* `yield` is no pause on cores without hardware threads */
#endif
}

/* How long somebody has spun, by the clock: a pause is one cycle here and a hundred there. */
typedef struct patience {
    unsigned spins;
    int64_t until; /* 0: the clock was not looked at yet */
} patience;

/* Spins once; 0 when that was long enough. */
static int spin(patience *p) {
    relax();
    if (++p->spins % CLOCKED) return 1;
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    int64_t now = (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
    if (!p->until) p->until = now + PATIENCE_NS;
    return now < p->until;
}

/* Says something before it looks at what others say. The language promises that a plain store does, and machines keep it, but emulators
 * of Arm on x86 let the load after it go first; past an exchange they let nothing. */
static void say(_Atomic uint64_t *where, uint64_t what) { (void)atomic_exchange(where, what); }

static int64_t lane_begin(const qn_pool *p, int64_t number) {
    int64_t each = p->parts / p->n_lanes, rest = p->parts % p->n_lanes;
    return each * number + (number < rest ? number : rest);
}

/* The number of one more part of a lane with n of them; -1: none is left. */
static int64_t take_one(lane *l, uint64_t round, int64_t n) {
    uint64_t tag = round % TAKEN_TAGS << TAKEN_BITS, now = atomic_load_explicit(&l->taken, memory_order_relaxed);
    for (;;) {
        uint64_t taken = (now & ~TAKEN_MASK) == tag ? now & TAKEN_MASK : 0;
        if (taken >= (uint64_t)n) return -1;
        if (atomic_compare_exchange_weak_explicit(&l->taken, &now, tag | (taken + 1), memory_order_relaxed, memory_order_relaxed))
            return (int64_t)taken;
    }
}

/* First its own lane, then what is left in the others', from the next one on. */
static void take_parts(qn_pool *p, uint64_t round, int me) {
    for (int i = 0; i < p->n_lanes; i++) {
        int number = (me + i) % p->n_lanes;
        int64_t begin = lane_begin(p, number), n = lane_begin(p, number + 1) - begin, part;
        while ((part = take_one(&p->lanes[number], round, n)) >= 0) p->task(p->arg, begin + part);
    }
}

static int is_news(uint64_t gate, uint64_t seen, int me) {
    return (gate & GATE_END) || ((gate & GATE_OPEN) && gate / GATE_ROUND != seen && me < (int)(gate & GATE_WANTED));
}

/* Who sleeps where: worker 1; 2 and 3; 4 to 7; and so on. A round wants the first so many, and so wakes less than twice as many. */
static int bed_of(int me) { return 31 - __builtin_clz((unsigned)me); }

/* Spins, then sleeps, until the gate opens for a round not seen yet that wants this worker, or the pool ends. */
static uint64_t wait_for_news(qn_pool *p, uint64_t seen, int me) {
    uint64_t gate;
    patience some = {0, 0};
    do
        if (is_news(gate = atomic_load_explicit(&p->gate, memory_order_acquire), seen, me)) return gate;
    while (spin(&some));
    pthread_mutex_lock(&p->lock);
    p->sleepers[me] = pthread_self();
    (void)atomic_exchange(&p->asleep[me], 1); /* as say() does */
    while (!is_news(gate = atomic_load(&p->gate), seen, me)) {
        qn_aside_release(&p->aside[me]); /* of who was woken too late */
        pthread_cond_wait(&p->wake[bed_of(me)], &p->lock);
        p->is_queued |= qn_aside_here() == p->waker;
    }
    atomic_store_explicit(&p->asleep[me], 0, memory_order_relaxed);
    pthread_mutex_unlock(&p->lock);
    qn_aside_release(&p->aside[me]);
    return gate;
}

/* A worker first says that it is inside and then looks whether the gate is still open; the caller first shuts the gate and then
 * looks who is inside. In the one order of these four, which all threads agree on, one of them sees the other. */
static void *worker(void *arg) {
    qn_pool *p = arg;
    uint64_t seen = 0;
    int me = atomic_fetch_add_explicit(&p->started, 1, memory_order_relaxed) + 1;
    lane *mine = &p->lanes[me];
    for (;;) {
        uint64_t gate = wait_for_news(p, seen, me);
        if (gate & GATE_END) return NULL;
        seen = gate / GATE_ROUND;
        say(&mine->inside, seen);
        if (atomic_load(&p->gate) == gate) {
            qn_floats_follow(p->floats);
            take_parts(p, seen, me);
        }
        atomic_store_explicit(&mine->inside, 0, memory_order_release);
    }
}

/* Those whom nobody wants are left asleep: to wake them for every small round would cost more than the round. */
static void set_gate(qn_pool *p, uint64_t gate, int wanted) {
    unsigned beds = 0;
    say(&p->gate, gate);
    for (int i = 1; i < wanted; i++)
        if (atomic_load(&p->asleep[i])) beds |= 1u << bed_of(i);
    if (!beds || getpid() != p->process) return; /* nobody sleeps in a child, and its lock may be held for good */
    pthread_mutex_lock(&p->lock);
    int places = p->can_place && p->is_queued && !(gate & GATE_END);
    p->waker = qn_aside_here();
    for (int i = 1; places && i < wanted; i++)
        if (atomic_load_explicit(&p->asleep[i], memory_order_relaxed)) qn_aside_keep(&p->aside[i], p->sleepers[i]);
    for (int i = 0; i < BEDS; i++)
        if (beds >> i & 1) pthread_cond_broadcast(&p->wake[i]);
    pthread_mutex_unlock(&p->lock);
}

/* The next round. Its last digits come again after many others; lanes that had no part in any of those forget them. */
static uint64_t next_round(qn_pool *p) {
    p->round = (p->round + 1) % GATE_ROUNDS;
    if (p->round % TAKEN_TAGS == 0) {
        for (int i = 0; i < QN_POOL_MAX; i++) atomic_store_explicit(&p->lanes[i].taken, 0, memory_order_relaxed);
        p->round++;
    }
    return p->round;
}

static void share_parts(qn_pool *p) {
    uint64_t round = next_round(p);
    set_gate(p, round * GATE_ROUND | GATE_OPEN | (uint64_t)p->n_lanes, p->n_lanes);
    take_parts(p, round, 0);
    say(&p->gate, round * GATE_ROUND);
    patience some = {0, 0};
    for (int k = 1; k < p->n_lanes; k++)
        while (atomic_load(&p->lanes[k].inside) == round)
            if (!spin(&some)) sched_yield(); /* a worker was put aside by the system: let it run */
}

void qn_pool_for(qn_pool *p, int64_t parts, qn_pool_task_fn task, void *arg) {
    if (p && p->borrowed && parts > 1) {
        p->borrowed(p->user, parts, task, arg);
        return;
    }
    if (!p || p->n_threads == 1 || parts <= 1 || atomic_exchange_explicit(&p->busy, 1, memory_order_acquire)) {
        for (int64_t i = 0; i < parts; i++) task(arg, i);
        return;
    }
    p->task = task;
    p->arg = arg;
    p->parts = parts;
    p->floats = qn_floats_mode();
    p->n_lanes = parts < p->n_threads ? (int)parts : p->n_threads;
    share_parts(p);
    atomic_store_explicit(&p->busy, 0, memory_order_release);
}

static qn_pool *pool_new(void) {
    qn_allocator memory = qn_memory_default();
    qn_pool *p = memory.allocate(memory.user, sizeof *p, 64);
    if (!p) return NULL;
    memset(p, 0, sizeof *p);
    p->n_threads = 1;
    p->process = getpid();
    int failed = pthread_mutex_init(&p->lock, NULL);
    for (int i = 0; i < BEDS; i++) failed |= pthread_cond_init(&p->wake[i], NULL);
    if (!failed) return p;
    memory.release(memory.user, p, sizeof *p);
    return NULL;
}

qn_status qn_pool_create(int threads, qn_pool **pool) {
    if (!pool || threads < 0) return QN_ARGUMENT;
    if (threads == 0) threads = qn_cores();
    if (threads > QN_POOL_MAX) threads = QN_POOL_MAX; /* a machine may have more cores */
    qn_pool *p = *pool = pool_new();
    if (!p) return QN_NO_MEMORY;
    p->can_place = threads > 1 && qn_aside_can("/proc/thread-self/status");
    while (p->n_threads < threads && qn_thread_start(&p->threads[p->n_threads], worker, p) == 0) p->n_threads++;
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
    int is_ours = getpid() == p->process; /* the threads of a pool that came by a fork, and who waits in it, are not here */
    if (is_ours && !p->borrowed && p->n_threads > 1) {
        set_gate(p, GATE_END, p->n_threads);
        for (int i = 1; i < p->n_threads; i++) pthread_join(p->threads[i], NULL);
    }
    for (int i = 0; is_ours && i < BEDS; i++) pthread_cond_destroy(&p->wake[i]);
    if (is_ours) pthread_mutex_destroy(&p->lock);
    qn_allocator memory = qn_memory_default();
    memory.release(memory.user, p, sizeof *p);
}
