#include <stdlib.h>

#include "pipeline/job/job_state.h"
#include "pipeline/output/output.h"

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
    const struct nj_flight *last; /* whose samples were added last */
    struct nj_checkpoint_writer writer;
};

static int add_sample(struct visit *visit, const struct nj_flight *flight, const struct nj_sequence_state *state,
                      struct nj_error *error)
{
    const struct nj_checkpoint_sequence sequence = {.id_hash = flight->id_hash,
                                                    .digest = flight->digest,
                                                    .sample = job_tag_sample(state->tag),
                                                    .generated = state->generated,
                                                    .generated_count = state->generated_count,
                                                    .logprobs = state->logprobs,
                                                    .top_logprobs = state->top_logprobs};
    return state->generated_count > 0 ? checkpoint_add(&visit->writer, &sequence, error) : 0;
}

/* What is finished of a request that waits for other samples: beside the scheduler's sequences of the request, which
 * follow each other. */
static int add_kept(struct visit *visit, const struct nj_flight *flight, struct nj_error *error)
{
    for (uint32_t i = 0; i < (uint32_t)flight->samples; i++) {
        if (!job_flight_has_kept(flight, i))
            continue;
        const struct nj_sequence_result *kept = &flight->kept[i];
        const struct nj_sequence_state state = {.tag = kept->tag,
                                                .generated = kept->generated,
                                                .generated_count = kept->generated_count,
                                                .logprobs = kept->logprobs,
                                                .top_logprobs = kept->top_logprobs};
        if (add_sample(visit, flight, &state, error) != 0)
            return -1;
    }
    return 0;
}

static int add_sequence(void *context, const struct nj_sequence_state *state, struct nj_error *error)
{
    struct visit *visit = context;
    const struct nj_flight *flight = job_flight_of(visit->job, state->tag);
    if (flight == NULL)
        return 0;
    if (flight != visit->last && add_kept(visit, flight, error) != 0)
        return -1;
    visit->last = flight;
    /* The scheduler may still have a kept one: when the record could not be written. */
    return job_flight_has_kept(flight, job_tag_sample(state->tag)) ? 0 : add_sample(visit, flight, state, error);
}

/* The scheduler's sequences, and those of the last checkpoint that it has not been given yet. It may have none of the
 * request that is being given, although some of it is finished. */
static int add_sequences(struct nj_job *job, struct visit *visit, struct nj_error *error)
{
    if (job->scheduler != NULL && scheduler_visit(job->scheduler, add_sequence, visit, error) != 0)
        return -1;
    const struct nj_flight *pulled = job->pulled.ok ? job_flight_of(job, job_tag(job->pulled_position, 0)) : NULL;
    if (pulled != NULL && pulled != visit->last && add_kept(visit, pulled, error) != 0)
        return -1;
    for (size_t i = job->resumptions_passed; i < job->resumption_count; i++) {
        const struct nj_resumption *resumption = &job->resumptions[i];
        if (!resumption->is_taken && checkpoint_add(&visit->writer, resumption->sequence, error) != 0)
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
    if (!job->is_checkpoint_matched)
        return 0; /* part of its sequences would be lost */
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
