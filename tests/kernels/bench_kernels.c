/* Rates of the kernels on this machine, as shares of a peak measured in the same run.
 * Usage: bench_kernels [TOKENS [ROWS [COLS]]] */
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/elementary.h"
#include "kernels/peak.h"
#include "tests/kernels/kernel_test.h"

enum { REPEATS = 5 };

static double measure_seconds(const struct nj_cpu_kernels *kernels, enum nj_operation operation,
                              const union nj_operation_args *args)
{
    double best = 1e30;
    for (int repeat = 0; repeat < REPEATS; repeat++) {
        double start = omp_get_wtime();
#pragma omp parallel
        kernels->run[operation](args, omp_get_thread_num(), omp_get_num_threads());
        double seconds = omp_get_wtime() - start;
        best = seconds < best ? seconds : best;
    }
    return best;
}

static void bench_matmul(const struct nj_cpu_kernels *kernels, int64_t count, int64_t rows, int64_t cols, double peak)
{
    struct nj_test_random random = {1};
    float *x = test_random_floats(&random, count * cols, -1.0f, 1.0f);
    float *y = test_allocate((size_t)(count * rows) * sizeof *y);
    struct nj_q8 q8 = test_quantize(x, count, cols);
    for (int kind = 0; kind < NJ_KIND_COUNT; kind++) {
        struct nj_matrix w = test_random_matrix(&random, (enum nj_matrix_kind)kind, rows, cols, NJ_TEST_ORDINARY);
        union nj_operation_args args = {.matmul = {.x = {.f32 = x, .q8 = q8},
                                                   .count = count,
                                                   .outputs = 1,
                                                   .output[0] = {.w = w, .y = y, .y_stride = rows}}};
        double seconds = measure_seconds(kernels, NJ_OP_MATMUL, &args);
        double tops = 2.0 * (double)count * (double)rows * (double)cols / seconds * 1e-12;
        printf("%-9s matmul %-8s %4lld tokens %6.4f TOPS %5.1f %% of peak\n", kernels->name,
               matrix_kind_info((enum nj_matrix_kind)kind)->name, (long long)count, tops, 100.0 * tops / peak);
        free((void *)w.data);
    }
    test_free_q8(&q8);
    free(y);
    free(x);
}

static void bench_attention(const struct nj_cpu_kernels *kernels, int64_t count)
{
    enum { HEADS = 9, KV_HEADS = 3, WIDTH = 64, POSITIONS = 512, BLOCKS = POSITIONS / NJ_KV_BLOCK_TOKENS };
    struct nj_test_random random = {2};
    int64_t stride = KV_HEADS * 2 * WIDTH * NJ_KV_BLOCK_TOKENS * 2;
    uint16_t *cache = test_allocate(BLOCKS * (size_t)stride);
    for (int64_t i = 0; i < BLOCKS * stride / 2; i++)
        cache[i] = elementary_half_from_float(random_uniform(&random, -1.0f, 1.0f));
    float *q = test_random_floats(&random, count * HEADS * WIDTH, -1.0f, 1.0f);
    float *out = test_allocate((size_t)(count * HEADS * WIDTH) * sizeof *out);
    int32_t *position = test_allocate((size_t)count * sizeof *position);
    int32_t *sequence = calloc((size_t)count, sizeof *sequence);
    int32_t blocks[BLOCKS];
    for (int32_t i = 0; i < BLOCKS; i++)
        blocks[i] = i;
    for (int64_t t = 0; t < count; t++)
        position[t] = POSITIONS - 1;
    union nj_operation_args args = {.attention = {.batch = {.count = count,
                                                            .position = position,
                                                            .sequence = sequence,
                                                            .blocks = blocks,
                                                            .blocks_stride = BLOCKS},
                                                  .heads = HEADS,
                                                  .scale = 0.125f,
                                                  .q = q,
                                                  .out = out,
                                                  .kv = {.type = NJ_KV_F16,
                                                         .base = (char *)cache,
                                                         .block_stride_bytes = stride,
                                                         .kv_heads = KV_HEADS,
                                                         .head_width = WIDTH}}};
    double seconds = measure_seconds(kernels, NJ_OP_ATTENTION, &args);
    printf("%-9s attention %lld tokens at %d: %.2f GFLOPS\n", kernels->name, (long long)count, POSITIONS,
           4.0 * (double)count * HEADS * WIDTH * POSITIONS / seconds * 1e-9);
    free(sequence);
    free(position);
    free(out);
    free(q);
    free(cache);
}

int main(int argc, char **argv)
{
    int64_t count = argc > 1 ? atoll(argv[1]) : 96;
    int64_t rows = argc > 2 ? atoll(argv[2]) : 1536;
    int64_t cols = argc > 3 ? atoll(argv[3]) : 1536;
    const struct nj_cpu_kernels *kernels;
    for (size_t i = 0; (kernels = cpu_kernels_at(i)) != NULL; i++) {
        if (!cpu_kernels_runnable(kernels)) {
            printf("skipped: %s\n", kernels->name);
            continue;
        }
        const struct nj_peak_mix *mix = peak_mix_of(kernels);
        double peak = peak_measure_operations(mix, omp_get_max_threads()) * 1e-12;
        printf("peak (%s), %d threads: %.4f TOPS\n", mix->name, omp_get_max_threads(), peak);
        bench_matmul(kernels, count, rows, cols, peak);
        bench_attention(kernels, count);
    }
    return 0;
}
