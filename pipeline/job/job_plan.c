#include "pipeline/job/job_plan.h"

#include <inttypes.h>
#include <stdlib.h>

#include "engine/model/model_facts.h"
#include "pipeline/job/job_state.h"
#include "pipeline/machine/machine.h"

static int32_t length_of(const struct nj_index_entry *entry)
{
    return (int32_t)(entry->prompt_tokens + entry->max_new_tokens);
}

/* The job's sequences, but no more than `most`. */
static int32_t count_sequences(const struct nj_plan_facts *facts, int32_t most)
{
    int64_t sequences = 0;
    for (uint32_t i = 0; i < facts->order->count && sequences < most; i++)
        sequences += index_entry_samples(index_at(facts->index, facts->order->position[i]));
    return sequences < most ? (int32_t)sequences : most;
}

/* Blocks that the longest `sequences` sequences take if all run to their limit and share nothing: never more are
 * needed. The order does not tell which these are, so they are counted by their blocks. -1: no memory. */
static int64_t most_useful_blocks(const struct nj_plan_facts *facts, int32_t sequences, int32_t longest)
{
    const int64_t most = scheduler_least_blocks(longest);
    uint64_t *counts = calloc((size_t)most + 1, sizeof *counts);
    if (counts == NULL)
        return -1;
    for (uint32_t i = 0; i < facts->order->count; i++) {
        const struct nj_index_entry *entry = index_at(facts->index, facts->order->position[i]);
        counts[scheduler_least_blocks(length_of(entry))] += index_entry_samples(entry);
    }
    int64_t left = sequences, useful = 0;
    for (int64_t blocks = most; blocks > 0 && left > 0; blocks--) {
        const int64_t count = counts[blocks] < (uint64_t)left ? (int64_t)counts[blocks] : left;
        useful += count * blocks;
        left -= count;
    }
    free(counts);
    return useful;
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
 * leave free. */
static int plan_kv(const struct nj_plan_facts *facts, struct nj_scheduler_options *plan, struct nj_error *error)
{
    uint64_t given = facts->kv_memory_bytes;
    uint64_t block_bytes = kv_block_bytes(facts->shape, plan->kv_type);
    int64_t least = scheduler_least_blocks(plan->longest_sequence);
    int64_t useful = most_useful_blocks(facts, plan->most_sequences, plan->longest_sequence);
    if (useful < 0)
        return error_set(error, NJ_INTERNAL, "out of memory");
    uint64_t free_bytes =
        facts->available_bytes > facts->weights_bytes ? facts->available_bytes - facts->weights_bytes : 0;
    uint64_t blocks = (given > 0 ? given : free_bytes / 2) / block_bytes;
    if (given > 0 && blocks < (uint64_t)least)
        return fail_kv_memory(least, block_bytes, plan->longest_sequence, given, error);
    if (blocks < (uint64_t)least)
        blocks = (uint64_t)least;
    if (blocks > (uint64_t)useful)
        blocks = (uint64_t)useful;
    plan->kv_blocks = (int64_t)blocks;
    return 0;
}

int plan_find_kv_type(const char *name, enum nj_kv_type *out, struct nj_error *error)
{
    if (kv_type_find(name, out) == 0)
        return 0;
    return error_set(error, NJ_BAD_DATA, "KV type \"%.100s\" is not known; it is f16 or q8", name);
}

int plan_make(const struct nj_plan_facts *facts, struct nj_plan *out, struct nj_error *error)
{
    const struct nj_order *order = facts->order;
    int32_t budget = facts->token_budget > 0 ? facts->token_budget : NJ_DEFAULT_TOKEN_BUDGET;
    struct nj_scheduler_options *plan = &out->scheduler;
    *plan = (struct nj_scheduler_options){.token_budget = budget,
                                          .longest_sequence = length_of(index_at(facts->index, order->position[0])),
                                          .most_sequences = count_sequences(facts, budget),
                                          .kv_type = facts->kv_type};
    if (plan_kv(facts, plan, error) != 0)
        return -1;
    const uint64_t block_bytes = kv_block_bytes(facts->shape, plan->kv_type);
    out->need = (struct nj_memory_need){.weights_bytes = facts->weights_bytes,
                                        .kv_bytes = (uint64_t)plan->kv_blocks * block_bytes,
                                        .least_kv_bytes =
                                            (uint64_t)scheduler_least_blocks(plan->longest_sequence) * block_bytes,
                                        .token_budget = plan->token_budget,
                                        .longest_sequence = plan->longest_sequence};
    out->need.other_bytes = scheduler_bytes(facts->shape, plan) - out->need.kv_bytes;
    return memory_need_check(&out->need, facts->available_bytes, error);
}

int job_plan(struct nj_job *job, struct nj_scheduler_options *plan, struct nj_error *error)
{
    struct nj_plan_facts facts = {.shape = &job->model->shape,
                                  .kv_type = job->kv_type,
                                  .weights_bytes =
                                      job->model->weights == NULL ? model_tensor_bytes(job->model->gguf) : 0,
                                  .index = job->index,
                                  .order = &job->order,
                                  .token_budget = job->options->token_budget,
                                  .kv_memory_bytes = job->options->kv_memory_bytes,
                                  .available_bytes = machine_read("").memory_available_bytes};
    struct nj_plan made;
    if (plan_make(&facts, &made, error) != 0)
        return -1;
    *plan = made.scheduler;
    plan->cancel = job->stop;
    return 0;
}
