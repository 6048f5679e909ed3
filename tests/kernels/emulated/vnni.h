/* Put in front of the sources of kernels/avx512_vnni and kernels/avx_vnni (-include) to compile them for any machine:
 * their intrinsics become SIMDe's functions or, where SIMDe 0.7.4 has none, plain loops. The functions get other names,
 * so that a program can hold the real ones too; only tests are linked with them. */
#ifndef NJ_TESTS_KERNELS_EMULATED_VNNI_H
#define NJ_TESTS_KERNELS_EMULATED_VNNI_H

#include <immintrin.h> /* before the names below change their meaning */
#include <string.h>

#include <simde/x86/avx512/add.h>
#include <simde/x86/avx512/and.h>
#include <simde/x86/avx512/dpbusd.h>
#include <simde/x86/avx512/fmadd.h>
#include <simde/x86/avx512/loadu.h>
#include <simde/x86/avx512/mul.h>
#include <simde/x86/avx512/or.h>
#include <simde/x86/avx512/set1.h>
#include <simde/x86/avx512/setzero.h>
#include <simde/x86/avx512/sll.h>
#include <simde/x86/avx512/srl.h>
#include <simde/x86/avx512/storeu.h>
#include <simde/x86/avx512/xor.h>

#define avx512_vnni_run_matmul emulated_avx512_vnni_run_matmul
#define avx_vnni_run_matmul emulated_avx_vnni_run_matmul

/* Called, not inlined: the inner loops hold thousands of them, and compilers would take minutes. */
#define NJ_EMULATED static __attribute__((noinline, unused))
#define NJ_EMULATED_1(type, name, type_a)                                                                              \
    NJ_EMULATED type emulated_##name(type_a a)                                                                         \
    {                                                                                                                  \
        return simde_mm512_##name(a);                                                                                  \
    }
#define NJ_EMULATED_2(type, name, type_a, type_b)                                                                      \
    NJ_EMULATED type emulated_##name(type_a a, type_b b)                                                               \
    {                                                                                                                  \
        return simde_mm512_##name(a, b);                                                                               \
    }
#define NJ_EMULATED_3(type, name)                                                                                      \
    NJ_EMULATED type emulated_##name(type a, type b, type c)                                                           \
    {                                                                                                                  \
        return simde_mm512_##name(a, b, c);                                                                            \
    }

NJ_EMULATED_1(simde__m512, loadu_ps, const void *)
NJ_EMULATED_1(simde__m512i, loadu_si512, const void *)
NJ_EMULATED_1(simde__m512, set1_ps, float)
NJ_EMULATED_1(simde__m512i, set1_epi32, int)
NJ_EMULATED_1(simde__m512i, set1_epi8, char)
NJ_EMULATED_2(simde__m512, add_ps, simde__m512, simde__m512)
NJ_EMULATED_2(simde__m512, mul_ps, simde__m512, simde__m512)
NJ_EMULATED_2(simde__m512, xor_ps, simde__m512, simde__m512)
NJ_EMULATED_2(simde__m512i, and_si512, simde__m512i, simde__m512i)
NJ_EMULATED_2(simde__m512i, or_si512, simde__m512i, simde__m512i)
NJ_EMULATED_2(simde__m512i, xor_si512, simde__m512i, simde__m512i)
NJ_EMULATED_2(simde__m512i, sll_epi16, simde__m512i, __m128i)
NJ_EMULATED_2(simde__m512i, sll_epi32, simde__m512i, __m128i)
NJ_EMULATED_2(simde__m512i, srl_epi16, simde__m512i, __m128i)
NJ_EMULATED_2(simde__m512i, srl_epi32, simde__m512i, __m128i)
NJ_EMULATED_3(simde__m512, fmadd_ps)
NJ_EMULATED_3(simde__m512i, dpbusd_epi32)

NJ_EMULATED __m256i emulated_dpbusd_256(__m256i sum, __m256i a, __m256i b)
{
    return simde_mm256_dpbusd_epi32(sum, a, b);
}

/* SIMDe lacks these four. */
NJ_EMULATED simde__m512 emulated_cvtepi32_ps(simde__m512i x)
{
    simde__m512i_private from = simde__m512i_to_private(x);
    simde__m512_private to;
    for (int i = 0; i < 16; i++)
        to.f32[i] = (float)from.i32[i];
    return simde__m512_from_private(to);
}

NJ_EMULATED simde__m512 emulated_cvtph_ps(__m256i x)
{
    simde__m512_private to;
    to.m256[0] = _mm256_cvtph_ps(_mm256_castsi256_si128(x));
    to.m256[1] = _mm256_cvtph_ps(_mm256_extracti128_si256(x, 1));
    return simde__m512_from_private(to);
}

NJ_EMULATED simde__m512i emulated_cvtepu8_epi32(__m128i x)
{
    uint8_t bytes[16];
    simde__m512i_private to;
    memcpy(bytes, &x, sizeof bytes);
    for (int i = 0; i < 16; i++)
        to.i32[i] = bytes[i];
    return simde__m512i_from_private(to);
}

NJ_EMULATED simde__m512i emulated_cvtepi8_epi32(__m128i x)
{
    int8_t bytes[16];
    simde__m512i_private to;
    memcpy(bytes, &x, sizeof bytes);
    for (int i = 0; i < 16; i++)
        to.i32[i] = bytes[i];
    return simde__m512i_from_private(to);
}

#define __m512 simde__m512
#define __m512i simde__m512i
#define _mm512_add_ps emulated_add_ps
#define _mm512_and_si512 emulated_and_si512
#define _mm512_cvtepi32_ps emulated_cvtepi32_ps
#define _mm512_cvtepi8_epi32 emulated_cvtepi8_epi32
#define _mm512_cvtepu8_epi32 emulated_cvtepu8_epi32
#define _mm512_cvtph_ps emulated_cvtph_ps
#define _mm512_dpbusd_epi32 emulated_dpbusd_epi32
#define _mm512_fmadd_ps emulated_fmadd_ps
#define _mm512_loadu_ps emulated_loadu_ps
#define _mm512_loadu_si512 emulated_loadu_si512
#define _mm512_mul_ps emulated_mul_ps
#define _mm512_or_si512 emulated_or_si512
#define _mm512_set1_epi32 emulated_set1_epi32
#define _mm512_set1_epi8 emulated_set1_epi8
#define _mm512_set1_ps emulated_set1_ps
#define _mm512_sll_epi32 emulated_sll_epi32
#define _mm512_srl_epi32 emulated_srl_epi32
#define _mm512_xor_ps emulated_xor_ps
#define _mm512_xor_si512 emulated_xor_si512
#define _mm512_setzero_ps simde_mm512_setzero_ps
#define _mm512_setzero_si512 simde_mm512_setzero_si512
#define _mm512_storeu_ps simde_mm512_storeu_ps
#define _mm512_storeu_si512 simde_mm512_storeu_si512
/* SIMDe's own want a literal. */
#define _mm512_slli_epi16(x, bits) emulated_sll_epi16(x, _mm_cvtsi32_si128((int)(bits)))
#define _mm512_srli_epi16(x, bits) emulated_srl_epi16(x, _mm_cvtsi32_si128((int)(bits)))
/* clang's and SIMDe's headers may have made it a macro of their own */
#undef _mm256_dpbusd_epi32
#define _mm256_dpbusd_epi32 emulated_dpbusd_256

#endif
