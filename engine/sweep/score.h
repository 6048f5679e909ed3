/* Log-probabilities of given tokens: for tests and for eval. */
#ifndef NJ_ENGINE_SWEEP_SCORE_H
#define NJ_ENGINE_SWEEP_SCORE_H

#include "engine/sweep/forward.h"

/* For each i in [first, count - 1): logprob[i - first] is the natural-log probability of token i + 1 given
 * tokens 0..i, and argmax[i - first] the most probable token there. Either may be NULL. NJ_BAD_DATA if a
 * logit is not finite. `float_path` is test-only. */
struct nj_score_options {
    enum nj_kv_type kv_type;
    int float_path;
    int32_t token_budget;
};
int score_tokens(const struct nj_model *model, struct nj_device *device, const struct nj_score_options *options,
                 const int32_t *tokens, int32_t count, int32_t first, double *logprob, int32_t *argmax,
                 struct nj_error *error);

#endif
