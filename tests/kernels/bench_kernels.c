/* Rates of the kernels on this machine, as shares of a peak measured in the same run.
 * Usage: bench_kernels [TOKENS [ROWS [COLS]]] */
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/elementary.h"
#include "kernels/kv_block.h"
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

/* Random keys and values: any halves below 2 in magnitude, or any bytes with the scales of such numbers. */
static void fill_cache(struct nj_test_random *random, const struct nj_kv_layer *kv, int64_t blocks)
{
    for (int64_t block = 0; block < blocks; block++) {
        char *part = kv->base + block * kv->block_stride_bytes;
        for (int64_t i = 0; i < kv->block_stride_bytes / 2; i++)
            ((uint16_t *)part)[i] = elementary_half_from_float(random_uniform(random, -1.0f, 1.0f));
        for (int64_t head = 0; kv->type == NJ_KV_Q8 && head < kv->kv_heads; head++) {
            struct nj_kv_q8_head stored = kv_q8_head(part, kv->head_width, head);
            for (int64_t i = 0; i < kv_q8_groups(kv->head_width) * NJ_KV_BLOCK_TOKENS; i++)
                stored.key_scales[i] = 0.01f;
            for (int64_t i = 0; i < NJ_KV_BLOCK_TOKENS; i++)
                stored.value_scales[i] = 0.01f;
        }
    }
}

/* Tokens at the end of 512 positions: of one sequence, as in a chunk of a prompt, or of one sequence each. */
static void bench_attention(const struct nj_cpu_kernels *kernels, int64_t count, enum nj_kv_type type, int is_chunk)
{
    enum { HEADS = 9, KV_HEADS = 3, WIDTH = 64, POSITIONS = 512, BLOCKS = POSITIONS / NJ_KV_BLOCK_TOKENS };
    struct nj_test_random random = {2};
    const struct nj_kv_layer kv = {.type = type,
                                   .block_stride_bytes = KV_HEADS * kv_head_bytes(type, WIDTH),
                                   .base = test_allocate(BLOCKS * (size_t)(KV_HEADS * kv_head_bytes(type, WIDTH))),
                                   .kv_heads = KV_HEADS,
                                   .head_width = WIDTH};
    fill_cache(&random, &kv, BLOCKS);
    float *q = test_random_floats(&random, count * HEADS * WIDTH, -1.0f, 1.0f);
    float *out = test_allocate((size_t)(count * HEADS * WIDTH) * sizeof *out);
    int32_t *position = test_allocate((size_t)count * sizeof *position);
    int32_t *sequence = test_allocate((size_t)count * sizeof *sequence);
    int32_t *blocks = test_allocate((size_t)count * BLOCKS * sizeof *blocks);
    for (int64_t i = 0; i < count * BLOCKS; i++)
        blocks[i] = (int32_t)(i % BLOCKS);
    for (int64_t t = 0; t < count; t++) {
        position[t] = POSITIONS - 1;
        sequence[t] = is_chunk ? 0 : (int32_t)t;
    }
    union nj_operation_args args = {.attention = {.batch = {.count = count,
                                                            .position = position,
                                                            .sequence = sequence,
                                                            .blocks = blocks,
                                                            .blocks_stride = BLOCKS},
                                                  .heads = HEADS,
                                                  .scale = 0.125f,
                                                  .q = q,
                                                  .out = out,
                                                  .kv = kv}};
    double seconds = measure_seconds(kernels, NJ_OP_ATTENTION, &args);
    printf("%-9s attention %s %lld tokens at %d, %s: %.2f GFLOPS\n", kernels->name, type == NJ_KV_Q8 ? "q8 " : "f16",
           (long long)count, POSITIONS, is_chunk ? "one sequence" : "each its own",
           4.0 * (double)count * HEADS * WIDTH * POSITIONS / seconds * 1e-9);
    free(blocks);
    free(sequence);
    free(position);
    free(out);
    free(q);
    free(kv.base);
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
        for (int is_chunk = 0; is_chunk <= 1; is_chunk++) {
            bench_attention(kernels, count, NJ_KV_F16, is_chunk);
            bench_attention(kernels, count, NJ_KV_Q8, is_chunk);
        }
    }
    return 0;
}
