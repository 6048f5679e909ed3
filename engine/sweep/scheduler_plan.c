/* Planning a sweep: who gets how many rows, who comes in, who must leave. */
#include "engine/sweep/scheduler_internal.h"

/* Before any answer's length has been seen, this part of max_new_tokens is expected. */
enum { FIRST_GUESS_DIVISOR = 4 };

static int32_t min_i32(int32_t a, int32_t b)
{
    return a < b ? a : b;
}

static int32_t max_i32(int32_t a, int32_t b)
{
    return a > b ? a : b;
}

void scheduler_free_blocks(struct nj_scheduler *scheduler, struct nj_sequence *sequence)
{
    scheduler_withdraw_prefix(scheduler, sequence);
    while (sequence->blocks_held > 0) /* children before their parents */
        block_pool_give_back(kv_cache_blocks(scheduler->cache), sequence->blocks[--sequence->blocks_held]);
    sequence->published = 0;
    sequence->computed = 0;
}

/* The youngest running sequence must wait, and loses its place in the sweep being planned. */
static void preempt_youngest(struct nj_scheduler *scheduler)
{
    struct nj_sequence *youngest = sequence_store_at(&scheduler->store, --scheduler->running);
    scheduler_free_blocks(scheduler, youngest);
    scheduler->budget_left += youngest->rows;
    youngest->rows = 0;
    scheduler->counts.preemptions++;
}

/* Takes blocks for `rows` more positions of a running sequence, from younger ones if none is free. Returns for
 * how many of these positions there are blocks now: fewer than asked only if this sequence is itself the
 * youngest, and 0 if it had to be preempted. Never the fate of the oldest, for which the pool is large enough. */
static int32_t take_blocks(struct nj_scheduler *scheduler, int32_t index, int32_t rows)
{
    struct nj_sequence *sequence = sequence_store_at(&scheduler->store, index);
    const int64_t wanted = kv_blocks_for_tokens((int64_t)sequence->computed + rows);
    while (sequence->blocks_held < wanted) {
        const int32_t block = block_pool_take(kv_cache_blocks(scheduler->cache));
        if (block != NJ_NO_BLOCK) {
            sequence->blocks[sequence->blocks_held++] = block;
            continue;
        }
        const int64_t spare = (int64_t)sequence->blocks_held * NJ_KV_BLOCK_TOKENS - sequence->computed;
        const bool is_youngest = index == scheduler->running - 1;
        if (is_youngest && spare > 0)
            return (int32_t)spare;
        preempt_youngest(scheduler);
        if (is_youngest)
            return 0;
    }
    return rows;
}

static void plan_rows(struct nj_scheduler *scheduler, int32_t index)
{
    struct nj_sequence *sequence = sequence_store_at(&scheduler->store, index);
    const int32_t wanted = min_i32(sequence_remaining(sequence), scheduler->budget_left);
    const int32_t rows = take_blocks(scheduler, index, wanted);
    sequence->rows = rows;
    scheduler->budget_left -= rows;
    scheduler_publish_prefix(scheduler, sequence);
}

/* Sequences that need one row only, then the others: oldest first in each. There are no more sequences than
 * rows, so every decode row finds its place, and the oldest sequence always gets one. */
static void plan_running(struct nj_scheduler *scheduler)
{
    for (int32_t i = 0; i < scheduler->running; i++)
        if (sequence_remaining(sequence_store_at(&scheduler->store, i)) == 1)
            plan_rows(scheduler, i);
    for (int32_t i = 0; i < scheduler->running && scheduler->budget_left > 0; i++)
        if (sequence_remaining(sequence_store_at(&scheduler->store, i)) > 1)
            plan_rows(scheduler, i);
}

/* New tokens that the sequence is expected to have in the end: what answers had on average so far, at least one
 * more than it has. */
static int32_t expected_new_tokens(const struct nj_scheduler *scheduler, const struct nj_sequence *sequence)
{
    const uint64_t finished = scheduler->counts.finished;
    const int32_t guess = finished > 0 ? (int32_t)(scheduler->finished_new_tokens / finished)
                                       : sequence->max_new_tokens / FIRST_GUESS_DIVISOR;
    return min_i32(max_i32(guess, sequence->generated_count + 1), sequence->max_new_tokens);
}

/* Blocks reserved for what it is still expected to take: half of its new tokens, because sequences are at all
 * stages of their answers, and the older ones give their blocks back while the younger ones still grow. Where
 * that was too little, preemption costs a recomputation; too much would cost idle blocks in every sweep. */
static int64_t expected_growth_blocks(const struct nj_scheduler *scheduler, const struct nj_sequence *sequence)
{
    const int32_t new_tokens = expected_new_tokens(scheduler, sequence) - sequence->generated_count;
    const int64_t positions = (int64_t)sequence_length(sequence) + new_tokens / 2;
    const int64_t growth = kv_blocks_for_tokens(positions) - sequence->blocks_held;
    return growth > 0 ? growth : 0;
}

static int check_request(const struct nj_scheduler *scheduler, const struct nj_sequence_request *request,
                         struct nj_error *error)
{
    if (request->prompt_count < 1 || request->max_new_tokens < 1 || request->generated_count < 0 ||
        request->generated_count > request->max_new_tokens ||
        (int64_t)request->prompt_count + request->max_new_tokens > scheduler->options.longest_sequence)
        return error_set(error, NJ_INTERNAL,
                         "a request of %d prompt, %d generated and at most %d new tokens is outside what the job "
                         "was planned for",
                         (int)request->prompt_count, (int)request->generated_count, (int)request->max_new_tokens);
    if (request->top_logprobs < 0 || request->top_logprobs > NJ_TOP_LOGPROBS_MOST)
        return error_set(error, NJ_INTERNAL, "a request for %d log-probabilities", (int)request->top_logprobs);
    for (int32_t i = 0; i < request->sampling.bias_count; i++)
        if (request->sampling.bias[i].token < 0 || request->sampling.bias[i].token >= scheduler->vocabulary)
            return error_set(error, NJ_INTERNAL, "a request's logit_bias is outside the model's vocabulary");
    for (int32_t i = 0; i < request->prompt_count + request->generated_count; i++) {
        const int32_t token =
            i < request->prompt_count ? request->prompt[i] : request->generated[i - request->prompt_count];
        if (token < 0 || token >= scheduler->vocabulary)
            return error_set(error, NJ_BAD_DATA, "token %d of a request is not in the model's vocabulary", (int)token);
    }
    return 0;
}

/* Adds the next request as a waiting sequence. 1 if there was one, 0 if not (or no room for it), -1 error. */
static int pull_request(struct nj_scheduler *scheduler, struct nj_error *error)
{
    if (scheduler->no_more || !sequence_store_has_room(&scheduler->store, scheduler->options.longest_sequence))
        return 0;
    struct nj_sequence_request request = {0};
    const int answer = scheduler->callbacks.next(scheduler->callbacks.context, &request, error);
    if (answer <= 0) {
        scheduler->no_more = answer == 0;
        return answer;
    }
    if (check_request(scheduler, &request, error) != 0 || sequence_store_add(&scheduler->store, &request, error) != 0)
        return -1;
    struct nj_sequence *added = sequence_store_at(&scheduler->store, scheduler->store.count - 1);
    added->blocks = forward_batch(scheduler->forward)->blocks +
                    added->slot * scheduler_least_blocks(scheduler->options.longest_sequence);
    return 1;
}

/* Whether a waiting sequence, which gets what is there of its prefix, can have the blocks that it is expected to need
 * out of `spare`; those are deducted. Blocks that others hold cost nothing; cached ones count, because from now on
 * they cannot be taken. */
static bool let_in(const struct nj_scheduler *scheduler, struct nj_sequence *waiting, int64_t *spare)
{
    const struct nj_block_pool *blocks = kv_cache_blocks(scheduler->cache);
    const int64_t available = block_pool_available(blocks);
    scheduler_take_over_prefix(scheduler, waiting);
    const int64_t needed = available - block_pool_available(blocks) + expected_growth_blocks(scheduler, waiting);
    *spare -= needed;
    return *spare >= 0;
}

/* Lets waiting sequences in, oldest first, then new ones, as long as there are rows for them and the blocks
 * that they and the running ones are expected to need. A sequence that would be alone always comes in. */
static int plan_admission(struct nj_scheduler *scheduler, struct nj_error *error)
{
    int64_t spare = block_pool_available(kv_cache_blocks(scheduler->cache));
    for (int32_t i = 0; i < scheduler->running; i++)
        spare -= expected_growth_blocks(scheduler, sequence_store_at(&scheduler->store, i));
    while (scheduler->budget_left > 0) {
        if (scheduler->running == scheduler->store.count) {
            const int pulled = pull_request(scheduler, error);
            if (pulled <= 0)
                return pulled;
        }
        struct nj_sequence *waiting = sequence_store_at(&scheduler->store, scheduler->running);
        if (sequence_is_complete(waiting))
            return 0;
        if (!let_in(scheduler, waiting, &spare) && scheduler->running > 0) {
            scheduler_free_blocks(scheduler, waiting);
            return 0;
        }
        plan_rows(scheduler, scheduler->running++);
    }
    return 0;
}

int scheduler_plan_sweep(struct nj_scheduler *scheduler, struct nj_error *error)
{
    scheduler->budget_left = scheduler->options.token_budget;
    for (int32_t i = 0; i < scheduler->store.count; i++)
        sequence_store_at(&scheduler->store, i)->rows = 0;
    plan_running(scheduler);
    scheduler->settled = scheduler->running;
    if (plan_admission(scheduler, error) == 0)
        return 0;
    scheduler_undo_plan(scheduler);
    return -1;
}
