/* A model in which one token makes the logits overflow: only the sequence that has it fails. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "engine/sweep/score.h"
#include "tests/sweep/trial.h"

enum { REQUESTS = 12, SEED = 21, FATAL_TOKEN = SYNTHETIC_FATAL_TOKEN };

static void write_fatal_model(const char *path)
{
    struct nj_error error;
    assert_int_equal(synthetic_model_write_fatal(NJ_TEST_DATA "/synthetic", path, &error), 0);
}

static void open_fatal_model(struct trial_model *opened)
{
    const struct nj_synthetic_shape shape = synthetic_shape_small();
    trial_model_open(opened, &shape, write_fatal_model);
}

static void end_prompt_with(struct trial_request *request, int32_t token)
{
    request->prompt[request->prompt_count - 1] = token;
}

static void check_only_the_sequence_fails(enum nj_kv_type kv_type)
{
    static struct trial good, bad;
    struct trial_model opened;
    open_fatal_model(&opened);
    trial_create(&good, opened.model, REQUESTS, 90, 30, SEED);
    trial_create(&bad, opened.model, REQUESTS, 90, 30, SEED);
    end_prompt_with(&bad.request[3], FATAL_TOKEN);
    end_prompt_with(&bad.request[8], FATAL_TOKEN);
    struct nj_scheduler_options options = trial_options(&good);
    options.kv_type = kv_type;
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

static void test_only_the_sequence_fails(void **state)
{
    (void)state;
    check_only_the_sequence_fails(NJ_KV_F16);
    check_only_the_sequence_fails(NJ_KV_Q8);
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
