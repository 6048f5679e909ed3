/* What `bench-model` measures: one model on this machine, reading prompts and writing answers, beside the machine's
 * integer peak measured in the same run. */
#ifndef NJ_PIPELINE_JOB_MODEL_BENCH_H
#define NJ_PIPELINE_JOB_MODEL_BENCH_H

#include "engine/model/pack.h"
#include "engine/sweep/bench.h"

struct nj_model_bench_options {
    const char *model_path, *cache_directory;
    const char *kernels;  /* NULL: auto */
    const char *kv_type;  /* as in struct nj_job_options */
    int threads;          /* 0: as many as the process may use */
    int32_t token_budget; /* 0: default */
    /* Of the one long prompt (eight short ones share as many), and before each new token; 0: 512 and 200, or what the
     * model's context allows. */
    int32_t prompt_tokens, context;
    double seconds; /* for each measurement, about */
    const atomic_int *stop;
    nj_notice notice; /* may be NULL */
    void *notice_context;
};

struct nj_model_bench_machine {
    const char *kernels;
    int threads;
    int32_t token_budget;
    enum nj_kv_type kv_type;
    const char *peak_mix; /* NULL: none is known for these kernels, and the peak is 0 */
    double peak_operations_per_second;
};

struct nj_model_bench_row {
    bool is_decode;
    int32_t sequences;
    int32_t tokens; /* of each prompt, or before the first new token */
    bool fits;      /* false: it was left out, since it needs more memory than is free */
    struct nj_bench_result result;
};

struct nj_model_bench_callbacks {
    void *context;
    void (*machine)(void *context, const struct nj_model_bench_machine *machine); /* once, first */
    void (*row)(void *context, const struct nj_model_bench_row *row);             /* after each measurement */
};

int model_bench_run(const struct nj_model_bench_options *options, const struct nj_model_bench_callbacks *callbacks,
                    struct nj_error *error);

#endif
