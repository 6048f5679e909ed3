/* A job: one model, some input, one output directory. This is what jobs/ calls. */
#ifndef NJ_PIPELINE_JOB_JOB_H
#define NJ_PIPELINE_JOB_JOB_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/error.h"
#include "engine/model/pack.h"

enum nj_accept {
    NJ_ACCEPT_CHANGED = 1, /* requests whose prompt or parameters have changed: computed again */
    NJ_ACCEPT_REMOVED = 2  /* requests that are gone: their records leave the export */
};

enum nj_retry {
    NJ_RETRY_ERRORS = 1, /* requests whose last record is an error; not bad lines, which fail until repaired */
    NJ_RETRY_LENGTH = 2, /* answers that ended for their length */
    NJ_RETRY_IDS = 4     /* those whose ids a file names */
};

/* What identifies the work. Written to job.json when the job is made; `resume DIR` reads it back. */
struct nj_job_options {
    const char *model_path;
    const char *const *inputs; /* as input_open takes them */
    size_t input_count;
    const char *output_directory;
    const char *kv_type; /* of keys and values: "f16" or "q8"; NULL: the default */
    bool as_chat;        /* raw prompts become one user message */
    bool strict;         /* the first bad line stops the job (NJ_BAD_DATA) */
    int64_t job_time;    /* seconds since the epoch, for every timestamp in the output; -1: now, stored */

    /* Free to change from run to run. */
    int threads;              /* 0: what affinity and the cgroup's quota allow */
    int32_t token_budget;     /* 0: default */
    uint64_t kv_memory_bytes; /* 0: default */
    /* For all that the process holds in RAM; 0: what the machine or the cgroup has, with headroom. */
    uint64_t max_memory_bytes;
    const char *kernels; /* NULL: auto */
    const char *cache_directory;
    unsigned accept; /* enum nj_accept, or'ed: differences from the last run's input that do not stop this run */
    /* Requests that are answered once more although they have a record, which stays until the new one is there. What
     * is left when the run is interrupted is remembered: later runs need not ask for it again. */
    unsigned retry;             /* enum nj_retry, or'ed */
    const char *retry_ids_path; /* one id per line; with NJ_RETRY_IDS */
    bool resume; /* without the input: standard input, compressed files and archives come from the job's copy */
    const char *slurm_job_id; /* named in the lock and in runs.jsonl; NULL: none. Not read back by resume */
    uint64_t first;           /* this run ends when the input's first so many valid requests are answered; 0: all */
};

enum nj_job_phase { NJ_PHASE_INDEX, NJ_PHASE_LOAD, NJ_PHASE_COMPUTE, NJ_PHASE_DONE };

/* What a progress line and status.json show. Work is predicted in tokens. */
struct nj_job_progress {
    enum nj_job_phase phase;
    uint64_t requests, requests_done, requests_failed; /* done: with a record, failed ones too; bad lines are failed */
    double work_total, work_done;                      /* predicted tokens (weighted), this run and earlier ones */
    double tokens_per_second;                          /* over the last minute or so */
    double elapsed_seconds;                            /* of this run */
    double least_left_seconds, most_left_seconds;      /* negative: unknown yet */
    int32_t in_flight;
    uint64_t sweeps;
    uint64_t peak_memory_bytes; /* of the process; 0: unknown */
};

/* A request finished in this run and its answer; valid during the callback. */
struct nj_job_answer {
    const char *id;
    struct nj_text prompt;     /* of a chat, a line "ROLE: CONTENT" per message */
    struct nj_text text;       /* empty if the request failed */
    const char *finish_reason; /* "stop", "length", or "failed": errors.jsonl says why */
    int32_t prompt_tokens, new_tokens;
    int32_t index, count; /* which of how many answers to the request; they come in order */
};

struct nj_job_callbacks {
    void *context;
    /* Often (after each sweep, and every few thousand lines while indexing); must return quickly. */
    void (*progress)(void *context, const struct nj_job_progress *progress);
    /* One line of news or a warning, without newline. Never prompt text. */
    void (*notice)(void *context, const char *line);
    /* Each answer of each request that is finished, only in runs that `first` limits: the one place where prompts leave
     * the job. */
    void (*answered)(void *context, const struct nj_job_answer *answer);
};

struct nj_job_summary {
    uint64_t requests, answered, failed, computed_now; /* computed_now: finished in this run */
    uint64_t prompt_tokens, new_tokens;                /* of this run */
    uint64_t prefill_tokens, shared_tokens; /* what this run computed of prompts, and what it found computed */
    double seconds;
};

/* Starts the job or continues it if the directory holds the same one. Returns 0 when every request has a
 * record (summary->failed may be > 0), or -1: NJ_INTERRUPTED after *stop became non-zero, or when the requests
 * that `first` asks for have their records and others have none (everything is saved), or another error. `stop`
 * may be set from a signal handler. Callbacks may be NULL. */
int job_run(const struct nj_job_options *options, const struct nj_job_callbacks *callbacks, const atomic_int *stop,
            struct nj_job_summary *summary, struct nj_error *error);

/* Reads job.json of a directory. The strings belong to the returned object; free with job_options_free.
 * Fields that are free to change are left as the last run had them. */
struct nj_job_options *job_options_read(const char *output_directory, struct nj_error *error);
void job_options_free(struct nj_job_options *options);

/* What status.json says, and whether a process holds the directory now (and which: "host H, pid P"). */
struct nj_job_status {
    struct nj_job_progress progress;
    bool running;
    char holder[256];
    char state[32]; /* "running", "interrupted", "finished", "failed" */
    int last_exit_code;
};
int job_status(const char *output_directory, struct nj_job_status *out, struct nj_error *error);

/* One record per id in input order, as JSON lines, to a descriptor. Byte-identical after any number of
 * interruptions. NJ_INTERRUPTED if some requests have no record yet (those that have are still written).
 * `missing` gets their number. Needs neither the input nor the model. */
int job_export(const char *output_directory, int fd, uint64_t *missing, struct nj_error *error);

#endif
