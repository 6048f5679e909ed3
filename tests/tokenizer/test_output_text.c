/* The text of an answer against independent whole-text definitions. The tokenizer has the 256 single bytes as
 * tokens 0..255, then some longer ones. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "engine/tokenizer/output_text.h"
#include "tests/tokenizer/tokenizer_file.h"

/* Byte-level forms: " the", E2 82 (a euro sign's beginning), AC 20, F0 9F 98, "ab". */
static const char *const long_tokens[] = {
    "\xC4\xA0the", "\xC3\xA2\xC4\xA4", "\xC2\xAC\xC4\xA0", "\xC3\xB0\xC5\x81\xC4\xBA", "ab", "<ctl>", "<used>",
    "spare"};
enum { THE = 256, EURO, CENT, EMOJI, AB, CONTROL, USER_DEFINED, UNUSED, TOKEN_COUNT };
enum { END = 'z' }; /* an end token that is no control token */

static struct nj_tokenizer *tokenizer;

static int open_tokenizer(void **state)
{
    (void)state;
    static char byte_token[256][3];
    byte_tokens_fill(byte_token);
    const char *tokens[TOKEN_COUNT];
    int32_t types[TOKEN_COUNT];
    for (int id = 0; id < TOKEN_COUNT; id++) {
        tokens[id] = id < 256 ? byte_token[id] : long_tokens[id - 256];
        types[id] = id == CONTROL ? 3 : id == USER_DEFINED ? 4 : id == UNUSED ? 5 : 1;
    }
    struct tokenizer_file file = tokenizer_file_empty();
    file.tokens = tokens;
    file.types = types;
    file.token_count = file.type_count = TOKEN_COUNT;
    file.merges = (const char *const[]){"a b"};
    file.merge_count = 1;
    file.eos = END;
    struct nj_error error;
    tokenizer = tokenizer_file_open(&file, &error);
    if (tokenizer == NULL)
        fail_msg("%s", error.message);
    return 0;
}

static int close_tokenizer(void **state)
{
    (void)state;
    tokenizer_destroy(tokenizer);
    return 0;
}

static struct nj_text text_of(const char *bytes)
{
    return (struct nj_text){bytes, strlen(bytes)};
}

static void assert_text(const struct nj_output_text *text, const char *expected, size_t length)
{
    struct nj_text got = output_text_get(text);
    assert_int_equal(got.length, length);
    assert_memory_equal(got.bytes, expected, length);
}

static void append_bytes(struct nj_output_text *text, const char *bytes)
{
    for (; *bytes != '\0'; bytes++)
        assert_int_equal(output_text_append(text, (unsigned char)*bytes), 0);
}

/* What Python's bytes.decode("utf-8", "replace") gives, for bytes that CPython was asked about. */
static void test_replacement_is_pythons(void **state)
{
    (void)state;
    static const struct {
        const char *bytes, *text;
    } cases[] = {
        {"abc", "abc"},
        {"\xE2\x82\xAC", "\xE2\x82\xAC"},
        {"\x80", "\xEF\xBF\xBD"},
        {"\xC3", "\xEF\xBF\xBD"},
        {"\xC3(", "\xEF\xBF\xBD("},
        {"\xE2\x82", "\xEF\xBF\xBD"},
        {"\xE2\x82g", "\xEF\xBF\xBDg"},
        {"\xE2(\xA1", "\xEF\xBF\xBD(\xEF\xBF\xBD"},
        {"\xF0\x9F\x98", "\xEF\xBF\xBD"},
        {"\xF0\x9F\x98\xF0\x9F\x98\x80", "\xEF\xBF\xBD\xF0\x9F\x98\x80"},
        {"\xF0\x80\x80\x80", "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"},
        {"\xED\xA0\x80", "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"},
        {"\xED\x9F\xBF", "\xED\x9F\xBF"},
        {"\xC0\xAF", "\xEF\xBF\xBD\xEF\xBF\xBD"},
        {"\xE0\x80\x80", "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"},
        {"\xF4\x8F\xBF\xBF", "\xF4\x8F\xBF\xBF"},
        {"\xF4\x90\x80\x80", "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"},
        {"\xF5\xFF", "\xEF\xBF\xBD\xEF\xBF\xBD"},
        {"\xF1\x80\x80\xC3\xA9", "\xEF\xBF\xBD\xC3\xA9"},
        {"\xE2\xE2\x82\xAC", "\xEF\xBF\xBD\xE2\x82\xAC"},
    };
    struct nj_output_text *text = output_text_create(tokenizer, NULL, 0);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(output_text_reset(text, NULL, 0), 0);
        append_bytes(text, cases[i].bytes);
        assert_int_equal(output_text_finish(text), 0);
        assert_text(text, cases[i].text, strlen(cases[i].text));
    }
    output_text_destroy(text);
}

static void test_characters_wait_for_their_last_byte(void **state)
{
    (void)state;
    struct nj_output_text *text = output_text_create(tokenizer, NULL, 0);
    assert_text(text, "", 0);
    assert_int_equal(output_text_append(text, AB), 0);
    assert_int_equal(output_text_append(text, EURO), 0);
    assert_text(text, "ab", 2);
    assert_int_equal(output_text_append(text, CENT), 0);
    assert_text(text, "ab\xE2\x82\xAC ", 6);
    assert_int_equal(output_text_append(text, EMOJI), 0);
    assert_int_equal(output_text_append(text, THE), 0);
    assert_text(text, "ab\xE2\x82\xAC \xEF\xBF\xBD the", 13);
    assert_int_equal(output_text_append(text, EURO), 0);
    assert_int_equal(output_text_finish(text), 0);
    assert_text(text, "ab\xE2\x82\xAC \xEF\xBF\xBD the\xEF\xBF\xBD", 16);
    output_text_destroy(text);
}

static void test_tokens_without_text(void **state)
{
    (void)state;
    const int32_t silent[] = {CONTROL, UNUSED, END, -1, TOKEN_COUNT, INT32_MAX};
    struct nj_output_text *text = output_text_create(tokenizer, NULL, 0);
    assert_int_equal(output_text_append(text, EURO), 0);
    for (size_t i = 0; i < sizeof silent / sizeof silent[0]; i++)
        assert_int_equal(output_text_append(text, silent[i]), 0);
    assert_int_equal(output_text_append(text, 0xAC), 0);
    assert_int_equal(output_text_append(text, USER_DEFINED), 0);
    assert_int_equal(output_text_finish(text), 0);
    assert_text(text, "\xE2\x82\xAC<used>", 9);
    output_text_destroy(text);
}

static void test_stop_across_tokens(void **state)
{
    (void)state;
    const struct nj_text stop[] = {text_of("b the")};
    struct nj_output_text *text = output_text_create(tokenizer, stop, 1);
    assert_int_equal(output_text_append(text, AB), 0);
    assert_text(text, "ab", 2);
    assert_int_equal(output_text_append(text, ' '), 0);
    assert_int_equal(output_text_append(text, AB), 0);
    assert_int_equal(output_text_append(text, THE), 1);
    assert_text(text, "ab a", 4);
    assert_int_equal(output_text_append(text, AB), 1);
    assert_int_equal(output_text_finish(text), 1);
    assert_text(text, "ab a", 4);
    output_text_destroy(text);
}

static void test_stop_inside_a_token(void **state)
{
    (void)state;
    const struct nj_text stop[] = {text_of("h")};
    struct nj_output_text *text = output_text_create(tokenizer, stop, 1);
    assert_int_equal(output_text_append(text, THE), 1);
    assert_text(text, " t", 2);
    output_text_destroy(text);
}

/* "a b" is complete before "a b c" can be; of "xyz" and "yz", which end together, the longer counts. */
static void test_which_stop_counts(void **state)
{
    (void)state;
    const struct nj_text nested[] = {text_of("a b c"), text_of("a b")};
    struct nj_output_text *text = output_text_create(tokenizer, nested, 2);
    append_bytes(text, "-a ");
    assert_int_equal(output_text_append(text, 'b'), 1);
    assert_text(text, "-", 1);
    const struct nj_text same_end[] = {text_of("!?"), text_of("x!?"), text_of("?")};
    assert_int_equal(output_text_reset(text, same_end, 3), 0);
    append_bytes(text, "-x!");
    assert_int_equal(output_text_append(text, '?'), 1);
    assert_text(text, "-", 1);
    output_text_destroy(text);
}

static void test_stop_of_replacement_characters(void **state)
{
    (void)state;
    const struct nj_text stop[] = {text_of("a\xEF\xBF\xBD")};
    struct nj_output_text *text = output_text_create(tokenizer, stop, 1);
    assert_int_equal(output_text_append(text, 'a'), 0);
    assert_int_equal(output_text_append(text, EURO), 0);
    assert_int_equal(output_text_finish(text), 1);
    assert_text(text, "", 0);
    output_text_destroy(text);
}

static void test_limits_of_stop_strings(void **state)
{
    (void)state;
    char longest[NJ_STOP_BYTES_MOST + 1];
    memset(longest, 'q', sizeof longest);
    struct nj_text stop[NJ_STOP_STRINGS_MOST + 1];
    for (int i = 0; i <= NJ_STOP_STRINGS_MOST; i++)
        stop[i] = (struct nj_text){longest, NJ_STOP_BYTES_MOST};
    struct nj_output_text *text = output_text_create(tokenizer, stop, NJ_STOP_STRINGS_MOST);
    assert_non_null(text);
    for (int i = 1; i < NJ_STOP_BYTES_MOST; i++)
        assert_int_equal(output_text_append(text, 'q'), 0);
    assert_int_equal(output_text_append(text, 'q'), 1);
    assert_text(text, "", 0);
    assert_int_equal(output_text_reset(text, stop, NJ_STOP_STRINGS_MOST + 1), -1);
    stop[0].length = NJ_STOP_BYTES_MOST + 1;
    assert_int_equal(output_text_reset(text, stop, 1), -1);
    stop[0].length = 0;
    assert_int_equal(output_text_reset(text, stop, 1), -1);
    assert_null(output_text_create(tokenizer, stop, 1));
    output_text_destroy(text);
}

static uint32_t random_below(uint64_t *state, uint32_t bound)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(*state >> 33) % bound;
}

/* Well-formed UTF-8, table 3-7 of the Unicode standard, written out as ranges. */
static const unsigned char well_formed[][8] = {
    {0x00, 0x7F},
    {0xC2, 0xDF, 0x80, 0xBF},
    {0xE0, 0xE0, 0xA0, 0xBF, 0x80, 0xBF},
    {0xE1, 0xEC, 0x80, 0xBF, 0x80, 0xBF},
    {0xED, 0xED, 0x80, 0x9F, 0x80, 0xBF},
    {0xEE, 0xEF, 0x80, 0xBF, 0x80, 0xBF},
    {0xF0, 0xF0, 0x90, 0xBF, 0x80, 0xBF, 0x80, 0xBF},
    {0xF1, 0xF3, 0x80, 0xBF, 0x80, 0xBF, 0x80, 0xBF},
    {0xF4, 0xF4, 0x80, 0x8F, 0x80, 0xBF, 0x80, 0xBF},
};

/* Decodes a whole: for each place, the row that fits furthest. */
static size_t decode_whole(const unsigned char *bytes, size_t length, char *out)
{
    size_t written = 0;
    for (size_t at = 0; at < length;) {
        size_t furthest = 1;
        int is_whole = 0;
        for (size_t row = 0; row < sizeof well_formed / sizeof well_formed[0]; row++) {
            size_t fits = 0;
            while (fits < 4 && well_formed[row][2 * fits + 1] != 0 && at + fits < length &&
                   bytes[at + fits] >= well_formed[row][2 * fits] && bytes[at + fits] <= well_formed[row][2 * fits + 1])
                fits++;
            if (fits > 0 && (fits == 4 || well_formed[row][2 * fits + 1] == 0))
                is_whole = 1;
            if (fits > furthest)
                furthest = fits;
        }
        memcpy(out + written, is_whole ? (const char *)bytes + at : "\xEF\xBF\xBD", is_whole ? furthest : 3);
        written += is_whole ? furthest : 3;
        at += furthest;
    }
    return written;
}

/* The first place in the text where a stop string ends, and the earliest start of those that end there. */
static int find_stop(const char *text, size_t length, const struct nj_text *stop, int stop_count, size_t *cut)
{
    for (size_t end = 1; end <= length; end++)
        for (size_t begin = 0; begin < end; begin++)
            for (int i = 0; i < stop_count; i++)
                if (stop[i].length == end - begin && memcmp(text + begin, stop[i].bytes, end - begin) == 0) {
                    *cut = begin;
                    return 1;
                }
    return 0;
}

enum { TOKENS_MOST = 40, TEXT_MOST = TOKENS_MOST * 8 * 3 };

/* A random answer from few different tokens, so that stop strings and characters come about often. */
static int make_answer(uint64_t *random, int32_t *token, unsigned char *bytes, size_t *length)
{
    static const int32_t common[] = {'a', 'b', ' ', AB, THE, EURO, CENT, EMOJI, 0x80, 0x9F, 0xE2, 0xF0, 0xC3, CONTROL};
    int count = (int)random_below(random, TOKENS_MOST + 1);
    *length = 0;
    for (int i = 0; i < count; i++) {
        uint32_t pick = random_below(random, 20);
        token[i] = pick < 14 ? common[pick] : (int32_t)random_below(random, TOKEN_COUNT);
        if (token[i] == CONTROL || token[i] == UNUSED || token[i] == END)
            continue;
        struct nj_text text = tokenizer_token_bytes(tokenizer, token[i]);
        memcpy(bytes + *length, text.bytes, text.length);
        *length += text.length;
    }
    return count;
}

/* Stop strings are pieces of the expected text, or of another order of its bytes. */
static int make_stops(uint64_t *random, const char *text, size_t length, struct nj_text *stop)
{
    static const char *const others[] = {"a", "ab ", "ba", "\xEF\xBF\xBD\xEF\xBF\xBD", " the", "the ", "aa"};
    int count = (int)random_below(random, 4);
    for (int i = 0; i < count; i++) {
        if (length == 0 || random_below(random, 2) == 0) {
            stop[i] = text_of(others[random_below(random, 7)]);
            continue;
        }
        size_t begin = random_below(random, (uint32_t)length);
        size_t most = length - begin < 6 ? length - begin : 6;
        stop[i] = (struct nj_text){text + begin, 1 + random_below(random, (uint32_t)most)};
    }
    return count;
}

static void test_random_answers(void **state)
{
    (void)state;
    uint64_t random = 7;
    int stopped = 0;
    struct nj_output_text *text = output_text_create(tokenizer, NULL, 0);
    for (int round = 0; round < 20000; round++) {
        int32_t token[TOKENS_MOST];
        unsigned char bytes[TOKENS_MOST * 8];
        char expected[TEXT_MOST];
        struct nj_text stop[4];
        size_t length, cut;
        int count = make_answer(&random, token, bytes, &length);
        size_t expected_length = decode_whole(bytes, length, expected);
        int stop_count = make_stops(&random, expected, expected_length, stop);
        int is_stopped = find_stop(expected, expected_length, stop, stop_count, &cut);
        if (is_stopped)
            expected_length = cut;

        assert_int_equal(output_text_reset(text, stop, stop_count), 0);
        int status = 0;
        for (int i = 0; i < count && status == 0; i++)
            status = output_text_append(text, token[i]);
        if (status == 0)
            status = output_text_finish(text);
        assert_int_equal(status, is_stopped);
        assert_text(text, expected, expected_length);
        stopped += is_stopped;
    }
    assert_in_range(stopped, 2000, 18000); /* both outcomes are common */
    output_text_destroy(text);
}

/* Room that was reserved, or that a longer answer took, is used without moving. */
static void test_reserved_room_is_kept(void **state)
{
    (void)state;
    struct nj_output_text *text = output_text_create(tokenizer, NULL, 0);
    assert_int_equal(output_text_reserve(text, 10000), 0);
    assert_int_equal(output_text_append(text, 'a'), 0);
    const char *place = output_text_get(text).bytes;
    for (int i = 1; i < 10000; i++)
        assert_int_equal(output_text_append(text, 'a'), 0);
    assert_ptr_equal(output_text_get(text).bytes, place);
    assert_int_equal(output_text_reset(text, NULL, 0), 0);
    assert_text(text, "", 0);
    for (int i = 0; i < 10000; i++)
        assert_int_equal(output_text_append(text, 'b'), 0);
    assert_ptr_equal(output_text_get(text).bytes, place);
    output_text_destroy(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_replacement_is_pythons),
        cmocka_unit_test(test_characters_wait_for_their_last_byte),
        cmocka_unit_test(test_tokens_without_text),
        cmocka_unit_test(test_stop_across_tokens),
        cmocka_unit_test(test_stop_inside_a_token),
        cmocka_unit_test(test_which_stop_counts),
        cmocka_unit_test(test_stop_of_replacement_characters),
        cmocka_unit_test(test_limits_of_stop_strings),
        cmocka_unit_test(test_random_answers),
        cmocka_unit_test(test_reserved_room_is_kept),
    };
    return cmocka_run_group_tests(tests, open_tokenizer, close_tokenizer);
}
