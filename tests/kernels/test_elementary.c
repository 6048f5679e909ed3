/* Elementary functions against the C library in higher precision, and half conversion exhaustively. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/elementary.h"
#include "tests/kernels/kernel_test.h"

static float float_of_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static uint32_t bits_of_float(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* Distance in units of the last place of `exact` as a number with `precision` bits. */
static long double error_ulp(long double got, long double exact, int precision)
{
    int exponent;
    frexpl(exact, &exponent);
    return fabsl(got - exact) / ldexpl(1.0L, exponent - precision);
}

static void exp_is_within_one_ulp(void **state)
{
    (void)state;
    long double worst = 0;
    for (uint32_t magnitude = 0; magnitude < bits_of_float(88.0f); magnitude += 997) {
        for (int sign = 0; sign < 2; sign++) {
            float x = sign ? -float_of_bits(magnitude) : float_of_bits(magnitude);
            if (x < -87.0f)
                continue;
            long double error = error_ulp((long double)elementary_exp(x), expl((long double)x), 24);
            worst = error > worst ? error : worst;
        }
    }
    assert_true(worst < 1.0L);
}

static void exp_limits(void **state)
{
    (void)state;
    assert_true(elementary_exp(0.0f) == 1.0f);
    assert_true(elementary_exp(-0.0f) == 1.0f);
    assert_true(elementary_exp(-87.0f) > 0.0f);
    assert_true(elementary_exp(nextafterf(-87.0f, -88.0f)) == 0.0f);
    assert_true(elementary_exp(-INFINITY) == 0.0f);
    assert_true(isfinite(elementary_exp(88.0f)));
    assert_true(elementary_exp(nextafterf(88.0f, 89.0f)) == elementary_exp(88.0f));
    assert_true(elementary_exp(INFINITY) == elementary_exp(88.0f));
    assert_true(isnan(elementary_exp(NAN)));
    assert_true(isnan(elementary_exp(-NAN)));
}

static void exp64_is_within_two_ulp(void **state)
{
    (void)state;
    for (double x = -708.0; x <= 709.0; x += 0.03717)
        assert_true(error_ulp(elementary_exp64(x), expl((long double)x), 53) < 2.0L);
    assert_true(elementary_exp64(0.0) == 1.0);
    assert_true(elementary_exp64(-709.0) == 0.0);
    assert_true(elementary_exp64(INFINITY) == elementary_exp64(709.0));
    assert_true(isnan(elementary_exp64((double)NAN)));
}

static void log64_is_within_two_ulp(void **state)
{
    (void)state;
    struct nj_test_random random = {1};
    for (int i = 0; i < 200000; i++) {
        uint64_t bits = random_next(&random) % 0x7ff0000000000000u;
        if (i % 2 == 0) /* near 1, where cancellation would show */
            bits = 0x3fe0000000000000u + bits % 0x0020000000000000u;
        double x;
        memcpy(&x, &bits, sizeof x);
        if (x > 0.0 && x != 1.0)
            assert_true(error_ulp(elementary_log64(x), logl((long double)x), 53) < 2.0L);
    }
    assert_true(elementary_log64(1.0) == 0.0);
    assert_true(error_ulp(elementary_log64(0x1p-1074), logl(0x1p-1074L), 53) < 2.0L);
}

static void sincos64_is_within_two_ulp(void **state)
{
    (void)state;
    struct nj_test_random random = {2};
    for (int i = 0; i < 300000; i++) {
        double x = ldexp((double)(int64_t)random_next(&random), (int)random_below(&random, 60) - 93);
        if (i % 3 == 0) /* as near to a multiple of pi / 2 as doubles come */
            x = (double)random_below(&random, 600000000) * 0x1.921fb54442d18p+0;
        double sine, cosine;
        elementary_sincos64(x, &sine, &cosine);
        assert_true(fabs(x) <= 0x1p30);
        /* 64 bits of precision on x87 are enough: its argument reduction is exact in the library */
        assert_true(error_ulp(sine, sinl((long double)x), 53) < 2.0L || sine == 0.0);
        assert_true(error_ulp(cosine, cosl((long double)x), 53) < 2.0L);
    }
    double sine, cosine;
    elementary_sincos64(0.0, &sine, &cosine);
    assert_true(sine == 0.0 && cosine == 1.0);
}

/* The value of a finite half, from its definition. */
static double half_value(uint16_t half)
{
    int exponent = (half >> 10) & 31, mantissa = half & 1023;
    double magnitude = exponent == 0 ? ldexp(mantissa, -24) : ldexp(1024 + mantissa, exponent - 25);
    return (half & 0x8000) != 0 ? -magnitude : magnitude;
}

static void every_half_widens_exactly(void **state)
{
    (void)state;
    for (uint32_t half = 0; half <= 0xffff; half++) {
        float wide = elementary_float_from_half((uint16_t)half);
        if ((half & 0x7c00) != 0x7c00)
            assert_true((double)wide == half_value((uint16_t)half) && (signbit(wide) != 0) == (half >> 15 != 0));
        else if ((half & 0x3ff) != 0)
            assert_true(isnan(wide));
        else
            assert_true(wide == ((half & 0x8000) != 0 ? -INFINITY : INFINITY));
    }
}

static void every_half_survives_a_round_trip(void **state)
{
    (void)state;
    for (uint32_t half = 0; half <= 0xffff; half++) {
        uint16_t back = elementary_half_from_float(elementary_float_from_half((uint16_t)half));
        if ((half & 0x7c00) == 0x7c00 && (half & 0x3ff) != 0)
            assert_true((back & 0x7e00) == 0x7e00 && (back & 0x8000) == (half & 0x8000));
        else
            assert_int_equal(back, half);
    }
}

/* Between every pair of neighbours: the middle goes to the even one, anything else to the nearer one. */
static void halves_round_to_nearest_even(void **state)
{
    (void)state;
    for (uint32_t low = 0; low < 0x7c00; low++) {
        double next = low + 1 == 0x7c00 ? 65536.0 : half_value((uint16_t)(low + 1));
        float middle = (float)((half_value((uint16_t)low) + next) / 2);
        uint16_t even = (uint16_t)(low + (low & 1));
        assert_int_equal(elementary_half_from_float(middle), even);
        assert_int_equal(elementary_half_from_float(-middle), even | 0x8000);
        assert_int_equal(elementary_half_from_float(nextafterf(middle, 0.0f)), low);
        assert_int_equal(elementary_half_from_float(nextafterf(middle, INFINITY)), low + 1);
    }
    assert_int_equal(elementary_half_from_float(0x1p-149f), 0);
    assert_int_equal(elementary_half_from_float(-0x1p-149f), 0x8000);
    assert_int_equal(elementary_half_from_float(1e30f), 0x7c00);
    assert_int_equal(elementary_half_from_float(-INFINITY), 0xfc00);
    assert_int_equal(elementary_half_from_float(NAN) & 0x7e00, 0x7e00);
}

static void bfloat16_is_the_upper_half(void **state)
{
    (void)state;
    assert_true(elementary_float_from_bfloat16(0x3f80) == 1.0f);
    assert_true(elementary_float_from_bfloat16(0xc040) == -3.0f);
    assert_true(elementary_float_from_bfloat16(0x0001) == 0x1p-133f);
    assert_true(isnan(elementary_float_from_bfloat16(0x7fc0)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exp_is_within_one_ulp),
        cmocka_unit_test(exp_limits),
        cmocka_unit_test(exp64_is_within_two_ulp),
        cmocka_unit_test(log64_is_within_two_ulp),
        cmocka_unit_test(sincos64_is_within_two_ulp),
        cmocka_unit_test(every_half_widens_exactly),
        cmocka_unit_test(every_half_survives_a_round_trip),
        cmocka_unit_test(halves_round_to_nearest_even),
        cmocka_unit_test(bfloat16_is_the_upper_half),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
