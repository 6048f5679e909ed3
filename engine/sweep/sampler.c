#include "engine/sweep/sampler.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "kernels/cpu_kernels.h"
#include "kernels/elementary.h"

__extension__ typedef unsigned __int128 uint128;

/* exp(-28) < 2^-40: such a weight is 0 whatever the rounding. */
static const float least_exponent = -28.0f;

struct nj_sampler {
    int32_t vocabulary;
    uint64_t *weight;   /* [vocabulary] */
    int32_t *candidate; /* [vocabulary] tokens of weight > 0: a heap in front, then ranks in descending order */
    float *biased;      /* [vocabulary] */
};

uint64_t sampler_bytes(int32_t vocabulary)
{
    return sizeof(struct nj_sampler) + (uint64_t)vocabulary * (sizeof(uint64_t) + sizeof(int32_t) + sizeof(float));
}

struct nj_sampler *sampler_create(int32_t vocabulary)
{
    struct nj_sampler *sampler = malloc(sampler_bytes(vocabulary));
    if (sampler == NULL)
        return NULL;
    sampler->vocabulary = vocabulary;
    sampler->weight = (uint64_t *)(sampler + 1);
    sampler->candidate = (int32_t *)(sampler->weight + vocabulary);
    sampler->biased = (float *)(sampler->candidate + vocabulary);
    return sampler;
}

void sampler_destroy(struct nj_sampler *sampler)
{
    free(sampler);
}

/* By the kernels that are the definition; every table gives the same bits. */
static struct nj_logit_stats stats_of(const float *logits, int32_t vocabulary)
{
    struct nj_logit_stats stats;
    const union nj_operation_args args = {
        .logit_stats = {.logits = logits, .count = 1, .vocabulary = vocabulary, .stride = vocabulary, .out = &stats}};
    cpu_kernels_find("reference")->run[NJ_OP_LOGIT_STATS](&args, 0, 1);
    return stats;
}

struct nj_logit_row sampler_apply_bias(struct nj_sampler *sampler, const struct nj_sampling *sampling,
                                       struct nj_logit_row row)
{
    if (sampling->bias_count == 0)
        return row;
    memcpy(sampler->biased, row.logits, (size_t)sampler->vocabulary * sizeof *sampler->biased);
    for (int32_t i = 0; i < sampling->bias_count; i++)
        sampler->biased[sampling->bias[i].token] += sampling->bias[i].bias;
    return (struct nj_logit_row){.logits = sampler->biased, .stats = stats_of(sampler->biased, sampler->vocabulary)};
}

static uint64_t random_bits(const struct nj_sampling *sampling, int64_t position)
{
    const uint64_t key[4] = {sampling->seed, sampling->request_hash, sampling->sample, (uint64_t)position};
    return XXH3_64bits(key, sizeof key);
}

/* Fills the weights and returns their sum. */
static uint64_t weigh(struct nj_sampler *sampler, float temperature, const float *logits, float max)
{
    uint64_t total = 0;
    for (int32_t i = 0; i < sampler->vocabulary; i++) {
        float exponent = (logits[i] - max) / temperature;
        uint64_t weight = exponent < least_exponent ? 0 : (uint64_t)(elementary_exp(exponent) * 0x1p40f);
        sampler->weight[i] = weight;
        total += weight;
    }
    return total;
}

static bool ranks_before(const float *logits, int32_t a, int32_t b)
{
    return logits[a] > logits[b] || (logits[a] == logits[b] && a < b);
}

/* Restores the heap (best rank at the root) below `at`. */
static void sift_down(int32_t *heap, int32_t count, int32_t at, const float *logits)
{
    int32_t token = heap[at];
    for (;;) {
        int64_t child = 2 * (int64_t)at + 1;
        if (child >= count)
            break;
        if (child + 1 < count && ranks_before(logits, heap[child + 1], heap[child]))
            child++;
        if (!ranks_before(logits, heap[child], token))
            break;
        heap[at] = heap[child];
        at = (int32_t)child;
    }
    heap[at] = token;
}

/* Collects the tokens of weight > 0 as a heap; returns their number. */
static int32_t build_heap(struct nj_sampler *sampler, const float *logits)
{
    int32_t count = 0;
    for (int32_t i = 0; i < sampler->vocabulary; i++)
        if (sampler->weight[i] > 0)
            sampler->candidate[count++] = i;
    for (int32_t at = count / 2 - 1; at >= 0; at--)
        sift_down(sampler->candidate, count, at, logits);
    return count;
}

/* Moves the best token from the heap of `count` to the place behind it. */
static int32_t pop(int32_t *heap, int32_t count, const float *logits)
{
    int32_t best = heap[0];
    heap[0] = heap[count - 1];
    heap[count - 1] = best;
    sift_down(heap, count - 1, 0, logits);
    return best;
}

/* The token of the last rank that top_k and top_p keep; -1 if they keep all. Ranks are popped off a heap one by one:
 * sorting costs no more than what is kept. */
static int32_t find_last_kept(struct nj_sampler *sampler, const struct nj_sampling *sampling, const float *logits,
                              uint64_t total)
{
    int32_t *heap = sampler->candidate;
    const int32_t count = build_heap(sampler, logits);
    int32_t kept = count, ranked = 0;
    if (sampling->top_k > 0 && sampling->top_k < count) {
        kept = sampling->top_k;
        for (total = 0; ranked < kept; ranked++)
            total += sampler->weight[pop(heap, count - ranked, logits)];
    }
    if (sampling->top_p >= 1.0f)
        return kept < count ? heap[count - kept] : -1;

    const double enough = (double)sampling->top_p * (double)total;
    uint64_t sum = 0;
    for (int32_t rank = 0; rank < kept; rank++) {
        if (rank == ranked)
            pop(heap, count - ranked++, logits);
        int32_t token = heap[count - 1 - rank];
        sum += sampler->weight[token];
        if ((double)sum >= enough)
            return token;
    }
    return heap[count - kept];
}

/* Sets the weight of every token that ranks behind `last` to 0; returns the sum of the others. */
static uint64_t drop_behind(struct nj_sampler *sampler, const float *logits, int32_t last)
{
    uint64_t total = 0;
    for (int32_t i = 0; i < sampler->vocabulary; i++) {
        if (ranks_before(logits, last, i))
            sampler->weight[i] = 0;
        total += sampler->weight[i];
    }
    return total;
}

/* The same for weights below min_p times the largest. */
static uint64_t drop_below(struct nj_sampler *sampler, float min_p)
{
    const double least = (double)min_p * 0x1p40;
    uint64_t total = 0;
    for (int32_t i = 0; i < sampler->vocabulary; i++) {
        if ((double)sampler->weight[i] < least)
            sampler->weight[i] = 0;
        total += sampler->weight[i];
    }
    return total;
}

int32_t sampler_choose(struct nj_sampler *sampler, const struct nj_sampling *sampling, int64_t position,
                       const float *logits, const struct nj_logit_stats *stats)
{
    if (!(sampling->temperature > 0.0f))
        return stats->argmax;
    uint64_t total = weigh(sampler, sampling->temperature, logits, stats->max);
    if (sampling->top_k > 0 || sampling->top_p < 1.0f) {
        const int32_t last = find_last_kept(sampler, sampling, logits, total);
        if (last >= 0)
            total = drop_behind(sampler, logits, last);
    }
    if (sampling->min_p > 0.0f)
        total = drop_below(sampler, sampling->min_p);

    const uint64_t target = (uint64_t)(((uint128)random_bits(sampling, position) * total) >> 64);
    uint64_t sum = 0;
    for (int32_t i = 0; i < sampler->vocabulary; i++) {
        sum += sampler->weight[i];
        if (sum > target)
            return i;
    }
    return stats->argmax;
}
