#include "engine/chat_template/arena.h"

#include <stdalign.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LEAST_CHUNK_BYTES = 2048, MOST_CHUNK_BYTES = 32768 };

struct arena_chunk {
    struct arena_chunk *next;
    size_t capacity, used;
    alignas(max_align_t) unsigned char bytes[];
};

void arena_init(struct arena *arena, size_t limit_bytes, struct nj_error *error)
{
    memset(arena, 0, sizeof *arena);
    arena->limit_bytes = limit_bytes;
    arena->error = error;
}

void arena_free(struct arena *arena)
{
    while (arena->chunks != NULL) {
        struct arena_chunk *next = arena->chunks->next;
        free(arena->chunks);
        arena->chunks = next;
    }
}

static struct arena_chunk *add_chunk(struct arena *arena, size_t bytes)
{
    /* As much as there is already: a short conversation should not clear, and drive out of the cache, what a long one
     * needs. */
    size_t usual = arena->used_bytes < LEAST_CHUNK_BYTES  ? LEAST_CHUNK_BYTES
                   : arena->used_bytes > MOST_CHUNK_BYTES ? MOST_CHUNK_BYTES
                                                          : arena->used_bytes;
    bool is_large = bytes > usual / 4;
    size_t capacity = is_large ? bytes : usual;
    struct arena_chunk *chunk = calloc(1, sizeof *chunk + capacity);
    if (chunk == NULL)
        arena_fail(arena, NJ_INTERNAL, "out of memory in a chat template; free some memory and run again");
    chunk->capacity = capacity;
    /* A large block gets a chunk of its own behind the current one, whose rest stays in use. */
    if (is_large && arena->chunks != NULL) {
        chunk->next = arena->chunks->next;
        arena->chunks->next = chunk;
    } else {
        chunk->next = arena->chunks;
        arena->chunks = chunk;
    }
    return chunk;
}

void *arena_allocate(struct arena *arena, size_t bytes)
{
    if (bytes > arena->limit_bytes || arena->used_bytes > arena->limit_bytes - bytes)
        arena_fail(arena, NJ_BAD_DATA, "the chat template needs more than %zu MiB of working memory; shorten the input",
                   arena->limit_bytes >> 20);
    size_t alignment = alignof(max_align_t);
    size_t rounded = (bytes + alignment - 1) / alignment * alignment;
    struct arena_chunk *chunk = arena->chunks;
    if (chunk == NULL || chunk->capacity - chunk->used < rounded)
        chunk = add_chunk(arena, rounded);
    void *memory = chunk->bytes + chunk->used;
    chunk->used += rounded;
    arena->used_bytes += rounded;
    return memory;
}

void *arena_allocate_array(struct arena *arena, size_t count, size_t item_bytes)
{
    if (count > arena->limit_bytes / item_bytes)
        count = arena->limit_bytes / item_bytes + 1; /* past the limit in any case */
    return arena_allocate(arena, count * item_bytes);
}

void *arena_grow_array(struct arena *arena, const void *old, size_t old_count, size_t new_count, size_t item_bytes)
{
    void *grown = arena_allocate_array(arena, new_count, item_bytes);
    if (old_count > 0)
        memcpy(grown, old, old_count * item_bytes);
    return grown;
}

bool arena_run(struct arena *arena, void (*body)(void *), void *context)
{
    if (setjmp(arena->on_failure) != 0)
        return false;
    body(context);
    return true;
}

void arena_fail(struct arena *arena, enum nj_code code, const char *format, ...)
{
    char message[sizeof arena->error->message];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    error_set(arena->error, code, "%s", message);
    longjmp(arena->on_failure, 1);
}
