/* What others may know of a job without opening its model: job_status, job_options_read. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pipeline/job/job_file.h"
#include "pipeline/job/status_file.h"
#include "pipeline/output/lock.h"

static int fail_no_job(const char *directory, struct nj_error *error)
{
    error_set(error, NJ_NO_INPUT, "there is no nightjar job in this directory");
    return error_at(error, directory, 0, -1);
}

/* What job_options_read returns is the first member of this. */
struct stored_options {
    struct nj_job_options options;
    struct nj_job_file file;
    char *directory;
};

struct nj_job_options *job_options_read(const char *output_directory, struct nj_error *error)
{
    struct stored_options *stored = calloc(1, sizeof *stored);
    if (stored == NULL) {
        error_set(error, NJ_INTERNAL, "out of memory");
        return NULL;
    }
    int found = job_file_read(output_directory, &stored->file, error);
    if (found == 0)
        fail_no_job(output_directory, error);
    stored->directory = found > 0 ? strdup(output_directory) : NULL;
    if (found > 0 && stored->directory == NULL)
        error_set(error, NJ_INTERNAL, "out of memory");
    if (stored->directory == NULL) {
        job_options_free(&stored->options);
        return NULL;
    }
    stored->options = stored->file.options;
    stored->options.output_directory = stored->directory; /* the job may have been moved */
    return &stored->options;
}

void job_options_free(struct nj_job_options *options)
{
    struct stored_options *stored = (struct stored_options *)(void *)options;
    if (stored == NULL)
        return;
    job_file_free(&stored->file);
    free(stored->directory);
    free(stored);
}

int job_status(const char *output_directory, struct nj_job_status *out, struct nj_error *error)
{
    struct nj_job_file file;
    *out = (struct nj_job_status){.state = "interrupted",
                                  .last_exit_code = NJ_INTERRUPTED,
                                  .progress = {.least_left_seconds = -1, .most_left_seconds = -1}};
    int found = job_file_read(output_directory, &file, error);
    if (found <= 0)
        return found < 0 ? -1 : fail_no_job(output_directory, error);
    job_file_free(&file);
    int held = lock_find_holder(output_directory, out->holder, sizeof out->holder, error);
    if (held < 0)
        return -1;
    status_file_read(output_directory, out);
    out->running = held > 0;
    if (out->running) {
        snprintf(out->state, sizeof out->state, "running");
    } else if (strcmp(out->state, "running") == 0) {
        /* Nobody holds it and the last word was "running": it was killed. */
        snprintf(out->state, sizeof out->state, "interrupted");
        out->last_exit_code = NJ_INTERRUPTED;
    }
    return 0;
}
