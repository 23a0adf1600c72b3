#include "base/file_limit.h"

#include <errno.h>
#include <stddef.h>
#include <time.h>

static sigset_t only_this(void) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGXFSZ);
    return set;
}

void qn_file_limit_hold(qn_file_limit *limit) {
    int before = errno;
    sigset_t set = only_this(), waiting;
    limit->is_theirs = 0;
    sigemptyset(&limit->before);
    pthread_sigmask(SIG_BLOCK, &set, &limit->before);
    /* Only where the host holds it back as well can one be waiting. */
    if (sigismember(&limit->before, SIGXFSZ) == 1)
        limit->is_theirs = sigpending(&waiting) == 0 && sigismember(&waiting, SIGXFSZ) == 1;
    errno = before;
}

void qn_file_limit_release(const qn_file_limit *limit) {
    static const struct timespec at_once = {0, 0};
    int before = errno;
    sigset_t set = only_this();
    if (!limit->is_theirs)
        while (sigtimedwait(&set, NULL, &at_once) < 0 && errno == EINTR) {}
    pthread_sigmask(SIG_SETMASK, &limit->before, NULL);
    errno = before;
}
