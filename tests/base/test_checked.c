#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "engine/base/checked.h"

static void test_add(void **state)
{
    (void)state;
    uint64_t out;
    assert_true(checked_add(UINT64_MAX - 5, 5, &out));
    assert_true(out == UINT64_MAX);
    assert_false(checked_add(UINT64_MAX - 5, 6, &out));
}

static void test_mul(void **state)
{
    (void)state;
    uint64_t out;
    assert_true(checked_mul(UINT64_C(1) << 32, (UINT64_C(1) << 32) - 1, &out));
    assert_true(out == UINT64_MAX - UINT32_MAX);
    assert_true(checked_mul(0, UINT64_MAX, &out));
    assert_true(out == 0);
    assert_false(checked_mul(UINT64_C(1) << 32, UINT64_C(1) << 32, &out));
}

static void test_round_up(void **state)
{
    (void)state;
    uint64_t out;
    assert_true(checked_round_up(0, 32, &out));
    assert_true(out == 0);
    assert_true(checked_round_up(64, 32, &out));
    assert_true(out == 64);
    assert_true(checked_round_up(65, 32, &out));
    assert_true(out == 96);
    assert_true(checked_round_up(UINT64_MAX - 31, 32, &out));
    assert_true(out == UINT64_MAX - 31);
    assert_false(checked_round_up(UINT64_MAX - 30, 32, &out));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_add),
        cmocka_unit_test(test_mul),
        cmocka_unit_test(test_round_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
