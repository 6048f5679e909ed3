/* The vectors of the AVX-VNNI table: a lane for every row of half a strip. Compiled for AVX-512VL and VNNI instead, the
 * same source becomes EVEX instructions, so that machines without AVX-VNNI can test it. */
#ifndef NJ_KERNELS_AVX_VNNI_LANES_H
#define NJ_KERNELS_AVX_VNNI_LANES_H

#include <immintrin.h>
#include <stdint.h>

#include "kernels/avx2/vector.h"

enum {
    LANES = 8,
    /* 16 registers: every token of a tile takes two for its products and two for its sums, and where halves of a group
     * are kept apart two more. */
    TILE_TOKENS = 3,
    HALVES_TILE_TOKENS = 2,
    PACKED_TILE_TOKENS = 2 /* leaves room for what unpacking takes */
};

#define NJ_EACH_PACKED_TILE(tile) tile(1) tile(2)
#define NJ_EACH_HALVES_TILE(tile) tile(1) tile(2)
#define NJ_EACH_TILE(tile) tile(1) tile(2) tile(3)

typedef __m256i lanes_int;
typedef __m256 lanes_float;

#define NJ_LANES(operation) _mm256_##operation
#define NJ_LANES_WHOLE(operation) _mm256_##operation##_si256

NJ_ALWAYS_INLINE lanes_float lanes_load_halves(const uint8_t *halves)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)halves));
}

NJ_ALWAYS_INLINE lanes_int lanes_widen_unsigned(const uint8_t *bytes)
{
    return _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)bytes));
}

NJ_ALWAYS_INLINE lanes_int lanes_widen_signed(const uint8_t *bytes)
{
    return _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)bytes));
}

#include "kernels/vnni/lanes.h"

#endif
