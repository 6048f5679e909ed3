/* How long the requests of a job are, from its index and without memory per request. */
#ifndef NJ_PIPELINE_INDEX_LENGTHS_H
#define NJ_PIPELINE_INDEX_LENGTHS_H

#include "pipeline/index/order.h"

struct nj_lengths {
    /* Tokens of prompts: the shortest, the median, the one that nine in ten do not exceed, the longest. */
    uint32_t least_prompt, median_prompt, ninety_prompt, most_prompt;
    uint32_t most_new; /* the largest max_tokens */
    /* Sums over the sequences that the requests need: one for each answer that has to be computed. */
    uint64_t sequences, prompt_tokens, most_new_tokens;
    /* Sums over sequences with p prompt tokens and at most n new ones: p * p, p * n, n * n. Attention grows by them. */
    double prompt_squares, prompt_times_new, new_squares;
};

/* Of the requests in the order, which is not empty. */
struct nj_lengths lengths_of(struct nj_index *index, const struct nj_order *order);

#endif
