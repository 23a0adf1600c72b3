/* Where a sleeper runs once it is woken: not on the processor of whom it is woken by, who goes on working there. */
#ifndef QN_THREAD_ASIDE_H
#define QN_THREAD_ASIDE_H

#include <pthread.h>

/* The processors that somebody may use, as the system writes them down; no more than 1024. */
typedef struct qn_aside_set {
    unsigned long bits[1024 / (8 * sizeof(long))];
} qn_aside_set;

typedef struct qn_aside {
    qn_aside_set seen,
        back; /* what it might use when that was last another set, and what says so: every processor where only a group
                                that may change keeps it off some */
    int is_known, is_kept; /* seen and back hold something; it may use less than that for now */
} qn_aside;

/* The processor that runs this; negative: not known. */
int qn_aside_here(void);
/* Whether the process may say where its threads run. A filter of system calls may end who asks, so nothing is asked where there is one:
 * `status` is the file that says it of this process. */
int qn_aside_can(const char *status);

/* Keeps a thread that sleeps off the processor that this one runs on, if it may use another. */
void qn_aside_keep(qn_aside *a, pthread_t sleeper);
/* That thread, once awake, may use what it could before. */
void qn_aside_release(qn_aside *a);

#endif
