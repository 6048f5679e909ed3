/* Memory of one GGUF reader: taken piece by piece, given back all at once. Zero-initialise. */
#ifndef NJ_ENGINE_FORMATS_GGUF_MEMORY_H
#define NJ_ENGINE_FORMATS_GGUF_MEMORY_H

#include <stddef.h>

struct nj_gguf_memory_block;

struct nj_gguf_memory {
    struct nj_gguf_memory_block *blocks;
};

/* `bytes` of uninitialised memory, aligned for any type; NULL when out of memory. Lives until gguf_memory_free. */
void *gguf_memory_take(struct nj_gguf_memory *memory, size_t bytes);
void gguf_memory_free(struct nj_gguf_memory *memory);

#endif
