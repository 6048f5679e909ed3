/* What this machine can do at best, to judge kernels by. Each measurement takes a fraction of a second and uses
 * `threads` threads; other work on the machine makes it smaller. */
#ifndef NJ_KERNELS_PEAK_H
#define NJ_KERNELS_PEAK_H

#include "kernels/cpu_kernels.h"

/* The integer instructions that products of 4-bit weights are made of, on registers alone. */
struct nj_peak_mix {
    const char *name;           /* e.g. "avx2, 4-bit products summed in int16" */
    double operations_per_step; /* a multiplication and an addition are two */
    void (*run)(int64_t steps);
};

/* The mix of the instruction set that a table of kernels uses; NULL: none is known. */
const struct nj_peak_mix *peak_mix_of(const struct nj_cpu_kernels *kernels);

/* Operations per second, the best of several runs. */
double peak_measure_operations(const struct nj_peak_mix *mix, int threads);

/* Bytes per second that all threads together read from this memory, which should be larger than the caches and have
 * been written before; the best of several runs. `bytes` is a multiple of 4,096, the address of 64. */
double peak_measure_read(const void *memory, size_t bytes, int threads);

#endif
