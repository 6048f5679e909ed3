/* What a job runs with: token budget, sequences, KV blocks, layers on disk, and whether all that fits in memory. `run`
 * and `plan` both ask here, so that they never disagree. */
#ifndef NJ_PIPELINE_JOB_JOB_PLAN_H
#define NJ_PIPELINE_JOB_JOB_PLAN_H

#include <stdbool.h>

#include "engine/sweep/scheduler.h"
#include "pipeline/index/order.h"
#include "pipeline/job/memory_need.h"
#include "pipeline/machine/machine.h"

/* The weights, by the number of layers that stay on disk: what they take in memory, with the buffers that those layers
 * are read into, and what every sweep reads. */
struct nj_weights_sizes {
    int32_t most_disk_layers;
    const uint64_t *memory_bytes, *read_bytes; /* [most_disk_layers + 1] */
};

/* Per second, of all threads together. */
struct nj_plan_rates {
    double operations;   /* of matrix products */
    double disk_bytes;   /* read from the pack */
    double memory_bytes; /* read by the threads */
};
/* What a small machine of these days does; only where layers are placed depends on it. */
struct nj_plan_rates plan_default_rates(int threads);

/* Everything that decides. */
struct nj_plan_facts {
    const struct nj_hyperparameters *shape;
    enum nj_kv_type kv_type;
    struct nj_weights_sizes weights;
    struct nj_index *index;
    const struct nj_order *order; /* not empty */
    int logprobs;                 /* as nj_index_totals.most_logprobs */
    int32_t token_budget;         /* 0: default */
    uint64_t kv_memory_bytes;     /* 0: default */
    uint64_t limit_bytes;         /* for all that the process holds */
    bool is_cap;                  /* the user set the limit; else it is what is free, and half of it is left alone */
    uint64_t program_bytes;       /* memory_of_program */
    uint64_t peak_bytes;          /* what the process has held at most until now */
    int threads;
    struct nj_plan_rates rates;
};

struct nj_plan {
    struct nj_scheduler_options scheduler; /* without cancel */
    struct nj_memory_need need;
    int32_t disk_layers;
    uint64_t sweep_read_bytes;
    uint64_t least_limit_bytes; /* the smallest limit that would do, in whole MiB */
};

/* The limit of a job: the user's cap if it is not 0, else what the machine or the cgroup has but an eighth, and no
 * more than what the process holds and what is free. */
uint64_t plan_limit(uint64_t cap_bytes, const struct nj_machine *machine, const struct nj_process_memory *process);

/* The KV type that an option names (NULL: the default one); NJ_BAD_DATA if there is none of that name. */
int plan_find_kv_type(const char *name, enum nj_kv_type *out, struct nj_error *error);

/* All layers are in memory if they fit beside useful KV memory: what keeps so many tokens in a sweep that the weights
 * are not read for too few of them. Otherwise as few are on disk as leave room for so many tokens that computing takes
 * as long as reading, or if no number does, all. The token budget, if it is the default one, is halved down to 16 while
 * nothing else helps. More memory never puts more layers on disk. 0, or NJ_DOES_NOT_FIT naming what would fit. */
int plan_make(const struct nj_plan_facts *facts, struct nj_plan *out, struct nj_error *error);

#endif
