#include "engine/sweep/kv_cache.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/kv_block.h"

struct nj_kv_cache {
    struct nj_buffer *memory;
    struct nj_block_pool *blocks;
    enum nj_kv_type type;
    int32_t kv_heads, head_width;
    uint64_t layer_bytes, block_bytes;
};

static const enum nj_kv_type default_type = NJ_KV_Q8;
static const char *const type_names[] = {[NJ_KV_F16] = "f16", [NJ_KV_Q8] = "q8", [NJ_KV_F32] = "f32"};

int kv_type_find(const char *name, enum nj_kv_type *out)
{
    if (name == NULL)
        *out = default_type;
    else if (strcmp(name, type_names[NJ_KV_F16]) == 0)
        *out = NJ_KV_F16;
    else if (strcmp(name, type_names[NJ_KV_Q8]) == 0)
        *out = NJ_KV_Q8;
    else
        return -1;
    return 0;
}

const char *kv_type_name(enum nj_kv_type type)
{
    return type_names[type];
}

/* One layer's part of a block. */
static uint64_t layer_bytes(const struct nj_hyperparameters *shape, enum nj_kv_type type)
{
    return (uint64_t)shape->kv_heads * (uint64_t)kv_head_bytes(type, shape->head_width);
}

uint64_t kv_block_bytes(const struct nj_hyperparameters *shape, enum nj_kv_type type)
{
    return (uint64_t)shape->layers * layer_bytes(shape, type);
}

int64_t kv_blocks_for_tokens(int64_t tokens)
{
    return (tokens + NJ_KV_BLOCK_TOKENS - 1) / NJ_KV_BLOCK_TOKENS;
}

uint64_t kv_cache_bytes(const struct nj_hyperparameters *shape, enum nj_kv_type type, int64_t blocks)
{
    return sizeof(struct nj_kv_cache) + block_pool_bytes(blocks) + (uint64_t)blocks * kv_block_bytes(shape, type);
}

struct nj_kv_cache *kv_cache_create(struct nj_device *device, const struct nj_hyperparameters *shape,
                                    enum nj_kv_type type, int64_t blocks, struct nj_error *error)
{
    uint64_t block_bytes = kv_block_bytes(shape, type);
    if (blocks < 1 || blocks > INT32_MAX || (uint64_t)blocks > SIZE_MAX / 2 / block_bytes) {
        error_set(error, NJ_DOES_NOT_FIT, "a KV cache of %lld blocks is not possible", (long long)blocks);
        return NULL;
    }
    struct nj_kv_cache *cache = malloc(sizeof *cache);
    struct nj_block_pool *pool = block_pool_create(blocks);
    struct nj_buffer *memory = buffer_create(device, (uint64_t)blocks * block_bytes);
    if (cache == NULL || pool == NULL || memory == NULL) {
        error_set(error, NJ_DOES_NOT_FIT, "no memory for a KV cache of %llu bytes; use a smaller --kv-memory",
                  (unsigned long long)kv_cache_bytes(shape, type, blocks));
        buffer_destroy(memory);
        block_pool_destroy(pool);
        free(cache);
        return NULL;
    }
    *cache = (struct nj_kv_cache){.memory = memory,
                                  .blocks = pool,
                                  .type = type,
                                  .kv_heads = shape->kv_heads,
                                  .head_width = shape->head_width,
                                  .layer_bytes = layer_bytes(shape, type),
                                  .block_bytes = block_bytes};
    return cache;
}

void kv_cache_destroy(struct nj_kv_cache *cache)
{
    if (cache == NULL)
        return;
    buffer_destroy(cache->memory);
    block_pool_destroy(cache->blocks);
    free(cache);
}

struct nj_block_pool *kv_cache_blocks(const struct nj_kv_cache *cache)
{
    return cache->blocks;
}

struct nj_kv_layer kv_cache_layer(const struct nj_kv_cache *cache, int layer)
{
    char *base = buffer_address(cache->memory);
    return (struct nj_kv_layer){.type = cache->type,
                                .base = base + (uint64_t)layer * cache->layer_bytes,
                                .block_stride_bytes = (int64_t)cache->block_bytes,
                                .kv_heads = cache->kv_heads,
                                .head_width = cache->head_width};
}
