/* From a row of logits to a token. The choice is defined here to the bit, so that it is the same on every
 * machine and a device may compute it in any order.
 *
 * Before everything else, logit_bias: its numbers are added to the logits of its tokens in float32, and the row's
 * statistics are those that docs/arithmetic.md defines (logit_stats) for the row after that. "logit", "max" and
 * "the largest" below mean this row.
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

struct nj_logit_bias {
    int32_t token; /* 0 .. vocabulary - 1 */
    float bias;    /* finite */
};

struct nj_sampling {
    float temperature; /* 0: the largest logit, ties to the lowest index */
    float top_p;       /* (0, 1]; 1: off */
    float min_p;       /* [0, 1); 0: off */
    int32_t top_k;     /* 0: off */
    uint64_t seed;
    uint64_t request_hash;            /* XXH3-64 of the request's id */
    uint32_t sample;                  /* which of n */
    const struct nj_logit_bias *bias; /* [bias_count], every token at most once */
    int32_t bias_count;
};

struct nj_sampler;
uint64_t sampler_bytes(int32_t vocabulary);            /* what sampler_create takes */
struct nj_sampler *sampler_create(int32_t vocabulary); /* scratch memory; NULL when out of memory */
void sampler_destroy(struct nj_sampler *sampler);

/* A row of logits and what is known of it. */
struct nj_logit_row {
    const float *logits; /* [vocabulary] */
    struct nj_logit_stats stats;
};

/* The row after logit_bias: the given one if there is none, else the sampler's own until the next call. finite
 * must be 1, and stays so. Never fails, never allocates. */
struct nj_logit_row sampler_apply_bias(struct nj_sampler *sampler, const struct nj_sampling *sampling,
                                       struct nj_logit_row row);

/* Chooses from a row that logit_bias has been applied to. `position` is the index of the new token in its
 * sequence; logits are [vocabulary]; stats->finite must be 1. Never fails, never allocates. One thread at a time. */
int32_t sampler_choose(struct nj_sampler *sampler, const struct nj_sampling *sampling, int64_t position,
                       const float *logits, const struct nj_logit_stats *stats);

#endif
