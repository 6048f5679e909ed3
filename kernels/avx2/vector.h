/* Vector helpers of the AVX2 kernels. */
#ifndef NJ_KERNELS_AVX2_VECTOR_H
#define NJ_KERNELS_AVX2_VECTOR_H

#include <immintrin.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

enum { VECTOR_FLOATS = 8 };

#define NJ_ALWAYS_INLINE static inline __attribute__((always_inline))

/* Before a loop whose count is known once its function is inlined. */
#ifdef __clang__
#define NJ_UNROLL _Pragma("clang loop unroll(full)")
#else
#define NJ_UNROLL _Pragma("GCC unroll 16")
#endif

/* The first of `count` items that belongs to `thread`; its last one is before the next thread's first. */
NJ_ALWAYS_INLINE int64_t vector_share_begin(int64_t count, int thread, int threads)
{
    return count * thread / threads;
}

/* The same four bytes in every lane. */
NJ_ALWAYS_INLINE __m256i vector_broadcast_bytes(const void *four_bytes)
{
    int32_t four;
    memcpy(&four, four_bytes, sizeof four);
    return _mm256_set1_epi32(four);
}

/* elementary_exp in eight lanes. */
NJ_ALWAYS_INLINE __m256 vector_exp(__m256 x)
{
    const __m256 lowest = _mm256_set1_ps(-87.0f);
    __m256 is_nan = _mm256_cmp_ps(x, x, _CMP_UNORD_Q);
    __m256 is_tiny = _mm256_cmp_ps(x, lowest, _CMP_LT_OQ);
    /* maxps returns its second operand for a NaN, so every lane is a number from here on */
    __m256 clamped = _mm256_min_ps(_mm256_max_ps(x, lowest), _mm256_set1_ps(88.0f));
    __m256 n = _mm256_round_ps(_mm256_mul_ps(clamped, _mm256_set1_ps(0x1.715476p+0f)),
                               _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    __m256 r = _mm256_fmadd_ps(n, _mm256_set1_ps(-0x1.62e43p-1f), clamped);
    r = _mm256_fmadd_ps(n, _mm256_set1_ps(0x1.05c61p-29f), r);
    __m256 p = _mm256_set1_ps(0x1.6a23cep-10f);
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(0x1.123a2p-7f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(0x1.5558f2p-5f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(0x1.555492p-3f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(0x1.fffffcp-2f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f));
    __m256i exponent = _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23);
    __m256 y = _mm256_mul_ps(p, _mm256_castsi256_ps(exponent));
    return _mm256_blendv_ps(_mm256_andnot_ps(is_tiny, y), x, is_nan);
}

/* The fixed tree over 16 partial sums: partials 0..7 in `low`, 8..15 in `high`. */
NJ_ALWAYS_INLINE float vector_sum_partials(__m256 low, __m256 high)
{
    __m256 eight = _mm256_add_ps(low, high);
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}

/* Largest lane; order-free but for the sign of a zero. No lane may be NaN. */
NJ_ALWAYS_INLINE float vector_max_lane(__m256 x)
{
    __m128 four = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(two, _mm_shuffle_ps(two, two, 1)));
}

NJ_ALWAYS_INLINE int32_t vector_sum_integers(__m256i x)
{
    __m128i four = _mm_add_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
    __m128i two = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(two, _mm_shuffle_epi32(two, 0xb1)));
}

/* Largest lane of unsigned integers below 2^31. */
NJ_ALWAYS_INLINE uint32_t vector_max_integer(__m256i x)
{
    __m128i four = _mm_max_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
    __m128i two = _mm_max_epi32(four, _mm_shuffle_epi32(four, 0x4e));
    return (uint32_t)_mm_cvtsi128_si32(_mm_max_epi32(two, _mm_shuffle_epi32(two, 0xb1)));
}

/* Largest of (bits & 0x7fffffff) of `count` floats, a multiple of 8. */
NJ_ALWAYS_INLINE uint32_t vector_magnitude_bits(const float *x, int64_t count)
{
    __m256i largest = _mm256_setzero_si256();
    for (int64_t i = 0; i < count; i += VECTOR_FLOATS) {
        __m256i bits = _mm256_loadu_si256((const __m256i *)(x + i));
        largest = _mm256_max_epi32(largest, _mm256_and_si256(bits, _mm256_set1_epi32(0x7fffffff)));
    }
    return vector_max_integer(largest);
}

/* How numbers whose largest magnitude has these bits become integers within +-levels: x ~ scale * rne(x * inverse).
 * inverse = 0: every integer is 0, either because all are below 2^-100 (scale 0) or because one is not finite (scale
 * NaN; x * inverse is not to be computed then). */
struct vector_scale {
    float scale, inverse;
};

NJ_ALWAYS_INLINE struct vector_scale vector_scale_for(uint32_t magnitude_bits, float levels)
{
    const uint32_t smallest = 0x0d800000u /* 2^-100 */, infinity = 0x7f800000u;
    if (magnitude_bits < smallest || magnitude_bits >= infinity)
        return (struct vector_scale){.scale = magnitude_bits >= infinity ? NAN : 0.0f};
    float largest = _mm_cvtss_f32(_mm_castsi128_ps(_mm_cvtsi32_si128((int32_t)magnitude_bits)));
    return (struct vector_scale){.scale = largest / levels, .inverse = levels / largest};
}

/* rne(x * inverse) in eight lanes, or zeros. */
NJ_ALWAYS_INLINE __m256i vector_quantize(__m256 x, struct vector_scale scale)
{
    if (scale.inverse == 0.0f)
        return _mm256_setzero_si256();
    return _mm256_cvtps_epi32(_mm256_mul_ps(x, _mm256_set1_ps(scale.inverse)));
}

NJ_ALWAYS_INLINE __m256 vector_load_halves(const uint16_t *halves)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)halves));
}

#endif
