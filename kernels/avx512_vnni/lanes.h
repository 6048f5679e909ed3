/* The vectors of the AVX-512 table: a lane for every row of a strip. */
#ifndef NJ_KERNELS_AVX512_VNNI_LANES_H
#define NJ_KERNELS_AVX512_VNNI_LANES_H

#include <immintrin.h>
#include <stdint.h>

#include "kernels/avx2/vector.h"

enum {
    LANES = 16,
    /* 32 registers: every token of a tile takes one for its products and one for its sums, and where halves of a group
     * are kept apart a third. */
    TILE_TOKENS = 12,
    HALVES_TILE_TOKENS = 8,
    PACKED_TILE_TOKENS = 4 /* leaves room for what unpacking takes */
};

#define NJ_EACH_PACKED_TILE(tile) tile(1) tile(2) tile(3) tile(4)
#define NJ_EACH_HALVES_TILE(tile) NJ_EACH_PACKED_TILE(tile) tile(5) tile(6) tile(7) tile(8)
#define NJ_EACH_TILE(tile) NJ_EACH_HALVES_TILE(tile) tile(9) tile(10) tile(11) tile(12)

typedef __m512i lanes_int;
typedef __m512 lanes_float;

#define NJ_LANES(operation) _mm512_##operation
#define NJ_LANES_WHOLE(operation) _mm512_##operation##_si512

NJ_ALWAYS_INLINE lanes_float lanes_load_halves(const uint8_t *halves)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)halves));
}

NJ_ALWAYS_INLINE lanes_int lanes_widen_unsigned(const uint8_t *bytes)
{
    return _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)bytes));
}

NJ_ALWAYS_INLINE lanes_int lanes_widen_signed(const uint8_t *bytes)
{
    return _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)bytes));
}

#include "kernels/vnni/lanes.h"

#endif
