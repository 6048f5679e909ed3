/* Requests that are answered again: because the input has changed, or because someone asks for it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/file.h"
#include "pipeline/output/record.h"
#include "pipeline/output/record_log.h"
#include "tests/pipeline/cmocka_headers.h"
#include "tests/pipeline/job_fixture.h"
#include "tests/support/temporary_directory.h"

enum { REQUESTS = 10, MOST_RUNS = 200 };

/* A bad line (in front, so that its place does not change), then requests `first` to 9; `more` makes the answers
 * longer; `changed` has another prompt. */
static void write_input(struct job_fixture *fixture, int first, int more, int changed)
{
    char lines[4096], *at = lines;
    at += sprintf(at, "{\"id\":\"bad\",\"prompt\":5}\n");
    for (int i = first; i < REQUESTS; i++)
        at +=
            sprintf(at, "{\"id\":\"r%d\",\"prompt\":\"%s%d\",\"max_tokens\":%d,\"temperature\":%s,\"seed\":%d}\n", i,
                    i == changed ? "another " : "river stone light ", i, 3 + i % 4 + more, i % 3 == 1 ? "0.8" : "0", i);
    job_fixture_write(fixture, lines);
}

static int count_of(const struct job_fixture *fixture, const char *name, const char *what)
{
    int count = 0;
    char *text = job_fixture_read(fixture, name);
    for (const char *at = text; at != NULL && (at = strstr(at, what)) != NULL; at += strlen(what))
        count++;
    free(text);
    return count;
}

static bool is_there(const struct job_fixture *fixture, const char *name)
{
    char *path = temporary_path(fixture->output, name);
    bool there = access(path, F_OK) == 0;
    free(path);
    return there;
}

static void test_accepted_changes(void **state)
{
    struct job_fixture *fixture = *state;
    write_input(fixture, 2, 0, 3);
    char *expected = job_fixture_undisturbed_export(fixture);
    write_input(fixture, 0, 0, -1);
    assert_int_equal(job_fixture_run(fixture), 0);
    char *before = job_fixture_read(fixture, "results.jsonl");
    write_input(fixture, 2, 0, 3);
    assert_int_equal(job_fixture_run(fixture), NJ_BAD_DATA);
    assert_non_null(strstr(fixture->error.message, "--accept changed,removed"));
    fixture->options.accept = NJ_ACCEPT_REMOVED;
    assert_int_equal(job_fixture_run(fixture), NJ_BAD_DATA);
    assert_non_null(strstr(fixture->error.message, "--accept changed to"));
    assert_null(strstr(fixture->error.message, "in.jsonl:2 removed"));
    assert_non_null(strstr(fixture->error.message, "in.jsonl:5 changed"));

    fixture->options.accept = NJ_ACCEPT_REMOVED | NJ_ACCEPT_CHANGED;
    assert_int_equal(job_fixture_run(fixture), 0);
    assert_non_null(strstr(fixture->notices, "1 requests have changed"));
    assert_non_null(strstr(fixture->notices, "2 requests are gone"));
    assert_null(strstr(fixture->notices, "new in the input"));
    assert_int_equal(fixture->summary.computed_now, 1);
    job_fixture_check_export(fixture, expected);
    assert_int_equal(count_of(fixture, "results.jsonl", "\"attempt\":2"), 1);
    char *after = job_fixture_read(fixture, "results.jsonl");
    assert_memory_equal(after, before, strlen(before)); /* nothing is overwritten */

    fixture->options.accept = 0;
    assert_int_equal(job_fixture_run(fixture), 0);
    assert_int_equal(fixture->summary.computed_now, 0);
    free(after);
    free(before);
    free(expected);
}

/* A request that becomes a bad line has changed; repaired, it is answered as before. */
static void test_accepted_change_to_a_bad_line(void **state)
{
    struct job_fixture *fixture = *state;
    job_fixture_write(fixture, "{\"id\":\"a\",\"prompt\":\"river\",\"max_tokens\":2}\n"
                               "{\"id\":\"b\",\"prompt\":\"stone\",\"max_tokens\":2}\n");
    assert_int_equal(job_fixture_run(fixture), 0);
    char *expected = job_fixture_export(fixture, NULL);
    job_fixture_write(fixture, "{\"id\":\"a\",\"prompt\":\"river\",\"max_tokens\":2}\n{\"id\":\"b\",\"prompt\":5}\n");
    fixture->options.accept = NJ_ACCEPT_CHANGED;
    assert_int_equal(job_fixture_run(fixture), 0);
    assert_null(strstr(fixture->notices, "new in the input"));
    assert_int_equal(fixture->summary.failed, 1);
    job_fixture_write(fixture, "{\"id\":\"a\",\"prompt\":\"river\",\"max_tokens\":2}\n"
                               "{\"id\":\"b\",\"prompt\":\"stone\",\"max_tokens\":2}\n");
    assert_int_equal(job_fixture_run(fixture), 0);
    assert_int_equal(fixture->summary.computed_now, 0);
    job_fixture_check_export(fixture, expected);
    free(expected);
}

/* A larger max_tokens makes no other request; --retry length makes use of it. */
static void test_retry_length(void **state)
{
    struct job_fixture *fixture = *state;
    write_input(fixture, 0, 6, -1);
    char *longer = job_fixture_undisturbed_export(fixture);
    write_input(fixture, 0, 0, -1);
    assert_int_equal(job_fixture_run(fixture), 0);
    char *shorter = job_fixture_export(fixture, NULL);
    int cut = count_of(fixture, "results.jsonl", "\"finish_reason\":\"length\"");
    assert_in_range((unsigned)cut, 1, REQUESTS);
    write_input(fixture, 0, 6, -1);
    assert_int_equal(job_fixture_run(fixture), 0);
    job_fixture_check_export(fixture, shorter);

    fixture->options.retry = NJ_RETRY_LENGTH;
    assert_int_equal(job_fixture_run(fixture), 0);
    assert_non_null(strstr(fixture->notices, "answered again"));
    assert_int_equal(fixture->summary.computed_now, cut);
    assert_int_equal(count_of(fixture, "results.jsonl", "\"attempt\":2"), cut);
    assert_int_equal(count_of(fixture, "results.jsonl", "\"attempt\":1"), REQUESTS);
    assert_false(is_there(fixture, "retry.bin"));
    job_fixture_check_export(fixture, longer);

    fixture->options.retry = 0;
    assert_int_equal(job_fixture_run(fixture), 0);
    assert_int_equal(fixture->summary.computed_now, 0);
    free(shorter);
    free(longer);
}

/* Stopped every few sweeps: what is left goes on, asked for again (`repeats`: the same command each time) or not, and
 * each request is answered exactly once more. */
static void retry_with_stops(struct job_fixture *fixture, bool repeats)
{
    int stops = 0, code;
    write_input(fixture, 0, 6, -1);
    char *longer = job_fixture_undisturbed_export(fixture);
    write_input(fixture, 0, 0, -1);
    assert_int_equal(job_fixture_run(fixture), 0);
    int cut = count_of(fixture, "results.jsonl", "\"finish_reason\":\"length\"");
    write_input(fixture, 0, 6, -1);
    fixture->options.retry = NJ_RETRY_LENGTH;
    fixture->stop_at_report = 4;
    while ((code = job_fixture_run(fixture)) == NJ_INTERRUPTED) {
        assert_true(is_there(fixture, "retry.bin"));
        if (!repeats)
            fixture->options.retry = 0;
        assert_in_range(++stops, 1, MOST_RUNS);
    }
    assert_int_equal(code, 0);
    assert_true(stops >= 3);
    assert_int_equal(count_of(fixture, "results.jsonl", "\"attempt\":2"), cut);
    assert_int_equal(count_of(fixture, "results.jsonl", "\"attempt\":3"), 0);
    assert_false(is_there(fixture, "retry.bin"));
    job_fixture_check_export(fixture, longer);
    free(longer);
}

static void test_retry_goes_on(void **state)
{
    retry_with_stops(*state, false);
}

static void test_retry_goes_on_by_the_same_command(void **state)
{
    retry_with_stops(*state, true);
}

static void write_ids(const struct job_fixture *fixture, const char *ids)
{
    temporary_write_file(fixture->options.retry_ids_path, ids, strlen(ids));
}

static void test_retry_ids(void **state)
{
    struct job_fixture *fixture = *state;
    write_input(fixture, 0, 0, -1);
    assert_int_equal(job_fixture_run(fixture), 0);
    char *expected = job_fixture_export(fixture, NULL);
    char *path = temporary_path(fixture->directory, "ids.txt");
    fixture->options.retry_ids_path = path;
    fixture->options.retry = NJ_RETRY_IDS;
    write_ids(fixture, "r3\n\nr99\r\nr4\nnobody\n");
    assert_int_equal(job_fixture_run(fixture), NJ_BAD_DATA);
    assert_non_null(strstr(fixture->error.message, "2 ids to retry are in no line of the input (\"r99\", \"nobody\")"));
    assert_int_equal(fixture->error.line, 3);
    assert_false(is_there(fixture, "retry.bin"));
    job_fixture_check_export(fixture, expected);

    write_ids(fixture, "\xEF\xBB\xBFr3\r\nr4\r\nr4\r\nbad");
    assert_int_equal(job_fixture_run(fixture), 0);
    assert_non_null(strstr(fixture->notices, "1 of the ids to retry name bad lines"));
    assert_int_equal(fixture->summary.computed_now, 2);
    assert_int_equal(count_of(fixture, "results.jsonl", "\"attempt\":2"), 2);
    job_fixture_check_export(fixture, expected);

    /* Once it is done, the same command is another wish. */
    assert_int_equal(job_fixture_run(fixture), 0);
    assert_int_equal(count_of(fixture, "results.jsonl", "\"attempt\":3"), 2);
    job_fixture_check_export(fixture, expected);

    assert_int_equal(unlink(path), 0);
    assert_int_equal(job_fixture_run(fixture), NJ_NO_INPUT);
    free(path);
    free(expected);
}

/* A run that is refused for an unknown id accepts nothing. */
static void test_unknown_id_accepts_nothing(void **state)
{
    struct job_fixture *fixture = *state;
    write_input(fixture, 0, 0, -1);
    assert_int_equal(job_fixture_run(fixture), 0);
    char *expected = job_fixture_export(fixture, NULL), *job = job_fixture_read(fixture, "job.json");
    char *path = temporary_path(fixture->directory, "ids.txt");
    write_input(fixture, 2, 0, 3);
    fixture->options.accept = NJ_ACCEPT_CHANGED | NJ_ACCEPT_REMOVED;
    fixture->options.retry_ids_path = path;
    fixture->options.retry = NJ_RETRY_IDS;
    write_ids(fixture, "r3\nr0\n");
    assert_int_equal(job_fixture_run(fixture), NJ_BAD_DATA);
    assert_non_null(strstr(fixture->error.message, "1 ids to retry are in no line of the input (\"r0\")"));
    assert_null(strstr(fixture->notices, "have changed in the input"));
    char *after = job_fixture_read(fixture, "job.json");
    assert_string_equal(after, job);
    job_fixture_check_export(fixture, expected);

    fixture->options.accept = 0;
    fixture->options.retry = 0;
    assert_int_equal(job_fixture_run(fixture), NJ_BAD_DATA);
    assert_non_null(strstr(fixture->error.message, "1 requests changed, 2 removed"));
    free(after);
    free(path);
    free(job);
    free(expected);
}

/* Ids of a retry that is under way may leave the input. */
static void test_ids_removed_from_the_input(void **state)
{
    struct job_fixture *fixture = *state;
    write_input(fixture, 2, 0, -1);
    char *expected = job_fixture_undisturbed_export(fixture);
    write_input(fixture, 0, 0, -1);
    assert_int_equal(job_fixture_run(fixture), 0);
    char *path = temporary_path(fixture->directory, "ids.txt");
    fixture->options.retry_ids_path = path;
    fixture->options.retry = NJ_RETRY_IDS;
    write_ids(fixture, "r0\nr1\nr8\n");
    fixture->stop_at_report = 2;
    assert_int_equal(job_fixture_run(fixture), NJ_INTERRUPTED);
    fixture->stop_at_report = 0;
    fixture->options.accept = NJ_ACCEPT_REMOVED;
    write_input(fixture, 2, 0, -1);
    assert_int_equal(job_fixture_run(fixture), 0);
    assert_non_null(strstr(fixture->notices, "1 requests are left to be answered again"));
    job_fixture_check_export(fixture, expected);
    free(path);
    free(expected);
}

/* A retry that --first answers wholly is done, although the job is not. */
static void test_retry_ends_with_first(void **state)
{
    struct job_fixture *fixture = *state;
    write_input(fixture, 0, 0, -1);
    char *expected = job_fixture_undisturbed_export(fixture);
    char *path = temporary_path(fixture->directory, "ids.txt");
    fixture->options.first = 2;
    assert_int_equal(job_fixture_run(fixture), NJ_INTERRUPTED);
    fixture->options.retry_ids_path = path;
    fixture->options.retry = NJ_RETRY_IDS;
    write_ids(fixture, "r0\n");
    for (int attempt = 2; attempt <= 3; attempt++) {
        assert_int_equal(job_fixture_run(fixture), NJ_INTERRUPTED);
        assert_non_null(strstr(fixture->notices, "1 requests are answered again"));
        assert_int_equal(fixture->summary.computed_now, 1);
        assert_false(is_there(fixture, "retry.bin"));
    }
    assert_int_equal(count_of(fixture, "results.jsonl", "\"attempt\":3"), 1);

    write_ids(fixture, "r0\nr5\n"); /* r5 has not been answered at all, and is not left to be answered again */
    assert_int_equal(job_fixture_run(fixture), NJ_INTERRUPTED);
    assert_false(is_there(fixture, "retry.bin"));
    fixture->options.first = 0;
    fixture->options.retry = NJ_RETRY_LENGTH;
    assert_int_equal(job_fixture_run(fixture), 0);
    assert_non_null(strstr(fixture->notices, "requests are answered again"));
    job_fixture_check_export(fixture, expected);

    /* What --first leaves out stays noted. */
    fixture->options.first = 2;
    fixture->options.retry = NJ_RETRY_IDS;
    assert_int_equal(job_fixture_run(fixture), NJ_INTERRUPTED);
    assert_true(is_there(fixture, "retry.bin"));
    fixture->options.first = 0;
    assert_int_equal(job_fixture_run(fixture), 0);
    assert_non_null(strstr(fixture->notices, "1 requests are left to be answered again"));
    assert_false(is_there(fixture, "retry.bin"));
    job_fixture_check_export(fixture, expected);
    free(path);
    free(expected);
}

/* Ended when all was answered and the list not yet removed: the same command does not begin it anew, and says so. */
static void test_retry_that_was_done_is_told(void **state)
{
    struct job_fixture *fixture = *state;
    write_input(fixture, 0, 0, -1);
    assert_int_equal(job_fixture_run(fixture), 0);
    char *list = temporary_path(fixture->output, "retry.bin"), *kept = temporary_path(fixture->directory, "kept.bin");
    fixture->options.retry = NJ_RETRY_LENGTH;
    fixture->stop_at_report = 2;
    assert_int_equal(job_fixture_run(fixture), NJ_INTERRUPTED);
    assert_int_equal(link(list, kept), 0);
    fixture->stop_at_report = 0;
    assert_int_equal(job_fixture_run(fixture), 0);
    assert_int_equal(rename(kept, list), 0);
    assert_int_equal(job_fixture_run(fixture), 0);
    assert_non_null(strstr(fixture->notices, "what --retry asks for was done by the last run"));
    assert_int_equal(fixture->summary.computed_now, 0);
    assert_false(is_there(fixture, "retry.bin"));
    assert_int_equal(job_fixture_run(fixture), 0);
    assert_null(strstr(fixture->notices, "was done by the last run"));
    assert_true(fixture->summary.computed_now > 0);
    free(list);
    free(kept);
}

/* As if the model had failed at a later attempt. */
static void add_error_record(struct job_fixture *fixture, const char *id)
{
    char needle[32];
    struct nj_error error;
    struct nj_record_key key;
    snprintf(needle, sizeof needle, "{\"id\":\"%s\"", id);
    char *results = job_fixture_read(fixture, "results.jsonl");
    const char *line = strstr(results, needle);
    assert_non_null(line);
    assert_int_equal(record_read_key(line, strcspn(line, "\n"), &key), 0);
    struct nj_record_context context = {.model_name = "small"};
    struct nj_record_subject subject = {.id = id, .shape = NJ_SHAPE_PLAIN, .digest = key.digest, .attempt = 2};
    struct nj_problem problem;
    problem_set(&problem, "non_finite", "not finite");
    char *record = record_make_error(&context, &subject, &problem, NULL, &error);
    assert_non_null(record);
    struct nj_log_options options = {.directory = fixture->output, .name = "errors"};
    struct nj_record_log *log = record_log_open(&options, &error);
    assert_non_null(log);
    assert_int_equal(record_log_append(log, record, &error), 0);
    assert_int_equal(record_log_sync(log, &error), 0);
    record_log_close(log);
    free(record);
    free(results);
}

static void test_retry_errors(void **state)
{
    struct job_fixture *fixture = *state;
    write_input(fixture, 0, 0, -1);
    assert_int_equal(job_fixture_run(fixture), 0);
    char *expected = job_fixture_export(fixture, NULL);
    add_error_record(fixture, "r7");
    assert_int_equal(job_fixture_run(fixture), 0);
    assert_int_equal(fixture->summary.failed, 2); /* the bad line, and the latest word on r7 */
    char *text = job_fixture_export(fixture, NULL);
    assert_non_null(strstr(text, "non_finite"));
    free(text);

    fixture->options.retry = NJ_RETRY_ERRORS;
    assert_int_equal(job_fixture_run(fixture), 0);
    assert_int_equal(fixture->summary.computed_now, 1);
    assert_int_equal(fixture->summary.failed, 1);
    assert_int_equal(count_of(fixture, "results.jsonl", "\"attempt\":3"), 1);
    assert_int_equal(job_fixture_count_lines(fixture, "errors.jsonl"), 2); /* no second record of the bad line */
    job_fixture_check_export(fixture, expected);
    free(expected);
}

static void test_damaged_list(void **state)
{
    struct job_fixture *fixture = *state;
    write_input(fixture, 0, 0, -1);
    assert_int_equal(job_fixture_run(fixture), 0);
    char *expected = job_fixture_export(fixture, NULL);
    fixture->options.retry = NJ_RETRY_LENGTH;
    fixture->stop_at_report = 3;
    assert_int_equal(job_fixture_run(fixture), NJ_INTERRUPTED);
    char *path = temporary_path(fixture->output, "retry.bin");
    temporary_write_file(path, "NJRETRY", 7);
    fixture->options.retry = 0;
    fixture->stop_at_report = 0;
    assert_int_equal(job_fixture_run(fixture), 0);
    assert_non_null(strstr(fixture->notices, "list of requests to retry is damaged"));
    assert_false(is_there(fixture, "retry.bin"));
    job_fixture_check_export(fixture, expected);
    free(path);
    free(expected);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, job_fixture_set_up, job_fixture_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_accepted_changes),
        TEST(test_accepted_change_to_a_bad_line),
        TEST(test_retry_length),
        TEST(test_retry_goes_on),
        TEST(test_retry_goes_on_by_the_same_command),
        TEST(test_retry_ids),
        TEST(test_unknown_id_accepts_nothing),
        TEST(test_ids_removed_from_the_input),
        TEST(test_retry_ends_with_first),
        TEST(test_retry_that_was_done_is_told),
        TEST(test_retry_errors),
        TEST(test_damaged_list),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
