/* Where texts are cut. In expected results pieces end with '|'. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "engine/tokenizer/pretokenizer.h"

struct pieces {
    char joined[512];
    size_t length, count, longest;
};

static int add_piece(void *context, const char *piece, size_t length, struct nj_error *error)
{
    (void)error;
    struct pieces *pieces = context;
    assert_true(length > 0);
    pieces->count++;
    if (length > pieces->longest)
        pieces->longest = length;
    if (pieces->length + length + 1 < sizeof pieces->joined) {
        memcpy(pieces->joined + pieces->length, piece, length);
        pieces->length += length;
        pieces->joined[pieces->length++] = '|';
    }
    return 0;
}

static struct nj_pretokenizer *open_row(const char *name)
{
    struct nj_error error;
    struct nj_pretokenizer *pretokenizer = pretokenizer_create((struct nj_text){name, strlen(name)}, &error);
    if (pretokenizer == NULL)
        fail_msg("%s", error.message);
    return pretokenizer;
}

static struct pieces split(const char *row, const char *text, size_t length)
{
    struct pieces pieces = {0};
    struct nj_error error;
    struct nj_pretokenizer *pretokenizer = open_row(row);
    struct nj_pretokenizer_scratch *scratch = pretokenizer_create_scratch(pretokenizer);
    assert_non_null(scratch);
    if (pretokenizer_split(pretokenizer, scratch, text, length, add_piece, &pieces, &error) != 0)
        fail_msg("%s", error.message);
    pretokenizer_destroy_scratch(scratch);
    pretokenizer_destroy(pretokenizer);
    return pieces;
}

static void check_row(const char *row, const char *text, const char *expected)
{
    struct pieces pieces = split(row, text, strlen(text));
    pieces.joined[pieces.length] = '\0';
    assert_string_equal(pieces.joined, expected);
}

static void check(const char *text, const char *expected)
{
    check_row("smollm", text, expected);
}

static void test_words_and_signs(void **state)
{
    (void)state;
    check("", "");
    check("Hello, world!", "Hello|,| world|!|");
    check("a  b", "a| | b|");
    check("a \n b ", "a| \n| b| |");
    check("it's WE'VE 'll", "it|'s| WE|'|VE| '|ll|");
    check("x=(y)", "x|=(|y|)|");
}

static void test_digits_stand_alone(void **state)
{
    (void)state;
    check("12 3", "1|2| |3|");
    check("a1b", "a|1|b|");
    check("\xC2\xBD\xC2\xB2", "\xC2\xBD|\xC2\xB2|");            /* one half, superscript two */
    check("\xD9\xA3\xE2\x85\xA7x", "\xD9\xA3|\xE2\x85\xA7|x|"); /* Arabic three, Roman eight */
    check("'1s", "'|1|s|");
}

/* The cut by digits comes first: the look-ahead for more text does not see beyond it. */
static void test_space_before_a_digit(void **state)
{
    (void)state;
    check("a   1", "a|   |1|");
    check("a   b", "a|  | b|");
    check("1   ", "1|   |");
}

/* White space is what Unicode calls so: U+0085, U+00A0 and U+3000 are, U+180E, U+200B and U+001C are not. */
static void test_white_space_is_unicodes(void **state)
{
    (void)state;
    check("a\xC2\xA0\xC2\x85\xE3\x80\x80", "a|\xC2\xA0\xC2\x85\xE3\x80\x80|");
    check("a\xE1\xA0\x8E!b", "a|\xE1\xA0\x8E!|b|");
    check("a \xE1\xA0\x8E", "a| \xE1\xA0\x8E|");
    check("a\xE2\x80\x8B\x1C!b", "a|\xE2\x80\x8B\x1C!|b|");
}

static void test_gpt2_keeps_numbers_whole(void **state)
{
    (void)state;
    check_row("gpt-2", "a1 2345b it's  x!", "a|1| 2345|b| it|'s| | x|!|");
    check_row("gpt-2", "a\n\nb  1", "a|\n|\n|b| | 1|");
    check_row("phi-2", "a1 2345b", "a|1| 2345|b|");
}

static void test_qwen2(void **state)
{
    (void)state;
    check_row("qwen2", "Hello, world!\n\n  x", "Hello|,| world|!\n\n| | x|");
    check_row("qwen2", "12 3a", "1|2| |3|a|");
    check_row("qwen2", "it'S We'LL x's", "it|'S| We|'LL| x|'s|");
    check_row("qwen2", "'\xC5\xBF", "'\xC5\xBF|"); /* long s, a small form of S */
    check_row("qwen2", "(x)(y", "(x|)(|y|");
    check_row("qwen2", "a \r\n \n b", "a| \r\n \n| b|");
    check_row("qwen2",
              "a\xC2\xA0\xC2\x85"
              "b\xE1\xA0\x8E!",
              "a|\xC2\xA0|\xC2\x85"
              "b|\xE1\xA0\x8E!|");
}

static void test_llama_groups_three_digits(void **state)
{
    (void)state;
    check_row("llama-bpe", "1234567 12", "123|456|7| |12|");
    check_row("llama-bpe",
              "a1234\xC2\xBD\xD9\xA3"
              "b",
              "a|123|4\xC2\xBD\xD9\xA3|b|");
    check_row("llama-bpe", "don'T!\n", "don|'T|!\n|");
}

static void check_row_run(const char *row, const char *unit, size_t pieces_expected)
{
    enum { REPEATS = 1000000 };
    size_t length = strlen(unit) * REPEATS;
    char *text = malloc(length + 1);
    assert_non_null(text);
    for (size_t i = 0; i < REPEATS; i++)
        memcpy(text + i * strlen(unit), unit, strlen(unit));
    text[length] = 'x';
    struct pieces pieces = split(row, text, length + 1);
    assert_int_equal(pieces.count, pieces_expected);
    free(text);
}

static void check_run(const char *unit, size_t pieces_expected)
{
    check_row_run("smollm", unit, pieces_expected);
}

static void test_long_runs(void **state)
{
    (void)state;
    check_run(" ", 2);
    check_run("\n", 3);
    check_run("y", 1);
    check_run("\xE3\x80\x80", 3);
    check_run("\xE6\x97\xA5", 1);
    check_run("!", 2);
    check_run("7", 1000001);
}

static void test_long_runs_of_llama_bpe(void **state)
{
    (void)state;
    check_row_run("llama-bpe", " ", 2);
    check_row_run("llama-bpe", "\n", 2);
    check_row_run("llama-bpe", " \n", 2);
    check_row_run("llama-bpe", "\n ", 2);
    check_row_run("llama-bpe", "y", 1);
    check_row_run("llama-bpe", "\xE3\x80\x80", 2);
    check_row_run("llama-bpe", "!", 2);
    check_row_run("llama-bpe", "'s", 1000001);
    check_row_run("llama-bpe", "7", 333335);
}

static int refuse_piece(void *context, const char *piece, size_t length, struct nj_error *error)
{
    (void)piece;
    (void)length;
    ++*(int *)context;
    return error_set(error, NJ_IO_FAILED, "no more");
}

static void test_a_failing_visitor_ends_the_split(void **state)
{
    (void)state;
    struct nj_error error;
    struct nj_pretokenizer *pretokenizer = open_row("smollm");
    struct nj_pretokenizer_scratch *scratch = pretokenizer_create_scratch(pretokenizer);
    int calls = 0;
    assert_int_equal(pretokenizer_split(pretokenizer, scratch, "a b 1", 5, refuse_piece, &calls, &error), -1);
    assert_int_equal(calls, 1);
    assert_int_equal(error.code, NJ_IO_FAILED);
    pretokenizer_destroy_scratch(scratch);
    pretokenizer_destroy(pretokenizer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_words_and_signs),           cmocka_unit_test(test_digits_stand_alone),
        cmocka_unit_test(test_space_before_a_digit),      cmocka_unit_test(test_white_space_is_unicodes),
        cmocka_unit_test(test_gpt2_keeps_numbers_whole),  cmocka_unit_test(test_qwen2),
        cmocka_unit_test(test_llama_groups_three_digits), cmocka_unit_test(test_long_runs),
        cmocka_unit_test(test_long_runs_of_llama_bpe),    cmocka_unit_test(test_a_failing_visitor_ends_the_split),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
