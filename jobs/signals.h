/* Signals that ask a job to stop. */
#ifndef NJ_JOBS_SIGNALS_H
#define NJ_JOBS_SIGNALS_H

#include <stdatomic.h>

/* From now on the first SIGTERM, SIGINT, SIGHUP, SIGUSR1 or SIGUSR2 sets the returned flag to the signal's
 * number and the second ends the process at once with exit code 75; the same signal again within 0.3 seconds is taken
 * for the first one's echo. SIGINT and SIGHUP stay ignored if the parent has them ignored (nohup, background jobs of a
 * shell). */
const atomic_int *signals_watch(void);

/* A write to a closed pipe becomes an error of that write. */
void signals_ignore_broken_pipe(void);

#endif
