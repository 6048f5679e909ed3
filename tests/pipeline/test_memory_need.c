/* What fits runs; what does not is refused with the option that helps, and what the message names does fit. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "pipeline/job/memory_need.h"
#include "tests/pipeline/cmocka_headers.h"

static const uint64_t MIB = 1 << 20;

static struct nj_memory_need make_need(void)
{
    return (struct nj_memory_need){.weights_bytes = 100 * MIB,
                                   .kv_bytes = 50 * MIB,
                                   .least_kv_bytes = 10 * MIB,
                                   .other_bytes = 20 * MIB,
                                   .token_budget = 256,
                                   .longest_sequence = 4096};
}

static void test_fits_to_the_byte(void **state)
{
    (void)state;
    struct nj_memory_need need = make_need();
    struct nj_error error = {0};
    assert_int_equal(memory_need_check(&need, 170 * MIB, &error), 0);
    assert_int_equal(memory_need_check(&need, UINT64_MAX, &error), 0);
    assert_int_equal(memory_need_check(&need, 170 * MIB - 1, &error), -1);
    assert_int_equal(error.code, NJ_DOES_NOT_FIT);
}

static void test_names_kv_memory_that_fits(void **state)
{
    (void)state;
    struct nj_memory_need need = make_need();
    struct nj_error error = {0};
    uint64_t most_kib = 0;
    assert_int_equal(memory_need_check(&need, 150 * MIB, &error), -1);
    const char *named = strstr(error.message, "--kv-memory ");
    assert_non_null(named);
    assert_int_equal(sscanf(named, "--kv-memory %" SCNu64 "KiB", &most_kib), 1);
    assert_non_null(strstr(error.message, "10240KiB at least"));
    need.kv_bytes = most_kib << 10;
    assert_int_equal(memory_need_check(&need, 150 * MIB, &error), 0);
}

static void test_does_not_fit_at_all(void **state)
{
    (void)state;
    struct nj_memory_need need = make_need();
    struct nj_error error = {0};
    assert_int_equal(memory_need_check(&need, 130 * MIB - 1, &error), -1);
    assert_int_equal(error.code, NJ_DOES_NOT_FIT);
    assert_null(strstr(error.message, "--kv-memory"));
    assert_non_null(strstr(error.message, "needs 130 MiB"));
    assert_non_null(strstr(error.message, "4096 tokens"));
    assert_non_null(strstr(error.message, "--token-budget"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fits_to_the_byte),
        cmocka_unit_test(test_names_kv_memory_that_fits),
        cmocka_unit_test(test_does_not_fit_at_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
