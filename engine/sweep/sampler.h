/* From a row of logits to a token. temperature, top_k, top_p, min_p in this order; the random number
 * depends on (seed, request id, sample index, position) only. */
#ifndef NJ_ENGINE_SWEEP_SAMPLER_H
#define NJ_ENGINE_SWEEP_SAMPLER_H

#include <stdint.h>

#include "kernels/operations.h"

struct nj_sampling {
    float temperature; /* 0: the largest logit, ties to the lowest index */
    float top_p;       /* (0, 1]; 1: off */
    float min_p;       /* [0, 1); 0: off */
    int32_t top_k;     /* 0: off */
    uint64_t seed;
    uint64_t request_hash; /* XXH3-64 of the request's id */
    uint32_t sample;       /* which of n */
};

struct nj_sampler;
struct nj_sampler *sampler_create(int32_t vocabulary); /* scratch memory; NULL when out of memory */
void sampler_destroy(struct nj_sampler *sampler);

/* `position` is the index of the new token in its sequence. stats->finite must be 1. */
int32_t sampler_choose(struct nj_sampler *sampler, const struct nj_sampling *sampling, int64_t position,
                       const float *logits, const struct nj_logit_stats *stats);

#endif
