/* The index: what stays in memory of each request while a job runs. Every record of the input has an entry, bad
 * lines too, in input order. An entry takes 40 bytes and its place in the hash table less than 8; the table is
 * dropped before the order of work (4 bytes each, and 4 more while it is made) is, so that at most 48 bytes per
 * request are held. */
#ifndef NJ_PIPELINE_INDEX_INDEX_H
#define NJ_PIPELINE_INDEX_INDEX_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/error.h"

enum nj_entry_kind {
    NJ_ENTRY_REQUEST,
    NJ_ENTRY_BAD,       /* an error record */
    NJ_ENTRY_DUPLICATE, /* a valid or invalid line whose id an earlier line has */
    NJ_ENTRY_LONG       /* a line longer than NJ_LINE_BYTES_MOST */
};

struct nj_index_entry {
    uint64_t id_hash; /* low half of the id's digest */
    uint64_t digest;  /* low half of the request's or bad line's digest */
    uint32_t offset_low;
    uint32_t offset_high : 12, file : 20;
    uint32_t line_low;
    uint32_t line_high : 4, length : 26, kind : 2;
    uint32_t prompt_tokens : 24, attempts : 6, resumed : 1, own_id : 1; /* own_id: the line gives its id */
    /* cut: its answer ended for its length. retried: its attempts so far do not count. more_samples: sequences that it
     * needs beside the first. */
    uint32_t max_new_tokens : 24, done : 1, failed : 1, cut : 1, retried : 1, more_samples : 4;
};
enum { NJ_ENTRY_ATTEMPTS_MOST = 63, NJ_ENTRY_TOKENS_MOST = (1 << 24) - 1 };
static_assert(sizeof(struct nj_index_entry) == 40, "the index must stay small");

static inline uint64_t index_entry_offset(const struct nj_index_entry *entry)
{
    return (uint64_t)entry->offset_high << 32 | entry->offset_low;
}
static inline uint64_t index_entry_line(const struct nj_index_entry *entry)
{
    return (uint64_t)entry->line_high << 32 | entry->line_low;
}
/* Sequences that the request needs. */
static inline uint32_t index_entry_samples(const struct nj_index_entry *entry)
{
    return entry->more_samples + 1u;
}
/* false: the numbers are beyond what an entry holds (16 TiB, 64 Gi lines). */
bool index_entry_set_place(struct nj_index_entry *entry, uint32_t file, uint64_t line, uint64_t offset, size_t length);

enum { NJ_INDEX_NONE = -1, NJ_INDEX_ENTRIES_MOST = INT32_MAX };

struct nj_index;

/* `id_hash_bits` is 64; tests use fewer to have collisions. NULL: out of memory. */
struct nj_index *index_create(int id_hash_bits);
void index_destroy(struct nj_index *index);

/* Makes room in the hash table for so many entries at once. */
int index_reserve(struct nj_index *index, uint64_t count, struct nj_error *error);
int index_add(struct nj_index *index, const struct nj_index_entry *entry, struct nj_error *error);
uint32_t index_count(const struct nj_index *index);
struct nj_index_entry *index_at(struct nj_index *index, uint32_t position);

/* What of an id's hash the index compares. */
uint64_t index_hash(const struct nj_index *index, uint64_t id_hash);

/* The entries with this id hash, one after another: *cursor begins at 0. A position or NJ_INDEX_NONE. They may
 * have different ids: compare. */
int64_t index_find(const struct nj_index *index, uint64_t id_hash, uint64_t *cursor);

/* Frees the hash table; index_find and index_add must not be called any more. */
void index_drop_table(struct nj_index *index);
size_t index_bytes(const struct nj_index *index);

#endif
