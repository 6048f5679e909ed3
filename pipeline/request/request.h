/* One line of input as a request: plain ({"id", "prompt" | "messages", parameters}) or an OpenAI batch line
 * ({"custom_id", "method", "url", "body"}). */
#ifndef NJ_PIPELINE_REQUEST_REQUEST_H
#define NJ_PIPELINE_REQUEST_REQUEST_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/formats/gguf.h"
#include "engine/sweep/sampler.h"
#include "engine/tokenizer/output_text.h"
#include "pipeline/base/problem.h"

enum { NJ_ID_BYTES_MOST = 512, NJ_DEFAULT_MAX_TOKENS = 512, NJ_CHOICES_MOST = 16, NJ_BIASED_TOKENS_MOST = 1024 };

/* Which records the request gets. */
enum nj_shape { NJ_SHAPE_PLAIN, NJ_SHAPE_BATCH_COMPLETION, NJ_SHAPE_BATCH_CHAT };

/* Log-probabilities come in the shape of the endpoint; a plain line is told by its messages or prompt. */
enum nj_logprobs_form { NJ_LOGPROBS_OFF, NJ_LOGPROBS_CHAT, NJ_LOGPROBS_COMPLETION };

struct nj_request {
    enum nj_shape shape;
    const char *id; /* NULL: none given */
    size_t id_length;
    struct nj_text prompt; /* bytes NULL: messages instead */
    json_t *messages;      /* NULL: prompt instead */
    json_t *variables;     /* chat_template_kwargs, an object that is not empty; NULL: none */
    float temperature, top_p, min_p;
    int32_t top_k;
    uint64_t seed;
    int64_t max_tokens;
    struct nj_text stop[NJ_STOP_STRINGS_MOST];
    int stop_count;
    int32_t n; /* answers wanted: 1 .. NJ_CHOICES_MOST */
    enum nj_logprobs_form logprobs;
    int32_t top_logprobs;       /* 0 unless log-probabilities are wanted */
    struct nj_logit_bias *bias; /* [bias_count] by ascending token; owned; tokens may be outside the vocabulary */
    int32_t bias_count;
    uint32_t ignored; /* bit i: the field request_ignored_name(i) was given and ignored */
    json_t *root;     /* owns all of the above but bias */
};

/* How many sequences have to be computed: without chance all answers are equal. */
static inline int request_samples(const struct nj_request *request)
{
    return request->temperature > 0 ? request->n : 1;
}

enum { NJ_IGNORED_FIELDS = 4 };
const char *request_ignored_name(int bit);

/* Parses one line. 0, or -1 with the problem filled; id and shape are then set as far as they could be read.
 * Free in both cases. */
int request_parse(const char *text, size_t length, struct nj_request *request, struct nj_problem *problem);
void request_free(struct nj_request *request);

#endif
