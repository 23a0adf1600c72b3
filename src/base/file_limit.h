/* A write past the process's limit of file sizes (RLIMIT_FSIZE) fails with EFBIG, and sends SIGXFSZ to the thread that writes, which ends
 * a program that has not thought of it. A library leaves that to nobody: while its thread writes, the signal is held back, and one that
 * came of it is taken away. */
#ifndef QN_BASE_FILE_LIMIT_H
#define QN_BASE_FILE_LIMIT_H

#include <signal.h>

typedef struct qn_file_limit {
    sigset_t before;
    int is_theirs; /* one waits already, which is not ours to take */
} qn_file_limit;

/* Around writes of the calling thread; both leave errno as it is. */
void qn_file_limit_hold(qn_file_limit *limit);
void qn_file_limit_release(const qn_file_limit *limit);

#endif
