/* What fits runs; what does not is refused with the option that helps, and what the message names does fit. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "pipeline/job/job_plan.h"
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

/* With so many blocks that what is known of each of them counts, too. */
static void test_a_plan_with_the_named_kv_memory_fits(void **state)
{
    (void)state;
    const struct nj_hyperparameters shape = {.layers = 1,
                                             .width = 64,
                                             .feed_forward = 64,
                                             .heads = 1,
                                             .kv_heads = 1,
                                             .head_width = 2,
                                             .rotated = 2,
                                             .context = 1 << 20,
                                             .vocabulary = 256};
    struct nj_error error = {0};
    struct nj_index *index = index_create(64);
    for (uint64_t i = 0; i < 256; i++) {
        const struct nj_index_entry entry = {
            .id_hash = i + 1, .kind = NJ_ENTRY_REQUEST, .prompt_tokens = 50000, .max_new_tokens = 49000};
        assert_int_equal(index_add(index, &entry, &error), 0);
    }
    struct nj_order order;
    struct nj_plan plan;
    assert_int_equal(order_make(index, 256, NULL, &order, &error), 0);
    struct nj_plan_facts facts = {
        .shape = &shape, .index = index, .order = &order, .kv_memory_bytes = UINT64_MAX, .available_bytes = UINT64_MAX};
    assert_int_equal(plan_make(&facts, &plan, &error), 0);
    facts.available_bytes = plan.need.kv_bytes / 2 + plan.need.other_bytes;
    assert_int_equal(plan_make(&facts, &plan, &error), -1);
    assert_int_equal(error.code, NJ_DOES_NOT_FIT);
    const char *named = strstr(error.message, "--kv-memory ");
    assert_non_null(named);
    assert_int_equal(sscanf(named, "--kv-memory %" SCNu64 "KiB", &facts.kv_memory_bytes), 1);
    facts.kv_memory_bytes <<= 10;
    assert_int_equal(plan_make(&facts, &plan, &error), 0);
    order_free(&order);
    index_destroy(index);
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
        cmocka_unit_test(test_a_plan_with_the_named_kv_memory_fits),
        cmocka_unit_test(test_does_not_fit_at_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
