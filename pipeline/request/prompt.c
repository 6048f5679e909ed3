#include "pipeline/request/prompt.h"

#include <stdlib.h>
#include <string.h>

#include "pipeline/request/content_parts.h"

struct nj_prompt_encoder {
    const struct nj_model *model;
    struct nj_prompt_options options;
    struct nj_digester *digester;
    struct nj_ids ids;
    char *bos, *eos;  /* their text, for the template */
    bool reads_parts; /* the template takes content in parts as it is */
};

/* The text of a token, NUL-terminated; "" for none. NULL: out of memory. */
static char *token_text(const struct nj_tokenizer *tokenizer, int32_t token)
{
    struct nj_text text = {0};
    if (token >= 0)
        text = tokenizer_token_bytes(tokenizer, token);
    char *copy = malloc(text.length + 1);
    if (copy == NULL)
        return NULL;
    if (text.length > 0)
        memcpy(copy, text.bytes, text.length);
    copy[text.length] = '\0';
    return copy;
}

struct nj_prompt_encoder *prompt_encoder_create(const struct nj_model *model, const struct nj_prompt_options *options,
                                                struct nj_error *error)
{
    struct nj_prompt_encoder *encoder = calloc(1, sizeof *encoder);
    if (encoder != NULL) {
        encoder->model = model;
        encoder->options = *options;
        encoder->digester = digester_create();
        encoder->bos = token_text(model->tokenizer, tokenizer_bos(model->tokenizer));
        encoder->eos = token_text(model->tokenizer, tokenizer_eos(model->tokenizer));
    }
    if (encoder == NULL || encoder->digester == NULL || encoder->bos == NULL || encoder->eos == NULL) {
        prompt_encoder_destroy(encoder);
        error_set(error, NJ_INTERNAL, "out of memory");
        return NULL;
    }
    encoder->reads_parts = model->chat != NULL && content_parts_are_read(model->chat, encoder->bos, encoder->eos);
    return encoder;
}

void prompt_encoder_destroy(struct nj_prompt_encoder *encoder)
{
    if (encoder == NULL)
        return;
    if (encoder->digester != NULL)
        digester_destroy(encoder->digester);
    ids_free(&encoder->ids);
    free(encoder->bos);
    free(encoder->eos);
    free(encoder);
}

void prompt_encoder_set_job(struct nj_prompt_encoder *encoder, struct nj_digest job_digest, int64_t job_time)
{
    encoder->options.job_digest = job_digest;
    encoder->options.job_time = job_time;
}

/* An error that is the request's own fault becomes its problem (1); any other one ends the job (-1). */
static int blame_request(const struct nj_error *cause, const char *code, const char *what, struct nj_problem *problem,
                         struct nj_error *error)
{
    if (cause->code == NJ_BAD_DATA) {
        problem_set(problem, code, "%s: %s", what, cause->message);
        return 1;
    }
    if (error != NULL)
        *error = *cause;
    return -1;
}

static int refuse_length(const struct nj_prompt_encoder *encoder, const char *at_least, size_t count,
                         struct nj_problem *problem)
{
    problem_set(problem, "prompt_too_long",
                "the prompt is too long: it has %s%zu tokens, the model's context is %zu tokens including at least "
                "one new one; shorten it",
                at_least, count, (size_t)encoder->model->shape.context);
    return 1;
}

/* Tells a text that is far too long before time and memory go into its tokens. 1: refused. */
static int check_least_length(const struct nj_prompt_encoder *encoder, const char *text, size_t length,
                              struct nj_problem *problem)
{
    size_t least = tokenizer_least_tokens(encoder->model->tokenizer, text, length);
    return least >= (size_t)encoder->model->shape.context ? refuse_length(encoder, "at least ", least, problem) : 0;
}

static int encode_messages(struct nj_prompt_encoder *encoder, json_t *messages, json_t *variables,
                           struct nj_problem *problem, struct nj_error *error)
{
    const struct nj_model *model = encoder->model;
    if (model->chat == NULL) {
        if (model->chat_error.code != NJ_OK)
            problem_set(problem, "no_chat_template", "the model's chat template cannot be used: %s",
                        model->chat_error.message);
        else
            problem_set(problem, "no_chat_template",
                        "the model has no chat template: give a prompt instead of messages");
        return 1;
    }
    json_t *readable = encoder->reads_parts ? json_incref(messages) : content_parts_join(messages);
    if (readable == NULL)
        return error_set(error, NJ_INTERNAL, "out of memory");
    const struct nj_chat_input input = {.messages = readable,
                                        .variables = variables,
                                        .add_generation_prompt = true,
                                        .bos_token = encoder->bos,
                                        .eos_token = encoder->eos,
                                        .now = encoder->options.job_time};
    struct nj_rendered rendered;
    struct nj_error cause;
    const int failed = chat_template_render(model->chat, &input, &rendered, &cause);
    json_decref(readable);
    if (failed != 0)
        return blame_request(&cause, "template_error", "the chat template refuses these messages", problem, error);
    int result = check_least_length(encoder, rendered.text, rendered.length, problem);
    if (result == 0 && tokenizer_encode_rendered(model->tokenizer, rendered.text, rendered.is_template, rendered.length,
                                                 &encoder->ids, &cause) != 0)
        result = blame_request(&cause, "invalid_request", "the prompt cannot be tokenised", problem, error);
    rendered_free(&rendered);
    return result;
}

static int encode_raw(struct nj_prompt_encoder *encoder, struct nj_text text, struct nj_problem *problem,
                      struct nj_error *error)
{
    const struct nj_tokenizer *tokenizer = encoder->model->tokenizer;
    struct nj_error cause;
    if (check_least_length(encoder, text.bytes, text.length, problem) != 0)
        return 1;
    int failed = 0;
    if (tokenizer_adds_bos(tokenizer) && tokenizer_bos(tokenizer) >= 0)
        failed = ids_append(&encoder->ids, tokenizer_bos(tokenizer), &cause);
    if (failed == 0)
        failed = tokenizer_encode_text(tokenizer, text.bytes, text.length, &encoder->ids, &cause);
    return failed == 0 ? 0 : blame_request(&cause, "invalid_request", "the prompt cannot be tokenised", problem, error);
}

static int encode_as_chat(struct nj_prompt_encoder *encoder, const struct nj_request *request,
                          struct nj_problem *problem, struct nj_error *error)
{
    struct nj_text text = request->prompt;
    json_t *messages = json_pack("[{s:s, s:s%}]", "role", "user", "content", text.bytes, text.length);
    if (messages == NULL)
        return error_set(error, NJ_INTERNAL, "out of memory");
    int result = encode_messages(encoder, messages, request->variables, problem, error);
    json_decref(messages);
    return result;
}

static int encode_tokens(struct nj_prompt_encoder *encoder, const struct nj_request *request,
                         struct nj_encoded_prompt *out, struct nj_problem *problem, struct nj_error *error)
{
    const struct nj_model *model = encoder->model;
    encoder->ids.count = 0;
    if (request->messages != NULL)
        return encode_messages(encoder, request->messages, request->variables, problem, error);
    if (encoder->options.as_chat)
        return encode_as_chat(encoder, request, problem, error);
    if (request->variables != NULL) {
        problem_set(problem, "invalid_request",
                    "chat_template_kwargs needs messages: a raw prompt goes through no chat template");
        return 1;
    }
    out->raw_on_chat_model = model->chat != NULL;
    out->raw_with_control = tokenizer_text_has_control(model->tokenizer, request->prompt.bytes, request->prompt.length);
    return encode_raw(encoder, request->prompt, problem, error);
}

static int digest_json_part(const char *part, size_t length, void *digester)
{
    digester_add(digester, part, length);
    return 0;
}

/* What was not there from the beginning: only where it is not neutral, so that requests without it keep their
 * digest. */
static void digest_choices(struct nj_digester *digester, const struct nj_request *request)
{
    if (request->n > 1) {
        digester_add_text(digester, "n", 1);
        digester_add_u64(digester, (uint64_t)request->n);
    }
    if (request->logprobs != NJ_LOGPROBS_OFF) {
        digester_add_text(digester, "logprobs", 8);
        digester_add_u64(digester, request->logprobs);
        digester_add_u64(digester, (uint64_t)request->top_logprobs);
    }
    if (request->bias_count > 0) {
        digester_add_text(digester, "logit_bias", 10);
        digester_add_u64(digester, (uint64_t)request->bias_count);
        digester_add(digester, request->bias, (size_t)request->bias_count * sizeof request->bias[0]);
    }
}

/* The variables stand at the end, without their length, and only if there are any. */
static int digest_request(struct nj_prompt_encoder *encoder, const struct nj_request *request, struct nj_digest *out,
                          struct nj_error *error)
{
    struct nj_digester *digester = encoder->digester;
    digester_begin(digester);
    digester_add(digester, &encoder->options.job_digest, sizeof encoder->options.job_digest);
    digester_add_u64(digester, request->shape);
    digester_add_u64(digester, encoder->ids.count);
    digester_add(digester, encoder->ids.id, encoder->ids.count * sizeof encoder->ids.id[0]);
    digester_add(digester, &request->temperature, sizeof request->temperature);
    digester_add(digester, &request->top_p, sizeof request->top_p);
    digester_add(digester, &request->min_p, sizeof request->min_p);
    digester_add(digester, &request->top_k, sizeof request->top_k);
    digester_add_u64(digester, request->seed);
    digester_add_u64(digester, (uint64_t)request->stop_count);
    for (int i = 0; i < request->stop_count; i++)
        digester_add_text(digester, request->stop[i].bytes, request->stop[i].length);
    digest_choices(digester, request);
    if (request->variables != NULL &&
        json_dump_callback(request->variables, digest_json_part, digester, JSON_COMPACT | JSON_SORT_KEYS) != 0)
        return error_set(error, NJ_INTERNAL, "out of memory");
    *out = digester_end(digester);
    return 0;
}

/* Biased tokens come by ascending number. */
static int check_bias(const struct nj_prompt_encoder *encoder, const struct nj_request *request,
                      struct nj_problem *problem)
{
    const int32_t vocabulary = encoder->model->shape.vocabulary, count = request->bias_count;
    if (count == 0 || request->bias[count - 1].token < vocabulary)
        return 0;
    problem_set(problem, "invalid_request",
                "logit_bias names token %d, but the model's vocabulary has tokens 0 to %d only",
                (int)request->bias[count - 1].token, (int)vocabulary - 1);
    return 1;
}

static int check_length(const struct nj_prompt_encoder *encoder, struct nj_problem *problem)
{
    size_t count = encoder->ids.count;
    if (count == 0) {
        problem_set(problem, "empty_prompt", "the prompt has no tokens: give it some text");
        return 1;
    }
    if (count >= (size_t)encoder->model->shape.context)
        return refuse_length(encoder, "", count, problem);
    return 0;
}

int prompt_encode(struct nj_prompt_encoder *encoder, const struct nj_request *request, struct nj_encoded_prompt *out,
                  struct nj_problem *problem, struct nj_error *error)
{
    *out = (struct nj_encoded_prompt){0};
    int result = check_bias(encoder, request, problem);
    if (result == 0)
        result = encode_tokens(encoder, request, out, problem, error);
    if (result == 0)
        result = check_length(encoder, problem);
    if (result != 0)
        return result;
    int32_t room = encoder->model->shape.context - (int32_t)encoder->ids.count;
    out->tokens = encoder->ids.id;
    out->count = (int32_t)encoder->ids.count;
    out->max_new_tokens = request->max_tokens < room ? (int32_t)request->max_tokens : room;
    return digest_request(encoder, request, &out->digest, error);
}

struct nj_digest prompt_digest_bad_line(struct nj_prompt_encoder *encoder, const char *text, size_t length)
{
    struct nj_digester *digester = encoder->digester;
    digester_begin(digester);
    digester_add(digester, &encoder->options.job_digest, sizeof encoder->options.job_digest);
    digester_add_text(digester, "bad line", 8);
    digester_add_text(digester, text, length);
    return digester_end(digester);
}

struct nj_digest prompt_digest_job(struct nj_prompt_encoder *encoder, const struct nj_model *model, const char *kv_type,
                                   int arithmetic_version)
{
    struct nj_digester *digester = encoder->digester;
    digester_begin(digester);
    digester_add_text(digester, model->digest, strlen(model->digest));
    digester_add_text(digester, kv_type, strlen(kv_type));
    digester_add_text(digester, model->tokenizer_digest, strlen(model->tokenizer_digest));
    digester_add_text(digester, model->template_digest, strlen(model->template_digest));
    digester_add_u64(digester, (uint64_t)arithmetic_version);
    return digester_end(digester);
}
