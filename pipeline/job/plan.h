/* What a job would be like, told before it starts: its input, its lengths, its memory, about its time. */
#ifndef NJ_PIPELINE_JOB_PLAN_H
#define NJ_PIPELINE_JOB_PLAN_H

#include "pipeline/index/index_build.h"
#include "pipeline/index/lengths.h"
#include "pipeline/job/job.h"
#include "pipeline/job/job_plan.h"
#include "pipeline/job/plan_time.h"

struct nj_plan_report {
    struct nj_index_totals totals; /* of the input */
    uint32_t requests;             /* planned for; 0: nothing below is set but what the comments say */
    struct nj_lengths lengths;
    bool fits;
    struct nj_error misfit; /* NJ_DOES_NOT_FIT: what `run` would say */
    struct nj_plan plan;    /* if it fits */
    int32_t sequences;      /* in flight at most */
    uint64_t kv_block_bytes;
    uint64_t index_bytes; /* always */
    uint64_t limit_bytes; /* for all that the process holds */
    bool is_cap;          /* which the user set */
    int32_t layers;
    double disk_bytes_per_second; /* as taken, not measured */
    const char *kernels;
    int threads;
    bool has_time; /* false: not measured, since it does not fit */
    struct nj_plan_time time;
};

/* Reads the input once (no output directory is needed, and nothing is written) and plans as job_run would. Returns 0
 * with report->fits or not, or -1: what job_run would have failed with before it planned. */
int plan_job(const struct nj_job_options *options, const struct nj_job_callbacks *callbacks, const atomic_int *stop,
             struct nj_plan_report *out, struct nj_error *error);

#endif
