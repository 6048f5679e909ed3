#include "engine/tokenizer/merges.h"

#include <stdbool.h>
#include <stdlib.h>

#include "engine/tokenizer/tokenizer.h"

/* A link of the piece's list of symbols, in an array so that its index is its place in the text. */
struct nj_merge_symbol {
    int32_t id;             /* -1: merged into the symbol on its left */
    int32_t previous, next; /* -1: none */
};

int merges_create(struct nj_merges *merges, size_t most)
{
    size_t slots = 16;
    while (slots < most * 2)
        slots *= 2;
    merges->mask = slots - 1;
    merges->slot = malloc(slots * sizeof *merges->slot);
    if (merges->slot == NULL)
        return -1;
    for (size_t i = 0; i < slots; i++)
        merges->slot[i].rank = -1;
    for (int i = 0; i < 256; i++)
        merges->byte_id[i] = -1;
    return 0;
}

void merges_destroy(struct nj_merges *merges)
{
    free(merges->slot);
    merges->slot = NULL;
}

/* The slot that holds the pair, or the free one where it belongs. The table is at most half full. */
static struct nj_merge_slot *find_slot(const struct nj_merges *merges, int32_t left, int32_t right)
{
    uint64_t pair = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    uint64_t hash = pair * UINT64_C(0x9E3779B97F4A7C15);
    hash = (hash ^ hash >> 32) * UINT64_C(0x9E3779B97F4A7C15);
    for (size_t at = (hash >> 32) & merges->mask;; at = (at + 1) & merges->mask) {
        struct nj_merge_slot *slot = &merges->slot[at];
        if (slot->rank < 0 || slot->pair == pair)
            return slot;
    }
}

void merges_add(struct nj_merges *merges, int32_t left, int32_t right, int32_t rank, int32_t merged)
{
    uint64_t pair = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    *find_slot(merges, left, right) = (struct nj_merge_slot){pair, rank, merged};
}

void merge_scratch_free(struct nj_merge_scratch *scratch)
{
    free(scratch->symbol);
    free(scratch->queue);
    *scratch = (struct nj_merge_scratch){0};
}

static int reserve_scratch(struct nj_merge_scratch *scratch, size_t symbols, struct nj_error *error)
{
    if (symbols <= scratch->capacity)
        return 0;
    if (symbols > INT32_MAX)
        return error_set(error, NJ_BAD_DATA, "a piece of text of %zu bytes without a break is too long; split it",
                         symbols);
    size_t capacity = symbols < 256 ? 256 : symbols;
    merge_scratch_free(scratch);
    scratch->symbol = malloc(capacity * sizeof *scratch->symbol);
    /* Every pair there is at the start, and one more for each merge: it takes one out and puts two in. */
    scratch->queue = malloc(2 * capacity * sizeof *scratch->queue);
    if (scratch->symbol == NULL || scratch->queue == NULL) {
        merge_scratch_free(scratch);
        return error_set(error, NJ_INTERNAL, "out of memory for a piece of text of %zu bytes", symbols);
    }
    scratch->capacity = capacity;
    return 0;
}

/* One piece being merged. The queue is a binary heap of rank << 32 | index of the left symbol: its least
 * entry is the next merge. Entries whose pair has changed since are found out when they come up. */
struct merging {
    const struct nj_merges *merges;
    struct nj_merge_symbol *symbol;
    uint64_t *queue;
    size_t queued;
};

static void sift_down(struct merging *merging, size_t at)
{
    uint64_t *queue = merging->queue, entry = queue[at];
    for (;;) {
        size_t child = 2 * at + 1;
        if (child >= merging->queued)
            break;
        if (child + 1 < merging->queued && queue[child + 1] < queue[child])
            child++;
        if (queue[child] >= entry)
            break;
        queue[at] = queue[child];
        at = child;
    }
    queue[at] = entry;
}

static uint64_t queue_pop(struct merging *merging)
{
    uint64_t least = merging->queue[0];
    merging->queue[0] = merging->queue[--merging->queued];
    if (merging->queued > 0)
        sift_down(merging, 0);
    return least;
}

static void queue_push(struct merging *merging, uint64_t entry)
{
    uint64_t *queue = merging->queue;
    size_t at = merging->queued++;
    for (; at > 0 && queue[(at - 1) / 2] > entry; at = (at - 1) / 2)
        queue[at] = queue[(at - 1) / 2];
    queue[at] = entry;
}

/* The merge of a symbol with the one on its right; NULL if there is none. */
static const struct nj_merge_slot *merge_at(const struct merging *merging, int32_t left)
{
    const struct nj_merge_symbol *symbol = &merging->symbol[left];
    if (symbol->id < 0 || symbol->next < 0)
        return NULL;
    const struct nj_merge_slot *slot = find_slot(merging->merges, symbol->id, merging->symbol[symbol->next].id);
    return slot->rank < 0 ? NULL : slot;
}

static uint64_t queue_entry(const struct nj_merge_slot *slot, int32_t left)
{
    return (uint64_t)(uint32_t)slot->rank << 32 | (uint32_t)left;
}

static void push_merge_at(struct merging *merging, int32_t left)
{
    const struct nj_merge_slot *slot = left < 0 ? NULL : merge_at(merging, left);
    if (slot != NULL)
        queue_push(merging, queue_entry(slot, left));
}

/* Turns bytes into linked symbols; returns how many there are. */
static int32_t link_symbols(struct merging *merging, const char *piece, size_t length)
{
    int32_t count = 0;
    for (size_t i = 0; i < length; i++) {
        int32_t id = merging->merges->byte_id[(unsigned char)piece[i]];
        if (id < 0)
            continue;
        merging->symbol[count] = (struct nj_merge_symbol){id, count - 1, count + 1};
        count++;
    }
    if (count > 0)
        merging->symbol[count - 1].next = -1;
    return count;
}

static void queue_all_pairs(struct merging *merging, int32_t count)
{
    for (int32_t i = 0; i < count; i++) {
        const struct nj_merge_slot *slot = merge_at(merging, i);
        if (slot != NULL)
            merging->queue[merging->queued++] = queue_entry(slot, i);
    }
    for (size_t i = merging->queued / 2; i-- > 0;)
        sift_down(merging, i);
}

static void merge_queued_pairs(struct merging *merging)
{
    while (merging->queued > 0) {
        uint64_t entry = queue_pop(merging);
        int32_t left = (int32_t)(uint32_t)entry;
        const struct nj_merge_slot *slot = merge_at(merging, left);
        if (slot == NULL || queue_entry(slot, left) != entry)
            continue;
        struct nj_merge_symbol *symbol = &merging->symbol[left];
        struct nj_merge_symbol *right = &merging->symbol[symbol->next];
        symbol->id = slot->merged;
        symbol->next = right->next;
        right->id = -1;
        if (symbol->next >= 0)
            merging->symbol[symbol->next].previous = left;
        push_merge_at(merging, symbol->previous);
        push_merge_at(merging, left);
    }
}

int merges_apply(const struct nj_merges *merges, struct nj_merge_scratch *scratch, const char *piece, size_t length,
                 struct nj_ids *ids, struct nj_error *error)
{
    if (reserve_scratch(scratch, length, error) != 0)
        return -1;
    struct merging merging = {merges, scratch->symbol, scratch->queue, 0};
    int32_t count = link_symbols(&merging, piece, length);
    queue_all_pairs(&merging, count);
    merge_queued_pairs(&merging);
    for (int32_t i = count > 0 ? 0 : -1; i >= 0; i = scratch->symbol[i].next)
        if (ids_append(ids, scratch->symbol[i].id, error) != 0)
            return -1;
    return 0;
}
