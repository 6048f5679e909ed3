/* The KV cache: a pool of blocks, each holding 64 positions of all layers of one sequence. */
#ifndef NJ_ENGINE_SWEEP_KV_CACHE_H
#define NJ_ENGINE_SWEEP_KV_CACHE_H

#include "engine/base/error.h"
#include "engine/model/architecture.h"
#include "engine/sweep/block_pool.h"
#include "kernels/device.h"

struct nj_kv_cache;

/* The types a user can choose, by name; NULL is the default one. -1, leaving *out as it was, for any other name. */
int kv_type_find(const char *name, enum nj_kv_type *out);
const char *kv_type_name(enum nj_kv_type type);

/* Bytes of one block for this shape and type, and blocks for so many tokens. */
uint64_t kv_block_bytes(const struct nj_hyperparameters *shape, enum nj_kv_type type);
int64_t kv_blocks_for_tokens(int64_t tokens);

/* Bytes that kv_cache_create takes: the blocks and what is known of each. */
uint64_t kv_cache_bytes(const struct nj_hyperparameters *shape, enum nj_kv_type type, int64_t blocks);

/* A pool of `blocks` blocks in one buffer of the device; memory is touched only when a block is used. */
struct nj_kv_cache *kv_cache_create(struct nj_device *device, const struct nj_hyperparameters *shape,
                                    enum nj_kv_type type, int64_t blocks, struct nj_error *error);
void kv_cache_destroy(struct nj_kv_cache *cache);

/* Which blocks are free, held or kept for prompts to come; the cache's. */
struct nj_block_pool *kv_cache_blocks(const struct nj_kv_cache *cache);
struct nj_kv_layer kv_cache_layer(const struct nj_kv_cache *cache, int layer);

#endif
