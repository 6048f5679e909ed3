#include "jobs/signals.h"

#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/error.h"

static atomic_int stop_signal;

static void signals_on_stop(int number)
{
    int none = 0;
    if (!atomic_compare_exchange_strong(&stop_signal, &none, number))
        _exit(NJ_INTERRUPTED);
}

const atomic_int *signals_watch(void)
{
    static const struct {
        int number;
        int respects_ignored;
    } watched[] = {{SIGTERM, 0}, {SIGINT, 1}, {SIGHUP, 1}, {SIGUSR1, 0}, {SIGUSR2, 0}};
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = signals_on_stop;
    action.sa_flags = SA_RESTART;
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < sizeof watched / sizeof watched[0]; i++) {
        struct sigaction old;
        if (watched[i].respects_ignored && sigaction(watched[i].number, NULL, &old) == 0 && old.sa_handler == SIG_IGN)
            continue;
        sigaction(watched[i].number, &action, NULL);
    }
    return &stop_signal;
}

void signals_ignore_broken_pipe(void)
{
    signal(SIGPIPE, SIG_IGN);
}
