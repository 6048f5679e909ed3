#include <stdlib.h>

#include "pipeline/job_state.h"
#include "pipeline/output.h"

static const double SYNC_SECONDS = 5, CHECKPOINT_SECONDS = 60, STATUS_SECONDS = 2;

static int sync_logs(struct nj_job *job, struct nj_error *error)
{
    if (job->results == NULL || job->errors == NULL)
        return 0;
    if (record_log_sync(job->results, error) != 0 || record_log_sync(job->errors, error) != 0)
        return -1;
    job->synced_seconds = job_clock();
    return 0;
}

struct visit {
    const struct nj_job *job;
    struct nj_checkpoint_writer writer;
};

static int add_sequence(void *context, uint64_t tag, const int32_t *generated, int32_t generated_count,
                        struct nj_error *error)
{
    struct visit *visit = context;
    const struct nj_job *job = visit->job;
    for (size_t i = 0; i < job->flight_count && generated_count > 0; i++) {
        const struct nj_flight *flight = &job->flights[i];
        if (flight->position != tag)
            continue;
        struct nj_checkpoint_sequence sequence = {.id_hash = flight->id_hash,
                                                  .digest = flight->digest,
                                                  .generated = generated,
                                                  .generated_count = generated_count};
        return checkpoint_add(&visit->writer, &sequence, error);
    }
    return 0;
}

/* The scheduler's sequences, and those of the last checkpoint that it has not been given yet. */
static int add_sequences(struct nj_job *job, struct visit *visit, struct nj_error *error)
{
    if (job->scheduler != NULL && scheduler_visit(job->scheduler, add_sequence, visit, error) != 0)
        return -1;
    for (size_t i = job->resumptions_taken; i < job->resumption_count; i++) {
        if (checkpoint_add(&visit->writer, job->resumptions[i].sequence, error) != 0)
            return -1;
    }
    return 0;
}

/* Logs first: the checkpoint tells what of them is durable. */
static int save_checkpoint(struct nj_job *job, struct nj_error *error)
{
    if (job->results == NULL || job->errors == NULL)
        return 0; /* the last checkpoint still says all there is to say */
    if (sync_logs(job, error) != 0)
        return -1;
    struct visit visit = {.job = job};
    char *path = output_path(job->directory, "inflight.ckpt", error);
    int result = -1;
    if (path != NULL &&
        checkpoint_begin(&visit.writer, job->file.job_digest, record_log_mark(job->results),
                         record_log_mark(job->errors), error) == 0 &&
        add_sequences(job, &visit, error) == 0)
        result = checkpoint_write(&visit.writer, path, error);
    checkpoint_writer_free(&visit.writer);
    free(path);
    job->checkpoint_seconds = job_clock();
    return result;
}

int job_save_some(struct nj_job *job, struct nj_error *error)
{
    double now = job_clock();
    if (record_log_flush(job->results, error) != 0 || record_log_flush(job->errors, error) != 0)
        return -1;
    if (now - job->checkpoint_seconds >= CHECKPOINT_SECONDS) {
        if (save_checkpoint(job, error) != 0)
            return -1;
    } else if (now - job->synced_seconds >= SYNC_SECONDS && sync_logs(job, error) != 0) {
        return -1;
    }
    if (now - job->status_seconds < STATUS_SECONDS)
        return 0;
    job->status_seconds = now;
    return job_write_status(job, "running", NJ_OK, error);
}

int job_save_all(struct nj_job *job, struct nj_error *error)
{
    if (save_checkpoint(job, error) == 0)
        return 0;
    /* Perhaps the disk is full: this is what the reserve is for. */
    output_give_up_reserve(job->directory);
    return save_checkpoint(job, error);
}
