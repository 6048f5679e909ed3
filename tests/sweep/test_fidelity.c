/* A real model against independent reference results in float32 on the same weights (tests/data/reference).
 * Prints what it measures. Which model is a matter of the build (CMakeLists.txt): NJ_MODEL_VARIABLE is the environment
 * variable that names its file, NJ_MODEL_REFERENCE what its reference files begin with, NJ_MOST_NLL_DIFFERENCE and
 * NJ_LEAST_ARGMAX_SHARE what the quantised path must keep. */
#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine/sweep/score.h"
#include "tests/support/temporary_directory.h"

enum { LINES_MOST = 32, SCORED_FROM = 256, TOKEN_BUDGET = 256, THREADS = 2 };

static char *cache_directory;
static struct nj_device *device;
static struct nj_model *model;

static void check(int result, const struct nj_error *error)
{
    char text[2048];
    error_format(error, text, sizeof text);
    if (result != 0)
        fail_msg("%s", text);
}

static int open_model(void **state)
{
    (void)state;
    struct nj_error error = {0};
    cache_directory = temporary_directory_create();
    device = device_open_cpu(cpu_kernels_find(NULL), THREADS);
    assert_non_null(device);
    const struct nj_model_options options = {.path = getenv(NJ_MODEL_VARIABLE), .cache_directory = cache_directory};
    model = model_open(&options, &error);
    check(model == NULL ? -1 : model_load_weights(model, device, NULL, &error), &error);
    return 0;
}

static int close_model(void **state)
{
    (void)state;
    model_close(model);
    device_close(device);
    temporary_directory_remove(cache_directory);
    return 0;
}

/* The objects of a JSON lines file; returns their number. */
static int load_lines(const char *path, json_t *lines[LINES_MOST])
{
    FILE *file = fopen(path, "r");
    char *line = NULL;
    size_t capacity = 0;
    int count = 0;
    assert_non_null(file);
    while (getline(&line, &capacity, file) > 0) {
        assert_true(count < LINES_MOST);
        lines[count] = json_loads(line, 0, NULL);
        assert_non_null(lines[count++]);
    }
    free(line);
    fclose(file);
    return count;
}

static void free_lines(json_t **lines, int count)
{
    for (int i = 0; i < count; i++)
        json_decref(lines[i]);
}

/* Appends an array of integers to `out`; returns the new count. */
static int32_t append_integers(const json_t *array, int32_t *out, int32_t count)
{
    for (size_t i = 0; i < json_array_size(array); i++)
        out[count++] = (int32_t)json_integer_value(json_array_get(array, i));
    return count;
}

struct totals {
    double nll, expected_nll;
    int32_t positions, argmax_equal, argmax_positions;
};

/* One window of a reference text: NLL over the second half, argmax over all of it. */
static void score_window(const json_t *window, const struct nj_score_options *options, struct totals *totals)
{
    struct nj_error error = {0};
    int32_t tokens[1024], expected[1024], argmax[1024];
    double logprob[1024];
    const int32_t count = append_integers(json_object_get(window, "ids"), tokens, 0);
    append_integers(json_object_get(window, "argmax"), expected, 0);
    check(score_tokens(model, device, options, tokens, count, 0, logprob, argmax, &error), &error);

    double nll = 0, expected_nll = 0;
    for (int32_t i = SCORED_FROM; i < count - 1; i++) {
        nll -= logprob[i];
        expected_nll -= json_number_value(json_array_get(json_object_get(window, "logprobs"), (size_t)i));
    }
    const int32_t scored = count - 1 - SCORED_FROM;
    assert_true(fabs(expected_nll / scored - json_number_value(json_object_get(window, "nll_second_half"))) < 1e-3);
    for (int32_t i = 0; i < count - 1; i++)
        totals->argmax_equal += argmax[i] == expected[i];
    totals->argmax_positions += count - 1;
    totals->nll += nll;
    totals->expected_nll += expected_nll;
    totals->positions += scored;
    print_message("  %s %lld: NLL %.6f, reference %.6f (%+.4f %%)\n",
                  json_string_value(json_object_get(window, "text")),
                  (long long)json_integer_value(json_object_get(window, "window")), nll / scored, expected_nll / scored,
                  100 * (nll / expected_nll - 1));
}

/* Scores the windows and returns the relative difference of the pooled NLL. */
static double score_windows(const struct nj_score_options *options, double *argmax_share)
{
    json_t *windows[LINES_MOST];
    struct totals totals = {0};
    const int count = load_lines(NJ_TEST_DATA "/reference/" NJ_MODEL_REFERENCE ".scores.jsonl", windows);
    for (int i = 0; i < count; i++)
        score_window(windows[i], options, &totals);
    free_lines(windows, count);
    const double difference = totals.nll / totals.expected_nll - 1;
    *argmax_share = (double)totals.argmax_equal / totals.argmax_positions;
    print_message("  pooled over %d positions: %+.4f %%; argmax equal in %.2f %% of %d\n", totals.positions,
                  100 * difference, 100 * *argmax_share, totals.argmax_positions);
    return difference;
}

static void check_quantised_path(enum nj_kv_type kv_type)
{
    double argmax_share;
    print_message("%s, int8 activations, KV %s, all windows:\n", device_name(device), kv_type_name(kv_type));
    const struct nj_score_options options = {.kv_type = kv_type, .token_budget = TOKEN_BUDGET};
    const double difference = score_windows(&options, &argmax_share);
    assert_true(fabs(difference) <= NJ_MOST_NLL_DIFFERENCE);
    assert_true(argmax_share >= NJ_LEAST_ARGMAX_SHARE);
}

static void test_quantised_path_is_close(void **state)
{
    (void)state;
    check_quantised_path(NJ_KV_F16);
    check_quantised_path(NJ_KV_Q8);
}

static void test_float_path_is_very_close(void **state)
{
    (void)state;
    double argmax_share;
    print_message("%s, float activations, KV f32, all windows:\n", device_name(device));
    const struct nj_score_options options = {.kv_type = NJ_KV_F32, .float_path = 1, .token_budget = TOKEN_BUDGET};
    const double difference = score_windows(&options, &argmax_share);
    assert_true(fabs(difference) <= 0.0002);
    assert_true(argmax_share >= 0.99);
}

/* How often the argmax is the reference's where the reference's margin is at least so large. */
struct agreement {
    double margin;
    int equal, positions;
};

static void follow_answer(const json_t *answer, enum nj_kv_type kv_type, struct agreement *agreements, int count)
{
    struct nj_error error = {0};
    int32_t tokens[512], argmax[512];
    const int32_t prompt = append_integers(json_object_get(answer, "prompt_ids"), tokens, 0);
    const int32_t total = append_integers(json_object_get(answer, "new_ids"), tokens, prompt);
    const struct nj_score_options options = {.kv_type = kv_type, .token_budget = TOKEN_BUDGET};
    check(score_tokens(model, device, &options, tokens, total, prompt - 1, NULL, argmax, &error), &error);
    for (int32_t i = 0; i < total - prompt; i++) {
        const double margin = json_number_value(json_array_get(json_object_get(answer, "margin"), (size_t)i));
        for (int a = 0; a < count; a++)
            if (margin >= agreements[a].margin) {
                agreements[a].positions++;
                agreements[a].equal += argmax[i] == tokens[prompt + i];
            }
    }
}

static void check_greedy_answers(enum nj_kv_type kv_type)
{
    json_t *answers[LINES_MOST];
    struct agreement agreements[] = {{.margin = 0.5}, {.margin = 0.25}, {.margin = 0.0}};
    const int count = load_lines(NJ_TEST_DATA "/reference/" NJ_MODEL_REFERENCE ".greedy.jsonl", answers);
    for (int i = 0; i < count; i++)
        follow_answer(answers[i], kv_type, agreements, 3);
    free_lines(answers, count);
    for (int a = 0; a < 3; a++)
        print_message("  KV %s: argmax equal in %d of %d positions of margin >= %.2f\n", kv_type_name(kv_type),
                      agreements[a].equal, agreements[a].positions, agreements[a].margin);
    assert_true(agreements[0].positions > 100);
    assert_int_equal(agreements[0].equal, agreements[0].positions);
    assert_true(agreements[1].equal >= 0.98 * agreements[1].positions);
}

static void test_greedy_answers_agree_where_the_margin_is_clear(void **state)
{
    (void)state;
    check_greedy_answers(NJ_KV_F16);
    check_greedy_answers(NJ_KV_Q8);
}

int main(void)
{
    if (getenv(NJ_MODEL_VARIABLE) == NULL) {
        printf("skipped: " NJ_MODEL_VARIABLE " does not name the model's file (samples/get-model gets it)\n");
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_greedy_answers_agree_where_the_margin_is_clear),
        cmocka_unit_test(test_quantised_path_is_close),
        cmocka_unit_test(test_float_path_is_very_close),
    };
    return cmocka_run_group_tests(tests, open_model, close_model);
}
