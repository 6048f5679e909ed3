#include "pipeline/job/job.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "pipeline/job/job_state.h"
#include "pipeline/output/output.h"

double job_clock(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

void job_say(const struct nj_job *job, const char *format, ...)
{
    if (job->callbacks == NULL || job->callbacks->notice == NULL)
        return;
    char line[1200];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    job->callbacks->notice(job->callbacks->context, line);
}

bool job_must_stop(const struct nj_job *job)
{
    return job->stop != NULL && atomic_load(job->stop) != 0;
}

/* Only --first ends before all requests have a record without having been stopped; the retry may have come to its end
 * with it. If its list cannot be removed, the next run does it. */
static void end_first(const struct nj_job *job, const struct nj_error *error)
{
    struct nj_error ending;
    if (error->code == NJ_INTERRUPTED && !job_must_stop(job) && job->index != NULL && job_retries_left(job) == 0)
        job_end_retry(job, &ending);
}

static int compute_and_save(struct nj_job *job, struct nj_error *error)
{
    int result = job_read_input(job, error);
    if (result == 0)
        result = job_compute(job, error);
    /* Whatever happened, what there is must be saved; the first error is the one to report. */
    struct nj_error saving = {0};
    if (job_save_all(job, &saving) != 0 && (result == 0 || error->code == NJ_INTERRUPTED)) {
        *error = saving;
        result = -1;
    }
    if (result == 0)
        return job_end_retry(job, error);
    end_first(job, error);
    return result;
}

/* Gives the reserve back and tells the files how the run ended. */
static int close_run(struct nj_job *job, int result, struct nj_error *error)
{
    int code = result != 0 ? (int)error->code : job->progress.requests_failed > 0 ? NJ_SOME_FAILED : NJ_OK;
    const char *state = result == 0 ? "finished" : code == NJ_INTERRUPTED ? "interrupted" : "failed";
    struct nj_error closing = {0};
    if (result == 0)
        job->progress.phase = NJ_PHASE_DONE;
    job_report(job);
    output_give_up_reserve(job->directory); /* all is saved; on a full disk the last words need the room */
    int failed = job_write_status(job, state, code, &closing);
    job->counts.max_memory_bytes = job->options->max_memory_bytes;
    job->counts.peak_memory_bytes = job->progress.peak_memory_bytes;
    if (failed == 0 && job->runs != NULL)
        failed = runs_append_stop(job->runs, &job->counts, job_clock() - job->start_seconds, code, &closing);
    if (result != 0 || failed == 0)
        return result;
    *error = closing;
    return -1;
}

static void fill_summary(const struct nj_job *job, struct nj_job_summary *summary)
{
    if (summary == NULL)
        return;
    *summary = (struct nj_job_summary){.requests = job->progress.requests,
                                       .answered = job->progress.requests_done - job->progress.requests_failed,
                                       .failed = job->progress.requests_failed,
                                       .computed_now = job->computed_now,
                                       .prompt_tokens = job->prompt_tokens,
                                       .new_tokens = job->new_tokens,
                                       .prefill_tokens = job->counts.prefill_tokens,
                                       .shared_tokens = job->counts.shared_tokens,
                                       .seconds = job_clock() - job->start_seconds};
}

static void free_strings(struct nj_job *job)
{
    for (size_t i = 0; job->inputs != NULL && i < job->options->input_count; i++)
        free(job->inputs[i]);
    free(job->inputs);
    free(job->model_name);
    free(job->model_path);
    free(job->directory);
}

static void close_job(struct nj_job *job)
{
    scheduler_destroy(job->scheduler);
    job_flights_free(job);
    examined_free(&job->pulled);
    order_free(&job->order);
    index_destroy(job->index);
    record_log_close(job->results);
    record_log_close(job->errors);
    record_log_close(job->runs);
    free(job->retry_ids);
    free(job->resumptions);
    checkpoint_free(&job->checkpoint);
    examiner_free(&job->examiner);
    prompt_encoder_destroy(job->examiner.encoder);
    model_close(job->model);
    device_close(job->device);
    input_close(job->input);
    job_file_free(&job->stored);
    lock_release(job->lock);
    free_strings(job);
}

static void advise(struct nj_error *error)
{
    if (error->code != NJ_IO_FAILED)
        return;
    char message[sizeof error->message];
    snprintf(message, sizeof message, "%.900s; what was finished is kept, run the same command again to go on",
             error->message);
    memcpy(error->message, message, sizeof message);
}

int job_run(const struct nj_job_options *options, const struct nj_job_callbacks *callbacks, const atomic_int *stop,
            struct nj_job_summary *summary, struct nj_error *error)
{
    struct nj_error unused;
    struct nj_job job = {.options = options,
                         .callbacks = callbacks,
                         .stop = stop,
                         .start_seconds = job_clock(),
                         .progress = {.least_left_seconds = -1, .most_left_seconds = -1}};
    if (error == NULL)
        error = &unused;
    int result = job_open(&job, error);
    if (result == 0) {
        result = compute_and_save(&job, error);
        result = close_run(&job, result, error);
        if (result != 0)
            advise(error);
    }
    fill_summary(&job, summary);
    close_job(&job);
    return result;
}
