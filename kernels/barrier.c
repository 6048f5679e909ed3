#include "kernels/barrier.h"

#include <immintrin.h>

/* About 20 microseconds: longer than threads with equal shares differ, shorter than a time slice. */
enum { SPINS = 500 };

int barrier_open(struct nj_barrier *barrier)
{
    atomic_init(&barrier->arrived, 0);
    atomic_init(&barrier->generation, 0);
    if (pthread_mutex_init(&barrier->mutex, NULL) != 0)
        return -1;
    if (pthread_cond_init(&barrier->released, NULL) == 0)
        return 0;
    pthread_mutex_destroy(&barrier->mutex);
    return -1;
}

void barrier_close(struct nj_barrier *barrier)
{
    pthread_cond_destroy(&barrier->released);
    pthread_mutex_destroy(&barrier->mutex);
}

static void release_all(struct nj_barrier *barrier, unsigned generation)
{
    atomic_store(&barrier->arrived, 0);
    pthread_mutex_lock(&barrier->mutex); /* a thread that is about to sleep has seen the old generation under it */
    atomic_store(&barrier->generation, generation + 1);
    pthread_mutex_unlock(&barrier->mutex);
    pthread_cond_broadcast(&barrier->released);
}

void barrier_wait(struct nj_barrier *barrier, unsigned threads)
{
    if (threads == 1)
        return;
    unsigned generation = atomic_load(&barrier->generation);
    if (atomic_fetch_add(&barrier->arrived, 1) + 1 == threads) {
        release_all(barrier, generation);
        return;
    }
    for (int i = 0; i < SPINS; i++) {
        if (atomic_load(&barrier->generation) != generation)
            return;
        _mm_pause();
    }
    pthread_mutex_lock(&barrier->mutex);
    while (atomic_load(&barrier->generation) == generation)
        pthread_cond_wait(&barrier->released, &barrier->mutex);
    pthread_mutex_unlock(&barrier->mutex);
}
