#include "pipeline/output/record.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pipeline/base/utf8_text.h"
#include "pipeline/output/record_logprobs.h"

enum { FLOAT_DIGITS = 9 }; /* which tell a float32 exactly */

/* An id made of a word, the job and the request: the same in every run. */
static json_t *derived_id(const struct nj_record_context *context, const char *id, const char *prefix)
{
    char hex[33], text[64];
    digest_to_hex(digest_of(id, strlen(id)), hex);
    struct nj_digest request = digest_of(hex, 32);
    request.low ^= context->job_digest.low;
    request.high ^= context->job_digest.high;
    digest_to_hex(request, hex);
    snprintf(text, sizeof text, "%s%s", prefix, hex);
    return json_string(text);
}

static const char *finish_name(enum nj_finish finish)
{
    return finish == NJ_FINISH_LENGTH ? "length" : "stop";
}

static const struct nj_sequence_result *choice_at(const struct nj_record_answer *answer, int32_t index)
{
    return &answer->samples[index < answer->sample_count ? index : 0];
}

static json_int_t count_new_tokens(const struct nj_record_answer *answer)
{
    json_int_t tokens = 0;
    for (int32_t i = 0; i < answer->n; i++)
        tokens += choice_at(answer, i)->generated_count;
    return tokens;
}

static json_t *text_of(const struct nj_sequence_result *result)
{
    return json_stringn(result->text.bytes == NULL ? "" : result->text.bytes, result->text.length);
}

static json_t *logprobs_of(const struct nj_record_context *context, const struct nj_record_answer *answer,
                           const struct nj_sequence_result *result)
{
    if (answer->logprobs == NJ_LOGPROBS_OFF)
        return json_null();
    return record_logprobs(context->tokenizer, result, answer->logprobs);
}

/* Text, finish_reason and, if wanted, logprobs, where a plain record has them: in itself or in each choice. */
static int add_plain_choice(const struct nj_record_context *context, json_t *object,
                            const struct nj_record_answer *answer, const struct nj_sequence_result *result)
{
    int failed = json_object_set_new(object, "text", text_of(result)) |
                 json_object_set_new(object, "finish_reason", json_string(finish_name(result->finish)));
    if (answer->logprobs != NJ_LOGPROBS_OFF)
        failed |= json_object_set_new(object, "logprobs", logprobs_of(context, answer, result));
    return failed;
}

static json_t *plain_choice(const struct nj_record_context *context, const struct nj_record_answer *answer,
                            int32_t index)
{
    const struct nj_sequence_result *result = choice_at(answer, index);
    json_t *choice = json_pack("{s:i}", "index", (int)index);
    int failed = add_plain_choice(context, choice, answer, result) |
                 json_object_set_new(choice, "completion_tokens", json_integer(result->generated_count));
    if (failed == 0)
        return choice;
    json_decref(choice);
    return NULL;
}

static json_t *batch_choice(const struct nj_record_context *context, enum nj_shape shape,
                            const struct nj_record_answer *answer, int32_t index)
{
    const struct nj_sequence_result *result = choice_at(answer, index);
    json_t *logprobs = logprobs_of(context, answer, result);
    const char *finish = finish_name(result->finish);
    if (shape == NJ_SHAPE_BATCH_CHAT)
        return json_pack("{s:i, s:{s:s, s:o}, s:o, s:s}", "index", (int)index, "message", "role", "assistant",
                         "content", text_of(result), "logprobs", logprobs, "finish_reason", finish);
    return json_pack("{s:i, s:o, s:o, s:s}", "index", (int)index, "text", text_of(result), "logprobs", logprobs,
                     "finish_reason", finish);
}

static json_t *all_choices(const struct nj_record_context *context, enum nj_shape shape,
                           const struct nj_record_answer *answer)
{
    json_t *choices = json_array();
    for (int32_t i = 0; i < answer->n; i++) {
        json_t *choice =
            shape == NJ_SHAPE_PLAIN ? plain_choice(context, answer, i) : batch_choice(context, shape, answer, i);
        if (json_array_append_new(choices, choice) == 0)
            continue;
        json_decref(choices);
        return NULL;
    }
    return choices;
}

static json_t *plain_result(const struct nj_record_context *context, const char *id,
                            const struct nj_record_answer *answer)
{
    json_t *object = json_pack("{s:s}", "id", id);
    int failed = answer->n == 1 ? add_plain_choice(context, object, answer, &answer->samples[0])
                                : json_object_set_new(object, "choices", all_choices(context, NJ_SHAPE_PLAIN, answer));
    failed |= json_object_set_new(object, "prompt_tokens", json_integer(answer->samples[0].prompt_count)) |
              json_object_set_new(object, "completion_tokens", json_integer(count_new_tokens(answer)));
    if (failed == 0)
        return object;
    json_decref(object);
    return NULL;
}

static json_t *batch_result(const struct nj_record_context *context, const struct nj_record_subject *subject,
                            const struct nj_record_answer *answer)
{
    bool chat = subject->shape == NJ_SHAPE_BATCH_CHAT;
    const json_int_t prompt_tokens = answer->samples[0].prompt_count, new_tokens = count_new_tokens(answer);
    json_t *usage = json_pack("{s:I, s:I, s:I}", "prompt_tokens", prompt_tokens, "completion_tokens", new_tokens,
                              "total_tokens", prompt_tokens + new_tokens);
    /* "o" takes over what it is given, also when the packing fails; NULL makes it fail. */
    json_t *body = json_pack(
        "{s:o, s:s, s:I, s:s, s:o, s:o}", "id", derived_id(context, subject->id, chat ? "chatcmpl-" : "cmpl-"),
        "object", chat ? "chat.completion" : "text_completion", "created", (json_int_t)context->job_time, "model",
        context->model_name, "choices", all_choices(context, subject->shape, answer), "usage", usage);
    return json_pack("{s:o, s:s, s:{s:i, s:o, s:o}, s:n}", "id", derived_id(context, subject->id, "batch_req_"),
                     "custom_id", subject->id, "response", "status_code", 200, "request_id",
                     derived_id(context, subject->id, "req_"), "body", body, "error");
}

static json_t *error_object(const struct nj_problem *problem, const struct nj_record_place *place)
{
    json_t *object = json_pack("{s:s, s:o}", "code", problem->code, "message", utf8_json_message(problem->message));
    if (object == NULL || place == NULL || place->file == NULL)
        return object;
    int failed = json_object_set_new(object, "file", json_string(place->file)) |
                 json_object_set_new(object, "line", json_integer((json_int_t)place->line)) |
                 json_object_set_new(object, "byte", json_integer((json_int_t)place->byte));
    if (failed == 0)
        return object;
    json_decref(object);
    return NULL;
}

/* Adds the fields of our own and writes the object down; takes it over. */
static char *finish_record(json_t *object, const struct nj_record_subject *subject, struct nj_error *error)
{
    char hex[33], *text = NULL;
    digest_to_hex(subject->digest, hex);
    if (object != NULL && json_object_set_new(object, "schema", json_integer(NJ_RECORD_SCHEMA)) == 0 &&
        json_object_set_new(object, "attempt", json_integer(subject->attempt)) == 0 &&
        json_object_set_new(object, "digest", json_string(hex)) == 0)
        text = json_dumps(object, JSON_COMPACT | JSON_REAL_PRECISION(FLOAT_DIGITS));
    json_decref(object);
    if (text == NULL)
        error_set(error, NJ_INTERNAL, "a record could not be made: out of memory, or text that is not UTF-8");
    return text;
}

char *record_make_result(const struct nj_record_context *context, const struct nj_record_subject *subject,
                         const struct nj_record_answer *answer, struct nj_error *error)
{
    json_t *object = subject->shape == NJ_SHAPE_PLAIN ? plain_result(context, subject->id, answer)
                                                      : batch_result(context, subject, answer);
    return finish_record(object, subject, error);
}

char *record_make_error(const struct nj_record_context *context, const struct nj_record_subject *subject,
                        const struct nj_problem *problem, const struct nj_record_place *place, struct nj_error *error)
{
    json_t *object;
    if (subject->shape == NJ_SHAPE_PLAIN)
        object = json_pack("{s:s, s:o}", "id", subject->id, "error", error_object(problem, place));
    else
        object = json_pack("{s:o, s:s, s:n, s:o}", "id", derived_id(context, subject->id, "batch_req_"), "custom_id",
                           subject->id, "response", "error", error_object(problem, place));
    return finish_record(object, subject, error);
}

/* Reading: a cursor that moves backwards over the fields of our own at the line's end. */
struct tail {
    const char *line;
    size_t end;
};

/* Takes `text` off the end. */
static bool take(struct tail *tail, const char *text)
{
    size_t length = strlen(text);
    if (tail->end < length || memcmp(tail->line + tail->end - length, text, length) != 0)
        return false;
    tail->end -= length;
    return true;
}

static bool take_bytes(struct tail *tail, size_t length, const char **bytes)
{
    if (tail->end < length)
        return false;
    tail->end -= length;
    *bytes = tail->line + tail->end;
    return true;
}

static bool take_number(struct tail *tail, uint64_t *number)
{
    uint64_t value = 0, unit = 1;
    size_t digits = 0;
    for (; tail->end > 0 && digits < 10; digits++, unit *= 10) {
        char c = tail->line[tail->end - 1];
        if (c < '0' || c > '9')
            break;
        value += unit * (uint64_t)(c - '0');
        tail->end--;
    }
    *number = value;
    return digits > 0;
}

/* Splits a line into the users' part (tail->end) and ours. */
static bool take_own_fields(struct tail *tail, struct nj_record_key *key)
{
    const char *crc, *digest;
    uint64_t attempt, schema;
    if (!take(tail, "\"}") || !take_bytes(tail, 8, &crc) || !take(tail, ",\"crc32\":\"") || !take(tail, "\"") ||
        !take_bytes(tail, 32, &digest) || !take(tail, ",\"digest\":\"") || !take_number(tail, &attempt) ||
        !take(tail, ",\"attempt\":") || !take_number(tail, &schema) || !take(tail, ",\"schema\":"))
        return false;
    key->attempt = (unsigned)attempt;
    return schema == NJ_RECORD_SCHEMA && digest_from_hex(digest, 32, &key->digest);
}

size_t record_public_length(const char *line, size_t length)
{
    struct tail tail = {.line = line, .end = length};
    struct nj_record_key key;
    return take_own_fields(&tail, &key) ? tail.end : 0;
}

/* The JSON string that begins at `text` (its opening quote): its length with both quotes, or 0. */
static size_t string_length(const char *text, size_t length)
{
    if (length == 0 || text[0] != '"')
        return 0;
    for (size_t i = 1; i < length; i++) {
        if (text[i] == '\\')
            i++;
        else if (text[i] == '"')
            return i + 1;
    }
    return 0;
}

static bool hash_string(const char *text, size_t length, struct nj_digest *hash)
{
    if (memchr(text, '\\', length) == NULL) {
        *hash = digest_of(text + 1, length - 2);
        return true;
    }
    json_t *value = json_loadb(text, length, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
    if (value == NULL || !json_is_string(value)) {
        json_decref(value);
        return false;
    }
    *hash = digest_of(json_string_value(value), json_string_length(value));
    json_decref(value);
    return true;
}

static bool skip(const char **text, size_t *length, const char *expected)
{
    size_t bytes = strlen(expected);
    if (*length < bytes || memcmp(*text, expected, bytes) != 0)
        return false;
    *text += bytes;
    *length -= bytes;
    return true;
}

/* Plain records begin with "id"; batch records with "id" (derived) and "custom_id". */
static bool read_id(const char *line, size_t length, struct nj_digest *hash)
{
    if (!skip(&line, &length, "{\"id\":"))
        return false;
    size_t string = string_length(line, length);
    if (string == 0)
        return false;
    const char *id = line;
    line += string;
    length -= string;
    if (!skip(&line, &length, ",\"custom_id\":"))
        return hash_string(id, string, hash);
    string = string_length(line, length);
    return string != 0 && hash_string(line, string, hash);
}

/* The token counts stand last in a result: plain, or in the batch body's usage. */
static void read_counts(struct tail tail, struct nj_record_key *key)
{
    uint64_t total, prompt, made;
    bool batch = take(&tail, "}}},\"error\":null");
    if (batch && (!take_number(&tail, &total) || !take(&tail, ",\"total_tokens\":")))
        return;
    if (!take_number(&tail, &made) || !take(&tail, ",\"completion_tokens\":") || !take_number(&tail, &prompt) ||
        !take(&tail, "\"prompt_tokens\":"))
        return;
    key->prompt_tokens = (uint32_t)prompt;
    key->new_tokens = (uint32_t)made;
}

int record_read_key(const char *line, size_t length, struct nj_record_key *key)
{
    struct tail tail = {.line = line, .end = length};
    *key = (struct nj_record_key){0};
    if (!take_own_fields(&tail, key) || !read_id(line, length, &key->id_hash))
        return -1;
    read_counts(tail, key);
    return 0;
}

bool record_is_cut(const char *line, size_t length)
{
    /* Within a string its quotes would be escaped. */
    static const char mark[] = "\"finish_reason\":\"length\"";
    return memmem(line, length, mark, sizeof mark - 1) != NULL;
}
