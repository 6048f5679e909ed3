/* Norm, quantisation and gated SiLU, 32 columns at a time. Widths that are no multiple of 32 have no
 * quantised form and do not occur in models: they go to the plain kernels. */
#include <stddef.h>
#include <string.h>

#include "kernels/avx2/avx2.h"
#include "kernels/avx2/vector.h"
#include "kernels/reference/reference.h"

enum { GROUP_VECTORS = NJ_GROUP_COLS / VECTOR_FLOATS };

struct group {
    __m256 x[GROUP_VECTORS];
};

NJ_ALWAYS_INLINE struct group load_group(const float *x)
{
    struct group group;
    for (int i = 0; i < GROUP_VECTORS; i++)
        group.x[i] = _mm256_loadu_ps(x + i * VECTOR_FLOATS);
    return group;
}

NJ_ALWAYS_INLINE uint32_t largest_magnitude_bits(const struct group *group)
{
    const __m256i mask = _mm256_set1_epi32(0x7fffffff);
    __m256i largest = _mm256_setzero_si256();
    for (int i = 0; i < GROUP_VECTORS; i++)
        largest = _mm256_max_epi32(largest, _mm256_and_si256(_mm256_castps_si256(group->x[i]), mask));
    return vector_max_integer(largest);
}

NJ_ALWAYS_INLINE void quantize_group(const struct group *group, int8_t *q, float *d, int32_t *sum)
{
    struct vector_scale scale = vector_scale_for(largest_magnitude_bits(group), 127.0f);
    *d = scale.scale;
    if (scale.inverse == 0.0f) {
        *sum = 0;
        memset(q, 0, NJ_GROUP_COLS);
        return;
    }
    __m256i n[GROUP_VECTORS];
    for (int i = 0; i < GROUP_VECTORS; i++)
        n[i] = vector_quantize(group->x[i], scale);
    *sum = vector_sum_integers(_mm256_add_epi32(_mm256_add_epi32(n[0], n[1]), _mm256_add_epi32(n[2], n[3])));
    __m256i bytes = _mm256_packs_epi16(_mm256_packs_epi32(n[0], n[1]), _mm256_packs_epi32(n[2], n[3]));
    /* packs work within 128-bit halves: put the groups of four bytes back in order */
    bytes = _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    _mm256_storeu_si256((__m256i *)q, bytes);
}

NJ_ALWAYS_INLINE void store_group(const struct nj_activation *out, int64_t width, int64_t row, int64_t column,
                                  const struct group *group)
{
    int64_t index = row * width + column;
    if (out->f32 != NULL)
        for (int i = 0; i < GROUP_VECTORS; i++)
            _mm256_storeu_ps(out->f32 + index + i * VECTOR_FLOATS, group->x[i]);
    if (out->q8.q != NULL)
        quantize_group(group, out->q8.q + index, out->q8.d + index / NJ_GROUP_COLS,
                       out->q8.sum + index / NJ_GROUP_COLS);
}

static float inverse_rms(const float *x, int64_t width, float epsilon)
{
    __m256 low = _mm256_setzero_ps(), high = _mm256_setzero_ps();
    for (int64_t i = 0; i < width; i += 2 * VECTOR_FLOATS) {
        __m256 a = _mm256_loadu_ps(x + i), b = _mm256_loadu_ps(x + i + VECTOR_FLOATS);
        low = _mm256_fmadd_ps(a, a, low);
        high = _mm256_fmadd_ps(b, b, high);
    }
    float mean = vector_sum_partials(low, high) / (float)width;
    return 1.0f / sqrtf(mean + epsilon);
}

void avx2_run_rms_norm(const union nj_operation_args *args, int thread, int threads)
{
    const struct nj_rms_norm_args *a = &args->rms_norm;
    if (a->width % NJ_GROUP_COLS != 0) {
        reference_run_rms_norm(args, thread, threads);
        return;
    }
    int64_t end = vector_share_begin(a->count, thread + 1, threads);
    for (int64_t row = vector_share_begin(a->count, thread, threads); row < end; row++) {
        const float *x = a->x + (a->row_index != NULL ? a->row_index[row] : row) * a->width;
        __m256 inverse = _mm256_set1_ps(inverse_rms(x, a->width, a->epsilon));
        for (int64_t column = 0; column < a->width; column += NJ_GROUP_COLS) {
            struct group group = load_group(x + column), weight = load_group(a->weight + column);
            for (int i = 0; i < GROUP_VECTORS; i++)
                group.x[i] = _mm256_mul_ps(_mm256_mul_ps(group.x[i], inverse), weight.x[i]);
            store_group(&a->out, a->width, row, column, &group);
        }
    }
}

void avx2_run_quantize(const union nj_operation_args *args, int thread, int threads)
{
    const struct nj_quantize_args *a = &args->quantize;
    if (a->width % NJ_GROUP_COLS != 0) {
        reference_run_quantize(args, thread, threads);
        return;
    }
    int64_t end = vector_share_begin(a->count, thread + 1, threads);
    for (int64_t row = vector_share_begin(a->count, thread, threads); row < end; row++) {
        for (int64_t column = 0; column < a->width; column += NJ_GROUP_COLS) {
            struct group group = load_group(a->x + row * a->width + column);
            store_group(&a->out, a->width, row, column, &group);
        }
    }
}

NJ_ALWAYS_INLINE __m256 silu(__m256 x)
{
    __m256 negated = _mm256_xor_ps(x, _mm256_set1_ps(-0.0f));
    return _mm256_div_ps(x, _mm256_add_ps(_mm256_set1_ps(1.0f), vector_exp(negated)));
}

void avx2_run_silu_mul(const union nj_operation_args *args, int thread, int threads)
{
    const struct nj_silu_mul_args *a = &args->silu_mul;
    if (a->width % NJ_GROUP_COLS != 0) {
        reference_run_silu_mul(args, thread, threads);
        return;
    }
    int64_t end = vector_share_begin(a->count, thread + 1, threads);
    for (int64_t row = vector_share_begin(a->count, thread, threads); row < end; row++) {
        for (int64_t column = 0; column < a->width; column += NJ_GROUP_COLS) {
            struct group gate = load_group(a->gate + row * a->width + column);
            struct group up = load_group(a->up + row * a->width + column);
            for (int i = 0; i < GROUP_VECTORS; i++)
                gate.x[i] = _mm256_mul_ps(silu(gate.x[i]), up.x[i]);
            store_group(&a->out, a->width, row, column, &gate);
        }
    }
}
