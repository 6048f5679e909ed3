#include "engine/sweep/block_pool.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "kernels/operations.h"

struct block {
    int32_t holders;
    bool is_published;
    int32_t next;         /* of the free blocks, or of its bucket if it is published */
    int32_t older, newer; /* its neighbours among the cached blocks */
    int32_t parent;
    uint32_t bucket;
    int32_t tokens[NJ_KV_BLOCK_TOKENS];
};

struct nj_block_pool {
    int64_t available;
    int32_t first_free;
    int32_t oldest, newest; /* of the cached blocks */
    uint32_t buckets;       /* a power of two */
    int32_t *bucket;        /* [buckets] the first block of each; behind the blocks */
    struct block block[];
};

static uint64_t buckets_for(int64_t blocks)
{
    uint64_t buckets = 1;
    while (buckets < (uint64_t)blocks)
        buckets *= 2;
    return buckets;
}

static uint64_t bucket_offset(int64_t blocks)
{
    return sizeof(struct nj_block_pool) + (uint64_t)blocks * sizeof(struct block);
}

uint64_t block_pool_bytes(int64_t blocks)
{
    return bucket_offset(blocks) + buckets_for(blocks) * sizeof(int32_t);
}

struct nj_block_pool *block_pool_create(int64_t blocks)
{
    char *memory = malloc(block_pool_bytes(blocks));
    if (memory == NULL)
        return NULL;
    struct nj_block_pool *pool = (struct nj_block_pool *)memory;
    *pool = (struct nj_block_pool){.available = blocks,
                                   .first_free = 0,
                                   .oldest = NJ_NO_BLOCK,
                                   .newest = NJ_NO_BLOCK,
                                   .buckets = (uint32_t)buckets_for(blocks),
                                   .bucket = (int32_t *)(memory + bucket_offset(blocks))};
    for (int64_t i = 0; i < blocks; i++) {
        struct block *block = &pool->block[i];
        block->holders = 0;
        block->is_published = false;
        block->next = i + 1 < blocks ? (int32_t)(i + 1) : NJ_NO_BLOCK;
    }
    for (uint32_t i = 0; i < pool->buckets; i++)
        pool->bucket[i] = NJ_NO_BLOCK;
    return pool;
}

void block_pool_destroy(struct nj_block_pool *pool)
{
    free(pool);
}

int64_t block_pool_available(const struct nj_block_pool *pool)
{
    return pool->available;
}

static uint32_t bucket_of(const struct nj_block_pool *pool, int32_t parent, const int32_t *tokens)
{
    const uint64_t seed = (uint64_t)(int64_t)parent;
    return (uint32_t)XXH3_64bits_withSeed(tokens, NJ_KV_BLOCK_TOKENS * sizeof *tokens, seed) & (pool->buckets - 1);
}

static void unlink_cached(struct nj_block_pool *pool, int32_t number)
{
    const struct block *block = &pool->block[number];
    if (block->older == NJ_NO_BLOCK)
        pool->oldest = block->newer;
    else
        pool->block[block->older].newer = block->newer;
    if (block->newer == NJ_NO_BLOCK)
        pool->newest = block->older;
    else
        pool->block[block->newer].older = block->older;
}

static void link_cached(struct nj_block_pool *pool, int32_t number)
{
    struct block *block = &pool->block[number];
    block->older = pool->newest;
    block->newer = NJ_NO_BLOCK;
    if (pool->newest == NJ_NO_BLOCK)
        pool->oldest = number;
    else
        pool->block[pool->newest].newer = number;
    pool->newest = number;
}

void block_pool_withdraw(struct nj_block_pool *pool, int32_t number)
{
    struct block *block = &pool->block[number];
    int32_t *link = &pool->bucket[block->bucket];
    while (*link != number)
        link = &pool->block[*link].next;
    *link = block->next;
    block->is_published = false;
}

int32_t block_pool_take(struct nj_block_pool *pool)
{
    int32_t number = pool->first_free;
    if (number != NJ_NO_BLOCK) {
        pool->first_free = pool->block[number].next;
    } else if (pool->oldest != NJ_NO_BLOCK) {
        number = pool->oldest;
        unlink_cached(pool, number);
        block_pool_withdraw(pool, number);
    } else {
        return NJ_NO_BLOCK;
    }
    pool->block[number].holders = 1;
    pool->available--;
    return number;
}

void block_pool_hold(struct nj_block_pool *pool, int32_t number)
{
    struct block *block = &pool->block[number];
    if (block->holders++ > 0)
        return;
    unlink_cached(pool, number);
    pool->available--;
}

void block_pool_give_back(struct nj_block_pool *pool, int32_t number)
{
    struct block *block = &pool->block[number];
    if (--block->holders > 0)
        return;
    pool->available++;
    if (block->is_published) {
        link_cached(pool, number);
        return;
    }
    block->next = pool->first_free;
    pool->first_free = number;
}

int32_t block_pool_find(const struct nj_block_pool *pool, int32_t parent, const int32_t *tokens)
{
    for (int32_t i = pool->bucket[bucket_of(pool, parent, tokens)]; i != NJ_NO_BLOCK; i = pool->block[i].next) {
        const struct block *block = &pool->block[i];
        if (block->parent == parent && memcmp(block->tokens, tokens, sizeof block->tokens) == 0)
            return i;
    }
    return NJ_NO_BLOCK;
}

bool block_pool_publish(struct nj_block_pool *pool, int32_t number, int32_t parent, const int32_t *tokens)
{
    if (block_pool_find(pool, parent, tokens) != NJ_NO_BLOCK)
        return false;
    struct block *block = &pool->block[number];
    block->is_published = true;
    block->parent = parent;
    block->bucket = bucket_of(pool, parent, tokens);
    memcpy(block->tokens, tokens, sizeof block->tokens);
    block->next = pool->bucket[block->bucket];
    pool->bucket[block->bucket] = number;
    return true;
}
