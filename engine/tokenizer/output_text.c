#include "engine/tokenizer/output_text.h"

#include <stdlib.h>
#include <string.h>

#include "engine/base/utf8.h"

struct buffer {
    char *bytes;
    size_t length, capacity;
};

struct nj_output_text {
    const struct nj_tokenizer *tokenizer;
    struct buffer text;
    char pending[4]; /* the beginning of a character, at most three bytes */
    size_t pending_length;
    struct buffer stop_bytes; /* the stop strings, one after the other */
    size_t stop_length[NJ_STOP_STRINGS_MOST];
    int stop_count;
    bool is_stopped;
};

static int buffer_reserve(struct buffer *buffer, size_t bytes)
{
    if (bytes <= buffer->capacity)
        return 0;
    size_t capacity = buffer->capacity < 64 ? 64 : buffer->capacity;
    while (capacity < bytes)
        capacity *= 2;
    char *grown = realloc(buffer->bytes, capacity);
    if (grown == NULL)
        return -1;
    buffer->bytes = grown;
    buffer->capacity = capacity;
    return 0;
}

static int buffer_append(struct buffer *buffer, const char *bytes, size_t length)
{
    if (buffer_reserve(buffer, buffer->length + length) != 0)
        return -1;
    if (length > 0)
        memcpy(buffer->bytes + buffer->length, bytes, length);
    buffer->length += length;
    return 0;
}

struct nj_output_text *output_text_create(const struct nj_tokenizer *tokenizer, const struct nj_text *stop,
                                          int stop_count)
{
    struct nj_output_text *text = calloc(1, sizeof *text);
    if (text == NULL)
        return NULL;
    text->tokenizer = tokenizer;
    if (output_text_reset(text, stop, stop_count) != 0) {
        output_text_destroy(text);
        return NULL;
    }
    return text;
}

void output_text_destroy(struct nj_output_text *text)
{
    if (text == NULL)
        return;
    free(text->text.bytes);
    free(text->stop_bytes.bytes);
    free(text);
}

int output_text_reset(struct nj_output_text *text, const struct nj_text *stop, int stop_count)
{
    text->text.length = 0;
    text->pending_length = 0;
    text->stop_bytes.length = 0;
    text->stop_count = 0;
    text->is_stopped = false;
    if (stop_count > NJ_STOP_STRINGS_MOST)
        return -1;
    for (int i = 0; i < stop_count; i++) {
        if (stop[i].length == 0 || stop[i].length > NJ_STOP_BYTES_MOST ||
            buffer_append(&text->stop_bytes, stop[i].bytes, stop[i].length) != 0)
            return -1;
        text->stop_length[text->stop_count++] = stop[i].length;
    }
    return 0;
}

int output_text_reserve(struct nj_output_text *text, size_t bytes)
{
    return buffer_reserve(&text->text, bytes);
}

/* The length of the longest stop string that the text now ends with; 0 if none. */
static size_t stop_at_end(const struct nj_output_text *text)
{
    size_t longest = 0;
    const char *stop = text->stop_bytes.bytes, *end = text->text.bytes + text->text.length;
    for (int i = 0; i < text->stop_count; stop += text->stop_length[i], i++) {
        size_t length = text->stop_length[i];
        if (length > longest && length <= text->text.length && end[-1] == stop[length - 1] &&
            memcmp(end - length, stop, length) == 0)
            longest = length;
    }
    return longest;
}

/* Adds valid UTF-8, byte by byte where a stop string could become complete. */
static int emit(struct nj_output_text *text, const char *bytes, size_t length)
{
    if (text->stop_count == 0)
        return buffer_append(&text->text, bytes, length);
    for (size_t i = 0; i < length; i++) {
        if (buffer_append(&text->text, bytes + i, 1) != 0)
            return -1;
        size_t stop = stop_at_end(text);
        if (stop > 0) {
            text->text.length -= stop;
            text->is_stopped = true;
            return 1;
        }
    }
    return 0;
}

static const char replacement[] = "\xEF\xBF\xBD"; /* U+FFFD */

/* Takes one byte. The held-back bytes always begin a character, so a byte either goes on with it, or shows
 * that they never become one and starts anew. */
static int take_byte(struct nj_output_text *text, char byte)
{
    int status = 0;
    text->pending[text->pending_length++] = byte;
    while (text->pending_length > 0 && status == 0) {
        struct nj_utf8_part part = utf8_next(text->pending, text->pending_length);
        if (part.kind == NJ_UTF8_INCOMPLETE)
            return 0;
        char whole[4];
        memcpy(whole, text->pending, part.length);
        text->pending_length -= part.length;
        memmove(text->pending, text->pending + part.length, text->pending_length);
        status = part.kind == NJ_UTF8_VALID ? emit(text, whole, part.length)
                                            : emit(text, replacement, sizeof replacement - 1);
    }
    return status;
}

int output_text_append(struct nj_output_text *text, int32_t token)
{
    if (text->is_stopped)
        return 1;
    if (tokenizer_is_control(text->tokenizer, token) || tokenizer_ends_generation(text->tokenizer, token))
        return 0;
    struct nj_text bytes = tokenizer_token_bytes(text->tokenizer, token);
    int status = 0;
    for (size_t i = 0; i < bytes.length && status == 0; i++)
        status = take_byte(text, bytes.bytes[i]);
    return status;
}

int output_text_finish(struct nj_output_text *text)
{
    if (text->is_stopped)
        return 1;
    if (text->pending_length == 0)
        return 0;
    text->pending_length = 0;
    return emit(text, replacement, sizeof replacement - 1);
}

struct nj_text output_text_get(const struct nj_output_text *text)
{
    return (struct nj_text){text->text.length > 0 ? text->text.bytes : "", text->text.length};
}
