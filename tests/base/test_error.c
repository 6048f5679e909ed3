#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "engine/base/error.h"
#include "engine/base/utf8.h"

static void assert_formatted(const struct nj_error *error, const char *expected)
{
    char text[2048];
    error_format(error, text, sizeof text);
    assert_string_equal(text, expected);
}

static void test_set_fills_everything(void **state)
{
    (void)state;
    struct nj_error error;
    memset(&error, 0x55, sizeof error);
    assert_int_equal(error_set(&error, NJ_BAD_DATA, "%d of %s", 3, "x"), -1);
    assert_int_equal(error.code, NJ_BAD_DATA);
    assert_string_equal(error.message, "3 of x");
    assert_string_equal(error.file, "");
    assert_int_equal(error.line, 0);
    assert_int_equal(error.byte, -1);
    assert_formatted(&error, "3 of x");
}

static void test_null_is_allowed(void **state)
{
    (void)state;
    assert_int_equal(error_set(NULL, NJ_BAD_DATA, "x"), -1);
    assert_int_equal(error_at(NULL, "f", 1, 1), -1);
}

static void test_place_is_formatted(void **state)
{
    (void)state;
    struct nj_error error;
    error_set(&error, NJ_BAD_DATA, "wrong");
    assert_int_equal(error_at(&error, "a.jsonl", 7, 120), -1);
    assert_formatted(&error, "a.jsonl:7: wrong");
    error_set(&error, NJ_BAD_DATA, "wrong");
    error_at(&error, "a.gguf", 0, 120);
    assert_formatted(&error, "a.gguf: wrong (byte 120)");
    error_set(&error, NJ_BAD_DATA, "wrong");
    error_at(&error, "a.gguf", 0, -1);
    assert_formatted(&error, "a.gguf: wrong");
}

static void test_earlier_place_is_kept(void **state)
{
    (void)state;
    struct nj_error error;
    error_set(&error, NJ_BAD_DATA, "wrong");
    error_at(&error, "a", 0, 120);
    error_at(&error, "a", 3, 7);
    assert_int_equal(error.byte, 120);
    assert_int_equal(error.line, 3);
    error_set(&error, NJ_BAD_DATA, "wrong");
    error_at(&error, "a", 0, -1);
    error_at(&error, "b", 3, 7); /* a place in another file says nothing about this one */
    assert_formatted(&error, "a: wrong");
}

static void test_message_may_quote_itself(void **state)
{
    (void)state;
    struct nj_error error;
    error_set(&error, NJ_BAD_DATA, "inner");
    error_set(&error, NJ_INTERNAL, "outer: %s", error.message);
    assert_string_equal(error.message, "outer: inner");
}

static void test_message_is_one_line_of_valid_utf8(void **state)
{
    (void)state;
    struct nj_error error;
    error_set(&error, NJ_BAD_DATA, "a\nb\tc\x1b[0m");
    assert_string_equal(error.message, "a b c [0m");
    /* "é" fills the buffer at an odd offset, so that the cut falls into a character. */
    char text[2 * sizeof error.message];
    for (size_t i = 0; i + 2 < sizeof text; i += 2)
        memcpy(text + i, "\xc3\xa9", 3);
    error_set(&error, NJ_BAD_DATA, "%s", text);
    assert_int_equal(strlen(error.message), sizeof error.message - 2);
    assert_true(utf8_is_valid(error.message, strlen(error.message)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_set_fills_everything),     cmocka_unit_test(test_null_is_allowed),
        cmocka_unit_test(test_place_is_formatted),       cmocka_unit_test(test_earlier_place_is_kept),
        cmocka_unit_test(test_message_may_quote_itself), cmocka_unit_test(test_message_is_one_line_of_valid_utf8),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
