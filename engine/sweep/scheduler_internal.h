/* What the scheduler's files share. Internal to engine/sweep. */
#ifndef NJ_ENGINE_SWEEP_SCHEDULER_INTERNAL_H
#define NJ_ENGINE_SWEEP_SCHEDULER_INTERNAL_H

#include "engine/sweep/sequence_store.h"

struct nj_scheduler {
    struct nj_scheduler_options options;
    struct nj_scheduler_callbacks callbacks;
    int32_t vocabulary;
    struct nj_kv_cache *cache;
    struct nj_forward *forward;
    struct nj_sampler *sampler;
    struct nj_sequence_store store;

    /* The sequences that hold KV blocks are the `running` oldest. The others wait: preempted ones, then those that
     * have been pulled and never ran (more than one only after an abandoned sweep). */
    int32_t running;
    int32_t settled; /* of them, those that were running before this sweep let others in */
    bool no_more;    /* `next` has said so */

    int32_t budget_left; /* rows of the sweep being planned */
    uint64_t finished_new_tokens;
    struct nj_scheduler_counts counts;
};

/* Decides how many rows each running sequence gets in the next sweep: decode rows, prefill chunks, sequences
 * that come (back) in; takes KV blocks for them and preempts where none is left. May call `next`. Stops early
 * when a pulled request turns out to be finished: deliver it and plan again. */
int scheduler_plan_sweep(struct nj_scheduler *scheduler, struct nj_error *error);

/* Gives a sequence's KV blocks back; its tokens stay. */
void scheduler_free_blocks(struct nj_scheduler *scheduler, struct nj_sequence *sequence);

/* Shared prefixes (scheduler_prefix.c). A block of 64 prompt tokens is published as soon as a sweep is planned that
 * completes it, and may be taken over by sequences that come in in the same sweep: in every layer the keys and values
 * of all rows are stored before any row reads them. Tokens that were generated are never published. */

/* A waiting sequence holds the longest chain of published blocks that its prompt begins with, and has them as
 * computed. Its last prompt token stays out, because its logits are wanted. */
void scheduler_take_over_prefix(const struct nj_scheduler *scheduler, struct nj_sequence *sequence);

/* Publishes the prompt's blocks that are complete when the sequence's planned rows have been computed. */
void scheduler_publish_prefix(const struct nj_scheduler *scheduler, struct nj_sequence *sequence);

/* Takes back the publication of blocks that have not been computed after all. */
void scheduler_withdraw_prefix(const struct nj_scheduler *scheduler, struct nj_sequence *sequence);

/* The planned sweep will not be run, or was abandoned: whatever relies on it is undone, and the sequences that it let
 * in wait again. */
void scheduler_undo_plan(struct nj_scheduler *scheduler);

#endif
