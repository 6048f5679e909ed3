#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine/sweep/sampler.h"
#include "kernels/cpu_kernels.h"
#include "kernels/elementary.h"

enum { VOCABULARY = 97, DRAWS = 20000 };

/* Logits with ties, among them at the top: 0.25 steps over about six units. */
static void fill_logits(float *logits, int32_t count, unsigned seed)
{
    for (int32_t i = 0; i < count; i++) {
        seed = seed * 1664525u + 1013904223u;
        logits[i] = (float)(seed >> 27) * 0.25f - 3.0f;
    }
}

static struct nj_logit_stats stats_of(const float *logits, int32_t count)
{
    struct nj_logit_stats stats = {.max = logits[0], .argmax = 0, .finite = 1};
    for (int32_t i = 1; i < count; i++)
        if (logits[i] > stats.max) {
            stats.max = logits[i];
            stats.argmax = i;
        }
    for (int32_t i = 0; i < count; i++)
        stats.sum += expf(logits[i] - stats.max);
    return stats;
}

struct ranked {
    int32_t token;
    double probability;
};

static int compare_ranked(const void *left, const void *right)
{
    const struct ranked *a = left, *b = right;
    if (a->probability != b->probability)
        return a->probability > b->probability ? -1 : 1;
    return a->token - b->token;
}

/* Probabilities of the kept tokens, by the textbook: sort everything, cut, normalise. */
static void expected_probabilities(const struct nj_sampling *sampling, const float *logits, int32_t count, double *out)
{
    struct ranked *ranked = calloc((size_t)count, sizeof *ranked);
    const float max = stats_of(logits, count).max;
    for (int32_t i = 0; i < count; i++)
        ranked[i] = (struct ranked){i, exp(((double)logits[i] - max) / sampling->temperature)};
    qsort(ranked, (size_t)count, sizeof *ranked, compare_ranked);

    int32_t kept = sampling->top_k > 0 && sampling->top_k < count ? sampling->top_k : count;
    double total = 0, sum = 0;
    for (int32_t i = 0; i < kept; i++)
        total += ranked[i].probability;
    if (sampling->top_p < 1.0f) {
        int32_t rank = 0;
        do
            sum += ranked[rank++].probability;
        while (rank < kept && sum < sampling->top_p * total);
        kept = rank;
    }
    while (kept > 1 && ranked[kept - 1].probability < (double)sampling->min_p)
        kept--;
    total = 0;
    for (int32_t i = 0; i < kept; i++)
        total += ranked[i].probability;
    memset(out, 0, (size_t)count * sizeof *out);
    for (int32_t i = 0; i < kept; i++)
        out[ranked[i].token] = ranked[i].probability / total;
    free(ranked);
}

/* Draws many times, then: nothing outside the kept set, and the chi-square statistic of the rest within six
 * standard deviations of its expectation (draws are fixed by the seed, so the test always gives the same). */
static void check_distribution(struct nj_sampling sampling, const float *logits)
{
    double expected[VOCABULARY];
    int32_t seen[VOCABULARY] = {0};
    expected_probabilities(&sampling, logits, VOCABULARY, expected);
    const struct nj_logit_stats stats = stats_of(logits, VOCABULARY);
    struct nj_sampler *sampler = sampler_create(VOCABULARY);
    for (int64_t position = 0; position < DRAWS; position++)
        seen[sampler_choose(sampler, &sampling, position, logits, &stats)]++;
    sampler_destroy(sampler);

    double chi_square = 0, rare_expected = 0, rare_seen = 0;
    int freedom = -1;
    for (int32_t i = 0; i < VOCABULARY; i++) {
        const double draws = expected[i] * DRAWS;
        if (expected[i] == 0) {
            assert_int_equal(seen[i], 0);
        } else if (draws < 5) {
            rare_expected += draws;
            rare_seen += seen[i];
        } else {
            chi_square += (seen[i] - draws) * (seen[i] - draws) / draws;
            freedom++;
        }
    }
    assert_true(fabs(rare_seen - rare_expected) <= 6 * sqrt(rare_expected) + 1);
    if (freedom > 0)
        assert_true(fabs(chi_square - freedom) < 6 * sqrt(2.0 * freedom));
}

static void test_draws_follow_the_probabilities(void **state)
{
    (void)state;
    static const struct nj_sampling ways[] = {
        {.temperature = 1.0f, .top_p = 1.0f, .seed = 1},
        {.temperature = 0.5f, .top_p = 1.0f, .seed = 2, .request_hash = 9},
        {.temperature = 2.5f, .top_p = 1.0f, .seed = 3, .sample = 4},
        {.temperature = 1.0f, .top_p = 1.0f, .top_k = 1, .seed = 4},
        {.temperature = 1.0f, .top_p = 1.0f, .top_k = 10, .seed = 5},
        {.temperature = 1.0f, .top_p = 0.83f, .seed = 6},
        {.temperature = 1.0f, .top_p = 1e-6f, .seed = 7},
        {.temperature = 1.0f, .top_p = 1.0f, .min_p = 0.21f, .seed = 8},
        {.temperature = 1.3f, .top_p = 0.71f, .top_k = 23, .seed = 9},
        {.temperature = 1.3f, .top_p = 0.97f, .top_k = 40, .min_p = 0.13f, .seed = 10},
        {.temperature = 0.8f, .top_p = 0.99f, .min_p = 0.011f, .seed = 11},
        {.temperature = 1.0f, .top_p = 1.0f, .top_k = VOCABULARY, .seed = 12},
    };
    float logits[VOCABULARY];
    for (unsigned i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        fill_logits(logits, VOCABULARY, i);
        check_distribution(ways[i], logits);
    }
}

/* top_k cuts through a group of equal logits: the lowest indices stay. */
static void test_ties_go_to_the_lowest_index(void **state)
{
    (void)state;
    float logits[VOCABULARY];
    bool seen[VOCABULARY] = {false};
    for (int32_t i = 0; i < VOCABULARY; i++)
        logits[i] = i == 50 ? 1.0f : 0.0f;
    const struct nj_logit_stats stats = stats_of(logits, VOCABULARY);
    const struct nj_sampling sampling = {.temperature = 1.0f, .top_p = 1.0f, .top_k = 4};
    struct nj_sampler *sampler = sampler_create(VOCABULARY);
    for (int64_t position = 0; position < 500; position++)
        seen[sampler_choose(sampler, &sampling, position, logits, &stats)] = true;
    sampler_destroy(sampler);
    for (int32_t i = 0; i < VOCABULARY; i++)
        assert_int_equal(seen[i], i < 3 || i == 50);
}

static void test_temperature_zero_takes_the_argmax(void **state)
{
    (void)state;
    float logits[VOCABULARY];
    fill_logits(logits, VOCABULARY, 3);
    const struct nj_logit_stats stats = stats_of(logits, VOCABULARY);
    const struct nj_sampling greedy = {.temperature = 0.0f, .top_p = 1.0f};
    const struct nj_sampling nearly = {.temperature = 1e-30f, .top_p = 1.0f, .top_k = 1};
    struct nj_sampler *sampler = sampler_create(VOCABULARY);
    assert_int_equal(sampler_choose(sampler, &greedy, 0, logits, &stats), stats.argmax);
    assert_int_equal(sampler_choose(sampler, &nearly, 0, logits, &stats), stats.argmax);
    sampler_destroy(sampler);
}

/* The numbers themselves are part of the contract: they may not change from one version to the next. */
static void test_choices_are_fixed(void **state)
{
    (void)state;
    enum { COUNT = 8 };
    static const int32_t expected[COUNT] = {29, 88, 88, 38, 29, 51, 68, 32};
    float logits[VOCABULARY];
    fill_logits(logits, VOCABULARY, 11);
    const struct nj_logit_stats stats = stats_of(logits, VOCABULARY);
    const struct nj_sampling sampling = {.temperature = 1.0f, .top_p = 0.95f, .seed = 42, .request_hash = 7};
    struct nj_sampler *sampler = sampler_create(VOCABULARY);
    for (int64_t position = 0; position < COUNT; position++)
        assert_int_equal(sampler_choose(sampler, &sampling, position, logits, &stats), expected[position]);
    sampler_destroy(sampler);
}

/* The choice depends on each of seed, request, sample and position, and on nothing that came before. */
static void test_every_part_of_the_key_counts(void **state)
{
    (void)state;
    enum { COUNT = 64 };
    float logits[VOCABULARY];
    fill_logits(logits, VOCABULARY, 11);
    const struct nj_logit_stats stats = stats_of(logits, VOCABULARY);
    const struct nj_sampling ways[] = {{.temperature = 1.0f, .top_p = 1.0f},
                                       {.temperature = 1.0f, .top_p = 1.0f, .seed = 1},
                                       {.temperature = 1.0f, .top_p = 1.0f, .request_hash = 1},
                                       {.temperature = 1.0f, .top_p = 1.0f, .sample = 1}};
    int32_t chosen[4][COUNT];
    struct nj_sampler *sampler = sampler_create(VOCABULARY);
    for (int way = 0; way < 4; way++)
        for (int32_t position = 0; position < COUNT; position++)
            chosen[way][position] = sampler_choose(sampler, &ways[way], position, logits, &stats);
    for (int32_t position = COUNT - 1; position >= 0; position--)
        assert_int_equal(sampler_choose(sampler, &ways[0], position, logits, &stats), chosen[0][position]);
    for (int a = 0; a < 4; a++)
        for (int b = 0; b < a; b++)
            assert_true(memcmp(chosen[a], chosen[b], sizeof chosen[a]) != 0);
    sampler_destroy(sampler);
}

/* The scale of weights and the bound below which exp is not asked rest on these. */
static void test_weights_are_in_range(void **state)
{
    (void)state;
    assert_true(elementary_exp(0.0f) == 1.0f);
    assert_true(elementary_exp(-28.0f) * 0x1p40f < 1.0f);
    const float extreme[3] = {-3e38f, 3e38f, 1.0f};
    const struct nj_logit_stats stats = stats_of(extreme, 3);
    const struct nj_sampling sampling = {.temperature = 100.0f, .top_p = 0.9f, .min_p = 0.1f};
    struct nj_sampler *sampler = sampler_create(3);
    for (int64_t position = 0; position < 100; position++)
        assert_int_equal(sampler_choose(sampler, &sampling, position, extreme, &stats), 1);
    sampler_destroy(sampler);
}

/* The row that logit_bias gives, added up and measured by hand. */
static struct nj_logit_row biased_by_hand(const float *logits, const struct nj_logit_bias *bias, int32_t count,
                                          float *row)
{
    struct nj_logit_row out = {.logits = row};
    memcpy(row, logits, VOCABULARY * sizeof *row);
    for (int32_t i = 0; i < count; i++)
        row[bias[i].token] = row[bias[i].token] + bias[i].bias;
    const union nj_operation_args args = {
        .logit_stats = {.logits = row, .count = 1, .vocabulary = VOCABULARY, .stride = VOCABULARY, .out = &out.stats}};
    cpu_kernels_find(NULL)->run[NJ_OP_LOGIT_STATS](&args, 0, 1);
    return out;
}

static struct nj_logit_row apply_bias(struct nj_sampler *sampler, const float *logits,
                                      const struct nj_sampling *sampling)
{
    const struct nj_logit_row row = {.logits = logits, .stats = stats_of(logits, VOCABULARY)};
    return sampler_apply_bias(sampler, sampling, row);
}

static void test_bias_is_added_to_the_bit(void **state)
{
    (void)state;
    static const struct nj_logit_bias bias[] = {{3, -100.0f}, {17, 1.5f}, {18, 0.1f}, {VOCABULARY - 1, 0.3333333f}};
    const struct nj_sampling sampling = {.temperature = 1.0f, .top_p = 1.0f, .bias = bias, .bias_count = 4};
    const struct nj_sampling without = {.temperature = 1.0f, .top_p = 1.0f};
    float logits[VOCABULARY], row[VOCABULARY];
    fill_logits(logits, VOCABULARY, 5);
    struct nj_sampler *sampler = sampler_create(VOCABULARY);
    const struct nj_logit_row expected = biased_by_hand(logits, bias, 4, row);
    const struct nj_logit_row actual = apply_bias(sampler, logits, &sampling);
    assert_memory_equal(actual.logits, expected.logits, sizeof row);
    assert_memory_equal(&actual.stats, &expected.stats, sizeof expected.stats);
    for (int64_t position = 0; position < 200; position++)
        assert_int_equal(sampler_choose(sampler, &sampling, position, actual.logits, &actual.stats),
                         sampler_choose(sampler, &without, position, row, &expected.stats));
    assert_ptr_equal(apply_bias(sampler, logits, &without).logits, logits);
    sampler_destroy(sampler);
}

static int32_t choose_biased(struct nj_sampler *sampler, const float *logits, const struct nj_sampling *sampling,
                             int64_t position)
{
    const struct nj_logit_row row = apply_bias(sampler, logits, sampling);
    return sampler_choose(sampler, sampling, position, row.logits, &row.stats);
}

/* A hundred decides against differences of a few units; equal logits go to the lowest token as ever. */
static void test_bias_bans_and_forces(void **state)
{
    (void)state;
    float logits[VOCABULARY];
    fill_logits(logits, VOCABULARY, 6);
    const struct nj_logit_stats stats = stats_of(logits, VOCABULARY);
    const int32_t forced = stats.argmax == 11 ? 12 : 11;
    const struct nj_logit_bias ban = {stats.argmax, -100.0f}, force = {forced, 100.0f};
    const struct nj_logit_bias tie = {forced, stats.max - logits[forced]};
    struct nj_sampler *sampler = sampler_create(VOCABULARY);
    for (int hot = 0; hot < 2; hot++) {
        struct nj_sampling sampling = {.temperature = hot ? 1.0f : 0.0f, .top_p = 1.0f, .bias_count = 1};
        for (int64_t position = 0; position < 300; position++) {
            sampling.bias = &ban;
            assert_int_not_equal(choose_biased(sampler, logits, &sampling, position), ban.token);
            sampling.bias = &force;
            assert_int_equal(choose_biased(sampler, logits, &sampling, position), forced);
        }
    }
    const struct nj_sampling greedy = {.bias = &tie, .bias_count = 1};
    assert_int_equal(choose_biased(sampler, logits, &greedy, 0), forced < stats.argmax ? forced : stats.argmax);
    sampler_destroy(sampler);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_draws_follow_the_probabilities),    cmocka_unit_test(test_ties_go_to_the_lowest_index),
        cmocka_unit_test(test_temperature_zero_takes_the_argmax), cmocka_unit_test(test_choices_are_fixed),
        cmocka_unit_test(test_every_part_of_the_key_counts),      cmocka_unit_test(test_weights_are_in_range),
        cmocka_unit_test(test_bias_is_added_to_the_bit),          cmocka_unit_test(test_bias_bans_and_forces),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
