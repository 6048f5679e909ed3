/* Jobs that are stopped, damaged, changed, and continued. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/base/file.h"
#include "pipeline/output/lock.h"
#include "tests/pipeline/cmocka_headers.h"
#include "tests/pipeline/job_fixture.h"
#include "tests/support/temporary_directory.h"

enum { REQUESTS = 12 };

/* What some requests ask for beside a text; of several answers some are finished long before the others. */
static const char *extras(int i)
{
    static const char *const some[] = {"",
                                       ",\"n\":3,\"stop\":[\"e\",\" t\"]",
                                       ",\"logprobs\":2",
                                       "",
                                       ",\"n\":2,\"logprobs\":1,\"logit_bias\":{\"2\":-100}",
                                       ",\"logit_bias\":{\"0\":-100,\"2\":5}"};
    return some[i % 6];
}

/* Requests of several lengths, some sampled, with a bad line among them. `changed` gets another prompt. */
static void write_input_but(struct job_fixture *fixture, int first, int count, int changed)
{
    char lines[8192] = "", *at = lines;
    for (int i = first; i < first + count; i++) {
        if (i == 5)
            at += sprintf(at, "{\"id\":\"bad\",\"prompt\":%d}\n", i);
        at += sprintf(at, "{\"id\":\"r%d\",\"prompt\":\"%s%d\",\"max_tokens\":%d,\"temperature\":%s,\"seed\":%d%s}\n",
                      i, i == changed ? "changed" : "river stone light ", i, 3 + 5 * (i % 4), i % 3 == 1 ? "0.8" : "0",
                      i, extras(i));
    }
    job_fixture_write(fixture, lines);
}

static void write_input(struct job_fixture *fixture)
{
    write_input_but(fixture, 0, REQUESTS, -1);
}

static char *make_baseline(struct job_fixture *fixture)
{
    write_input(fixture);
    return job_fixture_undisturbed_export(fixture);
}

/* Stopped after every few sweeps until it is done: the same bytes, and no token is chosen twice, not of an answer
 * either that was finished while its request waited for others. */
static void test_stopped_again_and_again(void **state)
{
    struct job_fixture *fixture = *state;
    write_input(fixture);
    assert_int_equal(job_fixture_run(fixture), 0);
    long long tokens = job_fixture_last_run(fixture, "decode_tokens");
    job_fixture_start_over(fixture);
    char *baseline = make_baseline(fixture);
    long long counted = 0;
    int stops = 0, code;
    fixture->stop_at_report = 6;
    while ((code = job_fixture_run(fixture)) == NJ_INTERRUPTED) {
        stops++;
        counted += job_fixture_last_run(fixture, "decode_tokens");
        assert_int_equal(job_fixture_last_run(fixture, "exit_code"), NJ_INTERRUPTED);
        assert_in_range((uint64_t)stops, 1, 200);
    }
    assert_int_equal(code, 0);
    counted += job_fixture_last_run(fixture, "decode_tokens");
    assert_true(stops >= 5);
    assert_int_equal(counted, tokens);
    assert_int_equal(job_fixture_count_lines(fixture, "results.jsonl"), REQUESTS);
    assert_int_equal(job_fixture_count_lines(fixture, "errors.jsonl"), 1);
    job_fixture_check_export(fixture, baseline);
    free(baseline);
}

static void test_interrupted_status_and_export(void **state)
{
    struct job_fixture *fixture = *state;
    struct nj_job_status status;
    struct nj_error error;
    uint64_t missing;
    write_input(fixture);
    fixture->stop_at_report = 12;
    assert_int_equal(job_fixture_run(fixture), NJ_INTERRUPTED);
    assert_int_equal(job_status(fixture->output, &status, &error), 0);
    assert_string_equal(status.state, "interrupted");
    assert_int_equal(status.last_exit_code, NJ_INTERRUPTED);
    assert_int_equal(status.progress.requests, REQUESTS + 1);
    char *text = job_fixture_export(fixture, &missing);
    assert_int_equal(missing, REQUESTS + 1 - status.progress.requests_done);
    assert_true(missing > 0);
    free(text);
}

static void test_stopped_before_it_begins(void **state)
{
    struct job_fixture *fixture = *state;
    struct nj_job_summary summary;
    atomic_int stop = 1;
    write_input(fixture);
    assert_int_equal(job_run(&fixture->options, NULL, &stop, &summary, &fixture->error), -1);
    assert_int_equal(fixture->error.code, NJ_INTERRUPTED);
    assert_int_equal(job_fixture_run(fixture), 0);
}

static void change_file(struct job_fixture *fixture, const char *name, size_t keep, int flip_at)
{
    struct nj_error error;
    size_t length;
    char *path = temporary_path(fixture->output, name);
    char *content = file_read_whole(path, 1 << 24, &length, &error);
    assert_non_null(content);
    if (keep < length)
        length = keep;
    if (flip_at >= 0 && (size_t)flip_at < length)
        content[flip_at] ^= 1;
    temporary_write_file(path, content, length);
    free(content);
    free(path);
}

static void remove_file(struct job_fixture *fixture, const char *name)
{
    char *path = temporary_path(fixture->output, name);
    unlink(path);
    free(path);
}

static void stop_after(struct job_fixture *fixture, int reports)
{
    fixture->stop_at_report = reports;
    assert_int_equal(job_fixture_run(fixture), NJ_INTERRUPTED);
    assert_true(job_fixture_count_lines(fixture, "results.jsonl") > 0);
    fixture->stop_at_report = 0;
}

static void stop_half_way(struct job_fixture *fixture)
{
    stop_after(fixture, 20);
}

/* Whatever of the directory is damaged or lost, the answers are the same in the end. */
static void test_damaged_files(void **state)
{
    static const struct {
        const char *name;
        size_t keep;
        int flip_at;
        const char *says;
    } damages[] = {{"inflight.ckpt", SIZE_MAX, 90, "checkpoint cannot be used"},
                   {"inflight.ckpt", 40, -1, "checkpoint cannot be used"},
                   {"inflight.ckpt", 0, -1, "checkpoint cannot be used"},
                   {"results.jsonl", SIZE_MAX, 30, "results.jsonl is damaged"},
                   {"results.jsonl", 100, -1, "results.jsonl"},
                   {"results.jsonl", 0, -1, "results.jsonl is not what it was"},
                   {"errors.jsonl", 0, -1, "errors.jsonl is not what it was"},
                   {"index.bin", SIZE_MAX, 100, "index is damaged"},
                   {"status.json", 10, -1, ""},
                   {"lock", 0, -1, ""},
                   {"runs.jsonl", 40, -1, "runs.jsonl ended in a torn record"}};
    struct job_fixture *fixture = *state;
    char *baseline = make_baseline(fixture);
    for (size_t i = 0; i < sizeof damages / sizeof damages[0]; i++) {
        job_fixture_start_over(fixture);
        stop_half_way(fixture);
        change_file(fixture, damages[i].name, damages[i].keep, damages[i].flip_at);
        assert_int_equal(job_fixture_run(fixture), 0);
        if (strstr(fixture->notices, damages[i].says) == NULL)
            fail_msg("%s: %s", damages[i].name, fixture->notices);
        job_fixture_check_export(fixture, baseline);
    }
    free(baseline);
}

static void test_lost_files(void **state)
{
    static const char *const names[] = {"inflight.ckpt", "results.jsonl", "errors.jsonl", "index.bin",
                                        "status.json",   "runs.jsonl",    "lock"};
    struct job_fixture *fixture = *state;
    char *baseline = make_baseline(fixture);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        job_fixture_start_over(fixture);
        stop_half_way(fixture);
        remove_file(fixture, names[i]);
        assert_int_equal(job_fixture_run(fixture), 0);
        job_fixture_check_export(fixture, baseline);
    }
    free(baseline);
}

static void test_damaged_job_file(void **state)
{
    struct job_fixture *fixture = *state;
    write_input(fixture);
    stop_half_way(fixture);
    change_file(fixture, "job.json", 30, -1);
    assert_int_equal(job_fixture_run(fixture), NJ_BAD_DATA);
    assert_non_null(strstr(fixture->error.file, "job.json"));
}

static void test_added_lines(void **state)
{
    struct job_fixture *fixture = *state;
    char *baseline = make_baseline(fixture);
    write_input_but(fixture, 0, REQUESTS - 4, -1);
    assert_int_equal(job_fixture_run(fixture), 0);
    write_input(fixture);
    assert_int_equal(job_fixture_run(fixture), 0);
    assert_non_null(strstr(fixture->notices, "4 requests are new"));
    assert_int_equal(fixture->summary.computed_now, 4);
    job_fixture_check_export(fixture, baseline);
    free(baseline);
}

static void test_changed_and_removed_lines(void **state)
{
    struct job_fixture *fixture = *state;
    write_input(fixture);
    assert_int_equal(job_fixture_run(fixture), 0);
    char *before = job_fixture_export(fixture, NULL);
    write_input_but(fixture, 2, REQUESTS - 2, 3);
    assert_int_equal(job_fixture_run(fixture), NJ_BAD_DATA);
    assert_non_null(strstr(fixture->error.message, "1 requests changed, 2 removed"));
    assert_non_null(strstr(fixture->error.message, "in.jsonl:1 removed"));
    assert_non_null(strstr(fixture->error.message, "in.jsonl:4 changed"));
    job_fixture_check_export(fixture, before); /* nothing was touched */
    free(before);
}

/* A run that is refused for its input leaves the job as it was: its options, its status, its way on. */
static void test_refused_run_changes_nothing(void **state)
{
    struct job_fixture *fixture = *state;
    struct nj_job_status before, after;
    struct nj_error error;
    char *other = temporary_path(fixture->directory, "other.jsonl");
    const char line[] = "{\"id\": \"other\", \"prompt\": \"Something else\", \"max_tokens\": 4}\n";
    const char *const others[] = {other};
    temporary_write_file(other, line, sizeof line - 1);
    write_input(fixture);
    assert_int_equal(job_fixture_run(fixture), 0);
    char *job_before = job_fixture_read(fixture, "job.json");
    assert_int_equal(job_status(fixture->output, &before, &error), 0);

    const struct nj_job_options options = fixture->options;
    fixture->options.inputs = others;
    fixture->options.token_budget = 16;
    assert_int_equal(job_fixture_run(fixture), NJ_BAD_DATA);
    assert_non_null(strstr(fixture->error.message, "removed"));
    char *job_after = job_fixture_read(fixture, "job.json");
    assert_string_equal(job_before, job_after);
    assert_int_equal(job_status(fixture->output, &after, &error), 0);
    assert_int_equal(after.progress.requests, before.progress.requests);
    assert_int_equal(after.progress.requests_done, before.progress.requests_done);
    assert_int_equal(after.progress.requests_failed, before.progress.requests_failed);

    fixture->options = options;
    assert_int_equal(job_fixture_run(fixture), 0);
    assert_int_equal(fixture->summary.computed_now, 0);
    free(job_before);
    free(job_after);
    free(other);
}

/* A line that was bad may be repaired: its request is answered. */
static void test_repaired_line(void **state)
{
    struct job_fixture *fixture = *state;
    job_fixture_write(fixture, "{\"id\":\"a\",\"prompt\":\"river\",\"max_tokens\":2}\n{\"id\":\"b\",\"prompt\":5}\n");
    assert_int_equal(job_fixture_run(fixture), 0);
    assert_int_equal(fixture->summary.failed, 1);
    job_fixture_write(fixture, "{\"id\":\"a\",\"prompt\":\"river\",\"max_tokens\":2}\n"
                               "{\"id\":\"b\",\"prompt\":\"5\",\"max_tokens\":2}\n");
    assert_int_equal(job_fixture_run(fixture), 0);
    assert_int_equal(fixture->summary.failed, 0);
    assert_int_equal(fixture->summary.computed_now, 1);
    char *text = job_fixture_export(fixture, NULL);
    assert_null(strstr(text, "error"));
    free(text);
}

/* A larger max_tokens does not make another request; answers already there stay. */
static void test_max_tokens_may_change(void **state)
{
    struct job_fixture *fixture = *state;
    job_fixture_write(fixture, "{\"id\":\"a\",\"prompt\":\"river\",\"max_tokens\":2}\n");
    assert_int_equal(job_fixture_run(fixture), 0);
    job_fixture_write(fixture, "{\"id\":\"a\",\"prompt\":\"river\",\"max_tokens\":3}\n");
    assert_int_equal(job_fixture_run(fixture), 0);
    assert_int_equal(fixture->summary.computed_now, 0);
}

static void test_order_may_change(void **state)
{
    struct job_fixture *fixture = *state;
    static const char first[] = "{\"id\":\"a\",\"prompt\":\"river\",\"max_tokens\":9}\n";
    static const char second[] = "{\"id\":\"b\",\"prompt\":\"stone\",\"max_tokens\":9}\n";
    char lines[200];
    snprintf(lines, sizeof lines, "%s%s", first, second);
    job_fixture_write(fixture, lines);
    assert_int_equal(job_fixture_run(fixture), 0);
    snprintf(lines, sizeof lines, "%s%s", second, first);
    job_fixture_write(fixture, lines);
    assert_int_equal(job_fixture_run(fixture), 0);
    assert_int_equal(fixture->summary.computed_now, 0);
    char *text = job_fixture_export(fixture, NULL);
    assert_memory_equal(text, "{\"id\":\"b\"", 9);
    free(text);
}

static void test_another_job_is_refused(void **state)
{
    struct job_fixture *fixture = *state;
    write_input(fixture);
    assert_int_equal(job_fixture_run(fixture), 0);
    fixture->options.as_chat = true;
    assert_int_equal(job_fixture_run(fixture), NJ_BAD_DATA);
    assert_non_null(strstr(fixture->error.message, "--as-chat was not given, now given"));
    fixture->options.as_chat = false;
    fixture->options.job_time++;
    assert_int_equal(job_fixture_run(fixture), NJ_BAD_DATA);
    assert_non_null(strstr(fixture->error.message, "time"));
    fixture->options.job_time = -1;
    assert_int_equal(job_fixture_run(fixture), 0);
}

static void test_renamed_model_and_moved_output(void **state)
{
    struct job_fixture *fixture = *state;
    char *baseline = make_baseline(fixture);
    stop_half_way(fixture);
    char *model = temporary_path(fixture->directory, "renamed.gguf");
    char *output = temporary_path(fixture->directory, "moved");
    assert_int_equal(rename(fixture->model, model), 0);
    assert_int_equal(rename(fixture->output, output), 0);
    struct nj_job_options *options = job_options_read(output, &fixture->error);
    assert_non_null(options);
    options->model_path = model;
    assert_int_equal(job_run(options, NULL, NULL, NULL, &fixture->error), 0);
    job_options_free(options);
    assert_int_equal(rename(output, fixture->output), 0);
    job_fixture_check_export(fixture, baseline);
    free(output);
    free(model);
    free(baseline);
}

static void test_other_settings_same_bytes(void **state)
{
    struct job_fixture *fixture = *state;
    char *baseline = make_baseline(fixture);
    fixture->options.kernels = "reference";
    fixture->options.token_budget = 300;
    fixture->options.threads = 2;
    stop_after(fixture, 10);
    fixture->options.token_budget = 3;
    fixture->options.kernels = NULL;
    fixture->options.threads = 0;
    assert_int_equal(job_fixture_run(fixture), 0);
    job_fixture_check_export(fixture, baseline);
    free(baseline);
}

/* The input is read again in place when a request's turn comes. */
static void change_input(void *context, const struct nj_job_progress *progress)
{
    struct job_fixture *fixture = context;
    if (progress->phase != NJ_PHASE_LOAD)
        return;
    FILE *file = fopen(fixture->source, "r+");
    assert_non_null(file);
    assert_int_equal(fseek(file, 24, SEEK_SET), 0);
    fputs("R", file);
    fclose(file);
}

static void test_input_changes_while_running(void **state)
{
    struct job_fixture *fixture = *state;
    write_input(fixture);
    struct nj_job_callbacks callbacks = {.context = fixture, .progress = change_input};
    assert_int_equal(job_run(&fixture->options, &callbacks, NULL, NULL, &fixture->error), -1);
    assert_int_equal(fixture->error.code, NJ_BAD_DATA);
    assert_non_null(strstr(fixture->error.message, "changed while the job runs"));
    assert_int_equal(fixture->error.line, 1);
    write_input(fixture);
    assert_int_equal(job_fixture_run(fixture), 0);
}

static void test_directory_in_use(void **state)
{
    struct job_fixture *fixture = *state;
    struct nj_job_status status;
    write_input(fixture);
    stop_half_way(fixture);
    struct nj_lock *lock = lock_take(fixture->output, NULL, &fixture->error);
    assert_non_null(lock);
    assert_int_equal(job_status(fixture->output, &status, &fixture->error), 0);
    assert_true(status.running);
    assert_string_equal(status.state, "running");
    assert_int_equal(job_fixture_run(fixture), NJ_CANT_CREATE);
    assert_non_null(strstr(fixture->error.message, status.holder));
    lock_release(lock);
    assert_int_equal(job_fixture_run(fixture), 0);
}

static void write_lines(struct job_fixture *fixture, const char *const lines[4])
{
    char text[1024];
    snprintf(text, sizeof text, "%s%s%s%s", lines[0], lines[1], lines[2], lines[3]);
    job_fixture_write(fixture, text);
}

/* A bad line that stands elsewhere gets a new record, so that the export is that of a new job. */
static void test_bad_lines_that_moved(void **state)
{
    static const char good[] = "{\"id\":\"a\",\"prompt\":\"river\",\"max_tokens\":2}\n",
                      longer[] = "{\"id\":\"a\",  \"prompt\":\"river\",\"max_tokens\":2}\n",
                      typo[] = "{\"id\":\"b\",\"prompt\":5}\n", null[] = "null\n",
                      twice[] = "{\"id\":\"a\",\"prompt\":\"stone\",\"max_tokens\":2}\n";
    const char *const inputs[][4] = {
        {good, typo, null, twice}, {longer, typo, null, twice}, {null, good, typo, twice}, {good, typo, null, twice}};
    struct job_fixture *fixture = *state;
    char *expected[4];
    for (int i = 0; i < 4; i++) {
        write_lines(fixture, inputs[i]);
        assert_int_equal(job_fixture_run(fixture), 0);
        expected[i] = job_fixture_export(fixture, NULL);
        job_fixture_start_over(fixture);
    }
    assert_string_equal(expected[0], expected[3]);
    for (int i = 0; i < 4; i++) {
        for (int again = 0; again < 2; again++) {
            write_lines(fixture, inputs[i]);
            assert_int_equal(job_fixture_run(fixture), 0);
            assert_int_equal(fixture->summary.failed, 3);
            assert_int_equal(fixture->summary.computed_now, i == 0 && again == 0);
            assert_int_equal(job_fixture_last_run(fixture, "finished_requests") > 0, again == 0);
            job_fixture_check_export(fixture, expected[i]);
        }
        free(expected[i]);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, job_fixture_set_up, job_fixture_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_stopped_again_and_again),
        TEST(test_interrupted_status_and_export),
        TEST(test_stopped_before_it_begins),
        TEST(test_damaged_files),
        TEST(test_lost_files),
        TEST(test_damaged_job_file),
        TEST(test_added_lines),
        TEST(test_changed_and_removed_lines),
        TEST(test_refused_run_changes_nothing),
        TEST(test_repaired_line),
        TEST(test_max_tokens_may_change),
        TEST(test_order_may_change),
        TEST(test_bad_lines_that_moved),
        TEST(test_another_job_is_refused),
        TEST(test_renamed_model_and_moved_output),
        TEST(test_other_settings_same_bytes),
        TEST(test_input_changes_while_running),
        TEST(test_directory_in_use),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
