/* What this machine does at best, measured in a few seconds. */
#ifndef NJ_PIPELINE_MACHINE_MACHINE_RATES_H
#define NJ_PIPELINE_MACHINE_MACHINE_RATES_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/cpu_kernels.h"

struct nj_disk_rate {
    double bytes_per_second; /* 0: not measured */
    uint64_t bytes;          /* read for it */
    char why_not[1200];      /* one line, if not measured */
};

/* Direct reads, one after another as a pack is read, of the largest pack in the cache directory, or of a temporary
 * file of 128 MiB there (or in the nearest directory above that exists), which is removed. Takes a second or three. */
struct nj_disk_rate disk_rate_measure(const char *cache_directory);

struct nj_machine_rates {
    const char *peak_mix; /* NULL: none is known for these kernels */
    double peak_operations_per_second;
    double memory_bytes_per_second; /* 0: not measured, for want of memory */
};

struct nj_machine_rates machine_rates_measure(const struct nj_cpu_kernels *kernels, int threads);

#endif
