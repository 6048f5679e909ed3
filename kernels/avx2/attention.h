/* What the attention kernels share: one block's step of the online softmax. */
#ifndef NJ_KERNELS_AVX2_ATTENTION_H
#define NJ_KERNELS_AVX2_ATTENTION_H

#include "kernels/avx2/vector.h"
#include "kernels/operations.h"

enum { SOFTMAX_STEP = 2 * VECTOR_FLOATS };

void avx2_attend_f16(const struct nj_attention_args *args, int thread, int threads);
void avx2_attend_q8(const struct nj_attention_args *args, int thread, int threads);

/* Turns the scores p[0 .. valid - 1] into their exponentials and joins them to the head's maximum and sum. Returns the
 * factor for what was summed before. p has room for `valid` rounded up to 16; masked keys become exactly 0 there. */
NJ_ALWAYS_INLINE float softmax_join(float *p, int64_t valid, int is_first, float *max_of_head, float *sum_of_head)
{
    int64_t padded = (valid + SOFTMAX_STEP - 1) / SOFTMAX_STEP * SOFTMAX_STEP;
    for (int64_t j = valid; j < padded; j++)
        p[j] = -INFINITY;
    /* maxps returns its second operand for a NaN score: NaNs are passed over */
    __m256 largest = _mm256_set1_ps(is_first ? -INFINITY : *max_of_head);
    for (int64_t j = 0; j < padded; j += VECTOR_FLOATS)
        largest = _mm256_max_ps(_mm256_loadu_ps(p + j), largest);
    float max = vector_max_lane(largest);
    __m256 partial[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()};
    for (int64_t j = 0; j < padded; j += SOFTMAX_STEP) {
        for (int i = 0; i < 2; i++) {
            float *place = p + j + i * VECTOR_FLOATS;
            __m256 y = vector_exp(_mm256_sub_ps(_mm256_loadu_ps(place), _mm256_set1_ps(max)));
            partial[i] = _mm256_add_ps(partial[i], y);
            _mm256_storeu_ps(place, y);
        }
    }
    float block_sum = vector_sum_partials(partial[0], partial[1]);
    float correction = 0.0f;
    if (!is_first)
        correction = _mm256_cvtss_f32(vector_exp(_mm256_set1_ps(*max_of_head - max)));
    *sum_of_head = is_first ? block_sum : fmaf(*sum_of_head, correction, block_sum);
    *max_of_head = max;
    return correction;
}

/* A head's output: its weighted values over the sum of the weights. */
NJ_ALWAYS_INLINE void divide_by_sum(float *out, int64_t width, float sum)
{
    for (int64_t d = 0; d < width; d += VECTOR_FLOATS)
        _mm256_storeu_ps(out + d, _mm256_div_ps(_mm256_loadu_ps(out + d), _mm256_set1_ps(sum)));
}

#endif
