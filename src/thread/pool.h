/* One ranged parallel-for over a fixed partition. A kernel cuts its work into parts by shape alone; which thread takes which part
 * never shows in the result, because no part reads what another writes. */
#ifndef QN_THREAD_POOL_H
#define QN_THREAD_POOL_H

#include <quern/quern.h>

typedef void (*qn_pool_task_fn)(void *arg, int64_t part);

/* Runs task(arg, part) for every part in [0, parts) and returns when all are done. pool NULL: in order, here. It
 * serves one round at a time: who comes meanwhile, or calls from within a part, does its own parts alone. */
void qn_pool_for(qn_pool *pool, int64_t parts, qn_pool_task_fn task, void *arg);

/* How many threads it has, the caller's included; 1 for NULL. */
int qn_pool_threads(const qn_pool *pool);

#endif
