#include <stdlib.h>

#include "engine/tokenizer/tokenizer.h"

void ids_free(struct nj_ids *ids)
{
    free(ids->id);
    *ids = (struct nj_ids){0};
}

int ids_append(struct nj_ids *ids, int32_t id, struct nj_error *error)
{
    if (ids->count == ids->capacity) {
        size_t capacity = ids->capacity == 0 ? 64 : ids->capacity * 2;
        int32_t *grown = realloc(ids->id, capacity * sizeof *grown);
        if (grown == NULL)
            return error_set(error, NJ_INTERNAL, "out of memory for %zu token ids", capacity);
        ids->id = grown;
        ids->capacity = capacity;
    }
    ids->id[ids->count++] = id;
    return 0;
}
