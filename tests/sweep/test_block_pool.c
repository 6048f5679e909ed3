/* Who holds which block, what is found again, and what is forgotten first. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine/sweep/block_pool.h"
#include "kernels/operations.h"

enum { BLOCKS = 5, TOKENS = NJ_KV_BLOCK_TOKENS };

/* The tokens of a block, told apart by the last one only. */
static const int32_t *text(int32_t last)
{
    static int32_t tokens[TOKENS];
    tokens[TOKENS - 1] = last;
    return tokens;
}

static int32_t take_published(struct nj_block_pool *pool, int32_t parent, int32_t last)
{
    const int32_t block = block_pool_take(pool);
    assert_int_not_equal(block, NJ_NO_BLOCK);
    assert_true(block_pool_publish(pool, block, parent, text(last)));
    return block;
}

static void test_blocks_are_taken_once(void **state)
{
    (void)state;
    struct nj_block_pool *pool = block_pool_create(BLOCKS);
    for (int round = 0; round < 3; round++) {
        int seen[BLOCKS] = {0};
        for (int i = 0; i < BLOCKS; i++) {
            assert_int_equal(block_pool_available(pool), BLOCKS - i);
            const int32_t block = block_pool_take(pool);
            assert_in_range(block, 0, BLOCKS - 1);
            assert_int_equal(seen[block]++, 0);
        }
        assert_int_equal(block_pool_take(pool), NJ_NO_BLOCK);
        for (int32_t i = 0; i < BLOCKS; i++)
            block_pool_give_back(pool, (i * 2 + round) % BLOCKS);
    }
    block_pool_destroy(pool);
}

static void test_a_block_is_free_when_its_last_holder_gives_it_back(void **state)
{
    (void)state;
    struct nj_block_pool *pool = block_pool_create(1);
    const int32_t block = block_pool_take(pool);
    block_pool_hold(pool, block);
    block_pool_hold(pool, block);
    for (int i = 0; i < 2; i++) {
        block_pool_give_back(pool, block);
        assert_int_equal(block_pool_available(pool), 0);
        assert_int_equal(block_pool_take(pool), NJ_NO_BLOCK);
    }
    block_pool_give_back(pool, block);
    assert_int_equal(block_pool_available(pool), 1);
    assert_int_equal(block_pool_take(pool), block);
    block_pool_destroy(pool);
}

/* Found by the tokens and by what stands before them, held or not, until it is withdrawn. */
static void test_published_blocks_are_found(void **state)
{
    (void)state;
    struct nj_block_pool *pool = block_pool_create(BLOCKS);
    const int32_t first = take_published(pool, NJ_NO_BLOCK, 1);
    const int32_t second = take_published(pool, first, 2);
    const int32_t other = take_published(pool, NJ_NO_BLOCK, 2); /* equal tokens at another place */
    assert_int_equal(block_pool_find(pool, NJ_NO_BLOCK, text(1)), first);
    assert_int_equal(block_pool_find(pool, first, text(2)), second);
    assert_int_equal(block_pool_find(pool, NJ_NO_BLOCK, text(2)), other);
    assert_int_equal(block_pool_find(pool, first, text(1)), NJ_NO_BLOCK);
    assert_int_equal(block_pool_find(pool, second, text(2)), NJ_NO_BLOCK);
    assert_int_equal(block_pool_find(pool, NJ_NO_BLOCK, text(3)), NJ_NO_BLOCK);

    const int32_t copy = block_pool_take(pool);
    assert_false(block_pool_publish(pool, copy, first, text(2)));
    assert_int_equal(block_pool_find(pool, first, text(2)), second);
    block_pool_give_back(pool, second);
    block_pool_give_back(pool, first);
    assert_int_equal(block_pool_find(pool, first, text(2)), second);
    assert_int_equal(block_pool_available(pool), 3);
    block_pool_hold(pool, first);
    block_pool_hold(pool, second);
    assert_int_equal(block_pool_available(pool), 1);
    block_pool_withdraw(pool, second);
    assert_int_equal(block_pool_find(pool, first, text(2)), NJ_NO_BLOCK);
    assert_true(block_pool_publish(pool, copy, first, text(2)));
    assert_int_equal(block_pool_find(pool, first, text(2)), copy);
    block_pool_destroy(pool);
}

/* Free blocks are taken before cached ones, then what has been cached for the longest, children before parents. */
static void test_what_is_forgotten_first(void **state)
{
    (void)state;
    struct nj_block_pool *pool = block_pool_create(BLOCKS);
    const int32_t root = take_published(pool, NJ_NO_BLOCK, 1);
    const int32_t left = take_published(pool, root, 2);
    const int32_t right = take_published(pool, root, 3);
    const int32_t leaf = take_published(pool, right, 4);
    block_pool_hold(pool, root); /* by a second sequence: root, left; the first has root, right, leaf */
    block_pool_give_back(pool, leaf);
    block_pool_give_back(pool, right);
    block_pool_give_back(pool, root);
    block_pool_give_back(pool, left);
    block_pool_give_back(pool, root);
    assert_int_equal(block_pool_available(pool), BLOCKS);
    assert_int_equal(block_pool_find(pool, right, text(4)), leaf);

    const int32_t unused = block_pool_take(pool);
    assert_true(unused != root && unused != left && unused != right && unused != leaf);
    /* Used again, root and left are the youngest. */
    block_pool_hold(pool, root);
    block_pool_hold(pool, left);
    block_pool_give_back(pool, left);
    block_pool_give_back(pool, root);
    const int32_t order[] = {leaf, right, left, root};
    for (int i = 0; i < 4; i++) {
        assert_int_equal(block_pool_find(pool, NJ_NO_BLOCK, text(1)), root);
        assert_int_equal(block_pool_take(pool), order[i]);
        assert_int_equal(block_pool_available(pool), 3 - i);
    }
    assert_int_equal(block_pool_find(pool, NJ_NO_BLOCK, text(1)), NJ_NO_BLOCK);
    assert_int_equal(block_pool_take(pool), NJ_NO_BLOCK);
    block_pool_destroy(pool);
}

/* Far more different texts than the table has buckets come and go: each is found as itself or not at all. */
static void test_texts_of_the_same_bucket_are_told_apart(void **state)
{
    (void)state;
    enum { MANY = 300, ROUNDS = 20 };
    struct nj_block_pool *pool = block_pool_create(MANY);
    int32_t block[MANY];
    for (int round = 0; round < ROUNDS; round++) {
        for (int32_t i = 0; i < MANY; i++)
            block[i] = take_published(pool, NJ_NO_BLOCK, round * MANY + i);
        for (int32_t i = 0; i < MANY; i++) {
            assert_int_equal(block_pool_find(pool, NJ_NO_BLOCK, text(round * MANY + i)), block[i]);
            assert_int_equal(block_pool_find(pool, NJ_NO_BLOCK, text((round - 1) * MANY + i)), NJ_NO_BLOCK);
            assert_int_equal(block_pool_find(pool, block[i], text(round * MANY + i)), NJ_NO_BLOCK);
        }
        for (int32_t i = 0; i < MANY; i++)
            block_pool_give_back(pool, block[i]);
    }
    block_pool_destroy(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_blocks_are_taken_once),
        cmocka_unit_test(test_a_block_is_free_when_its_last_holder_gives_it_back),
        cmocka_unit_test(test_published_blocks_are_found),
        cmocka_unit_test(test_what_is_forgotten_first),
        cmocka_unit_test(test_texts_of_the_same_bucket_are_told_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
