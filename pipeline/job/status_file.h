/* status.json (the latest progress, replaced atomically) and runs.jsonl (a line for each start and stop). */
#ifndef NJ_PIPELINE_JOB_STATUS_FILE_H
#define NJ_PIPELINE_JOB_STATUS_FILE_H

#include "pipeline/job/job.h"
#include "pipeline/output/record_log.h"

enum { NJ_STATUS_SCHEMA = 1, NJ_RUNS_SCHEMA = 1 };

/* Writes progress, state and last_exit_code; `running` and `holder` are not stored. */
int status_file_write(const char *directory, const struct nj_job_status *status, struct nj_error *error);

/* 1 read, 0 there is none or it cannot be used. */
int status_file_read(const char *directory, struct nj_job_status *out);

/* What a run did, for its stop line. */
struct nj_run_counts {
    uint64_t prefill_tokens, shared_tokens, decode_tokens, recomputed_tokens;
    uint64_t preemptions, sweeps, mixed_sweeps, abandoned_sweeps;
    uint64_t kv_blocks, kv_bytes, disk_layers;    /* as planned; 0: the run did not come so far */
    uint64_t max_memory_bytes, peak_memory_bytes; /* what the user allows, or 0; most that was resident */
    uint64_t finished;                            /* requests that got a record in this run, bad lines included */
};

/* What a run runs with, for its start line. */
struct nj_run_settings {
    const struct nj_job_options *options;
    const char *host;
    int64_t pid;
};

int runs_append_start(struct nj_record_log *runs, const struct nj_run_settings *settings, struct nj_error *error);
int runs_append_stop(struct nj_record_log *runs, const struct nj_run_counts *counts, double seconds, int exit_code,
                     struct nj_error *error);

#endif
