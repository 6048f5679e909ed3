/* A barrier for a team of CPU threads: spins for a moment, then sleeps.
 *
 * OpenMP runtimes spin for milliseconds by default. On a machine that does something else too, a spinning
 * thread holds the core that the thread it waits for needs (docs/measurements.md). Any number of uses; all
 * threads of a team use the same one. */
#ifndef NJ_KERNELS_BARRIER_H
#define NJ_KERNELS_BARRIER_H

#include <pthread.h>
#include <stdatomic.h>

struct nj_barrier {
    atomic_uint arrived, generation;
    pthread_mutex_t mutex;
    pthread_cond_t released;
};

int barrier_open(struct nj_barrier *barrier); /* -1: the system has no resources for it */
void barrier_close(struct nj_barrier *barrier);

/* Returns when all `threads` threads of the team have called it. What each wrote before is visible to all. */
void barrier_wait(struct nj_barrier *barrier, unsigned threads);

#endif
