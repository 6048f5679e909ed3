#include "tests/pipeline/job_fixture.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/file.h"
#include "tests/pipeline/cmocka_headers.h"
#include "tests/support/temporary_directory.h"
#include "tests/synthetic/synthetic_model.h"

int job_fixture_set_up(void **state)
{
    struct job_fixture *fixture = calloc(1, sizeof *fixture);
    struct nj_synthetic_shape shape = synthetic_shape_small();
    if (fixture == NULL)
        return -1;
    shape.context = 256;
    fixture->directory = temporary_directory_create();
    fixture->model = temporary_path(fixture->directory, "small.gguf");
    fixture->cache = temporary_path(fixture->directory, "cache");
    fixture->source = temporary_path(fixture->directory, "in.jsonl");
    fixture->output = temporary_path(fixture->directory, "out");
    fixture->options = (struct nj_job_options){.model_path = fixture->model,
                                               .inputs = (const char *const *)&fixture->source,
                                               .input_count = 1,
                                               .output_directory = fixture->output,
                                               .job_time = FIXTURE_JOB_TIME,
                                               .threads = 1,
                                               .token_budget = 8,
                                               .cache_directory = fixture->cache};
    *state = fixture;
    return synthetic_model_write(&shape, NJ_TEST_DATA "/synthetic", NULL, fixture->model, &fixture->error);
}

int job_fixture_tear_down(void **state)
{
    struct job_fixture *fixture = *state;
    free(fixture->model);
    free(fixture->cache);
    free(fixture->source);
    free(fixture->output);
    temporary_directory_remove(fixture->directory);
    free(fixture);
    return 0;
}

void job_fixture_write(struct job_fixture *fixture, const char *lines)
{
    temporary_write_file(fixture->source, lines, strlen(lines));
}

static void take_progress(void *context, const struct nj_job_progress *progress)
{
    struct job_fixture *fixture = context;
    fixture->progress = *progress;
    if (progress->phase < NJ_PHASE_COMPUTE)
        return;
    double fraction = progress->work_total > 0 ? progress->work_done / progress->work_total : 1;
    if (fraction < fixture->last_fraction - 1e-12)
        fail_msg("progress went back from %g to %g", fixture->last_fraction, fraction);
    fixture->last_fraction = fraction;
    if (++fixture->reports == fixture->stop_at_report)
        atomic_store(&fixture->stop, 1);
}

static void take_notice(void *context, const char *line)
{
    struct job_fixture *fixture = context;
    size_t length = strlen(fixture->notices);
    snprintf(fixture->notices + length, sizeof fixture->notices - length, "%s\n", line);
}

int job_fixture_run(struct job_fixture *fixture)
{
    struct nj_job_callbacks callbacks = {.context = fixture, .progress = take_progress, .notice = take_notice};
    fixture->notices[0] = '\0';
    fixture->reports = 0;
    fixture->last_fraction = 0;
    atomic_store(&fixture->stop, 0);
    fixture->error = (struct nj_error){0};
    int result = job_run(&fixture->options, &callbacks, &fixture->stop, &fixture->summary, &fixture->error);
    if (result != 0)
        assert_int_not_equal(fixture->error.code, NJ_OK);
    return result == 0 ? 0 : (int)fixture->error.code;
}

char *job_fixture_export(struct job_fixture *fixture, uint64_t *missing)
{
    struct nj_error error;
    uint64_t count = 0;
    size_t length;
    char *path = temporary_path(fixture->directory, "export");
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0);
    int result = job_export(fixture->output, fd, &count, &error);
    close(fd);
    if (result != 0 && missing == NULL)
        fail_msg("%s", error.message);
    if (missing != NULL)
        *missing = count;
    char *text = file_read_whole(path, 1 << 24, &length, &error);
    assert_non_null(text);
    free(path);
    return text;
}

char *job_fixture_read(const struct job_fixture *fixture, const char *name)
{
    size_t length;
    char *path = temporary_path(fixture->output, name);
    char *text = access(path, F_OK) == 0 ? file_read_whole(path, 1 << 24, &length, NULL) : NULL;
    free(path);
    return text;
}

int job_fixture_count_lines(const struct job_fixture *fixture, const char *name)
{
    int lines = 0;
    char *text = job_fixture_read(fixture, name);
    for (const char *at = text; at != NULL && *at != '\0'; at++)
        lines += *at == '\n';
    free(text);
    return lines;
}

long long job_fixture_last_run(const struct job_fixture *fixture, const char *name)
{
    char key[64];
    snprintf(key, sizeof key, "\"%s\":", name);
    char *text = job_fixture_read(fixture, "runs.jsonl");
    assert_non_null(text);
    text[strlen(text) - 1] = '\0';
    const char *last = strrchr(text, '\n');
    const char *found = strstr(last == NULL ? text : last, key);
    assert_non_null(found);
    long long number = atoll(found + strlen(key));
    free(text);
    return number;
}

void job_fixture_start_over(struct job_fixture *fixture)
{
    temporary_remove_tree(fixture->output);
}

char *job_fixture_undisturbed_export(struct job_fixture *fixture)
{
    assert_int_equal(job_fixture_run(fixture), 0);
    char *text = job_fixture_export(fixture, NULL);
    job_fixture_start_over(fixture);
    return text;
}

void job_fixture_check_export(struct job_fixture *fixture, const char *expected)
{
    char *text = job_fixture_export(fixture, NULL);
    assert_string_equal(text, expected);
    free(text);
}
