#include "tests/emulator/cuda_tables.h"

#include <stdio.h>
#include <stdlib.h>

#include "kernels/cuda/launch.h"
#include "tests/emulator/emulator.h"
#include "tests/kernels/kernel_test.h"

typedef void (*cuda_kernel)(const void *args);

void cuda_matmul_many_u4_zero8(const void *args);
void cuda_matmul_many_u4_min(const void *args);
void cuda_matmul_many_u4_super(const void *args);
void cuda_matmul_few_u4_zero8(const void *args);
void cuda_matmul_few_u4_min(const void *args);
void cuda_matmul_few_u4_super(const void *args);
void cuda_attention_q8(const void *args);
void cuda_attention_f16(const void *args);

/* A matrix product's kernels by kind, and what a block makes. */
struct product {
    cuda_kernel kernel[NJ_KIND_COUNT];
    int64_t rows, tokens;
};

static const struct product many = {.kernel = {[NJ_KIND_U4_ZERO8] = cuda_matmul_many_u4_zero8,
                                               [NJ_KIND_U4_MIN] = cuda_matmul_many_u4_min,
                                               [NJ_KIND_U4_SUPER] = cuda_matmul_many_u4_super},
                                    .rows = NJ_CUDA_MANY_ROWS,
                                    .tokens = NJ_CUDA_MANY_TOKENS};
static const struct product few = {.kernel = {[NJ_KIND_U4_ZERO8] = cuda_matmul_few_u4_zero8,
                                              [NJ_KIND_U4_MIN] = cuda_matmul_few_u4_min,
                                              [NJ_KIND_U4_SUPER] = cuda_matmul_few_u4_super},
                                   .rows = NJ_CUDA_FEW_ROWS,
                                   .tokens = NJ_CUDA_FEW_TOKENS};

/* What has no CUDA kernel is done by the fastest table, which has tests of its own: it takes the least time. */
static const struct nj_cpu_kernels *rest(void)
{
    const struct nj_cpu_kernels *fastest = cpu_kernels_find("auto");
    return fastest != NULL ? fastest : test_reference();
}

static void launch(struct emulator_launch launch)
{
    static unsigned launches;
    launch.order = (enum emulator_order)(launches++ % EMULATOR_ORDERS);
    const char *fault = emulator_run(&launch);
    if (fault != NULL) {
        fprintf(stderr, "emulator: %s\n", fault);
        abort();
    }
}

static void run_output(const struct product *product, const struct nj_matmul_args *a, int index)
{
    const struct nj_matmul_output *output = &a->output[index];
    cuda_kernel kernel = a->x.q8.q != NULL ? product->kernel[output->w.kind] : NULL;
    if (kernel == NULL) {
        union nj_operation_args args = {.matmul = *a};
        args.matmul.outputs = 1;
        args.matmul.output[0] = *output;
        test_run(rest(), NJ_OP_MATMUL, &args, 1);
        return;
    }
    struct nj_cuda_matmul_args args = {.x = a->x.q8, .count = a->count, .output = *output};
    launch((struct emulator_launch){.kernel = kernel,
                                    .args = &args,
                                    .grid_x = (output->w.rows + product->rows - 1) / product->rows,
                                    .grid_y = (a->count + product->tokens - 1) / product->tokens,
                                    .threads = NJ_CUDA_MATMUL_THREADS});
}

/* A launch is whole: it is the first thread's share. */
static void run_product(const struct product *product, const struct nj_matmul_args *a, int thread)
{
    for (int i = 0; i < a->outputs && thread == 0; i++)
        run_output(product, a, i);
}

static void run_many(const union nj_operation_args *args, int thread, int threads)
{
    (void)threads;
    run_product(&many, &args->matmul, thread);
}

static void run_few(const union nj_operation_args *args, int thread, int threads)
{
    (void)threads;
    run_product(&few, &args->matmul, thread);
}

static void run_attention(const union nj_operation_args *args, int thread, int threads)
{
    const struct nj_attention_args *a = &args->attention;
    if (a->kv.type == NJ_KV_F32) {
        rest()->run[NJ_OP_ATTENTION](args, thread, threads);
        return;
    }
    if (thread != 0)
        return;
    launch((struct emulator_launch){.kernel = a->kv.type == NJ_KV_Q8 ? cuda_attention_q8 : cuda_attention_f16,
                                    .args = a,
                                    .grid_x = a->kv.kv_heads * NJ_CUDA_HEAD_GROUPS(a->heads, a->kv.kv_heads),
                                    .grid_y = a->batch.count,
                                    .threads = NJ_CUDA_ATTENTION_THREADS});
}

static struct nj_cpu_kernels make_table(const char *name, enum nj_operation operation, nj_cpu_kernel run)
{
    struct nj_cpu_kernels table = *rest();
    table.name = name;
    table.run[operation] = run;
    return table;
}

const struct nj_cpu_kernels *cuda_table_many(void)
{
    static struct nj_cpu_kernels table;
    table = make_table("cuda-many, emulated", NJ_OP_MATMUL, run_many);
    return &table;
}

const struct nj_cpu_kernels *cuda_table_few(void)
{
    static struct nj_cpu_kernels table;
    table = make_table("cuda-few, emulated", NJ_OP_MATMUL, run_few);
    return &table;
}

const struct nj_cpu_kernels *cuda_table_attention(void)
{
    static struct nj_cpu_kernels table;
    table = make_table("cuda-attention, emulated", NJ_OP_ATTENTION, run_attention);
    return &table;
}
