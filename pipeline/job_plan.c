/* What a job runs with: token budget, sequences, KV blocks, and whether all that fits in memory. */
#include <inttypes.h>

#include "pipeline/job_state.h"
#include "pipeline/machine.h"
#include "pipeline/memory_need.h"

enum { DEFAULT_TOKEN_BUDGET = 256 };

static int32_t length_of(const struct nj_index_entry *entry)
{
    return (int32_t)(entry->prompt_tokens + entry->max_new_tokens);
}

/* Blocks that the longest `sequences` requests take if all run to their limit: never more are needed. */
static int64_t most_useful_blocks(struct nj_job *job, int32_t sequences)
{
    int64_t blocks = 0;
    for (uint32_t i = 0; i < job->order.count && i < (uint32_t)sequences; i++)
        blocks += scheduler_least_blocks(length_of(index_at(job->index, job->order.position[i])));
    return blocks;
}

static int fail_kv_memory(int64_t least_blocks, uint64_t block_bytes, int32_t longest, uint64_t given,
                          struct nj_error *error)
{
    uint64_t least = (uint64_t)least_blocks * block_bytes;
    return error_set(error, NJ_DOES_NOT_FIT,
                     "the KV memory of %" PRIu64 " bytes is too small: the longest request (%" PRId32
                     " tokens, prompt and answer) needs --kv-memory %" PRIu64 "KiB (%" PRIu64 " bytes) at least",
                     given, longest, (least + 1023) >> 10, least);
}

/* Fills in kv_blocks: as the user says, or what the longest sequences need, within half the memory that the weights
 * leave free. `free_bytes` is that memory. */
static int plan_kv(struct nj_job *job, uint64_t free_bytes, struct nj_scheduler_options *plan, struct nj_error *error)
{
    uint64_t given = job->options->kv_memory_bytes;
    uint64_t block_bytes = kv_block_bytes(&job->model->shape, plan->kv_type);
    int64_t least = scheduler_least_blocks(plan->longest_sequence);
    int64_t useful = most_useful_blocks(job, plan->most_sequences);
    uint64_t available = given > 0 ? given : free_bytes / 2;
    uint64_t blocks = available / block_bytes;
    if (given > 0 && blocks < (uint64_t)least)
        return fail_kv_memory(least, block_bytes, plan->longest_sequence, given, error);
    if (blocks < (uint64_t)least)
        blocks = (uint64_t)least;
    if (blocks > (uint64_t)useful)
        blocks = (uint64_t)useful;
    plan->kv_blocks = (int64_t)blocks;
    return 0;
}

/* Bytes of the model's tensors in its file; the pack's differ by a few percent at most. */
static uint64_t weights_bytes_of(const struct nj_model *model)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < gguf_tensor_count(model->gguf); i++)
        bytes += gguf_tensor_at(model->gguf, i)->bytes;
    return bytes;
}

/* `weights_bytes`: what is still to be loaded. */
static int check_memory(const struct nj_job *job, const struct nj_scheduler_options *plan, uint64_t weights_bytes,
                        uint64_t available_bytes, struct nj_error *error)
{
    const struct nj_hyperparameters *shape = &job->model->shape;
    struct nj_memory_need need = {
        .weights_bytes = weights_bytes,
        .kv_bytes = kv_cache_bytes(shape, plan->kv_type, plan->kv_blocks),
        .least_kv_bytes = kv_cache_bytes(shape, plan->kv_type, scheduler_least_blocks(plan->longest_sequence)),
        .token_budget = plan->token_budget,
        .longest_sequence = plan->longest_sequence};
    need.other_bytes = scheduler_bytes(shape, plan) - need.kv_bytes;
    return memory_need_check(&need, available_bytes, error);
}

int job_plan(struct nj_job *job, struct nj_scheduler_options *plan, struct nj_error *error)
{
    int32_t budget = job->options->token_budget > 0 ? job->options->token_budget : DEFAULT_TOKEN_BUDGET;
    *plan = (struct nj_scheduler_options){.token_budget = budget,
                                          .longest_sequence = length_of(index_at(job->index, job->order.position[0])),
                                          .most_sequences =
                                              job->order.count < (uint32_t)budget ? (int32_t)job->order.count : budget,
                                          .kv_type = NJ_KV_F16,
                                          .cancel = job->stop};
    uint64_t weights_bytes = job->model->weights == NULL ? weights_bytes_of(job->model) : 0;
    uint64_t available_bytes = machine_read("").memory_available_bytes;
    uint64_t free_bytes = available_bytes > weights_bytes ? available_bytes - weights_bytes : 0;
    if (plan_kv(job, free_bytes, plan, error) != 0)
        return -1;
    return check_memory(job, plan, weights_bytes, available_bytes, error);
}
