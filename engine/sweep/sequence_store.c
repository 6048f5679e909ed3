#include "engine/sweep/sequence_store.h"

#include <stdlib.h>
#include <string.h>

enum { ARENA_TOKENS_PER_KV_BLOCK = 1024 };

int64_t sequence_store_tokens(int32_t capacity, int32_t longest_sequence, int64_t kv_blocks)
{
    const int64_t all = (int64_t)capacity * longest_sequence;
    const int64_t bound = kv_blocks * ARENA_TOKENS_PER_KV_BLOCK + longest_sequence;
    return all < bound ? all : bound;
}

uint64_t sequence_store_bytes(int32_t capacity, int64_t arena_tokens)
{
    return (uint64_t)capacity * (sizeof(struct nj_sequence) + sizeof(int32_t)) +
           (uint64_t)arena_tokens * sizeof(int32_t);
}

int sequence_store_open(struct nj_sequence_store *store, const struct nj_tokenizer *tokenizer, int32_t capacity,
                        int64_t arena_tokens, struct nj_error *error)
{
    store->tokenizer = tokenizer;
    store->arena_tokens = arena_tokens;
    store->slot = calloc((size_t)capacity, sizeof *store->slot);
    store->order = malloc((size_t)capacity * sizeof *store->order);
    store->arena = malloc((size_t)arena_tokens * sizeof *store->arena);
    if (store->slot == NULL || store->order == NULL || store->arena == NULL)
        return error_set(error, NJ_DOES_NOT_FIT, "no memory for %d sequences", (int)capacity);
    store->capacity = capacity;
    for (int32_t i = 0; i < capacity; i++) {
        store->order[i] = i;
        store->slot[i].slot = i;
        store->slot[i].text = output_text_create(tokenizer, NULL, 0);
        if (store->slot[i].text == NULL)
            return error_set(error, NJ_DOES_NOT_FIT, "no memory for the texts of %d sequences", (int)capacity);
    }
    return 0;
}

void sequence_store_close(struct nj_sequence_store *store)
{
    for (int32_t i = 0; i < store->capacity; i++) {
        output_text_destroy(store->slot[i].text);
        free(store->slot[i].logprobs);
        free(store->slot[i].bias);
    }
    free(store->slot);
    free(store->order);
    free(store->arena);
}

struct nj_sequence *sequence_store_at(const struct nj_sequence_store *store, int32_t index)
{
    return &store->slot[store->order[index]];
}

bool sequence_store_has_room(const struct nj_sequence_store *store, int64_t tokens)
{
    return store->count < store->capacity && store->arena_reserved + tokens <= store->arena_tokens;
}

static void compact_arena(struct nj_sequence_store *store)
{
    int64_t end = 0;
    for (int32_t i = 0; i < store->count; i++) {
        struct nj_sequence *sequence = sequence_store_at(store, i);
        memmove(store->arena + end, sequence->tokens, (size_t)sequence_length(sequence) * sizeof *sequence->tokens);
        sequence->tokens = store->arena + end;
        end += sequence->token_capacity;
    }
    store->arena_end = end;
}

static int32_t *reserve_tokens(struct nj_sequence_store *store, int32_t tokens)
{
    if (store->arena_end + tokens > store->arena_tokens)
        compact_arena(store);
    int32_t *reserved = store->arena + store->arena_end;
    store->arena_end += tokens;
    store->arena_reserved += tokens;
    return reserved;
}

static int copy_logprobs(struct nj_sequence *sequence, const struct nj_sequence_request *request,
                         struct nj_error *error)
{
    const int32_t count = sequence->generated_count;
    if (sequence_reserve_logprobs(sequence, count, error) != 0)
        return -1;
    memcpy(sequence->logprobs, request->logprobs,
           (size_t)count * (size_t)(1 + sequence->top_logprobs) * sizeof *sequence->logprobs);
    sequence->logprob_count = count;
    return 0;
}

/* The tokens of a checkpoint go the way of newly chosen ones, and may end the sequence as those do. */
static int replay_generated(const struct nj_sequence_store *store, struct nj_sequence *sequence,
                            const struct nj_sequence_request *request, struct nj_error *error)
{
    for (int32_t i = 0; i < request->generated_count && !sequence->is_finished; i++)
        if (sequence_append_token(store, sequence, request->generated[i], error) != 0)
            return -1;
    sequence->given_count = sequence_length(sequence);
    return request->logprobs == NULL ? 0 : copy_logprobs(sequence, request, error);
}

int sequence_reserve_logprobs(struct nj_sequence *sequence, int32_t count, struct nj_error *error)
{
    const size_t needed = (size_t)count * (size_t)(1 + sequence->top_logprobs);
    if (needed <= sequence->logprob_capacity)
        return 0;
    const size_t doubled = 2 * sequence->logprob_capacity;
    const size_t capacity = needed > doubled ? needed : doubled;
    struct nj_logprob *grown = realloc(sequence->logprobs, capacity * sizeof *grown);
    if (grown == NULL)
        return error_set(error, NJ_INTERNAL, "no memory for the log-probabilities of an answer");
    sequence->logprobs = grown;
    sequence->logprob_capacity = capacity;
    return 0;
}

static int reserve_bias(struct nj_sequence *sequence, int32_t count)
{
    if (count <= sequence->bias_capacity)
        return 0;
    struct nj_logit_bias *grown = realloc(sequence->bias, (size_t)count * sizeof *grown);
    if (grown == NULL)
        return -1;
    sequence->bias = grown;
    sequence->bias_capacity = count;
    return 0;
}

/* Stop strings and logit_bias into the slot's own memory. */
static int copy_lists(struct nj_sequence *sequence, const struct nj_sequence_request *request, struct nj_error *error)
{
    const int32_t bias_count = request->sampling.bias_count;
    if (output_text_reset(sequence->text, request->stop, request->stop_count) != 0 ||
        reserve_bias(sequence, bias_count) != 0)
        return error_set(error, NJ_INTERNAL, "no memory for the stop strings and the logit_bias of a request");
    if (bias_count > 0)
        memcpy(sequence->bias, request->sampling.bias, (size_t)bias_count * sizeof *sequence->bias);
    return 0;
}

int sequence_store_add(struct nj_sequence_store *store, const struct nj_sequence_request *request,
                       struct nj_error *error)
{
    struct nj_sequence *sequence = sequence_store_at(store, store->count);
    if (copy_lists(sequence, request, error) != 0)
        return -1;
    const int32_t token_capacity = request->prompt_count + request->max_new_tokens;
    *sequence = (struct nj_sequence){.tag = request->tag,
                                     .slot = sequence->slot,
                                     .tokens = reserve_tokens(store, token_capacity),
                                     .token_capacity = token_capacity,
                                     .prompt_count = request->prompt_count,
                                     .max_new_tokens = request->max_new_tokens,
                                     .sampling = request->sampling,
                                     .text = sequence->text,
                                     .wants_logprobs = request->wants_logprobs,
                                     .top_logprobs = request->top_logprobs,
                                     .logprobs = sequence->logprobs,
                                     .logprob_capacity = sequence->logprob_capacity,
                                     .bias = sequence->bias,
                                     .bias_capacity = sequence->bias_capacity,
                                     .chosen = NJ_CHOSEN_NONE};
    sequence->sampling.bias = sequence->bias;
    memcpy(sequence->tokens, request->prompt, (size_t)request->prompt_count * sizeof *sequence->tokens);
    store->count++;
    if (replay_generated(store, sequence, request, error) != 0) {
        sequence_store_remove(store, store->count - 1);
        return -1;
    }
    return 0;
}

void sequence_store_remove(struct nj_sequence_store *store, int32_t index)
{
    const int32_t slot = store->order[index];
    store->arena_reserved -= store->slot[slot].token_capacity;
    store->count--;
    memmove(store->order + index, store->order + index + 1, (size_t)(store->count - index) * sizeof *store->order);
    store->order[store->count] = slot;
}

static void finish(struct nj_sequence *sequence, enum nj_finish reason)
{
    sequence->is_finished = true;
    sequence->finish = reason;
}

int sequence_append_token(const struct nj_sequence_store *store, struct nj_sequence *sequence, int32_t token,
                          struct nj_error *error)
{
    sequence->tokens[sequence_length(sequence)] = token;
    sequence->generated_count++;
    if (tokenizer_ends_generation(store->tokenizer, token)) {
        finish(sequence, NJ_FINISH_STOP);
        return 0;
    }
    const int stopped = output_text_append(sequence->text, token);
    if (stopped < 0)
        return error_set(error, NJ_INTERNAL, "no memory for the text of an answer");
    if (stopped)
        finish(sequence, NJ_FINISH_STOP);
    else if (sequence->generated_count == sequence->max_new_tokens)
        finish(sequence, NJ_FINISH_LENGTH);
    return 0;
}
