/* Signals that ask the program to end, once for all verbs. */
#include "app.h"

void app_end_signals(sigset_t *set) {
    struct sigaction hup;
    sigemptyset(set);
    sigaddset(set, SIGINT);
    sigaddset(set, SIGTERM);
    if (sigaction(SIGHUP, NULL, &hup) != 0 || hup.sa_handler != SIG_IGN) sigaddset(set, SIGHUP);
}

void app_catch_end(void (*handler)(int), int flags) {
    static const int all[] = {SIGINT, SIGTERM, SIGHUP};
    sigset_t set;
    app_end_signals(&set);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        struct sigaction action = {.sa_handler = handler, .sa_flags = flags};
        sigemptyset(&action.sa_mask);
        if (all[i] == SIGHUP) action.sa_flags &= ~(int)SA_RESETHAND; /* the shell and the system send one each */
        if (sigismember(&set, all[i]) == 1) sigaction(all[i], &action, NULL);
    }
}
