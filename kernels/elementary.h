/* Scalar elementary functions of the arithmetic contract (docs/arithmetic.md gives the polynomials).
 * Pure functions, the same bits on every machine; no libm transcendental is used anywhere. */
#ifndef NJ_KERNELS_ELEMENTARY_H
#define NJ_KERNELS_ELEMENTARY_H

#include <stdint.h>

float elementary_exp(float x);    /* 0 below -87; clamped to exp(88) above 88; NaN stays NaN */
double elementary_exp64(double x);
double elementary_log64(double x); /* x > 0 and finite */
void elementary_sincos64(double x, double *sine, double *cosine); /* |x| <= 2^30 */

uint16_t elementary_half_from_float(float x); /* IEEE half, round to nearest even; overflow to infinity */
float elementary_float_from_half(uint16_t h);
float elementary_float_from_bfloat16(uint16_t b);

#endif
