/* The sequences in flight and their memory, all taken at creation: slots for `capacity` sequences and one arena
 * for their tokens. Internal to engine/sweep.
 *
 * Sequences are kept in order of age: index 0 is the oldest. A sequence's tokens (prompt, then generated) are
 * contiguous; the space for all it may grow to is reserved when it is added, in the order of age, so that
 * compaction only ever moves tokens down. */
#ifndef NJ_ENGINE_SWEEP_SEQUENCE_STORE_H
#define NJ_ENGINE_SWEEP_SEQUENCE_STORE_H

#include <stdbool.h>

#include "engine/sweep/scheduler.h"

/* What a sequence gets from a sweep, if not a token. */
enum { NJ_CHOSEN_NONE = -1, NJ_CHOSEN_NOT_FINITE = -2 };

struct nj_sequence {
    uint64_t tag;
    int32_t slot;           /* its row of the block table */
    int32_t *tokens;        /* [token_capacity] */
    int32_t token_capacity; /* prompt_count + max_new_tokens */
    int32_t prompt_count, generated_count, max_new_tokens;
    int32_t given_count; /* prompt and tokens from a checkpoint: those that were not chosen here */
    struct nj_sampling sampling;
    struct nj_output_text *text;
    bool is_finished; /* no token follows; it may still wait for log-probabilities */
    enum nj_finish finish;

    bool wants_logprobs;
    int32_t top_logprobs;
    struct nj_logprob *logprobs; /* [logprob_count][1 + top_logprobs]; the slot's, as bias is */
    int32_t logprob_count;       /* generated tokens that have theirs: the first ones */
    size_t logprob_capacity;     /* elements of logprobs */
    struct nj_logit_bias *bias;  /* what sampling.bias points to */
    int32_t bias_capacity;

    int32_t computed;      /* positions whose KV is in the cache */
    int32_t most_computed; /* the largest that `computed` ever was */
    int32_t *blocks;       /* [blocks_held], set by the scheduler: a row of the forward pass's block table */
    int32_t blocks_held;
    int32_t published; /* the first so many of them are published blocks, each the parent of the next */

    int32_t rows;   /* this sweep's positions: computed .. computed + rows - 1 */
    int32_t noted;  /* what logprob_count will be when the sweep has run */
    int32_t chosen; /* this sweep's new token, NJ_CHOSEN_NONE or NJ_CHOSEN_NOT_FINITE */
};

struct nj_sequence_store {
    const struct nj_tokenizer *tokenizer;
    struct nj_sequence *slot; /* [capacity] */
    int32_t *order;           /* [capacity] slots: `count` sequences by age, then the free ones */
    int32_t capacity, count;
    int32_t *arena;
    int64_t arena_tokens, arena_reserved, arena_end;
};

/* Tokens that the arena needs: room for all sequences at their longest, but no more than 1,024 for each KV block
 * (4 KiB, a small part of what the block itself takes) and one sequence of the longest kind. */
int64_t sequence_store_tokens(int32_t capacity, int32_t longest_sequence, int64_t kv_blocks);

/* What sequence_store_open takes. Texts, log-probabilities and logit_bias come on top as they are used: a few bytes
 * per new token, 8 for each log-probability, 8 for each biased token. */
uint64_t sequence_store_bytes(int32_t capacity, int64_t arena_tokens);

/* Opens a zeroed store. After a failure it can be closed. */
int sequence_store_open(struct nj_sequence_store *store, const struct nj_tokenizer *tokenizer, int32_t capacity,
                        int64_t arena_tokens, struct nj_error *error);
void sequence_store_close(struct nj_sequence_store *store);

/* Valid until the sequence is removed. */
struct nj_sequence *sequence_store_at(const struct nj_sequence_store *store, int32_t index);

/* Whether a sequence that may grow to `tokens` tokens can be added now. */
bool sequence_store_has_room(const struct nj_sequence_store *store, int64_t tokens);

/* Copies a request in as the youngest sequence. Its generated tokens are replayed, so that it may be finished
 * at once. There must be room for it, and the request must be valid. -1: no memory; nothing was added. */
int sequence_store_add(struct nj_sequence_store *store, const struct nj_sequence_request *request,
                       struct nj_error *error);

void sequence_store_remove(struct nj_sequence_store *store, int32_t index);

/* Appends a generated token; sets is_finished and finish if the sequence ends with it. */
int sequence_append_token(const struct nj_sequence_store *store, struct nj_sequence *sequence, int32_t token,
                          struct nj_error *error);

/* Makes room for the log-probabilities of the first `count` generated tokens. */
int sequence_reserve_logprobs(struct nj_sequence *sequence, int32_t count, struct nj_error *error);

static inline int32_t sequence_length(const struct nj_sequence *sequence)
{
    return sequence->prompt_count + sequence->generated_count;
}

/* Positions to compute before the next token can be chosen. What follows the last token of a finished sequence is
 * of no interest: such a one is only computed for the log-probabilities of the tokens that it has. */
static inline int32_t sequence_remaining(const struct nj_sequence *sequence)
{
    return sequence_length(sequence) - sequence->is_finished - sequence->computed;
}

/* Whether all is there that its result tells. */
static inline bool sequence_is_complete(const struct nj_sequence *sequence)
{
    return sequence->is_finished && (!sequence->wants_logprobs || sequence->finish == NJ_FINISH_NOT_FINITE ||
                                     sequence->logprob_count == sequence->generated_count);
}

/* Whether the logits of this position are wanted: to choose the next token, or for the log-probability of the token
 * that is there. */
static inline bool sequence_wants_logits(const struct nj_sequence *sequence, int32_t position)
{
    const int32_t next = position + 1;
    return next == sequence_length(sequence) ||
           (sequence->wants_logprobs && next >= sequence->prompt_count + sequence->logprob_count);
}

#endif
