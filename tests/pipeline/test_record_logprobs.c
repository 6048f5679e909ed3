/* Log-probabilities in records: which tokens are listed, where they stand in the text, what they are called. */
#include <stdlib.h>
#include <string.h>

#include "pipeline/output/record_logprobs.h"
#include "tests/pipeline/cmocka_headers.h"
#include "tests/pipeline/job_fixture.h"

enum { TOKENS_MOST = 16, TOP_MOST = 3 };

static struct nj_model *model;

static int open_model(void **state)
{
    struct nj_error error;
    if (job_fixture_set_up(state) != 0)
        return -1;
    struct job_fixture *fixture = *state;
    struct nj_model_options options = {.path = fixture->model, .cache_directory = fixture->cache};
    model = model_open(&options, &error);
    return model == NULL ? -1 : 0;
}

static int close_model(void **state)
{
    model_close(model);
    return job_fixture_tear_down(state);
}

static int32_t token_of(const char *bytes)
{
    for (int32_t token = 0; token < model->shape.vocabulary; token++) {
        struct nj_text text = tokenizer_token_bytes(model->tokenizer, token);
        if (text.length == strlen(bytes) && memcmp(text.bytes, bytes, text.length) == 0)
            return token;
    }
    fail_msg("the vocabulary has no token of %zu bytes that begins with 0x%02x", strlen(bytes),
             (unsigned char)bytes[0]);
    return -1;
}

/* An answer of these tokens, its text made as the scheduler makes it, and log-probabilities -0.5, -1.5, ... */
struct answer {
    int32_t tokens[TOKENS_MOST];
    struct nj_logprob logprobs[TOKENS_MOST * (1 + TOP_MOST)];
    struct nj_output_text *text;
    struct nj_sequence_result result;
};

static void make_answer(struct answer *answer, const char *const *tokens, const char *stop, int32_t top)
{
    struct nj_text stop_text = {stop, stop == NULL ? 0 : strlen(stop)};
    int32_t count = 0;
    answer->text = output_text_create(model->tokenizer, &stop_text, stop == NULL ? 0 : 1);
    assert_non_null(answer->text);
    for (; tokens[count] != NULL; count++) {
        answer->tokens[count] = token_of(tokens[count]);
        output_text_append(answer->text, answer->tokens[count]);
        for (int32_t rank = 0; rank <= top; rank++)
            answer->logprobs[count * (1 + top) + rank] =
                (struct nj_logprob){.token = answer->tokens[rank == 0 ? count : (count + rank - 1) % (count + 1)],
                                    .value = -0.5f - (float)count - 0.125f * (float)(rank > 1 ? rank : 0)};
    }
    output_text_finish(answer->text);
    answer->result = (struct nj_sequence_result){.generated = answer->tokens,
                                                 .generated_count = count,
                                                 .text = output_text_get(answer->text),
                                                 .logprobs = answer->logprobs,
                                                 .top_logprobs = top};
}

static void check(const char *const *tokens, const char *stop, int32_t top, enum nj_logprobs_form form,
                  const char *wanted)
{
    struct answer answer;
    make_answer(&answer, tokens, stop, top);
    json_t *object = record_logprobs(model->tokenizer, &answer.result, form);
    assert_non_null(object);
    char *text = json_dumps(object, JSON_COMPACT | JSON_REAL_PRECISION(9));
    assert_string_equal(text, wanted);
    free(text);
    json_decref(object);
    output_text_destroy(answer.text);
}

static void test_chat_form(void **state)
{
    (void)state;
    static const char *const tokens[] = {"a", "!", NULL};
    check(tokens, NULL, 2, NJ_LOGPROBS_CHAT,
          "{\"content\":[{\"token\":\"a\",\"logprob\":-0.5,\"bytes\":[97],\"top_logprobs\":["
          "{\"token\":\"a\",\"logprob\":-0.5,\"bytes\":[97]},{\"token\":\"a\",\"logprob\":-0.75,\"bytes\":[97]}]},"
          "{\"token\":\"!\",\"logprob\":-1.5,\"bytes\":[33],\"top_logprobs\":["
          "{\"token\":\"!\",\"logprob\":-1.5,\"bytes\":[33]},{\"token\":\"a\",\"logprob\":-1.75,\"bytes\":[97]}]}],"
          "\"refusal\":null}");
    static const char *const none[] = {NULL};
    check(none, NULL, 2, NJ_LOGPROBS_CHAT, "{\"content\":[],\"refusal\":null}");
}

static void test_completion_form(void **state)
{
    (void)state;
    static const char *const tokens[] = {"a", "!", "b", NULL};
    check(tokens, NULL, 0, NJ_LOGPROBS_COMPLETION,
          "{\"tokens\":[\"a\",\"!\",\"b\"],\"token_logprobs\":[-0.5,-1.5,-2.5],"
          "\"top_logprobs\":[{\"a\":-0.5},{\"!\":-1.5},{\"b\":-2.5}],\"text_offset\":[0,1,2]}");
    /* The chosen token joins the best ones where it is not among them. */
    struct answer answer;
    make_answer(&answer, tokens, NULL, 1);
    answer.result.generated_count = 1;
    answer.logprobs[1] = (struct nj_logprob){.token = token_of("b"), .value = -0.25f};
    json_t *object = record_logprobs(model->tokenizer, &answer.result, NJ_LOGPROBS_COMPLETION);
    char *text = json_dumps(json_object_get(object, "top_logprobs"), JSON_COMPACT | JSON_REAL_PRECISION(9));
    assert_string_equal(text, "[{\"b\":-0.25,\"a\":-0.5}]");
    free(text);
    json_decref(object);
    output_text_destroy(answer.text);
}

/* Bytes that make one character together: each token begins in it. Bytes that never do are one U+FFFD. */
static void test_parts_of_characters(void **state)
{
    (void)state;
    static const char *const whole[] = {"a", "\xC3", "\xA9", "b", NULL};
    check(whole, NULL, 0, NJ_LOGPROBS_COMPLETION,
          "{\"tokens\":[\"a\",\"bytes:\\\\xc3\",\"bytes:\\\\xa9\",\"b\"],\"token_logprobs\":[-0.5,-1.5,-2.5,-3.5],"
          "\"top_logprobs\":[{\"a\":-0.5},{\"bytes:\\\\xc3\":-1.5},{\"bytes:\\\\xa9\":-2.5},{\"b\":-3.5}],"
          "\"text_offset\":[0,1,1,2]}");
    static const char *const broken[] = {"\xE2", "a", "\xC3", NULL};
    check(broken, NULL, 0, NJ_LOGPROBS_CHAT,
          "{\"content\":[{\"token\":\"\xEF\xBF\xBD\",\"logprob\":-0.5,\"bytes\":[226],\"top_logprobs\":[]},"
          "{\"token\":\"a\",\"logprob\":-1.5,\"bytes\":[97],\"top_logprobs\":[]},"
          "{\"token\":\"\xEF\xBF\xBD\",\"logprob\":-2.5,\"bytes\":[195],\"top_logprobs\":[]}],\"refusal\":null}");
}

/* Tokens are listed as far as the text goes; one that a stop string cuts in two still is. */
static void test_what_a_stop_string_cuts_off(void **state)
{
    (void)state;
    static const char *const tokens[] = {"a", " the", "b", NULL};
    static const char *const two[] = {"a", " the", NULL};
    static const char *const replaced[] = {"\xC3", "b", NULL};
    check(tokens, "b", 0, NJ_LOGPROBS_COMPLETION,
          "{\"tokens\":[\"a\",\" the\"],\"token_logprobs\":[-0.5,-1.5],"
          "\"top_logprobs\":[{\"a\":-0.5},{\" the\":-1.5}],\"text_offset\":[0,1]}");
    check(two, "he", 0, NJ_LOGPROBS_COMPLETION,
          "{\"tokens\":[\"a\",\" the\"],\"token_logprobs\":[-0.5,-1.5],"
          "\"top_logprobs\":[{\"a\":-0.5},{\" the\":-1.5}],\"text_offset\":[0,1]}");
    check(two, " t", 0, NJ_LOGPROBS_COMPLETION,
          "{\"tokens\":[\"a\"],\"token_logprobs\":[-0.5],\"top_logprobs\":[{\"a\":-0.5}],\"text_offset\":[0]}");
    check(two, "a the", 0, NJ_LOGPROBS_CHAT, "{\"content\":[],\"refusal\":null}");
    check(replaced, "b", 0, NJ_LOGPROBS_CHAT,
          "{\"content\":[{\"token\":\"\xEF\xBF\xBD\",\"logprob\":-0.5,\"bytes\":[195],\"top_logprobs\":[]}],"
          "\"refusal\":null}");
}

/* Control and end tokens give no text and are not listed, but may be among the best. */
static void test_control_tokens(void **state)
{
    (void)state;
    static const char *const tokens[] = {"a", "<|im_start|>", "b", "<|im_end|>", NULL};
    check(tokens, NULL, 2, NJ_LOGPROBS_COMPLETION,
          "{\"tokens\":[\"a\",\"b\"],\"token_logprobs\":[-0.5,-2.5],"
          "\"top_logprobs\":[{\"a\":-0.5},{\"b\":-2.5,\"a\":-2.75}],\"text_offset\":[0,1]}");
    struct answer answer;
    make_answer(&answer, tokens, NULL, 1);
    answer.result.generated_count = 1;
    answer.logprobs[1].token = token_of("<|im_end|>");
    json_t *object = record_logprobs(model->tokenizer, &answer.result, NJ_LOGPROBS_COMPLETION);
    json_t *best = json_array_get(json_object_get(object, "top_logprobs"), 0);
    assert_true(json_real_value(json_object_get(best, "<|im_end|>")) == -0.5);
    json_decref(object);
    output_text_destroy(answer.text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chat_form),           cmocka_unit_test(test_completion_form),
        cmocka_unit_test(test_parts_of_characters), cmocka_unit_test(test_what_a_stop_string_cuts_off),
        cmocka_unit_test(test_control_tokens),
    };
    return cmocka_run_group_tests(tests, open_model, close_model);
}
