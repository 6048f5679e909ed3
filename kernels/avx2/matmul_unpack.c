/* Weights and tokens as the inner loops of matrix products read them. */
#include <stddef.h>
#include <string.h>

#include "kernels/avx2/matmul_weights.h"

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

NJ_ALWAYS_INLINE void unpack_groups(enum nj_matrix_kind kind, int bits, int zero_point, const uint8_t *block,
                                    int64_t groups, struct matmul_weights halves[2])
{
    const struct nj_matrix_kind_info *info = matrix_kind_info(kind);
    const enum matmul_form form = matmul_form_of(kind);
    struct matmul_block_scales of_block;
    int in_block = 0;
    for (int64_t g = 0; g < groups; g++) {
        const uint8_t *numbers = block + (size_t)in_block * info->quant_bytes;
        const uint8_t *scales = block + (size_t)info->block_groups * info->quant_bytes;
        if (in_block == 0)
            load_block_scales(info, scales, &of_block);
        for (int half = 0; half < 2; half++) {
            struct matmul_weight_group *out = &halves[half].group[MATMUL_LEAD_GROUPS + g];
            unpack_numbers(form, bits, zero_point, numbers + 4 * MATMUL_HALF_ROWS * half, out);
            const struct matmul_scales loaded = load_scales(info, scales, &of_block, in_block, half);
            _mm256_store_ps(out->scale, loaded.scale);
            _mm256_store_ps(out->minimum, loaded.minimum);
            for (int last = 0; last < 2 && form == MATMUL_HALVES; last++)
                _mm256_store_si256((__m256i *)out->factors[last], load_factors(kind, scales, in_block, half, last));
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
