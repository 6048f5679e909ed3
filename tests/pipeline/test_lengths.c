/* The lengths of a job's requests are those that sorting them gives. */
#include <stdlib.h>
#include <string.h>

#include "pipeline/index/lengths.h"
#include "tests/pipeline/cmocka_headers.h"

enum { MOST = 5000 };

static int compare(const void *left, const void *right)
{
    uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;
    return (a > b) - (a < b);
}

static uint32_t next_random(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(*state >> 33);
}

/* `count` requests of up to `most` tokens, with bad lines between them. */
static void check(uint32_t count, uint32_t most)
{
    struct nj_index *index = index_create(64);
    struct nj_order order;
    struct nj_error error;
    uint64_t random = count, sum = 0, new_sum = 0;
    static uint32_t prompts[MOST];
    for (uint32_t i = 0; i < count; i++) {
        struct nj_index_entry entry = {.id_hash = i, .kind = NJ_ENTRY_REQUEST};
        entry.prompt_tokens = prompts[i] = 1 + next_random(&random) % most;
        entry.max_new_tokens = 1 + next_random(&random) % 100;
        sum += prompts[i];
        new_sum += entry.max_new_tokens;
        assert_int_equal(index_add(index, &entry, &error), 0);
        entry = (struct nj_index_entry){.id_hash = MOST + i, .kind = NJ_ENTRY_BAD};
        assert_int_equal(index_add(index, &entry, &error), 0);
    }
    assert_int_equal(order_make(index, order_limit(index, 0), NULL, &order, &error), 0);
    assert_int_equal(order.count, count);
    struct nj_lengths lengths = lengths_of(index, &order);
    qsort(prompts, count, sizeof prompts[0], compare);
    assert_int_equal(lengths.least_prompt, prompts[0]);
    assert_int_equal(lengths.median_prompt, prompts[(count - 1) / 2]);
    assert_int_equal(lengths.ninety_prompt, prompts[(count - 1) * 9 / 10]);
    assert_int_equal(lengths.most_prompt, prompts[count - 1]);
    assert_true(lengths.prompt_tokens == sum && lengths.most_new_tokens == new_sum);
    order_free(&order);
    index_destroy(index);
}

static void test_ranks(void **state)
{
    (void)state;
    check(1, 10);
    check(2, 10);
    check(17, 3);
    check(1000, 4096);
    check(MOST, 1 << 16);
    check(MOST, NJ_ENTRY_TOKENS_MOST);
}

static void test_sums_for_attention(void **state)
{
    (void)state;
    struct nj_index *index = index_create(64);
    struct nj_order order;
    struct nj_error error;
    struct nj_index_entry first = {.id_hash = 1, .prompt_tokens = 3, .max_new_tokens = 5},
                          second = {.id_hash = 2, .prompt_tokens = 7, .max_new_tokens = 11, .more_samples = 2};
    index_add(index, &first, &error);
    index_add(index, &second, &error);
    assert_int_equal(order_make(index, 2, NULL, &order, &error), 0);
    struct nj_lengths lengths = lengths_of(index, &order);
    assert_true(lengths.sequences == 1 + 3);
    assert_true(lengths.prompt_tokens == 3 + 3 * 7 && lengths.most_new_tokens == 5 + 3 * 11);
    assert_true(lengths.prompt_squares == 9 + 3 * 49);
    assert_true(lengths.prompt_times_new == 15 + 3 * 77);
    assert_true(lengths.new_squares == 25 + 3 * 121);
    assert_int_equal(lengths.most_new, 11);
    order_free(&order);
    index_destroy(index);
}

/* Bad lines do not count, and what is behind the limit is left out. */
static void test_limit(void **state)
{
    (void)state;
    struct nj_index *index = index_create(64);
    struct nj_order order;
    struct nj_error error;
    static const enum nj_entry_kind kinds[] = {NJ_ENTRY_BAD,     NJ_ENTRY_REQUEST, NJ_ENTRY_DUPLICATE,
                                               NJ_ENTRY_REQUEST, NJ_ENTRY_BAD,     NJ_ENTRY_REQUEST};
    for (uint32_t i = 0; i < 6; i++) {
        struct nj_index_entry entry = {.id_hash = i, .kind = kinds[i], .prompt_tokens = 1 + i, .done = i == 1};
        index_add(index, &entry, &error);
    }
    static const struct {
        uint64_t first;
        uint32_t limit, wanted;
    } cases[] = {{0, 6, 2}, {1, 2, 0}, {2, 4, 1}, {3, 6, 2}, {4, 6, 2}, {UINT64_MAX, 6, 2}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(order_limit(index, cases[i].first), cases[i].limit);
        assert_int_equal(order_make(index, cases[i].limit, NULL, &order, &error), 0);
        assert_int_equal(order.count, cases[i].wanted);
        order_free(&order);
    }
    index_destroy(index);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ranks),
        cmocka_unit_test(test_sums_for_attention),
        cmocka_unit_test(test_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
