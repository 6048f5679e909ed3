/* The model by the textbook, in double precision: every position anew, no cache, weights straight from the file,
 * none of the engine's arithmetic. What the engine is compared with. */
#ifndef NJ_TESTS_SWEEP_PLAIN_FORWARD_H
#define NJ_TESTS_SWEEP_PLAIN_FORWARD_H

#include "engine/model/model.h"

/* logits: [count][vocabulary] */
void plain_forward(const struct nj_model *model, const int32_t *tokens, int32_t count, double *logits);

#endif
