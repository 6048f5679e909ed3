#include "pipeline/request/content_parts.h"

#include <stdlib.h>
#include <string.h>

#include "pipeline/base/utf8_text.h"
#include "pipeline/request/request_fields.h"

/* ---- what a part may be ---- */

static int check_part(const json_t *part, size_t message, size_t index, struct nj_problem *problem)
{
    if (!json_is_object(part))
        return problem_set(problem, "invalid_request", "messages[%zu].content[%zu] must be an object; it is %s",
                           message, index, request_type_name(part));
    const json_t *type = json_object_get(part, "type"), *text = json_object_get(part, "text");
    char shown[80];
    if (!json_is_string(type))
        return problem_set(problem, "invalid_request", "messages[%zu].content[%zu].type must be \"text\"; it is %s",
                           message, index, type == NULL ? "missing" : request_type_name(type));
    if (strcmp(json_string_value(type), "text") != 0) {
        utf8_copy_printable(shown, sizeof shown, json_string_value(type), json_string_length(type));
        return problem_set(problem, "not_supported",
                           "messages[%zu].content[%zu] is of type \"%s\": only parts of type \"text\" can be read",
                           message, index, shown);
    }
    if (!json_is_string(text))
        return problem_set(problem, "invalid_request", "messages[%zu].content[%zu].text must be a string; it is %s",
                           message, index, text == NULL ? "missing" : request_type_name(text));
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)part, name, value)
    {
        if (json_is_null(value) || strcmp(name, "type") == 0 || strcmp(name, "text") == 0)
            continue;
        utf8_copy_printable(shown, sizeof shown, name, strlen(name));
        return problem_set(problem, "unknown_field", "unknown field \"%s\" in messages[%zu].content[%zu]: remove it",
                           shown, message, index);
    }
    return 0;
}

int content_parts_check(const json_t *parts, size_t message, struct nj_problem *problem)
{
    if (json_array_size(parts) == 0)
        return problem_set(problem, "invalid_request",
                           "messages[%zu].content is an empty array: give it a part of text", message);
    size_t index;
    const json_t *part;
    json_array_foreach(parts, index, part)
    {
        if (check_part(part, message, index, problem) != 0)
            return -1;
    }
    return 0;
}

/* ---- what a template does with parts ---- */

/* The bytes of a rendered prompt that came from the messages, NUL-terminated. NULL: out of memory. */
static char *copy_message_bytes(const struct nj_rendered *rendered)
{
    char *copy = malloc(rendered->length + 1);
    size_t length = 0;
    for (size_t i = 0; copy != NULL && i < rendered->length; i++)
        if (!rendered->is_template[i])
            copy[length++] = rendered->text[i];
    if (copy != NULL)
        copy[length] = '\0';
    return copy;
}

bool content_parts_are_read(const struct nj_chat_template *chat, const char *bos, const char *eos)
{
    /* Digits survive any change of case. A template that prints the whole array prints the key "type" with it. */
    static const char text[] = "20240229";
    struct nj_chat_input input = {.add_generation_prompt = true, .bos_token = bos, .eos_token = eos};
    struct nj_rendered rendered = {0};
    char *bytes = NULL;
    input.messages = json_pack("[{s:s, s:[{s:s, s:s}]}]", "role", "user", "content", "type", "text", "text", text);
    if (input.messages != NULL && chat_template_render(chat, &input, &rendered, NULL) == 0)
        bytes = copy_message_bytes(&rendered);
    const bool are_read = bytes != NULL && strstr(bytes, text) != NULL && strstr(bytes, "type") == NULL;
    free(bytes);
    rendered_free(&rendered);
    json_decref(input.messages);
    return are_read;
}

/* ---- joining ---- */

/* The texts of an array of parts as one string. */
static json_t *join_texts(const json_t *parts)
{
    size_t index, length = 0;
    const json_t *part;
    json_array_foreach(parts, index, part) length += json_string_length(json_object_get(part, "text")) + 1;
    char *joined = malloc(length);
    if (joined == NULL)
        return NULL;
    length = 0;
    json_array_foreach(parts, index, part)
    {
        const json_t *text = json_object_get(part, "text");
        if (index > 0)
            joined[length++] = '\n';
        memcpy(joined + length, json_string_value(text), json_string_length(text));
        length += json_string_length(text);
    }
    json_t *string = json_stringn(joined, length);
    free(joined);
    return string;
}

static bool has_parts(const json_t *messages)
{
    size_t index;
    const json_t *message;
    json_array_foreach(messages, index, message)
    {
        if (json_is_array(json_object_get(message, "content")))
            return true;
    }
    return false;
}

json_t *content_parts_join(json_t *messages)
{
    if (!has_parts(messages))
        return json_incref(messages);
    json_t *joined = json_array(), *message;
    size_t index;
    json_array_foreach(messages, index, message)
    {
        const json_t *content = json_object_get(message, "content");
        json_t *copy = json_copy(message);
        if (json_array_append_new(joined, copy) != 0 ||
            (json_is_array(content) && json_object_set_new(copy, "content", join_texts(content)) != 0)) {
            json_decref(joined);
            return NULL;
        }
    }
    return joined;
}
