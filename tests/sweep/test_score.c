#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine/sweep/score.h"
#include "tests/sweep/plain_forward.h"
#include "tests/sweep/trial.h"

enum { TOKENS = 150 }; /* three KV blocks, the last one partly filled */

static void random_tokens(const struct nj_model *model, int32_t *tokens, uint64_t seed)
{
    for (int i = 0; i < TOKENS; i++)
        tokens[i] = (int32_t)(trial_random(&seed) % (uint64_t)model->shape.vocabulary);
}

static void score(const struct nj_model *model, const char *kernels, const struct nj_score_options *options,
                  const int32_t *tokens, int32_t first, double *logprob, int32_t *argmax)
{
    struct nj_error error = {0};
    struct nj_device *device = device_open_cpu(cpu_kernels_find(kernels), 2);
    const int result = score_tokens(model, device, options, tokens, TOKENS, first, logprob, argmax, &error);
    assert_string_equal(error.message, "");
    assert_int_equal(result, 0);
    assert_int_equal(device_bytes(device), 0);
    device_close(device);
}

static double log_sum_exp(const double *logits, int32_t count)
{
    double largest = -INFINITY, sum = 0;
    for (int32_t i = 0; i < count; i++)
        largest = fmax(largest, logits[i]);
    for (int32_t i = 0; i < count; i++)
        sum += exp(logits[i] - largest);
    return largest + log(sum);
}

/* The float path against the textbook. */
static void check_against_plain(const struct nj_synthetic_shape *shape)
{
    struct trial_model opened;
    trial_model_open(&opened, shape, NULL);
    const int32_t vocabulary = opened.model->shape.vocabulary;
    int32_t tokens[TOKENS], argmax[TOKENS - 1];
    double logprob[TOKENS - 1];
    double *logits = malloc((size_t)TOKENS * (size_t)vocabulary * sizeof *logits);
    assert_non_null(logits);
    random_tokens(opened.model, tokens, shape->seed);
    plain_forward(opened.model, tokens, TOKENS, logits);
    const struct nj_score_options options = {.kv_type = NJ_KV_F32, .float_path = 1, .token_budget = 64};
    score(opened.model, "reference", &options, tokens, 0, logprob, argmax);
    for (int i = 0; i < TOKENS - 1; i++) {
        const double *row = logits + (int64_t)i * vocabulary;
        double expected = row[tokens[i + 1]] - log_sum_exp(row, vocabulary);
        assert_true(fabs(logprob[i] - expected) < 1e-4);
        for (int32_t other = 0; other < vocabulary; other++)
            assert_true(row[other] <= row[argmax[i]] + 1e-4);
    }
    free(logits);
    trial_model_close(&opened);
}

static void test_float_path_is_the_textbook(void **state)
{
    (void)state;
    static const struct nj_synthetic_shape shapes[] = {
        {2, 64, 4, 2, 0, 128, 4096, "f32", NULL, true, 1, NULL},
        {2, 64, 4, 1, 0, 96, 4096, "f16", NULL, false, 2, NULL},
        {1, 96, 3, 3, 0, 160, 4096, "bf16", "f32", false, 3, NULL},
        {2, 64, 4, 2, 0, 128, 4096, "q4_0", "q8_0", true, 4, NULL},
        {2, 64, 2, 1, 0, 128, 4096, "q4_1", NULL, false, 5, NULL},
        {3, 64, 4, 2, 32, 128, 4096, "q8_0", "f16", true, 6, NULL},
        {1, 1056, 6, 2, 64, 1088, 4096, "q4_1", "q8_0", true, 7, NULL}, /* more than one segment of 1,024 columns */
        {2, 64, 4, 2, 0, 128, 4096, "q5_0", "q5_0", true, 8, NULL},
        {2, 64, 4, 2, 0, 128, 4096, "q5_1", "q5_1", true, 14, NULL},
        {1, 256, 4, 2, 0, 1280, 4096, "q4_k", "q6_k", true, 11, "qwen2"},
        {1, 256, 4, 2, 0, 512, 4096, "q5_k", "q4_k", false, 12, NULL},
        {1, 256, 4, 2, 0, 256, 4096, "q6_k", "q5_k", true, 13, "qwen2"},
        {2, 64, 4, 2, 0, 128, 4096, "f32", NULL, true, 9, "qwen2"},
        {3, 96, 3, 1, 64, 160, 4096, "q5_0", "q8_0", false, 10, "qwen2"},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        check_against_plain(&shapes[i]);
}

/* The quantised path gives the same bits however the tokens are cut into sweeps, whichever kernels compute them
 * and from whichever position scores are asked. */
static void check_chunks(const struct nj_synthetic_shape *shape, enum nj_kv_type kv_type)
{
    struct trial_model opened;
    trial_model_open(&opened, shape, NULL);
    int32_t tokens[TOKENS], expected_argmax[TOKENS - 1], argmax[TOKENS - 1];
    double expected[TOKENS - 1], logprob[TOKENS - 1];
    random_tokens(opened.model, tokens, 77);
    struct nj_score_options options = {.kv_type = kv_type, .token_budget = TOKENS};
    score(opened.model, "reference", &options, tokens, 0, expected, expected_argmax);

    static const int32_t budgets[] = {1, 7, 64, 65, 512};
    static const int32_t firsts[] = {0, 1, 63, 100, TOKENS - 2};
    for (int i = 0; i < 5; i++) {
        const size_t count = (size_t)(TOKENS - 1 - firsts[i]);
        options.token_budget = budgets[i];
        score(opened.model, NULL, &options, tokens, firsts[i], logprob, argmax);
        assert_memory_equal(logprob, expected + firsts[i], count * sizeof *logprob);
        assert_memory_equal(argmax, expected_argmax + firsts[i], count * sizeof *argmax);
        score(opened.model, NULL, &options, tokens, firsts[i], NULL, argmax);
        score(opened.model, NULL, &options, tokens, firsts[i], logprob, NULL);
    }
    trial_model_close(&opened);
}

static void test_scores_do_not_depend_on_chunks(void **state)
{
    (void)state;
    struct nj_synthetic_shape shape = synthetic_shape_small();
    check_chunks(&shape, NJ_KV_F16);
    check_chunks(&shape, NJ_KV_Q8);
    shape.architecture = "qwen2";
    check_chunks(&shape, NJ_KV_F16);
    shape.width = 256;
    shape.feed_forward = 1280;
    shape.type = "q4_k";
    shape.embedding_type = "q6_k";
    check_chunks(&shape, NJ_KV_Q8);
}

static void test_bad_arguments_are_refused(void **state)
{
    (void)state;
    struct trial_model opened;
    struct nj_synthetic_shape shape = synthetic_shape_small();
    trial_model_open(&opened, &shape, NULL);
    struct nj_error error = {0};
    int32_t tokens[3] = {5, 6, 7}, argmax[2];
    const struct nj_score_options options = {.kv_type = NJ_KV_F16, .token_budget = 8};
    assert_int_equal(score_tokens(opened.model, opened.device, &options, tokens, 3, 2, NULL, argmax, &error), -1);
    assert_int_equal(error.code, NJ_INTERNAL);
    tokens[1] = opened.model->shape.vocabulary;
    assert_int_equal(score_tokens(opened.model, opened.device, &options, tokens, 3, 0, NULL, argmax, &error), -1);
    assert_int_equal(error.code, NJ_BAD_DATA);
    trial_model_close(&opened);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_float_path_is_the_textbook),
        cmocka_unit_test(test_scores_do_not_depend_on_chunks),
        cmocka_unit_test(test_bad_arguments_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
