#include "engine/sweep/score.h"

#include <stdbool.h>

#include "engine/sweep/logprobs.h"

struct score {
    const int32_t *tokens;
    int32_t first; /* of the whole call */
    int32_t next;  /* the position whose logits come next */
    double *logprob;
    int32_t *argmax;
    bool finite;
};

static void note_logits(void *context, int32_t logit_index, const float *logits, const struct nj_logit_stats *stats)
{
    (void)logit_index;
    struct score *score = context;
    if (!score->finite)
        return;
    const int32_t at = score->next++;
    score->finite = stats->finite != 0;
    if (!score->finite)
        return;
    if (score->logprob != NULL)
        score->logprob[at - score->first] = logprobs_value(logits, stats, score->tokens[at + 1]);
    if (score->argmax != NULL)
        score->argmax[at - score->first] = stats->argmax;
}

/* Positions [from, from + count) of the one sequence, with logits from score->first on. */
static void fill_batch(struct nj_forward_batch *batch, const struct score *score, int32_t from, int32_t count)
{
    batch->count = count;
    batch->logit_count = 0;
    for (int32_t i = 0; i < count; i++) {
        batch->token[i] = score->tokens[from + i];
        batch->position[i] = from + i;
        batch->sequence[i] = 0;
        if (from + i >= score->first)
            batch->logit_row[batch->logit_count++] = i;
    }
}

static int score_all(struct nj_forward *forward, int32_t token_budget, struct score *score, int32_t count,
                     struct nj_error *error)
{
    /* The last token is only a target: nothing follows it. */
    for (int32_t from = 0; from < count - 1; from += token_budget) {
        const int32_t rest = count - 1 - from;
        fill_batch(forward_batch(forward), score, from, rest < token_budget ? rest : token_budget);
        forward_batch(forward)->another_follows = rest > token_budget;
        if (forward_run(forward, note_logits, score, NULL, error) != 0)
            return -1;
        if (!score->finite)
            return error_set(error, NJ_BAD_DATA, "the model gives logits that are not finite at position %d",
                             (int)score->next - 1);
    }
    return 0;
}

static int check_arguments(const struct nj_model *model, const struct nj_score_options *options, const int32_t *tokens,
                           int32_t count, int32_t first, struct nj_error *error)
{
    if (options->token_budget < 1 || first < 0 || first >= count - 1)
        return error_set(error, NJ_INTERNAL, "nothing to score: %d tokens from position %d", (int)count, (int)first);
    for (int32_t i = 0; i < count; i++)
        if (tokens[i] < 0 || tokens[i] >= model->shape.vocabulary)
            return error_set(error, NJ_BAD_DATA, "token %d at position %d is not in the model's vocabulary",
                             (int)tokens[i], (int)i);
    return 0;
}

int score_tokens(const struct nj_model *model, struct nj_device *device, const struct nj_score_options *options,
                 const int32_t *tokens, int32_t count, int32_t first, double *logprob, int32_t *argmax,
                 struct nj_error *error)
{
    if (check_arguments(model, options, tokens, count, first, error) != 0)
        return -1;
    const int64_t blocks = kv_blocks_for_tokens(count - 1);
    const struct nj_forward_options forward_options = {.token_budget = options->token_budget,
                                                       .sequences = 1,
                                                       .blocks_per_sequence = blocks,
                                                       .float_path = options->float_path};
    int result = -1;
    struct nj_forward *forward = NULL;
    struct nj_kv_cache *cache = kv_cache_create(device, &model->shape, options->kv_type, blocks, error);
    if (cache == NULL)
        goto done;
    forward = forward_create(model, device, cache, &forward_options, error);
    if (forward == NULL)
        goto done;
    for (int64_t i = 0; i < blocks; i++)
        forward_batch(forward)->blocks[i] = block_pool_take(kv_cache_blocks(cache));

    struct score score = {
        .tokens = tokens, .first = first, .next = first, .logprob = logprob, .argmax = argmax, .finite = true};
    result = score_all(forward, options->token_budget, &score, count, error);

done:
    forward_destroy(forward);
    kv_cache_destroy(cache);
    return result;
}
