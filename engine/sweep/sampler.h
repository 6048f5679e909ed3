/* From a row of logits to a token. The choice is defined here to the bit, so that it is the same on every
 * machine and a device may compute it in any order.
 *
 * Weights are integers, so that their sums are exact:
 *     weight[i] = floor(2^40 * elementary_exp((logit[i] - max) / temperature))      (float32 until the floor)
 * Tokens of weight 0 (less than 2^-40 times as probable as the best) are never chosen. Rank: larger logit
 * first, equal logits by ascending index. Then, in this order:
 *     top_k   keeps the first top_k ranks
 *     top_p   keeps the fewest first ranks of these whose weights sum to >= top_p * (sum of what top_k kept)
 *     min_p   keeps those of these with weight >= min_p * 2^40
 * (products and comparisons in double). The best token always stays. With `total` the sum of the kept weights
 * and u the 64-bit number below, the token is the first, by ascending index over the kept, at which the running
 * sum of weights exceeds floor(u * total / 2^64).
 *
 * u is counter-based: XXH3-64 (seed 0) of the four 64-bit words seed, request_hash, sample, position in
 * little-endian order. It depends on nothing else. */
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
uint64_t sampler_bytes(int32_t vocabulary);            /* what sampler_create takes */
struct nj_sampler *sampler_create(int32_t vocabulary); /* scratch memory; NULL when out of memory */
void sampler_destroy(struct nj_sampler *sampler);

/* `position` is the index of the new token in its sequence; logits are [vocabulary]; stats->finite must be 1.
 * Never fails, never allocates. One thread at a time. */
int32_t sampler_choose(struct nj_sampler *sampler, const struct nj_sampling *sampling, int64_t position,
                       const float *logits, const struct nj_logit_stats *stats);

#endif
