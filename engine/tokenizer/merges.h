/* Byte-pair merges: the table of ranked pairs, and the merging of one piece of text. */
#ifndef NJ_ENGINE_TOKENIZER_MERGES_H
#define NJ_ENGINE_TOKENIZER_MERGES_H

#include <stddef.h>
#include <stdint.h>

#include "engine/base/error.h"

struct nj_ids;

struct nj_merge_slot {
    uint64_t pair; /* left id in the upper half, right id in the lower */
    int32_t rank;  /* -1: free */
    int32_t merged;
};

struct nj_merges {
    int32_t byte_id[256]; /* the token of a single byte, -1: none */
    struct nj_merge_slot *slot;
    size_t mask;
};

/* Makes an empty table with room for `most` pairs. -1 when out of memory. */
int merges_create(struct nj_merges *merges, size_t most);
void merges_destroy(struct nj_merges *merges);

/* Adds a pair; the same pair added before is replaced. Lower ranks merge first. */
void merges_add(struct nj_merges *merges, int32_t left, int32_t right, int32_t rank, int32_t merged);

/* Memory of one running merge, reused from piece to piece. Zero-initialise. */
struct nj_merge_scratch {
    struct nj_merge_symbol *symbol;
    uint64_t *queue;
    size_t capacity; /* in symbols; the queue holds twice as many */
};
void merge_scratch_free(struct nj_merge_scratch *scratch);

/* Appends the ids of one piece: its bytes, merged pair by pair, the lowest rank first and the leftmost of
 * equals. Bytes without a token are left out before merging, as Hugging Face's BPE without an unknown token
 * does. Time n log n; scratch memory 28 bytes per byte of the longest piece. */
int merges_apply(const struct nj_merges *merges, struct nj_merge_scratch *scratch, const char *piece, size_t length,
                 struct nj_ids *ids, struct nj_error *error);

#endif
