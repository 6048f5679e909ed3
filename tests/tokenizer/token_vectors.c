#include "tests/tokenizer/token_vectors.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/tokenizer/output_text.h"

int jsonl_visit(const char *name, line_visitor visit, void *context)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", NJ_TEST_DATA, name);
    FILE *file = fopen(path, "r");
    if (file == NULL)
        fail_msg("%s cannot be opened", path);
    char *text = NULL;
    size_t capacity = 0;
    int count = 0;
    for (ssize_t length; (length = getline(&text, &capacity, file)) > 0; count++) {
        json_error_t error;
        json_t *line = json_loadb(text, (size_t)length, JSON_ALLOW_NUL, &error);
        if (line == NULL)
            fail_msg("%s:%d: %s", path, count + 1, error.text);
        visit(context, line);
        json_decref(line);
    }
    free(text);
    fclose(file);
    assert_true(count > 0);
    return count;
}

struct nj_text json_text(const json_t *line, const char *key)
{
    const json_t *value = json_object_get(line, key);
    assert_true(json_is_string(value));
    return (struct nj_text){json_string_value(value), json_string_length(value)};
}

void assert_ids_equal(const struct nj_ids *ids, const json_t *expected, struct nj_text text)
{
    assert_true(json_is_array(expected));
    int shown = text.length < 200 ? (int)text.length : 200;
    if (ids->count != json_array_size(expected))
        fail_msg("\"%.*s\": %zu ids, not %zu", shown, text.bytes, ids->count, json_array_size(expected));
    for (size_t i = 0; i < ids->count; i++)
        if (ids->id[i] != json_integer_value(json_array_get(expected, i)))
            fail_msg("\"%.*s\": id %zu is %d, not %lld", shown, text.bytes, i, ids->id[i],
                     (long long)json_integer_value(json_array_get(expected, i)));
}

static bool has_every_byte(const struct nj_tokenizer *tokenizer, struct nj_text text)
{
    bool known[256] = {false};
    for (int32_t id = 0; id < tokenizer_vocabulary(tokenizer); id++) {
        struct nj_text bytes = tokenizer_token_bytes(tokenizer, id);
        if (bytes.length == 1)
            known[(unsigned char)bytes.bytes[0]] = true;
    }
    for (size_t i = 0; i < text.length; i++)
        if (!known[(unsigned char)text.bytes[i]])
            return false;
    return true;
}

static void assert_bytes_equal(const struct nj_tokenizer *tokenizer, const struct nj_ids *ids, struct nj_text text)
{
    size_t at = 0;
    for (size_t i = 0; i < ids->count; i++) {
        struct nj_text bytes = tokenizer_token_bytes(tokenizer, ids->id[i]);
        assert_true(bytes.length <= text.length - at);
        assert_memory_equal(text.bytes + at, bytes.bytes, bytes.length);
        at += bytes.length;
    }
    assert_int_equal(at, text.length);
}

void check_vector(const struct nj_tokenizer *tokenizer, const json_t *line, const char *key, bool lossy)
{
    struct nj_text text = json_text(line, "text");
    struct nj_ids ids = {0};
    struct nj_error error;
    /* The second time its pieces come from the cache. */
    for (int round = 0; round < 2; round++) {
        ids.count = 0;
        assert_int_equal(tokenizer_encode_text(tokenizer, text.bytes, text.length, &ids, &error), 0);
        assert_ids_equal(&ids, json_object_get(line, key), text);
    }
    assert_true(tokenizer_least_tokens(tokenizer, text.bytes, text.length) <= ids.count);
    if (!lossy || has_every_byte(tokenizer, text))
        assert_bytes_equal(tokenizer, &ids, text);
    ids_free(&ids);
}

static void check_prompt(const struct nj_tokenizer *tokenizer, const json_t *line)
{
    struct nj_text rendered = json_text(line, "rendered");
    uint8_t *is_template = malloc(rendered.length);
    assert_non_null(is_template);
    memset(is_template, 1, rendered.length);
    struct nj_ids ids = {0};
    struct nj_error error;
    assert_int_equal(tokenizer_encode_rendered(tokenizer, rendered.bytes, is_template, rendered.length, &ids, &error),
                     0);
    assert_ids_equal(&ids, json_object_get(line, "prompt_ids"), rendered);
    ids_free(&ids);
    free(is_template);
}

static void check_answer(const struct nj_tokenizer *tokenizer, const json_t *line)
{
    const json_t *ids = json_object_get(line, "new_ids");
    struct nj_text expected = json_text(line, "text");
    struct nj_output_text *text = output_text_create(tokenizer, NULL, 0);
    assert_non_null(text);
    for (size_t i = 0; i < json_array_size(ids); i++)
        assert_int_equal(output_text_append(text, (int32_t)json_integer_value(json_array_get(ids, i))), 0);
    assert_int_equal(output_text_finish(text), 0);
    struct nj_text got = output_text_get(text);
    assert_int_equal(got.length, expected.length);
    assert_memory_equal(got.bytes, expected.bytes, got.length);
    output_text_destroy(text);
}

void check_chat(const struct nj_tokenizer *tokenizer, const json_t *line)
{
    check_prompt(tokenizer, line);
    check_answer(tokenizer, line);
}
