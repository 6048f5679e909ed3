#include "pipeline/job/plan_time.h"

#include <math.h>

#include "engine/sweep/bench.h"

/* What is measured: a sweep of a prompt, and new tokens of several sequences. Few layers and words, since time grows
 * with their number; little context, since only attention depends on it. */
enum { LAYERS = 2, VOCABULARY = 4096, CONTEXT = 60, SEQUENCES_MOST = 64, PROMPT_TOKENS_MOST = 512 };

static const double SECONDS_EACH = 0.4;
static const double LEAST_ANSWER = 0.25, LEAST_MARGIN = 0.8, MOST_MARGIN = 1.3;

/* Seconds of the whole model for each token of a measured batch. */
struct cost {
    double fixed;                  /* all but attention */
    double attention_per_position; /* for each position that the token looks back at */
};

/* Scales what `layers` layers and a head of `vocabulary` rows took to the whole model. `head_rows` is the share of
 * tokens that had logits. */
static struct cost scale(const struct nj_hyperparameters *whole, const struct nj_hyperparameters *part,
                         const struct nj_bench_result *result, double head_rows, double positions)
{
    const struct nj_device_times *times = &result->times;
    const double tokens = (double)result->tokens;
    const double layers = (double)whole->layers / part->layers;
    const double words = (double)whole->vocabulary / part->vocabulary;
    const double part_head = 2.0 * head_rows * part->vocabulary * part->width;
    const double part_layers = times->matmul_operations / tokens - part_head;
    const double operations = (part_layers * layers + part_head * words) / (part_layers + part_head);
    const double matmul = times->seconds[NJ_OP_MATMUL], attention = times->seconds[NJ_OP_ATTENTION];
    const double logits = times->seconds[NJ_OP_LOGIT_STATS];
    const double others = result->seconds - matmul - attention - logits;
    return (struct cost){.fixed = (matmul * operations + logits * words + others * layers) / tokens,
                         .attention_per_position = attention * layers / tokens / positions};
}

/* Sequences in flight on average: as many as rows, answers and KV blocks allow. */
static int32_t sequences_in_flight(const struct nj_scheduler_options *scheduler, const struct nj_lengths *lengths)
{
    /* On average a sequence holds its prompt and half of its answer. */
    const double tokens =
        ((double)lengths->prompt_tokens + (double)lengths->most_new_tokens / 2) / (double)lengths->sequences;
    const double fit = (double)scheduler->kv_blocks / ceil(tokens / NJ_KV_BLOCK_TOKENS + 0.5);
    const double most = fmin(fit, scheduler->most_sequences);
    return most < 1 ? 1 : (int32_t)most;
}

static double seconds_at(const struct nj_lengths *lengths, struct cost prefill, struct cost decode, double share)
{
    const double new_tokens = share * (double)lengths->most_new_tokens;
    const double prefill_positions = lengths->prompt_squares / 2;
    const double decode_positions = share * lengths->prompt_times_new + share * share / 2 * lengths->new_squares;
    return prefill.fixed * (double)lengths->prompt_tokens + prefill.attention_per_position * prefill_positions +
           decode.fixed * new_tokens + decode.attention_per_position * decode_positions;
}

static void predict(const struct nj_lengths *lengths, struct cost prefill, struct cost decode, struct nj_plan_time *out)
{
    const double no_answers = seconds_at(lengths, prefill, decode, 0);
    const double half = seconds_at(lengths, prefill, decode, 0.5) - no_answers;
    out->prefill_tokens_per_second = (double)lengths->prompt_tokens / no_answers;
    out->decode_tokens_per_second = (double)lengths->most_new_tokens / 2 / half;
    out->least_seconds = LEAST_MARGIN * seconds_at(lengths, prefill, decode, LEAST_ANSWER);
    out->most_seconds = MOST_MARGIN * seconds_at(lengths, prefill, decode, 1);
}

int plan_time_measure(const struct nj_model *model, struct nj_device *device,
                      const struct nj_scheduler_options *scheduler, const struct nj_lengths *lengths,
                      double sweep_read_seconds, struct nj_plan_time *out, struct nj_error *error)
{
    struct nj_model part = *model;
    part.shape.layers = model->shape.layers < LAYERS ? model->shape.layers : LAYERS;
    part.shape.vocabulary = model->shape.vocabulary < VOCABULARY ? model->shape.vocabulary : VOCABULARY;
    part.weights =
        weights_create_blank(model->gguf, &model->shape, part.shape.layers, part.shape.vocabulary, device, error);
    if (part.weights == NULL)
        return -1;
    const struct nj_bench_options bench = {.kv_type = scheduler->kv_type,
                                           .token_budget = scheduler->token_budget,
                                           .seconds = SECONDS_EACH,
                                           .stop = scheduler->cancel};
    out->decode_sequences = sequences_in_flight(scheduler, lengths);
    const int32_t sequences = out->decode_sequences < SEQUENCES_MOST ? out->decode_sequences : SEQUENCES_MOST;
    const int32_t prompt_tokens =
        scheduler->token_budget < PROMPT_TOKENS_MOST ? scheduler->token_budget : PROMPT_TOKENS_MOST;
    struct nj_bench_result prefill, decode;
    int status = bench_prefill(&part, device, &bench, 1, prompt_tokens, &prefill, error);
    if (status == 0)
        status = bench_decode(&part, device, &bench, sequences, CONTEXT, &decode, error);
    weights_destroy(part.weights);
    if (status != 0)
        return -1;
    struct cost prefill_cost = scale(&model->shape, &part.shape, &prefill, 1.0 / prompt_tokens, prompt_tokens / 2.0);
    struct cost decode_cost = scale(&model->shape, &part.shape, &decode, 1, CONTEXT + (double)decode.repeats / 2);
    prefill_cost.fixed = fmax(prefill_cost.fixed, sweep_read_seconds / scheduler->token_budget);
    decode_cost.fixed = fmax(decode_cost.fixed, sweep_read_seconds / out->decode_sequences);
    predict(lengths, prefill_cost, decode_cost, out);
    return 0;
}
