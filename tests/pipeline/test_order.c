/* The order of work where prompts share their beginnings. */
#include <stdlib.h>
#include <string.h>

#include "kernels/operations.h"
#include "pipeline/base/digest.h"
#include "pipeline/index/order.h"
#include "tests/pipeline/cmocka_headers.h"

/* What order.c and the index take while the test looks. */
static struct {
    bool counting;
    size_t bytes;
} heap;

void *__wrap_malloc(size_t bytes);
void *__real_malloc(size_t bytes);

void *__wrap_malloc(size_t bytes)
{
    heap.bytes += heap.counting ? bytes : 0;
    return __real_malloc(bytes);
}

enum { BLOCK = NJ_KV_BLOCK_TOKENS, MOST_TOKENS = 10 * BLOCK + 1, LEVELS = NJ_PREFIX_LEVELS };

/* Prompts as trees: the digits of a number choose the blocks. */
struct input {
    struct nj_index *index;
    uint32_t (*key)[LEVELS];
    uint32_t loads;
};

static int load_keys(void *context, int level, uint32_t *key, struct nj_error *error)
{
    (void)error;
    struct input *input = context;
    assert_in_range(level, 0, LEVELS - 1);
    for (uint32_t i = 0; i < index_count(input->index); i++)
        key[i] = input->key[i][level];
    input->loads++;
    return 0;
}

static struct input input_create(uint32_t count)
{
    struct input input = {.index = index_create(64), .key = calloc(count, sizeof *input.key)};
    assert_true(input.index != NULL && input.key != NULL);
    return input;
}

static void input_free(struct input *input)
{
    index_destroy(input->index);
    free(input->key);
}

/* A prompt whose n-th block is filled with the n-th character of `blocks`; `tail` tokens follow. */
static void add(struct input *input, const char *blocks, uint32_t tail, uint32_t max_new)
{
    struct nj_error error;
    static int32_t tokens[MOST_TOKENS];
    const uint32_t number = index_count(input->index);
    const uint32_t count = (uint32_t)strlen(blocks) * BLOCK + tail;
    assert_true(count <= MOST_TOKENS);
    for (uint32_t i = 0; i < count; i++)
        tokens[i] = i < count - tail ? blocks[i / BLOCK] : (int32_t)(1000 + number);
    prefix_keys_make(tokens, count, input->key[number]);
    const struct nj_index_entry entry = {
        .id_hash = digest_of(&number, sizeof number).low,
        .prompt_tokens = count & 0x1FFFFFF,
        .max_new_tokens = max_new & 0x1FFFFFF,
    };
    assert_int_equal(index_add(input->index, &entry, &error), 0);
}

static struct nj_order make(struct input *input)
{
    struct nj_error error;
    struct nj_order order;
    const struct nj_prefix_source prefixes = {.load = load_keys, .context = input};
    input->loads = 0;
    assert_int_equal(order_make(input->index, index_count(input->index), &prefixes, &order, &error), 0);
    return order;
}

static void check_order(struct input *input, const uint32_t *expected, uint32_t count)
{
    struct nj_order order = make(input);
    assert_int_equal(order.count, count);
    assert_memory_equal(order.position, expected, count * sizeof *expected);
    order_free(&order);
}

static void test_groups_stay_together(void **state)
{
    (void)state;
    struct input input = input_create(10);
    add(&input, "ab", 10, 10);  /* 0: 148 tokens; with 3 and 5 */
    add(&input, "", 60, 140);   /* 1: 200, alone */
    add(&input, "x", 1, 40);    /* 2: 105; with 7 */
    add(&input, "a", 2, 20);    /* 3: 86 */
    add(&input, "", 64, 41);    /* 4: 105, alone and behind 2 and 7 */
    add(&input, "acd", 5, 30);  /* 5: 227, the longest */
    add(&input, "y", 1, 300);   /* 6: 365, alone */
    add(&input, "x", 30, 11);   /* 7: 105 */
    add(&input, "a", 0, 1);     /* 8: 65, whose only block cannot be shared */
    add(&input, "abcd", 0, 30); /* 9: 286; with 0, 3 and 5, and closer to 0 */
    const uint32_t expected[] = {6, 9, 0, 5, 3, 1, 2, 7, 4, 8};
    check_order(&input, expected, 10);
    input_free(&input);
}

/* A group begins with its subgroup of the longest member, and so all the way down. */
static void test_groups_are_nested(void **state)
{
    (void)state;
    struct input input = input_create(8);
    add(&input, "aabb", 1, 1);
    add(&input, "aacc", 9, 1);
    add(&input, "abbb", 5, 1);
    add(&input, "aaccdddd", 2, 1);
    add(&input, "aabb", 7, 1);
    add(&input, "aaccdddd", 3, 1);
    add(&input, "abbb", 60, 1);
    add(&input, "aaccddde", 4, 1); /* the longest, and closer to what begins aaccd than to others */
    const uint32_t expected[] = {7, 5, 3, 1, 4, 0, 6, 2};
    check_order(&input, expected, 8);
    input_free(&input);
}

static void test_keys_are_loaded_only_where_they_matter(void **state)
{
    (void)state;
    struct input input = input_create(4);
    add(&input, "", 60, 1);
    add(&input, "abcdefgh", 1, 1);
    add(&input, "", 64, 1);
    struct nj_order order = make(&input);
    assert_int_equal(input.loads, 0); /* one prompt alone has blocks to share */
    order_free(&order);
    add(&input, "abcd", 1, 1);
    order = make(&input);
    assert_int_equal(input.loads, 3); /* 1, 2 and 4 blocks; only one prompt has 8 */
    order_free(&order);
    input_free(&input);
}

static uint32_t length_at(const struct input *input, uint32_t position)
{
    const struct nj_index_entry *entry = index_at(input->index, position);
    return entry->prompt_tokens + entry->max_new_tokens;
}

static bool comes_first(const struct input *input, uint32_t a, uint32_t b)
{
    return length_at(input, a) != length_at(input, b) ? length_at(input, a) > length_at(input, b) : a < b;
}

/* The definition of the order, checked against what was made: every group of this level is in one piece and led by
 * its longest member, and the leaders are in order; then the same inside. */
static void check_level(const struct input *input, const uint32_t *position, uint32_t count, int level)
{
    uint32_t leader = 0;
    for (uint32_t begin = 0, end; begin < count; begin = end) {
        const uint32_t key = level < LEVELS ? input->key[position[begin]][level] : 0;
        for (end = begin + 1; key != 0 && end < count && input->key[position[end]][level] == key; end++)
            assert_true(comes_first(input, position[begin], position[end]));
        for (uint32_t i = end; key != 0 && i < count; i++)
            assert_int_not_equal(input->key[position[i]][level], key);
        assert_true(begin == 0 || comes_first(input, leader, position[begin]));
        leader = position[begin];
        if (end - begin > 1)
            check_level(input, position + begin, end - begin, level + 1);
    }
}

static void test_random_trees(void **state)
{
    (void)state;
    enum { COUNT = 3000, ROUNDS = 4 };
    uint32_t random = 7;
    for (int round = 0; round < ROUNDS; round++) {
        struct input input = input_create(COUNT);
        for (int i = 0; i < COUNT; i++) {
            char blocks[11] = "";
            random = random * 1664525 + 1013904223;
            const uint32_t depth = (random >> 8) % 11;
            for (uint32_t d = 0; d < depth; d++) {
                random = random * 1664525 + 1013904223;
                blocks[d] = (char)('a' + (random >> 16) % (uint32_t)(round + 1));
                blocks[d + 1] = '\0';
            }
            add(&input, blocks, depth == 10 ? 1 : (random >> 20) % BLOCK, (random >> 12) % 32);
            index_at(input.index, (uint32_t)i)->done = i % 7 == 3;
        }
        struct nj_order order = make(&input);
        uint32_t longest = order.position[0];
        uint8_t *seen = calloc(COUNT, 1);
        for (uint32_t i = 0; i < order.count; i++) {
            assert_int_equal(seen[order.position[i]]++, 0);
            assert_false(index_at(input.index, order.position[i])->done);
            assert_false(comes_first(&input, order.position[i], longest) && order.position[i] != longest);
        }
        assert_int_equal(order.count, COUNT - (COUNT + 3) / 7);
        check_level(&input, order.position, order.count, 0);
        free(seen);
        order_free(&order);
        input_free(&input);
    }
}

static int fail_to_load(void *context, int level, uint32_t *key, struct nj_error *error)
{
    (void)context;
    (void)level;
    (void)key;
    return error_set(error, NJ_IO_FAILED, "the disk is gone");
}

static void test_keys_that_cannot_be_loaded(void **state)
{
    (void)state;
    struct nj_error error;
    struct nj_order order;
    struct input input = input_create(2);
    const struct nj_prefix_source prefixes = {.load = fail_to_load};
    add(&input, "a", 1, 1);
    add(&input, "a", 1, 1);
    assert_int_equal(order_make(input.index, index_count(input.index), &prefixes, &order, &error), -1);
    assert_int_equal(error.code, NJ_IO_FAILED);
    input_free(&input);
}

/* Index and order stay within 48 bytes for each request, also while the order is made. */
static void test_memory(void **state)
{
    (void)state;
    enum { COUNT = 20 * 4096 };
    struct input input = input_create(COUNT);
    for (uint32_t i = 0; i < COUNT; i++)
        add(&input, i % 3 == 0 ? "ab" : "a", 1 + i % 5, i % 11);
    index_drop_table(input.index);
    heap.bytes = 0;
    heap.counting = true;
    struct nj_order order = make(&input);
    heap.counting = false;
    assert_true(input.loads > 0);
    const size_t beside = 4096; /* the list of the index's chunks, the index itself */
    assert_in_range(index_bytes(input.index) + heap.bytes, 1, (size_t)48 * COUNT + beside);
    order_free(&order);
    input_free(&input);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_groups_stay_together),
        cmocka_unit_test(test_groups_are_nested),
        cmocka_unit_test(test_keys_are_loaded_only_where_they_matter),
        cmocka_unit_test(test_random_trees),
        cmocka_unit_test(test_keys_that_cannot_be_loaded),
        cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
