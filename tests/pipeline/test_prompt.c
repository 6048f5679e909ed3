/* What of a request reaches the model's chat template: its variables, which are part of what the request is, and
 * content in parts. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pipeline/request/prompt.h"
#include "tests/pipeline/cmocka_headers.h"
#include "tests/pipeline/job_fixture.h"
#include "tests/support/temporary_directory.h"
#include "tests/synthetic/synthetic_model.h"

struct prompts {
    struct nj_model *model;
    struct nj_prompt_encoder *encoder;
};

static void open_template(struct job_fixture *fixture, const char *source, bool as_chat, struct prompts *out)
{
    struct nj_error error;
    struct nj_synthetic_shape shape = synthetic_shape_small();
    char *path = temporary_path(fixture->directory, "template.jinja");
    temporary_write_file(path, source, strlen(source));
    assert_int_equal(synthetic_model_write(&shape, NJ_TEST_DATA "/synthetic", path, fixture->model, &error), 0);
    free(path);
    struct nj_model_options options = {.path = fixture->model, .cache_directory = fixture->cache};
    struct nj_prompt_options encoding = {.as_chat = as_chat};
    out->model = model_open(&options, &error);
    if (out->model == NULL)
        fail_msg("%s", error.message);
    out->encoder = prompt_encoder_create(out->model, &encoding, &error);
    assert_non_null(out->encoder);
}

/* The template writes the variable `style`, then the messages. */
static void open_prompts(struct job_fixture *fixture, bool as_chat, struct prompts *out)
{
    open_template(fixture, "{{ style | default('plain') }}{% for m in messages %}|{{ m.content }}{% endfor %}", as_chat,
                  out);
}

static void close_prompts(struct prompts *prompts)
{
    prompt_encoder_destroy(prompts->encoder);
    model_close(prompts->model);
}

/* The prompt of a line with these fields, as text, and its digest. */
static struct nj_digest encode(struct prompts *prompts, const char *fields, char *text, size_t capacity)
{
    char line[512];
    struct nj_request request;
    struct nj_problem problem;
    struct nj_encoded_prompt encoded;
    struct nj_error error;
    snprintf(line, sizeof line, "{%s}", fields);
    if (request_parse(line, strlen(line), &request, &problem) != 0 ||
        prompt_encode(prompts->encoder, &request, &encoded, &problem, &error) != 0)
        fail_msg("%s: %s", line, problem.message);
    size_t used = 0;
    for (int32_t i = 0; i < encoded.count; i++) {
        struct nj_text bytes = tokenizer_token_bytes(prompts->model->tokenizer, encoded.tokens[i]);
        assert_true(used + bytes.length < capacity);
        memcpy(text + used, bytes.bytes, bytes.length);
        used += bytes.length;
    }
    text[used] = '\0';
    request_free(&request);
    return encoded.digest;
}

#define MESSAGES "\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]"

static void test_variables_reach_the_template(void **state)
{
    struct prompts prompts;
    char text[256];
    open_prompts(*state, false, &prompts);
    encode(&prompts, MESSAGES, text, sizeof text);
    assert_string_equal(text, "plain|hi");
    encode(&prompts, MESSAGES ",\"chat_template_kwargs\":{\"style\":\"short\"}", text, sizeof text);
    assert_string_equal(text, "short|hi");
    close_prompts(&prompts);
}

/* Variables that change no token are still another request; their order and an empty object are not. */
static void test_variables_belong_to_the_digest(void **state)
{
    static const char *const kwargs[] = {"", "{\"a\":1}", "{\"a\":2}", "{\"a\":1,\"b\":{\"c\":1,\"d\":2}}"};
    enum { KINDS = sizeof kwargs / sizeof kwargs[0] };
    struct prompts prompts;
    struct nj_digest digest[KINDS];
    char text[256], fields[256];
    open_prompts(*state, false, &prompts);
    for (int i = 0; i < KINDS; i++) {
        snprintf(fields, sizeof fields, MESSAGES "%s%s", i > 0 ? ",\"chat_template_kwargs\":" : "", kwargs[i]);
        digest[i] = encode(&prompts, fields, text, sizeof text);
        assert_string_equal(text, "plain|hi");
        for (int j = 0; j < i; j++)
            assert_false(digest_equal(digest[i], digest[j]));
    }
    struct nj_digest again =
        encode(&prompts, "\"chat_template_kwargs\":{\"b\":{\"d\":2,\"c\":1},\"a\":1}," MESSAGES, text, sizeof text);
    assert_true(digest_equal(again, digest[KINDS - 1]));
    again = encode(&prompts, MESSAGES ",\"chat_template_kwargs\":{}", text, sizeof text);
    assert_true(digest_equal(again, digest[0]));
    close_prompts(&prompts);
}

static void test_raw_prompts_have_no_variables(void **state)
{
    static const char line[] = "{\"prompt\":\"hi\",\"chat_template_kwargs\":{\"style\":\"short\"}}";
    struct prompts prompts;
    struct nj_request request;
    struct nj_problem problem;
    struct nj_encoded_prompt encoded;
    struct nj_error error;
    open_prompts(*state, false, &prompts);
    assert_int_equal(request_parse(line, strlen(line), &request, &problem), 0);
    assert_int_equal(prompt_encode(prompts.encoder, &request, &encoded, &problem, &error), 1);
    assert_string_equal(problem.code, "invalid_request");
    assert_non_null(strstr(problem.message, "chat_template_kwargs needs messages"));
    request_free(&request);
    close_prompts(&prompts);
}

static void test_variables_with_as_chat(void **state)
{
    struct prompts prompts;
    char text[256];
    open_prompts(*state, true, &prompts);
    encode(&prompts, "\"prompt\":\"hi\",\"chat_template_kwargs\":{\"style\":\"short\"}", text, sizeof text);
    assert_string_equal(text, "short|hi");
    close_prompts(&prompts);
}

#define TEXT_PART(text) "{\"type\":\"text\",\"text\":\"" text "\"}"
#define IN_PARTS                                                                                                       \
    "\"messages\":[{\"role\":\"system\",\"content\":\"s\"},{\"role\":\"user\",\"content\":[" TEXT_PART(                \
        "one") "," TEXT_PART("") "," TEXT_PART("two\\u0000") "]}]"

/* A template that reads parts gets the array; for any other the texts are joined by newlines. */
static void test_content_in_parts(void **state)
{
    static const struct {
        const char *source, *expected;
        size_t length; /* NUL included */
    } cases[] = {
        {"{% for m in messages %}|{{ m.content }}{% endfor %}", "|s|one\n\ntwo\0", 12},
        {"{% for m in messages %}{{ '|' + m['content'] }}{% endfor %}", "|s|one\n\ntwo\0", 12},
        {"{% for m in messages %}|{{ m.content | tojson }}{% endfor %}", "|\"s\"|\"one\\n\\ntwo\\u0000\"", 24},
        {"{% for m in messages if m.content is string %}|{{ m.content }}{% endfor %}", "|s|one\n\ntwo\0", 12},
        {"{% for m in messages %}{% if m.content is string %}|{{ m.content }}{% else %}{% for p in m.content %}"
         "/{{ p.text }}{% endfor %}{% endif %}{% endfor %}",
         "|s/one//two\0", 12},
    };
    char text[256], again[256];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct prompts prompts;
        open_template(*state, cases[i].source, false, &prompts);
        encode(&prompts, IN_PARTS, text, sizeof text);
        assert_memory_equal(text, cases[i].expected, cases[i].length);
        encode(&prompts, MESSAGES, again, sizeof again);
        assert_string_equal(again, i == 2 ? "|\"hi\"" : "|hi");
        close_prompts(&prompts);
    }
}

/* Control tokens written in parts are text. */
static void test_parts_are_not_template(void **state)
{
    struct prompts prompts;
    struct nj_request request;
    struct nj_problem problem;
    struct nj_encoded_prompt encoded;
    struct nj_error error;
    static const char line[] = "{\"messages\":[{\"role\":\"user\",\"content\":[" TEXT_PART("<|im_end|>") "]}]}";
    open_template(*state, "{{ messages[0].content }}<|im_end|>", false, &prompts);
    assert_int_equal(request_parse(line, strlen(line), &request, &problem), 0);
    assert_int_equal(prompt_encode(prompts.encoder, &request, &encoded, &problem, &error), 0);
    assert_true(encoded.count > 2);
    for (int32_t i = 0; i < encoded.count - 1; i++)
        assert_int_not_equal(encoded.tokens[i], encoded.tokens[encoded.count - 1]);
    request_free(&request);
    close_prompts(&prompts);
}

/* Whatever changes a record is part of the request, and its neutral values are not. */
static void test_choices_belong_to_the_digest(void **state)
{
    static const char *const fields[] = {"",
                                         ",\"n\":2",
                                         ",\"n\":3",
                                         ",\"logprobs\":0",
                                         ",\"logprobs\":2",
                                         ",\"n\":2,\"logprobs\":2",
                                         ",\"logit_bias\":{\"5\":1}",
                                         ",\"logit_bias\":{\"5\":2}",
                                         ",\"logit_bias\":{\"6\":1}",
                                         ",\"logit_bias\":{\"5\":1,\"6\":1}"};
    static const char *const same[][2] = {{"", ",\"n\":1,\"logprobs\":false,\"top_logprobs\":0,\"logit_bias\":{}"},
                                          {",\"logit_bias\":{\"5\":1,\"6\":1}", ",\"logit_bias\":{\"6\":1.0,\"5\":1}"}};
    enum { KINDS = sizeof fields / sizeof fields[0] };
    struct prompts prompts;
    struct nj_digest digest[KINDS];
    char text[256], line[256];
    open_prompts(*state, false, &prompts);
    for (int i = 0; i < KINDS; i++) {
        snprintf(line, sizeof line, "\"prompt\":\"hi\"%s", fields[i]);
        digest[i] = encode(&prompts, line, text, sizeof text);
        for (int j = 0; j < i; j++)
            assert_false(digest_equal(digest[i], digest[j]));
    }
    for (int i = 0; i < 2; i++) {
        struct nj_digest one, other;
        snprintf(line, sizeof line, "\"prompt\":\"hi\"%s", same[i][0]);
        one = encode(&prompts, line, text, sizeof text);
        snprintf(line, sizeof line, "\"prompt\":\"hi\"%s", same[i][1]);
        other = encode(&prompts, line, text, sizeof text);
        assert_true(digest_equal(one, other));
    }
    close_prompts(&prompts);
}

static void test_bias_outside_the_vocabulary(void **state)
{
    struct prompts prompts;
    char line[128], text[64];
    open_prompts(*state, false, &prompts);
    const int vocabulary = (int)prompts.model->shape.vocabulary;
    snprintf(line, sizeof line, "\"prompt\":\"hi\",\"logit_bias\":{\"%d\":1,\"0\":1}", vocabulary - 1);
    encode(&prompts, line, text, sizeof text);

    struct nj_request request;
    struct nj_problem problem;
    struct nj_encoded_prompt encoded;
    struct nj_error error;
    snprintf(line, sizeof line, "{\"prompt\":\"hi\",\"logit_bias\":{\"%d\":1,\"0\":1}}", vocabulary);
    assert_int_equal(request_parse(line, strlen(line), &request, &problem), 0);
    assert_int_equal(prompt_encode(prompts.encoder, &request, &encoded, &problem, &error), 1);
    assert_string_equal(problem.code, "invalid_request");
    assert_non_null(strstr(problem.message, "logit_bias names token"));
    request_free(&request);
    close_prompts(&prompts);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_variables_reach_the_template, job_fixture_set_up, job_fixture_tear_down),
        cmocka_unit_test_setup_teardown(test_variables_belong_to_the_digest, job_fixture_set_up, job_fixture_tear_down),
        cmocka_unit_test_setup_teardown(test_raw_prompts_have_no_variables, job_fixture_set_up, job_fixture_tear_down),
        cmocka_unit_test_setup_teardown(test_variables_with_as_chat, job_fixture_set_up, job_fixture_tear_down),
        cmocka_unit_test_setup_teardown(test_content_in_parts, job_fixture_set_up, job_fixture_tear_down),
        cmocka_unit_test_setup_teardown(test_parts_are_not_template, job_fixture_set_up, job_fixture_tear_down),
        cmocka_unit_test_setup_teardown(test_choices_belong_to_the_digest, job_fixture_set_up, job_fixture_tear_down),
        cmocka_unit_test_setup_teardown(test_bias_outside_the_vocabulary, job_fixture_set_up, job_fixture_tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
