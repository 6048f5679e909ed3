/* Random edits of the case templates, repeatable: whatever a template holds, it is rendered or refused with a
 * message, without a crash (the sanitizers look on) and in bounded time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "tests/chat_template/template_cases.h"

enum { ROUNDS = 20000, BUDGET_SECONDS = 8, LEAST_ROUNDS = 500 };

static uint64_t next_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static const char *const pieces[] = {
    "{{",
    "}}",
    "{%",
    "%}",
    "{#",
    "#}",
    "-%}",
    "{%-",
    "'",
    "\"",
    "\\",
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    "|",
    ".",
    ",",
    ":",
    "=",
    "==",
    "+",
    "-",
    "*",
    "**",
    "/",
    "//",
    "%",
    "~",
    "<",
    " if ",
    " else ",
    " for x in ",
    " in ",
    " not ",
    " is ",
    " and ",
    "{% endif %}",
    "{% endfor %}",
    "{% set x = ",
    "{% for i in items %}",
    "{{ loop.last }}",
    "messages",
    "nope",
    "range(9)",
    "9223372036854775807",
    "1e308",
    "-1",
    "0",
    "|list",
    "|join",
    "|tojson",
    "|sort",
    "|first",
    "|int",
    "|batch(0)|list",
    "|slice(-1)|list",
    "|center(99999)",
    "|indent(-5)",
    "|truncate(1)",
    "|round(400)",
    "[::-1]",
    "[-9223372036854775807:]",
    "[::9223372036854775807]",
    "'%*d' % 1",
    "'%9.9e' % 1.5",
    "'{:>9}'.format(1)",
    ".split('')",
    ".find('a', -9)",
    ".zfill(20)",
    "\xC3\xA9",
    "\n",
    "\r",
    "{% raw %}",
    "{% endraw %}",
    "{% break %}",
    "{% macro f(a=f) %}",
    "{% endmacro %}",
    "f(f)",
    "namespace(a=1)",
    "dict(a=1)",
    "caller()",
    "{{ '%' % x }}",
};

/* Copies a part of the template, deletes one, inserts a piece, or swaps a byte. */
static size_t edit(char *text, size_t length, size_t capacity, uint64_t *random)
{
    size_t at = next_random(random) % (length + 1), span = next_random(random) % 12;
    const char *piece = pieces[next_random(random) % (sizeof pieces / sizeof pieces[0])];
    char copied[16];
    switch (next_random(random) % 4) {
    case 0:
        span = span > length - at ? length - at : span;
        memmove(text + at, text + at + span, length - at - span);
        return length - span;
    case 1:
        span = span > length - at ? length - at : span;
        memcpy(copied, text + at, span);
        copied[span] = '\0';
        piece = copied;
        at = next_random(random) % (length + 1);
        break;
    case 2:
        if (at < length)
            text[at] = (char)(next_random(random) % 96 + 32);
        return length;
    default:
        break;
    }
    size_t more = strlen(piece);
    if (length + more > capacity)
        return length;
    memmove(text + at + more, text + at, length - at);
    memcpy(text + at, piece, more);
    return length + more;
}

static void check_one(const char *source, size_t length, const struct nj_chat_input *input, size_t *rendered_count)
{
    struct nj_error error = {0};
    struct nj_rendered rendered;
    struct nj_chat_template *chat = chat_template_compile(source, length, &error);
    if (chat == NULL) {
        assert_int_equal(error.code, NJ_BAD_DATA);
        assert_true(error.message[0] != '\0');
        return;
    }
    if (chat_template_render(chat, input, &rendered, &error) != 0) {
        assert_int_equal(error.code, NJ_BAD_DATA);
        assert_true(error.message[0] != '\0');
    } else {
        ++*rendered_count;
        assert_int_equal(rendered.text[rendered.length], 0);
    }
    rendered_free(&rendered);
    chat_template_destroy(chat);
}

static void test_edited_templates(void **state)
{
    (void)state;
    json_t *inputs = cases_load_json("chat_template/inputs.json");
    json_t *cases = cases_load_lines("chat_template/cases.jsonl");
    uint64_t random = 88172645463325252u;
    size_t rounds = 0, rendered_count = 0;
    time_t start = time(NULL);
    /* The order of rounds is fixed; a slow machine only stops earlier. */
    for (; rounds < ROUNDS && (time(NULL) - start < BUDGET_SECONDS || rounds < LEAST_ROUNDS); rounds++) {
        const json_t *one = json_array_get(cases, next_random(&random) % json_array_size(cases));
        const json_t *source = json_object_get(one, "template");
        if (json_object_get(one, "at_render") != NULL)
            continue; /* those that run into the limits take their time */
        char text[4096];
        size_t length = json_string_length(source);
        assert_true(length < sizeof text);
        memcpy(text, json_string_value(source), length);
        for (uint64_t edits = 1 + next_random(&random) % 4; edits > 0; edits--)
            length = edit(text, length, sizeof text, &random);
        struct nj_chat_input input = cases_make_input(one, inputs);
        check_one(text, length, &input, &rendered_count);
    }
    /* Templates that are all refused would test little. */
    assert_true(rendered_count > rounds / 10);
    json_decref(cases);
    json_decref(inputs);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_edited_templates),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
