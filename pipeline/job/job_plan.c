#include "pipeline/job/job_plan.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "pipeline/index/lengths.h"

enum { LEAST_TOKEN_BUDGET = 16, MEBIBYTE = 1 << 20, HEADROOM_SHARE = 8 };

/* A job as it is planned for. */
struct situation {
    const struct nj_plan_facts *facts;
    struct nj_lengths lengths;
    uint64_t *count_by_blocks; /* [least_blocks + 1] sequences that take so many blocks if they run to their limit */
    uint64_t longest_line_bytes, block_bytes;
    int64_t record_tokens; /* new tokens of the longest record */
    int64_t least_blocks;  /* of the longest sequence */
    int32_t longest;       /* its tokens, prompt and answer */
    int32_t deepest;       /* layers on disk with which the weights take least */
};

/* What can be chosen. */
struct choice {
    int32_t token_budget, disk_layers;
    int64_t blocks;
};

static int32_t length_of(const struct nj_index_entry *entry)
{
    return (int32_t)(entry->prompt_tokens + entry->max_new_tokens);
}

static int32_t find_deepest(const struct nj_weights_sizes *weights)
{
    int32_t deepest = 0;
    for (int32_t i = 1; i <= weights->most_disk_layers; i++) {
        if (weights->memory_bytes[i] < weights->memory_bytes[deepest])
            deepest = i;
    }
    return deepest;
}

static int look_at(const struct nj_plan_facts *facts, struct situation *out, struct nj_error *error)
{
    const struct nj_order *order = facts->order;
    *out = (struct situation){.facts = facts,
                              .lengths = lengths_of(facts->index, order),
                              .block_bytes = kv_block_bytes(facts->shape, facts->kv_type),
                              .longest = length_of(index_at(facts->index, order->position[0])),
                              .deepest = find_deepest(&facts->weights)};
    out->least_blocks = scheduler_least_blocks(out->longest);
    out->count_by_blocks = calloc((size_t)out->least_blocks + 1, sizeof *out->count_by_blocks);
    if (out->count_by_blocks == NULL)
        return error_set(error, NJ_INTERNAL, "out of memory");
    for (uint32_t i = 0; i < order->count; i++) {
        const struct nj_index_entry *entry = index_at(facts->index, order->position[i]);
        out->count_by_blocks[scheduler_least_blocks(length_of(entry))] += index_entry_samples(entry);
        const int64_t record_tokens = (int64_t)entry->max_new_tokens * index_entry_samples(entry);
        if (entry->length > out->longest_line_bytes)
            out->longest_line_bytes = entry->length;
        if (record_tokens > out->record_tokens)
            out->record_tokens = record_tokens;
    }
    return 0;
}

/* The job's sequences, but no more than a sweep takes. */
static int32_t count_sequences(const struct situation *job, int32_t token_budget)
{
    return job->lengths.sequences < (uint64_t)token_budget ? (int32_t)job->lengths.sequences : token_budget;
}

/* Blocks that the longest sequences in flight take if all run to their limit and share nothing: never more are needed.
 * The order does not tell which these are, so they are counted by their blocks. */
static int64_t most_useful_blocks(const struct situation *job, int32_t token_budget)
{
    int64_t left = count_sequences(job, token_budget), useful = 0;
    for (int64_t blocks = job->least_blocks; blocks > 0 && left > 0; blocks--) {
        const uint64_t there = job->count_by_blocks[blocks];
        const int64_t count = there < (uint64_t)left ? (int64_t)there : left;
        useful += count * blocks;
        left -= count;
    }
    return useful;
}

static struct nj_scheduler_options options_of(const struct situation *job, const struct choice *choice)
{
    return (struct nj_scheduler_options){.token_budget = choice->token_budget,
                                         .kv_blocks = choice->blocks,
                                         .longest_sequence = job->longest,
                                         .most_sequences = count_sequences(job, choice->token_budget),
                                         .kv_type = job->facts->kv_type};
}

static struct nj_buffer_facts buffers_of(const struct situation *job, const struct nj_scheduler_options *options)
{
    const int64_t sequences =
        options->most_sequences < options->kv_blocks ? options->most_sequences : options->kv_blocks;
    /* Those without blocks, which were preempted, are as many as those with blocks at most, or nearly so. */
    const int64_t held = 2 * options->kv_blocks * NJ_KV_BLOCK_TOKENS, all = sequences * job->longest;
    return (struct nj_buffer_facts){.threads = job->facts->threads,
                                    .longest_line_bytes = job->longest_line_bytes,
                                    .sequences = sequences,
                                    .tokens = held < all ? held : all,
                                    .logprobs = job->facts->logprobs,
                                    .record_tokens = job->record_tokens,
                                    .program_bytes = job->facts->program_bytes};
}

static struct nj_memory_need need_of(const struct situation *job, const struct choice *choice)
{
    const struct nj_plan_facts *facts = job->facts;
    const struct nj_scheduler_options options = options_of(job, choice);
    const struct nj_buffer_facts buffers = buffers_of(job, &options);
    const uint64_t kv_bytes = (uint64_t)choice->blocks * job->block_bytes;
    return (struct nj_memory_need){.program_bytes = facts->program_bytes,
                                   .weights_bytes = facts->weights.memory_bytes[choice->disk_layers],
                                   .kv_bytes = kv_bytes,
                                   .least_kv_bytes = (uint64_t)job->least_blocks * job->block_bytes,
                                   .other_bytes = scheduler_bytes(facts->shape, &options) - kv_bytes,
                                   .buffers_bytes = memory_of_buffers(&buffers),
                                   .token_budget = choice->token_budget,
                                   .longest_sequence = job->longest};
}

static bool fits(const struct situation *job, struct choice choice, int64_t blocks)
{
    choice.blocks = blocks;
    const struct nj_memory_need need = need_of(job, &choice);
    return memory_need_sum(&need) <= job->facts->limit_bytes;
}

/* The blocks that the user asks for, or 0. */
static int64_t given_blocks(const struct situation *job, int32_t token_budget)
{
    if (job->facts->kv_memory_bytes == 0)
        return 0;
    const uint64_t blocks = job->facts->kv_memory_bytes / job->block_bytes;
    const int64_t useful = most_useful_blocks(job, token_budget);
    return blocks < (uint64_t)useful ? (int64_t)blocks : useful;
}

/* As many blocks as fit and are of use; 0: not even those of the longest sequence, or those that were asked for. */
static int64_t most_blocks(const struct situation *job, struct choice choice)
{
    const int64_t given = given_blocks(job, choice.token_budget);
    int64_t most = most_useful_blocks(job, choice.token_budget), least = job->least_blocks;
    if (given > 0)
        return fits(job, choice, given) ? given : 0;
    if (!fits(job, choice, least))
        return 0;
    while (least < most) {
        const int64_t middle = least + (most - least + 1) / 2;
        if (fits(job, choice, middle))
            least = middle;
        else
            most = middle - 1;
    }
    return least;
}

struct nj_plan_rates plan_default_rates(int threads)
{
    return (struct nj_plan_rates){.operations = 1e11 * threads, .disk_bytes = 1.5e9, .memory_bytes = 1e10};
}

static double operations_per_token(const struct nj_hyperparameters *shape)
{
    const double attention = 2.0 * (shape->heads + shape->kv_heads) * shape->head_width;
    const double layer = shape->width * (attention + 3.0 * shape->feed_forward);
    return 2 * (shape->layers * layer + (double)shape->vocabulary * shape->width);
}

/* Seconds that a sweep takes however few tokens it has: what it reads from disk, or from memory. */
static double least_sweep_seconds(const struct situation *job, int32_t disk_layers)
{
    const struct nj_plan_facts *facts = job->facts;
    return fmax((double)facts->weights.read_bytes[disk_layers] / facts->rates.disk_bytes,
                (double)facts->weights.memory_bytes[0] / facts->rates.memory_bytes);
}

static double token_seconds(const struct situation *job)
{
    return operations_per_token(job->facts->shape) / job->facts->rates.operations;
}

/* Blocks of an average sequence, which holds its prompt and half of its answer. */
static double average_blocks(const struct situation *job)
{
    const struct nj_lengths *lengths = &job->lengths;
    const double tokens = (double)lengths->prompt_tokens + (double)lengths->most_new_tokens / 2;
    return ceil(tokens / (double)lengths->sequences / NJ_KV_BLOCK_TOKENS + 0.5);
}

/* Of an average sequence, answers taken as half of their limit. */
static double average_prompt(const struct situation *job)
{
    return (double)job->lengths.prompt_tokens / (double)job->lengths.sequences;
}

static double average_answer(const struct situation *job)
{
    return fmax(1, (double)job->lengths.most_new_tokens / 2 / (double)job->lengths.sequences);
}

/* Sequences that keep so many rows in every sweep: by their new tokens alone, or, if they are so many that one ends and
 * another one's prompt comes in every sweep, with their share of prompts. */
static double sequences_for_rows(const struct situation *job, double rows)
{
    const double answer = average_answer(job);
    return ceil(fmin(rows, fmax(answer, rows / (1 + average_prompt(job) / answer))));
}

/* Blocks that keep so many tokens in a sweep that computing them takes as long as reading the weights. */
static int64_t needed_blocks(const struct situation *job, struct choice choice)
{
    const int64_t useful = most_useful_blocks(job, choice.token_budget);
    const double tokens = least_sweep_seconds(job, choice.disk_layers) / token_seconds(job);
    const double blocks = sequences_for_rows(job, tokens) * average_blocks(job);
    const int64_t given = given_blocks(job, choice.token_budget);
    if (given > 0)
        return given;
    if (blocks >= (double)useful)
        return useful;
    return blocks > (double)job->least_blocks ? (int64_t)blocks : job->least_blocks;
}

/* Seconds for a sequence with so many blocks: its computing, or the reading of the sweeps that it shares with those in
 * flight. */
static double predict_seconds(const struct situation *job, struct choice choice, int64_t blocks)
{
    const double sequences = fmin((double)blocks / average_blocks(job), choice.token_budget);
    const double reading = average_answer(job) / sequences * least_sweep_seconds(job, choice.disk_layers);
    return fmax(reading, (average_prompt(job) + average_answer(job)) * token_seconds(job));
}

/* Once it takes 0, it does so with any larger limit: blocks grow with it, and with them what is gained by having the
 * weights in memory. Of the numbers from 1 on, those that leave enough blocks only become more. */
static int32_t choose_disk_layers(const struct situation *job, int32_t token_budget)
{
    struct choice choice = {.token_budget = token_budget}, deepest = choice;
    deepest.disk_layers = job->deepest;
    const int64_t blocks = most_blocks(job, choice);
    if (blocks > 0 &&
        (blocks >= needed_blocks(job, choice) ||
         predict_seconds(job, choice, blocks) <= predict_seconds(job, deepest, most_blocks(job, deepest))))
        return 0;
    for (choice.disk_layers = 1; choice.disk_layers < job->deepest; choice.disk_layers++) {
        if (most_blocks(job, choice) >= needed_blocks(job, choice))
            break;
    }
    return choice.disk_layers < job->deepest ? choice.disk_layers : job->deepest;
}

/* What is only free now is not taken whole: a half of what the weights leave, if that is enough. */
static int64_t leave_some(const struct situation *job, const struct choice *choice)
{
    const struct nj_plan_facts *facts = job->facts;
    const uint64_t taken = facts->program_bytes + facts->weights.memory_bytes[choice->disk_layers];
    const uint64_t half = facts->limit_bytes > taken ? (facts->limit_bytes - taken) / 2 / job->block_bytes : 0;
    const int64_t needed = needed_blocks(job, *choice);
    const uint64_t blocks = half > (uint64_t)needed ? half : (uint64_t)needed;
    return blocks < (uint64_t)choice->blocks ? (int64_t)blocks : choice->blocks;
}

static int32_t first_token_budget(const struct nj_plan_facts *facts)
{
    return facts->token_budget > 0 ? facts->token_budget : NJ_DEFAULT_TOKEN_BUDGET;
}

/* A smaller budget only helps where the weights take as little as they can. */
static bool choose(const struct situation *job, struct choice *out)
{
    const int32_t first = first_token_budget(job->facts);
    *out = (struct choice){.token_budget = first, .disk_layers = job->deepest};
    while (most_blocks(job, *out) == 0) {
        if (job->facts->token_budget > 0 || out->token_budget == LEAST_TOKEN_BUDGET)
            return false;
        out->token_budget /= 2;
    }
    if (out->token_budget == first)
        out->disk_layers = choose_disk_layers(job, first);
    out->blocks = most_blocks(job, *out);
    if (!job->facts->is_cap && job->facts->kv_memory_bytes == 0)
        out->blocks = leave_some(job, out);
    return true;
}

/* The choice that takes least. */
static struct nj_memory_need least_need(const struct situation *job)
{
    struct choice choice = {.token_budget =
                                job->facts->token_budget > 0 ? job->facts->token_budget : LEAST_TOKEN_BUDGET,
                            .disk_layers = job->deepest,
                            .blocks = job->least_blocks};
    const int64_t given = given_blocks(job, choice.token_budget);
    choice.blocks = given > 0 ? given : choice.blocks;
    return need_of(job, &choice);
}

static uint64_t mebibytes(uint64_t bytes)
{
    return (bytes + MEBIBYTE - 1) / MEBIBYTE;
}

static uint64_t least_limit_mebibytes(const struct situation *job)
{
    const struct nj_memory_need need = least_need(job);
    const uint64_t sum = memory_need_sum(&need), peak = job->facts->peak_bytes;
    return mebibytes(sum > peak ? sum : peak);
}

static int fail_kv_memory(const struct situation *job, struct nj_error *error)
{
    uint64_t least = (uint64_t)job->least_blocks * job->block_bytes;
    return error_set(error, NJ_DOES_NOT_FIT,
                     "the KV memory of %" PRIu64 " bytes is too small: the longest request (%" PRId32
                     " tokens, prompt and answer) needs --kv-memory %" PRIu64 "KiB (%" PRIu64 " bytes) at least",
                     job->facts->kv_memory_bytes, job->longest, (least + 1023) >> 10, least);
}

static int fail_cap(const struct situation *job, struct nj_error *error)
{
    const struct nj_memory_need need = least_need(job);
    char layers[64] = "";
    if (job->deepest > 0)
        snprintf(layers, sizeof layers, " with %" PRId32 " of %" PRId32 " layers on disk", job->deepest,
                 job->facts->shape->layers);
    return error_set(
        error, NJ_DOES_NOT_FIT,
        "the job does not fit into %" PRIu64 " MiB: give --max-memory cpu=%" PRIu64
        "MiB at least (program, index and buffers %" PRIu64 " MiB, weights%s %" PRIu64 " MiB, keys and values %" PRIu64
        " MiB, the longest request having %" PRId32 " tokens, activations of %" PRId32 " tokens %" PRIu64 " MiB)%s",
        job->facts->limit_bytes / MEBIBYTE, least_limit_mebibytes(job),
        mebibytes(need.program_bytes + need.buffers_bytes), layers, mebibytes(need.weights_bytes),
        mebibytes(need.kv_bytes), need.longest_sequence, need.token_budget, mebibytes(need.other_bytes),
        job->facts->token_budget > 0 || job->facts->kv_memory_bytes > 0 ? ", or a smaller --token-budget or --kv-memory"
                                                                        : "");
}

static int fail_misfit(const struct situation *job, struct nj_error *error)
{
    const struct nj_memory_need need = least_need(job);
    return job->facts->is_cap ? fail_cap(job, error) : memory_need_check(&need, job->facts->limit_bytes, error);
}

static int make(const struct situation *job, struct nj_plan *out, struct nj_error *error)
{
    const struct nj_plan_facts *facts = job->facts;
    if (facts->kv_memory_bytes > 0 && facts->kv_memory_bytes / job->block_bytes < (uint64_t)job->least_blocks)
        return fail_kv_memory(job, error);
    struct choice choice;
    if (!choose(job, &choice) || (facts->is_cap && facts->peak_bytes > facts->limit_bytes))
        return fail_misfit(job, error);
    *out = (struct nj_plan){.scheduler = options_of(job, &choice),
                            .need = need_of(job, &choice),
                            .disk_layers = choice.disk_layers,
                            .sweep_read_bytes = facts->weights.read_bytes[choice.disk_layers],
                            .least_limit_bytes = least_limit_mebibytes(job) * MEBIBYTE};
    return 0;
}

int plan_make(const struct nj_plan_facts *facts, struct nj_plan *out, struct nj_error *error)
{
    struct situation job;
    if (look_at(facts, &job, error) != 0)
        return -1;
    const int status = make(&job, out, error);
    free(job.count_by_blocks);
    return status;
}

uint64_t plan_limit(uint64_t cap_bytes, const struct nj_machine *machine, const struct nj_process_memory *process)
{
    if (cap_bytes > 0)
        return cap_bytes;
    const uint64_t most = machine->memory_bytes - machine->memory_bytes / HEADROOM_SHARE;
    const uint64_t free_bytes = machine->memory_available_bytes;
    const uint64_t now =
        free_bytes > UINT64_MAX - process->resident_bytes ? UINT64_MAX : free_bytes + process->resident_bytes;
    return now < most ? now : most;
}

int plan_find_kv_type(const char *name, enum nj_kv_type *out, struct nj_error *error)
{
    if (kv_type_find(name, out) == 0)
        return 0;
    return error_set(error, NJ_BAD_DATA, "KV type \"%.100s\" is not known; it is f16 or q8", name);
}
