#include "tests/chat_template/template_cases.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

json_t *cases_load_json(const char *name)
{
    char path[1024];
    json_error_t error;
    snprintf(path, sizeof path, "%s/%s", NJ_TEST_DATA, name);
    json_t *loaded = json_load_file(path, JSON_ALLOW_NUL, &error);
    if (loaded == NULL)
        fail_msg("%s: %s", path, error.text);
    return loaded;
}

json_t *cases_load_lines(const char *name)
{
    char path[1024], *line = NULL;
    size_t capacity = 0;
    ssize_t length;
    snprintf(path, sizeof path, "%s/%s", NJ_TEST_DATA, name);
    FILE *file = fopen(path, "r");
    if (file == NULL)
        fail_msg("cannot open %s", path);
    json_t *cases = json_array();
    while ((length = getline(&line, &capacity, file)) > 0) {
        json_t *one = json_loadb(line, (size_t)length, JSON_ALLOW_NUL, NULL);
        assert_non_null(one);
        json_array_append_new(cases, one);
    }
    free(line);
    fclose(file);
    assert_true(json_array_size(cases) > 0);
    return cases;
}

struct nj_chat_input cases_make_input(const json_t *one, const json_t *inputs)
{
    json_t *conversations = json_object_get(inputs, "conversations");
    json_t *variables = json_object_get(one, "variables");
    if (json_is_string(variables))
        variables = json_object_get(json_object_get(inputs, "variables"), json_string_value(variables));
    struct nj_chat_input input = {
        .messages = json_object_get(conversations, json_string_value(json_object_get(one, "conversation"))),
        .variables = variables,
        .add_generation_prompt = json_is_true(json_object_get(one, "add_generation_prompt")),
        .bos_token = BOS_TOKEN,
        .eos_token = EOS_TOKEN,
        .now = json_integer_value(json_object_get(one, "now")),
    };
    assert_non_null(input.messages);
    return input;
}

struct nj_chat_template *cases_compile(const json_t *one, struct nj_error *error)
{
    const json_t *source = json_object_get(one, "template");
    return chat_template_compile(json_string_value(source), json_string_length(source), error);
}

struct nj_rendered cases_render_text(const char *source, const char *messages, const char *variables)
{
    struct nj_error error;
    struct nj_rendered rendered;
    struct nj_chat_template *chat = chat_template_compile(source, strlen(source), &error);
    if (chat == NULL)
        fail_msg("%s: %s", source, error.message);
    struct nj_chat_input input = {
        .messages = json_loads(messages, 0, NULL),
        .variables = variables == NULL ? NULL : json_loads(variables, 0, NULL),
        .bos_token = BOS_TOKEN,
        .eos_token = EOS_TOKEN,
    };
    assert_non_null(input.messages);
    if (chat_template_render(chat, &input, &rendered, &error) != 0)
        fail_msg("%s: %s", source, error.message);
    json_decref(input.messages);
    json_decref(input.variables);
    chat_template_destroy(chat);
    return rendered;
}
