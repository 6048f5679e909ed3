#include "pipeline/job/memory_need.h"

#include <inttypes.h>

static uint64_t mebibytes(uint64_t bytes)
{
    return (bytes >> 20) + (bytes % (1 << 20) != 0);
}

/* Pages of program and libraries: as a rule half of this, and the same number on every machine. */
static const uint64_t FILE_BYTES = 12 << 20, FILE_STEP_BYTES = 4 << 20, FILE_GROWTH_BYTES = 2 << 20;
/* Beside the heap: data of libraries, stacks, what the heap has free between its pieces. */
static const uint64_t ANONYMOUS_BYTES = 3 << 20;
/* Of memory_of_buffers. A line is held as text, as JSON, as characters marked by origin, and as tokens. A token of an
 * answer is held as a number and as text, both also in the checkpoint and the record being written. */
static const uint64_t THREAD_BYTES = 512 << 10, LINE_COPIES = 24, TOKEN_BYTES = 32, SEQUENCE_BYTES = 2 << 10;
/* A log-probability has 8 bytes; so has room that it may grow into, the copy of an answer that waits for others, and
 * the checkpoint; and records that are finished in one sweep hold it as text. In the record being made it is a tree of
 * JSON values first. */
static const uint64_t LOGPROB_BYTES = 160, LOGPROB_TREE_BYTES = 1280;
static const uint64_t HEAP_BYTES = 4 << 20, HEAP_SHARE = 16;

static uint64_t round_up(uint64_t bytes, uint64_t step)
{
    return (bytes + step - 1) / step * step;
}

uint64_t memory_of_program(const struct nj_process_memory *now, uint64_t heap_bytes, uint64_t index_bytes)
{
    uint64_t file = round_up(now->file_bytes + FILE_GROWTH_BYTES, FILE_STEP_BYTES);
    uint64_t anonymous = heap_bytes + index_bytes + ANONYMOUS_BYTES;
    file = file < FILE_BYTES ? FILE_BYTES : file;
    return file + (anonymous < now->anonymous_bytes ? round_up(now->anonymous_bytes, 1 << 20) : anonymous);
}

uint64_t memory_of_buffers(const struct nj_buffer_facts *facts)
{
    const uint64_t values = (uint64_t)facts->logprobs;
    return (uint64_t)facts->threads * THREAD_BYTES + LINE_COPIES * facts->longest_line_bytes +
           (uint64_t)facts->sequences * SEQUENCE_BYTES +
           (uint64_t)facts->tokens * (TOKEN_BYTES + values * LOGPROB_BYTES) +
           (uint64_t)facts->record_tokens * values * LOGPROB_TREE_BYTES + HEAP_BYTES +
           facts->program_bytes / HEAP_SHARE;
}

uint64_t memory_need_sum(const struct nj_memory_need *need)
{
    return need->program_bytes + need->weights_bytes + need->kv_bytes + need->other_bytes + need->buffers_bytes;
}

int memory_need_check(const struct nj_memory_need *need, uint64_t available_bytes, struct nj_error *error)
{
    uint64_t without_kv = memory_need_sum(need) - need->kv_bytes;
    if (without_kv + need->kv_bytes <= available_bytes)
        return 0;
    if (without_kv + need->least_kv_bytes <= available_bytes)
        return error_set(error, NJ_DOES_NOT_FIT,
                         "the job needs %" PRIu64 " MiB of memory and %" PRIu64
                         " MiB are free: give --kv-memory %" PRIu64 "KiB at most (%" PRIu64 "KiB at least)",
                         mebibytes(without_kv + need->kv_bytes), available_bytes >> 20,
                         (available_bytes - without_kv) >> 10, (need->least_kv_bytes + 1023) >> 10);
    return error_set(
        error, NJ_DOES_NOT_FIT,
        "the job needs %" PRIu64 " MiB of memory at least (weights %" PRIu64
        " MiB, keys and values of the longest request, %" PRId32 " tokens, %" PRIu64 " MiB, activations of %" PRId32
        " tokens %" PRIu64 " MiB, program and buffers %" PRIu64 " MiB) and %" PRIu64
        " MiB are free: lower --token-budget, take a smaller model or shorter requests, or free memory",
        mebibytes(without_kv + need->least_kv_bytes), mebibytes(need->weights_bytes), need->longest_sequence,
        mebibytes(need->least_kv_bytes), need->token_budget, mebibytes(need->other_bytes),
        mebibytes(need->program_bytes + need->buffers_bytes), available_bytes >> 20);
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
