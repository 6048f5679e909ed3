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

/* 6-bit numbers of the 16 rows, of one group of a super-block. */
NJ_ALWAYS_INLINE __m128i load_six_bits(const uint8_t *data, int group)
{
    __m128i low = _mm_loadu_si128((const __m128i *)(data + MATMUL_ROWS * (group % 4)));
    __m128i high = _mm_loadu_si128((const __m128i *)(data + 64 + MATMUL_ROWS * (group / 4)));
    low = _mm_and_si128(_mm_srl_epi16(low, _mm_cvtsi32_si128(4 * (group / 4))), _mm_set1_epi8(15));
    high = _mm_and_si128(_mm_srl_epi16(high, _mm_cvtsi32_si128(2 * (group % 4))), _mm_set1_epi8(3));
    return _mm_or_si128(low, _mm_slli_epi16(high, 4));
}

/* What a super-block's scale and minimum are multiplied by in one group: whole numbers, one for each row of a strip. */
struct matmul_group_scales {
    __m128i scale, minimum;
};

NJ_ALWAYS_INLINE int has_six_bit_scales(const struct nj_matrix_kind_info *info)
{
    return info->block_groups > 1 && info->has_minimum;
}

/* Of one group of the block whose scales are given; zeros where the kind has none. */
NJ_ALWAYS_INLINE struct matmul_group_scales load_group_scales(const struct nj_matrix_kind_info *info,
                                                              const uint8_t *scales, int group)
{
    if (!has_six_bit_scales(info))
        return (struct matmul_group_scales){_mm_setzero_si128(), _mm_setzero_si128()};
    return (struct matmul_group_scales){load_six_bits(scales, group),
                                        load_six_bits(scales + MATMUL_SIX_BIT_BYTES, group)};
}

/* Of 8 rows and 32 columns. */
struct matmul_scales {
    __m256 scale, minimum; /* minimum: 0 where the kind has none */
};

NJ_ALWAYS_INLINE __m256 multiply_by_bytes(__m256 x, __m128i bytes, int half)
{
    __m128i eight = half == 0 ? bytes : _mm_unpackhi_epi64(bytes, bytes);
    return _mm256_mul_ps(x, _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(eight)));
}

/* Of half a strip, the rows from 8 * half on. */
NJ_ALWAYS_INLINE struct matmul_scales load_scales(const struct nj_matrix_kind_info *info, const uint8_t *scales,
                                                  struct matmul_group_scales of_group, int half)
{
    const uint8_t *words = scales + (size_t)half * MATMUL_HALF_ROWS * 2; /* IEEE halves */
    words += info->block_groups == 1 ? 0 : info->has_minimum ? 2 * MATMUL_SIX_BIT_BYTES : MATMUL_SIGNED_BYTES;
    struct matmul_scales out = {vector_load_halves((const uint16_t *)words), _mm256_setzero_ps()};
    if (info->has_minimum)
        out.minimum = vector_load_halves((const uint16_t *)(words + 2 * MATMUL_ROWS));
    if (has_six_bit_scales(info)) {
        out.scale = multiply_by_bytes(out.scale, of_group.scale, half);
        out.minimum = multiply_by_bytes(out.minimum, of_group.minimum, half);
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
