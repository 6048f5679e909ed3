#include "kernels/elementary.h"

#include <math.h>
#include <string.h>

static uint32_t bits_of_float(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static float float_of_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static uint64_t bits_of_double(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static double double_of_bits(uint64_t bits)
{
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static double polynomial(const double *coefficients, int count, double x)
{
    double p = coefficients[count - 1];
    for (int i = count - 2; i >= 0; i--)
        p = fma(p, x, coefficients[i]);
    return p;
}

float elementary_exp(float x)
{
    /* 1 + r + r^2 (c2 + ... + c6 r^4): minimax on [-ln2/2, ln2/2], relative error 3.1e-9 */
    static const float coefficients[] = {
        0x1.6a23cep-10f, 0x1.123a2p-7f, 0x1.5558f2p-5f, 0x1.555492p-3f, 0x1.fffffcp-2f, 1.0f, 1.0f};
    if (x != x)
        return x;
    if (x < -87.0f)
        return 0.0f;
    if (x > 88.0f)
        x = 88.0f;
    float n = rintf(x * 0x1.715476p+0f);
    float r = fmaf(n, -0x1.62e43p-1f, x);
    r = fmaf(n, 0x1.05c61p-29f, r);
    float p = coefficients[0];
    for (int i = 1; i < 7; i++)
        p = fmaf(p, r, coefficients[i]);
    return p * float_of_bits((uint32_t)((int32_t)n + 127) << 23);
}

double elementary_exp64(double x)
{
    static const double inverse_factorials[] = {
        1.0,        1.0,         1.0 / 2,      1.0 / 6,       1.0 / 24,       1.0 / 120,       1.0 / 720,
        1.0 / 5040, 1.0 / 40320, 1.0 / 362880, 1.0 / 3628800, 1.0 / 39916800, 1.0 / 479001600, 1.0 / 6227020800,
    };
    if (x != x)
        return x;
    if (x < -708.0)
        return 0.0;
    if (x > 709.0)
        x = 709.0;
    double n = rint(x * 0x1.71547652b82fep+0);
    double r = fma(n, -0x1.62e42fefa39efp-1, x);
    r = fma(n, -0x1.abc9e3b39803fp-56, r);
    return polynomial(inverse_factorials, 14, r) * double_of_bits((uint64_t)((int64_t)n + 1023) << 52);
}

double elementary_log64(double x)
{
    /* With f = m - 1 (exact) and s = f / (2 + f), |s| < 0.172: log m = 2 artanh(s) = f - s (f - R), where
     * R = 2 s^2 / 3 + 2 s^4 / 5 + ...; so the leading term carries no rounding error. */
    static const double series[] = {2.0 / 3,  2.0 / 5,  2.0 / 7,  2.0 / 9,  2.0 / 11,
                                    2.0 / 13, 2.0 / 15, 2.0 / 17, 2.0 / 19, 2.0 / 21};
    int64_t exponent = 0;
    if (x < 0x1p-1022) { /* subnormal */
        x *= 0x1p54;
        exponent = -54;
    }
    uint64_t bits = bits_of_double(x);
    exponent += (int64_t)(bits >> 52) - 1023;
    double m = double_of_bits((bits & 0xfffffffffffffu) | 0x3ff0000000000000u);
    if (m > 0x1.6a09e667f3bcdp+0) {
        m *= 0.5;
        exponent++;
    }
    double f = m - 1.0;
    double s = f / (2.0 + f);
    double square = s * s;
    double log_m = fma(-s, f - square * polynomial(series, 10, square), f);
    double e = (double)exponent;
    return fma(e, 0x1.62e42fefa39efp-1, fma(e, 0x1.abc9e3b39803fp-56, log_m));
}

void elementary_sincos64(double x, double *sine, double *cosine)
{
    static const double sine_terms[] = {
        1.0,
        -1.0 / 6,
        1.0 / 120,
        -1.0 / 5040,
        1.0 / 362880,
        -1.0 / 39916800,
        1.0 / 6227020800,
        -1.0 / 1307674368000,
        1.0 / 355687428096000,
    };
    static const double cosine_terms[] = {
        1.0,
        -1.0 / 2,
        1.0 / 24,
        -1.0 / 720,
        1.0 / 40320,
        -1.0 / 3628800,
        1.0 / 479001600,
        -1.0 / 87178291200,
        1.0 / 20922789888000,
    };
    double n = rint(x * 0x1.45f306dc9c883p-1);
    double r = fma(n, -0x1.921fb54442d18p+0, x);
    r = fma(n, -0x1.1a62633145c07p-54, r);
    r = fma(n, 0x1.f1976b7ed8fbcp-110, r);
    double square = r * r;
    double s = r * polynomial(sine_terms, 9, square);
    double c = polynomial(cosine_terms, 9, square);
    int64_t quadrant = (int64_t)n & 3;
    double sine_value = (quadrant & 1) != 0 ? c : s;
    double cosine_value = (quadrant & 1) != 0 ? s : c;
    *sine = (quadrant & 2) != 0 ? -sine_value : sine_value;
    *cosine = quadrant == 1 || quadrant == 2 ? -cosine_value : cosine_value;
}

uint16_t elementary_half_from_float(float x)
{
    uint32_t bits = bits_of_float(x);
    uint32_t sign = (bits >> 16) & 0x8000u;
    uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) /* NaN, made quiet */
        return (uint16_t)(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu));
    if (magnitude >= 0x477ff000u) /* from 65520: infinity */
        return (uint16_t)(sign | 0x7c00u);
    if (magnitude < 0x38800000u) /* below 2^-14: floats in [0.5, 1) step by 2^-24, the half's smallest step */
        return (uint16_t)(sign | (bits_of_float(float_of_bits(magnitude) + 0.5f) - 0x3f000000u));
    magnitude += 0xfffu + ((magnitude >> 13) & 1u);
    return (uint16_t)(sign | ((magnitude - 0x38000000u) >> 13));
}
