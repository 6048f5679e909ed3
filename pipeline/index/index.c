#include "pipeline/index/index.h"

#include <stdlib.h>

enum { CHUNK_ENTRIES = 4096, FIRST_TABLE_SLOTS = 1024 };

/* Entries live in chunks, so that growing neither copies nor leaves half the memory unused. The table holds
 * position + 1 in open addressing; growing frees the old one first, since the entries have all that is needed to fill
 * the new one. It is at most 3/4 full, since a search that finds nothing looks at all its neighbours, each of which
 * is an access to memory; growing by less than a half keeps its share of an entry below 8 bytes all the same. */
struct nj_index {
    int id_hash_bits;
    struct nj_index_entry **chunks;
    size_t chunk_count, chunk_capacity;
    uint32_t count;
    uint32_t *table;
    uint64_t slots;
};

bool index_entry_set_place(struct nj_index_entry *entry, uint32_t file, uint64_t line, uint64_t offset, size_t length)
{
    if (file >= 1u << 20 || line >> 36 != 0 || offset >> 44 != 0 || length >> 26 != 0)
        return false;
    entry->file = file & 0xFFFFF;
    entry->line_low = (uint32_t)line;
    entry->line_high = (uint32_t)(line >> 32) & 0xF;
    entry->offset_low = (uint32_t)offset;
    entry->offset_high = (uint32_t)(offset >> 32) & 0xFFF;
    entry->length = (uint32_t)length & 0x3FFFFFF;
    return true;
}

struct nj_index *index_create(int id_hash_bits)
{
    struct nj_index *index = calloc(1, sizeof *index);
    if (index == NULL)
        return NULL;
    index->id_hash_bits = id_hash_bits;
    index->slots = FIRST_TABLE_SLOTS;
    index->table = calloc(index->slots, sizeof *index->table);
    if (index->table == NULL) {
        free(index);
        return NULL;
    }
    return index;
}

void index_destroy(struct nj_index *index)
{
    if (index == NULL)
        return;
    for (size_t i = 0; i < index->chunk_count; i++)
        free(index->chunks[i]);
    free(index->chunks);
    free(index->table);
    free(index);
}

uint32_t index_count(const struct nj_index *index)
{
    return index->count;
}

struct nj_index_entry *index_at(struct nj_index *index, uint32_t position)
{
    return &index->chunks[position / CHUNK_ENTRIES][position % CHUNK_ENTRIES];
}

uint64_t index_hash(const struct nj_index *index, uint64_t id_hash)
{
    return index->id_hash_bits >= 64 ? id_hash : id_hash & ((UINT64_C(1) << index->id_hash_bits) - 1);
}

/* The slot a hash begins at; the number of slots need not be a power of two. The multiplier
 * spreads the short hashes that tests use. */
static uint64_t first_slot(const struct nj_index *index, uint64_t hash)
{
    uint64_t spread = hash * UINT64_C(0x9E3779B97F4A7C15) >> 33;
    return spread * index->slots >> 31; /* slots < 2^33, since positions have 32 bits */
}

static void table_put(struct nj_index *index, uint32_t position)
{
    uint64_t slot = first_slot(index, index_at(index, position)->id_hash);
    while (index->table[slot] != 0)
        slot = slot + 1 == index->slots ? 0 : slot + 1;
    index->table[slot] = position + 1;
}

static int set_slots(struct nj_index *index, uint64_t slots, struct nj_error *error)
{
    free(index->table);
    index->slots = slots;
    index->table = calloc(index->slots, sizeof *index->table);
    if (index->table == NULL)
        return error_set(error, NJ_INTERNAL, "out of memory for an index of %u requests", index->count);
    for (uint32_t i = 0; i < index->count; i++)
        table_put(index, i);
    return 0;
}

int index_reserve(struct nj_index *index, uint64_t count, struct nj_error *error)
{
    if (count > NJ_INDEX_ENTRIES_MOST)
        return error_set(error, NJ_BAD_DATA, "more than %d requests: split the job", NJ_INDEX_ENTRIES_MOST);
    uint64_t slots = count + count / 8 * 7 + FIRST_TABLE_SLOTS;
    return slots > index->slots ? set_slots(index, slots, error) : 0;
}

static int add_chunk(struct nj_index *index, struct nj_error *error)
{
    if (index->chunk_count == index->chunk_capacity) {
        size_t capacity = index->chunk_capacity == 0 ? 64 : 2 * index->chunk_capacity;
        struct nj_index_entry **grown = realloc(index->chunks, capacity * sizeof *grown);
        if (grown == NULL)
            return error_set(error, NJ_INTERNAL, "out of memory for the index");
        index->chunks = grown;
        index->chunk_capacity = capacity;
    }
    struct nj_index_entry *chunk = malloc(CHUNK_ENTRIES * sizeof *chunk);
    if (chunk == NULL)
        return error_set(error, NJ_INTERNAL, "out of memory for an index of %u requests", index->count);
    index->chunks[index->chunk_count++] = chunk;
    return 0;
}

int index_add(struct nj_index *index, const struct nj_index_entry *entry, struct nj_error *error)
{
    if (index->count == NJ_INDEX_ENTRIES_MOST)
        return error_set(error, NJ_BAD_DATA, "more than %d requests: split the job", NJ_INDEX_ENTRIES_MOST);
    if ((uint64_t)(index->count + 1) * 4 > index->slots * 3 &&
        set_slots(index, index->slots + index->slots / 32 * 15, error) != 0)
        return -1;
    if (index->count == index->chunk_count * CHUNK_ENTRIES && add_chunk(index, error) != 0)
        return -1;
    struct nj_index_entry *added = index_at(index, index->count++);
    *added = *entry;
    added->id_hash = index_hash(index, entry->id_hash);
    table_put(index, index->count - 1);
    return 0;
}

int64_t index_find(const struct nj_index *index, uint64_t id_hash, uint64_t *cursor)
{
    uint64_t hash = index_hash(index, id_hash);
    uint64_t slot = (first_slot(index, hash) + *cursor) % index->slots;
    for (; index->table[slot] != 0; slot = slot + 1 == index->slots ? 0 : slot + 1) {
        uint32_t position = index->table[slot] - 1;
        ++*cursor;
        if (index->chunks[position / CHUNK_ENTRIES][position % CHUNK_ENTRIES].id_hash == hash)
            return position;
    }
    return NJ_INDEX_NONE;
}

void index_drop_table(struct nj_index *index)
{
    free(index->table);
    index->table = NULL;
    index->slots = 0;
}

size_t index_bytes(const struct nj_index *index)
{
    return sizeof *index + index->chunk_capacity * sizeof *index->chunks +
           index->chunk_count * CHUNK_ENTRIES * sizeof(struct nj_index_entry) + index->slots * sizeof *index->table;
}
