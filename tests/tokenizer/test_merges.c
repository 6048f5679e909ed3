/* The queue of merges against the definition of byte-pair encoding, on random tables and pieces. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "engine/tokenizer/merges.h"
#include "engine/tokenizer/tokenizer.h"

enum { LETTERS = 3, PAIRS_MOST = 40, PIECE_MOST = 60 };

struct pair {
    int32_t left, right, merged;
};

struct table {
    struct pair pair[PAIRS_MOST]; /* by rank */
    int count;
};

static uint32_t random_below(uint64_t *state, uint32_t bound)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(*state >> 33) % bound;
}

static int rank_of(const struct table *table, int32_t left, int32_t right)
{
    for (int rank = 0; rank < table->count; rank++)
        if (table->pair[rank].left == left && table->pair[rank].right == right)
            return rank;
    return -1;
}

/* Tokens 0.. are the letters, each pair makes a new one. Ranks are shuffled, so that a merge may come before
 * one that makes its halves. */
static struct table make_table(uint64_t *state)
{
    struct table table = {.count = 0};
    int target = 1 + (int)random_below(state, PAIRS_MOST);
    for (int tries = 0; tries < 1000 && table.count < target; tries++) {
        int32_t left = (int32_t)random_below(state, (uint32_t)(LETTERS + table.count));
        int32_t right = (int32_t)random_below(state, (uint32_t)(LETTERS + table.count));
        if (rank_of(&table, left, right) < 0) {
            table.pair[table.count] = (struct pair){left, right, LETTERS + table.count};
            table.count++;
        }
    }
    for (int i = table.count - 1; i > 0; i--) {
        int other = (int)random_below(state, (uint32_t)i + 1);
        struct pair held = table.pair[i];
        table.pair[i] = table.pair[other];
        table.pair[other] = held;
    }
    return table;
}

/* The definition: as long as there is one, merge the leftmost pair of the lowest rank. */
static size_t merge_by_definition(const struct table *table, int32_t *id, size_t count)
{
    for (;;) {
        int lowest = -1;
        size_t place = 0;
        for (size_t i = 0; i + 1 < count; i++) {
            int rank = rank_of(table, id[i], id[i + 1]);
            if (rank >= 0 && (lowest < 0 || rank < lowest)) {
                lowest = rank;
                place = i;
            }
        }
        if (lowest < 0)
            return count;
        id[place] = table->pair[lowest].merged;
        count--;
        memmove(id + place + 1, id + place + 2, (count - place - 1) * sizeof *id);
    }
}

static void check_piece(const struct nj_merges *merges, const struct table *table, struct nj_merge_scratch *scratch,
                        uint64_t *state)
{
    char piece[PIECE_MOST];
    int32_t expected[PIECE_MOST];
    size_t length = random_below(state, PIECE_MOST + 1), count = 0;
    for (size_t i = 0; i < length; i++) {
        uint32_t letter = random_below(state, 20);
        piece[i] = (char)('a' + (letter < LETTERS + 1 ? letter : letter % LETTERS));
        if (piece[i] != 'a' + LETTERS) /* that letter has no token */
            expected[count++] = piece[i] - 'a';
    }
    count = merge_by_definition(table, expected, count);
    struct nj_ids ids = {0};
    struct nj_error error;
    assert_int_equal(merges_apply(merges, scratch, piece, length, &ids, &error), 0);
    assert_int_equal(ids.count, count);
    for (size_t i = 0; i < count; i++)
        assert_int_equal(ids.id[i], expected[i]);
    ids_free(&ids);
}

static void test_random_tables(void **state)
{
    (void)state;
    uint64_t random = 1;
    struct nj_merge_scratch scratch = {0};
    for (int round = 0; round < 500; round++) {
        struct table table = make_table(&random);
        struct nj_merges merges;
        assert_int_equal(merges_create(&merges, (size_t)table.count), 0);
        for (int letter = 0; letter < LETTERS; letter++)
            merges.byte_id['a' + letter] = letter;
        for (int rank = 0; rank < table.count; rank++)
            merges_add(&merges, table.pair[rank].left, table.pair[rank].right, rank, table.pair[rank].merged);
        for (int piece = 0; piece < 20; piece++)
            check_piece(&merges, &table, &scratch, &random);
        merges_destroy(&merges);
    }
    merge_scratch_free(&scratch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_tables),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
