#include "engine/sweep/scheduler.h"

#include <stdlib.h>
#include <string.h>

#include "engine/sweep/scheduler_internal.h"

int64_t scheduler_least_blocks(int32_t longest_sequence)
{
    /* The last token is never fed back, so it needs no position in the cache. */
    return longest_sequence <= 1 ? 1 : kv_blocks_for_tokens((int64_t)longest_sequence - 1);
}

static int32_t sequences_used(const struct nj_scheduler_options *options)
{
    int64_t most = options->most_sequences;
    most = most < options->token_budget ? most : options->token_budget;
    return (int32_t)(most < options->kv_blocks ? most : options->kv_blocks);
}

static struct nj_forward_options forward_options(const struct nj_scheduler_options *options)
{
    return (struct nj_forward_options){.token_budget = options->token_budget,
                                       .sequences = sequences_used(options),
                                       .blocks_per_sequence = scheduler_least_blocks(options->longest_sequence),
                                       .float_path = options->float_path};
}

static int64_t arena_tokens(const struct nj_scheduler_options *options)
{
    return sequence_store_tokens(sequences_used(options), options->longest_sequence, options->kv_blocks);
}

uint64_t scheduler_bytes(const struct nj_hyperparameters *shape, const struct nj_scheduler_options *options)
{
    const struct nj_forward_options forward = forward_options(options);
    const int32_t sequences = sequences_used(options);
    return sizeof(struct nj_scheduler) + sequence_store_bytes(sequences, arena_tokens(options)) +
           sampler_bytes(shape->vocabulary) + kv_cache_bytes(shape, options->kv_type, options->kv_blocks) +
           forward_bytes(shape, &forward);
}

static int check_options(const struct nj_scheduler_options *options, struct nj_error *error)
{
    if (options->token_budget < 1 || options->most_sequences < 1 || options->longest_sequence < 2)
        return error_set(error, NJ_INTERNAL, "a scheduler needs at least one row, one sequence and two tokens");
    const int64_t least = scheduler_least_blocks(options->longest_sequence);
    if (options->kv_blocks < least)
        return error_set(error, NJ_DOES_NOT_FIT,
                         "the longest request (%d tokens) needs %lld KV blocks, but there are only %lld; give more "
                         "with --kv-memory",
                         (int)options->longest_sequence, (long long)least, (long long)options->kv_blocks);
    return 0;
}

/* The parts that have memory of their own. */
static int open_parts(struct nj_scheduler *scheduler, const struct nj_model *model, struct nj_device *device,
                      struct nj_error *error)
{
    const struct nj_scheduler_options *options = &scheduler->options;
    const struct nj_forward_options forward = forward_options(options);
    const int32_t sequences = sequences_used(options);
    scheduler->cache = kv_cache_create(device, &model->shape, options->kv_type, options->kv_blocks, error);
    if (scheduler->cache == NULL)
        return -1;
    scheduler->forward = forward_create(model, device, scheduler->cache, &forward, error);
    if (scheduler->forward == NULL)
        return -1;
    scheduler->sampler = sampler_create(model->shape.vocabulary);
    if (scheduler->sampler == NULL)
        return error_set(error, NJ_DOES_NOT_FIT, "no memory for the sampler");
    return sequence_store_open(&scheduler->store, model->tokenizer, sequences, arena_tokens(options), error);
}

struct nj_scheduler *scheduler_create(const struct nj_model *model, struct nj_device *device,
                                      const struct nj_scheduler_options *options,
                                      const struct nj_scheduler_callbacks *callbacks, struct nj_error *error)
{
    if (check_options(options, error) != 0)
        return NULL;
    struct nj_scheduler *scheduler = calloc(1, sizeof *scheduler);
    if (scheduler == NULL) {
        error_set(error, NJ_DOES_NOT_FIT, "no memory for the scheduler");
        return NULL;
    }
    scheduler->options = *options;
    scheduler->callbacks = *callbacks;
    scheduler->vocabulary = model->shape.vocabulary;
    if (open_parts(scheduler, model, device, error) != 0) {
        scheduler_destroy(scheduler);
        return NULL;
    }
    return scheduler;
}

void scheduler_destroy(struct nj_scheduler *scheduler)
{
    if (scheduler == NULL)
        return;
    sequence_store_close(&scheduler->store);
    sampler_destroy(scheduler->sampler);
    forward_destroy(scheduler->forward);
    kv_cache_destroy(scheduler->cache);
    free(scheduler);
}

static void fill_rows(const struct nj_sequence *sequence, struct nj_forward_batch *batch)
{
    for (int32_t i = 0; i < sequence->rows; i++) {
        const int32_t position = sequence->computed + i;
        batch->token[batch->count] = sequence->tokens[position];
        batch->position[batch->count] = position;
        batch->sequence[batch->count] = sequence->slot;
        if (sequence_wants_logits(sequence, position))
            batch->logit_row[batch->logit_count++] = batch->count;
        batch->count++;
    }
}

/* Whether the planned sweep cannot be the last: somebody has tokens left, or waits and is not complete as it came. A
 * sequence that is to choose its next token may turn out to be finished. */
static bool another_sweep_follows(const struct nj_scheduler *scheduler)
{
    for (int32_t i = 0; i < scheduler->store.count; i++) {
        const struct nj_sequence *sequence = sequence_store_at(&scheduler->store, i);
        if (i < scheduler->running ? sequence->rows < sequence_remaining(sequence) : !sequence_is_complete(sequence))
            return true;
    }
    return false;
}

static int fill_batch(struct nj_scheduler *scheduler, struct nj_error *error)
{
    struct nj_forward_batch *batch = forward_batch(scheduler->forward);
    batch->count = 0;
    batch->logit_count = 0;
    batch->another_follows = another_sweep_follows(scheduler);
    for (int32_t i = 0; i < scheduler->running; i++) {
        struct nj_sequence *sequence = sequence_store_at(&scheduler->store, i);
        sequence->chosen = NJ_CHOSEN_NONE;
        sequence->noted = sequence->logprob_count;
        /* The visitor of the logits cannot fail. */
        if (sequence->wants_logprobs && sequence_reserve_logprobs(sequence, sequence->generated_count + 1, error) != 0)
            return -1;
        fill_rows(sequence, batch);
    }
    return 0;
}

/* The token behind `position`: chosen now, or one that is there already and whose log-probability is wanted. */
static int32_t token_behind(struct nj_scheduler *scheduler, struct nj_sequence *sequence, int32_t position,
                            const struct nj_logit_row *row)
{
    const int32_t next = position + 1;
    if (next < sequence_length(sequence))
        return sequence->tokens[next];
    sequence->chosen = sampler_choose(scheduler->sampler, &sequence->sampling, next, row->logits, &row->stats);
    return sequence->chosen;
}

static void take_logits(void *context, int32_t logit_index, const float *logits, const struct nj_logit_stats *stats)
{
    struct nj_scheduler *scheduler = context;
    const struct nj_forward_batch *batch = forward_batch(scheduler->forward);
    const int32_t batch_row = batch->logit_row[logit_index];
    struct nj_sequence *sequence = &scheduler->store.slot[batch->sequence[batch_row]];
    if (!stats->finite || sequence->chosen == NJ_CHOSEN_NOT_FINITE) {
        sequence->chosen = NJ_CHOSEN_NOT_FINITE;
        return;
    }
    const struct nj_logit_row given = {.logits = logits, .stats = *stats};
    const struct nj_logit_row row = sampler_apply_bias(scheduler->sampler, &sequence->sampling, given);
    const int32_t token = token_behind(scheduler, sequence, batch->position[batch_row], &row);
    if (!sequence->wants_logprobs)
        return;
    struct nj_logprob *out = sequence->logprobs + (int64_t)sequence->noted++ * (1 + sequence->top_logprobs);
    logprobs_note(row.logits, scheduler->vocabulary, &row.stats, token, sequence->top_logprobs, out);
}

/* How many of the positions [from, to) lie in [first, end). */
static uint64_t count_overlap(int32_t from, int32_t to, int32_t first, int32_t end)
{
    const int32_t low = from > first ? from : first;
    const int32_t high = to < end ? to : end;
    return high > low ? (uint64_t)(high - low) : 0;
}

/* A decode row feeds the token that the sweep before has chosen. */
static bool is_decode_row(const struct nj_sequence *sequence)
{
    return sequence->rows == 1 && sequence_remaining(sequence) == 1 && sequence->computed >= sequence->given_count;
}

static void count_sweep(struct nj_scheduler *scheduler)
{
    struct nj_scheduler_counts *counts = &scheduler->counts;
    bool decodes = false, prefills = false;
    for (int32_t i = 0; i < scheduler->running; i++) {
        const struct nj_sequence *sequence = sequence_store_at(&scheduler->store, i);
        const int32_t from = sequence->computed, to = from + sequence->rows;
        counts->shared_tokens += count_overlap(0, from, sequence->most_computed, sequence->given_count);
        counts->prefill_tokens += count_overlap(from, to, sequence->most_computed, sequence->given_count);
        counts->recomputed_tokens += count_overlap(from, to, 0, sequence->most_computed);
        decodes |= is_decode_row(sequence);
        prefills |= sequence->rows > 0 && !is_decode_row(sequence);
    }
    counts->sweeps++;
    counts->mixed_sweeps += decodes && prefills;
}

/* The sweep has run: its positions are in the cache, its tokens join their sequences. */
static int commit_sequence(struct nj_scheduler *scheduler, struct nj_sequence *sequence, struct nj_error *error)
{
    sequence->computed += sequence->rows;
    if (sequence->most_computed < sequence->computed)
        sequence->most_computed = sequence->computed;
    sequence->logprob_count = sequence->noted;
    if (sequence->chosen == NJ_CHOSEN_NOT_FINITE) {
        sequence->is_finished = true;
        sequence->finish = NJ_FINISH_NOT_FINITE;
    } else if (sequence->chosen != NJ_CHOSEN_NONE) {
        scheduler->counts.decode_tokens++;
        if (sequence_append_token(&scheduler->store, sequence, sequence->chosen, error) != 0)
            return -1;
    }
    return 0;
}

static int commit_sweep(struct nj_scheduler *scheduler, struct nj_error *error)
{
    count_sweep(scheduler);
    for (int32_t i = 0; i < scheduler->running; i++)
        if (commit_sequence(scheduler, sequence_store_at(&scheduler->store, i), error) != 0)
            return -1;
    return 0;
}

static int deliver(const struct nj_scheduler *scheduler, const struct nj_sequence *sequence, struct nj_error *error)
{
    struct nj_sequence_result result = {.tag = sequence->tag,
                                        .finish = sequence->finish,
                                        .generated = sequence->tokens + sequence->prompt_count,
                                        .generated_count = sequence->generated_count,
                                        .prompt_count = sequence->prompt_count,
                                        .text = {.bytes = "", .length = 0}};
    if (sequence->finish != NJ_FINISH_NOT_FINITE) {
        if (output_text_finish(sequence->text) < 0)
            return error_set(error, NJ_INTERNAL, "no memory for the text of an answer");
        result.text = output_text_get(sequence->text);
        result.logprobs = sequence->wants_logprobs ? sequence->logprobs : NULL;
        result.top_logprobs = sequence->top_logprobs;
    }
    return scheduler->callbacks.finished(scheduler->callbacks.context, &result, error);
}

/* Hands out finished sequences, oldest first. One whose delivery fails stays, so that it can be visited. */
static int deliver_finished(struct nj_scheduler *scheduler, struct nj_error *error)
{
    for (int32_t i = 0; i < scheduler->store.count;) {
        struct nj_sequence *sequence = sequence_store_at(&scheduler->store, i);
        if (!sequence_is_complete(sequence)) {
            i++;
            continue;
        }
        if (deliver(scheduler, sequence, error) != 0)
            return -1;
        scheduler->counts.finished++;
        scheduler->finished_new_tokens += (uint64_t)sequence->generated_count;
        scheduler_free_blocks(scheduler, sequence);
        scheduler->running -= i < scheduler->running;
        sequence_store_remove(&scheduler->store, i);
    }
    return 0;
}

/* Runs the planned sweep, if it has any rows. An abandoned one leaves every sequence's tokens as they were. */
static int run_sweep(struct nj_scheduler *scheduler, struct nj_error *error)
{
    if (fill_batch(scheduler, error) != 0)
        return -1;
    if (forward_batch(scheduler->forward)->count == 0)
        return 0;
    if (forward_run(scheduler->forward, take_logits, scheduler, scheduler->options.cancel, error) != 0) {
        scheduler->counts.abandoned_sweeps++;
        scheduler_undo_plan(scheduler);
        return -1;
    }
    return commit_sweep(scheduler, error);
}

static int report_sweep(struct nj_scheduler *scheduler, struct nj_error *error)
{
    const int answer = scheduler->callbacks.swept(scheduler->callbacks.context, error);
    return answer > 0 ? error_set(error, NJ_INTERRUPTED, "stopped between two sweeps") : answer;
}

static bool is_cancelled(const struct nj_scheduler *scheduler)
{
    return scheduler->options.cancel != NULL && atomic_load(scheduler->options.cancel) != 0;
}

int scheduler_run(struct nj_scheduler *scheduler, struct nj_error *error)
{
    for (;;) {
        if (is_cancelled(scheduler))
            return error_set(error, NJ_INTERRUPTED, "stopped between two sweeps");
        if (deliver_finished(scheduler, error) != 0 || scheduler_plan_sweep(scheduler, error) != 0)
            return -1;
        if (scheduler->store.count == 0)
            return 0;
        if (run_sweep(scheduler, error) != 0 || deliver_finished(scheduler, error) != 0 ||
            report_sweep(scheduler, error) != 0)
            return -1;
    }
}

struct nj_scheduler_counts scheduler_counts(const struct nj_scheduler *scheduler)
{
    struct nj_scheduler_counts counts = scheduler->counts;
    counts.in_flight = scheduler->store.count;
    return counts;
}

int scheduler_visit(const struct nj_scheduler *scheduler, nj_sequence_visitor visit, void *context,
                    struct nj_error *error)
{
    for (int32_t i = 0; i < scheduler->store.count; i++) {
        const struct nj_sequence *sequence = sequence_store_at(&scheduler->store, i);
        const bool tells_logprobs =
            sequence->wants_logprobs && sequence_is_complete(sequence) && sequence->finish != NJ_FINISH_NOT_FINITE;
        const struct nj_sequence_state state = {.tag = sequence->tag,
                                                .generated = sequence->tokens + sequence->prompt_count,
                                                .generated_count = sequence->generated_count,
                                                .logprobs = tells_logprobs ? sequence->logprobs : NULL,
                                                .top_logprobs = sequence->top_logprobs};
        if (visit(context, &state, error) != 0)
            return -1;
    }
    return 0;
}
