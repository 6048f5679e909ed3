/* What a job runs with: token budget, sequences, KV blocks, and whether all that fits in memory. `run` and `plan` both
 * ask here, so that they never disagree. */
#ifndef NJ_PIPELINE_JOB_JOB_PLAN_H
#define NJ_PIPELINE_JOB_JOB_PLAN_H

#include "engine/sweep/scheduler.h"
#include "pipeline/index/order.h"
#include "pipeline/job/memory_need.h"

/* Everything that decides. */
struct nj_plan_facts {
    const struct nj_hyperparameters *shape;
    enum nj_kv_type kv_type;
    uint64_t weights_bytes; /* still to be loaded */
    struct nj_index *index;
    const struct nj_order *order; /* not empty */
    int32_t token_budget;         /* 0: default */
    uint64_t kv_memory_bytes;     /* 0: default */
    uint64_t available_bytes;     /* free now */
};

struct nj_plan {
    struct nj_scheduler_options scheduler; /* without cancel */
    struct nj_memory_need need;
};

/* The KV type that an option names (NULL: the default one); NJ_BAD_DATA if there is none of that name. */
int plan_find_kv_type(const char *name, enum nj_kv_type *out, struct nj_error *error);

/* 0, or NJ_DOES_NOT_FIT naming what would fit. */
int plan_make(const struct nj_plan_facts *facts, struct nj_plan *out, struct nj_error *error);

#endif
