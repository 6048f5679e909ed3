#include <stdio.h>

#include "pipeline/job/job_state.h"
#include "pipeline/machine/process_memory.h"

static void add_scheduler_counts(struct nj_job *job)
{
    if (job->scheduler == NULL)
        return;
    struct nj_scheduler_counts counts = scheduler_counts(job->scheduler);
    job->counts.prefill_tokens = counts.prefill_tokens;
    job->counts.shared_tokens = counts.shared_tokens;
    job->counts.decode_tokens = counts.decode_tokens;
    job->counts.recomputed_tokens = counts.recomputed_tokens;
    job->counts.preemptions = counts.preemptions;
    job->counts.sweeps = counts.sweeps;
    job->counts.mixed_sweeps = counts.mixed_sweeps;
    job->counts.abandoned_sweeps = counts.abandoned_sweeps;
    job->progress.in_flight = counts.in_flight;
    job->progress.sweeps = counts.sweeps;
}

void job_report(struct nj_job *job)
{
    struct nj_job_progress *progress = &job->progress;
    add_scheduler_counts(job);
    progress->elapsed_seconds = job_clock() - job->start_seconds;
    if (progress->phase >= NJ_PHASE_LOAD) {
        struct nj_prediction prediction =
            estimate_update(&job->estimate, progress->elapsed_seconds, job->counts.prefill_tokens,
                            job->counts.shared_tokens, job->counts.decode_tokens);
        progress->work_total = prediction.work_total;
        progress->work_done = prediction.work_done;
        progress->tokens_per_second = prediction.tokens_per_second;
        progress->least_left_seconds = prediction.least_left_seconds;
        progress->most_left_seconds = prediction.most_left_seconds;
    }
    if (job->callbacks != NULL && job->callbacks->progress != NULL)
        job->callbacks->progress(job->callbacks->context, progress);
}

int job_write_status(struct nj_job *job, const char *state, int exit_code, struct nj_error *error)
{
    job->progress.peak_memory_bytes = process_memory_read("").peak_bytes;
    struct nj_job_status status = {.progress = job->progress, .last_exit_code = exit_code};
    snprintf(status.state, sizeof status.state, "%s", state);
    return status_file_write(job->directory, &status, error);
}

void job_count_done(struct nj_job *job, struct nj_index_entry *entry, uint32_t new_tokens, bool failed,
                    bool in_this_run)
{
    entry->done = 1;
    entry->failed = failed;
    job->progress.requests_done++;
    job->progress.requests_failed += failed;
    job->counts.finished += in_this_run;
    if (entry->kind != NJ_ENTRY_REQUEST)
        return;
    /* A record may count more than was computed: choices that are equal. */
    uint32_t samples = index_entry_samples(entry), most = samples * entry->max_new_tokens;
    estimate_add_done(&job->estimate, samples * entry->prompt_tokens, most, new_tokens < most ? new_tokens : most,
                      in_this_run);
}

void job_count_undone(struct nj_job *job, struct nj_index_entry *entry)
{
    job->progress.requests_done--;
    job->progress.requests_failed -= entry->failed;
    entry->done = 0;
    entry->failed = 0;
    const uint32_t samples = index_entry_samples(entry);
    if (entry->kind == NJ_ENTRY_REQUEST)
        estimate_take_back(&job->estimate, samples * entry->prompt_tokens, samples * entry->max_new_tokens);
}
