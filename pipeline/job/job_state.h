/* A job while it runs: what its files share. Internal to pipeline/. */
#ifndef NJ_PIPELINE_JOB_JOB_STATE_H
#define NJ_PIPELINE_JOB_JOB_STATE_H

#include "engine/sweep/scheduler.h"
#include "pipeline/index/examine.h"
#include "pipeline/index/index_build.h"
#include "pipeline/index/order.h"
#include "pipeline/job/estimate.h"
#include "pipeline/job/job_file.h"
#include "pipeline/job/status_file.h"
#include "pipeline/output/checkpoint.h"
#include "pipeline/output/lock.h"
#include "pipeline/output/record.h"
#include "pipeline/output/retry_file.h"

/* A request that the scheduler holds: what its record needs. */
struct nj_flight {
    uint32_t position; /* of its index entry */
    char *id;
    enum nj_shape shape;
    enum nj_logprobs_form logprobs;
    struct nj_digest id_hash, digest;
    int32_t n, samples;              /* choices of the record; sequences, fewer if all choices are equal */
    int32_t finished;                /* of the samples */
    struct nj_sequence_result *kept; /* [samples] copies of those that are finished while others are not, the
                                      * others without a generated token; NULL if there is one sample only */
};

/* A sequence of the checkpoint and the index entry it belongs to. Those of one request follow each other. */
struct nj_resumption {
    uint32_t position;
    bool is_taken; /* the scheduler has it */
    const struct nj_checkpoint_sequence *sequence;
};

struct nj_job {
    const struct nj_job_options *options; /* the caller's */
    const struct nj_job_callbacks *callbacks;
    const atomic_int *stop;
    double start_seconds; /* monotonic */

    char *directory;
    struct nj_lock *lock;
    struct nj_job_file file;   /* what this run wants; its strings live as long as the job */
    struct nj_job_file stored; /* job.json as it was found */
    char *model_name, *model_path;
    char **inputs; /* absolute paths of the arguments */

    struct nj_input *input;
    struct nj_model *model;
    enum nj_kv_type kv_type;
    struct nj_examiner examiner;
    struct nj_index *index;
    struct nj_index_totals totals;
    uint64_t heap_bytes;     /* of the process when the model had been opened */
    uint32_t position_limit; /* entries from here on are left to a later run */
    struct nj_order order;

    struct nj_record_log *results, *errors, *runs;
    struct nj_record_context record_context;
    struct nj_checkpoint checkpoint; /* as found */
    bool is_checkpoint_matched;      /* the resumptions are all there: the checkpoint may be replaced */
    struct nj_resumption *resumptions;
    /* The first `resumptions_wanted` go on in this run; the others only stay in the checkpoint. Those before
     * `resumptions_passed` are taken. */
    size_t resumption_count, resumptions_wanted, resumptions_passed;
    struct nj_retry_wish retry; /* what retry.bin was made for; kinds 0: there is none */
    char *retry_ids;            /* the file of ids that this run was given; NULL: none */
    size_t retry_ids_length;
    uint64_t strays; /* results that belong to no line of the input */

    struct nj_device *device;
    struct nj_scheduler *scheduler;
    uint32_t next_in_order;
    struct nj_flight *flights;
    size_t flight_count, flight_capacity;
    struct nj_examined pulled; /* the request being given to the scheduler, which borrows from it */
    uint32_t pulled_position;
    int32_t pulled_samples; /* of it that the scheduler has been given */

    struct nj_estimate estimate;
    struct nj_job_progress progress;
    struct nj_run_counts counts;
    uint64_t prompt_tokens, new_tokens, computed_now;          /* of requests finished in this run */
    double synced_seconds, checkpoint_seconds, status_seconds; /* when last, monotonic */
    bool reserve_given_up;
};

/* job.c */
double job_clock(void); /* monotonic seconds */
void job_say(const struct nj_job *job, const char *format, ...) __attribute__((format(printf, 2, 3)));
bool job_must_stop(const struct nj_job *job);

/* job_progress.c */
void job_report(struct nj_job *job); /* refreshes job->progress and calls the progress callback */
int job_write_status(struct nj_job *job, const char *state, int exit_code, struct nj_error *error);
/* A request has its record. new_tokens 0 for failed ones. */
void job_count_done(struct nj_job *job, struct nj_index_entry *entry, uint32_t new_tokens, bool failed,
                    bool in_this_run);
/* It is to have another one. */
void job_count_undone(struct nj_job *job, struct nj_index_entry *entry);

/* job_open.c: the directory, the lock, job.json, the model, the input. */
int job_open(struct nj_job *job, struct nj_error *error);

/* job_index.c */
int job_make_index(struct nj_job *job, struct nj_error *error);

/* job_retry.c */
/* When there is an index, and before anything is written: reads the ids to retry; NJ_BAD_DATA if the input lacks one.
 */
int job_check_retry(struct nj_job *job, struct nj_error *error);
/* Before the logs are read: of the requests that an earlier run left to retry, only a later record counts. */
int job_read_retry(struct nj_job *job, struct nj_error *error);
/* After it: takes the requests that this run asks for back into the work, and remembers them. */
int job_choose_retry(struct nj_job *job, struct nj_error *error);
/* Requests that wait for another record. */
uint64_t job_retries_left(const struct nj_job *job);
/* When there are none. */
int job_end_retry(const struct nj_job *job, struct nj_error *error);

/* job_bad_lines.c: of entries that are no requests; the input can be read again. */
/* Whether a line of errors.jsonl is what would be written of the bad line now: 1, 0, -1. */
int job_bad_line_has_record(struct nj_job *job, const struct nj_index_entry *entry, const char *line, size_t length,
                            unsigned attempt, struct nj_error *error);
/* Writes the records that are not there. */
int job_write_bad_lines(struct nj_job *job, struct nj_error *error);

/* job_input.c: the index, and what is done already. */
int job_read_input(struct nj_job *job, struct nj_error *error);
/* The entry with this id and, unless it is NULL, this digest: 1, 0 if there is none, -1. While the index has its
 * table. */
int job_find_entry(struct nj_job *job, struct nj_digest id_hash, const struct nj_digest *digest, uint32_t *position,
                   struct nj_error *error);

/* job_order.c: fills in the order; the index is complete. */
int job_make_order(struct nj_job *job, struct nj_error *error);

/* job_flights.c */
/* The scheduler's name for a sequence. */
static inline uint64_t job_tag(uint32_t position, uint32_t sample)
{
    return (uint64_t)position * NJ_CHOICES_MOST + sample;
}
static inline uint32_t job_tag_sample(uint64_t tag)
{
    return (uint32_t)(tag % NJ_CHOICES_MOST);
}
/* NULL: no such request is in flight. Valid until one is added or dropped. */
struct nj_flight *job_flight_of(const struct nj_job *job, uint64_t tag);
/* The request in job->pulled. Takes `id` over, also when it fails. */
int job_flight_add(struct nj_job *job, uint32_t position, char *id, struct nj_error *error);
void job_flight_drop(struct nj_job *job, struct nj_flight *flight);
/* Copies a finished sample, which must wait for the others. */
int job_flight_keep(struct nj_flight *flight, const struct nj_sequence_result *result, struct nj_error *error);
bool job_flight_has_kept(const struct nj_flight *flight, uint32_t sample);
void job_flights_free(struct nj_job *job);

/* job_compute.c: everything that needs the weights. */
int job_compute(struct nj_job *job, struct nj_error *error);

/* job_show.c: gives a finished request and its answers to the callback, in a run that shows them. */
int job_show_answer(struct nj_job *job, const struct nj_index_entry *entry, const char *id,
                    const struct nj_sequence_result *samples, int32_t count, struct nj_error *error);

/* job_save.c */
/* After a sweep: records to the system at once, to the disk every few seconds, a checkpoint every minute. */
int job_save_some(struct nj_job *job, struct nj_error *error);
/* Everything, as at a stop; gives the reserve up if the disk is full. */
int job_save_all(struct nj_job *job, struct nj_error *error);

#endif
