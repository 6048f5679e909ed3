/* What plan_make decides by, gathered from a job whose input has been read. */
#ifndef NJ_PIPELINE_JOB_PLAN_FACTS_H
#define NJ_PIPELINE_JOB_PLAN_FACTS_H

#include "engine/model/model.h"
#include "pipeline/job/job.h"
#include "pipeline/job/job_plan.h"

/* All borrowed. */
struct nj_plan_source {
    const struct nj_job_options *options;
    const struct nj_model *model;
    enum nj_kv_type kv_type;
    uint64_t heap_bytes; /* as memory_of_program takes it */
    struct nj_index *index;
    const struct nj_order *order;
    int logprobs; /* as nj_index_totals.most_logprobs */
};

/* 0, and the facts are freed by plan_facts_free; or -1. The weights are not loaded yet. */
int plan_facts_gather(const struct nj_plan_source *source, struct nj_plan_facts *out, struct nj_error *error);
void plan_facts_free(struct nj_plan_facts *facts);

#endif
