#include "pipeline/job/memory_need.h"

#include <inttypes.h>

static uint64_t mebibytes(uint64_t bytes)
{
    return (bytes >> 20) + (bytes % (1 << 20) != 0);
}

int memory_need_check(const struct nj_memory_need *need, uint64_t available_bytes, struct nj_error *error)
{
    uint64_t without_kv = need->weights_bytes + need->other_bytes;
    if (without_kv + need->kv_bytes <= available_bytes)
        return 0;
    if (without_kv + need->least_kv_bytes <= available_bytes)
        return error_set(error, NJ_DOES_NOT_FIT,
                         "the job needs %" PRIu64 " MiB of memory and %" PRIu64
                         " MiB are free: give --kv-memory %" PRIu64 "KiB at most (%" PRIu64 "KiB at least)",
                         mebibytes(without_kv + need->kv_bytes), available_bytes >> 20,
                         (available_bytes - without_kv) >> 10, (need->least_kv_bytes + 1023) >> 10);
    return error_set(error, NJ_DOES_NOT_FIT,
                     "the job needs %" PRIu64 " MiB of memory at least (weights %" PRIu64
                     " MiB, keys and values of the longest request, %" PRId32 " tokens, %" PRIu64
                     " MiB, activations of %" PRId32 " tokens %" PRIu64 " MiB) and %" PRIu64
                     " MiB are free: lower --token-budget, take a smaller model or shorter requests, or free memory",
                     mebibytes(without_kv + need->least_kv_bytes), mebibytes(need->weights_bytes),
                     need->longest_sequence, mebibytes(need->least_kv_bytes), need->token_budget,
                     mebibytes(need->other_bytes), available_bytes >> 20);
}

struct nj_sequences_memory memory_of_sequences(const struct nj_hyperparameters *shape, enum nj_kv_type kv_type,
                                               int32_t token_budget, int32_t sequences, int32_t tokens)
{
    const struct nj_scheduler_options options = {.token_budget = token_budget,
                                                 .kv_blocks = sequences * scheduler_least_blocks(tokens),
                                                 .longest_sequence = tokens,
                                                 .most_sequences = sequences,
                                                 .kv_type = kv_type};
    uint64_t kv_bytes = (uint64_t)options.kv_blocks * kv_block_bytes(shape, kv_type);
    return (struct nj_sequences_memory){.kv_bytes = kv_bytes,
                                        .other_bytes = scheduler_bytes(shape, &options) - kv_bytes};
}
