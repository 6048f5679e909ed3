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

static void test_every_kind_counts(void **state)
{
    (void)state;
    struct nj_memory_need need = make_need();
    struct nj_error error = {0};
    need.program_bytes = 7 * MIB;
    need.buffers_bytes = 3 * MIB;
    assert_int_equal(memory_need_sum(&need), 180 * MIB);
    assert_int_equal(memory_need_check(&need, 180 * MIB, &error), 0);
    assert_int_equal(memory_need_check(&need, 180 * MIB - 1, &error), -1);
    assert_non_null(strstr(error.message, "needs 180 MiB"));
}

/* What is resident differs from run to run by some pages, which must not move the smallest cap. */
static void test_program_is_the_same_in_every_run(void **state)
{
    (void)state;
    const struct nj_process_memory one = {.file_bytes = 6 * MIB, .anonymous_bytes = 9 * MIB};
    const struct nj_process_memory other = {.file_bytes = 7 * MIB, .anonymous_bytes = 9 * MIB + 4096};
    const uint64_t program = memory_of_program(&one, 8 * MIB, MIB);
    assert_true(program == memory_of_program(&other, 8 * MIB, MIB));
    assert_true(program > 9 * MIB + 7 * MIB);
    /* What is there and unaccounted for counts all the same. */
    const struct nj_process_memory large = {.file_bytes = 60 * MIB, .anonymous_bytes = 99 * MIB};
    assert_true(memory_of_program(&large, 8 * MIB, MIB) > 159 * MIB);
}

static void test_buffers_grow(void **state)
{
    (void)state;
    const struct nj_buffer_facts least = {.threads = 1};
    const struct nj_buffer_facts more[] = {
        {.threads = 2},
        {.threads = 1, .longest_line_bytes = 1},
        {.threads = 1, .sequences = 1},
        {.threads = 1, .tokens = 1},
        {.threads = 1, .logprobs = 1, .record_tokens = 1},
        {.threads = 1, .program_bytes = 16},
    };
    for (size_t i = 0; i < sizeof more / sizeof more[0]; i++)
        assert_true(memory_of_buffers(&more[i]) > memory_of_buffers(&least));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fits_to_the_byte),
        cmocka_unit_test(test_names_kv_memory_that_fits),
        cmocka_unit_test(test_does_not_fit_at_all),
        cmocka_unit_test(test_every_kind_counts),
        cmocka_unit_test(test_program_is_the_same_in_every_run),
        cmocka_unit_test(test_buffers_grow),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
