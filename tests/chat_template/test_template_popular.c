/* Chat templates of popular models, each over ten conversations, as Jinja2 rendered them (render_templates.py).
 * NJ_POPULAR_TEMPLATES is the file that it wrote; the templates themselves are no part of this repository. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/chat_template/template_cases.h"

enum outcome { EQUAL, BOTH_REFUSE, REFUSED, DIFFERENT, OUTCOMES };

static bool is_equal(const json_t *expected, const struct nj_rendered *rendered)
{
    return expected != NULL && json_string_length(expected) == rendered->length &&
           memcmp(json_string_value(expected), rendered->text, rendered->length) == 0;
}

/* One conversation. A refusal, when compiled or when rendered, leaves its reason in `error`. */
static enum outcome compare_case(const json_t *one, const json_t *inputs, const struct nj_chat_template *chat,
                                 struct nj_error *error)
{
    const json_t *expected = json_object_get(one, "expected");
    struct nj_chat_input input = cases_make_input(one, inputs);
    struct nj_rendered rendered = {0};
    if (chat == NULL || chat_template_render(chat, &input, &rendered, error) != 0)
        return error->code != NJ_BAD_DATA ? DIFFERENT : expected == NULL ? BOTH_REFUSE : REFUSED;
    enum outcome outcome = is_equal(expected, &rendered) ? EQUAL : DIFFERENT;
    if (outcome == DIFFERENT)
        print_error("gave      %.1500s\nexpected  %.1500s\n", rendered.text,
                    expected == NULL ? "an error" : json_string_value(expected));
    rendered_free(&rendered);
    return outcome;
}

/* All conversations of one template; adds to the counts and returns whether Jinja2 and the interpreter agree. */
static bool compare_template(const json_t *entry, const json_t *inputs, size_t counts[OUTCOMES])
{
    const char *name = json_string_value(json_object_get(entry, "name"));
    struct nj_error error = {0};
    struct nj_chat_template *chat = cases_compile(entry, &error);
    const json_t *one;
    size_t i;
    bool agrees = true;
    json_array_foreach(json_object_get(entry, "cases"), i, one)
    {
        enum outcome outcome = compare_case(one, inputs, chat, &error);
        counts[outcome]++;
        if (outcome == REFUSED || outcome == DIFFERENT) {
            print_error("%s, conversation \"%s\": %s\n", name, json_string_value(json_object_get(one, "conversation")),
                        outcome == REFUSED ? error.message : "different");
            agrees = false;
        }
    }
    chat_template_destroy(chat);
    return agrees;
}

static void test_popular_templates(void **state)
{
    (void)state;
    json_error_t failure;
    json_t *file = json_load_file(getenv("NJ_POPULAR_TEMPLATES"), JSON_ALLOW_NUL, &failure);
    if (file == NULL)
        fail_msg("%s: %s", getenv("NJ_POPULAR_TEMPLATES"), failure.text);
    const json_t *templates = json_object_get(file, "templates"), *entry;
    size_t counts[OUTCOMES] = {0}, agreeing = 0, i;
    json_array_foreach(templates, i, entry)
    {
        agreeing += compare_template(entry, file, counts);
    }
    const size_t all = json_array_size(templates);
    print_message("%zu templates, %zu of them as in Jinja2 in all conversations\n", all, agreeing);
    print_message("conversations: %zu equal, %zu refused by both, %zu refused here only, %zu different\n",
                  counts[EQUAL], counts[BOTH_REFUSE], counts[REFUSED], counts[DIFFERENT]);
    json_decref(file);
    assert_true(all >= 50);
    assert_int_equal(agreeing, all);
}

int main(void)
{
    if (getenv("NJ_POPULAR_TEMPLATES") == NULL) {
        puts("skipped: NJ_POPULAR_TEMPLATES does not name the file that render_templates.py wrote");
        return 77;
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_popular_templates)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
