/* Log-probabilities of an answer as JSON. docs/output.md describes them for readers. */
#ifndef NJ_PIPELINE_OUTPUT_RECORD_LOGPROBS_H
#define NJ_PIPELINE_OUTPUT_RECORD_LOGPROBS_H

#include <jansson.h>

#include "engine/sweep/scheduler.h"
#include "pipeline/request/request.h"

/* The object for a result that has them, in a form that is not off. It lists the tokens whose text is part of the
 * answer's, if only with one byte: no control tokens, nothing that a stop string has cut off. NULL: out of memory. */
json_t *record_logprobs(const struct nj_tokenizer *tokenizer, const struct nj_sequence_result *result,
                        enum nj_logprobs_form form);

#endif
