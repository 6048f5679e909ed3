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

    /* The sequences that hold KV blocks are the `running` oldest. The others wait: preempted ones, then at most
     * one that has been pulled and never ran. */
    int32_t running;
    bool no_more; /* `next` has said so */

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

#endif
