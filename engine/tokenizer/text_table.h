/* A hash table from byte strings to ids. The strings are borrowed and must outlive the table. */
#ifndef NJ_ENGINE_TOKENIZER_TEXT_TABLE_H
#define NJ_ENGINE_TOKENIZER_TEXT_TABLE_H

#include <stddef.h>
#include <stdint.h>

#include "engine/formats/gguf.h"

struct nj_text_slot {
    uint32_t hash;
    int32_t id; /* -1: free */
};

struct nj_text_table {
    const struct nj_text *text; /* by id */
    struct nj_text_slot *slot;
    size_t mask;
};

/* Room for `most` strings, ids being indices into `text`. -1 when out of memory. */
int text_table_create(struct nj_text_table *table, const struct nj_text *text, size_t most);
void text_table_destroy(struct nj_text_table *table);

/* Adds text[id]; an equal string added before is replaced. */
void text_table_add(struct nj_text_table *table, int32_t id);

/* The id of a string, -1 if it is not there. */
int32_t text_table_find(const struct nj_text_table *table, const char *bytes, size_t length);

#endif
