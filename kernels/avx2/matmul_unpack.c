/* Weights and tokens as the inner loops of matrix products read them. */
#include <stddef.h>
#include <string.h>

#include "kernels/avx2/matmul.h"

/* Of a super-block's scales: 16 rows x 8 groups of 6 bits, and signed bytes for every 16 columns (kernels/matrix.h). */
enum { SIX_BIT_BYTES = 96, SIGNED_BYTES = 256 };

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

/* -128 * the sums of pairs of bytes, each itself a sum of numbers that fits: 8 of -16 .. 15 or 4 of -32 .. 31. */
NJ_ALWAYS_INLINE void store_bias(__m256i sums, int16_t *bias)
{
    __m256i taken = _mm256_maddubs_epi16(_mm256_set1_epi8((char)128), sums);
    _mm256_store_si256((__m256i *)bias, _mm256_sub_epi16(_mm256_setzero_si256(), taken));
}

NJ_ALWAYS_INLINE void unpack_numbers(enum matmul_form form, int bits, int zero_point, const uint8_t *numbers,
                                     struct matmul_weight_group *out)
{
    __m256i sums[2] = {_mm256_setzero_si256(), _mm256_setzero_si256()};
    NJ_UNROLL
    for (int j = 0; j < 8; j++) {
        __m256i n = load_numbers(bits, zero_point, numbers, j);
        _mm256_store_si256((__m256i *)out->numbers[j], n);
        sums[j / 4] = _mm256_add_epi8(sums[j / 4], n);
    }
    if (form == MATMUL_WHOLE)
        store_bias(_mm256_add_epi8(sums[0], sums[1]), out->bias[0]);
    for (int half = 0; half < 2 && form == MATMUL_HALVES; half++)
        store_bias(sums[half], out->bias[half]);
}

/* 6-bit numbers of the 8 rows from `data` on, of one group of a super-block. */
NJ_ALWAYS_INLINE __m256 load_six_bits(const uint8_t *data, int group)
{
    const uint8_t *low_at = data + MATMUL_ROWS * (group % 4), *high_at = data + 64 + MATMUL_ROWS * (group / 4);
    __m256i low = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)low_at));
    __m256i high = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)high_at));
    low = _mm256_and_si256(_mm256_srl_epi32(low, _mm_cvtsi32_si128(4 * (group / 4))), _mm256_set1_epi32(15));
    high = _mm256_and_si256(_mm256_srl_epi32(high, _mm_cvtsi32_si128(2 * (group % 4))), _mm256_set1_epi32(3));
    return _mm256_cvtepi32_ps(_mm256_or_si256(low, _mm256_slli_epi32(high, 4)));
}

/* The signed scales of 16 columns each, or 1; twice for every row: one for each sum of its products. */
NJ_ALWAYS_INLINE void unpack_factors(enum nj_matrix_kind kind, const uint8_t *scales, int16_t factors[2][16])
{
    for (int i = 0; i < 2; i++) {
        __m256i words = _mm256_set1_epi16(1);
        if (kind == NJ_KIND_U6_SUPER) {
            __m128i bytes = _mm_loadl_epi64((const __m128i *)(scales + MATMUL_ROWS * i));
            words = _mm256_cvtepi8_epi16(_mm_unpacklo_epi8(bytes, bytes));
        }
        _mm256_store_si256((__m256i *)factors[i], words);
    }
}

/* Scales and minima of 8 rows, from row 8 * half on, of one group of the block whose scales are given. */
NJ_ALWAYS_INLINE void unpack_scales(const struct nj_matrix_kind_info *info, const uint8_t *scales, int group, int half,
                                    struct matmul_weight_group *out)
{
    const int is_super = info->block_groups > 1;
    const uint8_t *bytes = scales + MATMUL_HALF_ROWS * half;             /* one for each row */
    const uint8_t *words = scales + (size_t)half * MATMUL_HALF_ROWS * 2; /* IEEE halves */
    words += !is_super ? 0 : info->has_minimum ? 2 * SIX_BIT_BYTES : SIGNED_BYTES;
    __m256 d = vector_load_halves((const uint16_t *)words), m = _mm256_setzero_ps();
    if (info->has_minimum)
        m = vector_load_halves((const uint16_t *)(words + 2 * MATMUL_ROWS));
    if (is_super && info->has_minimum) {
        d = _mm256_mul_ps(d, load_six_bits(bytes, group));
        m = _mm256_mul_ps(m, load_six_bits(bytes + SIX_BIT_BYTES, group));
        m = _mm256_xor_ps(m, _mm256_set1_ps(-0.0f));
    }
    _mm256_store_ps(out->scale, d);
    _mm256_store_ps(out->minimum, m);
}

NJ_ALWAYS_INLINE void unpack_groups(enum nj_matrix_kind kind, int bits, int zero_point, const uint8_t *block,
                                    int64_t groups, struct matmul_weights halves[2])
{
    const struct nj_matrix_kind_info *info = matrix_kind_info(kind);
    const enum matmul_form form = matmul_form_of(kind);
    int in_block = 0;
    for (int64_t g = 0; g < groups; g++) {
        const uint8_t *numbers = block + (size_t)in_block * info->quant_bytes;
        const uint8_t *scales = block + (size_t)info->block_groups * info->quant_bytes;
        for (int half = 0; half < 2; half++) {
            struct matmul_weight_group *out = &halves[half].group[MATMUL_LEAD_GROUPS + g];
            unpack_numbers(form, bits, zero_point, numbers + 4 * MATMUL_HALF_ROWS * half, out);
            unpack_scales(info, scales, in_block, half, out);
            if (form == MATMUL_HALVES)
                unpack_factors(kind, scales + 2 * MATMUL_ROWS * in_block + MATMUL_HALF_ROWS * half, out->factors);
        }
        if (++in_block == info->block_groups) {
            in_block = 0;
            block += info->block_bytes;
        }
    }
}

void avx2_unpack_weights(enum nj_matrix_kind kind, const uint8_t *strip, int64_t first_group, int64_t groups,
                         struct matmul_weights halves[2])
{
    const struct nj_matrix_kind_info *info = matrix_kind_info(kind);
    const uint8_t *block = strip + (size_t)(first_group / info->block_groups) * info->block_bytes;
    switch (kind) {
    case NJ_KIND_U4_ZERO8:
        unpack_groups(NJ_KIND_U4_ZERO8, 4, 8, block, groups, halves);
        break;
    case NJ_KIND_U4_MIN:
        unpack_groups(NJ_KIND_U4_MIN, 4, 0, block, groups, halves);
        break;
    case NJ_KIND_U4_SUPER:
        unpack_groups(NJ_KIND_U4_SUPER, 4, 0, block, groups, halves);
        break;
    case NJ_KIND_U5_ZERO16:
        unpack_groups(NJ_KIND_U5_ZERO16, 5, 16, block, groups, halves);
        break;
    case NJ_KIND_U5_MIN:
        unpack_groups(NJ_KIND_U5_MIN, 5, 0, block, groups, halves);
        break;
    case NJ_KIND_U5_SUPER:
        unpack_groups(NJ_KIND_U5_SUPER, 5, 0, block, groups, halves);
        break;
    case NJ_KIND_U6_SUPER:
        unpack_groups(NJ_KIND_U6_SUPER, 6, 32, block, groups, halves);
        break;
    default:
        unpack_groups(NJ_KIND_S8, 8, 0, block, groups, halves);
    }
}

void avx2_unpack_tokens(enum nj_matrix_kind kind, const struct nj_q8 *x, int64_t cols, int64_t first_token,
                        int64_t tokens, int64_t first_group, int64_t groups, struct matmul_tokens *tile)
{
    const int64_t all_groups = cols / MATMUL_COLS;
    const __m256i flipped = _mm256_set1_epi8(matmul_form_of(kind) == MATMUL_SIGNED ? 0 : (char)128); /* adds 128 */
    for (int64_t t = 0; t < tokens; t++) {
        int64_t index = (first_token + t) * all_groups + first_group;
        for (int64_t g = 0; g < groups; g++, index++) {
            struct matmul_token_group *out = &tile->group[MATMUL_LEAD_GROUPS + g];
            __m256i q = _mm256_loadu_si256((const __m256i *)(x->q + index * MATMUL_COLS));
            _mm256_storeu_si256((__m256i *)out->q[t], _mm256_xor_si256(q, flipped));
            out->d[t] = x->d[index];
            out->scaled_sum[t] = x->d[index] * (float)x->sum[index];
        }
    }
}
