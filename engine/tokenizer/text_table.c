#include "engine/tokenizer/text_table.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

int text_table_create(struct nj_text_table *table, const struct nj_text *text, size_t most)
{
    size_t slots = 16;
    while (slots < most * 2) /* at most half full: short probes, and always a free slot to end one */
        slots *= 2;
    table->text = text;
    table->mask = slots - 1;
    table->slot = malloc(slots * sizeof *table->slot);
    if (table->slot == NULL)
        return -1;
    for (size_t i = 0; i < slots; i++)
        table->slot[i].id = -1;
    return 0;
}

void text_table_destroy(struct nj_text_table *table)
{
    free(table->slot);
    *table = (struct nj_text_table){0};
}

/* The slot that holds the string, or the free one where it belongs. */
static struct nj_text_slot *find_slot(const struct nj_text_table *table, const char *bytes, size_t length,
                                      uint32_t *hash)
{
    *hash = (uint32_t)XXH3_64bits(bytes, length);
    for (size_t at = *hash & table->mask;; at = (at + 1) & table->mask) {
        struct nj_text_slot *slot = &table->slot[at];
        if (slot->id < 0)
            return slot;
        const struct nj_text *text = &table->text[slot->id];
        if (slot->hash == *hash && text->length == length && memcmp(text->bytes, bytes, length) == 0)
            return slot;
    }
}

void text_table_add(struct nj_text_table *table, int32_t id)
{
    uint32_t hash;
    struct nj_text_slot *slot = find_slot(table, table->text[id].bytes, table->text[id].length, &hash);
    *slot = (struct nj_text_slot){hash, id};
}

int32_t text_table_find(const struct nj_text_table *table, const char *bytes, size_t length)
{
    uint32_t hash;
    return find_slot(table, bytes, length, &hash)->id;
}
