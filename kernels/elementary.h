/* Scalar elementary functions of the arithmetic contract (docs/arithmetic.md gives the polynomials).
 * Pure functions, the same bits on every machine; no libm transcendental is used anywhere. */
#ifndef NJ_KERNELS_ELEMENTARY_H
#define NJ_KERNELS_ELEMENTARY_H

#include <stdint.h>
#include <string.h>

float elementary_exp(float x); /* 0 below -87; clamped to exp(88) above 88; NaN stays NaN */
double elementary_exp64(double x);
double elementary_log64(double x);                                /* x > 0 and finite */
void elementary_sincos64(double x, double *sine, double *cosine); /* |x| <= 2^30 */

uint16_t elementary_half_from_float(float x); /* IEEE half, round to nearest even; overflow to infinity */

/* Exact. Inline and without a branch, so that loops over stored numbers can be vectorised. */
static inline float elementary_float_from_half(uint16_t h)
{
    uint32_t magnitude = (uint32_t)(h & 0x7fffu) << 13;
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16;
    float value;
    uint32_t bits;
    memcpy(&value, &magnitude, sizeof value);
    value *= 0x1p112f; /* from the half's exponent bias of 15 to 127; subnormals become normal */
    memcpy(&bits, &value, sizeof bits);
    bits |= sign | ((h & 0x7c00u) == 0x7c00u ? 0x7f800000u : 0u);
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline float elementary_float_from_bfloat16(uint16_t b)
{
    uint32_t bits = (uint32_t)b << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

#endif
