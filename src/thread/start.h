/* How a thread of ours begins. */
#ifndef QN_THREAD_START_H
#define QN_THREAD_START_H

#include <pthread.h>

/* A thread that takes none of the process's signals: they are the program's, and its handlers were written for threads it knows.
 * Faults of its own reach it, and a profiler's ticks do. It has room for what runs in it, however small the stacks are that the process
 * gives its threads. 0, or an error of pthread_create's. */
int qn_thread_start(pthread_t *thread, void *(*run)(void *), void *arg);

#endif
