#include "thread/start.h"

#include <signal.h>

static const int its_own[] = {
    SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSEGV, SIGSYS, SIGTRAP,
#ifdef SIGPROF
    SIGPROF,
#endif
};

int qn_thread_start(pthread_t *thread, void *(*run)(void *), void *arg) {
    sigset_t theirs, before;
    sigfillset(&theirs);
    for (size_t i = 0; i < sizeof its_own / sizeof *its_own; i++) sigdelset(&theirs, its_own[i]);
    int error = pthread_sigmask(SIG_BLOCK, &theirs, &before);
    if (error) return error;
    error = pthread_create(thread, NULL, run, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}
