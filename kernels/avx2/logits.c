/* Statistics of a row of logits. */
#include <stddef.h>
#include <string.h>

#include "kernels/avx2/avx2.h"
#include "kernels/avx2/vector.h"

enum { PAIR_FLOATS = 2 * VECTOR_FLOATS };

/* 16 logits from `first`; those past the end read as -infinity. */
NJ_ALWAYS_INLINE const float *load_pair(const float *x, int64_t first, int64_t count, float *padded)
{
    if (count - first >= PAIR_FLOATS)
        return x + first;
    for (int i = 0; i < PAIR_FLOATS; i++)
        padded[i] = first + i < count ? x[first + i] : -INFINITY;
    return padded;
}

static int all_finite(const float *x, int64_t count)
{
    __m256i largest = _mm256_setzero_si256();
    int64_t i = 0;
    for (; i + VECTOR_FLOATS <= count; i += VECTOR_FLOATS) {
        __m256i bits = _mm256_loadu_si256((const __m256i *)(x + i));
        largest = _mm256_max_epi32(largest, _mm256_and_si256(bits, _mm256_set1_epi32(0x7fffffff)));
    }
    int finite = vector_max_integer(largest) < 0x7f800000u;
    for (; i < count; i++)
        finite &= isfinite(x[i]) != 0;
    return finite;
}

static int32_t find_largest(const float *x, int64_t count)
{
    __m256 largest = _mm256_set1_ps(-INFINITY);
    for (int64_t i = 0; i < count; i += PAIR_FLOATS) {
        float padded[PAIR_FLOATS];
        const float *pair = load_pair(x, i, count, padded);
        largest = _mm256_max_ps(largest, _mm256_loadu_ps(pair));
        largest = _mm256_max_ps(largest, _mm256_loadu_ps(pair + VECTOR_FLOATS));
    }
    float max = vector_max_lane(largest);
    int32_t index = 0;
    while (x[index] != max)
        index++;
    return index;
}

static float sum_tile(const float *x, int64_t count, float max)
{
    __m256 partial[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()};
    for (int64_t first = 0; first < count; first += PAIR_FLOATS) {
        float padded[PAIR_FLOATS];
        const float *pair = load_pair(x, first, count, padded);
        for (int i = 0; i < 2; i++) {
            __m256 logit = _mm256_loadu_ps(pair + i * VECTOR_FLOATS);
            partial[i] = _mm256_add_ps(partial[i], vector_exp(_mm256_sub_ps(logit, _mm256_set1_ps(max))));
        }
    }
    return vector_sum_partials(partial[0], partial[1]);
}

static struct nj_logit_stats compute_stats(const float *x, int64_t count)
{
    struct nj_logit_stats stats = {0};
    if (!all_finite(x, count))
        return stats;
    stats.finite = 1;
    stats.argmax = find_largest(x, count);
    stats.max = x[stats.argmax];
    for (int64_t first = 0; first < count; first += NJ_LOGIT_TILE) {
        int64_t rest = count - first;
        stats.sum += sum_tile(x + first, rest < NJ_LOGIT_TILE ? rest : NJ_LOGIT_TILE, stats.max);
    }
    return stats;
}

void avx2_run_logit_stats(const union nj_operation_args *args, int thread, int threads)
{
    const struct nj_logit_stats_args *a = &args->logit_stats;
    int64_t end = vector_share_begin(a->count, thread + 1, threads);
    for (int64_t row = vector_share_begin(a->count, thread, threads); row < end; row++)
        a->out[row] = compute_stats(a->logits + row * a->stride, a->vocabulary);
}
