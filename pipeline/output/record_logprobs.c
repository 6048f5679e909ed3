#include "pipeline/output/record_logprobs.h"

#include <stdlib.h>
#include <string.h>

#include "engine/base/utf8.h"
#include "pipeline/base/byte_buffer.h"

/* A token with text: where its bytes begin in those of all tokens, and in which character of the answer. */
struct place {
    int32_t index; /* of the generated token */
    size_t byte;
    int64_t character;
};

struct listing {
    struct place *places;
    int32_t count;
    struct nj_byte_buffer bytes;
};

static bool has_text(const struct nj_tokenizer *tokenizer, int32_t token)
{
    return !tokenizer_is_control(tokenizer, token) && !tokenizer_ends_generation(tokenizer, token) &&
           tokenizer_token_bytes(tokenizer, token).length > 0;
}

static int gather_bytes(const struct nj_tokenizer *tokenizer, const struct nj_sequence_result *result,
                        struct listing *listing)
{
    struct nj_error ignored;
    for (int32_t i = 0; i < result->generated_count; i++) {
        const struct nj_text bytes = tokenizer_token_bytes(tokenizer, result->generated[i]);
        if (!has_text(tokenizer, result->generated[i]))
            continue;
        listing->places[listing->count++] = (struct place){.index = i, .byte = listing->bytes.length};
        if (byte_buffer_append(&listing->bytes, bytes.bytes, bytes.length, &ignored) != 0)
            return -1;
    }
    return 0;
}

/* Follows the text as it was made from the bytes, character by character (what is not UTF-8 became U+FFFD), up to the
 * answer's end: tokens that begin behind it are not listed. */
static void place_tokens(struct listing *listing, size_t text_bytes)
{
    size_t at = 0, written = 0;
    int64_t character = 0;
    int32_t next = 0;
    while (at < listing->bytes.length && written < text_bytes) {
        const struct nj_utf8_part part = utf8_next(listing->bytes.data + at, listing->bytes.length - at);
        at += part.length;
        written += part.kind == NJ_UTF8_VALID ? part.length : 3;
        for (; next < listing->count && listing->places[next].byte < at; next++)
            listing->places[next].character = character;
        character++;
    }
    listing->count = next;
}

static int list_tokens(const struct nj_tokenizer *tokenizer, const struct nj_sequence_result *result,
                       struct listing *listing)
{
    listing->places = calloc((size_t)result->generated_count + 1, sizeof *listing->places);
    if (listing->places == NULL || gather_bytes(tokenizer, result, listing) != 0)
        return -1;
    place_tokens(listing, result->text.length);
    return 0;
}

static json_t *readable_text(struct nj_text bytes)
{
    static const char replacement[] = "\xEF\xBF\xBD"; /* U+FFFD */
    struct nj_error ignored;
    struct nj_byte_buffer text = {0};
    int failed = 0;
    for (size_t at = 0; at < bytes.length && failed == 0;) {
        const struct nj_utf8_part part = utf8_next(bytes.bytes + at, bytes.length - at);
        failed = part.kind == NJ_UTF8_VALID ? byte_buffer_append(&text, bytes.bytes + at, part.length, &ignored)
                                            : byte_buffer_append(&text, replacement, sizeof replacement - 1, &ignored);
        at += part.length;
    }
    json_t *string = failed == 0 ? json_stringn(text.length > 0 ? text.data : "", text.length) : NULL;
    byte_buffer_free(&text);
    return string;
}

/* A name that is not shared with another token's text, and fit for a key: as OpenAI does, bytes that are no text
 * are spelled out. */
static json_t *unique_name(struct nj_text bytes)
{
    static const char prefix[] = "bytes:", digits[] = "0123456789abcdef";
    if (utf8_is_valid(bytes.bytes, bytes.length) && memchr(bytes.bytes, '\0', bytes.length) == NULL)
        return json_stringn(bytes.bytes, bytes.length);
    struct nj_error ignored;
    struct nj_byte_buffer name = {0};
    int failed = byte_buffer_append(&name, prefix, sizeof prefix - 1, &ignored);
    for (size_t i = 0; i < bytes.length && failed == 0; i++) {
        const unsigned char byte = (unsigned char)bytes.bytes[i];
        const char spelled[] = {'\\', 'x', digits[byte >> 4], digits[byte & 15]};
        failed = byte_buffer_append(&name, spelled, sizeof spelled, &ignored);
    }
    json_t *string = failed == 0 ? json_stringn(name.data, name.length) : NULL;
    byte_buffer_free(&name);
    return string;
}

static json_t *byte_array(struct nj_text bytes)
{
    json_t *array = json_array();
    for (size_t i = 0; i < bytes.length; i++)
        if (json_array_append_new(array, json_integer((unsigned char)bytes.bytes[i])) != 0) {
            json_decref(array);
            return NULL;
        }
    return array;
}

/* {"token", "logprob", "bytes"} */
static json_t *chat_token(const struct nj_tokenizer *tokenizer, const struct nj_logprob *logprob)
{
    const struct nj_text bytes = tokenizer_token_bytes(tokenizer, logprob->token);
    return json_pack("{s:o, s:f, s:o}", "token", readable_text(bytes), "logprob", (double)logprob->value, "bytes",
                     byte_array(bytes));
}

static json_t *chat_entry(const struct nj_tokenizer *tokenizer, const struct nj_logprob *logprobs, int32_t top)
{
    json_t *best = json_array(), *entry = chat_token(tokenizer, &logprobs[0]);
    int failed = 0;
    for (int32_t i = 1; i <= top && logprobs[i].token >= 0; i++)
        failed |= json_array_append_new(best, chat_token(tokenizer, &logprobs[i]));
    failed |= json_object_set_new(entry, "top_logprobs", best);
    if (failed == 0)
        return entry;
    json_decref(entry);
    return NULL;
}

static const struct nj_logprob *logprobs_at(const struct nj_sequence_result *result, int32_t index)
{
    return result->logprobs + (int64_t)index * (1 + result->top_logprobs);
}

static json_t *chat_form(const struct nj_tokenizer *tokenizer, const struct nj_sequence_result *result,
                         const struct listing *listing)
{
    json_t *content = json_array();
    int failed = 0;
    for (int32_t i = 0; i < listing->count; i++)
        failed |= json_array_append_new(
            content, chat_entry(tokenizer, logprobs_at(result, listing->places[i].index), result->top_logprobs));
    if (failed == 0)
        return json_pack("{s:o, s:n}", "content", content, "refusal");
    json_decref(content);
    return NULL;
}

/* Of tokens with the same name, which only control tokens can share with others, the more probable one. */
static int add_best(const struct nj_tokenizer *tokenizer, json_t *best, const struct nj_logprob *logprob)
{
    json_t *name = unique_name(tokenizer_token_bytes(tokenizer, logprob->token));
    int failed = name == NULL ? -1 : 0;
    if (failed == 0 && json_object_get(best, json_string_value(name)) == NULL)
        failed = json_object_set_new(best, json_string_value(name), json_real((double)logprob->value));
    json_decref(name);
    return failed;
}

/* The best ones by name, and the chosen one if it is not among them. */
static json_t *completion_best(const struct nj_tokenizer *tokenizer, const struct nj_logprob *logprobs, int32_t top)
{
    json_t *best = json_object();
    int failed = 0;
    for (int32_t i = 1; i <= top && logprobs[i].token >= 0; i++)
        failed |= add_best(tokenizer, best, &logprobs[i]);
    failed |= add_best(tokenizer, best, &logprobs[0]);
    if (failed == 0)
        return best;
    json_decref(best);
    return NULL;
}

static json_t *completion_form(const struct nj_tokenizer *tokenizer, const struct nj_sequence_result *result,
                               const struct listing *listing)
{
    json_t *tokens = json_array(), *values = json_array(), *best = json_array(), *offsets = json_array();
    int failed = 0;
    for (int32_t i = 0; i < listing->count; i++) {
        const struct nj_logprob *logprobs = logprobs_at(result, listing->places[i].index);
        const struct nj_text bytes = tokenizer_token_bytes(tokenizer, logprobs[0].token);
        failed |= json_array_append_new(tokens, unique_name(bytes)) |
                  json_array_append_new(values, json_real((double)logprobs[0].value)) |
                  json_array_append_new(best, completion_best(tokenizer, logprobs, result->top_logprobs)) |
                  json_array_append_new(offsets, json_integer(listing->places[i].character));
    }
    json_t *object = json_pack("{s:o, s:o, s:o, s:o}", "tokens", tokens, "token_logprobs", values, "top_logprobs", best,
                               "text_offset", offsets);
    if (failed == 0)
        return object;
    json_decref(object);
    return NULL;
}

json_t *record_logprobs(const struct nj_tokenizer *tokenizer, const struct nj_sequence_result *result,
                        enum nj_logprobs_form form)
{
    struct listing listing = {0};
    json_t *object = NULL;
    if (list_tokens(tokenizer, result, &listing) == 0)
        object = form == NJ_LOGPROBS_CHAT ? chat_form(tokenizer, result, &listing)
                                          : completion_form(tokenizer, result, &listing);
    free(listing.places);
    byte_buffer_free(&listing.bytes);
    return object;
}
