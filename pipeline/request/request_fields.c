#include "pipeline/request/request_fields.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/sweep/logprobs.h"
#include "pipeline/base/utf8_text.h"
#include "pipeline/request/content_parts.h"

struct field {
    const char *name;
    int where;
    int (*read)(struct nj_request *request, const struct field *field, json_t *value, struct nj_problem *problem);
    /* Numbers: the range, both ends included unless said otherwise. Neutral fields: the value they may have. */
    double least, most;
    bool above_least, below_most;
};

static const char *const ignored_names[NJ_IGNORED_FIELDS] = {"model", "user", "metadata", "store"};

const char *request_ignored_name(int bit)
{
    return ignored_names[bit];
}

const char *request_type_name(const json_t *value)
{
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        return "an object";
    case JSON_ARRAY:
        return "an array";
    case JSON_STRING:
        return "a string";
    case JSON_INTEGER:
        return "an integer";
    case JSON_REAL:
        return "a number with a fraction";
    case JSON_TRUE:
    case JSON_FALSE:
        return "a boolean";
    case JSON_NULL:
        break;
    }
    return "null";
}

static int fail_type(struct nj_problem *problem, const char *name, const char *wanted, const json_t *value)
{
    return problem_set(problem, "invalid_request", "%s must be %s; it is %s", name, wanted, request_type_name(value));
}

static struct nj_text text_of(const json_t *value)
{
    return (struct nj_text){.bytes = json_string_value(value), .length = json_string_length(value)};
}

static int read_prompt(struct nj_request *request, const struct field *field, json_t *value, struct nj_problem *problem)
{
    if (!json_is_string(value))
        return fail_type(problem, field->name, "a string", value);
    request->prompt = text_of(value);
    return 0;
}

static int check_message(const json_t *message, size_t index, struct nj_problem *problem)
{
    if (!json_is_object(message))
        return problem_set(problem, "invalid_request", "messages[%zu] must be an object; it is %s", index,
                           request_type_name(message));
    const json_t *role = json_object_get(message, "role");
    const json_t *content = json_object_get(message, "content");
    if (role == NULL || !json_is_string(role) || json_string_length(role) == 0)
        return problem_set(problem, "invalid_request", "messages[%zu].role must be a string such as \"user\"; it is %s",
                           index,
                           role == NULL           ? "missing"
                           : json_is_string(role) ? "empty"
                                                  : request_type_name(role));
    /* An assistant's turn may be tool calls only; what the template makes of them is its own affair. */
    if ((content == NULL || json_is_null(content)) && json_is_array(json_object_get(message, "tool_calls")))
        return 0;
    if (json_is_array(content))
        return content_parts_check(content, index, problem);
    if (content == NULL || !json_is_string(content))
        return problem_set(problem, "invalid_request",
                           "messages[%zu].content must be a string or an array of text parts; it is %s", index,
                           content == NULL ? "missing" : request_type_name(content));
    return 0;
}

static int read_messages(struct nj_request *request, const struct field *field, json_t *value,
                         struct nj_problem *problem)
{
    if (!json_is_array(value))
        return fail_type(problem, field->name, "an array of {\"role\", \"content\"} objects", value);
    if (json_array_size(value) == 0)
        return problem_set(problem, "invalid_request", "messages is empty: at least one message is needed");
    size_t index;
    const json_t *message;
    json_array_foreach(value, index, message)
    {
        if (check_message(message, index, problem) != 0)
            return -1;
    }
    request->messages = value;
    return 0;
}

/* The template sees these beside the messages, whose names they must not take. */
static int read_variables(struct nj_request *request, const struct field *field, json_t *value,
                          struct nj_problem *problem)
{
    static const char *const own[] = {"messages", "add_generation_prompt"};
    if (!json_is_object(value))
        return fail_type(problem, field->name, "an object of variables for the chat template", value);
    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++)
        if (json_object_get(value, own[i]) != NULL)
            return problem_set(problem, "invalid_request", "%s must not hold %s: nightjar sets it itself", field->name,
                               own[i]);
    if (json_object_size(value) > 0)
        request->variables = value;
    return 0;
}

static int fail_range(const struct field *field, double value, struct nj_problem *problem)
{
    /* An end that only the type sets says nothing to a user. */
    if (field->most == (double)INT64_MAX)
        return problem_set(problem, "invalid_request", "%s must be at least %g; it is %g", field->name, field->least,
                           value);
    return problem_set(problem, "invalid_request", "%s must be %s %g and %s %g; it is %g", field->name,
                       field->above_least ? "above" : "at least", field->least, field->below_most ? "below" : "at most",
                       field->most, value);
}

static int read_number(const struct field *field, const json_t *value, float *out, struct nj_problem *problem)
{
    if (!json_is_number(value))
        return fail_type(problem, field->name, "a number", value);
    double number = json_number_value(value);
    if (!isfinite(number) || number < field->least || number > field->most ||
        (field->above_least && number == field->least) || (field->below_most && number == field->most))
        return fail_range(field, number, problem);
    *out = (float)number + 0.0f; /* minus zero becomes zero */
    /* Rounding to float must not reach an end that is excluded. */
    if (field->above_least && *out <= (float)field->least)
        *out = nextafterf((float)field->least, (float)field->most);
    if (field->below_most && *out >= (float)field->most)
        *out = nextafterf((float)field->most, (float)field->least);
    return 0;
}

static int read_integer(const struct field *field, const json_t *value, int64_t *out, struct nj_problem *problem)
{
    if (!json_is_integer(value))
        return fail_type(problem, field->name, "an integer", value);
    int64_t number = json_integer_value(value);
    if ((double)number < field->least || (double)number > field->most)
        return fail_range(field, (double)number, problem);
    *out = number;
    return 0;
}

static int read_temperature(struct nj_request *request, const struct field *field, json_t *value,
                            struct nj_problem *problem)
{
    return read_number(field, value, &request->temperature, problem);
}

static int read_top_p(struct nj_request *request, const struct field *field, json_t *value, struct nj_problem *problem)
{
    return read_number(field, value, &request->top_p, problem);
}

static int read_min_p(struct nj_request *request, const struct field *field, json_t *value, struct nj_problem *problem)
{
    return read_number(field, value, &request->min_p, problem);
}

static int read_top_k(struct nj_request *request, const struct field *field, json_t *value, struct nj_problem *problem)
{
    int64_t top_k = 0;
    if (read_integer(field, value, &top_k, problem) != 0)
        return -1;
    request->top_k = top_k < 0 ? 0 : (int32_t)top_k; /* -1 is a usual way to say "off" */
    return 0;
}

static int read_seed(struct nj_request *request, const struct field *field, json_t *value, struct nj_problem *problem)
{
    int64_t seed = 0;
    if (read_integer(field, value, &seed, problem) != 0)
        return -1;
    request->seed = (uint64_t)seed;
    return 0;
}

static int read_max_tokens(struct nj_request *request, const struct field *field, json_t *value,
                           struct nj_problem *problem)
{
    int64_t max_tokens = 0;
    if (read_integer(field, value, &max_tokens, problem) != 0)
        return -1;
    if (request->max_tokens > 0 && request->max_tokens != max_tokens)
        return problem_set(problem, "invalid_request", "max_tokens and max_completion_tokens differ: give one of them");
    request->max_tokens = max_tokens;
    return 0;
}

static int add_stop(struct nj_request *request, const json_t *value, struct nj_problem *problem)
{
    if (!json_is_string(value))
        return problem_set(problem, "invalid_request", "stop must hold strings; one is %s", request_type_name(value));
    struct nj_text text = text_of(value);
    if (text.length == 0 || text.length > NJ_STOP_BYTES_MOST)
        return problem_set(problem, "invalid_request", "a stop string must have 1 to %d bytes; one has %zu",
                           NJ_STOP_BYTES_MOST, text.length);
    request->stop[request->stop_count++] = text;
    return 0;
}

static int read_stop(struct nj_request *request, const struct field *field, json_t *value, struct nj_problem *problem)
{
    if (json_is_string(value))
        return add_stop(request, value, problem);
    if (!json_is_array(value))
        return fail_type(problem, field->name, "a string or an array of strings", value);
    if (json_array_size(value) > NJ_STOP_STRINGS_MOST)
        return problem_set(problem, "invalid_request", "stop may hold at most %d strings; it holds %zu",
                           NJ_STOP_STRINGS_MOST, json_array_size(value));
    size_t index;
    const json_t *text;
    json_array_foreach(value, index, text)
    {
        if (add_stop(request, text, problem) != 0)
            return -1;
    }
    return 0;
}

static int read_n(struct nj_request *request, const struct field *field, json_t *value, struct nj_problem *problem)
{
    int64_t n = 0;
    if (read_integer(field, value, &n, problem) != 0)
        return -1;
    request->n = (int32_t)n;
    return 0;
}

static int fail_two_numbers(struct nj_problem *problem)
{
    return problem_set(problem, "invalid_request",
                       "both logprobs and top_logprobs give a number: with messages logprobs is true, with a prompt "
                       "there is no top_logprobs");
}

/* true and false as chat has it, a number as completions do; which of them is right is checked when all is read. */
static int read_logprobs(struct nj_request *request, const struct field *field, json_t *value,
                         struct nj_problem *problem)
{
    int64_t top = 0;
    if (json_is_boolean(value)) {
        request->logprobs = json_is_true(value) ? NJ_LOGPROBS_CHAT : NJ_LOGPROBS_OFF;
        return 0;
    }
    if (!json_is_integer(value))
        return fail_type(problem, field->name, "true or false (with messages) or an integer (with a prompt)", value);
    if (read_integer(field, value, &top, problem) != 0)
        return -1;
    if (request->top_logprobs > 0)
        return fail_two_numbers(problem);
    request->logprobs = NJ_LOGPROBS_COMPLETION;
    request->top_logprobs = (int32_t)top;
    return 0;
}

static int read_top_logprobs(struct nj_request *request, const struct field *field, json_t *value,
                             struct nj_problem *problem)
{
    int64_t top = 0;
    if (read_integer(field, value, &top, problem) != 0)
        return -1;
    if (top == 0)
        return 0;
    if (request->logprobs == NJ_LOGPROBS_COMPLETION)
        return fail_two_numbers(problem);
    request->top_logprobs = (int32_t)top;
    return 0;
}

/* The number that a token's name is, digits only and written in one way; -1 if it is none. */
static int32_t token_of_name(const char *name)
{
    int64_t token = 0;
    if (name[0] == '\0' || (name[0] == '0' && name[1] != '\0'))
        return -1;
    for (; *name != '\0'; name++) {
        if (*name < '0' || *name > '9')
            return -1;
        token = 10 * token + (*name - '0');
        if (token > INT32_MAX)
            return -1;
    }
    return (int32_t)token;
}

static int read_biased_token(const struct field *field, const char *name, const json_t *value,
                             struct nj_logit_bias *out, struct nj_problem *problem)
{
    char shown[80];
    utf8_copy_printable(shown, sizeof shown, name, strlen(name));
    out->token = token_of_name(name);
    if (out->token < 0)
        return problem_set(
            problem, "invalid_request",
            "logit_bias must name tokens by their number in the model's vocabulary, such as \"123\"; one "
            "name is \"%s\"",
            shown);
    if (!json_is_number(value))
        return problem_set(problem, "invalid_request", "logit_bias must give numbers; that of \"%s\" is %s", shown,
                           request_type_name(value));
    return read_number(field, value, &out->bias, problem);
}

static int compare_biased_tokens(const void *left, const void *right)
{
    const struct nj_logit_bias *a = left, *b = right;
    return a->token < b->token ? -1 : a->token > b->token;
}

static int read_logit_bias(struct nj_request *request, const struct field *field, json_t *value,
                           struct nj_problem *problem)
{
    if (!json_is_object(value))
        return fail_type(problem, field->name, "an object from token numbers to numbers", value);
    const size_t count = json_object_size(value);
    if (count > NJ_BIASED_TOKENS_MOST)
        return problem_set(problem, "invalid_request", "logit_bias may name at most %d tokens; it names %zu",
                           NJ_BIASED_TOKENS_MOST, count);
    if (count == 0)
        return 0;
    request->bias = calloc(count, sizeof *request->bias);
    if (request->bias == NULL)
        return problem_set(problem, "invalid_request", "no memory for its logit_bias");
    const char *name;
    json_t *bias;
    json_object_foreach(value, name, bias)
    {
        if (read_biased_token(field, name, bias, &request->bias[request->bias_count++], problem) != 0)
            return -1;
    }
    qsort(request->bias, count, sizeof *request->bias, compare_biased_tokens);
    return 0;
}

static int read_ignored(struct nj_request *request, const struct field *field, json_t *value,
                        struct nj_problem *problem)
{
    (void)value;
    (void)problem;
    for (int bit = 0; bit < NJ_IGNORED_FIELDS; bit++) {
        if (strcmp(field->name, ignored_names[bit]) == 0)
            request->ignored |= 1u << bit;
    }
    return 0;
}

static int fail_neutral(const struct field *field, const char *neutral, struct nj_problem *problem)
{
    return problem_set(problem, "not_supported", "%s is not supported yet: remove it or set it to %s", field->name,
                       neutral);
}

static int require_false(struct nj_request *request, const struct field *field, json_t *value,
                         struct nj_problem *problem)
{
    (void)request;
    return json_is_false(value) ? 0 : fail_neutral(field, "false", problem);
}

static int require_true(struct nj_request *request, const struct field *field, json_t *value,
                        struct nj_problem *problem)
{
    (void)request;
    return json_is_true(value) ? 0 : fail_neutral(field, "true", problem);
}

static int require_number(struct nj_request *request, const struct field *field, json_t *value,
                          struct nj_problem *problem)
{
    (void)request;
    if (json_is_number(value) && json_number_value(value) == field->least)
        return 0;
    return fail_neutral(field, field->least == 0 ? "0" : "1", problem);
}

static int require_empty(struct nj_request *request, const struct field *field, json_t *value,
                         struct nj_problem *problem)
{
    (void)request;
    bool empty = (json_is_object(value) && json_object_size(value) == 0) ||
                 (json_is_array(value) && json_array_size(value) == 0) ||
                 (json_is_string(value) && json_string_length(value) == 0);
    return empty ? 0 : fail_neutral(field, "null", problem);
}

static int require_none(struct nj_request *request, const struct field *field, json_t *value,
                        struct nj_problem *problem)
{
    (void)request;
    bool none = json_is_string(value) && strcmp(json_string_value(value), "none") == 0;
    return none ? 0 : fail_neutral(field, "\"none\"", problem);
}

static int require_text_format(struct nj_request *request, const struct field *field, json_t *value,
                               struct nj_problem *problem)
{
    (void)request;
    const json_t *type = json_object_get(value, "type");
    bool text = json_is_object(value) && json_object_size(value) == 1 && json_is_string(type) &&
                strcmp(json_string_value(type), "text") == 0;
    return text ? 0 : fail_neutral(field, "{\"type\": \"text\"}", problem);
}

static const struct field fields[] = {
    {.name = "prompt", .where = NJ_IN_PLAIN | NJ_IN_COMPLETION, .read = read_prompt},
    {.name = "messages", .where = NJ_IN_PLAIN | NJ_IN_CHAT, .read = read_messages},
    {.name = "temperature", .where = NJ_IN_ANY, .read = read_temperature, .least = 0, .most = 100},
    {.name = "top_p", .where = NJ_IN_ANY, .read = read_top_p, .least = 0, .most = 1, .above_least = true},
    {.name = "top_k", .where = NJ_IN_ANY, .read = read_top_k, .least = -1, .most = INT32_MAX},
    {.name = "min_p", .where = NJ_IN_ANY, .read = read_min_p, .least = 0, .most = 1, .below_most = true},
    {.name = "max_tokens", .where = NJ_IN_ANY, .read = read_max_tokens, .least = 1, .most = (double)INT64_MAX},
    {.name = "max_completion_tokens",
     .where = NJ_IN_ANY,
     .read = read_max_tokens,
     .least = 1,
     .most = (double)INT64_MAX},
    {.name = "stop", .where = NJ_IN_ANY, .read = read_stop},
    {.name = "seed", .where = NJ_IN_ANY, .read = read_seed, .least = (double)INT64_MIN, .most = (double)INT64_MAX},
    {.name = "model", .where = NJ_IN_ANY, .read = read_ignored},
    {.name = "user", .where = NJ_IN_ANY, .read = read_ignored},
    {.name = "metadata", .where = NJ_IN_ANY, .read = read_ignored},
    {.name = "store", .where = NJ_IN_ANY, .read = read_ignored},
    {.name = "stream", .where = NJ_IN_ANY, .read = require_false},
    {.name = "stream_options", .where = NJ_IN_ANY, .read = require_empty},
    {.name = "n", .where = NJ_IN_ANY, .read = read_n, .least = 1, .most = NJ_CHOICES_MOST},
    {.name = "best_of", .where = NJ_IN_ANY, .read = require_number, .least = 1},
    {.name = "echo", .where = NJ_IN_ANY, .read = require_false},
    {.name = "suffix", .where = NJ_IN_ANY, .read = require_empty},
    {.name = "logprobs", .where = NJ_IN_ANY, .read = read_logprobs, .least = 0, .most = NJ_COMPLETION_LOGPROBS_MOST},
    {.name = "top_logprobs", .where = NJ_IN_ANY, .read = read_top_logprobs, .least = 0, .most = NJ_TOP_LOGPROBS_MOST},
    {.name = "logit_bias", .where = NJ_IN_ANY, .read = read_logit_bias, .least = -100, .most = 100},
    {.name = "presence_penalty", .where = NJ_IN_ANY, .read = require_number, .least = 0},
    {.name = "frequency_penalty", .where = NJ_IN_ANY, .read = require_number, .least = 0},
    {.name = "repetition_penalty", .where = NJ_IN_ANY, .read = require_number, .least = 1},
    {.name = "min_tokens", .where = NJ_IN_ANY, .read = require_number, .least = 0},
    {.name = "ignore_eos", .where = NJ_IN_ANY, .read = require_false},
    {.name = "skip_special_tokens", .where = NJ_IN_ANY, .read = require_true},
    {.name = "chat_template_kwargs", .where = NJ_IN_ANY, .read = read_variables},
    {.name = "response_format", .where = NJ_IN_ANY, .read = require_text_format},
    {.name = "tools", .where = NJ_IN_ANY, .read = require_empty},
    {.name = "tool_choice", .where = NJ_IN_ANY, .read = require_none},
};

int request_field_read(struct nj_request *request, const char *name, json_t *value, int where,
                       struct nj_problem *problem)
{
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        const struct field *field = &fields[i];
        if (strcmp(field->name, name) != 0)
            continue;
        if (field->where & where)
            return field->read(request, field, value, problem);
        return problem_set(problem, "invalid_request", "%s does not belong here: %s takes %s", name,
                           where == NJ_IN_CHAT ? "/v1/chat/completions" : "/v1/completions",
                           where == NJ_IN_CHAT ? "messages" : "prompt");
    }
    char shown[80];
    utf8_copy_printable(shown, sizeof shown, name, strlen(name));
    return problem_set(problem, "unknown_field", "unknown field \"%s\": correct its name or remove it", shown);
}
