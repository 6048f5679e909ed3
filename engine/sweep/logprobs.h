/* Log-probabilities of tokens, as an answer reports them. A value is
 *     (logit - max) - elementary_log64(sum)        in double, logit, max and sum being float32
 * of the row that the token was chosen from, after logit_bias and before temperature, top_k, top_p and min_p. It
 * is the same on every machine. */
#ifndef NJ_ENGINE_SWEEP_LOGPROBS_H
#define NJ_ENGINE_SWEEP_LOGPROBS_H

#include <stdint.h>

#include "kernels/elementary.h"
#include "kernels/operations.h"

enum { NJ_TOP_LOGPROBS_MOST = 20 };

struct nj_logprob {
    int32_t token;
    float value; /* the double above, not below -9999, rounded to float32 */
};

/* The double above. stats->finite must be 1. */
static inline double logprobs_value(const float *logits, const struct nj_logit_stats *stats, int32_t token)
{
    return (double)logits[token] - (double)stats->max - elementary_log64((double)stats->sum);
}

/* Fills out[0] with `token` and out[1 .. top] with the most probable tokens, larger logits first, equal ones by
 * ascending token; where the vocabulary has fewer, the rest gets token -1. logits[vocabulary] and their stats
 * must be finite; 0 <= top <= NJ_TOP_LOGPROBS_MOST. */
void logprobs_note(const float *logits, int32_t vocabulary, const struct nj_logit_stats *stats, int32_t token,
                   int32_t top, struct nj_logprob *out);

#endif
