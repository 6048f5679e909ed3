#include "pipeline/record.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pipeline/utf8_text.h"

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

static json_t *plain_result(const char *id, const struct nj_sequence_result *result)
{
    return json_pack("{s:s, s:s%, s:s, s:i, s:i}", "id", id, "text", result->text.bytes, result->text.length,
                     "finish_reason", finish_name(result->finish), "prompt_tokens", (int)result->prompt_count,
                     "completion_tokens", (int)result->generated_count);
}

static json_t *batch_choice(enum nj_shape shape, const struct nj_sequence_result *result)
{
    const char *finish = finish_name(result->finish);
    if (shape == NJ_SHAPE_BATCH_CHAT)
        return json_pack("{s:i, s:{s:s, s:s%}, s:n, s:s}", "index", 0, "message", "role", "assistant", "content",
                         result->text.bytes, result->text.length, "logprobs", "finish_reason", finish);
    return json_pack("{s:i, s:s%, s:n, s:s}", "index", 0, "text", result->text.bytes, result->text.length, "logprobs",
                     "finish_reason", finish);
}

static json_t *batch_result(const struct nj_record_context *context, const struct nj_record_subject *subject,
                            const struct nj_sequence_result *result)
{
    bool chat = subject->shape == NJ_SHAPE_BATCH_CHAT;
    json_t *usage = json_pack("{s:i, s:i, s:I}", "prompt_tokens", (int)result->prompt_count, "completion_tokens",
                              (int)result->generated_count, "total_tokens",
                              (json_int_t)result->prompt_count + result->generated_count);
    /* "o" takes over what it is given, also when the packing fails; NULL makes it fail. */
    json_t *body = json_pack(
        "{s:o, s:s, s:I, s:s, s:[o], s:o}", "id", derived_id(context, subject->id, chat ? "chatcmpl-" : "cmpl-"),
        "object", chat ? "chat.completion" : "text_completion", "created", (json_int_t)context->job_time, "model",
        context->model_name, "choices", batch_choice(subject->shape, result), "usage", usage);
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
        text = json_dumps(object, JSON_COMPACT);
    json_decref(object);
    if (text == NULL)
        error_set(error, NJ_INTERNAL, "a record could not be made: out of memory, or text that is not UTF-8");
    return text;
}

char *record_make_result(const struct nj_record_context *context, const struct nj_record_subject *subject,
                         const struct nj_sequence_result *result, struct nj_error *error)
{
    struct nj_sequence_result copy = *result;
    if (copy.text.bytes == NULL)
        copy.text = (struct nj_text){.bytes = "", .length = 0};
    json_t *object =
        subject->shape == NJ_SHAPE_PLAIN ? plain_result(subject->id, &copy) : batch_result(context, subject, &copy);
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
