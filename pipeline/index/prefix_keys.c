#include "pipeline/index/prefix_keys.h"

#include <xxhash.h>

#include "kernels/operations.h"

static uint32_t tokens_of_level(int level)
{
    return (uint32_t)NJ_KV_BLOCK_TOKENS << level;
}

bool prefix_has_level(uint32_t prompt_tokens, int level)
{
    return prompt_tokens > tokens_of_level(level);
}

void prefix_keys_make(const int32_t *tokens, uint32_t count, uint32_t key[NJ_PREFIX_LEVELS])
{
    for (int level = 0; level < NJ_PREFIX_LEVELS; level++) {
        key[level] = 0;
        if (!prefix_has_level(count, level))
            continue;
        const uint32_t hash = (uint32_t)XXH3_64bits(tokens, tokens_of_level(level) * sizeof *tokens);
        key[level] = hash == 0 ? 1 : hash;
    }
}
