/* About how long a job will take: a short measurement of this machine with blank weights of the model's shapes, and
 * the job's lengths. Rough: it is to tell an hour from a night, not more. */
#ifndef NJ_PIPELINE_JOB_PLAN_TIME_H
#define NJ_PIPELINE_JOB_PLAN_TIME_H

#include "engine/model/model.h"
#include "engine/sweep/scheduler.h"
#include "pipeline/index/lengths.h"

struct nj_plan_time {
    double prefill_tokens_per_second, decode_tokens_per_second; /* the latter for answers of half their limit */
    int32_t decode_sequences;                                   /* at once, on average */
    /* Without loading the model; answers of a quarter of their limit, and of all of it. */
    double least_seconds, most_seconds;
};

/* The model's weights need not be loaded. A sweep takes no less than `sweep_read_seconds`. Takes a second or two and
 * about as much memory as two layers. */
int plan_time_measure(const struct nj_model *model, struct nj_device *device,
                      const struct nj_scheduler_options *scheduler, const struct nj_lengths *lengths,
                      double sweep_read_seconds, struct nj_plan_time *out, struct nj_error *error);

#endif
