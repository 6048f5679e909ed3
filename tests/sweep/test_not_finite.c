/* A model in which one token makes the logits overflow: only the sequence that has it fails. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "engine/sweep/score.h"
#include "tests/sweep/trial.h"

enum { REQUESTS = 12, SEED = 21, FATAL_TOKEN = 300, FATAL_ROW = 301 };

static void write_element(int fd, const struct nj_gguf_tensor *tensor, int64_t row, int64_t col, float value)
{
    const uint64_t at = tensor->offset + ((uint64_t)row * tensor->shape[0] + (uint64_t)col) * sizeof value;
    assert_int_equal(pwrite(fd, &value, sizeof value, (off_t)at), (ssize_t)sizeof value);
}

static const struct nj_gguf_tensor *find(const struct nj_gguf *gguf, const char *name)
{
    const struct nj_gguf_tensor *tensor = gguf_tensor_find(gguf, name);
    assert_non_null(tensor);
    return tensor;
}

/* Dimension 0 of the residual becomes a channel that is exactly 0 unless the current token is FATAL_TOKEN: no
 * other token has it, no layer writes it. The head multiplies it by a number near the largest float. */
static void add_fatal_token(const char *path)
{
    struct nj_gguf *gguf = gguf_open(path, NULL);
    assert_non_null(gguf);
    const int fd = open(path, O_WRONLY);
    assert_true(fd >= 0);
    const struct nj_gguf_tensor *embedding = find(gguf, "token_embd.weight");
    for (int64_t token = 0; token < (int64_t)embedding->shape[1]; token++)
        write_element(fd, embedding, token, 0, token == FATAL_TOKEN ? 100.0f : 0.0f);
    static const char *const writers[] = {"blk.0.attn_output.weight", "blk.0.ffn_down.weight",
                                          "blk.1.attn_output.weight", "blk.1.ffn_down.weight"};
    for (int i = 0; i < 4; i++) {
        const struct nj_gguf_tensor *writer = find(gguf, writers[i]);
        for (int64_t col = 0; col < (int64_t)writer->shape[0]; col++)
            write_element(fd, writer, 0, col, 0.0f);
    }
    write_element(fd, find(gguf, "output.weight"), FATAL_ROW, 0, 3e38f);
    assert_int_equal(close(fd), 0);
    gguf_close(gguf);
}

static void open_fatal_model(struct trial_model *opened)
{
    struct nj_synthetic_shape shape = synthetic_shape_small();
    shape.type = "f32";
    shape.embedding_type = "f32";
    shape.tied = false;
    trial_model_open(opened, &shape, add_fatal_token);
}

static void end_prompt_with(struct trial_request *request, int32_t token)
{
    request->prompt[request->prompt_count - 1] = token;
}

static void test_only_the_sequence_fails(void **state)
{
    (void)state;
    static struct trial good, bad;
    struct trial_model opened;
    open_fatal_model(&opened);
    trial_create(&good, opened.model, REQUESTS, 90, 30, SEED);
    trial_create(&bad, opened.model, REQUESTS, 90, 30, SEED);
    end_prompt_with(&bad.request[3], FATAL_TOKEN);
    end_prompt_with(&bad.request[8], FATAL_TOKEN);
    const struct nj_scheduler_options options = trial_options(&good);
    trial_run_all(&good, opened.model, NULL, 1, &options);
    trial_run_all(&bad, opened.model, NULL, 2, &options);
    for (int i = 0; i < REQUESTS; i++) {
        if (i == 3 || i == 8) {
            assert_int_equal(bad.answer[i].finish, NJ_FINISH_NOT_FINITE);
            assert_int_equal(bad.answer[i].generated_count, 0);
            assert_string_equal(bad.answer[i].text, "");
        } else {
            trial_assert_same_answer(&good, &bad, i);
        }
    }
    trial_destroy(&bad);
    trial_destroy(&good);
    trial_model_close(&opened);
}

static void test_scoring_says_where(void **state)
{
    (void)state;
    struct trial_model opened;
    open_fatal_model(&opened);
    struct nj_error error = {0};
    const struct nj_score_options options = {.kv_type = NJ_KV_F16, .token_budget = 3};
    const int32_t tokens[] = {10, 11, 12, 13, FATAL_TOKEN, 15, 16};
    double logprob[6];
    assert_int_equal(score_tokens(opened.model, opened.device, &options, tokens, 5, 0, logprob, NULL, &error), 0);
    assert_int_equal(score_tokens(opened.model, opened.device, &options, tokens, 7, 0, logprob, NULL, &error), -1);
    assert_int_equal(error.code, NJ_BAD_DATA);
    assert_non_null(strstr(error.message, "position 4"));
    trial_model_close(&opened);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_only_the_sequence_fails),
        cmocka_unit_test(test_scoring_says_where),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
