/* Whole jobs on a synthetic model. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <jansson.h>

#include "tests/pipeline/cmocka_headers.h"
#include "tests/pipeline/job_fixture.h"
#include "tests/support/temporary_directory.h"
#include "tests/synthetic/synthetic_model.h"

static void check_exports(struct job_fixture *fixture, const char *const *ids, size_t count)
{
    char *text = job_fixture_export(fixture, NULL), *line = text;
    for (size_t i = 0; i < count; i++) {
        char *end = strchr(line, '\n'), wanted[128];
        assert_non_null(end);
        *end = '\0';
        snprintf(wanted, sizeof wanted, "id\":\"%s\"", ids[i]);
        if (strstr(line, wanted) == NULL)
            fail_msg("record %zu is not %s: %s", i, ids[i], line);
        assert_null(strstr(line, "\"attempt\""));
        assert_null(strstr(line, "crc32"));
        line = end + 1;
    }
    assert_int_equal(*line, '\0');
    free(text);
}

static void test_small_job(void **state)
{
    struct job_fixture *fixture = *state;
    job_fixture_write(fixture,
                      "{\"id\":\"a\",\"prompt\":\"river stone\",\"max_tokens\":5}\n"
                      "{\"id\":\"b\",\"messages\":[{\"role\":\"user\",\"content\":\"light\"}],\"max_tokens\":3}\n"
                      "{\"custom_id\":\"c\",\"method\":\"POST\",\"url\":\"/v1/chat/completions\",\"body\":"
                      "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"max_tokens\":2}}\n"
                      "{\"prompt\":\"winter\",\"max_tokens\":1}\n");
    assert_int_equal(job_fixture_run(fixture), 0);
    assert_int_equal(fixture->summary.requests, 4);
    assert_int_equal(fixture->summary.answered, 4);
    assert_int_equal(fixture->summary.failed, 0);
    assert_int_equal(fixture->summary.computed_now, 4);
    assert_true(fixture->summary.new_tokens >= 4 && fixture->summary.new_tokens <= 11);
    assert_int_equal(fixture->progress.phase, NJ_PHASE_DONE);
    assert_true(fixture->progress.work_done == fixture->progress.work_total);
    static const char *const ids[] = {"a", "b", "c", "in.jsonl:4"};
    check_exports(fixture, ids, 4);
    assert_int_equal(job_fixture_last_run(fixture, "exit_code"), 0);
    assert_int_equal(job_fixture_last_run(fixture, "finished_requests"), 4);
}

/* The choices of the only record, or the record itself. */
static json_t *read_choices(struct job_fixture *fixture)
{
    char *text = job_fixture_export(fixture, NULL);
    json_t *record = json_loads(text, JSON_REJECT_DUPLICATES, NULL), *choices = json_object_get(record, "choices");
    assert_non_null(record);
    json_incref(choices);
    json_decref(record);
    free(text);
    return choices;
}

static const char *text_at(const json_t *choices, size_t index)
{
    return json_string_value(json_object_get(json_array_get(choices, index), "text"));
}

/* Several answers to one request are one record; the first is the one that would come alone. One sequence in flight
 * at a time does as well as all together. */
static void test_several_choices(void **state)
{
    struct job_fixture *fixture = *state;
    static const int32_t budgets[] = {1, 2, 64};
    json_t *expected = NULL;
    for (int i = 0; i < 3; i++) {
        job_fixture_write(fixture,
                          "{\"id\":\"a\",\"prompt\":\"river stone\",\"max_tokens\":20,\"temperature\":1,\"n\":5}\n");
        fixture->options.token_budget = budgets[i];
        assert_int_equal(job_fixture_run(fixture), 0);
        assert_int_equal(fixture->summary.answered, 1);
        json_t *choices = read_choices(fixture);
        assert_int_equal(json_array_size(choices), 5);
        for (size_t a = 0; a < 5; a++)
            for (size_t b = 0; b < a; b++)
                assert_string_not_equal(text_at(choices, a), text_at(choices, b));
        assert_true(expected == NULL || json_equal(choices, expected));
        json_decref(expected);
        expected = choices;
        job_fixture_start_over(fixture);
    }
    job_fixture_write(fixture, "{\"id\":\"a\",\"prompt\":\"river stone\",\"max_tokens\":20,\"temperature\":1}\n");
    assert_int_equal(job_fixture_run(fixture), 0);
    char *text = job_fixture_export(fixture, NULL);
    json_t *alone = json_loads(text, 0, NULL);
    assert_string_equal(json_string_value(json_object_get(alone, "text")), text_at(expected, 0));
    json_decref(alone);
    json_decref(expected);
    free(text);
}

/* Without chance all choices are equal, and only one is computed. */
static void test_greedy_choices(void **state)
{
    struct job_fixture *fixture = *state;
    job_fixture_write(fixture, "{\"id\":\"a\",\"prompt\":\"river stone\",\"max_tokens\":9,\"n\":3}\n");
    assert_int_equal(job_fixture_run(fixture), 0);
    json_t *choices = read_choices(fixture);
    const json_t *count = json_object_get(json_array_get(choices, 0), "completion_tokens");
    assert_int_equal(json_array_size(choices), 3);
    assert_string_equal(text_at(choices, 0), text_at(choices, 1));
    assert_string_equal(text_at(choices, 0), text_at(choices, 2));
    assert_int_equal(job_fixture_last_run(fixture, "decode_tokens"), json_integer_value(count));
    assert_true(fixture->progress.work_done == fixture->progress.work_total);
    json_decref(choices);
}

/* The model computes no number behind one token, which is biased so that some choices come by it and others do not.
 * The request fails as a whole, once, and in the same words after a stop at any moment. */
static void test_one_failing_choice_fails_all(void **state)
{
    static const char line[] = "{\"id\":\"a\",\"prompt\":\"river stone\",\"max_tokens\":6,\"temperature\":1,\"n\":4,"
                               "\"logprobs\":1,\"logit_bias\":{\"300\":%s,\"2\":-100}}\n";
    struct job_fixture *fixture = *state;
    char lines[256];
    assert_int_equal(synthetic_model_write_fatal(NJ_TEST_DATA "/synthetic", fixture->model, &fixture->error), 0);
    snprintf(lines, sizeof lines, line, "-100");
    job_fixture_write(fixture, lines);
    assert_int_equal(job_fixture_run(fixture), 0);
    assert_int_equal(fixture->summary.answered, 1);
    job_fixture_start_over(fixture);

    snprintf(lines, sizeof lines, line, "7.5");
    job_fixture_write(fixture, lines);
    assert_int_equal(job_fixture_run(fixture), 0);
    assert_int_equal(fixture->summary.failed, 1);
    /* All fail at their first token if the bias is too strong for this test, and none if too weak. */
    assert_in_range((uint64_t)job_fixture_last_run(fixture, "decode_tokens"), 5, 23);
    char *expected = job_fixture_export(fixture, NULL);
    assert_non_null(strstr(expected, "{\"id\":\"a\",\"error\":{\"code\":\"non_finite\""));
    job_fixture_start_over(fixture);
    fixture->stop_at_report = 7;
    int stops = 0;
    while (job_fixture_run(fixture) == NJ_INTERRUPTED)
        assert_in_range((uint64_t)++stops, 1, 20);
    assert_true(stops > 0);
    char *text = job_fixture_export(fixture, NULL);
    assert_string_equal(text, expected);
    assert_int_equal(job_fixture_count_lines(fixture, "errors.jsonl"), 1);
    assert_int_equal(job_fixture_count_lines(fixture, "results.jsonl"), 0);
    free(text);
    free(expected);
}

/* An end token that is banned fixes the length of an answer. */
static void test_a_banned_end(void **state)
{
    struct job_fixture *fixture = *state;
    job_fixture_write(fixture, "{\"id\":\"a\",\"prompt\":\"river stone\",\"max_tokens\":60,"
                               "\"logit_bias\":{\"2\":100}}\n"
                               "{\"id\":\"b\",\"prompt\":\"river stone\",\"max_tokens\":60,"
                               "\"logit_bias\":{\"0\":-100,\"1\":-100,\"2\":-100}}\n");
    assert_int_equal(job_fixture_run(fixture), 0);
    char *text = job_fixture_export(fixture, NULL);
    assert_non_null(strstr(text, "\"id\":\"a\",\"text\":\"\",\"finish_reason\":\"stop\""));
    assert_non_null(strstr(text, "\"finish_reason\":\"length\",\"prompt_tokens\":"));
    assert_non_null(strstr(text, "\"completion_tokens\":60}"));
    free(text);
}

/* Nothing is computed or written twice. */
static void test_finished_job_runs_again(void **state)
{
    struct job_fixture *fixture = *state;
    job_fixture_write(fixture, "{\"id\":\"a\",\"prompt\":\"river\",\"max_tokens\":5}\n[]\n");
    assert_int_equal(job_fixture_run(fixture), 0);
    char *first = job_fixture_read(fixture, "results.jsonl"), *errors = job_fixture_read(fixture, "errors.jsonl");
    assert_int_equal(job_fixture_run(fixture), 0);
    assert_int_equal(fixture->summary.computed_now, 0);
    assert_int_equal(fixture->summary.answered, 1);
    assert_int_equal(fixture->summary.failed, 1);
    assert_int_equal(job_fixture_last_run(fixture, "decode_tokens"), 0);
    char *second = job_fixture_read(fixture, "results.jsonl"), *more_errors = job_fixture_read(fixture, "errors.jsonl");
    assert_string_equal(first, second);
    assert_string_equal(errors, more_errors);
    free(first);
    free(second);
    free(errors);
    free(more_errors);
}

static void test_private_files(void **state)
{
    struct job_fixture *fixture = *state;
    static const char *const names[] = {"job.json",     "lock",       "index.bin",   "results.jsonl",
                                        "errors.jsonl", "runs.jsonl", "status.json", "inflight.ckpt"};
    struct stat info;
    job_fixture_write(fixture, "{\"id\":\"a\",\"prompt\":\"river\",\"max_tokens\":1}\n");
    assert_int_equal(job_fixture_run(fixture), 0);
    assert_int_equal(stat(fixture->output, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0700);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char *path = temporary_path(fixture->output, names[i]);
        assert_int_equal(stat(path, &info), 0);
        assert_int_equal(info.st_mode & 0777, 0600);
        free(path);
    }
    char *reserve = job_fixture_read(fixture, "reserve");
    assert_null(reserve);
}

static void test_duplicates(void **state)
{
    struct job_fixture *fixture = *state;
    job_fixture_write(fixture, "{\"id\":\"a\",\"prompt\":\"river\",\"max_tokens\":1}\n"
                               "{\"id\":\"a\",\"prompt\":\"river\",\"max_tokens\":1}\n"
                               "{\"id\":\"in.jsonl:4\",\"prompt\":\"stone\",\"max_tokens\":1}\n"
                               "{\"prompt\":\"light\",\"max_tokens\":1}\n"
                               "{\"id\":\"a\",\"prompt\":5}\n");
    assert_int_equal(job_fixture_run(fixture), 0);
    assert_int_equal(fixture->summary.answered, 2);
    assert_int_equal(fixture->summary.failed, 3);
    static const char *const ids[] = {"a", "in.jsonl:2", "in.jsonl:4", "in.jsonl:4#2", "in.jsonl:5"};
    check_exports(fixture, ids, 5);
    char *errors = job_fixture_read(fixture, "errors.jsonl");
    assert_non_null(strstr(errors, "\\\"a\\\" stands already at in.jsonl:1"));
    assert_non_null(strstr(errors, "\\\"in.jsonl:4\\\" stands already at in.jsonl:3"));
    assert_non_null(strstr(errors, "\"duplicate_id\""));
    free(errors);
}

/* The same file named twice: each of its lines is there once, and once as a duplicate. */
static void test_same_file_twice(void **state)
{
    struct job_fixture *fixture = *state;
    const char *const inputs[] = {fixture->source, fixture->source};
    job_fixture_write(fixture, "{\"id\":\"a\",\"prompt\":\"river\",\"max_tokens\":1}\n"
                               "{\"prompt\":\"stone\",\"max_tokens\":1}\n");
    fixture->options.inputs = inputs;
    fixture->options.input_count = 2;
    assert_int_equal(job_fixture_run(fixture), 0);
    assert_int_equal(fixture->summary.answered, 2);
    assert_int_equal(fixture->summary.failed, 2);
    static const char *const ids[] = {"a", "in.jsonl:2", "in.jsonl:1", "in.jsonl:2#2"};
    check_exports(fixture, ids, 4);
    assert_int_equal(job_fixture_run(fixture), 0);
    assert_int_equal(fixture->summary.computed_now, 0);
    assert_int_equal(job_fixture_count_lines(fixture, "errors.jsonl"), 2);
}

static void test_too_long_and_empty_prompts(void **state)
{
    struct job_fixture *fixture = *state;
    char lines[4000] = "{\"id\":\"empty\",\"prompt\":\"\"}\n{\"id\":\"long\",\"prompt\":\"";
    for (int i = 0; i < 300; i++)
        strcat(lines, "river ");
    strcat(lines, "\"}\n{\"id\":\"clipped\",\"prompt\":\"a\",\"max_tokens\":1000000}\n");
    job_fixture_write(fixture, lines);
    assert_int_equal(job_fixture_run(fixture), 0);
    assert_int_equal(fixture->summary.failed, 2);
    char *errors = job_fixture_read(fixture, "errors.jsonl");
    assert_non_null(strstr(errors, "\"code\":\"empty_prompt\""));
    assert_non_null(strstr(errors, "\"code\":\"prompt_too_long\""));
    assert_non_null(strstr(errors, "the model's context is 256 tokens"));
    free(errors);
    char *results = job_fixture_read(fixture, "results.jsonl");
    assert_non_null(strstr(results, "\"id\":\"clipped\""));
    free(results);
}

static int count_text(const char *text, const char *wanted)
{
    int count = 0;
    for (const char *at = text; (at = strstr(at, wanted)) != NULL; at++)
        count++;
    return count;
}

static void test_warnings_come_once(void **state)
{
    struct job_fixture *fixture = *state;
    job_fixture_write(fixture,
                      "{\"id\":\"a\",\"prompt\":\"<|im_start|>\",\"max_tokens\":1,\"model\":\"x\",\"user\":\"u\"}\n"
                      "{\"id\":\"b\",\"prompt\":\"<|im_start|>\",\"max_tokens\":1,\"model\":\"y\"}\n");
    assert_int_equal(job_fixture_run(fixture), 0);
    assert_int_equal(count_text(fixture->notices, "\"model\" of requests is ignored"), 1);
    assert_int_equal(count_text(fixture->notices, "\"user\" of requests is ignored"), 1);
    assert_int_equal(count_text(fixture->notices, "--as-chat"), 1);
    assert_int_equal(count_text(fixture->notices, "control token"), 1);
    assert_null(strstr(fixture->notices, "im_start")); /* no prompt text */
}

static void test_as_chat(void **state)
{
    struct job_fixture *fixture = *state;
    job_fixture_write(fixture,
                      "{\"id\":\"a\",\"messages\":[{\"role\":\"user\",\"content\":\"river\"}],\"max_tokens\":9}\n");
    assert_int_equal(job_fixture_run(fixture), 0);
    char *messages = job_fixture_export(fixture, NULL);
    job_fixture_start_over(fixture);
    job_fixture_write(fixture, "{\"id\":\"a\",\"prompt\":\"river\",\"max_tokens\":9}\n");
    fixture->options.as_chat = true;
    assert_int_equal(job_fixture_run(fixture), 0);
    assert_null(strstr(fixture->notices, "warning"));
    char *prompt = job_fixture_export(fixture, NULL);
    assert_string_equal(messages, prompt);
    free(messages);
    free(prompt);
}

static void test_strict(void **state)
{
    struct job_fixture *fixture = *state;
    job_fixture_write(fixture, "{\"id\":\"a\",\"prompt\":\"x\"}\n\n{\"id\":\"a\",\"prompt\":\"y\"}\n");
    fixture->options.strict = true;
    assert_int_equal(job_fixture_run(fixture), NJ_BAD_DATA);
    assert_string_equal(fixture->error.file, "in.jsonl");
    assert_int_equal(fixture->error.line, 3);
    assert_non_null(strstr(fixture->error.message, "in.jsonl:1"));
    assert_int_equal(job_fixture_count_lines(fixture, "results.jsonl"), 0);
    /* Repaired, the same command goes on. */
    job_fixture_write(fixture, "{\"id\":\"a\",\"prompt\":\"x\",\"max_tokens\":1}\n");
    assert_int_equal(job_fixture_run(fixture), 0);
}

static void test_all_bad(void **state)
{
    struct job_fixture *fixture = *state;
    job_fixture_write(fixture, "null\n{\n");
    for (int i = 0; i < 2; i++) {
        assert_int_equal(job_fixture_run(fixture), NJ_BAD_DATA);
        assert_string_equal(fixture->error.file, "in.jsonl");
        assert_int_equal(fixture->error.line, 1);
        assert_int_equal(job_fixture_count_lines(fixture, "errors.jsonl"), 2);
    }
}

static void test_empty_input(void **state)
{
    struct job_fixture *fixture = *state;
    job_fixture_write(fixture, "\n\n");
    assert_int_equal(job_fixture_run(fixture), 0);
    assert_non_null(strstr(fixture->notices, "no requests"));
    check_exports(fixture, NULL, 0);
}

/* A request whose keys and values no machine holds is refused before a weight is read. */
static void test_more_than_there_is_memory(void **state)
{
    struct job_fixture *fixture = *state;
    struct nj_synthetic_shape shape = synthetic_shape_small();
    shape.heads = shape.kv_heads = 8;
    shape.head_width = 128;
    shape.context = 16000000;
    shape.layers = 32;
    assert_int_equal(synthetic_model_write(&shape, NJ_TEST_DATA "/synthetic", NULL, fixture->model, &fixture->error),
                     0);
    job_fixture_write(fixture, "{\"id\":\"a\",\"prompt\":\"river\",\"max_tokens\":15000000}\n");
    assert_int_equal(job_fixture_run(fixture), NJ_DOES_NOT_FIT);
    assert_non_null(strstr(fixture->error.message, "MiB are free"));
    assert_non_null(strstr(fixture->error.message, "longest request"));
}

static void test_small_kv_memory(void **state)
{
    struct job_fixture *fixture = *state;
    job_fixture_write(fixture, "{\"id\":\"a\",\"prompt\":\"river stone\",\"max_tokens\":150}\n"
                               "{\"id\":\"b\",\"prompt\":\"light\",\"max_tokens\":2}\n");
    fixture->options.kv_memory_bytes = 1;
    assert_int_equal(job_fixture_run(fixture), NJ_DOES_NOT_FIT);
    const char *named = strstr(fixture->error.message, "KiB (");
    assert_non_null(named);
    unsigned long long least = strtoull(named + 5, NULL, 10);
    assert_int_equal(job_fixture_count_lines(fixture, "results.jsonl"), 0);
    fixture->options.kv_memory_bytes = least - 1;
    assert_int_equal(job_fixture_run(fixture), NJ_DOES_NOT_FIT);
    fixture->options.kv_memory_bytes = least;
    assert_int_equal(job_fixture_run(fixture), 0);
    assert_int_equal(fixture->summary.answered, 2);
}

/* The KV type is a part of what the job is: kept in job.json, and no other one may go on with it. */
static void test_kv_type_belongs_to_the_job(void **state)
{
    struct job_fixture *fixture = *state;
    job_fixture_write(fixture, "{\"id\":\"a\",\"prompt\":\"x\",\"max_tokens\":1}\n");
    fixture->options.kv_type = "q4";
    assert_int_equal(job_fixture_run(fixture), NJ_BAD_DATA);
    assert_non_null(strstr(fixture->error.message, "f16 or q8"));
    assert_int_not_equal(access(fixture->output, F_OK), 0);
    fixture->options.kv_type = "f16";
    assert_int_equal(job_fixture_run(fixture), 0);
    struct nj_job_options *options = job_options_read(fixture->output, &fixture->error);
    assert_non_null(options);
    assert_string_equal(options->kv_type, "f16");
    job_options_free(options);
    fixture->options.kv_type = NULL;
    assert_int_equal(job_fixture_run(fixture), NJ_BAD_DATA);
    assert_non_null(strstr(fixture->error.message, "the KV type was f16, now q8"));
}

static void test_unknown_kernels(void **state)
{
    struct job_fixture *fixture = *state;
    job_fixture_write(fixture, "{\"id\":\"a\",\"prompt\":\"x\",\"max_tokens\":1}\n");
    fixture->options.kernels = "sse9";
    assert_int_equal(job_fixture_run(fixture), NJ_UNAVAILABLE);
    assert_non_null(strstr(fixture->error.message, "sse9"));
}

static void test_failures_before_anything_is_made(void **state)
{
    struct job_fixture *fixture = *state;
    assert_int_equal(job_fixture_run(fixture), NJ_NO_INPUT); /* no input file yet */
    assert_int_not_equal(access(fixture->output, F_OK), 0);
    job_fixture_write(fixture, "{\"id\":\"a\",\"prompt\":\"x\",\"max_tokens\":1}\n");
    fixture->options.model_path = fixture->source;
    assert_int_equal(job_fixture_run(fixture), NJ_BAD_DATA);
    assert_int_not_equal(access(fixture->output, F_OK), 0);
}

static void test_status_and_options(void **state)
{
    struct job_fixture *fixture = *state;
    struct nj_job_status status;
    struct nj_error error;
    assert_int_equal(job_status(fixture->output, &status, &error), -1);
    assert_int_equal(error.code, NJ_NO_INPUT);
    job_fixture_write(fixture, "{\"id\":\"a\",\"prompt\":\"x\",\"max_tokens\":1}\n[]\n");
    assert_int_equal(job_fixture_run(fixture), 0);
    assert_int_equal(job_status(fixture->output, &status, &error), 0);
    assert_string_equal(status.state, "finished");
    assert_false(status.running);
    assert_int_equal(status.last_exit_code, NJ_SOME_FAILED);
    assert_int_equal(status.progress.requests, 2);
    assert_int_equal(status.progress.requests_done, 2);
    assert_int_equal(status.progress.requests_failed, 1);
    struct nj_job_options *options = job_options_read(fixture->output, &error);
    assert_non_null(options);
    assert_string_equal(options->model_path, fixture->model);
    assert_string_equal(options->output_directory, fixture->output);
    assert_int_equal(options->input_count, 1);
    assert_string_equal(options->inputs[0], fixture->source);
    assert_int_equal(options->job_time, FIXTURE_JOB_TIME);
    assert_int_equal(options->threads, 1);
    assert_int_equal(options->token_budget, 8);
    assert_null(options->kernels);
    assert_string_equal(options->kv_type, "q8");
    assert_string_equal(options->cache_directory, fixture->cache);
    job_options_free(options);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, job_fixture_set_up, job_fixture_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_small_job),
        TEST(test_several_choices),
        TEST(test_greedy_choices),
        TEST(test_a_banned_end),
        TEST(test_one_failing_choice_fails_all),
        TEST(test_finished_job_runs_again),
        TEST(test_private_files),
        TEST(test_duplicates),
        TEST(test_same_file_twice),
        TEST(test_too_long_and_empty_prompts),
        TEST(test_warnings_come_once),
        TEST(test_as_chat),
        TEST(test_strict),
        TEST(test_all_bad),
        TEST(test_empty_input),
        TEST(test_small_kv_memory),
        TEST(test_kv_type_belongs_to_the_job),
        TEST(test_more_than_there_is_memory),
        TEST(test_unknown_kernels),
        TEST(test_failures_before_anything_is_made),
        TEST(test_status_and_options),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
