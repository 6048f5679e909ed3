#include "pipeline/machine/machine_rates.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/peak.h"
#include "pipeline/machine/machine.h"

/* Larger than caches; a part of what is free where that is little. */
enum { READ_BYTES = 256 << 20, LEAST_READ_BYTES = 16 << 20, READ_ALIGNMENT = 4096, SHARE_OF_FREE = 4 };

static double measure_memory(int threads)
{
    uint64_t bytes = machine_read("").memory_available_bytes / SHARE_OF_FREE;
    if (bytes < LEAST_READ_BYTES)
        return 0;
    bytes = bytes < READ_BYTES ? bytes / READ_ALIGNMENT * READ_ALIGNMENT : READ_BYTES;
    void *memory = aligned_alloc(READ_ALIGNMENT, (size_t)bytes);
    if (memory == NULL)
        return 0;
    memset(memory, 1, (size_t)bytes); /* pages that were never written are all the same one */
    double rate = peak_measure_read(memory, (size_t)bytes, threads);
    free(memory);
    return rate;
}

struct nj_machine_rates machine_rates_measure(const struct nj_cpu_kernels *kernels, int threads)
{
    const struct nj_peak_mix *mix = peak_mix_of(kernels);
    struct nj_machine_rates rates = {.memory_bytes_per_second = measure_memory(threads)};
    if (mix != NULL) {
        rates.peak_mix = mix->name;
        rates.peak_operations_per_second = peak_measure_operations(mix, threads);
    }
    return rates;
}
