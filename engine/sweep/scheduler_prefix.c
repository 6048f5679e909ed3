/* Sequences whose prompts begin alike share the blocks of what is alike. */
#include "engine/sweep/scheduler_internal.h"

static int32_t parent_of(const struct nj_sequence *sequence, int32_t index)
{
    return index == 0 ? NJ_NO_BLOCK : sequence->blocks[index - 1];
}

static const int32_t *tokens_of(const struct nj_sequence *sequence, int32_t index)
{
    return sequence->tokens + (int64_t)index * NJ_KV_BLOCK_TOKENS;
}

void scheduler_take_over_prefix(const struct nj_scheduler *scheduler, struct nj_sequence *sequence)
{
    struct nj_block_pool *pool = kv_cache_blocks(scheduler->cache);
    const int32_t most = (sequence->prompt_count - 1) / NJ_KV_BLOCK_TOKENS;
    int32_t count = 0;
    for (; count < most; count++) {
        const int32_t block = block_pool_find(pool, parent_of(sequence, count), tokens_of(sequence, count));
        if (block == NJ_NO_BLOCK)
            break;
        block_pool_hold(pool, block);
        sequence->blocks[count] = block;
    }
    sequence->blocks_held = sequence->published = count;
    sequence->computed = count * NJ_KV_BLOCK_TOKENS;
}

void scheduler_publish_prefix(const struct nj_scheduler *scheduler, struct nj_sequence *sequence)
{
    const int32_t known = sequence->computed + sequence->rows;
    const int32_t complete = (known < sequence->prompt_count ? known : sequence->prompt_count) / NJ_KV_BLOCK_TOKENS;
    /* Where an equal block is published, this one stays the sequence's own. It is the last block of a prompt of whole
     * blocks, which is computed though it is known. */
    while (sequence->published < complete &&
           block_pool_publish(kv_cache_blocks(scheduler->cache), sequence->blocks[sequence->published],
                              parent_of(sequence, sequence->published), tokens_of(sequence, sequence->published)))
        sequence->published++;
}

void scheduler_withdraw_prefix(const struct nj_scheduler *scheduler, struct nj_sequence *sequence)
{
    while (sequence->published > sequence->computed / NJ_KV_BLOCK_TOKENS)
        block_pool_withdraw(kv_cache_blocks(scheduler->cache), sequence->blocks[--sequence->published]);
}

void scheduler_undo_plan(struct nj_scheduler *scheduler)
{
    /* Youngest first: whoever has taken a block over is younger than who publishes it. */
    for (int32_t i = scheduler->running; i-- > 0;) {
        struct nj_sequence *sequence = sequence_store_at(&scheduler->store, i);
        scheduler_withdraw_prefix(scheduler, sequence);
        if (i >= scheduler->settled)
            scheduler_free_blocks(scheduler, sequence);
    }
    scheduler->running = scheduler->settled;
}
