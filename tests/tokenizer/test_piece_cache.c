/* The cache of pieces: what was put, exactly, or nothing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine/tokenizer/piece_cache.h"

enum { PIECES = 20000 };

static int make_piece(int i, char *piece, int32_t *id)
{
    for (int32_t j = 0; j < NJ_CACHED_PIECE_TOKENS; j++)
        id[j] = 100 * i + j;
    return sprintf(piece, "%d-%.*s", i, i % 12, "abcdefghijkl");
}

/* Far more pieces than slots: each look-up gives what belongs to the piece or nothing. */
static void test_pieces_replace_each_other(void **state)
{
    (void)state;
    struct nj_cached_piece *cache = calloc(NJ_CACHED_PIECES, sizeof *cache);
    char piece[64];
    int32_t id[NJ_CACHED_PIECE_TOKENS];
    int hits = 0;
    for (int i = 0; i < PIECES; i++) {
        size_t length = (size_t)make_piece(i, piece, id);
        struct nj_cached_piece *slot = piece_cache_slot(cache, piece, length);
        assert_non_null(slot);
        assert_false(piece_cache_holds(slot, piece, length));
        piece_cache_put(slot, piece, length, id, (size_t)(i % (NJ_CACHED_PIECE_TOKENS + 1)));
        assert_true(piece_cache_holds(slot, piece, length));
    }
    for (int i = 0; i < PIECES; i++) {
        size_t length = (size_t)make_piece(i, piece, id);
        const struct nj_cached_piece *slot = piece_cache_slot(cache, piece, length);
        if (!piece_cache_holds(slot, piece, length))
            continue;
        hits++;
        assert_int_equal(slot->count, i % (NJ_CACHED_PIECE_TOKENS + 1));
        assert_memory_equal(slot->id, id, slot->count * sizeof *id);
    }
    assert_in_range((unsigned)hits, NJ_CACHED_PIECES / 2, NJ_CACHED_PIECES);
    free(cache);
}

static void test_what_does_not_fit(void **state)
{
    (void)state;
    static struct nj_cached_piece cache[NJ_CACHED_PIECES];
    static const char bytes[] = "a piece of text that is too long";
    const int32_t id[NJ_CACHED_PIECE_TOKENS + 1] = {1};
    assert_null(piece_cache_slot(cache, bytes, NJ_CACHED_PIECE_BYTES + 1));
    struct nj_cached_piece *slot = piece_cache_slot(cache, bytes, NJ_CACHED_PIECE_BYTES);
    assert_non_null(slot);
    piece_cache_put(slot, bytes, NJ_CACHED_PIECE_BYTES, id, NJ_CACHED_PIECE_TOKENS + 1);
    assert_false(piece_cache_holds(slot, bytes, NJ_CACHED_PIECE_BYTES));
    piece_cache_put(slot, bytes, NJ_CACHED_PIECE_BYTES, NULL, 0);
    assert_true(piece_cache_holds(slot, bytes, NJ_CACHED_PIECE_BYTES));
    assert_false(piece_cache_holds(slot, bytes, NJ_CACHED_PIECE_BYTES - 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pieces_replace_each_other),
        cmocka_unit_test(test_what_does_not_fit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
