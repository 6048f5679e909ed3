#include "engine/sweep/logprobs.h"

/* JSON has no infinity, and nobody tells such values apart. */
static const double least_value = -9999;

static struct nj_logprob logprob_of(const float *logits, const struct nj_logit_stats *stats, int32_t token)
{
    const double value = logprobs_value(logits, stats, token);
    return (struct nj_logprob){.token = token, .value = (float)(value > least_value ? value : least_value)};
}

/* Tokens come in ascending order, so one that only equals another ranks behind it. */
static int32_t insert(const float *logits, int32_t token, struct nj_logprob *best, int32_t count, int32_t top)
{
    int32_t at = count < top ? count : top - 1;
    for (; at > 0 && logits[token] > logits[best[at - 1].token]; at--)
        best[at] = best[at - 1];
    best[at].token = token;
    return count < top ? count + 1 : top;
}

static void find_best(const float *logits, int32_t vocabulary, struct nj_logprob *best, int32_t top)
{
    int32_t count = 0;
    for (int32_t token = 0; token < vocabulary && top > 0; token++)
        if (count < top || logits[token] > logits[best[top - 1].token])
            count = insert(logits, token, best, count, top);
    for (; count < top; count++)
        best[count].token = -1;
}

void logprobs_note(const float *logits, int32_t vocabulary, const struct nj_logit_stats *stats, int32_t token,
                   int32_t top, struct nj_logprob *out)
{
    struct nj_logprob *best = out + 1;
    out[0] = logprob_of(logits, stats, token);
    find_best(logits, vocabulary, best, top);
    for (int32_t i = 0; i < top; i++)
        best[i] = best[i].token < 0 ? (struct nj_logprob){.token = -1} : logprob_of(logits, stats, best[i].token);
}
