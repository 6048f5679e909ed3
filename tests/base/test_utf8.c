#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "engine/base/utf8.h"

static void test_valid(void **state)
{
    (void)state;
    static const char *const VALID[] = {
        "",
        "plain",
        "\x7f",
        "\xc2\x80",         /* U+0080 */
        "\xdf\xbf",         /* U+07FF */
        "\xe0\xa0\x80",     /* U+0800 */
        "\xed\x9f\xbf",     /* U+D7FF */
        "\xee\x80\x80",     /* U+E000 */
        "\xef\xbf\xbf",     /* U+FFFF */
        "\xf0\x90\x80\x80", /* U+10000 */
        "\xf4\x8f\xbf\xbf", /* U+10FFFF */
    };
    for (size_t i = 0; i < sizeof VALID / sizeof *VALID; i++)
        assert_true(utf8_is_valid(VALID[i], strlen(VALID[i])));
    assert_true(utf8_is_valid("a\0b", 3));
}

static void test_invalid(void **state)
{
    (void)state;
    static const char *const INVALID[] = {
        "\x80",             /* a continuation byte alone */
        "\xc0\x80",         /* overlong */
        "\xc1\xbf",         /* overlong */
        "\xe0\x9f\xbf",     /* overlong */
        "\xf0\x8f\xbf\xbf", /* overlong */
        "\xed\xa0\x80",     /* U+D800 */
        "\xed\xbf\xbf",     /* U+DFFF */
        "\xf4\x90\x80\x80", /* U+110000 */
        "\xf5\x80\x80\x80",
        "\xff",
        "\xc3",         /* cut off */
        "\xe2\x82",     /* cut off */
        "\xf0\x9f\x98", /* cut off */
        "\xc3(",        /* no continuation */
        "\xe2\x82(",    /* no continuation */
        "ok\xe2",
    };
    for (size_t i = 0; i < sizeof INVALID / sizeof *INVALID; i++)
        assert_false(utf8_is_valid(INVALID[i], strlen(INVALID[i])));
}

static void test_character_bytes(void **state)
{
    (void)state;
    assert_int_equal(utf8_character_bytes("", 0), 0);
    assert_int_equal(utf8_character_bytes("ab", 2), 1);
    assert_int_equal(utf8_character_bytes("\xc3\xa9z", 3), 2);
    assert_int_equal(utf8_character_bytes("\xe2\x82\xac", 3), 3);
    assert_int_equal(utf8_character_bytes("\xf0\x9f\x98\x80", 4), 4);
    assert_int_equal(utf8_character_bytes("\xf0\x9f\x98\x80", 3), 0);
}

static void test_whole_bytes(void **state)
{
    (void)state;
    const char *text = "a\xf0\x9f\x98\x80";
    assert_int_equal(utf8_whole_bytes(text, 5), 5);
    assert_int_equal(utf8_whole_bytes(text, 4), 1);
    assert_int_equal(utf8_whole_bytes(text, 3), 1);
    assert_int_equal(utf8_whole_bytes(text, 2), 1);
    assert_int_equal(utf8_whole_bytes(text, 1), 1);
    assert_int_equal(utf8_whole_bytes(text, 0), 0);
    assert_int_equal(utf8_whole_bytes("\x80\x80", 2), 2); /* not a cut character: left to others */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_valid),
        cmocka_unit_test(test_invalid),
        cmocka_unit_test(test_character_bytes),
        cmocka_unit_test(test_whole_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
