/* Rates of the kernels on this machine, as shares of peaks measured in the same run.
 * Usage: bench_kernels [--models | --attention | --few | --threads | --reference | TOKENS [ROWS [COLS]]]
 * Without arguments: every kind at several numbers of tokens. --models: the matrices of two real models;
 * --attention: attention alone; --few: few tokens on weights that come from memory, beside the rate at which memory can
 * be read; --threads: what all threads gain over one, beside what the peak gains.
 * OMP_NUM_THREADS sets the number of threads. Times are the best of many short runs: on a machine that others use, too,
 * one thread then still gives true rates, because a run fits into a time slice. */
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/kv_block.h"
#include "kernels/peak.h"
#include "tests/kernels/kernel_test.h"

enum { LEAST_REPEATS = 5, PEAK_STEPS = 20000, STEP_OPERATIONS = 2 * NJ_GROUP_COLS * 8 };

static const double measuring_seconds = 0.3;

/* How products are summed. The first is the mix of the table's own peak (kernels/peak.h); the others are what a group
 * of 32 columns and 8 rows takes at least with AVX2 only. VNNI has one mix for all integers but attention's. */
enum mix { MIX_WHOLE, MIX_HALVES, MIX_SIGNED, MIX_PAIRS, MIX_FLOAT, MIX_COUNT };

#define NJ_PRODUCT(to) "vpmaddubsw %%ymm0,%%ymm1,%%ymm" #to "\n"
#define NJ_TWO_PRODUCTS NJ_PRODUCT(12) "vpaddw %%ymm12,%%ymm8,%%ymm8\n" NJ_PRODUCT(13) "vpaddw %%ymm13,%%ymm9,%%ymm9\n"
#define NJ_WIDEN(from, to)                                                                                             \
    "vpmaddwd %%ymm2,%%ymm" #from ",%%ymm" #from "\n vpaddd %%ymm" #from ",%%ymm" #to ",%%ymm" #to "\n"
#define NJ_WIDENED(to, sum) NJ_PRODUCT(to) NJ_WIDEN(to, sum)
#define NJ_TWO_WIDENED NJ_WIDENED(8, 3) NJ_WIDENED(9, 4)
#define NJ_PAIR(to, sum) "vpmaddwd %%ymm0,%%ymm1,%%ymm" #to "\n vpaddd %%ymm" #to ",%%ymm" #sum ",%%ymm" #sum "\n"
#define NJ_FOUR_PAIRS NJ_PAIR(8, 3) NJ_PAIR(9, 4) NJ_PAIR(12, 5) NJ_PAIR(13, 6)
#define NJ_TWO_FMA "vfmadd231ps %%ymm0,%%ymm1,%%ymm3\n vfmadd231ps %%ymm0,%%ymm1,%%ymm4\n"
#define NJ_EIGHT_FMA                                                                                                   \
    NJ_TWO_FMA "vfmadd231ps %%ymm0,%%ymm1,%%ymm5\n vfmadd231ps %%ymm0,%%ymm1,%%ymm6\n"                                 \
               "vfmadd231ps %%ymm0,%%ymm1,%%ymm8\n vfmadd231ps %%ymm0,%%ymm1,%%ymm9\n"                                 \
               "vfmadd231ps %%ymm0,%%ymm1,%%ymm12\n vfmadd231ps %%ymm0,%%ymm1,%%ymm13\n"
#define NJ_REPEAT(body)                                                                                                \
    for (int64_t i = 0; i < steps; i++)                                                                                \
    __asm__ volatile(body ::: "ymm3", "ymm4", "ymm5", "ymm6", "ymm8", "ymm9", "ymm12", "ymm13")

static void run_halves(int64_t steps)
{
    NJ_REPEAT(NJ_PRODUCT(8) NJ_PRODUCT(9) NJ_TWO_PRODUCTS NJ_TWO_PRODUCTS NJ_TWO_PRODUCTS NJ_WIDEN(8, 3)
                  NJ_WIDEN(9, 4));
}

static void run_signed(int64_t steps)
{
    NJ_REPEAT(NJ_TWO_WIDENED NJ_TWO_WIDENED NJ_TWO_WIDENED NJ_TWO_WIDENED);
}

static void run_pairs(int64_t steps)
{
    NJ_REPEAT(NJ_FOUR_PAIRS NJ_FOUR_PAIRS NJ_FOUR_PAIRS NJ_FOUR_PAIRS);
}

static void run_float(int64_t steps)
{
    NJ_REPEAT(NJ_EIGHT_FMA NJ_EIGHT_FMA NJ_EIGHT_FMA NJ_EIGHT_FMA);
}

static const struct nj_peak_mix *find_mix(const struct nj_cpu_kernels *kernels, enum mix mix)
{
    static const struct nj_peak_mix others[MIX_COUNT] = {
        [MIX_HALVES] = {"5 and 6 bits, 16 columns in int16", STEP_OPERATIONS, run_halves},
        [MIX_SIGNED] = {"8 bits, widened at once", STEP_OPERATIONS, run_signed},
        [MIX_PAIRS] = {"8 bits by int16", STEP_OPERATIONS, run_pairs},
        [MIX_FLOAT] = {"float", STEP_OPERATIONS, run_float},
    };
    const struct nj_peak_mix *own = peak_mix_of(kernels);
    const int has_one_mix = own != peak_mix_of(test_reference()); /* whose mix is that of AVX2 */
    return mix == MIX_WHOLE || (has_one_mix && mix != MIX_FLOAT && mix != MIX_PAIRS) ? own : &others[mix];
}

/* Runs a job on some threads over and over; returns the seconds of the fastest run. */
static double measure_seconds_on(int threads, void (*job)(void *context), void *context)
{
    double best = 1e30, begin = omp_get_wtime();
    for (int repeat = 0; repeat < LEAST_REPEATS || omp_get_wtime() - begin < measuring_seconds; repeat++) {
        double start = omp_get_wtime();
#pragma omp parallel num_threads(threads)
        job(context);
        double seconds = omp_get_wtime() - start;
        best = seconds < best ? seconds : best;
    }
    return best;
}

static double measure_seconds(void (*job)(void *context), void *context)
{
    return measure_seconds_on(omp_get_max_threads(), job, context);
}

static void run_mix_job(void *context)
{
    const struct nj_peak_mix *mix = context;
    mix->run(PEAK_STEPS);
}

static double measure_peak_tops(const struct nj_peak_mix *mix)
{
    double seconds = measure_seconds(run_mix_job, (void *)mix);
    return mix->operations_per_step * PEAK_STEPS * omp_get_max_threads() / seconds * 1e-12;
}

static enum mix mix_of(enum nj_matrix_kind kind)
{
    if (matrix_kind_info(kind)->is_float)
        return MIX_FLOAT;
    if (kind == NJ_KIND_S8)
        return MIX_SIGNED;
    const int is_wide = kind == NJ_KIND_U5_MIN || kind == NJ_KIND_U5_SUPER || kind == NJ_KIND_U6_SUPER;
    return is_wide ? MIX_HALVES : MIX_WHOLE;
}

struct launch {
    const struct nj_cpu_kernels *kernels;
    enum nj_operation operation;
    union nj_operation_args args;
};

static void run_launch(void *context)
{
    const struct launch *launch = context;
    launch->kernels->run[launch->operation](&launch->args, omp_get_thread_num(), omp_get_num_threads());
}

/* Products of random weights and tokens. */
struct product {
    struct launch launch;
    double operations, weight_bytes;
};

/* The weights are the caller's. */
static struct product make_product(const struct nj_cpu_kernels *kernels, const struct nj_matrix *w, int64_t count)
{
    struct nj_test_random random = {1};
    float *x = test_random_floats(&random, count * w->cols, -1.0f, 1.0f);
    struct nj_matmul_args args = {
        .x = {.f32 = x, .q8 = test_quantize(x, count, w->cols)},
        .count = count,
        .outputs = 1,
        .output[0] = {.w = *w, .y = test_allocate((size_t)(count * w->rows) * sizeof(float)), .y_stride = w->rows}};
    return (struct product){.launch = {.kernels = kernels, .operation = NJ_OP_MATMUL, .args = {.matmul = args}},
                            .operations = 2.0 * (double)count * (double)w->rows * (double)w->cols,
                            .weight_bytes = (double)matrix_bytes(w->kind, w->rows, w->cols)};
}

static void free_product(struct product *product)
{
    struct nj_matmul_args *args = &product->launch.args.matmul;
    test_free_q8(&args->x.q8);
    free((void *)args->x.f32);
    free(args->output[0].y);
}

static struct nj_matrix make_weights(enum nj_matrix_kind kind, int64_t rows, int64_t cols)
{
    struct nj_test_random random = {3};
    return test_random_matrix(&random, kind, rows, cols, NJ_TEST_ORDINARY);
}

static void bench_matmul(const struct nj_cpu_kernels *kernels, enum nj_matrix_kind kind, int64_t count, int64_t rows,
                         int64_t cols, const double *peaks)
{
    struct nj_matrix w = make_weights(kind, rows, cols);
    struct product product = make_product(kernels, &w, count);
    double seconds = measure_seconds(run_launch, &product.launch);
    double tops = product.operations / seconds * 1e-12;
    printf("%-11s matmul %-9s %6lld x %5lld %4lld tokens %7.4f TOPS %5.1f %% of its peak, %5.1f %% of the 4-bit one, "
           "%5.2f GB/s\n",
           kernels->name, matrix_kind_info(kind)->name, (long long)rows, (long long)cols, (long long)count, tops,
           100.0 * tops / peaks[mix_of(kind)], 100.0 * tops / peaks[MIX_WHOLE], product.weight_bytes / seconds * 1e-9);
    fflush(stdout);
    free_product(&product);
    free((void *)w.data);
}

/* What is compared is measured in turns, the best of each: what else the machine does changes over seconds. */
enum { TURNS = 4 };

static double lesser(double a, double b)
{
    return a < b ? a : b;
}

/* What takes longer limits few tokens: reading the weights, or 70 % of the peak. */
static void bench_few_tokens(const struct nj_cpu_kernels *kernels, const struct nj_matrix *w, int64_t count)
{
    enum { PAGE_BYTES = 4096 };
    struct product product = make_product(kernels, w, count);
    const size_t read_bytes = (size_t)product.weight_bytes / PAGE_BYTES * PAGE_BYTES;
    const struct nj_peak_mix *mix = find_mix(kernels, mix_of(w->kind));
    double seconds = 1e30, reading = 1e30, computing = 1e30;
    for (int turn = 0; turn < TURNS; turn++) {
        double rate = peak_measure_read(w->data, read_bytes, omp_get_max_threads());
        reading = lesser(reading, product.weight_bytes / rate);
        computing = lesser(computing, product.operations / (0.7e12 * measure_peak_tops(mix)));
        seconds = lesser(seconds, measure_seconds(run_launch, &product.launch));
    }
    double bound = reading > computing ? reading : computing;
    printf("%-11s matmul %-9s %lld tokens %6.2f of %6.2f GB/s, %7.4f TOPS: %5.1f %% of what %s allows\n", kernels->name,
           matrix_kind_info(w->kind)->name, (long long)count, product.weight_bytes / seconds * 1e-9,
           product.weight_bytes / reading * 1e-9, product.operations / seconds * 1e-12, 100.0 * bound / seconds,
           reading > computing ? "reading" : "0.7 peak");
    fflush(stdout);
    free_product(&product);
}

/* Weights of several times any cache. */
static void bench_few(const struct nj_cpu_kernels *kernels)
{
    enum { BYTES = 64 << 20, COLS = 1536, MOST_TOKENS = 4 };
    for (int i = 0; i < NJ_KIND_COUNT; i++) {
        const enum nj_matrix_kind kind = (enum nj_matrix_kind)i;
        const int64_t strips = BYTES / (int64_t)matrix_bytes(kind, NJ_STRIP_ROWS, COLS);
        struct nj_matrix w = make_weights(kind, NJ_STRIP_ROWS * strips, COLS);
        for (int64_t count = 1; count <= MOST_TOKENS; count++)
            bench_few_tokens(kernels, &w, count);
        free((void *)w.data);
    }
}

/* The seconds that a job takes on one thread over those on all. */
static double measure_speedup(void (*job)(void *context), void *context)
{
    double one = 1e30, all = 1e30;
    for (int turn = 0; turn < TURNS; turn++) {
        one = lesser(one, measure_seconds_on(1, job, context));
        all = lesser(all, measure_seconds_on(omp_get_max_threads(), job, context));
    }
    return one / all;
}

static void bench_gain(const struct nj_cpu_kernels *kernels, enum nj_matrix_kind kind, int64_t rows, int64_t count)
{
    struct nj_matrix w = make_weights(kind, rows, 1536);
    struct product product = make_product(kernels, &w, count);
    double gain = measure_speedup(run_launch, &product.launch);
    /* every thread runs the whole of it */
    double peak_gain = omp_get_max_threads() * measure_speedup(run_mix_job, (void *)find_mix(kernels, mix_of(kind)));
    printf("%-11s matmul %-9s %5lld rows, %3lld tokens, 1 -> %d threads: %.3f, the peak %.3f: %5.1f %%\n",
           kernels->name, matrix_kind_info(kind)->name, (long long)rows, (long long)count, omp_get_max_threads(), gain,
           peak_gain, 100.0 * gain / peak_gain);
    fflush(stdout);
    free_product(&product);
    free((void *)w.data);
}

/* One token needs weights that do not fit into a cache; many tokens few rows, for short runs. */
static void bench_gains(const struct nj_cpu_kernels *kernels)
{
    static const enum nj_matrix_kind kinds[] = {NJ_KIND_U4_MIN, NJ_KIND_U4_SUPER, NJ_KIND_U6_SUPER, NJ_KIND_S8};
    static const struct {
        int64_t rows, count;
    } shapes[] = {{20000, 1}, {1536, 64}, {1536, 256}};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        for (size_t j = 0; j < sizeof shapes / sizeof shapes[0]; j++)
            bench_gain(kernels, kinds[i], shapes[j].rows, shapes[j].count);
}

/* Heads of a model, and tokens at the end of `positions`: of one sequence, as in a chunk of a prompt, or of one
 * sequence each, as when answers are written. */
struct attention_case {
    int32_t heads, kv_heads, width;
    int64_t positions, tokens;
    int is_chunk;
};

/* Every sequence has blocks of its own: in a chunk there is one, otherwise one for each token. */
static struct nj_token_batch make_batch(const struct attention_case *c)
{
    const int64_t stride = (c->positions + NJ_KV_BLOCK_TOKENS - 1) / NJ_KV_BLOCK_TOKENS;
    const int64_t sequences = c->is_chunk ? 1 : c->tokens;
    int32_t *position = test_allocate((size_t)c->tokens * sizeof *position);
    int32_t *sequence = test_allocate((size_t)c->tokens * sizeof *sequence);
    int32_t *blocks = test_allocate((size_t)(sequences * stride) * sizeof *blocks);
    for (int64_t i = 0; i < sequences * stride; i++)
        blocks[i] = (int32_t)i;
    for (int64_t t = 0; t < c->tokens; t++) {
        position[t] = (int32_t)(c->is_chunk ? c->positions - c->tokens + t : c->positions - 1);
        sequence[t] = c->is_chunk ? 0 : (int32_t)t;
    }
    return (struct nj_token_batch){
        .count = c->tokens, .position = position, .sequence = sequence, .blocks = blocks, .blocks_stride = stride};
}

/* Scores and weighted values: two products of a head's width for each position that a token sees. */
static double attention_operations(const struct attention_case *c, const struct nj_token_batch *batch)
{
    double seen = 0;
    for (int64_t t = 0; t < batch->count; t++)
        seen += batch->position[t] + 1;
    return 4.0 * seen * c->heads * c->width;
}

static void bench_attention(const struct nj_cpu_kernels *kernels, const struct attention_case *c, enum nj_kv_type type,
                            double peak)
{
    struct nj_test_random random = {2};
    const struct nj_token_batch batch = make_batch(c);
    const int64_t blocks = (c->is_chunk ? 1 : c->tokens) * batch.blocks_stride;
    const int64_t block_bytes = c->kv_heads * kv_head_bytes(type, c->width);
    const struct nj_kv_layer kv = {.type = type,
                                   .block_stride_bytes = block_bytes,
                                   .base = test_allocate((size_t)(blocks * block_bytes)),
                                   .kv_heads = c->kv_heads,
                                   .head_width = c->width};
    test_fill_cache(&random, &kv, blocks);
    float *q = test_random_floats(&random, c->tokens * c->heads * c->width, -1.0f, 1.0f);
    float *out = test_allocate((size_t)(c->tokens * c->heads * c->width) * sizeof *out);
    struct launch launch = {
        .kernels = kernels,
        .operation = NJ_OP_ATTENTION,
        .args = {.attention = {.batch = batch, .heads = c->heads, .scale = 0.125f, .q = q, .out = out, .kv = kv}}};
    double seconds = measure_seconds(run_launch, &launch);
    double tops = attention_operations(c, &batch) / seconds * 1e-12;
    printf("%-11s attention %s %2d/%d heads of %3d, %3lld tokens at %4lld, %-12s %7.4f TOPS %5.1f %% of its peak\n",
           kernels->name, type == NJ_KV_Q8 ? "q8 " : "f16", c->heads, c->kv_heads, c->width, (long long)c->tokens,
           (long long)c->positions, c->is_chunk ? "one sequence" : "each its own", tops, 100.0 * tops / peak);
    fflush(stdout);
    free((void *)batch.blocks);
    free((void *)batch.sequence);
    free((void *)batch.position);
    free(out);
    free(q);
    free(kv.base);
}

/* SmolLM2-135M and Qwen2.5-1.5B, and a model whose heads share nothing. */
static void bench_attentions(const struct nj_cpu_kernels *kernels, const double *peaks)
{
    static const struct attention_case cases[] = {
        {9, 3, 64, 256, 256, 1},   {9, 3, 64, 512, 256, 1},  {9, 3, 64, 4096, 64, 1},  {12, 2, 128, 512, 128, 1},
        {12, 2, 128, 2048, 64, 1}, {8, 8, 80, 512, 128, 1},  {9, 3, 64, 200, 1, 0},    {9, 3, 64, 200, 64, 0},
        {9, 3, 64, 2048, 16, 0},   {12, 2, 128, 200, 64, 0}, {12, 2, 128, 4096, 8, 0}, {8, 8, 80, 200, 64, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        bench_attention(kernels, &cases[i], NJ_KV_F16, peaks[MIX_FLOAT]);
        bench_attention(kernels, &cases[i], NJ_KV_Q8, peaks[MIX_PAIRS]);
    }
}

static void bench_kinds(const struct nj_cpu_kernels *kernels, int64_t count, int64_t rows, int64_t cols,
                        const double *peaks)
{
    for (int kind = 0; kind < NJ_KIND_COUNT; kind++)
        bench_matmul(kernels, (enum nj_matrix_kind)kind, count, rows, cols, peaks);
}

/* SmolLM2-135M as Q4_1 and Qwen2.5-1.5B as Q4_K_M. */
static void bench_models(const struct nj_cpu_kernels *kernels, const double *peaks)
{
    static const struct {
        enum nj_matrix_kind kind;
        int64_t rows, cols;
    } matrices[] = {
        {NJ_KIND_U4_MIN, 576, 576},    {NJ_KIND_U4_MIN, 192, 576},     {NJ_KIND_U4_MIN, 1536, 576},
        {NJ_KIND_U4_MIN, 576, 1536},   {NJ_KIND_S8, 49152, 576},       {NJ_KIND_U4_SUPER, 1536, 1536},
        {NJ_KIND_U4_SUPER, 256, 1536}, {NJ_KIND_U4_SUPER, 8960, 1536}, {NJ_KIND_U4_SUPER, 1536, 8960},
        {NJ_KIND_U6_SUPER, 256, 1536}, {NJ_KIND_U6_SUPER, 1536, 8960}, {NJ_KIND_U6_SUPER, 151936, 1536},
    };
    static const int64_t counts[] = {1, 32, 64, 256};
    for (size_t i = 0; i < sizeof matrices / sizeof matrices[0]; i++)
        for (size_t j = 0; j < sizeof counts / sizeof counts[0]; j++)
            if (matrices[i].rows < 20000 || counts[j] <= 64) /* heads see few rows */
                bench_matmul(kernels, matrices[i].kind, counts[j], matrices[i].rows, matrices[i].cols, peaks);
}

static void bench_table(const struct nj_cpu_kernels *kernels, int argc, char **argv)
{
    static const int64_t counts[] = {1, 4, 16, 64, 96, 256};
    double peaks[MIX_COUNT];
    for (int i = 0; i < MIX_COUNT; i++) {
        const struct nj_peak_mix *mix = find_mix(kernels, (enum mix)i);
        peaks[i] = measure_peak_tops(mix);
        printf("peak (%s), %d threads: %.4f TOPS\n", mix->name, omp_get_max_threads(), peaks[i]);
    }
    if (argc > 1 && strcmp(argv[1], "--models") == 0) {
        bench_models(kernels, peaks);
    } else if (argc > 1 && strcmp(argv[1], "--attention") == 0) {
        bench_attentions(kernels, peaks);
    } else if (argc > 1 && strcmp(argv[1], "--few") == 0) {
        bench_few(kernels);
    } else if (argc > 1 && strcmp(argv[1], "--threads") == 0) {
        bench_gains(kernels);
    } else if (argc > 1 && argv[1][0] != '-') {
        bench_kinds(kernels, atoll(argv[1]), argc > 2 ? atoll(argv[2]) : 1536, argc > 3 ? atoll(argv[3]) : 1536, peaks);
    } else {
        for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
            bench_kinds(kernels, counts[i], 1536, 1536, peaks);
        bench_attentions(kernels, peaks);
    }
}

int main(int argc, char **argv)
{
    const int with_reference = argc > 1 && strcmp(argv[1], "--reference") == 0;
    const struct nj_cpu_kernels *kernels;
    for (size_t i = 0; (kernels = cpu_kernels_at(i)) != NULL; i++) {
        if (!cpu_kernels_runnable(kernels))
            printf("skipped: %s\n", kernels->name);
        else if (kernels != test_reference() || with_reference)
            bench_table(kernels, argc, argv);
    }
    return 0;
}
