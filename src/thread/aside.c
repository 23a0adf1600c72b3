/* The system wakes a thread on a processor that idles, its own of before if it can. Where a virtual machine is told which of its
 * processors the host has given to others, one that sleeps counts among those: none is found idle, and the woken thread may be queued
 * behind its waker until the next look at the balance, milliseconds later. A round of parts is over by then. So the waker's processor
 * is taken from those that the sleeper may use until it runs elsewhere, once somebody was found there: of two machines that tell a guest
 * the same about themselves, one did this always and one never, and it costs some five microseconds for each sleeper. */
#define _GNU_SOURCE /* sched_getcpu, pthread_setaffinity_np */
#include "thread/aside.h"

#if defined(__linux__)
#include <sched.h>
#include <stdio.h>
#include <string.h>

int qn_aside_can(const char *status) {
    char line[256];
    int filter, can = 0;
    FILE *f = fopen(status, "r");
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "Seccomp: %d", &filter) == 1) can = filter == 0;
    if (f) fclose(f);
    return can;
}

int qn_aside_here(void) { return sched_getcpu(); }

static int get(pthread_t thread, qn_aside_set *set) {
    memset(set, 0, sizeof *set); /* what the system writes, who looks for memory that nobody wrote does not see */
    return pthread_getaffinity_np(thread, sizeof *set, (cpu_set_t *)(void *)set) == 0;
}
static int put(pthread_t thread, const qn_aside_set *set) {
    return pthread_setaffinity_np(thread, sizeof *set, (const cpu_set_t *)(const void *)set) == 0;
}

/* A list that is given back is kept to for good, whatever processors its group gets later. So who was given none is given every processor
 * back, of which the system takes those that the group has. Whether it was one is seen by trying. */
static int know(qn_aside *a, pthread_t sleeper) {
    qn_aside_set now, all, tried;
    if (!get(sleeper, &now)) return 0;
    if (a->is_known && memcmp(&now, &a->seen, sizeof now) == 0) return 1;
    memset(&all, 0xff, sizeof all);
    int is_free = put(sleeper, &all) && get(sleeper, &tried) && memcmp(&tried, &now, sizeof now) == 0;
    if (!is_free && !put(sleeper, &now)) return 0;
    a->seen = now;
    a->back = is_free ? all : now;
    return a->is_known = 1;
}

void qn_aside_keep(qn_aside *a, pthread_t sleeper) {
    _Static_assert(sizeof(qn_aside_set) == sizeof(cpu_set_t), "as many processors as the C library's sets have");
    if (!a->is_kept && !know(a, sleeper)) return;
    qn_aside_set most = a->seen;
    cpu_set_t *set = (cpu_set_t *)(void *)&most;
    int here = qn_aside_here();
    if (here < 0 || here >= CPU_SETSIZE || !CPU_ISSET(here, set) || CPU_COUNT(set) < 2) return;
    CPU_CLR(here, set);
    a->is_kept |= put(sleeper, &most);
}

void qn_aside_release(qn_aside *a) {
    if (a->is_kept) a->is_kept = !put(pthread_self(), &a->back);
}
#else
int qn_aside_here(void) { return -1; }
int qn_aside_can(const char *status) { return (void)status, 0; }
void qn_aside_keep(qn_aside *a, pthread_t sleeper) { (void)a, (void)sleeper; }
void qn_aside_release(qn_aside *a) { (void)a; }
#endif
