#include "kernels/peak.h"

#include <omp.h>

#include "kernels/avx2/avx2.h"
#include "kernels/reference/reference.h"
#include "kernels/vnni/vnni.h"

enum { REPEATS = 5, STEPS = 2000000, READ_BLOCK_BYTES = 4096 };

static const struct {
    const struct nj_cpu_kernels *kernels;
    const struct nj_peak_mix *mix;
} mixes[] = {
    {&avx512_vnni_kernels, &avx512_vnni_peak_mix},
    {&avx_vnni_kernels, &avx_vnni_peak_mix},
    {&avx2_kernels, &avx2_peak_mix},
    /* Plain C, compiled for a baseline that has AVX2. */
    {&reference_kernels, &avx2_peak_mix},
};

const struct nj_peak_mix *peak_mix_of(const struct nj_cpu_kernels *kernels)
{
    for (size_t i = 0; i < sizeof mixes / sizeof mixes[0]; i++)
        if (mixes[i].kernels == kernels)
            return mixes[i].mix;
    return NULL;
}

double peak_measure_operations(const struct nj_peak_mix *mix, int threads)
{
    double best = 1e30;
    for (int repeat = 0; repeat < REPEATS; repeat++) {
        double start = omp_get_wtime();
#pragma omp parallel num_threads(threads)
        mix->run(STEPS);
        double seconds = omp_get_wtime() - start;
        best = seconds < best ? seconds : best;
    }
    return mix->operations_per_step * STEPS * threads / best;
}

/* Fetched ahead, as the matrix products do: the processor's own fetching stops at the end of every page. */
static uint64_t read_blocks(const uint64_t *from, size_t blocks)
{
    enum { LINE_WORDS = 8, AHEAD_BYTES = 4096 };
    uint64_t sum = 0;
    for (size_t i = 0; i < blocks * (READ_BLOCK_BYTES / sizeof *from); i += LINE_WORDS) {
        __builtin_prefetch((const void *)((uintptr_t)(from + i) + AHEAD_BYTES)); /* may be past the end */
        for (int j = 0; j < LINE_WORDS; j++)
            sum += from[i + j];
    }
    return sum;
}

double peak_measure_read(const void *memory, size_t bytes, int threads)
{
    const uint64_t *from = memory;
    const size_t blocks = bytes / READ_BLOCK_BYTES, block_words = READ_BLOCK_BYTES / sizeof *from;
    double best = 1e30;
    for (int repeat = 0; repeat < REPEATS; repeat++) {
        uint64_t sum = 0;
        double start = omp_get_wtime();
#pragma omp parallel num_threads(threads) reduction(+ : sum)
        {
            size_t thread = (size_t)omp_get_thread_num(), team = (size_t)omp_get_num_threads();
            size_t begin = blocks * thread / team, end = blocks * (thread + 1) / team;
            sum += read_blocks(from + begin * block_words, end - begin);
        }
        double seconds = omp_get_wtime() - start;
        __asm__ volatile("" ::"r"(sum)); /* else nobody would need it */
        best = seconds < best ? seconds : best;
    }
    return (double)(blocks * READ_BLOCK_BYTES) / best;
}
