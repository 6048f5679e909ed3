#include "jobs/signals.h"

#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "engine/base/error.h"

enum { NANOSECONDS = 1000000000, ECHO_NANOSECONDS = 300000000 };

static atomic_int stop_signal;
static _Atomic int64_t stopped_ns; /* when that came */

static int64_t signals_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * NANOSECONDS + now.tv_nsec;
}

static void signals_on_stop(int number)
{
    int first = 0;
    if (atomic_compare_exchange_strong(&stop_signal, &first, number)) {
        atomic_store(&stopped_ns, signals_now_ns());
        return;
    }
    /* timeout(1) and some shells signal a process and then the group that it is in. */
    const int64_t at = atomic_load(&stopped_ns);
    const int is_echo = number == first && (at == 0 || signals_now_ns() - at < ECHO_NANOSECONDS);
    if (!is_echo)
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
