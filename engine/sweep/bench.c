#include "engine/sweep/bench.h"

#include <stdbool.h>
#include <string.h>
#include <time.h>

/* What keys and values are filled with: two of them are a half of about 0.07, four a tiny float32. */
enum { KV_FILL = 0x2c, TOKEN_STRIDE = 7919 };

/* A cache with the forward pass over it, every sequence with all the blocks it may need. */
struct bench {
    const struct nj_model *model;
    const struct nj_bench_options *options;
    struct nj_device *device;
    struct nj_kv_cache *cache;
    struct nj_forward *forward;
    int32_t sequences;
    int64_t blocks_per_sequence;
};

static double now_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void ignore_logits(void *context, int32_t logit_index, const float *logits, const struct nj_logit_stats *stats)
{
    (void)context, (void)logit_index, (void)logits, (void)stats;
}

static void bench_close(struct bench *bench)
{
    forward_destroy(bench->forward);
    kv_cache_destroy(bench->cache);
}

static int bench_open(struct bench *bench, const struct nj_model *model, struct nj_device *device,
                      const struct nj_bench_options *options, int32_t sequences, int32_t positions,
                      struct nj_error *error)
{
    const int64_t blocks = kv_blocks_for_tokens(positions);
    const struct nj_forward_options forward_options = {
        .token_budget = options->token_budget, .sequences = sequences, .blocks_per_sequence = blocks};
    *bench = (struct bench){
        .model = model, .options = options, .device = device, .sequences = sequences, .blocks_per_sequence = blocks};
    if (options->token_budget < 1 || sequences < 1 || positions < 1)
        return error_set(error, NJ_INTERNAL, "nothing to measure");
    bench->cache = kv_cache_create(device, &model->shape, options->kv_type, sequences * blocks, error);
    if (bench->cache == NULL)
        return -1;
    bench->forward = forward_create(model, device, bench->cache, &forward_options, error);
    if (bench->forward == NULL) {
        bench_close(bench);
        return -1;
    }
    for (int64_t i = 0; i < sequences * blocks; i++)
        forward_batch(bench->forward)->blocks[i] = block_pool_take(kv_cache_blocks(bench->cache));
    /* Pages that were never written would all be the one page of zeros, which no cache misses. */
    memset(kv_cache_layer(bench->cache, 0).base, KV_FILL,
           (size_t)(sequences * blocks) * kv_block_bytes(&model->shape, options->kv_type));
    return 0;
}

static void add_row(struct bench *bench, int32_t sequence, int32_t position, bool has_logits)
{
    struct nj_forward_batch *batch = forward_batch(bench->forward);
    const int32_t row = batch->count++;
    batch->token[row] = (int32_t)((int64_t)(position + 31 * sequence) * TOKEN_STRIDE % bench->model->shape.vocabulary);
    batch->position[row] = position;
    batch->sequence[row] = sequence;
    if (has_logits)
        batch->logit_row[batch->logit_count++] = row;
}

/* Runs the batch and empties it. As in the middle of a job, layers on disk are read for a sweep to come. */
static int run_sweep(struct bench *bench, struct nj_error *error)
{
    struct nj_forward_batch *batch = forward_batch(bench->forward);
    batch->another_follows = true;
    const int status = forward_run(bench->forward, ignore_logits, NULL, bench->options->stop, error);
    batch->count = batch->logit_count = 0;
    return status;
}

static int read_prompts(struct bench *bench, int32_t tokens, struct nj_error *error)
{
    const struct nj_forward_batch *batch = forward_batch(bench->forward);
    for (int32_t sequence = 0; sequence < bench->sequences; sequence++) {
        for (int32_t position = 0; position < tokens; position++) {
            add_row(bench, sequence, position, position == tokens - 1);
            if (batch->count == bench->options->token_budget && run_sweep(bench, error) != 0)
                return -1;
        }
    }
    return batch->count == 0 ? 0 : run_sweep(bench, error);
}

static int decode_step(struct bench *bench, int32_t position, struct nj_error *error)
{
    for (int32_t sequence = 0; sequence < bench->sequences; sequence++)
        add_row(bench, sequence, position, true);
    return run_sweep(bench, error);
}

/* The first step touches what no step has touched yet: it is not counted. */
static int time_prefill(struct bench *bench, int32_t tokens, struct nj_bench_result *out, struct nj_error *error)
{
    add_row(bench, 0, 0, true);
    if (run_sweep(bench, error) != 0)
        return -1;
    device_time_launches(bench->device, &out->times);
    const double start = now_seconds();
    do {
        if (read_prompts(bench, tokens, error) != 0)
            return -1;
        out->repeats++;
        out->tokens += (int64_t)bench->sequences * tokens;
        out->seconds = now_seconds() - start;
    } while (out->seconds < bench->options->seconds);
    return 0;
}

static int time_decode(struct bench *bench, int32_t context, struct nj_bench_result *out, struct nj_error *error)
{
    if (decode_step(bench, context, error) != 0)
        return -1;
    device_time_launches(bench->device, &out->times);
    const double start = now_seconds();
    for (int32_t step = 1; step <= NJ_BENCH_STEPS && (step <= 2 || out->seconds < bench->options->seconds); step++) {
        if (decode_step(bench, context + step, error) != 0)
            return -1;
        out->repeats++;
        out->tokens += bench->sequences;
        out->seconds = now_seconds() - start;
    }
    return 0;
}

int bench_prefill(const struct nj_model *model, struct nj_device *device, const struct nj_bench_options *options,
                  int32_t sequences, int32_t tokens, struct nj_bench_result *out, struct nj_error *error)
{
    struct bench bench;
    *out = (struct nj_bench_result){0};
    if (bench_open(&bench, model, device, options, sequences, tokens, error) != 0)
        return -1;
    const int status = time_prefill(&bench, tokens, out, error);
    device_time_launches(device, NULL);
    bench_close(&bench);
    return status;
}

int bench_decode(const struct nj_model *model, struct nj_device *device, const struct nj_bench_options *options,
                 int32_t sequences, int32_t context, struct nj_bench_result *out, struct nj_error *error)
{
    struct bench bench;
    *out = (struct nj_bench_result){0};
    if (sequences > options->token_budget)
        return error_set(error, NJ_INTERNAL, "more sequences than rows of a sweep");
    if (bench_open(&bench, model, device, options, sequences, context + NJ_BENCH_STEPS + 1, error) != 0)
        return -1;
    const int status = time_decode(&bench, context, out, error);
    device_time_launches(device, NULL);
    bench_close(&bench);
    return status;
}
