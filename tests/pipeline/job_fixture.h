/* A folder with a small synthetic model, input files and jobs over them. */
#ifndef NJ_TESTS_PIPELINE_JOB_FIXTURE_H
#define NJ_TESTS_PIPELINE_JOB_FIXTURE_H

#include <stdatomic.h>
#include <stdbool.h>

#include "pipeline/job/job.h"

enum { FIXTURE_TEXT_BYTES = 8192, FIXTURE_JOB_TIME = 1769896800 };

struct job_fixture {
    char *directory, *model, *cache, *source, *output;
    struct nj_job_options options; /* input: source; output: output; one thread */
    /* What the last run said. */
    struct nj_job_summary summary;
    struct nj_error error;
    struct nj_job_progress progress;
    char notices[FIXTURE_TEXT_BYTES]; /* each with a newline */
    double last_fraction;
    /* Stops the next runs: 0 never, n: at the n-th progress report of the computing phase. */
    int stop_at_report, reports;
    atomic_int stop;
};

/* cmocka set-up and tear-down; *state is the fixture. */
int job_fixture_set_up(void **state);
int job_fixture_tear_down(void **state);

/* Replaces the input file. */
void job_fixture_write(struct job_fixture *fixture, const char *lines);

/* Runs the job: 0 or the error's code. */
int job_fixture_run(struct job_fixture *fixture);

/* The export; the caller frees it. Fails the test if records are missing, unless `missing` is given. */
char *job_fixture_export(struct job_fixture *fixture, uint64_t *missing);

/* A file of the output directory as text (NULL: there is none); the caller frees it. */
char *job_fixture_read(const struct job_fixture *fixture, const char *name);
/* Lines of a file of the output directory. */
int job_fixture_count_lines(const struct job_fixture *fixture, const char *name);
/* The number behind "NAME": in the last line of runs.jsonl. */
long long job_fixture_last_run(const struct job_fixture *fixture, const char *name);

/* Forgets the output directory. */
void job_fixture_start_over(struct job_fixture *fixture);

/* The export of a job that reads this input once and is not disturbed; leaves no output behind. The caller frees it. */
char *job_fixture_undisturbed_export(struct job_fixture *fixture);
void job_fixture_check_export(struct job_fixture *fixture, const char *expected);

#endif
