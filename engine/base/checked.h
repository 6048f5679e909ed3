/* Overflow-checked 64-bit arithmetic for every size that comes from a file or a command line. */
#ifndef NJ_ENGINE_BASE_CHECKED_H
#define NJ_ENGINE_BASE_CHECKED_H

#include <stdbool.h>
#include <stdint.h>

static inline bool checked_add(uint64_t a, uint64_t b, uint64_t *out)
{
    return !__builtin_add_overflow(a, b, out);
}
static inline bool checked_mul(uint64_t a, uint64_t b, uint64_t *out)
{
    return !__builtin_mul_overflow(a, b, out);
}

/* Rounds up to a multiple of `unit` (> 0). */
static inline bool checked_round_up(uint64_t a, uint64_t unit, uint64_t *out)
{
    uint64_t rest = a % unit;
    return rest == 0 ? (*out = a, true) : checked_add(a, unit - rest, out);
}

#endif
