/* Whether what a job needs fits in memory, told before the first token instead of by the kernel's killer at night. */
#ifndef NJ_PIPELINE_JOB_MEMORY_NEED_H
#define NJ_PIPELINE_JOB_MEMORY_NEED_H

#include <stdint.h>

#include "engine/sweep/scheduler.h"

enum { NJ_DEFAULT_TOKEN_BUDGET = 256 };

struct nj_memory_need {
    uint64_t weights_bytes;            /* still to be loaded */
    uint64_t kv_bytes, least_kv_bytes; /* blocks as planned; those that the longest request alone takes */
    uint64_t other_bytes;              /* activations, tokens, logits, what is known of each block */
    int32_t token_budget, longest_sequence;
};

/* 0, or NJ_DOES_NOT_FIT naming what is needed, what is free, and the option to lower. */
int memory_need_check(const struct nj_memory_need *need, uint64_t available_bytes, struct nj_error *error);

/* What so many sequences, each of at most so many tokens (prompt and answer, >= 2), take beside the weights. */
struct nj_sequences_memory {
    uint64_t kv_bytes, other_bytes; /* keys and values; activations, tokens, logits */
};
struct nj_sequences_memory memory_of_sequences(const struct nj_hyperparameters *shape, enum nj_kv_type kv_type,
                                               int32_t token_budget, int32_t sequences, int32_t tokens);

#endif
