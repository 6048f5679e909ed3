/* The index in memory and the order of work. */
#include <stdlib.h>

#include "pipeline/base/digest.h"
#include "pipeline/index/order.h"
#include "tests/pipeline/cmocka_headers.h"

static void fill(struct nj_index *index, uint32_t count)
{
    struct nj_error error;
    for (uint32_t i = 0; i < count; i++) {
        struct nj_index_entry entry = {.id_hash = digest_of(&i, sizeof i).low, .digest = i};
        assert_true(index_entry_set_place(&entry, i % 7, i + 1, (uint64_t)i * 100, 99));
        assert_int_equal(index_add(index, &entry, &error), 0);
    }
}

static void test_finds_all(void **state)
{
    (void)state;
    enum { COUNT = 100000 };
    struct nj_index *index = index_create(64);
    fill(index, COUNT);
    assert_int_equal(index_count(index), COUNT);
    for (uint32_t i = 0; i < COUNT; i++) {
        uint64_t cursor = 0, hash = digest_of(&i, sizeof i).low;
        assert_int_equal(index_find(index, hash, &cursor), i);
        assert_int_equal(index_find(index, hash, &cursor), NJ_INDEX_NONE);
        assert_int_equal(index_at(index, i)->digest, i);
    }
    uint64_t cursor = 0;
    assert_int_equal(index_find(index, 12345, &cursor), NJ_INDEX_NONE);
    index_destroy(index);
}

/* Whatever the number of requests, entries, table and order stay within 48 bytes each. */
static void test_memory(void **state)
{
    (void)state;
    enum { STEPS = 40, STEP = 20011 };
    struct nj_index *index = index_create(64);
    for (int i = 1; i <= STEPS; i++) {
        fill(index, STEP);
        size_t most = (size_t)48 * STEP * (size_t)i + 300000; /* one chunk, the list of chunks */
        assert_in_range(index_bytes(index), 1, most);
    }
    size_t count = index_count(index);
    index_drop_table(index);
    assert_in_range(index_bytes(index) + count * sizeof(uint32_t), 1, 48 * count);
    index_destroy(index);
}

static void test_short_hashes_collide(void **state)
{
    (void)state;
    enum { COUNT = 2000, BITS = 4 };
    struct nj_index *index = index_create(BITS);
    fill(index, COUNT);
    uint32_t found = 0;
    for (uint64_t hash = 0; hash < 1 << BITS; hash++) {
        uint64_t cursor = 0;
        int64_t position;
        while ((position = index_find(index, hash, &cursor)) != NJ_INDEX_NONE) {
            uint32_t number = (uint32_t)position;
            assert_int_equal(digest_of(&number, sizeof number).low & ((1 << BITS) - 1), hash);
            found++;
        }
    }
    assert_int_equal(found, COUNT);
    index_destroy(index);
}

static void test_places(void **state)
{
    (void)state;
    struct nj_index_entry entry = {0};
    uint64_t line = (UINT64_C(1) << 36) - 1, offset = (UINT64_C(1) << 44) - 1;
    assert_true(index_entry_set_place(&entry, (1 << 20) - 1, line, offset, 32 << 20));
    assert_int_equal(entry.file, (1 << 20) - 1);
    assert_int_equal(index_entry_line(&entry), line);
    assert_int_equal(index_entry_offset(&entry), offset);
    assert_int_equal(entry.length, 32 << 20);
    assert_false(index_entry_set_place(&entry, 1 << 20, 1, 0, 1));
    assert_false(index_entry_set_place(&entry, 0, line + 1, 0, 1));
    assert_false(index_entry_set_place(&entry, 0, 1, offset + 1, 1));
    assert_false(index_entry_set_place(&entry, 0, 1, 0, 1 << 26));
}

static void test_order(void **state)
{
    (void)state;
    enum { COUNT = 5000 };
    struct nj_error error;
    struct nj_index *index = index_create(64);
    uint32_t random = 1, wanted = 0;
    for (uint32_t i = 0; i < COUNT; i++) {
        struct nj_index_entry entry = {.id_hash = i};
        random = random * 1664525 + 1013904223;
        entry.prompt_tokens = random >> 28;
        entry.max_new_tokens = random >> 24 & 15;
        entry.kind = i % 10 == 3 ? NJ_ENTRY_BAD : NJ_ENTRY_REQUEST;
        entry.done = i % 10 == 5;
        wanted += i % 10 != 3 && i % 10 != 5;
        assert_int_equal(index_add(index, &entry, &error), 0);
    }
    struct nj_order order;
    assert_int_equal(order_make(index, index_count(index), NULL, &order, &error), 0);
    assert_int_equal(order.count, wanted);
    for (uint32_t i = 0; i < order.count; i++) {
        const struct nj_index_entry *entry = index_at(index, order.position[i]);
        assert_true(entry->kind == NJ_ENTRY_REQUEST && !entry->done);
        if (i == 0)
            continue;
        const struct nj_index_entry *before = index_at(index, order.position[i - 1]);
        uint32_t length = entry->prompt_tokens + entry->max_new_tokens;
        uint32_t length_before = before->prompt_tokens + before->max_new_tokens;
        assert_true(length_before > length || (length_before == length && order.position[i - 1] < order.position[i]));
    }
    order_free(&order);
    index_destroy(index);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_finds_all), cmocka_unit_test(test_memory), cmocka_unit_test(test_short_hashes_collide),
        cmocka_unit_test(test_places),    cmocka_unit_test(test_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
