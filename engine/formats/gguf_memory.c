#include "engine/formats/gguf_memory.h"

#include <stdalign.h>
#include <stdint.h>
#include <stdlib.h>

enum { BLOCK_BYTES = 64 * 1024, ALIGNMENT = alignof(max_align_t) };

struct nj_gguf_memory_block {
    struct nj_gguf_memory_block *next;
    size_t used, capacity;
    alignas(max_align_t) unsigned char bytes[];
};

void *gguf_memory_take(struct nj_gguf_memory *memory, size_t bytes)
{
    if (bytes > SIZE_MAX / 2)
        return NULL;
    size_t rounded = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    struct nj_gguf_memory_block *block = memory->blocks;
    if (block == NULL || block->capacity - block->used < rounded) {
        size_t capacity = rounded > BLOCK_BYTES ? rounded : BLOCK_BYTES;
        block = malloc(sizeof *block + capacity);
        if (block == NULL)
            return NULL;
        *block = (struct nj_gguf_memory_block){.next = memory->blocks, .capacity = capacity};
        memory->blocks = block;
    }
    void *taken = block->bytes + block->used;
    block->used += rounded;
    return taken;
}

void gguf_memory_free(struct nj_gguf_memory *memory)
{
    while (memory->blocks != NULL) {
        struct nj_gguf_memory_block *block = memory->blocks;
        memory->blocks = block->next;
        free(block);
    }
}
