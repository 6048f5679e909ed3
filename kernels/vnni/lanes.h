/* Vectors of any width, for the kernels of kernels/vnni. Whoever includes this has defined LANES (32-bit lanes of a
 * vector), the types lanes_int and lanes_float, NJ_LANES(operation) and NJ_LANES_WHOLE(operation), the names of
 * intrinsics, and the three functions that read a narrower vector. */
#ifndef NJ_KERNELS_VNNI_LANES_H
#define NJ_KERNELS_VNNI_LANES_H

#include <string.h>

NJ_ALWAYS_INLINE lanes_int lanes_load(const void *at)
{
    return NJ_LANES_WHOLE(loadu)(at);
}

NJ_ALWAYS_INLINE void lanes_store(void *at, lanes_int x)
{
    NJ_LANES_WHOLE(storeu)(at, x);
}

/* The same four bytes in every lane. */
NJ_ALWAYS_INLINE lanes_int lanes_broadcast(const void *four_bytes)
{
    int32_t four;
    memcpy(&four, four_bytes, sizeof four);
    return NJ_LANES(set1_epi32)(four);
}

NJ_ALWAYS_INLINE lanes_int lanes_set_bytes(int byte)
{
    return NJ_LANES(set1_epi8)((char)byte);
}

NJ_ALWAYS_INLINE lanes_int lanes_and(lanes_int a, lanes_int b)
{
    return NJ_LANES_WHOLE(and)(a, b);
}

NJ_ALWAYS_INLINE lanes_int lanes_or(lanes_int a, lanes_int b)
{
    return NJ_LANES_WHOLE(or)(a, b);
}

NJ_ALWAYS_INLINE lanes_int lanes_xor(lanes_int a, lanes_int b)
{
    return NJ_LANES_WHOLE(xor)(a, b);
}

/* Shifts 16-bit words by 0..15 bits, to the right where `bits` is negative. */
NJ_ALWAYS_INLINE lanes_int lanes_shift_words(lanes_int x, int bits)
{
    return bits < 0 ? NJ_LANES(srli_epi16)(x, (unsigned)-bits) : NJ_LANES(slli_epi16)(x, (unsigned)bits);
}

/* The same for 32-bit lanes, by bits that are not known beforehand, to the right. */
NJ_ALWAYS_INLINE lanes_int lanes_shift_right(lanes_int x, int bits)
{
    return NJ_LANES(srl_epi32)(x, _mm_cvtsi32_si128(bits));
}

NJ_ALWAYS_INLINE lanes_int lanes_shift_left(lanes_int x, int bits)
{
    return NJ_LANES(sll_epi32)(x, _mm_cvtsi32_si128(bits));
}

/* sum + the products of the four unsigned and the four signed bytes of each lane. */
NJ_ALWAYS_INLINE lanes_int lanes_add_products(lanes_int sum, lanes_int unsigned_bytes, lanes_int signed_bytes)
{
    return NJ_LANES(dpbusd_epi32)(sum, unsigned_bytes, signed_bytes);
}

NJ_ALWAYS_INLINE lanes_int lanes_zero_integers(void)
{
    return NJ_LANES_WHOLE(setzero)();
}

NJ_ALWAYS_INLINE lanes_float lanes_zero(void)
{
    return NJ_LANES(setzero_ps)();
}

NJ_ALWAYS_INLINE lanes_float lanes_load_floats(const float *at)
{
    return NJ_LANES(loadu_ps)(at);
}

NJ_ALWAYS_INLINE void lanes_store_floats(float *at, lanes_float x)
{
    NJ_LANES(storeu_ps)(at, x);
}

NJ_ALWAYS_INLINE lanes_float lanes_set_floats(float x)
{
    return NJ_LANES(set1_ps)(x);
}

NJ_ALWAYS_INLINE lanes_float lanes_from_integers(lanes_int x)
{
    return NJ_LANES(cvtepi32_ps)(x);
}

NJ_ALWAYS_INLINE lanes_float lanes_add(lanes_float a, lanes_float b)
{
    return NJ_LANES(add_ps)(a, b);
}

NJ_ALWAYS_INLINE lanes_float lanes_multiply(lanes_float a, lanes_float b)
{
    return NJ_LANES(mul_ps)(a, b);
}

NJ_ALWAYS_INLINE lanes_float lanes_fma(lanes_float a, lanes_float b, lanes_float c)
{
    return NJ_LANES(fmadd_ps)(a, b, c);
}

NJ_ALWAYS_INLINE lanes_float lanes_negate(lanes_float x)
{
    return NJ_LANES(xor_ps)(x, lanes_set_floats(-0.0f));
}

#endif
