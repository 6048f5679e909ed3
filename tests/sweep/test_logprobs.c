/* Log-probabilities: of a row by the textbook, of answers against scoring, over preemptions and new beginnings. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine/sweep/score.h"
#include "kernels/cpu_kernels.h"
#include "tests/sweep/trial.h"

enum { VOCABULARY = 300, REQUESTS = 18, LONGEST_PROMPT = 140, MOST_NEW = 40, SEED = 4 };

static struct nj_logit_stats stats_of(const float *logits, int32_t count)
{
    struct nj_logit_stats stats;
    const union nj_operation_args args = {
        .logit_stats = {.logits = logits, .count = 1, .vocabulary = count, .stride = count, .out = &stats}};
    cpu_kernels_find("reference")->run[NJ_OP_LOGIT_STATS](&args, 0, 1);
    return stats;
}

/* Quarter steps: many are equal. */
static void fill_logits(float *logits, unsigned seed)
{
    for (int32_t i = 0; i < VOCABULARY; i++) {
        seed = seed * 1664525u + 1013904223u;
        logits[i] = (float)(seed >> 27) * 0.25f - 3.0f;
    }
}

static double plain_logprob(const float *logits, int32_t token)
{
    double sum = 0;
    for (int32_t i = 0; i < VOCABULARY; i++)
        sum += exp((double)logits[i]);
    return (double)logits[token] - log(sum);
}

/* The rank of a token by counting those before it. */
static int32_t rank_of(const float *logits, int32_t token)
{
    int32_t rank = 0;
    for (int32_t i = 0; i < VOCABULARY; i++)
        rank += logits[i] > logits[token] || (logits[i] == logits[token] && i < token);
    return rank;
}

static void test_a_row_is_the_textbook(void **state)
{
    (void)state;
    float logits[VOCABULARY];
    struct nj_logprob out[1 + NJ_TOP_LOGPROBS_MOST];
    for (unsigned seed = 0; seed < 50; seed++) {
        fill_logits(logits, seed);
        const struct nj_logit_stats stats = stats_of(logits, VOCABULARY);
        const int32_t top = (int32_t)seed % (NJ_TOP_LOGPROBS_MOST + 1), token = (int32_t)(seed * 7 % VOCABULARY);
        logprobs_note(logits, VOCABULARY, &stats, token, top, out);
        assert_int_equal(out[0].token, token);
        for (int32_t i = 0; i <= top; i++) {
            assert_true(fabs((double)out[i].value - plain_logprob(logits, out[i].token)) < 1e-5);
            assert_true(out[i].value == (float)logprobs_value(logits, &stats, out[i].token));
            if (i > 0)
                assert_int_equal(rank_of(logits, out[i].token), i - 1);
        }
    }
}

static void test_a_row_has_limits(void **state)
{
    (void)state;
    struct nj_logprob out[1 + 5];
    const float logits[3] = {-3e38f, 3e38f, 1.0f};
    const struct nj_logit_stats stats = stats_of(logits, 3);
    logprobs_note(logits, 3, &stats, 0, 5, out);
    assert_true(out[0].value == -9999.0f);
    assert_true(out[1].token == 1 && out[1].value == 0.0f);
    assert_true(out[2].token == 2 && out[3].token == 0);
    assert_true(out[4].token == -1 && out[5].token == -1);
}

/* What scoring says of the same tokens, by other sweeps: bit for bit where nothing was biased. */
static void check_against_scoring(const struct trial_model *opened, const struct trial *trial, int index)
{
    const struct trial_request *request = &trial->request[index];
    const struct trial_answer *answer = &trial->answer[index];
    const int32_t count = request->prompt_count + answer->generated_count, stride = 1 + request->top_logprobs;
    struct nj_error error = {0};
    int32_t *tokens = malloc((size_t)count * sizeof *tokens), *argmax = malloc((size_t)count * sizeof *argmax);
    double *logprob = malloc((size_t)count * sizeof *logprob);
    assert_true(tokens != NULL && argmax != NULL && logprob != NULL);
    memcpy(tokens, request->prompt, (size_t)request->prompt_count * sizeof *tokens);
    memcpy(tokens + request->prompt_count, answer->generated, (size_t)answer->generated_count * sizeof *tokens);
    const struct nj_score_options options = {.kv_type = NJ_KV_F16, .token_budget = 37};
    assert_int_equal(score_tokens(opened->model, opened->device, &options, tokens, count, request->prompt_count - 1,
                                  logprob, argmax, &error),
                     0);
    for (int32_t i = 0; i < answer->generated_count; i++) {
        const struct nj_logprob *noted = answer->logprobs + (int64_t)i * stride;
        assert_int_equal(noted[0].token, answer->generated[i]);
        assert_true(noted[0].value == (float)logprob[i]);
        assert_true(request->top_logprobs == 0 || noted[1].token == argmax[i]);
    }
    free(logprob);
    free(argmax);
    free(tokens);
}

/* The chosen token is among the best if it is better than the worst of them; all together are at most certain. */
static void check_consistent(const struct trial *trial, int index)
{
    const struct trial_answer *answer = &trial->answer[index];
    const int32_t top = trial->request[index].top_logprobs;
    for (int32_t i = 0; i < answer->generated_count; i++) {
        const struct nj_logprob *noted = answer->logprobs + (int64_t)i * (1 + top);
        double sum = 0;
        bool found = top == 0 || noted[0].value < noted[top].value;
        for (int32_t rank = 1; rank <= top; rank++) {
            sum += exp((double)noted[rank].value);
            assert_true(rank == 1 || noted[rank].value <= noted[rank - 1].value);
            found |= noted[rank].token == noted[0].token && noted[rank].value == noted[0].value;
        }
        assert_true(sum <= 1 + 1e-5);
        assert_true(found || noted[0].value == noted[top].value);
    }
}

static void test_answers_tell_what_scoring_tells(void **state)
{
    (void)state;
    static struct trial trial;
    struct trial_model opened;
    const struct nj_synthetic_shape shape = synthetic_shape_small();
    int scored = 0;
    trial_model_open(&opened, &shape, NULL);
    trial_create(&trial, opened.model, REQUESTS, LONGEST_PROMPT, MOST_NEW, SEED);
    const struct nj_scheduler_options options = trial_options(&trial);
    trial_run_all(&trial, opened.model, NULL, 1, &options);
    for (int i = 0; i < REQUESTS; i++) {
        if (!trial.request[i].wants_logprobs)
            continue;
        check_consistent(&trial, i);
        if (trial.request[i].bias_count == 0) {
            check_against_scoring(&opened, &trial, i);
            scored++;
        }
    }
    assert_true(scored >= 4);
    trial_destroy(&trial);
    trial_model_close(&opened);
}

/* A banned token never comes, and its log-probability says so: it is that of the biased row. */
static void test_bias_shows_in_logprobs(void **state)
{
    (void)state;
    static struct trial trial;
    struct trial_model opened;
    const struct nj_synthetic_shape shape = synthetic_shape_small();
    trial_model_open(&opened, &shape, NULL);
    trial_create(&trial, opened.model, 1, 20, 30, SEED);
    struct trial_request *request = &trial.request[0];
    request->max_new_tokens = 1;
    request->stop_count = request->bias_count = 0;
    request->wants_logprobs = true;
    request->top_logprobs = 2;
    const struct nj_scheduler_options options = trial_options(&trial);
    trial_run_all(&trial, opened.model, NULL, 1, &options);
    const int32_t first = trial.answer[0].generated[0], second = trial.answer[0].logprobs[2].token;
    assert_int_equal(trial.answer[0].logprobs[1].token, first);

    trial_forget_answers(&trial);
    request->bias[0] = (struct nj_logit_bias){.token = first, .bias = -100.0f};
    request->bias_count = 1;
    trial_run_all(&trial, opened.model, NULL, 1, &options);
    assert_int_equal(trial.answer[0].generated[0], second);
    assert_int_equal(trial.answer[0].logprobs[1].token, second);
    assert_int_not_equal(trial.answer[0].logprobs[2].token, first);

    trial_forget_answers(&trial);
    request->bias[0].bias = 100.0f;
    trial_run_all(&trial, opened.model, NULL, 1, &options);
    assert_int_equal(trial.answer[0].generated[0], first);
    assert_true(trial.answer[0].logprobs[0].value > -1e-6f);
    trial_destroy(&trial);
    trial_model_close(&opened);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_row_is_the_textbook),
        cmocka_unit_test(test_a_row_has_limits),
        cmocka_unit_test(test_answers_tell_what_scoring_tells),
        cmocka_unit_test(test_bias_shows_in_logprobs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
