#include "engine/tokenizer/piece_cache.h"

#include <assert.h>
#include <string.h>
#include <xxhash.h>

static_assert(sizeof(struct nj_cached_piece) == 48, "part of what a thread's cache takes");

struct nj_cached_piece *piece_cache_slot(struct nj_cached_piece *cache, const char *piece, size_t length)
{
    if (length > NJ_CACHED_PIECE_BYTES)
        return NULL;
    return &cache[XXH3_64bits(piece, length) % NJ_CACHED_PIECES];
}

int piece_cache_holds(const struct nj_cached_piece *slot, const char *piece, size_t length)
{
    return slot->length == length && memcmp(slot->bytes, piece, length) == 0;
}

void piece_cache_put(struct nj_cached_piece *slot, const char *piece, size_t length, const int32_t *id, size_t count)
{
    if (count > NJ_CACHED_PIECE_TOKENS)
        return;
    slot->length = (uint8_t)length;
    slot->count = (uint8_t)count;
    memcpy(slot->bytes, piece, length);
    if (count > 0) /* then `id` may be NULL */
        memcpy(slot->id, id, count * sizeof *id);
}
