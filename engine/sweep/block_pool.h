/* The blocks of a KV cache as numbers: who holds which, and which hold the beginning of a prompt.
 *
 * A block is free, held (by one or more sequences), or cached: it holds the beginning of some prompt, nobody needs it
 * now, and it stays until the pool has no free block left. Published blocks form chains: a block is found by its
 * parent, the block of the 64 tokens before, and by its own 64 tokens, which are compared; their hash only leads to
 * them. Who holds a published block holds its parent too, and gives it back after the block. So a parent is never
 * cached for longer than a child of it, and the block that has been cached for the longest, which is taken first,
 * has no children.
 *
 * All memory is taken at creation. One thread at a time. */
#ifndef NJ_ENGINE_SWEEP_BLOCK_POOL_H
#define NJ_ENGINE_SWEEP_BLOCK_POOL_H

#include <stdbool.h>
#include <stdint.h>

enum { NJ_NO_BLOCK = -1 };

struct nj_block_pool;

uint64_t block_pool_bytes(int64_t blocks);
/* 1 to INT32_MAX blocks, all free. NULL: no memory. */
struct nj_block_pool *block_pool_create(int64_t blocks);
void block_pool_destroy(struct nj_block_pool *pool);

/* Blocks that can be taken: free and cached ones. */
int64_t block_pool_available(const struct nj_block_pool *pool);

/* A block to write to, held once; a cached one is forgotten for it if there is no free one. Or NJ_NO_BLOCK. */
int32_t block_pool_take(struct nj_block_pool *pool);
/* One holder more for a block that is held or published. */
void block_pool_hold(struct nj_block_pool *pool, int32_t block);
/* One holder less. */
void block_pool_give_back(struct nj_block_pool *pool, int32_t block);

/* The published block with these 64 tokens behind `parent` (NJ_NO_BLOCK: at the beginning), or NJ_NO_BLOCK. */
int32_t block_pool_find(const struct nj_block_pool *pool, int32_t parent, const int32_t *tokens);
/* Lets a held block be found; `parent` must be published or NJ_NO_BLOCK. False: an equal one is published already. */
bool block_pool_publish(struct nj_block_pool *pool, int32_t block, int32_t parent, const int32_t *tokens);
/* Takes the publication of a held block back; it must be nobody's parent. */
void block_pool_withdraw(struct nj_block_pool *pool, int32_t block);

#endif
