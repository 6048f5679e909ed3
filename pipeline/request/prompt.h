/* From a request to the tokens that the model reads, the request's digest, and its length. */
#ifndef NJ_PIPELINE_REQUEST_PROMPT_H
#define NJ_PIPELINE_REQUEST_PROMPT_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/model/model.h"
#include "pipeline/base/digest.h"
#include "pipeline/request/request.h"

struct nj_prompt_encoder;

struct nj_prompt_options {
    bool as_chat;     /* a raw prompt becomes one user message */
    int64_t job_time; /* what the template sees as now */
    struct nj_digest job_digest;
};

/* The model must outlive the encoder. One thread at a time. */
struct nj_prompt_encoder *prompt_encoder_create(const struct nj_model *model, const struct nj_prompt_options *options,
                                                struct nj_error *error);
void prompt_encoder_destroy(struct nj_prompt_encoder *encoder);

struct nj_encoded_prompt {
    const int32_t *tokens; /* the encoder's, until its next call */
    int32_t count;
    int32_t max_new_tokens;  /* max_tokens, clipped to what the model's context leaves */
    struct nj_digest digest; /* over (job digest, tokens, parameters but max_tokens) */
    bool raw_on_chat_model;  /* a raw prompt although the model has a chat template */
    bool raw_with_control;   /* a raw prompt that holds the text of a control token */
};

/* 0; 1 with the problem filled when this request cannot be run; -1 when the job cannot go on. */
int prompt_encode(struct nj_prompt_encoder *encoder, const struct nj_request *request, struct nj_encoded_prompt *out,
                  struct nj_problem *problem, struct nj_error *error);

/* The digest of a line that is no valid request. `text` is what the reader kept of it. */
struct nj_digest prompt_digest_bad_line(struct nj_prompt_encoder *encoder, const char *text, size_t length);

/* The digest that names a job: whatever decides its answers beside the requests. */
struct nj_digest prompt_digest_job(struct nj_prompt_encoder *encoder, const struct nj_model *model, const char *kv_type,
                                   int arithmetic_version);
/* Sets what was not known yet when the encoder was made. */
void prompt_encoder_set_job(struct nj_prompt_encoder *encoder, struct nj_digest job_digest, int64_t job_time);

#endif
