/* The tokens of pieces of text that came lately: most words of a text have been there before, and merging one anew
 * costs several look-ups in large tables. What the cache gives is what the merges gave. For one thread. */
#ifndef NJ_ENGINE_TOKENIZER_PIECE_CACHE_H
#define NJ_ENGINE_TOKENIZER_PIECE_CACHE_H

#include <stddef.h>
#include <stdint.h>

enum { NJ_CACHED_PIECE_BYTES = 18, NJ_CACHED_PIECE_TOKENS = 7, NJ_CACHED_PIECES = 2048 };

/* Zero: nothing. 48 bytes, so that a look-up costs one cache line or two. */
struct nj_cached_piece {
    uint8_t length, count;
    char bytes[NJ_CACHED_PIECE_BYTES];
    int32_t id[NJ_CACHED_PIECE_TOKENS];
};

/* Where the piece belongs among NJ_CACHED_PIECES; NULL: it is too long for any. */
struct nj_cached_piece *piece_cache_slot(struct nj_cached_piece *cache, const char *piece, size_t length);
/* Whether the slot holds it. */
int piece_cache_holds(const struct nj_cached_piece *slot, const char *piece, size_t length);
/* Puts it there in the place of another one; more tokens than a slot takes are left out. */
void piece_cache_put(struct nj_cached_piece *slot, const char *piece, size_t length, const int32_t *id, size_t count);

#endif
