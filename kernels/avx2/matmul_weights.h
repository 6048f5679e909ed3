/* Weights of integer kinds read from where they are packed, into registers: 8 rows, half a strip, at a time. */
#ifndef NJ_KERNELS_AVX2_MATMUL_WEIGHTS_H
#define NJ_KERNELS_AVX2_MATMUL_WEIGHTS_H

#include <stddef.h>

#include "kernels/avx2/matmul.h"

/* The number's fifth bit, bit j of every byte, moved to bit 4. */
NJ_ALWAYS_INLINE __m256i spread_fifth_bit(__m256i bits, int j)
{
    __m256i moved = j < 4 ? _mm256_slli_epi16(bits, 4 - j) : _mm256_srli_epi16(bits, j - 4);
    return _mm256_and_si256(moved, _mm256_set1_epi8(16));
}

/* The upper two bits of columns 4 * j .. 4 * j + 3 of 16, moved to bits 4 and 5 of every byte. */
NJ_ALWAYS_INLINE __m256i spread_two_bits(__m256i bits, int j)
{
    __m256i moved = j < 2 ? _mm256_slli_epi16(bits, 4 - 2 * j) : _mm256_srli_epi16(bits, 2 * j - 4);
    return _mm256_and_si256(moved, _mm256_set1_epi8(0x30));
}

/* Columns 4 * j .. 4 * j + 3 of the 8 rows whose first byte is at `numbers`. */
NJ_ALWAYS_INLINE __m256i load_numbers(int bits, int zero_point, const uint8_t *numbers, int j)
{
    const int low_bytes = MATMUL_ROWS * MATMUL_COLS / 2;
    if (bits == 8)
        return _mm256_loadu_si256((const __m256i *)(numbers + 64 * j));
    __m256i pairs = _mm256_loadu_si256((const __m256i *)(numbers + 64 * (j % 4)));
    __m256i n = _mm256_and_si256(j < 4 ? pairs : _mm256_srli_epi16(pairs, 4), _mm256_set1_epi8(15));
    if (bits == 5)
        n = _mm256_or_si256(n, spread_fifth_bit(_mm256_loadu_si256((const __m256i *)(numbers + low_bytes)), j));
    if (bits == 6) {
        __m256i upper = _mm256_loadu_si256((const __m256i *)(numbers + low_bytes + 64 * (j / 4)));
        n = _mm256_or_si256(n, spread_two_bits(upper, j % 4));
    }
    return zero_point == 0 ? n : _mm256_sub_epi8(n, _mm256_set1_epi8((char)zero_point));
}

/* What a super-block's scales and minima are multiplied by in each of its groups: whole numbers, one for each row of a
 * strip. They are taken apart for all groups at once, which is a quarter of the work. */
struct matmul_block_scales {
    _Alignas(32) uint8_t scale[NJ_SUPER_GROUPS][MATMUL_ROWS], minimum[NJ_SUPER_GROUPS][MATMUL_ROWS];
};

NJ_ALWAYS_INLINE int has_six_bit_scales(const struct nj_matrix_kind_info *info)
{
    return info->block_groups > 1 && info->has_minimum;
}

/* The upper two bits of groups g and g + 1, of four that lie in 16 bytes, moved to bits 4 and 5. */
NJ_ALWAYS_INLINE __m256i upper_bits_of_groups(const uint8_t *four_groups, int g)
{
    __m256i bits = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)four_groups));
    __m256i shifts = _mm256_inserti128_si256(_mm256_set1_epi32(2 * g), _mm_set1_epi32(2 * g + 2), 1);
    bits = _mm256_and_si256(_mm256_srlv_epi32(bits, shifts), _mm256_set1_epi8(3));
    return _mm256_slli_epi16(bits, 4);
}

/* Of two groups, whose lower four bits lie in these bytes' lower (or upper) halves. */
NJ_ALWAYS_INLINE void store_six_bits(__m256i lower, int is_upper_half, __m256i upper, uint8_t out[2][MATMUL_ROWS])
{
    lower = _mm256_and_si256(is_upper_half ? _mm256_srli_epi16(lower, 4) : lower, _mm256_set1_epi8(15));
    _mm256_store_si256((__m256i *)out, _mm256_or_si256(lower, upper));
}

NJ_ALWAYS_INLINE void load_six_bits(const uint8_t *data, uint8_t out[NJ_SUPER_GROUPS][MATMUL_ROWS])
{
    const uint8_t *upper = data + 4 * MATMUL_ROWS;
    __m256i first = _mm256_loadu_si256((const __m256i *)data), second = _mm256_loadu_si256((const __m256i *)data + 1);
    store_six_bits(first, 0, upper_bits_of_groups(upper, 0), &out[0]);
    store_six_bits(second, 0, upper_bits_of_groups(upper, 2), &out[2]);
    store_six_bits(first, 1, upper_bits_of_groups(upper + MATMUL_ROWS, 0), &out[4]);
    store_six_bits(second, 1, upper_bits_of_groups(upper + MATMUL_ROWS, 2), &out[6]);
}

/* Those of a block whose scales are given; nothing where the kind has none. */
NJ_ALWAYS_INLINE void load_block_scales(const struct nj_matrix_kind_info *info, const uint8_t *scales,
                                        struct matmul_block_scales *out)
{
    if (!has_six_bit_scales(info))
        return;
    load_six_bits(scales, out->scale);
    load_six_bits(scales + NJ_SIX_BIT_BYTES, out->minimum);
}

/* Of 8 rows and 32 columns. */
struct matmul_scales {
    __m256 scale, minimum; /* minimum: 0 where the kind has none */
};

NJ_ALWAYS_INLINE __m256 multiply_by_bytes(__m256 x, const uint8_t *eight)
{
    return _mm256_mul_ps(x, _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)eight))));
}

/* Of half a strip, the rows from 8 * half on, in one group of a block. */
NJ_ALWAYS_INLINE struct matmul_scales load_scales(const struct nj_matrix_kind_info *info, const uint8_t *scales,
                                                  const struct matmul_block_scales *of_block, int group, int half)
{
    const uint8_t *words = scales + (size_t)half * MATMUL_HALF_ROWS * 2; /* IEEE halves */
    words += info->block_groups == 1 ? 0 : info->has_minimum ? 2 * NJ_SIX_BIT_BYTES : NJ_SIGNED_BYTES;
    struct matmul_scales out = {vector_load_halves((const uint16_t *)words), _mm256_setzero_ps()};
    if (info->has_minimum)
        out.minimum = vector_load_halves((const uint16_t *)(words + 2 * MATMUL_ROWS));
    if (has_six_bit_scales(info)) {
        out.scale = multiply_by_bytes(out.scale, of_block->scale[group] + MATMUL_HALF_ROWS * half);
        out.minimum = multiply_by_bytes(out.minimum, of_block->minimum[group] + MATMUL_HALF_ROWS * half);
        out.minimum = _mm256_xor_ps(out.minimum, _mm256_set1_ps(-0.0f));
    }
    return out;
}

/* What the sums of products of 16 columns, the group's first or last, are multiplied by: the signed scales of 8 rows,
 * or 1; twice for every row, which has two such sums. */
NJ_ALWAYS_INLINE __m256i load_factors(enum nj_matrix_kind kind, const uint8_t *scales, int group, int half, int last)
{
    if (kind != NJ_KIND_U6_SUPER)
        return _mm256_set1_epi16(1);
    const uint8_t *bytes_at = scales + 2 * MATMUL_ROWS * group + MATMUL_ROWS * last + MATMUL_HALF_ROWS * half;
    __m128i bytes = _mm_loadl_epi64((const __m128i *)bytes_at);
    return _mm256_cvtepi8_epi16(_mm_unpacklo_epi8(bytes, bytes));
}

#endif
