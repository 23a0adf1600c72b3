#include "thread/start.h"

#include <signal.h>

#include <quern/quern.h>

static const int its_own[] = {
    SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSEGV, SIGSYS, SIGTRAP,
#ifdef SIGPROF
    SIGPROF,
#endif
};

/* Twice what a caller must have, as a library's own variables of the thread and what a program lets run in a pool's take some as well. */
static int make_room(pthread_attr_t *with) {
    enum { ROOM = 2 * QN_STACK_BYTES };
    size_t bytes = 0;
    int error = pthread_attr_getstacksize(with, &bytes);
    return error || bytes >= ROOM ? error : pthread_attr_setstacksize(with, ROOM);
}

static int create(pthread_t *thread, void *(*run)(void *), void *arg) {
    pthread_attr_t with;
    int error = pthread_attr_init(&with);
    if (error) return error;
    error = make_room(&with);
    if (!error) error = pthread_create(thread, &with, run, arg);
    pthread_attr_destroy(&with);
    return error;
}

int qn_thread_start(pthread_t *thread, void *(*run)(void *), void *arg) {
    sigset_t theirs, before;
    sigfillset(&theirs);
    for (size_t i = 0; i < sizeof its_own / sizeof *its_own; i++) sigdelset(&theirs, its_own[i]);
    int error = pthread_sigmask(SIG_BLOCK, &theirs, &before);
    if (error) return error;
    error = create(thread, run, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}
