#include "pipeline/request/request.h"

#include <stdlib.h>
#include <string.h>

#include "pipeline/base/utf8_text.h"
#include "pipeline/request/request_fields.h"

static int read_id(struct nj_request *request, const char *name, const json_t *value, struct nj_problem *problem)
{
    if (!json_is_string(value))
        return problem_set(problem, "invalid_request", "%s must be a string; it is %s%s", name,
                           request_type_name(value), json_is_number(value) ? ": put it in quotes" : "");
    size_t length = json_string_length(value);
    if (length == 0 || length > NJ_ID_BYTES_MOST)
        return problem_set(problem, "invalid_request", "%s must have 1 to %d bytes; it has %zu", name, NJ_ID_BYTES_MOST,
                           length);
    if (memchr(json_string_value(value), '\0', length) != NULL)
        return problem_set(problem, "invalid_request", "%s must not contain a NUL character", name);
    request->id = json_string_value(value);
    request->id_length = length;
    return 0;
}

/* Chat and completions ask in different ways, and which one a plain line is may stand behind the asking. */
static int check_logprobs(const struct nj_request *request, struct nj_problem *problem)
{
    const bool chat = request->messages != NULL;
    if (chat && request->logprobs == NJ_LOGPROBS_COMPLETION)
        return problem_set(problem, "invalid_request",
                           "logprobs must be true or false with messages; top_logprobs says how many");
    if (!chat && request->logprobs == NJ_LOGPROBS_CHAT)
        return problem_set(problem, "invalid_request", "logprobs must be an integer from 0 to %d with a prompt",
                           NJ_COMPLETION_LOGPROBS_MOST);
    if (request->top_logprobs > 0 && request->logprobs == NJ_LOGPROBS_OFF)
        return problem_set(problem, "invalid_request", "top_logprobs needs messages and \"logprobs\": true");
    return 0;
}

/* Everything in `object` but the names in `skipped`, which have been read. */
static int read_fields(struct nj_request *request, json_t *object, int where, const char *skipped,
                       struct nj_problem *problem)
{
    const char *name;
    json_t *value;
    json_object_foreach(object, name, value)
    {
        if ((skipped != NULL && strcmp(name, skipped) == 0) || json_is_null(value))
            continue;
        if (request_field_read(request, name, value, where, problem) != 0)
            return -1;
    }
    if (request->prompt.bytes != NULL && request->messages != NULL)
        return problem_set(problem, "invalid_request", "both prompt and messages are given: remove one");
    if (request->prompt.bytes == NULL && request->messages == NULL)
        return problem_set(problem, "invalid_request", "%s is missing",
                           where == NJ_IN_PLAIN  ? "prompt (or messages)"
                           : where == NJ_IN_CHAT ? "messages"
                                                 : "prompt");
    if (request->max_tokens == 0)
        request->max_tokens = NJ_DEFAULT_MAX_TOKENS;
    return check_logprobs(request, problem);
}

static const json_t *get_present(const json_t *object, const char *name)
{
    const json_t *value = json_object_get(object, name);
    return value == NULL || json_is_null(value) ? NULL : value;
}

static int check_constant(const json_t *object, const char *name, const char *wanted, struct nj_problem *problem)
{
    const json_t *value = get_present(object, name);
    if (value == NULL || (json_is_string(value) && strcmp(json_string_value(value), wanted) == 0))
        return 0;
    return problem_set(problem, "invalid_request", "%s must be \"%s\"", name, wanted);
}

/* The endpoint, from the url or, where a writer leaves it out, from what the body holds. */
static int read_endpoint(struct nj_request *request, struct nj_problem *problem)
{
    const json_t *url = get_present(request->root, "url");
    const json_t *body = get_present(request->root, "body");
    const char *name = json_string_value(url);
    if (url == NULL)
        request->shape = get_present(body, "prompt") != NULL ? NJ_SHAPE_BATCH_COMPLETION : NJ_SHAPE_BATCH_CHAT;
    else if (name != NULL && strcmp(name, "/v1/completions") == 0)
        request->shape = NJ_SHAPE_BATCH_COMPLETION;
    else if (name != NULL && strcmp(name, "/v1/chat/completions") == 0)
        request->shape = NJ_SHAPE_BATCH_CHAT;
    else
        return problem_set(problem, "invalid_request", "url must be \"/v1/chat/completions\" or \"/v1/completions\"");
    return 0;
}

static int refuse_unknown_batch_fields(const json_t *root, struct nj_problem *problem)
{
    static const char *const known[] = {"custom_id", "method", "url", "body"};
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)root, name, value)
    {
        bool found = json_is_null(value);
        for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
            found = found || strcmp(name, known[i]) == 0;
        if (found)
            continue;
        char shown[80];
        utf8_copy_printable(shown, sizeof shown, name, strlen(name));
        return problem_set(problem, "unknown_field",
                           "unknown field \"%s\" beside custom_id, method, url and body: parameters go into body",
                           shown);
    }
    return 0;
}

static int read_batch(struct nj_request *request, struct nj_problem *problem)
{
    const json_t *id = get_present(request->root, "custom_id");
    json_t *body = json_object_get(request->root, "body");
    request->shape = NJ_SHAPE_BATCH_CHAT;
    if (id != NULL && read_id(request, "custom_id", id, problem) != 0)
        return -1;
    if (read_endpoint(request, problem) != 0)
        return -1;
    if (body == NULL || !json_is_object(body))
        return problem_set(problem, "invalid_request", "body must be an object; it is %s",
                           body == NULL ? "missing" : request_type_name(body));
    if (check_constant(request->root, "method", "POST", problem) != 0 ||
        refuse_unknown_batch_fields(request->root, problem) != 0)
        return -1;
    int where = request->shape == NJ_SHAPE_BATCH_CHAT ? NJ_IN_CHAT : NJ_IN_COMPLETION;
    return read_fields(request, body, where, NULL, problem);
}

static int read_plain(struct nj_request *request, struct nj_problem *problem)
{
    const json_t *id = get_present(request->root, "id");
    if (id != NULL && read_id(request, "id", id, problem) != 0)
        return -1;
    return read_fields(request, request->root, NJ_IN_PLAIN, "id", problem);
}

static bool is_batch(const json_t *root)
{
    return get_present(root, "body") != NULL || get_present(root, "custom_id") != NULL ||
           get_present(root, "url") != NULL || get_present(root, "method") != NULL;
}

/* jansson quotes the text around a mistake; prompts do not belong in messages. */
static int fail_json(struct nj_problem *problem, const json_error_t *failure)
{
    char reason[JSON_ERROR_TEXT_LENGTH];
    strcpy(reason, failure->text);
    char *quoted = strstr(reason, " near '");
    if (quoted != NULL)
        *quoted = '\0';
    problem_set(problem, "invalid_json", "not valid JSON: %s", reason);
    problem->byte = failure->position;
    return -1;
}

int request_parse(const char *text, size_t length, struct nj_request *request, struct nj_problem *problem)
{
    *request = (struct nj_request){.top_p = 1, .n = 1};
    json_error_t failure;
    request->root = json_loadb(text, length, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL | JSON_DECODE_ANY, &failure);
    if (request->root == NULL)
        return fail_json(problem, &failure);
    if (!json_is_object(request->root))
        return problem_set(problem, "invalid_request", "the line must be a JSON object; it is %s",
                           request_type_name(request->root));
    return is_batch(request->root) ? read_batch(request, problem) : read_plain(request, problem);
}

void request_free(struct nj_request *request)
{
    json_decref(request->root);
    free(request->bias);
    *request = (struct nj_request){0};
}
