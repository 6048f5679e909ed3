/* Every case of tests/data/chat_template renders as Jinja2 rendered it (make_vectors.py), or fails as it did. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "tests/chat_template/template_cases.h"

enum { SHOWN_FAILURES = 20 };

/* Why the case failed, or NULL. */
static const char *check_compile_error(const json_t *one, const struct nj_error *error)
{
    static char reason[2048];
    const char *refused = json_string_value(json_object_get(one, "refused"));
    const char *kind = json_string_value(json_object_get(one, "error"));
    char line[64];
    snprintf(line, sizeof line, "line %lld,", (long long)json_integer_value(json_object_get(one, "line")));
    snprintf(reason, sizeof reason, "refused: %s", error->message);
    if (error->code != NJ_BAD_DATA)
        return reason;
    if (refused != NULL)
        return !json_is_true(json_object_get(one, "at_render")) && strstr(error->message, refused) ? NULL : reason;
    if (kind == NULL)
        return reason;
    bool is_line_known = json_object_get(one, "line") != NULL;
    return is_line_known && strstr(error->message, line) == NULL ? reason : NULL;
}

static const char *check_render_error(const json_t *one, const struct nj_error *error)
{
    static char reason[2048];
    const char *refused = json_string_value(json_object_get(one, "refused"));
    const char *kind = json_string_value(json_object_get(one, "error"));
    snprintf(reason, sizeof reason, "failed: %s", error->message);
    if (error->code != NJ_BAD_DATA)
        return reason;
    if (refused != NULL)
        return json_is_true(json_object_get(one, "at_render")) && strstr(error->message, refused) ? NULL : reason;
    return kind != NULL && strcmp(kind, "render") == 0 ? NULL : reason;
}

static const char *check_text(const json_t *one, const struct nj_rendered *rendered)
{
    static char reason[4096];
    const json_t *expected = json_object_get(one, "expected");
    if (expected != NULL && json_string_length(expected) == rendered->length &&
        memcmp(json_string_value(expected), rendered->text, rendered->length) == 0 &&
        rendered->text[rendered->length] == '\0')
        return NULL;
    snprintf(reason, sizeof reason, "gave      %.1500s\n  expected %.1500s", rendered->text,
             expected == NULL ? "an error" : json_string_value(expected));
    return reason;
}

static const char *check_case(const json_t *one, const json_t *inputs)
{
    struct nj_error error;
    struct nj_rendered rendered;
    struct nj_chat_template *chat = cases_compile(one, &error);
    if (chat == NULL)
        return check_compile_error(one, &error);
    struct nj_chat_input input = cases_make_input(one, inputs);
    const char *reason;
    if (chat_template_render(chat, &input, &rendered, &error) != 0)
        reason = check_render_error(one, &error);
    else
        reason = check_text(one, &rendered);
    rendered_free(&rendered);
    chat_template_destroy(chat);
    return reason;
}

static void check_file(const char *name)
{
    json_t *inputs = cases_load_json("chat_template/inputs.json");
    json_t *cases = cases_load_lines(name);
    const json_t *one;
    size_t i, failed = 0;
    json_array_foreach(cases, i, one)
    {
        const char *reason = check_case(one, inputs);
        if (reason != NULL && ++failed <= SHOWN_FAILURES)
            print_error("%s:%zu: %s\n  %s\n", name, i + 1, json_string_value(json_object_get(one, "template")), reason);
    }
    size_t count = json_array_size(cases);
    json_decref(cases);
    json_decref(inputs);
    if (failed > 0)
        fail_msg("%zu of %zu cases of %s failed", failed, count, name);
}

static void test_constructs(void **state)
{
    (void)state;
    check_file("chat_template/vectors.jsonl");
}

static void test_random_templates(void **state)
{
    (void)state;
    check_file("chat_template/random.jsonl");
}

/* The real model's template on the conversations of the reference. */
static void test_smollm2(void **state)
{
    (void)state;
    json_t *file = cases_load_json("chat_template/smollm2.json");
    json_t *cases = cases_load_lines("reference/smol.greedy.jsonl");
    struct nj_error error;
    struct nj_chat_template *chat = cases_compile(file, &error);
    assert_non_null(chat);
    const json_t *one;
    size_t i;
    json_array_foreach(cases, i, one)
    {
        struct nj_chat_input input = {
            .messages = json_object_get(one, "messages"),
            .add_generation_prompt = true,
            .bos_token = "<|im_start|>",
            .eos_token = "<|im_end|>",
        };
        struct nj_rendered rendered;
        assert_int_equal(chat_template_render(chat, &input, &rendered, &error), 0);
        assert_string_equal(rendered.text, json_string_value(json_object_get(one, "rendered")));
        rendered_free(&rendered);
    }
    chat_template_destroy(chat);
    json_decref(cases);
    json_decref(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_constructs),
        cmocka_unit_test(test_random_templates),
        cmocka_unit_test(test_smollm2),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
