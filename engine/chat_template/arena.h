/* Memory and failure of one compilation or one rendering. Everything allocated lives until arena_free.
 * A failure leaves by longjmp to arena_run, so that the code in between needs no checks: it may therefore
 * hold nothing but arena memory. One arena belongs to one thread. */
#ifndef NJ_ENGINE_CHAT_TEMPLATE_ARENA_H
#define NJ_ENGINE_CHAT_TEMPLATE_ARENA_H

#include <setjmp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/error.h"

struct arena_chunk;

struct arena {
    struct arena_chunk *chunks; /* newest first */
    size_t used_bytes, limit_bytes;
    struct nj_error *error; /* filled before the jump; may be NULL */
    jmp_buf on_failure;
};

void arena_init(struct arena *arena, size_t limit_bytes, struct nj_error *error);
void arena_free(struct arena *arena);

/* Runs `body`; false if it failed (the error is then filled in). Allocation and failure are allowed only
 * inside. */
bool arena_run(struct arena *arena, void (*body)(void *), void *context);

/* Zeroed memory, aligned for any type; fails (jumps) past the limit. */
void *arena_allocate(struct arena *arena, size_t bytes);
void *arena_allocate_array(struct arena *arena, size_t count, size_t item_bytes);

/* A larger copy of an array that grows; the old one stays valid. */
void *arena_grow_array(struct arena *arena, const void *old, size_t old_count, size_t new_count, size_t item_bytes);

/* Fills the error in and jumps. */
_Noreturn void arena_fail(struct arena *arena, enum nj_code code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
